//! The dnodes of an objset that are in memory.
//!
//! # Invariants
//! 1. A dnode that is held or dirty is in the cache: there is never a second one
//!    of the same object.
//! 2. `unsynced` has every object that was allocated and is not in a block of dnodes yet.
//! 3. `generation` grows whenever blocks of dnodes change: a dnode that was read in an older one is not inserted.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use base::ObjectId;
use foldhash::fast::FixedState;

use crate::Dnode;

/// Default for `Cache::idle_max`: unheld dnodes that stay in memory, for the next hold.
const IDLE_MAX: usize = 8192;
/// Candidates looked at when one has to go.
const TRIES: usize = 4;
/// How many come before it is looked again, when all candidates were held.
const PATIENCE: usize = 64;

pub(crate) struct Cache {
    /// Dnodes that may stay in memory without being held.
    pub(crate) idle_max: usize,
    dnodes: HashMap<ObjectId, Arc<Dnode>, FixedState>,
    /// The order in which dnodes came; may name some that are gone.
    queue: VecDeque<ObjectId>,
    /// How many may come before one has to go.
    patience: usize,
    pub(crate) unsynced: BTreeMap<ObjectId, u8>,
    pub(crate) generation: u64,
}

impl Default for Cache {
    fn default() -> Self {
        Cache {
            idle_max: IDLE_MAX,
            dnodes: HashMap::default(),
            queue: VecDeque::new(),
            patience: 0,
            unsynced: BTreeMap::new(),
            generation: 0,
        }
    }
}

impl Cache {
    pub(crate) fn get(&self, id: ObjectId) -> Option<&Arc<Dnode>> {
        self.dnodes.get(&id)
    }

    pub(crate) fn insert(&mut self, dnode: Arc<Dnode>) {
        self.make_room();
        self.queue.push_back(dnode.id());
        let before = self.dnodes.insert(dnode.id(), dnode);
        assert!(before.is_none(), "two dnodes of one object: {before:?}");
    }

    pub(crate) fn remove(&mut self, id: ObjectId) {
        self.dnodes.remove(&id);
    }

    /// All that are in memory, in any order.
    pub(crate) fn dnodes(&self) -> Vec<Arc<Dnode>> {
        self.dnodes.values().cloned().collect()
    }

    fn is_idle(&self, id: ObjectId) -> Option<bool> {
        // A dnode that is not held can become so only under the lock of this cache.
        self.dnodes
            .get(&id)
            .map(|dnode| Arc::strong_count(dnode) == 1)
    }

    fn make_room(&mut self) {
        if self.patience > 0 {
            self.patience -= 1;
            return;
        }
        for _ in 0..TRIES {
            if self.dnodes.len() < self.idle_max {
                return;
            }
            let Some(id) = self.queue.pop_front() else {
                return;
            };
            match self.is_idle(id) {
                Some(true) => self.remove(id),
                Some(false) => self.queue.push_back(id),
                None => {}
            }
        }
        if self.dnodes.len() >= self.idle_max {
            self.patience = PATIENCE;
        }
    }

    /// Drops surplus dnodes after a txg during which everything was held.
    pub(crate) fn trim(&mut self) {
        for _ in 0..self.queue.len() {
            if self.dnodes.len() <= self.idle_max && self.queue.len() <= 2 * self.idle_max {
                return;
            }
            let Some(id) = self.queue.pop_front() else {
                return;
            };
            match self.is_idle(id) {
                Some(true) => self.remove(id),
                Some(false) => self.queue.push_back(id),
                None => {}
            }
        }
    }

    /// Unsynced allocations in `[from, to)`.
    pub(crate) fn unsynced_in(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u8)> + '_ {
        let range = self.unsynced.range(ObjectId(from.min(to))..ObjectId(to));
        range.map(|(id, slots)| (id.0, *slots))
    }
}
