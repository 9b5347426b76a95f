//! The scrub or resilver of an open pool: when it begins, how much of it each txg does, and what
//! happens when it ends.
//!
//! # Invariants
//! 1. A device's DTL is cleared only by a scan that began while the device was present, and in
//!    which every block was good or was repaired. A device that takes part says so in its config
//!    (`resilver_txg`).
//!
//! # Source
//! OpenZFS `module/zfs/dsl_scan.c`, `module/zfs/vdev.c` (`vdev_dtl_reassess`, `vdev_resilver_needed`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Error, ErrorKind, Result, Txg};
use dmu::Tx;
use phys::ScanPhys;
use phys::blkptr::{BlkPtrPhys, DvaPhys};
use phys::feature::RESILVER_DEFER;
use phys::pool_names::LAST_SCRUBBED_TXG;
use phys::scan::POOL_SCAN_RESILVER;
use rt::Mutex;
use scan::{Kind, Range};
use vdev::{Vdev, VdevKind};
use zap::directory;

use crate::spa::{Inner, Spa};

/// `SCAN_IMPORT_WAIT_TXGS`: txgs after an import in which no slice runs, so that importing is fast.
const IMPORT_WAIT_TXGS: u64 = 5;
/// `zfs_vdev_async_write_active_min_dirty_percent`: percent of the dirty data limit above which
/// writers are taken to wait for this txg.
const DIRTY_PERCENT: u64 = 30;

/// `zfs_resilver_defer_percent`: a resilver that has not come so far begins anew for devices that have come.
const DEFER_PERCENT: u64 = 10;

/// While writers wait, a slice takes at most 1/`SHARE` of the time since the last one ...
const SHARE: u64 = 4;
/// ... but at least this long, in ns: enough for a few device commands.
const SHARE_MIN_NS: u64 = 5_000_000;

/// Limits on the length of a slice.
#[derive(Clone, Debug)]
pub struct ScanSettings {
    /// `zfs_scrub_min_time_ms`, in ns: at least this long even if writers wait.
    pub scrub_min_ns: u64,
    /// `zfs_resilver_min_time_ms`, in ns.
    pub resilver_min_ns: u64,
    /// Minimum while a thread waits for the txg, in ns.
    pub waited_for_ns: u64,
    /// `zfs_txg_timeout`: at most this long, in ns.
    pub max_ns: u64,
    /// At most this many blocks are visited in one txg.
    pub blocks_max: u64,
}

impl Default for ScanSettings {
    fn default() -> Self {
        ScanSettings {
            scrub_min_ns: 1_000_000_000,
            resilver_min_ns: 3_000_000_000,
            waited_for_ns: 100_000_000,
            max_ns: 5_000_000_000,
            blocks_max: u64::MAX,
        }
    }
}

/// Scan state that exists only in this process.
#[derive(Default)]
pub(crate) struct Scanning {
    is_ending: AtomicBool,
    unrepaired: AtomicU64,
    pace: scan::Pace,
    /// `scn_restart_txg`: the txg that a resilver begins in; 0 if none is waited for.
    restart_txg: AtomicU64,
    /// When the last slice ended.
    slice_ended_ns: AtomicU64,
    /// Checksums of blocks in dedup tables that the scan could not read.
    lost_shared: Mutex<BTreeSet<[u64; 4]>>,
    /// A scan has ended in this txg, or was restarted: its error log becomes the pool's.
    pub(crate) has_ended: AtomicBool,
}

impl Scanning {
    /// The pool is being closed: the running slice ends, and no new one begins.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
    }

    /// Whether no new slice is to begin.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// Closing failed: slices may run again.
    pub(crate) fn go_on(&self) {
        self.is_ending.store(false, Ordering::Release);
    }
}

/// How long a slice may take while others wait, by when the last one ended.
pub(crate) fn share_since(last_ended_ns: &AtomicU64) -> u64 {
    let last_ns = last_ended_ns.load(Ordering::Relaxed);
    (rt::now_ns().saturating_sub(last_ns) / SHARE).max(SHARE_MIN_NS)
}

