//! Transactions: the right to change things in one txg.
//!
//! # What it is
//! An *open-context* [`Tx`] comes from [`TxGroups::hold_open`](crate::TxGroups::hold_open). Until
//! it is dropped the open txg cannot be quiesced, so everything that is changed under it reaches
//! the disk together. A *syncing* [`Tx`] belongs to the thread that syncs a txg: it changes what
//! that very txg writes.
//!
//! # Source
//! OpenZFS module/zfs/dmu_tx.c, include/sys/dmu_tx.h @be7657e3.

use std::fmt;
use std::sync::Arc;

use base::{Result, Txg};

use crate::TxGroups;

/// `dmu_tx_t`: the permission to make changes, and the txg that they will belong to.
#[doc(alias = "dmu_tx_t")]
pub struct Tx {
    txg: Txg,
    /// None: a syncing Tx.
    hold: Option<Arc<TxGroups>>,
}

impl Tx {
    /// The Tx of the thread that syncs `txg`, for changes in syncing context.
    #[must_use]
    #[doc(alias = "dmu_tx_create_assigned")]
    pub fn syncing(txg: Txg) -> Tx {
        Tx { txg, hold: None }
    }

    pub(crate) fn open(txg: Txg, groups: Arc<TxGroups>) -> Tx {
        Tx {
            txg,
            hold: Some(groups),
        }
    }

    /// The txg that changes under this Tx belong to.
    #[must_use]
    pub fn txg(&self) -> Txg {
        self.txg
    }

    /// Whether this is a Tx in syncing context.
    #[must_use]
    pub fn is_syncing(&self) -> bool {
        self.hold.is_none()
    }

    /// The txg state machine that an open-context Tx came from.
    #[must_use]
    pub fn groups(&self) -> Option<&Arc<TxGroups>> {
        self.hold.as_ref()
    }

    /// Calls `f` once the txg is on stable storage, or has failed for good. Open context only.
    ///
    /// `f` runs on the sync thread, without locks held; it must not wait for another txg.
    #[doc(alias = "dmu_tx_callback_register")]
    pub fn on_synced(&self, f: impl FnOnce(Result<()>) + Send + 'static) {
        let groups = self
            .hold
            .as_ref()
            .expect("callbacks belong to open-context transactions");
        groups.add_callback(self.txg, Box::new(f));
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if let Some(groups) = self.hold.take() {
            groups.release(self.txg);
        }
    }
}

impl fmt::Debug for Tx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let context = if self.is_syncing() { "syncing" } else { "open" };
        write!(f, "Tx({context}, {})", self.txg)
    }
}
