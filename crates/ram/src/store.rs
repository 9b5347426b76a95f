//! A block store in memory, for the tests of the layers above.
//!
//! # What it is
//! Blocks are kept uncompressed; offsets are never reused. That makes it stricter than a pool: reading a
//! freed block, freeing a block twice and reading one that was never written fail at once, where a pool
//! would often still find the old bytes.
//!
//! Blocks written behind ([`UnderWay::behind`]) are in flight for a while: until the "device" has
//! written one, reading it returns `Checksum`, and freeing it panics.
//!
//! # Why not simpler
//! It returns real block pointers, checksum included, so that what the layers above store (dnodes,
//! indirect blocks) is what a pool would hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Buf, Error, ErrorKind, Result, SPA_MAXBLOCKSIZE, SPA_MINBLOCKSIZE, Txg, VdevId};
use compress::Algorithm;
use phys::{BlkPtrPhys, ChecksumType, CompressType, DvaPhys};

use zio::{
    BlockStore, Bookmark, Io, Issuer, LogStore, NewLogBlock, UnderWay, VdevOps, Write, WriteRequest,
};

/// What happened to a [`RamStore`] so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RamStats {
    /// Blocks read, holes not counted.
    pub reads: u64,
    /// Blocks allocated.
    pub allocs: u64,
    /// Blocks overwritten in place.
    pub rewrites: u64,
    /// Blocks written behind.
    pub behind: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Blocks in use now.
    pub live_blocks: u64,
    /// Their bytes, copies not counted.
    pub live_bytes: u64,
}

struct Entry {
    /// None: allocated for the log, not written yet.
    data: Option<Buf>,
    bp: BlkPtrPhys,
    is_under_way: bool,
    freed: Option<Txg>,
}

#[derive(Default)]
struct State {
    blocks: BTreeMap<u64, Entry>,
    next_offset: u64,
    stats: RamStats,
    fail_after: Option<u64>,
}

/// The store; see the module.
pub struct RamStore {
    state: Arc<rt::Mutex<State>>,
    issuer: Issuer,
}

/// The device that blocks written behind go to.
struct Device(Arc<rt::Mutex<State>>);

/// The longest duration of a write to [`Device`], in simulated time.
const WRITE_MAX_NS: u64 = 100_000;

impl VdevOps for Device {
    fn read(
        &self,
        _: &Io,
        vdev: VdevId,
        offset: u64,
        _: &mut [u8],
        _: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        unreachable!("read of {offset:#x} on {vdev}: the store has the blocks")
    }

    fn write(&self, _: &Io, _vdev: VdevId, mut offset: u64, parts: &[&[u8]]) -> Result<()> {
        if rt::is_simulated() {
            rt::sleep_ns(rt::random_below(WRITE_MAX_NS));
        } else {
            rt::yield_now();
        }
        let mut state = self.0.lock();
        for part in parts {
            let entry = state.blocks.get_mut(&offset);
            entry.expect("it was placed there").is_under_way = false;
            offset += part.len() as u64;
        }
        Ok(())
    }

    fn flush(&self, _vdevs: &[VdevId]) -> Result<()> {
        Ok(())
    }

    fn psize_to_asize(&self, _vdev: VdevId, psize: u64, _birth: Txg) -> u64 {
        psize
    }

    fn ashift(&self, _vdev: VdevId) -> u32 {
        base::SPA_MINBLOCKSHIFT
    }

    fn writes_at_once(&self, _vdev: VdevId) -> usize {
        2
    }
}

impl Default for RamStore {
    fn default() -> Self {
        Self::new()
    }
}

