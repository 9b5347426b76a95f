//! Where the threads of a simulation run: on one processor, all of them, since only one runs at a time.
//!
//! # Why
//! A thread that is given the baton is woken by the one that had it. On another processor, which has slept since it
//! last ran a thread, this takes some ten microseconds, more in a virtual machine; on the same one it is a switch of
//! threads. A simulation of drives passes the baton some 40,000 times a second.
//!
//! # What it is
//! The system chooses the processor. For a few passes of the baton the threads are *loose*, and run where the system
//! puts them, which is where nothing else runs. Then they stay where the baton is, for a quarter of a second, after
//! which they are loose again: something else may have come to run on that processor meanwhile. A thread learns of
//! it when it is given the baton next.
//!
//! # Concurrency
//! Only the thread with the baton reads or writes it.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::affinity;
use crate::clock::real_ns;

/// Passes of the baton for which the threads are loose; enough that most of those that work have had it.
const LOOSE_PASSES: u32 = 64;
/// How long they stay.
const STAY_NS: u64 = 250_000_000;
/// No processor.
const LOOSE: usize = usize::MAX;

pub(super) struct JointAffinity {
    /// The processor to run on, or `LOOSE`.
    processor: AtomicUsize,
    passes: AtomicU32,
    /// When the threads are let loose, in real time.
    until_ns: AtomicU64,
}

impl JointAffinity {
    pub(super) fn new() -> Self {
        JointAffinity {
            processor: AtomicUsize::new(LOOSE),
            passes: AtomicU32::new(0),
            until_ns: AtomicU64::new(0),
        }
    }

    /// Counts a pass of the baton, and moves the calling thread, which was given it, to where the threads run.
    pub(super) fn follow(&self) {
        let passes = self.passes.load(Ordering::Relaxed).wrapping_add(1);
        self.passes.store(passes, Ordering::Relaxed);
        if passes.is_multiple_of(LOOSE_PASSES) {
            self.decide();
        }
        let processor = self.processor.load(Ordering::Relaxed);
        affinity::move_to((processor != LOOSE).then_some(processor));
    }

    fn decide(&self) {
        let now_ns = real_ns();
        let next = if self.processor.load(Ordering::Relaxed) == LOOSE {
            self.until_ns.store(now_ns + STAY_NS, Ordering::Relaxed);
            affinity::here()
        } else if now_ns < self.until_ns.load(Ordering::Relaxed) {
            return;
        } else {
            LOOSE
        };
        self.processor.store(next, Ordering::Relaxed);
    }
}
