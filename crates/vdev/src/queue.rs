//! The queue of a device: which command goes to it next.
//!
//! # What it is
//! Every read and write of a leaf waits for its turn here, in the class of its priority. Each class has
//! a minimum and a maximum number of commands active at the device: it gets its minimum before any other
//! class gets more than its own. The synchronous classes are served in order of arrival, the others by
//! offset among the commands of the same half second. Flushes do not queue.
//!
//! A scrub or an initialization, which no caller waits for, gets one command at a time while there are others, and
//! only now and then (`nia_credit`): a disk that streams for a scrub keeps others waiting for seconds. And when a
//! scrub command overlapped others, the next one is delayed by eight times its duration: so others lose
//! a ninth of the device's time to it (and a writer to both sides of a mirror two ninths), however short
//! their own commands are and even if there are moments without any.
//!
//! # Invariants
//! 1. No waiting command could be started: the thread that makes room starts it.
//! 2. A device never has more active commands of a class than its maximum, nor more writes than it can
//!    work on.
//!
//! # Concurrency
//! One lock, which also guards the device itself, held to take a turn and to give it back. A thread that
//! does its I/O itself sleeps until its turn; a command for an asynchronous device is started by the
//! thread that made room. One thread at a time starts them, so that a chain of commands that fail
//! immediately does not recurse.
//!
//! # Differences
//! OpenZFS allows 2 to 10 asynchronous writes depending on the amount of dirty data, to make the writing
//! of a txg last until the next one is full; here a txg is written when a caller waits for it or memory
//! is short, and 10 are allowed. OpenZFS limits a scrub by its number of commands alone, so that its
//! share of a disk depends on their lengths. It also merges adjacent waiting commands; here that has
//! been done before: writes by their batch, reads by runs.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_queue.c`.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use geom::Provider;
use rt::{Mutex, MutexGuard, OneShot};
use zio::Priority;

/// `VDQ_T_SHIFT`: commands are ordered by arrival in units of 2^29 ns, and by offset within one.
const AGE_SHIFT: u32 = 29;
/// `zfs_vdev_nia_delay`: scrub commands that must end without other I/O before a scrub gets more than
/// one at a time.
const NIA_DELAY: u32 = 5;
/// `zfs_vdev_nia_credit`: scrub commands that may start between the ends of two others.
const NIA_CREDIT: u32 = 5;
/// After a scrub command that overlapped others, the scrub rests for this multiple of its duration ...
const REST_FACTOR: u64 = 8;
/// ... but at most this long: a device that hangs for a while does not make a scrub rest for long.
const REST_MAX_NS: u64 = 2_000_000_000;

/// The scheduling class of a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    SyncRead,
    SyncWrite,
    AsyncRead,
    AsyncWrite,
    Scrub,
    Initializing,
    Trim,
}

impl Class {
    const ALL: [Class; 7] = [
        Class::SyncRead,
        Class::SyncWrite,
        Class::AsyncRead,
        Class::AsyncWrite,
        Class::Scrub,
        Class::Initializing,
        Class::Trim,
    ];

    fn of(priority: Priority) -> Class {
        match priority {
            Priority::SyncRead => Class::SyncRead,
            Priority::SyncWrite => Class::SyncWrite,
            Priority::AsyncRead => Class::AsyncRead,
            Priority::AsyncWrite | Priority::WriteBehind => Class::AsyncWrite,
            Priority::Scrub => Class::Scrub,
            Priority::Initializing => Class::Initializing,
            Priority::Trim => Class::Trim,
        }
    }

    /// The minimum and maximum number of active commands (`zfs_vdev_sync_read_min_active` and so on).
    const fn limits(self) -> (u32, u32) {
        match self {
            Class::SyncRead | Class::SyncWrite => (10, 10),
            Class::AsyncRead | Class::Scrub => (1, 3),
            Class::AsyncWrite => (2, 10),
            Class::Initializing => (1, 1),
            Class::Trim => (1, 2),
        }
    }

    fn is_write(self) -> bool {
        matches!(
            self,
            Class::SyncWrite | Class::AsyncWrite | Class::Initializing
        )
    }

    /// Whether a caller may wait for it.
    #[doc(alias = "vdev_queue_is_interactive")]
    fn is_interactive(self) -> bool {
        !matches!(self, Class::Scrub | Class::Initializing)
    }

    /// Whether it is served in order of arrival.
    #[doc(alias = "vdev_queue_class_fifo")]
    fn is_fifo(self) -> bool {
        matches!(self, Class::SyncRead | Class::SyncWrite)
    }
}

/// How many classes there are.
pub(crate) const CLASSES: usize = Class::ALL.len();

/// The number of the class of a priority.
pub(crate) fn class_index(priority: Priority) -> usize {
    Class::of(priority) as usize
}

/// The most writes of one device that make progress at the same time.
pub(crate) const WRITES_MAX: usize = Class::AsyncWrite.limits().1 as usize;

