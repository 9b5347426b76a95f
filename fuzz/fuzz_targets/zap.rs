//! Reads, lists and changes a ZAP whose blocks are the input: micro from a block of any size, fat
//! from blocks of 4 KiB.
#![no_main]

use base::BlkId;
use libfuzzer_sys::fuzz_target;
use phys::ObjectType;
use zap::{Key, NewZap, Zap};

#[path = "../common/objset.rs"]
mod objset;

const BLOCK_BYTES: usize = 4096;

fuzz_target!(|input: &[u8]| {
    let Some((&[pick, count], bytes)) = input.split_first_chunk() else {
        return;
    };
    let (objset, tx) = objset::new();
    let new = NewZap {
        block_shift: 12,
        ..NewZap::new(ObjectType::ZAP_OTHER)
    };
    let id = zap::create_with(&objset, &tx, &new)
        .expect("an empty one")
        .id();
    let zap = Zap::open(&objset, id).expect("an empty one");
    // a good one to damage: micro, or fat with some leaves
    for i in 0..u64::from(count) {
        let words = vec![i; if pick & 1 == 0 { 1 } else { 3 }];
        zap.add(&tx, Key::Int(i), &words).expect("there is room");
    }
    let dnode = objset.hold(id).expect("it was made");
    for hit in bytes.chunks(BLOCK_BYTES + 4) {
        let Some((&[blk, low, high, len], with)) = hit.split_first_chunk() else {
            break;
        };
        let blk = BlkId(u64::from(blk) % (dnode.maxblkid().0 + 1));
        let damage = |block: &mut [u8]| {
            let at = usize::from(u16::from_le_bytes([low, high])) % block.len();
            let room = block.len() - at;
            let len = with
                .len()
                .min(room)
                .min(if len == 0 { room } else { len.into() });
            block[at..at + len].copy_from_slice(&with[..len]);
        };
        dnode.modify_block(&tx, blk, damage).expect("in memory");
    }
    drop((zap, dnode));
    let Ok(zap) = Zap::open(&objset, id) else {
        return;
    };
    let _ = (zap.count(), zap.stats());
    for entry in zap.iter().take(1000) {
        let Ok(entry) = entry else { break };
        let _ = (entry.int_key(), entry.words(), entry.name_str().len());
    }
    for i in 0..8 {
        let _ = zap.lookup::<u64>(Key::Int(i));
        let _ = zap.update(&tx, Key::Int(i), &[7u64; 9]);
        let _ = zap.remove(&tx, Key::Int(i + 3));
        let _ = zap.add_u64(&tx, &format!("new {i}"), i);
    }
});
