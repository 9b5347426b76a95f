//! Pools whose devices are attached, detached, replaced and added to, and which get another guid, while they are
//! worked on: nothing is lost, whenever the power is cut, and the real `zdb` finds no fault.
//!
//! `CUTS=all` tries every single write; the default takes a sample.

use std::path::Path;
use std::sync::Arc;

use base::{ErrorKind, Guid};
use faulty::{PowerCut, PowerSupply};
use geom::Provider;
use geom::disk::OpenMode;
use oracle::{Zdb, have_zdb};
use phys::scan::DSS_FINISHED;
use ram::Memory;
use spa::{Spa, SpareUser};
use torture::cuts::{self, Step};
use torture::model::World;
use torture::pool::{self, Layout};
use torture::{Dice, seed};
use vdev::{
    Attach, AutoAshift, AuxSpec, Grouping, NewDevice, TopSpec, VdevAux, VdevKind, VdevState,
};

const DISK_BYTES: u64 = 128 << 20;
const CUTS: u64 = 50;
/// What a pool gets for a guid.
const NEW_GUID: Guid = Guid(1234);

fn new_device(provider: &Arc<dyn Provider>) -> NewDevice {
    NewDevice {
        kind: VdevKind::Disk,
        path: provider.name().to_owned(),
        provider: Arc::clone(provider),
    }
}

fn attach(spa: &Spa, beside: usize, new: &Arc<dyn Provider>, how: Attach) -> base::Result<()> {
    spa.attach(
        guid_of(spa, beside),
        &new_device(new),
        how,
        (0, AutoAshift::default()),
    )
}

fn guid_of(spa: &Spa, device: usize) -> Guid {
    spa.parts().tree().devices()[device].guid()
}

fn add(spa: &Spa, grouping: Grouping, devices: &[Arc<dyn Provider>]) -> base::Result<()> {
    let devices = devices.iter().map(new_device).collect();
    spa.add(
        &[TopSpec::new(grouping, devices)],
        &AuxSpec::default(),
        (0, AutoAshift::default()),
        true,
    )
}

/// The tree in words: `mirror(disk0 disk1) spares(disk2!)`, with a mark behind spares in use, and `-off` behind what is
/// not allocated from; `reguid` behind it if the
/// pool has the new guid.
fn shape(spa: &Spa) -> String {
    fn words(vdev: &Arc<vdev::Vdev>) -> String {
        if vdev.kind().is_device() {
            return vdev.name().trim_start_matches('/').to_owned();
        }
        let children: Vec<String> = vdev.children().iter().map(words).collect();
        format!("{}({})", vdev.kind().word(), children.join(" "))
    }
    // What the property says is so.
    let top = |top: &Arc<vdev::Vdev>| {
        let set = spa.vdev_props(top.guid()).ok();
        let set = set.and_then(|set| set.get("allocating").cloned());
        let is_off = set == Some(phys::PropValue::Number(0));
        assert_eq!(top.config().non_allocating, is_off);
        words(top) + if is_off { "-off" } else { "" }
    };
    let mut tops: Vec<String> = spa.parts().tree().tops().iter().map(top).collect();
    let spares = spa.spares();
    let spares = spares.iter().map(|(spare, user)| {
        let mark = match user {
            SpareUser::None => "",
            SpareUser::This => "!",
            SpareUser::Other(_) => "?",
        };
        format!("{}{mark}", spare.name().trim_start_matches('/'))
    });
    let spares: Vec<String> = spares.collect();
    if !spares.is_empty() {
        tops.push(format!("spares({})", spares.join(" ")));
    }
    if spa.guid() == NEW_GUID {
        tops.push("reguid".to_owned());
    }
    tops.join(" ")
}

/// Waits for the resilver, after which no device lacks anything.
fn finish(spa: &Spa) {
    spa.resilver_if_needed().unwrap();
    spa.wait_scan(&mut |_| true).unwrap();
    for device in spa.parts().tree().devices() {
        let leaf = device.leaf();
        assert!(!leaf.has_dtl(), "{}: {:?}", device.name(), leaf.dtl());
    }
}

fn steps(spa: &Spa, world: &mut World, dice: &mut Dice, count: usize) {
    for step in 0..count {
        let outcome = world.step(spa, dice);
        outcome.unwrap_or_else(|e| panic!("step {step}: {e}"));
    }
}

