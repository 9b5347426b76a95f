//! The cost of computing in simulated time.
//!
//! # What it is
//! Computing is free in a simulation unless [`SimOptions::processor`](crate::SimOptions) sets a
//! price: then code that computes much calls [`charge`], which waits until a core of the simulated
//! computer would have done the work. The computer has a few cores; work that finds all of them
//! busy waits its turn. It also has one bus, shared by all drives. In real time, and on a processor
//! that is free of charge, [`charge`] does nothing.
//!
//! Work is billed as that of the kernel, in which a file system runs, unless a program says that it
//! computes something itself, by [`charge_program`]; both take the same cores ([`cpu_times`]).
//!
//! # Invariants
//! 1. The pieces of work in progress at any time are at most as many as there are cores.
//! 2. Small charges of a thread are summed up and waited for together, so the clock moves in steps
//!    of some microseconds; nothing is lost while the thread lives.
//!
//! # Concurrency
//! The cores' times are behind one plain mutex that is held for a few instructions.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use nix::sys::resource::{UsageWho, getrusage};
use rustix::time::{ClockId, clock_gettime};

use crate::sim;

/// Kinds of work that have a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Issuing one command to a provider and handling its completion.
    Command,
    /// Entering the kernel and returning.
    SystemCall,
    /// Copying a byte in memory once.
    Copy,
    /// A fletcher checksum of a byte.
    Fletcher,
    /// A cryptographic checksum of a byte.
    Digest,
    /// One cycle of a core, for work whose price was measured in cycles.
    Cycle,
    /// Setting up a cipher for one sector.
    CipherSector,
    /// Encrypting or decrypting a byte.
    Cipher,
    /// Moving a byte between memory and a drive, over the one bus that all drives share. It keeps
    /// the bus busy, not a core, so it is for [`book_transfer`], not for [`charge`].
    Transfer,
}

const KINDS: usize = 9;

/// The processor of a simulated computer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    /// Number of cores; 0: computing is free.
    pub cores: u32,
    /// Picoseconds per byte, or per operation, of each kind of work.
    price_ps: [u64; KINDS],
}

impl Processor {
    /// A processor on which all work is free until [`with`](Processor::with) sets prices.
    #[must_use]
    pub fn new(cores: u32) -> Processor {
        Processor {
            cores,
            price_ps: [0; KINDS],
        }
    }

    /// The same processor with a price, in picoseconds, for a kind of work.
    #[must_use]
    pub fn with(mut self, work: Work, price_ps: u64) -> Processor {
        self.price_ps[work as usize] = price_ps;
        self
    }

    /// The same processor at another clock: all but the bus takes `from / to` times as long.
    #[must_use]
    pub fn at_clock(mut self, from_mhz: u32, to_mhz: u32) -> Processor {
        for (kind, price_ps) in self.price_ps.iter_mut().enumerate() {
            if kind != Work::Transfer as usize {
                *price_ps = *price_ps * u64::from(from_mhz) / u64::from(to_mhz.max(1));
            }
        }
        self
    }

    /// The price of one byte, or one operation, in picoseconds.
    #[must_use]
    pub fn price_ps(&self, work: Work) -> u64 {
        self.price_ps[work as usize]
    }
}

/// Cores and bus of a simulation, and the time until which each is busy.
pub(crate) struct Cores {
    processor: Processor,
    free_at_ns: Mutex<Vec<u64>>,
    bus_free_at_ns: Mutex<u64>,
    /// How long all cores together have worked.
    worked_ns: AtomicU64,
    /// How much of that was for programs.
    programs_ns: AtomicU64,
}

/// How long processors have worked, for programs and for the kernel, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "rusage")]
pub struct CpuTimes {
    /// What programs computed themselves.
    pub user_ns: u64,
    /// What was done for them: in a simulation everything else.
    pub system_ns: u64,
}

impl Cores {
    pub(crate) fn new(processor: Processor) -> Self {
        Cores {
            processor,
            free_at_ns: Mutex::new(vec![0; processor.cores as usize]),
            bus_free_at_ns: Mutex::new(0),
            worked_ns: AtomicU64::new(0),
            programs_ns: AtomicU64::new(0),
        }
    }

    /// Puts a transfer on the bus; returns when it ends.
    fn transfer(&self, now_ns: u64, transfer_ns: u64) -> u64 {
        let mut free = self
            .bus_free_at_ns
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *free = now_ns.max(*free) + transfer_ns;
        *free
    }

    /// Divides work among the `share` cores that are free first; returns when all of it ends.
    fn occupy(&self, now_ns: u64, work_ns: u64, share: usize) -> u64 {
        let mut free = self
            .free_at_ns
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.worked_ns.fetch_add(work_ns, Ordering::Relaxed);
        free.sort_unstable();
        let share = share.clamp(1, free.len());
        let part = work_ns.div_ceil(share as u64);
        let mut end = now_ns;
        for core in &mut free[..share] {
            *core = now_ns.max(*core) + part;
            end = end.max(*core);
        }
        end
    }
}

