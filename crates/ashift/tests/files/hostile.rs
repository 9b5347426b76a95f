//! Maliciously damaged pools with correct checksums: names that are paths, directories in themselves.
//! Nothing is written outside the destination, and every command ends.

use std::os::unix::fs::PermissionsExt;

use base::ObjectId;
use phys::znode::dirent_new;
use zpl::mount::{Mount, mount};
use zpl::{Create, SetAttr};

use super::{Bench, shell};

const FILE: Create = Create {
    mode: 0o644,
    uid: 0,
    gid: 0,
};
const DIR: Create = Create {
    mode: 0o755,
    uid: 0,
    gid: 0,
};
/// The file types of entries, as mode bits.
const IS_DIR: u64 = 0o040_000;
const IS_FILE: u64 = 0o100_000;

/// Writes an entry that no correct implementation writes.
fn enter(spa: &spa::Spa, fs: &Mount, dir: ObjectId, name: &str, id: ObjectId, type_: u64) {
    let tx = spa.parts().groups().hold_open(1 << 20).unwrap();
    let directory = zap::Zap::open(fs.objset(), dir).unwrap();
    let entry = dirent_new(id.0, type_);
    directory.add_u64(&tx, name.as_bytes(), entry).unwrap();
}

fn write(fs: &Mount, dir: ObjectId, name: &str, bytes: &[u8]) -> ObjectId {
    let id = fs.create_file(dir, name.as_bytes(), &FILE).unwrap().id;
    fs.write(id, 0, bytes).unwrap();
    id
}

#[test]
fn names_that_are_paths_lead_nowhere() {
    let bench = Bench::new();
    bench.with_spa(|spa| {
        let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
        let root = fs.root();
        let evil = fs.mkdir(root, b"evil", &DIR).unwrap().id;
        let file = write(&fs, evil, "pwned", b"pwned");
        write(&fs, root, "good", b"good");
        enter(spa, &fs, root, "..", evil, IS_DIR);
        enter(spa, &fs, root, ".", evil, IS_DIR);
        enter(spa, &fs, root, "../absolute", file, IS_FILE);
        enter(spa, &fs, evil, "../../beside", file, IS_FILE);
    });
    std::fs::create_dir_all(bench.path("deep/below/out")).unwrap();
    let (_, err) = bench.fails(&["cp", "-a", "tank:/", &bench.path("deep/below/out")]);
    assert!(err.contains("3 names that cannot be"), "{err}");
    assert!(err.contains("tank:/evil: directory"), "{err}");
    let there = shell("find deep -mindepth 1 | sort", bench.folder.path());
    assert_eq!(
        there,
        "deep/below\ndeep/below/out\ndeep/below/out/evil\n\
         deep/below/out/evil/pwned\ndeep/below/out/good\n"
    );
    let (out, _) = bench.fails(&["ls", "tank:/"]);
    assert_eq!(out, "evil\ngood\n");
    let (out, _) = bench.fails(&["find", "tank:/"]);
    assert_eq!(out, "tank:/\ntank:/evil\ntank:/evil/pwned\ntank:/good\n");
    let (out, _) = bench.fails(&["sha256sum", "-r", "tank:/"]);
    assert_eq!(out.lines().count(), 2);
    let (out, _) = bench.fails(&["du", "tank:/"]);
    assert!(out.ends_with("\ttank:/\n"), "{out}");
    let (_, err) = bench.fails(&["rm", "-r", "tank:/evil"]);
    assert!(
        err.contains("a name that cannot be") || err.contains("1 name"),
        "{err}"
    );
    // Its valid entries are gone, the rest cannot be removed by name.
    assert_eq!(bench.fails(&["ls", "tank:/evil"]).0, "");
}

#[test]
fn directories_in_themselves_are_entered_once() {
    let bench = Bench::new();
    bench.with_spa(|spa| {
        let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
        let a = fs.mkdir(fs.root(), b"a", &DIR).unwrap().id;
        let b = fs.mkdir(a, b"b", &DIR).unwrap().id;
        write(&fs, b, "file", b"contents");
        enter(spa, &fs, b, "again", a, IS_DIR);
        enter(spa, &fs, a, "second", b, IS_DIR);
        // 2^30 paths, if every name was followed.
        let mut at = fs.mkdir(fs.root(), b"bomb", &DIR).unwrap().id;
        for _ in 0..30 {
            let next = fs.mkdir(at, b"x", &DIR).unwrap().id;
            enter(spa, &fs, at, "y", next, IS_DIR);
            at = next;
        }
    });
    let complaint = "two names or is in itself";
    let (_, err) = bench.fails(&["cp", "-a", "tank:/", &bench.path("out")]);
    assert!(err.contains("tank:/a/b/again: directory") && err.contains(complaint));
    let count = shell("find out | wc -l", bench.folder.path());
    assert_eq!(count.trim(), "35");
    assert_eq!(shell("cat out/a/b/file", bench.folder.path()), "contents");
    for args in [
        &["find", "tank:/"][..],
        &["du", "tank:/"],
        &["ls", "-R", "tank:/"],
        &["sha256sum", "-r", "tank:/"],
        &["chmod", "-R", "go-w", "tank:/"],
    ] {
        let (_, err) = bench.fails(args);
        assert!(err.contains(complaint), "{args:?}: {err}");
    }
    let (_, err) = bench.fails(&["rm", "-r", "tank:/a"]);
    assert!(err.contains(complaint), "{err}");
}

