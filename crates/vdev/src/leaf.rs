//! A leaf's device: its state, its DTL, and I/O at physical offsets.
//!
//! # Concurrency
//! I/O waits for its turn ([`crate::queue`]), then runs in the caller's thread and holds no lock; but
//! writes to several asynchronous devices overlap ([`begin_write`]). The provider may be taken away at
//! any time; commands in flight keep it alive until they end.
//!
//! # Source
//! OpenZFS `module/zfs/vdev.c` (`vdev_open`, `vdev_probe`), `module/zfs/vdev_mirror.c` (load, last
//! offset), `cmd/zed/agents/zfs_diagnosis.c` (how many errors are too many).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{BlockBuf, Buf, Error, ErrorKind, Result, Txg, align_down, align_up, is_aligned};
use geom::{Bio, BioData, BioOp, Command, Provider};
use phys::label::{PAD_SIZE, SPA_MINDEVSIZE, label_device_size};
use rt::{Mutex, OneShot, RwLock};
use zio::Priority;

use crate::dtl::TXG_CONCURRENT_STATES;
use crate::io_counts::{Counted, IoCounters, IoCounts};
use crate::queue::{VdevQueue, WRITES_MAX};
use crate::report::{Report, Reports};
use crate::stats::VdevStats;
use crate::{TxgSet, Vdev, VdevAux, VdevState};

/// This many errors of one kind ...
const TOO_MANY_ERRORS: u64 = 10;
/// ... within this time, in seconds, are too many, unless properties of the vdev say otherwise.
const ERROR_WINDOW_SECS: u64 = 600;

/// The device of a leaf vdev.
pub struct Leaf {
    /// Holds the device, if there is one.
    queue: VdevQueue,
    state: RwLock<(VdevState, VdevAux)>,
    /// Derived from the state and the provider, for I/O.
    is_usable: AtomicBool,
    psize: AtomicU64,
    in_flight: AtomicU64,
    next_offset: AtomicU64,
    has_unflushed: AtomicBool,
    /// A flush failed, and what it should have made durable cannot be flushed again.
    has_lost_writes: AtomicBool,
    dtl: Mutex<TxgSet>,
    has_dtl: AtomicBool,
    /// The end of the last range of [`TXG_CONCURRENT_STATES`] txgs added to the DTL: an absent device is
    /// marked once per txg.
    dtl_marked: AtomicU64,
    io_errors: Mutex<ErrorWindow>,
    checksum_errors: Mutex<ErrorWindow>,
    slow: Mutex<ErrorWindow>,
    limits: RwLock<ErrorLimits>,
    reports: Reports,
    counters: IoCounters,
    stats: VdevStats,
    created_ns: u64,
}

impl Default for Leaf {
    fn default() -> Self {
        Leaf {
            queue: VdevQueue::default(),
            state: RwLock::new((VdevState::Closed, VdevAux::None)),
            is_usable: AtomicBool::new(false),
            psize: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            next_offset: AtomicU64::new(0),
            has_unflushed: AtomicBool::new(false),
            has_lost_writes: AtomicBool::new(false),
            dtl: Mutex::default(),
            has_dtl: AtomicBool::new(false),
            dtl_marked: AtomicU64::new(0),
            io_errors: Mutex::default(),
            checksum_errors: Mutex::default(),
            slow: Mutex::default(),
            limits: RwLock::default(),
            reports: Reports::default(),
            counters: IoCounters::default(),
            stats: VdevStats::default(),
            created_ns: rt::now_ns(),
        }
    }
}

/// How many errors of a kind, within how many seconds, are too many; `None`: as usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorLimits {
    /// `checksum_n`, `checksum_t`
    pub checksums: (Option<u64>, Option<u64>),
    /// `io_n`, `io_t`
    pub io: (Option<u64>, Option<u64>),
    /// `slow_io_n`, `slow_io_t`: unless both are set, no number of slow commands is too much.
    pub slow: (Option<u64>, Option<u64>),
}

