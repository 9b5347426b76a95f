//! What commands in flight leave when they are done, for the thread that issued them.

use std::collections::VecDeque;

use rt::{Condvar, Mutex};

/// Commands that are done, in their order.
pub(crate) struct Ends<T> {
    list: Mutex<VecDeque<T>>,
    one_more: Condvar,
}

impl<T> Default for Ends<T> {
    fn default() -> Ends<T> {
        Ends {
            list: Mutex::default(),
            one_more: Condvar::default(),
        }
    }
}

impl<T> Ends<T> {
    /// A command is done.
    pub(crate) fn push(&self, ended: T) {
        self.list.lock().push_back(ended);
        self.one_more.notify_one();
    }

    /// The next one that is done; waits for it.
    pub(crate) fn next(&self) -> T {
        let mut list = self.list.lock();
        loop {
            if let Some(ended) = list.pop_front() {
                return ended;
            }
            self.one_more.wait(&mut list);
        }
    }

    /// The next one, if there is one.
    pub(crate) fn take(&self) -> Option<T> {
        self.list.lock().pop_front()
    }
}
