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
//! Runs in the caller's thread. Only the best device is asked first; the others when it failed.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_mirror.c`.

use std::sync::Arc;

use base::{BlockBuf, Buf, Result, Txg};
use geom::{Bio, BioOp};
use phys::label::LABEL_START_SIZE;
use zio::{Io, Purpose, RunBlock, ScrubReport};

use super::health::{Outcome, no_copy, no_device};
use super::{KindOps, Node};
use crate::Vdev;
use crate::stats::VdevStats;

/// `vdev_mirror_shift`: equally good devices take turns every 2 MiB.
const TURN_SHIFT: u32 = 21;

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
        while let Some(n) = best_untried(devices, io.birth, offset, &outcomes) {
            let outcome = match read_device(&devices[n], offset, buf) {
                Ok(()) if verify(buf) => {
                    if counts && !outcomes.is_empty() {
                        node.settle(io.birth, offset, buf, &outcomes);
                    }
                    return Ok(());
                }
                Ok(()) => Outcome::Mismatch,
                Err(error) => Outcome::Failed(error),
            };
            outcomes.resize_with(devices.len(), || Outcome::Untried);
            outcomes[n] = outcome;
        }
        if counts {
            for (device, outcome) in devices.iter().zip(&outcomes) {
                node.blame(device, outcome, io.birth);
            }
        }
        Err(no_copy(outcomes))
    }

    fn write(&self, node: &Node<'_>, io: &Io, offset: u64, parts: &[&[u8]]) -> Result<()> {
        if io.purpose == Purpose::Repair {
            return node.repair(offset, parts);
        }
        let devices = node.vdev.leaves();
        let queued = queue_writes(devices, offset, parts);
        let mut results: Vec<Result<()>> = Vec::with_capacity(devices.len());
        for (device, queued) in devices.iter().zip(&queued) {
            results.push(if queued.is_some() || !device.leaf().is_usable() {
                Err(no_device())
            } else {
                node.write_device(device, offset, parts)
            });
        }
        for (n, answer) in queued.into_iter().enumerate() {
            if let Some(answer) = answer {
                results[n] = node.note_write(&devices[n], answer.wait(), bytes_of(parts));
            }
        }
        node.conclude_write(results)
    }

    fn scrub(
        &self,
        node: &Node<'_>,
        offset: u64,
        buf: &mut [u8],
        blocks: &[RunBlock],
        verify: &dyn Fn(usize, &[u8]) -> bool,
    ) -> Vec<Result<ScrubReport>> {
        let devices = node.vdev.leaves();
        let mut scratch = BlockBuf::scratch(buf.len());
        let mut is_good = vec![false; blocks.len()];
        let untried = || devices.iter().map(|_| Outcome::Untried).collect();
        let mut outcomes: Vec<Vec<Outcome>> = blocks.iter().map(|_| untried()).collect();
        for (turn, at) in complete_first(devices, blocks).into_iter().enumerate() {
            let run = if turn == 0 {
                &mut *buf
            } else {
                &mut scratch[..]
            };
            let found = scrub_device(&devices[at], offset, run, (blocks, &is_good), verify);
            for (n, outcome) in found.into_iter().enumerate() {
                if matches!(outcome, Outcome::Untried) && !is_good[n] {
                    is_good[n] = true;
                    if turn > 0 {
                        let range = &blocks[n].range;
                        buf[range.clone()].copy_from_slice(&scratch[range.clone()]);
                    }
                }
                outcomes[n][at] = outcome;
            }
        }
        let conclude = |(n, outcomes): (usize, Vec<Outcome>)| {
            let RunBlock { range, birth } = &blocks[n];
            if is_good[n] {
                let at = offset + range.start as u64;
                return Ok(node.settle(*birth, at, &buf[range.clone()], &outcomes));
            }
            for (device, outcome) in devices.iter().zip(&outcomes) {
                node.blame(device, outcome, *birth);
            }
            Err(no_copy(outcomes))
        };
        outcomes.into_iter().enumerate().map(conclude).collect()
    }

    fn is_linear(&self) -> bool {
        true
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
    /// Writes good bytes over a block of which no device had a good copy.
    fn repair(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let write = |device: &Arc<Vdev>| {
            if !device.leaf().is_usable() {
                return Err(no_device());
            }
            self.write_device(device, offset, parts)?;
            VdevStats::add(&device.stats().self_healed_bytes, bytes_of(parts));
            Ok(())
        };
        let results: Vec<_> = self.vdev.leaves().iter().map(write).collect();
        // What a device did not take it lacked before, too: no write of a new txg was missed.
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
            if self.is_writable && self.write_device(device, offset, &[good]).is_ok() {
                report.repaired += 1;
                VdevStats::add(&device.stats().self_healed_bytes, good.len() as u64);
            }
        }
        report
    }

    fn write_device(&self, device: &Arc<Vdev>, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let result = device.leaf().write(offset + LABEL_START_SIZE, parts);
        self.note_write(device, result, bytes_of(parts))
    }

    /// Some devices took a write: the others missed it.
    fn conclude_write(&self, results: Vec<Result<()>>) -> Result<()> {
        if results.iter().all(Result::is_err) {
            let failed = results.into_iter().find_map(Result::err);
            return Err(failed.unwrap_or_else(no_device));
        }
        for (device, result) in self.vdev.leaves().iter().zip(&results) {
            if result.is_err() {
                device.leaf().dirty_dtl(self.txgs.clone());
            }
        }
        Ok(())
    }
}

