//! Datasets come, change and go.

use crate::Place;

#[test]
fn snapshots_and_clones_keep_what_was() {
    let place = Place::with_pool("");
    place.zfs("create tank/a");
    place.write("tank/a", "first", b"1").unwrap();
    place.zfs("snapshot -o x:y=z tank/a@one");
    assert_eq!(place.get("x:y", "tank/a@one"), "z local");
    place.write("tank/a", "second", b"2").unwrap();
    place.zfs("clone -o compression=off tank/a@one tank/b");
    assert_eq!(place.get("compression", "tank/b"), "off local");
    assert_eq!(place.get("origin", "tank/b"), "tank/a@one -");
    assert_eq!(place.get("clones", "tank/a@one"), "tank/b -");
    assert_eq!(place.files("tank/b"), ["first"]);
    place.write("tank/b", "third", b"3").unwrap();
    place.zfs("promote tank/b");
    assert_eq!(place.get("origin", "tank/a"), "tank/b@one -");
    assert_eq!(place.names(), "tank tank/a tank/b tank/b@one");
    let mut files = place.files("tank/b");
    files.sort();
    assert_eq!(files, ["first", "third"]);
    assert_eq!(place.files("tank/b@one"), ["first"]);
    place.zfs("rollback tank/b@one");
    assert_eq!(place.files("tank/b"), ["first"]);
    place.verify();
}

#[test]
fn promote_names_the_snapshot_that_is_in_the_way() {
    let place = Place::with_pool("");
    place.zfs("create tank/a");
    place.zfs("snapshot tank/a@one");
    place.zfs("snapshot tank/a@two");
    place.zfs("clone tank/a@two tank/b");
    place.zfs("snapshot tank/b@one");
    place.refused(
        "promote tank/b",
        "cannot promote 'tank/b': conflicting snapshot 'one' from parent 'tank/a@two'",
    );
    place.zfs("rename tank/b@one @three");
    place.zfs("promote tank/b");
    assert_eq!(
        place.names(),
        "tank tank/a tank/b tank/b@one tank/b@two tank/b@three"
    );
    place.verify();
}

#[test]
fn rollback_removes_newer_ones_only_when_told() {
    let place = Place::with_pool("");
    place.zfs("create tank/a");
    place.zfs("snapshot tank/a@one");
    place.write("tank/a", "file", b"x").unwrap();
    place.zfs("snapshot tank/a@two");
    place.zfs("clone tank/a@two tank/clone");
    place.zfs("snapshot tank/clone@x");
    place.refused(
        "rollback tank/a@one",
        "cannot rollback to 'tank/a@one': more recent snapshots or bookmarks exist\nuse '-r' to \
         force deletion of the following snapshots and bookmarks:\ntank/a@two",
    );
    place.refused(
        "rollback -r tank/a@one",
        "cannot rollback to 'tank/a@one': clones of previous snapshots exist\nuse '-R' to force \
         deletion of the following clones and dependents:\ntank/clone@x\ntank/clone",
    );
    place.zfs("rollback -R tank/a@one");
    assert_eq!(place.names(), "tank tank/a tank/a@one");
    assert!(place.files("tank/a").is_empty());
    place.verify();
}

#[test]
fn destroy_takes_lists_and_ranges_of_snapshots() {
    let place = Place::with_pool("");
    place.zfs("create tank/a");
    for snap in "abcdefg".chars() {
        place.zfs(&format!("snapshot -r tank@{snap}"));
    }
    assert_eq!(
        place.zfs("destroy -np tank/a@b%d,g"),
        "destroy\ttank/a@b\ndestroy\ttank/a@c\n\
        destroy\ttank/a@d\ndestroy\ttank/a@g\nreclaim\t0\n"
    );
    place.zfs("destroy tank/a@b%d,g");
    assert_eq!(
        place.zfs("list -H -o name -t snapshot tank/a"),
        "tank/a@a\ntank/a@e\ntank/a@f\n"
    );
    place.zfs("destroy -r tank@%b,f%");
    assert_eq!(
        place.names(),
        "tank tank@c tank@d tank@e tank/a tank/a@a tank/a@e"
    );
    place.refused(
        "destroy tank@nosuch,x%y",
        "could not find any snapshots to destroy; check snapshot names.",
    );
    // A range whose two ends both exist.
    place.zfs("destroy -r tank@c%e");
    assert_eq!(place.names(), "tank tank/a tank/a@a tank/a@e");
    place.zfs("destroy tank/a@%");
    place.zfs("destroy tank/a");
    assert_eq!(place.names(), "tank");
    place.verify();
}

