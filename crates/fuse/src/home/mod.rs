//! Where the threads that answer run: beside the thread that asks.
//!
//! # What it is
//! A program that makes, looks at or removes many files asks one thing at a time and waits for each answer. A thread
//! that answers on another processor has to be woken there, and then to wake that one: each costs more than most
//! requests do. So as long as almost all requests come from one thread, one at a time and soon done, those that
//! answer stay on the processor on which it runs ([`rt::stay_on`]); otherwise they run where the kernel likes.
//!
//! Who wakes the program that asked still runs there, so the kernel puts that on another processor, if one sleeps, and
//! all have to follow, ever again. Where that is seen, threads at home [give way](rt::give_way), if this process may
//! do that. They no longer do when the program has to wait for its processor, as then others have work there, or when
//! they do not get on ([`watch`]). A program that is never met at home is answered anywhere for a while.
//!
//! # Why not simpler
//! Requests through io_uring come to a thread of the processor that asks by themselves ([`crate::ring`]). `/dev/fuse`
//! wakes the thread that has waited longest, wherever it ran last.

mod seats;
mod watch;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rt::Mutex;

use self::seats::{Seat, Seats};
use self::watch::Watch;
use crate::abi::{InHeader, op};
use crate::requests::LARGE_BYTES;

/// What a thread that asks may gather at most.
const SCORE_MAX: u32 = 64;
/// With this it counts as the only one that asks.
const SCORE_ALONE: u32 = 32;
/// What a request of another one takes away, or one beside others.
const SCORE_LOSS: u32 = 8;
/// After how many requests it is looked where it runs by now.
const LOOK_EVERY: u32 = 32;
/// The same while threads give way, when it is seldom moved. It takes as long as a request.
const LOOK_SELDOM: u32 = ASK_EVERY * LOOK_EVERY;
/// After how many at least.
const LOOK_MIN: u32 = 2;
/// When a request comes later than this after the answer before it, in ns, who asks may have been woken elsewhere, and
/// it is looked. Beside it that takes some ten microseconds, from one processor to another and back some hundred.
const LATE_NS: u64 = 30_000;
/// A request that takes longer than this, in ns, waits for more than a processor.
const SLOW_NS: u64 = 200_000;
/// The field of `/proc/PID/stat` behind the name that says where a thread ran last.
const PROCESSOR_FIELD: usize = 36;
/// What counts for each time that the thread that asks was met elsewhere.
const MOVED: u32 = 8;
/// With this, threads at home give way.
const MOVES_MIN: u32 = 2 * MOVED;
/// Where they may not, nobody is at home for a while.
const MOVES_MAX: u32 = 10 * MOVED;
/// How long that is, in ns.
const AWAY_NS: u64 = 1_000_000_000;
/// After how many looks the kernel is asked whether it had to wait; one that is made seldom counts as so many.
const ASK_EVERY: u32 = 4;
/// The longest time for which the thread that asks may have had to wait for its processor by then, in ns.
const DELAY_NS: u64 = 640_000;
/// More than a file of `/proc` has that is read here.
const TEXT_BYTES: usize = 1024;

/// In a raw [`Placement`], beside the processor.
const GIVES_WAY: usize = 1;

/// Where threads that answer are to run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Placement {
    /// One, or any.
    processor: Option<usize>,
    /// Whether they give way to others there.
    gives_way: bool,
}

impl Placement {
    /// Zero is any processor.
    fn to_raw(self) -> usize {
        let number = self.processor.map_or(0, |number| number + 1);
        number << 1 | if self.gives_way { GIVES_WAY } else { 0 }
    }

    fn from_raw(raw: usize) -> Placement {
        Placement {
            processor: (raw >> 1).checked_sub(1),
            gives_way: raw & GIVES_WAY != 0,
        }
    }
}

/// The place for all threads that answer.
pub(crate) struct Home {
    /// The raw [`Placement`].
    place: AtomicUsize,
    asking: Mutex<Asking>,
    /// Requests that were answered so far.
    answered: AtomicU64,
    /// When the last one was, in ns.
    answered_ns: AtomicU64,
    seats: Seats,
    watch: Watch,
}

