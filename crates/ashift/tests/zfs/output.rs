//! The output of `list` and `get`, compared with that of the real tools.

use crate::{Place, golden};

const GET: &str = include_str!("../../../admin/tests/golden/zfs-get.txt");
const LIST: &str = include_str!("../../../admin/tests/golden/zfs-list.txt");

fn real(text: &str, command: &str) -> String {
    let found = golden(text).into_iter().find(|(name, _)| name == command);
    found.unwrap_or_else(|| panic!("no {command}")).1.out
}

#[test]
fn get_all_shows_what_openzfs_shows() {
    let place = Place::with_pool("-O mountpoint=/mnt/tank -O compression=lz4 -O atime=off");
    place.zfs("create -o quota=100M -o recordsize=1M -o com.example:note=hello tank/home");
    place.zfs("snapshot tank/home@one");
    place.zfs("clone tank/home@one tank/clone");
    place.zfs("snapshot tank/home@two");
    place.zfs("set com.example:note=there tank");
    // Space, dates, random numbers; nothing is mounted here.
    let differs = [
        "used",
        "available",
        "referenced",
        "written",
        "creation",
        "createtxg",
        "guid",
    ];
    let more = [
        "logical",
        "objsetid",
        "snapshots_changed",
        "mounted",
        "origin",
        "compressratio",
    ];
    let differs = |name: &str| {
        differs.iter().chain(&more).any(|d| name.contains(d)) || name.ends_with("ratio")
    };
    for dataset in ["tank/home", "tank/home@two", "tank/clone"] {
        let lines = |text: &str| -> Vec<String> {
            let rows = text
                .lines()
                .map(|line| line.split("  ").filter(|w| !w.is_empty()));
            let rows = rows.map(|cells| cells.map(str::trim).collect::<Vec<_>>());
            rows.map(|row| match differs(row[1]) {
                true => format!("{} {} {}", row[0], row[1], row.last().unwrap()),
                false => row.join(" "),
            })
            .collect()
        };
        let command = format!("get all {dataset}");
        let ours = place.zfs(&command);
        let real = real(GET, &format!("zfs {command}"));
        assert_eq!(lines(&ours), lines(&real), "{command}");
        let column = |text: &str| text.lines().next().unwrap().find("PROPERTY");
        assert_eq!(column(&ours), column(&real));
    }
}

#[test]
fn list_has_openzfs_columns() {
    let place = Place::with_pool("-O mountpoint=/mnt/tank");
    place.zfs("create -o mountpoint=none tank/a");
    place.zfs("create -o mountpoint=legacy tank/b");
    let header = |text: &str| {
        text.lines()
            .next()
            .unwrap()
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        header(&place.zfs("list")),
        header(&real(LIST, "zfs list -S name"))
    );
    assert_eq!(
        header(&place.zfs("list -o space")),
        header(&real(LIST, "zfs list -o space"))
    );
    let all = header(&place.zfs("list -o all tank"));
    let wanted = header(&real(LIST, "zfs list -o all tank/home"));
    assert_eq!(
        all,
        wanted
            .into_iter()
            .filter(|name| !name.contains(':'))
            .collect::<Vec<_>>()
    );
    assert_eq!(
        place.zfs("list -H -o name,mountpoint,mounted,type"),
        "tank\t/mnt/tank\tno\tfilesystem\ntank/a\tnone\tno\tfilesystem\ntank/b\tlegacy\tno\tfilesystem\n"
    );
}

