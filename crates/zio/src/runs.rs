//! Copies of many blocks in the order of their places, cut into runs that are read with one command.
//!
//! # What it is
//! On an aged pool, reading in object order is random I/O for a drive. So a bulk reader collects blocks,
//! sorts their copies by vdev and offset, and reads neighbours together: on a linear vdev with one command, on one
//! that is striped with one for each device. Each block of a run is verified and repaired on its own.
//!
//! # Concurrency
//! Threads take runs from a shared list with an atomic counter.
//!
//! # Source
//! OpenZFS `module/zfs/dsl_scan.c` (the sorted scan's idea: gather, sort, issue).

use std::sync::atomic::{AtomicUsize, Ordering};

use base::{SPA_DVAS_PER_BP, VdevId, align_up};
use phys::{BlkPtrPhys, DvaPhys};

use crate::{Bookmark, Pipeline, Placement, RunBlock};

/// The most bytes of a run on a linear vdev, which are read with one command.
const RUN_BYTES: u64 = 1 << 20;
/// And on one that is striped, parity included.
const STRIPED_RUN_BYTES: u64 = 2 << 20;
/// The largest gap between two blocks, in bytes, that one command reads across.
const GAP_BYTES: u64 = 16 << 10;

/// One copy of a block, or a whole block where the pipeline has to find the copies (gangs, removed vdevs).
#[derive(Clone, Debug)]
pub struct BlockCopy {
    /// The block.
    pub bp: BlkPtrPhys,
    /// Where it belongs.
    pub bookmark: Bookmark,
    /// Which copy it is.
    pub dva: DvaPhys,
    /// How it lies there; `Elsewhere`: it is left to the pipeline
    placement: Placement,
    /// Its bytes in whole sectors, without parity
    bytes: u64,
}

impl BlockCopy {
    /// Whether all copies of the block are to be read, wherever they are.
    #[must_use]
    pub fn is_whole_block(&self) -> bool {
        self.placement == Placement::Elsewhere
    }

    /// Whether a run of it is one piece of the vdev.
    #[must_use]
    pub fn is_linear(&self) -> bool {
        self.placement == Placement::Linear
    }

    /// Whether it is the block's first copy, the one to take the contents from.
    #[must_use]
    pub fn is_first(&self) -> bool {
        let first = self.bp.dvas().next();
        let place = |dva: DvaPhys| (dva.vdev(), dva.offset());
        first.map(place) == Some(place(self.dva))
    }

    /// Where it is: vdev, offset and length (0 for a whole block).
    #[must_use]
    pub fn segment(&self) -> (VdevId, u64, u64) {
        (self.dva.vdev(), self.dva.offset(), self.bytes)
    }

    fn end(&self) -> u64 {
        let bytes = match self.placement {
            Placement::Striped => self.dva.asize().max(self.bytes),
            Placement::Linear | Placement::Elsewhere => self.bytes,
        };
        self.dva.offset().saturating_add(bytes)
    }

    /// Whether it can be read together with the run from `first` on, which ends at `end`.
    fn joins(&self, first: &BlockCopy, end: u64) -> bool {
        let most = match self.placement {
            Placement::Linear => RUN_BYTES,
            Placement::Striped => STRIPED_RUN_BYTES,
            Placement::Elsewhere => return false,
        };
        let offset = self.dva.offset();
        first.dva.vdev() == self.dva.vdev()
            && first.placement == self.placement
            && offset >= end
            && offset - end <= GAP_BYTES
            && self.end() - first.dva.offset() <= most
    }
}

/// Copies in order of place, cut into runs.
#[derive(Debug)]
pub struct Runs {
    copies: Vec<BlockCopy>,
    /// Where each run starts; and the end of the last.
    starts: Vec<usize>,
    next: AtomicUsize,
}

impl Runs {
    /// Sorts and cuts.
    #[must_use]
    pub fn new(mut copies: Vec<BlockCopy>) -> Self {
        copies.sort_unstable_by_key(|copy| (copy.dva.vdev(), copy.dva.offset()));
        let mut starts = Vec::new();
        let mut first: Option<&BlockCopy> = None;
        let mut end = 0;
        for (i, copy) in copies.iter().enumerate() {
            if !first.is_some_and(|first| copy.joins(first, end)) {
                starts.push(i);
                first = Some(copy);
            }
            end = copy.end();
        }
        starts.push(copies.len());
        Runs {
            copies,
            starts,
            next: AtomicUsize::new(0),
        }
    }

    /// How many runs there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// The next run that no thread has taken.
    pub fn take(&self) -> Option<&[BlockCopy]> {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        let &[start, end] = self.starts.get(at..at + 2)?.as_array()?;
        Some(&self.copies[start..end])
    }
}

/// Where the blocks of a run lie in it.
#[must_use]
pub fn blocks_of(run: &[BlockCopy]) -> Vec<RunBlock> {
    let mut end = 0;
    let block = |copy: &BlockCopy| {
        let start = match copy.is_linear() {
            true => (copy.dva.offset() - run[0].dva.offset()) as usize,
            false => end,
        };
        end = start + copy.bytes as usize;
        RunBlock {
            offset: copy.dva.offset(),
            range: start..end,
            birth: copy.bp.physical_birth(),
        }
    };
    run.iter().map(block).collect()
}

impl Pipeline {
    /// The copies of a block that are to be read, at most `wanted`.
    pub fn copies_of(
        &self,
        bp: &BlkPtrPhys,
        bookmark: &Bookmark,
        wanted: usize,
    ) -> impl Iterator<Item = BlockCopy> + use<> {
        let placement = |dva: DvaPhys| match dva.is_gang() {
            true => Placement::Elsewhere,
            false => self.vdevs.placement(dva.vdev()),
        };
        let mut placements = bp.dvas().take(wanted).map(placement);
        let is_simple = placements.all(|placement| placement != Placement::Elsewhere);
        let copy = |dva: DvaPhys| match is_simple {
            true => BlockCopy {
                bp: *bp,
                bookmark: *bookmark,
                dva,
                placement: placement(dva),
                bytes: align_up(bp.psize(), 1 << self.vdevs.ashift(dva.vdev())),
            },
            false => BlockCopy {
                bp: *bp,
                bookmark: *bookmark,
                dva,
                placement: Placement::Elsewhere,
                bytes: 0,
            },
        };
        let count = if is_simple { wanted } else { 1 };
        let mut copies = [const { None }; SPA_DVAS_PER_BP];
        for (place, dva) in copies.iter_mut().zip(bp.dvas().take(count)) {
            *place = Some(copy(dva));
        }
        copies.into_iter().flatten()
    }
}
