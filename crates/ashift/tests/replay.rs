//! `ashift replay`: traces of fio, of blkparse and of a recorded mount, issued to drives and files.

#[path = "bench/mod.rs"]
mod bench;

use std::process::Command;

use bench::Bench;
use serde_json::Value;

/// A machine with one drive of 100 MB that says 512 and has 4096, and a partition that begins in sector 63.
fn machine() -> Bench {
    let bench = Bench::new(&[]);
    bench.ok("machine create --seed 7 {dir}/m ada0=wd20ears,size=100MB");
    bench.ok("-m {dir}/m parted -s -a none ada0 mklabel msdos mkpart primary 63s 150000s");
    bench
}

fn trace(bench: &Bench, text: &str) {
    std::fs::write(bench.path("t.log"), text).unwrap();
}

#[track_caller]
fn replay(bench: &Bench, words: &str) -> Value {
    let out = bench.ok(&format!("-m {{dir}}/m replay -j {words}"));
    serde_json::from_str(&out).unwrap()
}

#[test]
fn a_misaligned_partition_shows_in_latencies_and_partial_sectors() {
    let bench = machine();
    // Writes of 4 KiB in no order, each made durable, after the partition table.
    let mut text = String::from("fio version 2 iolog\nx add\nx open\n");
    for n in 0..60_u64 {
        text += &format!(
            "x write {} 4096\nx sync 0 0\n",
            (n * 7919 % 16_000 + 100) * 4096
        );
    }
    trace(&bench, &text);
    let aligned = replay(&bench, "-a -q 1 {dir}/t.log ada0");
    let off = replay(&bench, "-a -q 1 {dir}/t.log ada0s1");
    let partial = |report: &Value| report["partial"]["drive"]["writes"].as_u64().unwrap();
    assert_eq!((partial(&aligned), partial(&off)), (0, 60));
    assert_eq!(aligned["commands"]["write"]["count"], 60);
    assert_eq!(aligned["commands"]["flush"]["count"], 60);
    let time = |report: &Value| report["elapsed_ns"].as_f64().unwrap();
    assert!(time(&off) > 1.5 * time(&aligned), "{off} {aligned}");
    // The same again is the same: time is simulated.
    let table = bench.ok("-m {dir}/m replay -af {dir}/t.log ada0s1");
    for word in [
        "99.9%",
        "less than",
        "60 of 60 writes begin or end",
        "as fast as they complete, 32 in flight",
    ] {
        assert!(table.contains(word), "{word}\n{table}");
    }
}

#[test]
fn reads_do_not_care_where_a_partition_begins() {
    let bench = machine();
    let mut text = String::from("fio version 2 iolog\n");
    for n in 0..200_u64 {
        text += &format!("x read {} 4096\n", (n * 7919 % 16_000 + 100) * 4096);
    }
    trace(&bench, &text);
    let mean = |device: &str| {
        let report = replay(&bench, &format!("-a -q 1 {{dir}}/t.log {device}"));
        assert_eq!(report["partial"]["drive"]["writes"], 0);
        report["mean_ns"].as_f64().unwrap()
    };
    let ratio = mean("ada0s1") / mean("ada0");
    assert!((ratio - 1.0).abs() < 0.05, "{ratio}");
}

#[test]
fn a_packed_trace_is_unpacked() {
    let bench = machine();
    trace(
        &bench,
        "fio version 2 iolog\nx read 0 4096\nx read 8192 4096\n",
    );
    let plain = bench.ok("-m {dir}/m replay -af {dir}/t.log ada0");
    assert!(
        plain.contains("a command took ") && plain.contains(" ms at most"),
        "{plain}"
    );
    let packed = Command::new("gzip").arg(bench.path("t.log")).status();
    if !packed.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: there is no gzip here");
        return;
    }
    let report = replay(&bench, "-a {dir}/t.log.gz ada0");
    assert_eq!(report["commands"]["read"]["count"], 2);
    std::fs::write(bench.path("t.log.gz"), [0x1f, 0x8b, 8, 0, 1]).unwrap();
    let (code, _, said) = bench.run("-m {dir}/m replay -a {dir}/t.log.gz ada0");
    assert!(code != 0 && said.contains("t.log.gz: "), "{said}");
}

#[test]
fn a_raid5_writes_its_parity_and_is_slower_where_its_partitions_are_off() {
    let bench = Bench::new(&[]);
    let drives = "ada0=wd20ears,size=300MB ada1=wd20ears,size=300MB ada2=wd20ears,size=300MB";
    bench.ok(&format!("machine create --seed 7 {{dir}}/m {drives}"));
    for drive in ["ada0", "ada1", "ada2"] {
        let line = format!(
            "parted -s -a none {drive} mklabel gpt mkpart a 34s 290000s mkpart b 290007s 100%"
        );
        bench.ok(&format!("-m {{dir}}/m {line}"));
    }
    let mut text = String::from("fio version 2 iolog\n");
    for n in 0..60_u64 {
        text += &format!("x write {} 4096\nx sync 0 0\n", n * 7919 % 4_000 * 4096);
    }
    trace(&bench, &text);
    let whole = replay(&bench, "-a -r 64k {dir}/t.log ada0 ada1 ada2");
    let off = replay(&bench, "-a -r 64k {dir}/t.log ada0p1 ada1p1 ada2p1");
    assert_eq!(whole["device"], "raid5(ada0,ada1,ada2)");
    let partial = |report: &Value| report["partial"]["drive"]["writes"].as_u64().unwrap();
    // A page of data and one of parity.
    assert_eq!((partial(&whole), partial(&off)), (0, 120));
    let time = |report: &Value| report["elapsed_ns"].as_f64().unwrap();
    assert!(time(&off) > 1.1 * time(&whole), "{off} {whole}");
    for (words, why) in [
        ("-a {dir}/t.log ada0 ada1 ada2", "several are for a RAID-5"),
        ("-a -r 5k {dir}/t.log ada0 ada1 ada2", "not a power of two"),
        ("-a -r 64k {dir}/t.log ada0 ada1", "it needs three"),
    ] {
        let (code, _, said) = bench.run(&format!("-m {{dir}}/m replay {words}"));
        assert!(code != 0 && said.contains(why), "{said}");
    }
}

