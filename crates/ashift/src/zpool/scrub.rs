//! `zpool scrub`, and resilvering devices that were absent.
//!
//! # What it is
//! The scan itself runs in the engine, whenever the pool is open for writing. These commands start it and
//! wait for its end. If they are interrupted, the next one resumes the scan. Blocks that the scan could not
//! read are in the pool's error log.
//!
//! # Source
//! OpenZFS module/zfs/dsl_scan.c, cmd/zpool/zpool_main.c (`zpool_do_scrub`).

use admin::getopt::Parsed;
use admin::number::{duration, nice_bytes};
use service::{Scrubbed, Session};

use super::list::{pool_names, repeated_code};
use super::{Fail, Outcome};
use crate::caller::{Stream, caller};

/// `zpool scrub`.
pub(super) fn run(session: &Session, args: &Parsed) -> Outcome {
    if args.operands.is_empty() {
        return Err(Fail::Usage("missing pool name argument".into()));
    }
    let wanted = Wanted::of(args)?;
    let mut code = repeated_code(&args.operands);
    for name in &pool_names(session, &args.operands)? {
        match scrub(session, name, wanted, args.has('w')) {
            Ok(found) => code |= found,
            Err(Fail::Failed(text)) => {
                eprintln!("{text}");
                code = 1;
            }
            Err(other) => return Err(other),
        }
    }
    Fail::exit(code)
}

/// The requested operation.
#[derive(Clone, Copy)]
enum Wanted {
    Scrub { is_thorough: bool, since_last: bool },
    Errors,
    Stop,
    Pause,
}

impl Wanted {
    fn of(args: &Parsed) -> Result<Wanted, Fail> {
        let exclusive = [
            ('s', "p"),
            ('s', "e"),
            ('p', "e"),
            ('e', "C"),
            ('e', "t"),
            ('p', "C"),
            ('s', "C"),
        ];
        for (one, other) in exclusive {
            if args.has(one) && other.chars().all(|other| args.has(other)) {
                return Err(Fail::Usage(format!(
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
                since_last: args.has('C'),
            },
        })
    }
}

fn scrub(session: &Session, name: &str, wanted: Wanted, waits: bool) -> Outcome<u8> {
    let pool = session.open_to_scrub(name)?;
    let scrubbed = match wanted {
        Wanted::Stop => {
            pool.cancel_scrub()?;
            None
        }
        Wanted::Pause => {
            pool.pause_running_scrub()?;
            None
        }
        Wanted::Errors if pool.is_kept() && !waits => {
            pool.begin_error_scrub()?;
            return Ok(0);
        }
        Wanted::Errors => match pool.scrub_errors()? {
            None => return Ok(0),
            scrubbed => scrubbed,
        },
        Wanted::Scrub {
            is_thorough,
            since_last,
        } => {
            if pool.checkpoint()?.is_some() {
                println!(
                    "warning: will not scrub state that belongs to the checkpoint of pool '{name}'"
                );
            }
            if pool.is_kept() && !is_thorough && !waits {
                pool.begin_scrub(since_last)?;
                return Ok(0);
            }
            Some(pool.scrub(is_thorough, since_last)?)
        }
    };
    if let Some(scrubbed) = &scrubbed {
        tell(scrubbed, wanted);
    }
    session.finish(&pool)?;
    Ok(scrubbed.map_or(0, |scrubbed| u8::from(!scrubbed.is_clean)))
}

/// Prints the outcome of a scrub, and each finding; without news nothing is printed into a pipe or file,
/// since OpenZFS's command prints nothing.
fn tell(scrubbed: &Scrubbed, wanted: Wanted) {
    let (errors, repaired) = (scrubbed.errors, nice_bytes(scrubbed.repaired_bytes));
    let is_news = errors > 0 || scrubbed.repaired_bytes > 0;
    let outcome = match wanted {
        Wanted::Errors => {
            let count = scrubbed.objects;
            let objects = if count == 1 { "object" } else { "objects" };
            format!("scrubbed {count} damaged {objects}, repaired {repaired}, with {errors} errors")
        }
        _ => {
            let time = duration(scrubbed.secs);
            format!("scrub repaired {repaired} in {time} with {errors} errors")
        }
    };
    if is_news || caller().is_terminal(Stream::Out) {
        println!("{outcome}");
    }
    for finding in &scrubbed.findings {
        println!("  {finding}");
    }
}
