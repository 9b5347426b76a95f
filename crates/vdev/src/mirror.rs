//! Copies: leaves that all hold the same bytes at the same offset.
//!
//! # What it is
//! A mirror, a device that is being replaced, and a hot spare in use are all "any of these leaves
//! will do", also when nested; a single device is the same with one leaf. So all of them are
//! handled as one flat list of leaves.
//!
//! # Invariants
//! 1. A read succeeds if any leaf has bytes that `verify` accepts.
//! 2. A write succeeds if any leaf took it; every other leaf gets the txg into its DTL.
//! 3. The last usable leaf without a gap is never given up: its errors go to the caller.
//!
//! # Concurrency
//! Runs in the caller's thread. Only the best leaf is asked first; the others when it failed.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_mirror.c`.

use std::ops::Range;
use std::sync::Arc;

use base::{BlockBuf, Buf, Error, ErrorKind, Result};
use geom::{Bio, BioOp};
use phys::label::LABEL_START_SIZE;
use zio::ScrubReport;

use crate::stats::VdevStats;
use crate::{Vdev, VdevAux, VdevState};

/// `vdev_mirror_shift`: equally good leaves take turns every 2 MiB.
const TURN_SHIFT: u32 = 21;

/// Leaves with the same bytes.
pub(crate) struct Copies<'a> {
    leaves: &'a [Arc<Vdev>],
    /// Whether bad copies may be rewritten.
    pub(crate) writable: bool,
    /// The txgs that a write of now may belong to.
    pub(crate) txgs: Range<u64>,
}

/// What came of reading one leaf.
enum Outcome {
    Untried,
    /// Not to be read: no device, or given up.
    Skipped,
    Mismatch,
    Failed(Error),
}

impl<'a> Copies<'a> {
    pub(crate) fn new(leaves: &'a [Arc<Vdev>], writable: bool, txgs: Range<u64>) -> Self {
        Copies {
            leaves,
            writable,
            txgs,
        }
    }

    /// Reads until `verify` accepts; `counts` says whether failures are errors of the devices,
    /// and to be repaired.
    pub(crate) fn read(
        &self,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
        counts: bool,
    ) -> Result<()> {
        let mut outcomes: Vec<Outcome> = self.leaves.iter().map(|_| Outcome::Untried).collect();
        while let Some(n) = self.best_untried(&mut outcomes, offset) {
            let leaf = &self.leaves[n];
            match self.read_leaf(leaf, offset, buf) {
                Ok(()) if verify(buf) => {
                    if counts {
                        self.settle(offset, buf, &outcomes);
                    }
                    return Ok(());
                }
                Ok(()) => outcomes[n] = Outcome::Mismatch,
                Err(error) => outcomes[n] = Outcome::Failed(error),
            }
        }
        if counts {
            for (leaf, outcome) in self.leaves.iter().zip(&outcomes) {
                self.blame(leaf, outcome);
            }
        }
        Err(no_copy(outcomes))
    }

    /// Reads every leaf, a whole run of blocks with one command, and rewrites what is bad, block by
    /// block; `buf` ends up with good bytes where there are any.
    pub(crate) fn scrub(
        &self,
        offset: u64,
        buf: &mut [u8],
        blocks: &[Range<usize>],
        verify: &dyn Fn(usize, &[u8]) -> bool,
    ) -> Vec<Result<ScrubReport>> {
        let mut scratch = BlockBuf::scratch(buf.len());
        let mut is_good = vec![false; blocks.len()];
        let mut outcomes: Vec<Vec<Outcome>> = blocks.iter().map(|_| Vec::new()).collect();
        for (at, leaf) in self.leaves.iter().enumerate() {
            let run = if at == 0 { &mut *buf } else { &mut scratch[..] };
            let found = self.scrub_leaf(leaf, offset, run, blocks, verify);
            for (n, outcome) in found.into_iter().enumerate() {
                if matches!(outcome, Outcome::Untried) && !is_good[n] {
                    is_good[n] = true;
                    if at > 0 {
                        buf[blocks[n].clone()].copy_from_slice(&scratch[blocks[n].clone()]);
                    }
                }
                outcomes[n].push(outcome);
            }
        }
        let conclude = |(n, outcomes): (usize, Vec<Outcome>)| {
            if is_good[n] {
                let at = offset + blocks[n].start as u64;
                return Ok(self.settle(at, &buf[blocks[n].clone()], &outcomes));
            }
            for (leaf, outcome) in self.leaves.iter().zip(&outcomes) {
                self.blame(leaf, outcome);
            }
            Err(no_copy(outcomes))
        };
        outcomes.into_iter().enumerate().map(conclude).collect()
    }

