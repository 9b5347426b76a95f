//! RAID-Zs that are expanded here: work goes on meanwhile, the power is cut at any command, devices are lost, and the
//! real zdb looks at each state.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::ErrorKind;
use faulty::{Delay, FaultInjector, PowerCut, PowerSupply};
use geom::Provider;
use phys::PropValue;
use phys::scan::DSS_FINISHED;
use phys::uberblock::{RRSS_SCRATCH_INVALID_SYNCED_REFLOW, RRSS_SCRATCH_VALID};
use ram::Memory;
use spa::{Settings, Spa};
use torture::cuts::{self, Step};
use torture::golden;
use torture::model::World;
use torture::pool::{self, Layout};
use torture::{Dice, seed};
use vdev::{Attach, AutoAshift, NewDevice, VdevKind};
use zpl::mount::mount;

const DISK_BYTES: u64 = 96 << 20;
/// More than the scratch area takes, on any of these shapes.
const FILLER_BYTES: usize = 14 << 20;
const CUTS: u64 = 20;
const SCRATCH_CUTS: u64 = 3;
/// How long a command takes: a heartbeat comes after some dozens of them.
const DELAYS_NS: std::ops::Range<u64> = 1_000_000..20_000_000;

/// Children before, parity, ashift.
#[derive(Clone, Copy)]
struct Shape {
    children: usize,
    parity: u64,
    ashift: u32,
}

const SINGLE: Shape = Shape {
    children: 3,
    parity: 1,
    ashift: 12,
};
const DOUBLE: Shape = Shape {
    children: 4,
    parity: 2,
    ashift: 9,
};

/// One slice in each txg.
fn slowly() -> Settings {
    let mut settings = pool::settings();
    settings.scan.blocks_max = 1;
    settings.reflow_max_bytes = 256 << 10;
    settings
}

fn filler() -> Vec<u8> {
    Dice::new(7).bytes(FILLER_BYTES)
}

fn create(shape: Shape, disks: &[Arc<dyn Provider>], settings: Settings) -> Spa {
    let root = zpl::mount::init(zpl::NewFilesystem::default(), true);
    let layout = Layout::Raidz(shape.parity);
    let first = &disks[..shape.children];
    let spa = pool::create_with("tank", layout, shape.ashift, first, root, settings).unwrap();
    pool::write_file(&spa, "tank", "filler", &filler());
    spa
}

fn check_filler(spa: &Spa) -> Result<(), String> {
    let fs = mount(spa.parts().dsl(), "tank", true).map_err(|e| format!("mount: {e}"))?;
    let file = fs.resolve("filler").map_err(|e| format!("filler: {e}"))?;
    let mut bytes = vec![0; FILLER_BYTES + 1];
    let length = fs
        .read(file, 0, &mut bytes)
        .map_err(|e| format!("filler: {e}"))?;
    let is_right = bytes[..length] == filler();
    is_right
        .then_some(())
        .ok_or_else(|| "filler: other bytes".into())
}

fn new_device(provider: &Arc<dyn Provider>) -> NewDevice {
    NewDevice {
        kind: VdevKind::Disk,
        path: provider.name().to_owned(),
        provider: Arc::clone(provider),
    }
}

fn widen(spa: &Spa, disk: &Arc<dyn Provider>) -> base::Result<()> {
    let guid = spa.parts().tree().tops()[0].guid();
    spa.widen(guid, &new_device(disk), (0, AutoAshift::default()))
}

fn steps(spa: &Spa, world: &mut World, dice: &mut Dice, count: usize) {
    for step in 0..count {
        let outcome = world.step(spa, dice);
        outcome.unwrap_or_else(|e| panic!("step {step}: {e}"));
    }
}

fn is_expanding(spa: &Spa) -> bool {
    spa.parts().tree().expanding().is_some()
}

fn wait(spa: &Spa) -> base::Result<()> {
    // What a device missed by a power cut is brought back first.
    spa.resilver_if_needed()?;
    spa.wait_scan(&mut |_| true)?;
    spa.wait_expansion(&mut |_, _| true)?;
    spa.wait_scan(&mut |_| true)
}