/// Counts errors until the window ends, then starts again at 0.
#[derive(Default)]
struct ErrorWindow {
    began_ns: u64,
    count: u64,
}

impl ErrorWindow {
    /// Counts one; true if there are too many.
    fn note(&mut self, (number, secs): (Option<u64>, Option<u64>)) -> bool {
        let now = rt::now_ns();
        let window_ns = secs
            .unwrap_or(ERROR_WINDOW_SECS)
            .saturating_mul(1_000_000_000);
        if self.count == 0 || now - self.began_ns > window_ns {
            *self = ErrorWindow {
                began_ns: now,
                count: 0,
            };
        }
        self.count += 1;
        self.count >= number.unwrap_or(TOO_MANY_ERRORS)
    }
}

impl Leaf {
    /// The state and the reason for it.
    #[must_use]
    pub fn state(&self) -> (VdevState, VdevAux) {
        *self.state.read()
    }

    /// Sets the state; a device in a state that is not usable gets no more I/O.
    #[doc(alias = "vdev_set_state")]
    pub fn set_state(&self, state: VdevState, aux: VdevAux) {
        self.change(|to| *to = (state, aux), |_| ());
    }

    /// Changes state and device together, and what is derived from both.
    fn change(
        &self,
        state: impl FnOnce(&mut (VdevState, VdevAux)),
        device: impl FnOnce(&mut Option<Arc<dyn Provider>>),
    ) {
        let mut to = self.state.write();
        let mut provider = self.queue.device();
        let from = to.0;
        state(&mut to);
        device(&mut provider);
        let is_usable = to.0.is_usable() && provider.is_some();
        self.queue.set_device(provider);
        self.is_usable.store(is_usable, Ordering::Release);
        let to = { to }.0;
        // To be opened, or closed, is not news.
        if from != to && from != VdevState::Closed && to != VdevState::Closed {
            self.reports.add(Report::State { from, to });
        }
        self.queue.resume();
    }

    /// Takes a device; if it is too small, the leaf is closed instead.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the device is too small for a pool.
    pub fn open(&self, provider: Arc<dyn Provider>) -> Result<()> {
        let psize = label_device_size(provider.mediasize());
        if psize < SPA_MINDEVSIZE {
            self.close(VdevState::CantOpen, VdevAux::TooSmall);
            let context = format!(
                "{}: {psize} bytes are too few for a device",
                provider.name()
            );
            return Err(Error::invalid(context));
        }
        self.psize.store(psize, Ordering::Relaxed);
        self.has_lost_writes.store(false, Ordering::Release);
        let healthy = (VdevState::Healthy, VdevAux::None);
        self.change(|to| *to = healthy, |device| *device = Some(provider));
        Ok(())
    }

    /// Drops the device and sets the state.
    pub fn close(&self, state: VdevState, aux: VdevAux) {
        self.change(|to| *to = (state, aux), |device| *device = None);
    }

    /// The device, if there is one.
    #[must_use]
    pub fn provider(&self) -> Option<Arc<dyn Provider>> {
        self.queue.device()
    }

    /// Whether the device does several commands of one caller at a time.
    pub(crate) fn is_asynchronous(&self) -> bool {
        let device = self.queue.device();
        device.is_some_and(|device| device.shape().is_queued)
    }

    /// How many writes the device can work on at once.
    pub(crate) fn writes_at_once(&self) -> usize {
        let device = self.queue.device();
        device.map_or(0, |device| {
            device.shape().writes_at_once.clamp(1, WRITES_MAX)
        })
    }

    /// vdev_psize: the device's size rounded down to a multiple of 256 KiB, as of the last open.
    #[must_use]
    pub fn psize(&self) -> u64 {
        self.psize.load(Ordering::Relaxed)
    }

