//! Creating directories, heads, clones, and the DSL of a new pool.
//!
//! Source: OpenZFS module/zfs/dsl_dir.c (`dsl_dir_create_sync`), module/zfs/dsl_dataset.c
//! (`dsl_dataset_create_sync`, `dsl_dataset_clone_sync`), module/zfs/dsl_pool.c
//! (`dsl_pool_create`), module/zfs/dmu_objset.c (`dmu_objset_create_sync`) @be7657e3

use phys::PropValue;
use phys::pool_names::{
    self, DD_FIELD_FILESYSTEM_COUNT, FREE_DIR_NAME, MOS_DIR_NAME, ORIGIN_DIR_NAME,
};
use std::sync::Arc;
use zap::directory;

use base::{Error, ErrorKind, ObjectId, Result, Txg};
use dmu::{Objset, Tx};
use phys::dsl::{DS_FLAG_CI_DATASET, DS_FLAG_INCONSISTENT, DS_FLAG_UNIQUE_ACCURATE};
use phys::dsl::{DslDatasetPhys, DslDirPhys};
use phys::objset::{OBJSET_FLAG_PROJECTQUOTA_COMPLETE, OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE};
use phys::{ObjectType, ObjsetType, Phys, ZilHeaderPhys};

use crate::bpobj::Bpobj;
use crate::crypt::{Encrypted, NewRoot};
use crate::dataset::DslDataset;
use crate::deadlist::Deadlist;
use crate::dir::DslDir;
use crate::env::HistoryEvent;
use crate::fields::{DatasetFields, DirFields};
use crate::limits::Counts;
use crate::pool::{DslPool, FreeLater, PoolParts, Special};
use phys::feature;

use crate::space::SpaceCheck;
use crate::synctask::Verdict;

/// Fills a new objset: the root directory of a file system, the size of a volume.
pub type ObjsetInit = Box<dyn FnOnce(&Arc<Objset>, &Tx) -> Result<()> + Send>;

/// Describes a new head.
pub struct NewDataset {
    /// Its full name; the parent must exist.
    pub name: String,
    /// File system or volume.
    pub type_: ObjsetType,
    /// ds_flags: `DS_FLAG_CI_DATASET`, `DS_FLAG_INCONSISTENT`
    pub flags: u64,
    /// Local properties, as they are stored.
    pub props: Vec<(String, PropValue)>,
    /// Fills the objset, in syncing context and under the configuration lock: it must not look up
    /// datasets.
    pub init: ObjsetInit,
}

impl DslPool {
    /// Creates a directory with a new head, which `init` fills.
    ///
    /// # Errors
    /// `Exists`; `NotFound` when the parent does not exist; `InvalidInput` below a volume;
    /// `NoSpace`.
    #[doc(alias = "dmu_objset_create")]
    pub fn create_dataset(&self, new: NewDataset) -> Result<()> {
        self.create_with(new, Encrypted::AsAbove)
    }

