//! Expanding a RAID-Z by a device: beginning it, moving sectors a slice at a time, ending it.
//!
//! # What it is
//! One txg adds the child. Then, after each txg is on disk, some slices of sectors are moved (`vdev::Reflow`). What is
//! free is not copied. When the last sector was moved, another txg makes the vdev as large as its children are, and
//! begins a scrub: nothing of what was copied was compared with its checksum.
//!
//! # On disk
//! The config of the vdev says that it is being expanded, and later from which txg on its blocks are wider; the
//! uberblock says how far that is. The vdev's ZAP has what `zpool status` shows. An expansion goes on in the process
//! that opens the pool next, also where OpenZFS has left it, or the other way round.
//!
//! # Crash argument
//! The txg that adds the child has moved nothing. That of each slice is in `vdev::Reflow`. The last txg is written when
//! the uberblock before says that all was moved.
//!
//! # Concurrency
//! Slices run in the sync thread between two txgs. Which ranges are occupied is asked under the lock of the
//! allocator, and before that is released, all other I/O to RAID-Zs has ended and waits: what is allocated later is
//! written later. A range that is occupied but not yet written is copied as it is.
//!
//! A child that is absent, lacks something, or fails a slice pauses the expansion, until that has changed. Heartbeats
//! (`multihost`) stay away while the uberblock is updated, lest one puts an older state on disk.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_raidz.c` (`spa_raidz_expand_thread`, `vdev_raidz_attach_sync`,
//! `raidz_reflow_complete_sync`), `module/zfs/spa.c` (`spa_vdev_attach`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Error, ErrorKind, Guid, ObjectId, Result, Txg, VdevId};
use dmu::Tx;
use metaslab::RangeTree;
use phys::feature::RAIDZ_EXPANSION;
use phys::pool_names;
use phys::scan::{DSS_FINISHED, DSS_SCANNING};
use phys::uberblock::{
    RRSS_SCRATCH_INVALID_SYNCED, RRSS_SCRATCH_INVALID_SYNCED_REFLOW, RRSS_SCRATCH_VALID,
    UberblockPhys,
};
use rt::Mutex;
use scan::Kind;
use vdev::{AutoAshift, NewDevice, Reflow, Vdev, VdevTree};

use crate::FeatureState;
use crate::scanning::share_since;
use crate::spa::{Inner, Spa};
use crate::vdevs::{open_new, prepare};

/// Txgs after an import, or after the beginning, in which nothing is copied, so that commands are fast.
const IMPORT_WAIT_TXGS: u64 = 5;
/// Bytes that are copied at once, so that they fit in memory, at most.
const COPY_BYTES: u64 = 8 << 20;
/// Ranges with at most so many free bytes between them are copied together.
const GAP_BYTES: u64 = 128 << 10;

/// What this process knows of the expansion that goes on.
#[derive(Default)]
pub(crate) struct Reflowing {
    /// The txg in which it was begun; 0 if that was before the pool was opened.
    since: AtomicU64,
    /// Bytes that were copied since the last txg.
    copied: AtomicU64,
    slice_ended_ns: AtomicU64,
    /// How its children were when a slice failed.
    failed: Mutex<Option<Vec<Health>>>,
}

/// A child's guid, and how many errors it had.
type Health = (Guid, u64);

/// What a slice of occupied ranges takes.
struct Slice {
    /// What is copied.
    ranges: Vec<std::ops::Range<u64>>,
    /// Before this all is where it belongs then.
    end: u64,
    /// Occupied bytes.
    bytes: u64,
}

impl Inner {
    /// Whether a slice may be moved now.
    fn may_reflow(&self, vdev: VdevId, txg: Txg) -> bool {
        let since = self
            .reflowing
            .since
            .load(Ordering::Relaxed)
            .max(self.first_txg.0);
        txg.0 >= since + IMPORT_WAIT_TXGS
            && !self.scanning.is_ending()
            && !self.is_reflow_paused(vdev)
    }

