//! `ashift stat`.

use admin::getopt::Parsed;
use admin::number::Zone;
use service::Access;
use zpl::{Attr, FileType};

use super::show::{date, line, permissions, put_json, to_json};
use super::{Paths, Run};
use crate::command::{Command, Entry};
use crate::failure::Outcome;

pub(crate) const STAT: Command<Entry> = Command::parsed(
    "stat",
    "say everything about a file",
    "usage: ashift stat [-jL] POOL/DATASET[@SNAPSHOT]:/path…\n\n  -L  follow links    -j  JSON\n",
    ("jL", 1),
    stat,
);

fn stat(parsed: &Parsed) -> Outcome {
    let paths = Paths::new(Access::Read);
    let mut run = Run::new("stat");
    let zone = crate::zone::local();
    let mut all = Vec::new();
    for operand in paths.expand(&parsed.operands) {
        let found = paths.find_file(&operand, parsed.has('L'));
        let outcome = found.and_then(|(mount, id)| {
            let attr = mount.getattr(id)?;
            if parsed.has('j') {
                all.push(to_json(&operand, &attr, None));
            } else {
                show(&operand, &attr, zone);
            }
            Ok(())
        });
        run.note(&operand, outcome);
    }
    if parsed.has('j') {
        put_json(&all);
    }
    run.end(paths)
}

fn show(name: &str, attr: &Attr, zone: Zone) {
    let kind = match attr.file_type() {
        Some(FileType::Directory) => "directory",
        Some(FileType::Symlink) => "symbolic link",
        Some(FileType::Fifo) => "fifo",
        Some(FileType::Socket) => "socket",
        Some(FileType::BlockDevice) => "block special file",
        Some(FileType::CharDevice) => "character special file",
        Some(FileType::Regular) if attr.size == 0 => "regular empty file",
        _ => "regular file",
    };
    line(&format!("  File: {name}"));
    line(&format!(
        "  Size: {:<15} Blocks: {:<10} IO Block: {:<6} {kind}",
        attr.size,
        attr.used_bytes.div_ceil(512),
        attr.blksz
    ));
    line(&format!("Object: {:<15} Links: {}", attr.id, attr.links));
    line(&format!(
        "Access: ({:04o}/{})  Uid: {:<6} Gid: {}",
        attr.mode & 0o7777,
        permissions(attr),
        attr.uid,
        attr.gid
    ));
    let times = [
        ("Access", attr.atime),
        ("Modify", attr.mtime),
        ("Change", attr.ctime),
        (" Birth", attr.crtime),
    ];
    for (what, time) in times {
        line(&format!("{what}: {}", date(time, zone, true)));
    }
}
