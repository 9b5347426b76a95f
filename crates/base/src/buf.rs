//! Block buffers: bytes that are shared without copying and recycled without page faults.
//!
//! # What it is
//! A [`Buf`] is one block's bytes, shared by reference count between its writer, the cache
//! and the pipeline. [`Buf::make_mut`] copies only when there is another owner: this is
//! how a txg that is being synced keeps its bytes while the next one changes the block.
//!
//! # Why not simpler
//! A `Vec<u8>` of 128 KiB comes straight from the operating system: each time it costs a page fault
//! for each of its 32 pages, and a TLB shootdown on other processors when it is freed. Freed buffers
//! of such sizes are therefore kept for reuse (`recycle`), and new ones get all their pages in one call (`slots`).

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::heap::Heap;
use crate::recycle::{FreeList, Slot};
use crate::slots::{self, slot_len};

/// Alignment of buffers that are not slots, in bytes: what the allocator gives without being asked.
const ALIGN_BYTES: usize = 16;
/// Alignment in bytes that suffices for direct I/O to any disk.
const PAGE_BYTES: usize = 4096;
/// Bytes that an allocator may add to each buffer.
const MALLOC_HEAD_BYTES: usize = 16;
/// What it rounds up and keeps free: with buffers of many lengths, about 1/8 of their bytes.
const MALLOC_GAPS_SHARE: usize = 8;

/// Owned bytes of a fixed length. From 16 KiB to 16 MiB they are in slots, and begin at a page boundary.
pub struct BlockBuf {
    ptr: NonNull<u8>,
    /// Without what its slot is longer.
    len: usize,
    /// Alignment of the allocation, if it is not a slot.
    align: usize,
}

// SAFETY: a BlockBuf is the only owner of its memory, as a Box<[u8]> is.
unsafe impl Send for BlockBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for BlockBuf {}

static FREE: Mutex<FreeList> = Mutex::new(FreeList::new());

static HEAP: Heap = Heap::new();

fn free_list() -> MutexGuard<'static, FreeList> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn layout(len: usize, align: usize) -> Layout {
    Layout::from_size_align(len.max(1), align).expect("a block is far below isize::MAX")
}

/// Bytes of memory that a buffer of `len` bytes takes.
#[must_use]
pub fn footprint(len: usize) -> usize {
    slot_len(len).unwrap_or(len + len / MALLOC_GAPS_SHARE + MALLOC_HEAD_BYTES)
}

/// A buffer full of zeros that does not come from the free list.
fn fresh(len: usize, align: usize) -> BlockBuf {
    let raw = if let Some(slot_len) = slot_len(len) {
        let slot = fresh_slot(slot_len);
        slot.inspect(|slot| slots::fault_in(slot_len, *slot))
    } else {
        note_heap(HEAP.taken(len));
        // SAFETY: the layout has a non-zero size.
        NonNull::new(unsafe { alloc_zeroed(layout(len, align)) })
    };
    let ptr = raw.unwrap_or_else(|| handle_alloc_error(layout(len, align)));
    BlockBuf { ptr, len, align }
}

/// A slot that does not come from the free list.
fn fresh_slot(len: usize) -> Option<NonNull<u8>> {
    let mut free = free_list();
    let slot = free.slots.take(len);
    let gone = free.make_way(len);
    drop(free);
    discard(gone);
    slot
}

/// Gives back to the system what is kept for reuse, but for a little: a cache is gone, and what was in use lately will
/// not be needed again soon.
pub fn give_back() {
    let gone = free_list().forget();
    discard(gone);
}

/// Gives the memory of slots back to the system.
fn discard(gone: Vec<Slot>) {
    for Slot { len, ptr } in gone {
        slots::let_go_of(len, ptr);
        free_list().slots.put(len, ptr);
    }
}

/// Lets what is kept for reuse be fewer bytes, the more buffers come from `malloc`.
fn note_heap(told: Option<usize>) {
    if let Some(bytes) = told {
        let gone = free_list().note_others(bytes);
        discard(gone);
    }
}

fn recycled(len: usize) -> Option<BlockBuf> {
    let ptr = free_list().take(slot_len(len)?)?;
    Some(BlockBuf {
        ptr,
        len,
        align: PAGE_BYTES,
    })
}

impl BlockBuf {
    /// `len` bytes of zeros.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        match recycled(len) {
            Some(mut buf) => {
                buf.fill(0);
                buf
            }
            None => fresh(len, ALIGN_BYTES),
        }
    }

    /// `len` initialised bytes of unspecified content, for callers that overwrite all of them or read only those that
    /// they have written.
    #[must_use]
    pub fn scratch(len: usize) -> Self {
        recycled(len).unwrap_or_else(|| fresh(len, ALIGN_BYTES))
    }

    /// `len` bytes of zeros that begin at a page boundary, for direct I/O.
    #[must_use]
    pub fn paged(len: usize) -> Self {
        if slot_len(len).is_some() {
            Self::zeroed(len)
        } else {
            fresh(len, PAGE_BYTES)
        }
    }

    /// A copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        Self::padded(bytes.len(), 0, bytes)
    }

    /// `bytes` from `at` on, in `len` bytes that are zeros otherwise, which are not filled with zeros first.
    ///
    /// # Panics
    /// If they do not fit.
    #[must_use]
    pub fn padded(len: usize, at: usize, bytes: &[u8]) -> Self {
        assert!(
            at <= len && bytes.len() <= len - at,
            "{} bytes at {at} of {len}",
            bytes.len()
        );
        let end = at + bytes.len();
        if slot_len(len).is_some() {
            let mut buf = Self::scratch(len);
            buf[..at].fill(0);
            buf[at..end].copy_from_slice(bytes);
            buf[end..].fill(0);
            return buf;
        }
        note_heap(HEAP.taken(len));
        let layout = layout(len, ALIGN_BYTES);
        // SAFETY: the layout has a non-zero size.
        let raw = NonNull::new(unsafe { alloc(layout) });
        let ptr = raw.unwrap_or_else(|| handle_alloc_error(layout));
        // SAFETY: these are the `len` bytes that were just allocated, in three parts; `bytes` are others.
        unsafe {
            let to = ptr.as_ptr();
            to.write_bytes(0, at);
            to.add(at)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            to.add(end).write_bytes(0, len - end);
        }
        BlockBuf {
            ptr,
            len,
            align: ALIGN_BYTES,
        }
    }

    /// Turns the buffer into a shared, immutable one.
    #[must_use]
    pub fn share(self) -> Buf {
        Buf(Arc::new(self))
    }
}