/// All was moved, and the scrub after it has found nothing.
fn assert_expanded(spa: &Spa, shape: Shape) {
    let top = spa.parts().tree().tops()[0].clone();
    assert_eq!(top.children().len(), shape.children + 1);
    assert_eq!(top.config().expand_txgs.len(), 1);
    assert!(!top.config().expanding);
    let scan = spa.scan().expect("a scrub was begun");
    assert_eq!((scan.state.get(), scan.errors.get()), (DSS_FINISHED, 0));
    for child in top.children() {
        // A device whose labels are older after a power cut counts as having missed a txg. That is not an error.
        assert_eq!(child.stats().snapshot().checksum_errors, 0);
    }
}

/// What happened on the disks, and what the pool should hold after each step.
struct Recording {
    disks: Vec<Arc<PowerCut>>,
    first: u64,
    commands: u64,
    worlds: Vec<Step>,
    /// By this command the first sectors were moved.
    moved: u64,
}

/// Works on a pool, expands it while work goes on, and works on. With multihost, disks take their time, and there are
/// heartbeats between the slices of a txg.
fn record(shape: Shape, seed: u64, multihost: bool) -> Recording {
    let supply = PowerSupply::new();
    let disk = |n| PowerCut::fed_by(&supply, format!("/disk{n}"), DISK_BYTES, 512);
    let disks: Vec<Arc<PowerCut>> = (0..=shape.children).map(|n| Arc::new(disk(n))).collect();
    let providers = disks.iter().map(|disk| match multihost {
        true => Arc::new(Delay::new(disk.clone(), DELAYS_NS, seed)),
        false => disk.clone() as Arc<dyn Provider>,
    });
    let providers: Vec<_> = providers.collect();
    let (mut dice, mut world) = (Dice::new(seed), World::default());
    let mut settings = slowly();
    if multihost {
        // All in one txg: where sectors were when it began is overwritten before it ends.
        settings.scan.blocks_max = u64::MAX;
        settings.scan.max_ns = u64::MAX;
    }
    let spa = create(shape, &providers, settings);
    spa.set_prop("multihost", PropValue::Number(multihost.into()))
        .unwrap();
    steps(&spa, &mut world, &mut dice, 40);
    spa.sync().unwrap();
    disks.iter().for_each(|disk| disk.forget());
    let begin = supply.commands();
    let mut worlds = vec![(world.clone(), Some(begin))];
    widen(&spa, providers.last().unwrap()).unwrap();
    worlds.push((world.clone(), Some(supply.commands())));
    let (mut during, mut moved) = (0, 0);
    while is_expanding(&spa) {
        during += 1;
        if during % 3 == 0 {
            steps(&spa, &mut world, &mut dice, 1);
        }
        worlds.push((world.clone(), None));
        spa.sync().unwrap();
        worlds.last_mut().unwrap().1 = Some(supply.commands());
        if moved == 0 && spa.uberblock().reflow_offset() > 0 {
            moved = supply.commands();
        }
    }
    assert!(during > 8 || multihost, "{during} txgs meanwhile");
    for _ in 0..2 {
        steps(&spa, &mut world, &mut dice, 1);
        worlds.push((world.clone(), None));
    }
    spa.sync().unwrap();
    let commands = supply.commands();
    worlds.push((world.clone(), Some(commands)));
    world.compare(spa.parts().dsl()).unwrap();
    wait(&spa).unwrap();
    assert_expanded(&spa, shape);
    check_filler(&spa).unwrap();
    pool::assert_clean(&spa);
    spa.close().unwrap();
    Recording {
        first: begin,
        commands,
        disks,
        worlds,
        moved,
    }
}

/// How far an expansion is: whether it goes on, and the state in the uberblock.
type Stage = (bool, u64);

fn stage(spa: &Spa) -> Stage {
    (is_expanding(spa), spa.uberblock().reflow_state())
}

impl Recording {
    fn images(&self, n: u64, seed: u64) -> Vec<Arc<dyn Provider>> {
        let image = |disk: &Arc<PowerCut>| Arc::new(disk.image_after(n, seed)) as Arc<dyn Provider>;
        self.disks.iter().map(image).collect()
    }

