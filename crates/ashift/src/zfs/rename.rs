//! `zfs rename` and `zfs promote`.
//!
//! Source: OpenZFS lib/libzfs/libzfs_dataset.c (`zfs_rename`, `zfs_promote`).

use std::collections::BTreeSet;
use std::sync::Arc;

use admin::getopt::Parsed;
use admin::name::{NameKind, check_name, dataset_of, parent_of, pool_of};
use admin::prop::Types;
use base::ErrorKind;
use service::{DatasetsWriter, Mountpoint, OpenPool, Session};

use super::create::{make_ancestors, place};
use super::fail::{Fail, Outcome};
use super::target::{Target, exists, find, open};
use crate::mounting::{Change, Moved};

/// `zfs rename`.
pub(super) fn rename(session: &Session, parsed: &Parsed) -> Outcome {
    let (old, new) = match &parsed.operands[..] {
        [] => return Err(Fail::usage("missing source dataset argument")),
        [_] => return Err(Fail::usage("missing target dataset argument")),
        [old, new] => (old.as_str(), new.as_str()),
        _ => return Err(Fail::usage("too many arguments")),
    };
    let (ancestors, recursive) = (parsed.has('p'), parsed.has('r'));
    if ancestors && recursive {
        return Err(Fail::usage("-p and -r options are mutually exclusive"));
    }
    if ancestors && parsed.has('u') {
        return Err(Fail::usage("-u and -p options are mutually exclusive"));
    }
    if recursive && !old.contains('@') {
        return Err(Fail::usage(
            "source dataset for recursive rename must be a snapshot",
        ));
    }
    let types = match (recursive, ancestors) {
        (true, _) => Types::SNAPSHOT,
        (_, true) => Types::FILESYSTEM.or(Types::VOLUME),
        _ => Types::DATASET,
    };
    let source = open(session, old, types)?;
    if source.types == Types::SNAPSHOT {
        rename_snapshot(&source, new, recursive)
    } else {
        rename_head(session, &source, new, (ancestors, parsed.has('u')))
    }
}

fn rename_snapshot(source: &Target, new: &str, recursive: bool) -> Outcome {
    let old = source.name.as_str();
    let (fs, old_snap) = old.split_once('@').expect("a snapshot has an at sign");
    let full = match new.starts_with('@') {
        true => format!("{fs}{new}"),
        // `zfs rename a@b c` means `a@c`.
        false if !new.contains(['@', '/']) => format!("{fs}@{new}"),
        false => new.to_owned(),
    };
    let wrong = |why: &str| Fail::failed(format!("cannot rename to '{full}': {why}"));
    check_name(&full, NameKind::Snapshot, true).map_err(|e| wrong(&e.to_string()))?;
    if dataset_of(&full) != fs {
        return Err(wrong("snapshots must be part of same dataset"));
    }
    let new_snap = &full[fs.len() + 1..];
    if new_snap == old_snap {
        return Ok(());
    }
    let rename =
        |datasets: DatasetsWriter<'_>| datasets.rename_snapshot(fs, old_snap, new_snap, recursive);
    let outcome = source.pool.change_datasets(rename);
    outcome.map_err(|e| match (recursive, e.kind()) {
        (true, ErrorKind::Exists) => Fail::failed(format!(
            "cannot rename '{old}': a child dataset already has a snapshot with the new name"
        )),
        _ => Fail::of(format!("cannot rename '{old}'"), &e),
    })
}

fn rename_head(
    session: &Session,
    source: &Target,
    new: &str,
    (ancestors, stays_mounted): (bool, bool),
) -> Outcome {
    let old = source.name.as_str();
    if old == new {
        return Ok(());
    }
    let wrong = |why: &str| Fail::failed(format!("cannot rename to '{new}': {why}"));
    check_name(new, NameKind::Dataset, true).map_err(|e| wrong(&e.to_string()))?;
    if new
        .strip_prefix(old)
        .is_some_and(|rest| rest.starts_with('/'))
    {
        return Err(wrong(
            "New dataset name cannot be a descendant of current dataset name",
        ));
    }
    let pool = place(session, new, ancestors)?;
    if pool_of(old) != pool_of(new) {
        return Err(wrong("datasets must be within same pool"));
    }
    let what = format!("cannot rename '{old}'");
    if exists(&pool, new).map_err(|e| Fail::of(&what, &e))? {
        return Err(Fail::failed(format!("{what}: dataset already exists")));
    }
    if parent_of(old).is_none() {
        return Err(Fail::failed(format!(
            "{what}: operation does not apply to pools"
        )));
    }
    if ancestors {
        make_ancestors(&pool, new)?;
    }
    let mut moved = match stays_mounted {
        true => None,
        false => move_mounts(&pool, old).map_err(|e| Fail::of(&what, &e))?,
    };
    if let Some(moved) = &mut moved {
        moved.take_down()?;
    }
    let renamed = pool.change_datasets(|datasets| datasets.rename(old, new));
    if let Some(moved) = &mut moved {
        if renamed.is_ok() {
            moved.rename(old, new);
        }
        moved.put_back();
    }
    renamed.map_err(|e| match e.kind() {
        ErrorKind::NameTooLong => Fail::failed(format!(
            "{what}: the name of a dataset below it would be too long, or too deep"
        )),
        _ => Fail::of(&what, &e),
    })
}

/// The mounts that move when a head gets another name; none if it is not mounted by itself.
fn move_mounts(pool: &Arc<OpenPool>, name: &str) -> base::Result<Option<Moved>> {
    let settings = pool.mount_settings(name)?;
    let is_at = settings.is_some_and(|settings| matches!(settings.mountpoint, Mountpoint::At(_)));
    let moved = is_at.then(|| Moved::of(pool, name, Change::Name));
    moved.transpose()
}

/// `zfs promote`.
pub(super) fn promote(session: &Session, parsed: &Parsed) -> Outcome {
    let name = match &parsed.operands[..] {
        [] => return Err(Fail::usage("missing clone filesystem argument")),
        [name] => name.as_str(),
        _ => return Err(Fail::usage("too many arguments")),
    };
    let clone = open(session, name, Types::FILESYSTEM.or(Types::VOLUME))?;
    let what = format!("cannot promote '{name}'");
    let origin = clone
        .dataset()
        .map(|ds| clone.datasets().stats(ds))
        .transpose();
    let origin = origin
        .map_err(|e| Fail::of(&what, &e))?
        .and_then(|stats| stats.origin);
    let Some(origin) = origin else {
        return Err(Fail::failed(format!("{what}: not a cloned filesystem")));
    };
    let promoted = clone
        .pool
        .change_datasets(|datasets| datasets.promote(name));
    promoted.map_err(|e| match e.kind() {
        ErrorKind::Exists => {
            let snap = conflict(&clone, &origin).unwrap_or_default();
            Fail::failed(format!(
                "{what}: conflicting snapshot '{snap}' from parent '{origin}'"
            ))
        }
        _ => Fail::of(&what, &e),
    })
}

/// A snapshot name that the clone already has and would also take over from its origin.
fn conflict(clone: &Target, origin: &str) -> Option<String> {
    let snap = |target: &Target| target.name.split('@').nth(1).map(str::to_owned);
    let own: BTreeSet<String> = clone.snapshots().ok()?.iter().filter_map(snap).collect();
    let parent = find(&clone.pool, dataset_of(origin)).ok()?;
    let others = parent.snapshots().ok()?;
    let end = others.iter().position(|other| other.name == origin)?;
    others[..=end]
        .iter()
        .filter_map(snap)
        .find(|name| own.contains(name))
}
