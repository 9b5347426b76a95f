//! `diskmark`: sequential and random speed of a drive or folder.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use admin::number::parse_number;
use base::{BlockBuf, Context, Error, Result};
use geom::Provider;
use indicatif::ProgressBar;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use machine::{Hold, World};
use measure::diskmark::{DEFAULT, NVME, Options, Progress, Report, Score};
use serde_json::json;

use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::gpart::device;
use crate::say::progress;

pub(crate) const DISKMARK: Command<Entry> = Command::explained(
    "diskmark",
    "sequential and random speed of a drive or folder",
    "\
usage: ashift diskmark [OPTION]... TARGET

Measures like CrystalDiskMark: a test area is filled, then each test runs once unmeasured and five
times measured, first all reads, then all writes. The best rate and the least latency count.
TARGET is a provider of the machine (ada0), or of this host a folder, in which a file is made and
removed again, an image file, or a device.

  --profile NAME   default: SEQ1M Q8, SEQ1M Q1, RND4K Q32, RND4K Q1; or nvme
  --size SIZE      of the test area; default 1g
  --offset SIZE    where it begins; default 1m, so that labels and tables stay; 0 in a folder
  --runs N         measured runs of each test; default 5
  --seconds N      how long each takes; default 5
  --interval N     pause between two tests; default as --seconds
  --zero           write zeros instead of random bytes
  --read           measure reading only; nothing is written, but to a file that is made
  --write          measure writing only
  -j               print JSON
  --yes-write-to-device
                   write to a block device of this host, or to what is not blank: the test area is lost

In a machine the seconds are simulated. Everything goes past the host's cache, but not past the
drive's.
",
    run,
)
.tool();

const NS_PER_S: f64 = 1e9;
/// Where the test area begins on a provider that may have a table or labels at its ends, in bytes.
const AREA_OFFSET_BYTES: u64 = 1 << 20;
/// Bytes at each end that have to be blank.
const ENDS_BYTES: u64 = 512 << 10;

/// What was asked for.
struct Request {
    options: Options,
    profile: &'static str,
    offset_bytes: Option<u64>,
    is_json: bool,
    consents: bool,
    target: String,
}

fn run(args: &[String]) -> Outcome {
    let request = parse(args).map_err(|error| Fail::Usage(error.to_string()))?;
    Ok(measure(request)?)
}

fn parse(args: &[String]) -> Result<Request> {
    let mut request = Request {
        options: Options::default(),
        profile: "Default",
        offset_bytes: None,
        is_json: false,
        consents: false,
        target: String::new(),
    };
    let (mut interval_ns, mut reads, mut writes, mut targets) = (None, false, false, Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let (name, attached) = match arg.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value)),
            _ => (arg.as_str(), None),
        };
        let mut value = || {
            let value = attached.or_else(|| args.next().map(String::as_str));
            value.ok_or_else(|| Error::invalid(format!("{name} needs a value")))
        };
        let options = &mut request.options;
        match name {
            "--profile" => (request.profile, options.tests) = profile(value()?)?,
            "--size" => options.size_bytes = parse_number(value()?)?,
            "--offset" => request.offset_bytes = Some(parse_number(value()?)?),
            "--runs" => options.runs = runs(value()?)?,
            "--seconds" => options.measure_ns = seconds(value()?, false)?,
            "--interval" => interval_ns = Some(seconds(value()?, true)?),
            "--zero" => options.zeros = true,
            "--read" => reads = true,
            "--write" => writes = true,
            "-j" => request.is_json = true,
            "--yes-write-to-device" => request.consents = true,
            _ if name.starts_with('-') => {
                return Err(Error::invalid(format!("invalid option '{name}'")));
            }
            _ => targets.push(arg.clone()),
        }
    }
    let options = &mut request.options;
    options.interval_ns = interval_ns.unwrap_or(options.measure_ns);
    (options.reads, options.writes) = (reads || !writes, writes || !reads);
    let [target] = &targets[..] else {
        return Err(Error::invalid("one target is needed"));
    };
    request.target.clone_from(target);
    Ok(request)
}

fn profile(name: &str) -> Result<(&'static str, Vec<measure::diskmark::Test>)> {
    match name.to_ascii_lowercase().as_str() {
        "default" => Ok(("Default", DEFAULT.to_vec())),
        "nvme" => Ok(("Default [NVMe]", NVME.to_vec())),
        _ => Err(Error::invalid(format!(
            "no profile '{name}': default or nvme"
        ))),
    }
}

