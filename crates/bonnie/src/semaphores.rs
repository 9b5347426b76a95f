//! Semaphores by which several runs begin each test together.
//!
//! # What it is
//! A set of System V semaphores, one for each test. `-p N` gives each the value N. A run that comes to a test takes
//! one from its semaphore, and waits until that is zero: until N runs have come. The key is that of the original, so
//! runs of either wait for each other.
//!
//! # Source
//! bonnie++ 2.00a, `semaphore.cpp`; semop(2), semctl(2).

use std::io;
use std::ptr;

use base::{Context, Error, Result};

use crate::results::{TESTS, Test};

/// Of the set: `SemKey` of the original.
pub const KEY: i32 = 4711;
/// What a semaphore can count to: `SEMVMX`.
pub const RUNS_MAX: u16 = 32767;
/// How long a run waits before it looks again whether the others have come.
const LOOK_NS: u64 = 1_000_000;

/// Where the semaphores are: those of this host, or of a machine.
pub trait Semaphores: Send + Sync {
    /// Makes the set for so many runs, or gives it that value.
    ///
    /// # Errors
    /// What the system says.
    fn make(&self, runs: u16) -> Result<()>;

    /// Removes the set.
    ///
    /// # Errors
    /// `NotFound` if there is none; what the system says.
    fn remove(&self) -> Result<()>;

    /// Looks for the set.
    ///
    /// # Errors
    /// `NotFound` if there is none; what the system says.
    fn find(&self) -> Result<()>;

    /// Says that a run has come to a test, and waits for the others, or until it is interrupted.
    ///
    /// # Errors
    /// When more runs come than the set was made for, or it is removed meanwhile.
    fn come_to(&self, test: Test, is_interrupted: &mut dyn FnMut() -> bool) -> Result<()>;
}

/// Those of this host.
pub struct HostSemaphores;

/// The last argument of semctl(2); the C library has it defined by its callers.
#[repr(C)]
union Argument {
    value: libc::c_int,
    pointer: *mut libc::c_void,
}

/// What a call of the C library returned, unless it failed.
fn checked(returned: libc::c_int) -> io::Result<libc::c_int> {
    match returned {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

/// The number of the set.
fn set(flags: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: a system call that gets and returns numbers.
    checked(unsafe { libc::semget(KEY, TESTS as libc::c_int, flags) })
}

fn existing() -> Result<libc::c_int> {
    let found = set(0o666).map_err(Error::from);
    found.within(|| "Can't get semaphore ID")
}

fn control(set: libc::c_int, at: usize, command: libc::c_int, value: u16) -> io::Result<()> {
    let argument = Argument {
        value: value.into(),
    };
    // SAFETY: neither SETVAL nor IPC_RMID, the commands in use, reads or writes by a pointer.
    checked(unsafe { libc::semctl(set, at as libc::c_int, command, argument) }).map(drop)
}

/// Adds to a semaphore, or with 0 sees whether it is zero; fails with `EAGAIN` where it would have to wait.
fn operate(set: libc::c_int, test: Test, add: i16) -> io::Result<()> {
    let mut operation = libc::sembuf {
        sem_num: test as u16,
        sem_op: add,
        sem_flg: libc::IPC_NOWAIT as i16,
    };
    // SAFETY: one operation is there, as the length says, and the call does not keep the pointer.
    checked(unsafe { libc::semop(set, ptr::from_mut(&mut operation), 1) }).map(drop)
}

impl Semaphores for HostSemaphores {
    fn make(&self, runs: u16) -> Result<()> {
        let set = set(libc::IPC_CREAT | 0o666).map_err(Error::from);
        let set = set.within(|| "Can't get semaphore")?;
        for at in 0..TESTS {
            let given = control(set, at, libc::SETVAL, runs).map_err(Error::from);
            given.within(|| "Can't set semaphore value")?;
        }
        Ok(())
    }

    fn remove(&self) -> Result<()> {
        let removed = control(existing()?, 0, libc::IPC_RMID, 0).map_err(Error::from);
        removed.within(|| "Can't remove semaphore")
    }

    fn find(&self) -> Result<()> {
        existing().map(drop)
    }

    fn come_to(&self, test: Test, is_interrupted: &mut dyn FnMut() -> bool) -> Result<()> {
        let set = existing()?;
        let come = operate(set, test, -1).map_err(Error::from);
        come.within(|| "more runs than the semaphores were made for")?;
        loop {
            match operate(set, test, 0) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    return Err(Error::from(error).within("semaphore"));
                }
                Err(_) if is_interrupted() => return Ok(()),
                Err(_) => rt::sleep_ns(LOOK_NS),
            }
        }
    }
}
