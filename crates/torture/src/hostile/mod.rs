//! Pools that lie: any block is changed, and every checksum above it is made right again.
//!
//! # What it is
//! [`Image`] takes a small pool in memory apart into its tree of blocks. An [`Edit`] changes some of them and
//! returns devices on which all checksums are right. [`mutate`] chooses edits at random, [`seeds`] makes the
//! pools, [`exercise`] does to the result what the commands would do. None of this may panic, hang, or use more
//! memory or time than a bound; errors are expected.
//!
//! The same code serves a seeded test and a fuzz target, where the fuzzer's bytes make the choices.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use geom::Provider;

pub mod bombs;
pub mod exercise;
pub mod image;
pub mod mutate;
pub mod rebuild;
pub mod seeds;
mod vdev_config;
mod writer;

pub use exercise::exercise;
pub use image::{Block, Edit, Image, Role};
use mutate::mutate;
pub use mutate::{Choices, Choosing};
pub use rebuild::rebuild;

/// Bytes that are checked for zeros, and written, at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// The first seed that is for the pools of [`seeds::VDEV_KINDS`]; those below are for [`seeds::KINDS`].
pub const FIRST_VDEV_SEED: u64 = 1 << 32;

/// The pools that this seed is for.
#[must_use]
pub fn images(seed: u64) -> Arc<Vec<Image>> {
    if seed < FIRST_VDEV_SEED {
        seeds::all()
    } else {
        seeds::all_vdevs()
    }
}

/// The devices of the hostile image that these choices make of one of the pools.
pub fn devices(images: &[Image], choices: &mut dyn Choices) -> Vec<Arc<dyn Provider>> {
    let image = &images[choices.below(images.len() as u64) as usize];
    mutate(image, choices)
}

/// Writes devices into files `disk0`, `disk1`… of a folder, for other programs to read.
///
/// # Panics
/// When a file cannot be written.
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

/// Makes a hostile image of one of the pools, and exercises it in simulated time, where a thread that waits for ever
/// is detected at once.
///
/// # Panics
/// When the engine panics: finding that is the purpose.
pub fn run(images: &[Image], choices: &mut dyn Choices) -> exercise::Outcome {
    let devices = devices(images, choices);
    let plan = choices.below(exercise::PLANS);
    rt::simulate(plan % 32, || exercise(&devices, plan))
}
