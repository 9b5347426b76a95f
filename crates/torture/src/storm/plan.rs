//! Draws a script from a seed.
//!
//! Uses only random numbers: what a step finds is not known before it is carried out.

use super::plain;
use super::script::{PoolSpec, Script};
use super::step::{Act, Step};
use crate::Dice;
use crate::pool::Layout;

/// A script that idles for at least this many simulated hours.
#[must_use]
pub fn plan(seed: u64, hours: f64) -> Script {
    let mut dice = Dice::new(seed);
    let pools = (0..1 + dice.below(3))
        .map(|_| any_pool(&mut dice))
        .collect();
    let (mut steps, mut waited_ms) = (Vec::new(), 0);
    let wanted_ms = (hours * 3_600_000.0) as u64;
    while waited_ms < wanted_ms {
        let step = any_step(&mut dice);
        waited_ms += plain::idle_ms(&step);
        steps.push(step);
    }
    Script {
        seed,
        mistake: None,
        end_ms: None,
        pools,
        steps,
    }
}

/// What each device of a dRAID does not use for blocks.
const DRAID_RESERVE_MIB: u64 = 32;

fn any_pool(dice: &mut Dice) -> PoolSpec {
    let (layout, devices) = match dice.below(16) {
        0 => (Layout::Stripe, 1),
        1 => (Layout::Stripe, 2),
        2 => (Layout::Mirror, 3),
        3 => (Layout::Raidz(1), 3),
        4 => (Layout::Raidz(2), 5),
        5 => (Layout::Classes, 4),
        6 => (Layout::Draid(1, 2, 0), 5),
        7 => (Layout::Draid(2, 3, 0), 7),
        8 => (Layout::Raidz(3), 5),
        9 | 11 => (Layout::Raidz(1), 4),
        12 => (Layout::Draid(1, 2, 1), 5),
        10 => (Layout::Draid(2, 3, 1), 7),
        _ => (Layout::Mirror, 2),
    };
    let reserve = match layout {
        Layout::Draid(..) => DRAID_RESERVE_MIB,
        _ => 0,
    };
    PoolSpec {
        layout,
        devices,
        ashift: [9, 12, 12, 13][dice.below(4) as usize],
        mib: 80 + reserve + dice.below(80),
        latency_us: [0, 50, 1000, 20_000][dice.below(4) as usize],
        classic: u64::from(dice.once_in(3)),
    }
}

fn any_step(dice: &mut Dice) -> Step {
    let act = Act::drawn(dice.below(1 << 32));
    let amount = act.amount(dice);
    Step {
        act,
        pool: dice.below(6),
        pick: dice.below(60),
        amount,
        seed: dice.below(1 << 32),
    }
}
