//! Pools that are returned to an earlier txg for good: what was after it is forgotten, whenever the power is cut, and
//! never mistaken for what is written next.
//!
//! `CUTS=all` tries every single write; the default takes a sample.

use std::sync::Arc;

use base::{Result, Txg};
use faulty::{PowerCut, PowerSupply};
use geom::Provider;
use spa::{ImportOptions, Spa};
use torture::cuts;
use torture::model::World;
use torture::pool::{self, Layout};
use torture::{Dice, seed};
use vdev::import::discover;

const DISK_BYTES: u64 = 128 << 20;
const CUTS: u64 = 25;

fn steps(spa: &Spa, world: &mut World, dice: &mut Dice, count: usize) {
    for step in 0..count {
        let outcome = world.step(spa, dice);
        outcome.unwrap_or_else(|e| panic!("step {step}: {e}"));
    }
}

/// Opens the pool as of a txg, if one is given.
fn open(disks: &[Arc<dyn Provider>], max_txg: Option<Txg>) -> Result<Spa> {
    let found = discover(disks).pools.into_iter().next().expect("a pool");
    Spa::import(ImportOptions {
        found,
        new_name: None,
        readonly: false,
        max_txg,
        force: false,
        gives_up_logs: false,
        tolerates_missing: false,
        rewinds: false,
        host: pool::host(),
        settings: pool::settings(),
    })
}

/// Works on a pool; its state after each of the last txgs.
fn work(disks: &[Arc<dyn Provider>], seed: u64) -> Vec<(Txg, World)> {
    let (mut dice, mut world) = (Dice::new(seed), World::default());
    let no_root = Box::new(|_: &_, _: &_| Ok(()));
    let spa = pool::create("tank", Layout::Mirror, 9, disks, no_root).unwrap();
    steps(&spa, &mut world, &mut dice, 60);
    let mut states = Vec::new();
    for _ in 0..3 {
        steps(&spa, &mut world, &mut dice, 4);
        spa.sync().unwrap();
        states.push((spa.uberblock().txg(), world.clone()));
    }
    spa.close().unwrap();
    // Closing may have synced once more, with nothing that the model knows of.
    let last = spa.uberblock().txg();
    states.retain(|(txg, _)| last.0 - txg.0 <= 2);
    states
}

#[test]
fn sim_power_cuts_while_a_pool_is_rewound() {
    let seed = seed(61);
    rt::simulate(seed, move || {
        let supply = PowerSupply::new();
        let disk = |n| PowerCut::fed_by(&supply, format!("/disk{n}"), DISK_BYTES, 512);
        let disks: Vec<Arc<PowerCut>> = (0..2).map(|n| Arc::new(disk(n))).collect();
        let providers: Vec<Arc<dyn Provider>> = disks.iter().map(|d| d.clone() as _).collect();
        let states = work(&providers, seed);
        let (target, then) = states.first().unwrap();
        let (last, now) = states.last().unwrap();
        assert!(target < last, "there is something to go back from");
        disks.iter().for_each(|disk| disk.forget());
        let begin = supply.commands();
        let spa = open(&providers, Some(*target)).unwrap();
        assert!(spa.uberblock().txg() > *last, "newer than all before");
        then.compare(spa.parts().dsl()).unwrap();
        let rewound = supply.commands();
        spa.close().unwrap();
        let end = supply.commands();
        let mut seen = [false; 2];
        for n in cuts::sample(begin..=end, CUTS) {
            let image = |disk: &Arc<PowerCut>| Arc::new(disk.image_after(n, seed ^ n)) as _;
            let images: Vec<Arc<dyn Provider>> = disks.iter().map(image).collect();
            let spa = open(&images, None).unwrap_or_else(|e| panic!("cut after {n}: {e}"));
            let is_old = then.compare(spa.parts().dsl()).is_ok();
            assert!(
                is_old || now.compare(spa.parts().dsl()).is_ok(),
                "cut after {n}"
            );
            assert!(is_old || n < rewound, "cut after {n}: it is back");
            seen[usize::from(is_old)] = true;
            pool::assert_clean(&spa);
            let (mut world, mut dice) = (if is_old { then } else { now }.clone(), Dice::new(n));
            steps(&spa, &mut world, &mut dice, 5);
            world.compare(spa.parts().dsl()).unwrap();
            pool::assert_clean(&spa);
            spa.export().unwrap();
        }
        assert_eq!(seen, [true, true]);
    });
}

/// Back, on, and back again: each time a few txgs, with the real zdb after each.
#[test]
fn sim_a_pool_goes_back_and_on_many_times() {
    rt::simulate(62, || {
        let disk = |n| Arc::new(ram::Memory::new(format!("/disk{n}"), DISK_BYTES)) as _;
        let disks: Vec<Arc<dyn Provider>> = (0..2).map(disk).collect();
        let mut states = work(&disks, 62);
        let mut times = 0;
        for round in 0..4 {
            let (target, mut world) = states.first().cloned().unwrap();
            let found = discover(&disks).pools.into_iter().next().unwrap();
            let newest = found.uberblock.unwrap().txg();
            let spa = open(&disks, Some(target)).unwrap();
            world
                .compare(spa.parts().dsl())
                .unwrap_or_else(|e| panic!("round {round}: {e:?}"));
            if target < newest {
                times += 1;
                assert!(spa.uberblock().txg() > newest);
            }
            let mut dice = Dice::new(round);
            states.clear();
            for _ in 0..3 {
                steps(&spa, &mut world, &mut dice, 8);
                spa.sync().unwrap();
                states.push((spa.uberblock().txg(), world.clone()));
            }
            pool::assert_clean(&spa);
            spa.close().unwrap();
            let last = spa.uberblock().txg();
            states.retain(|(txg, _)| last.0 - txg.0 <= 2);
            drop(spa);
            pool::verify_with_zdb(&disks, "tank");
        }
        assert!(times >= 2, "gone back only {times} times");
    });
}
