//! Devices that all hold the same bytes at the same offset.
//!
//! # What it is
//! A mirror, a device that is being replaced, and a hot spare in use are all "any of these devices
//! will do", also when nested; a single device is the same with one. So all of them are handled as
//! one flat list of devices.
//!
//! # Invariants
//! 1. A read succeeds if any device has bytes that `verify` accepts.
//! 2. A write succeeds if any device took it; every other one gets the txg into its DTL.
//!
//! # Concurrency
//! Runs in the caller's thread. A read asks the best device first, and the others only when it failed.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_mirror.c`.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use base::{BlockBuf, Buf, Error, Result, Txg};
use phys::label::LABEL_START_SIZE;
use zio::{Io, Placement, Priority, Purpose, RunBlock, ScrubReport};

use super::health::{Outcome, count_elsewhere, no_copy, no_device};
use super::rebuild::{PIECE_BYTES, pieces};
use super::{KindOps, Node};
use crate::leaf::{Answer, Begun, begin_read, begin_write};
use crate::stats::VdevStats;
use crate::{Rebuilt, Vdev};

/// `vdev_mirror_shift`: equally good devices take turns every 2 MiB.
pub(super) const TURN_SHIFT: u32 = 21;

/// A device, or several with the same bytes.
#[doc(alias = "vdev_mirror_ops")]
pub(crate) struct Mirror;

impl KindOps for Mirror {
    fn read(
        &self,
        node: &Node<'_>,
        io: &Io,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let devices = node.vdev.leaves();
        let counts = io.purpose != Purpose::Speculative;
        // Empty as long as nothing failed, which is nearly always.
        let mut outcomes: Vec<Outcome> = Vec::new();
        while let Some(n) = node.best_untried(io.birth, offset, &outcomes) {
            let outcome = match node.read_device(&devices[n], io, offset, buf) {
                Ok(()) if verify(buf) => {
                    if counts && !outcomes.is_empty() {
                        node.settle(io.birth, offset, buf, &outcomes);
                    }
                    return Ok(());
                }
                Ok(()) => Outcome::Mismatch,
                Err(error) => node.failed(&devices[n], offset, error),
            };
            outcomes.resize_with(devices.len(), || Outcome::Untried);
            outcomes[n] = outcome;
        }
        if counts {
            for (device, outcome) in devices.iter().zip(&outcomes) {
                node.blame(device, outcome, io.birth);
            }
        }
        outcomes.resize_with(devices.len(), || Outcome::Untried);
        Err(node.no_copy(io.birth, offset, outcomes))
    }

    fn write(&self, node: &Node<'_>, io: &Io, offset: u64, parts: &[&[u8]]) -> Result<()> {
        if io.purpose == Purpose::Repair {
            return node.repair(io.priority, offset, parts);
        }
        node.end_write(
            node.begin_write(io.priority, offset, parts),
            bytes_of(parts),
        )
    }

    fn scrub(
        &self,
        node: &Node<'_>,
        buf: &mut [u8],
        blocks: &[RunBlock],
        verify: &dyn Fn(usize, &[u8]) -> bool,
    ) -> Vec<Result<ScrubReport>> {
        let devices = node.vdev.leaves();
        let offset = RunBlock::start_of(blocks);
        let len = buf.len();
        // For the second device and those after it.
        let mut scratch: Option<BlockBuf> = None;
        let mut is_good = vec![false; blocks.len()];
        // Of the first block: one for each device, and so on.
        let mut outcomes: Vec<Outcome> = Vec::new();
        outcomes.resize_with(blocks.len() * devices.len(), || Outcome::Untried);
        for (turn, at) in node.complete_first(offset, blocks).into_iter().enumerate() {
            let run = if turn == 0 {
                &mut *buf
            } else {
                &mut scratch.get_or_insert_with(|| BlockBuf::scratch(len))[..]
            };
            let found = node.scrub_device(&devices[at], offset, run, (blocks, &is_good), verify);
            for (n, outcome) in found.into_iter().enumerate() {
                if matches!(outcome, Outcome::Untried) && !is_good[n] {
                    is_good[n] = true;
                    if let Some(scratch) = &scratch {
                        let range = &blocks[n].range;
                        buf[range.clone()].copy_from_slice(&scratch[range.clone()]);
                    }
                }
                outcomes[n * devices.len() + at] = outcome;
            }
        }
        let conclude = |n: usize| {
            let outcomes = &mut outcomes[n * devices.len()..][..devices.len()];
            let RunBlock {
                offset,
                range,
                birth,
            } = &blocks[n];
            if is_good[n] {
                return Ok(node.settle(*birth, *offset, &buf[range.clone()], outcomes));
            }
            for (device, outcome) in devices.iter().zip(&*outcomes) {
                node.blame(device, outcome, *birth);
            }
            let outcomes = outcomes.iter_mut().map(mem::take);
            Err(node.no_copy(*birth, *offset, outcomes))
        };
        (0..blocks.len()).map(conclude).collect()
    }

