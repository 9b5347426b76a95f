//! A medium beside a plain array of bytes; what a program that dies leaves; what is taken on the host.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;

const SECTOR: usize = 512;
const SIZE: usize = 1 << 20;
/// Few, so that logs are copied often.
const SLACK_BYTES: u64 = 2 << 10;

/// How many more bytes a program writes until it dies.
#[derive(Clone, Debug)]
pub(super) struct Life {
    left: Arc<AtomicU64>,
    /// What of a write is not torn.
    unit: usize,
}

impl Life {
    fn new(unit: usize) -> Life {
        let left = Arc::new(AtomicU64::new(u64::MAX));
        Life { left, unit }
    }

    /// How many of these bytes it still writes.
    pub(super) fn spend(&self, bytes: usize) -> usize {
        let left = self.left.load(Ordering::Relaxed);
        if left >= bytes as u64 {
            self.left.store(left - bytes as u64, Ordering::Relaxed);
            return bytes;
        }
        self.left.store(0, Ordering::Relaxed);
        left as usize / self.unit * self.unit
    }

    /// Whether it does one more thing other than a write.
    pub(super) fn lives(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        left > 0
    }
}

impl Media {
    fn limit(&mut self, life: &Life) {
        self.file.life = Some(Life {
            unit: SECTOR,
            ..life.clone()
        });
        self.packed.limit(life, SLACK_BYTES);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, Vec<u8>),
    Erase(usize, usize),
    Read(usize, usize),
    Reopen,
    /// The next change dies after so many bytes.
    Die(u64),
}

/// Bytes of one kind: a pattern again and again, runs of equal bytes, noise, zeros.
fn content(kind: u8, seed: u64, len: usize) -> Vec<u8> {
    let mut seed = seed;
    let mut random = |below: u64| rt::splitmix64(&mut seed) % below;
    let noise = |random: &mut dyn FnMut(u64) -> u64, len| -> Vec<u8> {
        (0..len).map(|_| random(256) as u8).collect()
    };
    match kind {
        0 | 1 => {
            let period = random([16, 10_000][kind as usize]) as usize + 1;
            let pattern = noise(&mut random, period);
            pattern.iter().copied().cycle().take(len).collect()
        }
        2 => {
            let mut bytes = Vec::new();
            while bytes.len() < len {
                let run = random(9_000) as usize;
                bytes.resize((bytes.len() + run).min(len), random(4) as u8);
            }
            bytes
        }
        3 => noise(&mut random, len),
        _ => vec![0; len],
    }
}

fn range() -> impl Strategy<Value = (usize, usize)> {
    let sectors = prop_oneof![1usize..8, 1usize..64, 1usize..600];
    (0..SIZE / SECTOR, sectors, any::<bool>()).prop_map(|(start, sectors, is_aligned)| {
        let start = if is_aligned { start & !7 } else { start };
        let end = (start + sectors).min(SIZE / SECTOR);
        (start * SECTOR, (end - start) * SECTOR)
    })
}

fn step() -> impl Strategy<Value = Step> {
    let parts = prop::collection::vec((0u8..5, any::<u64>()), 1..4);
    prop_oneof![
        8 => (range(), parts).prop_map(|((start, len), parts)| {
            let each = len.div_ceil(parts.len());
            let mut bytes: Vec<u8> = (parts.iter())
                .flat_map(|(kind, seed)| content(*kind, *seed, each))
                .collect();
            bytes.truncate(len);
            Step::Write(start, bytes)
        }),
        2 => range().prop_map(|(start, len)| Step::Erase(start, len)),
        4 => range().prop_map(|(start, len)| Step::Read(start, len)),
        1 => Just(Step::Reopen),
        2 => prop_oneof![0u64..200, 0u64..100_000].prop_map(Step::Die),
    ]
}

struct Bench {
    path: PathBuf,
    life: Life,
    media: Media,
    plain: Vec<u8>,
}

impl Bench {
    fn open(path: &Path) -> Media {
        Media::open(path, SIZE as u64).unwrap()
    }

