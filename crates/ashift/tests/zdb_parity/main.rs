//! Runs every `zdb` command line of a list, here and with the real zdb on the same pools.
//!
//! `commands.txt` has the command lines, one per line. `reviewed.txt` has those whose output differs, with the
//! reason: a difference that is not in there fails the test, and so does one in there that is not as
//! described ([`oracle::parity`]). The statistics are printed
//! (`cargo test -p ashift --test zdb_parity -- --nocapture`). Since the whole takes minutes,
//! only every eighth command line is compared unless `ASHIFT_ZDB_PARITY=all` is set. `ASHIFT_ZDB_PARITY=PART`
//! compares those that contain PART, and shows the differences.

#[path = "../bench/mod.rs"]
mod bench;
mod pools;

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use oracle::have_zdb;
use oracle::parity::{Comparison, Count, Said, difference, read_reasons, said_lines};

use pools::Pools;

/// One of this many command lines is compared in the ordinary suite.
const SAMPLE: usize = 8;
/// The real zdb.
const REAL: &str = "/usr/sbin/zdb";

/// Runs a program under the name `zdb`, by which ours selects its command.
fn run(pools: &Pools, program: &str, command: &str) -> Said {
    let words = command.split_whitespace().map(|word| pools.filled(word));
    let output = Command::new(program)
        .arg0("zdb")
        .args(words)
        .env("ASHIFT_STATE", pools.empty_state())
        .env("TZ", "UTC")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said {
        code: output.status.code().unwrap_or(-1),
        out: plain(pools, &text(&output.stdout)),
        err: plain(pools, &without_debugging(&text(&output.stderr))),
    }
}

/// Replaces necessary differences: the place of the cachefile, and the usage text, which lists only what is
/// supported.
fn plain(pools: &Pools, text: &str) -> String {
    let text = text
        .replace("/etc/zfs/zpool.cache", "CACHEFILE")
        .replace(&format!("{}/zpool.cache", pools.empty_state()), "CACHEFILE")
        .replace(&pools.destination("real"), "DESTINATION")
        .replace(&pools.destination("ours"), "DESTINATION");
    match text.find("Usage:\tzdb") {
        Some(at) => format!("{}USAGE\n", &text[..at]),
        None => text,
    }
}

/// Removes progress, debug messages, and the message that there is no kernel module.
fn without_debugging(text: &str) -> String {
    let mut out = String::new();
    let mut is_debugging = false;
    for line in text.split_inclusive('\n') {
        let is_start = line.starts_with("ZFS_DBGMSG(zdb) START");
        let is_end = line.starts_with("ZFS_DBGMSG(zdb) END");
        is_debugging |= is_start;
        if is_start && (out.ends_with("\n\n") || out == "\n") {
            out.pop();
        }
        let is_noise = line.starts_with("The ZFS modules cannot be auto-loaded")
            || line.starts_with("Try running 'modprobe zfs'")
            || line.starts_with('\r');
        if !is_debugging && !is_noise {
            out.push_str(line);
        }
        is_debugging &= !is_end;
    }
    out
}

#[test]
fn every_command_line_reads_like_the_real_one() {
    if !have_zdb() {
        return;
    }
    let list: Vec<&str> = said_lines(include_str!("commands.txt")).collect();
    let chosen = std::env::var("ASHIFT_ZDB_PARITY").ok();
    let only = chosen.as_deref().filter(|part| *part != "all");
    let commands: Vec<&str> = match (&chosen, only) {
        (None, _) => list.iter().copied().step_by(SAMPLE).collect(),
        (_, None) => list.clone(),
        (_, Some(part)) => list.iter().copied().filter(|l| l.contains(part)).collect(),
    };
    let pools = Pools::make();
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<(usize, Vec<String>)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(command) = commands.get(index) else {
                        return;
                    };
                    let real = command.replace("{to}", &pools.destination("real"));
                    let ours = command.replace("{to}", &pools.destination("ours"));
                    let real = run(&pools, REAL, &real);
                    let ours = run(&pools, env!("CARGO_BIN_EXE_ashift"), &ours);
                    let lines = difference(&real, &ours);
                    let mut found = found.lock().unwrap();
                    if only.is_some() && !lines.is_empty() {
                        eprintln!("== {command}\n{}", lines.join("\n"));
                    }
                    found.push((index, lines));
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap();
    found.sort();
    let reasons = read_reasons(include_str!("reasons.txt"));
    let mut comparison = Comparison::new(&reasons, include_str!("reviewed.txt"));
    for (index, lines) in found {
        comparison.compare(commands[index], &lines);
    }
    comparison.check_list(list.iter().copied());
    eprintln!("{}\n{:<12}{}", Count::HEADING, "zdb", comparison.count);
    let complaints = comparison.complaints;
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
