//! One cache device: which blocks are where on it, and where the next ones go.
//!
//! # What it is
//! Blocks are appended at `hand`, which starts again at the front when it comes to the end. Before that the blocks in
//! the way are forgotten, up to `evict`. Each few blocks are followed by a log block that lists them, and the header
//! names the newest ones: so the device is known again when the pool is next opened. That is looked up when a block is
//! first asked for.
//!
//! # Crash argument
//! Nothing here need be true. Bytes that were overwritten since the header was written do not match the checksums of
//! the blocks that they are taken for; a log block has a checksum of its own.
//!
//! # Concurrency
//! One lock for each device, held while its logs are read and while it is written to.
//!
//! # Source
//! OpenZFS `module/zfs/arc.c` (`l2arc_rebuild`, `l2arc_evict`, `l2arc_write_buffers`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use base::{BlockBuf, Guid, Result, SPA_MAXBLOCKSIZE, Txg, align_up};
use checksum::embedded;
use phys::blkptr::BlkIdentity;
use phys::l2arc::{
    L2ARC_FLAG_FIRST, L2ARC_HEADER_MAGIC, L2ARC_LOG_BYTES, L2ARC_LOG_ENTRIES, L2ARC_VERSION,
    L2EntryPhys, L2HeaderPhys, L2LogPtrPhys, L2Prop,
};
use phys::label::LABEL_START_SIZE;
use phys::{BlkPtrPhys, ChecksumType, Phys};

use super::log;

/// `SPA_MAXBLOCKSHIFT`: a device has room for the blocks of one log block, whatever their size.
const MAXBLOCKSHIFT: u32 = 24;
/// `ARC_STATE_MRU`
const STATE_MRU: u8 = 1;
/// Blocks that are remembered of one device, at most: each takes some 100 bytes of memory.
const BLOCKS_MAX: usize = 1 << 21;

/// Reads and writes a cache device, at offsets from its start.
pub trait L2Io: Send + Sync {
    /// # Errors
    /// `Io`.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// # Errors
    /// `Io`.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()>;
}

/// Which device it is, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct L2Shape {
    /// The pool.
    pub pool: Guid,
    /// The device.
    pub vdev: Guid,
    /// log2 of its sector.
    pub ashift: u32,
    /// Bytes behind the first labels and before the last ones.
    pub asize: u64,
}

impl L2Shape {
    /// l2ad_dev_hdr_asize
    fn header_bytes(&self) -> u64 {
        (L2HeaderPhys::SIZE as u64).max(1 << self.ashift)
    }

    fn start(&self) -> u64 {
        LABEL_START_SIZE + self.header_bytes()
    }

    fn end(&self) -> u64 {
        LABEL_START_SIZE + self.asize
    }

    /// l2ad_log_entries
    fn log_entries(&self) -> usize {
        let room = self.end().saturating_sub(self.start()) >> MAXBLOCKSHIFT;
        usize::try_from(room).map_or(L2ARC_LOG_ENTRIES, |room| room.min(L2ARC_LOG_ENTRIES))
    }

    fn sectors(&self, bytes: u64) -> u64 {
        align_up(bytes, 1 << self.ashift)
    }
}

/// A block that is to be written to the device.
pub(crate) struct Candidate {
    pub(crate) bp: BlkPtrPhys,
    pub(crate) is_metadata: bool,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Spot {
    daddr: u64,
    psize: u64,
}

#[derive(Default)]
struct State {
    is_rebuilt: bool,
    /// l2ad_hand
    hand: u64,
    /// l2ad_evict
    evict: u64,
    /// l2ad_first
    is_first: bool,
    lbps: [L2LogPtrPhys; 2],
    blocks: HashMap<BlkIdentity, Spot>,
    by_place: BTreeMap<u64, BlkIdentity>,
    /// Log blocks: their offsets and sizes.
    logs: BTreeMap<u64, u64>,
    /// l2ad_log_blk: what the next log block lists.
    open: Vec<L2EntryPhys>,
    open_bytes: u64,
}

/// A cache device.
pub struct L2Device {
    io: Arc<dyn L2Io>,
    shape: L2Shape,
    state: rt::Mutex<State>,
}

impl L2Device {
    /// A device whose contents are looked up when they are needed.
    #[must_use]
    pub fn new(io: Arc<dyn L2Io>, shape: L2Shape) -> L2Device {
        L2Device {
            io,
            shape,
            state: rt::Mutex::default(),
        }
    }

