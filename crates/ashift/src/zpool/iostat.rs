//! `zpool iostat`: what the devices of pools have done since these were imported, or in each interval.
//!
//! # What it is
//! The counts are those that sessions keep below the state folder (`service::io_stats`), so a pool that
//! another command has open is shown without waiting for it.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_iostat`).

use admin::getopt::Parsed;
use admin::number::NumberStyle;
use admin::pool::{IoPrinter, IoStyle, IoTables, NameStyle, PoolIo, VdevStatus};
use service::Session;

use super::list::{
    Repeat, name_style, pool_names, repeated_code, split_repeat, stamp, styles, time_stamp,
};
use super::{Fail, Outcome, script};
use crate::caller::{self, Stream, caller};

/// The width of what is not a terminal, in characters.
const NO_TERMINAL_WIDTH: usize = 999;

/// `zpool iostat`.
pub(super) fn run(session: &Session, args: &Parsed) -> Outcome {
    let scripts = script::wanted(args)?;
    if args.has('h') {
        return Err(Fail::Usage(String::new()));
    }
    let stamp = stamp(args)?;
    let (operands, repeat) = interval(session, args)?;
    let (given, only) = pools_and_vdevs(session, operands)?;
    let first = read(session, &given)?;
    if first.is_empty() && repeat.is_none() {
        return Err(Fail::Failed("no pools available".into()));
    }
    let (_, names, _) = styles(args);
    let style = IoStyle {
        tables: tables(args)?,
        numbers: match args.has('p') {
            true => NumberStyle::Exact,
            false => NumberStyle::Nice,
        },
        is_scripted: args.has('H'),
        is_verbose: args.has('v') || scripts.is_some() || !only.is_empty(),
        names,
        only,
        screen_width: screen().map_or(NO_TERMINAL_WIDTH, |(width, _)| width),
    };
    let rounds = Rounds {
        session,
        given: &given,
        style: &style,
        is_verbose: args.has('v') || scripts.is_some(),
        scripts,
        omits_first: args.has('y'),
        has_headers_once: args.has('n'),
        stamp,
    };
    rounds.run(repeat.as_ref())?;
    Fail::exit(repeated_code(&given))
}

fn tables(args: &Parsed) -> Result<IoTables, Fail> {
    let (has_latency, has_queues) = (args.has('l'), args.has('q'));
    let (has_times, has_sizes) = (args.has('w'), args.has('r'));
    if (has_times || has_sizes) && (has_latency || has_queues || args.has('c')) {
        let text = "[-r|-w] isn't allowed with [-c|-l|-q]";
        return Err(Fail::Usage(text.into()));
    }
    match (has_times, has_sizes) {
        (true, true) => {
            let text = "Only one of [-r|-w] can be passed at a time";
            Err(Fail::Usage(text.into()))
        }
        (true, false) => Ok(IoTables::Latencies),
        (false, true) => Ok(IoTables::Sizes),
        (false, false) => Ok(IoTables::Default {
            has_latency,
            has_queues,
        }),
    }
}

/// Splits the interval and the count from the other operands. With `-g`, a number that is the guid of a
/// vdev is neither.
#[doc(alias = "get_interval_count_filter_guids")]
fn interval(session: &Session, args: &Parsed) -> Result<(Vec<String>, Option<Repeat>), Fail> {
    let operands = &args.operands;
    if !args.has('g') {
        return split_repeat(operands);
    }
    let mut split = operands.len();
    while split > 0 && operands.len() - split < 2 && !is_vdev(session, &operands[split - 1], None)?
    {
        split -= 1;
    }
    let (mut others, repeat) = split_repeat(&operands[split..])?;
    others.splice(0..0, operands[..split].iter().cloned());
    Ok((others, repeat))
}

/// Which operands are pools, and which are vdevs: either all of one kind, or a pool and vdevs of it.
fn pools_and_vdevs(
    session: &Session,
    operands: Vec<String>,
) -> Result<(Vec<String>, Vec<String>), Fail> {
    let is_pool = |name: &String| session.pools().is_imported(name);
    let are_vdevs = |words: &[String], pool: Option<&str>| -> Result<bool, Fail> {
        for word in words {
            if !is_vdev(session, word, pool)? {
                return Ok(false);
            }
        }
        Ok(!words.is_empty())
    };
    let mut pools = 0;
    for word in &operands {
        pools += usize::from(is_pool(word)?);
    }
    if pools == operands.len() {
        return Ok((operands, Vec::new()));
    }
    if are_vdevs(&operands, None)? {
        return Ok((Vec::new(), operands));
    }
    let (first, rest) = operands.split_first().expect("one is not a pool");
    if !is_pool(first)? {
        eprintln!("Unable to parse pools/vdevs list.\n");
        return Err(Fail::Said(1));
    }
    if are_vdevs(rest, Some(first))? {
        return Ok((vec![first.clone()], rest.to_vec()));
    }
    let mut lines = String::new();
    for word in rest {
        let what = if is_pool(word)? {
            "pool"
        } else if is_vdev(session, word, Some(first))? {
            "vdev in this pool"
        } else if is_vdev(session, word, None)? {
            "vdev in another pool"
        } else {
            "unknown"
        };
        lines += &format!("\t{word} ({what})\n");
    }
    Err(Fail::Usage(format!(
        "Expected either a list of pools, or list of vdevs in \"{first}\", but got:\n{lines}"
    )))
}

