//! Creating a pool.
//!
//! # What it is
//! The first txg, [`Txg::INITIAL`], is built by hand: MOS, pool directory, features, dataset tree,
//! root dataset, history, config object, deferred list, salt, space map arrays. Then the txg
//! machine starts and syncs it like any other.
//!
//! # Crash argument
//! Until the first uberblock is written, the labels on the devices do not describe an importable
//! pool; a crash before that leaves nothing that could be mistaken for one.
//!
//! # Source
//! OpenZFS `module/zfs/spa.c` (`spa_create`), `module/zfs/dsl_pool.c` (`dsl_pool_create`).

use phys::PropValue;
use phys::pool_names;
use phys::uberblock::SPA_VERSION_FEATURES;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use base::{Context, Error, ErrorKind, Guid, ObjectId, ObjsetId, Result, Txg, VdevId};
use dmu::{NewObject, Objset, ObjsetProps, Tx, TxGroups};
use dsl::{Bpobj, DslPool, Mos, MosAccounting, PoolEnv, PoolParts};
use metaslab::{MetaslabsOptions, VdevGeometry};
use nvpair::NvList;
use phys::ObjectType;
use phys::ObjsetType;
use phys::label::{ASHIFT_MAX, ASHIFT_MIN, SPA_MINDEVSIZE};
use phys::uberblock::UberblockPhys;
use rt::Mutex;
use vdev::{
    AutoAshift, AuxSpec, DraidShape, Grouping, NewDevice, PoolState, TopSpec, Vdev, VdevConfig,
    VdevKind, VdevTree,
};
use zio::{AllocClass, BlockStore, LogStore, PipelineSettings};

use crate::aux_list::AuxList;
use crate::core::{Core, HalfOpen};
use crate::features;
use crate::features::Features;
use crate::foundation::Foundation;
use crate::history::History;
use crate::host::Host;
use crate::l2arc::label_caches;
use crate::mmp::Mmp;
use crate::props::PoolProps;
use crate::rebuild::Rebuilds;
use crate::reflow::Reflowing;
use crate::scanning::Scanning;
use crate::spa::{Inner, Settings, Spa, State};
use crate::space_maps::SpaceMaps;
use crate::spares::{SpareWatch, label_spares};
use crate::sweep::Sweeps;
use phys::feature::Feature;
use zap::directory;

/// Bytes of the salt for keyed checksums.
const SALT_BYTES: usize = 32;
/// `SPA_CONFIG_BLOCKSIZE`
const CONFIG_BLOCK_BYTES: u64 = 1 << 14;

/// The properties of a new pool.
#[derive(Default)]
pub struct NewPool {
    /// `-o ashift`; 0 means: from the devices' physical sector size.
    pub ashift: u32,
    /// Features to enable.
    pub features: Vec<&'static Feature>,
    /// `-o`: the pool's own properties that differ from their defaults.
    pub props: Vec<(String, PropValue)>,
    /// `-t`: what it is called on disk, if its name is temporary.
    pub name_on_disk: Option<String>,
    /// `-o comment`, `-o compatibility`
    pub comment: Option<String>,
    /// See `comment`.
    pub compatibility: Option<String>,
    /// `-O`: properties of the root dataset.
    pub fs_props: Vec<(String, PropValue)>,
    /// The key of the root dataset, if it is an encryption root.
    pub encryption: Option<dsl::NewRoot>,
}

/// How to create a pool.
pub struct CreateOptions {
    /// Its name, checked by the caller.
    pub name: String,
    /// Its top-level vdevs.
    pub vdevs: Vec<TopSpec<NewDevice>>,
    /// Its hot spares and cache devices.
    pub aux: AuxSpec<NewDevice>,
    /// Its properties.
    pub new: NewPool,
    /// Creates the file system in the root dataset's objset.
    pub init_root: dsl::ObjsetInit,
    /// The command line for the history.
    pub command: String,
    /// The host that creates it.
    pub host: Host,
    /// How it is run.
    pub settings: Settings,
}

