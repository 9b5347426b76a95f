//! When a txg is synced, and how writers are throttled.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::SuspendSettings;

/// When to sync, and how to slow writers down.
#[derive(Clone, Debug)]
pub struct TxgSettings {
    /// `zfs_txg_timeout`: a dirty txg is synced after this time
    pub timeout_ns: u64,
    /// `zfs_dirty_data_max`: no hold is granted while this many bytes are dirty
    pub dirty_data_max: u64,
    /// `zfs_dirty_data_sync_percent`: percentage of `dirty_data_max` at which the open txg is synced
    pub dirty_data_sync_percent: u64,
    /// A sequential write is begun in pieces of at least this many bytes before its txg is synced
    /// (write-behind); `u64::MAX`: never, as in OpenZFS
    pub write_behind_bytes: u64,
    /// `zfs_delay_min_dirty_percent`: percentage of `dirty_data_max` above which holds are delayed
    pub delay_min_dirty_percent: u64,
    /// `zfs_delay_scale`: the delay half way between that and the maximum
    pub delay_scale_ns: u64,
    /// `zfs_delay_max_ns`: the longest delay of one hold
    pub delay_max_ns: u64,
    /// How many bytes are dirty, open and syncing, as others are to know it.
    pub dirty_bytes: Arc<AtomicU64>,
    /// What happens when I/O fails on every copy.
    pub suspend: SuspendSettings,
}

impl Default for TxgSettings {
    fn default() -> Self {
        TxgSettings {
            timeout_ns: 5_000_000_000,
            dirty_data_max: 192 << 20,
            dirty_data_sync_percent: 20,
            write_behind_bytes: 1 << 20,
            delay_min_dirty_percent: 60,
            delay_scale_ns: 500_000,
            delay_max_ns: 100_000_000,
            dirty_bytes: Arc::default(),
            suspend: SuspendSettings::default(),
        }
    }
}

impl TxgSettings {
    pub(super) fn sync_threshold(&self) -> u64 {
        self.dirty_data_max / 100 * self.dirty_data_sync_percent
    }

    /// How long a hold has to wait with `dirty` bytes outstanding.
    #[doc(alias = "dmu_tx_delay")]
    pub(super) fn delay_ns(&self, dirty: u64) -> u64 {
        let free_below = self.dirty_data_max / 100 * self.delay_min_dirty_percent;
        if dirty <= free_below {
            return 0;
        }
        let left = self.dirty_data_max.saturating_sub(dirty);
        if left == 0 {
            return self.delay_max_ns;
        }
        let scaled = u128::from(self.delay_scale_ns) * u128::from(dirty - free_below);
        let delay = scaled / u128::from(left);
        u64::try_from(delay)
            .unwrap_or(u64::MAX)
            .min(self.delay_max_ns)
    }
}
