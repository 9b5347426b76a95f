//! Finding the right bytes of a block from columns of which some are missing or wrong.
//!
//! # What it is
//! A good block is read from its data columns alone ([`read_data`]). Otherwise a [`Stripe`] has all columns
//! that can be read, parity included, and tries which of them to believe until the block's checksum is
//! right: first all; then without those of devices that missed the block's txg; then without every
//! combination of one, two and three more columns, as long as there is parity for them. Once the block is
//! known, so is every column, and those that were wrong are counted and written again.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_raidz.c` (`vdev_raidz_io_start_read`, `vdev_raidz_io_done`, `vdev_raidz_combrec`,
//! `vdev_raidz_io_done_verified`).

use std::sync::Arc;

use base::{BlockBuf, Error, ErrorKind, Result, Txg};
use zio::{Io, Purpose, RunBlock, ScrubReport};

use super::map::{Column, Map};
use crate::Vdev;
use crate::kinds::Node;
use crate::kinds::health::{Outcome, no_device};
use crate::leaf::Answer;

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
    fn is_read(&self) -> bool {
        matches!(self, Fate::Read)
    }
}

/// Reads the data columns to where they belong in the block, and returns what came of each: nothing if all
/// were read.
pub(super) fn read_data(
    node: &Node<'_>,
    io: &Io,
    map: &Map,
    nparity: usize,
    buf: &mut [u8],
) -> Vec<Fate> {
    let is_asynchronous = |column: Column| {
        let child = node.child(column.child);
        let mut leaves = child.vdev.leaves().iter();
        leaves.any(|device| device.leaf().is_asynchronous())
    };
    let overlaps = map.columns().skip(nparity).any(is_asynchronous);
    let mut rest = buf;
    let mut wanted = map.columns().skip(nparity).map(|column| {
        let (bytes, after) = std::mem::take(&mut rest).split_at_mut(column.bytes);
        rest = after;
        (column, bytes)
    });
    if overlaps {
        let fates = read_together(node, io, &mut wanted.collect::<Vec<_>>());
        let is_whole = fates.iter().all(Fate::is_read);
        return if is_whole { Vec::new() } else { fates };
    }
    let mut fates = Vec::new();
    for n in 0.. {
        let Some((column, bytes)) = wanted.next() else {
            break;
        };
        let fate = read_column(node, io, column, bytes);
        if !(fate.is_read() && fates.is_empty()) {
            fates.resize_with(n, || Fate::Read);
            fates.push(fate);
        }
    }
    fates
}

/// Reads columns, those of asynchronous devices at the same time.
fn read_together(node: &Node<'_>, io: &Io, wanted: &mut [(Column, &mut [u8])]) -> Vec<Fate> {
    let begin = |(column, _): &(Column, &mut [u8])| {
        let child = node.child(column.child);
        let is_wanted = reason_not_to_read(&child, io).is_none();
        is_wanted
            .then(|| child.begin_read(io, column.offset, column.bytes))
            .flatten()
    };
    let begun: Vec<_> = wanted.iter().map(begin).collect();
    let end = |((column, bytes), begun): (&mut (Column, &mut [u8]), Option<Answer>)| match begun {
        Some(begun) => match node.child(column.child).end_read(io, &begun, bytes) {
            Ok(()) => Fate::Read,
            Err(error) => Fate::Failed(error),
        },
        None => read_column(node, io, *column, bytes),
    };
    wanted.iter_mut().zip(begun).map(end).collect()
}

fn read_column(node: &Node<'_>, io: &Io, column: Column, bytes: &mut [u8]) -> Fate {
    let child = node.child(column.child);
    reason_not_to_read(&child, io).unwrap_or_else(|| read_anyway(&child, io, column, bytes))
}

/// Why a child is not to be read, if so.
fn reason_not_to_read(child: &Node<'_>, io: &Io) -> Option<Fate> {
    let leaves = child.vdev.leaves();
    let is_usable = |device: &&Arc<Vdev>| device.leaf().is_usable();
    let mut usable = leaves.iter().filter(is_usable).peekable();
    if usable.peek().is_none() {
        return Some(Fate::Absent);
    }
    let is_stale = usable.all(|device| device.leaf().missed(io.birth));
    is_stale.then_some(Fate::Stale)
}

