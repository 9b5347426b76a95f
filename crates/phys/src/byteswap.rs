//! Blocks of the other byte order: what a big-endian host wrote, as a little-endian one would have written it.
//!
//! # What it is
//! A pool has no byte order: each block pointer says which one its block has (`BP_GET_BYTEORDER`), and a
//! block is written in the order of the host that writes it. So a block that a big-endian host wrote is
//! converted once, when it is read, by the [`ByteswapClass`] of its object; everything above sees
//! little-endian bytes, and what is changed is written as such.
//!
//! What is a string of bytes (files, XDR, native nvlists) stays. The system attributes of a file are converted
//! apart: the registry of the file system knows their kinds ([`crate::sa`]).
//!
//! # Invariants
//! No bytes make a function here panic; what a block has too few or too many bytes for stays as it is.
//!
//! # Source
//! OpenZFS module/zfs/dmu.c (`dmu_ot_byteswap`), dnode.c (`dnode_byteswap`), dmu_objset.c
//! (`dmu_objset_byteswap`), zap.c, zap_leaf.c, zap_micro.c (`zap_byteswap`), zfs_byteswap.c, uberblock.c @be7657e3.

mod log;

pub use log::swap_log_block;

use crate::dnode::DNODE_MIN_SIZE;
use crate::layout::Phys;
use crate::objset::ObjsetPhys;
use crate::sa::{SA_MAGIC, SaBswap, SaHdrPhys};
use crate::zap::{
    MZAP_ENT_LEN, ZAP_CHUNK_ARRAY, ZAP_CHUNK_ENTRY, ZAP_CHUNK_FREE, ZAP_LEAF_CHUNKSIZE, ZBT_LEAF,
    ZBT_MICRO, ZapLeafPhys,
};
use crate::znode::{AceHdrPhys, AcePhys, OldAcePhys, ZFS_ACL_VERSION, ZfsAclPhys, ZnodePhys};
use crate::{ByteswapClass, DnodePhys, ObjectType};
use std::mem::offset_of;
use zerocopy::IntoBytes;

/// Widths of the fields of a leaf's header, in order; flags and padding follow.
const LEAF_HEADER: [usize; 8] = [8, 8, 8, 4, 2, 2, 2, 2];
/// Widths of the fields of a leaf's entry.
const LEAF_ENTRY: [usize; 9] = [1, 1, 2, 2, 2, 2, 2, 4, 8];
/// Offset of the next chunk in a leaf's array and in a free chunk.
const LEAF_CHUNK_NEXT: usize = 22;

/// Converts the logical bytes of a block at `level` of an object of `type_`.
#[doc(alias = "dmu_ot_byteswap")]
pub fn swap_block(type_: ObjectType, level: u8, bytes: &mut [u8]) {
    match level {
        0 => swap_class(type_.byteswap(), bytes),
        _ => swap_words(bytes),
    }
}

fn swap_class(class: ByteswapClass, bytes: &mut [u8]) {
    match class {
        ByteswapClass::Uint8 => {}
        ByteswapClass::Uint16 => swap_all::<2>(bytes),
        ByteswapClass::Uint32 => swap_all::<4>(bytes),
        ByteswapClass::Uint64 => swap_words(bytes),
        ByteswapClass::Zap => swap_zap(bytes),
        ByteswapClass::Dnode => swap_dnodes(bytes),
        ByteswapClass::Objset => swap_objset(bytes),
        ByteswapClass::Znode => swap_znode(bytes),
        ByteswapClass::OldAcl => swap_old_acl(bytes),
        ByteswapClass::Acl => swap_acl(bytes),
    }
}

/// Reverses each 64-bit word, which is all that an uberblock, an indirect block or a gang header needs. A
/// remainder stays.
#[doc(alias = "byteswap_uint64_array")]
pub fn swap_words(bytes: &mut [u8]) {
    swap_all::<8>(bytes);
}

fn swap_all<const N: usize>(bytes: &mut [u8]) {
    let (words, _) = bytes.as_chunks_mut::<N>();
    words.iter_mut().for_each(|word| word.reverse());
}

