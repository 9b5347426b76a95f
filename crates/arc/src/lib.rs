//! The adaptive replacement cache: logical blocks in memory, by identity.
//!
//! # What it is
//! [`Cache`] is a [`BlockStore`] in front of another one. It keeps the logical bytes of blocks that
//! were read or written lately, up to a number of bytes, and decides with the ARC policy
//! (`policy`) whether blocks used *recently* or blocks used *frequently* deserve the room.
//! Contents that who wrote them keeps as well ([`WriteRequest::kept_above`]) are not cached before they are read.
//! Blocks never change under their identity (first DVA and physical birth), except when a txg that
//! is being synced overwrites its own block in place: then the write replaces what is cached.
//! So nothing here is ever stale or dirty; dirty data lives in `dmu`, and counts against the limit here: both together
//! are what a pool takes of a computer's memory.
//!
//! # Invariants
//! 1. Cached bytes never exceed the limit by more than the block that is being inserted.
//! 2. A block is read from below at most once at a time: later readers wait for the first.
//! 3. What a write inserted wins over what a read of the same identity brings in later.
//! 4. Holes and embedded blocks are not cached: their pointer is all there is to read.
//!
//! # Concurrency
//! One lock over the policy, held for a hash lookup and a few list links; never during I/O. A
//! miss reads outside of it. Prefetch runs on threads of its own and gives up rather than wait.
//!
//! # Why not simpler
//! LRU is simpler, and one scan of a large file empties it. The page cache of the host knows
//! neither compression nor which block is freed.
//!
//! # Source
//! OpenZFS `module/zfs/arc.c`; N. Megiddo and D. Modha, "ARC: A Self-Tuning, Low Overhead
//! Replacement Cache" (FAST 2003).

mod kept;
pub mod l2;
mod policy;
mod prefetch;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Buf, Error, ErrorKind, ObjsetId, Result, SPA_MAXBLOCKSIZE, Txg};
use phys::{BlkPtrPhys, ChecksumType};
use policy::{Found, Passing, Pending, Policy, Reader};
use zio::{BlockStore, Bookmark, LogStore, NewLogBlock, Run, UnderWay, WriteRequest};

pub use policy::ArcBytes;

/// How large the cache is and how eager its prefetch.
#[derive(Clone, Copy, Debug)]
pub struct ArcSettings {
    /// `zfs_arc_max`: the most bytes of cached blocks. Larger blocks are not cached.
    pub limit_bytes: u64,
    /// For a cache that models another computer's memory: the most bytes that its blocks take of this one's. Those
    /// that compress well are kept packed, and what is too much all the same is evicted. `None`: blocks are kept as
    /// they are.
    pub real_bytes: Option<u64>,
    /// Whether blocks of file contents are cached when written.
    pub cache_written_data: bool,
    /// Threads that read ahead, for each top-level vdev, while devices keep them waiting; while reads
    /// are quick, at most as many in all as there are processors to spare.
    pub prefetch_threads: usize,
    /// Blocks that may wait to be read ahead; further ones are not prefetched.
    pub prefetch_backlog: usize,
}

impl Default for ArcSettings {
    fn default() -> Self {
        ArcSettings {
            limit_bytes: 256 << 20,
            real_bytes: None,
            cache_written_data: true,
            prefetch_threads: 4,
            prefetch_backlog: 4096,
        }
    }
}

/// What the cache did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArcStats {
    /// Reads answered from memory.
    pub hits: u64,
    /// Reads that waited for another one of the same block.
    pub joins: u64,
    /// Reads that went below.
    pub misses: u64,
    /// Misses of blocks that had been evicted not long ago.
    pub ghost_hits: u64,
    /// Blocks evicted.
    pub evictions: u64,
    /// Blocks evicted since they take more than [`ArcSettings::real_bytes`]: a real cache would have kept them.
    pub evictions_for_room: u64,
    /// What the cached blocks take of this computer's memory.
    pub real_bytes: u64,
    /// Blocks read ahead.
    pub prefetches: u64,
    /// Bytes cached now, by list.
    pub bytes: ArcBytes,
}

