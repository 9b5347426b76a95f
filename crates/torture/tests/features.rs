//! A pool in which every feature is active that OpenZFS 2.3 enables and that no other image is about: bookmarks
//! that count, redaction bookmarks, a redacted data set, limits, long names, a large micro ZAP. What depends on them is
//! kept up here.

use phys::feature::{self, Support};
use spa::Spa;
use torture::golden;
use torture::pool;
use zpl::Create;
use zpl::mount::mount;

const NAME: &str = "openzfs-2.3.2-features";

/// What `zfs get -p written#BOOKMARK DATASET` printed in OpenZFS.
const WRITTEN: [(&str, &str, i64); 8] = [
    ("one", "tank/a", 36864),
    ("one", "tank/a@two", 14336),
    ("one", "tank/a@three", 28672),
    ("copy", "tank/a", 36864),
    ("copy", "tank/a@three", 28672),
    ("two", "tank/a", 34816),
    ("two", "tank/a@three", 26624),
    ("redacted", "tank/a", 22528),
];

/// A name of 300 bytes.
fn long_name() -> String {
    (1..=30).map(|i| format!("abcdefghi{}", i % 10)).collect()
}

fn written(spa: &Spa, bookmark: &str, dataset: &str) -> i64 {
    let dsl = spa.parts().dsl();
    let ds = dsl.dataset(dataset).unwrap();
    let bookmark = format!("tank/a#{bookmark}");
    dsl.space_written_since_bookmark(&bookmark, &ds)
        .unwrap()
        .used
}

fn count(spa: &Spa, guid: &str) -> u64 {
    spa.parts().features().count(guid).unwrap()
}

/// Changes something that each feature is about. Returns what two bookmarks then say.
fn work(spa: &Spa) -> [i64; 2] {
    let dsl = spa.parts().dsl();
    let fs = mount(dsl, "tank/a", false).unwrap();
    let numbers = fs.resolve("numbers").unwrap();
    fs.write(numbers, 8192, &[7; 4096]).unwrap();
    drop(fs);
    spa.sync().unwrap();
    dsl.snapshot(&["tank/a@four"], Vec::new()).unwrap();
    dsl.create_bookmark("tank/a#four", "tank/a@four").unwrap();
    dsl.create_bookmark("tank/a#again", "tank/a#redacted")
        .unwrap();
    dsl.create_bookmark("tank/received#last", "tank/received@three")
        .unwrap();
    dsl.destroy_snapshots(&["tank/a@two"], false).unwrap();
    dsl.promote("tank/clone").unwrap();
    let bookmarks = dsl.bookmarks(&dsl.dataset("tank/clone").unwrap()).unwrap();
    let names: Vec<&str> = bookmarks.iter().map(|it| it.name.as_str()).collect();
    let moved = ["copy", "one", "two", "again", "redacted"];
    assert_eq!(names, moved, "all but the one since the branch point");
    dsl.promote("tank/a").unwrap();
    for name in ["tank/a#copy", "tank/received#again"] {
        dsl.destroy_bookmark(name).unwrap();
    }
    dsl.clone_dataset("tank/limits/z", "tank/received@three", Vec::new())
        .unwrap();
    dsl.rename("tank/limits/x", "tank/x").unwrap();
    dsl.rename("tank/long", "tank/limits/long").unwrap();

    let fs = mount(dsl, "tank/limits/long", false).unwrap();
    let name = format!("new{}", "0123456789".repeat(102));
    let made = fs.create_file(fs.root(), name.as_bytes(), &Create::default());
    fs.write(made.unwrap().id, 0, b"made here").unwrap();
    let (old, new) = (long_name(), &name.as_bytes()[1..]);
    let kind = zpl::RenameKind::Replace;
    fs.rename(fs.root(), old.as_bytes(), fs.root(), new, kind)
        .unwrap();
    drop(fs);

    let fs = mount(dsl, "tank/large", false).unwrap();
    let folder = fs.resolve("d").unwrap();
    for n in 0..300 {
        let name = format!("new{n}");
        fs.create_file(folder, name.as_bytes(), &Create::default())
            .unwrap();
    }
    drop(fs);
    spa.sync().unwrap();
    [
        written(spa, "one", "tank/a"),
        written(spa, "four", "tank/a"),
    ]
}

