//! Clock, threads, locks, task queues and randomness, in real and in simulated time.
//!
//! # What it is
//! The engine's only access to time, threads and randomness. The same blocking code runs in two
//! modes:
//! - **real**: every thread is a thread of the operating system, a lock is a `parking_lot` lock,
//!   the clock is the machine's. The overhead over using those directly is one check of a
//!   thread-local flag.
//! - **simulated**, inside [`simulate`]: exactly one thread of the simulation runs at any moment.
//!   A thread that would wait (for a lock, a condition, a thread, a time) hands the *baton* to
//!   another one that can run, picked by a seeded generator. When no thread can run, the clock
//!   jumps to the next timer; when there is no timer either, that is a deadlock, and it is reported
//!   with the name of every thread and the line of code it waits in.
//!
//! A function may also be scheduled for a time ([`at_ns`]): in a simulation, the thread that moves
//! the clock to that time runs it, without a switch of threads. A lone thread that waits for a time
//! just moves the clock.
//!
//! A simulation can also serve threads outside of it ([`open_door`]): they come in, and time passes only while some of
//! them are there.
//!
//! What is computed from bytes alone, and is needed later, can be computed on another processor ([`aside`]).
//!
//! Simulating an hour of disk time thus takes only as long as the computing in it, and the same
//! seed gives the same interleaving, the same times and the same random numbers.
//!
//! # Invariants
//! 1. In a simulation at most one thread runs between two baton passes, so the order of all events
//!    is a function of the seed and of the code alone.
//! 2. Simulated time moves only when every thread of the simulation waits. Computing is free, except
//!    for what a simulated [`Processor`] charges.
//! 3. A thread belongs to the simulation of the thread that spawned it; locks and conditions are
//!    shared only by threads of one simulation (or only by real ones). Several simulations may run
//!    in one process at the same time.
//! 4. [`simulate`] returns only after every thread spawned in it has ended.
//!
//! # Concurrency
//! The scheduler's own state is behind one plain mutex, which is never held while a thread waits
//! for the baton. The baton is a flag per thread, followed by an unpark. All threads of a simulation run on one
//! processor, where that costs least (`sim/affinity.rs`).
//!
//! # Why not simpler
//! Async code could be simulated without threads, but then everything above, up to the file
//! system, would be async, and harder to read. Running threads freely and only faking the clock
//! gives neither determinism nor a deadlock report.
//!
//! # Source
//! The names follow OpenZFS `include/sys/zfs_context.h` (mutex, condvar, taskq, `gethrtime`).

mod affinity;
mod aside;
mod clock;
mod one_shot;
mod parallel;
mod processor;
mod random;
mod sim;
mod sync;
mod taskq;
mod thread;
mod timer;
mod way;

pub use affinity::{bring, stay_on};
pub use aside::{Aside, aside};
pub use clock::{SIMULATED_EPOCH_SECS, Timestamp, now_ns, sleep_ns, step_wall_clock, wall_clock};
pub use one_shot::OneShot;
pub use parallel::{parallel_map, parallelism};
pub use processor::{
    CpuTimes, Processor, Transfer, Work, book_transfer, charge, charge_program, cores, cpu_ns,
    cpu_times,
};
pub use random::{SeededRandom, fill_random, random_below, random_u64, splitmix64};
pub use sim::{
    Door, SimOptions, close_door, is_simulated, open_door, outside, simulate, simulate_with,
};
pub use sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use taskq::TaskQueue;
pub use thread::{JoinHandle, spawn, spawn_with_stack, spin, yield_now};
pub use timer::at_ns;
pub use way::{ThreadId, can_give_way, give_way, hurry, wants_to_run};
