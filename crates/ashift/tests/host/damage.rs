//! Damage to a pool that any command meets is counted, and listed by `zpool status -v`.

use std::os::unix::fs::FileExt;

use crate::bench::Bench;

/// The contents of the damaged file; nothing else in the image looks like this.
const MARK: &[u8] = b"the contents of the file that is going to be damaged";
const FILE_BYTES: usize = 256 << 10;

/// A pool with `tank/d:/sub/f`, of which a block on `{a}` is damaged.
fn damaged() -> Bench {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create -O compression=off tank {a}");
    bench.ok("zfs create tank/d");
    std::fs::create_dir(bench.path("sub")).unwrap();
    let content: Vec<u8> = MARK.iter().copied().cycle().take(FILE_BYTES).collect();
    std::fs::write(bench.path("sub/f"), content).unwrap();
    bench.ok("cp -a {dir}/sub tank/d:/");
    bench.ok("zfs snapshot tank/d@s");
    let image = std::fs::read(bench.path("a")).unwrap();
    let at = image.windows(MARK.len()).position(|bytes| bytes == MARK);
    let file = std::fs::File::options().write(true).open(bench.path("a"));
    file.unwrap()
        .write_all_at(&[0xa5; 512], at.unwrap() as u64)
        .unwrap();
    bench
}

/// The lines of `zpool status -v` below the heading of the damaged files.
fn named(bench: &Bench) -> Vec<String> {
    let status = bench.ok("zpool status -v tank");
    let (_, list) = status
        .split_once("following files:\n\n")
        .unwrap_or_default();
    list.lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn a_file_that_cat_cannot_read_is_counted_and_named() {
    let bench = damaged();
    let healthy = bench.ok("zpool status tank");
    assert!(
        healthy.ends_with("errors: No known data errors\n"),
        "{healthy}"
    );
    assert_eq!(bench.run("cat tank/d:/sub/f").0, 1);
    // The snapshot shares the block.
    let both = ["tank/d:/sub/f", "tank/d@s:/sub/f"];
    assert_eq!(named(&bench), both);
    let status = bench.ok("zpool status tank");
    assert!(
        status.contains("errors: 2 data errors, use '-v' for a list"),
        "{status}"
    );
    let device = bench.path("a").display().to_string();
    let line = status.lines().find(|line| line.contains(&device)).unwrap();
    let counts: Vec<&str> = line.split_whitespace().rev().take(3).collect();
    assert_ne!(counts[0], "0", "{line}");
    assert_eq!(counts[1..], ["0", "0"], "{line}");
    bench.ok("zpool clear tank");
    // The counters are reset; the file is still damaged.
    let status = bench.ok("zpool status tank");
    let line = status.lines().find(|line| line.contains(&device)).unwrap();
    assert!(line.ends_with(" 0     0     0"), "{line}");
    assert_eq!(named(&bench), both);
}

#[test]
fn names_follow_what_is_left_of_a_file() {
    let bench = damaged();
    assert_eq!(bench.run("cat tank/d@s:/sub/f").0, 1);
    assert_eq!(named(&bench), ["tank/d:/sub/f", "tank/d@s:/sub/f"]);
    bench.ok("mv tank/d:/sub/f tank/d:/g");
    assert_eq!(named(&bench), ["tank/d:/g", "tank/d@s:/sub/f"]);
    // The error log is in the pool.
    bench.ok("zpool export tank");
    bench.ok("zpool import -d {dir} tank");
    assert_eq!(named(&bench), ["tank/d:/g", "tank/d@s:/sub/f"]);
    bench.ok("rm tank/d:/g");
    assert_eq!(named(&bench), ["tank/d@s:/sub/f"]);
    bench.ok("zfs destroy -r tank/d");
    assert!(named(&bench).is_empty());
}

#[test]
fn a_scrub_names_the_file_and_forgets_what_is_repaired() {
    let bench = damaged();
    let both = ["tank/d:/sub/f", "tank/d@s:/sub/f"];
    assert_eq!(bench.run("zpool scrub tank").0, 1);
    assert_eq!(named(&bench), both);
    assert_eq!(bench.run("zpool scrub -e tank").0, 1);
    assert_eq!(named(&bench), both);
    bench.ok("rm -r tank/d:/sub");
    bench.ok("zfs destroy tank/d@s");
    bench.ok("zpool scrub tank");
    assert!(named(&bench).is_empty());
}