fn check_reads(spa: &Spa) {
    let dsl = spa.parts().dsl();
    for (bookmark, dataset, bytes) in WRITTEN {
        assert_eq!(
            written(spa, bookmark, dataset),
            bytes,
            "{bookmark} {dataset}"
        );
    }
    let limits = dsl.stats(&dsl.dataset("tank/limits").unwrap()).unwrap();
    let counts = limits.counts.unwrap();
    assert_eq!((counts.filesystems, counts.snapshots), (2, 1));
    let fs = mount(dsl, "tank/long", true).unwrap();
    let name = long_name();
    let mut text = [0; 16];
    let below = fs.resolve(format!("dir{name}/{name}")).unwrap();
    let length = fs.read(below, 0, &mut text).unwrap();
    assert_eq!(&text[..length], b"below\n");
    let fs = mount(dsl, "tank/large", true).unwrap();
    assert!(fs.resolve("d/file2299").is_ok());
    let fs = mount(dsl, "tank/received@three", true).unwrap();
    let numbers = fs.resolve("numbers").unwrap();
    fs.read(numbers, 0, &mut text).unwrap();
}

fn check_counts(spa: &Spa) {
    let dsl = spa.parts().dsl();
    let limits = dsl.stats(&dsl.dataset("tank/limits").unwrap()).unwrap();
    let counts = limits.counts.unwrap();
    assert_eq!((counts.filesystems, counts.snapshots), (2, 0));
    assert_eq!(count(spa, feature::REDACTION_BOOKMARKS), 2);
    assert_eq!(count(spa, feature::REDACTED_DATASETS), 3);
}

#[test]
fn what_openzfs_left_is_kept_up() {
    let devices = [golden::golden(NAME)];
    let spa = pool::open_writable(&devices);
    check_reads(&spa);
    pool::assert_clean(&spa);
    let says = work(&spa);
    check_counts(&spa);
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&devices, "tank");

    let spa = pool::open_writable(&devices);
    assert_eq!(
        [
            written(&spa, "one", "tank/a"),
            written(&spa, "four", "tank/a")
        ],
        says
    );
    let dsl = spa.parts().dsl();
    dsl.destroy_snapshots(&["tank/a@four"], false).unwrap();
    for name in ["tank/a#one", "tank/a#redacted"] {
        dsl.destroy_bookmark(name).unwrap();
    }
    dsl.destroy_head("tank/limits/z").unwrap();
    dsl.destroy_snapshots(&["tank/received@three"], false)
        .unwrap();
    dsl.destroy_head("tank/received").unwrap();
    dsl.destroy_head("tank/limits/long").unwrap();
    dsl.destroy_head("tank/large").unwrap();
    for _ in 0..4 {
        spa.sync().unwrap();
    }
    for gone in [
        feature::REDACTED_DATASETS,
        feature::REDACTION_BOOKMARKS,
        feature::LONGNAME,
        feature::LARGE_MICROZAP,
    ] {
        assert_eq!(count(&spa, gone), 0, "{gone}");
    }
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&devices, "tank");
}

const KERNEL: &str = r#"
set -e
cp /host/image /tmp/image; zpool import -d /tmp -R /mnt tank
for b in one four; do zfs get -Hpo value written#$b tank/a; done >/host/written
zfs get -Hpo value filesystem_count,snapshot_count tank/limits >/host/counts
cd /mnt/tank/limits/long; test "$(cat new*)" = "made here"
test $(ls /mnt/tank/large/d | wc -l) = 2600
cd /; for i in $(seq 400); do : >/mnt/tank/large/d/kernel$i; done
dd if=/dev/zero of=/mnt/tank/a/numbers bs=4096 count=4 conv=notrunc 2>/dev/null
zfs destroy tank/a@four; zfs destroy tank/a#one; zfs destroy tank/a#redacted; zfs destroy -r tank/limits/z
zpool scrub -w tank; zpool status -v tank
zpool status tank | grep -q 'with 0 errors'
zpool export tank; cp /tmp/image /host/image
"#;

/// `FEATURES=all`: a minute.
#[test]
fn the_kernel_takes_it_back() {
    let guest = std::env::var_os("FEATURES").and_then(|_| oracle::vm::Guest::find());
    let Some(guest) = guest else {
        return;
    };
    let host = tempfile::tempdir().unwrap();
    let path = host.path().join("image");
    std::fs::write(&path, golden::bytes(NAME)).unwrap();
    let spa = pool::open_writable(&golden::file(&path));
    let says = work(&spa);
    spa.export().unwrap();
    drop(spa);
    guest.run(KERNEL, host.path(), &[]).assert_success();
    let said = |name: &str| std::fs::read_to_string(host.path().join(name)).unwrap();
    assert_eq!(said("written"), says.map(|n| format!("{n}\n")).concat());
    assert_eq!(said("counts"), "2\n0\n");
    let spa = pool::open_writable(&golden::file(&path));
    written(&spa, "four", "tank/a");
    pool::assert_clean(&spa);
}

/// What is kept up is enabled in a new pool.
#[test]
fn features_of_openzfs_2_3_are_kept_up() {
    let not: Vec<&str> = feature::FEATURES
        .iter()
        .filter(|f| f.is_in_2_3() && f.support != Support::Kept)
        .map(|f| f.name)
        .collect();
    assert_eq!(not, ["multi_vdev_crash_dump"]);
}
