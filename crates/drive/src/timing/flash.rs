//! A flash drive: pages on dies, dies on channels, and a write cache in front of them.
//!
//! # What it is
//! Consecutive pages are on consecutive dies, so that long reads use all of them. A read takes the die for
//! `read_us`, then its channel, then the wire; it suspends a program in progress. Writes pass the wire into the
//! cache and are then done; whole pages are programmed in the order in which they were filled, on the dies in
//! turn. A write that does not continue the previous one programs `write_amplification` times its bytes, for
//! later garbage collection; every `pages_per_block` programs, a die needs an erase. With capacitors a write is
//! safe when it is done; without, when its last page is programmed, and a flush programs a partly filled page.
//!
//! # Invariants
//! As for disks: no decision depends on how often the model is polled.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use serde::{Deserialize, Serialize};

use super::command::{Command, CommandKind, Event, Statistics};
use super::disk::TIME_MAX;
use super::geometry::ns_of_us;
use crate::profile::{FlashFigures, Profile};

/// A command and when it was submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Queued {
    tag: u64,
    kind: Kind,
    lba: u64,
    sectors: u32,
    fua: bool,
    submitted: u64,
}

/// [`CommandKind`] with an ordering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Kind {
    Read,
    Write,
    Flush,
    Trim,
}

/// A future event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Coming {
    /// A command has passed the wire.
    Transferred(Queued),
    /// This many bytes of the cache are programmed.
    Programmed(u64),
    /// The last page of a write is programmed.
    Safe(Queued),
}

/// All mutable state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct FlashState {
    clock: u64,
    sequence: u64,
    in_drive: u32,
    host: VecDeque<Queued>,
    /// Writes waiting for room in the cache.
    writes: VecDeque<Queued>,
    flushes: VecDeque<Queued>,
    /// Bytes in the cache or in flight to it.
    cached: u64,
    /// Bytes in the open (partly filled) page, and the writes that end in it.
    open: u64,
    open_writes: Vec<Queued>,
    /// Writes accepted into the cache and not yet programmed.
    unsafe_writes: u64,
    cursor: usize,
    /// Bytes that garbage collection still has to program, in thousandths.
    amplified: u64,
    /// Where the last write ended.
    write_end: u64,
    bus_free: u64,
    channel_free: Vec<u64>,
    read_free: Vec<u64>,
    program_free: Vec<u64>,
    programs: Vec<u32>,
    coming: BinaryHeap<Reverse<(u64, u64, Coming)>>,
    pub(super) told: VecDeque<Event>,
    pub(super) statistics: Statistics,
}

/// A flash drive.
#[derive(Debug)]
pub(super) struct Flash {
    figures: FlashFigures,
    sector_bytes: u64,
    page_bytes: u64,
    cache_bytes: u64,
    depth: u32,
    overhead_ns: u64,
    ps_per_byte: u64,
    channel_ps_per_byte: u64,
    read_ns: u64,
    program_ns: u64,
    erase_ns: u64,
    /// Extra bytes programmed per byte of a non-sequential write, in thousandths.
    amplification: u64,
    pub(super) state: FlashState,
}

impl Flash {
    pub(super) fn new(profile: &Profile, figures: &FlashFigures, seed: u64) -> Flash {
        let channels = figures.channels as usize;
        let dies = channels * figures.dies_per_channel as usize;
        let state = FlashState {
            clock: 0,
            sequence: 0,
            in_drive: 0,
            host: VecDeque::new(),
            writes: VecDeque::new(),
            flushes: VecDeque::new(),
            cached: 0,
            open: 0,
            open_writes: Vec::new(),
            unsafe_writes: 0,
            cursor: (seed % dies as u64) as usize,
            amplified: 0,
            write_end: 0,
            bus_free: 0,
            channel_free: vec![0; channels],
            read_free: vec![0; dies],
            program_free: vec![0; dies],
            programs: vec![0; dies],
            coming: BinaryHeap::new(),
            told: VecDeque::new(),
            statistics: Statistics::default(),
        };
        Flash::with_state(profile, figures, state)
    }

