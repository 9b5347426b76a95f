//! A machine that stays on while files, data sets and snapshots come and go: nothing leaks.

use std::fs;

use super::Bench;
use super::up::{assert_clean, clock_ns, up, with_pool};

/// Simulated minutes between rounds.
const PAUSE_MINUTES: u64 = 5;
/// Files of the host that are copied in, and their sizes in bytes.
const FILES: [usize; 4] = [700, 40_000, 300_000, 1_500_000];
/// Copies of them that are in the pool at a time, for each.
const KEPT: u64 = 6;
/// Bytes that memory may be off between two looks: what the allocator keeps, buffers of threads.
const NOISE_BYTES: u64 = 24 << 20;

/// Bytes of its own memory that a process has (`RssAnon`).
fn memory_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<u64>().unwrap() << 10
}

/// Bytes that do not compress, others for each seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

/// One round of work: as much comes as goes.
fn round(bench: &Bench, n: u64) {
    for (i, length) in FILES.into_iter().enumerate() {
        fs::write(bench.path("data"), noise(n * 8 + i as u64, length)).unwrap();
        bench.ok(&format!("cp data /tank/files/{i}-{n}"));
        if n >= KEPT {
            bench.ok(&format!("rm /tank/files/{i}-{}", n - KEPT));
        }
    }
    bench.ok(&format!("zfs snapshot tank/files@{n}"));
    if n >= 2 {
        bench.ok(&format!("zfs destroy tank/files@{}", n - 2));
    }
    match n % 4 {
        0 => bench.ok(&format!("zfs clone tank/files@{n} tank/clone")),
        1 => bench.ok("zfs destroy tank/clone"),
        2 => bench.ok("zpool scrub -w tank"),
        _ => bench.ok("zpool iostat tank"),
    };
    bench.ok("ls -lR /tank/files");
    bench.ok(&format!("sleep {}", PAUSE_MINUTES * 60));
}

/// `CHURN_HOURS=24` for a day of the machine's time, which takes some minutes.
#[test]
fn a_machine_that_is_used_takes_no_more_memory() {
    let hours = std::env::var("CHURN_HOURS").map_or(1, |hours| hours.parse().unwrap());
    let bench = with_pool();
    let holder = up(&bench);
    bench.ok("zfs create tank/files");
    let began_ns = clock_ns(&bench);
    let rounds = hours * 60 / PAUSE_MINUTES;
    let mut early_bytes = 0;
    let mut most_bytes = 0;
    for n in 0..rounds {
        round(&bench, n);
        let now_bytes = memory_bytes(holder.id());
        // By then caches are full of what there is.
        if n <= rounds / 2 {
            early_bytes = early_bytes.max(now_bytes);
        }
        most_bytes = most_bytes.max(now_bytes);
        if n % 12 == 11 {
            eprintln!("{} h: {} MiB", (n + 1) / 12, now_bytes >> 20);
        }
    }
    let passed = (clock_ns(&bench) - began_ns) / 3_600_000_000_000;
    assert!(passed >= hours, "{passed} hours");
    assert!(
        most_bytes < early_bytes + NOISE_BYTES,
        "{early_bytes} bytes in the first half, {most_bytes} in all"
    );
    assert_clean(&bench);
}
