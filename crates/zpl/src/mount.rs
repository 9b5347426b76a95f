//! Datasets as file systems: making them, and opening them with properties, quotas and space by owner.
//!
//! # What it is
//! [`Filesystem`] knows nothing of datasets. [`mount`] puts the two together; while the [`Mount`] lives,
//! the dataset cannot be destroyed or rolled back.
//!
//! # Source
//! OpenZFS `module/os/linux/zfs/zfs_vfsops.c` (`zfs_domount`), `module/zfs/dmu_objset.c`
//! (`dmu_objset_create_impl_dnstats`: the accounting flags).

use std::ops::Deref;
use std::sync::{Arc, Weak};

use base::{Context, Error, ErrorKind, Result, Txg};
use dmu::{Objset, Tx};
use dsl::{DslDataset, DslPool, HistoryEvent, LongHold, ObjsetInit, PropReader};
use phys::feature;
use phys::objset::{
    OBJSET_FLAG_PROJECTQUOTA_COMPLETE, OBJSET_FLAG_USERACCOUNTING_COMPLETE,
    OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE,
};
use phys::znode::ZPL_VERSION;
use phys::{LrPhys, ObjsetType};
use zil::{ReplaySink, SyncMode, Zilog};

use crate::dir::CREATE_BYTES;
use crate::{
    AtimePolicy, FileOwners, Filesystem, IntentLog, NewFilesystem, NoLog, OpenOptions, Settings,
    Space, SpaceCheck, old_znode, version_of,
};

/// `ZFS_XATTR_DIR`, as the property is stored.
const XATTR_DIR: u64 = 1;

/// `ZFS_ACLTYPE_POSIX`, as the property is stored.
const ACLTYPE_POSIX: u64 = 1;

/// What [`dsl::NewDataset`] and pool creation need to make a file system.
#[must_use]
pub fn init(new: NewFilesystem, counts_objects: bool) -> ObjsetInit {
    Box::new(move |objset: &Arc<Objset>, tx: &Tx| {
        let mut flags = objset.flags() | OBJSET_FLAG_USERACCOUNTING_COMPLETE;
        if counts_objects {
            flags |= OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE;
        }
        if objset.props().project_quota {
            flags |= OBJSET_FLAG_PROJECTQUOTA_COMPLETE;
        }
        objset.set_flags(tx, flags);
        objset.set_owner_accounting(Some(Arc::new(owners_of(objset))));
        Filesystem::create(objset, tx, &new)
    })
}

/// The accounting that the flags of an objset ask for. An objset older than the features is not
/// recounted here; OpenZFS does that when it mounts one.
fn owners_of(objset: &Objset) -> FileOwners {
    let flags = objset.flags();
    FileOwners {
        counts_objects: flags & OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE != 0,
        counts_projects: flags & OBJSET_FLAG_PROJECTQUOTA_COMPLETE != 0,
    }
}

/// A dataset that is open as a file system.
pub struct Mount {
    fs: Arc<Filesystem>,
    zil: Option<Arc<Zilog>>,
    /// `None` of an objset that no dataset leads to.
    hold: Option<LongHold>,
}

impl Drop for Mount {
    /// Closes the intent log: what is in it is also in the next txg.
    fn drop(&mut self) {
        if let Some(zil) = &self.zil {
            // When the pool is suspended the log stays as it is, to be replayed.
            let _ = zil.close();
            zil.set_get_data(None);
        }
    }
}

impl Deref for Mount {
    type Target = Arc<Filesystem>;
    fn deref(&self) -> &Arc<Filesystem> {
        &self.fs
    }
}

impl Mount {
    /// Puts all changes onto stable storage.
    ///
    /// # Errors
    /// I/O; `Suspended`.
    #[doc(alias = "zfs_sync")]
    pub fn sync(&self) -> Result<()> {
        match &self.zil {
            Some(zil) => zil.commit(None),
            None => Ok(()),
        }
    }

    /// The dataset.
    ///
    /// # Panics
    /// If it is [adrift](Mount::adrift).
    #[must_use]
    pub fn dataset(&self) -> &Arc<DslDataset> {
        let hold = self.hold.as_ref().expect("an objset without a dataset");
        hold.dataset()
    }