    /// Creates a directory with a new head that is encrypted otherwise than the one above it.
    ///
    /// # Errors
    /// As [`create_dataset`](DslPool::create_dataset); `Unsupported` when the pool does not have the feature;
    /// `InvalidInput` for a suite without a key above.
    pub fn create_encrypted(&self, new: NewDataset, how: Encrypted) -> Result<()> {
        if !self.mos().env().feature_is_enabled(feature::ENCRYPTION) {
            let text = "Encryption feature not enabled.";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        self.create_with(new, how)
    }

    fn create_with(&self, new: NewDataset, how: Encrypted) -> Result<()> {
        let (name, props) = (new.name.clone(), new.props.clone());
        let how = Arc::new(how);
        let checked = how.clone();
        let check = move |pool: &DslPool, _: &Tx| {
            let (parent, _) = pool.find_new(&name)?;
            pool.check_may_have_children(&parent)?;
            pool.check_encrypted(&parent, &checked)?;
            pool.check_limits(props.iter().map(|(name, value)| (name.as_str(), value)))?;
            Ok(Verdict::Go)
        };
        self.sync_task(5, SpaceCheck::Normal, check, move |pool, tx| {
            let (parent, last) = pool.find_new(&new.name)?;
            let ds = pool.create_head(&parent, &last, None, new.flags, tx)?;
            pool.encrypt_new(&parent, &ds, &how, tx)?;
            pool.set_props_sync(&ds, &new.props, tx)?;
            pool.init_objset(&ds, new.type_, new.init, tx)?;
            pool.log(&ds, "create", "", tx)
        })
    }

    /// Creates a clone: a head whose contents are those of a snapshot.
    ///
    /// # Errors
    /// `Exists`, `NotFound`; `InvalidInput` when `origin` is not a snapshot; `NoSpace`.
    #[doc(alias = "dsl_dataset_clone")]
    pub fn clone_dataset(
        &self,
        name: &str,
        origin: &str,
        props: Vec<(String, PropValue)>,
    ) -> Result<()> {
        let names = (name.to_string(), origin.to_string());
        let (name, origin) = names.clone();
        let checked = props.clone();
        let check = move |pool: &DslPool, _: &Tx| {
            pool.check_limits(checked.iter().map(|(name, value)| (name.as_str(), value)))?;
            let (parent, _) = pool.find_new(&name)?;
            pool.check_may_have_children(&parent)?;
            if !pool.find_dataset(&origin)?.is_snapshot() {
                return Err(Error::invalid(format!("{origin} is not a snapshot")));
            }
            Ok(Verdict::Go)
        };
        let (name, origin) = names;
        self.sync_task(6, SpaceCheck::Normal, check, move |pool, tx| {
            let (parent, last) = pool.find_new(&name)?;
            let snap = pool.find_dataset(&origin)?;
            let ds = pool.create_head(&parent, &last, Some(&snap), 0, tx)?;
            pool.set_props_sync(&ds, &props, tx)?;
            pool.zero_zil(&ds, tx)?;
            pool.log(
                &ds,
                "clone",
                &format!("origin={origin} ({})", snap.object()),
                tx,
            )
        })
    }

    /// Only file systems have children.
    fn check_may_have_children(&self, parent: &Arc<DslDir>) -> Result<()> {
        let Some(head) = self.head_of(parent)? else {
            return Ok(());
        };
        if head.objset()?.type_() != ObjsetType::Zfs {
            return Err(Error::invalid(format!(
                "{} is not a file system",
                parent.name()
            )));
        }
        Ok(())
    }

    pub(crate) fn log(
        &self,
        ds: &Arc<DslDataset>,
        operation: &str,
        message: &str,
        tx: &Tx,
    ) -> Result<()> {
        let name = self.dataset_name(ds)?;
        let object = ds.object().0;
        let event = HistoryEvent {
            operation,
            dataset: &name,
            object,
            message,
        };
        self.mos().env().log_history(&event, tx);
        Ok(())
    }
}

/// In syncing context.
impl DslPool {
    #[doc(alias = "dsl_dir_create_sync")]
    pub(crate) fn create_dir(
        &self,
        parent: Option<&Arc<DslDir>>,
        name: &str,
        tx: &Tx,
    ) -> Result<Arc<DslDir>> {
        let mos = self.mos();
        let type_ = ObjectType::DSL_DIR;
        let object = mos.alloc(type_, 0, type_, DslDirPhys::SIZE, tx)?;
        self.forget(object);
        let mut fields = DirFields {
            creation_time: now_secs(),
            props_zapobj: mos.zap_create(ObjectType::DSL_PROPS, tx)?.0,
            child_dir_zapobj: mos.zap_create(ObjectType::DSL_DIR_CHILD_MAP, tx)?.0,
            ..DirFields::default()
        };
        fields.set_has_breakdown();
        match parent {
            Some(parent) => {
                let zap = ObjectId(parent.fields().child_dir_zapobj);
                mos.zap_add(zap, name, object.0, tx)?;
                fields.parent_obj = parent.object().0;
                self.adjust_count(parent, DD_FIELD_FILESYSTEM_COUNT, 1, tx)?;
            }
            None => directory::add(mos.objset(), pool_names::ROOT_DATASET, object, tx)?,
        }
        mos.hold(object)?.set_bonus(tx, &fields.to_bytes())?;
        self.dir_by_object(object)
    }

