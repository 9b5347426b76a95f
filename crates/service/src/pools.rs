//! The imported pools, and what is remembered of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, Guid, Result};
use dmu::{OnSuspend, SuspendEvent, SuspendSettings};
use machine::{LockMode, World};
use nvpair::NvList;
use spa::{CacheFile, Host, Settings, Spa};

use crate::environment::{Environment, Observer};
use crate::facts::Facts;
use crate::held::is_taken;
use crate::keeper::Keeper;
use crate::keys::KeySource;

/// How long a session waits for failed devices to come back, in ns. Bounded, so that it does not hang
/// unnoticed.
const SUSPENDED_WAIT_NS: u64 = 30_000_000_000;
/// Interval at which failed devices are retried meanwhile, in ns: short enough for a user who has just
/// plugged one in.
const RETRY_NS: u64 = 1_000_000_000;

/// The pools of a host or machine.
#[derive(Clone)]
pub struct Pools {
    state: PathBuf,
    cache: CacheFile,
    world: Arc<World>,
    environment: Environment,
    pub(crate) keeper: Option<Arc<Keeper>>,
    /// Whether this process keeps pools open.
    pub(crate) is_holder: bool,
}

impl Pools {
    /// The pools remembered in the folder `state`, on providers of `world`.
    #[must_use]
    pub fn new(state: PathBuf, world: Arc<World>, environment: Environment) -> Pools {
        Pools {
            cache: CacheFile::new(state.join("zpool.cache")),
            state,
            world,
            environment,
            keeper: None,
            is_holder: false,
        }
    }

    /// Names of the pools remembered in the folder `state` with the paths of all their devices, spares and
    /// caches included.
    ///
    /// # Errors
    /// Errors of reading the cachefile.
    pub fn devices_in(state: &Path) -> Result<Vec<(String, Vec<String>)>> {
        let with_devices = |(pool, config): (String, NvList)| {
            let mut paths = Vec::new();
            if let Some(tree) = config.get_list("vdev_tree") {
                collect_paths(tree, &mut paths);
            }
            (pool, paths)
        };
        let pools = CacheFile::new(state.join("zpool.cache")).pools()?;
        Ok(pools.into_iter().map(with_devices).collect())
    }

    /// The providers that the pools are on.
    #[must_use]
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// The cachefile.
    #[must_use]
    pub fn cachefile(&self) -> &CacheFile {
        &self.cache
    }

    /// Names and configs of the imported pools.
    ///
    /// # Errors
    /// Errors of reading the cachefile.
    pub fn configs(&self) -> Result<Vec<(String, NvList)>> {
        self.cache.pools()
    }

    /// The names of the imported pools.
    ///
    /// # Errors
    /// Errors of reading the cachefile.
    pub fn names(&self) -> Result<Vec<String>> {
        Ok(self.configs()?.into_iter().map(|(name, _)| name).collect())
    }

    /// Whether a pool of this name is imported.
    ///
    /// # Errors
    /// Errors of reading the cachefile.
    pub fn is_imported(&self, pool: &str) -> Result<bool> {
        Ok(self.cache.find(pool)?.is_some())
    }

    /// Whether a pool of this guid is imported.
    ///
    /// # Errors
    /// Errors of reading the cachefile.
    pub fn is_guid_imported(&self, pool: Guid) -> Result<bool> {
        let mut configs = self.configs()?.into_iter();
        Ok(configs.any(|(_, config)| config.get_u64("pool_guid") == Some(pool.0)))
    }

    /// What is remembered of an imported pool; the default if it is not imported.
    ///
    /// # Errors
    /// Errors of reading the cachefile.
    pub fn facts(&self, pool: &str) -> Result<Facts> {
        let config = self.cache.find(pool)?;
        Ok(config.map_or_else(Facts::default, |config| Facts::of(&config)))
    }

    /// The host id and name that go into labels.
    ///
    /// # Errors
    /// When the id can be neither read nor stored.
    pub fn host(&self) -> Result<Host> {
        match self.world.running() {
            Some(machine) => Ok(Host {
                id: machine.hostid(),
                name: machine.hostname(),
            }),
            None => Host::find(&self.state),
        }
    }

