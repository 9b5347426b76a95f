//! Simulated time: which thread holds the baton, what the others wait for, and when the clock jumps.
//!
//! # What it is
//! Every thread of a simulation is a thread of the operating system that runs only while it holds
//! the baton. [`Context`] is what such a thread knows: its simulation and its own number.
//! [`schedule`] holds the table of threads and chooses which one runs next.
//!
//! # Invariants
//! 1. The thread named by `Schedule::running` is the only one of the simulation that runs; all
//!    others are parked. Exception: after an *abort*, see below.
//! 2. A thread is in exactly one of: running, the runnable list, one waiting list (and perhaps the
//!    timers), finished.
//! 3. The function of a timer runs in the thread that found that no thread can run before it is
//!    due, on the stack of that thread's wait, and never waits itself.
//! 4. While there is a door ([`door`]), no thread that came in by it runs, and no other can run without
//!    the clock moving, nobody has the baton; the next thread that comes in takes it.
//!
//! # Abort
//! After a deadlock, or a panic of the first thread, all other threads have to end, wherever they
//! are. They are all released at once, and every call into `rt` that would wait unwinds the calling
//! thread instead (or, if it is unwinding already, returns, or falls back to the real operation).

mod affinity;
mod door;
mod schedule;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::affinity::{anywhere, move_to};
use crate::processor::{Cores, Processor};
use crate::thread::Payload;
use affinity::JointAffinity;
pub use door::{Door, close_door, open_door, outside};
pub(crate) use schedule::{Callback, Wait, WaitKey};
use schedule::{Decision, Glance, Schedule, Slot, TaskId};

/// How a simulation runs.
#[derive(Clone, Copy, Debug)]
pub struct SimOptions {
    /// Decides the schedule and all random numbers.
    pub seed: u64,
    /// On average once in this many times, a thread that takes a lock hands the baton on although it
    /// need not, so that more interleavings are tested; 0 for never.
    pub preempt_one_in: u32,
    /// [`now_ns`](crate::now_ns) at the start, say where an earlier simulation stopped.
    pub start_ns: u64,
    /// The cost of computing; by default nothing.
    pub processor: Processor,
}

impl SimOptions {
    /// The default options with `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        SimOptions {
            seed,
            preempt_one_in: 32,
            start_ns: 0,
            processor: Processor::default(),
        }
    }
}

/// Runs `f`, and everything that it spawns, under simulated time; returns when all of it has ended.
///
/// # Panics
/// With the panic of `f`; with the panic of a thread that was never joined; and, when no thread can
/// ever run again, with a report of what each thread waits for.
pub fn simulate<T: Send>(seed: u64, f: impl FnOnce() -> T + Send) -> T {
    simulate_with(SimOptions::new(seed), f)
}

/// [`simulate`] with all options.
pub fn simulate_with<T: Send>(options: SimOptions, f: impl FnOnce() -> T + Send) -> T {
    let sim = Arc::new(Sim::new(options));
    let context = Context {
        sim: Arc::clone(&sim),
        me: TaskId::FIRST,
    };
    let result = {
        let _entered = Entered::new(context.clone());
        catch_unwind(AssertUnwindSafe(|| {
            let value = f();
            context.wait_for_everyone();
            let never_due = sim.schedule().take_callbacks();
            drop(never_due);
            value
        }))
    };
    move_to(None);
    match result {
        Ok(value) => {
            if let Some(report) = sim.schedule().unjoined_panic() {
                panic!("{report}");
            }
            value
        }
        Err(payload) => {
            sim.abort("the simulation's first thread panicked");
            sim.wait_for_stragglers();
            resume_unwind(payload)
        }
    }
}

/// Whether the calling thread runs under simulated time.
#[must_use]
#[inline]
pub fn is_simulated() -> bool {
    IN_SIM.get()
}

/// Whether the calling thread runs the function of a timer.
pub(crate) fn is_in_callback() -> bool {
    IN_CALLBACK.get()
}

thread_local! {
    /// Whether `CONTEXT` is set; needs no initialisation, for the fast path of real time.
    static IN_SIM: Cell<bool> = const { Cell::new(false) };
    /// Whether the thread runs the function of a timer: it must not wait then.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
    static CONTEXT: RefCell<Option<Context>> = const { RefCell::new(None) };
}