    fn rebuild(&self, node: &Node<'_>, ranges: &[Range<u64>]) -> Rebuilt {
        let mut done = Rebuilt::default();
        if !node.is_any_rebuilt() {
            return done;
        }
        let begin = |piece: Range<u64>| {
            let len = (piece.end - piece.start) as usize;
            (piece.start, len, node.begin_complete(piece.start, len))
        };
        let begun: Vec<_> = pieces(ranges, PIECE_BYTES).map(begin).collect();
        let mut writes = Vec::new();
        for (offset, len, begun) in begun {
            let mut bytes = BlockBuf::scratch(len);
            if node.end_complete(offset, &mut bytes, begun) {
                writes.extend(node.begin_rebuilding(offset, &bytes, &mut done));
            } else {
                done.errors += 1;
            }
        }
        node.end_rebuilding(writes, &mut done);
        done
    }

    fn placement(&self) -> Placement {
        Placement::Linear
    }

    fn tolerated(&self, children: usize) -> usize {
        children.saturating_sub(1)
    }

    fn asize(&self, children: &[u64]) -> u64 {
        children.iter().min().copied().unwrap_or(0)
    }

    fn min_child_asize(&self, _: usize, asize: u64) -> u64 {
        asize
    }
}

impl Node<'_> {
    /// Begins a read from a single asynchronous device; `None` for others.
    pub(crate) fn begin_read(&self, io: &Io, offset: u64, len: usize) -> Option<Answer> {
        match self.vdev.leaves() {
            [device] => begin_read(device, io.priority, physical(offset), len),
            _ => None,
        }
    }

    /// Waits for a read at an offset that was begun.
    pub(crate) fn end_read(
        &self,
        io: &Io,
        offset: u64,
        begun: &Answer,
        buf: &mut [u8],
    ) -> Result<()> {
        let device = &self.vdev.leaves()[0];
        match begun.take() {
            Ok(data) => {
                buf.copy_from_slice(&data.into_read());
                Ok(())
            }
            Err(error) => {
                let outcome = self.failed(device, offset, error);
                if io.purpose != Purpose::Speculative {
                    self.blame(device, &outcome, io.birth);
                }
                Err(no_copy(std::iter::once((outcome, false))))
            }
        }
    }

    /// Begins a write to every device, without waiting for those that are asynchronous. `None` stands for a
    /// device that cannot be written to.
    pub(crate) fn begin_write(
        &self,
        priority: Priority,
        offset: u64,
        parts: &[&[u8]],
    ) -> Vec<Option<Begun>> {
        let devices = self.vdev.leaves();
        let at = physical(offset);
        let mut shared: Option<Buf> = None;
        let mut bytes = || {
            let copied = || Buf::copy_of(&parts.concat());
            shared.get_or_insert_with(copied).clone()
        };
        let is_alone = devices.len() == 1 && Arc::ptr_eq(self.vdev, self.top);
        let begin = |device: &Arc<Vdev>| {
            if !self.is_usable_at(device, offset) {
                return None;
            }
            if let Some(room) = self.room(device, offset) {
                return Some(Begun::Done(room.write_room(priority, offset, parts)));
            }
            Some(if is_alone {
                Begun::Done(device.leaf().write(priority, at, parts))
            } else {
                begin_write(device, priority, at, parts, &mut bytes)
            })
        };
        devices.iter().map(begin).collect()
    }

    /// Waits for a write of so many bytes that was begun: an error if no device took it; others that did not
    /// take it missed it.
    pub(crate) fn end_write(&self, begun: Vec<Option<Begun>>, len: u64) -> Result<()> {
        let end = |(device, begun): (&Arc<Vdev>, Option<Begun>)| {
            let begun = begun.ok_or_else(no_device)?;
            self.note_write(device, begun.wait(), len)
        };
        let results = self.vdev.leaves().iter().zip(begun).map(end).collect();
        self.conclude_write(results)
    }

    /// Writes good bytes over a block of which no device had a good copy.
    fn repair(&self, priority: Priority, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let write = |device: &Arc<Vdev>| {
            if !self.is_usable_at(device, offset) {
                return Err(no_device());
            }
            self.write_device(device, priority, offset, parts)?;
            VdevStats::add(&device.stats().self_healed_bytes, bytes_of(parts));
            Ok(())
        };
        let results: Vec<_> = self.vdev.leaves().iter().map(write).collect();
        // A device that failed this lacked the bytes before, too: it missed no write of a new txg.
        let is_repaired = results.iter().any(Result::is_ok);
        let failed = results.into_iter().find_map(Result::err);
        if is_repaired {
            Ok(())
        } else {
            Err(failed.unwrap_or_else(no_device))
        }
    }

    /// A good copy was found: the bad ones are counted and rewritten.
    fn settle(&self, birth: Txg, offset: u64, good: &[u8], outcomes: &[Outcome]) -> ScrubReport {
        let mut report = ScrubReport::default();
        for (device, outcome) in self.vdev.leaves().iter().zip(outcomes) {
            if matches!(outcome, Outcome::Untried | Outcome::Skipped) {
                continue;
            }
            report.bad += 1;
            self.blame(device, outcome, birth);
            let repair = Io::repair(birth).priority;
            let write = || self.write_device(device, repair, offset, &[good]);
            if self.is_writable && write().is_ok() {
                report.repaired += 1;
                report.repaired_bytes += good.len() as u64;
                VdevStats::add(&device.stats().self_healed_bytes, good.len() as u64);
            }
        }
        report
    }

    fn write_device(
        &self,
        device: &Arc<Vdev>,
        priority: Priority,
        offset: u64,
        parts: &[&[u8]],
    ) -> Result<()> {
        let result = match self.room(device, offset) {
            Some(room) => room.write(&Io::repair(Txg(0)), offset, parts),
            None => {
                let leaf = device.leaf();
                leaf.write(priority, physical(offset), parts)
            }
        };
        self.note_write(device, result, bytes_of(parts))
    }

    /// If some devices took a write, the others missed it, which goes into their DTLs.
    fn conclude_write(&self, results: Vec<Result<()>>) -> Result<()> {
        if results.iter().all(Result::is_err) {
            let failed = results.into_iter().find_map(Result::err);
            return Err(failed.unwrap_or_else(no_device));
        }
        for (device, result) in self.vdev.leaves().iter().zip(&results) {
            if result.is_err() {
                self.note_missed(device);
            }
        }
        Ok(())
    }
}

