//! Pools that lie: any block changed, and every checksum above it made right again.
//!
//! # What it is
//! [`Image`] takes a small pool in memory apart into the tree of its blocks. An [`Edit`] changes some of
//! them and gives devices on which checksums find nothing wrong. [`mutate`] chooses edits
//! by chance, [`seeds`] makes the pools, [`exercise`] does to the result what the commands do. Nothing
//! of it may panic, hang or take more than a bound; errors are what is expected.
//!
//! The same code serves a test with seeds and a fuzz target, whose bytes are the choices.

use std::sync::Arc;

use geom::Provider;

pub mod bombs;
pub mod exercise;
pub mod image;
pub mod mutate;
pub mod seeds;

pub use exercise::exercise;
pub use image::{Block, Edit, Image, Role};
pub use mutate::{Choices, Choosing, mutate};

/// The devices of the hostile image that these choices stand for.
pub fn devices(choices: &mut dyn Choices) -> Vec<Arc<dyn Provider>> {
    let images = seeds::all();
    let image = &images[choices.below(images.len() as u64) as usize];
    mutate(image, choices)
}

/// Makes the hostile image that these choices stand for, and exercises it in simulated time, where a
/// thread that waits for ever is found at once.
///
/// # Panics
/// When the engine does: that is what is looked for.
pub fn run(choices: &mut dyn Choices) -> exercise::Outcome {
    let devices = devices(choices);
    let plan = choices.below(32);
    rt::simulate(plan, || exercise(&devices, plan))
}
