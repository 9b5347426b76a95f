//! Destroying snapshots and heads.
//!
//! # What it is
//! *A snapshot*: blocks that only it refers to were born after its predecessor and are on its
//! successor's deadlist; they go to the pool's free list. The rest of the successor's deadlist
//! stays there, and the snapshot's own deadlist is merged into it: blocks that the snapshot no
//! longer had, the successor does not have either.
//!
//! *A head* (without snapshots of its own): it owns every block born after the snapshot that it was
//! cloned from. Its tree goes to the pool's list of trees to be freed; see
//! [`bptree`](crate::bptree). Until its blocks are free they are charged to `$FREE`.
//!
//! # Crash argument
//! One txg moves names, links and lists. The freeing that follows takes as many txgs as it
//! needs; each of them removes from the list exactly what it frees.
//!
//! # Source
//! OpenZFS module/zfs/dsl_destroy.c @be7657e3

use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result};
use dmu::Tx;
use phys::dsl::DS_FLAG_DEFER_DESTROY;
use phys::pool_names::{DD_FIELD_FILESYSTEM_COUNT, DD_FIELD_SNAPSHOT_COUNT};

use crate::dataset::DslDataset;
use crate::deadlist::Deadlist;
use crate::dir::{DslDir, Used};
use crate::env::DatasetChange;
use crate::fields::DatasetFields;
use crate::pool::DslPool;
use crate::size::{Space, apply};
use crate::space::SpaceCheck;
use crate::synctask::Verdict;

