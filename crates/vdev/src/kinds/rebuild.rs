//! Ranges of devices that are rebuilt: reading what is complete, and writing it to them.
//!
//! # What it is
//! A device is *rebuilt* while its config says so (`rebuild_txg`) and it lacks something. What it has to get at some
//! offset, the devices beside it have, if one of them lacks nothing; otherwise it is computed from all columns of the
//! row, as far as there is parity.
//!
//! # Invariants
//! 1. Nothing is taken from a device that lacks anything, as it is not known what: a block that only such a device has
//!    is not overwritten.
//! 2. Nothing is written to a device that is not rebuilt.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_mirror.c` (`vdev_mirror_rebuilding`, `vdev_mirror_io_start`), `module/zfs/vdev_draid.c`
//! (`vdev_draid_rebuild_asize`), `module/zfs/vdev_raidz.c` (`vdev_raidz_io_done`).

use std::ops::Range;
use std::sync::Arc;

use base::{BlockBuf, Buf, Txg};
use zio::{Io, Priority};

use super::Node;
use super::mirror::{TURN_SHIFT, physical};
use super::striped::{Column, Row};
use crate::leaf::{Answer, Begun, begin_read, begin_write};
use crate::{Rebuilt, Vdev};

/// `zfs_rebuild_max_segment`: bytes of each command, at most.
pub(super) const PIECE_BYTES: u64 = 1 << 20;

/// A read that was begun, and from which device.
type Reading = (Arc<Vdev>, Answer);
/// A write that was begun, to which device, and of how many bytes.
type Writing = (Arc<Vdev>, Begun, u64);

/// Whether a device is being rebuilt.
fn is_rebuilt(device: &Vdev) -> bool {
    let leaf = device.leaf();
    leaf.has_dtl() && leaf.is_usable() && device.config().rebuild_txg != 0
}

/// Cuts ranges into pieces for one command each.
pub(super) fn pieces(ranges: &[Range<u64>], most: u64) -> impl Iterator<Item = Range<u64>> {
    ranges.iter().flat_map(move |range| {
        let (start, end) = (range.start, range.end);
        (start..end)
            .step_by(usize::try_from(most).expect("fits"))
            .map(move |at| at..end.min(at + most))
    })
}

/// Brings one row of columns of the same length up to date.
pub(super) fn rebuild_row<R: Row>(node: &Node<'_>, row: R, nparity: usize, done: &mut Rebuilt) {
    let columns: Vec<Column> = row.columns().collect();
    let is_wanted = |column: &Column| node.child(column.child).is_any_rebuilt();
    let wanted: Vec<bool> = columns.iter().map(is_wanted).collect();
    if !wanted.contains(&true) {
        return;
    }
    let mut bytes: Vec<BlockBuf> = columns
        .iter()
        .map(|column| BlockBuf::scratch(column.stored))
        .collect();
    let mut is_read = read_columns(node, &columns, &wanted, &mut bytes);
    let lacks = |is_read: &[bool]| wanted.iter().zip(is_read).any(|(w, r)| *w && !r);
    if lacks(&is_read) {
        let others: Vec<bool> = wanted.iter().map(|wanted| !wanted).collect();
        let rest = read_columns(node, &columns, &others, &mut bytes);
        is_read
            .iter_mut()
            .zip(rest)
            .for_each(|(all, is)| *all |= is);
        let lost: Vec<usize> = (0..columns.len()).filter(|n| !is_read[*n]).collect();
        if lost.len() > nparity {
            done.errors += 1;
            return;
        }
        let mut slices: Vec<&mut [u8]> = bytes.iter_mut().map(|column| &mut column[..]).collect();
        parity::reconstruct(nparity, &mut slices, &lost);
    }
    let mut writes = Vec::new();
    for ((column, bytes), _) in columns.iter().zip(&bytes).zip(&wanted).filter(|(_, w)| **w) {
        let child = node.child(column.child);
        writes.extend(child.begin_rebuilding(column.offset, bytes, done));
    }
    node.end_rebuilding(writes, done);
}

/// Reads some of the columns from devices that lack nothing; which ones could be read.
fn read_columns(
    node: &Node<'_>,
    columns: &[Column],
    wanted: &[bool],
    bytes: &mut [BlockBuf],
) -> Vec<bool> {
    let begin = |(column, wanted): (&Column, &bool)| {
        let child = node.child(column.child);
        wanted
            .then(|| child.begin_complete(column.offset, column.stored))
            .flatten()
    };
    let begun: Vec<_> = columns.iter().zip(wanted).map(begin).collect();
    let mut is_read = Vec::with_capacity(columns.len());
    for (n, begun) in begun.into_iter().enumerate() {
        let child = node.child(columns[n].child);
        is_read.push(wanted[n] && child.end_complete(columns[n].offset, &mut bytes[n], begun));
    }
    is_read
}

