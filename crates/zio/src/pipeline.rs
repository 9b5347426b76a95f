//! The pipeline: from logical blocks to device writes and back.
//!
//! # What it is
//! [`Pipeline`] is the [`BlockStore`] of a pool. A batch of writes passes these stages, named as in
//! ZFS:
//!
//! | stage | where it runs | what happens |
//! |---|---|---|
//! | write compress | all cores (`encode`) | zeros become holes, data is compressed or embedded |
//! | checksum generate | all cores (`encode`) | over the physical bytes with their zero padding |
//! | ddt write | one thread, in order | what is stored already is referred to (`dedup`) |
//! | dva allocate | one thread, in order | places for all copies; if none is large enough, gangs (`gang`) |
//! | vdev io start | helper threads (`issue`) | neighbours merged, several writes in flight |
//! | done | the caller | all DVAs are in the pointers; errors give the space back |
//!
//! A large batch goes through in *waves*, so that a block is still in the processor's cache when
//! it is written, and devices work while the next wave is being compressed. Reads are in `read`.
//!
//! # Invariants
//! 1. The order of allocations is the order of requests: the same batch gives the same layout,
//!    whatever the number of cores.
//! 2. When `write_batch` or `begin_batch` returns an error, everything it allocated has been given back
//!    and none of its writes is in flight. After success, writes of `begin_batch` stay in flight until
//!    they are waited for or dropped.
//! 3. A block is overwritten in place only if it was born in the same txg that is being written, so no
//!    uberblock on disk leads to it.
//!
//! # Crash argument
//! Everything is written to space that no uberblock on disk refers to (3.), and becomes reachable only
//! when the next uberblock is written, after a flush.
//!
//! # Concurrency
//! No lock of its own. Any number of batches, reads and frees may run at once.
//!
//! # Why not simpler
//! docs/decisions/0001-blocking-pipeline.md compares with a state machine for each I/O.
//!
//! # Source
//! OpenZFS `module/zfs/zio.c`, `include/sys/zio_impl.h` (the stages).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base::{Buf, ErrorKind, ObjsetId, Result, Txg, VdevId};
use phys::zil::ZIL_ZC_OBJSET;
use phys::{BlkPtrPhys, ChecksumType, DvaPhys, ObjectType};

use crate::dedup::{Counted, Shared, joined};
use crate::encode::{self, Encoded, Physical, Pool};
use crate::error_log::ErrorLog;
use crate::gang::{GangWrite, HeaderSizes, Placed};
use crate::issue::{Flight, Issuer, Write};
use crate::{
    AllocClass, Allocator, BlockStore, Bookmark, Dedup, DedupTables, Hint, Keys, LogStore,
    NewLogBlock, Priority, SecondLevel, Suspend, UnderWay, VdevOps, WriteRequest, eck, log,
};

/// Logical bytes in a wave, at most, unless a single block is larger.
const WAVE_BYTES: usize = 4 << 20;
/// Requests in a wave, at most.
const WAVE_REQUESTS: usize = 1024;
/// Bytes that one core takes at a time; blocks with nothing left to compute do not count.
const CHUNK_BYTES: usize = 256 << 10;

/// What a pipeline begins with.
#[derive(Clone, Copy, Debug)]
pub struct PipelineSettings {
    /// The salt of the pool for keyed checksums; zeros when it has none.
    pub salt: [u8; 32],
    /// Whether holes record the txg in which they were punched (feature `hole_birth`).
    pub hole_birth: bool,
    /// Whether gang headers may be larger than 512 bytes (feature `dynamic_gang_header` active); see
    /// [`Pipeline::use_dynamic_gang_headers`].
    pub dynamic_gang_headers: bool,
    /// Whether bad copies are repaired; off for read-only imports.
    pub heal: bool,
    /// Helper threads, each with one device write in flight.
    pub io_threads: usize,
    /// `zfs_vdev_aggregation_limit`: the largest write that neighbours are merged into.
    pub aggregation_limit_bytes: u64,
}

impl Default for PipelineSettings {
    fn default() -> Self {
        PipelineSettings {
            salt: [0; 32],
            hole_birth: true,
            dynamic_gang_headers: false,
            heal: true,
            io_threads: 8,
            aggregation_limit_bytes: 1 << 20,
        }
    }
}

