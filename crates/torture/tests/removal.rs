//! Top-level vdevs that are removed, by OpenZFS and here: what was on them is read, freed, scrubbed, copied; nothing is
//! lost, whenever the power is cut, and the real `zdb` finds no fault.
//!
//! `CUTS=all` tries every single write; the default takes a sample.

use std::sync::Arc;

use geom::Provider;
use phys::scan::{DSS_CANCELED, DSS_FINISHED, DSS_SCANNING};
use spa::Spa;
use torture::golden::golden;
use torture::pool;
use vdev::VdevKind;
use zpl::Create;
use zpl::mount::mount;

/// What file `f<n>` of the images of OpenZFS has: lines with numbers, of which ten records may be zeros.
fn content(n: u64, is_holed: bool) -> Vec<u8> {
    let lines = n * 100_000..=n * 100_000 + 30_000;
    let mut bytes: Vec<u8> = lines
        .flat_map(|line| format!("{line}\n").into_bytes())
        .collect();
    if is_holed {
        bytes[3 * 8192..13 * 8192].fill(0);
    }
    bytes
}

fn assert_files(spa: &Spa, files: &[u64], holed: &[u64]) {
    let fs = mount(spa.dsl(), "tank", true).unwrap();
    for n in files {
        let expected = content(*n, holed.contains(n));
        let file = fs.resolve(format!("f{n}")).unwrap();
        let mut bytes = vec![0; expected.len() + 1];
        assert_eq!(
            fs.read(file, 0, &mut bytes).unwrap(),
            expected.len(),
            "f{n}"
        );
        assert!(bytes[..expected.len()] == expected, "f{n}");
    }
}

fn kinds(spa: &Spa) -> Vec<VdevKind> {
    let tops = spa.parts().tree().tops();
    tops.iter().map(|top| top.kind()).collect()
}

fn scrub(spa: &Spa) {
    spa.scrub().unwrap();
    spa.wait_scan(&mut |_| true).unwrap();
    let scan = spa.scan().unwrap();
    assert_eq!((scan.state.get(), scan.errors.get()), (DSS_FINISHED, 0));
}

/// Overwrites and removes files, and writes new ones.
fn work(spa: &Spa, files: &[u64]) {
    let fs = mount(spa.dsl(), "tank", false).unwrap();
    for (turn, n) in files.iter().enumerate() {
        match turn % 3 {
            0 => fs.unlink(fs.root(), format!("f{n}").as_bytes()).unwrap(),
            _ => {
                let file = fs.resolve(format!("f{n}")).unwrap();
                fs.write(file, 8192 * 2, &content(*n, false)[8192 * 2..8192 * 5])
                    .unwrap();
            }
        }
        let name = format!("new{n}");
        let file = fs.create_file(fs.root(), name.as_bytes(), &Create::default());
        fs.write(file.unwrap().id, 0, &vec![1; 50_000]).unwrap();
        spa.sync().unwrap();
    }
}

fn reopen(spa: Spa, devices: &[Arc<dyn Provider>]) -> Spa {
    spa.export().unwrap();
    drop(spa);
    pool::open(devices, false).unwrap()
}

#[test]
fn a_pool_from_which_openzfs_removed_a_vdev_is_read_and_written() {
    let devices = [golden("openzfs-2.3.2-removed")];
    let spa = pool::open(&devices, true).unwrap();
    assert_eq!(kinds(&spa), [VdevKind::Indirect, VdevKind::File]);
    let (files, holed) = ([1, 4, 5, 8, 9, 10, 11, 12, 13, 14], [4, 8, 9, 12]);
    assert_files(&spa, &files, &holed);
    pool::assert_clean(&spa);
    drop(spa);
    let spa = pool::open(&devices, false).unwrap();
    assert!(!spa.is_readonly(), "{:?}", spa.obstacles());
    scrub(&spa);
    work(&spa, &[1, 5, 10, 13]);
    pool::assert_clean(&spa);
    let spa = reopen(spa, &devices);
    assert_files(&spa, &[4, 5, 8, 9, 10, 11, 12, 14], &holed);
    scrub(&spa);
    pool::assert_clean(&spa);
}

#[test]
fn a_pool_from_which_openzfs_removed_a_vdev_twice_is_read_and_written() {
    let devices = [golden("openzfs-2.3.2-removed-twice")];
    let spa = pool::open(&devices, false).unwrap();
    let gone = VdevKind::Indirect;
    assert_eq!(kinds(&spa), [gone, gone, VdevKind::File]);
    let files = [4, 5, 8, 9, 10, 11, 12, 13, 14, 41, 42, 43, 44, 45, 46];
    let holed = [4, 8, 9, 12];
    assert_files(&spa, &files, &holed);
    pool::assert_clean(&spa);
    scrub(&spa);
    work(&spa, &[5, 10, 13, 14, 41, 42]);
    let spa = reopen(spa, &devices);
    assert_files(&spa, &[4, 8, 9, 10, 11, 12, 13, 42, 43, 44, 45, 46], &holed);
    scrub(&spa);
    pool::assert_clean(&spa);
}

fn removing() -> Vec<Arc<dyn Provider>> {
    let names = ["openzfs-2.3.2-removing-a", "openzfs-2.3.2-removing-b"];
    names.map(golden).to_vec()
}

const REMOVING_FILES: [u64; 16] = [1, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 19, 20];

#[test]
fn a_removal_that_openzfs_began_ends_here() {
    let devices = removing();
    let spa = pool::open(&devices, true).unwrap();
    let state = spa.removal().unwrap().phys.state.get();
    assert_eq!(state, DSS_SCANNING);
    assert_files(&spa, &REMOVING_FILES, &[10]);
    pool::assert_clean(&spa);
    drop(spa);
    let spa = pool::open(&devices, false).unwrap();
    work(&spa, &[1, 3]);
    spa.wait_removal(&mut |_| true).unwrap();
    let progress = spa.removal().unwrap();
    assert_eq!(progress.phys.state.get(), DSS_FINISHED);
    assert_eq!(progress.phys.copied, progress.phys.to_copy);
    assert_eq!(kinds(&spa), [VdevKind::Indirect, VdevKind::File]);
    work(&spa, &[4, 6]);
    scrub(&spa);
    pool::assert_clean(&spa);
    let spa = reopen(spa, &devices);
    assert_files(
        &spa,
        &[3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 19, 20],
        &[10],
    );
    pool::assert_clean(&spa);
}

#[test]
fn a_removal_that_openzfs_began_is_cancelled_here() {
    let devices = removing();
    let spa = pool::open(&devices, false).unwrap();
    spa.cancel_remove().unwrap();
    assert_eq!(spa.removal().unwrap().phys.state.get(), DSS_CANCELED);
    assert_eq!(kinds(&spa), [VdevKind::File; 2]);
    pool::assert_clean(&spa);
    work(&spa, &[1, 3, 4]);
    let spa = reopen(spa, &devices);
    assert_files(
        &spa,
        &[3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 19, 20],
        &[10],
    );
    scrub(&spa);
    pool::assert_clean(&spa);
}
