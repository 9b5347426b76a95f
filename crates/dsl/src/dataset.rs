//! Datasets: heads, which change, and snapshots, which do not.
//!
//! # What it is
//! A dataset is one version of one objset: a root block pointer, links to the snapshots before and
//! after it, sizes, and a deadlist. A directory has one head; its snapshots form a chain that ends
//! at the snapshot that the head was cloned from (`$ORIGIN@$ORIGIN`, which is empty, if the head is
//! not a clone).
//!
//! # On disk
//! An object of type DSL_DATASET whose bonus is a `dsl_dataset_phys_t`. Snapshot names are in a ZAP
//! of the head. The object itself becomes a ZAP when a feature is recorded for the dataset.
//!
//! # Invariants
//! For a dataset D with predecessor P, a block that D's tree references was born after
//! `D.prev_snap_txg` if and only if P's tree does not reference it. Hence:
//! 1. A block that the head gives up is freed if it was born after prev_snap_txg; otherwise it goes
//!    on the head's deadlist.
//! 2. `unique_bytes` of a snapshot: blocks born after its predecessor that are on its successor's
//!    deadlist. Of a head: blocks born after its predecessor.
//! 3. `num_children` counts the successor and the clones; it is 0 if and only if the dataset is a
//!    head.
//!
//! # Concurrency
//! One in-core dataset per object. Its state lock is a leaf lock, like that of a directory. Fields
//! change in syncing context only.
//!
//! # Source
//! OpenZFS module/zfs/dsl_dataset.c, include/sys/dsl_dataset.h @be7657e3

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Weak};

use base::{Error, ErrorKind, ObjectId, ObjsetId, Result};
use dmu::{FreeAtOnce, Objset};
use phys::BlkPtrPhys;
use phys::dsl::{DS_FLAG_DEFER_DESTROY, DS_FLAG_INCONSISTENT};
use rt::{Mutex, MutexGuard};
use zil::Zilog;

use crate::accounting::{HeadAccounting, Tally};
use crate::deadlist::Deadlist;
use crate::dir::DslDir;
use crate::fields::DatasetFields;
use crate::pool::DslPool;

/// Reads the current value of a numeric property, given its name and default.
pub type PropReader<'a> = dyn Fn(&str, u64) -> Result<u64> + 'a;

