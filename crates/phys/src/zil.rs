//! The intent log: header, chain of log blocks, and the records in them.
//!
//! # What it is
//! Synchronous operations since the last txg, to be replayed after a crash. The header in the
//! objset names the first block; every block begins (in old pools, ends) with a chain entry that
//! names the next, preallocated block and says how many bytes of this one are in use. A block is
//! valid only if its embedded checksum matches; that checksum is seeded by a guid, the objset and
//! the sequence number, so stale blocks of an older chain are not taken for new ones.
//!
//! # On disk
//! ```text
//! log block:  chain 184 (pad 8, next 128, nused 8, eck 40) | records ... nused | ?
//! record:     txtype 8, reclen 8, txg 8, seq 8 | fields | names, data, ACL ...
//! ```
//! `nused` counts the chain entry. Records are multiples of 8 bytes.
//!
//! # Source
//! OpenZFS include/sys/zil.h (`zil_header_t`, `zil_chain_t`, `lr_*_t`) @be7657e3.

use crate::bits::Field;
use crate::label::EckPhys;
use crate::layout::phys_struct;
use crate::{BlkPtrPhys, Phys};
use base::{Error, Result};
use std::mem::size_of;
use zerocopy::little_endian::{U32, U64};

/// `ZIL_REPLAY_NEEDED`: the log must be replayed before the objset is used.
pub const ZIL_REPLAY_NEEDED: u64 = 1;
/// `ZIL_CLAIM_LR_SEQ_VALID`: `claim_lr_seq` is valid.
pub const ZIL_CLAIM_LR_SEQ_VALID: u64 = 2;
/// `ZIL_MIN_BLKSZ`: the smallest log block.
pub const ZIL_MIN_BLKSZ: u64 = 4096;
/// `XAT0_PROJID`, in the first word of [`LrAttrPhys`]: the number is where the scan stamp would be.
pub const XAT_PROJID: u32 = 0x4_0000;
/// `ATTR_XVATTR`, in the mask of [`LrSetattrPhys`]: a [`LrAttrPhys`] follows.
pub const ATTR_XVATTR: u64 = 1 << 31;
/// `ZIL_ZC_SEQ`: index of the checksum word with the block's number in its chain, from 1.
pub const ZIL_ZC_SEQ: usize = 3;
/// `ZIL_ZC_OBJSET`: the word of a log block's verifier that names the objset.
pub const ZIL_ZC_OBJSET: usize = 2;

