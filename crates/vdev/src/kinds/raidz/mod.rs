//! RAID-Z: where the columns of a block lie on children that take turns sector by sector.
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
//! Blocks that are older than the last expansion of the vdev are laid out otherwise ([`expansion`]).
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

mod expansion;

use std::ops::Range;

use base::Result;
use phys::uberblock::UberblockPhys;

use super::striped::{Column, Layout, Order, Row, Rows, Shape};
use crate::VdevConfig;
use expansion::{Block, Expansions, SectorRow};

/// Blocks whose offset has this bit have P and the first column of data swapped, with single parity.
const SWAP_BIT: u64 = 1 << 20;

/// A RAID-Z of one, two or three columns of parity.
#[derive(Debug)]
#[doc(alias = "vdev_raidz_ops")]
pub(crate) struct Raidz {
    nparity: usize,
    expansions: Expansions,
}

impl Raidz {
    pub(crate) fn new(nparity: u8, config: &VdevConfig) -> Self {
        Raidz {
            nparity: nparity.into(),
            expansions: Expansions::new(config),
        }
    }

    /// How many columns a block of this shape has.
    fn width(&self, shape: Shape) -> usize {
        let width = self.expansions.width(shape.children, shape.birth);
        assert!(
            width > self.nparity,
            "a RAID-Z of {} children, {width} columns, {} for parity",
            shape.children,
            self.nparity
        );
        width
    }

    fn data_columns(&self, shape: Shape) -> u64 {
        (self.width(shape) - self.nparity) as u64
    }

    /// A block that is narrower than the vdev.
    fn narrow(&self, shape: Shape, bytes: usize) -> Option<Block> {
        let width = self.width(shape);
        (width < shape.children).then_some(Block {
            width,
            nparity: self.nparity,
            sectors: bytes as u64 >> shape.ashift,
        })
    }

    #[doc(alias = "vdev_raidz_map_alloc")]
    fn map(&self, shape: Shape, offset: u64, bytes: usize) -> Map {
        let sectors = bytes as u64 >> shape.ashift;
        let data = self.data_columns(shape);
        let (full_rows, rest) = (sectors / data, sectors % data);
        let longer = match rest {
            0 => 0,
            rest => self.nparity + rest as usize,
        };
        Map {
            shape,
            first: offset >> shape.ashift,
            full_rows,
            longer,
            is_swapped: self.nparity == 1 && offset & SWAP_BIT != 0,
        }
    }
}

impl Layout for Raidz {
    type Row<'a> = RaidzRow;

    fn nparity(&self) -> usize {
        self.nparity
    }

    fn rows(&self, shape: Shape, offset: u64, bytes: usize) -> Result<Rows<RaidzRow>> {
        let Some(block) = self.narrow(shape, bytes) else {
            let whole = RaidzRow::Whole(self.map(shape, offset, bytes));
            return Ok(Rows::from_iter([whole]));
        };
        let rows = self.expansions.rows(shape, block, offset)?;
        Ok(rows.map(RaidzRow::Sectors).collect())
    }

    fn order(&self, shape: Shape, bytes: usize) -> Option<Order> {
        self.narrow(shape, bytes)?.order(shape.ashift)
    }

    fn former(&self, children: usize) -> Vec<usize> {
        self.expansions.former(children).collect()
    }

    fn fills_gaps(&self) -> bool {
        !self.expansions.is_any()
    }

    /// Sector `s` is sector `s / n` of child `s % n`, whatever the width of the blocks there. While children are
    /// being added that is not so for all sectors: then nothing is shown.
    #[doc(alias = "vdev_raidz_xlate")]
    fn translate(
        &self,
        shape: Shape,
        child: usize,
        range: Range<u64>,
        show: &mut dyn FnMut(Range<u64>),
    ) {
        if self.expansions.is_expanding() {
            return;
        }
        let rows_before = |sector: u64| {
            let before = sector.saturating_sub(child as u64);
            before.div_ceil(shape.children as u64) << shape.ashift
        };
        let rows = rows_before(range.start >> shape.ashift)..rows_before(range.end >> shape.ashift);
        if !rows.is_empty() {
            show(rows);
        }
    }