/// What is done to a pool, with these disks.
type Act = fn(&Spa, &[Arc<dyn Provider>]);

/// A change of the tree: what the pool is made of, how many disks there are, what is done before, what is done, and
/// what the tree may be after a power cut, when the resilver has ended.
struct Change {
    layout: Layout,
    first: usize,
    disks: usize,
    prepare: Act,
    act: Act,
    outcomes: &'static [&'static str],
}

const ATTACH: Change = Change {
    layout: Layout::Stripe,
    first: 1,
    disks: 2,
    prepare: |_, _| (),
    act: |spa, disks| attach(spa, 0, &disks[1], Attach::Side).unwrap(),
    outcomes: &["disk0", "mirror(disk0 disk1)"],
};

const ATTACH_TO_MIRROR: Change = Change {
    layout: Layout::Mirror,
    first: 2,
    disks: 3,
    prepare: |_, _| (),
    act: |spa, disks| attach(spa, 1, &disks[2], Attach::Side).unwrap(),
    outcomes: &["mirror(disk0 disk1)", "mirror(disk0 disk1 disk2)"],
};

const DETACH: Change = Change {
    layout: Layout::Mirror,
    first: 2,
    disks: 2,
    prepare: |_, _| (),
    act: |spa, _| spa.detach(guid_of(spa, 0)).unwrap(),
    outcomes: &["mirror(disk0 disk1)", "disk1"],
};

const ADD: Change = Change {
    layout: Layout::Mirror,
    first: 2,
    disks: 7,
    prepare: |_, _| (),
    act: |spa, disks| {
        add(spa, Grouping::Mirror, &disks[2..4]).unwrap();
        add(spa, Grouping::Raidz { parity: 1 }, &disks[4..7]).unwrap();
    },
    outcomes: &[
        "mirror(disk0 disk1)",
        "mirror(disk0 disk1) mirror(disk2 disk3)",
        "mirror(disk0 disk1) mirror(disk2 disk3) raidz(disk4 disk5 disk6)",
    ],
};

/// Nothing is allocated from a vdev any more.
const PASSIVATE: Change = Change {
    layout: Layout::Stripe,
    first: 2,
    disks: 2,
    prepare: |_, _| (),
    act: |spa, _| spa.set_allocating(guid_of(spa, 0), false).unwrap(),
    outcomes: &["disk0 disk1", "disk0-off disk1"],
};

const ACTIVATE: Change = Change {
    layout: Layout::Stripe,
    first: 2,
    disks: 2,
    prepare: |spa, _| spa.set_allocating(guid_of(spa, 0), false).unwrap(),
    act: |spa, _| spa.set_allocating(guid_of(spa, 0), true).unwrap(),
    outcomes: &["disk0-off disk1", "disk0 disk1"],
};

const REPLACE: Change = Change {
    layout: Layout::Stripe,
    first: 1,
    disks: 2,
    prepare: |_, _| (),
    act: |spa, disks| attach(spa, 0, &disks[1], Attach::Replacement).unwrap(),
    outcomes: &["disk0", "disk1"],
};

const REPLACE_IN_MIRROR: Change = Change {
    layout: Layout::Mirror,
    first: 2,
    disks: 3,
    prepare: |_, _| (),
    act: |spa, disks| attach(spa, 0, &disks[2], Attach::Replacement).unwrap(),
    outcomes: &["mirror(disk0 disk1)", "mirror(disk2 disk1)"],
};

const REPLACE_IN_RAIDZ: Change = Change {
    layout: Layout::Raidz(1),
    first: 3,
    disks: 4,
    prepare: |_, _| (),
    act: |spa, disks| attach(spa, 1, &disks[3], Attach::Replacement).unwrap(),
    outcomes: &["raidz(disk0 disk1 disk2)", "raidz(disk0 disk3 disk2)"],
};

const REGUID: Change = Change {
    layout: Layout::Mirror,
    first: 2,
    disks: 2,
    prepare: |_, _| (),
    act: |spa, _| spa.change_guid(Some(NEW_GUID)).unwrap(),
    outcomes: &["mirror(disk0 disk1)", "mirror(disk0 disk1) reguid"],
};

