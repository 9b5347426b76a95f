//! The second level of the cache: cache devices.
//!
//! # What it is
//! [`L2Arc`] is the [`SecondLevel`] of a pool. What the pipeline reads from the pool and what it writes is offered to
//! it; a part of that, up to a limit, waits in memory until it is written to the cache devices in turn, when a txg has
//! been synced or the pool is closed. Blocks are told apart by their first DVA and birth, and are stored as in the
//! pool, so that their own checksums say whether they are right. In the later passes of a txg a block may be written
//! again in its place, with the same DVA and birth: what was offered last is right. Errors of a cache device are of no
//! consequence.
//!
//! # Source
//! OpenZFS `module/zfs/arc.c` (`l2arc_feed_thread`, `l2arc_write_eligible`).

mod device;
mod log;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{BlockBuf, Guid, ObjsetId};
use phys::{BlkIdentity, BlkPtrPhys};
use zio::SecondLevel;

pub use device::{L2Device, L2Io, L2Shape};

use device::Candidate;

/// `l2arc_write_max`: bytes that wait to be written, at most. What is offered beyond that is not taken.
const WRITE_MAX_BYTES: usize = 32 << 20;

/// Whether blocks of an objset, metadata or not, may be on cache devices.
pub type IsEligible<'e> = dyn Fn(ObjsetId, bool) -> bool + 'e;

/// The cache devices of a pool.
#[derive(Default)]
pub struct L2Arc {
    devices: rt::RwLock<Vec<Arc<L2Device>>>,
    waiting: rt::Mutex<Waiting>,
    is_writable: bool,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    blocks: Vec<(ObjsetId, Candidate)>,
    /// Where each block is among them.
    places: HashMap<BlkIdentity, usize>,
    bytes: usize,
    /// Which device is next.
    turn: usize,
}

impl L2Arc {
    /// Without devices. Nothing is written to them unless the pool `is_writable`.
    #[must_use]
    pub fn new(is_writable: bool) -> L2Arc {
        L2Arc {
            is_writable,
            ..L2Arc::default()
        }
    }

    /// Adds a device.
    pub fn add(&self, device: Arc<L2Device>) {
        self.devices.write().push(device);
    }

    /// Removes a device.
    pub fn remove(&self, guid: Guid) {
        self.devices
            .write()
            .retain(|device| device.shape().vdev != guid);
    }

    /// The device with this guid.
    #[must_use]
    pub fn device(&self, guid: Guid) -> Option<Arc<L2Device>> {
        let devices = self.devices.read();
        let found = devices.iter().find(|device| device.shape().vdev == guid);
        found.cloned()
    }

    /// Reads that were answered, and those that were not.
    #[must_use]
    pub fn hits_and_misses(&self) -> (u64, u64) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (get(&self.hits), get(&self.misses))
    }

    /// Writes what waits, as far as it `is_eligible`. `is_last`: nothing follows, so that all of it is to be listed.
    #[doc(alias = "l2arc_feed_thread")]
    pub fn feed(&self, is_eligible: &IsEligible<'_>, is_last: bool) {
        let devices = self.devices.read().clone();
        if devices.is_empty() || !self.is_writable {
            return;
        }
        let (waiting, turn) = {
            let mut waiting = self.waiting.lock();
            waiting.turn += 1;
            waiting.bytes = 0;
            waiting.places.clear();
            (std::mem::take(&mut waiting.blocks), waiting.turn)
        };
        let eligible = waiting
            .into_iter()
            .filter(|(objset, candidate)| is_eligible(*objset, candidate.is_metadata));
        let candidates: Vec<Candidate> = eligible.map(|(_, candidate)| candidate).collect();
        for (n, device) in devices.iter().enumerate() {
            let is_its_turn = n == turn % devices.len();
            let blocks = if is_its_turn { &candidates[..] } else { &[] };
            // A device that fails keeps what it has; what is wrong on it is found out by checksums.
            let _ = device.write(blocks, is_last);
        }
    }

    /// Whether enough waits to be worth a write.
    #[must_use]
    pub fn is_hungry(&self) -> bool {
        !self.waiting.lock().blocks.is_empty()
    }
}

impl SecondLevel for L2Arc {
    fn read(&self, bp: &BlkPtrPhys) -> Option<BlockBuf> {
        let devices = self.devices.read();
        if devices.is_empty() {
            return None;
        }
        let devices = devices.clone();
        let found = devices.iter().find_map(|device| device.read(bp));
        let counter = if found.is_some() {
            &self.hits
        } else {
            &self.misses
        };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    fn offer(&self, bp: &BlkPtrPhys, objset: ObjsetId, is_metadata: bool, bytes: &[u8]) {
        if !self.is_writable || self.devices.read().is_empty() {
            return;
        }
        let candidate = || Candidate {
            bp: *bp,
            is_metadata,
            bytes: bytes.to_vec(),
        };
        let waiting = &mut *self.waiting.lock();
        if let Some(at) = waiting.places.get(&bp.identity()) {
            let old = &mut waiting.blocks[*at];
            waiting.bytes = waiting.bytes - old.1.bytes.len() + bytes.len();
            *old = (objset, candidate());
            return;
        }
        if waiting.bytes + bytes.len() > WRITE_MAX_BYTES {
            return;
        }
        waiting.bytes += bytes.len();
        waiting.places.insert(bp.identity(), waiting.blocks.len());
        waiting.blocks.push((objset, candidate()));
    }
}

#[cfg(test)]
mod tests {
    use base::{Result, Txg, VdevId};
    use phys::DvaPhys;
    use rt::Mutex;

    use super::*;

    /// A device in memory.
    struct Memory(Mutex<Vec<u8>>);

    impl L2Io for Memory {
        fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
            let at = offset as usize;
            buf.copy_from_slice(&self.0.lock()[at..at + buf.len()]);
            Ok(())
        }

        fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
            let at = offset as usize;
            self.0.lock()[at..at + bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
    }

    fn opened(memory: &Arc<Memory>) -> L2Arc {
        let shape = L2Shape {
            pool: Guid(1),
            vdev: Guid(2),
            ashift: 12,
            asize: 48 << 20,
        };
        let cache = L2Arc::new(true);
        cache.add(Arc::new(L2Device::new(memory.clone(), shape)));
        cache
    }

    #[test]
    fn what_was_offered_last_is_read() {
        let memory = Arc::new(Memory(Mutex::new(vec![0; 64 << 20])));
        let mut bp = BlkPtrPhys::default();
        bp.set_dva(0, DvaPhys::new(VdevId(0), 1 << 20, 4096, false));
        bp.set_birth(Txg(7), Txg(7));
        bp.set_lsize(4096);
        bp.set_psize(4096);
        let cache = opened(&memory);
        let block = |byte: u8| vec![byte; 4096];
        let read = |cache: &L2Arc| cache.read(&bp).expect("it is there").to_vec();
        let offer = |byte| cache.offer(&bp, ObjsetId(0), true, &block(byte));
        offer(1);
        offer(2);
        cache.feed(&|_, _| true, false);
        assert_eq!(
            read(&cache),
            block(2),
            "offered twice before it was written"
        );
        offer(3);
        cache.feed(&|_, _| true, true);
        assert_eq!(read(&cache), block(3), "offered again after it was written");
        assert_eq!(read(&opened(&memory)), block(3), "found again");
    }
}