/// Reverses fields of these widths, one after the other.
fn swap_fields(mut bytes: &mut [u8], widths: &[usize]) {
    for width in widths {
        let Some((field, rest)) = bytes.split_at_mut_checked(*width) else {
            return;
        };
        field.reverse();
        bytes = rest;
    }
}

/// The bytes from `start` on.
fn tail(bytes: &mut [u8], start: usize) -> &mut [u8] {
    bytes.get_mut(start..).unwrap_or_default()
}

#[doc(alias = "zap_byteswap")]
fn swap_zap(bytes: &mut [u8]) {
    let kind = bytes.first_chunk().map(|word| u64::from_be_bytes(*word));
    match kind {
        Some(ZBT_MICRO) => swap_micro_zap(bytes),
        Some(ZBT_LEAF) => swap_zap_leaf(bytes),
        // The header and the blocks of the table of pointers are words.
        _ => swap_words(bytes),
    }
}

fn swap_micro_zap(bytes: &mut [u8]) {
    let (entries, _) = bytes.as_chunks_mut::<MZAP_ENT_LEN>();
    let mut entries = entries.iter_mut();
    if let Some(header) = entries.next() {
        swap_words(header);
    }
    entries.for_each(|entry| swap_fields(entry, &[8, 4, 2]));
}

#[doc(alias = "zap_leaf_byteswap")]
fn swap_zap_leaf(bytes: &mut [u8]) {
    // A hash table of 2 bytes for every 32 bytes of the block.
    let hash_bytes = bytes.len().checked_div(16).unwrap_or(0);
    let Some((header, rest)) = bytes.split_at_mut_checked(ZapLeafPhys::SIZE) else {
        return;
    };
    swap_fields(header, &LEAF_HEADER);
    let Some((hash, chunks)) = rest.split_at_mut_checked(hash_bytes) else {
        return;
    };
    swap_all::<2>(hash);
    let (chunks, _) = chunks.as_chunks_mut::<ZAP_LEAF_CHUNKSIZE>();
    for chunk in chunks {
        match chunk.first() {
            Some(&ZAP_CHUNK_ENTRY) => swap_fields(chunk, &LEAF_ENTRY),
            Some(&(ZAP_CHUNK_ARRAY | ZAP_CHUNK_FREE)) => {
                swap_fields(tail(chunk, LEAF_CHUNK_NEXT), &[2]);
            }
            _ => {}
        }
    }
}

#[doc(alias = "dnode_buf_byteswap")]
fn swap_dnodes(mut bytes: &mut [u8]) {
    while let Ok(core) = DnodePhys::view(bytes) {
        let slots = if core.is_allocated() { core.slots() } else { 1 };
        let size = slots.saturating_mul(DNODE_MIN_SIZE).min(bytes.len());
        let (dnode, rest) = bytes.split_at_mut(size);
        swap_dnode(dnode);
        bytes = rest;
    }
}

/// Converts one dnode in all its slots. A slot that is free is zero afterwards, as `dnode_byteswap` leaves it.
#[doc(alias = "dnode_byteswap")]
fn swap_dnode(bytes: &mut [u8]) {
    let Ok(core) = DnodePhys::view_mut(bytes) else {
        return;
    };
    if !core.is_allocated() {
        bytes.fill(0);
        return;
    }
    core.datablkszsec.as_mut_bytes().reverse();
    core.bonuslen.as_mut_bytes().reverse();
    core.maxblkid.as_mut_bytes().reverse();
    core.used.as_mut_bytes().reverse();
    let core = *core;
    let has_bonus = core.bonuslen.get() != 0;
    // A reader refuses a dnode that cannot be; here it only must not be taken apart.
    if core.verify().is_err() {
        return;
    }
    let (head, bonus) = bytes.split_at_mut(core.bonus_offset().min(bytes.len()));
    swap_words(tail(head, DnodePhys::SIZE));
    let bonus_bytes = core.max_bonuslen().min(bonus.len());
    let (bonus, spill) = bonus.split_at_mut(bonus_bytes);
    swap_words(spill);
    if has_bonus && let Ok(type_) = ObjectType::try_from(core.bonustype) {
        swap_class(type_.byteswap(), bonus);
    }
}

