//! Ailing devices, and their cure.

use std::sync::Arc;

use base::ErrorKind;
use faulty::Damage;
use vdev::{Vdev, VdevKind};

use super::bench::Bench;
use super::step::{Kind, Step};
use crate::Dice;

pub(super) const KINDS: &[Kind] = &[
    Kind::new("offline", 14, |bench, step| {
        bench.ail(step, Ailment::Offline)
    }),
    // It dies in the middle of its writes.
    Kind::new("lose", 14, |bench, step| bench.ail(step, Ailment::Lost)),
    Kind::new("rot", 14, |bench, step| bench.ail(step, Ailment::Rotten)),
    Kind::new("unreadable", 14, |bench, step| {
        bench.ail(step, Ailment::Unreadable)
    }),
    Kind::new("unwritable", 12, |bench, step| {
        bench.ail(step, Ailment::Unwritable)
    }),
    // Brings devices back, repairs, resilvers and scrubs.
    Kind::new("cure", 36, |bench, _| bench.cure()),
];

/// What a device suffers from.
#[derive(Clone, Copy, PartialEq)]
enum Ailment {
    Offline,
    Lost,
    Rotten,
    Unreadable,
    Unwritable,
}

/// The most ranges of a device that one step damages, and the most bytes of each.
const PLACES_MAX: u64 = 40;
const PLACE_BYTES_MAX: u64 = 1 << 20;
/// A device to be lost executes fewer than this many more writes and flushes.
const COMMANDS_LEFT_MAX: u64 = 40;
/// A device that has not caught up after this many resilvers never will.
const RESILVERS_MAX: usize = 10;

impl Bench {
    /// Makes one device ail, if the pool can do without it.
    fn ail(&mut self, step: &Step, ailment: Ailment) -> bool {
        let Some(vdev) = self.that_may_ail(step.pick, ailment) else {
            return false;
        };
        let name = vdev.name();
        self.ailing = Some(name.clone());
        let mut dice = Dice::new(step.seed);
        match ailment {
            Ailment::Offline => return self.offline(&vdev, &mut dice),
            Ailment::Lost => {
                let left = dice.below(COMMANDS_LEFT_MAX);
                let disk = self.disks.named(&name).expect("it is in the tree");
                disk.fault.kill_after(left);
            }
            _ => self.damage(&name, ailment, &mut dice),
        }
        true
    }

    /// The device that ails, or one that the pool can do without. What only a checkpoint refers to is neither
    /// scrubbed nor resilvered, and what moves is not verified.
    fn that_may_ail(&self, pick: u64, ailment: Ailment) -> Option<Arc<Vdev>> {
        let spa = self.spa();
        let tree = spa.parts().tree();
        let devices = tree.devices();
        if let Some(name) = &self.ailing {
            let found = devices.iter().find(|vdev| vdev.name() == *name).cloned();
            return found.filter(|_| !self.is_moving());
        }
        let is_behind = self.is_behind();
        let is_absence = matches!(ailment, Ailment::Offline | Ailment::Lost);
        if self.has_checkpoint() || is_behind || self.is_moving() && !is_absence {
            return None;
        }
        let devices = self.devices();
        let vdev = &devices[(pick % devices.len() as u64) as usize];
        let (_, top) = tree.find_device(vdev.guid()).expect("it is in the tree");
        (top.kind().has_parity() || top.kind() == VdevKind::Mirror).then(|| vdev.clone())
    }

    fn is_behind(&self) -> bool {
        let devices = self.spa().parts().tree().devices();
        devices.iter().any(|vdev| vdev.leaf().has_dtl()) || self.spa().is_rebuilding()
    }

    /// Whether blocks are copied to other places.
    pub(super) fn is_moving(&self) -> bool {
        let spa = self.spa();
        spa.is_removing() || spa.parts().tree().expanding().is_some()
    }

