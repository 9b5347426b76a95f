//! Verifying blocks that lead nowhere, in the order in which they lie on the devices.
//!
//! # What it is
//! The walk notes blocks in the order of objects, which on an old pool is no order at all for a
//! drive. So they wait here until some hundred thousand have come together, are sorted by place,
//! and are read like that; neighbours on a vdev without stripes are read with one command.
//! A scrub judges and repairs each block of such a run for itself. Without one, a run in which
//! anything does not verify is read again block by block, with everything that the pipeline can do.
//!
//! # Concurrency
//! Threads take runs from a shared list with an atomic counter.
//!
//! # Source
//! OpenZFS `module/zfs/dsl_scan.c` (the sorted scan's idea: gather, sort, issue).

use std::sync::atomic::{AtomicUsize, Ordering};

use base::{BlockBuf, Error, VdevId, align_up};
use phys::{BlkPtrPhys, DvaPhys};
use zio::{Bookmark, Io, PhysicalReport, RunBlock};

use crate::progress::Meter;
use crate::walk::Tally;
use crate::{Finding, Options, Pool};

/// The most bytes read with one command.
const RUN_BYTES: u64 = 1 << 20;
/// Unused space up to this size between two blocks is read along.
const GAP_BYTES: u64 = 16 << 10;

/// One copy of a block, or a whole block where the pipeline has to see to its copies.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    vdev: VdevId,
    offset: u64,
    /// Which copy it is.
    dva: DvaPhys,
    /// Bytes on the device; 0: to be left to the pipeline
    linear_bytes: u64,
    bp: BlkPtrPhys,
    bookmark: Bookmark,
}

impl Leaf {
    /// Notes a block for verification.
    pub(crate) fn push(
        pool: &Pool,
        options: &Options,
        bp: &BlkPtrPhys,
        bookmark: &Bookmark,
        leaves: &mut Vec<Leaf>,
    ) {
        let vdevs = pool.pipeline.vdevs();
        let wanted = if options.every_copy { 3 } else { 1 };
        let is_linear = |dva: DvaPhys| !dva.is_gang() && vdevs.is_linear(dva.vdev());
        let leaf = |dva: DvaPhys, linear_bytes| Leaf {
            vdev: dva.vdev(),
            offset: dva.offset(),
            dva,
            linear_bytes,
            bp: *bp,
            bookmark: *bookmark,
        };
        if bp.dvas().take(wanted).all(is_linear) {
            let bytes = |dva: DvaPhys| align_up(bp.psize(), 1 << vdevs.ashift(dva.vdev()));
            leaves.extend(bp.dvas().take(wanted).map(|dva| leaf(dva, bytes(dva))));
        } else {
            leaves.extend(bp.dvas().take(1).map(|dva| leaf(dva, 0)));
        }
    }
}

impl Leaf {
    /// Whether this is the copy whose contents stand for all.
    fn is_first_copy(&self) -> bool {
        let first = self.bp.dvas().next();
        first.is_some_and(|dva| (dva.vdev(), dva.offset()) == (self.vdev, self.offset))
    }
}

#[cfg(test)]
impl Leaf {
    pub(crate) fn segment(&self) -> (VdevId, u64, u64) {
        (self.vdev, self.offset, self.linear_bytes)
    }
}

/// Leaves in order of place, cut into runs.
pub(crate) struct Runs {
    leaves: Vec<Leaf>,
    /// Where each run starts; and the end of the last.
    starts: Vec<usize>,
    next: AtomicUsize,
}

impl Runs {
    pub(crate) fn new(mut leaves: Vec<Leaf>) -> Self {
        leaves.sort_unstable_by_key(|leaf| (leaf.vdev, leaf.offset));
        let mut starts = Vec::new();
        let mut first: Option<&Leaf> = None;
        let mut end = 0;
        for (i, leaf) in leaves.iter().enumerate() {
            let joins = first.is_some_and(|first| {
                first.vdev == leaf.vdev
                    && first.linear_bytes > 0
                    && leaf.linear_bytes > 0
                    && leaf.offset >= end
                    && leaf.offset - end <= GAP_BYTES
                    && leaf.offset + leaf.linear_bytes - first.offset <= RUN_BYTES
            });
            if !joins {
                starts.push(i);
                first = Some(leaf);
            }
            end = leaf.offset.saturating_add(leaf.linear_bytes);
        }
        starts.push(leaves.len());
        Runs {
            leaves,
            starts,
            next: AtomicUsize::new(0),
        }
    }

    /// One thread's share.
    pub(crate) fn verify(&self, pool: &Pool, options: &Options, meter: &Meter) -> Tally {
        let mut tally = Tally::default();
        let verifier = Verifier { pool, options };
        while !meter.is_cancelled() {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(&[start, end]) = self.starts.get(at..at + 2).and_then(|s| s.as_array()) else {
                break;
            };
            let run = &self.leaves[start..end];
            verifier.run(run, &mut tally);
            meter.advance_bytes(run.iter().map(|leaf| leaf.bp.psize()).sum());
        }
        tally
    }
}

struct Verifier<'a> {
    pool: &'a Pool,
    options: &'a Options,
}