/// Counters of a pipeline since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipelineStats {
    /// Blocks read from devices.
    pub reads: u64,
    /// Their physical bytes.
    pub read_bytes: u64,
    /// Blocks that were allocated.
    pub writes: u64,
    /// Their physical bytes, each copy counted once.
    pub written_bytes: u64,
    /// Blocks that became holes or were embedded in their pointer.
    pub placeless: u64,
    /// Blocks that were stored already ([`DedupTables`]).
    pub shared: u64,
    /// Blocks overwritten in place.
    pub rewrites: u64,
    /// Blocks written behind ([`UnderWay::behind`]).
    pub behind: u64,
    /// Gang blocks written.
    pub gangs: u64,
    /// DVAs repaired from another DVA.
    pub healed: u64,
    /// Gang blocks whose space could not be given back, since their header is lost.
    pub leaked_gangs: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    placeless: AtomicU64,
    shared: AtomicU64,
    rewrites: AtomicU64,
    behind: AtomicU64,
    gangs: AtomicU64,
    healed: AtomicU64,
    leaked_gangs: AtomicU64,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn count_read(&self, bytes: u64) {
        add(&self.reads, 1);
        add(&self.read_bytes, bytes);
    }

    pub(crate) fn count_heal(&self) {
        add(&self.healed, 1);
    }
}

/// What checking every copy of a block found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhysicalReport {
    /// Physical bytes read, each copy counted.
    pub bytes: u64,
    /// Copies, at any layer, that could not be read or did not match.
    pub bad: u32,
    /// How many of those were repaired.
    pub repaired: u32,
    /// Bytes written to devices for that.
    pub repaired_bytes: u64,
}

/// The I/O pipeline of one pool; see the module.
pub struct Pipeline {
    pub(crate) vdevs: Arc<dyn VdevOps>,
    pub(crate) alloc: Arc<dyn Allocator>,
    pub(crate) settings: PipelineSettings,
    pub(crate) checksums: checksum::Templates,
    pub(crate) stats: Counters,
    pub(crate) errors: ErrorLog,
    suspend: Arc<OnceLock<Arc<dyn Suspend>>>,
    pub(crate) second: OnceLock<Arc<dyn SecondLevel>>,
    pub(crate) dedup: OnceLock<Arc<dyn DedupTables>>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) headers: HeaderSizes,
    issuer: Issuer,
}

impl Pipeline {
    /// A pipeline over the vdevs and the free space of a pool.
    #[must_use]
    pub fn new(
        vdevs: Arc<dyn VdevOps>,
        alloc: Arc<dyn Allocator>,
        settings: PipelineSettings,
    ) -> Self {
        let suspend: Arc<OnceLock<Arc<dyn Suspend>>> = Arc::default();
        Pipeline {
            issuer: Issuer::new(
                vdevs.clone(),
                Arc::clone(&suspend),
                settings.io_threads,
                settings.aggregation_limit_bytes,
            ),
            vdevs,
            alloc,
            checksums: checksum::Templates::new(&settings.salt),
            settings,
            stats: Counters::default(),
            errors: ErrorLog::default(),
            second: OnceLock::new(),
            dedup: OnceLock::new(),
            keys: Arc::default(),
            headers: HeaderSizes::new(settings.dynamic_gang_headers),
            suspend,
        }
    }

    /// Sets the policy for I/O that fails on every copy. Without one, such I/O returns its error at
    /// once, as it should while a pool is being opened.
    ///
    /// # Panics
    /// When it was set before.
    pub fn set_suspend(&self, suspend: Arc<dyn Suspend>) {
        assert!(self.suspend.set(suspend).is_ok(), "it is set once");
    }

    /// Sets the second-level cache: blocks are looked for there before they are read from the pool. The first one
    /// that is set stays.
    pub fn set_second(&self, second: Arc<dyn SecondLevel>) {
        let _ = self.second.set(second);
    }

    /// Sets the dedup tables; without them no block is deduplicated. The first ones that are set stay.
    pub fn set_dedup(&self, tables: Arc<dyn DedupTables>) {
        let _ = self.dedup.set(tables);
    }

