//! The ARC policy: four lists, one adapting boundary.
//!
//! # What it is
//! Cached blocks are on one of two lists: MRU if they were used once since they were inserted, MFU if
//! they were used again. Each has a *ghost* list of blocks recently evicted from it, of which only the
//! identity is kept. A miss that hits the ghost of MRU means that MRU should have been larger;
//! `mru_target` grows at the expense of MFU. A hit on the other ghost moves it the other way. A long
//! scan passes through MRU and its ghost without touching what is used frequently.
//!
//! A *stream* that is longer than the cache would replace all of MRU and still find none of its own
//! blocks when it is read again. So its head is kept, and from then on its blocks are evicted as soon as
//! its reader has passed them: what was cached stays, and the same few buffers are reused. That takes no
//! more memory from the system, which would have to zero every page of it, and suits the processor's
//! caches. A stream that would fit the cache is treated like this only when room is needed.
//!
//! A block counts for the memory that it takes: its buffer and its bookkeeping here. For a block of 512
//! bytes that is twice its size or more. What is dirty counts as well: of that the cache is only told how much it is.
//!
//! # Invariants
//! 1. `mru + mfu`, and the bookkeeping of the ghosts, `<= limit` after every call.
//! 2. `mru + mru_ghost <= limit`, and all four lists together `<= 2 * limit`.
//! 3. An entry is on exactly one list; it has its bytes if and only if that is not a ghost list.
//! 4. What the blocks take of this computer's memory is within its bound (see `kept`), or one block is cached.
//!
//! # Source
//! OpenZFS `module/zfs/arc.c` (`arc_access`, `arc_adapt`, `arc_evict`); the FAST 2003 paper.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Buf, Error, Result};
use phys::BlkPtrPhys;
use phys::blkptr::BlkIdentity;
use zio::Run;

use crate::kept::{Kept, Room};

/// Bytes on each list: buffers and bookkeeping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArcBytes {
    /// Used once.
    pub mru: u64,
    /// Used more than once.
    pub mfu: u64,
    /// Evicted from MRU; not in memory.
    pub mru_ghost: u64,
    /// Evicted from MFU; not in memory.
    pub mfu_ghost: u64,
    /// `arc_p`: the size that MRU should have.
    pub mru_target: u64,
    /// `arc_c`: how large MRU and MFU together may be.
    pub limit: u64,
}

impl ArcBytes {
    /// Bytes in memory.
    #[must_use]
    pub fn cached(&self) -> u64 {
        self.mru + self.mfu
    }
}

/// A read in flight.
pub(crate) struct Pending {
    result: rt::OneShot<Result<Buf>>,
    /// A thread waits: changed under the policy's lock only.
    has_reader: AtomicBool,
}

/// How long to spin before sleeping: a block that is in the host's memory arrives sooner than a thread
/// can go to sleep and be woken.
const SPIN_NS: u64 = 50_000;

impl Pending {
    fn new() -> Arc<Self> {
        Arc::new(Pending {
            result: rt::OneShot::default(),
            has_reader: AtomicBool::new(false),
        })
    }

    pub(crate) fn finish(&self, result: Result<Buf>) {
        self.result.give(result);
    }

    pub(crate) fn is_done(&self) -> bool {
        self.result.is_given()
    }

    pub(crate) fn wait(&self) -> Result<Buf> {
        rt::spin(SPIN_NS, || self.is_done());
        self.result.wait(|result| match result {
            Ok(buf) => Ok(buf.clone()),
            Err(e) => Err(Error::new(e.kind(), e.to_string())),
        })
    }
}

/// The result of a lookup.
pub(crate) enum Found {
    /// The block.
    Cached(Buf),
    /// Another thread reads it.
    Loading(Arc<Pending>),
    /// Not cached: the caller reads it and then calls `finish_load`.
    Start(Arc<Pending>),
    /// A different block with this identity: one of the pointers is wrong. The caller reads it without
    /// caching it.
    Other,
}

/// Identities are spread evenly enough; a multiplication per word mixes them.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let mixed = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

type Map<V> = HashMap<BlkIdentity, V, BuildHasherDefault<IdentityHasher>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    Mru = 0,
    Mfu = 1,
    MruGhost = 2,
    MfuGhost = 3,
}