    /// The first sector of a block's bytes follows its first sectors of parity, or is before the one. While a child is
    /// being added it may be at its former place.
    fn origins(&self, shape: Shape, child: usize, offset: u64, show: &mut dyn FnMut(u64)) {
        let row = offset >> shape.ashift;
        let is_expanding = self.expansions.is_expanding();
        let widths = shape.children - usize::from(is_expanding)..=shape.children;
        for children in widths.filter(|children| child < *children) {
            let sector = row * children as u64 + child as u64;
            let before = (0..=self.nparity as u64).filter_map(|before| sector.checked_sub(before));
            before.for_each(|first| show(first << shape.ashift));
        }
    }

    #[doc(alias = "RRSS_GET_OFFSET")]
    fn note_uberblock(&self, uberblock: &UberblockPhys) {
        let offset = uberblock.reflow_offset();
        let is_in_scratch = uberblock.has_reflow_in_scratch();
        self.expansions.set_reflowed(offset, is_in_scratch);
    }

    fn forget_uberblock(&self) {
        self.expansions.forget_reflowed();
    }

    fn asize(&self, children: &[u64]) -> u64 {
        let least = children.iter().min().copied().unwrap_or(0);
        least.saturating_mul(self.full_children(children.len()) as u64)
    }

    fn min_child_asize(&self, children: usize, asize: u64) -> u64 {
        asize.div_ceil(self.full_children(children).max(1) as u64)
    }

    #[doc(alias = "vdev_raidz_asize")]
    fn psize_to_asize(&self, shape: Shape, psize: u64) -> u64 {
        let nparity = self.nparity as u64;
        let data = psize.div_ceil(1 << shape.ashift);
        let sectors = data + nparity * data.div_ceil(self.data_columns(shape));
        sectors.next_multiple_of(nparity + 1) << shape.ashift
    }

    fn data_disks(&self, children: usize) -> usize {
        children.saturating_sub(self.nparity)
    }
}

impl Raidz {
    /// How many children there are, without one that is still being filled.
    fn full_children(&self, children: usize) -> usize {
        children - usize::from(self.expansions.is_expanding() && children > 0)
    }
}

/// A row of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RaidzRow {
    /// All of a block that is as wide as the vdev.
    Whole(Map),
    /// Of a block that is not.
    Sectors(SectorRow),
}

impl Row for RaidzRow {
    fn count(&self) -> usize {
        match self {
            RaidzRow::Whole(map) => map.count(),
            RaidzRow::Sectors(row) => row.count(),
        }
    }

    fn column(&self, n: usize) -> Column {
        match self {
            RaidzRow::Whole(map) => map.column(n),
            RaidzRow::Sectors(row) => row.column(n),
        }
    }

    fn shadow(&self, n: usize) -> Option<Column> {
        match self {
            RaidzRow::Whole(_) => None,
            RaidzRow::Sectors(row) => row.shadow(n),
        }
    }
}

/// The columns of one block, parity first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Map {
    shape: Shape,
    /// The block's first sector.
    first: u64,
    /// Rows in which all children have a sector.
    full_rows: u64,
    /// The columns that have a sector more.
    longer: usize,
    is_swapped: bool,
}

impl Row for Map {
    fn count(&self) -> usize {
        if self.full_rows == 0 {
            self.longer
        } else {
            self.shape.children
        }
    }

