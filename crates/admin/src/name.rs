//! Rules for the names of pools, datasets, snapshots and bookmarks.
//!
//! # Source
//! OpenZFS module/zcommon/zfs_namecheck.c, lib/libzfs/libzfs_dataset.c `zfs_validate_name`,
//! libzfs_pool.c `zpool_name_valid` @be7657e3.

use std::fmt;

use phys::pool_names::ORIGIN_DIR_NAME;

/// `ZFS_MAX_DATASET_NAME_LEN`: names have fewer bytes than this.
pub(crate) const NAME_LEN_LIMIT: usize = 256;
/// `zfs_max_dataset_nesting`: a dataset is fewer than this many levels below the root dataset.
pub(crate) const NESTING_LIMIT: usize = 50;
/// Pool names have fewer bytes than this, to leave room for `/$ORIGIN@$ORIGIN`.
const POOL_NAME_LEN_LIMIT: usize = NAME_LEN_LIMIT - 2 - 2 * ORIGIN_DIR_NAME.len();

/// The kinds of names in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// A file system or a volume.
    Dataset,
    /// `dataset@snapshot`
    Snapshot,
    /// `dataset#bookmark`
    Bookmark,
    /// A file system, volume or snapshot.
    DatasetOrSnapshot,
    /// Any of them.
    Any,
}

impl NameKind {
    fn may_have(self, delimiter: char) -> bool {
        matches!(
            (self, delimiter),
            (NameKind::Any, _)
                | (NameKind::Snapshot | NameKind::DatasetOrSnapshot, '@')
                | (NameKind::Bookmark, '#')
        )
    }
}

/// `namecheck_err_t`: what is wrong with a name, in the wording of the tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameError {
    /// 256 bytes or more
    TooLong,
    /// `/tank`
    LeadingSlash,
    /// `tank//home`, `tank@`
    EmptyComponent,
    /// `tank/`, `tank@a/b`
    TrailingSlash,
    /// A character that is not allowed; whether it is in a pool's name
    InvalidChar(char, bool),
    /// `tank@a@b`
    MultipleDelimiters,
    /// A pool's name that does not begin with a letter
    NoLetter,
    /// Words of vdev specifications: mirror, raidz, draid, spare, log
    Reserved,
    /// `.`
    SelfReference,
    /// `..`
    ParentReference,
    /// An `@` in a name that is not of a snapshot
    UnexpectedAt,
    /// A `#` in a name that is not of a bookmark
    UnexpectedPound,
    /// A snapshot without `@`
    MissingAt,
    /// A bookmark without `#`
    MissingPound,
    /// 50 levels or more below the root dataset
    TooDeep,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NameError::InvalidChar(c, true) => {
                return write!(f, "invalid character '{c}' in pool name");
            }
            NameError::InvalidChar('%', false) => "invalid character % in name",
            NameError::InvalidChar(c, false) => {
                return write!(f, "invalid character '{c}' in name");
            }
            NameError::TooLong => "name is too long",
            NameError::LeadingSlash => "leading slash in name",
            NameError::EmptyComponent => {
                "empty component or misplaced '@' or '#' delimiter in name"
            }
            NameError::TrailingSlash => "trailing slash in name",
            NameError::MultipleDelimiters => "multiple '@' and/or '#' delimiters in name",
            NameError::NoLetter => "name must begin with a letter",
            NameError::Reserved => "name is reserved",
            NameError::SelfReference => "self reference, '.' is found in name",
            NameError::ParentReference => "parent reference, '..' is found in name",
            NameError::UnexpectedAt => "snapshot delimiter '@' is not expected here",
            NameError::UnexpectedPound => "bookmark delimiter '#' is not expected here",
            NameError::MissingAt => "missing '@' delimiter in snapshot name",
            NameError::MissingPound => "missing '#' delimiter in bookmark name",
            NameError::TooDeep => "max nested dataset depth exceeded",
        })
    }
}

impl std::error::Error for NameError {}

fn is_valid_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.: ".contains(c)
}

/// Checks one component: the part between slashes, or after `@` or `#`.
///
/// # Errors
/// What is wrong with it.
#[doc(alias = "zfs_component_namecheck")]
pub fn check_component(name: &str) -> Result<(), NameError> {
    if name.len() >= NAME_LEN_LIMIT {
        return Err(NameError::TooLong);
    }
    if name.is_empty() {
        return Err(NameError::EmptyComponent);
    }
    match name.chars().find(|c| !is_valid_char(*c)) {
        Some(c) => Err(NameError::InvalidChar(c, false)),
        None => Ok(()),
    }
}