/// `TX_*`: the types of records. Bit 63 ([`TX_CI`]) is not part of the number.
pub mod tx {
    /// `TX_COMMIT`: a marker; never on disk.
    pub const COMMIT: u64 = 0;
    /// `TX_CREATE`: [`super::LrCreatePhys`].
    pub const CREATE: u64 = 1;
    /// `TX_MKDIR`: [`super::LrCreatePhys`].
    pub const MKDIR: u64 = 2;
    /// `TX_MKXATTR`: [`super::LrCreatePhys`].
    pub const MKXATTR: u64 = 3;
    /// `TX_SYMLINK`: [`super::LrCreatePhys`].
    pub const SYMLINK: u64 = 4;
    /// `TX_REMOVE`: [`super::LrRemovePhys`].
    pub const REMOVE: u64 = 5;
    /// `TX_RMDIR`: [`super::LrRemovePhys`].
    pub const RMDIR: u64 = 6;
    /// `TX_LINK`: [`super::LrLinkPhys`].
    pub const LINK: u64 = 7;
    /// `TX_RENAME`: [`super::LrRenamePhys`].
    pub const RENAME: u64 = 8;
    /// `TX_WRITE`: [`super::LrWritePhys`].
    pub const WRITE: u64 = 9;
    /// `TX_TRUNCATE`: [`super::LrTruncatePhys`].
    pub const TRUNCATE: u64 = 10;
    /// `TX_SETATTR`: [`super::LrSetattrPhys`].
    pub const SETATTR: u64 = 11;
    /// `TX_ACL_V0`: [`super::LrAclV0Phys`].
    pub const ACL_V0: u64 = 12;
    /// `TX_ACL`: [`super::LrAclPhys`].
    pub const ACL: u64 = 13;
    /// `TX_CREATE_ACL`: [`super::LrAclCreatePhys`].
    pub const CREATE_ACL: u64 = 14;
    /// `TX_CREATE_ATTR`: [`super::LrCreatePhys`], then [`super::LrAttrPhys`].
    pub const CREATE_ATTR: u64 = 15;
    /// `TX_CREATE_ACL_ATTR`: [`super::LrAclCreatePhys`], then [`super::LrAttrPhys`].
    pub const CREATE_ACL_ATTR: u64 = 16;
    /// `TX_MKDIR_ACL`: [`super::LrAclCreatePhys`].
    pub const MKDIR_ACL: u64 = 17;
    /// `TX_MKDIR_ATTR`: [`super::LrCreatePhys`], then [`super::LrAttrPhys`].
    pub const MKDIR_ATTR: u64 = 18;
    /// `TX_MKDIR_ACL_ATTR`: [`super::LrAclCreatePhys`], then [`super::LrAttrPhys`].
    pub const MKDIR_ACL_ATTR: u64 = 19;
    /// `TX_WRITE2`: [`super::LrWritePhys`]; the block was already in the tree.
    pub const WRITE2: u64 = 20;
    /// `TX_SETSAXATTR`: [`super::LrSetsaxattrPhys`].
    pub const SETSAXATTR: u64 = 21;
    /// `TX_RENAME_EXCHANGE`: [`super::LrRenamePhys`].
    pub const RENAME_EXCHANGE: u64 = 22;
    /// `TX_RENAME_WHITEOUT`: [`super::LrRenameWhiteoutPhys`].
    pub const RENAME_WHITEOUT: u64 = 23;
    /// `TX_CLONE_RANGE`: [`super::LrCloneRangePhys`].
    pub const CLONE_RANGE: u64 = 24;
    /// `TX_MAX_TYPE`: numbers are below this.
    pub const MAX_TYPE: u64 = 25;
}

/// `TX_CI`: names in the record compare without regard to case.
pub const TX_CI: u64 = 1 << 63;

