//! Checkpoints of pools, taken here and by OpenZFS: what they keep is there, whatever happens to the pool and whenever
//! the power is cut; what is discarded is free again; and the real `zdb` finds no fault in any state.
//!
//! `CUTS=all` tries every single write; the default takes a sample.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::ErrorKind;
use faulty::{PowerCut, PowerSupply};
use geom::Provider;
use geom::disk::OpenMode;
use oracle::vm::Guest;
use oracle::{Zdb, have_zdb};
use ram::Memory;
use spa::{Settings, Spa};
use torture::cuts::{self, Step};
use torture::golden::golden;
use torture::model::World;
use torture::pool::{self, Layout};
use torture::{Dice, seed};
use vdev::{Attach, AutoAshift, AuxSpec, Grouping, NewDevice, TopSpec, VdevKind};
use zpl::Create;
use zpl::mount::mount;

const DISK_BYTES: u64 = 128 << 20;
const CUTS: u64 = 40;

fn memory(count: usize) -> Vec<Arc<dyn Provider>> {
    let disk = |n| Arc::new(Memory::new(format!("/disk{n}"), DISK_BYTES)) as _;
    (0..count).map(disk).collect()
}

fn root() -> dsl::ObjsetInit {
    zpl::mount::init(zpl::NewFilesystem::default(), true)
}

/// A txg discards little, so that it takes many.
fn slowly() -> Settings {
    let mut settings = pool::settings();
    settings.discard_entries_max = 5;
    settings
}

fn steps(spa: &Spa, world: &mut World, dice: &mut Dice, count: usize) {
    for step in 0..count {
        let outcome = world.step(spa, dice);
        outcome.unwrap_or_else(|e| panic!("step {step}: {e}"));
    }
}

fn bytes(spa: &Spa) -> u64 {
    let checkpoint = spa.checkpoint().unwrap();
    checkpoint.map_or(0, |checkpoint| checkpoint.bytes)
}

/// Whether there is a checkpoint; `None` while it is discarded.
fn is_there(spa: &Spa) -> Option<bool> {
    match spa.checkpoint().unwrap() {
        None => Some(false),
        Some(checkpoint) => checkpoint.start_secs.map(|_| true),
    }
}

fn finish(spa: &Spa) {
    spa.finish_discard(&mut |_| {}).unwrap();
    assert_eq!(is_there(spa), Some(false));
}

fn assert_world(spa: &Spa, world: &World, what: &str) {
    let compared = world.compare(spa.parts().dsl());
    compared.unwrap_or_else(|e| panic!("{what}: {e}"));
    pool::assert_clean(spa);
}

/// The pool as it was, and as it is; then everything since is given up, or the checkpoint is.
fn take_and_leave(layout: Layout, count: usize, seed: u64) {
    let disks = memory(count);
    let (mut dice, mut world) = (Dice::new(seed), World::default());
    let spa = pool::create_with("tank", layout, 12, &disks, root(), slowly()).unwrap();
    steps(&spa, &mut world, &mut dice, 60);
    let mut kept = world.clone();
    spa.take_checkpoint().unwrap();
    for _ in 0..4 {
        steps(&spa, &mut world, &mut dice, 15);
        spa.sync().unwrap();
        assert_world(&spa, &world, "with a checkpoint");
    }
    assert!(bytes(&spa) > 0 && is_there(&spa) == Some(true));
    spa.export().unwrap();
    drop(spa);

    let looked = pool::rewind(&disks, true).unwrap();
    assert_world(&looked, &kept, "as it was");
    assert_eq!(is_there(&looked), Some(false));
    drop(looked);
    let spa = pool::open_with(&disks, false, slowly()).unwrap();
    assert_eq!(is_there(&spa), Some(true));
    let before = bytes(&spa);
    steps(&spa, &mut world, &mut dice, 20);
    spa.sync().unwrap();
    assert!(bytes(&spa) >= before);
    assert_world(&spa, &world, "opened again");
    if dice.below(2) == 0 {
        spa.export().unwrap();
        drop(spa);
        let spa = pool::rewind(&disks, false).unwrap();
        assert_world(&spa, &kept, "rewound");
        steps(&spa, &mut kept, &mut dice, 30);
        spa.sync().unwrap();
        assert_world(&spa, &kept, "rewound and written");
        spa.export().unwrap();
        drop(spa);
        let spa = pool::open(&disks, false).unwrap();
        assert_world(&spa, &kept, "rewound and opened again");
        assert_eq!(is_there(&spa), Some(false));
        return;
    }
    let before = bytes(&spa);
    spa.discard_checkpoint().unwrap();
    assert_eq!(is_there(&spa), None, "a txg does not discard so much");
    steps(&spa, &mut world, &mut dice, 10);
    spa.sync().unwrap();
    assert!(bytes(&spa) < before, "{} of {before}", bytes(&spa));
    assert_world(&spa, &world, "while it is discarded");
    finish(&spa);
    assert_world(&spa, &world, "discarded");
    spa.take_checkpoint().unwrap();
    steps(&spa, &mut world, &mut dice, 10);
    spa.sync().unwrap();
    assert_world(&spa, &world, "with another one");
}

