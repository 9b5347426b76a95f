//! The checkpoint of a pool: a state that the whole pool can be rewound to.
//!
//! # What it is
//! Taking one notes the uberblock of the last txg. From then on a block that was allocated up to that txg is kept when
//! it is freed: it stays allocated, and is noted in a space map ([`Kept`]). Discarding the checkpoint frees what these
//! space maps have, a slice in each txg. Rewinding writes the noted uberblock with a txg of its own, which makes
//! everything since then forgotten: its blocks are free in the space maps of the checkpointed state.
//!
//! # On disk
//! Entry `com.delphix:zpool_checkpoint` of the pool directory is the uberblock that the pool can be rewound to; it
//! goes when a discard begins, the feature stays active until its end. The ZAP of each top-level vdev names a space
//! map of what was freed since: free segments, so that `smp_alloc` is negative. No segment crosses from one metaslab
//! into the next. An uberblock with a checkpoint's txg (`ub_checkpoint_txg`) was written by a rewind, and is followed
//! by one without it.
//!
//! # Invariants
//! 1. While there is a checkpoint, nothing that it refers to is free.
//! 2. While there is one, or it is discarded, no device leaves the pool, and none is attached.
//! 3. What a checkpoint space map has is allocated in the space map of its metaslab.
//!
//! # Crash argument
//! Taking a checkpoint comes first in its txg, before anything is freed in it: until its uberblock is on disk,
//! there is none and nothing was reused. Each slice of a discard frees segments and shortens the space map in one txg.
//! A rewind changes no block: before its uberblock is on disk, the pool is as it was, and after that it is rewound.
//!
//! # Source
//! OpenZFS `module/zfs/spa_checkpoint.c`, `module/zfs/metaslab.c` (`metaslab_free`, `metaslab_sync`),
//! `module/zfs/spa.c` (`spa_ld_read_checkpoint_txg`, `spa_ld_checkpoint_rewind`), `module/zfs/vdev.c`
//! (`vdev_checkpoint_sm_object`).

mod discard;
mod keep;
mod rewind;
mod take;

pub(crate) use keep::Kept;
pub(crate) use rewind::{Rewound, find, write_rewound};

use base::{Context, Error, ErrorKind, ObjectId, Result, VdevId};
use metaslab::SpaceMapStore;
use phys::feature::ZPOOL_CHECKPOINT;
use phys::pool_names;
use phys::uberblock::UberblockPhys;
use zap::directory;
use zerocopy::IntoBytes;

use crate::FeatureState;
use crate::spa::{Inner, Spa};

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
        if self.feature(ZPOOL_CHECKPOINT) != FeatureState::Active {
            return Ok(0);
        }
        let Some(object) = self.inner.kept_map(vdev)? else {
            return Ok(0);
        };
        let top = self.inner.tree.top(vdev);
        let asize = top.map_or(0, |top| top.config().asize);
        let (_, phys) = self.inner.maps.open(object)?;
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
    uberblock_of(words).map(|uberblock| uberblock.timestamp.get())
}

/// The checkpointed uberblock, from the entry of the pool directory.
fn uberblock_of(words: &[u64]) -> Result<UberblockPhys> {
    UberblockPhys::parse(words.as_bytes()).within(|| "the checkpoint's uberblock")
}

/// What nothing can be changed for, in OpenZFS's words.
pub(crate) const EXISTS: &str = "checkpoint exists";
/// The same, while it is discarded.
pub(crate) const DISCARDING: &str = "currently discarding checkpoint";
/// There is nothing to discard or to rewind to.
pub(crate) const NONE: &str = "checkpoint does not exist";

impl Spa {
    /// Fails if there is a checkpoint, or it is discarded: for changes of the tree that it does not allow.
    ///
    /// # Errors
    /// `Exists`, in OpenZFS's words; errors of reading the MOS.
    #[doc(alias = "ZFS_ERR_CHECKPOINT_EXISTS")]
    pub fn check_no_checkpoint(&self) -> Result<()> {
        self.inner.check_no_checkpoint()
    }

    /// Whether the checkpoint is being discarded.
    #[must_use]
    pub fn is_discarding(&self) -> bool {
        self.inner.is_discarding()
    }
}

impl Inner {
    pub(crate) fn has_checkpoint_feature(&self) -> bool {
        let count = self.features().count(ZPOOL_CHECKPOINT);
        count.is_some_and(|count| count > 0)
    }

    pub(crate) fn is_discarding(&self) -> bool {
        self.has_checkpoint_feature() && self.core.kept().txg().is_none()
    }

    pub(crate) fn check_no_checkpoint(&self) -> Result<()> {
        if !self.has_checkpoint_feature() {
            return Ok(());
        }
        let text = if self.is_discarding() {
            DISCARDING
        } else {
            EXISTS
        };
        Err(Error::new(ErrorKind::Exists, text))
    }

    /// The space map of what is kept of a vdev, if there is one.
    #[doc(alias = "vdev_checkpoint_sm_object")]
    fn kept_map(&self, vdev: VdevId) -> Result<Option<ObjectId>> {
        let zap = self.tree.top(vdev).map_or(0, |top| top.config().top_zap);
        if zap == 0 {
            return Ok(None);
        }
        let name = pool_names::VDEV_TOP_ZAP_POOL_CHECKPOINT_SM;
        let found = zap::lookup_u64(&self.mos, ObjectId(zap), name)?;
        Ok(found.filter(|object| *object != 0).map(ObjectId))
    }
}
