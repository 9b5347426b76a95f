//! Weights: which metaslab is the best one to allocate from next, without loading any.
//!
//! A metaslab weighs as much as its largest free segments: the highest bucket of the histogram that
//! is not empty decides, then how many segments there are in it. The histogram is kept with the
//! space map on disk, so a metaslab that was never loaded can be weighed too. Space maps from
//! before the `spacemap_histogram` feature weigh by their free space and prefer low offsets.
//!
//! # Source
//! OpenZFS module/zfs/metaslab.c `metaslab_weight`, `metaslab_set_fragmentation`;
//! include/sys/metaslab_impl.h @be7657e3.

use base::SPA_MINBLOCKSHIFT;
use phys::space_map::SPACE_MAP_HISTOGRAM_SIZE as MAP_BUCKETS;

use crate::range_tree::{HISTOGRAM_BUCKETS, RangeTree};

/// Free segments per power of two of their size, counted from the vdev's ashift.
pub(crate) type MapHistogram = [u64; MAP_BUCKETS];

/// How much a metaslab is worth to an allocation. Greater is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    /// Nothing can be allocated here.
    Full,
    /// `count` free segments of `2^index` bytes or more, but less than `2^(index + 1)`; in the last
    /// bucket of a histogram, larger ones count as if cut up.
    Segments {
        /// log2 of the size
        index: u32,
        /// how many
        count: u64,
    },
    /// Free bytes, scaled by fragmentation and position: the map has no histogram.
    Space(u64),
}

impl Weight {
    /// Whether a segment of `asize` bytes may exist in a metaslab of this weight.
    pub(crate) fn may_fit(self, asize: u64) -> bool {
        match self {
            Weight::Full => false,
            Weight::Segments { index, .. } => asize >> (index + 1) == 0,
            Weight::Space(space) => asize <= space,
        }
    }

    /// The size class of the largest segments, if known.
    pub(crate) fn index(self) -> Option<u32> {
        match self {
            Weight::Segments { index, .. } => Some(index),
            Weight::Full | Weight::Space(_) => None,
        }
    }

    /// Of a metaslab that is one free segment of `size` bytes.
    pub(crate) fn of_empty(size: u64, shift: u32) -> Weight {
        let mut histogram = [0; MAP_BUCKETS];
        fold(&mut histogram, shift, size.ilog2(), 1);
        Weight::of_map(&histogram, shift)
    }

    /// By what can be allocated right now.
    pub(crate) fn of_tree(tree: &RangeTree, shift: u32) -> Weight {
        let mut histogram = [0; MAP_BUCKETS];
        add_histogram(&mut histogram, shift, tree);
        Weight::of_map(&histogram, shift)
    }

    /// By the histogram of a space map.
    pub(crate) fn of_map(histogram: &MapHistogram, shift: u32) -> Weight {
        match histogram.iter().rposition(|count| *count != 0) {
            Some(at) => Weight::Segments {
                index: at as u32 + shift,
                count: histogram[at],
            },
            None => Weight::Full,
        }
    }

    /// By free bytes alone: scaled down by up to 99 % for fragmentation, up by up to twice for low
    /// offsets (`id` of `count` metaslabs), where disks are faster.
    pub(crate) fn of_space(free: u64, fragmentation: Option<u64>, id: u64, count: u64) -> Weight {
        let scaled = match fragmentation {
            Some(percent) => {
                let space = u128::from(free) * u128::from(101 - percent.max(1)) / 100;
                (space as u64).max(free.min(1 << SPA_MINBLOCKSHIFT))
            }
            None => free,
        };
        if scaled == 0 {
            return Weight::Full;
        }
        let bias = u128::from(scaled) * u128::from(id) / u128::from(count.max(1));
        Weight::Space((2 * u128::from(scaled) - bias).min(u128::from(u64::MAX)) as u64)
    }
}

/// Adds `count` segments of `2^bucket` bytes; those beyond the last bucket count as several.
fn fold(histogram: &mut MapHistogram, shift: u32, bucket: u32, count: u64) {
    let at = (bucket - shift) as usize;
    let last = at.min(MAP_BUCKETS - 1);
    histogram[last] = histogram[last].saturating_add(count << (at - last));
}

