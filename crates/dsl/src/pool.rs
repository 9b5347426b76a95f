//! All datasets of a pool: the root of the directory tree, and the order of a sync.
//!
//! # What it is
//! [`DslPool`] finds directories and datasets by name and by object, keeps one in-core copy of each
//! that is in use, and syncs them: data of all dirty heads first, then their accounts, then the
//! tasks, then the changed fields into the MOS.
//!
//! # On disk
//! Entries of the pool directory: `root_dataset` (the root directory), `free_bpobj`, `empty_bpobj`,
//! `bptree_obj`. Hidden children of the root directory: `$MOS` and `$FREE`, which only hold
//! accounts, and `$ORIGIN`, whose empty snapshot is the origin of every dataset.
//!
//! # Crash argument
//! The DSL changes nothing but the MOS, and that only in syncing context: the uberblock that ends a
//! txg makes all changes of that txg visible at once. Work that takes longer than a txg (freeing
//! the blocks of a destroyed head) is a list in the MOS that each txg shortens.
//!
//! # Concurrency
//! Each sync task holds the configuration lock (`dp_config_rwlock`) for writing; name lookups hold
//! it for reading. Lock order: configuration, cache, objset slot, dataset state, directory state.
//! In syncing context only the sync thread changes anything.
//!
//! # Source
//! OpenZFS module/zfs/dsl_pool.c @be7657e3

use phys::pool_names::{self, FREE_DIR_NAME, MOS_DIR_NAME, ORIGIN_DIR_NAME};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use zap::directory;

use base::{Error, ErrorKind, ObjectId, Result, Txg};
use dmu::{Tx, TxGroups};
use rt::{Mutex, RwLock};
use zio::{BlockStore, Keys, LogStore};

use crate::accounting::MosAccounting;
use crate::bpobj::Bpobj;
use crate::crypt::Keystore;
use crate::dataset::DslDataset;
use crate::dir::{DslDir, Used};
use crate::mos::Mos;
#[cfg(test)]
use crate::size::Space;
use crate::synctask::TaskQueue;

/// The datasets of one pool.
#[doc(alias = "dsl_pool_t")]
pub struct DslPool {
    me: Weak<DslPool>,
    name: Mutex<String>,
    mos: Arc<Mos>,
    mos_accounting: Arc<MosAccounting>,
    store: Arc<dyn BlockStore>,
    log_store: Arc<dyn LogStore>,
    groups: Arc<TxGroups>,
    config: RwLock<()>,
    cache: Mutex<Cache>,
    changed: Mutex<Changed>,
    tasks: TaskQueue,
    special: OnceLock<Special>,
    keystore: Keystore,
    /// dp_bptree_obj: trees of destroyed heads whose blocks are being freed
    pub(crate) bptree: Mutex<Option<ObjectId>>,
}

/// In-core directories and datasets by object.
#[derive(Default)]
struct Cache {
    dirs: BTreeMap<ObjectId, Weak<DslDir>>,
    datasets: BTreeMap<ObjectId, Weak<DslDataset>>,
}

/// What is dirty and has to be synced.
#[derive(Default)]
struct Changed {
    /// Directories and datasets whose fields differ from the MOS.
    dirs: BTreeMap<ObjectId, Arc<DslDir>>,
    datasets: BTreeMap<ObjectId, Arc<DslDataset>>,
    /// dp_dirty_datasets: heads whose objset is dirty, by txg
    objsets: BTreeMap<Txg, BTreeMap<ObjectId, Arc<DslDataset>>>,
    /// Directories with in-flight estimates, by txg.
    in_flight: BTreeMap<Txg, BTreeMap<ObjectId, Arc<DslDir>>>,
}

/// `SPA_VERSION_ORIGIN`: each data set has an origin from here on.
pub(crate) const SPA_VERSION_ORIGIN: u64 = 11;
/// `SPA_VERSION_DEADLISTS`: blocks are freed later from here on.
pub(crate) const SPA_VERSION_DEADLISTS: u64 = 26;

/// Directories and datasets that every pool has, and what pools of later versions have.
pub(crate) struct Special {
    pub(crate) root_dir: Arc<DslDir>,
    pub(crate) mos_dir: Arc<DslDir>,
    /// dp_origin_snap; not before version 11
    pub(crate) origin: Option<Arc<DslDataset>>,
    /// Not before version 26
    pub(crate) free: Option<FreeLater>,
}

