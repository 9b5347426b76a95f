//! A device that is given up while commands wait for it.

use base::{Error, ErrorKind};
use geom::{Command, Shape};
use ram::Memory;
use rt::Mutex;

use super::striped::{SECTOR, TOP, noise, tree_of};
use super::*;

/// A disk of which a read fails after others had its device given up.
struct Failing {
    memory: Memory,
    given_up: Mutex<Option<Arc<Vdev>>>,
}

impl Provider for Failing {
    fn name(&self) -> &str {
        self.memory.name()
    }
    fn shape(&self) -> Shape {
        self.memory.shape()
    }
    fn execute(&self, offset: u64, command: Command<'_>) -> Result<()> {
        if matches!(command, Command::Read(_))
            && let Some(device) = self.given_up.lock().take()
        {
            let leaf = device.leaf();
            leaf.set_state(VdevState::Faulted, VdevAux::ErrExceeded);
            return Err(Error::new(ErrorKind::Io, "does not answer"));
        }
        self.memory.execute(offset, command)
    }
}

/// What it has counts as what a device has that was given up before.
#[test]
fn what_a_device_has_that_is_given_up_meanwhile_is_not_damaged() {
    let raidz = VdevKind::RaidZ { nparity: 1 };
    for (kind, children) in [(VdevKind::Mirror, 2), (raidz, 3)] {
        for gone in 0..children {
            let disk = |n| {
                Arc::new(Failing {
                    memory: Memory::new(format!("/disk{n}"), 2 * DISK_BYTES),
                    given_up: Mutex::new(None),
                })
            };
            let disks: Vec<_> = (0..children).map(disk).collect();
            let tree = tree_of(kind, disks.iter().map(|disk| disk.clone() as _));
            let bytes = noise(gone as u64, 4 * SECTOR);
            tree.write_block(TOP, 0, &bytes).unwrap();
            let device = &tree.devices()[gone];
            *disks[gone].given_up.lock() = Some(device.clone());
            let block = RunBlock {
                offset: 0,
                range: 0..bytes.len(),
                birth: BIRTH,
            };
            let mut found = vec![0; bytes.len()];
            let is_good = |_: usize, found: &[u8]| found == bytes;
            let reports = tree.scrub(TOP, &mut found, &[block], &is_good).unwrap();
            let reports: Vec<_> = reports.into_iter().map(Result::unwrap).collect();
            assert_eq!(reports, [ScrubReport::default()], "{kind:?} {gone}");
            assert!(found == bytes);
            assert!(disks[gone].given_up.lock().is_none(), "it was read");
            assert_eq!(device.state(), (VdevState::Faulted, VdevAux::ErrExceeded));
        }
    }
}
