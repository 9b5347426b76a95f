//! Transaction groups: the states open, quiescing and syncing, and the thread that drives them.
//!
//! # What it is
//! Changes are collected in the *open* txg. When it is time (5 s, enough dirty bytes, a thread
//! waits) the sync thread *quiesces* it: new holds wait until the running ones are dropped, then
//! every dirty objset is frozen, and the next txg opens. While that one fills, the frozen one is
//! *synced*: written level by level, up to the uberblock.
//!
//! # Invariants
//! 1. `synced < syncing < open`, each by one; at most one txg is syncing.
//! 2. A txg is frozen only when no [`Tx`] holds it, and cannot be held while it is frozen.
//! 3. While the pool is suspended (`suspend`) the syncing txg stays as it is and no hold is granted.
//! 4. A txg that failed to sync is the last one: nothing is synced until the pool is opened again.
//!
//! # Crash argument
//! A txg becomes durable as a whole, by the uberblock that the sync callback writes last.
//!
//! # Concurrency
//! One mutex, four conditions: `work` wakes the sync thread, `room` threads that wait for a hold,
//! `progress` threads that wait for a txg, `resumed` I/O that waits for the pool to be resumed.
//! Callbacks run without the mutex. A thread that holds an open Tx must neither take another one nor
//! wait for a txg: quiescing would wait for that thread forever.
//!
//! # Why not simpler
//! OpenZFS quiesces in a thread of its own, and lets a quiesced txg wait while another one
//! syncs. With two dirty generations per dnode there is no room for a third txg, and nothing to
//! gain: the writers that could fill it would be throttled anyway.
//!
//! # Source
//! OpenZFS module/zfs/txg.c, module/zfs/dmu_tx.c (`dmu_tx_delay`), module/zfs/dsl_pool.c @be7657e3.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Error, ErrorKind, Result, Txg};
use rt::{Condvar, Mutex, MutexGuard};

use self::suspend::Suspension;
use crate::Tx;

mod settings;
mod suspend;
mod sync_thread;

pub use settings::TxgSettings;
pub use suspend::{FailMode, OnSuspend, SuspendEvent, SuspendSettings};

/// What the sync thread calls; implemented by the pool.
pub trait TxgSync: Send + Sync {
    /// Freezes every objset that is dirty in `txg`. No thread holds `txg`, and none can get a hold: be quick.
    fn freeze(&self, txg: Txg);

    /// Writes `txg`, uberblock included. Runs while the next txg is open.
    ///
    /// # Errors
    /// Any error ends the pool: I/O that may succeed later waits inside this call.
    #[doc(alias = "spa_sync")]
    fn sync(&self, txg: Txg) -> Result<()>;
}

/// Write-behind bytes in flight above which writers are throttled.
const BEHIND_BYTES_MAX: u64 = 12 << 20;
/// Nanoseconds between their checks: they poll, so that threads busy with device writes need not wake them.
const PAUSE_NS: u64 = 200_000;
/// Pauses after which they go on, however slow the devices are.
const PAUSES_MAX: u32 = 8;

type Callback = Box<dyn FnOnce(Result<()>) + Send>;

struct State {
    open: Txg,
    /// Transactions that hold `open`.
    holds: u64,
    quiescing: bool,
    /// When `open` was first changed; `None`: not yet.
    changed_at_ns: Option<u64>,
    syncing: Option<Txg>,
    synced: Txg,
    /// Sync until this txg is synced, changed or not.
    wanted: Txg,
    /// The highest txg that a thread waits for, or has waited for.
    #[doc(alias = "tx_sync_txg_waiting")]
    waited_for: Txg,
    /// Bytes of `open` that stay dirty until it is synced.
    open_dirty: u64,
    /// Bytes of `open` that write-behind is writing already; not part of `open_dirty`.
    open_begun: u64,
    sync_dirty: u64,
    /// When the last delayed hold ends: delays of all writers add up.
    last_wakeup_ns: u64,
    stopping: bool,
    /// No thread syncs: before `start` and after `stop`.
    stopped: bool,
    failed: Option<String>,
    suspension: Suspension,
    callbacks: BTreeMap<Txg, Vec<Callback>>,
}

