//! Scrubs and resilvers: starting them, and waiting until they end.
//!
//! # What it is
//! The scan itself runs in the engine, whenever the pool is open for writing. If a session ends before it, it goes
//! on in a pool that is kept open; otherwise the next session resumes it. Blocks that a scan could not read are in
//! the pool's error log.
//!
//! # Source
//! OpenZFS module/zfs/dsl_scan.c.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Context, Error, ErrorKind, Result, Txg};
use check::{Finding, Report};
use phys::scan::POOL_SCAN_SCRUB;
use scan::Kind;
use spa::Spa;
use zio::Bookmark;

use crate::activity::Activity;
use crate::error_log::objects_of;
use crate::failure::{Attempt, Failure, Outcome, Reason};
use crate::held::Access;
use crate::open::OpenPool;
use crate::pools::Pools;
use crate::session::Session;

/// Times that a scrub is started, at most: a resilver in between ends it.
const SCRUBS_MAX: usize = 5;

/// What a scrub has found.
#[derive(Debug, Default)]
pub struct Scrubbed {
    /// Damaged objects that were looked at; 0 if all blocks were read.
    pub objects: usize,
    /// Bytes that were repaired.
    pub repaired_bytes: u64,
    /// How long it took, in seconds.
    pub secs: u64,
    /// Blocks that could not be repaired.
    pub errors: u64,
    /// What the checker has found besides.
    pub findings: Vec<Finding>,
    /// Whether nothing is wrong.
    pub is_clean: bool,
}

impl Session {
    /// Opens a pool to scrub it.
    ///
    /// # Errors
    /// [`Reason::ReadOnly`]; errors of opening it.
    pub fn open_to_scrub(&self, pool: &str) -> Outcome<OpenPool> {
        let open = self.open(pool, Access::Write);
        let open = open.map_err(Failure::of(Attempt::Open, pool))?;
        match open.check_writable() {
            Ok(()) => Ok(open),
            Err(_) => Err(Failure::new(Attempt::Scrub, pool, Reason::ReadOnly)),
        }
    }
}

impl OpenPool {
    /// Scrubs the pool. A resilver that a device needs goes first, and ends a running scrub; an interrupted
    /// scrub is resumed. `is_thorough`: decompresses each block as well. `since_last`: leaves out what was there when
    /// the last one began.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`; `Io` if resilvers end it again and again.
    pub fn scrub(&self, is_thorough: bool, since_last: bool) -> Outcome<Scrubbed> {
        let name = self.name();
        self.scrub_to_the_end(since_last)
            .map_err(Failure::of(Attempt::Scrub, &name))?;
        let scan = self.scan().unwrap_or_default();
        let mut scrubbed = Scrubbed {
            repaired_bytes: scan.processed.get(),
            secs: scan.end_time.get().saturating_sub(scan.start_time.get()),
            errors: scan.errors.get(),
            ..Scrubbed::default()
        };
        if is_thorough {
            let options = check::Options {
                decompress: true,
                every_copy: false,
                leaks: false,
                ..check::Options::default()
            };
            let report = self.verify(options)?;
            let lost = lost_in(&report);
            scrubbed.errors = scrubbed.errors.max(lost.len() as u64);
            self.note_errors(lost);
            scrubbed.findings = report.findings;
        }
        scrubbed.is_clean = scrubbed.errors == 0 && scrubbed.findings.is_empty();
        Ok(scrubbed)
    }

    /// Begins a scrub, or goes on with one that is paused, in a pool that stays open. `since_last`: as for
    /// [`scrub`](OpenPool::scrub).
    ///
    /// # Errors
    /// `Busy` if a scan runs; `ReadOnly`, `Suspended`.
    pub fn begin_scrub(&self, since_last: bool) -> Outcome<()> {
        let begun = match self.scan_running() {
            _ if self.is_rebuilding() => Err("currently resilvering"),
            Some(Kind::Resilver) => Err("currently resilvering"),
            Some(Kind::Scrub) if !self.is_scan_paused() => {
                Err("currently scrubbing; use 'zpool scrub -s' to cancel scrub")
            }
            _ => Ok(()),
        };
        let begun = begun.map_err(|why| Error::new(ErrorKind::Busy, why));
        let begun = begun.and_then(|()| match since_last {
            true => self.scrub_since_last(),
            false => Spa::scrub(self),
        });
        begun.map_err(Failure::of(Attempt::Scrub, &self.name()))
    }

