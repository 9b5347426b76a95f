//! The counters of leaves beside a model that sees the same commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Error, ErrorKind, Guid, Result};
use geom::{Command, Provider, Shape};
use zio::Priority;

use crate::{IoCounts, Vdev, VdevConfig, VdevKind};

const PRIORITIES: [Priority; 6] = [
    Priority::SyncRead,
    Priority::SyncWrite,
    Priority::AsyncRead,
    Priority::AsyncWrite,
    Priority::Scrub,
    Priority::WriteBehind,
];

/// A device that takes `TOOK_NS` for each command, or fails.
#[derive(Default)]
struct Slow {
    fails: AtomicBool,
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
        rt::sleep_ns(TOOK_NS);
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
