//! Properties that are not in a table: user properties, `userquota@…`, `written@…`, `feature@…`.

use super::TableKind;

/// `zfs_userquota_prop_prefixes`: prefix, and whether it can be set.
const USERSPACE: [(&str, bool); 12] = [
    ("userused@", false),
    ("userquota@", true),
    ("groupused@", false),
    ("groupquota@", true),
    ("userobjused@", false),
    ("userobjquota@", true),
    ("groupobjused@", false),
    ("groupobjquota@", true),
    ("projectused@", false),
    ("projectquota@", true),
    ("projectobjused@", false),
    ("projectobjquota@", true),
];

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
    USERSPACE.iter().any(|(prefix, _)| name.starts_with(prefix))
}

/// Whether it is one of the `user…quota@…` properties, which can be set.
pub(super) fn is_quota_property(name: &str) -> bool {
    USERSPACE
        .iter()
        .any(|(prefix, sets)| *sets && name.starts_with(prefix))
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
