//! Splitting mirrors: one device of each becomes part of another pool.
//!
//! # What it is
//! The new pool has one device where the old one has a mirror, and a hole where it has a log device. Labels of the new
//! pool name the old one (`split_guid`), so that its devices are not taken for missing ones.
//!
//! # Crash argument
//! Labels 0 and 2 of all devices of the new pool are on disk before its first uberblock, labels 1 and 3 are written
//! after that. So a device whose labels name both pools is one of the new pool if any of its devices has an uberblock
//! that is not older than the labels, and one of the old pool otherwise. The old pool does not write to the devices
//! meanwhile; where it took them back, its labels are the newer ones.
//!
//! # Source
//! OpenZFS `module/zfs/spa.c` (`spa_vdev_split_mirror`), `module/zfs/vdev.c` (`vdev_split`, `vdev_validate`).

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Error, ErrorKind, Guid, Result, Txg};
use nvpair::NvList;

use crate::config::SPLIT_GUID;
use crate::import::FoundDevice;
use crate::label::{Label, Labels};
use crate::shape::{parent_of, top_facts};
use crate::{Target, Vdev, VdevConfig, VdevKind, VdevState, VdevTree};

impl VdevTree {
    /// The tree of a new pool of these devices, one of each mirror, as a config with holes for what it lacks. Also
    /// the device of each top-level vdev that is not a hole at the end; `None` for those that have none.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a device that is not there; [`ErrorKind::InvalidInput`] unless each top-level vdev
    /// that is not a log is a mirror, and exactly one healthy side of it is given; [`ErrorKind::Busy`] if a side lacks
    /// something, or all others do.
    #[doc(alias = "spa_vdev_split_mirror")]
    pub fn split_config(
        &self,
        devices: &[Guid],
        pool: Guid,
    ) -> Result<(NvList, Vec<Option<Arc<Vdev>>>)> {
        let root = self.root();
        let found: Result<Vec<_>> = devices.iter().map(|guid| self.find_device(*guid)).collect();
        let mut left = found?;
        let mut children = Vec::new();
        let mut sides = Vec::new();
        for (id, top) in (0..).zip(self.tops()) {
            if top.config().is_log || matches!(top.kind(), VdevKind::Hole | VdevKind::Missing) {
                children.push(hole(id));
                sides.push(None);
                continue;
            }
            if !top.kind().is_concrete() {
                children.push(top.generate_config(id, 1, Target::Mos));
                sides.push(None);
                continue;
            }
            let at = left.iter().position(|(_, have)| Arc::ptr_eq(have, &top));
            let at =
                at.ok_or_else(|| Error::invalid(format!("no side of {} is given", top.name())))?;
            let (side, _) = left.swap_remove(at);
            check_side(&root, &top, &side)?;
            children.push(side_config(&top, &side, id));
            sides.push(Some(side));
        }
        if let Some((device, _)) = left.first() {
            let text = format!(
                "{}: one device of each mirror can be split off",
                device.name()
            );
            return Err(Error::invalid(text));
        }
        while children.last().is_some_and(is_hole) {
            children.pop();
            sides.pop();
        }
        let root = NvList::new()
            .with("type", VdevKind::Root.word())
            .with("id", 0u64)
            .with("guid", pool.0)
            .with("create_txg", root.config().create_txg)
            .with("com.klarasystems:vdev_zap_root", root.config().root_zap)
            .with("children", children);
        Ok((root, sides))
    }
}

fn hole(id: u64) -> NvList {
    NvList::new()
        .with("type", VdevKind::Hole.word())
        .with("id", id)
        .with("guid", 0u64)
}

fn is_hole(config: &NvList) -> bool {
    config.get_str("type") == Some(VdevKind::Hole.word())
}

fn check_side(root: &Arc<Vdev>, top: &Arc<Vdev>, side: &Arc<Vdev>) -> Result<()> {
    let parent = parent_of(root, side).expect("it is below the root");
    let is_fit = Arc::ptr_eq(&parent, top)
        && top.kind() == VdevKind::Mirror
        && side.leaf().state().0 == VdevState::Healthy
        && !side.config().is_spare;
    if !is_fit {
        let text = format!("{} is not a healthy side of a mirror", side.name());
        return Err(Error::invalid(text));
    }
    if side.leaf().has_dtl() || !top.can_do_without(side) {
        let text = format!("{}: it, or all others, lack some data", side.name());
        return Err(Error::new(ErrorKind::Busy, text));
    }
    Ok(())
}

/// The side as a top-level vdev, with what is known of its mirror as such.
fn side_config(top: &Vdev, side: &Vdev, id: u64) -> NvList {
    let of_side = side.config().clone();
    let config = VdevConfig {
        path: of_side.path,
        devid: of_side.devid,
        phys_path: of_side.phys_path,
        enc_sysfs_path: of_side.enc_sysfs_path,
        fru: of_side.fru,
        whole_disk: of_side.whole_disk,
        leaf_zap: of_side.leaf_zap,
        dtl_object: of_side.dtl_object,
        create_txg: of_side.create_txg,
        ..top_facts(&top.config())
    };
    let alone = Vdev::new(side.kind(), side.guid(), config, Vec::new());
    alone.generate_config(id, 1, Target::Mos)
}

/// What the valid labels of a device say of two pools, one of which was split off from the other.
struct Torn {
    new: Guid,
    old: Guid,
    /// The newest label of each.
    new_txg: u64,
    old_txg: u64,
}

fn guid_in(config: &NvList, key: &str) -> Option<Guid> {
    config.get_u64(key).map(Guid)
}

/// The newest label of this pool.
fn newest(labels: &Labels, pool: Guid) -> Option<u64> {
    let configs = labels.readable().filter_map(Label::valid_config);
    let of_pool = configs.filter(|config| guid_in(config, "pool_guid") == Some(pool));
    of_pool.filter_map(|config| config.get_u64("txg")).max()
}

/// The pools that this device was split off into, with the pools that they are from.
fn splits(labels: &Labels) -> BTreeSet<(Guid, Guid)> {
    let configs = labels.readable().filter_map(Label::valid_config);
    let split = |config| guid_in(config, "pool_guid").zip(guid_in(config, SPLIT_GUID));
    configs.filter_map(split).collect()
}

fn torn(labels: &Labels) -> Option<Torn> {
    splits(labels).into_iter().find_map(|(new, old)| {
        Some(Torn {
            new,
            old,
            new_txg: newest(labels, new)?,
            old_txg: newest(labels, old)?,
        })
    })
}

/// Decides to which pool devices belong whose labels name two, since the power failed while one was split off.
pub(crate) fn settle(devices: &mut [FoundDevice]) {
    let torn: Vec<Option<Torn>> = devices.iter().map(|device| torn(&device.labels)).collect();
    if torn.iter().all(Option::is_none) {
        return;
    }
    let has_begun = |device: &FoundDevice, new: Guid| {
        let last = device.uberblock.map_or(Txg(0), |uberblock| uberblock.txg());
        newest(&device.labels, new).is_some_and(|written| last.0 >= written)
    };
    let begun: BTreeSet<Guid> = torn
        .iter()
        .flatten()
        .map(|torn| torn.new)
        .filter(|new| devices.iter().any(|device| has_begun(device, *new)))
        .collect();
    for (device, torn) in devices.iter_mut().zip(torn) {
        let Some(torn) = torn else { continue };
        let is_new = torn.new_txg > torn.old_txg && begun.contains(&torn.new);
        let other = if is_new { torn.old } else { torn.new };
        device.labels.forget_pool(other);
        device.uberblock = device.labels.best_uberblock(Txg(u64::MAX));
    }
}