    /// The first and the last command, of few, after which the first sectors are in the scratch area alone.
    fn in_scratch(&self, seed: u64) -> (u64, u64) {
        let state = |n| {
            let spa = pool::open(&self.images(n, seed ^ n), true).unwrap();
            spa.uberblock().reflow_state()
        };
        let (mut before, mut after) = (self.first, self.moved);
        while after - before > 1 {
            let middle = before.midpoint(after);
            match state(middle) {
                0 => before = middle,
                _ => after = middle,
            }
        }
        let is_in_scratch = |n: &u64| state(*n) == RRSS_SCRATCH_VALID;
        let last = (after..self.commands).take_while(is_in_scratch).last();
        (after, last.expect("the state is on disk"))
    }

    /// The world that is there after the power was cut.
    fn find(&self, spa: &Spa, n: u64) -> Result<&World, String> {
        cuts::find(&self.worlds, spa, n)
    }

    /// Cuts the power after the n-th command, and opens what is left: whole, and without any set of devices that may be
    /// lost. The expansion goes on, unless it was not begun or had ended. Returns how far it was.
    fn cut(&self, n: u64, seed: u64, shape: Shape) -> Result<Stage, String> {
        let images = self.images(n, seed);
        let seen = {
            let spa = pool::open(&images, true).map_err(|e| format!("import: {e}"))?;
            self.find(&spa, n)?;
            stage(&spa)
        };
        let children = if seen.0 {
            shape.children + 1
        } else {
            shape.children
        };
        let lost = (n as usize..n as usize + shape.parity as usize).map(|at| at % children);
        let lost: Vec<usize> = lost.collect();
        let left = (0..images.len()).filter(|at| !lost.contains(at));
        let left: Vec<_> = left.map(|at| images[at].clone()).collect();
        {
            let spa = pool::open(&left, true).map_err(|e| format!("without {lost:?}: {e}"))?;
            self.find(&spa, n)
                .map_err(|e| format!("without {lost:?}: {e}"))?;
            check_filler(&spa).map_err(|e| format!("without {lost:?}: {e}"))?;
        }
        let spa = pool::open(&images, false).map_err(|e| format!("import: {e}"))?;
        let world = self.find(&spa, n)?;
        wait(&spa).map_err(|e| format!("expansion: {e}"))?;
        world.compare(spa.parts().dsl())?;
        check_filler(&spa)?;
        if spa.parts().tree().tops()[0].children().len() > shape.children {
            assert_expanded(&spa, shape);
        }
        let report = pool::verify(&spa).map_err(|e| format!("check: {e}"))?;
        if !report.is_clean() {
            return Err(format!("findings: {:#?}", report.findings));
        }
        spa.export().map_err(|e| format!("export: {e}"))?;
        Ok(seen)
    }
}

fn cut_everywhere(shape: Shape, seed: u64, multihost: bool) {
    let recording = record(shape, seed, multihost);
    let mut stages: BTreeMap<Stage, u64> = BTreeMap::new();
    let commands = recording.first..=recording.commands;
    let cut = |n| recording.cut(n, seed ^ n, shape);
    for (n, seen) in cuts::everywhere(commands, CUTS, seed, cut) {
        if stages.insert(seen, n).is_none() {
            pool::verify_with_zdb(&recording.images(n, seed ^ n), "tank");
        }
    }
    assert!(stages.len() >= 3, "too few stages were seen: {stages:?}");
    // Few of all commands come while the first sectors are in the scratch area alone.
    let (first, last) = recording.in_scratch(seed);
    let cut = |n| recording.cut(n, seed ^ n, shape);
    let cuts = cuts::everywhere(first..=last, SCRATCH_CUTS, seed, cut);
    assert_eq!(cuts[0].1, (true, RRSS_SCRATCH_VALID));
    pool::verify_with_zdb(&recording.images(first, seed ^ first), "tank");
}

#[test]
fn sim_power_cuts_while_a_raidz1_is_expanded() {
    let seed = seed(71);
    rt::simulate(seed, move || cut_everywhere(SINGLE, seed, false));
}

#[test]
fn sim_power_cuts_while_a_raidz2_is_expanded() {
    let seed = seed(72);
    rt::simulate(seed, move || cut_everywhere(DOUBLE, seed, false));
}

