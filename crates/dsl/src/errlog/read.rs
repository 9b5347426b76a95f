//! Reading the error log: which blocks are damaged, in which datasets.
//!
//! # What it is
//! With `head_errlog` a log lists a block under its head. The error was found in one dataset, but
//! snapshots and clones may have the same block: those taken after its birth and before it was
//! overwritten. A dataset has it if the block at the same position there was born in the same txg.
//!
//! # Source
//! OpenZFS `module/zfs/spa_errlog.c` (`spa_get_errlog`, `process_error_block`, `check_filesystem`,
//! `find_birth_txg`). OpenZFS stops at the first snapshot younger than the block that the head now
//! has there; here each snapshot is checked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{ErrorKind, ObjectId, ObjsetId, Result, Txg};
use dmu::Objset;
use phys::BlkPtrPhys;
use phys::pool_names::{ERRLOG_LAST, ERRLOG_SCRUB};
use zio::Bookmark;

use super::{Entry, parse};
use crate::{DslDataset, DslPool};

impl DslPool {
    /// All blocks known to be damaged, in each dataset that has them: those in the logs, and those
    /// in `met`, found since.
    ///
    /// # Errors
    /// Any error from reading the MOS.
    #[doc(alias = "spa_get_errlog")]
    pub fn damaged(&self, met: &BTreeMap<Bookmark, Txg>) -> Result<BTreeSet<Bookmark>> {
        let _config = self.config().read();
        let by_head = self.logs_by_head();
        let mut found = BTreeSet::new();
        for (at, birth) in met {
            let dataset = ObjectId(at.objset.0);
            let entry = Entry {
                at: *at,
                birth: *birth,
            };
            match self.head_of_dataset(dataset) {
                Ok(head) if by_head && birth.0 != 0 => self.affected(head, &entry, &mut found)?,
                _ => drop(found.insert(*at)),
            }
        }
        for name in [ERRLOG_SCRUB, ERRLOG_LAST] {
            match self.error_log(name)? {
                Some(log) if by_head => self.damaged_by_head(log, &mut found)?,
                Some(log) => {
                    let names = self.names_in(log)?;
                    found.extend(names.iter().filter_map(|name| parse(name)));
                }
                None => {}
            }
        }
        Ok(found)
    }