    /// What was set by [`set_suspend`](Pipeline::set_suspend).
    #[must_use]
    pub fn suspend(&self) -> Option<&dyn Suspend> {
        self.suspend.get().map(|suspend| &**suspend)
    }

    /// The blocks that could not be read from any copy since the last
    /// [`take_errors`](Pipeline::take_errors), with their birth txgs. What
    /// [`verify_physical`](Pipeline::verify_physical) finds is not among them.
    #[must_use]
    pub fn errors(&self) -> BTreeMap<Bookmark, Txg> {
        self.errors.blocks()
    }

    /// Like [`errors`](Pipeline::errors), and clears the list.
    pub fn take_errors(&self) -> BTreeMap<Bookmark, Txg> {
        self.errors.take()
    }

    /// Adds blocks that were found to be damaged by other means.
    #[doc(alias = "spa_log_error")]
    pub fn note_errors(&self, met: impl IntoIterator<Item = (Bookmark, Txg)>) {
        self.errors.add(met);
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> PipelineStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PipelineStats {
            reads: get(&self.stats.reads),
            read_bytes: get(&self.stats.read_bytes),
            writes: get(&self.stats.writes),
            written_bytes: get(&self.stats.written_bytes),
            placeless: get(&self.stats.placeless),
            shared: get(&self.stats.shared),
            rewrites: get(&self.stats.rewrites),
            behind: get(&self.stats.behind),
            gangs: get(&self.stats.gangs),
            healed: get(&self.stats.healed),
            leaked_gangs: get(&self.stats.leaked_gangs),
        }
    }

    /// The segments that a block occupies, as the space maps know them: one for each DVA, and for
    /// gang blocks one for each header and piece.
    ///
    /// # Errors
    /// Those of a read, when a gang header cannot be read.
    pub fn segments(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Vec<DvaPhys>> {
        if bp.is_hole() || bp.is_embedded() {
            return Ok(Vec::new());
        }
        if bp.is_gang() {
            let tree = self.gang_tree(bp, bookmark)?;
            return Ok(self.gang_segments(&tree));
        }
        Ok(bp.dvas().collect())
    }

    pub(crate) fn pool(&self) -> Pool<'_> {
        Pool {
            checksums: &self.checksums,
            keys: &self.keys,
            min_alloc: self.alloc.min_alloc(),
            gcd_alloc: self.alloc.gcd_alloc(),
            hole_birth: self.settings.hole_birth,
        }
    }

    fn encode_wave(&self, txg: Txg, wave: &[WriteRequest]) -> Result<Vec<Encoded>> {
        let pool = self.pool();
        let encode = |chunk: &[WriteRequest]| -> Result<Vec<Encoded>> {
            chunk
                .iter()
                .map(|r| encode::encode(&pool, txg, r))
                .collect()
        };
        let chunks = chunks(wave);
        if chunks.len() < 2 {
            return encode(wave);
        }
        let encoded = rt::parallel_map(chunks, encode).into_iter();
        Ok(encoded.collect::<Result<Vec<_>>>()?.concat())
    }

    /// Where a block of `psize` bytes belongs. Small blocks of data never take the last quarter of the special
    /// class, which stays for metadata.
    #[doc(alias = "spa_preferred_class")]
    fn preferred_class(&self, request: &WriteRequest, psize: u64) -> AllocClass {
        let type_ = request.policy.storage.map(Ok);
        let Ok(type_) = type_.unwrap_or_else(|| ObjectType::try_from(request.object_type)) else {
            return AllocClass::Normal;
        };
        if type_ == ObjectType::DDT_ZAP {
            return AllocClass::Dedup;
        }
        if request.level > 0 || type_.is_metadata() {
            return AllocClass::Special;
        }
        if psize <= request.policy.special_small_blocks && self.alloc.special_takes_data() {
            return AllocClass::Special;
        }
        AllocClass::Normal
    }

