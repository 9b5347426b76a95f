//! `zpool prefetch`: reads the tables of shared blocks into the cache.
//!
//! # What it is
//! It helps what comes later in the same cache: of a pool that is held (`ashift serve`), and of a machine that is up.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_prefetch`), lib/libzfs/libzfs_pool.c (`zpool_prefetch`).

use admin::getopt::Parsed;
use service::{Access, Session};
use spa::SharedTables;

use super::{Fail, Outcome, change_error};

/// `zpool prefetch`.
pub(super) fn run(session: &Session, args: &Parsed) -> Outcome {
    let usage = |text: &str| Err(Fail::Usage(text.into()));
    let name = match &args.operands[..] {
        [] => return usage("missing pool name argument"),
        [name] => name,
        _ => return usage("too many arguments"),
    };
    let both = [("ddt", SharedTables::Dedup), ("brt", SharedTables::Cloned)];
    let type_ = args
        .options
        .iter()
        .rev()
        .find_map(|(_, value)| value.as_deref());
    let kinds = both
        .iter()
        .filter(|(kind, _)| type_.is_none_or(|type_| type_ == *kind));
    let kinds: Vec<_> = kinds.collect();
    let Some((first, _)) = kinds.first() else {
        return usage("unsupported prefetch type");
    };
    let what = |kind: &str| format!("cannot prefetch {kind} in '{name}'");
    let pool = session.open(name, Access::Read);
    let pool = pool.map_err(|error| change_error(name, &what(first), &error))?;
    for (kind, tables) in kinds {
        let done = pool.prefetch(*tables);
        done.map_err(|error| Fail::Failed(format!("{}: {error}", what(kind))))?;
    }
    pool.close()?;
    Ok(())
}
