//! Removing vdevs from an open pool.
//!
//! # What it is
//! The copying itself is done by the engine whenever the pool is open for writing. If a session ends before it, the
//! next one goes on.
//!
//! # Source
//! OpenZFS module/zfs/zfs_ioctl.c (`zfs_ioc_vdev_remove`), module/zfs/vdev_removal.c.

use admin::pool::{RemovalStatus, ScanState};
use base::{Guid, Result};
use phys::scan::{DSS_CANCELED, DSS_FINISHED};
use spa::Spa;
use zpl::mount::mount;

use crate::open::OpenPool;

impl OpenPool {
    /// Removes a top-level vdev. Intent logs that are to be replayed are replayed first.
    ///
    /// # Errors
    /// As [`spa::Spa::remove`]; errors of replaying.
    pub fn remove(&self, vdev: Guid) -> Result<()> {
        for name in self.parts().dsl().logs_to_replay()? {
            drop(mount(self.parts().dsl(), &name, false)?);
        }
        Spa::remove(self, vdev)
    }
}

/// What `zpool status` shows of the last removal.
pub(crate) fn removal_status(pool: &Spa) -> Option<RemovalStatus> {
    let progress = pool.removal()?;
    let phys = progress.phys;
    let state = match phys.state.get() {
        0 => return None,
        DSS_FINISHED => ScanState::Finished,
        DSS_CANCELED => ScanState::Canceled,
        _ => ScanState::Scanning,
    };
    Some(RemovalStatus {
        state,
        vdev: phys.removing_vdev.get(),
        start_secs: phys.start_time.get(),
        end_secs: phys.end_time.get(),
        total_bytes: phys.to_copy.get(),
        copied_bytes: phys.copied.get(),
        mapping_bytes: progress.mapping_bytes,
    })
}
