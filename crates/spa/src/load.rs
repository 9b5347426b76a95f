//! Opening an existing pool.
//!
//! # What it is
//! Labels give an approximate config and the best uberblock. The MOS below that uberblock has the
//! exact config: it is newer and complete. So the pool is opened twice: first read-only by the
//! labels, to read config, features and salt, then for real.
//!
//! # Invariants
//! 1. A pool with an active feature that this program does not maintain (see `obstacle.rs`) is
//!    opened read-only, or not at all, and the reason is reported.
//! 2. Nothing is written before every reason not to write has been checked.
//!
//! # Crash argument
//! The uberblock with the highest txg and a valid checksum describes a complete pool: everything it
//! references was flushed before it was written, and is not reused for two txgs.
//!
//! # Source
//! OpenZFS `module/zfs/spa.c` (`spa_load_impl`, `spa_ld_*`).

use phys::PropValue;
use phys::pool_names;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use base::{Context, Error, ErrorKind, Guid, ObjectId, ObjsetId, Result, Txg, VdevId};
use dmu::{Objset, ObjsetProps, Tx, TxGroups};
use dsl::{Bpobj, DslPool, Mos, MosAccounting, PoolEnv, PoolParts};
use geom::disk::OpenMode;
use geom::{HostNames, Namespace, Provider};
use metaslab::{Metaslabs, MetaslabsOptions};
use nvpair::NvList;
use phys::uberblock::{SPA_VERSION_FEATURES, UberblockPhys};
use rt::Mutex;
use vdev::import::{FoundPool, discover};
use vdev::{PoolState, VdevKind, VdevTree};
use zio::{AllocClass, BlockStore, LogStore, Pipeline, PipelineSettings};

use crate::aux_list::{self, AuxList};
use crate::change::MULTIHOST;
use crate::checkpoint::{self, Kept};
use crate::config::read_packed;
use crate::core::{Core, HalfOpen};
use crate::create::geometry;
use crate::dtl::load_dtls;
use crate::features::Features;
use crate::history::History;
use crate::host::Host;
use crate::log_space_maps::LogSpaceMaps;
use crate::mmp::{self, Mmp};
use crate::obstacle::Obstacle;
use crate::old_version::{Upgrade, check_upgrade};
use crate::props::PoolProps;
use crate::rebuild::Rebuilds;
use crate::reflow::Reflowing;
use crate::removal::{Removal, has_removed, load_mappings};
use crate::scanning::Scanning;
use crate::spa::{Inner, Settings, Spa, State};
use crate::space_maps::SpaceMaps;
use crate::spares::SpareWatch;
use crate::split::{SplitOff, mark_split};
use crate::sweep::Sweeps;
use crate::vdev_props::apply_limits;
use phys::feature;
use zap::directory;

/// `SPA_DVAS_PER_BP - 1`: top-level vdevs that may be missing while the MOS is first read
/// (`zfs_max_missing_tvds_scan`, `zfs_max_missing_tvds_cachefile`).
const MISSING_TOPS_MAX: usize = 2;

/// The name that a pool is opened under, if not its own.
#[derive(Clone, Debug)]
pub struct NewName {
    /// The name.
    pub name: String,
    /// `zpool import -t`: on disk it keeps its own.
    pub is_temporary: bool,
}

/// What to open, and how.
pub struct ImportOptions {
    /// The pool's devices, as discovered.
    pub found: FoundPool,
    /// The name to import it under, if not its own.
    pub new_name: Option<NewName>,
    /// Change nothing, not even labels.
    pub readonly: bool,
    /// `-T`: newer txgs are ignored; for good, unless it is only read.
    pub max_txg: Option<Txg>,
    /// Import although another host seems to use it, or it was destroyed.
    pub force: bool,
    /// `-m`: when a log device is missing, give up the intent logs.
    pub gives_up_logs: bool,
    /// Open what is only read although whole top-level vdevs are missing, with all that is on them.
    #[doc(alias = "zfs_max_missing_tvds")]
    pub tolerates_missing: bool,
    /// `--rewind-to-checkpoint`: open it as it was when its checkpoint was taken; for good, unless it is only read.
    pub rewinds: bool,
    /// The host that opens it.
    pub host: Host,
    /// How it is run.
    pub settings: Settings,
}

