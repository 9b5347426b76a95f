//! Block buffers: bytes that are shared without copying and recycled without page faults.
//!
//! # What it is
//! A [`Buf`] is one block's bytes, shared by reference count between its writer, the cache
//! and the pipeline. [`Buf::make_mut`] copies only when there is another owner: this is
//! how a txg that is being synced keeps its bytes while the next one changes the block.
//!
//! # Why not simpler
//! A `Vec<u8>` of 128 KiB comes straight from the operating system and pays a page fault for each
//! of its 32 pages, every time, and for taking them from other processors' TLBs when it goes. Freed
//! buffers of such sizes therefore wait in a free list, which is as large as what comes and goes at
//! once: a batch of a txg is written, enters the cache, and pushes as many buffers out of it. New ones
//! of the usual lengths get all their pages at one go (`slots`).

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::heap::{self, Heap};
use crate::slots::{self, Slots, is_slot_len};

/// Alignment of buffers that are not slots, in bytes. It is what `malloc` gives of itself: asked for more,
/// it cannot put a buffer where one of the same length was before.
const ALIGN_BYTES: usize = 16;
/// What direct I/O to any disk asks for.
const PAGE_BYTES: usize = 4096;
/// What `malloc` takes for itself.
const MALLOC_HEAD_BYTES: usize = 16;
/// Of what `malloc` gives, about one part in so many lies idle between buffers of many lengths.
const MALLOC_GAPS_SHARE: usize = 8;
/// The most bytes that wait for reuse.
const RECYCLE_MAX_TOTAL_BYTES: usize = 96 << 20;
/// The most bytes that may go on waiting when buffers of another length are needed.
const RECYCLE_OTHERS_BYTES: usize = 32 << 20;

/// Owned bytes of a fixed length. Slots (a power of two from 64 KiB to 16 MiB) lie at page boundaries.
pub struct BlockBuf {
    ptr: NonNull<u8>,
    len: usize,
    /// Of what `malloc` gave.
    align: usize,
}

// SAFETY: a BlockBuf owns its memory alone, as a Box<[u8]> does.
unsafe impl Send for BlockBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for BlockBuf {}

/// Slots that wait, by length, the latest last: it may still be in the processor's cache.
struct FreeList {
    buffers: BTreeMap<usize, Vec<Recycled>>,
    total_bytes: usize,
    /// Where they come from and go to.
    slots: Slots,
}

impl FreeList {
    fn take(&mut self, len: usize) -> Option<NonNull<u8>> {
        let Recycled(ptr) = self.buffers.get_mut(&len)?.pop()?;
        self.total_bytes -= len;
        Some(ptr)
    }

    /// Keeps a buffer; answers false when there are enough.
    fn put(&mut self, len: usize, ptr: NonNull<u8>) -> bool {
        if self.total_bytes + len > RECYCLE_MAX_TOTAL_BYTES {
            return false;
        }
        self.total_bytes += len;
        self.buffers.entry(len).or_default().push(Recycled(ptr));
        true
    }

    /// Takes out a buffer of another length than `len`: lengths come out of use.
    fn take_other(&mut self, len: usize) -> Option<(usize, NonNull<u8>)> {
        let mut others = self
            .buffers
            .iter()
            .filter(|(other, list)| **other != len && !list.is_empty());
        let other = *others.next_back()?.0;
        Some((other, self.take(other)?))
    }
}

struct Recycled(NonNull<u8>);
// SAFETY: memory that nobody refers to may move between threads.
unsafe impl Send for Recycled {}

static FREE: Mutex<FreeList> = Mutex::new(FreeList {
    buffers: BTreeMap::new(),
    total_bytes: 0,
    slots: Slots::new(),
});

static HEAP: Heap = Heap::new();

fn free_list() -> MutexGuard<'static, FreeList> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn layout(len: usize, align: usize) -> Layout {
    Layout::from_size_align(len.max(1), align).expect("a block is far below isize::MAX")
}

/// What a buffer of `len` bytes takes from memory.
#[must_use]
pub fn footprint(len: usize) -> usize {
    if is_slot_len(len) {
        len
    } else {
        len + len / MALLOC_GAPS_SHARE + MALLOC_HEAD_BYTES
    }
}

