//! Power cuts at every command of a recording, or a sample of them.

use std::ops::RangeInclusive;

use spa::Spa;

use crate::model::World;

/// What a pool should hold after a step, and the first command after which that was on disk, where it is known.
pub type Step = (World, Option<u64>);

/// After which commands the power is cut: about `count` of them, the last among them. `CUTS=all`: after each; that can
/// take hours, so `CUTS=K/N` takes every N-th from the K-th on (K from 1), and N runs have them all. With either, and
/// `--nocapture`, a line says now and then how far it is.
///
/// # Panics
/// When `CUTS` is none of these.
pub fn sample(commands: RangeInclusive<u64>, count: u64) -> impl Iterator<Item = u64> {
    let (first, last) = commands.into_inner();
    let asked = std::env::var("CUTS");
    let (skipped, stride) = match &asked {
        Err(_) => (0, ((last - first) / count).max(1)),
        Ok(cuts) => part_of(cuts).unwrap_or_else(|| panic!("CUTS={cuts} is neither 'all' nor K/N")),
    };
    let tell = move |(at, n): (usize, u64)| {
        if asked.is_ok() && at.is_multiple_of(100) {
            eprintln!("cut after {n}; from {first} to {last}");
        }
        n
    };
    let cuts = (first + skipped..last).step_by(stride as usize);
    cuts.chain([last]).enumerate().map(tell)
}

/// How many commands are left out in the beginning, and the distance of those that are taken.
fn part_of(cuts: &str) -> Option<(u64, u64)> {
    if cuts == "all" {
        return Some((0, 1));
    }
    let (part, parts) = cuts.split_once('/')?;
    let (part, parts) = (part.parse::<u64>().ok()?, parts.parse().ok()?);
    (1..=parts).contains(&part).then_some((part - 1, parts))
}

/// Calls `cut` with a [`sample`] of the commands. Returns what it found after each.
///
/// # Panics
/// When `cut` complains.
pub fn everywhere<T>(
    commands: RangeInclusive<u64>,
    count: u64,
    seed: u64,
    mut cut: impl FnMut(u64) -> Result<T, String>,
) -> Vec<(u64, T)> {
    let found = sample(commands, count).map(|n| {
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
    let mut wrong = Vec::new();
    for (world, _) in &worlds[synced..] {
        match world.compare(spa.parts().dsl()) {
            Ok(()) => return Ok(world),
            Err(error) => wrong.push(error),
        }
    }
    Err(format!("no state since step {synced} is there: {wrong:#?}"))
}