    /// Allocates space for one block; its device writes are added to `placed`.
    #[doc(alias = "zio_dva_allocate")]
    fn place(
        &self,
        txg: Txg,
        request: &WriteRequest,
        encoded: Encoded,
        placed: &mut Placed,
        flight: &Flight,
    ) -> Result<BlkPtrPhys> {
        let (encoded, stored) = if encoded.bp.is_dedup() {
            match self.share(txg, request, encoded, placed, flight) {
                Shared::There(bp) => {
                    add(&self.stats.shared, 1);
                    return Ok(bp);
                }
                Shared::New(encoded) => (encoded, None),
                Shared::Partial(encoded, stored) => (encoded, Some(stored)),
            }
        } else {
            (encoded, None)
        };
        let Encoded { mut bp, physical } = encoded;
        let Some(physical) = physical else {
            add(&self.stats.placeless, 1);
            return Ok(bp);
        };
        add(&self.stats.written_bytes, physical.psize as u64);
        let stored_copies = stored.map_or(0, |stored| stored.ndvas());
        let mut write = GangWrite {
            txg,
            class: self.preferred_class(request, physical.psize as u64),
            hint: Hint {
                bookmark: request.bookmark,
                ..Hint::default()
            },
            checksum: ChecksumType::try_from(bp.checksum()).unwrap_or(request.policy.checksum),
            copies: usize::from(request.policy.copies) - stored_copies,
            copies_max: bp.dva_slots(),
            physical: &physical,
        };
        // What keeps its birth is not dirty twice in a txg.
        let old = request.rewrite.filter(|old| may_rewrite(old, txg, &write));
        if let Some(old) = old
            && self.rewrite(&old, &write, &request.bookmark, &mut bp, placed)
        {
            add(&self.stats.rewrites, 1);
            return Ok(bp);
        }
        add(&self.stats.writes, 1);
        let psize = physical.psize as u64;
        match self
            .alloc
            .allocate(txg, write.class, psize, write.copies, &write.hint)
        {
            Ok(dvas) => {
                assert_eq!(dvas.len(), write.copies, "copies of {}", request.bookmark);
                placed.take(&dvas);
                for (i, dva) in dvas.iter().enumerate() {
                    bp.set_dva(i, dva);
                }
                placed.write_all(&bp, &physical);
                match stored {
                    Some(stored) => bp = joined(&stored, &bp),
                    None => self.offer_written(&bp, request, &physical),
                }
            }
            Err(e) if e.kind() == ErrorKind::NoSpace && psize > self.alloc.min_alloc() => {
                add(&self.stats.gangs, 1);
                // Copies of one block are all in pieces, or none: this one is apart from what is stored.
                if stored.is_some() {
                    bp.set_dedup(false);
                    write.copies += stored_copies;
                }
                self.place_gang(&write, &mut bp, placed)?;
            }
            Err(e) => return Err(e.within(format!("block {}", request.bookmark))),
        }
        if bp.is_dedup() {
            let copies = usize::from(request.policy.copies);
            self.note_shared(&bp, copies, stored_copies, placed);
        } else if let Some(birth) = request.keeps_birth {
            bp.set_rewrite(birth);
        }
        Ok(bp)
    }

    fn offer_written(&self, bp: &BlkPtrPhys, request: &WriteRequest, physical: &Physical) {
        let type_ = ObjectType::try_from(request.object_type);
        let is_metadata = request.level > 0 || type_.is_ok_and(ObjectType::is_metadata);
        let bytes = &physical.buf[..physical.psize];
        self.offer_second(bp, request.bookmark.objset, is_metadata, bytes);
    }

    /// Overwrites `old` in place. Returns false when the headers of a gang can no longer be read: then
    /// the block must be allocated anew.
    fn rewrite(
        &self,
        old: &BlkPtrPhys,
        write: &GangWrite<'_>,
        bookmark: &Bookmark,
        bp: &mut BlkPtrPhys,
        placed: &mut Placed,
    ) -> bool {
        if old.is_gang() {
            let Ok(tree) = self.gang_tree(old, bookmark) else {
                return false;
            };
            bp.dva = old.dva;
            self.rewrite_gang(&tree, write, 0, placed);
        } else {
            bp.dva = old.dva;
            placed.write_all(bp, write.physical);
        }
        true
    }

