//! Directories of many entries: splits, tables that grow in steps, and shrinking back.

use super::{Bench, check_structure};
use crate::{Flags, Key, NewZap, Zap, create_with};
use phys::ObjectType;

fn count_from_env(default: u64) -> u64 {
    let set = std::env::var("ZAP_ENTRIES").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn a_large_directory_splits_and_shrinks() {
    fill_and_empty(
        NewZap::new(ObjectType::DIRECTORY_CONTENTS),
        count_from_env(60_000),
    );
}

#[test]
fn tables_of_many_blocks_grow_in_steps() {
    // Small blocks, so that the table needs many of them.
    let new = NewZap {
        flags: Flags::HASH64,
        block_shift: 10,
        ..NewZap::new(ObjectType::DIRECTORY_CONTENTS)
    };
    let was_half_grown = fill_and_empty(new, 20_000);
    assert!(was_half_grown);
}

fn fill_and_empty(new: NewZap, count: u64) -> bool {
    let mut bench = Bench::new();
    let id = create_with(&bench.objset, &bench.tx(), &new).unwrap().id();
    let mut zap = Zap::open(&bench.objset, id).unwrap();
    let mut was_half_grown = false;
    for i in 0..count {
        zap.add_u64(&bench.tx(), Key::Int(i), i).unwrap();
        // A half-grown table must be readable, also through another handle.
        if !was_half_grown && zap.stats().unwrap().table_blks_copied > 0 {
            was_half_grown = true;
            check_structure(&zap).unwrap();
            drop(zap);
            bench.reopen();
            zap = Zap::open(&bench.objset, id).unwrap();
            assert_ne!(zap.stats().unwrap().table_nextblk, 0);
            for i in (0..i).step_by(97) {
                assert_eq!(zap.lookup_u64(Key::Int(i)).unwrap(), Some(i));
            }
        }
    }
    let stats = zap.stats().unwrap();
    assert!(count < 200_000 || stats.table_blocks > 0, "{stats:?}");
    check_structure(&zap).unwrap();
    drop(zap);
    bench.reopen();
    let zap = Zap::open(&bench.objset, id).unwrap();
    for i in 0..count {
        assert_eq!(zap.lookup_u64(Key::Int(i)).unwrap(), Some(i));
    }
    assert_eq!(zap.iter().count() as u64, count);
    for i in 0..count {
        zap.remove(&bench.tx(), Key::Int(i)).unwrap();
    }
    let stats = zap.stats().unwrap();
    assert_eq!((stats.entries, stats.leafs), (0, 1), "{stats:?}");
    check_structure(&zap).unwrap();
    was_half_grown
}