    fn with_state(profile: &Profile, figures: &FlashFigures, state: FlashState) -> Flash {
        let ps_per_byte = |mb_s: f64| (1e6 / mb_s).round() as u64;
        Flash {
            sector_bytes: u64::from(profile.identify.logical_sector_bytes),
            page_bytes: u64::from(figures.page_kib) * 1024,
            cache_bytes: u64::from(profile.cache.write_cache_kib) * 1024,
            depth: profile.queue_depth(),
            overhead_ns: ns_of_us(profile.interface.command_overhead_us),
            ps_per_byte: ps_per_byte(profile.interface.rate_mb_s),
            channel_ps_per_byte: ps_per_byte(figures.channel_mb_s),
            read_ns: ns_of_us(figures.read_us),
            program_ns: ns_of_us(figures.program_us),
            erase_ns: ns_of_us(figures.erase_us),
            amplification: ((figures.write_amplification - 1.0) * 1000.0).round() as u64,
            figures: figures.clone(),
            state,
        }
    }

    /// A drive in a stored state; `None` if the state is not possible.
    pub(super) fn restore(
        profile: &Profile,
        figures: &FlashFigures,
        state: FlashState,
    ) -> Option<Flash> {
        if !is_possible(&state, figures) {
            return None;
        }
        Some(Flash::with_state(profile, figures, state))
    }

    /// A command reaches the drive, or waits at the host.
    pub(super) fn submit(&mut self, now: u64, command: Command) {
        let now = now.max(self.state.clock);
        self.run(now);
        let kind = match command.kind {
            CommandKind::Read => Kind::Read,
            CommandKind::Write => Kind::Write,
            CommandKind::Flush => Kind::Flush,
            CommandKind::Trim => Kind::Trim,
        };
        self.state.statistics.came(now);
        self.state.host.push_back(Queued {
            tag: command.tag,
            kind,
            lba: command.lba,
            sectors: command.sectors,
            fua: command.fua,
            submitted: now,
        });
        self.admit(now);
    }

    pub(super) fn next_at(&self) -> Option<u64> {
        let told = self.state.told.front().map(Event::at);
        told.or_else(|| self.state.coming.peek().map(|c| c.0.0))
    }

    pub(super) fn next_done_at(&self) -> Option<u64> {
        let waits = self.state.in_drive > 0 || !self.state.told.is_empty();
        if waits { self.next_at() } else { None }
    }

    /// Simulates until `now`.
    pub(super) fn run(&mut self, now: u64) {
        while let Some(Reverse((at, _, coming))) = self.state.coming.peek().copied() {
            if at > now {
                break;
            }
            self.state.coming.pop();
            self.state.clock = at;
            match coming {
                Coming::Transferred(queued) => self.transferred(at, queued),
                Coming::Programmed(bytes) => {
                    self.state.cached -= bytes.min(self.state.cached);
                    self.take_writes(at);
                }
                Coming::Safe(queued) => self.safe(at, queued),
            }
        }
        self.state.clock = self.state.clock.max(now);
    }

    fn expect(&mut self, at: u64, coming: Coming) {
        self.state.sequence += 1;
        let entry = (at, self.state.sequence, coming);
        self.state.coming.push(Reverse(entry));
    }

    fn admit(&mut self, now: u64) {
        while self.state.in_drive < self.depth {
            let Some(queued) = self.state.host.pop_front() else {
                return;
            };
            let s = &mut self.state;
            s.in_drive += 1;
            s.statistics.queue_depth_max = s.statistics.queue_depth_max.max(s.in_drive);
            match queued.kind {
                Kind::Read => {
                    let read = self.read_pages(now + self.overhead_ns, &queued);
                    self.transfer(now, read, queued);
                }
                Kind::Write => {
                    s.writes.push_back(queued);
                    self.take_writes(now);
                }
                Kind::Flush => {
                    s.flushes.push_back(queued);
                    self.end_flushes(now);
                }
                Kind::Trim => self.transfer(now, now, queued),
            }
        }
    }

    fn bytes(&self, queued: &Queued) -> u64 {
        u64::from(queued.sectors) * self.sector_bytes
    }