    fn scrub_to_the_end(&self, since_last: bool) -> Result<()> {
        for _ in 0..SCRUBS_MAX {
            if self.is_rebuilding() {
                self.wait_for(&[Activity::Resilver], None)?;
            } else if self.scan_running() == Some(Kind::Resilver) {
                self.wait_for_scan()?;
            }
            if self.scan_running().is_none() || self.is_scan_paused() {
                match since_last {
                    true => self.scrub_since_last()?,
                    false => Spa::scrub(self)?,
                }
            }
            self.wait_for_scan()?;
            let scan = self.scan();
            if scan.is_some_and(|scan| scan.func.get() == POOL_SCAN_SCRUB) {
                return Ok(());
            }
        }
        let text = "a device misses writes again and again";
        Err(Error::new(ErrorKind::Io, text))
    }

    /// Reads the blocks that are known to be damaged again, until the end, and goes on with that if it was paused or
    /// interrupted; `None` if there are none.
    ///
    /// # Errors
    /// `Busy` if a scan runs; `Unsupported` without `head_errlog`; `ReadOnly`, `Suspended`.
    pub fn scrub_errors(&self) -> Outcome<Option<Scrubbed>> {
        let name = self.name();
        let failed = Failure::of(Attempt::Scrub, &name);
        let objects = objects_of(&self.damaged().map_err(&failed)?);
        let healed = self.healed_bytes();
        if !self.is_error_scrubbing() || self.is_error_scrub_paused() {
            Spa::scrub_errors(self).map_err(&failed)?;
        }
        self.wait_error_scrub().map_err(&failed)?;
        if objects.is_empty() {
            return Ok(None);
        }
        let scrub = self.error_scrub().unwrap_or_default();
        Ok(Some(Scrubbed {
            objects: objects.len(),
            repaired_bytes: self.healed_bytes().saturating_sub(healed),
            secs: scrub.end_time.get().saturating_sub(scrub.start_time.get()),
            errors: scrub.errors.get(),
            is_clean: scrub.errors.get() == 0,
            findings: Vec::new(),
        }))
    }

    /// Begins an error scrub, or goes on with one that is paused, in a pool that stays open.
    ///
    /// # Errors
    /// As [`scrub_errors`](OpenPool::scrub_errors).
    pub fn begin_error_scrub(&self) -> Outcome<()> {
        let begun = Spa::scrub_errors(self);
        begun.map_err(Failure::of(Attempt::Scrub, &self.name()))
    }

    fn wait_error_scrub(&self) -> Result<()> {
        let show = self.pools().observer().progress();
        Spa::wait_error_scrub(self, &mut |scrub| {
            let examined = scrub.examined.get();
            show(examined, examined.saturating_add(scrub.to_examine.get()));
            true
        })
    }

    /// Cancels the running scrub, or error scrub.
    ///
    /// # Errors
    /// `NotFound` if none is running; `ReadOnly`, `Suspended`.
    pub fn cancel_scrub(&self) -> Outcome<()> {
        let stopped = self.stop_scrub();
        stopped.map_err(Failure::of(Attempt::CancelScrub, &self.name()))
    }

    /// Pauses the running scrub, or error scrub; as in OpenZFS, it is not an error if none is running.
    ///
    /// # Errors
    /// `Busy` if it is an error scrub that is paused; `ReadOnly`, `Suspended`.
    pub fn pause_running_scrub(&self) -> Outcome<()> {
        let paused = match self.scan_running() {
            _ if self.is_error_scrubbing() => self.pause_scrub(),
            Some(Kind::Scrub) => self.pause_scrub(),
            _ => Ok(()),
        };
        paused.map_err(Failure::of(Attempt::PauseScrub, &self.name()))
    }

    /// Waits until the running scan ends.
    ///
    /// # Errors
    /// `Suspended`.
    pub fn wait_for_scan(&self) -> Result<()> {
        self.pools().wait_scan(self)
    }

    /// Resilvers devices that missed writes, and waits until that is done, unless the pool stays open.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`.
    pub fn catch_up(&self) -> Result<()> {
        match self.is_kept() {
            true => self.resilver_if_needed(),
            false => self.pools().catch_up(self),
        }
    }

    fn verify(&self, options: check::Options) -> Outcome<Report> {
        let report = self.pools().verify(self, options);
        let name = self.name();
        let report = report.within(|| name.clone());
        report.map_err(Failure::of(Attempt::Record, &name))
    }

    fn healed_bytes(&self) -> u64 {
        self.parts().tree().root().total_stats().self_healed_bytes
    }
}

impl Pools {
    /// Waits until the running scan ends.
    ///
    /// # Errors
    /// `Suspended`.
    pub(crate) fn wait_scan(&self, spa: &Spa) -> Result<()> {
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
    pub(crate) fn catch_up(&self, spa: &Spa) -> Result<()> {
        if spa.is_rebuilding() {
            let show = self.observer().progress();
            spa.wait_rebuild(&mut |done, all| {
                show(done, all);
                true
            })?;
        }
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
fn lost_in(report: &Report) -> BTreeMap<Bookmark, Txg> {
    report.findings.iter().filter_map(Finding::lost).collect()
}
