//! `zpool events`: what happened, also by other commands.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::bench::Bench;

/// The classes of all events, oldest first, without what they have in common.
fn classes(bench: &Bench) -> Vec<String> {
    let text = bench.ok("zpool events -H");
    let class = |line: &str| {
        line.rsplit(['\t', '.'])
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    text.lines().map(class).collect()
}

fn without_history(bench: &Bench) -> Vec<String> {
    let mut all = classes(bench);
    all.retain(|class| class != "history_event");
    all
}

#[test]
fn what_commands_did_is_shown_by_later_ones() {
    let bench = Bench::new(&["a", "b", "c"]);
    assert_eq!(bench.ok("zpool events"), format!("{:<30} CLASS\n", "TIME"));
    bench.ok("zpool create tank mirror {a} {b}");
    assert_eq!(classes(&bench)[0], "pool_create");
    assert!(
        classes(&bench)
            .iter()
            .filter(|c| *c == "history_event")
            .count()
            > 10
    );
    bench.ok("zpool scrub tank");
    bench.ok("zpool offline tank {b}");
    bench.ok("zpool online tank {b}");
    bench.ok("zpool attach -w tank {a} {c}");
    bench.ok("zpool detach tank {b}");
    bench.ok("zpool export tank");
    let all = without_history(&bench);
    let mut rest = all.iter();
    for expected in [
        "pool_create",
        "scrub_start",
        "scrub_finish",
        "statechange",
        "vdev_online",
        "vdev_attach",
        "resilver_start",
        "resilver_finish",
        "vdev_remove",
        "pool_export",
        "config_sync",
    ] {
        assert!(rest.any(|class| class == expected), "{expected}: {all:?}");
    }
    let long = bench.ok("zpool events -v tank");
    let attached = long
        .split("\n\n")
        .find(|event| event.contains("vdev_attach"));
    let path = bench.filled("        vdev_path = \"{c}\"\n");
    assert!(attached.unwrap().contains(&path), "{long}");
    let eids: Vec<&str> = long
        .lines()
        .filter_map(|line| line.trim().strip_prefix("eid = "))
        .collect();
    assert_eq!(eids[0], "0x1");
    assert_eq!(*eids.last().unwrap(), format!("{:#x}", eids.len()));
    assert_eq!(bench.ok("zpool events -H nope"), "");
    assert_eq!(
        bench.ok("zpool events -c"),
        format!("cleared {} events\n", eids.len())
    );
    assert_eq!(bench.ok("zpool events -H"), "");
    bench.ok("zpool import -d {dir} tank");
    assert!(without_history(&bench).contains(&"pool_import".to_owned()));
    let first = bench.ok("zpool events -v");
    let eid = format!("eid = {:#x}\n", eids.len() + 1);
    assert!(first.contains(&eid), "numbers go on: {first}");
    bench.ok("zpool destroy tank");
    assert!(without_history(&bench).contains(&"pool_destroy".to_owned()));
}

#[test]
fn errors_are_told_with_their_device_and_their_place() {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create -O compression=off tank {a}");
    let mark = b"the contents of the file that is going to be damaged";
    let content: Vec<u8> = mark.iter().copied().cycle().take(256 << 10).collect();
    std::fs::write(bench.path("sub"), content).unwrap();
    bench.ok("cp {dir}/sub tank:/f");
    bench.ok("zpool events -c");
    let image = std::fs::read(bench.path("a")).unwrap();
    let at = image.windows(mark.len()).position(|bytes| bytes == mark);
    bench.scribble_with("a", at.unwrap() as u64, &[0xa5; 512]);
    assert_eq!(bench.run("cat tank:/f").0, 1);
    let long = bench.ok("zpool events -v tank");
    let of = |class: &str| {
        let found = long.split("\n\n").find(|event| event.contains(class));
        found
            .unwrap_or_else(|| panic!("{class}: {long}"))
            .to_owned()
    };
    let checksum = of("ereport.fs.zfs.checksum");
    assert!(
        checksum.contains(&bench.filled("vdev_path = \"{a}\"")),
        "{checksum}"
    );
    assert!(
        checksum.contains("        detector = (embedded nvlist)\n                version = 0x0\n")
    );
    let data = of("ereport.fs.zfs.data");
    assert!(data.contains("        zio_level = 0x0\n"), "{data}");
    let told = long.matches("ereport.fs.zfs.checksum\"").count();
    assert!((1..=4).contains(&told), "{told}");
    // The same block is told of once.
    let blocks = |bench: &Bench| classes(bench).iter().filter(|c| *c == "data").count();
    let before = blocks(&bench);
    assert_eq!(before, 1);
    assert_eq!(bench.run("cat tank:/f").0, 1);
    assert_eq!(blocks(&bench), before);
}

#[test]
fn events_of_other_commands_are_followed() {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create tank {a}");
    bench.ok("zpool events -c");
    let mut follower = bench.command("zpool events -Hf");
    let mut follower = follower.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    bench.ok("zfs create tank/x");
    let line = lines.next().unwrap().unwrap();
    assert!(line.ends_with("sysevent.fs.zfs.history_event"), "{line}");
    bench.ok("zpool export tank");
    assert!(lines.any(|line| line.unwrap().ends_with("pool_export")));
    follower.kill().unwrap();
    follower.wait().unwrap();
}
