//! The error scrub of an open pool: when it begins, how much of it each txg does, and what happens when it ends.
//!
//! # What it is
//! It reads the blocks of the last error log again. As during a scan, damage is added to the log of the scan meanwhile,
//! also while it is paused; that log replaces the last one when the end is reached. It runs only while no scan does: a
//! resilver that begins ends it, a scrub is refused.
//!
//! # Source
//! OpenZFS `module/zfs/dsl_scan.c` (`dsl_errorscrub_*`), `module/zfs/spa.c` (`spa_scan`).

use std::sync::atomic::Ordering;

use base::{Error, ErrorKind, Result};
use dmu::Tx;
use phys::ErrorScrubPhys;
use phys::feature::HEAD_ERRLOG;
use phys::scan::POOL_SCAN_ERRORSCRUB;
use scan::Kind;

use crate::spa::{Inner, Spa};

impl Inner {
    /// Reads some blocks of the log, if an error scrub runs. In the first pass, after the datasets.
    #[doc(alias = "dsl_errorscrub_sync")]
    pub(crate) fn sync_error_scrub(&self, tx: &Tx) -> Result<()> {
        let scrub = self.core.error_scrub();
        if !scrub.is_running() || scrub.is_paused() || self.scanning.is_ending() {
            return Ok(());
        }
        let mos_root = self.state.lock().uberblock.rootbp;
        let outcome = self.timed_slice(Kind::Scrub, mos_root, |pool| scrub.slice(pool, tx));
        let outcome = match outcome {
            Err(error) if error.kind() == ErrorKind::Suspended => return Err(error),
            // The log is damaged; only a scrub knows what belongs in it.
            Err(_) => return self.cancel_error_scrub(tx),
            Ok(outcome) => outcome,
        };
        self.pipeline.note_errors(outcome.tally.lost);
        match outcome.is_complete {
            true => self.finish_error_scrub(tx),
            false => {
                self.groups.kick();
                Ok(())
            }
        }
    }

    /// Begins one, unless a scan runs or nothing is in the log.
    #[doc(alias = "dsl_errorscrub_setup_sync")]
    fn begin_error_scrub(&self, tx: &Tx) -> Result<()> {
        let scrub = self.core.error_scrub();
        if self.core.scan().running().is_some() || scrub.is_running() {
            return Ok(());
        }
        // What was met since the last txg belongs in the log.
        self.sync_errors(tx)?;
        let count = self.dsl().count_logged()?;
        if count == 0 {
            return Ok(());
        }
        scrub.begin(count, &self.mos, tx)?;
        self.core.notify("errorscrub_start", None);
        let text = format!("func={POOL_SCAN_ERRORSCRUB} mintxg=0 maxtxg={}", tx.txg());
        self.core.log_internal("error scrub setup", &text, tx);
        Ok(())
    }

    #[doc(alias = "dsl_errorscrub_done")]
    fn finish_error_scrub(&self, tx: &Tx) -> Result<()> {
        self.scanning.has_ended.store(true, Ordering::Release);
        self.core.error_scrub().end(true, &self.mos, tx)?;
        self.core.notify("errorscrub_finish", None);
        self.log_errors_left("error scrub done", tx);
        Ok(())
    }

    /// Cancels the running one, if there is one. What it has not come to stays in the log.
    #[doc(alias = "dsl_errorscrub_cancel_sync")]
    fn cancel_error_scrub(&self, tx: &Tx) -> Result<()> {
        let scrub = self.core.error_scrub();
        if !scrub.is_running() {
            return Ok(());
        }
        self.rejoin_error_logs(tx)?;
        self.log_errors_left("error scrub canceled", tx);
        scrub.end(false, &self.mos, tx)?;
        self.core.notify("errorscrub_abort", None);
        Ok(())
    }

    /// A scan begins: it ends a running error scrub, and nothing is told of the last one any more.
    pub(crate) fn erase_error_scrub(&self, tx: &Tx) -> Result<()> {
        if self.core.error_scrub().is_running() {
            self.rejoin_error_logs(tx)?;
        }
        self.core.error_scrub().erase(&self.mos, tx)
    }

