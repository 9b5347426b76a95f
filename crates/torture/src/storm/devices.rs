//! Devices are attached, detached and replaced.

use std::sync::Arc;

use base::ErrorKind;
use spa::Resilver;
use vdev::{Attach, AutoAshift, NewDevice, Vdev, VdevKind};

use super::bench::Bench;
use super::step::{Kind, Step};
use crate::Dice;

/// The most sides of a mirror.
const SIDES_MAX: usize = 4;
/// Why a device or spare may not come or go now: another change is going on, there is a checkpoint, the vdev takes
/// none, it is in use, or there is no space for what has to be noted.
pub(super) const NOT_NOW: &[ErrorKind] = &[
    ErrorKind::Exists,
    ErrorKind::Busy,
    ErrorKind::Unsupported,
    ErrorKind::NoSpace,
];

pub(super) const KINDS: &[Kind] = &[
    // One more side of a mirror, resilvered in either way.
    Kind::new("attach", 14, |bench, step| bench.attach(step, Attach::Side)),
    Kind::new("replace", 16, |bench, step| {
        bench.attach(step, Attach::Replacement)
    }),
    Kind::new("detach", 12, Bench::detach),
    // The device that ails goes, and another one takes its place.
    Kind::new("replace-ailing", 30, Bench::replace_ailing),
];

impl Bench {
    /// An empty device as large as the largest that the pool has.
    pub(super) fn new_device(&mut self) -> NewDevice {
        let provider = self.disks.insert(self.disks.largest_bytes());
        NewDevice {
            kind: VdevKind::Disk,
            path: provider.name().to_owned(),
            provider,
        }
    }

    /// The ashift of all vdevs.
    pub(super) fn sectors(&self) -> (u32, AutoAshift) {
        (self.spec.ashift as u32, AutoAshift::default())
    }

    /// The devices in the tree, but for distributed spares, which are made of others.
    pub(super) fn devices(&self) -> Vec<Arc<Vdev>> {
        let mut devices = self.spa().parts().tree().devices();
        devices.retain(|vdev| self.disks.named(&vdev.name()).is_some());
        devices
    }

    fn any_device(&self, pick: u64) -> Arc<Vdev> {
        let devices = self.devices();
        devices[(pick % devices.len() as u64) as usize].clone()
    }

    fn attach(&mut self, step: &Step, how: Attach) -> bool {
        if self.ailing.is_some() || !self.disks.have_room_for(1) {
            return false;
        }
        let beside = self.any_device(step.pick);
        let found = self.spa().parts().tree().find_device(beside.guid());
        let (_, top) = found.expect("it is in the tree");
        if how == Attach::Side && top.children().len() >= SIDES_MAX {
            return false;
        }
        let resilver = match Dice::new(step.seed).below(2) {
            0 => Resilver::Healing,
            _ => Resilver::Sequential,
        };
        let new = self.new_device();
        let (spa, sectors) = (self.spa().clone(), self.sectors());
        let attached = spa.attach_with(beside.guid(), &new, how, sectors, resilver);
        self.has_worked(step.act.word(), attached, NOT_NOW)
    }

    fn detach(&mut self, step: &Step) -> bool {
        if self.ailing.is_some() {
            return false;
        }
        let device = self.any_device(step.pick);
        let detached = self.spa().detach(device.guid());
        self.has_worked("detach", detached, NOT_NOW)
    }

    fn replace_ailing(&mut self, step: &Step) -> bool {
        let devices = self.spa().parts().tree().devices();
        let old = devices
            .iter()
            .find(|vdev| self.ailing == Some(vdev.name()))
            .cloned();
        let Some(old) = old else { return false };
        let new = self.new_device();
        let (spa, sectors) = (self.spa().clone(), self.sectors());
        let attached = spa.attach(old.guid(), &new, Attach::Replacement, sectors);
        if !self.has_worked(step.act.word(), attached, NOT_NOW) {
            return false;
        }
        self.wait_scan();
        // The old one goes in the txg after the one in which the new one became complete.
        self.sync();
        self.sync();
        if self.members().contains(&old.name()) {
            return false;
        }
        self.ailing = None;
        self.catch_up();
        true
    }
}
