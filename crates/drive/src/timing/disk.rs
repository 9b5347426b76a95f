//! A disk: commands in, the wire, the caches, events out.
//!
//! # What it is
//! An event simulation with three queues of future events, each in time order: what passes over the wire
//! (`bus`), what the running pass does on the medium (`medium`), and the end of that pass or the next decision
//! (`wake_at`). A command waits at the host until one of the `queue_depth` slots is free. Then
//! - a read is answered from a cache, or waits for the head: the one that can begin soonest goes first, unless
//!   one has waited longer than the age limit;
//! - a write is done once it has passed the wire into the cache; it needs room there first. With FUA, or without
//!   a write cache, it is done when it is on the medium;
//! - a flush is done when the cache is clean; no later command enters the drive before that.
//!
//! What the head does next is decided in `schedule.rs`, what it does with a batch of writes in `destage.rs`.
//!
//! # Invariants
//! 1. Decisions depend only on the state and the simulated time, never on how often the model is polled: advancing in
//!    one step or in a thousand gives the same events.
//! 2. No step allocates once the queues have grown to their size.

use rt::splitmix64;
use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::command::{Command, CommandKind, Event, Statistics};
use super::geometry::{SectorPosition, ns_of_ms, ns_of_us};
use super::mechanics::{Access, Head, Mechanics};
use super::mutant::Mutant;
use super::read_cache::{Range, ReadCache, ReadLimits};
use super::write_cache::{Pending, WriteCache, WriteLimits};
use crate::profile::{DiskFigures, Profile};

/// Limit of all times, in ns: 36 years.
pub(super) const TIME_MAX: u64 = 1 << 60;

/// A command and when it was submitted.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Queued {
    pub(super) command: Command,
    pub(super) submitted: u64,
}

/// A transfer over the wire, and when it ends.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Transfer {
    pub(super) queued: Queued,
    pub(super) at: u64,
}

/// A read waiting for the head.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct WaitingRead {
    pub(super) queued: Queued,
    pub(super) range: Range,
    pub(super) ready_at: u64,
    #[serde(skip)]
    pub(super) place: SectorPosition,
}

/// What the head is doing.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum Job {
    Read(WaitingRead),
    Destage,
}

/// All mutable state; it is stored while the program does not run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct DiskState {
    pub(super) clock: u64,
    pub(super) random: u64,
    pub(super) head: Head,
    pub(super) job: Option<Job>,
    pub(super) wake_at: u64,
    pub(super) last_was_read: bool,
    /// Physical sectors read since writes last had their turn.
    #[serde(default)]
    pub(super) read_in_turn: u64,
    pub(super) active_at: u64,
    pub(super) draining: bool,
    /// Turnaround: the next pass of writes does not begin before this time, unless it begins where the last one
    /// ended.
    pub(super) not_before: u64,
    pub(super) written: Range,
    pub(super) in_drive: u32,
    pub(super) host: VecDeque<Queued>,
    pub(super) reads: Vec<WaitingRead>,
    pub(super) writes: VecDeque<Queued>,
    pub(super) incoming: usize,
    pub(super) incoming_sectors: u64,
    pub(super) flush: Option<Queued>,
    pub(super) bus_free: u64,
    pub(super) bus: VecDeque<Transfer>,
    pub(super) medium: VecDeque<MediumEvent>,
    pub(super) write_cache: WriteCache,
    pub(super) read_cache: ReadCache,
    pub(super) told: VecDeque<Event>,
    pub(super) statistics: Statistics,
}

/// A future event of the running pass.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum MediumEvent {
    Written { write: Pending, at: u64 },
    Rewriting(Event),
}

impl MediumEvent {
    pub(super) fn at(&self) -> u64 {
        match self {
            MediumEvent::Written { at, .. } => *at,
            MediumEvent::Rewriting(event) => event.at(),
        }
    }
}

/// The longest gap between ranges of one pass, in physical sectors: it passes under the head as soon as another pass
/// could begin.
fn near(mechanics: &Mechanics, profile: &Profile, disk: &DiskFigures) -> u64 {
    let again_ns =
        ns_of_ms(profile.cache.destage_turnaround_ms + disk.seek_min_ms + disk.write_settle_ms);
    let track = mechanics.geometry.locate(0);
    again_ns * track.per_track / mechanics.geometry.turn_ns()
}

