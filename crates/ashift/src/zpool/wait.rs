//! `zpool wait` and `zpool resilver`: wait for background work of the engine.
//!
//! # What it is
//! Scans and destroys make progress while a command has the pool open. If no other process has it open, the
//! waiting command is what lets them finish.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_wait`, `zpool_do_resilver`).

use admin::getopt::Parsed;
use admin::number::nice_number;
use base::ErrorKind;
use service::{Activity, OpenPool, Session};

use super::list::{Repeat, pool_names, repeated_code, split_repeat, stamp, time_stamp};
use super::{Fail, Outcome, open_error};

/// `zpool wait`.
pub(super) fn run(session: &Session, args: &Parsed) -> Outcome {
    let activities = wanted(args)?;
    let stamp = stamp(args)?;
    let (names, repeat) = split_repeat(&args.operands)?;
    let is_counted = repeat.as_ref().is_some_and(|repeat| repeat.count.is_some());
    let name = match &names[..] {
        _ if is_counted => return Err(Fail::Usage("too many arguments".into())),
        [] => return Err(Fail::Usage("missing 'pool' argument".into())),
        [name] => name,
        _ => return Err(Fail::Usage("too many arguments".into())),
    };
    let pool = open(session, name)?;
    match repeat {
        None => pool.wait_for(&activities, None)?,
        Some(repeat) => {
            let (is_scripted, is_exact) = (args.has('H'), args.has('p'));
            let mut rows = Rows {
                pool: &pool,
                activities: &activities,
                interval_ns: interval_ns(&repeat),
                next_ns: 0,
                is_first: true,
                is_scripted,
                is_exact,
                stamp,
            };
            rows.print_if_due();
            pool.wait_for(&activities, Some(&mut || rows.print_if_due()))?;
        }
    }
    pool.close()?;
    Ok(())
}

/// The last `-t`, or all there are.
fn wanted(args: &Parsed) -> Result<Vec<Activity>, Fail> {
    let mut wanted = Activity::ALL.to_vec();
    for list in args.values('t') {
        let mut named = Vec::new();
        for word in list.split(',') {
            let found = Activity::ALL.into_iter().find(|each| each.name() == word);
            let invalid = || Fail::Usage(format!("invalid activity '{word}'"));
            named.push(found.ok_or_else(invalid)?);
        }
        wanted = named;
    }
    Ok(wanted)
}

fn interval_ns(repeat: &Repeat) -> u64 {
    (repeat.secs * 1e9) as u64
}

/// What is left to do, a row after each interval.
struct Rows<'a> {
    pool: &'a OpenPool,
    activities: &'a [Activity],
    interval_ns: u64,
    next_ns: u64,
    is_first: bool,
    /// `-H`
    is_scripted: bool,
    /// `-p`
    is_exact: bool,
    stamp: Option<bool>,
}

impl Rows<'_> {
    #[doc(alias = "print_wait_status_row")]
    fn print_if_due(&mut self) {
        let now = rt::now_ns();
        if now < self.next_ns {
            return;
        }
        self.next_ns = now + self.interval_ns;
        if let Some(is_date) = self.stamp {
            println!("{}", time_stamp(is_date));
        }
        let columns = || {
            (0..)
                .zip(Activity::ALL)
                .filter(|(_, each)| self.activities.contains(each))
        };
        if self.is_first && !self.is_scripted {
            let titles = columns().map(|(_, each)| {
                let width = width(each);
                format!("{:>width$}", each.name().to_uppercase())
            });
            println!("{}", titles.collect::<String>());
        }
        self.is_first = false;
        let cells = columns().map(|(at, each)| {
            // One that cannot be read is of a pool that is in other trouble, which the wait returns.
            let left = self.pool.bytes_left(each).unwrap_or(0);
            let left = match self.is_exact {
                true => left.to_string(),
                false => nice_number(left),
            };
            match (self.is_scripted, at) {
                (true, 0) => left,
                (true, _) => format!("\t{left}"),
                (false, _) => format!(" {left:>width$}", width = width(each) - 1),
            }
        });
        println!("{}", cells.collect::<String>());
    }
}

fn width(activity: Activity) -> usize {
    activity.name().len().max(6) + 2
}

/// `zpool resilver`.
pub(super) fn resilver(session: &Session, args: &Parsed) -> Outcome {
    if args.operands.is_empty() {
        return Err(Fail::Usage("missing pool name argument".into()));
    }
    let mut code = repeated_code(&args.operands);
    for name in &pool_names(session, &args.operands)? {
        let outcome = open(session, name).and_then(|pool| {
            pool.restart_resilver()
                .map_err(|error| match error.kind() {
                    ErrorKind::Unsupported => {
                        let why = error.context();
                        Fail::Failed(format!("cannot restart resilver on {name}: {why}"))
                    }
                    _ => error.into(),
                })?;
            pool.catch_up()?;
            session.finish(&pool)?;
            Ok(())
        });
        match outcome {
            Ok(()) => {}
            Err(Fail::Failed(text)) => {
                eprintln!("{text}");
                code = 1;
            }
            Err(other) => return Err(other),
        }
    }
    Fail::exit(code)
}

/// A pool that can only be read has nothing in progress, and nothing to wait for.
fn open(session: &Session, name: &str) -> Result<OpenPool, Fail> {
    let pool = session.open_as_imported(name);
    pool.map_err(|e| open_error(name, &e))
}