/// How a block is read: ahead or on demand, and in what kind of stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reader {
    /// Read ahead: the block was not asked for yet.
    pub(crate) is_ahead: bool,
    pub(crate) passing: Passing,
}

/// What happens to a block when its reader has passed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Passing {
    /// It stays.
    #[default]
    No,
    /// It is evicted before any other: part of a long stream.
    WhenFull,
    /// It is evicted: part of a stream that is longer than the cache.
    Always,
}

/// However much is dirty, one part in this many of the cache stays.
const LEAST_SHARE: u64 = 4;
/// A stream may take one part in this many of the cache; from then on it reuses its own room.
const STREAM_SHARE: u64 = 4;
/// What such a stream keeps behind its reader, as a record is often read piece by piece: this many
/// blocks, or [`PASSED_BYTES`] if that is more. Keeping more would only mean that buffers have left the
/// processors' shared cache before they are reused.
pub(crate) const PASSED_BLOCKS: usize = 16;
const PASSED_BYTES: u64 = 2 << 20;
/// But at most one part in this many of the cache, if that is more than one block.
const PASSED_SHARE: u64 = 16;

/// Bytes of bookkeeping for a block, cached or not: its [`Entry`], its place in the index, the head of
/// its buffer.
const ENTRY_BYTES: u64 = 256;

/// What a cached block of `len` bytes takes from memory.
pub(crate) fn charge(len: u64) -> u64 {
    let len = usize::try_from(len).unwrap_or(usize::MAX / 2);
    base::footprint(len) as u64 + ENTRY_BYTES
}

/// No entry.
const NIL: u32 = u32::MAX;

struct Entry {
    identity: BlkIdentity,
    cksum: [u64; 4],
    /// Of the block.
    len: u64,
    /// Of the block and its bookkeeping, in memory.
    size: u64,
    list: List,
    kept: Option<Kept>,
    /// When its bytes came, see [`Room`].
    stamp: u64,
    /// Read ahead, and not asked for yet.
    is_prefetched: bool,
    /// Part of a long stream.
    is_passing: bool,
    /// How many times blocks had been queued to be read ahead when it was last asked for, or written.
    asked: u64,
    newer: u32,
    older: u32,
}

/// A block that the reader of a long stream has passed; its entry may belong to another block by now.
struct Passed {
    at: u32,
    identity: BlkIdentity,
    size: u64,
}

#[derive(Clone, Copy)]
struct Ends {
    newest: u32,
    oldest: u32,
    bytes: u64,
    entries: u64,
}

impl Ends {
    const EMPTY: Ends = Ends {
        newest: NIL,
        oldest: NIL,
        bytes: 0,
        entries: 0,
    };
}

/// The lists and the entries on them.
pub(crate) struct Policy {
    limit: u64,
    /// See [`Cache::dirty_bytes`](crate::Cache::dirty_bytes).
    dirty_bytes: Arc<AtomicU64>,
    mru_target: u64,
    index: Map<u32>,
    loading: Map<Arc<Pending>>,
    entries: Vec<Entry>,
    unused: Vec<u32>,
    lists: [Ends; 4],
    /// Blocks of long streams that their readers have passed, the latest last.
    passed: VecDeque<Passed>,
    passed_bytes: u64,
    /// How many times blocks were queued to be read ahead.
    queued: u64,
    evictions: u64,
    ghost_hits: u64,
    room: Room,
}

impl Drop for Policy {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Policy {
    pub(crate) fn new(limit: u64, dirty_bytes: Arc<AtomicU64>, room: Room) -> Self {
        Policy {
            limit,
            dirty_bytes,
            mru_target: limit / 2,
            index: Map::default(),
            loading: Map::default(),
            entries: Vec::new(),
            unused: Vec::new(),
            lists: [Ends::EMPTY; 4],
            passed: VecDeque::new(),
            passed_bytes: 0,
            queued: 0,
            evictions: 0,
            ghost_hits: 0,
            room,
        }
    }

    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    pub(crate) fn ghost_hits(&self) -> u64 {
        self.ghost_hits
    }

    /// What the blocks take of this computer's memory, and how many of them were evicted for its sake.
    pub(crate) fn room(&self) -> (u64, u64) {
        (self.room.bytes(), self.room.evictions)
    }

