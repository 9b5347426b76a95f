//! Power cuts at every command of a recording, or a sample of them.

use std::ops::RangeInclusive;

use spa::Spa;

use crate::model::World;

/// What a pool should hold after a step, and the first command after which that was on disk, where it is known.
pub type Step = (World, Option<u64>);

/// Calls `cut` with about `count` of the commands, the first and the last among them, or with all if `CUTS=all`.
/// Returns what it found after each.
///
/// # Panics
/// When `cut` complains.
pub fn everywhere<T>(
    commands: RangeInclusive<u64>,
    count: u64,
    seed: u64,
    mut cut: impl FnMut(u64) -> Result<T, String>,
) -> Vec<(u64, T)> {
    let (first, last) = commands.into_inner();
    let all = std::env::var("CUTS").is_ok_and(|v| v == "all");
    let stride = if all {
        1
    } else {
        ((last - first) / count).max(1)
    };
    let sample = (first..last).step_by(stride as usize).chain([last]);
    let found = sample.map(|n| {
        let found = cut(n);
        (
            n,
            found.unwrap_or_else(|e| panic!("SEED={seed}, cut after {n}: {e}")),
        )
    });
    found.collect()
}

/// The world that a pool holds after the power was cut after the `n`-th command: one that was on disk by then, or a
/// later one.
///
/// # Errors
/// What is wrong with each that it might be.
///
/// # Panics
/// When not even the first was on disk.
pub fn find<'a>(worlds: &'a [Step], spa: &Spa, n: u64) -> Result<&'a World, String> {
    let known = |(_, at): &Step| at.is_some_and(|at| at <= n);
    let synced = worlds.iter().rposition(known).expect("the first is");
    let compare = |(world, _): &Step| world.compare(spa.parts().dsl());
    let outcomes: Vec<_> = worlds[synced..].iter().map(compare).collect();
    match outcomes.iter().position(Result::is_ok) {
        Some(at) => Ok(&worlds[synced + at].0),
        None => Err(format!(
            "no state since step {synced} is there: {outcomes:#?}"
        )),
    }
}
