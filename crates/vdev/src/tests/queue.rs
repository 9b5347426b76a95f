//! The queue of a device beside a device that counts what it works on.

use std::sync::Arc;

use base::{Buf, Error, ErrorKind, Guid, Result};
use geom::{Bio, BioData, Command, DoneFn, Provider, Shape};
use rt::{Mutex, simulate};
use zio::Priority;

use crate::leaf::begin_write;
use crate::queue::WRITES_MAX;
use crate::{Vdev, VdevAux, VdevConfig, VdevKind, VdevState};

const PRIORITIES: [Priority; 6] = [
    Priority::SyncRead,
    Priority::SyncWrite,
    Priority::AsyncRead,
    Priority::AsyncWrite,
    Priority::WriteBehind,
    Priority::Scrub,
];

/// Offsets encode the priority of a command: its number is above this bit.
const PRIORITY_SHIFT: u32 = 40;

fn offset_of(priority: Priority, at: u64) -> u64 {
    ((priority as u64) << PRIORITY_SHIFT) + at * 4096
}

fn priority_at(offset: u64) -> Priority {
    PRIORITIES[(offset >> PRIORITY_SHIFT) as usize]
}

/// A slow device.
#[derive(Default)]
struct Busy {
    /// What it works on now, by priority.
    active: Mutex<[usize; PRIORITIES.len()]>,
    /// What was begun, in order.
    begun: Mutex<Vec<u64>>,
    /// A scrub's commands that were begun beside others.
    beside: Mutex<usize>,
    writes_at_once: usize,
}

impl Busy {
    fn work(&self, offset: u64) {
        let at = priority_at(offset) as usize;
        let mut active = self.active.lock();
        active[at] += 1;
        let [sync_reads, sync_writes, ahead, writes, behind, scrub] = *active;
        assert!(sync_reads <= 10 && sync_writes <= 10, "{active:?}");
        assert!(ahead <= 3 && writes + behind <= 10, "{active:?}");
        let most = self.writes_at_once;
        assert!(sync_writes + writes + behind <= most, "{active:?}");
        let others: usize = active[..5].iter().sum();
        assert!(scrub <= 3, "{active:?}");
        if at == Priority::Scrub as usize && others > 0 {
            *self.beside.lock() += 1;
        }
        drop(active);
        self.begun.lock().push(offset);
        rt::sleep_ns(1 + rt::random_below(2_000_000));
        self.active.lock()[at] -= 1;
    }
}

impl Provider for Busy {
    fn name(&self) -> &str {
        "busy"
    }
    fn shape(&self) -> Shape {
        Shape {
            writes_at_once: self.writes_at_once,
            ..Shape::new(8 << PRIORITY_SHIFT, 512)
        }
    }
    fn execute(&self, offset: u64, _: Command<'_>) -> Result<()> {
        self.work(offset);
        Ok(())
    }
}

fn leaf_on(device: Arc<dyn Provider>) -> Arc<Vdev> {
    let vdev = Vdev::new(VdevKind::File, Guid(7), VdevConfig::default(), Vec::new());
    vdev.leaf().open(device).unwrap();
    vdev
}

fn command(vdev: &Vdev, priority: Priority, at: u64) {
    let offset = offset_of(priority, at);
    let is_write = matches!(
        priority,
        Priority::SyncWrite | Priority::AsyncWrite | Priority::WriteBehind
    );
    if is_write {
        vdev.leaf().write(priority, offset, &[&[0; 4096]]).unwrap();
    } else {
        vdev.leaf().read(priority, offset, &mut [0; 4096]).unwrap();
    }
}

#[test]
fn sim_no_class_has_more_at_the_device_than_it_may() {
    for seed in 0..40 {
        simulate(seed, || {
            let writes_at_once = [1, 4, usize::MAX][seed as usize % 3];
            let device = Arc::new(Busy {
                writes_at_once,
                ..Busy::default()
            });
            let vdev = leaf_on(device.clone());
            let spawn = |n: usize| {
                let vdev = Arc::clone(&vdev);
                rt::spawn("reader or writer", move || {
                    for at in 0..8 {
                        let priority = PRIORITIES[(n + rt::random_below(2) as usize) % 6];
                        command(&vdev, priority, at);
                        vdev.leaf().check_invariants();
                    }
                })
            };
            let threads: Vec<_> = (0..60).map(spawn).collect();
            threads.into_iter().for_each(rt::JoinHandle::join);
            assert_eq!(device.begun.lock().len(), 480);
            assert_eq!(*device.active.lock(), [0; 6]);
        });
    }
}