/// A disk.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) mechanics: Mechanics,
    pub(super) limits: WriteLimits,
    pub(super) read_limits: ReadLimits,
    pub(super) turnaround_ns: u64,
    pub(super) rewrite_latency_ns: u64,
    sector_bytes: u64,
    pub(super) medium_sectors: u64,
    lba_shift: u64,
    depth: u32,
    pub(super) window: usize,
    overhead_ns: u64,
    ps_per_byte: u64,
    pub(super) age_limit_ns: u64,
    pub(super) idle_ns: u64,
    pub(super) destage_age_ns: u64,
    /// Ranges at most this many logical sectors apart are written in one pass.
    pub(super) near: u64,
    pub(super) state: DiskState,
    pub(super) runs: Vec<super::destage::Run>,
    pub(super) ages: Vec<u64>,
    pub(super) record: Option<Vec<Access>>,
}

impl Disk {
    pub(super) fn new(profile: &Profile, disk: &DiskFigures, seed: u64) -> Disk {
        let mechanics = Mechanics::new(profile, disk);
        let mut random = seed;
        let phase = splitmix64(&mut random) % mechanics.geometry.turn_ns();
        let state = DiskState {
            clock: 0,
            random,
            head: Head { track: 0, phase },
            job: None,
            wake_at: u64::MAX,
            last_was_read: false,
            read_in_turn: 0,
            active_at: 0,
            draining: false,
            not_before: 0,
            written: Range { start: 0, end: 0 },
            in_drive: 0,
            host: VecDeque::new(),
            reads: Vec::new(),
            writes: VecDeque::new(),
            incoming: 0,
            incoming_sectors: 0,
            flush: None,
            bus_free: 0,
            bus: VecDeque::new(),
            medium: VecDeque::new(),
            write_cache: WriteCache::default(),
            read_cache: ReadCache::default(),
            told: VecDeque::new(),
            statistics: Statistics::default(),
        };
        Disk::with_state(profile, disk, mechanics, state)
    }

    fn with_state(
        profile: &Profile,
        disk: &DiskFigures,
        mechanics: Mechanics,
        state: DiskState,
    ) -> Disk {
        let cache = &profile.cache;
        let sector_bytes = u64::from(profile.identify.logical_sector_bytes);
        let per = profile.sectors_per_physical();
        let physical = u64::from(profile.medium.physical_sector_bytes);
        let kib = |n: u32| u64::from(n) * 1024;
        Disk {
            limits: WriteLimits {
                per,
                policy: cache.rmw_policy,
                sectors: kib(cache.write_cache_kib) / sector_bytes,
                segments: cache.write_segments as usize,
                segment_sectors: (kib(cache.write_segment_kib) / sector_bytes).max(per),
                batch: cache.destage_batch as usize,
            },
            read_limits: ReadLimits {
                segments: u64::from(cache.read_segments),
                sectors: kib(cache.read_segment_kib) / physical,
            },
            turnaround_ns: ns_of_ms(cache.destage_turnaround_ms),
            rewrite_latency_ns: ns_of_ms(cache.rewrite_latency_max_ms),
            sector_bytes,
            medium_sectors: profile.medium_sectors(),
            lba_shift: profile.medium.lba_shift,
            depth: profile.queue_depth(),
            window: cache.elevator_window as usize,
            overhead_ns: ns_of_us(profile.interface.command_overhead_us),
            ps_per_byte: (1e6 / profile.interface.rate_mb_s).round() as u64,
            age_limit_ns: ns_of_ms(disk.age_limit_ms),
            idle_ns: ns_of_ms(cache.destage_idle_ms),
            destage_age_ns: ns_of_ms(cache.destage_age_ms),
            near: near(&mechanics, profile, disk) * per,
            mechanics,
            state,
            runs: Vec::new(),
            ages: Vec::new(),
            record: None,
        }
    }

