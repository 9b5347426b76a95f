//! A slice: the part of a scan done in one txg.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Result, Txg};
use dmu::{Objset, Tx};
use dsl::DslPool;
use phys::BlkPtrPhys;
use phys::scan::DdtBookmarkPhys;
use zio::Pipeline;

use crate::issue::{Issue, SHARED, Tally};
use crate::state::Scan;
use crate::visit::Visit;

/// The pool, as a scan sees it in the syncing txg.
pub struct Pool<'a> {
    /// The MOS, where the state is kept.
    pub mos: &'a Arc<Objset>,
    /// The datasets.
    pub dsl: &'a Arc<DslPool>,
    /// Reads the blocks.
    pub pipeline: &'a Arc<Pipeline>,
    /// The root of the MOS, as the last txg left it.
    pub mos_root: BlkPtrPhys,
    /// Whether a block must be read: in a resilver, only if a device missed it.
    pub needs_io: &'a dyn Fn(&BlkPtrPhys) -> bool,
    /// The blocks of the next entry of the dedup tables at a position, which moves past it; `None` behind the last one.
    pub next_shared: &'a NextShared<'a>,
    /// Whether a block is in the dedup tables up to a class, and was read there.
    pub was_walked: &'a dyn Fn(u64, &BlkPtrPhys) -> bool,
    /// The read speed of the devices.
    pub pace: &'a Pace,
    /// Whether the slice is over, given the nanoseconds used (including the estimated time to read
    /// what it has found) and the blocks visited.
    pub is_over: &'a dyn Fn(u64, u64) -> bool,
}

/// See [`Pool::next_shared`].
type NextShared<'a> = dyn Fn(&mut DdtBookmarkPhys) -> Result<Option<Vec<BlkPtrPhys>>> + 'a;

/// Bytes; smaller reads say little about the speed of the devices.
const PACE_BYTES_MIN: u64 = 1 << 20;

/// How fast blocks were last read.
#[derive(Debug)]
pub struct Pace {
    bytes_per_second: AtomicU64,
}

impl Default for Pace {
    /// The speed of a slow disk, until one is measured.
    fn default() -> Pace {
        Pace {
            bytes_per_second: AtomicU64::new(32 << 20),
        }
    }
}

impl Pace {
    /// Estimated time to read `bytes`, in nanoseconds.
    pub(crate) fn reading_ns(&self, bytes: u64) -> u64 {
        let rate = self.bytes_per_second.load(Ordering::Relaxed);
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Records that reading `bytes` took `ns` nanoseconds.
    pub(crate) fn note(&self, bytes: u64, ns: u64) {
        if bytes >= PACE_BYTES_MIN {
            let rate = u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1));
            let rate = u64::try_from(rate).unwrap_or(u64::MAX);
            self.bytes_per_second.store(rate, Ordering::Relaxed);
        }
    }
}

/// The result of a slice.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The result of the reads.
    pub tally: Tally,
    /// Whether everything has been visited.
    pub is_complete: bool,
}

impl Scan {
    /// Runs one slice of the running scan, unless there is none or it is paused. In the first pass
    /// of a txg, when its datasets are written.
    ///
    /// # Errors
    /// Any error from reading and writing the MOS; damaged blocks are not an error.
    #[doc(alias = "dsl_scan_sync")]
    pub fn slice(&self, pool: &Pool<'_>, tx: &Tx) -> Result<Outcome> {
        if self.running().is_none() || self.is_paused() {
            return Ok(Outcome::default());
        }
        assert!(tx.txg() > Txg(0), "a scan goes on in a txg");
        let mut state = self.state();
        let (is_complete, tally) = Visit::new(pool, &mut state).run();
        self.put(state, pool.mos, tx)?;
        Ok(Outcome { tally, is_complete })
    }

    /// Reads blocks that have come into the part of the dedup tables that the running scan visits, or has visited. In
    /// the txg in which they have.
    ///
    /// # Errors
    /// Any error from writing the MOS; damaged blocks are not an error.
    #[doc(alias = "dsl_scan_ddt_entry")]
    pub fn read_now(&self, pool: &Pool<'_>, blocks: &[BlkPtrPhys], tx: &Tx) -> Result<Tally> {
        let mut state = self.state();
        let Some(phys) = state.phys.as_mut().filter(|_| self.running().is_some()) else {
            return Ok(Tally::default());
        };
        let (min, max) = (Txg(phys.min_txg.get()), Txg(phys.max_txg.get()));
        let is_meant = |bp: &&BlkPtrPhys| bp.physical_birth() > min && bp.physical_birth() < max;
        let mut meant = blocks.iter().filter(is_meant).peekable();
        if phys.ddt_class_max.get() == 0 || meant.peek().is_none() {
            return Ok(Tally::default());
        }
        let mut issue = Issue::new(pool);
        meant.for_each(|bp| issue.take(bp, &SHARED, min, max));
        let mut tally = issue.finish();
        tally.add_to(phys);
        state.changed();
        self.put(state, pool.mos, tx)?;
        Ok(tally)
    }

    /// Writes the state as changed by dataset operations. In every txg.
    ///
    /// # Errors
    /// Any error from writing the MOS.
    pub fn sync(&self, mos: &Arc<Objset>, tx: &Tx) -> Result<()> {
        self.put(self.state(), mos, tx)
    }
}