    pub(crate) fn bytes(&self) -> ArcBytes {
        ArcBytes {
            mru: self.on(List::Mru),
            mfu: self.on(List::Mfu),
            mru_ghost: self.on(List::MruGhost),
            mfu_ghost: self.on(List::MfuGhost),
            mru_target: self.mru_target,
            limit: self.limit,
        }
    }

    /// Checks the invariants of the module.
    ///
    /// # Panics
    /// When it does not hold.
    pub(crate) fn check_invariants(&self) {
        let bytes = self.bytes();
        let all = bytes.cached() + bytes.mru_ghost + bytes.mfu_ghost;
        assert!(self.used() <= self.limit, "more than the limit: {bytes:?}");
        assert!(
            bytes.mru + bytes.mru_ghost <= self.limit,
            "MRU and its ghost: {bytes:?}"
        );
        assert!(all <= 2 * self.limit, "all four lists: {bytes:?}");
        let lists = [List::Mru, List::Mfu, List::MruGhost, List::MfuGhost];
        let listed: u64 = lists.into_iter().map(|list| self.check_list(list)).sum();
        assert_eq!(
            listed,
            self.index.len() as u64,
            "entries on the lists and in the index"
        );
        let passed: u64 = self.passed.iter().map(|passed| passed.size).sum();
        assert_eq!(self.passed_bytes, passed, "bytes that streams left behind");
        self.check_room();
    }

    /// Checks what is counted of this computer's memory.
    ///
    /// # Panics
    /// When it does not hold.
    pub(crate) fn check_room(&self) {
        let mut room = self.room.emptied();
        let kept = self.entries.iter().filter_map(|entry| entry.kept.as_ref());
        let blocks = kept.map(|kept| room.add(0, kept)).count();
        assert_eq!(room.bytes(), self.room.bytes(), "bytes of the blocks");
        assert!(
            blocks <= 1 || !self.room.is_exceeded_by(0),
            "more than there is room for"
        );
    }

    /// Checks a list; returns the number of its entries.
    fn check_list(&self, list: List) -> u64 {
        let Ends {
            newest,
            oldest,
            bytes,
            entries,
        } = self.lists[list as usize];
        let has_buf = matches!(list, List::Mru | List::Mfu);
        let (mut at, mut before, mut sum, mut count) = (newest, NIL, 0, 0);
        while at != NIL {
            let entry = &self.entries[at as usize];
            assert_eq!(
                (entry.list, entry.newer),
                (list, before),
                "entry {at} of {list:?}"
            );
            assert_eq!(
                entry.kept.is_some(),
                has_buf,
                "bytes of entry {at} of {list:?}"
            );
            assert_eq!(
                self.index.get(&entry.identity),
                Some(&at),
                "index of entry {at}"
            );
            (sum, count) = (sum + entry.size, count + 1);
            (before, at) = (at, entry.older);
        }
        assert_eq!((oldest, bytes, entries), (before, sum, count), "{list:?}");
        count
    }

    pub(crate) fn clear(&mut self) {
        self.index.clear();
        self.entries.clear();
        self.unused.clear();
        self.passed.clear();
        self.passed_bytes = 0;
        self.room = self.room.emptied();
        self.lists = [Ends::EMPTY; 4];
        self.mru_target = self.limit / 2;
        base::give_back();
    }

    pub(crate) fn contains(&self, bp: &BlkPtrPhys) -> bool {
        let at = self.index.get(&bp.identity());
        at.is_some_and(|at| self.entries[*at as usize].kept.is_some())
    }

    /// Whether reading the block ahead would change anything.
    pub(crate) fn wants(&self, bp: &BlkPtrPhys) -> bool {
        let is_known = self.contains(bp) || self.loading.contains_key(&bp.identity());
        self.fits(bp) && !is_known
    }

    /// Whether the block may be cached at all.
    pub(crate) fn fits(&self, bp: &BlkPtrPhys) -> bool {
        charge(bp.lsize()) <= self.limit
    }

