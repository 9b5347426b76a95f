//! Cache devices: what is on them is read from them, and whatever becomes of them, nothing is lost.

use std::sync::Arc;

use base::Guid;
use geom::Provider;
use oracle::{Zdb, have_zdb};
use ram::Memory;
use spa::Spa;
use torture::model::World;
use torture::pool::{self, Layout};
use torture::{Dice, seed};
use vdev::label::owner;
use vdev::{AutoAshift, AuxSpec, NewDevice, PoolState, VdevKind};

const DISK_BYTES: u64 = 256 << 20;
const CACHE_BYTES: u64 = 96 << 20;
const SECTORS: (u32, AutoAshift) = (
    12,
    AutoAshift {
        min: phys::label::ASHIFT_MIN,
        max: 14,
    },
);

fn memory(name: &str, bytes: u64) -> Arc<dyn Provider> {
    Arc::new(Memory::new(name, bytes))
}

fn add_cache(spa: &Spa, disk: &Arc<dyn Provider>) -> base::Result<()> {
    let cache = NewDevice {
        kind: VdevKind::Disk,
        path: disk.name().to_owned(),
        provider: Arc::clone(disk),
    };
    let aux = AuxSpec {
        spares: Vec::new(),
        caches: vec![cache],
    };
    spa.add(&[], &aux, SECTORS, true)
}

fn with_cache(disks: &[Arc<dyn Provider>]) -> Spa {
    let root = Box::new(|_: &_, _: &_| Ok(()));
    let spa = pool::create("tank", Layout::Stripe, 12, &disks[..1], root).unwrap();
    add_cache(&spa, &disks[1]).unwrap();
    spa
}

fn steps(spa: &Spa, world: &mut World, dice: &mut Dice, count: usize) {
    for step in 0..count {
        let outcome = world.step(spa, dice);
        outcome.unwrap_or_else(|e| panic!("step {step}: {e}"));
    }
}

/// Opens the pool, compares all of it with the model, and returns how many reads the cache device answered.
fn compare(disks: &[Arc<dyn Provider>], world: &World, readonly: bool) -> (u64, u64) {
    let spa = pool::open(disks, readonly).unwrap();
    world.compare(spa.parts().dsl()).unwrap();
    let counts = spa.cache_hits_and_misses();
    spa.close().unwrap();
    counts
}

#[test]
fn sim_what_was_written_is_read_from_the_cache_device_when_the_pool_is_opened_again() {
    let seed = seed(50);
    rt::simulate(seed, move || {
        let (mut dice, mut world) = (Dice::new(seed), World::default());
        let disks = [memory("/disk", DISK_BYTES), memory("/cache", CACHE_BYTES)];
        let spa = with_cache(&disks);
        steps(&spa, &mut world, &mut dice, 80);
        spa.export().unwrap();
        drop(spa);
        assert_eq!(owner(&*disks[1]).unwrap().state, PoolState::L2Cache);
        let (hits, misses) = compare(&disks, &world, true);
        assert!(hits > misses, "{hits} hits, {misses} misses");
        // Whatever is wrong on it is found out.
        let mut bytes = vec![0; 1 << 20];
        for at in (5 << 20..CACHE_BYTES - (1 << 20)).step_by(1 << 20) {
            disks[1].read(at, &mut bytes).unwrap();
            for byte in bytes.iter_mut().step_by(2048) {
                *byte ^= 0x40;
            }
            disks[1].write(at, &bytes).unwrap();
        }
        compare(&disks, &world, true);
        let zeros = vec![0; 1 << 20];
        disks[1].write(4 << 20, &zeros).unwrap();
        let (hits, _) = compare(&disks, &world, true);
        assert_eq!(hits, 0);
        // Lost altogether, and back with what it had then.
        let spa = pool::open(&disks[..1], false).unwrap();
        steps(&spa, &mut world, &mut dice, 40);
        world.compare(spa.parts().dsl()).unwrap();
        pool::assert_clean(&spa);
        spa.export().unwrap();
        drop(spa);
        compare(&disks, &world, false);
        let (hits, _) = compare(&disks, &world, false);
        assert!(hits > 0, "what was read is kept");
    });
}