/// Unpaid work at which a thread waits, in picoseconds: 20 µs, so that threads do not switch for
/// every small charge.
const STEP_PS: u64 = 20_000_000;

thread_local! {
    /// Charged work that this thread has not waited for yet, in picoseconds.
    static OWED_PS: Cell<u64> = const { Cell::new(0) };
    /// How much of it is a program's.
    static OWED_PROGRAM_PS: Cell<u64> = const { Cell::new(0) };
    /// Whether the thread is inside `side_by_side`, at whose end it waits for all of its work.
    static GATHERING: Cell<bool> = const { Cell::new(false) };
}

/// How long processors have worked so far, in ns: for this process, or for all threads of a simulation.
#[must_use]
#[doc(alias = "getrusage")]
pub fn cpu_ns() -> u64 {
    match sim::current() {
        Some(context) => context.cores().worked_ns.load(Ordering::Relaxed),
        None => {
            let time = clock_gettime(ClockId::ProcessCPUTime);
            time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
        }
    }
}

/// The same as [`cpu_ns`], divided between programs and the kernel. In real time the kernel's count of this process
/// decides, without that of programs that it runs.
///
/// # Panics
/// If this system does not tell a process what it used.
#[must_use]
#[doc(alias = "getrusage")]
pub fn cpu_times() -> CpuTimes {
    if let Some(context) = sim::current() {
        let cores = context.cores();
        let user_ns = cores.programs_ns.load(Ordering::Relaxed);
        let worked_ns = cores.worked_ns.load(Ordering::Relaxed);
        return CpuTimes {
            user_ns,
            system_ns: worked_ns.saturating_sub(user_ns),
        };
    }
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process may know what it used");
    let ns = |time: nix::sys::time::TimeVal| {
        time.tv_sec().unsigned_abs() * 1_000_000_000 + time.tv_usec().unsigned_abs() * 1000
    };
    CpuTimes {
        user_ns: ns(usage.user_time()),
        system_ns: ns(usage.system_time()),
    }
}

/// The cores of the simulated computer; 0 in real time, and where computing is free.
#[must_use]
pub fn cores() -> u32 {
    sim::current().map_or(0, |context| context.cores().processor.cores)
}

/// Waits for as long as `count` bytes, or operations, of this work take on the simulated processor.
#[inline]
pub fn charge(work: Work, count: u64) {
    if sim::is_simulated() {
        charge_simulated(work, count, false);
    }
}

/// Like [`charge`], for what a program computes itself.
#[inline]
pub fn charge_program(work: Work, count: u64) {
    if sim::is_simulated() {
        charge_simulated(work, count, true);
    }
}

#[cold]
#[track_caller]
fn charge_simulated(work: Work, count: u64, is_program: bool) {
    let Some(context) = sim::current() else {
        return;
    };
    let cores = context.cores();
    if cores.processor.cores == 0 || sim::is_in_callback() {
        return;
    }
    let price_ps = cores.processor.price_ps(work).saturating_mul(count);
    let owed = OWED_PS.get() + price_ps;
    OWED_PS.set(owed);
    if is_program {
        OWED_PROGRAM_PS.set(OWED_PROGRAM_PS.get() + price_ps);
    }
    if owed >= STEP_PS && !GATHERING.get() {
        pay(&context, 1);
    }
}

/// The time that a transfer has on the bus; in the past where transfers take no time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// When its first byte begins to pass.
    pub from_ns: u64,
    /// When its last byte has passed.
    pub until_ns: u64,
}

/// Queues a transfer on the bus, after those already queued. Does not wait, because a drive works
/// while the bytes pass the bus: the thread that needs them waits until both are done.
#[must_use]
pub fn book_transfer(bytes: u64) -> Transfer {
    let book = |context: &sim::Context| {
        let cores = context.cores();
        let price_ps = cores.processor.price_ps(Work::Transfer);
        let transfer_ns = price_ps.saturating_mul(bytes) / 1000;
        if transfer_ns == 0 {
            return Transfer::default();
        }
        let until_ns = cores.transfer(context.now_ns(), transfer_ns);
        Transfer {
            from_ns: until_ns - transfer_ns,
            until_ns,
        }
    };
    sim::with_current(book).unwrap_or_default()
}

impl Transfer {
    /// Waits until the transfer begins. Returns immediately in the function of a timer, which
    /// cannot wait.
    #[track_caller]
    pub fn begin(&self) {
        sleep_until(self.from_ns);
    }

    /// Waits until the transfer ends; otherwise like [`Transfer::begin`].
    #[track_caller]
    pub fn end(&self) {
        sleep_until(self.until_ns);
    }
}

#[track_caller]
fn sleep_until(at_ns: u64) {
    let now = crate::now_ns();
    if at_ns > now && sim::is_simulated() && !sim::is_in_callback() {
        crate::sleep_ns(at_ns - now);
    }
}