    /// Looks a block up as a reader does.
    #[doc(alias = "arc_access")]
    pub(crate) fn find_or_start(&mut self, bp: &BlkPtrPhys) -> Found {
        let identity = bp.identity();
        if let Some(&at) = self.index.get(&identity) {
            let entry = &mut self.entries[at as usize];
            if entry.kept.is_some() {
                if entry.cksum != bp.cksum_words() || entry.len != bp.lsize() {
                    return Found::Other;
                }
                let was_prefetched = std::mem::take(&mut entry.is_prefetched);
                entry.asked = self.queued;
                // The first demand read of what was read ahead counts as its first use.
                let list = if was_prefetched {
                    entry.list
                } else {
                    List::Mfu
                };
                if was_prefetched && entry.is_passing {
                    self.note_passed(at);
                }
                self.move_to(at, list);
                return Found::Cached(self.freshen(at));
            }
        }
        if let Some(pending) = self.loading.get(&identity) {
            pending.has_reader.store(true, Ordering::Relaxed);
            return Found::Loading(pending.clone());
        }
        let pending = Pending::new();
        self.loading.insert(identity, pending.clone());
        Found::Start(pending)
    }

    /// Blocks are queued to be read ahead; returns the number of this queueing.
    pub(crate) fn queue(&mut self) -> u64 {
        self.queued += 1;
        self.queued
    }

    /// Begins to read a block ahead, unless it is in memory, or its reader was faster: it may be gone again since.
    pub(crate) fn start_prefetch(&mut self, bp: &BlkPtrPhys, queued: u64) -> Option<Arc<Pending>> {
        let asked = |at: &u32| self.entries[*at as usize].asked;
        let is_late = self.index.get(&bp.identity()).map(asked) >= Some(queued);
        if is_late || !self.wants(bp) {
            return None;
        }
        let pending = Pending::new();
        self.loading.insert(bp.identity(), pending.clone());
        Some(pending)
    }

    /// Ends what `Found::Start` began. Returns what readers should get.
    pub(crate) fn finish_load(
        &mut self,
        bp: &BlkPtrPhys,
        result: Result<Buf>,
        mut reader: Reader,
    ) -> Result<Buf> {
        let identity = bp.identity();
        if let Some(pending) = self.loading.remove(&identity)
            && pending.has_reader.load(Ordering::Relaxed)
        {
            reader.is_ahead = false;
        }
        if let Some(&at) = self.index.get(&identity) {
            let entry = &self.entries[at as usize];
            if let Some(written) = &entry.kept
                && entry.cksum == bp.cksum_words()
            {
                return Ok(written.buf());
            }
        }
        let buf = result?;
        self.insert(bp, buf.clone(), reader);
        Ok(buf)
    }

    /// `passing`: the writer's.
    pub(crate) fn insert_written(&mut self, bp: &BlkPtrPhys, buf: Buf, passing: Passing) {
        let reader = Reader {
            is_ahead: false,
            passing,
        };
        self.insert(bp, buf, reader);
    }

    fn insert(&mut self, bp: &BlkPtrPhys, buf: Buf, reader: Reader) {
        let identity = bp.identity();
        let len = buf.len() as u64;
        let size = charge(len);
        let mut list = List::Mru;
        if let Some(&at) = self.index.get(&identity) {
            list = match self.entries[at as usize].list {
                List::MruGhost => {
                    self.adapt(List::MruGhost, size);
                    List::Mfu
                }
                List::MfuGhost => {
                    self.adapt(List::MfuGhost, size);
                    List::Mfu
                }
                cached => cached,
            };
            self.remove_at(at);
        }
        if size > self.most() {
            return;
        }
        if reader.passing == Passing::Always {
            while let Some(victim) = self.take_passed() {
                self.evict(victim);
            }
        }
        self.make_room(size, list == List::Mfu);
        self.make_real_room(len);
        let is_passing = reader.passing != Passing::No;
        let entry = Entry {
            identity,
            cksum: bp.cksum_words(),
            len,
            size,
            list,
            kept: None,
            stamp: 0,
            is_prefetched: reader.is_ahead,
            is_passing,
            asked: if reader.is_ahead { 0 } else { self.queued },
            newer: NIL,
            older: NIL,
        };
        let at = if let Some(at) = self.unused.pop() {
            self.entries[at as usize] = entry;
            at
        } else {
            self.entries.push(entry);
            u32::try_from(self.entries.len() - 1).expect("memory for 4 billion entries")
        };
        self.index.insert(identity, at);
        self.link(at, list);
        self.keep(at, Kept::Plain(buf));
        if is_passing && !reader.is_ahead {
            self.note_passed(at);
        }
        self.trim_ghosts();
    }