#[test]
fn list_selects_by_name_depth_and_type() {
    let place = Place::with_pool("");
    place.zfs("create -p tank/a/b/c");
    place.zfs("snapshot -r tank@s");
    let names = |args: &str| {
        place
            .zfs(&format!("list -H -o name {args}"))
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(names("tank"), "tank");
    assert_eq!(names("-r tank/a"), "tank/a tank/a/b tank/a/b/c");
    assert_eq!(names("-d 1 tank/a"), "tank/a tank/a/b");
    assert_eq!(names("-d 0 tank"), "tank");
    assert_eq!(names("-t snap tank/a"), "tank/a@s");
    assert_eq!(names("-t snap -d 1 tank/a"), "tank/a@s");
    assert_eq!(names("-t snapshot -d 2 tank/a"), "tank/a@s tank/a/b@s");
    assert_eq!(
        names("-t all -d 1 tank/a/b"),
        "tank/a/b tank/a/b@s tank/a/b/c"
    );
    assert_eq!(names("-S name -t fs"), "tank/a/b/c tank/a/b tank/a tank");
    assert_eq!(names("tank/a@s tank/a tank/a"), "tank/a tank/a@s");
    place.run("zpool set listsnapshots=on tank");
    assert_eq!(
        names("-r tank/a/b"),
        "tank/a/b tank/a/b@s tank/a/b/c tank/a/b/c@s"
    );
    let said = place.run("zfs list -H -o name tank/nosuch tank/a");
    assert_eq!((said.code, said.out.as_str()), (1, "tank/a\n"));
    assert_eq!(
        said.err,
        "cannot open 'tank/nosuch': dataset does not exist\n"
    );
    let said = place.run("zfs list -t bogus");
    assert_eq!(
        (said.code, said.err.starts_with("invalid type 'bogus'\n")),
        (2, true)
    );
}

#[test]
fn a_path_means_the_file_system_that_it_lies_in() {
    let place = Place::with_pool("-O mountpoint=/nowhere");
    place.zfs("create tank/a");
    place.zfs("create -o canmount=off tank/off");
    place.zfs("create -o mountpoint=/nowhere/else tank/b");
    for (path, name) in [
        ("/nowhere", "tank"),
        ("/nowhere/a", "tank/a"),
        ("/nowhere/a/deep/down", "tank/a"),
        ("/nowhere/ab", "tank"),
        ("/nowhere/off/x", "tank"),
        ("/nowhere/else", "tank/b"),
    ] {
        assert_eq!(
            place.zfs(&format!("list -H -o name {path}")),
            format!("{name}\n"),
            "{path}"
        );
    }
    assert_eq!(
        place.zfs("get -H -o name,value type /nowhere/a"),
        "tank/a\tfilesystem\n"
    );
    place.refused("list /etc", "'/etc': not a ZFS filesystem");
}

#[test]
fn an_altroot_goes_before_mountpoints_and_only_where_the_pool_is_here() {
    let place = Place::with_pool("-R /mnt/");
    place.zfs("create tank/a");
    place.zfs("create -o mountpoint=/srv tank/b");
    place.zfs("create tank/b/c");
    place.zfs("create -o mountpoint=none tank/d");
    let mountpoints = "/mnt/tank\n/mnt/tank/a\n/mnt/srv\n/mnt/srv/c\nnone\n";
    assert_eq!(place.zfs("list -H -o mountpoint"), mountpoints);
    assert_eq!(place.zfs("list -H -o name /mnt/srv/c/file"), "tank/b/c\n");
    place.refused(
        "list /srv/c/file",
        "cannot open '/srv/c/file': No such file or directory",
    );
    let pools = place.images();
    for command in [
        "export tank",
        &format!("import -d {} tank", pools.display()),
    ] {
        assert_eq!(place.run(&format!("zpool {command}")).code, 0);
    }
    assert_eq!(place.zfs("get -H -o value mountpoint tank/b/c"), "/srv/c\n");
}

#[test]
fn json_is_what_openzfs_gives() {
    let place = Place::with_pool("-O mountpoint=/mnt/tank");
    place.zfs("create -o quota=100M tank/home");
    let text = place.zfs("get -j quota,compression tank/home");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let home = &json["datasets"]["tank/home"];
    assert_eq!(json["output_version"]["command"], "zfs get");
    assert_eq!(
        (&home["type"], &home["pool"]),
        (&"FILESYSTEM".into(), &"tank".into())
    );
    assert_eq!(home["properties"]["quota"]["value"], "100M");
    assert_eq!(home["properties"]["quota"]["source"]["type"], "LOCAL");
    let text = place.zfs("list -j --json-int");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(json["datasets"]["tank"]["properties"]["used"]["value"].is_u64());
    assert_eq!(place.run("zfs list --json-int").code, 2);
}

#[test]
fn a_paused_scrub_is_shown_as_paused() {
    let place = Place::with_pool("");
    let scan = || {
        let status = place.run("zpool status tank").out;
        let (_, scan) = status.split_once("  scan: ").unwrap();
        scan.split_once("config:").unwrap().0.to_owned()
    };
    place.with_spa(|spa| spa.scrub().unwrap());
    let running = scan();
    assert!(running.starts_with("scrub in progress since "), "{running}");
    assert!(
        running.contains("no estimated completion time"),
        "{running}"
    );
    place.with_spa(|spa| spa.pause_scrub().unwrap());
    let paused = scan();
    assert!(paused.starts_with("scrub paused since "), "{paused}");
    assert!(paused.contains("\n\tscrub started on "), "{paused}");
    assert!(paused.ends_with("% done\n"), "{paused}");
}

/// Overwrites what a file has on the only disk of the pool.
fn damage(place: &Place, name: &str) {
    let starts: Vec<u64> = place.with_spa(|spa| {
        let fs = zpl::mount::mount(spa.parts().dsl(), "tank", true).unwrap();
        let dnode = fs.objset().hold(fs.resolve(name).unwrap()).unwrap();
        let start = |blkid| {
            let bp = dnode.block_pointer(0, base::BlkId(blkid)).unwrap();
            bp.dva[0].offset() + phys::label::LABEL_START_SIZE
        };
        (0..=dnode.maxblkid().0).map(start).collect()
    });
    let image = std::fs::OpenOptions::new()
        .write(true)
        .open(place.images().join("tank"))
        .unwrap();
    for at in starts {
        std::os::unix::fs::FileExt::write_all_at(&image, &[0x5a; 512], at).unwrap();
    }
}

#[test]
fn an_error_scrub_is_shown_and_is_paused_cancelled_and_finished() {
    let place = Place::with_pool("-O compression=off");
    place.write("tank", "f", &vec![0x77; 2 << 20]).unwrap();
    damage(&place, "f");
    assert_eq!(place.run("zpool scrub tank").code, 1);
    let shown = || {
        let status = place.run("zpool status tank").out;
        assert!(!status.contains("  scan: "), "{status}");
        let (_, scrub) = status.split_once("\n scrub: ").unwrap();
        scrub.split_once("config:").unwrap().0.to_owned()
    };
    place.with_spa(|spa| {
        spa.scrub_errors().unwrap();
        spa.pause_scrub().unwrap();
    });
    let paused = shown();
    assert!(paused.starts_with("error scrub paused since "), "{paused}");
    assert!(paused.contains("\n\terror scrub started on "), "{paused}");
    assert!(paused.contains("% done, issued I/O for "), "{paused}");
    assert!(paused.ends_with(" error blocks\n"), "{paused}");
    let refused = |args: &str, words: &str| {
        let said = place.run(args);
        assert_eq!((said.code, said.err), (1, format!("{words}\n")), "{args}");
    };
    let why = "error scrub is paused; use 'zpool scrub -e' to resume error scrub";
    refused("zpool scrub tank", &format!("cannot scrub tank: {why}"));
    refused(
        "zpool scrub -p tank",
        &format!("cannot pause scrubbing tank: {why}"),
    );
    assert_eq!(place.run("zpool scrub -s tank").code, 0);
    let cancelled = shown();
    assert!(
        cancelled.starts_with("error scrub canceled on "),
        "{cancelled}"
    );
    let said = place.run("zpool scrub -e tank");
    let words = "scrubbed 1 damaged object, repaired 0B, with 16 errors\n";
    assert_eq!((said.code, said.out.as_str()), (1, words));
    let done = shown();
    assert!(
        done.starts_with("scrubbed 16 error blocks in 0 days 00:00:0"),
        "{done}"
    );
    place.run("zpool scrub tank");
    let status = place.run("zpool status tank").out;
    assert!(status.contains("  scan: scrub repaired 0B"), "{status}");
    assert!(!status.contains(" scrub: "), "{status}");
}

#[test]
fn an_error_scrub_needs_a_log_by_heads() {
    let place = Place::with_pool("-o feature@head_errlog=disabled");
    let said = place.run("zpool scrub -e tank");
    let words = "cannot scrub tank: operation not supported on this type of pool\n";
    assert_eq!((said.code, said.err.as_str()), (1, words));
}