const ADD_SPARES: Change = Change {
    layout: Layout::Mirror,
    first: 2,
    disks: 4,
    prepare: |_, _| (),
    act: |spa, disks| add_spares(spa, &disks[2..4]),
    outcomes: &[
        "mirror(disk0 disk1)",
        "mirror(disk0 disk1) spares(disk2 disk3)",
    ],
};

const REMOVE_SPARE: Change = Change {
    layout: Layout::Mirror,
    first: 2,
    disks: 4,
    prepare: |spa, disks| add_spares(spa, &disks[2..4]),
    act: |spa, _| spa.remove_spare(spa.spares()[0].0.guid()).unwrap(),
    outcomes: &[
        "mirror(disk0 disk1) spares(disk2 disk3)",
        "mirror(disk0 disk1) spares(disk3)",
    ],
};

const TAKE_SPARE: Change = Change {
    layout: Layout::Mirror,
    first: 2,
    disks: 3,
    prepare: |spa, disks| add_spares(spa, &disks[2..3]),
    act: take_spare,
    outcomes: &[
        "mirror(disk0 disk1) spares(disk2)",
        "mirror(spare(disk0 disk2) disk1) spares(disk2!)",
    ],
};

const TAKE_SPARE_FOR_ALL: Change = Change {
    layout: Layout::Stripe,
    first: 1,
    disks: 2,
    prepare: |spa, disks| add_spares(spa, &disks[1..2]),
    act: |spa, disks| attach(spa, 0, &disks[1], Attach::Replacement).unwrap(),
    outcomes: &["disk0 spares(disk1)", "spare(disk0 disk1) spares(disk1!)"],
};

const GIVE_SPARE_BACK: Change = Change {
    layout: Layout::Mirror,
    first: 2,
    disks: 3,
    prepare: with_spare_in_use,
    act: |spa, _| spa.detach(guid_of(spa, 1)).unwrap(),
    outcomes: &[
        "mirror(spare(disk0 disk2) disk1) spares(disk2!)",
        "mirror(disk0 disk1) spares(disk2)",
    ],
};

const KEEP_SPARE: Change = Change {
    layout: Layout::Mirror,
    first: 2,
    disks: 3,
    prepare: with_spare_in_use,
    act: |spa, _| spa.detach(guid_of(spa, 0)).unwrap(),
    outcomes: &[
        "mirror(spare(disk0 disk2) disk1) spares(disk2!)",
        "mirror(disk2 disk1)",
    ],
};

const REPLACE_WHAT_IS_SPARED: Change = Change {
    layout: Layout::Raidz(1),
    first: 3,
    disks: 5,
    prepare: |spa, disks| {
        add_spares(spa, &disks[3..4]);
        attach(spa, 0, &disks[3], Attach::Replacement).unwrap();
        finish(spa);
    },
    act: |spa, disks| attach(spa, 0, &disks[4], Attach::Replacement).unwrap(),
    outcomes: &[
        "raidz(spare(disk0 disk3) disk1 disk2) spares(disk3!)",
        "raidz(disk4 disk1 disk2) spares(disk3)",
    ],
};

const REPLACE_SPARE: Change = Change {
    layout: Layout::Mirror,
    first: 2,
    disks: 4,
    prepare: |spa, disks| {
        add_spares(spa, &disks[2..4]);
        attach(spa, 0, &disks[2], Attach::Replacement).unwrap();
        finish(spa);
    },
    act: |spa, disks| attach(spa, 1, &disks[3], Attach::Replacement).unwrap(),
    outcomes: &[
        "mirror(spare(disk0 disk2) disk1) spares(disk2! disk3)",
        "mirror(spare(disk0 disk3) disk1) spares(disk2 disk3!)",
    ],
};

fn add_spares(spa: &Spa, disks: &[Arc<dyn Provider>]) {
    let spares = disks.iter().map(new_device).collect();
    let aux = AuxSpec {
        spares,
        caches: Vec::new(),
    };
    spa.add(&[], &aux, (0, AutoAshift::default()), true)
        .unwrap();
}

