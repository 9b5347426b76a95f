//! Threads that take the kernel's requests and answer them.
//!
//! # Concurrency
//! A thread that takes a request while no other one waits for the next starts one that does; a thread that finds
//! enough others waiting ends. So a request that waits, for the disk or for a suspended pool, stops no other one.
//! Who asked is woken on the processor of the thread that answers, mostly. After a large request it runs there at once,
//! as that thread [yields](rt::yield_now): otherwise it would take the processor from the next request, which then
//! waits half done while another processor is idle.
//! With io_uring ([`crate::ring`]) threads are bound to queues instead, and only what is left comes by `/dev/fuse`.

use std::io::IoSlice;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Error, ErrorKind, Result};
use dmu::Content;
use rt::{Condvar, JoinHandle, Mutex};
use zerocopy::{FromBytes, IntoBytes};
use zpl::mount::Mount;

use crate::abi::{self, InHeader, InitIn, InitInMore, InitOut, OutHeader, init, op};
use crate::device::Device;
use crate::home::Home;
use crate::nodes::{Node, Nodes};
use crate::notices::Notices;
use crate::options::{MountOptions, Snapshots};
use crate::requests::{self, Answer, Errno, LARGE_BYTES, Request};
use crate::ring::{Queues, Slot, Taken};

/// The most bytes of one write or read: the most that the kernel of today sends.
const MAX_WRITE_BYTES: u32 = 1 << 20;
/// Most bytes that the kernel reads ahead.
const MAX_READAHEAD_BYTES: u32 = 8 << 20;
/// Most requests that the kernel has in the background (reading ahead, writing of mappings) at a time.
const MAX_BACKGROUND: u16 = 64;
/// Room for a request: the largest write, and what precedes its bytes.
const BUFFER_BYTES: usize = MAX_WRITE_BYTES as usize + 4096;
/// Most threads.
const THREADS_MAX: usize = 64;
/// Most threads that wait for a request.
const IDLE_MAX: usize = 4;
/// Most of them while one thing is asked for at a time. The kernel wakes them in turn, so each one more has been out of
/// the processor's caches for longer.
const IDLE_AT_HOME_MAX: usize = 2;
/// Most pieces of an answer that are sent as they are; above that they are copied together (`UIO_MAXIOV` is 1024).
const PIECES_MAX: usize = 512;
/// How long the kernel may take to say that it has forgotten what it was told to, in ns.
const FORGET_NS: u64 = 500_000_000;
/// How often it is asked meanwhile.
const FORGET_TRIES: u64 = 10;
/// What holes are sent from.
static ZEROS: [u8; 128 << 10] = [0; 128 << 10];

type Outcome = std::result::Result<Answer, Errno>;

/// The conversation with the kernel about one mount.
pub(crate) struct Session {
    device: Arc<Device>,
    pub(crate) nodes: Nodes,
    pub(crate) notices: Notices,
    shows_snapdir: AtomicBool,
    threads: Mutex<Threads>,
    ended: Condvar,
    is_unmounted: AtomicBool,
    /// Where threads that `/dev/fuse` wakes are to run.
    home: Home,
    /// What comes through io_uring, if the kernel has that enabled.
    queues: Option<Queues>,
}

#[derive(Default)]
struct Threads {
    /// Those that read `/dev/fuse`.
    all: usize,
    idle: usize,
    /// Those with a ring.
    ringed: usize,
    has_ended: bool,
    handles: Vec<JoinHandle<()>>,
}

