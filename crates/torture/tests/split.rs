//! Pools of mirrors that are split: both halves hold what the pool held, whenever the power is cut, and the real `zdb`
//! finds no fault in either.
//!
//! `CUTS=all` tries every single write; the default takes a sample.

use std::sync::Arc;

use base::{ErrorKind, Guid, Result};
use faulty::{PowerCut, PowerSupply};
use geom::Provider;
use ram::Memory;
use spa::{ImportOptions, NewName, Spa};
use torture::cuts;
use torture::model::World;
use torture::pool::{self, Layout};
use torture::{Dice, seed};
use vdev::import::{FoundPool, discover};
use vdev::{Attach, AutoAshift, AuxSpec, Grouping, NewDevice, TopSpec, VdevKind};
use zio::AllocClass;

const DISK_BYTES: u64 = 128 << 20;
const CUTS: u64 = 30;
/// Two mirrors, of two and of three, a log, and a spare.
const DISKS: usize = 7;
/// The devices that become a pool of their own.
const SPLIT: [usize; 2] = [1, 3];

fn new_device(provider: &Arc<dyn Provider>) -> NewDevice {
    NewDevice {
        kind: VdevKind::Disk,
        path: provider.name().to_owned(),
        provider: Arc::clone(provider),
    }
}

/// A pool on all of the disks.
fn create(disks: &[Arc<dyn Provider>]) -> Spa {
    let no_root = Box::new(|_: &_, _: &_| Ok(()));
    let spa = pool::create("tank", Layout::Mirror, 9, &disks[..2], no_root).unwrap();
    let of = |disks: &[Arc<dyn Provider>]| disks.iter().map(new_device).collect::<Vec<_>>();
    let log = TopSpec {
        class: AllocClass::Log,
        ..TopSpec::new(Grouping::Single, of(&disks[5..6]))
    };
    let aux = AuxSpec {
        spares: of(&disks[6..7]),
        caches: Vec::new(),
    };
    let mirror = TopSpec::new(Grouping::Mirror, of(&disks[2..5]));
    // The log is between the mirrors: it becomes a hole.
    let sectors = (0, AutoAshift::default());
    spa.add(&[log], &aux, sectors, true).unwrap();
    spa.add(&[mirror], &AuxSpec::default(), sectors, true)
        .unwrap();
    spa
}

fn guid_at(spa: &Spa, path: &str) -> Guid {
    let devices = spa.parts().tree().devices();
    let is_it = |device: &&Arc<vdev::Vdev>| device.config().path.as_deref() == Some(path);
    devices.iter().find(is_it).unwrap().guid()
}

fn split(spa: &Spa, disks: &[Arc<dyn Provider>]) -> Result<Spa> {
    let guids = SPLIT.map(|n| guid_at(spa, disks[n].name()));
    spa.split("half", &guids, pool::settings(), &|_| Ok(()))
}

fn steps(spa: &Spa, world: &mut World, dice: &mut Dice, count: usize) {
    for step in 0..count {
        let outcome = world.step(spa, dice);
        outcome.unwrap_or_else(|e| panic!("step {step}: {e}"));
    }
}

fn find(disks: &[Arc<dyn Provider>], name: &str) -> Option<FoundPool> {
    let mut pools = discover(disks).pools.into_iter();
    pools.find(|pool| pool.name == name)
}

/// Imports a pool as `tank`, which the model knows it by.
fn open(found: FoundPool, readonly: bool) -> Result<Spa> {
    Spa::import(options(found, readonly))
}

fn options(found: FoundPool, readonly: bool) -> ImportOptions {
    ImportOptions {
        found,
        new_name: Some(NewName {
            name: "tank".to_owned(),
            is_temporary: false,
        }),
        readonly,
        max_txg: None,
        force: false,
        gives_up_logs: false,
        tolerates_missing: false,
        rewinds: false,
        host: pool::host(),
        settings: pool::settings(),
    }
}

fn shape(spa: &Spa) -> String {
    fn words(vdev: &Arc<vdev::Vdev>) -> String {
        if vdev.kind().is_device() {
            let name = vdev.name();
            return name.rsplit('/').next().unwrap().to_owned();
        }
        let children: Vec<String> = vdev.children().iter().map(words).collect();
        format!("{}({})", vdev.kind().word(), children.join(" "))
    }
    let tops: Vec<String> = spa.parts().tree().tops().iter().map(words).collect();
    tops.join(" ")
}

fn finish(spa: &Spa) {
    spa.resilver_if_needed().unwrap();
    spa.wait_scan(&mut |_| true).unwrap();
    for device in spa.parts().tree().devices() {
        let leaf = device.leaf();
        assert!(leaf.is_usable(), "{} is {:?}", device.name(), leaf.state());
        assert!(!leaf.has_dtl(), "{}: {:?}", device.name(), leaf.dtl());
    }
}

