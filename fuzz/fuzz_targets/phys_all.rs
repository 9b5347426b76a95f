//! See `phys::fuzzing::phys_all`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| phys::fuzzing::phys_all(input));
