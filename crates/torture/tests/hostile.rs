//! Images whose structures lie and whose checksums are right: whatever they contain, commands end, with or
//! without an error.
//!
//! The ordinary run takes a sample. `HOSTILE_IMAGES=100000` tries that many, from `SEED` on, and lists every
//! place that panics; from `SEED=4294967296` on they are of RAID-Z, dRAID, and of vdevs that were expanded, removed or
//! rebuilt. Pinned to one processor (`taskset`) it is twice as fast, because only one thread runs at a time.
//! `HOSTILE_SEED=N` repeats one image; `HOSTILE_SAVE=FOLDER` then also saves it, to be used with the program.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use torture::hostile::{self, FIRST_VDEV_SEED, exercise::Outcome};
use torture::{Dice, seed};

/// Images in the ordinary run, and those of other vdevs than devices and mirrors.
const SAMPLE: u64 = 150;
const VDEV_SAMPLE: u64 = 40;
/// The most that an image may take, in seconds of processor time, because the machine may be busy with other
/// things. A thread that waits for ever is detected at once, as time is simulated.
const SECONDS_MAX: u64 = 10;
/// `USER_HZ`
const TICKS_PER_SECOND: u64 = 100;
/// The most memory that the process may ever have had, in KiB.
const PEAK_KIB_MAX: u64 = 2 << 20;
/// Seeds that once failed.
const FOUND: &[u64] = &[
    3,
    383,
    1377,
    1799,
    101_530,
    200_289,
    301_285,
    2_000_699,
    2_007_651,
    2_053_492,
    2_053_914,
    2_062_988,
    2_070_146,
    3_012_749,
    5_067_564,
    6_063_074,
    7_068_903,
    8_054_376,
    9_014_319,
    4_294_995_198,
    4_295_003_319,
    4_295_034_011,
];

/// The seed of the current image, and the processor time of the process when the image was started, in ticks.
static CURRENT: AtomicU64 = AtomicU64::new(0);
static BEGUN_TICKS: AtomicU64 = AtomicU64::new(0);
/// Where threads panicked, with the message, the first seed, and the number of panics.
static PANICS: Mutex<BTreeMap<String, (String, u64, u64)>> = Mutex::new(BTreeMap::new());

fn run(seed: u64) -> Option<Outcome> {
    CURRENT.store(seed, Ordering::SeqCst);
    BEGUN_TICKS.store(ticks(), Ordering::SeqCst);
    let images = hostile::images(seed);
    catch_unwind(AssertUnwindSafe(|| {
        hostile::run(&images, &mut Dice::new(seed))
    }))
    .ok()
}

/// `utime` and `stime` of this process.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let times = fields.split(' ').skip(11).take(2);
    times.map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Ends the process when an image takes too long: a single thread cannot be stopped.
fn watch() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let used = ticks().saturating_sub(BEGUN_TICKS.load(Ordering::SeqCst));
            if used > SECONDS_MAX * TICKS_PER_SECOND {
                eprintln!("HOSTILE_SEED={} hangs", CURRENT.load(Ordering::SeqCst));
                std::process::abort();
            }
        }
    });
}

fn note_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let at = panic
            .location()
            .map_or_else(String::new, ToString::to_string);
        let text = panic.payload_as_str().unwrap_or("").to_owned();
        let seed = CURRENT.load(Ordering::SeqCst);
        if std::env::var_os("RUST_BACKTRACE").is_some() {
            eprintln!("{}", std::backtrace::Backtrace::force_capture());
        }
        let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = panics.entry(at.clone()).or_insert_with(|| {
            eprintln!("HOSTILE_SEED={seed}: {at}: {text}");
            (text, seed, 0)
        });
        entry.2 += 1;
    }));
}

/// `VmHWM`: the peak of this process, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.unwrap().split_whitespace().next().unwrap();
    number.parse().unwrap()
}

#[test]
fn images_that_lie_neither_hang_nor_abort() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let seeds: Vec<u64> = match (number("HOSTILE_SEED"), number("HOSTILE_IMAGES")) {
        (Some(one), _) => vec![one],
        (None, count) => {
            let first = seed(1);
            let sample = first..first + count.unwrap_or(SAMPLE);
            let of_vdevs = FIRST_VDEV_SEED..FIRST_VDEV_SEED + VDEV_SAMPLE;
            let sample = sample.chain(of_vdevs.filter(|_| count.is_none()));
            FOUND.iter().copied().chain(sample).collect()
        }
    };
    if let (Some(seed), Ok(folder)) = (number("HOSTILE_SEED"), std::env::var("HOSTILE_SAVE")) {
        let devices = hostile::devices(&hostile::images(seed), &mut Dice::new(seed));
        hostile::write(&devices, folder.as_ref());
    }
    // Made before time counts.
    let _ = seeds.first().map(|seed| hostile::images(*seed));
    let _ = seeds.last().map(|seed| hostile::images(*seed));
    watch();
    note_panics();
    let mut sum = Outcome::default();
    let (mut readable, mut writable, mut failed) = (0, 0, Vec::new());
    for (at, seed) in seeds.iter().enumerate() {
        match run(*seed) {
            Some(outcome) => {
                readable += u64::from(outcome.is_readable);
                writable += u64::from(outcome.is_writable);
                sum.done += outcome.done;
                sum.failed += outcome.failed;
            }
            None => failed.push(*seed),
        }
        if at % 10_000 == 9_999 {
            eprintln!(
                "{} images, {} failed, peak {} KiB",
                at + 1,
                failed.len(),
                peak_kib()
            );
        }
    }
    let _ = std::panic::take_hook();
    BEGUN_TICKS.store(u64::MAX, Ordering::SeqCst);
    let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    for (at, (text, seed, count)) in panics.iter() {
        eprintln!("{count} times at {at}: {text} (HOSTILE_SEED={seed})");
    }
    let count = seeds.len() as u64;
    eprintln!(
        "{count} images, {readable} readable, {writable} writable, {sum:?}, {} KiB",
        peak_kib()
    );
    assert!(
        failed.is_empty(),
        "{} of {count} failed: {failed:?}",
        failed.len()
    );
    assert!(panics.is_empty(), "a thread panicked");
    assert!(peak_kib() < PEAK_KIB_MAX, "{} KiB", peak_kib());
    // Most images open; otherwise the test would show nothing.
    assert!(count < 100 || readable * 2 > count && writable * 3 > count);
}

#[test]
fn an_image_that_is_not_changed_is_good() {
    let (all, vdevs) = (hostile::seeds::all(), hostile::seeds::all_vdevs());
    for image in all.iter().chain(vdevs.iter()) {
        let devices = image.edit().finish();
        let outcome = rt::simulate(1, || hostile::exercise(&devices, 0));
        assert!(
            outcome.is_readable && outcome.is_writable && outcome.done > 100,
            "{outcome:?}"
        );
        let spa = torture::pool::open(&image.edit().finish(), true).unwrap();
        // What is not rebuilt yet is a bad copy.
        if !spa.is_rebuilding() {
            torture::pool::assert_clean(&spa);
        }
        // Rewriting blocks elsewhere with the same content changes nothing that is read.
        let mut edit = image.edit();
        for block in 0..image.blocks.len().min(40) {
            edit.content(block);
        }
        let spa = torture::pool::open(&edit.finish(), true).unwrap();
        assert!(spa.parts().dsl().descendants("tank").unwrap().len() > 1);
    }
}
