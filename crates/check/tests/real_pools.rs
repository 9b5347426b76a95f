//! Pools written by the real OpenZFS, checked by this checker and by `zdb`: both must count the
//! same blocks and find nothing wrong. Then the same with damage.
//!
//! A pool is written once in the guest (under a minute) and kept in the user's cache folder.

mod common;

use std::path::Path;

use check::{Checksums, Finding, Options};
use common::{Image, open_pool};
use oracle::Zdb;

/// The numbers that `zdb -b` prints about a pool.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    bps: u64,
    gangs: u64,
    logical: u64,
    physical: u64,
    allocated: u64,
}

fn zdb_counts(output: &str) -> Counts {
    let number = |label: &str| -> u64 {
        let line = output.lines().find(|l| l.trim_start().starts_with(label));
        let line = line.unwrap_or_else(|| panic!("no {label:?} in:\n{output}"));
        let rest = line.trim_start().trim_start_matches(label);
        let word = rest.split_whitespace().next().expect("a number");
        word.parse().expect("a number")
    };
    Counts {
        bps: number("bp count:"),
        gangs: number("ganged count:"),
        logical: number("bp logical:"),
        physical: number("bp physical:"),
        allocated: number("bp allocated:"),
    }
}

fn our_counts(report: &check::Report) -> Counts {
    let total = report.stats.total();
    Counts {
        bps: total.count,
        gangs: total.gangs,
        logical: total.lsize,
        physical: total.psize,
        allocated: total.asize,
    }
}

fn compare(image: &Image) -> check::Report {
    let pool = open_pool(&image.folder);
    let report = check::verify(&pool, &Options::default()).expect("the MOS opens");
    for finding in &report.findings {
        eprintln!("{finding}");
    }
    assert!(report.is_clean());
    let zdb = Zdb::verify(&image.folder, &image.pool);
    zdb.assert_clean();
    assert_eq!(our_counts(&report), zdb_counts(&zdb.stdout));
    report
}

#[test]
fn slow_a_lived_in_pool_is_clean_and_counts_as_zdb_does() {
    let Some(image) = Image::lived_in() else {
        return;
    };
    compare(&image);
}

#[test]
fn slow_a_pool_with_gangs_and_a_log_counts_as_zdb_does() {
    let Some(image) = Image::gangs_and_log() else {
        return;
    };
    let report = compare(&image);
    let log = check::BlockKind::Type(phys::ObjectType::INTENT_LOG.raw());
    assert!(report.stats.of_kind(log).count > 5, "the log was claimed");
}

#[test]
fn slow_a_mirror_with_a_bad_side_is_told() {
    let Some(image) = Image::mirror() else {
        return;
    };
    compare(&image);
    let copy = image.copy();
    damage(&copy.folder.join("d0.img"), 8 << 20, 200 << 20);
    let pool = open_pool(&copy.folder);
    let report = check::verify(&pool, &Options::default()).expect("the MOS opens");
    let damaged = |f: &Finding| matches!(f, Finding::DamagedCopies { .. });
    assert!(!report.findings.is_empty());
    assert!(report.findings.iter().all(damaged), "{:?}", report.findings);
    // One good copy of each block is enough to read it.
    let options = Options {
        every_copy: false,
        checksums: Checksums::All,
        ..Options::default()
    };
    let report = check::verify(&pool, &options).expect("the MOS opens");
    assert!(report.is_clean(), "{:?}", report.findings);
}

fn damage(path: &Path, at: u64, len: usize) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .expect("the image");
    file.write_all_at(&vec![0xdb; len], at).expect("written");
}
