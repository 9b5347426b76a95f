//! Discarding a checkpoint: what only it refers to is freed, a slice in each txg.
//!
//! # What it is
//! Entries are taken from the end of each space map: how far it got, its length says. When a space map is empty, it is
//! destroyed; after the last one the feature is no longer active.
//!
//! # Source
//! OpenZFS `module/zfs/spa_checkpoint.c` (`spa_checkpoint_discard_thread`, `spa_checkpoint_discard_thread_sync`,
//! `spa_checkpoint_discard_complete_sync`), `module/zfs/space_map.c` (`space_map_incremental_destroy`).

use base::{Context, Error, ErrorKind, ObjectId, Result, SPA_MINBLOCKSIZE, VdevId};
use dmu::Tx;
use metaslab::{SpaceMapStore, length_max_bytes};
use phys::feature::ZPOOL_CHECKPOINT;
use phys::pool_names::VDEV_TOP_ZAP_POOL_CHECKPOINT_SM;
use phys::space_map::{MapType, SpaceMapEntry, SpaceMapRange, entries};

use crate::spa::{Inner, Spa};

/// Bytes of an entry of one word; others have two.
const WORD_BYTES: u64 = 8;

impl Spa {
    /// Discards the rest of a checkpoint, if one is being discarded: nothing would do it once the pool is closed.
    /// `see` is called with the bytes that are left.
    ///
    /// # Errors
    /// `Suspended`.
    pub fn finish_discard(&self, see: &mut dyn FnMut(u64)) -> Result<()> {
        while self.is_discarding() {
            see(self.inner.core.kept().bytes());
            self.sync_now()?;
        }
        Ok(())
    }
}

impl Inner {
    /// Frees a little more of what only the checkpoint refers to, if it is being discarded. In the first pass.
    #[doc(alias = "spa_checkpoint_discard_thread")]
    pub(crate) fn sync_discard(&self, tx: &Tx) -> Result<()> {
        if !self.is_discarding() {
            return Ok(());
        }
        let mut left = self.discard_entries_max;
        for id in (0..self.tree.tops().len() as u64).map(VdevId) {
            let Some(object) = self.kept_map(id)? else {
                continue;
            };
            let is_empty = self.discard_some(id, object, &mut left, tx);
            if !is_empty.within(|| format!("checkpoint space map {object} of vdev {id}"))? {
                self.groups.kick();
                return Ok(());
            }
            self.destroy_kept_map(id, object, tx)?;
        }
        self.features().adjust(ZPOOL_CHECKPOINT, -1, tx)?;
        let text = "finished discarding checkpointed state from the pool";
        self.core.log_internal("spa discard checkpoint", text, tx);
        Ok(())
    }

    fn destroy_kept_map(&self, vdev: VdevId, object: ObjectId, tx: &Tx) -> Result<()> {
        self.maps.free(object, tx)?;
        let zap = self.tree.top(vdev).map_or(0, |top| top.config().top_zap);
        zap::remove(
            &self.mos,
            tx,
            ObjectId(zap),
            VDEV_TOP_ZAP_POOL_CHECKPOINT_SM,
        )
    }

    /// Frees at most `left` entries from the end of a space map. Returns whether it is empty now.
    #[doc(alias = "space_map_incremental_destroy")]
    fn discard_some(
        &self,
        vdev: VdevId,
        object: ObjectId,
        left: &mut u64,
        tx: &Tx,
    ) -> Result<bool> {
        let (found, mut phys) = self.maps.open(object)?;
        let top = self.tree.top(vdev);
        let (asize, ashift) = top.map_or((0, 0), |top| {
            let config = top.config();
            (config.asize, config.ashift)
        });
        let mut length = phys.length.get();
        if !length.is_multiple_of(WORD_BYTES) || length > length_max_bytes(asize, ashift) {
            return Err(Error::corrupt(format!("a length of {length} bytes")));
        }
        let block_bytes = u64::from(found.block_bytes).max(SPA_MINBLOCKSIZE);
        let mut freed: u64 = 0;
        while length > 0 {
            let start = (length - 1) / block_bytes * block_bytes;
            let mut bytes = vec![0; (length - start) as usize];
            self.maps.read(object, start, &mut bytes)?;
            for (at, range) in with_offsets(&bytes)?.into_iter().rev() {
                if let Some(range) = range {
                    if *left == 0 {
                        break;
                    }
                    *left -= 1;
                    freed += self.free_kept(vdev, ashift, &range, tx)?;
                }
                length = start + at;
            }
            if *left == 0 {
                break;
            }
        }
        let kept = phys.alloc.get().unsigned_abs().saturating_sub(freed);
        if length == 0 && kept != 0 {
            return Err(Error::corrupt(format!(
                "{kept} bytes more than its entries"
            )));
        }
        self.core.kept().let_go(freed);
        phys.length.set(length);
        phys.alloc.set(0_i64.saturating_sub_unsigned(kept));
        self.maps.set_phys(tx.txg(), object, &phys)?;
        Ok(length == 0)
    }

    /// Frees what one entry says. Returns its bytes.
    fn free_kept(&self, vdev: VdevId, ashift: u32, range: &SpaceMapRange, tx: &Tx) -> Result<u64> {
        let bytes = |units: u64| units.checked_mul(1 << ashift);
        let extent = bytes(range.offset).zip(bytes(range.run));
        let extent = extent.filter(|_| range.map_type == MapType::Free);
        let (offset, size) = extent.ok_or_else(|| {
            let what = format!("entry {range:?}");
            Error::new(ErrorKind::Corrupt, what)
        })?;
        self.space.try_free(tx.txg(), vdev, offset, size)?;
        Ok(size)
    }
}

/// The entries of a block, each with the byte that it begins at; `None` for one that is not a range.
fn with_offsets(bytes: &[u8]) -> Result<Vec<(u64, Option<SpaceMapRange>)>> {
    let mut all = Vec::new();
    let mut at = 0;
    for entry in entries(bytes) {
        let (words, range) = match entry? {
            SpaceMapEntry::Debug { .. } => (1, None),
            SpaceMapEntry::Range(range) if range.vdev.is_some() => (2, Some(range)),
            SpaceMapEntry::Range(range) => (1, Some(range)),
        };
        all.push((at, range));
        at += words * WORD_BYTES;
    }
    Ok(all)
}
