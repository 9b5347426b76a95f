//! Functions that run at a given time.
//!
//! # Concurrency
//! In simulated time the thread that moves the clock runs them. In real time one thread of the
//! process runs them all, so a slow one delays the others.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::affinity;
use crate::sim::{self, Callback};

/// Runs `f` when [`now_ns`](crate::now_ns) has reached `when`, or immediately if it already has, but
/// never within this call. `f` must not wait: no thread may wait while it holds a lock that `f` takes.
///
/// In a simulation, an `f` due after its end never runs, and a panic of `f` ends the simulation.
#[doc(alias = "timeout")]
#[doc(alias = "callout")]
pub fn at_ns(when: u64, f: impl FnOnce() + Send + 'static) {
    match sim::current() {
        Some(context) => context.at_ns(when, Box::new(f)),
        None => timers().add(when, Box::new(f)),
    }
}

/// The timers in real time.
#[derive(Default)]
struct Timers {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// By time, then in order of arrival.
    due: BTreeMap<(u64, u64), Callback>,
    added: u64,
}

fn timers() -> &'static Timers {
    static TIMERS: OnceLock<&'static Timers> = OnceLock::new();
    TIMERS.get_or_init(|| {
        let timers: &'static Timers = Box::leak(Box::default());
        std::thread::Builder::new()
            .name("timers".to_owned())
            .spawn(affinity::anywhere(|| timers.serve()))
            .unwrap_or_else(|e| panic!("no thread for the timers: {e}"));
        timers
    })
}

impl Timers {
    fn add(&self, when: u64, f: Callback) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let number = state.added;
        state.added += 1;
        state.due.insert((when, number), f);
        let is_first = (state.due.first_key_value()).is_some_and(|(key, _)| *key == (when, number));
        drop(state);
        if is_first {
            self.changed.notify_one();
        }
    }

    fn serve(&self) -> ! {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = crate::now_ns();
            let next = state.due.first_key_value().map(|((when, _), _)| *when);
            state = match next {
                Some(when) if when <= now => {
                    let (_, f) = state.due.pop_first().expect("seen just now");
                    drop(state);
                    // The panic hook has reported a panic; the other timers still run.
                    let _ = catch_unwind(AssertUnwindSafe(f));
                    self.state.lock().unwrap_or_else(PoisonError::into_inner)
                }
                Some(when) => {
                    let wait = Duration::from_nanos(when - now);
                    self.changed
                        .wait_timeout(state, wait)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::sync::Arc;

    use crate::{
        Condvar, Mutex, SimOptions, at_ns, now_ns, simulate, simulate_with, sleep_ns, spawn,
        wall_clock,
    };

    #[test]
    fn real_timers_run_in_order_and_not_too_early() {
        let seen = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let start = now_ns();
        for ms in [15, 5, 10] {
            let seen = Arc::clone(&seen);
            let when = start + ms * 1_000_000;
            at_ns(when, move || {
                assert!(now_ns() >= when);
                seen.0.lock().push(ms);
                seen.1.notify_all();
            });
        }
        let mut list = seen.0.lock();
        while list.len() < 3 {
            seen.1.wait(&mut list);
        }
        assert_eq!(*list, [5, 10, 15]);
    }

    #[test]
    fn sim_a_timer_wakes_a_waiter_at_its_time() {
        simulate(1, || {
            let state = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
            for when in [700, 300, 500, 300] {
                let state = Arc::clone(&state);
                at_ns(when, move || {
                    assert_eq!(now_ns(), when);
                    state.0.lock().push(when);
                    state.1.notify_one();
                });
            }
            let mut list = state.0.lock();
            for (count, now) in [(2, 300), (3, 500), (4, 700)] {
                state.1.wait_while(&mut list, |list| list.len() < count);
                assert_eq!(now_ns(), now);
            }
            assert_eq!(*list, [300, 300, 500, 700]);
        });
    }

    #[test]
    fn sim_timers_come_between_sleeps_of_many_threads() {
        let run = |seed| {
            simulate(seed, || {
                let log = Arc::new(Mutex::new(Vec::new()));
                let threads: Vec<_> = (0..4u64)
                    .map(|n| {
                        let log = Arc::clone(&log);
                        spawn(&format!("t{n}"), move || {
                            for turn in 0..20 {
                                let log_of_timer = Arc::clone(&log);
                                let when = now_ns() + 50 + n;
                                at_ns(when, move || {
                                    assert_eq!(now_ns(), when);
                                    log_of_timer.lock().push((when, n + 10));
                                });
                                sleep_ns(100 + n * turn);
                                log.lock().push((now_ns(), n));
                            }
                        })
                    })
                    .collect();
                threads.into_iter().for_each(crate::JoinHandle::join);
                let log = log.lock();
                assert!(log.is_sorted_by_key(|(when, _)| *when));
                assert_eq!(log.len(), 160);
                log.clone()
            })
        };
        assert_eq!(run(3), run(3));
    }

    #[test]
    fn sim_a_timer_outlives_the_thread_that_set_it() {
        simulate(1, || {
            let (done, cv) = (Arc::new(Mutex::new(false)), Arc::new(Condvar::new()));
            let theirs = (Arc::clone(&done), Arc::clone(&cv));
            spawn("setter", move || {
                at_ns(1000, move || {
                    *theirs.0.lock() = true;
                    theirs.1.notify_all();
                });
            })
            .join();
            cv.wait_while(&mut done.lock(), |done| !*done);
            assert_eq!(now_ns(), 1000);
        });
    }

    #[test]
    fn sim_a_panic_of_a_timer_ends_the_simulation() {
        let result = catch_unwind(|| {
            simulate(1, || {
                let sleeper = spawn("sleeper", || sleep_ns(10_000));
                at_ns(100, || panic!("out of order"));
                sleeper.join();
            });
        });
        let text = *result.unwrap_err().downcast::<String>().unwrap();
        assert!(text.contains("out of order"), "{text}");
    }

    #[test]
    fn sim_the_clock_goes_on_where_another_simulation_stopped() {
        let options = SimOptions {
            start_ns: 5_000_000_000,
            ..SimOptions::new(1)
        };
        let end = simulate_with(options, || {
            assert_eq!(now_ns(), 5_000_000_000);
            assert_eq!(wall_clock().secs, crate::SIMULATED_EPOCH_SECS + 5);
            sleep_ns(7);
            now_ns()
        });
        assert_eq!(end, 5_000_000_007);
    }

    #[test]
    fn sim_waiting_alone_is_cheap() {
        const TURNS: u64 = 200_000;
        let start = now_ns();
        simulate(1, || {
            for _ in 0..TURNS {
                sleep_ns(10);
            }
            assert_eq!(now_ns(), TURNS * 10);
            let state = Arc::new((Mutex::new(0), Condvar::new()));
            let mut count = state.0.lock();
            for turn in 0..TURNS {
                let state_of_timer = Arc::clone(&state);
                at_ns(now_ns() + 10, move || {
                    *state_of_timer.0.lock() += 1;
                    state_of_timer.1.notify_one();
                });
                state.1.wait_while(&mut count, |count| *count == turn);
            }
            assert_eq!(now_ns(), TURNS * 20);
        });
        let each_ns = (now_ns() - start) / (2 * TURNS);
        // A switch between threads of the operating system costs several times as much.
        println!("{each_ns} ns for each wait");
        assert!(each_ns < 5_000, "{each_ns} ns for each wait");
    }
}
