//! Special, dedup and log devices: what goes where, what happens when one is full, and when the log is gone.

use std::sync::Arc;

use base::{BlkId, ErrorKind, VdevId};
use faulty::{PowerCut, PowerSupply};
use geom::Provider;
use oracle::{Zdb, have_zdb};
use phys::feature::ALLOCATION_CLASSES;
use spa::{ImportOptions, Spa};
use torture::Dice;
use torture::pool::{self, Layout};
use vdev::import::discover;
use vdev::{AutoAshift, Grouping, NewDevice, TopSpec, VdevKind};
use zio::AllocClass;
use zpl::mount::{Mount, init, mount};
use zpl::{Create, NewFilesystem};

const MIB: u64 = 1 << 20;
const NORMAL: VdevId = VdevId(0);
const SPECIAL: VdevId = VdevId(1);
const LOG: VdevId = VdevId(3);
const COMPRESSION_OFF: u64 = 2;
const COMPRESSION_LZ4: u64 = 15;

fn create(disks: &[Arc<dyn Provider>]) -> Spa {
    let root = init(NewFilesystem::default(), true);
    pool::create("tank", Layout::Classes, 9, disks, root).unwrap()
}

fn write(fs: &Mount, name: &str, bytes: &[u8]) {
    let made = fs.create_file(fs.root(), name.as_bytes(), &Create::default());
    fs.write(made.unwrap().id, 0, bytes).unwrap();
}

/// The vdev of a block's first copy.
fn vdev_of(fs: &Mount, name: &str, level: u8, blkid: u64) -> VdevId {
    let dnode = fs.objset().hold(fs.resolve(name).unwrap()).unwrap();
    dnode.block_pointer(level, BlkId(blkid)).unwrap().dva[0].vdev()
}

fn allocated(spa: &Spa, vdev: VdevId) -> u64 {
    spa.vdev_space(vdev).unwrap().alloc
}

#[test]
fn blocks_go_to_the_devices_of_their_class() {
    let folder = tempfile::tempdir().unwrap();
    let disks = pool::images(folder.path(), 4, 128 * MIB);
    let spa = create(&disks);
    assert_eq!(spa.parts().features().count(ALLOCATION_CLASSES), Some(2));
    let mut dice = Dice::new(1);
    let plain = [
        ("special_small_blocks", 8 << 10),
        ("compression", COMPRESSION_OFF),
    ];
    pool::create_fs(&spa, "tank/plain", &plain).unwrap();
    let lz4 = [
        ("special_small_blocks", 8 << 10),
        ("compression", COMPRESSION_LZ4),
    ];
    pool::create_fs(&spa, "tank/lz4", &lz4).unwrap();
    let fs = mount(spa.parts().dsl(), "tank/plain", false).unwrap();
    write(&fs, "large", &dice.bytes(MIB as usize));
    write(&fs, "small", &dice.bytes(8 << 10));
    write(&fs, "larger", &dice.bytes((8 << 10) + 512));
    let packed = mount(spa.parts().dsl(), "tank/lz4", false).unwrap();
    write(
        &packed,
        "zeros-and-ones",
        &[[0; 512], [1; 512]].concat().repeat(128),
    );
    spa.sync().unwrap();
    assert_eq!(vdev_of(&fs, "large", 0, 0), NORMAL);
    assert_eq!(vdev_of(&fs, "large", 1, 0), SPECIAL);
    assert_eq!(vdev_of(&fs, "small", 0, 0), SPECIAL);
    assert_eq!(vdev_of(&fs, "larger", 0, 0), NORMAL);
    // What counts is the size on disk.
    assert_eq!(vdev_of(&packed, "zeros-and-ones", 0, 0), SPECIAL);
    assert_eq!(allocated(&spa, LOG), 0);
    for name in ["large", "small"] {
        let id = fs.resolve(name).unwrap();
        fs.write(id, 0, b"new").unwrap();
        fs.fsync(id).unwrap();
    }
    assert!(allocated(&spa, LOG) > 0);
    pool::assert_clean(&spa);
    drop((fs, packed));
    spa.export().unwrap();
    drop((spa, disks));
    if have_zdb() {
        Zdb::verify(folder.path(), "tank").assert_clean();
    }
}

