//! A small pool, some of its blocks changed and every checksum made right again: opened, looked at, changed
//! and exported. The input bytes choose the pool and the changes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use torture::hostile::{self, Choosing};

fuzz_target!(|input: &[u8]| {
    hostile::run(&mut Choosing(input));
});
