//! Devices that are removed: what the commands say, beside what those of OpenZFS 2.3.2 said in its guest, and what is
//! left.

use crate::bench::Bench;

/// A pool of these vdevs, with a file of some size in it.
fn with_data(names: &[&str], vdevs: &str) -> (Bench, Vec<u8>) {
    let bench = Bench::new(names);
    bench.ok(&format!("zpool create -f -o ashift=9 tank {vdevs}"));
    let bytes: Vec<u8> = (0..3_000_000_u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    std::fs::write(bench.path("data"), &bytes).unwrap();
    bench.ok("cp {dir}/data tank:/data");
    (bench, bytes)
}

#[track_caller]
fn assert_has(bench: &Bench, bytes: &[u8]) {
    bench.ok("cp tank:/data {dir}/back");
    assert!(std::fs::read(bench.path("back")).unwrap() == bytes);
    std::fs::remove_file(bench.path("back")).unwrap();
    bench.assert_clean("tank");
}

/// The lines of `zpool status` about a removal, without what differs from run to run.
fn removal(bench: &Bench) -> Vec<String> {
    let status = bench.ok("zpool status tank");
    let lines = status
        .lines()
        .skip_while(|line| !line.starts_with("remove:"));
    let lines = lines.take_while(|line| *line != "config:");
    let is_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    let shown = |line: &str| {
        let line = line.trim().split(" on ").next().unwrap();
        let line = line.split(" since ").next().unwrap();
        let words = line
            .split(' ')
            .map(|word| if is_number(word) { "N" } else { word });
        words.collect::<Vec<_>>().join(" ")
    };
    lines.map(shown).collect()
}

#[test]
fn a_disk_and_a_mirror_are_removed() {
    let (bench, bytes) = with_data(&["a", "b", "c", "d"], "{a} {d} mirror {b} {c}");
    let said = bench.ok("zpool remove -n tank {a}");
    let name = bench.filled("{a}");
    assert!(said.starts_with(&format!("Memory that will be used after removing {name}: ")));
    let said = bench.ok("zpool remove -n -p tank {a}");
    let (first, bytes_said) = said.trim().split_once(' ').unwrap();
    assert_eq!(
        (first, bytes_said.parse::<u64>().is_ok()),
        (&name[..], true)
    );
    assert_eq!(bench.ok("zpool remove -w tank {a}"), "");
    assert_has(&bench, &bytes);
    let ended = "remove: Removal of vdev N copied N in N completed";
    assert_eq!(
        removal(&bench),
        [ended, "N memory used for removed device mappings"]
    );
    let status = bench.ok("zpool status tank");
    assert!(
        !status.contains(&name) && !status.contains("indirect"),
        "{status}"
    );
    // As OpenZFS lists it.
    let listed = bench.ok("zpool list -v tank");
    let removed = listed
        .lines()
        .find(|line| line.starts_with("  indirect-0 "));
    let cells: Vec<&str> = removed.unwrap().split_whitespace().collect();
    assert_eq!(
        cells,
        [&["indirect-0"][..], &["-"; 8], &["ONLINE"]].concat()
    );
    let scripted = bench.ok("zpool list -vH tank");
    let removed = "\n\tindirect-0\t-\t-\t-\t-\t-\t-\t-\t-\tONLINE\n";
    assert!(scripted.contains(removed), "{scripted}");
    let io = bench.ok("zpool iostat -vH tank");
    assert!(io.contains("\nindirect-0\t-\t-\t0\t0\t0\t0\n"), "{io}");
    let json = bench.ok("zpool list -v -j tank");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let removed = &json["pools"]["tank"]["vdevs"]["indirect-0"];
    assert_eq!(removed["properties"]["size"]["value"], "-");
    assert_eq!(removed.as_object().unwrap().len(), 2);
    bench.fails(
        "zpool remove tank {a}",
        1,
        &format!("cannot remove {name}: no such device in pool"),
    );
    bench.ok("zpool remove tank mirror-2");
    bench.ok("zpool wait -t remove tank");
    assert_has(&bench, &bytes);
    bench.ok("zpool scrub tank");
    bench.ok("zpool export tank");
    // A device that was removed can be used again at once.
    bench.ok("zpool create other {a}");
}

#[test]
fn a_removal_goes_on_in_later_commands_and_is_cancelled() {
    let (bench, bytes) = with_data(&["a", "b"], "{a} {b}");
    bench.fails(
        "zpool remove -s tank",
        1,
        "cannot cancel removal: operation is not in progress",
    );
    bench.ok("zpool remove tank {a}");
    let lines = removal(&bench);
    let name = bench.filled("{a}");
    assert_eq!(
        lines[0],
        format!("remove: Evacuation of {name} in progress")
    );
    assert!(
        lines[1].contains(" copied out of N at N N done, N to go"),
        "{lines:?}"
    );
    let status = bench.ok("zpool status tank");
    assert!(status.contains("  (removing)"), "{status}");
    bench.fails(
        "zpool remove tank {a}",
        1,
        &format!("cannot remove {name}: removal for this vdev is already in progress."),
    );
    assert_has(&bench, &bytes);
    bench.ok("zpool remove -s tank");
    assert_eq!(
        removal(&bench),
        [format!("remove: Removal of {name} canceled")]
    );
    assert_has(&bench, &bytes);
    bench.ok("zpool remove tank {a}");
    bench.ok("zpool export tank");
    bench.ok("zpool import -d {dir} tank");
    let rows = bench.ok("zpool wait -H -p -t remove tank 0.001");
    let left = |row: &str| row.strip_prefix('\t').unwrap().parse().unwrap();
    let left: Vec<u64> = rows.lines().map(left).collect();
    assert!(left[0] > 0 && left.is_sorted_by(|a, b| a >= b), "{left:?}");
    assert_eq!(
        bench.ok("zpool wait -t free,remove,raidz_expand tank 1"),
        "    FREE  REMOVE  RAIDZ_EXPAND\n       0       0             0\n"
    );
    let stamped = bench.ok("zpool wait -T u -p -H -t discard tank 1");
    assert_eq!(stamped.lines().nth(1), Some("0"), "{stamped}");
    assert_has(&bench, &bytes);
}

#[test]
fn a_log_device_is_removed_at_once() {
    let (bench, bytes) = with_data(&["a", "b", "c"], "{a} log mirror {b} {c}");
    assert_eq!(
        bench.ok("zpool remove -n tank mirror-1"),
        "Memory that will be used after removing mirror-1: 0\n"
    );
    bench.ok("zpool remove tank mirror-1");
    let status = bench.ok("zpool status tank");
    assert!(
        !status.contains("logs") && !status.contains("remove:"),
        "{status}"
    );
    assert_has(&bench, &bytes);
    let history = bench.ok("zpool history -i tank");
    assert!(
        history.contains("] vdev remove tank vdev (log) -"),
        "{history}"
    );
    bench.ok("zpool add tank log {b}");
    bench.ok("zpool remove tank {b}");
    assert_has(&bench, &bytes);
}

#[test]
fn what_cannot_be_removed_is_refused_as_openzfs_does() {
    let (bench, _) = with_data(&["a", "b", "c", "d", "e"], "raidz {a} {b} {c}");
    bench.ok("zpool add -f tank {d}");
    let refused = |device: &str, why: &str| {
        let (device, line) = (bench.filled(device), format!("zpool remove tank {device}"));
        bench.fails(&line, 1, &format!("cannot remove {device}: {why}"));
    };
    refused("nix", "no such device in pool");
    refused("{a}", "operation not supported on this type of pool");
    let shape =
        "invalid config; all top-level vdevs must have the same sector size and not be raidz.";
    refused("{d}", shape);
    refused("raidz1-0", shape);
    for (line, first) in [
        ("zpool remove", "missing pool name argument"),
        ("zpool remove tank", "missing device"),
        ("zpool remove -s tank {d}", "too many arguments"),
    ] {
        let (code, _, err) = bench.run(line);
        assert_eq!((code, err.lines().next()), (2, Some(first)), "{line}");
    }
    let (code, _, err) = bench.run("zpool remove -s -n tank");
    assert_eq!((code, &err[..]), (0, "stop request ignored\n"));
}
