//! Sequential resilvers: bringing devices of a mirror or a dRAID up to date by what is allocated, in the order of
//! offsets, without looking at blocks and their checksums. OpenZFS calls that a *rebuild*.
//!
//! # What it is
//! A rebuild goes on in each txg, a slice at a time, as a scan does: the metaslabs of the vdev are taken one after the
//! other, and what is occupied there is copied to the devices that take part ([`vdev::VdevTree::rebuild`]). When all
//! was copied, nothing is missing there that was written before the rebuild began, and a scrub begins, which looks at
//! the checksums. A device that joins makes it begin anew.
//!
//! # On disk
//! The ZAP of the top-level vdev has a [`RebuildPhys`]: the state, and up to which offset that is done. The config of a
//! device that takes part says so (`rebuild_txg`). A rebuild goes on in the process that opens the pool next, also
//! where OpenZFS has left it, or the other way round.
//!
//! # Invariants
//! 1. A device's DTL is cleared only if it has taken part in the whole rebuild, without any error, and has missed
//!    nothing since.
//! 2. No scan begins while there is a rebuild, and no slice is done while a resilver runs.
//!
//! # Crash argument
//! The offset is written in the txg after all before it was written to the devices, which are flushed before the
//! uberblock. A power cut repeats at most one slice.
//!
//! # Concurrency
//! A slice runs in the sync thread, in the first pass. Which ranges are occupied is asked once for each metaslab, when
//! no write is in flight any more that does not know all devices: what is allocated later is written to all of them.
//! What is copied while it is free, or in use for something else by then, is copied as it is.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_rebuild.c`, `include/sys/vdev_rebuild.h`, `module/zfs/vdev.c` (`vdev_dtl_should_excise`).

mod control;
mod slice;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Error, ErrorKind, ObjectId, Result, VdevId};
use dmu::{Objset, Tx};
use phys::pool_names::VDEV_TOP_ZAP_VDEV_REBUILD_PHYS;
use phys::scan::{RebuildPhys, VDEV_REBUILD_ACTIVE, VDEV_REBUILD_CANCELED, VDEV_REBUILD_COMPLETE};
use rt::Mutex;
use vdev::VdevTree;
use zerocopy::IntoBytes;

pub use control::Resilver;

/// The state of a rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "vdev_rebuild_state_t")]
pub enum RebuildState {
    /// It goes on.
    Active,
    /// It was given up.
    Canceled,
    /// It has ended.
    Complete,
}

/// How far a rebuild is. Times are in seconds since 1970.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "vdev_rebuild_stat_t")]
pub struct RebuildProgress {
    /// Of which top-level vdev.
    pub vdev: VdevId,
    /// vrs_state
    pub state: RebuildState,
    /// What is kept of it.
    pub phys: RebuildPhys,
    /// vrs_pass_time_ms: since it went on here
    pub pass_ms: u64,
    /// vrs_pass_bytes_scanned
    pub pass_scanned_bytes: u64,
    /// vrs_pass_bytes_issued
    pub pass_issued_bytes: u64,
    /// vrs_pass_bytes_skipped
    pub pass_skipped_bytes: u64,
}

/// The rebuilds of a pool.
#[derive(Default)]
pub(crate) struct Rebuilds {
    /// The running ones, and the last ones.
    all: Mutex<BTreeMap<VdevId, Rebuild>>,
    is_any_active: AtomicBool,
    /// When the last slice ended.
    slice_ended_ns: AtomicU64,
}

/// What is known of the rebuild of one top-level vdev.
#[derive(Clone, Default)]
struct Rebuild {
    phys: RebuildPhys,
    /// The txg in which it was begun, or a device has joined; 0 if that was before the pool was opened.
    since: u64,
    /// When it went on here, and how long it had run before.
    pass: Option<(u64, u64)>,
    pass_scanned_bytes: u64,
    pass_issued_bytes: u64,
    pass_skipped_bytes: u64,
    /// The metaslab that is rebuilt now, and what is left of it; `None` if that was not asked yet.
    metaslab: u64,
    left: Option<VecDeque<Range<u64>>>,
}

impl Rebuilds {
    /// Reads the rebuilds of all vdevs. One whose entry is damaged counts as if there was none.
    #[doc(alias = "vdev_rebuild_load")]
    pub(crate) fn load(&self, mos: &Arc<Objset>, tree: &VdevTree) -> Result<()> {
        for (n, top) in tree.tops().iter().enumerate() {
            let zap = ObjectId(top.config().top_zap);
            if zap.0 == 0 || !top.kind().is_concrete() {
                continue;
            }
            let found = match zap::lookup::<u64>(mos, zap, VDEV_TOP_ZAP_VDEV_REBUILD_PHYS) {
                Err(error) if is_damage(&error) => None,
                found => found?,
            };
            let mut phys = RebuildPhys::default();
            let Some(words) = found.filter(|words| size_of_val(&**words) == size_of_val(&phys))
            else {
                continue;
            };
            phys.as_mut_bytes().copy_from_slice(words.as_bytes());
            let rebuild = Rebuild {
                metaslab: phys.last_offset.get() >> top.config().ms_shift.min(63),
                phys,
                ..Rebuild::default()
            };
            self.put(VdevId(n as u64), rebuild);
        }
        Ok(())
    }

