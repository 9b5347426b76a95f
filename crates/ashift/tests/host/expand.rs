//! Devices that have grown.

use crate::bench::Bench;

const MIB: u64 = 1 << 20;

fn grow(bench: &Bench, name: &str, mib: u64) {
    let file = std::fs::File::options().write(true).open(bench.path(name));
    file.unwrap().set_len(mib * MIB).unwrap();
}

/// Size and expandable size, in bytes.
fn sizes(bench: &Bench) -> (u64, u64) {
    let line = bench.ok("zpool list -Hpo size,expandsize tank");
    let number = |word: &str| word.parse().unwrap_or(0);
    let (size, expandable) = line.trim().split_once('\t').unwrap();
    (number(size), number(expandable))
}

/// No block is lost, and the four labels are in their places and agree.
fn assert_whole(bench: &Bench) {
    bench.assert_clean("tank");
    let labels = bench.ok("zdb -l {a}");
    assert!(labels.contains("labels = 0 1 2 3"), "{labels}");
}

#[test]
fn a_pool_grows_when_it_is_told_to() {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create tank {a}");
    let (before, none) = sizes(&bench);
    assert_eq!(none, 0);
    grow(&bench, "a", 1024);
    assert_eq!(sizes(&bench), (before, 768 * MIB));
    bench.ok("zfs create tank/a");
    assert_eq!(sizes(&bench), (before, 768 * MIB));
    assert_whole(&bench);
    bench.ok("zpool online tank {a}");
    assert_eq!(sizes(&bench), (before, 768 * MIB));
    bench.ok("zpool online -e tank {a}");
    assert_eq!(sizes(&bench), (before + 768 * MIB, 0));
    assert_whole(&bench);
    // More data than fitted before.
    std::fs::write(bench.path("big"), rubbish(280 << 20)).unwrap();
    bench.ok("cp {dir}/big tank:/");
    std::fs::remove_file(bench.path("big")).unwrap();
    assert_whole(&bench);
    bench.ok("zpool scrub tank");
    bench.ok("zpool export tank");
    bench.ok("zpool import -d {dir} tank");
    assert_eq!(sizes(&bench), (before + 768 * MIB, 0));
    assert_whole(&bench);
}

/// Incompressible bytes, made quickly.
fn rubbish(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..len / 8).flat_map(|_| next()).collect()
}

#[test]
fn a_mirror_grows_when_all_its_devices_have_grown() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create tank mirror {a} {b}");
    let (before, _) = sizes(&bench);
    grow(&bench, "a", 512);
    assert_eq!(sizes(&bench), (before, 0));
    bench.ok("zpool online -e tank {a}");
    assert_eq!(sizes(&bench), (before, 0));
    grow(&bench, "b", 384);
    assert_eq!(sizes(&bench), (before, 128 * MIB));
    bench.ok("zpool online -e tank {b}");
    assert_eq!(sizes(&bench), (before + 128 * MIB, 0));
    assert_whole(&bench);
}

#[test]
fn a_pool_with_autoexpand_grows_when_it_is_opened() {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create -o autoexpand=on tank {a}");
    let (before, _) = sizes(&bench);
    grow(&bench, "a", 8 << 10);
    bench.ok("zfs create tank/a");
    let grown = before + ((8 << 10) - 256) * MIB;
    assert_eq!(sizes(&bench), (grown, 0));
    assert_whole(&bench);
    bench.ok("zpool export tank");
    grow(&bench, "a", 9 << 10);
    bench.ok("zpool import -d {dir} tank");
    assert_eq!(sizes(&bench), (grown + 1024 * MIB, 0));
    assert_whole(&bench);
}