    /// A disk in a stored state; `None` if the state is not possible.
    pub(super) fn restore(profile: &Profile, disk: &DiskFigures, state: DiskState) -> Option<Disk> {
        let mut disk = Disk::with_state(profile, disk, Mechanics::new(profile, disk), state);
        if !super::kept::is_possible(&disk) {
            return None;
        }
        let geometry = &disk.mechanics.geometry;
        for extent in &mut disk.state.write_cache.waiting {
            extent.place = geometry.locate(extent.start / disk.limits.per);
        }
        for read in &mut disk.state.reads {
            read.place = geometry.locate(read.range.start);
        }
        Some(disk)
    }

    #[cfg(test)]
    pub(super) fn plant(&mut self, mutant: Option<Mutant>) {
        self.mechanics.plant(mutant);
    }

    /// Starts recording what passes under the head.
    pub(super) fn record(&mut self) {
        self.record.get_or_insert_default();
    }

    /// What has passed under the head since [`Disk::record`] or the last call, up to now.
    pub(super) fn take_record(&mut self) -> Vec<Access> {
        let now = self.state.clock;
        let ahead = self.state.read_cache.reading_ahead(now, &self.mechanics);
        let mut list = self.record.as_mut().map(std::mem::take).unwrap_or_default();
        list.extend(ahead);
        list
    }

    pub(super) fn note(&mut self, access: Access) {
        if let Some(list) = &mut self.record {
            list.push(access);
        }
    }

    /// A command reaches the drive, or waits at the host.
    pub(super) fn submit(&mut self, now: u64, command: Command) {
        let now = now.max(self.state.clock);
        self.run(now);
        self.state.statistics.came(now);
        self.state.host.push_back(Queued {
            command,
            submitted: now,
        });
        self.admit(now);
    }

    /// When something may happen next.
    pub(super) fn next_at(&self) -> Option<u64> {
        let s = &self.state;
        let told = s.told.front().map(Event::at);
        let next = s.medium.front().map_or(u64::MAX, MediumEvent::at);
        let next = next.min(s.bus.front().map_or(u64::MAX, |t| t.at));
        let next = next.min(s.wake_at);
        told.or((next != u64::MAX).then_some(next))
    }

    /// Like [`Disk::next_at`], but `None` if no command is in the drive and no event is undelivered.
    pub(super) fn next_done_at(&self) -> Option<u64> {
        let s = &self.state;
        let waits = s.in_drive > 0 || !s.told.is_empty();
        if waits { self.next_at() } else { None }
    }

    /// Simulates until `now`.
    pub(super) fn run(&mut self, now: u64) {
        loop {
            let s = &mut self.state;
            let medium = s.medium.front().map_or(u64::MAX, MediumEvent::at);
            let bus = s.bus.front().map_or(u64::MAX, |t| t.at);
            let at = medium.min(bus).min(s.wake_at);
            if at > now {
                s.clock = s.clock.max(now);
                return;
            }
            s.clock = at;
            if medium == at {
                self.on_medium(at);
            } else if bus == at {
                self.on_bus(at);
            } else {
                self.on_wake(at);
            }
        }
    }

    /// Moves commands from the host into free slots of the drive.
    fn admit(&mut self, now: u64) {
        while self.state.in_drive < self.depth && self.state.flush.is_none() {
            let Some(queued) = self.state.host.pop_front() else {
                break;
            };
            let s = &mut self.state;
            s.in_drive += 1;
            s.active_at = now;
            s.statistics.queue_depth_max = s.statistics.queue_depth_max.max(s.in_drive);
            self.accept(now, queued);
        }
        self.reconsider(now);
    }

    fn accept(&mut self, now: u64, queued: Queued) {
        match queued.command.kind {
            CommandKind::Read => self.accept_read(now, queued),
            CommandKind::Write if queued.command.sectors > 0 => {
                self.state.writes.push_back(queued);
                self.take_writes(now);
            }
            CommandKind::Flush => {
                self.state.flush = Some(queued);
                self.end_flush(now);
            }
            CommandKind::Write | CommandKind::Trim => self.transfer(now, queued, 0),
        }
    }

