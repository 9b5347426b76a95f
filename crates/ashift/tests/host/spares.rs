//! Hot spares: added, removed, taken when a device is gone, given back.

use crate::bench::Bench;
use crate::tree::{assert_has, vdevs, with_data};

const RESERVED: &str = "device is reserved as a hot spare";

#[test]
fn a_spare_is_taken_for_a_file_that_is_gone_and_given_back_when_it_is_replaced() {
    let (bench, bytes) = with_data(&["a", "b", "c", "d", "e"], "mirror {a} {b} spare {c} {d}");
    let healthy = "tank ONLINE\nmirror-0 ONLINE\na ONLINE\nb ONLINE\nspares";
    let status = bench.ok("zpool status tank");
    let spares = bench.filled("\tspares\n\t  {c}  AVAIL   \n\t  {d}  AVAIL   \n");
    let without_gaps = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        without_gaps(&status).contains(&without_gaps(&spares)),
        "{status}"
    );
    let list = without_gaps(&bench.ok("zpool list -v tank"));
    let lines = bench.filled("spare - - - - - - - - - {c} 256M - - - - - - - AVAIL");
    assert!(list.contains(&lines), "{list}");
    std::fs::remove_file(bench.path("a")).unwrap();
    // Only looking at the pool changes nothing.
    assert!(bench.ok("zpool status tank").contains("AVAIL"));
    bench.ok("cp {dir}/data tank:/again");
    bench.ok("zpool wait -t resilver tank");
    let status = bench.ok("zpool status tank");
    assert!(status.contains("spare-0"), "{status}");
    assert!(status.contains("INUSE     currently in use"), "{status}");
    // The spare has everything.
    bench.ok("zpool offline tank {b}");
    bench.ok("cp tank:/again {dir}/back");
    assert!(std::fs::read(bench.path("back")).unwrap() == bytes);
    bench.ok("zpool online tank {b}");
    bench.ok("zpool export tank");
    let listing = bench.ok("zpool import -d {dir}");
    assert!(listing.contains("\tspares\n"), "{listing}");
    bench.ok("zpool import -d {dir} tank");
    bench.ok("zpool replace -w tank {a} {e}");
    let status = bench.ok("zpool status tank");
    assert!(
        !status.contains("INUSE") && !status.contains("spare-0"),
        "{status}"
    );
    assert_eq!(status.matches("AVAIL").count(), 2, "{status}");
    assert_has(&bench, &bytes);
    bench.ok("zpool remove tank {c} {d}");
    assert_eq!(
        vdevs(&bench),
        healthy.replace("\na ", "\ne ").trim_end_matches("\nspares")
    );
    let history = bench.ok("zpool history -i tank");
    for line in [
        "vdev attach spare in vdev={c} for vdev={a}",
        "vdev remove tank vdev (spare) {d}",
    ] {
        assert!(history.contains(&bench.filled(line)), "{line}: {history}");
    }
    // They are free now.
    bench.ok("zpool create other mirror {c} {d}");
    assert_has(&bench, &bytes);
}

#[test]
fn a_spare_becomes_permanent() {
    let (bench, bytes) = with_data(&["a", "b", "c", "d"], "mirror {a} {b}");
    bench.ok("zpool add tank spare {c}");
    bench.ok("zpool offline tank {a}");
    bench.ok("zpool replace -w tank {a} {c}");
    assert!(bench.ok("zpool status tank").contains("INUSE"));
    bench.ok("zpool detach tank {a}");
    assert_eq!(
        vdevs(&bench),
        "tank ONLINE\nmirror-0 ONLINE\nc ONLINE\nb ONLINE"
    );
    assert_has(&bench, &bytes);
}

#[test]
fn pools_share_a_spare_and_say_which_one_uses_it() {
    let (bench, _) = with_data(&["a", "b", "c", "d"], "mirror {a} {b} spare {c}");
    bench.ok("zpool create other {d} spare {c}");
    bench.ok("zpool offline tank {a}");
    bench.ok("zpool replace -w tank {a} {c}");
    let status = bench.ok("zpool status other");
    assert!(
        status.contains("INUSE     in use by pool 'tank'"),
        "{status}"
    );
    let json = bench.ok("zpool status -j other");
    assert!(
        json.contains("\"state\":\"INUSE\",\"used_by\":\"tank\",\"aux\":\"SPARED\""),
        "{json}"
    );
    bench.fails(
        "zpool replace other {d} {c}",
        255,
        "cannot replace {d} with {c}: {c} is busy",
    );
    bench.ok("zpool detach tank {c}");
    assert!(bench.ok("zpool status other").contains("AVAIL"));
    bench.ok("zpool remove other {c}");
    assert!(!bench.ok("zpool status other").contains("spares"));
    assert!(bench.ok("zpool status tank").contains("AVAIL"));
}

