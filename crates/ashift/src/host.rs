//! Pools on this host: which are imported, and opening them for one command.
//!
//! # What it is
//! There is no daemon. A pool that was created or imported is in the cachefile below the state folder;
//! every command opens it, acts, syncs and closes it. While the pool is open, its devices and its name are
//! locked: a second command waits for it, and says which pool it waits for.
//!
//! # Invariants
//! A command that holds a pool waits without limit only for pools whose names sort later (for others, one
//! second at most), so commands never deadlock.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use base::{Context, Error, ErrorKind, Result};
use dmu::{OnSuspend, SuspendEvent, SuspendSettings};
use machine::{FileLock, Holder, LockMode, Patience};
use nvpair::NvList;
use spa::{CacheFile, Host as HostId, ImportOptions, Settings, Spa};

use crate::state::{self, state_folder, wait_ns};

/// The access to a pool that a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read-only.
    Read,
    /// Read and write.
    Write,
}

/// What this host remembers of an imported pool beyond its config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// `altroot`
    pub altroot: Option<String>,
    /// It was imported read-only.
    pub readonly: bool,
    /// Why it is read-only, if that was not asked for.
    pub readonly_reason: Option<String>,
    /// Txg that the pool was rewound to at import (`zpool import -T`); always read-only.
    pub max_txg: Option<u64>,
}

/// Keys of [`Facts`] beside the config in the cachefile.
const ALTROOT: &str = "ashift:altroot";
const READONLY: &str = "ashift:readonly";
const READONLY_REASON: &str = "ashift:readonly_reason";
const MAX_TXG: &str = "ashift:max_txg";

/// How long to wait for devices in use by another program, in ns. Bounded, since that program may never
/// end.
const DEVICES_WAIT_NS: u64 = 10_000_000_000;
/// How long a command waits for failed devices to come back, in ns. Bounded, so that it does not hang
/// unnoticed.
const SUSPENDED_WAIT_NS: u64 = 30_000_000_000;
/// Interval at which failed devices are retried meanwhile, in ns: short enough for a user who has just
/// plugged one in.
const RETRY_NS: u64 = 1_000_000_000;
/// How long a command that already holds a pool whose name sorts later waits, in ns: the other command may
/// be waiting for that pool.
const OUT_OF_ORDER_NS: u64 = 1_000_000_000;

thread_local! {
    /// State folder and name of each pool that this command holds.
    static HELD: RefCell<BTreeSet<(PathBuf, String)>> = const { RefCell::new(BTreeSet::new()) };
}

/// The lock on a pool's name.
#[derive(Debug)]
pub(crate) struct PoolLock {
    key: (PathBuf, String),
    _file: FileLock,
}

impl PoolLock {
    fn new(state: &Path, pool: &str, file: FileLock) -> PoolLock {
        let key = (state.to_owned(), pool.to_owned());
        HELD.with_borrow_mut(|held| held.insert(key.clone()));
        PoolLock { key, _file: file }
    }
}

impl Drop for PoolLock {
    fn drop(&mut self) {
        HELD.with_borrow_mut(|held| held.remove(&self.key));
    }
}

/// The pools of this host.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    state: PathBuf,
    cache: CacheFile,
}

/// A pool that one command has open and locked.
pub(crate) struct OpenPool {
    spa: Spa,
    facts: Facts,
    host: Host,
    _lock: PoolLock,
}

impl Drop for OpenPool {
    /// Keeps the errors met, unless the pool is no longer imported here.
    fn drop(&mut self) {
        let name = self.spa.name();
        if self.host.imported(&name).is_err() {
            return;
        }
        // The command itself reports why a pool is suspended, and the same cause may prevent keeping
        // anything.
        let is_suspended = self.spa.groups().suspended().is_some();
        if let Err(error) = crate::kept_errors::keep_met(self.host.state(), &self.spa)
            && !is_suspended
        {
            eprintln!("cannot keep the errors of pool '{name}': {error}");
        }
    }
}

impl OpenPool {
    /// The prefix of its datasets' mountpoints (`altroot`).
    pub(crate) fn altroot(&self) -> Option<&str> {
        self.facts.altroot.as_deref()
    }
}

impl std::ops::Deref for OpenPool {
    type Target = Spa;
    fn deref(&self) -> &Spa {
        &self.spa
    }
}

impl Host {
    /// The host of the machine in which the command runs, or else the host whose state is in
    /// [`state_folder`].
    pub(crate) fn here() -> Host {
        Host::with_state(crate::machine::state_of_current().unwrap_or_else(state_folder))
    }

