//! What a scrub reads of each child at once, for several blocks.
//!
//! # What it is
//! The columns of neighbouring blocks are neighbours on each child, too. So a run of blocks is read with a few long
//! commands for each child, and its columns are found in that ([`Ahead::column`]). Whatever could not be read in
//! this way is read column by column, which counts the errors and says where they are.
//!
//! # Invariants
//! 1. A column is found only if it would be read for its block: a device that missed the block's txg does not have it.
//! 2. Children that are mirrors are left out: which of their sides has a block depends on the block.
//! 3. So is what lies in the scratch area of an expansion, whose offsets are below zero (they wrap around).
//!
//! # Source
//! OpenZFS `module/zfs/vdev_queue.c` (`vdev_queue_aggregate`), which joins such commands in the queue of a device.

use base::{BlockBuf, Txg};
use zio::{Io, Purpose};

use super::read::{read_together, reason_not_to_read};
use super::row::Column;
use crate::kinds::Node;

/// The largest gap between two columns, in bytes, that one command reads across.
const GAP_BYTES: u64 = 16 << 10;

/// Pieces of children, in the order of child and offset.
#[derive(Default)]
pub(super) struct Ahead(Vec<Extent>);

struct Extent {
    child: usize,
    start: u64,
    buf: BlockBuf,
    is_read: bool,
}

impl Extent {
    fn end(&self) -> u64 {
        self.start + self.buf.len() as u64
    }
}

impl Ahead {
    /// Reads the columns of blocks with these births.
    pub(super) fn read(node: &Node<'_>, columns: impl Iterator<Item = (Txg, Column)>) -> Ahead {
        let is_wanted = |(birth, column): &(Txg, Column)| {
            let child = node.child(column.child);
            let is_single = child.vdev.leaves().len() == 1;
            let io = Io::speculative(*birth);
            let is_in_data = i64::try_from(column.offset).is_ok();
            is_single
                && is_in_data
                && column.stored > 0
                && reason_not_to_read(&child, &io, *column).is_none()
        };
        let wanted = columns.filter(is_wanted);
        let mut wanted: Vec<Column> = wanted.map(|(_, column)| column).collect();
        wanted.sort_unstable_by_key(|column| (column.child, column.offset));
        let end = |column: &Column| column.offset.saturating_add(column.stored as u64);
        let joins = |a: &Column, b: &Column| {
            a.child == b.child && b.offset.saturating_sub(end(a)) <= GAP_BYTES
        };
        let extent = |columns: &[Column]| {
            let (first, last) = (columns[0], columns[columns.len() - 1]);
            let len = (end(&last) - first.offset) as usize;
            Extent {
                child: first.child,
                start: first.offset,
                buf: BlockBuf::scratch(len),
                is_read: false,
            }
        };
        let mut extents: Vec<Extent> = wanted.chunk_by(joins).map(extent).collect();
        let as_column = |extent: &Extent| Column {
            child: extent.child,
            offset: extent.start,
            bytes: extent.buf.len(),
            stored: extent.buf.len(),
        };
        // Of which birth they are does not matter any more.
        let io = Io {
            purpose: Purpose::Speculative,
            ..Io::scrub(Txg(0))
        };
        let mut pieces: Vec<(Column, &mut [u8])> = extents
            .iter_mut()
            .map(|extent| (as_column(extent), &mut extent.buf[..]))
            .collect();
        let fates = read_together(node, &io, &mut pieces);
        for (extent, fate) in extents.iter_mut().zip(fates) {
            extent.is_read = fate.is_read();
        }
        Ahead(extents)
    }

    /// What a column of a block has, if it was read.
    pub(super) fn column(&self, node: &Node<'_>, io: &Io, column: Column) -> Option<&[u8]> {
        let key = (column.child, column.offset);
        let at = self
            .0
            .partition_point(|extent| (extent.child, extent.start) <= key);
        let extent = &self.0[at.checked_sub(1)?];
        let end = column.offset.checked_add(column.stored as u64)?;
        let is_there = extent.is_read && extent.child == column.child && end <= extent.end();
        let is_to_be_read = || reason_not_to_read(&node.child(column.child), io, column).is_none();
        if column.stored == 0 || !is_there || !is_to_be_read() {
            return None;
        }
        let from = (column.offset - extent.start) as usize;
        Some(&extent.buf[from..][..column.stored])
    }
}
