//! Renaming directories and snapshots.
//!
//! Source: OpenZFS module/zfs/dsl_dir.c (`dsl_dir_rename`), module/zfs/dsl_dataset.c
//! (`dsl_dataset_rename_snapshot`) @be7657e3

use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result};
use dmu::Tx;
use phys::ObjsetType;
use phys::pool_names::{DD_FIELD_FILESYSTEM_COUNT, DD_FIELD_SNAPSHOT_COUNT};

use crate::dataset::DslDataset;
use crate::dir::{DslDir, Used};
use crate::names::{NAME_BYTES_MAX, NESTING_MAX};
use crate::pool::DslPool;
use crate::size::Space;
use crate::space::{SpaceCheck, common_ancestor};
use crate::synctask::Verdict;

impl DslPool {
    /// Renames a directory with its descendants, possibly moving it below another parent.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `NameTooLong`; `InvalidInput` when moved below itself or a volume;
    /// `CrossDevice` into another pool; `NoSpace` when a quota above the new parent does not allow
    /// it.
    #[doc(alias = "dsl_dir_rename")]
    pub fn rename(&self, old: &str, new: &str) -> Result<()> {
        let (from, to) = (old.to_string(), new.to_string());
        let check = move |pool: &DslPool, _: &Tx| {
            pool.rename_check(&from, &to)?;
            Ok(Verdict::Go)
        };
        let (from, to) = (old.to_string(), new.to_string());
        self.sync_task(3, SpaceCheck::Reserved, check, move |pool, tx| {
            pool.rename_sync(&from, &to, tx)
        })
    }

    #[doc(alias = "dsl_dir_rename_check")]
    fn rename_check(&self, old: &str, new: &str) -> Result<()> {
        let dd = self.find_dir(old)?;
        let parent = dd.parent();
        let Some(parent) = parent else {
            return Err(Error::invalid("the root data set has the pool's name"));
        };
        let (new_parent, _) = self.find_new(new)?;
        if let Some(head) = self.head_of(&new_parent)?
            && head.objset()?.type_() != ObjsetType::Zfs
        {
            return Err(Error::invalid(format!(
                "{} is not a file system",
                new_parent.name()
            )));
        }
        self.check_names_fit(&dd, old, new)?;
        if Arc::ptr_eq(&parent, &new_parent) {
            return Ok(());
        }
        self.check_root_stays(&dd, &new_parent)?;
        if Arc::ptr_eq(&common_ancestor(&dd, &new_parent), &dd) {
            return Err(Error::invalid(format!("{new} is below {old}")));
        }
        let fields = dd.fields();
        self.transfer_possible(&parent, &new_parent, fields.used_bytes.max(fields.reserved))
    }

    /// Checks that the names of all descendants fit after the rename.
    #[doc(alias = "dsl_valid_rename")]
    fn check_names_fit(&self, dd: &Arc<DslDir>, old: &str, new: &str) -> Result<()> {
        let depth = |name: &str| name.split('/').count();
        if new.len() <= old.len() && depth(new) <= depth(old) {
            return Ok(());
        }
        for dd in self.subtree(dd)? {
            let name = dd.name();
            let mut longest = 0;
            if let Some(head) = self.head_of(&dd)? {
                let snaps = self.snap_entries(&head)?;
                longest = snaps
                    .iter()
                    .map(|(snap, _)| snap.len() + 1)
                    .max()
                    .unwrap_or(0);
            }
            // A damaged directory may have two names, of which the other one is shorter than `old`.
            let bytes = (name.len() + longest + new.len()).saturating_sub(old.len());
            let nesting = (depth(&name) + depth(new)).saturating_sub(depth(old));
            if bytes > NAME_BYTES_MAX || nesting > NESTING_MAX {
                let text = format!("{name} would be too long, or too deep");
                return Err(Error::new(ErrorKind::NameTooLong, text));
            }
        }
        Ok(())
    }

    #[doc(alias = "dsl_dir_rename_sync")]
    fn rename_sync(&self, old: &str, new: &str, tx: &Tx) -> Result<()> {
        let mos = self.mos();
        let dd = self.find_dir(old)?;
        let (new_parent, last) = self.find_new(new)?;
        let parent = dd.parent().expect("the root directory is not renamed");
        if let Some(head) = self.head_of(&dd)? {
            self.log(&head, "rename", &format!("-> {new}"), tx)?;
        }
        if !Arc::ptr_eq(&parent, &new_parent) {
            self.move_accounts(&dd, &parent, &new_parent, tx)?;
        }
        let old_last = std::mem::replace(&mut dd.state().name, last.clone());
        mos.zap_remove(ObjectId(parent.fields().child_dir_zapobj), &old_last, tx)?;
        {
            let mut state = dd.state();
            state.parent = Some(new_parent.clone());
            state.fields.parent_obj = new_parent.object().0;
        }
        self.dirty_dir(&dd);
        mos.zap_add(
            ObjectId(new_parent.fields().child_dir_zapobj),
            &last,
            dd.object().0,
            tx,
        )?;
        self.notify_props()
    }