fn read_anyway(child: &Node<'_>, io: &Io, column: Column, bytes: &mut [u8]) -> Fate {
    match child.read(io, column.offset, bytes, &|_| true) {
        Ok(()) => Fate::Read,
        Err(error) => Fate::Failed(error),
    }
}

/// All columns of a block, as they were read.
pub(super) struct Stripe<'a> {
    node: &'a Node<'a>,
    io: Io,
    map: Map,
    nparity: usize,
    columns: Vec<BlockBuf>,
    fates: Vec<Fate>,
}

impl<'a> Stripe<'a> {
    /// Reads the columns that can be expected to be right. Of the data, `prior` says what came of reading it
    /// before, into the block.
    pub(super) fn read(
        node: &'a Node<'a>,
        io: &Io,
        map: Map,
        nparity: usize,
        prior: Option<(&[u8], Vec<Fate>)>,
    ) -> Self {
        let scratch = |column: Column| BlockBuf::scratch(column.bytes);
        let mut columns: Vec<BlockBuf> = map.columns().map(scratch).collect();
        let unread = match prior {
            Some(_) => nparity,
            None => map.count(),
        };
        let wanted = map.columns().zip(&mut columns).take(unread);
        let wanted = wanted.map(|(column, bytes)| (column, &mut bytes[..]));
        let mut wanted: Vec<_> = wanted.collect();
        let mut fates = read_together(node, io, &mut wanted);
        if let Some((block, mut prior)) = prior {
            prior.resize_with(map.count() - nparity, || Fate::Read);
            fates.extend(prior);
            split(block, &mut columns[nparity..]);
        }
        Stripe {
            node,
            io: *io,
            map,
            nparity,
            columns,
            fates,
        }
    }

    /// Fills `buf` with bytes that `verify` accepts.
    pub(super) fn find(&mut self, buf: &mut [u8], verify: &dyn Fn(&[u8]) -> bool) -> Result<()> {
        let missing = self.missing();
        if missing.len() <= self.nparity && self.is_right_without(&missing, buf, verify) {
            return Ok(());
        }
        let has_more = self.read_stale();
        let missing = self.missing();
        let Some(spare) = self.nparity.checked_sub(missing.len()) else {
            return Err(self.lack());
        };
        let read: Vec<usize> = (0..self.fates.len())
            .filter(|n| self.fates[*n].is_read())
            .collect();
        for size in usize::from(!has_more)..=spare {
            let mut is_right = |wrong: &[usize]| {
                let mut lost = [wrong, &missing].concat();
                lost.sort_unstable();
                // Parity that is wrong changes nothing if no data is computed from the rest.
                let is_tried = size > 0 && lost.iter().all(|n| *n < self.nparity);
                !is_tried && self.is_right_without(&lost, buf, verify)
            };
            if any_combination(&read, size, &mut Vec::new(), &mut is_right) {
                return Ok(());
            }
        }
        if self.io.purpose != Purpose::Speculative {
            read.into_iter().for_each(|n| self.blame(n));
        }
        let what = "no combination of columns has the right checksum";
        Err(Error::new(ErrorKind::Checksum, what))
    }

    /// The columns that were not read.
    fn missing(&self) -> Vec<usize> {
        let is_missing = |n: &usize| !self.fates[*n].is_read();
        (0..self.fates.len()).filter(is_missing).collect()
    }

    /// Reads the columns of devices that missed the block's txg, as a DTL names whole txgs; whether there
    /// are any.
    fn read_stale(&mut self) -> bool {
        let mut is_any = false;
        for (n, column) in self.map.columns().enumerate() {
            if matches!(self.fates[n], Fate::Stale) {
                let child = self.node.child(column.child);
                self.fates[n] = read_anyway(&child, &self.io, column, &mut self.columns[n]);
                is_any = true;
            }
        }
        is_any
    }

    /// The error when there are too few columns.
    fn lack(&mut self) -> Error {
        let failed = |fate: Fate| match fate {
            Fate::Failed(error) => Some(error),
            _ => None,
        };
        let error = self.fates.drain(..).find_map(failed);
        error.unwrap_or_else(no_device)
    }

