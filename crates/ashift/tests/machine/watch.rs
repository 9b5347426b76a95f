//! What is measured beside and around commands: `iostat`, `gstat`, `time`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::script::sh;
use super::up::{clock_ns, up, with_pool};
use super::{Bench, text};

/// The reports in what `iostat` printed: for each of their drives its name and figures.
fn reports(out: &str) -> Vec<Vec<(String, Vec<f64>)>> {
    let mut reports = Vec::new();
    for line in out.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("Device" | "device") => reports.push(Vec::new()),
            Some("extended") | None => {}
            Some(name) => {
                let figures = words.map(|word| word.parse().unwrap()).collect();
                reports.last_mut().unwrap().push((name.to_owned(), figures));
            }
        }
    }
    reports
}

/// Bytes that do not repeat.
fn noise(len: u32) -> Vec<u8> {
    (0..len)
        .map(|n| (n.wrapping_mul(0x9e37_79b9) >> 24) as u8)
        .collect()
}

/// The machine's host is that one.
fn set_host(bench: &Bench, host: &str) {
    let toml = bench.path("m/machine.toml");
    let described = fs::read_to_string(&toml).unwrap();
    fs::write(&toml, format!("host = \"{host}\"\n{described}")).unwrap();
}

const LEN: u32 = 20_000_000;

#[test]
fn iostat_beside_a_copy_counts_each_byte_once() {
    let run = || {
        let bench = Bench::new(2);
        fs::write(bench.path("data"), noise(LEN)).unwrap();
        let (code, out, said) = sh(
            &bench,
            "zpool create -O compression=off tank gpt/d0\nzpool sync tank; sleep 10\n\
             { cp data /tank/a; zpool sync tank; } & iostat -x 1 5\n\
             wait; sleep 10; iostat -dxy 1 2\n",
        );
        assert_eq!((code, said.as_str()), (Some(0), ""), "{out}");
        out
    };
    let out = run();
    assert_eq!(out, run());
    let reports = reports(&out);
    assert_eq!(reports.len(), 7, "{out}");
    let names = |report: &[(String, Vec<f64>)]| -> Vec<String> {
        report.iter().map(|(name, _)| name.clone()).collect()
    };
    assert!(
        reports
            .iter()
            .all(|report| names(report) == ["ada0", "ada1"]),
        "{out}"
    );
    let (beside, idle) = (&reports[1..5], &reports[5..]);
    let written: f64 = beside.iter().map(|report| report[0].1[7]).sum();
    let kib = f64::from(LEN) / 1024.0;
    assert!(
        (kib..kib * 1.03).contains(&written),
        "{written} KiB of {kib}\n{out}"
    );
    for (_, figures) in reports.iter().flatten() {
        let util = figures[21];
        assert!(
            (0.0..=100.0).contains(&util) && figures.len() == 22,
            "{out}"
        );
    }
    assert!(beside[0][0].1[21] > 10.0, "it was busy\n{out}");
    for (_, figures) in idle
        .iter()
        .flatten()
        .chain(beside.iter().map(|report| &report[1]))
    {
        assert!(figures.iter().all(|figure| *figure == 0.0), "{out}");
    }
}