impl ImportOptions {
    /// A pool that was imported before, from its cached config: each device is at its old path, or
    /// missing.
    ///
    /// # Errors
    /// `NotFound` when none of its devices is found; `Busy` when one is in use.
    pub fn from_config(
        config: &NvList,
        readonly: bool,
        host: Host,
        settings: Settings,
    ) -> Result<ImportOptions> {
        ImportOptions::from_config_in(&HostNames, config, readonly, host, settings)
    }

    /// Like [`from_config`](ImportOptions::from_config), in another namespace. If a device is not
    /// at its old path, all names are searched.
    ///
    /// # Errors
    /// As [`from_config`](ImportOptions::from_config).
    pub fn from_config_in(
        names: &dyn Namespace,
        config: &NvList,
        readonly: bool,
        host: Host,
        settings: Settings,
    ) -> Result<ImportOptions> {
        let mode = if readonly {
            OpenMode::ReadOnly
        } else {
            OpenMode::ReadWrite
        };
        let mut providers: Vec<Arc<dyn Provider>> = Vec::new();
        let mut is_whole = true;
        for path in device_paths(config.expect_list("vdev_tree")?) {
            match names.open(&path, mode) {
                Ok(provider) => providers.push(provider),
                Err(e) if is_gone(e.kind()) => is_whole = false,
                Err(e) => return Err(e),
            }
        }
        if !is_whole {
            let elsewhere = names.names()?;
            let open = |name: &String| names.open(name, mode).ok();
            providers.extend(elsewhere.iter().filter_map(open));
        }
        let guid = Guid(config.expect_u64("pool_guid")?);
        let mut pools = discover(&providers).pools;
        let at = pools.iter().position(|pool| pool.guid == guid);
        let at = at.or_else(|| pools.iter().position(|pool| has_another_guid(pool, config)));
        let found = at.map(|at| pools.swap_remove(at));
        let inspect = |path: &str| names.open(path, OpenMode::Inspect).ok();
        let found = found.map(|mut found| {
            let open = |path: &str| names.open(path, mode).ok();
            found.follow_aux_paths(config, pool_names::SPARES, &inspect);
            found.follow_aux_paths(config, pool_names::L2CACHE, &open);
            with_later(found, &open)
        });
        let found = found.ok_or_else(|| {
            let text = "none of its devices is there: attach them, or find them with 'zpool import \
                            -d DIR'; 'zpool export -f' forgets the pool";
            Error::not_found(text)
        })?;
        // Another host may have imported it since: that is checked as in an import.
        let force = false;
        Ok(ImportOptions {
            found,
            new_name: None,
            readonly,
            max_txg: None,
            force,
            gives_up_logs: false,
            tolerates_missing: false,
            rewinds: false,
            host,
            settings,
        })
    }
}

/// Whether this is the pool of `config`, with a guid that it got after the cachefile was written, if the power
/// failed in between: its name and all devices are the same, at the same paths.
fn has_another_guid(pool: &FoundPool, config: &NvList) -> bool {
    let tree = config.get_list("vdev_tree").map(vdev::Vdev::from_config);
    let Some(Ok(root)) = tree else {
        return false;
    };
    let is_there = |leaf: &Arc<vdev::Vdev>| {
        let path = leaf.config().path.clone();
        let found = pool.device(leaf.guid(), path.as_deref());
        found.is_some_and(|device| Some(device.provider.name()) == path.as_deref())
    };
    config.get_str("name") == Some(&pool.name) && root.devices().iter().all(is_there)
}

/// The pool with devices that it got after the cachefile was written, if the power failed in between: where
/// they are, the labels of the others say, or the MOS.
fn with_later(found: FoundPool, open: &dyn Fn(&str) -> Option<Arc<dyn Provider>>) -> FoundPool {
    let labels = found.config.clone();
    let found = found.follow_paths(&labels, open);
    let tops = found
        .config
        .get_list("vdev_tree")
        .and_then(|tree| tree.get_lists("children"));
    let is_missing = |top: &NvList| top.get_str("type") == Some(VdevKind::Missing.word());
    if !tops.is_some_and(|tops| tops.iter().any(is_missing)) {
        return found;
    }
    match try_import(&found) {
        Ok(config) => found.follow_paths(&config, open),
        Err(_) => found,
    }
}

