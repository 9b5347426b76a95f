//! Threads that give way to others.
//!
//! # What it is
//! A thread that wakes another one keeps its own processor for a moment, and so the kernel puts that one on another
//! processor, if one sleeps. Where two threads take turns, each turn then costs two processors that have to be woken.
//! A processor on which only threads of the policy `SCHED_IDLE` run counts as free instead (`sched_idle_cpu`): what a
//! thread that [gives way](give_way) wakes runs beside it, and at once.
//!
//! A thread that helps another one to [compute](compute), which has begun without it, takes no processor from a
//! running thread when it is woken (`SCHED_BATCH`). Otherwise it would take that of a thread that copies blocks to a
//! device, for which all others wait in the end; and the one that it helps would wait until it has done its share.
//!
//! # Invariants
//! 1. A thread that is started by one that gives way or computes does neither (`affinity.rs`).
//!
//! # Why not always
//! A thread that gives way gets next to nothing of a processor on which others have work, so another thread has to
//! [look](wants_to_run) whether it gets on. And a process without the right to raise priorities may not end it:
//! there it never begins.
//!
//! Source: Linux `kernel/sched/fair.c` (`select_idle_sibling`, `check_preempt_wakeup_fair`), `kernel/sched/syscalls.c`.

use std::cell::Cell;
use std::fs;
use std::num::NonZeroI32;
use std::sync::OnceLock;

use rustix::thread::{Pid, gettid};

use crate::sim;

thread_local! {
    static GIVES_WAY: Cell<bool> = const { Cell::new(false) };
    static COMPUTES: Cell<bool> = const { Cell::new(false) };
}

/// A running thread of this process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ThreadId(NonZeroI32);

impl ThreadId {
    /// The calling thread.
    #[must_use]
    pub fn own() -> ThreadId {
        ThreadId(gettid().as_raw_nonzero())
    }

    pub(crate) fn pid(self) -> Pid {
        Pid::from_raw(self.0.get()).expect("it is not zero")
    }
}

/// Lets the calling thread give way to what it wakes, or not any more. Returns whether that is so.
pub fn give_way(gives: bool) -> bool {
    let is_done = gives == GIVES_WAY.get()
        || (can_give_way() && set_policy(ThreadId::own(), if gives { IDLE } else { OTHER }));
    if is_done {
        GIVES_WAY.set(gives);
    }
    is_done
}

/// Lets the calling thread compute from now on: when it is woken it takes no processor from a thread that runs.
pub(crate) fn compute() {
    let own = ThreadId::own();
    COMPUTES.set(policy(own) == OTHER && set_policy(own, BATCH));
}

/// Ends that `thread`, which must be running, gives way, without its knowing: it still says itself that it no longer
/// does.
pub fn hurry(thread: ThreadId) {
    set_policy(thread, OTHER);
}

/// Whether `thread` runs, or would if it got a processor.
#[must_use]
pub fn wants_to_run(thread: ThreadId) -> bool {
    let stat = fs::read(format!("/proc/self/task/{}/stat", thread.0)).unwrap_or_default();
    // The name before is in parentheses, and may have any in it.
    let behind = stat.iter().rposition(|byte| *byte == b')');
    behind.is_some_and(|at| stat[at..].starts_with(b") R"))
}

/// Whether the calling thread gives way or computes.
pub(crate) fn is_yielding() -> bool {
    GIVES_WAY.get() || COMPUTES.get()
}

/// Whether threads of this process may give way, and end that again; a thread of its own tries. It is not so where all
/// of it was started with another policy.
pub fn can_give_way() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    let tries = || {
        let own = ThreadId::own();
        policy(own) == OTHER && set_policy(own, IDLE) && set_policy(own, OTHER)
    };
    !sim::is_simulated()
        && *MAY.get_or_init(|| std::thread::spawn(tries).join().unwrap_or_default())
}

#[cfg(target_os = "linux")]
use libc::{SCHED_BATCH as BATCH, SCHED_IDLE as IDLE, SCHED_OTHER as OTHER};

#[cfg(not(target_os = "linux"))]
const BATCH: i32 = 3;
#[cfg(not(target_os = "linux"))]
const IDLE: i32 = 1;
#[cfg(not(target_os = "linux"))]
const OTHER: i32 = 0;

/// Returns whether the thread has the policy now.
fn set_policy(thread: ThreadId, policy: i32) -> bool {
    #[cfg(target_os = "linux")]
    {
        let param = libc::sched_param { sched_priority: 0 };
        // SAFETY: the call reads `param`, which outlives it.
        unsafe { libc::sched_setscheduler(thread.0.get(), policy, &raw const param) == 0 }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (thread, policy);
        false
    }
}

/// The thread's policy, or -1.
fn policy(thread: ThreadId) -> i32 {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: a call without preconditions.
        unsafe { libc::sched_getscheduler(thread.0.get()) }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = thread;
        -1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spawn;

    #[test]
    fn a_thread_gives_way_and_what_it_starts_does_not() {
        let before = policy(ThreadId::own());
        let gives = spawn("gives", move || {
            let own = ThreadId::own();
            let is_done = give_way(true);
            assert_eq!(policy(own), if is_done { IDLE } else { before });
            let started = spawn("started", || policy(ThreadId::own()));
            assert_eq!(started.join(), before);
            assert!(give_way(false));
            assert_eq!(policy(own), before);

            if give_way(true) {
                hurry(own);
                assert_eq!(policy(own), before);
                assert!(give_way(false));
            }
            is_done
        });
        if !gives.join() {
            eprintln!(
                "not allowed: run it as root, with the usual policy, to see more of this test"
            );
        }
    }

    #[test]
    fn a_thread_computes_and_what_it_starts_does_not() {
        let before = policy(ThreadId::own());
        let computes = spawn("computes", move || {
            compute();
            let now = policy(ThreadId::own());
            let started = spawn("started", || policy(ThreadId::own()));
            assert_eq!(started.join(), before);
            now
        });
        let expected = if before == OTHER { BATCH } else { before };
        assert_eq!(computes.join(), expected);
    }

    #[test]
    fn who_runs_is_told_from_who_waits() {
        assert!(wants_to_run(ThreadId::own()));
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let waits = spawn("waits (a) R", move || {
            tell.send(ThreadId::own()).unwrap();
            let _ = ended.recv();
        });
        let thread = told.recv().unwrap();
        while wants_to_run(thread) {
            std::thread::yield_now();
        }
        drop(end);
        waits.join();
        assert!(!wants_to_run(thread));
    }
}
