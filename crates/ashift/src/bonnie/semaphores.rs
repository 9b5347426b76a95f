//! Semaphores of runs: those of this host, or of the machine.

use base::{Error, Result};
use bonnie::semaphores::{HostSemaphores, KEY, Semaphores};
use bonnie::{TESTS, Test};

/// How long a run in a machine waits before it looks whether it was interrupted.
const LOOK_NS: u64 = 1_000_000_000;

/// Where the semaphores of this command's runs are.
pub(super) fn semaphores() -> Box<dyn Semaphores> {
    match crate::world::is_machine() {
        true => Box::new(OfMachine),
        false => Box::new(HostSemaphores),
    }
}

struct OfMachine;

fn gone() -> Error {
    Error::not_found(
        "Can't get semaphore ID: `bonnie++ -p` makes them, and they are there until the machine is switched off: \
         `ashift machine up` keeps it on, and `ashift sh` runs several commands",
    )
}

impl OfMachine {
    fn with<T>(use_it: impl FnOnce(&machine::Semaphores) -> T) -> T {
        let world = crate::world::entered();
        let running = world.running();
        use_it(running.expect("a machine runs").semaphores())
    }
}

impl Semaphores for OfMachine {
    fn make(&self, runs: u16) -> Result<()> {
        OfMachine::with(|semaphores| semaphores.make(KEY, TESTS, runs));
        Ok(())
    }

    fn remove(&self) -> Result<()> {
        let is_removed = OfMachine::with(|semaphores| semaphores.remove(KEY));
        is_removed.then_some(()).ok_or_else(gone)
    }

    fn find(&self) -> Result<()> {
        let value = OfMachine::with(|semaphores| semaphores.value(KEY, 0));
        value.map(drop).ok_or_else(gone)
    }

    fn come_to(&self, test: Test, is_interrupted: &mut dyn FnMut() -> bool) -> Result<()> {
        let at = test as usize;
        OfMachine::with(|semaphores| {
            if !semaphores.take(KEY, at) {
                let text = "more runs than the semaphores were made for";
                return Err(Error::invalid(text));
            }
            loop {
                semaphores.wait_for_zero(KEY, at, LOOK_NS);
                match semaphores.value(KEY, at) {
                    Some(0) => return Ok(()),
                    None => return Err(Error::not_found("the semaphores were removed")),
                    Some(_) if is_interrupted() => return Ok(()),
                    Some(_) => {}
                }
            }
        })
    }
}
