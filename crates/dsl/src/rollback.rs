//! Rolling back to the last snapshot, and swapping a head with its clone.
//!
//! # What it is
//! To roll back, a clone of the snapshot is created, head and clone swap contents, and the clone,
//! which now has the discarded contents, is destroyed like any other head.
//!
//! # Source
//! OpenZFS module/zfs/dsl_dataset.c (`dsl_dataset_rollback_sync`,
//! `dsl_dataset_clone_swap_sync_impl`) @be7657e3

use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result, Txg};
use dmu::Tx;

use crate::dataset::DslDataset;
use crate::deadlist::Deadlist;
use crate::dir::Used;
use crate::env::DatasetChange;
use crate::pool::DslPool;
use crate::size::Space;
use crate::space::SpaceCheck;
use crate::synctask::Verdict;

impl DslPool {
    /// Rolls a head back to its most recent snapshot, which must be `to` if that is given. `holds`:
    /// how many long holds the caller itself has on the head. References to the head's objset must
    /// be dropped before, and the objset opened again after.
    ///
    /// # Errors
    /// `NotFound` without a snapshot; `Exists` when `to` is not the most recent one; `Busy` when
    /// the head is in use elsewhere; `Quota`, `NoSpace`.
    #[doc(alias = "dsl_dataset_rollback")]
    pub fn rollback(&self, name: &str, to: Option<&str>, holds: u64) -> Result<()> {
        let (checked, name) = (name.to_string(), name.to_string());
        let to = to.map(str::to_string);
        let check =
            move |pool: &DslPool, tx: &Tx| pool.rollback_check(&checked, to.as_deref(), holds, tx);
        self.sync_task(1, SpaceCheck::Reserved, check, move |pool, tx| {
            let ds = pool.find_dataset(&name)?;
            let snap = ds.prev().expect("checked: there is a snapshot");
            let clone = pool.create_head(&ds.dir(), "%rollback", Some(&snap), 0, tx)?;
            pool.clone_swap(&clone, &ds, tx)?;
            pool.zero_zil(&ds, tx)?;
            pool.log(&ds, "rollback", "", tx)?;
            pool.destroy_head_sync(&clone, tx)
        })
    }

    #[doc(alias = "dsl_dataset_rollback_check")]
    fn rollback_check(&self, name: &str, to: Option<&str>, holds: u64, tx: &Tx) -> Result<Verdict> {
        let ds = self.find_dataset(name)?;
        crate::create::expect_head(&ds, name)?;
        self.check_key(&ds)?;
        let prev = ds.prev().filter(|_| ds.prev_snap_txg() >= Txg::INITIAL);
        let prev = prev.ok_or_else(|| Error::not_found(format!("{name} has no snapshot")))?;
        if tx.is_syncing() && ds.prev_snap_txg() >= tx.txg() {
            // Blocks that the head still writes in this txg would be mistaken for the snapshot's.
            return Ok(Verdict::Later);
        }
        if let Some(to) = to {
            let target = self.find_dataset(to)?;
            if !Arc::ptr_eq(&target, &prev) {
                let text = format!("{to} is not the most recent snapshot of {name}");
                return Err(Error::new(ErrorKind::Exists, text));
            }
        }
        if self.latest_bookmark_txg(&ds)? > ds.prev_snap_txg().0 {
            let text = format!("{name} has bookmarks newer than its last snapshot");
            return Err(Error::new(ErrorKind::Exists, text));
        }
        ds.check_not_held(holds)?;
        let limits = ds.limits();
        if limits.quota != 0 && prev.fields().referenced_bytes > limits.quota {
            let text = format!(
                "the snapshot is larger than the refquota of {}",
                limits.quota
            );
            return Err(Error::new(ErrorKind::Quota, text));
        }
        let needed = limits.reserved.min(limits.unique);
        if needed > self.space_available(&ds.dir(), None, true) {
            let text = format!("no room for {needed} bytes of refreservation");
            return Err(Error::new(ErrorKind::NoSpace, text));
        }
        Ok(Verdict::Go)
    }