    /// Which device it is.
    #[must_use]
    pub fn shape(&self) -> L2Shape {
        self.shape
    }

    /// Bytes in use, blocks with their log blocks, and how many log blocks there are.
    #[must_use]
    pub fn used(&self) -> (u64, u64) {
        let mut state = self.state.lock();
        self.rebuild(&mut state);
        let blocks = state.blocks.values();
        let blocks: u64 = blocks.map(|spot| self.shape.sectors(spot.psize)).sum();
        let logs: u64 = state.logs.values().sum();
        (blocks + logs, state.logs.len() as u64)
    }

    pub(crate) fn read(&self, bp: &BlkPtrPhys) -> Option<BlockBuf> {
        let spot = {
            let mut state = self.state.lock();
            self.rebuild(&mut state);
            state.blocks.get(&bp.identity()).copied()?
        };
        if spot.psize != bp.psize() {
            return None;
        }
        let mut buf = BlockBuf::scratch(self.shape.sectors(spot.psize) as usize);
        self.io.read(spot.daddr, &mut buf).ok()?;
        Some(buf)
    }

    /// Writes blocks and lists them. One that is there already is replaced.
    ///
    /// # Errors
    /// `Io`.
    #[doc(alias = "l2arc_write_buffers")]
    pub(crate) fn write(&self, candidates: &[Candidate], is_last: bool) -> Result<()> {
        let mut state = self.state.lock();
        self.rebuild(&mut state);
        let entries = self.shape.log_entries();
        if entries == 0 {
            return Ok(());
        }
        let had = state.hand;
        for candidate in candidates {
            let identity = candidate.bp.identity();
            state.forget_block(&identity);
            if state.blocks.len() >= BLOCKS_MAX {
                continue;
            }
            let asize = self.shape.sectors(candidate.bp.psize());
            self.evict(&mut state, asize + 2 * L2ARC_LOG_BYTES as u64);
            let daddr = state.hand;
            let mut bytes = candidate.bytes.clone();
            bytes.resize(asize as usize, 0);
            self.io.write(daddr, &bytes)?;
            state.hand += asize;
            state.insert(identity, daddr, candidate.bp.psize());
            state.open.push(entry(candidate, daddr));
            state.open_bytes += asize;
            if state.open.len() == entries {
                self.commit_log(&mut state)?;
            }
        }
        if is_last && !state.open.is_empty() {
            // A log block lists a fixed number of blocks: the last one several times.
            let last = state.open[state.open.len() - 1];
            state.open.resize(entries, last);
            self.evict(&mut state, 2 * L2ARC_LOG_BYTES as u64);
            self.commit_log(&mut state)?;
        }
        if state.hand == had {
            return Ok(());
        }
        self.write_header(&state)
    }

    /// Writes an empty header, as on a device that was just added.
    ///
    /// # Errors
    /// `Io`.
    pub fn clear(&self) -> Result<()> {
        let mut state = self.state.lock();
        *state = self.empty();
        self.write_header(&state)
    }

    fn empty(&self) -> State {
        State {
            is_rebuilt: true,
            hand: self.shape.start(),
            evict: self.shape.start(),
            is_first: true,
            ..State::default()
        }
    }

    #[doc(alias = "l2arc_log_blk_commit")]
    fn commit_log(&self, state: &mut State) -> Result<()> {
        let (bytes, prop, words) = log::encode(state.lbps[1], &state.open, self.shape.ashift);
        let mut pointer = L2LogPtrPhys::default();
        pointer.daddr.set(state.hand);
        pointer.payload_asize.set(state.open_bytes);
        let start = state.open.first().map_or(0, |first| first.daddr.get());
        pointer.payload_start.set(start);
        pointer.prop.set(prop);
        pointer.cksum = words.map(Into::into);
        self.io.write(state.hand, &bytes)?;
        state.lbps = [pointer, state.lbps[0]];
        state.logs.insert(state.hand, bytes.len() as u64);
        state.hand += bytes.len() as u64;
        state.open.clear();
        state.open_bytes = 0;
        Ok(())
    }

