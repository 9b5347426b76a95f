//! What the head does next.
//!
//! # What it is
//! When the head is idle, one of these begins: the waiting read that can begin soonest; the batch of waiting
//! writes that can begin soonest; or read-ahead after the last read, until something else arrives. Reads go
//! first, unless writes *press*: by number or size (three quarters of the cache), by age, by a flush, by a write
//! that a thread waits for, or by one that finds no room. Pressing writes and waiting reads alternate: a pass of
//! writes, and one read with what comes to the head behind it, up to a segment. Once writes have pressed, the cache is
//! drained whenever no read waits; otherwise they go to the medium after some idle time.
//!
//! # Invariants
//! 1. Nothing waits for ever: a read older than the age limit goes first, and so does a range of writes older
//!    than its own limit.
//! 2. A batch that is neither waited for nor too old never begins in the middle of ranges that are close
//!    together: the firmware does not start with whatever sector comes round first. That is why the turnaround
//!    costs a revolution.

use super::disk::{Disk, Job, WaitingRead};
use super::mutant::Mutant;

impl Disk {
    /// Something arrived: if the head is idle, there may be work, or sooner than expected.
    pub(super) fn reconsider(&mut self, now: u64) {
        if self.state.job.is_none() {
            let at = self.due(now).max(now);
            self.state.wake_at = self.state.wake_at.min(at);
        }
    }

    /// When the head will have something to do, if nothing else arrives.
    fn due(&self, now: u64) -> u64 {
        let s = &self.state;
        let reads = s.reads.iter().map(|r| r.ready_at).min();
        let at = reads.unwrap_or(u64::MAX);
        if s.write_cache.waiting.is_empty() {
            return at;
        }
        if s.draining || self.presses(now) {
            return now;
        }
        at.min(s.active_at + self.idle_ns)
    }

    /// Whether waiting writes press.
    fn presses(&self, now: u64) -> bool {
        let s = &self.state;
        let cache = &s.write_cache;
        let limits = &self.limits;
        s.flush.is_some()
            || !s.writes.is_empty()
            || cache.waiting.len() * 4 >= limits.segments * 3
            || cache.sectors * 4 >= limits.sectors * 3
            || cache.waiting.iter().any(|e| e.urgent)
            || self.aged(now).is_some()
    }

    /// The oldest waiting range, if it is over the age limit.
    fn aged(&self, now: u64) -> Option<usize> {
        let cache = &self.state.write_cache;
        let oldest = cache.oldest()?;
        let age = now - cache.waiting[oldest].since;
        (age > self.destage_age_ns && !self.mechanics.is(Mutant::AgeIsIgnored)).then_some(oldest)
    }

    /// Decides what an idle head does next.
    pub(super) fn decide(&mut self, now: u64) {
        while self.state.job.is_none() {
            let ready = self.state.reads.iter().any(|r| r.ready_at <= now);
            let some = !self.state.write_cache.waiting.is_empty();
            let presses = some && self.presses(now);
            let s = &mut self.state;
            s.draining = some && (s.draining || presses);
            let idle = some && now >= s.active_at + self.idle_ns;
            let draining = s.draining;
            let writes_first = presses && s.last_was_read && !self.goes_on_reading(now);
            if ready && !writes_first {
                self.begin_read(now);
            } else if draining || idle {
                self.begin_destage(now);
            } else {
                self.state.wake_at = self.due(now);
                return;
            }
        }
    }

    /// Whether a waiting read comes to the head where it is, and the turn of reads is not over: as much as a segment
    /// holds.
    fn goes_on_reading(&self, now: u64) -> bool {
        let s = &self.state;
        let flows = |read: &WaitingRead| {
            let flow = s.read_cache.flows_by(&read.range, now, &self.mechanics);
            read.ready_at <= now && flow.is_some()
        };
        s.read_in_turn < self.read_limits.sectors && s.reads.iter().any(flows)
    }

    /// The read that can begin soonest; the oldest one if it is over the age limit.
    fn choose_read(&self, now: u64) -> usize {
        let s = &self.state;
        let oldest = s.reads[0].queued.submitted;
        if now - oldest > self.age_limit_ns
            && s.reads[0].ready_at <= now
            && !self.mechanics.is(Mutant::AgeIsIgnored)
        {
            return 0;
        }
        let farthest = self.mechanics.is(Mutant::FarthestFirst);
        let mut best = (u64::MAX, 0);
        for (n, read) in s.reads.iter().enumerate() {
            if read.ready_at > now {
                continue;
            }
            let ns = match s.read_cache.flows_by(&read.range, now, &self.mechanics) {
                Some(flow) => flow.begins.saturating_sub(now),
                None => self.mechanics.reach(&s.head, now, &read.place, false).ns(),
            };
            let ns = if farthest { u64::MAX - 1 - ns } else { ns };
            if ns < best.0 {
                best = (ns, n);
            }
        }
        best.1
    }

