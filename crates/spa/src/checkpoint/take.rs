//! Taking a checkpoint, and beginning to discard it.
//!
//! # Source
//! OpenZFS `module/zfs/spa_checkpoint.c` (`spa_checkpoint`, `spa_checkpoint_check`, `spa_checkpoint_sync`,
//! `spa_checkpoint_discard`).

use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use dmu::Tx;
use dsl::{SpaceCheck, Verdict};
use phys::feature::ZPOOL_CHECKPOINT;
use phys::pool_names;
use vdev::Vdev;
use zap::directory;
use zerocopy::IntoBytes;

use super::{DISCARDING, NONE};
use crate::spa::{Inner, Spa};

/// Blocks of the MOS that taking a checkpoint writes: the pool directory, features, history.
const BLOCKS: u64 = 8;
/// `SM_OFFSET_BITS`: offsets in a space map without `spacemap_v2` have so many bits.
const OFFSET_BITS: u32 = 47;

impl Spa {
    /// Takes a checkpoint of all that was done so far.
    ///
    /// # Errors
    /// `Unsupported` if the feature is not enabled; `TooBig` for a vdev that a space map cannot describe; `Busy` while
    /// a vdev is removed or a RAID-Z is expanded; `Exists` if there is one, or one is being discarded; `NoSpace`;
    /// `ReadOnly`, `Suspended`.
    #[doc(alias = "spa_checkpoint")]
    pub fn take_checkpoint(&self) -> Result<()> {
        self.check_writable()?;
        self.check_checkpoint()?;
        self.inner.groups.sync_all()?;
        let (checked, inner) = (Arc::clone(&self.inner), Arc::clone(&self.inner));
        self.dsl().early_sync_task(
            BLOCKS,
            SpaceCheck::Normal,
            move |_, _| checked.check_checkpoint().map(|()| Verdict::Go),
            move |_, tx| inner.take_checkpoint(tx),
        )
    }

    fn check_checkpoint(&self) -> Result<()> {
        if self
            .expansion()?
            .is_some_and(|progress| progress.is_going_on)
        {
            return Err(Error::new(ErrorKind::Busy, "raidz expansion in progress"));
        }
        self.inner.check_checkpoint()
    }

    /// Begins to discard the checkpoint; what only it refers to is freed in this txg and later ones.
    ///
    /// # Errors
    /// `NotFound` if there is none; `Exists` if it is being discarded; `ReadOnly`, `Suspended`.
    #[doc(alias = "spa_checkpoint_discard")]
    pub fn discard_checkpoint(&self) -> Result<()> {
        self.check_writable()?;
        let (checked, inner) = (Arc::clone(&self.inner), Arc::clone(&self.inner));
        self.dsl().early_sync_task(
            BLOCKS,
            SpaceCheck::None,
            move |_, _| checked.check_discard().map(|()| Verdict::Go),
            move |_, tx| inner.begin_discard(tx),
        )
    }
}

impl Inner {
    #[doc(alias = "spa_checkpoint_check")]
    fn check_checkpoint(&self) -> Result<()> {
        if self.features().count(ZPOOL_CHECKPOINT).is_none() {
            let text = "operation not supported on this type of pool";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        if !self.tree.tops().iter().all(|top| self.is_addressable(top)) {
            let text = "device exceeds supported size";
            return Err(Error::new(ErrorKind::TooBig, text));
        }
        if self.removal.is_active() {
            return Err(Error::new(ErrorKind::Busy, "device removal in progress"));
        }
        self.check_no_checkpoint()
    }

    #[doc(alias = "vdev_is_spacemap_addressable")]
    fn is_addressable(&self, top: &Arc<Vdev>) -> bool {
        let (asize, shift) = {
            let config = top.config();
            (config.asize, config.ashift + OFFSET_BITS)
        };
        self.space.options().spacemap_v2 || shift >= 63 || asize < 1 << shift
    }

    /// Before anything else in its txg.
    #[doc(alias = "spa_checkpoint_sync")]
    fn take_checkpoint(&self, tx: &Tx) -> Result<()> {
        let mut uberblock = self.state.lock().synced;
        let taken = uberblock.txg();
        uberblock.checkpoint_txg.set(taken.0);
        let (words, _) = uberblock.as_bytes().as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let name = pool_names::ZPOOL_CHECKPOINT;
        zap::update(&self.mos, tx, directory::OBJECT, name, &words[..])?;
        self.features().adjust(ZPOOL_CHECKPOINT, 1, tx)?;
        self.core.kept().set_txg(Some(taken));
        let text = format!("checkpointed uberblock txg={taken}");
        self.core.log_internal("spa checkpoint", &text, tx);
        Ok(())
    }

    #[doc(alias = "spa_checkpoint_discard_check")]
    fn check_discard(&self) -> Result<()> {
        if !self.has_checkpoint_feature() {
            return Err(Error::not_found(NONE));
        }
        if self.is_discarding() {
            return Err(Error::new(ErrorKind::Exists, DISCARDING));
        }
        Ok(())
    }

    #[doc(alias = "spa_checkpoint_discard_sync")]
    fn begin_discard(&self, tx: &Tx) -> Result<()> {
        zap::remove(
            &self.mos,
            tx,
            directory::OBJECT,
            pool_names::ZPOOL_CHECKPOINT,
        )?;
        self.core.kept().set_txg(None);
        let text = "started discarding checkpointed state from the pool";
        self.core.log_internal("spa discard checkpoint", text, tx);
        Ok(())
    }
}
