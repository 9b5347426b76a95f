//! Which ranges of removed vdevs no block refers to any more.
//!
//! # On disk
//! A space map named by the vdev's ZAP: its entries count bytes of the vdev, whatever its sectors are. It exists
//! once there is an obsolete range, in pools with the feature `obsolete_counts`.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_indirect.c` (`vdev_indirect_sync_obsolete`).

use base::{ObjectId, Result, VdevId};
use dmu::Tx;
use metaslab::{RangeTree, SpaceMapExtent, SpaceMapStore, append_tree};
use phys::feature::OBSOLETE_COUNTS;
use phys::pool_names::VDEV_TOP_ZAP_OBSOLETE_SM;
use phys::space_map::MapType;

use crate::spa::Inner;

/// `zfs_vdev_standard_sm_blksz`: bytes of a block of the space map.
const BLOCK_BYTES: u32 = 1 << 17;

impl Inner {
    /// Appends the ranges that became obsolete in this pass to the space maps.
    pub(super) fn sync_obsolete(&self, tx: &Tx) -> Result<()> {
        let obsolete = std::mem::take(&mut self.removal.state.lock().obsolete);
        if self.features().count(OBSOLETE_COUNTS).is_none() {
            return Ok(());
        }
        for (vdev, ranges) in obsolete {
            self.append_obsolete(vdev, &ranges, tx)?;
        }
        Ok(())
    }

    fn append_obsolete(&self, vdev: VdevId, ranges: &RangeTree, tx: &Tx) -> Result<()> {
        let top = self
            .tree
            .top(vdev)
            .expect("it was a vdev when it was freed");
        let (zap, asize) = {
            let config = top.config();
            (ObjectId(config.top_zap), config.asize)
        };
        let object = match self.obsolete_map(vdev)? {
            Some(object) => object,
            None => {
                let object = self.maps.alloc(BLOCK_BYTES, tx)?.object;
                zap::update(&self.mos, tx, zap, VDEV_TOP_ZAP_OBSOLETE_SM, &[object.0])?;
                self.features().adjust(OBSOLETE_COUNTS, 1, tx)?;
                object
            }
        };
        let extent = SpaceMapExtent {
            start: 0,
            size: asize,
            shift: 0,
        };
        let two_words = self.space.options().spacemap_v2;
        let (found, mut phys) = self.maps.open(object)?;
        let length = phys.length.get();
        let bytes = append_tree(
            &found,
            length,
            &extent,
            tx.txg(),
            MapType::Alloc,
            ranges,
            two_words,
        );
        self.maps.write(tx.txg(), object, length, &bytes)?;
        phys.object.set(object.0);
        phys.length.set(length + bytes.len() as u64);
        phys.alloc.set(phys.alloc.get() + ranges.space() as i64);
        self.maps.set_phys(tx.txg(), object, &phys)
    }

    /// The space map of the obsolete ranges of a vdev, if there is one.
    #[doc(alias = "vdev_obsolete_sm_object")]
    pub(super) fn obsolete_map(&self, vdev: VdevId) -> Result<Option<ObjectId>> {
        let top = self.tree.top(vdev);
        let zap = top.map_or(0, |top| top.config().top_zap);
        if zap == 0 {
            return Ok(None);
        }
        let found = zap::lookup_u64(&self.mos, ObjectId(zap), VDEV_TOP_ZAP_OBSOLETE_SM)?;
        Ok(found.filter(|object| *object != 0).map(ObjectId))
    }
}
