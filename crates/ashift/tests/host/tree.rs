//! Devices that are attached, detached, replaced and added.

use crate::bench::Bench;

/// A pool of these vdevs, with a file of some size in it.
pub(crate) fn with_data(names: &[&str], vdevs: &str) -> (Bench, Vec<u8>) {
    let bench = Bench::new(names);
    bench.ok(&format!("zpool create tank {vdevs}"));
    let bytes: Vec<u8> = (0..6_000_000_u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    std::fs::write(bench.path("data"), &bytes).unwrap();
    bench.ok("cp {dir}/data tank:/data");
    (bench, bytes)
}

pub(crate) fn assert_has(bench: &Bench, bytes: &[u8]) {
    bench.ok("cp tank:/data {dir}/back");
    assert!(std::fs::read(bench.path("back")).unwrap() == bytes);
    std::fs::remove_file(bench.path("back")).unwrap();
    bench.assert_clean("tank");
}

/// The part of `zpool status` about the vdevs, without numbers, and with only the last part of each path.
pub(crate) fn vdevs(bench: &Bench) -> String {
    let status = bench.ok("zpool status tank");
    let lines = status.lines().skip_while(|line| !line.contains("NAME"));
    let lines = lines.skip(1).take_while(|line| !line.is_empty());
    let short = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, state) = (words.next().unwrap(), words.next().unwrap());
        let notes: Vec<&str> = words.skip(3).collect();
        let name = name.rsplit('/').next().unwrap();
        [&[name, state], &notes[..]].concat().join(" ")
    };
    lines.map(short).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_disk_becomes_a_mirror_and_a_disk_again() {
    let (bench, bytes) = with_data(&["a", "b", "c"], "{a}");
    assert_eq!(bench.ok("zpool attach tank {a} {b}"), "");
    bench.ok("zpool wait -t resilver tank");
    let status = bench.ok("zpool status tank");
    assert!(status.contains("scan: resilvered ") && status.contains(" with 0 errors on "));
    bench.ok("zpool attach -w tank {b} {c}");
    let three = "tank ONLINE\nmirror-0 ONLINE\na ONLINE\nb ONLINE\nc ONLINE";
    assert_eq!(vdevs(&bench), three);
    assert_has(&bench, &bytes);
    bench.ok("zpool detach tank {a}");
    bench.ok("zpool detach tank {c}");
    assert_eq!(vdevs(&bench), "tank ONLINE\nb ONLINE");
    assert_has(&bench, &bytes);
    // What was detached is free, and not in the way of the pool.
    bench.ok("zpool create other {a} {c}");
    assert_has(&bench, &bytes);
    let history = bench.ok("zpool history -i tank");
    for (event, words) in [
        ("vdev attach", "attach vdev={b} to vdev={a}"),
        ("detach", "vdev={a}"),
        ("zpool attach -w tank", ""),
    ] {
        let words = bench.filled(words);
        let is_it = |line: &str| line.contains(event) && line.contains(&words);
        assert!(history.lines().any(is_it), "{event}: {history}");
    }
}

#[test]
fn what_cannot_be_attached_or_detached_is_refused() {
    let (bench, _) = with_data(&["a", "b", "c", "d", "e"], "raidz {a} {b} {c}");
    bench.image("small", 32);
    bench.image("shorter", 200);
    let refusals = [
        (
            "attach tank nope {d}",
            "cannot attach {d} to nope: no such device in pool",
        ),
        (
            "attach tank {a} {d}",
            "cannot attach {d} to {a}: can only attach to mirrors and top-level disks",
        ),
        (
            "attach tank raidz1-0 {small}",
            "cannot attach {small} to raidz1-0: device is too small",
        ),
        (
            "detach tank nope",
            "cannot detach nope: no such device in pool",
        ),
        (
            "detach tank {a}",
            "cannot detach {a}: only applicable to mirror and replacing vdevs",
        ),
        (
            "detach tank raidz1-0",
            "cannot detach raidz1-0: only applicable to mirror and replacing vdevs",
        ),
        (
            "replace tank nope {d}",
            "cannot replace nope with {d}: no such device in pool",
        ),
        (
            "replace tank raidz1-0 {d}",
            "cannot replace raidz1-0 with {d}: already in replacing/spare config; wait for \
             completion or use 'zpool detach'",
        ),
        (
            "replace tank {a} {small}",
            "cannot replace {a} with {small}: device is too small",
        ),
        (
            "replace tank {a} {shorter}",
            "cannot replace {a} with {shorter}: device is too small",
        ),
        (
            "replace -o ashift=13 tank {a} {d}",
            "cannot replace {a} with {d}: The new device cannot have a higher alignment \
             requirement than the top-level vdev.",
        ),
    ];
    for (command, text) in refusals {
        bench.fails(&format!("zpool {command}"), 255, text);
    }
    assert_eq!(
        vdevs(&bench),
        "tank ONLINE\nraidz1-0 ONLINE\na ONLINE\nb ONLINE\nc ONLINE"
    );
}

