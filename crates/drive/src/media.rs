//! The contents of a drive's medium: a sparse file, a map of where it has bytes, and a log of what compresses well.
//!
//! # What it is
//! The byte at offset `n` of the file is the byte at offset `n` of the medium, unless it is packed: what a program
//! writes over and over takes few bytes, in a log beside the file (`packed`). Zeros are holes: writing zeros to a
//! hole does nothing, and writing them over bytes punches one. A drive of any nominal size takes only the space of
//! what was written to it.
//!
//! # Invariants
//! 1. What is not in `allocated` reads as zeros, without a system call.
//! 2. `allocated` is a superset of the medium's bytes that are not zero, packed or not.
//! 3. What is packed is a hole of the file, where the host can punch holes.
//!
//! # Crash argument
//! A write is promised when it has returned. Before that, each sector of it may be old or new. See `packed` for the
//! order of its steps.

mod extents;
mod host_file;
mod packed;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::Path;

use base::{Error, Result};

pub(crate) use extents::Extents;
use host_file::HostFile;
use packed::{PIECE_BYTES_MAX, Packed};

/// The granularity, in bytes, at which zeros within a write become holes: the block size of common file systems.
const PIECE_BYTES: usize = 4096;

/// Whether all bytes are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    // Comparing the slice with itself, shifted by one byte, is one `memcmp`.
    match bytes.split_first() {
        None => true,
        Some((first, rest)) => *first == 0 && *rest == bytes[..rest.len()],
    }
}

/// A medium of a fixed nominal size.
#[derive(Debug)]
pub(crate) struct Media {
    file: HostFile,
    packed: Packed,
    size_bytes: u64,
    allocated: Extents,
    can_punch: bool,
}

impl Media {
    /// Opens or creates the file, and extends it to the length of the medium.
    pub(crate) fn open(path: &Path, size_bytes: u64) -> Result<Media> {
        let file = HostFile::open(path)?;
        let len = file.len()?;
        if len > size_bytes {
            let text = format!("{len} bytes, but the drive has {size_bytes}");
            return Err(Error::invalid(text).within(path.display()));
        }
        if len == 0 {
            Packed::discard(path)?;
        }
        if len < size_bytes {
            file.set_len(size_bytes)?;
        }
        let mut media = Media {
            allocated: file.data(len)?,
            file,
            packed: Packed::open(path, size_bytes)?,
            size_bytes,
            can_punch: true,
        };
        media.punch_below_packed()?;
        Ok(media)
    }

    /// Makes holes below what was packed just before the program died.
    fn punch_below_packed(&mut self) -> Result<()> {
        let parts: Vec<_> = self.packed.parts().collect();
        for part in parts {
            self.punch(&part)?;
            self.allocated.insert(part);
        }
        Ok(())
    }

    /// Makes holes where a range has bytes in the file that are not needed any more.
    fn punch(&mut self, range: &Range<u64>) -> Result<()> {
        let parts: Vec<_> = self.allocated.within(range).collect();
        for part in parts {
            if self.can_punch {
                self.can_punch = self.file.punch(&part)?;
            }
        }
        Ok(())
    }

    /// Where it has bytes, packed or not.
    pub(crate) fn allocated(&self) -> &Extents {
        &self.allocated
    }

    /// What it takes on the host's disk.
    pub(crate) fn stored_bytes(&self) -> u64 {
        let packed: u64 = self.packed.parts().map(|part| part.end - part.start).sum();
        self.allocated.total() - packed + self.packed.log_bytes()
    }

    pub(crate) fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let range = offset..offset + buf.len() as u64;
        assert!(range.end <= self.size_bytes, "read of {range:?}");
        let mut zero_from = offset;
        let index = |at: u64| usize::try_from(at - offset).expect("within the buffer");
        for part in self.allocated.within(&range) {
            buf[index(zero_from)..index(part.start)].fill(0);
            zero_from = part.end;
            let mut at = part.start;
            let packed: Vec<_> = self.packed.within(&part).collect();
            for hit in packed {
                self.file
                    .read_at(at, &mut buf[index(at)..index(hit.start)])?;
                let target = &mut buf[index(hit.start)..index(hit.end)];
                self.packed.read(&hit, target)?;
                at = hit.end;
            }
            let target = &mut buf[index(at)..index(part.end)];
            self.file.read_at(at, target)?;
        }
        buf[index(zero_from)..].fill(0);
        Ok(())
    }

    /// Writes; zeros become holes.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        if is_zero(data) {
            return self.erase(offset..offset + data.len() as u64);
        }
        // Alternate runs of zero and nonzero pieces.
        let mut run = 0..0;
        let mut run_is_zero = false;
        while run.end < data.len() {
            let at = offset + run.end as u64;
            let to_boundary =
                PIECE_BYTES - usize::try_from(at % PIECE_BYTES as u64).expect("small");
            let piece = run.end..(run.end + to_boundary).min(data.len());
            let piece_is_zero = is_zero(&data[piece.clone()]);
            if piece_is_zero != run_is_zero {
                self.write_run(offset, data, &run, run_is_zero)?;
                run.start = run.end;
                run_is_zero = piece_is_zero;
            }
            run.end = piece.end;
        }
        self.write_run(offset, data, &run, run_is_zero)
    }

    fn write_run(
        &mut self,
        offset: u64,
        data: &[u8],
        run: &Range<usize>,
        run_is_zero: bool,
    ) -> Result<()> {
        if run.is_empty() {
            return Ok(());
        }
        let range = offset + run.start as u64..offset + run.end as u64;
        if run_is_zero {
            return self.erase(range);
        }
        assert!(range.end <= self.size_bytes, "write of {range:?}");
        let mut at = range.start;
        for piece in data[run.clone()].chunks(PIECE_BYTES_MAX) {
            self.write_piece(at, piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn write_piece(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let range = offset..offset + data.len() as u64;
        let mut old = Extents::default();
        (self.allocated.within(&range)).for_each(|part| old.insert(part));
        (self.packed.within(&range)).for_each(|part| old.remove(&part));
        // Marked before writing: an error may leave part of the bytes.
        self.allocated.insert(range.clone());
        if self.packed.write(offset, data)? {
            return old.iter().try_for_each(|part| self.punch(&part));
        }
        self.file.write_at(offset, data)?;
        self.packed.remove(&range)
    }

    /// Zeroes a range.
    pub(crate) fn erase(&mut self, range: Range<u64>) -> Result<()> {
        assert!(range.end <= self.size_bytes, "zeros of {range:?}");
        if self.allocated.is_free(&range) {
            return Ok(());
        }
        let parts: Vec<_> = self.allocated.within(&range).collect();
        for part in parts {
            self.zero_file(&part)?;
            self.packed.remove(&part)?;
            self.allocated.remove(&part);
        }
        Ok(())
    }

    fn zero_file(&mut self, range: &Range<u64>) -> Result<()> {
        if self.can_punch {
            self.can_punch = self.file.punch(range)?;
        }
        if self.can_punch {
            return Ok(());
        }
        let len = range.end - range.start;
        let zeros = vec![0; usize::try_from(len.min(1 << 20)).expect("at most a MiB")];
        let mut at = range.start;
        while at < range.end {
            let len = zeros
                .len()
                .min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
            self.file.write_at(at, &zeros[..len])?;
            at += len as u64;
        }
        Ok(())
    }

    /// Simulates a full host disk; earlier contents can no longer be read.
    #[cfg(test)]
    pub(crate) fn fill_host(&mut self) {
        self.file.fill_host();
        self.packed.fill_host();
    }
}