/// Whether a device that cannot be opened for this reason counts as missing: one that is in use elsewhere, say, does
/// not.
fn is_gone(kind: ErrorKind) -> bool {
    // A device that is being replaced at the path of a file is named as if it were below it.
    matches!(
        kind,
        ErrorKind::NotFound | ErrorKind::NotDirectory | ErrorKind::Io
    )
}

/// The paths of all devices in a vdev tree.
#[must_use]
pub fn device_paths(tree: &NvList) -> Vec<String> {
    let mut paths: Vec<String> = tree
        .get_str("path")
        .map(str::to_owned)
        .into_iter()
        .collect();
    for child in tree.get_lists("children").unwrap_or_default() {
        paths.extend(device_paths(child));
    }
    paths
}

/// What the first read of the MOS yields.
struct FirstLook {
    config: NvList,
    salt: [u8; 32],
    has_hole_birth: bool,
    spacemap_v2: bool,
    has_dynamic_gang_headers: bool,
    obstacles: Vec<Obstacle>,
    /// What each top-level vdev is reserved for, which the config does not say.
    classes: Vec<AllocClass>,
    checkpoint: checkpoint::Rewound,
    /// The property `multihost`.
    multihost: bool,
}

impl Spa {
    /// Imports a discovered pool. Devices that are missing now are expected to stay missing: they
    /// are shown by their guids.
    ///
    /// # Errors
    /// As [`open`](Spa::open).
    #[doc(alias = "spa_import")]
    pub fn import(options: ImportOptions) -> Result<Spa> {
        let rewinds = options.rewinds;
        let (spa, uberblock) = Spa::open_by(options, false)?;
        let rewound_to = rewinds.then(|| uberblock.checkpoint_txg.get());
        if spa.inner.tree.mark_absent() && !spa.is_readonly() {
            spa.config_changed()?;
        }
        if !spa.is_readonly() {
            let core = spa.inner.core.clone();
            let tx = spa.inner.groups.hold_open(0)?;
            spa.dsl().queue_task(&tx, move |_, tx| {
                if let Some(taken) = rewound_to {
                    let text = format!("rewound state to txg={taken}");
                    core.log_internal("checkpoint rewind", &text, tx);
                }
                core.log_version("import", tx);
                Ok(())
            });
        }
        spa.notify("pool_import", None);
        Ok(spa)
    }

    /// Opens a pool that was imported before, for one command.
    ///
    /// # Errors
    /// `Permission` when another host seems to use it; `NotFound` when it is destroyed;
    /// `Unsupported`, naming the feature in the way; `Io` when too many devices are missing;
    /// `Corrupt`.
    #[doc(alias = "spa_open")]
    pub fn open(options: ImportOptions) -> Result<Spa> {
        Ok(Spa::open_by(options, false)?.0)
    }

    /// Also returns the uberblock by which it was opened. With `upgrades` it is of an old version, and is upgraded.
    pub(crate) fn open_by(options: ImportOptions, upgrades: bool) -> Result<(Spa, UberblockPhys)> {
        check_owner(&options)?;
        if !options.readonly {
            mmp::check_activity(&options.found, options.host.id)?;
        }
        let max_txg = options.max_txg.unwrap_or(Txg(u64::MAX));
        let last = best_uberblock(&options.found, Txg(u64::MAX))?.txg();
        let mut uberblock = best_uberblock(&options.found, max_txg)?;
        let is_rewound = uberblock.txg() < last;
        let mut look = first_look(&options.found, &uberblock)?;
        let multihost = look.multihost;
        if options.rewinds {
            uberblock = look.checkpoint.after(&uberblock)?;
            look = first_look(&options.found, &uberblock).within(|| "checkpointed state")?;
            check_rewind(&options, &look)?;
        }
        if upgrades {
            check_upgrade(&options, &uberblock)?;
            let is_other = |obstacle: &Obstacle| !matches!(obstacle, Obstacle::OldVersion(_));
            look.obstacles.retain(is_other);
        }
        let readonly = options.readonly || !look.obstacles.is_empty();
        check_readable(&look.obstacles)?;
        let tree = options.found.open(&look.config, !readonly)?;
        tree.note_uberblock(&uberblock);
        if !(options.tolerates_missing && options.readonly) {
            check_tree(&tree)?;
        }
        if options.rewinds && !readonly {
            let (found, host) = (&options.found, &options.host);
            checkpoint::write_rewound(found, &tree, &uberblock, host, multihost)?;
        }
        mark_split(&look.config, &tree, &options.found.elsewhere);
        let elsewhere = options.found.elsewhere.clone();
        let begin = match is_rewound && !readonly {
            true => Begin::Rewound { last },
            false if upgrades => Begin::Upgraded,
            false => Begin::Usual,
        };
        let spa = load(options, &uberblock, look, tree, readonly, begin)?;
        spa.end_split(&elsewhere)?;
        // How the devices came to be as they are is not news.
        for device in spa.inner.tree.devices() {
            device.leaf().forget_changes();
        }
        Ok((spa, uberblock))
    }

