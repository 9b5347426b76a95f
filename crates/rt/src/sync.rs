//! Locks and conditions.
//!
//! # Concurrency
//! In real time these are `parking_lot`'s. In simulated time the same locks are only tried, never
//! waited on: a thread that finds one taken lets the scheduler run another thread. As with `parking_lot`'s, a thread
//! that wants to write waits for those that read now, and not for all that come later.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::sim::{self, Wait, WaitKey};

fn address_of<T: ?Sized>(value: &T) -> usize {
    std::ptr::from_ref(value).cast::<()>().addr()
}

/// Retries `attempt` until it succeeds; other threads run between tries. For simulated threads.
#[cold]
fn acquire<G>(
    context: &sim::Context,
    wait: Wait,
    at: &'static Location<'static>,
    mut attempt: impl FnMut() -> Option<G>,
) -> G {
    context.maybe_preempt();
    loop {
        if let Some(guard) = attempt() {
            return guard;
        }
        context.block(wait, None, at);
    }
}

/// Tells a simulation that a lock is free. In real time, which pays for every lock, it is one comparison.
#[inline]
fn released(address: usize) {
    sim::with_current(|context| context.wake_lock(WaitKey::Lock(address)));
}

/// Mutual exclusion around a value. A panic while it is held does not poison it.
#[derive(Default)]
#[doc(alias = "kmutex_t")]
pub struct Mutex<T: ?Sized>(parking_lot::Mutex<T>);

/// The right to use a [`Mutex`]'s value.
#[must_use = "a lock is released as soon as its guard is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// `None` only while waiting for a condition and while being dropped.
    inner: Option<parking_lot::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// A mutex around `value`.
    pub const fn new(value: T) -> Self {
        Mutex(parking_lot::Mutex::new(value))
    }

    /// The value, without the lock.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until the lock is free, and takes it.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let at = Location::caller();
        let simulated = sim::with_current(|context| self.lock_simulated(context, at));
        let inner = simulated.unwrap_or_else(|| self.0.lock());
        MutexGuard {
            mutex: self,
            inner: Some(inner),
        }
    }

    fn lock_simulated(
        &self,
        context: &sim::Context,
        at: &'static Location<'static>,
    ) -> parking_lot::MutexGuard<'_, T> {
        let wait = Wait::Lock {
            address: address_of(self),
            what: std::any::type_name::<T>(),
        };
        acquire(context, wait, at, || self.0.try_lock())
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.0.try_lock()?;
        Some(MutexGuard {
            mutex: self,
            inner: Some(inner),
        })
    }

    /// The value: exclusive borrowing needs no lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.inner.as_ref().expect("a guard in use holds its lock")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("a guard in use holds its lock")
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        drop(self.inner.take());
        released(address_of(self.mutex));
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Mutex::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Many readers or one writer. A thread that takes it for reading twice may deadlock.
#[derive(Default)]
#[doc(alias = "krwlock_t")]
pub struct RwLock<T: ?Sized> {
    turns: Turns,
    inner: parking_lot::RwLock<T>,
}

/// Whose turn it is in a simulation.
#[derive(Default, Debug)]
struct Turns {
    /// Threads that wait to write.
    writers: AtomicUsize,
    /// How often a thread that had to wait has written.
    written: AtomicUsize,
}

/// A thread that waits to write.
struct Writer<'a>(&'a Turns);

impl Turns {
    /// Whether a reader that came when `written` was the count has to let one go first that wants to write.
    fn is_of_a_writer(&self, written: usize) -> bool {
        self.writers.load(Ordering::Relaxed) > 0 && self.written.load(Ordering::Relaxed) == written
    }

    fn wait(&self) -> Writer<'_> {
        self.writers.fetch_add(1, Ordering::Relaxed);
        Writer(self)
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        self.0.writers.fetch_sub(1, Ordering::Relaxed);
        self.0.written.fetch_add(1, Ordering::Relaxed);
    }
}

/// The right to read an [`RwLock`]'s value.
#[must_use = "a lock is released as soon as its guard is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    inner: Option<parking_lot::RwLockReadGuard<'a, T>>,
}

/// The right to change an [`RwLock`]'s value.
#[must_use = "a lock is released as soon as its guard is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    inner: Option<parking_lot::RwLockWriteGuard<'a, T>>,
}

