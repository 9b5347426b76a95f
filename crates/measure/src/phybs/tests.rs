use super::*;

use std::sync::Arc;

use base::ErrorKind;
use faulty::Delay;
use proptest::prelude::*;
use ram::Memory;

fn row(count: u32, size: u64, offset: u64, msec: u64) -> Row {
    let pass = Pass {
        count,
        size_bytes: size,
        offset_bytes: offset,
        step_bytes: size * 4,
    };
    Row {
        pass,
        elapsed_us: msec * 1000,
    }
}

/// Size, offset, milliseconds, true operations per second, KiB per second: "Using 4k sector
/// drives", Ulf Lilleengen, 2010.
const TABLE: &[(u64, u64, u64, f64, u64)] = &[
    (1024, 0, 131_771, 994.7, 994),
    (1024, 512, 136_005, 963.7, 963),
    (2048, 0, 74_762, 876.6, 1753),
    (2048, 512, 71_407, 917.8, 1835),
    (2048, 1024, 73_432, 892.5, 1784),
    (4096, 0, 20_710, 1582.2, 6328),
    (4096, 512, 61_987, 528.6, 2114),
    (4096, 1024, 62_719, 522.5, 2089),
    (4096, 2048, 61_089, 536.4, 2145),
    (8192, 0, 14_238, 1150.7, 9205),
    (8192, 512, 53_348, 307.1, 2456),
    (8192, 1024, 52_868, 309.9, 2479),
    (8192, 2048, 50_914, 321.8, 2574),
];

/// `count * 1000000` modulo 2^32.
const OVERFLOWN: &[(u32, u64)] = &[
    (262_144, 150_994_944),
    (131_072, 2_222_981_120),
    (65_536, 1_111_490_560),
    (32_768, 2_703_228_928),
    (16_384, 3_499_098_112),
];

/// Offset, milliseconds, operations per second as printed, KiB per second: "Benchmarking Advanced
/// Format drives" and "Off by one", Dag-Erling Smørgrav, 2010; 32,768 blocks of 4,096 bytes.
const PRINTED: &[(u64, u64, u64, u64)] = &[
    (0, 19_503, 138, 6720),
    (512, 1_216_537, 2, 107),
    (1024, 1_213_479, 2, 108),
    (2048, 1_214_623, 2, 107),
    (0, 78_631, 34, 1666),
    (512, 79_880, 33, 1640),
    (1024, 73_164, 36, 1791),
    (1536, 77_727, 34, 1686),
    (2048, 76_975, 35, 1702),
    (2560, 74_970, 36, 1748),
    (3072, 79_379, 34, 1651),
    (3584, 28_094, 96, 4665),
];

#[test]
fn the_columns_are_those_of_the_published_tables() {
    let sweep = Options {
        write: true,
        ..Options::default()
    };
    let passes: Vec<Pass> = sweep.passes(512).unwrap().into_iter().flatten().collect();
    assert_eq!(
        passes.len(),
        TABLE.len() + 1,
        "the table lacks its last row"
    );
    for (pass, (size, offset, msec, tps, kbps)) in passes.iter().zip(TABLE) {
        assert_eq!((pass.size_bytes, pass.offset_bytes), (*size, *offset));
        let row = row(pass.count, *size, *offset, *msec);
        assert_eq!(row.pass, *pass);
        assert_eq!(row.msec(), *msec);
        assert_eq!(row.tps(), *tps as u64);
        assert_eq!(row.kbps(), *kbps);
        let (_, product) = OVERFLOWN.iter().find(|(n, _)| *n == pass.count).unwrap();
        assert_eq!(row.published_tps(), product / (msec * 1000));
    }
    let last = passes.last().unwrap();
    assert_eq!((last.size_bytes, last.offset_bytes), (8192, 4096));
}

#[test]
fn the_overflow_of_the_original_is_reproduced() {
    for (offset, msec, tps, kbps) in PRINTED {
        let row = row(32_768, 4096, *offset, *msec);
        assert_eq!(row.published_tps(), *tps, "at {offset}");
        // The table has whole milliseconds only, so its rate may be lower by one.
        assert!(row.kbps() - kbps <= 1, "{} at {offset}", row.kbps());
    }
}

