//! The checkpoint of a pool: what is known of one that OpenZFS made.
//!
//! # On disk
//! Entry `com.delphix:zpool_checkpoint` of the pool directory is the uberblock that the pool can be rewound to; it
//! goes when a discard begins, the feature stays active until its end. The ZAP of each top-level vdev names a space
//! map of what was freed since: free segments, so that `smp_alloc` is negative.
//!
//! # Source
//! OpenZFS `module/zfs/spa_checkpoint.c` (`spa_checkpoint_get_stats`), `module/zfs/spa.c`
//! (`spa_ld_read_checkpoint_txg`), `module/zfs/vdev.c` (`vdev_checkpoint_sm_object`).

use base::{Error, ObjectId, Result, VdevId};
use metaslab::SpaceMapStore;
use phys::feature::ZPOOL_CHECKPOINT;
use phys::pool_names;
use phys::uberblock::UberblockPhys;
use zap::directory;
use zerocopy::{FromBytes, IntoBytes};

use crate::FeatureState;
use crate::spa::Spa;

/// What is known of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "pool_checkpoint_stat_t")]
pub struct Checkpoint {
    /// When the checkpointed txg was synced, in seconds since 1970; `None` while the checkpoint is discarded.
    pub start_secs: Option<u64>,
    /// Bytes that only the checkpoint still refers to.
    pub bytes: u64,
}

impl Spa {
    /// The checkpoint, if the pool has one, or is discarding it.
    ///
    /// # Errors
    /// Errors of reading the MOS; `Corrupt` for an uberblock or space map that cannot be.
    #[doc(alias = "spa_checkpoint_get_stats")]
    pub fn checkpoint(&self) -> Result<Option<Checkpoint>> {
        if self.feature(ZPOOL_CHECKPOINT) != FeatureState::Active {
            return Ok(None);
        }
        let name = pool_names::ZPOOL_CHECKPOINT;
        let words = zap::lookup::<u64>(&self.inner.mos, directory::OBJECT, name)?;
        let start_secs = words.as_deref().map(start_of).transpose()?;
        let mut bytes: u64 = 0;
        for id in 0..self.inner.tree.tops().len() as u64 {
            bytes = bytes.saturating_add(self.checkpoint_bytes(VdevId(id))?);
        }
        Ok(Some(Checkpoint { start_secs, bytes }))
    }

    /// Bytes of a top-level vdev that only the checkpoint still refers to.
    ///
    /// # Errors
    /// As [`checkpoint`](Spa::checkpoint).
    #[doc(alias = "vs_checkpoint_space")]
    pub fn checkpoint_bytes(&self, vdev: VdevId) -> Result<u64> {
        let top = self.inner.tree.top(vdev);
        let (zap, asize) = top.map_or((0, 0), |top| {
            let config = top.config();
            (config.top_zap, config.asize)
        });
        if zap == 0 || self.feature(ZPOOL_CHECKPOINT) != FeatureState::Active {
            return Ok(0);
        }
        let name = pool_names::VDEV_TOP_ZAP_POOL_CHECKPOINT_SM;
        let found = zap::lookup_u64(&self.inner.mos, ObjectId(zap), name)?;
        let Some(object) = found.filter(|object| *object != 0) else {
            return Ok(0);
        };
        let (_, phys) = self.inner.maps.open(ObjectId(object))?;
        let alloc = phys.alloc.get();
        if alloc > 0 || alloc.unsigned_abs() > asize {
            let what =
                format!("smp_alloc of checkpoint space map {object} is {alloc}, of {asize} bytes");
            return Err(Error::corrupt(what));
        }
        Ok(alloc.unsigned_abs())
    }
}

/// The time in a checkpointed uberblock.
fn start_of(words: &[u64]) -> Result<u64> {
    UberblockPhys::read_from_prefix(words.as_bytes())
        .map(|(uberblock, _)| uberblock.timestamp.get())
        .map_err(|_| Error::corrupt("the checkpoint's uberblock is cut off"))
}
