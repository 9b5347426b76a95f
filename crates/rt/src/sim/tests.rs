//! Simulations: the same seed gives the same run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::{
    Condvar, Door, Mutex, OneShot, RwLock, TaskQueue, close_door, is_simulated, now_ns, open_door,
    outside, parallel_map, random_u64, simulate, sleep_ns, spawn, wall_clock, yield_now,
};

const MS: u64 = 1_000_000;

fn panic_text(f: impl FnOnce() + Send) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).unwrap_err();
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().unwrap()).to_owned(),
    }
}

/// Five threads that contend for one lock, sleep for random times, and record what each did when.
fn brawl(seed: u64) -> Vec<(u64, usize, u64)> {
    simulate(seed, || {
        let log = Arc::new(Mutex::new(Vec::new()));
        let threads: Vec<_> = (0..5)
            .map(|n| {
                let log = Arc::clone(&log);
                spawn(&format!("brawler {n}"), move || {
                    for _ in 0..20 {
                        let random = random_u64();
                        log.lock().push((now_ns(), n, random));
                        if random.is_multiple_of(3) {
                            sleep_ns(random % MS);
                        } else {
                            yield_now();
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(super::super::JoinHandle::join);
        Arc::try_unwrap(log).unwrap().into_inner()
    })
}

#[test]
fn sim_same_seed_same_schedule() {
    for seed in 0..20 {
        assert_eq!(brawl(seed), brawl(seed), "seed {seed}");
    }
    assert_ne!(brawl(1), brawl(2));
}

#[test]
fn sim_many_simulations_at_once_do_not_meet() {
    let expected: Vec<_> = (0..8).map(brawl).collect();
    assert_eq!(parallel_map((0..8).collect(), brawl), expected);
}

#[test]
fn sim_clock_jumps_over_idle_time() {
    let started = std::time::Instant::now();
    let (ns, time) = simulate(3, || {
        let other = spawn("sleeper", || {
            sleep_ns(7200 * 1000 * MS);
            now_ns()
        });
        sleep_ns(3600 * 1000 * MS);
        assert_eq!(now_ns(), 3600 * 1000 * MS);
        assert!(!other.is_finished());
        (other.join(), wall_clock())
    });
    assert_eq!(ns, 7200 * 1000 * MS);
    assert_eq!(
        (time.secs, time.nanos),
        (crate::SIMULATED_EPOCH_SECS + 7200, 0)
    );
    assert!(started.elapsed().as_secs() < 60);
}

#[test]
fn sim_locks_exclude() {
    for seed in 0..10 {
        simulate(seed, || {
            let value = Arc::new(Mutex::new((0u32, false)));
            let threads: Vec<_> = (0..6)
                .map(|n| {
                    let value = Arc::clone(&value);
                    spawn(&format!("t{n}"), move || {
                        for _ in 0..10 {
                            let mut guard = value.lock();
                            assert!(!guard.1, "two threads hold the lock");
                            guard.1 = true;
                            yield_now();
                            sleep_ns(5);
                            guard.0 += 1;
                            guard.1 = false;
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(crate::JoinHandle::join);
            assert_eq!(value.lock().0, 60);
        });
    }
}

#[test]
fn sim_readers_share_and_writers_do_not() {
    simulate(5, || {
        let lock = Arc::new(RwLock::new(0u64));
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let lock = Arc::clone(&lock);
                spawn(&format!("t{n}"), move || {
                    for _ in 0..10 {
                        if n % 2 == 0 {
                            let seen = lock.read();
                            let before = *seen;
                            sleep_ns(10);
                            assert_eq!(*seen, before);
                        } else {
                            let mut value = lock.write();
                            *value += 1;
                            sleep_ns(10);
                            *value += 1;
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(crate::JoinHandle::join);
        assert_eq!(*lock.read(), 80);
    });
}

/// How long a thread waits to write while six others read for 10 ns each, over and over, so that the lock is never
/// free.
fn waits_to_write_ns(seed: u64) -> u64 {
    simulate(seed, || {
        let lock = Arc::new(RwLock::new(()));
        let others: Vec<_> = (0..6)
            .map(|n| {
                let lock = Arc::clone(&lock);
                spawn(&format!("t{n}"), move || {
                    sleep_ns(n);
                    while now_ns() < 100_000 {
                        let _guard = lock.read();
                        sleep_ns(10);
                    }
                })
            })
            .collect();
        sleep_ns(1000);
        let from = now_ns();
        drop(lock.write());
        let waited = now_ns() - from;
        others.into_iter().for_each(crate::JoinHandle::join);
        waited
    })
}

#[test]
fn sim_a_writer_waits_for_those_that_read_and_not_for_all_that_come_later() {
    for seed in 0..20 {
        assert!(waits_to_write_ns(seed) <= 10, "seed {seed}");
    }
}

#[test]
fn sim_condition_times_out_at_the_right_time() {
    simulate(9, || {
        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let setter = {
            let pair = Arc::clone(&pair);
            spawn("setter", move || {
                sleep_ns(10 * MS);
                *pair.0.lock() = true;
                pair.1.notify_one();
            })
        };
        let mut set = pair.0.lock();
        assert!(pair.1.wait_timeout_ns(&mut set, 4 * MS));
        assert_eq!(now_ns(), 4 * MS);
        assert!(!pair.1.wait_timeout_ns(&mut set, 100 * MS));
        assert_eq!(now_ns(), 10 * MS);
        assert!(*set);
        drop(set);
        setter.join();
    });
}

#[test]
fn sim_deadlock_names_threads_and_what_they_wait_for() {
    let text = panic_text(|| {
        simulate(1, || {
            let (a, b) = (Arc::new(Mutex::new(1u8)), Arc::new(Mutex::new(2u16)));
            let other = {
                let (a, b) = (Arc::clone(&a), Arc::clone(&b));
                spawn("b then a", move || {
                    let _b = b.lock();
                    sleep_ns(10);
                    let _a = a.lock();
                })
            };
            let _a = a.lock();
            sleep_ns(10);
            let _b = b.lock();
            other.join();
        });
    });
    assert!(
        text.contains("deadlock in the simulation at 10 ns"),
        "{text}"
    );
    assert!(
        text.contains("\"main\" waits for the lock of u16 at"),
        "{text}"
    );
    assert!(
        text.contains("\"b then a\" waits for the lock of u8 at"),
        "{text}"
    );
    assert!(text.contains("tests.rs"), "{text}");
}

#[test]
fn sim_end_reports_threads_that_never_end() {
    let text = panic_text(|| {
        simulate(1, || {
            drop(spawn("forever", || {
                let mutex = Mutex::new(());
                Condvar::new().wait(&mut mutex.lock());
            }));
        });
    });
    assert!(text.contains("\"forever\" waits for a condition"), "{text}");
}

#[test]
fn sim_panics_propagate_at_join_or_at_the_end() {
    simulate(2, || {
        let failed = spawn("fails", || panic!("on purpose")).try_join();
        assert_eq!(
            *failed.unwrap_err().downcast_ref::<&str>().unwrap(),
            "on purpose"
        );
    });
    let text = panic_text(|| simulate(2, || spawn("fails", || panic!("on purpose")).join()));
    assert_eq!(text, "on purpose");
    let text = panic_text(|| simulate(2, || drop(spawn("fails", || panic!("on purpose")))));
    assert_eq!(text, "simulated thread \"fails\" panicked: on purpose");
}

#[test]
fn sim_panic_of_the_first_thread_takes_the_others_down() {
    let witness = Arc::new(());
    let text = panic_text(|| {
        let witness = Arc::clone(&witness);
        simulate(2, move || {
            let queue = TaskQueue::new("queue", 3);
            queue.dispatch(|| sleep_ns(u64::MAX / 2));
            drop(spawn("holds on", move || {
                let _witness = witness;
                sleep_ns(u64::MAX / 2);
            }));
            yield_now();
            sleep_ns(1);
            panic!("enough");
        });
    });
    assert_eq!(text, "enough");
    assert_eq!(
        Arc::strong_count(&witness),
        1,
        "the other thread was unwound"
    );
}

/// The same test in real and in simulated time.
fn queue_runs_everything() {
    let sum = Arc::new(Mutex::new(0));
    let queue = TaskQueue::bounded("adders", 3, 4);
    for n in 0..100 {
        let sum = Arc::clone(&sum);
        queue.dispatch(move || {
            sleep_ns(n % 7);
            *sum.lock() += n;
        });
    }
    queue.wait_idle();
    assert!(queue.is_empty());
    assert_eq!(*sum.lock(), 4950);
    queue.dispatch(|| panic!("task"));
    let failed = catch_unwind(AssertUnwindSafe(|| queue.wait_idle()));
    assert_eq!(*failed.unwrap_err().downcast_ref::<&str>().unwrap(), "task");
    queue.dispatch(|| {});
}

#[test]
fn task_queue_runs_everything_in_real_time() {
    queue_runs_everything();
}

#[test]
fn sim_task_queue_runs_everything() {
    for seed in 0..5 {
        simulate(seed, queue_runs_everything);
    }
}

#[test]
fn real_threads_lock_wait_and_join() {
    let pair = Arc::new((Mutex::new(0), Condvar::new()));
    let adder = {
        let pair = Arc::clone(&pair);
        spawn("adder", move || {
            for _ in 0..100 {
                *pair.0.lock() += 1;
                pair.1.notify_all();
            }
            "done"
        })
    };
    let mut count = pair.0.lock();
    pair.1.wait_while(&mut count, |count| *count < 100);
    assert!(pair.1.wait_timeout_ns(&mut count, 1000));
    drop(count);
    assert_eq!(adder.join(), "done");
    assert!(now_ns() <= now_ns());
    assert!(!crate::is_simulated());
}

#[test]
fn time_passes_only_while_a_guest_is_in() {
    use std::sync::mpsc;

    let (give, given) = mpsc::channel();
    let visitor = std::thread::spawn(move || {
        let door: Door = given.recv().unwrap();
        let stay = |ns: u64| {
            let inside = move || {
                let began_ns = now_ns();
                sleep_ns(ns);
                (began_ns, now_ns())
            };
            door.enter("guest", 1 << 20, inside).map(Result::unwrap)
        };
        let first = stay(1_000).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let second = stay(500).unwrap();
        assert_eq!(first.1, second.0, "nobody was in, and time passed");
        assert_eq!(second.1 - second.0, 500);
        // One that waits outside does not count.
        let waits = move || {
            let began_ns = now_ns();
            outside(|| {
                assert!(!is_simulated());
                std::thread::sleep(Duration::from_millis(20));
            });
            now_ns() - began_ns
        };
        assert_eq!(door.enter("guest", 1 << 20, waits).unwrap().unwrap(), 0);
        // Two at once share the time.
        std::thread::scope(|scope| {
            scope.spawn(|| stay(3_000).unwrap());
            scope.spawn(|| stay(3_000).unwrap());
        });
        let panic = door.enter("guest", 1 << 20, || {
            std::panic::resume_unwind(Box::new("in there"))
        });
        let payload: Box<dyn std::any::Any + Send> =
            panic.map(Result::<(), _>::unwrap_err).unwrap();
        assert_eq!(*payload.downcast::<&str>().unwrap(), "in there");
        door.clone()
    });
    let ticks = simulate(5, move || {
        let (end, ticks) = (Arc::new(OneShot::default()), Arc::new(AtomicUsize::new(0)));
        let door = open_door();
        give.send(door.clone()).unwrap();
        let ender = Arc::clone(&end);
        let _ticker = spawn("ticker", {
            let (end, ticks) = (Arc::clone(&end), Arc::clone(&ticks));
            move || {
                while !end.is_given() {
                    sleep_ns(100);
                    ticks.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let closer = std::thread::spawn(move || {
            let door = visitor.join().unwrap();
            door.enter("guest", 1 << 20, move || ender.give(()))
                .map(Result::unwrap)
                .unwrap();
        });
        end.wait(|()| ());
        close_door();
        closer.join().unwrap();
        assert!(door.enter("guest", 1 << 20, || ()).is_none());
        ticks.load(Ordering::Relaxed)
    });
    // 1,000 + 500 ns, and what the two took: 3,000 to 6,000 ns.
    assert!((45..=77).contains(&ticks), "{ticks}");
}

#[test]
fn threads_that_pass_the_baton_run_on_one_processor_and_leave_it_at_the_end() {
    let processors_of_this_thread = || {
        let set = rustix::thread::sched_getaffinity(None).unwrap();
        (0..rustix::thread::CpuSet::MAX_CPU)
            .filter(|processor| set.is_set(*processor))
            .collect::<Vec<_>>()
    };
    let before = processors_of_this_thread();
    let seen = simulate(5, move || {
        let passes = move || {
            let mut seen = Vec::new();
            // Longer than they stay anywhere.
            while seen.len() < 2_000 {
                yield_now();
                seen.push(processors_of_this_thread());
            }
            seen
        };
        let other = spawn("other", passes);
        let mut seen = passes();
        seen.extend(other.join());
        seen
    });
    assert!(seen.iter().any(|processors| processors.len() == 1));
    assert!(
        seen.iter()
            .all(|processors| processors.len() == 1 || *processors == before),
        "they stay on one, or are loose"
    );
    assert_eq!(processors_of_this_thread(), before);
}
