//! What a device tells of itself: errors, and changes of its state. It waits here until the pool asks.
//!
//! # Source
//! OpenZFS `module/zfs/zfs_fm.c` (`zfs_is_ratelimiting_event`), `module/zfs/vdev.c` (`vdev_set_state`).

use std::collections::VecDeque;

use rt::{Mutex, Timestamp};

use crate::VdevState;

/// `zfs_checksum_events_per_second`, `zfs_slow_io_events_per_second`: more reports of a kind than this within a second
/// are counted by their device, but not made.
const PER_SECOND: u32 = 20;
/// Reports of one device that wait, at most: `zfs_zevent_len_max`, since more than that are not kept.
const WAITING_MAX: usize = 512;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The bytes of a block were wrong.
    Checksum,
    /// A read, or a write or flush, failed.
    Io {
        /// Whether it was a write or a flush.
        is_write: bool,
    },
    /// A command took too long.
    Delay(Delay),
    /// The state changed.
    State {
        /// What it was.
        from: VdevState,
        /// What it is.
        to: VdevState,
    },
}

/// A command that the device took too long for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// zio_type
    pub kind: DelayedKind,
    /// zio_offset: where on the device, in bytes.
    pub offset: u64,
    /// zio_size
    pub bytes: u64,
    /// zio_timestamp: when it began to wait for its turn.
    pub asked_ns: u64,
    /// zio_delta: from then on until it ended.
    pub took_ns: u64,
    /// zio_delay: what of that it was at the device.
    pub device_ns: u64,
}

/// What a slow command was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayedKind {
    /// ZIO_TYPE_READ
    Read = 1,
    /// ZIO_TYPE_WRITE
    Write = 2,
    /// ZIO_TYPE_TRIM
    Trim = 6,
}

impl Report {
    /// Reports of each of these kinds are made at a bounded rate; a change of state always is.
    fn limited(&self) -> Option<usize> {
        match self {
            Report::Checksum => Some(0),
            Report::Io { .. } => Some(1),
            Report::Delay(_) => Some(2),
            Report::State { .. } => None,
        }
    }
}

/// The reports of one device that nobody has taken yet.
#[derive(Default)]
pub(crate) struct Reports(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    reports: VecDeque<(Timestamp, Report)>,
    /// For each kind of limited rate, the second in which one was last made, and how many.
    recent: [(u64, u32); 3],
}

impl Reports {
    /// Adds a report; the oldest one is dropped if too many wait.
    pub(crate) fn add(&self, report: Report) {
        let now = rt::wall_clock();
        let mut waiting = self.0.lock();
        if let Some(kind) = report.limited() {
            let (second, count) = waiting.recent[kind];
            let count = if second == now.secs { count + 1 } else { 1 };
            waiting.recent[kind] = (now.secs, count);
            if count > PER_SECOND {
                return;
            }
        }
        if waiting.reports.len() == WAITING_MAX {
            waiting.reports.pop_front();
        }
        waiting.reports.push_back((now, report));
    }

    pub(crate) fn forget_changes(&self) {
        let is_error = |(_, report): &(Timestamp, Report)| !matches!(report, Report::State { .. });
        self.0.lock().reports.retain(is_error);
    }

    pub(crate) fn take(&self) -> Vec<(Timestamp, Report)> {
        std::mem::take(&mut self.0.lock().reports).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_reported_at_a_bounded_rate_and_changes_of_state_always() {
        let waited = rt::simulate(7, || {
            let reports = Reports::default();
            for _ in 0..100 {
                reports.add(Report::Checksum);
            }
            let change = Report::State {
                from: VdevState::Healthy,
                to: VdevState::Degraded,
            };
            reports.add(change);
            // One kind takes nothing away from another.
            reports.add(Report::Io { is_write: false });
            rt::sleep_ns(1_000_000_000);
            reports.add(Report::Io { is_write: true });
            let taken = reports.take();
            assert_eq!(taken.len() as u32, PER_SECOND + 3);
            assert_eq!(taken[PER_SECOND as usize].1, change);
            for _ in 0..2 * WAITING_MAX {
                reports.add(change);
            }
            reports.take().len()
        });
        assert_eq!(waited, WAITING_MAX);
    }
}
