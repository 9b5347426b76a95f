//! `zpool scrub`, and resilvering devices that were absent.
//!
//! # What it is
//! The scan itself runs in the engine, whenever the pool is open for writing. These commands start it and
//! wait for its end. If they are interrupted, the next one resumes the scan. Blocks that the scan could not
//! read are in the pool's error log.
//!
//! # Source
//! OpenZFS module/zfs/dsl_scan.c, cmd/zpool/zpool_main.c (`zpool_do_scrub`).

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Arc;

use admin::getopt::Parsed;
use admin::number::{duration, nice_bytes};
use base::{Context, Error, ErrorKind, Txg};
use check::{Finding, Report};
use phys::scan::POOL_SCAN_SCRUB;
use scan::Kind;
use spa::Spa;
use zio::Bookmark;

use super::errors::objects_of;
use super::list::{pool_names, repeated_code};
use super::{Failure, Outcome, command_line, open_error, refuse_options};
use crate::host::{Access, Host, OpenPool};
use crate::progress::progress;

/// Times that a scrub is started, at most: a resilver in between ends it.
const SCRUBS_MAX: usize = 5;

/// `zpool scrub`.
pub(super) fn run(args: &Parsed) -> Outcome {
    refuse_options(args, "scrub", "C")?;
    if args.operands.is_empty() {
        return Err(Failure::Usage("missing pool name argument".into()));
    }
    let wanted = Wanted::of(args)?;
    let host = Host::here();
    let mut code = repeated_code(&args.operands);
    for name in &pool_names(&host, &args.operands)? {
        let outcome = match wanted {
            Wanted::Errors => scrub_errors(&host, name),
            Wanted::Stop => change(&host, name, "cancel scrubbing", Spa::stop_scrub),
            Wanted::Pause => change(&host, name, "pause scrubbing", pause),
            Wanted::Scrub { is_thorough } => scrub(&host, name, is_thorough),
        };
        match outcome {
            Ok(found) => code |= found,
            Err(Failure::Text(text)) => {
                eprintln!("{text}");
                code = 1;
            }
            Err(other) => return Err(other),
        }
    }
    Ok(code)
}

/// The requested operation.
#[derive(Clone, Copy)]
enum Wanted {
    Scrub { is_thorough: bool },
    Errors,
    Stop,
    Pause,
}

impl Wanted {
    fn of(args: &Parsed) -> Result<Wanted, Failure> {
        let exclusive = [('s', "p"), ('s', "e"), ('p', "e"), ('e', "t")];
        for (one, other) in exclusive {
            if args.has(one) && other.chars().all(|other| args.has(other)) {
                return Err(Failure::Usage(format!(
                    "invalid option combination: -{one} and -{other} are mutually exclusive"
                )));
            }
        }
        Ok(match () {
            () if args.has('s') => Wanted::Stop,
            () if args.has('p') => Wanted::Pause,
            () if args.has('e') => Wanted::Errors,
            () => Wanted::Scrub {
                is_thorough: args.has('t'),
            },
        })
    }
}

/// `zpool scrub -s` and `-p`.
fn change(
    host: &Host,
    name: &str,
    what: &str,
    change: impl Fn(&Spa) -> base::Result<()>,
) -> Outcome {
    let pool = open_to_scrub(host, name)?;
    change(&pool).map_err(|e| format!("cannot {what} {name}: {e}"))?;
    pool.log_command(&command_line())?;
    pool.sync()?;
    pool.close()?;
    Ok(0)
}

/// As in OpenZFS, it is not an error if none is running.
fn pause(spa: &Spa) -> base::Result<()> {
    match spa.scan_running() {
        Some(Kind::Scrub) => spa.pause_scrub(),
        _ => Ok(()),
    }
}

/// `zpool scrub`; a thorough one (`-t`) decompresses each block as well.
fn scrub(host: &Host, name: &str, is_thorough: bool) -> Outcome {
    let pool = open_to_scrub(host, name)?;
    scrub_to_the_end(&pool).map_err(|e| format!("cannot scrub {name}: {e}"))?;
    let scan = pool.scan().unwrap_or_default();
    let (mut findings, mut errors) = (Vec::new(), scan.errors.get());
    if is_thorough {
        let options = check::Options {
            decompress: true,
            every_copy: false,
            leaks: false,
            ..check::Options::default()
        };
        let report = verify(&pool, options).within(|| name.to_owned())?;
        let lost = lost_in(&report);
        errors = errors.max(lost.len() as u64);
        pool.note_errors(lost);
        findings = report.findings;
    }
    let is_news = errors > 0 || scan.processed.get() > 0;
    if is_news || std::io::stdout().is_terminal() {
        println!(
            "scrub repaired {} in {} with {errors} errors",
            nice_bytes(scan.processed.get()),
            duration(scan.end_time.get().saturating_sub(scan.start_time.get())),
        );
    }
    for finding in &findings {
        println!("  {finding}");
    }
    pool.log_command(&command_line())?;
    pool.sync()?;
    pool.close()?;
    Ok(u8::from(errors > 0 || !findings.is_empty()))
}

