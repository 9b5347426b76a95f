//! Blocks without a good copy that are not in the pool's error log yet.
//!
//! # What it is
//! The pipeline remembers what reading and scans have met. Each txg takes that into the log; a pool that is
//! read-only keeps it until it is asked. What is met while nothing else changes waits for the next txg, which
//! closing the pool brings about.
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
    /// Logs what was met. A log that is damaged itself, and cannot take it, does not stop the pool: what was met
    /// waits for the next txg, and for the host when the pool is closed.
    #[doc(alias = "spa_errlog_sync")]
    pub(crate) fn sync_errors(&self, tx: &Tx) -> Result<()> {
        let has_ended = self.scanning.has_ended.swap(false, Ordering::AcqRel);
        let phase = match self.core.scan().running() {
            _ if has_ended => ScanPhase::Ended,
            Some(_) => ScanPhase::Running,
            None => ScanPhase::None,
        };
        let met = self.pipeline.take_errors();
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
    /// All blocks that are known to be damaged, in each data set that has them.
    ///
    /// # Errors
    /// What reading the MOS gives.
    #[doc(alias = "spa_get_errlog")]
    pub fn damaged(&self) -> Result<BTreeSet<Bookmark>> {
        self.dsl().damaged(&self.inner.pipeline.errors())
    }

    /// Adds blocks that are known to be damaged, with the txgs of their birth; 0 if that is not known.
    #[doc(alias = "spa_log_error")]
    pub fn note_errors(&self, met: BTreeMap<Bookmark, Txg>) {
        self.inner.pipeline.note_errors(met);
    }

    /// The damaged blocks that are in no log yet, which are then forgotten.
    pub fn take_errors(&self) -> BTreeMap<Bookmark, Txg> {
        self.inner.pipeline.take_errors()
    }

    /// All known damage was read again: these blocks are damaged still, and no others.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`.
    #[doc(alias = "dsl_errorscrub_done")]
    pub fn replace_errors(&self, damaged: BTreeMap<Bookmark, Txg>) -> Result<()> {
        self.in_sync(move |inner, _| {
            inner.pipeline.take_errors();
            // A scan that runs has a log of its own, and goes on with it.
            if inner.core.scan().running().is_none() {
                inner.scanning.has_ended.store(true, Ordering::Release);
            }
            inner.pipeline.note_errors(damaged);
            Ok(())
        })
    }
}
