//! What a device was asked for and how long it took: counters of the reads and writes of each leaf.
//!
//! # What it is
//! [`IoCounters`] belong to a leaf. A command that succeeded is counted once, when it ends, by its class in
//! the queue, its length, the time it waited for its turn and the time the device took. A vdev above is the
//! sum of its leaves ([`Vdev::io_counts`]). Commands that failed count as errors elsewhere, not here; one
//! that is tried again counts when it succeeds. Several blocks that go to the device as one command are one
//! that was merged.
//!
//! # Concurrency
//! Each counter is an atomic of its own: no lock is taken, and a reader may see a command in some counters
//! and not yet in others.
//!
//! # Source
//! OpenZFS `module/zfs/vdev.c` (`vdev_stat_update`, `vdev_get_stats_ex_impl`), `include/sys/fs/zfs.h`
//! (`vdev_stat_ex_t`).

use std::sync::atomic::{AtomicU64, Ordering};

use zio::Priority;

use crate::Vdev;
use crate::kind::VdevKind;
use crate::queue::{CLASSES, class_index};
use crate::report::{Delay, DelayedKind};

/// `VDEV_L_HISTO_BUCKETS`: bucket N counts times from 2^N ns on, the last one all longer ones.
pub const LATENCY_BUCKETS: usize = 37;
/// `VDEV_RQ_HISTO_BUCKETS`: bucket N counts commands of 2^N bytes or more, the last one all longer ones.
pub const SIZE_BUCKETS: usize = 25;

/// `zio_slow_io_ms`: a command that a device takes at least this long for is slow, in ns.
const SLOW_NS: u64 = 30_000_000_000;

/// Reads and writes, in this order.
const DIRECTIONS: usize = 2;

/// The bucket for a value.
#[doc(alias = "HISTO")]
fn bucket(value: u64, buckets: usize) -> usize {
    (value.checked_ilog2().unwrap_or(0) as usize).min(buckets - 1)
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident: [$rows:expr; $buckets:expr],)*) => {
        /// The counters of a leaf.
        #[derive(Debug)]
        #[doc(alias = "vdev_stat_ex_t")]
        pub(crate) struct IoCounters {
            $($name: [[AtomicU64; $buckets]; $rows],)*
        }

        /// The values of the counters of a vdev at one moment.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct IoCounts {
            $($(#[$doc])* pub $name: [[u64; $buckets]; $rows],)*
            /// Commands that wait for their turn, by class.
            pub waiting: [u64; CLASSES],
            /// Commands at the device, by class.
            pub active: [u64; CLASSES],
        }

        impl Default for IoCounters {
            fn default() -> Self {
                IoCounters {
                    $($name: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),)*
                }
            }
        }

        impl Default for IoCounts {
            fn default() -> Self {
                IoCounts {
                    $($name: [[0; $buckets]; $rows],)*
                    waiting: [0; CLASSES],
                    active: [0; CLASSES],
                }
            }
        }

        impl IoCounters {
            fn snapshot(&self) -> IoCounts {
                let mut counts = IoCounts::default();
                $(for (to, from) in counts.$name.iter_mut().flatten().zip(self.$name.iter().flatten()) {
                    *to = from.load(Ordering::Relaxed);
                })*
                counts
            }
        }

        impl IoCounts {
            /// Everything that only grows, in an order that stays the same: for keeping it.
            pub fn totals(&self) -> impl Iterator<Item = u64> + '_ {
                std::iter::empty()$(.chain(self.$name.iter().flatten().copied()))*
            }

            /// The counts whose [`totals`](IoCounts::totals) these are; what is missing at the end is 0.
            #[must_use]
            pub fn from_totals(totals: impl IntoIterator<Item = u64>) -> IoCounts {
                let mut counts = IoCounts::default();
                let mut totals = totals.into_iter();
                $(for to in counts.$name.iter_mut().flatten() {
                    *to = totals.next().unwrap_or(0);
                })*
                counts
            }

            /// What was added since `earlier`. The commands that wait or are at the device stay those of now.
            #[must_use]
            pub fn since(&self, earlier: &IoCounts) -> IoCounts {
                let mut counts = self.clone();
                $(for (to, from) in counts.$name.iter_mut().flatten().zip(earlier.$name.iter().flatten()) {
                    *to = to.saturating_sub(*from);
                })*
                counts
            }
        }

        impl std::ops::AddAssign<&IoCounts> for IoCounts {
            fn add_assign(&mut self, other: &IoCounts) {
                let add = |to: &mut u64, n: &u64| *to = to.saturating_add(*n);
                $(for (to, n) in self.$name.iter_mut().flatten().zip(other.$name.iter().flatten()) {
                    add(to, n);
                })*
                self.waiting.iter_mut().zip(&other.waiting).for_each(|(to, n)| add(to, n));
                self.active.iter_mut().zip(&other.active).for_each(|(to, n)| add(to, n));
            }
        }
    };
}

