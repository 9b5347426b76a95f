//! Shared blocks (dedup, clones): consulted before they are written, and before their space is freed.
//!
//! # What it is
//! All frees of a syncing txg pass through here ([`Core`](crate::core::Core)). A block with the
//! dedup bit is owned by an entry of a dedup table, not by the block pointer being freed; a cloned
//! block by as many pointers as the table of cloned blocks says. Such a block loses a reference,
//! and its space is freed with the last one. The pointers of a pass are collected first, and then
//! looked up together in key order: tables are large, and neighbouring keys are in the same block.
//!
//! A clone adds references: they are collected when the txg is frozen, and added to the tables before the sync frees
//! anything, so that a block whose first owner goes in the txg in which it was cloned stays.
//!
//! A block that is deduplicated gets its reference while its objset is written, before anything is freed in that
//! pass. So a block whose last pointer goes in the txg in which it is written again stays, too. The tables themselves
//! change at the end of the pass.
//!
//! # Invariants
//! 1. References released in a pass are dropped from the tables in the same pass; none are left at
//!    the end of a txg.
//! 2. A block on the deferred list has already been released: no table has an entry for it any
//!    more.
//!
//! # Concurrency
//! [`Sharing::is_shared`] and [`Sharing::release`] are called by any thread of the sync, [`Sharing::sync`] by
//! the sync thread alone.
//!
//! # Source
//! OpenZFS `module/zfs/zio.c` (`zio_free`, `zio_ddt_free`, `zio_brt_free`), `module/zfs/ddt.c` (`ddt_sync`),
//! `module/zfs/brt.c`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Error, ErrorKind, ObjectId, Result, VdevId};
use brt::Brts;
use ddt::{Candidate, DdtHistogram, DdtKey, DdtSizes, DdtSync, Ddts, UniqueZaps};
use dmu::{Objset, Tx};
use phys::BlkPtrPhys;
use phys::blkptr::DvaPhys;
use phys::scan::DdtBookmarkPhys;
use rt::{Mutex, RwLock};
use zio::{DedupTables, Known};

use crate::prefetch::SharedTables;

/// The tables of shared blocks: the pipeline asks it where a block is that is to be deduplicated.
#[derive(Default)]
pub(crate) struct Sharing {
    tables: Mutex<Option<Ddts>>,
    clones: RwLock<Option<Brts>>,
    has_clones: AtomicBool,
    /// Blocks that the txg about to be synced has one more pointer to.
    shared: Mutex<Vec<BlkPtrPhys>>,
    /// Block pointers released in this pass.
    released: Mutex<Vec<BlkPtrPhys>>,
    /// Bytes charged to datasets beyond what is stored: saved by dedup and cloning.
    dspace: AtomicU64,
    cloned: AtomicU64,
    cloned_saved: AtomicU64,
    /// The dedup tables are larger than they may be.
    is_over_quota: AtomicBool,
}

/// What is deduplicated in a pool.
#[derive(Clone, Debug, Default)]
pub struct Deduped {
    /// Bytes that datasets use in deduplicated blocks, in percent of what is stored of them.
    pub ratio_percent: u64,
    /// What the tables take.
    pub sizes: DdtSizes,
    /// What they hold, by number of references.
    pub histogram: DdtHistogram,
}

/// The result of the releases of a pass.
#[derive(Default)]
pub(crate) struct Released {
    /// Blocks that lost their last reference.
    pub(crate) free: Vec<BlkPtrPhys>,
    /// Blocks that a scan would leave out from now on where they are referred to.
    pub(crate) risen: Vec<BlkPtrPhys>,
    /// Tables of cloned blocks that became empty and were removed.
    pub(crate) clone_tables_gone: u64,
    /// Dedup tables of `fast_dedup` that were made, and that were removed.
    pub(crate) fast_tables: (u64, u64),
}

impl Sharing {
    /// Opens the pool's tables. `is_fast`: whether the next dedup table that is made is one of `fast_dedup`; `dsize`:
    /// the bytes that one copy is charged for.
    pub(crate) fn open(
        &self,
        mos: &Arc<Objset>,
        is_fast: bool,
        dsize: &dyn Fn(&DvaPhys) -> u64,
    ) -> Result<()> {
        *self.tables.lock() = Some(Ddts::open(mos, is_fast, dsize)?);
        *self.clones.write() = Some(Brts::open(mos)?);
        self.count();
        Ok(())
    }

    fn count(&self) {
        let tables = self.tables.lock();
        let clones = self.clones.read();
        let deduped = tables.as_ref().map_or(0, Ddts::dedup_dspace);
        let (used, saved) = clones.as_ref().map_or((0, 0), |c| (c.used(), c.saved()));
        let dspace = deduped.saturating_add(saved);
        self.dspace.store(dspace, Ordering::Relaxed);
        self.cloned.store(used, Ordering::Relaxed);
        self.cloned_saved.store(saved, Ordering::Relaxed);
        let is_any = clones.as_ref().is_some_and(|clones| !clones.is_empty());
        self.has_clones.store(is_any, Ordering::Release);
    }

