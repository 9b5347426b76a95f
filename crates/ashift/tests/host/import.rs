//! Which pools `zpool import` finds, how it shows them, and pools whose devices have moved.

use std::os::unix::fs::FileExt;

use crate::bench::Bench;

fn exported_mirror() -> Bench {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create tank mirror {a} {b}");
    bench.ok("zpool export tank");
    bench
}

fn shift(bench: &Bench, name: &str, to: &str) {
    std::fs::create_dir_all(bench.path("moved")).unwrap();
    std::fs::rename(bench.path(name), bench.path(to)).unwrap();
}

#[test]
fn one_device_leads_to_the_others() {
    let bench = exported_mirror();
    let listing = bench.ok("zpool import -d {a}");
    assert!(listing.contains(" state: ONLINE\n"), "{listing}");
    bench.ok("zpool import -d {a} tank");
    assert_eq!(bench.ok("zpool list -Ho health"), "ONLINE\n");
    bench.assert_clean("tank");
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create tank {a} {b}");
    bench.ok("zpool export tank");
    let listing = bench.ok("zpool import -d {b}");
    assert!(listing.contains(" state: ONLINE\n"), "{listing}");
    bench.ok("zpool import -d {b} tank");
    assert_eq!(bench.ok("zpool list -Ho health"), "ONLINE\n");
    bench.assert_clean("tank");
}

#[test]
fn a_partition_in_an_image_is_found() {
    let bench = Bench::new(&["a"]);
    bench.ok("gpart create -s gpt {a}");
    bench.ok("gpart add -t freebsd-ufs -s 10M {a}");
    bench.ok("gpart add -t freebsd-zfs {a}");
    bench.ok("zpool create tank {dir}/ap2");
    bench.ok("zpool export tank");
    // As an image of another host's disk: the paths in its labels are not here.
    std::fs::create_dir(bench.path("images")).unwrap();
    std::fs::rename(bench.path("a"), bench.path("images/sda.img")).unwrap();
    for place in [
        "{dir}/images",
        "{dir}/images/sda.img",
        "{dir}/images/sda.imgp2",
    ] {
        let listing = bench.ok(&format!("zpool import -d {place}"));
        assert!(listing.contains("sda.imgp2  ONLINE"), "{place}: {listing}");
        assert_eq!(listing.matches("pool: tank").count(), 1, "{listing}");
    }
    bench.ok("zpool import -d {dir}/images tank");
    bench.ok("zfs create tank/x");
    assert_eq!(bench.ok("zpool list -Ho health"), "ONLINE\n");
    bench.ok("zpool export tank");
    bench.ok("zpool import -d {dir}/images/sda.img -o readonly=on tank");
    assert!(bench.ok("zfs list -Ho name").contains("tank/x"));
}

#[test]
fn a_missing_device_is_shown_by_its_path() {
    let bench = exported_mirror();
    std::fs::remove_file(bench.path("b")).unwrap();
    let listing = bench.ok("zpool import -d {dir}");
    let advice = "status: One or more devices are missing from the system.\naction: The pool can be \
                  imported despite missing or damaged devices.  The\n\tfault tolerance of the pool \
                  may be compromised if imported.\n   see: \
                  https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-2Q\n";
    assert!(listing.contains(" state: DEGRADED\n"), "{listing}");
    assert!(listing.contains(advice), "{listing}");
    let gone = format!("{}  UNAVAIL  cannot open\n", bench.path("b").display());
    assert!(listing.contains(&gone), "{listing}");
}

#[test]
fn a_pool_whose_contents_are_ruined_is_listed_as_faulted() {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create tank {a}");
    bench.ok("zpool export tank");
    bench.scribble("a", (4 << 20)..(251 << 20));
    let listing = bench.ok("zpool import -d {dir}");
    assert!(listing.contains(" state: FAULTED\n"), "{listing}");
    assert!(
        listing.contains("status: The pool metadata is corrupted.\n"),
        "{listing}"
    );
    assert!(listing.contains("msg/ZFS-8000-72\n"), "{listing}");
    assert_eq!(bench.run("zpool import -d {dir} tank").0, 1);
}

#[test]
fn where_nothing_is_nothing_is_found() {
    let bench = exported_mirror();
    let nothing = (
        0,
        String::new(),
        "no pools available to import\n".to_owned(),
    );
    assert_eq!(bench.run("zpool import -d /nonexistent"), nothing);
    let text = "cannot import 'tank': no such pool available";
    bench.fails("zpool import -d /nonexistent tank", 1, text);
}

