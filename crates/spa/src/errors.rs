//! Damaged blocks (without a good copy) that are not in the pool's error log yet.
//!
//! # What it is
//! The pipeline collects the damaged blocks found by reads and scans. Each txg moves them to the
//! log; a read-only pool keeps them in memory. Blocks found while nothing else changes wait for the
//! next txg; closing the pool forces one.
//!
//! # Source
//! OpenZFS `module/zfs/spa_errlog.c` (`spa_errlog_sync`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use base::{ErrorKind, Result, Txg};
use dmu::Tx;
use dsl::ScanPhase;
use zio::Bookmark;

use crate::spa::{Inner, Spa};

impl Inner {
    /// Logs the collected blocks. If the log itself is damaged and cannot take them, the pool
    /// carries on: they wait for the next txg, and the caller can take them when the pool is closed
    /// ([`Spa::take_errors`]).
    #[doc(alias = "spa_errlog_sync")]
    pub(crate) fn sync_errors(&self, tx: &Tx) -> Result<()> {
        let has_ended = self.scanning.has_ended.swap(false, Ordering::AcqRel);
        let phase = match self.core.scan().running() {
            _ if has_ended => ScanPhase::Ended,
            Some(_) => ScanPhase::Running,
            None if self.core.error_scrub().is_running() => ScanPhase::Running,
            None => ScanPhase::None,
        };
        let met = self.pipeline.take_errors();
        self.core.events().meet(met.keys());
        match self.dsl().log_errors(&met, phase, tx) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.pipeline.note_errors(met);
                match error.kind() {
                    ErrorKind::Suspended => Err(error),
                    _ => Ok(()),
                }
            }
        }
    }
}

impl Spa {
    /// All blocks known to be damaged, in each dataset that has them.
    ///
    /// # Errors
    /// Any error from reading the MOS.
    #[doc(alias = "spa_get_errlog")]
    pub fn damaged(&self) -> Result<BTreeSet<Bookmark>> {
        self.dsl().damaged(&self.inner.pipeline.errors())
    }

    /// Adds blocks known to be damaged, with their birth txgs (0 if unknown).
    #[doc(alias = "spa_log_error")]
    pub fn note_errors(&self, met: BTreeMap<Bookmark, Txg>) {
        self.inner.core.events().know(met.keys());
        self.inner.pipeline.note_errors(met);
    }

    /// Takes the damaged blocks that are not in a log yet; they are removed from the pipeline.
    pub fn take_errors(&self) -> BTreeMap<Bookmark, Txg> {
        self.inner.pipeline.take_errors()
    }
}