/// Where blocks are kept that are freed later.
pub(crate) struct FreeLater {
    /// `$FREE`, whose used bytes are theirs
    pub(crate) dir: Arc<DslDir>,
    /// dp_free_bpobj
    pub(crate) bpobj: ObjectId,
}

/// What a [`DslPool`] is built from.
pub struct PoolParts {
    /// The pool's name.
    pub name: String,
    /// Its version, 5000 for one with feature flags.
    pub version: u64,
    /// The MOS; its accounting is [`accounting`](PoolParts::accounting).
    pub mos: Arc<Mos>,
    /// The MOS's accounting.
    pub accounting: Arc<MosAccounting>,
    /// Where blocks are stored, including those of intent logs.
    pub store: Arc<dyn LogStore>,
    /// The keys that the store opens blocks with.
    pub keys: Arc<Keys>,
    /// The pool's txgs.
    pub groups: Arc<TxGroups>,
}

impl DslPool {
    pub(crate) fn bare(parts: PoolParts) -> Arc<DslPool> {
        Arc::new_cyclic(|me| DslPool {
            me: me.clone(),
            name: Mutex::new(parts.name),
            mos: parts.mos,
            mos_accounting: parts.accounting,
            store: parts.store.clone(),
            log_store: parts.store,
            groups: parts.groups,
            config: RwLock::new(()),
            cache: Mutex::new(Cache::default()),
            changed: Mutex::new(Changed::default()),
            tasks: TaskQueue::default(),
            special: OnceLock::new(),
            keystore: Keystore::new(parts.keys),
            bptree: Mutex::new(None),
        })
    }

    /// Opens the datasets of an existing pool.
    ///
    /// # Errors
    /// `Corrupt`, or any read error.
    #[doc(alias = "dsl_pool_open")]
    pub fn open(parts: PoolParts) -> Result<Arc<DslPool>> {
        let version = parts.version;
        let pool = DslPool::bare(parts);
        let special = pool.find_special(version)?;
        *pool.bptree.lock() = directory::find(pool.mos.objset(), pool_names::BPTREE_OBJ)?;
        pool.set_special(special);
        Ok(pool)
    }

    pub(crate) fn find_special(&self, version: u64) -> Result<Special> {
        let mos = self.mos.objset();
        let root_dir = self.dir_by_object(directory::get(mos, pool_names::ROOT_DATASET)?)?;
        let special = |name: &str| {
            let found = self.child(&root_dir, name)?;
            found.ok_or_else(|| Error::corrupt(format!("the root directory has no {name}")))
        };
        let origin = || {
            let dir = special(ORIGIN_DIR_NAME)?;
            let head = self.dataset_by_object(ObjectId(dir.fields().head_dataset_obj))?;
            head.prev()
                .ok_or_else(|| Error::corrupt("$ORIGIN has no snapshot"))
        };
        let free = || -> Result<FreeLater> {
            Ok(FreeLater {
                dir: special(FREE_DIR_NAME)?,
                bpobj: directory::get(mos, pool_names::FREE_BPOBJ)?,
            })
        };
        Ok(Special {
            mos_dir: special(MOS_DIR_NAME)?,
            origin: (version >= SPA_VERSION_ORIGIN).then(origin).transpose()?,
            free: (version >= SPA_VERSION_DEADLISTS).then(free).transpose()?,
            root_dir: Arc::clone(&root_dir),
        })
    }

    pub(crate) fn set_special(&self, special: Special) {
        assert!(self.special.set(special).is_ok(), "a pool is opened once");
    }

    fn special(&self) -> &Special {
        self.special.get().expect("the pool is open")
    }

    /// The pool's name.
    #[must_use]
    pub fn name(&self) -> String {
        self.name.lock().clone()
    }

    /// The MOS.
    #[must_use]
    pub fn mos(&self) -> &Arc<Mos> {
        &self.mos
    }

