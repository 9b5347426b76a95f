//! Random operations on datasets of plain objects: contents are checked with a model, space by our checker and
//! zdb.

use std::path::Path;
use std::sync::Arc;

use geom::Provider;
use geom::disk::{OpenMode, open};
use oracle::{Zdb, have_zdb};
use torture::model::World;
use torture::pool::{self, Layout};
use torture::{Dice, seed};

fn images(folder: &Path, count: usize, bytes: u64) -> Vec<Arc<dyn Provider>> {
    (0..count)
        .map(|i| {
            let path = folder.join(format!("disk{i}"));
            if !path.exists() {
                std::fs::File::create(&path)
                    .unwrap()
                    .set_len(bytes)
                    .unwrap();
            }
            open(&path, OpenMode::ReadWrite).unwrap()
        })
        .collect()
}

fn run(layout: Layout, ashift: u32, seed: u64, rounds: usize, steps: usize) {
    let count = match layout {
        Layout::Raidz(parity) => parity as usize + 3,
        Layout::Draid(parity, data, _) => (parity + data) as usize + 2,
        Layout::Stripe | Layout::Mirror => 2,
        Layout::Classes => 4,
    };
    let folder = tempfile::tempdir().unwrap();
    let mut dice = Dice::new(seed);
    let mut world = World::default();
    let disks = images(folder.path(), count, 512 << 20);
    let spa = pool::create("tank", layout, ashift, &disks, Box::new(|_, _| Ok(()))).unwrap();
    spa.export().unwrap();
    drop((spa, disks));
    for round in 0..rounds {
        let disks = images(folder.path(), count, 0);
        let spa = pool::open(&disks, false).unwrap();
        for step in 0..steps {
            let outcome = world.step(&spa, &mut dice);
            outcome.unwrap_or_else(|e| panic!("round {round}, step {step}: {e}"));
        }
        world.compare(spa.parts().dsl()).unwrap();
        spa.sync().unwrap();
        world.compare(spa.parts().dsl()).unwrap();
        pool::assert_clean(&spa);
        spa.export().unwrap();
        drop((spa, disks));
        if have_zdb() {
            Zdb::verify(folder.path(), "tank").assert_clean();
        }
    }
}

#[test]
fn random_datasets_on_a_stripe_of_ashift_9() {
    run(Layout::Stripe, 9, seed(1), 4, 120);
}

#[test]
fn random_datasets_on_a_mirror_of_ashift_12() {
    run(Layout::Mirror, 12, seed(2), 4, 120);
}

#[test]
fn random_datasets_with_special_dedup_and_log_devices() {
    run(Layout::Classes, 9, seed(4), 4, 120);
}

#[test]
fn random_datasets_on_a_draid_of_ashift_12() {
    run(Layout::Draid(1, 3, 0), 12, seed(5), 4, 120);
}

#[test]
fn random_datasets_on_a_raidz2_of_ashift_12() {
    run(Layout::Raidz(2), 12, seed(3), 4, 120);
}
