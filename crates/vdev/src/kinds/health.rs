//! The consequences of device errors.
//!
//! # Invariants
//! 1. A device is given up only if everything that it has can be read from others: the errors of the
//!    last one go to the caller.
//!
//! # Source
//! OpenZFS `module/zfs/vdev.c` (`vdev_stat_update`, `vdev_dtl_required`), `cmd/zed/agents/zfs_diagnosis.c`.

use std::sync::Arc;

use base::{Error, ErrorKind, Result, Txg};

use zio::Priority;

use super::Node;
use crate::io_counts::Counted;
use crate::stats::VdevStats;
use crate::{Vdev, VdevAux, VdevState};

/// What came of reading one device.
#[derive(Default)]
pub(crate) enum Outcome {
    /// It was not read, or what it has is good.
    #[default]
    Untried,
    /// Not to be read: no device, or given up, maybe while the read waited.
    Skipped,
    /// The bytes were wrong.
    Mismatch,
    /// It could not be read.
    Failed(Error),
}

impl Node<'_> {
    /// What came of a read of a device that failed, before that is blamed on the device.
    pub(crate) fn failed(&self, device: &Vdev, offset: u64, error: Error) -> Outcome {
        match self.is_usable_at(device, offset) {
            true => Outcome::Failed(error),
            false => Outcome::Skipped,
        }
    }

    /// Counts what went wrong with a block of this birth against a device, and gives the device up after
    /// too many errors.
    pub(crate) fn blame(&self, device: &Arc<Vdev>, outcome: &Outcome, birth: Txg) {
        match outcome {
            Outcome::Untried | Outcome::Skipped => {}
            // It was absent when this was written: not its fault.
            Outcome::Mismatch if device.leaf().missed(birth) => {}
            Outcome::Mismatch => {
                VdevStats::add(&device.stats().checksum_errors, 1);
                let is_own = device.kind().has_labels();
                if is_own && device.leaf().note_checksum_error() && self.can_do_without(device) {
                    let leaf = device.leaf();
                    leaf.set_state(VdevState::Degraded, VdevAux::ErrExceeded);
                }
            }
            // It is what has the room of the spare that failed.
            Outcome::Failed(_) if !device.kind().has_labels() => {}
            Outcome::Failed(_) => {
                VdevStats::add(&device.stats().read_errors, 1);
                self.fault_if_failing(device, false);
            }
        }
    }

    /// After an I/O error: a device that does not answer any more, or fails too often, is given up.
    pub(crate) fn fault_if_failing(&self, device: &Arc<Vdev>, writes: bool) {
        let leaf = device.leaf();
        let too_many = leaf.note_io_error(writes);
        let writes = writes && self.is_writable;
        if (too_many || !leaf.is_alive(writes)) && self.can_do_without(device) {
            leaf.set_state(VdevState::Faulted, VdevAux::ErrExceeded);
        }
    }

    /// Whether the others have everything.
    fn can_do_without(&self, device: &Arc<Vdev>) -> bool {
        self.top.can_do_without(device)
    }

    /// Counts a write of a distributed spare, and one that failed.
    pub(crate) fn note_write(
        &self,
        device: &Arc<Vdev>,
        result: Result<()>,
        len: u64,
    ) -> Result<()> {
        match &result {
            Ok(()) => count_elsewhere(device, true, len),
            Err(_) if !device.kind().has_labels() => {}
            Err(_) => {
                VdevStats::add(&device.stats().write_errors, 1);
                self.fault_if_failing(device, true);
            }
        }
        result
    }

    /// Takes the results of flushing the devices below, `None` where there is no device: those that
    /// failed may have lost what was written to them.
    pub(crate) fn conclude_flush(&self, results: Vec<Option<Result<()>>>) -> Result<()> {
        let devices = self.vdev.leaves();
        let is_flushed = |device: &Vdev| {
            let at = devices.iter().position(|d| std::ptr::eq(&**d, device));
            at.is_some_and(|at| matches!(results[at], Some(Ok(()))))
        };
        let is_safe = self.vdev.is_complete(&is_flushed);
        let mut failed = None;
        for (device, result) in devices.iter().zip(results) {
            let Some(Err(error)) = result else { continue };
            VdevStats::add(&device.stats().write_errors, 1);
            if is_safe {
                device.leaf().dirty_dtl(self.txgs.clone());
                self.fault_if_failing(device, true);
            }
            failed = Some(error);
        }
        failed.filter(|_| !is_safe).map_or(Ok(()), Err)
    }
}

/// Counts what a distributed spare did, which other devices did for it. These count for themselves.
pub(crate) fn count_elsewhere(device: &Vdev, is_write: bool, len: u64) {
    if !device.kind().has_labels() {
        let (read, write) = (Priority::SyncRead, Priority::AsyncWrite);
        let priority = if is_write { write } else { read };
        let len = usize::try_from(len).expect("fits memory");
        let counted = Counted::new(priority, is_write, false, len);
        device.leaf().counters().note(&counted);
    }
}

/// The error of a read that no device could serve. What a device has that missed the block says nothing of it, as long
/// as another one should have it: then the pool may wait for that one.
#[doc(alias = "vdev_mirror_worst_error")]
pub(crate) fn no_copy(outcomes: impl Iterator<Item = (Outcome, bool)>) -> Error {
    let (stale, owners): (Vec<_>, Vec<_>) = outcomes.partition(|(_, has_missed)| *has_missed);
    let those = if owners.is_empty() { stale } else { owners };
    let mut failed = None;
    for (outcome, _) in those {
        match outcome {
            Outcome::Mismatch => {
                return Error::new(ErrorKind::Checksum, "no copy has the right checksum");
            }
            Outcome::Failed(error) => failed = Some(error),
            Outcome::Untried | Outcome::Skipped => {}
        }
    }
    failed.unwrap_or_else(no_device)
}

pub(crate) fn no_device() -> Error {
    Error::new(ErrorKind::Io, "no device left")
}
