//! The space of all vdevs, as the MOS has it, goes to the allocator.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Error, ObjectId, Result, VdevId};
use dmu::Objset;
use metaslab::Metaslabs;
use vdev::VdevTree;

use crate::core::HalfOpen;
use crate::create::geometry;
use crate::features::Features;
use crate::space_maps::SpaceMaps;

/// Passes the space maps of every vdev to the allocator.
pub(super) fn open_space(
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
