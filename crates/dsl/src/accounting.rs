//! Block accounting of a head while its objset is synced: blocks born and blocks killed.
//!
//! # What it is
//! The DMU reports every block that an objset gains or loses. Until the objset is written, sizes
//! are only summed and dead blocks that a snapshot still has are only collected; then the sums are
//! applied to the dataset and its directories, and the dead blocks go on the deadlist. The result
//! is the same as accounting for each block, since every account depends on the total alone.
//!
//! # Source
//! OpenZFS module/zfs/dsl_dataset.c (`dsl_dataset_block_born`, `dsl_dataset_block_kill`,
//! `dsl_dataset_sync_done`), module/zfs/dsl_pool.c (`dsl_pool_mos_diduse_space`) @be7657e3

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use base::{Error, Result, SPA_OLD_MAXBLOCKSIZE, Txg};
use dmu::{BlockAccounting, Tx};
use phys::blkptr::BlkPtrPhys;
use phys::{ChecksumType, CompressType};
use rt::Mutex;

use crate::bookmark_written::FreedSince;
use crate::dataset::DslDataset;
use crate::dir::Used;
use crate::env::PoolEnv;
use crate::pool::DslPool;
use crate::size::{Space, apply};
use phys::feature;

/// Births and deaths in one head that are not yet in the accounts.
#[derive(Default)]
pub(crate) struct Tally {
    born: Space,
    /// Killed and freed: nothing else references them.
    freed: Space,
    /// Killed, but still in the previous snapshot.
    dead: Space,
    /// Bytes of `dead` that are now unique to that snapshot.
    dead_unique_to_prev: i64,
    /// Bytes of `dead` that were born after the origin.
    dead_after_origin: i64,
    /// ds_pending_deadlist
    pending: Vec<BlkPtrPhys>,
    /// Killed and to be freed, but expensive to free (gang, dedup): they go through the pool's free
    /// list.
    deferred: Vec<BlkPtrPhys>,
    /// A block was born no later than the previous snapshot, whose txg on disk is wrong then.
    is_too_early: bool,
    features: BTreeSet<&'static str>,
    /// Killed blocks that bookmarks since the previous snapshot referenced.
    pub(crate) since: Vec<FreedSince>,
}

/// [`BlockAccounting`] of a head.
pub(crate) struct HeadAccounting {
    pool: Weak<DslPool>,
    ds: Weak<DslDataset>,
}

impl HeadAccounting {
    pub(crate) fn new(pool: Weak<DslPool>, ds: &Arc<DslDataset>) -> HeadAccounting {
        HeadAccounting {
            pool,
            ds: Arc::downgrade(ds),
        }
    }

    fn parts(&self) -> (Arc<DslPool>, Arc<DslDataset>) {
        let pool = self
            .pool
            .upgrade()
            .expect("the pool outlives the syncing of its data sets");
        let ds = self
            .ds
            .upgrade()
            .expect("a data set outlives the syncing of its objset");
        (pool, ds)
    }
}

impl BlockAccounting for HeadAccounting {
    fn born(&self, bp: &BlkPtrPhys, tx: &Tx) {
        let (pool, ds) = self.parts();
        assert!(tx.is_syncing(), "blocks are born in syncing context");
        let is_too_early = bp.allocation_birth() <= ds.prev_snap_txg();
        let mut tally = ds.tally.lock();
        tally.is_too_early |= is_too_early;
        tally.born += Space::of_block(pool.mos().env(), bp);
        tally.features.extend(features_of(bp));
    }

    fn cloned(&self, bp: &BlkPtrPhys) {
        let (pool, _) = self.parts();
        pool.mos().env().share(bp);
    }

    fn kill(&self, bp: &BlkPtrPhys, tx: &Tx) {
        if bp.is_hole() || bp.is_redacted() {
            return;
        }
        let (pool, ds) = self.parts();
        assert!(tx.is_syncing(), "blocks are killed in syncing context");
        let space = Space::of_block(pool.mos().env(), bp);
        let birth = bp.allocation_birth();
        let (prev_snap_txg, origin_txg, prev) = {
            let state = ds.state();
            let origin_txg = state.dir.state().origin_txg;
            (state.fields.prev_snap_txg, origin_txg, state.prev.clone())
        };
        let mut tally = ds.tally.lock();
        for it in &mut tally.since {
            if birth <= it.createtxg {
                it.freed += space;
            }
        }
        if birth.0 > prev_snap_txg {
            tally.freed += space;
            if bp.is_gang() || bp.is_dedup() {
                tally.deferred.push(*bp);
            } else {
                pool.mos().env().free(tx.txg(), bp);
            }
            return;
        }
        tally.dead += space;
        tally.pending.push(*bp);
        // Without a predecessor there is nothing to charge: a block of birth txg 0 in a head
        // without snapshots is corrupt.
        let is_unique_to = |prev: &DslDataset| {
            let prev = prev.state();
            prev.fields.next_snap_obj == ds.object().0 && birth.0 > prev.fields.prev_snap_txg
        };
        if prev.is_some_and(|prev| is_unique_to(&prev)) {
            tally.dead_unique_to_prev += space.used;
        }
        if birth.0 > origin_txg {
            tally.dead_after_origin += space.used;
        }
    }

    fn dsize(&self, bp: &BlkPtrPhys) -> u64 {
        self.pool
            .upgrade()
            .map_or_else(|| bp.asize(), |pool| pool.mos().env().dsize(bp))
    }

    fn dirtied(&self, txg: Txg) {
        let (pool, ds) = self.parts();
        pool.objset_dirtied(&ds, txg);
    }

