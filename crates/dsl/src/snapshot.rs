//! Taking snapshots.
//!
//! # What it is
//! A snapshot is a new dataset that takes the head's root block pointer, sizes and deadlist, and
//! its place in the chain: the head's predecessor becomes the snapshot's, and the snapshot becomes
//! the head's. Only a few blocks of the MOS are read or written.
//!
//! # Crash argument
//! It is a sync task: the snapshot is completely in one txg, with the data that the head had when
//! that txg's data was written.
//!
//! # Source
//! OpenZFS module/zfs/dsl_dataset.c (`dsl_dataset_snapshot_sync_impl`) @be7657e3

use phys::PropValue;
use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result};
use dmu::Tx;
use phys::dsl::{DS_FLAG_UNIQUE_ACCURATE, DslDatasetPhys};
use phys::pool_names::{DD_FIELD_SNAPSHOT_COUNT, ORIGIN_DIR_NAME};
use phys::{ObjectType, Phys};

use crate::create::now_secs;
use crate::dataset::DslDataset;
use crate::deadlist::Deadlist;
use crate::dir::Used;
use crate::env::DatasetChange;
use crate::fields::DatasetFields;
use crate::names::NAME_BYTES_MAX;
use crate::pool::DslPool;

use crate::size::Space;
use crate::space::SpaceCheck;
use crate::synctask::Verdict;

impl DslPool {
    /// Takes snapshots, all in the same txg: all of them or none.
    ///
    /// # Errors
    /// `Exists`, `NotFound`, `NameTooLong`; `Busy` for a head with an unfinished receive; `NoSpace`
    /// when there is no room for the refreservation.
    #[doc(alias = "dsl_dataset_snapshot")]
    pub fn snapshot(&self, names: &[&str], props: Vec<(String, PropValue)>) -> Result<()> {
        let mut wanted = Vec::new();
        for name in names {
            let (head, snap) = split_snapshot(name)?;
            wanted.push((head.to_string(), snap.to_string()));
        }
        let blocks = 3 * wanted.len() as u64;
        let to_check = wanted.clone();
        let check = move |pool: &DslPool, tx: &Tx| {
            for (at, (head, snap)) in to_check.iter().enumerate() {
                if to_check[..at].iter().any(|(other, _)| other == head) {
                    return Err(Error::invalid(format!("{head}: two snapshots in one txg")));
                }
                let ds = pool.find_dataset(head)?;
                if pool.snapshot_check(&ds, snap, tx)? == Verdict::Later {
                    return Ok(Verdict::Later);
                }
            }
            Ok(Verdict::Go)
        };
        self.sync_task(blocks, SpaceCheck::Normal, check, move |pool, tx| {
            // One timestamp for all: they are taken at the same instant.
            let now = now_secs();
            for (head, snap) in &wanted {
                let ds = pool.find_dataset(head)?;
                let snap = pool.snapshot_sync(&ds, snap, now, tx)?;
                pool.set_props_sync(&snap, &props, tx)?;
            }
            Ok(())
        })
    }

    #[doc(alias = "dsl_dataset_snapshot_check_impl")]
    pub(crate) fn snapshot_check(
        &self,
        ds: &Arc<DslDataset>,
        name: &str,
        tx: &Tx,
    ) -> Result<Verdict> {
        crate::create::expect_head(ds, name)?;
        let full = format!("{}@{name}", ds.dir().name());
        if full.len() > NAME_BYTES_MAX {
            return Err(Error::new(
                ErrorKind::NameTooLong,
                format!("{full} is too long"),
            ));
        }
        if self.snap_lookup(ds, name)?.is_some() {
            return Err(Error::new(ErrorKind::Exists, format!("{full} exists")));
        }
        if ds.is_inconsistent() {
            let text = format!("{} has an unfinished receive", ds.dir().name());
            return Err(Error::new(ErrorKind::Busy, text));
        }
        if !tx.is_syncing() {
            return Ok(Verdict::Go);
        }
        if ds.prev_snap_txg() >= tx.txg() {
            return Ok(Verdict::Later);
        }
        // Blocks that the snapshot keeps are no longer covered by the head's refreservation.
        let limits = ds.limits();
        let uncovered = limits.unique.min(limits.reserved);
        if uncovered > self.space_available(&ds.dir(), None, true) {
            let text = format!("{full}: no room for {uncovered} bytes beyond the refreservation");
            return Err(Error::new(ErrorKind::NoSpace, text));
        }
        Ok(Verdict::Go)
    }

