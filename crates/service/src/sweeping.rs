//! Sweeps of the free space of devices: waiting for them, and what `zpool status` shows of them.
//!
//! # What it is
//! The engine sweeps whenever the pool is open for writing. If a session ends before that, the next one goes on.
//!
//! # Source
//! OpenZFS module/zfs/vdev.c (`vdev_get_stats_ex_impl`), module/zfs/spa.c (`spa_vdev_activity_in_progress_impl`).

use admin::pool::{self, ActivityState, VdevStatus};
use base::{Guid, Result};
use spa::{Spa, SweepKind, SweepProgress, SweepState};

use crate::open::OpenPool;

impl OpenPool {
    /// Waits until no sweep of that kind goes on, of these devices or of any.
    ///
    /// # Errors
    /// `Suspended`.
    pub fn wait_for_sweep(&self, kind: SweepKind, devices: Option<&[Guid]>) -> Result<()> {
        let show = self.pools().observer().progress();
        self.wait_sweep(kind, devices, &mut || {
            let (done, total) = sums(self, kind);
            show(done, total);
            true
        })
    }
}

/// Bytes done and altogether by all sweeps of that kind that go on. What cannot be read counts as nothing.
pub(crate) fn sums(pool: &Spa, kind: SweepKind) -> (u64, u64) {
    let devices = pool.parts().tree().devices();
    let progress = |guid| pool.sweep_progress(guid, kind).ok().flatten();
    let all = devices
        .iter()
        .filter_map(|device| progress(device.guid()))
        .filter(|progress| progress.state == SweepState::Active);
    all.fold((0, 0), |(done, total), progress| {
        (done + progress.done_bytes, total + progress.total_bytes)
    })
}

/// Fills in what is known of the sweeps of all devices below. What cannot be read is not shown.
pub(crate) fn show_sweeps(pool: &Spa, vdev: &mut VdevStatus) {
    for child in &mut vdev.children {
        show_sweeps(pool, child);
    }
    let found = pool.parts().tree().find(Guid(vdev.guid));
    let Some(device) = found.filter(|vdev| vdev.kind().is_device()) else {
        return;
    };
    vdev.is_trim_unsupported = !device.leaf().can_delete();
    let of = |kind| pool.sweep_progress(device.guid(), kind).ok().flatten();
    vdev.initialize = of(SweepKind::Initialize).map(shown);
    vdev.trim = of(SweepKind::Trim).map(shown);
}

fn shown(progress: SweepProgress) -> pool::Activity {
    pool::Activity {
        state: match progress.state {
            SweepState::Active => ActivityState::Active,
            SweepState::Canceled => ActivityState::Canceled,
            SweepState::Suspended => ActivityState::Suspended,
            SweepState::Complete => ActivityState::Complete,
        },
        done_bytes: progress.done_bytes,
        estimate_bytes: progress.total_bytes,
        since_secs: progress.since_secs,
        errors: progress.errors,
    }
}
