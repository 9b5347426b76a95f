//! Properties that are not in a table: user properties, `userquota@…`, `written@…`, `feature@…`.

use phys::owner::OwnerCount;

use super::TableKind;

/// `userused@NAME`, `userquota@NAME` and the like, in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerProperty<'n> {
    /// Of what kind of owner, and what is counted.
    pub of: OwnerCount,
    /// A limit; otherwise what is used.
    pub is_limit: bool,
    /// The owner, as it was typed.
    pub owner: &'n str,
}

/// The parts of the name of a property that belongs to one owner.
#[must_use]
#[doc(alias = "userquota_propname_decode")]
pub fn owner_property(name: &str) -> Option<OwnerProperty<'_>> {
    OwnerCount::ALL.into_iter().find_map(|of| {
        let prefixes = [(of.quota_entry(), true), (of.used_prefix(), false)];
        let found = prefixes.into_iter().find_map(|(prefix, is_limit)| {
            let owner = name.strip_prefix(prefix)?;
            Some((is_limit, owner))
        });
        let (is_limit, owner) = found?;
        Some(OwnerProperty {
            of,
            is_limit,
            owner,
        })
    })
}

/// Whether it is the name of a user property: lower-case letters, digits, `-_.` and a colon.
#[must_use]
#[doc(alias = "zfs_prop_user")]
pub fn is_user_property(name: &str) -> bool {
    let is_valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.:".contains(c);
    name.contains(':') && name.chars().all(is_valid)
}

/// Whether it is one of `userused@…` and the like.
#[must_use]
#[doc(alias = "zfs_prop_userquota")]
pub fn is_userspace_property(name: &str) -> bool {
    owner_property(name).is_some()
}

/// Whether it is `written@snapshot` or `written#bookmark`.
#[must_use]
#[doc(alias = "zfs_prop_written")]
pub(crate) fn is_written_property(name: &str) -> bool {
    name.starts_with("written@") || name.starts_with("written#")
}

/// Whether it is `feature@…` (or `unsupported@…`, which only `get` shows).
#[must_use]
#[doc(alias = "zpool_prop_feature")]
pub fn is_feature_property(name: &str) -> bool {
    name.starts_with("feature@") || name.starts_with("unsupported@")
}

/// Rows of the help for properties that are not in a table: name, EDIT, VALUES.
pub(super) fn help_rows(kind: TableKind) -> Vec<(&'static str, &'static str, &'static str)> {
    match kind {
        TableKind::Dataset => vec![
            ("userused@...", "NO", "<size>"),
            ("groupused@...", "NO", "<size>"),
            ("projectused@...", "NO", "<size>"),
            ("userobjused@...", "NO", "<size>"),
            ("groupobjused@...", "NO", "<size>"),
            ("projectobjused@...", "NO", "<size>"),
            ("userquota@...", "YES", "<size> | none"),
            ("groupquota@...", "YES", "<size> | none"),
            ("projectquota@...", "YES", "<size> | none"),
            ("userobjquota@...", "YES", "<size> | none"),
            ("groupobjquota@...", "YES", "<size> | none"),
            ("projectobjquota@...", "YES", "<size> | none"),
            ("written@<snap>", "NO", "<size>"),
            ("written#<bookmark>", "NO", "<size>"),
        ],
        TableKind::Pool => vec![("feature@...", "YES", "disabled | enabled | active")],
        TableKind::Vdev => Vec::new(),
    }
}
