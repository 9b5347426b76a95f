//! Looks whether threads at home get on.
//!
//! # What it is
//! Threads that give way do so to everything else on their processor. If something else works there, they stand still,
//! maybe with a lock that others wait for. One more thread, which runs anywhere, looks every few milliseconds while
//! they do: when nothing was answered since it last looked although one of them wants to run, or nothing for long, all
//! of them [hurry](rt::hurry).
//!
//! # Concurrency
//! A thread that begins to give way while all are told to hurry may miss it; so they are told once more at the next
//! look. The thread that looks waits for no lock that is held while something is answered.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use rt::{Condvar, Mutex, ThreadId};

use super::{Home, Placement};

/// How often it is looked, in ns.
const LOOK_NS: u64 = 4_000_000;
/// After how many looks at which nothing was answered nobody gives way any more.
const QUIET_MAX: u32 = 25;

pub(super) struct Watch {
    /// Whether threads may do so at all.
    pub(super) gives_way: bool,
    /// Those that do.
    threads: Mutex<BTreeSet<ThreadId>>,
    has_ended: Mutex<bool>,
    changed: Condvar,
}

impl Watch {
    pub(super) fn new(gives_way: bool) -> Watch {
        Watch {
            gives_way: gives_way && rt::can_give_way(),
            threads: Mutex::default(),
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
        let (mut answered, mut quiet) = (0, 0);
        let mut has_ended = self.watch.has_ended.lock();
        while !*has_ended {
            if !self.place().gives_way {
                self.watch.changed.wait(&mut has_ended);
                continue;
            }
            self.watch.changed.wait_timeout_ns(&mut has_ended, LOOK_NS);
            let now = self.answered.load(Ordering::Relaxed);
            quiet = if now == answered { quiet + 1 } else { 0 };
            answered = now;
            if quiet == 0 {
                continue;
            }
            if quiet >= QUIET_MAX || self.watch.stand_still() {
                self.set(Placement {
                    gives_way: false,
                    ..self.place()
                });
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

    const HERE: Placement = Placement {
        processor: Some(0),
        gives_way: true,
    };

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
        let is_done = Arc::new(AtomicBool::new(false));
        home.set(HERE);
        let (ends, lives) = (Arc::clone(&is_done), Arc::clone(&home));
        // It answers nothing, as if others had all of its processor.
        let stands = rt::spawn("stands", move || {
            let mut spot = lives.enter();
            spot.go();
            assert_eq!(lives.watch.threads.lock().len(), 1);
            while !ends.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            spot.go();
            assert_eq!(lives.watch.threads.lock().len(), 0);
        });
        while home.place().gives_way {
            std::thread::yield_now();
        }
        is_done.store(true, Ordering::Relaxed);
        stands.join();
        home.end();
        watch.join();
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
