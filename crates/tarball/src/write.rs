//! What is before and after the data of a member: a pax header where there is need of one, and a ustar header.

use base::Result;
use tar::{EntryType, Header, UstarHeader};

use crate::BLOCK_BYTES;
use crate::member::{Kind, Member};
use crate::pax::{ACLS, XATTR, encoded, put, time_text};
use crate::sparse;

/// The largest numbers that fit into fields of 7 and 11 octal digits.
const SHORT_MAX: u64 = 0o7_777_777;
const LONG_MAX: u64 = 0o77_777_777_777;
/// GNU tar writes and reads so many bytes at a time, and fills the last of them with zeros.
const RECORD_BYTES: u64 = 10 << 10;

/// The blocks before a member's data: its headers, and its map if it is sparse. The extents of its map follow,
/// then [`padding`].
///
/// # Errors
/// None that a `Member` with the numbers of a file can have.
pub fn lead(member: &Member) -> Result<Vec<u8>> {
    let map = match member.is_sparse() {
        true => sparse::text(&member.map, member.size),
        false => Vec::new(),
    };
    let size = member.stored_bytes() + map.len() as u64;
    let mut header = Header::new_ustar();
    let mut records = Vec::new();
    names(member, &mut header, &mut records);
    numbers(member, size, &mut header, &mut records)?;
    for (name, value) in &member.xattrs {
        put(&mut records, &[XATTR, &encoded(name)].concat(), value);
    }
    for (key, text) in ACLS.iter().zip(&member.acls) {
        if let Some(text) = text {
            put(&mut records, key, text);
        }
    }
    header.set_cksum();
    let mut bytes = Vec::new();
    if !records.is_empty() {
        bytes.extend(header_of_records(member, &records).as_bytes());
        pad(&mut records);
        bytes.extend(records);
    }
    bytes.extend(header.as_bytes());
    bytes.extend(map);
    Ok(bytes)
}

/// The zeros after a member's data.
#[must_use]
pub fn padding(member: &Member) -> usize {
    let stored = member.stored_bytes();
    (stored.next_multiple_of(BLOCK_BYTES) - stored) as usize
}

/// The zeros after the last member of an archive that is `bytes` long.
#[must_use]
pub fn end(bytes: u64) -> usize {
    let least = bytes + 2 * BLOCK_BYTES;
    (least.next_multiple_of(RECORD_BYTES) - bytes) as usize
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES as usize), 0);
}

/// Copies as much of a text as there is room for.
fn copy(text: &[u8], field: &mut [u8]) {
    let length = text.len().min(field.len());
    field[..length].copy_from_slice(&text[..length]);
}

fn ustar(header: &mut Header) -> &mut UstarHeader {
    header.as_ustar_mut().expect("it is made as one")
}

/// The header of the records that are about a member.
fn header_of_records(member: &Member, records: &[u8]) -> Header {
    let name = member.name.strip_suffix(b"/").unwrap_or(&member.name);
    let at = name.iter().rposition(|byte| *byte == b'/');
    let (dir, name) = at.map_or((&b"."[..], name), |at| (&name[..at], &name[at + 1..]));
    let mut header = Header::new_ustar();
    copy(
        &[dir, b"/PaxHeaders/", name].concat(),
        &mut ustar(&mut header).name,
    );
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(member.mtime.0.clamp(0, LONG_MAX as i64) as u64);
    header.set_size(records.len() as u64);
    header.set_entry_type(EntryType::XHeader);
    header.set_cksum();
    header
}

fn names(member: &Member, header: &mut Header, records: &mut Vec<u8>) {
    let fields = ustar(header);
    if member.is_sparse() {
        for (key, value) in [("major", "1"), ("minor", "0")] {
            put(
                records,
                format!("GNU.sparse.{key}").as_bytes(),
                value.as_bytes(),
            );
        }
        put(records, b"GNU.sparse.name", &member.name);
        put(
            records,
            b"GNU.sparse.realsize",
            member.size.to_string().as_bytes(),
        );
        // For a program that does not know of holes.
        copy(
            &[b"GNUSparseFile.0/", &member.name[..]].concat(),
            &mut fields.name,
        );
    } else if let Some((prefix, name)) = split(&member.name) {
        copy(prefix, &mut fields.prefix);
        copy(name, &mut fields.name);
    } else {
        put(records, b"path", &member.name);
        copy(&member.name, &mut fields.name);
    }
    if member.link.len() > fields.linkname.len() {
        put(records, b"linkpath", &member.link);
    }
    copy(&member.link, &mut fields.linkname);
    // These end with a NUL, which the names do not.
    let owners = [
        (&b"uname"[..], &member.user, &mut fields.uname),
        (b"gname", &member.group, &mut fields.gname),
    ];
    for (key, name, field) in owners {
        if name.len() >= field.len() {
            put(records, key, name);
        } else {
            copy(name, field);
        }
    }
}

/// A name as the two fields of a header have it.
fn split(name: &[u8]) -> Option<(&[u8], &[u8])> {
    if name.len() <= 100 {
        return Some((b"", name));
    }
    // The first slash that leaves a name that fits; a slash at the end is of the name.
    let mut slashes = (1..name.len() - 1).filter(|at| name[*at] == b'/');
    let at = slashes.find(|at| name.len() - at - 1 <= 100)?;
    (at <= 155).then(|| (&name[..at], &name[at + 1..]))
}

fn numbers(member: &Member, size: u64, header: &mut Header, records: &mut Vec<u8>) -> Result<()> {
    let mut number = |key: &[u8], value: u64, most: u64| {
        if value > most {
            put(records, key, value.to_string().as_bytes());
            return 0;
        }
        value
    };
    header.set_mode(member.mode);
    header.set_uid(number(b"uid", member.uid, SHORT_MAX));
    header.set_gid(number(b"gid", member.gid, SHORT_MAX));
    header.set_size(number(b"size", size, LONG_MAX));
    header.set_entry_type(member.kind.entry_type());
    let (secs, nanos) = member.mtime;
    let whole = u64::try_from(secs).ok().filter(|secs| *secs <= LONG_MAX);
    header.set_mtime(whole.unwrap_or(0));
    if nanos != 0 || whole.is_none() {
        put(records, b"mtime", time_text(member.mtime).as_bytes());
    }
    if matches!(member.kind, Kind::CharDevice | Kind::BlockDevice) {
        header.set_device_major(member.device.0)?;
        header.set_device_minor(member.device.1)?;
    } else {
        header.set_device_major(0)?;
        header.set_device_minor(0)?;
    }
    Ok(())
}
