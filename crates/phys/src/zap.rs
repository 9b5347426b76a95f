//! ZAPs: name/value objects; one small block, or a hash table of leaf blocks.
//!
//! # What it is
//! A *micro* ZAP is one block of 64-byte entries with short names and single 64-bit values. A
//! *fat* ZAP has a header block with a table of pointers indexed by the top bits of the hash, and
//! leaf blocks in which entries are chains of 24-byte chunks. This module has the structures and
//! the arithmetic of leaves; the `zap` crate has the algorithms.
//!
//! # On disk
//! ```text
//! micro:  header 64 | entries 64 each
//! fat 0:  header 104 | zeros | embedded pointer table, second half of the block
//! leaf:   header 48 | hash table u16[block / 32] | chunks of 24 bytes
//! ```
//! See docs/spec/zap.md.
//!
//! # Source
//! OpenZFS include/sys/zap_impl.h, zap_leaf.h, zap.h @be7657e3.

use crate::layout::phys_struct;
use std::mem::size_of;
use zerocopy::little_endian::{U16, U32, U64};

/// `ZBT_LEAF`: block type of a leaf.
pub const ZBT_LEAF: u64 = 1 << 63;
/// `ZBT_HEADER`: block type of a fat header.
pub const ZBT_HEADER: u64 = (1 << 63) + 1;
/// `ZBT_MICRO`: block type of a micro ZAP.
pub const ZBT_MICRO: u64 = (1 << 63) + 3;
/// `ZAP_MAGIC`.
pub const ZAP_MAGIC: u64 = 0x2_f52a_b2ab;
/// `ZAP_LEAF_MAGIC`.
pub const ZAP_LEAF_MAGIC: u32 = 0x02ab_1eaf;
/// `MZAP_ENT_LEN`: bytes of a micro entry, and of the header.
pub const MZAP_ENT_LEN: usize = 64;
/// `MZAP_NAME_LEN`: bytes of a name in a micro entry, with NUL.
pub const MZAP_NAME_LEN: usize = 50;
/// `ZAP_MAXNAMELEN`: the most bytes of a name, with NUL.
pub const ZAP_MAXNAMELEN: usize = 256;
/// `ZAP_MAXNAMELEN_NEW`: the same with feature `longname`.
pub const ZAP_MAXNAMELEN_NEW: usize = 1024;
/// `ZAP_MAXVALUELEN`: the most bytes of a value.
pub const ZAP_MAXVALUELEN: usize = 8192;
/// `fzap_default_block_shift`: log2 of a block of a fat ZAP.
pub const FZAP_DEFAULT_BLOCK_SHIFT: u32 = 14;
/// `ZAP_LEAF_CHUNKSIZE`.
pub const ZAP_LEAF_CHUNKSIZE: usize = 24;
/// `ZAP_LEAF_ARRAY_BYTES`: bytes of data in an array chunk.
pub const ZAP_LEAF_ARRAY_BYTES: usize = 21;
/// `ZAP_LEAF_LOW_WATER`: free chunks below which a leaf is nearly full.
pub const ZAP_LEAF_LOW_WATER: usize = 20;
/// `ZAP_CHUNK_FREE`.
pub const ZAP_CHUNK_FREE: u8 = 253;
/// `ZAP_CHUNK_ENTRY`.
pub const ZAP_CHUNK_ENTRY: u8 = 252;
/// `ZAP_CHUNK_ARRAY`.
pub const ZAP_CHUNK_ARRAY: u8 = 251;
/// `CHAIN_END`: no next chunk.
pub const CHAIN_END: u16 = 0xffff;
/// `ZLF_ENTRIES_CDSORTED`: hash chains are in order of collision differentiator.
pub const ZLF_ENTRIES_CDSORTED: u8 = 1;
/// `ZAP_FLAG_HASH64`: 48 bits of the hash are used instead of 28.
pub const ZAP_FLAG_HASH64: u64 = 1 << 0;
/// `ZAP_FLAG_UINT64_KEY`: keys are arrays of 64-bit integers.
pub const ZAP_FLAG_UINT64_KEY: u64 = 1 << 1;
/// `ZAP_FLAG_PRE_HASHED_KEY`: the first word of the key is its hash.
pub const ZAP_FLAG_PRE_HASHED_KEY: u64 = 1 << 2;

