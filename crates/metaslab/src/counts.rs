//! What is allocated in the metaslabs of one vdev.
//!
//! # Concurrency
//! Each change of a file asks for this, so it is read without the lock of the group, which is held while a metaslab is
//! loaded. It changes with that lock. What is read while it changes may be partly new.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::metaslab::SpaceDelta;

/// Bytes in use by blocks, plus what is deferred; and the part that is deferred.
#[derive(Default)]
struct Count {
    alloc: AtomicU64,
    deferred: AtomicU64,
}

impl Count {
    fn get(&self) -> (u64, u64) {
        (self.alloc.load(Relaxed), self.deferred.load(Relaxed))
    }

    fn add(&self, delta: &SpaceDelta) {
        for (count, delta) in [(&self.alloc, delta.alloc), (&self.deferred, delta.deferred)] {
            let sum = count.load(Relaxed).checked_add_signed(delta);
            count.store(sum.expect("space accounting went below zero"), Relaxed);
        }
    }
}

/// As of the last sync.
pub(crate) struct Counts {
    all: Count,
    /// The part in the metaslab for log blocks.
    of_log: Count,
    /// ms_new: added in a txg that is not on disk yet
    is_new: AtomicBool,
}

impl Counts {
    /// Nothing is deferred.
    pub(crate) fn new(alloc: u64, log_alloc: u64, is_new: bool) -> Counts {
        let count = |alloc: u64| Count {
            alloc: alloc.into(),
            ..Count::default()
        };
        Counts {
            all: count(alloc),
            of_log: count(log_alloc),
            is_new: is_new.into(),
        }
    }

    /// Bytes in all metaslabs: allocated ones, and those of them that are deferred.
    pub(crate) fn all(&self) -> (u64, u64) {
        self.all.get()
    }

    /// The same in the metaslab for log blocks.
    pub(crate) fn of_log(&self) -> (u64, u64) {
        self.of_log.get()
    }

    /// The same in the others.
    pub(crate) fn of_data(&self) -> (u64, u64) {
        let (all, of_log) = (self.all(), self.of_log());
        (
            all.0.saturating_sub(of_log.0),
            all.1.saturating_sub(of_log.1),
        )
    }

    pub(crate) fn is_new(&self) -> bool {
        self.is_new.load(Relaxed)
    }

    /// The txg in which the vdev was added is on disk.
    pub(crate) fn note_synced(&self) {
        self.is_new.store(false, Relaxed);
    }

    /// Adds to what a metaslab has, which may be that for log blocks. The caller has the lock.
    pub(crate) fn add(&self, delta: &SpaceDelta, is_log: bool) {
        self.all.add(delta);
        if is_log {
            self.of_log.add(delta);
        }
    }
}
