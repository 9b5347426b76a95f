//! RAID-Z that was expanded: blocks that are narrower than the vdev.
//!
//! # What it is
//! When a child is added to a RAID-Z, the sectors keep their numbers, and each is copied to where its number
//! belongs on one child more. Blocks are not made anew: one that is older than the end of the expansion keeps
//! its *logical width*, the number of columns that it was written with. Its rows follow each other as before,
//! but a column is no longer one piece of one child: each row has its sectors on other children.
//!
//! # On disk
//! A block of 5 sectors, written on 4 children with a column of parity to sector 1, after an expansion to 5:
//! ```text
//!  before:    child 0   child 1   child 2   child 3
//!  row 0         -         P0        0         2
//!  row 1         4         P1        1         3
//!
//!  after:     child 0   child 1   child 2   child 3   child 4
//!                -         P0        0         2         4
//!                P1        1         3         x
//! ```
//! Here each row is taken for itself, as wide as the block, with parity of its own; the last one has no sectors
//! in its last columns if the block is too short. The bytes of the block go down one column after the other
//! ([`Order`]).
//!
//! The config has the txgs from which on blocks are one column wider each. While an expansion runs, the
//! uberblock says how far the sectors were copied: rows that end behind that are where they were before. Those
//! of their sectors that were copied are written to both places, so that what is copied later ends a whole row.
//! For a while the first sectors are nowhere but in the scratch area, the boot area before what can be allocated.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_raidz.c` (`vdev_raidz_get_logical_width`, `vdev_raidz_map_alloc_expanded`,
//! `raidz_simulate_failure`), `include/sys/uberblock_impl.h` (`RRSS_GET_OFFSET`).

use std::sync::atomic::{AtomicU64, Ordering};

use base::{Error, Result, Txg};
use phys::label::BOOT_SIZE;

use super::super::striped::{Column, Order, Row, Shape};
use super::SWAP_BIT;
use crate::VdevConfig;

/// The uberblock was not looked at yet.
const UNKNOWN: u64 = u64::MAX;
/// Beside how far an expansion got, which is a multiple of 512 bytes: the scratch area is in use.
const SCRATCH_BIT: u64 = 1;

/// How a RAID-Z became as wide as it is.
#[derive(Debug)]
#[doc(alias = "vd_expand_txgs")]
pub(crate) struct Expansions {
    /// From each of these txgs on, blocks are a column wider.
    txgs: Vec<u64>,
    /// Whether the last child is still being filled.
    is_expanding: bool,
    /// How far that got, in bytes, with [`SCRATCH_BIT`]; or [`UNKNOWN`].
    reflowed: AtomicU64,
}

impl Expansions {
    pub(crate) fn new(config: &VdevConfig) -> Self {
        Expansions {
            txgs: config.expand_txgs.clone(),
            is_expanding: config.expanding,
            reflowed: AtomicU64::new(UNKNOWN),
        }
    }

    pub(crate) fn is_any(&self) -> bool {
        self.is_expanding || !self.txgs.is_empty()
    }

    pub(crate) fn is_expanding(&self) -> bool {
        self.is_expanding
    }

    /// How far an expansion got, as the uberblock says.
    pub(crate) fn set_reflowed(&self, bytes: u64, is_in_scratch: bool) {
        let word = bytes & !SCRATCH_BIT | if is_in_scratch { SCRATCH_BIT } else { 0 };
        self.reflowed.store(word, Ordering::Release);
    }

    /// It is not known any more.
    pub(crate) fn forget_reflowed(&self) {
        self.reflowed.store(UNKNOWN, Ordering::Release);
    }

    /// The number of children before the first expansion.
    fn original(&self, children: usize) -> usize {
        children.saturating_sub(self.txgs.len() + usize::from(self.is_expanding))
    }

    /// How many columns a block of this txg has.
    #[doc(alias = "vdev_raidz_get_logical_width")]
    pub(crate) fn width(&self, children: usize, birth: Txg) -> usize {
        let since = self.txgs.partition_point(|txg| *txg <= birth.0);
        self.original(children) + since
    }

    /// The numbers of children that the vdev had before.
    pub(crate) fn former(&self, children: usize) -> impl Iterator<Item = usize> {
        (self.original(children)..children).rev()
    }

