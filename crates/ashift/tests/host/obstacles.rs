//! Pools of the real OpenZFS: those that can only be read, and those that need special care for writing.

use crate::bench::Bench;

/// A host with an image that OpenZFS 2.3.2 made (`crates/torture/tests/golden`).
fn golden(name: &str) -> Bench {
    let bytes = torture::golden::bytes(&format!("openzfs-2.3.2-{name}"));
    let bench = Bench::new(&[]);
    std::fs::write(bench.path("a"), bytes).unwrap();
    bench
}

#[test]
fn a_block_that_two_files_share_stays_until_both_are_gone() {
    let bench = golden("dedup");
    bench.ok("zpool import -d {dir} tank");
    let contents = bench.ok("sha256sum tank:/two");
    bench.ok("rm tank:/one");
    assert_eq!(bench.ok("sha256sum tank:/two"), contents);
    bench.ok("cp tank:/two tank:/three");
    bench.assert_clean("tank");
    bench.ok("rm tank:/two tank:/alone");
    bench.assert_clean("tank");
    bench.ok("zpool export tank");
    bench.ok("zpool import -d {dir} tank");
    assert_eq!(
        bench.ok("sha256sum tank:/three"),
        contents.replace("two", "three")
    );
}

/// What OpenZFS 2.3.2 says of this pool, half of whose log is flushed.
#[test]
fn dedup_tables_of_openzfs_are_shown() {
    let bench = golden("fast-dedup");
    bench.ok("zpool import -d {dir} -o readonly=on tank");
    let status = |options: &str| bench.ok(&format!("zpool status {options} tank"));
    let text = status("-D");
    let (_, shown) = text.split_once("errors: No known data errors\n").unwrap();
    assert_eq!(
        shown,
        "
 dedup: DDT entries 531, size 386K on disk, 196K in core

bucket              allocated                       referenced          
______   ______________________________   ______________________________
refcnt   blocks   LSIZE   PSIZE   DSIZE   blocks   LSIZE   PSIZE   DSIZE
------   ------   -----   -----   -----   ------   -----   -----   -----
     1      201    100K    100K    100K      201    100K    100K    100K
     2      300    150K    150K    150K      700    350K    350K    350K
 Total      501    250K    250K    250K      901    450K    450K    450K

"
    );
    let exact = "DDT entries 531, size 394752 on disk, 200928 in core";
    assert!(status("-Dp").contains(exact));
    let json: serde_json::Value = serde_json::from_str(&status("-Dj")).unwrap();
    let stats = &json["pools"]["tank"]["dedup_stats"];
    let sizes = ["obj_count", "dspace", "mspace"].map(|name| stats[name].as_str().unwrap());
    assert_eq!(sizes, ["531", "386K", "196K"]);
    let rows = &stats["ddt_stats"]["histogram"];
    assert_eq!(rows["1"]["ref_blocks"], "700");
    assert_eq!(rows["0"]["deflated_size"], "100K");
    let ratio = bench.ok("zpool get -Ho value dedupratio tank");
    assert_eq!(ratio.trim(), "1.79x");
}

/// What was written since the checkpoint is hidden by a rewind that only reads, and gone after one for good.
#[test]
fn a_pool_is_rewound_to_a_checkpoint_of_openzfs() {
    let bench = golden("checkpoint");
    bench.ok("zpool import -d {dir} tank");
    bench.ok("cp tank:/file tank:/copy");
    let history = bench.ok("zpool history -i tank");
    assert!(
        history.contains("checkpointed uberblock txg=13"),
        "{history}"
    );
    bench.assert_clean("tank");
    bench.ok("zpool export tank");
    let image = std::fs::read(bench.path("a")).unwrap();
    bench.ok("zpool import -d {dir} -o readonly=on --rewind-to-checkpoint tank");
    for _ in 0..2 {
        let files = bench.ok("ls tank:/");
        assert!(
            files.contains("file") && !files.contains("later"),
            "{files}"
        );
    }
    let (code, _, err) = bench.run("zpool checkpoint -d tank");
    assert_eq!(code, 1);
    assert!(err.contains("read-only"), "{err}");
    bench.ok("zpool export tank");
    assert!(std::fs::read(bench.path("a")).unwrap() == image, "changed");
    bench.ok("zpool import -d {dir} --rewind-to-checkpoint tank");
    bench.ok("cp tank:/file tank:/copy");
    let files = bench.ok("ls tank:/");
    assert!(
        files.contains("copy") && !files.contains("later"),
        "{files}"
    );
    let history = bench.ok("zpool history -i tank");
    assert!(history.contains("rewound state to txg=13"), "{history}");
    bench.assert_clean("tank");
    let (code, _, err) = bench.run("zpool checkpoint -d tank");
    assert_eq!(code, 1);
    let said = "cannot discard checkpoint in 'tank': checkpoint does not exist\n";
    assert_eq!(err, said);
}