/// A device fails: a spare is taken without being asked.
fn take_spare(spa: &Spa, disks: &[Arc<dyn Provider>]) {
    let disks = disks.to_vec();
    let open = move |path: &str| {
        let mut all = disks.iter();
        let found = all.find(|disk| disk.name() == path).cloned();
        found.ok_or_else(|| base::Error::not_found(path.to_owned()))
    };
    spa.watch_spares(Arc::new(open)).unwrap();
    let failing = &spa.parts().tree().devices()[0];
    failing
        .leaf()
        .set_state(VdevState::Degraded, VdevAux::ErrExceeded);
    spa.force_sync().unwrap();
}

fn with_spare_in_use(spa: &Spa, disks: &[Arc<dyn Provider>]) {
    add_spares(spa, &disks[2..3]);
    attach(spa, 0, &disks[2], Attach::Replacement).unwrap();
    finish(spa);
}

/// What happened on the disks, and what the pool should hold after each step.
struct Recording {
    disks: Vec<Arc<PowerCut>>,
    first: u64,
    commands: u64,
    /// After each step: the world, and the number of commands after which it was known to be on disk.
    worlds: Vec<Step>,
}

/// Works on a pool, changes its tree, works on, and lets the resilver end.
fn record(change: &Change, seed: u64) -> Recording {
    let supply = PowerSupply::new();
    let disk = |n| PowerCut::fed_by(&supply, format!("/disk{n}"), DISK_BYTES, 512);
    let disks: Vec<Arc<PowerCut>> = (0..change.disks).map(|n| Arc::new(disk(n))).collect();
    let providers: Vec<Arc<dyn Provider>> = disks.iter().map(|disk| disk.clone() as _).collect();
    let (mut dice, mut world) = (Dice::new(seed), World::default());
    let no_root = Box::new(|_: &_, _: &_| Ok(()));
    let first = &providers[..change.first];
    let spa = pool::create("tank", change.layout, 9, first, no_root).unwrap();
    (change.prepare)(&spa, &providers);
    steps(&spa, &mut world, &mut dice, 40);
    spa.sync().unwrap();
    disks.iter().for_each(|disk| disk.forget());
    let begin = supply.commands();
    let mut worlds = vec![(world.clone(), Some(begin))];
    assert_eq!(shape(&spa), change.outcomes[0]);
    (change.act)(&spa, &providers);
    worlds.push((world.clone(), Some(supply.commands())));
    for _ in 0..6 {
        steps(&spa, &mut world, &mut dice, 1);
        worlds.push((world.clone(), None));
    }
    spa.sync().unwrap();
    worlds.push((world.clone(), Some(supply.commands())));
    finish(&spa);
    assert_eq!(shape(&spa), *change.outcomes.last().unwrap());
    world.compare(spa.parts().dsl()).unwrap();
    pool::assert_clean(&spa);
    spa.close().unwrap();
    Recording {
        first: begin,
        commands: supply.commands(),
        disks,
        worlds,
    }
}

impl Recording {
    /// Cuts the power after the n-th command, opens what is left, and returns the shape in which it settles.
    fn cut(&self, n: u64, seed: u64) -> Result<String, String> {
        let image = |disk: &Arc<PowerCut>| Arc::new(disk.image_after(n, seed)) as Arc<dyn Provider>;
        let images: Vec<_> = self.disks.iter().map(image).collect();
        let spa = pool::open(&images, false).map_err(|e| format!("import: {e}"))?;
        let is_absent = |device: &Arc<vdev::Vdev>| !device.leaf().is_usable();
        if let Some(absent) = spa
            .parts()
            .tree()
            .devices()
            .iter()
            .find(|device| is_absent(device))
        {
            return Err(format!("{} is absent", absent.name()));
        }
        cuts::find(&self.worlds, &spa, n)?;
        finish(&spa);
        let report = pool::verify(&spa).map_err(|e| format!("check: {e}"))?;
        if !report.is_clean() {
            return Err(format!("findings: {:#?}", report.findings));
        }
        let settled = shape(&spa);
        spa.export().map_err(|e| format!("export: {e}"))?;
        Ok(settled)
    }
}

