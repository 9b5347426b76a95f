//! Disks whose deleted sectors read as garbage, and that lose power.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use faulty::{PowerCut, PowerSupply};
use geom::{Command, Provider, Shape};

/// What deleted sectors read as.
pub const GARBAGE: u8 = 0xa5;

/// A disk whose deleted sectors read as garbage, which is durable as a write is: with the next flush, or in part when
/// the power is cut.
struct Careless {
    below: Arc<dyn Provider>,
    deleted_bytes: AtomicU64,
}

impl Provider for Careless {
    fn name(&self) -> &str {
        self.below.name()
    }
    fn shape(&self) -> Shape {
        self.below.shape()
    }
    fn execute(&self, offset: u64, command: Command<'_>) -> base::Result<()> {
        match command {
            Command::Delete { len } => {
                self.deleted_bytes.fetch_add(len, Ordering::Relaxed);
                self.below.write(offset, &vec![GARBAGE; len as usize])
            }
            command => self.below.execute(offset, command),
        }
    }
}

/// Such disks, on one supply of power.
pub struct Disks {
    recorded: Vec<Arc<PowerCut>>,
    careless: Vec<Arc<Careless>>,
    /// As a pool takes them.
    pub providers: Vec<Arc<dyn Provider>>,
    /// Where their power comes from.
    pub supply: Arc<PowerSupply>,
}

fn careless(below: Arc<dyn Provider>) -> Arc<Careless> {
    Arc::new(Careless {
        below,
        deleted_bytes: AtomicU64::new(0),
    })
}

impl Disks {
    /// So many empty disks of so many bytes, with sectors of 512 bytes.
    #[must_use]
    pub fn new(count: usize, bytes: u64) -> Disks {
        let supply = PowerSupply::new();
        let disk = |n| PowerCut::fed_by(&supply, format!("/disk{n}"), bytes, 512);
        let recorded: Vec<_> = (0..count).map(|n| Arc::new(disk(n))).collect();
        let careless: Vec<_> = recorded.iter().map(|disk| careless(disk.clone())).collect();
        Disks {
            providers: careless.iter().map(|disk| disk.clone() as _).collect(),
            recorded,
            careless,
            supply,
        }
    }

    /// How much was deleted, of all disks.
    #[must_use]
    pub fn deleted_bytes(&self) -> u64 {
        let disks = self.careless.iter();
        let bytes = disks.map(|disk| disk.deleted_bytes.load(Ordering::Relaxed));
        bytes.sum()
    }

    /// What was written so far happened before the power can be cut.
    pub fn forget(&self) {
        self.recorded.iter().for_each(|disk| disk.forget());
    }

    /// What is on the disks now.
    #[must_use]
    pub fn snapshots(&self) -> Vec<Arc<dyn Provider>> {
        let disks = self.recorded.iter();
        disks.map(|disk| Arc::new(disk.snapshot()) as _).collect()
    }

    /// What is on the disks when the power is cut after the `n`-th command.
    #[must_use]
    pub fn images_after(&self, n: u64, seed: u64) -> Vec<Arc<dyn Provider>> {
        let disks = self.recorded.iter();
        let images = disks.map(|disk| careless(Arc::new(disk.image_after(n, seed))) as _);
        images.collect()
    }
}