/// The thread that asks most.
#[derive(Default)]
struct Asking {
    thread: u32,
    score: u32,
    requests: u32,
    /// How many of them there were when it was last looked where it runs.
    looked: u32,
    /// How often it was looked where it runs since the kernel was last asked whether it had to wait.
    looks: u32,
    /// How often it was met elsewhere lately, and how much more often than not where threads may not give way.
    moves: u32,
    /// Nobody is at home before this time.
    opens_ns: u64,
    /// For how long it has waited for a processor since it began, in ns.
    delay_ns: u64,
    /// Its `/proc/PID/stat`.
    stat: Option<File>,
    /// Its `/proc/PID/schedstat`.
    schedstat: Option<File>,
}

/// For how long a request was waited for after the answer before it, and worked on, in ns.
#[derive(Clone, Copy, Default)]
pub(crate) struct Timed {
    idle_ns: u64,
    took_ns: u64,
}

/// Where a thread that answers is.
pub(crate) struct Spot<'a> {
    home: &'a Home,
    seat: Arc<Seat>,
    gives_way: bool,
    /// How often all had been told to hurry when it began to give way.
    hurries: u64,
}

impl Home {
    /// `gives_way`: whether threads there may ever give way.
    pub(crate) fn new(gives_way: bool) -> Home {
        Home {
            place: AtomicUsize::new(Placement::default().to_raw()),
            asking: Mutex::default(),
            answered: AtomicU64::new(0),
            answered_ns: AtomicU64::new(0),
            seats: Seats::default(),
            watch: Watch::new(gives_way),
        }
    }

    /// Works on a request that came just now; returns for how long it was waited for and worked on.
    pub(crate) fn time<T>(&self, work: impl FnOnce() -> T) -> (T, Timed) {
        let began_ns = rt::now_ns();
        let idle_ns = began_ns.saturating_sub(self.answered_ns.load(Ordering::Relaxed));
        let done = work();
        let now_ns = rt::now_ns();
        // Before the answer: the next request may come to another thread before this one goes on.
        self.answered_ns.store(now_ns, Ordering::Relaxed);
        let took_ns = now_ns - began_ns;
        (done, Timed { idle_ns, took_ns })
    }

    /// Notes a request that was answered, and worked on beside `beside` others.
    pub(crate) fn note(&self, header: &InHeader, read_bytes: u32, beside: usize, timed: Timed) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        // What the kernel does by itself (closing, writing back) is in nobody's name.
        if header.pid == 0 || header.opcode == op::RELEASE {
            return;
        }
        let is_quick =
            header.len <= LARGE_BYTES && read_bytes <= LARGE_BYTES && timed.took_ns <= SLOW_NS;
        let mut asking = self.asking.lock();
        if asking.thread == header.pid && is_quick && beside < 2 {
            asking.score = SCORE_MAX.min(asking.score + 1);
            asking.requests = asking.requests.wrapping_add(1);
        } else {
            asking.score = asking.score.saturating_sub(SCORE_LOSS);
            if asking.score == 0 && asking.thread != header.pid {
                *asking = Asking {
                    thread: header.pid,
                    ..Asking::default()
                };
            }
        }
        if asking.score < SCORE_ALONE {
            self.set(Placement::default());
        } else if asking.is_due(timed.idle_ns, self.place().gives_way)
            && rt::now_ns() >= asking.opens_ns
        {
            let place = asking.look(self.place(), self.watch.gives_way);
            self.set(place);
        }
    }

    /// Notes that a request came through the ring of a processor: what is left of it comes by `/dev/fuse`. Threads that
    /// wait there stay where they are, as the next request may come through another ring.
    pub(crate) fn lead(&self, processor: usize) {
        let place = Placement {
            processor: Some(processor),
            gives_way: false,
        };
        self.place.store(place.to_raw(), Ordering::SeqCst);
    }

    /// Threads at home give way no longer.
    fn stand_up(&self) {
        self.place.fetch_and(!GIVES_WAY, Ordering::SeqCst);
    }

    fn set(&self, place: Placement) {
        let before = self.place.swap(place.to_raw(), Ordering::SeqCst);
        let before = Placement::from_raw(before);
        if place.gives_way && !before.gives_way {
            self.watch.wake();
        }
        if let (Some(from), Some(to)) = (before.processor, place.processor)
            && from != to
        {
            self.seats.move_all(to);
            self.watch.follow(to);
        }
    }

    /// Whether threads that answer run where the kernel likes: not one thread alone asks, or one that moves about.
    pub(crate) fn is_anywhere(&self) -> bool {
        self.place().processor.is_none()
    }

    fn place(&self) -> Placement {
        Placement::from_raw(self.place.load(Ordering::SeqCst))
    }

    /// The calling thread begins to answer.
    pub(crate) fn enter(&self) -> Spot<'_> {
        Spot {
            home: self,
            seat: self.seats.enter(),
            gives_way: false,
            hurries: 0,
        }
    }
}