/// Whether a pool, or any, has a vdev of this name.
fn is_vdev(session: &Session, word: &str, pool: Option<&str>) -> Result<bool, Fail> {
    let given: Vec<String> = pool.map(str::to_owned).into_iter().collect();
    let full = NameStyle {
        is_full_path: true,
        ..name_style()
    };
    let is_it = |vdev: &VdevStatus| {
        let names = [
            vdev.name(name_style()),
            vdev.name(full),
            vdev.guid.to_string(),
        ];
        names.iter().any(|name| name == word) || vdev.path.as_deref() == Some(word)
    };
    let has_it = |pool: &PoolIo| {
        let mut tops = pool.status.root.children.iter().chain(&pool.status.cache);
        tops.any(|top| top.find(&is_it).is_some())
    };
    Ok(read(session, &given)?.iter().any(has_it))
}

/// What the pools given, or all, have done.
fn read(session: &Session, given: &[String]) -> Result<Vec<PoolIo>, Fail> {
    let mut pools = Vec::new();
    for name in pool_names(session, given)? {
        // One that is not there any more was exported meanwhile.
        pools.extend(session.pools().io(&name)?);
    }
    Ok(pools)
}

/// Width and height of the terminal; `None` if the output goes elsewhere.
fn screen() -> Option<(usize, usize)> {
    caller().screen(Stream::Out)
}

/// Printing again and again.
struct Rounds<'a> {
    session: &'a Session,
    given: &'a [String],
    style: &'a IoStyle,
    /// `-v` or `-c`
    is_verbose: bool,
    /// `-c`
    scripts: Option<&'a str>,
    /// `-y`
    omits_first: bool,
    /// `-n`
    has_headers_once: bool,
    stamp: Option<bool>,
}

impl Rounds<'_> {
    fn run(&self, repeat: Option<&Repeat>) -> Result<(), Fail> {
        let mut left = repeat.and_then(|repeat| repeat.count);
        let mut before: Vec<PoolIo> = Vec::new();
        let mut iteration = 0;
        loop {
            let pools = read(self.session, self.given)?;
            let mut is_shown = true;
            if pools.is_empty() {
                eprintln!("no pools available");
            } else {
                // Pools that came or went: everything begins again.
                if before.len() != pools.len() {
                    iteration = 0;
                }
                iteration += 1;
                is_shown = !(self.omits_first && iteration == 1);
                self.print(&pools, &before, iteration, is_shown);
            }
            before = pools;
            if is_shown {
                left = left.map(|left| left.saturating_sub(1));
                if repeat.is_none() || left == Some(0) {
                    return Ok(());
                }
            }
            caller::sleep_ns(repeat.map_or(0, |repeat| (repeat.secs * 1e9) as u64));
        }
    }

    fn print(&self, pools: &[PoolIo], before: &[PoolIo], iteration: u64, is_shown: bool) {
        if let Some(is_date) = self.stamp {
            println!("{}", time_stamp(is_date));
        }
        let style = self.style;
        let is_histogram = style.tables.is_histogram();
        let run = |scripts| {
            let pools = pools.iter().map(|pool| &pool.status);
            script::run(scripts, pools, &style.only, style.names)
        };
        let printer = IoPrinter::new(style, pools, self.scripts.map(run));
        let height = screen().filter(|_| !self.has_headers_once);
        let is_page = height.is_some_and(|(_, rows)| iteration.is_multiple_of(rows as u64));
        let is_first = iteration == 1 && is_shown;
        let has_header = is_first || is_shown == self.is_verbose || is_page;
        if has_header && !is_histogram && !style.is_scripted {
            print!("{}", printer.header());
        }
        if !is_shown {
            return;
        }
        for pool in pools {
            let is_it = |old: &&PoolIo| old.status.guid == pool.status.guid;
            let before = before.iter().find(is_it).filter(|_| iteration > 1);
            print!("{}", printer.pool(pool, before));
        }
        let has_several = pools.len() > 1 && !self.is_verbose;
        if (has_several || !style.only.is_empty()) && !is_histogram && !style.is_scripted {
            print!("{}", printer.separator());
        }
    }
}
