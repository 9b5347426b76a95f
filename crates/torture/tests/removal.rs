//! Top-level vdevs that are removed, by OpenZFS and here: what was on them is read, freed, scrubbed, copied; nothing is
//! lost, whenever the power is cut, and the real `zdb` finds no fault.
//!
//! `CUTS=all` tries every single write; the default takes a sample.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{ErrorKind, Guid};
use faulty::{PowerCut, PowerSupply};
use geom::Provider;
use geom::disk::OpenMode;
use oracle::vm::Guest;
use oracle::{Zdb, have_zdb};
use phys::scan::{DSS_CANCELED, DSS_FINISHED, DSS_SCANNING};
use ram::Memory;
use spa::{Settings, Spa};
use torture::cuts::{self, Step};
use torture::golden::golden;
use torture::model::World;
use torture::pool::{self, Layout};
use torture::{Dice, seed};
use vdev::{AutoAshift, AuxSpec, Grouping, NewDevice, TopSpec, VdevKind};
use zio::AllocClass;
use zpl::Create;
use zpl::mount::mount;

/// What file `f<n>` of the images of OpenZFS has: lines with numbers, of which ten records may be zeros.
fn content(n: u64, is_holed: bool) -> Vec<u8> {
    let lines = n * 100_000..=n * 100_000 + 30_000;
    let mut bytes: Vec<u8> = lines
        .flat_map(|line| format!("{line}\n").into_bytes())
        .collect();
    if is_holed {
        bytes[3 * 8192..13 * 8192].fill(0);
    }
    bytes
}

fn assert_files(spa: &Spa, files: &[u64], holed: &[u64]) {
    let fs = mount(spa.parts().dsl(), "tank", true).unwrap();
    for n in files {
        let expected = content(*n, holed.contains(n));
        let file = fs.resolve(format!("f{n}")).unwrap();
        let mut bytes = vec![0; expected.len() + 1];
        assert_eq!(
            fs.read(file, 0, &mut bytes).unwrap(),
            expected.len(),
            "f{n}"
        );
        assert!(bytes[..expected.len()] == expected, "f{n}");
    }
}

fn kinds(spa: &Spa) -> Vec<VdevKind> {
    let tops = spa.parts().tree().tops();
    tops.iter().map(|top| top.kind()).collect()
}

fn scrub(spa: &Spa) {
    spa.scrub().unwrap();
    spa.wait_scan(&mut |_| true).unwrap();
    let scan = spa.scan().unwrap();
    assert_eq!((scan.state.get(), scan.errors.get()), (DSS_FINISHED, 0));
}

/// Overwrites and removes files, and writes new ones.
fn work(spa: &Spa, files: &[u64]) {
    let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
    for (turn, n) in files.iter().enumerate() {
        match turn % 3 {
            0 => fs.unlink(fs.root(), format!("f{n}").as_bytes()).unwrap(),
            _ => {
                let file = fs.resolve(format!("f{n}")).unwrap();
                fs.write(file, 8192 * 2, &content(*n, false)[8192 * 2..8192 * 5])
                    .unwrap();
            }
        }
        let name = format!("new{n}");
        let file = fs.create_file(fs.root(), name.as_bytes(), &Create::default());
        fs.write(file.unwrap().id, 0, &vec![1; 50_000]).unwrap();
        spa.sync().unwrap();
    }
}

fn reopen(spa: Spa, devices: &[Arc<dyn Provider>]) -> Spa {
    spa.export().unwrap();
    drop(spa);
    pool::open(devices, false).unwrap()
}

#[test]
fn a_pool_from_which_openzfs_removed_a_vdev_is_read_and_written() {
    let devices = [golden("openzfs-2.3.2-removed")];
    let spa = pool::open(&devices, true).unwrap();
    assert_eq!(kinds(&spa), [VdevKind::Indirect, VdevKind::File]);
    let (files, holed) = ([1, 4, 5, 8, 9, 10, 11, 12, 13, 14], [4, 8, 9, 12]);
    assert_files(&spa, &files, &holed);
    pool::assert_clean(&spa);
    drop(spa);
    let spa = pool::open(&devices, false).unwrap();
    assert!(!spa.is_readonly(), "{:?}", spa.obstacles());
    scrub(&spa);
    work(&spa, &[1, 5, 10, 13]);
    pool::assert_clean(&spa);
    let spa = reopen(spa, &devices);
    assert_files(&spa, &[4, 5, 8, 9, 10, 11, 12, 14], &holed);
    scrub(&spa);
    pool::assert_clean(&spa);
}