phys_struct! {
    /// `zil_header_t`: in the objset.
    #[doc(alias = "zil_header_t")]
    pub struct ZilHeaderPhys: 192 {
        /// zh_claim_txg: txg in which the blocks were claimed; 0: not yet
        0 claim_txg: U64,
        /// zh_replay_seq: the last record that was replayed
        8 replay_seq: U64,
        /// zh_log: the first block
        16 log: BlkPtrPhys,
        /// zh_claim_blk_seq: the last block that was claimed
        144 claim_blk_seq: U64,
        /// zh_flags: `ZIL_*`
        152 flags: U64,
        /// zh_claim_lr_seq: the last record that was claimed
        160 claim_lr_seq: U64,
        /// zh_pad: zero
        168 pad: [U64; 3],
    }

    /// `zil_chain_t`: at the start of a log block (checksum zilog2), formerly at its end (zilog).
    #[doc(alias = "zil_chain_t")]
    pub struct ZilChainPhys: 184 {
        /// zc_pad: zero
        0 pad: U64,
        /// zc_next_blk: the next block, allocated but perhaps never written
        8 next_blk: BlkPtrPhys,
        /// zc_nused: bytes in use, including this entry if it is at the start
        136 nused: U64,
        /// zc_eck
        144 eck: EckPhys,
    }

    /// `lr_t`: the start of every record.
    #[doc(alias = "lr_t")]
    pub struct LrPhys: 32 {
        /// lrc_txtype: [`tx`], bit 63 [`TX_CI`]
        0 txtype: U64,
        /// lrc_reclen: bytes of the record
        8 reclen: U64,
        /// lrc_txg: the txg of the change; its sync makes the record void
        16 txg: U64,
        /// lrc_seq: number of the record
        24 seq: U64,
    }

    /// `lr_ooo_t`: the start of records that may be replayed out of order.
    #[doc(alias = "lr_ooo_t")]
    pub struct LrOooPhys: 40 {
        /// lr_common
        0 common: LrPhys,
        /// lr_foid
        32 foid: U64,
    }

    /// `lr_attr_t`: optional attributes; `masksize - 1` more words of bitmap follow, then
    /// [`LrAttrEndPhys`].
    #[doc(alias = "lr_attr_t")]
    pub struct LrAttrPhys: 8 {
        /// lr_attr_masksize: words of bitmap
        0 masksize: U32,
        /// lr_attr_bitmap: the first word
        4 bitmap: U32,
    }

    /// `lr_attr_end_t`: the attributes that follow the bitmap.
    #[doc(alias = "lr_attr_end_t")]
    pub struct LrAttrEndPhys: 56 {
        /// lr_attr_attrs: `XAT0_*` bits
        0 attrs: U64,
        /// lr_attr_crtime: seconds, nanoseconds
        8 crtime: [U64; 2],
        /// lr_attr_scanstamp
        24 scanstamp: [u8; 32],
    }

    /// `lr_create_t`: a new file, directory or symbolic link; the name follows, then a link's target.
    #[doc(alias = "lr_create_t")]
    pub struct LrCreatePhys: 104 {
        /// lr_common
        0 common: LrPhys,
        /// lr_doid: directory
        32 doid: U64,
        /// lr_foid: new object; see [`foid_object`]
        40 foid: U64,
        /// lr_mode
        48 mode: U64,
        /// lr_uid
        56 uid: U64,
        /// lr_gid
        64 gid: U64,
        /// lr_gen: txg of creation
        72 gen_: U64,
        /// lr_crtime: seconds, nanoseconds
        80 crtime: [U64; 2],
        /// lr_rdev: device number
        96 rdev: U64,
    }

    /// `lr_acl_create_t`: the same with an ACL; ACL, FUIDs, domains and name follow.
    #[doc(alias = "lr_acl_create_t")]
    pub struct LrAclCreatePhys: 144 {
        /// lr_create
        0 create: LrCreatePhys,
        /// lr_aclcnt: entries
        104 aclcnt: U64,
        /// lr_domcnt: domains
        112 domcnt: U64,
        /// lr_fuidcnt: FUIDs
        120 fuidcnt: U64,
        /// lr_acl_bytes
        128 acl_bytes: U64,
        /// lr_acl_flags
        136 acl_flags: U64,
    }

    /// `lr_remove_t`: a name is removed; the name follows.
    #[doc(alias = "lr_remove_t")]
    pub struct LrRemovePhys: 40 {
        /// lr_common
        0 common: LrPhys,
        /// lr_doid: directory
        32 doid: U64,
    }

    /// `lr_link_t`: a new name of an existing object; the name follows.
    #[doc(alias = "lr_link_t")]
    pub struct LrLinkPhys: 48 {
        /// lr_common
        0 common: LrPhys,
        /// lr_doid: directory
        32 doid: U64,
        /// lr_link_obj: object
        40 link_obj: U64,
    }

    /// `lr_rename_t`: source and target names follow, each with its NUL.
    #[doc(alias = "lr_rename_t")]
    pub struct LrRenamePhys: 48 {
        /// lr_common
        0 common: LrPhys,
        /// lr_sdoid: source directory
        32 sdoid: U64,
        /// lr_tdoid: target directory
        40 tdoid: U64,
    }

    /// `lr_rename_whiteout_t`: the same, leaving a whiteout at the source.
    #[doc(alias = "lr_rename_whiteout_t")]
    pub struct LrRenameWhiteoutPhys: 112 {
        /// lr_rename
        0 rename: LrRenamePhys,
        /// lr_wfoid
        48 wfoid: U64,
        /// lr_wmode
        56 wmode: U64,
        /// lr_wuid
        64 wuid: U64,
        /// lr_wgid
        72 wgid: U64,
        /// lr_wgen
        80 wgen: U64,
        /// lr_wcrtime
        88 wcrtime: [U64; 2],
        /// lr_wrdev
        104 wrdev: U64,
    }

    /// `lr_write_t`: data follows, or `blkptr` names the block that has it.
    #[doc(alias = "lr_write_t")]
    pub struct LrWritePhys: 192 {
        /// lr_common
        0 common: LrPhys,
        /// lr_foid
        32 foid: U64,
        /// lr_offset
        40 offset: U64,
        /// lr_length: bytes
        48 length: U64,
        /// lr_blkoff: unused
        56 blkoff: U64,
        /// lr_blkptr: a hole if the data follows
        64 blkptr: BlkPtrPhys,
    }

    /// `lr_truncate_t`.
    #[doc(alias = "lr_truncate_t")]
    pub struct LrTruncatePhys: 56 {
        /// lr_common
        0 common: LrPhys,
        /// lr_foid
        32 foid: U64,
        /// lr_offset
        40 offset: U64,
        /// lr_length: 0: to the end
        48 length: U64,
    }

    /// `lr_setattr_t`: [`LrAttrPhys`] and FUID domains may follow.
    #[doc(alias = "lr_setattr_t")]
    pub struct LrSetattrPhys: 112 {
        /// lr_common
        0 common: LrPhys,
        /// lr_foid
        32 foid: U64,
        /// lr_mask: `ATTR_*`
        40 mask: U64,
        /// lr_mode
        48 mode: U64,
        /// lr_uid
        56 uid: U64,
        /// lr_gid
        64 gid: U64,
        /// lr_size
        72 size: U64,
        /// lr_atime
        80 atime: [U64; 2],
        /// lr_mtime
        96 mtime: [U64; 2],
    }

    /// `lr_setsaxattr_t`: name with NUL and value follow; no value: removed.
    #[doc(alias = "lr_setsaxattr_t")]
    pub struct LrSetsaxattrPhys: 48 {
        /// lr_common
        0 common: LrPhys,
        /// lr_foid
        32 foid: U64,
        /// lr_size: bytes of value
        40 size: U64,
    }

    /// `lr_acl_v0_t`: old entries follow.
    #[doc(alias = "lr_acl_v0_t")]
    pub struct LrAclV0Phys: 48 {
        /// lr_common
        0 common: LrPhys,
        /// lr_foid
        32 foid: U64,
        /// lr_aclcnt
        40 aclcnt: U64,
    }

    /// `lr_acl_t`: entries, FUIDs and domains follow.
    #[doc(alias = "lr_acl_t")]
    pub struct LrAclPhys: 80 {
        /// lr_common
        0 common: LrPhys,
        /// lr_foid
        32 foid: U64,
        /// lr_aclcnt
        40 aclcnt: U64,
        /// lr_domcnt
        48 domcnt: U64,
        /// lr_fuidcnt
        56 fuidcnt: U64,
        /// lr_acl_bytes
        64 acl_bytes: U64,
        /// lr_acl_flags
        72 acl_flags: U64,
    }

    /// `lr_clone_range_t`: `nbps` block pointers follow.
    #[doc(alias = "lr_clone_range_t")]
    pub struct LrCloneRangePhys: 72 {
        /// lr_common
        0 common: LrPhys,
        /// lr_foid: target
        32 foid: U64,
        /// lr_offset
        40 offset: U64,
        /// lr_length
        48 length: U64,
        /// lr_blksz
        56 blksz: U64,
        /// lr_nbps
        64 nbps: U64,
    }
}

