//! Reading what the walk found, in the order of the devices, and counting what came of it.
//!
//! # Concurrency
//! A few threads take the next block each; the walk waits for them. More threads than processors keep the
//! devices busy.

use std::sync::Arc;

use base::{Error, ErrorKind, SPA_DVAS_PER_BP, Txg};
use phys::{BlkPtrPhys, ScanPhys};
use zio::{BlockCopy, Bookmark, PhysicalReport, Pipeline, Runs};

use crate::slice::Pool;

/// Blocks that are collected before they are read.
const FOUND_MAX: usize = 32 << 10;
/// And so many bytes of them: what was collected is read before the txg ends.
const FOUND_BYTES_MAX: u64 = 64 << 20;
/// And no more than devices read in so long: who waits for the txg from now on waits for that, too.
const READING_MAX_NS: u64 = 200_000_000;
/// Threads that read them.
const THREADS: usize = 8;
/// Damaged blocks that are remembered in one txg.
const LOST_MAX: usize = 10_000;

/// What reading came to.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Bytes of the blocks that were visited, with all copies and parity.
    pub examined_bytes: u64,
    /// Those of them that were not to be read.
    pub skipped_bytes: u64,
    /// Bytes written anew.
    pub repaired_bytes: u64,
    /// Copies that were bad and could not be written anew.
    pub unrepaired: u64,
    /// Blocks of which there is no good copy.
    pub errors: u64,
    /// Which; not more than are worth naming.
    pub lost: Vec<(Bookmark, Txg)>,
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
    }

    /// Adds what this txg came to.
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

    fn note(
        &mut self,
        at: &Bookmark,
        birth: Txg,
        psize: u64,
        outcome: &base::Result<PhysicalReport>,
    ) {
        match outcome {
            Ok(report) => {
                self.repaired_bytes += psize * u64::from(report.repaired);
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

/// What a slice has collected.
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

    /// A block was visited.
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

    /// How long reading what is collected will take.
    fn reading_ns(&self) -> u64 {
        self.pool.pace.reading_ns(self.found_bytes)
    }

    /// A block that leads to others could not be read.
    pub(crate) fn lost(&mut self, bp: &BlkPtrPhys, at: &Bookmark, error: Error) {
        if error.kind() != ErrorKind::Suspended {
            self.tally.note(at, bp.birth(), 0, &Err(error));
        }
    }

    /// Whether the txg is to end.
    pub(crate) fn is_slice_over(&mut self) -> bool {
        let used_ns = rt::now_ns() - self.begun_ns;
        (self.pool.is_over)(used_ns + self.reading_ns(), self.visited)
    }

    pub(crate) fn finish(mut self) -> Tally {
        self.issue();
        self.tally
    }

    /// Reads all that was collected, by place.
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
            // A block that is lost is so with each of its copies.
            if report.is_ok() || copy.is_first() {
                let BlockCopy { bp, bookmark, .. } = copy;
                tally.note(bookmark, bp.birth(), bp.psize(), report);
            }
        }
    }
    tally
}
