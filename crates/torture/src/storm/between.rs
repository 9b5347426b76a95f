//! Whether a file system found after a power cut holds only what it may: everywhere the content of one of
//! several states.

use std::collections::BTreeMap;

use base::ObjectId;

use crate::memfs::{MemFile, MemFs};

/// Checks that everything in `found` is from one of the states in `window`, and that whatever all of them have
/// is there.
pub(super) fn check(found: &MemFs, window: &[&MemFs]) -> Result<(), String> {
    for (id, file) in found.files() {
        check_file(file, window, id).map_err(|e| format!("file {id}: {e}"))?;
    }
    for (id, _) in window[0].files().filter(|(_, file)| file.links > 0) {
        if found.get(id).is_none() && is_named_in_all(window, id) {
            return Err(format!("file {id} is missing"));
        }
    }
    Ok(())
}

/// Checks that all limits of owners are those of one of the states in `window`: no log has them.
pub(super) fn check_limits(found: &MemFs, window: &[&MemFs]) -> Result<(), String> {
    let limits = found.limits();
    match window.iter().any(|fs| fs.limits() == limits) {
        true => Ok(()),
        false => Err(format!("limits of owners that are of no state: {limits:?}")),
    }
}

/// The same as [`check`] for one file, if it has a name in all states.
pub(super) fn check_one(found: &MemFs, window: &[&MemFs], id: ObjectId) -> Result<(), String> {
    if !is_named_in_all(window, id) {
        return Ok(());
    }
    let file = found.get(id).ok_or("it is missing")?;
    check_file(file, window, id)
}

fn files<'a>(window: &[&'a MemFs], id: ObjectId) -> Vec<&'a MemFile> {
    window.iter().filter_map(|fs| fs.get(id)).collect()
}

fn is_named_in_all(window: &[&MemFs], id: ObjectId) -> bool {
    let mut states = window.iter();
    states.all(|fs| fs.get(id).is_some_and(|file| file.links > 0))
}

fn check_file(found: &MemFile, window: &[&MemFs], id: ObjectId) -> Result<(), String> {
    let then = &files(window, id)[..];
    if then.is_empty() {
        return Err("it should not be there".into());
    }
    let any = |fits: &dyn Fn(&MemFile) -> bool| then.iter().any(|file| fits(file));
    if !any(&|file| file.mode == found.mode) {
        return Err(format!("a mode of {:o}", found.mode));
    }
    if !any(&|file| file.uid == found.uid) {
        return Err(format!("it belongs to {}", found.uid));
    }
    // A tree is removed one file after the other: before a folder goes, its names do.
    let may_go = then.len() < window.len();
    check_map(
        found,
        then,
        ("name", may_go),
        |file| &file.entries,
        is_one_of,
    )?;
    check_map(
        found,
        then,
        ("attribute", false),
        |file| &file.xattrs,
        is_between,
    )?;
    if any(&|file| file.data == found.data) {
        return Ok(());
    }
    check_data(found, then)
}

fn check_data(found: &MemFile, then: &[&MemFile]) -> Result<(), String> {
    let lengths = then.iter().map(|file| file.data.len());
    let shortest = lengths.clone().min().unwrap_or(0);
    let longest = lengths.max().unwrap_or(0);
    let length = found.data.len();
    if !(shortest..=longest).contains(&length) {
        return Err(format!("{length} bytes, not {shortest} to {longest}"));
    }
    let byte = |file: &MemFile, at: usize| file.data.get(at).copied().unwrap_or(0);
    let is_right = |at: usize| then.iter().any(|file| byte(file, at) == found.data[at]);
    match (0..length).find(|at| !is_right(*at)) {
        Some(at) => Err(format!("byte {at} of {length} is of no state")),
        None => Ok(()),
    }
}

/// The same for named parts of a file: directory entries or extended attributes, as `what` says; and whether any of
/// them may be missing. `fits` compares a value with those of all states, `None` where there is none.
fn check_map<V: PartialEq>(
    found: &MemFile,
    then: &[&MemFile],
    (what, may_go): (&str, bool),
    of: impl Fn(&MemFile) -> &BTreeMap<Vec<u8>, V>,
    fits: impl Fn(&V, &[Option<&V>]) -> bool,
) -> Result<(), String> {
    let there = of(found);
    for (name, value) in there {
        let values: Vec<_> = then.iter().map(|file| of(file).get(name)).collect();
        if !fits(value, &values) {
            let name = String::from_utf8_lossy(name);
            return Err(format!("{what} {name} should not be there, or not so"));
        }
    }
    if may_go {
        return Ok(());
    }
    for name in of(then[0]).keys().filter(|name| !there.contains_key(*name)) {
        if then.iter().all(|file| of(file).contains_key(name)) {
            let name = String::from_utf8_lossy(name);
            return Err(format!("{what} {name} is missing"));
        }
    }
    Ok(())
}

fn is_one_of<V: PartialEq>(found: &V, values: &[Option<&V>]) -> bool {
    values.contains(&Some(found))
}

/// An extended attribute that is a file of its own is made, cut to nothing and written by a log record each: a log
/// that ends between these records leaves it so (OpenZFS `module/os/linux/zfs/zpl_xattr.c`, `zpl_xattr_set_dir`).
fn is_between(found: &Vec<u8>, values: &[Option<&Vec<u8>>]) -> bool {
    if is_one_of(found, values) {
        return true;
    }
    let has_changed = values.iter().any(|value| *value != values[0]);
    let is_of_any = |(at, byte): (usize, &u8)| {
        let mut values = values.iter().flatten();
        values.any(|value| value.get(at) == Some(byte))
    };
    has_changed && found.iter().enumerate().all(is_of_any)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: ObjectId = ObjectId(1);
    const FOLDER: ObjectId = ObjectId(2);

    /// A folder with two files.
    fn tree() -> MemFs {
        let file = |mode| MemFile {
            mode,
            ..MemFile::default()
        };
        let mut fs = MemFs::new(ROOT);
        fs.make(ROOT, b"folder", FOLDER, file(0o040_755));
        fs.make(FOLDER, b"a", ObjectId(3), file(0o100_644));
        fs.make(FOLDER, b"b", ObjectId(4), file(0o100_644));
        fs
    }

    #[test]
    fn a_tree_that_was_half_removed_is_between() {
        let before = tree();
        let mut found = tree();
        found.remove(FOLDER, b"a", false).unwrap();
        let mut after = found.clone();
        after.remove(FOLDER, b"b", false).unwrap();
        after.remove(ROOT, b"folder", true).unwrap();
        check(&found, &[&before, &after]).unwrap();
        // A folder that stays keeps its names.
        check(&found, &[&before, &before]).unwrap_err();
        check(&before, &[&found, &after]).unwrap_err();
    }

    #[test]
    fn an_attribute_may_be_half_written_if_it_changed() {
        let with = |value: Option<&[u8]>| {
            let mut fs = tree();
            let xattrs = &mut fs.file_mut(ObjectId(3)).xattrs;
            xattrs.extend(value.map(|value| (b"user.a".to_vec(), value.to_vec())));
            fs
        };
        let (none, old, new) = (with(None), with(Some(b"old")), with(Some(b"newer")));
        let (empty, part, other) = (with(Some(b"")), with(Some(b"newe")), with(Some(b"odd")));
        for window in [[&none, &new], [&old, &new]] {
            check(&empty, &window).unwrap();
            check(&part, &window).unwrap();
            check(&other, &window).unwrap_err();
        }
        check(&empty, &[&old, &old]).unwrap_err();
        check(&none, &[&old, &new]).unwrap_err();
    }
}