impl LrPhys {
    /// The number of the record type, without [`TX_CI`].
    #[must_use]
    pub fn tx_type(&self) -> u64 {
        self.txtype.get() & !TX_CI
    }

    /// `TX_OOO`: whether the record may be replayed out of order; then it is an [`LrOooPhys`].
    #[must_use]
    pub fn is_out_of_order(&self) -> bool {
        matches!(
            self.tx_type(),
            tx::WRITE
                | tx::TRUNCATE
                | tx::SETATTR
                | tx::ACL_V0
                | tx::ACL
                | tx::WRITE2
                | tx::SETSAXATTR
                | tx::CLONE_RANGE
        )
    }
}

const FOID_SLOTS: Field = Field::new(56, 8);
const FOID_OBJECT: Field = Field::new(0, 48);

/// `LR_FOID_GET_OBJ`: the object of a create record.
#[must_use]
pub fn foid_object(foid: u64) -> u64 {
    FOID_OBJECT.get(foid)
}

/// `LR_FOID_GET_SLOTS`: the dnode slots of a create record.
#[must_use]
pub fn foid_slots(foid: u64) -> u64 {
    FOID_SLOTS.get(foid).saturating_add(1)
}

/// `LR_FOID_SET_OBJ` and `_SLOTS`: object and dnode slots in one word.
#[must_use]
pub fn foid_new(object: u64, slots: u64) -> u64 {
    assert!(slots >= 1, "a dnode has at least one slot");
    FOID_SLOTS.set(FOID_OBJECT.set(0, object), slots.saturating_sub(1))
}

