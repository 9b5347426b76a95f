//! Scrub and resilver during other operations: whatever happens to datasets meanwhile, whenever the power is
//! cut, in the end every device has every block.

use std::sync::Arc;

use faulty::{FaultInjector, PowerCut};
use geom::Provider;
use phys::feature::RESILVER_DEFER;
use phys::label::LABEL_START_SIZE;
use phys::scan::{DSS_CANCELED, DSS_FINISHED, DSS_SCANNING, POOL_SCAN_RESILVER};
use ram::Memory;
use scan::Kind;
use spa::{FeatureState, ScanSettings, Settings, Spa};
use torture::model::World;
use torture::pool::{self, Layout};
use torture::{Dice, seed};
use zpl::Create;
use zpl::mount::mount;

const DISK_BYTES: u64 = 128 << 20;
/// The range that one side of a mirror may lose without the pool being lost: everything but its labels.
const DATA: std::ops::Range<u64> = LABEL_START_SIZE..DISK_BYTES - (1 << 20);

fn disks(count: usize) -> Vec<Arc<Memory>> {
    let disk = |n| Arc::new(Memory::new(format!("/disk{n}"), DISK_BYTES));
    (0..count).map(disk).collect()
}

fn providers(disks: &[Arc<Memory>]) -> Vec<Arc<dyn Provider>> {
    disks.iter().map(|disk| disk.clone() as _).collect()
}

/// Settings with which a scan visits at most this many blocks in a txg.
fn in_small_steps(blocks_max: u64) -> Settings {
    Settings {
        scan: ScanSettings {
            blocks_max,
            ..ScanSettings::default()
        },
        ..pool::settings()
    }
}

/// Overwrites all data of one side.
fn scribble(disk: &dyn Provider) {
    let junk = vec![0x5a; 1 << 20];
    let mut at = DATA.start;
    while at < DATA.end {
        let length = (DATA.end - at).min(1 << 20);
        disk.write(at, &junk[..length as usize]).unwrap();
        at += length;
    }
}

/// Asserts that everything can be read from this side alone.
fn assert_has_everything(disk: Arc<dyn Provider>, world: &World) {
    let spa = pool::open(&[disk], true).unwrap();
    world.compare(spa.parts().dsl()).unwrap();
    pool::assert_clean(&spa);
}

fn new_pool(disks: &[Arc<dyn Provider>], settings: Settings) -> Spa {
    let init = Box::new(|_: &_, _: &_| Ok(()));
    pool::create_with("tank", Layout::Mirror, 12, disks, init, settings).unwrap()
}

fn steps(spa: &Spa, world: &mut World, dice: &mut Dice, count: usize) {
    for step in 0..count {
        let outcome = world.step(spa, dice);
        outcome.unwrap_or_else(|e| panic!("step {step}: {e}"));
    }
}

fn is_scanning(spa: &Spa) -> bool {
    spa.scan()
        .is_some_and(|scan| scan.state.get() == DSS_SCANNING)
}

fn finish(spa: &Spa) {
    spa.wait_scan(&mut |_| true).unwrap();
    assert_eq!(spa.scan().unwrap().state.get(), DSS_FINISHED);
}

#[test]
fn sim_a_scrub_mends_a_side_while_data_sets_come_and_go() {
    for n in 0..4 {
        let seed = seed(100 + n);
        rt::simulate(seed, move || {
            let mut dice = Dice::new(seed);
            let (disks, mut world) = (disks(2), World::default());
            let spa = new_pool(&providers(&disks), in_small_steps(20));
            steps(&spa, &mut world, &mut dice, 120);
            spa.sync().unwrap();
            scribble(&*disks[1]);
            spa.scrub().unwrap();
            let mut beside = 0;
            while is_scanning(&spa) {
                steps(&spa, &mut world, &mut dice, 2);
                spa.sync().unwrap();
                beside += 1;
            }
            assert!(beside > 3, "{beside} txgs");
            let scan = spa.scan().unwrap();
            assert_eq!((scan.state.get(), scan.errors.get()), (DSS_FINISHED, 0));
            assert!(scan.processed.get() > 0);
            world.compare(spa.parts().dsl()).unwrap();
            spa.export().unwrap();
            drop(spa);
            assert_has_everything(disks[1].clone(), &world);
        });
    }
}

fn attach(spa: &Spa, disk: &Arc<Memory>) {
    let device = vdev::NewDevice {
        kind: vdev::VdevKind::Disk,
        path: disk.name().to_owned(),
        provider: disk.clone(),
    };
    let beside = spa.parts().tree().devices()[0].guid();
    let sectors = (0, vdev::AutoAshift::default());
    spa.attach(beside, &device, vdev::Attach::Side, sectors)
        .unwrap();
}

