//! Issuing device writes: neighbours merged, several in flight, the urgent ones first.
//!
//! # What it is
//! A [`Flight`] takes writes while its batch is still being encoded, and those of further batches if the
//! first need not be waited for ([`UnderWay`]). Writes to consecutive offsets are merged into one device
//! write, up to a limit. Helper threads issue them at once, in the order described in
//! [`crate::flights`]; a thread that waits for a flight helps to issue.
//!
//! # Invariants
//! 1. While a vdev has writes waiting and could take one more, a running thread is going to check for
//!    it, or a helper has been dispatched.
//! 2. After the first error of a flight the rest of it is dropped: its txg is lost anyway. A write of a
//!    txg returns an error only once another attempt is refused (see `suspend`); until then its thread
//!    waits, and the group counts as running.
//!
//! # Concurrency
//! One lock for all lists, held only to take the next group or to book it.
//!
//! # Why not simpler
//! `rt::parallel_map` is for computing: in simulated time it runs inline, and then an array of
//! drives would only ever see one command at a time.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_queue.c` (aggregation), `module/zfs/zio.c` (`zio_vdev_io_start`).

use std::sync::{Arc, OnceLock};

use base::{BlockBuf, Buf, Error, ErrorKind, Result, Txg, VdevId, align_up};
use phys::DvaPhys;

use crate::flights::{Group, Landing, State, Then};
use crate::suspend::{Suspend, failed_write, reissue};
use crate::{Io, Priority, VdevOps};

/// The most blocks in one merged write, far below any system's limit on gathered writes.
const AGGREGATION_LIMIT_PARTS: usize = 256;

/// One copy of one block.
#[derive(Debug)]
pub struct Write {
    pub(crate) vdev: VdevId,
    pub(crate) offset: u64,
    birth: Txg,
    buf: Buf,
    start: usize,
    len: usize,
}

impl Write {
    /// A write of `len` bytes of `buf`, from `start` on, to `dva`, for a block born in txg `birth`.
    #[must_use]
    pub fn new(birth: Txg, dva: &DvaPhys, buf: &Buf, start: usize, len: usize) -> Self {
        assert!(start + len <= buf.len(), "{start} + {len} of {}", buf.len());
        Write {
            vdev: dva.vdev(),
            offset: dva.offset(),
            birth,
            buf: buf.clone(),
            start,
            len,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buf[self.start..self.start + self.len]
    }

    /// A copy that is padded to whole sectors with zeros; `None` if nothing is missing.
    pub(crate) fn padded(&self, ashift: u32) -> Option<BlockBuf> {
        let padded = align_up(self.len as u64, 1 << ashift) as usize;
        (padded > self.len).then(|| {
            let mut buf = BlockBuf::zeroed(padded);
            buf[..self.len].copy_from_slice(self.bytes());
            buf
        })
    }
}

/// Sorts by place and merges neighbours.
#[doc(alias = "vdev_queue_aggregate")]
fn aggregate(
    vdevs: &dyn VdevOps,
    flight: &Flight,
    mut writes: Vec<Write>,
    limit_bytes: u64,
) -> Vec<Group> {
    writes.sort_unstable_by_key(|w| (w.vdev, w.offset));
    let mut groups: Vec<Group> = Vec::new();
    let (mut vdev, mut end, mut bytes) = (VdevId(u64::MAX), 0, 0);
    for write in writes {
        let asize = vdevs.psize_to_asize(write.vdev, write.len as u64, write.birth);
        let parts = groups.last().map_or(0, |g| g.writes.len());
        let io = Io::write(write.birth, flight.priority);
        let adjacent = write.vdev == vdev && write.offset == end;
        assert!(
            write.vdev != vdev || write.offset >= end,
            "two blocks of one batch overlap at vdev {vdev} offset {:#x}",
            write.offset
        );
        (vdev, end) = (write.vdev, write.offset + asize);
        let fits = bytes + asize <= limit_bytes && parts < AGGREGATION_LIMIT_PARTS;
        match groups.last_mut() {
            Some(group) if adjacent && fits && group.io == io => {
                group.writes.push(write);
                bytes += asize;
            }
            _ => {
                groups.push(Group {
                    flight: flight.id,
                    io,
                    writes: vec![write],
                    must_succeed: flight.priority != Priority::SyncWrite,
                });
                bytes = asize;
            }
        }
    }
    groups
}

struct Shared {
    vdevs: Arc<dyn VdevOps>,
    suspend: Arc<OnceLock<Arc<dyn Suspend>>>,
    state: rt::Mutex<State>,
    /// A flight has landed.
    landed: rt::Condvar,
    /// Started by the first batch that has work for it: a pool that is only read has none.
    queue: rt::Mutex<Option<rt::TaskQueue>>,
    threads: usize,
}

impl Shared {
    fn issue(&self, group: Group, is_helper: bool) {
        let mut running = Running {
            shared: self,
            vdev: group.vdev(),
            flight: group.flight,
            is_helper,
            result: None,
        };
        let issue = || group.issue(&*self.vdevs);
        let suspend = self.suspend.get().filter(|_| group.must_succeed);
        running.result = Some(reissue(
            suspend.map(|suspend| &**suspend),
            failed_write,
            issue,
        ));
        // Releases the buffers before the waiter is woken.
        drop(group);
    }

