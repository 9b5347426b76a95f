//! Takes numbers and bytes from the front of a slice; an error says how many are missing.

use base::{Error, Result};

#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    /// Whether chunks are the other way round.
    is_reversed: bool,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader {
            rest: bytes,
            is_reversed: false,
        }
    }

    /// A reader of numbers of a big-endian host, whose chunks are those of a little-endian one.
    pub(crate) fn reversed(bytes: &'a [u8]) -> Reader<'a> {
        Reader {
            rest: bytes,
            is_reversed: true,
        }
    }

    /// A reader of a part, in the same order.
    pub(crate) fn part(&self, bytes: &'a [u8]) -> Reader<'a> {
        Reader {
            rest: bytes,
            ..*self
        }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let have = self.rest.len();
        let split = self.rest.split_at_checked(count);
        let short = || Error::corrupt(format!("nvlist ends: {count} bytes wanted, {have} left"));
        let (taken, rest) = split.ok_or_else(short)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn chunk<const N: usize>(&mut self) -> Result<[u8; N]> {
        let taken = self.bytes(N)?;
        let mut chunk = *taken.first_chunk().expect("N bytes were taken");
        if self.is_reversed {
            chunk.reverse();
        }
        Ok(chunk)
    }

    /// Refuses element counts that do not fit in the remaining bytes, before memory is allocated.
    pub(crate) fn check_room(&self, count: usize, element_size: usize) -> Result<()> {
        let have = self.rest.len();
        if count
            .checked_mul(element_size)
            .is_some_and(|size| size <= have)
        {
            return Ok(());
        }
        Err(Error::corrupt(format!(
            "nvpair of {count} elements in {have} bytes"
        )))
    }
}