    /// Swaps the contents of a head and a clone of its most recent snapshot.
    #[doc(alias = "dsl_dataset_clone_swap_sync_impl")]
    pub(crate) fn clone_swap(
        &self,
        clone: &Arc<DslDataset>,
        head: &Arc<DslDataset>,
        tx: &Tx,
    ) -> Result<()> {
        let origin = clone.prev().expect("a clone has an origin");
        assert_eq!(clone.limits().reserved, 0, "the clone has a refreservation");
        assert!(
            head.prev().is_some_and(|prev| Arc::ptr_eq(&prev, &origin)),
            "head and clone do not branch off at the same snapshot"
        );
        self.swap_features(clone, head, tx)?;
        // The contents change underneath the objsets, which have to be opened again.
        clone.set_objset(None);
        head.set_objset(None);

        let limits = head.limits();
        let unused = |unique: u64| limits.reserved.min(unique).cast_signed();
        let more_unused = unused(limits.unique) - unused(clone.fields().unique_bytes);

        let fields = origin.fields();
        if fields.next_snap_obj == head.object().0 {
            // The head is the origin's successor. (A clone may also be rolled back to its origin,
            // which changes nothing there; OpenZFS sets unique_bytes to 0 then.)
            let since = fields.prev_snap_txg;
            let unique = clone.with_deadlist(|dl| dl.space_range(since, u64::MAX))?;
            origin.state().fields.unique_bytes = unique.used.cast_unsigned();
            self.dirty_dataset(&origin);
        }

        self.swap_accounts(clone, head)?;
        let more_unused = Space {
            used: more_unused,
            ..Space::ZERO
        };
        self.diduse_space(&head.dir(), Used::RefRsrv, more_unused);

        let (mut clone_state, mut head_state) = (clone.state(), head.state());
        let (a, b) = (&mut clone_state.fields, &mut head_state.fields);
        let (bp_a, bp_b) = (a.bp(), b.bp());
        a.set_bp(bp_b);
        b.set_bp(bp_a);
        let (referenced_a, referenced_b) = (a.referenced(), b.referenced());
        a.set_referenced(referenced_b);
        b.set_referenced(referenced_a);
        std::mem::swap(&mut a.unique_bytes, &mut b.unique_bytes);
        std::mem::swap(&mut a.deadlist_obj, &mut b.deadlist_obj);
        let deadlists = (ObjectId(a.deadlist_obj), ObjectId(b.deadlist_obj));
        drop((clone_state, head_state));
        clone.set_deadlist(Some(Deadlist::open(self.mos(), deadlists.0)?));
        head.set_deadlist(Some(Deadlist::open(self.mos(), deadlists.1)?));
        self.dirty_dataset(clone);
        self.dirty_dataset(head);
        self.recount_freed(head, &origin, tx)?;
        let swapped = DatasetChange::Swapped(clone.object(), head.object());
        self.mos().env().dataset_changed(swapped);
        self.remove_livelist(&clone.dir(), tx)?;
        self.remove_livelist(&head.dir(), tx)
    }

    fn swap_features(
        &self,
        clone: &Arc<DslDataset>,
        head: &Arc<DslDataset>,
        tx: &Tx,
    ) -> Result<()> {
        let of_clone = clone.state().features.clone();
        let of_head = head.state().features.clone();
        for (ds, old, new) in [(clone, &of_clone, &of_head), (head, &of_head, &of_clone)] {
            self.deactivate_features(ds, tx)?;
            for (guid, value) in new {
                self.activate_feature_of(ds.object(), guid, value, tx)?;
            }
            debug_assert!(ds.state().features.is_empty(), "{} of {ds:?}", old.len());
            ds.state().features = new.clone();
        }
        Ok(())
    }

    /// Charges each directory for the contents that its head is about to get.
    fn swap_accounts(&self, clone: &Arc<DslDataset>, head: &Arc<DslDataset>) -> Result<()> {
        let (clone_dir, head_dir) = (clone.dir(), head.dir());
        let all_of = |ds: &Arc<DslDataset>| -> Result<Space> {
            Ok(ds.fields().referenced() + ds.with_deadlist(|dl| dl.space())?)
        };
        let change = all_of(clone)? - all_of(head)?;
        self.diduse_space(&head_dir, Used::Head, change);
        self.diduse_space(&clone_dir, Used::Head, -change);
        // Blocks on a head's deadlist are charged to its directory as those of snapshots.
        let origin_txg = head_dir.state().origin_txg;
        let dead =
            |ds: &Arc<DslDataset>| ds.with_deadlist(|dl| dl.space_range(origin_txg, u64::MAX));
        let more_dead = dead(clone)? - dead(head)?;
        self.transfer_space(&head_dir, more_dead.used, Used::Head, Used::Snap);
        Ok(())
    }
}