#[test]
fn a_trace_keeps_its_times_and_a_queue_its_depth() {
    let bench = machine();
    trace(
        &bench,
        "fio version 3 iolog\n0 x read 0 4096\n2000000 x read 40960 4096\n2000000 x read 81920 4096\n",
    );
    let paced = replay(&bench, "{dir}/t.log ada0");
    let elapsed = paced["elapsed_ns"].as_u64().unwrap();
    assert!(
        (2_000_000_000..2_200_000_000).contains(&elapsed),
        "{elapsed}"
    );
    assert!(
        replay(&bench, "-a {dir}/t.log ada0")["elapsed_ns"]
            .as_u64()
            .unwrap()
            < 200_000_000
    );
    // Random reads in a queue: the drive goes to the next one that comes round.
    let mut text = String::from("fio version 2 iolog\n");
    for n in 0..200_u64 {
        text += &format!("x read {} 4096\n", n * 7919 % 24_000 * 4096);
    }
    trace(&bench, &text);
    let time = |depth: u32| {
        replay(&bench, &format!("-a -q {depth} {{dir}}/t.log ada0"))["elapsed_ns"]
            .as_f64()
            .unwrap()
    };
    assert!(time(1) > 1.2 * time(32));
}

#[test]
fn files_of_this_host_are_overwritten_only_when_that_is_said() {
    let bench = Bench::new(&["a"]);
    std::fs::write(bench.path("a"), vec![7; 1 << 20]).unwrap();
    trace(
        &bench,
        "  8,0 0 1 0.000000000 7 D W 8 + 8 [x]\n  8,0 0 2 0.000100000 7 D R 0 + 8 [x]\n",
    );
    bench.fails(
        "replay {dir}/t.log {a}",
        1,
        "ashift replay: {dir}/t.log: {a} would be overwritten: say --yes-write-to-device for that",
    );
    assert_eq!(std::fs::read(bench.path("a")).unwrap(), vec![7; 1 << 20]);
    bench.ok("replay --yes-write-to-device {dir}/t.log {a}");
    let bytes = std::fs::read(bench.path("a")).unwrap();
    assert!(
        bytes[4096..8192].iter().all(|byte| *byte == 0) && bytes[8192] == 7 && bytes[4095] == 7
    );
    trace(
        &bench,
        "fio version 2 iolog\nx read 0 512\nx read 1048576 512\n",
    );
    bench.fails(
        "replay {dir}/t.log {a}",
        1,
        "ashift replay: {dir}/t.log: line 3: ends at byte 1049088, {a} at 1048576",
    );
    bench.fails(
        "replay {dir}/none {a}",
        1,
        "ashift replay: {dir}/none: No such file or directory (os error 2)",
    );
}

#[test]
fn what_fio_has_logged_is_replayed_in_full() {
    let bench = machine();
    let fio = Command::new("fio")
        .args([
            "--name=x",
            "--filename=t.img",
            "--rw=randrw",
            "--bs=4k",
            "--size=8M",
            "--io_size=400k",
        ])
        .args(["--fsync=8", "--write_iolog=t.log"])
        .current_dir(bench.folder())
        .output();
    if !fio.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: there is no fio here");
        return;
    }
    let log = std::fs::read_to_string(bench.path("t.log")).unwrap();
    let count = |word: &str| {
        log.lines()
            .filter(|line| line.split(' ').nth(2) == Some(word))
            .count()
    };
    let report = replay(&bench, "{dir}/t.log ada0");
    for (kind, word) in [("read", "read"), ("write", "write"), ("flush", "sync")] {
        assert!(count(word) > 0, "{log}");
        assert_eq!(report["commands"][kind]["count"], count(word), "{kind}");
    }
}

#[test]
fn what_a_program_does_on_a_mount_is_recorded() {
    if !std::path::Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED: no FUSE here");
        return;
    }
    let bench = machine();
    std::fs::create_dir(bench.path("mnt")).unwrap();
    bench.ok("machine mount --record {dir}/t.log {dir}/m {dir}/mnt");
    let drive = bench.path("mnt").join("ada0s1");
    let dd = format!(
        "dd if=/dev/zero of={} bs=8k count=4 seek=2 conv=notrunc,fsync oflag=direct",
        drive.display()
    );
    let dd = Command::new("sh").args(["-c", &dd]).output();
    let unmounted = Command::new("umount")
        .arg(bench.path("mnt"))
        .status()
        .unwrap();
    assert!(unmounted.success());
    let dd = dd.unwrap();
    assert!(
        dd.status.success(),
        "{}",
        String::from_utf8_lossy(&dd.stderr)
    );
    // The mount ends when its process has closed the machine.
    let report = replay(&bench, "{dir}/t.log ada0s1");
    assert_eq!(report["commands"]["write"]["count"], 4);
    assert_eq!(report["commands"]["write"]["bytes"], 4 * 8192);
    assert_eq!(report["commands"]["flush"]["count"], 1);
    bench.fails(
        "-m {dir}/m replay -o ada0 {dir}/t.log ada0",
        1,
        "ashift replay: {dir}/t.log: no command for ada0; there are some for ada0s1",
    );
}