    /// Whether the expansion waits until its children are whole.
    #[doc(alias = "vre_waiting_for_resilver")]
    pub(crate) fn is_reflow_paused(&self, vdev: VdevId) -> bool {
        if !self.tree.can_reflow(vdev) {
            return true;
        }
        let mut failed = self.reflowing.failed.lock();
        if failed.as_ref() == Some(&self.health(vdev)) {
            return true;
        }
        *failed = None;
        false
    }

    fn health(&self, vdev: VdevId) -> Vec<Health> {
        let top = self.tree.top(vdev).expect("it is being expanded");
        let health = |child: &Arc<Vdev>| {
            let stats = child.stats().snapshot();
            (child.guid(), stats.read_errors + stats.write_errors)
        };
        top.children().iter().map(health).collect()
    }

    /// Where an expansion ends, in bytes: behind the last metaslab.
    fn reflow_end(&self, vdev: VdevId) -> u64 {
        let top = self.tree.top(vdev).expect("it is being expanded");
        top.metaslab_count() << top.config().ms_shift
    }

    /// Writes how much was copied, or ends the expansion when all was moved. In the first pass.
    #[doc(alias = "raidz_reflow_sync")]
    pub(crate) fn sync_reflow(&self, tx: &Tx) -> Result<()> {
        let Some(vdev) = self.tree.expanding() else {
            return Ok(());
        };
        let synced = self.state.lock().synced;
        if synced.reflow_offset() >= self.reflow_end(vdev) && !self.scanning.is_ending() {
            return self.finish_reflow(vdev, tx);
        }
        if !self.may_reflow(vdev, tx.txg()) {
            return Ok(());
        }
        // So that there is an uberblock of this txg.
        self.note_copied(vdev, tx)
    }

    fn note_copied(&self, vdev: VdevId, tx: &Tx) -> Result<()> {
        let zap = self.expanding_zap(vdev);
        let name = pool_names::VDEV_TOP_ZAP_RAIDZ_EXPAND_BYTES_COPIED;
        let before = zap::lookup_u64(&self.mos, zap, name)?.unwrap_or(0);
        let copied = self.reflowing.copied.swap(0, Ordering::Relaxed);
        zap::update(&self.mos, tx, zap, name, &[before.saturating_add(copied)])
    }

    fn expanding_zap(&self, vdev: VdevId) -> ObjectId {
        let top = self.tree.top(vdev).expect("it is being expanded");
        ObjectId(top.config().top_zap)
    }

    /// Moves some slices, after a txg was written.
    #[doc(alias = "spa_raidz_expand_thread")]
    pub(crate) fn reflow(&self, txg: Txg) -> Result<()> {
        let Some(vdev) = self.tree.expanding() else {
            return Ok(());
        };
        let is_written = self.state.lock().synced.txg() == txg;
        if !is_written || !self.may_reflow(vdev, txg) {
            return Ok(());
        }
        self.groups.kick();
        let (begun_ns, end) = (rt::now_ns(), self.reflow_end(vdev));
        let share_ns = share_since(&self.reflowing.slice_ended_ns);
        for slices in 0.. {
            let used_ns = rt::now_ns() - begun_ns;
            if slices > 0 && self.is_slice_over(Kind::Scrub, share_ns, used_ns, slices) {
                break;
            }
            let before = self.state.lock().synced;
            let is_beginning = before.reflow_offset() == 0 || before.has_reflow_in_scratch();
            let is_done = if is_beginning {
                self.reflow_beginning(vdev, &before)?
            } else if before.reflow_offset() < end {
                self.reflow_slice(vdev, &before, slices % 2 == 0)?
            } else {
                break;
            };
            if !is_done {
                *self.reflowing.failed.lock() = Some(self.health(vdev));
            }
            // The beginning has used both slots of the txg.
            if !is_done || is_beginning {
                break;
            }
        }
        let ended_ns = &self.reflowing.slice_ended_ns;
        ended_ns.store(rt::now_ns(), Ordering::Relaxed);
        Ok(())
    }