#[test]
fn a_property_that_does_not_exist_is_refused_as_openzfs_refuses_it() {
    let bench = exported_mirror();
    let text = "property 'nope' is not a valid pool or vdev property";
    bench.fails("zpool import -d {dir} -o nope=1 tank", 0, text);
    assert_eq!(bench.ok("zpool list -Ho name"), "");
}

#[test]
fn a_pool_that_has_moved_is_found_where_it_is_now() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create tank {a}");
    bench.ok("zpool create other {b}");
    shift(&bench, "a", "moved/x");
    let (code, out, err) = bench.run("zfs list -Ho name");
    assert_eq!((code, out.as_str()), (0, "other\n"), "{err}");
    assert_eq!(err.matches("cannot open 'tank'").count(), 1, "{err}");
    assert!(err.contains("zpool import -d DIR"), "{err}");
    assert_eq!(
        bench.ok("zpool list -Ho name,health"),
        "other\tONLINE\ntank\tUNAVAIL\n"
    );
    let (code, _, err) = bench.run("zfs list tank");
    assert_eq!(code, 1);
    assert_eq!(err.matches("cannot open 'tank'").count(), 1, "{err}");
    let listing = bench.ok("zpool import -d {dir}/moved");
    assert!(listing.contains("pool: tank\n"), "{listing}");
    bench.ok("zpool import -d {dir}/moved tank");
    assert_eq!(bench.ok("zfs list -Ho name"), "other\ntank\n");
    bench.ok("zfs create tank/a");
    bench.ok("zpool export tank");
    bench.ok("zpool import -d {dir}/moved tank");
    // A pool at its remembered place is not offered again.
    let nothing = (
        0,
        String::new(),
        "no pools available to import\n".to_owned(),
    );
    assert_eq!(bench.run("zpool import -d {dir}/moved"), nothing);
    shift(&bench, "moved/x", "a");
    bench.ok("zpool import -d {dir} tank dozer");
    assert_eq!(
        bench.ok("zpool list -Ho name,health"),
        "dozer\tONLINE\nother\tONLINE\n"
    );
    bench.assert_clean("dozer");
}

#[test]
fn a_pool_that_is_only_read_is_remembered_where_it_is() {
    let bench = exported_mirror();
    shift(&bench, "a", "moved/x");
    shift(&bench, "b", "moved/y");
    bench.ok("zpool import -o readonly=on -d {dir}/moved tank");
    assert_eq!(
        bench.ok("zpool list -Ho name,health,readonly"),
        "tank\tONLINE\ton\n"
    );
    assert_eq!(bench.ok("zfs list -Ho name"), "tank\n");
    let status = bench.ok("zpool status -P tank");
    for name in ["x", "y"] {
        let path = bench.path("moved").join(name).display().to_string();
        assert!(status.contains(&path), "{status}");
    }
}

#[test]
fn syncing_all_pools_goes_on_without_one_that_is_not_there() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create other {a}");
    bench.ok("zpool create tank {b}");
    std::fs::remove_file(bench.path("a")).unwrap();
    let txg = |bench: &Bench| bench.ok("zdb -u tank");
    let before = txg(&bench);
    let (code, out, err) = bench.run("zpool sync -f");
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(err.starts_with("cannot open 'other': "), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    assert_ne!(txg(&bench), before);
}

#[test]
fn a_pool_is_looked_at_under_another_name() {
    let bench = exported_mirror();
    let image = || {
        let file = std::fs::File::open(bench.path("a")).unwrap();
        let mut start = vec![0; 8 << 20];
        file.read_exact_at(&mut start, 0).unwrap();
        start
    };
    let before = image();
    bench.ok("zpool import -o readonly=on -d {dir} tank seen");
    assert_eq!(bench.ok("zpool list -Ho name,health"), "seen\tONLINE\n");
    assert_eq!(bench.ok("zfs list -Ho name"), "seen\n");
    bench.ok("ls seen:/");
    let (code, _, err) = bench.run("zfs create seen/a");
    assert!(code == 1 && err.contains("pool is read-only"), "{err}");
    bench.ok("zpool export seen");
    assert!(image() == before, "the image was written to");
    bench.ok("zpool import -d {dir} tank");
    bench.assert_clean("tank");
}