#[test]
fn sim_a_checkpoint_keeps_what_was_there() {
    let seed = seed(61);
    rt::simulate(seed, move || {
        let layouts = [
            (Layout::Stripe, 2),
            (Layout::Mirror, 2),
            (Layout::Raidz(1), 3),
            (Layout::Draid(1, 2, 1), 4),
        ];
        for (n, (layout, count)) in (0..).zip(layouts) {
            take_and_leave(layout, count, seed + n);
            take_and_leave(layout, count, seed + 5 + n);
        }
    });
}

/// What happened on the disks, and what the pool should hold after each step.
struct Recording {
    disks: Vec<Arc<PowerCut>>,
    first: u64,
    commands: u64,
    /// With the command since which it is on disk.
    worlds: Vec<Step>,
    kept: World,
}

impl Recording {
    fn begin(seed: u64) -> (Recording, Vec<Arc<dyn Provider>>, Arc<PowerSupply>, Dice) {
        let supply = PowerSupply::new();
        let disk = |n| PowerCut::fed_by(&supply, format!("/disk{n}"), DISK_BYTES, 512);
        let disks: Vec<Arc<PowerCut>> = (0..2).map(|n| Arc::new(disk(n))).collect();
        let providers = disks.iter().map(|disk| disk.clone() as _).collect();
        let recording = Recording {
            disks,
            first: 0,
            commands: 0,
            worlds: Vec::new(),
            kept: World::default(),
        };
        (recording, providers, supply, Dice::new(seed))
    }

    /// From here on the power is cut.
    fn start(&mut self, supply: &PowerSupply, world: &World) {
        self.disks.iter().for_each(|disk| disk.forget());
        self.first = supply.commands();
        self.worlds = vec![(world.clone(), Some(self.first))];
    }

    fn work(
        &mut self,
        spa: &Spa,
        supply: &PowerSupply,
        (world, dice): (&mut World, &mut Dice),
        count: usize,
    ) {
        for _ in 0..count {
            steps(spa, world, dice, 1);
            self.worlds.push((world.clone(), None));
            spa.sync().unwrap();
            self.note(supply, world);
        }
    }

    /// This is on disk.
    fn note(&mut self, supply: &PowerSupply, world: &World) {
        self.worlds.push((world.clone(), Some(supply.commands())));
    }

    /// Cuts the power after the n-th command, and checks what is left. Returns whether there is a checkpoint.
    fn cut(&self, n: u64, seed: u64) -> Result<Option<bool>, String> {
        let image = |disk: &Arc<PowerCut>| Arc::new(disk.image_after(n, seed)) as Arc<dyn Provider>;
        let images: Vec<_> = self.disks.iter().map(image).collect();
        let spa = pool::open_with(&images, false, slowly()).map_err(|e| format!("import: {e}"))?;
        let found = is_there(&spa);
        cuts::find(&self.worlds, &spa, n)?;
        let check = |spa: &Spa| {
            let report = pool::verify(spa).map_err(|e| format!("check: {e}"))?;
            let findings = &report.findings;
            let is_clean = report.is_clean();
            is_clean.then_some(()).ok_or(format!("{findings:#?}"))
        };
        check(&spa)?;
        spa.finish_discard(&mut |_| {}).map_err(|e| e.to_string())?;
        check(&spa)?;
        spa.export().map_err(|e| format!("export: {e}"))?;
        drop(spa);
        if found == Some(true) {
            let spa = pool::rewind(&images, true).map_err(|e| format!("rewind: {e}"))?;
            self.kept.compare(spa.parts().dsl())?;
            check(&spa)?;
        }
        Ok(found)
    }