    fn move_accounts(
        &self,
        dd: &Arc<DslDir>,
        parent: &Arc<DslDir>,
        new_parent: &Arc<DslDir>,
        tx: &Tx,
    ) -> Result<()> {
        if self.counts_for_limits() {
            // Where it goes there may be a limit.
            self.init_counts(dd, tx)?;
            let counts = self.counts(dd)?.unwrap_or_default();
            let moved = [
                (DD_FIELD_FILESYSTEM_COUNT, counts.filesystems, 1),
                (DD_FIELD_SNAPSHOT_COUNT, counts.snapshots, 0),
            ];
            for (field, count, itself) in moved {
                let moved = i64::try_from(count)
                    .ok()
                    .and_then(|n| n.checked_add(itself));
                let what = || Error::corrupt(format!("{field} of {} is {count}", dd.name()));
                let moved = moved.ok_or_else(what)?;
                self.adjust_count(parent, field, -moved, tx)?;
                self.adjust_count(new_parent, field, moved, tx)?;
            }
        }
        let fields = dd.fields();
        let space = fields.space();
        let unused = fields
            .reserved
            .saturating_sub(fields.used_bytes)
            .cast_signed();
        let unused = Space {
            used: unused,
            ..Space::ZERO
        };
        self.diduse_space(parent, Used::Child, -space);
        self.diduse_space(new_parent, Used::Child, space);
        self.diduse_space(parent, Used::ChildRsrv, -unused);
        self.diduse_space(new_parent, Used::ChildRsrv, unused);
        Ok(())
    }

    /// Renames a snapshot; with `recursive`, also those of the same name in all descendants.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `NameTooLong`, `InvalidInput`.
    #[doc(alias = "dsl_dataset_rename_snapshot")]
    pub fn rename_snapshot(&self, fs: &str, old: &str, new: &str, recursive: bool) -> Result<()> {
        if new.is_empty() || new.contains(['/', '@']) {
            return Err(Error::invalid(format!("{new:?} is not a snapshot's name")));
        }
        let names = (fs.to_string(), old.to_string(), new.to_string());
        let (fs, old, new) = names.clone();
        let check = move |pool: &DslPool, _: &Tx| {
            let mut found = 0;
            for head in pool.heads_to_rename(&fs, recursive)? {
                if pool.snap_lookup(&head, &old)?.is_none() {
                    continue;
                }
                found += 1;
                let full = format!("{}@{new}", head.dir().name());
                if pool.snap_lookup(&head, &new)?.is_some() {
                    return Err(Error::new(ErrorKind::Exists, format!("{full} exists")));
                }
                if full.len() > NAME_BYTES_MAX {
                    return Err(Error::new(ErrorKind::NameTooLong, full));
                }
            }
            if found == 0 {
                return Err(Error::not_found(format!("there is no {fs}@{old}")));
            }
            Ok(Verdict::Go)
        };
        let (fs, old, new) = names;
        self.sync_task(1, SpaceCheck::Reserved, check, move |pool, tx| {
            for head in pool.heads_to_rename(&fs, recursive)? {
                pool.rename_snapshot_sync(&head, &old, &new, tx)?;
            }
            Ok(())
        })
    }

    fn heads_to_rename(&self, fs: &str, recursive: bool) -> Result<Vec<Arc<DslDataset>>> {
        let dd = self.find_dir(fs)?;
        let dirs = if recursive {
            self.subtree(&dd)?
        } else {
            vec![dd]
        };
        let mut heads = Vec::new();
        for dd in dirs {
            heads.extend(self.head_of(&dd)?);
        }
        Ok(heads)
    }

    fn rename_snapshot_sync(
        &self,
        head: &Arc<DslDataset>,
        old: &str,
        new: &str,
        tx: &Tx,
    ) -> Result<()> {
        let Some(object) = self.snap_lookup(head, old)? else {
            return Ok(());
        };
        let snap = self.dataset_by_object(object)?;
        let old = self.snapname(&snap)?;
        self.log(&snap, "rename", &format!("-> @{new}"), tx)?;
        let zap = ObjectId(head.fields().snapnames_zapobj);
        self.touch_snapshots(&head.dir(), tx)?;
        self.mos().zap_remove(zap, &old, tx)?;
        self.mos().zap_add(zap, new, object.0, tx)?;
        snap.state().snapname = Some(new.to_string());
        Ok(())
    }
}
