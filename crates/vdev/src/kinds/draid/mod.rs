//! dRAID: where the columns of a block lie on children that are permuted, with room for spares on all of them.
//!
//! # What it is
//! Every block has the same number of columns, the *width*: data and parity. The children are cut into rows of
//! 16 MiB. In each row they are put into an order that looks random; as many as there are distributed spares,
//! at the end of the order, are not used. The others are given out to *groups*, one width after the other, a
//! group that does not fit into a row going on at the beginning of the next one. After as many rows as it takes
//! until a group ends with a row, a *slice*, there is another order.
//!
//! When a child is lost, all other children have a part of what was on it, and all of them have room for a part
//! of what has to be restored.
//!
//! # On disk
//! With 2 columns of data, 1 of parity, 6 children of which 1 is for a spare, a slice has 5 groups and 3 rows:
//! ```text
//! child        2   0   5   1   4   3      the order of this slice
//! row 0        0   0   0   1   1   -      groups; the last child of the order is not used
//! row 1        1   2   2   2   3   -
//! row 2        3   3   4   4   4   -
//! ```
//! A group is filled sector row by sector row, and the next one after it. A block takes whole sector rows: its
//! columns have the same length, and end in zeros where it has no more bytes. Columns of data with a sector more
//! come first, as in a RAID-Z. A block that does not fit into its group goes on in the next one; parity
//! is computed for each of the two parts.
//!
//! Two rows at the end of each child are not used; they were meant for changing the layout later.
//!
//! # Invariants
//! 1. Each sector of the dRAID lies on one child only, and no two of them at the same place.
//! 2. Nothing lies on the children at the end of an order: that is where distributed spares are.
//! 3. What is allocated starts and ends at whole sector rows, metaslabs as well.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_draid.c` (`vdev_draid_map_alloc_row`, `vdev_draid_logical_to_physical`,
//! `vdev_draid_open`, `vdev_draid_metaslab_init`).

mod permutation;
mod seeds;

use std::ops::Range;

use base::{Error, Result};

use super::striped::{Column, Layout, Row, Rows, Shape};
use crate::DraidShape;
use permutation::{Order, Permutations};

/// `VDEV_DRAID_ROWHEIGHT`: bytes of a row on each child: those of the largest block, if a group has only one column
/// of data.
const ROW_BYTES: u64 = 1 << 24;
/// `VDEV_DRAID_REFLOW_RESERVE`: bytes at the end of each child that are not used.
const RESERVE_BYTES: u64 = 2 * ROW_BYTES;

/// A dRAID.
#[doc(alias = "vdev_draid_ops")]
pub(crate) struct Draid {
    shape: DraidShape,
    children: u64,
    permutations: Permutations,
}

impl Draid {
    pub(crate) fn new(shape: DraidShape, children: usize) -> Self {
        assert!(
            shape.fits(children as u64),
            "{shape:?} of {children} children"
        );
        Draid {
            shape,
            children: children as u64,
            permutations: Permutations::new(children),
        }
    }

    /// vdc_groupwidth: columns of a group.
    fn width(&self) -> u64 {
        self.shape.width()
    }

    /// vdc_ndisks: children that are used in a row.
    fn used(&self) -> u64 {
        self.children - u64::from(self.shape.nspares)
    }

    /// vdc_groupsz: bytes of a group, with parity.
    fn group_bytes(&self) -> u64 {
        self.width() * ROW_BYTES
    }

    fn rows_of_slice(&self) -> u64 {
        self.width() * u64::from(self.shape.ngroups) / self.used()
    }

    /// Bytes of a row of sectors, with parity.
    fn sector_row(&self, ashift: u32) -> u64 {
        self.width() << ashift
    }

    /// What of a block lies in the group of this offset, of so many sectors of data.
    #[doc(alias = "vdev_draid_logical_to_physical")]
    fn row(&self, ashift: u32, offset: u64, sectors: u64) -> DraidRow<'_> {
        let (width, used) = (self.width(), self.used());
        let group = offset / self.group_bytes();
        let groups = u64::from(self.shape.ngroups);
        let (slice, group_in_slice) = (group / groups, group % groups);
        let row = slice * self.rows_of_slice() + group_in_slice * width / used;
        let within = offset % self.group_bytes() / width;
        let ndata = u64::from(self.shape.ndata);
        let (full, rest) = (sectors / ndata, sectors % ndata);
        DraidRow {
            order: self.permutations.get(slice),
            used: used as usize,
            width: width as usize,
            start: (group_in_slice * width % used) as usize,
            offset: row * ROW_BYTES + within,
            ashift,
            full,
            longer: match rest {
                0 => 0,
                rest => usize::from(self.shape.nparity) + rest as usize,
            },
        }
    }
}

impl Layout for Draid {
    type Row<'a> = DraidRow<'a>;

    fn nparity(&self) -> usize {
        self.shape.nparity.into()
    }

