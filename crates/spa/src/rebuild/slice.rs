//! A slice of all rebuilds, in each txg.
//!
//! # What it is
//! All rebuilds go on side by side, some megabytes of one after the other. A device that is gone, or has been for a
//! while, takes part no longer; a rebuild in which no device takes part is cancelled.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_rebuild.c` (`vdev_rebuild_thread`, `vdev_rebuild_ranges`, `vdev_rebuild_range`,
//! `vdev_rebuild_should_cancel`).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{ObjectId, Result, VdevId};
use dmu::Tx;
use metaslab::RangeTree;
use scan::Kind;
use vdev::Vdev;

use super::Rebuild;
use crate::scanning::share_since;
use crate::spa::Inner;

/// Txgs after an import in which nothing is rebuilt, so that importing is fast.
const IMPORT_WAIT_TXGS: u64 = 5;
/// `TXG_CONCURRENT_STATES`: a write that began before a device was attached belongs to the txg of that or to one of the
/// next two.
const TXG_CONCURRENT_STATES: u64 = 3;

/// A rebuild during a slice.
struct Job {
    vdev: VdevId,
    top: Arc<Vdev>,
    rebuild: Rebuild,
    is_done: bool,
}

impl Inner {
    /// Rebuilds a little more of each vdev. In the first pass, before scans.
    pub(crate) fn sync_rebuilds(&self, tx: &Tx) -> Result<()> {
        if !self.rebuilds.is_any_active() || self.scanning.is_ending() {
            return Ok(());
        }
        self.cancel_scrub(tx)?;
        let mut jobs = self.rebuild_jobs(tx)?;
        if jobs.is_empty() || self.core.scan().running().is_some() {
            return Ok(());
        }
        let since = jobs.iter().map(|job| job.rebuild.since).max().unwrap_or(0);
        let first = (since + TXG_CONCURRENT_STATES).max(self.first_txg.0 + IMPORT_WAIT_TXGS);
        if tx.txg().0 < first {
            self.groups.kick();
            return Ok(());
        }
        let begun_ns = rt::now_ns();
        let share_ns = share_since(&self.rebuilds.slice_ended_ns);
        for rounds in 1.. {
            let mut is_any = false;
            for job in jobs.iter_mut().filter(|job| !job.is_done) {
                job.rebuild_some(self)?;
                is_any |= !job.is_done;
            }
            let used_ns = rt::now_ns() - begun_ns;
            if !is_any || self.is_slice_over(Kind::Resilver, share_ns, used_ns, rounds) {
                break;
            }
        }
        for mut job in jobs {
            if job.is_done {
                self.complete_rebuild(job.vdev, job.rebuild, tx)?;
            } else {
                job.rebuild.note_time();
                let zap = ObjectId(job.top.config().top_zap);
                job.rebuild.write(&self.mos, zap, tx)?;
                self.rebuilds.put(job.vdev, job.rebuild);
                self.groups.kick();
            }
        }
        let ended_ns = &self.rebuilds.slice_ended_ns;
        ended_ns.store(rt::now_ns(), Ordering::Relaxed);
        Ok(())
    }

    /// Those that can go on.
    fn rebuild_jobs(&self, tx: &Tx) -> Result<Vec<Job>> {
        let mut jobs = Vec::new();
        for vdev in self.rebuilds.vdevs(&|rebuild| rebuild.is_active()) {
            let mut rebuild = self.rebuilds.get(vdev).expect("it is active");
            let top = self.tree.top(vdev).filter(|top| top.kind().is_concrete());
            let Some(top) = top else {
                self.forget_rebuild(vdev, tx)?;
                continue;
            };
            if !self.has_participants(&top) || top.config().removing {
                self.cancel_rebuild(vdev, rebuild, tx)?;
                continue;
            }
            let before_ms = rebuild.phys.scan_time_ms.get();
            rebuild
                .pass
                .get_or_insert_with(|| (rt::now_ns(), before_ms));
            jobs.push(Job {
                vdev,
                top,
                rebuild,
                is_done: false,
            });
        }
        Ok(jobs)
    }

    /// Drops devices from a rebuild that are gone: they miss what is rebuilt now. Whether any is left.
    #[doc(alias = "vdev_rebuild_should_cancel")]
    fn has_participants(&self, top: &Arc<Vdev>) -> bool {
        let mut is_any = false;
        for device in top.devices() {
            let is_part = device.config().rebuild_txg != 0;
            if is_part && !device.leaf().is_usable() {
                device.update(|config| config.rebuild_txg = 0);
                self.tree_changed();
            } else {
                is_any |= is_part && device.leaf().has_dtl();
            }
        }
        is_any
    }
}

impl Job {
    /// Rebuilds the next ranges, or finds that there are none.
    fn rebuild_some(&mut self, inner: &Inner) -> Result<()> {
        let Some(ranges) = self.next_ranges(inner)? else {
            self.is_done = true;
            return Ok(());
        };
        let bytes = ranges
            .iter()
            .map(|range| range.end - range.start)
            .sum::<u64>();
        let done = inner.tree.rebuild(self.vdev, &ranges)?;
        let rebuild = &mut self.rebuild;
        let phys = &mut rebuild.phys;
        phys.bytes_scanned
            .set(phys.bytes_scanned.get().saturating_add(bytes));
        phys.bytes_issued
            .set(phys.bytes_issued.get().saturating_add(bytes));
        let rebuilt = phys.bytes_rebuilt.get();
        phys.bytes_rebuilt
            .set(rebuilt.saturating_add(done.written_bytes));
        phys.errors
            .set(phys.errors.get().saturating_add(done.errors));
        let end = ranges.last().map_or(0, |range| range.end);
        phys.last_offset.set(end);
        rebuild.pass_scanned_bytes += bytes;
        rebuild.pass_issued_bytes += bytes;
        Ok(())
    }

    /// The next ranges, at most as many bytes as are rebuilt at once; `None` behind the last metaslab.
    fn next_ranges(&mut self, inner: &Inner) -> Result<Option<Vec<Range<u64>>>> {
        let align = self.top.metaslab_align();
        let most = align_down_to(inner.rebuild_max_bytes, align);
        let rebuild = &mut self.rebuild;
        loop {
            if rebuild.metaslab >= self.top.metaslab_count() {
                return Ok(None);
            }
            if rebuild.left.is_none() {
                let metaslab = rebuild.metaslab;
                let from = rebuild.phys.last_offset.get();
                let occupied = inner.space.with_occupied(self.vdev, metaslab, |all| all)?;
                // Nothing can be allocated in one that is not there yet.
                let occupied: RangeTree = occupied.unwrap_or_default();
                let left = occupied.iter().map(|(start, size)| start..start + size);
                let left = left.filter(|range| range.end > from);
                let cut = |range: Range<u64>| range.start.max(from)..range.end;
                rebuild.left = Some(left.map(cut).collect());
            }
            let left = rebuild.left.as_mut().expect("it was asked");
            let mut ranges = Vec::new();
            let mut room = most;
            while let Some(first) = left.front_mut().filter(|_| room > 0) {
                let end = first.end.min(first.start + room);
                ranges.push(first.start..end);
                room -= (end - first.start).min(room);
                first.start = end;
                if first.is_empty() {
                    left.pop_front();
                }
            }
            if !ranges.is_empty() {
                return Ok(Some(ranges));
            }
            rebuild.left = None;
            rebuild.metaslab += 1;
        }
    }
}

/// The largest multiple of `align`, which need not be a power of two, up to `bytes`, but at least one.
fn align_down_to(bytes: u64, align: u64) -> u64 {
    (bytes / align).max(1) * align
}