/// A bookmark outlives its snapshot.
#[test]
fn bookmarks_outlive_their_snapshots() {
    let place = Place::with_pool("");
    place.zfs("create -p tank/fs/below");
    place.zfs("snapshot -r tank/fs@one");
    place.zfs("bookmark tank/fs@one tank/fs#mark");
    place.zfs("bookmark tank/fs@one #short");
    place.zfs("bookmark tank/fs/below@one #all");
    let words = "cannot open 'tank/fs@none': dataset does not exist\nusage:\n\tbookmark ";
    let said = place.run("zfs bookmark tank/fs@none #x");
    assert_eq!((said.code, said.err.starts_with(words)), (2, true));
    place.refused(
        "bookmark tank/fs@one tank/fs#mark",
        "cannot create bookmark 'tank/fs#mark': bookmark exists",
    );
    place.refused(
        "bookmark tank/fs@one tank/fs/below#x",
        "cannot create bookmark 'tank/fs/below#x': source is not an ancestor of the new \
         bookmark's dataset",
    );
    assert_eq!(place.run("zfs bookmark tank/fs tank/fs#x").code, 2);
    let created = place.zfs("get -Hp -o value createtxg,guid tank/fs@one");
    place.zfs("destroy -r tank/fs@one");
    assert_eq!(
        place.zfs("list -H -o name -t bookmark -r tank"),
        "tank/fs#mark\ntank/fs#short\ntank/fs/below#all\n"
    );
    assert_eq!(
        place.zfs("get -Hp -o value createtxg,guid tank/fs#mark"),
        created
    );
    assert_eq!(
        place
            .run("zpool get -H -o value feature@bookmarks tank")
            .out,
        "active\n"
    );
    for mark in ["tank/fs#mark", "tank/fs#short", "tank/fs/below#all"] {
        place.zfs(&format!("destroy {mark}"));
    }
    assert_eq!(
        place
            .run("zpool get -H -o value feature@bookmarks tank")
            .out,
        "enabled\n"
    );
    place.verify();
}

/// Many snapshots are destroyed in one txg, all or none.
#[test]
fn snapshots_are_destroyed_together_or_not_at_all() {
    let place = Place::with_pool("");
    place.zfs("create tank/fs");
    for i in 0..40 {
        place
            .write("tank/fs", &format!("file{i}"), &[i; 3000])
            .unwrap();
        place.zfs(&format!("snapshot tank/fs@s{i}"));
    }
    place.zfs("clone tank/fs@s20 tank/clone");
    place.zfs("hold mine tank/fs@s30");
    let said = place.run("zfs destroy tank/fs@s25%s35");
    assert_eq!(
        (said.code, said.err.as_str()),
        (
            1,
            "cannot destroy snapshot tank/fs@s30: it's being held. Run 'zfs holds -r \
             tank/fs@s30' to see holders.\n"
        )
    );
    assert!(place.names().contains("tank/fs@s25 "));
    let txg = || place.with_spa(|spa| spa.uberblock().txg().0);
    let before = txg();
    place.zfs("destroy tank/fs@%s9,s11%s19,s31%");
    assert!(txg() - before < 12, "a txg each: {}", txg() - before);
    let left = place.names();
    let snapshots: Vec<&str> = left.split(' ').filter(|n| n.contains('@')).collect();
    let wanted: Vec<String> = [10]
        .into_iter()
        .chain(20..=30)
        .map(|i| format!("tank/fs@s{i}"))
        .collect();
    assert_eq!(snapshots, wanted);
    place.zfs("release mine tank/fs@s30");
    place.zfs("destroy -R tank/fs");
    assert_eq!(place.names(), "tank");
    place.verify();
}

