//! The words that commands which mount take with `-o`.
//!
//! # Source
//! OpenZFS lib/libzfs/libzfs_mount.c (`zfs_mount_at`, `zfs_add_options`), lib/libzfs/os/linux/libzfs_mount_os.c
//! (`option_map`).

use service::Given;

/// Words and the properties that they stand for.
const OPTIONS: [(&str, &str, bool); 24] = [
    ("ro", "readonly", true),
    ("rw", "readonly", false),
    ("exec", "exec", true),
    ("noexec", "exec", false),
    ("suid", "setuid", true),
    ("nosuid", "setuid", false),
    ("setuid", "setuid", true),
    ("nosetuid", "setuid", false),
    ("dev", "devices", true),
    ("nodev", "devices", false),
    ("devices", "devices", true),
    ("nodevices", "devices", false),
    ("atime", "atime", true),
    ("noatime", "atime", false),
    ("relatime", "relatime", true),
    ("norelatime", "relatime", false),
    ("strictatime", "relatime", false),
    ("mand", "nbmand", true),
    ("nomand", "nbmand", false),
    ("nbmand", "nbmand", true),
    ("nonbmand", "nbmand", false),
    ("xattr", "xattr", true),
    ("noxattr", "xattr", false),
    ("saxattr", "xattr", true),
];

/// How a data set is to be mounted.
#[derive(Debug, Default, Clone)]
pub(crate) struct How {
    /// Instead of its properties.
    pub(crate) given: Given,
    /// Other users may use it, also if who mounts is not root.
    pub(crate) allows_others: bool,
    /// Also over a directory that is not empty.
    pub(crate) overlays: bool,
    /// It is mounted already, and its options change.
    pub(crate) remounts: bool,
    /// There was a word that the host would not know: nothing can be mounted so.
    pub(crate) is_invalid: bool,
}

impl How {
    /// Takes the words of one `-o`, with commas between them.
    pub(crate) fn take(&mut self, text: &str) {
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let known = OPTIONS.iter().find(|(name, ..)| *name == word);
            match (word, known) {
                ("remount", _) => self.remounts = true,
                ("allow_other", _) => self.allows_others = true,
                ("defaults" | "zfsutil", _) => {}
                (_, Some((_, property, is_on))) => {
                    self.given.insert(property, *is_on);
                }
                _ => self.is_invalid = true,
            }
        }
    }
}