/// The dnodes that an objset has beside the meta-dnode: accounts.
const OBJSET_DNODES: [usize; 3] = [
    offset_of!(ObjsetPhys, userused_dnode),
    offset_of!(ObjsetPhys, groupused_dnode),
    offset_of!(ObjsetPhys, projectused_dnode),
];

#[doc(alias = "dmu_objset_byteswap")]
fn swap_objset(bytes: &mut [u8]) {
    let slot = |bytes: &mut [u8], start: usize| {
        if let Some(dnode) = tail(bytes, start).first_chunk_mut::<DNODE_MIN_SIZE>() {
            swap_dnode(dnode);
        }
    };
    slot(bytes, offset_of!(ObjsetPhys, meta_dnode));
    let words = offset_of!(ObjsetPhys, zil_header)..offset_of!(ObjsetPhys, portable_mac);
    swap_words(bytes.get_mut(words).unwrap_or_default());
    for start in OBJSET_DNODES {
        slot(bytes, start);
    }
}

/// Converts the bonus of a file from before system attributes. A symbolic link's target may follow.
#[doc(alias = "zfs_znode_byteswap")]
fn swap_znode(bytes: &mut [u8]) {
    let Some((words, acl)) = bytes.split_at_mut_checked(offset_of!(ZnodePhys, acl)) else {
        return;
    };
    swap_words(words);
    let Ok(acl) = ZfsAclPhys::view_mut(acl) else {
        return;
    };
    swap_fields(acl.as_mut_bytes(), &[8, 4, 2, 2]);
    match acl.version.get() {
        ZFS_ACL_VERSION => swap_acl(&mut acl.ace_data),
        _ => swap_old_acl(&mut acl.ace_data),
    }
}

#[doc(alias = "zfs_oldacl_byteswap")]
fn swap_old_acl(bytes: &mut [u8]) {
    let (entries, _) = bytes.as_chunks_mut::<{ OldAcePhys::SIZE }>();
    entries
        .iter_mut()
        .for_each(|entry| swap_fields(entry, &[4, 4, 2, 2]));
}

/// Converts entries of different sizes; what follows them is zero, and stays so.
#[doc(alias = "zfs_acl_byteswap")]
fn swap_acl(mut bytes: &mut [u8]) {
    while let Ok(header) = AceHdrPhys::view_mut(bytes) {
        swap_fields(header.as_mut_bytes(), &[2, 2, 4]);
        let size = header.ace_size();
        let (entry, rest) = bytes.split_at_mut(size.min(bytes.len()));
        if size >= AcePhys::SIZE {
            swap_fields(tail(entry, AceHdrPhys::SIZE), &[8]);
        }
        bytes = rest;
    }
}

/// Whether attributes, a bonus or a spill block, are those of a big-endian host.
#[must_use]
pub fn is_big_endian_sa(bytes: &[u8]) -> bool {
    bytes.first_chunk().map(|magic| u32::from_be_bytes(*magic)) == Some(SA_MAGIC)
}

/// Converts the header of attributes; the attributes themselves stay.
#[doc(alias = "sa_byteswap")]
pub fn swap_sa_header(bytes: &mut [u8]) {
    swap_fields(bytes, &[4, 2]);
    let size = SaHdrPhys::view(bytes).map_or(0, SaHdrPhys::size);
    let lengths = bytes.get_mut(6..size).unwrap_or_default();
    swap_all::<2>(lengths);
}

