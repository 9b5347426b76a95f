//! What a scan does in one txg.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Result, Txg};
use dmu::{Objset, Tx};
use dsl::DslPool;
use phys::BlkPtrPhys;
use zio::Pipeline;

use crate::issue::Tally;
use crate::state::Scan;
use crate::visit::Visit;

/// The pool, as a scan sees it in the txg that syncs.
pub struct Pool<'a> {
    /// Where the state is kept.
    pub mos: &'a Arc<Objset>,
    /// The datasets.
    pub dsl: &'a Arc<DslPool>,
    /// What reads blocks.
    pub pipeline: &'a Arc<Pipeline>,
    /// The root of the MOS, as the last txg left it.
    pub mos_root: BlkPtrPhys,
    /// Whether any copy of a block may be bad: of a resilver, those that a device missed.
    pub needs_io: &'a dyn Fn(&BlkPtrPhys) -> bool,
    /// How fast the devices are.
    pub pace: &'a Pace,
    /// Whether the slice is over, after so many nanoseconds, with those that reading what it has found will take, and
    /// so many blocks.
    pub is_over: &'a dyn Fn(u64, u64) -> bool,
}

/// Bytes that are read in less say little of the devices.
const PACE_BYTES_MIN: u64 = 1 << 20;

/// How fast blocks were read of late.
#[derive(Debug)]
pub struct Pace {
    bytes_per_second: AtomicU64,
}

impl Default for Pace {
    /// A slow disk's, until it is known.
    fn default() -> Pace {
        Pace {
            bytes_per_second: AtomicU64::new(32 << 20),
        }
    }
}

impl Pace {
    /// How long reading so many bytes takes.
    pub(crate) fn reading_ns(&self, bytes: u64) -> u64 {
        let rate = self.bytes_per_second.load(Ordering::Relaxed);
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Reading so many bytes took so long.
    pub(crate) fn note(&self, bytes: u64, ns: u64) {
        if bytes >= PACE_BYTES_MIN {
            let rate = u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1));
            let rate = u64::try_from(rate).unwrap_or(u64::MAX);
            self.bytes_per_second.store(rate, Ordering::Relaxed);
        }
    }
}

/// What a slice came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What reading came to.
    pub tally: Tally,
    /// Whether all is visited.
    pub is_complete: bool,
}

impl Scan {
    /// Goes on with the scan that runs, if one does and does not wait: a slice of it. In the first pass of a
    /// txg, when its datasets are written.
    ///
    /// # Errors
    /// What reading and writing the MOS gives; damaged blocks are not an error.
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

    /// Writes what happened to datasets meanwhile. In every txg.
    ///
    /// # Errors
    /// What writing the MOS gives.
    pub fn sync(&self, mos: &Arc<Objset>, tx: &Tx) -> Result<()> {
        self.put(self.state(), mos, tx)
    }
}