    /// The bytes of a cached block, which counts as fresh again if it was packed.
    fn freshen(&mut self, at: u32) -> Buf {
        let entry = &mut self.entries[at as usize];
        let kept = entry.kept.as_ref().expect("a cached block");
        let buf = kept.buf();
        if matches!(kept, Kept::Packed { .. }) {
            self.drop_bytes(at);
            self.make_real_room_beside(at, buf.len() as u64);
            self.keep(at, Kept::Plain(buf.clone()));
        }
        buf
    }

    /// Gives an entry its bytes, and packs what is no longer fresh.
    fn keep(&mut self, at: u32, kept: Kept) {
        let entry = &mut self.entries[at as usize];
        entry.stamp = self.room.add(at, &kept);
        entry.kept = Some(kept);
        while let Some(stale) = self.room.stale() {
            let entry = &self.entries[stale.at as usize];
            if entry.stamp == stale.stamp
                && let Some(kept) = &entry.kept
            {
                self.room.pack(stale, kept);
            }
        }
        while let Some((packed, bytes)) = self.room.packed() {
            let entry = &mut self.entries[packed.at as usize];
            if entry.stamp == packed.stamp
                && let (Some(kept), Some(bytes)) = (&mut entry.kept, bytes)
            {
                self.room.replace(kept, bytes);
            }
        }
    }

    fn drop_bytes(&mut self, at: u32) {
        if let Some(kept) = self.entries[at as usize].kept.take() {
            self.room.remove(&kept);
        }
    }

    /// Evicts until `more` bytes are within the bound on this computer's memory: the oldest blocks, of the list that
    /// is longer.
    fn make_real_room(&mut self, more: u64) {
        self.make_real_room_beside(NIL, more);
    }

    /// As [`Policy::make_real_room`], but one entry stays.
    fn make_real_room_beside(&mut self, stays: u32, more: u64) {
        while self.room.is_exceeded_by(more) {
            let is_mru = self.on(List::Mru) > self.on(List::Mfu);
            let lists = match is_mru {
                true => [List::Mru, List::Mfu],
                false => [List::Mfu, List::Mru],
            };
            let victims = lists.into_iter().filter_map(|list| self.oldest(list));
            let Some(victim) = victims.into_iter().find(|victim| *victim != stays) else {
                return;
            };
            self.room.evictions += 1;
            self.evict(victim);
        }
    }

    /// Moves the boundary after a ghost was hit: by the size of the block, more if the other
    /// ghost list is longer.
    #[doc(alias = "arc_adapt")]
    fn adapt(&mut self, ghost: List, size: u64) {
        self.ghost_hits += 1;
        let (mru, mfu) = (
            self.on(List::MruGhost).max(1),
            self.on(List::MfuGhost).max(1),
        );
        if ghost == List::MruGhost {
            let step = size.saturating_mul((mfu / mru).max(1));
            self.mru_target = self.mru_target.saturating_add(step).min(self.limit);
        } else {
            let step = size.saturating_mul((mru / mfu).max(1));
            self.mru_target = self.mru_target.saturating_sub(step);
        }
    }

    /// Evicts until `size` more bytes fit.
    #[doc(alias = "arc_evict")]
    fn make_room(&mut self, size: u64, is_for_mfu: bool) {
        while self.used() + size > self.most() {
            if let Some(victim) = self.take_passed() {
                self.evict(victim);
                continue;
            }
            let mru = self.on(List::Mru);
            let is_over = mru > self.mru_target || (is_for_mfu && mru == self.mru_target);
            let victim = match (self.oldest(List::Mru), self.oldest(List::Mfu)) {
                (Some(mru), Some(mfu)) => {
                    if is_over {
                        mru
                    } else {
                        mfu
                    }
                }
                (Some(only), None) | (None, Some(only)) => only,
                (None, None) => return,
            };
            self.evict(victim);
        }
    }

    /// How many bytes may be in memory beside what is dirty.
    fn most(&self) -> u64 {
        let dirty = self.dirty_bytes.load(Ordering::Relaxed);
        let least = self.limit / LEAST_SHARE;
        self.limit.saturating_sub(dirty).max(least)
    }

    /// Bytes in memory.
    fn used(&self) -> u64 {
        let ghosts = [List::MruGhost, List::MfuGhost].map(|list| self.lists[list as usize].entries);
        self.on(List::Mru) + self.on(List::Mfu) + ghosts.iter().sum::<u64>() * ENTRY_BYTES
    }

