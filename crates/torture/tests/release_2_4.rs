//! A pool of OpenZFS 2.4 in which `block_cloning_endian`, `physical_rewrite` and `dynamic_gang_header` are active: it
//! is read, and what uses them is kept up.

use std::sync::Arc;

use base::Txg;
use faulty::PowerCut;
use geom::Provider;
use phys::BlkPtrPhys;
use phys::feature::{BLOCK_CLONING, BLOCK_CLONING_ENDIAN, DYNAMIC_GANG_HEADER, PHYSICAL_REWRITE};
use spa::Spa;
use torture::golden::{self, golden};
use torture::{cuts, pool, seed};
use zpl::mount::mount;

const NAME: &str = "openzfs-2.4.0-features";
const FILE_BYTES: usize = 1 << 20;

fn count(spa: &Spa, guid: &str) -> u64 {
    spa.parts().features().count(guid).unwrap()
}

fn read(spa: &Spa, dataset: &str, name: &str) -> Vec<u8> {
    let fs = mount(spa.parts().dsl(), dataset, true).unwrap();
    let file = fs.resolve(name).unwrap();
    let mut bytes = vec![0; fs.getattr(file).unwrap().size as usize];
    fs.read(file, 0, &mut bytes).unwrap();
    bytes
}

/// The blocks of a file of `tank/fs`.
fn blocks(spa: &Spa, name: &str, count: u64) -> Vec<BlkPtrPhys> {
    let dsl = spa.parts().dsl();
    let file = mount(dsl, "tank/fs", true).unwrap().resolve(name).unwrap();
    let objset = dsl.dataset("tank/fs").unwrap().objset().unwrap();
    let dnode = objset.hold(file).unwrap();
    dnode.stored_blocks(0..count).unwrap().unwrap()
}

fn births(bps: &[BlkPtrPhys]) -> Vec<(u64, u64, u64)> {
    let births = |bp: &BlkPtrPhys| [bp.birth(), bp.physical_birth(), bp.allocation_birth()];
    let births = bps.iter().map(births);
    births.map(|[a, b, c]| (a.0, b.0, c.0)).collect()
}

/// `seq FIRST …`, its first bytes.
fn numbers(first: u32, bytes: usize) -> Vec<u8> {
    let lines = (first..).flat_map(|n| format!("{n}\n").into_bytes());
    lines.take(bytes).collect()
}

/// What was written to an object of `tank/gangs`.
fn letters(object: usize, bytes: usize) -> Vec<u8> {
    let letter = |at: usize| b'a' + ((at / 512 + object) % 26) as u8;
    (0..bytes).map(letter).collect()
}

fn assert_contents(spa: &Spa) {
    assert!(read(spa, "tank/fs", "one") == numbers(10_000, 12_006));
    assert!(read(spa, "tank/fs", "two") == numbers(20_000, 12_006));
    let small = [letters(8, 256 << 10), vec![b'z'; 768 << 10]].concat();
    assert!(read(spa, "tank/gangs", "small") == small);
}

/// Changes what each feature is about.
fn work(spa: &Spa) {
    let dsl = spa.parts().dsl();
    let fs = mount(dsl, "tank/fs", false).unwrap();
    fs.unlink(fs.root(), b"three").unwrap();
    let two = fs.resolve("two").unwrap();
    fs.rewrite(two, 4096, 0, true).unwrap();
    drop(fs);
    spa.sync().unwrap();
    let gangs = mount(dsl, "tank/gangs", false).unwrap();
    let big = gangs.resolve("big").unwrap();
    gangs.truncate(big, FILE_BYTES as u64 / 2).unwrap();
    drop(gangs);
    spa.sync().unwrap();
}

