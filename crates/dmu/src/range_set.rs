//! A set of block ids, kept as disjoint, non-adjacent ranges `[start, end)`.

use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeSet(BTreeMap<u64, u64>);

impl RangeSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds `[start, end)`.
    pub(crate) fn insert(&mut self, start: u64, end: u64) {
        assert!(start < end, "empty range [{start}, {end})");
        let (mut start, mut end) = (start, end);
        while let Some((&s, &e)) = self.0.range(..=end).next_back() {
            if e < start {
                break;
            }
            self.0.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.0.insert(start, end);
    }

    /// The end of the range that contains `at`.
    pub(crate) fn end_of(&self, at: u64) -> Option<u64> {
        let (_, &end) = self.0.range(..=at).next_back()?;
        (at < end).then_some(end)
    }

    pub(crate) fn contains(&self, at: u64) -> bool {
        self.end_of(at).is_some()
    }

    /// The smallest member at or after `at`.
    pub(crate) fn next(&self, at: u64) -> Option<u64> {
        if self.contains(at) {
            return Some(at);
        }
        self.0.range(at..).next().map(|(&start, _)| start)
    }

    /// The ranges, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(&start, &end)| (start, end))
    }
}

#[cfg(test)]
mod tests {
    use super::RangeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prop_ranges_are_a_set(ranges in prop::collection::vec((0u64..60, 1u64..9), 0..20)) {
            let mut set = RangeSet::default();
            let mut model = [false; 80];
            for (start, len) in ranges {
                set.insert(start, start + len);
                model[start as usize..(start + len) as usize].fill(true);
            }
            for at in 0..75u64 {
                prop_assert_eq!(set.contains(at), model[at as usize]);
                let next = (at..80).find(|i| model[*i as usize]);
                prop_assert_eq!(set.next(at), next);
                if let Some(end) = set.end_of(at) {
                    prop_assert_eq!((at..80).find(|i| !model[*i as usize]), Some(end));
                }
            }
            let ranges: Vec<_> = set.iter().collect();
            prop_assert!(ranges.windows(2).all(|w| w[0].1 < w[1].0));
        }
    }
}