impl RamStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        let state = State {
            next_offset: SPA_MINBLOCKSIZE,
            ..State::default()
        };
        let state = Arc::new(rt::Mutex::new(state));
        let device = Arc::new(Device(Arc::clone(&state)));
        RamStore {
            state,
            issuer: Issuer::new(device, Arc::default(), 2, SPA_MINBLOCKSIZE),
        }
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> RamStats {
        self.state.lock().stats
    }

    /// The pointers of all blocks in use, by offset, for a test to compare with what is reachable.
    #[must_use]
    pub fn live(&self) -> Vec<BlkPtrPhys> {
        let state = self.state.lock();
        let live = state.blocks.values().filter(|e| e.freed.is_none());
        live.map(|e| e.bp).collect()
    }

    /// Whether the block is in use.
    fn is_live(&self, bp: &BlkPtrPhys) -> bool {
        let state = self.state.lock();
        let entry = state.blocks.get(&bp.dva[0].offset());
        entry.is_some_and(|e| e.freed.is_none())
    }

    /// Lets `writes` more blocks be written; after that every write fails with `Io` (`NoSpace` for a
    /// batch written behind). `None` lifts the limit.
    pub fn fail_after(&self, writes: Option<u64>) {
        self.state.lock().fail_after = writes;
    }

    /// Flips one byte of a block, so that every further read of it fails with `Checksum`.
    pub fn damage(&self, bp: &BlkPtrPhys) {
        let mut state = self.state.lock();
        let entry = state.blocks.get_mut(&bp.dva[0].offset());
        let data = entry
            .and_then(|e| e.data.as_mut())
            .expect("a block that was written");
        data.make_mut()[0] ^= 0xff;
    }
}

impl State {
    fn write(&mut self, txg: Txg, request: WriteRequest) -> Result<BlkPtrPhys> {
        let lsize = request.data.len() as u64;
        assert!(
            lsize.is_multiple_of(SPA_MINBLOCKSIZE),
            "lsize {lsize} of {}",
            request.bookmark
        );
        assert!((1..=SPA_MAXBLOCKSIZE).contains(&lsize), "lsize {lsize}");
        if let Some(left) = &mut self.fail_after {
            if *left == 0 {
                return Err(Error::new(
                    ErrorKind::Io,
                    format!("block {}", request.bookmark),
                ));
            }
            *left -= 1;
        }
        let (type_, level) = (request.object_type, request.level);
        if request.policy.compress != Algorithm::Off && request.data.iter().all(|b| *b == 0) {
            return Ok(BlkPtrPhys::new_hole(type_, level, lsize, txg));
        }
        let mut bp = BlkPtrPhys::default();
        bp.set_lsize(lsize);
        bp.set_psize(lsize);
        bp.set_type(type_);
        bp.set_level(level);
        bp.set_compress(CompressType::Off.raw());
        bp.set_checksum(ChecksumType::Fletcher4.raw());
        bp.set_cksum(checksum::fletcher4(&request.data));
        bp.set_little_endian();
        bp.set_birth(txg, txg);
        bp.set_fill(request.fill);
        let copies = usize::from(request.policy.copies);
        if let Some(old) = self.rewritable(&request, txg) {
            bp.dva = old.dva;
            self.stats.rewrites += 1;
            let entry = self.blocks.get_mut(&bp.dva[0].offset()).expect("checked");
            entry.data = Some(request.data.into());
            entry.bp = bp;
            return Ok(bp);
        }
        for copy in 0..copies {
            bp.set_dva(copy, self.place(lsize));
        }
        self.insert(bp, Some(request.data.into()));
        Ok(bp)
    }

    fn rewritable(&self, request: &WriteRequest, txg: Txg) -> Option<BlkPtrPhys> {
        let old = request.rewrite?;
        if old.is_hole() || old.is_embedded() || old.birth() != txg {
            return None;
        }
        let entry = self.blocks.get(&old.dva[0].offset());
        let entry = entry.filter(|e| e.bp.identity() == old.identity());
        let entry =
            entry.unwrap_or_else(|| panic!("rewrite of an unknown block: {}", request.bookmark));
        assert!(
            entry.freed.is_none(),
            "rewrite of a freed block: {}",
            request.bookmark
        );
        let copies = usize::from(request.policy.copies);
        (old.psize() == request.data.len() as u64 && old.ndvas() == copies).then_some(old)
    }

    fn place(&mut self, size: u64) -> DvaPhys {
        let dva = DvaPhys::new(VdevId(0), self.next_offset, size, false);
        self.next_offset += size;
        dva
    }

