//! Slots that are kept for reuse, with the pages they have.
//!
//! # What it is
//! A [`FreeList`] holds slots that buffers no longer use, by length. It is large enough for the buffers that come and
//! go at once: a batch of a txg is written, enters the cache, and evicts as many buffers from it. Where more of them
//! come and go, as the dirty data of a machine with much memory does with each txg, as many bytes are kept as were
//! in use lately and are not now. The peak of what was in use falls while buffers are handed out below it, and at once
//! when a cache is [gone](FreeList::forget). Buffers that are not slots count as in use, too: small ones may take
//! the room of large ones in a cache.
//!
//! # Invariants
//! 1. Buffers in use and kept slots are at most 96 MiB more than are in use, or 32 MiB more than were in use at once.

use std::collections::BTreeMap;
use std::ptr::NonNull;

use crate::slots::Slots;

/// Bytes that may be kept for reuse however few were in use lately.
const KEPT_MIN_BYTES: usize = 96 << 20;
/// Kept bytes above which a new slot of one length makes kept slots of other lengths be freed.
const OTHERS_BYTES: usize = 32 << 20;
/// The peak falls by one in this many of the bytes that are handed out below it.
const PEAK_FALL_SHARE: usize = 16;

/// A slot that no buffer uses.
pub(crate) struct Slot {
    pub(crate) len: usize,
    pub(crate) ptr: NonNull<u8>,
}

// SAFETY: memory without references to it may move between threads.
unsafe impl Send for Slot {}

/// Slots kept for reuse, by length. The last one freed is reused first, as it may still be in the
/// processor's cache.
pub(crate) struct FreeList {
    kept: BTreeMap<usize, Vec<Slot>>,
    kept_bytes: usize,
    /// Bytes of slots that are in use.
    live_bytes: usize,
    /// Bytes of other buffers, as they were last noted.
    other_bytes: usize,
    /// How many of both were in use lately.
    peak_bytes: usize,
    /// The allocator of the slots.
    pub(crate) slots: Slots,
}

impl FreeList {
    pub(crate) const fn new() -> FreeList {
        FreeList {
            kept: BTreeMap::new(),
            kept_bytes: 0,
            live_bytes: 0,
            other_bytes: 0,
            peak_bytes: 0,
            slots: Slots::new(),
        }
    }

    /// A kept slot, to be used.
    pub(crate) fn take(&mut self, len: usize) -> Option<NonNull<u8>> {
        let slot = self.remove(len)?;
        self.count(len);
        Some(slot.ptr)
    }

    /// Counts a new slot that is to be used. If many slots of other lengths are kept, and memory would rise above what
    /// it was lately, the demand has shifted to this length: as many bytes of those are taken out.
    #[must_use]
    pub(crate) fn make_way(&mut self, len: usize) -> Vec<Slot> {
        self.count(len);
        let mut gone = Vec::new();
        let mut gone_bytes = 0;
        while gone_bytes < len
            && self.kept_bytes > OTHERS_BYTES
            && self.used_bytes() + self.kept_bytes > self.peak_bytes
            && let Some(other) = self.remove_other(len)
        {
            gone_bytes += other.len;
            gone.push(other);
        }
        gone
    }

    /// Keeps a slot that was in use, and takes out what is too much then, of other lengths if there are any.
    #[must_use]
    pub(crate) fn put(&mut self, slot: Slot) -> Vec<Slot> {
        let len = slot.len;
        self.live_bytes -= len;
        self.kept_bytes += len;
        self.kept.entry(len).or_default().push(slot);
        self.remove_surplus(len)
    }

    /// Notes how many bytes other buffers have by now, and takes out what is too much then.
    #[must_use]
    pub(crate) fn note_others(&mut self, bytes: usize) -> Vec<Slot> {
        let taken = bytes.saturating_sub(self.other_bytes);
        self.other_bytes = bytes;
        self.raise_peak(taken);
        self.remove_surplus(0)
    }

    /// Takes out what is kept only because as much was in use lately.
    #[must_use]
    pub(crate) fn forget(&mut self) -> Vec<Slot> {
        self.peak_bytes = self.used_bytes();
        self.remove_surplus(0)
    }

    fn used_bytes(&self) -> usize {
        self.live_bytes + self.other_bytes
    }

    fn count(&mut self, len: usize) {
        self.live_bytes += len;
        self.raise_peak(len);
    }

    /// So many bytes were handed out.
    fn raise_peak(&mut self, bytes: usize) {
        let fallen = self.peak_bytes.saturating_sub(bytes / PEAK_FALL_SHARE);
        self.peak_bytes = fallen.max(self.used_bytes());
    }

    fn remove_surplus(&mut self, len: usize) -> Vec<Slot> {
        let lately = self.peak_bytes.saturating_sub(self.used_bytes());
        let most = KEPT_MIN_BYTES.max(lately);
        let mut gone = Vec::new();
        while self.kept_bytes > most
            && let Some(slot) = self.remove_other(len).or_else(|| self.remove(len))
        {
            gone.push(slot);
        }
        gone
    }

