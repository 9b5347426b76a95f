//! `phybs`: how long small writes take, by size and offset.

use std::path::Path;
use std::sync::Arc;

use admin::getopt::{Flag, OptSpec, Parsed};
use base::Result;
use geom::Provider;
use geom::disk::OpenMode;
use machine::World;
use measure::phybs::{Options, Pass, Progress, Row, header, parse_size};
use serde_json::json;

use crate::caller::{Stream, caller};
use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::gpart::device;

pub(crate) const PHYBS: Command<Entry> = Command::words(
    "phybs",
    "find the physical sector by writing",
    "\
usage: phybs [-rsw] [-l min] [-h max] [-t total] [-j] [--published-tps] [--yes-write-to-device] device

Finds a drive's physical sector: blocks of min to max bytes are read or written one at a time, each
four times its size behind the one before, at every offset that is a power of two below the size.
Where a block ends inside of a physical sector, writing it takes longer.

  -r  read; done if -w is not given
  -w  write zeros: what is on the device is lost
  -s  flush after every write
  -l  least block; default two sectors
  -h  largest block; default eight times the least
  -t  what the blocks of each pass add up to; default 128m. A pass sweeps four times that.
  -j  print JSON
  --published-tps        operations per second as the original of 2010 printed them: wrong
  --yes-write-to-device  write to a block device of this host

Sizes are powers of two, perhaps with k, m or g. The device is a provider of the machine (ada0), or
a device or file of this host, past its cache where it lets us.
",
    run,
)
.tool()
.misused_is_1();

const OPTIONS: OptSpec = OptSpec {
    short: "h:jl:rst:w",
    long: &[
        ("published-tps", Flag::Long("published-tps")),
        ("yes-write-to-device", Flag::Long("yes-write-to-device")),
        ("help", Flag::Long("help")),
    ],
};

fn run(args: &[String]) -> Outcome {
    if args.is_empty() {
        // As the original does: the usage on stdout, but a failure.
        PHYBS.act(&["-h".to_owned()])?;
        return Fail::exit(1);
    }
    let usage = |text: String| Fail::Usage(text);
    let parsed = admin::getopt::parse(&OPTIONS, args);
    if args == ["-h"] || matches!(&parsed, Ok(parsed) if parsed.has_long("help")) {
        return Err(Fail::Help);
    }
    let parsed = parsed.map_err(|e| usage(e.to_string()))?;
    let [device] = &parsed.operands[..] else {
        return Err(usage("one device is needed".to_owned()));
    };
    let options = options(&parsed).map_err(|e| usage(e.to_string()))?;
    Ok(measure(device, &options, &parsed)?)
}

fn options(parsed: &Parsed) -> Result<Options> {
    let size = |letter| {
        parsed
            .value(letter)
            .map(|text| parse_size(letter, text))
            .transpose()
    };
    Ok(Options {
        read: parsed.has('r') || !parsed.has('w'),
        write: parsed.has('w'),
        sync: parsed.has('s'),
        min_bytes: size('l')?,
        max_bytes: size('h')?,
        total_bytes: size('t')?,
    })
}

fn measure(device: &str, options: &Options, parsed: &Parsed) -> Result<()> {
    let world = crate::world::current()?;
    let consents = parsed.has_long("yes-write-to-device");
    let _held = match options.write {
        true => Some(device::hold(&world, device, consents)?),
        false => None,
    };
    let provider = open(&world, device, options.write, 1)?;
    let published = parsed.has_long("published-tps");
    let rows = if parsed.has('j') {
        measure::phybs::run(&*provider, options, |_| {})?
    } else {
        let mut table = Table::begin(published);
        measure::phybs::run(&*provider, options, |progress| table.note(progress))?
    };
    if parsed.has('j') {
        let rows: Vec<_> = rows.iter().map(as_json).collect();
        let report = json!({ "device": device, "passes": rows });
        print(&format!("{report:#}\n"));
    }
    Ok(())
}

/// Opens a provider by name; files and devices of this host bypassing the page cache, `depth` commands at a
/// time.
pub(crate) fn open(
    world: &World,
    name: &str,
    writes: bool,
    depth: usize,
) -> Result<Arc<dyn Provider>> {
    if !world.is_machine() && Path::new(name).exists() {
        return Ok(measure::direct::open(Path::new(name), writes, depth)?);
    }
    let mode = if writes {
        OpenMode::ReadWrite
    } else {
        OpenMode::ReadOnly
    };
    world.open(name, mode)
}

fn as_json(row: &Row) -> serde_json::Value {
    json!({
        "count": row.pass.count,
        "size": row.pass.size_bytes,
        "offset": row.pass.offset_bytes,
        "step": row.pass.step_bytes,
        "usec": row.elapsed_us,
        "msec": row.msec(),
        "tps": row.tps(),
        "published_tps": row.published_tps(),
        "kbps": row.kbps(),
    })
}

/// Prints and flushes.
pub(crate) fn print(text: &str) {
    print!("{text}");
    caller().flush(Stream::Out);
}

/// Prints the rows as they come; on a terminal with the progress of the pass.
struct Table {
    published_tps: bool,
    is_terminal: bool,
    percent: Option<u64>,
}

impl Table {
    fn begin(published_tps: bool) -> Table {
        print(&format!("{}\n", header()));
        Table {
            published_tps,
            is_terminal: caller().is_terminal(Stream::Out),
            percent: None,
        }
    }

    fn note(&mut self, progress: Progress) {
        match progress {
            Progress::Size => print("\n"),
            Progress::Begun(pass) => {
                self.percent = None;
                print(&pass.text());
            }
            Progress::At(pass, done) => self.show_percent(pass, done),
            Progress::Done(row) => print(&format!("{}\n", row.text(self.published_tps))),
        }
    }

    fn show_percent(&mut self, pass: Pass, done: u32) {
        let percent = u64::from(done) * 100 / u64::from(pass.count.max(1));
        if self.is_terminal && self.percent != Some(percent) {
            self.percent = Some(percent);
            print(&format!("{percent:9}%{}", "\u{8}".repeat(10)));
        }
    }
}
