//! A slice of all sweeps, in each txg.
//!
//! # What it is
//! All active sweeps go on side by side: of each device the next piece is begun, then all are waited for, and so on
//! until the slice is over. A device whose commands fail is swept on, as far as it is usable; what failed is counted.
//!
//! A trim with a rate has a budget, which grows with time from when it went on. When it is used up, there is nothing to
//! do, and no txg is hurried along for it.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_initialize.c` (`vdev_initialize_thread`, `vdev_initialize_ranges`),
//! `module/zfs/vdev_trim.c` (`vdev_trim_thread`, `vdev_trim_ranges`, `vdev_trim_calculate_rate`).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Buf, ObjectId, Result};
use dmu::Tx;
use metaslab::{Held, RangeTree};
use scan::Kind;
use vdev::{Pending, Vdev, VdevState};

use super::record::{Record, SweepKind, SweepState};
use super::{SweepSettings, Swept};
use crate::scanning::share_since;
use crate::spa::Inner;

/// `SCAN_IMPORT_WAIT_TXGS`: txgs after an import, or after the beginning, in which nothing is swept, so that commands
/// are fast.
const IMPORT_WAIT_TXGS: u64 = 5;

/// A sweep during a slice.
struct Job {
    zap: ObjectId,
    kind: SweepKind,
    record: Record,
    swept: Swept,
    /// The metaslab that is swept now, and what is left of it.
    held: Option<Held>,
    left: VecDeque<Range<u64>>,
    /// The pattern to write, once it was needed.
    pattern: Option<Buf>,
    /// Nothing more can be done in this slice.
    is_stuck: bool,
}

impl Inner {
    /// Sweeps a little more of each device. In the first pass.
    pub(crate) fn sync_sweeps(&self, tx: &Tx) -> Result<()> {
        let sweeps = &self.sweeps;
        if !sweeps.is_any_active.load(Ordering::Relaxed) || self.scanning.is_ending() {
            return Ok(());
        }
        let since = sweeps.since.load(Ordering::Relaxed).max(self.first_txg.0);
        if tx.txg().0 < since + IMPORT_WAIT_TXGS {
            return Ok(());
        }
        let mut jobs = self.jobs(tx)?;
        self.sweep(&mut jobs, tx);
        let is_left = jobs.iter().any(Job::can_go_on);
        for mut job in jobs {
            let _ = job.held.take();
            if job.record.state == SweepState::Complete {
                self.log_sweep(&job.swept.device, job.kind, SweepState::Complete, tx);
                self.notify_trim(&job.swept.device, job.kind, "trim_finish");
            }
            job.record.write(&self.mos, job.zap, job.kind, tx)?;
            sweeps.put((job.zap, job.kind), Some(job.record));
        }
        let ended_ns = &sweeps.slice_ended_ns;
        ended_ns.store(rt::now_ns(), Ordering::Relaxed);
        if is_left {
            self.groups.kick();
        }
        Ok(())
    }

    /// Those that can go on. Sweeps of devices that are gone are forgotten, and those of vdevs that are removed and of
    /// devices that were given up are cancelled.
    fn jobs(&self, tx: &Tx) -> Result<Vec<Job>> {
        let mut jobs = Vec::new();
        for ((zap, kind), mut record) in self.sweeps.active() {
            let Some(swept) = self.swept(zap) else {
                self.sweeps.put((zap, kind), None);
                continue;
            };
            let is_lost = swept.device.leaf().state().0 == VdevState::Faulted;
            if is_lost || swept.top.config().removing {
                record.change(SweepState::Canceled);
                record.write(&self.mos, zap, kind, tx)?;
                self.log_sweep(&swept.device, kind, SweepState::Canceled, tx);
                self.notify_trim(&swept.device, kind, "trim_cancel");
                self.sweeps.put((zap, kind), Some(record));
            } else if swept.is_ready(kind, &record) {
                record.paced_since_ns.get_or_insert_with(rt::now_ns);
                jobs.push(Job {
                    zap,
                    kind,
                    record,
                    swept,
                    held: None,
                    left: VecDeque::new(),
                    pattern: None,
                    is_stuck: false,
                });
            }
        }
        Ok(jobs)
    }

    pub(super) fn log_sweep(
        &self,
        device: &Arc<Vdev>,
        kind: SweepKind,
        state: SweepState,
        tx: &Tx,
    ) {
        let text = format!("vdev={} {}", device.name(), state.word());
        self.core.log_internal(kind.word(), &text, tx);
    }

    /// Only trims have events.
    pub(super) fn notify_trim(&self, device: &Arc<Vdev>, kind: SweepKind, name: &str) {
        if kind == SweepKind::Trim {
            self.core.notify(name, Some(device));
        }
    }

    fn sweep(&self, jobs: &mut [Job], tx: &Tx) {
        let begun_ns = rt::now_ns();
        let share_ns = share_since(&self.sweeps.slice_ended_ns);
        for rounds in 1.. {
            let mut begun = Vec::new();
            for job in jobs.iter_mut() {
                if let Some(range) = job.next(self, tx) {
                    begun.push((job.begin(&range, &self.sweep_settings), range, job));
                }
            }
            if begun.is_empty() {
                break;
            }
            for (pending, range, job) in begun {
                let Swept { top, device, .. } = &job.swept;
                let result = self.tree.end_sweep(top, device, pending);
                job.end(&range, &result);
            }
            let used_ns = rt::now_ns() - begun_ns;
            if self.is_slice_over(Kind::Scrub, share_ns, used_ns, rounds)
                || self.space.has_waiters()
            {
                break;
            }
        }
    }
}