    /// Puts the block into `buf`, with these columns computed from the others; whether it is right.
    fn is_right_without(
        &self,
        lost: &[usize],
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> bool {
        if lost.iter().all(|n| *n < self.nparity) {
            join(&self.columns[self.nparity..], buf);
        } else {
            let mut columns = self.columns.clone();
            let mut slices: Vec<&mut [u8]> = columns.iter_mut().map(|c| &mut c[..]).collect();
            parity::reconstruct(self.nparity, &mut slices, lost);
            join(&columns[self.nparity..], buf);
        }
        verify(buf)
    }

    /// Now that the block is known: counts the columns that are wrong, and writes them again. A scrub also
    /// writes those that their devices missed, and looks at each side of a mirror.
    pub(super) fn settle(&self, block: &[u8], is_scrub: bool) -> ScrubReport {
        let stored = self.columns[..self.nparity].iter();
        let scratch = |column: &BlockBuf| BlockBuf::scratch(column.len());
        let mut parity: Vec<BlockBuf> = stored.map(scratch).collect();
        let mut data = Vec::with_capacity(self.columns.len());
        let mut rest = block;
        for column in &self.columns[self.nparity..] {
            let (bytes, after) = rest.split_at(column.len());
            rest = after;
            data.push(bytes);
        }
        let mut slices: Vec<&mut [u8]> = parity.iter_mut().map(|c| &mut c[..]).collect();
        parity::generate(&data, &mut slices);
        let right = parity.iter().map(|column| &column[..]).chain(data);
        let mut report = ScrubReport::default();
        for (n, right) in right.enumerate() {
            let found = self.settle_column(n, right, is_scrub);
            report.bad += found.bad;
            report.repaired += found.repaired;
        }
        report
    }

    fn settle_column(&self, n: usize, right: &[u8], is_scrub: bool) -> ScrubReport {
        let column = self.map.column(n);
        let child = self.node.child(column.child);
        let is_group = child.vdev.leaves().len() > 1;
        let is_wrong = match self.fates[n] {
            Fate::Read => self.columns[n][..] != *right,
            Fate::Stale => is_scrub,
            Fate::Failed(_) => true,
            Fate::Absent => false,
        };
        if is_group && self.fates[n].is_read() && (is_wrong || is_scrub) {
            if let Ok(report) = scrub_sides(&child, column, right, self.io.birth) {
                return report;
            }
        } else if !is_wrong {
            return ScrubReport::default();
        } else if self.fates[n].is_read() {
            self.blame(n);
        }
        let repair = Io::repair(self.io.birth);
        let write = || child.write(&repair, column.offset, &[right]);
        ScrubReport {
            bad: 1,
            repaired: u32::from(self.node.is_writable && write().is_ok()),
        }
    }

    /// Counts a checksum error against the devices of a column.
    fn blame(&self, n: usize) {
        let child = self.node.child(self.map.column(n).child);
        for device in child.vdev.leaves() {
            child.blame(device, &Outcome::Mismatch, self.io.birth);
        }
    }
}

/// Compares each side of a mirror with the right bytes, and repairs those that differ; an error if all do.
fn scrub_sides(child: &Node<'_>, column: Column, right: &[u8], birth: Txg) -> Result<ScrubReport> {
    let range = 0..right.len();
    let block = RunBlock { range, birth };
    let mut buf = BlockBuf::scratch(right.len());
    let is_right = |_: usize, bytes: &[u8]| bytes == right;
    let reports = child.scrub(column.offset, &mut buf, &[block], &is_right);
    reports
        .into_iter()
        .next()
        .unwrap_or_else(|| Err(no_device()))
}

fn join(columns: &[BlockBuf], block: &mut [u8]) {
    let mut rest = block;
    for column in columns {
        let (bytes, after) = rest.split_at_mut(column.len());
        bytes.copy_from_slice(column);
        rest = after;
    }
}

fn split(block: &[u8], columns: &mut [BlockBuf]) {
    let mut rest = block;
    for column in columns {
        let (bytes, after) = rest.split_at(column.len());
        column.copy_from_slice(bytes);
        rest = after;
    }
}

/// Whether `is_right` accepts any `size` of the numbers, together with those `chosen`.
fn any_combination(
    numbers: &[usize],
    size: usize,
    chosen: &mut Vec<usize>,
    is_right: &mut dyn FnMut(&[usize]) -> bool,
) -> bool {
    if size == 0 {
        return is_right(chosen);
    }
    numbers.iter().enumerate().any(|(at, number)| {
        chosen.push(*number);
        let is_found = any_combination(&numbers[at + 1..], size - 1, chosen, is_right);
        chosen.pop();
        is_found
    })
}
