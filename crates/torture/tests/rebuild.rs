//! Devices that are resilvered sequentially here: work goes on meanwhile, the power is cut at any command, devices are
//! lost afterwards, and the real zdb looks at each state.
//!
//! `CUTS=all` tries every single command; the default takes a sample.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{ErrorKind, Guid};
use faulty::{PowerCut, PowerSupply};
use geom::Provider;
use phys::feature::DEVICE_REBUILD;
use phys::scan::{DSS_CANCELED, DSS_FINISHED, POOL_SCAN_SCRUB};
use ram::Memory;
use spa::{FeatureState, RebuildState, Resilver, Settings, Spa};
use torture::cuts::{self, Step};
use torture::model::World;
use torture::pool::{self, Layout};
use torture::{Dice, seed};
use vdev::{Attach, AutoAshift, NewDevice, VdevKind};

const DISK_BYTES: u64 = 128 << 20;
const FILLER_BYTES: usize = 4 << 20;
const CUTS: u64 = 8;
/// Little in each txg.
fn slowly() -> Settings {
    let mut settings = pool::settings();
    settings.scan.blocks_max = 16;
    settings.rebuild_max_bytes = 8 << 10;
    settings
}

fn new_device(provider: &Arc<dyn Provider>) -> NewDevice {
    NewDevice {
        kind: VdevKind::Disk,
        path: provider.name().to_owned(),
        provider: Arc::clone(provider),
    }
}

fn guid_of(spa: &Spa, device: usize) -> Guid {
    spa.parts().tree().devices()[device].guid()
}

fn attach(
    spa: &Spa,
    beside: usize,
    new: &Arc<dyn Provider>,
    (how, resilver): (Attach, Resilver),
) -> base::Result<()> {
    let sectors = (0, AutoAshift::default());
    spa.attach_with(
        guid_of(spa, beside),
        &new_device(new),
        how,
        sectors,
        resilver,
    )
}

fn steps(spa: &Spa, world: &mut World, dice: &mut Dice, count: usize) {
    for step in 0..count {
        let outcome = world.step(spa, dice);
        outcome.unwrap_or_else(|e| panic!("step {step}: {e}"));
    }
}

fn create(layout: Layout, disks: &[Arc<dyn Provider>]) -> Spa {
    let root = zpl::mount::init(zpl::NewFilesystem::default(), true);
    let spa = pool::create_with("tank", layout, 12, disks, root, slowly()).unwrap();
    pool::write_file(&spa, "tank", "filler", &Dice::new(7).bytes(FILLER_BYTES));
    spa
}

/// Waits for the rebuild, the scrub after it, and what else is missing.
fn finish(spa: &Spa) -> base::Result<()> {
    spa.resilver_if_needed()?;
    spa.wait_scan(&mut |_| true)?;
    spa.resilver_if_needed()?;
    spa.wait_scan(&mut |_| true)
}

/// What is done to a pool, with these disks.
type Act = fn(&Spa, &[Arc<dyn Provider>]) -> base::Result<()>;

/// A pool, what is done to it, and which of its disks can be lost when that has ended.
struct Case {
    layout: Layout,
    first: usize,
    disks: usize,
    /// This one is offline from the beginning.
    offline: Option<usize>,
    act: Act,
    lost: &'static [&'static [usize]],
}

const SIDE: Case = Case {
    layout: Layout::Stripe,
    first: 1,
    disks: 2,
    offline: None,
    act: |spa, disks| attach(spa, 0, &disks[1], (Attach::Side, Resilver::Sequential)),
    lost: &[&[0], &[1]],
};

const REPLACEMENT: Case = Case {
    layout: Layout::Mirror,
    first: 2,
    disks: 3,
    offline: Some(0),
    act: |spa, disks| {
        attach(
            spa,
            0,
            &disks[2],
            (Attach::Replacement, Resilver::Sequential),
        )
    },
    lost: &[&[0, 1], &[0, 2]],
};

const SPARE: Case = Case {
    layout: Layout::Draid(1, 2, 1),
    first: 4,
    disks: 4,
    offline: Some(1),
    act: |spa, _| {
        let spare = spa.spares()[0].0.guid();
        spa.attach_distributed_with(guid_of(spa, 1), spare, Resilver::Sequential)
    },
    lost: &[&[0, 1], &[1, 2], &[1, 3]],
};