    /// Whether I/O may be tried.
    #[must_use]
    #[doc(alias = "vdev_readable")]
    pub fn is_usable(&self) -> bool {
        self.is_usable.load(Ordering::Acquire)
    }

    /// How busy the device is, as a mirror compares its sides: lower is better.
    #[must_use]
    #[doc(alias = "vdev_mirror_load")]
    pub(crate) fn load(&self, offset: u64, is_rotational: bool) -> u64 {
        const ROTATING_SEEK: u64 = 5;
        const ROTATING_NEAR_BYTES: u64 = 1 << 20;
        const SOLID_SEEK: u64 = 1;
        let queued = self.in_flight.load(Ordering::Relaxed);
        let last = self.next_offset.load(Ordering::Relaxed);
        queued
            + match (last == offset, is_rotational) {
                (true, _) => 0,
                (false, false) => SOLID_SEEK,
                (false, true) if last.abs_diff(offset) < ROTATING_NEAR_BYTES => ROTATING_SEEK / 2,
                (false, true) => ROTATING_SEEK,
            }
    }

    fn usable(&self, device: Option<Arc<dyn Provider>>) -> Result<Arc<dyn Provider>> {
        let device = device.filter(|_| self.is_usable());
        device.ok_or_else(|| Error::new(ErrorKind::Io, format!("device is {}", self.state().0)))
    }

    /// Reads at a physical offset.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] and what the provider says.
    pub fn read(&self, priority: Priority, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_merged(priority, offset, buf, false)
    }

    /// Like [`read`](Leaf::read); `is_merged` says whether what is read are several blocks.
    pub(crate) fn read_merged(
        &self,
        priority: Priority,
        offset: u64,
        buf: &mut [u8],
        is_merged: bool,
    ) -> Result<()> {
        rt::charge(rt::Work::Command, 1);
        let mut counted = Counted::new(priority, false, is_merged, buf.len());
        let _busy = Busy::new(self, offset, buf.len());
        let turn = self.queue.turn(priority, offset);
        let provider = self.usable(turn.device.clone())?;
        counted.begin();
        let result = read_whole_sectors(&*provider, offset, buf);
        self.note_end(&counted, offset, &result);
        result
    }

    /// Writes pieces one after another from a physical offset on.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] and what the provider says.
    pub fn write(&self, priority: Priority, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        rt::charge(rt::Work::Command, 1);
        let len = pieces.iter().map(|piece| piece.len()).sum();
        let mut counted = Counted::new(priority, true, pieces.len() > 1, len);
        let _busy = Busy::new(self, offset, len);
        let turn = self.queue.turn(priority, offset);
        let provider = self.usable(turn.device.clone())?;
        self.has_unflushed.store(true, Ordering::Release);
        counted.begin();
        let result = provider.execute(offset, Command::Write(pieces));
        self.note_end(&counted, offset, &result);
        result
    }

    /// For how long it has counted what it does, in ns.
    #[must_use]
    pub fn age_ns(&self) -> u64 {
        rt::now_ns().saturating_sub(self.created_ns)
    }

    /// A command has ended: counts it if it succeeded, and, if the device is still in use, whether it was slow. A
    /// device with too many slow commands is degraded.
    #[doc(alias = "zio_done")]
    fn note_end<T>(&self, counted: &Counted, offset: u64, result: &Result<T>) {
        if result.is_ok() {
            self.counters.note(counted);
        }
        let Some(delay) = counted.delay(offset).filter(|_| self.is_usable()) else {
            return;
        };
        VdevStats::add(&self.stats.slow_ios, 1);
        self.reports.add(Report::Delay(delay));
        let limits = self.limits.read().slow;
        let is_watched = limits.0.is_some() && limits.1.is_some();
        if is_watched && self.slow.lock().note(limits) && self.state().0 == VdevState::Healthy {
            self.set_state(VdevState::Degraded, VdevAux::ErrExceeded);
        }
    }

