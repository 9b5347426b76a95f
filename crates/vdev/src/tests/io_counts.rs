//! The counters of leaves beside a model that sees the same commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Error, ErrorKind, Guid, Result};
use geom::{Command, Provider, Shape};
use zio::Priority;

use crate::report::{DelayedKind, Report};
use crate::{ErrorLimits, IoCounts, Vdev, VdevAux, VdevConfig, VdevKind, VdevState};

const PRIORITIES: [Priority; 6] = [
    Priority::SyncRead,
    Priority::SyncWrite,
    Priority::AsyncRead,
    Priority::AsyncWrite,
    Priority::Scrub,
    Priority::WriteBehind,
];

/// A device that takes `TOOK_NS` and more for each command, or fails.
#[derive(Default)]
struct Slow {
    fails: AtomicBool,
    more_ns: AtomicU64,
}

const TOOK_NS: u64 = 5000;

impl Provider for Slow {
    fn name(&self) -> &str {
        "slow"
    }
    fn shape(&self) -> Shape {
        Shape::new(1 << 30, 512)
    }
    fn execute(&self, _: u64, _: Command<'_>) -> Result<()> {
        rt::sleep_ns(TOOK_NS + self.more_ns.load(Ordering::Relaxed));
        if self.fails.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Io, "it fails"));
        }
        Ok(())
    }
}

fn leaf_on(device: Arc<Slow>, guid: u64) -> Arc<Vdev> {
    let vdev = Vdev::new(
        VdevKind::File,
        Guid(guid),
        VdevConfig::default(),
        Vec::new(),
    );
    vdev.leaf().open(device).unwrap();
    vdev
}

fn log2(value: u64) -> usize {
    (0..64).rev().find(|n| value >> n != 0).unwrap_or(0)
}

#[test]
fn sim_prop_each_command_is_counted_once_at_the_leaf() {
    for seed in 0..20 {
        rt::simulate(seed, || {
            let devices: Vec<Arc<Slow>> = (0..3).map(|_| Arc::new(Slow::default())).collect();
            let leaves: Vec<Arc<Vdev>> = (0..3)
                .map(|n| leaf_on(Arc::clone(&devices[n as usize]), n))
                .collect();
            let mut model = vec![IoCounts::default(); 3];
            for _ in 0..200 {
                let at = rt::random_below(3) as usize;
                let kind = rt::random_below(6) as usize;
                let priority = PRIORITIES[kind];
                let is_write = matches!(kind, 1 | 3 | 5);
                let pieces = 1 + rt::random_below(3) as usize;
                let piece = vec![0; 512 << rt::random_below(6)];
                let len = (piece.len() * pieces) as u64;
                let fails = rt::random_below(5) == 0;
                devices[at].fails.store(fails, Ordering::Relaxed);
                let leaf = leaves[at].leaf();
                let is_merged = pieces > 1;
                let result = if is_write {
                    leaf.write(priority, 0, &vec![&piece[..]; pieces])
                } else {
                    let mut buf = vec![0; len as usize];
                    leaf.read_merged(priority, 0, &mut buf, is_merged)
                };
                assert_eq!(result.is_err(), fails);
                if fails {
                    continue;
                }
                let class = if kind == 5 { 3 } else { kind };
                let direction = usize::from(is_write);
                let counts = &mut model[at];
                counts.ops[direction][0] += 1;
                counts.bytes[direction][0] += len;
                let lengths = if is_merged {
                    &mut counts.merged
                } else {
                    &mut counts.single
                };
                lengths[class][log2(len)] += 1;
                counts.disk[direction][log2(TOOK_NS)] += 1;
                counts.total[direction][log2(TOOK_NS)] += 1;
                counts.queue[class][0] += 1;
            }
            for (leaf, model) in leaves.iter().zip(&model) {
                assert_eq!(leaf.io_counts(), *model);
            }
            let mirror = Vdev::new(VdevKind::Mirror, Guid(9), VdevConfig::default(), leaves);
            let mut sum = IoCounts::default();
            model.iter().for_each(|counts| sum += counts);
            assert_eq!(mirror.io_counts(), sum);
            assert_eq!(IoCounts::from_totals(sum.totals()), sum);
            assert_eq!(
                sum.since(&model[0]).ops[0][0],
                sum.ops[0][0] - model[0].ops[0][0]
            );
        });
    }
}