    /// Makes room for so many bytes at `hand`.
    #[doc(alias = "l2arc_evict")]
    fn evict(&self, state: &mut State, bytes: u64) {
        if state.hand + bytes > self.shape.end() {
            state.forget(state.hand..self.shape.end());
            // What is listed next begins at the front.
            (state.hand, state.evict) = (self.shape.start(), self.shape.start());
            state.is_first = false;
            state.open.clear();
            state.open_bytes = 0;
        }
        let to = state.hand + bytes;
        if !state.is_first {
            state.forget(state.evict.min(state.hand)..to);
            state.evict = state.evict.max(to);
        }
    }

    #[doc(alias = "l2arc_dev_hdr_update")]
    fn write_header(&self, state: &State) -> Result<()> {
        let mut header = L2HeaderPhys::default();
        header.magic.set(L2ARC_HEADER_MAGIC);
        header.version.set(L2ARC_VERSION);
        header.spa_guid.set(self.shape.pool.0);
        header.vdev_guid.set(self.shape.vdev.0);
        header.log_entries.set(self.shape.log_entries() as u64);
        header.evict.set(state.evict);
        header
            .flags
            .set(if state.is_first { L2ARC_FLAG_FIRST } else { 0 });
        header.start.set(self.shape.start());
        header.end.set(self.shape.end());
        header.start_lbps = state.lbps;
        header.lb_asize.set(state.logs.values().sum());
        header.lb_count.set(state.logs.len() as u64);
        let mut bytes = vec![0; self.shape.header_bytes() as usize];
        header.write(&mut bytes);
        let verifier = embedded::label_verifier(LABEL_START_SIZE);
        embedded::set(ChecksumType::Label, &verifier, &mut bytes);
        self.io.write(LABEL_START_SIZE, &bytes)
    }

    /// The header, if it is of this device in this pool.
    #[doc(alias = "l2arc_dev_hdr_read")]
    fn read_header(&self) -> Option<L2HeaderPhys> {
        let mut bytes = vec![0; self.shape.header_bytes() as usize];
        self.io.read(LABEL_START_SIZE, &mut bytes).ok()?;
        let verifier = embedded::label_verifier(LABEL_START_SIZE);
        embedded::verify(ChecksumType::Label, &verifier, &bytes).ok()?;
        let header = L2HeaderPhys::read(&bytes).ok()?;
        let is_ours = header.magic.get() == L2ARC_HEADER_MAGIC
            && header.version.get() == L2ARC_VERSION
            && header.spa_guid.get() == self.shape.pool.0
            && header.vdev_guid.get() == self.shape.vdev.0
            && header.log_entries.get() == self.shape.log_entries() as u64
            && header.end.get() == self.shape.end();
        is_ours.then_some(header)
    }

    #[doc(alias = "l2arc_rebuild")]
    fn rebuild(&self, state: &mut State) {
        if state.is_rebuilt {
            return;
        }
        *state = self.empty();
        let Some(header) = self.read_header() else {
            return;
        };
        let [newest, _] = header.start_lbps;
        let size = L2Prop::from_raw(newest.prop.get()).psize;
        let hand = newest.daddr.get().saturating_add(size);
        state.hand = hand.clamp(self.shape.start(), self.shape.end());
        let evict = header.evict.get();
        state.evict = evict.clamp(self.shape.start(), self.shape.end());
        state.is_first = header.flags.get() & L2ARC_FLAG_FIRST != 0;
        let mut lbps = header.start_lbps;
        let mut seen = BTreeSet::new();
        while self.is_valid(state, &lbps[0]) && seen.insert(lbps[0].daddr.get()) {
            let Some(previous) = self.restore(state, &lbps[0], header.log_entries.get()) else {
                break;
            };
            let span = (lbps[1].payload_start.get(), lbps[0].payload_start.get());
            if overlaps(span.0, span.1, state.evict) && !state.is_first {
                break;
            }
            lbps = [lbps[1], previous];
        }
        if state.logs.is_empty() {
            *state = self.empty();
        } else {
            state.lbps = header.start_lbps;
        }
    }