impl Spa {
    /// Creates a pool and leaves it open. The contents of the devices are lost.
    ///
    /// # Errors
    /// `InvalidInput` for an ashift out of range, `TooBig` for a device too small; any write error.
    #[doc(alias = "spa_create")]
    #[expect(
        clippy::too_many_lines,
        reason = "the steps of creating a pool, in their order"
    )]
    pub fn create(options: CreateOptions) -> Result<Spa> {
        let txg = Txg::INITIAL;
        let tx = Tx::syncing(txg);
        let guid = Guid(nonzero_random());
        let tops = build_tops(
            &options.vdevs,
            (options.new.ashift, options.settings.auto_ashift),
            txg,
        )?;
        let root = Vdev::new(
            VdevKind::Root,
            guid,
            VdevConfig {
                create_txg: txg.0,
                ..VdevConfig::default()
            },
            tops,
        );
        let tree = VdevTree::new(root);
        let sectors = (options.new.ashift, options.settings.auto_ashift);
        let mut spares = label_spares(&options.aux.spares, sectors, &[])?;
        for (id, top) in (0..).map(VdevId).zip(tree.tops()) {
            spares.extend(top.new_spares(id));
        }
        let caches = label_caches(&options.aux.caches, sectors, &[])?;

        let enabled = features::with_depends(&options.new.features);
        let is_enabled = |name: &str| enabled.iter().any(|feature| feature.name == name);
        let mut salt = [0; SALT_BYTES];
        rt::fill_random(&mut salt);
        let pipeline_settings = PipelineSettings {
            salt,
            hole_birth: is_enabled("hole_birth"),
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
                spacemap_v2: is_enabled("spacemap_v2"),
            },
            pipeline_settings,
            &options.settings,
            &options.host.name,
        );
        let store: Arc<dyn LogStore> = cache.clone();
        let mut half_open = HalfOpen::new(&core);
        core.set_initializing(true);

        let env: Arc<dyn PoolEnv> = core.clone();
        let accounting = MosAccounting::new(env.clone());
        let mos = Objset::create(
            store.clone() as Arc<dyn BlockStore>,
            ObjsetId(0),
            ObjsetType::Meta,
            ObjsetProps::mos(),
            accounting.clone(),
            &tx,
        );
        zap::create_claim(
            &mos,
            &tx,
            directory::OBJECT,
            &zap::NewZap::new(ObjectType::OBJECT_DIRECTORY),
        )?;
        core.set_features(Arc::new(Features::create(
            &mos,
            &options.new.features,
            &tx,
        )?));
        mos.set_props(dsl::mos_props(&*core));
        let is_fast = core.makes_fast_tables();
        core.sharing()
            .open(&mos, is_fast, &|dva| core.dsize_of(dva))?;

        let maps = SpaceMaps::new(&mos, &core.features(), BTreeMap::new());
        half_open.maps = Some(maps.clone());
        space.set_store(maps.clone());
        for (i, top) in tree.tops().iter().enumerate() {
            let id = VdevId(i as u64);
            let array = maps.create_array(id, &tx)?;
            top.update(|config| config.ms_array = array.0);
            space.add_vdev(geometry(id, top), &[], false)?;
        }

        let groups = TxGroups::new(
            Txg(txg.0 - 1),
            core.telling(&cache, options.settings.txg.clone()),
        );
        let dsl = DslPool::create(
            PoolParts {
                name: options.name.clone(),
                version: SPA_VERSION_FEATURES,
                mos: Mos::new(mos.clone(), env)?,
                accounting,
                store,
                keys: pipeline.keys().clone(),
                groups: groups.clone(),
            },
            &options.new.fs_props,
            options.new.encryption.as_ref(),
            options.init_root,
            &tx,
        )?;
        core.set_history(History::create(
            &mos,
            space.class_stats(AllocClass::Normal).dspace,
            &tx,
        )?);
        let config_object = create_objects(&mos, dsl.mos(), &core, &salt, &tx)?;
        core.set_initializing(false);
        core.events().set_creating(true);
        core.notify("pool_create", None);
        core.log_version("create", &tx);
        let props = PoolProps::none(&mos);
        for (name, value) in options.new.props {
            core.log_internal("set", &format!("{name}={value}"), &tx);
            props.set(&name, value, &tx)?;
        }
        for feature in &options.new.features {
            core.log_internal("set", &format!("feature@{}=enabled", feature.name), &tx);
        }
        core.log(crate::history::command_record(&options.command), true, &tx)?;
        core.events().set_creating(false);

        let inner = Arc::new(Inner {
            mmp: Mmp::new(),
            removal,
            removal_settings: options.settings.removal.clone(),
            sweeps: Sweeps::default(),
            sweep_settings: options.settings.sweep.clone(),
            discard_entries_max: options.settings.discard_entries_max,
            scanning: Scanning::default(),
            reflowing: Reflowing::default(),
            reflow_max_bytes: options.settings.reflow_max_bytes,
            rebuilds: Rebuilds::default(),
            rebuild_max_bytes: options.settings.rebuild_max_bytes,
            spare_watch: SpareWatch::default(),
            l2: Arc::new(arc::l2::L2Arc::new(true)),
            scan_settings: options.settings.scan.clone(),
            first_txg: Txg(0),
            host: options.host,
            readonly: false,
            obstacles: Vec::new(),
            tree,
            space,
            maps,
            pipeline,
            cache,
            mos,
            core,
            groups,
            dsl: OnceLock::from(dsl),
            props,
            state: Mutex::new(State {
                name_on_disk: options
                    .new
                    .name_on_disk
                    .unwrap_or_else(|| options.name.clone()),
                name: options.name,
                pool_state: PoolState::Active,
                uberblock: UberblockPhys::default(),
                synced: UberblockPhys::default(),
                config_dirty: true,
                labels_dirty: true,
                config_object,
                vdev_zaps: None,
                dtls: BTreeMap::new(),
                detached: Vec::new(),
                spares: AuxList::created(pool_names::SPARES, spares),
                caches: AuxList::created(pool_names::L2CACHE, caches),
                comment: options.new.comment,
                compatibility: options.new.compatibility,
                split_list: Vec::new(),
                split_from: None,
                config: NvList::new(),
            }),
        });
        let spa = Spa { inner };
        half_open.opened();
        spa.inner.tree.prepare_devices()?;
        spa.inner.clear_caches();
        spa.inner.open_caches();
        spa.inner.begin_deduplicating();
        if spa.multihost() {
            spa.inner.mmp.start(&spa.inner);
        }
        spa.inner.groups.start(spa.inner.clone());
        spa.inner.groups.wait_synced(txg).within(|| spa.name())?;
        spa.inner.begin_suspending();
        Ok(spa)
    }
}