    /// The rows of a block that is narrower than the vdev.
    #[doc(alias = "vdev_raidz_map_alloc_expanded")]
    pub(super) fn rows(
        &self,
        shape: Shape,
        block: Block,
        offset: u64,
    ) -> Result<impl Iterator<Item = SectorRow>> {
        let (moved, is_in_scratch) = self.moved(shape.ashift)?;
        let (first, ashift) = (offset >> shape.ashift, shape.ashift);
        let count = block.columns();
        let row = move |row: u64| {
            let first = first + row * block.width as u64;
            let is_moved = first + count as u64 <= moved;
            let new = Home {
                children: shape.children as u64,
                before: if is_in_scratch { BOOT_SIZE } else { 0 },
            };
            let old = Home {
                children: new.children - 1,
                before: 0,
            };
            SectorRow {
                first,
                count,
                filled: block.filled(row),
                ashift,
                home: if is_moved { new } else { old },
                copied: (!is_moved && first < moved).then_some((moved, new)),
                is_swapped: block.nparity == 1 && offset & SWAP_BIT != 0,
            }
        };
        Ok((0..block.rows()).map(row))
    }

    /// The sector before which all are where they belong on all children, and whether those are in the scratch
    /// area.
    fn moved(&self, ashift: u32) -> Result<(u64, bool)> {
        if !self.is_expanding {
            return Ok((u64::MAX, false));
        }
        match self.reflowed.load(Ordering::Acquire) {
            UNKNOWN => {
                let what = "a RAID-Z is being expanded, and no uberblock says how far that is";
                Err(Error::corrupt(what))
            }
            word => Ok(((word & !SCRATCH_BIT) >> ashift, word & SCRATCH_BIT != 0)),
        }
    }
}

/// The shape of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) width: usize,
    pub(super) nparity: usize,
    /// Sectors of data.
    pub(super) sectors: u64,
}

impl Block {
    fn data(self) -> u64 {
        (self.width - self.nparity) as u64
    }

    fn rows(self) -> u64 {
        self.sectors.div_ceil(self.data())
    }

    /// The columns of each row; the last row may lack sectors in some of them.
    fn columns(self) -> usize {
        if self.sectors < self.data() {
            self.nparity + self.sectors as usize
        } else {
            self.width
        }
    }

    /// The columns that have a sector in this row.
    fn filled(self, row: u64) -> usize {
        match self.sectors % self.data() {
            rest if rest > 0 && row + 1 == self.rows() => self.nparity + rest as usize,
            _ => self.columns(),
        }
    }

    /// Which sector of the block is where, row by row.
    pub(super) fn order(self, ashift: u32) -> Option<Order> {
        let (rows, rest) = (self.rows(), self.sectors % self.data());
        if rows < 2 {
            return None;
        }
        let sector_at = move |row: u64, column: u64| {
            if rest == 0 || column < rest {
                column * rows + row
            } else {
                rest * rows + (column - rest) * (rows - 1) + row
            }
        };
        let of_row = |row: u64| {
            let count = (self.filled(row) - self.nparity) as u64;
            (0..count).map(move |column| sector_at(row, column) as u32)
        };
        Some(Order {
            sectors: (0..rows).flat_map(of_row).collect(),
            ashift,
        })
    }
}

/// One row of a block that is narrower than the vdev: a sector in each column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SectorRow {
    /// The sector that it begins at.
    first: u64,
    count: usize,
    /// The columns that have a sector.
    filled: usize,
    ashift: u32,
    home: Home,
    /// Sectors before this one were copied, to there.
    copied: Option<(u64, Home)>,
    is_swapped: bool,
}

/// Where sectors are.
#[derive(Clone, Copy, Debug)]
struct Home {
    /// They take turns on so many children.
    children: u64,
    /// They are so many bytes before their place.
    before: u64,
}

impl SectorRow {
    /// The number of the sector in column `n`.
    fn sector(&self, n: usize) -> u64 {
        let at = if self.is_swapped && n < 2 { 1 - n } else { n };
        self.first + at as u64
    }

    fn column_at(&self, n: usize, home: Home) -> Column {
        let sector = self.sector(n);
        let bytes = usize::from(n < self.filled) << self.ashift;
        Column {
            child: (sector % home.children) as usize,
            // What is in the scratch area has an offset below 0.
            offset: ((sector / home.children) << self.ashift).wrapping_sub(home.before),
            bytes,
            stored: bytes,
        }
    }
}

impl Row for SectorRow {
    fn count(&self) -> usize {
        self.count
    }

    fn column(&self, n: usize) -> Column {
        self.column_at(n, self.home)
    }

    fn shadow(&self, n: usize) -> Option<Column> {
        let (copied, home) = self.copied?;
        (self.sector(n) < copied).then(|| self.column_at(n, home))
    }
}