const WHOLE: &str = "mirror(disk0 disk1) disk5 mirror(disk2 disk3 disk4)";
const REST: &str = "disk0 disk5 mirror(disk2 disk4)";
const HALF: &str = "disk1 hole() disk3";

/// What the disks hold is what the world says, in each pool that is on them; returns whether there are two.
fn check(disks: &[Arc<dyn Provider>], worlds: &[World]) -> bool {
    let holds = |spa: &Spa| {
        worlds
            .iter()
            .any(|world| world.compare(spa.parts().dsl()).is_ok())
    };
    let old = open(find(disks, "tank").expect("the old pool"), false).unwrap();
    assert!(holds(&old), "the old pool holds something else");
    finish(&old);
    pool::assert_clean(&old);
    let of_old = shape(&old);
    // Later changes of the one are not seen in the other.
    let (mut world, mut dice) = (worlds.last().unwrap().clone(), Dice::new(5));
    if world.compare(old.parts().dsl()).is_ok() {
        steps(&old, &mut world, &mut dice, 20);
        old.sync().unwrap();
        world.compare(old.parts().dsl()).unwrap();
    }
    old.export().unwrap();
    drop(old);
    if of_old == WHOLE {
        return false;
    }
    assert_eq!(of_old, REST);
    let half = open(find(disks, "half").expect("the new pool"), false).unwrap();
    assert_eq!(shape(&half), HALF);
    assert!(half.spares().is_empty());
    assert!(
        worlds[0].compare(half.parts().dsl()).is_ok(),
        "the new pool holds something else"
    );
    finish(&half);
    pool::assert_clean(&half);
    half.export().unwrap();
    true
}

#[test]
fn sim_power_cuts_while_a_pool_is_split() {
    let seed = seed(41);
    rt::simulate(seed, move || {
        let supply = PowerSupply::new();
        let disk = |n| PowerCut::fed_by(&supply, format!("/disk{n}"), DISK_BYTES, 512);
        let disks: Vec<Arc<PowerCut>> = (0..DISKS).map(|n| Arc::new(disk(n))).collect();
        let providers: Vec<Arc<dyn Provider>> = disks.iter().map(|d| d.clone() as _).collect();
        let (mut dice, mut world) = (Dice::new(seed), World::default());
        let spa = create(&providers);
        steps(&spa, &mut world, &mut dice, 40);
        spa.sync().unwrap();
        disks.iter().for_each(|disk| disk.forget());
        let before = world.clone();
        let first = supply.commands();
        let half = split(&spa, &providers).unwrap();
        let split_at = supply.commands();
        half.export().unwrap();
        steps(&spa, &mut world, &mut dice, 1);
        spa.close().unwrap();
        let last = supply.commands();
        let worlds = [before, world];
        let cut = |n: u64| {
            let image = |disk: &Arc<PowerCut>| Arc::new(disk.image_after(n, seed ^ n)) as _;
            let images: Vec<Arc<dyn Provider>> = disks.iter().map(image).collect();
            let found = check(&images, &worlds);
            assert!(
                found || n < split_at,
                "SEED={seed}, cut after {n}: one pool again"
            );
            found
        };
        let sample = cuts::sample(first..=last, CUTS);
        let sample: Vec<(u64, bool)> = sample.map(|n| (n, cut(n))).collect();
        // Where one pool becomes two, every command counts.
        for pair in sample.windows(2) {
            if let [(before, old), (after, new)] = pair
                && old != new
            {
                (before + 1..*after).for_each(|n| {
                    cut(n);
                });
            }
        }
        assert!(!sample[0].1 && sample.last().unwrap().1);
    });
}

fn memory() -> Vec<Arc<dyn Provider>> {
    let disk = |n| Arc::new(Memory::new(format!("/disk{n}"), DISK_BYTES)) as _;
    (0..DISKS).map(disk).collect()
}

