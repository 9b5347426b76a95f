//! The contents of a drive's medium: a sparse file, and a map of where it has bytes.
//!
//! # What it is
//! The byte at offset `n` of the file is the byte at offset `n` of the medium, so any tool of the
//! host can read it. Zeros are holes: writing zeros to a hole does nothing, and writing them over
//! bytes punches one. A drive of any nominal size takes only the space of what was written to it.
//!
//! # Invariants
//! 1. What is not in `allocated` reads as zeros, without a system call.
//! 2. `allocated` is a superset of the file's bytes that are not zero.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use base::{Context, Error, ErrorKind, Result};
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

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

/// Disjoint half-open ranges that do not touch each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extents(BTreeMap<u64, u64>);

impl Extents {
    /// The parts of `range` that are covered, in order.
    pub(crate) fn within(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let (start, end) = (range.start, range.end);
        let before = self.0.range(..start).next_back();
        before
            .into_iter()
            .chain(self.0.range(start..end.max(start)))
            .map(move |(from, to)| (*from).max(start)..(*to).min(end))
            .filter(|part| part.start < part.end)
    }

    /// Whether nothing of `range` is covered.
    pub(crate) fn is_free(&self, range: &Range<u64>) -> bool {
        self.0.is_empty() || self.within(range).next().is_none()
    }

    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        if let Some((from, to)) = self.0.range(..=start).next_back()
            && *to >= start
        {
            if *to >= end {
                return;
            }
            start = *from;
        }
        while let Some((from, to)) = self.0.range(start..=end).next() {
            let (from, to) = (*from, *to);
            end = end.max(to);
            self.0.remove(&from);
        }
        self.0.insert(start, end);
    }

    pub(crate) fn remove(&mut self, range: &Range<u64>) {
        let hit: Vec<_> = self.within(range).collect();
        for part in hit {
            let (from, to) = (self.0.range(..=part.start).next_back())
                .map(|(from, to)| (*from, *to))
                .expect("a part of an extent");
            self.0.remove(&from);
            if from < part.start {
                self.0.insert(from, part.start);
            }
            if part.end < to {
                self.0.insert(part.end, to);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(from, to)| *from..*to)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many bytes are covered.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|(from, to)| to - from).sum()
    }
}

/// A sparse file of a fixed nominal size.
#[derive(Debug)]
pub(crate) struct Media {
    path: PathBuf,
    fd: OwnedFd,
    size_bytes: u64,
    allocated: Extents,
    can_punch: bool,
}

fn from_errno(errno: Errno) -> Error {
    Error::from(std::io::Error::from(errno))
}

impl Media {
    /// Opens or creates the file, and extends it to the length of the medium.
    pub(crate) fn open(path: &Path, size_bytes: u64) -> Result<Media> {
        let within = || path.display();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))
            .map_err(from_errno)
            .within(within)?;
        let stat = rustix::fs::fstat(&fd).map_err(from_errno).within(within)?;
        let len = u64::try_from(stat.st_size).unwrap_or(0);
        if len > size_bytes {
            let text = format!("{len} bytes, but the drive has {size_bytes}");
            return Err(Error::invalid(text).within(within()));
        }
        if len < size_bytes {
            rustix::fs::ftruncate(&fd, size_bytes)
                .map_err(|errno| no_room(errno, size_bytes))
                .within(within)?;
        }
        let allocated = allocated_ranges(&fd, len).within(within)?;
        Ok(Media {
            path: path.to_owned(),
            fd,
            size_bytes,
            allocated,
            can_punch: true,
        })
    }

    pub(crate) fn allocated(&self) -> &Extents {
        &self.allocated
    }

    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let range = offset..offset + buf.len() as u64;
        assert!(range.end <= self.size_bytes, "read of {range:?}");
        let mut zero_from = offset;
        let index = |at: u64| usize::try_from(at - offset).expect("within the buffer");
        for part in self.allocated.within(&range) {
            buf[index(zero_from)..index(part.start)].fill(0);
            zero_from = part.end;
            self.read_file(part.start, &mut buf[index(part.start)..index(part.end)])?;
        }
        buf[index(zero_from)..].fill(0);
        Ok(())
    }

    fn read_file(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match rustix::io::pread(&self.fd, &mut buf[done..], at) {
                Ok(0) => return Err(self.error(Errno::IO, "read past the end", at)),
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.error(errno, "read", at)),
            }
        }
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
        // Marked before writing: an error may leave part of the bytes in the file.
        self.allocated.insert(range.clone());
        self.write_file(range.start, &data[run.clone()])
    }

    fn write_file(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            match rustix::io::pwrite(&self.fd, &data[done..], at) {
                Ok(0) => return Err(self.error(Errno::IO, "write past the end", at)),
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.error(errno, "write", at)),
            }
        }
        Ok(())
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
            self.allocated.remove(&part);
        }
        Ok(())
    }

    fn zero_file(&mut self, range: &Range<u64>) -> Result<()> {
        let len = range.end - range.start;
        if self.can_punch {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            match rustix::fs::fallocate(&self.fd, flags, range.start, len) {
                Ok(()) => return Ok(()),
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.can_punch = false,
                Err(errno) => return Err(self.error(errno, "hole", range.start)),
            }
        }
        let zeros = vec![0; usize::try_from(len.min(1 << 20)).expect("at most a MiB")];
        let mut at = range.start;
        while at < range.end {
            let len = zeros
                .len()
                .min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
            self.write_file(at, &zeros[..len])?;
            at += len as u64;
        }
        Ok(())
    }

    /// Simulates a full host disk; earlier contents can no longer be read.
    #[cfg(test)]
    pub(crate) fn fill_host(&mut self) {
        self.fd = rustix::fs::open("/dev/full", OFlags::RDWR, Mode::empty()).unwrap();
    }

    fn error(&self, errno: Errno, what: &str, offset: u64) -> Error {
        let path = self.path.display();
        if errno == Errno::NOSPC || errno == Errno::DQUOT {
            let text = format!("{path}: the file system that holds it is full");
            return Error::new(ErrorKind::NoSpace, text);
        }
        from_errno(errno).within(format_args!("{path}: {what} at {offset}"))
    }
}