#[test]
fn destroy_takes_trees_with_clones() {
    let place = Place::with_pool("");
    place.zfs("create -p tank/a/b/c");
    place
        .write("tank/a/b/c", "file", &vec![7; 3 << 20])
        .unwrap();
    place.zfs("snapshot -r tank/a@one");
    place.zfs("clone tank/a/b/c@one tank/x");
    place.zfs("snapshot tank/x@two");
    place.zfs("clone tank/x@two tank/a/y");
    let said = place.run("zfs destroy -r tank/a");
    assert_eq!(
        (said.code, said.err.lines().next_back()),
        (1, Some("tank/x"))
    );
    place.zfs("destroy -R tank/a");
    assert_eq!(place.names(), "tank");
    place.verify();
}

#[test]
fn held_snapshots_stay() {
    let place = Place::with_pool("");
    place.zfs("create tank/a");
    place.zfs("snapshot -r tank@one");
    place.zfs("hold -r keep tank@one");
    place.refused(
        "hold keep tank/a@one",
        "cannot hold snapshot 'tank/a@one': tag already exists on this dataset",
    );
    assert_eq!(place.get("userrefs", "tank/a@one"), "1 -");
    let holds = place.zfs("holds -r tank@one");
    let heads: Vec<&str> = holds.lines().map(|line| &line[..16]).collect();
    assert_eq!(
        heads,
        ["NAME        TAG ", "tank@one    keep", "tank/a@one  keep"]
    );
    place.refused(
        "destroy tank/a@one",
        "cannot destroy snapshot tank/a@one: it's being held. Run 'zfs holds -r tank/a@one' to see \
         holders.",
    );
    place.zfs("destroy -d tank/a@one");
    assert_eq!(place.get("defer_destroy", "tank/a@one"), "on -");
    place.refused(
        "release other tank@one",
        "cannot release hold from snapshot 'tank@one': no such tag on this dataset",
    );
    place.zfs("release -r keep tank@one");
    assert_eq!(place.names(), "tank tank@one tank/a");
    place.verify();
}

#[test]
fn renaming_moves_trees_and_snapshots() {
    let place = Place::with_pool("-O mountpoint=/t");
    place.zfs("create -p tank/a/b");
    place.zfs("create -o compression=gzip-3 tank/c");
    place.zfs("snapshot -r tank/a@one");
    place.zfs("rename tank/a tank/c/d");
    assert_eq!(
        place.get("compression", "tank/c/d/b"),
        "gzip-3 inherited from tank/c"
    );
    assert_eq!(
        place.get("mountpoint", "tank/c/d/b"),
        "/t/c/d/b inherited from tank"
    );
    place.zfs("rename -r tank/c/d@one tank/c/d@two");
    place.zfs("rename -p tank/c/d tank/e/f/g");
    assert_eq!(
        place.names(),
        "tank tank/c tank/e tank/e/f tank/e/f/g tank/e/f/g@two tank/e/f/g/b tank/e/f/g/b@two"
    );
    let usage = place.run("zfs rename -r tank/c tank/d");
    assert_eq!(usage.code, 2);
    place.refused(
        "rename tank/c/nosuch tank/x",
        "cannot open 'tank/c/nosuch': dataset does not exist",
    );
    place.verify();
}

#[test]
fn several_snapshots_are_taken_together_or_not_at_all() {
    let place = Place::with_pool("");
    place.zfs("create tank/a");
    place.zfs("snapshot tank@x tank/a@y");
    assert_eq!(
        place.get("createtxg", "tank@x"),
        place.get("createtxg", "tank/a@y")
    );
    place.refused(
        "snapshot tank@z tank/a@y",
        "cannot create snapshot 'tank/a@y': dataset already exists\nno snapshots were created",
    );
    place.zfs("create tank/b");
    place.refused(
        "snapshot -r tank@x",
        "cannot create snapshot 'tank@x': dataset already exists\nno snapshots were created",
    );
    assert_eq!(place.names(), "tank tank@x tank/a tank/a@y tank/b");
    place.verify();
}

#[test]
fn what_was_done_stands_in_the_history() {
    let place = Place::with_pool("");
    place.zfs("create -o atime=off tank/a");
    place.zfs("snapshot tank/a@s");
    assert_eq!(place.run("zfs create tank/a").code, 1);
    let history = place.run("zpool history tank").out;
    let commands: Vec<&str> = history
        .lines()
        .filter_map(|line| line.split_once(" zfs "))
        .map(|c| c.1)
        .collect();
    assert_eq!(
        commands,
        ["create -o atime=off tank/a", "snapshot tank/a@s"]
    );
}