fn runs(text: &str) -> Result<u32> {
    let runs = text.parse().ok().filter(|runs| (1..=100).contains(runs));
    runs.ok_or_else(|| Error::invalid(format!("'{text}' is not a number of runs from 1 to 100")))
}

fn seconds(text: &str, may_be_zero: bool) -> Result<u64> {
    let seconds = text
        .parse::<f64>()
        .ok()
        .filter(|s| (0.0..=3600.0).contains(s));
    let ns = seconds.map(|seconds| (seconds * NS_PER_S) as u64);
    let ns = ns.filter(|ns| may_be_zero || *ns >= 1_000_000);
    ns.ok_or_else(|| {
        Error::invalid(format!(
            "'{text}' is not a number of seconds from 0.001 to 3600"
        ))
    })
}

/// A file created for the test; removed on drop.
struct TestFile(PathBuf);

impl TestFile {
    fn make(folder: &Path, size_bytes: u64) -> Result<TestFile> {
        let name = format!("ashift-diskmark-{}.tmp", std::process::id());
        let path = folder.join(name);
        let file = File::create_new(&path).map_err(Error::from);
        let file = file.within(|| path.display().to_string())?;
        let made = TestFile(path);
        file.set_len(size_bytes)?;
        Ok(made)
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        // The file may be gone already, and a failure to remove it cannot be handled.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn measure(mut request: Request) -> Result<()> {
    let world = crate::world::current()?;
    let depths = request
        .options
        .tests
        .iter()
        .map(|test| test.queues * test.threads);
    let depth = depths.max().unwrap_or(1) as usize;
    let folder = Path::new(&request.target);
    let (provider, mode, _held) = if !world.is_machine() && folder.is_dir() {
        request.options.offset_bytes = request.offset_bytes.unwrap_or(0);
        let end = request
            .options
            .offset_bytes
            .checked_add(request.options.size_bytes);
        let end = end.ok_or_else(|| Error::invalid("a test area of that size"))?;
        let file = TestFile::make(folder, end)?;
        let direct = measure::direct::open(&file.0, true, depth)?;
        let provider = Arc::clone(&direct) as Arc<dyn Provider>;
        (provider, Mode::Host(direct), Held::File(file))
    } else {
        open(&world, &mut request, depth)?
    };
    let bar = progress(None, false);
    let outcome = measure::diskmark::run(&*provider, &request.options, |now| tell(&bar, &now));
    bar.finish_and_clear();
    let scores = outcome?;
    print(&world, &request, &*provider, &mode, &scores);
    Ok(())
}

/// How the target was opened.
enum Mode {
    Simulated,
    Host(Arc<measure::direct::Direct>),
    Layer,
}

impl Mode {
    fn text(&self) -> &'static str {
        match self {
            Mode::Simulated => "[simulated time]",
            Mode::Host(direct) if direct.is_direct() => "[O_DIRECT]",
            Mode::Host(_) => "[through the cache of the host: it does not let us past it]",
            Mode::Layer => "[through the cache of the host]",
        }
    }
}

