//! Block buffers: page-aligned bytes, shared without copying, recycled without page faults.
//!
//! # What it is
//! A [`Buf`] is one block's bytes, shared by reference count between whoever wrote it, the cache
//! and the pipeline. [`Buf::make_mut`] copies only when someone else still looks at it: this is
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

use crate::slots::{self, Slots, is_slot_len};

/// Alignment of every buffer in bytes: what direct I/O to any disk asks for.
const ALIGN_BYTES: usize = 4096;
/// Buffers of at least this many bytes are recycled.
const RECYCLE_MIN_BYTES: usize = 32 << 10;
/// The most bytes that wait for reuse.
const RECYCLE_MAX_TOTAL_BYTES: usize = 96 << 20;

/// Owned, page-aligned bytes of a fixed length.
pub struct BlockBuf {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: a BlockBuf owns its memory alone, as a Box<[u8]> does.
unsafe impl Send for BlockBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for BlockBuf {}

/// Buffers that wait, by length, the latest last: it may still be in the processor's cache.
struct FreeList {
    buffers: BTreeMap<usize, Vec<Recycled>>,
    total_bytes: usize,
    /// Where buffers of the usual lengths come from and go to.
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

fn free_list() -> MutexGuard<'static, FreeList> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn layout(len: usize) -> Layout {
    Layout::from_size_align(len.max(1), ALIGN_BYTES).expect("a block is far below isize::MAX")
}

/// Memory full of zeros that was not used before.
fn fresh(len: usize) -> NonNull<u8> {
    let raw = if is_slot_len(len) {
        let slot = free_list().slots.take(len);
        slot.inspect(|slot| slots::fault_in(len, *slot))
    } else {
        // SAFETY: the layout has a non-zero size.
        NonNull::new(unsafe { alloc_zeroed(layout(len)) })
    };
    raw.unwrap_or_else(|| handle_alloc_error(layout(len)))
}

/// Gives memory from [`fresh`] back to the system.
fn discard(len: usize, ptr: NonNull<u8>) {
    if is_slot_len(len) {
        slots::let_go_of(len, ptr);
        free_list().slots.put(len, ptr);
        return;
    }
    // SAFETY: allocated in `fresh` with this very layout, and not referred to any more.
    unsafe { dealloc(ptr.as_ptr(), layout(len)) }
}

fn recycled(len: usize) -> Option<BlockBuf> {
    if len < RECYCLE_MIN_BYTES {
        return None;
    }
    let ptr = free_list().take(len)?;
    Some(BlockBuf { ptr, len })
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
            None => BlockBuf {
                ptr: fresh(len),
                len,
            },
        }
    }

    /// `len` initialised bytes of unspecified content, for callers that overwrite all of them.
    #[must_use]
    pub fn scratch(len: usize) -> Self {
        recycled(len).unwrap_or_else(|| BlockBuf {
            ptr: fresh(len),
            len,
        })
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
        Buf(Arc::new(Shared {
            bytes: self,
            fletcher4: None,
        }))
    }

    /// Shares the buffer whose bytes were summed while they came in: nobody has to go through them
    /// again, and what happens to them in memory from then on is noticed.
    #[must_use]
    pub fn share_summed(self, fletcher4: [u64; 4]) -> Buf {
        Buf(Arc::new(Shared {
            bytes: self,
            fletcher4: Some(fletcher4),
        }))
    }
}

impl Drop for BlockBuf {
    fn drop(&mut self) {
        let (mut ptr, mut len) = (self.ptr, self.len);
        if len >= RECYCLE_MIN_BYTES {
            let mut free = free_list();
            if free.put(len, ptr) {
                return;
            }
            // One of another length goes instead, if there is one.
            if let Some(other) = free.take_other(len) {
                if free.put(len, ptr) {
                    (len, ptr) = other;
                } else {
                    free.put(other.0, other.1);
                }
            }
        }
        discard(len, ptr);
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
pub struct Buf(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bytes: BlockBuf,
    /// Summed by whoever filled the buffer; of all bytes.
    fletcher4: Option<[u64; 4]>,
}

impl Clone for Shared {
    /// For whoever is about to change the copy.
    fn clone(&self) -> Self {
        Shared {
            bytes: self.bytes.clone(),
            fletcher4: None,
        }
    }
}

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
        let shared = Arc::make_mut(&mut self.0);
        shared.fletcher4 = None;
        &mut shared.bytes
    }

    /// The fletcher4 of all bytes, if it is known.
    #[must_use]
    pub fn fletcher4(&self) -> Option<[u64; 4]> {
        self.0.fletcher4
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
        &self.0.bytes
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
    fn a_sum_is_forgotten_when_the_bytes_may_change() {
        let mut a = BlockBuf::zeroed(512).share_summed([1, 2, 3, 4]);
        let mut b = a.clone();
        assert_eq!(b.fletcher4(), Some([1, 2, 3, 4]));
        b.make_mut()[0] = 1;
        assert_eq!((a.fletcher4(), b.fletcher4()), (Some([1, 2, 3, 4]), None));
        a.make_mut();
        assert_eq!(a.fletcher4(), None);
    }

    #[test]
    fn recycled_buffers_come_back_zeroed_when_asked() {
        let mut buf = BlockBuf::zeroed(65_536);
        buf.fill(0xff);
        drop(buf);
        assert!(BlockBuf::zeroed(65_536).iter().all(|b| *b == 0));
        assert_eq!(BlockBuf::zeroed(65_536).as_ptr() as usize % ALIGN_BYTES, 0);
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
