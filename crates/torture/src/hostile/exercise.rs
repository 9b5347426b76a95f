//! What the commands do to a pool, done to one that lies: every call may fail, none may do harm.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{ObjectId, Result};
use geom::Provider;
use spa::Spa;
use zpl::mount::{Mount, mount};
use zpl::{Create, FileType, Filesystem, SetXattr};

use crate::pool;

/// Files and directories that are examined in one dataset.
const NODES_MAX: usize = 120;
/// Datasets that are examined.
const DATASETS_MAX: usize = 24;
/// Objects of the meta-objset that are examined.
const OBJECTS_MAX: u64 = 256;
/// Segments that are looked for in one file.
const SEGMENTS_MAX: usize = 100;
/// Slices of a scrub that are waited for.
const SLICES_MAX: usize = 100;
/// How many variants of what is done there are.
pub(crate) const PLANS: u64 = 64;
/// Bytes that are read at each end of a file.
const READ_BYTES: usize = 32 << 10;

const CREATE: Create = Create {
    mode: 0o644,
    uid: 0,
    gid: 0,
};

/// How far the exercise got.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it opened for reading.
    pub is_readable: bool,
    /// Whether it opened for writing.
    pub is_writable: bool,
    /// Calls that did what they were asked.
    pub done: u64,
    /// Calls that failed.
    pub failed: u64,
}

impl Outcome {
    /// Counts a result: errors are expected, but must say what is wrong.
    pub(super) fn take<T>(&mut self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => {
                self.done += 1;
                Some(value)
            }
            Err(error) => {
                self.failed += 1;
                let text = error.to_string();
                assert!(
                    !text.is_empty() && !text.ends_with(": "),
                    "an error without words: {text:?}"
                );
                None
            }
        }
    }
}

/// Opens the pool on these devices, reads everything, then changes it; the bits of `plan` choose the variant.
pub fn exercise(devices: &[Arc<dyn Provider>], plan: u64) -> Outcome {
    let mut outcome = Outcome::default();
    if let Some(spa) = outcome.take(pool::open(devices, true)) {
        outcome.is_readable = true;
        look(&spa, &mut outcome);
    }
    if let Some(spa) = outcome.take(pool::open(devices, false)) {
        outcome.is_writable = !spa.is_readonly();
        change(&spa, plan, &mut outcome);
        let ended = if plan & 1 == 0 {
            spa.export()
        } else {
            spa.close()
        };
        outcome.take(ended);
    }
    outcome
}

fn look(spa: &Spa, outcome: &mut Outcome) {
    outcome.take(spa.for_each_record(&mut |_| Ok(())));
    outcome.take(Ok(spa.scan()));
    let _ = (spa.config(), spa.space(), spa.props());
    for name in names(spa, outcome) {
        dataset(spa, &name, outcome);
    }
    meta_objects(spa, outcome);
    outcome.take(pool::verify(spa));
}

/// Datasets and snapshots, at most `2 * DATASETS_MAX`.
fn names(spa: &Spa, outcome: &mut Outcome) -> Vec<String> {
    let dsl = spa.parts().dsl();
    let heads = outcome.take(dsl.descendants(&spa.name()));
    let mut names = Vec::new();
    for head in heads.unwrap_or_default().into_iter().take(DATASETS_MAX) {
        let ds = outcome.take(dsl.dataset(&head));
        let snaps = ds.and_then(|ds| outcome.take(dsl.snapshots(&ds)));
        let snaps = snaps.unwrap_or_default();
        names.extend(snaps.iter().map(|(snap, _)| format!("{head}@{snap}")));
        names.push(head);
    }
    names.truncate(2 * DATASETS_MAX);
    names
}

fn dataset(spa: &Spa, name: &str, outcome: &mut Outcome) {
    let dsl = spa.parts().dsl();
    let Some(ds) = outcome.take(dsl.dataset(name)) else {
        return;
    };
    outcome.take(dsl.stats(&ds));
    outcome.take(dsl.props(&ds));
    outcome.take(dsl.received_props(&ds));
    if ds.is_snapshot() {
        outcome.take(dsl.holds(&ds));
    } else {
        outcome.take(dsl.bookmarks(&ds));
        if let Some(snaps) = outcome.take(dsl.snapshots(&ds))
            && let (Some((_, first)), Some((_, last))) = (snaps.first(), snaps.last())
        {
            outcome.take(dsl.space_written(first, last));
            outcome.take(dsl.space_written(first, &ds));
            outcome.take(dsl.space_would_free(first, last));
        }
    }
    let Some(fs) = outcome.take(mount(dsl, name, true)) else {
        return;
    };
    for id in walk(&fs, outcome) {
        file(&fs, id, outcome);
    }
    let _ = fs.statfs();
}

