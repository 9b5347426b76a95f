//! The power fails after a device write, losing any subset of the unflushed writes, torn at sectors: the pool
//! opens at the last synced txg or later, and is clean.
//!
//! `CUTS=all` tries every single write; the default takes a sample.

use std::sync::Arc;

use faulty::{PowerCut, PowerSupply};
use geom::Provider;
use ram::Memory;
use spa::Spa;
use torture::cuts::{self, Step};
use torture::model::World;
use torture::pool::{self, Layout};
use torture::{Dice, seed};

const DISK_BYTES: u64 = 128 << 20;
const CUTS: u64 = 60;

/// What happened on the disks, and what the pool should hold after each step.
struct Recording {
    disks: Vec<Arc<PowerCut>>,
    /// After each step: the world, and the number of device commands that had been acknowledged when everything
    /// up to it was known to be on disk (`None`: not known).
    steps: Vec<Step>,
    commands: u64,
}

fn record(layout: Layout, ashift: u32, seed: u64, steps: usize) -> Recording {
    let supply = PowerSupply::new();
    let disk = |i| {
        let sector = 1 << ashift.min(12);
        Arc::new(PowerCut::fed_by(
            &supply,
            format!("/disk{i}"),
            DISK_BYTES,
            sector,
        ))
    };
    let count = match layout {
        Layout::Raidz(parity) => parity + 2,
        Layout::Draid(parity, data, _) => parity + data + 1,
        Layout::Stripe | Layout::Mirror => 2,
        Layout::Classes => 4,
    };
    let disks: Vec<Arc<PowerCut>> = (0..count).map(disk).collect();
    let providers: Vec<Arc<dyn Provider>> = disks.iter().map(|d| d.clone() as _).collect();
    let mut dice = Dice::new(seed);
    let mut world = World::default();
    let spa = pool::create("tank", layout, ashift, &providers, Box::new(|_, _| Ok(()))).unwrap();
    disks.iter().for_each(|disk| disk.forget());
    let mut recorded = vec![(world.clone(), Some(supply.commands()))];
    work(&spa, &supply, &mut world, &mut dice, steps, &mut recorded);
    let behind = spa.parts().pipeline().stats().behind;
    // With other seeds there may be fewer.
    let is_usual = std::env::var_os("SEED").is_none();
    assert!(
        behind > 20 || !is_usual,
        "{behind} blocks were written behind"
    );
    spa.close().unwrap();
    drop(spa);
    Recording {
        commands: supply.commands(),
        disks,
        steps: recorded,
    }
}

/// Random steps, some of which end with a sync.
fn work(
    spa: &Spa,
    supply: &PowerSupply,
    world: &mut World,
    dice: &mut Dice,
    steps: usize,
    recorded: &mut Vec<Step>,
) {
    for step in 0..steps {
        world
            .step(spa, dice)
            .unwrap_or_else(|e| panic!("step {step}: {e}"));
        let known = dice.once_in(4).then(|| {
            spa.sync().unwrap();
            supply.commands()
        });
        recorded.push((world.clone(), known));
    }
}

/// A mirror whose disks were enlarged while it was closed: it is opened, expanded, opened again and worked on.
fn record_growth(seed: u64) -> Recording {
    let supply = PowerSupply::new();
    let disk = |i| PowerCut::fed_by(&supply, format!("/disk{i}"), DISK_BYTES, 512);
    let small: Vec<Arc<PowerCut>> = (0..2).map(|i| Arc::new(disk(i))).collect();
    let providers = |disks: &[Arc<PowerCut>]| -> Vec<Arc<dyn Provider>> {
        disks.iter().map(|disk| disk.clone() as _).collect()
    };
    let mut dice = Dice::new(seed);
    let mut world = World::default();
    let no_root = Box::new(|_: &_, _: &_| Ok(()));
    let spa = pool::create("tank", Layout::Mirror, 9, &providers(&small), no_root).unwrap();
    work(&spa, &supply, &mut world, &mut dice, 20, &mut Vec::new());
    spa.close().unwrap();
    drop(spa);
    let disks: Vec<Arc<PowerCut>> = small
        .iter()
        .map(|disk| Arc::new(disk.grown_to(2 * DISK_BYTES)))
        .collect();
    let mut steps = vec![(world.clone(), Some(supply.commands()))];
    for is_grown in [false, true] {
        let spa = pool::open(&providers(&disks), false).unwrap();
        work(&spa, &supply, &mut world, &mut dice, 8, &mut steps);
        assert_eq!(spa.expand(&|_| true).unwrap(), !is_grown);
        work(&spa, &supply, &mut world, &mut dice, 8, &mut steps);
        assert_eq!(spa.space().space > DISK_BYTES, is_grown);
        spa.close().unwrap();
        steps.push((world.clone(), Some(supply.commands())));
    }
    Recording {
        commands: supply.commands(),
        disks,
        steps,
    }
}

impl Recording {
    /// Cuts the power after the n-th command, opens what is left, and returns what is wrong with it.
    fn cut(&self, n: u64, seed: u64) -> Result<(), String> {
        let images: Vec<Arc<dyn Provider>> = self
            .disks
            .iter()
            .map(|disk| Arc::new(disk.image_after(n, seed)) as Arc<dyn Provider>)
            .collect();
        let spa = pool::open(&images, false).map_err(|e| format!("import: {e}"))?;
        cuts::find(&self.steps, &spa, n)?;
        let report = pool::verify(&spa).map_err(|e| format!("check: {e}"))?;
        if !report.is_clean() {
            return Err(format!("findings: {:#?}", report.findings));
        }
        spa.export().map_err(|e| format!("export: {e}"))
    }
}

fn run(layout: Layout, ashift: u32, seed: u64) {
    cut_everywhere(&record(layout, ashift, seed, 60), seed);
}

fn cut_everywhere(recording: &Recording, seed: u64) {
    let first = recording.steps[0].1.unwrap();
    let cut = |n| recording.cut(n, seed ^ n);
    cuts::everywhere(first..=recording.commands, CUTS, seed, cut);
}

#[test]
fn sim_power_cuts_on_a_stripe() {
    let seed = seed(11);
    rt::simulate(seed, move || run(Layout::Stripe, 9, seed));
}

#[test]
fn sim_power_cuts_on_a_mirror_of_4k_sectors() {
    let seed = seed(12);
    rt::simulate(seed, move || run(Layout::Mirror, 12, seed));
}

#[test]
fn sim_power_cuts_on_a_draid() {
    let seed = seed(9);
    rt::simulate(seed, move || run(Layout::Draid(1, 2, 0), 12, seed));
}

#[test]
fn sim_power_cuts_on_a_raidz() {
    let seed = seed(14);
    rt::simulate(seed, move || run(Layout::Raidz(1), 9, seed));
}

#[test]
fn sim_power_cuts_with_special_dedup_and_log_devices() {
    let seed = seed(15);
    rt::simulate(seed, move || run(Layout::Classes, 9, seed));
}

#[test]
fn sim_power_cuts_while_a_pool_grows() {
    let seed = seed(13);
    rt::simulate(seed, move || cut_everywhere(&record_growth(seed), seed));
}

/// An image after a cut is an ordinary disk.
#[test]
fn an_image_can_be_used_as_it_is() {
    let _: Memory = PowerCut::new("/disk", DISK_BYTES).cut(1);
}
