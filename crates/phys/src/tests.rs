//! Round trip, truncation and bit flip of every structure, by one macro.

use crate::Phys;
use proptest::prelude::*;

/// Bytes of which each differs from its neighbours and from zero.
fn pattern(size: usize, seed: u8) -> Vec<u8> {
    (0..size)
        .map(|i| (i as u8).wrapping_mul(7).wrapping_add(seed) | 1)
        .collect()
}

fn check_round_trip<T: Phys + PartialEq + std::fmt::Debug>() {
    let bytes = pattern(T::SIZE + 3, 5);
    let value = T::read(&bytes).unwrap();
    let mut written = pattern(T::SIZE + 3, 9);
    value.write(&mut written);
    assert_eq!(
        written[..T::SIZE],
        bytes[..T::SIZE],
        "every byte comes back"
    );
    assert_eq!(
        written[T::SIZE..],
        pattern(T::SIZE + 3, 9)[T::SIZE..],
        "no byte more is written"
    );
    assert_eq!(
        T::view_mut(&mut written).unwrap().as_bytes(),
        value.as_bytes()
    );
    assert!(!format!("{value:?}").is_empty());
}

fn check_truncation<T: Phys>() {
    let bytes = pattern(T::SIZE, 1);
    for size in 0..T::SIZE {
        let error = T::view(&bytes[..size]).err().unwrap();
        assert_eq!(error.kind(), base::ErrorKind::Corrupt);
        assert_eq!(
            error.context(),
            format!("{}: {size} bytes of {}", T::NAME, T::SIZE)
        );
    }
}

fn check_bit_flips<T: Phys + PartialEq + std::fmt::Debug>() {
    let bytes = vec![0; T::SIZE];
    let value = T::read(&bytes).unwrap();
    for bit in 0..T::SIZE * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let other = T::read(&flipped).unwrap();
        assert_ne!(value, other, "bit {bit} is part of no field");
        assert_eq!(other.as_bytes(), flipped);
    }
}

macro_rules! phys_tests {
    ($($module:ident: $type:ty;)*) => {$(
        mod $module {
            #[test]
            fn round_trips() {
                super::check_round_trip::<$type>();
            }

            #[test]
            fn is_refused_when_truncated() {
                super::check_truncation::<$type>();
            }

            #[test]
            fn every_bit_counts() {
                super::check_bit_flips::<$type>();
            }
        }
    )*};
}

phys_tests! {
    dva: crate::DvaPhys;
    blkptr: crate::BlkPtrPhys;
    dnode: crate::DnodePhys;
    dnode_slot: crate::DnodeSlotPhys;
    objset: crate::ObjsetPhys;
    uberblock: crate::UberblockPhys;
    eck: crate::EckPhys;
    boot_env: crate::BootEnvPhys;
    l2_log_ptr: crate::l2arc::L2LogPtrPhys;
    l2_header: crate::l2arc::L2HeaderPhys;
    l2_entry: crate::l2arc::L2EntryPhys;
    l2_log_head: crate::l2arc::L2LogHeadPhys;
    gang_header: crate::GangHeaderPhys;
    dsl_dir: crate::DslDirPhys;
    dsl_dataset: crate::DslDatasetPhys;
    deadlist: crate::DeadlistPhys;
    bpobj: crate::BpobjPhys;
    bptree: crate::BptreePhys;
    bptree_entry: crate::BptreeEntryPhys;
    dsl_bookmark: crate::DslBookmarkPhys;
    bookmark: crate::BookmarkPhys;
    bookmark_err: crate::BookmarkErrPhys;
    ddt_bookmark: crate::scan::DdtBookmarkPhys;
    scan: crate::ScanPhys;
    error_scrub: crate::ErrorScrubPhys;
    brt_vdev: crate::BrtVdevPhys;
    history: crate::HistoryPhys;
    indirect_mapping: crate::scan::IndirectMappingPhys;
    indirect_mapping_entry: crate::scan::IndirectMappingEntryPhys;
    indirect_birth_entry: crate::scan::IndirectBirthEntryPhys;
    removing: crate::scan::RemovingPhys;
    condensing: crate::scan::CondensingPhys;
    space_map: crate::SpaceMapPhys;
    mzap: crate::MzapPhys;
    mzap_ent: crate::MzapEntPhys;
    zap: crate::ZapPhys;
    zap_table: crate::zap::ZapTablePhys;
    zap_leaf: crate::ZapLeafPhys;
    zap_leaf_entry: crate::zap::ZapLeafEntryPhys;
    zap_leaf_array: crate::zap::ZapLeafArrayPhys;
    zap_leaf_free: crate::zap::ZapLeafFreePhys;
    sa_hdr: crate::SaHdrPhys;
    znode: crate::ZnodePhys;
    zfs_acl: crate::ZfsAclPhys;
    old_ace: crate::znode::OldAcePhys;
    ace_hdr: crate::znode::AceHdrPhys;
    ace: crate::znode::AcePhys;
    object_ace: crate::znode::ObjectAcePhys;
    zil_header: crate::ZilHeaderPhys;
    zil_chain: crate::ZilChainPhys;
    lr: crate::LrPhys;
    lr_ooo: crate::zil::LrOooPhys;
    lr_attr: crate::zil::LrAttrPhys;
    lr_attr_end: crate::zil::LrAttrEndPhys;
    lr_create: crate::zil::LrCreatePhys;
    lr_acl_create: crate::zil::LrAclCreatePhys;
    lr_remove: crate::zil::LrRemovePhys;
    lr_link: crate::zil::LrLinkPhys;
    lr_rename: crate::zil::LrRenamePhys;
    lr_rename_whiteout: crate::zil::LrRenameWhiteoutPhys;
    lr_write: crate::zil::LrWritePhys;
    lr_truncate: crate::zil::LrTruncatePhys;
    lr_setattr: crate::zil::LrSetattrPhys;
    lr_setsaxattr: crate::zil::LrSetsaxattrPhys;
    lr_acl_v0: crate::zil::LrAclV0Phys;
    lr_acl: crate::zil::LrAclPhys;
    lr_clone_range: crate::zil::LrCloneRangePhys;
}

proptest! {
    #[test]
    fn prop_no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..4200)) {
        crate::fuzzing::phys_all(&bytes);
    }
}