    #[doc(alias = "vdev_draid_map_alloc")]
    fn rows(&self, shape: Shape, offset: u64, bytes: usize) -> Result<Rows<DraidRow<'_>>> {
        let ashift = shape.ashift;
        let sector_row = self.sector_row(ashift);
        let sectors = bytes as u64 >> ashift;
        let left = self.group_bytes() - offset % self.group_bytes();
        // A block has at most 16 MiB, which fit into two groups whatever their width.
        let ndata = u64::from(self.shape.ndata);
        let here = sectors.min(left / sector_row * ndata);
        let there = sectors - here;
        if !offset.is_multiple_of(sector_row) || there << ashift > ROW_BYTES * ndata {
            let what =
                format!("{bytes} bytes at {offset} of a dRAID with rows of {sector_row} bytes");
            return Err(Error::corrupt(what));
        }
        let first = self.row(ashift, offset, here);
        let next = || self.row(ashift, offset + left, there);
        let second = (there > 0).then(next);
        Ok([Some(first), second].into_iter().flatten().collect())
    }

    /// Group by group. Ranges that do not begin with a row of sectors, which no metaslab has, are left out up to the
    /// next one.
    #[doc(alias = "vdev_draid_xlate")]
    fn translate(
        &self,
        shape: Shape,
        child: usize,
        range: Range<u64>,
        show: &mut dyn FnMut(Range<u64>),
    ) {
        let sector_row = self.sector_row(shape.ashift);
        let mut at = range.start.next_multiple_of(sector_row);
        while at < range.end {
            let end = range
                .end
                .min((at / self.group_bytes() + 1) * self.group_bytes());
            let rows = (end - at) / sector_row;
            let ndata = u64::from(self.shape.ndata);
            let row = self.row(shape.ashift, at, rows * ndata);
            if let Some(column) = row.columns().find(|column| column.child == child)
                && column.bytes > 0
            {
                show(column.offset..column.offset + column.bytes as u64);
            }
            at = end;
        }
    }

    /// The inverse of [`row`](Draid::row), for the columns of parity and the first one of data.
    fn origins(&self, _: Shape, child: usize, offset: u64, show: &mut dyn FnMut(u64)) {
        let (row, within) = (offset / ROW_BYTES, offset % ROW_BYTES);
        let (slice, row_in_slice) = (row / self.rows_of_slice(), row % self.rows_of_slice());
        let order = self.permutations.get(slice);
        let mut positions = 0..self.used();
        let Some(position) = positions.find(|at| order.child(*at as usize) == child) else {
            return;
        };
        let column = row_in_slice * self.used() + position;
        if column % self.width() <= u64::from(self.shape.nparity) {
            let group = slice * u64::from(self.shape.ngroups) + column / self.width();
            show(group * self.group_bytes() + within * self.width());
        }
    }

    #[doc(alias = "vdev_draid_open")]
    fn asize(&self, children: &[u64]) -> u64 {
        let least = children.iter().min().copied().unwrap_or(0);
        let rows = least.saturating_sub(RESERVE_BYTES) / ROW_BYTES;
        let bytes = (rows * ROW_BYTES).saturating_mul(self.used());
        bytes / self.group_bytes() * self.group_bytes()
    }

    #[doc(alias = "vdev_draid_min_asize")]
    fn min_child_asize(&self, _: usize, asize: u64) -> u64 {
        asize.div_ceil(self.used()).saturating_add(RESERVE_BYTES)
    }

    #[doc(alias = "vdev_draid_asize")]
    fn psize_to_asize(&self, shape: Shape, psize: u64) -> u64 {
        let data = u64::from(self.shape.ndata) << shape.ashift;
        psize.div_ceil(data) * self.sector_row(shape.ashift)
    }

    fn data_disks(&self, _: usize) -> usize {
        self.used() as usize - self.nparity()
    }

    fn child_of_spare(&self, spare: u8, offset: u64) -> Option<usize> {
        let slice = offset / (self.rows_of_slice() * ROW_BYTES);
        let is_there = spare < self.shape.nspares;
        let position = self.children as usize - 1 - usize::from(spare);
        is_there.then(|| self.permutations.get(slice).child(position))
    }

    fn write_end(&self) -> u64 {
        ROW_BYTES
    }

    #[doc(alias = "vdev_draid_min_alloc")]
    fn min_alloc(&self, ashift: u32) -> u64 {
        u64::from(self.shape.ndata) << ashift
    }

    fn whole_row(&self, ashift: u32) -> Option<(u64, u64)> {
        Some((
            self.sector_row(ashift),
            u64::from(self.shape.ndata) << ashift,
        ))
    }

    fn metaslab_align(&self, ashift: u32) -> u64 {
        self.sector_row(ashift)
    }
}

/// The part of a block that lies in one group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DraidRow<'a> {
    order: Order<'a>,
    /// Positions in the order that are used.
    used: usize,
    width: usize,
    /// The position of the first column.
    start: usize,
    /// Where the first column starts on its child, in bytes.
    offset: u64,
    ashift: u32,
    /// Sectors that each column has.
    full: u64,
    /// The columns that have a sector more.
    longer: usize,
}

impl Row for DraidRow<'_> {
    fn count(&self) -> usize {
        self.width
    }

    fn column(&self, n: usize) -> Column {
        let position = self.start + n;
        let (position, wraps) = match position.checked_sub(self.used) {
            Some(position) => (position, ROW_BYTES),
            None => (position, 0),
        };
        let sectors = |more: bool| ((self.full + u64::from(more)) << self.ashift) as usize;
        Column {
            child: self.order.child(position),
            offset: self.offset + wraps,
            bytes: sectors(n < self.longer),
            stored: sectors(self.longer > 0),
        }
    }
}

#[cfg(test)]
mod tests;
