//! What a scan does in one txg.

use std::sync::Arc;

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
    /// Whether the slice is over, after so many nanoseconds and so many blocks.
    pub is_over: &'a dyn Fn(u64, u64) -> bool,
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
