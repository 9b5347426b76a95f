//! `ashift replay`: the commands of a block trace, issued to a drive, a partition, a RAID-5 of them, or a device of
//! this host.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use admin::getopt::Parsed;
use base::{Context, Error, Result};
use drive::Emulated;
use drive::timing::Statistics;
use flate2::read::MultiGzDecoder;
use geom::Provider;
use machine::World;
use measure::phybs::parse_size;
use measure::replay::{self, Kind, Pace, Raid5, Replayed, Traced};
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

/// The longest text of a trace: what is packed may be far longer than it looks.
const TRACE_MAX: u64 = 4 << 30;

/// What the text of a trace cannot begin with, and a packed one does.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

pub(crate) const REPLAY: Command<Entry> = Command::parsed(
    "replay",
    "issue the commands of a block trace to a drive, and time them",
    "\
usage: ashift replay [-afj] [-o FILE] [-q DEPTH] [--yes-write-to-device] TRACE DEVICE
       ashift replay -r CHUNK [-afj] [-o FILE] [-q DEPTH] [--yes-write-to-device] TRACE DEVICE DEVICE DEVICE…

Issues the reads, writes, trims and flushes of a trace to a provider of the machine (ada0, gpt/d1), or to
a device or file of this host, and shows how long they took, and which writes begin or end within a
physical sector. Zeros are written: what is on the device is lost.

TRACE is a log of fio (`--write_iolog`, versions 2 and 3), the text of `blkparse`, or what `ashift machine
mount --record` has written; it may be packed by gzip.

  -a        as fast as commands complete; otherwise at the trace's times
  -q DEPTH  how many may be in flight (32)
  -o FILE   only what the trace has for this file or device (as `8,0` in blkparse's text)
  -r CHUNK  the devices are the disks of a RAID-5, as Linux's md has it with chunks of this size (512K)
  -f        show a histogram, too
  -j        print JSON
  --yes-write-to-device  write to a device or file of this host
",
    ("afjo:q:r:", 2),
    run,
)
.long(&[("yes-write-to-device", admin::getopt::Flag::Long("yes-write-to-device"))]);

fn run(parsed: &Parsed) -> Outcome {
    let Some((file, devices)) = parsed.operands.split_first() else {
        return Err(Fail::Usage("a trace and a device are needed".to_owned()));
    };
    let chunk = parsed.value('r').map(|text| parse_size('r', text));
    let chunk_bytes = chunk.transpose().map_err(|e| Fail::Usage(e.to_string()))?;
    if chunk_bytes.is_none() && devices.len() != 1 {
        let text = "one trace and one device are needed; several are for a RAID-5 (-r)";
        return Err(Fail::Usage(text.to_owned()));
    }
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
    let text = read(Path::new(file)).within(|| file.clone())?;
    let trace = replay::parse(&text, parsed.value('o')).within(|| file.clone())?;
    let on = On {
        devices,
        chunk_bytes,
        consents: parsed.has_long("yes-write-to-device"),
    };
    let seen = on.issue(&trace, pace).within(|| file.clone())?;
    let name = on.name();
    match parsed.has('j') {
        true => print!("{}", document((file, &name), pace, &seen)),
        false => show((file, &name), pace, &seen, parsed.has('f')),
    }
    Ok(())
}

/// The text of a trace, unpacked.
fn read(file: &Path) -> Result<String> {
    let bytes = std::fs::read(file)?;
    if !bytes.starts_with(&GZIP_MAGIC) {
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    let mut text = Vec::new();
    let read = MultiGzDecoder::new(&bytes[..])
        .take(TRACE_MAX)
        .read_to_end(&mut text)?;
    if read as u64 == TRACE_MAX {
        return Err(Error::invalid("more than 4 GiB of text are packed in it"));
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// What is replayed on.
struct On<'w> {
    devices: &'w [String],
    /// They are the disks of a RAID-5 with chunks of this size.
    chunk_bytes: Option<u64>,
    consents: bool,
}

/// What was measured.
struct Seen {
    replayed: Replayed,
    /// The physical sector that the device reports.
    stripesize: u32,
    /// What the emulated drives below counted meanwhile.
    drives: Option<Counts>,
}

/// What drives counted, and the largest of their physical sectors, in bytes.
struct Counts {
    partial_writes: u64,
    partial_sectors: u64,
    sector_bytes: u32,
}

impl Counts {
    /// All that these drives have counted; `None` without any.
    fn of(drives: &[Arc<Emulated>]) -> Option<Counts> {
        let statistics: Vec<Statistics> = drives.iter().map(|drive| drive.statistics()).collect();
        let sectors = drives
            .iter()
            .map(|drive| drive.profile().medium.physical_sector_bytes);
        Some(Counts {
            partial_writes: statistics.iter().map(|one| one.partial_writes).sum(),
            partial_sectors: statistics.iter().map(|one| one.partial_sectors).sum(),
            sector_bytes: sectors.max()?,
        })
    }
}

impl On<'_> {
    fn name(&self) -> String {
        match self.chunk_bytes {
            Some(_) => format!("raid5({})", self.devices.join(",")),
            None => self.devices.join(","),
        }
    }

    fn issue(&self, trace: &[Traced], pace: Pace) -> Result<Seen> {
        let world = crate::world::current()?;
        let writes = trace
            .iter()
            .any(|one| matches!(one.kind, Kind::Write | Kind::Trim));
        let mut held = Vec::new();
        for name in self.devices.iter().filter(|_| writes) {
            if !world.is_machine() && Path::new(name).is_file() && !self.consents {
                let text = format!("{name} would be overwritten: say {CONSENT} for that");
                return Err(Error::invalid(text));
            }
            held.push(device::hold(&world, name, self.consents)?);
        }
        let provider = self.provider(&world, writes, pace.depth)?;
        let drives = self.drives(&world);
        let before = Counts::of(&drives);
        let bar = progress(Some(trace.len() as u64), false);
        let outcome = replay::run(&*provider, trace, pace, |done| {
            caller::check();
            bar.set_position(done as u64);
        });
        bar.finish_and_clear();
        let replayed = outcome?;
        let counts = Counts::of(&drives).zip(before);
        Ok(Seen {
            replayed,
            stripesize: provider.stripesize(),
            drives: counts.map(|(now, before)| Counts {
                partial_writes: now.partial_writes - before.partial_writes,
                partial_sectors: now.partial_sectors - before.partial_sectors,
                ..now
            }),
        })
    }

    fn provider(&self, world: &World, writes: bool, depth: usize) -> Result<Arc<dyn Provider>> {
        let open = |name: &String| open(world, name, writes, depth);
        match (self.chunk_bytes, self.devices) {
            (None, [only]) => open(only),
            (chunk, all) => {
                let members = all.iter().map(open).collect::<Result<_>>()?;
                Ok(Arc::new(Raid5::new(members, chunk.unwrap_or(0))?))
            }
        }
    }

    /// The emulated drives below, each once.
    fn drives(&self, world: &World) -> Vec<Arc<Emulated>> {
        let lowest: Vec<Option<String>> =
            self.devices.iter().map(|name| world.lowest(name)).collect();
        let mut drives = world.drives();
        drives.retain(|drive| lowest.iter().flatten().any(|lowest| drive.name() == lowest));
        drives
    }
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
    let all = replayed.all();
    println!(
        "a command took {:.3} ms on average, {:.3} ms at most",
        all.mean_ns() as f64 / 1e6,
        all.percentile_ns(1.0) as f64 / 1e6
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
    if let Some(counts) = &seen.drives {
        println!(
            "{} of those that reached the drive do so in its true sectors of {} bytes; {} sectors were read to be written again",
            counts.partial_writes, counts.sector_bytes, counts.partial_sectors
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
    let all = replayed.all();
    body.insert("mean_ns".to_owned(), all.mean_ns().into());
    body.insert("max_ns".to_owned(), all.percentile_ns(1.0).into());
    body.insert("commands".to_owned(), kinds.into());
    body.insert(
        "partial".to_owned(),
        json!({
            "reported_sector_bytes": seen.stripesize,
            "writes": replayed.partial_writes,
            "drive": seen.drives.as_ref().map(|counts| json!({
                "true_sector_bytes": counts.sector_bytes, "writes": counts.partial_writes,
                "sectors_rewritten": counts.partial_sectors,
            })),
        }),
    );
    admin::listing::json_document("ashift replay", body)
}
