//! Range trees: sets of bytes, kept as maximal segments.
//!
//! # What it is
//! A set of `[start, end)` segments that never touch each other: adding a neighbour makes a segment
//! longer, removing a middle makes two. Besides the segments by offset it keeps a histogram of their
//! sizes, the sum of their sizes, and, for trees that are allocated from, a second view ordered by size,
//! for best fit and for the size of the largest.
//!
//! # Invariants
//! 1. Segments are not empty, do not overlap and do not touch.
//! 2. `space` is the sum of the sizes; `histogram[i]` counts those with `2^i <= size < 2^(i+1)`.
//! 3. The view by size, if there is one, holds exactly the segments.
//!
//! Adding what is there already and removing what is not there is refused, never ignored: it would
//! mean that space is given out twice.
//!
//! # Source
//! OpenZFS module/zfs/range_tree.c, include/sys/range_tree.h @be7657e3.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// `ZFS_RANGE_TREE_HISTOGRAM_SIZE`: one bucket per power of two.
pub const HISTOGRAM_BUCKETS: usize = 64;

/// `zfs_range_tree_t`: a set of bytes as coalesced segments.
#[derive(Clone, Debug)]
#[doc(alias = "zfs_range_tree_t")]
pub struct RangeTree {
    /// start -> end
    segments: BTreeMap<u64, u64>,
    /// (size, start), when asked for
    by_size: Option<BTreeSet<(u64, u64)>>,
    space: u64,
    histogram: [u64; HISTOGRAM_BUCKETS],
}

impl Default for RangeTree {
    fn default() -> Self {
        RangeTree {
            segments: BTreeMap::new(),
            by_size: None,
            space: 0,
            histogram: [0; HISTOGRAM_BUCKETS],
        }
    }
}

impl PartialEq for RangeTree {
    fn eq(&self, other: &Self) -> bool {
        self.segments == other.segments
    }
}
impl Eq for RangeTree {}

fn bucket(size: u64) -> usize {
    size.ilog2() as usize
}

impl RangeTree {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The empty set, with a view by size.
    #[must_use]
    pub fn with_sizes() -> Self {
        RangeTree {
            by_size: Some(BTreeSet::new()),
            ..Self::default()
        }
    }

    /// Adds the view by size to a tree that was filled without it (which is faster).
    pub(crate) fn index_sizes(&mut self) {
        self.by_size = Some(self.iter().map(|(start, size)| (size, start)).collect());
    }

    /// Checks the invariants of the module.
    ///
    /// # Panics
    /// When it does not hold.
    pub(crate) fn check_invariants(&self) {
        let (mut space, mut histogram, mut last) = (0, [0; HISTOGRAM_BUCKETS], None);
        for (&start, &end) in &self.segments {
            assert!(start < end, "segment {start:#x}..{end:#x} is empty");
            assert!(
                last.is_none_or(|last| last < start),
                "{start:#x} is not behind {last:x?}"
            );
            last = Some(end);
            space += end - start;
            histogram[bucket(end - start)] += 1;
        }
        assert_eq!(self.space, space, "sum of the segments");
        assert_eq!(self.histogram, histogram, "histogram of the segments");
        if let Some(by_size) = &self.by_size {
            assert_eq!(by_size.len(), self.segments.len(), "segments by size");
            let is_there = |(start, size): (u64, u64)| by_size.contains(&(size, start));
            assert!(
                self.iter().all(is_there),
                "the view by size lacks a segment"
            );
        }
    }

    /// Bytes in the set.
    #[must_use]
    #[doc(alias = "zfs_range_tree_space")]
    pub fn space(&self) -> u64 {
        self.space
    }

    /// Number of segments.
    #[must_use]
    #[doc(alias = "zfs_range_tree_numsegs")]
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Segments per power of two of their size.
    #[must_use]
    pub fn histogram(&self) -> &[u64; HISTOGRAM_BUCKETS] {
        &self.histogram
    }

