//! Configs: the nvlists that describe vdevs and pools, in labels, in the MOS and in cache files.
//!
//! # On disk
//! A config of a vdev has a `type`, an `id` (its place among its siblings), a `guid`, and what its kind
//! and its position require; inner vdevs have `children`. A label holds the config of the top-level vdev
//! that its device belongs to, the MOS and the cache file that of the root. The keys and their order are
//! those of OpenZFS 2.3, so that dumps can be compared line by line; what later releases add
//! (`rotational`, `min_alloc`, `top_guid` in vdevs) is not written.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_label.c` (`vdev_config_generate`, `vdev_top_config_generate`),
//! `module/zfs/spa_config.c` (`spa_config_generate`), `module/zfs/vdev.c` (`vdev_alloc`).

use std::sync::Arc;

use base::{Context, Error, ErrorKind, Guid, Result, VdevId};
use nvpair::NvList;
use phys::label::{ASHIFT_MAX, ASHIFT_MIN};
use zio::AllocClass;

use crate::{Vdev, VdevAux, VdevConfig, VdevKind, VdevState, VdevTree};

/// Deeper trees are refused; OpenZFS never makes any.
const DEPTH_MAX: usize = 8;
/// The depth of top-level vdevs in a pool's tree.
const TOP_DEPTH: usize = 1;
/// Configs with more metaslabs are refused: eight times the most of a new vdev
/// (`zfs_vdev_ms_count_limit`), which may have grown since.
const METASLABS_MAX: u64 = 1 << 20;

/// ZPOOL_CONFIG_RAIDZ_EXPAND_TXGS: when a RAID-Z was expanded.
const RAIDZ_EXPAND_TXGS: &str = "raidz_expand_txgs";
/// ZPOOL_CONFIG_RAIDZ_EXPANDING: a RAID-Z is being expanded.
const RAIDZ_EXPANDING: &str = "raidz_expanding";

/// ZPOOL_CONFIG_SPLIT, in the MOS: a split that is not complete.
const SPLIT: &str = "splitcfg";
/// ZPOOL_CONFIG_SPLIT_LIST
const SPLIT_LIST: &str = "guid_list";
/// ZPOOL_CONFIG_SPLIT_GUID: the pool that another one was split off from.
pub(crate) const SPLIT_GUID: &str = "split_guid";

/// The devices that were being split off when this config of a pool was written.
#[must_use]
pub fn split_list(config: &NvList) -> Vec<Guid> {
    let list = config
        .get_list(SPLIT)
        .and_then(|split| split.get_u64s(SPLIT_LIST));
    let guids = list.unwrap_or_default().iter().map(|guid| Guid(*guid));
    guids.filter(|guid| guid.0 != 0).collect()
}

/// Whether this config of a pool says that it was split off from another one.
#[must_use]
pub fn is_split_off(config: &NvList) -> bool {
    config.contains(SPLIT_GUID)
}

/// Which config is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// For labels.
    Label,
    /// For the MOS and the cache file: with the vdevs' ZAP objects.
    Mos,
    /// For the lists of hot spares and cache devices in the MOS: a device that has no number.
    Aux,
}

impl VdevConfig {
    /// What the top-level vdev is reserved for; `Normal` is anything.
    #[must_use]
    pub fn class(&self) -> AllocClass {
        if self.is_log {
            AllocClass::Log
        } else {
            self.alloc_bias
        }
    }
}

