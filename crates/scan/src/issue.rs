//! Reading the blocks that the walk found, in device order, and counting the results.
//!
//! # Concurrency
//! A few threads each take the next run of blocks; the walk waits for them. There are more threads
//! than processors, to keep the devices busy.

use std::sync::Arc;

use base::{BlkId, Error, ErrorKind, ObjectId, ObjsetId, SPA_DVAS_PER_BP, Txg};
use phys::{BlkPtrPhys, ScanPhys};
use zio::{BlockCopy, Bookmark, PhysicalReport, Pipeline, Runs};

use crate::slice::Pool;

/// Copies collected before they are read, at most.
const FOUND_MAX: usize = 32 << 10;
/// Bytes collected before they are read, at most; everything collected is read before the txg ends.
const FOUND_BYTES_MAX: u64 = 64 << 20;
/// Nanoseconds that reading the collected blocks may take, at most: callers waiting for the txg
/// wait for that, too.
const READING_MAX_NS: u64 = 200_000_000;
/// Threads that read them.
const THREADS: usize = 8;
/// Damaged blocks recorded in one txg, at most.
const LOST_MAX: usize = 10_000;

/// Where a block that was found in the dedup tables belongs, as OpenZFS says it: to no file.
pub(crate) const SHARED: Bookmark = Bookmark {
    objset: ObjsetId(0),
    object: ObjectId(0),
    level: 0,
    blkid: BlkId(0),
};

/// The result of the reads.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Bytes of the blocks that were visited, with all copies and parity.
    pub examined_bytes: u64,
    /// The part of them that did not need to be read.
    pub skipped_bytes: u64,
    /// Bytes rewritten.
    pub repaired_bytes: u64,
    /// Bad copies that could not be rewritten.
    pub unrepaired: u64,
    /// Blocks without a good copy.
    pub errors: u64,
    /// Which blocks these are, with their birth txgs; at most `LOST_MAX`.
    pub lost: Vec<(Bookmark, Txg)>,
    /// The checksums of those that were found in the dedup tables.
    pub lost_shared: Vec<[u64; 4]>,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.examined_bytes += other.examined_bytes;
        self.skipped_bytes += other.skipped_bytes;
        self.repaired_bytes += other.repaired_bytes;
        self.unrepaired += other.unrepaired;
        self.errors += other.errors;
        let room = LOST_MAX.saturating_sub(self.lost.len());
        self.lost.extend(other.lost.into_iter().take(room));
        self.lost_shared.extend(other.lost_shared);
    }

    /// Adds the results of this txg to the on-disk state.
    pub(crate) fn add_to(&mut self, phys: &mut ScanPhys) {
        let more = |field: u64, n: u64| field.saturating_add(n);
        phys.examined
            .set(more(phys.examined.get(), self.examined_bytes));
        phys.skipped
            .set(more(phys.skipped.get(), self.skipped_bytes));
        phys.processed
            .set(more(phys.processed.get(), self.repaired_bytes));
        phys.errors.set(more(phys.errors.get(), self.errors));
    }

    fn note(&mut self, at: &Bookmark, birth: Txg, outcome: &base::Result<PhysicalReport>) {
        match outcome {
            Ok(report) => {
                self.repaired_bytes += report.repaired_bytes;
                self.unrepaired += u64::from(report.bad - report.repaired.min(report.bad));
            }
            Err(_) => {
                self.errors += 1;
                if self.lost.len() < LOST_MAX {
                    self.lost.push((*at, birth));
                }
            }
        }
    }
}

/// The blocks that a slice has collected.
pub(crate) struct Issue<'a> {
    pool: &'a Pool<'a>,
    begun_ns: u64,
    found: Vec<BlockCopy>,
    found_bytes: u64,
    /// Blocks visited in this slice.
    visited: u64,
    tally: Tally,
}

