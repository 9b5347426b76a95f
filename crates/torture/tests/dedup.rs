//! A pool with dedup tables, made by OpenZFS: a block stays until the last file that shares it is gone,
//! whatever happens in between.

use std::sync::Arc;

use ddt::Ddts;
use faulty::PowerCut;
use geom::Provider;
use spa::Spa;
use torture::golden::{self, golden};
use torture::pool;
use zpl::mount::mount;

const NAME: &str = "openzfs-2.3.2-dedup";
const RECORD_BYTES: usize = 4096;
/// Records of `one`, and of its copy `two`.
const SHARED: u64 = 8;
/// Records of `alone`.
const ALONE: u64 = 2;

/// The reference counts of all entries, sorted; checks the classes and histograms as well.
fn entries(spa: &Spa) -> Vec<u64> {
    let mut counts = Vec::new();
    let tables = Ddts::open(spa.parts().mos(), false, &|_| 0).unwrap();
    let each = &mut |_, class, entry: ddt::DdtEntry| {
        let count = entry.refcnt();
        let expected = if count > 1 {
            ddt::DdtClass::Duplicate
        } else {
            ddt::DdtClass::Unique
        };
        assert_eq!(class, Some(expected), "{entry:?}");
        counts.push(count);
        Ok(())
    };
    tables.walk(each).unwrap();
    let total = tables.total();
    assert_eq!(total.stored[0], counts.len() as u64);
    assert_eq!(total.referenced[0], counts.iter().sum::<u64>());
    counts.sort_unstable();
    counts
}

fn remove(spa: &Spa, name: &str) {
    let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
    fs.unlink(fs.root(), name.as_bytes()).unwrap();
    drop(fs);
    spa.sync().unwrap();
}

fn read(spa: &Spa, name: &str) -> Option<Vec<u8>> {
    let fs = mount(spa.parts().dsl(), "tank", true).unwrap();
    let mut bytes = vec![0; SHARED as usize * RECORD_BYTES];
    let file = fs.resolve(name).ok()?;
    let length = fs.read(file, 0, &mut bytes).unwrap();
    bytes.truncate(length);
    Some(bytes)
}

fn expected(pairs: u64, singles: u64) -> Vec<u64> {
    let ones = std::iter::repeat_n(1, singles as usize);
    ones.chain(std::iter::repeat_n(2, pairs as usize)).collect()
}

#[test]
fn a_shared_block_stays_until_nobody_has_it() {
    let devices = [golden(NAME)];
    let spa = pool::open(&devices, false).unwrap();
    assert!(!spa.is_readonly(), "{:?}", spa.obstacles());
    assert_eq!(entries(&spa), expected(SHARED, ALONE));
    let contents = read(&spa, "two").unwrap();
    let alloc = spa.space().alloc;
    remove(&spa, "one");
    assert_eq!(entries(&spa), expected(0, SHARED + ALONE));
    assert_eq!(read(&spa, "two").unwrap(), contents);
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    let spa = pool::open(&devices, false).unwrap();
    remove(&spa, "two");
    assert_eq!(entries(&spa), expected(0, ALONE));
    remove(&spa, "alone");
    assert!(entries(&spa).is_empty());
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    let spa = pool::open(&devices, false).unwrap();
    assert!(spa.space().alloc < alloc);
    assert!(
        Ddts::open(spa.parts().mos(), false, &|_| 0)
            .unwrap()
            .is_empty()
    );
}

/// A file that is overwritten drops its shared blocks, record by record.
#[test]
fn who_writes_has_a_copy_of_its_own() {
    let devices = [golden(NAME)];
    let spa = pool::open(&devices, false).unwrap();
    let before = read(&spa, "one").unwrap();
    let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
    let two = fs.resolve("two").unwrap();
    fs.write(two, 3 * RECORD_BYTES as u64, &[7; RECORD_BYTES])
        .unwrap();
    drop(fs);
    spa.sync().unwrap();
    assert_eq!(entries(&spa), expected(SHARED - 1, ALONE + 1));
    assert_eq!(read(&spa, "one").unwrap(), before);
    let mut after = before;
    after[3 * RECORD_BYTES..4 * RECORD_BYTES].fill(7);
    assert_eq!(read(&spa, "two").unwrap(), after);
    pool::assert_clean(&spa);
}

#[test]
fn sim_power_cuts_while_shared_blocks_are_freed() {
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
                (Some(_), Some(_)) => expected(SHARED, ALONE),
                (None, Some(_)) => expected(0, SHARED + ALONE),
                (None, None) => expected(0, ALONE),
                (Some(_), None) => panic!("cut after {n}: two went before one"),
            };
            assert_eq!(entries(&spa), expected, "cut after {n}");
            for bytes in [one, two].into_iter().flatten() {
                assert!(bytes == contents, "cut after {n}");
            }
        }
    });
}