impl Session {
    /// Agrees with the kernel on how to talk.
    pub(crate) fn begin(
        device: Device,
        files: Arc<Mount>,
        snapshots: Arc<dyn Snapshots>,
        options: &MountOptions,
    ) -> Result<Session> {
        let device = Arc::new(device);
        let mut buffer = vec![0; BUFFER_BYTES];
        let len = device.receive(&mut buffer)?;
        let len = len.ok_or_else(|| Error::new(ErrorKind::Io, "the kernel has gone away"))?;
        let bad = |_| Error::new(ErrorKind::Unsupported, "the kernel speaks another protocol");
        let (header, rest) = InHeader::read_from_prefix(&buffer[..len]).map_err(|_| bad(()))?;
        let (asked, rest) = InitIn::read_from_prefix(rest).map_err(|_| bad(()))?;
        if header.opcode != op::INIT || asked.major != abi::MAJOR || asked.minor < 31 {
            return Err(bad(()));
        }
        let more = InitInMore::read_from_prefix(rest)
            .map_or_else(|_| InitInMore::default(), |(more, _)| more);
        let offered = u64::from(asked.flags) | u64::from(more.flags2) << 32;
        let has_acls = files.settings().posix_acl;
        let mut wanted = wanted(has_acls);
        let queues = match offered & init::OVER_IO_URING {
            0 => None,
            _ => Queues::prepare(MAX_WRITE_BYTES as usize),
        };
        if queues.is_some() {
            wanted |= init::OVER_IO_URING;
        }
        let answer = agreement(&asked, wanted & offered);
        let session = Session {
            notices: Notices::begin(Arc::clone(&device)),
            device,
            nodes: Nodes::new(files, snapshots),
            shows_snapdir: AtomicBool::new(options.shows_snapdir),
            threads: Mutex::default(),
            ended: Condvar::default(),
            is_unmounted: AtomicBool::new(false),
            home: Home::new(queues.is_none()),
            queues,
        };
        session.answer(header.unique, Ok(Answer::of(&answer)));
        session.watch();
        Ok(session)
    }

    /// Closes a snapshot that was looked at below `.zfs/snapshot`, if no program is in it. The kernel tells only a
    /// moment later that a file was closed, and until then keeps the name: so it is asked again.
    pub(crate) fn let_go(&self, snapshot: &str) {
        for _ in 0..FORGET_TRIES {
            if !self.nodes.is_open(snapshot) {
                return;
            }
            self.notices.drop_name(Node::SNAPSHOTS_ID, snapshot);
            self.nodes.wait_closed(snapshot, FORGET_NS / FORGET_TRIES);
        }
    }

    /// Begins to answer requests, until it is unmounted.
    pub(crate) fn serve(self: &Arc<Session>) {
        let mut threads = self.threads.lock();
        let watch = Arc::clone(self);
        let watch = rt::spawn("fuse watch", move || watch.home.look());
        threads.handles.push(watch);
        self.spawn(&mut threads);
        let slots = self.queues.as_ref().map(Queues::take_first);
        for slot in slots.into_iter().flatten() {
            self.spawn_with(&mut threads, slot);
        }
    }

    /// Starts one more thread.
    fn spawn(self: &Arc<Session>, threads: &mut Threads) {
        threads.all += 1;
        threads.idle += 1;
        threads.handles.retain(|thread| !thread.is_finished());
        let next = Arc::clone(self);
        threads.handles.push(rt::spawn("fuse", move || next.work()));
    }

    /// Starts one more thread, with a ring.
    fn spawn_with(self: &Arc<Session>, threads: &mut Threads, slot: Slot) {
        let Some(queues) = &self.queues else {
            return;
        };
        threads.ringed += 1;
        queues.enter(&slot);
        threads.handles.retain(|thread| !thread.is_finished());
        let next = Arc::clone(self);
        threads
            .handles
            .push(rt::spawn("fuse ring", move || next.work_with(slot)));
    }

    /// Answers what comes to one ring.
    fn work_with(self: Arc<Session>, mut slot: Slot) {
        rt::stay_on(Some(slot.processor()));
        let mut taken = self.with_others(&mut slot, |slot| slot.begin(&self.device));
        while taken == Taken::Request {
            self.home.lead(slot.processor());
            if let Some(request) = slot.request() {
                let unique = request.header.unique;
                let is_long = request.is_long();
                // Then it may be done on another processor, beside what is done here meanwhile.
                if is_long {
                    rt::stay_on(None);
                }
                let outcome = self.outcome(request);
                with_pieces(outcome, |error, pieces| slot.answer(unique, error, pieces));
                if is_long {
                    rt::stay_on(Some(slot.processor()));
                }
            }
            taken = self.with_others(&mut slot, |slot| slot.commit(&self.device));
        }
        if taken == Taken::Unknown {
            // The kernel may still write to its buffers.
            std::mem::forget(slot);
        }
        self.leave(|threads| &mut threads.ringed);
    }