    fn offline(&mut self, vdev: &Vdev, dice: &mut Dice) -> bool {
        if !vdev.leaf().is_usable() {
            return false;
        }
        let temporarily = dice.once_in(2);
        let mut taken = self.spa().parts().tree().offline(vdev.guid(), temporarily);
        if taken.as_ref().is_err_and(|e| e.kind() == ErrorKind::Busy) && self.is_behind() {
            // The power failed among the uberblocks: what has an older one may lack something, until it is resilvered.
            self.catch_up();
            // A device that was being replaced is gone when the other has caught up.
            let is_gone = self.spa().parts().tree().find_device(vdev.guid()).is_err();
            if self.is_behind() || is_gone {
                return false;
            }
            taken = self.spa().parts().tree().offline(vdev.guid(), temporarily);
        }
        taken.unwrap_or_else(|e| panic!("{}: offline: {e}", self.name));
        if !temporarily {
            let noted = self.spa().config_changed();
            noted.unwrap_or_else(|e| panic!("{}: offline: {e}", self.name));
        }
        true
    }

    fn damage(&mut self, name: &str, ailment: Ailment, dice: &mut Dice) {
        let disk = self.disks.named(name).expect("it is in the tree");
        let data = disk.data();
        let fault = &disk.fault;
        for _ in 0..1 + dice.below(PLACES_MAX) {
            let sector = 4096;
            let from = dice.below((data.end - data.start) / sector) * sector + data.start;
            let bytes = (1 + dice.below(PLACE_BYTES_MAX / sector)) * sector;
            let place = from..data.end.min(from + bytes);
            match ailment {
                Ailment::Unreadable => fault.damage(place, Damage::ReadError),
                Ailment::Unwritable => fault.damage(place, Damage::WriteError),
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
        // No power cut takes the repair back.
        self.forget();
        self.ailing.take().is_some()
    }

    fn scrub(&mut self) {
        let begun = self.spa().scrub();
        begun.unwrap_or_else(|e| panic!("{}: scrub: {e}", self.name));
    }

    /// Brings back every device, and resilvers until none misses anything but what only a checkpoint refers to.
    ///
    /// # Panics
    /// When a device never catches up.
    pub(super) fn catch_up(&mut self) {
        self.bring_back();
        let spa = self.spa().clone();
        let behind = || {
            let devices = spa.parts().tree().devices().into_iter();
            let behind = devices.filter(|vdev| vdev.leaf().has_dtl());
            behind.map(|vdev| (vdev.name(), vdev.leaf().dtl()))
        };
        for _ in 0..RESILVERS_MAX {
            self.sync();
            let begun = spa.resilver_if_needed();
            begun.unwrap_or_else(|e| panic!("{}: resilver: {e}", self.name));
            let rebuilt = spa.wait_rebuild(&mut |_, _| true);
            rebuilt.unwrap_or_else(|e| panic!("{}: rebuild: {e}", self.name));
            let is_resilver = spa.scan_running() == Some(scan::Kind::Resilver);
            if !is_resilver && (behind().next().is_none() || self.has_checkpoint()) {
                self.forget();
                return;
            }
            self.wait_scan();
        }
        let behind: Vec<_> = behind().collect();
        panic!("{}: {behind:?} never caught up", self.name);
    }

    /// Whether there is a checkpoint, or one is being discarded.
    fn has_checkpoint(&self) -> bool {
        let checkpoint = self.spa().checkpoint();
        checkpoint.expect("the MOS can be read").is_some()
    }

    fn bring_back(&mut self) {
        for disk in self.disks.all() {
            disk.fault.revive();
            disk.fault.heal();
        }
        let spa = self.spa().clone();
        let providers = self.disks.providers();
        for vdev in spa.parts().tree().devices() {
            let name = vdev.name();
            let provider = providers.iter().find(|provider| provider.name() == name);
            if let Some(provider) = provider.filter(|_| !vdev.leaf().is_usable()).cloned() {
                let back = spa.parts().tree().online(vdev.guid(), provider);
                back.unwrap_or_else(|e| panic!("{}: online: {e}", self.name));
            }
        }
        let resumed = spa.resume().and_then(|()| spa.config_changed());
        resumed.unwrap_or_else(|e| panic!("{}: clear: {e}", self.name));
    }
}
