//! The read cache: ranges that have passed the head, and read-ahead while the head is otherwise idle.
//!
//! # What it is
//! A range takes as many segments as it is long. A stream goes on in the segments of others, so that what it has read
//! stays as long as nothing else needs the room; read-ahead fills one segment at most.
//! A range in which nothing was read a second time gives way first, and of those the one that was read longest ago:
//! reads at random take one segment from each other, and do not drive out what streams have left. Then ranges give way
//! that were used longest ago, each from its beginning.
//!
//! # Invariants
//! 1. All ranges together take at most the segments that there are.
//! 2. No range is empty, and the one that read-ahead extends is not given up.

use serde::{Deserialize, Serialize};

use super::mechanics::{Access, Head, Mechanics};
use super::mutant::Mutant;

/// A range of physical sectors, `[start, end)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Range {
    pub(super) fn contains(&self, other: &Range) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

/// A range that is kept, in one or more segments.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Kept {
    range: Range,
    /// When it was last used, counted in uses of the cache.
    used: u64,
    /// Whether a read came after the one that entered it: from it, or going on at its end.
    #[serde(default)]
    again: bool,
}

/// Read-ahead in progress: it extends the range at index `kept`, since time `since`, from sector `from`.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Ahead {
    #[serde(alias = "segment")]
    kept: usize,
    since: u64,
    from: u64,
    most: u64,
}

/// The cached ranges.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct ReadCache {
    #[serde(alias = "segments")]
    kept: Vec<Kept>,
    ahead: Option<Ahead>,
    uses: u64,
}

/// Limits: number of segments, and their length in physical sectors.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadLimits {
    pub(super) segments: u64,
    pub(super) sectors: u64,
}

impl ReadCache {
    /// Enters what read-ahead has read until `now`; read-ahead continues.
    fn catch_up(&mut self, now: u64, mechanics: &Mechanics, limits: ReadLimits) {
        let Some(ahead) = &self.ahead else { return };
        let place = mechanics.geometry.locate(ahead.from);
        let mut passed =
            mechanics
                .geometry
                .passed(&place, now.saturating_sub(ahead.since), ahead.most);
        if mechanics.is(Mutant::ReadAheadIsInstant) {
            passed = ahead.most;
        }
        let (at, end) = (ahead.kept, ahead.from + passed);
        self.kept[at].range.end = end;
        self.make_room(at, mechanics, limits);
    }

    /// Gives up segments until there are no more than there may be; the range at `growing` gives way last. Returns
    /// where that range is then.
    fn make_room(
        &mut self,
        mut growing: usize,
        mechanics: &Mechanics,
        limits: ReadLimits,
    ) -> usize {
        if limits.sectors == 0 {
            return growing;
        }
        let segments = |kept: &Kept| (kept.range.end - kept.range.start).div_ceil(limits.sectors);
        let mut taken: u64 = self.kept.iter().map(segments).sum();
        let equal = mechanics.is(Mutant::ReadsAreKeptAlike);
        while taken > limits.segments {
            let others = (0..self.kept.len()).filter(|n| *n != growing);
            let worth = |n: &usize| (self.kept[*n].again || equal, self.kept[*n].used);
            let at = others.min_by_key(worth).unwrap_or(growing);
            let excess = taken - limits.segments;
            let range = &mut self.kept[at].range;
            let has = (range.end - range.start).div_ceil(limits.sectors);
            if has > excess || at == growing {
                let left = has.saturating_sub(excess).max(1);
                range.start = range
                    .start
                    .max(range.end.saturating_sub(left * limits.sectors));
                return growing;
            }
            taken -= has;
            growing = self.give_up(at, growing);
        }
        growing
    }

    /// Removes the range at `at`; where the one at `growing` is then.
    fn give_up(&mut self, at: usize, growing: usize) -> usize {
        self.kept.swap_remove(at);
        let moved = |n: usize| if n == self.kept.len() { at } else { n };
        if let Some(ahead) = &mut self.ahead {
            ahead.kept = moved(ahead.kept);
        }
        moved(growing)
    }

    /// Whether all of `want` is cached at `now`.
    pub(super) fn has(
        &mut self,
        want: &Range,
        now: u64,
        mechanics: &Mechanics,
        limits: ReadLimits,
    ) -> bool {
        self.catch_up(now, mechanics, limits);
        self.uses += 1;
        let uses = self.uses;
        let found = self.kept.iter_mut().find(|k| k.range.contains(want));
        if let Some(kept) = found {
            kept.used = uses;
            kept.again = true;
            return true;
        }
        false
    }

    /// Stops read-ahead, leaving the head where it is: between two tracks, on the one it is leaving until it could
    /// be on the next.
    pub(super) fn stop(
        &mut self,
        now: u64,
        head: &mut Head,
        mechanics: &Mechanics,
        limits: ReadLimits,
    ) {
        self.catch_up(now, mechanics, limits);
        if let Some(ahead) = self.ahead.take() {
            let geometry = &mechanics.geometry;
            let end = self.kept[ahead.kept].range.end;
            let passed_at = if end > ahead.from {
                let place = geometry.locate(ahead.from);
                ahead.since + geometry.pass_ns(&place, end - ahead.from)
            } else {
                ahead.since.saturating_sub(geometry.gap_ns(end))
            };
            head.track = geometry.locate(end - 1).track;
            if end < ahead.from + ahead.most {
                let next = geometry.locate(end).track;
                if now >= passed_at + geometry.seek_ns(head.track, next) {
                    head.track = next;
                }
            }
        }
    }

