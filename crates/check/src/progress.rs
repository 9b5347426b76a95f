//! The progress of a check, and its cancellation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::Options;

/// Time between two reports: a tenth of a second.
const INTERVAL_NS: u64 = 100_000_000;

/// The progress of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Block pointers visited.
    pub blocks: u64,
    /// Physical bytes verified.
    pub verified_bytes: u64,
    /// Bytes allocated in the pool, if known: roughly `verified_bytes` at the end, if every copy is
    /// verified.
    pub allocated_bytes: u64,
    /// Nanoseconds since the start.
    pub elapsed_ns: u64,
}

/// Called periodically, from any thread, one call at a time.
pub type ProgressFn = dyn Fn(&Progress) + Send + Sync;

pub(crate) struct Meter {
    blocks: AtomicU64,
    verified_bytes: AtomicU64,
    allocated_bytes: u64,
    start_ns: u64,
    next_ns: rt::Mutex<u64>,
    report: Option<Arc<ProgressFn>>,
    cancel: Option<Arc<AtomicBool>>,
}

impl Meter {
    pub(crate) fn new(allocated_bytes: u64, options: &Options) -> Self {
        let start_ns = rt::now_ns();
        Meter {
            blocks: AtomicU64::new(0),
            verified_bytes: AtomicU64::new(0),
            allocated_bytes,
            start_ns,
            next_ns: rt::Mutex::new(start_ns + INTERVAL_NS),
            report: options.progress.clone(),
            cancel: options.cancel.clone(),
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        let cancel = self.cancel.as_ref();
        cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed))
    }

    pub(crate) fn advance(&self, blocks: u64) {
        self.blocks.fetch_add(blocks, Ordering::Relaxed);
        self.tick();
    }

    pub(crate) fn advance_bytes(&self, bytes: u64) {
        self.verified_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.tick();
    }

    pub(crate) fn now(&self) -> Progress {
        Progress {
            blocks: self.blocks.load(Ordering::Relaxed),
            verified_bytes: self.verified_bytes.load(Ordering::Relaxed),
            allocated_bytes: self.allocated_bytes,
            elapsed_ns: rt::now_ns() - self.start_ns,
        }
    }

    fn tick(&self) {
        let Some(report) = &self.report else {
            return;
        };
        let now = rt::now_ns();
        let mut next = self.next_ns.lock();
        if now >= *next {
            *next = now + INTERVAL_NS;
            report(&self.now());
        }
    }
}
