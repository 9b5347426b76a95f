//! Where the threads that answer run: beside the thread that asks.
//!
//! # What it is
//! A program that makes, looks at or removes many files asks one thing at a time and waits for each answer. A thread
//! that answers on another processor has to be woken there, and then to wake that one: each costs more than most
//! requests do. So as long as almost all requests come from one thread, one at a time and soon done, those that
//! answer stay on the processor on which it runs ([`rt::stay_on`]); otherwise they run where the kernel likes.
//!
//! # Why not simpler
//! Requests through io_uring come to a thread of the processor that asks by themselves ([`crate::ring`]). `/dev/fuse`
//! wakes the thread that has waited longest, wherever it ran last.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use rt::Mutex;

use crate::abi::{InHeader, op};
use crate::requests::LARGE_BYTES;

/// Any processor.
const ANYWHERE: usize = usize::MAX;
/// What a thread that asks may gather at most.
const SCORE_MAX: u32 = 64;
/// With this it counts as the only one that asks.
const SCORE_ALONE: u32 = 32;
/// What a request of another one takes away, or one beside others.
const SCORE_LOSS: u32 = 8;
/// After how many requests it is looked where it runs by now.
const LOOK_EVERY: u32 = 32;
/// A request that takes longer than this, in ns, waits for more than a processor.
const SLOW_NS: u64 = 200_000;
/// The field of `/proc/PID/stat` behind the name that says where a thread ran last.
const PROCESSOR_FIELD: usize = 36;

/// Where threads that answer are to run.
pub(crate) struct Home {
    processor: AtomicUsize,
    asking: Mutex<Asking>,
}

/// The thread that asks most.
#[derive(Default)]
struct Asking {
    thread: u32,
    score: u32,
    requests: u32,
    /// Its `/proc/PID/stat`.
    stat: Option<File>,
}

impl Default for Home {
    fn default() -> Self {
        Home {
            processor: AtomicUsize::new(ANYWHERE),
            asking: Mutex::default(),
        }
    }
}

impl Home {
    /// Notes a request that was worked on for `took_ns`, beside `beside` others.
    pub(crate) fn note(&self, header: &InHeader, read_bytes: u32, beside: usize, took_ns: u64) {
        // What the kernel does by itself (closing, writing back) is in nobody's name.
        if header.pid == 0 || header.opcode == op::RELEASE {
            return;
        }
        let is_quick = header.len <= LARGE_BYTES && read_bytes <= LARGE_BYTES && took_ns <= SLOW_NS;
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
            self.processor.store(ANYWHERE, Ordering::Relaxed);
        } else if asking.requests.is_multiple_of(LOOK_EVERY) {
            let processor = asking.processor().unwrap_or(ANYWHERE);
            self.processor.store(processor, Ordering::Relaxed);
        }
    }

    /// Notes that a request came through the ring of a processor: what is left of it comes by `/dev/fuse`.
    pub(crate) fn lead(&self, processor: usize) {
        if self.processor.load(Ordering::Relaxed) != processor {
            self.processor.store(processor, Ordering::Relaxed);
        }
    }

    fn processor(&self) -> Option<usize> {
        let processor = self.processor.load(Ordering::Relaxed);
        Some(processor).filter(|processor| *processor != ANYWHERE)
    }

    /// Lets the calling thread, which is at `spot`, run where threads that answer are to run.
    pub(crate) fn go(&self, spot: &mut Option<usize>) {
        let processor = self.processor();
        if *spot != processor {
            *spot = processor;
            rt::stay_on(processor);
        }
    }
}

impl Asking {
    /// Where it ran last.
    fn processor(&mut self) -> Option<usize> {
        if self.stat.is_none() {
            self.stat = File::open(format!("/proc/{}/stat", self.thread)).ok();
        }
        let mut text = [0; 1024];
        let len = self.stat.as_ref()?.read_at(&mut text, 0).ok()?;
        processor_of(&text[..len])
    }
}

/// The processor that the text of `/proc/PID/stat` names.
fn processor_of(stat: &[u8]) -> Option<usize> {
    // The name is in parentheses, and may have any in it.
    let behind = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(&stat[behind + 1..]).ok()?;
    fields.split_whitespace().nth(PROCESSOR_FIELD)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(thread: u32, len: u32) -> InHeader {
        InHeader {
            pid: thread,
            opcode: op::LOOKUP,
            len,
            ..InHeader::default()
        }
    }

    #[test]
    fn a_thread_that_asks_alone_is_answered_where_it_runs() {
        let own = std::process::id();
        let home = Home::default();
        for _ in 0..SCORE_ALONE {
            assert_eq!(home.processor(), None);
            home.note(&asked(own, 100), 0, 1, 0);
        }
        home.note(&asked(own, 100), 0, 1, 0);
        assert!(home.processor().is_some());
        // Now and then another one asks.
        home.note(&asked(own + 1, 100), 0, 1, 0);
        for _ in 0..SCORE_MAX {
            home.note(&asked(own, 100), 0, 0, 0);
        }
        assert!(home.processor().is_some());
        let mut many = (0..SCORE_MAX).cycle();
        for _ in 0..SCORE_MAX {
            home.note(&asked(own + many.next().unwrap(), 100), 0, 0, 0);
        }
        assert_eq!(home.processor(), None);
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
            let home = Home::default();
            for _ in 0..2 * SCORE_MAX {
                home.note(&asked(own, len), read_bytes, beside, took_ns);
            }
            assert_eq!(home.processor(), None);
        }
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
