//! `zfs snapshot`.

use admin::getopt::Parsed;
use admin::name::{NameKind, check_name, dataset_of, pool_of};
use admin::prop::{DatasetContext, Types};
use base::ErrorKind;
use service::Session;

use super::fail::{Fail, Outcome};
use super::set::{check, split_assignments};
use super::target::{exists, open};

/// `zfs snapshot`: all of them, in one txg, or none.
pub(super) fn snapshot(session: &Session, parsed: &Parsed) -> Outcome {
    let typed = split_assignments(parsed.values('o'))?;
    if parsed.operands.is_empty() {
        return Err(Fail::usage("missing snapshot argument"));
    }
    let mut wanted: Vec<String> = Vec::new();
    for name in &parsed.operands {
        let Some((dataset, snap)) = name.split_once('@') else {
            return Err(Fail::usage(""));
        };
        let head = match open(session, dataset, Types::FILESYSTEM.or(Types::VOLUME)) {
            Err(Fail::Failed(text)) => return Err(Fail::usage(text)),
            opened => opened?,
        };
        let cannot = |why: String| Fail::failed(format!("cannot create snapshot '{name}': {why}"));
        check_name(name, NameKind::Snapshot, true).map_err(|e| cannot(e.to_string()))?;
        let heads = if parsed.has('r') {
            head.with_descendants()
        } else {
            Ok(vec![head])
        };
        let heads = heads.map_err(|e| cannot(e.to_string()))?;
        for name in heads.iter().map(|head| format!("{}@{snap}", head.name)) {
            if !wanted.contains(&name) {
                wanted.push(name);
            }
        }
    }
    let outcome = take(session, &typed, &wanted);
    if outcome.is_err() && wanted.len() > 1 {
        let _ = outcome.map_err(|fail| fail.say(""));
        return Err(Fail::failed("no snapshots were created"));
    }
    outcome
}

fn take(session: &Session, typed: &super::set::Typed, wanted: &[String]) -> Outcome {
    let pool_name = pool_of(&wanted[0]);
    if wanted.iter().any(|name| pool_of(name) != pool_name) {
        let text = "cannot create snapshots : multiple snapshots must be in the same pool";
        return Err(Fail::failed(text));
    }
    let mut heads: Vec<&str> = wanted.iter().map(|name| dataset_of(name)).collect();
    heads.sort_unstable();
    if heads.windows(2).any(|pair| pair[0] == pair[1]) {
        let text = "cannot create snapshots : multiple snapshots of same fs not allowed";
        return Err(Fail::failed(text));
    }
    let pool = session
        .find_pool(pool_name)
        .map_err(|e| Fail::failed(e.to_string()))?;
    let pool = pool.expect("its datasets were opened");
    let props = check(
        typed,
        &DatasetContext::creating(Types::SNAPSHOT),
        &pool,
        "cannot create snapshots ",
    )?;
    let mut outcome = Ok(());
    for name in wanted {
        let what = format!("cannot create snapshot '{name}'");
        let failed = match exists(&pool, name) {
            Ok(false) => continue,
            Ok(true) => Fail::failed(format!("{what}: dataset already exists")),
            Err(e) => Fail::of(what, &e),
        };
        outcome = Err(failed.say(""));
    }
    outcome?;
    let names: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let taken = pool.change_datasets(|datasets| datasets.snapshot(&names, props.stored));
    taken.map_err(|e| match wanted {
        [name] if e.kind() != ErrorKind::ReadOnly => {
            Fail::of(format!("cannot create snapshot '{name}'"), &e)
        }
        _ => Fail::of("cannot create snapshots ", &e),
    })
}
