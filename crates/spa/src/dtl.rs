//! Dirty time logs in the MOS: the txgs that each device missed, kept across imports.
//!
//! # On disk
//! A leaf's config names the object of a space map whose "offsets" are txgs: an allocated
//! segment is a range of txgs in which writes to the device were missed.
//!
//! # Invariants
//! 1. When a device's DTL grows, its object is written before the uberblock of that txg: no later
//!    import can take the device for complete.
//!
//! # Source
//! OpenZFS `module/zfs/vdev.c` (`vdev_dtl_sync`, `vdev_dtl_load`).

use std::sync::Arc;

use base::{ObjectId, Result, Txg};
use dmu::Tx;
use metaslab::SpaceMapStore;
use phys::space_map::{Encoder, MapType, SpaceMapEntry, SpaceMapRange, entries};
use vdev::{Vdev, VdevTree};

use crate::spa::Inner;
use crate::space_maps::SpaceMaps;

/// `zfs_vdev_dtl_sm_blksz`
const BLOCK_BYTES: u32 = 4096;

impl Inner {
    /// Writes the DTLs that changed. In the first pass.
    #[doc(alias = "vdev_dtl_sync")]
    pub(crate) fn sync_dtls(&self, tx: &Tx) -> Result<()> {
        for device in self.tree.devices() {
            let dtl = device.leaf().dtl();
            let known = self
                .state
                .lock()
                .dtls
                .get(&device.guid())
                .cloned()
                .unwrap_or_default();
            if dtl == known {
                continue;
            }
            self.write_dtl(&device, dtl.ranges(), tx)?;
            self.state.lock().dtls.insert(device.guid(), dtl);
        }
        Ok(())
    }

    fn write_dtl(&self, device: &Arc<Vdev>, txgs: &[std::ops::Range<u64>], tx: &Tx) -> Result<()> {
        let object = device.config().dtl_object;
        let object = if object == 0 {
            let object = self.maps.alloc(BLOCK_BYTES, tx)?.object;
            device.update(|config| config.dtl_object = object.0);
            self.state.lock().config_dirty = true;
            object
        } else {
            ObjectId(object)
        };
        let mut encoder = Encoder::new(0, u64::from(BLOCK_BYTES), true);
        let mut total = 0;
        for range in txgs {
            let run = range.end - range.start;
            total += run;
            let map_type = MapType::Alloc;
            encoder.range(&SpaceMapRange {
                map_type,
                vdev: None,
                offset: range.start,
                run,
            });
        }
        let bytes = encoder.finish();
        let (_, mut phys) = self.maps.open(object)?;
        self.mos.hold(object)?.free_range(tx, 0, u64::MAX)?;
        self.maps.write(tx.txg(), object, 0, &bytes)?;
        phys.object.set(object.0);
        phys.length.set(bytes.len() as u64);
        phys.alloc.set(total as i64);
        self.maps.set_phys(tx.txg(), object, &phys)
    }
}

/// Loads each device's DTL into the tree. A DTL may contain txgs later than the one in which it was
/// written, since writes of open txgs may be missed, too; txgs after `synced` were never committed,
/// and their numbers are reused.
#[doc(alias = "vdev_dtl_load")]
pub(crate) fn load_dtls(tree: &VdevTree, maps: &SpaceMaps, synced: Txg) -> Result<()> {
    for device in tree.devices() {
        let object = device.config().dtl_object;
        if object == 0 {
            continue;
        }
        let object = ObjectId(object);
        let (_, phys) = maps.open(object)?;
        let length = phys.length.get().min(1 << 20);
        let mut bytes = vec![0; length as usize];
        maps.read(object, 0, &mut bytes)?;
        for entry in entries(&bytes) {
            if let SpaceMapEntry::Range(range) = entry? {
                let end = range.offset.saturating_add(range.run).min(synced.0 + 1);
                if range.offset < end {
                    device.leaf().dirty_dtl(range.offset..end);
                }
            }
        }
    }
    Ok(())
}
