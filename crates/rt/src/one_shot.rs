//! A value that one thread gives and others wait for.
//!
//! For several results, say of commands to several devices, use a `Vec` of these: waiting for each
//! in turn takes as long as the slowest, and the results stay in order.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Condvar, Mutex};

/// A slot that receives one value, once.
#[derive(Debug)]
pub struct OneShot<T> {
    value: Mutex<Option<T>>,
    given: Condvar,
    is_given: AtomicBool,
}

impl<T> Default for OneShot<T> {
    fn default() -> Self {
        OneShot {
            value: Mutex::new(None),
            given: Condvar::new(),
            is_given: AtomicBool::new(false),
        }
    }
}

impl<T> OneShot<T> {
    /// Gives the value; panics if it was given already and not taken.
    pub fn give(&self, value: T) {
        let old = self.value.lock().replace(value);
        assert!(old.is_none(), "a value was given twice");
        self.is_given.store(true, Ordering::Release);
        self.given.notify_all();
    }

    /// Whether the value has been given; does not wait.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.is_given.load(Ordering::Acquire)
    }

    /// Waits for the value and takes it. Only one thread may do so.
    #[track_caller]
    pub fn take(&self) -> T {
        let mut value = self.value.lock();
        loop {
            if let Some(value) = value.take() {
                return value;
            }
            self.given.wait(&mut value);
        }
    }

    /// Waits for the value and passes it to `look`; any number of threads may do so.
    #[track_caller]
    pub fn wait<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        let mut value = self.value.lock();
        loop {
            if let Some(value) = &*value {
                return look(value);
            }
            self.given.wait(&mut value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::simulate;

    #[test]
    fn sim_all_who_wait_see_the_value() {
        for seed in 0..20 {
            simulate(seed, || {
                let shot = Arc::new(OneShot::default());
                let seen = |shot: Arc<OneShot<u64>>| move || shot.wait(|n| *n);
                let readers: Vec<_> = (0..3)
                    .map(|_| crate::spawn("reader", seen(shot.clone())))
                    .collect();
                assert!(!shot.is_given());
                shot.give(7);
                assert!(shot.is_given());
                for reader in readers {
                    assert_eq!(reader.join(), 7);
                }
                assert_eq!(shot.take(), 7);
            });
        }
    }
}
