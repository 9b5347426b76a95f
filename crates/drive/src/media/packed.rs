//! The parts of a medium that compress well, in a log beside the media file.
//!
//! # What it is
//! Benchmarks write one pattern over and over. What takes at most a [`WORTH`]th of its bytes when compressed is
//! appended to a log, and the media file has a hole there. A map says which record each part is in; what no part
//! covers is as the media file has it.
//!
//! # On disk
//! `ada0.img.packed`, which is there once something was packed: [`MAGIC`], then records without gaps. All numbers
//! are little-endian:
//! ```text
//! u64  sum of the rest of the record and of its position
//! u32  length of the payload; 0: the range is as the media file has it, from now on
//! u32  0
//! u64  where on the medium it starts, in bytes
//! u64  how many bytes of it
//! …    the payload: these bytes, as a block of LZ4
//! ```
//!
//! # Invariants
//! 1. Parts do not overlap, and each is within the range of its record.
//! 2. Reading the log from its start, where a later record wins, gives the map.
//!
//! # Crash argument
//! A record takes effect as a whole: one whose sum is wrong, at the end of the log, is what a program that died has
//! left, and is cut off. What is packed over bytes of the media file hides them before they become a hole. What is
//! written to the media file over a packed part is there before the record says so. In between, the old bytes are
//! seen, and the write was not promised yet.
//!
//! A log that has become twice as long as what is needed of it is copied to a new one, which takes its name: records
//! of which a part is left, in their order, and what hides those of their bytes that the media file has by now.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use base::{Context, Error, Result};
use compress::Algorithm;
use geom::disk::PACKED_SUFFIX;
use phys::CompressType;

use super::extents::Extents;
use super::host_file::HostFile;

const MAGIC: &[u8; 8] = b"packed1\n";
const HEADER_BYTES: usize = 32;
/// The most bytes of the medium in a record: what reading one sector has to decompress.
pub(super) const PIECE_BYTES_MAX: usize = 128 << 10;
/// The fewest bytes worth a record: the block size of common file systems.
const PIECE_BYTES_MIN: usize = 4096;
/// What is packed takes at most this fraction: with less, fragments of a record would cost more than they save.
const WORTH: usize = 4;
/// From this length on, the first quarter of a piece is tried before all of it, unless the piece before was packed:
/// most of what is written does not compress, and to find that out of all of it takes as long as to write it.
const TRIED_FROM_BYTES: usize = 64 << 10;
const TRIED_PART: usize = 4;
const RECORD_BYTES_MAX: usize = HEADER_BYTES + PIECE_BYTES_MAX / WORTH;
/// How many bytes of a log may be of no use, whatever its length.
const SLACK_BYTES: u64 = 4 << 20;

/// Whether the first quarter of a long piece compresses at all: to 5/8, which is what a pattern becomes that has
/// been repeated once within it. `scratch` is as long as what the whole piece may become.
fn may_be_worth(data: &[u8], scratch: &mut [u8]) -> bool {
    if data.len() < TRIED_FROM_BYTES {
        return true;
    }
    let tried = &data[..data.len() / TRIED_PART];
    let room = &mut scratch[..tried.len() * 5 / 8];
    compress::compress(Algorithm::Lz4, tried, room).is_some()
}

/// A part of the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    end: u64,
    /// Where in the log its record is.
    record: u64,
}

/// A record of which parts are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    start: u64,
    len: u32,
    payload_bytes: u32,
    parts: u32,
}

impl Record {
    fn bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.payload_bytes)
    }
    fn range(&self) -> Range<u64> {
        self.start..self.start + u64::from(self.len)
    }
}

/// Which record each part is in.
#[derive(Debug, Default)]
struct Map {
    parts: BTreeMap<u64, Part>,
    records: BTreeMap<u64, Record>,
    /// Bytes of the records.
    needed_bytes: u64,
}

