//! Hot spares: taken for devices that fail, given back, shared between pools; those of OpenZFS.

use std::sync::Arc;

use base::{Error, ErrorKind, Guid};
use geom::Provider;
use ram::Memory;
use spa::{Spa, SpareUser};
use torture::golden::golden;
use torture::model::World;
use torture::pool::{self, Layout};
use torture::{Dice, seed};
use vdev::label::owner;
use vdev::{Attach, AutoAshift, AuxSpec, NewDevice, PoolState, Vdev, VdevAux, VdevKind, VdevState};

const DISK_BYTES: u64 = 128 << 20;
const SECTORS: (u32, AutoAshift) = (
    0,
    AutoAshift {
        min: phys::label::ASHIFT_MIN,
        max: 14,
    },
);

fn memory(count: usize) -> Vec<Arc<dyn Provider>> {
    let disk = |n| Arc::new(Memory::new(format!("/disk{n}"), DISK_BYTES)) as _;
    (0..count).map(disk).collect()
}

fn no_root() -> dsl::ObjsetInit {
    Box::new(|_, _| Ok(()))
}

fn new_device(provider: &Arc<dyn Provider>) -> NewDevice {
    NewDevice {
        kind: VdevKind::Disk,
        path: provider.name().to_owned(),
        provider: Arc::clone(provider),
    }
}

fn add_spares(spa: &Spa, disks: &[Arc<dyn Provider>]) -> base::Result<()> {
    let spares = disks.iter().map(new_device).collect();
    spa.add(
        &[],
        &AuxSpec {
            spares,
            caches: Vec::new(),
        },
        SECTORS,
        true,
    )
}

fn replace(spa: &Spa, old: Guid, new: &Arc<dyn Provider>) -> base::Result<()> {
    spa.attach(old, &new_device(new), Attach::Replacement, SECTORS)
}

/// Spares are taken without being asked from now on.
fn watch(spa: &Spa, disks: &[Arc<dyn Provider>]) {
    let disks = disks.to_vec();
    let open = move |path: &str| {
        let mut all = disks.iter();
        let found = all.find(|disk| disk.name() == path).cloned();
        found.ok_or_else(|| Error::not_found(path.to_owned()))
    };
    spa.watch_spares(Arc::new(open)).unwrap();
}

fn find(spa: &Spa, name: &str) -> Arc<Vdev> {
    let devices = spa.parts().tree().devices();
    let mut found = devices.into_iter().filter(|device| device.name() == name);
    found.next().unwrap_or_else(|| panic!("no {name}"))
}

fn users(spa: &Spa) -> Vec<(String, SpareUser)> {
    let spares = spa.spares().into_iter();
    spares.map(|(spare, user)| (spare.name(), user)).collect()
}

fn steps(spa: &Spa, world: &mut World, dice: &mut Dice, count: usize) {
    for step in 0..count {
        let outcome = world.step(spa, dice);
        outcome.unwrap_or_else(|e| panic!("step {step}: {e}"));
    }
}

fn finish(spa: &Spa) {
    spa.resilver_if_needed().unwrap();
    spa.wait_scan(&mut |_| true).unwrap();
}

fn fail(device: &Vdev) {
    let leaf = device.leaf();
    leaf.set_state(VdevState::Faulted, VdevAux::ErrExceeded);
}

#[test]
fn a_resilver_of_openzfs_to_a_spare_is_ended_here() {
    let disks = ["b", "c", "d"].map(|n| golden(&format!("openzfs-2.3.2-spare-half-{n}")));
    let spa = pool::open(&disks, false).unwrap();
    assert!(!spa.is_readonly(), "{:?}", spa.obstacles());
    let expected = [
        (disks[1].name().to_owned(), SpareUser::None),
        (disks[2].name().to_owned(), SpareUser::This),
    ];
    assert_eq!(users(&spa), expected);
    let tops = spa.parts().tree().tops();
    let spare = &tops[0].children()[0];
    assert_eq!((spare.kind(), spare.children().len()), (VdevKind::Spare, 2));
    finish(&spa);
    assert!(!find(&spa, disks[2].name()).leaf().has_dtl());
    assert!(spa.scan().unwrap().processed.get() > 2 << 20);
    pool::assert_clean(&spa);
    // The spare takes the place of what it has taken over for.
    let offline = spare.children()[0].guid();
    spa.detach(offline).unwrap();
    assert_eq!(users(&spa), expected[..1]);
    spa.export().unwrap();
    drop(spa);
    assert!(!owner(&*disks[2]).unwrap().is_spare);
    let spa = pool::open(&disks, false).unwrap();
    assert_eq!(users(&spa), expected[..1]);
    pool::assert_clean(&spa);
}