    fn reopen(&mut self) {
        self.life = Life::new(1);
        self.media = Bench::open(&self.path);
        self.media.limit(&self.life);
    }

    fn read(&mut self, start: usize, len: usize) -> Vec<u8> {
        let mut back = vec![9; len];
        self.media.read(start as u64, &mut back).unwrap();
        back
    }

    /// Changes a range; if the program dies, each sector is old or new.
    fn change(&mut self, start: usize, new: &[u8], erases: bool) -> Result<(), TestCaseError> {
        let at = start as u64;
        let changed = match erases {
            true => self.media.erase(at..at + new.len() as u64),
            false => self.media.write(at, new),
        };
        let is_limited = self.life.left.load(Ordering::Relaxed) < 1 << 40;
        if is_limited {
            self.reopen();
        } else {
            prop_assert!(changed.is_ok(), "{:?}", changed);
        }
        if !is_limited || changed.is_ok() {
            self.plain[start..start + new.len()].copy_from_slice(new);
            return Ok(());
        }
        let now = self.read(start, new.len());
        for (nth, sector) in now.chunks(SECTOR).enumerate() {
            let here = nth * SECTOR..(nth + 1) * SECTOR;
            let old = &self.plain[start..][here.clone()];
            prop_assert!(
                sector == old || sector == &new[here],
                "sector {} is torn",
                start / SECTOR + nth
            );
        }
        self.plain[start..start + new.len()].copy_from_slice(&now);
        Ok(())
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        let all = self.read(0, SIZE);
        prop_assert!(all == self.plain);
        for part in self.media.packed.parts() {
            let covered = self.media.allocated.within(&part).next();
            prop_assert_eq!(covered, Some(part));
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn prop_media_is_a_plain_array_and_dies_between_sectors(
        steps in prop::collection::vec(step(), 1..40)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ada0.img");
        let mut bench = Bench {
            media: Bench::open(&path),
            path,
            life: Life::new(1),
            plain: vec![0; SIZE],
        };
        bench.reopen();
        for step in steps {
            match step {
                Step::Write(start, bytes) => bench.change(start, &bytes, false)?,
                Step::Erase(start, len) => bench.change(start, &vec![0; len], true)?,
                Step::Read(start, len) => {
                    let back = bench.read(start, len);
                    prop_assert!(back == bench.plain[start..start + len]);
                }
                Step::Reopen => bench.reopen(),
                Step::Die(bytes) => bench.life.left.store(bytes, Ordering::Relaxed),
            }
        }
        bench.reopen();
        bench.check()?;
    }
}

/// What a folder takes on the host's disk.
fn used_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap();
    let blocks = entries.map(|entry| entry.unwrap().metadata().unwrap().blocks());
    blocks.sum::<u64>() * 512
}

/// The blocks that bonnie++ writes: one byte of each differs from the block before.
fn bonnie_blocks(first: usize, count: usize) -> Vec<u8> {
    let block = |nth: usize| (0..8192).map(move |at| ((nth + 8191 - at) / 8192 + 1) as u8);
    (first..first + count).flat_map(block).collect()
}

#[test]
fn a_medium_of_sixteen_terabytes_takes_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ada0.img");
    let size = 31_251_759_104 * 512;
    let mut media = Media::open(&path, size).unwrap();
    for n in 0..1000 {
        media.write(n << 20, &vec![0; 1 << 20]).unwrap();
    }
    let noise = content(3, 1, 4096);
    media.write(size - 4096, &noise).unwrap();
    assert!(used_bytes(dir.path()) < 64 << 10);
    drop(media);
    let mut media = Media::open(&path, size).unwrap();
    assert_eq!(
        (media.allocated().total(), media.stored_bytes()),
        (4096, 4096)
    );
    let mut back = [1; 8192];
    media.read(size - 8192, &mut back).unwrap();
    assert!(back[..4096].iter().all(|byte| *byte == 0));
    assert!(back[4096..] == noise);
    media.write(size - 4096, &[0; 4096]).unwrap();
    assert!(media.allocated().is_empty());
    assert!(used_bytes(dir.path()) < 16 << 10);
    drop(media);
    let error = Media::open(&path, size - 512).unwrap_err();
    assert!(error.to_string().contains("but the drive has"), "{error}");
}