    fn begin_read(&mut self, now: u64) {
        let chosen = self.choose_read(now);
        let s = &mut self.state;
        let read = s.reads.remove(chosen);
        s.last_was_read = true;
        s.read_in_turn = s
            .read_in_turn
            .saturating_add(read.range.end - read.range.start);
        let (mechanics, limits) = (&self.mechanics, self.read_limits);
        if s.read_cache.has(&read.range, now, mechanics, limits) {
            s.statistics.read_hits += 1;
            return self.answer(now, read.queued);
        }
        let until = match s.read_cache.flows_by(&read.range, now, mechanics) {
            Some(flow) => {
                s.statistics.transfer_ns += flow.until - now;
                s.statistics.busy_ns += flow.until - now;
                s.head.track = mechanics.geometry.locate(read.range.end - 1).track;
                self.note(flow.access());
                flow.until
            }
            None => {
                self.stop_reading_ahead(now);
                let missing = self.state.read_cache.missing(&read.range);
                self.access(now, missing.start, missing.end - missing.start, false)
                    .until
            }
        };
        self.state.job = Some(Job::Read(read));
        self.state.wake_at = until;
    }

    fn stop_reading_ahead(&mut self, now: u64) {
        if self.record.is_some()
            && let Some(access) = self.state.read_cache.reading_ahead(now, &self.mechanics)
        {
            self.note(access);
        }
        let s = &mut self.state;
        s.read_cache
            .stop(now, &mut s.head, &self.mechanics, self.read_limits);
    }

    fn begin_destage(&mut self, now: u64) {
        self.stop_reading_ahead(now);
        let (first, at) = self.choose_batch(now);
        let s = &mut self.state;
        s.last_was_read = false;
        s.read_in_turn = 0;
        s.write_cache.take(first, self.near, &self.limits);
        s.job = Some(Job::Destage);
        self.state.wake_at = self.destage(now, at);
        self.take_writes(now);
    }

    /// The waiting range with which the next pass begins, and when it may begin: one that is too old, or of the stream
    /// that has no room for the next write, or that a thread waits for; else, of the ranges that are not close behind
    /// another one, the one that can be reached soonest.
    fn choose_batch(&mut self, now: u64) -> (usize, u64) {
        if let Some(aged) = self.aged(now) {
            return (aged, self.may_begin(now, aged));
        }
        if let Some(waited_for) = self.begin_of_full_stream() {
            return (waited_for, self.may_begin(now, waited_for));
        }
        let cache = &self.state.write_cache;
        let urgent = cache.waiting.iter().any(|e| e.urgent);
        let youngest = if cache.waiting.len() > self.window && !urgent {
            self.ages.clear();
            self.ages.extend(cache.waiting.iter().map(|e| e.since));
            *self.ages.select_nth_unstable(self.window - 1).1
        } else {
            u64::MAX
        };
        let (head, turned) = (&self.state.head, now.max(self.state.not_before));
        let mut best = (u64::MAX, 0, turned);
        let mut end = 0;
        for (n, extent) in cache.waiting.iter().enumerate() {
            let behind = n > 0 && extent.start.saturating_sub(end) <= self.near && !urgent;
            end = extent.end;
            if behind || extent.since > youngest || extent.urgent != urgent {
                continue;
            }
            let at = self.may_begin(now, n);
            let reach = self.mechanics.reach(head, at, &extent.place, true);
            let ns = at - now + reach.ns();
            if ns < best.0 {
                best = (ns, n, at);
            }
        }
        (best.1, best.2)
    }

    /// The waiting range with which the stream begins that the next write goes on with, if that write has no room for
    /// this reason.
    fn begin_of_full_stream(&self) -> Option<usize> {
        let begin = self.full_stream(&self.state.writes.front()?.command)?;
        let waiting = &self.state.write_cache.waiting;
        let at = waiting.partition_point(|e| e.end <= begin);
        (at < waiting.len() && waiting[at].start == begin).then_some(at)
    }

    /// Immediately if the range continues what was written last and needs no reading, else after the turnaround.
    fn may_begin(&self, now: u64, waiting: usize) -> u64 {
        let s = &self.state;
        let extent = &s.write_cache.waiting[waiting];
        let continues = extent.physical(&self.limits).0 == s.written.end;
        if (continues && !self.limits.pays(extent)) || self.mechanics.is(Mutant::TurnaroundIsFree) {
            now
        } else {
            now.max(s.not_before)
        }
    }
}