    /// What one leaf has of each block of a run; `Untried` for a good one. If the run cannot be
    /// read whole, its blocks are read one by one.
    fn scrub_leaf(
        &self,
        vdev: &Vdev,
        offset: u64,
        run: &mut [u8],
        blocks: &[Range<usize>],
        verify: &dyn Fn(usize, &[u8]) -> bool,
    ) -> Vec<Outcome> {
        if !vdev.leaf().is_usable() {
            return blocks.iter().map(|_| Outcome::Skipped).collect();
        }
        let mut whole = Some(self.read_leaf(vdev, offset, run));
        let mut outcomes = Vec::with_capacity(blocks.len());
        for (n, block) in blocks.iter().enumerate() {
            let read = match &whole {
                Some(Ok(())) => Ok(()),
                Some(Err(_)) if blocks.len() == 1 => whole.take().expect("it is an error"),
                _ => {
                    let at = offset + block.start as u64;
                    self.read_leaf(vdev, at, &mut run[block.clone()])
                }
            };
            outcomes.push(match read {
                Ok(()) if verify(n, &run[block.clone()]) => Outcome::Untried,
                Ok(()) => Outcome::Mismatch,
                Err(error) => Outcome::Failed(error),
            });
        }
        outcomes
    }

    /// Writes good bytes over a block of which no leaf had a good copy.
    pub(crate) fn repair(&self, offset: u64, good: &[u8]) -> Result<()> {
        let write = |vdev: &Arc<Vdev>| {
            if !vdev.leaf().is_usable() {
                return Err(no_device());
            }
            self.write_leaf(vdev, offset, &[good])?;
            VdevStats::add(&vdev.stats().self_healed_bytes, good.len() as u64);
            Ok(())
        };
        let results: Vec<_> = self.leaves.iter().map(write).collect();
        // What a leaf did not take it lacked before, too: no write of a new txg was missed.
        let is_repaired = results.iter().any(Result::is_ok);
        let failed = results.into_iter().find_map(Result::err);
        if is_repaired {
            Ok(())
        } else {
            Err(failed.unwrap_or_else(no_device))
        }
    }

    /// The leaf to ask next: one that missed nothing, then the least busy.
    #[doc(alias = "vdev_mirror_child_select")]
    fn best_untried(&self, outcomes: &mut [Outcome], offset: u64) -> Option<usize> {
        let mut best: Vec<usize> = Vec::new();
        let mut best_rank = (true, u64::MAX);
        for (n, vdev) in self.leaves.iter().enumerate() {
            if !matches!(outcomes[n], Outcome::Untried) {
                continue;
            }
            let leaf = vdev.leaf();
            if !leaf.is_usable() {
                outcomes[n] = Outcome::Skipped;
                continue;
            }
            let rotational = self.leaves.len() > 1 && vdev.config().is_rotational;
            let rank = (
                leaf.has_dtl(),
                leaf.load(offset + LABEL_START_SIZE, rotational),
            );
            if best.is_empty() || rank < best_rank {
                best.clear();
                best_rank = rank;
            }
            if rank == best_rank {
                best.push(n);
            }
        }
        let turn = usize::try_from(offset >> TURN_SHIFT).unwrap_or(0);
        (!best.is_empty()).then(|| best[turn % best.len()])
    }

    fn read_leaf(&self, vdev: &Vdev, offset: u64, buf: &mut [u8]) -> Result<()> {
        vdev.leaf().read(offset + LABEL_START_SIZE, buf)?;
        let stats = vdev.stats();
        VdevStats::add(&stats.read_ops, 1);
        VdevStats::add(&stats.read_bytes, buf.len() as u64);
        Ok(())
    }

    /// A good copy was found: the bad ones are counted and rewritten.
    fn settle(&self, offset: u64, good: &[u8], outcomes: &[Outcome]) -> ScrubReport {
        let mut report = ScrubReport::default();
        for (vdev, outcome) in self.leaves.iter().zip(outcomes) {
            if matches!(outcome, Outcome::Untried | Outcome::Skipped) {
                continue;
            }
            report.bad += 1;
            self.blame(vdev, outcome);
            if self.writable && self.write_leaf(vdev, offset, &[good]).is_ok() {
                report.repaired += 1;
                VdevStats::add(&vdev.stats().self_healed_bytes, good.len() as u64);
            }
        }
        report
    }

    /// Counts what went wrong against a leaf, and gives it up if that is too much.
    fn blame(&self, vdev: &Arc<Vdev>, outcome: &Outcome) {
        match outcome {
            Outcome::Untried | Outcome::Skipped => {}
            // It was away when this was written: no fault of its own.
            Outcome::Mismatch if vdev.leaf().has_dtl() => {}
            Outcome::Mismatch => {
                VdevStats::add(&vdev.stats().checksum_errors, 1);
                if vdev.leaf().note_checksum_error() && self.can_do_without(vdev) {
                    vdev.leaf()
                        .set_state(VdevState::Degraded, VdevAux::ErrExceeded);
                }
            }
            Outcome::Failed(_) => {
                VdevStats::add(&vdev.stats().read_errors, 1);
                self.judge(vdev, false);
            }
        }
    }

    /// After an I/O error: a leaf that does not answer any more, or fails too often, is given up.
    fn judge(&self, vdev: &Arc<Vdev>, writes: bool) {
        let too_many = vdev.leaf().note_io_error();
        let writes = writes && self.writable;
        if (too_many || !vdev.leaf().is_alive(writes)) && self.can_do_without(vdev) {
            vdev.leaf()
                .set_state(VdevState::Faulted, VdevAux::ErrExceeded);
        }
    }