/// `tx_state_t`: the txg state machine of one pool.
#[doc(alias = "tx_state_t")]
pub struct TxGroups {
    settings: TxgSettings,
    state: Mutex<State>,
    work: Condvar,
    room: Condvar,
    progress: Condvar,
    /// The pool was resumed, or never will be.
    resumed: Condvar,
    /// Number of resumes: by a change of it, waiting I/O knows that it is to be issued again.
    resumed_count: AtomicU64,
    thread: Mutex<Option<rt::JoinHandle<()>>>,
}

impl TxGroups {
    /// The state after `last_synced` was synced: the next txg is open. Nothing is synced before
    /// [`start`](TxGroups::start).
    #[must_use]
    #[doc(alias = "txg_init")]
    pub fn new(last_synced: Txg, settings: TxgSettings) -> Arc<TxGroups> {
        let state = State {
            open: last_synced.next(),
            holds: 0,
            quiescing: false,
            changed_at_ns: None,
            syncing: None,
            synced: last_synced,
            wanted: last_synced,
            waited_for: last_synced,
            open_dirty: 0,
            open_begun: 0,
            sync_dirty: 0,
            last_wakeup_ns: 0,
            stopping: false,
            stopped: true,
            failed: None,
            suspension: Suspension::default(),
            callbacks: BTreeMap::new(),
        };
        Arc::new(TxGroups {
            settings,
            state: Mutex::new(state),
            work: Condvar::new(),
            room: Condvar::new(),
            progress: Condvar::new(),
            resumed: Condvar::new(),
            resumed_count: AtomicU64::new(0),
            thread: Mutex::new(None),
        })
    }

    /// Starts the sync thread.
    #[doc(alias = "txg_sync_start")]
    pub fn start(self: &Arc<Self>, sync: Arc<dyn TxgSync>) {
        let mut thread = self.thread.lock();
        assert!(thread.is_none(), "the sync thread runs already");
        self.state.lock().stopped = false;
        let groups = Arc::clone(self);
        *thread = Some(rt::spawn("txg_sync", move || groups.run(&*sync)));
    }

    /// Syncs what is open and dirty, ends the sync thread and forgets the callback of `start`.
    ///
    /// # Errors
    /// `Suspended` when a txg failed, now or earlier; with `failmode=continue` also while the pool is
    /// suspended: then this can be called again.
    #[doc(alias = "txg_sync_stop")]
    pub fn stop(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.stopping = true;
        self.work.notify_all();
        while !state.stopped {
            if let Err(error) = state.suspension.check() {
                // The command that resumes the pool calls `stop` again.
                state.stopping = false;
                return Err(error);
            }
            self.progress.wait(&mut state);
        }
        drop(state);
        if let Some(thread) = self.thread.lock().take() {
            thread.join();
        }
        match &self.state.lock().failed {
            None => Ok(()),
            Some(cause) => Err(suspended(cause)),
        }
    }

    /// Takes a hold on the open txg, delayed or blocked when too much is dirty.
    /// `dirty_bytes_estimate`: what the caller is about to dirty.
    ///
    /// # Errors
    /// `Suspended`.
    #[doc(alias = "dmu_tx_assign")]
    pub fn hold_open(self: &Arc<Self>, dirty_bytes_estimate: u64) -> Result<Tx> {
        let mut state = self.state.lock();
        if let Some(until_ns) = state.delay_until(&self.settings, dirty_bytes_estimate) {
            drop(state);
            rt::sleep_ns(until_ns.saturating_sub(rt::now_ns()));
            state = self.state.lock();
        }
        self.hold(state, self.settings.dirty_data_max)
    }

    /// Takes a hold on the open txg however much is dirty: for callers that dirty nothing and help to
    /// write what is dirty, such as the intent log. Waits only while a txg is quiescing or the pool is suspended.
    ///
    /// # Errors
    /// `Suspended`.
    #[doc(alias = "DMU_TX_NOTHROTTLE")]
    pub fn hold_open_unthrottled(self: &Arc<Self>) -> Result<Tx> {
        self.hold(self.state.lock(), u64::MAX)
    }