#[test]
fn gstat_and_iostat_agree_about_the_same_seconds() {
    let bench = Bench::new(1);
    set_host(&bench, "freebsd-13");
    fs::write(bench.path("data"), noise(LEN)).unwrap();
    let (code, out, said) = sh(
        &bench,
        "zpool create -O compression=off tank gpt/d0\n\
         cp data /tank/a; zpool sync tank; zpool export tank; zpool import tank\n\
         { sha256sum /tank/a > sum; cp data /tank/b; zpool sync tank; } &\n\
         gstat -bdo -I 2s -f '^ada' > gstat & iostat -x -y -w 2 -c 1; wait\n",
    );
    assert_eq!((code, said.as_str()), (Some(0), ""), "{out}");
    let header = "                        extended device statistics  \n\
                  device       r/s     w/s     kr/s     kw/s  ms/r  ms/w  ms/o  ms/t qlen  %b  \n";
    assert!(out.starts_with(header), "{out}");
    let iostat = reports(&out).remove(0).remove(0).1;
    let gstat = fs::read_to_string(bench.path("gstat")).unwrap();
    let lines: Vec<&str> = gstat.lines().collect();
    assert_eq!(
        lines[..2],
        [
            "dT: 2.000s  w: 2.000s  filter: ^ada",
            " L(q)  ops/s    r/s   kBps   ms/r    w/s   kBps   ms/w    d/s   kBps   ms/d    o/s   ms/o   %busy Name",
        ]
    );
    let words: Vec<&str> = lines[2].split_whitespace().collect();
    assert_eq!((lines.len(), words.last()), (3, Some(&"ada0")), "{gstat}");
    let gstat: Vec<f64> = words[..14]
        .iter()
        .map(|word| word.parse().unwrap())
        .collect();
    // r/s w/s kr/s kw/s ms/r ms/w ms/o qlen %b
    let pairs = [
        (0, 2),
        (1, 5),
        (2, 3),
        (3, 6),
        (4, 4),
        (5, 7),
        (6, 12),
        (8, 0),
        (9, 13),
    ];
    for (of_iostat, of_gstat) in pairs {
        let (one, other) = (iostat[of_iostat], gstat[of_gstat]);
        assert!(
            (one - other).abs() <= 1.0,
            "{one} and {other}\n{out}{words:?}"
        );
    }
    assert!(
        iostat[2] > 5_000.0 && iostat[3] > 5_000.0,
        "it read and wrote\n{out}"
    );
    let ops: f64 = [2, 5, 8, 11].iter().map(|&at| gstat[at]).sum();
    assert!((gstat[1] - ops).abs() <= 2.0, "{words:?}");
}

#[test]
fn drives_are_watched_beside_the_commands_of_a_machine_that_is_up() {
    let bench = with_pool();
    let since_made = reports(&bench.ok("iostat -x")).remove(0);
    assert!(since_made[0].1[7] > 0.0, "{since_made:?}");
    let holder = up(&bench);
    let before_ns = clock_ns(&bench);
    assert_eq!(reports(&bench.ok("iostat -x ada0 2 3")).len(), 3);
    assert_eq!(clock_ns(&bench) - before_ns, 4_000_000_000);
    bench.ok("machine reboot");
    bench.ok("sleep 100");
    // Only what importing the pool takes has been done since.
    let since_on = reports(&bench.ok("iostat -x /dev/ada0 --system freebsd")).remove(0);
    assert!(since_on[0].1[3] * 100.0 < 4096.0, "{since_on:?}");
    // A pipe that is closed ends it.
    let mut command = bench.command("gstat -B");
    let mut watching = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut reader = BufReader::new(watching.stdout.take().unwrap());
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "dT: 1.000s  w: 1.000s\n");
    drop(reader);
    assert_eq!(watching.wait().unwrap().code(), Some(141));
    drop(holder);
}

#[test]
fn what_cannot_be_watched_is_said_once() {
    let bench = Bench::new(1);
    let cases = [
        (
            "iostat 1 5",
            2,
            "iostat: only extended statistics are there",
        ),
        (
            "iostat -x ada9",
            1,
            "iostat: ada9: no such drive is connected",
        ),
        (
            "iostat -x ada0p1",
            1,
            "iostat: ada0p1: no such drive is connected",
        ),
        (
            "iostat -x 0",
            1,
            "iostat: '0' is not an interval in seconds",
        ),
        (
            "iostat -x --system amiga",
            2,
            "iostat: 'amiga' is not a system",
        ),
        ("gstat -b -f (", 1, "gstat: '(' is not a regular expression"),
        ("gstat -b -I 0", 1, "gstat: '0' is not an interval"),
        ("gstat -b ada0", 2, "gstat: 'ada0' is too much"),
        ("gstat -c", 2, "gstat: invalid option 'c'"),
        ("time", 2, "time: missing command"),
        ("time -x ls", 2, "time: invalid option '-x'"),
    ];
    for (line, code, expected) in cases {
        let output = bench.run(line);
        let said = text(&output.stderr);
        assert!(
            said.starts_with(&format!("ashift {expected}")),
            "{line}: {said}"
        );
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(code), 0),
            "{line}"
        );
    }
    let mut host = Command::new(env!("CARGO_BIN_EXE_ashift"));
    host.args(["iostat", "-x"]).env_remove("ASHIFT_MACHINE");
    let output = host
        .env("ASHIFT_STATE", bench.path("state"))
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("shows the drives of a machine"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}