    /// The host whose state is in that folder.
    pub(crate) fn with_state(state: PathBuf) -> Host {
        Host {
            cache: state::cachefile(&state),
            state,
        }
    }

    /// The cachefile.
    pub(crate) fn cache(&self) -> &CacheFile {
        &self.cache
    }

    /// The host id and name that go into labels.
    pub(crate) fn id(&self) -> Result<HostId> {
        let world = crate::machine::current()?;
        if let Some(machine) = world.running() {
            return Ok(HostId {
                id: machine.hostid(),
                name: machine.hostname(),
            });
        }
        HostId::find(&self.state)
    }

    /// Settings for an open pool: `ASHIFT_ARC_BYTES` bounds its cache.
    pub(crate) fn settings(&self) -> Result<Settings> {
        let mut settings = Settings::default();
        if let Some(machine) = crate::machine::current()?.running() {
            let host = machine.host();
            settings.io_threads = host.io_threads;
            settings.aggregation_limit_bytes = host.aggregation_limit_bytes;
            settings.txg.dirty_data_max = host.dirty_data_max_bytes;
            settings.auto_ashift.max = host.max_auto_ashift;
            // Write-behind is off: the machine's times are compared with those of OpenZFS, which has none.
            settings.txg.write_behind_bytes = u64::MAX;
        }
        if let Some(text) = std::env::var_os("ASHIFT_ARC_BYTES") {
            let bytes = text.to_str().and_then(|t| t.parse().ok());
            settings.arc_bytes =
                bytes.ok_or_else(|| Error::invalid("ASHIFT_ARC_BYTES is not a number"))?;
        }
        Ok(settings)
    }

    /// Settings for one pool: I/O suspended by failing devices is reported on stderr, and is waited for
    /// only for a limited time.
    pub(crate) fn settings_of(&self, pool: &str) -> Result<Settings> {
        let mut settings = self.settings()?;
        let pool = pool.to_owned();
        let say = move |event: &SuspendEvent<'_>| crate::say::suspended(&pool, event);
        settings.txg.suspend = SuspendSettings {
            retry_ns: RETRY_NS,
            patience_ns: wait_ns(SUSPENDED_WAIT_NS)?,
            on_suspend: Some(OnSuspend(Arc::new(say))),
        };
        Ok(settings)
    }

    /// Names and configs of the imported pools.
    pub(crate) fn pools(&self) -> Result<Vec<(String, NvList)>> {
        self.cache.pools()
    }

    /// Locks a pool's name, exclusively for a writer; waits while another command holds it.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`], naming the holder, after the time that `ASHIFT_WAIT` gives.
    pub(crate) fn lock(&self, pool: &str, access: Access) -> Result<PoolLock> {
        let path = self.state.join("locks").join(format!("{pool}.lock"));
        let mode = match access {
            Access::Read => LockMode::Shared,
            Access::Write => LockMode::Exclusive,
        };
        let file = FileLock::take(
            &path,
            mode,
            &format!("pool '{pool}'"),
            &self.patience(pool, u64::MAX)?,
        );
        let file = file.map_err(|e| match e.kind() {
            ErrorKind::Busy => Error::new(ErrorKind::Busy, format!("pool is {e}")),
            _ => e,
        })?;
        Ok(PoolLock::new(&self.state, pool, file))
    }