/// Resources held for the duration of the measurement.
enum Held {
    File(#[expect(dead_code, reason = "it is removed when it is dropped")] TestFile),
    Target(#[expect(dead_code, reason = "it is let go when it is dropped")] Option<Hold>),
}

fn open(
    world: &World,
    request: &mut Request,
    depth: usize,
) -> Result<(Arc<dyn Provider>, Mode, Held)> {
    let (target, options) = (&request.target, &mut request.options);
    options.offset_bytes = request.offset_bytes.unwrap_or(AREA_OFFSET_BYTES);
    options.prepares = options.writes;
    let hold = || device::hold(world, target, request.consents);
    let hold = options.writes.then(hold).transpose()?;
    let path = Path::new(target);
    let (provider, mode) = if !world.is_machine() && path.exists() {
        let direct = measure::direct::open(path, options.writes, depth)?;
        (Arc::clone(&direct) as Arc<dyn Provider>, Mode::Host(direct))
    } else {
        let mode = if world.is_machine() {
            Mode::Simulated
        } else {
            Mode::Layer
        };
        (
            crate::phybs::open(world, target, options.writes, depth)?,
            mode,
        )
    };
    if options.writes && !request.consents {
        check_blank(&*provider)?;
    }
    Ok((provider, mode, Held::Target(hold)))
}

/// Refuses a provider with data at its beginning or end: a table, a label, a file system.
fn check_blank(provider: &dyn Provider) -> Result<()> {
    let size = provider.mediasize();
    let len = ENDS_BYTES.min(size);
    let len = len - len % u64::from(provider.sectorsize());
    let mut block = BlockBuf::zeroed(usize::try_from(len).expect("half a megabyte"));
    for offset in [0, size - len] {
        provider.read(offset, &mut block)?;
        if block.iter().any(|byte| *byte != 0) {
            return Err(Error::invalid(format!(
                "{}: not blank: what is in the test area would be lost; say --yes-write-to-device, \
                 or --read",
                provider.name()
            )));
        }
    }
    Ok(())
}

fn tell(bar: &ProgressBar, now: &Progress<'_>) {
    match now {
        Progress::Filled(bytes) => bar.set_message(format!("preparing: {} MiB", bytes >> 20)),
        Progress::Running(test, is_write, n) => {
            let kind = if *is_write { "write" } else { "read" };
            let run = if *n == 0 {
                "unmeasured".to_owned()
            } else {
                format!("run {n}")
            };
            bar.set_message(format!("{kind} {}: {run}", test.name()));
        }
        Progress::Done(score) => bar.println(score.text().trim_end()),
    }
    bar.tick();
}

fn print(world: &World, request: &Request, provider: &dyn Provider, mode: &Mode, scores: &[Score]) {
    if request.is_json {
        let scores: Vec<_> = scores.iter().map(as_json).collect();
        let options = &request.options;
        let report = json!({
            "target": request.target,
            "mediasize": provider.mediasize(),
            "profile": request.profile,
            "size": options.size_bytes,
            "offset": options.offset_bytes,
            "seconds": options.measure_ns as f64 / NS_PER_S,
            "interval": options.interval_ns as f64 / NS_PER_S,
            "runs": options.runs,
            "mode": mode.text(),
            "tests": scores,
        });
        crate::phybs::print(&format!("{report:#}\n"));
        return;
    }
    let report = Report {
        program: &format!("diskmark {} (ashift)", env!("CARGO_PKG_VERSION")),
        profile: request.profile,
        target: &format!("{}: {}", request.target, size(provider, &request.target)),
        mode: mode.text(),
        date: &date(world),
        system: &system(world),
        options: &request.options,
        scores,
    };
    crate::phybs::print(&report.text());
}

/// The target's size; for a folder, how full its file system is.
fn size(provider: &dyn Provider, target: &str) -> String {
    let folder = Some(Path::new(target)).filter(|path| path.is_dir());
    let Some(stat) = folder.and_then(|path| rustix::fs::statvfs(path).ok()) else {
        return format!("{:.1} GB", provider.mediasize() as f64 / 1e9);
    };
    let (total, free) = (stat.f_blocks, stat.f_bfree.min(stat.f_blocks));
    let used = total - free;
    let gib = |blocks: u64| (u128::from(blocks) * u128::from(stat.f_frsize)) >> 30;
    let percent = u128::from(used) * 100 / u128::from(total.max(1));
    format!("{percent}% ({}/{} GiB)", gib(used), gib(total))
}

fn as_json(score: &Score) -> serde_json::Value {
    let runs: Vec<_> = score
        .runs
        .iter()
        .map(|run| {
            json!({
                "commands": run.commands,
                "bytes": run.bytes,
                "mb_per_s": run.bytes_per_s() / 1e6,
                "latency_us": run.latency_us(),
            })
        })
        .collect();
    json!({
        "test": score.test.name(),
        "operation": if score.is_write { "write" } else { "read" },
        "random": score.test.is_random,
        "block": score.test.block_bytes,
        "queues": score.test.queues,
        "threads": score.test.threads,
        "mb_per_s": score.mb_per_s(),
        "iops": score.iops(),
        "latency_us": score.latency_us(),
        "runs": runs,
    })
}

fn date(world: &World) -> String {
    // A machine has no time zone.
    let zone = if world.is_machine() {
        TimeZone::UTC
    } else {
        TimeZone::system()
    };
    let secs = i64::try_from(rt::wall_clock().secs).unwrap_or(i64::MAX);
    let now = Timestamp::from_second(secs).unwrap_or(Timestamp::MAX);
    now.to_zoned(zone).strftime("%Y/%m/%d %H:%M:%S").to_string()
}

fn system(world: &World) -> String {
    if let Some(running) = world.running() {
        return format!("{} (a machine of ashift)", running.hostname());
    }
    let host = rustix::system::uname();
    let part = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    format!(
        "{} {} ({})",
        part(host.sysname()),
        part(host.release()),
        part(host.machine())
    )
}
