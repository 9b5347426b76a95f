//! How members are listed.

use tarball::{Kind, Member};
use zpl::Time;

use super::super::show::{date, rwx};
use super::names::shown;
use crate::zone;

/// The columns of owner, group and size together, at least.
const COLUMNS: usize = 19;

/// A line of `tar -tv`. `width`: the columns of owners and sizes so far, which only grow.
pub(super) fn long(member: &Member, numeric: bool, width: &mut usize) -> String {
    let (letter, behind) = match member.kind {
        Kind::File => ('-', String::new()),
        Kind::Link => ('h', format!(" link to {}", shown(&member.link))),
        Kind::Symlink => ('l', format!(" -> {}", shown(&member.link))),
        Kind::CharDevice => ('c', String::new()),
        Kind::BlockDevice => ('b', String::new()),
        Kind::Directory => ('d', String::new()),
        Kind::Fifo => ('p', String::new()),
        Kind::Other(letter) => {
            let letter = char::from(letter);
            ('?', format!(" unknown file type '{letter}'"))
        }
    };
    let owner = |name: &[u8], id: u64| match numeric || name.is_empty() {
        true => id.to_string(),
        false => shown(name),
    };
    let owners = format!(
        "{}/{}",
        owner(&member.user, member.uid),
        owner(&member.group, member.gid)
    );
    let size = match (member.kind, member.device) {
        (Kind::CharDevice | Kind::BlockDevice, (major, minor)) => format!("{major},{minor}"),
        _ => member.size.to_string(),
    };
    let pad = owners.len() + 1 + size.len();
    *width = pad.max(*width).max(COLUMNS);
    let (secs, nanos) = member.mtime;
    // Years of more than four digits: what a damaged archive may say.
    let secs = secs.clamp(-62_000_000_000, 253_000_000_000);
    format!(
        "{letter}{} {owners} {size:>columns$} {} {}{behind}",
        rwx(member.mode),
        date(Time { secs, nanos }, zone::local(), false),
        shown(&member.name),
        columns = *width - pad + size.len(),
    )
}