/// Snapshots.
impl DslPool {
    /// Destroys snapshots in one txg, in this order: all of them or none. Names that do not exist
    /// are skipped. With `defer`, a snapshot that is held or cloned is only marked, and destroyed
    /// with its last hold or clone.
    ///
    /// # Errors
    /// `Busy` when one is in use or held, `Exists` when one has clones.
    #[doc(alias = "dsl_destroy_snapshots_nvl")]
    pub fn destroy_snapshots(&self, names: &[&str], defer: bool) -> Result<()> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let checked = names.clone();
        let check = move |pool: &DslPool, _: &Tx| {
            for name in &checked {
                if let Some(snap) = crate::mos::optional(pool.find_dataset(name))? {
                    pool.destroy_snapshot_check(&snap, name, defer)?;
                }
            }
            Ok(Verdict::Go)
        };
        self.sync_task(0, SpaceCheck::ExtraReserved, check, move |pool, tx| {
            for name in &names {
                if let Some(snap) = crate::mos::optional(pool.find_dataset(name))? {
                    pool.destroy_snapshot_sync(&snap, defer, tx)?;
                }
            }
            Ok(())
        })
    }

    #[doc(alias = "dsl_destroy_snapshot_check_impl")]
    fn destroy_snapshot_check(
        &self,
        snap: &Arc<DslDataset>,
        name: &str,
        defer: bool,
    ) -> Result<()> {
        if !snap.is_snapshot() {
            return Err(Error::invalid(format!("{name} is not a snapshot")));
        }
        snap.check_not_held(0)?;
        if defer {
            return Ok(());
        }
        let state = snap.state();
        if state.userrefs > 0 {
            return Err(Error::new(ErrorKind::Busy, format!("{name} is held")));
        }
        if state.fields.num_children > 1 {
            return Err(Error::new(ErrorKind::Exists, format!("{name} has clones")));
        }
        drop(state);
        self.check_neighbours(snap)
    }

    /// Checks that the links of a snapshot's predecessor and successor agree with its own.
    fn check_neighbours(&self, snap: &Arc<DslDataset>) -> Result<()> {
        let fields = snap.fields();
        self.predecessor(snap.object(), &fields)?;
        let next = self.dataset_by_object(ObjectId(fields.next_snap_obj))?;
        let back = next.fields().prev_snap_obj;
        if back == snap.object().0 {
            return Ok(());
        }
        let (object, next) = (snap.object(), next.object());
        let text = format!("snapshot {object}: the one after it, {next}, comes after {back}");
        Err(Error::corrupt(text))
    }

    #[doc(alias = "dsl_destroy_snapshot_sync_impl")]
    pub(crate) fn destroy_snapshot_sync(
        &self,
        snap: &Arc<DslDataset>,
        defer: bool,
        tx: &Tx,
    ) -> Result<()> {
        let fields = snap.fields();
        if defer && (snap.state().userrefs > 0 || fields.num_children > 1) {
            snap.state().fields.flags |= DS_FLAG_DEFER_DESTROY;
            self.dirty_dataset(snap);
            return self.log(snap, "defer_destroy", "", tx);
        }
        if fields.num_children != 1 {
            let (object, count) = (snap.object(), fields.num_children);
            let text = format!("snapshot {object} is destroyed, its ds_num_children is {count}");
            return Err(Error::corrupt(text));
        }
        self.log(snap, "destroy", "", tx)?;
        let keep_key = self.snapshot_leaves_bookmarks(snap, &fields, tx)?;
        let next = self.dataset_by_object(ObjectId(fields.next_snap_obj))?;
        self.split_deadlists_around(snap, &next, keep_key, tx)?;
        let fields = snap.fields();
        self.deactivate_features(snap, tx)?;
        let prev = self.unlink_from_prev(snap, &fields, tx)?;
        let unique_before = next.fields().unique_bytes;
        {
            let mut state = next.state();
            state.fields.prev_snap_obj = fields.prev_snap_obj;
            state.fields.prev_snap_txg = fields.prev_snap_txg;
        }
        self.dirty_dataset(&next);
        self.hand_over_dead_blocks(snap, &fields, prev.as_ref(), &next, tx)?;
        if !keep_key {
            self.remove_clones_key(&snap.dir(), fields.creation_txg, tx)?;
        }
        if next.is_snapshot() {
            self.settle_next_snapshot(snap, &fields, &next, keep_key, tx)?;
        } else {
            self.settle_head(snap, &next, prev.map(|(prev, _)| prev), unique_before)?;
        }
        self.remove_snapshot(snap, &fields, tx)
    }

    /// Takes the snapshot out of its predecessor's links. Returns the predecessor, and whether
    /// `snap` was the first one after a branch point.
    fn unlink_from_prev(
        &self,
        snap: &Arc<DslDataset>,
        fields: &DatasetFields,
        tx: &Tx,
    ) -> Result<Option<(Arc<DslDataset>, bool)>> {
        let Some(prev) = self.predecessor(snap.object(), fields)? else {
            return Ok(None);
        };
        let prev_fields = prev.fields();
        let after_branch_point = prev_fields.next_snap_obj != snap.object().0;
        if !after_branch_point {
            prev.state().fields.next_snap_obj = fields.next_snap_obj;
        } else if prev_fields.next_clones_obj != 0 {
            let clones = ObjectId(prev_fields.next_clones_obj);
            self.mos().zap_int_remove(clones, snap.object().0, tx)?;
            let next = fields.next_snap_obj;
            self.mos().zap_int_add(clones, next, next, tx)?;
        }
        self.dirty_dataset(&prev);
        Ok(Some((prev, after_branch_point)))
    }

    /// Frees the blocks unique to `snap`, and merges its deadlist into that of `next`.
    fn hand_over_dead_blocks(
        &self,
        snap: &Arc<DslDataset>,
        fields: &DatasetFields,
        prev: Option<&(Arc<DslDataset>, bool)>,
        next: &Arc<DslDataset>,
        tx: &Tx,
    ) -> Result<()> {
        if let Some((prev, false)) = prev {
            // Blocks that `prev` shared only with `snap` become unique to `prev`.
            let (from, to) = (prev.fields().prev_snap_txg, fields.prev_snap_txg);
            let shared = next.with_deadlist(|deadlist| deadlist.space_range(from, to))?;
            apply(
                &mut prev.state().fields.unique_bytes,
                shared.used,
                "ds_unique_bytes",
            );
        }
        let free_bpobj = self.free_bpobj()?;
        let freed = next.with_deadlist(|deadlist| {
            let freed = deadlist.space_range(fields.prev_snap_txg, u64::MAX)?;
            deadlist.move_to(&free_bpobj, fields.prev_snap_txg, tx)?;
            deadlist.merge(ObjectId(fields.deadlist_obj), tx)?;
            deadlist.discard();
            Ok(freed)
        })?;
        self.diduse_space(&snap.dir(), Used::Snap, -freed);
        self.diduse_space(self.free_dir()?, Used::Head, freed);
        snap.set_deadlist(None);
        Deadlist::free(self.mos(), ObjectId(fields.deadlist_obj), tx)
    }

    /// Removes the key of a snapshot or bookmark that is gone from the deadlists of all clones that branched off
    /// after it, clones of clones included.
    #[doc(alias = "dsl_dir_remove_clones_key")]
    pub(crate) fn remove_clones_key(&self, dd: &Arc<DslDir>, mintxg: u64, tx: &Tx) -> Result<()> {
        for clone in self.clones_after(dd, mintxg)? {
            clone.with_deadlist(|deadlist| deadlist.remove_key(mintxg, tx))?;
        }
        Ok(())
    }

    /// The heads of all clones that branched off after `mintxg`, clones of clones included.
    pub(crate) fn clones_after(
        &self,
        dd: &Arc<DslDir>,
        mintxg: u64,
    ) -> Result<Vec<Arc<DslDataset>>> {
        let mut found = Vec::new();
        let mut todo = vec![dd.clone()];
        while let Some(dd) = todo.pop() {
            let clones = dd.fields().clones;
            if clones == 0 {
                continue;
            }
            for object in self.mos().zap_set_members(ObjectId(clones))? {
                let clone = self.dataset_by_object(ObjectId(object))?;
                let clone_dir = clone.dir();
                let origin_txg = clone_dir.state().origin_txg;
                if origin_txg > mintxg {
                    found.push(clone);
                    todo.push(clone_dir);
                }
            }
        }
        Ok(found)
    }

    /// Updates the accounts of a successor that is a snapshot.
    fn settle_next_snapshot(
        &self,
        snap: &Arc<DslDataset>,
        fields: &DatasetFields,
        next: &Arc<DslDataset>,
        keep_key: bool,
        tx: &Tx,
    ) -> Result<()> {
        // Blocks shared by `snap` and `next` only: born between `snap`'s predecessor and `snap`,
        // and on the deadlist of what follows `next`.
        let after = self.dataset_by_object(ObjectId(next.fields().next_snap_obj))?;
        let shared = after.with_deadlist(|deadlist| {
            deadlist.space_range(fields.prev_snap_txg, fields.creation_txg)
        })?;
        apply(
            &mut next.state().fields.unique_bytes,
            shared.used,
            "ds_unique_bytes",
        );
        self.dirty_dataset(next);
        if !keep_key {
            let head = self.head_of(&snap.dir())?;
            let head = head.ok_or_else(|| Error::corrupt("a snapshot without a head"))?;
            head.with_deadlist(|deadlist| deadlist.remove_key(fields.creation_txg, tx))?;
        }
        Ok(())
    }

    /// Updates the accounts of a successor that is a head.
    fn settle_head(
        &self,
        snap: &Arc<DslDataset>,
        head: &Arc<DslDataset>,
        prev: Option<Arc<DslDataset>>,
        unique_before: u64,
    ) -> Result<()> {
        head.state().prev = prev;
        self.recalc_head_unique(head)?;
        let (unique, reserved) = (head.fields().unique_bytes, head.limits().reserved);
        if unique_before < reserved {
            // The blocks that are now unique to the head use up its refreservation.
            let gained = unique
                .saturating_sub(unique_before)
                .min(reserved - unique_before);
            let less = Space {
                used: -gained.cast_signed(),
                ..Space::ZERO
            };
            self.diduse_space(&snap.dir(), Used::RefRsrv, less);
        }
        Ok(())
    }

    /// Recomputes `ds_unique_bytes` of a head: the bytes it references, less those of its
    /// predecessor that are not on the head's deadlist.
    #[doc(alias = "dsl_dataset_recalc_head_uniq")]
    pub(crate) fn recalc_head_unique(&self, head: &Arc<DslDataset>) -> Result<()> {
        let before = head.prev().map_or(0, |prev| prev.fields().referenced_bytes);
        let dead = head
            .with_deadlist(|deadlist| deadlist.space())?
            .used
            .cast_unsigned();
        let mut state = head.state();
        let shared = before.checked_sub(dead);
        let unique = shared.and_then(|shared| state.fields.referenced_bytes.checked_sub(shared));
        state.fields.unique_bytes = unique.ok_or_else(|| {
            let refd = state.fields.referenced_bytes;
            Error::corrupt(format!(
                "head refers to {refd} of {before} bytes, {dead} dead"
            ))
        })?;
        drop(state);
        self.dirty_dataset(head);
        Ok(())
    }

    /// Removes the snapshot's name and object.
    fn remove_snapshot(
        &self,
        snap: &Arc<DslDataset>,
        fields: &DatasetFields,
        tx: &Tx,
    ) -> Result<()> {
        let mos = self.mos();
        let dir = snap.dir();
        let name = self.snapname(snap)?;
        let head = self
            .head_of(&dir)?
            .ok_or_else(|| Error::corrupt("a snapshot without a head"))?;
        self.touch_snapshots(&dir, tx)?;
        mos.zap_remove(ObjectId(head.fields().snapnames_zapobj), &name, tx)?;
        self.adjust_count(&dir, DD_FIELD_SNAPSHOT_COUNT, -1, tx)?;
        for zap in [
            fields.next_clones_obj,
            fields.props_obj,
            fields.userrefs_obj,
        ] {
            if zap != 0 {
                mos.zap_destroy(ObjectId(zap), tx)?;
            }
        }
        mos.env().dataset_changed(DatasetChange::SnapshotDestroyed {
            snapshot: snap.object(),
            next: ObjectId(fields.next_snap_obj),
        });
        self.remove_object(snap, tx)
    }

    fn remove_object(&self, ds: &Arc<DslDataset>, tx: &Tx) -> Result<()> {
        ds.set_objset(None);
        ds.state().is_destroyed = true;
        self.forget(ds.object());
        self.mos().free_zapified(ds.object(), tx)
    }
}