type Device = Option<Arc<dyn Provider>>;

/// Begins a command whose turn has come, on the device as it is then.
pub(crate) type Start = Box<dyn FnOnce(Device) + Send>;

#[derive(Default)]
struct State {
    device: Device,
    /// How many writes the device can work on.
    writes_at_once: usize,
    /// Commands at the device, by class.
    active: [u32; Class::ALL.len()],
    waiting: [BTreeMap<(u64, u64, u64), Start>; Class::ALL.len()],
    /// Number of commands that ever waited, which gives the order of arrival.
    arrived: u64,
    /// How many scrub commands may start before another command has ended.
    nia_credit: u32,
    /// When the last scrub command was begun.
    scrub_begun_ns: u64,
    /// That command overlaps, or overlapped, others.
    scrub_met_others: bool,
    /// No scrub command is begun until a timer clears this.
    scrub_rests: bool,
    /// The class that had the last turn.
    last: usize,
    /// A thread is starting what may start.
    is_issuing: bool,
    /// The device is being changed: no waiting command is started.
    is_held: bool,
}

impl State {
    fn active_of(&self, is_in: impl Fn(Class) -> bool) -> u32 {
        let classes = Class::ALL.into_iter().filter(|class| is_in(*class));
        classes.map(|class| self.active[class as usize]).sum()
    }

    /// The minimum and maximum number of active commands of a class, as things are now.
    #[doc(alias = "vdev_queue_class_max_active")]
    fn limits(&self, class: Class) -> (u32, u32) {
        let (min, max) = class.limits();
        if class.is_interactive() {
            (min, max)
        } else if class == Class::Scrub && self.scrub_rests {
            (0, 0)
        } else if self.active_of(Class::is_interactive) > 0 {
            let allowed = self.nia_credit.min(min);
            (allowed, allowed)
        } else if self.nia_credit < NIA_DELAY {
            (min, min)
        } else {
            (min, max)
        }
    }

    fn has_room(&self, class: Class, limit: u32) -> bool {
        let writes = || self.active_of(Class::is_write) as usize;
        self.active[class as usize] < limit
            && !(class.is_write() && writes() >= self.writes_at_once)
    }

    /// The class that has the next turn: one below its minimum, in rotation, or else the first that has
    /// room.
    #[doc(alias = "vdev_queue_class_to_issue")]
    fn next_class(&self) -> Option<Class> {
        let waits = |class: &Class| !self.waiting[*class as usize].is_empty();
        let in_turn =
            (1..=Class::ALL.len()).map(|n| Class::ALL[(self.last + n) % Class::ALL.len()]);
        let lacks = |class: &Class| waits(class) && self.has_room(*class, self.limits(*class).0);
        let has_room = |class: &Class| waits(class) && self.has_room(*class, self.limits(*class).1);
        let next = in_turn.into_iter().find(lacks);
        next.or_else(|| Class::ALL.into_iter().find(has_room))
    }

    #[doc(alias = "vdev_queue_pending_add")]
    fn begin(&mut self, class: Class) {
        self.last = class as usize;
        let others = self.active_of(Class::is_interactive);
        self.active[class as usize] += 1;
        match (class.is_interactive(), others) {
            (true, 0) => self.nia_credit = 1,
            (false, 1..) => self.nia_credit = self.nia_credit.saturating_sub(1),
            _ => {}
        }
        if class == Class::Scrub {
            self.scrub_begun_ns = rt::now_ns();
            self.scrub_met_others = others > 0;
        } else {
            self.scrub_met_others |= self.active[Class::Scrub as usize] > 0;
        }
    }

    #[doc(alias = "vdev_queue_pending_remove")]
    fn end(&mut self, class: Class) {
        let active = &mut self.active[class as usize];
        *active = active.checked_sub(1).expect("it was at the device");
        match (
            class.is_interactive(),
            self.active_of(Class::is_interactive),
        ) {
            (true, 0) => self.nia_credit = 0,
            (true, _) => self.nia_credit = NIA_CREDIT,
            (false, 0) => self.nia_credit = self.nia_credit.saturating_add(1),
            (false, _) => {}
        }
    }

    /// Called when a scrub command has ended; returns the time until which the next one waits.
    fn begin_rest(&mut self) -> Option<u64> {
        if !self.scrub_met_others || self.scrub_rests {
            return None;
        }
        self.scrub_rests = true;
        let now = rt::now_ns();
        let took = now.saturating_sub(self.scrub_begun_ns);
        Some(now + (took * REST_FACTOR).min(REST_MAX_NS))
    }

    /// Begins a command at once, if nothing of its class waits and there is room.
    fn begins(&mut self, class: Class) -> bool {
        let is_first = self.waiting[class as usize].is_empty();
        let begins = is_first && self.has_room(class, self.limits(class).1);
        if begins {
            self.begin(class);
        }
        begins
    }

