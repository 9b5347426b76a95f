//! Where the parts of a block lie on the children of a RAID-Z.
//!
//! # What it is
//! The sectors of a RAID-Z are numbered row by row: sector `s` is sector `s / n` of child `s % n`, of `n`
//! children. A block takes sectors that follow each other, from the one at its offset on. Every n-th of them
//! belongs to the same column, so a column is one piece of one child, and has a sector in each row.
//!
//! # On disk
//! A block of `d` sectors on 5 children with 2 columns of parity has `ceil(d / 3)` rows, each of which is
//! as wide as its data and its parity. First come the columns of parity, then those of data, which hold the
//! block's bytes one column after the other. With 7 sectors from sector 1 on:
//! ```text
//!            child 0   child 1   child 2   child 3   child 4
//! row 0         -         P0        Q0        0         3
//! row 1         5         P1        Q1        1         4
//! row 2         6         P2        Q2        2         x
//! ```
//! Columns 0 and 1 are P and Q, column 2 has the bytes of sectors 0 to 2, column 3 those of 3 and 4, column 4
//! those of 5 and 6: the columns that have a sector in the last row come first.
//!
//! The sectors that a block takes are rounded up to a multiple of the smallest block's, which are a sector
//! of data and its parity (`x` above is one of two such sectors; the other is in row 3): no free space
//! between two blocks is too small for a third. Nothing is read from the sectors that this adds.
//!
//! With single parity, blocks at odd megabytes have their first two columns swapped. That was meant to spread
//! parity over the children, which it hardly does; it is part of the format.
//!
//! # Invariants
//! 1. Each sector of a block's columns is within what is allocated for the block, and none is used twice.
//! 2. The columns of a block are on different children.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_raidz.c` (`vdev_raidz_map_alloc`, `vdev_raidz_asize`).

/// Blocks whose offset has this bit have P and the first column of data swapped, with single parity.
const SWAP_BIT: u64 = 1 << 20;

/// The shape of a RAID-Z.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    /// How many children there are; more than `nparity`.
    pub(super) children: usize,
    /// Columns of parity.
    pub(super) nparity: usize,
    /// log2 of the sector.
    pub(super) ashift: u32,
}

impl Geometry {
    fn data_columns(self) -> u64 {
        (self.children - self.nparity) as u64
    }

    /// Bytes that a block of `psize` takes, with parity and padding.
    #[doc(alias = "vdev_raidz_asize")]
    pub(super) fn asize(self, psize: u64) -> u64 {
        let nparity = self.nparity as u64;
        let data = psize.div_ceil(1 << self.ashift);
        let sectors = data + nparity * data.div_ceil(self.data_columns());
        sectors.next_multiple_of(nparity + 1) << self.ashift
    }

    /// Where a block of this many bytes lies; both numbers are whole sectors.
    #[doc(alias = "vdev_raidz_map_alloc")]
    pub(super) fn map(self, offset: u64, bytes: usize) -> Map {
        let sectors = bytes as u64 >> self.ashift;
        let (full_rows, rest) = (sectors / self.data_columns(), sectors % self.data_columns());
        let longer = match rest {
            0 => 0,
            rest => self.nparity + rest as usize,
        };
        Map {
            geometry: self,
            first: offset >> self.ashift,
            full_rows,
            longer,
            is_swapped: self.nparity == 1 && offset & SWAP_BIT != 0,
        }
    }
}

/// The columns of one block, parity first.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "raidz_map_t")]
pub(super) struct Map {
    geometry: Geometry,
    /// The block's first sector.
    first: u64,
    /// Rows in which all children have a sector.
    full_rows: u64,
    /// The columns that have a sector more.
    longer: usize,
    is_swapped: bool,
}

/// One column of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "raidz_col_t")]
pub(super) struct Column {
    /// The number of the child.
    pub(super) child: usize,
    /// Where it starts on the child, in bytes, without labels.
    pub(super) offset: u64,
    /// Its length in bytes.
    pub(super) bytes: usize,
}

impl Map {
    /// How many columns there are.
    pub(super) fn count(&self) -> usize {
        if self.full_rows == 0 {
            self.longer
        } else {
            self.geometry.children
        }
    }