    /// Opens the new pool of a split: the state at `uberblock` of the old one, on the devices that were found, with a
    /// tree of its own.
    pub(crate) fn open_split(
        options: ImportOptions,
        uberblock: &UberblockPhys,
        split: SplitOff,
    ) -> Result<Spa> {
        let mut look = first_look(&options.found, uberblock)?;
        check_readable(&look.obstacles)?;
        let tops = options.found.config.get_list("vdev_tree");
        let tops = tops
            .and_then(|tree| tree.get_lists("children"))
            .map_or(0, <[_]>::len);
        look.classes.truncate(tops);
        look.config = options.found.config.clone();
        let tree = options.found.open(&look.config, true)?;
        tree.note_uberblock(uberblock);
        check_tree(&tree)?;
        load(options, uberblock, look, tree, false, Begin::Split(split))
    }
}

/// Reads the config in the MOS of a discovered pool: the pool as it would be if this host imported
/// it. Nothing is written.
///
/// # Errors
/// Same as [`Spa::import`]; a top-level vdev may be missing as long as the MOS can be read.
#[doc(alias = "spa_tryimport")]
pub fn try_import(found: &FoundPool) -> Result<NvList> {
    let uberblock = best_uberblock(found, Txg(u64::MAX))?;
    let look = first_look(found, &uberblock)?;
    check_readable(&look.obstacles)?;
    let mut config = look.config;
    for (vdev, class) in top_configs(&mut config).iter_mut().zip(look.classes) {
        if let Some(word) = class.word() {
            vdev.set("alloc_bias", word);
        }
    }
    Ok(config)
}

fn top_configs(config: &mut NvList) -> &mut [NvList] {
    let root = config.get_list_mut("vdev_tree");
    root.and_then(|root| root.get_lists_mut("children"))
        .map_or(&mut [], |tops| tops)
}

fn check_readable(obstacles: &[Obstacle]) -> Result<()> {
    let Some(obstacle) = obstacles.iter().find(|o| !o.is_readable()) else {
        return Ok(());
    };
    let name = obstacle.name();
    let text = format!("the pool uses feature {name}, which is not supported");
    Err(Error::new(ErrorKind::Unsupported, text))
}

/// A pool is not rewound for good to a state that could only be read.
fn check_rewind(options: &ImportOptions, look: &FirstLook) -> Result<()> {
    match look.obstacles.first().filter(|_| !options.readonly) {
        None => Ok(()),
        Some(obstacle) => {
            let text = format!("the checkpointed state can only be read: {obstacle}");
            Err(Error::new(ErrorKind::Unsupported, text))
        }
    }
}

/// Fails if another host may be using the pool.
fn check_owner(options: &ImportOptions) -> Result<()> {
    let found = &options.found;
    if options.force || found.state == PoolState::Exported {
        return Ok(());
    }
    if found.state == PoolState::Destroyed {
        let text = format!("pool '{}' is destroyed", found.name);
        return Err(Error::not_found(text));
    }
    let is_foreign = found.hostid != 0 && found.hostid != options.host.id;
    if is_foreign && !options.readonly {
        let (name, id, host) = (&found.name, found.hostid, &found.hostname);
        let text = format!(
            "pool '{name}' was last used by another system ({host}, hostid {id:x}) and not exported \
             there; '-f' imports it anyway"
        );
        return Err(Error::new(ErrorKind::Permission, text));
    }
    Ok(())
}