#[test]
fn sim_a_command_that_waits_counts_as_waiting_and_its_wait_as_latency() {
    rt::simulate(1, || {
        let leaf = leaf_on(Arc::new(Slow::default()), 1);
        let read = |leaf: &Arc<Vdev>| {
            let leaf = Arc::clone(leaf);
            rt::spawn("reader", move || {
                leaf.leaf()
                    .read(Priority::AsyncRead, 0, &mut [0; 512])
                    .unwrap();
            })
        };
        let readers: Vec<_> = (0..4).map(|_| read(&leaf)).collect();
        rt::sleep_ns(TOOK_NS / 2);
        let counts = leaf.io_counts();
        assert_eq!((counts.active[2], counts.waiting[2]), (3, 1));
        readers.into_iter().for_each(rt::JoinHandle::join);
        let counts = leaf.io_counts();
        assert_eq!(
            (counts.active[2], counts.waiting[2], counts.read_ops()),
            (0, 0, 4)
        );
        assert_eq!((counts.queue[2][0], counts.queue[2][log2(TOOK_NS)]), (3, 1));
        assert_eq!(counts.total[0][log2(2 * TOOK_NS)], 1);
        assert_eq!(counts.disk[0][log2(TOOK_NS)], 4);
    });
}

/// Slow commands of a leaf that were told of, and those that were only counted.
fn slow_ios(leaf: &Vdev) -> (usize, u64) {
    let told = leaf.leaf().take_reports();
    let is_delay = |report: &Report| matches!(report, Report::Delay(_));
    let told = told.iter().filter(|(_, report)| is_delay(report)).count();
    (told, leaf.stats().snapshot().slow_ios)
}

#[test]
fn sim_a_command_that_takes_the_device_half_a_minute_is_slow_however_it_ends() {
    rt::simulate(1, || {
        let device = Arc::new(Slow::default());
        let leaf = leaf_on(Arc::clone(&device), 1);
        let read = || leaf.leaf().read(Priority::SyncRead, 512, &mut [0; 1024]);
        device
            .more_ns
            .store(30_000_000_000 - TOOK_NS - 1, Ordering::Relaxed);
        read().unwrap();
        assert_eq!(slow_ios(&leaf), (0, 0));
        device
            .more_ns
            .store(30_000_000_000 - TOOK_NS, Ordering::Relaxed);
        let asked_ns = rt::now_ns();
        read().unwrap();
        let told = leaf.leaf().take_reports();
        let [(_, Report::Delay(delay))] = told[..] else {
            panic!("{told:?}");
        };
        assert_eq!(
            (delay.kind, delay.offset, delay.bytes),
            (DelayedKind::Read, 512, 1024)
        );
        let times = (delay.asked_ns, delay.took_ns, delay.device_ns);
        assert_eq!(times, (asked_ns, 30_000_000_000, 30_000_000_000));
        device.fails.store(true, Ordering::Relaxed);
        read().unwrap_err();
        assert_eq!(slow_ios(&leaf), (1, 2));
        // A device that was taken away meanwhile is not slow.
        let (gone, reader) = (Arc::clone(&leaf), Arc::clone(&leaf));
        let reading = rt::spawn("reader", move || {
            let leaf = reader.leaf();
            leaf.read(Priority::SyncRead, 0, &mut [0; 512]).unwrap_err()
        });
        rt::sleep_ns(1_000_000_000);
        gone.leaf().close(VdevState::Removed, VdevAux::None);
        reading.join();
        assert_eq!(slow_ios(&leaf), (0, 2));
    });
}

#[test]
fn sim_too_many_slow_commands_degrade_a_device_only_if_both_limits_are_set() {
    rt::simulate(1, || {
        let device = Arc::new(Slow::default());
        let leaf = leaf_on(Arc::clone(&device), 1);
        let read = || leaf.leaf().read(Priority::SyncRead, 0, &mut [0; 512]);
        let set = |slow| {
            leaf.leaf().set_limits(ErrorLimits {
                slow,
                ..ErrorLimits::default()
            });
        };
        device.more_ns.store(40_000_000_000, Ordering::Relaxed);
        set((Some(2), None));
        (0..12).for_each(|_| read().unwrap());
        // Within a minute there are at most two.
        set((Some(3), Some(60)));
        (0..6).for_each(|_| read().unwrap());
        assert_eq!(leaf.state(), (VdevState::Healthy, VdevAux::None));
        set((Some(3), Some(600)));
        (0..3).for_each(|_| read().unwrap());
        assert_eq!(leaf.state(), (VdevState::Degraded, VdevAux::ErrExceeded));
        read().unwrap();
        leaf.leaf().clear_errors();
        leaf.stats().clear_errors();
        assert_eq!(leaf.state(), (VdevState::Healthy, VdevAux::None));
        assert_eq!(slow_ios(&leaf).1, 0);
    });
}
