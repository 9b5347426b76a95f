//! What is kept of the expansion of a RAID-Z.
//!
//! # On disk
//! The ZAP of a top-level vdev has the state of its last expansion, when it was begun and ended, and how many bytes
//! were copied. How far it is, to the sector, the uberblock says, by which blocks are found (`vdev`).
//!
//! # Source
//! OpenZFS `module/zfs/vdev_raidz.c` (`vdev_raidz_load`, `spa_raidz_expand_get_stats`).

use base::{ObjectId, Result, VdevId};
use phys::pool_names;
use phys::scan::DSS_SCANNING;

use crate::spa::Spa;

/// The last expansion of a RAID-Z. Times are in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "pool_raidz_expand_stat_t")]
pub struct ExpansionProgress {
    /// pres_expanding_vdev
    pub vdev: VdevId,
    /// Whether it is half done.
    pub is_going_on: bool,
    /// pres_waiting_for_resilver
    pub is_paused: bool,
    /// pres_start_time
    pub start_secs: u64,
    /// pres_end_time
    pub end_secs: u64,
    /// pres_to_reflow: bytes
    pub total_bytes: u64,
    /// pres_reflowed: bytes
    pub copied_bytes: u64,
}

impl Spa {
    /// The expansion that is half done, or else the one that ended last; `None` if no RAID-Z was ever expanded.
    ///
    /// # Errors
    /// Any error from reading the MOS.
    #[doc(alias = "spa_raidz_expand_get_stats")]
    pub fn expansion(&self) -> Result<Option<ExpansionProgress>> {
        let mos = &self.inner.mos;
        let mut last: Option<ExpansionProgress> = None;
        for (n, top) in self.inner.tree.tops().iter().enumerate() {
            let (zap, is_expanded) = {
                let config = top.config();
                let is_expanded = config.expanding || !config.expand_txgs.is_empty();
                (ObjectId(config.top_zap), is_expanded)
            };
            if !is_expanded || zap.0 == 0 {
                continue;
            }
            let number = |name: &str| zap::lookup_u64(mos, zap, name);
            let Some(state) = number(pool_names::VDEV_TOP_ZAP_RAIDZ_EXPAND_STATE)? else {
                continue;
            };
            let vdev = VdevId(n as u64);
            let start = number(pool_names::VDEV_TOP_ZAP_RAIDZ_EXPAND_START_TIME)?;
            let end = number(pool_names::VDEV_TOP_ZAP_RAIDZ_EXPAND_END_TIME)?;
            let copied = number(pool_names::VDEV_TOP_ZAP_RAIDZ_EXPAND_BYTES_COPIED)?;
            let progress = ExpansionProgress {
                vdev,
                is_going_on: state == DSS_SCANNING,
                is_paused: state == DSS_SCANNING && self.inner.is_reflow_paused(vdev),
                start_secs: start.unwrap_or(0),
                end_secs: end.unwrap_or(0),
                total_bytes: self.inner.space.vdev_stats(vdev)?.alloc,
                copied_bytes: copied.unwrap_or(0),
            };
            let rank = |progress: &ExpansionProgress| (progress.is_going_on, progress.end_secs);
            if last.is_none_or(|last| rank(&progress) > rank(&last)) {
                last = Some(progress);
            }
        }
        Ok(last)
    }
}
