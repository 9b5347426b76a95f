//! What the pools of `torture::hostile` have whose vdevs are not only devices and mirrors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use check::Finding;
use phys::scan::VDEV_REBUILD_ACTIVE;
use torture::hostile::seeds::{self, Kind, VDEV_KINDS};
use torture::{hostile, pool};
use vdev::VdevKind;

#[test]
fn the_pools_are_of_the_vdevs_that_they_are_named_for() {
    for (kind, image) in VDEV_KINDS.iter().zip(seeds::all_vdevs().iter()) {
        let spa = pool::open(&image.edit().finish(), true).unwrap();
        let tops = spa.parts().tree().tops();
        let is_right = match kind {
            Kind::Raidz | Kind::Raidz2 => matches!(tops[0].kind(), VdevKind::RaidZ { .. }),
            Kind::Draid => matches!(tops[0].kind(), VdevKind::Draid(_)),
            Kind::Expanded => tops[0].config().expand_txgs.len() == 1,
            Kind::Expanding => tops[0].config().expanding,
            Kind::Removed => tops[0].kind() == VdevKind::Indirect,
            Kind::Removing => tops[0].config().removing,
            Kind::Rebuilding | Kind::SpareRebuilding => spa.is_rebuilding(),
            other => panic!("{other:?}"),
        };
        assert!(is_right, "{kind:?}: {}", tops[0].name());
        eprintln!("{kind:?}: {} blocks", image.blocks.len());
    }
}

#[test]
fn blocks_written_elsewhere_are_read_on_every_kind_of_vdev() {
    for (kind, image) in VDEV_KINDS.iter().zip(seeds::all_vdevs().iter()) {
        let mut edit = image.edit();
        for block in 0..image.blocks.len().min(60) {
            edit.content(block);
        }
        let spa = pool::open(&edit.finish(), true).unwrap();
        let report = pool::verify(&spa).unwrap();
        // The blocks of this file were overwritten.
        let spare = spa.parts().dsl().dataset("tank/spare").unwrap().object();
        let damaged = report.findings.iter().filter(|finding| match finding {
            Finding::Unreadable { bookmark, .. } => bookmark.objset.0 != spare.0,
            // What is not rebuilt yet is a bad copy.
            Finding::DamagedCopies { .. } => !spa.is_rebuilding(),
            _ => false,
        });
        let damaged: Vec<&Finding> = damaged.collect();
        assert!(damaged.is_empty(), "{kind:?}: {damaged:?}");
    }
}

/// Numbers at which sums and differences break.
const NUMBERS: [u64; 3] = [(1 << 20) + 1, i64::MAX as u64, u64::MAX];
/// Words of the record of a sequential resilver (`vdev_rebuild_phys_t`), the first of which is its state.
const WORDS: usize = 12;

#[test]
fn any_word_of_the_record_of_a_sequential_resilver_may_lie() {
    let images = seeds::all_vdevs();
    let mut failed = Vec::new();
    for (nth, image) in seeds::rebuilding(&images).into_iter().enumerate() {
        for word in 0..=WORDS {
            for number in NUMBERS {
                let mut record = [0; WORDS];
                record[0] = VDEV_REBUILD_ACTIVE;
                // Behind the last one: it is as it should be, or all others lie.
                match record.get_mut(word) {
                    Some(word) => *word = number,
                    None => record[1..].fill(number),
                }
                let what = || hostile::rebuild(image, &record);
                if catch_unwind(AssertUnwindSafe(what)).is_err() {
                    failed.push((nth, word, number));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn a_record_of_a_sequential_resilver_may_have_any_length() {
    let images = seeds::all_vdevs();
    for image in seeds::rebuilding(&images) {
        for words in [0, WORDS - 1, WORDS + 1] {
            let outcome = hostile::rebuild(image, &vec![VDEV_REBUILD_ACTIVE; words]);
            assert!(outcome.is_writable, "{words} words: {outcome:?}");
        }
    }
}
