//! `phybs`: how long small writes take, by size and offset.

use std::io::{IsTerminal, Write, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use admin::getopt::{Flag, OptSpec, Parsed};
use base::Result;
use geom::Provider;
use geom::disk::OpenMode;
use machine::World;
use measure::phybs::{Options, Pass, Progress, Row, header, parse_size};
use serde_json::json;

use crate::gpart::device;
use crate::say::fail;

const USAGE: &str = "\
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
";

const OPTIONS: OptSpec = OptSpec {
    short: "h:jl:rst:w",
    long: &[
        ("published-tps", Flag::Long("published-tps")),
        ("yes-write-to-device", Flag::Long("yes-write-to-device")),
        ("help", Flag::Long("help")),
    ],
};

/// `ashift phybs`
pub(crate) fn run(args: &[String]) -> ExitCode {
    if args.is_empty() || args == ["-h"] {
        print!("{USAGE}");
        return ExitCode::from(u8::from(args.is_empty()));
    }
    let parsed = match admin::getopt::parse(&OPTIONS, args) {
        Ok(parsed) => parsed,
        Err(error) => return usage(&error.to_string()),
    };
    if parsed.has_long("help") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let [device] = &parsed.operands[..] else {
        return usage("one device is needed");
    };
    let options = match options(&parsed) {
        Ok(options) => options,
        Err(error) => return usage(&error.to_string()),
    };
    match measure(device, &options, &parsed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail("phybs", 1, &error.to_string()),
    }
}

fn usage(text: &str) -> ExitCode {
    eprint!("phybs: {text}\n{USAGE}");
    ExitCode::from(1)
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
    let world = crate::machine::current()?;
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

/// Prints and flushes. A closed pipe does not end the measurement.
pub(crate) fn print(text: &str) {
    let mut stdout = stdout();
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
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
            is_terminal: stdout().is_terminal(),
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