    /// The counters of what went wrong.
    pub(crate) fn stats(&self) -> &VdevStats {
        &self.stats
    }

    /// The counters of what it has done.
    pub(crate) fn counters(&self) -> &IoCounters {
        &self.counters
    }

    /// Adds what waits and what is at the device now.
    pub(crate) fn add_queued(&self, counts: &mut IoCounts) {
        (counts.waiting, counts.active) = self.queue.lengths();
    }

    /// Tells the device that a range at a physical offset is not needed any more.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] and what the provider says.
    fn delete(&self, priority: Priority, offset: u64, len: u64) -> Result<()> {
        rt::charge(rt::Work::Command, 1);
        let _busy = Busy::new(self, offset, 0);
        let mut counted = Counted::delete(priority, len);
        let turn = self.queue.turn(priority, offset);
        let provider = self.usable(turn.device.clone())?;
        self.has_unflushed.store(true, Ordering::Release);
        counted.begin();
        let result = provider.delete(offset, len);
        self.note_end(&counted, offset, &result);
        result
    }

    /// Whether the device can be told that a range is not needed any more.
    #[must_use]
    #[doc(alias = "vdev_has_trim")]
    pub fn can_delete(&self) -> bool {
        let device = self.queue.device();
        device.is_some_and(|device| device.shape().can_delete)
    }

    /// Makes all writes durable; costs nothing if there were none since the last flush.
    ///
    /// # Errors
    /// [`ErrorKind::Io`]: any write since the last flush may be lost. Unless the provider keeps them,
    /// no later flush of this leaf succeeds either: it would not bring them back.
    pub fn flush(&self) -> Result<()> {
        if self.has_lost_writes() {
            let text = "a flush failed before, and the device may have lost what was written";
            return Err(Error::new(ErrorKind::Io, text));
        }
        if !self.has_unflushed.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let provider = self.usable(self.queue.device());
        let result = provider.and_then(|provider| {
            provider.flush().inspect_err(|_| {
                let is_lost = !provider.shape().keeps_unflushed;
                self.has_lost_writes.store(is_lost, Ordering::Release);
            })
        });
        if result.is_err() {
            self.has_unflushed.store(true, Ordering::Release);
        }
        result
    }

    /// Whether writes were lost that no later flush makes durable; until the device is opened again.
    #[must_use]
    pub fn has_lost_writes(&self) -> bool {
        self.has_lost_writes.load(Ordering::Acquire)
    }

