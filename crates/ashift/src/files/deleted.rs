//! Files that were deleted, and earlier versions of files: what the states before have of them.
//!
//! # What it is
//! The states of a pool are gone through from the newest to the oldest. Of each file system, the blocks of dnodes that
//! the next newer state does not have as they are may hold files that are gone there, or that had another content. Each
//! is copied into the folder named after the txg of the newest state that still has it, with its path in that state.
//!
//! # What is left
//! What a file had is free space in the newer states, and may be overwritten by now: its checksums say what is not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use base::{Context, Error, ErrorKind, Result};
use dmu::{ObjectWalk, Objset};
use phys::BlkPtrPhys;
use phys::dnode::DNODES_PER_BLOCK;
use service::{Past, PastState, Remains};
use zpl::mount::Mount;
use zpl::{Attr, FileType, Time};

use super::Run;
use super::copy::{Copy, Options};
use super::host_tree::HostTree;
use super::pool_tree::PoolTree;
use super::rescue::{FAILURES_MAX, FOUND, Locks};
use super::salvage::Salvage;
use super::tree::{Handle, Meta, Tree};
use crate::caller;

/// The file systems of a state that can be read, by the object of their data set.
struct Opened {
    mounts: BTreeMap<u64, (String, Arc<Mount>)>,
    /// What the mounts are in: dropped after them.
    _remains: Remains,
}

impl Opened {
    /// `locked` gets the names of those whose key is not known.
    fn new(remains: Remains, locks: &Locks<'_>, locked: &mut BTreeSet<String>) -> Opened {
        let mut mounts = BTreeMap::new();
        for name in remains.datasets().0 {
            if !locks.open_without_asking(&remains, &name) {
                locked.insert(name);
            } else if let Ok(mount) = remains.mount(&name) {
                let object = mount.dataset().object().0;
                mounts.insert(object, (name, Arc::new(mount)));
            }
        }
        Opened {
            mounts,
            _remains: remains,
        }
    }
}

/// Where files are copied to, and how.
pub(super) struct Target<'a> {
    /// The folder of the whole rescue.
    pub(super) folder: &'a Path,
    pub(super) options: &'a Options,
}

/// Saves what the states before one have that it has no more.
///
/// # Errors
/// Errors of writing.
pub(super) fn save(
    past: &Past,
    (newest, remains): (&PastState, Remains),
    locks: &Locks<'_>,
    target: &Target<'_>,
    (salvage, run): (&mut Salvage, &mut Run),
) -> Result<()> {
    run.show_progress(true);
    let (mut locked, mut unopened) = (BTreeSet::new(), 0);
    let mut newer = Opened::new(remains, locks, &mut locked);
    let is_older = |state: &&PastState| state.txg < newest.txg;
    for state in past.states().iter().filter(is_older) {
        caller::check();
        run.bar.set_message(format!("txg {}", state.txg));
        // A state that does not open has lost its metadata; an older one may have more.
        let Ok(remains) = past.open(state) else {
            unopened += 1;
            continue;
        };
        let older = Opened::new(remains, locks, &mut locked);
        for (object, (name, mount)) in &older.mounts {
            let next = newer.mounts.get(object).map(|(_, mount)| &**mount);
            let label = format!("{}:{name}", state.txg);
            let place = target.folder.join(state.txg.to_string()).join(name);
            let files = files_before(mount, next);
            if !files.is_empty() {
                copy(
                    mount,
                    &files,
                    (&label, &place),
                    target.options,
                    (salvage, run),
                )?;
            }
        }
        newer = older;
    }
    run.bar.finish_and_clear();
    if unopened > 0 {
        eprintln!("ashift rescue: {unopened} earlier states cannot be opened");
    }
    for name in locked {
        eprintln!("ashift rescue: {name}: what earlier states have of it needs --key");
    }
    Ok(())
}

