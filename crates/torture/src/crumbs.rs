//! Pools whose free space is in pieces, so that what is written has to be a gang block.

use spa::Spa;
use zpl::mount::mount;

use crate::{Dice, pool};

const CRUMBS_AT_ONCE: u64 = 512;
/// What the pool has left when it counts as full.
const LEFT_BYTES: u64 = 6 << 20;

/// Fills the pool with blocks of `crumb_bytes`, below the checks that leave a part of it free, and frees all but every
/// fifth.
///
/// # Panics
/// When that fails.
pub fn crumble(spa: &Spa, crumb_bytes: u64, dice: &mut Dice) {
    pool::create_fs(
        spa,
        "tank/crumbs",
        &[("recordsize", crumb_bytes), ("compression", 2)],
    )
    .unwrap();
    pool::write_file(
        spa,
        "tank/crumbs",
        "crumbs",
        &vec![1; 2 * crumb_bytes as usize],
    );
    let dsl = spa.parts().dsl();
    let fs = mount(dsl, "tank/crumbs", true).unwrap();
    let id = fs.resolve("crumbs").unwrap();
    let objset = dsl.dataset("tank/crumbs").unwrap().objset().unwrap();
    let crumbs = objset.hold(id).unwrap();
    let tx = || spa.parts().groups().hold_open(crumb_bytes).unwrap();
    let mut count = 0;
    while spa.space().space - spa.space().alloc > LEFT_BYTES {
        for _ in 0..CRUMBS_AT_ONCE {
            let noise = dice.bytes(crumb_bytes as usize);
            crumbs.write(&tx(), count * crumb_bytes, &noise).unwrap();
            count += 1;
        }
        spa.sync().unwrap();
    }
    for n in (0..count).filter(|n| n % 5 > 0) {
        crumbs
            .free_range(&tx(), n * crumb_bytes, crumb_bytes)
            .unwrap();
    }
    // What a txg frees is free two txgs later.
    for _ in 0..4 {
        crumbs.write(&tx(), 0, &[1]).unwrap();
        spa.sync().unwrap();
    }
}
