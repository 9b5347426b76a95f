//! Which processors a thread runs on.
//!
//! # What it is
//! A thread that answers another one at once is best on its processor: that one waits meanwhile, and neither has to
//! wake a processor that sleeps. [`stay_on`] puts the calling thread there. The threads of a simulation are
//! of this kind; where they are, the simulation decides (`sim/affinity.rs`).
//!
//! # Invariants
//! 1. A thread that is started by one that stays on a processor may run anywhere.
//! 2. [`crate::parallelism`] counts the processors of the process, not those of the thread that asks first.

use std::cell::Cell;
use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::parallel::processors;
use crate::{ThreadId, sim, way};

thread_local! {
    /// The only processor that this thread runs on.
    static STAYS_ON: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Where threads of this process may run.
static ANYWHERE: OnceLock<Option<CpuSet>> = OnceLock::new();

/// Lets the calling thread run on one processor only, or, with `None`, on any again. Returns whether that is so; it is
/// not in a simulation, and for processors that the process may not use.
pub fn stay_on(processor: Option<usize>) -> bool {
    !sim::is_simulated() && put(processor)
}

/// Lets `thread`, another one of this process that [stays on](stay_on) a processor, stay on this one from now on. If it
/// waits, it is woken there. Returns whether that is so, as that does.
pub fn bring(thread: ThreadId, processor: usize) -> bool {
    !sim::is_simulated()
        && set_of(Some(processor))
            .is_some_and(|set| sched_setaffinity(Some(thread.pid()), &set).is_ok())
}

/// [`stay_on`], in a simulation, too.
fn put(processor: Option<usize>) -> bool {
    let is_done = set_of(processor).is_some_and(|set| sched_setaffinity(None, &set).is_ok());
    if is_done {
        STAYS_ON.set(processor);
    }
    is_done
}

/// That processor, or all that this process may use; `None` if it may not use that one.
fn set_of(processor: Option<usize>) -> Option<CpuSet> {
    // Counted before this thread has fewer.
    let _ = processors();
    let anywhere = (*ANYWHERE.get_or_init(|| sched_getaffinity(None).ok()))?;
    let Some(number) = processor else {
        return Some(anywhere);
    };
    let may_be = number < CpuSet::MAX_CPU && anywhere.is_set(number);
    may_be.then(|| {
        let mut only = CpuSet::new();
        only.set(number);
        only
    })
}

/// Lets the calling thread run where `processor` says, unless it does already.
pub(crate) fn move_to(processor: Option<usize>) {
    if STAYS_ON.get() != processor {
        put(processor);
    }
}

/// The processor that the calling thread runs on.
pub(crate) fn here() -> usize {
    sched_getcpu()
}

/// What a thread does that the calling one starts: `f`, on any processor, and without giving way to others.
pub(crate) fn anywhere<T>(f: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let stays = STAYS_ON.get().is_some();
    let is_yielding = way::is_yielding();
    move || {
        if stays {
            put(None);
        }
        if is_yielding {
            way::hurry(way::ThreadId::own());
        }
        f()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parallelism, spawn};

    #[test]
    fn a_thread_stays_where_it_is_put_and_what_it_starts_does_not() {
        let of_this_thread = || sched_getaffinity(None).unwrap();
        let before = of_this_thread();
        let first = (0..CpuSet::MAX_CPU).find(|number| before.is_set(*number));
        let stayed = spawn("stays", move || {
            assert!(
                !stay_on(Some(CpuSet::MAX_CPU)),
                "there is no such processor"
            );
            assert!(stay_on(first));
            assert_eq!(of_this_thread().count(), 1);
            assert_eq!(spawn("started", of_this_thread).join(), before);
            assert!(stay_on(None));
            of_this_thread()
        });
        assert_eq!(stayed.join(), before);
        assert_eq!(parallelism(), before.count() as usize);
    }

    #[test]
    fn a_thread_is_brought_to_another_processor() {
        let before = sched_getaffinity(None).unwrap();
        let mut all = (0..CpuSet::MAX_CPU).filter(|number| before.is_set(*number));
        let (first, last) = (all.next(), all.next_back());
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let waits = spawn("waits", move || {
            assert!(stay_on(first));
            tell.send(ThreadId::own()).unwrap();
            let _ = ended.recv();
            sched_getaffinity(None).unwrap()
        });
        let thread = told.recv().unwrap();
        let target = last.or(first).unwrap();
        assert!(bring(thread, target));
        assert!(!bring(thread, CpuSet::MAX_CPU));
        drop(end);
        let after = waits.join();
        assert!(after.count() == 1 && after.is_set(target));
    }
}
