//! The sync thread: when a txg is closed, and what becomes of it.

use base::{Error, ErrorKind, Result, Txg};
use rt::MutexGuard;

use super::{State, TxGroups, TxgSync, suspend};

/// Dropped when the sync thread ends, even by a panic, so that nothing waits for the thread any more.
struct SyncThreadEnd<'a>(&'a TxGroups);

impl Drop for SyncThreadEnd<'_> {
    fn drop(&mut self) {
        self.0.state.lock().stopped = true;
        self.0.wake_everybody();
    }
}

/// The sync thread.
impl TxGroups {
    pub(super) fn run(&self, sync: &dyn TxgSync) {
        suspend::mark_sync_thread();
        let end = SyncThreadEnd(self);
        let mut state = self.state.lock();
        while self.wait_for_work(&mut state) {
            let txg = self.quiesce(&mut state);
            drop(state);
            sync.freeze(txg);
            self.open_next(txg);
            let outcome = sync.sync(txg);
            state = self.finish(txg, &outcome);
        }
        state.stopped = true;
        let left = std::mem::take(&mut state.callbacks);
        drop(state);
        drop(end);
        for callback in left.into_values().flatten() {
            callback(Err(Error::new(
                ErrorKind::Suspended,
                "the txg was never synced",
            )));
        }
    }

    /// Waits until the open txg is to be synced; returns false if the thread is to end.
    fn wait_for_work(&self, state: &mut MutexGuard<'_, State>) -> bool {
        loop {
            if state.failed.is_some() {
                if state.stopping {
                    return false;
                }
                self.work.wait(state);
                continue;
            }
            if state.wanted >= state.open {
                return true;
            }
            let Some(changed_at_ns) = state.changed_at_ns else {
                if state.stopping {
                    return false;
                }
                self.work.wait(state);
                continue;
            };
            let age_ns = rt::now_ns().saturating_sub(changed_at_ns);
            let full = state.open_dirty >= self.settings.sync_threshold()
                || state.dirty_total() >= self.settings.dirty_data_max;
            if full || state.stopping || age_ns >= self.settings.timeout_ns {
                return true;
            }
            self.work
                .wait_timeout_ns(state, self.settings.timeout_ns - age_ns);
        }
    }

    #[doc(alias = "txg_quiesce")]
    fn quiesce(&self, state: &mut MutexGuard<'_, State>) -> Txg {
        state.quiescing = true;
        while state.holds > 0 {
            self.work.wait(state);
        }
        state.open
    }

    fn open_next(&self, txg: Txg) {
        let mut state = self.state.lock();
        assert_eq!(state.open, txg, "only this thread opens txgs");
        assert_eq!(state.holds, 0, "txg {txg} was held while it was frozen");
        state.quiescing = false;
        state.open = txg.next();
        state.changed_at_ns = None;
        state.syncing = Some(txg);
        state.sync_dirty =
            std::mem::take(&mut state.open_dirty) + std::mem::take(&mut state.open_begun);
        drop(state);
        self.room.notify_all();
        self.progress.notify_all();
    }

    fn finish(&self, txg: Txg, outcome: &Result<()>) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.syncing = None;
        state.sync_dirty = 0;
        self.show_dirty(&state);
        match outcome {
            Ok(()) => state.synced = txg,
            Err(error) => state.fail(format!("txg {txg}: {error}")),
        }
        let later = state.callbacks.split_off(&txg.next());
        let due = std::mem::replace(&mut state.callbacks, later);
        drop(state);
        self.room.notify_all();
        self.progress.notify_all();
        self.resumed.notify_all();
        for callback in due.into_values().flatten() {
            callback(match outcome {
                Ok(()) => Ok(()),
                Err(error) => Err(Error::new(ErrorKind::Suspended, error.to_string())),
            });
        }
        self.state.lock()
    }
}