/// What happened on the disks, and what the pool should hold after each step.
struct Recording {
    disks: Vec<Arc<PowerCut>>,
    first: u64,
    commands: u64,
    worlds: Vec<Step>,
}

/// The errors of all rebuilds, if there was one that has ended.
fn errors_of(spa: &Spa) -> Option<u64> {
    let all = spa.rebuilds();
    assert!(all.iter().all(|each| each.state == RebuildState::Complete));
    let errors = all.iter().map(|each| each.phys.errors.get());
    (!all.is_empty()).then(|| errors.sum())
}

/// All is there, and a scrub has seen it without finding anything.
fn assert_whole(spa: &Spa) {
    assert_eq!(spa.feature(DEVICE_REBUILD), FeatureState::Enabled);
    let scan = spa.scan().expect("a scrub was begun");
    assert_eq!((scan.state.get(), scan.errors.get()), (DSS_FINISHED, 0));
    for device in spa.parts().tree().devices() {
        let errors = device.stats().snapshot().checksum_errors;
        assert_eq!(errors, 0, "{}", device.name());
        assert_eq!(device.config().rebuild_txg, 0);
        let leaf = device.leaf();
        assert!(!leaf.is_usable() || !leaf.has_dtl(), "{}", device.name());
    }
}

/// Works on a pool, and works on while a device is rebuilt.
fn record(case: &Case, seed: u64) -> Recording {
    let supply = PowerSupply::new();
    let disk = |n| PowerCut::fed_by(&supply, format!("/disk{n}"), DISK_BYTES, 512);
    let disks: Vec<Arc<PowerCut>> = (0..case.disks).map(|n| Arc::new(disk(n))).collect();
    let providers: Vec<Arc<dyn Provider>> = disks.iter().map(|disk| disk.clone() as _).collect();
    let (mut dice, mut world) = (Dice::new(seed), World::default());
    let spa = create(case.layout, &providers[..case.first]);
    steps(&spa, &mut world, &mut dice, 40);
    if let Some(offline) = case.offline {
        let guid = guid_of(&spa, offline);
        spa.parts().tree().offline(guid, false).unwrap();
        spa.config_changed().unwrap();
        steps(&spa, &mut world, &mut dice, 5);
    }
    spa.sync().unwrap();
    disks.iter().for_each(|disk| disk.forget());
    let begin = supply.commands();
    let mut worlds = vec![(world.clone(), Some(begin))];
    (case.act)(&spa, &providers).unwrap();
    assert_eq!(spa.feature(DEVICE_REBUILD), FeatureState::Active);
    worlds.push((world.clone(), Some(supply.commands())));
    let mut during = 0;
    while spa.is_rebuilding() {
        during += 1;
        for _ in 0..2 {
            steps(&spa, &mut world, &mut dice, 1);
            worlds.push((world.clone(), None));
        }
        spa.sync().unwrap();
        worlds.last_mut().unwrap().1 = Some(supply.commands());
    }
    assert!(during > 5, "{during} txgs meanwhile");
    assert_eq!(errors_of(&spa), Some(0));
    let commands = supply.commands();
    spa.close().unwrap();
    drop(spa);
    let spa = pool::open(&providers, false).unwrap();
    finish(&spa).unwrap();
    assert_eq!(spa.scan().unwrap().func.get(), POOL_SCAN_SCRUB);
    assert_whole(&spa);
    world.compare(spa.parts().dsl()).unwrap();
    pool::assert_clean(&spa);
    spa.close().unwrap();
    Recording {
        first: begin,
        commands,
        disks,
        worlds,
    }
}

/// Whether a rebuild goes on; and whether there was one.
type Stage = (bool, bool);

impl Recording {
    fn images(&self, n: u64, seed: u64) -> Vec<Arc<dyn Provider>> {
        let image = |disk: &Arc<PowerCut>| Arc::new(disk.image_after(n, seed)) as Arc<dyn Provider>;
        self.disks.iter().map(image).collect()
    }

