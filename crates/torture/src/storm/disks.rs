//! The devices of a pool: RAM disks that can lose power, have latency, and fail on request.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use base::Result;
use faulty::{Delay, FaultInjector, PowerCut, PowerSupply};
use geom::{Command, Provider, Shape, write_each};
use phys::label::LABEL_START_SIZE;
use ram::Memory;

use super::script::{Mistake, PoolSpec};

/// The most bytes of all devices of a pool: all of them are in memory, most twice.
const BYTES_MAX: u64 = 1 << 30;
/// Bytes at the end of a device that hold its labels, and perhaps unused space before them.
const LABEL_END_SIZE: u64 = 1 << 20;

/// One device.
pub(super) struct Disk {
    /// Its name: the path by which the pool knows it.
    pub(super) name: String,
    bytes: u64,
    /// What it keeps when the power fails.
    cut: Arc<PowerCut>,
    /// What the pool sees.
    pub(super) fault: Arc<FaultInjector>,
}

impl Disk {
    /// The range that may be damaged: everything but its labels.
    pub(super) fn data(&self) -> Range<u64> {
        LABEL_START_SIZE..self.bytes - LABEL_END_SIZE
    }
}

/// All devices that a pool has or had; they lose power at the same moment.
pub(super) struct Disks {
    pool: String,
    spec: PoolSpec,
    mistake: Option<Mistake>,
    supply: Arc<PowerSupply>,
    all: Vec<Disk>,
    /// How many there have been.
    count: u64,
}

impl Disks {
    pub(super) fn new(pool: &str, spec: PoolSpec, mistake: Option<Mistake>) -> Disks {
        let mut disks = Disks {
            pool: pool.to_owned(),
            spec,
            mistake,
            supply: PowerSupply::new(),
            all: Vec::new(),
            count: 0,
        };
        for _ in 0..spec.devices {
            disks.insert(spec.mib << 20);
        }
        disks
    }

    /// One more, which is empty.
    pub(super) fn insert(&mut self, bytes: u64) -> Arc<dyn Provider> {
        let name = format!("/{}-disk{}", self.pool, self.count);
        self.count += 1;
        let sector = 1 << self.spec.ashift.min(12);
        let cut = PowerCut::fed_by(&self.supply, name.clone(), bytes, sector);
        let disk = self.disk(name, bytes, Arc::new(cut));
        let provider = disk.fault.clone();
        self.all.push(disk);
        provider
    }

    fn disk(&self, name: String, bytes: u64, cut: Arc<PowerCut>) -> Disk {
        let mut provider: Arc<dyn Provider> = cut.clone();
        if self.mistake == Some(Mistake::LostWrites) {
            provider = Arc::new(Forgetful(provider));
        }
        if self.spec.latency_us > 0 {
            let range_ns = 1000..1000 * self.spec.latency_us + 1001;
            provider = Arc::new(Delay::new(provider, range_ns, self.supply.commands()));
        }
        Disk {
            name,
            bytes,
            cut,
            fault: Arc::new(FaultInjector::new(provider)),
        }
    }

    /// The device of this name.
    pub(super) fn named(&self, name: &str) -> Option<&Disk> {
        self.all.iter().find(|disk| disk.name == name)
    }

    pub(super) fn providers(&self) -> Vec<Arc<dyn Provider>> {
        let provider = |disk: &Disk| disk.fault.clone() as Arc<dyn Provider>;
        self.all.iter().map(provider).collect()
    }

    pub(super) fn all(&self) -> &[Disk] {
        &self.all
    }

    /// The size of all together.
    pub(super) fn bytes(&self) -> u64 {
        self.all.iter().map(|disk| disk.bytes).sum()
    }

    /// Whether there is room for so many more devices, each of the size of the largest.
    pub(super) fn have_room_for(&self, count: u64) -> bool {
        self.bytes() + count * self.largest_bytes() <= BYTES_MAX
    }

    /// Whether each may get so many bytes larger.
    pub(super) fn may_grow(&self, bytes: u64) -> bool {
        self.bytes() + bytes * self.all.len() as u64 <= BYTES_MAX
    }

    /// The size of the largest.
    pub(super) fn largest_bytes(&self) -> u64 {
        self.all.iter().map(|disk| disk.bytes).max().unwrap_or(0)
    }

    /// Drops the devices with other names: the pool has them no more.
    pub(super) fn keep(&mut self, names: &BTreeSet<String>) {
        self.all.retain(|disk| names.contains(&disk.name));
    }

    /// The number of commands acknowledged so far.
    pub(super) fn commands(&self) -> u64 {
        self.supply.commands()
    }

    /// The supply, for threads that count commands.
    pub(super) fn supply(&self) -> Arc<PowerSupply> {
        Arc::clone(&self.supply)
    }

    /// From now on no power cut will be earlier than this moment.
    pub(super) fn forget(&self) {
        self.all.iter().for_each(|disk| disk.cut.forget());
    }

    /// The power fails after the n-th command and comes back. Lost devices respond again, with the content they
    /// had.
    pub(super) fn cut(&mut self, n_commands: u64, seed: u64) {
        self.exchange(|disk| (disk.bytes, disk.cut.restarted_after(n_commands, seed)));
    }

    /// Each device gets so many bytes larger. No power cut can be earlier than this moment.
    pub(super) fn grow(&mut self, bytes: u64) {
        self.exchange(|disk| {
            let bytes = disk.bytes + bytes;
            (bytes, disk.cut.grown_to(bytes))
        });
    }

    fn exchange(&mut self, new: impl Fn(&Disk) -> (u64, PowerCut)) {
        let all = std::mem::take(&mut self.all);
        let exchanged = all.into_iter().map(|disk| {
            let (bytes, cut) = new(&disk);
            self.disk(disk.name, bytes, Arc::new(cut))
        });
        self.all = exchanged.collect();
    }

    /// What is on the devices now.
    pub(super) fn images(&self) -> Vec<Memory> {
        self.all.iter().map(|disk| disk.cut.snapshot()).collect()
    }
}

/// Writes of at least this many bytes are dropped by a [`Forgetful`] device: creating a pool makes none as
/// long.
const DROPPED_BYTES_MIN: usize = 64 << 10;

/// A device that drops long writes. All sides of a mirror get the same writes, and drop the same ones.
struct Forgetful(Arc<dyn Provider>);

impl Provider for Forgetful {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn shape(&self) -> Shape {
        Shape {
            is_queued: false,
            ..self.0.shape()
        }
    }
    fn execute(&self, offset: u64, command: Command<'_>) -> Result<()> {
        let Command::Write(pieces) = command else {
            return self.0.execute(offset, command);
        };
        write_each(offset, pieces, |at, piece| {
            if piece.len() >= DROPPED_BYTES_MIN && at >= LABEL_START_SIZE {
                return Ok(());
            }
            self.0.write(at, piece)
        })
    }
}
