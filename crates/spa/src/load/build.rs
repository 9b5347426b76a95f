//! The pool above an open vdev tree: each of its parts is read from the MOS, and put together with the others.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use base::{Context, Error, ErrorKind, Guid, Result, Txg, VdevId};
use dmu::{Tx, TxGroups};
use dsl::{Bpobj, DslPool, Mos, MosAccounting, PoolEnv, PoolParts};
use metaslab::MetaslabsOptions;
use nvpair::NvList;
use phys::pool_names;
use phys::uberblock::UberblockPhys;
use rt::Mutex;
use vdev::{PoolState, VdevTree};
use zap::directory;
use zio::{LogStore, PipelineSettings};

use super::look::{FirstLook, open_mos};
use super::options::{ImportOptions, device_paths};
use super::space::open_space;
use crate::aux_list::AuxList;
use crate::core::HalfOpen;
use crate::dtl::load_dtls;
use crate::features::Features;
use crate::foundation::Foundation;
use crate::history::History;
use crate::log_space_maps::LogSpaceMaps;
use crate::mmp::Mmp;
use crate::old_version::Upgrade;
use crate::props::PoolProps;
use crate::rebuild::Rebuilds;
use crate::reflow::Reflowing;
use crate::removal::load_mappings;
use crate::scanning::Scanning;
use crate::spa::{Inner, Spa, State};
use crate::spares::SpareWatch;
use crate::split::SplitOff;
use crate::sweep::Sweeps;
use crate::vdev_props::apply_limits;

/// What a pool begins with that is opened.
pub(super) enum Begin {
    /// Its last txg.
    Usual,
    /// Its last txg, of an old version: the next one is of version 5000.
    Upgraded,
    /// An earlier one, for good: the next txg follows `last`, so that nothing of what was after it is newer than
    /// what is written from now on. Intent logs are given up.
    Rewound { last: Txg },
    /// That of another pool, which it is split off from.
    Split(SplitOff),
}

impl Begin {
    /// The txg before the first new one of a pool that is read at `synced`.
    #[doc(alias = "spa_first_txg")]
    fn last_txg(&self, synced: Txg) -> Txg {
        match self {
            Begin::Rewound { last } => *last,
            Begin::Usual | Begin::Upgraded | Begin::Split(_) => synced,
        }
    }

    fn split_from(&self) -> Option<Guid> {
        match self {
            Begin::Split(split) => Some(split.from),
            Begin::Usual | Begin::Upgraded | Begin::Rewound { .. } => None,
        }
    }
}

