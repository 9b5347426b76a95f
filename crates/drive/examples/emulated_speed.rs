//! How many commands per second the whole emulation does: bytes, cache, clock, mechanics.
//!
//! `cargo run --release -p drive --example emulated_speed [PROFILE]`

use std::sync::Arc;

use drive::{Emulated, Identity, Profile};
use geom::Provider;

/// The writes of fourteen passes of phybs, zeros, 128 MiB each: 671,744 commands.
fn phybs(disk: &Emulated) -> u64 {
    let zeros = vec![0u8; 8192];
    let mut count = 0;
    let mut size = 1024;
    while size <= 8192 {
        let mut offset = 0;
        while offset < size {
            for n in 0..(128 << 20) / size {
                let at = n * 4 * size + offset;
                disk.write(at, &zeros[..size as usize]).expect("a write");
                count += 1;
            }
            offset = if offset == 0 { 512 } else { offset * 2 };
        }
        size *= 2;
    }
    count
}

/// Random reads of 4096 bytes where nothing was written.
fn reads(disk: &Emulated) -> u64 {
    let mut buf = [0; 4096];
    for _ in 0..200_000 {
        let at = rt::random_below(disk.mediasize() / 4096) * 4096;
        disk.read(at, &mut buf).expect("a read");
    }
    200_000
}

/// Writes of 4096 bytes that are not zero.
fn bytes(disk: &Emulated) -> u64 {
    let data = vec![7u8; 4096];
    for n in 0..100_000 {
        disk.write(n % 16_384 * 4096, &data).expect("a write");
    }
    100_000
}

/// Gives commands to a drive and counts them.
type Test = fn(&Emulated) -> u64;

fn main() {
    let name = std::env::args().nth(1).unwrap_or("wd20ears".to_owned());
    let profile = Profile::find(&name).expect("a profile");
    let dir = tempfile::tempdir().expect("a folder");
    let tests: [(&str, Test); 3] = [
        ("phybs -w, zeros", phybs),
        ("random reads", reads),
        ("writes of bytes", bytes),
    ];
    for (what, test) in tests {
        let profile = Arc::clone(&profile);
        let started = rt::now_ns();
        let (count, simulated_ns) = rt::simulate(1, || {
            let identity = Identity::default();
            let disk = Emulated::open(dir.path(), "ada0", profile, &identity, 1).expect("a drive");
            let began = rt::now_ns();
            let count = test(&disk);
            let took = rt::now_ns() - began;
            disk.abandon();
            (count, took)
        });
        let seconds = (rt::now_ns() - started) as f64 / 1e9;
        println!(
            "{what}: {count} commands of {:.1} s in {seconds:.3} s: {:.0} per second",
            simulated_ns as f64 / 1e9,
            count as f64 / seconds
        );
    }
}