/// Creates the config object, the deferred list, the salt, and the numeric entries of the pool
/// directory.
fn create_objects(
    mos: &Arc<Objset>,
    dsl_mos: &Arc<Mos>,
    core: &Arc<Core>,
    salt: &[u8; SALT_BYTES],
    tx: &Tx,
) -> Result<ObjectId> {
    let config = mos.object_alloc(
        tx,
        &NewObject::new(ObjectType::PACKED_NVLIST)
            .blksz(CONFIG_BLOCK_BYTES)
            .bonus(ObjectType::PACKED_NVLIST_SIZE, 8),
    )?;
    directory::set(mos, pool_names::CONFIG, config.id().0, tx)?;
    directory::set(mos, pool_names::CREATION_VERSION, 5000, tx)?;
    directory::set(mos, pool_names::DEFLATE, 1, tx)?;
    let deferred = Bpobj::alloc(dsl_mos, tx)?;
    directory::set(mos, pool_names::SYNC_BPOBJ, deferred.0, tx)?;
    core.set_deferred(Bpobj::open(dsl_mos, deferred)?)?;
    zap::update(
        mos,
        tx,
        directory::OBJECT,
        pool_names::CHECKSUM_SALT,
        salt.as_slice(),
    )?;
    Ok(config.id())
}

/// What the allocator needs to know about a top-level vdev.
pub(crate) fn geometry(id: VdevId, top: &Vdev) -> VdevGeometry {
    let config = top.config();
    let class = config.class();
    VdevGeometry {
        data_disks: top.data_disks(),
        min_alloc: top.min_alloc(),
        ms_align: top.metaslab_align(),
        ..VdevGeometry::new(id, config.asize, config.ashift, config.ms_shift, class)
    }
}

pub(crate) fn nonzero_random() -> u64 {
    rt::random_u64().max(1)
}