    fn push(&mut self, class: Class, offset: u64, start: Start) {
        self.arrived += 1;
        let key = if class.is_fifo() {
            (0, 0, self.arrived)
        } else {
            (rt::now_ns() >> AGE_SHIFT, offset, self.arrived)
        };
        self.waiting[class as usize].insert(key, start);
    }

    /// Takes the command that has the next turn.
    fn pop(&mut self) -> Option<Start> {
        if self.is_held {
            return None;
        }
        let class = self.next_class()?;
        let (_, start) = self.waiting[class as usize].pop_first()?;
        self.begin(class);
        Some(start)
    }
}

/// The queue of a leaf, and its device.
#[derive(Default)]
#[doc(alias = "vdev_queue_t")]
pub(crate) struct VdevQueue(Arc<Mutex<State>>);

impl VdevQueue {
    /// Sets or removes the device. Waiting commands get the new one, but none is started before
    /// [`resume`](VdevQueue::resume): a command looks at the state of the leaf, which its caller is changing.
    pub(crate) fn set_device(&self, device: Device) {
        let mut state = self.0.lock();
        let ways = device
            .as_ref()
            .map_or(1, |device| device.shape().writes_at_once);
        state.writes_at_once = ways.max(1);
        state.is_held = true;
        let old = std::mem::replace(&mut state.device, device);
        drop(state);
        drop(old);
    }

    /// Starts what may start on the device that was set.
    pub(crate) fn resume(&self) {
        let mut state = self.0.lock();
        state.is_held = false;
        issue(&self.0, state);
    }

    pub(crate) fn device(&self) -> Device {
        self.0.lock().device.clone()
    }

    /// How many commands of each class wait, and how many are at the device.
    pub(crate) fn lengths(&self) -> ([u64; CLASSES], [u64; CLASSES]) {
        let state = self.0.lock();
        let waiting = std::array::from_fn(|class| state.waiting[class].len() as u64);
        (waiting, state.active.map(u64::from))
    }

    /// Waits for a turn.
    #[track_caller]
    pub(crate) fn turn(&self, priority: Priority, offset: u64) -> Turn<'_> {
        let class = Class::of(priority);
        let mut state = self.0.lock();
        if state.begins(class) {
            let device = state.device.clone();
            drop(state);
            return Turn {
                queue: self,
                priority,
                device,
            };
        }
        let turn = Arc::new(OneShot::default());
        let theirs = Arc::clone(&turn);
        state.push(class, offset, Box::new(move |device| theirs.give(device)));
        drop(state);
        let device = turn.take();
        Turn {
            queue: self,
            priority,
            device,
        }
    }

    /// Begins a command when its turn has come; [`io_done`](VdevQueue::io_done) must be called when it
    /// ends. `start` must not wait.
    #[doc(alias = "vdev_queue_io")]
    pub(crate) fn submit(&self, priority: Priority, offset: u64, start: Start) {
        let class = Class::of(priority);
        let mut state = self.0.lock();
        if !state.begins(class) {
            return state.push(class, offset, start);
        }
        let device = state.device.clone();
        drop(state);
        start(device);
    }

    /// A command has ended: starts what may start now.
    #[doc(alias = "vdev_queue_io_done")]
    pub(crate) fn io_done(&self, priority: Priority) {
        let mut state = self.0.lock();
        let class = Class::of(priority);
        state.end(class);
        if class == Class::Scrub
            && let Some(until_ns) = state.begin_rest()
        {
            let queue = Arc::downgrade(&self.0);
            rt::at_ns(until_ns, move || end_rest(&queue));
        }
        issue(&self.0, state);
    }

    /// # Panics
    /// If something waits that could start.
    pub(crate) fn check_invariants(&self) {
        let state = self.0.lock();
        let next = state.next_class();
        assert!(
            state.is_issuing || state.is_held || next.is_none(),
            "{next:?} waits, with {:?} at the device",
            state.active
        );
    }
}

/// Starts what may start, unless another thread is doing so.
#[doc(alias = "vdev_queue_io_to_issue")]
fn issue<'a>(queue: &'a Mutex<State>, mut state: MutexGuard<'a, State>) {
    if state.is_issuing {
        return;
    }
    state.is_issuing = true;
    while let Some(start) = state.pop() {
        let device = state.device.clone();
        drop(state);
        start(device);
        state = queue.lock();
    }
    state.is_issuing = false;
}

fn end_rest(queue: &Weak<Mutex<State>>) {
    if let Some(queue) = queue.upgrade() {
        let mut state = queue.lock();
        state.scrub_rests = false;
        issue(&queue, state);
    }
}

/// The turn of a thread, until it is dropped.
pub(crate) struct Turn<'a> {
    queue: &'a VdevQueue,
    priority: Priority,
    pub(crate) device: Device,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.queue.io_done(self.priority);
    }
}
