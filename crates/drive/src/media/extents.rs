//! Sets of bytes of a medium.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint half-open ranges that do not touch each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extents(BTreeMap<u64, u64>);

impl Extents {
    /// The parts of `range` that are covered, in order.
    pub(crate) fn within(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let (start, end) = (range.start, range.end);
        let before = self.0.range(..start).next_back();
        before
            .into_iter()
            .chain(self.0.range(start..end.max(start)))
            .map(move |(from, to)| (*from).max(start)..(*to).min(end))
            .filter(|part| part.start < part.end)
    }

    /// Whether nothing of `range` is covered.
    pub(crate) fn is_free(&self, range: &Range<u64>) -> bool {
        self.0.is_empty() || self.within(range).next().is_none()
    }

    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        if let Some((from, to)) = self.0.range(..=start).next_back()
            && *to >= start
        {
            if *to >= end {
                return;
            }
            start = *from;
        }
        while let Some((from, to)) = self.0.range(start..=end).next() {
            let (from, to) = (*from, *to);
            end = end.max(to);
            self.0.remove(&from);
        }
        self.0.insert(start, end);
    }

    pub(crate) fn remove(&mut self, range: &Range<u64>) {
        let hit: Vec<_> = self.within(range).collect();
        for part in hit {
            let (from, to) = (self.0.range(..=part.start).next_back())
                .map(|(from, to)| (*from, *to))
                .expect("a part of an extent");
            self.0.remove(&from);
            if from < part.start {
                self.0.insert(from, part.start);
            }
            if part.end < to {
                self.0.insert(part.end, to);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(from, to)| *from..*to)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many bytes are covered.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|(from, to)| to - from).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn prop_extents_are_a_set_of_numbers(
            ops in prop::collection::vec((any::<bool>(), 0u64..64, 0u64..20), 1..60)
        ) {
            let mut plain = [false; 128];
            let mut extents = Extents::default();
            for (inserts, start, len) in ops {
                let range = start..start + len;
                plain[start as usize..(start + len) as usize].fill(inserts);
                if inserts { extents.insert(range.clone()) } else { extents.remove(&range) }
                let mut seen = [false; 128];
                let mut last = None;
                for part in extents.iter() {
                    prop_assert!(part.start < part.end && last.is_none_or(|last| last < part.start));
                    last = Some(part.end);
                    seen[part.start as usize..part.end as usize].fill(true);
                }
                prop_assert_eq!(seen, plain);
                let inside: u64 = extents.within(&(10..40)).map(|part| part.end - part.start).sum();
                prop_assert_eq!(inside, plain[10..40].iter().filter(|set| **set).count() as u64);
                prop_assert_eq!(extents.is_free(&(10..40)), inside == 0);
            }
        }
    }
}