#[test]
fn a_pool_from_which_openzfs_removed_a_vdev_twice_is_read_and_written() {
    let devices = [golden("openzfs-2.3.2-removed-twice")];
    let spa = pool::open(&devices, false).unwrap();
    let gone = VdevKind::Indirect;
    assert_eq!(kinds(&spa), [gone, gone, VdevKind::File]);
    let files = [4, 5, 8, 9, 10, 11, 12, 13, 14, 41, 42, 43, 44, 45, 46];
    let holed = [4, 8, 9, 12];
    assert_files(&spa, &files, &holed);
    pool::assert_clean(&spa);
    scrub(&spa);
    work(&spa, &[5, 10, 13, 14, 41, 42]);
    let spa = reopen(spa, &devices);
    assert_files(&spa, &[4, 8, 9, 10, 11, 12, 13, 42, 43, 44, 45, 46], &holed);
    scrub(&spa);
    pool::assert_clean(&spa);
}

fn removing() -> Vec<Arc<dyn Provider>> {
    let names = ["openzfs-2.3.2-removing-a", "openzfs-2.3.2-removing-b"];
    names.map(golden).to_vec()
}

const REMOVING_FILES: [u64; 16] = [1, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 19, 20];

#[test]
fn a_removal_that_openzfs_began_ends_here() {
    let devices = removing();
    let spa = pool::open(&devices, true).unwrap();
    let state = spa.removal().unwrap().phys.state.get();
    assert_eq!(state, DSS_SCANNING);
    assert_files(&spa, &REMOVING_FILES, &[10]);
    pool::assert_clean(&spa);
    drop(spa);
    let spa = pool::open(&devices, false).unwrap();
    work(&spa, &[1, 3]);
    spa.wait_removal(&mut |_| true).unwrap();
    let progress = spa.removal().unwrap();
    assert_eq!(progress.phys.state.get(), DSS_FINISHED);
    assert_eq!(progress.phys.copied, progress.phys.to_copy);
    assert_eq!(kinds(&spa), [VdevKind::Indirect, VdevKind::File]);
    work(&spa, &[4, 6]);
    scrub(&spa);
    pool::assert_clean(&spa);
    let spa = reopen(spa, &devices);
    assert_files(
        &spa,
        &[3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 19, 20],
        &[10],
    );
    pool::assert_clean(&spa);
}

#[test]
fn a_removal_that_openzfs_began_is_cancelled_here() {
    let devices = removing();
    let spa = pool::open_with(&devices, false, slowly()).unwrap();
    spa.cancel_remove().unwrap();
    assert_eq!(spa.removal().unwrap().phys.state.get(), DSS_CANCELED);
    assert_eq!(kinds(&spa), [VdevKind::File; 2]);
    pool::assert_clean(&spa);
    work(&spa, &[1, 3, 4]);
    let spa = reopen(spa, &devices);
    assert_files(
        &spa,
        &[3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 19, 20],
        &[10],
    );
    scrub(&spa);
    pool::assert_clean(&spa);
}

const DISK_BYTES: u64 = 128 << 20;
const CUTS: u64 = 50;

fn new_device(provider: &Arc<dyn Provider>) -> NewDevice {
    NewDevice {
        kind: VdevKind::Disk,
        path: provider.name().to_owned(),
        provider: Arc::clone(provider),
    }
}

fn add(spa: &Spa, class: AllocClass, grouping: Grouping, disks: &[Arc<dyn Provider>]) {
    let devices = disks.iter().map(new_device).collect();
    let top = TopSpec {
        class,
        ..TopSpec::new(grouping, devices)
    };
    spa.add(
        &[top],
        &AuxSpec::default(),
        (0, AutoAshift::default()),
        true,
    )
    .unwrap();
}

fn remove(spa: &Spa, top: usize) -> base::Result<()> {
    let guid = spa.parts().tree().tops()[top].guid();
    spa.remove(guid)
}

