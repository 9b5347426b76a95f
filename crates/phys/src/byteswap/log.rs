//! Blocks of an intent log of the other byte order.
//!
//! # What it is
//! A log block is a header or trailer of words and records of many types. OpenZFS converts all of it as words, and
//! turns back, record by record, what its replay knows better; here each record is converted by its type at once.
//!
//! # Invariants
//! 1. No bytes make this panic. Behind a record whose length cannot be, all stays as it is: a reader stops there.
//! 2. What is readable without a key (chain, common parts, pointers) is converted right also when the rest of a record
//!    is encrypted; the rest is then of no use before and after.
//!
//! # Source
//! OpenZFS module/zfs/zil.c (`zil_replay_log_record`), module/zfs/zfs_replay.c (`zfs_replay_swap_attrs`, and what each
//! function does with `byteswap`) @be7657e3.

use std::mem::offset_of;

use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use super::{swap_all, swap_fields, swap_words, tail};
use crate::zil::{
    ATTR_XVATTR, LrAclCreatePhys, LrAclPhys, LrAclV0Phys, LrAttrEndPhys, LrAttrPhys,
    LrCloneRangePhys, LrCreatePhys, LrLinkPhys, LrRemovePhys, LrRenamePhys, LrRenameWhiteoutPhys,
    LrSetattrPhys, LrSetsaxattrPhys, LrTruncatePhys, LrWritePhys, XAT_PROJID, tx,
};
use crate::znode::OldAcePhys;
use crate::{LrPhys, Phys, ZilChainPhys};

/// `ACE_OWNER`, `ACE_GROUP`, `ACE_EVERYONE`: an entry with one of these flags is as short as any.
const ACE_SPECIAL: u16 = 0x7000;
/// `ACE_ACCESS_ALLOWED_OBJECT_ACE_TYPE` to `ACE_SYSTEM_ALARM_OBJECT_ACE_TYPE`: entries with the types of two objects.
const ACE_OBJECT_TYPES: std::ops::RangeInclusive<u16> = 5..=8;
/// Bytes of these two types.
const ACE_OBJECT_BYTES: usize = 32;

/// Converts a log block. `has_chain_first`: the chain entry is at its start (checksum zilog2), not at its end (zilog).
#[doc(alias = "zil_read_log_block")]
pub fn swap_log_block(has_chain_first: bool, bytes: &mut [u8]) {
    let chain_at = match has_chain_first {
        true => Some(0),
        false => bytes.len().checked_sub(ZilChainPhys::SIZE),
    };
    let Some(chain) = chain_at.and_then(|at| tail(bytes, at).get_mut(..ZilChainPhys::SIZE)) else {
        return;
    };
    swap_words(chain);
    let used = ZilChainPhys::view(chain).map_or(0, |chain| chain.nused.get());
    let used = usize::try_from(used).unwrap_or(usize::MAX);
    let records = match (has_chain_first, chain_at) {
        (false, Some(at)) => bytes.get_mut(..used.min(at)),
        _ => bytes.get_mut(ZilChainPhys::SIZE..used),
    };
    swap_records(records.unwrap_or_default());
}

fn swap_records(mut rest: &mut [u8]) {
    while let Some(common) = rest.get_mut(..LrPhys::SIZE) {
        swap_words(common);
        let Ok(common) = LrPhys::read(common) else {
            return;
        };
        let reclen = common.reclen.get();
        let length = usize::try_from(reclen).unwrap_or(usize::MAX);
        let can_be = reclen >= LrPhys::SIZE as u64 && reclen.is_multiple_of(8);
        let parts = rest.split_at_mut_checked(length).filter(|_| can_be);
        let Some((record, after)) = parts else {
            return;
        };
        swap_record(common.tx_type(), record);
        rest = after;
    }
}

