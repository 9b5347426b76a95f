//! The write cache: ranges of logical sectors that wait for the medium, and how they become batches.
//!
//! # What it is
//! Sequential writes share segments: a stream fills one while another one passes to the medium, and does not run ahead
//! any farther, however much the cache holds. Ranges apart from each other have a segment each.
//!
//! # Invariants
//! 1. Waiting ranges are sorted and do not overlap: a write that overlaps a waiting range is merged with it, so that
//!    older bytes never reach the medium after newer ones. Ranges already being written to the medium are kept apart,
//!    and go first.
//! 2. A range lists its writes in the order of submission.
//!
//! # Source
//! Western Digital's own DiskSim file of a 4 TB drive (`G4_LBA_64bit_4T.diskspecs`: "Combine seq writes", few write
//! segments). A WD160EDGZ writes a stream at the rate at which it reads one, from the first second on.

use serde::{Deserialize, Serialize};

use super::geometry::SectorPosition;
use crate::profile::RmwPolicy;

/// A write in the cache.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Pending {
    pub(super) tag: u64,
    pub(super) submitted: u64,
    /// The host waits until it is on the medium (FUA, or no write cache).
    pub(super) waits: bool,
}

/// A waiting range of logical sectors, as the medium numbers them: `[start, end)`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Extent {
    pub(super) start: u64,
    pub(super) end: u64,
    /// When its oldest write arrived.
    pub(super) since: u64,
    /// A thread waits until it is on the medium.
    pub(super) urgent: bool,
    pub(super) writes: Vec<Pending>,
    /// Position of its first physical sector.
    #[serde(skip)]
    pub(super) place: SectorPosition,
}

impl Extent {
    /// The physical sectors that the head writes for it, `[start, end)`. With [`RmwPolicy::Hidden`], a partial last
    /// sector is left to the range that follows.
    pub(super) fn physical(&self, limits: &WriteLimits) -> (u64, u64) {
        let (start, per) = (self.start / limits.per, limits.per);
        if limits.policy == RmwPolicy::Hidden {
            (start, (self.end / per).max(start + 1))
        } else {
            (start, self.end.div_ceil(per))
        }
    }

    pub(super) fn is_partial(&self, per: u64) -> bool {
        !self.start.is_multiple_of(per) || !self.end.is_multiple_of(per)
    }
}

/// Limits of the cache and of its batches.
#[derive(Debug, Clone, Copy)]
pub(super) struct WriteLimits {
    /// Logical sectors per physical one.
    pub(super) per: u64,
    pub(super) policy: RmwPolicy,
    /// Capacity in logical sectors; 0: no cache, each write waits for the medium.
    pub(super) sectors: u64,
    pub(super) segments: usize,
    /// Most logical sectors in a range merged from adjacent writes, and in a pass.
    pub(super) segment_sectors: u64,
    pub(super) batch: usize,
}

impl WriteLimits {
    /// Whether a stream of `sectors` may go on in the cache.
    pub(super) fn stream_fits(&self, sectors: u64) -> bool {
        sectors <= 2 * self.segment_sectors
    }

    /// Whether writing this range costs a read-modify-write of its first or last physical sector.
    pub(super) fn pays(&self, extent: &Extent) -> bool {
        self.policy != RmwPolicy::Hidden && extent.is_partial(self.per)
    }

    /// Whether such a range is a batch of its own.
    fn goes_alone(&self, extent: &Extent) -> bool {
        matches!(self.policy, RmwPolicy::Sync | RmwPolicy::Unbatched) && extent.is_partial(self.per)
    }
}

/// Waiting ranges, and those in flight to the medium.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct WriteCache {
    pub(super) waiting: Vec<Extent>,
    pub(super) flying: Vec<Extent>,
    /// Logical sectors in both.
    pub(super) sectors: u64,
    #[serde(skip)]
    spare: Vec<Vec<Pending>>,
}

impl WriteCache {
    /// Whether nothing is waiting or in flight.
    pub(super) fn is_clean(&self) -> bool {
        self.waiting.is_empty() && self.flying.is_empty()
    }

    /// Whether `incoming` more writes of `sectors` in total fit, by count of ranges and by size; a single one always
    /// fits into an empty cache.
    pub(super) fn has_room(&self, incoming: usize, sectors: u64, limits: &WriteLimits) -> bool {
        let segments = self.waiting.len() + self.flying.len() + incoming;
        let size = limits.sectors.max(limits.segment_sectors);
        (segments <= limits.segments && self.sectors + sectors <= size) || segments == 1
    }

    /// Where the sectors begin that are in the cache without a gap up to `end`; `end` if there are none.
    pub(super) fn begin_of_run(&self, end: u64) -> u64 {
        let mut begin = end;
        loop {
            let before = |e: &&Extent| e.start < begin && begin <= e.end;
            let flying = self.flying.iter().find(before);
            let Some(found) = self.waiting_up_to(begin).or(flying) else {
                return begin;
            };
            begin = found.start;
        }
    }

    /// The waiting range that holds the sector before `end`.
    pub(super) fn waiting_up_to(&self, end: u64) -> Option<&Extent> {
        let at = self.waiting.partition_point(|e| e.end < end);
        self.waiting.get(at).filter(|e| e.start < end)
    }