    /// Where blocks are stored.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn BlockStore> {
        &self.store
    }

    /// Where blocks of intent logs are stored.
    #[must_use]
    pub fn log_store(&self) -> &Arc<dyn LogStore> {
        &self.log_store
    }

    /// The pool's txgs.
    #[must_use]
    pub fn groups(&self) -> &Arc<TxGroups> {
        &self.groups
    }

    pub(crate) fn weak(&self) -> Weak<DslPool> {
        self.me.clone()
    }

    pub(crate) fn config(&self) -> &RwLock<()> {
        &self.config
    }

    pub(crate) fn keystore(&self) -> &Keystore {
        &self.keystore
    }

    pub(crate) fn tasks(&self) -> &TaskQueue {
        &self.tasks
    }

    /// dp_root_dir
    #[must_use]
    pub fn root_dir(&self) -> &Arc<DslDir> {
        &self.special().root_dir
    }

    fn free_later(&self) -> Result<&FreeLater> {
        let missing = || {
            let text = "a pool before version 26 has no list of blocks to free";
            Error::new(ErrorKind::Unsupported, text)
        };
        self.special().free.as_ref().ok_or_else(missing)
    }

    pub(crate) fn free_dir(&self) -> Result<&Arc<DslDir>> {
        Ok(&self.free_later()?.dir)
    }

    /// `$MOS`, whose used bytes are those of the MOS.
    #[must_use]
    pub fn mos_dir(&self) -> &Arc<DslDir> {
        &self.special().mos_dir
    }

    /// dp_origin_snap; `None` while the pool is being created, and before version 11.
    pub(crate) fn origin(&self) -> Option<&Arc<DslDataset>> {
        self.special.get()?.origin.as_ref()
    }

    /// The empty snapshot that is the origin of every dataset; `None` before version 11.
    #[must_use]
    pub fn origin_object(&self) -> Option<ObjectId> {
        self.special().origin.as_ref().map(|origin| origin.object())
    }

    /// dp_free_bpobj: blocks to be freed.
    pub(crate) fn free_bpobj(&self) -> Result<Bpobj> {
        Bpobj::open(&self.mos, self.free_later()?.bpobj)
    }
}

/// In-core directories and datasets by object.
impl DslPool {
    /// The in-core directory of an object, if there is one now.
    pub(crate) fn cached_dir(&self, object: ObjectId) -> Option<Arc<DslDir>> {
        self.cache.lock().dirs.get(&object)?.upgrade()
    }

    /// Caches `dir` as the in-core directory of its object and returns it, or returns the one that
    /// another thread has cached first.
    pub(crate) fn cache_dir(&self, dir: DslDir) -> Arc<DslDir> {
        let mut cache = self.cache.lock();
        let object = dir.object();
        if let Some(first) = cache.dirs.get(&object).and_then(Weak::upgrade) {
            return first;
        }
        let dir = Arc::new(dir);
        cache.dirs.insert(object, Arc::downgrade(&dir));
        dir
    }

    pub(crate) fn cached_dataset(&self, object: ObjectId) -> Option<Arc<DslDataset>> {
        self.cache.lock().datasets.get(&object)?.upgrade()
    }

    pub(crate) fn cache_dataset(&self, ds: DslDataset) -> Arc<DslDataset> {
        let mut cache = self.cache.lock();
        let object = ds.object();
        if let Some(first) = cache.datasets.get(&object).and_then(Weak::upgrade) {
            return first;
        }
        let ds = Arc::new(ds);
        cache.datasets.insert(object, Arc::downgrade(&ds));
        ds
    }

    /// Forgets a directory or dataset that is destroyed, or whose number is given to another one.
    pub(crate) fn forget(&self, object: ObjectId) {
        let mut cache = self.cache.lock();
        cache.dirs.remove(&object);
        cache.datasets.remove(&object);
        let mut changed = self.changed.lock();
        changed.dirs.remove(&object);
        changed.datasets.remove(&object);
    }

    /// All datasets that are in core now.
    pub(crate) fn cached_datasets(&self) -> Vec<Arc<DslDataset>> {
        let mut cache = self.cache.lock();
        cache.dirs.retain(|_, dir| dir.strong_count() > 0);
        cache.datasets.retain(|_, ds| ds.strong_count() > 0);
        cache.datasets.values().filter_map(Weak::upgrade).collect()
    }

    /// Checks the in-memory state of the open objsets, between two txgs.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub fn check_invariants(&self) {
        for ds in self.cached_datasets() {
            if let Some(objset) = ds.open_objset() {
                objset.check_invariants();
            }
        }
    }
}

/// Marking what has to be synced.
impl DslPool {
    pub(crate) fn dirty_dir(&self, dd: &Arc<DslDir>) {
        self.changed
            .lock()
            .dirs
            .entry(dd.object())
            .or_insert_with(|| dd.clone());
    }

    pub(crate) fn dirty_dataset(&self, ds: &Arc<DslDataset>) {
        self.changed
            .lock()
            .datasets
            .entry(ds.object())
            .or_insert_with(|| ds.clone());
    }

