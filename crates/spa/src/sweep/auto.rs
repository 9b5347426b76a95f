//! What was freed is deleted on the devices soon after (`autotrim=on`).
//!
//! # What it is
//! While the property is on, each metaslab remembers what has become allocatable again
//! ([`metaslab::Metaslabs::hold_untrimmed`]). Each txg takes every 32nd metaslab, others each time, holds it still,
//! and deletes what it remembers on all devices that can. Ranges that are too short are forgotten; what is left when
//! the slice ends is put back.
//!
//! As long as a long enough range waits, txgs follow each other at their usual pace. When the pool is closed, some more
//! are synced, and the last of them takes all metaslabs: a command that frees much and ends would else trim nothing.
//!
//! # Invariants
//! 1. As of all sweeps: what is deleted was neither allocated in the txg that is being synced nor in the two before it.
//!    It may be forgotten at any time; nothing of this is on disk.
//! 2. While anything that was freed cannot be allocated yet, each txg writes its uberblock, also when nothing else has
//!    changed: so the last three on disk lead to nothing that is deleted.
//! 3. A device whose trim was begun by hand is left to that.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_trim.c` (`vdev_autotrim_thread`, `vdev_trim_ranges`), `module/zfs/metaslab.c`
//! (`metaslab_sync_done`).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{ObjectId, Result, Txg, VdevId};
use metaslab::{Held, RangeTree};
use phys::PropValue;
use scan::Kind;
use vdev::Vdev;

use super::{SweepKind, SweepState, Swept};
use crate::scanning::share_since;
use crate::spa::{Inner, Spa};

/// The pool property; off unless it was set.
pub(crate) const AUTOTRIM: &str = "autotrim";
/// `zfs_trim_queue_limit`: deletes that a device is given at a time.
const BATCH: usize = 10;
/// Until what the last changes freed can be deleted, two txgs have to pass; it happens in the third. One more, for what
/// a txg frees that was open when the pool began to be closed.
const CLOSING_TXGS: usize = 4;

impl Inner {
    /// Applies the property `autotrim`.
    pub(crate) fn take_autotrim(&self) {
        let is_on = self.props.get(AUTOTRIM) == Some(PropValue::Number(1));
        self.space.remember_untrimmed(is_on && !self.readonly);
    }

