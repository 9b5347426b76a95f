//! Checks a pool on image files and says how fast.
//!
//! `cargo run --release -p check --example verify_pool -- FOLDER [THREADS]`

use std::path::Path;
use std::sync::Arc;

use check::{Checksums, Options, Pool};
use geom::Provider;
use geom::disk::OpenMode;
use spa::{Host, ImportOptions, Settings, Spa};

fn import(folder: &Path) -> Spa {
    let open = |path: &Path| -> Arc<dyn Provider> {
        geom::disk::open(path, OpenMode::ReadOnly).expect("an image")
    };
    let files = std::fs::read_dir(folder).expect("the folder");
    let providers: Vec<_> = files.map(|e| open(&e.expect("an entry").path())).collect();
    let found = vdev::import::discover(&providers).pools.remove(0);
    let host = Host {
        id: 1,
        name: "example".into(),
    };
    let options = ImportOptions {
        found,
        new_name: None,
        readonly: true,
        max_txg: None,
        force: true,
        host,
        settings: Settings::default(),
    };
    Spa::import(options).expect("imported")
}

fn main() {
    let mut args = std::env::args().skip(1);
    let folder = args.next().expect("the folder with the images");
    let threads = args
        .next()
        .map_or(8, |n| n.parse().expect("a number of threads"));
    let spa = import(folder.as_ref());
    let pool = Pool::of(&spa);
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
