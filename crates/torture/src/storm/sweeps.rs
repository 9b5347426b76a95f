//! Free space is overwritten, or deleted on the devices.

use base::ErrorKind;
use phys::PropValue;
use spa::{SweepAction, SweepKind, TrimOptions};

use super::bench::Bench;
use super::step::{Kind, Step};
use crate::Dice;

pub(super) const KINDS: &[Kind] = &[
    // Each of these begins, pauses, goes on, or is given up.
    Kind::new("initialize", 12, |bench, step| {
        bench.sweep(step, SweepKind::Initialize)
    }),
    Kind::new("trim", 12, |bench, step| bench.sweep(step, SweepKind::Trim)),
    // On or off.
    Kind::new("autotrim", 6, |bench, step| {
        let on = PropValue::Number(step.seed % 2);
        let set = bench.spa().set_prop("autotrim", on);
        bench.has_worked("autotrim", set, &[ErrorKind::NoSpace])
    }),
];

impl Bench {
    fn sweep(&mut self, step: &Step, kind: SweepKind) -> bool {
        let spa = self.spa().clone();
        let devices = spa.parts().tree().devices();
        let device = &devices[(step.pick % devices.len() as u64) as usize];
        let mut dice = Dice::new(step.seed);
        let action = match dice.below(8) {
            0 => SweepAction::Suspend,
            1 => SweepAction::Cancel,
            _ => SweepAction::Start(TrimOptions {
                rate: [0, 8 << 20][dice.below(2) as usize],
                secure: false,
            }),
        };
        let refused = spa.sweep(kind, &[device.guid()], action);
        let is_done = refused.as_ref().is_ok_and(Vec::is_empty);
        self.has_worked(step.act.word(), refused.map(drop), &[]) && is_done
    }
}
