//! Pools that lie: any block changed, and every checksum above it made right again.
//!
//! # What it is
//! [`Image`] takes a small pool in memory apart into the tree of its blocks. An [`Edit`] changes some of
//! them and gives devices on which checksums find nothing wrong. [`mutate`] chooses edits
//! by chance, [`seeds`] makes the pools, [`exercise`] does to the result what the commands do. Nothing
//! of it may panic, hang or take more than a bound; errors are what is expected.
//!
//! The same code serves a test with seeds and a fuzz target, whose bytes are the choices.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use geom::Provider;

pub mod bombs;
pub mod exercise;
pub mod image;
pub mod mutate;
pub mod seeds;

pub use exercise::exercise;
pub use image::{Block, Edit, Image, Role};
use mutate::mutate;
pub use mutate::{Choices, Choosing};

/// How much is looked at for zeros at once, in bytes.
const CHUNK_BYTES: usize = 1 << 20;

/// The devices of the hostile image that these choices stand for.
pub fn devices(choices: &mut dyn Choices) -> Vec<Arc<dyn Provider>> {
    let images = seeds::all();
    let image = &images[choices.below(images.len() as u64) as usize];
    mutate(image, choices)
}

/// Writes devices into files `disk0`, `disk1`… of a folder, for programs.
///
/// # Panics
/// When the host does not take them.
pub fn write(devices: &[Arc<dyn Provider>], folder: &Path) {
    for (n, device) in devices.iter().enumerate() {
        let file = File::create(folder.join(format!("disk{n}"))).unwrap();
        file.set_len(device.mediasize()).unwrap();
        let mut chunk = vec![0; CHUNK_BYTES];
        for offset in (0..device.mediasize()).step_by(chunk.len()) {
            device.read(offset, &mut chunk).unwrap();
            if chunk.iter().any(|byte| *byte != 0) {
                file.write_all_at(&chunk, offset).unwrap();
            }
        }
    }
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
