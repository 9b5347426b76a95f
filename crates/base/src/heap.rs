//! Making `malloc` give back the memory of freed buffers.
//!
//! # What it is
//! Buffers that are not slots come from `malloc`, which gives memory back to the system only from the
//! end of its heap. If larger blocks replaced a cache full of small ones, the memory of those would
//! never be given back. So the bytes in such buffers are counted, and when they have fallen far below
//! their maximum, `malloc` is told to give back every free page.
//!
//! # Concurrency
//! Two counters; if several threads see the fall at the same moment, one of them trims.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes by which the use has to fall before a trim; large enough that the rise and fall with every
/// txg does not trim each time.
const FALL_BYTES: usize = 32 << 20;

/// Bytes in use, and their maximum since the last trim.
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

    /// Counts a freed buffer; returns whether the caller should trim.
    pub(crate) fn given(&self, len: usize) -> bool {
        let live = self.live.fetch_sub(len, Ordering::Relaxed) - len;
        let most = self.most.load(Ordering::Relaxed);
        let order = Ordering::Relaxed;
        most.saturating_sub(live) > FALL_BYTES
            && self.most.compare_exchange(most, live, order, order).is_ok()
    }
}

/// Makes glibc's `malloc` give back all free pages. Other allocators do so by themselves.
pub(crate) fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: a function of glibc without preconditions.
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