#[test]
fn sim_power_cuts_while_a_raidz_is_expanded_and_has_a_heartbeat() {
    let seed = seed(74);
    rt::simulate(seed, move || cut_everywhere(SINGLE, seed, true));
}

/// The pool is exported after some txgs, again and again: the real `zdb` looks at it each time.
fn export_everywhere(shape: Shape) {
    let disk = |n| Arc::new(Memory::new(format!("/disk{n}"), DISK_BYTES)) as _;
    let disks: Vec<Arc<dyn Provider>> = (0..=shape.children).map(disk).collect();
    let (mut dice, mut world) = (Dice::new(seed(73)), World::default());
    let spa = create(shape, &disks, slowly());
    steps(&spa, &mut world, &mut dice, 40);
    widen(&spa, disks.last().unwrap()).unwrap();
    let again = widen(&spa, disks.last().unwrap()).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Exists);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&disks, "tank");
    let mut offsets = Vec::new();
    loop {
        let spa = pool::open_with(&disks, false, slowly()).unwrap();
        let before = spa.uberblock().reflow_offset();
        while is_expanding(&spa) && spa.uberblock().reflow_offset() <= before {
            spa.sync().unwrap();
        }
        steps(&spa, &mut world, &mut dice, 1);
        offsets.push(spa.uberblock().reflow_offset());
        let is_done = !is_expanding(&spa);
        if is_done {
            wait(&spa).unwrap();
            pool::assert_clean(&spa);
            assert_expanded(&spa, shape);
        }
        world.compare(spa.parts().dsl()).unwrap();
        check_filler(&spa).unwrap();
        spa.export().unwrap();
        drop(spa);
        pool::verify_with_zdb(&disks, "tank");
        if is_done {
            break;
        }
    }
    assert!(offsets.len() > 2, "{offsets:?}");
    // What the new device adds can be used.
    let spa = pool::open(&disks, false).unwrap();
    let top = spa.parts().tree().tops()[0].clone();
    let each = phys::label::allocatable_size(DISK_BYTES);
    assert_eq!(top.config().asize, each * disks.len() as u64);
    spa.export().unwrap();
}

#[test]
fn sim_zdb_finds_each_state_of_an_expansion_clean() {
    for shape in [SINGLE, DOUBLE] {
        rt::simulate(seed(73), move || export_everywhere(shape));
    }
}

/// A device dies after so many writes, while slices are moved: the expansion waits, work goes on, and when the device
/// is back and up to date it goes on to its end.
fn fails_in_a_slice(shape: Shape, child: usize, writes: u64, seed: u64) {
    let disk = |n| -> Arc<dyn Provider> { Arc::new(Memory::new(format!("/disk{n}"), DISK_BYTES)) };
    let faulty: Vec<_> = (0..=shape.children)
        .map(|n| Arc::new(FaultInjector::new(disk(n))))
        .collect();
    let disks: Vec<Arc<dyn Provider>> = faulty.iter().map(|disk| disk.clone() as _).collect();
    let (mut dice, mut world) = (Dice::new(seed), World::default());
    let spa = create(shape, &disks, slowly());
    steps(&spa, &mut world, &mut dice, 20);
    widen(&spa, disks.last().unwrap()).unwrap();
    while spa.uberblock().reflow_offset() == 0 {
        spa.sync().unwrap();
    }
    faulty[child].kill_after(writes);
    let device = spa.parts().tree().tops()[0].children()[child].clone();
    while device.leaf().is_usable() {
        assert!(is_expanding(&spa), "it ended before the device died");
        spa.sync().unwrap();
    }
    spa.sync().unwrap();
    let paused_at = spa.uberblock().reflow_offset();
    for _ in 0..4 {
        steps(&spa, &mut world, &mut dice, 1);
        spa.sync().unwrap();
    }
    assert!(is_expanding(&spa));
    assert_eq!(spa.uberblock().reflow_offset(), paused_at);
    world.compare(spa.parts().dsl()).unwrap();
    check_filler(&spa).unwrap();

    faulty[child].revive();
    let back = Arc::clone(&disks[child]);
    spa.parts().tree().online(device.guid(), back).unwrap();
    wait(&spa).unwrap();
    assert_expanded(&spa, shape);
    world.compare(spa.parts().dsl()).unwrap();
    check_filler(&spa).unwrap();
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&disks, "tank");
}

