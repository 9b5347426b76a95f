//! Users and groups of this host: their names and numbers, and owners as chown(1) takes them.
//!
//! # What it is
//! `/etc/passwd` and `/etc/group` first; names that are not there are looked up with `getent`, which knows
//! the host's other sources (LDAP and the like).

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use base::{Error, Result};

/// Owner and group in `OWNER`, `OWNER:`, `OWNER:GROUP`, `:GROUP`. A colon without a group means the owner's
/// login group.
pub(crate) fn parse(text: &str) -> Result<(Option<u64>, Option<u64>)> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let uid = match user {
        "" => None,
        user => Some(id_of("passwd", user)?),
    };
    let gid = match group {
        None => None,
        Some("") if user.is_empty() => None,
        Some("") => Some(login_group(user)?),
        Some(group) => Some(id_of("group", group)?),
    };
    Ok((uid, gid))
}

fn invalid(database: &str, name: &str) -> Error {
    let what = if database == "group" { "group" } else { "user" };
    Error::invalid(format!("invalid {what}: '{name}'"))
}

/// The number of a user or group; a name of digits is a number, unless a user or group has that name.
fn id_of(database: &str, name: &str) -> Result<u64> {
    let number = || name.strip_prefix('+').unwrap_or(name).parse::<u32>().ok();
    match line_of(database, name) {
        Some(line) => field(&line, 2).ok_or_else(|| invalid(database, name)),
        None => number()
            .filter(|id| *id != u32::MAX)
            .map(u64::from)
            .ok_or_else(|| invalid(database, name)),
    }
}

fn login_group(user: &str) -> Result<u64> {
    let line = line_of("passwd", user);
    let gid = line.and_then(|line| field(&line, 3));
    gid.ok_or_else(|| invalid("passwd", user))
}

/// The number of the user of that name.
pub(crate) fn id_of_user(name: &str) -> Option<u64> {
    field(&line_of("passwd", name)?, 2)
}

/// The number of the group of that name.
pub(crate) fn id_of_group(name: &str) -> Option<u64> {
    field(&line_of("group", name)?, 2)
}

/// The names of those of these users who have one.
pub(crate) fn names_of_users(ids: &BTreeSet<u64>) -> BTreeMap<u64, String> {
    names_of("passwd", ids)
}

/// The names of those of these groups that have one.
pub(crate) fn names_of_groups(ids: &BTreeSet<u64>) -> BTreeMap<u64, String> {
    names_of("group", ids)
}

fn names_of(database: &str, ids: &BTreeSet<u64>) -> BTreeMap<u64, String> {
    /// Numbers in one question to `getent`.
    const KEYS: usize = 256;
    let mut names = BTreeMap::new();
    let mut take = |text: &str| {
        for line in text.lines() {
            if let (Some(name), Some(id)) = (line.split(':').next(), field(line, 2))
                && ids.contains(&id)
            {
                names.entry(id).or_insert_with(|| name.to_owned());
            }
        }
        names.len()
    };
    let file = std::fs::read_to_string(format!("/etc/{database}")).unwrap_or_default();
    if take(&file) == ids.len() {
        return names;
    }
    let others: Vec<String> = ids.iter().map(u64::to_string).collect();
    for keys in others.chunks(KEYS) {
        let output = Command::new("getent").arg(database).args(keys).output();
        take(&String::from_utf8_lossy(
            &output.map_or_else(|_| Vec::new(), |it| it.stdout),
        ));
    }
    names
}

/// The login group of a user who is named, or whose number is given.
pub(crate) fn group_of(user: &str) -> Option<u64> {
    let by_name = login_group(user).ok();
    by_name.or_else(|| {
        let uid = user.parse::<u32>().ok()?;
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let mut lines = users.lines();
        field(lines.find(|line| field(line, 2) == Some(uid.into()))?, 3)
    })
}

fn field(line: &str, at: usize) -> Option<u64> {
    line.split(':').nth(at)?.parse::<u32>().ok().map(u64::from)
}

/// The line of a name in a database of users or groups.
fn line_of(database: &str, name: &str) -> Option<String> {
    let is_it = |line: &&str| line.split(':').next() == Some(name);
    let file = std::fs::read_to_string(format!("/etc/{database}")).unwrap_or_default();
    if let Some(line) = file.lines().find(is_it) {
        return Some(line.to_owned());
    }
    if name.starts_with(|c: char| c.is_ascii_digit() || c == '+' || c == '-') {
        return None;
    }
    let output = Command::new("getent")
        .args([database, name])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().find(is_it).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_user_has_a_login_group() {
        assert_eq!(super::group_of("root"), Some(0));
        assert_eq!(super::group_of("0"), Some(0));
        assert_eq!(super::group_of("77777777"), None);
        assert_eq!(super::group_of("no such user"), None);
    }

    #[test]
    fn numbers_have_names() {
        let names = super::names_of_users(&[0, 77_777_777].into());
        assert_eq!(names, [(0, "root".to_owned())].into());
        assert_eq!(super::id_of_group("root"), Some(0));
        assert_eq!(super::id_of_user("0"), None);
    }

    #[test]
    fn owners_are_names_or_numbers() {
        assert_eq!(parse("root").unwrap(), (Some(0), None));
        assert_eq!(parse("root:").unwrap(), (Some(0), Some(0)));
        assert_eq!(parse("1234:5678").unwrap(), (Some(1234), Some(5678)));
        assert_eq!(parse(":root").unwrap(), (None, Some(0)));
        assert_eq!(parse("+7").unwrap(), (Some(7), None));
        assert_eq!(parse(":").unwrap(), (None, None));
        for wrong in [
            "no such user",
            "root:no such group",
            "4294967295",
            "-1",
            "77777777:",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