    /// Whether another usable leaf has everything.
    #[doc(alias = "vdev_dtl_required")]
    fn can_do_without(&self, vdev: &Arc<Vdev>) -> bool {
        self.leaves.iter().any(|other| {
            !Arc::ptr_eq(other, vdev) && other.leaf().is_usable() && !other.leaf().has_dtl()
        })
    }

    fn write_leaf(&self, vdev: &Arc<Vdev>, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        let result = vdev.leaf().write(offset + LABEL_START_SIZE, pieces);
        self.note_write(
            vdev,
            result,
            pieces.iter().map(|piece| piece.len() as u64).sum(),
        )
    }

    fn note_write(&self, vdev: &Arc<Vdev>, result: Result<()>, len: u64) -> Result<()> {
        let stats = vdev.stats();
        match &result {
            Ok(()) => {
                VdevStats::add(&stats.write_ops, 1);
                VdevStats::add(&stats.write_bytes, len);
            }
            Err(_) => {
                VdevStats::add(&stats.write_errors, 1);
                self.judge(vdev, true);
            }
        }
        result
    }

    /// Writes pieces one after another to every leaf.
    pub(crate) fn write(&self, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        let queued = self.queue_writes(offset, pieces);
        let mut results: Vec<Result<()>> = Vec::with_capacity(self.leaves.len());
        for (vdev, queued) in self.leaves.iter().zip(&queued) {
            results.push(if queued.is_some() || !vdev.leaf().is_usable() {
                Err(no_device())
            } else {
                self.write_leaf(vdev, offset, pieces)
            });
        }
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        for (n, answer) in queued.into_iter().enumerate() {
            if let Some(answer) = answer {
                results[n] = self.note_write(&self.leaves[n], answer.wait(), len);
            }
        }
        self.conclude(results)
    }

    /// Something that had to happen on every leaf did so on some: the others missed it.
    pub(crate) fn conclude(&self, results: Vec<Result<()>>) -> Result<()> {
        if results.iter().all(Result::is_err) {
            let failed = results.into_iter().find_map(Result::err);
            return Err(failed.unwrap_or_else(no_device));
        }
        for (vdev, result) in self.leaves.iter().zip(&results) {
            if result.is_err() {
                vdev.leaf().dirty_dtl(self.txgs.clone());
            }
        }
        Ok(())
    }

    /// Counts the results of flushing every leaf, `None` where there was nothing to flush because
    /// there is no device.
    pub(crate) fn conclude_flush(
        &self,
        results: impl Iterator<Item = Option<Result<()>>>,
    ) -> Result<()> {
        let (mut flushed, mut failed) = (false, Vec::new());
        for (vdev, result) in self.leaves.iter().zip(results) {
            match result {
                None => {}
                Some(Ok(())) => flushed = true,
                Some(Err(error)) => failed.push((vdev, error)),
            }
        }
        for (vdev, _) in &failed {
            VdevStats::add(&vdev.stats().write_errors, 1);
            if flushed {
                vdev.leaf().dirty_dtl(self.txgs.clone());
                self.judge(vdev, true);
            }
        }
        match failed.pop() {
            Some((_, error)) if !flushed => Err(error),
            _ => Ok(()),
        }
    }

    /// Starts the writes to the leaves whose providers work on their own, so that they overlap.
    fn queue_writes(&self, offset: u64, pieces: &[&[u8]]) -> Vec<Option<Arc<Answer>>> {
        let mut bytes: Option<Buf> = None;
        let is_queued = |vdev: &Vdev| {
            let leaf = vdev.leaf();
            leaf.provider()
                .filter(|p| self.leaves.len() > 1 && p.is_queued() && leaf.is_usable())
        };
        let start = |vdev: &Arc<Vdev>| {
            let provider = is_queued(vdev)?;
            let bytes = bytes
                .get_or_insert_with(|| Buf::copy_of(&pieces.concat()))
                .clone();
            let answer = Arc::new(Answer::default());
            let (theirs, their_vdev) = (Arc::clone(&answer), Arc::clone(vdev));
            let done = Box::new(move |result: Result<_>| {
                their_vdev.leaf().end_queued_write();
                theirs.give(result.map(drop));
            });
            let at = offset + LABEL_START_SIZE;
            rt::charge(rt::Work::Command, 1);
            vdev.leaf().begin_queued_write(at, bytes.len());
            provider.submit(Bio {
                op: BioOp::Write(bytes),
                offset: at,
                done,
            });
            Some(answer)
        };
        self.leaves.iter().map(start).collect()
    }
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

/// The error of a read that no leaf could serve.
fn no_copy(outcomes: Vec<Outcome>) -> Error {
    let mut failed = None;
    for outcome in outcomes {
        match outcome {
            Outcome::Mismatch => {
                return Error::new(ErrorKind::Checksum, "no copy has the right checksum");
            }
            Outcome::Failed(error) => failed = Some(error),
            Outcome::Untried | Outcome::Skipped => {}
        }
    }
    failed.unwrap_or_else(no_device)
}

fn no_device() -> Error {
    Error::new(ErrorKind::Io, "no device left")
}