fn cut_everywhere(change: &Change, seed: u64) {
    let recording = record(change, seed);
    let changed = recording.worlds[1].1.expect("the change was synced");
    // After the n-th command, the index of the outcome.
    let outcome = |n: u64| {
        let settled = recording.cut(n, seed ^ n)?;
        let at = change.outcomes.iter().position(|shape| *shape == settled);
        let at = at.ok_or_else(|| settled.clone())?;
        let is_last = at + 1 == change.outcomes.len();
        if is_last || n < changed {
            Ok(at)
        } else {
            Err(format!("{settled} again"))
        }
    };
    let sample = cuts::everywhere(recording.first..=recording.commands, CUTS, seed, outcome);
    // Where one outcome becomes another one, every command counts.
    for pair in sample.windows(2) {
        if let [(before, old), (after, new)] = pair
            && old != new
        {
            (before + 1..*after).for_each(|n| {
                let seen = outcome(n);
                seen.unwrap_or_else(|e| panic!("SEED={seed}, cut after {n}: {e}"));
            });
        }
    }
    let seen: std::collections::BTreeSet<usize> = sample.into_iter().map(|(_, at)| at).collect();
    assert_eq!(
        seen.len(),
        change.outcomes.len(),
        "not every outcome was seen"
    );
}

#[test]
fn sim_power_cuts_while_a_device_is_attached() {
    let seed = seed(21);
    rt::simulate(seed, move || cut_everywhere(&ATTACH, seed));
}

#[test]
fn sim_power_cuts_while_a_device_is_attached_to_a_mirror() {
    let seed = seed(22);
    rt::simulate(seed, move || cut_everywhere(&ATTACH_TO_MIRROR, seed));
}

#[test]
fn sim_power_cuts_while_a_device_is_detached() {
    let seed = seed(23);
    rt::simulate(seed, move || cut_everywhere(&DETACH, seed));
}

#[test]
fn sim_power_cuts_while_vdevs_are_added() {
    let seed = seed(24);
    rt::simulate(seed, move || cut_everywhere(&ADD, seed));
}

#[test]
fn sim_power_cuts_while_a_device_is_replaced() {
    let seed = seed(25);
    rt::simulate(seed, move || cut_everywhere(&REPLACE, seed));
}

#[test]
fn sim_power_cuts_while_a_side_of_a_mirror_is_replaced() {
    let seed = seed(26);
    rt::simulate(seed, move || cut_everywhere(&REPLACE_IN_MIRROR, seed));
}

#[test]
fn sim_power_cuts_while_a_device_of_a_raidz_is_replaced() {
    let seed = seed(27);
    rt::simulate(seed, move || cut_everywhere(&REPLACE_IN_RAIDZ, seed));
}

#[test]
fn sim_power_cuts_while_a_pool_gets_another_guid() {
    let seed = seed(28);
    rt::simulate(seed, move || cut_everywhere(&REGUID, seed));
}

#[test]
fn sim_power_cuts_while_a_vdev_is_taken_out_of_allocation_and_back() {
    let seed = seed(29);
    rt::simulate(seed, move || {
        cut_everywhere(&PASSIVATE, seed);
        cut_everywhere(&ACTIVATE, seed);
    });
}

#[test]
fn sim_power_cuts_while_spares_are_added() {
    let seed = seed(31);
    rt::simulate(seed, move || cut_everywhere(&ADD_SPARES, seed));
}

#[test]
fn sim_power_cuts_while_a_spare_is_removed() {
    let seed = seed(32);
    rt::simulate(seed, move || cut_everywhere(&REMOVE_SPARE, seed));
}

#[test]
fn sim_power_cuts_while_a_spare_is_taken_for_a_device_that_failed() {
    let seed = seed(33);
    rt::simulate(seed, move || cut_everywhere(&TAKE_SPARE, seed));
}

#[test]
fn sim_power_cuts_while_a_spare_is_taken_for_the_only_device() {
    let seed = seed(34);
    rt::simulate(seed, move || cut_everywhere(&TAKE_SPARE_FOR_ALL, seed));
}

#[test]
fn sim_power_cuts_while_a_spare_is_given_back() {
    let seed = seed(35);
    rt::simulate(seed, move || cut_everywhere(&GIVE_SPARE_BACK, seed));
}

#[test]
fn sim_power_cuts_while_a_spare_becomes_permanent() {
    let seed = seed(36);
    rt::simulate(seed, move || cut_everywhere(&KEEP_SPARE, seed));
}

#[test]
fn sim_power_cuts_while_what_a_spare_stands_in_for_is_replaced() {
    let seed = seed(37);
    rt::simulate(seed, move || cut_everywhere(&REPLACE_WHAT_IS_SPARED, seed));
}