    /// Issues waiting groups until none is left that can be issued.
    fn help(self: &Arc<Self>) {
        let panics = Panics(self);
        loop {
            let mut state = self.state.lock();
            let Some(group) = state.next() else {
                // Under the same lock: a thread that adds work after this dispatches another helper.
                state.helpers -= 1;
                std::mem::forget(panics);
                return;
            };
            state.busy += 1;
            drop(state);
            self.issue(group, true);
        }
    }

    /// Helps to issue until everything of a flight is written.
    fn land(self: &Arc<Self>, flight: u64) {
        let mut state = self.state.lock();
        while !state.has_landed(flight) {
            let Some(group) = state.next() else { break };
            drop(state);
            self.issue(group, false);
            state = self.state.lock();
        }
        self.start_helpers(&mut state, 0);
        while !state.has_landed(flight) {
            self.landed.wait(&mut state);
        }
    }

    /// Dispatches helpers for the groups that can be issued now, less `spared` that the caller issues
    /// itself.
    fn start_helpers(self: &Arc<Self>, state: &mut State, spared: usize) {
        if state.is_closed {
            return;
        }
        let wanted = state.ready().saturating_sub(spared) + state.busy;
        while state.helpers < wanted.min(self.threads) {
            state.helpers += 1;
            let shared = Arc::clone(self);
            let mut queue = self.queue.lock();
            let start = || rt::TaskQueue::new("z_wr_iss", self.threads);
            queue
                .get_or_insert_with(start)
                .dispatch(move || shared.help());
        }
    }
}

/// When a helper panics, starts another one in its place.
struct Panics<'a>(&'a Arc<Shared>);

impl Drop for Panics<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.helpers -= 1;
        self.0.start_helpers(&mut state, 0);
    }
}

/// A group that is being issued. Dropping it records the result; if there is none, issuing panicked,
/// which is recorded as an error so that no thread waits for ever.
struct Running<'a> {
    shared: &'a Shared,
    vdev: VdevId,
    flight: u64,
    is_helper: bool,
    result: Option<Result<()>>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let panicked = || Err(Error::new(ErrorKind::Io, "a device write panicked"));
        let result = self.result.take().unwrap_or_else(panicked);
        let mut state = self.shared.state.lock();
        state.busy -= usize::from(self.is_helper);
        let queue = state.vdevs.get_mut(&self.vdev);
        queue.expect("it came from there").running -= 1;
        if let Err(error) = result {
            state.purge(self.flight);
            let landing = state.flights.get_mut(&self.flight);
            landing.expect("not landed yet").error.get_or_insert(error);
        }
        state.forget(self.flight, 1);
        let landing = state.flights.get_mut(&self.flight);
        let landing = landing.expect("it is open until it has landed");
        if landing.left > 0 {
            return;
        }
        let then = landing.then.take().filter(|_| landing.error.is_none());
        self.shared.landed.notify_all();
        drop(state);
        if let Some(then) = then {
            then();
        }
    }
}

/// Issues the device writes of a pool.
pub struct Issuer {
    shared: Arc<Shared>,
    aggregation_limit_bytes: u64,
}

impl Issuer {
    /// An issuer with at most `threads` helpers, which merges neighbours up to a limit. Writes that fail are
    /// repeated as `suspend` says, once that is set.
    #[must_use]
    pub fn new(
        vdevs: Arc<dyn VdevOps>,
        suspend: Arc<OnceLock<Arc<dyn Suspend>>>,
        threads: usize,
        aggregation_limit_bytes: u64,
    ) -> Self {
        Issuer {
            shared: Arc::new(Shared {
                vdevs,
                suspend,
                state: rt::Mutex::new(State::default()),
                landed: rt::Condvar::new(),
                queue: rt::Mutex::new(None),
                threads: threads.max(1),
            }),
            aggregation_limit_bytes,
        }
    }

    /// Starts a batch.
    pub(crate) fn flight(&self, priority: Priority) -> Flight {
        let mut state = self.shared.state.lock();
        let id = state.next_flight;
        state.next_flight += 1;
        state.flights.insert(id, Landing::default());
        Flight {
            shared: Arc::clone(&self.shared),
            id,
            priority,
        }
    }

