//! Redaction lists that have outgrown the bonus of their object, and are in its spill block: a pool of OpenZFS with two
//! of them is written to, a third is made here.

use phys::feature;
use spa::Spa;
use torture::golden;
use torture::pool;

const NAME: &str = "openzfs-2.3.2-redaction-list";
/// Snapshots that each long list names.
const SNAPSHOTS: u64 = 37;

/// How many lists there are, and how many of them are in spill blocks.
fn counts(spa: &Spa) -> (u64, u64) {
    let count = |guid| spa.parts().features().count(guid).unwrap();
    let lists = count(feature::REDACTION_BOOKMARKS);
    (lists, count(feature::REDACTION_LIST_SPILL))
}

/// The words of the spill block of a bookmark's list.
fn words(spa: &Spa, head: &str, bookmark: &str) -> Vec<u64> {
    let dsl = spa.parts().dsl();
    let bookmarks = dsl.bookmarks(&dsl.dataset(head).unwrap()).unwrap();
    let found = bookmarks.iter().find(|it| it.name == bookmark).unwrap();
    let list = spa.parts().mos().hold(found.redaction_object()).unwrap();
    let bytes = list.spill().unwrap().expect("the list is long");
    let words = bytes.chunks_exact(8);
    words
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect()
}

/// Makes one more list, from a snapshot whose redaction is in a list of OpenZFS.
fn make(spa: &Spa) {
    let dsl = spa.parts().dsl();
    dsl.create_bookmark("tank/received#ours", "tank/received@one")
        .unwrap();
    spa.sync().unwrap();
}

#[test]
fn lists_in_spill_blocks_are_kept_up() {
    let devices = [golden::golden(NAME)];
    let spa = pool::open_writable(&devices);
    assert_eq!(counts(&spa), (3, 2));
    pool::assert_clean(&spa);
    let theirs = words(&spa, "tank/received", "again");
    assert_eq!(theirs[..4], [u64::MAX, u64::MAX, 0, SNAPSHOTS]);
    let many = words(&spa, "tank/a", "many");
    assert_eq!((many[3], many.len()), (SNAPSHOTS, theirs.len()));
    make(&spa);
    assert_eq!(counts(&spa), (4, 3));
    assert_eq!(words(&spa, "tank/received", "ours"), theirs);
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&devices, "tank");

    let spa = pool::open_writable(&devices);
    assert_eq!(words(&spa, "tank/received", "ours"), theirs);
    let dsl = spa.parts().dsl();
    dsl.destroy_bookmark("tank/a#many").unwrap();
    assert_eq!(counts(&spa), (3, 2));
    dsl.destroy_bookmark("tank/a#few").unwrap();
    assert_eq!(counts(&spa), (2, 2));
    dsl.destroy_bookmark("tank/received#ours").unwrap();
    assert_eq!(counts(&spa), (1, 1));
    dsl.destroy_snapshots(&["tank/received@one"], false)
        .unwrap();
    dsl.destroy_head("tank/received").unwrap();
    assert_eq!(counts(&spa), (0, 0));
    for _ in 0..4 {
        spa.sync().unwrap();
    }
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&devices, "tank");
}

/// A scrub of OpenZFS takes half of a spill pointer for a block in lists of its own (also in the image as it was made),
/// so those go first; with ours it finds no error.
const KERNEL: &str = r#"
set -e
cp /host/image /tmp/image
zdb -e -p /tmp -ddddd tank/received >/host/lists
zpool import -d /tmp -R /mnt tank
zfs destroy tank/a#many; zfs destroy tank/received#again
zpool scrub -w tank; zpool status -v tank
zpool status tank | grep -q 'with 0 errors'
zpool get -Ho value feature@redaction_list_spill tank >/host/before
zfs destroy tank/received#ours
zpool get -Ho value feature@redaction_list_spill,feature@redaction_bookmarks tank >/host/after
zpool export tank; cp /tmp/image /host/image
"#;

/// `FEATURES=all`: a minute.
#[test]
fn the_kernel_takes_them_back() {
    let guest = std::env::var_os("FEATURES").and_then(|_| oracle::vm::Guest::find());
    let Some(guest) = guest else {
        return;
    };
    let host = tempfile::tempdir().unwrap();
    let path = host.path().join("image");
    std::fs::write(&path, golden::bytes(NAME)).unwrap();
    let spa = pool::open_writable(&golden::file(&path));
    make(&spa);
    spa.export().unwrap();
    drop(spa);
    guest.run(KERNEL, host.path(), &[]).assert_success();
    let said = |name: &str| std::fs::read_to_string(host.path().join(name)).unwrap();
    let lists = said("lists");
    let snapshots: Vec<_> = lists
        .lines()
        .filter(|line| line.contains("Snapshots: ["))
        .collect();
    assert!(
        snapshots.len() == 2 && snapshots[0] == snapshots[1],
        "{lists}"
    );
    assert_eq!(said("before"), "active\n");
    assert_eq!(said("after"), "enabled\nactive\n");
    let spa = pool::open_writable(&golden::file(&path));
    assert_eq!(counts(&spa), (1, 0));
    pool::assert_clean(&spa);
}