impl Vdev {
    /// The config of this vdev and all below; `depth` is 0 for the root, 1 for top-level vdevs.
    #[must_use]
    #[doc(alias = "vdev_config_generate")]
    pub fn generate_config(&self, id: u64, depth: usize, target: Target) -> NvList {
        let config = self.config();
        let mut nv = NvList::new();
        nv.add("type", self.kind().word());
        if target != Target::Aux {
            nv.add("id", id);
        }
        nv.add("guid", self.guid().0);
        add_str(&mut nv, "path", config.path.as_deref());
        add_str(&mut nv, "devid", config.devid.as_deref());
        add_str(&mut nv, "phys_path", config.phys_path.as_deref());
        add_str(
            &mut nv,
            "vdev_enc_sysfs_path",
            config.enc_sysfs_path.as_deref(),
        );
        add_str(&mut nv, "fru", config.fru.as_deref());
        match self.kind() {
            VdevKind::RaidZ { nparity } => {
                nv.add("nparity", u64::from(nparity));
                if config.expanding {
                    nv.add_flag(RAIDZ_EXPANDING);
                }
                if !config.expand_txgs.is_empty() {
                    nv.add(RAIDZ_EXPAND_TXGS, config.expand_txgs.clone());
                }
            }
            VdevKind::Draid(shape) => shape.add_to(&mut nv),
            VdevKind::DraidSpare(spare) => spare.add_to(&mut nv),
            _ => {}
        }
        if let Some(whole_disk) = config.whole_disk {
            nv.add("whole_disk", u64::from(whole_disk));
        }
        add_if(&mut nv, "not_present", config.not_present);
        add_if(&mut nv, "is_spare", config.is_spare);
        if target == Target::Aux {
            nv.add("ashift", u64::from(config.ashift));
        } else if depth == TOP_DEPTH {
            add_top_keys(&mut nv, &config);
        }
        add_nonzero(&mut nv, "DTL", config.dtl_object);
        add_nonzero(
            &mut nv,
            "com.delphix:indirect_object",
            config.indirect_object,
        );
        add_nonzero(
            &mut nv,
            "com.delphix:indirect_births",
            config.indirect_births,
        );
        if let Some(prev) = config.prev_indirect_vdev {
            nv.add("com.delphix:prev_indirect_vdev", prev.0);
        }
        add_nonzero(&mut nv, "create_txg", config.create_txg);
        if target == Target::Mos {
            add_nonzero(&mut nv, "com.delphix:vdev_zap_leaf", config.leaf_zap);
            add_nonzero(&mut nv, "com.delphix:vdev_zap_top", config.top_zap);
            add_nonzero(&mut nv, "com.klarasystems:vdev_zap_root", config.root_zap);
            if config.resilver_deferred {
                nv.add_flag("com.datto:resilver_defer");
            }
        }
        if self.kind().is_leaf() {
            add_leaf_keys(&mut nv, self, &config);
        } else {
            let generate = |(id, child): (usize, &Arc<Vdev>)| {
                child.generate_config(id as u64, depth + 1, target)
            };
            let children: Vec<_> = self.children().iter().enumerate().map(generate).collect();
            nv.add("children", children);
        }
        nv
    }

    /// The label of a hot spare or a cache device.
    pub(crate) fn aux_config(&self, version: u64, state: crate::PoolState) -> NvList {
        let config = self.config();
        let mut nv = NvList::new()
            .with("version", version)
            .with("state", state.raw())
            .with("guid", self.guid().0);
        if state == crate::PoolState::L2Cache {
            nv.add("ashift", u64::from(config.ashift));
        }
        add_str(&mut nv, "path", config.path.as_deref());
        add_str(&mut nv, "devid", config.devid.as_deref());
        add_str(&mut nv, "phys_path", config.phys_path.as_deref());
        nv
    }

    /// A hot spare or a cache device, from its config in the MOS; it is not opened.
    ///
    /// # Errors
    /// As [`from_config`](Vdev::from_config); [`base::ErrorKind::Unsupported`] for anything but a device.
    pub fn from_aux_config(nv: &NvList) -> Result<Arc<Vdev>> {
        let vdev = parse(nv, TOP_DEPTH + 1)?;
        if vdev.kind().is_device() {
            return Ok(vdev);
        }
        let what = format!("a {} among spare or cache devices", vdev.kind().word());
        Err(Error::new(ErrorKind::Unsupported, what))
    }

    /// A vdev, and all below, from its config; the devices are not opened.
    ///
    /// # Errors
    /// [`base::ErrorKind::Corrupt`] for an invalid config, [`base::ErrorKind::Unsupported`] for a kind
    /// that this program does not know.
    #[doc(alias = "vdev_alloc")]
    pub fn from_config(nv: &NvList) -> Result<Arc<Vdev>> {
        parse(nv, 0)
    }
}

fn add_str(nv: &mut NvList, key: &str, value: Option<&str>) {
    if let Some(value) = value {
        nv.add(key, value);
    }
}

fn add_nonzero(nv: &mut NvList, key: &str, value: u64) {
    if value != 0 {
        nv.add(key, value);
    }
}

fn add_if(nv: &mut NvList, key: &str, is_set: bool) {
    add_nonzero(nv, key, u64::from(is_set));
}