#[test]
fn the_lines_are_those_of_the_original() {
    let row = row(32_768, 4096, 512, 1_216_537);
    let expect = [
        "   count    size  offset    step        msec     tps    kBps",
        "   32768    4096     512   16384     1216537       2     107",
        "   32768    4096     512   16384     1216537      26     107",
    ];
    let start = row.pass.text();
    let printed = [
        header(),
        format!("{start}{}", row.text(true)),
        format!("{start}{}", row.text(false)),
    ];
    assert_eq!(printed, expect);
}

#[test]
fn options_that_do_not_fit_are_refused_in_its_words() {
    let check = |min, max, total, text: &str| {
        let options = Options {
            read: true,
            min_bytes: min,
            max_bytes: max,
            total_bytes: total,
            ..Options::default()
        };
        let error = options.passes(4096).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(error.to_string(), text);
    };
    check(
        Some(512),
        None,
        None,
        "minsize (512) is not a multiple of block size (4096)",
    );
    check(
        None,
        Some(4096),
        None,
        "maxsize (4096) is not a multiple of minsize (8192)",
    );
    check(
        None,
        None,
        Some(4096),
        "total (4096) is not a multiple of maxsize (65536)",
    );
    let size = |text: &str| parse_size('l', text).map_err(|e| e.to_string());
    assert_eq!(size("4k"), Ok(4096));
    assert_eq!(size("x"), Err("-l: invalid number".into()));
    assert_eq!(size("3k"), Err("-l: not a power of two".into()));
    assert_eq!(size("0"), Err("-l: out of range".into()));
    assert_eq!(size("4g"), Err("-l: out of range".into()));
    assert_eq!(size("2g"), Ok(2 << 30));
}

#[test]
fn a_device_that_is_too_small_is_refused_before_anything_is_written() {
    let disk = Memory::new("md0", 64 << 20);
    let options = Options {
        write: true,
        ..Options::default()
    };
    let error = run(&disk, &options, |_| {}).unwrap_err();
    assert!(error.to_string().contains("md0: too small"), "{error}");
}

#[test]
fn sim_a_run_takes_the_time_of_its_commands() {
    let rows = rt::simulate(1, || {
        let disk = Arc::new(Memory::new("md0", 4 << 20));
        let slow = Delay::new(disk, 1_000_000..1_000_001, 1);
        let options = Options {
            read: true,
            write: true,
            sync: true,
            total_bytes: Some(1 << 20),
            ..Options::default()
        };
        let mut seen = Vec::new();
        let rows = run(&slow, &options, |progress| {
            if let Progress::Done(row) = progress {
                seen.push(row);
            }
        })
        .unwrap();
        assert_eq!(rows, seen);
        rows
    });
    assert_eq!(rows.len(), 14);
    for row in rows {
        // Read, write, flush: a millisecond each.
        assert_eq!(row.msec(), u64::from(row.pass.count) * 3);
        assert_eq!(row.tps(), 333);
    }
}

proptest! {
    #[test]
    fn prop_every_pass_sweeps_four_times_the_total(
        sector in 9u32..=12, min in 0u32..3, max in 0u32..5, total in 0u32..8
    ) {
        let sector = 1u32 << sector;
        let min = u64::from(sector) << min;
        let max = min << max;
        let total = max << total;
        let options = Options {
            write: true,
            min_bytes: Some(min),
            max_bytes: Some(max),
            total_bytes: Some(total),
            ..Options::default()
        };
        for passes in options.passes(sector).unwrap() {
            for (at, pass) in passes.iter().enumerate() {
                prop_assert_eq!(u64::from(pass.count) * pass.step_bytes, 4 * total);
                prop_assert!(pass.offset_bytes < pass.size_bytes);
                prop_assert!(pass.end().unwrap() <= 4 * total);
                let expect = if at == 0 { 0 } else { u64::from(sector) << (at - 1) };
                prop_assert_eq!(pass.offset_bytes, expect);
            }
        }
    }
}
