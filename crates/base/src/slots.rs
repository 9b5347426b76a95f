//! Memory for buffers of 16 KiB to 16 MiB: faulted in with one call, given back without being unmapped.
//!
//! # What it is
//! Such a buffer is in a *slot*: the shortest one that is long enough, of eight lengths between two powers of two, all
//! of them whole pages. Slots are cut one after the other from regions mapped from the operating system. The pages of
//! a slot are faulted in with one call when it is taken. A slot that is given back keeps its addresses, but its memory
//! goes back to the system; when taken again, it is full of zeros.
//!
//! # Invariants
//! 1. A slot that was never handed out, or was given back, reads as zeros.
//! 2. Only the slots that are handed out occupy memory.
//!
//! # Why not simpler
//! `malloc` maps and unmaps each 128 KiB buffer, and takes a fault for each 4 KiB in it. Huge pages
//! would take one fault per 2 MiB, but a virtual machine may have to get each of them from its host,
//! while it has small ones at hand: measured, that took several times as long. Blocks of files that are shorter than a
//! record, and compressed ones, have ever other lengths: `malloc` searches long for them, and keeps what is between
//! them.

use std::collections::BTreeMap;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The shortest slot, in bytes; for shorter buffers the usual allocator is good enough.
const SLOT_MIN_BYTES: usize = 16 << 10;
/// The longest slot, in bytes: the largest block.
const SLOT_MAX_BYTES: usize = 16 << 20;
/// The length of every slot is a multiple of this: a page.
const STEP_MIN_BYTES: usize = 4096;
/// A slot is at most one part in this many longer than a buffer needs, or a page.
const STEPS_PER_DOUBLING: usize = 8;
/// Bytes mapped at a time.
const REGION_BYTES: usize = 64 << 20;

const _: () = assert!(REGION_BYTES.is_multiple_of(SLOT_MAX_BYTES));

/// The length of the slot for a buffer of `len` bytes; `None` if it is not in one.
pub(crate) fn slot_len(len: usize) -> Option<usize> {
    if !cfg!(target_os = "linux") || !(SLOT_MIN_BYTES..=SLOT_MAX_BYTES).contains(&len) {
        return None;
    }
    let step = len.next_power_of_two() / (2 * STEPS_PER_DOUBLING);
    Some(len.next_multiple_of(step.max(STEP_MIN_BYTES)))
}

/// A piece of memory without references to it.
#[derive(Clone, Copy)]
struct Piece {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: memory without references to it may move between threads.
unsafe impl Send for Piece {}

impl Piece {
    /// Cuts off the first `len` bytes.
    fn cut(&mut self, len: usize) -> Option<NonNull<u8>> {
        if self.len < len {
            return None;
        }
        let first = self.start;
        // SAFETY: the piece has `len` bytes, so their end is within the mapping or just past it.
        self.start = unsafe { first.add(len) };
        self.len -= len;
        Some(first)
    }
}

/// All slots that are not in use.
pub(crate) struct Slots {
    /// Slots that were given back, by length.
    idle: BTreeMap<usize, Vec<Piece>>,
    /// The unused rest of the latest region.
    region: Option<Piece>,
}

impl Slots {
    pub(crate) const fn new() -> Slots {
        Slots {
            idle: BTreeMap::new(),
            region: None,
        }
    }

    /// A slot full of zeros; `None` if no region can be mapped.
    pub(crate) fn take(&mut self, len: usize) -> Option<NonNull<u8>> {
        debug_assert_eq!(slot_len(len), Some(len), "slot of {len} bytes");
        if let Some(piece) = self.idle.get_mut(&len).and_then(Vec::pop) {
            return Some(piece.start);
        }
        if let Some(slot) = self.region.as_mut().and_then(|region| region.cut(len)) {
            return Some(slot);
        }
        // The rest of the old region is lost, but was never touched: it costs addresses, not memory.
        self.region.insert(map_region()?).cut(len)
    }

    /// Takes back a slot whose memory was [let go](let_go_of).
    pub(crate) fn put(&mut self, len: usize, start: NonNull<u8>) {
        debug_assert_eq!(slot_len(len), Some(len), "slot of {len} bytes");
        let idle = self.idle.entry(len).or_default();
        idle.push(Piece { start, len });
    }
}

fn map_region() -> Option<Piece> {
    let len = REGION_BYTES;
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at addresses of the system's choice.
    let raw = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, prot, flags) };
    let start = NonNull::new(raw.ok()?.cast::<u8>())?;
    Some(Piece { start, len })
}

/// Faults in all pages of a slot. The caller must be the only owner of the slot.
pub(crate) fn fault_in(len: usize, start: NonNull<u8>) {
    // Systems without this advice fault in each page on first use.
    advise(start, len, Advice::LinuxPopulateWrite);
}

/// Gives the memory of a slot back to the system, and keeps its addresses. The caller must be the
/// only owner of the slot.
pub(crate) fn let_go_of(len: usize, start: NonNull<u8>) {
    if !advise(start, len, Advice::LinuxDontNeed) {
        // SAFETY: the caller is the only owner of these `len` bytes.
        unsafe { start.write_bytes(0, len) };
    }
}

/// Returns whether the system took the advice.
fn advise(start: NonNull<u8>, len: usize, advice: Advice) -> bool {
    debug_assert_eq!(slot_len(len), Some(len), "slot of {len} bytes");
    // SAFETY: a slot is within one of this module's mappings, and there is no other reference to its
    // content, which may therefore become zeros.
    unsafe { rustix::mm::madvise(start.as_ptr().cast(), len, advice) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<'a>(start: NonNull<u8>, len: usize) -> &'a mut [u8] {
        // SAFETY: a slot that this test has taken, and uses only here.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) }
    }

    #[test]
    fn slots_do_not_overlap_and_come_back_as_zeros() {
        let mut slots = Slots::new();
        let lens = [65_536, 131_072, 1 << 20, 16 << 20];
        let mut taken = Vec::new();
        for (n, len) in lens.iter().cycle().take(80).enumerate() {
            let slot = slots.take(*len).unwrap();
            let content = bytes(slot, *len);
            assert!(content.iter().step_by(511).all(|b| *b == 0), "slot {n}");
            content[0] = n as u8;
            content[len - 1] = n as u8;
            taken.push((slot, *len));
        }
        for (n, (slot, len)) in taken.iter().enumerate() {
            let content = bytes(*slot, *len);
            assert_eq!((content[0], content[len - 1]), (n as u8, n as u8));
            assert_eq!(slot.as_ptr() as usize % 4096, 0);
        }
        for (slot, len) in taken {
            let_go_of(len, slot);
            slots.put(len, slot);
        }
        let again = slots.take(131_072).unwrap();
        assert!(bytes(again, 131_072).iter().all(|b| *b == 0));
    }

    #[test]
    fn slots_are_whole_pages_and_little_longer_than_needed() {
        for len in (SLOT_MIN_BYTES..1 << 20)
            .step_by(509)
            .chain([1 << 20, SLOT_MAX_BYTES])
        {
            let slot = slot_len(len).unwrap();
            assert!(slot >= len && slot.is_multiple_of(4096), "{len}: {slot}");
            assert!(slot - len < (len / 8).max(4096), "{len}: {slot}");
            assert_eq!(slot_len(slot), Some(slot));
        }
        assert_eq!(slot_len(131_072), Some(131_072));
        assert_eq!(slot_len(SLOT_MIN_BYTES - 1), None);
        assert_eq!(slot_len(SLOT_MAX_BYTES + 1), None);
    }
}