fn no_root() -> dsl::ObjsetInit {
    Box::new(|_, _| Ok(()))
}

/// A slice copies little, so that a removal takes many txgs.
fn slowly() -> Settings {
    let mut settings = pool::settings();
    settings.scan.blocks_max = 1;
    settings.removal.segment_max_bytes = 8 << 10;
    settings
}

fn steps(spa: &Spa, world: &mut World, dice: &mut Dice, count: usize) {
    for step in 0..count {
        let outcome = world.step(spa, dice);
        outcome.unwrap_or_else(|e| panic!("step {step}: {e}"));
    }
}

/// How a pool is made of disks, and which top-level vdev is removed from it.
struct Case {
    disks: usize,
    make: fn(&[Arc<dyn Provider>]) -> Spa,
    removed: usize,
    ends_as: VdevKind,
}

const DISK: Case = Case {
    disks: 3,
    make: |disks| pool::create_with("tank", Layout::Stripe, 9, disks, no_root(), slowly()).unwrap(),
    removed: 0,
    ends_as: VdevKind::Indirect,
};

const MIRROR: Case = Case {
    disks: 5,
    make: |disks| {
        let first = &disks[..2];
        let spa = pool::create_with("tank", Layout::Mirror, 9, first, no_root(), slowly()).unwrap();
        add(&spa, AllocClass::Normal, Grouping::Mirror, &disks[2..4]);
        add(&spa, AllocClass::Normal, Grouping::Single, &disks[4..]);
        spa
    },
    removed: 0,
    ends_as: VdevKind::Indirect,
};

const SPECIAL: Case = Case {
    disks: 3,
    make: |disks| {
        let first = &disks[..1];
        let spa = pool::create_with("tank", Layout::Stripe, 9, first, no_root(), slowly()).unwrap();
        add(&spa, AllocClass::Special, Grouping::Mirror, &disks[1..]);
        spa
    },
    removed: 1,
    ends_as: VdevKind::Indirect,
};

const LOG: Case = Case {
    disks: 3,
    make: |disks| {
        let first = &disks[..1];
        let spa = pool::create_with("tank", Layout::Stripe, 9, first, no_root(), slowly()).unwrap();
        add(&spa, AllocClass::Log, Grouping::Single, &disks[1..2]);
        add(&spa, AllocClass::Normal, Grouping::Single, &disks[2..]);
        spa
    },
    removed: 1,
    ends_as: VdevKind::Hole,
};

/// What happened on the disks, and what the pool should hold after each step.
struct Recording {
    disks: Vec<Arc<PowerCut>>,
    first: u64,
    commands: u64,
    worlds: Vec<Step>,
}

/// Works on a pool, removes a vdev while work goes on, and works on.
fn record(case: &Case, seed: u64) -> Recording {
    let supply = PowerSupply::new();
    let disk = |n| PowerCut::fed_by(&supply, format!("/disk{n}"), DISK_BYTES, 512);
    let disks: Vec<Arc<PowerCut>> = (0..case.disks).map(|n| Arc::new(disk(n))).collect();
    let providers: Vec<Arc<dyn Provider>> = disks.iter().map(|disk| disk.clone() as _).collect();
    let (mut dice, mut world) = (Dice::new(seed), World::default());
    let spa = (case.make)(&providers);
    steps(&spa, &mut world, &mut dice, 60);
    spa.sync().unwrap();
    disks.iter().for_each(|disk| disk.forget());
    let begin = supply.commands();
    let mut worlds = vec![(world.clone(), Some(begin))];
    remove(&spa, case.removed).unwrap();
    worlds.push((world.clone(), Some(supply.commands())));
    let mut during = 0;
    while spa.is_removing() && during < 30 {
        during += 1;
        steps(&spa, &mut world, &mut dice, 1);
        worlds.push((world.clone(), None));
        spa.sync().unwrap();
        worlds.last_mut().unwrap().1 = Some(supply.commands());
    }
    assert!(
        case.ends_as == VdevKind::Hole || during > 3,
        "{during} steps meanwhile"
    );
    spa.wait_removal(&mut |_| true).unwrap();
    assert_eq!(spa.parts().tree().tops()[case.removed].kind(), case.ends_as);
    for _ in 0..5 {
        steps(&spa, &mut world, &mut dice, 1);
        worlds.push((world.clone(), None));
    }
    spa.sync().unwrap();
    worlds.push((world.clone(), Some(supply.commands())));
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
    /// Cuts the power after the n-th command, opens what is left, and returns what was removed in the end.
    fn cut(&self, n: u64, seed: u64, case: &Case) -> Result<bool, String> {
        let image = |disk: &Arc<PowerCut>| Arc::new(disk.image_after(n, seed)) as Arc<dyn Provider>;
        let images: Vec<_> = self.disks.iter().map(image).collect();
        let spa = pool::open(&images, false).map_err(|e| format!("import: {e}"))?;
        let world = cuts::find(&self.worlds, &spa, n)?;
        let removing = spa.is_removing();
        spa.wait_removal(&mut |_| true)
            .map_err(|e| format!("removal: {e}"))?;
        world.compare(spa.parts().dsl())?;
        let report = pool::verify(&spa).map_err(|e| format!("check: {e}"))?;
        if !report.is_clean() {
            return Err(format!("findings: {:#?}", report.findings));
        }
        let tops = spa.parts().tree().tops();
        let is_removed = tops[case.removed].kind() == case.ends_as;
        if removing && !is_removed {
            return Err(format!("{:?} after a removal", tops[case.removed].kind()));
        }
        spa.export().map_err(|e| format!("export: {e}"))?;
        Ok(is_removed)
    }
}