    /// Moves the first sectors, by way of the scratch area; whether that is done.
    #[doc(alias = "raidz_reflow_scratch_sync")]
    fn reflow_beginning(&self, vdev: VdevId, before: &UberblockPhys) -> Result<bool> {
        let reflow = self.tree.begin_reflow(vdev);
        let bytes = reflow.scratch_bytes();
        if !before.has_reflow_in_scratch() {
            if reflow.fill_scratch().is_err() {
                return Ok(false);
            }
            self.note_reflowed(&reflow, (RRSS_SCRATCH_VALID, bytes), true)?;
        }
        if reflow.empty_scratch().is_err() {
            return Ok(false);
        }
        self.note_reflowed(&reflow, (RRSS_SCRATCH_INVALID_SYNCED, bytes), false)?;
        self.reflowing.copied.fetch_add(bytes, Ordering::Relaxed);
        Ok(true)
    }

    /// Moves the next sectors; whether that is done.
    #[doc(alias = "raidz_reflow_impl")]
    fn reflow_slice(&self, vdev: VdevId, before: &UberblockPhys, is_odd: bool) -> Result<bool> {
        let offset = before.reflow_offset();
        let ms_shift = self.tree.top(vdev).expect("it is there").config().ms_shift;
        let metaslab = offset >> ms_shift;
        // Under the allocator's lock: nothing that is not in these ranges was written.
        let hold = |occupied| (occupied, self.tree.begin_reflow(vdev));
        let held = self.space.with_occupied(vdev, metaslab, hold)?;
        // Nothing is in what the vdev has grown by since the pool was opened, as by an expansion before this one.
        let (occupied, reflow): (RangeTree, Reflow<'_>) =
            held.unwrap_or_else(|| (RangeTree::default(), self.tree.begin_reflow(vdev)));
        let limit = reflow.limit(offset).min(offset + self.reflow_max_bytes);
        let slice = next_slice(&occupied, offset, (metaslab + 1) << ms_shift, limit);
        for range in &slice.ranges {
            if reflow.copy(range).is_err() {
                return Ok(false);
            }
        }
        if reflow.flush().is_err() {
            return Ok(false);
        }
        self.note_reflowed(
            &reflow,
            (RRSS_SCRATCH_INVALID_SYNCED_REFLOW, slice.end),
            is_odd,
        )?;
        self.reflowing
            .copied
            .fetch_add(slice.bytes, Ordering::Relaxed);
        Ok(true)
    }

    /// Writes the uberblock on disk again, with how far the expansion is.
    fn note_reflowed(
        &self,
        reflow: &Reflow<'_>,
        (state, offset): (u64, u64),
        is_odd: bool,
    ) -> Result<()> {
        let mut uberblock = self.state.lock().synced;
        uberblock.set_reflow(state, offset);
        let kind =
            |error: &Error| zio::failed_write(error).filter(|_| !self.tree.has_lost_writes());
        let written = zio::reissue(self.pipeline.suspend(), kind, || {
            self.mmp.update(&mut uberblock, |uberblock, multihost| {
                reflow.write_uberblock(uberblock, (is_odd, multihost))?;
                reflow.note(uberblock);
                let mut state = self.state.lock();
                state.synced = *uberblock;
                state.uberblock.raidz_reflow_info = uberblock.raidz_reflow_info;
                Ok(())
            })
        });
        // Some device may have it.
        written.inspect_err(|_| reflow.give_up())?;
        let leaves = self.tree.heartbeat_leaves() as u64;
        self.mmp.note_write(true, leaves);
        Ok(())
    }

    /// The txg in which the expansion begins.
    #[doc(alias = "vdev_raidz_attach_sync")]
    fn start_reflow(&self, vdev: VdevId, device: &Arc<Vdev>, tx: &Tx) -> Result<()> {
        self.features().adjust(RAIDZ_EXPANSION, 1, tx)?;
        self.tree.widen(vdev, device);
        self.reflowing.since.store(tx.txg().0, Ordering::Relaxed);
        self.reflowing.copied.store(0, Ordering::Relaxed);
        *self.reflowing.failed.lock() = None;
        let zap = self.expanding_zap(vdev);
        let now = rt::wall_clock().secs;
        for (name, number) in [
            (pool_names::VDEV_TOP_ZAP_RAIDZ_EXPAND_STATE, DSS_SCANNING),
            (pool_names::VDEV_TOP_ZAP_RAIDZ_EXPAND_START_TIME, now),
        ] {
            zap::update(&self.mos, tx, zap, name, &[number])?;
        }
        for name in [
            pool_names::VDEV_TOP_ZAP_RAIDZ_EXPAND_END_TIME,
            pool_names::VDEV_TOP_ZAP_RAIDZ_EXPAND_BYTES_COPIED,
        ] {
            if zap::lookup_u64(&self.mos, zap, name)?.is_some() {
                zap::remove(&self.mos, tx, zap, name)?;
            }
        }
        self.log_reflow("raidz vdev expansion started", vdev, tx);
        let top = self.tree.top(vdev).expect("it was widened");
        let text = format!(
            "attach vdev={} to vdev=raidz{}-{vdev}",
            device.name(),
            top.children().len() as u64 - top.data_disks()
        );
        self.core.log_internal("vdev attach", &text, tx);
        self.tree_changed();
        Ok(())
    }

    /// The txg in which it ends.
    #[doc(alias = "raidz_reflow_complete_sync")]
    fn finish_reflow(&self, vdev: VdevId, tx: &Tx) -> Result<()> {
        self.note_copied(vdev, tx)?;
        let top = self.tree.end_widening(vdev, tx.txg());
        self.state.lock().uberblock.raidz_reflow_info.set(0);
        let zap = self.expanding_zap(vdev);
        let now = rt::wall_clock().secs;
        for (name, number) in [
            (pool_names::VDEV_TOP_ZAP_RAIDZ_EXPAND_STATE, DSS_FINISHED),
            (pool_names::VDEV_TOP_ZAP_RAIDZ_EXPAND_END_TIME, now),
        ] {
            zap::update(&self.mos, tx, zap, name, &[number])?;
        }
        self.log_reflow("raidz vdev expansion completed", vdev, tx);
        if let Some(asize) = VdevTree::asize_to_grow_to(&top) {
            top.update(|config| config.asize = asize);
        }
        self.tree_changed();
        self.scrub_after_reflow(tx)
    }

    fn log_reflow(&self, what: &str, vdev: VdevId, tx: &Tx) {
        let top = self.tree.top(vdev).expect("it is in the tree");
        let name = self.state.lock().name.clone();
        let text = format!("{name} vdev {vdev} new width {}", top.children().len());
        self.core.log_internal(what, &text, tx);
    }
}

/// What is moved next of what is occupied before `end`: not beyond `limit`, except over what is free.
fn next_slice(occupied: &RangeTree, offset: u64, end: u64, limit: u64) -> Slice {
    let mut slice = Slice {
        ranges: Vec::new(),
        end,
        bytes: 0,
    };
    let limit = limit.min(end);
    let mut pending: Option<std::ops::Range<u64>> = None;
    let cut = |range: std::ops::Range<u64>, ranges: &mut Vec<_>| {
        let mut start = range.start;
        while start < range.end {
            let next = range.end.min(start + COPY_BYTES);
            ranges.push(start..next);
            start = next;
        }
    };
    for (start, size) in occupied.iter() {
        let (start, stop) = (start.max(offset), start + size);
        if stop <= offset {
            continue;
        }
        if start >= limit {
            slice.end = start;
            break;
        }
        let stop = stop.min(limit);
        slice.bytes += stop - start;
        match &mut pending {
            Some(last) if start - last.end <= GAP_BYTES => last.end = stop,
            _ => {
                if let Some(last) = pending.replace(start..stop) {
                    cut(last, &mut slice.ranges);
                }
            }
        }
        if stop == limit {
            slice.end = limit;
            break;
        }
    }
    if let Some(last) = pending {
        cut(last, &mut slice.ranges);
    }
    slice
}

impl Spa {
    /// Begins to expand a RAID-Z by a device. `sectors`: the ashift that was asked for, 0 if the device decides.
    ///
    /// # Errors
    /// `Exists` while a RAID-Z is being expanded or a vdev removed; `Permission` without the feature; `Busy` if a
    /// child is absent or replaced, or the device is a spare; else as [`VdevTree::check_widen`]; `ReadOnly`,
    /// `Suspended`; errors of writing the new device.
    #[doc(alias = "spa_vdev_attach")]
    pub fn widen(&self, raidz: Guid, new: &NewDevice, sectors: (u32, AutoAshift)) -> Result<()> {
        self.check_writable()?;
        self.check_expandable()?;
        if self.spare_on(new)?.is_some() {
            let text = format!("{} is busy", new.path);
            return Err(Error::new(ErrorKind::Busy, text));
        }
        let device = open_new(new, sectors, None)?;
        self.parts().tree().check_widen(raidz, &device)?;
        prepare(&device)?;
        let checked = Arc::clone(&device);
        self.change_tree(
            move |tree| tree.check_widen(raidz, &checked).map(drop),
            move |inner, tx| {
                let vdev = inner.tree.check_widen(raidz, &device)?;
                inner.start_reflow(vdev, &device, tx)
            },
        )
    }

