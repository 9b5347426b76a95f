//! What `zpool iostat` shows while and after other commands use a pool.

use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::bench::Bench;

/// The columns of `zpool iostat -Hp` of a vdev.
fn columns(bench: &Bench, options: &str, vdev: &str) -> Vec<String> {
    let text = bench.ok(&format!("zpool iostat {options}"));
    let line = text
        .lines()
        .find(|line| line.split('\t').next() == Some(vdev));
    let line = line.unwrap_or_else(|| panic!("no {vdev} in {text}"));
    line.split('\t').map(str::to_owned).collect()
}

/// The writes that `-Hr` shows of a vdev, whatever their lengths: a total, which no time divides.
fn writes(bench: &Bench) -> u64 {
    let text = bench.ok("zpool iostat -Hrp tank");
    let lines = text
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>());
    let of_line = |line: Vec<&str>| -> u64 {
        // Synchronous and asynchronous writes, single and merged.
        let counts = [3, 4, 7, 8].map(|at| line.get(at).map_or(0, |n| n.parse().unwrap()));
        counts.iter().sum()
    };
    lines.map(of_line).sum()
}

#[test]
fn intervals_move_while_another_command_writes() {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create -O compression=off tank {a}");
    let before = writes(&bench);
    assert!(before > 0, "creating a pool writes to it");
    assert_eq!(writes(&bench), before, "looking does not count");
    let mut writer = bench.command("cp - tank:/f");
    let mut writer = writer.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = writer.stdin.take().unwrap();
    let began = Instant::now();
    let mut seen = Vec::new();
    while seen.len() < 2 && began.elapsed() < Duration::from_secs(60) {
        stdin.write_all(&vec![7; 2 << 20]).unwrap();
        let now = writes(&bench);
        if now > seen.last().copied().unwrap_or(before) {
            seen.push(now);
        }
        std::thread::sleep(Duration::from_millis(300));
    }
    assert_eq!(seen.len(), 2, "{seen:?} after {before}");
    assert!(
        writer.try_wait().unwrap().is_none(),
        "the writer has the pool"
    );
    drop(stdin);
    assert!(writer.wait().unwrap().success());
    let after = writes(&bench);
    assert!(after >= seen[1], "{after} after {seen:?}");
    bench.ok("zpool clear tank");
    assert!(writes(&bench) >= after, "clearing errors keeps the counts");
    bench.ok("zpool export tank");
    bench.ok("zpool import -d {dir} tank");
    assert!(writes(&bench) < after, "an import begins anew");
}

#[test]
fn classes_have_headings_and_their_vdevs_add_up() {
    let bench = Bench::new(&["a", "b", "c", "d", "e"]);
    bench.ok("zpool create -f tank mirror {a} {b} special {c} log {d} cache {e}");
    let text = bench.ok("zpool iostat -v tank");
    let first = |line: &str| line.split_whitespace().next().unwrap_or("").to_owned();
    let names: Vec<String> = text.lines().skip(3).map(first).collect();
    let image = |name: &str| bench.filled(&format!("{{{name}}}"));
    let expected = [
        "tank".to_owned(),
        "mirror-0".to_owned(),
        image("a"),
        image("b"),
        "special".to_owned(),
        image("c"),
        "logs".to_owned(),
        image("d"),
        "cache".to_owned(),
        image("e"),
    ];
    assert_eq!(names[..expected.len()], expected);
    let queues = columns(&bench, "-Hpq tank", "tank");
    assert_eq!(queues.len(), 7 + 14);
    assert!(queues[7..].iter().all(|n| n == "0"), "nothing is in flight");
    let latencies = columns(&bench, "-Hpl tank", "tank");
    assert_eq!(latencies.len(), 7 + 11);
    assert_ne!(latencies[8], "-", "writes took some time");
}