    /// Those that were begun before the pool was opened go on: I/O makes way for them.
    pub(crate) fn resume(&self, tree: &VdevTree) {
        tree.set_rebuilding(self.is_any_active());
    }

    fn get(&self, vdev: VdevId) -> Option<Rebuild> {
        self.all.lock().get(&vdev).cloned()
    }

    fn put(&self, vdev: VdevId, rebuild: Rebuild) {
        let mut all = self.all.lock();
        all.insert(vdev, rebuild);
        let is_any = all.values().any(Rebuild::is_active);
        self.is_any_active.store(is_any, Ordering::Release);
    }

    /// A top-level vdev is gone; its number may be used again.
    pub(crate) fn forget(&self, vdev: VdevId) {
        self.all.lock().remove(&vdev);
    }

    /// Whether any vdev is being rebuilt.
    #[doc(alias = "vdev_rebuild_active")]
    pub(crate) fn is_any_active(&self) -> bool {
        self.is_any_active.load(Ordering::Acquire)
    }

    fn vdevs(&self, is_meant: &dyn Fn(&Rebuild) -> bool) -> Vec<VdevId> {
        let all = self.all.lock();
        let meant = all.iter().filter(|(_, rebuild)| is_meant(rebuild));
        meant.map(|(vdev, _)| *vdev).collect()
    }
}

fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Checksum)
}

impl Rebuild {
    fn is_active(&self) -> bool {
        self.phys.state.get() == VDEV_REBUILD_ACTIVE
    }

    fn state(&self) -> Option<RebuildState> {
        match self.phys.state.get() {
            VDEV_REBUILD_ACTIVE => Some(RebuildState::Active),
            VDEV_REBUILD_CANCELED => Some(RebuildState::Canceled),
            VDEV_REBUILD_COMPLETE => Some(RebuildState::Complete),
            _ => None,
        }
    }

    /// Begins at the first offset.
    fn restart(&mut self, (min, max): (u64, u64), bytes: u64, txg: u64) {
        let start = self.phys.start_time;
        self.phys = RebuildPhys::default();
        self.phys.state.set(VDEV_REBUILD_ACTIVE);
        self.phys.start_time = start;
        self.phys.min_txg.set(min);
        self.phys.max_txg.set(max);
        self.phys.bytes_est.set(bytes);
        *self = Rebuild {
            phys: self.phys,
            since: txg,
            ..Rebuild::default()
        };
    }

    /// How long it goes on here, in ms.
    fn pass_ms(&self) -> u64 {
        let begun_ns = self.pass.map(|(begun_ns, _)| begun_ns);
        begun_ns.map_or(0, |begun_ns| {
            rt::now_ns().saturating_sub(begun_ns) / 1_000_000
        })
    }

    fn note_time(&mut self) {
        if let Some((_, before_ms)) = self.pass {
            let all_ms = before_ms.saturating_add(self.pass_ms());
            self.phys.scan_time_ms.set(all_ms);
        }
    }

    fn write(&self, mos: &Arc<Objset>, zap: ObjectId, tx: &Tx) -> Result<()> {
        let (words, _) = self.phys.as_bytes().as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        zap::update(mos, tx, zap, VDEV_TOP_ZAP_VDEV_REBUILD_PHYS, &words[..])
    }

    fn progress(&self, vdev: VdevId) -> Option<RebuildProgress> {
        Some(RebuildProgress {
            vdev,
            state: self.state()?,
            phys: self.phys,
            pass_ms: self.pass_ms(),
            pass_scanned_bytes: self.pass_scanned_bytes,
            pass_issued_bytes: self.pass_issued_bytes,
            pass_skipped_bytes: self.pass_skipped_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_lies_about_its_time_is_gone_on_with() {
        let mut rebuild = Rebuild {
            pass: Some((0, u64::MAX)),
            ..Rebuild::default()
        };
        rt::simulate(1, || {
            rt::sleep_ns(5_000_000);
            rebuild.note_time();
            assert!(rebuild.pass_ms() > 0);
        });
        assert_eq!(rebuild.phys.scan_time_ms.get(), u64::MAX);
    }
}