impl Inner {
    /// Runs a slice of the running scan, if there is one. In the first pass, after the datasets.
    pub(crate) fn sync_scan(&self, tx: &Tx) -> Result<()> {
        self.restart_if_due(tx)?;
        let scan = self.core.scan();
        let waits = tx.txg().0 < self.first_txg.0 + IMPORT_WAIT_TXGS;
        let is_ending = self.scanning.is_ending.load(Ordering::Acquire);
        if scan.running().is_none() || is_ending || scan.is_paused() {
            return scan.sync(&self.mos, tx);
        }
        if waits {
            self.groups.kick();
            return scan.sync(&self.mos, tx);
        }
        self.drop_absent();
        let may_restart = !self.awaits_restart() && !self.rebuilds.is_any_active();
        if may_restart && self.has_newcomers() {
            self.take_newcomers(tx)?;
        }
        let kind = scan.running().expect("a scan runs");
        let mos_root = self.state.lock().uberblock.rootbp;
        let outcome = self.slice(kind, mos_root, tx)?;
        self.note_tally(outcome.tally);
        if outcome.is_complete {
            self.finish_scan(tx)
        } else {
            self.groups.kick();
            Ok(())
        }
    }

    /// Begins a resilver in a later txg: until then, writes that do not know all devices may be in flight.
    /// A running scan goes on until then. In syncing context.
    #[doc(alias = "dsl_scan_restart_resilver")]
    pub(crate) fn resilver_from(&self, txg: u64) {
        self.scanning.restart_txg.store(txg, Ordering::Release);
    }

    fn awaits_restart(&self) -> bool {
        self.scanning.restart_txg.load(Ordering::Acquire) != 0
    }

    fn restart_if_due(&self, tx: &Tx) -> Result<()> {
        let is_ending = self.scanning.is_ending.load(Ordering::Acquire);
        if !self.awaits_restart() || is_ending || self.rebuilds.is_any_active() {
            return Ok(());
        }
        if tx.txg().0 < self.scanning.restart_txg.load(Ordering::Acquire) {
            self.groups.kick();
            return Ok(());
        }
        self.scanning.restart_txg.store(0, Ordering::Release);
        if self.stale_devices().is_empty() {
            return Ok(());
        }
        self.take_newcomers(tx)
    }

    /// Reads what the running scan may have passed in the dedup tables, and would leave out from now on elsewhere.
    #[doc(alias = "dsl_scan_ddt_entry")]
    pub(crate) fn scan_risen(&self, risen: &[BlkPtrPhys], tx: &Tx) -> Result<()> {
        let scan = self.core.scan();
        let Some(kind) = scan.running().filter(|_| !risen.is_empty()) else {
            return Ok(());
        };
        let mos_root = self.state.lock().uberblock.rootbp;
        let tally = self.with_pool(kind, mos_root, |pool| scan.read_now(pool, risen, tx))?;
        self.note_tally(tally);
        Ok(())
    }

    fn note_tally(&self, tally: scan::Tally) {
        let unrepaired = &self.scanning.unrepaired;
        unrepaired.fetch_add(tally.unrepaired, Ordering::Relaxed);
        self.scanning.lost_shared.lock().extend(tally.lost_shared);
        self.pipeline.note_errors(tally.lost);
    }

    /// Whether a block was read with the dedup tables. One that is lost is looked at again where it is referred to, so
    /// that its files are named.
    fn was_walked(&self, class_max: u64, bp: &BlkPtrPhys) -> bool {
        bp.is_dedup()
            && !self.scanning.lost_shared.lock().contains(&bp.cksum_words())
            && self
                .core
                .sharing()
                .has_deduped(class_max, bp)
                .unwrap_or(false)
    }

