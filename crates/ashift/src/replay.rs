//! `ashift replay`: the commands of a block trace, issued to a drive, a partition, or a device of this host.

use std::path::Path;
use std::sync::Arc;

use admin::getopt::Parsed;
use base::{Context, Error, Result};
use drive::Emulated;
use drive::timing::Statistics;
use geom::Provider;
use measure::replay::{self, Kind, Pace, Replayed, Traced};
use serde_json::{Map, Value, json};

use crate::caller;
use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::gpart::device::{self, CONSENT};
use crate::phybs::open;
use crate::say::progress;

/// Commands in flight if no number is given: what SATA drives queue.
const DEPTH: usize = 32;

/// The most that are taken: each holds a buffer.
const DEPTH_MAX: usize = 1024;

pub(crate) const REPLAY: Command<Entry> = Command::parsed(
    "replay",
    "issue the commands of a block trace to a drive, and time them",
    "\
usage: ashift replay [-afj] [-o FILE] [-q DEPTH] [--yes-write-to-device] TRACE DEVICE

Issues the reads, writes, trims and flushes of a trace to a provider of the machine (ada0, gpt/d1), or to
a device or file of this host, and shows how long they took, and which writes begin or end within a
physical sector. Zeros are written: what is on the device is lost.

TRACE is a log of fio (`--write_iolog`, versions 2 and 3), the text of `blkparse`, or what `ashift machine
mount --record` has written.

  -a        as fast as commands complete; otherwise at the trace's times
  -q DEPTH  how many may be in flight (32)
  -o FILE   only what the trace has for this file or device (as `8,0` in blkparse's text)
  -f        show a histogram, too
  -j        print JSON
  --yes-write-to-device  write to a device or file of this host
",
    ("afjo:q:", 2),
    run,
)
.long(&[("yes-write-to-device", admin::getopt::Flag::Long("yes-write-to-device"))]);

fn run(parsed: &Parsed) -> Outcome {
    let [file, device] = &parsed.operands[..] else {
        return Err(Fail::Usage(
            "one trace and one device are needed".to_owned(),
        ));
    };
    let depth = parsed
        .value('q')
        .map_or(Some(DEPTH), |text| text.parse().ok());
    let Some(depth) = depth.filter(|depth| (1..=DEPTH_MAX).contains(depth)) else {
        return Err(Fail::Usage(format!(
            "-q needs a number from 1 to {DEPTH_MAX}"
        )));
    };
    let pace = Pace {
        keeps_time: !parsed.has('a'),
        depth,
    };
    let text = std::fs::read(file)
        .map_err(Error::from)
        .within(|| file.clone())?;
    let trace = replay::parse(&String::from_utf8_lossy(&text), parsed.value('o'))
        .within(|| file.clone())?;
    let seen = issue(&trace, device, pace, parsed.has_long("yes-write-to-device"))
        .within(|| file.clone())?;
    match parsed.has('j') {
        true => print!("{}", document((file, device), pace, &seen)),
        false => show((file, device), pace, &seen, parsed.has('f')),
    }
    Ok(())
}

/// What was measured.
struct Seen {
    replayed: Replayed,
    /// The physical sector that the device reports.
    stripesize: u32,
    /// What the emulated drive below counted meanwhile.
    drive: Option<(Statistics, u32)>,
}

fn issue(trace: &[Traced], name: &str, pace: Pace, consents: bool) -> Result<Seen> {
    let world = crate::world::current()?;
    let writes = trace
        .iter()
        .any(|one| matches!(one.kind, Kind::Write | Kind::Trim));
    let is_file = !world.is_machine() && Path::new(name).is_file();
    if writes && is_file && !consents {
        let text = format!("{name} would be overwritten: say {CONSENT} for that");
        return Err(Error::invalid(text));
    }
    let _held = match writes {
        true => Some(device::hold(&world, name, consents)?),
        false => None,
    };
    let provider = open(&world, name, writes, pace.depth)?;
    let lowest = world.lowest(name);
    let drive: Option<Arc<Emulated>> = world
        .drives()
        .into_iter()
        .find(|drive| Some(drive.name()) == lowest.as_deref());
    let before = drive.as_ref().map(|drive| drive.statistics());
    let bar = progress(Some(trace.len() as u64), false);
    let outcome = replay::run(&*provider, trace, pace, |done| {
        caller::check();
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let replayed = outcome?;
    let drive = drive.zip(before).map(|(drive, before)| {
        let now = drive.statistics();
        let count = Statistics {
            partial_writes: now.partial_writes - before.partial_writes,
            partial_sectors: now.partial_sectors - before.partial_sectors,
            ..now
        };
        (count, drive.profile().medium.physical_sector_bytes)
    });
    Ok(Seen {
        replayed,
        stripesize: provider.stripesize(),
        drive,
    })
}

fn pace_text(pace: Pace) -> String {
    let depth = pace.depth;
    match pace.keeps_time {
        true => format!("at the trace's times, at most {depth} in flight"),
        false => format!("as fast as they complete, {depth} in flight"),
    }
}

fn show((file, device): (&str, &str), pace: Pace, seen: &Seen, has_histogram: bool) {
    let replayed = &seen.replayed;
    let seconds = replayed.elapsed_ns as f64 / 1e9;
    println!(
        "{device}: {} commands of {file} in {seconds:.3} s ({})",
        replayed.count(),
        pace_text(pace)
    );
    if pace.keeps_time && replayed.lag_ns > 0 {
        println!(
            "at most {:.3} s behind the trace",
            replayed.lag_ns as f64 / 1e9
        );
    }
    print!("\n{}", replayed.table());
    if has_histogram {
        print!("\n{}", replayed.histogram());
    }
    let writes = replayed
        .latencies
        .get(&Kind::Write)
        .map_or(0, |one| one.each_ns.len());
    println!(
        "\n{} of {writes} writes begin or end within a physical sector of {} bytes, as reported",
        replayed.partial_writes, seen.stripesize
    );
    if let Some((counts, bytes)) = &seen.drive {
        println!(
            "{} of those that reached the drive do so in its true sectors of {bytes} bytes; {} sectors were read to be written again",
            counts.partial_writes, counts.partial_sectors
        );
    }
}

fn document((file, device): (&str, &str), pace: Pace, seen: &Seen) -> String {
    let replayed = &seen.replayed;
    let seconds = (replayed.elapsed_ns as f64 / 1e9).max(1e-9);
    let mut kinds = Map::new();
    for (kind, one) in &replayed.latencies {
        let percentiles: Map<String, Value> = one
            .percentiles_ns()
            .into_iter()
            .map(|(name, ns)| (name.to_owned(), ns.into()))
            .collect();
        let below: Vec<Value> = one
            .histogram()
            .into_iter()
            .map(|(bit, count)| json!({ "below_ns": 1_u128 << bit, "count": count }))
            .collect();
        kinds.insert(
            kind.name().to_owned(),
            json!({
                "count": one.each_ns.len(), "bytes": one.bytes, "iops": one.each_ns.len() as f64 / seconds,
                "bytes_per_s": one.bytes as f64 / seconds, "mean_ns": one.mean_ns(),
                "percentiles_ns": percentiles, "histogram": below,
            }),
        );
    }
    let mut body = Map::new();
    body.insert("trace".to_owned(), file.into());
    body.insert("device".to_owned(), device.into());
    body.insert("keeps_time".to_owned(), pace.keeps_time.into());
    body.insert("depth".to_owned(), pace.depth.into());
    body.insert("elapsed_ns".to_owned(), replayed.elapsed_ns.into());
    body.insert("behind_ns".to_owned(), replayed.lag_ns.into());
    body.insert("commands".to_owned(), kinds.into());
    body.insert(
        "partial".to_owned(),
        json!({
            "reported_sector_bytes": seen.stripesize,
            "writes": replayed.partial_writes,
            "drive": seen.drive.as_ref().map(|(counts, bytes)| json!({
                "true_sector_bytes": bytes, "writes": counts.partial_writes, "sectors_rewritten": counts.partial_sectors,
            })),
        }),
    );
    admin::listing::json_document("ashift replay", body)
}