/// The devices that wait for the next resilver.
fn waiting(spa: &Spa) -> Vec<String> {
    let mut devices = spa.parts().tree().devices();
    devices.retain(|device| device.config().resilver_deferred);
    devices.iter().map(|device| device.name()).collect()
}

#[test]
fn sim_a_device_that_comes_late_waits_for_the_next_resilver() {
    rt::simulate(11, || {
        let (mut dice, mut world) = (Dice::new(11), World::default());
        let disks = disks(5);
        let spa = new_pool(&providers(&disks[..1]), in_small_steps(3));
        steps(&spa, &mut world, &mut dice, 120);
        spa.sync().unwrap();
        let far = |spa: &Spa| {
            spa.wait_scan(&mut |scan| scan.examined.get() < scan.to_examine.get() / 3)
                .unwrap();
            assert_eq!(spa.scan_running(), Some(Kind::Resilver));
        };
        let max = |spa: &Spa| spa.scan().unwrap().max_txg.get();
        attach(&spa, &disks[1]);
        // A resilver that has hardly begun begins anew.
        spa.force_sync().unwrap();
        let first = max(&spa);
        attach(&spa, &disks[2]);
        assert!(waiting(&spa).is_empty());
        far(&spa);
        assert!(max(&spa) > first);
        let second = max(&spa);
        attach(&spa, &disks[3]);
        spa.force_sync().unwrap();
        assert_eq!(
            (waiting(&spa), max(&spa)),
            (vec!["/disk3".to_owned()], second)
        );
        assert_eq!(spa.feature(RESILVER_DEFER), FeatureState::Active);
        steps(&spa, &mut world, &mut dice, 3);
        // It waits also when the pool is opened again.
        spa.export().unwrap();
        drop(spa);
        pool::verify_with_zdb(&providers(&disks[..4]), "tank");
        let spa = pool::open_with(&providers(&disks), false, in_small_steps(3)).unwrap();
        spa.resilver_if_needed().unwrap();
        assert_eq!(
            (waiting(&spa), max(&spa)),
            (vec!["/disk3".to_owned()], second)
        );
        finish(&spa);
        assert!(waiting(&spa).is_empty() && max(&spa) > second);
        assert_eq!(spa.feature(RESILVER_DEFER), FeatureState::Enabled);
        // It does not wait if it is not to.
        attach(&spa, &disks[4]);
        far(&spa);
        spa.detach(spa.parts().tree().devices()[3].guid()).unwrap();
        let third = max(&spa);
        attach(&spa, &disks[3]);
        spa.force_sync().unwrap();
        assert_eq!(
            (waiting(&spa), max(&spa)),
            (vec!["/disk3".to_owned()], third)
        );
        spa.restart_resilver().unwrap();
        assert!(waiting(&spa).is_empty() && max(&spa) > third);
        assert_eq!(spa.feature(RESILVER_DEFER), FeatureState::Enabled);
        finish(&spa);
        world.compare(spa.parts().dsl()).unwrap();
        pool::assert_clean(&spa);
        spa.export().unwrap();
        drop(spa);
        for disk in disks {
            assert_has_everything(disk, &world);
        }
    });
}

#[test]
fn sim_a_scrub_since_the_last_one_leaves_out_what_that_has_seen() {
    rt::simulate(12, || {
        let (mut dice, mut world) = (Dice::new(12), World::default());
        let disks = disks(2);
        let spa = new_pool(&providers(&disks), pool::settings());
        steps(&spa, &mut world, &mut dice, 120);
        // There was none yet: all is seen.
        spa.scrub_since_last().unwrap();
        finish(&spa);
        let of_all = spa.scan().unwrap();
        assert_eq!(of_all.min_txg.get(), 0);
        steps(&spa, &mut world, &mut dice, 10);
        spa.scrub_since_last().unwrap();
        finish(&spa);
        let of_some = spa.scan().unwrap();
        assert_eq!(of_some.min_txg.get(), of_all.max_txg.get() - 1);
        assert!(of_some.examined.get() > 0);
        assert!(of_some.examined.get() < of_all.examined.get() / 2);
        // What one side lost of what is older is not noticed, and what it lost of the rest is.
        spa.sync().unwrap();
        scribble(&*disks[1]);
        steps(&spa, &mut world, &mut dice, 10);
        spa.scrub_since_last().unwrap();
        finish(&spa);
        let repaired = spa.scan().unwrap().processed.get();
        spa.scrub().unwrap();
        finish(&spa);
        let scan = spa.scan().unwrap();
        assert_eq!((scan.errors.get(), scan.min_txg.get()), (0, 0));
        assert!(scan.processed.get() > repaired);
        // A device that lacks older blocks gets them all the same.
        let device = spa.parts().tree().devices()[1].clone();
        let early = of_all.max_txg.get() / 2;
        device.leaf().dirty_dtl(early..early + 1);
        spa.scrub_since_last().unwrap();
        assert!(spa.scan().unwrap().min_txg.get() < early);
        finish(&spa);
        assert!(!device.leaf().has_dtl());
        world.compare(spa.parts().dsl()).unwrap();
        spa.export().unwrap();
        drop(spa);
        assert_has_everything(disks[1].clone(), &world);
    });
}