/// Everything below the root, each object once.
fn walk(fs: &Filesystem, outcome: &mut Outcome) -> Vec<ObjectId> {
    let mut seen = BTreeSet::from([fs.root()]);
    let mut found = vec![fs.root()];
    let mut at = 0;
    while at < found.len() && found.len() < NODES_MAX {
        let id = found[at];
        at += 1;
        let attr = outcome.take(fs.getattr(id));
        if attr.is_none_or(|attr| attr.file_type() != Some(FileType::Directory)) {
            continue;
        }
        for entry in outcome.take(fs.list(id)).unwrap_or_default() {
            if outcome.take(fs.lookup(id, &entry.name)).is_some() && seen.insert(entry.id) {
                found.push(entry.id);
            }
        }
    }
    found
}

fn file(fs: &Filesystem, id: ObjectId, outcome: &mut Outcome) {
    let Some(attr) = outcome.take(fs.getattr(id)) else {
        return;
    };
    for name in outcome.take(fs.listxattr(id)).unwrap_or_default() {
        outcome.take(fs.getxattr(id, &name));
    }
    match attr.file_type() {
        Some(FileType::Regular) => {
            let mut bytes = vec![0; READ_BYTES];
            outcome.take(fs.read(id, 0, &mut bytes));
            let end = attr.size.saturating_sub(READ_BYTES as u64);
            outcome.take(fs.read(id, end, &mut bytes));
            outcome.take(fs.contents(id, 0, READ_BYTES as u64));
            outcome.take(fs.seek_data(id, attr.size / 2));
            outcome.take(fs.seek_hole(id, 0));
            outcome.take(segments(fs, id));
        }
        Some(FileType::Symlink) => {
            outcome.take(fs.readlink(id));
        }
        _ => {}
    }
}

/// Walks the first data segments of a file, as a copying program does.
fn segments(fs: &Filesystem, id: ObjectId) -> Result<()> {
    let mut at = 0;
    for _ in 0..SEGMENTS_MAX {
        let Some(start) = fs.objset().hold(id)?.next_data(at)? else {
            break;
        };
        let end = fs.objset().hold(id)?.next_hole(start)?;
        assert!(at <= start && start < end, "data at {start} ends at {end}");
        at = end;
    }
    Ok(())
}

/// Walks the MOS objects, as `zdb -dd` does.
fn meta_objects(spa: &Spa, outcome: &mut Outcome) {
    let mos = spa.parts().mos();
    for object in (1..OBJECTS_MAX).map(ObjectId) {
        let Ok(dnode) = mos.hold(object) else {
            continue;
        };
        let mut start = vec![0; 512];
        outcome.take(dnode.read(0, &mut start));
        if let Ok(zap) = zap::Zap::new(dnode) {
            outcome.take(zap.stats());
            outcome.take(zap.iter().collect::<Result<Vec<_>>>());
        }
    }
}

fn change(spa: &Spa, plan: u64, outcome: &mut Outcome) {
    let names = names(spa, outcome);
    let heads: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| !name.contains('@'))
        .collect();
    for name in &heads {
        if let Some(fs) = outcome.take(mount(spa.parts().dsl(), name, false)) {
            change_files(&fs, plan, outcome);
        }
    }
    outcome.take(spa.sync());
    let new = format!("{}/new", spa.name());
    outcome.take(pool::create_fs(spa, &new, &[]));
    let snaps: Vec<String> = heads.iter().map(|head| format!("{head}@new")).collect();
    for snap in &snaps {
        outcome.take(spa.parts().dsl().snapshot(&[snap], Vec::new()));
    }
    for name in &heads {
        let number = phys::PropValue::Number(1 << 20);
        outcome.take(spa.parts().dsl().set_prop(name, "refreservation", number));
    }
    outcome.take(spa.log_command("zpool hostile"));
    outcome.take(spa.sync());
    if plan & 2 == 0 {
        for name in &heads {
            outcome.take(spa.parts().dsl().promote(name));
        }
    }
    if plan & 32 != 0 {
        administer(spa, &names, outcome);
    }
    if plan & 64 != 0 {
        go_on(spa, outcome);
    }
    destroy(spa, &names, plan, outcome);
    outcome.take(spa.sync());
}

