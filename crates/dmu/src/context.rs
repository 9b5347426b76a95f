//! What the dnodes of an objset share: where blocks are, how to write them, which dnodes are dirty.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base::{ObjsetId, Txg};
use rt::{Mutex, RwLock};
use zio::BlockStore;

use crate::dirty::Charge;
use crate::{BlockAccounting, Dnode, ObjsetProps, Tx, TxGroups};

/// See the module. The objset owns the dnodes, and both refer to this.
pub(crate) struct Context {
    pub(crate) id: ObjsetId,
    pub(crate) store: Arc<dyn BlockStore>,
    pub(crate) accounting: Arc<dyn BlockAccounting>,
    props: RwLock<Arc<ObjsetProps>>,
    lists: Mutex<Lists>,
    /// The last txgs that [`BlockAccounting::dirtied`] was told of: open, syncing.
    announced: [AtomicU64; 2],
    groups: OnceLock<Arc<TxGroups>>,
}

#[derive(Default)]
struct Lists {
    dirty: Vec<Arc<Dnode>>,
    frozen: Vec<Arc<Dnode>>,
}

impl Context {
    pub(crate) fn new(
        id: ObjsetId,
        store: Arc<dyn BlockStore>,
        props: ObjsetProps,
        accounting: Arc<dyn BlockAccounting>,
    ) -> Arc<Context> {
        Arc::new(Context {
            id,
            store,
            accounting,
            props: RwLock::new(Arc::new(props)),
            lists: Mutex::new(Lists::default()),
            announced: [AtomicU64::new(0), AtomicU64::new(0)],
            groups: OnceLock::new(),
        })
    }

    pub(crate) fn props(&self) -> Arc<ObjsetProps> {
        Arc::clone(&self.props.read())
    }

    pub(crate) fn set_props(&self, props: ObjsetProps) {
        *self.props.write() = Arc::new(props);
    }

    /// Tells the accounting about the first change in `tx`'s txg. No lock of a dnode is held.
    pub(crate) fn announce(&self, tx: &Tx) {
        let told = &self.announced[usize::from(tx.is_syncing())];
        if told.load(Ordering::Acquire) == tx.txg().0 {
            return;
        }
        if let Some(groups) = tx.groups() {
            let known = self.groups.get_or_init(|| Arc::clone(groups));
            assert!(
                Arc::ptr_eq(known, groups),
                "objset {} changed through two pools",
                self.id
            );
        }
        self.accounting.dirtied(tx.txg());
        told.store(tx.txg().0, Ordering::Release);
    }

    /// The next change in syncing context is announced again.
    pub(crate) fn forget_announced(&self) {
        self.announced[1].store(0, Ordering::Release);
    }

    /// Puts a dnode on the list of those that `tx` changed. Called with the dnode locked.
    pub(crate) fn enlist(&self, tx: &Tx, dnode: Arc<Dnode>) {
        let mut lists = self.lists.lock();
        let list = if tx.is_syncing() {
            &mut lists.frozen
        } else {
            &mut lists.dirty
        };
        list.push(dnode);
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.lists.lock().dirty.is_empty()
    }

    pub(crate) fn is_frozen(&self) -> bool {
        !self.lists.lock().frozen.is_empty()
    }

    /// Moves the open txg's changes aside.
    pub(crate) fn freeze(&self, txg: Txg) {
        let dirty = std::mem::take(&mut self.lists.lock().dirty);
        dirty.iter().for_each(|dnode| dnode.freeze(txg));
        self.lists.lock().frozen.extend(dirty);
    }

    pub(crate) fn take_frozen(&self) -> Vec<Arc<Dnode>> {
        std::mem::take(&mut self.lists.lock().frozen)
    }

    /// Drops changes that will never be written.
    pub(crate) fn abandon(&self) {
        *self.lists.lock() = Lists::default();
    }

    /// Counts dirty bytes in the open txg; those of syncing context are not counted, as they throttle no writer.
    pub(crate) fn charge(&self, tx: &Tx, charge: Charge) {
        if tx.groups().is_some() {
            self.recharge(charge);
        }
    }

    /// The same without a transaction; adjusts the counts only.
    pub(crate) fn recharge(&self, charge: Charge) {
        if let Some(groups) = self.groups.get()
            && charge != Charge::default()
        {
            groups.recharge(charge.waiting, charge.begun);
        }
    }

    /// Notes that charged bytes of the syncing txg have been written.
    pub(crate) fn written(&self, bytes: u64) {
        if let Some(groups) = self.groups.get()
            && bytes > 0
        {
            groups.note_written(bytes);
        }
    }
}