fn cut_everywhere(case: &Case, seed: u64) {
    let recording = record(case, seed);
    let begun = recording.worlds[1].1.expect("its beginning was synced");
    let mut outcomes = [0; 2];
    let commands = recording.first..=recording.commands;
    let cut = |n| recording.cut(n, seed ^ n, case);
    for (n, removed) in cuts::everywhere(commands, CUTS, seed, cut) {
        // Until then, an uberblock that was not flushed may be there or not.
        assert!(
            removed || n < begun,
            "SEED={seed}, cut after {n}: it is back"
        );
        outcomes[usize::from(removed)] += 1;
    }
    assert!(
        outcomes[0] > 0 && outcomes[1] > 0,
        "not every outcome was seen: {outcomes:?}"
    );
}

#[test]
fn sim_power_cuts_while_a_disk_is_removed() {
    let seed = seed(41);
    rt::simulate(seed, move || cut_everywhere(&DISK, seed));
}

#[test]
fn sim_power_cuts_while_a_mirror_is_removed() {
    let seed = seed(42);
    rt::simulate(seed, move || cut_everywhere(&MIRROR, seed));
}

#[test]
fn sim_power_cuts_while_a_special_vdev_is_removed() {
    let seed = seed(43);
    rt::simulate(seed, move || cut_everywhere(&SPECIAL, seed));
}

#[test]
fn sim_power_cuts_while_a_log_device_is_removed() {
    let seed = seed(44);
    rt::simulate(seed, move || cut_everywhere(&LOG, seed));
}

fn image(folder: &Path, n: usize) -> Arc<dyn Provider> {
    let path = folder.join(format!("disk{n}"));
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(DISK_BYTES).unwrap();
    geom::disk::open(&path, OpenMode::ReadWrite).unwrap()
}

/// Removed, half removed, cancelled, removed once more: the real `zdb` looks at the pool each time. In simulated time:
/// a removal goes on by itself meanwhile, further on a slow computer.
#[test]
fn sim_zdb_finds_each_state_of_removals_clean() {
    rt::simulate(48, || {
        let disk = |n| Arc::new(Memory::new(format!("/disk{n}"), DISK_BYTES)) as _;
        let disks: Vec<Arc<dyn Provider>> = (0..5).map(disk).collect();
        let (mut dice, mut world) = (Dice::new(seed(48)), World::default());
        let spa = pool::create_with("tank", Layout::Stripe, 9, &disks, no_root(), slowly());
        let spa = spa.unwrap();
        steps(&spa, &mut world, &mut dice, 100);
        spa.export().unwrap();
        drop(spa);
        type Act = fn(&Spa);
        let acts: [(&str, Act); 6] = [
            ("half removed", |spa| remove(spa, 0).unwrap()),
            ("cancelled", |spa| spa.cancel_remove().unwrap()),
            ("half removed again", |spa| remove(spa, 1).unwrap()),
            ("removed", |spa| spa.wait_removal(&mut |_| true).unwrap()),
            ("removed twice", |spa| {
                remove(spa, 0).unwrap();
                spa.wait_removal(&mut |_| true).unwrap();
            }),
            ("scrubbed", scrub),
        ];
        for (what, act) in acts {
            let spa = pool::open_with(&disks, false, slowly()).unwrap();
            act(&spa);
            steps(&spa, &mut world, &mut dice, 15);
            world.compare(spa.parts().dsl()).unwrap();
            pool::assert_clean(&spa);
            assert_eq!(spa.is_removing(), what.starts_with("half"), "{what}");
            spa.export().unwrap();
            drop(spa);
            pool::verify_with_zdb(&disks, "tank");
        }
    });
}

