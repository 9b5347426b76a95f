//! Whether a stored state can be continued: it may come from an edited file.
//!
//! # Invariants
//! No state that passes here makes a later step panic: ranges are on the medium, times are in order, counts
//! match what they count.

use super::command::{CommandKind, Statistics};
use super::disk::{Disk, Job, MediumEvent, Queued, TIME_MAX, Transfer, WaitingRead};

/// Whether a disk can be in this state.
pub(super) fn is_possible(disk: &Disk) -> bool {
    let s = &disk.state;
    let geometry = &disk.mechanics.geometry;
    let sectors = geometry.sectors();
    let latest = s.clock.saturating_add(TIME_MAX);
    s.clock < TIME_MAX
        && s.active_at <= s.clock
        && s.not_before < TIME_MAX
        && s.head.phase < geometry.turn_ns()
        && s.head.track < geometry.tracks()
        && s.written.start <= s.written.end
        && s.written.end <= sectors
        && commands_are_well(disk)
        && counts_agree(disk)
        && times_are_in_order(disk)
        && is_sane(&s.statistics)
        && s.write_cache.is_possible(disk.medium_sectors, s.clock)
        && s.read_cache.is_possible(sectors, latest)
}

fn commands_are_well(disk: &Disk) -> bool {
    let s = &disk.state;
    let sectors = disk.mechanics.geometry.sectors();
    let asked = |q: &Queued| q.submitted <= s.clock;
    let read = |r: &WaitingRead| {
        let range = r.range.start < r.range.end && r.range.end <= sectors;
        let kind = r.queued.command.kind == CommandKind::Read;
        asked(&r.queued) && range && kind && r.ready_at < TIME_MAX
    };
    let kind = |q: &Queued, kind| q.command.kind == kind;
    s.host.iter().chain(&s.writes).chain(&s.flush).all(asked)
        && s.writes.iter().all(|q| kind(q, CommandKind::Write))
        && s.flush.iter().all(|q| kind(q, CommandKind::Flush))
        && s.reads.iter().all(read)
        && s.bus.iter().all(|t| asked(&t.queued))
        && match &s.job {
            None => s.write_cache.flying.is_empty() && s.medium.is_empty(),
            Some(Job::Read(r)) => read(r) && s.write_cache.flying.is_empty(),
            Some(Job::Destage) => true,
        }
}

fn counts_agree(disk: &Disk) -> bool {
    let s = &disk.state;
    let is_write = |t: &&Transfer| {
        let command = &t.queued.command;
        command.kind == CommandKind::Write && command.sectors > 0
    };
    let incoming = s.bus.iter().filter(is_write).count();
    let sizes = s.bus.iter().filter(is_write);
    let sizes: u64 = sizes.map(|t| u64::from(t.queued.command.sectors)).sum();
    let waiting = s.write_cache.waiting.iter().flat_map(|e| &e.writes);
    let waiting = waiting.filter(|w| w.waits).count();
    let written = |e: &&MediumEvent| matches!(e, MediumEvent::Written { write, .. } if write.waits);
    let flying = s.medium.iter().filter(written).count();
    let inside = s.reads.len()
        + s.writes.len()
        + s.bus.len()
        + usize::from(s.flush.is_some())
        + usize::from(matches!(s.job, Some(Job::Read(_))))
        + waiting
        + flying;
    (incoming, sizes) == (s.incoming, s.incoming_sectors) && inside == s.in_drive as usize
}

fn times_are_in_order(disk: &Disk) -> bool {
    let s = &disk.state;
    let bus = s.bus.iter().map(|t| t.at);
    let medium = s.medium.iter().map(MediumEvent::at);
    let submitted = |e: &MediumEvent| match e {
        MediumEvent::Written { write, .. } => write.submitted <= s.clock,
        MediumEvent::Rewriting(_) => true,
    };
    let wakes = s.wake_at >= s.clock && (s.wake_at < TIME_MAX || s.job.is_none());
    s.bus_free < TIME_MAX
        && wakes
        && bus.clone().chain([s.bus_free.max(s.clock)]).is_sorted()
        && bus.chain(medium.clone()).all(|at| at >= s.clock)
        && medium.chain([s.wake_at]).is_sorted()
        && s.medium.iter().all(submitted)
}

/// Whether all counters are far from overflow.
pub(super) fn is_sane(statistics: &Statistics) -> bool {
    let Statistics {
        reads,
        writes,
        flushes,
        trims,
        read_bytes,
        write_bytes,
        read_hits,
        partial_writes,
        partial_sectors,
        write_passes,
        rewrite_passes,
        seeks,
        seek_ns,
        rotation_ns,
        transfer_ns,
        busy_ns,
        queue_depth_max: _,
        latency_ns,
        erases,
        trim_bytes,
        read_ns,
        write_ns,
        flush_ns,
        trim_ns,
        queue_length: _,
        occupied_from_ns,
        occupied_ns,
    } = *statistics;
    [
        reads,
        writes,
        flushes,
        trims,
        read_bytes,
        write_bytes,
        read_hits,
        partial_writes,
        partial_sectors,
        write_passes,
        rewrite_passes,
        seeks,
        seek_ns,
        rotation_ns,
        transfer_ns,
        busy_ns,
        latency_ns,
        erases,
        trim_bytes,
        read_ns,
        write_ns,
        flush_ns,
        trim_ns,
        occupied_from_ns,
        occupied_ns,
    ]
    .iter()
    .all(|n| *n < TIME_MAX << 2)
}