/// Heads.
impl DslPool {
    /// Destroys a head and its directory.
    ///
    /// # Errors
    /// `Busy` when it is in use or has snapshots, `NotEmpty` when it has children.
    #[doc(alias = "dsl_destroy_head")]
    pub fn destroy_head(&self, name: &str) -> Result<()> {
        let (checked, name) = (name.to_string(), name.to_string());
        let check = move |pool: &DslPool, _: &Tx| {
            let ds = pool.find_dataset(&checked)?;
            crate::create::expect_head(&ds, &checked)?;
            pool.destroy_head_check(&ds, 0)?;
            Ok(Verdict::Go)
        };
        self.sync_task(0, SpaceCheck::ExtraReserved, check, move |pool, tx| {
            let ds = pool.find_dataset(&name)?;
            pool.destroy_head_sync(&ds, tx)
        })
    }

    /// The clone's origin, if it is marked for deferred destroy and this clone is the last thing
    /// that keeps it.
    fn origin_to_remove(&self, ds: &Arc<DslDataset>) -> Option<Arc<DslDataset>> {
        let prev = ds.prev().filter(|_| self.is_clone(&ds.dir().fields()))?;
        let last = {
            let state = prev.state();
            state.fields.has_flag(DS_FLAG_DEFER_DESTROY)
                && state.fields.num_children == 2
                && state.userrefs == 0
        };
        last.then_some(prev)
    }

