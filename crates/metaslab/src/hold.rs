//! Metaslabs that are held still, so that their free segments can be written to or deleted on the devices.
//!
//! # Concurrency
//! An allocation that fails only because of metaslabs that are held waits until one of them is let go, and tries
//! again; whatever holds one looks whether anything waits ([`Metaslabs::has_waiters`](crate::Metaslabs::has_waiters)),
//! and itself allocates nothing. The lock here is a leaf.
//!
//! # Source
//! OpenZFS module/zfs/metaslab.c (`metaslab_disable`, `metaslab_enable`).

use std::sync::Arc;

use crate::group::Group;
use crate::range_tree::RangeTree;

/// How often metaslabs were let go, and what waits for it.
#[derive(Default)]
pub(crate) struct Holds {
    state: rt::Mutex<State>,
    has_ended: rt::Condvar,
}

#[derive(Default)]
struct State {
    ended: u64,
    waiters: usize,
}

impl Holds {
    pub(crate) fn ended(&self) -> u64 {
        self.state.lock().ended
    }

    pub(crate) fn has_waiters(&self) -> bool {
        self.state.lock().waiters > 0
    }

    /// Waits until a metaslab was let go since so many were.
    pub(crate) fn wait_for_next(&self, ended: u64) {
        let mut state = self.state.lock();
        state.waiters += 1;
        self.has_ended
            .wait_while(&mut state, |state| state.ended == ended);
        state.waiters -= 1;
    }

    fn end(&self) {
        self.state.lock().ended += 1;
        self.has_ended.notify_all();
    }
}

/// A metaslab that nothing is allocated from until this is dropped.
pub struct Held {
    group: Arc<Group>,
    metaslab: u64,
    free: RangeTree,
    was_used: bool,
    holds: Arc<Holds>,
}

impl Held {
    pub(crate) fn new(
        group: Arc<Group>,
        metaslab: u64,
        free: RangeTree,
        was_used: bool,
        holds: Arc<Holds>,
    ) -> Held {
        Held {
            group,
            metaslab,
            free,
            was_used,
            holds,
        }
    }

    /// The segments that no block is in, nor was in the last two txgs: nothing reads them, and nothing writes to
    /// them meanwhile.
    #[must_use]
    pub fn free(&self) -> &RangeTree {
        &self.free
    }

    /// Remembers some of what is free as not deleted on the devices.
    pub fn put_untrimmed(&self, rest: &RangeTree) {
        self.group.put_untrimmed(self.metaslab, rest);
    }

    /// Whether anything was ever allocated there.
    #[must_use]
    pub fn was_used(&self) -> bool {
        self.was_used
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.group.enable(self.metaslab);
        self.holds.end();
    }
}
