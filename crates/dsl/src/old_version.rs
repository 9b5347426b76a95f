//! Pools of versions before feature flags, and what is left of them in a pool that was upgraded.
//!
//! # What it is
//! An upgrade makes what later versions keep beside each data set:
//! ```text
//! 9   ds_unique_bytes of heads is exact (flag UNIQUE_ACCURATE)
//! 11  $ORIGIN, whose snapshot is the origin of what is not a clone; next_clones of snapshots
//! 26  $FREE and the list of blocks to free; dd_clones of directories; deadlists that are split by birth
//! ```
//! What else versions have brought is made when it is first needed: properties of snapshots, holds, quotas. Directories
//! from before version 13 do not say what their space is used for, as in OpenZFS. Old deadlists stay until something
//! happens to their data sets; see [`deadlist`](crate::deadlist).
//!
//! # Crash argument
//! All of it is in one txg. A pool is of its old version up to the uberblock of that txg, and whole before and after.
//!
//! # Source
//! OpenZFS module/zfs/dsl_pool.c (`dsl_pool_upgrade_clones`, `dsl_pool_upgrade_dir_clones`), module/zfs/spa.c
//! (`spa_sync_upgrades`), module/zfs/dsl_deadlist.c (`dsl_deadlist_regenerate`) @be7657e3

use std::sync::Arc;

use base::{ObjectId, Result};
use dmu::Tx;
use phys::ObjectType;
use phys::dsl::DS_FLAG_UNIQUE_ACCURATE;

use crate::dataset::DslDataset;
use crate::pool::{DslPool, PoolParts, SPA_VERSION_DEADLISTS, SPA_VERSION_ORIGIN};

impl DslPool {
    /// Opens the datasets of a pool of an old version, and brings them up to version 5000. The caller then syncs.
    ///
    /// # Errors
    /// `Corrupt`, or any read error: nothing has been written then.
    #[doc(alias = "spa_sync_upgrades")]
    pub fn upgrade(parts: PoolParts, tx: &Tx) -> Result<Arc<DslPool>> {
        let version = parts.version;
        let pool = DslPool::bare(parts);
        let mut special = pool.find_special(version)?;
        let origin = match special.origin.take() {
            Some(origin) => origin,
            None => pool.create_origin(&special.root_dir, tx)?,
        };
        special.origin = Some(origin.clone());
        if special.free.is_none() {
            special.free = Some(pool.create_free_later(&special.root_dir, tx)?);
        }
        pool.set_special(special);
        for dir in pool.subtree(pool.root_dir())? {
            if dir.state().name.starts_with('$') {
                continue;
            }
            let Some(head) = pool.head_of(&dir)? else {
                continue;
            };
            if version < SPA_VERSION_ORIGIN {
                pool.list_in_next_clones(&head, &origin, tx)?;
            }
            if version < SPA_VERSION_DEADLISTS {
                pool.list_in_clones(&head, tx)?;
            }
            if !head.fields().has_flag(DS_FLAG_UNIQUE_ACCURATE) {
                pool.recalc_head_unique(&head)?;
                head.state().fields.flags |= DS_FLAG_UNIQUE_ACCURATE;
            }
        }
        pool.flush(tx)?;
        Ok(pool)
    }

    /// Lists what follows the snapshot that a head's directory branched off at there; without one, it branches off at
    /// `origin`.
    #[doc(alias = "upgrade_clones_cb")]
    fn list_in_next_clones(
        &self,
        head: &Arc<DslDataset>,
        origin: &Arc<DslDataset>,
        tx: &Tx,
    ) -> Result<()> {
        let mut oldest = head.clone();
        let branch = loop {
            match self.predecessor(oldest.object(), &oldest.fields())? {
                Some(prev) if prev.fields().next_snap_obj == oldest.object().0 => oldest = prev,
                Some(prev) => break prev,
                None => {
                    self.attach(&oldest, origin);
                    break origin.clone();
                }
            }
        };
        let mut clones = ObjectId(branch.fields().next_clones_obj);
        if clones.0 == 0 {
            clones = self.mos().zap_create(ObjectType::NEXT_CLONES, tx)?;
            branch.state().fields.next_clones_obj = clones.0;
            self.dirty_dataset(&branch);
        }
        let object = oldest.object().0;
        self.mos().zap_int_add(clones, object, object, tx)
    }

    /// Makes `origin` the predecessor of the oldest dataset of a directory.
    fn attach(&self, oldest: &Arc<DslDataset>, origin: &Arc<DslDataset>) {
        let object = origin.object().0;
        {
            let taken = origin.fields().creation_txg;
            let mut state = oldest.state();
            state.fields.prev_snap_obj = object;
            state.fields.prev_snap_txg = taken;
            if !oldest.is_snapshot() {
                state.prev = Some(origin.clone());
            }
        }
        self.dirty_dataset(oldest);
        let dir = oldest.dir();
        dir.state().fields.origin_obj = object;
        self.dirty_dir(&dir);
        origin.state().fields.num_children += 1;
        self.dirty_dataset(origin);
    }

    /// Lists a head among the clones of the directory that it branched off from.
    #[doc(alias = "upgrade_dir_clones_cb")]
    fn list_in_clones(&self, head: &Arc<DslDataset>, tx: &Tx) -> Result<()> {
        let origin = ObjectId(head.dir().fields().origin_obj);
        if origin.0 == 0 {
            return Ok(());
        }
        let origin = self.dataset_by_object(origin)?;
        let clones = self.clones_zap(&origin.dir(), tx)?;
        let object = head.object().0;
        self.mos().zap_int_add(clones, object, object, tx)
    }
}

/// Deadlists from before version 26.
impl DslPool {
    /// Splits the deadlist of a dataset if it is an old one, before it is changed.
    #[doc(alias = "dsl_deadlist_regenerate")]
    pub(crate) fn split_old_deadlist(&self, ds: &Arc<DslDataset>, tx: &Tx) -> Result<()> {
        if !ds.with_deadlist(|deadlist| Ok(deadlist.is_old()))? {
            return Ok(());
        }
        let mut keys = Vec::new();
        let mut before = self.predecessor(ds.object(), &ds.fields())?;
        while let Some(snap) = before {
            let fields = snap.fields();
            keys.push(fields.prev_snap_txg);
            before = self.predecessor(snap.object(), &fields)?;
        }
        let object = ds.with_deadlist(|deadlist| {
            *deadlist = deadlist.split_off(&keys, tx)?;
            Ok(deadlist.object())
        })?;
        ds.state().fields.deadlist_obj = object.0;
        self.dirty_dataset(ds);
        Ok(())
    }

    /// Splits the old deadlists that the destruction of a snapshot changes; if its key is to stay, also those that get
    /// it from this snapshot.
    pub(crate) fn split_deadlists_around(
        &self,
        snap: &Arc<DslDataset>,
        next: &Arc<DslDataset>,
        keep_key: bool,
        tx: &Tx,
    ) -> Result<()> {
        self.split_old_deadlist(snap, tx)?;
        self.split_old_deadlist(next, tx)?;
        if !keep_key {
            return Ok(());
        }
        let dir = snap.dir();
        let mut heads = self.clones_after(&dir, snap.fields().creation_txg)?;
        heads.extend(self.head_of(&dir)?);
        heads
            .iter()
            .try_for_each(|head| self.split_old_deadlist(head, tx))
    }
}