    /// Takes out a slot of a length other than `len`, as lengths fall out of use.
    fn remove_other(&mut self, len: usize) -> Option<Slot> {
        let mut others = self
            .kept
            .iter()
            .filter(|(other, list)| **other != len && !list.is_empty());
        let other = *others.next_back()?.0;
        self.remove(other)
    }

    fn remove(&mut self, len: usize) -> Option<Slot> {
        let slot = self.kept.get_mut(&len)?.pop()?;
        self.kept_bytes -= len;
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out slots without memory, and counts their bytes.
    struct Model {
        free: FreeList,
        used: Vec<usize>,
        used_bytes: usize,
        other_bytes: usize,
        kept_bytes: usize,
        most_used_bytes: usize,
    }

    impl Model {
        fn new() -> Model {
            Model {
                free: FreeList::new(),
                used: Vec::new(),
                used_bytes: 0,
                other_bytes: 0,
                kept_bytes: 0,
                most_used_bytes: 0,
            }
        }

        /// Returns whether the slot was used before.
        fn take(&mut self, len: usize) -> bool {
            let is_old = self.free.take(len).is_some();
            if is_old {
                self.kept_bytes -= len;
            } else {
                self.kept_bytes -= bytes(&self.free.make_way(len));
            }
            self.used.push(len);
            self.used_bytes += len;
            self.check(len);
            is_old
        }

        fn put(&mut self, at: usize) {
            let (len, ptr) = (self.used.swap_remove(at), NonNull::dangling());
            self.used_bytes -= len;
            let gone = self.free.put(Slot { len, ptr });
            self.kept_bytes = self.kept_bytes + len - bytes(&gone);
            self.check(0);
        }

        fn note_others(&mut self, bytes_now: usize) {
            self.other_bytes = bytes_now;
            self.kept_bytes -= bytes(&self.free.note_others(bytes_now));
            self.check(0);
        }

        fn check(&mut self, taken: usize) {
            assert_eq!(self.free.live_bytes, self.used_bytes);
            assert_eq!(self.free.kept_bytes, self.kept_bytes);
            let used = self.used_bytes + self.other_bytes;
            self.most_used_bytes = self.most_used_bytes.max(used);
            let most = (used + KEPT_MIN_BYTES).max(self.most_used_bytes + OTHERS_BYTES + taken);
            assert!(used + self.kept_bytes <= most);
        }
    }

    fn bytes(slots: &[Slot]) -> usize {
        slots.iter().map(|slot| slot.len).sum()
    }

    #[test]
    fn what_comes_and_goes_with_each_txg_is_kept() {
        let mut model = Model::new();
        (0..1000).for_each(|_| assert!(!model.take(1 << 20)));
        for _ in 0..20 {
            (0..900).for_each(|_| model.put(0));
            let reused = (0..900).filter(|_| model.take(1 << 20)).count();
            assert!(reused >= 840, "{reused}");
        }
    }

    #[test]
    fn what_is_used_no_longer_is_not_kept_for_long() {
        let mut model = Model::new();
        (0..1000).for_each(|_| assert!(!model.take(1 << 20)));
        (0..990).for_each(|_| model.put(0));
        assert_eq!(model.kept_bytes, 990 << 20);
        for _ in 0..16_000 {
            model.put(0);
            model.take(1 << 20);
        }
        assert!(model.kept_bytes <= KEPT_MIN_BYTES, "{}", model.kept_bytes);

        let reused = (0..500).filter(|_| model.take(1 << 20)).count();
        assert!(reused <= KEPT_MIN_BYTES >> 20, "{reused}");
        (0..500).for_each(|_| model.put(0));
        model.kept_bytes -= bytes(&model.free.forget());
        assert!(model.kept_bytes <= KEPT_MIN_BYTES, "{}", model.kept_bytes);
    }

    #[test]
    fn other_buffers_take_the_room_of_slots() {
        let mut model = Model::new();
        (0..256).for_each(|_| assert!(!model.take(1 << 20)));
        // As a cache does: each small block evicts as many bytes.
        for mib in 1..=256 {
            model.put(0);
            model.note_others(mib << 20);
        }
        assert_eq!(model.kept_bytes, KEPT_MIN_BYTES);
        // All slots are given back before other buffers come.
        let mut model = Model::new();
        (0..256).for_each(|_| assert!(!model.take(1 << 20)));
        (0..256).for_each(|_| model.put(0));
        assert_eq!(model.kept_bytes, 256 << 20);
        (1..=256).for_each(|mib| model.note_others(mib << 20));
        assert_eq!(model.kept_bytes, KEPT_MIN_BYTES);
    }

    #[test]
    fn memory_stays_where_it_was_however_lengths_change() {
        let mut model = Model::new();
        let mut state = 1_u64;
        let mut below = |most: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % most
        };
        for _ in 0..400 {
            let (first, count) = (14 + below(8), below(600));
            if below(3) == 0 {
                model.note_others(count << 19);
            }
            if below(2) == 0 {
                (0..count).for_each(|_| {
                    model.take(1 << (first + below(3)));
                });
            } else {
                let count = count.min(model.used.len());
                (0..count).for_each(|_| model.put(below(model.used.len())));
            }
        }
    }
}
