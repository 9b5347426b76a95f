//! Bytes of data per second of each implementation on this machine: `cargo bench -p parity`, or
//! `cargo bench -p parity -- avx2 rec_pq` for the lines that have these words.
//!
//! The names are those of `raidz_test -B`, whose `disk_bw` is MiB per second of one of the data columns;
//! its rows with an iosize of 131072 have the columns that are measured here. With `rec_q`, the missing P is
//! computed, too, and so on: `raidz_test` computes data alone.

use std::hint::black_box;
use std::time::{Duration, Instant};

use parity::Implementation;

const DATA_COLUMNS: usize = 8;
const COLUMN_BYTES: usize = 16 << 10;
const PAGE_BYTES: usize = 4096;

fn main() {
    // As in a pool: the columns of a block lie one after the other in pages of their own.
    let all = (DATA_COLUMNS + 3) * COLUMN_BYTES;
    let mut bytes = vec![0u8; all + PAGE_BYTES];
    let start = bytes.as_ptr().align_offset(PAGE_BYTES);
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = (i as u32).wrapping_mul(2_654_435_761) as u8;
    }
    let columns = bytes[start..start + all].chunks_mut(COLUMN_BYTES);
    let mut columns: Vec<&mut [u8]> = columns.collect();
    println!(
        "one core, {DATA_COLUMNS} data columns of {COLUMN_BYTES} bytes that stay in the cache"
    );
    for by in Implementation::available() {
        for nparity in 1..=3 {
            let (parity, data) = columns[3 - nparity..].split_at_mut(nparity);
            let data: Vec<&[u8]> = data.iter().map(|column| &**column).collect();
            let name = format!("gen_{}", &"pqr"[..nparity]);
            measure(by, &name, || by.generate(black_box(&data), parity));
        }
        for (name, missing) in [
            ("rec_p", &[3][..]),
            ("rec_q", &[0, 3]),
            ("rec_r", &[0, 1, 3]),
            ("rec_pq", &[3, 4]),
            ("rec_pr", &[1, 3, 4]),
            ("rec_qr", &[0, 3, 4]),
            ("rec_pqr", &[3, 4, 5]),
        ] {
            measure(by, name, || {
                by.reconstruct(3, black_box(&mut columns), missing);
            });
        }
    }
}

/// Prints the best of many runs of about 10 ms.
fn measure(by: Implementation, name: &str, mut run: impl FnMut()) {
    let mut words = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'));
    if !words.all(|word| word == by.name() || word == name) {
        return;
    }
    let mut best = 0f64;
    for _ in 0..20 {
        let (start, mut bytes) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_millis(10) {
            (0..4).for_each(|_| run());
            bytes += 4 * DATA_COLUMNS * COLUMN_BYTES;
        }
        best = best.max(bytes as f64 / start.elapsed().as_secs_f64());
    }
    println!("{:>12} {name:>8} {:7.2} GB/s", by.name(), best / 1e9);
}