#[test]
fn sim_zdb_finds_both_halves_clean() {
    rt::simulate(42, || {
        let disks = memory();
        let (mut dice, mut world) = (Dice::new(42), World::default());
        let spa = create(&disks);
        steps(&spa, &mut world, &mut dice, 150);
        let half = split(&spa, &disks).unwrap();
        assert_eq!((shape(&spa).as_str(), shape(&half).as_str()), (REST, HALF));
        assert_ne!(spa.guid(), half.guid());
        half.export().unwrap();
        drop(half);
        let then = world.clone();
        steps(&spa, &mut world, &mut dice, 50);
        spa.export().unwrap();
        drop(spa);
        let halves: Vec<_> = SPLIT.iter().map(|n| Arc::clone(&disks[*n])).collect();
        let rest: Vec<_> = [0, 2, 4, 5]
            .iter()
            .map(|n| Arc::clone(&disks[*n]))
            .collect();
        for (disks, name, world) in [(&halves, "half", &then), (&rest, "tank", &world)] {
            pool::verify_with_zdb(disks, name);
            let spa = open(find(disks, name).unwrap(), true).unwrap();
            world.compare(spa.parts().dsl()).unwrap();
        }
        // The new pool can be written to, and named the split only until now.
        let found = find(&halves, "half").unwrap();
        assert!(vdev::is_split_off(&found.config));
        let half = open(found, false).unwrap();
        let mut world = then;
        steps(&half, &mut world, &mut dice, 50);
        half.export().unwrap();
        drop(half);
        assert!(!vdev::is_split_off(&find(&halves, "tank").unwrap().config));
        pool::verify_with_zdb(&halves, "tank");
    });
}

/// If the new pool is not accepted, there is only the old one, as before.
#[test]
fn sim_a_split_that_fails_leaves_the_pool_whole() {
    rt::simulate(43, || {
        let disks = memory();
        let (mut dice, mut world) = (Dice::new(43), World::default());
        let spa = create(&disks);
        steps(&spa, &mut world, &mut dice, 60);
        let guids = SPLIT.map(|n| guid_at(&spa, disks[n].name()));
        let refuse = |_: &Spa| Err(base::Error::invalid("no"));
        let failed = spa.split("half", &guids, pool::settings(), &refuse);
        assert_eq!(failed.err().unwrap().kind(), ErrorKind::InvalidInput);
        finish(&spa);
        steps(&spa, &mut world, &mut dice, 20);
        assert_eq!(shape(&spa), WHOLE);
        pool::assert_clean(&spa);
        spa.export().unwrap();
        drop(spa);
        assert_eq!(discover(&disks).pools.len(), 1);
        pool::verify_with_zdb(&disks, "tank");
        let spa = open(find(&disks, "tank").unwrap(), true).unwrap();
        world.compare(spa.parts().dsl()).unwrap();
    });
}

#[test]
fn sim_what_cannot_be_split_is_refused() {
    rt::simulate(44, || {
        let disks = memory();
        let spa = create(&disks);
        let kind = |spa: &Spa, which: &[usize]| {
            let guids: Vec<Guid> = which
                .iter()
                .map(|n| guid_at(spa, disks[*n].name()))
                .collect();
            let outcome = spa.split("half", &guids, pool::settings(), &|_| Ok(()));
            outcome.err().expect("it is refused").kind()
        };
        assert_eq!(kind(&spa, &[1]), ErrorKind::InvalidInput, "one is missing");
        assert_eq!(
            kind(&spa, &[0, 1, 3]),
            ErrorKind::InvalidInput,
            "two of one"
        );
        assert_eq!(kind(&spa, &[1, 3, 5]), ErrorKind::InvalidInput, "a log");
        // What lacks data is not split off, nor what alone has it.
        spa.parts()
            .tree()
            .offline(guid_at(&spa, "/disk1"), true)
            .unwrap();
        pool::create_fs(&spa, "tank/fs", &[]).unwrap();
        assert_eq!(
            kind(&spa, &[1, 3]),
            ErrorKind::InvalidInput,
            "it is offline"
        );
        assert_eq!(kind(&spa, &[0, 3]), ErrorKind::Busy, "the only one");
        let again = Arc::clone(&disks[1]);
        spa.parts()
            .tree()
            .online(guid_at(&spa, "/disk1"), again)
            .unwrap();
        finish(&spa);
        spa.take_checkpoint().unwrap();
        assert_eq!(kind(&spa, &[1, 3]), ErrorKind::Exists, "a checkpoint");
        spa.discard_checkpoint().unwrap();
        spa.finish_discard(&mut |_| {}).unwrap();
        assert!(split(&spa, &disks).is_ok());
        // What is left is no longer a pool of mirrors only.
        assert_eq!(kind(&spa, &[2]), ErrorKind::InvalidInput);
        let device = new_device(&disks[6]);
        let beside = guid_at(&spa, "/disk0");
        let sectors = (0, AutoAshift::default());
        assert!(
            spa.attach(beside, &device, Attach::Side, sectors).is_err(),
            "it is a spare"
        );
    });
}

/// Both halves of our split hold the same; what the kernel splits is left for us to open.
const GUEST: &str = r#"
set -ex
zpool import -d /dev -R /mnt half
zpool import -d /dev -R /mnt tank
for pool in half tank; do
  zpool scrub -w $pool
  zpool status $pool | grep "repaired 0B in .* with 0 errors"
  zpool status $pool | grep "state: ONLINE"
  cd /mnt/$pool/fs; sha256sum -c /host/sums >/host/check.log; cd /