impl Job {
    fn can_go_on(&self) -> bool {
        self.record.state == SweepState::Active && !self.is_stuck && self.record.has_budget()
    }

    /// What is swept next; `None` if there is nothing, or not in this slice.
    fn next(&mut self, inner: &Inner, tx: &Tx) -> Option<Range<u64>> {
        if !self.can_go_on() {
            return None;
        }
        let settings = &inner.sweep_settings;
        while self.left.is_empty() {
            if self.held.take().is_some() {
                self.record.metaslab += 1;
            }
            if !self.take_metaslab(inner, tx) {
                self.record.change(SweepState::Complete);
                return None;
            }
        }
        let longest = match self.kind {
            SweepKind::Initialize => settings.fill_max_bytes,
            SweepKind::Trim => settings.delete_max_bytes,
        };
        let first = self.left.front_mut().expect("it is not empty");
        let piece = first.start..first.end.min(first.start + longest);
        first.start = piece.end;
        if first.is_empty() {
            self.left.pop_front();
        }
        Some(piece)
    }

    /// Holds the next metaslab that the offset is not behind; false if there is none. One whose space map cannot be
    /// read is passed over: nothing is known to be free there.
    fn take_metaslab(&mut self, inner: &Inner, tx: &Tx) -> bool {
        let count = self.swept.top.metaslab_count();
        let held = loop {
            let at = self.record.metaslab;
            if at >= count {
                return false;
            }
            if !self.is_behind(at) {
                match inner.space.hold_still(self.swept.id, at, tx.txg()) {
                    Ok(Some(held)) => break held,
                    Ok(None) => return false,
                    Err(_) => self.record.errors += 1,
                }
            }
            self.record.metaslab += 1;
        };
        if !self.record.partial || held.was_used() {
            let least = match self.kind {
                SweepKind::Trim if !self.record.secure => inner.sweep_settings.delete_min_bytes,
                _ => 0,
            };
            let places = self.swept.places(held.free(), self.record.offset);
            let places = places.iter().filter(|(_, size)| *size >= least);
            self.left = places.map(|(start, size)| start..start + size).collect();
        }
        self.held = Some(held);
        true
    }

    /// Whether all of a metaslab is before the offset.
    fn is_behind(&self, metaslab: u64) -> bool {
        self.record.offset > 0
            && self
                .swept
                .span(metaslab)
                .is_none_or(|span| span.end <= self.record.offset)
    }

    fn begin(&mut self, range: &Range<u64>, settings: &SweepSettings) -> Pending {
        let device = &self.swept.device;
        match self.kind {
            SweepKind::Initialize => {
                let value = self.record.pattern.to_le_bytes();
                let whole = || {
                    let words = settings.fill_max_bytes as usize / value.len();
                    Buf::copy_of(&value.repeat(words))
                };
                device.begin_fill(range, self.pattern.get_or_insert_with(whole))
            }
            SweepKind::Trim => device.begin_delete(range),
        }
    }

    fn end(&mut self, range: &Range<u64>, result: &Result<()>) {
        if result.is_err() && !self.swept.device.leaf().is_usable() {
            self.is_stuck = true;
            return;
        }
        self.record.errors += u64::from(result.is_err());
        self.record.offset = range.end;
        self.record.paced_bytes += range.end - range.start;
    }
}

impl Swept {
    /// The places on the device of what is free, from an offset on.
    #[doc(alias = "vdev_initialize_xlate_range_add")]
    pub(super) fn places(&self, free: &RangeTree, from: u64) -> RangeTree {
        let mut places = RangeTree::new();
        for (start, size) in free.iter() {
            self.top
                .translate(&self.device, start..start + size, &mut |range| {
                    let start = range.start.max(from);
                    if start < range.end {
                        places.add(start, range.end - start);
                    }
                });
        }
        places
    }

    /// From the first to the last byte of a metaslab on the device; `None` if it has none there.
    pub(super) fn span(&self, metaslab: u64) -> Option<Range<u64>> {
        let mut span: Option<Range<u64>> = None;
        let range = self.top.metaslab_range(base::MetaslabId(metaslab));
        self.top.translate(&self.device, range, &mut |range| {
            let so_far = span.get_or_insert(range.clone());
            *so_far = so_far.start.min(range.start)..so_far.end.max(range.end);
        });
        span
    }
}

impl Record {
    /// Whether the rate allows more now.
    #[doc(alias = "vdev_trim_calculate_rate")]
    pub(super) fn has_budget(&self) -> bool {
        self.wait_ns() == 0
    }

    /// How long the rate allows nothing, in ns.
    pub(super) fn wait_ns(&self) -> u64 {
        let (Some(since_ns), 1..) = (self.paced_since_ns, self.rate) else {
            return 0;
        };
        let needs_ns = u128::from(self.paced_bytes) * 1_000_000_000 / u128::from(self.rate);
        let elapsed_ns = u128::from(rt::now_ns().saturating_sub(since_ns));
        needs_ns.saturating_sub(elapsed_ns) as u64
    }
}