#[test]
fn a_pool_of_2_4_is_kept_up() {
    let devices = [golden(NAME)];
    let spa = pool::open_writable(&devices);
    let cloning = |spa: &Spa| [BLOCK_CLONING, BLOCK_CLONING_ENDIAN].map(|guid| count(spa, guid));
    assert_eq!(cloning(&spa), [1, 1]);
    assert_eq!(count(&spa, DYNAMIC_GANG_HEADER), 8);
    assert_eq!(count(&spa, PHYSICAL_REWRITE), 1);
    assert_eq!(spa.cloned(), (8192, 8192));
    assert_contents(&spa);
    assert!(read(&spa, "tank/gangs", "big") == letters(7, FILE_BYTES));
    let three = [&numbers(20_000, 8192)[..], &numbers(30_000, 16_384)[8192..]].concat();
    assert!(read(&spa, "tank/fs", "three") == three);
    assert_eq!(births(&blocks(&spa, "one", 3)), [(9, 25, 25); 3]);
    let three = births(&blocks(&spa, "three", 4));
    assert_eq!(three[..2], [(22, 10, 22); 2]);
    pool::assert_clean(&spa);
    spa.scrub().unwrap();
    spa.wait_scan(&mut |_| true).unwrap();
    assert_eq!(spa.scan().unwrap().errors.get(), 0);

    work(&spa);
    assert_eq!(cloning(&spa), [0, 0], "no block is cloned any more");
    let two = blocks(&spa, "two", 3);
    assert!(!two[0].is_rewrite() && two[1].is_rewrite() && two[2].is_rewrite());
    assert_eq!(two[1].birth(), Txg(10));
    assert!(two[1].allocation_birth() > Txg(25));
    assert_contents(&spa);
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb_2_4(&devices, "tank");

    let spa = pool::open_writable(&devices);
    assert_contents(&spa);
    // Cloned, such a block is as young as any clone.
    let fs = mount(spa.parts().dsl(), "tank/fs", false).unwrap();
    let made = fs.create_file(fs.root(), b"clone", &zpl::Create::default());
    let from = zpl::FileOffset {
        fs: &fs,
        id: fs.resolve("two").unwrap(),
        offset: 0,
    };
    fs.clone_range(made.unwrap().id, 0, from, 1 << 20).unwrap();
    drop(fs);
    spa.sync().unwrap();
    assert_eq!(cloning(&spa), [1, 1]);
    let clone = blocks(&spa, "clone", 3);
    assert!(!clone[1].is_rewrite() && clone[1].birth() > two[1].allocation_birth());
    assert_eq!(clone[1].physical_birth(), two[1].physical_birth());
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb_2_4(&devices, "tank");
    let spa = pool::open_writable(&devices);
    // The snapshot is from before the blocks were rewritten; the data set's count goes with it.
    let dsl = spa.parts().dsl();
    dsl.destroy_snapshots(&["tank/fs@before"], false).unwrap();
    dsl.destroy_head("tank/fs").unwrap();
    (0..4).for_each(|_| spa.force_sync().map(|_| ()).unwrap());
    assert_eq!(count(&spa, PHYSICAL_REWRITE), 0);
    assert_eq!(cloning(&spa), [0, 0]);
    assert_eq!(count(&spa, DYNAMIC_GANG_HEADER), 8, "that stays");
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb_2_4(&devices, "tank");
}

#[test]
fn sim_power_cuts_while_it_is_kept_up() {
    let seed = seed(41);
    rt::simulate(seed, move || {
        let bytes = golden::bytes(NAME);
        let disk = Arc::new(PowerCut::new("/disk", bytes.len() as u64));
        golden::fill(&*disk, &bytes);
        disk.flush().unwrap();
        disk.forget();
        let first = disk.supply().commands();
        let spa = pool::open_writable(&[disk.clone() as Arc<dyn Provider>]);
        work(&spa);
        spa.close().unwrap();
        let last = disk.supply().commands();
        cuts::everywhere(first..=last, 30, seed, |n| {
            let image: Arc<dyn Provider> = Arc::new(disk.image_after(n, seed));
            let spa = pool::open(&[image], false).map_err(|e| e.to_string())?;
            assert_contents(&spa);
            let report = pool::verify(&spa).map_err(|e| e.to_string())?;
            match report.is_clean() {
                true => Ok(()),
                false => Err(format!("{:#?}", report.findings)),
            }
        });
    });
}
