//! Gang headers as large as the smallest allocation (`dynamic_gang_header`): the feature becomes active when small ones
//! were not enough, headers of both sizes are read, repaired whole and freed, and the power fails meanwhile.

use std::sync::Arc;

use base::ObjectId;
use dsl::DslPool;
use faulty::PowerCut;
use geom::Provider;
use phys::BlkPtrPhys;
use phys::feature::{self, DYNAMIC_GANG_HEADER, Release};
use ram::Memory;
use spa::Spa;
use torture::crumbs::crumble;
use torture::pool::{self, Layout};
use torture::{Dice, cuts, seed};
use zio::{BlockStore, VdevOps};
use zpl::mount::{init, mount};
use zpl::{Create, NewFilesystem};

const FILE_BYTES: usize = 10 << 20;
const DISK_BYTES: u64 = 96 << 20;

fn disks(count: usize) -> Vec<Arc<dyn Provider>> {
    let disk = |n| Arc::new(Memory::new(format!("/disk{n}"), DISK_BYTES)) as Arc<dyn Provider>;
    (0..count).map(disk).collect()
}

fn create(layout: Layout, ashift: u32, devices: &[Arc<dyn Provider>]) -> Spa {
    let root = init(NewFilesystem::default(), true);
    let spa = pool::create_for(Release::V2_4, "tank", layout, ashift, devices, root).unwrap();
    let off = ("compression", 2);
    pool::create_fs(&spa, "tank/fs", &[off]).unwrap();
    spa
}

fn is_active(spa: &Spa) -> bool {
    spa.parts().features().count(DYNAMIC_GANG_HEADER) > Some(0)
}

fn gangs(spa: &Spa) -> u64 {
    spa.parts().pipeline().stats().gangs
}

fn write(spa: &Spa, name: &str, bytes: &[u8]) {
    let fs = mount(spa.parts().dsl(), "tank/fs", false).unwrap();
    let file = fs.create_file(fs.root(), name.as_bytes(), &Create::default());
    fs.write(file.unwrap().id, 0, bytes).unwrap();
    drop(fs);
    spa.sync().unwrap();
}

fn read(spa: &Spa, name: &str) -> Vec<u8> {
    let fs = mount(spa.parts().dsl(), "tank/fs", true).unwrap();
    let file = fs.resolve(name).unwrap();
    let mut found = vec![0; fs.getattr(file).unwrap().size as usize];
    fs.read(file, 0, &mut found).unwrap();
    found
}

/// The pointers of a file's blocks that are in pieces.
fn gang_pointers(dsl: &Arc<DslPool>, name: &str) -> Vec<BlkPtrPhys> {
    let fs = mount(dsl, "tank/fs", true).unwrap();
    let id: ObjectId = fs.resolve(name).unwrap();
    let objset = dsl.dataset("tank/fs").unwrap().objset().unwrap();
    let dnode = objset.hold(id).unwrap();
    let blocks = FILE_BYTES as u64 / dnode.blksz();
    let stored = dnode.stored_blocks(0..blocks).unwrap().unwrap();
    stored.into_iter().filter(BlkPtrPhys::is_gang).collect()
}

fn scrub(spa: &Spa) -> u64 {
    spa.scrub().unwrap();
    spa.wait_scan(&mut |_| true).unwrap();
    spa.scan().unwrap().errors.get()
}

/// (layout, devices, ashift, bytes of a crumb, bytes of a large header)
const POOLS: [(Layout, usize, u32, u64, usize); 4] = [
    (Layout::Stripe, 1, 9, 1024, 512),
    (Layout::Stripe, 2, 12, 4096, 4096),
    (Layout::Raidz(1), 3, 12, 4096, 4096),
    (Layout::Draid(1, 2, 0), 4, 12, 8192, 8192),
];

#[test]
fn headers_grow_when_small_ones_are_not_enough() {
    let mut dice = Dice::new(seed(31));
    for (layout, count, ashift, crumb, large) in POOLS {
        let devices = disks(count);
        let spa = create(layout, ashift, &devices);
        crumble(&spa, crumb, &mut dice);
        let contents = [dice.bytes(FILE_BYTES), dice.bytes(FILE_BYTES)];
        write(&spa, "one", &contents[0]);
        assert!(gangs(&spa) > 10, "{layout:?}");
        // The txg after the one that noticed, and one that makes use of it.
        (0..2).for_each(|_| spa.force_sync().map(|_| ()).unwrap());
        assert_eq!(is_active(&spa), large > 512, "{layout:?}");
        write(&spa, "two", &contents[1]);
        let check = |spa: &Spa| {
            assert!(read(spa, "one") == contents[0], "{layout:?}");
            assert!(read(spa, "two") == contents[1], "{layout:?}");
            assert_eq!(scrub(spa), 0, "{layout:?}");
            pool::assert_clean(spa);
        };
        check(&spa);
        spa.export().unwrap();
        drop(spa);
        pool::verify_with_zdb_2_4(&devices, "tank");
        let spa = pool::open(&devices, false).unwrap();
        assert_eq!(is_active(&spa), large > 512, "{layout:?}");
        let dsl = spa.parts().dsl();
        let sizes = |name: &str| -> Vec<usize> {
            let found = gang_pointers(dsl, name);
            found.iter().map(|bp| header_bytes(&spa, bp)).collect()
        };
        // The feature may have become active while the first file was written.
        assert!(sizes("one").contains(&512), "{layout:?}");
        let two = sizes("two");
        assert!(!two.is_empty(), "{layout:?}");
        assert!(two.iter().all(|size| *size == large), "{layout:?}");
        check(&spa);
        if large > 512 {
            for name in ["one", "two"] {
                damaged_headers_are_repaired_whole(&spa, name, layout);
            }
        }
        check(&spa);
        let before = spa.space().alloc;
        let fs = mount(spa.parts().dsl(), "tank/fs", false).unwrap();
        for name in ["one", "two"] {
            fs.unlink(fs.root(), name.as_bytes()).unwrap();
        }
        drop(fs);
        (0..4).for_each(|_| spa.force_sync().map(|_| ()).unwrap());
        assert!(spa.space().alloc < before - 2 * FILE_BYTES as u64);
        pool::assert_clean(&spa);
        assert_eq!(is_active(&spa), large > 512, "it stays active");
        spa.export().unwrap();
        drop(spa);
        pool::verify_with_zdb_2_4(&devices, "tank");
    }
}