/// The files and links of a state that the next newer one has no more, or not with this content.
fn files_before(older: &Mount, newer: Option<&Mount>) -> Vec<Attr> {
    let mut files = Vec::new();
    let (mut blkid, mut failed, mut walk) = (0, 0, ObjectWalk::default());
    while failed < FAILURES_MAX {
        caller::check();
        match older.objset().used_dnode_block(blkid, &mut walk) {
            Ok(None) => break,
            Ok(Some((found, bp))) => {
                (blkid, failed) = (found + 1, 0);
                if !newer.is_some_and(|newer| has_block(newer.objset(), found, &bp)) {
                    files.extend(files_in(older, newer, found));
                }
            }
            Err(_) => (blkid, failed) = (blkid + 1, failed + 1),
        }
    }
    files
}

/// Whether a state has the same dnodes in a block.
fn has_block(objset: &Objset, blkid: u64, bp: &BlkPtrPhys) -> bool {
    let identity = |bp: &BlkPtrPhys| (bp.birth(), bp.cksum_words());
    let other = objset.dnode_block(blkid);
    other.is_ok_and(|other| identity(&other) == identity(bp))
}

fn files_in(older: &Mount, newer: Option<&Mount>, blkid: u64) -> Vec<Attr> {
    let first = blkid * DNODES_PER_BLOCK;
    let attrs = (first..first + DNODES_PER_BLOCK).filter_map(|id| {
        let attr = older.getattr(base::ObjectId(id)).ok()?;
        let file_type = attr.file_type()?;
        let is_file = matches!(file_type, FileType::Regular | FileType::Symlink);
        let is_named = attr.links > 0 && !attr.is_xattr();
        (is_file && is_named).then_some(attr)
    });
    let content = |attr: &Attr| (attr.generation, attr.size, attr.mtime);
    let is_kept = |attr: &Attr| {
        let other = newer.and_then(|newer| newer.getattr(attr.id).ok());
        other.is_some_and(|other| other.links > 0 && content(&other) == content(attr))
    };
    attrs.filter(|attr| !is_kept(attr)).collect()
}

fn copy(
    mount: &Arc<Mount>,
    files: &[Attr],
    (label, place): (&str, &Path),
    options: &Options,
    (salvage, run): (&mut Salvage, &mut Run),
) -> Result<()> {
    let shown = place.display().to_string();
    let made = std::fs::create_dir_all(place).map_err(Error::from);
    made.within(|| shown.clone())?;
    let (source, target) = (PoolTree(Arc::clone(mount)), HostTree);
    let root = target.enter(&target.resolve(&shown)?)?;
    let mut copy = Copy::new(
        options,
        run,
        (&source, true),
        (&target, false),
        (&root, &shown, false),
    );
    copy.salvage = Some(salvage);
    for attr in files {
        let path = mount.path_of(attr.id);
        let path = path.unwrap_or_else(|_| format!("/{FOUND}/{}", attr.id).into_bytes());
        let mut names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        let name = names.pop().unwrap_or_default();
        let folder = String::from_utf8_lossy(&names.join(&b'/')).into_owned();
        let shown = format!("{label}:{folder}/");
        match folder_of(&target, &root, &names) {
            Ok(dir) => copy.single(&Handle::Object(attr.id), &dir, &shown, name),
            Err(error) => copy.lost(&format!("{shown}{}", name.escape_ascii()), error),
        }
    }
    Ok(())
}

/// The folder of these names below another, made if it is not there.
fn folder_of(target: &HostTree, root: &Handle, names: &[&[u8]]) -> Result<Handle> {
    let mut at = root.clone();
    for name in names.iter().filter(|name| !name.is_empty()) {
        let child = match target.child(&at, name) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                target.make(&at, name, &new_folder(), b"")
            }
            other => other,
        };
        at = target.enter(&child?)?;
    }
    Ok(at)
}

fn new_folder() -> Meta {
    let never = Time::default();
    Meta {
        file_type: FileType::Directory,
        mode: 0o755,
        uid: 0,
        gid: 0,
        size: 0,
        rdev: 0,
        links: 2,
        identity: (0, 0),
        used_bytes: 0,
        blksz: 0,
        atime: never,
        mtime: never,
        ctime: never,
        crtime: None,
    }
}