    /// How to treat the next block of a run.
    pub(crate) fn passing(&self, run: Run) -> Passing {
        if run.bytes <= self.limit / STREAM_SHARE {
            Passing::No
        } else if run.object_bytes <= self.limit {
            Passing::WhenFull
        } else {
            Passing::Always
        }
    }

    /// Records that a reader has passed a block of a long stream.
    fn note_passed(&mut self, at: u32) {
        let entry = &self.entries[at as usize];
        let (identity, size) = (entry.identity, entry.size);
        self.passed.push_back(Passed { at, identity, size });
        self.passed_bytes += size;
    }

    fn has_passed_too_many(&self) -> bool {
        let (blocks, bytes) = (self.passed.len(), self.passed_bytes);
        (blocks > PASSED_BLOCKS && bytes > PASSED_BYTES)
            || (blocks > 1 && bytes > self.limit / PASSED_SHARE)
    }

    /// Takes the oldest block that the reader of a long stream has passed, unless only the last few are
    /// left.
    fn take_passed(&mut self) -> Option<u32> {
        while self.has_passed_too_many() {
            let Passed { at, identity, size } = self.passed.pop_front()?;
            self.passed_bytes -= size;
            let entry = &self.entries[at as usize];
            if entry.identity == identity && entry.list == List::Mru && entry.kept.is_some() {
                return Some(at);
            }
        }
        None
    }

    fn evict(&mut self, at: u32) {
        self.evictions += 1;
        self.drop_bytes(at);
        let entry = &mut self.entries[at as usize];
        let ghost = match entry.list {
            List::Mru => List::MruGhost,
            List::Mfu => List::MfuGhost,
            ghost => unreachable!("{ghost:?} has no bytes to evict"),
        };
        self.move_to(at, ghost);
    }

    fn trim_ghosts(&mut self) {
        while self.on(List::Mru) + self.on(List::MruGhost) > self.limit {
            let Some(at) = self.oldest(List::MruGhost) else {
                break;
            };
            self.remove_at(at);
        }
        while self.lists.iter().map(|l| l.bytes).sum::<u64>() > 2 * self.limit {
            let Some(at) = self.oldest(List::MfuGhost) else {
                break;
            };
            self.remove_at(at);
        }
    }

    /// Forgets a block that was freed.
    pub(crate) fn remove(&mut self, bp: &BlkPtrPhys) {
        if let Some(&at) = self.index.get(&bp.identity()) {
            self.remove_at(at);
        }
    }

    fn on(&self, list: List) -> u64 {
        self.lists[list as usize].bytes
    }

    fn oldest(&self, list: List) -> Option<u32> {
        let at = self.lists[list as usize].oldest;
        (at != NIL).then_some(at)
    }

    fn remove_at(&mut self, at: u32) {
        self.unlink(at);
        self.drop_bytes(at);
        let entry = &mut self.entries[at as usize];
        let identity = entry.identity;
        self.index.remove(&identity);
        self.unused.push(at);
    }

    fn move_to(&mut self, at: u32, list: List) {
        self.unlink(at);
        self.link(at, list);
    }

    fn link(&mut self, at: u32, list: List) {
        let ends = &mut self.lists[list as usize];
        let entry = &mut self.entries[at as usize];
        entry.list = list;
        entry.newer = NIL;
        entry.older = ends.newest;
        ends.bytes += entry.size;
        ends.entries += 1;
        let second = std::mem::replace(&mut ends.newest, at);
        if second == NIL {
            ends.oldest = at;
        } else {
            self.entries[second as usize].newer = at;
        }
    }

    fn unlink(&mut self, at: u32) {
        let entry = &self.entries[at as usize];
        let (list, size, newer, older) = (entry.list, entry.size, entry.newer, entry.older);
        let ends = &mut self.lists[list as usize];
        ends.bytes -= size;
        ends.entries -= 1;
        if newer == NIL {
            ends.newest = older;
        } else {
            self.entries[newer as usize].older = older;
        }
        let ends = &mut self.lists[list as usize];
        if older == NIL {
            ends.oldest = newer;
        } else {
            self.entries[older as usize].newer = newer;
        }
    }
}