counters! {
    /// vs_ops: commands, reads and writes.
    ops: [DIRECTIONS; 1],
    /// vs_bytes: bytes, of reads and writes.
    bytes: [DIRECTIONS; 1],
    /// vsx_ind_histo: lengths of commands for one block, by class.
    single: [CLASSES; SIZE_BUCKETS],
    /// vsx_agg_histo: lengths of commands for several blocks, by class.
    merged: [CLASSES; SIZE_BUCKETS],
    /// vsx_queue_histo: times that commands waited for their turn, by class.
    queue: [CLASSES; LATENCY_BUCKETS],
    /// vsx_disk_histo: times that the device took, for reads and writes.
    disk: [DIRECTIONS; LATENCY_BUCKETS],
    /// vsx_total_histo: both together, for reads and writes.
    total: [DIRECTIONS; LATENCY_BUCKETS],
}

/// A command, to be counted when it has succeeded.
#[derive(Clone, Copy)]
pub(crate) struct Counted {
    priority: Priority,
    is_write: bool,
    is_merged: bool,
    is_delete: bool,
    bytes: u64,
    asked_ns: u64,
    begun_ns: Option<u64>,
}

impl Counted {
    /// A command that begins to wait for its turn now.
    pub(crate) fn new(
        priority: Priority,
        is_write: bool,
        is_merged: bool,
        bytes: usize,
    ) -> Counted {
        Counted {
            priority,
            is_write,
            is_merged,
            is_delete: false,
            bytes: bytes as u64,
            asked_ns: rt::now_ns(),
            begun_ns: None,
        }
    }

    /// Likewise, one that tells the device that a range is not needed: it is neither a read nor a write.
    pub(crate) fn delete(priority: Priority, len: u64) -> Counted {
        Counted {
            is_delete: true,
            bytes: len,
            ..Counted::new(priority, true, false, 0)
        }
    }

    /// What is to be told of it if the device took too long for it until now.
    pub(crate) fn delay(&self, offset: u64) -> Option<Delay> {
        let now = rt::now_ns();
        let device_ns = now.saturating_sub(self.begun_ns?);
        (device_ns >= SLOW_NS).then(|| Delay {
            kind: match (self.is_delete, self.is_write) {
                (true, _) => DelayedKind::Trim,
                (false, true) => DelayedKind::Write,
                (false, false) => DelayedKind::Read,
            },
            offset,
            bytes: self.bytes,
            asked_ns: self.asked_ns,
            took_ns: now.saturating_sub(self.asked_ns),
            device_ns,
        })
    }

    pub(crate) fn priority(&self) -> Priority {
        self.priority
    }

    /// It goes to the device now.
    pub(crate) fn begin(&mut self) {
        self.begun_ns = Some(rt::now_ns());
    }
}

impl IoCounters {
    /// Counts a command that has succeeded now.
    #[doc(alias = "vdev_stat_update")]
    pub(crate) fn note(&self, command: &Counted) {
        let add = |counter: &AtomicU64, n| counter.fetch_add(n, Ordering::Relaxed);
        let (class, direction) = (class_index(command.priority), usize::from(command.is_write));
        if !command.is_delete {
            add(&self.ops[direction][0], 1);
            add(&self.bytes[direction][0], command.bytes);
        }
        let lengths = if command.is_merged {
            &self.merged[class]
        } else {
            &self.single[class]
        };
        add(&lengths[bucket(command.bytes, SIZE_BUCKETS)], 1);
        let now = rt::now_ns();
        let total = now.saturating_sub(command.asked_ns);
        let begun_ns = command.begun_ns.unwrap_or(now);
        let disk = now.saturating_sub(begun_ns).min(total);
        // As in OpenZFS, what took no time has no latency: it is not counted as one of the shortest.
        if disk == 0 {
            return;
        }
        add(&self.queue[class][bucket(total - disk, LATENCY_BUCKETS)], 1);
        if command.is_delete {
            return;
        }
        add(&self.disk[direction][bucket(disk, LATENCY_BUCKETS)], 1);
        add(&self.total[direction][bucket(total, LATENCY_BUCKETS)], 1);
    }
}

impl IoCounts {
    /// Reads that succeeded.
    #[must_use]
    pub fn read_ops(&self) -> u64 {
        self.ops[0][0]
    }

    /// Writes that succeeded.
    #[must_use]
    pub fn write_ops(&self) -> u64 {
        self.ops[1][0]
    }

    /// Bytes read.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.bytes[0][0]
    }

    /// Bytes written.
    #[must_use]
    pub fn write_bytes(&self) -> u64 {
        self.bytes[1][0]
    }
}

impl Vdev {
    /// What the devices at and below this node have done.
    #[must_use]
    #[doc(alias = "vdev_get_stats_ex")]
    pub fn io_counts(&self) -> IoCounts {
        if self.kind().is_device() {
            let mut counts = self.leaf().counters().snapshot();
            self.leaf().add_queued(&mut counts);
            return counts;
        }
        let mut counts = IoCounts::default();
        for child in self.children() {
            // What a distributed spare did was done by other children.
            if !matches!(child.kind(), VdevKind::DraidSpare(_)) {
                counts += &child.io_counts();
            }
        }
        counts
    }
}
