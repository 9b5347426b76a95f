//! One command or request, and the pools that it has open.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use rt::Mutex;
use zpl::mount::Mount;

use crate::failure::{Attempt, Failure, Reason};
use crate::held::{Access, Held, PoolLock};
use crate::keeper::Use;
use crate::open::{OpenPool, open};
use crate::pools::Pools;

/// One command or request. The pools that it asks for by [`pool`](Session::pool) stay open until
/// [`close`](Session::close).
pub struct Session {
    // Declared first, so that mounts are dropped before the pools they are in.
    mounts: Mutex<BTreeMap<String, Arc<Mount>>>,
    open: Mutex<BTreeMap<String, Arc<OpenPool>>>,
    pub(crate) held: Arc<Held>,
    pub(crate) pools: Pools,
    access: Access,
    /// What the history says of it.
    command: String,
}

/// The name of a pool that is being created or imported, locked.
pub(crate) struct NewName {
    _lock: PoolLock,
    _reserved: Option<Use>,
}

impl Pools {
    /// A session that opens pools with `access`; `command` is what the history says of it.
    #[must_use]
    pub fn session(&self, access: Access, command: impl Into<String>) -> Session {
        Session {
            mounts: Mutex::default(),
            open: Mutex::default(),
            held: Arc::default(),
            pools: self.clone(),
            access,
            command: command.into(),
        }
    }
}

impl Session {
    /// The pools that there are.
    #[must_use]
    pub fn pools(&self) -> &Pools {
        &self.pools
    }

    /// Opens an imported pool, for the caller to close; waits while another session holds it. One that is opened for
    /// writing takes hot spares for devices that are gone, and with `autoreplace` new devices in their places.
    ///
    /// # Errors
    /// `NotFound` if it is not imported, `Busy` if it is in use for too long, `ReadOnly`; errors of opening
    /// it.
    pub fn open(&self, pool: &str, access: Access) -> Result<OpenPool> {
        let open = open(&self.pools, &self.held, pool, access)?;
        if access == Access::Write && !open.is_kept() {
            self.pools.watch_spares(&open)?;
            open.autoreplace();
        }
        Ok(open)
    }

    /// Like [`open`](Session::open), for leaving the pool for good: takes no hot spares.
    ///
    /// # Errors
    /// As [`open`](Session::open); `Busy` while other sessions use a pool that is kept open.
    pub(crate) fn open_to_leave(&self, pool: &str, access: Access) -> Result<OpenPool> {
        match self.pools.keeper() {
            Some(keeper) => keeper.open_alone(&self.pools, pool),
            None => open(&self.pools, &self.held, pool, access),
        }
    }

    /// Opens a pool that was created or imported, if pools are kept open, so that what is to go on in it does.
    pub(crate) fn keep_open(&self, pool: &str) -> Result<()> {
        match self.pools.keeper() {
            Some(keeper) => keeper.keep(pool),
            None => Ok(()),
        }
    }

    /// Locks the name of a pool that is to be created or imported.
    pub(crate) fn lock_new(&self, pool: &str) -> std::result::Result<NewName, Reason> {
        let reserved = match self.pools.keeper() {
            Some(keeper) => match keeper.reserve(&self.pools, pool) {
                Ok(Some(reserved)) => Some(reserved),
                Ok(None) => return Err(Reason::NameTaken),
                Err(error) => return Err(Reason::InUse(error)),
            },
            None => None,
        };
        let lock = self.held.lock(&self.pools, pool, Access::Write);
        Ok(NewName {
            _lock: lock.map_err(Reason::InUse)?,
            _reserved: reserved,
        })
    }

    /// Like [`open`](Session::open), for writing if the pool was not imported read-only.
    ///
    /// # Errors
    /// As [`open`](Session::open).
    pub fn open_as_imported(&self, pool: &str) -> Result<OpenPool> {
        self.open(pool, self.access_as_imported(pool, Access::Write)?)
    }

    pub(crate) fn access_as_imported(&self, pool: &str, wanted: Access) -> Result<Access> {
        let is_readonly = self.pools.facts(pool)?.readonly;
        Ok(if is_readonly { Access::Read } else { wanted })
    }

