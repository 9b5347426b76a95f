//! The holder is killed in the midst of work: what was fsync'd is there afterwards.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use crate::mounted::{mounted, runs_all};

/// Names of the files that a writer changes.
const FILES: u64 = 12;

/// Random numbers of splitmix64.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % below
    }
}

/// What is known of a file: its bytes when it was last fsync'd, and whether something was begun after that.
#[derive(Clone, Default)]
struct Known {
    synced: Option<Vec<u8>>,
    is_dirty: bool,
}

type Journal = Mutex<BTreeMap<String, Known>>;

/// Changes files until one of its calls fails: the holder is gone.
fn write(folder: &Path, mut numbers: Numbers, journal: &Journal) {
    let mut now: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for (name, known) in &*journal.lock().unwrap() {
        if let Some(bytes) = &known.synced {
            now.insert(name.clone(), bytes.clone());
        }
    }
    let ended: io::Result<()> = (|| {
        loop {
            let name = format!("file{}", numbers.next(FILES));
            let path = folder.join(&name);
            journal
                .lock()
                .unwrap()
                .entry(name.clone())
                .or_default()
                .is_dirty = true;
            let bytes = now.entry(name.clone()).or_default();
            let file = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)?;
            match numbers.next(6) {
                0 => {
                    let size = numbers.next(60_000);
                    bytes.resize(size as usize, 0);
                    file.set_len(size)?;
                }
                1 => {
                    // Replaced as editors do.
                    let new = folder.join("new");
                    let piece = vec![numbers.next(256) as u8; numbers.next(9_000) as usize];
                    let mut other = File::create(&new)?;
                    other.write_all(&piece)?;
                    other.sync_all()?;
                    fs::rename(&new, &path)?;
                    *bytes = piece;
                    // The rename is on disk when the file is.
                    other.sync_all()?;
                    note(journal, &name, bytes);
                    continue;
                }
                _ => {
                    let at = numbers.next(50_000) as usize;
                    let piece = vec![numbers.next(256) as u8; 1 + numbers.next(20_000) as usize];
                    bytes.resize(bytes.len().max(at + piece.len()), 0);
                    bytes[at..at + piece.len()].copy_from_slice(&piece);
                    file.write_all_at(&piece, at as u64)?;
                }
            }
            if numbers.next(3) > 0 {
                file.sync_all()?;
                note(journal, &name, bytes);
            }
        }
    })();
    ended.expect_err("it never ends otherwise");
}

fn note(journal: &Journal, name: &str, bytes: &[u8]) {
    let known = Known {
        synced: Some(bytes.to_vec()),
        is_dirty: false,
    };
    journal.lock().unwrap().insert(name.to_owned(), known);
}

/// Looks at all that is known, and forgets what is not.
fn check(folder: &Path, journal: &Journal) {
    for (name, known) in &mut *journal.lock().unwrap() {
        let found = fs::read(folder.join(name)).ok();
        if known.is_dirty {
            // It may be as it was, or as it became: it is known from now on.
            assert!(found.is_some() || known.synced.is_none(), "{name} is gone");
            *known = Known {
                synced: found,
                is_dirty: false,
            };
        } else {
            assert!(found == known.synced, "{name} is not what was fsync'd");
        }
    }
}

/// `KILLS=200` for as many kills.
#[test]
fn what_was_fsynced_survives_a_killed_holder() {
    let Some(mut mounted) = mounted(&[]) else {
        return;
    };
    let seed =
        std::env::var("SEED").map_or_else(|_| std::process::id().into(), |s| s.parse().unwrap());
    let kills =
        std::env::var("KILLS").map_or(if runs_all() { 200 } else { 4 }, |n| n.parse().unwrap());
    eprintln!("SEED={seed} KILLS={kills}");
    let mut numbers = Numbers(seed);
    let journals = [Journal::default(), Journal::default()];
    for _ in 0..kills {
        let folders = ["x", "y"].map(|name| mounted.path().join(name));
        for folder in &folders {
            fs::create_dir_all(folder).unwrap();
            File::open(folder).unwrap().sync_all().unwrap();
        }
        let wait = Duration::from_millis(20 + numbers.next(600));
        let seeds = [numbers.next(u64::MAX), numbers.next(u64::MAX)];
        std::thread::scope(|scope| {
            for ((folder, journal), seed) in folders.iter().zip(&journals).zip(seeds) {
                scope.spawn(move || write(folder, Numbers(seed), journal));
            }
            std::thread::sleep(wait);
            mounted.kill();
        });
        let gone = loop {
            let gone = fs::metadata(mounted.path()).unwrap_err().raw_os_error();
            // A request in flight when the connection ended.
            if gone != Some(rustix::io::Errno::CONNABORTED.raw_os_error()) {
                break gone;
            }
        };
        assert_eq!(gone, Some(rustix::io::Errno::NOTCONN.raw_os_error()));
        mounted.bench.assert_clean("tank");
        mounted.mount();
        for (folder, journal) in folders.iter().zip(&journals) {
            check(folder, journal);
        }
    }
    mounted.end();
}
