//! System V semaphores of a machine: sets of counters by key, there until the machine is switched off.

use std::collections::BTreeMap;

use rt::{Condvar, Mutex};

/// All sets of a machine.
#[derive(Default)]
pub struct Semaphores {
    sets: Mutex<BTreeMap<i32, Vec<u16>>>,
    changed: Condvar,
}

impl Semaphores {
    /// Makes a set of `count` counters, or gives those of one that is there their value.
    pub fn make(&self, key: i32, count: usize, value: u16) {
        self.sets.lock().insert(key, vec![value; count]);
        self.changed.notify_all();
    }

    /// Removes a set; false if there is none.
    pub fn remove(&self, key: i32) -> bool {
        let is_removed = self.sets.lock().remove(&key).is_some();
        self.changed.notify_all();
        is_removed
    }

    /// A counter's value; `None` if there is no such set.
    #[must_use]
    pub fn value(&self, key: i32, at: usize) -> Option<u16> {
        self.sets.lock().get(&key)?.get(at).copied()
    }

    /// Takes one from a counter that is not zero; false if it cannot.
    pub fn take(&self, key: i32, at: usize) -> bool {
        let mut sets = self.sets.lock();
        let counter = sets.get_mut(&key).and_then(|set| set.get_mut(at));
        let Some(counter) = counter.filter(|counter| **counter > 0) else {
            return false;
        };
        *counter -= 1;
        drop(sets);
        self.changed.notify_all();
        true
    }

    /// Waits until a counter is zero or its set is gone, for at most so long.
    pub fn wait_for_zero(&self, key: i32, at: usize, patience_ns: u64) {
        let end_ns = rt::now_ns().saturating_add(patience_ns);
        let mut sets = self.sets.lock();
        let is_positive = |sets: &BTreeMap<i32, Vec<u16>>| {
            let counter = sets.get(&key).and_then(|set| set.get(at));
            counter.is_some_and(|counter| *counter > 0)
        };
        while is_positive(&sets) {
            let left_ns = end_ns.saturating_sub(rt::now_ns());
            if left_ns == 0 {
                return;
            }
            self.changed.wait_timeout_ns(&mut sets, left_ns);
        }
    }
}