#[test]
fn sim_a_scrub_waits_goes_on_and_is_stopped() {
    rt::simulate(7, || {
        let mut dice = Dice::new(7);
        let (disks, mut world) = (disks(2), World::default());
        let devices = providers(&disks);
        let spa = new_pool(&devices, in_small_steps(10));
        assert!(spa.pause_scrub().is_err() && spa.stop_scrub().is_err());
        steps(&spa, &mut world, &mut dice, 100);
        spa.scrub().unwrap();
        assert!(spa.scrub().is_err(), "one at a time");
        spa.pause_scrub().unwrap();
        let before = spa.scan().unwrap();
        for _ in 0..20 {
            steps(&spa, &mut world, &mut dice, 1);
            spa.sync().unwrap();
        }
        assert_eq!(spa.scan().unwrap().examined, before.examined, "it waits");
        // It stays paused across an export and import.
        spa.export().unwrap();
        drop(spa);
        let spa = pool::open_with(&devices, false, in_small_steps(10)).unwrap();
        for _ in 0..20 {
            spa.force_sync().unwrap();
        }
        assert_eq!(spa.scan().unwrap().examined, before.examined);
        spa.scrub().unwrap();
        finish(&spa);
        spa.scrub().unwrap();
        spa.stop_scrub().unwrap();
        assert_eq!(spa.scan().unwrap().state.get(), DSS_CANCELED);
        pool::assert_clean(&spa);
    });
}

/// Each image opens and resumes the scan, after which the overwritten side has all blocks.
#[test]
fn sim_after_a_power_cut_a_scrub_goes_on() {
    rt::simulate(3, || {
        let mut dice = Dice::new(3);
        let mut world = World::default();
        let cut = Arc::new(PowerCut::new("/disk0", DISK_BYTES));
        let ruined = Arc::new(PowerCut::fed_by(cut.supply(), "/disk1", DISK_BYTES, 512));
        let devices: Vec<Arc<dyn Provider>> = vec![cut.clone(), ruined.clone()];
        let spa = new_pool(&devices, in_small_steps(40));
        steps(&spa, &mut world, &mut dice, 60);
        spa.sync().unwrap();
        scribble(&*ruined);
        ruined.flush().unwrap();
        let first = cut.supply().commands();
        spa.scrub().unwrap();
        finish(&spa);
        spa.close().unwrap();
        drop(spa);
        let last = cut.supply().commands();
        let every = if std::env::var_os("CUTS").is_some_and(|v| v == "all") {
            1
        } else {
            (last - first) / 25 + 1
        };
        for n in (first..=last).step_by(every as usize) {
            let (a, b) = (cut.image_after(n, n), ruined.image_after(n, n));
            let (a, b): (Arc<dyn Provider>, Arc<dyn Provider>) = (Arc::new(a), Arc::new(b));
            let images = [a, b.clone()];
            let spa = pool::open_with(&images, false, in_small_steps(1000))
                .unwrap_or_else(|e| panic!("cut after {n}: {e}"));
            if spa.scan_running().is_none() && spa.scan().is_none() {
                continue; // the scrub had not begun
            }
            finish(&spa);
            // A side that missed the last txg is resilvered, which ends a scrub, as in OpenZFS.
            if spa.scan().unwrap().func.get() == POOL_SCAN_RESILVER {
                spa.scrub().unwrap();
                finish(&spa);
            }
            spa.export().unwrap();
            drop(spa);
            assert_has_everything(b, &world);
        }
    });
}