/// Memory full of zeros that was not used before.
fn fresh(len: usize, align: usize) -> BlockBuf {
    let raw = if is_slot_len(len) {
        let slot = fresh_slot(len);
        slot.inspect(|slot| slots::fault_in(len, *slot))
    } else {
        HEAP.taken(len);
        // SAFETY: the layout has a non-zero size.
        NonNull::new(unsafe { alloc_zeroed(layout(len, align)) })
    };
    let ptr = raw.unwrap_or_else(|| handle_alloc_error(layout(len, align)));
    BlockBuf { ptr, len, align }
}

/// A slot that was not used before. The length that is in demand has changed when many others wait: as
/// many bytes of those go.
fn fresh_slot(len: usize) -> Option<NonNull<u8>> {
    let mut free = free_list();
    let slot = free.slots.take(len);
    let mut gone = Vec::new();
    let mut gone_bytes = 0;
    while gone_bytes < len
        && free.total_bytes > RECYCLE_OTHERS_BYTES
        && let Some(other) = free.take_other(len)
    {
        gone_bytes += other.0;
        gone.push(other);
    }
    drop(free);
    for (len, ptr) in gone {
        discard_slot(len, ptr);
    }
    slot
}

/// Gives the memory of a slot back to the system.
fn discard_slot(len: usize, ptr: NonNull<u8>) {
    slots::let_go_of(len, ptr);
    free_list().slots.put(len, ptr);
}

fn recycled(len: usize) -> Option<BlockBuf> {
    if !is_slot_len(len) {
        return None;
    }
    let ptr = free_list().take(len)?;
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

    /// `len` initialised bytes of unspecified content, for callers that overwrite all of them.
    #[must_use]
    pub fn scratch(len: usize) -> Self {
        recycled(len).unwrap_or_else(|| fresh(len, ALIGN_BYTES))
    }

    /// `len` bytes of zeros that begin at a page boundary, for direct I/O.
    #[must_use]
    pub fn paged(len: usize) -> Self {
        if is_slot_len(len) {
            Self::zeroed(len)
        } else {
            fresh(len, PAGE_BYTES)
        }
    }

    /// A copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = Self::scratch(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Shares the buffer from here on.
    #[must_use]
    pub fn share(self) -> Buf {
        Buf(Arc::new(self))
    }
}

impl Drop for BlockBuf {
    fn drop(&mut self) {
        let (ptr, len) = (self.ptr, self.len);
        if !is_slot_len(len) {
            // SAFETY: allocated in `fresh` with this very layout, and not referred to any more.
            unsafe { dealloc(ptr.as_ptr(), layout(len, self.align)) };
            if HEAP.given(len) {
                heap::trim();
            }
            return;
        }
        let mut free = free_list();
        if free.put(len, ptr) {
            return;
        }
        // One of another length goes instead, if there is one.
        let goes = match free.take_other(len) {
            Some(other) if free.put(len, ptr) => other,
            Some((other_len, other)) => {
                free.put(other_len, other);
                (len, ptr)
            }
            None => (len, ptr),
        };
        drop(free);
        discard_slot(goes.0, goes.1);
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

    /// The bytes for writing; copies them first if anyone else holds this buffer.
    pub fn make_mut(&mut self) -> &mut [u8] {
        let block: &mut BlockBuf = Arc::make_mut(&mut self.0);
        block
    }

    /// A part of the block; the whole of it stays in memory with it.
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

    /// Whether both are the very same memory.
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

    #[test]
    fn the_free_list_is_bounded_and_lets_other_lengths_go() {
        let mut free = FreeList {
            buffers: BTreeMap::new(),
            total_bytes: 0,
            slots: Slots::new(),
        };
        let (len, ptr) = (1 << 20, NonNull::dangling());
        while free.put(len, ptr) {}
        assert_eq!(free.total_bytes, RECYCLE_MAX_TOTAL_BYTES);
        assert!(free.take_other(len).is_none());
        assert_eq!(free.take_other(2 << 20).map(|(other, _)| other), Some(len));
        assert_eq!(free.total_bytes, RECYCLE_MAX_TOTAL_BYTES - len);
        assert!(free.take(2 << 20).is_none() && free.take(len).is_some());
    }
}