/// The three times, in ms, that bash's layout has.
fn times(said: &str) -> [u64; 3] {
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((lines.len(), lines[0]), (4, ""), "{said}");
    let time = |line: &str, name: &str| {
        let (minutes, seconds) = line.strip_prefix(name).unwrap().split_once('m').unwrap();
        let (seconds, ms) = seconds.strip_suffix('s').unwrap().split_once('.').unwrap();
        let number = |text: &str| text.parse::<u64>().unwrap();
        (number(minutes) * 60 + number(seconds)) * 1000 + number(ms)
    };
    [
        time(lines[1], "real\t"),
        time(lines[2], "user\t"),
        time(lines[3], "sys\t"),
    ]
}

#[test]
fn the_time_of_a_command_is_that_of_the_machines_clock() {
    let bench = with_pool();
    set_host(&bench, "modern");
    // With the pool's import, and its end; 8 MiB are copied in memory at 120 ps a byte, and more.
    let before_ns = clock_ns(&bench);
    let [real, user, sys] = times(&text(&bench.run("time cp data /tank/cold").stderr));
    let took_ms = (clock_ns(&bench) - before_ns) / 1_000_000;
    assert!(
        real <= took_ms && real + 20 > took_ms,
        "{real} of {took_ms} ms"
    );
    assert!(user == 0 && (1..=4 * real).contains(&sys), "{user} {sys}");
    let holder = up(&bench);
    for line in [
        "cp data /tank/warm",
        "sleep 7",
        "zpool sync tank",
        "sha256sum /tank/data",
    ] {
        let before_ns = clock_ns(&bench);
        let output = bench.run(&format!("time {line}"));
        let [real, user, _] = times(&text(&output.stderr));
        assert_eq!(real, (clock_ns(&bench) - before_ns) / 1_000_000, "{line}");
        // 1.5 ns for each byte of 8 MiB, which are summed up by a program.
        let expected = if line.starts_with("sha256sum") { 12 } else { 0 };
        assert_eq!(user, expected, "{line}");
        assert_eq!(output.status.code(), Some(0));
    }
    let said = text(&bench.run("time -p sleep 61.5").stderr);
    assert_eq!(said, "real 61.50\nuser 0.00\nsys 0.00\n");
    let said = text(&bench.run("time --system freebsd sleep 61.5").stderr);
    assert_eq!(
        said,
        "       61.50 real         0.00 user         0.00 sys\n"
    );
    drop(holder);
}

#[test]
fn a_script_times_its_commands_and_what_it_does_itself() {
    let bench = Bench::new(1);
    set_host(&bench, "freebsd-9");
    let (code, out, said) = sh(
        &bench,
        "time sleep 2\n\
         sleep 3 & time -p wait\n\
         time zpool list nothing > /dev/null 2>&1; echo $?\n\
         ! time false && echo failed\n\
         time frobnicate 2> missing; echo $?\n\
         time sleep 4 & wait $!; echo $?\n\
         set -e; time -p -- false; echo never\n",
    );
    let line = |secs: &str| format!("{secs:>12} real         0.00 user         0.00 sys\n");
    let zeros = "real 0.00\nuser 0.00\nsys 0.00\n";
    let expected = [
        line("2.00"),
        zeros.replacen("0.00", "3.00", 1),
        line("0.00"),
        line("0.00"),
        line("0.00"),
        line("4.00"),
        zeros.to_owned(),
    ];
    assert_eq!(said, expected.concat());
    assert_eq!((code, out.as_str()), (Some(1), "1\nfailed\n127\n0\n"));
    let missing = fs::read_to_string(bench.path("missing")).unwrap();
    assert!(missing.contains("frobnicate: not found"), "{missing}");
}

#[test]
fn time_keeps_exit_codes_and_knows_this_host() {
    let bench = Bench::new(1);
    for (line, code) in [
        ("time zpool list nothing", 1),
        ("time zpool frobnicate", 2),
        ("time frobnicate", 127),
    ] {
        let output = bench.run(line);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        let (_, layout) = said
            .split_once("\n\nreal\t")
            .unwrap_or_else(|| panic!("{line}: {said}"));
        assert!(layout.starts_with("0m0.0"), "{said}");
    }
    let mut host = Command::new(env!("CARGO_BIN_EXE_ashift"));
    host.args(["time", "sleep", "0.1"])
        .env_remove("ASHIFT_MACHINE");
    let output = host
        .env("ASHIFT_STATE", bench.path("state"))
        .output()
        .unwrap();
    let [real, user, sys] = times(&text(&output.stderr));
    assert!(
        (100..20_000).contains(&real) && user + sys < real,
        "{real} {user} {sys}"
    );
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
}
