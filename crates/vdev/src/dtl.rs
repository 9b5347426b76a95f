//! Dirty time logs: in which txgs a device missed writes.
//!
//! # What it is
//! A mirror side that was absent, or whose write failed, lacks blocks born in those txgs. The DTL says
//! which: reads avoid the device, a resilver brings the blocks back and then clears it.
//!
//! # Invariants
//! 1. The ranges are sorted, not empty, and do not touch each other.
//!
//! # Source
//! OpenZFS `module/zfs/vdev.c` (`vdev_dtl_*`).

use std::ops::Range;

use base::Txg;

/// `TXG_CONCURRENT_STATES`: a write issued now belongs to the syncing txg or to one of the next two.
pub(crate) const TXG_CONCURRENT_STATES: u64 = 3;

/// A set of txgs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[doc(alias = "vdev_dtl")]
pub struct TxgSet(Vec<Range<u64>>);

impl TxgSet {
    /// Adds `[start, end)`.
    #[doc(alias = "vdev_dtl_dirty")]
    pub fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|have| have.end < range.start);
        let last = self.0.partition_point(|have| have.start <= range.end);
        let mut merged = range;
        for have in &self.0[first..last] {
            merged = merged.start.min(have.start)..merged.end.max(have.end);
        }
        self.0.splice(first..last, [merged]);
    }

    /// Removes `[start, end)`.
    pub fn remove(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let old = std::mem::take(&mut self.0);
        for have in old {
            let before = have.start..have.end.min(range.start);
            let after = have.start.max(range.end)..have.end;
            self.0
                .extend([before, after].into_iter().filter(|rest| !rest.is_empty()));
        }
    }

    /// Whether the set has this txg.
    #[must_use]
    #[doc(alias = "vdev_dtl_contains")]
    pub fn contains(&self, txg: Txg) -> bool {
        self.0.iter().any(|have| have.contains(&txg.0))
    }

    /// Whether the set has no txg.
    #[must_use]
    #[doc(alias = "vdev_dtl_empty")]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks the invariants of the module.
    ///
    /// # Panics
    /// When it does not hold.
    pub fn check_invariants(&self) {
        let is_empty = |range: &Range<u64>| range.start >= range.end;
        assert!(
            !self.ranges().iter().any(is_empty),
            "an empty range: {self:?}"
        );
        let touch = |pair: &[Range<u64>]| pair[0].end >= pair[1].start;
        assert!(
            !self.ranges().windows(2).any(touch),
            "ranges touch: {self:?}"
        );
    }

    /// The ranges in ascending order.
    #[must_use]
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    /// The first and the last txg of the set.
    #[must_use]
    #[doc(alias = "vdev_dtl_min")]
    pub fn span(&self) -> Option<(Txg, Txg)> {
        Some((Txg(self.0.first()?.start), Txg(self.0.last()?.end - 1)))
    }
}

impl FromIterator<Range<u64>> for TxgSet {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut set = TxgSet::default();
        ranges.into_iter().for_each(|range| set.add(range));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prop_behaves_as_a_set(
            ops in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..12), 0..30)
        ) {
            let mut set = TxgSet::default();
            let mut model = std::collections::BTreeSet::new();
            for (adds, start, len) in ops {
                let range = start..start + len;
                if adds {
                    set.add(range.clone());
                    model.extend(range);
                } else {
                    set.remove(&range);
                    model.retain(|txg| !range.contains(txg));
                }
                for txg in 0..80 {
                    prop_assert_eq!(set.contains(Txg(txg)), model.contains(&txg));
                }
                for pair in set.ranges().windows(2) {
                    prop_assert!(pair[0].end < pair[1].start);
                }
                prop_assert_eq!(set.span().map(|(a, b)| (a.0, b.0)),
                    model.first().zip(model.last()).map(|(a, b)| (*a, *b)));
            }
        }
    }
}
