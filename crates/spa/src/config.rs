//! The pool's config: one nvlist that describes the pool and its vdevs.
//!
//! # On disk
//! The MOS has all of it, packed (XDR) in the object `config`, whose bonus is its length; a
//! device's label has it with the tree of its own top-level vdev only; a cachefile has all of it.
//! `com.delphix:vdev_zap_map` is a ZAP that names a ZAP for every top-level vdev and every leaf.
//!
//! # Source
//! OpenZFS `module/zfs/spa_config.c` (`spa_config_generate`), `module/zfs/spa.c`
//! (`spa_sync_config_object`, `spa_sync_nvlist`), `module/zfs/vdev.c` (`vdev_construct_zaps`).

use phys::pool_names;
use std::sync::Arc;

use base::{Error, ObjectId, Result, VdevId, align_up};
use dmu::{Objset, Tx};
use nvpair::NvList;
use phys::ObjectType;
use phys::uberblock::{SPA_VERSION_FEATURES, UberblockPhys};
use vdev::{LabelSync, PoolConfig, VdevKind};
use zio::AllocClass;

use crate::spa::Inner;
use zap::directory;

/// `SPA_CONFIG_BLOCKSIZE`
pub(crate) const BLOCK_BYTES: u64 = 1 << 14;
/// Feature: the root vdev has a ZAP of its own.
const AVZ_V2: &str = "com.klarasystems:vdev_zaps_v2";
/// Longer packed nvlists are treated as corrupt.
const PACKED_MAX_BYTES: u64 = 64 << 20;

impl Inner {
    /// Writes the config into the MOS if it changed.
    #[doc(alias = "spa_sync_config_object")]
    pub(crate) fn sync_config(&self, tx: &Tx) -> Result<()> {
        if !self.state.lock().config_dirty {
            return Ok(());
        }
        self.construct_zaps(tx)?;
        let config = self.tree.pool_config(&self.pool_facts(), tx.txg().0);
        let object = self.state.lock().config_object;
        write_packed(&self.mos, object, &config, tx)?;
        let mut state = self.state.lock();
        state.config = config;
        state.list_aux();
        state.config_dirty = false;
        state.labels_dirty = true;
        Ok(())
    }

    /// Creates the ZAPs of vdevs that have none yet.
    fn construct_zaps(&self, tx: &Tx) -> Result<()> {
        let map = self.state.lock().vdev_zaps;
        let map = match map {
            Some(map) => map,
            None => {
                let type_ = ObjectType::N_ZAP_METADATA;
                let map = directory::create_link(&self.mos, type_, pool_names::VDEV_ZAP_MAP, tx)?;
                self.state.lock().vdev_zaps = Some(map);
                map
            }
        };
        self.construct_root_zap(map, tx)?;
        for top in self.tree.tops() {
            if matches!(top.kind(), VdevKind::Hole | VdevKind::Missing) {
                continue;
            }
            if top.config().top_zap == 0 {
                let zap = self.create_vdev_zap(map, tx)?;
                top.update(|config| config.top_zap = zap.0);
                let bias = top.config().alloc_bias;
                if let Some(word) = bias.word() {
                    zap::update_str(
                        &self.mos,
                        tx,
                        zap,
                        pool_names::VDEV_TOP_ZAP_ALLOCATION_BIAS,
                        word,
                    )?;
                }
                if matches!(top.kind(), VdevKind::Draid(_)) {
                    self.features().adjust(phys::feature::DRAID, 1, tx)?;
                }
                if matches!(bias, AllocClass::Special | AllocClass::Dedup) {
                    self.features()
                        .adjust(phys::feature::ALLOCATION_CLASSES, 1, tx)?;
                }
            }
            for leaf in top.devices() {
                if leaf.config().leaf_zap == 0 {
                    let zap = self.create_vdev_zap(map, tx)?;
                    leaf.update(|config| config.leaf_zap = zap.0);
                }
            }
        }
        Ok(())
    }

