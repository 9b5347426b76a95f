//! Scrubs and resilvers: starting them, and waiting until they end.
//!
//! # What it is
//! The scan itself runs in the engine, whenever the pool is open for writing. If a session ends before it,
//! the next one resumes it. Blocks that a scan could not read are in the pool's error log.
//!
//! # Source
//! OpenZFS module/zfs/dsl_scan.c.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Error, ErrorKind, Result, Txg};
use check::{Finding, Report};
use phys::scan::POOL_SCAN_SCRUB;
use scan::Kind;
use spa::Spa;
use zio::Bookmark;

use crate::pools::Pools;

/// Times that a scrub is started, at most: a resilver in between ends it.
const SCRUBS_MAX: usize = 5;

impl Pools {
    /// Scrubs an open pool. A resilver that a device needs goes first, and ends a running scrub; an
    /// interrupted scrub is resumed.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`; `Io` if resilvers end it again and again.
    pub fn scrub(&self, spa: &Spa) -> Result<()> {
        for _ in 0..SCRUBS_MAX {
            if spa.scan_running() == Some(Kind::Resilver) {
                self.wait_scan(spa)?;
            }
            if spa.scan_running().is_none() || spa.is_scan_paused() {
                spa.scrub()?;
            }
            self.wait_scan(spa)?;
            if spa
                .scan()
                .is_some_and(|scan| scan.func.get() == POOL_SCAN_SCRUB)
            {
                return Ok(());
            }
        }
        let text = "a device misses writes again and again";
        Err(Error::new(ErrorKind::Io, text))
    }

    /// Waits until the running scan ends.
    ///
    /// # Errors
    /// `Suspended`.
    pub fn wait_scan(&self, spa: &Spa) -> Result<()> {
        let show = self.observer().progress();
        spa.wait_scan(&mut |scan| {
            show(scan.examined.get(), scan.to_examine.get());
            true
        })
    }

    /// Resilvers devices that missed writes, and waits until that is done.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`.
    pub fn catch_up(&self, spa: &Spa) -> Result<()> {
        spa.resilver_if_needed()?;
        if spa.scan_running() == Some(Kind::Resilver) {
            self.wait_scan(spa)?;
        }
        Ok(())
    }

    /// Verifies every copy of every block of an open pool, and repairs them if the pool is writable.
    ///
    /// # Errors
    /// Errors that keep the pool from being verified; those found in it are in the report.
    pub fn verify(&self, spa: &Spa, options: check::Options) -> Result<Report> {
        let show = self.observer().progress();
        let options = check::Options {
            progress: Some(Arc::new(move |p: &check::Progress| {
                show(p.verified_bytes, p.allocated_bytes);
            })),
            ..options
        };
        check::verify(&check::Pool::of(spa), &options)
    }
}

/// The lost blocks of a report, with their birth txgs.
#[must_use]
pub fn lost_in(report: &Report) -> BTreeMap<Bookmark, Txg> {
    report.findings.iter().filter_map(Finding::lost).collect()
}
