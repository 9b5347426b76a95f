//! A pool gets another guid, or one side of each of its mirrors becomes a pool of its own.

use base::{ErrorKind, Guid};
use vdev::{Vdev, VdevKind};
use zio::AllocClass;

use super::bench::{Bench, settings};
use super::step::{Kind, Step};
use crate::filesystems::Session;
use crate::pool;

/// Why that may not be now: there is a checkpoint, another change is going on, a device is not online, not all
/// vdevs are mirrors, there is no space, or an intent log cannot be given up without its key.
const NOT_NOW: &[ErrorKind] = &[
    ErrorKind::Exists,
    ErrorKind::Busy,
    ErrorKind::NotFound,
    ErrorKind::InvalidInput,
    ErrorKind::NoSpace,
    ErrorKind::NoKey,
];

pub(super) const KINDS: &[Kind] = &[
    Kind::new("reguid", 10, |bench, _| {
        let changed = bench.spa().change_guid(None);
        bench.has_worked("reguid", changed, NOT_NOW)
    }),
    // The new pool is compared, checked and left behind.
    Kind::new("split", 14, Bench::split),
];

impl Bench {
    fn split(&mut self, step: &Step) -> bool {
        let mut tops = self.spa().parts().tree().tops();
        tops.retain(|top| top.kind().is_concrete() && top.config().class() != AllocClass::Log);
        if self.ailing.is_some() || tops.iter().any(|top| top.kind() != VdevKind::Mirror) {
            return false;
        }
        let side = |top: &Vdev| {
            let children = top.children();
            children[(step.pick % children.len() as u64) as usize].guid()
        };
        let sides: Vec<Guid> = tops.iter().map(|top| side(top)).collect();
        // It keeps nothing that is only in intent logs, and no file without a name.
        self.log_all();
        let split = self
            .spa()
            .split(&self.name, &sides, settings(), &|_| Ok(()));
        let half = match split {
            Ok(half) => half,
            Err(e) => return self.has_worked("split", Err(e), NOT_NOW),
        };
        let mut world = self.world.clone();
        world.kept = None;
        let mut session = Session::new(half);
        world.forget_holds();
        world.compare(&mut session);
        let closed = world.close(session);
        closed.unwrap_or_else(|e| panic!("{}: what was split off: {e}", self.name));
        let devices = self.members();
        let providers = self.disks.providers().into_iter();
        let split_off: Vec<_> = providers
            .filter(|provider| !devices.contains(provider.name()))
            .collect();
        pool::verify_with_zdb(&split_off, &self.name);
        // Its devices are still as those of the pool: they are taken away at once.
        self.forget();
        true
    }
}