    /// The segments as (start, size), by start.
    #[doc(alias = "zfs_range_tree_walk")]
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.segments
            .iter()
            .map(|(start, end)| (*start, end - start))
    }

    /// The segment that `offset` lies in, as (start, size).
    #[must_use]
    pub(crate) fn segment_at(&self, offset: u64) -> Option<(u64, u64)> {
        let (start, end) = self.segments.range(..=offset).next_back()?;
        (offset < *end).then(|| (*start, end - start))
    }

    /// Whether all of `[start, start + size)` is in the set.
    #[must_use]
    #[doc(alias = "zfs_range_tree_contains")]
    pub fn contains(&self, start: u64, size: u64) -> bool {
        self.segment_at(start)
            .is_some_and(|(s, len)| start - s + size <= len)
    }

    /// Whether any byte of `[start, start + size)` is in the set.
    #[must_use]
    #[doc(alias = "zfs_range_tree_find_in")]
    pub fn overlaps(&self, start: u64, size: u64) -> bool {
        let end = start.saturating_add(size);
        self.segments
            .range(..end)
            .next_back()
            .is_some_and(|(_, e)| *e > start)
    }

    /// Adds `[start, start + size)` unless a byte of it is there already or it is empty or too long;
    /// returns whether it did.
    #[must_use]
    pub fn try_add(&mut self, start: u64, size: u64) -> bool {
        let Some(end) = start.checked_add(size) else {
            return false;
        };
        if size == 0 || self.overlaps(start, size) {
            return false;
        }
        let (mut low, mut high) = (start, end);
        if let Some((s, e)) = self
            .segments
            .range(..start)
            .next_back()
            .map(|(s, e)| (*s, *e))
            && e == start
        {
            self.forget(s, e);
            low = s;
        }
        if let Some(e) = self.segments.get(&end).copied() {
            self.forget(end, e);
            high = e;
        }
        self.insert(low, high);
        true
    }

    /// Removes `[start, start + size)` unless a byte of it is missing; returns whether it did.
    #[must_use]
    pub fn try_remove(&mut self, start: u64, size: u64) -> bool {
        if size == 0 || !self.contains(start, size) {
            return false;
        }
        let (s, len) = self.segment_at(start).expect("contains() said so");
        let (e, end) = (s + len, start + size);
        self.forget(s, e);
        if s < start {
            self.insert(s, start);
        }
        if end < e {
            self.insert(end, e);
        }
        true
    }

    /// Adds what must not be there yet.
    ///
    /// # Panics
    /// When any of it is.
    #[doc(alias = "zfs_range_tree_add")]
    pub fn add(&mut self, start: u64, size: u64) {
        let done = self.try_add(start, size);
        assert!(
            done,
            "segment {start:#x}+{size:#x} is in the range tree already"
        );
    }

    /// Removes what must be there.
    ///
    /// # Panics
    /// When any of it is not.
    #[doc(alias = "zfs_range_tree_remove")]
    pub fn remove(&mut self, start: u64, size: u64) {
        let done = self.try_remove(start, size);
        assert!(
            done,
            "segment {start:#x}+{size:#x} is not in the range tree"
        );
    }

    /// Removes whatever there is of `[start, start + size)`.
    #[doc(alias = "zfs_range_tree_clear")]
    pub fn clear_range(&mut self, start: u64, size: u64) {
        let end = start.saturating_add(size);
        while let Some((s, e)) = self
            .segments
            .range(..end)
            .next_back()
            .map(|(s, e)| (*s, *e))
            .filter(|(_, e)| *e > start)
        {
            let (low, high) = (s.max(start), e.min(end));
            self.remove(low, high - low);
        }
    }

    /// Adds every segment of `other`, none of which may be there yet.
    pub(crate) fn add_all(&mut self, other: &RangeTree) {
        for (start, size) in other.iter() {
            self.add(start, size);
        }
    }

    /// Removes every segment of `other`, all of which must be there.
    pub fn remove_all(&mut self, other: &RangeTree) {
        for (start, size) in other.iter() {
            self.remove(start, size);
        }
    }

    /// Empties the set and returns what was in it.
    #[must_use]
    #[doc(alias = "zfs_range_tree_vacate")]
    pub fn vacate(&mut self) -> RangeTree {
        let empty = RangeTree {
            by_size: self.by_size.as_ref().map(|_| BTreeSet::new()),
            ..RangeTree::default()
        };
        std::mem::replace(self, empty)
    }

    /// The segments that end after `offset`, by start.
    pub fn iter_from(&self, offset: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let first = self
            .segments
            .range(..=offset)
            .next_back()
            .filter(|(_, end)| **end > offset)
            .map_or(offset, |(start, _)| *start);
        self.segments
            .range(first..)
            .map(|(start, end)| (*start, end - start))
    }

    /// The smallest segment of at least `size` bytes; the first of them when there are several.
    ///
    /// # Panics
    /// Without a view by size.
    #[must_use]
    pub fn best_fit(&self, size: u64) -> Option<(u64, u64)> {
        self.sizes()
            .range((Bound::Included((size, 0)), Bound::Unbounded))
            .next()
            .map(|(size, start)| (*start, *size))
    }

    /// The size of the largest segment; 0 when there is none.
    ///
    /// # Panics
    /// Without a view by size.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.sizes().last().map_or(0, |(size, _)| *size)
    }

    fn sizes(&self) -> &BTreeSet<(u64, u64)> {
        self.by_size.as_ref().expect("a range tree with sizes")
    }

    fn insert(&mut self, start: u64, end: u64) {
        let size = end - start;
        self.segments.insert(start, end);
        if let Some(by_size) = &mut self.by_size {
            by_size.insert((size, start));
        }
        self.space += size;
        self.histogram[bucket(size)] += 1;
    }

    fn forget(&mut self, start: u64, end: u64) {
        let size = end - start;
        self.segments.remove(&start);
        if let Some(by_size) = &mut self.by_size {
            by_size.remove(&(size, start));
        }
        self.space -= size;
        self.histogram[bucket(size)] -= 1;
    }
}

