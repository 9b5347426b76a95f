//! Copies of many blocks in the order of their places, cut into runs that are read with one command.
//!
//! # What it is
//! On an aged pool, reading in object order is random I/O for a drive. So a bulk reader collects blocks,
//! sorts their copies by vdev and offset, and reads neighbours on a linear vdev together. Each block of
//! a run is verified and repaired on its own.
//!
//! # Concurrency
//! Threads take runs from a shared list with an atomic counter.
//!
//! # Source
//! OpenZFS `module/zfs/dsl_scan.c` (the sorted scan's idea: gather, sort, issue).

use std::sync::atomic::{AtomicUsize, Ordering};

use base::{BlockBuf, Result, VdevId, align_up};
use phys::{BlkPtrPhys, DvaPhys};

use crate::{Bookmark, PhysicalReport, Pipeline, RunBlock};

/// The most bytes read with one command.
const RUN_BYTES: u64 = 1 << 20;
/// The largest gap between two blocks, in bytes, that one command reads across.
const GAP_BYTES: u64 = 16 << 10;

/// One copy of a block, or a whole block where the pipeline has to find the copies (gangs, vdevs that
/// are not linear).
#[derive(Clone, Debug)]
pub struct BlockCopy {
    /// The block.
    pub bp: BlkPtrPhys,
    /// Where it belongs.
    pub bookmark: Bookmark,
    /// Which copy it is.
    pub dva: DvaPhys,
    /// Bytes on the device; 0: to be left to the pipeline
    linear_bytes: u64,
}

impl BlockCopy {
    /// Whether all copies of the block are to be read, wherever they are.
    #[must_use]
    pub fn is_whole_block(&self) -> bool {
        self.linear_bytes == 0
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
        (self.dva.vdev(), self.dva.offset(), self.linear_bytes)
    }

    fn end(&self) -> u64 {
        self.dva.offset().saturating_add(self.linear_bytes)
    }

    /// Whether one command can read it together with the run from `first` on, which ends at `end`.
    fn joins(&self, first: &BlockCopy, end: u64) -> bool {
        let offset = self.dva.offset();
        first.dva.vdev() == self.dva.vdev()
            && first.linear_bytes > 0
            && self.linear_bytes > 0
            && offset >= end
            && offset - end <= GAP_BYTES
            && self.end() - first.dva.offset() <= RUN_BYTES
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
    let block = |copy: &BlockCopy| {
        let start = (copy.dva.offset() - run[0].dva.offset()) as usize;
        RunBlock {
            range: start..start + copy.linear_bytes as usize,
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
        let is_linear = |dva: DvaPhys| !dva.is_gang() && self.vdevs.is_linear(dva.vdev());
        let is_simple = bp.dvas().take(wanted).all(is_linear);
        let copy = |dva: DvaPhys| BlockCopy {
            bp: *bp,
            bookmark: *bookmark,
            dva,
            linear_bytes: if is_simple {
                align_up(bp.psize(), 1 << self.vdevs.ashift(dva.vdev()))
            } else {
                0
            },
        };
        let count = if is_simple { wanted } else { 1 };
        let copies: Vec<BlockCopy> = bp.dvas().take(count).map(copy).collect();
        copies.into_iter()
    }

    /// Reads and verifies everything in a run, and repairs what is bad. `see` is called with the bytes
    /// of each good block that was read as part of a run. The results are in the order of the run.
    #[doc(alias = "scan_exec_io")]
    pub fn scrub_run(
        &self,
        run: &[BlockCopy],
        see: &mut dyn FnMut(&BlockCopy, &[u8]),
    ) -> Vec<Result<PhysicalReport>> {
        let alone = |copy: &BlockCopy| self.verify_physical(&copy.bp, &copy.bookmark);
        if run[0].is_whole_block() {
            return run.iter().map(alone).collect();
        }
        let blocks = blocks_of(run);
        let mut buf = BlockBuf::scratch(blocks.last().map_or(0, |block| block.range.end));
        let verify = |n: usize, bytes: &[u8]| self.verifies(&run[n].bp, bytes);
        let (vdev, offset, _) = run[0].segment();
        let Ok(reports) = self.vdevs.scrub(vdev, offset, &mut buf, &blocks, &verify) else {
            return run.iter().map(alone).collect();
        };
        let mut results = Vec::with_capacity(run.len());
        for ((copy, report), block) in run.iter().zip(reports).zip(&blocks) {
            let bytes = block.range.len() as u64;
            results.push(match report {
                Ok(report) => {
                    see(copy, &buf[block.range.clone()]);
                    Ok(PhysicalReport {
                        bytes,
                        bad: report.bad,
                        repaired: report.repaired,
                    })
                }
                Err(_) => self
                    .heal_from_other_dvas(&copy.bp, copy.dva, &copy.bookmark)
                    .map(|is_healed| PhysicalReport {
                        bytes,
                        bad: 1,
                        repaired: u32::from(is_healed),
                    }),
            });
        }
        results
    }
}