/// Called after a property of the dataset may have changed, in syncing context: it reads properties
/// only through its argument and must not call into the pool. Returns false to be unregistered.
pub type PropsWatcher = Box<dyn Fn(&PropReader<'_>) -> bool + Send + Sync>;

/// An open dataset.
#[doc(alias = "dsl_dataset_t")]
pub struct DslDataset {
    object: ObjectId,
    is_snapshot: bool,
    pool: Weak<DslPool>,
    state: Mutex<DatasetState>,
    deadlist: Mutex<Option<Deadlist>>,
    /// Space changes that syncing the objset has reported, not yet applied.
    pub(crate) tally: Mutex<Tally>,
    objset: Mutex<Option<Arc<Objset>>>,
    zil: Mutex<Option<Arc<Zilog>>>,
    watchers: Mutex<Vec<PropsWatcher>>,
}

/// What changes in an open dataset.
pub(crate) struct DatasetState {
    /// ds_phys
    pub(crate) fields: DatasetFields,
    /// ds_dir
    pub(crate) dir: Arc<DslDir>,
    /// ds_prev; heads only
    pub(crate) prev: Option<Arc<DslDataset>>,
    /// ds_snapname, once it has been looked up
    pub(crate) snapname: Option<String>,
    /// ds_reserved: refreservation
    pub(crate) reserved: u64,
    /// ds_quota: refquota
    pub(crate) quota: u64,
    /// ds_userrefs
    pub(crate) userrefs: u64,
    /// ds_feature: guid and value of the features that this dataset uses
    pub(crate) features: BTreeMap<String, Vec<u64>>,
    /// ds_feature_activation: to be recorded at the end of the sync
    pub(crate) activating: BTreeSet<&'static str>,
    /// To be deactivated at the end of the sync.
    pub(crate) deactivating: BTreeSet<&'static str>,
    /// ds_longholds, owner included
    pub(crate) long_holds: u64,
    /// ds_owner
    pub(crate) owned: bool,
    /// The object is gone.
    pub(crate) is_destroyed: bool,
}

/// The values of a head that quota checks need.
pub(crate) struct Limits {
    pub(crate) reserved: u64,
    pub(crate) quota: u64,
    pub(crate) unique: u64,
    pub(crate) referenced: u64,
}

impl DatasetState {
    /// `parent_delta`: how much a change of the unique bytes changes the charge of the directory,
    /// which has already been charged for the refreservation.
    pub(crate) fn parent_delta(&self, change: i64) -> i64 {
        let unique = self.fields.unique_bytes;
        let charged = |unique: u64| unique.max(self.reserved).cast_signed();
        charged(unique.saturating_add_signed(change)).wrapping_sub(charged(unique))
    }
}

impl DslDataset {
    /// Counts a hold; the count on disk may be any number.
    pub(crate) fn add_userrefs(&self, change: i64) {
        let mut state = self.state();
        state.userrefs = state.userrefs.saturating_add_signed(change);
    }

    pub(crate) fn new(
        pool: Weak<DslPool>,
        object: ObjectId,
        state: DatasetState,
        deadlist: Deadlist,
    ) -> DslDataset {
        DslDataset {
            object,
            is_snapshot: state.fields.num_children != 0,
            pool,
            state: Mutex::new(state),
            deadlist: Mutex::new(Some(deadlist)),
            tally: Mutex::new(Tally::default()),
            objset: Mutex::new(None),
            zil: Mutex::new(None),
            watchers: Mutex::new(Vec::new()),
        }
    }

    /// ds_object
    #[must_use]
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// The objset's id: the dataset's object number.
    #[must_use]
    #[doc(alias = "dmu_objset_id")]
    pub fn objset_id(&self) -> ObjsetId {
        ObjsetId(self.object.0)
    }

    /// Whether this is a snapshot; otherwise it is a head.
    #[must_use]
    pub fn is_snapshot(&self) -> bool {
        self.is_snapshot
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, DatasetState> {
        self.state.lock()
    }

    /// The pool, as long as it is open.
    pub(crate) fn pool(&self) -> Result<Arc<DslPool>> {
        let gone = || Error::new(ErrorKind::Suspended, "the pool is closed");
        self.pool.upgrade().ok_or_else(gone)
    }

    /// A copy of its on-disk fields.
    #[must_use]
    pub fn fields(&self) -> DatasetFields {
        self.state().fields.clone()
    }

    /// ds_dir
    #[must_use]
    pub fn dir(&self) -> Arc<DslDir> {
        self.state().dir.clone()
    }

    /// ds_prev: of a head, the snapshot before it.
    pub(crate) fn prev(&self) -> Option<Arc<DslDataset>> {
        self.state().prev.clone()
    }

    pub(crate) fn limits(&self) -> Limits {
        let state = self.state();
        Limits {
            reserved: state.reserved,
            quota: state.quota,
            unique: state.fields.unique_bytes,
            referenced: state.fields.referenced_bytes,
        }
    }

    /// ds_bp: the root block.
    #[must_use]
    pub fn root_bp(&self) -> BlkPtrPhys {
        self.state().fields.bp()
    }

    /// `DS_IS_INCONSISTENT`: a receive into it was not finished.
    #[must_use]
    pub fn is_inconsistent(&self) -> bool {
        self.state().fields.flags & DS_FLAG_INCONSISTENT != 0
    }

    /// `DS_IS_DEFER_DESTROY`.
    #[must_use]
    pub fn is_defer_destroy(&self) -> bool {
        self.state().fields.flags & DS_FLAG_DEFER_DESTROY != 0
    }

    /// Whether the dataset uses a per-dataset feature.
    #[must_use]
    #[doc(alias = "dsl_dataset_feature_is_active")]
    pub fn feature_is_active(&self, guid: &str) -> bool {
        let state = self.state();
        state.features.contains_key(guid) || state.activating.contains(guid)
    }

    /// Records at the end of the current sync that the dataset uses a per-dataset feature.
    pub fn activate_feature(&self, guid: &'static str) {
        let mut state = self.state();
        state.deactivating.remove(guid);
        if !state.features.contains_key(guid) {
            state.activating.insert(guid);
        }
    }

    /// Records at the end of the current sync that the dataset does not use a feature any more.
    pub(crate) fn deactivate_feature(&self, guid: &'static str) {
        let mut state = self.state();
        state.activating.remove(guid);
        if state.features.contains_key(guid) {
            state.deactivating.insert(guid);
        }
    }

    /// Runs `f` on the deadlist.
    pub(crate) fn with_deadlist<T>(&self, f: impl FnOnce(&mut Deadlist) -> Result<T>) -> Result<T> {
        let mut deadlist = self.deadlist.lock();
        match deadlist.as_mut() {
            Some(deadlist) => f(deadlist),
            None => Err(self.gone()),
        }
    }

    pub(crate) fn set_deadlist(&self, deadlist: Option<Deadlist>) {
        *self.deadlist.lock() = deadlist;
    }

    pub(crate) fn gone(&self) -> Error {
        Error::not_found(format!("data set {} was destroyed", self.object))
    }
}

/// The objset.
impl DslDataset {
    /// The dataset's objset, opened when first asked for. If it is encrypted and the key is not loaded, only what is
    /// in its root block can be read.
    ///
    /// # Errors
    /// `NotFound` when the dataset was destroyed; any error from reading the root block.
    #[doc(alias = "dmu_objset_from_ds")]
    pub fn objset(self: &Arc<DslDataset>) -> Result<Arc<Objset>> {
        let pool = self.pool()?;
        let is_unlocked_now = pool.open_key(self)?;
        let mut objset = self.objset.lock();
        if let Some(objset) = objset.as_ref().filter(|_| !is_unlocked_now) {
            return Ok(objset.clone());
        }
        if self.state().is_destroyed {
            return Err(self.gone());
        }
        let props = pool.objset_props(self)?;
        let accounting = self.accounting(&pool);
        let id = self.objset_id();
        let opened = Objset::open(pool.store().clone(), id, &self.root_bp(), props, accounting)?;
        *objset = Some(opened.clone());
        Ok(opened)
    }

    pub(crate) fn accounting(self: &Arc<Self>, pool: &DslPool) -> Arc<dyn dmu::BlockAccounting> {
        if self.is_snapshot {
            Arc::new(FreeAtOnce(pool.store().clone()))
        } else {
            Arc::new(HeadAccounting::new(self.pool.clone(), self))
        }
    }

    /// The objset, if it is open.
    #[must_use]
    pub fn open_objset(&self) -> Option<Arc<Objset>> {
        self.objset.lock().clone()
    }

    pub(crate) fn set_objset(&self, objset: Option<Arc<Objset>>) {
        *self.zil.lock() = None;
        *self.objset.lock() = objset;
    }

    pub(crate) fn zil_or_insert(&self, new: impl FnOnce() -> Arc<Zilog>) -> Arc<Zilog> {
        self.zil.lock().get_or_insert_with(new).clone()
    }

    pub(crate) fn open_zil(&self) -> Option<Arc<Zilog>> {
        self.zil.lock().clone()
    }

    /// Registers `watcher`, to be called after every property change that may affect this dataset.
    #[doc(alias = "dsl_prop_register")]
    pub fn watch_props(&self, watcher: PropsWatcher) {
        self.watchers.lock().push(watcher);
    }

    pub(crate) fn notify_watchers(&self, read: &PropReader<'_>) {
        self.watchers.lock().retain(|watcher| watcher(read));
    }
}

/// Keeps a dataset from being destroyed, rolled back or promoted; see [`DslPool::own`].
#[doc(alias = "dsl_dataset_long_hold")]
pub struct LongHold {
    ds: Arc<DslDataset>,
    owner: bool,
}

impl LongHold {
    /// The dataset.
    #[must_use]
    pub fn dataset(&self) -> &Arc<DslDataset> {
        &self.ds
    }
}

impl Drop for LongHold {
    fn drop(&mut self) {
        let mut state = self.ds.state();
        state.long_holds -= 1;
        if self.owner {
            state.owned = false;
        }
    }
}

impl DslDataset {
    /// Takes a shared long hold on the dataset.
    ///
    /// # Errors
    /// `NotFound` when it was destroyed.
    pub fn long_hold(self: &Arc<DslDataset>) -> Result<LongHold> {
        let mut state = self.state();
        if state.is_destroyed {
            return Err(self.gone());
        }
        state.long_holds += 1;
        Ok(LongHold {
            ds: self.clone(),
            owner: false,
        })
    }

    /// Owns the dataset: an exclusive long hold.
    ///
    /// # Errors
    /// `Busy` when it is owned, or inconsistent; `NotFound` when it was destroyed.
    #[doc(alias = "dsl_dataset_tryown")]
    pub fn own(self: &Arc<DslDataset>) -> Result<LongHold> {
        let mut state = self.state();
        if state.is_destroyed {
            return Err(self.gone());
        }
        if state.owned || state.fields.flags & DS_FLAG_INCONSISTENT != 0 {
            let text = format!("data set {} is in use or inconsistent", self.object);
            return Err(Error::new(ErrorKind::Busy, text));
        }
        state.owned = true;
        state.long_holds += 1;
        Ok(LongHold {
            ds: self.clone(),
            owner: true,
        })
    }

    /// Whether something uses it: a mount, say.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.state().long_holds > 0
    }

    pub(crate) fn check_not_held(&self, allowed: u64) -> Result<()> {
        let holds = self.state().long_holds;
        if holds > allowed {
            let text = format!("data set {} is in use", self.object);
            return Err(Error::new(ErrorKind::Busy, text));
        }
        Ok(())
    }
}

impl fmt::Debug for DslDataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_snapshot { "snapshot" } else { "head" };
        write!(f, "DslDataset({}, {kind})", self.object)
    }
}
