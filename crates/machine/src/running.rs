//! A machine that is switched on.
//!
//! # Concurrency
//! `machine` is taken before `slots`; both are otherwise leaf locks. Neither is held while a drive
//! serves requests; they are held while one is opened.

use std::path::PathBuf;
use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use drive::profile::Bus;
use drive::{Emulated, Identity};
use geom::Provider;
use rt::{Mutex, SimOptions};

use crate::description::{DriveEntry, NewDrive, no_drive};
use crate::host_profile::HostProfile;
use crate::layer::Layer;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::semaphores::Semaphores;
use crate::world::World;

/// How much time of a machine that is up may be lost when its process is killed, in ns.
const KEEP_CLOCK_NS: u64 = 1_000_000_000;

/// A machine whose drives are open.
pub struct Running {
    machine: Mutex<Machine>,
    slots: Mutex<Vec<Slot>>,
    semaphores: Semaphores,
    seed: u64,
}

struct Slot {
    entry: DriveEntry,
    /// `None` while it is pulled.
    drive: Option<Arc<Emulated>>,
}

impl Machine {
    /// Switches the machine on in simulated time, lets `f` use it, and switches it off.
    ///
    /// # Errors
    /// Errors of opening the drives and of writing back state at the end.
    pub fn run<T: Send>(self, f: impl FnOnce(&Arc<World>) -> T + Send) -> Result<T> {
        let options = SimOptions {
            preempt_one_in: 0,
            start_ns: self.clock_ns(),
            processor: self.description.host.processor,
            ..SimOptions::new(self.command_seed())
        };
        rt::simulate_with(options, move || {
            let world = Arc::new(World::start(self)?);
            let value = f(&world);
            world.close()?;
            Ok(value)
        })
    }
}

impl Running {
    pub(crate) fn start(machine: Machine) -> Result<Running> {
        let folder = machine.drives();
        std::fs::create_dir_all(&folder).map_err(|e| Error::from(e).within(folder.display()))?;
        let mut slots = Vec::new();
        for entry in &machine.description.drives {
            let drive = match entry.is_pulled {
                true => None,
                false => Some(open(&machine, entry)?),
            };
            slots.push(Slot {
                entry: entry.clone(),
                drive,
            });
        }
        Ok(Running {
            seed: machine.command_seed(),
            machine: Mutex::new(machine),
            slots: Mutex::new(slots),
            semaphores: Semaphores::default(),
        })
    }

