//! Pools that stay open between the sessions of one process.
//!
//! # What it is
//! Without a [`Keeper`] a session opens a pool, works, and closes it. With one, the first session that asks for a
//! pool opens it, and it stays open, for writing unless it was imported read-only: the others share it, and
//! what goes on in it (scans, removals, frees) goes on between them. A file system is open once, however many
//! sessions use it.
//!
//! # Invariants
//! 1. A name has one slot: a pool is opened, exported or created by one session at a time.
//! 2. A pool is exported or destroyed only when no other session uses it; meanwhile none can begin to.
//! 3. The lock on the pool's name and those on its devices are held as long as it is open, so other processes see
//!    it as in use.
//!
//! # Crash argument
//! As that of a session: what is on disk is a synced txg and intent logs.
//!
//! # Concurrency
//! Slots are looked at under one lock, which is not held while a pool is opened or closed. Changes of one pool by
//! several sessions are put in order by its txgs (sync tasks), as in OpenZFS.
//!
//! # Source
//! OpenZFS module/zfs/spa_misc.c (`spa_open_ref`, `spa_namespace_lock`), module/zfs/spa.c (`spa_export_common`).

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use machine::Patience;
use rt::Mutex;

use crate::held::{Access, Held};
use crate::mounting::MountTable;
use crate::open::{OpenPool, Opened, check_access};
use crate::pools::Pools;

/// How long a session waits for the others that use a pool that it is to export, in ns: long enough for those
/// that end by themselves.
const LEAVE_WAIT_NS: u64 = 1_000_000_000;

/// Keeps pools open.
pub struct Keeper {
    /// What its pools are opened with.
    pools: Pools,
    held: Arc<Held>,
    slots: Mutex<BTreeMap<String, Slot>>,
    mounts: MountTable,
}

enum Slot {
    /// A session opens, creates, exports or destroys it.
    Taken,
    Open {
        pool: Arc<Opened>,
        users: usize,
    },
}

/// A session's use of a slot; given back when it is dropped.
pub(crate) struct Use {
    keeper: Arc<Keeper>,
    pool: String,
    /// Whether the slot is taken, and goes with this.
    is_alone: bool,
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut slots = self.keeper.slots.lock();
        if self.is_alone {
            slots.remove(&self.pool);
        } else if let Some(Slot::Open { users, .. }) = slots.get_mut(&self.pool) {
            *users -= 1;
        }
    }
}

impl Pools {
    /// These pools, kept open by `keeper`.
    #[must_use]
    pub fn kept_by(mut self, keeper: Arc<Keeper>) -> Pools {
        self.keeper = Some(keeper);
        self.is_holder = true;
        self
    }
}

impl Keeper {
    /// One for the pools of a host. They are opened with the environment of `pools`, not with that of the session
    /// that happens to be the first.
    #[must_use]
    pub fn new(mut pools: Pools) -> Arc<Keeper> {
        pools.is_holder = true;
        Arc::new(Keeper {
            pools,
            held: Arc::default(),
            slots: Mutex::default(),
            mounts: MountTable::default(),
        })
    }

