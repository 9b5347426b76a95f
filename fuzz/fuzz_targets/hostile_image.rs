//! A small pool, some of its blocks changed and every checksum made right again: opened, looked at, changed
//! and exported. The input bytes choose the pool and the changes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use torture::hostile::{self, Choosing};

fuzz_target!(|input: &[u8]| {
    let (first, choices) = input.split_first().unwrap_or((&0, &[]));
    let images = match first % 2 {
        0 => hostile::seeds::all(),
        _ => hostile::seeds::all_vdevs(),
    };
    hostile::run(&images, &mut Choosing(choices));
});