/// Converts the value of an attribute.
#[doc(alias = "sa_bswap_table")]
pub fn swap_attribute(kind: SaBswap, bytes: &mut [u8]) {
    match kind {
        SaBswap::Uint64Array => swap_words(bytes),
        SaBswap::Uint32Array => swap_all::<4>(bytes),
        SaBswap::Uint16Array => swap_all::<2>(bytes),
        SaBswap::Uint8Array => {}
        SaBswap::Acl => swap_acl(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DnodeView, Phys};
    use zerocopy::FromZeros;

    /// A dnode of a directory of data sets with two pointers, as this host has it.
    fn dnode() -> Vec<u8> {
        let mut bytes = vec![0; 2 * DNODE_MIN_SIZE];
        let mut core = DnodePhys::new_zeroed();
        core.type_ = ObjectType::DSL_DIR.raw();
        core.bonustype = ObjectType::DSL_DIR.raw();
        (core.indblkshift, core.nlevels, core.nblkptr) = (17, 1, 1);
        core.datablkszsec.set(1);
        core.bonuslen.set(256);
        core.maxblkid.set(7);
        core.used.set(0x1234);
        core.write(&mut bytes);
        for (n, byte) in bytes[64..64 + 128 + 256].iter_mut().enumerate() {
            *byte = n as u8;
        }
        bytes
    }

    /// The dnode as a big-endian host has it, written down field by field.
    fn as_big_endian(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes[8..10].reverse();
        bytes[10..12].reverse();
        bytes[16..24].reverse();
        bytes[24..32].reverse();
        for word in bytes[64..512].chunks_mut(8) {
            word.reverse();
        }
        bytes
    }

    #[test]
    fn a_dnode_is_converted_with_its_pointers_and_bonus() {
        let native = dnode();
        let mut big = as_big_endian(native.clone());
        // What is in a free slot means nothing, and goes.
        big[DNODE_MIN_SIZE + 40] = 9;
        swap_block(ObjectType::DNODE, 0, &mut big);
        assert_eq!(big, native);
        assert!(DnodeView::new(&big).is_ok());
    }

    #[test]
    fn a_leaf_of_a_zap_is_converted_and_its_arrays_stay() {
        let mut native = vec![0u8; 1024];
        let mut header = ZapLeafPhys::new_zeroed();
        header.block_type.set(ZBT_LEAF);
        header.magic.set(0x02ab_1eaf);
        header.prefix_len.set(3);
        header.write(&mut native);
        native[48..50].copy_from_slice(&2u16.to_le_bytes());
        let chunks = 48 + 1024 / 16;
        let mut big = native.clone();
        swap_fields(&mut big, &LEAF_HEADER);
        big[48..50].reverse();
        native[chunks] = ZAP_CHUNK_ARRAY;
        native[chunks + 1..chunks + 9].copy_from_slice(&0x1122u64.to_be_bytes());
        native[chunks + 22] = 5;
        big[chunks..chunks + 24].copy_from_slice(&native[chunks..chunks + 24]);
        big[chunks + 22..chunks + 24].reverse();
        let entry = chunks + 24;
        native[entry] = ZAP_CHUNK_ENTRY;
        native[entry + 2..entry + 4].copy_from_slice(&7u16.to_le_bytes());
        native[entry + 16..entry + 24].copy_from_slice(&0xabcdu64.to_le_bytes());
        big[entry] = ZAP_CHUNK_ENTRY;
        big[entry + 2..entry + 4].copy_from_slice(&7u16.to_be_bytes());
        big[entry + 16..entry + 24].copy_from_slice(&0xabcdu64.to_be_bytes());
        swap_block(ObjectType::N_ZAP_METADATA, 0, &mut big);
        assert_eq!(big, native);
    }

    #[test]
    fn entries_of_an_acl_are_converted_by_their_sizes() {
        // An owner of 8 bytes, a user of 16, then zeros.
        let mut native = vec![0u8; 40];
        native[2..4].copy_from_slice(&0x1000u16.to_le_bytes());
        native[4..8].copy_from_slice(&0x1f01u32.to_le_bytes());
        native[12..16].copy_from_slice(&0x77u32.to_le_bytes());
        native[16..24].copy_from_slice(&1234u64.to_le_bytes());
        let mut big = vec![0u8; 40];
        big[2..4].copy_from_slice(&0x1000u16.to_be_bytes());
        big[4..8].copy_from_slice(&0x1f01u32.to_be_bytes());
        big[12..16].copy_from_slice(&0x77u32.to_be_bytes());
        big[16..24].copy_from_slice(&1234u64.to_be_bytes());
        swap_block(ObjectType::ACL, 0, &mut big);
        assert_eq!(big, native);
    }
}