#[test]
fn a_temporary_name_is_not_on_disk() {
    let bench = Bench::new(&["a", "b", "c"]);
    bench.ok("zpool create tank mirror {a} {b}");
    bench.ok("zpool export tank");
    bench.ok("zpool import -d {a} -t tank guest");
    bench.ok("zfs create guest/x");
    bench.ok("zpool set comment=hello guest");
    bench.ok("zpool create -t other real {c}");
    bench.ok("zfs create other/y");
    let listed = bench.ok("zpool list -Ho name,cachefile");
    assert_eq!(listed, "guest\tnone\nother\tnone\n");
    for (device, name) in [("{a}", "tank"), ("{c}", "real")] {
        let label = bench.ok(&format!("zdb -l {device}"));
        assert!(label.contains(&format!("    name: '{name}'\n")), "{label}");
    }
    bench.ok("zpool export -a");
    bench.assert_clean("tank");
    bench.assert_clean("real");
    bench.ok("zpool import -d {a} tank");
    bench.ok("zpool import -d {c} real");
    let listed = bench.ok("zfs list -Ho name");
    assert_eq!(listed, "real\nreal/y\ntank\ntank/x\n");
    assert_eq!(bench.ok("zpool list -Ho comment tank"), "hello\n");
}

#[test]
fn a_cachefile_leads_to_the_devices_of_its_pools() {
    let bench = Bench::new(&["a", "b", "c"]);
    bench.ok("zpool create tank mirror {a} {b}");
    bench.ok("zpool create other {c}");
    // What OpenZFS would have as /etc/zfs/zpool.cache.
    std::fs::copy(bench.state().join("zpool.cache"), bench.path("cache")).unwrap();
    bench.ok("zpool export tank");
    let listing = bench.ok("zpool import -c {dir}/cache");
    assert!(listing.contains("pool: tank\n"), "{listing}");
    assert!(
        !listing.contains("pool: other"),
        "it is imported: {listing}"
    );
    bench.ok("zpool import -c {dir}/cache tank");
    assert_eq!(
        bench.ok("zpool list -Ho name,health"),
        "other\tONLINE\ntank\tONLINE\n"
    );
    std::fs::write(bench.path("cache"), b"not one").unwrap();
    let text = "invalid or corrupt cache file contents to import";
    bench.fails("zpool import -c {dir}/cache", 1, text);
    let text = "failed to open cache file: No such file or directory";
    bench.fails("zpool import -c {dir}/nocache", 1, text);
}

/// What `zpool import -c` of that file lists.
fn cached(bench: &Bench, file: &str) -> String {
    let (_, out, err) = bench.run(&format!("zpool import -c {{dir}}/{file}"));
    out + &err
}

#[test]
fn a_pool_is_in_the_cachefile_that_its_property_names_and_in_no_other() {
    let bench = Bench::new(&["a", "b", "c"]);
    let file = |name: &str| bench.path(name).exists();
    bench.ok("zpool create -o cachefile={dir}/one tank mirror {a} {b}");
    bench.ok("zpool create -o cachefile={dir}/one other {c}");
    assert_eq!(
        bench.ok("zpool get -Hpo value,source cachefile tank"),
        bench.filled("{dir}/one\tlocal\n")
    );
    bench.ok("zpool set cachefile={dir}/two other");
    assert!(file("one") && file("two"));
    // Its config follows its devices, and the real tool reads it.
    bench.ok("zpool detach tank {b}");
    let zdb = |name: &str, pool: &str| {
        let zdb = std::process::Command::new("zdb")
            .args(["-C", "-U"])
            .args([bench.path(name), pool.into()])
            .output()
            .unwrap();
        (
            zdb.status.success(),
            String::from_utf8_lossy(&zdb.stdout).into_owned(),
        )
    };
    let (is_there, tree) = zdb("one", "tank");
    assert!(
        is_there && tree.contains(&bench.filled("path: '{a}'")),
        "{tree}"
    );
    assert!(
        !tree.contains("mirror") && !tree.contains("ashift:cachefile"),
        "{tree}"
    );
    assert!(!zdb("one", "other").0 && zdb("two", "other").0);
    // From one import to the next it is not remembered.
    std::fs::copy(bench.path("one"), bench.path("kept")).unwrap();
    bench.ok("zpool export tank");
    assert!(!file("one"), "it was the last one in there");
    assert!(cached(&bench, "one").contains("failed to open cache file"));
    bench.ok("zpool import -c {dir}/kept tank");
    assert_eq!(bench.ok("zpool get -Hpo value cachefile tank"), "-\n");
    bench.ok("zpool set cachefile=none other");
    assert!(!file("two"));
    bench.ok("zpool set cachefile={dir}/two other");
    bench.ok("zpool destroy other");
    assert!(!file("two"));
    // What is not a cachefile is not overwritten, and the pool is imported all the same.
    std::fs::write(bench.path("text"), "of a user").unwrap();
    bench.ok("zpool set cachefile={dir}/text tank");
    assert_eq!(std::fs::read(bench.path("text")).unwrap(), b"of a user");
    bench.ok("zpool export tank");
    bench.ok("zpool import -c {dir}/kept -o readonly=on -o cachefile={dir}/one tank");
    assert!(!file("one"), "a pool that cannot be written to is in none");
}