/// What was synced into an intent log that nobody has replayed yet is scrubbed as well.
#[test]
fn sim_a_scrub_mends_intent_logs() {
    rt::simulate(3, || {
        let memory = disks(2);
        let spa = new_pool(&providers(&memory), pool::settings());
        pool::create_fs(&spa, "tank/fs", &[]).unwrap();
        let fs = mount(spa.parts().dsl(), "tank/fs", false).unwrap();
        spa.sync().unwrap();
        // A small record lies in the log, a large one beside it.
        for (name, len) in [("small", 3000), ("large", 200_000)] {
            let root = fs.root();
            let file = fs.create_file(root, name.as_bytes(), &Create::default());
            let file = file.unwrap().id;
            fs.write(file, 0, &vec![7; len]).unwrap();
            fs.fsync(file).unwrap();
        }
        // The power goes before the txg is on disk.
        let cut: Vec<Arc<Memory>> = memory
            .iter()
            .map(|disk| Arc::new(disk.snapshot()))
            .collect();
        drop(fs);
        drop(spa);
        let spa = pool::open(&providers(&cut), false).unwrap();
        scribble(&*cut[1]);
        spa.scrub().unwrap();
        finish(&spa);
        assert_eq!(spa.scan().unwrap().errors.get(), 0);
        spa.close().unwrap();
        drop(spa);
        let alone: Arc<dyn Provider> = cut[1].clone();
        let spa = pool::open(&[alone], false).unwrap();
        let fs = mount(spa.parts().dsl(), "tank/fs", false).unwrap();
        for (name, len) in [("small", 3000), ("large", 200_000)] {
            let file = fs.lookup(fs.root(), name.as_bytes()).unwrap();
            let mut bytes = vec![0; len];
            let read = fs.read(file.id, 0, &mut bytes).unwrap();
            assert!(read == len && bytes.iter().all(|byte| *byte == 7), "{name}");
        }
    });
}

/// A device that was away for a while gets what it missed; nothing else is read.
#[test]
fn sim_a_resilver_reads_what_was_missed() {
    rt::simulate(5, || {
        let mut dice = Dice::new(5);
        let mut world = World::default();
        let faulty: Vec<Arc<FaultInjector>> = disks(2)
            .into_iter()
            .map(|disk| Arc::new(FaultInjector::new(disk)))
            .collect();
        let devices: Vec<Arc<dyn Provider>> = faulty.iter().map(|disk| disk.clone() as _).collect();
        let spa = new_pool(&devices, in_small_steps(50));
        steps(&spa, &mut world, &mut dice, 300);
        spa.sync().unwrap();
        let all = spa.space().alloc;
        let guid = spa.parts().tree().devices()[1].guid();
        spa.parts().tree().offline(guid, true).unwrap();
        let before = spa.space().alloc;
        steps(&spa, &mut world, &mut dice, 10);
        spa.sync().unwrap();
        let changed = spa.space().alloc.abs_diff(before);
        spa.parts().tree().online(guid, devices[1].clone()).unwrap();
        assert!(spa.parts().tree().devices()[1].leaf().has_dtl());
        spa.resilver_if_needed().unwrap();
        assert_eq!(spa.scan_running(), Some(Kind::Resilver));
        let reads = spa.parts().tree().root().io_counts().read_bytes();
        while is_scanning(&spa) {
            steps(&spa, &mut world, &mut dice, 1);
            spa.sync().unwrap();
        }
        let reads = spa.parts().tree().root().io_counts().read_bytes() - reads;
        let scan = spa.scan().unwrap();
        eprintln!(
            "allocated {all}, changed {changed}, read {reads}, resilvered {}",
            scan.processed.get()
        );
        assert_eq!((scan.state.get(), scan.errors.get()), (DSS_FINISHED, 0));
        assert!(!spa.parts().tree().devices()[1].leaf().has_dtl());
        assert!(reads < all / 2, "{reads} of {all}");
        spa.export().unwrap();
        drop(spa);
        assert_has_everything(devices[1].clone(), &world);
    });
}