    /// Whether a write awaits its flush.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.has_unflushed.load(Ordering::Acquire)
    }

    fn begin(&self, offset: u64, len: usize) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.next_offset
            .store(offset + len as u64, Ordering::Relaxed);
    }

    fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// # Panics
    /// If something waits for the device that could start.
    pub fn check_invariants(&self) {
        self.queue.check_invariants();
        self.dtl.lock().check_invariants();
    }

    /// Whether the device still answers: reads the blank start of the first label, and writes the
    /// same bytes back.
    #[doc(alias = "vdev_probe")]
    pub(crate) fn is_alive(&self, writes: bool) -> bool {
        let mut blank = BlockBuf::zeroed(usize::try_from(PAD_SIZE).expect("8 KiB"));
        let (read, write) = (Priority::SyncRead, Priority::SyncWrite);
        self.read(read, 0, &mut blank).is_ok()
            && (!writes || self.write(write, 0, &[&blank]).is_ok())
    }

    /// What it has to tell since the last call.
    #[must_use]
    pub fn take_reports(&self) -> Vec<(rt::Timestamp, Report)> {
        self.reports.take()
    }

    /// Leaves changes of its state up to now untold.
    pub fn forget_changes(&self) {
        self.reports.forget_changes();
    }

    /// Counts an I/O error; true if there were too many recently.
    pub(crate) fn note_io_error(&self, is_write: bool) -> bool {
        self.reports.add(Report::Io { is_write });
        let limits = self.limits.read().io;
        self.io_errors.lock().note(limits)
    }

    /// Counts a checksum error; true if there were too many recently.
    pub(crate) fn note_checksum_error(&self) -> bool {
        self.reports.add(Report::Checksum);
        let limits = self.limits.read().checksums;
        self.checksum_errors.lock().note(limits)
    }

    /// Sets how many errors are too many.
    pub fn set_limits(&self, limits: ErrorLimits) {
        *self.limits.write() = limits;
    }

    /// How many errors are too many.
    #[must_use]
    pub fn limits(&self) -> ErrorLimits {
        *self.limits.read()
    }

    /// Forgets past errors: a device that was given up for them may be used again.
    #[doc(alias = "vdev_clear")]
    pub fn clear_errors(&self) {
        *self.io_errors.lock() = ErrorWindow::default();
        *self.checksum_errors.lock() = ErrorWindow::default();
        *self.slow.lock() = ErrorWindow::default();
        let is_open = self.queue.device().is_some();
        let mend = |state: &mut (VdevState, VdevAux)| {
            if is_open && matches!(state.0, VdevState::Faulted | VdevState::Degraded) {
                *state = (VdevState::Healthy, VdevAux::None);
            }
        };
        self.change(mend, |_| ());
    }

    /// The txgs in which the device missed writes.
    #[must_use]
    pub fn dtl(&self) -> TxgSet {
        self.dtl.lock().clone()
    }

    /// Whether the device missed any write.
    #[must_use]
    pub fn has_dtl(&self) -> bool {
        self.has_dtl.load(Ordering::Acquire)
    }

    /// Whether the device may lack blocks born in `txg`.
    #[must_use]
    pub fn missed(&self, txg: Txg) -> bool {
        self.has_dtl() && self.dtl.lock().contains(txg)
    }

    /// Adds txgs to the DTL.
    #[doc(alias = "vdev_dtl_dirty")]
    pub fn dirty_dtl(&self, txgs: Range<u64>) {
        // Other ranges, from labels and the MOS, may have the same end and another start.
        let is_of_now = txgs.end.checked_sub(txgs.start) == Some(TXG_CONCURRENT_STATES);
        if is_of_now && self.dtl_marked.load(Ordering::Acquire) == txgs.end && self.has_dtl() {
            // The same range: it is in there already, unless the DTL was cleared in between, which
            // resets the mark.
            return;
        }
        let mut dtl = self.dtl.lock();
        if is_of_now {
            self.dtl_marked.store(txgs.end, Ordering::Release);
        }
        dtl.add(txgs);
        self.has_dtl.store(!dtl.is_empty(), Ordering::Release);
    }

    /// Removes txgs from the DTL: the device now has the blocks born in them.
    pub fn clear_dtl(&self, txgs: &Range<u64>) {
        let mut dtl = self.dtl.lock();
        dtl.remove(txgs);
        self.dtl_marked.store(0, Ordering::Release);
        self.has_dtl.store(!dtl.is_empty(), Ordering::Release);
    }
}

/// Reads at any offset from a device that may read only whole sectors.
fn read_whole_sectors(provider: &dyn Provider, offset: u64, buf: &mut [u8]) -> Result<()> {
    let sector = u64::from(provider.sectorsize());
    if is_aligned(offset, sector) && is_aligned(buf.len() as u64, sector) {
        return provider.read(offset, buf);
    }
    let start = align_down(offset, sector);
    let end = align_up(offset + buf.len() as u64, sector);
    let mut whole = BlockBuf::scratch(usize::try_from(end - start).expect("fits memory"));
    provider.read(start, &mut whole)?;
    let skip = usize::try_from(offset - start).expect("below a sector");
    buf.copy_from_slice(&whole[skip..skip + buf.len()]);
    Ok(())
}

/// Counts a command as in flight until dropped.
struct Busy<'a>(&'a Leaf);

