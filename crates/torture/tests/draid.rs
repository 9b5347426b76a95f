//! dRAIDs that OpenZFS made: read and written here, whole and without any set of devices that may be lost, and
//! taken back by the real zdb.

use std::fmt::Write as _;
use std::sync::Arc;

use geom::Provider;
use oracle::{Zdb, have_zdb};
use phys::feature::DRAID;
use spa::Spa;
use torture::{golden, pool};
use zpl::Create;
use zpl::mount::mount;

/// The name of the image, its pool, its devices, and how many of these may be lost.
const POOLS: [(&str, &str, usize, u32); 2] = [
    ("openzfs-2.3.2-draid2-2d-5c", "d2", 5, 2),
    ("openzfs-2.3.2-draid1-2d-5c-1s", "d3", 5, 1),
];

fn file(spa: &Spa, dataset: &str, name: &str) -> Vec<u8> {
    let fs = mount(spa.dsl(), dataset, true).unwrap();
    let file = fs.resolve(name).unwrap();
    let mut bytes = vec![0; 1 << 20];
    let length = fs.read(file, 0, &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

/// What `seq` prints.
fn numbers(last: usize) -> Vec<u8> {
    let mut text = String::new();
    for n in 1..=last {
        writeln!(text, "{n}").unwrap();
    }
    text.into_bytes()
}

/// Compares the files with what they were made of.
fn check_files(spa: &Spa, pool: &str) {
    let (fs, snapshot) = (format!("{pool}/fs"), format!("{pool}/fs@one"));
    for n in 1..=19 {
        let dataset = if n < 10 { &fs } else { &snapshot };
        let bytes = file(spa, dataset, &format!("f{n}"));
        assert_eq!(bytes, numbers(60 * n), "f{n}");
    }
    assert_eq!(file(spa, &fs, "noise"), file(spa, &snapshot, "noise"));
    assert_eq!(file(spa, &fs, "noise").len(), 100_000);
    assert_eq!(file(spa, &fs, "small").len(), 30_000);
}

fn write_file(spa: &Spa, pool: &str, name: &str, bytes: &[u8]) {
    let fs = mount(spa.dsl(), &format!("{pool}/fs"), false).unwrap();
    let create = Create {
        mode: 0o644,
        uid: 0,
        gid: 0,
    };
    let made = fs.create_file(fs.root(), name.as_bytes(), &create);
    fs.write(made.unwrap().id, 0, bytes).unwrap();
    drop(fs);
    spa.sync().unwrap();
}

/// All sets of at most `most` of `count` devices.
fn sets(count: usize, most: u32) -> impl Iterator<Item = Vec<usize>> {
    let all = (0u32..1 << count).filter(move |bits| bits.count_ones() <= most);
    all.map(move |bits| (0..count).filter(|n| bits >> n & 1 == 1).collect())
}

#[test]
fn what_openzfs_wrote_is_read_without_any_set_of_devices_that_may_be_lost() {
    for (name, pool, count, parity) in POOLS {
        let devices = golden::disks(name, count);
        for lost in sets(count, parity) {
            let is_left = |(n, device): (usize, &Arc<dyn Provider>)| {
                (!lost.contains(&n)).then(|| device.clone())
            };
            let left: Vec<_> = devices.iter().enumerate().filter_map(is_left).collect();
            let spa = pool::open(&left, true).unwrap_or_else(|e| panic!("{name}, {lost:?}: {e}"));
            assert_eq!(spa.parts().features().count(DRAID), Some(1));
            check_files(&spa, pool);
        }
    }
}

#[test]
fn a_draid_of_openzfs_is_written_here_and_taken_back() {
    for (name, pool, count, _) in POOLS {
        let devices = golden::disks(name, count);
        let spa = pool::open(&devices, false).unwrap();
        assert!(!spa.is_readonly(), "{name}: {:?}", spa.obstacles());
        pool::assert_clean(&spa);
        let bytes = numbers(100_000);
        write_file(&spa, pool, "ours", &bytes);
        check_files(&spa, pool);
        pool::assert_clean(&spa);
        spa.export().unwrap();
        drop(spa);
        let spa = pool::open(&devices, false).unwrap();
        assert_eq!(file(&spa, &format!("{pool}/fs"), "ours"), bytes);
        spa.export().unwrap();
        drop(spa);
        if have_zdb() {
            let folder = tempfile::tempdir().unwrap();
            for (n, device) in devices.iter().enumerate() {
                let mut image = vec![0; device.mediasize() as usize];
                device.read(0, &mut image).unwrap();
                std::fs::write(folder.path().join(format!("disk{n}")), image).unwrap();
            }
            Zdb::verify(folder.path(), pool).assert_clean();
        }
    }
}