phys_struct! {
    /// `mzap_phys_t`: header of a micro ZAP; entries follow to the end of the block.
    #[doc(alias = "mzap_phys_t")]
    pub struct MzapPhys: 64 {
        /// mz_block_type: [`ZBT_MICRO`]
        0 block_type: U64,
        /// mz_salt: start value of hashes
        8 salt: U64,
        /// mz_normflags: Unicode normalization
        16 normflags: U64,
        /// mz_pad: zero
        24 pad: [U64; 5],
    }

    /// `mzap_ent_phys_t`: an entry of a micro ZAP; an empty name: free.
    #[doc(alias = "mzap_ent_phys_t")]
    pub struct MzapEntPhys: 64 {
        /// mze_value
        0 value: U64,
        /// mze_cd: collision differentiator
        8 cd: U32,
        /// mze_pad: zero
        12 pad: U16,
        /// mze_name: ends with NUL
        14 name: [u8; 50],
    }

    /// `zap_table_phys_t`: the pointer table, if it is not in the header block.
    #[doc(alias = "zap_table_phys_t")]
    pub struct ZapTablePhys: 40 {
        /// zt_blk: first block; 0: the table is in the header
        0 blk: U64,
        /// zt_numblks
        8 numblks: U64,
        /// zt_shift: log2 of the entries
        16 shift: U64,
        /// zt_nextblk: first block of the larger copy being built; 0: none
        24 nextblk: U64,
        /// zt_blks_copied: source blocks copied so far
        32 blks_copied: U64,
    }

    /// `zap_phys_t`: header of a fat ZAP.
    #[doc(alias = "zap_phys_t")]
    pub struct ZapPhys: 104 {
        /// zap_block_type: [`ZBT_HEADER`]
        0 block_type: U64,
        /// zap_magic: [`ZAP_MAGIC`]
        8 magic: U64,
        /// zap_ptrtbl
        16 ptrtbl: ZapTablePhys,
        /// zap_freeblk: the next block to allocate
        56 freeblk: U64,
        /// zap_num_leafs
        64 num_leafs: U64,
        /// zap_num_entries
        72 num_entries: U64,
        /// zap_salt
        80 salt: U64,
        /// zap_normflags
        88 normflags: U64,
        /// zap_flags: `ZAP_FLAG_*`
        96 flags: U64,
    }

    /// `struct zap_leaf_header`: header of a leaf block.
    #[doc(alias = "zap_leaf_phys_t")]
    pub struct ZapLeafPhys: 48 {
        /// lh_block_type: [`ZBT_LEAF`]
        0 block_type: U64,
        /// lh_pad1: zero
        8 pad1: U64,
        /// lh_prefix: the first bits of all hashes in this leaf
        16 prefix: U64,
        /// lh_magic: [`ZAP_LEAF_MAGIC`]
        24 magic: U32,
        /// lh_nfree: free chunks
        28 nfree: U16,
        /// lh_nentries
        30 nentries: U16,
        /// lh_prefix_len: number of bits in the prefix
        32 prefix_len: U16,
        /// lh_freelist: first free chunk, or [`CHAIN_END`]
        34 freelist: U16,
        /// lh_flags: `ZLF_*`
        36 flags: u8,
        /// lh_pad2: zero
        37 pad2: [u8; 11],
    }

    /// `struct zap_leaf_entry`: a chunk that is an entry.
    #[doc(alias = "zap_leaf_entry")]
    pub struct ZapLeafEntryPhys: 24 {
        /// le_type: [`ZAP_CHUNK_ENTRY`]
        0 type_: u8,
        /// le_value_intlen: bytes per integer of the value
        1 value_intlen: u8,
        /// le_next: next entry of the hash chain
        2 next: U16,
        /// le_name_chunk: first chunk of the name
        4 name_chunk: U16,
        /// le_name_numints: bytes of name with NUL, or words of a binary key
        6 name_numints: U16,
        /// le_value_chunk: first chunk of the value
        8 value_chunk: U16,
        /// le_value_numints: integers of the value
        10 value_numints: U16,
        /// le_cd: collision differentiator
        12 cd: U32,
        /// le_hash: of the name
        16 hash: U64,
    }

    /// `struct zap_leaf_array`: a chunk of name or value. Integers are big-endian.
    #[doc(alias = "zap_leaf_array")]
    pub struct ZapLeafArrayPhys: 24 {
        /// la_type: [`ZAP_CHUNK_ARRAY`]
        0 type_: u8,
        /// la_array
        1 array: [u8; 21],
        /// la_next: next chunk, or [`CHAIN_END`]
        22 next: U16,
    }

    /// `struct zap_leaf_free`: a free chunk.
    #[doc(alias = "zap_leaf_free")]
    pub struct ZapLeafFreePhys: 24 {
        /// lf_type: [`ZAP_CHUNK_FREE`]
        0 type_: u8,
        /// lf_pad
        1 pad: [u8; 21],
        /// lf_next: next free chunk, or [`CHAIN_END`]
        22 next: U16,
    }
}

