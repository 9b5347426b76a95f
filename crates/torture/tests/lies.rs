//! Each word in the bonus of an object of the MOS (data sets, directories, lists of blocks, space maps) may be any
//! number: nothing may panic or hang. A sample; `LIES=all`: each word, each number.

use std::panic::{AssertUnwindSafe, catch_unwind};

use base::ObjectId;
use phys::ObjectType;
use torture::Dice;
use torture::hostile::{Image, exercise, seeds};
use torture::pool;

/// Numbers at which sums, differences, products by 8 and signs break.
const NUMBERS: [u64; 9] = [
    0,
    1,
    1 << 48,
    1 << 61,
    i64::MAX as u64,
    1 << 63,
    (1 << 63) + 1,
    u64::MAX - 1,
    u64::MAX,
];
/// Lies that are tried, if not all.
const SAMPLE: usize = 60;

/// One word of one object that is to be another number.
#[derive(Clone, Copy, Debug)]
struct Lie {
    image: usize,
    object: ObjectId,
    at: usize,
    number: u64,
}

/// The words of the bonuses of an image.
fn words(image: &Image) -> Vec<(ObjectId, usize)> {
    let spa = pool::open(&image.edit().finish(), true).unwrap();
    let objects = (1..1 << 12).map(ObjectId);
    let mut words = Vec::new();
    for object in objects {
        let Ok(dnode) = spa.parts().mos().hold(object) else {
            continue;
        };
        if dnode.bonus_type() != ObjectType::NONE {
            words.extend((0..dnode.bonus().len() / 8).map(|word| (object, 8 * word)));
        }
    }
    words
}

#[test]
fn any_word_of_a_bonus_may_lie() {
    let images = seeds::all();
    let mut lies = Vec::new();
    for (image, of) in images.iter().enumerate() {
        for (object, at) in words(of) {
            lies.extend(NUMBERS.map(|number| Lie {
                image,
                object,
                at,
                number,
            }));
        }
    }
    assert!(lies.len() > 1000, "{} words", lies.len());
    let seed = rt::random_u64();
    let mut dice = Dice::new(seed);
    if std::env::var("LIES").is_ok_and(|lies| lies == "all") {
        println!("{} lies", lies.len());
    } else {
        println!("seed {seed}");
        lies = (0..SAMPLE)
            .filter_map(|_| dice.pick(&lies).copied())
            .collect();
    }
    let mut failed = Vec::new();
    for lie in &lies {
        let mut edit = images[lie.image].edit();
        edit.set_mos_bonus(lie.object, lie.at, lie.number);
        let devices = edit.finish();
        // Everything is done, snapshots are destroyed from the first on or from the last on.
        let plan = 32 + (dice.below(32) & !2);
        let what = || rt::simulate(plan % 32, || exercise(&devices, plan));
        if catch_unwind(AssertUnwindSafe(what)).is_err() {
            println!("{lie:?} with plan {plan}");
            failed.push(*lie);
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {} failed",
        failed.len(),
        lies.len()
    );
}
