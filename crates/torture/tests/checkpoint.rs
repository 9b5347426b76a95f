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
    settings.discard_entries_max = 20;
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
    let compared = world.compare(spa.dsl());
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
    assert_eq!(bytes(&spa), 0);
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
    spa.discard_checkpoint().unwrap();
    assert_eq!(is_there(&spa), None, "a txg does not discard so much");
    let before = bytes(&spa);
    steps(&spa, &mut world, &mut dice, 10);
    spa.sync().unwrap();
    assert!(bytes(&spa) < before);
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
