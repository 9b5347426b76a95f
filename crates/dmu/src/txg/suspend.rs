//! Suspension: what happens to a pool when I/O fails on every copy.
//!
//! # What it is
//! A write of a txg that fails on every device *suspends* the pool. The thread that issued it waits in
//! [`Suspend::wait_resumed`]; the txg that is syncing stays in memory as it is, because the sync thread
//! waits for that write. When the pool is resumed, the write is issued again and the txg goes on where
//! it stopped. The pool property `failmode` says what other threads do meanwhile:
//!
//! | failmode | a new hold, a wait for a txg | a read whose device is gone |
//! |----------|------------------------------|-----------------------------|
//! | wait     | waits                        | waits                       |
//! | continue | `Suspended`                  | its error                   |
//! | panic    | the pool fails, and the program is told to end | the same  |
//!
//! A pool is resumed by [`TxGroups::resume`], or when an I/O that was retried after
//! [`SuspendSettings::retry_ns`] succeeds. It *fails* for good when the patience ends, when it is
//! abandoned, or by [`TxGroups::fail`]; then the I/O gets its error and the txg is lost.
//!
//! # Invariants
//! 1. A suspended pool has at least one thread in `wait_resumed`, unless it was resumed just now.
//! 2. The sync thread waits in every failure mode but panic: its txg cannot be undone.
//! 3. After the pool failed nothing waits here any more.
//!
//! # Crash argument
//! While the pool is suspended, only I/O already in flight is written. The uberblock of a txg is written
//! after all its other blocks, so the txg on disk is still the one before.
//!
//! # Concurrency
//! The state is part of that of [`TxGroups`], under its mutex. `resumed` wakes the I/O that waits.
//! The number of resumes, which every I/O looks at, changes under the mutex and is read without it.
//! Events are reported without the mutex.
//!
//! # Source
//! OpenZFS `module/zfs/zio.c` (`zio_suspend`, `zio_resume`), `module/zfs/dmu_tx.c`
//! (`dmu_tx_try_assign`), man/man7/zpoolprops.7 (`failmode`).

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Error, Result};
use zio::{FailedIo, Suspend};

use super::{TxGroups, suspended};

/// `failmode`: what happens while I/O fails on every copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "zio_failure_mode_t")]
pub enum FailMode {
    /// Everything waits.
    #[default]
    Wait,
    /// New writes fail, reads go on.
    Continue,
    /// The program ends.
    Panic,
}

impl FailMode {
    /// The mode of that number in the pool's properties; `None` if there is none.
    #[must_use]
    pub fn from_raw(raw: u64) -> Option<FailMode> {
        let modes = [FailMode::Wait, FailMode::Continue, FailMode::Panic];
        modes.get(usize::try_from(raw).ok()?).copied()
    }
}

/// A suspension or its end, to be reported.
#[derive(Debug)]
pub enum SuspendEvent<'a> {
    /// The pool is suspended. With [`FailMode::Panic`] the program should end.
    Suspended {
        /// The error of the I/O.
        cause: &'a str,
        /// The failure mode of the pool.
        failmode: FailMode,
        /// Nanoseconds after which the pool fails.
        patience_ns: u64,
    },
    /// The pool goes on.
    Resumed,
}

/// Called with each [`SuspendEvent`], on the thread of the I/O and without locks.
#[derive(Clone)]
pub struct OnSuspend(pub Arc<dyn Fn(&SuspendEvent<'_>) + Send + Sync>);

impl fmt::Debug for OnSuspend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnSuspend")
    }
}

/// How a suspended pool is waited for. The default waits for [`TxGroups::resume`], however long.
#[derive(Clone, Debug)]
pub struct SuspendSettings {
    /// Failed I/O is retried at this interval, without waiting for [`TxGroups::resume`].
    pub retry_ns: u64,
    /// A pool that is suspended for this long fails.
    pub patience_ns: u64,
    /// Called when the pool is suspended or resumed.
    pub on_suspend: Option<OnSuspend>,
}

impl Default for SuspendSettings {
    fn default() -> Self {
        SuspendSettings {
            retry_ns: u64::MAX,
            patience_ns: u64::MAX,
            on_suspend: None,
        }
    }
}

/// The suspension of a pool, if there is one.
#[derive(Default)]
pub(super) struct Suspension {
    failmode: FailMode,
    now: Option<Now>,
    /// Nothing will resume it any more: the pool is being dropped.
    is_abandoned: bool,
}

struct Now {
    cause: String,
    since_ns: u64,
}

impl Suspension {
    pub(super) fn is_suspended(&self) -> bool {
        self.now.is_some()
    }

    /// The pool has failed: it is not suspended any more.
    pub(super) fn end(&mut self) {
        self.now = None;
    }

    /// An error if new holds fail, rather than wait, while the pool is suspended.
    pub(super) fn check(&self) -> Result<()> {
        match &self.now {
            Some(now) if self.failmode == FailMode::Continue => Err(suspended(&now.cause)),
            _ => Ok(()),
        }
    }
}

