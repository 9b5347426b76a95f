//! An objset in memory, for the targets that need objects.

use std::sync::Arc;

use base::{ObjsetId, Txg};
use dmu::{FreeAtOnce, Objset, ObjsetProps, Tx};
use phys::ObjsetType;
use zio::BlockStore;
use ram::RamStore;

/// A new one, and the transaction in which it was made.
pub fn new() -> (Arc<Objset>, Tx) {
    let store: Arc<dyn BlockStore> = Arc::new(RamStore::new());
    let tx = Tx::syncing(Txg(4));
    let accounting = Arc::new(FreeAtOnce(store.clone()));
    let props = ObjsetProps::default();
    let objset = Objset::create(store, ObjsetId(21), ObjsetType::Zfs, props, accounting, &tx);
    (objset, tx)
}