#[test]
fn what_was_at_the_new_end_does_not_matter() {
    let bench = Bench::new(&["a", "b"]);
    grow(&bench, "b", 512);
    // A pool with many more txgs, whose last labels are where those of the other pool will be.
    bench.ok("zpool create old {b}");
    for n in 0..20 {
        bench.ok(&format!("zfs create old/{n}"));
    }
    bench.ok("zpool export old");
    bench.ok("zpool create -o autoexpand=on tank {a}");
    let end = std::fs::read(bench.path("b")).unwrap().split_off(511 << 20);
    grow(&bench, "a", 512);
    bench.scribble_with("a", 511 << 20, &end);
    std::fs::remove_file(bench.path("b")).unwrap();
    bench.ok("zfs create tank/a");
    assert_eq!(bench.ok("zfs list -Ho name -r tank"), "tank\ntank/a\n");
    assert_whole(&bench);
}

#[test]
fn a_raidz_grows_by_a_device() {
    let bench = Bench::new(&["a", "b", "c", "d", "e"]);
    bench.ok("zpool create tank raidz {a} {b} {c}");
    std::fs::write(bench.path("big"), rubbish(40 << 20)).unwrap();
    bench.ok("cp {dir}/big tank:/");
    let sum = bench.ok("sha256sum tank:/big");
    let (before, _) = sizes(&bench);
    bench.ok("zpool attach tank raidz1-0 {d}");
    let status = bench.ok("zpool status tank");
    assert!(
        status.contains("expand: expansion of raidz1-0 in progress since"),
        "{status}"
    );
    bench.fails(
        "zpool attach tank raidz1-0 {e}",
        255,
        "cannot attach {e} to raidz1-0: raidz expansion in progress",
    );
    bench.assert_clean("tank");
    bench.ok("zpool wait -t raidz_expand tank");
    let status = bench.ok("zpool status tank");
    assert!(
        status.contains("expand: expanded raidz1-0 copied"),
        "{status}"
    );
    bench.ok("zpool wait -t scrub tank");
    let status = bench.ok("zpool status tank");
    assert!(status.contains("repaired 0B in"), "{status}");
    assert!(status.contains("with 0 errors"), "{status}");
    assert_eq!(bench.ok("sha256sum tank:/big"), sum);
    assert!(sizes(&bench).0 > before, "{:?}", sizes(&bench));
    assert_whole(&bench);
    bench.ok("zpool attach -w tank raidz1-0 {e}");
    assert_eq!(bench.ok("sha256sum tank:/big"), sum);
    assert_whole(&bench);
    let history = bench.ok("zpool history -i tank");
    for event in [
        "raidz vdev expansion started tank vdev 0 new width 4",
        "raidz vdev expansion completed tank vdev 0 new width 4",
        "raidz vdev expansion completed tank vdev 0 new width 5",
    ] {
        assert!(history.contains(event), "{event}: {history}");
    }
}

const KERNEL: &str = "set -e
zpool import -d /host -R /mnt tank
zpool scrub -w tank
zpool status -x tank
zpool list -Hp -o size,expandsize tank
sha256sum </mnt/tank/big
dd if=/dev/urandom of=/mnt/tank/kernel bs=1M count=8 2>/dev/null
zpool export tank
";

#[test]
fn slow_the_kernel_takes_a_pool_that_has_grown() {
    let Some(guest) = oracle::vm::Guest::find() else {
        return;
    };
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create -O mountpoint=/tank tank mirror {a} {b}");
    let (before, _) = sizes(&bench);
    grow(&bench, "a", 512);
    grow(&bench, "b", 512);
    bench.ok("zpool online -e tank {a}");
    std::fs::write(bench.path("big"), rubbish(300 << 20)).unwrap();
    bench.ok("cp {dir}/big tank:/");
    std::fs::remove_file(bench.path("big")).unwrap();
    let sum = bench.ok("sha256sum tank:/big");
    let sum = sum.split_whitespace().next().unwrap();
    bench.ok("zpool export tank");
    let outcome = guest.run(KERNEL, bench.folder(), &[]);
    outcome.assert_success();
    let size = before + 256 * MIB;
    let expected = format!("pool 'tank' is healthy\n{size}\t0\n{sum}  -\n");
    assert_eq!(outcome.output.replace("\t-\n", "\t0\n"), expected);
    bench.ok("zpool import -d {dir} tank");
    bench.ok("zpool scrub tank");
    assert_whole(&bench);
}
