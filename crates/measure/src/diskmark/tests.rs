use super::*;

use faulty::Delay;
use ram::Memory;

/// A disk whose commands each take a random time in `range_ns`.
fn slow(range_ns: std::ops::Range<u64>, seed: u64) -> Delay {
    Delay::new(Arc::new(Memory::new("md0", 8 << 20)), range_ns, seed)
}

fn short() -> Options {
    Options {
        size_bytes: 4 << 20,
        measure_ns: NS_PER_S / 10,
        interval_ns: NS_PER_S,
        runs: 2,
        ..Options::default()
    }
}

fn scores(seed: u64) -> (Vec<Score>, u64) {
    rt::simulate(seed, move || {
        let disk = slow(1_000_000..3_000_000, seed);
        (run(&disk, &short(), |_| {}).unwrap(), rt::now_ns())
    })
}

#[test]
fn sim_equal_seeds_give_equal_scores() {
    assert_eq!(scores(1), scores(1));
    assert_ne!(scores(1), scores(2));
}

#[test]
fn sim_rates_follow_from_the_time_of_a_command() {
    let (scores, elapsed) = rt::simulate(1, || {
        let disk = slow(1_000_000..1_000_001, 1);
        (run(&disk, &short(), |_| {}).unwrap(), rt::now_ns())
    });
    assert_eq!(scores.len(), 8);
    assert!(scores[..4].iter().all(|score| !score.is_write));
    for score in &scores {
        assert!((score.iops() - 1000.0).abs() < 1.0, "{score:?}");
        let expect = score.test.block_bytes as f64 * 1000.0 / 1e6;
        assert!(
            (score.mb_per_s() - expect).abs() < expect / 100.0,
            "{score:?}"
        );
        assert!((score.latency_us() - 1000.0).abs() < 1.0, "{score:?}");
    }
    // Eight tests of three runs, seven pauses, the filling, and commands still in flight at the ends.
    let least = 8 * 3 * NS_PER_S / 10 + 7 * NS_PER_S;
    assert!((least..least + NS_PER_S).contains(&elapsed), "{elapsed}");
}

#[test]
fn sim_a_disk_without_time_is_refused() {
    let error = rt::simulate(1, || {
        let disk = Memory::new("md0", 8 << 20);
        run(&disk, &short(), |_| {}).unwrap_err()
    });
    assert_eq!(error.to_string(), "md0: no time passes on it");
}

#[test]
fn areas_that_do_not_fit_are_refused() {
    let disk = Memory::with_sectors("md0", 8 << 20, 4096, 4096);
    let check = |options: Options, text: &str| {
        let error = run(&disk, &options, |_| {}).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(text), "{error}");
    };
    check(Options::default(), "does not fit into 8388608");
    let odd = |tests| Options { tests, ..short() };
    check(odd(vec![test(true, 2, 1, 1)]), "not whole sectors of 4096");
    check(odd(vec![test(true, 8192, 1, 1)]), "too small");
}

#[test]
fn the_report_has_the_lines_of_the_original() {
    let score = Score {
        test: DEFAULT[2],
        is_write: true,
        runs: vec![
            Run {
                commands: 2,
                bytes: 8192,
                latency_ns: 5_000_000,
                elapsed_ns: NS_PER_S,
            },
            Run {
                commands: 100,
                bytes: 409_600,
                latency_ns: 1_000_000_000,
                elapsed_ns: NS_PER_S,
            },
        ],
    };
    let expect = "  RND    4KiB (Q= 32, T= 1):     0.410 MB/s [    100.0 IOPS] <  2500.00 us>\n";
    assert_eq!(score.text(), expect);
    let report = Report {
        program: "diskmark",
        profile: "Default",
        target: "ada0: 2000 GB",
        mode: "",
        date: "2026/01/01 00:00:00",
        system: "machine",
        options: &Options::default(),
        scores: &[score],
    };
    let text = report.text();
    assert!(!text.contains("[Read]"), "nothing was read");
    let rule = "-".repeat(78);
    assert!(text.starts_with(&format!("{rule}\ndiskmark\n{rule}\n")));
    assert!(text.contains(&format!("\n[Write]\n{expect}")));
    assert!(text.contains("\n   Test: 1 GiB (x5) [ada0: 2000 GB]\n"));
    assert!(text.contains("\n   Time: Measure 5 sec / Interval 5 sec\n"));
}
