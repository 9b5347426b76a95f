//! What `zpool status` and `zpool remove -n` show of a removal.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_removal.c` (`spa_removal_get_stats`), `module/zfs/vdev_label.c`
//! (`vdev_config_generate`, where it adds `indirect_size`).

use base::{Guid, Result, VdevId};
use phys::scan::{IndirectMappingEntryPhys, RemovingPhys};
use vdev::VdevKind;

use super::is_scanning;
use crate::spa::Spa;

/// `highbit64(vdev_removal_max_span) - 1`: free segments in lower buckets of the histogram are copied with their
/// neighbours.
const SPAN_BUCKET: usize = 15;

/// The last removal, and what all of them take.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "pool_removal_stat_t")]
pub struct RemovalProgress {
    /// As the pool directory has it.
    pub phys: RemovingPhys,
    /// prs_mapping_memory: bytes of the mappings of all removed vdevs.
    pub mapping_bytes: u64,
}

impl Spa {
    /// The last removal; `None` if nothing was ever removed.
    #[must_use]
    #[doc(alias = "spa_removal_get_stats")]
    pub fn removal(&self) -> Option<RemovalProgress> {
        let phys = self.inner.removal.phys()?;
        let tops = self.inner.tree.tops();
        let removed = tops.iter().filter(|top| top.kind() == VdevKind::Indirect);
        let sizes = removed.filter_map(|top| Some(top.mapping()?.size_bytes()));
        Some(RemovalProgress {
            phys,
            mapping_bytes: sizes.sum(),
        })
    }

    /// Whether a vdev is being removed.
    #[must_use]
    pub fn is_removing(&self) -> bool {
        self.inner.removal.is_active()
    }

    /// Waits until no vdev is being removed. `see` is called after each slice; when it returns false, waiting ends.
    ///
    /// # Errors
    /// `Suspended`.
    #[doc(alias = "spa_wait")]
    pub fn wait_removal(&self, see: &mut dyn FnMut(&RemovingPhys) -> bool) -> Result<()> {
        while let Some(phys) = self.inner.removal.phys().filter(is_scanning) {
            if self.is_readonly() || !see(&phys) {
                return Ok(());
            }
            let txg = self.inner.groups.synced_txg();
            self.inner.groups.kick();
            self.inner.groups.wait_unhurried(txg.next())?;
        }
        self.wait_end_written()
    }

    /// Bytes of memory that the mapping of a vdev would take after its removal, about; those that it takes, if it
    /// was removed. `None` if that is unknown.
    ///
    /// # Errors
    /// `NotFound` if there is no such top-level vdev.
    pub fn mapping_estimate(&self, guid: Guid) -> Result<Option<u64>> {
        let (id, top) = self.inner.find_top(guid)?;
        match top.mapping() {
            Some(mapping) => Ok(Some(mapping.size_bytes())),
            None => self.estimate(id),
        }
    }

    fn estimate(&self, id: VdevId) -> Result<Option<u64>> {
        let stats = self.inner.space.vdev_stats(id)?;
        if stats.fragmentation.is_none() {
            return Ok(None);
        }
        let histogram = self.inner.space.free_histogram(id)?;
        let (small, large) = histogram.split_at(SPAN_BUCKET - 1);
        let sizes = (1..).zip(small).map(|(bits, count)| count << bits);
        let to_copy = stats.alloc + sizes.sum::<u64>();
        let entries =
            large.iter().sum::<u64>() + to_copy / self.inner.removal_settings.segment_max_bytes;
        Ok(Some(entries * size_of::<IndirectMappingEntryPhys>() as u64))
    }
}