/// Adds the sizes in `tree` to a space map's histogram.
///
/// # Panics
/// When the tree has segments smaller than the vdev's sector.
#[doc(alias = "space_map_histogram_add")]
pub(crate) fn add_histogram(histogram: &mut MapHistogram, shift: u32, tree: &RangeTree) {
    for bucket in 0..HISTOGRAM_BUCKETS as u32 {
        let count = tree.histogram()[bucket as usize];
        if count != 0 {
            assert!(
                bucket >= shift,
                "a segment below 1 << {shift} in a metaslab"
            );
            fold(histogram, shift, bucket, count);
        }
    }
}

/// Percent of "fragmented" by size of free segment, from 512 bytes up: `zfs_frag_table`.
const FRAGMENTATION_PERCENT: [u64; 21] = [
    100, 99, 97, 93, 88, 83, 77, 71, 64, 57, 50, 43, 36, 29, 23, 17, 12, 7, 3, 1, 0,
];

/// How fragmented the free space is, in percent: 100 when it is all in single sectors, 0 when it
/// is all in segments of half a gigabyte.
#[must_use]
#[doc(alias = "metaslab_set_fragmentation")]
pub fn fragmentation(histogram: &MapHistogram, shift: u32) -> u64 {
    let (mut total, mut weighted) = (0u128, 0u128);
    for (at, count) in histogram.iter().enumerate() {
        let row = (shift - SPA_MINBLOCKSHIFT) as usize + at;
        let percent = FRAGMENTATION_PERCENT[row.min(FRAGMENTATION_PERCENT.len() - 1)];
        let space = u128::from(*count) << (at as u32 + shift);
        total += space;
        weighted += space * u128::from(percent);
    }
    weighted.checked_div(total).unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_segments_beat_more_segments() {
        let big = RangeTree::from_iter([(0, 1 << 20)]);
        let many: RangeTree = (0..64).map(|i| (i << 20, 512 << 10)).collect();
        assert!(Weight::of_tree(&big, 12) > Weight::of_tree(&many, 12));
        let two = RangeTree::from_iter([(0, 1 << 20), (4 << 20, 1 << 20)]);
        assert!(Weight::of_tree(&two, 12) > Weight::of_tree(&big, 12));
    }

    #[test]
    fn huge_segments_count_as_several_of_the_last_bucket() {
        let tree = RangeTree::from_iter([(0, 1 << 44)]);
        assert_eq!(
            Weight::of_tree(&tree, 9),
            Weight::Segments {
                index: 40,
                count: 16
            }
        );
        assert_eq!(Weight::of_empty(1 << 44, 9), Weight::of_tree(&tree, 9));
    }

    #[test]
    fn a_weight_admits_what_may_be_there() {
        let weight = Weight::Segments {
            index: 17,
            count: 1,
        };
        assert!(weight.may_fit((1 << 18) - 512));
        assert!(!weight.may_fit(1 << 18));
        assert!(!Weight::Full.may_fit(512));
    }

    #[test]
    fn fragmentation_runs_from_sectors_to_half_gigabytes() {
        let mut histogram = [0; MAP_BUCKETS];
        assert_eq!(fragmentation(&histogram, 9), 0);
        histogram[0] = 7;
        assert_eq!(fragmentation(&histogram, 9), 100);
        assert_eq!(fragmentation(&histogram, 12), 93);
        histogram[0] = 0;
        histogram[20] = 1;
        assert_eq!(fragmentation(&histogram, 9), 0);
    }

    #[test]
    fn space_weights_prefer_low_offsets_and_whole_space() {
        let low = Weight::of_space(1 << 30, Some(10), 0, 16);
        assert!(low > Weight::of_space(1 << 30, Some(10), 9, 16));
        assert!(low > Weight::of_space(1 << 30, Some(80), 0, 16));
        assert_eq!(Weight::of_space(0, None, 3, 16), Weight::Full);
        assert_eq!(
            Weight::of_space(512, Some(100), 15, 16),
            Weight::Space(1024 - 480)
        );
    }
}