    /// Adds writes to a flight. With `more` to come, helpers take all of them; otherwise one group is
    /// left for the calling thread, which is about to wait.
    pub(crate) fn submit(&self, flight: &Flight, writes: Vec<Write>, more: bool) {
        let vdevs = &*self.shared.vdevs;
        let groups = aggregate(vdevs, flight, writes, self.aggregation_limit_bytes);
        let mut limits: Vec<(VdevId, usize)> = Vec::new();
        for of_one in groups.chunk_by(|a, b| a.vdev() == b.vdev()) {
            let vdev = of_one[0].vdev();
            limits.push((vdev, vdevs.writes_at_once(vdev).max(1)));
        }
        let mut state = self.shared.state.lock();
        if state.flights[&flight.id].error.is_some() {
            return;
        }
        for group in groups {
            state.push(group);
        }
        for (vdev, limit) in limits {
            state.vdevs.entry(vdev).or_default().limit = limit;
        }
        self.shared.start_helpers(&mut state, usize::from(!more));
    }
}

impl Drop for Issuer {
    /// The helpers hold `shared` and so the queue that they run on, which they cannot end themselves.
    fn drop(&mut self) {
        self.shared.state.lock().is_closed = true;
        let queue = self.shared.queue.lock().take();
        drop(queue);
    }
}

/// Device writes that a thread is going to wait for. Dropping a flight discards what was not issued yet.
pub(crate) struct Flight {
    shared: Arc<Shared>,
    id: u64,
    priority: Priority,
}

impl Flight {
    /// Helps to issue until everything is written.
    pub(crate) fn wait(self) -> Result<()> {
        self.drain();
        let mut state = self.shared.state.lock();
        let landing = state.flights.get_mut(&self.id);
        let error = landing.expect("it is open").error.take();
        drop(state);
        error.map_or(Ok(()), Err)
    }

    /// Like [`wait`](Flight::wait), but leaves the error for `wait` to return.
    pub(crate) fn drain(&self) {
        self.shared.land(self.id);
    }

    fn is_written(&self) -> bool {
        let landing = &self.shared.state.lock().flights[&self.id];
        landing.left == 0 && landing.error.is_none()
    }

    fn then(&self, f: Then) -> bool {
        let mut state = self.shared.state.lock();
        let landing = state.flights.get_mut(&self.id).expect("it is open");
        let goes_on = landing.left > 0;
        if goes_on {
            landing.then = Some(f);
        }
        goes_on
    }
}

impl std::fmt::Debug for Flight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Flight({}, {:?})", self.id, self.priority)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.purge(self.id);
        while !state.has_landed(self.id) {
            self.shared.landed.wait(&mut state);
        }
        state.flights.remove(&self.id);
    }
}

/// Batches that were begun: all their blocks are allocated, and their writes are in flight.
///
/// Dropping it instead of waiting discards what was not issued yet.
#[derive(Debug, Default)]
pub struct UnderWay {
    flight: Option<Flight>,
    is_behind: bool,
}

impl UnderWay {
    /// For blocks of the open txg, which no thread waits for yet.
    #[must_use]
    pub fn behind() -> UnderWay {
        UnderWay {
            flight: None,
            is_behind: true,
        }
    }

    /// Whether it was made by [`behind`](UnderWay::behind).
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Waits until everything that was begun is written.
    ///
    /// # Errors
    /// `Io` when a block could not be written to any device. Its space is not given back: the txg is
    /// lost.
    #[doc(alias = "zio_wait")]
    pub fn wait(&mut self) -> Result<()> {
        self.flight.take().map_or(Ok(()), Flight::wait)
    }

    /// Whether all of it has been written, without an error.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.flight.as_ref().is_none_or(Flight::is_written)
    }

    /// Calls `f` once everything begun is written, on the thread that completed the last write, with no
    /// locks held; not after an error. Nothing may be begun after this. Returns false, and never calls
    /// `f`, if nothing is in flight any more.
    #[must_use]
    pub fn then(&self, f: impl FnOnce() + Send + 'static) -> bool {
        let flight = self.flight.as_ref();
        flight.is_some_and(|flight| flight.then(Box::new(f)))
    }

    /// Begins writes that need not be waited for before the batch ends.
    pub fn begin(&mut self, issuer: &Issuer, writes: Vec<Write>) {
        issuer.submit(self.flight(issuer), writes, true);
    }

    pub(crate) fn flight(&mut self, issuer: &Issuer) -> &Flight {
        let priority = if self.is_behind {
            Priority::WriteBehind
        } else {
            Priority::AsyncWrite
        };
        self.flight.get_or_insert_with(|| issuer.flight(priority))
    }
}