    /// Enters a write of `[start, end)`. `apart`: never merges it with what it overlaps (a planted mistake).
    pub(super) fn insert(
        &mut self,
        (start, end): (u64, u64),
        now: u64,
        write: Pending,
        limits: &WriteLimits,
        locate: impl Fn(u64) -> SectorPosition,
        apart: bool,
    ) {
        let mut writes = self.spare.pop().unwrap_or_default();
        let mut new = Extent {
            start,
            end,
            since: now,
            urgent: write.waits,
            writes: Vec::new(),
            place: SectorPosition::default(),
        };
        let from = self.waiting.partition_point(|e| e.end < start);
        let mut to = from;
        let mut first = from;
        while !apart && to < self.waiting.len() && self.waiting[to].start <= end {
            let old = &self.waiting[to];
            if !joins(old, &new, limits) {
                if to == first && old.end == start {
                    first += 1;
                    to += 1;
                    continue;
                }
                break;
            }
            let old = &mut self.waiting[to];
            new.start = new.start.min(old.start);
            new.end = new.end.max(old.end);
            new.since = new.since.min(old.since);
            new.urgent |= old.urgent;
            self.sectors -= old.end - old.start;
            if writes.is_empty() {
                std::mem::swap(&mut writes, &mut old.writes);
            } else {
                writes.append(&mut old.writes);
            }
            to += 1;
        }
        writes.push(write);
        new.writes = writes;
        new.place = locate(new.start / limits.per);
        self.sectors += new.end - new.start;
        if first == to {
            self.waiting.insert(first, new);
            return;
        }
        let replaced = std::mem::replace(&mut self.waiting[first], new);
        self.spare.push(replaced.writes);
        for gone in self.waiting.drain(first + 1..to) {
            self.spare.push(gone.writes);
        }
    }

    /// Whether a single range, waiting or in flight, covers `[start, end)`.
    pub(super) fn covers(&self, start: u64, end: u64) -> bool {
        let at = self.waiting.partition_point(|e| e.end <= start);
        let over = |e: &Extent| e.start <= start && end <= e.end;
        self.waiting.get(at).is_some_and(over) || self.flying.iter().any(over)
    }

    /// The index of the range whose oldest write has waited longest.
    pub(super) fn oldest(&self) -> Option<usize> {
        (0..self.waiting.len()).min_by_key(|n| self.waiting[*n].since)
    }

    /// Puts the batch that begins with waiting range `first` in flight: ascending ranges, each within `near`
    /// logical sectors of the previous one.
    pub(super) fn take(&mut self, first: usize, near: u64, limits: &WriteLimits) {
        debug_assert!(self.flying.is_empty(), "one batch at a time");
        let mut last = first;
        let head = &self.waiting[first];
        let mut pays = limits.pays(head);
        let (start, end) = head.physical(limits);
        let mut physical = end - start;
        let mut sectors = head.end - head.start;
        let alone = limits.goes_alone(head);
        while !alone && last + 1 < self.waiting.len() && last + 1 - first < limits.batch {
            let (end, next) = (self.waiting[last].end, &self.waiting[last + 1]);
            let (next_start, next_end) = next.physical(limits);
            pays |= limits.pays(next);
            physical += next_end - next_start;
            sectors += next.end - next.start;
            if next.start.saturating_sub(end) > near
                || sectors > limits.segment_sectors
                || limits.goes_alone(next)
                || (pays && physical > limits.batch as u64)
            {
                break;
            }
            last += 1;
        }
        self.flying.extend(self.waiting.drain(first..=last));
    }

    /// Removes the ranges in flight: they are on the medium.
    pub(super) fn landed(&mut self) {
        for mut extent in self.flying.drain(..) {
            self.sectors -= extent.end - extent.start;
            extent.writes.clear();
            self.spare.push(extent.writes);
        }
    }

    /// Whether a stored state is consistent.
    pub(super) fn is_possible(&self, sectors: u64, clock: u64) -> bool {
        let well = |e: &Extent| e.start < e.end && e.end <= sectors;
        let kept = self.waiting.iter().chain(&self.flying);
        let times = |e: &Extent| {
            let writes = e.writes.iter().all(|w| w.submitted <= clock);
            e.since <= clock && writes
        };
        let sum = kept
            .clone()
            .try_fold(0u64, |n, e| n.checked_add(e.end.saturating_sub(e.start)));
        kept.clone().all(|e| well(e) && times(e))
            && self.waiting.windows(2).all(|w| w[0].end <= w[1].start)
            && sum == Some(self.sectors)
    }
}

/// Whether a new write is merged with an older range that it touches: always if they overlap, since one of them would
/// be stale; if merely adjacent, up to a length, and not if partial writes are rewritten one by one.
fn joins(old: &Extent, new: &Extent, limits: &WriteLimits) -> bool {
    if old.start < new.end && new.start < old.end {
        return true;
    }
    let union = new.end.max(old.end) - new.start.min(old.start);
    union <= limits.segment_sectors
        && !limits.goes_alone(old)
        && !limits.goes_alone(new)
        && old.urgent == new.urgent
}