    /// Reads a log block and takes over what it lists; returns the pointer in it.
    #[doc(alias = "l2arc_log_blk_restore")]
    fn restore(
        &self,
        state: &mut State,
        pointer: &L2LogPtrPhys,
        count: u64,
    ) -> Option<L2LogPtrPhys> {
        let asize = L2Prop::from_raw(pointer.prop.get()).psize;
        let mut bytes = vec![0; asize as usize];
        self.io.read(pointer.daddr.get(), &mut bytes).ok()?;
        let (previous, entries) = log::decode(pointer, &bytes).ok()?;
        state.logs.insert(pointer.daddr.get(), asize);
        let count = usize::try_from(count).unwrap_or(0);
        // The newest first, as the log blocks are read.
        for entry in entries.iter().take(count).rev() {
            let (daddr, prop) = (entry.daddr.get(), L2Prop::from_raw(entry.prop.get()));
            let end = daddr.saturating_add(self.shape.sectors(prop.psize));
            let is_inside = daddr >= self.shape.start() && end <= self.shape.end();
            let [first, second] = entry.dva;
            let identity = ([first.get(), second.get()], Txg(entry.birth.get()));
            let is_usable = is_inside
                && prop.psize <= SPA_MAXBLOCKSIZE
                && !prop.is_protected
                && state.blocks.len() < BLOCKS_MAX;
            if is_usable && !state.blocks.contains_key(&identity) {
                state.insert(identity, daddr, prop.psize);
            }
        }
        Some(previous)
    }

    #[doc(alias = "l2arc_log_blkptr_valid")]
    fn is_valid(&self, state: &State, pointer: &L2LogPtrPhys) -> bool {
        let asize = L2Prop::from_raw(pointer.prop.get()).psize;
        let daddr = pointer.daddr.get();
        if daddr == 0 || asize > L2ARC_LOG_BYTES as u64 {
            return false;
        }
        let Some(end) = daddr.checked_add(asize - 1) else {
            return false;
        };
        let start = pointer.payload_start.get();
        let is_evicted = overlaps(start, end, state.hand)
            || overlaps(start, end, state.evict)
            || overlaps(state.hand, state.evict, start)
            || overlaps(state.hand, state.evict, end);
        start >= self.shape.start() && end <= self.shape.end() && (!is_evicted || state.is_first)
    }
}

impl State {
    fn insert(&mut self, identity: BlkIdentity, daddr: u64, psize: u64) {
        if let Some(old) = self.by_place.insert(daddr, identity) {
            self.blocks.remove(&old);
        }
        self.blocks.insert(identity, Spot { daddr, psize });
    }

    fn forget_block(&mut self, identity: &BlkIdentity) {
        if let Some(spot) = self.blocks.remove(identity) {
            self.by_place.remove(&spot.daddr);
        }
    }

    /// Forgets what begins in this range.
    fn forget(&mut self, range: std::ops::Range<u64>) {
        let gone: Vec<u64> = self
            .by_place
            .range(range.clone())
            .map(|(at, _)| *at)
            .collect();
        for at in gone {
            let identity = self.by_place.remove(&at).expect("it was there");
            self.blocks.remove(&identity);
        }
        self.logs.retain(|at, _| !range.contains(at));
    }
}

#[doc(alias = "l2arc_range_check_overlap")]
fn overlaps(bottom: u64, top: u64, check: u64) -> bool {
    match bottom.cmp(&top) {
        std::cmp::Ordering::Less => bottom <= check && check <= top,
        std::cmp::Ordering::Greater => check <= top || bottom <= check,
        std::cmp::Ordering::Equal => check == top,
    }
}

#[doc(alias = "l2arc_log_blk_insert")]
fn entry(candidate: &Candidate, daddr: u64) -> L2EntryPhys {
    let bp = &candidate.bp;
    let (dva, birth) = bp.identity();
    let prop = L2Prop {
        lsize: bp.lsize(),
        psize: bp.psize(),
        compress: bp.compress(),
        checksum: 0,
        contents: candidate.is_metadata.into(),
        is_protected: false,
        state: STATE_MRU,
    };
    let mut entry = L2EntryPhys {
        dva: dva.map(Into::into),
        ..L2EntryPhys::default()
    };
    entry.birth.set(birth.0);
    entry.prop.set(prop.raw());
    entry.daddr.set(daddr);
    entry
}
