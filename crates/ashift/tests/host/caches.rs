//! Cache devices: added, shown, lost, removed.

use crate::bench::Bench;
use crate::tree::{assert_has, vdevs, with_data};

#[test]
fn a_cache_device_comes_is_lost_comes_back_and_goes() {
    let (bench, bytes) = with_data(&["a", "b", "c", "d"], "mirror {a} {b} cache {c}");
    let shown = "tank ONLINE\nmirror-0 ONLINE\na ONLINE\nb ONLINE";
    let status = bench.ok("zpool status tank");
    assert!(status.contains("\tcache\n"), "{status}");
    let list = bench.ok("zpool list -v tank");
    let line = list.lines().skip_while(|line| !line.starts_with("cache"));
    let line = line.collect::<Vec<_>>().join("\n");
    let words: Vec<&str> = line.split_whitespace().skip(11).collect();
    assert_eq!(words[0], "256M", "{list}");
    assert!(
        words[1].ends_with('M') && words[1] > "1",
        "something is on it: {list}"
    );
    bench.ok("zpool add tank cache {d}");
    // The last one is lost.
    std::fs::rename(bench.path("d"), bench.path("e")).unwrap();
    assert_has(&bench, &bytes);
    let status = bench.ok("zpool status tank");
    assert!(status.contains("UNAVAIL"), "{status}");
    bench.ok("cp {dir}/data tank:/again");
    std::fs::rename(bench.path("e"), bench.path("d")).unwrap();
    assert!(!bench.ok("zpool status tank").contains("UNAVAIL"));
    bench.ok("zpool export tank");
    let listing = bench.ok("zpool import -d {dir}");
    assert!(listing.contains("\tcache\n"), "{listing}");
    bench.ok("zpool import -d {dir} tank");
    assert_has(&bench, &bytes);
    bench.ok("zpool remove tank {c} {d}");
    assert_eq!(vdevs(&bench), shown);
    let history = bench.ok("zpool history -i tank");
    let line = bench.filled("vdev remove tank vdev (l2cache) {d}");
    assert!(history.contains(&line), "{history}");
    bench.ok("zpool create other {c}");
    assert_has(&bench, &bytes);
}

/// What `zpool status` says of the first cache device.
fn cache_state(bench: &Bench) -> String {
    let status = bench.ok("zpool status tank");
    let mut lines = status.lines().skip_while(|line| *line != "\tcache");
    let line = lines.nth(1).expect("there is one");
    line.split_whitespace().nth(1).unwrap().to_owned()
}

#[test]
fn a_cache_device_is_taken_offline_and_brought_back() {
    let (bench, bytes) = with_data(&["a", "c"], "{a} cache {c}");
    let state = || cache_state(&bench);
    let written = || std::fs::read(bench.path("c")).unwrap();
    assert_eq!(state(), "ONLINE");
    bench.ok("zpool offline tank {c}");
    let before = written();
    assert_eq!(state(), "OFFLINE");
    let status = bench.ok("zpool status tank");
    assert!(status.contains("Devices were taken offline"), "{status}");
    // It stays offline over an import, and nothing is written to it.
    bench.ok("cp {dir}/data tank:/again");
    bench.ok("zpool export tank");
    bench.ok("zpool import -d {dir} tank");
    assert_eq!(state(), "OFFLINE");
    assert_has(&bench, &bytes);
    assert!(written() == before, "an offline device was written to");
    bench.ok("zpool online tank {c}");
    assert_eq!(state(), "ONLINE");
    bench.ok("cp {dir}/data tank:/third");
    assert!(written() != before, "it is in use again");
    // For a while: the next command finds it offline, the next import brings it back.
    bench.ok("zpool offline -t tank {c}");
    assert_eq!(state(), "OFFLINE");
    bench.ok("zpool export tank");
    bench.ok("zpool import -d {dir} tank");
    assert_eq!(state(), "ONLINE");
    assert_has(&bench, &bytes);
}

#[test]
fn a_cache_device_is_given_up_until_its_errors_are_cleared() {
    let (bench, bytes) = with_data(&["a", "c"], "{a} cache {c}");
    let state = || cache_state(&bench);
    let again = || {
        bench.ok("zpool export tank");
        bench.ok("zpool import -d {dir} tank");
    };
    bench.ok("zpool offline -f tank {c}");
    assert_eq!(state(), "FAULTED");
    let before = std::fs::read(bench.path("c")).unwrap();
    bench.ok("cp {dir}/data tank:/again");
    again();
    assert_eq!(state(), "FAULTED");
    let status = bench.ok("zpool status tank");
    assert!(status.contains("external device fault"), "{status}");
    assert!(
        std::fs::read(bench.path("c")).unwrap() == before,
        "what was given up was written to"
    );
    // As in OpenZFS, only a clear of the device itself brings it back.
    let said = bench.ok("zpool online tank {c}");
    assert!(said.contains("remains in faulted state"), "{said}");
    bench.ok("zpool clear tank");
    assert_eq!(state(), "FAULTED");
    bench.ok("zpool clear tank {c}");
    assert_eq!(state(), "ONLINE");
    bench.ok("cp {dir}/data tank:/third");
    assert!(
        std::fs::read(bench.path("c")).unwrap() != before,
        "it is in use again"
    );
    again();
    assert_eq!(state(), "ONLINE");
    // For a while.
    bench.ok("zpool offline -ft tank {c}");
    assert_eq!(state(), "FAULTED");
    again();
    assert_eq!(state(), "ONLINE");
    assert_has(&bench, &bytes);
}

/// As the real `zpool` says them.
#[test]
fn what_cannot_be_done_with_cache_devices_is_refused() {
    let bench = Bench::new(&["a", "b", "c", "d"]);
    bench.image("small", 32);
    bench.ok("zpool create tank {a} cache {c}");
    let taken = "invalid vdev specification\nuse '-f' to override the following errors:\n{c} is part of unknown \
                 pool 'tank'";
    for (command, code, text) in [
        ("create other {b} cache {c}", 1, taken),
        ("add tank cache {c}", 1, taken),
        ("replace tank {a} {c}", 1, taken),
        (
            "detach tank {c}",
            255,
            "cannot detach {c}: device is in use as a cache",
        ),
        (
            "replace tank {c} {d}",
            255,
            "cannot replace {c} with {d}: device is in use as a cache",
        ),
        (
            "add tank cache {small}",
            1,
            "cannot add to 'tank': device is less than the minimum size (64M)",
        ),
        (
            "add tank cache mirror {b} {d}",
            1,
            "invalid vdev specification: cache requires at least 1 devices",
        ),
    ] {
        bench.fails(&format!("zpool {command}"), code, text);
    }
}
