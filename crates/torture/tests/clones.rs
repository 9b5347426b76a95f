//! A pool with cloned files, made by OpenZFS: a block stays until the last file that refers to it is gone,
//! whatever happens in between.

use std::sync::Arc;

use faulty::PowerCut;
use geom::Provider;
use phys::feature::BLOCK_CLONING;
use spa::Spa;
use torture::golden::{self, golden};
use torture::pool;
use zpl::mount::mount;

const NAME: &str = "openzfs-2.3.2-clones";
const RECORD_BYTES: u64 = 4096;
/// Records of `one`, and of its clone `two`.
const SHARED: u64 = 8;

fn remove(spa: &Spa, name: &str) {
    let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
    fs.unlink(fs.root(), name.as_bytes()).unwrap();
    drop(fs);
    spa.sync().unwrap();
}

fn read(spa: &Spa, name: &str) -> Option<Vec<u8>> {
    let fs = mount(spa.parts().dsl(), "tank", true).unwrap();
    let mut bytes = vec![0; (SHARED * RECORD_BYTES) as usize];
    let file = fs.resolve(name).ok()?;
    let length = fs.read(file, 0, &mut bytes).unwrap();
    bytes.truncate(length);
    Some(bytes)
}

fn records(count: u64) -> (u64, u64) {
    (count * RECORD_BYTES, count * RECORD_BYTES)
}

fn is_active(spa: &Spa) -> bool {
    spa.parts().features().count(BLOCK_CLONING) > Some(0)
}

#[test]
fn a_cloned_block_stays_until_nobody_has_it() {
    let devices = [golden(NAME)];
    let spa = pool::open(&devices, false).unwrap();
    assert!(!spa.is_readonly(), "{:?}", spa.obstacles());
    assert_eq!(spa.cloned(), records(SHARED));
    assert!(is_active(&spa));
    pool::assert_clean(&spa);
    let contents = read(&spa, "two").unwrap();
    assert_eq!(read(&spa, "one").unwrap(), contents);
    // A block that was not cloned is freed as usual.
    let before = spa.space().alloc;
    remove(&spa, "alone");
    assert_eq!(spa.cloned(), records(SHARED));
    remove(&spa, "one");
    assert_eq!(spa.cloned(), (0, 0));
    assert!(!is_active(&spa), "the table is gone");
    assert_eq!(read(&spa, "two").unwrap(), contents);
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    let spa = pool::open(&devices, false).unwrap();
    assert_eq!(read(&spa, "two").unwrap(), contents);
    remove(&spa, "two");
    for _ in 0..4 {
        spa.force_sync().unwrap();
    }
    pool::assert_clean(&spa);
    assert!(spa.space().alloc < before - SHARED * RECORD_BYTES);
}

#[test]
fn who_writes_has_a_copy_of_its_own() {
    let devices = [golden(NAME)];
    let spa = pool::open(&devices, false).unwrap();
    let before = read(&spa, "one").unwrap();
    let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
    let two = fs.resolve("two").unwrap();
    fs.write(two, 3 * RECORD_BYTES, &[7; RECORD_BYTES as usize])
        .unwrap();
    drop(fs);
    spa.sync().unwrap();
    assert_eq!(spa.cloned(), records(SHARED - 1));
    assert_eq!(read(&spa, "one").unwrap(), before);
    let mut after = before;
    after[3 * RECORD_BYTES as usize..4 * RECORD_BYTES as usize].fill(7);
    assert_eq!(read(&spa, "two").unwrap(), after);
    pool::assert_clean(&spa);
    // A snapshot keeps the blocks it refers to.
    spa.parts().dsl().snapshot(&["tank@s"], Vec::new()).unwrap();
    remove(&spa, "one");
    remove(&spa, "two");
    assert_eq!(spa.cloned(), records(SHARED - 1));
    pool::assert_clean(&spa);
    spa.parts()
        .dsl()
        .destroy_snapshots(&["tank@s"], false)
        .unwrap();
    spa.sync().unwrap();
    spa.sync().unwrap();
    assert_eq!(spa.cloned(), (0, 0));
    pool::assert_clean(&spa);
}

#[test]
fn sim_power_cuts_while_cloned_blocks_are_freed() {
    rt::simulate(1, || {
        let bytes = golden::bytes(NAME);
        let disk = Arc::new(PowerCut::new("/disk", bytes.len() as u64));
        golden::fill(&*disk, &bytes);
        disk.flush().unwrap();
        disk.forget();
        let first = disk.supply().commands();
        let spa = pool::open(&[disk.clone() as Arc<dyn Provider>], false).unwrap();
        let contents = read(&spa, "two").unwrap();
        remove(&spa, "one");
        remove(&spa, "two");
        spa.close().unwrap();
        drop(spa);
        for n in first..=disk.supply().commands() {
            let image: Arc<dyn Provider> = Arc::new(disk.image_after(n, n));
            let spa = pool::open(&[image], false).unwrap_or_else(|e| panic!("cut after {n}: {e}"));
            let report = pool::verify(&spa).unwrap();
            assert!(report.is_clean(), "cut after {n}: {:#?}", report.findings);
            let (one, two) = (read(&spa, "one"), read(&spa, "two"));
            let expected = match (&one, &two) {
                (Some(_), Some(_)) => records(SHARED),
                (None, _) => (0, 0),
                (Some(_), None) => panic!("cut after {n}: two went before one"),
            };
            assert_eq!(spa.cloned(), expected, "cut after {n}");
            for bytes in [one, two].into_iter().flatten() {
                assert!(bytes == contents, "cut after {n}");
            }
        }
    });
}