#[test]
fn wrong_commands_are_refused() {
    let (bench, _) = with_data(&["a", "b", "c", "d", "e"], "raidz {a} {b} {c}");
    let in_use = "invalid vdev specification\nuse '-f' to override the following errors:\n{b} is part of \
                  active pool 'tank'";
    bench.fails("zpool replace tank {a} {b}", 1, in_use);
    bench.fails("zpool replace tank {a}", 1, &in_use.replace("{b}", "{a}"));
    bench.fails(
        "zpool attach -s tank {a} {d}",
        255,
        "cannot attach {d} to {a}: can only attach to mirrors and top-level disks",
    );
    bench.fails(
        "zpool replace -s tank {a} {d}",
        255,
        "cannot replace {a} with {d}: only mirror and dRAID vdevs support sequential reconstruction",
    );
    bench.fails(
        "zpool attach nope {a} {d}",
        1,
        "cannot open 'nope': no such pool",
    );
    for (command, text) in [
        ("attach", "missing pool name argument"),
        ("attach tank", "missing <device> specification"),
        ("attach tank {a}", "missing <new_device> specification"),
        ("attach tank {a} {d} {e}", "too many arguments"),
        ("detach tank", "missing <device> specification"),
        ("replace tank {a} {d} {e}", "too many arguments"),
        ("add tank", "missing vdev specification"),
        ("add -o ashift tank {d}", "missing '=' for -o option"),
    ] {
        let (code, _, err) = bench.run(&format!("zpool {command}"));
        assert!(code == 2 && err.starts_with(text), "{command}: {err}");
    }
    assert_eq!(
        vdevs(&bench),
        "tank ONLINE\nraidz1-0 ONLINE\na ONLINE\nb ONLINE\nc ONLINE"
    );
}

#[test]
fn vdevs_are_added() {
    let (bench, bytes) = with_data(&["a", "b", "c", "d", "e"], "mirror {a} {b}");
    let before: u64 = bench
        .ok("zpool list -Hpo size tank")
        .trim()
        .parse()
        .unwrap();
    let layout = "would update 'tank' to the following configuration:\n\n\ttank\n\t  mirror-0\n\t    \
                  {a}\n\t    {b}\n\t  mirror\n\t    {c}\n\t    {d}\n";
    let shown = bench.ok("zpool add -n tank mirror {c} {d}");
    assert_eq!(shown, bench.filled(layout));
    let mismatch = "invalid vdev specification\nuse '-f' to override the following errors:\nmismatched \
                    replication level: pool uses mirror and new vdev is file";
    bench.fails("zpool add tank {c}", 1, mismatch);
    bench.fails("zpool add -n tank {c}", 1, mismatch);
    let other =
        "cannot add to 'tank': adding devices with different physical sector sizes is not allowed";
    bench.fails("zpool add -o ashift=13 tank mirror {c} {d}", 1, other);
    assert_eq!(
        vdevs(&bench),
        "tank ONLINE\nmirror-0 ONLINE\na ONLINE\nb ONLINE"
    );
    assert_eq!(bench.ok("zpool add tank mirror {c} {d}"), "");
    let after: u64 = bench
        .ok("zpool list -Hpo size tank")
        .trim()
        .parse()
        .unwrap();
    assert_eq!(after, 2 * before);
    bench.ok("zpool add -f tank {e}");
    let three = "tank ONLINE\nmirror-0 ONLINE\na ONLINE\nb ONLINE\nmirror-1 ONLINE\nc ONLINE\nd ONLINE\ne \
                 ONLINE";
    assert_eq!(vdevs(&bench), three);
    bench.ok("cp {dir}/data tank:/more");
    assert_has(&bench, &bytes);
    bench.ok("zpool scrub tank");
    bench.ok("zpool export tank");
    bench.ok("zpool import -d {dir} tank");
    assert_has(&bench, &bytes);
}

