//! Properties of vdevs: what they change, and that they stay.

use crate::bench::Bench;

/// A property of a vdev, exactly.
fn value(bench: &Bench, name: &str, vdev: &str) -> String {
    let line = bench.ok(&format!("zpool get -Hpo value {name} tank {vdev}"));
    line.trim_end().to_owned()
}

fn allocated(bench: &Bench, vdev: &str) -> u64 {
    value(bench, "allocated", vdev).parse().unwrap()
}

/// Puts this many MiB into a new file.
fn put(bench: &Bench, name: &str, mib: usize) {
    std::fs::write(bench.path("sub"), vec![7; mib << 20]).unwrap();
    bench.ok(&format!("cp {{dir}}/sub tank:/{name}"));
    std::fs::remove_file(bench.path("sub")).unwrap();
}

#[test]
fn nothing_new_goes_to_a_vdev_that_is_not_allocating() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create -O compression=off tank {a} {b}");
    put(&bench, "both", 20);
    let refused = bench.filled(
        "cannot set property allocating for {b} on tank: invalid argument for this pool operation",
    );
    bench.ok("zpool set allocating=off tank {a}");
    bench.fails("zpool set allocating=off tank {b}", 1, &refused);
    let off = allocated(&bench, "{a}");
    assert!(off > 5 << 20, "{off}");
    let status = bench.ok("zpool status tank");
    assert_eq!(status.matches("(non-allocating)").count(), 1, "{status}");
    put(&bench, "one", 20);
    bench.assert_clean("tank");
    assert!(allocated(&bench, "{a}") <= off);
    // It is off after an import, too, and what is freed there is not used again.
    bench.ok("zpool export tank");
    bench.ok("zpool import -d {dir} tank");
    assert_eq!(value(&bench, "allocating", "{a}"), "off");
    bench.ok("rm tank:/both");
    put(&bench, "again", 20);
    assert!(allocated(&bench, "{a}") < off);
    bench.assert_clean("tank");
    bench.ok("zpool set allocating=on tank {a}");
    bench.ok("zpool set allocating=on tank {a}");
    let on = allocated(&bench, "{a}");
    put(&bench, "both", 20);
    assert!(allocated(&bench, "{a}") > on + (5 << 20));
    assert!(!bench.ok("zpool status tank").contains("non-allocating"));
    bench.assert_clean("tank");
    let history = bench.ok("zpool history -i tank");
    assert_eq!(
        history.matches("vdev set vdev_guid=").count(),
        3,
        "{history}"
    );
}

/// Whether a side of a mirror is given up by a scrub that finds it wrong in hundreds of blocks.
fn is_given_up(properties: &[&str]) -> bool {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create -O compression=off -O recordsize=4k tank mirror {a} {b}");
    for property in properties {
        bench.ok(&format!("zpool set {property}"));
    }
    put(&bench, "f", 4);
    bench.scribble("b", 5 << 20..200 << 20);
    bench.ok("zpool events -c");
    bench.run("zpool scrub tank");
    let events = bench.ok("zpool events -v tank");
    let errors: u64 = value(&bench, "checksum_errors", "{b}").parse().unwrap();
    assert!(errors > 100, "{errors}");
    bench.assert_clean("tank");
    events.contains("        vdev_state = \"DEGRADED\" (0x6)\n        vdev_path")
}

#[test]
fn properties_say_how_many_errors_are_too_many() {
    assert!(is_given_up(&[]));
    // That of the mirror is that of its sides, unless they have their own.
    assert!(!is_given_up(&["checksum_n=100000 tank mirror-0"]));
    let both = ["checksum_n=100000 tank root", "checksum_n=20 tank {b}"];
    assert!(is_given_up(&both));
}