/// Builds the pool on top of an open vdev tree.
#[expect(
    clippy::too_many_lines,
    reason = "the steps of loading a pool, in their order"
)]
pub(super) fn load(
    options: ImportOptions,
    uberblock: &UberblockPhys,
    look: FirstLook,
    tree: Arc<VdevTree>,
    readonly: bool,
    begin: Begin,
) -> Result<Spa> {
    let gives_up_logs = options.gives_up_logs;
    // What is needed only to write does not keep a pool from being read.
    let needed = |result: Result<()>| if readonly { Ok(()) } else { result };
    let pipeline_settings = PipelineSettings {
        salt: look.salt,
        hole_birth: look.has_hole_birth,
        dynamic_gang_headers: look.has_dynamic_gang_headers,
        heal: !readonly,
        ..options.settings.pipeline_settings()
    };
    let Foundation {
        space,
        removal,
        pipeline,
        cache,
        core,
    } = Foundation::new(
        &tree,
        MetaslabsOptions {
            spacemap_v2: look.spacemap_v2,
        },
        pipeline_settings,
        &options.settings,
        &options.host.name,
    );
    let store: Arc<dyn LogStore> = cache.clone();
    let mut half_open = HalfOpen::new(&core);
    let env: Arc<dyn PoolEnv> = core.clone();
    let accounting = MosAccounting::new(env.clone());
    let mos = open_mos(store.clone(), uberblock, accounting.clone())?;
    load_mappings(&mos, &tree).within(|| "removed vdevs")?;
    needed(tree.check_reflow(uberblock))?;
    needed(removal.load(&mos).within(|| "vdev that is being removed"))?;
    let sweeps = Sweeps::default();
    needed(sweeps.load(&mos, &tree).within(|| "leaf ZAPs"))?;
    let rebuilds = Rebuilds::default();
    needed(rebuilds.load(&mos, &tree).within(|| "top-level ZAPs"))?;
    if !readonly {
        rebuilds.resume(&tree);
    }
    let version = uberblock.version.get();
    let synced = uberblock.txg();
    let last = begin.last_txg(synced);
    let upgrade = matches!(begin, Begin::Upgraded).then(|| Upgrade {
        from: version,
        tx: Tx::syncing(last.next()),
    });
    core.set_features(Arc::new(match &upgrade {
        Some(upgrade) => upgrade.begin(&mos, &tree)?,
        None => Features::open(&mos, version)?,
    }));
    mos.set_props(dsl::mos_props(&*core));
    let is_fast = core.makes_fast_tables();
    let sharing = core.sharing();
    needed(sharing.open(&mos, is_fast, &|dva| core.dsize_of(dva)))?;
    core.scan().load(&mos)?;
    core.error_scrub().load(&mos)?;

    for (top, class) in tree.tops().iter().zip(look.classes) {
        top.update(|config| config.alloc_bias = class);
    }
    let maps = open_space(&mos, &core.features(), &tree, &space, &mut half_open)?;
    let logs = if readonly {
        None
    } else {
        LogSpaceMaps::find(&mos, &tree)?
    };
    if let Some(logs) = &logs {
        logs.replay(&maps, &space)?;
    }
    load_dtls(&tree, &maps, synced)?;
    needed(apply_limits(&mos, &tree).within(|| "vdev ZAPs"))?;
    let groups = TxGroups::new(last, core.telling(&cache, options.settings.txg.clone()));
    let dsl_mos = Mos::new(mos.clone(), env)?;
    if let Some(history) = History::open(&mos)? {
        core.set_history(history);
    }
    if let Some(upgrade) = &upgrade {
        upgrade.finish(&mos, &core, look.salt)?;
    }
    let deferred = directory::get(&mos, pool_names::SYNC_BPOBJ)
        .and_then(|object| Bpobj::open(&dsl_mos, object))
        .and_then(|deferred| core.set_deferred(deferred));
    needed(deferred)?;
    let (name, name_on_disk) = names(&options);
    let parts = PoolParts {
        name: name.clone(),
        version,
        mos: dsl_mos,
        accounting,
        store,
        keys: pipeline.keys().clone(),
        groups: groups.clone(),
    };
    let dsl = match &upgrade {
        Some(upgrade) => DslPool::upgrade(parts, &upgrade.tx)?,
        None => DslPool::open(parts)?,
    };
    let has_grown = !readonly && options.found.renew_end_labels(&tree)?;
    let aux = |key| -> Result<AuxList> {
        let list = AuxList::open(&mos, &look.config, key, &options.found, &tree)?;
        Ok(match begin {
            Begin::Split(_) => list.emptied(),
            Begin::Usual | Begin::Upgraded | Begin::Rewound { .. } => list,
        })
    };
    let (spares, caches) = (aux(pool_names::SPARES)?, aux(pool_names::L2CACHE)?);
    let needs_config = has_grown
        || !matches!(begin, Begin::Usual)
        || look.config.contains("splitcfg")
        || uberblock.checkpoint_txg.get() != 0
        || name_on_disk != options.found.name
        || options.found.state != PoolState::Active
        || options.found.hostid != options.host.id
        || paths_differ(&look.config, &tree);
    let text = |key| look.config.get_str(key).map(str::to_owned);
    let (comment, compatibility) = (text("comment"), text("compatibility"));
    let split_list = vdev::split_list(&look.config);
    let split_list = split_list.into_iter().map(|guid| guid.0).collect();
    let config = at_paths_of(look.config, &tree);
    let inner = Arc::new(Inner {
        mmp: Mmp::new(),
        removal,
        removal_settings: options.settings.removal.clone(),
        sweeps,
        sweep_settings: options.settings.sweep.clone(),
        discard_entries_max: options.settings.discard_entries_max,
        scanning: Scanning::default(),
        reflowing: Reflowing::default(),
        reflow_max_bytes: options.settings.reflow_max_bytes,
        rebuilds,
        rebuild_max_bytes: options.settings.rebuild_max_bytes,
        spare_watch: SpareWatch::default(),
        l2: Arc::new(arc::l2::L2Arc::new(!readonly)),
        scan_settings: options.settings.scan.clone(),
        first_txg: last,
        host: options.host,
        readonly,
        obstacles: look.obstacles,
        tree,
        space,
        maps,
        pipeline,
        cache,
        core,
        groups,
        dsl: OnceLock::from(dsl),
        props: PoolProps::open(&mos)?,
        state: Mutex::new(State {
            name,
            name_on_disk,
            pool_state: PoolState::Active,
            uberblock: *uberblock,
            synced: *uberblock,
            config_dirty: needs_config,
            labels_dirty: needs_config,
            config_object: directory::get(&mos, pool_names::CONFIG)?,
            vdev_zaps: directory::find(&mos, pool_names::VDEV_ZAP_MAP)?,
            dtls: BTreeMap::new(),
            detached: Vec::new(),
            spares,
            caches,
            comment,
            compatibility,
            split_list,
            split_from: begin.split_from(),
            config,
        }),
        mos,
    });
    let spa = Spa { inner };
    half_open.opened();
    needed(spa.load_checkpoint().within(|| "checkpoint"))?;
    spa.inner.open_caches();
    spa.inner.begin_deduplicating();
    if !readonly {
        spa.inner.take_dedup_quota()?;
    }
    // What is missing of what is to be saved does not come back.
    if !options.tolerates_missing {
        spa.inner.begin_suspending();
    }
    if !readonly {
        spa.begin_writing(begin, logs, needs_config, gives_up_logs)?;
    }
    Ok(spa)
}