    fn column(&self, n: usize) -> Column {
        let (at, children, ashift) = (
            if self.is_swapped && n < 2 { 1 - n } else { n } as u64,
            self.shape.children as u64,
            self.shape.ashift,
        );
        let (row, child) = ((self.first + at) / children, (self.first + at) % children);
        let bytes = ((self.full_rows + u64::from(n < self.longer)) << ashift) as usize;
        Column {
            child: child as usize,
            offset: row << ashift,
            bytes,
            stored: bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use base::Txg;
    use proptest::prelude::*;

    use super::*;

    /// A RAID-Z and its shape.
    fn raidz(children: usize, nparity: u8, ashift: u32) -> (Raidz, Shape) {
        let shape = Shape {
            children,
            ashift,
            birth: Txg(5),
        };
        (Raidz::new(nparity, &VdevConfig::default()), shape)
    }

    /// Child, first sector and length in sectors of each column.
    fn sectors(
        (raidz, shape): &(Raidz, Shape),
        first: u64,
        count: usize,
    ) -> Vec<(usize, u64, usize)> {
        let ashift = shape.ashift;
        let map = raidz.map(*shape, first << ashift, count << ashift);
        let in_sectors = |c: Column| (c.child, c.offset >> ashift, c.bytes >> ashift);
        map.columns().map(in_sectors).collect()
    }

    #[test]
    fn the_picture_above_is_what_is_computed() {
        let columns = sectors(&raidz(5, 2, 12), 1, 7);
        let expected = [(1, 0, 3), (2, 0, 3), (3, 0, 3), (4, 0, 2), (0, 1, 2)];
        assert_eq!(columns, expected);
        let (raidz, shape) = raidz(5, 2, 12);
        assert_eq!(raidz.psize_to_asize(shape, 7 << 12), 15 << 12);
    }

    #[test]
    fn known_blocks_have_known_places() {
        // One sector of data: one row, as wide as the data and its parity.
        let narrow = sectors(&raidz(4, 1, 9), 3, 1);
        assert_eq!(narrow, [(3, 0, 1), (0, 1, 1)]);
        // Two whole rows.
        let whole = sectors(&raidz(4, 1, 9), 8, 6);
        assert_eq!(whole, [(0, 2, 2), (1, 2, 2), (2, 2, 2), (3, 2, 2)]);
        // At an odd megabyte, P changes places with the first column of data.
        let swapped = sectors(&raidz(4, 1, 9), 2048, 4);
        assert_eq!(
            swapped,
            [(1, 512, 2), (0, 512, 2), (2, 512, 1), (3, 512, 1)]
        );
        // Not with more parity.
        let unswapped = sectors(&raidz(4, 2, 9), 2048, 2);
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
            let (raidz, shape) = raidz(children, nparity, ashift);
            let asize = raidz.psize_to_asize(shape, psize);
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
            nparity in 1u8..=3,
            more in 1usize..=252,
            ashift in 9u32..=16,
            first in 0u64..1 << 24,
            count in 1usize..=300,
        ) {
            let (raidz, shape) = raidz(usize::from(nparity) + more, nparity, ashift);
            let nparity = usize::from(nparity);
            let raidz_and_shape = (raidz, shape);
            let columns = sectors(&raidz_and_shape, first, count);
            let (raidz, shape) = raidz_and_shape;
            let children: BTreeSet<usize> = columns.iter().map(|c| c.0).collect();
            prop_assert_eq!(children.len(), columns.len());
            let mut used = BTreeSet::new();
            for (child, start, len) in &columns {
                for row in *start..start + *len as u64 {
                    let sector = row * shape.children as u64 + *child as u64;
                    prop_assert!(used.insert(sector), "sector {} is used twice", sector);
                }
            }
            let asize = raidz.psize_to_asize(shape, (count as u64) << ashift) >> ashift;
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
        fn prop_asize_grows(nparity in 1u8..=3, more in 1usize..=252, psize in 1u64..1 << 24) {
            let (raidz, shape) = raidz(usize::from(nparity) + more, nparity, 12);
            let asize = |psize| raidz.psize_to_asize(shape, psize);
            prop_assert!(asize(psize) <= asize(psize + 1));
        }
    }
}