    /// Allocates and issues everything. Unless the caller `goes_on`, one group of the last wave is left
    /// for its own thread to issue while it waits.
    fn write_waves(
        &self,
        txg: Txg,
        requests: &[WriteRequest],
        undo: &mut Undo,
        flight: &Flight,
        goes_on: bool,
    ) -> Result<Vec<BlkPtrPhys>> {
        let mut bps = Vec::with_capacity(requests.len());
        let mut rest = requests;
        while !rest.is_empty() {
            let (wave, after) = rest.split_at(wave_len(rest));
            let mut placed = Placed::default();
            let mut placing = Ok(());
            for (request, encoded) in wave.iter().zip(self.encode_wave(txg, wave)?) {
                match self.place(txg, request, encoded, &mut placed, flight) {
                    Ok(bp) => bps.push(bp),
                    Err(error) => {
                        placing = Err(error);
                        break;
                    }
                }
            }
            undo.allocated.append(&mut placed.allocated);
            undo.shared.append(&mut placed.shared);
            placing?;
            let more = goes_on || !after.is_empty();
            self.issuer.submit(flight, placed.writes, more);
            rest = after;
        }
        Ok(bps)
    }

    fn give_back(&self, txg: Txg, undo: &Undo) {
        self.forget_shared(&undo.shared);
        for dva in &undo.allocated {
            self.alloc.unallocate(txg, dva);
        }
    }

    /// Issues what was placed so far, and waits for the whole flight; an error is left for its end.
    pub(crate) fn issue_and_wait(&self, placed: &mut Placed, flight: &Flight) {
        let writes = std::mem::take(&mut placed.writes);
        self.issuer.submit(flight, writes, false);
        flight.drain();
    }
}

/// What a batch has done so far, in case that it fails.
#[derive(Default)]
struct Undo {
    allocated: Vec<DvaPhys>,
    shared: Vec<Counted>,
}

impl Placed {
    fn write_all(&mut self, bp: &BlkPtrPhys, physical: &Physical) {
        let birth = bp.physical_birth();
        let writes = bp
            .dvas()
            .map(|dva| Write::new(birth, &dva, &physical.buf, 0, physical.psize));
        self.writes.extend(writes);
    }
}

/// How many requests form the next wave; at least one.
fn wave_len(requests: &[WriteRequest]) -> usize {
    let mut bytes = 0;
    let full = requests.iter().take(WAVE_REQUESTS).take_while(|r| {
        bytes += r.data.len();
        bytes <= WAVE_BYTES
    });
    full.count().max(1)
}

/// Cuts a wave into pieces of work for one core.
fn chunks(wave: &[WriteRequest]) -> Vec<&[WriteRequest]> {
    let mut chunks = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (i, request) in wave.iter().enumerate() {
        bytes += encode::work_bytes(request);
        if bytes >= CHUNK_BYTES {
            chunks.push(&wave[start..=i]);
            (start, bytes) = (i + 1, 0);
        }
    }
    if start < wave.len() {
        chunks.push(&wave[start..]);
    }
    chunks
}

fn may_rewrite(old: &BlkPtrPhys, txg: Txg, write: &GangWrite<'_>) -> bool {
    !old.is_hole()
        && !old.is_embedded()
        && !old.is_dedup()
        && old.allocation_birth() == txg
        && old.physical_birth() == txg
        && old.psize() == write.physical.psize as u64
        && (old.is_gang() || old.ndvas() == write.copies)
}

impl BlockStore for Pipeline {
    fn read(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        self.read_logical(bp, bookmark, false, Priority::SyncRead)
    }

    fn read_keyless(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        Pipeline::read_keyless(self, bp, bookmark)
    }

    fn read_ahead(&self, objset: ObjsetId, bp: &BlkPtrPhys) -> Result<Buf> {
        let bookmark = Bookmark {
            objset,
            ..Bookmark::default()
        };
        self.read_logical(bp, &bookmark, false, Priority::AsyncRead)
    }

