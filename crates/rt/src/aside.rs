//! Pure computations on another processor.
//!
//! # What it is
//! The threads of a simulation run one at a time, on one processor. What one of them computes from bytes alone, and
//! needs only later, can be computed on another one meanwhile: [`aside`] hands it over, [`Aside::take`] waits for the
//! result. A single thread of the operating system computes what all hand over, in their order.
//!
//! # Invariants
//! 1. When a result is ready changes nothing but real time: it is there when it is taken, and cannot be asked for
//!    before. So a simulation stays the same, as long as what is handed over uses nothing of `rt`.
//! 2. On a computer with one processor all is computed at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};

use crate::affinity;
use crate::parallel::processors;

type Work = Box<dyn FnOnce() + Send>;

/// To the thread that computes; `None`: there is none.
static WORKER: OnceLock<Option<Sender<Work>>> = OnceLock::new();

/// A result that is being computed. Dropping it gives the result up.
#[derive(Debug)]
pub struct Aside<T>(Receiver<T>);

/// Computes `f` on another processor. It must use nothing else of this crate.
pub fn aside<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Aside<T> {
    let (result, receiver) = sync_channel(1);
    // It may be that nobody wants it any more.
    let work = move || drop(result.send(f()));
    match WORKER.get_or_init(start) {
        Some(worker) => worker.send(Box::new(work)).expect("it never ends"),
        None => work(),
    }
    Aside(receiver)
}

fn start() -> Option<Sender<Work>> {
    if processors() == 1 {
        return None;
    }
    let (worker, works) = channel::<Work>();
    let compute = move || {
        for work in works {
            // If it panics, so does what takes its result.
            let _ = catch_unwind(AssertUnwindSafe(work));
        }
    };
    let thread = std::thread::Builder::new().name("aside".to_owned());
    let is_started = thread.spawn(affinity::anywhere(compute)).is_ok();
    is_started.then_some(worker)
}

impl<T> Aside<T> {
    /// Waits for the result.
    ///
    /// # Panics
    /// If the computation did.
    #[must_use]
    pub fn take(self) -> T {
        self.0
            .recv()
            .expect("what is computed aside does not panic")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_those_of_what_was_handed_over() {
        let squares: Vec<Aside<u64>> = (0..1000).map(|n| aside(move || n * n)).collect();
        drop(aside(|| vec![0; 100]));
        for (n, square) in (0..).zip(squares) {
            assert_eq!(square.take(), n * n);
        }
        let panics = aside(|| assert_eq!(1, 2, "on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(|| panics.take())).is_err());
        let in_simulation = crate::simulate(1, || aside(|| "it").take());
        assert_eq!(in_simulation, "it");
    }
}
