//! Creating a pool.

use base::{Error, Result};
use crypt::WrappingKey;
use machine::Holder;
use phys::feature::USEROBJ_ACCOUNTING;
use spa::{CreateOptions, NewPool, Spa};
use vdev::{AuxSpec, NewDevice, TopSpec, VdevKind};
use zpl::{NameRules, NewFilesystem, OwnerLimit};

use crate::facts::Facts;
use crate::failure::{Attempt, Failure, Outcome, Reason};
use crate::io_stats::begin_past;
use crate::session::Session;

/// A device for a new pool.
#[derive(Clone)]
pub struct PoolDevice {
    /// Its path, as it goes into labels.
    pub path: String,
    /// Whether it is a disk or a file.
    pub kind: VdevKind,
}

/// What the file system of a new pool is like, beside its properties.
#[derive(Clone, Debug, Default)]
pub struct RootFilesystem {
    /// How it tells names apart.
    pub names: NameRules,
    /// Limits of owners.
    pub limits: Vec<OwnerLimit>,
}

impl Session {
    /// Creates a pool on these top-level vdevs, with these hot spares, and leaves it imported with these facts. Its
    /// name has been checked.
    ///
    /// # Errors
    /// [`Reason::NameTaken`]; [`Reason::InUse`] if another session is creating it; errors of the devices.
    pub fn create(
        &self,
        pool: &str,
        tops: &[TopSpec<PoolDevice>],
        aux: &AuxSpec<PoolDevice>,
        facts: &Facts,
        new: NewPool,
        root: &RootFilesystem,
    ) -> Outcome<()> {
        let failed = |error: Error| Failure::new(Attempt::Create, pool, error);
        let record = Failure::of(Attempt::Record, pool);
        let locked = self.lock_new(pool);
        let lock = locked.map_err(|reason| Failure::new(Attempt::Create, pool, reason))?;
        if self.pools.is_imported(pool).map_err(&record)? {
            // Created by the session that held the lock.
            return Err(Failure::new(Attempt::Create, pool, Reason::NameTaken));
        }
        let tops = tops.iter().map(|top| self.open_top(pool, top));
        let vdevs: Result<_> = tops.collect();
        let vdevs = vdevs.map_err(failed)?;
        let holder = || Holder::Device(pool.to_owned());
        let aux = aux.try_map(|device| self.pools.open_aux(holder(), device));
        let aux = aux.map_err(failed)?;
        let filesystem = NewFilesystem {
            uid: 0,
            gid: 0,
            names: root.names,
        };
        let key = new.encryption.as_ref().map(|root| root.key.clone());
        let counts_objects = new.features.iter().any(|f| f.guid == USEROBJ_ACCOUNTING);
        let options = CreateOptions {
            name: pool.to_owned(),
            vdevs,
            aux,
            new,
            init_root: zpl::mount::init(filesystem, counts_objects),
            command: self.command().to_owned(),
            host: self.pools.host().map_err(&record)?,
            settings: self.pools.settings(pool),
        };
        let spa = Spa::create(options).map_err(failed)?;
        self.pools.remember(&spa, facts).map_err(record)?;
        set_limits(&spa, pool, &root.limits).map_err(failed)?;
        spa.close().map_err(failed)?;
        begin_past(&self.pools, &spa).map_err(failed)?;
        drop((spa, lock));
        self.keep_open(pool).map_err(failed)?;
        match key {
            Some(key) if self.pools.keeper().is_some() => {
                self.load_root_key(pool, key).map_err(failed)
            }
            _ => Ok(()),
        }
    }

    /// Loads the key of the root of a new pool where that is kept open.
    fn load_root_key(&self, pool: &str, key: WrappingKey) -> Result<()> {
        self.open_as_imported(pool)?.load_key(pool, key, false)
    }

    fn open_top(&self, pool: &str, top: &TopSpec<PoolDevice>) -> Result<TopSpec<NewDevice>> {
        top.try_map(|device| {
            let holder = Holder::Device(pool.to_owned());
            self.pools.open_device(holder, device)
        })
    }
}

/// Limits owners in the file system of a new pool.
fn set_limits(spa: &Spa, pool: &str, limits: &[OwnerLimit]) -> Result<()> {
    if limits.is_empty() {
        return Ok(());
    }
    let mount = zpl::mount::mount(spa.parts().dsl(), pool, false)?;
    limits
        .iter()
        .try_for_each(|limit| mount.set_owner_limit(limit))
}
