//! The devices of a pool: RAM disks that can lose power, have latency, and fail on request.

use std::ops::Range;
use std::sync::Arc;

use base::Result;
use faulty::{Delay, FaultInjector, PowerCut, PowerSupply};
use geom::{Command, Provider, Shape, write_each};
use phys::label::LABEL_START_SIZE;
use ram::Memory;

use super::script::{Mistake, PoolSpec};

/// Bytes at the end of a device that hold its labels, and perhaps unused space before them.
const LABEL_END_SIZE: u64 = 1 << 20;

/// One device.
pub(super) struct Disk {
    /// What it keeps when the power fails.
    cut: Arc<PowerCut>,
    /// What the pool sees.
    pub(super) fault: Arc<FaultInjector>,
}

/// All devices of a pool; they lose power at the same moment.
pub(super) struct Disks {
    spec: PoolSpec,
    mistake: Option<Mistake>,
    supply: Arc<PowerSupply>,
    all: Vec<Disk>,
}

impl Disks {
    pub(super) fn new(pool: &str, spec: PoolSpec, mistake: Option<Mistake>) -> Disks {
        let supply = PowerSupply::new();
        let disk = |n| {
            let sector = 1 << spec.ashift.min(12);
            let name = format!("/{pool}-disk{n}");
            Arc::new(PowerCut::fed_by(&supply, name, spec.mib << 20, sector))
        };
        let cuts = (0..spec.devices).map(disk).collect();
        let mut disks = Disks {
            spec,
            mistake,
            supply: supply.clone(),
            all: Vec::new(),
        };
        disks.take(cuts);
        disks
    }

    fn take(&mut self, cuts: Vec<Arc<PowerCut>>) {
        let disk = |cut: Arc<PowerCut>| {
            let mut provider: Arc<dyn Provider> = cut.clone();
            if self.mistake == Some(Mistake::LostWrites) {
                provider = Arc::new(Forgetful(provider));
            }
            if self.spec.latency_us > 0 {
                let range_ns = 1000..1000 * self.spec.latency_us + 1001;
                provider = Arc::new(Delay::new(provider, range_ns, self.supply.commands()));
            }
            Disk {
                cut,
                fault: Arc::new(FaultInjector::new(provider)),
            }
        };
        self.all = cuts.into_iter().map(disk).collect();
    }

    pub(super) fn providers(&self) -> Vec<Arc<dyn Provider>> {
        let provider = |disk: &Disk| disk.fault.clone() as Arc<dyn Provider>;
        self.all.iter().map(provider).collect()
    }

    pub(super) fn all(&self) -> &[Disk] {
        &self.all
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
        let restarted = |disk: &Disk| Arc::new(disk.cut.restarted_after(n_commands, seed));
        let cuts = self.all.iter().map(restarted).collect();
        self.take(cuts);
    }

    /// The range of a device that may be damaged: everything but its labels.
    pub(super) fn data(&self) -> Range<u64> {
        LABEL_START_SIZE..(self.spec.mib << 20) - LABEL_END_SIZE
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