/// Where an offset is on the device. One that is below 0, wrapped around, is in the boot area.
pub(super) fn physical(offset: u64) -> u64 {
    offset.wrapping_add(LABEL_START_SIZE)
}

fn bytes_of(parts: &[&[u8]]) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
}

/// Sides of a mirror that are compared, at most; further ones are asked when these have failed.
const RANKED_MAX: usize = 16;

impl Node<'_> {
    /// The device to ask next: one that did not miss the block, then the least busy; equal ones take turns.
    #[doc(alias = "vdev_mirror_child_select")]
    fn best_untried(&self, birth: Txg, offset: u64, outcomes: &[Outcome]) -> Option<usize> {
        let devices = self.vdev.leaves();
        let is_candidate = |n: usize| {
            let is_untried = matches!(outcomes.get(n), None | Some(Outcome::Untried));
            is_untried && self.is_usable_at(&devices[n], offset)
        };
        if devices.len() == 1 {
            return is_candidate(0).then_some(0);
        }
        let rank = |n: usize| {
            let device = &devices[n];
            let leaf = device.leaf();
            let load = leaf.load(physical(offset), device.is_rotational());
            (self.missed_at(device, offset, birth), load)
        };
        let (mut best, mut best_rank, mut equal) = (None, (true, u64::MAX), 0);
        let turn = usize::try_from(offset >> TURN_SHIFT).unwrap_or(0);
        let mut ranks = [(true, u64::MAX); RANKED_MAX];
        let ranked = devices.len().min(RANKED_MAX);
        for n in (0..ranked).filter(|n| is_candidate(*n)) {
            ranks[n] = rank(n);
            if best.is_none() || ranks[n] < best_rank {
                (best, best_rank, equal) = (Some(n), ranks[n], 0);
            }
            equal += usize::from(ranks[n] == best_rank);
        }
        if best.is_none() {
            return (ranked..devices.len()).find(|n| is_candidate(*n));
        }
        let mut those = (0..ranked).filter(|n| is_candidate(*n) && ranks[*n] == best_rank);
        those.nth(turn % equal).or(best)
    }

    /// The error of a block of which no device had a good copy; an outcome for each.
    fn no_copy(
        &self,
        birth: Txg,
        offset: u64,
        outcomes: impl IntoIterator<Item = Outcome>,
    ) -> Error {
        let devices = self.vdev.leaves().iter();
        let missed = devices.map(|device| self.missed_at(device, offset, birth));
        no_copy(outcomes.into_iter().zip(missed))
    }

    pub(super) fn read_device(
        &self,
        device: &Arc<Vdev>,
        io: &Io,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        self.read_blocks(device, io, offset, buf, 1)
    }

    /// Reads so many blocks from one device.
    fn read_blocks(
        &self,
        device: &Arc<Vdev>,
        io: &Io,
        offset: u64,
        buf: &mut [u8],
        blocks: usize,
    ) -> Result<()> {
        let Some(room) = self.room(device, offset) else {
            let leaf = device.leaf();
            return leaf.read_merged(io.priority, physical(offset), buf, blocks > 1);
        };
        room.read(io, offset, buf, &|_| true)?;
        count_elsewhere(device, false, buf.len() as u64);
        Ok(())
    }

    /// The devices in the order in which they are read: those that missed none of the blocks come first.
    fn complete_first(&self, offset: u64, blocks: &[RunBlock]) -> Vec<usize> {
        let devices = self.vdev.leaves();
        let missed_any = |at: &usize| {
            let device = &devices[*at];
            blocks
                .iter()
                .any(|block| self.missed_at(device, offset, block.birth))
        };
        let mut order: Vec<usize> = (0..devices.len()).collect();
        order.sort_by_key(missed_any);
        order
    }

    /// How each block of a run is on one device; `Untried` for a good one. If the run cannot be read whole,
    /// its blocks are read one by one. A block that the device missed is not read if another device has it
    /// (`is_good`). If none has, it is read: a DTL names whole txgs, so the device may have the block all
    /// the same.
    fn scrub_device(
        &self,
        device: &Arc<Vdev>,
        offset: u64,
        run: &mut [u8],
        (blocks, is_good): (&[RunBlock], &[bool]),
        verify: &dyn Fn(usize, &[u8]) -> bool,
    ) -> Vec<Outcome> {
        if !self.is_usable_at(device, offset) {
            return blocks.iter().map(|_| Outcome::Skipped).collect();
        }
        let is_needless = |n: usize| is_good[n] && self.missed_at(device, offset, blocks[n].birth);
        let mut whole = if (0..blocks.len()).all(is_needless) {
            None
        } else {
            let io = Io::scrub(blocks[0].birth);
            Some(self.read_blocks(device, &io, offset, run, blocks.len()))
        };
        let mut outcomes = Vec::with_capacity(blocks.len());
        for (n, block) in blocks.iter().enumerate() {
            let range = &block.range;
            if is_needless(n) {
                outcomes.push(Outcome::Mismatch);
                continue;
            }
            let read = match &whole {
                Some(Ok(())) => Ok(()),
                Some(Err(_)) if blocks.len() == 1 => whole.take().expect("it is an error"),
                _ => {
                    let (io, run) = (Io::scrub(block.birth), &mut run[range.clone()]);
                    self.read_device(device, &io, block.offset, run)
                }
            };
            outcomes.push(match read {
                Ok(()) if verify(n, &run[range.clone()]) => Outcome::Untried,
                Ok(()) => Outcome::Mismatch,
                Err(error) => self.failed(device, block.offset, error),
            });
        }
        outcomes
    }
}
