//! Steps that wait, look, or close and open the pool.

use super::bench::Bench;
use super::step::{Kind, Step};

const SECOND_NS: u64 = 1_000_000_000;
const DAY_SECS: i64 = 86_400;
/// The longest idle step, in ms.
const IDLE_MS_MAX: u64 = 120_000;
/// The word of idle steps.
const IDLE: &str = "idle";

pub(super) const KINDS: &[Kind] = &[
    // Waits until everything is on disk.
    Kind::new("sync", 30, |bench, _| {
        bench.sync();
        true
    }),
    // Nothing happens for a while: so many milliseconds.
    Kind::new(IDLE, 165, |_, step| {
        rt::sleep_ns(step.amount * (SECOND_NS / 1000));
        true
    })
    .with_amount(|dice| {
        let shortened = dice.below(8);
        1 + dice.below(IDLE_MS_MAX >> shortened)
    }),
    // Steps the wall clock forward or back: so many days.
    Kind::new("clock", 10, |_, step| {
        let secs = step.amount as i64 * DAY_SECS;
        let is_forward = step.seed.is_multiple_of(2);
        rt::step_wall_clock(if is_forward { secs } else { -secs });
        true
    })
    .with_amount(|dice| 1 + dice.below(400)),
    // Exports and imports the pool.
    Kind::new("export", 20, |bench, _| {
        bench.export();
        bench.open();
        true
    }),
    // Compares everything with the model, and runs the checker.
    Kind::new("check", 12, |bench, _| {
        bench.check();
        true
    }),
];

/// For how many milliseconds the step does nothing.
pub(super) fn idle_ms(step: &Step) -> u64 {
    if step.act.word() == IDLE {
        step.amount
    } else {
        0
    }
}

impl Bench {
    /// Compares everything with the model, and runs the checker.
    ///
    /// # Panics
    /// With what is wrong.
    pub(super) fn check(&mut self) {
        self.wait_scan();
        let (world, session) = self.both();
        world.compare(session);
        self.sync();
        self.assert_clean();
    }
}
