//! Rows of columns: which part of a block lies on which child.
//!
//! # What it is
//! A [`Layout`] cuts a block into [`Row`]s, and each row into columns on different children. The first
//! columns of a row are parity of the others, which hold the row's bytes one column after the other.
//! A [`Column`] is one piece of one child.
//!
//! # Invariants
//! 1. The columns of a row are on different children; no two columns of a block overlap.
//! 2. The parity columns of a row are as long as its first data column; no other is longer.
//! 3. Blocks that follow each other leave at most one sector between their columns on a child.

use std::ops::Range;

use base::{BlockBuf, Result, Txg};
use phys::uberblock::UberblockPhys;

/// What a layout has to know of the vdev and the block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// How many children there are.
    pub(crate) children: usize,
    /// log2 of the sector.
    pub(crate) ashift: u32,
    /// When the block was written.
    pub(crate) birth: Txg,
}

/// One column of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "raidz_col_t")]
pub(crate) struct Column {
    /// The number of the child.
    pub(crate) child: usize,
    /// Where it starts on the child, in bytes, without labels.
    pub(crate) offset: u64,
    /// How many bytes of parity, or of the block, it has.
    pub(crate) bytes: usize,
    /// Its length on the child: zeros follow its bytes up to here.
    pub(crate) stored: usize,
}

/// The columns of one row of a block.
#[doc(alias = "raidz_row_t")]
pub(crate) trait Row: Copy {
    /// How many columns there are.
    fn count(&self) -> usize;

    /// Column `n`; those of parity come first.
    fn column(&self, n: usize) -> Column;

    /// Where column `n` is written to besides: it was copied there, but is not read from there yet.
    #[doc(alias = "rc_shadow_offset")]
    fn shadow(&self, n: usize) -> Option<Column> {
        let _ = n;
        None
    }

    /// All columns, parity first.
    fn columns(&self) -> impl Iterator<Item = Column> {
        (0..self.count()).map(|n| self.column(n))
    }
}

/// The rows of a block, in the order of its bytes, or in the [`Order`] that the layout says. One or two rows take
/// no memory of their own.
#[derive(Clone, Debug)]
#[doc(alias = "raidz_map_t")]
pub(crate) struct Rows<R> {
    first: [Option<R>; 2],
    rest: Vec<R>,
}

impl<R: Row> Rows<R> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = R> {
        self.first.iter().flatten().chain(&self.rest).copied()
    }
}

impl<R> FromIterator<R> for Rows<R> {
    fn from_iter<I: IntoIterator<Item = R>>(rows: I) -> Self {
        let mut rows = rows.into_iter();
        Rows {
            first: [rows.next(), rows.next()],
            rest: rows.collect(),
        }
    }
}

/// The order in which the sectors of a block are in its rows, if it is not theirs in the block.
pub(crate) struct Order {
    /// The number of each sector in the block.
    pub(crate) sectors: Vec<u32>,
    pub(crate) ashift: u32,
}

impl Order {
    /// The bytes of a block in the order of its rows.
    pub(super) fn by_row(&self, block: &[u8]) -> BlockBuf {
        let mut by_row = BlockBuf::scratch(block.len());
        let sectors = by_row.chunks_exact_mut(1 << self.ashift);
        for (to, from) in sectors.zip(&self.sectors) {
            let at = (*from as usize) << self.ashift;
            to.copy_from_slice(&block[at..at + to.len()]);
        }
        by_row
    }

    /// Puts the bytes of a block from the order of its rows into their own.
    pub(super) fn put_back(&self, by_row: &[u8], block: &mut [u8]) {
        let sectors = by_row.chunks_exact(1 << self.ashift);
        for (from, to) in sectors.zip(&self.sectors) {
            let at = (*to as usize) << self.ashift;
            block[at..at + from.len()].copy_from_slice(from);
        }
    }
}

/// How a kind spreads blocks over its children, and what that takes.
pub(crate) trait Layout: Send + Sync {
    /// A row of a block.
    type Row<'a>: Row
    where
        Self: 'a;

    /// Columns of parity of each row.
    fn nparity(&self) -> usize;

    /// Where a block at an offset, which may come from disk, lies.
    fn rows(&self, shape: Shape, offset: u64, bytes: usize) -> Result<Rows<Self::Row<'_>>>;

    /// The order of a block in its rows.
    fn order(&self, shape: Shape, bytes: usize) -> Option<Order> {
        let _ = (shape, bytes);
        None
    }

    /// The numbers of children that it had before children were added: a child that was wrong before may have left
    /// wrong sectors on all of them.
    fn former(&self, children: usize) -> Vec<usize> {
        let _ = children;
        Vec::new()
    }

    /// Whether up to a sector between the columns of blocks that follow each other can be written to.
    fn fills_gaps(&self) -> bool {
        true
    }

    /// As [`KindOps::translate`](crate::kinds::KindOps::translate).
    fn translate(
        &self,
        shape: Shape,
        child: usize,
        range: Range<u64>,
        show: &mut dyn FnMut(Range<u64>),
    );

    /// As [`KindOps::origins`](crate::kinds::KindOps::origins).
    fn origins(&self, shape: Shape, child: usize, offset: u64, show: &mut dyn FnMut(u64));

    /// As [`KindOps::note_uberblock`](crate::kinds::KindOps::note_uberblock).
    fn note_uberblock(&self, uberblock: &UberblockPhys) {
        let _ = uberblock;
    }

    /// As [`KindOps::forget_uberblock`](crate::kinds::KindOps::forget_uberblock).
    fn forget_uberblock(&self) {}

    /// As [`KindOps::asize`](crate::kinds::KindOps::asize).
    fn asize(&self, children: &[u64]) -> u64;

    /// As [`KindOps::min_child_asize`](crate::kinds::KindOps::min_child_asize).
    fn min_child_asize(&self, children: usize, asize: u64) -> u64;

    /// As [`KindOps::psize_to_asize`](crate::kinds::KindOps::psize_to_asize).
    fn psize_to_asize(&self, shape: Shape, psize: u64) -> u64;

    /// As [`KindOps::data_disks`](crate::kinds::KindOps::data_disks).
    fn data_disks(&self, children: usize) -> usize;

    /// As [`KindOps::child_of_spare`](crate::kinds::KindOps::child_of_spare).
    fn child_of_spare(&self, spare: u8, offset: u64) -> Option<usize> {
        let _ = (spare, offset);
        None
    }

    /// Each write to a child ends at multiples of this, in bytes.
    fn write_end(&self) -> u64 {
        u64::MAX
    }

    /// As [`KindOps::min_alloc`](crate::kinds::KindOps::min_alloc).
    fn min_alloc(&self, ashift: u32) -> u64 {
        1 << ashift
    }

    /// If all that is allocated are whole rows of sectors: the bytes of one, with parity, and those of data in it.
    fn whole_row(&self, ashift: u32) -> Option<(u64, u64)> {
        let _ = ashift;
        None
    }

    /// As [`KindOps::metaslab_align`](crate::kinds::KindOps::metaslab_align).
    fn metaslab_align(&self, ashift: u32) -> u64 {
        let _ = ashift;
        1
    }
}