/// The device is much smaller than what is written: it is filled again and again.
#[test]
fn sim_a_full_cache_device_forgets_what_is_oldest() {
    let seed = seed(51);
    rt::simulate(seed, move || {
        let (mut dice, mut world) = (Dice::new(seed), World::default());
        let disks = [memory("/disk", 4 * DISK_BYTES), memory("/cache", 70 << 20)];
        let spa = with_cache(&disks);
        spa.export().unwrap();
        drop(spa);
        let mut written = 0;
        for round in 0..12 {
            let spa = pool::open(&disks, false).unwrap();
            let before = spa.parts().pipeline().stats().written_bytes;
            steps(&spa, &mut world, &mut dice, 25);
            // As a fresh file: all of it is new.
            pool::create_fs(&spa, &format!("tank/own{round}"), &[("compression", 2)]).unwrap();
            let fs =
                zpl::mount::mount(spa.parts().dsl(), &format!("tank/own{round}"), false).unwrap();
            let file = fs.create_file(fs.root(), b"f", &zpl::Create::default());
            let bytes = dice.bytes(10 << 20);
            fs.write(file.unwrap().id, 0, &bytes).unwrap();
            drop(fs);
            spa.sync().unwrap();
            written += spa.parts().pipeline().stats().written_bytes - before;
            world.compare(spa.parts().dsl()).unwrap();
            spa.close().unwrap();
            drop(spa);
            let spa = pool::open(&disks, true).unwrap();
            let used = spa.caches()[0].1;
            assert!(used <= 70 << 20, "{used} bytes");
            let fs =
                zpl::mount::mount(spa.parts().dsl(), &format!("tank/own{round}"), true).unwrap();
            let file = fs.resolve("f").unwrap();
            let mut found = vec![0; bytes.len()];
            fs.read(file, 0, &mut found).unwrap();
            assert!(found == bytes);
            let (hits, _) = spa.cache_hits_and_misses();
            assert!(hits > 40, "round {round}: {hits} hits");
        }
        assert!(written > 100 << 20, "{written} bytes");
    });
}

#[test]
fn sim_datasets_that_do_not_want_it_are_not_cached_and_a_removed_device_is_free() {
    rt::simulate(52, || {
        let disks = [memory("/disk", DISK_BYTES), memory("/cache", CACHE_BYTES)];
        let spa = with_cache(&disks);
        let again = add_cache(&spa, &disks[1]).unwrap_err();
        assert_eq!(again.kind(), base::ErrorKind::Busy);
        let off = [("secondarycache", 0), ("compression", 2)];
        pool::create_fs(&spa, "tank/off", &off).unwrap();
        let metadata = [("secondarycache", 1), ("compression", 2)];
        pool::create_fs(&spa, "tank/metadata", &metadata).unwrap();
        pool::create_fs(&spa, "tank/all", &[("compression", 2)]).unwrap();
        let used = |spa: &Spa| spa.caches()[0].1;
        let mut grown = Vec::new();
        for name in ["tank/off", "tank/metadata", "tank/all"] {
            spa.sync().unwrap();
            let before = used(&spa);
            let fs = zpl::mount::mount(spa.parts().dsl(), name, false).unwrap();
            let file = fs.create_file(fs.root(), b"f", &zpl::Create::default());
            let bytes = Dice::new(1).bytes(4 << 20);
            fs.write(file.unwrap().id, 0, &bytes).unwrap();
            drop(fs);
            spa.sync().unwrap();
            grown.push(used(&spa) - before);
        }
        assert!(grown[0] < 1 << 20 && grown[1] < 1 << 20, "{grown:?}");
        assert!(grown[2] >= 4 << 20, "{grown:?}");
        let guid = spa.caches()[0].0.guid();
        spa.remove_cache(guid).unwrap();
        assert!(spa.caches().is_empty());
        assert!(spa.remove_cache(Guid(1)).is_err());
        pool::assert_clean(&spa);
        spa.export().unwrap();
        drop(spa);
        let spa = pool::open(&disks, false).unwrap();
        assert!(spa.caches().is_empty());
        pool::assert_clean(&spa);
    });
}

/// The real `zdb` walks the logs of a device that was written here.
#[test]
fn zdb_finds_each_log_block_valid() {
    if !have_zdb() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let disks = pool::images(folder.path(), 2, DISK_BYTES);
    let (mut dice, mut world) = (Dice::new(seed(53)), World::default());
    let spa = with_cache(&disks);
    for _ in 0..4 {
        steps(&spa, &mut world, &mut dice, 40);
        spa.sync().unwrap();
    }
    spa.export().unwrap();
    drop(spa);
    drop(disks);
    let found = Zdb::run(&["-l".as_ref(), folder.path().join("disk1").as_os_str()]);
    let is_number = |part: &str| {
        let mut words = found.stdout.split_whitespace();
        words.find(|word| *word == part);
        words.next().and_then(|word| word.parse::<u64>().ok())
    };
    let (valid, listed) = (is_number("log_blk_count:"), is_number("lb_count_refcount:"));
    assert!(valid > Some(10), "{}", found.stdout);
    assert_eq!(valid, listed, "{}", found.stdout);
    assert!(
        found.stdout.contains("0 with invalid cksum"),
        "{}",
        found.stdout
    );
    Zdb::verify(folder.path(), "tank").assert_clean();
}