    /// Waits until fewer bytes than `dirty_max` are dirty, no txg is quiescing and the pool is not suspended.
    fn hold(self: &Arc<Self>, mut state: MutexGuard<'_, State>, dirty_max: u64) -> Result<Tx> {
        loop {
            state.check()?;
            let full = state.dirty_total() >= dirty_max;
            if !full && !state.quiescing && !state.suspension.is_suspended() {
                break;
            }
            if full {
                self.work.notify_all();
            }
            self.room.wait(&mut state);
        }
        state.holds += 1;
        Ok(Tx::open(state.open, Arc::clone(self)))
    }

    pub(crate) fn release(&self, txg: Txg) {
        let mut state = self.state.lock();
        assert_eq!(txg, state.open, "a held txg is the open one");
        assert!(state.holds > 0, "txg {txg} is not held");
        state.holds -= 1;
        if state.holds == 0 && state.quiescing {
            self.work.notify_all();
        }
    }

    /// Waits until `txg` is on stable storage; syncs it if it is still open.
    ///
    /// # Errors
    /// `Suspended`.
    #[doc(alias = "txg_wait_synced")]
    pub fn wait_synced(&self, txg: Txg) -> Result<()> {
        let mut state = self.state.lock();
        state.waited_for = state.waited_for.max(txg);
        drop(state);
        self.wait_unhurried(txg)
    }

    /// Like [`wait_synced`](TxGroups::wait_synced), for a caller that is in no hurry: it does not count
    /// for [`is_waited_for`](TxGroups::is_waited_for).
    ///
    /// # Errors
    /// `Suspended`.
    pub fn wait_unhurried(&self, txg: Txg) -> Result<()> {
        let mut state = self.state.lock();
        while state.synced < txg {
            state.check()?;
            self.want(&mut state, txg);
            self.progress.wait(&mut state);
        }
        Ok(())
    }

    /// Syncs everything changed so far and waits for it. Returns the txg that is on disk now.
    ///
    /// # Errors
    /// `Suspended`.
    pub fn sync_all(&self) -> Result<Txg> {
        let txg = self.open_txg();
        self.wait_synced(txg)?;
        Ok(txg)
    }

    /// Waits until `txg`, or a later one, is open.
    ///
    /// # Errors
    /// `Suspended`.
    #[doc(alias = "txg_wait_open")]
    pub fn wait_open(&self, txg: Txg) -> Result<()> {
        let mut state = self.state.lock();
        state.waited_for = state.waited_for.max(Txg(txg.0.saturating_sub(1)));
        while state.open < txg {
            state.check()?;
            self.want(&mut state, Txg(txg.0 - 1));
            self.progress.wait(&mut state);
        }
        Ok(())
    }

    /// Asks for the open txg to be synced, without waiting.
    #[doc(alias = "txg_kick")]
    pub fn kick(&self) {
        let mut state = self.state.lock();
        let open = state.open;
        self.want(&mut state, open);
    }

    /// Has the open txg synced when it is old enough, also if nothing changes in it.
    pub fn expect_txg(&self) {
        if self.state.lock().mark_changed() {
            self.work.notify_all();
        }
    }

    /// Whether a thread waits for the syncing txg or a later one.
    #[must_use]
    #[doc(alias = "txg_sync_waiting")]
    pub fn is_waited_for(&self) -> bool {
        let state = self.state.lock();
        let is_waited_for = |syncing| state.waited_for >= syncing;
        state.syncing.is_some_and(is_waited_for)
    }

    fn want(&self, state: &mut MutexGuard<'_, State>, txg: Txg) {
        if state.wanted < txg {
            state.wanted = txg;
            self.work.notify_all();
        }
    }

    /// At most this many bytes are dirty at a time.
    #[must_use]
    pub fn dirty_data_max(&self) -> u64 {
        self.settings.dirty_data_max
    }

    pub(crate) fn write_behind_bytes(&self) -> u64 {
        self.settings.write_behind_bytes
    }

    /// Lets devices catch up with a sequential writer, so that its data is still in the CPU caches when
    /// it is written. Slow devices are not waited for.
    pub(crate) fn pause_behind(&self) {
        for _ in 0..PAUSES_MAX {
            if self.state.lock().open_begun <= BEHIND_BYTES_MAX {
                return;
            }
            rt::sleep_ns(PAUSE_NS);
        }
    }

    /// The open txg.
    #[must_use]
    pub fn open_txg(&self) -> Txg {
        self.state.lock().open
    }

    /// The txg being synced.
    #[must_use]
    pub fn syncing_txg(&self) -> Option<Txg> {
        self.state.lock().syncing
    }