impl<'a> Busy<'a> {
    fn new(leaf: &'a Leaf, offset: u64, len: usize) -> Self {
        leaf.begin(offset, len);
        Busy(leaf)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A write that was begun.
pub(crate) enum Begun {
    /// The device is synchronous: the write has ended.
    Done(Result<()>),
    /// The write is in flight.
    UnderWay(Answer),
}

/// What a command that was begun will bring.
pub(crate) type Answer = Arc<OneShot<Result<BioData>>>;

impl Begun {
    #[track_caller]
    pub(crate) fn wait(self) -> Result<()> {
        match self {
            Begun::Done(result) => result,
            Begun::UnderWay(answer) => answer.take().map(drop),
        }
    }
}

/// Begins a write at a physical offset, without waiting if the device is asynchronous. `bytes` makes one
/// buffer of all pieces, which is held until the device is done.
pub(crate) fn begin_write(
    device: &Arc<Vdev>,
    priority: Priority,
    offset: u64,
    pieces: &[&[u8]],
    bytes: impl FnOnce() -> Buf,
) -> Begun {
    let leaf = device.leaf();
    if !leaf.is_asynchronous() {
        return Begun::Done(leaf.write(priority, offset, pieces));
    }
    let bytes = bytes();
    let len = bytes.len();
    let counted = Counted::new(priority, true, pieces.len() > 1, len);
    Begun::UnderWay(begin(device, counted, offset, len, BioOp::Write(bytes)))
}

/// Begins to tell a device that a range at a physical offset is not needed any more, without waiting if it is
/// asynchronous.
pub(crate) fn begin_delete(device: &Arc<Vdev>, priority: Priority, offset: u64, len: u64) -> Begun {
    let leaf = device.leaf();
    if !leaf.is_asynchronous() {
        return Begun::Done(leaf.delete(priority, offset, len));
    }
    let counted = Counted::delete(priority, len);
    Begun::UnderWay(begin(device, counted, offset, 0, BioOp::Delete { len }))
}

/// Begins a read at a physical offset. `None` if the device is synchronous, or reads only larger sectors:
/// [`Leaf::read`] can do it.
pub(crate) fn begin_read(
    device: &Arc<Vdev>,
    priority: Priority,
    offset: u64,
    len: usize,
) -> Option<Answer> {
    let provider = device.leaf().queue.device()?;
    let sector = u64::from(provider.sectorsize());
    let is_whole = is_aligned(offset | len as u64, sector);
    let begins = provider.shape().is_queued && is_whole;
    let counted = Counted::new(priority, false, false, len);
    begins.then(|| begin(device, counted, offset, len, BioOp::Read { len }))
}

fn begin(device: &Arc<Vdev>, mut counted: Counted, offset: u64, len: usize, op: BioOp) -> Answer {
    rt::charge(rt::Work::Command, 1);
    device.leaf().begin(offset, len);
    let answer = Arc::new(OneShot::default());
    let (theirs, vdev) = (Arc::clone(&answer), Arc::clone(device));
    let priority = counted.priority();
    let done = move |counted: Counted, result: Result<BioData>| {
        vdev.leaf().end();
        vdev.leaf().note_end(&counted, offset, &result);
        vdev.leaf().queue.io_done(priority);
        theirs.give(result);
    };
    let vdev = Arc::clone(device);
    let start = move |device| match vdev.leaf().usable(device) {
        Ok(provider) => {
            if matches!(op, BioOp::Write(_) | BioOp::Delete { .. }) {
                vdev.leaf().has_unflushed.store(true, Ordering::Release);
            }
            counted.begin();
            provider.submit(Bio {
                op,
                offset,
                done: Box::new(move |result| done(counted, result)),
            });
        }
        Err(error) => done(counted, Err(error)),
    };
    let queue = &device.leaf().queue;
    queue.submit(priority, offset, Box::new(start));
    answer
}
