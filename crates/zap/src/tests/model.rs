//! Random operations against a `BTreeMap`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use proptest::prelude::*;

use super::{Bench, check_structure};
use crate::{Zap, create};
use base::ErrorKind;
use phys::ObjectType;

#[derive(Clone, Debug, PartialEq)]
enum Value {
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
}

#[derive(Clone, Debug)]
enum Step {
    Add(Vec<u8>, Value),
    Update(Vec<u8>, Value),
    Remove(Vec<u8>),
    Increment(Vec<u8>, i64),
    Reopen,
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (0..60u8).prop_map(|i| vec![b'a' + i % 26, b'0' + i / 26]),
        2 => (0..8u8, 40..60usize).prop_map(|(i, len)| vec![b'a' + i; len]),
        1 => (0..4u8, 200..255usize).prop_map(|(i, len)| vec![b'a' + i; len]),
        1 => prop::collection::vec(1..=255u8, 1..30),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => any::<u64>().prop_map(|v| Value::U64(vec![v])),
        1 => prop::collection::vec(any::<u8>(), 0..200).prop_map(Value::U8),
        1 => prop::collection::vec(any::<u16>(), 0..100).prop_map(Value::U16),
        1 => prop::collection::vec(any::<u32>(), 0..50).prop_map(Value::U32),
        1 => prop::collection::vec(any::<u64>(), 0..1024).prop_map(Value::U64),
    ]
}

/// `only_micro`: values that leave a ZAP micro for a while.
fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (name(), value()).prop_map(|(n, v)| Step::Add(n, v)),
        3 => (name(), value()).prop_map(|(n, v)| Step::Update(n, v)),
        4 => name().prop_map(Step::Remove),
        1 => (name(), -2..3i64).prop_map(|(n, d)| Step::Increment(n, d)),
        1 => Just(Step::Reopen),
    ]
}

fn lookup(zap: &Zap, name: &[u8]) -> Option<Value> {
    let (size, _) = zap.length(name).unwrap()?;
    Some(match size {
        1 => Value::U8(zap.lookup(name).unwrap()?),
        2 => Value::U16(zap.lookup(name).unwrap()?),
        4 => Value::U32(zap.lookup(name).unwrap()?),
        _ => Value::U64(zap.lookup(name).unwrap()?),
    })
}

fn run(steps: Vec<Step>) {
    let mut bench = Bench::new();
    let id = create(&bench.objset, &bench.tx(), ObjectType::ZAP_OTHER).unwrap();
    let mut zap = Zap::open(&bench.objset, id).unwrap();
    let mut model: BTreeMap<Vec<u8>, Value> = BTreeMap::new();
    for step in steps {
        let tx = bench.tx();
        match step {
            Step::Add(name, value) => {
                let result = match &value {
                    Value::U8(v) => zap.add(&tx, &name, v),
                    Value::U16(v) => zap.add(&tx, &name, v),
                    Value::U32(v) => zap.add(&tx, &name, v),
                    Value::U64(v) => zap.add(&tx, &name, v),
                };
                match model.entry(name) {
                    Entry::Occupied(_) => {
                        assert_eq!(result.unwrap_err().kind(), ErrorKind::Exists);
                    }
                    Entry::Vacant(entry) => {
                        result.unwrap();
                        entry.insert(value);
                    }
                }
            }
            Step::Update(name, value) => {
                match &value {
                    Value::U8(v) => zap.update(&tx, &name, v),
                    Value::U16(v) => zap.update(&tx, &name, v),
                    Value::U32(v) => zap.update(&tx, &name, v),
                    Value::U64(v) => zap.update(&tx, &name, v),
                }
                .unwrap();
                model.insert(name, value);
            }
            Step::Remove(name) => {
                let was_there = model.remove(&name).is_some();
                assert_eq!(zap.remove_if_present(&tx, &name).unwrap(), was_there);
            }
            Step::Increment(name, delta) => {
                let old = match model.get(&name) {
                    None => 0,
                    Some(Value::U64(v)) if v.len() == 1 => v[0],
                    Some(_) => continue,
                };
                zap.increment(&tx, &name, delta).unwrap();
                match old.wrapping_add_signed(delta) {
                    new if delta == 0 && new == old => {}
                    0 => drop(model.remove(&name)),
                    new => drop(model.insert(name, Value::U64(vec![new]))),
                }
            }
            Step::Reopen => {
                drop(zap);
                bench.reopen();
                zap = Zap::open(&bench.objset, id).unwrap();
            }
        }
    }
    compare(&zap, &model);
    bench.reopen();
    compare(&Zap::open(&bench.objset, id).unwrap(), &model);
}

fn compare(zap: &Zap, model: &BTreeMap<Vec<u8>, Value>) {
    check_structure(zap).unwrap();
    assert_eq!(zap.count().unwrap(), model.len() as u64);
    for (name, value) in model {
        assert_eq!(lookup(zap, name).as_ref(), Some(value));
    }
    let mut names: Vec<Vec<u8>> = zap.iter().map(|e| e.unwrap().name).collect();
    names.sort();
    assert_eq!(names, model.keys().cloned().collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn prop_zap_is_a_map(steps in prop::collection::vec(step(), 1..250)) {
        run(steps);
    }
}
