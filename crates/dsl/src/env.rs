//! What the DSL needs from the pool: space, frees, features, history.

use std::fmt;

use base::{ObjectId, Result, Txg};
use dmu::Tx;
use phys::blkptr::BlkPtrPhys;

/// The pool as the DSL sees it; `spa` implements this.
pub trait PoolEnv: Send + Sync {
    /// Bytes charged for a block: the sum of its DVAs' asize, deflated by the parity overhead of
    /// each vdev. 0 for holes and embedded blocks.
    #[doc(alias = "bp_get_dsize_sync")]
    fn dsize(&self, bp: &BlkPtrPhys) -> u64;

    /// Frees a block as of the txg being synced: now, or through the deferred list in late passes.
    #[doc(alias = "dsl_free")]
    fn free(&self, txg: Txg, bp: &BlkPtrPhys);

    /// Frees a block at once; the caller is in pass 1 (destroys that spread over txgs).
    #[doc(alias = "dsl_free_sync")]
    fn free_sync(&self, txg: Txg, bp: &BlkPtrPhys) {
        self.free(txg, bp);
    }

    /// One more block pointer leads to a block from the txg on that is about to be synced. Comes before anything
    /// is freed in that txg.
    #[doc(alias = "brt_pending_add")]
    fn share(&self, bp: &BlkPtrPhys);

    /// Whether a feature may be used.
    fn feature_is_enabled(&self, guid: &str) -> bool;
    /// Whether a feature is in use (its reference count is not 0).
    fn feature_is_active(&self, guid: &str) -> bool;
    /// Adds a reference to an enabled feature. In syncing context.
    ///
    /// # Errors
    /// Any error from writing the MOS.
    #[doc(alias = "spa_feature_incr")]
    fn feature_incr(&self, guid: &str, tx: &Tx) -> Result<()>;
    /// Drops a reference to an active feature. In syncing context.
    ///
    /// # Errors
    /// Any error from writing the MOS.
    #[doc(alias = "spa_feature_decr")]
    fn feature_decr(&self, guid: &str, tx: &Tx) -> Result<()>;

    /// The most bytes that may be charged for one block of `lsize` bytes with one copy.
    #[doc(alias = "spa_get_worst_case_asize")]
    fn asize_max(&self, lsize: u64) -> u64 {
        lsize
    }

    /// Bytes in the whole pool that datasets can use, deflated, used and free together.
    #[doc(alias = "spa_get_dspace")]
    fn dspace(&self) -> u64;
    /// Whether there are special devices.
    #[doc(alias = "spa_has_special")]
    fn has_special(&self) -> bool {
        false
    }
    /// Bytes beside [`dspace`](PoolEnv::dspace) that are set aside for log blocks, deflated.
    fn embedded_log(&self) -> u64 {
        0
    }
    /// Bytes of [`dspace`](PoolEnv::dspace) that are unavailable because of deferred frees or a
    /// checkpoint.
    fn held_back(&self) -> u64 {
        0
    }
    /// Bytes that cannot be allocated yet and are free once a few txgs are synced: freed ones, and those of log
    /// blocks.
    #[doc(alias = "metaslab_class_get_deferred")]
    fn deferred(&self) -> u64 {
        0
    }

    /// Whether an asynchronous destroy that has freed `freed` blocks in this txg should pause until
    /// the next one.
    #[doc(alias = "dsl_scan_async_block_should_pause")]
    fn destroy_should_pause(&self, freed: u64) -> bool {
        freed >= 100_000
    }

    /// Reports a change to a dataset that a scan may be visiting. In syncing context.
    #[doc(alias = "dsl_scan_ds_destroyed")]
    #[doc(alias = "dsl_scan_ds_snapshotted")]
    #[doc(alias = "dsl_scan_ds_clone_swapped")]
    fn dataset_changed(&self, change: DatasetChange) {
        let _ = change;
    }

    /// One line for the pool's internal history. In syncing context.
    #[doc(alias = "spa_history_log_internal_ds")]
    fn log_history(&self, event: &HistoryEvent<'_>, tx: &Tx) {
        let _ = (event, tx);
    }
}

/// A change to a dataset that a scan may be visiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetChange {
    /// A head is destroyed.
    HeadDestroyed(ObjectId),
    /// A snapshot is destroyed; the next snapshot, or the head, takes over the blocks they shared.
    SnapshotDestroyed {
        /// The snapshot.
        snapshot: ObjectId,
        /// `ds_next_snap_obj`
        next: ObjectId,
    },
    /// A snapshot is taken; the head's blocks now belong to it.
    Snapshotted {
        /// The head.
        head: ObjectId,
        /// `ds_prev_snap_obj`
        snapshot: ObjectId,
    },
    /// Two heads swapped contents.
    Swapped(ObjectId, ObjectId),
}

/// An internal history record: an operation on a dataset.
#[derive(Clone, Copy, Debug)]
pub struct HistoryEvent<'a> {
    /// "create", "snapshot", "destroy", …
    pub operation: &'a str,
    /// The dataset's name.
    pub dataset: &'a str,
    /// Its object in the MOS.
    pub object: u64,
    /// More about it.
    pub message: &'a str,
}

impl fmt::Display for HistoryEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HistoryEvent {
            operation,
            dataset,
            object,
            message,
        } = self;
        write!(f, "{operation} {dataset} ({object}) {message}")
    }
}
