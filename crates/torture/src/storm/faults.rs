//! Ailing devices, and their cure.

use faulty::Damage;
use scan::Kind;

use super::bench::Bench;
use super::step::{Act, Step};
use crate::Dice;

/// The most ranges of a device that one step damages, and the most bytes of each.
const PLACES_MAX: u64 = 40;
const PLACE_BYTES_MAX: u64 = 1 << 20;
/// A device to be lost executes fewer than this many more writes and flushes.
const COMMANDS_LEFT_MAX: u64 = 40;
/// A device that has not caught up after this many resilvers never will.
const RESILVERS_MAX: usize = 10;

impl Bench {
    /// Makes one device ail, if the pool can do without it.
    pub(super) fn ail(&mut self, step: &Step) -> bool {
        let device = (step.pick % self.spec.devices) as usize;
        if !self.spec.is_redundant() || self.ailing.is_some_and(|ailing| ailing != device) {
            return false;
        }
        self.ailing = Some(device);
        let mut dice = Dice::new(step.seed);
        match step.act {
            Act::Offline => return self.offline(device, &mut dice),
            Act::Lose => {
                let left = dice.below(COMMANDS_LEFT_MAX);
                self.disks.all()[device].fault.kill_after(left);
            }
            _ => self.damage(device, step.act, &mut dice),
        }
        true
    }

    fn offline(&mut self, device: usize, dice: &mut Dice) -> bool {
        let vdev = self.spa().parts().tree().devices()[device].clone();
        if !vdev.leaf().is_usable() {
            return false;
        }
        let temporarily = dice.once_in(2);
        let taken = self.spa().parts().tree().offline(vdev.guid(), temporarily);
        taken.unwrap_or_else(|e| panic!("{}: offline: {e}", self.name));
        if !temporarily {
            let noted = self.spa().config_changed();
            noted.unwrap_or_else(|e| panic!("{}: offline: {e}", self.name));
        }
        true
    }

    fn damage(&mut self, device: usize, act: Act, dice: &mut Dice) {
        let data = self.disks.data();
        let fault = &self.disks.all()[device].fault;
        for _ in 0..1 + dice.below(PLACES_MAX) {
            let sector = 4096;
            let from = dice.below((data.end - data.start) / sector) * sector + data.start;
            let bytes = (1 + dice.below(PLACE_BYTES_MAX / sector)) * sector;
            let place = from..data.end.min(from + bytes);
            match act {
                Act::Unreadable => fault.damage(place, Damage::ReadError),
                Act::Unwritable => fault.damage(place, Damage::WriteError),
                // Rot changes the medium itself, below every layer that could notice.
                _ => {
                    let junk = dice.bytes((place.end - place.start) as usize);
                    let written = fault.pristine().write(place.start, &junk);
                    written.expect("a RAM disk takes it");
                }
            }
        }
    }

    /// Repairs the ailing device, has it catch up, and scrubs; no error may be left.
    ///
    /// # Panics
    /// When one is left.
    pub(super) fn cure(&mut self) -> bool {
        self.catch_up();
        let spa = self.spa().clone();
        if spa.is_scan_paused() {
            self.scrub();
        }
        self.wait_scan();
        if spa.scan_running().is_none() {
            self.scrub();
        }
        self.wait_scan();
        let scan = spa.scan().expect("it was scrubbed just now");
        assert_eq!(scan.errors.get(), 0, "{}: {scan:?}", self.name);
        self.sync();
        let damaged = spa.damaged().expect("the error log can be read");
        assert!(damaged.is_empty(), "{}: {damaged:?} are lost", self.name);
        self.ailing.take().is_some()
    }

    fn scrub(&mut self) {
        let begun = self.spa().scrub();
        begun.unwrap_or_else(|e| panic!("{}: scrub: {e}", self.name));
    }

    /// Brings back every device, and resilvers until none misses anything.
    ///
    /// # Panics
    /// When a device never catches up.
    pub(super) fn catch_up(&mut self) {
        for disk in self.disks.all() {
            disk.fault.revive();
            disk.fault.heal();
        }
        let spa = self.spa().clone();
        let providers = self.disks.providers();
        for (vdev, provider) in spa.parts().tree().devices().iter().zip(providers) {
            if !vdev.leaf().is_usable() {
                let back = spa.parts().tree().online(vdev.guid(), provider);
                back.unwrap_or_else(|e| panic!("{}: online: {e}", self.name));
            }
        }
        let resumed = spa.resume().and_then(|()| spa.config_changed());
        resumed.unwrap_or_else(|e| panic!("{}: clear: {e}", self.name));
        for _ in 0..RESILVERS_MAX {
            self.sync();
            let begun = spa.resilver_if_needed();
            begun.unwrap_or_else(|e| panic!("{}: resilver: {e}", self.name));
            let is_resilver = spa.scan_running() == Some(Kind::Resilver);
            let devices = spa.parts().tree().devices();
            if !is_resilver && !devices.iter().any(|vdev| vdev.leaf().has_dtl()) {
                self.forget();
                return;
            }
            self.wait_scan();
        }
        let devices = spa.parts().tree().devices();
        let stale = devices.iter().filter(|vdev| vdev.leaf().has_dtl());
        let stale: Vec<_> = stale.map(|vdev| (vdev.name(), vdev.leaf().dtl())).collect();
        panic!("{}: {stale:?} never caught up", self.name);
    }
}