    /// Reads all pages that a command touches; returns when the last one has passed its channel.
    fn read_pages(&mut self, at: u64, queued: &Queued) -> u64 {
        let start = queued.lba.saturating_mul(self.sector_bytes);
        let end = start.saturating_add(self.bytes(queued));
        let dies = self.state.read_free.len() as u64;
        let channels = self.state.channel_free.len();
        let mut last = at;
        for page in start / self.page_bytes..end.div_ceil(self.page_bytes) {
            let die = (page % dies) as usize;
            let from = start.max(page * self.page_bytes);
            let bytes = end.min((page + 1) * self.page_bytes) - from;
            let s = &mut self.state;
            let read = s.read_free[die].max(at) + self.read_ns;
            s.read_free[die] = read;
            if s.program_free[die] > at {
                s.program_free[die] += self.read_ns;
            }
            let channel = &mut s.channel_free[die % channels];
            *channel = (*channel).max(read) + bytes.saturating_mul(self.channel_ps_per_byte) / 1000;
            last = last.max(*channel);
            s.statistics.busy_ns += self.read_ns;
        }
        last
    }

    /// Wire time of a command whose bytes are available at `ready`.
    fn transfer(&mut self, now: u64, ready: u64, queued: Queued) {
        let moves = matches!(queued.kind, Kind::Read | Kind::Write);
        let bytes = if moves { self.bytes(&queued) } else { 0 };
        let s = &mut self.state;
        let ns = bytes.saturating_mul(self.ps_per_byte) / 1000;
        s.bus_free = s.bus_free.max(now) + ns;
        let at = (s.bus_free + self.overhead_ns).max(ready + ns);
        self.expect(at, Coming::Transferred(queued));
    }

    /// Starts the transfer of writes for which the cache has room; a single one always fits.
    fn take_writes(&mut self, now: u64) {
        while let Some(queued) = self.state.writes.front().copied() {
            let bytes = self.bytes(&queued);
            let s = &mut self.state;
            if s.cached > s.open && s.cached + bytes > self.cache_bytes {
                return;
            }
            s.writes.pop_front();
            s.cached += bytes;
            s.unsafe_writes += 1;
            self.transfer(now, now, queued);
        }
    }

    fn transferred(&mut self, now: u64, queued: Queued) {
        if queued.kind != Kind::Write {
            return self.done(now, &queued);
        }
        let through = queued.fua || self.cache_bytes == 0;
        if self.figures.power_loss_protected {
            let tag = queued.tag;
            self.state.told.push_back(Event::Destaged { tag, at: now });
            self.done(now, &queued);
        } else if !through {
            self.done(now, &queued);
        }
        self.fill_pages(now, queued);
        if (through && !self.figures.power_loss_protected) || !self.state.flushes.is_empty() {
            self.close_page(now);
        }
        self.take_writes(now);
    }

    /// Puts a write's bytes into pages; each full page is programmed.
    fn fill_pages(&mut self, now: u64, queued: Queued) {
        let mut left = self.bytes(&queued);
        if queued.lba != self.state.write_end {
            self.state.amplified += left.min(1 << 40) * self.amplification;
        }
        self.state.write_end = queued.lba.saturating_add(u64::from(queued.sectors));
        while self.state.open + left >= self.page_bytes {
            left -= self.page_bytes - self.state.open;
            self.state.open = self.page_bytes;
            if left == 0 {
                self.state.open_writes.push(queued);
                return self.program(now);
            }
            self.program(now);
        }
        self.state.open += left;
        self.state.open_writes.push(queued);
    }

    /// Programs the open page even though it is not full.
    fn close_page(&mut self, now: u64) {
        if !self.state.open_writes.is_empty() {
            self.program(now);
        }
    }

    /// Programs the open page, and the extra pages of the amplification.
    fn program(&mut self, now: u64) {
        let at = self.program_once(now);
        let bytes = std::mem::take(&mut self.state.open);
        self.expect(at, Coming::Programmed(bytes));
        for n in 0..self.state.open_writes.len() {
            let write = self.state.open_writes[n];
            self.expect(at, Coming::Safe(write));
        }
        self.state.open_writes.clear();
        while self.state.amplified >= self.page_bytes * 1000 {
            self.state.amplified -= self.page_bytes * 1000;
            self.program_once(now);
        }
    }

