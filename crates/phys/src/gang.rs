//! Gang headers: a block is stored in pieces when no free segment is large enough.
//!
//! # On disk
//! An array of block pointers, zero padding, and an embedded checksum in the last 40 bytes.
//! 512 bytes hold 3 pointers; with feature `dynamic_gang_header` the header is as large as the
//! smallest sector allows. See docs/spec/blkptr.md.
//!
//! # Source
//! OpenZFS include/sys/zio.h (`zio_gbh_phys_t`, `gbh_nblkptrs`) @be7657e3.

use crate::BlkPtrPhys;
use crate::label::EckPhys;
use crate::layout::phys_struct;
use std::mem::size_of;

/// `SPA_OLD_GANGBLOCKSIZE`: a gang header without `dynamic_gang_header`.
pub(crate) const SPA_OLD_GANGBLOCKSIZE: usize = 512;

/// `gbh_nblkptrs`: pointers in a gang header of `size` bytes, at least 512.
#[must_use]
pub const fn gang_nblkptrs(size: usize) -> usize {
    assert!(size >= SPA_OLD_GANGBLOCKSIZE && size.is_multiple_of(128));
    size.saturating_sub(40).wrapping_shr(7)
}

phys_struct! {
    /// `zio_gbh_phys_t` of 512 bytes.
    #[doc(alias = "zio_gbh_phys_t")]
    pub struct GangHeaderPhys: 512 {
        /// zg_blkptr: the members, in order; holes are unused
        0 blkptr: [BlkPtrPhys; 3],
        /// zg_filler: zero
        384 filler: [u8; 88],
        /// zg_tail
        472 eck: EckPhys,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn larger_headers_hold_more() {
        assert_eq!([512, 1024, 4096].map(super::gang_nblkptrs), [3, 7, 31]);
    }
}