pub(crate) fn best_uberblock(found: &FoundPool, max_txg: Txg) -> Result<UberblockPhys> {
    if let Some(root) = found.root {
        return Ok(root);
    }
    let all = found
        .devices
        .iter()
        .filter_map(|device| device.labels.best_uberblock(max_txg));
    all.max_by_key(UberblockPhys::rank)
        .ok_or_else(|| Error::corrupt(format!("pool '{}' has no valid uberblock", found.name)))
}

/// Fails if too many devices are missing.
fn check_tree(tree: &VdevTree) -> Result<()> {
    let (state, _) = tree.state();
    if state.is_usable() {
        return Ok(());
    }
    let mut missing = Vec::new();
    for (id, top) in tree.tops().iter().enumerate() {
        if top.kind() == VdevKind::Missing {
            missing.push(format!("all devices of top-level vdev {id}"));
        }
        let gone = top
            .devices()
            .into_iter()
            .filter(|device| !device.leaf().is_usable());
        missing.extend(gone.map(|device| device.name()));
    }
    if missing.is_empty() {
        return Err(Error::corrupt("the config has no vdev that holds data"));
    }
    let missing = missing.join(", ");
    let text = format!("too many devices are missing or damaged: {missing}");
    Err(Error::new(ErrorKind::Io, text))
}

/// Reads config, salt and features from the MOS, by the config of the labels. That may lack vdevs,
/// but MOS blocks have three copies, on three top-level vdevs if there are as many.
fn first_look(found: &FoundPool, uberblock: &UberblockPhys) -> Result<FirstLook> {
    let tree = found.open(&found.config, false)?;
    tree.note_uberblock(uberblock);
    let whole = check_tree(&tree);
    // Labels do not say which vdevs were removed: these are missing for now.
    let is_away =
        |top: &&Arc<vdev::Vdev>| top.kind() != VdevKind::Missing && !top.state().0.is_usable();
    if tree.tops().iter().filter(is_away).count() > MISSING_TOPS_MAX {
        whole?;
        return look(found, tree, uberblock);
    }
    // If devices are missing, report that rather than the read error it causes.
    look(found, tree, uberblock).or_else(|error| whole.and(Err(error)))
}

/// The MOS, through a pipeline of its own.
fn peek(tree: Arc<VdevTree>, uberblock: &UberblockPhys) -> Result<Arc<Objset>> {
    let space = Arc::new(Metaslabs::new(
        tree.clone(),
        MetaslabsOptions { spacemap_v2: true },
    ));
    let settings = PipelineSettings {
        heal: false,
        // Only the MOS says whether there are some. Small ones are found, too.
        dynamic_gang_headers: true,
        ..PipelineSettings::default()
    };
    let store: Arc<dyn BlockStore> = Arc::new(Pipeline::new(tree, space, settings));
    let accounting = Arc::new(dmu::FreeAtOnce(store.clone()));
    open_mos(store, uberblock, accounting)
}

fn look(found: &FoundPool, tree: Arc<VdevTree>, uberblock: &UberblockPhys) -> Result<FirstLook> {
    let mut mos = peek(tree, uberblock)?;
    let mut config =
        read_packed(&mos, directory::get(&mos, pool_names::CONFIG)?).within(|| "config")?;
    if has_removed(&config) {
        // What was read so far is on vdevs that are there; the rest may be on removed ones.
        let tree = found.open(&config, false)?;
        tree.note_uberblock(uberblock);
        mos = peek(tree.clone(), uberblock)?;
        load_mappings(&mos, &tree).within(|| "removed vdevs")?;
    }
    aux_list::add_lists(&mos, &mut config)?;
    let version = uberblock.version.get();
    let features = Features::open(&mos, version)?;
    let tops = top_configs(&mut config).iter();
    let classes =
        tops.map(|top| class_of(&mos, top.get_u64("com.delphix:vdev_zap_top").unwrap_or(0)));
    let classes = classes.collect::<Result<_>>()?;
    let mut salt = [0; 32];
    match zap::lookup::<u8>(&mos, directory::OBJECT, pool_names::CHECKSUM_SALT)? {
        Some(found) => {
            let length = found.len().min(salt.len());
            salt[..length].copy_from_slice(&found[..length]);
        }
        // It gets this one when it is upgraded.
        None => rt::fill_random(&mut salt),
    }
    let is_active = |guid| features.count(guid).is_some_and(|count| count > 0);
    let mut obstacles = features.obstacles()?;
    if version < SPA_VERSION_FEATURES {
        obstacles.push(Obstacle::OldVersion(version));
    }
    if directory::find(&mos, pool_names::OBSOLETE_BPOBJ)?.is_some() {
        // As `zfs remap` made them, which OpenZFS no longer has.
        obstacles.push(Obstacle::Feature {
            guid: pool_names::OBSOLETE_BPOBJ.to_owned(),
            description: "lists of remapped blocks".to_owned(),
            is_readable: true,
        });
    }
    Ok(FirstLook {
        config,
        salt,
        has_hole_birth: is_active(feature::HOLE_BIRTH),
        spacemap_v2: is_active(feature::SPACEMAP_V2),
        has_dynamic_gang_headers: is_active(feature::DYNAMIC_GANG_HEADER),
        obstacles,
        classes,
        checkpoint: checkpoint::find(&mos)?,
        multihost: PoolProps::open(&mos)?.get(MULTIHOST) == Some(PropValue::Number(1)),
    })
}

