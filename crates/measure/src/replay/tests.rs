//! Traces as tools write them, and providers that take a known time.

use geom::Provider;
use ram::Memory;

use super::{Kind, Pace, Traced, check, parse, run};

fn brief(trace: &[Traced]) -> Vec<(u64, Kind, u64, u64)> {
    let one = |one: &Traced| (one.at_ns / 1_000, one.kind, one.offset, one.len);
    trace.iter().map(one).collect()
}

#[test]
fn the_three_formats_are_read() {
    let version_2 = "fio version 2 iolog\n/dev/sda add\n/dev/sda open\n/dev/sda write 0 4096\n/dev/sda wait 500\n\
                     /dev/sda read 8192 512\n/dev/sda sync 0 0\n/dev/sda wait 100\n/dev/sda trim 4096 4096\n/dev/sda close\n";
    let version_3 = "fio version 3 iolog\n7 x add\n10 x open\n40 x write 0 4096\n540 x read 8192 512\n\
                     540 x sync 0 0\n640 x trim 4096 4096\n700 x close\n";
    let expect = [
        (0, Kind::Write, 0, 4096),
        (500, Kind::Read, 8192, 512),
        (500, Kind::Flush, 0, 0),
        (600, Kind::Trim, 4096, 4096),
    ];
    assert_eq!(brief(&parse(version_2, None).unwrap()), expect);
    assert_eq!(brief(&parse(version_3, None).unwrap()), expect);
    let blkparse = "  8,0    3        1     1.000000000   697  G   W 223490 + 8 [kjournald]\n\
                      8,0    3        2     1.000001829   697  Q   W 223490 + 8 [kjournald]\n\
                      8,0    3       11     1.000040000   697  D  WS 8 + 8 [kjournald]\n\
                      8,0    3       12     1.000060000   697  D FWFS 16 + 1 [kjournald]\n\
                      8,0    3       13     1.000090000   697  C   W 8 + 8 [0]\n\
                      8,0    3       14     1.000100500     0  D   R 2048 + 16 [cat]\n\
                      8,0    3       15     1.000200000     0  D  FN [kworker]\n\
                      8,0    3       16     1.000300000     0  D   D 0 + 8 [fstrim]\n\
                    CPU0 (sda):\n Reads Queued:           1,        8KiB\n";
    let expect = [
        (0, Kind::Write, 4096, 4096),
        (20, Kind::Flush, 0, 0),
        (20, Kind::Write, 8192, 512),
        (60, Kind::Read, 1 << 20, 8192),
        (160, Kind::Flush, 0, 0),
        (260, Kind::Trim, 0, 4096),
    ];
    assert_eq!(brief(&parse(blkparse, None).unwrap()), expect);
}

#[test]
fn what_is_not_a_trace_is_refused_with_its_line() {
    let refuse = |text: &str, why: &str| {
        let error = parse(text, None).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refuse("", "no command in it");
    refuse("hello\nworld\n", "no command in it");
    refuse("fio version 4 iolog\n", "versions 2 and 3");
    refuse(
        "fio version 2 iolog\nx write 0\n",
        "line 2: the length is missing",
    );
    refuse(
        "fio version 2 iolog\nx write a 5\n",
        "line 2: the offset is 'a'",
    );
    refuse(
        "fio version 3 iolog\n5 x eat 0 4096\n",
        "line 2: action 'eat' is not known",
    );
    refuse(
        "fio version 3 iolog\n5 x read 0 0\n",
        "line 2: the length is 0",
    );
    refuse(
        "fio version 3 iolog\n5 x read 0 99999999999\n",
        "line 2: the length is 99999999999",
    );
    refuse(
        "fio version 3 iolog\n5 x trim 18446744073709551615 9\n",
        "line 2: it ends after",
    );
    refuse(
        "  8,0 3 1 1.0 697 D W 99999999999999999999 + 8 [x]\n",
        "line 1: the sector is",
    );
}

#[test]
fn commands_that_do_not_fit_are_not_issued() {
    let disk = Memory::new("disk", 1 << 20);
    let refuse = |text: &str, why: &str| {
        let trace = parse(&format!("fio version 2 iolog\n{text}\n"), None).unwrap();
        let error = check(&disk, &trace).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refuse(
        "x write 0 512\nx write 1048576 512",
        "line 3: ends at byte 1049088",
    );
    refuse(
        "x read 100 512",
        "line 2: 512 bytes at 100 are not whole sectors of 512",
    );
}

#[test]
fn every_command_is_issued_and_its_latency_counted() {
    let disk = Memory::new("disk", 1 << 20);
    disk.write(0, &[7; 4096]).unwrap();
    let trace = parse(
        "fio version 2 iolog\nx read 0 512\nx write 1024 1024\nx sync 0 0\nx read 1024 512\n",
        None,
    )
    .unwrap();
    for keeps_time in [false, true] {
        let mut told = 0;
        let pace = Pace {
            keeps_time,
            depth: 4,
        };
        let replayed = run(&disk, &trace, pace, |done| told = done).unwrap();
        assert_eq!((told, replayed.count()), (4, 4));
        assert_eq!(replayed.latencies[&Kind::Read].bytes, 1024);
        assert!(
            replayed.table().starts_with("          count"),
            "{}",
            replayed.table()
        );
    }
    let mut bytes = [1; 4096];
    disk.read(0, &mut bytes).unwrap();
    assert!(
        bytes[..1024].iter().all(|byte| *byte == 7)
            && bytes[1024..2048].iter().all(|byte| *byte == 0)
    );
}

#[test]
fn percentiles_are_by_nearest_rank() {
    let latencies = super::Latencies {
        bytes: 0,
        each_ns: (1..=1000).rev().collect(),
    };
    let of = |part| latencies.percentile_ns(part);
    assert_eq!(
        (of(0.5), of(0.99), of(0.999), of(1.0)),
        (500, 990, 999, 1000)
    );
    assert_eq!(latencies.mean_ns(), 500);
    assert_eq!(latencies.histogram()[&10], 489);
}

#[test]
fn commands_of_several_files_are_told_apart() {
    let text = "fio version 3 iolog\n5 a read 0 512\n9 b read 512 512\n";
    let error = parse(text, None).unwrap_err().to_string();
    assert_eq!(error, "commands for a, b: say for which");
    let expect = [(0, Kind::Read, 512, 512)];
    assert_eq!(brief(&parse(text, Some("b")).unwrap()), expect);
    let error = parse(text, Some("c")).unwrap_err().to_string();
    assert_eq!(error, "no command for c; there are some for a, b");
}