    fn cut_everywhere(&self, seed: u64) -> [u64; 3] {
        let mut outcomes = [0; 3];
        let cut = |n| self.cut(n, seed ^ n);
        for (_, found) in cuts::everywhere(self.first..=self.commands, CUTS, seed, cut) {
            outcomes[found.map_or(2, usize::from)] += 1;
        }
        outcomes
    }
}

#[test]
fn sim_power_cuts_while_a_checkpoint_is_taken_and_discarded() {
    let seed = seed(62);
    rt::simulate(seed, move || {
        let (mut recording, disks, supply, mut dice) = Recording::begin(seed);
        let mut world = World::default();
        let spa = pool::create_with("tank", Layout::Stripe, 9, &disks, root(), slowly()).unwrap();
        steps(&spa, &mut world, &mut dice, 60);
        spa.sync().unwrap();
        recording.start(&supply, &world);
        recording.kept = world.clone();
        spa.take_checkpoint().unwrap();
        recording.work(&spa, &supply, (&mut world, &mut dice), 8);
        spa.discard_checkpoint().unwrap();
        recording.work(&spa, &supply, (&mut world, &mut dice), 3);
        finish(&spa);
        recording.work(&spa, &supply, (&mut world, &mut dice), 3);
        spa.close().unwrap();
        recording.commands = supply.commands();
        let outcomes = recording.cut_everywhere(seed);
        assert!(
            outcomes.iter().all(|count| *count > 0),
            "not every outcome was seen: {outcomes:?}"
        );
    });
}

#[test]
fn sim_power_cuts_while_a_pool_is_rewound() {
    let seed = seed(63);
    rt::simulate(seed, move || {
        let (mut recording, disks, supply, mut dice) = Recording::begin(seed);
        let mut world = World::default();
        let spa = pool::create_with("tank", Layout::Mirror, 9, &disks, root(), slowly()).unwrap();
        steps(&spa, &mut world, &mut dice, 60);
        let mut kept = world.clone();
        spa.take_checkpoint().unwrap();
        steps(&spa, &mut world, &mut dice, 20);
        spa.export().unwrap();
        drop(spa);
        recording.start(&supply, &world);
        recording.kept = kept.clone();
        recording.worlds.push((kept.clone(), None));
        let spa = pool::rewind(&disks, false).unwrap();
        recording.note(&supply, &kept);
        recording.work(&spa, &supply, (&mut kept, &mut dice), 6);
        spa.close().unwrap();
        recording.commands = supply.commands();
        let outcomes = recording.cut_everywhere(seed);
        assert!(
            outcomes[0] > 0 && outcomes[1] > 0 && outcomes[2] == 0,
            "{outcomes:?}"
        );
    });
}

/// A log that was in use when the checkpoint was taken, and whose blocks were overwritten since, is given up; what it
/// had then is in the checkpoint.
#[test]
fn sim_the_intent_log_of_a_rewound_pool_is_given_up() {
    rt::simulate(64, || {
        let disks = memory(1);
        let spa = pool::create("tank", Layout::Stripe, 9, &disks, root()).unwrap();
        let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
        let file = fs.create_file(fs.root(), b"file", &Create::default());
        let file = file.unwrap().id;
        for turn in 0..10u8 {
            fs.write(file, 0, &[turn; 5000]).unwrap();
            fs.fsync(file).unwrap();
        }
        spa.take_checkpoint().unwrap();
        for turn in 10..40u8 {
            fs.write(file, 0, &[turn; 70_000]).unwrap();
            fs.fsync(file).unwrap();
            spa.sync().unwrap();
        }
        drop(fs);
        pool::assert_clean(&spa);
        spa.export().unwrap();
        drop(spa);
        for readonly in [true, false] {
            let spa = pool::rewind(&disks, readonly).unwrap();
            pool::assert_clean(&spa);
            let fs = mount(spa.parts().dsl(), "tank", readonly).unwrap();
            let mut bytes = vec![0; 70_000];
            let file = fs.resolve("file").unwrap();
            assert_eq!(fs.read(file, 0, &mut bytes).unwrap(), 5000);
            assert!(bytes[..5000].iter().all(|byte| *byte == 9));
            if !readonly {
                fs.write(file, 0, &[77; 5000]).unwrap();
                fs.fsync(file).unwrap();
                drop(fs);
                spa.sync().unwrap();
                pool::assert_clean(&spa);
                spa.export().unwrap();
            }
        }
        let spa = pool::open(&disks, false).unwrap();
        pool::assert_clean(&spa);
    });
}