    /// Opens a file system that no dataset leads to, to be read.
    ///
    /// # Errors
    /// As [`mount`], but for those of datasets.
    pub fn adrift(objset: Arc<Objset>) -> Result<Mount> {
        if objset.type_() != ObjsetType::Zfs {
            return Err(Error::invalid("not a file system"));
        }
        let fs = Filesystem::open(objset, OpenOptions::default())?;
        let (zil, hold) = (None, None);
        Ok(Mount { fs, zil, hold })
    }
}

/// Opens the file system or snapshot `name`, and replays its intent log, unless `readonly`.
///
/// # Errors
/// `NotFound`; `InvalidInput` for volumes; `Unsupported` for file systems that fold names; `NoKey` for encrypted ones
/// whose key is not loaded.
#[doc(alias = "zfs_domount")]
pub fn mount(pool: &Arc<DslPool>, name: &str, readonly: bool) -> Result<Mount> {
    let ds = pool.dataset(name)?;
    let readonly = readonly || ds.is_snapshot();
    pool.check_key(&ds)?;
    let hold = ds.long_hold()?;
    let objset = ds.objset().within(|| name.to_owned())?;
    if objset.type_() != ObjsetType::Zfs {
        let text = format!("'{name}' is not a file system");
        return Err(Error::new(ErrorKind::InvalidInput, text));
    }
    // The log makes the feature active in the dataset before it writes such a record.
    let log_sa_xattr = pool.mos().env().feature_is_enabled(feature::ZILSAXATTR);
    let may_be_long = pool.mos().env().feature_is_enabled(feature::LONGNAME);
    let settings = move |read: &PropReader<'_>| -> Result<Settings> {
        let mut settings = settings(read)?;
        settings.read_only |= readonly;
        settings.log_sa_xattr = log_sa_xattr;
        settings.long_names &= may_be_long;
        Ok(settings)
    };
    if !readonly && objset.flags() & OBJSET_FLAG_USERACCOUNTING_COMPLETE != 0 {
        objset.set_owner_accounting(Some(Arc::new(owners_of(&objset))));
    }
    let space = Arc::new(DatasetSpace {
        pool: Arc::downgrade(pool),
        ds: ds.clone(),
    });
    let zil = if readonly { None } else { Some(pool.zil(&ds)?) };
    let log: Arc<dyn IntentLog> = match &zil {
        Some(zil) => zil.clone(),
        None => Arc::new(NoLog),
    };
    let groups = (!readonly).then(|| pool.groups().clone());
    let now = settings(&|name, default| {
        let prop = pool.prop(&ds, name)?;
        Ok(prop
            .and_then(|prop| prop.value.as_number())
            .unwrap_or(default))
    })?;
    // Records of the log may have long names from before the property was turned off.
    let in_replay = Settings {
        long_names: may_be_long,
        ..now
    };
    let options = OpenOptions {
        groups,
        settings: in_replay,
        log,
        space,
    };
    let fs = Filesystem::open(objset, options).within(|| name.to_owned())?;
    let watching = Arc::downgrade(&fs);
    ds.watch_props(Box::new(move |read| {
        let Some(fs) = watching.upgrade() else {
            return false;
        };
        // If a property cannot be read, the settings stay as they are.
        if let Ok(settings) = settings(read) {
            fs.set_settings(settings);
        }
        true
    }));
    if let Some(zil) = &zil {
        let data = Arc::downgrade(&fs);
        zil.set_get_data(Some(Box::new(move |wanted| match data.upgrade() {
            Some(fs) => fs.log_data(wanted),
            None => Ok(None),
        })));
        zil.replay(&mut Replayer(&fs))
            .within(|| format!("{name}: intent log"))?;
    }
    fs.set_settings(now);
    let hold = Some(hold);
    Ok(Mount { fs, zil, hold })
}