/// As the real `zpool` says them.
#[test]
fn what_cannot_be_done_with_spares_is_refused() {
    let (bench, _) = with_data(&["a", "b", "c", "d", "e"], "mirror {a} {b} spare {c} {d}");
    bench.image("small", 32);
    let reserved = "invalid vdev specification\nuse '-f' to override the following errors:\n{d} is reserved \
                    as a hot spare for pool tank";
    let by_force = "invalid vdev specification\nthe following errors must be manually repaired:\n{d} is \
                    reserved as a hot spare for pool tank";
    for (command, code, text) in [
        (
            "offline tank {d}",
            1,
            format!("cannot offline {{d}}: {RESERVED}"),
        ),
        (
            "detach tank {d}",
            255,
            format!("cannot detach {{d}}: {RESERVED}"),
        ),
        (
            "online tank {d}",
            1,
            format!(
                "cannot online {{d}}: {RESERVED}\nFailed to online \"{{d}}\" in pool \"tank\": -1"
            ),
        ),
        (
            "clear tank {d}",
            1,
            format!("cannot clear errors for {{d}}: {RESERVED}"),
        ),
        (
            "replace tank {d} {e}",
            255,
            format!("cannot replace {{d}} with {{e}}: {RESERVED}"),
        ),
        ("attach tank {b} {d}", 1, reserved.to_owned()),
        ("create third {d}", 1, reserved.to_owned()),
        ("create -f third {d}", 1, by_force.to_owned()),
        (
            "add tank spare {d}",
            1,
            "cannot add to 'tank': one or more vdevs refer to the same device".to_owned(),
        ),
        (
            "add tank spare {small}",
            1,
            "cannot add to 'tank': device is less than the minimum size (64M)".to_owned(),
        ),
        (
            "remove tank {e}",
            1,
            "cannot remove {e}: no such device in pool".to_owned(),
        ),
        ("remove tank", 2, String::new()),
    ] {
        if code == 2 {
            assert_eq!(bench.run(&format!("zpool {command}")).0, 2);
            continue;
        }
        bench.fails(&format!("zpool {command}"), code, &text);
    }
}

#[test]
fn what_cannot_be_done_with_spares_in_use_is_refused() {
    let (bench, _) = with_data(&["a", "b", "c", "d", "e"], "mirror {a} {b} spare {c} {d}");
    bench.ok("zpool offline tank {a}");
    bench.ok("zpool replace -w tank {a} {c}");
    for (command, code, text) in [
        (
            "remove tank {c}",
            1,
            "cannot remove {c}: Pool busy; removal may already be in progress",
        ),
        (
            "replace tank {b} {c}",
            255,
            "cannot replace {b} with {c}: {c} is busy",
        ),
        (
            "replace tank {a} {d}",
            255,
            "cannot replace {a} with {d}: already in replacing/spare config; wait for completion or use \
             'zpool detach'",
        ),
        (
            "replace tank {c} {e}",
            255,
            "cannot replace {c} with {e}: can only be replaced by another hot spare",
        ),
    ] {
        bench.fails(&format!("zpool {command}"), code, text);
    }
}

#[test]
fn a_spare_that_is_gone_is_shown_so_and_a_log_gets_none() {
    let bench = Bench::new(&["a", "b", "c", "d"]);
    bench.ok("zpool create tank {a} log {b} spare {c} {d}");
    bench.fails(
        "zpool replace tank {b} {c}",
        255,
        "cannot replace {b} with {c}: cannot replace a log with a spare",
    );
    std::fs::remove_file(bench.path("c")).unwrap();
    let status = bench.ok("zpool status tank");
    assert!(status.contains("UNAVAIL   cannot open"), "{status}");
    bench.ok("zpool remove tank {c}");
    assert!(!bench.ok("zpool status tank").contains("UNAVAIL"));
}