fn image(folder: &Path, n: usize) -> Arc<dyn Provider> {
    let path = folder.join(format!("disk{n}"));
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(DISK_BYTES).unwrap();
    geom::disk::open(&path, OpenMode::ReadWrite).unwrap()
}

/// What the real `zdb` says of the checkpointed state.
fn zdb_of_checkpoint(folder: &Path) -> Zdb {
    let folder = folder.as_os_str();
    Zdb::run(&[
        "-e".as_ref(),
        "-p".as_ref(),
        folder,
        "-kbcc".as_ref(),
        "tank".as_ref(),
    ])
}

/// Taken, half discarded, discarded, taken again, with another vdev, rewound: the real `zdb` looks at the pool each
/// time, and at the checkpointed state.
///
/// How much is discarded meanwhile is a matter of how many txgs there are: simulated time says that.
#[test]
fn sim_zdb_finds_each_state_of_checkpoints_clean() {
    if have_zdb() {
        rt::simulate(65, each_state);
    }
}

fn each_state() {
    let folder = tempfile::tempdir().unwrap();
    let disks: Vec<_> = (0..3).map(|n| image(folder.path(), n)).collect();
    let (mut dice, mut world) = (Dice::new(seed(65)), World::default());
    let spa = pool::create_with("tank", Layout::Stripe, 9, &disks[..2], root(), slowly()).unwrap();
    steps(&spa, &mut world, &mut dice, 100);
    spa.export().unwrap();
    drop(spa);
    type Act = fn(&Spa, &[Arc<dyn Provider>]);
    let acts: [(&str, Act); 5] = [
        ("taken", |spa, _| spa.take_checkpoint().unwrap()),
        ("half discarded", |spa, _| spa.discard_checkpoint().unwrap()),
        ("discarded", |spa, _| finish(spa)),
        ("taken again", |spa, _| spa.take_checkpoint().unwrap()),
        ("taken, with another vdev", |spa, disks| add(spa, &disks[2])),
    ];
    let mut kept = World::default();
    for (what, act) in acts {
        let mut settings = pool::settings();
        if what == "half discarded" {
            settings.discard_entries_max = 1;
        }
        let spa = pool::open_with(&disks, false, settings).unwrap();
        if what == "taken again" {
            kept = world.clone();
        }
        act(&spa, &disks);
        let count = if what == "half discarded" { 1 } else { 15 };
        steps(&spa, &mut world, &mut dice, count);
        spa.sync().unwrap();
        assert_world(&spa, &world, what);
        if what == "half discarded" {
            // Left as when a program is killed: otherwise it would be discarded to its end.
            assert_eq!(is_there(&spa), None);
            drop(spa);
        } else {
            spa.export().unwrap();
            drop(spa);
        }
        let found = Zdb::verify(folder.path(), "tank");
        let (out, err) = (&found.stdout, &found.stderr);
        assert!(found.is_clean(), "{what}:\n{out}\n{err}");
        if what.starts_with("taken") {
            let found = zdb_of_checkpoint(folder.path());
            let (out, err) = (&found.stdout, &found.stderr);
            assert!(found.is_clean(), "{what}, checkpointed:\n{out}\n{err}");
        }
    }
    let spa = pool::rewind(&disks, false).unwrap();
    assert_world(&spa, &kept, "rewound");
    steps(&spa, &mut kept, &mut dice, 15);
    spa.export().unwrap();
    drop(spa);
    Zdb::verify(folder.path(), "tank").assert_clean();
}

fn new_device(provider: &Arc<dyn Provider>) -> NewDevice {
    NewDevice {
        kind: VdevKind::Disk,
        path: provider.name().to_owned(),
        provider: Arc::clone(provider),
    }
}

fn add(spa: &Spa, disk: &Arc<dyn Provider>) {
    let top = TopSpec::new(Grouping::Single, vec![new_device(disk)]);
    let sectors = (0, AutoAshift::default());
    spa.add(&[top], &AuxSpec::default(), sectors, true).unwrap();
}

const GOLDEN: &str = "openzfs-2.3.2-checkpoint";