fn no_room(errno: Errno, size_bytes: u64) -> Error {
    if errno == Errno::FBIG {
        let text = format!("the file system has no files of {size_bytes} bytes");
        return Error::new(ErrorKind::TooBig, text);
    }
    from_errno(errno)
}

/// Where the file has bytes; all of it if the file system cannot tell.
fn allocated_ranges(fd: &OwnedFd, len: u64) -> Result<Extents> {
    let mut extents = Extents::default();
    let mut at = 0;
    while at < len {
        let start = match rustix::fs::seek(fd, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL) => {
                extents.insert(at..len);
                break;
            }
            Err(errno) => return Err(from_errno(errno)),
        };
        let end = rustix::fs::seek(fd, SeekFrom::Hole(start)).unwrap_or(len);
        extents.insert(start..end.min(len));
        at = end.max(start + 1);
    }
    Ok(extents)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_medium_of_sixteen_terabytes_takes_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ada0.img");
        let size = 31_251_759_104 * 512;
        let mut media = Media::open(&path, size).unwrap();
        for n in 0..1000 {
            media.write(n << 20, &vec![0; 1 << 20]).unwrap();
        }
        media.write(size - 4096, &[7; 4096]).unwrap();
        let used = || std::fs::metadata(&path).unwrap().blocks() * 512;
        assert!(used() < 64 << 10, "{} bytes", used());
        drop(media);
        let mut media = Media::open(&path, size).unwrap();
        assert_eq!(media.allocated().total(), 4096);
        let mut back = [0; 8192];
        media.read(size - 8192, &mut back).unwrap();
        assert!(back[..4096].iter().all(|byte| *byte == 0));
        assert!(back[4096..].iter().all(|byte| *byte == 7));
        media.write(size - 4096, &[0; 4096]).unwrap();
        assert!(media.allocated().is_empty());
        assert!(used() < 16 << 10, "{} bytes", used());
        drop(media);
        let error = Media::open(&path, size - 512).unwrap_err();
        assert!(error.to_string().contains("but the drive has"), "{error}");
    }

    #[test]
    fn zero_is_told_from_the_rest() {
        assert!(is_zero(&[]) && is_zero(&[0]) && is_zero(&[0; 4097]));
        for at in [0, 1, 2047, 4095] {
            let mut bytes = [0; 4096];
            bytes[at] = 1;
            assert!(!is_zero(&bytes), "{at}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn prop_extents_are_a_set_of_numbers(
            ops in prop::collection::vec((any::<bool>(), 0u64..64, 0u64..20), 1..60)
        ) {
            let mut plain = [false; 128];
            let mut extents = Extents::default();
            for (inserts, start, len) in ops {
                let range = start..start + len;
                plain[start as usize..(start + len) as usize].fill(inserts);
                if inserts { extents.insert(range.clone()) } else { extents.remove(&range) }
                let mut seen = [false; 128];
                let mut last = None;
                for part in extents.iter() {
                    prop_assert!(part.start < part.end && last.is_none_or(|last| last < part.start));
                    last = Some(part.end);
                    seen[part.start as usize..part.end as usize].fill(true);
                }
                prop_assert_eq!(seen, plain);
                let inside: u64 = extents.within(&(10..40)).map(|part| part.end - part.start).sum();
                prop_assert_eq!(inside, plain[10..40].iter().filter(|set| **set).count() as u64);
                prop_assert_eq!(extents.is_free(&(10..40)), inside == 0);
            }
        }

        #[test]
        fn prop_media_is_a_plain_array(
            ops in prop::collection::vec((0u8..4, 0usize..60_000, 0usize..30_000, any::<u8>()), 1..20)
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("media");
            let mut plain = vec![0u8; 100_000];
            let mut media = Media::open(&path, 100_000).unwrap();
            for (op, offset, len, fill) in ops {
                let range = offset..offset + len;
                match op {
                    0 => {
                        // Zeros in the middle.
                        plain[range.clone()].fill(fill);
                        plain[offset + len / 3..offset + len / 2].fill(0);
                        media.write(offset as u64, &plain[range]).unwrap();
                    }
                    1 => {
                        plain[range.clone()].fill(0);
                        media.erase(range.start as u64..range.end as u64).unwrap();
                    }
                    2 => {
                        drop(media);
                        media = Media::open(&path, 100_000).unwrap();
                    }
                    _ => {
                        let mut back = vec![1; len];
                        media.read(offset as u64, &mut back).unwrap();
                        prop_assert!(back == plain[range]);
                    }
                }
            }
        }
    }
}
