//! A pool that a session has open, and opening it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use base::{Context, Error, ErrorKind, Guid, ObjectId, Result, Txg};
use machine::{Holder, Patience};
use nvpair::NvList;
use phys::feature::Feature;
use rt::Mutex;
use spa::{ImportOptions, NewName, Spa, device_paths};
use zpl::mount::{Mount, mount};

use crate::events::keep_events;
use crate::facts::Facts;
use crate::held::{Access, Held, PoolLock};
use crate::io_stats::{Publisher, forget_io, keep_io};
use crate::keeper::Use;
use crate::kept_errors;
use crate::pool_change::{self, PoolChange};
use crate::pools::Pools;

/// How long to wait for devices in use by another program, in ns. Bounded, since that program may never
/// end.
const DEVICES_WAIT_NS: u64 = 10_000_000_000;

/// A pool that is open and locked.
pub(crate) struct Opened {
    spa: Arc<Spa>,
    publisher: Publisher,
    facts: Facts,
    /// What changes of the facts while it is open.
    changing: Mutex<Changing>,
    pools: Pools,
    /// Its file systems that sessions have open, by dataset; only if the pool is kept open.
    mounts: Mutex<BTreeMap<ObjectId, Weak<Mount>>>,
    /// Whether it went with the power of its machine.
    is_lost: AtomicBool,
    _lock: PoolLock,
}

/// What may change of the facts of a pool while it is open.
#[derive(Default)]
pub(crate) struct Changing {
    /// Devices that are taken away until the pool is exported.
    pub(crate) offline: Vec<u64>,
    pub(crate) faulted: Vec<u64>,
    pub(crate) cachefile: Option<String>,
}

impl Drop for Opened {
    /// Keeps the events, the errors met and the I/O counted, unless the pool is no longer imported here, or lost.
    fn drop(&mut self) {
        let name = self.spa.name();
        self.publisher.stop();
        self.tell_of_evictions(&name);
        if self.is_lost.load(Ordering::Relaxed) {
            return;
        }
        if self.pools.imported(&name).is_err() {
            // What an export or destruction was is told in vain if it cannot be kept: it has happened.
            let _ = keep_events(&self.pools, &self.spa);
            forget_io(&self.pools, &name);
            return;
        }
        // The request itself reports why a pool is suspended, and the same cause may prevent keeping
        // anything.
        let is_suspended = self.spa.suspended().is_some();
        // Before what they tell of is put elsewhere.
        let told = keep_events(&self.pools, &self.spa);
        let kept = kept_errors::keep_met(&self.pools, &self.spa);
        if let Err(error) = told.and(kept).and(self.publisher.keep(&self.spa))
            && !is_suspended
        {
            let text = format!("cannot keep the errors of pool '{name}': {error}");
            self.pools.observer().notice(&text);
        }
    }
}

impl Opened {
    /// Tells if a machine's cache was smaller than its memory says.
    fn tell_of_evictions(&self, name: &str) {
        let blocks = self.spa.evicted_for_room();
        if blocks > 0 {
            let text = format!(
                "pool '{name}': {blocks} blocks that this machine's memory would have kept were evicted: they do not \
                 compress, and take too much of this computer's. What is read again takes longer than it would there"
            );
            self.pools.observer().notice(&text);
        }
    }
}

/// A session's use of an open pool: of one that is kept open, or of its own.
pub struct OpenPool {
    // Declared first, so that the pool is closed before its slot is given back.
    opened: Arc<Opened>,
    shares: Option<Use>,
    pools: Pools,
    /// Whether its history gets the session's command.
    is_changed: AtomicBool,
}

impl OpenPool {
    pub(crate) fn new(opened: Arc<Opened>, pools: &Pools, shares: Option<Use>) -> OpenPool {
        OpenPool {
            opened,
            shares,
            pools: pools.clone(),
            is_changed: AtomicBool::new(false),
        }
    }