#[test]
fn links_are_not_written_through() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("outside")).unwrap();
    std::fs::create_dir(bench.path("out")).unwrap();
    std::fs::write(bench.path("victim"), "untouched").unwrap();
    let outside = bench.path("outside");
    let victim = bench.path("victim");
    bench.ok(&["mkdir", "-p", "tank:/1", "tank:/2/a"]);
    bench.ok(&["ln", "-s", &outside, "tank:/1/a"]);
    bench.ok(&["ln", "-s", &victim, "tank:/1/f"]);
    bench.run_with(&["cp", "-", "tank:/2/a/file"], b"pwned");
    bench.run_with(&["cp", "-", "tank:/2/f"], b"pwned");
    let out = bench.path("out");
    bench.ok(&["cp", "-a", "tank:/1/a", "tank:/1/f", &out]);
    // Now `a` and `f` are links that lead outside, where the pool has a directory and a file of those names.
    let (_, err) = bench.fails(&["cp", "-a", "tank:/2/a", "tank:/2/f", &out]);
    assert!(
        err.contains("a file is where the directory belongs"),
        "{err}"
    );
    let written = shell("ls outside; cat victim out/f", bench.folder.path());
    assert_eq!(written, "untouchedpwned");
    // A link on the host that the user names is written through.
    std::os::unix::fs::symlink(&victim, bench.path("mine")).unwrap();
    bench.ok(&["cp", "tank:/2/f", &bench.path("mine")]);
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "pwned");
}

#[test]
fn special_bits_and_devices_come_with_a_only() {
    let bench = Bench::new();
    bench.with_spa(|spa| {
        let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
        let suid = write(&fs, fs.root(), "suid", b"#!");
        let set = |mode, uid| SetAttr {
            mode: Some(mode),
            uid: Some(uid),
            ..SetAttr::default()
        };
        fs.setattr(suid, &set(0o6755, 0)).unwrap();
        // 2^32 truncated to 32 bits would be root.
        let huge = write(&fs, fs.root(), "huge", b"#!");
        fs.setattr(huge, &set(0o4755, 1 << 32)).unwrap();
        let null = zpl::device_number(1, 3);
        let kind = zpl::FileType::CharDevice;
        fs.mknod(fs.root(), b"null", kind, null, &FILE).unwrap();
    });
    let mode = |path: &str| {
        let facts = std::fs::metadata(bench.path(path)).unwrap();
        facts.permissions().mode() & 0o7777
    };
    let (_, err) = bench.fails(&["cp", "-r", "tank:/", &bench.path("plain")]);
    assert!(err.contains("tank:/null: skipping a device"), "{err}");
    assert_eq!(mode("plain/suid") & 0o7000, 0);
    assert!(!std::fs::exists(bench.path("plain/null")).unwrap());
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (_, err) = bench.fails(&["cp", "-a", "tank:/", &bench.path("all")]);
    assert_eq!(mode("all/suid"), 0o6755);
    assert!(err.contains("tank:/huge: owner not kept"), "{err}");
    assert_eq!(mode("all/huge"), 0o755);
    assert_eq!(
        shell("stat -c '%F %t %T' all/null", bench.folder.path()),
        "character special file 1 3\n"
    );
}

/// Deeper than any path can reach.
#[test]
fn deep_trees_end_in_words() {
    let bench = Bench::new();
    bench.with_spa(|spa| {
        let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
        let mut at = fs.root();
        for _ in 0..1100 {
            at = fs.mkdir(at, b"d", &DIR).unwrap().id;
        }
    });
    assert_eq!(bench.ok(&["find", "tank:/"]).lines().count(), 1101);
    let (_, err) = bench.fails(&["cp", "-r", "tank:/", &bench.path("out")]);
    assert!(
        err.contains("more than 1000 directories in each other"),
        "{err}"
    );
    bench.ok(&["rm", "-r", "tank:/d"]);
}