    #[doc(alias = "dsl_destroy_head_check_impl")]
    pub(crate) fn destroy_head_check(&self, ds: &Arc<DslDataset>, holds: u64) -> Result<()> {
        ds.check_not_held(holds)?;
        let dir = ds.dir();
        if dir.parent().is_none() {
            return Err(Error::invalid("the root data set goes with its pool"));
        }
        if ds
            .prev()
            .is_some_and(|prev| prev.fields().next_snap_obj == ds.object().0)
        {
            let text = format!("{} has snapshots", dir.name());
            return Err(Error::new(ErrorKind::Busy, text));
        }
        if self
            .mos()
            .zap_count(ObjectId(dir.fields().child_dir_zapobj))?
            != 0
        {
            let text = format!("{} has data sets below it", dir.name());
            return Err(Error::new(ErrorKind::NotEmpty, text));
        }
        match self.origin_to_remove(ds) {
            Some(origin) => origin.check_not_held(0),
            None => Ok(()),
        }
    }

    #[doc(alias = "dsl_destroy_head_sync_impl")]
    pub(crate) fn destroy_head_sync(&self, ds: &Arc<DslDataset>, tx: &Tx) -> Result<()> {
        let mos = self.mos();
        let dir = ds.dir();
        let origin_to_remove = self.origin_to_remove(ds);
        if ds.limits().reserved != 0 {
            self.set_refreservation(ds, 0);
        }
        self.deactivate_features(ds, tx)?;
        self.remove_livelist(&dir, tx)?;
        let prev = ds.prev();
        if let Some(prev) = &prev {
            let fields = prev.fields();
            if fields.next_snap_obj == ds.object().0 || fields.num_children <= 1 {
                let (object, snap) = (ds.object(), prev.object());
                let text = format!("head {object} does not branch off at snapshot {snap}");
                return Err(Error::corrupt(text));
            }
            if fields.next_clones_obj != 0 {
                mos.zap_int_remove(ObjectId(fields.next_clones_obj), ds.object().0, tx)?;
            }
            prev.state().fields.num_children -= 1;
            self.dirty_dataset(prev);
        }
        // Blocks on the deadlist belong to the origin: they must not be freed here.
        ds.set_deadlist(None);
        Deadlist::free(mos, ObjectId(ds.fields().deadlist_obj), tx)?;

        self.free_tree(ds, tx)?;

        if let Some(prev) = &prev {
            let clones = prev.dir().fields().clones;
            if clones != 0 {
                mos.zap_int_remove(ObjectId(clones), ds.object().0, tx)?;
            }
        }
        dir.state().fields.head_dataset_obj = 0;
        self.dirty_dir(&dir);
        mos.zap_destroy(ObjectId(ds.fields().snapnames_zapobj), tx)?;
        self.destroy_bookmarks(ds, tx)?;
        self.forget_errors(ds.object(), tx)?;
        let gone = DatasetChange::HeadDestroyed(ds.object());
        mos.env().dataset_changed(gone);
        self.remove_object(ds, tx)?;
        self.destroy_dir(&dir, tx)?;
        match origin_to_remove {
            Some(origin) => self.destroy_snapshot_sync(&origin, false, tx),
            None => Ok(()),
        }
    }