#[test]
fn sim_power_cuts_while_a_spare_is_replaced_by_another_one() {
    let seed = seed(38);
    rt::simulate(seed, move || cut_everywhere(&REPLACE_SPARE, seed));
}

fn memory(count: usize) -> Vec<Arc<dyn Provider>> {
    let disk = |n| Arc::new(Memory::new(format!("/disk{n}"), DISK_BYTES)) as _;
    (0..count).map(disk).collect()
}

fn no_root() -> dsl::ObjsetInit {
    Box::new(|_, _| Ok(()))
}

/// The disk that was attached has everything: the others are not needed any more.
#[test]
fn sim_what_is_attached_has_everything_in_the_end() {
    rt::simulate(3, || {
        let (mut dice, mut world) = (Dice::new(3), World::default());
        let disks = memory(3);
        let spa = pool::create("tank", Layout::Stripe, 12, &disks[..1], no_root()).unwrap();
        steps(&spa, &mut world, &mut dice, 100);
        // A scrub that runs meanwhile gives way.
        spa.scrub().unwrap();
        attach(&spa, 0, &disks[1], Attach::Side).unwrap();
        assert_eq!(spa.scan_running(), Some(scan::Kind::Resilver));
        steps(&spa, &mut world, &mut dice, 20);
        attach(&spa, 0, &disks[2], Attach::Side).unwrap();
        steps(&spa, &mut world, &mut dice, 20);
        finish(&spa);
        let scan = spa.scan().unwrap();
        assert_eq!((scan.state.get(), scan.errors.get()), (DSS_FINISHED, 0));
        spa.detach(guid_of(&spa, 0)).unwrap();
        steps(&spa, &mut world, &mut dice, 20);
        spa.detach(guid_of(&spa, 0)).unwrap();
        assert_eq!(shape(&spa), "disk2");
        let free_again = vdev::label::owner(&*disks[0]);
        assert_eq!(free_again, None, "a detached device keeps no label");
        steps(&spa, &mut world, &mut dice, 20);
        spa.export().unwrap();
        drop(spa);
        let spa = pool::open(&disks, false).unwrap();
        assert_eq!(shape(&spa), "disk2");
        world.compare(spa.parts().dsl()).unwrap();
        pool::assert_clean(&spa);
    });
}

#[test]
fn sim_what_the_tree_cannot_do_is_refused() {
    rt::simulate(4, || {
        let disks = memory(5);
        let kind = |outcome: base::Result<()>| outcome.unwrap_err().kind();
        let spa = pool::create("tank", Layout::Raidz(1), 12, &disks[..3], no_root()).unwrap();
        let side = attach(&spa, 0, &disks[3], Attach::Side);
        assert_eq!(kind(side), ErrorKind::Unsupported);
        assert_eq!(kind(spa.detach(guid_of(&spa, 0))), ErrorKind::Unsupported);
        assert_eq!(kind(spa.detach(Guid(7))), ErrorKind::NotFound);
        let small: Arc<dyn Provider> = Arc::new(Memory::new("/small", DISK_BYTES - (1 << 20)));
        let tiny: Arc<dyn Provider> = Arc::new(Memory::new("/tiny", 1 << 20));
        for disk in [&small, &tiny] {
            let replaced = attach(&spa, 0, disk, Attach::Replacement);
            assert_eq!(kind(replaced), ErrorKind::TooBig);
        }
        assert_eq!(shape(&spa), "raidz(disk0 disk1 disk2)");
        add(&spa, Grouping::Single, &disks[3..4]).unwrap();
        let coarse: (u32, AutoAshift) = (13, AutoAshift::default());
        let attached = spa.attach(
            guid_of(&spa, 3),
            &new_device(&disks[4]),
            Attach::Side,
            coarse,
        );
        assert_eq!(kind(attached), ErrorKind::InvalidInput);
        // The new side lacks everything: the old one is needed.
        attach(&spa, 3, &disks[4], Attach::Side).unwrap();
        spa.parts().tree().offline(guid_of(&spa, 4), true).unwrap();
        assert_eq!(kind(spa.detach(guid_of(&spa, 3))), ErrorKind::Busy);
        spa.detach(guid_of(&spa, 4)).unwrap();
        assert_eq!(shape(&spa), "raidz(disk0 disk1 disk2) disk3");
    });
}