/// Checks the name of a dataset, snapshot or bookmark. `is_new`: it is about to be created, so the
/// name must not contain `%`, which is reserved for the temporary datasets of a receive.
///
/// # Errors
/// What is wrong with it.
#[doc(alias = "zfs_validate_name")]
pub fn check_name(name: &str, kind: NameKind, is_new: bool) -> Result<(), NameError> {
    let (has_at, has_pound) = (name.contains('@'), name.contains('#'));
    if has_at && !kind.may_have('@') {
        return Err(NameError::UnexpectedAt);
    }
    if kind == NameKind::Snapshot && !has_at {
        return Err(NameError::MissingAt);
    }
    if has_pound && !kind.may_have('#') {
        return Err(NameError::UnexpectedPound);
    }
    if kind == NameKind::Bookmark && !has_pound {
        return Err(NameError::MissingPound);
    }
    if is_new && name.contains('%') {
        return Err(NameError::InvalidChar('%', false));
    }
    check_entity(name)
}

#[doc(alias = "entity_namecheck")]
fn check_entity(name: &str) -> Result<(), NameError> {
    if name.len() >= NAME_LEN_LIMIT {
        return Err(NameError::TooLong);
    }
    if name.starts_with('/') {
        return Err(NameError::LeadingSlash);
    }
    if name.is_empty() {
        return Err(NameError::EmptyComponent);
    }
    let mut rest = name;
    let mut has_delimiter = false;
    loop {
        let end = rest.find(['/', '@', '#']).unwrap_or(rest.len());
        let (component, tail) = rest.split_at(end);
        let delimiter = tail.chars().next();
        check_path_component(component, delimiter)?;
        if matches!(delimiter, Some('@' | '#')) {
            if has_delimiter {
                return Err(NameError::MultipleDelimiters);
            }
            has_delimiter = true;
        }
        if component.is_empty() {
            return Err(NameError::EmptyComponent);
        }
        match delimiter {
            None => return Ok(()),
            Some('/') if has_delimiter => return Err(NameError::TrailingSlash),
            Some(_) => rest = &tail[1..],
        }
        if rest.is_empty() && delimiter == Some('/') {
            return Err(NameError::TrailingSlash);
        }
    }
}

fn check_path_component(component: &str, delimiter: Option<char>) -> Result<(), NameError> {
    let invalid = |c: &char| !is_valid_char(*c) && *c != '%';
    if let Some(c) = component.chars().find(invalid) {
        return Err(NameError::InvalidChar(c, false));
    }
    match (component, delimiter) {
        (".", None | Some('/')) => Err(NameError::SelfReference),
        ("..", None | Some('/')) => Err(NameError::ParentReference),
        _ => Ok(()),
    }
}

/// How many levels below the pool's root dataset a name is.
#[must_use]
#[doc(alias = "get_dataset_depth")]
pub fn depth(name: &str) -> usize {
    let path = name.split(['@', '#']).next().unwrap_or("");
    path.matches('/').count()
}

/// Checks that a dataset is not nested too deeply.
///
/// # Errors
/// [`NameError::TooDeep`].
#[doc(alias = "dataset_nestcheck")]
pub fn check_nesting(name: &str) -> Result<(), NameError> {
    if depth(name) < NESTING_LIMIT {
        Ok(())
    } else {
        Err(NameError::TooDeep)
    }
}

/// Checks a pool's name. `is_new`: the pool is about to be created; the rules for new names are
/// stricter, since existing pools may be older than those rules.
///
/// # Errors
/// What is wrong with it.
#[doc(alias = "zpool_name_valid")]
pub fn check_pool_name(name: &str, is_new: bool) -> Result<(), NameError> {
    if name.len() >= POOL_NAME_LEN_LIMIT {
        return Err(NameError::TooLong);
    }
    if let Some(c) = name.chars().find(|c| !is_valid_char(*c)) {
        return Err(NameError::InvalidChar(c, true));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(NameError::NoLetter);
    }
    if ["mirror", "raidz", "draid"].contains(&name) {
        return Err(NameError::Reserved);
    }
    let prefixes = ["mirror", "raidz", "draid", "spare"];
    if is_new && (name == "log" || prefixes.iter().any(|word| name.starts_with(word))) {
        return Err(NameError::Reserved);
    }
    Ok(())
}

/// The pool that a name belongs to.
#[must_use]
pub fn pool_of(name: &str) -> &str {
    name.split(['/', '@', '#']).next().unwrap_or("")
}

/// The dataset that a snapshot or bookmark belongs to, or the name itself.
#[must_use]
pub fn dataset_of(name: &str) -> &str {
    name.split(['@', '#']).next().unwrap_or("")
}

