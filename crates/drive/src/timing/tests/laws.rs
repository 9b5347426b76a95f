//! Laws that compare runs with one another, or with a formula; and the trials that look for a broken one.

use std::sync::Arc;

use super::super::mutant::Mutant;
use super::super::{Command, CommandKind, Event, Timing};
use super::trial::{Verdict, command, drive, hold, run};
use crate::profile::Profile;
use rt::splitmix64;

/// Commands of all kinds: crowded into a few places, or far apart; all aligned, or not.
pub(super) fn mixture(profile: &Profile, seed: u64, count: usize) -> Vec<(u64, Command)> {
    let mut random = seed;
    let mut below = move |n: u64| splitmix64(&mut random) % n;
    let total = profile.host_sectors();
    let aligned = below(3) == 0;
    let crowded = below(2) == 0;
    let spread = 1 + below(4) * 700;
    let hurry = below(3);
    let writes = 1 + below(9);
    let mut next = 0;
    let mut list = Vec::new();
    for _ in 0..count {
        let step = if aligned { 8 } else { 1 };
        let sectors = (1 + below(40)) * step;
        let place = match below(4) {
            0 => next,
            1 if !crowded => below(total),
            n => n * (total / 5) + below(spread * 8),
        };
        let lba = (place / step * step).min(total - sectors);
        next = lba + sectors;
        let kind = match below(40) {
            0 => CommandKind::Flush,
            1 => CommandKind::Trim,
            n if n % 10 < writes => CommandKind::Write,
            _ => CommandKind::Read,
        };
        let gap = match hurry {
            0 => 0,
            1 => below(200_000),
            _ => below(20_000_000),
        };
        let mut command = command(kind, lba, sectors as u32);
        command.fua = below(12) == 0;
        list.push((gap, command));
    }
    list
}

/// Keeps `depth` commands in the drive until all are done; returns when that is.
pub(super) fn closed_loop(timing: &mut Timing, depth: usize, commands: &[Command]) -> u64 {
    let (mut now, mut next, mut waiting) = (0, 0, 0);
    let mut events = Vec::new();
    while next < commands.len() || waiting > 0 {
        while next < commands.len() && waiting < depth {
            let mut command = commands[next];
            command.tag = next as u64;
            timing.submit(now, command);
            next += 1;
            waiting += 1;
        }
        now = timing.next_done_at().expect("a command waits");
        events.clear();
        timing.advance(now, &mut events);
        let done = |e: &&Event| matches!(e, Event::Done { .. });
        waiting -= events.iter().filter(done).count();
    }
    now
}

fn random_reads(profile: &Profile, count: usize, seed: u64) -> Vec<Command> {
    let mut random = seed;
    let places = profile.host_sectors() / 8 - 1;
    (0..count)
        .map(|_| {
            let lba = splitmix64(&mut random) % places * 8;
            command(CommandKind::Read, lba, 8)
        })
        .collect()
}

/// Random mixes break no law of a single run.
pub(super) fn mixtures_obey(
    profile: &Arc<Profile>,
    mutant: Option<Mutant>,
    seeds: std::ops::Range<u64>,
) -> Verdict {
    for seed in seeds {
        let list = mixture(profile, seed, 120);
        let outcome = run(profile, seed, mutant, &list);
        let verdict = outcome.check();
        verdict.map_err(|e| format!("{}, seed {seed}: {e}", profile.name))?;
    }
    Ok(())
}

/// Deeper queues are never slower.
pub(super) fn depth_helps(profile: &Arc<Profile>, mutant: Option<Mutant>) -> Verdict {
    let reads = random_reads(profile, 600, 7);
    let mut before = u64::MAX;
    for depth in [1, 2, 4, 8, 16, 32] {
        let ns = closed_loop(&mut drive(profile, 1, mutant), depth, &reads);
        let name = &profile.name;
        hold!(
            ns <= before,
            "{name}: depth {depth}: {ns} ns after {before}"
        );
        before = ns;
    }
    Ok(())
}

/// Random reads, one at a time, take a seek and half a revolution.
pub(super) fn random_reads_take_a_seek_and_half_a_turn(
    profile: &Arc<Profile>,
    mutant: Option<Mutant>,
) -> Verdict {
    let disk = profile.disk.as_ref().ok_or("a disk is needed")?;
    let count = 4000;
    let reads = random_reads(profile, count, 3);
    let ns = closed_loop(&mut drive(profile, 1, mutant), 1, &reads);
    let ms = ns as f64 / 1e6 / count as f64;
    let expected = disk.seek_avg_ms + 30_000.0 / disk.rpm;
    let error = (ms / expected - 1.0).abs();
    let name = &profile.name;
    hold!(error <= 0.05, "{name}: {ms} ms instead of {expected}");
    Ok(())
}

