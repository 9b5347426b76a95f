//! Locks on the names of pools, and which of them a session holds.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use machine::{FileLock, LockMode, Patience};
use rt::Mutex;

use crate::pools::Pools;

/// How long a session that already holds a pool whose name sorts later waits, in ns: the other session may
/// be waiting for that pool.
const OUT_OF_ORDER_NS: u64 = 1_000_000_000;

/// The access to a pool that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read-only.
    Read,
    /// Read and write.
    Write,
}

/// The names of the pools that a session has locked.
#[derive(Default)]
pub(crate) struct Held(Mutex<BTreeSet<String>>);

/// The lock on a pool's name.
pub(crate) struct PoolLock {
    held: Arc<Held>,
    name: String,
    _file: FileLock,
}

impl Drop for PoolLock {
    fn drop(&mut self) {
        self.held.0.lock().remove(&self.name);
    }
}

impl Held {
    /// Locks a pool's name, exclusively for a writer; waits while another session holds it.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`], naming the session, after the time that the environment gives; at once if another process
    /// keeps the pool open.
    pub(crate) fn lock(
        self: &Arc<Held>,
        pools: &Pools,
        pool: &str,
        access: Access,
    ) -> Result<PoolLock> {
        let path = pools.state().join("locks").join(format!("{pool}.lock"));
        let mode = match access {
            Access::Read => LockMode::Shared,
            Access::Write => LockMode::Exclusive,
        };
        if !pools.is_holder() && is_taken(&path, mode) && pools.have_holder() {
            let text =
                "pool is held by 'ashift serve', which began meanwhile: run the command again";
            return Err(Error::new(ErrorKind::Busy, text));
        }
        let patience = Patience {
            wait_ns: self.wait_ns(pools, pool, u64::MAX),
            on_wait: &|what| pools.observer().waiting(what),
        };
        let file = FileLock::take(&path, mode, &format!("pool '{pool}'"), &patience);
        let file = file.map_err(|e| match e.kind() {
            ErrorKind::Busy => Error::new(ErrorKind::Busy, format!("pool is {e}")),
            _ => e,
        })?;
        self.0.lock().insert(pool.to_owned());
        Ok(PoolLock {
            held: Arc::clone(self),
            name: pool.to_owned(),
            _file: file,
        })
    }

    /// How long to wait for a pool or for its devices, in ns: as the environment says, or `default_ns`;
    /// short when out of order.
    pub(crate) fn wait_ns(&self, pools: &Pools, pool: &str, default_ns: u64) -> u64 {
        let is_last = self.0.lock().iter().all(|name| name.as_str() < pool);
        let wait_ns = pools.wait_ns(default_ns);
        if is_last {
            wait_ns
        } else {
            wait_ns.min(OUT_OF_ORDER_NS)
        }
    }
}

/// Whether a lock cannot be taken now.
pub(crate) fn is_taken(path: &Path, mode: LockMode) -> bool {
    let patience = Patience {
        wait_ns: 0,
        on_wait: &|_| {},
    };
    let lock = FileLock::take(path, mode, "", &patience);
    lock.is_err_and(|e| e.kind() == ErrorKind::Busy)
}
