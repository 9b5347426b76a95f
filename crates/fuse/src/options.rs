//! What a mount is to be like, and where it finds snapshots.

use std::sync::Arc;

use base::Result;
use zpl::AtimePolicy;
use zpl::mount::Mount;

/// What a mount is to be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// What is shown as its source, usually the name of the data set.
    pub source: String,
    /// Refuse changes.
    pub read_only: bool,
    /// Programs can be run.
    pub exec: bool,
    /// Setuid and setgid bits of programs take effect.
    pub setuid: bool,
    /// Devices can be opened.
    pub devices: bool,
    /// Users other than the one who mounts may use it; permissions are checked in any case.
    pub allow_other: bool,
    /// Access times, as the host shows them; the file system has the property itself.
    pub atime: AtimePolicy,
    /// Whether `.zfs` is listed in the root directory (`snapdir=visible`); it can be entered in any case.
    pub shows_snapdir: bool,
}

impl Default for MountOptions {
    /// What a user may have who is not root.
    fn default() -> Self {
        MountOptions {
            source: String::new(),
            read_only: false,
            exec: true,
            setuid: false,
            devices: false,
            allow_other: false,
            atime: AtimePolicy::default(),
            shows_snapdir: false,
        }
    }
}

/// The snapshots that `.zfs/snapshot` shows.
pub trait Snapshots: Send + Sync {
    /// Their names, without the data set's.
    ///
    /// # Errors
    /// I/O.
    fn names(&self) -> Result<Vec<String>>;

    /// Opens one. It stays open as long as the kernel knows files in it.
    ///
    /// # Errors
    /// `NotFound`; errors of mounting it.
    fn open(&self, name: &str) -> Result<Arc<Mount>>;
}
