//! Finding the right bytes of a block from columns of which some are missing or wrong.
//!
//! # What it is
//! A good block is read from its data columns alone ([`read_data`]). Otherwise a [`Stripe`] has all columns
//! that can be read, parity included, and tries which of them to believe until the block's checksum is
//! right: first all; then without those of devices that missed the block's txg; then without every
//! combination of one, two and three more children, as long as there is parity for them in each row; then
//! the same with what other sides of children have that are mirrors ([`super::sides`]). Once the block is known,
//! so is every column, and those that were wrong are counted and written again. The zeros that fill up a column
//! ([`Column::stored`]) are read and compared by a scrub only.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_draid.c` (`vdev_draid_map_verify_empty`), `module/zfs/vdev_raidz.c`
//! (`vdev_raidz_io_start_read`, `vdev_raidz_io_done`, `vdev_raidz_combrec`, `vdev_raidz_io_done_verified`).

use std::ops::Range;
use std::sync::Arc;

use base::{BlockBuf, Error, ErrorKind, Result, Txg};
use zio::{Io, Purpose, RunBlock, ScrubReport};

use super::band::{Band, Fate, Prior};
use super::mend::Mend;
use super::row::{Column, Row, Rows};
use super::sides::{Side, read_others};
use super::strip::{cut, data_len, parity_of};
use crate::Vdev;
use crate::kinds::Node;
use crate::kinds::health::{Outcome, no_device};
use crate::leaf::Answer;