    /// An imported pool; opened with the session's access if it is not open yet.
    ///
    /// # Errors
    /// As [`open`](Session::open).
    pub fn pool(&self, name: &str) -> Result<Arc<OpenPool>> {
        self.pool_with(name, self.access)
    }

    /// Like [`pool`](Session::pool), but read-only if the pool was imported so; `None` if no such pool is
    /// imported.
    ///
    /// # Errors
    /// As [`open`](Session::open).
    pub fn find_pool(&self, name: &str) -> Result<Option<Arc<OpenPool>>> {
        if !self.pools.is_imported(name)? {
            return Ok(None);
        }
        let access = self.access_as_imported(name, self.access)?;
        let pool = self.pool_with(name, access)?;
        if access == Access::Write {
            pool.check_writable()?;
        }
        Ok(Some(pool))
    }

    fn pool_with(&self, name: &str, access: Access) -> Result<Arc<OpenPool>> {
        let mut open = self.open.lock();
        if let Some(pool) = open.get(name) {
            return Ok(Arc::clone(pool));
        }
        let pool = Arc::new(self.open(name, access)?);
        open.insert(name.to_owned(), Arc::clone(&pool));
        Ok(pool)
    }

    /// The file system of a dataset or snapshot; stays mounted until the session is closed.
    ///
    /// # Errors
    /// As [`open`](Session::open); `NotFound` if there is no such dataset; errors of mounting it.
    pub fn mount(&self, name: &str) -> Result<Arc<Mount>> {
        let mut mounts = self.mounts.lock();
        if let Some(mount) = mounts.get(name) {
            return Ok(Arc::clone(mount));
        }
        let pool = self.pool(name.split(['/', '@']).next().unwrap_or(name))?;
        let mount = pool.mount(name, self.access == Access::Read);
        let mount = mount.map_err(|e| match e.kind() {
            ErrorKind::NotFound => {
                let text = format!("cannot open '{name}': data set does not exist");
                Error::new(e.kind(), text)
            }
            _ => e,
        })?;
        if self.access == Access::Write && mount.is_old() && !name.contains('@') {
            let text = format!(
                "file system '{name}' is of version {}, which is only read: 'zfs upgrade {name}' makes it one of \
                 version 5",
                mount.version()
            );
            self.pools.observer().notice(&text);
        }
        mounts.insert(name.to_owned(), Arc::clone(&mount));
        Ok(mount)
    }

    /// What the history says of the session.
    pub(crate) fn command(&self) -> &str {
        &self.command
    }

    /// Adds the session's command to the history of a pool. Reaches the disk with the open txg.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`.
    pub fn log(&self, pool: &OpenPool) -> Result<()> {
        pool.log_command(&self.command)
    }

    /// Ends the work on a pool that the session has opened: adds the command to the history, and syncs and
    /// closes the pool.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`.
    pub fn finish(&self, pool: &OpenPool) -> Result<()> {
        self.log(pool)?;
        pool.sync()?;
        pool.close()
    }

    /// Ends a change of the properties or the devices of a pool that the session has opened: adds the command
    /// to the history if `is_logged`, syncs the pool, remembers its config, and closes it.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`; errors of writing the cachefile.
    pub fn finish_change(&self, pool: &OpenPool, is_logged: bool) -> Result<()> {
        if is_logged {
            self.log(pool)?;
        }
        pool.sync()?;
        pool.remember()?;
        pool.close()
    }

    /// Writes the history, syncs everything to disk and closes the pools.
    ///
    /// # Errors
    /// The last error of a pool; the others are closed nevertheless.
    pub fn close(self) -> std::result::Result<(), Failure> {
        for mount in std::mem::take(&mut *self.mounts.lock()).into_values() {
            // What it changed is seen through mounts of the host when it ends.
            mount.settle();
        }
        let open = std::mem::take(&mut *self.open.lock());
        let mut outcome = Ok(());
        for (name, pool) in open {
            if pool.is_changed()
                && let Err(error) = self.log(&pool).and_then(|()| pool.sync())
                // A full pool gets no history entry; the change itself is on disk.
                && error.kind() != ErrorKind::NoSpace
            {
                outcome = Err(Failure::new(Attempt::Write, &name, error));
            }
            if let Err(error) = pool.close() {
                outcome = Err(Failure::new(Attempt::Close, &name, error));
            }
        }
        outcome
    }
}