    #[doc(alias = "dsl_dir_destroy_sync")]
    fn destroy_dir(&self, dd: &Arc<DslDir>, tx: &Tx) -> Result<()> {
        let mos = self.mos();
        let parent = dd.parent().expect("the root directory is not destroyed");
        self.adjust_count(&parent, DD_FIELD_FILESYSTEM_COUNT, -1, tx)?;
        self.set_reservation(dd, 0, tx);
        let fields = dd.fields();
        if !fields.space().is_zero() {
            let text = format!("directory {} still uses {:?}", dd.object(), fields.space());
            return Err(Error::corrupt(text));
        }
        self.release_key(dd, tx)?;
        let zaps = [fields.child_dir_zapobj, fields.props_zapobj, fields.clones];
        for zap in zaps {
            if zap != 0 {
                mos.zap_destroy(ObjectId(zap), tx)?;
            }
        }
        self.destroy_permissions(ObjectId(fields.deleg_zapobj), tx)?;
        let name = dd.state().name.clone();
        mos.zap_remove(ObjectId(parent.fields().child_dir_zapobj), &name, tx)?;
        self.forget(dd.object());
        mos.free_zapified(dd.object(), tx)
    }

    /// Destroys the delegated permissions: a ZAP of ZAPs, one per user or group.
    #[doc(alias = "dsl_deleg_destroy")]
    fn destroy_permissions(&self, zap: ObjectId, tx: &Tx) -> Result<()> {
        if zap.0 == 0 {
            return Ok(());
        }
        for (_, object) in self.mos().zap_entries(zap)? {
            self.mos().zap_destroy(ObjectId(object), tx)?;
        }
        self.mos().zap_destroy(zap, tx)
    }
}