    /// Creates the ZAP of the root vdev if the feature is enabled, which makes it active.
    fn construct_root_zap(&self, map: ObjectId, tx: &Tx) -> Result<()> {
        let root = self.tree.root();
        let features = self.features();
        let Some(count) = features.count(AVZ_V2) else {
            return Ok(());
        };
        if root.config().root_zap != 0 {
            return Ok(());
        }
        if count == 0 {
            features.adjust(AVZ_V2, 1, tx)?;
        }
        let zap = self.create_vdev_zap(map, tx)?;
        root.update(|config| config.root_zap = zap.0);
        Ok(())
    }

    fn create_vdev_zap(&self, map: ObjectId, tx: &Tx) -> Result<ObjectId> {
        let zap = zap::create(&self.mos, tx, ObjectType::N_ZAP_METADATA)?;
        zap::update(&self.mos, tx, map, &*format!("{:x}", zap.0), &[zap.0])?;
        Ok(zap)
    }

    /// Destroys the ZAP of a vdev that leaves the pool.
    #[doc(alias = "vdev_destroy_unlink_zap")]
    pub(crate) fn destroy_vdev_zap(&self, zap: ObjectId, tx: &Tx) -> Result<()> {
        self.sweeps.forget(zap);
        let map = self.state.lock().vdev_zaps;
        if let Some(map) = map {
            zap::remove(&self.mos, tx, map, &*format!("{:x}", zap.0))?;
        }
        zap::destroy(&self.mos, tx, zap)
    }

    /// The parts of the config other than the vdevs.
    pub(crate) fn pool_facts(&self) -> PoolConfig {
        let state = self.state.lock();
        PoolConfig {
            version: SPA_VERSION_FEATURES,
            name: state.name_on_disk.clone(),
            state: state.pool_state,
            guid: self.tree.root().guid(),
            errata: 0,
            comment: state.comment.clone(),
            compatibility: state.compatibility.clone(),
            hostid: self.host.id,
            hostname: self.host.name.clone(),
            features_for_read: self.features().label_list(),
            split_list: state.split_list.clone(),
            split_from: state.split_from,
        }
    }

    /// Writes the uberblock and, with `all`, all labels, in the safe order.
    pub(crate) fn write_labels(&self, uberblock: &UberblockPhys, all: bool) -> Result<()> {
        let txg = uberblock.txg();
        let tops = self.tree.tops().len() as u64;
        let dirty: Vec<VdevId> = if all {
            (0..tops).map(VdevId).collect()
        } else {
            Vec::new()
        };
        self.tree.sync_labels(&LabelSync {
            pool: &self.pool_facts(),
            txg,
            uberblock,
            dirty: &dirty,
            multihost: self.mmp.is_on(),
        })
    }
}

/// Packs `list` into `object` and stores its length in the bonus.
#[doc(alias = "spa_sync_nvlist")]
pub(crate) fn write_packed(
    mos: &Arc<Objset>,
    object: ObjectId,
    list: &NvList,
    tx: &Tx,
) -> Result<()> {
    let mut packed = nvpair::encode_xdr(list);
    let length = packed.len() as u64;
    packed.resize(align_up(length, BLOCK_BYTES) as usize, 0);
    let dnode = mos.hold(object)?;
    dnode.write(tx, 0, &packed)?;
    dnode.set_bonus(tx, &length.to_le_bytes())
}

/// Reads a packed nvlist.
///
/// # Errors
/// `Corrupt` when the object is not a packed nvlist.
#[doc(alias = "load_nvlist")]
pub fn read_packed(mos: &Arc<Objset>, object: ObjectId) -> Result<NvList> {
    let dnode = mos.hold(object)?;
    let bonus = dnode.bonus();
    let length = bonus
        .first_chunk::<8>()
        .map(|word| u64::from_le_bytes(*word));
    let length = length.filter(|length| (1..=PACKED_MAX_BYTES).contains(length));
    let length = length
        .ok_or_else(|| Error::corrupt(format!("object {object}: bonus of a packed nvlist")))?;
    let mut packed = vec![0; length as usize];
    dnode.read(0, &mut packed)?;
    nvpair::decode(&packed)
}