fn open_mos(
    store: Arc<dyn BlockStore>,
    uberblock: &UberblockPhys,
    accounting: Arc<dyn dmu::BlockAccounting>,
) -> Result<Arc<Objset>> {
    let props = ObjsetProps::mos();
    Objset::open(store, ObjsetId(0), &uberblock.rootbp, props, accounting).within(|| "meta-objset")
}

/// What a pool begins with that is opened.
enum Begin {
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
fn load(
    options: ImportOptions,
    uberblock: &UberblockPhys,
    look: FirstLook,
    tree: Arc<VdevTree>,
    readonly: bool,
    begin: Begin,
) -> Result<Spa> {
    let metaslab_options = MetaslabsOptions {
        spacemap_v2: look.spacemap_v2,
    };
    let space = Arc::new(Metaslabs::new(tree.clone(), metaslab_options));
    let settings = PipelineSettings {
        salt: look.salt,
        hole_birth: look.has_hole_birth,
        dynamic_gang_headers: look.has_dynamic_gang_headers,
        heal: !readonly,
        ..options.settings.pipeline_settings()
    };
    let kept = Arc::new(Kept::default());
    let removal = Removal::new(tree.clone(), space.clone(), kept.clone());
    let pipeline = Arc::new(Pipeline::new(tree.clone(), removal.clone(), settings));
    let cache = Arc::new(arc::Cache::new(
        pipeline.clone() as Arc<dyn LogStore>,
        options.settings.arc_settings(),
    ));
    let store: Arc<dyn LogStore> = cache.clone();
    let core = Core::new(
        store.clone(),
        space.clone(),
        tree.clone(),
        options.host.name.clone(),
        kept,
    );
    let mut half_open = HalfOpen::new(&core);
    let env: Arc<dyn PoolEnv> = core.clone();
    let accounting = MosAccounting::new(env.clone());
    let mos = open_mos(store.clone(), uberblock, accounting.clone())?;
    load_mappings(&mos, &tree).within(|| "removed vdevs")?;
    let removing = removal.load(&mos).within(|| "vdev that is being removed");
    if !readonly {
        removing?; // not needed to read
    }
    let sweeps = Sweeps::default();
    let swept = sweeps.load(&mos, &tree).within(|| "leaf ZAPs");
    if !readonly {
        swept?; // not needed to read
    }
    let rebuilds = Rebuilds::default();
    let rebuilt = rebuilds.load(&mos, &tree).within(|| "top-level ZAPs");
    if !readonly {
        rebuilt?; // not needed to read
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
    let sharing = core
        .sharing()
        .open(&mos, is_fast, &|dva| core.dsize_of(dva));
    if !readonly {
        sharing?; // not needed to read
    }
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
    let limits = apply_limits(&mos, &tree).within(|| "vdev ZAPs");
    if !readonly {
        limits?; // not needed to read
    }
    let groups = TxGroups::new(last, core.telling(options.settings.txg.clone()));
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
    if !readonly {
        deferred?; // not needed to read
    }
    let own = options.found.name.clone();
    let (name, name_on_disk) = match options.new_name.clone() {
        None => (own.clone(), own),
        Some(new) if new.is_temporary => (new.name, own),
        Some(new) => (new.name.clone(), new.name),
    };
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
    let spares = AuxList::open(
        &mos,
        &look.config,
        pool_names::SPARES,
        &options.found,
        &tree,
    )?;
    let caches = AuxList::open(
        &mos,
        &look.config,
        pool_names::L2CACHE,
        &options.found,
        &tree,
    )?;
    let (spares, caches) = match begin {
        Begin::Split(_) => (spares.emptied(), caches.emptied()),
        Begin::Usual | Begin::Upgraded | Begin::Rewound { .. } => (spares, caches),
    };
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
    let checkpoint = spa.load_checkpoint().within(|| "checkpoint");
    if !readonly {
        checkpoint?; // not needed to read
    }
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
        if spa.multihost() {
            spa.inner.mmp.start(&spa.inner);
        }
        let has_logs = match begin {
            Begin::Usual | Begin::Upgraded => {
                spa.take_logs(synced.next(), options.gives_up_logs)?
            }
            Begin::Split(_) | Begin::Rewound { .. } => {
                spa.dsl().clear_logs(synced.next(), last.next())?;
                true
            }
        };
        spa.inner.groups.start(spa.inner.clone());
        if let Begin::Split(split) = begin {
            spa.begin_split(split)?;
        }
        if let Some(logs) = logs {
            spa.in_sync(move |inner, tx| logs.retire(&inner.mos, &inner.maps, &inner.space, tx))?;
        }
        if needs_config || has_logs {
            spa.sync_now()?;
        }
        spa.finish_replacements()?;
    }
    Ok(spa)
}

impl Spa {
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

/// Passes the space maps of every vdev to the allocator.
fn open_space(
    mos: &Arc<Objset>,
    features: &Arc<Features>,
    tree: &Arc<VdevTree>,
    space: &Arc<Metaslabs>,
    half_open: &mut HalfOpen,
) -> Result<Arc<SpaceMaps>> {
    let tops = tree.tops();
    check_extent(&tops)?;
    let mut arrays = BTreeMap::new();
    for (i, top) in tops.iter().enumerate() {
        let array = top.config().ms_array;
        if array != 0 {
            arrays.insert(VdevId(i as u64), ObjectId(array));
        }
    }
    let maps = SpaceMaps::new(mos, features, arrays);
    half_open.maps = Some(maps.clone());
    space.set_store(maps.clone());
    for (i, top) in tops.iter().enumerate() {
        let id = VdevId(i as u64);
        if !top.kind().is_concrete() || top.config().ms_array == 0 {
            continue;
        }
        let objects = maps.objects(id, top.metaslab_count())?;
        space.add_vdev(geometry(id, top), &objects, false)?;
        if top.config().non_allocating {
            space.set_allocatable(id, false)?;
        }
    }
    Ok(maps)
}

/// The largest pool, in bytes.
const ASIZE_MAX_BYTES: u64 = 1 << 60;
/// The most metaslabs, each of some 5 KiB of memory, of vdevs whose devices are missing.
const METASLABS_MAX: u64 = 1 << 18;

/// Checks that the sums over all top-level vdevs are possible: the size of one without devices is only what
/// the config says.
fn check_extent(tops: &[Arc<vdev::Vdev>]) -> Result<()> {
    let sizes = tops.iter().map(|top| top.config().asize);
    let asize = sizes.fold(0, u64::saturating_add);
    let missing = tops.iter().filter(|top| !top.state().0.is_usable());
    let count = missing.fold(0, |sum: u64, top| sum.saturating_add(top.metaslab_count()));
    if asize <= ASIZE_MAX_BYTES && count <= METASLABS_MAX {
        return Ok(());
    }
    let what = format!("the config has {asize} bytes, and {count} metaslabs on missing devices");
    Err(Error::corrupt(what))
}

/// What a top-level vdev is reserved for, by its ZAP (0: it has none).
fn class_of(mos: &Arc<Objset>, top_zap: u64) -> Result<AllocClass> {
    if top_zap == 0 {
        return Ok(AllocClass::Normal);
    }
    let name = pool_names::VDEV_TOP_ZAP_ALLOCATION_BIAS;
    let word = zap::lookup_str(mos, ObjectId(top_zap), name)?;
    Ok(word.map_or(AllocClass::Normal, |word| AllocClass::from_word(&word)))
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