    /// The pools that are open.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let slots = self.slots.lock();
        let open = slots
            .iter()
            .filter(|(_, slot)| matches!(slot, Slot::Open { .. }));
        open.map(|(name, _)| name.clone()).collect()
    }

    /// Opens an imported pool, if it is not open.
    ///
    /// # Errors
    /// As [`Session::open`](crate::Session::open).
    pub fn keep(self: &Arc<Keeper>, pool: &str) -> Result<()> {
        let pools = self.pools.clone().kept_by(Arc::clone(self));
        self.open(&pools, pool, Access::Read).map(drop)
    }

    /// A pool for a session.
    pub(crate) fn open(
        self: &Arc<Keeper>,
        pools: &Pools,
        name: &str,
        access: Access,
    ) -> Result<OpenPool> {
        let in_use = || format!("pool '{name}' is being opened or exported");
        let taken = patience(pools, u64::MAX).wait_for(&format!("pool '{name}'"), || {
            let mut slots = self.slots.lock();
            match slots.get_mut(name) {
                Some(Slot::Taken) => Err(in_use()),
                Some(Slot::Open { pool, users }) => {
                    *users += 1;
                    Ok(Ok(Some(Arc::clone(pool))))
                }
                None => {
                    slots.insert(name.to_owned(), Slot::Taken);
                    Ok(Ok(None))
                }
            }
        })?;
        let Some(pool) = taken else {
            return self.open_first(pools, name, access);
        };
        let shares = self.use_of(name, false);
        check_access(name, pool.facts(), access)?;
        Ok(OpenPool::new(pool, pools, Some(shares)))
    }

    /// A pool that is open, and the use of it, to be given back after it.
    pub(crate) fn share(self: &Arc<Keeper>, name: &str) -> Option<(Arc<Opened>, Use)> {
        match self.slots.lock().get_mut(name) {
            Some(Slot::Open { pool, users }) => {
                *users += 1;
                Some((Arc::clone(pool), self.use_of(name, false)))
            }
            _ => None,
        }
    }

    /// Opens a pool whose slot is taken for that, and lets others use it from then on.
    fn open_first(
        self: &Arc<Keeper>,
        pools: &Pools,
        name: &str,
        access: Access,
    ) -> Result<OpenPool> {
        let alone = self.use_of(name, true);
        check_access(name, &pools.facts(name)?, access)?;
        let pool = Arc::new(self.open_as_imported(name)?);
        if !pool.spa().is_readonly() {
            self.pools.watch_spares(pool.spa())?;
            // What a crash or another program has left half done goes on.
            pool.spa().parts().groups().kick();
        }
        let slot = Slot::Open {
            pool: Arc::clone(&pool),
            users: 1,
        };
        self.slots.lock().insert(name.to_owned(), slot);
        // The slot is not given up, but shared from now on.
        let mut shares = alone;
        shares.is_alone = false;
        let open = OpenPool::new(pool, pools, Some(shares));
        if !open.is_readonly() {
            open.autoreplace();
        }
        Ok(open)
    }

    fn open_as_imported(&self, name: &str) -> Result<Opened> {
        let access = match self.pools.facts(name)?.readonly {
            true => Access::Read,
            false => Access::Write,
        };
        Opened::open(&self.pools, &self.held, name, access)
    }

    /// A pool that its session is to leave for good: no other one uses it.
    ///
    /// # Errors
    /// `Busy` while others do.
    pub(crate) fn open_alone(self: &Arc<Keeper>, pools: &Pools, name: &str) -> Result<OpenPool> {
        let open = patience(pools, LEAVE_WAIT_NS).wait_for(&format!("pool '{name}'"), || {
            // Mounts that were ended from outside use it no longer.
            self.mounts.forget_ended();
            let mut slots = self.slots.lock();
            if let Some(Slot::Taken | Slot::Open { users: 1.., .. }) = slots.get(name) {
                return Err("pool is busy".to_owned());
            }
            Ok(Ok(slots.insert(name.to_owned(), Slot::Taken)))
        })?;
        let alone = self.use_of(name, true);
        let pool = match open {
            Some(Slot::Open { pool, .. }) => pool,
            _ => Arc::new(self.open_as_imported(name)?),
        };
        Ok(OpenPool::new(pool, pools, Some(alone)))
    }

    /// Takes the slot of a pool that is to be created or imported; `None` if it is open.
    pub(crate) fn reserve(self: &Arc<Keeper>, pools: &Pools, name: &str) -> Result<Option<Use>> {
        let is_free = patience(pools, u64::MAX).wait_for(&format!("pool '{name}'"), || {
            let mut slots = self.slots.lock();
            match slots.get(name) {
                Some(Slot::Taken) => Err(format!("pool '{name}' is being opened or exported")),
                Some(Slot::Open { .. }) => Ok(Ok(false)),
                None => {
                    slots.insert(name.to_owned(), Slot::Taken);
                    Ok(Ok(true))
                }
            }
        })?;
        Ok(is_free.then(|| self.use_of(name, true)))
    }

    /// The mounted data sets.
    pub(crate) fn mounts(&self) -> &MountTable {
        &self.mounts
    }

    /// Unmounts all data sets, syncs and closes all pools, as soon as no session uses them.
    ///
    /// # Errors
    /// The last error; the other pools are closed nevertheless.
    pub fn close(self: &Arc<Keeper>) -> Result<()> {
        self.mounts.close();
        let mut outcome = Ok(());
        for name in self.names() {
            let pools = self.pools.clone().kept_by(Arc::clone(self));
            let closed = self.open_alone(&pools, &name).and_then(|pool| pool.leave());
            if let Err(error) = closed
                && error.kind() != ErrorKind::NotFound
            {
                outcome = Err(Error::new(error.kind(), format!("pool '{name}': {error}")));
            }
        }
        outcome
    }

    /// Gives up all pools as they are, when the power is gone: nothing more is written, and nothing is kept of what
    /// failed. For when no session uses them.
    pub fn lose(&self) {
        let slots = std::mem::take(&mut *self.slots.lock());
        for slot in slots.into_values() {
            if let Slot::Open { pool, .. } = slot {
                pool.lose();
            }
        }
    }

    fn use_of(self: &Arc<Keeper>, pool: &str, is_alone: bool) -> Use {
        Use {
            keeper: Arc::clone(self),
            pool: pool.to_owned(),
            is_alone,
        }
    }
}

fn patience(pools: &Pools, default_ns: u64) -> Patience<'_> {
    Patience {
        wait_ns: pools.wait_ns(default_ns),
        on_wait: &|_| {},
    }
}