impl<'a> Issue<'a> {
    pub(crate) fn new(pool: &'a Pool<'a>) -> Issue<'a> {
        Issue {
            pool,
            begun_ns: rt::now_ns(),
            found: Vec::new(),
            found_bytes: 0,
            visited: 0,
            tally: Tally::default(),
        }
    }

    /// Takes a visited block: skips it or collects it to be read.
    #[doc(alias = "dsl_scan_scrub_cb")]
    pub(crate) fn take(&mut self, bp: &BlkPtrPhys, at: &Bookmark, min: Txg, max: Txg) {
        self.visited += 1;
        let birth = bp.physical_birth();
        let bytes: u64 = bp.dvas().map(|dva| dva.asize()).sum();
        if bp.is_embedded() || birth <= min || birth >= max {
            self.tally.skipped_bytes += if bp.is_embedded() { 0 } else { bytes };
            return;
        }
        self.tally.examined_bytes += bytes;
        if !(self.pool.needs_io)(bp) {
            self.tally.skipped_bytes += bytes;
            return;
        }
        self.found
            .extend(self.pool.pipeline.copies_of(bp, at, SPA_DVAS_PER_BP));
        self.found_bytes += bytes;
        if self.found.len() >= FOUND_MAX
            || self.found_bytes >= FOUND_BYTES_MAX
            || self.reading_ns() >= READING_MAX_NS
        {
            self.issue();
        }
    }

    /// Estimated time to read what is collected, in nanoseconds.
    fn reading_ns(&self) -> u64 {
        self.pool.pace.reading_ns(self.found_bytes)
    }

    /// Records that a block leading to others could not be read.
    pub(crate) fn lost(&mut self, bp: &BlkPtrPhys, at: &Bookmark, error: Error) {
        if error.kind() != ErrorKind::Suspended {
            self.tally.note(at, bp.allocation_birth(), &Err(error));
        }
    }

    /// Records that a block cannot be found, since what leads to it cannot be read.
    pub(crate) fn lost_at(&mut self, at: &Bookmark, birth: Txg) {
        self.visited += 1;
        let error = Error::new(ErrorKind::Io, "cannot be found");
        self.tally.note(at, birth, &Err(error));
    }

    /// Reads what is collected; the number of blocks so far without a good copy.
    pub(crate) fn errors(&mut self) -> u64 {
        self.issue();
        self.tally.errors
    }

    /// Whether the slice should end.
    pub(crate) fn is_slice_over(&mut self) -> bool {
        let used_ns = rt::now_ns() - self.begun_ns;
        (self.pool.is_over)(used_ns + self.reading_ns(), self.visited)
    }

    pub(crate) fn finish(mut self) -> Tally {
        self.issue();
        self.tally
    }

    /// Reads everything collected, in order of location.
    #[doc(alias = "scan_io_queues_run")]
    fn issue(&mut self) {
        let runs = Arc::new(Runs::new(std::mem::take(&mut self.found)));
        let bytes = std::mem::take(&mut self.found_bytes);
        let begun_ns = rt::now_ns();
        let start = |_| {
            let (pipeline, runs) = (self.pool.pipeline.clone(), runs.clone());
            rt::spawn("scan", move || read(&pipeline, &runs))
        };
        let handles: Vec<_> = (0..THREADS.min(runs.count())).map(start).collect();
        for handle in handles {
            self.tally.add(handle.join());
        }
        self.pool.pace.note(bytes, rt::now_ns() - begun_ns);
    }
}

/// One thread's share.
fn read(pipeline: &Pipeline, runs: &Runs) -> Tally {
    let mut tally = Tally::default();
    while let Some(run) = runs.take() {
        let reports = pipeline.scrub_run(run, &mut |_, _| {});
        for (copy, report) in run.iter().zip(&reports) {
            // A lost block fails with each of its copies; it is counted once.
            if report.is_ok() || copy.is_first() {
                let BlockCopy { bp, bookmark, .. } = copy;
                tally.note(bookmark, bp.allocation_birth(), report);
                if report.is_err() && *bookmark == SHARED {
                    tally.lost_shared.push(bp.cksum_words());
                }
            }
        }
    }
    tally
}