/// Goes on for a while with what the pool was at: an expansion, a removal, a sequential resilver.
fn go_on(spa: &Spa, outcome: &mut Outcome) {
    let mut slices = 0;
    let mut goes_on = || {
        slices += 1;
        slices % SLICES_MAX != 0
    };
    outcome.take(spa.wait_expansion(&mut |_, _| goes_on()));
    outcome.take(spa.wait_removal(&mut |_| goes_on()));
    outcome.take(spa.wait_rebuild(&mut |_, _| goes_on()));
}

/// Scrubs, clones, holds, renames, reserves.
fn administer(spa: &Spa, names: &[String], outcome: &mut Outcome) {
    let dsl = spa.parts().dsl();
    outcome.take(spa.scrub());
    let mut slices = 0;
    outcome.take(spa.wait_scan(&mut |_| {
        slices += 1;
        slices < SLICES_MAX
    }));
    for (at, name) in names.iter().enumerate() {
        if name.contains('@') {
            outcome.take(dsl.hold(&[name], "tag"));
            let clone = format!("{}/clone{at}", spa.name());
            outcome.take(dsl.clone_dataset(&clone, name, Vec::new()));
        } else {
            for (prop, bytes) in [
                ("reservation", 2 << 20),
                ("refreservation", 0),
                ("quota", 1 << 40),
            ] {
                outcome.take(dsl.set_prop(name, prop, phys::PropValue::Number(bytes)));
            }
        }
        outcome.take(dsl.rename(name, &format!("{name}x")));
        outcome.take(dsl.rename(&format!("{name}x"), name));
    }
    outcome.take(spa.sync());
    for name in names {
        if name.contains('@') {
            outcome.take(dsl.release(&[name], "tag"));
        } else {
            outcome.take(dsl.set_prop(name, "reservation", phys::PropValue::Number(0)));
        }
    }
    let new = format!("{}/new", spa.name());
    let elsewhere = names
        .iter()
        .find(|name| !name.contains('@') && name.contains('/'));
    if let Some(parent) = elsewhere {
        outcome.take(dsl.rename(&new, &format!("{parent}/new")));
    }
    outcome.take(spa.sync());
}

fn change_files(fs: &Mount, plan: u64, outcome: &mut Outcome) {
    let root = fs.root();
    if let Some(new) = outcome.take(fs.create_file(root, b"new file", &CREATE)) {
        outcome.take(fs.write(new.id, 0, &[9; 20_000]));
        outcome.take(fs.setxattr(new.id, b"user.new", b"value", SetXattr::Set));
        outcome.take(fs.fsync(new.id));
    }
    outcome.take(fs.mkdir(root, b"new dir", &CREATE));
    for (at, id) in walk(fs, outcome).into_iter().enumerate().take(40) {
        match (at as u64 + plan) % 5 {
            0 => drop(outcome.take(fs.write(id, 100, &[1; 3000]))),
            1 => drop(outcome.take(fs.truncate(id, 10))),
            2 => drop(outcome.take(fs.setxattr(id, b"user.y", &[2; 700], SetXattr::Set))),
            3 => drop(outcome.take(fs.punch_hole(id, 0, 1 << 40))),
            _ => {}
        }
    }
    for entry in outcome.take(fs.list(root)).unwrap_or_default() {
        if plan & 4 == 0 {
            outcome.take(fs.unlink(root, &entry.name));
        }
        outcome.take(fs.rmdir(root, &entry.name));
    }
}

/// Destroys snapshots and heads, in an order and with options that `plan` chooses.
fn destroy(spa: &Spa, names: &[String], plan: u64, outcome: &mut Outcome) {
    let mut names: Vec<&String> = names.iter().collect();
    if plan & 8 == 0 {
        names.reverse();
    }
    let dsl = spa.parts().dsl();
    for round in 0..2 {
        for name in &names {
            if !name.contains('@') {
                outcome.take(dsl.destroy_head(name));
            } else if round == 0 {
                outcome.take(dsl.rollback(name.split('@').next().unwrap_or(""), None, 0));
                outcome.take(dsl.destroy_snapshots(&[name], plan & 16 == 0));
            }
        }
        outcome.take(spa.sync());
    }
}