    pub(crate) fn objset_dirtied(&self, ds: &Arc<DslDataset>, txg: Txg) {
        let mut changed = self.changed.lock();
        changed
            .objsets
            .entry(txg)
            .or_default()
            .entry(ds.object())
            .or_insert_with(|| ds.clone());
    }

    pub(crate) fn note_in_flight(&self, dd: &Arc<DslDir>, txg: Txg) {
        let mut changed = self.changed.lock();
        changed
            .in_flight
            .entry(txg)
            .or_default()
            .entry(dd.object())
            .or_insert_with(|| dd.clone());
    }
}

/// Syncing.
impl DslPool {
    /// Freezes the objsets that are dirty in `txg`, which no transaction holds any more.
    pub fn freeze(&self, txg: Txg) {
        let dirty: Vec<Arc<DslDataset>> = {
            let changed = self.changed.lock();
            changed
                .objsets
                .get(&txg)
                .into_iter()
                .flat_map(BTreeMap::values)
                .cloned()
                .collect()
        };
        for objset in dirty.iter().filter_map(|ds| ds.open_objset()) {
            objset.freeze(txg);
        }
    }

    /// Writes the objsets that are dirty in the txg being synced, with their accounts, and charges
    /// `$MOS` for what the last sync of the MOS wrote. After that come
    /// [`run_tasks`](DslPool::run_tasks) (in pass 1), [`flush`](DslPool::flush), and the MOS.
    ///
    /// # Errors
    /// Any write error; the txg must then not be completed.
    #[doc(alias = "dsl_pool_sync")]
    pub fn sync_datasets(&self, tx: &Tx, pass: u32) -> Result<()> {
        let txg = tx.txg();
        loop {
            let dirty = self.changed.lock().objsets.remove(&txg);
            let Some(dirty) = dirty else { break };
            for ds in dirty.into_values() {
                self.sync_dataset(&ds, tx, pass)?;
            }
        }
        let estimated = self
            .changed
            .lock()
            .in_flight
            .remove(&txg)
            .unwrap_or_default();
        for dd in estimated.into_values() {
            dd.state().in_flight.remove(&txg);
        }
        self.charge_mos();
        Ok(())
    }

    /// Writes one head's objset until it is clean.
    #[doc(alias = "dsl_dataset_sync")]
    pub(crate) fn sync_dataset(&self, ds: &Arc<DslDataset>, tx: &Tx, pass: u32) -> Result<()> {
        let Some(objset) = ds.open_objset() else {
            return Ok(());
        };
        if let Some(zil) = ds.open_zil() {
            zil.sync(tx)?;
        }
        self.watch_bookmarks(ds)?;
        // More than one round: the space accounts of users and groups are in the same objset and
        // change after the data, and a snapshot taken by a task of this txg must include them.
        for _ in 0..SYNC_ROUNDS_MAX {
            let bp = objset.sync(tx, pass)?;
            ds.state().fields.set_bp(bp);
            if !objset.needs_sync() {
                objset.sync_done(tx.txg());
                return self.apply_tally(ds, tx);
            }
        }
        Err(Error::new(
            ErrorKind::Io,
            format!("objset {} does not become clean", ds.object()),
        ))
    }

    #[cfg(test)]
    pub(crate) fn mos_pending(&self) -> Space {
        self.mos_accounting.pending()
    }

    fn charge_mos(&self) {
        let change = self.mos_accounting.take();
        if !change.is_zero() {
            self.diduse_space(self.mos_dir(), Used::Head, change);
        }
    }

    /// Writes the changed fields of directories and datasets into the MOS.
    ///
    /// # Errors
    /// Any error from the MOS.
    #[doc(alias = "dsl_dir_sync")]
    pub fn flush(&self, tx: &Tx) -> Result<()> {
        let (dirs, datasets) = {
            let mut changed = self.changed.lock();
            (
                std::mem::take(&mut changed.dirs),
                std::mem::take(&mut changed.datasets),
            )
        };
        for dd in dirs.into_values() {
            let bytes = dd.state().fields.to_bytes();
            self.mos.hold(dd.object())?.set_bonus(tx, &bytes)?;
        }
        for ds in datasets.into_values() {
            let bytes = ds.state().fields.to_bytes();
            self.mos.hold(ds.object())?.set_bonus(tx, &bytes)?;
        }
        Ok(())
    }
}

/// Rounds; two (the data, then its owners' space accounts) make an objset clean.
const SYNC_ROUNDS_MAX: u32 = 8;
