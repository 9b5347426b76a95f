//! ZAPs with damaged blocks: errors, never panics, never endless loops.

use base::{BlkId, ObjectId};
use phys::ObjectType;
use proptest::prelude::*;

use super::Bench;
use crate::{Flags, Key, NewZap, Zap, create, create_with};

/// A ZAP with a few entries of each kind: micro, fat, fat with words.
fn victim(bench: &Bench, kind: u8) -> ObjectId {
    let tx = bench.tx();
    let words = NewZap {
        flags: Flags::HASH64 | Flags::UINT64_KEY,
        block_shift: 12,
        ..NewZap::new(ObjectType::DDT_ZAP)
    };
    if kind == 2 {
        let id = create_with(&bench.objset, &tx, &words).unwrap().id();
        let zap = Zap::open(&bench.objset, id).unwrap();
        (0..400u64).for_each(|i| zap.add(&tx, &[i, i * i], &[i as u32; 5]).unwrap());
        return id;
    }
    let id = create(&bench.objset, &tx, ObjectType::ZAP_OTHER).unwrap();
    let zap = Zap::open(&bench.objset, id).unwrap();
    (0..40u64).for_each(|i| zap.add_u64(&tx, Key::Int(i), i).unwrap());
    if kind == 1 {
        (0..600u64).for_each(|i| zap.add(&tx, Key::Int(100 + i), &[i, i]).unwrap());
    }
    id
}

/// Calls every operation once; the results do not matter.
fn exercise(bench: &Bench, id: ObjectId) {
    let tx = bench.tx();
    let Ok(zap) = Zap::open(&bench.objset, id) else {
        return;
    };
    let _ = (zap.count(), zap.stats());
    for entry in zap.iter().take(2000) {
        let Ok(entry) = entry else { break };
        let _ = (entry.int_key(), entry.words());
    }
    for i in 0..60u64 {
        let _ = zap.lookup::<u64>(Key::Int(i));
        let _ = zap.lookup::<u32>(&[i, i * i]);
        let _ = zap.update(&tx, Key::Int(i), &vec![7u64; i as usize]);
        let _ = zap.update(&tx, &[i, i * i], &vec![7u32; i as usize]);
        let _ = zap.remove(&tx, Key::Int(i + 20));
        let _ = zap.remove(&tx, &[i + 20, (i + 20) * (i + 20)]);
        let _ = zap.add_u64(&tx, &format!("new {i}"), i);
        let _ = zap.add_u64(&tx, &[i, 1, 2], i);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn prop_damage_is_an_error_and_no_panic(
        kind in 0..3u8,
        hits in prop::collection::vec((0..6u64, any::<u16>(), any::<u8>(), any::<bool>()), 1..12),
    ) {
        let bench = Bench::new();
        let id = victim(&bench, kind);
        let tx = bench.tx();
        let dnode = bench.objset.hold(id).unwrap();
        for (blk, at, byte, in_front) in hits {
            let blk = BlkId(blk % (dnode.maxblkid().0 + 1));
            dnode.modify_block(&tx, blk, |block| {
                // Half of the changes go to the headers.
                let span = if in_front { 128.min(block.len()) } else { block.len() };
                block[usize::from(at) % span] = byte;
            }).unwrap();
        }
        drop(dnode);
        exercise(&bench, id);
    }
}

#[test]
fn a_pointer_table_without_end_is_not_walked() {
    let bench = Bench::new();
    let id = victim(&bench, 2);
    let (tx, dnode) = (bench.tx(), bench.objset.hold(id).unwrap());
    // zt_blk, zt_numblks, zt_shift: 2^38 pointers, all of them in holes.
    let table: [u64; 3] = [64, 1 << 29, 38];
    let last = vec![0u8; dnode.blksz() as usize];
    let last = dnode.write(&tx, (table[0] + table[1]) * dnode.blksz(), &last);
    last.unwrap();
    let change = |block: &mut [u8]| {
        for (place, word) in block[16..40].chunks_exact_mut(8).zip(table) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    };
    dnode.modify_block(&tx, BlkId(0), change).unwrap();
    let zap = Zap::open(&bench.objset, id).unwrap();
    assert_eq!(zap.stats().unwrap().table_shift, 38);
    let error = zap.leaf_histograms().unwrap_err();
    assert!(error.to_string().contains("no zap leaf"), "{error}");
    exercise(&bench, id);
}