    fn write_batch(&self, txg: Txg, requests: Vec<WriteRequest>) -> Result<Vec<BlkPtrPhys>> {
        let mut undo = Undo::default();
        let flight = self.issuer.flight(Priority::AsyncWrite);
        let placed = self.write_waves(txg, &requests, &mut undo, &flight, false);
        let written = flight.wait();
        let result = placed.and_then(|bps| written.map(|()| bps));
        if result.is_err() {
            self.give_back(txg, &undo);
        }
        result
    }

    fn begin_batch(
        &self,
        txg: Txg,
        requests: Vec<WriteRequest>,
        under_way: &mut UnderWay,
    ) -> Result<Vec<BlkPtrPhys>> {
        assert!(
            requests.iter().all(|r| r.rewrite.is_none()),
            "what is overwritten may be under way itself"
        );
        let mut undo = Undo::default();
        let is_behind = under_way.is_behind();
        assert!(
            !is_behind || requests.iter().all(|r| r.policy.dedup == Dedup::Off),
            "the dedup tables are those of the syncing txg"
        );
        let flight = under_way.flight(&self.issuer);
        let result = self.write_waves(txg, &requests, &mut undo, flight, true);
        match &result {
            Ok(bps) if is_behind => add(&self.stats.behind, bps.len() as u64),
            Ok(_) => {}
            Err(_) => {
                flight.drain();
                self.give_back(txg, &undo);
            }
        }
        result
    }

    fn has_spare(&self) -> bool {
        self.alloc.has_spare()
    }

    #[doc(alias = "zio_free_sync")]
    fn free(&self, txg: Txg, bp: &BlkPtrPhys) {
        let (bookmark, birth) = (Bookmark::default(), bp.physical_birth());
        match self.segments(bp, &bookmark) {
            Ok(segments) => segments
                .iter()
                .for_each(|dva| self.alloc.free(txg, birth, dva)),
            Err(_) => add(&self.stats.leaked_gangs, 1),
        }
    }
}

impl LogStore for Pipeline {
    fn alloc_log(&self, new: &NewLogBlock) -> Result<BlkPtrPhys> {
        let mut bp = log::new_log_bp(new.txg, new.size, new.checksum, new.verifier);
        if let Some(key) = self.keys.get(ObjsetId(new.verifier[ZIL_ZC_OBJSET])) {
            key.begin_log_block(&mut bp);
        }
        let hint = Hint {
            keeps_to_logs: new.keeps_to_logs,
            ..Hint::default()
        };
        let class = AllocClass::Log;
        let dvas = self.alloc.allocate(new.txg, class, new.size, 1, &hint)?;
        for (i, dva) in dvas.iter().enumerate() {
            bp.set_dva(i, dva);
        }
        Ok(bp)
    }

    fn write_log(&self, bp: &BlkPtrPhys, mut data: Buf, bookmark: &Bookmark) -> Result<()> {
        let psize = bp.psize() as usize;
        assert_eq!(data.len(), psize, "length of log block {bookmark}");
        if bp.is_encrypted() {
            let key = self.key_of(bp, bookmark)?.expect("an encrypted block");
            key.seal_log_block(bp, data.make_mut())?;
        }
        eck::seal_log(bp, data.make_mut());
        let birth = bp.birth();
        let writes = bp
            .dvas()
            .map(|dva| Write::new(birth, &dva, &data, 0, psize));
        let flight = self.issuer.flight(Priority::SyncWrite);
        self.issuer.submit(&flight, writes.collect(), false);
        flight.wait()
    }

    fn read_log(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        self.read_log_block(bp, bookmark, false)
    }

    fn read_log_keyless(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        self.read_log_block(bp, bookmark, true)
    }

    fn claim(&self, txg: Txg, bp: &BlkPtrPhys) -> Result<()> {
        for dva in self.segments(bp, &Bookmark::default())? {
            self.alloc.claim(txg, &dva)?;
        }
        Ok(())
    }

    fn flush_log(&self, blocks: &[BlkPtrPhys]) -> Result<()> {
        let dvas = blocks.iter().flat_map(BlkPtrPhys::dvas);
        let mut vdevs: Vec<VdevId> = dvas.map(|dva| dva.vdev()).collect();
        vdevs.sort_unstable();
        vdevs.dedup();
        self.vdevs.flush(&vdevs)
    }
}