/// Any size is a limit, as in OpenZFS 2.4, and without log devices the intent log is on special ones.
#[test]
fn limits_need_not_be_powers_of_two_and_the_log_goes_to_special_devices() {
    let folder = tempfile::tempdir().unwrap();
    let disks = pool::images(folder.path(), 2, 128 * MIB);
    let root = init(NewFilesystem::default(), true);
    let spa = pool::create("tank", Layout::Stripe, 9, &disks[..1], root).unwrap();
    add(&spa, &[(AllocClass::Special, &disks[1])]);
    let props = [
        ("special_small_blocks", 10 << 10),
        ("compression", COMPRESSION_OFF),
    ];
    pool::create_fs(&spa, "tank/fs", &props).unwrap();
    let fs = mount(spa.parts().dsl(), "tank/fs", false).unwrap();
    let mut dice = Dice::new(4);
    write(&fs, "at", &dice.bytes(10 << 10));
    write(&fs, "above", &dice.bytes((10 << 10) + 512));
    spa.sync().unwrap();
    assert_eq!(vdev_of(&fs, "at", 0, 0), SPECIAL);
    assert_eq!(vdev_of(&fs, "above", 0, 0), NORMAL);
    let id = fs.resolve("above").unwrap();
    for _ in 0..2 {
        fs.write(id, 0, b"new").unwrap();
        fs.fsync(id).unwrap();
    }
    let log = fs.objset().zil_header().log.dva[0];
    assert_eq!((log.is_empty(), log.vdev()), (false, SPECIAL));
    spa.sync().unwrap();
    pool::assert_clean(&spa);
    drop(fs);
    spa.export().unwrap();
    drop((spa, disks));
    if have_zdb() {
        Zdb::verify(folder.path(), "tank").assert_clean();
    }
}

/// Small blocks of files leave a quarter of the special devices to metadata.
#[test]
fn small_blocks_stop_where_the_reserve_for_metadata_begins() {
    let folder = tempfile::tempdir().unwrap();
    drop(pool::images(folder.path(), 1, 512 * MIB));
    let disks = pool::images(folder.path(), 4, 128 * MIB);
    let spa = create(&disks);
    let props = [
        ("special_small_blocks", 16 << 10),
        ("recordsize", 16 << 10),
        ("compression", COMPRESSION_OFF),
    ];
    pool::create_fs(&spa, "tank/fs", &props).unwrap();
    let fs = mount(spa.parts().dsl(), "tank/fs", false).unwrap();
    let space = spa.vdev_space(SPECIAL).unwrap().space;
    let mut dice = Dice::new(2);
    let mut blocks = 0;
    let made = fs.create_file(fs.root(), b"f", &Create::default());
    let file = made.unwrap().id;
    while blocks << 14 < space {
        let bytes = dice.bytes(4 << 20);
        fs.write(file, blocks << 14, &bytes).unwrap();
        blocks += 256;
        spa.sync().unwrap();
    }
    let share = allocated(&spa, SPECIAL) * 100 / space;
    assert!(
        (75..=85).contains(&share),
        "{share} % of the special device is full"
    );
    assert_eq!(vdev_of(&fs, "f", 0, 0), SPECIAL);
    assert_eq!(vdev_of(&fs, "f", 0, blocks - 1), NORMAL);
    assert_eq!(vdev_of(&fs, "f", 1, (blocks - 1) >> 10), SPECIAL);
    pool::assert_clean(&spa);
}

fn add(spa: &Spa, devices: &[(AllocClass, &Arc<dyn Provider>)]) {
    let spec = |(class, disk): &(AllocClass, &Arc<dyn Provider>)| TopSpec {
        class: *class,
        ..TopSpec::new(
            Grouping::Single,
            vec![NewDevice {
                kind: VdevKind::Disk,
                path: disk.name().to_owned(),
                provider: Arc::clone(disk),
            }],
        )
    };
    let specs: Vec<_> = devices.iter().map(spec).collect();
    let ashift = (9, AutoAshift::default());
    spa.add(&specs, &vdev::AuxSpec::default(), ashift, false)
        .unwrap();
}

/// Devices that are added later are used from then on, also after the pool was opened again.
#[test]
fn a_pool_gets_special_and_log_devices_later() {
    let folder = tempfile::tempdir().unwrap();
    let disks = pool::images(folder.path(), 3, 128 * MIB);
    let root = init(NewFilesystem::default(), true);
    let spa = pool::create("tank", Layout::Stripe, 9, &disks[..1], root).unwrap();
    add(
        &spa,
        &[
            (AllocClass::Special, &disks[1]),
            (AllocClass::Log, &disks[2]),
        ],
    );
    assert_eq!(spa.parts().features().count(ALLOCATION_CLASSES), Some(1));
    let use_it = |spa: &Spa, name: &str| {
        let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
        write(&fs, name, &Dice::new(3).bytes(MIB as usize));
        spa.sync().unwrap();
        assert_eq!(vdev_of(&fs, name, 0, 0), NORMAL);
        assert_eq!(vdev_of(&fs, name, 1, 0), SPECIAL);
        let id = fs.resolve(name).unwrap();
        fs.write(id, 0, b"new").unwrap();
        fs.fsync(id).unwrap();
        assert!(
            allocated(spa, VdevId(2)) > 0,
            "the log is on its own device"
        );
        pool::assert_clean(spa);
    };
    use_it(&spa, "a");
    spa.export().unwrap();
    drop(spa);
    let spa = pool::open(&disks, false).unwrap();
    use_it(&spa, "b");
    spa.export().unwrap();
    drop((spa, disks));
    if have_zdb() {
        Zdb::verify(folder.path(), "tank").assert_clean();
    }
}

