//! Verifying blocks, sorted by their location on the devices.
//!
//! # What it is
//! The walk finds blocks in object order. They are collected until there are some hundred thousand,
//! and then read as [`zio::Runs`]. If every copy is checked, each block of a run is verified and
//! repaired individually. Otherwise, a run in which a block does not verify is read again block by
//! block, with full error recovery by the pipeline.
//!
//! # Source
//! OpenZFS `module/zfs/dsl_scan.c` (the sorted scan's idea: gather, sort, issue).

use base::{BlockBuf, Error};
use phys::BlkPtrPhys;
use zio::{BlockCopy, Bookmark, Io, PhysicalReport, RunBlock, Runs, blocks_of};

use crate::progress::Meter;
use crate::walk::Tally;
use crate::{Finding, Options, Pool};

/// Adds a block to those to be verified.
pub(crate) fn push(
    pool: &Pool,
    options: &Options,
    bp: &BlkPtrPhys,
    bookmark: &Bookmark,
    leaves: &mut Vec<BlockCopy>,
) {
    let wanted = if options.every_copy { 3 } else { 1 };
    leaves.extend(pool.pipeline.copies_of(bp, bookmark, wanted));
}

/// One thread's share.
pub(crate) fn verify(runs: &Runs, pool: &Pool, options: &Options, meter: &Meter) -> Tally {
    let mut tally = Tally::default();
    let verifier = Verifier { pool, options };
    while !meter.is_cancelled() {
        let Some(run) = runs.take() else { break };
        verifier.run(run, &mut tally);
        meter.advance_bytes(run.iter().map(|leaf| leaf.bp.psize()).sum());
    }
    tally
}

struct Verifier<'a> {
    pool: &'a Pool,
    options: &'a Options,
}

impl Verifier<'_> {
    fn run(&self, run: &[BlockCopy], tally: &mut Tally) {
        if run[0].is_whole_block() {
            run.iter().for_each(|leaf| self.alone(leaf, tally));
        } else if self.options.every_copy {
            self.scrub(run, tally);
        } else if !run[0].is_linear() || !self.is_good(run, tally) {
            run.iter().for_each(|leaf| self.alone(leaf, tally));
        }
    }

    /// Reads all copies of a run at once, and repairs each block that is bad.
    fn scrub(&self, run: &[BlockCopy], tally: &mut Tally) {
        let mut see = |leaf: &BlockCopy, bytes: &[u8]| self.decompress(leaf, bytes, tally);
        let reports = self.pool.pipeline.scrub_run(run, &mut see);
        for (BlockCopy { bp, bookmark, .. }, report) in run.iter().zip(reports) {
            match report {
                Ok(report) => damaged(bookmark, report.bad, report.repaired, tally),
                Err(error) => tally.findings.push(unreadable(bp, bookmark, &error)),
            }
        }
    }

    /// Reads a run at once, from any copy, and returns whether all of it is good.
    fn is_good(&self, run: &[BlockCopy], tally: &mut Tally) -> bool {
        let blocks = blocks_of(run);
        let len = blocks.last().map_or(0, |block| block.range.end);
        let mut buf = BlockBuf::scratch(len);
        let buf = &mut buf[..];
        let verify = |bytes: &[u8]| {
            let is_good = |(leaf, block): (&BlockCopy, &RunBlock)| {
                let pipeline = &self.pool.pipeline;
                pipeline.verifies(&leaf.bp, &bytes[block.range.clone()])
            };
            run.iter().zip(&blocks).all(is_good)
        };
        let vdevs = self.pool.pipeline.vdevs();
        let (vdev, offset, _) = run[0].segment();
        // If a device missed another block of the run, the run does not verify, and the next device
        // is tried.
        let io = Io::speculative(run[0].bp.physical_birth());
        let read = vdevs.read(&io, vdev, offset, buf, &verify);
        let is_good = read.is_ok();
        if is_good {
            for (leaf, block) in run.iter().zip(&blocks) {
                self.decompress(leaf, &buf[block.range.clone()], tally);
            }
        }
        is_good
    }

    /// Decompresses a block whose checksum is right, if that was asked for, once for all its copies.
    fn decompress(&self, leaf: &BlockCopy, physical: &[u8], tally: &mut Tally) {
        if !self.options.decompress || !leaf.is_first() {
            return;
        }
        let BlockCopy { bp, bookmark, .. } = leaf;
        let pipeline = &self.pool.pipeline;
        if let Err(error) = pipeline.check_decompresses(bp, physical, bookmark) {
            tally.findings.push(unreadable(bp, bookmark, &error));
        }
    }

    /// Reads a single block, with full error recovery by the pipeline.
    fn alone(&self, leaf: &BlockCopy, tally: &mut Tally) {
        let BlockCopy { bp, bookmark, .. } = leaf;
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
        } else if self.options.decompress && leaf.is_first() {
            // This reads the block twice; it is rare: only gangs, stripes and runs with damage get
            // here.
            let verified = pipeline.verify_physical(bp, bookmark);
            verified.and_then(|report| read().map(|_| report))
        } else {
            pipeline.verify_physical(bp, bookmark)
        };
        match result {
            Ok(PhysicalReport { bad, repaired, .. }) => damaged(bookmark, bad, repaired, tally),
            Err(error) => tally.findings.push(unreadable(bp, bookmark, &error)),
        }
    }
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

pub(crate) fn unreadable(bp: &BlkPtrPhys, bookmark: &Bookmark, error: &Error) -> Finding {
    Finding::Unreadable {
        bookmark: *bookmark,
        birth: bp.allocation_birth(),
        is_metadata: bp.is_metadata(),
        kind: error.kind(),
        what: error.to_string(),
    }
}