    fn accept_read(&mut self, now: u64, queued: Queued) {
        let (start, end) = self.extent(&queued.command);
        let bytes = self.bytes(&queued.command);
        if start == end {
            return self.transfer(now, queued, 0);
        }
        let per = self.limits.per;
        let range = Range {
            start: start / per,
            end: end.div_ceil(per),
        };
        let s = &mut self.state;
        if s.write_cache.covers(start, end)
            || s.read_cache
                .has(&range, now, &self.mechanics, self.read_limits)
        {
            s.statistics.read_hits += 1;
            return self.transfer(now, queued, bytes);
        }
        s.reads.push(WaitingRead {
            queued,
            range,
            ready_at: now + self.overhead_ns,
            place: self.mechanics.geometry.locate(range.start),
        });
    }

    /// Starts the transfer of waiting writes for which the cache has room; for one that has none it is drained.
    pub(super) fn take_writes(&mut self, now: u64) {
        while let Some(queued) = self.state.writes.front().copied() {
            let sectors = u64::from(queued.command.sectors);
            let s = &self.state;
            let all = s.incoming_sectors + sectors;
            let room = s.write_cache.has_room(s.incoming + 1, all, &self.limits)
                || self.mechanics.is(Mutant::CacheIsBottomless);
            if !room || self.full_stream(&queued.command).is_some() {
                self.state.draining = true;
                break;
            }
            let s = &mut self.state;
            s.writes.pop_front();
            s.incoming += 1;
            s.incoming_sectors = all;
            let bytes = self.bytes(&queued.command);
            self.transfer(now, queued, bytes);
        }
    }

    /// Where the stream begins that this write goes on with, if that stream has all the room it gets: two segments, or
    /// what passes to the medium and one write.
    pub(super) fn full_stream(&self, command: &Command) -> Option<u64> {
        let (start, end) = self.extent(command);
        let cache = &self.state.write_cache;
        let mut incoming = start;
        for transfer in self.state.bus.iter().rev() {
            let (start, end) = self.extent(&transfer.queued.command);
            if transfer.queued.command.kind == CommandKind::Write && end == incoming {
                incoming = start;
            }
        }
        let begin = cache.begin_of_run(incoming);
        let waits = incoming < start || cache.waiting_up_to(start).is_some();
        let is_full = waits && !self.limits.stream_fits(end - begin);
        (is_full && !self.mechanics.is(Mutant::StreamsRunAhead)).then_some(begin)
    }

    fn bytes(&self, command: &Command) -> u64 {
        u64::from(command.sectors) * self.sector_bytes
    }

    /// A command's sectors as the medium numbers them, cut off at the medium's end.
    fn extent(&self, command: &Command) -> (u64, u64) {
        let end = self.medium_sectors;
        let start = (command.lba.saturating_add(self.lba_shift)).min(end - 1);
        let sectors = u64::from(command.sectors).min(end - start);
        (start, start + sectors)
    }