#[test]
fn users_can_say_what_they_like_of_a_vdev() {
    let bench = Bench::new(&["a", "b", "c"]);
    bench.ok("zpool create tank mirror {a} {b}");
    bench.ok("zpool set org.example:shelf=7 tank {a}");
    bench.ok("zpool set comment=both tank mirror-0");
    bench.ok("zpool set comment=all tank root");
    let shown =
        bench.ok("zpool get -Ho name,value,source comment,org.example:shelf tank all-vdevs");
    let expected = "root-0\tall\tlocal\nroot-0\t-\tdefault\nmirror-0\tboth\tlocal\nmirror-0\t-\tdefault\n\
                    {a}\t-\tdefault\n{a}\t7\tlocal\n{b}\t-\tdefault\n{b}\t-\tdefault\n";
    assert_eq!(shown, bench.filled(expected));
    // What a top-level vdev has is its own, whatever device is below it.
    bench.ok("zpool attach -w tank {a} {c}");
    bench.ok("zpool detach tank {a}");
    bench.ok("zpool detach tank {b}");
    assert_eq!(value(&bench, "comment", "{c}"), "both");
    bench.ok("zpool set org.example:shelf=8 tank {c}");
    assert!(
        bench
            .ok("zpool get all tank {c}")
            .contains("org.example:shelf")
    );
    bench.ok("zpool set org.example:shelf= tank {c}");
    assert!(
        !bench
            .ok("zpool get all tank {c}")
            .contains("org.example:shelf")
    );
    bench.assert_clean("tank");
}

#[test]
fn a_device_is_taken_away_until_the_pool_is_exported() {
    let bench = Bench::new(&["a", "b"]);
    let state = |expected: &str| assert_eq!(value(&bench, "state", "{b}"), expected);
    let (offline, faulted, online) = ("2", "5", "7");
    bench.ok("zpool create tank mirror {a} {b}");
    bench.ok("zpool offline -t tank {b}");
    state(offline);
    put(&bench, "f", 2);
    state(offline);
    bench.fails(
        "zpool offline -t tank {a}",
        1,
        &bench.filled("cannot offline {a}: no valid replicas"),
    );
    bench.ok("zpool export tank");
    bench.ok("zpool import -d {dir} tank");
    state(online);
    bench.assert_clean("tank");
    bench.ok("zpool offline -t tank {b}");
    bench.ok("zpool online tank {b}");
    put(&bench, "g", 2);
    state(online);
    // A forced fault stays, until it is cleared.
    bench.ok("zpool offline -f tank {b}");
    put(&bench, "h", 2);
    bench.ok("zpool export tank");
    bench.ok("zpool import -d {dir} tank");
    state(faulted);
    let said = bench.ok("zpool online tank {b}");
    assert!(
        said.contains("use 'zpool clear' to restore a faulted device"),
        "{said}"
    );
    state(faulted);
    bench.ok("zpool clear tank {b}");
    state(online);
    bench.assert_clean("tank");
    // With `-t` an import ends that, too.
    bench.ok("zpool offline -tf tank {b}");
    put(&bench, "i", 2);
    state(faulted);
    bench.ok("zpool export tank");
    bench.ok("zpool import -d {dir} tank");
    state(online);
    bench.ok("zpool scrub tank");
    bench.assert_clean("tank");
}

#[test]
fn a_new_device_takes_the_place_of_one_that_is_gone_if_the_pool_wants_that() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create tank mirror {a} {b}");
    put(&bench, "f", 2);
    let old = value(&bench, "guid", "{b}");
    std::fs::remove_file(bench.path("b")).unwrap();
    bench.image("b", 256);
    bench.ok("zfs create tank/x");
    assert_eq!(value(&bench, "state", &old), "4", "nobody asked for it");
    bench.ok("zpool set autoreplace=on tank");
    // One that has something on it is left alone.
    bench.scribble("b", 0..4096);
    bench.ok("zfs create tank/y");
    assert_eq!(value(&bench, "state", &old), "4");
    bench.scribble_with("b", 0, &[0; 4096]);
    bench.ok("zfs create tank/z");
    bench.ok("zpool wait -t resilver tank");
    bench.ok("zpool sync tank");
    assert_eq!(value(&bench, "state", "{b}"), "7");
    assert_ne!(value(&bench, "guid", "{b}"), old);
    bench.ok("zpool scrub tank");
    bench.assert_clean("tank");
}