    /// What has passed the head since read-ahead began.
    pub(super) fn reading_ahead(&self, now: u64, mechanics: &Mechanics) -> Option<Access> {
        let ahead = self.ahead.as_ref()?;
        let place = mechanics.geometry.locate(ahead.from);
        let ns = now.saturating_sub(ahead.since);
        let sectors = mechanics.geometry.passed(&place, ns, ahead.most);
        let until = ahead.since + mechanics.geometry.pass_ns(&place, sectors.max(1));
        (sectors > 0).then_some(Access {
            sector: ahead.from,
            sectors,
            from: ahead.since,
            until,
            write: false,
        })
    }

    /// If read-ahead reaches the end of `want` without any other movement of the head: when and how.
    pub(super) fn flows_by(&self, want: &Range, now: u64, mechanics: &Mechanics) -> Option<Flow> {
        let ahead = self.ahead.as_ref()?;
        let segment = &self.kept[ahead.kept].range;
        if want.start < segment.start || want.start > ahead.from + ahead.most {
            return None;
        }
        let place = mechanics.geometry.locate(ahead.from);
        let stops = ahead.since + mechanics.pass_ns(&place, ahead.most);
        if want.end > ahead.from + ahead.most && now > stops {
            return None;
        }
        let sectors = want.end.saturating_sub(ahead.from);
        let passed = ahead.since + mechanics.pass_ns(&place, sectors);
        let before = want.start.saturating_sub(ahead.from);
        Some(Flow {
            begins: ahead.since + mechanics.pass_ns(&place, before),
            from: ahead.from,
            since: ahead.since,
            sectors,
            passed,
            until: passed.max(now),
        })
    }

    /// The part of `want` that is not in the cached range holding its beginning.
    pub(super) fn missing(&self, want: &Range) -> Range {
        let holds = |r: &Range| r.start <= want.start && want.start < r.end;
        let start = self
            .kept
            .iter()
            .filter(|k| holds(&k.range))
            .map(|k| k.range.end)
            .max()
            .unwrap_or(want.start);
        Range {
            start: start.min(want.end - 1),
            end: want.end,
        }
    }

    /// Enters `range`, read by `now`; read-ahead starts at its end.
    pub(super) fn enter(
        &mut self,
        range: &Range,
        now: u64,
        mechanics: &Mechanics,
        limits: ReadLimits,
    ) {
        let room = mechanics.geometry.sectors() - range.end;
        self.ahead = None;
        if limits.segments == 0 || limits.sectors == 0 {
            return;
        }
        self.uses += 1;
        let joins = |k: &Kept| k.range.start <= range.start && range.start <= k.range.end;
        let at = match self.kept.iter().position(joins) {
            Some(at) => {
                let old = &mut self.kept[at];
                old.range.end = old.range.end.max(range.end);
                old.again = true;
                at
            }
            None => {
                self.kept.push(Kept {
                    range: *range,
                    used: 0,
                    again: false,
                });
                self.kept.len() - 1
            }
        };
        self.kept[at].used = self.uses;
        let end = self.kept[at].range.end;
        let at = self.make_room(at, mechanics, limits);
        if end == range.end && room > 0 {
            self.ahead = Some(Ahead {
                kept: at,
                since: now + mechanics.geometry.gap_ns(end),
                from: end,
                most: room.min(limits.sectors),
            });
        }
    }

    /// Whether a stored state is consistent.
    pub(super) fn is_possible(&self, sectors: u64, latest: u64) -> bool {
        let in_disk = |r: &Range| r.start < r.end && r.end <= sectors;
        let ahead = self.ahead.as_ref().is_none_or(|a| {
            self.kept
                .get(a.kept)
                .is_some_and(|k| k.range.start < a.from)
                && a.most > 0
                && a.from < sectors
                && a.most <= sectors - a.from
                && a.since <= latest
        });
        ahead && self.kept.iter().all(|k| in_disk(&k.range))
    }
}

/// A read served by read-ahead.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    /// The sector at which read-ahead began.
    from: u64,
    /// When it began.
    since: u64,
    /// Sectors from there to the end of the read.
    sectors: u64,
    /// When the first sector of the read begins to pass, if it has not passed already.
    pub(super) begins: u64,
    /// When the last of them passed, or will pass.
    passed: u64,
    /// When the read has everything that it needs.
    pub(super) until: u64,
}

impl Flow {
    /// What passes under the head from the beginning of read-ahead to the end of the read.
    pub(super) fn access(&self) -> Access {
        Access {
            sector: self.from,
            sectors: self.sectors,
            from: self.since,
            until: self.passed,
            write: false,
        }
    }
}
