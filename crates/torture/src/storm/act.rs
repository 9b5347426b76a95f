//! Which kinds of steps there are, and how one is carried out.

use super::bench::Bench;
use super::step::{Kind, Step};
use super::{
    checkpoints, cloning, cuts, datasets, devices, expansion, faults, files, full, growth,
    identity, plain, removal, rewriting, scans, spares, suspension, sweeps,
};

/// Every kind of step, by the module that does it.
pub(super) const KINDS: [&[Kind]; 18] = [
    files::KINDS,
    cloning::KINDS,
    rewriting::KINDS,
    datasets::KINDS,
    plain::KINDS,
    scans::KINDS,
    faults::KINDS,
    suspension::KINDS,
    full::KINDS,
    cuts::KINDS,
    devices::KINDS,
    removal::KINDS,
    expansion::KINDS,
    growth::KINDS,
    identity::KINDS,
    spares::KINDS,
    checkpoints::KINDS,
    sweeps::KINDS,
];

impl Bench {
    /// Carries out a step; returns whether there was something to do.
    pub(super) fn act(&mut self, step: &Step) -> bool {
        let is_done = step.act.act(self, step);
        self.take_stock();
        is_done
    }
}
