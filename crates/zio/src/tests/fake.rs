//! Vdevs and free space for the tests of the pipeline: plain memory, and an allocator that knows exactly
//! what is allocated and appends to each vdev.

use std::collections::{BTreeMap, BTreeSet};

use base::{Error, ErrorKind, Result, Txg, VdevId, align_up};
use phys::DvaPhys;

use crate::{AllocClass, Allocator, DvaSet, Hint, Io, Purpose, VdevOps};

/// Vdevs of memory, one copy each.
pub(super) struct FakeVdevs {
    pub(super) ashift: u32,
    /// What `writes_at_once` returns for each vdev.
    pub(super) ways: usize,
    bytes: Vec<rt::Mutex<Vec<u8>>>,
    pub(super) state: rt::Mutex<FakeState>,
}

#[derive(Default)]
pub(super) struct FakeState {
    /// Vdevs whose reads fail.
    pub(super) unreadable: BTreeSet<u64>,
    /// Writes that may still succeed.
    pub(super) writes_left: Option<u64>,
    /// Device writes, merged ones counted once.
    pub(super) writes: u64,
    /// Their vdevs and lengths, in order.
    pub(super) order: Vec<(u64, usize)>,
    /// Device writes in flight now, and the most at any time.
    pub(super) writing: (usize, usize),
    /// Reads whose bytes did not verify, speculative ones not counted.
    pub(super) checksum_errors: u64,
}

impl FakeVdevs {
    pub(super) fn new(count: usize, size: usize, ashift: u32) -> Self {
        FakeVdevs {
            ashift,
            ways: usize::MAX,
            bytes: (0..count)
                .map(|_| rt::Mutex::new(vec![0xa5; size]))
                .collect(),
            state: rt::Mutex::new(FakeState::default()),
        }
    }

    pub(super) fn damage(&self, dva: &DvaPhys, at: u64) {
        self.flip(dva, at, 0x40);
    }

    pub(super) fn flip(&self, dva: &DvaPhys, at: u64, bits: u8) {
        self.bytes[dva.vdev().0 as usize].lock()[(dva.offset() + at) as usize] ^= bits;
    }

    pub(super) fn bytes_at(&self, dva: &DvaPhys, len: usize) -> Vec<u8> {
        let at = dva.offset() as usize;
        self.bytes[dva.vdev().0 as usize].lock()[at..at + len].to_vec()
    }

    fn check(&self, vdev: VdevId, offset: u64, len: usize) -> Result<usize> {
        let size = match self.bytes.get(vdev.0 as usize) {
            Some(bytes) => bytes.lock().len() as u64,
            None => return Err(Error::corrupt(format!("no vdev {vdev}"))),
        };
        let sector = 1u64 << self.ashift;
        if !offset.is_multiple_of(sector) || offset.saturating_add(len as u64) > size {
            return Err(Error::corrupt(format!("offset {offset:#x} of vdev {vdev}")));
        }
        assert!(
            (len as u64).is_multiple_of(sector),
            "{len} bytes are not whole sectors"
        );
        Ok(offset as usize)
    }

    fn fetch(&self, vdev: VdevId, offset: u64, buf: &mut [u8]) -> Result<()> {
        let at = self.check(vdev, offset, buf.len())?;
        if self.state.lock().unreadable.contains(&vdev.0) {
            return Err(Error::new(ErrorKind::Io, format!("vdev {vdev} is dead")));
        }
        buf.copy_from_slice(&self.bytes[vdev.0 as usize].lock()[at..at + buf.len()]);
        Ok(())
    }
}

impl VdevOps for FakeVdevs {
    fn read(
        &self,
        io: &Io,
        vdev: VdevId,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        self.fetch(vdev, offset, buf)?;
        if verify(buf) {
            return Ok(());
        }
        self.state.lock().checksum_errors += u64::from(io.purpose == Purpose::Normal);
        Err(Error::new(ErrorKind::Checksum, format!("vdev {vdev}")))
    }

    fn write(&self, _: &Io, vdev: VdevId, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let data = parts.concat();
        let at = self.check(vdev, offset, data.len())?;
        let mut state = self.state.lock();
        state.writes += 1;
        state.order.push((vdev.0, data.len()));
        if let Some(left) = &mut state.writes_left {
            if *left == 0 {
                return Err(Error::new(
                    ErrorKind::Io,
                    format!("vdev {vdev} takes no writes"),
                ));
            }
            *left -= 1;
        }
        state.writing.0 += 1;
        state.writing.1 = state.writing.1.max(state.writing.0);
        drop(state);
        rt::yield_now();
        self.state.lock().writing.0 -= 1;
        self.bytes[vdev.0 as usize].lock()[at..at + data.len()].copy_from_slice(&data);
        Ok(())
    }