    fn insert(&mut self, bp: BlkPtrPhys, data: Option<Buf>) {
        self.stats.allocs += 1;
        self.stats.live_blocks += 1;
        self.stats.live_bytes += bp.psize();
        let entry = Entry {
            data,
            bp,
            is_under_way: false,
            freed: None,
        };
        let before = self.blocks.insert(bp.dva[0].offset(), entry);
        assert!(before.is_none(), "offsets are never reused");
    }
}

impl BlockStore for RamStore {
    fn read(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        if bp.is_hole() {
            return Ok(Buf::zeroed(bp.lsize() as usize));
        }
        if bp.is_embedded() {
            return zio::read_embedded(bp, bookmark);
        }
        let mut state = self.state.lock();
        state.stats.reads += 1;
        let Some(entry) = state.blocks.get(&bp.dva[0].offset()) else {
            let what = format!("block {bookmark}: nothing at {:#x}", bp.dva[0].offset());
            return Err(Error::corrupt(what));
        };
        let checksum_error = || Error::new(ErrorKind::Checksum, format!("block {bookmark}"));
        let data = entry.data.as_ref().filter(|_| !entry.is_under_way);
        let data = data.ok_or_else(checksum_error)?;
        if let Some(freed) = entry.freed {
            panic!(
                "block {bookmark}, born {}, was freed in txg {freed}",
                entry.bp.birth()
            );
        }
        assert_eq!(
            entry.bp.identity(),
            bp.identity(),
            "block {bookmark}: stale pointer"
        );
        if bp.checksum() == ChecksumType::Fletcher4.raw()
            && checksum::fletcher4(data) != bp.cksum_words()
        {
            return Err(checksum_error());
        }
        Ok(data.clone())
    }

    fn write_batch(&self, txg: Txg, requests: Vec<WriteRequest>) -> Result<Vec<BlkPtrPhys>> {
        let mut state = self.state.lock();
        requests.into_iter().map(|r| state.write(txg, r)).collect()
    }

    fn begin_batch(
        &self,
        txg: Txg,
        requests: Vec<WriteRequest>,
        under_way: &mut UnderWay,
    ) -> Result<Vec<BlkPtrPhys>> {
        if !under_way.is_behind() {
            return self.write_batch(txg, requests);
        }
        let mut state = self.state.lock();
        let count = requests.len() as u64;
        if state.fail_after.is_some_and(|left| left < count) {
            return Err(Error::new(ErrorKind::NoSpace, format!("{count} blocks")));
        }
        state.stats.behind += count;
        let mut writes = Vec::new();
        let mut bps = Vec::new();
        for request in requests {
            let data = Buf::from(request.data.clone());
            let bp = state.write(txg, request)?;
            if !bp.is_hole() {
                let entry = state.blocks.get_mut(&bp.dva[0].offset());
                entry.expect("written just now").is_under_way = true;
                writes.push(Write::new(bp.birth(), &bp.dva[0], &data, 0, data.len()));
            }
            bps.push(bp);
        }
        drop(state);
        under_way.begin(&self.issuer, writes);
        Ok(bps)
    }

    fn has_spare(&self) -> bool {
        true
    }

    fn free(&self, txg: Txg, bp: &BlkPtrPhys) {
        if bp.is_hole() || bp.is_embedded() {
            return;
        }
        let mut state = self.state.lock();
        let entry = state.blocks.get_mut(&bp.dva[0].offset());
        let entry = entry.filter(|e| e.bp.identity() == bp.identity());
        let entry = entry.expect("free of a block that was never written");
        assert!(
            entry.freed.is_none(),
            "block freed in txg {:?} and in {txg}",
            entry.freed
        );
        assert!(!entry.is_under_way, "freed while it was being written");
        entry.freed = Some(txg);
        entry.data = entry.data.take().map(|_| Buf::zeroed(0));
        state.stats.frees += 1;
        state.stats.live_blocks -= 1;
        state.stats.live_bytes -= bp.psize();
    }
}

impl LogStore for RamStore {
    fn alloc_log(&self, new: &NewLogBlock) -> Result<BlkPtrPhys> {
        let mut state = self.state.lock();
        let mut bp = zio::new_log_bp(new.txg, new.size, new.checksum, new.verifier);
        bp.set_dva(0, state.place(new.size));
        state.insert(bp, None);
        Ok(bp)
    }