/// The top-level vdevs, opened and measured.
pub(crate) fn build_tops(
    specs: &[TopSpec<NewDevice>],
    (ashift, auto): (u32, AutoAshift),
    txg: Txg,
) -> Result<Vec<Arc<Vdev>>> {
    if ashift != 0 && !(ASHIFT_MIN..=ASHIFT_MAX).contains(&ashift) {
        let text = format!("ashift {ashift} is not between {ASHIFT_MIN} and {ASHIFT_MAX}");
        return Err(Error::invalid(text));
    }
    specs
        .iter()
        .map(|spec| build_top(spec, ashift, auto, txg))
        .collect()
}

fn build_top(
    spec: &TopSpec<NewDevice>,
    ashift: u32,
    auto: AutoAshift,
    txg: Txg,
) -> Result<Arc<Vdev>> {
    let top = build(spec)?;
    let devices = top.devices();
    let providers: Vec<_> = devices.iter().filter_map(|d| d.leaf().provider()).collect();
    let logical = providers.iter().map(|p| vdev::logical_ashift(&**p)).max();
    let physical = providers.iter().map(|p| vdev::physical_ashift(&**p)).max();
    let (Some(logical), Some(physical)) = (logical, physical) else {
        return Err(Error::invalid("a vdev without devices"));
    };
    let ashift = vdev::choose_ashift(ashift, logical, physical, auto);
    if ashift > ASHIFT_MAX {
        let text = format!("sectors of {} bytes are too large", 1u64 << ashift);
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    for provider in &providers {
        if provider.mediasize() < SPA_MINDEVSIZE {
            let text = format!(
                "{}: device is too small (64 MiB is the least)",
                provider.name()
            );
            return Err(Error::new(ErrorKind::TooBig, text));
        }
    }
    top.update(|config| config.ashift = ashift);
    let asize = VdevTree::max_asize(&top).unwrap_or(0);
    top.update(|config| {
        config.asize = asize;
        config.ms_shift = vdev::metaslab_shift(asize);
        config.is_log = spec.class == AllocClass::Log;
        config.alloc_bias = spec.class;
        config.create_txg = txg.0;
    });
    top.visit(&mut |vd| vd.update(|config| config.create_txg = txg.0));
    Ok(top)
}

fn build(spec: &TopSpec<NewDevice>) -> Result<Arc<Vdev>> {
    let devices = spec.devices.iter().map(|device| build_device(device, None));
    let mut devices = devices.collect::<Result<Vec<_>>>()?;
    match spec.grouping {
        Grouping::Single => devices
            .pop()
            .ok_or_else(|| Error::invalid("a vdev without devices")),
        Grouping::Mirror => Ok(group(VdevKind::Mirror, devices)),
        Grouping::Raidz { parity } => {
            let nparity = u8::try_from(parity).unwrap_or(u8::MAX);
            if !(1..=3).contains(&nparity) || devices.len() <= nparity.into() {
                let text = format!("a raidz{parity} of {} devices", devices.len());
                return Err(Error::invalid(text));
            }
            Ok(group(VdevKind::RaidZ { nparity }, devices))
        }
        Grouping::Draid {
            parity,
            data,
            spares,
            ..
        } => {
            let shape = DraidShape::new(parity, data, spares, devices.len() as u64);
            let shape = shape.ok_or_else(|| {
                let name = spec.grouping.display_name();
                Error::invalid(format!("a {name} of {} devices", devices.len()))
            })?;
            Ok(group(VdevKind::Draid(shape), devices))
        }
    }
}

fn group(kind: VdevKind, devices: Vec<Arc<Vdev>>) -> Arc<Vdev> {
    let guid = Guid(nonzero_random());
    Vdev::new(kind, guid, VdevConfig::default(), devices)
}

/// A device, opened; with its guid, if it is a hot spare.
pub(crate) fn build_device(device: &NewDevice, spare: Option<Guid>) -> Result<Arc<Vdev>> {
    let config = VdevConfig {
        path: Some(device.path.clone()),
        whole_disk: (device.kind == VdevKind::Disk).then_some(false),
        is_spare: spare.is_some(),
        ..VdevConfig::default()
    };
    let guid = spare.unwrap_or_else(|| Guid(nonzero_random()));
    let vdev = Vdev::new(device.kind, guid, config, Vec::new());
    vdev.leaf().open(device.provider.clone())?;
    Ok(vdev)
}