impl Map {
    fn within(&self, range: &Range<u64>) -> impl Iterator<Item = (Range<u64>, u64)> + '_ {
        let (start, end) = (range.start, range.end);
        let before = self.parts.range(..start).next_back();
        (before.into_iter())
            .chain(self.parts.range(start..end.max(start)))
            .map(move |(from, part)| ((*from).max(start)..part.end.min(end), part.record))
            .filter(|(part, _)| part.start < part.end)
    }

    fn insert(&mut self, at: u64, record: Record) {
        let range = record.range();
        self.remove(&range);
        self.needed_bytes += record.bytes();
        self.records.insert(at, Record { parts: 1, ..record });
        let (end, record) = (range.end, at);
        self.parts.insert(range.start, Part { end, record });
    }

    fn remove(&mut self, range: &Range<u64>) {
        let hit: Vec<_> = self.within(range).collect();
        for (part, at) in hit {
            let (from, whole) = (self.parts.range(..=part.start).next_back())
                .map(|(from, whole)| (*from, *whole))
                .expect("a part of a part");
            self.parts.remove(&from);
            let record = self.records.get_mut(&at).expect("it has parts");
            record.parts -= 1;
            if from < part.start {
                let end = part.start;
                self.parts.insert(from, Part { end, ..whole });
                record.parts += 1;
            }
            if part.end < whole.end {
                self.parts.insert(part.end, whole);
                record.parts += 1;
            }
            if record.parts == 0 {
                self.needed_bytes -= record.bytes();
                self.records.remove(&at);
            }
        }
    }
}

/// The packed parts of a medium.
#[derive(Debug)]
pub(super) struct Packed {
    path: PathBuf,
    /// `None` until something is packed.
    file: Option<HostFile>,
    end: u64,
    map: Map,
    /// The length at which the log is copied.
    copy_at: u64,
    slack_bytes: u64,
    /// The record that was read last, and its bytes of the medium.
    unpacked: (u64, Vec<u8>),
    scratch: Vec<u8>,
    /// Whether the last piece was packed: the next one is likely to be as worth it.
    was_worth: bool,
    #[cfg(test)]
    pub(super) life: Option<super::tests::Life>,
}

impl Packed {
    /// Opens the log beside a media file of a medium of that size. If there is no log, nothing is packed.
    pub(super) fn open(media: &Path, size_bytes: u64) -> Result<Packed> {
        let mut path = media.as_os_str().to_owned();
        path.push(PACKED_SUFFIX);
        let mut packed = Packed {
            path: PathBuf::from(path),
            file: None,
            end: 0,
            map: Map::default(),
            copy_at: 0,
            slack_bytes: SLACK_BYTES,
            unpacked: (0, Vec::new()),
            scratch: Vec::new(),
            was_worth: false,
            #[cfg(test)]
            life: None,
        };
        if packed.path.try_exists()? {
            let file = HostFile::open(&packed.path)?;
            (packed.map, packed.end) =
                replay(&file, size_bytes).within(|| packed.path.display())?;
            packed.file = Some(file);
        }
        packed.copy_at = packed.copy_when(packed.map.needed_bytes);
        Ok(packed)
    }

