//! Archives: the input as members, their sums mended by choice; what is read is bounded by what is there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tarball::Reader;

/// Sets the sums of all blocks that have the magic of a header.
fn mend(bytes: &mut [u8]) {
    for block in bytes.chunks_exact_mut(512) {
        if &block[257..262] == b"ustar" {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((pick, rest)) = input.split_first() else {
        return;
    };
    let mut bytes = rest.to_vec();
    if pick % 2 == 0 {
        mend(&mut bytes);
    }
    let mut reader = Reader::new(&bytes[..]);
    let mut data = [0; 4096];
    let mut read_bytes = 0;
    while let Ok(Some(member)) = reader.next() {
        let stored = member.stored_bytes();
        assert!(
            member
                .map
                .iter()
                .all(|(at, length)| at + length <= member.size)
        );
        let mut read = 0;
        while let Ok(more @ 1..) = reader.data(&mut data) {
            read += more as u64;
        }
        assert!(read <= stored);
        read_bytes += read;
        // What was read can be written.
        if read == stored {
            assert!(tarball::lead(&member).is_ok_and(|lead| lead.len() % 512 == 0));
        }
    }
    assert!(read_bytes <= bytes.len() as u64);
});