#[test]
fn sim_a_spare_is_taken_while_the_pool_is_in_use_and_given_back_by_itself() {
    rt::simulate(5, || {
        let (mut dice, mut world) = (Dice::new(5), World::default());
        let disks = memory(6);
        let spa = pool::create("tank", Layout::Raidz(1), 12, &disks[..3], no_root()).unwrap();
        add_spares(&spa, &disks[3..5]).unwrap();
        watch(&spa, &disks);
        steps(&spa, &mut world, &mut dice, 60);
        fail(&find(&spa, "/disk1"));
        steps(&spa, &mut world, &mut dice, 60);
        spa.sync().unwrap();
        assert_eq!(users(&spa)[0].1, SpareUser::This);
        finish(&spa);
        // The spare fails, too: the next one is taken.
        fail(&find(&spa, "/disk3"));
        steps(&spa, &mut world, &mut dice, 40);
        spa.sync().unwrap();
        assert_eq!(users(&spa)[1].1, SpareUser::This);
        finish(&spa);
        // The others have everything.
        fail(&find(&spa, "/disk0"));
        world.compare(spa.parts().dsl()).unwrap();
        spa.export().unwrap();
        drop(spa);
        let spa = pool::open(&disks, false).unwrap();
        finish(&spa);
        world.compare(spa.parts().dsl()).unwrap();
        spa.detach(find(&spa, "/disk3").guid()).unwrap();
        let old = find(&spa, "/disk1").guid();
        replace(&spa, old, &disks[5]).unwrap();
        steps(&spa, &mut world, &mut dice, 20);
        finish(&spa);
        let free = ["/disk3", "/disk4"].map(|name| (name.to_owned(), SpareUser::None));
        assert_eq!(users(&spa), free);
        for disk in &disks[3..5] {
            assert_eq!(owner(&**disk).unwrap().state, PoolState::Spare);
        }
        let names = spa.parts().tree().devices();
        let names: Vec<String> = names.iter().map(|device| device.name()).collect();
        assert_eq!(names, ["/disk0", "/disk5", "/disk2"]);
        world.compare(spa.parts().dsl()).unwrap();
        pool::assert_clean(&spa);
    });
}

#[test]
fn sim_a_device_that_is_gone_when_the_pool_is_opened_gets_a_spare() {
    rt::simulate(6, || {
        let (mut dice, mut world) = (Dice::new(6), World::default());
        let disks = memory(5);
        let spa = pool::create("tank", Layout::Mirror, 12, &disks[..2], no_root()).unwrap();
        // The first one is too small to be of use.
        let small: Arc<dyn Provider> = Arc::new(Memory::new("/small", DISK_BYTES / 2));
        add_spares(&spa, &[small.clone(), disks[2].clone(), disks[3].clone()]).unwrap();
        steps(&spa, &mut world, &mut dice, 60);
        spa.export().unwrap();
        drop(spa);
        let left: Vec<_> = [&disks[1..], &[small]].concat();
        let spa = pool::open(&left, false).unwrap();
        watch(&spa, &left);
        let user = |name: &str| {
            let users = users(&spa);
            users.into_iter().find(|(n, _)| n == name).unwrap().1
        };
        assert_eq!(user("/small"), SpareUser::None);
        assert_eq!(user("/disk2"), SpareUser::This);
        assert_eq!(user("/disk3"), SpareUser::None);
        finish(&spa);
        // Given back by hand, it is not taken again as long as the pool is open.
        spa.detach(find(&spa, "/disk2").guid()).unwrap();
        spa.force_sync().unwrap();
        assert_eq!(user("/disk2"), SpareUser::None);
        world.compare(spa.parts().dsl()).unwrap();
        // One that was taken offline needs none.
        spa.export().unwrap();
        drop(spa);
        let spa = pool::open(&disks, false).unwrap();
        finish(&spa);
        let first = find(&spa, "/disk0").guid();
        spa.parts().tree().offline(first, false).unwrap();
        watch(&spa, &disks);
        spa.force_sync().unwrap();
        assert!(users(&spa).iter().all(|(_, user)| *user == SpareUser::None));
    });
}

#[test]
fn sim_pools_share_a_spare() {
    rt::simulate(7, || {
        let disks = memory(4);
        let one = pool::create("one", Layout::Stripe, 12, &disks[..1], no_root()).unwrap();
        let two = pool::create("two", Layout::Stripe, 12, &disks[1..2], no_root()).unwrap();
        add_spares(&one, &disks[2..3]).unwrap();
        let guid = one.spares()[0].0.guid();
        let again = add_spares(&one, &disks[2..3]).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Busy);
        add_spares(&two, &disks[2..3]).unwrap();
        assert_eq!(two.spares()[0].0.guid(), guid);
        replace(&one, find(&one, "/disk0").guid(), &disks[2]).unwrap();
        finish(&one);
        assert_eq!(users(&one)[0].1, SpareUser::This);
        assert_eq!(users(&two)[0].1, SpareUser::Other("one".to_owned()));
        assert_eq!(one.remove_spare(guid).unwrap_err().kind(), ErrorKind::Busy);
        watch(&two, &disks);
        let second = find(&two, "/disk1");
        let leaf = second.leaf();
        leaf.set_state(VdevState::Degraded, VdevAux::ErrExceeded);
        two.force_sync().unwrap();
        assert_eq!(two.parts().tree().devices().len(), 1, "it is in use");
        one.detach(find(&one, "/disk2").guid()).unwrap();
        assert_eq!(users(&two)[0].1, SpareUser::None);
        leaf.set_state(VdevState::Healthy, VdevAux::None);
        two.force_sync().unwrap();
        leaf.set_state(VdevState::Degraded, VdevAux::ErrExceeded);
        two.force_sync().unwrap();
        assert_eq!(users(&two)[0].1, SpareUser::This);
        assert_eq!(users(&one)[0].1, SpareUser::Other("two".to_owned()));
        one.remove_spare(guid).unwrap();
        assert_eq!(users(&one), []);
        finish(&two);
        pool::assert_clean(&two);
    });
}