    /// Settings for an open pool: I/O suspended by failing devices is reported, and waited for only for a
    /// limited time.
    pub(crate) fn settings(&self, pool: &str) -> Settings {
        let mut settings = Settings::default();
        if let Some(machine) = self.world.running() {
            let host = machine.host();
            settings.io_threads = host.io_threads;
            settings.aggregation_limit_bytes = host.aggregation_limit_bytes;
            settings.txg.dirty_data_max = host.dirty_data_max_bytes;
            settings.auto_ashift.max = host.max_auto_ashift;
            // Write-behind is off: the machine's times are compared with those of OpenZFS, which has none.
            settings.txg.write_behind_bytes = u64::MAX;
            if let Some(memory) = machine.memory() {
                settings.arc_bytes = memory.arc_bytes;
                settings.arc_real_bytes = Some(memory.arc_real_bytes());
                settings.txg.dirty_data_max = memory.dirty_data_max_bytes();
                settings.txg.timeout_ns = memory.txg_timeout_ns;
            }
        }
        if let Some(bytes) = self.environment.arc_bytes {
            settings.arc_bytes = bytes;
            settings.arc_real_bytes = None;
        }
        let (pool, observer) = (pool.to_owned(), Arc::clone(&self.environment.observer));
        let tell = move |event: &SuspendEvent<'_>| observer.suspended(&pool, event);
        settings.txg.suspend = SuspendSettings {
            retry_ns: RETRY_NS,
            patience_ns: self.wait_ns(SUSPENDED_WAIT_NS),
            on_suspend: Some(OnSuspend(Arc::new(tell))),
        };
        settings
    }

    /// Puts an open pool into the cachefile, and into another one if its property `cachefile` says so.
    #[doc(alias = "spa_write_cachefile")]
    pub(crate) fn remember(&self, spa: &Spa, facts: &Facts) -> Result<()> {
        let name = spa.name();
        let mut config = spa.config();
        let before = self.facts(&name)?;
        if before.other_cachefile() != facts.other_cachefile() {
            self.forget_elsewhere(&name, &before);
        }
        if let Some(other) = facts.other_cachefile() {
            let put = self.other_cachefile(other).put(&name, &config);
            self.notice_failure(other, put);
        }
        facts.add_to(&mut config);
        self.cache.put(&name, &config)?;
        spa.notify("config_sync", None);
        Ok(())
    }

    /// Removes a pool from the cachefile, and from another one if it is there.
    pub(crate) fn forget(&self, pool: &str) -> Result<()> {
        self.forget_elsewhere(pool, &self.facts(pool)?);
        self.cache.remove(pool)
    }

    fn forget_elsewhere(&self, pool: &str, facts: &Facts) {
        if let Some(other) = facts.other_cachefile() {
            let removed = self.other_cachefile(other).remove(pool);
            self.notice_failure(other, removed);
        }
    }

    fn other_cachefile(&self, path: &str) -> CacheFile {
        CacheFile::locked_by(path, self.state.join("cachefile.lock"))
    }

    /// As in OpenZFS, the pool is imported nevertheless.
    fn notice_failure(&self, path: &str, outcome: Result<()>) {
        if let Err(error) = outcome {
            let text = format!("cannot write cachefile '{path}': {error}");
            self.environment.observer.notice(&text);
        }
    }

    /// The config of an imported pool.
    pub(crate) fn imported(&self, pool: &str) -> Result<NvList> {
        self.cache.find(pool)?.ok_or_else(|| {
            let text = format!("cannot open '{pool}': no such pool");
            Error::not_found(text)
        })
    }

    /// The file that the process which keeps the pools of `state` open has locked as long as it lives.
    #[must_use]
    pub fn holder_lock(state: &Path) -> PathBuf {
        state.join("holder.lock")
    }

    /// Whether some process keeps pools open.
    pub(crate) fn have_holder(&self) -> bool {
        let lock = Pools::holder_lock(&self.state);
        lock.exists() && is_taken(&lock, LockMode::Exclusive)
    }

    pub(crate) fn is_holder(&self) -> bool {
        self.is_holder
    }

    /// What keeps them open between sessions, if anything does.
    pub(crate) fn keeper(&self) -> Option<&Arc<Keeper>> {
        self.keeper.as_ref()
    }

    /// The folder in which the pools are remembered.
    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    pub(crate) fn key_source(&self) -> &dyn KeySource {
        &*self.environment.keys
    }

    pub(crate) fn observer(&self) -> &dyn Observer {
        &*self.environment.observer
    }

    pub(crate) fn wait_ns(&self, default_ns: u64) -> u64 {
        self.environment.wait_ns.unwrap_or(default_ns)
    }
}

fn collect_paths(tree: &NvList, paths: &mut Vec<String>) {
    paths.extend(tree.get_str("path").map(str::to_owned));
    // Hot spares that are not in use may be shared: they are in no one pool's hands.
    for key in ["children", "l2cache"] {
        for child in tree.get_lists(key).unwrap_or_default() {
            collect_paths(child, paths);
        }
    }
}
