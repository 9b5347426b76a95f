//! RAID-Zs get wider.

use base::ErrorKind;
use vdev::VdevKind;

use super::bench::Bench;
use super::step::{Kind, Step};

/// The most devices of a RAID-Z.
const CHILDREN_MAX: usize = 7;
/// Why a RAID-Z may not be expanded now: another change is going on, there is a checkpoint, a device is being replaced,
/// or there is no space.
const NOT_NOW: &[ErrorKind] = &[ErrorKind::Exists, ErrorKind::Busy, ErrorKind::NoSpace];

pub(super) const KINDS: &[Kind] = &[
    Kind::new("widen", 20, Bench::widen),
    // Waits until no RAID-Z is being expanded; begins to if none is.
    Kind::new("finish-widening", 6, Bench::finish_widening),
];

impl Bench {
    fn widen(&mut self, step: &Step) -> bool {
        let mut tops = self.spa().parts().tree().tops();
        tops.retain(|top| matches!(top.kind(), VdevKind::RaidZ { .. }));
        let Some(at) = step.pick.checked_rem(tops.len() as u64) else {
            return false;
        };
        let top = &tops[at as usize];
        if top.children().len() >= CHILDREN_MAX
            || self.ailing.is_some()
            || !self.disks.have_room_for(1)
        {
            return false;
        }
        let new = self.new_device();
        let (spa, sectors) = (self.spa().clone(), self.sectors());
        let begun = spa.widen(top.guid(), &new, sectors);
        self.has_worked("widen", begun, NOT_NOW)
    }

    fn finish_widening(&mut self, step: &Step) -> bool {
        // It pauses while a device is missing.
        if self.ailing.is_some() {
            return false;
        }
        if self.spa().parts().tree().expanding().is_none() && !self.widen(step) {
            return false;
        }
        let waited = self.spa().wait_expansion(&mut |_, _| true);
        self.has_worked("finish-widening", waited, &[])
    }
}