impl<T> RwLock<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        RwLock {
            turns: Turns {
                writers: AtomicUsize::new(0),
                written: AtomicUsize::new(0),
            },
            inner: parking_lot::RwLock::new(value),
        }
    }

    /// The value, without the lock.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    fn wait(&self) -> Wait {
        Wait::Lock {
            address: address_of(self),
            what: std::any::type_name::<T>(),
        }
    }

    /// Waits until there is no writer, and takes the lock for reading.
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let at = Location::caller();
        let simulated = sim::with_current(|context| self.read_simulated(context, at));
        let inner = simulated.unwrap_or_else(|| self.inner.read());
        RwLockReadGuard {
            lock: self,
            inner: Some(inner),
        }
    }

    /// Waits until there is no reader or writer, and takes the lock for writing.
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let at = Location::caller();
        let simulated = sim::with_current(|context| self.write_simulated(context, at));
        let inner = simulated.unwrap_or_else(|| self.inner.write());
        RwLockWriteGuard {
            lock: self,
            inner: Some(inner),
        }
    }

    fn read_simulated(
        &self,
        context: &sim::Context,
        at: &'static Location<'static>,
    ) -> parking_lot::RwLockReadGuard<'_, T> {
        let written = self.turns.written.load(Ordering::Relaxed);
        acquire(context, self.wait(), at, || {
            if self.turns.is_of_a_writer(written) {
                return None;
            }
            self.inner.try_read()
        })
    }

    fn write_simulated(
        &self,
        context: &sim::Context,
        at: &'static Location<'static>,
    ) -> parking_lot::RwLockWriteGuard<'_, T> {
        let mut waits = None;
        acquire(context, self.wait(), at, || {
            let guard = self.inner.try_write();
            if guard.is_none() && waits.is_none() {
                waits = Some(self.turns.wait());
            }
            guard
        })
    }

    /// The value: exclusive borrowing needs no lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.inner.as_ref().expect("a guard in use holds its lock")
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        drop(self.inner.take());
        released(address_of(self.lock));
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.inner.as_ref().expect("a guard in use holds its lock")
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("a guard in use holds its lock")
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        drop(self.inner.take());
        released(address_of(self.lock));
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// A condition to wait for; the wait releases a [`Mutex`].
#[derive(Default, Debug)]
#[doc(alias = "kcondvar_t")]
pub struct Condvar {
    inner: parking_lot::Condvar,
}

impl Condvar {
    /// A condition without waiters.
    #[must_use]
    pub const fn new() -> Self {
        Condvar {
            inner: parking_lot::Condvar::new(),
        }
    }

    /// Releases the lock, waits for a notification, and takes the lock again. May wake spuriously.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        match sim::current() {
            None => self
                .inner
                .wait(guard.inner.as_mut().expect("a guard holds its lock")),
            Some(context) => {
                self.wait_simulated(&context, guard, None, Location::caller());
            }
        }
    }

    /// Like [`wait`](Condvar::wait), for at most `ns` nanoseconds. Returns whether the time ran out.
    #[track_caller]
    pub fn wait_timeout_ns<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, ns: u64) -> bool {
        match sim::current() {
            None => {
                let inner = guard.inner.as_mut().expect("a guard holds its lock");
                self.inner
                    .wait_for(inner, Duration::from_nanos(ns))
                    .timed_out()
            }
            Some(context) => {
                let deadline = context.now_ns().saturating_add(ns);
                self.wait_simulated(&context, guard, Some(deadline), Location::caller())
            }
        }
    }

    /// Waits for as long as `condition` holds.
    #[track_caller]
    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    fn wait_simulated<T: ?Sized>(
        &self,
        context: &sim::Context,
        guard: &mut MutexGuard<'_, T>,
        deadline: Option<u64>,
        at: &'static Location<'static>,
    ) -> bool {
        // No other thread runs between releasing the lock and waiting: no notification is lost.
        drop(guard.inner.take());
        released(address_of(guard.mutex));
        let timed_out = context.block(Wait::Condvar(address_of(self)), deadline, at);
        guard.inner = Some(guard.mutex.lock_simulated(context, at));
        timed_out
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        if sim::is_simulated() {
            sim::with_current(|context| context.wake_one(WaitKey::Condvar(address_of(self))));
        } else {
            self.inner.notify_one();
        }
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        if sim::is_simulated() {
            sim::with_current(|context| context.wake_all(WaitKey::Condvar(address_of(self))));
        } else {
            self.inner.notify_all();
        }
    }
}
