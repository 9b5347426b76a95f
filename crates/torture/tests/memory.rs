//! Memory use is bounded by the cache's limit, however much data passes through the pool.
//!
//! The work is done in a separate process, whose peak the kernel records (`VmHWM`).

use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use spa::{Settings, Spa};
use tempfile::TempDir;
use torture::pool::{self, Layout};
use zpl::mount::{Mount, init, mount};
use zpl::{Create, NewFilesystem};

const PIECE: u64 = 1 << 20;
const ARC_BYTES: u64 = 64 << 20;
/// Bytes allowed in addition to the cache: dirty data and everything else.
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

/// Runs `work` in a separate process: `test` is the name of the calling test.
fn in_bounds(test: &str, work: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        let start = Instant::now();
        work();
        let peak = peak_bytes();
        eprintln!("{test}: peak {} MiB in {:?}", peak >> 20, start.elapsed());
        assert!(peak < ARC_BYTES + BEYOND, "{} MiB", peak >> 20);
        return;
    }
    // One test at a time: the amount of dirty data depends on how fast it is written.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let own = std::env::current_exe().unwrap();
    let output = Command::new(own)
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    eprintln!("{text}");
}

/// A pool with one file system that has these properties.
struct World {
    spa: Spa,
    fs: Mount,
    _folder: TempDir,
}

fn world(props: &[(&str, u64)]) -> World {
    let folder = tempfile::tempdir().unwrap();
    let disks = pool::images(folder.path(), 1, 4 << 30);
    let settings = Settings {
        arc_bytes: ARC_BYTES,
        ..Settings::default()
    };
    let root = init(NewFilesystem::default(), true);
    let spa = pool::create_with("tank", Layout::Stripe, 12, &disks, root, settings).unwrap();
    pool::create_fs(&spa, "tank/fs", props).unwrap();
    let fs = mount(spa.parts().dsl(), "tank/fs", false).unwrap();
    World {
        spa,
        fs,
        _folder: folder,
    }
}

/// A piece of a file: different everywhere, and cheap to make.
fn piece(at: u64, out: &mut [u8]) {
    for (i, word) in out.chunks_exact_mut(8).enumerate() {
        let n = (at + i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&n.to_le_bytes());
    }
}

impl World {
    fn create(&self, name: &str) -> base::ObjectId {
        let root = self.fs.root();
        let file = self
            .fs
            .create_file(root, name.as_bytes(), &Create::default());
        file.unwrap().id
    }

    fn write_stream(&self, name: &str, total: u64) -> base::ObjectId {
        let id = self.create(name);
        let mut bytes = vec![0; PIECE as usize];
        for at in (0..total).step_by(PIECE as usize) {
            piece(at, &mut bytes);
            self.fs.write(id, at, &bytes).unwrap();
        }
        self.spa.sync().unwrap();
        id
    }

    fn read_stream(&self, id: base::ObjectId, total: u64) {
        let mut bytes = vec![0; PIECE as usize];
        let mut expected = vec![0; PIECE as usize];
        for at in (0..total).step_by(PIECE as usize) {
            piece(at, &mut expected);
            assert_eq!(self.fs.read(id, at, &mut bytes).unwrap() as u64, PIECE);
            assert!(bytes == expected, "at {at}");
        }
    }
}

#[test]
fn a_gigabyte_passes_through_a_small_cache() {
    in_bounds("a_gigabyte_passes_through_a_small_cache", || {
        let world = world(&[("compression", 2)]);
        let id = world.write_stream("file", 1 << 30);
        world.read_stream(id, 1 << 30);
    });
}

/// A cached block of 512 bytes takes more memory for its bookkeeping than for its content.
#[test]
fn records_of_512_bytes_take_no_more() {
    in_bounds("records_of_512_bytes_take_no_more", || {
        let world = world(&[("recordsize", 512)]);
        let id = world.write_stream("file", 160 << 20);
        world.read_stream(id, 160 << 20);
        world.write_stream("file again", 160 << 20);
    });
}

/// Each record has an indirect block of 128 KiB to itself.
#[test]
fn records_far_apart_take_no_more() {
    in_bounds("records_far_apart_take_no_more", || {
        let world = world(&[("recordsize", 4096)]);
        let id = world.create("file");
        let mut bytes = vec![0; 4096];
        for n in 0..30_000 {
            piece(n, &mut bytes);
            world.fs.write(id, n * (4 << 20), &bytes).unwrap();
        }
        world.spa.sync().unwrap();
    });
}

/// The cache fills with blocks of all sizes; large ones replace them; then everything is freed.
#[test]
fn small_files_and_then_a_large_one_take_no_more() {
    in_bounds("small_files_and_then_a_large_one_take_no_more", || {
        let world = world(&[]);
        let mut bytes = vec![0; 100_000];
        let names: Vec<String> = (0..12_000u64).map(|n| format!("file {n}")).collect();
        for (n, name) in (0..).zip(&names) {
            let len = (n * 7919 % 100_000) as usize;
            piece(n, &mut bytes);
            let id = world.create(name);
            world.fs.write(id, 0, &bytes[..len]).unwrap();
        }
        let id = world.write_stream("large", 512 << 20);
        world.read_stream(id, 512 << 20);
        for name in &names {
            world.fs.unlink(world.fs.root(), name.as_bytes()).unwrap();
        }
        world.spa.sync().unwrap();
    });
}