/// Reads the data columns to where they belong in the block, and returns what came of each: nothing if all
/// were read.
pub(super) fn read_data<R: Row>(
    node: &Node<'_>,
    io: &Io,
    rows: &Rows<R>,
    nparity: usize,
    buf: &mut [u8],
) -> Vec<Fate> {
    let is_asynchronous = |column: Column| {
        let child = node.child(column.child);
        let mut leaves = child.vdev.leaves().iter();
        leaves.any(|device| device.leaf().is_asynchronous())
    };
    let overlaps = rows
        .iter()
        .any(|row| row.columns().skip(nparity).any(is_asynchronous));
    let mut rest = buf;
    let mut wanted = data_columns(rows, nparity).map(|column| {
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

/// The data columns of all rows.
fn data_columns<R: Row>(rows: &Rows<R>, nparity: usize) -> impl Iterator<Item = Column> {
    let of_row = move |row: R| (nparity..row.count()).map(move |n| row.column(n));
    rows.iter().flat_map(of_row)
}

/// Reads columns, those of asynchronous devices at the same time.
pub(super) fn read_together(
    node: &Node<'_>,
    io: &Io,
    wanted: &mut [(Column, &mut [u8])],
) -> Vec<Fate> {
    let begin = |(column, bytes): &(Column, &mut [u8])| {
        let child = node.child(column.child);
        let is_wanted = !bytes.is_empty() && reason_not_to_read(&child, io, *column).is_none();
        is_wanted
            .then(|| child.begin_read(io, column.offset, bytes.len()))
            .flatten()
    };
    let begun: Vec<_> = wanted.iter().map(begin).collect();
    let end = |((column, bytes), begun): (&mut (Column, &mut [u8]), Option<Answer>)| match begun {
        Some(begun) => {
            let child = node.child(column.child);
            let read = child.end_read(io, column.offset, &begun, bytes);
            fate(&child, *column, read)
        }
        None => read_column(node, io, *column, bytes),
    };
    wanted.iter_mut().zip(begun).map(end).collect()
}

fn read_column(node: &Node<'_>, io: &Io, column: Column, bytes: &mut [u8]) -> Fate {
    if bytes.is_empty() {
        return Fate::Read;
    }
    let child = node.child(column.child);
    reason_not_to_read(&child, io, column).unwrap_or_else(|| read_anyway(&child, io, column, bytes))
}

/// Why a child is not to be read, if so.
pub(super) fn reason_not_to_read(child: &Node<'_>, io: &Io, column: Column) -> Option<Fate> {
    if is_absent(child, column) {
        return Some(Fate::Absent);
    }
    let mut usable = usable(child, column);
    let is_stale = usable.all(|device| child.missed_at(device, column.offset, io.birth));
    is_stale.then_some(Fate::Stale)
}

/// The devices of a column that can be read.
fn usable<'a>(child: &'a Node<'_>, column: Column) -> impl Iterator<Item = &'a Arc<Vdev>> {
    let leaves = child.vdev.leaves().iter();
    leaves.filter(move |device| child.is_usable_at(device, column.offset))
}

fn is_absent(child: &Node<'_>, column: Column) -> bool {
    usable(child, column).next().is_none()
}

fn read_anyway(child: &Node<'_>, io: &Io, column: Column, bytes: &mut [u8]) -> Fate {
    let read = child.read(io, column.offset, bytes, &|_| true);
    fate(child, column, read)
}

/// What came of reading a column, whose devices may have been given up while the read waited.
fn fate(child: &Node<'_>, column: Column, read: Result<()>) -> Fate {
    match read {
        Ok(()) => Fate::Read,
        Err(_) if is_absent(child, column) => Fate::Absent,
        Err(error) => Fate::Failed(error),
    }
}

/// What may be wrong altogether: a child; or a child of the time before others were added, whose sectors were copied
/// to all of them as they were.
#[doc(alias = "raidz_simulate_failure")]
pub(super) struct Suspects {
    pub(super) children: usize,
    pub(super) ashift: u32,
    /// The numbers of children at those times, the last one first.
    pub(super) former: Vec<usize>,
}

impl Suspects {
    /// The numbers of suspects that are not children now; children have their own.
    fn of_the_past(&self) -> std::ops::Range<usize> {
        self.children..self.children + self.former.iter().sum::<usize>()
    }

    /// Whether a suspect has, or once had, what is in this column.
    fn had(&self, mut suspect: usize, column: Column) -> bool {
        if suspect < self.children {
            return suspect == column.child;
        }
        suspect -= self.children;
        let row = column.offset >> self.ashift;
        let sector = row.wrapping_mul(self.children as u64) + column.child as u64;
        for width in &self.former {
            if suspect < *width {
                return sector % *width as u64 == suspect as u64;
            }
            suspect -= width;
        }
        false
    }
}

/// All columns of a block, as they were read.
pub(super) struct Stripe<'a, R> {
    node: &'a Node<'a>,
    io: Io,
    nparity: usize,
    bands: Vec<Band<'a, R>>,
}

impl<'a, R: Row> Stripe<'a, R> {
    /// Reads the columns that can be expected to be right and were not read before. What was not read into a block
    /// is read up to where the columns end on their children.
    pub(super) fn read(
        node: &'a Node<'a>,
        io: &Io,
        rows: &Rows<R>,
        nparity: usize,
        mut prior: Prior<'a, '_>,
    ) -> Self {
        let mut known = Vec::new();
        let band = |row: R| {
            let (columns, fates) = prior.of_row((node, io), row, nparity);
            known.extend(fates);
            Band {
                row,
                columns,
                fates: Vec::with_capacity(row.count()),
            }
        };
        let mut bands: Vec<Band<'_, R>> = rows.iter().map(band).collect();
        let columns = |band| {
            let Band { row, columns, .. }: &mut Band<'_, R> = band;
            row.columns().zip(columns)
        };
        let columns = bands.iter_mut().flat_map(columns).zip(&known);
        let wanted = columns.filter(|(_, known)| known.is_none());
        let mut wanted: Vec<_> = wanted
            .map(|((column, bytes), _)| (column, bytes.own()))
            .collect();
        let mut found = read_together(node, io, &mut wanted).into_iter();
        let mut found = || found.next().expect("one for each that was not known");
        let mut fates = known
            .into_iter()
            .map(|known| known.unwrap_or_else(&mut found));
        for band in &mut bands {
            band.fates.extend(fates.by_ref().take(band.row.count()));
        }
        Stripe {
            node,
            io: *io,
            nparity,
            bands,
        }
    }

    /// Fills `buf` with bytes that `verify` accepts.
    pub(super) fn find(
        &mut self,
        suspects: &Suspects,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let missing = self.missing();
        if self.spare(&missing).is_some() && self.is_right_without(&missing, buf, verify) {
            return Ok(());
        }
        let has_more = self.read_stale();
        let missing = self.missing();
        let Some(spare) = self.spare(&missing) else {
            return Err(self.lack());
        };
        let children = self.children_read();
        let mut numbers = children.clone();
        numbers.extend(suspects.of_the_past());
        let is_found = |stripe: &Self, sizes: Range<usize>, buf: &mut [u8]| {
            sizes.into_iter().any(|size| {
                let mut is_right = |wrong: &[usize]| {
                    let lost = stripe.lost(&missing, suspects, wrong);
                    stripe.is_worth_a_try(size, &lost)
                        && stripe.is_right_without(&lost, buf, verify)
                };
                any_combination(&numbers, size, &mut Vec::new(), &mut is_right)
            })
        };
        if is_found(self, usize::from(!has_more)..spare + 1, buf) {
            return Ok(());
        }
        let mut others = read_others((self.node, &self.io), &self.bands, &children);
        let mut is_right = |stripe: &Self| is_found(stripe, 0..spare + 1, buf);
        if !others.is_empty() && self.any_sides(&mut others, &mut is_right) {
            return Ok(());
        }
        if self.io.purpose != Purpose::Speculative {
            let columns = self.bands.iter().flat_map(Band::read_columns);
            columns.for_each(|(_, column)| self.blame(column));
        }
        let what = "no combination of columns has the right checksum";
        Err(Error::new(ErrorKind::Checksum, what))
    }

    /// Whether `is_right` accepts the stripe with any choice of sides; it is left with that.
    fn any_sides(
        &mut self,
        others: &mut [Vec<Side<'a>>],
        is_right: &mut dyn FnMut(&Self) -> bool,
    ) -> bool {
        let Some((sides, rest)) = others.split_first_mut() else {
            return is_right(self);
        };
        if self.any_sides(rest, is_right) {
            return true;
        }
        for side in sides {
            side.swap(&mut self.bands);
            if self.any_sides(rest, is_right) {
                return true;
            }
            side.swap(&mut self.bands);
        }
        false
    }

    /// Whether the block may be there without these columns of each row, where `size` children were taken to be wrong
    /// besides what is missing.
    fn is_worth_a_try(&self, size: usize, lost: &[Vec<usize>]) -> bool {
        // Parity that is wrong changes nothing if no data is computed from the rest.
        let is_tried = size > 0 && lost.iter().flatten().all(|n| *n < self.nparity);
        !is_tried && lost.iter().all(|lost| lost.len() <= self.nparity)
    }

    /// The columns of each row that were not read.
    fn missing(&self) -> Vec<Vec<usize>> {
        self.bands.iter().map(Band::missing).collect()
    }

    /// How many more columns of a row could be done without; nothing if any row lacks too many.
    fn spare(&self, missing: &[Vec<usize>]) -> Option<usize> {
        let spare = |missing: &Vec<usize>| self.nparity.checked_sub(missing.len());
        let spares: Option<Vec<usize>> = missing.iter().map(spare).collect();
        spares?.into_iter().max()
    }

    /// The children that anything was read from.
    fn children_read(&self) -> Vec<usize> {
        let mut children = Vec::new();
        for (_, column) in self.bands.iter().flat_map(Band::read_columns) {
            if !children.contains(&column.child) {
                children.push(column.child);
            }
        }
        children
    }

    /// The columns of each row that are missing, or are on children that are taken to be wrong.
    fn lost(
        &self,
        missing: &[Vec<usize>],
        suspects: &Suspects,
        wrong: &[usize],
    ) -> Vec<Vec<usize>> {
        let of_band = |(band, missing): (&Band<'_, R>, &Vec<usize>)| {
            let read = band.read_columns();
            let is_wrong = |column| wrong.iter().any(|n| suspects.had(*n, column));
            let wrong = read.filter(|(_, column)| is_wrong(*column));
            let mut lost: Vec<usize> = wrong
                .map(|(n, _)| n)
                .chain(missing.iter().copied())
                .collect();
            lost.sort_unstable();
            lost
        };
        self.bands.iter().zip(missing).map(of_band).collect()
    }

    /// Reads the columns of devices that missed the block's txg, as a DTL names whole txgs; whether there
    /// are any.
    fn read_stale(&mut self) -> bool {
        let mut is_any = false;
        for band in &mut self.bands {
            for (n, column) in band.row.columns().enumerate() {
                if column.bytes > 0 && matches!(band.fates[n], Fate::Stale) {
                    let child = self.node.child(column.child);
                    band.fates[n] = read_anyway(&child, &self.io, column, band.columns[n].own());
                    is_any = true;
                }
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
        let mut fates = self.bands.iter_mut().flat_map(|band| band.fates.drain(..));
        fates.find_map(failed).unwrap_or_else(no_device)
    }

    /// Puts the block into `buf`, with these columns of each row computed from the others; whether it is right.
    fn is_right_without(
        &self,
        lost: &[Vec<usize>],
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> bool {
        let mut rest = &mut *buf;
        for (band, lost) in self.bands.iter().zip(lost) {
            let (bytes, after) = rest.split_at_mut(data_len(band.row, self.nparity));
            band.compute(self.nparity, lost, bytes);
            rest = after;
        }
        verify(buf)
    }

    /// Now that the block, number `number` of a run, is known: counts the columns that are wrong, which are to be
    /// written again (`mends`). A scrub also finds those that their devices missed, and looks at each side of a mirror.
    pub(super) fn settle(
        &self,
        block: &[u8],
        is_scrub: bool,
        number: usize,
        mends: &mut Vec<Mend>,
    ) -> ScrubReport {
        let mut report = ScrubReport::default();
        let mut rest = block;
        for band in &self.bands {
            let (bytes, after) = rest.split_at(data_len(band.row, self.nparity));
            rest = after;
            let data = cut(band.row, self.nparity, bytes);
            let parity = parity_of(&data, self.nparity);
            let right = parity.iter().map(|column| &column[..]).chain(data);
            for (n, right) in right.enumerate() {
                let mut note = |column: Column, bytes| {
                    mends.push(Mend {
                        block: number,
                        child: column.child,
                        offset: column.offset,
                        bytes,
                    });
                };
                let found = self.settle_column(band, n, right, is_scrub, &mut note);
                if found.bad > 0 {
                    self.settle_shadow(band, n, right);
                }
                report += found;
            }
        }
        report
    }

    fn settle_column(
        &self,
        band: &Band<'_, R>,
        n: usize,
        right: &[u8],
        is_scrub: bool,
        note: &mut dyn FnMut(Column, Vec<u8>),
    ) -> ScrubReport {
        let column = band.row.column(n);
        let child = self.node.child(column.child);
        let is_group = child.vdev.leaves().len() > 1;
        let is_wrong = match band.fates[n] {
            Fate::Read => !is_filled_up(&band.columns[n], right),
            Fate::Stale => is_scrub,
            Fate::Failed(_) => true,
            Fate::Absent => false,
        };
        let filled_up = || {
            let mut bytes = right.to_vec();
            bytes.resize(column.stored, 0);
            bytes
        };
        if is_group && band.fates[n].is_read() && (is_wrong || is_scrub) {
            let right = filled_up();
            if let Ok(report) = scrub_sides(&child, column, &right, self.io.birth) {
                return report;
            }
        } else if !is_wrong {
            return ScrubReport::default();
        } else if band.fates[n].is_read() {
            self.blame(column);
        }
        note(column, filled_up());
        ScrubReport {
            bad: 1,
            ..ScrubReport::default()
        }
    }

    /// Writes a column that was wrong also to where it was copied.
    fn settle_shadow(&self, band: &Band<'_, R>, n: usize, right: &[u8]) {
        let Some(shadow) = band.row.shadow(n).filter(|shadow| shadow.bytes > 0) else {
            return;
        };
        if self.node.is_writable {
            let child = self.node.child(shadow.child);
            // If that fails, it is as wrong as before.
            let _ = child.write(&Io::repair(self.io.birth), shadow.offset, &[right]);
        }
    }

    /// Counts a checksum error against the devices of a column.
    fn blame(&self, column: Column) {
        let child = self.node.child(column.child);
        for device in child.vdev.leaves() {
            child.blame(device, &Outcome::Mismatch, self.io.birth);
        }
    }
}

/// Whether a column has these bytes, and zeros behind them as far as it was read.
fn is_filled_up(column: &[u8], right: &[u8]) -> bool {
    let (bytes, zeros) = column.split_at(right.len());
    bytes == right && zeros.iter().all(|byte| *byte == 0)
}

/// Compares each side of a mirror with the right bytes, and repairs those that differ; an error if all do.
fn scrub_sides(child: &Node<'_>, column: Column, right: &[u8], birth: Txg) -> Result<ScrubReport> {
    let range = 0..right.len();
    let block = RunBlock {
        offset: column.offset,
        range,
        birth,
    };
    let mut buf = BlockBuf::scratch(right.len());
    let is_right = |_: usize, bytes: &[u8]| bytes == right;
    let reports = child.scrub(&mut buf, &[block], &is_right);
    reports
        .into_iter()
        .next()
        .unwrap_or_else(|| Err(no_device()))
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
