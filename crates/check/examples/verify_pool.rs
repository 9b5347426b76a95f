//! Checks a pool on image files and says how fast.
//!
//! `cargo run --release -p check --example verify_pool -- FOLDER [THREADS]`

#[path = "../tests/common/mod.rs"]
mod common;

use check::{Checksums, Options};

fn main() {
    let mut args = std::env::args().skip(1);
    let folder = args.next().expect("the folder with the images");
    let threads = args
        .next()
        .map_or(8, |n| n.parse().expect("a number of threads"));
    let pool = common::open_pool(folder.as_ref());
    for (name, checksums, every_copy) in [
        ("blocks only", Checksums::None, false),
        ("all checksums", Checksums::All, false),
        ("all copies", Checksums::All, true),
    ] {
        let options = Options {
            checksums,
            every_copy,
            threads,
            ..Options::default()
        };
        let report = check::verify(&pool, &options).expect("the MOS opens");
        let total = report.stats.total();
        let seconds = report.progress.elapsed_ns as f64 / 1e9;
        let rate = report.progress.verified_bytes as f64 / seconds / 1e9;
        println!(
            "{name}: {} blocks, {} bytes allocated, {seconds:.2} s, {rate:.2} GB/s verified",
            total.count,
            report.allocated_bytes()
        );
        for finding in report.findings.iter().take(20) {
            println!("  {finding}");
        }
    }
}