    /// Cuts the power after the n-th command, opens what is left, and lets the rebuild go on, if it was begun. In the
    /// end the disks that may be lost are not needed. Returns how far it was.
    fn cut(&self, n: u64, seed: u64, case: &Case) -> Result<Stage, String> {
        let images = self.images(n, seed);
        let spa = pool::open(&images, false).map_err(|e| format!("import: {e}"))?;
        // Before the DTLs are read, any device is read from.
        spa.parts().tree().clear(None).unwrap();
        let stage = (spa.is_rebuilding(), !spa.rebuilds().is_empty());
        let world = cuts::find(&self.worlds, &spa, n)?;
        finish(&spa).map_err(|e| format!("rebuild: {e}"))?;
        world.compare(spa.parts().dsl())?;
        let report = pool::verify(&spa).map_err(|e| format!("check: {e}"))?;
        if !report.is_clean() {
            return Err(format!("findings: {:#?}", report.findings));
        }
        if stage.1 {
            assert_whole(&spa);
        }
        spa.export().map_err(|e| format!("export: {e}"))?;
        drop(spa);
        for lost in case.lost.iter().filter(|_| stage.1) {
            let left = (0..images.len()).filter(|at| !lost.contains(at));
            let left: Vec<_> = left.map(|at| images[at].clone()).collect();
            let without = |e: &dyn std::fmt::Display| format!("without {lost:?}: {e}");
            let spa = pool::open(&left, true).map_err(|e| without(&e))?;
            world.compare(spa.parts().dsl()).map_err(|e| without(&e))?;
        }
        Ok(stage)
    }
}

fn cut_everywhere(case: &Case, seed: u64) {
    let recording = record(case, seed);
    let mut stages: BTreeMap<Stage, u64> = BTreeMap::new();
    for n in cuts::sample(recording.first..=recording.commands, CUTS) {
        let seen = recording.cut(n, seed ^ n, case);
        let seen = seen.unwrap_or_else(|e| panic!("SEED={seed}, cut after {n}: {e}"));
        if stages.insert(seen, n).is_none() {
            pool::verify_with_zdb(&recording.images(n, seed ^ n), "tank");
        }
    }
    let expected = [(false, false), (false, true), (true, true)];
    assert!(stages.into_keys().eq(expected), "not every stage was seen");
}

#[test]
fn sim_power_cuts_while_a_side_is_rebuilt() {
    let seed = seed(51);
    rt::simulate(seed, move || cut_everywhere(&SIDE, seed));
}

#[test]
fn sim_power_cuts_while_a_replacement_is_rebuilt() {
    let seed = seed(52);
    rt::simulate(seed, move || cut_everywhere(&REPLACEMENT, seed));
}

#[test]
fn sim_power_cuts_while_a_distributed_spare_is_rebuilt() {
    let seed = seed(53);
    rt::simulate(seed, move || cut_everywhere(&SPARE, seed));
}

fn memory(count: usize) -> Vec<Arc<dyn Provider>> {
    let disk = |n| Arc::new(Memory::new(format!("/disk{n}"), DISK_BYTES)) as _;
    (0..count).map(disk).collect()
}

/// What the history says of rebuilds.
fn told(spa: &Spa) -> Vec<String> {
    let mut told = Vec::new();
    let see = &mut |record: spa::Record| {
        if record.0.get_str(spa::history::key::INTERNAL_NAME) == Some("rebuild") {
            let text = record.0.get_str(spa::history::key::INTERNAL_TEXT).unwrap();
            told.push(text.rsplit(' ').next().unwrap().to_owned());
        }
        Ok(())
    };
    spa.for_each_record(see).unwrap();
    told
}