    /// The last txg on stable storage.
    #[must_use]
    #[doc(alias = "spa_last_synced_txg")]
    pub fn synced_txg(&self) -> Txg {
        self.state.lock().synced
    }

    /// Bytes that are dirty in memory, open and syncing.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.state.lock().dirty_total()
    }

    /// Counts `bytes` as dirty in the open txg, which is synced in due time even for 0 bytes.
    /// The caller holds the open txg.
    #[doc(alias = "dsl_pool_dirty_space")]
    pub fn note_dirty(&self, bytes: u64) {
        let mut state = self.state.lock();
        let first = state.mark_changed();
        state.open_dirty += bytes;
        self.show_dirty(&state);
        if first || state.open_dirty >= self.settings.sync_threshold() {
            self.work.notify_all();
        }
    }

    /// Adjusts what the open txg is charged: by `dirty` bytes that wait for its sync and by `begun`
    /// bytes that are being written already. The caller holds the open txg, or the lock of a dnode whose
    /// layer of that txg is not frozen yet.
    pub(crate) fn recharge(&self, dirty: i64, begun: i64) {
        if dirty > 0 && begun == 0 {
            return self.note_dirty(dirty.unsigned_abs());
        }
        let mut state = self.state.lock();
        let before = state.dirty_total();
        state.open_dirty = state.open_dirty.saturating_add_signed(dirty);
        state.open_begun = state.open_begun.saturating_add_signed(begun);
        self.show_dirty(&state);
        if state.open_dirty >= self.settings.sync_threshold() {
            self.work.notify_all();
        }
        if state.dirty_total() < before {
            self.room.notify_all();
        }
    }

    /// Notes that dirty bytes of the syncing txg have been written.
    #[doc(alias = "dsl_pool_undirty_space")]
    pub(crate) fn note_written(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.sync_dirty = state.sync_dirty.saturating_sub(bytes);
        self.show_dirty(&state);
        self.room.notify_all();
    }

    /// Lets others know how much is dirty.
    fn show_dirty(&self, state: &State) {
        let shown = &self.settings.dirty_bytes;
        shown.store(state.dirty_total(), Ordering::Relaxed);
    }

    pub(crate) fn add_callback(&self, txg: Txg, callback: Callback) {
        let mut state = self.state.lock();
        assert_eq!(txg, state.open, "callbacks are added under a hold");
        if state.mark_changed() {
            self.work.notify_all();
        }
        state.callbacks.entry(txg).or_default().push(callback);
    }

    fn wake_everybody(&self) {
        self.work.notify_all();
        self.room.notify_all();
        self.progress.notify_all();
        self.resumed.notify_all();
    }
}

impl State {
    fn check(&self) -> Result<()> {
        match &self.failed {
            None if self.stopped => Err(Error::new(
                ErrorKind::Suspended,
                "transaction groups are stopped",
            )),
            None => self.suspension.check(),
            Some(cause) => Err(suspended(cause)),
        }
    }

    /// The pool fails for good, unless it has already.
    fn fail(&mut self, cause: String) {
        self.failed.get_or_insert(cause);
        self.suspension.end();
    }

    /// Returns whether this was the first change of the open txg.
    fn mark_changed(&mut self) -> bool {
        let first = self.changed_at_ns.is_none();
        if first {
            self.changed_at_ns = Some(rt::now_ns());
        }
        first
    }

    fn dirty_total(&self) -> u64 {
        self.open_dirty + self.open_begun + self.sync_dirty
    }

    fn delay_until(&mut self, settings: &TxgSettings, estimate: u64) -> Option<u64> {
        let delay_ns = settings.delay_ns(self.dirty_total().saturating_add(estimate / 2));
        if delay_ns == 0 || self.failed.is_some() {
            return None;
        }
        let now_ns = rt::now_ns();
        let cap_ns = now_ns + settings.delay_max_ns;
        let until_ns = (now_ns.max(self.last_wakeup_ns) + delay_ns).min(cap_ns);
        self.last_wakeup_ns = until_ns;
        Some(until_ns)
    }
}

fn suspended(cause: &str) -> Error {
    Error::new(ErrorKind::Suspended, format!("pool suspended: {cause}"))
}

#[cfg(test)]
mod tests;