    /// Removes the log: the media file was made anew.
    pub(super) fn discard(media: &Path) -> Result<()> {
        let mut path = media.as_os_str().to_owned();
        path.push(PACKED_SUFFIX);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::from(e)),
            _ => Ok(()),
        }
    }

    fn copy_when(&self, needed_bytes: u64) -> u64 {
        2 * needed_bytes + self.slack_bytes
    }

    /// The packed parts of a range.
    pub(super) fn within(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        self.map.within(range).map(|(part, _)| part)
    }

    /// All packed parts.
    pub(super) fn parts(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        (self.map.parts.iter()).map(|(start, part)| *start..part.end)
    }

    /// Bytes of the log.
    pub(super) fn log_bytes(&self) -> u64 {
        self.end
    }

    /// Packs bytes of the medium, if they are worth it. Returns whether they were.
    pub(super) fn write(&mut self, start: u64, data: &[u8]) -> Result<bool> {
        if !(PIECE_BYTES_MIN..=PIECE_BYTES_MAX).contains(&data.len()) {
            return Ok(false);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(RECORD_BYTES_MAX, 0);
        let target = &mut scratch[HEADER_BYTES..HEADER_BYTES + data.len() / WORTH];
        let is_tried = self.was_worth || may_be_worth(data, target);
        let payload = is_tried
            .then(|| compress::compress(Algorithm::Lz4, data, target))
            .flatten();
        self.was_worth = payload.is_some();
        let written = match payload {
            None => Ok(false),
            Some(payload_bytes) => {
                let record = Record {
                    start,
                    len: u32::try_from(data.len()).expect("a piece"),
                    payload_bytes: u32::try_from(payload_bytes).expect("less than a piece"),
                    parts: 0,
                };
                let appended = self.append(&record, &mut scratch[..HEADER_BYTES + payload_bytes]);
                appended.map(|at| {
                    self.map.insert(at, record);
                    true
                })
            }
        };
        self.scratch = scratch;
        if written.as_ref().is_ok_and(|packed| *packed) {
            self.copy_if_long();
        }
        written
    }

    /// Says that a range is as the media file has it.
    pub(super) fn remove(&mut self, range: &Range<u64>) -> Result<()> {
        if self.map.within(range).next().is_none() {
            return Ok(());
        }
        for (record, mut header) in unpacking(range) {
            self.append(&record, &mut header)?;
            self.map.remove(&record.range());
        }
        self.copy_if_long();
        Ok(())
    }

    /// Fills in the header of a record and appends it. Returns where it is.
    fn append(&mut self, record: &Record, bytes: &mut [u8]) -> Result<u64> {
        if self.file.is_none() {
            self.create()?;
        }
        let at = self.end;
        seal(record, bytes, at);
        let file = self.file.as_ref().expect("created");
        if let Err(error) = file.write_at(at, bytes) {
            // What is left of it is overwritten by the next record, or cut off when the log is opened.
            let _ = file.set_len(at);
            return Err(error);
        }
        self.end += bytes.len() as u64;
        Ok(at)
    }

    fn create(&mut self) -> Result<()> {
        #[cfg_attr(not(test), expect(unused_mut, reason = "tests limit its life"))]
        let mut file = HostFile::create(&self.path)?;
        #[cfg(test)]
        {
            file.life.clone_from(&self.life);
        }
        file.write_at(0, MAGIC)?;
        self.file = Some(file);
        self.end = MAGIC.len() as u64;
        Ok(())
    }

    /// Reads packed bytes; all of the range is packed.
    pub(super) fn read(&mut self, range: &Range<u64>, buf: &mut [u8]) -> Result<()> {
        let parts: Vec<_> = self.map.within(range).collect();
        for (part, at) in parts {
            self.unpack(at)?;
            let record = self.map.records[&at];
            let from = usize::try_from(part.start - record.start).expect("within a record");
            let to = usize::try_from(part.start - range.start).expect("within the buffer");
            let len = usize::try_from(part.end - part.start).expect("within a record");
            buf[to..to + len].copy_from_slice(&self.unpacked.1[from..from + len]);
        }
        Ok(())
    }

    fn unpack(&mut self, at: u64) -> Result<()> {
        if self.unpacked.0 == at {
            return Ok(());
        }
        let record = self.map.records[&at];
        let file = self.file.as_ref().expect("it has a record");
        let payload_bytes = record.payload_bytes as usize;
        self.scratch.resize(RECORD_BYTES_MAX, 0);
        let payload = &mut self.scratch[..payload_bytes];
        file.read_at(at + HEADER_BYTES as u64, payload)?;
        // Nothing is unpacked until all of it is.
        self.unpacked.0 = 0;
        self.unpacked.1.resize(record.len as usize, 0);
        compress::decompress(CompressType::Lz4, payload, &mut self.unpacked.1)
            .within(|| format!("{}: record at {at}", self.path.display()))?;
        self.unpacked.0 = at;
        Ok(())
    }

    /// Copies what is needed of the log if it has become long. A failure leaves the log as it is.
    fn copy_if_long(&mut self) {
        if self.end <= self.copy_at {
            return;
        }
        let _ = self.copy();
        // After a failure, not again with every record.
        self.copy_at = self.copy_when(self.map.needed_bytes.max(self.end / 2));
    }

    fn copy(&mut self) -> Result<()> {
        let old = self.file.as_ref().expect("it is long");
        let mut path = self.path.as_os_str().to_owned();
        path.push(".new");
        let path = PathBuf::from(path);
        let copied = self.copy_to(old, &path);
        let (file, map, end) = copied.inspect_err(|_| drop(std::fs::remove_file(&path)))?;
        (self.file, self.map, self.end) = (Some(file), map, end);
        self.unpacked.0 = 0;
        Ok(())
    }

    fn copy_to(&self, old: &HostFile, path: &Path) -> Result<(HostFile, Map, u64)> {
        #[cfg_attr(not(test), expect(unused_mut, reason = "tests limit its life"))]
        let mut file = HostFile::create(path)?;
        #[cfg(test)]
        {
            file.life.clone_from(&self.life);
        }
        let mut map = Map::default();
        let mut end = 0;
        let mut out = MAGIC.to_vec();
        let mut put = |out: &mut Vec<u8>, least: usize| {
            if out.len() >= least {
                file.write_at(end, out)?;
                end += out.len() as u64;
                out.clear();
            }
            Ok::<u64, Error>(end + out.len() as u64)
        };
        for (at, record) in &self.map.records {
            let new_at = put(&mut out, 1 << 20)?;
            let from = out.len();
            out.resize(from + HEADER_BYTES + record.payload_bytes as usize, 0);
            old.read_at(*at, &mut out[from..])?;
            seal(record, &mut out[from..], new_at);
            map.insert(new_at, *record);
        }
        let mut hidden = Extents::default();
        map.parts
            .iter()
            .for_each(|(start, part)| hidden.insert(*start..part.end));
        self.parts().for_each(|part| hidden.remove(&part));
        for range in hidden.iter() {
            for (record, mut header) in unpacking(&range) {
                let new_at = put(&mut out, 1 << 20)?;
                seal(&record, &mut header, new_at);
                out.extend_from_slice(&header);
                map.remove(&record.range());
            }
        }
        put(&mut out, 0)?;
        // Before the rename, lest a crash of the host leaves an empty file.
        file.sync()?;
        std::fs::rename(path, &self.path).map_err(Error::from)?;
        Ok((file, map, end))
    }

    /// Simulates a full host disk.
    #[cfg(test)]
    pub(super) fn fill_host(&mut self) {
        let path = std::env::temp_dir().join(format!("ashift-full-{}", std::process::id()));
        let mut file = HostFile::create(&path).unwrap();
        file.fill_host();
        std::fs::remove_file(&path).unwrap();
        self.file = Some(file);
    }

    #[cfg(test)]
    pub(super) fn limit(&mut self, life: &super::tests::Life, slack_bytes: u64) {
        self.life = Some(life.clone());
        if let Some(file) = &mut self.file {
            file.life = Some(life.clone());
        }
        self.slack_bytes = slack_bytes;
        self.copy_at = self.copy_when(self.map.needed_bytes);
    }
}