#[test]
fn sim_a_rebuild_is_begun_anew_goes_on_elsewhere_and_is_cancelled() {
    rt::simulate(9, || {
        let (mut dice, mut world) = (Dice::new(9), World::default());
        let disks = memory(5);
        let spa = create(Layout::Stripe, &disks[..1]);
        steps(&spa, &mut world, &mut dice, 40);
        spa.sync().unwrap();
        // A scrub that runs meanwhile gives way, and none begins.
        spa.scrub().unwrap();
        let sequential = (Attach::Side, Resilver::Sequential);
        attach(&spa, 0, &disks[1], sequential).unwrap();
        assert_eq!(spa.scan().unwrap().state.get(), DSS_CANCELED);
        assert_eq!(spa.scrub().unwrap_err().kind(), ErrorKind::Busy);
        spa.resilver_if_needed().unwrap();
        assert_eq!(spa.scan_running(), None);
        let refused = attach(&spa, 0, &disks[2], (Attach::Side, Resilver::Healing)).unwrap_err();
        assert_eq!(refused.to_string(), "currently sequentially resilvering");
        let offset = |spa: &Spa| spa.rebuilds()[0].phys.last_offset.get();
        while offset(&spa) < 1 << 20 {
            spa.force_sync().unwrap();
        }
        // Another device joins.
        attach(&spa, 0, &disks[2], sequential).unwrap();
        assert_eq!(told(&spa), ["started", "reset"]);
        assert!(offset(&spa) < 1 << 20);
        while offset(&spa) < 1 << 20 {
            steps(&spa, &mut world, &mut dice, 1);
            spa.sync().unwrap();
        }
        let before = offset(&spa);
        spa.export().unwrap();
        drop(spa);
        let spa = pool::open_with(&disks, false, slowly()).unwrap();
        assert!(spa.is_rebuilding());
        assert!(offset(&spa) >= before);
        assert_eq!(spa.feature(DEVICE_REBUILD), FeatureState::Active);
        // Without the devices there is nothing to be done.
        for _ in 0..2 {
            assert!(spa.is_rebuilding());
            spa.detach(guid_of(&spa, 1)).unwrap();
        }
        spa.wait_rebuild(&mut |_, _| true).unwrap();
        assert_eq!(told(&spa).last().unwrap(), "canceled");
        assert_eq!(spa.rebuilds()[0].state, RebuildState::Canceled);
        assert_eq!(spa.feature(DEVICE_REBUILD), FeatureState::Enabled);
        // One that was cancelled can be begun again; what is shown of it goes with the next healing resilver.
        attach(&spa, 0, &disks[3], sequential).unwrap();
        steps(&spa, &mut world, &mut dice, 20);
        finish(&spa).unwrap();
        assert_eq!(errors_of(&spa), Some(0));
        assert_whole(&spa);
        attach(&spa, 0, &disks[4], (Attach::Side, Resilver::Healing)).unwrap();
        let refused = attach(&spa, 0, &disks[1], sequential).unwrap_err();
        assert_eq!(refused.to_string(), "currently resilvering");
        finish(&spa).unwrap();
        assert_eq!(errors_of(&spa), None);
        world.compare(spa.parts().dsl()).unwrap();
        pool::assert_clean(&spa);
        spa.export().unwrap();
        drop(spa);
        pool::verify_with_zdb(&disks, "tank");
    });
}

/// Nothing is copied from a device that lacks something, and that is not taken for done.
#[test]
fn sim_a_source_that_missed_something_is_not_copied_from() {
    rt::simulate(10, || {
        let (mut dice, mut world) = (Dice::new(10), World::default());
        let disks = memory(2);
        let spa = create(Layout::Stripe, &disks[..1]);
        steps(&spa, &mut world, &mut dice, 40);
        spa.sync().unwrap();
        attach(&spa, 0, &disks[1], (Attach::Side, Resilver::Sequential)).unwrap();
        // As if a write to the first one had failed.
        let first = spa.parts().tree().devices()[0].clone();
        let txg = spa.uberblock().txg().0;
        first.leaf().dirty_dtl(txg + 1..txg + 2);
        steps(&spa, &mut world, &mut dice, 5);
        spa.wait_rebuild(&mut |_, _| true).unwrap();
        assert!(errors_of(&spa).unwrap() > 0);
        let second = spa.parts().tree().devices()[1].clone();
        assert!(second.leaf().has_dtl() && first.leaf().has_dtl());
        finish(&spa).unwrap();
        assert_whole(&spa);
        world.compare(spa.parts().dsl()).unwrap();
        pool::assert_clean(&spa);
        spa.export().unwrap();
        drop(spa);
        let spa = pool::open(&disks[1..], true).unwrap();
        world.compare(spa.parts().dsl()).unwrap();
    });
}

#[test]
fn a_raidz_has_no_sequential_resilver() {
    let disks = memory(4);
    let spa = create(Layout::Raidz(1), &disks[..3]);
    let sequential = (Attach::Replacement, Resilver::Sequential);
    let refused = attach(&spa, 0, &disks[3], sequential).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(spa.rebuilds().is_empty());
}
