//! The record of a sequential resilver (`vdev_rebuild_phys_t`) is the input: the pool is opened, and the resilver goes
//! on from there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use torture::hostile::{self, seeds};

fuzz_target!(|input: &[u8]| {
    let Some((first, record)) = input.split_first() else {
        return;
    };
    let images = seeds::all_vdevs();
    let rebuilding = seeds::rebuilding(&images);
    let image = rebuilding[usize::from(*first) % rebuilding.len()];
    let (words, _) = record.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    hostile::rebuild(image, &words);
});