fn add_top_keys(nv: &mut NvList, config: &VdevConfig) {
    nv.add("metaslab_array", config.ms_array);
    nv.add("metaslab_shift", u64::from(config.ms_shift));
    nv.add("ashift", u64::from(config.ashift));
    nv.add("asize", config.asize);
    nv.add("is_log", u64::from(config.is_log));
    add_if(nv, "non_allocating", config.non_allocating);
    add_if(nv, "removing", config.removing && !config.is_log);
}

fn add_leaf_keys(nv: &mut NvList, vdev: &Vdev, config: &VdevConfig) {
    let (state, aux) = vdev.leaf().state();
    add_if(nv, "offline", config.offline && !config.offline_temporarily);
    add_nonzero(nv, "resilver_txg", config.resilver_txg);
    add_nonzero(nv, "rebuild_txg", config.rebuild_txg);
    add_if(nv, "faulted", state == VdevState::Faulted);
    add_if(nv, "degraded", state == VdevState::Degraded);
    add_if(nv, "removed", state == VdevState::Removed);
    add_if(nv, "unspare", config.unspare);
    add_if(nv, "is_hole", vdev.kind() == VdevKind::Hole);
    if !config.offline_temporarily {
        add_str(nv, "aux_state", aux.label_word());
    }
    add_nonzero(nv, "orig_guid", config.orig_guid);
}

fn parse(nv: &NvList, depth: usize) -> Result<Arc<Vdev>> {
    if depth > DEPTH_MAX {
        return Err(Error::corrupt(format!(
            "vdev tree is deeper than {DEPTH_MAX}"
        )));
    }
    let kind = VdevKind::from_config(nv)?;
    let word = kind.word();
    let guid = Guid(nv.get_u64("guid").ok_or_else(|| missing("guid"))?);
    let below = nv.get_lists("children").unwrap_or_default();
    if kind.is_leaf() && !below.is_empty() {
        return Err(Error::corrupt(format!(
            "vdev {guid} is a {word} with children"
        )));
    }
    let mut children = Vec::new();
    for (n, child) in below.iter().enumerate() {
        if child.get_u64("id") != Some(n as u64) {
            let context = format!("vdev {guid}: child {n} has id {:?}", child.get_u64("id"));
            return Err(Error::corrupt(context));
        }
        children.push(parse(child, depth + 1).within(|| format!("{word} {n}"))?);
    }
    let config = parse_facts(nv, kind).within(|| format!("vdev {guid}"))?;
    if config.ashift > ASHIFT_MAX {
        let what = format!("vdev {guid}: ashift is {}", config.ashift);
        return Err(Error::corrupt(what));
    }
    let is_striped = matches!(kind, VdevKind::RaidZ { .. } | VdevKind::Draid(_));
    if (kind.is_mirror_like() || is_striped) && children.is_empty() {
        let what = format!("vdev {guid} is a {word} without children");
        return Err(Error::corrupt(what));
    }
    if is_striped {
        check_striped(kind, &config, &children).within(|| format!("vdev {guid}"))?;
    }
    if depth == TOP_DEPTH {
        crate::draid_spare::check_spares((kind, guid), &children)?;
    }
    if depth == TOP_DEPTH && (kind.is_concrete() || config.ms_array != 0) {
        check_top(&config).within(|| format!("vdev {guid}"))?;
    }
    let vdev = Vdev::new(kind, guid, config, children);
    if kind.is_device() {
        restore_state(nv, &vdev);
    }
    Ok(vdev)
}

/// Checks that a RAID-Z or dRAID has a width that parity can be computed for, and children that are devices or
/// mirrors.
#[doc(alias = "vdev_raidz_init")]
#[doc(alias = "vdev_draid_init")]
fn check_striped(kind: VdevKind, config: &VdevConfig, children: &[Arc<Vdev>]) -> Result<()> {
    let (count, word) = (children.len(), kind.word());
    let is_possible = match kind {
        VdevKind::Draid(shape) => shape.fits(count as u64),
        VdevKind::RaidZ { nparity } => {
            let data = count.saturating_sub(nparity.into());
            // Each expansion added a child to what had been a RAID-Z.
            let added = config.expand_txgs.len() + usize::from(config.expanding);
            (1..=parity::DATA_MAX).contains(&data)
                && added < data
                && config.expand_txgs.is_sorted_by(|a, b| a < b)
        }
        _ => true,
    };
    if !is_possible {
        let what = match kind {
            VdevKind::RaidZ { nparity } => format!("nparity {nparity}"),
            kind => format!("{kind:?}"),
        };
        let what = format!("{word} with {count} children and {what}");
        return Err(Error::corrupt(what));
    }
    let is_fit = |kind: VdevKind| kind.is_device() || kind.is_mirror_like();
    match children.iter().find(|child| !is_fit(child.kind())) {
        Some(child) => {
            let what = format!("{word} of a {}", child.kind().word());
            Err(Error::corrupt(what))
        }
        None => Ok(()),
    }
}

