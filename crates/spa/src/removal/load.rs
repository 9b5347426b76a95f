//! Reading the mappings of a pool when it is opened.
//!
//! # Invariants
//! 1. Mappings are read from that of the vdev that was removed last to that of the first one: an older mapping may
//!    be on a vdev that was removed after it.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_removal.c` (`spa_remove_init`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Context, Error, ObjectId, Result, VdevId};
use dmu::Objset;
use metaslab::RangeTree;
use nvpair::NvList;
use phys::pool_names;
use phys::scan::RemovingPhys;
use vdev::{Vdev, VdevKind, VdevTree};
use zap::directory;
use zerocopy::IntoBytes;

use super::condense::Condensing;
use super::{Active, NO_VDEV, Removal, State, is_scanning, object};

/// Whether a config has vdevs that were removed.
pub(crate) fn has_removed(config: &NvList) -> bool {
    let tops = config
        .get_list("vdev_tree")
        .and_then(|root| root.get_lists("children"));
    let is_removed = |top: &NvList| top.get_str("type") == Some(VdevKind::Indirect.word());
    tops.is_some_and(|tops| tops.iter().any(is_removed))
}

/// Reads the mappings of all removed vdevs into the tree.
pub(crate) fn load_mappings(mos: &Arc<Objset>, tree: &VdevTree) -> Result<()> {
    let Some(phys) = read_phys(mos)? else {
        return Ok(());
    };
    let mut next = phys.prev_indirect_vdev.get();
    for _ in 0..tree.tops().len() {
        if next == NO_VDEV {
            return Ok(());
        }
        let top = find(tree, VdevId(next))?;
        if top.kind() != VdevKind::Indirect {
            let what = format!("vdev {next} was removed, but is a {}", top.kind().word());
            return Err(Error::corrupt(what));
        }
        let (object, births, before) = objects_of(&top);
        let mapping = object::read_mapping(mos, object, births);
        let mapping = mapping.within(|| format!("removed vdev {next}"))?;
        check_ranges(tree, VdevId(next), &mapping)?;
        top.set_mapping(Arc::new(mapping));
        next = before.map_or(NO_VDEV, |vdev| vdev.0);
    }
    if next == NO_VDEV {
        return Ok(());
    }
    Err(Error::corrupt(
        "removed vdevs lead to each other in a circle",
    ))
}

fn read_phys(mos: &Arc<Objset>) -> Result<Option<RemovingPhys>> {
    let words = zap::lookup::<u64>(mos, directory::OBJECT, pool_names::REMOVING)?;
    Ok(words.map(|words| {
        let mut phys = RemovingPhys::default();
        let bytes = words.as_bytes();
        let length = bytes.len().min(size_of::<RemovingPhys>());
        phys.as_mut_bytes()[..length].copy_from_slice(&bytes[..length]);
        phys
    }))
}

fn find(tree: &VdevTree, id: VdevId) -> Result<Arc<Vdev>> {
    let found = tree.top(id);
    found.ok_or_else(|| Error::corrupt(format!("vdev {id} was removed, but is not there")))
}

fn objects_of(top: &Vdev) -> (ObjectId, ObjectId, Option<VdevId>) {
    let config = top.config();
    (
        ObjectId(config.indirect_object),
        ObjectId(config.indirect_births),
        config.prev_indirect_vdev,
    )
}

/// Checks that each range of a mapping is within its vdev, and was copied into another one.
fn check_ranges(tree: &VdevTree, id: VdevId, mapping: &vdev::Mapping) -> Result<()> {
    let (tops, end) = (tree.tops(), mapping.max_offset());
    let own = tops.get(id.0 as usize).map_or(0, |top| top.config().asize);
    if end > own {
        let what = format!("vdev {id}: {end:#x} bytes are mapped of {own:#x}");
        return Err(Error::corrupt(what));
    }
    for entry in mapping.entries() {
        let (vdev, offset, size) = (entry.dst.vdev(), entry.dst.offset(), entry.size());
        let top = tops.get(vdev.0 as usize).filter(|_| vdev != id);
        let asize = top.map_or(0, |top| top.config().asize);
        if offset.checked_add(size).is_none_or(|end| end > asize) {
            let what = format!("vdev {id}: mapped to {offset:#x}+{size:#x} of vdev {vdev}");
            return Err(Error::corrupt(what));
        }
    }
    Ok(())
}

impl Removal {
    /// Reads the state of the last removal, whether it goes on or not. After the mappings.
    pub(crate) fn load(&self, mos: &Arc<Objset>) -> Result<()> {
        let Some(phys) = read_phys(mos)? else {
            return Ok(());
        };
        let mut active = None;
        if is_scanning(&phys) {
            let vdev = VdevId(phys.removing_vdev.get());
            let top = find(&self.tree, vdev)?;
            if !top.kind().is_concrete() {
                let what = format!(
                    "vdev {vdev} is being removed, but is a {}",
                    top.kind().word()
                );
                return Err(Error::corrupt(what));
            }
            let (mapping_object, births_object, _) = objects_of(&top);
            let mapping = object::read_mapping(mos, mapping_object, births_object)?;
            check_ranges(&self.tree, vdev, &mapping)?;
            let ms_shift = top.config().ms_shift;
            active = Some(Active {
                vdev,
                metaslab: mapping.max_offset() >> ms_shift,
                mapping,
                mapping_object,
                since: 0,
                births_object,
                pending: RangeTree::new(),
                done: 0,
            });
        }
        let has_removed = |top: &Arc<Vdev>| top.kind() == VdevKind::Indirect;
        let is_used = active.is_some() || self.tree.tops().iter().any(has_removed);
        *self.state.lock() = State {
            phys: Some(phys),
            active,
            obsolete: BTreeMap::new(),
            condensing: Condensing::load(mos)?,
        };
        self.is_used.store(is_used, Ordering::Relaxed);
        Ok(())
    }
}