    fn check_expandable(&self) -> Result<()> {
        self.check_no_checkpoint()?;
        self.check_no_rebuild()?;
        if self.is_removing() {
            return Err(Error::new(ErrorKind::Exists, "device removal in progress"));
        }
        if self.feature(RAIDZ_EXPANSION) == FeatureState::Disabled {
            let text =
                "raidz_expansion feature must be enabled in order to attach a device to raidz";
            return Err(Error::new(ErrorKind::Permission, text));
        }
        Ok(())
    }

    /// Waits until no RAID-Z is being expanded. `see` is called with the bytes that were copied, and all, after each
    /// txg; when it returns false, waiting ends.
    ///
    /// # Errors
    /// `Suspended`; errors of reading the MOS.
    #[doc(alias = "spa_wait")]
    pub fn wait_expansion(&self, see: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        while let Some(vdev) = self.parts().tree().expanding() {
            if self.is_readonly() {
                return Ok(());
            }
            if let Some(progress) = self.expansion()?
                && !see(progress.copied_bytes, progress.total_bytes)
            {
                return Ok(());
            }
            let txg = self.inner.groups.synced_txg();
            if !self.inner.is_reflow_paused(vdev) {
                self.inner.groups.kick();
            }
            self.inner.groups.wait_unhurried(txg.next())?;
        }
        self.wait_end_written()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(occupied: &[(u64, u64)], offset: u64, limit: u64) -> (Vec<(u64, u64)>, u64, u64) {
        let occupied = RangeTree::from_iter(occupied.iter().copied());
        let slice = next_slice(&occupied, offset, 1 << 30, limit);
        let ranges = slice.ranges.iter().map(|r| (r.start, r.end)).collect();
        (ranges, slice.end, slice.bytes)
    }

    #[test]
    fn what_is_free_is_passed_over_and_the_limit_is_not() {
        const M: u64 = 1 << 20;
        assert_eq!(slice(&[], 4 * M, 5 * M), (vec![], 1 << 30, 0));
        assert_eq!(slice(&[(0, 4 * M)], 4 * M, 5 * M), (vec![], 1 << 30, 0));
        assert_eq!(slice(&[(50 * M, M)], 4 * M, 5 * M), (vec![], 50 * M, 0));
        let both = [(0, 5 * M), (9 * M, M)];
        assert_eq!(slice(&both, 4 * M, 6 * M), (vec![(4 * M, 5 * M)], 9 * M, M));
        let beyond = [(5 * M, 3 * M)];
        assert_eq!(
            slice(&beyond, 4 * M, 6 * M),
            (vec![(5 * M, 6 * M)], 6 * M, M)
        );
        // Ranges that are close to each other are copied together.
        let close = [(4 * M, 4096), (4 * M + 8192, 4096)];
        let expected = (vec![(4 * M, 4 * M + 12288)], 1 << 30, 8192);
        assert_eq!(slice(&close, 4 * M, 6 * M), expected);
        let (ranges, end, _) = slice(&[(0, 1 << 30)], 100 * M, 130 * M);
        assert_eq!((ranges.len(), end), (4, 130 * M));
    }
}