    /// Creates a directory and its head.
    #[doc(alias = "dsl_dataset_create_sync")]
    pub(crate) fn create_head(
        &self,
        parent: &Arc<DslDir>,
        name: &str,
        origin: Option<&Arc<DslDataset>>,
        flags: u64,
        tx: &Tx,
    ) -> Result<Arc<DslDataset>> {
        let dd = self.create_dir(Some(parent), name, tx)?;
        let ds = self.create_head_in(&dd, origin, flags, tx)?;
        if self.counts_for_limits() {
            self.set_counts(&dd, Counts::default(), tx)?;
        }
        Ok(ds)
    }

    /// Creates the head of a directory that has none.
    #[doc(alias = "dsl_dataset_create_sync_dd")]
    pub(crate) fn create_head_in(
        &self,
        dd: &Arc<DslDir>,
        origin: Option<&Arc<DslDataset>>,
        flags: u64,
        tx: &Tx,
    ) -> Result<Arc<DslDataset>> {
        assert_eq!(dd.fields().head_dataset_obj, 0, "{} has a head", dd.name());
        let mos = self.mos();
        let type_ = ObjectType::DSL_DATASET;
        let object = mos.alloc(type_, 0, type_, DslDatasetPhys::SIZE, tx)?;
        self.forget(object);
        let mut fields = DatasetFields {
            dir_obj: dd.object().0,
            flags,
            fsid_guid: fsid_guid(),
            guid: rt::random_u64(),
            snapnames_zapobj: mos.zap_create_names(ObjectType::DSL_DS_SNAP_MAP, tx)?.0,
            creation_time: now_secs(),
            creation_txg: if tx.txg() == Txg::INITIAL {
                1
            } else {
                tx.txg().0
            },
            ..DatasetFields::default()
        };
        let origin = origin.or(self.origin());
        match origin {
            None => fields.deadlist_obj = Deadlist::alloc(mos, tx)?.0,
            Some(origin) => self.branch_off(object, &mut fields, dd, origin, tx)?,
        }
        fields.flags |= DS_FLAG_UNIQUE_ACCURATE;
        mos.hold(object)?.set_bonus(tx, &fields.to_bytes())?;
        dd.state().fields.head_dataset_obj = object.0;
        self.dirty_dir(dd);
        self.dataset_by_object(object)
    }

    /// Fills in `fields` for a clone of `origin`, and registers the clone with `origin`.
    fn branch_off(
        &self,
        object: ObjectId,
        fields: &mut DatasetFields,
        dd: &Arc<DslDir>,
        origin: &Arc<DslDataset>,
        tx: &Tx,
    ) -> Result<()> {
        let mos = self.mos();
        let source = origin.fields();
        assert!(
            source.num_children > 0,
            "{} is not a snapshot",
            origin.object()
        );
        fields.prev_snap_obj = origin.object().0;
        fields.prev_snap_txg = source.creation_txg;
        fields.set_referenced(source.referenced());
        fields.set_bp(source.bp());
        self.share_key(&origin.dir(), dd, tx)?;
        fields.flags |= source.flags & (DS_FLAG_INCONSISTENT | DS_FLAG_CI_DATASET);
        let features = origin.state().features.clone();
        for (guid, value) in &features {
            self.activate_feature_of(object, guid, value, tx)?;
        }
        let origin_dir = origin.dir();
        let origin_head = self.head_of(&origin_dir)?;
        let headless = || Error::corrupt(format!("directory {} has no head", origin_dir.object()));
        let origin_head = origin_head.ok_or_else(headless)?;
        self.split_old_deadlist(&origin_head, tx)?;
        fields.deadlist_obj = origin_head
            .with_deadlist(|deadlist| deadlist.clone_keys(fields.prev_snap_txg, tx))?
            .0;

        if source.next_clones_obj == 0 {
            let zap = mos.zap_create(ObjectType::NEXT_CLONES, tx)?;
            origin.state().fields.next_clones_obj = zap.0;
        }
        origin.state().fields.num_children += 1;
        self.dirty_dataset(origin);
        let next_clones = ObjectId(origin.fields().next_clones_obj);
        mos.zap_int_add(next_clones, object.0, object.0, tx)?;

        {
            let is_clone = self
                .origin()
                .is_some_and(|empty| !Arc::ptr_eq(empty, origin));
            let mut state = dd.state();
            state.fields.origin_obj = origin.object().0;
            state.origin_txg = if is_clone { source.creation_txg } else { 0 };
        }
        self.dirty_dir(dd);
        let clones = self.clones_zap(&origin_dir, tx)?;
        mos.zap_int_add(clones, object.0, object.0, tx)
    }