impl Drop for BlockBuf {
    fn drop(&mut self) {
        let ptr = self.ptr;
        let Some(len) = slot_len(self.len) else {
            // SAFETY: allocated in `fresh` with this very layout, and no longer referred to.
            unsafe { dealloc(ptr.as_ptr(), layout(self.len, self.align)) };
            note_heap(HEAP.given(self.len));
            return;
        };
        let gone = free_list().put(Slot { len, ptr });
        discard(gone);
    }
}

impl Deref for BlockBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes that this value owns.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for BlockBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len` initialised bytes that this value owns, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Clone for BlockBuf {
    fn clone(&self) -> Self {
        Self::copy_of(self)
    }
}

impl fmt::Debug for BlockBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockBuf({} bytes)", self.len)
    }
}

/// A shared, immutable block; cloning is cheap.
#[derive(Clone, Debug)]
pub struct Buf(Arc<BlockBuf>);

impl Buf {
    /// `len` bytes of zeros.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        BlockBuf::zeroed(len).share()
    }

    /// A copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        BlockBuf::copy_of(bytes).share()
    }

    /// As [`BlockBuf::padded`].
    ///
    /// # Panics
    /// If `bytes` do not fit.
    #[must_use]
    pub fn padded(len: usize, at: usize, bytes: &[u8]) -> Self {
        BlockBuf::padded(len, at, bytes).share()
    }

    /// The bytes for writing; copies them first if the buffer has another holder.
    pub fn make_mut(&mut self) -> &mut [u8] {
        let block: &mut BlockBuf = Arc::make_mut(&mut self.0);
        block
    }

    /// A part of the block; it keeps the whole block in memory.
    ///
    /// # Panics
    /// If `range` is not within the block.
    #[must_use]
    pub fn slice(self, range: Range<usize>) -> BufSlice {
        assert!(
            range.start <= range.end && range.end <= self.len(),
            "{range:?} of {}",
            self.len()
        );
        BufSlice { buf: self, range }
    }

    /// Whether both are the same memory, not only equal.
    #[must_use]
    pub fn is_same(&self, other: &Buf) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// A part of a [`Buf`].
#[derive(Clone, Debug)]
pub struct BufSlice {
    buf: Buf,
    range: Range<usize>,
}

impl Deref for BufSlice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buf[self.range.clone()]
    }
}

impl From<BlockBuf> for Buf {
    fn from(buf: BlockBuf) -> Self {
        buf.share()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn make_mut_leaves_other_holders_alone() {
        let mut a = Buf::zeroed(131_072);
        let b = a.clone();
        a.make_mut()[7] = 1;
        assert_eq!((a[7], b[7]), (1, 0));
        assert!(!a.is_same(&b));
    }

    #[test]
    fn recycled_buffers_come_back_zeroed_when_asked() {
        let mut buf = BlockBuf::zeroed(65_536);
        buf.fill(0xff);
        drop(buf);
        assert!(BlockBuf::zeroed(65_536).iter().all(|b| *b == 0));
    }

    #[test]
    fn a_buffer_does_not_see_what_another_one_left_in_its_slot() {
        for (before, after) in [(40_000, 38_000), (38_000, 40_000), (131_072, 125_000)] {
            assert_eq!(footprint(before), footprint(after));
            let mut buf = BlockBuf::scratch(before);
            buf.fill(0xff);
            drop(buf);
            let buf = BlockBuf::zeroed(after);
            assert_eq!(buf.len(), after);
            assert!(buf.iter().all(|b| *b == 0), "{before}, then {after}");
        }
    }

    #[test]
    fn a_padded_buffer_has_zeros_around_its_bytes() {
        for len in [0, 1, 512, 5120, 16_384, 65_537] {
            // What the next ones may get.
            drop(BlockBuf::copy_of(&vec![0xff; len]));
            for (at, end) in [
                (0, len),
                (0, len / 2),
                (len / 3, len / 2),
                (len / 2, len),
                (len, len),
            ] {
                let buf = BlockBuf::padded(len, at, &vec![7; end - at]);
                let mut expected = vec![0; len];
                expected[at..end].fill(7);
                assert_eq!(buf[..], expected[..], "{at} to {end} of {len}");
            }
        }
    }

    #[test]
    fn buffers_of_every_length_are_aligned_and_zeroed() {
        for len in [
            0,
            1,
            512,
            4096,
            5120,
            33_280,
            65_536,
            65_537,
            1 << 20,
            17 << 20,
        ] {
            let buf = BlockBuf::zeroed(len);
            assert_eq!(buf.as_ptr() as usize % ALIGN_BYTES, 0, "{len}");
            assert!(buf.iter().all(|b| *b == 0), "{len}");
            let paged = BlockBuf::paged(len);
            assert_eq!(paged.as_ptr() as usize % PAGE_BYTES, 0, "{len}");
            assert!(paged.iter().all(|b| *b == 0), "{len}");
        }
    }
}