    fn work(self: Arc<Session>) {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut spot = self.home.enter();
        loop {
            spot.go();
            let received = self.device.receive(&mut buffer);
            let mut threads = self.threads.lock();
            threads.idle -= 1;
            let Ok(Some(len)) = received else {
                self.is_unmounted.store(true, Ordering::Release);
                drop(threads);
                return self.leave(|threads| &mut threads.all);
            };
            let beside = (threads.all - threads.idle).saturating_sub(1);
            if threads.idle == 0 && threads.all < THREADS_MAX {
                self.spawn(&mut threads);
            }
            drop(threads);
            if !self.take(&buffer[..len], beside) {
                return;
            }
        }
    }

    /// Answers one request, beside which others are being worked on. Returns whether this thread is to wait for the
    /// next.
    fn take(&self, bytes: &[u8], beside: usize) -> bool {
        let Ok((header, body)) = InHeader::read_from_prefix(bytes) else {
            return self.rest();
        };
        let work = || self.outcome(Request::new(header, body));
        let (outcome, timed) = self.home.time(work);
        // Before the answer: who asked may send the next request while this thread still waits to go on.
        let stays = self.rest();
        if !matches!(outcome, Ok(Answer::None)) {
            self.answer(header.unique, outcome);
        }
        let read_bytes = requests::read_bytes(&header, body);
        self.home.note(&header, read_bytes, beside, timed);
        if header.len.max(read_bytes) > LARGE_BYTES {
            rt::yield_now();
        }
        stays
    }

    /// Counts this thread as one that waits for a request, if not enough others do.
    fn rest(&self) -> bool {
        let most = match self.home.is_anywhere() {
            true => IDLE_MAX,
            false => IDLE_AT_HOME_MAX,
        };
        let mut threads = self.threads.lock();
        let stays = threads.idle < most;
        if stays {
            threads.idle += 1;
        } else {
            threads.all -= 1;
        }
        stays
    }

    fn outcome(&self, request: Request<'_>) -> Outcome {
        let work = AssertUnwindSafe(|| self.notices.own(|| requests::dispatch(self, request)));
        catch_unwind(work).unwrap_or(Err(Errno::IO))
    }

    /// The kernel may have given up the request, or be gone: then nobody waits for the answer.
    fn answer(&self, unique: u64, outcome: Outcome) {
        with_pieces(outcome, |error, pieces| {
            let joined = match pieces.len() {
                0..=PIECES_MAX => Vec::new(),
                _ => pieces.concat(),
            };
            let as_one = [&joined[..]];
            let pieces = if joined.is_empty() { pieces } else { &as_one };
            let len = pieces.iter().map(|piece| piece.len()).sum::<usize>();
            let header = OutHeader {
                len: u32::try_from(len + size_of::<OutHeader>())
                    .expect("an answer is as long as the kernel asked for"),
                error,
                unique,
            };
            let header = IoSlice::new(header.as_bytes());
            let _ = match pieces {
                [] => self.device.send(&[header]),
                [piece] => self.device.send(&[header, IoSlice::new(piece)]),
                pieces => {
                    let pieces = pieces.iter().map(|piece| IoSlice::new(piece));
                    let parts: Vec<_> = std::iter::once(header).chain(pieces).collect();
                    self.device.send(&parts)
                }
            };
        });
    }

    /// A thread ends, and with the last one the conversation.
    fn leave(&self, kind: impl FnOnce(&mut Threads) -> &mut usize) {
        let mut threads = self.threads.lock();
        *kind(&mut threads) -= 1;
        let is_last = threads.all == 0 && threads.ringed == 0;
        drop(threads);
        if is_last {
            self.end();
        }
    }