/// The device that is replaced is gone, and so was the pool meanwhile.
#[test]
fn sim_a_missing_device_is_replaced() {
    rt::simulate(5, || {
        for layout in [Layout::Mirror, Layout::Raidz(2)] {
            let (mut dice, mut world) = (Dice::new(5), World::default());
            let disks = memory(5);
            let spa = pool::create("tank", layout, 12, &disks[..4], no_root()).unwrap();
            steps(&spa, &mut world, &mut dice, 100);
            spa.export().unwrap();
            drop(spa);
            let spa = pool::open(&disks[1..], false).unwrap();
            attach(&spa, 0, &disks[4], Attach::Replacement).unwrap();
            steps(&spa, &mut world, &mut dice, 20);
            spa.close().unwrap();
            drop(spa);
            let spa = pool::open(&disks[1..], false).unwrap();
            finish(&spa);
            let word = if layout == Layout::Mirror {
                "mirror"
            } else {
                "raidz"
            };
            assert_eq!(shape(&spa), format!("{word}(disk4 disk1 disk2 disk3)"));
            world.compare(spa.parts().dsl()).unwrap();
            pool::assert_clean(&spa);
            spa.export().unwrap();
        }
    });
}

/// The new device of a replacement can be detached as long as the old one has everything.
#[test]
fn sim_a_replacement_is_cancelled() {
    rt::simulate(6, || {
        let (mut dice, mut world) = (Dice::new(6), World::default());
        let disks = memory(3);
        let spa = pool::create("tank", Layout::Mirror, 12, &disks[..2], no_root()).unwrap();
        steps(&spa, &mut world, &mut dice, 100);
        attach(&spa, 0, &disks[2], Attach::Replacement).unwrap();
        assert_eq!(shape(&spa), "mirror(replacing(disk0 disk2) disk1)");
        spa.detach(guid_of(&spa, 1)).unwrap();
        assert_eq!(shape(&spa), "mirror(disk0 disk1)");
        finish(&spa);
        steps(&spa, &mut world, &mut dice, 20);
        world.compare(spa.parts().dsl()).unwrap();
        pool::assert_clean(&spa);
    });
}

fn image(folder: &Path, n: usize) -> Arc<dyn Provider> {
    let path = folder.join(format!("disk{n}"));
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(DISK_BYTES).unwrap();
    geom::disk::open(&path, OpenMode::ReadWrite).unwrap()
}

/// Every change one after another; the real `zdb` looks at the pool after each.
#[test]
fn zdb_finds_each_changed_tree_clean() {
    if !have_zdb() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let disks: Vec<_> = (0..8).map(|n| image(folder.path(), n)).collect();
    let (mut dice, mut world) = (Dice::new(seed(8)), World::default());
    let spa = pool::create("tank", Layout::Stripe, 12, &disks[..1], no_root()).unwrap();
    steps(&spa, &mut world, &mut dice, 60);
    spa.export().unwrap();
    drop(spa);
    let changes: [Act; 5] = [
        |spa, disks| attach(spa, 0, &disks[1], Attach::Side).unwrap(),
        |spa, _| spa.detach(guid_of(spa, 0)).unwrap(),
        |spa, disks| add(spa, Grouping::Raidz { parity: 1 }, &disks[2..5]).unwrap(),
        |spa, disks| attach(spa, 0, &disks[5], Attach::Replacement).unwrap(),
        |spa, disks| attach(spa, 2, &disks[6], Attach::Replacement).unwrap(),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let spa = pool::open(&disks, false).unwrap();
        change(&spa, &disks);
        steps(&spa, &mut world, &mut dice, 30);
        finish(&spa);
        world.compare(spa.parts().dsl()).unwrap();
        spa.export().unwrap();
        drop(spa);
        let found = Zdb::verify(folder.path(), "tank");
        assert!(
            found.is_clean(),
            "change {n}:\n{}\n{}",
            found.stdout,
            found.stderr
        );
    }
    let spa = pool::open(&disks, true).unwrap();
    let name = |n: usize| format!("{}/disk{n}", folder.path().display());
    let name = |n: usize| name(n).trim_start_matches('/').to_owned();
    let expected = format!("{} raidz({} {} {})", name(5), name(2), name(6), name(4));
    assert_eq!(shape(&spa), expected);
}