/// Records that say that a range is as the media file has it: one for each so many bytes as a record can count.
fn unpacking(range: &Range<u64>) -> impl Iterator<Item = (Record, [u8; HEADER_BYTES])> + use<> {
    let (mut start, end) = (range.start, range.end);
    std::iter::from_fn(move || {
        let len = u32::try_from((end - start).min(1 << 31)).expect("that many at most");
        let record = Record {
            start,
            len,
            payload_bytes: 0,
            parts: 0,
        };
        start += u64::from(len);
        (len > 0).then_some((record, [0; HEADER_BYTES]))
    })
}

/// Fills in the header of a record that is at `at` in the log.
fn seal(record: &Record, bytes: &mut [u8], at: u64) {
    bytes[8..12].copy_from_slice(&record.payload_bytes.to_le_bytes());
    bytes[12..16].fill(0);
    bytes[16..24].copy_from_slice(&record.start.to_le_bytes());
    bytes[24..32].copy_from_slice(&u64::from(record.len).to_le_bytes());
    let sum = sum(&bytes[8..], at);
    bytes[..8].copy_from_slice(&sum.to_le_bytes());
}

/// A sum that tells a whole record from one that was cut off: each word changes all bits of what follows.
fn sum(bytes: &[u8], at: u64) -> u64 {
    let mut sum = at ^ (bytes.len() as u64) << 48;
    for word in bytes.chunks(8) {
        let mut padded = [0; 8];
        padded[..word.len()].copy_from_slice(word);
        sum ^= u64::from_le_bytes(padded);
        sum = rt::splitmix64(&mut sum);
    }
    sum
}

