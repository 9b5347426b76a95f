//! User holds: tags that keep a snapshot from being destroyed.
//!
//! Source: OpenZFS module/zfs/dsl_userhold.c @be7657e3

use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result};
use dmu::Tx;
use phys::ObjectType;
use phys::dsl::DS_FLAG_DEFER_DESTROY;

use crate::create::now_secs;
use crate::dataset::DslDataset;
use crate::pool::DslPool;
use crate::space::SpaceCheck;
use crate::synctask::Verdict;

impl DslPool {
    /// Places a hold on snapshots, all or none, under a tag that none of them has yet.
    ///
    /// # Errors
    /// `NotFound`; `Exists` when one has the tag already; `InvalidInput` when one is not a
    /// snapshot.
    #[doc(alias = "dsl_dataset_user_hold")]
    pub fn hold(&self, snaps: &[&str], tag: &str) -> Result<()> {
        let names: Vec<String> = snaps.iter().map(ToString::to_string).collect();
        let (checked, wanted, tag) = (names.clone(), tag.to_string(), tag.to_string());
        let check = move |pool: &DslPool, _: &Tx| {
            if wanted.is_empty() || wanted.len() >= zap::MAX_NAME_BYTES {
                return Err(Error::invalid(format!("tag of {} bytes", wanted.len())));
            }
            for name in &checked {
                let snap = pool.find_dataset(name)?;
                if !snap.is_snapshot() {
                    return Err(Error::invalid(format!("{name} is not a snapshot")));
                }
                let holds = snap.fields().userrefs_obj;
                if holds != 0 && pool.mos().zap_contains(ObjectId(holds), &wanted)? {
                    let text = format!("{name} is held as {wanted}");
                    return Err(Error::new(ErrorKind::Exists, text));
                }
            }
            Ok(Verdict::Go)
        };
        self.sync_task(
            names.len() as u64,
            SpaceCheck::Reserved,
            check,
            move |pool, tx| {
                for name in &names {
                    let snap = pool.find_dataset(name)?;
                    pool.hold_sync(&snap, &tag, tx)?;
                }
                Ok(())
            },
        )
    }

    #[doc(alias = "dsl_dataset_user_hold_sync_one")]
    fn hold_sync(&self, snap: &Arc<DslDataset>, tag: &str, tx: &Tx) -> Result<()> {
        let mut zap = ObjectId(snap.fields().userrefs_obj);
        if zap.0 == 0 {
            zap = self.mos().zap_create(ObjectType::USERREFS, tx)?;
            snap.state().fields.userrefs_obj = zap.0;
            self.dirty_dataset(snap);
        }
        snap.add_userrefs(1);
        self.mos().zap_add(zap, tag, now_secs(), tx)?;
        let refs = snap.state().userrefs;
        self.log(snap, "hold", &format!("tag={tag} temp=0 refs={refs}"), tx)
    }

    /// Releases a hold on snapshots; one marked for deferred destroy is destroyed with its last
    /// hold.
    ///
    /// # Errors
    /// `NotFound` when one does not have the tag; `Busy` when one that would be destroyed is in
    /// use.
    #[doc(alias = "dsl_dataset_user_release")]
    pub fn release(&self, snaps: &[&str], tag: &str) -> Result<()> {
        let names: Vec<String> = snaps.iter().map(ToString::to_string).collect();
        let (checked, wanted, tag) = (names.clone(), tag.to_string(), tag.to_string());
        let check = move |pool: &DslPool, _: &Tx| {
            for name in &checked {
                let snap = pool.find_dataset(name)?;
                let holds = snap.fields().userrefs_obj;
                if holds == 0 || !pool.mos().zap_contains(ObjectId(holds), &wanted)? {
                    return Err(Error::not_found(format!("{name} is not held as {wanted}")));
                }
                if goes_with_last_hold(&snap) {
                    snap.check_not_held(0)?;
                }
            }
            Ok(Verdict::Go)
        };
        self.sync_task(0, SpaceCheck::ExtraReserved, check, move |pool, tx| {
            for name in &names {
                let snap = pool.find_dataset(name)?;
                let goes = goes_with_last_hold(&snap);
                pool.mos()
                    .zap_remove(ObjectId(snap.fields().userrefs_obj), &tag, tx)?;
                snap.add_userrefs(-1);
                let refs = snap.state().userrefs;
                pool.log(&snap, "release", &format!("tag={tag} refs={refs}"), tx)?;
                if goes {
                    pool.destroy_snapshot_sync(&snap, false, tx)?;
                }
            }
            Ok(())
        })
    }

    /// The hold tags of a snapshot and when each was placed, in seconds since 1970.
    ///
    /// # Errors
    /// Any error from reading the MOS.
    #[doc(alias = "dsl_dataset_get_holds")]
    pub fn holds(&self, snap: &Arc<DslDataset>) -> Result<Vec<(String, u64)>> {
        match snap.fields().userrefs_obj {
            0 => Ok(Vec::new()),
            zap => self.mos().zap_entries(ObjectId(zap)),
        }
    }
}

fn goes_with_last_hold(snap: &DslDataset) -> bool {
    let state = snap.state();
    let marked = state.fields.has_flag(DS_FLAG_DEFER_DESTROY);
    marked && state.fields.num_children == 1 && state.userrefs == 1
}