fn names(spa: &Spa) -> Vec<bool> {
    let fs = mount(spa.parts().dsl(), "tank", true).unwrap();
    let names = ["file", "later", "new"];
    names.map(|name| fs.resolve(name).is_ok()).to_vec()
}

#[test]
fn a_checkpoint_of_openzfs_is_discarded_here() {
    let disks = [golden(GOLDEN)];
    let spa = pool::open(&disks, false).unwrap();
    assert!(!spa.is_readonly(), "{:?}", spa.obstacles());
    assert_eq!(names(&spa), [true, true, false]);
    let before = bytes(&spa);
    pool::write_file(&spa, "tank", "new", &vec![5; 500_000]);
    let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
    fs.unlink(fs.root(), b"file").unwrap();
    drop(fs);
    spa.sync().unwrap();
    // The file was small enough to be in its dnode.
    assert!(bytes(&spa) >= before && before > 0);
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&disks, "tank");
    let spa = pool::open(&disks, false).unwrap();
    spa.discard_checkpoint().unwrap();
    finish(&spa);
    pool::assert_clean(&spa);
    assert_eq!(names(&spa), [false, true, true]);
    spa.export().unwrap();
    pool::verify_with_zdb(&disks, "tank");
}

#[test]
fn a_pool_is_rewound_to_a_checkpoint_of_openzfs() {
    let disks = [golden(GOLDEN)];
    let spa = pool::open(&disks, false).unwrap();
    pool::write_file(&spa, "tank", "new", &vec![5; 500_000]);
    let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
    fs.unlink(fs.root(), b"file").unwrap();
    drop(fs);
    spa.export().unwrap();
    drop(spa);
    let spa = pool::rewind(&disks, true).unwrap();
    assert_eq!(names(&spa), [true, false, false]);
    pool::assert_clean(&spa);
    drop(spa);
    let spa = pool::rewind(&disks, false).unwrap();
    assert_eq!(names(&spa), [true, false, false]);
    pool::write_file(&spa, "tank", "new", &vec![6; 500_000]);
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&disks, "tank");
    let again = pool::rewind(&disks, false).err().map(|e| e.kind());
    assert_eq!(again, Some(ErrorKind::NotFound));
}

#[test]
fn sim_what_a_checkpoint_does_not_allow_is_refused() {
    rt::simulate(66, || {
        let disks = memory(5);
        let said = |outcome: base::Result<()>| outcome.unwrap_err().to_string();
        let spa = pool::create("tank", Layout::Mirror, 9, &disks[..2], root()).unwrap();
        assert_eq!(said(spa.discard_checkpoint()), "checkpoint does not exist");
        add(&spa, &disks[2]);
        add(&spa, &disks[4]);
        spa.remove(spa.parts().tree().tops()[1].guid()).unwrap();
        assert_eq!(said(spa.take_checkpoint()), "device removal in progress");
        spa.wait_removal(&mut |_| true).unwrap();
        spa.take_checkpoint().unwrap();
        let side = spa.parts().tree().tops()[0].children()[0].guid();
        let (new, sectors) = (new_device(&disks[3]), (0, AutoAshift::default()));
        let refuse_all = |text: &str| {
            assert_eq!(said(spa.take_checkpoint()), text);
            assert_eq!(said(spa.detach(side)), text);
            for attach in [Attach::Side, Attach::Replacement] {
                assert_eq!(said(spa.attach(side, &new, attach, sectors)), text);
            }
            assert_eq!(said(spa.remove(side)), text);
            assert_eq!(said(spa.change_guid(None)), text);
        };
        refuse_all("checkpoint exists");
        spa.discard_checkpoint().unwrap();
        finish(&spa);
        spa.detach(side).unwrap();
        pool::assert_clean(&spa);
    });
}

