//! The columns of a row in memory, and what came of reading them.

use std::ops::Deref;
use std::vec;

use base::{BlockBuf, Error};
use zio::Io;

use super::ahead::Ahead;
use super::row::{Column, Row};
use crate::kinds::Node;

/// What came of reading a column.
pub(super) enum Fate {
    /// It was read; the bytes may be wrong.
    Read,
    /// Its devices missed the block's txg: not read.
    Stale,
    /// Its devices cannot be read.
    Absent,
    /// It could not be read.
    Failed(Error),
}

impl Fate {
    pub(super) fn is_read(&self) -> bool {
        matches!(self, Fate::Read)
    }
}

/// The bytes of a column.
pub(super) enum Bytes<'a> {
    Own(BlockBuf),
    /// Of what was read for several blocks.
    Of(&'a [u8]),
}

impl Bytes<'_> {
    /// Bytes to be overwritten.
    pub(super) fn own(&mut self) -> &mut [u8] {
        if let Bytes::Of(bytes) = self {
            *self = Bytes::Own(BlockBuf::copy_of(bytes));
        }
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::Of(_) => unreachable!("they have just become its own"),
        }
    }
}

impl PartialEq for Bytes<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::Of(bytes) => bytes,
        }
    }
}

/// All columns of one row, as they were read.
pub(super) struct Band<'a, R> {
    pub(super) row: R,
    pub(super) columns: Vec<Bytes<'a>>,
    /// What came of reading each.
    pub(super) fates: Vec<Fate>,
}

impl<R: Row> Band<'_, R> {
    /// The columns that have bytes of the block, or parity, and were not read.
    pub(super) fn missing(&self) -> Vec<usize> {
        let is_missing = |n: &usize| !self.fates[*n].is_read() && self.row.column(*n).bytes > 0;
        (0..self.fates.len()).filter(is_missing).collect()
    }

    /// The columns that have bytes of the block, or parity, and were read.
    pub(super) fn read_columns(&self) -> impl Iterator<Item = (usize, Column)> {
        let columns = self.row.columns().enumerate();
        columns.filter(|(n, column)| self.fates[*n].is_read() && column.bytes > 0)
    }

    /// Puts the row's part of the block into `buf`, with these columns computed from the others.
    pub(super) fn compute(&self, nparity: usize, lost: &[usize], buf: &mut [u8]) {
        let lens = || self.row.columns().map(|column| column.bytes);
        if lost.iter().all(|n| *n < nparity) {
            let data = self.columns.iter().zip(lens()).skip(nparity);
            return join(data.map(|(column, len)| &column[..len]), buf);
        }
        let copies = self.columns.iter().map(|column| BlockBuf::copy_of(column));
        let mut columns: Vec<BlockBuf> = copies.collect();
        let cut = columns.iter_mut().zip(lens());
        let mut slices: Vec<&mut [u8]> = cut.map(|(column, len)| &mut column[..len]).collect();
        parity::reconstruct(nparity, &mut slices, lost);
        join(slices[nparity..].iter().map(|column| &**column), buf);
    }
}

/// What was read before.
pub(super) enum Prior<'a, 'b> {
    /// The data columns, into a block, with what came of each; after the end of that, they were read.
    Data(&'b [u8], vec::IntoIter<Fate>),
    /// Columns of several blocks.
    Ahead(&'a Ahead),
}

impl<'a> Prior<'a, '_> {
    /// The columns of the next row, with what came of reading them if that was done.
    pub(super) fn of_row<R: Row>(
        &mut self,
        (node, io): (&Node<'_>, &Io),
        row: R,
        nparity: usize,
    ) -> (Vec<Bytes<'a>>, Vec<Option<Fate>>) {
        let to_be_read = |len| (Bytes::Own(BlockBuf::scratch(len)), None);
        let found = row.columns().enumerate().map(|(n, column)| match self {
            Prior::Data(..) if n < nparity => to_be_read(column.bytes),
            Prior::Data(block, fates) => {
                let (bytes, after) = block.split_at(column.bytes);
                *block = after;
                let fate = fates.next().unwrap_or(Fate::Read);
                (Bytes::Own(BlockBuf::copy_of(bytes)), Some(fate))
            }
            Prior::Ahead(ahead) => match ahead.column(node, io, column) {
                Some(bytes) => (Bytes::Of(bytes), Some(Fate::Read)),
                None => to_be_read(column.stored),
            },
        });
        found.unzip()
    }
}

fn join<'b>(columns: impl Iterator<Item = &'b [u8]>, block: &mut [u8]) {
    let mut rest = block;
    for column in columns {
        let (bytes, after) = rest.split_at_mut(column.len());
        bytes.copy_from_slice(column);
        rest = after;
    }
}