    /// Deletes what was freed in some metaslabs. In the first pass.
    pub(crate) fn sync_autotrim(&self, txg: Txg) -> Result<()> {
        if !self.space.remembers_untrimmed() {
            return Ok(());
        }
        if self.space.is_maturing() {
            self.state.lock().labels_dirty = true;
        }
        let is_closing = self.scanning.is_ending();
        let step = match is_closing {
            true => 1,
            false => self.sweep_settings.auto_batch.max(1),
        };
        let begun_ns = rt::now_ns();
        let share_ns = share_since(&self.sweeps.auto_ended_ns);
        let mut rounds = 0;
        let is_over = &mut || {
            rounds += 1;
            let used_ns = rt::now_ns() - begun_ns;
            self.space.has_waiters()
                || !is_closing && self.is_slice_over(Kind::Scrub, share_ns, used_ns, rounds)
        };
        'all: for (id, top, devices) in self.trimmed_by_itself() {
            for metaslab in (txg.0 % step..top.metaslab_count()).step_by(step as usize) {
                let Some(held) = self.space.hold_untrimmed(id, metaslab)? else {
                    continue;
                };
                if !self.trim_held(&held, &devices, is_over) {
                    break 'all;
                }
            }
        }
        let ended_ns = &self.sweeps.auto_ended_ns;
        ended_ns.store(rt::now_ns(), Ordering::Relaxed);
        // A pool that is being closed has its own number of txgs: each may free as much as it deletes.
        if !is_closing && self.awaits_trim()? {
            self.groups.expect_txg();
        }
        Ok(())
    }

    /// The top-level vdevs that have metaslabs, each with its devices that are trimmed by themselves: none below a
    /// device that is being replaced.
    fn trimmed_by_itself(&self) -> Vec<(VdevId, Arc<Vdev>, Vec<Swept>)> {
        let mut all = Vec::new();
        for (id, top) in (0..).map(VdevId).zip(self.tree.tops()) {
            if !top.kind().is_concrete() {
                continue;
            }
            let children = match top.kind().is_device() {
                true => std::slice::from_ref(&top),
                false => top.children(),
            };
            let mut devices = children.to_vec();
            let is_changing = top.config().removing || top.config().expanding;
            devices.retain(|device| !is_changing && self.is_trimmed_by_itself(device));
            let swept = |device| Swept {
                id,
                top: Arc::clone(&top),
                device,
            };
            let devices = devices.into_iter().map(swept).collect();
            all.push((id, top, devices));
        }
        all
    }

    fn is_trimmed_by_itself(&self, device: &Arc<Vdev>) -> bool {
        let key = (ObjectId(device.config().leaf_zap), SweepKind::Trim);
        let by_hand = self.sweeps.get(key);
        device.kind().is_device()
            && device.leaf().is_usable()
            && device.leaf().can_delete()
            && by_hand.is_none_or(|record| record.state != SweepState::Active)
    }

    /// Deletes what a metaslab remembers, until `is_over`; returns whether it came to the end.
    fn trim_held(&self, held: &Held, devices: &[Swept], is_over: &mut dyn FnMut() -> bool) -> bool {
        let mut left: VecDeque<(u64, u64)> = held.free().iter().collect();
        while !left.is_empty() {
            let some = left.drain(..left.len().min(BATCH));
            let some: RangeTree = some.collect();
            let mut pieces: Vec<_> = devices
                .iter()
                .map(|swept| self.pieces(swept, &some))
                .collect();
            while pieces.iter().any(|pieces| !pieces.is_empty()) {
                let mut begun = Vec::new();
                for (swept, pieces) in devices.iter().zip(&mut pieces) {
                    let next = pieces.drain(..pieces.len().min(BATCH));
                    begun.extend(next.map(|range| (swept, swept.device.begin_delete(&range))));
                }
                for (Swept { top, device, .. }, pending) in begun {
                    // A device that fails is given up there; nothing relies on what is deleted.
                    let _ = self.tree.end_sweep(top, device, pending);
                }
            }
            if is_over() {
                held.put_untrimmed(&left.iter().copied().collect());
                return left.is_empty();
            }
        }
        true
    }

    /// What is to be deleted on a device.
    fn pieces(&self, swept: &Swept, free: &RangeTree) -> VecDeque<Range<u64>> {
        let settings = &self.sweep_settings;
        let longest = settings.delete_max_bytes;
        let mut pieces = VecDeque::new();
        if !swept.device.leaf().is_usable() {
            return pieces;
        }
        let places = swept.places(free, 0);
        let long = places
            .iter()
            .filter(|(_, size)| *size >= settings.delete_min_bytes);
        for (start, size) in long {
            let end = start + size;
            let starts = (start..end).step_by(longest as usize);
            pieces.extend(starts.map(|start| start..end.min(start + longest)));
        }
        pieces
    }

    /// Whether a range waits that is long enough.
    fn awaits_trim(&self) -> Result<bool> {
        let least_bytes = self.sweep_settings.delete_min_bytes;
        for (id, _, devices) in self.trimmed_by_itself() {
            if !devices.is_empty() && self.space.awaits_trim(id, least_bytes)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Spa {
    /// Deletes what was freed last: nothing would do it once the pool is closed.
    pub(crate) fn finish_autotrim(&self) -> Result<()> {
        for _ in 0..CLOSING_TXGS {
            if !self.inner.space.remembers_untrimmed() || !self.inner.awaits_trim()? {
                break;
            }
            self.sync_now()?;
        }
        Ok(())
    }
}