impl FromIterator<(u64, u64)> for RangeTree {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(iter: I) -> Self {
        let mut tree = RangeTree::new();
        iter.into_iter()
            .for_each(|(start, size)| tree.add(start, size));
        tree
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BITS: u64 = 96;

    #[derive(Clone, Debug)]
    enum Op {
        Add(u64, u64),
        Remove(u64, u64),
        Clear(u64, u64),
        Vacate,
    }

    fn op() -> impl Strategy<Value = Op> {
        let range = || (0..BITS, 1..14u64);
        prop_oneof![
            8 => range().prop_map(|(s, n)| Op::Add(s, n.min(BITS - s))),
            8 => range().prop_map(|(s, n)| Op::Remove(s, n.min(BITS - s))),
            2 => range().prop_map(|(s, n)| Op::Clear(s, n.min(BITS - s))),
            1 => Just(Op::Vacate),
        ]
    }

    fn segments(bits: u128) -> Vec<(u64, u64)> {
        let mut out: Vec<(u64, u64)> = Vec::new();
        for bit in (0..BITS).filter(|b| bits >> b & 1 == 1) {
            match out.last_mut() {
                Some((start, size)) if *start + *size == bit => *size += 1,
                _ => out.push((bit, 1)),
            }
        }
        out
    }

    fn mask(start: u64, size: u64) -> u128 {
        ((1u128 << size) - 1) << start
    }

    fn check(tree: &RangeTree, bits: u128) {
        tree.check_invariants();
        let want = segments(bits);
        assert_eq!(tree.iter().collect::<Vec<_>>(), want);
        assert_eq!(tree.space(), u64::from(bits.count_ones()));
        assert_eq!(tree.segment_count(), want.len());
        let mut histogram = [0; HISTOGRAM_BUCKETS];
        want.iter()
            .for_each(|(_, size)| histogram[bucket(*size)] += 1);
        assert_eq!(tree.histogram(), &histogram);
        assert_eq!(tree.largest(), want.iter().map(|s| s.1).max().unwrap_or(0));
        for size in 1..16 {
            let fit = want
                .iter()
                .filter(|s| s.1 >= size)
                .min_by_key(|s| (s.1, s.0));
            assert_eq!(tree.best_fit(size), fit.copied());
        }
        for start in 0..BITS {
            let n = 5.min(BITS - start);
            let m = mask(start, n);
            assert_eq!(tree.contains(start, n), bits & m == m);
            assert_eq!(tree.overlaps(start, n), bits & m != 0);
            let from: Vec<_> = want
                .iter()
                .copied()
                .filter(|(s, n)| s + n > start)
                .collect();
            assert_eq!(tree.iter_from(start).collect::<Vec<_>>(), from);
        }
    }

    proptest! {
        #[test]
        fn prop_behaves_like_a_bitmap(ops in prop::collection::vec(op(), 1..60)) {
            let mut tree = RangeTree::with_sizes();
            let mut bits = 0u128;
            for op in ops {
                match op {
                    Op::Add(s, n) => {
                        let free = bits & mask(s, n) == 0;
                        prop_assert_eq!(tree.try_add(s, n), free);
                        bits |= if free { mask(s, n) } else { 0 };
                    }
                    Op::Remove(s, n) => {
                        let full = bits & mask(s, n) == mask(s, n);
                        prop_assert_eq!(tree.try_remove(s, n), full);
                        bits &= !if full { mask(s, n) } else { 0 };
                    }
                    Op::Clear(s, n) => {
                        tree.clear_range(s, n);
                        bits &= !mask(s, n);
                    }
                    Op::Vacate => {
                        prop_assert_eq!(tree.vacate().iter().collect::<Vec<_>>(), segments(bits));
                        bits = 0;
                    }
                }
                check(&tree, bits);
            }
        }
    }

    #[test]
    fn segments_at_the_end_of_the_number_line_do_not_wrap() {
        let mut tree = RangeTree::new();
        assert!(!tree.try_add(u64::MAX, 2));
        assert!(tree.try_add(u64::MAX - 1, 1));
        assert!(tree.contains(u64::MAX - 1, 1));
        assert!(!tree.overlaps(0, u64::MAX - 1));
    }
}