    /// dd_clones, created when first needed.
    pub(crate) fn clones_zap(&self, dd: &Arc<DslDir>, tx: &Tx) -> Result<ObjectId> {
        let clones = dd.fields().clones;
        if clones != 0 {
            return Ok(ObjectId(clones));
        }
        let zap = self.mos().zap_create(ObjectType::DSL_CLONES, tx)?;
        dd.state().fields.clones = zap.0;
        self.dirty_dir(dd);
        Ok(zap)
    }

    /// Creates the objset of a new head, and writes it.
    pub(crate) fn init_objset(
        &self,
        ds: &Arc<DslDataset>,
        type_: ObjsetType,
        init: ObjsetInit,
        tx: &Tx,
    ) -> Result<()> {
        let props = self.objset_props(ds)?;
        let accounting = ds.accounting(self);
        let store = self.store().clone();
        let objset = Objset::create(store, ds.objset_id(), type_, props, accounting, tx);
        ds.set_objset(Some(objset.clone()));
        init(&objset, tx)?;
        if objset.flags() & OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE != 0 {
            ds.activate_feature(feature::USEROBJ_ACCOUNTING);
        }
        if objset.flags() & OBJSET_FLAG_PROJECTQUOTA_COMPLETE != 0 {
            ds.activate_feature(feature::PROJECT_QUOTA);
        }
        self.sync_dataset(ds, tx, 1)
    }

    /// Clears the intent log header that a clone inherited from its origin: that log is the
    /// origin's.
    #[doc(alias = "dsl_dataset_zero_zil")]
    pub(crate) fn zero_zil(&self, ds: &Arc<DslDataset>, tx: &Tx) -> Result<()> {
        let objset = ds.objset()?;
        if objset.zil_header() == ZilHeaderPhys::default() {
            return Ok(());
        }
        objset.set_zil_header(tx, ZilHeaderPhys::default());
        self.sync_dataset(ds, tx, 1)
    }
}

/// The DSL of a new pool.
impl DslPool {
    /// Creates what every pool has: the root directory, `$MOS`, `$FREE`, `$ORIGIN` with its
    /// snapshot, and the root dataset, which `init` fills; with `encryption`, it is an encryption root.
    ///
    /// The pool directory (object 1) must exist. The caller then syncs as in any txg: flush, then
    /// the MOS.
    ///
    /// # Errors
    /// Any error from the MOS.
    #[doc(alias = "dsl_pool_create")]
    pub fn create(
        parts: PoolParts,
        props: &[(String, PropValue)],
        encryption: Option<&NewRoot>,
        init: ObjsetInit,
        tx: &Tx,
    ) -> Result<Arc<DslPool>> {
        let pool = DslPool::bare(parts);
        let root_dir = pool.create_dir(None, "", tx)?;
        let mos_dir = pool.create_dir(Some(&root_dir), MOS_DIR_NAME, tx)?;
        let free = pool.create_free_later(&root_dir, tx)?;
        let origin = pool.create_origin(&root_dir, tx)?;
        pool.set_special(Special {
            root_dir: root_dir.clone(),
            mos_dir,
            origin: Some(origin),
            free: Some(free),
        });

        let root = pool.create_head_in(&root_dir, None, 0, tx)?;
        if let Some(encryption) = encryption {
            pool.make_root(&root, encryption, tx)?;
        }
        pool.set_props_sync(&root, props, tx)?;
        pool.init_objset(&root, ObjsetType::Zfs, init, tx)?;
        Ok(pool)
    }

