//! How far a sweep is.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_initialize.c` (`vdev_initialize_calculate_progress`), `module/zfs/vdev_trim.c`
//! (`vdev_trim_calculate_progress`).

use base::{Guid, MetaslabId, ObjectId, Result};

use super::Swept;
use super::record::{SweepKind, SweepState};
use crate::spa::{Inner, Spa};

/// The progress of a sweep.
#[derive(Clone, Copy, Debug)]
pub struct SweepProgress {
    /// Its state.
    pub state: SweepState,
    /// When that began, in seconds since 1970.
    pub since_secs: u64,
    /// Bytes that are done.
    pub done_bytes: u64,
    /// Bytes that are to be done altogether, by what is free now.
    pub total_bytes: u64,
    /// Commands that failed, since the pool was opened.
    pub errors: u64,
}

impl Spa {
    /// The sweep of a device; `None` if there was none.
    ///
    /// # Errors
    /// Errors of reading space maps.
    pub fn sweep_progress(&self, device: Guid, kind: SweepKind) -> Result<Option<SweepProgress>> {
        let found = self.inner.tree.find(device);
        let Some(found) = found.filter(|vdev| vdev.kind().is_device()) else {
            return Ok(None);
        };
        let zap = ObjectId(found.config().leaf_zap);
        let record = self.inner.sweeps.get((zap, kind));
        let (Some(record), Some(swept)) = (record, self.inner.swept(zap)) else {
            return Ok(None);
        };
        let (done_bytes, total_bytes) = match record.state {
            SweepState::Canceled => (0, 0),
            _ => self.inner.measure(&swept, record.offset)?,
        };
        Ok(Some(SweepProgress {
            state: record.state,
            since_secs: record.since_secs,
            done_bytes,
            total_bytes,
            errors: record.errors,
        }))
    }
}

impl Inner {
    /// Bytes done and altogether. Only where the offset is, the free space is looked at; elsewhere each device is taken
    /// to have its share.
    fn measure(&self, swept: &Swept, offset: u64) -> Result<(u64, u64)> {
        let disks = swept.top.data_disks().max(1);
        let (mut done, mut total) = (0, 0);
        for (n, free) in (0..).zip(self.space.free_bytes(swept.id)?) {
            let Some(span) = swept.span(MetaslabId(n).0) else {
                continue;
            };
            let share = free / disks;
            if offset <= span.start {
                total += share;
            } else if offset >= span.end {
                (done, total) = (done + share, total + share);
            } else {
                let free = self.space.long_free(swept.id, n)?;
                let all = swept.places(&free, 0).space();
                done += all - swept.places(&free, offset).space();
                total += all;
            }
        }
        Ok((done, total))
    }
}