/// The records in `bytes`, the used part of a log block without its chain entry.
///
/// Each item is the common part and all bytes of the record. Ends with an error at a record
/// whose length is not a multiple of 8, too small, or beyond the end.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Result<(LrPhys, &[u8])>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let item = split_record(rest);
        rest = item.as_ref().map_or(&[][..], |(_, record)| {
            rest.get(record.len()..).unwrap_or_default()
        });
        Some(item)
    })
}

fn split_record(rest: &[u8]) -> Result<(LrPhys, &[u8])> {
    let common = LrPhys::read(rest)?;
    let reclen = common.reclen.get();
    let in_range = reclen >= LrPhys::SIZE as u64 && reclen.is_multiple_of(8);
    let record = usize::try_from(reclen).ok().and_then(|len| rest.get(..len));
    match record {
        Some(record) if in_range => Ok((common, record)),
        _ => Err(Error::corrupt(format!(
            "lrc_reclen {reclen} of {} bytes",
            rest.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let mut common = LrPhys::default();
        common.reclen.set(len as u64);
        common.write(&mut bytes);
        bytes
    }

    #[test]
    fn records_follow_each_other() {
        let bytes = [record(40), record(32), record(104)].concat();
        let lens: Vec<_> = records(&bytes).map(|r| r.unwrap().1.len()).collect();
        assert_eq!(lens, [40, 32, 104]);
    }

    #[test]
    fn bad_length_ends_the_walk() {
        let mut bytes = [record(40), record(48)].concat();
        bytes.truncate(80);
        let all: Vec<_> = records(&bytes).collect();
        assert_eq!(all.len(), 2);
        assert_eq!(
            all[1].as_ref().unwrap_err().context(),
            "lrc_reclen 48 of 40 bytes"
        );
    }

    #[test]
    fn records_out_of_order_are_known_by_their_type_without_the_flag() {
        let mut common = LrPhys::default();
        for (type_, expected) in [(tx::SETATTR, true), (tx::CREATE, false)] {
            for flag in [0, TX_CI] {
                common.txtype.set(type_ | flag);
                assert_eq!(common.is_out_of_order(), expected, "{type_} {flag:x}");
            }
        }
    }

    #[test]
    fn foid_has_object_and_slots() {
        let foid = foid_new(0x1234, 4);
        assert_eq!(foid, 0x0300_0000_0000_1234);
        assert_eq!((foid_object(foid), foid_slots(foid)), (0x1234, 4));
        assert_eq!(foid_new(9, 1), 9);
    }

    proptest! {
        #[test]
        fn prop_any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(records(&bytes).count() <= 10);
        }
    }
}