    /// Creates `$FREE` and the list of blocks that are freed later.
    pub(crate) fn create_free_later(&self, root_dir: &Arc<DslDir>, tx: &Tx) -> Result<FreeLater> {
        let dir = self.create_dir(Some(root_dir), FREE_DIR_NAME, tx)?;
        let bpobj = Bpobj::alloc(self.mos(), tx)?;
        directory::add(self.mos().objset(), pool_names::FREE_BPOBJ, bpobj, tx)?;
        Ok(FreeLater { dir, bpobj })
    }

    /// Creates `$ORIGIN` and its snapshot, which it returns.
    #[doc(alias = "dsl_pool_create_origin")]
    pub(crate) fn create_origin(&self, root_dir: &Arc<DslDir>, tx: &Tx) -> Result<Arc<DslDataset>> {
        let head = self.create_head(root_dir, ORIGIN_DIR_NAME, None, 0, tx)?;
        self.snapshot_sync(&head, ORIGIN_DIR_NAME, now_secs(), tx)
    }
}

/// `DD_FIELD_SNAPSHOTS_CHANGED`: when a snapshot was last created, renamed or destroyed.
pub(crate) const SNAPSHOTS_CHANGED: &str = "com.ixsystems:snapshots_changed";

/// Fields of directories that are also ZAPs.
impl DslPool {
    pub(crate) fn zapify_dir(&self, dd: &Arc<DslDir>, tx: &Tx) -> Result<()> {
        self.mos().zapify(dd.object(), tx)
    }

    /// Records that the list of snapshots changed now.
    #[doc(alias = "dsl_dir_snap_cmtime_update")]
    pub(crate) fn touch_snapshots(&self, dd: &Arc<DslDir>, tx: &Tx) -> Result<()> {
        if !self
            .mos()
            .env()
            .feature_is_enabled(feature::EXTENSIBLE_DATASET)
        {
            return Ok(());
        }
        let now = rt::wall_clock();
        self.zapify_dir(dd, tx)?;
        let words = [now.secs, u64::from(now.nanos)];
        self.mos()
            .zap_set_words(dd.object(), SNAPSHOTS_CHANGED, &words, tx)
    }
}

/// Per-dataset features.
impl DslPool {
    #[doc(alias = "dsl_dataset_activate_feature")]
    pub(crate) fn activate_feature_of(
        &self,
        object: ObjectId,
        guid: &str,
        value: &[u64],
        tx: &Tx,
    ) -> Result<()> {
        self.mos().env().feature_incr(guid, tx)?;
        self.mos().zapify(object, tx)?;
        self.mos().zap_set_words(object, guid, value, tx)
    }

    #[doc(alias = "dsl_dataset_deactivate_feature")]
    pub(crate) fn deactivate_features(&self, ds: &Arc<DslDataset>, tx: &Tx) -> Result<()> {
        let features = std::mem::take(&mut ds.state().features);
        for guid in features.keys() {
            self.mos().zap_remove(ds.object(), guid, tx)?;
            self.mos().env().feature_decr(guid, tx)?;
        }
        Ok(())
    }

    /// Records the features needed by blocks written in this sync, and drops those no longer used.
    pub(crate) fn activate_features(&self, ds: &Arc<DslDataset>, tx: &Tx) -> Result<()> {
        let old = std::mem::take(&mut ds.state().deactivating);
        for guid in old {
            ds.state().features.remove(guid);
            self.mos().zap_remove(ds.object(), guid, tx)?;
            self.mos().env().feature_decr(guid, tx)?;
        }
        let new = std::mem::take(&mut ds.state().activating);
        for guid in new {
            let value = vec![0];
            if ds.state().features.contains_key(guid) {
                continue;
            }
            self.activate_feature_of(ds.object(), guid, &value, tx)?;
            ds.state().features.insert(guid.to_string(), value);
        }
        Ok(())
    }
}

/// `unique_create`: 56 random bits.
fn fsid_guid() -> u64 {
    rt::random_u64() >> 8
}

pub(crate) fn now_secs() -> u64 {
    rt::wall_clock().secs
}

/// `InvalidInput` when an operation on heads is given a snapshot.
pub(crate) fn expect_head(ds: &DslDataset, name: &str) -> Result<()> {
    if ds.is_snapshot() {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("{name} is a snapshot"),
        ));
    }
    Ok(())
}