    /// Programs a page on the next die; returns when it is done.
    fn program_once(&mut self, now: u64) -> u64 {
        let s = &mut self.state;
        let die = s.cursor;
        s.cursor = (die + 1) % s.program_free.len();
        let channels = s.channel_free.len();
        let channel = &mut s.channel_free[die % channels];
        *channel =
            (*channel).max(now) + self.page_bytes.saturating_mul(self.channel_ps_per_byte) / 1000;
        let mut ns = self.program_ns;
        s.programs[die] += 1;
        if s.programs[die] >= self.figures.pages_per_block {
            s.programs[die] = 0;
            s.statistics.erases += 1;
            ns += self.erase_ns;
        }
        s.program_free[die] = s.program_free[die].max(*channel) + ns;
        s.statistics.busy_ns += ns;
        s.program_free[die]
    }

    /// A write's last byte is programmed.
    fn safe(&mut self, now: u64, queued: Queued) {
        self.state.unsafe_writes = self.state.unsafe_writes.saturating_sub(1);
        if !self.figures.power_loss_protected {
            let tag = queued.tag;
            self.state.told.push_back(Event::Destaged { tag, at: now });
            if queued.fua || self.cache_bytes == 0 {
                self.done(now, &queued);
            }
        }
        self.end_flushes(now);
    }

    /// Completes flushes once all writes are safe.
    fn end_flushes(&mut self, now: u64) {
        if self.state.flushes.is_empty() {
            return;
        }
        if !self.figures.power_loss_protected && self.state.unsafe_writes > 0 {
            return self.close_page(now);
        }
        while let Some(queued) = self.state.flushes.pop_front() {
            self.transfer(now, now, queued);
        }
    }

    fn done(&mut self, now: u64, queued: &Queued) {
        let bytes = self.bytes(queued);
        let s = &mut self.state;
        let kind = match queued.kind {
            Kind::Read => {
                s.statistics.reads += 1;
                s.statistics.read_bytes += bytes;
                CommandKind::Read
            }
            Kind::Write => {
                s.statistics.writes += 1;
                s.statistics.write_bytes += bytes;
                CommandKind::Write
            }
            Kind::Flush => {
                s.statistics.flushes += 1;
                CommandKind::Flush
            }
            Kind::Trim => {
                s.statistics.trims += 1;
                s.statistics.trim_bytes += bytes;
                CommandKind::Trim
            }
        };
        s.statistics.done(now, kind, queued.submitted);
        s.in_drive = s.in_drive.saturating_sub(1);
        let tag = queued.tag;
        s.told.push_back(Event::Done { tag, at: now });
        self.admit(now);
    }
}

/// Whether a stored state is consistent: it may come from an edited file.
fn is_possible(state: &FlashState, figures: &FlashFigures) -> bool {
    let dies = (figures.channels * figures.dies_per_channel) as usize;
    let queued = |q: &Queued| q.submitted <= state.clock;
    let waiting = state.host.iter().chain(&state.writes);
    let mut waiting = waiting.chain(&state.flushes).chain(&state.open_writes);
    let times = state.channel_free.iter().chain(&state.read_free);
    let mut times = times.chain(&state.program_free).chain([&state.clock]);
    state.channel_free.len() == figures.channels as usize
        && state.read_free.len() == dies
        && state.program_free.len() == dies
        && state.programs.len() == dies
        && state.cursor < dies
        && state.cached < TIME_MAX
        && state.amplified < TIME_MAX
        && state.sequence < TIME_MAX
        && super::kept::is_sane(&state.statistics)
        && state.bus_free < TIME_MAX
        && state.open < u64::from(figures.page_kib) * 1024
        && times.all(|t| *t < TIME_MAX)
        && waiting.all(queued)
        && state
            .coming
            .iter()
            .all(|c| (state.clock..TIME_MAX).contains(&c.0.0))
}
