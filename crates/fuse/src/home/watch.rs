//! Looks whether threads at home get on.
//!
//! # What it is
//! Threads that give way do so to everything else on their processor. If something else works there, they stand still,
//! maybe with a lock that others wait for. One more thread, which does not give way, looks every few milliseconds while
//! they do: when nothing was answered since it last looked although one of them wants to run, or nothing for long, all
//! of them [hurry](rt::hurry). It is at home itself: on another processor it would wake that one each time.
//!
//! # Concurrency
//! A thread that begins to give way while all are told to hurry may miss it; so they are told once more at the next
//! look. One that is told so while it waits notices by the number of times that all were told. The thread that looks
//! waits for no lock that is held while something is answered.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rt::{Condvar, Mutex, ThreadId};

use super::Home;
use super::seats::Seat;

/// How often it is looked, in ns.
const LOOK_NS: u64 = 4_000_000;
/// After how many looks at which nothing was answered nobody gives way any more.
const QUIET_MAX: u32 = 25;

pub(super) struct Watch {
    /// Whether threads may do so at all.
    pub(super) gives_way: bool,
    /// Those that do.
    threads: Mutex<BTreeSet<ThreadId>>,
    /// How often all were told to hurry.
    hurries: AtomicU64,
    /// Where the thread that looks is.
    seat: OnceLock<Seat>,
    has_ended: Mutex<bool>,
    changed: Condvar,
}

impl Watch {
    pub(super) fn new(gives_way: bool) -> Watch {
        Watch {
            gives_way: gives_way && rt::can_give_way(),
            threads: Mutex::default(),
            hurries: AtomicU64::new(0),
            seat: OnceLock::new(),
            has_ended: Mutex::new(false),
            changed: Condvar::default(),
        }
    }

    /// Threads will give way from now on.
    pub(super) fn wake(&self) {
        // Under the lock: the thread that looks may be about to wait.
        let _has_ended = self.has_ended.lock();
        self.changed.notify_all();
    }

    /// The thread that looks is brought to that processor.
    pub(super) fn follow(&self, processor: usize) {
        if let Some(seat) = self.seat.get() {
            seat.follow(processor);
        }
    }

    /// How often all were told to hurry so far.
    pub(super) fn hurries(&self) -> u64 {
        self.hurries.load(Ordering::SeqCst)
    }

    /// The calling thread begins to give way, or ends it.
    pub(super) fn note(&self, begins: bool) {
        let own = ThreadId::own();
        if begins {
            self.threads.lock().insert(own);
            rt::give_way(true);
        } else {
            rt::give_way(false);
            self.threads.lock().remove(&own);
        }
    }

    fn stand_still(&self) -> bool {
        let threads = self.threads.lock();
        threads.iter().any(|thread| rt::wants_to_run(*thread))
    }

    fn hurry(&self) {
        self.hurries.fetch_add(1, Ordering::SeqCst);
        let threads = self.threads.lock();
        threads.iter().copied().for_each(rt::hurry);
    }
}

impl Home {
    /// Looks after threads that give way until the [end](Home::end), if they may.
    pub(crate) fn look(&self) {
        if !self.watch.gives_way {
            return;
        }
        let seat = self.watch.seat.get_or_init(Seat::default);
        let (mut answered, mut quiet) = (0, 0);
        let mut has_ended = self.watch.has_ended.lock();
        while !*has_ended {
            let place = self.place();
            if !place.gives_way {
                self.watch.changed.wait(&mut has_ended);
                continue;
            }
            if place.processor != seat.processor() {
                seat.go(place.processor);
            }
            self.watch.changed.wait_timeout_ns(&mut has_ended, LOOK_NS);
            let now = self.answered.load(Ordering::Relaxed);
            quiet = if now == answered { quiet + 1 } else { 0 };
            answered = now;
            if quiet == 0 {
                continue;
            }
            if quiet >= QUIET_MAX || self.watch.stand_still() {
                self.stand_up();
                self.watch.hurry();
                self.watch.changed.wait_timeout_ns(&mut has_ended, LOOK_NS);
                self.watch.hurry();
                quiet = 0;
            }
        }
    }

    /// Ends [`look`](Home::look).
    pub(crate) fn end(&self) {
        *self.watch.has_ended.lock() = true;
        self.watch.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::home::Placement;

    const HERE: Placement = Placement {
        processor: Some(0),
        gives_way: true,
    };

    /// How often a thread tries to give way before nobody does any more.
    const TRIES: usize = 100;

    /// A home, unless threads of this process may not give way.
    fn home() -> Option<Arc<Home>> {
        if !rt::can_give_way() {
            return None;
        }
        Some(Arc::new(Home::new(true)))
    }

    #[test]
    fn threads_that_stand_still_give_way_no_longer() {
        let Some(home) = home() else {
            return;
        };
        let looks = Arc::clone(&home);
        let watch = rt::spawn("watch", move || looks.look());
        let (stands, is_done) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let (begins, ends, lives) = (Arc::clone(&stands), Arc::clone(&is_done), Arc::clone(&home));
        // It answers nothing, as if others had all of its processor.
        let standing = rt::spawn("stands", move || {
            let mut spot = lives.enter();
            // Once more when it comes so late that nobody gives way any more, as nothing was answered.
            for _ in 0..TRIES {
                if lives.watch.threads.lock().is_empty() {
                    lives.set(HERE);
                    spot.go();
                }
            }
            assert_eq!(lives.watch.threads.lock().len(), 1);
            begins.store(true, Ordering::Relaxed);
            while !ends.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            spot.go();
            assert_eq!(lives.watch.threads.lock().len(), 0);
        });
        while !stands.load(Ordering::Relaxed) || home.place().gives_way {
            std::thread::yield_now();
        }
        is_done.store(true, Ordering::Relaxed);
        standing.join();
        home.end();
        watch.join();
    }

    /// Whether the calling thread does, by what the kernel says.
    fn gives_way() -> bool {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        // SCHED_IDLE.
        fields.split(' ').nth(38) == Some("5")
    }

    #[test]
    fn a_thread_that_was_told_to_hurry_while_it_waited_gives_way_anew() {
        let Some(home) = home() else {
            return;
        };
        let mut spot = home.enter();
        home.set(HERE);
        spot.go();
        assert!(gives_way());
        // All of that while it waits for a request.
        let hurried = Placement {
            gives_way: false,
            ..HERE
        };
        home.set(hurried);
        home.watch.hurry();
        home.set(HERE);
        assert!(!gives_way());
        spot.go();
        assert!(gives_way());
        home.set(hurried);
        spot.go();
        assert!(!gives_way());
    }

    #[test]
    fn nobody_gives_way_where_nothing_is_asked() {
        let Some(home) = home() else {
            return;
        };
        let looks = Arc::clone(&home);
        let watch = rt::spawn("watch", move || looks.look());
        home.set(HERE);
        while home.place().gives_way {
            std::thread::yield_now();
        }
        home.end();
        watch.join();
    }
}