fn bytes_of(parts: &[&[u8]]) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
}

/// The device to ask next: one that did not miss the block, then the least busy; equal ones take turns.
#[doc(alias = "vdev_mirror_child_select")]
fn best_untried(
    devices: &[Arc<Vdev>],
    birth: Txg,
    offset: u64,
    outcomes: &[Outcome],
) -> Option<usize> {
    let is_candidate = |n: usize| {
        let is_untried = matches!(outcomes.get(n), None | Some(Outcome::Untried));
        is_untried && devices[n].leaf().is_usable()
    };
    if devices.len() == 1 {
        return is_candidate(0).then_some(0);
    }
    let rank = |n: usize| {
        let device = &devices[n];
        let leaf = device.leaf();
        let load = leaf.load(offset + LABEL_START_SIZE, device.is_rotational());
        (leaf.missed(birth), load)
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

/// So many sides of a mirror are compared; further ones are asked when these have failed.
const RANKED_MAX: usize = 16;

fn read_device(device: &Vdev, offset: u64, buf: &mut [u8]) -> Result<()> {
    device.leaf().read(offset + LABEL_START_SIZE, buf)?;
    let stats = device.stats();
    VdevStats::add(&stats.read_ops, 1);
    VdevStats::add(&stats.read_bytes, buf.len() as u64);
    Ok(())
}

/// The devices in the order in which they are read: those that missed none of the blocks come first.
fn complete_first(devices: &[Arc<Vdev>], blocks: &[RunBlock]) -> Vec<usize> {
    let missed_any = |at: &usize| {
        let leaf = devices[*at].leaf();
        blocks.iter().any(|block| leaf.missed(block.birth))
    };
    let mut order: Vec<usize> = (0..devices.len()).collect();
    order.sort_by_key(missed_any);
    order
}

/// What one device has of each block of a run; `Untried` for a good one. If the run cannot be
/// read whole, its blocks are read one by one. What the device missed is not read if another one has it
/// (`is_good`): a DTL names whole txgs, of which the device may have all the same what no other has.
fn scrub_device(
    device: &Vdev,
    offset: u64,
    run: &mut [u8],
    (blocks, is_good): (&[RunBlock], &[bool]),
    verify: &dyn Fn(usize, &[u8]) -> bool,
) -> Vec<Outcome> {
    if !device.leaf().is_usable() {
        return blocks.iter().map(|_| Outcome::Skipped).collect();
    }
    let is_needless = |n: usize| is_good[n] && device.leaf().missed(blocks[n].birth);
    let mut whole = if (0..blocks.len()).all(is_needless) {
        None
    } else {
        Some(read_device(device, offset, run))
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
                let at = offset + range.start as u64;
                read_device(device, at, &mut run[range.clone()])
            }
        };
        outcomes.push(match read {
            Ok(()) if verify(n, &run[range.clone()]) => Outcome::Untried,
            Ok(()) => Outcome::Mismatch,
            Err(error) => Outcome::Failed(error),
        });
    }
    outcomes
}

/// Starts the writes to the devices whose providers work on their own, so that they overlap.
fn queue_writes(devices: &[Arc<Vdev>], offset: u64, parts: &[&[u8]]) -> Vec<Option<Arc<Answer>>> {
    let mut bytes: Option<Buf> = None;
    let is_queued = |device: &Vdev| {
        let leaf = device.leaf();
        leaf.provider()
            .filter(|p| devices.len() > 1 && p.is_queued() && leaf.is_usable())
    };
    let start = |device: &Arc<Vdev>| {
        let provider = is_queued(device)?;
        let bytes = bytes
            .get_or_insert_with(|| Buf::copy_of(&parts.concat()))
            .clone();
        let answer = Arc::new(Answer::default());
        let (theirs, their_device) = (Arc::clone(&answer), Arc::clone(device));
        let done = Box::new(move |result: Result<_>| {
            their_device.leaf().end_queued_write();
            theirs.give(result.map(drop));
        });
        let at = offset + LABEL_START_SIZE;
        rt::charge(rt::Work::Command, 1);
        device.leaf().begin_queued_write(at, bytes.len());
        provider.submit(Bio {
            op: BioOp::Write(bytes),
            offset: at,
            done,
        });
        Some(answer)
    };
    devices.iter().map(start).collect()
}

/// Where the result of a queued command arrives.
#[derive(Default)]
struct Answer {
    result: rt::Mutex<Option<Result<()>>>,
    arrived: rt::Condvar,
}

impl Answer {
    fn give(&self, result: Result<()>) {
        *self.result.lock() = Some(result);
        self.arrived.notify_one();
    }

    fn wait(&self) -> Result<()> {
        let mut result = self.result.lock();
        loop {
            if let Some(result) = result.take() {
                return result;
            }
            self.arrived.wait(&mut result);
        }
    }
}