    /// The folder of the machine's state between commands.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.machine.lock().state()
    }

    /// Saves the clock while the machine stays up, if it has moved by a second since it was last saved.
    ///
    /// # Errors
    /// What the host says.
    pub fn keep_clock(&self) -> Result<()> {
        let mut machine = self.machine.lock();
        let now_ns = rt::now_ns();
        if now_ns.saturating_sub(machine.clock_ns()) < KEEP_CLOCK_NS {
            return Ok(());
        }
        machine.save_clock(now_ns)
    }

    /// Its semaphores.
    #[must_use]
    pub fn semaphores(&self) -> &Semaphores {
        &self.semaphores
    }

    /// The hostname in vdev labels and pool history.
    #[must_use]
    pub fn hostname(&self) -> String {
        self.machine.lock().description.hostname.clone()
    }

    /// The computer around the drives.
    #[must_use]
    pub fn host(&self) -> HostProfile {
        self.machine.lock().description.host
    }

    /// What its ZFS makes of its memory; `None` if that is not a figure of it.
    #[must_use]
    pub fn memory(&self) -> Option<Memory> {
        let machine = self.machine.lock();
        let bytes = machine.description.memory_bytes?;
        Some(machine.description.host.zfs.memory(bytes))
    }

    /// The machine's hostid: non-zero, derived from the seed.
    #[must_use]
    pub fn hostid(&self) -> u64 {
        let seed = self.machine.lock().description.seed;
        let mixed = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        mixed.max(1)
    }

    /// Its drives as they are described, the pulled ones included.
    #[must_use]
    pub fn entries(&self) -> Vec<DriveEntry> {
        self.slots.lock().iter().map(|s| s.entry.clone()).collect()
    }

    pub(crate) fn drives(&self) -> Vec<Arc<Emulated>> {
        let slots = self.slots.lock();
        slots.iter().filter_map(|s| s.drive.clone()).collect()
    }

    /// The drive of that name, if there is one.
    pub(crate) fn drive(&self, name: &str) -> Result<Option<Arc<dyn Provider>>> {
        let slots = self.slots.lock();
        let Some(slot) = slots.iter().find(|s| s.entry.name == name) else {
            return Ok(None);
        };
        match &slot.drive {
            Some(drive) => Ok(Some(Arc::clone(drive) as Arc<dyn Provider>)),
            None => Err(Error::not_found(format!("{name}: the drive is pulled"))),
        }
    }

    pub(crate) fn set_layers(&self, layers: &[Layer]) -> Result<()> {
        let mut machine = self.machine.lock();
        if machine.description.layers == layers {
            return Ok(());
        }
        machine.description.set_layers(layers)?;
        machine.description.save()
    }

    /// Adds a new drive.
    ///
    /// # Errors
    /// As [`Description::add_drive`](crate::Description::add_drive).
    pub fn add(&self, drive: &NewDrive) -> Result<()> {
        let mut machine = self.machine.lock();
        machine.description.add_drive(drive)?;
        let entry = machine.description.drive(&drive.name).cloned();
        let entry = entry.ok_or_else(|| no_drive(&drive.name))?;
        let drive = Some(open(&machine, &entry)?);
        machine.description.save()?;
        self.slots.lock().push(Slot { entry, drive });
        Ok(())
    }

    /// Pulls a drive without warning; what only its cache holds may be lost.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Exists`] if it is out already.
    pub fn pull(&self, name: &str) -> Result<()> {
        let drive = {
            let mut machine = self.machine.lock();
            let mut slots = self.slots.lock();
            let slot = slots.iter_mut().find(|s| s.entry.name == name);
            let slot = slot.ok_or_else(|| no_drive(name))?;
            let Some(drive) = &slot.drive else {
                let text = format!("drive '{name}' is pulled already");
                return Err(Error::new(ErrorKind::Exists, text));
            };
            let drive = Arc::clone(drive);
            keep_pulled(&mut machine, name, true)?;
            slot.drive = None;
            slot.entry.is_pulled = true;
            drive
        };
        drive.power_cut(self.seed)?;
        drive.close()
    }

    /// Puts a pulled drive back in.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Exists`] if it is in.
    pub fn push(&self, name: &str) -> Result<()> {
        let mut machine = self.machine.lock();
        let mut slots = self.slots.lock();
        let slot = slots.iter_mut().find(|s| s.entry.name == name);
        let slot = slot.ok_or_else(|| no_drive(name))?;
        if slot.drive.is_some() {
            let text = format!("drive '{name}' is connected already");
            return Err(Error::new(ErrorKind::Exists, text));
        }
        let drive = open(&machine, &slot.entry)?;
        keep_pulled(&mut machine, name, false)?;
        slot.drive = Some(drive);
        slot.entry.is_pulled = false;
        Ok(())
    }

    /// Connects a drive to another bus; it loses power meanwhile, so what only its cache holds may be lost.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::InvalidInput`] if such a drive cannot be on that bus.
    pub fn move_to(&self, name: &str, bus: Bus) -> Result<()> {
        self.machine.lock().description.set_bus(name, bus)?;
        let is_in = match self.pull(name) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::Exists => false,
            Err(error) => return Err(error),
        };
        {
            let machine = self.machine.lock();
            machine.description.save()?;
            let moved = machine.description.drive(name).cloned();
            let mut slots = self.slots.lock();
            let slot = slots.iter_mut().find(|s| s.entry.name == name);
            if let (Some(slot), Some(entry)) = (slot, moved) {
                slot.entry = entry;
            }
        }
        if is_in { self.push(name) } else { Ok(()) }
    }

    /// Writes back what is on the drives, and the clock.
    pub(crate) fn stop(&self) -> Result<()> {
        let mut outcome = Ok(());
        for drive in self.drives() {
            outcome = outcome.and(drive.close());
        }
        let mut machine = self.machine.lock();
        let outcome = outcome.and(machine.save_clock(rt::now_ns()));
        outcome.map_err(|error| {
            if error.kind() != ErrorKind::NoSpace {
                return error;
            }
            let folder = machine.folder().display();
            error.within(format_args!(
                "machine '{folder}': the file system that holds it is full"
            ))
        })
    }
}

/// Saves that a drive is pulled or not; if that fails, the description is as before.
fn keep_pulled(machine: &mut Machine, name: &str, is_pulled: bool) -> Result<()> {
    machine.description.set_pulled(name, is_pulled)?;
    let saved = machine.description.save();
    if saved.is_err() {
        machine.description.set_pulled(name, !is_pulled)?;
    }
    saved
}

impl World {
    /// Cuts the power of a machine: the seed decides which of the data in the drives' caches is lost;
    /// transient layers are gone.
    ///
    /// # Errors
    /// Errors of saving the layers.
    pub fn power_cut(&self, seed: u64) -> Result<()> {
        for (drive, number) in self.drives().iter().zip(0..) {
            drive.power_cut(seed.wrapping_add(number))?;
        }
        self.lose_layers()
    }

    /// Switches a machine off in order, as its operating system does: the drives write what is in their caches, and
    /// lose their power; transient layers are gone. No provider is to be used from then on.
    ///
    /// # Errors
    /// The first error of a drive, which is switched off nevertheless; errors of saving the layers.
    pub fn switch_off(&self) -> Result<()> {
        let mut outcome = Ok(());
        for drive in self.drives() {
            outcome = outcome.and(drive.flush()).and(drive.power_cut(0));
        }
        outcome.and(self.lose_layers())
    }
}

fn open(machine: &Machine, entry: &DriveEntry) -> Result<Arc<Emulated>> {
    let name = &entry.name;
    let number = name.bytes().fold(machine.description.seed, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let identity = Identity {
        size_bytes: entry.size,
        serial: entry.serial.clone(),
        ..Identity::default()
    };
    let profile = Arc::clone(&entry.profile);
    Emulated::open(&machine.drives(), name, profile, &identity, number)
}
