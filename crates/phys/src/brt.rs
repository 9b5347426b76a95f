//! The table of cloned blocks of one vdev.
//!
//! # Source
//! OpenZFS include/sys/brt_impl.h (`brt_vdev_phys_t`).

use crate::layout::phys_struct;
use std::mem::size_of;
use zerocopy::little_endian::U64;

phys_struct! {
    /// `brt_vdev_phys_t`: bonus of the object with the entry counts, 16 bits for each range of the vdev.
    #[doc(alias = "brt_vdev_phys_t")]
    pub struct BrtVdevPhys: 56 {
        /// bvp_mos_entries: the ZAP with the entries
        0 mos_entries: U64,
        /// bvp_size: ranges
        8 size: U64,
        /// bvp_byteorder: byte order of the counts
        16 byteorder: U64,
        /// bvp_totalcount: entries
        24 totalcount: U64,
        /// bvp_rangesize: bytes
        32 rangesize: U64,
        /// bvp_usedspace: bytes that cloned blocks take
        40 usedspace: U64,
        /// bvp_savedspace: bytes that they would take beyond that if they were copies
        48 savedspace: U64,
    }
}

/// `BRT_LITTLE_ENDIAN`
pub const BRT_LITTLE_ENDIAN: u64 = 0;
/// `BRT_OBJECT_VDEV_PREFIX`: prefix of entries of the pool directory; the vdev's number follows.
pub const BRT_OBJECT_VDEV_PREFIX: &str = "com.fudosecurity:brt:vdev:";
