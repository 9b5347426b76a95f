//! The read cache: ranges that have passed the head, and read-ahead while the head is otherwise idle.

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

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Segment {
    range: Range,
    used: u64,
}

/// Read-ahead in progress: it extends the segment at index `segment`, since time `since`, from sector `from`.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Ahead {
    segment: usize,
    since: u64,
    from: u64,
    most: u64,
}

/// The cached ranges; the least recently used one is replaced first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct ReadCache {
    segments: Vec<Segment>,
    ahead: Option<Ahead>,
    uses: u64,
}

/// Limits: number of ranges, and their length in physical sectors.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadLimits {
    pub(super) segments: usize,
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
        let range = &mut self.segments[ahead.segment].range;
        range.end = ahead.from + passed;
        range.start = range.start.max(range.end.saturating_sub(limits.sectors));
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
        let found = self.segments.iter_mut().find(|s| s.range.contains(want));
        found.map(|s| s.used = uses).is_some()
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
            let end = self.segments[ahead.segment].range.end;
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
        let segment = &self.segments[ahead.segment].range;
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
            .segments
            .iter()
            .filter(|s| holds(&s.range))
            .map(|s| s.range.end)
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
        let joins = |s: &Segment| s.range.start <= range.start && range.start <= s.range.end;
        let at = match self.segments.iter().position(joins) {
            Some(at) => {
                let old = &mut self.segments[at].range;
                old.end = old.end.max(range.end);
                at
            }
            None if self.segments.len() < limits.segments => {
                self.segments.push(Segment {
                    range: *range,
                    used: 0,
                });
                self.segments.len() - 1
            }
            None => {
                let oldest = (0..self.segments.len()).min_by_key(|n| self.segments[*n].used);
                let at = oldest.unwrap_or(0);
                self.segments[at].range = *range;
                at
            }
        };
        let segment = &mut self.segments[at];
        segment.used = self.uses;
        let end = segment.range.end;
        segment.range.start = segment.range.start.max(end.saturating_sub(limits.sectors));
        if end == range.end && room > 0 {
            self.ahead = Some(Ahead {
                segment: at,
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
            a.segment < self.segments.len()
                && a.most > 0
                && a.from < sectors
                && a.most <= sectors - a.from
                && a.since <= latest
        });
        ahead && self.segments.iter().all(|s| in_disk(&s.range))
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
