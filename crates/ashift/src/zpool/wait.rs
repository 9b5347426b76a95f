//! `zpool wait` and `zpool resilver`: wait for background work of the engine.
//!
//! # What it is
//! Scans and destroys make progress while a command has the pool open. If no other process has it open, the
//! waiting command is what lets them finish.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_wait`, `zpool_do_resilver`).

use admin::getopt::Parsed;
use admin::pool::{VdevKind, VdevStatus};
use scan::Kind;
use service::{OpenPool, Session};

use super::list::{pool_names, repeated_code};
use super::{Fail, Outcome, open_error, refuse_options};

/// `zpool_wait_activity_t`; only the two scans, what waits for one of them, and a removal, can be in progress
/// here. The others never are, or end with the command that started them.
const ACTIVITIES: &[&str] = &[
    "discard",
    "free",
    "initialize",
    "replace",
    "remove",
    "resilver",
    "scrub",
    "trim",
    "raidz_expand",
];

/// `zpool wait`.
pub(super) fn run(session: &Session, args: &Parsed) -> Outcome {
    refuse_options(args, "wait", "HpT")?;
    let mut wanted = Vec::new();
    for activity in args.values('t').flat_map(|list| list.split(',')) {
        if !ACTIVITIES.contains(&activity) {
            return Err(Fail::Usage(format!("invalid activity '{activity}'")));
        }
        wanted.push(activity);
    }
    let name = match &args.operands[..] {
        [] => return Err(Fail::Usage("missing 'pool' argument".into())),
        [name] => name,
        [_, _] => {
            let text = "'zpool wait' with an interval is not supported yet";
            return Err(Fail::Failed(text.into()));
        }
        _ => return Err(Fail::Usage("too many arguments".into())),
    };
    let pool = open(session, name)?;
    let is_replacing = || {
        let replacing = |vdev: &VdevStatus| vdev.kind == VdevKind::Replacing;
        pool.vdevs().find(&replacing).is_some()
    };
    let is_wanted = |kind: Kind| {
        wanted.is_empty()
            || match kind {
                Kind::Scrub => wanted.contains(&"scrub"),
                Kind::Resilver if wanted.contains(&"resilver") => true,
                Kind::Resilver => wanted.contains(&"replace") && is_replacing(),
            }
    };
    while pool.scan_running().is_some_and(is_wanted) && !pool.is_scan_paused() {
        pool.wait_for_scan()?;
    }
    if wanted.is_empty() || wanted.contains(&"remove") {
        pool.wait_for_removal()?;
    }
    pool.close()?;
    Ok(())
}

/// `zpool resilver`.
pub(super) fn resilver(session: &Session, args: &Parsed) -> Outcome {
    if args.operands.is_empty() {
        return Err(Fail::Usage("missing pool name argument".into()));
    }
    let mut code = repeated_code(&args.operands);
    for name in &pool_names(session, &args.operands)? {
        let outcome = open(session, name).and_then(|pool| {
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
