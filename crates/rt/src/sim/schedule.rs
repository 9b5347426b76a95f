//! The table of a simulation's threads and the choice of the one that runs next.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

use super::SimOptions;
use crate::random::SeededRandom;

/// A thread's number within its simulation, in order of spawning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskId(usize);

impl TaskId {
    /// The thread that called `simulate`.
    pub(super) const FIRST: TaskId = TaskId(0);
}

/// What a list of waiters waits for. Addresses only identify; no behaviour depends on their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WaitKey {
    Lock(usize),
    Condvar(usize),
    Join(TaskId),
    Everyone,
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    Lock { address: usize, what: &'static str },
    Condvar(usize),
    Join(TaskId),
    Everyone,
    Sleep,
    Outside,
}

impl Wait {
    fn key(self) -> Option<WaitKey> {
        match self {
            Wait::Lock { address, .. } => Some(WaitKey::Lock(address)),
            Wait::Condvar(address) => Some(WaitKey::Condvar(address)),
            Wait::Join(id) => Some(WaitKey::Join(id)),
            Wait::Everyone => Some(WaitKey::Everyone),
            Wait::Sleep | Wait::Outside => None,
        }
    }
}

/// Where a thread parks while it does not hold the baton.
#[derive(Default)]
pub(super) struct Slot {
    go: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Slot {
    pub(super) fn belongs_to(&self, thread: Thread) {
        self.thread
            .set(thread)
            .expect("a slot belongs to one thread");
    }

    pub(super) fn release(&self) {
        self.go.store(true, Ordering::Release);
        // A thread that is still starting checks `go` before it parks.
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    pub(super) fn wait(&self) {
        while !self.go.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}

enum State {
    Starting,
    Running,
    Runnable,
    Blocked {
        wait: Wait,
        deadline: Option<u64>,
        at: &'static Location<'static>,
    },
    Finished,
}

struct Task {
    name: String,
    state: State,
    slot: Arc<Slot>,
    timed_out: bool,
    panicked: Option<String>,
    joined: bool,
    /// It came in by the door.
    is_guest: bool,
}

/// What a timer runs.
pub(crate) type Callback = Box<dyn FnOnce() + Send>;

/// A function and the time at which it runs; functions of the same time run in order of `number`.
struct DueCall {
    when: u64,
    number: u64,
    f: Callback,
}

impl PartialEq for DueCall {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for DueCall {}
impl PartialOrd for DueCall {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for DueCall {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.when, self.number).cmp(&(other.when, other.number))
    }
}

/// What to do when the running thread stops.
pub(super) enum Decision {
    Run(TaskId),
    /// Run this without the lock of the schedule, then choose again.
    Call(Callback),
    /// Nothing, until a thread comes in.
    Rest,
    Deadlock(String),
}

/// What the running thread may know of the schedule without its lock; only the schedule sets it.
#[derive(Debug)]
pub(super) struct Glance {
    now_ns: AtomicU64,
    /// The length of `Schedule::runnable`.
    runnable: AtomicUsize,
}

impl Glance {
    /// The simulated time.
    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    /// Whether other threads than the running one could run now.
    pub(super) fn can_others_run(&self) -> bool {
        self.runnable.load(Ordering::Relaxed) > 0
    }
}

pub(super) struct Schedule {
    glance: Arc<Glance>,
    /// Seconds by which the time of day was set forward; negative: back.
    pub(super) wall_stepped_secs: i64,
    /// The source of the simulated program's randomness.
    pub(super) random: SeededRandom,
    choices: SeededRandom,
    preempt_one_in: u32,
    tasks: Vec<Task>,
    runnable: Vec<TaskId>,
    timers: BTreeSet<(u64, TaskId)>,
    callbacks: BinaryHeap<Reverse<DueCall>>,
    callbacks_added: u64,
    waiters: BTreeMap<WaitKey, Vec<TaskId>>,
    spawned_live: usize,
    abort_report: String,
    /// Whether threads may come in from outside; then time passes only while there are some.
    has_door: bool,
    /// Threads that came in and have not ended; without those that wait outside.
    guests: usize,
    /// Those that wait outside.
    outside: usize,
    /// No thread has the baton.
    is_resting: bool,
}

/// The generator of a seed with its first number skipped, so that known seeds keep their sequences.
fn seeded(seed: u64) -> SeededRandom {
    let mut random = SeededRandom::new(seed);
    random.next_u64();
    random
}

impl Schedule {
    pub(super) fn new(options: SimOptions) -> Self {
        let slot = Arc::new(Slot::default());
        slot.belongs_to(std::thread::current());
        let mut seeds = seeded(options.seed);
        Schedule {
            glance: Arc::new(Glance {
                now_ns: AtomicU64::new(options.start_ns),
                runnable: AtomicUsize::new(0),
            }),
            wall_stepped_secs: 0,
            random: seeded(seeds.next_u64()),
            choices: seeded(seeds.next_u64()),
            preempt_one_in: options.preempt_one_in,
            tasks: vec![Task::new("main", slot, State::Running)],
            runnable: Vec::new(),
            timers: BTreeSet::new(),
            callbacks: BinaryHeap::new(),
            callbacks_added: 0,
            waiters: BTreeMap::new(),
            spawned_live: 0,
            abort_report: String::new(),
            has_door: false,
            guests: 0,
            outside: 0,
            is_resting: false,
        }
    }

    pub(super) fn add(&mut self, name: &str, slot: Arc<Slot>) -> TaskId {
        self.tasks.push(Task::new(name, slot, State::Starting));
        self.spawned_live += 1;
        TaskId(self.tasks.len() - 1)
    }

    /// Like `add`, for a thread that comes in from outside; `None` if the door is closed.
    pub(super) fn add_guest(&mut self, name: &str, slot: Arc<Slot>) -> Option<TaskId> {
        if !self.has_door {
            return None;
        }
        let id = self.add(name, slot);
        let task = &mut self.tasks[id.0];
        task.is_guest = true;
        // Its result goes outside.
        task.joined = true;
        Some(id)
    }

    pub(super) fn start(&mut self, id: TaskId) {
        if self.tasks[id.0].is_guest {
            self.guests += 1;
        }
        self.make_runnable(id);
    }

    pub(super) fn set_door(&mut self, is_open: bool) {
        self.has_door = is_open;
    }

    /// The running thread begins to wait outside; false if it cannot.
    pub(super) fn leave(&mut self, id: TaskId, at: &'static Location<'static>) -> bool {
        let task = &mut self.tasks[id.0];
        if !task.is_guest || !self.has_door {
            return false;
        }
        task.state = State::Blocked {
            wait: Wait::Outside,
            deadline: None,
            at,
        };
        self.guests -= 1;
        self.outside += 1;
        true
    }

    /// A thread that waited outside comes in again.
    pub(super) fn come_back(&mut self, id: TaskId) {
        self.outside -= 1;
        self.guests += 1;
        self.make_runnable(id);
    }

    /// Whether no thread has the baton, and the caller, who has made one runnable, is to give it to it.
    pub(super) fn end_rest(&mut self) -> bool {
        std::mem::take(&mut self.is_resting)
    }

    /// Whether the clock may move.
    fn may_time_pass(&self) -> bool {
        !self.has_door || self.guests > 0
    }

    pub(super) fn slot(&self, id: TaskId) -> Arc<Slot> {
        Arc::clone(&self.tasks[id.0].slot)
    }

    pub(super) fn spawned_live(&self) -> usize {
        self.spawned_live
    }

    pub(super) fn is_finished(&self, id: TaskId) -> bool {
        matches!(self.tasks[id.0].state, State::Finished)
    }

    pub(super) fn note_joined(&mut self, id: TaskId) {
        self.tasks[id.0].joined = true;
    }

    pub(super) fn timed_out(&self, id: TaskId) -> bool {
        self.tasks[id.0].timed_out
    }

    /// Moves the running thread to the end of a waiting list.
    pub(super) fn block(
        &mut self,
        id: TaskId,
        wait: Wait,
        deadline: Option<u64>,
        at: &'static Location<'static>,
    ) {
        if let Some(key) = wait.key() {
            self.waiters.entry(key).or_default().push(id);
        }
        if let Some(deadline) = deadline {
            self.timers.insert((deadline, id));
        }
        let task = &mut self.tasks[id.0];
        task.timed_out = false;
        task.state = State::Blocked { wait, deadline, at };
    }

    /// Makes the running thread runnable if another thread can run; returns false if none can.
    pub(super) fn make_runnable_again(&mut self, id: TaskId) -> bool {
        if self.runnable.is_empty() {
            return false;
        }
        self.make_runnable(id);
        true
    }

    pub(super) fn wants_preemption(&mut self) -> bool {
        self.preempt_one_in > 0
            && !self.runnable.is_empty()
            && self.choices.index(self.preempt_one_in as usize) == 0
    }

    fn make_runnable(&mut self, id: TaskId) {
        self.tasks[id.0].state = State::Runnable;
        self.runnable.push(id);
        self.note_runnable();
    }

    fn note_runnable(&self) {
        let runnable = self.runnable.len();
        self.glance.runnable.store(runnable, Ordering::Relaxed);
    }

    pub(super) fn add_callback(&mut self, when: u64, f: Callback) {
        let number = self.callbacks_added;
        self.callbacks_added += 1;
        self.callbacks.push(Reverse(DueCall { when, number, f }));
    }

    /// Takes the callbacks that have not run.
    pub(super) fn take_callbacks(&mut self) -> Vec<Callback> {
        self.callbacks.drain().map(|Reverse(call)| call.f).collect()
    }

    pub(super) fn glance(&self) -> Arc<Glance> {
        Arc::clone(&self.glance)
    }

    /// Moves the clock, which never goes back.
    fn advance_to(&self, ns: u64) {
        self.glance.now_ns.fetch_max(ns, Ordering::Relaxed);
    }

    /// Moves the clock to `deadline` if no thread can run and nothing is due by then; returns whether
    /// it did.
    pub(super) fn jump_to(&mut self, deadline: u64) -> bool {
        let is_first = self.runnable.is_empty()
            && self.may_time_pass()
            && self.timers.first().is_none_or(|(due, _)| *due > deadline)
            && (self.callbacks.peek()).is_none_or(|Reverse(call)| call.when > deadline);
        if is_first {
            self.advance_to(deadline);
        }
        is_first
    }

    /// The next timer function, if it is due before any thread can run; moves the clock to it.
    fn next_callback(&mut self) -> Option<Callback> {
        let when = self.callbacks.peek()?.0.when;
        if when > self.glance.now_ns() {
            let thread_due = self.timers.first().map(|(due, _)| *due);
            if !self.runnable.is_empty()
                || !self.may_time_pass()
                || thread_due.is_some_and(|due| due < when)
            {
                return None;
            }
            self.advance_to(when);
        }
        self.callbacks.pop().map(|Reverse(call)| call.f)
    }

    /// Picks the thread that runs next; moves the clock if none can run now.
    pub(super) fn choose_next(&mut self) -> Decision {
        if let Some(f) = self.next_callback() {
            return Decision::Call(f);
        }
        if self.runnable.is_empty() && !self.fire_timers() {
            if self.outside == 0 && self.may_time_pass() {
                return Decision::Deadlock(self.report());
            }
            self.is_resting = true;
            return Decision::Rest;
        }
        let at = self.choices.index(self.runnable.len());
        let next = self.runnable.swap_remove(at);
        self.note_runnable();
        self.tasks[next.0].state = State::Running;
        Decision::Run(next)
    }

    /// Moves the clock to the earliest deadline and wakes all threads due; returns false if there is
    /// none, or the clock may not move.
    fn fire_timers(&mut self) -> bool {
        let Some((deadline, _)) = self.timers.first().copied() else {
            return false;
        };
        if deadline > self.glance.now_ns() && !self.may_time_pass() {
            return false;
        }
        self.advance_to(deadline);
        while let Some((due, id)) = self.timers.first().copied() {
            if due > self.glance.now_ns() {
                break;
            }
            self.wake(id);
            self.tasks[id.0].timed_out = true;
        }
        true
    }

    /// Takes a blocked thread out of all lists and makes it runnable.
    fn wake(&mut self, id: TaskId) {
        let State::Blocked { wait, deadline, .. } = self.tasks[id.0].state else {
            panic!(
                "thread {} is woken but does not wait",
                self.tasks[id.0].name
            )
        };
        if let Some(deadline) = deadline {
            self.timers.remove(&(deadline, id));
        }
        if let Some(key) = wait.key()
            && let Some(list) = self.waiters.get_mut(&key)
        {
            list.retain(|other| *other != id);
            if list.is_empty() {
                self.waiters.remove(&key);
            }
        }
        self.make_runnable(id);
    }

    pub(super) fn wake_one(&mut self, key: WaitKey) {
        let Some(list) = self.waiters.get(&key) else {
            return;
        };
        let id = list[self.choices.index(list.len())];
        self.wake(id);
    }

    pub(super) fn wake_all(&mut self, key: WaitKey) {
        for id in self.waiters.get(&key).cloned().unwrap_or_default() {
            self.wake(id);
        }
    }

    pub(super) fn finish(&mut self, id: TaskId, panicked: Option<String>) {
        let task = &mut self.tasks[id.0];
        task.state = State::Finished;
        task.panicked = panicked;
        if task.is_guest {
            self.guests -= 1;
        }
        self.spawned_live -= 1;
        if self.abort_report.is_empty() {
            self.wake_all(WaitKey::Join(id));
            if self.spawned_live == 0 {
                self.wake_all(WaitKey::Everyone);
            }
        }
    }

    /// Releases every thread; each then finds the abort and unwinds.
    pub(super) fn abort(&mut self, report: &str) {
        if self.abort_report.is_empty() {
            report.clone_into(&mut self.abort_report);
        }
        for task in &self.tasks {
            if !matches!(task.state, State::Finished) {
                task.slot.release();
            }
        }
    }

    pub(super) fn abort_report(&self) -> &str {
        &self.abort_report
    }

    /// The panic of a thread that was not joined, if there is one.
    pub(super) fn unjoined_panic(&self) -> Option<String> {
        self.tasks
            .iter()
            .filter(|task| !task.joined)
            .find_map(|task| {
                let message = task.panicked.as_ref()?;
                Some(format!(
                    "simulated thread \"{}\" panicked: {message}",
                    task.name
                ))
            })
    }

    fn report(&self) -> String {
        let mut report = format!("deadlock in the simulation at {} ns:", self.glance.now_ns());
        for task in &self.tasks {
            let line = match &task.state {
                State::Blocked { wait, at, .. } => {
                    format!("waits for {} at {at}", Waited(self, *wait))
                }
                State::Finished => match &task.panicked {
                    Some(message) => format!("panicked: {message}"),
                    None => continue,
                },
                State::Starting | State::Running | State::Runnable => "can run".to_owned(),
            };
            report += &format!("\n  \"{}\" {line}", task.name);
        }
        report
    }
}

impl Task {
    fn new(name: &str, slot: Arc<Slot>, state: State) -> Self {
        Task {
            name: name.to_owned(),
            state,
            slot,
            timed_out: false,
            panicked: None,
            joined: false,
            is_guest: false,
        }
    }
}

/// Displays what a thread waits for.
struct Waited<'a>(&'a Schedule, Wait);

impl fmt::Display for Waited<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Wait::Lock { what, .. } => write!(f, "the lock of {what}"),
            Wait::Condvar(_) => f.write_str("a condition"),
            Wait::Join(id) => write!(f, "the end of \"{}\"", self.0.tasks[id.0].name),
            Wait::Everyone => f.write_str("the end of all threads"),
            Wait::Sleep => f.write_str("a time"),
            Wait::Outside => f.write_str("something outside"),
        }
    }
}