/// Most of what a mapping leads to is freed: it is condensed.
#[test]
fn sim_a_mapping_is_condensed() {
    rt::simulate(5, || {
        let disk = |n| Arc::new(Memory::new(format!("/disk{n}"), DISK_BYTES)) as _;
        let disks: Vec<Arc<dyn Provider>> = (0..3).map(disk).collect();
        let mut settings = slowly();
        settings.scan.blocks_max = 100;
        settings.removal.condense_min_mapping_bytes = 0;
        let spa = pool::create_with("tank", Layout::Stripe, 9, &disks, no_root(), settings);
        let spa = spa.unwrap();
        pool::create_fs(&spa, "tank/fs", &[("compression", 2)]).unwrap();
        let fs = mount(spa.parts().dsl(), "tank/fs", false).unwrap();
        for n in [1, 2, 3] {
            let name = format!("f{n}");
            let file = fs.create_file(fs.root(), name.as_bytes(), &Create::default());
            fs.write(file.unwrap().id, 0, &content(n, false)).unwrap();
        }
        spa.sync().unwrap();
        remove(&spa, 0).unwrap();
        spa.wait_removal(&mut |_| true).unwrap();
        let entries = |spa: &Spa| {
            let top = spa.parts().tree().tops()[0].clone();
            let mapping = top.mapping().unwrap();
            (mapping.entries().len(), top.config().indirect_object)
        };
        let before = entries(&spa);
        for n in [1, 3] {
            fs.unlink(fs.root(), format!("f{n}").as_bytes()).unwrap();
        }
        for _ in 0..6 {
            spa.sync().unwrap();
            pool::assert_clean(&spa);
        }
        let after = entries(&spa);
        assert!(
            after.1 != before.1 && after.0 < before.0,
            "{before:?} {after:?}"
        );
        drop(fs);
        let spa = reopen(spa, &disks);
        assert_eq!(entries(&spa), after);
        let fs = mount(spa.parts().dsl(), "tank/fs", false).unwrap();
        let mut bytes = vec![0; 300_000];
        let length = fs.read(fs.resolve("f2").unwrap(), 0, &mut bytes).unwrap();
        assert!(bytes[..length] == content(2, false));
        fs.unlink(fs.root(), b"f2").unwrap();
        drop(fs);
        spa.sync().unwrap();
        scrub(&spa);
        pool::assert_clean(&spa);
    });
}

/// The kernel ends what was begun here, and begins what is ended here.
const GUEST: &str = r#"set -e
zpool import -d /dev tank
zpool wait -t remove tank
zpool status tank | tee /dev/stderr | grep -q "Removal of vdev 0 copied"
zpool scrub -w tank
zpool status tank | grep -q "with 0 errors"
echo 4096 >/sys/module/zfs/parameters/zfs_remove_max_segment
echo 1 >/sys/module/zfs/parameters/zfs_removal_suspend_progress
zpool remove tank /dev/vdb
zpool status tank | tee /dev/stderr | grep -q "Evacuation of"
zpool sync tank
zpool export tank
"#;