impl Spot<'_> {
    /// Lets the calling thread run where threads that answer are to run.
    pub(crate) fn go(&mut self) {
        if self.gives_way && self.home.watch.hurries() != self.hurries {
            self.give_way(false);
        }
        loop {
            let place = self.home.place();
            let is_there = place.processor == self.seat.processor();
            if is_there && place.gives_way == self.gives_way {
                return;
            }
            if !is_there {
                self.home.seats.go(&self.seat, place.processor);
            }
            if place.gives_way != self.gives_way {
                self.give_way(place.gives_way);
            }
        }
    }

    fn give_way(&mut self, begins: bool) {
        // Before it begins: if all are told to hurry later, it has to begin anew.
        self.hurries = self.home.watch.hurries();
        self.home.watch.note(begins);
        self.gives_way = begins;
    }
}

impl Drop for Spot<'_> {
    fn drop(&mut self) {
        self.give_way(false);
        self.home.seats.leave(&self.seat);
    }
}

impl Asking {
    /// Requests since it was last looked where it runs.
    fn since(&self) -> u32 {
        self.requests.wrapping_sub(self.looked)
    }

    /// Whether it is to be looked where it runs, when a request came `idle_ns` after the answer before it.
    fn is_due(&self, idle_ns: u64, gives_way: bool) -> bool {
        let most = if gives_way { LOOK_SELDOM } else { LOOK_EVERY };
        self.since() >= most || self.since() >= LOOK_MIN && idle_ns > LATE_NS
    }

    /// Says where threads that answer are to be, after they were at `before`.
    fn look(&mut self, before: Placement, may_give_way: bool) -> Placement {
        self.looks = self
            .looks
            .saturating_add((self.since() / LOOK_EVERY).max(1));
        self.looked = self.requests;
        let Some(processor) = self.processor() else {
            return Placement::default();
        };
        let waits = may_give_way && self.waits();
        self.place_for(before, processor, may_give_way && !waits, may_give_way)
    }

    /// The same, once it is known that it runs on `processor`, and whether threads `can` give way there now, or `may`
    /// at all.
    fn place_for(
        &mut self,
        before: Placement,
        processor: usize,
        can: bool,
        may: bool,
    ) -> Placement {
        if before.processor == Some(processor) {
            let met_here = if may { 1 } else { MOVED };
            self.moves = self.moves.saturating_sub(met_here);
        } else if before.processor.is_some() {
            self.moves = MOVES_MAX.min(self.moves + MOVED);
        }
        if may && !can {
            self.moves = self.moves.min(MOVED);
        }
        if !may && self.moves >= MOVES_MAX {
            self.moves = 0;
            self.opens_ns = rt::now_ns() + AWAY_NS;
            return Placement::default();
        }
        Placement {
            processor: Some(processor),
            gives_way: can && (before.gives_way || self.moves >= MOVES_MIN),
        }
    }

