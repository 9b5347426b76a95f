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

use base::{Error, ObjectId, Result, Txg};
use dmu::Tx;
use metaslab::{SpaceMapStore, for_each_range};
use phys::space_map::{Encoder, MapType, SpaceMapRange};
use vdev::{TxgSet, Vdev, VdevTree};

use crate::spa::Inner;
use crate::space_maps::SpaceMaps;

/// `zfs_vdev_dtl_sm_blksz`
const BLOCK_BYTES: u32 = 4096;
/// The most ranges of a DTL: one that came and went every few txgs for years.
const RANGES_MAX: usize = 1 << 22;

impl Inner {
    /// Writes the DTLs that changed. In the first pass.
    #[doc(alias = "vdev_dtl_sync")]
    pub(crate) fn sync_dtls(&self, tx: &Tx) -> Result<()> {
        for device in self.tree.devices() {
            let dtl = device.leaf().dtl();
            let object = device.config().dtl_object;
            let known = self.state.lock().dtls.get(&object).cloned();
            if dtl == known.unwrap_or_default() {
                continue;
            }
            let object = self.write_dtl(&device, dtl.ranges(), tx)?;
            self.state.lock().dtls.insert(object.0, dtl);
        }
        Ok(())
    }

    fn write_dtl(
        &self,
        device: &Arc<Vdev>,
        txgs: &[std::ops::Range<u64>],
        tx: &Tx,
    ) -> Result<ObjectId> {
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
        self.maps.set_phys(tx.txg(), object, &phys)?;
        Ok(object)
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
        for txgs in read_dtl(maps, ObjectId(object), synced)?.ranges() {
            device.leaf().dirty_dtl(txgs.clone());
        }
    }
    Ok(())
}

/// The txgs up to `synced` in a DTL, all of them: writes of those that were left out would never be
/// resilvered.
fn read_dtl(maps: &dyn SpaceMapStore, object: ObjectId, synced: Txg) -> Result<TxgSet> {
    let (found, phys) = maps.open(object)?;
    let mut ranges = Vec::new();
    for_each_range(maps, &found, phys.length.get(), &mut |range| {
        let end = range.offset.saturating_add(range.run).min(synced.0 + 1);
        if range.offset < end {
            ranges.push(range.offset..end);
        }
        if ranges.len() > RANGES_MAX {
            let what = format!("DTL {object} has more than {RANGES_MAX} ranges");
            return Err(Error::corrupt(what));
        }
        Ok(())
    })?;
    // They are in order unless another program wrote them; a set takes them fast only in order.
    ranges.sort_unstable_by_key(|range| range.start);
    let mut missing = TxgSet::default();
    ranges.into_iter().for_each(|range| missing.add(range));
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{MetaslabId, VdevId};
    use metaslab::SpaceMapObject;
    use phys::space_map::SpaceMapPhys;

    /// One space map with these entries.
    struct Entries(Vec<u8>);

    impl SpaceMapStore for Entries {
        fn create(&self, _: Txg, _: VdevId, _: MetaslabId) -> Result<SpaceMapObject> {
            unreachable!()
        }
        fn open(&self, object: ObjectId) -> Result<(SpaceMapObject, SpaceMapPhys)> {
            let mut phys = SpaceMapPhys::default();
            phys.length.set(self.0.len() as u64);
            let found = SpaceMapObject {
                object,
                block_bytes: BLOCK_BYTES,
                has_histogram: true,
            };
            Ok((found, phys))
        }
        fn read(&self, _: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
            buf.copy_from_slice(&self.0[offset as usize..][..buf.len()]);
            Ok(())
        }
        fn write(&self, _: Txg, _: ObjectId, _: u64, _: &[u8]) -> Result<()> {
            unreachable!()
        }
        fn set_phys(&self, _: Txg, _: ObjectId, _: &SpaceMapPhys) -> Result<()> {
            unreachable!()
        }
        fn truncate(
            &self,
            _: Txg,
            _: VdevId,
            _: MetaslabId,
            _: ObjectId,
        ) -> Result<SpaceMapObject> {
            unreachable!()
        }
    }

    #[test]
    fn a_long_dtl_is_read_to_its_end() {
        let mut encoder = Encoder::new(0, u64::from(BLOCK_BYTES), true);
        let ranges = 200_000;
        for at in 0..ranges {
            encoder.range(&SpaceMapRange {
                map_type: MapType::Alloc,
                vdev: None,
                offset: at * 2,
                run: 1,
            });
        }
        let maps = Entries(encoder.finish());
        assert!(maps.0.len() > 1 << 20);
        let last = (ranges - 1) * 2;
        let missing = read_dtl(&maps, ObjectId(1), Txg(last)).unwrap();
        assert_eq!(missing.ranges().len() as u64, ranges);
        assert!(missing.contains(Txg(last)));
        let earlier = read_dtl(&maps, ObjectId(1), Txg(3)).unwrap();
        assert_eq!(earlier.ranges(), [0..1, 2..3]);
    }
}
