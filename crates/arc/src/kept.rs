//! The bytes of cached blocks, packed when a cache models more memory than it may take.
//!
//! # What it is
//! The cache of an emulated machine may be several times as large as what it may take of this computer's memory.
//! What programs write over and over compresses to a few bytes. So a block that was cached is kept as it is until
//! [`FRESH_BYTES_MAX`] of others have come after it, and is then packed if that is worth it; when it is found again,
//! it is unpacked and fresh once more. Another processor packs ([`rt::aside`]): a block is kept as it is until
//! [`PACKING_BYTES_MAX`] have come after it to be packed. [`Room`] counts what all of it takes.
//!
//! # Invariants
//! 1. Without a bound nothing is packed.
//! 2. What is counted is what the blocks take: the sum over them is `bytes`.

use std::collections::VecDeque;
use std::sync::Arc;

use base::{BlockBuf, Buf};
use compress::Algorithm;
use phys::CompressType;
use rt::Aside;

/// How many bytes of the blocks that came last are kept as they are: the working set of readers and writers.
const FRESH_BYTES_MAX: u64 = 64 << 20;
/// But at most one part in this many of what may be taken.
const FRESH_SHARE: u64 = 4;
/// How many bytes are being packed on another processor, at most: what it does while new ones come.
const PACKING_BYTES_MAX: u64 = 8 << 20;
/// But at most one part in this many of what may be taken.
const PACKING_SHARE: u64 = 16;
/// Smaller blocks are not worth packing.
const PACKED_LEN_MIN: usize = 4096;
/// A packed block takes at most this fraction.
const WORTH: usize = 4;

/// The bytes of a block.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    Plain(Buf),
    Packed { bytes: Arc<[u8]>, len: usize },
}

impl Kept {
    /// What it takes.
    fn bytes(&self) -> u64 {
        match self {
            Kept::Plain(buf) => buf.len() as u64,
            Kept::Packed { bytes, .. } => bytes.len() as u64,
        }
    }

    /// The block.
    pub(crate) fn buf(&self) -> Buf {
        match self {
            Kept::Plain(buf) => buf.clone(),
            Kept::Packed { bytes, len } => {
                let mut buf = BlockBuf::scratch(*len);
                compress::decompress(CompressType::Lz4, bytes, &mut buf)
                    .expect("it was packed by this process");
                buf.share()
            }
        }
    }
}

/// Packs a block, if that is worth it.
fn packed(buf: &Buf) -> Option<Arc<[u8]>> {
    let mut scratch = BlockBuf::scratch(buf.len() / WORTH);
    let len = compress::compress(Algorithm::Lz4, buf, &mut scratch)?;
    Some(scratch.get(..len).expect("no longer than its room").into())
}

/// A block among the fresh ones, by its entry and by when it came; the entry may hold another one by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fresh {
    pub(crate) at: u32,
    pub(crate) stamp: u64,
    len: u64,
}

/// A block that is being packed on another processor.
#[derive(Debug)]
struct Packing {
    block: Fresh,
    result: Aside<Option<Arc<[u8]>>>,
}

/// What the bytes of all blocks take, and which of them are fresh.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// The most bytes; `None`: no bound, and nothing is packed.
    bound: Option<u64>,
    bytes: u64,
    fresh: VecDeque<Fresh>,
    fresh_bytes: u64,
    /// Those that came before the fresh ones.
    packing: VecDeque<Packing>,
    packing_bytes: u64,
    next_stamp: u64,
    /// Blocks evicted because they take more than the bound.
    pub(crate) evictions: u64,
}

impl Room {
    pub(crate) fn new(bound: Option<u64>) -> Room {
        Room {
            bound,
            ..Room::default()
        }
    }

    /// An empty one with the same bound.
    pub(crate) fn emptied(&self) -> Room {
        Room {
            evictions: self.evictions,
            ..Room::new(self.bound)
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether `more` bytes are too many.
    pub(crate) fn is_exceeded_by(&self, more: u64) -> bool {
        self.bound.is_some_and(|bound| self.bytes + more > bound)
    }

    /// Counts a block that was cached, or unpacked, in an entry. Returns when it came.
    pub(crate) fn add(&mut self, at: u32, kept: &Kept) -> u64 {
        self.bytes += kept.bytes();
        self.next_stamp += 1;
        let (stamp, len) = (self.next_stamp, kept.bytes());
        if self.bound.is_some() {
            self.fresh.push_back(Fresh { at, stamp, len });
            self.fresh_bytes += len;
        }
        stamp
    }

    /// Counts a block that is gone.
    pub(crate) fn remove(&mut self, kept: &Kept) {
        self.bytes -= kept.bytes();
    }

    /// The oldest of the fresh blocks, if there are too many of them.
    pub(crate) fn stale(&mut self) -> Option<Fresh> {
        if self.fresh_bytes <= self.share(FRESH_SHARE).min(FRESH_BYTES_MAX) {
            return None;
        }
        let fresh = self.fresh.pop_front()?;
        self.fresh_bytes -= fresh.len;
        Some(fresh)
    }

    fn share(&self, parts: u64) -> u64 {
        self.bound.map_or(u64::MAX, |bound| bound / parts)
    }

    /// Begins to pack a block that is no longer fresh.
    pub(crate) fn pack(&mut self, block: Fresh, kept: &Kept) {
        let Kept::Plain(buf) = kept else { return };
        if buf.len() < PACKED_LEN_MIN {
            return;
        }
        let buf = buf.clone();
        self.packing_bytes += block.len;
        self.packing.push_back(Packing {
            block,
            result: rt::aside(move || packed(&buf)),
        });
    }

    /// The block that has been packed for longest, if enough others are, and its bytes if that was worth it.
    pub(crate) fn packed(&mut self) -> Option<(Fresh, Option<Arc<[u8]>>)> {
        if self.packing_bytes <= self.share(PACKING_SHARE).min(PACKING_BYTES_MAX) {
            return None;
        }
        let Packing { block, result } = self.packing.pop_front()?;
        self.packing_bytes -= block.len;
        Some((block, result.take()))
    }

    /// A block takes only its packed bytes from now on.
    pub(crate) fn replace(&mut self, kept: &mut Kept, bytes: Arc<[u8]>) {
        self.remove(kept);
        let Kept::Plain(buf) = kept else {
            unreachable!("it would have come anew");
        };
        let len = buf.len();
        *kept = Kept::Packed { bytes, len };
        self.bytes += kept.bytes();
    }
}