#[derive(Default)]
struct Counters {
    hits: AtomicU64,
    joins: AtomicU64,
    misses: AtomicU64,
    prefetches: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

struct Inner<S: ?Sized> {
    policy: rt::Mutex<Policy>,
    counters: Counters,
    ahead: prefetch::Queue,
    settings: ArcSettings,
    dirty_bytes: Arc<AtomicU64>,
    store: Arc<S>,
}

/// The cache; see the crate. `S` is the store below: for a pool, its pipeline.
#[doc(alias = "arc_t")]
pub struct Cache<S: ?Sized = dyn LogStore> {
    inner: Arc<Inner<S>>,
    /// Threads that read ahead, a queue for each top-level vdev; started when they are needed.
    queues: rt::Mutex<Vec<rt::TaskQueue>>,
}

impl<S: BlockStore + ?Sized + 'static> Cache<S> {
    /// An empty cache in front of `store`.
    #[must_use]
    pub fn new(store: Arc<S>, settings: ArcSettings) -> Self {
        let dirty_bytes = Arc::default();
        let inner = Inner {
            policy: rt::Mutex::new(Policy::new(
                settings.limit_bytes,
                Arc::clone(&dirty_bytes),
                kept::Room::new(settings.real_bytes),
            )),
            counters: Counters::default(),
            ahead: prefetch::Queue::default(),
            settings,
            dirty_bytes,
            store,
        };
        Cache {
            inner: Arc::new(inner),
            queues: rt::Mutex::default(),
        }
    }

    /// Checks the invariants of this crate.
    ///
    /// # Panics
    /// When it does not hold.
    pub fn check_invariants(&self) {
        self.inner.policy.lock().check_invariants();
    }

    /// The store below.
    #[must_use]
    pub fn store(&self) -> &Arc<S> {
        &self.inner.store
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> ArcStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.inner.counters;
        let policy = self.inner.policy.lock();
        let (real_bytes, evictions_for_room) = policy.room();
        ArcStats {
            real_bytes,
            evictions_for_room,
            hits: get(&counters.hits),
            joins: get(&counters.joins),
            misses: get(&counters.misses),
            prefetches: get(&counters.prefetches),
            ghost_hits: policy.ghost_hits(),
            evictions: policy.evictions(),
            bytes: policy.bytes(),
        }
    }

    /// How many bytes are dirty, which the pool sets. Blocks make room for them when the next one is cached, but for a
    /// quarter of the limit.
    #[must_use]
    #[doc(alias = "arc_anon")]
    pub fn dirty_bytes(&self) -> &Arc<AtomicU64> {
        &self.inner.dirty_bytes
    }

    /// Forgets everything, as if nothing had been read before: for export and for measurements.
    #[doc(alias = "arc_flush")]
    pub fn flush_cache(&self) {
        self.inner.policy.lock().clear();
    }

    /// Whether the block is in memory.
    #[must_use]
    pub fn is_cached(&self, bp: &BlkPtrPhys) -> bool {
        is_cacheable(bp) && self.inner.policy.lock().contains(bp)
    }
}

/// Whether the cache has anything to do with this block.
fn is_cacheable(bp: &BlkPtrPhys) -> bool {
    !bp.is_hole() && !bp.is_embedded() && bp.lsize() <= SPA_MAXBLOCKSIZE
}

/// Log blocks are written once and read after a crash only.
fn is_log(bp: &BlkPtrPhys) -> bool {
    let log = [ChecksumType::Zilog.raw(), ChecksumType::Zilog2.raw()];
    log.contains(&bp.checksum())
}

/// How far a read has come.
enum Begun {
    Read(Result<Buf>),
    /// Another thread reads the block.
    Joined(Arc<Pending>),
}

