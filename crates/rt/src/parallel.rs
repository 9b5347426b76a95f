//! Applying a function to many items in parallel.
//!
//! # What it is
//! [`parallel_map`] spreads items over a pool of threads that the whole process shares. The
//! calling thread works as well, so a call made from inside another one always makes progress; and
//! the others take no processor from threads that have something else to do (`way.rs`).
//! In simulated time everything runs in the calling thread, where computing itself takes no time;
//! what it [charges](crate::charge) is spread over the simulated cores.
//!
//! # Concurrency
//! A call puts *invitations* into the pool's queue and starts working. A pool thread that takes
//! one joins in if the call is still open. The call closes when no item is left, and returns when
//! every thread that joined in has left: from then on nothing refers to the caller's stack.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::affinity;
use crate::processor;
use crate::sim;
use crate::thread::Payload;
use crate::way;

/// The number of threads that compute at the same time: the machine's processors, 1 in simulated time.
#[must_use]
pub fn parallelism() -> usize {
    if sim::is_simulated() { 1 } else { processors() }
}

/// The processors of this computer that the process may use, in a simulation, too.
pub(crate) fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, Into::into))
}

/// Applies `f` to every item, on as many processors as there are; the results keep the order.
///
/// # Panics
/// With the first panic of `f`, after every call of `f` that had begun has ended.
pub fn parallel_map<I: Send, R: Send>(items: Vec<I>, f: impl Fn(I) -> R + Sync) -> Vec<R> {
    let helpers = parallelism().min(items.len()).saturating_sub(1);
    if helpers == 0 {
        let ways = items.len();
        return processor::side_by_side(ways, || items.into_iter().map(f).collect());
    }
    let count = items.len();
    // A share is small enough that the slowest thread does not end much later than the others.
    let share = (count / ((helpers + 1) * 8)).max(1);
    let queue = Mutex::new(items.into_iter().enumerate());
    let done = Mutex::new(Vec::with_capacity(count));
    let work = || {
        loop {
            let taken: Vec<(usize, I)> = lock(&queue).by_ref().take(share).collect();
            if taken.is_empty() {
                return;
            }
            let mapped: Vec<_> = taken.into_iter().map(|(at, item)| (at, f(item))).collect();
            lock(&done).extend(mapped);
        }
    };
    run_together(&work, helpers);
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(done.len(), count, "every item has a result");
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One call in progress: how many pool threads are in it, and whether more may join.
struct Call {
    state: Mutex<CallState>,
    left: Condvar,
    /// Only dereferenced between joining and leaving.
    work: WorkPtr,
}

struct CallState {
    open: bool,
    inside: usize,
    panic: Option<Payload>,
}

struct WorkPtr(*const (dyn Fn() + Sync));
// SAFETY: the pointee is Sync; that it is alive when used is shown at the place of use.
unsafe impl Send for WorkPtr {}
// SAFETY: as above.
unsafe impl Sync for WorkPtr {}

/// Runs `work` in the calling thread and in up to `helpers` threads of the pool; returns when all
/// of them are done with it.
fn run_together(work: &(dyn Fn() + Sync), helpers: usize) {
    // SAFETY: only the lifetime changes. `join_in` uses the pointer only while `inside` counts it
    // (which it may only enter while `open`), and this function does not return before `open` is
    // false and `inside` is 0, even if `work` panics.
    let work_ptr = unsafe {
        std::mem::transmute::<*const (dyn Fn() + Sync + '_), *const (dyn Fn() + Sync + 'static)>(
            std::ptr::from_ref(work),
        )
    };
    let call = Arc::new(Call {
        state: Mutex::new(CallState {
            open: true,
            inside: 0,
            panic: None,
        }),
        left: Condvar::new(),
        work: WorkPtr(work_ptr),
    });
    pool().invite(&call, helpers);
    let own = catch_unwind(AssertUnwindSafe(work));
    let theirs = call.close();
    if let Some(payload) = own.err().or(theirs) {
        resume_unwind(payload);
    }
}

impl Call {
    /// Stops threads from joining and waits until all of them have left; returns the first panic.
    fn close(&self) -> Option<Payload> {
        let mut state = lock(&self.state);
        state.open = false;
        while state.inside > 0 {
            state = self
                .left
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.panic.take()
    }

    fn join_in(&self) {
        let mut state = lock(&self.state);
        if !state.open {
            return;
        }
        state.inside += 1;
        drop(state);
        // SAFETY: `open` was true and `inside` counts this thread, so the caller still waits in
        // `run_together`, where `work` is borrowed.
        let work = unsafe { &*self.work.0 };
        let result = catch_unwind(AssertUnwindSafe(work));
        let mut state = lock(&self.state);
        state.inside -= 1;
        if let Err(payload) = result {
            state.panic.get_or_insert(payload);
        }
        drop(state);
        self.left.notify_all();
    }
}

#[derive(Default)]
struct Pool {
    invitations: Mutex<VecDeque<Arc<Call>>>,
    arrived: Condvar,
}

/// The pool of the process; its threads start with the first call.
fn pool() -> &'static Pool {
    static POOL: OnceLock<&'static Pool> = OnceLock::new();
    POOL.get_or_init(|| {
        let pool: &'static Pool = Box::leak(Box::default());
        for n in 0..processors() {
            std::thread::Builder::new()
                .name(format!("parallel/{n}"))
                .spawn(affinity::anywhere(|| {
                    way::compute();
                    pool.serve();
                }))
                .unwrap_or_else(|e| panic!("no thread for the pool: {e}"));
        }
        pool
    })
}

impl Pool {
    fn invite(&self, call: &Arc<Call>, helpers: usize) {
        let mut invitations = lock(&self.invitations);
        invitations.extend(std::iter::repeat_n(call, helpers).cloned());
        drop(invitations);
        for _ in 0..helpers {
            self.arrived.notify_one();
        }
    }

    fn serve(&self) {
        let mut invitations = lock(&self.invitations);
        loop {
            match invitations.pop_front() {
                Some(call) => {
                    drop(invitations);
                    call.join_in();
                    drop(call);
                    invitations = lock(&self.invitations);
                }
                None => {
                    invitations = self
                        .arrived
                        .wait(invitations)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn results_keep_the_order_of_the_items() {
        for count in [0, 1, 2, 3, 17, 1000] {
            let items: Vec<usize> = (0..count).collect();
            let squares = parallel_map(items, |n| n * n);
            assert!(
                squares
                    .iter()
                    .enumerate()
                    .all(|(n, square)| *square == n * n)
            );
            assert_eq!(squares.len(), count);
        }
    }

    #[test]
    fn nested_calls_from_many_threads_end() {
        let callers: Vec<_> = (0..4)
            .map(|seed| {
                std::thread::spawn(move || {
                    let sums = parallel_map((0..20u64).collect(), |n| {
                        parallel_map((0..20u64).collect(), |m| m * n + seed)
                            .iter()
                            .sum::<u64>()
                    });
                    sums.iter().sum::<u64>()
                })
            })
            .collect();
        for (seed, caller) in callers.into_iter().enumerate() {
            assert_eq!(caller.join().unwrap(), 190 * 190 + 400 * seed as u64);
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_after_all_threads_left() {
        let busy = AtomicUsize::new(0);
        let result = catch_unwind(AssertUnwindSafe(|| {
            parallel_map((0..100).collect(), |n: i32| {
                busy.fetch_add(1, Ordering::SeqCst);
                let bad = n == 37;
                busy.fetch_sub(1, Ordering::SeqCst);
                assert!(!bad, "item {n} is bad");
            })
        }));
        let payload = result.unwrap_err();
        assert_eq!(payload.downcast_ref::<String>().unwrap(), "item 37 is bad");
        assert_eq!(busy.load(Ordering::SeqCst), 0);
        assert_eq!(parallel_map(vec![1, 2, 3], |n| n + 1), [2, 3, 4]);
    }

    #[test]
    fn simulated_calls_run_inline() {
        let here = std::thread::current().id();
        crate::simulate(1, || {
            assert_eq!(parallelism(), 1);
            let ids = parallel_map(vec![(), (), ()], |()| std::thread::current().id());
            assert!(ids.iter().all(|id| *id == here));
        });
    }
}