/// A resilver that a device needs goes first, and ends a running scrub; an interrupted scrub is resumed.
fn scrub_to_the_end(spa: &Spa) -> base::Result<()> {
    for _ in 0..SCRUBS_MAX {
        if spa.scan_running() == Some(Kind::Resilver) {
            watch(spa)?;
        }
        if spa.scan_running().is_none() || spa.is_scan_paused() {
            spa.scrub()?;
        }
        watch(spa)?;
        if spa
            .scan()
            .is_some_and(|scan| scan.func.get() == POOL_SCAN_SCRUB)
        {
            return Ok(());
        }
    }
    let text = "a device misses writes again and again";
    Err(Error::new(ErrorKind::Io, text))
}

/// Shows the progress of the scan until it ends.
pub(super) fn watch(spa: &Spa) -> base::Result<()> {
    let bar = progress(None, true);
    let outcome = spa.wait_scan(&mut |scan| {
        bar.set_length(scan.to_examine.get());
        bar.set_position(scan.examined.get());
        true
    });
    bar.finish_and_clear();
    outcome
}

fn open_to_scrub(host: &Host, name: &str) -> Result<OpenPool, Failure> {
    let pool = host
        .open(name, Access::Write)
        .map_err(|e| open_error(name, &e))?;
    pool.check_writable()
        .map_err(|_| format!("cannot scrub {name}: pool is read-only"))?;
    Ok(pool)
}

/// Prints the outcome of a scrub, and each finding; without findings nothing is printed into a pipe or
/// file, since OpenZFS's command prints nothing.
fn tell(report: &Report, outcome: impl FnOnce() -> String) {
    if !report.findings.is_empty() || std::io::stdout().is_terminal() {
        println!("{}", outcome());
    }
    for finding in &report.findings {
        println!("  {finding}");
    }
}

fn close_scrubbed(pool: &OpenPool, report: &Report) -> Outcome {
    pool.log_command(&command_line())?;
    pool.sync()?;
    pool.close()?;
    Ok(u8::from(!report.is_clean()))
}

/// `zpool scrub -e`: reads only the blocks known to be damaged.
fn scrub_errors(host: &Host, name: &str) -> Outcome {
    let pool = open_to_scrub(host, name)?;
    let objects = objects_of(&pool.damaged()?);
    if objects.is_empty() {
        return Ok(0);
    }
    let (count, healed) = (objects.len(), healed_bytes(&pool));
    let options = check::Options {
        only: Some(Arc::new(objects)),
        leaks: false,
        ..check::Options::default()
    };
    let report = verify(&pool, options).within(|| name.to_owned())?;
    let lost = lost_in(&report);
    let errors = lost.len();
    pool.replace_errors(lost)?;
    tell(&report, || {
        format!(
            "scrubbed {count} damaged {}, repaired {}, with {errors} errors",
            if count == 1 { "object" } else { "objects" },
            nice_bytes(healed_bytes(&pool).saturating_sub(healed)),
        )
    });
    close_scrubbed(&pool, &report)
}

/// Resilvers devices that missed writes, and waits until that is done.
pub(crate) fn catch_up(spa: &Spa) -> base::Result<()> {
    spa.resilver_if_needed()?;
    if spa.scan_running() == Some(Kind::Resilver) {
        watch(spa)?;
    }
    Ok(())
}

/// Verifies every copy of every block of an open pool, and repairs them if the pool is writable.
pub(crate) fn verify(spa: &Spa, options: check::Options) -> base::Result<Report> {
    let pool = check::Pool::of(spa);
    let bar = progress(None, true);
    let shown = bar.clone();
    let options = check::Options {
        progress: Some(Arc::new(move |p: &check::Progress| {
            shown.set_length(p.allocated_bytes);
            shown.set_position(p.verified_bytes);
        })),
        ..options
    };
    let report = check::verify(&pool, &options);
    bar.finish_and_clear();
    report
}

fn healed_bytes(spa: &Spa) -> u64 {
    spa.tree().root().total_stats().self_healed_bytes
}

/// The lost blocks, with their birth txgs.
fn lost_in(report: &Report) -> BTreeMap<Bookmark, Txg> {
    report.findings.iter().filter_map(Finding::lost).collect()
}
