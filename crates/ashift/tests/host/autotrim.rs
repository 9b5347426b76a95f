//! `autotrim=on`: what a command frees becomes a hole of the image when it ends.

use std::os::unix::fs::MetadataExt;

use crate::bench::Bench;

const BYTES: usize = 24 << 20;

/// Bytes of the host's disk that the image takes.
fn taken(bench: &Bench) -> u64 {
    std::fs::metadata(bench.path("a")).unwrap().blocks() * 512
}

/// Trims that `zpool iostat -r` shows.
fn trims(bench: &Bench) -> u64 {
    let text = bench.ok("zpool iostat -Hrp tank");
    let lines = text.lines().map(|line| line.split('\t').skip(11).take(2));
    let counts = lines.flat_map(|counts| counts.map(|n| n.parse::<u64>().unwrap()));
    counts.sum()
}

/// Writes a file and removes it; returns what the image takes before and after that.
fn write_and_remove(bench: &Bench) -> (u64, u64) {
    bench.ok("cp {dir}/file tank:/file");
    let before = taken(bench);
    bench.ok("rm tank:/file");
    (before, taken(bench))
}

#[test]
fn removed_files_become_holes() {
    let bench = Bench::new(&["a"]);
    std::fs::write(bench.path("file"), vec![7; BYTES]).unwrap();
    bench.ok("zpool create -o autotrim=on -O compression=off tank {a}");
    assert_eq!(bench.ok("zpool get -H -o value autotrim tank").trim(), "on");
    let (before, after) = write_and_remove(&bench);
    assert!(before > BYTES as u64 && after < 4 << 20, "{before} {after}");
    let count = trims(&bench);
    assert!(count > 0);
    bench.assert_clean("tank");

    bench.ok("zpool set autotrim=off tank");
    let (before, after) = write_and_remove(&bench);
    assert!(after >= before, "{before} {after}");
    assert_eq!(trims(&bench), count);

    // What was freed before the property was on is left.
    bench.ok("zpool set autotrim=on tank");
    assert!(taken(&bench) > BYTES as u64);
    let (before, after) = write_and_remove(&bench);
    assert!(before - after > BYTES as u64 / 2, "{before} {after}");
    assert!(trims(&bench) > count);
    bench.assert_clean("tank");
}