    /// Whether it stays open when the session ends, so that what was begun in it goes on.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.shares.is_some()
    }

    /// The prefix of its datasets' mountpoints (`altroot`).
    #[must_use]
    pub fn altroot(&self) -> Option<&str> {
        self.opened.facts.altroot.as_deref()
    }

    /// What is remembered of it beyond its config.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.opened.facts
    }

    /// The pools it is one of.
    #[must_use]
    pub fn pools(&self) -> &Pools {
        &self.pools
    }

    pub(crate) fn note_change(&self) {
        self.is_changed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.is_changed.load(Ordering::Relaxed)
    }

    /// Changes one of its properties. Returns the enabled features that a new value of `compatibility` does
    /// not allow: a user should know of them, and they stay enabled.
    ///
    /// # Errors
    /// `InvalidInput` for a dataset that is not in the pool and for a feature that its compatibility does not
    /// allow; `Unsupported` for one that is not kept up here; `ReadOnly`, `Suspended`.
    pub fn change_property(&self, change: &PoolChange) -> Result<Vec<&'static Feature>> {
        if let PoolChange::Cachefile(file) = change {
            self.changing().lock().cachefile = Facts::cachefile_of(Some(file), None);
            return Ok(Vec::new());
        }
        pool_change::change(self, change)
    }

    /// A file system or snapshot. `readonly`: for reading, unless the pool is kept open for others, too.
    pub(crate) fn mount(&self, name: &str, readonly: bool) -> Result<Arc<Mount>> {
        let dsl = self.parts().dsl();
        if !self.is_kept() {
            self.unlock(name)?;
            let readonly = readonly || self.is_readonly();
            return mount(dsl, name, readonly).map(Arc::new);
        }
        let dataset = dsl.dataset(name)?.object();
        let mut mounts = self.opened.mounts.lock();
        if let Some(mount) = mounts.get(&dataset).and_then(Weak::upgrade) {
            return Ok(mount);
        }
        let mount = Arc::new(mount(dsl, name, self.is_readonly())?);
        mounts.retain(|_, mount| mount.strong_count() > 0);
        mounts.insert(dataset, Arc::downgrade(&mount));
        Ok(mount)
    }

    /// Ends the session's use of the pool: syncs and closes it, unless it is kept open. If its guid or its devices
    /// are no longer those in the cachefile, as when a replacement has ended, that gets the config of now.
    ///
    /// # Errors
    /// As [`Spa::close`]; errors of writing the cachefile.
    pub fn close(&self) -> Result<()> {
        if self.is_kept() {
            return self.remember_devices();
        }
        self.leave()
    }

    /// Syncs and closes the pool.
    pub(crate) fn leave(&self) -> Result<()> {
        Spa::close(self)?;
        self.remember_devices()
    }

    fn remember_devices(&self) -> Result<()> {
        let paths = |config: &NvList| {
            let paths = config.get_list("vdev_tree").map(device_paths);
            (config.get_u64("pool_guid"), paths)
        };
        let known = self.pools.cachefile().find(&self.name())?;
        if known.is_some_and(|known| paths(&known) != paths(&self.config())) {
            self.remember()?;
        }
        Ok(())
    }

    pub(crate) fn changing(&self) -> &Mutex<Changing> {
        &self.opened.changing
    }

    /// Writes its config, which a change has altered, to the cachefile.
    pub(crate) fn remember(&self) -> Result<()> {
        let changing = self.opened.changing.lock();
        let facts = Facts {
            offline: changing.offline.clone(),
            faulted: changing.faulted.clone(),
            cachefile: changing.cachefile.clone(),
            ..self.opened.facts.clone()
        };
        drop(changing);
        self.pools.remember(self, &facts)
    }
}

impl std::ops::Deref for OpenPool {
    type Target = Spa;
    fn deref(&self) -> &Spa {
        &self.opened.spa
    }
}

/// Refuses to write to a pool that was imported read-only.
pub(crate) fn check_access(pool: &str, facts: &Facts, access: Access) -> Result<()> {
    if !facts.readonly || access == Access::Read {
        return Ok(());
    }
    let why = facts.readonly_reason.as_ref();
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    let text = format!("cannot open '{pool}': pool is read-only{why}");
    Err(Error::new(ErrorKind::ReadOnly, text))
}

/// Opens an imported pool for a session; waits while another one holds it.
pub(crate) fn open(
    pools: &Pools,
    held: &Arc<Held>,
    pool: &str,
    access: Access,
) -> Result<OpenPool> {
    if let Some(keeper) = pools.keeper() {
        return keeper.open(pools, pool, access);
    }
    let opened = Opened::open(pools, held, pool, access)?;
    Ok(OpenPool::new(Arc::new(opened), pools, None))
}

