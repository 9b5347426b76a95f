//! `autotrim=on`: what was freed is deleted on the devices soon after, and nothing else, on disks whose deleted sectors
//! read as garbage: whenever the power is cut, and older uberblocks still lead to all they had.
//!
//! `CUTS=all` tries every single write; the default takes a sample.

use std::collections::VecDeque;
use std::sync::Arc;

use base::Txg;
use geom::Provider;
use phys::PropValue;
use phys::label::LABEL_START_SIZE;
use phys::scan::DSS_FINISHED;
use spa::{Settings, Spa};
use torture::careless::{Disks, GARBAGE};
use torture::cuts::{self, Step};
use torture::model::World;
use torture::pool::{self, Layout};
use torture::{Dice, seed};

const DISK_BYTES: u64 = 64 << 20;
const CUTS: u64 = 40;
const AUTOTRIM: &str = "autotrim";

/// Every metaslab has its turn in every second txg, and no range is too short.
fn often() -> Settings {
    let mut settings = pool::settings();
    settings.sweep.auto_batch = 2;
    settings.sweep.delete_min_bytes = 512;
    settings.sweep.delete_max_bytes = 1 << 20;
    settings
}

fn make(layout: Layout, disks: &Disks) -> Spa {
    let no_root: dsl::ObjsetInit = Box::new(|_, _| Ok(()));
    pool::create_with("tank", layout, 9, &disks.providers, no_root, often()).unwrap()
}

fn set(spa: &Spa, is_on: bool) {
    let value = PropValue::Number(is_on.into());
    spa.set_prop(AUTOTRIM, value).unwrap();
}

fn steps(spa: &Spa, world: &mut World, dice: &mut Dice, count: usize) {
    for step in 0..count {
        let outcome = world.step(spa, dice);
        outcome.unwrap_or_else(|e| panic!("step {step}: {e}"));
        spa.sync().unwrap();
    }
}

/// Bytes of sectors behind the first labels that are neither as they were at first nor deleted.
fn kept_bytes(disks: &Disks) -> u64 {
    let count = |disk: &Arc<dyn Provider>| {
        let mut bytes = vec![0; (disk.mediasize() - 2 * LABEL_START_SIZE) as usize];
        disk.read(LABEL_START_SIZE, &mut bytes).unwrap();
        let is = |sector: &[u8], byte| sector.iter().all(|b| *b == byte);
        let sectors = bytes.chunks(512);
        let kept = sectors.filter(|sector| !is(sector, 0) && !is(sector, GARBAGE));
        kept.count() as u64 * 512
    };
    disks.providers.iter().map(count).sum()
}

/// Every copy and all parity is right.
fn scrub(spa: &Spa) {
    spa.scrub().unwrap();
    spa.wait_scan(&mut |_| true).unwrap();
    let scan = spa.scan().unwrap();
    let found = (scan.state.get(), scan.errors.get(), scan.processed.get());
    assert_eq!(found, (DSS_FINISHED, 0, 0), "state, errors, repaired");
}

/// Works on a pool with the property and then without: what is allocated is there, and little else.
fn trims_beside_work(layout: Layout, count: usize, seed: u64) {
    let bytes = match layout {
        Layout::Draid(..) => 2 * DISK_BYTES,
        _ => DISK_BYTES,
    };
    let disks = Disks::new(count, bytes);
    let (mut dice, mut world) = (Dice::new(seed), World::default());
    let spa = make(layout, &disks);
    set(&spa, true);
    steps(&spa, &mut world, &mut dice, 80);
    let deleted = disks.deleted_bytes();
    assert!(deleted > 1 << 20, "{layout:?}: {deleted} bytes");
    world.compare(spa.parts().dsl()).unwrap();
    scrub(&spa);
    pool::assert_clean(&spa);
    let sides = if layout == Layout::Mirror { count } else { 1 } as u64;
    spa.export().unwrap();
    drop(spa);
    let spa = pool::open_with(&disks.providers, false, often()).unwrap();
    // What the last txgs freed is still there, and what they wrote and did not need.
    let (allocated, kept) = (spa.space().alloc * sides, kept_bytes(&disks));
    assert!(
        kept <= allocated + (1 << 20) * sides,
        "{layout:?}: {kept} bytes are there, {allocated} are allocated, {deleted} were deleted"
    );
    world.compare(spa.parts().dsl()).unwrap();

    set(&spa, false);
    let before = disks.deleted_bytes();
    steps(&spa, &mut world, &mut dice, 20);
    spa.export().unwrap();
    drop(spa);
    assert_eq!(disks.deleted_bytes(), before, "although it is off");
    let spa = pool::open(&disks.providers, false).unwrap();
    world.compare(spa.parts().dsl()).unwrap();
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&disks.providers, "tank");
}

