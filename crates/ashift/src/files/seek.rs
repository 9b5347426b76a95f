//! Rescuing from disks whose labels lead nowhere: what `--scan` searches for and finds.
//!
//! # What it is
//! The roots of the MOS that are found become states of the pool like those that labels name. If none opens, or data
//! sets are lost in the one that does, file systems and volumes are copied by their own roots. Their names are in the
//! MOS alone: they are called after the txg that they were written in. Files that none of them has, and whose dnodes
//! are found, have not even numbers: they are called after where their dnodes are. They may have been deleted before.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use admin::number::nice_bytes;
use base::ErrorKind;
use dmu::Objset;
use phys::ObjsetType;
use service::{Lineage, Past, Remains, Searched};
use spa::{FileIdentity, Seek};

use super::Run;
use super::rescue::{note, save_files, save_volume};
use super::salvage::{Left, Salvage};
use super::volume;
use crate::caller;
use crate::failure::Fail;
use crate::progress::progress;

/// Where files go whose file system is lost.
const ORPHANS: &str = "unknown-files";
/// Why a file may not be what it seems to be.
const ONCE: &str =
    "there is one copy of its dnode, which nothing verifies: its length may be wrong";
/// How far the search is, and what it has sighted.
const JOURNAL: &str = "rescue.scan";

/// Searches the devices of a pool.
///
/// # Errors
/// Those of [`Past::seek`].
pub(super) fn search(past: &mut Past, folder: &Path) -> Result<(), Fail> {
    let total = past.bytes_to_seek()?;
    let bar = progress(Some(total), true);
    bar.set_message("looking for metadata");
    let mut has_read = false;
    past.seek(&folder.join(JOURNAL), &mut |searched| {
        caller::check();
        match searched {
            Searched::Bytes(bytes) => bar.set_position(bytes),
            Searched::Places(looked, all) => {
                if !std::mem::replace(&mut has_read, true) {
                    bar.set_message("looking at what was found");
                }
                bar.set_length(all);
                bar.set_position(looked);
            }
        }
    })?;
    bar.finish_and_clear();
    let found = past.states().iter().filter(|state| state.is_found());
    eprintln!(
        "ashift rescue: {} searched, {} states found that no label names",
        nice_bytes(total),
        found.count()
    );
    Ok(())
}

/// What can still be done where no state opens.
pub(super) fn advice(past: &Past) -> String {
    let much = past.bytes_to_seek().map_or_else(
        |error| format!("which is not possible: {error}"),
        |bytes| format!("reads {}", nice_bytes(bytes)),
    );
    format!("--scan searches the disks for its metadata ({much})")
}

/// The file systems and volumes of a state, to tell them from others.
#[derive(Default)]
pub(super) struct Known {
    lineages: BTreeSet<Lineage>,
    files: BTreeSet<FileIdentity>,
}

/// What a state has, if something may be lost in it that can be found besides; `None` if all is there.
pub(super) fn known(remains: &Remains) -> Option<Known> {
    let (names, unlisted) = remains.datasets();
    let (mut known, mut is_lost) = (Known::default(), !unlisted.is_empty());
    let mut objsets = Vec::new();
    for name in names {
        let lineage = remains.objset(&name).and_then(|objset| {
            objsets.push(Arc::clone(&objset));
            match objset.type_() {
                ObjsetType::Zfs => {
                    let mount = remains.mount(&name)?;
                    Lineage::of_mount(&mount)
                }
                _ => Lineage::of_volume(&objset),
            }
        });
        match lineage {
            Ok(lineage) => {
                known.lineages.insert(lineage);
            }
            // Without its key it cannot be told, but what was found of it cannot be read either.
            Err(error) => is_lost |= error.kind() != ErrorKind::NoKey,
        }
    }
    is_lost.then(|| {
        objsets.iter().for_each(|objset| known.add(objset));
        known
    })
}

impl Known {
    fn add(&mut self, objset: &Objset) {
        caller::check();
        Seek::identities(objset, &mut self.files);
    }
}

/// Copies what was found that no data set leads to. Returns how much that was.
///
/// # Errors
/// Those of writing.
pub(super) fn save_adrift(
    past: &Past,
    mut known: Known,
    folder: &Path,
    salvage: &mut Salvage,
    run: &mut Run,
) -> Result<usize, Fail> {
    let all = past.adrift(&known.lineages);
    for (n, adrift) in all.iter().enumerate() {
        let before = all[..n].iter().filter(|other| other.txg == adrift.txg);
        let name = format!("unknown-{}-{}", adrift.txg, before.count() + 1);
        let lost = "its name is not known, nor its snapshots".to_owned();
        salvage.note(&name, &Left::Names(lost))?;
        let saved = match &adrift.mount {
            Some(mount) => save_files(mount, &name, folder, salvage, run),
            None => save_volume(&adrift.objset, &name, folder, salvage, run),
        };
        run.note(&name, saved);
        known.add(&adrift.objset);
    }
    let orphans = save_orphans(past, &known.files, &folder.join(ORPHANS), salvage, run)?;
    Ok(all.len() + orphans)
}

/// Copies the files that were found by their dnodes alone.
fn save_orphans(
    past: &Past,
    known: &BTreeSet<FileIdentity>,
    folder: &Path,
    salvage: &mut Salvage,
    run: &mut Run,
) -> Result<usize, Fail> {
    run.show_progress(false);
    run.bar.set_message("looking for files without names");
    let bar = run.bar.clone();
    let files = past.orphans(known, &mut |all| {
        caller::check();
        bar.set_length(all);
        bar.inc(1);
    });
    run.bar.finish_and_clear();
    let mut gone = 0;
    for file in &files {
        let name = file.name();
        let shown = format!("{ORPHANS}:/{name}");
        if salvage.is_done(&shown) {
            continue;
        }
        let place = folder.join(&name);
        let left = match past.open_orphan(file) {
            Ok(data) => {
                let saved = volume::save_data((data, file.size), &place, &shown, salvage, run);
                let Some(left) = run.note(&shown, saved) else {
                    continue;
                };
                left
            }
            Err(error) => Left::Gone(error.to_string()),
        };
        // Most of these were deleted, and their blocks overwritten: a name that says nothing is not worth a line.
        if matches!(left, Left::Gone(_)) {
            let _ = std::fs::remove_file(&place);
            gone += 1;
            continue;
        }
        let left = match left {
            Left::Whole if !file.is_sure => Left::Unsure(ONCE.to_owned()),
            other => other,
        };
        note(salvage, run, &shown, &left)?;
    }
    run.bar.finish_and_clear();
    if gone > 0 {
        eprintln!("ashift rescue: of {gone} files without names nothing is left");
    }
    Ok(files.len() - gone)
}