impl Begun {
    fn is_under_way(&self) -> bool {
        matches!(self, Begun::Joined(pending) if !pending.is_done())
    }

    fn end(self) -> Result<Buf> {
        match self {
            Begun::Read(result) => result,
            Begun::Joined(pending) => pending.wait(),
        }
    }
}

/// A read that others may wait for. Dropping it without a result (a panic) ends their wait.
struct Load<'a, S: BlockStore + ?Sized> {
    inner: &'a Inner<S>,
    bp: &'a BlkPtrPhys,
    pending: Arc<Pending>,
    result: Option<Result<Buf>>,
    reader: Reader,
}

impl<'a, S: BlockStore + ?Sized> Load<'a, S> {
    /// The read of `bp` that `pending` represents.
    fn new(inner: &'a Inner<S>, bp: &'a BlkPtrPhys, pending: Arc<Pending>, reader: Reader) -> Self {
        Load {
            inner,
            bp,
            pending,
            result: None,
            reader,
        }
    }

    /// Reads; returns what was read, or what a write has inserted meanwhile.
    fn run(mut self, read: impl FnOnce(&S) -> Result<Buf>) -> Result<Buf> {
        self.result = Some(read(&self.inner.store));
        let pending = self.pending.clone();
        drop(self);
        pending.wait()
    }
}

impl<S: BlockStore + ?Sized> Drop for Load<'_, S> {
    fn drop(&mut self) {
        let lost = || Err(Error::new(ErrorKind::Io, "a read ended without a result"));
        let result = self.result.take().unwrap_or_else(lost);
        let mut policy = self.inner.policy.lock();
        let result = policy.finish_load(self.bp, result, self.reader);
        drop(policy);
        self.pending.finish(result);
    }
}

impl<S: BlockStore + ?Sized> Inner<S> {
    /// Reads a block, or returns the read that another thread has begun.
    fn begin_read(&self, bp: &BlkPtrPhys, bookmark: &Bookmark, reader: Reader) -> Begun {
        if !is_cacheable(bp) || is_log(bp) || !self.policy.lock().fits(bp) {
            return Begun::Read(self.store.read(bp, bookmark));
        }
        let found = self.policy.lock().find_or_start(bp);
        match found {
            Found::Cached(buf) => {
                count(&self.counters.hits);
                Begun::Read(Ok(buf))
            }
            Found::Loading(pending) => {
                count(&self.counters.joins);
                Begun::Joined(pending)
            }
            Found::Other => {
                count(&self.counters.misses);
                Begun::Read(self.store.read(bp, bookmark))
            }
            Found::Start(pending) => {
                count(&self.counters.misses);
                let load = Load::new(self, bp, pending, reader);
                Begun::Read(load.run(|store| store.read(bp, bookmark)))
            }
        }
    }

    fn insert_written(&self, bps: &[BlkPtrPhys], data: Vec<Written>) {
        let mut policy = self.policy.lock();
        for (bp, written) in bps.iter().zip(data) {
            if !is_cacheable(bp) {
                continue;
            }
            if written.is_metadata {
                policy.insert_written(bp, written.buf, Passing::No);
            } else if self.settings.cache_written_data && !written.kept_above {
                let passing = policy.passing(written.run);
                policy.insert_written(bp, written.buf, passing);
            } else {
                policy.remove(bp);
            }
        }
    }
}

/// A block that is being written, until its pointer is known.
struct Written {
    buf: Buf,
    is_metadata: bool,
    run: Run,
    kept_above: bool,
}

impl Written {
    fn of(request: &WriteRequest) -> Written {
        let type_ = phys::ObjectType::try_from(request.object_type);
        Written {
            buf: request.data.clone().into(),
            is_metadata: request.level > 0 || type_.is_ok_and(phys::ObjectType::is_metadata),
            run: request.run,
            kept_above: request.kept_above,
        }
    }
}