/// Converts a record whose common part is converted already.
fn swap_record(type_: u64, record: &mut [u8]) {
    let fixed = match type_ {
        tx::CREATE | tx::MKDIR | tx::MKXATTR | tx::SYMLINK | tx::CREATE_ATTR | tx::MKDIR_ATTR => {
            LrCreatePhys::SIZE
        }
        tx::CREATE_ACL | tx::CREATE_ACL_ATTR | tx::MKDIR_ACL | tx::MKDIR_ACL_ATTR => {
            LrAclCreatePhys::SIZE
        }
        tx::REMOVE | tx::RMDIR => LrRemovePhys::SIZE,
        tx::LINK => LrLinkPhys::SIZE,
        tx::RENAME | tx::RENAME_EXCHANGE => LrRenamePhys::SIZE,
        tx::RENAME_WHITEOUT => LrRenameWhiteoutPhys::SIZE,
        tx::WRITE | tx::WRITE2 => LrWritePhys::SIZE,
        tx::TRUNCATE => LrTruncatePhys::SIZE,
        tx::SETATTR => LrSetattrPhys::SIZE,
        tx::SETSAXATTR => LrSetsaxattrPhys::SIZE,
        tx::ACL_V0 => LrAclV0Phys::SIZE,
        tx::ACL => LrAclPhys::SIZE,
        // With all pointers behind it.
        tx::CLONE_RANGE => record.len().max(LrCloneRangePhys::SIZE),
        _ => return,
    };
    let fixed = fixed.min(record.len());
    swap_words(record.get_mut(LrPhys::SIZE..fixed).unwrap_or_default());
    let word = |record: &[u8], at: usize| {
        let word = record
            .get(at..)
            .and_then(|bytes| U64::read_from_prefix(bytes).ok());
        word.map_or(0, |(word, _)| word.get())
    };
    let more = match type_ {
        tx::CREATE_ATTR | tx::MKDIR_ATTR => {
            swap_attrs(tail(record, fixed));
            return;
        }
        tx::SETATTR if word(record, offset_of!(LrSetattrPhys, mask)) & ATTR_XVATTR != 0 => {
            swap_attrs(tail(record, fixed));
            return;
        }
        tx::ACL_V0 => {
            let count = word(record, offset_of!(LrAclV0Phys, aclcnt));
            More {
                acl_bytes: count.saturating_mul(OldAcePhys::SIZE as u64),
                fuids: 0,
            }
        }
        tx::ACL => More {
            acl_bytes: word(record, offset_of!(LrAclPhys, acl_bytes)),
            fuids: word(record, offset_of!(LrAclPhys, fuidcnt)),
        },
        tx::CREATE_ACL | tx::CREATE_ACL_ATTR | tx::MKDIR_ACL | tx::MKDIR_ACL_ATTR => More {
            acl_bytes: word(record, offset_of!(LrAclCreatePhys, acl_bytes)),
            fuids: word(record, offset_of!(LrAclCreatePhys, fuidcnt)),
        },
        _ => return,
    };
    let attrs = match type_ {
        tx::CREATE_ACL_ATTR | tx::MKDIR_ACL_ATTR => swap_attrs(tail(record, fixed)),
        _ => 0,
    };
    more.swap(tail(record, fixed.saturating_add(attrs)));
}

/// What follows the fixed part of a record with an ACL: its entries, padded to words, then numbers of owners; domains
/// and names, which are strings, come last.
struct More {
    acl_bytes: u64,
    fuids: u64,
}

impl More {
    fn swap(&self, bytes: &mut [u8]) {
        let length = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let entries = length(self.acl_bytes).min(bytes.len());
        let (entries, _) = bytes.split_at_mut(entries);
        swap_aces(entries);
        let padded = entries.len().next_multiple_of(8);
        let fuids = tail(bytes, padded);
        let fuids_bytes = length(self.fuids.saturating_mul(8)).min(fuids.len());
        swap_words(fuids.get_mut(..fuids_bytes).unwrap_or_default());
    }
}

/// Converts entries of an ACL as callers of the system have them (`ace_t`), not as they are in files.
#[doc(alias = "zfs_ace_byteswap")]
fn swap_aces(mut bytes: &mut [u8]) {
    while let Some((entry, mut rest)) = bytes.split_at_mut_checked(OldAcePhys::SIZE) {
        swap_fields(entry, &[4, 4, 2, 2]);
        let is_long = OldAcePhys::view(entry).is_ok_and(|ace| {
            ace.flags.get() & ACE_SPECIAL == 0 && ACE_OBJECT_TYPES.contains(&ace.type_.get())
        });
        if is_long {
            rest = tail(rest, ACE_OBJECT_BYTES);
        }
        bytes = rest;
    }
}

/// Converts what `lr_attr_t` begins, and returns its length.
#[doc(alias = "zfs_replay_swap_attrs")]
fn swap_attrs(bytes: &mut [u8]) -> usize {
    let Some(start) = bytes.get_mut(..LrAttrPhys::SIZE) else {
        return bytes.len();
    };
    swap_all::<4>(start);
    let Ok(start) = LrAttrPhys::read(start) else {
        return bytes.len();
    };
    let more_words = start.masksize.get().saturating_sub(1);
    let more_bytes = usize::try_from(more_words)
        .unwrap_or(usize::MAX)
        .saturating_mul(4);
    let end_at = LrAttrPhys::SIZE.saturating_add(more_bytes).min(bytes.len());
    swap_all::<4>(bytes.get_mut(LrAttrPhys::SIZE..end_at).unwrap_or_default());
    let end = tail(bytes, end_at);
    let words = match start.bitmap.get() & XAT_PROJID {
        0 => offset_of!(LrAttrEndPhys, scanstamp),
        // OpenZFS leaves this number as it is, and gives the file another one.
        _ => offset_of!(LrAttrEndPhys, scanstamp).saturating_add(8),
    };
    let words = words.min(end.len());
    swap_words(end.get_mut(..words).unwrap_or_default());
    end_at.saturating_add(LrAttrEndPhys::SIZE)
}

#[cfg(test)]
mod tests;