    /// Drops all references to the MOS.
    pub(crate) fn close(&self) {
        *self.tables.lock() = None;
        *self.clones.write() = None;
    }

    /// By how many bytes the pool appears larger than it is.
    pub(crate) fn dspace(&self) -> u64 {
        self.dspace.load(Ordering::Relaxed)
    }

    /// What is deduplicated; nothing while the tables are not open.
    pub(crate) fn deduped(&self) -> Result<Deduped> {
        match &*self.tables.lock() {
            Some(tables) => Ok(Deduped {
                ratio_percent: tables.ratio_percent(),
                sizes: tables.sizes()?,
                histogram: tables.histogram(),
            }),
            None => Ok(Deduped {
                ratio_percent: 100,
                ..Deduped::default()
            }),
        }
    }

    /// Bytes that cloned blocks occupy, and the additional bytes that copies would occupy.
    pub(crate) fn cloned(&self) -> (u64, u64) {
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        (load(&self.cloned), load(&self.cloned_saved))
    }

    /// Whether a block is to be [released](Sharing::release) instead of freed.
    pub(crate) fn is_shared(&self, bp: &BlkPtrPhys) -> bool {
        bp.is_dedup() || self.may_be_cloned(bp)
    }

    fn may_be_cloned(&self, bp: &BlkPtrPhys) -> bool {
        let has_it = |clones: &Brts| clones.may_have(bp);
        self.has_clones.load(Ordering::Acquire) && self.clones.read().as_ref().is_some_and(has_it)
    }

    /// Notes that the txg about to be synced has one more pointer to a block.
    pub(crate) fn share(&self, bp: &BlkPtrPhys) {
        if !bp.is_hole() && !bp.is_embedded() {
            self.shared.lock().push(*bp);
        }
    }

    /// Adds these references to the tables of cloned blocks; returns how many tables it made. `vdev_bytes`: what
    /// can be allocated of a vdev; `as_numbers`: how new entries are stored.
    pub(crate) fn add_clones(
        &self,
        tx: &Tx,
        dsize: &dyn Fn(&DvaPhys) -> u64,
        vdev_bytes: &dyn Fn(VdevId) -> u64,
        as_numbers: bool,
    ) -> Result<u64> {
        let shared = std::mem::take(&mut *self.shared.lock());
        if shared.is_empty() {
            return Ok(0);
        }
        let mut guard = self.clones.write();
        let tables = guard.as_mut().expect("a pool that syncs has its tables");
        let mut made = 0;
        for same in by_place(shared).chunk_by(is_same_place) {
            let bytes = same[0].dvas().map(|dva| dsize(&dva)).sum();
            let vdev_bytes = vdev_bytes(same[0].dva[0].vdev());
            let count = same.len() as u64;
            let is_new = tables.add(tx, &same[0], count, bytes, vdev_bytes, as_numbers)?;
            made += u64::from(is_new);
        }
        tables.sync(tx)?;
        drop(guard);
        self.count();
        Ok(made)
    }

    /// Releases a pointer to a block that other pointers may reference, too.
    pub(crate) fn release(&self, bp: &BlkPtrPhys) {
        self.released.lock().push(*bp);
    }

    /// Drops the references released in this pass.
    pub(crate) fn sync(&self, tx: &Tx, how: &DdtSync<'_>) -> Result<Released> {
        let released = std::mem::take(&mut *self.released.lock());
        let has_logged = how.flushes && self.has_logged();
        if released.is_empty() && !self.has_new() && !has_logged {
            return Ok(Released::default());
        }
        let (deduped, cloned) = released.into_iter().partition(BlkPtrPhys::is_dedup);
        let mut outcome = Released::default();
        self.sync_deduped(tx, deduped, how, &mut outcome)?;
        self.sync_cloned(tx, cloned, how.dsize, &mut outcome)?;
        self.count();
        Ok(outcome)
    }

    fn sync_deduped(
        &self,
        tx: &Tx,
        mut released: Vec<BlkPtrPhys>,
        how: &DdtSync<'_>,
        outcome: &mut Released,
    ) -> Result<()> {
        released.sort_by_key(|bp| (bp.checksum(), DdtKey::of(bp)));
        let mut tables = self.tables.lock();
        let tables = tables.as_mut().expect("a pool that syncs has its tables");
        for bp in &released {
            outcome.free.extend(tables.release(bp)?);
        }
        let synced = tables.sync(tx, how)?;
        outcome.free.extend(synced.free);
        outcome.risen = synced.risen;
        outcome.fast_tables = (synced.made, synced.removed);
        Ok(())
    }