thread_local! {
    static IS_SYNC_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Marks the current thread as the one that syncs txgs: its reads wait in every failure mode.
pub(super) fn mark_sync_thread() {
    IS_SYNC_THREAD.set(true);
}

impl TxGroups {
    /// Sets the pool's failure mode; it applies to a suspension in progress, too.
    pub fn set_failmode(&self, failmode: FailMode) {
        self.state.lock().suspension.failmode = failmode;
        self.wake_everybody();
    }

    /// Why the pool is suspended or has failed; `None` if it is neither.
    #[must_use]
    pub fn suspended(&self) -> Option<String> {
        let state = self.state.lock();
        let now = state.suspension.now.as_ref();
        let failed = state.failed.as_ref();
        failed.or(now.map(|now| &now.cause)).cloned()
    }

    /// Whether a transaction could begin: what is refused for another reason is to be refused for this one first.
    ///
    /// # Errors
    /// `Suspended` when a txg failed, and with `failmode=continue` while the pool is suspended.
    pub fn check_running(&self) -> Result<()> {
        self.state.lock().check()
    }

    /// Whether the pool has failed: nothing is synced any more, and it cannot be resumed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.state.lock().failed.is_some()
    }

    /// Ends the pool for good: every hold, every wait and waiting I/O gets an error from now on.
    pub fn fail(&self, cause: &Error) {
        self.state.lock().fail(cause.to_string());
        self.wake_everybody();
    }

    /// Has failed I/O issued again, without waiting for it; if it fails once more, the pool is suspended
    /// again.
    #[doc(alias = "zio_resume")]
    pub fn resume(&self) {
        let mut state = self.state.lock();
        let was_suspended = state.suspension.now.take().is_some();
        self.resumed_count.fetch_add(1, Ordering::Release);
        drop(state);
        if was_suspended {
            self.wake_everybody();
            self.report(&SuspendEvent::Resumed);
        }
    }

    /// Prepares for dropping the pool: it fails if it is suspended, and will not be suspended again.
    pub fn abandon(&self) {
        let mut state = self.state.lock();
        state.suspension.is_abandoned = true;
        if let Some(now) = state.suspension.now.take() {
            state.fail(now.cause);
        }
        drop(state);
        self.wake_everybody();
    }

    fn report(&self, event: &SuspendEvent<'_>) {
        if let Some(OnSuspend(hear)) = &self.settings.suspend.on_suspend {
            hear(event);
        }
    }

    /// Suspends the pool unless it is suspended already. Returns whether the I/O is to wait for the resume.
    fn begin_suspension(&self, io: FailedIo, issued_at: u64, error: &Error) -> bool {
        let mut state = self.state.lock();
        if state.failed.is_some() {
            return false;
        }
        let suspension = &mut state.suspension;
        let failmode = suspension.failmode;
        let waits = match io {
            FailedIo::Write => true,
            FailedIo::Read => failmode != FailMode::Continue || IS_SYNC_THREAD.get(),
            FailedIo::MissedRead => IS_SYNC_THREAD.get(),
        };
        if suspension.is_abandoned || !waits {
            return false;
        }
        let is_new = !suspension.is_suspended() && self.resumed_count() == issued_at;
        let cause = error.to_string();
        if is_new {
            suspension.now = Some(Now {
                cause: cause.clone(),
                since_ns: rt::now_ns(),
            });
        }
        if is_new && failmode == FailMode::Panic {
            state.fail(cause.clone());
        }
        drop(state);
        if is_new {
            self.wake_everybody();
            self.report(&SuspendEvent::Suspended {
                cause: &cause,
                failmode,
                patience_ns: self.settings.suspend.patience_ns,
            });
        }
        true
    }
}

impl Suspend for TxGroups {
    fn resumed_count(&self) -> u64 {
        self.resumed_count.load(Ordering::Acquire)
    }

    fn wait_resumed(&self, io: FailedIo, issued_at: u64, error: Error) -> Result<()> {
        if !self.begin_suspension(io, issued_at, &error) {
            return Err(error);
        }
        let settings = &self.settings.suspend;
        let retry_at_ns = rt::now_ns().saturating_add(settings.retry_ns);
        let mut state = self.state.lock();
        loop {
            if state.failed.is_some() {
                return Err(error);
            }
            let now = state.suspension.now.as_ref();
            let Some(now) = now.filter(|_| self.resumed_count() == issued_at) else {
                return Ok(());
            };
            let time_ns = rt::now_ns();
            let end_ns = now.since_ns.saturating_add(settings.patience_ns);
            if time_ns >= end_ns {
                let cause = now.cause.clone();
                state.fail(cause);
                drop(state);
                self.wake_everybody();
                return Err(error);
            }
            if time_ns >= retry_at_ns {
                return Ok(());
            }
            match retry_at_ns.min(end_ns) {
                u64::MAX => self.resumed.wait(&mut state),
                at_ns => {
                    self.resumed.wait_timeout_ns(&mut state, at_ns - time_ns);
                }
            }
        }
    }

    fn note_success(&self) {
        self.resume();
    }
}