    fn slice(&self, kind: Kind, mos_root: BlkPtrPhys, tx: &Tx) -> Result<scan::Outcome> {
        let scan = self.core.scan();
        self.timed_slice(kind, mos_root, |pool| scan.slice(pool, tx))
    }

    /// Calls `run` with the pool as a scan sees it, and notes when it has ended.
    pub(crate) fn timed_slice<T>(
        &self,
        kind: Kind,
        mos_root: BlkPtrPhys,
        run: impl FnOnce(&scan::Pool<'_>) -> T,
    ) -> T {
        let outcome = self.with_pool(kind, mos_root, run);
        let ended_ns = &self.scanning.slice_ended_ns;
        ended_ns.store(rt::now_ns(), Ordering::Relaxed);
        outcome
    }

    /// Calls `run` with the pool as a scan sees it.
    fn with_pool<T>(
        &self,
        kind: Kind,
        mos_root: BlkPtrPhys,
        run: impl FnOnce(&scan::Pool<'_>) -> T,
    ) -> T {
        let needs_io = |bp: &BlkPtrPhys| kind == Kind::Scrub || self.misses(bp);
        let share_ns = share_since(&self.scanning.slice_ended_ns);
        let is_over =
            |used_ns: u64, blocks: u64| self.is_slice_over(kind, share_ns, used_ns, blocks);
        run(&scan::Pool {
            mos: &self.mos,
            next_shared: &|at| self.core.sharing().next_deduped(at),
            was_walked: &|class_max, bp| self.was_walked(class_max, bp),
            dsl: self.dsl(),
            pipeline: &self.pipeline,
            mos_root,
            needs_io: &needs_io,
            pace: &self.scanning.pace,
            is_over: &is_over,
        })
    }

    /// Whether a device that is present now missed the block.
    #[doc(alias = "dsl_scan_need_resilver")]
    fn misses(&self, bp: &BlkPtrPhys) -> bool {
        let birth = bp.physical_birth();
        let is_missed = |dva: DvaPhys| match self.tree.top(dva.vdev()) {
            Some(top) if top.kind() == VdevKind::Indirect => self.misses_copy(&dva, birth),
            top => top.is_some_and(|top| top.needs_resilver(birth)),
        };
        bp.is_gang() || bp.dvas().any(is_missed)
    }

    /// Whether a device missed a block that is on a removed vdev, or the copy that was made then.
    fn misses_copy(&self, dva: &DvaPhys, birth: Txg) -> bool {
        let pieces = self.tree.pieces(dva.vdev(), dva.offset(), dva.asize());
        // One that cannot be found is counted as damaged when it is read.
        pieces.map_or(true, |pieces| {
            pieces.iter().any(|piece| {
                let top = self.tree.top(piece.vdev);
                top.is_some_and(|top| top.needs_resilver(piece.birth.unwrap_or(birth)))
            })
        })
    }

    #[doc(alias = "dsl_scan_check_suspend")]
    pub(crate) fn is_slice_over(
        &self,
        kind: Kind,
        share_ns: u64,
        used_ns: u64,
        blocks: u64,
    ) -> bool {
        let settings = &self.scan_settings;
        if self.scanning.is_ending.load(Ordering::Acquire)
            || blocks >= settings.blocks_max
            || used_ns >= settings.max_ns
        {
            return true;
        }
        let least_ns = match kind {
            Kind::Scrub => settings.scrub_min_ns,
            Kind::Resilver => settings.resilver_min_ns,
        };
        let is_full = || {
            let dirty_max = self.groups.dirty_data_max();
            self.groups.dirty_bytes() >= dirty_max / 100 * DIRTY_PERCENT
        };
        used_ns >= least_ns.min(share_ns) && is_full()
            || used_ns >= settings.waited_for_ns.min(share_ns) && self.groups.is_waited_for()
    }

    /// Devices that are present and have a non-empty DTL.
    fn stale_devices(&self) -> Vec<Arc<Vdev>> {
        let mut devices = self.tree.devices();
        devices.retain(|device| device.leaf().is_usable() && device.leaf().has_dtl());
        devices
    }

    /// Whether there is a stale device that does not take part in the running scan, and does not wait until that has
    /// ended either, or waits for one that has hardly begun.
    fn has_newcomers(&self) -> bool {
        let is_late = self.is_late();
        let max = self.core.scan().phys().map_or(0, |phys| phys.max_txg.get());
        let is_settled = |device: &Arc<Vdev>| {
            let config = device.config();
            config.resilver_txg == max || is_late && config.resilver_deferred
        };
        !self.stale_devices().iter().all(is_settled)
    }

    /// Whether a resilver runs that devices wait for, rather than that it begins anew for them.
    #[doc(alias = "zfs_resilver_defer_percent")]
    fn is_late(&self) -> bool {
        let scan = self.core.scan();
        let is_enabled = self.features().count(RESILVER_DEFER).is_some();
        let phys = scan.phys().unwrap_or_default();
        let all = phys.to_examine.get().saturating_sub(phys.skipped.get());
        let is_far = phys.examined.get() >= all / 100 * DEFER_PERCENT;
        is_enabled && is_far && scan.running() == Some(Kind::Resilver)
    }

    /// Devices that lack something have come while a scan runs: they wait for the next resilver, or it begins now.
    #[doc(alias = "vdev_defer_resilver")]
    pub(crate) fn take_newcomers(&self, tx: &Tx) -> Result<()> {
        if !self.is_late() {
            return self.begin_scan(Kind::Resilver, tx);
        }
        let max = self.core.scan().phys().map_or(0, |phys| phys.max_txg.get());
        for device in self.stale_devices() {
            if device.config().resilver_txg != max {
                device.update(|config| config.resilver_deferred = true);
            }
        }
        self.tree_changed();
        let features = self.features();
        if features.count(RESILVER_DEFER) == Some(0) {
            features.adjust(RESILVER_DEFER, 1, tx)?;
        }
        Ok(())
    }

    /// No device waits for a resilver any more. Whether any has.
    #[doc(alias = "vdev_clear_resilver_deferred")]
    fn end_deferring(&self, tx: &Tx) -> Result<bool> {
        let mut is_any = false;
        for device in self.tree.devices() {
            is_any |= device.update(|config| std::mem::take(&mut config.resilver_deferred));
        }
        let features = self.features();
        if features
            .count(RESILVER_DEFER)
            .is_some_and(|count| count > 0)
        {
            features.adjust(RESILVER_DEFER, -1, tx)?;
            is_any = true;
        }
        if is_any {
            self.tree_changed();
        }
        Ok(is_any)
    }

    /// Whether all that stale devices lack may be what only the checkpoint refers to: a resilver has ended.
    fn waits_for_discard(&self) -> bool {
        let scan = self.core.scan();
        let max = scan.phys().map_or(0, |phys| phys.max_txg.get());
        let is_before = |device: &Arc<Vdev>| {
            let span = device.leaf().dtl().span();
            span.is_none_or(|(_, last)| last.0 < max)
        };
        self.has_checkpoint_feature()
            && scan.running().is_none()
            && !self.has_newcomers()
            && self.stale_devices().iter().all(is_before)
    }

    /// Drops absent devices from the scan: they miss what is repaired now, and need a new scan when
    /// they are back.
    fn drop_absent(&self) {
        for device in self.tree.devices() {
            if !device.leaf().is_usable() && device.config().resilver_txg != 0 {
                device.update(|config| config.resilver_txg = 0);
                let mut state = self.state.lock();
                (state.config_dirty, state.labels_dirty) = (true, true);
            }
        }
    }

    /// Begins a scrub, unless a scan runs.
    #[doc(alias = "zfs_scrub_after_expand")]
    pub(crate) fn scrub_after_reflow(&self, tx: &Tx) -> Result<()> {
        if self.core.scan().running().is_some() || self.core.error_scrub().is_running() {
            return Ok(());
        }
        self.begin_scan(Kind::Scrub, tx)
    }

    /// Ends the running scan, complete or not.
    fn end_scan(&self, is_complete: bool, tx: &Tx) -> Result<()> {
        self.scanning.has_ended.store(true, Ordering::Release);
        self.core.scan().end(is_complete, &self.mos, tx)
    }

    /// Whether a resilver runs, or is to begin.
    #[doc(alias = "dsl_scan_resilvering")]
    #[doc(alias = "dsl_scan_resilver_scheduled")]
    pub(crate) fn is_resilver_due(&self) -> bool {
        self.core.scan().running() == Some(Kind::Resilver) || self.awaits_restart()
    }

    /// Cancels a scrub, if one runs.
    #[doc(alias = "dsl_scan_cancel")]
    pub(crate) fn cancel_scrub(&self, tx: &Tx) -> Result<()> {
        let scan = self.core.scan();
        if scan.running() != Some(Kind::Scrub) {
            return Ok(());
        }
        let errors = scan.phys().map_or(0, |phys| phys.errors.get());
        let text = format!("errors={errors}");
        self.core.log_internal("scan cancelled", &text, tx);
        self.core.notify("scrub_abort", None);
        self.end_scan(false, tx)
    }

    /// Begins a scan, in which all stale devices take part and are brought up to date.
    #[doc(alias = "dsl_scan_setup_sync")]
    pub(crate) fn begin_scan(&self, kind: Kind, tx: &Tx) -> Result<()> {
        self.begin_scan_since(kind, Txg(0), tx)
    }

    /// As [`begin_scan`](Self::begin_scan), of blocks that were born after a txg, unless devices lack older ones.
    fn begin_scan_since(&self, kind: Kind, since: Txg, tx: &Tx) -> Result<()> {
        self.erase_error_scrub(tx)?;
        self.end_deferring(tx)?;
        let stale = self.stale_devices();
        let spans = stale.iter().filter_map(|device| device.leaf().dtl().span());
        let (mut min, mut max) = (u64::MAX, 0);
        for (first, last) in spans {
            (min, max) = (min.min(first.0.saturating_sub(1)), max.max(last.0 + 1));
        }
        if self.removal.is_used() {
            // What was copied from a removed vdev is older than its copy.
            min = 0;
        }
        let range = match kind {
            Kind::Resilver => Range {
                min: Txg(min.min(max)),
                max: Txg(max),
            },
            Kind::Scrub => Range {
                min: Txg(min.min(since.0)),
                max: Txg(max.max(tx.txg().0)),
            },
        };
        for device in &stale {
            device.update(|config| config.resilver_txg = range.max.0);
        }
        if !stale.is_empty() {
            self.state.lock().config_dirty = true;
            self.state.lock().labels_dirty = true;
        }
        self.scanning.unrepaired.store(0, Ordering::Relaxed);
        self.scanning.lost_shared.lock().clear();
        if self.core.scan().running().is_some() {
            self.scanning.has_ended.store(true, Ordering::Release);
        }
        if kind == Kind::Resilver {
            self.clear_rebuilds(tx)?;
        }
        let bytes = self.space.usage().alloc;
        self.core.scan().begin(kind, range, bytes, &self.mos, tx)?;
        match kind {
            Kind::Scrub => self.core.notify("scrub_start", None),
            Kind::Resilver => self.core.notify_resilver("resilver_start"),
        }
        let func = self.core.scan().phys().map_or(0, |phys| phys.func.get());
        let text = format!("func={func} mintxg={} maxtxg={}", range.min, range.max);
        self.core.log_internal("scan setup", &text, tx);
        Ok(())
    }

    /// Ends the scan when everything has been visited.
    #[doc(alias = "dsl_scan_done")]
    fn finish_scan(&self, tx: &Tx) -> Result<()> {
        let phys = self.core.scan().phys().unwrap_or_default();
        let errors = phys.errors.get();
        let max = phys.max_txg.get();
        // No device has a block that is lost, so none lacks it. What only the checkpoint refers to was not visited:
        // devices may lack some of that.
        let is_known = !self.core.scan().has_inherited_errors();
        let is_whole = is_known
            && self.scanning.unrepaired.load(Ordering::Relaxed) == 0
            && !self.has_checkpoint_feature();
        if is_whole {
            for device in self.stale_devices() {
                if device.config().resilver_txg == max {
                    device.leaf().clear_dtl(&(0..max));
                    device.update(|config| config.resilver_txg = 0);
                }
            }
            self.state.lock().config_dirty = true;
        }
        self.end_scan(true, tx)?;
        let text = format!("errors={errors}");
        self.core.log_internal("scan done", &text, tx);
        if phys.func.get() == POOL_SCAN_RESILVER {
            self.core.notify_resilver("resilver_finish");
        } else {
            self.core.notify("scrub_finish", None);
        }
        let has_waited = self.end_deferring(tx)?;
        if has_waited {
            self.core
                .log_internal("starting deferred resilver", &text, tx);
        }
        // Devices missed more writes meanwhile, or wait.
        let may_begin = !self.awaits_restart() && !self.rebuilds.is_any_active();
        if (is_whole || has_waited || !is_known) && may_begin && !self.stale_devices().is_empty() {
            self.begin_scan(Kind::Resilver, tx)?;
            self.groups.kick();
        }
        Ok(())
    }
}

impl Spa {
    /// Begins a scrub, or resumes a paused one.
    ///
    /// # Errors
    /// `Busy` when a scan runs, `ReadOnly`, `Suspended`.
    #[doc(alias = "spa_scan")]
    pub fn scrub(&self) -> Result<()> {
        self.start_scrub(false)
    }

    /// As [`scrub`](Spa::scrub), but a scrub that begins leaves out what was there when the last complete one began.
    ///
    /// # Errors
    /// As [`scrub`](Spa::scrub).
    #[doc(alias = "POOL_SCRUB_FROM_LAST_TXG")]
    pub fn scrub_since_last(&self) -> Result<()> {
        self.start_scrub(true)
    }

    fn start_scrub(&self, since_last: bool) -> Result<()> {
        let scan = self.inner.core.scan();
        match scan.running() {
            Some(Kind::Scrub) if scan.is_paused() => {
                return self.pause(false);
            }
            Some(Kind::Scrub) => {
                let text = "currently scrubbing; use 'zpool scrub -s' to cancel scrub";
                return Err(Error::new(ErrorKind::Busy, text));
            }
            Some(Kind::Resilver) => {
                return Err(Error::new(ErrorKind::Busy, "currently resilvering"));
            }
            None if self.is_rebuilding() => {
                return Err(Error::new(ErrorKind::Busy, "currently resilvering"));
            }
            None => self.check_not_error_scrubbing()?,
        }
        self.in_sync(move |inner, tx| {
            if inner.rebuilds.is_any_active() || inner.core.error_scrub().is_running() {
                return Ok(());
            }
            let last = directory::find(&inner.mos, LAST_SCRUBBED_TXG)?;
            // The blocks of the txg in which it began may be younger.
            let last = last.map_or(0, |txg| txg.0.saturating_sub(1));
            let since = if since_last { last } else { 0 };
            inner.begin_scan_since(Kind::Scrub, Txg(since), tx)
        })
    }

    /// Pauses the running scrub, or error scrub.
    ///
    /// # Errors
    /// `NotFound` when none runs; `Busy` when it is an error scrub that is paused; `ReadOnly`, `Suspended`.
    #[doc(alias = "dsl_scrub_set_pause_resume")]
    pub fn pause_scrub(&self) -> Result<()> {
        if self.is_error_scrubbing() {
            return self.pause_error_scrub();
        }
        self.check_scrubbing()?;
        self.pause(true)
    }

    fn pause(&self, pauses: bool) -> Result<()> {
        self.in_sync(move |inner, tx| {
            inner.core.scan().pause(pauses, &inner.mos, tx)?;
            let name = if pauses {
                "scrub_paused"
            } else {
                "scrub_resume"
            };
            inner.core.notify(name, None);
            Ok(())
        })
    }

    /// Cancels the running scrub, or error scrub.
    ///
    /// # Errors
    /// `NotFound` when none runs; `ReadOnly`, `Suspended`.
    #[doc(alias = "dsl_scan_cancel")]
    pub fn stop_scrub(&self) -> Result<()> {
        if self.is_error_scrubbing() {
            return self.stop_error_scrub();
        }
        self.check_scrubbing()?;
        // It may have ended meanwhile.
        self.in_sync(Inner::cancel_scrub)
    }

    fn check_scrubbing(&self) -> Result<()> {
        if self.inner.core.scan().running() == Some(Kind::Scrub) {
            return Ok(());
        }
        Err(Error::not_found("there is no active scrub"))
    }

    /// Begins a resilver if a device is stale, unless a running scan already covers it; a paused
    /// scrub is abandoned for it.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`.
    #[doc(alias = "vdev_resilver_needed")]
    pub fn resilver_if_needed(&self) -> Result<()> {
        let inner = &self.inner;
        let is_due = inner.awaits_restart() || inner.rebuilds.is_any_active();
        if inner.stale_devices().is_empty() || is_due || inner.waits_for_discard() {
            return Ok(());
        }
        // A paused scrub would delay the devices that take part in it, too.
        let scan = self.inner.core.scan();
        let is_running = scan.running().is_some() && !scan.is_paused();
        if is_running && !self.inner.has_newcomers() {
            return Ok(());
        }
        self.in_sync(|inner, tx| match inner.rebuilds.is_any_active() {
            true => Ok(()),
            false => inner.take_newcomers(tx),
        })
    }

    /// Begins the running resilver anew, with the devices that wait for the next one.
    ///
    /// # Errors
    /// `Unsupported` without the feature; `ReadOnly`, `Suspended`.
    #[doc(alias = "spa_scan")]
    pub fn restart_resilver(&self) -> Result<()> {
        if self.inner.features().count(RESILVER_DEFER).is_none() {
            let text = "this action requires the resilver_defer feature";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        self.in_sync(|inner, tx| {
            let waits = |device: &Arc<Vdev>| device.config().resilver_deferred;
            match inner.stale_devices().iter().any(waits) {
                true => inner.begin_scan(Kind::Resilver, tx),
                false => Ok(()),
            }
        })
    }

    /// Waits until no scan runs, or the scan is paused, and nothing is rebuilt. `see` is called with the state of the
    /// scan after each slice; when it returns false, waiting ends.
    ///
    /// # Errors
    /// `Suspended`.
    #[doc(alias = "spa_wait")]
    pub fn wait_scan(&self, see: &mut dyn FnMut(&ScanPhys) -> bool) -> Result<()> {
        let scan = self.inner.core.scan();
        let is_scanning = || scan.running().is_some() && !scan.is_paused();
        while is_scanning() || self.is_rebuilding() && !self.is_readonly() {
            if !see(&scan.phys().unwrap_or_default()) {
                return Ok(());
            }
            let txg = self.inner.groups.synced_txg();
            self.inner.groups.wait_unhurried(txg.next())?;
        }
        self.wait_end_written()?;
        self.finish_replacements()
    }

    /// The kind of the running scan, if there is one.
    #[must_use]
    pub fn scan_running(&self) -> Option<Kind> {
        self.inner.core.scan().running()
    }

    /// Whether the running scrub is paused.
    #[must_use]
    pub fn is_scan_paused(&self) -> bool {
        self.inner.core.scan().is_paused()
    }

    /// The running scan, or the last one.
    #[must_use]
    pub fn scan(&self) -> Option<ScanPhys> {
        self.inner.core.scan().phys()
    }
}