#[test]
fn sim_a_device_that_fails_in_a_slice_pauses_an_expansion() {
    for (child, writes) in [(0, 0), (1, 5), (3, 30)] {
        let seed = seed(75);
        rt::simulate(seed, move || fails_in_a_slice(SINGLE, child, writes, seed));
    }
    let seed = seed(76);
    rt::simulate(seed, move || fails_in_a_slice(DOUBLE, 2, 9, seed));
}

fn replace(spa: &Spa, child: usize, new: &Arc<dyn Provider>) {
    let old = spa.parts().tree().tops()[0].children()[child].guid();
    let how = (0, AutoAshift::default());
    spa.attach(old, &new_device(new), Attach::Replacement, how)
        .unwrap();
}

/// A child is replaced while sectors are moved, which wait for it, and others afterwards, one of them absent.
fn replaced_meanwhile_and_afterwards(shape: Shape, seed: u64) {
    let disk = |n| Arc::new(Memory::new(format!("/disk{n}"), DISK_BYTES)) as _;
    let mut disks: Vec<Arc<dyn Provider>> = (0..=shape.children).map(disk).collect();
    let (mut dice, mut world) = (Dice::new(seed), World::default());
    let spa = create(shape, &disks, slowly());
    steps(&spa, &mut world, &mut dice, 20);
    widen(&spa, disks.last().unwrap()).unwrap();
    while spa.uberblock().reflow_offset() == 0 {
        spa.sync().unwrap();
    }
    steps(&spa, &mut world, &mut dice, 1);
    let new = disk(100);
    replace(&spa, 1, &new);
    disks[1] = new;
    while spa.parts().tree().devices().len() > disks.len() {
        steps(&spa, &mut world, &mut dice, 1);
        spa.wait_scan(&mut |_| true).unwrap();
        spa.sync().unwrap();
    }
    assert!(is_expanding(&spa), "it ended beside the replacement");
    wait(&spa).unwrap();
    assert_expanded(&spa, shape);
    world.compare(spa.parts().dsl()).unwrap();
    check_filler(&spa).unwrap();

    let new = disk(101);
    replace(&spa, 0, &new);
    disks[0] = new;
    spa.wait_scan(&mut |_| true).unwrap();
    steps(&spa, &mut world, &mut dice, 3);
    spa.export().unwrap();
    drop(spa);
    let last = disks.len() - 1;
    let left: Vec<_> = disks[..last].to_vec();
    let spa = pool::open(&left, false).unwrap();
    steps(&spa, &mut world, &mut dice, 3);
    let new = disk(102);
    replace(&spa, last, &new);
    disks[last] = new;
    spa.wait_scan(&mut |_| true).unwrap();
    spa.scrub().unwrap();
    spa.wait_scan(&mut |_| true).unwrap();
    let scan = spa.scan().unwrap();
    assert_eq!((scan.state.get(), scan.errors.get()), (DSS_FINISHED, 0));
    assert_eq!(scan.processed.get(), 0, "repaired");
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&disks, "tank");
    for n in 0..disks.len() {
        let mut left = disks.clone();
        left.remove(n);
        let spa = pool::open(&left, true).unwrap();
        world.compare(spa.parts().dsl()).unwrap();
        check_filler(&spa).unwrap();
    }
}

#[test]
fn sim_children_are_replaced_during_and_after_an_expansion() {
    for shape in [SINGLE, DOUBLE] {
        let seed = seed(77);
        rt::simulate(seed, move || replaced_meanwhile_and_afterwards(shape, seed));
    }
}