/// Of the writes that wait in the cache the head takes the one that comes round soonest, as of the reads in a queue:
/// random writes within a gigabyte take little longer than reads with a queue as deep as the writes to choose from.
pub(super) fn cached_writes_are_chosen_from_as_queued_reads_are(
    profile: &Arc<Profile>,
    mutant: Option<Mutant>,
) -> Verdict {
    let disk = profile.disk.as_ref().ok_or("a disk is needed")?;
    let aligned = 8 - profile.medium.lba_shift;
    let mut random = 11;
    let mut within_a_gigabyte = |kind: CommandKind, count: u64| -> Vec<Command> {
        let mut one = |_| command(kind, aligned + splitmix64(&mut random) % (1 << 18) * 8, 8);
        (0..count).map(&mut one).collect()
    };
    let cache = &profile.cache;
    let mut queued = (**profile).clone();
    queued.identify.queue_depth = cache.elevator_window;
    queued.bridge = None;
    let (count, held) = (4000, u64::from(cache.write_segments));
    let reads = within_a_gigabyte(CommandKind::Read, count);
    let mut timing = drive(&Arc::new(queued), 1, mutant);
    let read_ns = closed_loop(&mut timing, cache.elevator_window as usize, &reads) / count;
    let writes = within_a_gigabyte(CommandKind::Write, count + held);
    let write_ns = closed_loop(&mut drive(profile, 1, mutant), 1, &writes) / count;
    let ms = |ns: u64| ns as f64 / 1e6;
    let expected = ms(read_ns) + cache.destage_turnaround_ms + disk.write_settle_ms;
    let (got, name) = (ms(write_ns), &profile.name);
    hold!(
        got <= 1.15 * expected,
        "{name}: {got} ms for a write, {expected} expected"
    );
    Ok(())
}

/// What a stream leaves in the read cache is answered from there, as much as there is room for; what is read at random
/// meanwhile takes none of that room, and is not answered from there when it is read again.
pub(super) fn streams_stay_in_the_read_cache(
    profile: &Arc<Profile>,
    mutant: Option<Mutant>,
) -> Verdict {
    let cache = &profile.cache;
    let kept = u64::from(cache.read_segments) * u64::from(cache.read_segment_kib) * 2;
    let aligned = 8 - profile.medium.lba_shift;
    let all = 2 * kept;
    let stream = (0..all / 256).map(|n| command(CommandKind::Read, aligned + n * 256, 256));
    let mut random = 5;
    let count = 20 * u64::from(cache.read_segments);
    let at_random: Vec<Command> = (0..count)
        .map(|_| splitmix64(&mut random) % (all / 8) * 8)
        .map(|at| command(CommandKind::Read, aligned + at, 8))
        .collect();
    let mut timing = drive(profile, 1, mutant);
    closed_loop(&mut timing, 1, &stream.collect::<Vec<_>>());
    for time in ["first", "second"] {
        let before = timing.statistics().read_hits;
        closed_loop(&mut timing, 1, &at_random);
        let part = (timing.statistics().read_hits - before) as f64 / count as f64;
        let name = &profile.name;
        hold!(
            (part - 0.5).abs() < 0.08,
            "{name}, {time} time: {part} of the reads come from a cache that holds half"
        );
    }
    Ok(())
}

/// A stream of writes into an empty cache is done when all of it is on the medium but two segments.
pub(super) fn streams_do_not_run_ahead(profile: &Arc<Profile>, mutant: Option<Mutant>) -> Verdict {
    let disk = profile.disk.as_ref().ok_or("a disk is needed")?;
    let aligned = 8 - profile.medium.lba_shift;
    let bytes = u64::from(profile.cache.write_cache_kib) << 10;
    let ahead = u64::from(profile.cache.write_segment_kib) << 11;
    let stream = (0..bytes >> 17).map(|n| command(CommandKind::Write, aligned + n * 256, 256));
    let ns = closed_loop(
        &mut drive(profile, 1, mutant),
        4,
        &stream.collect::<Vec<_>>(),
    );
    let least = (bytes - ahead) as f64 * 1e3 / disk.media_rate_outer_mb_s;
    let name = &profile.name;
    hold!(
        ns as f64 >= least,
        "{name}: {bytes} bytes are done in {ns} ns"
    );
    Ok(())
}

