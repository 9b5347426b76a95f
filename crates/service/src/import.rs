//! Pools that could be imported, and importing them.
//!
//! # Source
//! OpenZFS lib/libzutil/zutil_import.c, cmd/zpool/zpool_main.c (`do_import`).

use std::sync::Arc;

use admin::pool::VdevStatus;
use base::{Error, Guid, Result, Txg};
use geom::disk::OpenMode;
use geom::{Namespace, Provider};
use machine::{Holder, World};
use nvpair::NvList;
use spa::{Host, ImportOptions, NewName, Spa, activity_check_ns, device_paths, try_import};
use vdev::import::{FoundPool, discover};
use vdev::{PoolState, Vdev};
use zio::AllocClass;

use crate::events::keep_events;
use crate::facts::Facts;
use crate::failure::{Attempt, Failure, Outcome, Reason};
use crate::io_stats;
use crate::kept_errors;
use crate::pool_change::{self, PoolChange};
use crate::pools::Pools;
use crate::rewind::{self, Found, Rewind, Rewound};
use crate::session::Session;
use crate::status::vdev_status;

/// Nanoseconds per second.
const NS_PER_SEC: u64 = 1_000_000_000;

/// How a pool is to be imported.
#[derive(Debug, Clone, Default)]
pub struct Import {
    /// Even if its labels say that another host has it open.
    pub is_forced: bool,
    /// The last txg to be read.
    pub max_txg: Option<Txg>,
    /// Even if log devices are missing; then all intent logs are given up.
    pub gives_up_logs: bool,
    /// As it was when its checkpoint was taken.
    pub rewinds: bool,
    /// As of an earlier txg, if the last one is damaged.
    pub rewind: Option<Rewind>,
    /// `-t`: its name on disk stays as it is.
    pub is_name_temporary: bool,
    /// What is to be remembered of it.
    pub facts: Facts,
    /// Properties to be set.
    pub changes: Vec<PoolChange>,
}

impl Pools {
    /// Pools on the devices that are not imported, or are imported but no longer at their remembered paths.
    /// As when the kernel opens devices, those that were not given are looked for at the paths in the labels
    /// and in the MOS config. `destroyed`: only destroyed pools, otherwise only the others.
    ///
    /// # Errors
    /// Errors of reading the cachefile.
    pub fn importable(
        &self,
        providers: &[Arc<dyn Provider>],
        destroyed: bool,
    ) -> Result<Vec<FoundPool>> {
        let world = self.world();
        let imported: Vec<u64> = self
            .configs()?
            .iter()
            .filter(|(_, config)| is_where_it_was(world, config))
            .filter_map(|(_, config)| config.get_u64("pool_guid"))
            .collect();
        let mut pools = discover(providers).pools;
        pools.retain(|pool| {
            !imported.contains(&pool.guid.0) && (pool.state == PoolState::Destroyed) == destroyed
        });
        let open = |path: &str| Namespace::open(&**world, path, OpenMode::Inspect).ok();
        let follow = |pool: FoundPool| {
            let labels = pool.config.clone();
            let pool = pool.follow_paths(&labels, &open);
            match try_import(&pool) {
                Ok(config) => pool.follow_paths(&config, &open),
                Err(_) => pool,
            }
        };
        let mut pools: Vec<FoundPool> = pools.into_iter().map(follow).collect();
        pools.sort_by_cached_key(first_device);
        Ok(pools)
    }

    /// Whether a pool can be imported as `name`: no other pool with this name is imported. `found`: the pool
    /// to be imported, which may be imported already, with its devices at other paths.
    ///
    /// # Errors
    /// Errors of reading the cachefile.
    pub fn is_name_free(&self, name: &str, found: Option<Guid>) -> Result<bool> {
        let taken = self.cachefile().find(name)?;
        let taken_by = taken.and_then(|config| config.get_u64("pool_guid"));
        Ok(taken_by.is_none() || taken_by == found.map(|guid| guid.0))
    }
}

/// The least of the names of a pool's devices; pools are listed in the order of these.
fn first_device(pool: &FoundPool) -> Option<String> {
    let names = pool.devices.iter().map(|d| d.provider.name().to_owned());
    names.min()
}

/// Whether any device of an imported pool is at its remembered path.
fn is_where_it_was(world: &World, config: &NvList) -> bool {
    let guid = config.get_u64("pool_guid");
    let paths = config.get_list("vdev_tree").map(device_paths);
    let is_there = |path: &String| {
        let provider = Namespace::open(world, path, OpenMode::Inspect).ok();
        let owner = provider.and_then(|provider| vdev::label::owner(&*provider));
        owner.is_some_and(|owner| Some(owner.pool_guid.0) == guid)
    };
    paths.unwrap_or_default().iter().any(is_there)
}