    fn flush(&self, _vdevs: &[VdevId]) -> Result<()> {
        Ok(())
    }

    fn psize_to_asize(&self, _vdev: VdevId, psize: u64, _birth: Txg) -> u64 {
        align_up(psize, 1 << self.ashift)
    }

    fn ashift(&self, _vdev: VdevId) -> u32 {
        self.ashift
    }

    fn writes_at_once(&self, _vdev: VdevId) -> usize {
        self.ways
    }
}

/// Allocates behind the last segment of each vdev in turn.
pub(super) struct FakeAllocator {
    vdevs: u64,
    size: u64,
    sector: u64,
    state: rt::Mutex<Space>,
}

#[derive(Default)]
struct Space {
    /// (vdev, offset) => size
    allocated: BTreeMap<(u64, u64), u64>,
    /// Larger allocations fail.
    segment_max: u64,
    /// Allocations that may still succeed.
    left: Option<u64>,
    next_vdev: u64,
}

impl FakeAllocator {
    pub(super) fn new(vdevs: u64, size: u64, ashift: u32) -> Self {
        FakeAllocator {
            vdevs,
            size,
            sector: 1 << ashift,
            state: rt::Mutex::new(Space {
                segment_max: u64::MAX,
                ..Space::default()
            }),
        }
    }

    pub(super) fn fragment(&self, segment_max: u64) {
        self.state.lock().segment_max = segment_max;
    }

    pub(super) fn limit(&self, left: Option<u64>) {
        self.state.lock().left = left;
    }

    pub(super) fn allocated(&self) -> u64 {
        self.state.lock().allocated.values().sum()
    }
}

impl Space {
    /// The end of the last segment: this allocator never looks back.
    fn end(&self, vdev: u64) -> u64 {
        let mut below = self.allocated.range((vdev, 0)..=(vdev, u64::MAX));
        below.next_back().map_or(0, |((_, at), size)| at + size)
    }

    fn remove(&mut self, dva: &DvaPhys) {
        assert!(!dva.is_gang(), "gangs are not the allocator's business");
        let key = (dva.vdev().0, dva.offset());
        let size = self.allocated.remove(&key);
        assert_eq!(
            size,
            Some(dva.asize()),
            "free of {dva} which is not allocated like that"
        );
    }
}

impl Allocator for FakeAllocator {
    fn allocate(
        &self,
        _txg: Txg,
        _class: AllocClass,
        psize: u64,
        copies: usize,
        _hint: &Hint,
    ) -> Result<DvaSet> {
        let mut state = self.state.lock();
        let asize = align_up(psize, self.sector);
        let full = || Error::new(ErrorKind::NoSpace, format!("{copies} times {psize} bytes"));
        if asize > state.segment_max {
            return Err(full());
        }
        if let Some(left) = &mut state.left {
            *left = left.checked_sub(1).ok_or_else(full)?;
        }
        let mut set = DvaSet::new();
        for _ in 0..copies {
            let vdev = state.next_vdev % self.vdevs;
            state.next_vdev += 1;
            let at = state.end(vdev);
            if at + asize > self.size {
                set.iter().for_each(|dva| state.remove(&dva));
                return Err(full());
            }
            state.allocated.insert((vdev, at), asize);
            set.push(DvaPhys::new(VdevId(vdev), at, asize, false));
        }
        Ok(set)
    }

    fn free(&self, _txg: Txg, _birth: Txg, dva: &DvaPhys) {
        self.state.lock().remove(dva);
    }

    fn unallocate(&self, _txg: Txg, dva: &DvaPhys) {
        self.state.lock().remove(dva);
    }

    fn claim(&self, _txg: Txg, dva: &DvaPhys) -> Result<()> {
        let key = (dva.vdev().0, dva.offset());
        let before = self.state.lock().allocated.insert(key, dva.asize());
        match before {
            None => Ok(()),
            Some(_) => Err(Error::corrupt(format!("{dva} is allocated"))),
        }
    }

    fn min_alloc(&self) -> u64 {
        self.sector
    }
}