    #[doc(alias = "dsl_dataset_snapshot_sync_impl")]
    pub(crate) fn snapshot_sync(
        &self,
        ds: &Arc<DslDataset>,
        name: &str,
        creation_time: u64,
        tx: &Tx,
    ) -> Result<Arc<DslDataset>> {
        let mos = self.mos();
        self.split_old_deadlist(ds, tx)?;
        let head = ds.fields();
        let dir = ds.dir();
        self.adjust_count(&dir, DD_FIELD_SNAPSHOT_COUNT, 1, tx)?;
        // The origin of all datasets is older than any of them.
        let creation_txg = if name == ORIGIN_DIR_NAME {
            1
        } else {
            tx.txg().0
        };

        let type_ = ObjectType::DSL_DATASET;
        let object = mos.alloc(type_, 0, type_, DslDatasetPhys::SIZE, tx)?;
        self.forget(object);
        let mut snap = DatasetFields {
            dir_obj: head.dir_obj,
            fsid_guid: rt::random_u64() >> 8,
            guid: rt::random_u64(),
            prev_snap_obj: head.prev_snap_obj,
            prev_snap_txg: head.prev_snap_txg,
            next_snap_obj: ds.object().0,
            num_children: 1,
            creation_time,
            creation_txg,
            deadlist_obj: head.deadlist_obj,
            flags: head.flags,
            ..DatasetFields::default()
        };
        snap.set_referenced(head.referenced());
        snap.set_bp(head.bp());
        mos.hold(object)?.set_bonus(tx, &snap.to_bytes())?;
        let features = ds.state().features.clone();
        for (guid, value) in &features {
            self.activate_feature_of(object, guid, value, tx)?;
        }
        self.number_ivset(&dir, object, tx)?;
        self.link_before_head(ds, object, tx)?;

        let (unique, reserved) = (head.unique_bytes, ds.limits().reserved);
        if reserved > 0 {
            // The head's unique bytes become the snapshot's, so that part of the refreservation is
            // unused again.
            let again = Space {
                used: unique.min(reserved).cast_signed(),
                ..Space::ZERO
            };
            self.diduse_space(&dir, Used::RefRsrv, again);
        }
        let deadlist = self.next_deadlist(ds, head.prev_snap_txg, tx)?;
        {
            let mut state = ds.state();
            state.fields.deadlist_obj = deadlist.0;
            state.fields.prev_snap_obj = object.0;
            state.fields.prev_snap_txg = creation_txg;
            state.fields.unique_bytes = 0;
            state.fields.flags |= DS_FLAG_UNIQUE_ACCURATE;
        }
        self.dirty_dataset(ds);
        mos.zap_add(ObjectId(head.snapnames_zapobj), name, object.0, tx)?;
        let snap = self.dataset_by_object(object)?;
        ds.state().prev = Some(snap.clone());
        mos.env().dataset_changed(DatasetChange::Snapshotted {
            head: ds.object(),
            snapshot: object,
        });
        self.touch_snapshots(&dir, tx)?;
        self.log(&snap, "snapshot", "", tx)?;
        Ok(snap)
    }

    /// Links the snapshot `object` between the head and its predecessor.
    fn link_before_head(&self, ds: &Arc<DslDataset>, object: ObjectId, tx: &Tx) -> Result<()> {
        let Some(prev) = ds.prev() else {
            return Ok(());
        };
        let fields = prev.fields();
        if fields.next_snap_obj == ds.object().0 {
            prev.state().fields.next_snap_obj = object.0;
            self.dirty_dataset(&prev);
        } else if fields.next_clones_obj != 0 {
            // The head was cloned from `prev`: now the snapshot follows it there.
            let clones = ObjectId(fields.next_clones_obj);
            self.mos().zap_int_remove(clones, ds.object().0, tx)?;
            self.mos().zap_int_add(clones, object.0, object.0, tx)?;
        }
        Ok(())
    }

    /// Creates the head's new deadlist: the keys of the old one, which goes to the snapshot, plus
    /// one for blocks born since the previous snapshot, and those of bookmarks since then.
    fn next_deadlist(&self, ds: &DslDataset, prev_snap_txg: u64, tx: &Tx) -> Result<ObjectId> {
        let object = ds.with_deadlist(|deadlist| deadlist.clone_keys(u64::MAX, tx))?;
        let mut deadlist = Deadlist::open(self.mos(), object)?;
        deadlist.add_key(prev_snap_txg, tx)?;
        self.add_bookmark_keys(ds, prev_snap_txg, &mut deadlist, tx)?;
        ds.set_deadlist(Some(deadlist));
        Ok(object)
    }
}

/// Splits `pool/a@snap` at the `@`.
pub(crate) fn split_snapshot(name: &str) -> Result<(&str, &str)> {
    let parts = name
        .split_once('@')
        .filter(|(_, snap)| !snap.is_empty() && !snap.contains('/'));
    parts.ok_or_else(|| Error::invalid(format!("{name:?} is not a snapshot's name")))
}
