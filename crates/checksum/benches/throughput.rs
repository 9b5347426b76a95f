//! Bytes per second of each checksum on this machine: `cargo bench -p checksum`.

use phys::ChecksumType as C;
use std::hint::black_box;
use std::time::{Duration, Instant};

const BLOCK_BYTES: usize = 131_072;

fn main() {
    let block: Vec<u8> = (0..BLOCK_BYTES as u32)
        .map(|i| (i * 2_654_435_761) as u8)
        .collect();
    let templates = checksum::Templates::new(&[7; 32]);
    let mut copy = vec![0; BLOCK_BYTES];
    println!("one core, blocks of {BLOCK_BYTES} bytes that stay in the cache");
    measure("copy alone", || {
        copy.copy_from_slice(black_box(&block));
        black_box(&mut copy);
    });
    measure("copy_fletcher4", || {
        black_box(checksum::copy_fletcher4(black_box(&block), &mut copy));
    });
    for kind in [
        C::Fletcher2,
        C::Fletcher4,
        C::Sha256,
        C::Sha512,
        C::Skein,
        C::EdonR,
        C::Blake3,
    ] {
        measure(kind.name(), || {
            black_box(templates.digest(kind, black_box(&block)));
        });
    }
}

/// Prints the best of many runs of about 10 ms.
fn measure(name: &str, mut run: impl FnMut()) {
    let mut best = 0f64;
    for _ in 0..50 {
        let (start, mut bytes) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_millis(10) {
            (0..4).for_each(|_| run());
            bytes += 4 * BLOCK_BYTES;
        }
        best = best.max(bytes as f64 / start.elapsed().as_secs_f64());
    }
    println!("{name:>16} {:7.2} GB/s", best / 1e9);
}
