//! Making `malloc` give back the memory of freed buffers.
//!
//! # What it is
//! Buffers that are not slots come from `malloc`, which gives memory back to the system only from the
//! end of its heap. If larger blocks replaced a cache full of small ones, the memory of those would
//! never be given back. So the bytes in such buffers are counted, and when they have fallen far below
//! their maximum, `malloc` is told to give back every free page. What keeps slots for reuse is told how many they are.
//!
//! # Concurrency
//! Two counters; if several threads see the fall at the same moment, one of them trims.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes by which the use has to fall before a trim; large enough that the rise and fall with every
/// txg does not trim each time.
const FALL_BYTES: usize = 32 << 20;

/// After how many bytes, taken or freed, it is told anew how many are in use.
const STEP_BYTES: usize = 1 << 20;

/// Bytes in use, and their maximum since the last trim.
pub(crate) struct Heap {
    live: AtomicUsize,
    most: AtomicUsize,
    /// Threads that free much at once.
    falling: AtomicUsize,
}

impl Heap {
    pub(crate) const fn new() -> Heap {
        Heap {
            live: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            falling: AtomicUsize::new(0),
        }
    }

    /// Counts a new buffer; returns how many bytes are in use when that is to be told.
    pub(crate) fn taken(&self, len: usize) -> Option<usize> {
        let before = self.live.fetch_add(len, Ordering::Relaxed);
        let live = before + len;
        self.most.fetch_max(live, Ordering::Relaxed);
        told(before, live)
    }

    /// Counts a freed buffer; returns how many bytes are in use when that is to be told.
    pub(crate) fn given(&self, len: usize) -> Option<usize> {
        let before = self.live.fetch_sub(len, Ordering::Relaxed);
        told(before, before - len)
    }

    /// Whether to trim, after a buffer was freed. Not while much is freed at once: each trim goes over all free pages.
    pub(crate) fn has_fallen(&self) -> bool {
        self.falling.load(Ordering::Relaxed) == 0 && self.falls()
    }

    /// Frees much at once; returns whether to trim then.
    pub(crate) fn fall(&self, free: impl FnOnce()) -> bool {
        self.falling.fetch_add(1, Ordering::Relaxed);
        free();
        self.falling.fetch_sub(1, Ordering::Relaxed);
        self.has_fallen()
    }

    fn falls(&self) -> bool {
        let live = self.live.load(Ordering::Relaxed);
        let most = self.most.load(Ordering::Relaxed);
        let order = Ordering::Relaxed;
        most.saturating_sub(live) > FALL_BYTES
            && self.most.compare_exchange(most, live, order, order).is_ok()
    }
}

fn told(before: usize, live: usize) -> Option<usize> {
    (before / STEP_BYTES != live / STEP_BYTES).then_some(live)
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

    /// Frees a buffer; returns whether to trim.
    fn given(heap: &Heap, len: usize) -> bool {
        heap.given(len);
        heap.has_fallen()
    }

    #[test]
    fn a_fall_is_noticed_once() {
        let heap = Heap::new();
        heap.taken(FALL_BYTES);
        heap.taken(FALL_BYTES);
        assert!(!given(&heap, FALL_BYTES));
        assert!(given(&heap, 1));
        assert!(!given(&heap, 1));
        assert!(!given(&heap, FALL_BYTES - 2));
        heap.taken(10);
        assert!(!given(&heap, 10));
    }

    #[test]
    fn much_that_is_freed_at_once_is_one_fall() {
        let heap = Heap::new();
        heap.taken(4 * FALL_BYTES);
        assert!(heap.fall(|| (0..3).for_each(|_| assert!(!given(&heap, FALL_BYTES)))));
        assert!(!heap.fall(|| assert!(!given(&heap, 10))));
    }

    #[test]
    fn how_many_bytes_are_in_use_is_told_now_and_then() {
        let heap = Heap::new();
        let told = (0..1000).filter_map(|_| heap.taken(STEP_BYTES / 100));
        let told: Vec<usize> = told.collect();
        assert_eq!(told.len(), 9);
        assert!(
            told.iter()
                .zip(1..)
                .all(|(bytes, n)| bytes / STEP_BYTES == n)
        );
        let told = (0..1000).filter_map(|_| heap.given(STEP_BYTES / 100));
        assert_eq!(told.count(), 9);
        assert_eq!(heap.taken(2 * STEP_BYTES), Some(2 * STEP_BYTES));
    }
}
