//! Decompresses the input as a block of the kind that its first byte picks and the size that its
//! next two say, into memory that ends where the block ends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use phys::CompressType;

fuzz_target!(|input: &[u8]| {
    let Some((&[kind, low, high], source)) = input.split_first_chunk() else {
        return;
    };
    let kind = CompressType::ALL[usize::from(kind) % CompressType::ALL.len()];
    let lsize = usize::from(u16::from_le_bytes([low, high])) + 1;
    // exact allocations, so that the address sanitizer sees the first byte beyond
    let source: Box<[u8]> = source.into();
    let mut target = vec![0; lsize].into_boxed_slice();
    let _ = compress::decompress(kind, &source, &mut target);
});