/// The name that the pool is known by, and that on disk.
fn names(options: &ImportOptions) -> (String, String) {
    let own = options.found.name.clone();
    match options.new_name.clone() {
        None => (own.clone(), own),
        Some(new) if new.is_temporary => (new.name, own),
        Some(new) => (new.name.clone(), new.name),
    }
}

impl Spa {
    /// Starts what writes to the pool, and writes what opening it has changed.
    fn begin_writing(
        &self,
        begin: Begin,
        logs: Option<LogSpaceMaps>,
        needs_config: bool,
        gives_up_logs: bool,
    ) -> Result<()> {
        let synced = self.uberblock().txg();
        if self.multihost() {
            self.inner.mmp.start(&self.inner);
        }
        let has_logs = match begin {
            Begin::Usual | Begin::Upgraded => self.take_logs(synced.next(), gives_up_logs)?,
            Begin::Split(_) | Begin::Rewound { .. } => {
                let last = begin.last_txg(synced);
                self.dsl().clear_logs(synced.next(), last.next())?;
                true
            }
        };
        self.inner.groups.start(self.inner.clone());
        if let Begin::Split(split) = begin {
            self.begin_split(split)?;
        }
        if let Some(logs) = logs {
            self.in_sync(move |inner, tx| logs.retire(&inner.mos, &inner.maps, &inner.space, tx))?;
        }
        if needs_config || has_logs {
            self.sync_now()?;
        }
        self.finish_replacements()
    }

    /// Claims the blocks that the intent logs reference, before anything is allocated, or gives the logs up.
    /// Returns whether there is something to write because of that.
    ///
    /// # Errors
    /// `Io` for a log on a device that is missing.
    #[doc(alias = "spa_ld_verify_logs")]
    fn take_logs(&self, first_txg: Txg, gives_up: bool) -> Result<bool> {
        let uberblock = self.uberblock();
        if uberblock.checkpoint_txg.get() != 0 {
            let unclaimed = uberblock.min_claim_txg();
            self.dsl().clear_unclaimed_logs(unclaimed, first_txg)?;
        }
        let tops = self.parts().tree().tops();
        let is_gone = |id: VdevId| {
            let top = tops.get(id.0 as usize);
            top.is_some_and(|top| top.config().is_log && !top.state().0.is_usable())
        };
        let mut gone = (0..tops.len() as u64)
            .map(VdevId)
            .filter(|id| is_gone(*id))
            .peekable();
        let Some(one) = gone.peek().copied() else {
            return Ok(self.dsl().claim_logs(first_txg)? > 0);
        };
        for id in gone {
            self.inner.space.set_allocatable(id, false)?;
        }
        if gives_up {
            self.dsl().clear_logs(first_txg, first_txg)?;
            return Ok(true);
        }
        if self.dsl().has_log_on(&is_gone)? {
            let text = format!(
                "what was written last is in the intent log, whose device {} is missing: attach it, or \
                 give the log up with 'zpool export -f' and 'zpool import -m'",
                tops[one.0 as usize].name()
            );
            return Err(Error::new(ErrorKind::Io, text));
        }
        Ok(self.dsl().claim_logs(first_txg)? > 0)
    }
}

/// The config with the devices' current paths. A read-only pool keeps the old paths in the MOS, and
/// finds its devices again by those in this config.
fn at_paths_of(mut config: NvList, tree: &VdevTree) -> NvList {
    fn change(vdev: &mut NvList, paths: &BTreeMap<u64, String>) {
        let path = vdev.get_u64("guid").and_then(|guid| paths.get(&guid));
        if let Some(path) = path.filter(|_| vdev.contains("path")) {
            vdev.set("path", path.as_str());
        }
        for child in vdev.get_lists_mut("children").into_iter().flatten() {
            change(child, paths);
        }
    }
    let devices = tree.devices();
    let paths = devices.iter().filter_map(|device| {
        let path = device.config().path.clone()?;
        Some((device.guid().0, path))
    });
    let paths = paths.collect();
    if let Some(root) = config.get_list_mut("vdev_tree") {
        change(root, &paths);
    }
    config
}

/// Whether a device's path differs from that in the config.
fn paths_differ(config: &NvList, tree: &VdevTree) -> bool {
    let known = config
        .get_list("vdev_tree")
        .map(device_paths)
        .unwrap_or_default();
    let now: Vec<String> = tree
        .devices()
        .iter()
        .filter_map(|device| device.config().path.clone())
        .collect();
    known != now
}