#[test]
fn sim_what_was_freed_is_deleted() {
    let layouts = [
        (Layout::Stripe, 2),
        (Layout::Mirror, 2),
        (Layout::Raidz(1), 3),
        (Layout::Draid(1, 2, 1), 4),
    ];
    for (layout, count) in layouts {
        let seed = seed(11);
        rt::simulate(seed, move || trims_beside_work(layout, count, seed));
    }
}

/// Also while nothing changes: the two uberblocks on disk before the last one lead to what they had.
#[test]
fn sim_older_uberblocks_stay_valid() {
    let seed = seed(21);
    rt::simulate(seed, move || {
        let disks = Disks::new(2, DISK_BYTES);
        let (mut dice, mut world) = (Dice::new(seed), World::default());
        let spa = make(Layout::Mirror, &disks);
        set(&spa, true);
        let mut past: VecDeque<(Txg, World)> = VecDeque::new();
        let before = disks.deleted_bytes();
        for turn in 0..40 {
            if turn % 8 < 5 {
                steps(&spa, &mut world, &mut dice, 1);
            } else {
                spa.sync().unwrap();
            }
            let txg = spa.uberblock().txg();
            if past.back().is_some_and(|(last, _)| *last == txg) {
                continue;
            }
            past.push_back((txg, world.clone()));
            if past.len() < 3 {
                continue;
            }
            let images = disks.snapshots();
            for (txg, world) in past.iter().filter(|(at, _)| at.0 + 2 >= txg.0) {
                let then = pool::open_at(&images, *txg).unwrap();
                assert_eq!(then.uberblock().txg(), *txg);
                let same = world.compare(then.parts().dsl());
                same.unwrap_or_else(|e| panic!("SEED={seed}: txg {txg}: {e}"));
                pool::assert_clean(&then);
            }
            past.pop_front();
        }
        assert!(disks.deleted_bytes() > before + (1 << 20));
    });
}

/// A pool that nothing is done with goes on until all is deleted that can be.
#[test]
fn sim_an_idle_pool_goes_on() {
    rt::simulate(31, || {
        let disks = Disks::new(1, DISK_BYTES);
        let (mut dice, mut world) = (Dice::new(31), World::default());
        let mut settings = often();
        settings.sweep.auto_batch = 32;
        settings.sweep.delete_min_bytes = 32 << 10;
        let no_root: dsl::ObjsetInit = Box::new(|_, _| Ok(()));
        let providers = &disks.providers;
        let spa = pool::create_with("tank", Layout::Stripe, 9, providers, no_root, settings);
        let spa = spa.unwrap();
        set(&spa, true);
        steps(&spa, &mut world, &mut dice, 40);
        let before = disks.deleted_bytes();
        rt::sleep_ns(400_000_000_000);
        assert!(disks.deleted_bytes() > before);
        let (then, txg) = (disks.deleted_bytes(), spa.uberblock().txg());
        rt::sleep_ns(400_000_000_000);
        let now = (disks.deleted_bytes(), spa.uberblock().txg());
        assert_eq!(now, (then, txg), "it has come to rest");
        world.compare(spa.parts().dsl()).unwrap();
        pool::assert_clean(&spa);
    });
}

fn cut(disks: &Disks, worlds: &[Step], n: u64, seed: u64) -> Result<(), String> {
    let images = disks.images_after(n, seed);
    let spa = pool::open_with(&images, false, often()).map_err(|e| format!("import: {e}"))?;
    let world = cuts::find(worlds, &spa, n)?;
    for _ in 0..4 {
        spa.force_sync().map_err(|e| format!("sync: {e}"))?;
    }
    world.compare(spa.parts().dsl())?;
    let report = pool::verify(&spa).map_err(|e| format!("check: {e}"))?;
    if !report.is_clean() {
        return Err(format!("findings: {:#?}", report.findings));
    }
    spa.export().map_err(|e| format!("export: {e}"))
}

#[test]
fn sim_power_cuts_while_it_is_deleted() {
    let seed = seed(41);
    rt::simulate(seed, move || {
        let disks = Disks::new(3, DISK_BYTES);
        let (mut dice, mut world) = (Dice::new(seed), World::default());
        let spa = make(Layout::Raidz(1), &disks);
        set(&spa, true);
        steps(&spa, &mut world, &mut dice, 30);
        disks.forget();
        let before = disks.deleted_bytes();
        let first = disks.supply.commands();
        let mut worlds = vec![(world.clone(), Some(first))];
        for _ in 0..20 {
            let outcome = world.step(&spa, &mut dice);
            outcome.unwrap_or_else(|e| panic!("{e}"));
            worlds.push((world.clone(), None));
            spa.sync().unwrap();
            worlds.last_mut().unwrap().1 = Some(disks.supply.commands());
        }
        spa.close().unwrap();
        assert!(disks.deleted_bytes() > before + (1 << 20));
        let last = disks.supply.commands();
        let cut = |n| cut(&disks, &worlds, n, seed ^ n);
        cuts::everywhere(first..=last, CUTS, seed, cut);
    });
}