    /// Waits for a request; if no other thread waits for the next one of its queue, one is started that does.
    fn with_others(
        self: &Arc<Session>,
        slot: &mut Slot,
        wait: impl FnOnce(&mut Slot) -> Taken,
    ) -> Taken {
        let Some(queues) = &self.queues else {
            return Taken::Nothing;
        };
        queues.wait(slot);
        let taken = wait(slot);
        if let Some(next) = queues.woke(slot, taken == Taken::Request) {
            self.spawn_with(&mut self.threads.lock(), next);
        }
        taken
    }

    fn end(&self) {
        self.nodes.forget_all();
        self.notices.end();
        self.home.end();
        self.threads.lock().has_ended = true;
        self.ended.notify_all();
    }

    /// Whether it is unmounted.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_unmounted.load(Ordering::Acquire) || self.device.is_gone()
    }

    /// Waits until it is unmounted, all requests are answered, and all threads have ended.
    pub(crate) fn wait(&self) {
        let mut threads = self.threads.lock();
        self.ended
            .wait_while(&mut threads, |threads| !threads.has_ended);
        let handles = std::mem::take(&mut threads.handles);
        drop(threads);
        for handle in handles {
            // A thread that panicked has said so.
            let _ = handle.try_join();
        }
    }

    pub(crate) fn set_options(&self, options: &MountOptions) {
        self.shows_snapdir
            .store(options.shows_snapdir, Ordering::Relaxed);
    }

    pub(crate) fn shows_snapdir(&self) -> bool {
        self.shows_snapdir.load(Ordering::Relaxed)
    }

    /// Tells the kernel of what is changed beside the mount from now on.
    fn watch(&self) {
        let live = self.nodes.live();
        let watcher = self.notices.watcher(live);
        live.files().watch(Arc::new(watcher));
    }
}

/// What is wanted of what the kernel may offer.
fn wanted(has_acls: bool) -> u64 {
    let mut wanted = init::ASYNC_READ
        | init::BIG_WRITES
        | init::DONT_MASK
        | init::IOCTL_DIR
        | init::DO_READDIRPLUS
        | init::READDIRPLUS_AUTO
        | init::ASYNC_DIO
        | init::PARALLEL_DIROPS
        | init::MAX_PAGES
        | init::CACHE_SYMLINKS
        | init::EXPLICIT_INVAL_DATA
        | init::HANDLE_KILLPRIV_V2
        | init::SETXATTR_EXT
        | init::INIT_EXT;
    if has_acls {
        wanted |= init::POSIX_ACL;
    }
    wanted
}

/// What is answered to the kernel's offer.
fn agreement(asked: &InitIn, flags: u64) -> InitOut {
    InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR.min(asked.minor),
        max_readahead: asked.max_readahead.max(MAX_READAHEAD_BYTES),
        flags: flags as u32,
        flags2: (flags >> 32) as u32,
        max_background: MAX_BACKGROUND,
        congestion_threshold: MAX_BACKGROUND / 4 * 3,
        max_write: MAX_WRITE_BYTES,
        time_gran: 1,
        max_pages: (MAX_WRITE_BYTES / 4096) as u16,
        ..InitOut::default()
    }
}

/// What the kernel is told: an error or nothing, and the pieces of the answer.
fn with_pieces(outcome: Outcome, tell: impl FnOnce(i32, &[&[u8]])) {
    let error = outcome.as_ref().err().map_or(0, |errno| -errno.0);
    match outcome.unwrap_or(Answer::Empty) {
        Answer::None | Answer::Empty => tell(error, &[]),
        Answer::Bytes(bytes) => tell(error, &[&bytes]),
        Answer::Contents(contents) => tell(error, &pieces_of(&contents)),
    }
}

fn pieces_of(contents: &[Content]) -> Vec<&[u8]> {
    let mut pieces: Vec<&[u8]> = Vec::with_capacity(contents.len());
    for content in contents {
        match content {
            Content::Data(bytes) => pieces.push(bytes),
            Content::Hole(len) => {
                let mut rest = *len;
                while rest > 0 {
                    let part = rest.min(ZEROS.len());
                    pieces.push(&ZEROS[..part]);
                    rest -= part;
                }
            }
        }
    }
    pieces
}