    fn large_dnode_written(&self, _tx: &Tx) {
        if let Some(ds) = self.ds.upgrade() {
            ds.activate_feature(feature::LARGE_DNODE);
        }
    }
}

/// The per-dataset features that a block needs.
fn features_of(bp: &BlkPtrPhys) -> impl Iterator<Item = &'static str> {
    let large = (bp.lsize() > SPA_OLD_MAXBLOCKSIZE).then_some(feature::LARGE_BLOCKS);
    let checksum = match ChecksumType::try_from(bp.checksum()) {
        Ok(ChecksumType::Sha512) => Some(feature::SHA512),
        Ok(ChecksumType::Skein) => Some(feature::SKEIN),
        Ok(ChecksumType::EdonR) => Some(feature::EDONR),
        Ok(ChecksumType::Blake3) => Some(feature::BLAKE3),
        _ => None,
    };
    let zstd = bp.compress() == CompressType::Zstd as u8;
    let compress = zstd.then_some(feature::ZSTD_COMPRESS);
    let rewrite = bp.is_rewrite().then_some(feature::PHYSICAL_REWRITE);
    let features = large.into_iter().chain(checksum).chain(compress);
    features.chain(rewrite)
}

impl DslDataset {
    pub(crate) fn prev_snap_txg(&self) -> Txg {
        Txg(self.state().fields.prev_snap_txg)
    }

    pub(crate) fn creation_txg(&self) -> Txg {
        Txg(self.state().fields.creation_txg)
    }
}

impl DslPool {
    /// Applies the tally collected while a head's objset was synced; the head is clean after that.
    #[doc(alias = "dsl_dataset_sync_done")]
    pub(crate) fn apply_tally(&self, ds: &Arc<DslDataset>, tx: &Tx) -> Result<()> {
        let tally = std::mem::take(&mut *ds.tally.lock());
        if tally.is_too_early {
            let (object, txg) = (ds.object(), ds.prev_snap_txg());
            let what = format!(
                "data set {object}: ds_prev_snap_txg is {txg} in txg {}",
                tx.txg()
            );
            return Err(Error::corrupt(what));
        }
        let Tally {
            born,
            freed,
            dead,
            dead_unique_to_prev,
            dead_after_origin,
            ..
        } = tally;
        self.record_freed(ds, &tally.since, tx)?;
        let unique = born.used - freed.used;
        let (charged, dir, prev) = {
            let mut state = ds.state();
            let charged = state.parent_delta(unique);
            state.fields.add_referenced(born - freed - dead);
            apply(&mut state.fields.unique_bytes, unique, "ds_unique_bytes");
            for feature in &tally.features {
                if !state.features.contains_key(*feature) {
                    state.activating.insert(feature);
                }
            }
            (charged, state.dir.clone(), state.prev.clone())
        };
        self.dirty_dataset(ds);
        if dir.state().origin_txg != 0 {
            self.remove_livelist(&dir, tx)?;
        }
        let change = Space {
            used: charged,
            ..born - freed
        };
        if !change.is_zero() || unique != 0 {
            self.diduse_transfer(&dir, change, unique, Used::RefRsrv, Used::Head);
        }
        self.transfer_space(&dir, dead_after_origin, Used::Head, Used::Snap);
        if let Some(prev) = prev.filter(|_| dead_unique_to_prev != 0) {
            let unique = &mut prev.state().fields.unique_bytes;
            apply(unique, dead_unique_to_prev, "ds_unique_bytes");
            self.dirty_dataset(&prev);
        }
        if !tally.pending.is_empty() {
            self.split_old_deadlist(ds, tx)?;
            ds.with_deadlist(|deadlist| deadlist.insert(&tally.pending, tx))?;
        }
        if !tally.deferred.is_empty() {
            let deferred = tally.deferred.iter();
            let space = deferred
                .map(|bp| Space::of_block(self.mos().env(), bp))
                .sum();
            self.free_bpobj()?.enqueue(&tally.deferred, false, tx)?;
            self.diduse_space(self.free_dir()?, Used::Head, space);
        }
        self.activate_features(ds, tx)
    }
}

/// [`BlockAccounting`] of the MOS: blocks are freed at once, and their space is charged to the
/// directory `$MOS` later, when the MOS is not being synced.
pub struct MosAccounting {
    env: Arc<dyn PoolEnv>,
    change: Mutex<Space>,
}

impl MosAccounting {
    /// Creates the accounting for the MOS of a pool that is being created or opened.
    #[must_use]
    pub fn new(env: Arc<dyn PoolEnv>) -> Arc<MosAccounting> {
        Arc::new(MosAccounting {
            env,
            change: Mutex::new(Space::ZERO),
        })
    }

    #[cfg(test)]
    pub(crate) fn pending(&self) -> Space {
        *self.change.lock()
    }

    /// Takes the change not charged yet.
    pub(crate) fn take(&self) -> Space {
        std::mem::take(&mut *self.change.lock())
    }
}

impl BlockAccounting for MosAccounting {
    fn born(&self, bp: &BlkPtrPhys, _tx: &Tx) {
        *self.change.lock() += Space::of_block(&*self.env, bp);
    }

    fn kill(&self, bp: &BlkPtrPhys, tx: &Tx) {
        *self.change.lock() -= Space::of_block(&*self.env, bp);
        self.env.free(tx.txg(), bp);
    }

    fn dsize(&self, bp: &BlkPtrPhys) -> u64 {
        self.env.dsize(bp)
    }
}
