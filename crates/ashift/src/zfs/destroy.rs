//! `zfs destroy`: heads with what depends on them, snapshots and ranges of them, bookmarks.
//!
//! # What it is
//! The dependents of a dataset are destroyed before it: its children with all of theirs; the clones of its
//! snapshots, then the snapshots. Without `-r` there must be no children, without `-R` no clones.
//!
//! # Source
//! OpenZFS cmd/zfs/zfs_main.c (`zfs_do_destroy`), lib/libzfs/libzfs_iter.c
//! (`zfs_iter_dependents`, `zfs_iter_snapspec`).

use admin::getopt::Parsed;
use admin::number::nice_bytes;
use admin::prop::Types;
use base::{ErrorKind, Result};
use service::Session;

use super::fail::{Fail, Outcome, words};
use super::target::{Target, find, open, open_if_there};
use crate::mounting;
use crate::progress::progress;

/// The parsed options.
struct Options {
    recurses: bool,
    clones: bool,
    dry: bool,
    verbose: bool,
    parseable: bool,
    defers: bool,
}

impl Options {
    fn announce(&self, name: &str) {
        match (self.verbose, self.parseable, self.dry) {
            (false, ..) => {}
            (_, true, _) => println!("destroy\t{name}"),
            (_, _, true) => println!("would destroy {name}"),
            _ => println!("will destroy {name}"),
        }
    }

    fn announce_space(&self, bytes: u64) {
        match (self.verbose, self.parseable, self.dry) {
            (false, ..) => {}
            (_, true, _) => println!("reclaim\t{bytes}"),
            (_, _, true) => println!("would reclaim {}", nice_bytes(bytes)),
            _ => println!("will reclaim {}", nice_bytes(bytes)),
        }
    }
}

/// `zfs destroy`.
pub(super) fn destroy(session: &Session, parsed: &Parsed) -> Outcome {
    let options = Options {
        recurses: parsed.has('r') || parsed.has('R'),
        clones: parsed.has('R'),
        dry: parsed.has('n'),
        verbose: parsed.has('v') || parsed.has('p'),
        parseable: parsed.has('p'),
        defers: parsed.has('d'),
    };
    let name = match &parsed.operands[..] {
        [] => return Err(Fail::usage("missing dataset argument")),
        [name] => name.as_str(),
        _ => return Err(Fail::usage("too many arguments")),
    };
    if let Some((head, spec)) = name.split_once('@') {
        return destroy_snapshots(session, head, spec, &options);
    }
    if name.contains('#') {
        return destroy_bookmark(session, name, &options);
    }
    let types = if options.defers {
        Types::SNAPSHOT
    } else {
        Types::FILESYSTEM.or(Types::VOLUME)
    };
    destroy_head(&open(session, name, types)?, &options)
}

fn cannot_iterate(target: &Target, error: &base::Error) -> Fail {
    Fail::of(format!("cannot iterate '{}'", target.name), error)
}

fn destroy_head(target: &Target, options: &Options) -> Outcome {
    let name = &target.name;
    let is_root = !name.contains('/');
    if is_root && !options.recurses {
        return Err(Fail::failed(format!(
            "cannot destroy '{name}': operation does not apply to pools\nuse 'zfs destroy -r \
             {name}' to destroy all datasets in the pool\nuse 'zpool destroy {name}' to destroy \
             the pool itself"
        )));
    }
    let doomed = dependents(target).map_err(|e| cannot_iterate(target, &e))?;
    check_dependents(target, &doomed, options)?;
    let mut outcome = Ok(());
    let bar = progress(Some(doomed.len() as u64 + 1), false);
    // Consecutive snapshots are destroyed together.
    let mut batch: Vec<Target> = Vec::new();
    let mut note = |done: Outcome| -> Outcome {
        let Err(fail) = done else { return Ok(()) };
        let said = bar.suspend(|| fail.say(""));
        if !options.recurses {
            return Err(said);
        }
        // A dataset that cannot be destroyed does not stop the others.
        outcome = Err(said);
        Ok(())
    };
    for target in doomed.iter().chain([target]) {
        bar.suspend(|| options.announce(&target.name));
        bar.set_message(target.name.clone());
        bar.inc(1);
        if options.dry || (!target.name.contains(['/', '@'])) {
            continue;
        }
        if target.types == Types::SNAPSHOT {
            batch.push(target.clone());
            continue;
        }
        let snapshots = remove_snapshots(&std::mem::take(&mut batch), false);
        note(snapshots.and_then(|()| remove_head(target)))?;
    }
    note(remove_snapshots(&batch, false))?;
    bar.finish_and_clear();
    outcome
}

fn remove(target: &Target) -> Outcome {
    if target.types == Types::SNAPSHOT {
        remove_snapshots(std::slice::from_ref(target), false)
    } else {
        remove_head(target)
    }
}

