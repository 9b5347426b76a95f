//! Threads of the operating system, or of the simulation that the spawning thread belongs to.

use crate::{affinity, now_ns, parallelism, sim};

/// The payload of a thread's panic.
pub(crate) type Payload = Box<dyn std::any::Any + Send + 'static>;

/// The right to wait for a thread. Dropping it lets the thread run on.
#[must_use = "dropping the handle detaches the thread"]
pub struct JoinHandle<T>(Inner<T>);

enum Inner<T> {
    Real(std::thread::JoinHandle<T>),
    Simulated(sim::SimJoinHandle<T>),
}

/// Starts a thread called `name`.
#[track_caller]
pub fn spawn<T: Send + 'static>(
    name: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    start(name, None, f)
}

/// [`spawn`] with a stack of that size instead of the default.
#[track_caller]
pub fn spawn_with_stack<T: Send + 'static>(
    name: &str,
    stack_bytes: usize,
    f: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    start(name, Some(stack_bytes), f)
}

#[track_caller]
fn start<T: Send + 'static>(
    name: &str,
    stack_bytes: Option<usize>,
    f: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    if let Some(context) = sim::current() {
        return JoinHandle(Inner::Simulated(context.spawn(name, stack_bytes, f)));
    }
    let mut thread = std::thread::Builder::new().name(name.to_owned());
    if let Some(bytes) = stack_bytes {
        thread = thread.stack_size(bytes);
    }
    let thread = thread.spawn(affinity::anywhere(f));
    JoinHandle(Inner::Real(
        thread.unwrap_or_else(|e| panic!("no thread for {name}: {e}")),
    ))
}

/// Busy-waits for at most `ns` nanoseconds until another thread has made `is_done` true; returns
/// `is_done()`. For waits so short that sleeping would cost more. Does not wait at all in simulated
/// time, or on a machine with one processor.
pub fn spin(ns: u64, is_done: impl Fn() -> bool) -> bool {
    if parallelism() > 1 {
        let start_ns = now_ns();
        while !is_done() && now_ns() - start_ns < ns {
            std::hint::spin_loop();
        }
    }
    is_done()
}

/// Lets other threads run first.
#[track_caller]
pub fn yield_now() {
    match sim::current() {
        Some(context) => context.yield_now(),
        None => std::thread::yield_now(),
    }
}

impl<T> JoinHandle<T> {
    /// Waits for the thread and takes its result; if it panicked, the panic resumes in the caller.
    #[track_caller]
    pub fn join(self) -> T {
        self.try_join()
            .unwrap_or_else(|payload| std::panic::resume_unwind(payload))
    }

    /// Waits for the thread and takes its result.
    ///
    /// # Errors
    /// The payload of the thread's panic.
    #[track_caller]
    pub fn try_join(self) -> std::thread::Result<T> {
        match self.0 {
            Inner::Real(handle) => handle.join(),
            Inner::Simulated(handle) => handle.try_join(),
        }
    }

    /// Whether the thread has ended, so that joining it does not wait.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Inner::Real(handle) => handle.is_finished(),
            Inner::Simulated(handle) => handle.is_finished(),
        }
    }
}

impl<T> std::fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "JoinHandle(finished: {})", self.is_finished())
    }
}
