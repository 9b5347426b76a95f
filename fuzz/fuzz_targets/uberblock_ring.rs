//! Reads a ring of uberblocks that is the input: slots of the size that the first byte picks, the
//! first ones sealed with right checksums.
#![no_main]

use base::Txg;
use checksum::embedded;
use geom::Provider;
use ram::Memory;
use libfuzzer_sys::fuzz_target;
use phys::ChecksumType;
use phys::label::{UBERBLOCK_RING_OFFSET, UBERBLOCK_RING_SIZE};
use vdev::label::Labels;

fuzz_target!(|input: &[u8]| {
    let Some((&pick, bytes)) = input.split_first() else {
        return;
    };
    let slot_bytes = 1024 << (pick % 4);
    let mut ring = vec![0; UBERBLOCK_RING_SIZE as usize];
    // a slot has few bytes that matter: the input is spread over the first slots
    for (slot, part) in ring.chunks_mut(slot_bytes).zip(bytes.chunks(256)) {
        slot[..part.len()].copy_from_slice(part);
    }
    for (i, slot) in ring.chunks_mut(slot_bytes).take(16).enumerate() {
        let at = UBERBLOCK_RING_OFFSET + (i * slot_bytes) as u64;
        embedded::set(ChecksumType::Label, &embedded::label_verifier(at), slot);
    }
    let disk = Memory::new("/disk", 8 << 20);
    disk.write(UBERBLOCK_RING_OFFSET, &ring)
        .expect("within the disk");
    let labels = Labels::read(&disk).expect("it is large enough");
    if let Some(best) = labels.best_uberblock(Txg(u64::MAX)) {
        let older = labels.best_uberblock(Txg(best.txg().0.saturating_sub(1)));
        assert!(older.is_none_or(|older| older.rank() <= best.rank()));
    }
});
