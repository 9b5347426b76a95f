//! Mounts whose process is gone.

use std::path::Path;

use base::Result;
use rustix::io::Errno;

use crate::device::{self, Unmount};

/// Unmounts what processes that were killed have left at a directory and above it; without that every access fails
/// with `ENOTCONN`.
///
/// # Errors
/// What the host says.
pub fn clear_stale(directory: &Path) -> Result<()> {
    let mut above: Vec<&Path> = directory.ancestors().collect();
    above.reverse();
    for directory in above {
        while rustix::fs::stat(directory).err() == Some(Errno::NOTCONN) {
            device::unmount_with(directory, Unmount::Detach)?;
        }
    }
    Ok(())
}
