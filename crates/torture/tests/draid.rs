//! dRAIDs that OpenZFS made: read and written here, whole and without any set of devices that may be lost, and
//! taken back by the real zdb.

use std::fmt::Write as _;
use std::sync::Arc;

use base::{ErrorKind, Guid};
use geom::Provider;
use phys::feature::DRAID;
use spa::{Spa, SpareUser};
use torture::model::World;
use torture::pool::Layout;
use torture::{Dice, golden, pool};
use vdev::{Attach, AutoAshift, NewDevice, Vdev, VdevAux, VdevKind, VdevState};
use zpl::mount::mount;

/// The name of the image, its pool, its devices, and how many of these may be lost.
const POOLS: [(&str, &str, usize, u32); 3] = [
    ("openzfs-2.3.2-draid2-2d-5c", "d2", 5, 2),
    ("openzfs-2.3.2-draid1-2d-5c-1s", "d3", 5, 1),
    // Its distributed spare has taken over for the second device.
    ("openzfs-2.3.2-draid1-2d-5c-1s-active", "d4", 5, 1),
];

fn file(spa: &Spa, dataset: &str, name: &str) -> Vec<u8> {
    let fs = mount(spa.parts().dsl(), dataset, true).unwrap();
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

#[test]
fn what_openzfs_wrote_is_read_without_any_set_of_devices_that_may_be_lost() {
    for (name, pool, count, parity) in POOLS {
        let devices = golden::disks(name, count);
        for (left, lost) in golden::without_any(&devices, parity) {
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
        pool::write_file(&spa, &format!("{pool}/fs"), "ours", &bytes);
        check_files(&spa, pool);
        pool::assert_clean(&spa);
        spa.export().unwrap();
        drop(spa);
        let spa = pool::open(&devices, false).unwrap();
        assert_eq!(file(&spa, &format!("{pool}/fs"), "ours"), bytes);
        spa.export().unwrap();
        drop(spa);
        pool::verify_with_zdb(&devices, pool);
    }
}

fn memory(count: usize) -> Vec<Arc<dyn Provider>> {
    let disk = |n| Arc::new(ram::Memory::new(format!("/disk{n}"), 192 << 20)) as _;
    (0..count).map(disk).collect()
}

fn find(spa: &Spa, name: &str) -> Arc<Vdev> {
    let devices = spa.parts().tree().devices();
    let mut found = devices.into_iter().filter(|device| device.name() == name);
    found.next().unwrap_or_else(|| panic!("no {name}"))
}

fn spares(spa: &Spa) -> Vec<(String, Guid, SpareUser)> {
    let all = spa.spares().into_iter();
    all.map(|(spare, user)| (spare.name(), spare.guid(), user))
        .collect()
}

fn finish(spa: &Spa) {
    spa.resilver_if_needed().unwrap();
    spa.wait_scan(&mut |_| true).unwrap();
}

fn steps(spa: &Spa, world: &mut World, dice: &mut Dice, count: usize) {
    for step in 0..count {
        let outcome = world.step(spa, dice);
        outcome.unwrap_or_else(|e| panic!("step {step}: {e}"));
    }
}

fn fail(device: &Vdev) {
    let leaf = device.leaf();
    leaf.set_state(VdevState::Faulted, VdevAux::ErrExceeded);
}

fn reopened(spa: Spa, disks: &[Arc<dyn Provider>]) -> Spa {
    spa.export().unwrap();
    drop(spa);
    pool::open(disks, false).unwrap()
}

#[test]
fn sim_distributed_spares_take_over_are_read_through_and_given_back() {
    // Parity, data, spares, devices.
    for (parity, data, nspares, count) in [(1, 2, 1, 5), (2, 2, 2, 7), (1, 3, 2, 6)] {
        rt::simulate(7, move || {
            let (mut dice, mut world) = (Dice::new(7), World::default());
            let disks = memory(count);
            let layout = Layout::Draid(parity, data, nspares);
            let spa = pool::create("tank", layout, 12, &disks, Box::new(|_, _| Ok(()))).unwrap();
            steps(&spa, &mut world, &mut dice, 60);
            let names: Vec<String> = spares(&spa).into_iter().map(|spare| spare.0).collect();
            let expected: Vec<String> = (0..nspares)
                .map(|n| format!("draid{parity}-0-{n}"))
                .collect();
            assert_eq!(names, expected);
            let mut spa = reopened(spa, &disks);
            // One device after the other is lost and covered, until there are no spares left.
            for (n, (name, guid, user)) in spares(&spa).into_iter().enumerate() {
                assert_eq!(user, SpareUser::None);
                let old = find(&spa, &format!("/disk{n}"));
                fail(&old);
                spa.attach_distributed(old.guid(), guid).unwrap();
                steps(&spa, &mut world, &mut dice, 30);
                finish(&spa);
                assert!(!find(&spa, &name).leaf().has_dtl(), "{name} is complete");
                assert_eq!(spares(&spa)[n].2, SpareUser::This);
                let again = spa.attach_distributed(find(&spa, "/disk4").guid(), guid);
                assert_eq!(again.unwrap_err().kind(), ErrorKind::Busy);
                world.compare(spa.parts().dsl()).unwrap();
                pool::assert_clean(&spa);
            }
            // As many others may be lost as if nothing had happened.
            steps(&spa, &mut world, &mut dice, 30);
            spa.export().unwrap();
            drop(spa);
            let (first, last) = (nspares as usize, count - 1);
            for lost in first..=last {
                let is_left =
                    |n: &usize| *n >= first && (*n < lost || *n >= lost + parity as usize);
                let left: Vec<_> = (0..count)
                    .filter(is_left)
                    .map(|n| disks[n].clone())
                    .collect();
                let spa = pool::open(&left, true).unwrap();
                world.compare(spa.parts().dsl()).unwrap();
            }
            // The first device comes back: its spare is free again.
            spa = pool::open(&disks, false).unwrap();
            finish(&spa);
            let (name, guid, _) = spares(&spa)[0].clone();
            let spare = find(&spa, &name);
            spa.detach(spare.guid()).unwrap();
            assert_eq!(spares(&spa)[0], (name.clone(), guid, SpareUser::None));
            world.compare(spa.parts().dsl()).unwrap();
            pool::assert_clean(&spa);
            // It takes over for good, and stays a spare until another device replaces it.
            let old = find(&spa, "/disk0");
            spa.attach_distributed(old.guid(), guid).unwrap();
            finish(&spa);
            spa.detach(old.guid()).unwrap();
            let spa = reopened(spa, &disks[1..]);
            assert_eq!(spares(&spa)[0], (name.clone(), guid, SpareUser::This));
            let top = spa.parts().tree().tops()[0].clone();
            assert!(matches!(top.children()[0].kind(), VdevKind::DraidSpare(_)));
            steps(&spa, &mut world, &mut dice, 30);
            world.compare(spa.parts().dsl()).unwrap();
            let new: Arc<dyn Provider> = Arc::new(ram::Memory::new("/new", 192 << 20));
            let device = NewDevice {
                kind: VdevKind::Disk,
                path: "/new".into(),
                provider: new.clone(),
            };
            let sectors = (0, AutoAshift::default());
            spa.attach(guid, &device, Attach::Replacement, sectors)
                .unwrap();
            finish(&spa);
            assert_eq!(spares(&spa)[0], (name, guid, SpareUser::None));
            world.compare(spa.parts().dsl()).unwrap();
            pool::assert_clean(&spa);
            let disks = [&disks[1..], &[new]].concat();
            let spa = reopened(spa, &disks);
            world.compare(spa.parts().dsl()).unwrap();
            pool::assert_clean(&spa);
        });
    }
}

#[test]
fn a_distributed_spare_is_of_its_own_draid_alone() {
    let disks = memory(8);
    let layout = Layout::Draid(1, 2, 1);
    let spa = pool::create("tank", layout, 12, &disks[..4], Box::new(|_, _| Ok(()))).unwrap();
    let single = NewDevice {
        kind: VdevKind::Disk,
        path: "/disk7".into(),
        provider: disks[7].clone(),
    };
    let top = vdev::TopSpec::new(vdev::Grouping::Single, vec![single]);
    let sectors = (12, AutoAshift::default());
    spa.add(&[top], &vdev::AuxSpec::default(), sectors, true)
        .unwrap();
    let guid = spares(&spa)[0].1;
    let other = find(&spa, "/disk7").guid();
    let refused = spa.attach_distributed(other, guid).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    let refused = spa.attach_distributed(other, Guid(1)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
}

#[test]
fn sim_a_distributed_spare_is_taken_for_a_device_that_is_gone() {
    rt::simulate(8, || {
        let (mut dice, mut world) = (Dice::new(8), World::default());
        let disks = memory(7);
        let layout = Layout::Draid(1, 3, 2);
        let spa = pool::create("tank", layout, 12, &disks, Box::new(|_, _| Ok(()))).unwrap();
        steps(&spa, &mut world, &mut dice, 60);
        spa.export().unwrap();
        drop(spa);
        // One after the other is gone: each time a spare is taken without being asked for.
        for gone in 1..=2 {
            let spa = pool::open(&disks[gone..], false).unwrap();
            let none = |path: &str| Err(base::Error::not_found(path.to_owned()));
            spa.watch_spares(Arc::new(none)).unwrap();
            let users = spares(&spa).into_iter().map(|(.., user)| user);
            let taken = users.filter(|user| *user == SpareUser::This).count();
            assert_eq!(taken, gone);
            finish(&spa);
            steps(&spa, &mut world, &mut dice, 30);
            world.compare(spa.parts().dsl()).unwrap();
            pool::assert_clean(&spa);
            spa.export().unwrap();
        }
        // Without a third one everything is there as well.
        let spa = pool::open(&disks[3..], true).unwrap();
        world.compare(spa.parts().dsl()).unwrap();
    });
}