#[track_caller]
fn pay(context: &sim::Context, share: usize) {
    let owed_ns = OWED_PS.get() / 1000;
    OWED_PS.set(OWED_PS.get() % 1000);
    let program_ps = OWED_PROGRAM_PS.get();
    let program_ns = (program_ps / 1000).min(owed_ns);
    OWED_PROGRAM_PS.set(program_ps - program_ns * 1000);
    let (cores, now) = (context.cores(), context.now_ns());
    cores.programs_ns.fetch_add(program_ns, Ordering::Relaxed);
    let end = cores.occupy(now, owed_ns, share);
    context.sleep_ns(end - now);
}

/// Runs `f`, whose work can be spread over up to `ways` cores, and then waits for its charges.
pub(crate) fn side_by_side<T>(ways: usize, f: impl FnOnce() -> T) -> T {
    let Some(context) = sim::current() else {
        return f();
    };
    if context.cores().processor.cores == 0 || GATHERING.get() || sim::is_in_callback() {
        return f();
    }
    struct Gathering;
    impl Drop for Gathering {
        fn drop(&mut self) {
            GATHERING.set(false);
        }
    }
    GATHERING.set(true);
    let gathering = Gathering;
    let result = f();
    drop(gathering);
    if OWED_PS.get() >= STEP_PS {
        pay(&context, ways);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SimOptions, now_ns, parallel_map, simulate_with, spawn};

    fn on<T: Send>(cores: u32, f: impl FnOnce() -> T + Send) -> T {
        let mut options = SimOptions::new(1);
        options.processor = Processor::new(cores).with(Work::Copy, 1_000_000);
        simulate_with(options, f)
    }

    #[test]
    fn work_takes_its_time() {
        let took = on(1, || {
            charge(Work::Copy, 1000);
            now_ns()
        });
        assert_eq!(took, 1_000_000);
    }

    #[test]
    fn the_work_of_all_threads_is_counted() {
        let worked = on(2, || {
            let other = spawn("w", || charge(Work::Copy, 1000));
            charge(Work::Copy, 500);
            other.join();
            crate::sleep_ns(1_000_000);
            super::cpu_ns()
        });
        assert_eq!(worked, 1_500_000);
        assert!(super::cpu_ns() > 0);
    }

    #[test]
    fn what_programs_compute_is_told_from_the_kernels_work() {
        let times = on(1, || {
            charge_program(Work::Copy, 300);
            charge(Work::Copy, 500);
            (0..700).for_each(|_| charge_program(Work::Copy, 1));
            (cpu_times(), super::cpu_ns(), now_ns())
        });
        let expected = CpuTimes {
            user_ns: 1_000_000,
            system_ns: 500_000,
        };
        assert_eq!(times, (expected, 1_500_000, 1_500_000));
    }

    #[test]
    fn a_process_that_computes_uses_time_of_its_own() {
        let before = cpu_times().user_ns;
        let mut sum = 1_u64;
        while cpu_times().user_ns < before + 20_000_000 {
            (0..10_000_u64).for_each(|n| sum = std::hint::black_box(sum.wrapping_mul(n | 1)));
        }
        let after = cpu_times();
        let used_ns = after.user_ns + after.system_ns;
        assert!(used_ns <= super::cpu_ns() + 10_000_000, "{after:?}");
    }

    #[test]
    fn small_charges_are_not_lost() {
        let took = on(1, || {
            (0..1000).for_each(|_| charge(Work::Copy, 1));
            now_ns()
        });
        assert_eq!(took, 1_000_000);
    }

    #[test]
    fn work_without_a_price_is_free() {
        let took = on(1, || {
            charge(Work::Cipher, 1 << 40);
            now_ns()
        });
        assert_eq!(took, 0);
        charge(Work::Copy, u64::MAX);
    }

    #[test]
    fn threads_share_the_cores() {
        let run = |cores| {
            on(cores, || {
                let threads: Vec<_> = (0..4)
                    .map(|_| spawn("w", || charge(Work::Copy, 1000)))
                    .collect();
                threads.into_iter().for_each(|thread| thread.join());
                now_ns()
            })
        };
        assert_eq!(
            [run(1), run(2), run(4), run(8)],
            [4_000_000, 2_000_000, 1_000_000, 1_000_000]
        );
    }

    #[test]
    fn drives_share_the_bus_and_leave_the_cores_alone() {
        let mut options = SimOptions::new(1);
        options.processor = Processor::new(4)
            .with(Work::Copy, 1_000_000)
            .with(Work::Transfer, 2_000_000);
        let took = simulate_with(options, || {
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    spawn("t", || {
                        let transfer = book_transfer(1000);
                        transfer.begin();
                        assert_eq!(now_ns() % 2_000_000, 0);
                        transfer.end();
                    })
                })
                .collect();
            charge(Work::Copy, 1000);
            assert_eq!(now_ns(), 1_000_000);
            threads.into_iter().for_each(|thread| thread.join());
            now_ns()
        });
        assert_eq!(took, 4_000_000);
    }

    #[test]
    fn a_parallel_map_uses_all_cores() {
        let run = |cores| {
            on(cores, || {
                parallel_map(vec![(); 6], |()| charge(Work::Copy, 1000));
                now_ns()
            })
        };
        assert_eq!([run(1), run(3), run(12)], [6_000_000, 2_000_000, 1_000_000]);
    }
}