impl Verifier<'_> {
    fn run(&self, run: &[Leaf], tally: &mut Tally) {
        if run[0].linear_bytes == 0 {
            run.iter().for_each(|leaf| self.alone(leaf, tally));
        } else if self.options.every_copy {
            self.scrub(run, tally);
        } else if !self.is_good(run, tally) {
            run.iter().for_each(|leaf| self.alone(leaf, tally));
        }
    }

    /// Reads all copies of a run at once, and repairs each block that is bad.
    fn scrub(&self, run: &[Leaf], tally: &mut Tally) {
        let blocks = blocks_of(run);
        let mut buf = BlockBuf::scratch(blocks.last().map_or(0, |block| block.range.end));
        let verify = |n: usize, bytes: &[u8]| self.pool.pipeline.verifies(&run[n].bp, bytes);
        let vdevs = self.pool.pipeline.vdevs();
        let (vdev, offset) = (run[0].vdev, run[0].offset);
        let reports = match vdevs.scrub(vdev, offset, &mut buf, &blocks, &verify) {
            Ok(reports) => reports,
            Err(_) => return run.iter().for_each(|leaf| self.alone(leaf, tally)),
        };
        for ((leaf, report), block) in run.iter().zip(reports).zip(&blocks) {
            let Leaf { bp, bookmark, .. } = leaf;
            match report {
                Ok(report) => {
                    damaged(bookmark, report.bad, report.repaired, tally);
                    self.decompress(leaf, &buf[block.range.clone()], tally);
                }
                Err(_) => {
                    let pipeline = &self.pool.pipeline;
                    match pipeline.heal_from_other_dvas(bp, leaf.dva, bookmark) {
                        Ok(is_healed) => damaged(bookmark, 1, u32::from(is_healed), tally),
                        Err(error) => tally.findings.push(unreadable(bookmark, &error)),
                    }
                }
            }
        }
    }

    /// Reads a run at once, of any copy, and says whether all of it is good.
    fn is_good(&self, run: &[Leaf], tally: &mut Tally) -> bool {
        let blocks = blocks_of(run);
        let mut buf = BlockBuf::scratch(blocks.last().map_or(0, |block| block.range.end));
        let verify = |bytes: &[u8]| {
            let is_good = |(leaf, block): (&Leaf, &RunBlock)| {
                let pipeline = &self.pool.pipeline;
                pipeline.verifies(&leaf.bp, &bytes[block.range.clone()])
            };
            run.iter().zip(&blocks).all(is_good)
        };
        let vdevs = self.pool.pipeline.vdevs();
        let (vdev, offset) = (run[0].vdev, run[0].offset);
        // Of a device that lacks another one of them the run does not verify, and the next one is asked.
        let io = Io::speculative(run[0].bp.physical_birth());
        let read = vdevs.read(&io, vdev, offset, &mut buf, &verify);
        let is_good = read.is_ok();
        if is_good {
            for (leaf, block) in run.iter().zip(&blocks) {
                self.decompress(leaf, &buf[block.range.clone()], tally);
            }
        }
        is_good
    }

    /// Decompresses a block whose checksum is right, if that was asked for, once for all its copies.
    fn decompress(&self, leaf: &Leaf, physical: &[u8], tally: &mut Tally) {
        if !self.options.decompress || !leaf.is_first_copy() {
            return;
        }
        let Leaf { bp, bookmark, .. } = leaf;
        let pipeline = &self.pool.pipeline;
        if let Err(error) = pipeline.check_decompresses(bp, physical, bookmark) {
            tally.findings.push(unreadable(bookmark, &error));
        }
    }

    /// Leaves a block to the pipeline.
    fn alone(&self, leaf: &Leaf, tally: &mut Tally) {
        let Leaf { bp, bookmark, .. } = leaf;
        let pipeline = &self.pool.pipeline;
        let read = || {
            let bytes = pipeline.read_raw(bp, bookmark)?;
            if self.options.decompress {
                pipeline.check_decompresses(bp, &bytes, bookmark)?;
            }
            Ok(PhysicalReport::default())
        };
        let result = if !self.options.every_copy {
            read()
        } else if self.options.decompress && leaf.is_first_copy() {
            // Read once more: rare, it is for gangs, stripes and runs with damage.
            let verified = pipeline.verify_physical(bp, bookmark);
            verified.and_then(|report| read().map(|_| report))
        } else {
            pipeline.verify_physical(bp, bookmark)
        };
        match result {
            Ok(PhysicalReport { bad, repaired, .. }) => damaged(bookmark, bad, repaired, tally),
            Err(error) => tally.findings.push(unreadable(bookmark, &error)),
        }
    }
}

/// Where the blocks of a run lie in it.
fn blocks_of(run: &[Leaf]) -> Vec<RunBlock> {
    let block = |leaf: &Leaf| {
        let start = (leaf.offset - run[0].offset) as usize;
        RunBlock {
            range: start..start + leaf.linear_bytes as usize,
            birth: leaf.bp.physical_birth(),
        }
    };
    run.iter().map(block).collect()
}

fn damaged(bookmark: &Bookmark, bad: u32, repaired: u32, tally: &mut Tally) {
    if bad > 0 {
        tally.findings.push(Finding::DamagedCopies {
            bookmark: *bookmark,
            bad,
            repaired,
        });
    }
}

fn unreadable(bookmark: &Bookmark, error: &Error) -> Finding {
    Finding::Unreadable {
        bookmark: *bookmark,
        kind: error.kind(),
        what: error.to_string(),
    }
}
