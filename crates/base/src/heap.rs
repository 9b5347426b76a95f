//! How many bytes buffers have that are not slots: what keeps slots for reuse is told now and then.

use std::sync::atomic::{AtomicUsize, Ordering};

/// After how many bytes, taken or freed, it is told anew how many are in use.
const STEP_BYTES: usize = 1 << 20;

/// Bytes in use.
pub(crate) struct Heap {
    live: AtomicUsize,
}

impl Heap {
    pub(crate) const fn new() -> Heap {
        Heap {
            live: AtomicUsize::new(0),
        }
    }

    /// Counts a new buffer; returns how many bytes are in use when that is to be told.
    pub(crate) fn taken(&self, len: usize) -> Option<usize> {
        let before = self.live.fetch_add(len, Ordering::Relaxed);
        told(before, before + len)
    }

    /// Counts a freed buffer; returns how many bytes are in use when that is to be told.
    pub(crate) fn given(&self, len: usize) -> Option<usize> {
        let before = self.live.fetch_sub(len, Ordering::Relaxed);
        told(before, before - len)
    }
}

fn told(before: usize, live: usize) -> Option<usize> {
    (before / STEP_BYTES != live / STEP_BYTES).then_some(live)
}

#[cfg(test)]
mod tests {
    use super::*;

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
