//! The first, read-only look at a pool: what the MOS says that labels do not.

use std::sync::Arc;

use base::{Context, Error, ErrorKind, ObjectId, ObjsetId, Result, Txg};
use dmu::{Objset, ObjsetProps};
use metaslab::{Metaslabs, MetaslabsOptions};
use nvpair::NvList;
use phys::uberblock::{SPA_VERSION_FEATURES, UberblockPhys};
use phys::{PropValue, feature, pool_names};
use vdev::import::FoundPool;
use vdev::{VdevKind, VdevTree};
use zap::directory;
use zio::{AllocClass, BlockStore, Pipeline, PipelineSettings};

use crate::aux_list;
use crate::change::MULTIHOST;
use crate::checkpoint;
use crate::config::read_packed;
use crate::features::Features;
use crate::obstacle::Obstacle;
use crate::props::PoolProps;
use crate::removal::{has_removed, load_mappings};

/// `SPA_DVAS_PER_BP - 1`: top-level vdevs that may be missing while the MOS is first read
/// (`zfs_max_missing_tvds_scan`, `zfs_max_missing_tvds_cachefile`).
const MISSING_TOPS_MAX: usize = 2;

/// What the first read of the MOS yields.
pub(super) struct FirstLook {
    pub(super) config: NvList,
    pub(super) salt: [u8; 32],
    pub(super) has_hole_birth: bool,
    pub(super) spacemap_v2: bool,
    pub(super) has_dynamic_gang_headers: bool,
    pub(super) obstacles: Vec<Obstacle>,
    /// What each top-level vdev is reserved for, which the config does not say.
    pub(super) classes: Vec<AllocClass>,
    pub(super) checkpoint: checkpoint::Rewound,
    /// The property `multihost`.
    pub(super) multihost: bool,
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

pub(super) fn check_readable(obstacles: &[Obstacle]) -> Result<()> {
    let Some(obstacle) = obstacles.iter().find(|o| !o.is_readable()) else {
        return Ok(());
    };
    let name = obstacle.name();
    let text = format!("the pool uses feature {name}, which is not supported");
    Err(Error::new(ErrorKind::Unsupported, text))
}

/// Fails if too many devices are missing.
pub(super) fn check_tree(tree: &VdevTree) -> Result<()> {
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
pub(super) fn first_look(found: &FoundPool, uberblock: &UberblockPhys) -> Result<FirstLook> {
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

pub(super) fn open_mos(
    store: Arc<dyn BlockStore>,
    uberblock: &UberblockPhys,
    accounting: Arc<dyn dmu::BlockAccounting>,
) -> Result<Arc<Objset>> {
    let props = ObjsetProps::mos();
    Objset::open(store, ObjsetId(0), &uberblock.rootbp, props, accounting).within(|| "meta-objset")
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