#[test]
fn sim_a_scrub_lets_others_go_first_and_goes_on() {
    simulate(3, || {
        let device = Arc::new(Busy {
            writes_at_once: usize::MAX,
            ..Busy::default()
        });
        let vdev = leaf_on(device.clone());
        let spawn = |priority: Priority, count: u64| {
            let vdev = Arc::clone(&vdev);
            rt::spawn("commands", move || {
                (0..count).for_each(|at| command(&vdev, priority, at));
            })
        };
        let mut threads: Vec<_> = (0..4).map(|_| spawn(Priority::SyncRead, 400)).collect();
        threads.extend((0..3).map(|_| spawn(Priority::Scrub, 100)));
        threads.into_iter().for_each(rt::JoinHandle::join);
        // It continues beside the others, but gets a ninth of the time: some 40 of the 400 ms.
        let beside = *device.beside.lock();
        assert!((20..=60).contains(&beside), "{beside} beside others");
        let begun = device.begun.lock();
        let last_read = begun
            .iter()
            .rposition(|at| priority_at(*at) == Priority::SyncRead);
        let scrubs = begun[..=last_read.unwrap()].iter();
        let scrubs = scrubs
            .filter(|at| priority_at(**at) == Priority::Scrub)
            .count();
        assert!(scrubs < begun.len() / 5, "{scrubs} of {}", begun.len());
    });
}

#[test]
fn sim_what_threads_wait_for_comes_in_order_and_the_rest_by_offset() {
    simulate(5, || {
        let device = Arc::new(Busy {
            writes_at_once: 1,
            ..Busy::default()
        });
        let vdev = leaf_on(device.clone());
        let spawn = |(priority, at): (Priority, u64)| {
            let vdev = Arc::clone(&vdev);
            let thread = rt::spawn("writer", move || command(&vdev, priority, at));
            rt::sleep_ns(10);
            thread
        };
        let (sync, later) = (Priority::SyncWrite, Priority::AsyncWrite);
        let order = [
            (sync, 9),
            (later, 8),
            (later, 4),
            (sync, 7),
            (later, 6),
            (sync, 3),
        ];
        let threads: Vec<_> = order.into_iter().map(spawn).collect();
        threads.into_iter().for_each(rt::JoinHandle::join);
        let begun = device.begun.lock();
        let of = |wanted: Priority| {
            let these = begun.iter().filter(|at| priority_at(**at) == wanted);
            these
                .map(|at| *at % (1 << PRIORITY_SHIFT) / 4096)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(sync), [9, 7, 3]);
        assert_eq!(of(later), [4, 6, 8]);
    });
}

/// An asynchronous device that holds all commands until it is told to, and then fails them.
#[derive(Default)]
struct Held {
    held: Mutex<Vec<DoneFn>>,
    takes_one_write: bool,
    has_failed: Mutex<bool>,
}

impl Provider for Held {
    fn name(&self) -> &str {
        "held"
    }
    fn shape(&self) -> Shape {
        Shape {
            is_queued: true,
            writes_at_once: if self.takes_one_write { 1 } else { usize::MAX },
            ..Shape::new(64 << 20, 512)
        }
    }
    fn submit(&self, bio: Bio) {
        if *self.has_failed.lock() {
            (bio.done)(gone());
        } else {
            self.held.lock().push(bio.done);
        }
    }
}

fn gone() -> Result<BioData> {
    Err(Error::new(ErrorKind::Io, "gone"))
}

#[test]
fn commands_that_fail_at_once_do_not_nest() {
    let device = Arc::new(Held::default());
    let vdev = leaf_on(device.clone());
    let data = Buf::zeroed(512);
    let begin = |at: u64| {
        let bytes = || data.clone();
        begin_write(&vdev, Priority::AsyncWrite, at * 512, &[&data], bytes)
    };
    let begun: Vec<_> = (0..50_000).map(begin).collect();
    let held = std::mem::take(&mut *device.held.lock());
    assert_eq!(held.len(), WRITES_MAX);
    *device.has_failed.lock() = true;
    for done in held {
        done(gone());
    }
    vdev.leaf().check_invariants();
    for begun in begun {
        assert_eq!(begun.wait().unwrap_err().kind(), ErrorKind::Io);
    }
}

#[test]
fn sim_what_waits_for_a_device_that_was_closed_goes_to_the_next_one() {
    simulate(1, || {
        let old = Arc::new(Held {
            takes_one_write: true,
            ..Held::default()
        });
        let vdev = leaf_on(old.clone());
        let data = Buf::zeroed(512);
        let begin = |at: u64| {
            let bytes = || data.clone();
            begin_write(&vdev, Priority::AsyncWrite, at * 512, &[&data], bytes)
        };
        let (first, second) = (begin(0), begin(1));
        vdev.leaf().close(VdevState::CantOpen, VdevAux::OpenFailed);
        let new = Arc::new(Held::default());
        vdev.leaf().open(new.clone()).unwrap();
        vdev.leaf().check_invariants();
        for device in [old, new] {
            let mut held = std::mem::take(&mut *device.held.lock());
            assert_eq!(held.len(), 1);
            held.remove(0)(Ok(BioData::None));
        }
        first.wait().unwrap();
        second.wait().unwrap();
    });
}
