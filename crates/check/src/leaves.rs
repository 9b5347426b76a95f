//! Verifying blocks that lead nowhere, in the order in which they lie on the devices.
//!
//! # What it is
//! The walk notes blocks in the order of objects, which on an old pool is no order at all for a
//! drive. So they wait here until some hundred thousand have come together, are sorted by place,
//! and are read like that; neighbours on a vdev without stripes are read with one command.
//! Whatever does not verify within such a run is read again on its own, with everything that the
//! pipeline can do for it.
//!
//! # Concurrency
//! Threads take runs from a shared list with an atomic counter.
//!
//! # Source
//! OpenZFS `module/zfs/dsl_scan.c` (the sorted scan's idea: gather, sort, issue).

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::{BlockBuf, Error, VdevId, align_up};
use phys::{BlkPtrPhys, DvaPhys};
use zio::{Bookmark, PhysicalReport, VdevOps};

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
        let is_linear = run[0].linear_bytes > 0;
        if is_linear && self.linear(run, tally) {
            return;
        }
        for leaf in run {
            self.alone(leaf, tally);
        }
    }

    /// Reads a run at once. False if not all of it is good.
    fn linear(&self, run: &[Leaf], tally: &mut Tally) -> bool {
        let (first, last) = (&run[0], &run[run.len() - 1]);
        let len = last.offset + last.linear_bytes - first.offset;
        let mut buf = BlockBuf::scratch(len as usize);
        // Of the copy that had most, when a mirror reads more than one.
        let bad_blocks = Cell::new(0);
        let bad_copies = Cell::new(0);
        let verify = |bytes: &[u8]| {
            let is_bad = |leaf: &&Leaf| {
                let at = (leaf.offset - first.offset) as usize;
                !self.pool.pipeline.verifies(&leaf.bp, &bytes[at..])
            };
            let bad = run.iter().filter(is_bad).count() as u32;
            bad_blocks.set(bad_blocks.get() + bad);
            bad_copies.set(bad_copies.get() + u32::from(bad > 0));
            bad == 0
        };
        let vdevs = self.pool.pipeline.vdevs();
        let done = if self.options.every_copy {
            vdevs.scrub(first.vdev, first.offset, &mut buf, &verify)
        } else {
            self.read_once(&**vdevs, first, &mut buf, &verify)
        };
        let Ok(report) = done else {
            return false;
        };
        if report.bad > 0 {
            let bad = bad_blocks.get().max(report.bad);
            let repaired = if report.repaired == report.bad {
                bad
            } else {
                report.repaired
            };
            tally.findings.push(Finding::DamagedCopies {
                bookmark: first.bookmark,
                bad,
                repaired,
            });
        }
        if self.options.decompress {
            for leaf in run.iter().filter(|leaf| leaf.is_first_copy()) {
                let at = (leaf.offset - first.offset) as usize;
                let (pipeline, bookmark) = (&self.pool.pipeline, &leaf.bookmark);
                if let Err(error) = pipeline.check_decompresses(&leaf.bp, &buf[at..], bookmark) {
                    tally.findings.push(unreadable(bookmark, &error));
                }
            }
        }
        true
    }

    fn read_once(
        &self,
        vdevs: &dyn VdevOps,
        first: &Leaf,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> base::Result<zio::ScrubReport> {
        vdevs.probe(first.vdev, first.offset, buf, verify)?;
        Ok(zio::ScrubReport::default())
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
            Ok(PhysicalReport { bad: 0, .. }) => {}
            Ok(PhysicalReport { bad, repaired, .. }) => {
                tally.findings.push(Finding::DamagedCopies {
                    bookmark: *bookmark,
                    bad,
                    repaired,
                });
            }
            Err(error) => tally.findings.push(unreadable(bookmark, &error)),
        }
    }
}

fn unreadable(bookmark: &Bookmark, error: &Error) -> Finding {
    Finding::Unreadable {
        bookmark: *bookmark,
        kind: error.kind(),
        what: error.to_string(),
    }
}
