//! From the write cache to the medium: one batch, its passes, and what partial physical sectors cost.
//!
//! # What it is
//! A batch is a few ranges in ascending order. If each covers whole physical sectors, one pass writes it. If not, the
//! policy decides:
//! - `batched`: a pass reads the partial sectors of the whole batch, and the next pass writes it. For such a batch,
//!   `destage_batch` limits physical sectors, not ranges. Both passes begin at the same angle: a revolution each.
//! - `sync`: a batch is one range; otherwise the same.
//! - `unbatched`: each partial physical sector is read and, a revolution later, written, before the next one is
//!   started.
//! - `hidden`: as if there were no partial sectors.
//!
//! After a batch the drive loses some time (the turnaround), in which the beginning of the next one passes by; a
//! batch of whole sectors that continues exactly where the last one ended does not. This loss and the two passes
//! are what makes the misaligned `phybs` rows three times as slow as the aligned ones, instead of a hundred
//! times.
//!
//! # Invariants
//! 1. A partial sector is read before it is written, unless it was the last thing written or is in the read cache.
//! 2. The events of a batch are in time order, and none is later than its end.

use super::command::Event;
use super::disk::{Disk, MediumEvent};
use super::mechanics::Access;
use super::mutant::Mutant;
use super::read_cache::Range;
use crate::profile::RmwPolicy;
use rt::splitmix64;

/// Ranges of a batch that share physical sectors: one contiguous access for the head.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    /// Physical sectors.
    range: Range,
    /// Its first sector is covered only in part.
    head: bool,
    /// Its last sector is covered only in part.
    tail: bool,
    /// A sector in between is, too.
    hole: bool,
    /// Ranges of the batch up to and including this run.
    extents: usize,
}

impl Disk {
    /// Writes the batch in flight, decided on at `now`, begun at `at`; returns its end.
    pub(super) fn destage(&mut self, now: u64, at: u64) -> u64 {
        self.find_runs();
        self.state.statistics.busy_ns += at - now;
        let rewrites = self.runs.iter().any(|r| r.head || r.tail || r.hole);
        let alone = rewrites && self.limits.policy != RmwPolicy::Batched;
        let until = if rewrites && self.limits.policy == RmwPolicy::Unbatched {
            self.rewrite_one_by_one(at)
        } else {
            let read = self.read_partial(at);
            self.write_runs(read)
        };
        let lost = if alone {
            self.rewrite_latency()
        } else {
            self.turnaround_ns
        };
        self.state.not_before = until + lost;
        until
    }

    /// Merges the batch's ranges into runs.
    fn find_runs(&mut self) {
        let per = self.limits.per;
        let pays = self.limits.policy != RmwPolicy::Hidden;
        let always = self.mechanics.is(Mutant::AlignedWritesRead);
        self.runs.clear();
        let mut end_before = 0;
        for (n, extent) in self.state.write_cache.flying.iter().enumerate() {
            let (start, end) = extent.physical(&self.limits);
            let head = pays && (!extent.start.is_multiple_of(per) || always);
            let tail = pays && !extent.end.is_multiple_of(per);
            match self.runs.last_mut() {
                Some(run) if start < run.range.end => {
                    run.hole |= pays && extent.start != end_before;
                    run.tail = tail;
                    run.range.end = run.range.end.max(end);
                    run.extents = n + 1;
                }
                _ => self.runs.push(Run {
                    range: Range { start, end },
                    head,
                    tail,
                    hole: false,
                    extents: n + 1,
                }),
            }
            end_before = extent.end;
        }
    }

    /// Whether a physical sector's contents are known without reading it.
    fn knows(&mut self, sector: u64, now: u64) -> bool {
        let want = Range {
            start: sector,
            end: sector + 1,
        };
        let s = &mut self.state;
        let cache = &mut s.read_cache;
        s.written.contains(&want) || cache.has(&want, now, &self.mechanics, self.read_limits)
    }

    /// The read pass over all partial sectors of the batch; returns its end.
    fn read_partial(&mut self, at: u64) -> u64 {
        let mut now = at;
        for n in 0..self.runs.len() {
            let run = self.runs[n];
            let (first, last) = (run.range.start, run.range.end - 1);
            if run.hole {
                now = self.read_to_rewrite(now, first, last + 1 - first);
                continue;
            }
            let head = run.head && !self.knows(first, at);
            let tail = run.tail && !(head && first == last) && !self.knows(last, at);
            if head && tail && first + 1 == last {
                now = self.read_to_rewrite(now, first, 2);
                continue;
            }
            if head {
                now = self.read_to_rewrite(now, first, 1);
            }
            if tail {
                now = self.read_to_rewrite(now, last, 1);
            }
        }
        self.state.statistics.rewrite_passes += u64::from(now > at);
        now
    }

    fn read_to_rewrite(&mut self, at: u64, sector: u64, sectors: u64) -> u64 {
        if self.mechanics.is(Mutant::PartialWritesDoNotRead) {
            return at;
        }
        self.state.statistics.partial_sectors += sectors;
        self.access(at, sector, sectors, false).until
    }

