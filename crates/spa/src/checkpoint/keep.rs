//! What is freed but kept for the checkpoint.
//!
//! # Concurrency
//! Blocks are freed in syncing context, and once before the first txg, when intent logs are given up. The lock is a
//! leaf.
//!
//! # Source
//! OpenZFS `module/zfs/metaslab.c` (`metaslab_free`, `metaslab_free_concrete`, `metaslab_sync`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Error, ObjectId, Result, Txg, VdevId};
use dmu::Tx;
use metaslab::{RangeTree, SpaceMapExtent, SpaceMapStore, append_tree};
use phys::pool_names::{VDEV_TOP_ZAP_POOL_CHECKPOINT_SM, ZPOOL_CHECKPOINT};
use phys::space_map::MapType;
use rt::Mutex;
use zap::directory;

use super::{EXISTS, uberblock_of};
use crate::spa::{Inner, Spa};

/// `zfs_vdev_standard_sm_blksz`: bytes of a block of the space map.
const BLOCK_BYTES: u32 = 1 << 17;

/// What is freed but kept for the checkpoint.
#[derive(Default)]
pub(crate) struct Kept {
    /// `spa_checkpoint_txg`; 0 if there is no checkpoint.
    txg: AtomicU64,
    /// `sci_dspace`: bytes in the space maps.
    bytes: AtomicU64,
    /// Freed since the last pass, by vdev and metaslab.
    pending: Mutex<BTreeMap<(VdevId, u64), RangeTree>>,
}

impl Kept {
    /// The txg of the checkpoint.
    pub(crate) fn txg(&self) -> Option<Txg> {
        let txg = self.txg.load(Ordering::Relaxed);
        (txg != 0).then_some(Txg(txg))
    }

    pub(super) fn set_txg(&self, txg: Option<Txg>) {
        self.txg
            .store(txg.map_or(0, |txg| txg.0), Ordering::Relaxed);
    }

    /// Bytes that only the checkpoint refers to.
    #[doc(alias = "spa_get_checkpoint_space")]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Takes note that so many of them were freed.
    pub(super) fn let_go(&self, bytes: u64) {
        let less = |all: u64| Some(all.saturating_sub(bytes));
        let (set, read) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.bytes.fetch_update(set, read, less);
    }

    /// Whether a block that was allocated in `birth` belongs to the checkpoint when `txg` frees it.
    pub(crate) fn keeps(&self, txg: Txg, birth: Txg) -> bool {
        self.txg()
            .is_some_and(|taken| birth <= taken && taken < txg)
    }

    /// Keeps a range that is in this metaslab.
    pub(crate) fn add(&self, vdev: VdevId, metaslab: u64, offset: u64, size: u64) -> Result<()> {
        let mut pending = self.pending.lock();
        let ranges = pending.entry((vdev, metaslab)).or_default();
        if ranges.try_add(offset, size) {
            return Ok(());
        }
        let what = format!("segment {offset:#x}+{size:#x} of vdev {vdev} is freed twice");
        Err(Error::corrupt(what))
    }

    /// What is pending, by vdev.
    fn take(&self) -> BTreeMap<VdevId, Vec<RangeTree>> {
        let mut by_vdev: BTreeMap<VdevId, Vec<RangeTree>> = BTreeMap::new();
        for ((vdev, _), ranges) in std::mem::take(&mut *self.pending.lock()) {
            by_vdev.entry(vdev).or_default().push(ranges);
        }
        by_vdev
    }
}

impl Spa {
    /// Reads the checkpoint of a pool that is being opened.
    #[doc(alias = "spa_ld_read_checkpoint_txg")]
    pub(crate) fn load_checkpoint(&self) -> Result<()> {
        let inner = &self.inner;
        if !inner.has_checkpoint_feature() {
            return Ok(());
        }
        let kept = inner.core.kept();
        let words = zap::lookup::<u64>(&inner.mos, directory::OBJECT, ZPOOL_CHECKPOINT)?;
        if let Some(words) = words {
            let taken = uberblock_of(&words)?.txg();
            if taken.0 == 0 || taken > inner.state.lock().synced.txg() {
                let what = format!("the checkpoint is of txg {taken}");
                return Err(Error::corrupt(what));
            }
            kept.set_txg(Some(taken));
        }
        if inner.removal.is_active() {
            return Err(Error::corrupt(format!("{EXISTS} while a vdev is removed")));
        }
        let mut bytes: u64 = 0;
        for id in 0..inner.tree.tops().len() as u64 {
            bytes = bytes.saturating_add(self.checkpoint_bytes(VdevId(id))?);
        }
        kept.bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Inner {
    /// Appends what this pass has freed but keeps to the space maps. In each pass, after the frees.
    pub(crate) fn sync_kept(&self, tx: &Tx) -> Result<()> {
        for (vdev, metaslabs) in self.core.kept().take() {
            self.append_kept(vdev, &metaslabs, tx)?;
        }
        Ok(())
    }

    fn append_kept(&self, vdev: VdevId, metaslabs: &[RangeTree], tx: &Tx) -> Result<()> {
        let top = self.tree.top(vdev);
        let top = top.ok_or_else(|| Error::corrupt(format!("no vdev {vdev}")))?;
        let (zap, extent) = {
            let config = top.config();
            let extent = SpaceMapExtent {
                start: 0,
                size: config.asize,
                shift: config.ashift,
            };
            (ObjectId(config.top_zap), extent)
        };
        let object = match self.kept_map(vdev)? {
            Some(object) => object,
            None => {
                let object = self.maps.alloc(BLOCK_BYTES, tx)?.object;
                let name = VDEV_TOP_ZAP_POOL_CHECKPOINT_SM;
                zap::update(&self.mos, tx, zap, name, &[object.0])?;
                object
            }
        };
        let two_words = self.space.options().spacemap_v2;
        let (found, mut phys) = self.maps.open(object)?;
        let (mut length, mut kept) = (phys.length.get(), 0);
        let mut entries = Vec::new();
        for ranges in metaslabs {
            let (txg, kind) = (tx.txg(), MapType::Free);
            let more = append_tree(&found, length, &extent, txg, kind, ranges, two_words);
            length += more.len() as u64;
            entries.extend(more);
            kept += ranges.space();
        }
        self.maps
            .write(tx.txg(), object, phys.length.get(), &entries)?;
        phys.object.set(object.0);
        phys.length.set(length);
        phys.alloc
            .set(phys.alloc.get().saturating_sub_unsigned(kept));
        self.maps.set_phys(tx.txg(), object, &phys)?;
        let kept_bytes = &self.core.kept().bytes;
        kept_bytes.fetch_add(kept, Ordering::Relaxed);
        Ok(())
    }
}