/// The parent dataset, `None` for a pool's root dataset. Of a snapshot or bookmark: its dataset.
#[must_use]
pub fn parent_of(name: &str) -> Option<&str> {
    let end = name.find(['@', '#']).or_else(|| name.rfind('/'))?;
    Some(&name[..end])
}

/// Checks a value of `mountpoint` other than `none` and `legacy`.
///
/// # Errors
/// [`NameError::LeadingSlash`] when it is not an absolute path, [`NameError::TooLong`].
#[doc(alias = "mountpoint_namecheck")]
pub(crate) fn check_mountpoint(path: &str) -> Result<(), NameError> {
    if !path.starts_with('/') {
        return Err(NameError::LeadingSlash);
    }
    if path
        .split('/')
        .any(|component| component.len() >= NAME_LEN_LIMIT)
    {
        return Err(NameError::TooLong);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dataset_names() {
        let long = format!("tank/{}", "a".repeat(251));
        let cases = [
            ("tank/home", None),
            ("tank", None),
            ("tank/a b.c:d-e_f", None),
            ("tank/%recv", None),
            ("tank/...", None),
            ("tank/a..b", None),
            ("/tank", Some(NameError::LeadingSlash)),
            ("tank/", Some(NameError::TrailingSlash)),
            ("tank//a", Some(NameError::EmptyComponent)),
            ("tank/a$", Some(NameError::InvalidChar('$', false))),
            ("tank/.", Some(NameError::SelfReference)),
            ("tank/../a", Some(NameError::ParentReference)),
            ("", Some(NameError::EmptyComponent)),
            ("tank@a", Some(NameError::UnexpectedAt)),
            ("tank#a", Some(NameError::UnexpectedPound)),
            (long.as_str(), Some(NameError::TooLong)),
            (&long[..255], None),
        ];
        for (name, error) in cases {
            assert_eq!(
                check_name(name, NameKind::Dataset, false).err(),
                error,
                "{name}"
            );
        }
        let new = check_name("tank/%recv", NameKind::Dataset, true).unwrap_err();
        assert_eq!(new.to_string(), "invalid character % in name");
    }

    #[test]
    fn snapshot_names() {
        let cases = [
            ("tank@a", None),
            ("tank@..", Some(NameError::ParentReference)),
            ("tank", Some(NameError::MissingAt)),
            ("tank@a@b", Some(NameError::MultipleDelimiters)),
            ("tank@", Some(NameError::EmptyComponent)),
            ("@a", Some(NameError::EmptyComponent)),
            ("tank@a/b", Some(NameError::TrailingSlash)),
        ];
        for (name, error) in cases {
            assert_eq!(
                check_name(name, NameKind::Snapshot, false).err(),
                error,
                "{name}"
            );
        }
    }

    #[test]
    fn pool_names() {
        let cases = [
            ("tank", None),
            ("ta nk", None),
            ("9tank", Some(NameError::NoLetter)),
            ("", Some(NameError::NoLetter)),
            ("tank/a", Some(NameError::InvalidChar('/', true))),
            ("mirrortank", Some(NameError::Reserved)),
            ("raidz2", Some(NameError::Reserved)),
            ("spares", Some(NameError::Reserved)),
            ("log", Some(NameError::Reserved)),
            ("logs", None),
        ];
        for (name, error) in cases {
            assert_eq!(check_pool_name(name, true).err(), error, "{name}");
        }
        assert_eq!(check_pool_name("mirrortank", false), Ok(()));
        assert_eq!(check_pool_name("mirror", false), Err(NameError::Reserved));
    }

    #[test]
    fn names_come_apart() {
        assert_eq!(pool_of("tank/a@b"), "tank");
        assert_eq!(dataset_of("tank/a@b"), "tank/a");
        assert_eq!(parent_of("tank/a@b"), Some("tank/a"));
        assert_eq!(parent_of("tank/a"), Some("tank"));
        assert_eq!(parent_of("tank"), None);
        assert_eq!(depth("a/b/c@d/e"), 2);
        let deep = "t".to_owned() + &"/x".repeat(50);
        assert_eq!(check_nesting(&deep), Err(NameError::TooDeep));
        assert_eq!(check_nesting(&deep[..deep.len() - 2]), Ok(()));
    }

    proptest! {
        #[test]
        fn prop_any_text_is_a_name_or_not(name in "[a./@#% -]{0,12}") {
            for kind in [NameKind::Dataset, NameKind::Snapshot, NameKind::Bookmark, NameKind::Any] {
                if check_name(&name, kind, false).is_ok() {
                    prop_assert!(!name.contains("//") && !name.is_empty());
                    prop_assert!(name.matches(['@', '#']).count() <= 1);
                }
            }
            let _ = check_pool_name(&name, true);
        }
    }
}