#[test]
fn sim_what_spares_cannot_do_is_refused() {
    rt::simulate(8, || {
        let disks = memory(8);
        let kind = |outcome: base::Result<()>| outcome.unwrap_err().kind();
        let spa = pool::create("tank", Layout::Classes, 12, &disks[..4], no_root()).unwrap();
        add_spares(&spa, &disks[4..6]).unwrap();
        let guid = |name: &str| find(&spa, name).guid();
        for reserved in ["/disk1", "/disk2", "/disk3"] {
            let replaced = replace(&spa, guid(reserved), &disks[4]);
            assert_eq!(kind(replaced), ErrorKind::Unsupported, "{reserved}");
        }
        replace(&spa, guid("/disk0"), &disks[4]).unwrap();
        let twice = replace(&spa, guid("/disk0"), &disks[5]);
        assert_eq!(kind(twice), ErrorKind::Unsupported);
        let by_other = replace(&spa, guid("/disk4"), &disks[6]);
        assert_eq!(kind(by_other), ErrorKind::Unsupported);
        let itself = replace(&spa, guid("/disk0"), &disks[4]);
        assert_eq!(kind(itself), ErrorKind::Busy);
        let side = spa.attach(
            guid("/disk1"),
            &new_device(&disks[5]),
            Attach::Side,
            SECTORS,
        );
        assert_eq!(kind(side), ErrorKind::Busy);
        assert_eq!(kind(spa.remove_spare(Guid(7))), ErrorKind::NotFound);
        let tiny: Arc<dyn Provider> = Arc::new(Memory::new("/tiny", 1 << 20));
        assert_eq!(kind(add_spares(&spa, &[tiny])), ErrorKind::TooBig);
        let same = add_spares(&spa, &[disks[7].clone(), disks[7].clone()]);
        assert_eq!(kind(same), ErrorKind::Busy);
    });
}

/// Devices fail, come back, are replaced, spares are given back, in any order; a model says which spares are free.
#[test]
fn sim_prop_no_spare_is_lost_or_taken_twice() {
    for run in 0..6 {
        let seed = seed(40) ^ run;
        rt::simulate(seed, move || prop_spares(seed));
    }
}

fn prop_spares(seed: u64) {
    let (mut dice, mut world) = (Dice::new(seed), World::default());
    let disks = memory(9);
    let spa = pool::create("tank", Layout::Raidz(2), 12, &disks[..5], no_root()).unwrap();
    add_spares(&spa, &disks[5..8]).unwrap();
    watch(&spa, &disks);
    for step in 0..14 {
        steps(&spa, &mut world, &mut dice, 8);
        let devices = spa.parts().tree().devices();
        let device = &devices[dice.below(devices.len() as u64) as usize];
        let is_spare = device.config().is_spare;
        match dice.below(4) {
            0 => {
                if spa.parts().tree().fault(device.guid(), false).is_ok() {
                    spa.force_sync().unwrap();
                }
            }
            1 => {
                spa.parts().tree().clear(None).unwrap();
                finish(&spa);
            }
            2 if is_spare => {
                let _ = spa.detach(device.guid());
            }
            2 => {
                let free = disks.iter().find(|disk| owner(&***disk).is_none());
                if let Some(free) = free {
                    let _ = replace(&spa, device.guid(), free);
                }
            }
            _ => finish(&spa),
        }
        let tree = spa.parts().tree();
        for (spare, user) in spa.spares() {
            let is_in_tree = tree.find(spare.guid()).is_some();
            let expected = if is_in_tree {
                SpareUser::This
            } else {
                SpareUser::None
            };
            assert_eq!(user, expected, "SEED={seed} step {step}: {}", spare.name());
            let at = disks.iter().find(|disk| disk.name() == spare.name());
            let state = owner(&**at.unwrap()).unwrap().state;
            let labelled = if is_in_tree {
                PoolState::Active
            } else {
                PoolState::Spare
            };
            assert_eq!(state, labelled, "SEED={seed} step {step}: {}", spare.name());
        }
        let listed: Vec<Guid> = spa.spares().iter().map(|(s, _)| s.guid()).collect();
        for device in tree.devices() {
            let is_listed = listed.contains(&device.guid());
            assert_eq!(device.config().is_spare, is_listed, "SEED={seed}");
        }
        world.compare(spa.parts().dsl()).unwrap();
    }
    spa.parts().tree().clear(None).unwrap();
    finish(&spa);
    pool::assert_clean(&spa);
}
