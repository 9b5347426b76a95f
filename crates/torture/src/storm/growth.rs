//! Devices that get larger.

use base::ErrorKind;
use phys::PropValue;

use super::bench::Bench;
use super::step::{Kind, Step};

pub(super) const KINDS: &[Kind] = &[
    // All devices grow while the pool is exported; `autoexpand`, or `zpool online -e`.
    Kind::new("grow", 8, Bench::grow),
];

impl Bench {
    fn grow(&mut self, step: &Step) -> bool {
        if self.ailing.is_some() || !self.disks.may_grow(step.amount << 20) {
            return false;
        }
        let on = PropValue::Number(step.seed % 2);
        let set = self.spa().set_prop("autoexpand", on);
        self.has_worked("autoexpand", set, &[ErrorKind::NoSpace]);
        self.export();
        self.disks.grow(step.amount << 20);
        self.open();
        let expanded = self.spa().expand(&|_| true);
        let has_grown = *expanded.as_ref().unwrap_or(&false);
        self.has_worked("grow", expanded.map(drop), &[ErrorKind::NoSpace]);
        // The space is usable when the pool is next opened.
        self.export();
        self.open();
        self.forget();
        has_grown
    }
}