/// What the first expansion adds is not in the allocator before the pool is opened again; the second goes over it.
#[test]
fn sim_a_raidz_is_expanded_twice_while_it_is_open() {
    rt::simulate(78, || {
        let disk = |n| Arc::new(Memory::new(format!("/disk{n}"), DISK_BYTES)) as _;
        let disks: Vec<Arc<dyn Provider>> = (0..SINGLE.children + 2).map(disk).collect();
        let (mut dice, mut world) = (Dice::new(78), World::default());
        let spa = create(SINGLE, &disks, pool::settings());
        for new in &disks[SINGLE.children..] {
            widen(&spa, new).unwrap();
            steps(&spa, &mut world, &mut dice, 3);
            wait(&spa).unwrap();
        }
        world.compare(spa.parts().dsl()).unwrap();
        spa.export().unwrap();
        drop(spa);
        let spa = pool::open(&disks, false).unwrap();
        steps(&spa, &mut world, &mut dice, 3);
        pool::assert_clean(&spa);
        check_filler(&spa).unwrap();
        spa.export().unwrap();
        drop(spa);
        pool::verify_with_zdb(&disks, "tank");
    });
}

/// What OpenZFS has begun goes on here.
#[test]
fn an_expansion_that_openzfs_began_ends_here() {
    let disks = golden::disks("openzfs-2.3.2-raidz1-expanding", 4);
    let read = |spa: &Spa| {
        let fs = mount(spa.parts().dsl(), "e3", true).unwrap();
        let read = |n: u32| {
            let mut bytes = vec![0; 4 << 20];
            let file = fs.resolve(format!("f{n}")).unwrap();
            let length = fs.read(file, 0, &mut bytes).unwrap();
            bytes.truncate(length);
            bytes
        };
        [1, 3, 10, 26].map(read)
    };
    let spa = pool::open(&disks, false).unwrap();
    let before = read(&spa);
    assert!(is_expanding(&spa) && spa.expansion().unwrap().unwrap().is_going_on);
    wait(&spa).unwrap();
    assert!(!is_expanding(&spa) && !spa.expansion().unwrap().unwrap().is_going_on);
    let scan = spa.scan().unwrap();
    assert_eq!((scan.state.get(), scan.errors.get()), (DSS_FINISHED, 0));
    assert!(read(&spa) == before);
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&disks, "e3");
    for (left, lost) in golden::without_any(&disks, 1) {
        let spa = pool::open(&left, true).unwrap();
        assert!(read(&spa) == before, "{lost:?}");
    }
}

/// The kernel ends what was half done here.
const GUEST: &str = r#"set -e
zpool import -d /dev tank
zpool wait -t raidz_expand,scrub tank
zpool status tank
zpool status tank | grep -q "expand: expanded raidz1-0"
zpool status tank | grep -q "repaired 0B in .* with 0 errors"
zpool export tank
"#;

#[test]
fn the_kernel_ends_an_expansion() {
    let Some(guest) = oracle::vm::Guest::find() else {
        return;
    };
    let host = tempfile::tempdir().unwrap();
    let folder = host.path().join("disks");
    std::fs::create_dir(&folder).unwrap();
    let disk = |n| Arc::new(Memory::new(format!("/disk{n}"), DISK_BYTES)) as _;
    let disks: Vec<Arc<dyn Provider>> = (0..=SINGLE.children).map(disk).collect();
    let (written, images) = (folder.clone(), disks.clone());
    rt::simulate(seed(74), move || {
        let spa = create(SINGLE, &images, slowly());
        widen(&spa, images.last().unwrap()).unwrap();
        while spa.uberblock().reflow_state() != RRSS_SCRATCH_INVALID_SYNCED_REFLOW {
            spa.sync().unwrap();
        }
        assert!(is_expanding(&spa));
        spa.export().unwrap();
        for (n, disk) in images.iter().enumerate() {
            let mut bytes = vec![0; disk.mediasize() as usize];
            disk.read(0, &mut bytes).unwrap();
            std::fs::write(written.join(format!("disk{n}")), bytes).unwrap();
        }
    });
    let paths: Vec<PathBuf> = (0..disks.len())
        .map(|n| folder.join(format!("disk{n}")))
        .collect();
    let names: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    guest.run(GUEST, host.path(), &names).assert_success();
    for (n, disk) in disks.iter().enumerate() {
        let bytes = std::fs::read(folder.join(format!("disk{n}"))).unwrap();
        disk.write(0, &bytes).unwrap();
    }
    let spa = pool::open(&disks, false).unwrap();
    assert!(!is_expanding(&spa));
    check_filler(&spa).unwrap();
    pool::assert_clean(&spa);
    spa.export().unwrap();
}
