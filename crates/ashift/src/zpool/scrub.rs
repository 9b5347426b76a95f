//! `zpool scrub`, and resilvering devices that were absent.
//!
//! # What it is
//! The scan itself runs in the engine, whenever the pool is open for writing. These commands start it and
//! wait for its end. If they are interrupted, the next one resumes the scan. Blocks that the scan could not
//! read are in the pool's error log.
//!
//! # Source
//! OpenZFS module/zfs/dsl_scan.c, cmd/zpool/zpool_main.c (`zpool_do_scrub`).

use std::io::IsTerminal;
use std::sync::Arc;

use admin::getopt::Parsed;
use admin::number::{duration, nice_bytes};
use base::Context;
use check::Report;
use scan::Kind;
use service::{Access, OpenPool, Session, lost_in};
use spa::Spa;

use super::errors::objects_of;
use super::list::{pool_names, repeated_code};
use super::{Failure, Outcome, open_error, refuse_options};

/// `zpool scrub`.
pub(super) fn run(session: &Session, args: &Parsed) -> Outcome {
    refuse_options(args, "scrub", "C")?;
    if args.operands.is_empty() {
        return Err(Failure::Usage("missing pool name argument".into()));
    }
    let wanted = Wanted::of(args)?;
    let mut code = repeated_code(&args.operands);
    for name in &pool_names(session, &args.operands)? {
        let outcome = match wanted {
            Wanted::Errors => scrub_errors(session, name),
            Wanted::Stop => change(session, name, "cancel scrubbing", Spa::stop_scrub),
            Wanted::Pause => change(session, name, "pause scrubbing", pause),
            Wanted::Scrub { is_thorough } => scrub(session, name, is_thorough),
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
    session: &Session,
    name: &str,
    what: &str,
    change: impl Fn(&Spa) -> base::Result<()>,
) -> Outcome {
    let pool = open_to_scrub(session, name)?;
    change(&pool).map_err(|e| format!("cannot {what} {name}: {e}"))?;
    session.log(&pool)?;
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
fn scrub(session: &Session, name: &str, is_thorough: bool) -> Outcome {
    let pool = open_to_scrub(session, name)?;
    session
        .pools()
        .scrub(&pool)
        .map_err(|e| format!("cannot scrub {name}: {e}"))?;
    let scan = pool.scan().unwrap_or_default();
    let (mut findings, mut errors) = (Vec::new(), scan.errors.get());
    if is_thorough {
        let options = check::Options {
            decompress: true,
            every_copy: false,
            leaks: false,
            ..check::Options::default()
        };
        let report = session
            .pools()
            .verify(&pool, options)
            .within(|| name.to_owned())?;
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
    session.log(&pool)?;
    pool.sync()?;
    pool.close()?;
    Ok(u8::from(errors > 0 || !findings.is_empty()))
}

fn open_to_scrub(session: &Session, name: &str) -> Result<OpenPool, Failure> {
    let pool = session
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

fn close_scrubbed(session: &Session, pool: &OpenPool, report: &Report) -> Outcome {
    session.log(pool)?;
    pool.sync()?;
    pool.close()?;
    Ok(u8::from(!report.is_clean()))
}

/// `zpool scrub -e`: reads only the blocks known to be damaged.
fn scrub_errors(session: &Session, name: &str) -> Outcome {
    let pool = open_to_scrub(session, name)?;
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
    let report = session
        .pools()
        .verify(&pool, options)
        .within(|| name.to_owned())?;
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
    close_scrubbed(session, &pool, &report)
}

fn healed_bytes(spa: &Spa) -> u64 {
    spa.tree().root().total_stats().self_healed_bytes
}
