//! Issuing a batch of device writes: neighbours merged, several in flight.
//!
//! # What it is
//! A [`Flight`] takes writes while the batch is still being encoded, and of further batches if nobody
//! has to wait for the first ([`UnderWay`]). Writes to consecutive places
//! become one device write of up to a limit. Helper threads start on them at once; the thread that
//! waits for the batch works along. No more threads write than the devices have use for: two that
//! take turns at one file cost a wakeup for each write.
//!
//! # Concurrency
//! One lock per flight, held only to take the next group. While groups are left, a thread is at work
//! that will look for them, or one was asked to come. After the first error the remaining
//! groups are dropped: the txg is lost anyhow.
//!
//! # Why not simpler
//! `rt::parallel_map` is for computing: in simulated time it runs inline, and then an array of
//! drives would only ever see one command at a time.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_queue.c` (aggregation), `module/zfs/zio.c` (`zio_vdev_io_start`).

use std::collections::VecDeque;
use std::sync::Arc;

use base::{BlockBuf, Buf, Error, ErrorKind, Result, VdevId, align_up, is_aligned};
use phys::DvaPhys;

use crate::VdevOps;

/// The most blocks in one merged write, far below any system's limit on gathered writes.
const AGGREGATION_LIMIT_PARTS: usize = 256;

/// One copy of one block.
#[derive(Debug)]
pub(crate) struct Write {
    vdev: VdevId,
    offset: u64,
    buf: Buf,
    start: usize,
    len: usize,
}

impl Write {
    /// Stores `len` bytes of `buf` from `start` on at `dva`.
    pub(crate) fn new(dva: &DvaPhys, buf: &Buf, start: usize, len: usize) -> Self {
        assert!(start + len <= buf.len(), "{start} + {len} of {}", buf.len());
        Write {
            vdev: dva.vdev(),
            offset: dva.offset(),
            buf: buf.clone(),
            start,
            len,
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.buf[self.start..self.start + self.len]
    }

    /// Pads to whole sectors with zeros; copies only when the length is not whole.
    fn pad(&mut self, ashift: u32) {
        let sector = 1u64 << ashift;
        if is_aligned(self.len as u64, sector) {
            return;
        }
        let padded = align_up(self.len as u64, sector) as usize;
        let mut buf = BlockBuf::zeroed(padded);
        buf[..self.len].copy_from_slice(self.bytes());
        (self.buf, self.start, self.len) = (buf.share(), 0, padded);
    }
}

struct Group {
    writes: Vec<Write>,
}

impl Group {
    fn issue(&self, vdevs: &dyn VdevOps) -> Result<()> {
        let first = &self.writes[0];
        if let [only] = &self.writes[..] {
            return vdevs.write(only.vdev, only.offset, only.bytes());
        }
        let parts: Vec<&[u8]> = self.writes.iter().map(Write::bytes).collect();
        vdevs.write_gather(first.vdev, first.offset, &parts)
    }
}

/// Sorts by place and merges neighbours.
#[doc(alias = "vdev_queue_aggregate")]
fn aggregate(vdevs: &dyn VdevOps, mut writes: Vec<Write>, limit_bytes: u64) -> Vec<Group> {
    writes.sort_unstable_by_key(|w| (w.vdev, w.offset));
    let mut groups: Vec<Group> = Vec::new();
    let (mut vdev, mut end, mut bytes) = (VdevId(u64::MAX), 0, 0);
    for mut write in writes {
        write.pad(vdevs.ashift(write.vdev));
        let asize = vdevs.psize_to_asize(write.vdev, write.len as u64);
        let parts = groups.last().map_or(0, |g| g.writes.len());
        let adjacent = write.vdev == vdev && write.offset == end;
        assert!(
            write.vdev != vdev || write.offset >= end,
            "two blocks of one batch overlap at vdev {vdev} offset {:#x}",
            write.offset
        );
        (vdev, end) = (write.vdev, write.offset + asize);
        let fits = bytes + asize <= limit_bytes && parts < AGGREGATION_LIMIT_PARTS;
        match groups.last_mut() {
            Some(group) if adjacent && fits => {
                group.writes.push(write);
                bytes += asize;
            }
            _ => {
                groups.push(Group {
                    writes: vec![write],
                });
                bytes = asize;
            }
        }
    }
    groups
}

/// How many of the groups the devices can work on at once.
fn ways(vdevs: &dyn VdevOps, groups: &[Group]) -> usize {
    let by_vdev = groups.chunk_by(|a, b| a.writes[0].vdev == b.writes[0].vdev);
    let ways = by_vdev.map(|of_one| vdevs.writes_at_once(of_one[0].writes[0].vdev));
    ways.fold(0, usize::saturating_add)
}

#[derive(Default)]
struct State {
    groups: VecDeque<Group>,
    running: usize,
    helpers: usize,
    /// How many groups the devices can work on at once.
    ways: usize,
    error: Option<Error>,
}

impl State {
    fn next(&mut self) -> Option<Group> {
        if self.running >= self.ways {
            return None;
        }
        let group = self.groups.pop_front()?;
        self.running += 1;
        Some(group)
    }
}

struct Shared {
    vdevs: Arc<dyn VdevOps>,
    state: rt::Mutex<State>,
    idle: rt::Condvar,
}

impl Shared {
    /// Issues groups until none is left, or enough others are at it.
    fn work(&self, is_helper: bool) {
        let mut state = self.state.lock();
        while let Some(group) = state.next() {
            drop(state);
            let mut running = Running {
                shared: self,
                result: None,
            };
            running.result = Some(group.issue(&*self.vdevs));
            drop(group);
            drop(running);
            state = self.state.lock();
        }
        state.helpers -= usize::from(is_helper);
    }