    fn sync_cloned(
        &self,
        tx: &Tx,
        released: Vec<BlkPtrPhys>,
        dsize: &dyn Fn(&DvaPhys) -> u64,
        outcome: &mut Released,
    ) -> Result<()> {
        if released.is_empty() {
            return Ok(());
        }
        let mut clones = self.clones.write();
        let clones = clones.as_mut().expect("a pool that syncs has its tables");
        for same in by_place(released).chunk_by(is_same_place) {
            let bytes = same[0].dvas().map(|dva| dsize(&dva)).sum();
            if clones.release(tx, &same[0], same.len() as u64, bytes)? {
                outcome.free.push(same[0]);
            }
        }
        outcome.clone_tables_gone = clones.sync(tx)?;
        Ok(())
    }

    /// The ZAPs that the tables of a kind are.
    pub(crate) fn zaps(&self, tables: SharedTables) -> Vec<ObjectId> {
        match tables {
            SharedTables::Dedup => {
                let tables = self.tables.lock();
                let tables = tables.iter().flat_map(Ddts::tables);
                tables
                    .flat_map(|table| table.parts().map(|(_, _, object, _)| object))
                    .collect()
            }
            SharedTables::Cloned => {
                let clones = self.clones.read();
                clones.iter().flat_map(Brts::zaps).collect()
            }
        }
    }

    /// The ZAPs of dedup tables whose entries may be pruned.
    pub(crate) fn unique_zaps(&self) -> Option<UniqueZaps> {
        self.tables.lock().as_ref().map(Ddts::unique_zaps)
    }

    /// Forgets entries of dedup tables; see [`Ddts::prune`].
    pub(crate) fn prune(&self, candidates: Vec<Candidate>) -> Result<u64> {
        let mut tables = self.tables.lock();
        tables
            .as_mut()
            .map_or(Ok(0), |tables| tables.prune(candidates))
    }

    /// The next entry of the dedup tables; see [`Ddts::next`].
    pub(crate) fn next_deduped(&self, at: &mut DdtBookmarkPhys) -> Result<Option<Vec<BlkPtrPhys>>> {
        let tables = self.tables.lock();
        tables.as_ref().map_or(Ok(None), |tables| tables.next(at))
    }

    /// Whether a block is in a dedup table; see [`Ddts::contains`].
    pub(crate) fn has_deduped(&self, class_max: u64, bp: &BlkPtrPhys) -> Result<bool> {
        let tables = self.tables.lock();
        let has_it = |tables: &Ddts| tables.contains(class_max, bp);
        tables.as_ref().map_or(Ok(false), has_it)
    }

    /// Blocks that are in no dedup table are not entered any more, or are again.
    pub(crate) fn set_over_quota(&self, is_over: bool) {
        self.is_over_quota.store(is_over, Ordering::Relaxed);
    }

    /// Whether the next dedup table that is made is one of `fast_dedup`.
    pub(crate) fn set_fast(&self, is_fast: bool) {
        if let Some(tables) = self.tables.lock().as_mut() {
            tables.set_fast(is_fast);
        }
    }

    /// Whether nothing is pending.
    pub(crate) fn is_settled(&self) -> bool {
        self.released.lock().is_empty() && !self.has_new()
    }

    /// Whether entries of dedup tables wait in logs.
    fn has_logged(&self) -> bool {
        self.tables.lock().as_ref().is_some_and(Ddts::has_logged)
    }

    /// Whether blocks were looked for in the dedup tables in this pass.
    fn has_new(&self) -> bool {
        self.tables.lock().as_ref().is_some_and(Ddts::has_changes)
    }
}

impl DedupTables for Sharing {
    fn find(&self, bp: &BlkPtrPhys, copies: usize) -> Result<Known> {
        let mut tables = self.tables.lock();
        let closed = || Error::new(ErrorKind::Unsupported, "the dedup tables are not open");
        let entry = tables.as_mut().ok_or_else(closed)?.entry(bp)?;
        let found = entry.map(|entry| entry.blocks(bp, copies));
        let has_room = !self.is_over_quota.load(Ordering::Relaxed);
        Ok(Known {
            any: found.and_then(|found| found.any),
            wanted: found.and_then(|found| found.wanted),
            partial: found.and_then(|found| found.partial),
            has_room: found.map_or(has_room, |found| found.has_room),
        })
    }

    fn refer(&self, bp: &BlkPtrPhys, copies: usize) {
        let mut tables = self.tables.lock();
        let tables = tables.as_mut().expect("they were asked before");
        let referred = tables.refer(bp, copies);
        referred.expect("a block that was written has a checksum");
    }

    fn forget(&self, bp: &BlkPtrPhys, had: usize) {
        if let Some(tables) = self.tables.lock().as_mut() {
            tables.forget(bp, had);
        }
    }
}

fn place(bp: &BlkPtrPhys) -> (VdevId, u64) {
    (bp.dva[0].vdev(), bp.dva[0].offset())
}

fn by_place(mut blocks: Vec<BlkPtrPhys>) -> Vec<BlkPtrPhys> {
    blocks.sort_by_key(place);
    blocks
}

fn is_same_place(a: &BlkPtrPhys, b: &BlkPtrPhys) -> bool {
    place(a) == place(b)
}