    /// The write pass; returns its end.
    fn write_runs(&mut self, at: u64) -> u64 {
        let mut now = at;
        let mut extent = 0;
        for n in 0..self.runs.len() {
            let run = self.runs[n];
            let sectors = run.range.end - run.range.start;
            let access = self.access(now, run.range.start, sectors, true);
            let both = run.head && run.tail && sectors <= 2;
            if both {
                self.tell_rewriting(&access);
            } else if run.hole {
                self.tell_holes(extent..run.extents, &access);
            } else {
                self.tell_ends(&run, &access);
            }
            now = access.until;
            self.tell_written(extent..run.extents, now, at);
            extent = run.extents;
            self.state.written = run.range;
        }
        self.state.statistics.write_passes += 1;
        now
    }

    /// Reports the partial sectors of a run of several ranges.
    fn tell_holes(&mut self, extents: std::ops::Range<usize>, access: &Access) {
        let per = self.limits.per;
        let ranges = &self.state.write_cache.flying[extents];
        let mut partial = Vec::new();
        for (n, range) in ranges.iter().enumerate() {
            let goes_on = |at: usize| ranges.get(at).is_some_and(|next| next.start == range.end);
            let continues = n > 0 && ranges[n - 1].end == range.start;
            if !continues && !range.start.is_multiple_of(per) {
                partial.push(range.start / per);
            }
            if !goes_on(n + 1) && !range.end.is_multiple_of(per) {
                partial.push(range.end / per);
            }
        }
        partial.dedup();
        let place = self.mechanics.geometry.locate(access.sector);
        for sector in partial {
            let before = sector - access.sector;
            self.tell_rewriting(&Access {
                sector,
                sectors: 1,
                from: access.from + self.mechanics.pass_ns(&place, before),
                until: access.from + self.mechanics.pass_ns(&place, before + 1),
                ..*access
            });
        }
    }

    /// Reports the partial sectors at the ends of a longer run.
    fn tell_ends(&mut self, run: &Run, access: &Access) {
        let place = self.mechanics.geometry.locate(access.sector);
        let sectors = access.sectors;
        if run.head {
            self.tell_rewriting(&Access {
                sectors: 1,
                until: access.from + self.mechanics.pass_ns(&place, 1),
                ..*access
            });
        }
        if run.tail {
            self.tell_rewriting(&Access {
                sector: access.sector + sectors - 1,
                sectors: 1,
                from: access.from + self.mechanics.pass_ns(&place, sectors - 1),
                ..*access
            });
        }
    }

    fn tell_rewriting(&mut self, access: &Access) {
        if self.mechanics.is(Mutant::RewritingIsSilent) {
            return;
        }
        self.state
            .medium
            .push_back(MediumEvent::Rewriting(Event::Rewriting {
                physical_lba: access.sector,
                sectors: u32::try_from(access.sectors).unwrap_or(u32::MAX),
                from: access.from,
                until: access.until,
            }));
    }

    /// Reports these ranges of the batch as written.
    fn tell_written(&mut self, extents: std::ops::Range<usize>, at: u64, begun: u64) {
        let early = self.mechanics.is(Mutant::DestagedTooEarly);
        let at = if early { begun } else { at };
        let lost = self.mechanics.is(Mutant::MergedTagsAreLost);
        let s = &mut self.state;
        for extent in &s.write_cache.flying[extents] {
            let kept = if lost { 1 } else { extent.writes.len() };
            for write in &extent.writes[..kept] {
                let write = *write;
                s.medium.push_back(MediumEvent::Written { write, at });
            }
        }
    }

    /// For one range: reads and writes its first sector, writes the whole ones, then reads and writes its last
    /// sector.
    fn rewrite_one_by_one(&mut self, at: u64) -> u64 {
        let run = self.runs[0];
        let (first, last) = (run.range.start, run.range.end - 1);
        let mut now = at;
        if run.head {
            now = self.rewrite_sector(now, first);
        }
        let tail = run.tail && !(run.head && first == last);
        let whole = Range {
            start: first + u64::from(run.head),
            end: last + u64::from(!tail),
        };
        if whole.start < whole.end {
            now = self
                .access(now, whole.start, whole.end - whole.start, true)
                .until;
        }
        if tail {
            let waits = if run.head || whole.start < whole.end {
                self.rewrite_latency()
            } else {
                0
            };
            now = self.rewrite_sector(now + waits, last);
        }
        self.state.statistics.write_passes += 1;
        self.tell_written(0..self.state.write_cache.flying.len(), now, at);
        self.state.written = run.range;
        now
    }

    fn rewrite_sector(&mut self, at: u64, sector: u64) -> u64 {
        let read = if self.knows(sector, at) {
            at
        } else {
            self.state.statistics.rewrite_passes += 1;
            self.read_to_rewrite(at, sector, 1)
        };
        let access = self.access(read, sector, 1, true);
        self.tell_rewriting(&access);
        access.until
    }

    /// Firmware time after a rewrite, before the drive can do anything else.
    fn rewrite_latency(&mut self) -> u64 {
        let drawn = splitmix64(&mut self.state.random);
        let drawn = if self.mechanics.is(Mutant::SeedIsIgnored) {
            super::mutant::unseeded()
        } else {
            drawn
        };
        drawn % (self.rewrite_latency_ns + 1)
    }
}
