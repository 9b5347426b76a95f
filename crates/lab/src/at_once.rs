//! How many machines run at a time, over all experiments.

use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A number of places, each for one machine that runs. Several experiments may share it.
pub struct AtOnce {
    most: usize,
    free: Mutex<usize>,
    freed: Condvar,
}

/// Holds a place of [`AtOnce`] until it is dropped, when another machine may run.
pub(crate) struct Taken<'a>(&'a AtOnce);

impl AtOnce {
    /// So many at a time, at least one.
    #[must_use]
    pub fn new(most: usize) -> AtOnce {
        let most = most.max(1);
        AtOnce {
            most,
            free: Mutex::new(most),
            freed: Condvar::new(),
        }
    }

    /// How many there are.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Waits for a place.
    pub(crate) fn take(&self) -> Taken<'_> {
        let is_none = |free: &mut usize| *free == 0;
        let waited = self.freed.wait_while(self.lock(), is_none);
        *waited.unwrap_or_else(PoisonError::into_inner) -= 1;
        Taken(self)
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.0.lock() += 1;
        self.0.freed.notify_one();
    }
}

impl fmt::Debug for AtOnce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at a time", self.most)
    }
}
