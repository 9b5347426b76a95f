//! Tests that fields are where they belong, and round-trip.

use super::*;
use proptest::prelude::*;

#[test]
fn default_is_a_hole_that_was_never_written() {
    let bp = BlkPtrPhys::default();
    assert!(bp.is_hole());
    assert_eq!(bp.birth(), Txg(0));
    assert_eq!((bp.ndvas(), bp.asize(), bp.fill()), (0, 0, 0));
}

#[test]
fn hole_keeps_its_birth() {
    let bp = BlkPtrPhys::new_hole(ObjectType::PLAIN_FILE_CONTENTS.raw(), 0, 1 << 17, Txg(77));
    assert!(bp.is_hole());
    assert_eq!((bp.lsize(), bp.birth()), (1 << 17, Txg(77)));
    assert_eq!(
        bp.to_string(),
        "HOLE [L0 ZFS plain file] size=20000L birth=77L"
    );
}

#[test]
fn fields_are_where_openzfs_has_them() {
    let mut bp = BlkPtrPhys::default();
    bp.set_dva(0, DvaPhys::new(VdevId(3), 0x1_2000, 0x1000, true));
    bp.set_lsize(0x2_0000);
    bp.set_psize(0x1000);
    bp.set_compress(15);
    bp.set_checksum(7);
    bp.set_type(19);
    bp.set_level(2);
    bp.set_dedup(true);
    bp.set_little_endian();
    bp.set_birth(Txg(10), Txg(9));
    bp.set_fill(5);
    let words: Vec<u64> = bp
        .as_bytes()
        .chunks(8)
        .map(|c| U64::read_from_bytes(c).unwrap().get())
        .collect();
    assert_eq!(words[0], (3 << 32) | 8);
    assert_eq!(words[1], (1 << 63) | 0x90);
    assert_eq!(words[6], 0xc213_070f_0007_00ff);
    assert_eq!((words[9], words[10], words[11]), (9, 10, 5));
    assert!(bp.is_gang() && bp.is_dedup() && !bp.is_hole());
    assert_eq!((bp.birth(), bp.physical_birth()), (Txg(10), Txg(9)));
}

#[test]
fn a_rewritten_block_has_the_birth_of_its_contents_and_its_own() {
    let mut bp = BlkPtrPhys::default();
    bp.set_dva(0, DvaPhys::new(VdevId(0), 512, 512, false));
    bp.set_birth(Txg(9), Txg(9));
    assert!(!bp.is_rewrite() && bp.allocation_birth() == Txg(9));
    bp.set_birth(Txg(20), Txg(20));
    bp.set_rewrite(Txg(9));
    assert!(bp.is_rewrite());
    assert_eq!((bp.birth(), bp.physical_birth()), (Txg(9), Txg(20)));
    assert_eq!(bp.allocation_birth(), Txg(20));
    let clone = bp.cloned_in(Txg(30));
    assert!(!clone.is_rewrite());
    assert_eq!((clone.birth(), clone.physical_birth()), (Txg(30), Txg(20)));
    assert_eq!(clone.allocation_birth(), Txg(30));
    assert_eq!(bp.as_bytes()[63], 0x80);
}

#[test]
fn an_embedded_pointer_is_never_deduplicated() {
    let mut bp = BlkPtrPhys::new_embedded(EMBEDDED_TYPE_DATA, b"x", 512, 15, 20, 0, Txg(1));
    bp.set_dedup(true);
    assert!(!bp.is_dedup());
}

proptest! {
    #[test]
    fn prop_payload_round_trips(payload in prop::collection::vec(any::<u8>(), 1..=112), extra in 0u64..4096) {
        let lsize = payload.len() as u64 + extra;
        let bp = BlkPtrPhys::new_embedded(EMBEDDED_TYPE_DATA, &payload, lsize, 15, 20, 0, Txg(123));
        prop_assert!(bp.is_embedded() && !bp.is_hole());
        prop_assert_eq!(bp.embedded_payload().unwrap(), payload);
        prop_assert_eq!(bp.lsize(), lsize);
        prop_assert_eq!((bp.psize(), bp.asize(), bp.fill()), (0, 0, 1));
        prop_assert_eq!((bp.birth(), bp.object_type(), bp.compress()), (Txg(123), 20, 15));
    }

    #[test]
    fn prop_any_bytes_can_be_asked_everything(bytes in any::<[u8; 128]>()) {
        let bp = BlkPtrPhys::read_from_bytes(&bytes).unwrap();
        let _ = (bp.to_string(), bp.lsize(), bp.asize(), bp.fill(), bp.embedded_payload());
        let _ = (bp.allocation_birth(), bp.is_metadata(), bp.ndvas());
        prop_assert_eq!(bp.as_bytes(), &bytes[..]);
    }

    #[test]
    fn prop_dva_round_trips(vdev in 0u64..1 << 24, offset in 0u64..1 << 55, asize in 0u64..1 << 24, gang: bool) {
        let dva = DvaPhys::new(VdevId(vdev), offset << 9, asize << 9, gang);
        prop_assert_eq!((dva.vdev().0, dva.offset(), dva.asize(), dva.is_gang()), (vdev, offset << 9, asize << 9, gang));
    }
}
