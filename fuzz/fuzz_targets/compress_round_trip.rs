//! Compresses the input with the algorithm that its first byte picks, into the room that its next
//! two bytes leave; if it fits, it must come back.
#![no_main]

use compress::{Algorithm, compress, decompress};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&[pick, low, high], source)) = input.split_first_chunk() else {
        return;
    };
    // the highest levels of zstd are slow and take the same path
    let slow = |a: &Algorithm| matches!(a, Algorithm::Zstd(level) if level.get() > 9);
    let algorithms: Vec<Algorithm> = Algorithm::all().filter(|a| !slow(a)).collect();
    let algorithm = algorithms[usize::from(pick) % algorithms.len()];
    let room = usize::from(u16::from_le_bytes([low, high]));
    let mut target = vec![0; room].into_boxed_slice();
    if let Some(len) = compress(algorithm, source, &mut target) {
        let stored: Box<[u8]> = target[..len].into();
        let mut back = vec![0; source.len()].into_boxed_slice();
        decompress(algorithm.kind(), &stored, &mut back).expect("what was compressed");
        assert_eq!(&*back, source);
    }
});
