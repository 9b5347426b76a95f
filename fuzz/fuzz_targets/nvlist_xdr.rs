//! See `nvpair::fuzzing::nvlist_xdr`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| nvpair::fuzzing::nvlist_xdr(input));