    /// All columns, parity first.
    pub(super) fn columns(&self) -> impl Iterator<Item = Column> + '_ {
        (0..self.count()).map(|n| self.column(n))
    }

    /// Column `n`; those of parity come first.
    pub(super) fn column(&self, n: usize) -> Column {
        let (at, children, ashift) = (
            if self.is_swapped && n < 2 { 1 - n } else { n } as u64,
            self.geometry.children as u64,
            self.geometry.ashift,
        );
        let (row, child) = ((self.first + at) / children, (self.first + at) % children);
        let rows = self.full_rows + u64::from(n < self.longer);
        Column {
            child: child as usize,
            offset: row << ashift,
            bytes: (rows << ashift) as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn geometry(children: usize, nparity: usize, ashift: u32) -> Geometry {
        Geometry {
            children,
            nparity,
            ashift,
        }
    }

    /// Child, first sector and length in sectors of each column.
    fn sectors(geometry: Geometry, first: u64, count: usize) -> Vec<(usize, u64, usize)> {
        let ashift = geometry.ashift;
        let map = geometry.map(first << ashift, count << ashift);
        let in_sectors = |c: Column| (c.child, c.offset >> ashift, c.bytes >> ashift);
        map.columns().map(in_sectors).collect()
    }

    #[test]
    fn the_picture_above_is_what_is_computed() {
        let columns = sectors(geometry(5, 2, 12), 1, 7);
        let expected = [(1, 0, 3), (2, 0, 3), (3, 0, 3), (4, 0, 2), (0, 1, 2)];
        assert_eq!(columns, expected);
        assert_eq!(geometry(5, 2, 12).asize(7 << 12), 15 << 12);
    }

    #[test]
    fn known_blocks_have_known_places() {
        // One sector of data: one row, as wide as the data and its parity.
        let narrow = sectors(geometry(4, 1, 9), 3, 1);
        assert_eq!(narrow, [(3, 0, 1), (0, 1, 1)]);
        // Two whole rows.
        let whole = sectors(geometry(4, 1, 9), 8, 6);
        assert_eq!(whole, [(0, 2, 2), (1, 2, 2), (2, 2, 2), (3, 2, 2)]);
        // At an odd megabyte, P changes places with the first column of data.
        let swapped = sectors(geometry(4, 1, 9), 2048, 4);
        assert_eq!(
            swapped,
            [(1, 512, 2), (0, 512, 2), (2, 512, 1), (3, 512, 1)]
        );
        // Not with more parity.
        let unswapped = sectors(geometry(4, 2, 9), 2048, 2);
        assert_eq!(
            unswapped,
            [(0, 512, 1), (1, 512, 1), (2, 512, 1), (3, 512, 1)]
        );
    }

    #[test]
    fn known_blocks_take_known_space() {
        // children, parity, ashift, psize -> sectors
        let cases = [
            (3, 1, 12, 4096, 2),
            (3, 1, 12, 8192, 4),     // 2 of data, 1 of parity, 1 skipped
            (5, 1, 12, 131_072, 40), // 32 + 8
            (6, 2, 12, 131_072, 48), // 32 + 16
            (7, 3, 12, 131_072, 56), // 32 + 24
            (8, 3, 9, 512, 4),
            (8, 3, 9, 513, 8),  // 2 + 3, 3 skipped
            (4, 2, 9, 1536, 9), // 3 + 4, 2 skipped
        ];
        for (children, nparity, ashift, psize, expected) in cases {
            let asize = geometry(children, nparity, ashift).asize(psize);
            assert_eq!(
                asize >> ashift,
                expected,
                "{psize} on {children}, {nparity}"
            );
        }
    }

    proptest! {
        #[test]
        fn prop_columns_use_sectors_of_the_block_once(
            nparity in 1usize..=3,
            more in 1usize..=252,
            ashift in 9u32..=16,
            first in 0u64..1 << 24,
            count in 1usize..=300,
        ) {
            let geometry = geometry(nparity + more, nparity, ashift);
            let columns = sectors(geometry, first, count);
            let children: BTreeSet<usize> = columns.iter().map(|c| c.0).collect();
            prop_assert_eq!(children.len(), columns.len());
            let mut used = BTreeSet::new();
            for (child, start, len) in &columns {
                for row in *start..start + *len as u64 {
                    let sector = row * geometry.children as u64 + *child as u64;
                    prop_assert!(used.insert(sector), "sector {} is used twice", sector);
                }
            }
            let asize = geometry.asize((count as u64) << ashift) >> ashift;
            prop_assert_eq!(asize % (nparity as u64 + 1), 0);
            prop_assert!(*used.first().unwrap() >= first);
            prop_assert!(*used.last().unwrap() < first + asize);
            prop_assert!(asize - (used.len() as u64) <= nparity as u64);
            let data: usize = columns[nparity..].iter().map(|c| c.2).sum();
            prop_assert_eq!(data, count);
            let longest = columns[nparity].2;
            prop_assert!(columns[..nparity].iter().all(|c| c.2 == longest));
            prop_assert!(columns.is_sorted_by(|a, b| a.2 >= b.2));
        }

        #[test]
        fn prop_asize_grows(nparity in 1usize..=3, more in 1usize..=252, psize in 1u64..1 << 24) {
            let geometry = geometry(nparity + more, nparity, 12);
            prop_assert!(geometry.asize(psize) <= geometry.asize(psize + 1));
        }
    }
}