    /// Time of `bytes` on the wire.
    fn wire_ns(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.ps_per_byte) / 1000
    }

    /// Wire and controller time of a command that needs nothing else.
    fn transfer(&mut self, now: u64, queued: Queued, bytes: u64) {
        let ns = self.overhead_ns + self.wire_ns(bytes);
        let s = &mut self.state;
        s.bus_free = s.bus_free.max(now) + ns;
        let at = s.bus_free;
        s.bus.push_back(Transfer { queued, at });
    }

    /// Ends a transfer over the wire.
    fn on_bus(&mut self, now: u64) {
        let Some(Transfer { queued, .. }) = self.state.bus.pop_front() else {
            return;
        };
        let command = queued.command;
        if command.kind != CommandKind::Write || command.sectors == 0 {
            return self.done(now, &command, queued.submitted);
        }
        let (start, end) = self.extent(&command);
        let through = command.fua || self.limits.sectors == 0;
        let waits = through && !self.mechanics.is(Mutant::FuaIsIgnored);
        let write = Pending {
            tag: command.tag,
            submitted: queued.submitted,
            waits,
        };
        let s = &mut self.state;
        s.incoming -= 1;
        s.incoming_sectors -= u64::from(command.sectors);
        s.active_at = now;
        s.statistics.writes += 1;
        s.statistics.write_bytes += u64::from(command.sectors) * self.sector_bytes;
        let per = self.limits.per;
        if !start.is_multiple_of(per) || !end.is_multiple_of(per) {
            s.statistics.partial_writes += 1;
        }
        let apart = self.mechanics.is(Mutant::OverlapsAreKeptApart);
        let locate = |sector| self.mechanics.geometry.locate(sector);
        s.write_cache
            .insert((start, end), now, write, &self.limits, locate, apart);
        if waits {
            self.reconsider(now);
        } else {
            self.done(now, &command, queued.submitted);
        }
    }

    /// Completes a command.
    fn done(&mut self, now: u64, command: &Command, submitted: u64) {
        let statistics = &mut self.state.statistics;
        match command.kind {
            CommandKind::Read => {
                statistics.reads += 1;
                statistics.read_bytes += u64::from(command.sectors) * self.sector_bytes;
            }
            CommandKind::Flush => statistics.flushes += 1,
            CommandKind::Trim => {
                statistics.trims += 1;
                statistics.trim_bytes += u64::from(command.sectors) * self.sector_bytes;
            }
            CommandKind::Write => {}
        }
        self.tell_done(now, command.tag, command.kind, submitted);
    }

    fn tell_done(&mut self, now: u64, tag: u64, kind: CommandKind, submitted: u64) {
        let s = &mut self.state;
        s.statistics.done(now, kind, submitted);
        s.in_drive -= 1;
        s.told.push_back(Event::Done { tag, at: now });
        self.end_flush(now);
        self.admit(now);
    }

    /// Completes a waiting flush once nothing is left to be written.
    fn end_flush(&mut self, now: u64) {
        let s = &mut self.state;
        let clean = s.write_cache.is_clean() && s.writes.is_empty() && s.incoming == 0;
        if (clean || self.mechanics.is(Mutant::FlushesLie))
            && let Some(queued) = s.flush.take()
        {
            self.transfer(now, queued, 0);
        }
    }

    /// Handles the next event of the running pass.
    fn on_medium(&mut self, now: u64) {
        match self.state.medium.pop_front() {
            Some(MediumEvent::Written { write, at }) => {
                let tag = write.tag;
                self.state.told.push_back(Event::Destaged { tag, at });
                if write.waits {
                    self.tell_done(now, tag, CommandKind::Write, write.submitted);
                }
            }
            Some(MediumEvent::Rewriting(event)) => self.state.told.push_back(event),
            None => {}
        }
    }

    /// The pass has ended, or a decision is due.
    fn on_wake(&mut self, now: u64) {
        self.state.wake_at = u64::MAX;
        match self.state.job.take() {
            Some(Job::Read(read)) => {
                let s = &mut self.state;
                s.active_at = now;
                s.read_cache
                    .enter(&read.range, now, &self.mechanics, self.read_limits);
                self.answer(now, read.queued);
            }
            Some(Job::Destage) => {
                self.state.active_at = now;
                self.state.write_cache.landed();
                self.take_writes(now);
                self.end_flush(now);
            }
            None => {}
        }
        self.decide(now);
    }

    /// Sends what was read to the host; everything but its end may have been sent already.
    pub(super) fn answer(&mut self, now: u64, queued: Queued) {
        let ns = self.wire_ns(self.bytes(&queued.command));
        let s = &mut self.state;
        s.bus_free = (s.bus_free + ns).max(now);
        let at = s.bus_free;
        s.bus.push_back(Transfer { queued, at });
    }

    /// Moves the head to a sector, and lets `sectors` pass.
    pub(super) fn access(&mut self, at: u64, sector: u64, sectors: u64, write: bool) -> Access {
        let s = &mut self.state;
        let place = self.mechanics.geometry.locate(sector);
        let reach = self.mechanics.reach(&s.head, at, &place, write);
        let pass_ns = self.mechanics.pass_ns(&place, sectors);
        let from = at + reach.ns();
        let access = Access {
            sector,
            sectors,
            from,
            until: from + pass_ns,
            write,
        };
        s.statistics.seeks += u64::from(reach.seek_ns > 0);
        s.statistics.seek_ns += reach.seek_ns;
        s.statistics.rotation_ns += reach.wait_ns;
        s.statistics.transfer_ns += pass_ns;
        s.statistics.busy_ns += reach.ns() + pass_ns;
        s.head.track = self.mechanics.last_track(&place, sector, sectors);
        self.note(access);
        access
    }
}