fn remove_head(target: &Target) -> Outcome {
    let name = target.name.as_str();
    let what = format!("cannot destroy '{name}'");
    mounting::unmount(&target.pool, name)?;
    let made = match target.pool.pools().can_mount() {
        true => mounting::made_directory(&target.pool, name),
        false => None,
    };
    let destroyed = target
        .pool
        .change_datasets(|datasets| datasets.destroy(name));
    destroyed.map_err(|e| match e.kind() {
        ErrorKind::NotEmpty => Fail::failed(format!("{what}: filesystem has children")),
        _ => Fail::of(what, &e),
    })?;
    if let Some(directory) = made {
        // It may be gone, or have something in it.
        let _ = std::fs::remove_dir(directory);
    }
    Ok(())
}

/// Destroys snapshots of one pool in one txg: all or none.
#[doc(alias = "zfs_destroy_snaps_nvl")]
fn remove_snapshots(snapshots: &[Target], defers: bool) -> Outcome {
    let Some(first) = snapshots.first() else {
        return Ok(());
    };
    let names: Vec<&str> = snapshots.iter().map(|s| s.name.as_str()).collect();
    let pool = &first.pool;
    let Err(error) = pool.change_datasets(|datasets| datasets.destroy_snapshots(&names, defers))
    else {
        return Ok(());
    };
    if error.kind() == ErrorKind::ReadOnly {
        return Err(Fail::of("cannot destroy snapshots", &error));
    }
    let mut reasons: Vec<String> = snapshots
        .iter()
        .filter_map(|snapshot| Some((snapshot, in_the_way(snapshot, defers)?)))
        .map(|(snapshot, why)| format!("cannot destroy snapshot {}: {why}", snapshot.name))
        .collect();
    if reasons.is_empty() {
        let why = words(&error);
        reasons.push(format!("cannot destroy snapshot {}: {why}", first.name));
    }
    Err(Fail::failed(reasons.join("\n")))
}

/// Why a snapshot cannot be destroyed.
fn in_the_way(snapshot: &Target, defers: bool) -> Option<String> {
    let stats = snapshot.datasets().stats(snapshot.dataset()?).ok()?;
    if defers {
        None
    } else if !stats.clones.is_empty() {
        Some("snapshot is cloned".to_owned())
    } else if stats.userrefs > 0 {
        let name = &snapshot.name;
        Some(format!(
            "it's being held. Run 'zfs holds -r {name}' to see holders."
        ))
    } else {
        None
    }
}

/// Everything that must be destroyed before `target`, in this order.
#[doc(alias = "zfs_iter_dependents")]
pub(super) fn dependents(target: &Target) -> Result<Vec<Target>> {
    let mut found = Vec::new();
    gather(target, &mut found)?;
    Ok(found)
}

fn gather(target: &Target, found: &mut Vec<Target>) -> Result<()> {
    if target.types == Types::SNAPSHOT {
        for clone in clones(target)? {
            gather_one(&clone, found)?;
        }
        return Ok(());
    }
    for child in target.children()? {
        gather_one(&child, found)?;
    }
    for snapshot in target.snapshots()? {
        gather_one(&snapshot, found)?;
    }
    Ok(())
}

/// The dependents of `target`, then itself.
fn gather_one(target: &Target, found: &mut Vec<Target>) -> Result<()> {
    let is_found = |found: &[Target]| found.iter().any(|other| other.name == target.name);
    if !is_found(found) {
        gather(target, found)?;
        if !is_found(found) {
            found.push(target.clone());
        }
    }
    Ok(())
}

fn clones(snapshot: &Target) -> Result<Vec<Target>> {
    let Some(ds) = snapshot.dataset() else {
        return Ok(Vec::new());
    };
    let names = snapshot.datasets().stats(ds)?.clones;
    names
        .iter()
        .map(|name| find(&snapshot.pool, name))
        .collect()
}

/// Whether a name lies below another, or is a snapshot of it.
fn is_below(name: &str, above: &str) -> bool {
    name.strip_prefix(above)
        .is_some_and(|rest| rest.starts_with(['/', '@']))
}

/// Checks that everything that depends on `target` may be destroyed.
#[doc(alias = "destroy_check_dependent")]
fn check_dependents(target: &Target, doomed: &[Target], options: &Options) -> Outcome {
    if options.clones {
        return Ok(());
    }
    let name = &target.name;
    let is_snapshot = target.types == Types::SNAPSHOT;
    let (below, elsewhere): (Vec<&Target>, Vec<&Target>) =
        doomed.iter().partition(|other| is_below(&other.name, name));
    let (flag, has, others) = match () {
        () if !options.recurses && !below.is_empty() => ("-r", "children", below),
        () if (options.recurses || is_snapshot) && !elsewhere.is_empty() => {
            ("-R", "dependent clones", elsewhere)
        }
        () => return Ok(()),
    };
    let names: Vec<&str> = others.iter().map(|other| other.name.as_str()).collect();
    Err(Fail::failed(format!(
        "cannot destroy '{name}': {} has {has}\nuse '{flag}' to destroy the following \
         datasets:\n{}",
        target.type_word(),
        names.join("\n")
    )))
}