impl Session {
    /// Imports a pool as `name`, and resilvers devices that were absent. The name has been checked. Returns the earlier
    /// state that it was returned to; with [`Rewind::is_dry_run`] it would be, and is not imported then.
    ///
    /// # Errors
    /// [`Reason::Foreign`], [`Reason::DevicesUnavailable`], [`Reason::LogsMissing`], [`Reason::ConfigInvalid`],
    /// [`Reason::NameTaken`], [`Reason::InUse`], [`Reason::LabelsChanged`]; errors of opening it.
    pub fn import(
        &self,
        found: FoundPool,
        name: &str,
        import: &Import,
    ) -> Outcome<Option<Rewound>> {
        let rewound = self.import_and_close(found, name, import)?;
        if self
            .pools
            .is_imported(name)
            .map_err(Failure::of(Attempt::Record, name))?
        {
            let kept = self.keep_open(name);
            kept.map_err(Failure::of(Attempt::Import, name))?;
        }
        Ok(rewound)
    }

    fn import_and_close(
        &self,
        found: FoundPool,
        name: &str,
        import: &Import,
    ) -> Outcome<Option<Rewound>> {
        let failed = |reason: Reason| Failure::new(Attempt::Import, name, reason);
        let record = Failure::of(Attempt::Record, name);
        let host = self.pools.host().map_err(&record)?;
        check(&found, &host, import).map_err(|reason| {
            // A foreign pool is named as the other host knows it.
            let is_foreign = matches!(reason, Reason::Foreign { .. });
            let name = if is_foreign { &found.name } else { name };
            Failure::new(Attempt::Import, name, reason)
        })?;
        let _lock = self.lock_new(name).map_err(failed)?;
        // Meanwhile another session may have imported this pool, or another one with its name.
        let is_free = self.pools.is_name_free(name, Some(found.guid));
        if !is_free.map_err(&record)? {
            return Err(failed(Reason::NameTaken));
        }
        let guid = found.guid;
        let found = self.lock_devices(found, name, import.facts.readonly, &[]);
        let found = found.map_err(failed)?;
        self.tell_of_watching(&found, name, &host, import.facts.readonly);
        let providers = found
            .devices
            .iter()
            .map(|device| Arc::clone(&device.provider));
        let providers: Vec<Arc<dyn Provider>> = providers.collect();
        let options = |found: FoundPool| ImportOptions {
            new_name: (name != found.name).then(|| NewName {
                name: name.to_owned(),
                is_temporary: import.is_name_temporary,
            }),
            found,
            readonly: import.facts.readonly,
            max_txg: import.max_txg,
            force: true,
            gives_up_logs: import.gives_up_logs,
            tolerates_missing: false,
            rewinds: import.rewinds,
            host: host.clone(),
            settings: self.pools.settings(name),
        };
        let again = || {
            let mut pools = discover(&providers).pools.into_iter();
            let found = pools.find(|pool| pool.guid == guid);
            found
                .map(&options)
                .ok_or_else(|| Error::not_found("its labels changed meanwhile"))
        };
        let search = self
            .search(import, &again)
            .map_err(|e| failed(Reason::Error(e)))?;
        if search.is_some() && import.rewind.is_some_and(|rewind| rewind.is_dry_run) {
            return Ok(search);
        }
        let spa = Spa::import(ImportOptions {
            max_txg: search.map_or(import.max_txg, |rewound| Some(rewound.txg)),
            ..options(found)
        });
        let spa = spa.map_err(|error| {
            let is_damaged = import.rewind.is_none() && rewind::is_damage(&error);
            let recovery = is_damaged
                .then(|| rewind::find(&again, None, Rewind::default()))
                .and_then(|found| match found {
                    Ok(Found::Earlier(rewound)) => Some(rewound),
                    _ => None,
                });
            failed(match is_damaged {
                true => Reason::Damaged { error, recovery },
                false => Reason::Error(error),
            })
        })?;
        let mut import = import.clone();
        if let Some(rewound) = search.filter(|_| spa.is_readonly()) {
            import.facts.max_txg = Some(rewound.txg.0);
        }
        let finished = self.finish_import(&spa, &import);
        finished.map_err(|e| failed(Reason::Error(e)))?;
        self.forget_moved(name, guid).map_err(record)?;
        Ok(search)
    }

    /// The earlier state to return to, if that is wanted and the last one is not whole.
    fn search(
        &self,
        import: &Import,
        options: &dyn Fn() -> Result<ImportOptions>,
    ) -> Result<Option<Rewound>> {
        let of_txg = import.max_txg.filter(|_| !import.facts.readonly);
        let wanted = match (import.rewind, of_txg) {
            (Some(rewind), _) => rewind,
            (None, Some(_)) => Rewind {
                is_extreme: true,
                is_dry_run: false,
            },
            (None, None) => return Ok(None),
        };
        match rewind::find(options, of_txg, wanted)? {
            Found::Last => Ok(None),
            Found::Earlier(rewound) => Ok(Some(rewound)),
        }
    }