    /// How long to wait for a pool or for its devices: `ASHIFT_WAIT`, or `default_ns` without it; short
    /// when out of order.
    fn patience(&self, pool: &str, default_ns: u64) -> Result<Patience<'static>> {
        let is_last = HELD.with_borrow(|held| {
            let mut here = held.iter().filter(|(state, _)| *state == self.state);
            here.all(|(_, name)| name.as_str() < pool)
        });
        let wait_ns = wait_ns(default_ns)?;
        Ok(Patience {
            wait_ns: if is_last {
                wait_ns
            } else {
                wait_ns.min(OUT_OF_ORDER_NS)
            },
            on_wait: &crate::say::waiting,
        })
    }

    /// Puts an open pool into the cachefile.
    pub(crate) fn remember(&self, spa: &Spa, facts: &Facts) -> Result<()> {
        let mut config = spa.config();
        if let Some(altroot) = &facts.altroot {
            config.add(ALTROOT, &**altroot);
        }
        if facts.readonly {
            config.add(READONLY, 1u64);
        }
        if let Some(reason) = &facts.readonly_reason {
            config.add(READONLY_REASON, &**reason);
        }
        if let Some(txg) = facts.max_txg {
            config.add(MAX_TXG, txg);
        }
        self.cache.put(&spa.name(), &config)
    }

    /// What is remembered of an imported pool; the default if it is not imported.
    pub(crate) fn facts(&self, pool: &str) -> Result<Facts> {
        Ok(self
            .cache
            .find(pool)?
            .map_or_else(Facts::default, |c| facts_in(&c)))
    }

    /// Opens an imported pool; waits while another command holds it.
    pub(crate) fn open(&self, pool: &str, access: Access) -> Result<OpenPool> {
        let within = || format!("cannot open '{pool}'");
        self.imported(pool)?; // no lock for what is not there
        let lock = self.lock(pool, access).within(within)?;
        // The command that held the lock may have changed or exported it.
        let config = self.imported(pool)?;
        let facts = facts_in(&config);
        if facts.readonly && access == Access::Write {
            let why = facts.readonly_reason;
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            let text = format!("cannot open '{pool}': pool is read-only{why}");
            return Err(Error::new(ErrorKind::ReadOnly, text));
        }
        let readonly = access == Access::Read;
        // Nothing else uses the devices of a machine.
        let is_machine = crate::machine::current()?.is_machine();
        let patience = self.patience(pool, if is_machine { 0 } else { DEVICES_WAIT_NS })?;
        let import = || {
            patience.wait_for(&format!("pool '{pool}'"), || {
                match self.import(pool, &config, readonly) {
                    Err(e) if e.kind() == ErrorKind::Busy => Err(e.to_string()),
                    outcome => Ok(outcome),
                }
            })
        };
        let mut spa = import().within(within)?;
        if !spa.is_readonly() && spa.autoexpand() && spa.expand(&|_| true).within(within)? {
            spa.close().within(within)?;
            drop(spa);
            spa = import().within(within)?;
        }
        if !spa.is_readonly() {
            spa.resilver_if_needed().within(within)?;
        }
        crate::kept_errors::hand_over(&self.state, &spa);
        Ok(OpenPool {
            spa,
            facts,
            host: self.clone(),
            _lock: lock,
        })
    }

    /// The config of an imported pool.
    fn imported(&self, pool: &str) -> Result<NvList> {
        self.cache.find(pool)?.ok_or_else(|| {
            let text = format!("cannot open '{pool}': no such pool");
            Error::new(ErrorKind::NotFound, text)
        })
    }

    fn import(&self, pool: &str, config: &NvList, readonly: bool) -> Result<Spa> {
        let facts = facts_in(config);
        let world = crate::machine::current()?;
        let names = world.names_for(Holder::Pool(pool.to_owned()));
        let (id, settings) = (self.id()?, self.settings_of(pool)?);
        let mut options = ImportOptions::from_config_in(&names, config, readonly, id, settings)?;
        options.max_txg = facts.max_txg.map(base::Txg);
        // A read-only import leaves the old name in the labels,
        options.new_name = facts.readonly.then(|| pool.to_owned());
        // and, in those of a destroyed pool, that it was destroyed.
        options.force = facts.readonly;
        Spa::open(options)
    }

    /// The folder of this host's state.
    pub(crate) fn state(&self) -> &Path {
        &self.state
    }
}

/// The pools that one command has open, each opened when first asked for.
pub(crate) struct OpenPools {
    pub(crate) host: Host,
    pub(crate) access: Access,
    open: RefCell<BTreeMap<String, Rc<OpenPool>>>,
}

impl OpenPools {
    pub(crate) fn new(host: Host, access: Access) -> OpenPools {
        OpenPools {
            host,
            access,
            open: RefCell::default(),
        }
    }

    /// An imported pool; opened with [`Host::open`] if it is not open yet.
    pub(crate) fn get(&self, name: &str) -> Result<Rc<OpenPool>> {
        if let Some(pool) = self.open.borrow().get(name) {
            return Ok(pool.clone());
        }
        let pool = Rc::new(self.host.open(name, self.access)?);
        let mut open = self.open.borrow_mut();
        open.insert(name.to_owned(), pool.clone());
        Ok(pool)
    }

    /// All open pools, for the caller to close.
    pub(crate) fn take(self) -> BTreeMap<String, Rc<OpenPool>> {
        self.open.into_inner()
    }
}

fn facts_in(config: &NvList) -> Facts {
    Facts {
        altroot: config.get_str(ALTROOT).map(str::to_owned),
        readonly: config.get_u64(READONLY) == Some(1),
        readonly_reason: config.get_str(READONLY_REASON).map(str::to_owned),
        max_txg: config.get_u64(MAX_TXG),
    }
}