/// There is no other host, but finding that out takes time.
#[test]
fn a_pool_with_multihost_is_watched_before_it_is_taken() {
    let bench = Bench::new(&["a"]);
    bench.set_hostid(1);
    bench.ok("zpool create -o multihost=on tank {a}");
    assert_eq!(
        bench.ok("zpool get -Ho value,source multihost tank"),
        "on\tlocal\n"
    );
    bench.ok("zfs create tank/a");
    bench.assert_clean("tank");
    let other = Bench::beside(&bench);
    other.set_hostid(2);
    let (code, _, err) = other.run("zpool import -d {dir} tank");
    assert_eq!(code, 1);
    assert!(err.contains("(hostid=1)"), "{err}");
    let begun = std::time::Instant::now();
    let (code, _, err) = other.run("zpool import -f -d {dir} tank");
    assert_eq!(code, 0, "{err}");
    let waiting = "waiting for 20 seconds, in case another host has pool 'tank' open\n";
    assert_eq!(err, waiting);
    assert!(begun.elapsed().as_secs() >= 20);
    other.ok("zpool set multihost=off tank");
    other.ok("zpool export tank");
    let begun = std::time::Instant::now();
    let third = Bench::beside(&bench);
    third.set_hostid(3);
    third.ok("zpool import -d {dir} tank");
    assert!(begun.elapsed().as_secs() < 20);
    third.assert_clean("tank");
}

#[test]
fn a_pool_with_the_defaults_of_openzfs_is_written_to() {
    let bench = golden("default");
    bench.ok("zpool import -f -d {dir} tank");
    bench.ok("cp tank:/f6 tank/d:/p/copy");
    bench.ok("rm tank:/f5");
    bench.ok("zfs snapshot tank@here");
    bench.ok("zfs destroy tank/c");
    bench.assert_clean("tank");
    bench.ok("zpool export tank");
    bench.ok("zpool import -d {dir} tank");
    assert_eq!(
        bench.ok("sha256sum tank/d:/p/copy").split(' ').next(),
        bench.ok("sha256sum tank:/f6").split(' ').next()
    );
    bench.ok("zpool scrub tank");
    bench.assert_clean("tank");
}

#[test]
fn what_a_checkpoint_of_openzfs_takes_is_shown() {
    let bench = golden("checkpoint");
    let (code, _, err) = bench.run("zpool import -d {dir} tank");
    assert_eq!(code, 0, "{err}");
    let bytes: u64 = bench
        .ok("zpool get -Hpo value checkpoint tank")
        .trim()
        .parse()
        .unwrap();
    // The file that came later freed blocks of metadata, which the checkpoint still refers to.
    assert!(bytes > 0 && bytes.is_multiple_of(512), "{bytes}");
    let listed = bench.ok("zpool list -Hpo checkpoint tank");
    assert_eq!(listed.trim(), bytes.to_string());
    let status = bench.ok("zpool status tank");
    let line = status.lines().find(|line| line.starts_with("checkpoint:"));
    let line = line.unwrap_or_else(|| panic!("{status}"));
    assert!(line.starts_with("checkpoint: created "), "{line}");
    assert!(line.contains(", consumes "), "{line}");
}