    /// A log that is damaged stays as it is.
    fn rejoin_error_logs(&self, tx: &Tx) -> Result<()> {
        match self.dsl().rejoin_error_logs(tx) {
            Err(error) if error.kind() == ErrorKind::Suspended => Err(error),
            _ => Ok(()),
        }
    }

    fn log_errors_left(&self, operation: &str, tx: &Tx) {
        let phys = self.core.error_scrub().phys();
        let errors = phys.map_or(0, |phys| phys.errors.get());
        let text = format!("errors={errors}");
        self.core.log_internal(operation, &text, tx);
    }
}

impl Spa {
    /// Begins an error scrub, or resumes a paused one. Nothing begins if no damage is known.
    ///
    /// # Errors
    /// `Busy` when a scan or an error scrub runs; `Unsupported` without feature `head_errlog`; `ReadOnly`, `Suspended`.
    #[doc(alias = "POOL_SCAN_ERRORSCRUB")]
    pub fn scrub_errors(&self) -> Result<()> {
        let features = self.inner.features();
        if features.count(HEAD_ERRLOG).is_none() {
            let text = "operation not supported on this type of pool";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        if self.is_error_scrub_paused() {
            return self.in_sync(|inner, tx| {
                inner.core.error_scrub().pause(false, &inner.mos, tx)?;
                inner.core.notify("errorscrub_resume", None);
                Ok(())
            });
        }
        self.check_not_error_scrubbing()?;
        let scan = self.inner.core.scan();
        let text = match scan.running() {
            Some(Kind::Resilver) => "currently resilvering",
            Some(Kind::Scrub) if scan.is_paused() => {
                "scrub is paused; use 'zpool scrub' to resume or 'zpool scrub -s' to cancel scrub"
            }
            Some(Kind::Scrub) => "currently scrubbing; use 'zpool scrub -s' to cancel scrub",
            None => return self.in_sync(Inner::begin_error_scrub),
        };
        Err(Error::new(ErrorKind::Busy, text))
    }

    /// Waits until no error scrub runs, or it is paused. `see` is called with its state after each txg; when it returns
    /// false, waiting ends.
    ///
    /// # Errors
    /// `Suspended`.
    pub fn wait_error_scrub(&self, see: &mut dyn FnMut(&ErrorScrubPhys) -> bool) -> Result<()> {
        while self.is_error_scrubbing() && !self.is_error_scrub_paused() {
            if !see(&self.error_scrub().unwrap_or_default()) {
                return Ok(());
            }
            let txg = self.inner.groups.synced_txg();
            self.inner.groups.wait_unhurried(txg.next())?;
        }
        self.wait_end_written()
    }

    /// The running error scrub, or the last one; `None` if a scan began since.
    #[must_use]
    pub fn error_scrub(&self) -> Option<ErrorScrubPhys> {
        self.inner.core.error_scrub().phys()
    }

    /// Whether an error scrub runs, or is paused.
    #[must_use]
    pub fn is_error_scrubbing(&self) -> bool {
        self.inner.core.error_scrub().is_running()
    }

    /// Whether the running error scrub is paused.
    #[must_use]
    pub fn is_error_scrub_paused(&self) -> bool {
        self.inner.core.error_scrub().is_paused()
    }

    pub(crate) fn pause_error_scrub(&self) -> Result<()> {
        if self.is_error_scrub_paused() {
            return self.check_not_error_scrubbing();
        }
        self.in_sync(|inner, tx| {
            inner.core.error_scrub().pause(true, &inner.mos, tx)?;
            inner.core.notify("errorscrub_paused", None);
            Ok(())
        })
    }

    pub(crate) fn stop_error_scrub(&self) -> Result<()> {
        // It may have ended meanwhile.
        self.in_sync(Inner::cancel_error_scrub)
    }

    pub(crate) fn check_not_error_scrubbing(&self) -> Result<()> {
        let text = if self.is_error_scrub_paused() {
            "error scrub is paused; use 'zpool scrub -e' to resume error scrub"
        } else if self.is_error_scrubbing() {
            "currently error scrubbing; use 'zpool scrub -s' to cancel error scrub"
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Busy, text))
    }
}