/// Makes the file system `name`, which is not mounted, one of the current version.
///
/// # Errors
/// `Busy` while it is mounted; as [`mount`].
pub fn upgrade(pool: &DslPool, name: &str) -> Result<()> {
    let ds = pool.dataset(name)?;
    pool.check_key(&ds)?;
    if ds.is_held() {
        return Err(Error::new(ErrorKind::Busy, "it is mounted"));
    }
    let objset = ds.objset()?;
    let from = version_of(&objset)?;
    if from >= ZPL_VERSION {
        return Ok(());
    }
    let tx = pool.groups().hold_open(CREATE_BYTES)?;
    old_znode::upgrade(&objset, &tx)?;
    let (name, object) = (name.to_owned(), ds.object().0);
    pool.queue_task(&tx, move |pool, tx| {
        let event = HistoryEvent {
            operation: "upgrade",
            dataset: &name,
            object,
            message: &format!("from {from} to {ZPL_VERSION}"),
        };
        pool.mos().env().log_history(&event, tx);
        Ok(())
    });
    Ok(())
}

/// Replays records in a file system.
struct Replayer<'a>(&'a Filesystem);

impl ReplaySink for Replayer<'_> {
    fn replay(&mut self, _common: &LrPhys, record: &[u8]) -> Result<()> {
        self.0.replay(record)
    }
}

fn settings(number: &PropReader<'_>) -> Result<Settings> {
    let atime = match (number("atime", 1)?, number("relatime", 1)?) {
        (0, _) => AtimePolicy::Off,
        (_, 0) => AtimePolicy::On,
        _ => AtimePolicy::Relative,
    };
    Ok(Settings {
        read_only: number("readonly", 0)? != 0,
        atime,
        xattr_sa: number("xattr", 2)? != XATTR_DIR,
        posix_acl: number("acltype", 0)? == ACLTYPE_POSIX,
        sync: SyncMode::from_prop(number("sync", 0)?),
        long_names: number("longname", 0)? != 0,
        ..Settings::default()
    })
}

/// The quotas of a dataset and what is free in its pool.
struct DatasetSpace {
    pool: Weak<DslPool>,
    ds: Arc<DslDataset>,
}

impl DatasetSpace {
    /// The most space that `bytes` may take: all their copies, each record rounded up to whole sectors.
    /// If records are smaller than sectors, this is a multiple of `bytes`.
    fn asize_max(&self, pool: &DslPool, bytes: u64) -> u64 {
        let Some(objset) = self.ds.open_objset() else {
            return bytes;
        };
        let props = objset.props();
        let (recordsize, copies) = (props.recordsize, u64::from(props.copies));
        let env = pool.mos().env();
        let record = env.asize_max(bytes.clamp(1, recordsize));
        bytes.div_ceil(recordsize) * record * copies
    }
}

impl SpaceCheck for DatasetSpace {
    fn wait_for_room(&self, bytes: u64) -> Result<()> {
        let Some(pool) = self.pool.upgrade() else {
            return Ok(());
        };
        pool.check_space(&self.ds, self.asize_max(&pool, bytes), false)
    }

    fn reserve(&self, txg: Txg, bytes: u64) -> bool {
        let pool = self.pool.upgrade();
        pool.is_none_or(|pool| pool.reserve_space(&self.ds, txg, self.asize_max(&pool, bytes)))
    }

    fn can_clone(&self) -> bool {
        let pool = self.pool.upgrade();
        pool.is_some_and(|pool| pool.mos().env().feature_is_enabled(feature::BLOCK_CLONING))
    }

    fn can_keep_births(&self) -> bool {
        let pool = self.pool.upgrade();
        pool.is_some_and(|pool| {
            pool.mos()
                .env()
                .feature_is_enabled(feature::PHYSICAL_REWRITE)
        })
    }

    fn has_long_names(&self) -> bool {
        self.ds.feature_is_active(feature::LONGNAME)
    }

    fn long_name_made(&self) {
        self.ds.activate_feature(feature::LONGNAME);
    }

    fn pool_number(&self) -> usize {
        self.pool.as_ptr().addr()
    }

    fn is_snapshot(&self) -> bool {
        self.ds.is_snapshot()
    }

    fn has_special(&self) -> bool {
        let pool = self.pool.upgrade();
        pool.is_some_and(|pool| pool.mos().env().has_special())
    }

    fn space(&self) -> Space {
        let Some(pool) = self.pool.upgrade() else {
            return Space::default();
        };
        let used = self.ds.fields().referenced().used.max(0).cast_unsigned();
        Space {
            used_bytes: used,
            available_bytes: pool.available(&self.ds),
        }
    }
}
