//! Where each thread that answers is.
//!
//! # What it is
//! A thread goes to a processor by itself when it has answered. One that waits for a request would be woken where it
//! was, on a processor that mostly sleeps; the program that asks is then put there, too, as the kernel likes one that
//! has just been woken, and all others have to follow. So those that wait are moved by who notices that they are to.
//!
//! # Concurrency
//! Where a thread that answers is changes under the lock only. It may be held by one that gives way, so the one that
//! looks after these never takes it: if two move that at a time, it may end elsewhere, and costs a little then.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rt::{Mutex, ThreadId};

/// Where one of them is.
pub(super) struct Seat {
    thread: ThreadId,
    /// The processor's number and one; 0: any.
    processor: AtomicUsize,
}

/// The threads that answer.
#[derive(Default)]
pub(super) struct Seats(Mutex<Vec<Arc<Seat>>>);

impl Seat {
    /// The processor that it is to run on, if not on any.
    pub(super) fn processor(&self) -> Option<usize> {
        self.processor.load(Ordering::SeqCst).checked_sub(1)
    }

    /// The calling thread, whose seat this is, goes to a processor, or anywhere.
    pub(super) fn go(&self, processor: Option<usize>) {
        // Where it may not be, it stays where it is, and does not try again.
        rt::stay_on(processor);
        self.set(processor);
    }

    /// If it is on another processor, it is moved to this one.
    pub(super) fn follow(&self, processor: usize) {
        let is_elsewhere = self.processor().is_some_and(|at| at != processor);
        if is_elsewhere && rt::bring(self.thread, processor) {
            self.set(Some(processor));
        }
    }

    fn set(&self, processor: Option<usize>) {
        let raw = processor.map_or(0, |number| number + 1);
        self.processor.store(raw, Ordering::SeqCst);
    }
}

impl Default for Seat {
    /// That of the calling thread, which runs anywhere.
    fn default() -> Seat {
        Seat {
            thread: ThreadId::own(),
            processor: AtomicUsize::new(0),
        }
    }
}

impl Seats {
    /// The calling thread is one of them now, anywhere.
    pub(super) fn enter(&self) -> Arc<Seat> {
        let seat = Arc::new(Seat::default());
        self.0.lock().push(Arc::clone(&seat));
        seat
    }

    /// The calling thread, whose seat this is, goes to a processor, or anywhere.
    pub(super) fn go(&self, seat: &Seat, processor: Option<usize>) {
        let _seats = self.0.lock();
        seat.go(processor);
    }

    /// Moves all others that are on a processor to another one.
    pub(super) fn move_all(&self, processor: usize) {
        let own = ThreadId::own();
        let seats = self.0.lock();
        let others = seats.iter().filter(|seat| seat.thread != own);
        others.for_each(|seat| seat.follow(processor));
    }

    /// The calling thread, whose seat this is, ends.
    pub(super) fn leave(&self, seat: &Arc<Seat>) {
        self.go(seat, None);
        self.0.lock().retain(|other| !Arc::ptr_eq(other, seat));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// The processors that the calling thread may use, as the kernel says: a number, or more than one.
    fn allowed() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().trim().to_owned()
    }

    #[test]
    fn those_that_wait_are_moved_and_those_that_are_anywhere_are_not() {
        let all = allowed();
        let numbers = all.split([',', '-']).map(|number| number.parse().unwrap());
        let numbers: Vec<usize> = numbers.collect();
        let (first, last) = (numbers[0], *numbers.last().unwrap());
        let seats = Arc::new(Seats::default());
        let (tell, told) = mpsc::channel();
        let waits = |processor| {
            let (seats, tell) = (Arc::clone(&seats), tell.clone());
            let (end, ended) = mpsc::channel::<()>();
            let thread = rt::spawn("waits", move || {
                let seat = seats.enter();
                seats.go(&seat, processor);
                tell.send(()).unwrap();
                let _ = ended.recv();
                let found = (seat.processor(), allowed());
                seats.leave(&seat);
                (found, allowed())
            });
            (thread, end)
        };
        let (one, two) = (waits(Some(first)), waits(None));
        told.recv().and_then(|()| told.recv()).unwrap();
        seats.move_all(last);
        drop((one.1, two.1));
        assert_eq!(one.0.join(), ((Some(last), last.to_string()), all.clone()));
        assert_eq!(two.0.join(), ((None, all.clone()), all));
        assert_eq!(seats.0.lock().len(), 0);
    }
}