/// A device that missed something is resilvered, but counts as complete only when the checkpoint is gone.
#[test]
fn sim_a_resilver_beside_a_checkpoint_is_repeated_after_it() {
    rt::simulate(67, || {
        let disks = memory(2);
        let spa = pool::create("tank", Layout::Mirror, 9, &disks, root()).unwrap();
        let side = spa.parts().tree().tops()[0].children()[0].clone();
        spa.parts().tree().offline(side.guid(), false).unwrap();
        pool::write_file(&spa, "tank", "one", &vec![1; 300_000]);
        spa.take_checkpoint().unwrap();
        let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
        fs.unlink(fs.root(), b"one").unwrap();
        drop(fs);
        pool::write_file(&spa, "tank", "two", &vec![2; 300_000]);
        spa.parts()
            .tree()
            .online(side.guid(), disks[0].clone())
            .unwrap();
        spa.resilver_if_needed().unwrap();
        spa.wait_scan(&mut |_| true).unwrap();
        assert!(side.leaf().has_dtl(), "it lacks what the checkpoint keeps");
        spa.discard_checkpoint().unwrap();
        finish(&spa);
        spa.resilver_if_needed().unwrap();
        spa.wait_scan(&mut |_| true).unwrap();
        assert!(!side.leaf().has_dtl());
        pool::assert_clean(&spa);
    });
}

/// The kernel rewinds what was taken here, and ends what was half discarded here; a checkpoint of its own it leaves
/// half discarded.
const GUEST: &str = r#"set -e
zpool import -d /dev -o readonly=on --rewind-to-checkpoint -N tank
zpool export tank
zpool import -d /dev tank
zpool status tank | tee /dev/stderr | grep -q "checkpoint: created"
zpool export tank
zpool import -d /dev --rewind-to-checkpoint tank
if zpool list -Ho checkpoint tank | grep -q K; then exit 1; fi
zpool scrub -w tank
zpool status tank | grep -q "with 0 errors"
zpool export tank
zpool import -f -d /dev half
zpool wait -t discard half
if zpool status half | tee /dev/stderr | grep -q "checkpoint:"; then exit 1; fi
zpool export half
zpool create -o ashift=9 -O recordsize=4k -O compression=off theirs /host/disk2
i=0; while [ $i -lt 60 ]; do head -c 20000 /dev/urandom >/theirs/f$i; i=$((i+1)); done
zpool checkpoint theirs
i=0; while [ $i -lt 60 ]; do rm /theirs/f$i; i=$((i+2)); done
zpool sync theirs
echo 64 >/sys/module/zfs/parameters/zfs_spa_discard_memory_limit
zpool checkpoint -d theirs
zpool status theirs | tee /dev/stderr | grep -q "checkpoint: discarding"
zpool export theirs
"#;

/// A pool with a checkpoint, and one that is left while it discards its own (simulated time says how much of it is).
/// What is in the checkpoint of the first, and in the second.
fn kept_and_half_discarded(folder: &Path) -> Vec<World> {
    let mut dice = Dice::new(seed(68));
    let mut worlds = Vec::new();
    for (n, name) in ["tank", "half"].into_iter().enumerate() {
        let disk = [image(folder, n)];
        let mut world = World::default();
        let spa = pool::create_with(name, Layout::Stripe, 9, &disk, root(), slowly()).unwrap();
        steps(&spa, &mut world, &mut dice, 80);
        let kept = world.clone();
        spa.take_checkpoint().unwrap();
        steps(&spa, &mut world, &mut dice, 40);
        spa.sync().unwrap();
        if name == "half" {
            spa.discard_checkpoint().unwrap();
            assert_eq!(is_there(&spa), None);
            worlds.push(world);
        } else {
            worlds.push(kept);
            spa.export().unwrap();
        }
    }
    worlds
}

#[test]
fn the_kernel_rewinds_to_a_checkpoint_and_ends_a_discard() {
    let Some(guest) = Guest::find() else { return };
    if !have_zdb() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let host = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = (0..2)
        .map(|n| folder.path().join(format!("disk{n}")))
        .collect();
    let worlds = rt::simulate(68, || kept_and_half_discarded(folder.path()));
    let theirs = host.path().join("disk2");
    drop(image(host.path(), 2));
    let names: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    guest.run(GUEST, host.path(), &names).assert_success();
    for (n, (path, world)) in paths.iter().zip(worlds).enumerate() {
        let disk = [geom::disk::open(path, OpenMode::ReadWrite).unwrap()];
        let spa = pool::open(&disk, false).unwrap();
        assert_world(&spa, &world, &format!("disk {n}"));
        assert_eq!(is_there(&spa), Some(false));
        spa.export().unwrap();
    }
    let disk = [geom::disk::open(&theirs, OpenMode::ReadWrite).unwrap()];
    let spa = pool::open_with(&disk, false, slowly()).unwrap();
    assert_eq!(is_there(&spa), None);
    pool::assert_clean(&spa);
    finish(&spa);
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&disk, "theirs");
}
