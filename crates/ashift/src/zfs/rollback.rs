//! `zfs rollback`.
//!
//! Source: OpenZFS cmd/zfs/zfs_main.c (`zfs_do_rollback`).

use admin::getopt::Parsed;
use admin::prop::Types;
use base::{ErrorKind, Result};
use service::Session;

use super::destroy::dependents;
use super::fail::{Fail, Outcome};
use super::target::{Target, What, head_of, open};
use crate::mounting::{self, Aside};

/// `zfs rollback`.
pub(super) fn rollback(session: &Session, parsed: &Parsed) -> Outcome {
    let name = match &parsed.operands[..] {
        [] => return Err(Fail::usage("missing dataset argument")),
        [name] => name.as_str(),
        _ => return Err(Fail::usage("too many arguments")),
    };
    let (clones, recursive) = (parsed.has('R'), parsed.has('r') || parsed.has('R'));
    let snapshot = open(session, name, Types::SNAPSHOT)?;
    let what = format!("cannot rollback to '{name}'");
    let failed = |e: base::Error| Fail::of(&what, &e);
    let head = head_of(&snapshot).map_err(failed)?;
    let newer = newer(&head, &snapshot).map_err(failed)?;
    if !newer.is_empty() && !recursive {
        return Err(in_the_way(
            &what,
            "more recent snapshots or bookmarks exist",
            "'-r' to force deletion of the following snapshots and bookmarks",
            &newer,
        ));
    }
    let mut needed = Vec::new();
    for snapshot in &newer {
        needed.extend(dependents(snapshot).map_err(failed)?);
    }
    if !needed.is_empty() && !clones {
        return Err(in_the_way(
            &what,
            "clones of previous snapshots exist",
            "'-R' to force deletion of the following clones and dependents",
            &needed,
        ));
    }
    for target in needed.iter().chain(&newer) {
        mounting::unmount(&target.pool, &target.name)?;
        remove(target).map_err(|e| Fail::of(format!("cannot destroy '{}'", target.name), &e))?;
    }
    let aside = Aside::set(&head.pool, &head.name)?;
    let done = head
        .pool
        .change_datasets(|datasets| datasets.rollback(&head.name, name));
    aside.back();
    done.map_err(|e| match e.kind() {
        ErrorKind::Exists => {
            Fail::failed(format!("{what}: more recent snapshots or bookmarks exist"))
        }
        _ => Fail::of(format!("cannot rollback '{}'", head.name), &e),
    })
}

fn in_the_way(what: &str, why: &str, flag: &str, targets: &[Target]) -> Fail {
    let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
    Fail::failed(format!("{what}: {why}\nuse {flag}:\n{}", names.join("\n")))
}

/// What is newer than a snapshot: snapshots, then bookmarks.
fn newer(head: &Target, snapshot: &Target) -> Result<Vec<Target>> {
    let txg = |target: &Target| match &target.what {
        What::Dataset(ds) => ds.fields().creation_txg,
        What::Bookmark(bookmark) => bookmark.createtxg.0,
    };
    let mut all = head.snapshots()?;
    all.extend(head.bookmarks()?);
    let since = txg(snapshot);
    all.retain(|target| txg(target) > since);
    Ok(all)
}

fn remove(target: &Target) -> Result<()> {
    target.pool.change_datasets(|datasets| match target.types {
        Types::SNAPSHOT => datasets.destroy_snapshots(&[&target.name], false),
        Types::BOOKMARK => datasets.destroy_bookmark(&target.name),
        _ => datasets.destroy(&target.name),
    })
}