/// The chain of a log goes from one device to the next, as other blocks do.
#[test]
fn log_blocks_go_to_each_of_several_log_devices() {
    let folder = tempfile::tempdir().unwrap();
    let disks = pool::images(folder.path(), 3, 128 * MIB);
    let root = init(NewFilesystem::default(), true);
    let spa = pool::create("tank", Layout::Stripe, 9, &disks[..1], root).unwrap();
    add(
        &spa,
        &[(AllocClass::Log, &disks[1]), (AllocClass::Log, &disks[2])],
    );
    let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
    write(&fs, "f", b"old");
    let file = fs.resolve("f").unwrap();
    let bytes = Dice::new(5).bytes(64 << 10);
    let mut most = [0; 2];
    for at in 0..64 {
        fs.write(file, at << 16, &bytes).unwrap();
        fs.fsync(file).unwrap();
        // What was allocated is counted when its txg is synced, and is free some txgs later.
        if at % 16 == 15 {
            spa.sync().unwrap();
        }
        for (most, vdev) in most.iter_mut().zip([VdevId(1), VdevId(2)]) {
            *most = allocated(&spa, vdev).max(*most);
        }
    }
    assert!(
        most.iter().all(|most| *most >= 512 << 10),
        "{most:?} bytes of log"
    );
    pool::assert_clean(&spa);
}

fn import(devices: &[Arc<dyn Provider>], gives_up_logs: bool) -> base::Result<Spa> {
    Spa::import(ImportOptions {
        found: discover(devices).pools.remove(0),
        new_name: None,
        readonly: false,
        max_txg: None,
        force: false,
        gives_up_logs,
        tolerates_missing: false,
        rewinds: false,
        host: pool::host(),
        settings: pool::settings(),
    })
}

/// A pool whose log device is lost with something in it opens when the log is given up, with all that was synced.
#[test]
fn sim_a_lost_log_device_is_given_up_on_request_only() {
    rt::simulate(3, || {
        let supply = PowerSupply::new();
        let disk = |i| {
            Arc::new(PowerCut::fed_by(
                &supply,
                format!("/disk{i}"),
                128 * MIB,
                512,
            ))
        };
        let disks: Vec<Arc<PowerCut>> = (0..4).map(disk).collect();
        let providers: Vec<Arc<dyn Provider>> = disks.iter().map(|d| d.clone() as _).collect();
        let spa = create(&providers);
        let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
        write(&fs, "f", b"synced");
        spa.sync().unwrap();
        let file = fs.resolve("f").unwrap();
        // The first one waits for the txg in which the log begins; the second is in the log alone.
        for bytes in [b"logged", b"LOGGED"] {
            fs.write(file, 0, bytes).unwrap();
            fs.fsync(file).unwrap();
        }
        let cut = supply.commands();
        let image = |disk: &Arc<PowerCut>| Arc::new(disk.image_after(cut, 3)) as Arc<dyn Provider>;
        let images: Vec<Arc<dyn Provider>> = disks.iter().map(image).collect();
        drop((fs, spa));

        let error = import(&images[..3], false)
            .err()
            .expect("the log is missing");
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("intent log"), "{error}");
        let spa = import(&images[..3], true).unwrap();
        let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
        let read = |fs: &Mount| {
            let mut bytes = [0; 6];
            fs.read(file, 0, &mut bytes).unwrap();
            bytes
        };
        assert_eq!(&read(&fs), b"logged");
        pool::assert_clean(&spa);
        // Meanwhile the log goes to the normal devices.
        fs.write(file, 0, b"newest").unwrap();
        fs.fsync(file).unwrap();
        drop(fs);
        spa.close().unwrap();
        drop(spa);
        // The log device comes back, with a log that nobody knows of any more.
        let spa = import(&images, false).unwrap();
        let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
        assert_eq!(&read(&fs), b"newest");
        fs.fsync(file).unwrap();
        spa.sync().unwrap();
        pool::assert_clean(&spa);
    });
}