    /// Where it ran last.
    fn processor(&mut self) -> Option<usize> {
        let mut text = [0; TEXT_BYTES];
        processor_of(read(&mut self.stat, self.thread, "stat", &mut text)?)
    }

    /// Whether it waits for its processor, or the kernel does not tell. It is asked now and then only: that takes about
    /// as long as a request.
    fn waits(&mut self) -> bool {
        if self.looks < ASK_EVERY {
            return false;
        }
        self.looks = 0;
        self.waited_ns().is_none_or(|ns| ns > DELAY_NS)
    }

    /// For how long it has waited for a processor since it was last asked, in ns; `None` if the kernel does not tell.
    fn waited_ns(&mut self) -> Option<u64> {
        let mut text = [0; TEXT_BYTES];
        let text = read(&mut self.schedstat, self.thread, "schedstat", &mut text)?;
        let delay_ns = delay_of(text)?;
        let before_ns = std::mem::replace(&mut self.delay_ns, delay_ns);
        Some(delay_ns.saturating_sub(before_ns))
    }
}

/// The text of the file `name` of a thread in `/proc`, which stays open in `file`; no more than fits.
fn read<'a>(
    file: &mut Option<File>,
    thread: u32,
    name: &str,
    text: &'a mut [u8],
) -> Option<&'a [u8]> {
    if file.is_none() {
        *file = File::open(format!("/proc/{thread}/{name}")).ok();
    }
    let len = file.as_ref()?.read_at(text, 0).ok()?;
    Some(&text[..len])
}

/// The processor that the text of `/proc/PID/stat` names.
fn processor_of(stat: &[u8]) -> Option<usize> {
    // The name is in parentheses, and may have any in it.
    let behind = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(&stat[behind + 1..]).ok()?;
    fields.split_whitespace().nth(PROCESSOR_FIELD)?.parse().ok()
}