/// Reads a log; cuts off what a program that died has left at its end.
fn replay(file: &HostFile, size_bytes: u64) -> Result<(Map, u64)> {
    let len = file.len()?;
    let mut map = Map::default();
    let mut magic = [0; MAGIC.len()];
    if len < MAGIC.len() as u64 {
        file.set_len(0)?;
        file.write_at(0, MAGIC)?;
        return Ok((map, MAGIC.len() as u64));
    }
    file.read_at(0, &mut magic)?;
    if magic != *MAGIC {
        return Err(Error::corrupt("it does not begin as a log of packed parts"));
    }
    let mut at = MAGIC.len() as u64;
    let mut window = Vec::new();
    let mut window_at = at;
    loop {
        let mut rest = window_rest(&window, window_at, at);
        if rest.len() < RECORD_BYTES_MAX && window_at + (window.len() as u64) < len {
            let bytes = (len - at).min(RECORD_BYTES_MAX.max(1 << 20) as u64);
            window.resize(usize::try_from(bytes).expect("a window"), 0);
            file.read_at(at, &mut window)?;
            window_at = at;
            rest = &window;
        }
        let Some(record) = parse(rest, at) else {
            break;
        };
        let range = record.range();
        if range.end > size_bytes || range.is_empty() {
            return Err(Error::corrupt(format!("record at {at}: {range:?}")));
        }
        match record.payload_bytes {
            0 => map.remove(&range),
            _ => map.insert(at, record),
        }
        at += record.bytes();
    }
    if len - at > RECORD_BYTES_MAX as u64 {
        return Err(Error::corrupt(format!("record at {at}: wrong sum")));
    }
    if at < len {
        file.set_len(at)?;
    }
    Ok((map, at))
}

fn window_rest(window: &[u8], window_at: u64, at: u64) -> &[u8] {
    let from = usize::try_from(at - window_at).unwrap_or(usize::MAX);
    window.get(from..).unwrap_or_default()
}

/// The record at the start of `bytes`, if there is a whole one.
fn parse(bytes: &[u8], at: u64) -> Option<Record> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    let word =
        |from: usize| u64::from_le_bytes(header[from..from + 8].try_into().expect("8 bytes"));
    let payload_bytes = u32::try_from(word(8)).ok()?;
    let record = Record {
        start: word(16),
        len: u32::try_from(word(24)).ok()?,
        payload_bytes,
        parts: 0,
    };
    let is_possible = match payload_bytes {
        0 => true,
        _ => record.len as usize <= PIECE_BYTES_MAX,
    };
    let whole = bytes.get(8..HEADER_BYTES.checked_add(payload_bytes as usize)?)?;
    let is_whole = sum(whole, at) == word(0) && record.start.checked_add(word(24)).is_some();
    (is_whole && is_possible).then_some(record)
}