/// Checks that the sector and metaslab sizes of a top-level vdev are possible.
fn check_top(config: &VdevConfig) -> Result<()> {
    let (ashift, ms_shift, asize) = (config.ashift, config.ms_shift, config.asize);
    if !(ASHIFT_MIN..=ASHIFT_MAX).contains(&ashift) {
        return Err(Error::corrupt(format!("ashift is {ashift}")));
    }
    let count = if ms_shift == 0 { 0 } else { asize >> ms_shift };
    if count > METASLABS_MAX || config.ms_array != 0 && ms_shift < ashift {
        return Err(Error::corrupt(format!(
            "metaslab_shift is {ms_shift}: {count} metaslabs in asize {asize}"
        )));
    }
    Ok(())
}

fn missing(key: &str) -> Error {
    Error::corrupt(format!("vdev config without {key}"))
}

/// A shift that is stored in a config as a 64-bit number.
fn shift(nv: &NvList, key: &str) -> Result<u32> {
    let value = nv.get_u64(key).unwrap_or(0);
    u32::try_from(value)
        .ok()
        .filter(|shift| *shift < u64::BITS)
        .ok_or_else(|| Error::corrupt(format!("{key} is {value}")))
}

fn parse_facts(nv: &NvList, kind: VdevKind) -> Result<VdevConfig> {
    // Only a RAID-Z is expanded, whatever else has the keys of it.
    let raidz = Some(nv).filter(|_| matches!(kind, VdevKind::RaidZ { .. }));
    let text = |key| nv.get_str(key).map(str::to_owned);
    let number = |key| nv.get_u64(key).unwrap_or(0);
    let flag = |key| nv.get_u64(key).unwrap_or(0) != 0;
    Ok(VdevConfig {
        path: text("path"),
        devid: text("devid"),
        phys_path: text("phys_path"),
        enc_sysfs_path: text("vdev_enc_sysfs_path"),
        fru: text("fru"),
        whole_disk: nv.get_u64("whole_disk").map(|whole| whole != 0),
        is_rotational: false,
        not_present: flag("not_present"),
        is_spare: flag("is_spare"),
        ms_array: number("metaslab_array"),
        ms_shift: shift(nv, "metaslab_shift")?,
        ashift: shift(nv, "ashift")?,
        asize: number("asize"),
        is_log: flag("is_log"),
        non_allocating: flag("non_allocating"),
        expand_txgs: raidz
            .and_then(|nv| nv.get_u64s(RAIDZ_EXPAND_TXGS))
            .map(<[u64]>::to_vec)
            .unwrap_or_default(),
        expanding: raidz.is_some_and(|nv| nv.contains(RAIDZ_EXPANDING)),
        removing: flag("removing"),
        alloc_bias: nv
            .get_str("alloc_bias")
            .map(AllocClass::from_word)
            .unwrap_or_default(),
        top_zap: number("com.delphix:vdev_zap_top"),
        leaf_zap: number("com.delphix:vdev_zap_leaf"),
        root_zap: number("com.klarasystems:vdev_zap_root"),
        dtl_object: number("DTL"),
        indirect_object: number("com.delphix:indirect_object"),
        indirect_births: number("com.delphix:indirect_births"),
        prev_indirect_vdev: nv.get_u64("com.delphix:prev_indirect_vdev").map(VdevId),
        create_txg: number("create_txg"),
        offline: flag("offline"),
        offline_temporarily: false,
        resilver_txg: number("resilver_txg"),
        rebuild_txg: number("rebuild_txg"),
        unspare: flag("unspare"),
        resilver_deferred: nv.contains("com.datto:resilver_defer"),
        orig_guid: number("orig_guid"),
    })
}

/// Restores the states that survive an import: only those that the administrator asked for. A device
/// that failed before may work in another machine, or with better cables.
fn restore_state(nv: &NvList, vdev: &Vdev) {
    if nv.get_u64("offline").is_some_and(|offline| offline != 0) {
        vdev.leaf().set_state(VdevState::Offline, VdevAux::None);
    } else if nv.get_str("aux_state") == Some("external") {
        vdev.leaf().set_state(VdevState::Faulted, VdevAux::External);
    }
}

