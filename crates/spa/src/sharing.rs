//! Who shares a block: asked before its space is given back.
//!
//! # What it is
//! All frees of a syncing txg come by here ([`Core`](crate::core::Core)). What has the dedup bit is not owned
//! by the block pointer that goes, but by an entry of a dedup table: it loses a reference, and the space is
//! free when that was the last one. The pointers of a pass are put down first, and then looked up together, in
//! the order of their keys: a table is large, and neighbours are in the same block of it.
//!
//! # Invariants
//! 1. What was released in a pass is taken off the tables in the same pass; nothing is left at the end of a txg.
//!
//! # Concurrency
//! [`Sharing::release`] is called by any thread of the sync, [`Sharing::sync`] by the sync thread alone.
//!
//! # Source
//! OpenZFS `module/zfs/zio.c` (`zio_free`, `zio_ddt_free`), `module/zfs/ddt.c` (`ddt_sync`).

use std::sync::atomic::{AtomicU64, Ordering};

use base::Result;
use ddt::{DdtKey, Ddts};
use dmu::Tx;
use phys::BlkPtrPhys;
use phys::blkptr::DvaPhys;
use rt::Mutex;

/// The tables by which blocks are shared.
#[derive(Default)]
pub(crate) struct Sharing {
    tables: Mutex<Option<Ddts>>,
    /// Block pointers that went in this pass.
    released: Mutex<Vec<BlkPtrPhys>>,
    /// Bytes that data sets use beyond what is stored.
    dspace: AtomicU64,
}

impl Sharing {
    pub(crate) fn open(&self, tables: Ddts) {
        self.dspace.store(tables.dedup_dspace(), Ordering::Relaxed);
        *self.tables.lock() = Some(tables);
    }

    /// Lets go what refers to the MOS.
    pub(crate) fn close(&self) {
        *self.tables.lock() = None;
    }

    /// By so much the pool seems to be larger than it is.
    pub(crate) fn dspace(&self) -> u64 {
        self.dspace.load(Ordering::Relaxed)
    }

    /// A block pointer with the dedup bit goes.
    pub(crate) fn release(&self, bp: &BlkPtrPhys) {
        assert!(bp.is_dedup(), "a block that nobody shares");
        self.released.lock().push(*bp);
    }

    /// Takes the references of this pass off; answers the blocks of which none is left.
    pub(crate) fn sync(&self, tx: &Tx, dsize: &dyn Fn(&DvaPhys) -> u64) -> Result<Vec<BlkPtrPhys>> {
        let mut released = std::mem::take(&mut *self.released.lock());
        if released.is_empty() {
            return Ok(Vec::new());
        }
        released.sort_by_key(|bp| (bp.checksum(), DdtKey::of(bp)));
        let mut tables = self.tables.lock();
        let tables = tables.as_mut().expect("a pool that syncs has its tables");
        let mut free = Vec::new();
        let is_same = |a: &BlkPtrPhys, b: &BlkPtrPhys| {
            a.checksum() == b.checksum() && DdtKey::of(a) == DdtKey::of(b)
        };
        for same in released.chunk_by(is_same) {
            free.extend(tables.release(tx, same, dsize)?);
        }
        tables.sync(tx)?;
        self.dspace.store(tables.dedup_dspace(), Ordering::Relaxed);
        Ok(free)
    }

    /// Whether every release was taken off a table.
    pub(crate) fn is_settled(&self) -> bool {
        self.released.lock().is_empty()
    }
}