#[test]
fn a_pool_of_version_14_is_read_until_it_is_upgraded() {
    let bench = golden("v14");
    let listing = bench.ok("zpool import -d {dir}");
    assert!(listing.contains("legacy on-disk version"), "{listing}");
    let (code, _, said) = bench.run("zpool import -d {dir} old");
    assert!(code == 0 && said.contains("it is of version 14"), "{said}");
    let status = bench.ok("zpool status old");
    assert!(status.contains("before feature flags"), "{status}");
    assert_eq!(bench.ok("zpool get -Ho value version old"), "14\n");
    let listing = bench.ok("zpool upgrade");
    assert!(listing.contains("\n14   old\n"), "{listing}");
    let names = bench.ok("zfs list -Ho name -t all -r old");
    assert!(names.contains("old/clone@two\n"), "{names}");
    let gone = bench.ok("cat old/fs@one:/gone");
    assert_eq!(gone.lines().count(), 3000);
    for command in [
        "zfs create old/new",
        "zfs snapshot old@three",
        "zfs destroy -r old/clone",
        "rm old/fs:/numbers",
    ] {
        let (code, _, said) = bench.run(command);
        assert!(
            code == 1 && said.contains("version 14"),
            "{command}: {said}"
        );
    }
    let (code, _, said) = bench.run("zpool upgrade -V 28 old");
    assert!(code == 1 && said.contains("only version 5000"), "{said}");

    let said = bench.ok("zpool upgrade old");
    let upgraded = "Successfully upgraded 'old' from version 14 to feature flags.\n";
    assert!(said.contains(upgraded), "{said}");
    assert!(said.contains("\n  async_destroy\n"), "{said}");
    let listing = bench.ok("zpool upgrade");
    let all = "Every feature flags pool has all supported and requested features enabled.";
    assert!(listing.contains(all), "{listing}");
    assert_eq!(bench.ok("zpool get -Ho value version old"), "-\n");
    assert_eq!(bench.ok("zpool get -Ho value readonly old"), "off\n");
    let history = bench.ok("zpool history -i old");
    assert!(history.contains("set version=5000"), "{history}");
    assert!(history.contains("zpool upgrade old"), "{history}");
    assert_eq!(bench.ok("cat old/fs@one:/gone"), gone);
    bench.ok("zfs create old/new");
    bench.ok("cp old/fs:/numbers old/new:/");
    bench.ok("zfs snapshot -r old@three");
    bench.ok("zfs destroy -r old/clone");
    let (code, _, said) = bench.run("rm old/fs:/numbers");
    assert!(
        code == 1 && said.contains("Read-only file system"),
        "{said}"
    );
    let why = "'old/fs' is of version 3, which is only read: 'zfs upgrade old/fs'";
    assert!(said.contains(why), "{said}");
    let listing = bench.ok("zfs upgrade");
    assert!(listing.contains("\n 3   old/fs\n"), "{listing}");
    let (code, _, said) = bench.run("zfs upgrade -V 4 old/fs");
    assert!(code == 1 && said.contains("only version 5"), "{said}");
    assert_eq!(bench.ok("zfs upgrade old/fs"), "1 filesystems upgraded\n");
    let rest = "1 filesystems upgraded\n2 filesystems already at this version\n";
    assert_eq!(bench.ok("zfs upgrade -a"), rest);
    let all = "All filesystems are formatted with the current version.";
    assert!(bench.ok("zfs upgrade").contains(all));
    assert_eq!(bench.ok("zfs get -Ho value version old/fs"), "5\n");
    bench.ok("rm old/fs:/numbers");
    bench.ok("cp old/new:/numbers old/fs:/changed");
    let history = bench.ok("zpool history -i old");
    assert!(
        history.contains("upgrade old/fs") && history.contains("from 3 to 5"),
        "{history}"
    );
    bench.ok("zpool scrub old");
    bench.assert_clean("old");
    bench.ok("zpool export old");
}

#[test]
fn all_pools_of_old_versions_are_upgraded_at_once() {
    for version in ["v8", "v28"] {
        let bench = golden(version);
        bench.ok("zpool import -d {dir} old");
        let said = bench.ok("zpool upgrade -a");
        let from = version.trim_start_matches('v');
        let upgraded = format!("upgraded 'old' from version {from} to feature flags.\n");
        assert!(said.contains(&upgraded), "{said}");
        let said = bench.ok("zpool upgrade -V 5000 old");
        assert!(said.contains("already has all supported"), "{said}");
        bench.ok("zfs destroy -r old/clone");
        bench.ok("zpool export old");
        bench.ok("zpool import -d {dir} old");
        bench.assert_clean("old");
        let (code, _, said) = bench.run("rm old/fs:/numbers");
        assert_eq!(code == 0, version == "v28", "{said}");
        bench.ok("zpool scrub old");
        bench.assert_clean("old");
    }
}

#[test]
fn a_pool_of_a_big_endian_host_is_used_as_any_other() {
    let bench = golden("big-endian");
    bench.ok("zpool import -d {dir} be");
    bench.ok("cp be/be:/text {dir}/text");
    bench.ok("cp -a be/be:/dir be/be:/copy");
    bench.ok("zfs create be/new");
    bench.ok("cp {dir}/text be/new:/");
    bench.ok("zfs destroy -r be/be");
    bench.ok("zpool scrub be");
    assert!(bench.ok("zpool history be").contains("zfs create be/new"));
    let text = std::fs::read_to_string(bench.path("text")).unwrap();
    assert_eq!(bench.ok("cat be/new:/text"), text);
    bench.assert_clean("be");
}

#[test]
fn a_pool_that_is_held_is_upgraded() {
    let bench = golden("v20");
    bench.ok("zpool import -d {dir} old");
    bench.ok("serve --background");
    bench.ok("cat old/fs:/numbers");
    let (code, _, said) = bench.run("zfs snapshot old@three");
    assert!(code == 1 && said.contains("version 20"), "{said}");
    bench.ok("zpool upgrade old");
    bench.ok("zfs snapshot -r old@three");
    bench.ok("zfs upgrade -r old");
    bench.ok("rm old/fs:/numbers");
    bench.ok("zfs destroy -r old/clone");
    bench.ok("serve --stop");
    let (code, _, _) = bench.run("cat old/fs:/numbers");
    assert_eq!(code, 1);
    bench.assert_clean("old");
}