impl MzapEntPhys {}

/// The arithmetic of a leaf block of `1 << shift` bytes, `shift` at least 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZapLeafLayout {
    shift: u32,
}

impl ZapLeafLayout {
    /// The layout of a leaf of `1 << block_shift` bytes.
    #[must_use]
    pub const fn new(block_shift: u32) -> ZapLeafLayout {
        assert!(
            block_shift >= 9 && block_shift <= 24,
            "block shift of a ZAP"
        );
        ZapLeafLayout { shift: block_shift }
    }

    /// Bytes of the block.
    #[must_use]
    pub const fn block_size(self) -> usize {
        1usize.wrapping_shl(self.shift)
    }

    /// `ZAP_LEAF_HASH_SHIFT`: log2 of the entries of the hash table.
    #[must_use]
    pub const fn hash_shift(self) -> u32 {
        self.shift.saturating_sub(5)
    }

    /// `ZAP_LEAF_HASH_NUMENTRIES`: entries of the hash table.
    #[must_use]
    pub const fn hash_entries(self) -> usize {
        1usize.wrapping_shl(self.hash_shift())
    }

    /// `ZAP_LEAF_NUMCHUNKS`: chunks in the block.
    #[must_use]
    pub const fn chunks(self) -> usize {
        let room = self
            .block_size()
            .saturating_sub(self.hash_entries().saturating_mul(2));
        (room / ZAP_LEAF_CHUNKSIZE).saturating_sub(2)
    }

    /// `ZAP_LEAF_CHUNK`: offset of chunk `index` in the block; `None` if there is no such chunk.
    #[must_use]
    pub const fn chunk_offset(self, index: usize) -> Option<usize> {
        if index >= self.chunks() {
            return None;
        }
        let hash_end = self.hash_entries().saturating_mul(2).saturating_add(48);
        Some(
            index
                .saturating_mul(ZAP_LEAF_CHUNKSIZE)
                .saturating_add(hash_end),
        )
    }

    /// `ZAP_EMBEDDED_PTRTBL_SHIFT`: log2 of the pointers in the header block.
    #[must_use]
    pub const fn embedded_ptrtbl_shift(self) -> u32 {
        self.shift.saturating_sub(4)
    }

    /// `ZAP_EMBEDDED_PTRTBL_ENT`: offset of pointer `index` in the header block.
    #[must_use]
    pub const fn embedded_ptrtbl_offset(self, index: usize) -> usize {
        assert!(index < 1usize.wrapping_shl(self.embedded_ptrtbl_shift()));
        self.block_size()
            .wrapping_shr(1)
            .saturating_add(index.saturating_mul(8))
    }
}

/// `ZAP_LEAF_ARRAY_NCHUNKS`: chunks that hold `bytes` bytes.
#[must_use]
pub const fn array_chunks(bytes: usize) -> usize {
    bytes.div_ceil(ZAP_LEAF_ARRAY_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaf_of_16k_is_as_openzfs_has_it() {
        let leaf = ZapLeafLayout::new(14);
        assert_eq!((leaf.hash_entries(), leaf.chunks()), (512, 638));
        assert_eq!(leaf.chunk_offset(0), Some(48 + 1024));
        assert_eq!(leaf.chunk_offset(638), None);
        assert!(leaf.chunk_offset(637).unwrap() + 24 <= 16384);
        assert_eq!(leaf.embedded_ptrtbl_shift(), 10);
        assert_eq!(leaf.embedded_ptrtbl_offset(0), 8192);
        assert_eq!(leaf.embedded_ptrtbl_offset(1023), 16376);
    }

    #[test]
    fn every_leaf_fits_its_block() {
        for shift in 9..=17 {
            let leaf = ZapLeafLayout::new(shift);
            let last = leaf.chunk_offset(leaf.chunks() - 1).unwrap();
            assert!(last + 24 <= leaf.block_size(), "shift {shift}");
        }
        assert_eq!([0, 1, 21, 22].map(array_chunks), [0, 1, 1, 2]);
    }
}