fn destroy_snapshots(session: &Session, head: &str, spec: &str, options: &Options) -> Outcome {
    let head_name = head;
    let head = open(session, head, Types::FILESYSTEM.or(Types::VOLUME))?;
    let heads = if options.recurses {
        head.with_descendants()
    } else {
        Ok(vec![head.clone()])
    };
    let mut doomed = Vec::new();
    let mut reclaimed = 0;
    let mut outcome = Ok(());
    for head in heads.map_err(|e| cannot_iterate(&head, &e))? {
        let all = head.snapshots().map_err(|e| cannot_iterate(&head, &e))?;
        let chosen = choose(&all, spec);
        for (snapshot, _) in all.iter().zip(&chosen).filter(|(_, chosen)| **chosen) {
            if !options.clones && !options.defers {
                let needed = dependents(snapshot).map_err(|e| cannot_iterate(snapshot, &e))?;
                if let Err(fail) = check_dependents(snapshot, &needed, options) {
                    outcome = Err(fail.say(""));
                }
            }
            options.announce(&snapshot.name);
            doomed.push(snapshot.clone());
        }
        if options.verbose {
            reclaimed += space(&all, &chosen).map_err(|e| cannot_iterate(&head, &e))?;
        }
    }
    outcome?;
    if doomed.is_empty() {
        return Err(Fail::failed(
            "could not find any snapshots to destroy; check snapshot names.",
        ));
    }
    options.announce_space(reclaimed);
    if options.dry {
        return Ok(());
    }
    if options.clones {
        for snapshot in &doomed {
            for target in dependents(snapshot).map_err(|e| cannot_iterate(snapshot, &e))? {
                options.announce(&target.name);
                remove(&target)?;
            }
        }
    }
    let bar = progress(None, false);
    bar.set_message(format!("{head_name}@{spec}"));
    let outcome = remove_snapshots(&doomed, options.defers);
    bar.finish_and_clear();
    outcome
}

/// Which of a head's snapshots, oldest first, the list `a,b%c,d%` selects.
#[doc(alias = "zfs_iter_snapspec")]
fn choose(all: &[Target], spec: &str) -> Vec<bool> {
    let names: Vec<&str> = all
        .iter()
        .filter_map(|t| t.name.split('@').nth(1))
        .collect();
    let mut chosen = vec![false; names.len()];
    let at = |name: &str| names.iter().position(|other| *other == name);
    for part in spec.split(',') {
        let range = match part.split_once('%') {
            None => at(part).map(|at| (at, at)),
            Some((first, last)) => {
                let first = if first.is_empty() { Some(0) } else { at(first) };
                let last = if last.is_empty() {
                    names.len().checked_sub(1)
                } else {
                    at(last)
                };
                first.zip(last)
            }
        };
        // A range that does not exist, or ends before it starts, selects none.
        if let Some((first, last)) = range.filter(|(first, last)| first <= last) {
            chosen[first..=last].fill(true);
        }
    }
    chosen
}

/// The space that destroying the chosen snapshots would free: adjacent ones free more together than the sum
/// of each.
fn space(all: &[Target], chosen: &[bool]) -> Result<u64> {
    let mut total = 0;
    let mut at = 0;
    while at < all.len() {
        let run = chosen[at..].iter().take_while(|chosen| **chosen).count();
        if run > 0 {
            let (first, last) = (&all[at], &all[at + run - 1]);
            if let Some((from, to)) = first.dataset().zip(last.dataset()) {
                total += first
                    .datasets()
                    .space_would_free(from, to)?
                    .used
                    .max(0)
                    .cast_unsigned();
            }
        }
        at += run.max(1);
    }
    Ok(total)
}

fn destroy_bookmark(session: &Session, name: &str, options: &Options) -> Outcome {
    let unsupported = [
        (options.dry, "dryrun"),
        (options.defers, "defer destroy"),
        (options.recurses, "recursive"),
    ];
    if let Some((_, what)) = unsupported.iter().find(|(given, _)| *given) {
        // The exit code of OpenZFS's command, which is -1.
        let text = format!("{what} is not supported with bookmark");
        return Err(Fail::Exits(255, text));
    }
    let Some(target) = open_if_there(session, name, Types::BOOKMARK)? else {
        let text = format!("bookmark '{name}' does not exist.");
        return Err(Fail::failed(text));
    };
    let destroyed = target
        .pool
        .change_datasets(|datasets| datasets.destroy_bookmark(name));
    destroyed.map_err(|e| Fail::of(format!("cannot destroy bookmark '{name}'"), &e))
}