/// The simulation that the calling thread belongs to.
#[inline]
pub(crate) fn current() -> Option<Context> {
    if is_simulated() { current_slow() } else { None }
}

#[cold]
fn current_slow() -> Option<Context> {
    CONTEXT
        .try_with(|context| context.borrow().clone())
        .ok()
        .flatten()
}

/// Calls `f`, which must not go [`outside`], with what [`current`] returns, if that is anything.
#[inline]
pub(crate) fn with_current<R>(f: impl FnOnce(&Context) -> R) -> Option<R> {
    if is_simulated() {
        with_current_slow(f)
    } else {
        None
    }
}

#[cold]
fn with_current_slow<R>(f: impl FnOnce(&Context) -> R) -> Option<R> {
    CONTEXT
        .try_with(|context| context.borrow().as_ref().map(f))
        .ok()
        .flatten()
}

/// Sets the context of the calling thread until it is dropped.
struct Entered(Option<Context>);

impl Entered {
    fn new(context: Context) -> Self {
        IN_SIM.set(true);
        Entered(CONTEXT.replace(Some(context)))
    }

    /// Unsets it until that is dropped.
    fn leave() -> Self {
        IN_SIM.set(false);
        Entered(CONTEXT.replace(None))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let outer = self.0.take();
        IN_SIM.set(outer.is_some());
        CONTEXT.set(outer);
    }
}

/// Unwinds a thread of an aborted simulation; never seen outside of this crate.
struct Aborted;

pub(crate) struct Sim {
    schedule: Mutex<Schedule>,
    glance: Arc<Glance>,
    affinity: JointAffinity,
    /// Threads in `Wait::Lock`: releasing a lock costs nothing while there are none.
    lock_waiters: AtomicUsize,
    aborted: AtomicBool,
    cores: Cores,
}

impl Sim {
    fn new(options: SimOptions) -> Self {
        let schedule = Schedule::new(options);
        Sim {
            glance: schedule.glance(),
            affinity: JointAffinity::new(),
            schedule: Mutex::new(schedule),
            lock_waiters: AtomicUsize::new(0),
            aborted: AtomicBool::new(false),
            cores: Cores::new(options.processor),
        }
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    fn abort(&self, report: &str) {
        let mut schedule = self.schedule();
        self.aborted.store(true, Ordering::Release);
        schedule.abort(report);
    }

    /// Starts the thread of a task, which runs as soon as it is given the baton.
    fn start_thread<T: Send + 'static>(
        self: &Arc<Self>,
        id: TaskId,
        slot: &Arc<Slot>,
        (name, stack_bytes): (&str, Option<usize>),
        f: impl FnOnce() -> T + Send + 'static,
    ) -> SimJoinHandle<T> {
        let packet = Arc::new(Mutex::new(None));
        let handle = SimJoinHandle {
            sim: Arc::clone(self),
            id,
            packet: Arc::clone(&packet),
        };
        let context = Context {
            sim: Arc::clone(self),
            me: id,
        };
        let os_slot = Arc::clone(slot);
        let body = move || {
            context.sim.wait_for_baton(&os_slot);
            let entered = Entered::new(context.clone());
            let result = catch_unwind(AssertUnwindSafe(|| {
                context.is_aborted();
                f()
            }));
            let panicked = result.as_ref().err().and_then(panic_message);
            *packet.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            drop(packet);
            drop(entered);
            context.finish(panicked);
        };
        let mut thread = std::thread::Builder::new().name(name.to_owned());
        if let Some(bytes) = stack_bytes {
            thread = thread.stack_size(bytes);
        }
        let os = thread.spawn(anywhere(body));
        let os = os.unwrap_or_else(|e| panic!("no thread for {name}: {e}"));
        slot.belongs_to(os.thread().clone());
        handle
    }

    /// Parks the calling thread until it is given the baton.
    fn wait_for_baton(&self, slot: &Slot) {
        slot.wait();
        self.affinity.follow();
    }