    fn write_log(&self, bp: &BlkPtrPhys, mut data: Buf, _bookmark: &Bookmark) -> Result<()> {
        zio::seal_log(bp, data.make_mut());
        let mut state = self.state.lock();
        let entry = state
            .blocks
            .get_mut(&bp.dva[0].offset())
            .expect("alloc_log comes first");
        assert_eq!(data.len() as u64, entry.bp.psize(), "log block size");
        entry.data = Some(data);
        Ok(())
    }

    /// The last block of a log names one that was never written, and a torn or a forged one names any:
    /// such a pointer ends the log, and is not a bug of the caller.
    fn read_log(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        if !bp.is_hole() && !bp.is_embedded() {
            let state = self.state.lock();
            let entry = state.blocks.get(&bp.dva[0].offset());
            if entry.is_some_and(|e| e.bp.identity() != bp.identity()) {
                return Err(Error::new(ErrorKind::Checksum, format!("block {bookmark}")));
            }
        }
        self.read(bp, bookmark)
    }

    fn claim(&self, _txg: Txg, bp: &BlkPtrPhys) -> Result<()> {
        if bp.is_hole() || bp.is_embedded() || self.is_live(bp) {
            return Ok(());
        }
        Err(Error::corrupt(format!(
            "claim of a free block at {:#x}",
            bp.dva[0].offset()
        )))
    }

    fn flush_log(&self, _blocks: &[BlkPtrPhys]) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phys::ObjectType;
    use zio::WritePolicy;

    fn request(byte: u8) -> WriteRequest {
        let mut data = Buf::zeroed(1024);
        data.make_mut().fill(byte);
        let type_ = ObjectType::PLAIN_FILE_CONTENTS.raw();
        WriteRequest::new(data, WritePolicy::default(), type_, Bookmark::default())
    }

    #[test]
    fn blocks_live_until_they_are_freed() {
        let store = RamStore::new();
        let bps = store
            .write_batch(Txg(4), vec![request(1), request(0)])
            .unwrap();
        assert!(bps[1].is_hole());
        assert_eq!(store.read(&bps[0], &Bookmark::default()).unwrap()[1023], 1);
        let mut again = request(2);
        again.rewrite = Some(bps[0]);
        let new = store.write(Txg(4), again.clone()).unwrap();
        assert_eq!((new.dva, store.stats().rewrites), (bps[0].dva, 1));
        assert_ne!(store.write(Txg(5), again).unwrap().dva, new.dva);
        store.free(Txg(5), &new);
        assert_eq!((store.live().len(), store.stats().live_bytes), (1, 1024));
        store.fail_after(Some(1));
        assert!(store.write(Txg(6), request(3)).is_ok());
        assert_eq!(
            store.write(Txg(6), request(3)).unwrap_err().kind(),
            ErrorKind::Io
        );
    }

    #[test]
    #[should_panic(expected = "was freed in txg 5")]
    fn reading_a_freed_block_panics() {
        let store = RamStore::new();
        let bp = store.write(Txg(4), request(1)).unwrap();
        store.free(Txg(5), &bp);
        let _ = store.read(&bp, &Bookmark::default());
    }

    #[test]
    fn a_log_block_reads_only_when_written() {
        let store = RamStore::new();
        let kind = ChecksumType::Zilog2;
        let bp = store
            .alloc_log(&NewLogBlock {
                txg: Txg(4),
                size: 4096,
                checksum: kind,
                verifier: [1, 2, 3, 4],
                keeps_to_logs: false,
            })
            .unwrap();
        assert!(store.read_log(&bp, &Bookmark::default()).is_err());
        let mut data = Buf::zeroed(4096);
        data.make_mut()[136..144].copy_from_slice(&200u64.to_le_bytes());
        store.write_log(&bp, data, &Bookmark::default()).unwrap();
        assert!(store.read_log(&bp, &Bookmark::default()).is_ok());
        let mut forged = bp;
        forged.dva[0] = DvaPhys::new(VdevId(7), bp.dva[0].offset(), 4096, false);
        let error = store.read_log(&forged, &Bookmark::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Checksum);
    }
}
