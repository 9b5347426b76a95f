//! Creating a pool.

use base::{Error, Result};
use machine::Holder;
use phys::PropValue;
use phys::feature::{Feature, USEROBJ_ACCOUNTING};
use spa::{CreateOptions, Spa};
use vdev::{NewDevice, TopSpec, VdevKind};
use zpl::NewFilesystem;

use crate::facts::Facts;
use crate::failure::{Attempt, Failure, Reason};
use crate::held::Access;
use crate::session::Session;

/// A device for a new pool.
#[derive(Clone)]
pub struct PoolDevice {
    /// Its path, as it goes into labels.
    pub path: String,
    /// Whether it is a disk or a file.
    pub kind: VdevKind,
}

/// A pool to be created.
#[derive(Default)]
pub struct NewPool {
    /// Its top-level vdevs.
    pub tops: Vec<TopSpec<PoolDevice>>,
    /// `ashift` of its vdevs; 0: as their devices ask for.
    pub ashift: u32,
    /// Features to be enabled.
    pub features: Vec<&'static Feature>,
    /// Properties of the pool.
    pub props: Vec<(String, PropValue)>,
    /// `comment`
    pub comment: Option<String>,
    /// `compatibility`
    pub compatibility: Option<String>,
    /// Properties of its first dataset.
    pub fs_props: Vec<(String, PropValue)>,
    /// `altroot`
    pub altroot: Option<String>,
}

impl Session {
    /// Creates a pool. Its name has been checked.
    ///
    /// # Errors
    /// [`Reason::NameTaken`]; [`Reason::InUse`] if another session is creating it; errors of the devices.
    pub fn create(&self, pool: &str, new: NewPool) -> std::result::Result<(), Failure> {
        let failed = |error: Error| Failure::new(Attempt::Create, pool, error);
        let record = Failure::of(Attempt::Record, pool);
        let locked = self.held.lock(&self.pools, pool, Access::Write);
        let _lock = locked.map_err(|e| Failure::new(Attempt::Create, pool, Reason::InUse(e)))?;
        if self.pools.is_imported(pool).map_err(&record)? {
            // Created by the session that held the lock.
            return Err(Failure::new(Attempt::Create, pool, Reason::NameTaken));
        }
        let tops = new.tops.iter().map(|top| self.open_top(pool, top));
        let vdevs: Result<_> = tops.collect();
        let vdevs = vdevs.map_err(failed)?;
        let root = NewFilesystem {
            uid: 0,
            gid: 0,
            utf8only: false,
        };
        let counts_objects = new.features.iter().any(|f| f.guid == USEROBJ_ACCOUNTING);
        let options = CreateOptions {
            name: pool.to_owned(),
            vdevs,
            ashift: new.ashift,
            features: new.features,
            props: new.props,
            comment: new.comment,
            compatibility: new.compatibility,
            fs_props: new.fs_props,
            init_root: zpl::mount::init(root, counts_objects),
            command: self.command().to_owned(),
            host: self.pools.host().map_err(&record)?,
            settings: self.pools.settings(pool),
        };
        let spa = Spa::create(options).map_err(failed)?;
        let facts = Facts {
            altroot: new.altroot,
            ..Facts::default()
        };
        self.pools.remember(&spa, &facts).map_err(record)?;
        spa.close().map_err(failed)
    }

    fn open_top(&self, pool: &str, top: &TopSpec<PoolDevice>) -> Result<TopSpec<NewDevice>> {
        top.try_map(|device| {
            let holder = Holder::Device(pool.to_owned());
            self.pools.open_device(holder, device)
        })
    }
}