    /// Gives the threads of an aborted simulation a few real seconds to unwind.
    fn wait_for_stragglers(&self) {
        for _ in 0..5000 {
            if self.schedule().spawned_live() == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What a thread of a simulation knows.
#[derive(Clone)]
pub(crate) struct Context {
    sim: Arc<Sim>,
    me: TaskId,
}

impl Context {
    pub(crate) fn now_ns(&self) -> u64 {
        self.sim.glance.now_ns()
    }

    /// `now_ns`, and by how many seconds the time of day was set forward.
    pub(crate) fn wall_clock(&self) -> (u64, i64) {
        (self.now_ns(), self.sim.schedule().wall_stepped_secs)
    }

    pub(crate) fn step_wall_clock(&self, secs: i64) {
        let mut schedule = self.sim.schedule();
        schedule.wall_stepped_secs = schedule.wall_stepped_secs.saturating_add(secs);
    }

    /// The processor's cores.
    pub(crate) fn cores(&self) -> &Cores {
        &self.sim.cores
    }

    pub(crate) fn random_u64(&self) -> u64 {
        self.sim.schedule().random.next_u64()
    }

    #[track_caller]
    pub(crate) fn sleep_ns(&self, ns: u64) {
        let until = self.now_ns().saturating_add(ns);
        self.block(Wait::Sleep, Some(until), Location::caller());
    }

    pub(crate) fn at_ns(&self, when: u64, f: Callback) {
        self.sim.schedule().add_callback(when, f);
    }

    /// Whether waiting is pointless because the simulation is being torn down. If so, unwinds the
    /// calling thread unless it is unwinding already.
    pub(crate) fn is_aborted(&self) -> bool {
        if !self.sim.is_aborted() {
            return false;
        }
        if !std::thread::panicking() {
            self.unwind();
        }
        true
    }

    fn unwind(&self) -> ! {
        if self.me == TaskId::FIRST {
            let report = self.sim.schedule().abort_report().to_owned();
            panic!("{report}");
        }
        resume_unwind(Box::new(Aborted))
    }

    /// Waits until another thread wakes `wait`, or until `deadline`. Returns whether the deadline
    /// came first.
    pub(crate) fn block(
        &self,
        wait: Wait,
        deadline: Option<u64>,
        at: &'static Location<'static>,
    ) -> bool {
        if self.is_aborted() {
            std::thread::sleep(Duration::from_millis(1));
            return false;
        }
        assert!(
            !IN_CALLBACK.get(),
            "the function of a timer waits ({wait:?}) at {at}"
        );
        let mut schedule = self.sim.schedule();
        if let Some(deadline) = deadline
            && schedule.jump_to(deadline)
        {
            return true;
        }
        let is_lock = matches!(wait, Wait::Lock { .. });
        if is_lock {
            self.sim.lock_waiters.fetch_add(1, Ordering::Relaxed);
        }
        schedule.block(self.me, wait, deadline, at);
        self.pass_baton(schedule);
        if is_lock {
            self.sim.lock_waiters.fetch_sub(1, Ordering::Relaxed);
        }
        if self.is_aborted() {
            return false;
        }
        self.sim.schedule().timed_out(self.me)
    }

    /// Hands the baton to the next thread and waits until it comes back.
    fn pass_baton<'a>(&'a self, mut schedule: MutexGuard<'a, Schedule>) {
        let mut next_slot = None;
        loop {
            match schedule.choose_next() {
                Decision::Run(next) if next == self.me => return,
                Decision::Run(next) => next_slot = Some(schedule.slot(next)),
                Decision::Call(f) => {
                    drop(schedule);
                    self.call(f);
                    schedule = self.sim.schedule();
                    if !self.sim.is_aborted() {
                        continue;
                    }
                }
                Decision::Rest => {}
                Decision::Deadlock(report) => {
                    self.sim.aborted.store(true, Ordering::Release);
                    schedule.abort(&report);
                }
            }
            break;
        }
        let slot = schedule.slot(self.me);
        // The next thread, which may run before this line is left, wants the lock at once.
        drop(schedule);
        if let Some(next) = next_slot {
            next.release();
        }
        self.sim.wait_for_baton(&slot);
    }

    /// Runs the function of a timer; its panic ends the simulation.
    fn call(&self, f: Callback) {
        IN_CALLBACK.set(true);
        let result = catch_unwind(AssertUnwindSafe(f));
        IN_CALLBACK.set(false);
        if let Err(payload) = result
            && let Some(message) = panic_message(&payload)
        {
            let report = format!("the function of a timer panicked: {message}");
            self.sim.abort(&report);
        }
    }

    pub(crate) fn yield_now(&self) {
        if self.is_aborted() || IN_CALLBACK.get() {
            return;
        }
        let mut schedule = self.sim.schedule();
        if schedule.make_runnable_again(self.me) {
            self.pass_baton(schedule);
            self.is_aborted();
        }
    }

    /// Yields once in [`SimOptions::preempt_one_in`] calls, at random.
    pub(crate) fn maybe_preempt(&self) {
        if self.is_aborted() || !self.sim.glance.can_others_run() || IN_CALLBACK.get() {
            return;
        }
        let mut schedule = self.sim.schedule();
        if schedule.wants_preemption() && schedule.make_runnable_again(self.me) {
            self.pass_baton(schedule);
            self.is_aborted();
        }
    }

    /// Wakes the waiters of a released lock, so that they try again.
    pub(crate) fn wake_lock(&self, key: WaitKey) {
        if self.sim.lock_waiters.load(Ordering::Relaxed) > 0 {
            self.sim.schedule().wake_all(key);
        }
    }

    pub(crate) fn wake_one(&self, key: WaitKey) {
        self.sim.schedule().wake_one(key);
    }

    pub(crate) fn wake_all(&self, key: WaitKey) {
        self.sim.schedule().wake_all(key);
    }

    #[track_caller]
    fn wait_for_everyone(&self) {
        while self.sim.schedule().spawned_live() > 0 {
            self.block(Wait::Everyone, None, Location::caller());
        }
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        stack_bytes: Option<usize>,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> SimJoinHandle<T> {
        let slot = Arc::new(Slot::default());
        let id = self.sim.schedule().add(name, Arc::clone(&slot));
        let handle = self.sim.start_thread(id, &slot, (name, stack_bytes), f);
        self.sim.schedule().start(id);
        handle
    }

    /// Ends the calling thread, which must not touch anything of the simulation after this.
    fn finish(&self, panicked: Option<String>) {
        let mut schedule = self.sim.schedule();
        schedule.finish(self.me, panicked);
        self.give_up_baton(schedule);
    }

    /// Hands the baton to the next thread, for a thread that has ended or goes outside.
    fn give_up_baton<'a>(&'a self, mut schedule: MutexGuard<'a, Schedule>) {
        while !self.sim.is_aborted() {
            match schedule.choose_next() {
                Decision::Run(next) => {
                    let next = schedule.slot(next);
                    drop(schedule);
                    next.release();
                }
                Decision::Call(f) => {
                    drop(schedule);
                    let entered = Entered::new(self.clone());
                    self.call(f);
                    drop(entered);
                    schedule = self.sim.schedule();
                    continue;
                }
                Decision::Rest => {}
                Decision::Deadlock(report) => {
                    self.sim.aborted.store(true, Ordering::Release);
                    schedule.abort(&report);
                }
            }
            return;
        }
    }
}

/// The message of a panic; `None` for the unwinding of an aborted simulation.
fn panic_message(payload: &Payload) -> Option<String> {
    if payload.is::<Aborted>() {
        return None;
    }
    let text = payload
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).to_owned()));
    Some(text.unwrap_or_else(|| "(no message)".to_owned()))
}

type Packet<T> = Arc<Mutex<Option<std::thread::Result<T>>>>;

/// The right to wait for a thread of a simulation.
pub(crate) struct SimJoinHandle<T> {
    sim: Arc<Sim>,
    id: TaskId,
    packet: Packet<T>,
}

impl<T> SimJoinHandle<T> {
    pub(crate) fn is_finished(&self) -> bool {
        self.sim.schedule().is_finished(self.id)
    }

    #[track_caller]
    pub(crate) fn try_join(self) -> std::thread::Result<T> {
        let at = Location::caller();
        let context = current().expect("a simulated thread is joined inside of its simulation");
        assert!(
            Arc::ptr_eq(&context.sim, &self.sim),
            "joined from another simulation"
        );
        while !self.is_finished() {
            context.block(Wait::Join(self.id), None, at);
        }
        self.sim.schedule().note_joined(self.id);
        let result = self
            .packet
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        result.expect("a finished thread has left its result")
    }
}