/// A device that goes away during its resilver must get all of it before it counts as complete.
#[test]
fn sim_a_device_that_leaves_its_resilver_begins_it_again() {
    rt::simulate(9, || {
        let mut dice = Dice::new(9);
        let (disks, mut world) = (disks(2), World::default());
        let devices = providers(&disks);
        let spa = new_pool(&devices, in_small_steps(4));
        steps(&spa, &mut world, &mut dice, 30);
        spa.sync().unwrap();
        let guid = spa.parts().tree().devices()[1].guid();
        spa.parts().tree().offline(guid, true).unwrap();
        steps(&spa, &mut world, &mut dice, 150);
        spa.sync().unwrap();
        spa.parts().tree().online(guid, devices[1].clone()).unwrap();
        spa.resilver_if_needed().unwrap();
        let examined = |spa: &Spa| spa.scan().unwrap().examined.get();
        let go_on = |beyond: u64| {
            spa.wait_scan(&mut |scan| scan.examined.get() <= beyond)
                .unwrap();
        };
        go_on(0);
        spa.parts().tree().offline(guid, true).unwrap();
        go_on(examined(&spa) + 200_000);
        assert!(is_scanning(&spa), "{:?}", spa.scan());
        spa.parts().tree().online(guid, devices[1].clone()).unwrap();
        spa.resilver_if_needed().unwrap();
        finish(&spa);
        assert!(!spa.parts().tree().devices()[1].leaf().has_dtl());
        spa.export().unwrap();
        drop(spa);
        assert_has_everything(disks[1].clone(), &world);
    });
}

/// A paused scrub may wait for ever; a device that missed something must not.
#[test]
fn sim_a_scrub_that_waits_does_not_keep_a_device_from_its_resilver() {
    rt::simulate(11, || {
        let mut dice = Dice::new(11);
        let (disks, mut world) = (disks(2), World::default());
        let devices = providers(&disks);
        let spa = new_pool(&devices, in_small_steps(4));
        let guid = spa.parts().tree().devices()[1].guid();
        spa.parts().tree().offline(guid, true).unwrap();
        steps(&spa, &mut world, &mut dice, 50);
        spa.sync().unwrap();
        spa.parts().tree().online(guid, devices[1].clone()).unwrap();
        // The device that missed something takes part in the scrub.
        spa.scrub().unwrap();
        spa.pause_scrub().unwrap();
        spa.resilver_if_needed().unwrap();
        finish(&spa);
        assert!(!spa.parts().tree().devices()[1].leaf().has_dtl());
        spa.export().unwrap();
        drop(spa);
        assert_has_everything(disks[1].clone(), &world);
    });
}

/// A single disk with sectors that cannot be read gets a second side. The resilver ends with errors, and only what was
/// lost before is lost: no other copy is damaged. Depending on the seed, the first side is given up for its errors only
/// while all copies are looked at.
#[test]
fn sim_a_resilver_with_errors_damages_no_other_copy() {
    for n in 0..12 {
        let seed = seed(n);
        for blocks_max in [1, 1000] {
            rt::simulate(seed, move || resilver_with_errors(seed, blocks_max));
        }
    }
}

fn resilver_with_errors(seed: u64, blocks_max: u64) {
    const BLOCKS: usize = 12;
    const BLOCK_BYTES: usize = 128 << 10;
    let mut dice = Dice::new(seed);
    let (disks, mut world) = (disks(2), World::default());
    let faulty = Arc::new(FaultInjector::new(disks[0].clone()));
    let root = zpl::mount::init(zpl::NewFilesystem::default(), true);
    let providers: [Arc<dyn Provider>; 1] = [faulty.clone()];
    let settings = in_small_steps(blocks_max);
    let spa = pool::create_with("tank", Layout::Stripe, 12, &providers, root, settings).unwrap();
    steps(&spa, &mut world, &mut dice, 30);
    // None of its blocks is a hole.
    let mut lost = dice.bytes(BLOCKS * BLOCK_BYTES);
    lost.iter_mut().for_each(|byte| *byte |= 1);
    pool::write_file(&spa, "tank", "lost", &lost);
    spa.sync().unwrap();
    let fs = mount(spa.parts().dsl(), "tank", true).unwrap();
    for place in pool::places(&fs, "lost") {
        faulty.damage(place.start..place.start + 4096, faulty::Damage::ReadError);
    }
    drop(fs);
    attach(&spa, &disks[1]);
    while is_scanning(&spa) {
        steps(&spa, &mut world, &mut dice, 1);
        spa.sync().unwrap();
    }
    let scan = spa.scan().unwrap();
    assert_eq!(scan.state.get(), DSS_FINISHED);
    assert_eq!(scan.errors.get(), BLOCKS as u64);
    let report = pool::verify(&spa).unwrap();
    let is_lost = |finding: &check::Finding| {
        matches!(
            finding,
            check::Finding::Unreadable {
                is_metadata: false,
                ..
            }
        )
    };
    let others: Vec<_> = report.findings.iter().filter(|f| !is_lost(f)).collect();
    assert!(others.is_empty(), "{others:#?}");
    assert_eq!(report.findings.len(), BLOCKS);
}