/// How long the thread waited for a processor, in ns, by the text of its `/proc/PID/schedstat`.
fn delay_of(schedstat: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(schedstat).ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More processors than there are.
    const CPUS_MAX: usize = 1 << 20;

    fn asked(thread: u32, len: u32) -> InHeader {
        InHeader {
            pid: thread,
            opcode: op::LOOKUP,
            len,
            ..InHeader::default()
        }
    }

    #[test]
    fn places_are_what_they_were() {
        for processor in [None, Some(0), Some(1), Some(CPUS_MAX)] {
            for gives_way in [false, true] {
                let place = Placement {
                    processor,
                    gives_way,
                };
                assert_eq!(Placement::from_raw(place.to_raw()), place);
            }
        }
    }

    #[test]
    fn a_thread_that_asks_alone_is_answered_where_it_runs() {
        let own = std::process::id();
        let home = Home::new(false);
        for _ in 0..SCORE_ALONE {
            assert_eq!(home.place().processor, None);
            home.note(&asked(own, 100), 0, 1, Timed::default());
        }
        home.note(&asked(own, 100), 0, 1, Timed::default());
        assert!(home.place().processor.is_some());
        // Now and then another one asks.
        home.note(&asked(own + 1, 100), 0, 1, Timed::default());
        for _ in 0..SCORE_MAX {
            home.note(&asked(own, 100), 0, 0, Timed::default());
        }
        assert!(home.place().processor.is_some());
        let mut many = (0..SCORE_MAX).cycle();
        for _ in 0..SCORE_MAX {
            home.note(
                &asked(own + many.next().unwrap(), 100),
                0,
                0,
                Timed::default(),
            );
        }
        assert_eq!(home.place().processor, None);
    }

    #[test]
    fn who_asks_for_much_or_for_several_things_at_a_time_is_answered_anywhere() {
        let own = std::process::id();
        let slow_ns = 2 * SLOW_NS;
        let all = [
            (1 << 20, 0, 0, 0),
            (100, 1 << 20, 0, 0),
            (100, 0, 5, 0),
            (100, 0, 0, slow_ns),
        ];
        for (len, read_bytes, beside, took_ns) in all {
            let home = Home::new(false);
            for _ in 0..2 * SCORE_MAX {
                let timed = Timed {
                    took_ns,
                    ..Timed::default()
                };
                home.note(&asked(own, len), read_bytes, beside, timed);
            }
            assert_eq!(home.place().processor, None);
        }
    }

    #[test]
    fn it_is_looked_sooner_where_one_who_asks_takes_long() {
        let mut asking = Asking::default();
        let looks = |asking: &mut Asking, idle_ns, gives_way| {
            let due = (0..100 * LOOK_EVERY).filter(|_| {
                asking.requests = asking.requests.wrapping_add(1);
                let is_due = asking.is_due(idle_ns, gives_way);
                if is_due {
                    asking.looked = asking.requests;
                }
                is_due
            });
            due.count()
        };
        assert_eq!(looks(&mut asking, LATE_NS, false), 100);
        assert_eq!(looks(&mut asking, LATE_NS, true), 100 / ASK_EVERY as usize);
        asking.requests = u32::MAX - 7;
        asking.looked = asking.requests;
        let all = (100 * LOOK_EVERY / LOOK_MIN) as usize;
        assert_eq!(looks(&mut asking, LATE_NS + 1, false), all);
        assert_eq!(looks(&mut asking, LATE_NS + 1, true), all);
    }

    const fn at(processor: usize, gives_way: bool) -> Placement {
        Placement {
            processor: Some(processor),
            gives_way,
        }
    }

    #[test]
    fn threads_give_way_to_one_that_is_moved_away_until_it_waits() {
        let mut asking = Asking::default();
        let anywhere = Placement::default();
        assert_eq!(asking.place_for(anywhere, 1, true, true), at(1, false));
        assert_eq!(asking.place_for(at(1, false), 0, true, true), at(0, false));
        assert_eq!(asking.place_for(at(0, false), 0, true, true), at(0, false));
        assert_eq!(asking.place_for(at(0, false), 1, true, true), at(1, false));
        assert_eq!(asking.place_for(at(1, false), 0, true, true), at(0, true));
        for n in 0..3 * (MOVES_MAX / MOVED) as usize {
            let before = at(n % 2, true);
            assert!(asking.place_for(before, n / 2 % 2, true, true).gives_way);
        }
        assert_eq!(asking.place_for(at(0, true), 0, false, true), at(0, false));
    }

    #[test]
    fn one_that_is_never_met_where_threads_may_not_give_way_is_answered_anywhere_for_a_while() {
        let mut asking = Asking::default();
        for times in 1..4 {
            for n in 1..(MOVES_MAX / MOVED) as usize {
                let before = at(n % 2, false);
                assert_eq!(
                    asking.place_for(before, 1 - n % 2, false, false),
                    at(1 - n % 2, false)
                );
            }
            let now_ns = rt::now_ns();
            assert!(asking.opens_ns <= now_ns || times > 1);
            let before = at(0, false);
            let after = asking.place_for(before, 1, false, false);
            assert_eq!(after, Placement::default());
            assert!(asking.opens_ns >= now_ns + AWAY_NS);
        }
    }

    #[test]
    fn what_the_kernel_says_of_a_thread_is_read() {
        let mut asking = Asking {
            thread: std::process::id(),
            ..Asking::default()
        };
        assert!(asking.processor().is_some());
        assert!(asking.waited_ns().is_some() && asking.waited_ns().is_some());
        asking = Asking::default();
        assert_eq!((asking.processor(), asking.waited_ns()), (None, None));
        assert_eq!(delay_of(b"123308 2038337 2\n"), Some(2_038_337));
        assert_eq!(delay_of(b"1"), None);
    }

    #[test]
    fn where_a_thread_runs_is_read_behind_its_name() {
        let mut stat = b"7 (a ) b) S".to_vec();
        for field in 4..=52 {
            stat.extend_from_slice(format!(" {field}").as_bytes());
        }
        assert_eq!(processor_of(&stat), Some(39));
        assert_eq!(processor_of(b"7 (a"), None);
        assert_eq!(processor_of(b""), None);
        assert_eq!(processor_of(b") S 1"), None);
    }
}
