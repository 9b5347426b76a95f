//! Rewinding a pool to its checkpoint when it is opened.
//!
//! # What it is
//! The checkpointed uberblock gets the txg after the last one, so that it is the best from now on. A pool that is only
//! read is opened by it without writing it.
//!
//! # Crash argument
//! The uberblock is written as that of any txg: all that it refers to is on disk since the checkpoint was taken.
//!
//! # Source
//! OpenZFS `module/zfs/spa.c` (`spa_ld_checkpoint_rewind`), `module/zfs/zil.c` (`zil_claim`).

use std::sync::Arc;

use base::{Error, Result};
use dmu::Objset;
use phys::pool_names::ZPOOL_CHECKPOINT;
use phys::uberblock::{SPA_VERSION_FEATURES, UberblockPhys};
use vdev::import::FoundPool;
use vdev::{LabelSync, PoolConfig, VdevTree};
use zap::directory;

use super::{NONE, uberblock_of};
use crate::host::Host;

/// The checkpoint of a pool that is being opened.
pub(crate) struct Rewound {
    checkpointed: Option<UberblockPhys>,
}

/// Finds the checkpoint in the MOS.
pub(crate) fn find(mos: &Arc<Objset>) -> Result<Rewound> {
    let words = zap::lookup::<u64>(mos, directory::OBJECT, ZPOOL_CHECKPOINT)?;
    let checkpointed = words.as_deref().map(uberblock_of).transpose()?;
    Ok(Rewound { checkpointed })
}

impl Rewound {
    /// The uberblock that rewinds the pool, whose last one is `last`.
    ///
    /// # Errors
    /// `NotFound` if there is no checkpoint; `Corrupt` for one that is not older.
    pub(crate) fn after(&self, last: &UberblockPhys) -> Result<UberblockPhys> {
        let mut uberblock = self.checkpointed.ok_or_else(|| Error::not_found(NONE))?;
        let taken = uberblock.txg();
        if taken >= last.txg() || uberblock.checkpoint_txg.get() != taken.0 {
            let what = format!("the checkpoint of txg {taken} has another txg");
            return Err(Error::corrupt(what));
        }
        uberblock.txg.set(last.txg().next().0);
        uberblock.timestamp.set(rt::wall_clock().secs);
        Ok(uberblock)
    }
}

/// Writes the uberblock that rewinds the pool; labels stay as they are until the next txg.
pub(crate) fn write_rewound(
    found: &FoundPool,
    tree: &VdevTree,
    uberblock: &UberblockPhys,
    host: &Host,
    multihost: bool,
) -> Result<()> {
    let pool = PoolConfig {
        version: SPA_VERSION_FEATURES,
        name: found.name.clone(),
        state: found.state,
        guid: found.guid,
        errata: 0,
        comment: None,
        compatibility: None,
        hostid: host.id,
        hostname: host.name.clone(),
        features_for_read: nvpair::NvList::new(),
        split_list: Vec::new(),
        split_from: None,
    };
    tree.sync_labels(&LabelSync {
        pool: &pool,
        txg: uberblock.txg(),
        uberblock,
        dirty: &[],
        multihost,
    })
}