#[test]
fn zero_is_told_from_the_rest() {
    assert!(is_zero(&[]) && is_zero(&[0]) && is_zero(&[0; 4097]));
    for at in [0, 1, 2047, 4095] {
        let mut bytes = [0; 4096];
        bytes[at] = 1;
        assert!(!is_zero(&bytes), "{at}");
    }
}

#[test]
fn what_is_written_over_and_over_takes_few_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ada0.img");
    let total = 48 << 20;
    let mut media = Media::open(&path, total).unwrap();
    // Twelve times as much as the medium has: the log is copied.
    for round in 0..12 {
        for at in (0..total).step_by(1 << 20) {
            let first = round * 7000 + at as usize / 8192;
            media.write(at, &bonnie_blocks(first, 128)).unwrap();
        }
    }
    let used = used_bytes(dir.path());
    assert!(used < total / 150 * 2 + (5 << 20), "{used} bytes");
    assert!(media.stored_bytes() <= used);
    drop(media);
    let mut media = Media::open(&path, total).unwrap();
    let mut back = vec![0; 1 << 20];
    media.read(5 << 20, &mut back).unwrap();
    assert!(back == bonnie_blocks(11 * 7000 + 640, 128));
    // A block of noise, again and again.
    let noise = content(3, 1, 8192).repeat(16);
    media.write(0, &noise).unwrap();
    assert!(used_bytes(dir.path()) < used + (64 << 10));
    media.erase(0..total).unwrap();
    assert!(media.allocated().is_empty());
}

#[test]
fn a_file_without_a_log_opens_and_a_log_without_its_file_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ada0.img");
    std::fs::write(&path, [7; 8192]).unwrap();
    let mut media = Media::open(&path, 1 << 20).unwrap();
    let mut back = [0; 8192];
    media.read(0, &mut back).unwrap();
    assert_eq!(back, [7; 8192]);
    media.write(4096, &[8; 4096]).unwrap();
    media.read(0, &mut back).unwrap();
    assert!(back[..4096] == [7; 4096] && back[4096..] == [8; 4096]);
    drop(media);
    std::fs::remove_file(&path).unwrap();
    let mut media = Media::open(&path, 1 << 20).unwrap();
    media.read(0, &mut back).unwrap();
    assert_eq!(back, [0; 8192]);
}

#[test]
fn a_damaged_log_is_refused_and_hostile_ones_do_not_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ada0.img");
    let log = dir.path().join("ada0.img.packed");
    let mut media = Media::open(&path, 16 << 20).unwrap();
    for at in (0..16u64 << 20).step_by(64 << 10) {
        media.write(at, &content(1, at, 64 << 10)).unwrap();
    }
    drop(media);
    let good = std::fs::read(&log).unwrap();
    let mut bad = good.clone();
    bad[8 + 40] ^= 1;
    std::fs::write(&log, &bad).unwrap();
    let error = Media::open(&path, 16 << 20).unwrap_err();
    assert!(
        error.to_string().contains("record at 8: wrong sum"),
        "{error}"
    );
    std::fs::write(&log, &good).unwrap();
    let error = Media::open(&path, 16 << 20).map(|mut media| {
        let mut back = vec![0; 16 << 20];
        media.read(0, &mut back)
    });
    error.unwrap().unwrap();
    let mut seed = 1;
    for _ in 0..300 {
        let mut bad = good.clone();
        let at = rt::splitmix64(&mut seed) as usize % 200;
        bad[at] = rt::splitmix64(&mut seed) as u8;
        bad.truncate(rt::splitmix64(&mut seed) as usize % bad.len());
        std::fs::write(&log, &bad).unwrap();
        if let Ok(mut media) = Media::open(&path, 16 << 20) {
            let _ = media.read(0, &mut vec![0; 1 << 20]);
        }
    }
}
