//! Top-level vdevs are added and removed.

use base::ErrorKind;
use vdev::{AuxSpec, Grouping, NewDevice, TopSpec, VdevKind};
use zio::AllocClass;

use super::bench::Bench;
use super::step::{Kind, Step};
use crate::Dice;
use crate::pool::Layout;

/// The most top-level vdevs with devices, and the most that were removed.
const TOPS_MAX: usize = 5;
const REMOVED_MAX: usize = 6;
/// Why a vdev may not be added or removed now: another change is going on, there is a checkpoint, others have parity,
/// it is the last one, there is no space, or an intent log cannot be given up without its key.
const NOT_NOW: &[ErrorKind] = &[
    ErrorKind::Exists,
    ErrorKind::Busy,
    ErrorKind::InvalidInput,
    ErrorKind::Unsupported,
    ErrorKind::NoSpace,
    ErrorKind::NoKey,
];

pub(super) const KINDS: &[Kind] = &[
    // A vdev of any class, or a cache.
    Kind::new("add", 14, Bench::add),
    Kind::new("remove", 30, Bench::remove),
    // Both of these begin one first if none runs; the latter waits until no vdev is being removed.
    Kind::new("cancel-remove", 8, Bench::cancel_remove),
    Kind::new("finish-remove", 8, Bench::finish_remove),
];

impl Bench {
    fn add(&mut self, step: &Step) -> bool {
        let tops = self.spa().parts().tree().tops();
        let count = tops.iter().filter(|top| top.kind().is_concrete()).count();
        if count >= TOPS_MAX
            || tops.len() - count >= REMOVED_MAX
            || self.ailing.is_some()
            || !self.disks.have_room_for(self.width())
        {
            return false;
        }
        let mut dice = Dice::new(step.seed);
        let (mut specs, mut aux) = (Vec::new(), AuxSpec::default());
        match dice.below(12) {
            0 if self.spa().caches().is_empty() => aux.caches.push(self.new_device()),
            2 => specs.push(self.spec_of(AllocClass::Log)),
            3 => specs.push(self.spec_of(AllocClass::Special)),
            4 => specs.push(self.spec_of(AllocClass::Dedup)),
            _ => specs.push(self.spec_of(AllocClass::Normal)),
        }
        let (spa, sectors) = (self.spa().clone(), self.sectors());
        let added = spa.add(&specs, &aux, sectors, true);
        self.has_worked("add", added, NOT_NOW)
    }

    /// The most devices that an added vdev has.
    fn width(&self) -> u64 {
        match self.spec.layout {
            Layout::Stripe | Layout::Classes => 1,
            Layout::Mirror | Layout::Draid(..) => 2,
            Layout::Raidz(parity) => parity + 2,
        }
    }

    /// A vdev as redundant as the others, if it can be.
    fn spec_of(&mut self, class: AllocClass) -> TopSpec<NewDevice> {
        let (grouping, count) = match self.spec.layout {
            Layout::Stripe | Layout::Classes => (Grouping::Single, 1),
            Layout::Raidz(parity) if class == AllocClass::Normal => {
                (Grouping::Raidz { parity }, parity + 2)
            }
            Layout::Mirror | Layout::Raidz(_) | Layout::Draid(..) => (Grouping::Mirror, 2),
        };
        let devices = (0..count).map(|_| self.new_device()).collect();
        TopSpec {
            class,
            ..TopSpec::new(grouping, devices)
        }
    }

    fn remove(&mut self, step: &Step) -> bool {
        let tops = self.spa().parts().tree().tops();
        let present: Vec<_> = tops.iter().filter(|top| top.kind().is_concrete()).collect();
        let removed = tops.iter().filter(|top| top.kind() == VdevKind::Indirect);
        // A cache goes at once.
        let spa = self.spa().clone();
        if step.seed.is_multiple_of(8)
            && let Some((cache, _)) = spa.caches().first()
        {
            let gone = spa.remove_cache(cache.guid());
            return self.has_worked("remove a cache", gone, NOT_NOW);
        }
        if self.ailing.is_some() || removed.count() >= REMOVED_MAX {
            return false;
        }
        // The last one stays.
        if present.len() == 1
            && !present[0].kind().has_parity()
            && self.disks.have_room_for(self.width())
        {
            let another = self.spec_of(AllocClass::Normal);
            let added = spa.add(&[another], &AuxSpec::default(), self.sectors(), true);
            if !self.has_worked("add", added, NOT_NOW) {
                return false;
            }
        }
        let top = present[(step.pick % present.len() as u64) as usize];
        let begun = spa.remove(top.guid());
        self.has_worked("remove", begun, NOT_NOW)
    }

    fn cancel_remove(&mut self, step: &Step) -> bool {
        if !self.spa().is_removing() && !self.remove(step) {
            return false;
        }
        // The removal may end meanwhile.
        let given_up = self.spa().cancel_remove();
        self.has_worked("cancel-remove", given_up, &[ErrorKind::NotFound])
    }

    fn finish_remove(&mut self, step: &Step) -> bool {
        if !self.spa().is_removing() && !self.remove(step) {
            return false;
        }
        let waited = self.spa().wait_removal(&mut |_| true);
        self.has_worked("finish-remove", waited, &[])
    }
}