/// The bytes of a header up to the magic number that ends it.
fn header_bytes(spa: &Spa, bp: &BlkPtrPhys) -> usize {
    let dva = bp.dva[0];
    let mut bytes = vec![0; 64 << 10];
    let len = spa.parts().tree().top(dva.vdev()).unwrap().min_alloc() as usize;
    let bytes = &mut bytes[..len];
    stored(spa, bp, 0, bytes);
    let magic = phys::label::ZEC_MAGIC.to_le_bytes();
    let ends = [512, len];
    let found = ends
        .into_iter()
        .find(|end| bytes[end - 40..end - 32] == magic);
    found.expect("a header ends with a checksum")
}

/// The bytes of one copy of a header, as they are.
fn stored(spa: &Spa, bp: &BlkPtrPhys, copy: usize, bytes: &mut [u8]) {
    let dva = bp.dva[copy];
    let io = zio::Io::read(bp.physical_birth());
    let tree = spa.parts().tree();
    tree.read(&io, dva.vdev(), dva.offset(), bytes, &|_| true)
        .unwrap();
}

fn damaged_headers_are_repaired_whole(spa: &Spa, name: &str, layout: Layout) {
    let bp = gang_pointers(spa.parts().dsl(), name)[0];
    assert!(bp.ndvas() > 1, "headers have a copy more than the data");
    let len = spa
        .parts()
        .tree()
        .top(bp.dva[0].vdev())
        .unwrap()
        .min_alloc() as usize;
    for copy in 0..2 {
        let mut good = vec![0; len];
        stored(spa, &bp, copy, &mut good);
        let mut bad = good.clone();
        bad[7] ^= 1;
        let dva = bp.dva[copy];
        let io = zio::Io::repair(bp.physical_birth());
        let tree = spa.parts().tree();
        tree.write(&io, dva.vdev(), dva.offset(), &[&bad]).unwrap();
        // A read takes the first copy, a scrub all.
        if copy == 0 {
            let pipeline = spa.parts().pipeline();
            pipeline.read(&bp, &zio::Bookmark::default()).unwrap();
        } else {
            assert_eq!(scrub(spa), 0, "{layout:?}");
        }
        let mut after = vec![0; len];
        stored(spa, &bp, copy, &mut after);
        assert!(
            after == good,
            "copy {copy} of a header of {name}, {layout:?}"
        );
    }
}

#[test]
fn pools_of_2_3_keep_small_headers() {
    let mut dice = Dice::new(seed(32));
    let devices = disks(1);
    let root = init(NewFilesystem::default(), true);
    let spa = pool::create("tank", Layout::Stripe, 12, &devices, root).unwrap();
    pool::create_fs(&spa, "tank/fs", &[("compression", 2)]).unwrap();
    assert!(feature::kept().all(feature::Feature::is_in_2_3));
    crumble(&spa, 4096, &mut dice);
    let content = dice.bytes(FILE_BYTES);
    write(&spa, "one", &content);
    spa.force_sync().unwrap();
    assert!(gangs(&spa) > 10);
    assert_eq!(spa.parts().features().count(DYNAMIC_GANG_HEADER), None);
    assert!(read(&spa, "one") == content);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&devices, "tank");
}

#[test]
fn sim_power_cuts_while_headers_grow() {
    let seed = seed(33);
    rt::simulate(seed, move || {
        let mut dice = Dice::new(seed);
        let disk = Arc::new(PowerCut::new("/disk", DISK_BYTES));
        let spa = create(Layout::Stripe, 12, &[disk.clone() as Arc<dyn Provider>]);
        crumble(&spa, 4096, &mut dice);
        disk.forget();
        let first = disk.supply().commands();
        let contents = [dice.bytes(FILE_BYTES), dice.bytes(1 << 20)];
        for (name, bytes) in ["one", "two"].iter().zip(&contents) {
            write(&spa, name, bytes);
            spa.force_sync().unwrap();
        }
        assert!(is_active(&spa));
        spa.close().unwrap();
        let last = disk.supply().commands();
        let mut were_active = 0;
        let found = cuts::everywhere(first..=last, 40, seed, |n| {
            let image: Arc<dyn Provider> = Arc::new(disk.image_after(n, seed));
            let spa = pool::open(&[image], false).map_err(|e| e.to_string())?;
            let report = pool::verify(&spa).map_err(|e| e.to_string())?;
            were_active += u32::from(is_active(&spa));
            match report.is_clean() {
                true => Ok(()),
                false => Err(format!("{:#?}", report.findings)),
            }
        });
        assert!(0 < were_active && were_active < found.len() as u32);
    });
}