impl Opened {
    pub(crate) fn spa(&self) -> &Spa {
        &self.spa
    }

    pub(crate) fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Its machine has lost its power: nothing is kept of it.
    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// Opens an imported pool; waits while another session holds it.
    pub(crate) fn open(
        pools: &Pools,
        held: &Arc<Held>,
        pool: &str,
        access: Access,
    ) -> Result<Opened> {
        let within = || format!("cannot open '{pool}'");
        pools.imported(pool)?; // no lock for what is not there
        let lock = held.lock(pools, pool, access).within(within)?;
        // The session that held the lock may have changed or exported it.
        let config = pools.imported(pool)?;
        let facts = Facts::of(&config);
        check_access(pool, &facts, access)?;
        let readonly = access == Access::Read;
        let import = || {
            wait_for_devices(pools, held, pool, || {
                Spa::open(import_options(pools, pool, &config, &facts, readonly)?)
            })
        };
        let mut spa = import().within(within)?;
        take_away(&spa, &facts);
        if !spa.is_readonly() && spa.autoexpand() && spa.expand(&|_| true).within(within)? {
            spa.close().within(within)?;
            keep_io(pools, &spa).within(within)?;
            drop(spa);
            spa = import().within(within)?;
            take_away(&spa, &facts);
        }
        if !spa.is_readonly() {
            spa.resilver_if_needed().within(within)?;
        }
        kept_errors::hand_over(pools, &spa);
        let spa = Arc::new(spa);
        Ok(Opened {
            changing: Mutex::new(Changing {
                offline: facts.offline.clone(),
                faulted: facts.faulted.clone(),
                cachefile: facts.cachefile.clone(),
            }),
            publisher: Publisher::begin(pools, pool, &spa, access == Access::Write),
            spa,
            facts,
            pools: pools.clone(),
            mounts: Mutex::default(),
            is_lost: AtomicBool::new(false),
            _lock: lock,
        })
    }
}

/// Opens a pool, and waits while its devices are in use.
pub(crate) fn wait_for_devices(
    pools: &Pools,
    held: &Held,
    pool: &str,
    open: impl Fn() -> Result<Spa>,
) -> Result<Spa> {
    // Nothing else uses the devices of a machine.
    let is_machine = pools.world().is_machine();
    let default_ns = if is_machine { 0 } else { DEVICES_WAIT_NS };
    let patience = Patience {
        wait_ns: held.wait_ns(pools, pool, default_ns),
        on_wait: &|what| pools.observer().waiting(what),
    };
    patience.wait_for(&format!("pool '{pool}'"), || match open() {
        Err(e) if e.kind() == ErrorKind::Busy => Err(e.to_string()),
        outcome => Ok(outcome),
    })
}

/// Takes away the devices that were taken away until the pool is exported. One that the pool needs by now stays.
pub(crate) fn take_away(spa: &Spa, facts: &Facts) {
    let tree = spa.parts().tree();
    for guid in &facts.offline {
        let _ = match spa.cache(Guid(*guid)) {
            Some(_) => spa.offline_cache(Guid(*guid), true),
            None => tree.offline(Guid(*guid), true),
        };
    }
    for guid in &facts.faulted {
        let _ = match spa.cache(Guid(*guid)) {
            Some(_) => spa.fault_cache(Guid(*guid), true),
            None => tree.fault(Guid(*guid), true),
        };
    }
    for device in tree.devices() {
        device.leaf().forget_changes();
    }
}

/// How an imported pool is opened.
pub(crate) fn import_options(
    pools: &Pools,
    pool: &str,
    config: &NvList,
    facts: &Facts,
    readonly: bool,
) -> Result<ImportOptions> {
    let names = pools.world().names_for(Holder::Pool(pool.to_owned()));
    let (host, settings) = (pools.host()?, pools.settings(pool));
    let mut options = ImportOptions::from_config_in(&names, config, readonly, host, settings)?;
    options.max_txg = facts.max_txg.map(Txg);
    options.rewinds = facts.rewinds;
    // A read-only import and a temporary name leave the old one on disk,
    let has_other_name = facts.readonly || config.get_str("name") != Some(pool);
    options.new_name = has_other_name.then(|| NewName {
        name: pool.to_owned(),
        is_temporary: true,
    });
    // and, in those of a destroyed pool, that it was destroyed.
    options.force = facts.readonly;
    Ok(options)
}
