//! The size of the dedup tables: their quota, and pruning.
//!
//! # What it is
//! Tables above the property `dedup_table_quota` get no new entries: blocks that are in none are ordinary ones. With
//! `auto`, the default, the limit is what the devices for dedup tables hold, if there are any. It is looked at once a
//! txg. `zpool ddtprune` makes room.
//!
//! # Source
//! OpenZFS `module/zfs/ddt.c` (`ddt_over_quota`, `ddt_special_over_quota`, `ddt_prune_unique_entries`).

use base::{Error, ErrorKind, Result};
use ddt::{Candidate, Prune};
use phys::PropValue;
use phys::feature::FAST_DEDUP;
use zio::AllocClass;

use crate::FeatureState;
use crate::spa::{Inner, Spa};

/// The pool property: bytes, 0 for none.
pub(crate) const DEDUP_TABLE_QUOTA: &str = "dedup_table_quota";
/// `auto`
const AUTO: u64 = u64::MAX;
/// `zfs_ddt_prunes_per_txg`
const PRUNES_PER_TXG: usize = 50_000;
/// Of a class of this size and more, so many bytes may stay free.
const FREE_BYTES: u64 = 1 << 33;

/// How many bytes of a class with this capacity tables may fill.
fn class_limit(capacity: u64) -> u64 {
    let part = u128::from(capacity) * 85 / 100;
    let part = u64::try_from(part).expect("less than the capacity");
    part.max(capacity.saturating_sub(FREE_BYTES))
}

impl Inner {
    /// Whether the dedup tables are larger than they may be.
    #[doc(alias = "ddt_over_quota")]
    fn is_over_dedup_quota(&self) -> Result<bool> {
        let quota = match self.props.get(DEDUP_TABLE_QUOTA) {
            Some(PropValue::Number(bytes)) => bytes,
            _ => AUTO,
        };
        if quota == 0 {
            return Ok(false);
        }
        if quota != AUTO {
            return Ok(self.core.sharing().deduped()?.sizes.disk_bytes > quota);
        }
        // Without devices of their own, tables go to special ones, and without those anywhere.
        for class in [AllocClass::Dedup, AllocClass::Special] {
            if self.space.has_class(class) {
                let usage = self.space.class_usage(class);
                return Ok(usage.alloc >= class_limit(usage.space));
            }
        }
        Ok(false)
    }

    /// Applies the quota of the dedup tables to what is written from now on.
    pub(crate) fn take_dedup_quota(&self) -> Result<()> {
        let is_over = self.is_over_dedup_quota()?;
        self.core.sharing().set_over_quota(is_over);
        Ok(())
    }
}

impl Spa {
    /// Forgets old entries with one reference of the dedup tables; returns how many. `now`: seconds since 1970.
    ///
    /// # Errors
    /// `Unsupported` without `fast_dedup`; `ReadOnly`, `Suspended`; errors of reading the tables.
    #[doc(alias = "ddt_prune_unique_entries")]
    pub fn prune_dedup(&self, prune: Prune, now: u64) -> Result<u64> {
        self.check_writable()?;
        if self.feature(FAST_DEDUP) == FeatureState::Disabled {
            let text = "unsupported version or feature";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let Some(zaps) = self.inner.core.sharing().unique_zaps() else {
            return Ok(0);
        };
        let cutoff = zaps.cutoff(prune, now)?;
        let (mut candidates, mut pruned) = (Vec::new(), 0);
        zaps.walk(&mut |checksum, entry| {
            if entry.class_start.is_some_and(|start| start < cutoff) {
                candidates.push((checksum, entry));
            }
            if candidates.len() >= PRUNES_PER_TXG {
                pruned += self.prune_some(std::mem::take(&mut candidates))?;
            }
            Ok(())
        })?;
        Ok(pruned + self.prune_some(candidates)?)
    }

    fn prune_some(&self, candidates: Vec<Candidate>) -> Result<u64> {
        if candidates.is_empty() {
            return Ok(0);
        }
        self.in_sync(move |inner, _| inner.core.sharing().prune(candidates))
    }
}

#[cfg(test)]
mod tests {
    use super::class_limit;

    #[test]
    fn a_large_class_leaves_eight_gibibytes() {
        assert_eq!(class_limit(1000), 850);
        assert_eq!(class_limit(100 << 30), 92 << 30);
        assert_eq!(class_limit(0), 0);
        assert_eq!(class_limit(u64::MAX), u64::MAX - (1 << 33));
    }
}