    /// Waits until others have written what is left; answers the first error.
    fn settle(&self) -> Option<Error> {
        let mut state = self.state.lock();
        while state.running > 0 || !state.groups.is_empty() {
            self.idle.wait(&mut state);
        }
        state.error.take()
    }
}

/// A group that is being issued. Dropping it records the result; without one, issuing panicked,
/// and nobody may wait for it for ever.
struct Running<'a> {
    shared: &'a Shared,
    result: Option<Result<()>>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let panicked = || Err(Error::new(ErrorKind::Io, "a device write panicked"));
        let result = self.result.take().unwrap_or_else(panicked);
        let mut state = self.shared.state.lock();
        state.running -= 1;
        if let Err(error) = result {
            state.groups.clear();
            state.error.get_or_insert(error);
        }
        if state.running == 0 && state.groups.is_empty() {
            self.shared.idle.notify_all();
        }
    }
}

/// The threads that help every flight of a pool.
pub(crate) struct Issuer {
    vdevs: Arc<dyn VdevOps>,
    /// Started with the first batch that has work for it: pools that are only read have none.
    queue: rt::Mutex<Option<rt::TaskQueue>>,
    threads: usize,
    aggregation_limit_bytes: u64,
}

impl Issuer {
    pub(crate) fn new(
        vdevs: Arc<dyn VdevOps>,
        threads: usize,
        aggregation_limit_bytes: u64,
    ) -> Self {
        Issuer {
            vdevs,
            queue: rt::Mutex::new(None),
            threads: threads.max(1),
            aggregation_limit_bytes,
        }
    }

    fn dispatch(&self, task: impl FnOnce() + Send + 'static) {
        let mut queue = self.queue.lock();
        let start = || rt::TaskQueue::new("z_wr_iss", self.threads);
        queue.get_or_insert_with(start).dispatch(task);
    }

    /// Starts a batch.
    pub(crate) fn flight(&self) -> Flight {
        Flight(Arc::new(Shared {
            vdevs: self.vdevs.clone(),
            state: rt::Mutex::new(State::default()),
            idle: rt::Condvar::new(),
        }))
    }

    /// Adds writes to a flight. With `more` to come, helpers take all of them; otherwise one group is
    /// left to the caller, who is going to wait.
    pub(crate) fn submit(&self, flight: &Flight, writes: Vec<Write>, more: bool) {
        let vdevs = &*self.vdevs;
        let groups = aggregate(vdevs, writes, self.aggregation_limit_bytes);
        let ways = ways(vdevs, &groups);
        let mut state = flight.0.state.lock();
        state.ways = state.ways.max(ways);
        if state.error.is_some() {
            return;
        }
        state.groups.extend(groups);
        let wanted = state.groups.len().min(state.ways);
        let wanted = wanted.saturating_sub(usize::from(!more));
        while state.helpers < wanted.min(self.threads) {
            state.helpers += 1;
            let shared = flight.0.clone();
            self.dispatch(move || shared.work(true));
        }
    }
}

/// Device writes that somebody is going to wait for.
pub(crate) struct Flight(Arc<Shared>);

impl Flight {
    /// Works along until everything is written.
    pub(crate) fn wait(self) -> Result<()> {
        self.0.work(false);
        self.0.settle().map_or(Ok(()), Err)
    }
}

/// Batches that were begun: all their blocks have places, and are being written there.
///
/// Dropping it instead of waiting gives up what was not written yet.
#[derive(Default)]
pub struct UnderWay(Option<Flight>);

impl UnderWay {
    /// Waits until everything that was begun is written.
    ///
    /// # Errors
    /// `Io` when a block could be stored nowhere. What was allocated stays so: the txg is lost.
    #[doc(alias = "zio_wait")]
    pub fn wait(&mut self) -> Result<()> {
        self.0.take().map_or(Ok(()), Flight::wait)
    }

    pub(crate) fn flight(&mut self, issuer: &Issuer) -> &Flight {
        self.0.get_or_insert_with(|| issuer.flight())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(flight) = self.0.take() {
            flight.0.state.lock().groups.clear();
            // Whoever gives up has met an error already.
            let _ = flight.0.settle();
        }
    }
}
