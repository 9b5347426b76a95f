//! Random operations compared with a model: a list of ranges.

use geom::Provider;
use proptest::prelude::*;
use ram::Memory;

use crate::{Era, NewPartition, Scheme, Shape, Table, Wish};

const SECTORS: u64 = 20_000;

#[derive(Clone, Debug)]
enum Step {
    Add(Option<u64>, Option<u64>, Option<u64>, Option<u32>),
    Delete(u32),
    Resize(u32, Option<u64>, Option<u64>),
    Label(u32, String),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let alignment = || proptest::option::of(prop_oneof![Just(1u64), Just(7), Just(8), Just(2048)]);
    let place = || proptest::option::of(0..SECTORS + 100);
    let size = || proptest::option::of(prop_oneof![0u64..4, 1..3000u64, Just(u64::MAX)]);
    let step = prop_oneof![
        4 => (alignment(), place(), size(), proptest::option::of(0..9u32))
            .prop_map(|(a, b, s, i)| Step::Add(a, b, s, i)),
        2 => (1..9u32).prop_map(Step::Delete),
        2 => (1..9u32, alignment(), size()).prop_map(|(i, a, s)| Step::Resize(i, a, s)),
        1 => (1..9u32, ".{0,40}").prop_map(|(i, l)| Step::Label(i, l)),
    ];
    proptest::collection::vec(step, 1..40)
}

/// Number, first and last sector.
type Model = Vec<(u32, u64, u64)>;

fn facts(table: &Table) -> Model {
    let of = |p: &crate::Partition| (p.index, p.start_sector, p.last_sector());
    table.partitions().iter().map(of).collect()
}

/// The invariants, checked after every step.
fn check(table: &Table) {
    let mut places: Vec<_> = facts(table).into_iter().map(|(_, a, b)| (a, b)).collect();
    places.sort_unstable();
    for (start, end) in &places {
        assert!(start <= end && *start >= table.first() && *end <= table.last());
    }
    for pair in places.windows(2) {
        assert!(pair[0].1 < pair[1].0, "overlap: {pair:?}");
    }
    let free: u64 = crate::align::free_ranges(table)
        .iter()
        .map(|(a, b)| b - a + 1)
        .sum();
    let taken: u64 = places.iter().map(|(a, b)| b - a + 1).sum();
    assert_eq!(free + taken, table.last() - table.first() + 1);
}

fn is_free(table: &Table, start: u64, size: u64) -> bool {
    let Some(end) = start.checked_add(size).filter(|_| size > 0) else {
        return false;
    };
    let fits = start >= table.first() && end <= table.last() + 1;
    fits && facts(table).iter().all(|(_, a, b)| end <= *a || *b < start)
}

#[expect(
    clippy::too_many_lines,
    reason = "one random run: a table of operations"
)]
fn apply(table: &mut Table, step: &Step, era: Era) {
    let before = facts(table);
    let shape = table.shape();
    let physical = u64::from(shape.stripesize / shape.sectorsize);
    let kind = if table.scheme() == Scheme::Gpt {
        "freebsd-zfs"
    } else {
        "freebsd"
    };
    match step {
        Step::Add(alignment, start, size, index) => {
            let wish = Wish {
                alignment: *alignment,
                start: *start,
                size: *size,
            };
            let new = NewPartition {
                wish,
                index: *index,
                label: None,
                era,
            };
            let taken = index.is_some_and(|i| before.iter().any(|b| b.0 == i));
            let added = table.add(kind, &new);
            let Ok(index) = added else {
                assert_eq!(facts(table), before, "a refusal changes nothing");
                let is_verbatim = alignment.is_none() && era == Era::Current;
                if let (Some(start), Some(size), true) = (start, size, is_verbatim) {
                    let has_number = before.len() < table.entries() as usize;
                    let wrong = taken || index.is_some_and(|i| i > table.entries());
                    assert!(wrong || !has_number || !is_free(table, *start, *size));
                }
                return;
            };
            assert!(!taken);
            let one = table.partition(index).unwrap();
            let is_verbatim = start.is_some() && size.is_some() && alignment.is_none();
            if era == Era::Nine && table.scheme() == Scheme::Mbr {
                assert_eq!((one.start_sector % 63, one.sectors % 63), (0, 0));
            } else if is_verbatim {
                assert_eq!((Some(one.start_sector), Some(one.sectors)), (*start, *size));
            } else {
                let unit = alignment.unwrap_or(physical);
                assert_eq!(one.start_sector % unit, 0, "{step:?}");
                let is_small = size.is_some_and(|s| s <= unit);
                assert!(is_small || one.sectors.is_multiple_of(unit), "{step:?}");
                if let Some(start) = start {
                    assert!(one.start_sector >= *start);
                }
            }
            let mut model = before;
            model.push((index, one.start_sector, one.last_sector()));
            model.sort_unstable();
            assert_eq!(facts(table), model);
        }
        Step::Delete(index) => {
            let mut model = before.clone();
            model.retain(|m| m.0 != *index);
            assert_eq!(table.delete(*index).is_ok(), model != before);
            assert_eq!(facts(table), model);
        }
        Step::Resize(index, alignment, size) => {
            let wish = Wish {
                alignment: *alignment,
                start: None,
                size: *size,
            };
            let done = table.resize(*index, &wish, era);
            let (mut model, after) = (before, facts(table));
            if done.is_ok() {
                let one = table.partition(*index).unwrap();
                let at = model.iter().position(|m| m.0 == *index).unwrap();
                assert_eq!(model[at].1, one.start_sector);
                if size.is_none() {
                    assert!(
                        one.last_sector() >= model[at].2 || era == Era::Nine,
                        "{step:?}"
                    );
                    let unit = alignment.unwrap_or(physical);
                    let is_tracks = era == Era::Nine && table.scheme() == Scheme::Mbr;
                    assert!(is_tracks || (one.last_sector() + 1).is_multiple_of(unit));
                }
                model[at].2 = one.last_sector();
            }
            assert_eq!(after, model);
        }
        Step::Label(index, label) => {
            let done = table.modify(*index, Some(label), None);
            if done.is_ok() {
                let is = table.partition(*index).unwrap().label();
                let until_zero = label.split('\0').next().unwrap_or_default();
                assert!(until_zero.starts_with(&is));
            }
            assert_eq!(facts(table), before);
        }
    }
    check(table);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn prop_partitions_never_overlap_and_survive_the_disk(
        steps in steps(),
        scheme in prop_oneof![3 => Just(Scheme::Gpt), 1 => Just(Scheme::Mbr)],
        era in prop_oneof![Just(Era::Nine), Just(Era::Current)],
        (sectorsize, stripesize) in prop_oneof![
            Just((512u32, 512u32)), Just((512, 4096)), Just((4096, 4096)),
        ],
    ) {
        let bytes = SECTORS * u64::from(sectorsize);
        let disk = Memory::with_sectors("ada0", bytes, sectorsize, stripesize);
        let mut table = Table::create(scheme, Shape::of(&disk), None, era).unwrap();
        for step in &steps {
            apply(&mut table, step, era);
            table.write(&disk).unwrap();
            let back = Table::read(&disk).unwrap().unwrap();
            prop_assert!(!back.is_corrupt(), "{:?}", back.notes());
            prop_assert_eq!(back.partitions(), table.partitions());
            if scheme == Scheme::Gpt {
                prop_assert_eq!((back.first(), back.last()), (table.first(), table.last()));
            }
        }
        prop_assert!(disk.mediasize() == bytes);
    }
}