#[test]
fn the_kernel_ends_a_removal_and_begins_one() {
    let Some(guest) = Guest::find() else { return };
    if !have_zdb() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let host = tempfile::tempdir().unwrap();
    let (mut dice, mut world) = (Dice::new(seed(49)), World::default());
    let disks: Vec<_> = (0..5).map(|n| image(folder.path(), n)).collect();
    let root = zpl::mount::init(zpl::NewFilesystem::default(), true);
    let spa = pool::create_with("tank", Layout::Stripe, 9, &disks, root, slowly()).unwrap();
    steps(&spa, &mut world, &mut dice, 150);
    remove(&spa, 0).unwrap();
    steps(&spa, &mut world, &mut dice, 15);
    spa.sync().unwrap();
    assert!(spa.is_removing(), "it takes longer than that");
    spa.export().unwrap();
    drop((spa, disks));
    Zdb::verify(folder.path(), "tank").assert_clean();

    let paths: Vec<PathBuf> = (0..5)
        .map(|n| folder.path().join(format!("disk{n}")))
        .collect();
    let names: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    guest.run(GUEST, host.path(), &names).assert_success();

    Zdb::verify(folder.path(), "tank").assert_clean();
    let open = |path| geom::disk::open(path, OpenMode::ReadWrite).unwrap();
    let disks: Vec<Arc<dyn Provider>> = paths.iter().map(|path| open(path)).collect();
    let spa = pool::open(&disks, false).unwrap();
    assert_eq!(kinds(&spa)[0], VdevKind::Indirect);
    assert!(spa.is_removing());
    steps(&spa, &mut world, &mut dice, 15);
    spa.wait_removal(&mut |_| true).unwrap();
    assert_eq!(kinds(&spa)[1], VdevKind::Indirect);
    world.compare(spa.parts().dsl()).unwrap();
    scrub(&spa);
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    Zdb::verify(folder.path(), "tank").assert_clean();
}

#[test]
fn sim_what_cannot_be_removed_is_refused() {
    rt::simulate(6, || {
        let disk = |n| Arc::new(Memory::new(format!("/disk{n}"), DISK_BYTES)) as _;
        let disks: Vec<Arc<dyn Provider>> = (0..8).map(disk).collect();
        let kind = |outcome: base::Result<()>| outcome.unwrap_err().kind();
        let spa = pool::create("tank", Layout::Stripe, 9, &disks[..1], no_root()).unwrap();
        assert_eq!(
            kind(remove(&spa, 0)),
            ErrorKind::NoSpace,
            "it is the only one"
        );
        assert_eq!(kind(spa.cancel_remove()), ErrorKind::NotFound);
        assert_eq!(kind(spa.remove(Guid(7))), ErrorKind::NotFound);
        add(&spa, AllocClass::Normal, Grouping::Mirror, &disks[1..3]);
        let side = spa.parts().tree().tops()[1].children()[0].guid();
        assert_eq!(kind(spa.remove(side)), ErrorKind::Unsupported);
        add(&spa, AllocClass::Normal, Grouping::Single, &disks[3..4]);
        add(&spa, AllocClass::Normal, Grouping::Single, &disks[4..5]);
        spa.parts().tree().offline(side, true).unwrap();
        let text = content(1, false);
        let root = |spa: &Spa| {
            pool::create_fs(spa, "tank/fs", &[("compression", 2), ("recordsize", 8192)]).unwrap();
            let fs = mount(spa.parts().dsl(), "tank/fs", false).unwrap();
            let file = fs
                .create_file(fs.root(), b"file", &Create::default())
                .unwrap();
            for turn in 0..20 {
                fs.write(file.id, turn * text.len() as u64, &text).unwrap();
            }
        };
        root(&spa);
        spa.sync().unwrap();
        assert_eq!(
            kind(remove(&spa, 1)),
            ErrorKind::Busy,
            "a side lacks something"
        );
        remove(&spa, 0).unwrap();
        assert_eq!(kind(remove(&spa, 0)), ErrorKind::Exists);
        let draid = Grouping::Draid {
            parity: 1,
            data: 2,
            children: 3,
            spares: 0,
        };
        for grouping in [Grouping::Raidz { parity: 1 }, draid] {
            let top = TopSpec::new(grouping, disks[5..8].iter().map(new_device).collect());
            let sectors = (0, AutoAshift::default());
            let added = spa.add(&[top], &AuxSpec::default(), sectors, true);
            assert_eq!(kind(added), ErrorKind::InvalidInput);
        }
        spa.wait_removal(&mut |_| true).unwrap();
        assert_eq!(kind(remove(&spa, 0)), ErrorKind::Unsupported, "it is gone");
    });
}
