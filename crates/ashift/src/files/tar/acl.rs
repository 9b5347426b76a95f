//! POSIX ACLs: as the kernel and OpenZFS keep them, and as the text that is in archives.
//!
//! # On disk
//! A version (2), then for each entry its tag, its permissions (16 bits each) and the number of its user or group
//! (32 bits).
//!
//! # Source
//! Linux include/uapi/linux/posix_acl_xattr.h; acl_to_text(3).

use std::collections::BTreeMap;

use crate::owner;

/// The extended attributes, in the order of [`tarball::Member::acls`].
pub(super) const NAMES: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

const VERSION: u32 = 2;
/// The number in an entry without a name.
const NOBODY: u32 = u32::MAX;

/// The tags, what they are called, and whether they have a name.
const TAGS: [(u16, &str, bool); 6] = [
    (0x01, "user", false),
    (0x02, "user", true),
    (0x04, "group", false),
    (0x08, "group", true),
    (0x10, "mask", false),
    (0x20, "other", false),
];

/// The text of an ACL; `None` if it is not one.
pub(super) fn text(value: &[u8], numeric: bool) -> Option<String> {
    let (version, entries) = value.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != VERSION || entries.len() % 8 != 0 {
        return None;
    }
    let entries = entries.chunks_exact(8).map(|entry| {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        let allowed = u16::from_le_bytes([entry[2], entry[3]]);
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        let (_, called, has_name) = TAGS.iter().find(|(known, ..)| *known == tag)?;
        let name = match has_name {
            true => name_of(called, id, numeric),
            false => String::new(),
        };
        let letter = |bit: u16, letter: char| if allowed & bit != 0 { letter } else { '-' };
        let (r, w, x) = (letter(4, 'r'), letter(2, 'w'), letter(1, 'x'));
        Some(format!("{called}:{name}:{r}{w}{x}"))
    });
    Some(entries.collect::<Option<Vec<_>>>()?.join(","))
}

fn name_of(called: &str, id: u32, numeric: bool) -> String {
    let ids = [u64::from(id)].into();
    let names = match (numeric, called) {
        (true, _) => BTreeMap::new(),
        (false, "user") => owner::names_of_users(&ids),
        (false, _) => owner::names_of_groups(&ids),
    };
    let name = names.into_values().next();
    name.unwrap_or_else(|| id.to_string())
}

/// The ACL of a text; `None` if it is not one.
pub(super) fn value(text: &[u8], numeric: bool) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let lines = text
        .split([',', '\n'])
        .map(|line| match line.split_once('#') {
            Some((line, _)) => line.trim(),
            None => line.trim(),
        });
    let entries = lines
        .filter(|line| !line.is_empty())
        .map(|line| entry(line, numeric));
    let mut entries: Vec<(u16, u32, u16)> = entries.collect::<Option<_>>()?;
    entries.sort_unstable();
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, id, allowed) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(allowed.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    Some(value)
}

/// `user:NAME:rwx`, or as star has it `user:NAME:rwx:NUMBER`.
fn entry(line: &str, numeric: bool) -> Option<(u16, u32, u16)> {
    let fields: Vec<&str> = line.split(':').collect();
    let (called, name, letters, number) = match fields[..] {
        [called, name, letters] => (called, name, letters, None),
        [called, name, letters, number] => (called, name, letters, Some(number)),
        // `mask:rwx`
        [called @ ("mask" | "m" | "other" | "o"), letters] => (called, "", letters, None),
        _ => return None,
    };
    let is_it = |known: &str| known == called || known.starts_with(called) && called.len() == 1;
    let mut tags = TAGS.iter();
    let (tag, known, has_name) =
        tags.find(|(_, known, has_name)| is_it(known) && *has_name != name.is_empty())?;
    let id = match (has_name, number.filter(|_| numeric)) {
        (false, _) => NOBODY,
        (true, Some(number)) => number.parse().ok()?,
        (true, None) => id_of(known, name, number)?,
    };
    let mut allowed = 0;
    for letter in letters.chars() {
        allowed |= match letter {
            'r' => 4,
            'w' => 2,
            'x' => 1,
            '-' => 0,
            _ => return None,
        };
    }
    Some((*tag, id, allowed))
}

fn id_of(called: &str, name: &str, number: Option<&str>) -> Option<u32> {
    if let Ok(id) = name.parse() {
        return Some(id);
    }
    let found = match called {
        "user" => owner::id_of_user(name),
        _ => owner::id_of_group(name),
    };
    let found = found.and_then(|id| u32::try_from(id).ok());
    found.or_else(|| number?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acls_are_text_and_back() {
        let long = "user::rwx,user:root:r-x,user:77777777:--x,group::r-x,mask::rwx,other::---";
        let acl = value(long.as_bytes(), false).unwrap();
        assert_eq!(acl.len(), 4 + 6 * 8);
        assert_eq!(text(&acl, false).unwrap(), long);
        assert_eq!(text(&acl, true).unwrap(), long.replace("root", "0"));
        let short = b"u::rwx\ngroup::r-x:\nother:--- # a word";
        assert!(value(short, false).is_some() && value(b"o:r", false).is_some());
        for wrong in [
            "user",
            "user:a:b:c:d",
            "user::rq",
            "x::rwx",
            "user:no such user:r",
        ] {
            assert_eq!(value(wrong.as_bytes(), false), None, "{wrong}");
        }
        assert_eq!(text(&acl[..11], false), None);
        assert_eq!(text(&[9; 12], false), None);
    }
}
