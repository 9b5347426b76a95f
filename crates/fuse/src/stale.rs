//! Mounts whose process is gone.

use std::path::Path;

use base::Result;
use rustix::io::Errno;

use crate::device::{self, Unmount};

/// Whether the process that served the mount at a directory is gone: every access fails with `ENOTCONN`.
#[must_use]
pub fn is_stale(directory: &Path) -> bool {
    // Unlike its attributes, which the kernel may remember, this is asked of the process.
    let error = rustix::fs::statfs(directory).err();
    // `CONNABORTED`: at this very moment.
    matches!(error, Some(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Unmounts what processes that were killed have left at a directory and above it.
///
/// # Errors
/// What the host says.
pub fn clear_stale(directory: &Path) -> Result<()> {
    let mut above: Vec<&Path> = directory.ancestors().collect();
    above.reverse();
    for directory in above {
        while is_stale(directory) {
            device::unmount_with(directory, Unmount::Detach)?;
        }
    }
    Ok(())
}