impl<S: BlockStore + ?Sized + 'static> BlockStore for Cache<S> {
    fn read(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        let begun = self.inner.begin_read(bp, bookmark, Reader::default());
        begun.end()
    }

    /// Not cached where it differs from what is read with the key.
    fn read_keyless(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        match bp.is_encrypted() {
            true => self.inner.store.read_keyless(bp, bookmark),
            false => self.read(bp, bookmark),
        }
    }

    /// Blocks that another thread is reading are waited for last; the others are read meanwhile.
    fn read_run(&self, blocks: &[(BlkPtrPhys, Bookmark)], run: Run) -> Vec<Result<Buf>> {
        let reader = Reader {
            is_ahead: false,
            passing: self.inner.policy.lock().passing(run),
        };
        let begun: Vec<Begun> = blocks
            .iter()
            .map(|(bp, bookmark)| self.inner.begin_read(bp, bookmark, reader))
            .collect();
        let end = |begun: Begun| {
            if begun.is_under_way() {
                self.inner.read_meanwhile();
            }
            begun.end()
        };
        begun.into_iter().map(end).collect()
    }

    fn write_batch(&self, txg: Txg, requests: Vec<WriteRequest>) -> Result<Vec<BlkPtrPhys>> {
        let rewritten: Vec<BlkPtrPhys> = requests.iter().filter_map(|r| r.rewrite).collect();
        let data = requests.iter().map(Written::of).collect();
        let result = self.inner.store.write_batch(txg, requests);
        match &result {
            Ok(bps) => self.inner.insert_written(bps, data),
            Err(_) => {
                // Some blocks may have been overwritten in place before the error.
                let mut policy = self.inner.policy.lock();
                let old = rewritten.iter().filter(|bp| is_cacheable(bp));
                old.for_each(|bp| policy.remove(bp));
            }
        }
        result
    }

    fn begin_batch(
        &self,
        txg: Txg,
        requests: Vec<WriteRequest>,
        under_way: &mut UnderWay,
    ) -> Result<Vec<BlkPtrPhys>> {
        let data = requests.iter().map(Written::of).collect();
        let bps = self.inner.store.begin_batch(txg, requests, under_way)?;
        self.inner.insert_written(&bps, data);
        Ok(bps)
    }

    fn has_spare(&self) -> bool {
        self.inner.store.has_spare()
    }

    fn free(&self, txg: Txg, bp: &BlkPtrPhys) {
        if is_cacheable(bp) {
            self.inner.policy.lock().remove(bp);
        }
        self.inner.store.free(txg, bp);
    }

    fn prefetch(&self, objset: ObjsetId, bps: &[BlkPtrPhys]) {
        self.prefetch_run(objset, bps, Run::default());
    }

    fn prefetch_run(&self, objset: ObjsetId, bps: &[BlkPtrPhys], run: Run) {
        self.queue_reads(objset, bps, run);
    }

    fn prefetch_distance(&self) -> u64 {
        self.inner.ahead.distance()
    }

    fn forget(&self) {
        self.flush_cache();
        self.inner.store.forget();
    }
}

impl<S: LogStore + ?Sized + 'static> LogStore for Cache<S> {
    fn alloc_log(&self, new: &NewLogBlock) -> Result<BlkPtrPhys> {
        self.inner.store.alloc_log(new)
    }

    fn write_log(&self, bp: &BlkPtrPhys, data: Buf, bookmark: &Bookmark) -> Result<()> {
        self.inner.store.write_log(bp, data, bookmark)
    }

    fn read_log_keyless(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        self.inner.store.read_log_keyless(bp, bookmark)
    }

    fn read_log(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        self.inner.store.read_log(bp, bookmark)
    }

    fn claim(&self, txg: Txg, bp: &BlkPtrPhys) -> Result<()> {
        self.inner.store.claim(txg, bp)
    }

    fn flush_log(&self, blocks: &[BlkPtrPhys]) -> Result<()> {
        self.inner.store.flush_log(blocks)
    }
}