/// A long stream passes at nearly the rate of its zone, and not above it.
pub(super) fn streams_pass_at_the_rate_of_the_zone(
    profile: &Arc<Profile>,
    mutant: Option<Mutant>,
) -> Verdict {
    let disk = profile.disk.as_ref().ok_or("a disk is needed")?;
    let bytes = 1000u64 << 20;
    let turn = 60_000.0 / disk.rpm;
    let rate = disk.media_rate_outer_mb_s;
    let least = 0.93 * rate * turn / (turn + disk.track_skew_ms);
    let aligned = 8 - profile.medium.lba_shift;
    for kind in [CommandKind::Read, CommandKind::Write] {
        for (depth, sectors) in [
            (1, 256),
            (4, 256),
            (32, 256),
            (1, 2048),
            (1, 4096),
            (4, 16384),
        ] {
            let one = |n: u64| command(kind, aligned + n * u64::from(sectors), sectors);
            let count = bytes / 512 / u64::from(sectors);
            let mut commands: Vec<Command> = (0..count).map(one).collect();
            commands.push(command(CommandKind::Flush, 0, 0));
            let mut timing = drive(profile, 1, mutant);
            let ns = closed_loop(&mut timing, depth, &commands);
            let got = bytes as f64 * 1e3 / ns as f64;
            let name = &profile.name;
            hold!(
                got <= rate,
                "{name}: {kind:?} of {sectors} x{depth}: {got} MB/s above {rate}"
            );
            hold!(
                got >= least,
                "{name}: {kind:?} of {sectors} x{depth}: {got} MB/s below {least}"
            );
        }
    }
    Ok(())
}

/// The same submissions give the same events: from the same seed, in however many steps, and over a kept state.
pub(super) fn runs_repeat(profile: &Arc<Profile>, mutant: Option<Mutant>, seed: u64) -> Verdict {
    let list = mixture(profile, seed, 150);
    let (mut once, mut again, mut kept) = (
        drive(profile, seed, mutant),
        drive(profile, seed, mutant),
        drive(profile, seed, mutant),
    );
    let (mut first, mut second, mut third) = (Vec::new(), Vec::new(), Vec::new());
    let mut now = 0;
    for (n, (gap, command)) in list.iter().enumerate() {
        for step in 1..5 {
            again.advance(now + gap * step / 5, &mut second);
        }
        now += gap;
        let mut command = *command;
        command.tag = n as u64;
        once.submit(now, command);
        again.submit(now, command);
        kept.submit(now, command);
        if n % 16 == 0 {
            let text = serde_json::to_string(&kept.state()).map_err(|e| e.to_string())?;
            let state = serde_json::from_str(&text).map_err(|e| e.to_string())?;
            kept = Timing::restore(profile.clone(), state).map_err(|e| e.to_string())?;
            kept.plant(mutant);
        }
    }
    let end = now + 100_000_000_000;
    once.advance(end, &mut first);
    kept.advance(end, &mut third);
    while let Some(at) = again.next_event_at() {
        again.advance(at, &mut second);
    }
    let name = &profile.name;
    hold!(first == second, "{name}, seed {seed}: steps matter");
    hold!(first == third, "{name}, seed {seed}: a kept state matters");
    Ok(())
}

/// A far read is not starved by many near ones, nor a far write by many reads.
pub(super) fn nobody_starves(profile: &Arc<Profile>, mutant: Option<Mutant>) -> Verdict {
    let disk = profile.disk.as_ref().ok_or("a disk is needed")?;
    let mut timing = drive(profile, 1, mutant);
    let far = profile.host_sectors() - 4096;
    let mut events = Vec::new();
    let mut far_read = command(CommandKind::Read, far, 8);
    far_read.tag = u64::MAX;
    let limit = disk.age_limit_ms + 2.0 * disk.seek_max_ms + 200.0;
    let mut random = 1;
    let (mut now, mut next, mut waiting) = (0, 0, 0);
    while (now as f64) < 2.0 * limit * 1e6 {
        while waiting < 16 {
            let lba = splitmix64(&mut random) % 4096 * 512;
            let mut near = command(CommandKind::Read, lba, 8);
            near.tag = next;
            timing.submit(now, near);
            next += 1;
            waiting += 1;
            if next == 16 {
                timing.submit(now, far_read);
            }
        }
        now = timing.next_done_at().expect("a command waits");
        events.clear();
        timing.advance(now, &mut events);
        for event in &events {
            if let Event::Done { tag, .. } = event {
                if *tag == u64::MAX {
                    return Ok(());
                }
                waiting -= 1;
            }
        }
    }
    Err(format!("{}: a far read waits for ever", profile.name))
}
