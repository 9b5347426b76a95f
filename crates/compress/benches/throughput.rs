//! Bytes per second of each algorithm on this machine: `cargo bench -p compress [-- FILE..]`.
//!
//! Without files it compresses its own source, repeated with line numbers, and noise.

use compress::{Algorithm, compress, decompress, max_compressed_len};
use std::hint::black_box;
use std::time::Instant;

const BLOCK_BYTES: usize = 131_072;
const BLOCKS: usize = 32;

fn main() {
    let files: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    if files.is_empty() {
        report("text", &text());
        report("noise", &noise());
    }
    for file in &files {
        match std::fs::read(file) {
            Ok(bytes) => report(file, &bytes),
            Err(e) => eprintln!("{file}: {e}"),
        }
    }
}

fn text() -> Vec<u8> {
    let mut bytes = Vec::new();
    for round in 0.. {
        for line in include_str!("../src/algorithm.rs").lines() {
            bytes.extend_from_slice(format!("{}:{line}\n", round * 31 + bytes.len()).as_bytes());
        }
        if bytes.len() > BLOCKS * BLOCK_BYTES {
            return bytes;
        }
    }
    bytes
}

fn noise() -> Vec<u8> {
    let mut x = 1u64;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (x >> 56) as u8
    };
    (0..BLOCKS * BLOCK_BYTES).map(|_| next()).collect()
}

fn report(name: &str, bytes: &[u8]) {
    let blocks: Vec<&[u8]> = bytes.chunks_exact(BLOCK_BYTES).take(BLOCKS).collect();
    println!(
        "{name}: {} blocks of {BLOCK_BYTES} bytes, one core",
        blocks.len()
    );
    for word in [
        "lz4",
        "lzjb",
        "zle",
        "gzip-1",
        "gzip",
        "zstd-fast-10",
        "zstd-fast",
        "zstd-1",
        "zstd",
        "zstd-9",
    ] {
        let algorithm: Algorithm = word.parse().expect("a word of the property");
        measure(word, algorithm, &blocks);
    }
}

fn measure(word: &str, algorithm: Algorithm, blocks: &[&[u8]]) {
    let mut target = vec![0; max_compressed_len(BLOCK_BYTES)];
    let mut stored: Vec<Vec<u8>> = Vec::new();
    let mut physical = 0;
    for block in blocks {
        match compress(algorithm, block, &mut target) {
            Some(len) => {
                physical += len;
                stored.push(target[..len].to_vec());
            }
            None => physical += BLOCK_BYTES,
        }
    }
    let packing = best(blocks.len() * BLOCK_BYTES, || {
        for block in blocks {
            black_box(compress(algorithm, black_box(block), &mut target));
        }
    });
    let mut back = vec![0; BLOCK_BYTES];
    let unpacking = best(stored.len() * BLOCK_BYTES, || {
        for block in &stored {
            decompress(algorithm.kind(), black_box(block), &mut back).expect("own bytes");
        }
    });
    let ratio = (blocks.len() * BLOCK_BYTES) as f64 / physical as f64;
    println!(
        "{word:>14} x{ratio:5.2}  compress {packing:7.3} GB/s  decompress {unpacking:7.3} GB/s"
    );
}

fn best(bytes: usize, mut run: impl FnMut()) -> f64 {
    let mut shortest = f64::MAX;
    for _ in 0..7 {
        let start = Instant::now();
        run();
        shortest = shortest.min(start.elapsed().as_secs_f64());
    }
    bytes as f64 / shortest / 1e9
}
