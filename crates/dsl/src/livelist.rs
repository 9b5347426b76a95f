//! Livelists: the blocks that a clone has and its origin does not.
//!
//! # What it is
//! OpenZFS lists every block that a clone allocates, and every one of these that it frees again, to
//! make destroying the clone fast: the blocks allocated and not freed are all there is to free.
//! Such a list may be dropped at any time; this implementation drops it before the clone changes.
//! The lists of clones that are already destroyed are processed one sublist at a time.
//!
//! # On disk
//! The directory's ZAP has `com.delphix:livelist` -> a deadlist whose bpobjs also have freed
//! entries; both entries of a block are in the same bpobj. The pool directory has
//! `com.delphix:deleted_clones` -> a set of such deadlists.
//!
//! # Source
//! OpenZFS module/zfs/dsl_deadlist.c (`dsl_process_sub_livelist`), module/zfs/spa.c
//! (`spa_livelist_delete_cb`), module/zfs/dsl_dir.c (`dsl_dir_remove_livelist`) @be7657e3

use phys::pool_names;
use std::collections::BTreeMap;
use std::sync::Arc;
use zap::directory;

use base::{ObjectId, Result};
use dmu::Tx;
use phys::BlkPtrPhys;

use crate::bpobj::Bpobj;
use crate::bptree::Freed;
use crate::deadlist::Deadlist;
use crate::dir::DslDir;
use crate::pool::DslPool;
use phys::feature;

impl DslPool {
    /// Drops the livelist of a clone.
    #[doc(alias = "dsl_dir_remove_livelist")]
    pub(crate) fn remove_livelist(&self, dd: &Arc<DslDir>, tx: &Tx) -> Result<()> {
        let mos = self.mos();
        if !mos.env().feature_is_active(feature::LIVELIST) || !mos.is_zapified(dd.object())? {
            return Ok(());
        }
        if let Some(livelist) = mos.zap_get(dd.object(), pool_names::DD_FIELD_LIVELIST)? {
            mos.zap_remove(dd.object(), pool_names::DD_FIELD_LIVELIST, tx)?;
            Deadlist::free(mos, ObjectId(livelist), tx)?;
            mos.env().feature_decr(feature::LIVELIST, tx)?;
        }
        Ok(())
    }

    /// Frees the blocks on the livelists of destroyed clones, as many as this txg has time for.
    #[doc(alias = "spa_livelist_delete_cb")]
    pub(crate) fn process_deleted_clones(&self, freed: &mut Freed<'_>, tx: &Tx) -> Result<()> {
        let mos = self.mos();
        let Some(clones) = directory::find(mos.objset(), pool_names::DELETED_CLONES)? else {
            return Ok(());
        };
        for livelist in mos.zap_set_members(clones)? {
            let mut deadlist = Deadlist::open(mos, ObjectId(livelist))?;
            for (key, list) in deadlist.entries()? {
                if freed.should_pause() {
                    return Ok(());
                }
                for bp in live_blocks(&Bpobj::open(mos, list)?)? {
                    freed.free_now(&bp);
                }
                deadlist.remove_entry(key, tx)?;
            }
            Deadlist::free(mos, ObjectId(livelist), tx)?;
            mos.zap_int_remove(clones, livelist, tx)?;
            mos.env().feature_decr(feature::LIVELIST, tx)?;
        }
        mos.zap_destroy(clones, tx)?;
        directory::remove(mos.objset(), pool_names::DELETED_CLONES, tx)
    }
}

/// The blocks of a sublist of a livelist that were allocated more often than freed.
#[doc(alias = "dsl_process_sub_livelist")]
fn live_blocks(list: &Bpobj) -> Result<Vec<BlkPtrPhys>> {
    let mut freed = BTreeMap::<(u64, u64), u64>::new();
    let mut live = Vec::new();
    // Last first: the FREE entry of a block is seen before its ALLOC entry.
    list.iterate(&mut |bp, is_freed| {
        let [dva, ..] = bp.dva;
        let place = (dva.vdev().0, dva.offset());
        if is_freed {
            *freed.entry(place).or_default() += 1;
        } else if let Some(count) = freed.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                freed.remove(&place);
            }
        } else {
            live.push(*bp);
        }
        Ok(())
    })?;
    Ok(live)
}
