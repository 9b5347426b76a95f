//! How much a scrub slows other work down: at most by a quarter; and yet it makes progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::Result;
use geom::{Command, Provider, Shape};
use phys::CompressType;
use ram::Memory;
use rt::Mutex;
use spa::Spa;
use torture::pool::{self, Layout};
use zpl::mount::mount;
use zpl::{Create, Filesystem};

const DISK_BYTES: u64 = 1 << 30;
const BYTES_PER_SECOND: u64 = 25 << 20;
const SEEK_NS: u64 = 2_000_000;
const WRITERS: u64 = 4;
/// Bytes to scrub: about eight seconds if nothing else runs.
const OLD_BYTES: usize = 192 << 20;
const RECORD: usize = 128 << 10;
/// Bytes after which a writer starts again at the beginning of its file.
const FILE_BYTES: u64 = 8 << 20;
const WINDOW_NS: u64 = 8_000_000_000;

/// A disk with one arm: one command at a time, with a seek unless it continues the last one.
struct OneArm {
    disk: Memory,
    at: Mutex<u64>,
}

impl Provider for OneArm {
    fn name(&self) -> &str {
        self.disk.name()
    }
    fn shape(&self) -> Shape {
        Shape {
            is_rotational: true,
            ..self.disk.shape()
        }
    }
    fn execute(&self, offset: u64, command: Command<'_>) -> Result<()> {
        let (_, len) = command.cmd();
        let mut at = self.at.lock();
        let seek = if *at == offset { 0 } else { SEEK_NS };
        rt::sleep_ns(seek + len * 1_000_000_000 / BYTES_PER_SECOND);
        *at = offset + len;
        self.disk.execute(offset, command)
    }
}

#[derive(Clone, Copy)]
enum Work {
    /// Sequential records, without fsync.
    Streams,
    /// 4 KiB at a time, each followed by an fsync.
    Synced,
}

fn new_file(fs: &Filesystem, name: &str) -> base::ObjectId {
    let file = fs.create_file(fs.root(), name.as_bytes(), &Create::default());
    file.unwrap().id
}

fn old_pool() -> Spa {
    let disk = |n| OneArm {
        disk: Memory::new(format!("/disk{n}"), DISK_BYTES),
        at: Mutex::new(0),
    };
    let disks: Vec<Arc<dyn Provider>> = (0..2).map(|n| Arc::new(disk(n)) as _).collect();
    let init = zpl::mount::init(zpl::NewFilesystem::default(), true);
    let spa = pool::create("tank", Layout::Mirror, 12, &disks, init).unwrap();
    pool::create_fs(
        &spa,
        "tank/fs",
        &[("compression", CompressType::Off.raw().into())],
    )
    .unwrap();
    let fs = mount(spa.parts().dsl(), "tank/fs", false).unwrap();
    let old = new_file(&fs, "old");
    let mut random = rt::SeededRandom::new(1);
    let mut record = vec![0; RECORD];
    for at in (0..OLD_BYTES).step_by(RECORD) {
        record
            .iter_mut()
            .step_by(8)
            .for_each(|byte| *byte = random.next_u64() as u8);
        fs.write(old, at as u64, &record).unwrap();
    }
    spa.sync().unwrap();
    spa
}

/// Returns the number of writes done in the window, whether the scrub was still running at its end, and the
/// number of bytes read in it.
fn work(work: Work, with_scrub: bool) -> (u64, bool, u64) {
    rt::simulate(5, move || {
        let spa = Arc::new(old_pool());
        let fs = Arc::new(mount(spa.parts().dsl(), "tank/fs", false).unwrap());
        let (done, is_over) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        if with_scrub {
            spa.scrub().unwrap();
        }
        let write = |n: u64| {
            let (fs, done, is_over) = (fs.clone(), done.clone(), is_over.clone());
            rt::spawn("writer", move || {
                let file = new_file(&fs, &format!("new{n}"));
                let (size, synced) = match work {
                    Work::Streams => (RECORD, false),
                    Work::Synced => (4096, true),
                };
                let bytes = vec![n as u8; size];
                let mut at = 0;
                while !is_over.load(Ordering::Relaxed) {
                    fs.write(file, at % FILE_BYTES, &bytes).unwrap();
                    if synced {
                        fs.fsync(file).unwrap();
                    }
                    at += size as u64;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let threads: Vec<_> = (0..WRITERS).map(write).collect();
        // What fits into memory before a writer first has to wait is not counted.
        rt::sleep_ns(WINDOW_NS / 4);
        let read_bytes = || spa.parts().tree().root().io_counts().read_bytes();
        let before = (done.load(Ordering::Relaxed), read_bytes());
        rt::sleep_ns(WINDOW_NS);
        let commands = done.load(Ordering::Relaxed) - before.0;
        let scanned = read_bytes() - before.1;
        let is_running = spa.scan_running().is_some();
        is_over.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(rt::JoinHandle::join);
        drop(fs);
        (commands, is_running, scanned)
    })
}

fn check(kind: Work) {
    let (alone, ..) = work(kind, false);
    let (beside, is_running, scanned) = work(kind, true);
    eprintln!("alone {alone}, beside a scrub {beside}; read {scanned}, runs: {is_running}");
    assert!(is_running, "there was nothing to scrub any more");
    assert!(beside * 4 >= alone * 3, "{beside} of {alone}");
    // The bytes that both disks could have read meanwhile.
    let most = 2 * BYTES_PER_SECOND * (WINDOW_NS / 1_000_000_000);
    assert!(scanned >= most / 50, "{scanned} of {most}");
}

#[test]
fn sim_four_streams_lose_a_quarter_to_a_scrub_at_most() {
    check(Work::Streams);
}

#[test]
fn sim_four_writers_who_sync_lose_a_quarter_to_a_scrub_at_most() {
    check(Work::Synced);
}