/// What a config says about a pool, other than its vdevs.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// The version; 5000 with feature flags.
    pub version: u64,
    /// The pool's name.
    pub name: String,
    /// The state of the pool when the label was written.
    pub state: crate::PoolState,
    /// The pool's guid.
    pub guid: Guid,
    /// Known past corruption (`zpool_errata_t`); 0.
    pub errata: u64,
    /// The pool's comment.
    pub comment: Option<String>,
    /// The names of its feature sets.
    pub compatibility: Option<String>,
    /// The host that uses the pool; 0 if it has none.
    pub hostid: u64,
    /// The name of that host.
    pub hostname: String,
    /// Features without which the MOS cannot be read.
    pub features_for_read: NvList,
    /// The devices that are being split off, by the numbers of their top-level vdevs; 0 where there is none.
    pub split_list: Vec<u64>,
    /// The pool that this one was split off from, until it is opened the next time.
    pub split_from: Option<Guid>,
}

impl PoolConfig {
    /// What the MOS says of a split.
    fn split_config(&self) -> Option<NvList> {
        if !self.split_list.is_empty() {
            return Some(NvList::new().with(SPLIT_LIST, self.split_list.clone()));
        }
        let from = self.split_from?;
        Some(NvList::new().with(SPLIT_GUID, from.0))
    }
}

impl VdevTree {
    /// The whole pool's config, for the MOS and the cache file.
    #[must_use]
    #[doc(alias = "spa_config_generate")]
    pub fn pool_config(&self, pool: &PoolConfig, txg: u64) -> NvList {
        let root = self.root();
        let mut nv = self.pool_facts(pool, txg);
        if let Some(split) = pool.split_config() {
            nv.add(SPLIT, split);
        }
        nv.add_flag("com.delphix:has_per_vdev_zaps");
        self.add_namespace(&mut nv);
        add_nonzero(
            &mut nv,
            SPLIT_GUID,
            pool.split_from.map_or(0, |guid| guid.0),
        );
        nv.add("vdev_tree", root.generate_config(0, 0, Target::Mos));
        nv.add("features_for_read", pool.features_for_read.clone());
        nv
    }

    /// The label of one leaf below the top-level vdev `id`.
    #[must_use]
    pub(crate) fn label_config(
        &self,
        pool: &PoolConfig,
        txg: u64,
        id: VdevId,
        leaf: &Vdev,
    ) -> NvList {
        let top = self
            .top(id)
            .expect("labels are written for vdevs of the tree");
        let mut nv = self.pool_facts(pool, txg);
        nv.add("top_guid", top.guid().0);
        nv.add("guid", leaf.guid().0);
        add_if(&mut nv, "is_spare", leaf.config().is_spare);
        add_if(&mut nv, "is_log", top.config().is_log);
        self.add_namespace(&mut nv);
        add_nonzero(
            &mut nv,
            SPLIT_GUID,
            pool.split_from.map_or(0, |guid| guid.0),
        );
        nv.add("vdev_tree", top.generate_config(id.0, 1, Target::Label));
        nv.add("features_for_read", pool.features_for_read.clone());
        nv
    }

    fn pool_facts(&self, pool: &PoolConfig, txg: u64) -> NvList {
        let mut nv = NvList::new();
        nv.add("version", pool.version);
        nv.add("name", pool.name.as_str());
        nv.add("state", pool.state.raw());
        nv.add("txg", txg);
        nv.add("pool_guid", pool.guid.0);
        nv.add("errata", pool.errata);
        add_str(&mut nv, "comment", pool.comment.as_deref());
        add_str(&mut nv, "compatibility", pool.compatibility.as_deref());
        add_nonzero(&mut nv, "hostid", pool.hostid);
        nv.add("hostname", pool.hostname.as_str());
        nv
    }

    /// How many top-level vdevs there are, and which of their numbers are not in use.
    #[doc(alias = "vdev_top_config_generate")]
    fn add_namespace(&self, nv: &mut NvList) {
        let tops = self.tops();
        let is_hole = |(_, top): &(usize, &Arc<Vdev>)| top.kind() == VdevKind::Hole;
        let holes: Vec<u64> = tops
            .iter()
            .enumerate()
            .filter(is_hole)
            .map(|(id, _)| id as u64)
            .collect();
        if !holes.is_empty() {
            nv.add("hole_array", holes);
        }
        nv.add("vdev_children", tops.len() as u64);
    }
}