impl Node<'_> {
    /// Whether a device below is being rebuilt.
    pub(super) fn is_any_rebuilt(&self) -> bool {
        self.vdev.leaves().iter().any(|device| is_rebuilt(device))
    }

    /// Whether a device below may lack something at an offset.
    fn lacks_any(&self, device: &Vdev, offset: u64) -> bool {
        if device.leaf().has_dtl() || device.kind().has_labels() {
            return device.leaf().has_dtl();
        }
        self.room(device, offset).is_none_or(|room| {
            let leaves = room.vdev.leaves().iter();
            let mut usable = leaves.filter(|leaf| room.is_usable_at(leaf, offset));
            usable.all(|leaf| room.lacks_any(leaf, offset))
        })
    }

    /// The devices below that lack nothing, the one whose turn it is first.
    fn complete(&self, offset: u64) -> Vec<Arc<Vdev>> {
        let is_complete = |device: &&Arc<Vdev>| {
            self.is_usable_at(device, offset) && !self.lacks_any(device, offset)
        };
        let mut complete: Vec<_> = self
            .vdev
            .leaves()
            .iter()
            .filter(is_complete)
            .cloned()
            .collect();
        if !complete.is_empty() {
            let turn = (offset >> TURN_SHIFT) % complete.len() as u64;
            complete.rotate_left(turn as usize);
        }
        complete
    }

    /// Begins to read from a complete device, if that is asynchronous.
    pub(super) fn begin_complete(&self, offset: u64, len: usize) -> Option<Reading> {
        let first = self.complete(offset).into_iter().next()?;
        if !first.kind().has_labels() {
            return None;
        }
        let begun = begin_read(&first, Priority::Scrub, physical(offset), len)?;
        Some((first, begun))
    }

    /// Ends reading from a complete device, or reads from another one; whether that was possible.
    pub(super) fn end_complete(&self, offset: u64, buf: &mut [u8], begun: Option<Reading>) -> bool {
        let io = Io::scrub(Txg(0));
        let mut failed: Option<Arc<Vdev>> = None;
        if let Some((device, answer)) = begun {
            match answer.take() {
                Ok(data) => {
                    buf.copy_from_slice(&data.into_read());
                    return true;
                }
                Err(error) => self.blame(&device, &self.failed(&device, offset, error), io.birth),
            }
            failed = Some(device);
        }
        for device in self.complete(offset) {
            if failed
                .as_ref()
                .is_some_and(|failed| Arc::ptr_eq(failed, &device))
            {
                continue;
            }
            match self.read_device(&device, &io, offset, buf) {
                Ok(()) => return true,
                Err(error) => self.blame(&device, &self.failed(&device, offset, error), io.birth),
            }
        }
        false
    }

    /// Begins to write to all devices below that are rebuilt.
    pub(super) fn begin_rebuilding(
        &self,
        offset: u64,
        bytes: &[u8],
        done: &mut Rebuilt,
    ) -> Vec<Writing> {
        let mut writes = Vec::new();
        let mut shared: Option<Buf> = None;
        let mut copied = || shared.get_or_insert_with(|| Buf::copy_of(bytes)).clone();
        for device in self.vdev.leaves() {
            if !is_rebuilt(device) {
                continue;
            }
            if !self.is_usable_at(device, offset) {
                done.errors += 1;
                continue;
            }
            let begun = match self.room(device, offset) {
                Some(room) => Begun::Done(room.write(&Io::repair(Txg(0)), offset, &[bytes])),
                None => {
                    let at = physical(offset);
                    begin_write(device, Priority::Scrub, at, &[bytes], &mut copied)
                }
            };
            writes.push((Arc::clone(device), begun, bytes.len() as u64));
        }
        writes
    }

    /// Waits for writes to devices that are rebuilt.
    pub(super) fn end_rebuilding(&self, writes: Vec<Writing>, done: &mut Rebuilt) {
        for (device, begun, len) in writes {
            match self.note_write(&device, begun.wait(), len) {
                Ok(()) => done.written_bytes += len,
                Err(_) => done.errors += 1,
            }
        }
    }
}