    /// `process_error_log`
    fn damaged_by_head(&self, log: ObjectId, found: &mut BTreeSet<Bookmark>) -> Result<()> {
        for (head, errors) in self.mos().zap_int_entries(log)? {
            for name in self.names_in(ObjectId(errors))? {
                if let Some(entry) = Entry::parse(&name) {
                    self.affected(ObjectId(head), &entry, found)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn names_in(&self, zap: ObjectId) -> Result<Vec<String>> {
        let entries = zap::iter(self.mos().objset(), zap)?;
        entries
            .map(|entry| Ok(entry?.name_str().into_owned()))
            .collect()
    }
}

/// Finding the datasets that have a block.
impl DslPool {
    /// Adds the positions of a block in all datasets that have it; only that in the head, if the
    /// datasets cannot be read.
    #[doc(alias = "process_error_block")]
    pub(super) fn affected(
        &self,
        head: ObjectId,
        entry: &Entry,
        found: &mut BTreeSet<Bookmark>,
    ) -> Result<()> {
        let is_known = entry.birth.0 != 0 && head.0 != 0;
        match self.affected_from(head, entry, found) {
            Ok(()) if is_known => Ok(()),
            Err(error) if error.kind() == ErrorKind::Suspended => Err(error),
            _ => {
                found.insert(entry.within(head));
                Ok(())
            }
        }
    }

    fn affected_from(
        &self,
        head: ObjectId,
        entry: &Entry,
        found: &mut BTreeSet<Bookmark>,
    ) -> Result<()> {
        if entry.birth.0 == 0 || head.0 == 0 {
            return Ok(());
        }
        let oldest = match self.oldest_affected(head, entry.birth) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        let (mut heads, mut seen) = (vec![oldest], BTreeSet::new());
        while let Some(head) = heads.pop() {
            if seen.insert(head) {
                self.affected_below(head, entry, found, &mut heads)?;
            }
        }
        Ok(())
    }

    /// The head of the directory in which a block born in `birth` first appeared.
    #[doc(alias = "find_top_affected_fs")]
    fn oldest_affected(&self, head: ObjectId, birth: Txg) -> Result<ObjectId> {
        let mut oldest = self.dataset_by_object(head)?;
        while let Some(prev) = self.predecessor(oldest.object(), &oldest.fields())? {
            if prev.fields().creation_txg <= birth.0 {
                break;
            }
            oldest = prev;
        }
        Ok(ObjectId(oldest.dir().fields().head_dataset_obj))
    }

    /// Checks a head and its own snapshots. Clones of those that have the block are added to
    /// `heads`.
    #[doc(alias = "check_filesystem")]
    fn affected_below(
        &self,
        head: ObjectId,
        entry: &Entry,
        found: &mut BTreeSet<Bookmark>,
        heads: &mut Vec<ObjectId>,
    ) -> Result<()> {
        let ds = self.dataset_by_object(head)?;
        let is_in_head = has_block(&ds, entry)?;
        if is_in_head {
            found.insert(entry.within(head));
        }
        let mut snapshots = BTreeSet::new();
        let mut at = ds.clone();
        while let Some(prev) = self.predecessor(at.object(), &at.fields())? {
            let is_own = prev.dir().object() == ds.dir().object();
            if !is_own || prev.fields().creation_txg <= entry.birth.0 {
                break;
            }
            if is_in_head || has_block(&prev, entry)? {
                found.insert(entry.within(prev.object()));
                snapshots.insert(prev.object().0);
            }
            at = prev;
        }
        let clones = ds.dir().fields().clones;
        if clones == 0 || snapshots.is_empty() {
            return Ok(());
        }
        for clone in self.mos().zap_set_members(ObjectId(clones))? {
            let clone = self.dataset_by_object(ObjectId(clone))?;
            if snapshots.contains(&clone.dir().fields().origin_obj) {
                heads.push(clone.object());
            }
        }
        Ok(())
    }
}

/// Whether the dataset has that block; assumed so if the blocks leading to it cannot be read.
fn has_block(ds: &Arc<DslDataset>, entry: &Entry) -> Result<bool> {
    match birth_of(ds, &entry.within(ds.object())) {
        Ok(birth) => Ok(birth == Some(entry.birth)),
        Err(error) => match error.kind() {
            ErrorKind::Suspended => Err(error),
            _ => Ok(true),
        },
    }
}

/// The birth txg of the block now at a position of a dataset; `None` if there is none.
#[doc(alias = "find_birth_txg")]
pub(super) fn birth_of(ds: &Arc<DslDataset>, at: &Bookmark) -> Result<Option<Txg>> {
    Ok(block_of(ds, at)?.map(|bp| bp.allocation_birth()))
}

/// The block now at a position of a dataset; `None` if there is none.
pub(super) fn block_of(ds: &Arc<DslDataset>, at: &Bookmark) -> Result<Option<BlkPtrPhys>> {
    if at.level < 0 {
        // The root block; blocks of the intent log are not looked up.
        let is_root = at.level == Bookmark::ROOT_LEVEL;
        return Ok(is_root.then(|| ds.root_bp()));
    }
    block_in(&*ds.objset()?, at)
}

/// As [`block_of`], below the root block of an objset.
pub(super) fn block_in(objset: &Objset, at: &Bookmark) -> Result<Option<BlkPtrPhys>> {
    let Ok(level) = u8::try_from(at.level) else {
        return Ok(None);
    };
    let dnode = match objset.hold(at.object) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let bp = dnode.block_pointer(level, at.blkid)?;
    Ok(Some(bp).filter(|bp| !bp.is_hole()))
}

impl Entry {
    /// Its position in a dataset.
    fn within(&self, dataset: ObjectId) -> Bookmark {
        Bookmark {
            objset: ObjsetId(dataset.0),
            ..self.at
        }
    }
}
