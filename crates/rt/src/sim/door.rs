//! The way into a running simulation: threads from outside run in it, and time passes only while some do.
//!
//! # What it is
//! A thread of the simulation opens the door; from then on any thread outside can have a function run as a thread of
//! the simulation ([`Door::enter`]), a *guest*. While there is no guest, the threads of the simulation run until all
//! of them wait, and then rest: the clock does not move, however much time passes outside. A guest that has to wait
//! for the world outside (a terminal, a pipe) does so by [`outside`], and is not counted meanwhile.
//!
//! # Invariants
//! 1. A thread that comes in, first or again, becomes runnable under the schedule's lock. If all rest, it is given the
//!    baton at once; otherwise it is chosen like any other.
//! 2. Which moment of the simulation a thread comes in at is not a function of the seed. Without a door nothing
//!    changes.

use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::{Arc, MutexGuard, mpsc};

use crate::affinity::move_to;

use super::schedule::{Decision, Schedule, Slot};
use super::{Context, Entered, Sim, current};

/// The way into a simulation.
#[derive(Clone)]
pub struct Door(Arc<Sim>);

/// Opens the door of the simulation that the calling thread belongs to.
///
/// # Panics
/// Outside of a simulation.
#[must_use]
pub fn open_door() -> Door {
    let context = current().expect("only a simulation has a door");
    context.sim.schedule().set_door(true);
    Door(Arc::clone(&context.sim))
}

/// Closes it: nothing comes in any more, and time passes by itself again. Who is in stays.
///
/// # Panics
/// Outside of a simulation.
pub fn close_door() {
    let context = current().expect("only a simulation has a door");
    context.sim.schedule().set_door(false);
}

/// Runs `f`, which waits for the world outside. A guest of a simulation lets the others run meanwhile; for every other
/// thread this is a plain call.
#[track_caller]
pub fn outside<T>(f: impl FnOnce() -> T) -> T {
    match current() {
        Some(context) => context.outside(f, Location::caller()),
        None => f(),
    }
}

impl Door {
    /// Runs `f` as a thread of the simulation, with a stack of that size, and waits until it has ended; `None` if the
    /// door is closed. For threads outside.
    ///
    /// # Errors
    /// The payload of its panic.
    pub fn enter<T: Send + 'static>(
        &self,
        name: &str,
        stack_bytes: usize,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Option<std::thread::Result<T>> {
        let slot = Arc::new(Slot::default());
        let id = self.0.schedule().add_guest(name, Arc::clone(&slot))?;
        let (told, end) = mpsc::channel();
        let body = move || {
            let result = catch_unwind(AssertUnwindSafe(f));
            // Who waits for it is there as long as this runs.
            let _ = told.send(result);
        };
        let _handle = self
            .0
            .start_thread(id, &slot, (name, Some(stack_bytes)), body);
        let mut schedule = self.0.schedule();
        schedule.start(id);
        wake(schedule);
        Some(end.recv().expect("a thread that came in sends its result"))
    }
}

impl Context {
    fn outside<T>(&self, f: impl FnOnce() -> T, at: &'static Location<'static>) -> T {
        if self.is_aborted() || super::is_in_callback() {
            return f();
        }
        let mut schedule = self.sim.schedule();
        if !schedule.leave(self.me, at) {
            drop(schedule);
            return f();
        }
        self.give_up_baton(schedule);
        let value = {
            let _left = Entered::leave();
            move_to(None);
            catch_unwind(AssertUnwindSafe(f))
        };
        let mut schedule = self.sim.schedule();
        let slot = schedule.slot(self.me);
        schedule.come_back(self.me);
        wake(schedule);
        self.sim.wait_for_baton(&slot);
        self.is_aborted();
        value.unwrap_or_else(|payload| resume_unwind(payload))
    }
}

/// Gives the baton to the thread that was just made runnable, if nobody has it.
fn wake(mut schedule: MutexGuard<'_, Schedule>) {
    if !schedule.end_rest() {
        return;
    }
    match schedule.choose_next() {
        Decision::Run(next) => schedule.slot(next).release(),
        _ => unreachable!("a thread can run, and what was due has been called"),
    }
}