    /// Locks the devices of a pool and reads their labels again, which may have changed meanwhile.
    pub(crate) fn lock_devices(
        &self,
        found: FoundPool,
        name: &str,
        readonly: bool,
        strays: &[Arc<dyn Provider>],
    ) -> std::result::Result<FoundPool, Reason> {
        let mode = if readonly {
            OpenMode::ReadOnly
        } else {
            OpenMode::ReadWrite
        };
        let world = self.pools.world();
        let names = world.names_for(Holder::Pool(name.to_owned()));
        let devices = found.devices.iter();
        let open = |provider: &Arc<dyn Provider>| {
            let is_stray = strays.iter().any(|stray| Arc::ptr_eq(stray, provider));
            match is_stray {
                true => Ok(Arc::clone(provider)),
                false => names.open(provider.name(), mode),
            }
        };
        let providers: Result<Vec<_>> = devices.map(|device| open(&device.provider)).collect();
        let aux = self.lock_caches(&found, name, mode);
        let (providers, guid) = (providers?, found.guid);
        drop(found);
        let mut again = discover(&providers).pools.into_iter();
        let again = again.find(|pool| pool.guid == guid);
        again
            .map(|pool| FoundPool { aux, ..pool })
            .ok_or(Reason::LabelsChanged)
    }

    /// The hot spares, as they are, and the cache devices, opened like those of the pool.
    fn lock_caches(
        &self,
        found: &FoundPool,
        name: &str,
        mode: OpenMode,
    ) -> Vec<(Guid, Arc<dyn Provider>)> {
        let world = self.pools.world();
        let names = world.names_for(Holder::Pool(name.to_owned()));
        let lock = |(guid, provider): &(Guid, Arc<dyn Provider>)| {
            let owner = vdev::label::owner(&**provider);
            let is_cache = owner.is_some_and(|owner| owner.state == PoolState::L2Cache);
            // One that is in use is of another pool.
            let locked = is_cache.then(|| names.open(provider.name(), mode).ok());
            let provider = locked.unwrap_or_else(|| Some(Arc::clone(provider)))?;
            Some((*guid, provider))
        };
        found.aux.iter().filter_map(lock).collect()
    }

    /// Reports that the import waits to see whether another host has the pool open.
    fn tell_of_watching(&self, found: &FoundPool, name: &str, host: &Host, readonly: bool) {
        if readonly || self.pools.world().is_machine() {
            return;
        }
        if let Some(ns) = activity_check_ns(found, host.id) {
            let secs = ns.div_ceil(NS_PER_SEC);
            self.pools.observer().waiting(&format!(
                "{secs} seconds, in case another host has pool '{name}' open"
            ));
        }
    }

    fn finish_import(&self, spa: &Spa, import: &Import) -> Result<()> {
        keep_events(&self.pools, spa)?;
        kept_errors::keep_met(&self.pools, spa)?;
        let mut facts = import.facts.clone();
        if spa.is_readonly() {
            if !facts.readonly {
                let why: Vec<String> = spa.obstacles().iter().map(ToString::to_string).collect();
                let why = why.join("; ");
                let text = format!("pool '{}' is imported read-only: {why}", spa.name());
                self.pools.observer().notice(&text);
                facts.readonly = true;
                facts.readonly_reason = Some(why);
            }
            facts.rewinds = import.rewinds;
            self.pools.remember(spa, &facts)?;
            return io_stats::begin_past(&self.pools, spa);
        }
        for change in &import.changes {
            pool_change::change(spa, change)?;
        }
        self.pools.watch_spares(spa)?;
        self.pools.catch_up(spa)?;
        if spa.autoexpand() {
            spa.expand(&|_| true)?;
        }
        spa.log_command(self.command())?;
        spa.sync()?;
        self.pools.remember(spa, &facts)?;
        spa.close()?;
        io_stats::begin_past(&self.pools, spa)
    }

    /// Removes the cachefile entry that a moved pool has under its previous name.
    fn forget_moved(&self, name: &str, guid: Guid) -> Result<()> {
        for (other, config) in self.pools.configs()? {
            if other != name && config.get_u64("pool_guid") == Some(guid.0) {
                self.pools.forget(&other)?;
            }
        }
        Ok(())
    }
}

/// Refuses a pool that another host may have open, and one that lacks devices.
fn check(found: &FoundPool, host: &Host, import: &Import) -> std::result::Result<(), Reason> {
    let is_foreign = found.hostid != 0 && found.hostid != host.id;
    if found.state != PoolState::Exported && is_foreign && !import.is_forced {
        return Err(Reason::Foreign {
            hostname: found.hostname.clone(),
            hostid: found.hostid,
            accessed_secs: found.uberblock.map_or(0, |ub| ub.timestamp.get()),
        });
    }
    let config = try_import(found);
    let tree = found.open(config.as_ref().unwrap_or(&found.config), false);
    let tree = tree.map_err(|_| Reason::ConfigInvalid)?;
    if !tree.state().0.is_usable() {
        return Err(Reason::DevicesUnavailable);
    }
    let tops = tree.tops();
    let is_gone = |top: &&Arc<Vdev>| top.config().is_log && !top.state().0.is_usable();
    let gone: Vec<VdevStatus> = tops
        .iter()
        .enumerate()
        .filter(|(_, top)| is_gone(top))
        .map(|(id, top)| vdev_status(top, id as u64, AllocClass::Log))
        .collect();
    match gone.is_empty() || import.gives_up_logs || import.facts.readonly {
        true => Ok(()),
        false => Err(Reason::LogsMissing(gone)),
    }
}
