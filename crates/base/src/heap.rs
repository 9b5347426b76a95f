//! What `malloc` keeps of freed buffers.
//!
//! # What it is
//! Buffers that are not slots come from `malloc`, which gives memory back to the system only from the end
//! of its heap. A cache full of small blocks whose place larger ones take would stay in memory for good.
//! So the bytes in such buffers are counted, and when they have fallen far below what they were,
//! `malloc` is told to give back every page that is free.
//!
//! # Concurrency
//! Two counters; of all threads that see the fall at the same moment, one trims.

use std::sync::atomic::{AtomicUsize, Ordering};

/// By how many bytes the use has to fall: it goes up and down with every txg.
const FALL_BYTES: usize = 32 << 20;

/// Bytes in use, and the most since they were trimmed last.
pub(crate) struct Heap {
    live: AtomicUsize,
    most: AtomicUsize,
}

impl Heap {
    pub(crate) const fn new() -> Heap {
        Heap {
            live: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        }
    }

    pub(crate) fn taken(&self, len: usize) {
        let live = self.live.fetch_add(len, Ordering::Relaxed) + len;
        self.most.fetch_max(live, Ordering::Relaxed);
    }

    /// Answers whether it is time to trim.
    pub(crate) fn given(&self, len: usize) -> bool {
        let live = self.live.fetch_sub(len, Ordering::Relaxed) - len;
        let most = self.most.load(Ordering::Relaxed);
        let order = Ordering::Relaxed;
        most.saturating_sub(live) > FALL_BYTES
            && self.most.compare_exchange(most, live, order, order).is_ok()
    }
}

/// Has `malloc` give back what is free. Others than glibc's do so by themselves.
pub(crate) fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: glibc's, and free of conditions.
        unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fall_is_noticed_once() {
        let heap = Heap::new();
        heap.taken(FALL_BYTES);
        heap.taken(FALL_BYTES);
        assert!(!heap.given(FALL_BYTES));
        assert!(heap.given(1));
        assert!(!heap.given(1));
        assert!(!heap.given(FALL_BYTES - 2));
        heap.taken(10);
        assert!(!heap.given(10));
    }
}