#[test]
fn a_device_is_replaced() {
    for (kind, name) in [
        ("", ""),
        ("mirror", "mirror-0 ONLINE\n"),
        ("raidz", "raidz1-0 ONLINE\n"),
    ] {
        let beside = if kind.is_empty() { "" } else { "{b} {c}" };
        let (bench, bytes) = with_data(
            &["a", "b", "c", "d"],
            format!("{kind} {{a}} {beside}").trim(),
        );
        bench.ok("zpool replace tank {a} {d}");
        let rest = if kind.is_empty() {
            ""
        } else {
            "\nb ONLINE\nc ONLINE"
        };
        bench.ok("zpool wait -t replace tank");
        assert_eq!(vdevs(&bench), format!("tank ONLINE\n{name}d ONLINE{rest}"));
        assert_has(&bench, &bytes);
        bench.ok("zpool create other {a}");
        assert_has(&bench, &bytes);
    }
}

/// The disk at the path is another one now; and one that is gone is named by its guid.
#[test]
fn a_device_that_is_gone_is_replaced() {
    let (bench, bytes) = with_data(&["a", "b", "c", "d"], "raidz2 {a} {b} {c} {d}");
    let renew = |name: &str| {
        std::fs::remove_file(bench.path(name)).unwrap();
        bench.image(name, 256);
    };
    renew("a");
    bench.ok("zpool replace tank {a}");
    // Any command that opens the pool goes on with it.
    bench.ok("zpool resilver tank");
    let whole = "tank ONLINE\nraidz2-0 ONLINE\na ONLINE\nb ONLINE\nc ONLINE\nd ONLINE";
    assert_eq!(vdevs(&bench), whole);
    assert_has(&bench, &bytes);
    let guids = bench.ok("zpool status -g tank");
    let guid = guids.lines().filter(|line| line.contains("ONLINE")).nth(5);
    let guid = guid
        .and_then(|line| line.split_whitespace().next())
        .unwrap();
    std::fs::remove_file(bench.path("c")).unwrap();
    bench.image("e", 256);
    bench.ok(&format!("zpool replace -w tank {guid} {{dir}}/e"));
    assert_eq!(vdevs(&bench), whole.replace("\nc ", "\ne "));
    assert_has(&bench, &bytes);
}

/// The cachefile that a killed command left does not name the new devices.
#[test]
fn devices_that_the_cachefile_does_not_name_are_found() {
    let (bench, bytes) = with_data(&["a", "b", "c", "d"], "{a}");
    let cache = bench.state().join("zpool.cache");
    for (command, expected) in [
        (
            "attach -w tank {a} {b}",
            "tank ONLINE\nmirror-0 ONLINE\na ONLINE\nb ONLINE",
        ),
        (
            "add -f tank {c}",
            "tank ONLINE\nmirror-0 ONLINE\na ONLINE\nb ONLINE\nc ONLINE",
        ),
        (
            "replace -w tank {c} {d}",
            "tank ONLINE\nmirror-0 ONLINE\na ONLINE\nb ONLINE\nd ONLINE",
        ),
    ] {
        let before = std::fs::read(&cache).unwrap();
        bench.ok(&format!("zpool {command}"));
        std::fs::write(&cache, before).unwrap();
        assert_eq!(vdevs(&bench), expected);
        bench.ok("zpool sync tank");
    }
    assert_has(&bench, &bytes);
}
