//! Memory stays bounded by the cache's limit, whatever goes through the pool.
//!
//! The work is done in a process of its own, whose peak the kernel counts (`VmHWM`).

use std::process::Command;
use std::time::Instant;

use spa::Settings;
use torture::pool::{self, Layout};
use zpl::mount::{init, mount};
use zpl::{Create, NewFilesystem};

const TOTAL: u64 = 1 << 30;
const PIECE: u64 = 1 << 20;
const ARC_BYTES: u64 = 64 << 20;
/// Dirty data and everything else, beside the cache.
const BEYOND: u64 = 256 << 20;
const CHILD: &str = "ASHIFT_MEMORY_CHILD";

/// `/proc/self/status`'s line `VmHWM`, in bytes.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// A piece of the file: different everywhere, and cheap to make.
fn piece(at: u64, out: &mut [u8]) {
    for (i, word) in out.chunks_exact_mut(8).enumerate() {
        let n = (at + i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&n.to_le_bytes());
    }
}

#[test]
fn a_gigabyte_passes_through_a_small_cache() {
    if std::env::var_os(CHILD).is_some() {
        write_and_read();
        let peak = peak_bytes();
        eprintln!("peak: {} MiB", peak >> 20);
        assert!(peak < ARC_BYTES + BEYOND, "{} MiB", peak >> 20);
        return;
    }
    let own = std::env::current_exe().unwrap();
    let output = Command::new(own)
        .args([
            "a_gigabyte_passes_through_a_small_cache",
            "--exact",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    eprintln!("{text}");
}

fn write_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let disks = pool::images(folder.path(), 1, 2 << 30);
    let settings = Settings {
        arc_bytes: ARC_BYTES,
        ..Settings::default()
    };
    let root = init(NewFilesystem::default(), true);
    let spa = pool::create_with("tank", Layout::Stripe, 12, &disks, root, settings).unwrap();
    pool::create_fs(&spa, "tank/fs", &[("compression", 2)]).unwrap();
    let fs = mount(spa.dsl(), "tank/fs", false).unwrap();
    let id = fs
        .create_file(fs.root(), b"file", &Create::default())
        .unwrap()
        .id;
    let mut bytes = vec![0; PIECE as usize];
    let start = Instant::now();
    for at in (0..TOTAL).step_by(PIECE as usize) {
        piece(at, &mut bytes);
        fs.write(id, at, &bytes).unwrap();
    }
    spa.sync().unwrap();
    eprintln!(
        "written in {:?}; {} MiB so far",
        start.elapsed(),
        peak_bytes() >> 20
    );
    let start = Instant::now();
    let mut expected = vec![0; PIECE as usize];
    for at in (0..TOTAL).step_by(PIECE as usize) {
        piece(at, &mut expected);
        assert_eq!(fs.read(id, at, &mut bytes).unwrap() as u64, PIECE);
        assert!(bytes == expected, "at {at}");
    }
    eprintln!("read in {:?}", start.elapsed());
}