done
zpool history -i half | grep "split from pool tank"
zpool history -i tank | grep "detach vdev="
for i in $(seq 50); do echo $i >/mnt/tank/fs/kernel$i; done
zpool split tank third
zpool export tank
zpool export half
zpool import -d /dev -R /mnt back
zpool scrub -w back
zpool status back | grep "repaired 0B in .* with 0 errors"
[ "$(cat /mnt/back/file)" = first ]
echo kernel >/mnt/back/file
zpool export back
"#;

fn verify_with_zdb(folder: &std::path::Path, pools: &[&str]) {
    for pool in pools.iter().filter(|_| oracle::have_zdb()) {
        oracle::Zdb::verify(folder, pool).assert_clean();
    }
}

/// A pool that was returned to an earlier txg, and written to since.
fn rewound_pool(disks: &[Arc<dyn Provider>]) {
    let root = zpl::mount::init(zpl::NewFilesystem::default(), true);
    let spa = pool::create("back", Layout::Stripe, 12, disks, root).unwrap();
    pool::write_file(&spa, "back", "file", b"first");
    let target = spa.uberblock().txg();
    pool::write_file(&spa, "back", "later", &[7; 500_000]);
    spa.export().unwrap();
    drop(spa);
    let spa = Spa::import(ImportOptions {
        max_txg: Some(target),
        ..options(find(disks, "back").unwrap(), false)
    });
    let spa = spa.unwrap();
    assert_eq!(spa.name(), "tank");
    pool::write_file(&spa, "tank", "again", &[8; 500_000]);
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    // By its own name again.
    let options = options(find(disks, "tank").unwrap(), false);
    let spa = Spa::import(ImportOptions {
        new_name: Some(NewName {
            name: "back".to_owned(),
            is_temporary: false,
        }),
        ..options
    });
    spa.unwrap().export().unwrap();
}

#[test]
fn kernel_imports_both_halves_and_splits_again() {
    let Some(guest) = oracle::vm::Guest::find() else {
        return;
    };
    let (folder, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let disks = pool::images(folder.path(), 6, 512 << 20);
    let root = zpl::mount::init(zpl::NewFilesystem::default(), true);
    let spa = pool::create("tank", Layout::Mirror, 12, &disks[..3], root).unwrap();
    let mirror = disks[3..].iter().map(new_device).collect();
    let mirror = TopSpec::new(Grouping::Mirror, mirror);
    let sectors = (12, AutoAshift::default());
    spa.add(&[mirror], &AuxSpec::default(), sectors, true)
        .unwrap();
    pool::create_fs(&spa, "tank/fs", &[]).unwrap();
    let (mut files, mut dice) = (torture::files::Files::default(), Dice::new(seed(45)));
    let fs = zpl::mount::mount(spa.parts().dsl(), "tank/fs", false).unwrap();
    for _ in 0..300 {
        files.step(&fs, &mut dice).unwrap();
    }
    drop(fs);
    std::fs::write(host.path().join("sums"), files.sha256sums()).unwrap();
    let guids = [1, 4].map(|n: usize| guid_at(&spa, disks[n].name()));
    let half = spa
        .split("half", &guids, pool::settings(), &|_| Ok(()))
        .unwrap();
    half.export().unwrap();
    spa.export().unwrap();
    drop((half, spa, disks));
    rewound_pool(&pool::images(folder.path(), 7, 512 << 20)[6..]);
    verify_with_zdb(folder.path(), &["tank", "half", "back"]);
    let paths: Vec<_> = (0..7)
        .map(|n| folder.path().join(format!("disk{n}")))
        .collect();
    let names: Vec<_> = paths.iter().map(std::path::PathBuf::as_path).collect();
    guest.run(GUEST, host.path(), &names).assert_success();

    // OpenZFS's own split leaves space maps of the DTLs in both pools, which only zdb minds.
    verify_with_zdb(folder.path(), &["half"]);
    for name in ["tank", "half", "third"] {
        let disks = pool::images(folder.path(), 6, 512 << 20);
        let spa = open(find(&disks, name).unwrap(), false).unwrap();
        finish(&spa);
        assert_eq!(spa.parts().tree().devices().len(), 2);
        let fs = zpl::mount::mount(spa.parts().dsl(), "tank/fs", false).unwrap();
        for n in (1..=50).filter(|_| name != "half") {
            let name = format!("kernel{n}");
            fs.unlink(fs.root(), name.as_bytes()).unwrap();
        }
        files.compare(&fs).unwrap();
        drop(fs);
        pool::assert_clean(&spa);
        spa.export().unwrap();
    }
}
