use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;
use crate::byteswap::{swap_block, swap_words};
use crate::{BlkPtrPhys, ObjectType};

/// Widths of the fields of a record, in order: those of its common part, then these.
fn widths(parts: &[(usize, usize)]) -> Vec<usize> {
    let common = std::iter::repeat_n(8, 4);
    let parts = parts
        .iter()
        .flat_map(|(width, count)| std::iter::repeat_n(*width, *count));
    common.chain(parts).collect()
}

/// The widths that `zfs_log.c` gives the fields of each kind of record, written down by hand. A byte is one of a
/// string. An ACL has three entries (12 bytes each, the second with 32 more) and two numbers of owners.
fn kinds() -> Vec<(u64, Vec<usize>)> {
    let create = (8, 9);
    let attr = [(4, 4), (8, 4), (1, 24)];
    let ace = [(4, 2), (2, 2)];
    let acl = [&ace[..], &ace, &[(1, 32)], &ace, &[(1, 4)], &[(8, 2)]].concat();
    let name = (1, 16);
    let join = |parts: &[&[(usize, usize)]]| widths(&parts.concat());
    vec![
        (tx::CREATE, join(&[&[create, name]])),
        (tx::MKDIR, join(&[&[create, name]])),
        (tx::MKXATTR, join(&[&[create, name]])),
        (tx::SYMLINK, join(&[&[create, name, name]])),
        (tx::REMOVE, join(&[&[(8, 1), name]])),
        (tx::RMDIR, join(&[&[(8, 1), name]])),
        (tx::LINK, join(&[&[(8, 2), name]])),
        (tx::RENAME, join(&[&[(8, 2), name, name]])),
        (tx::WRITE, join(&[&[(8, 20), (1, 40)]])),
        (tx::TRUNCATE, join(&[&[(8, 3)]])),
        (tx::SETATTR, join(&[&[(8, 10)], &attr])),
        (tx::ACL_V0, join(&[&[(8, 2)], &ace, &ace])),
        (tx::ACL, join(&[&[(8, 6)], &acl, &[name]])),
        (tx::CREATE_ACL, join(&[&[create, (8, 5)], &acl, &[name]])),
        (tx::CREATE_ATTR, join(&[&[create], &attr, &[name]])),
        (
            tx::CREATE_ACL_ATTR,
            join(&[&[create, (8, 5)], &attr, &acl, &[name]]),
        ),
        (tx::MKDIR_ACL, join(&[&[create, (8, 5)], &acl, &[name]])),
        (tx::MKDIR_ATTR, join(&[&[create], &attr, &[name]])),
        (
            tx::MKDIR_ACL_ATTR,
            join(&[&[create, (8, 5)], &attr, &acl, &[name]]),
        ),
        (tx::WRITE2, join(&[&[(8, 20)]])),
        (tx::SETSAXATTR, join(&[&[(8, 2), name]])),
        (tx::RENAME_EXCHANGE, join(&[&[(8, 2), name, name]])),
        (tx::RENAME_WHITEOUT, join(&[&[(8, 10), name]])),
        (tx::CLONE_RANGE, join(&[&[(8, 5 + 16)]])),
        (tx::MAX_TYPE, join(&[&[(1, 8)]])),
    ]
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

/// A record of this host, of these fields, from any bytes; what says which fields follow is made to fit.
fn native(type_: u64, widths: &[usize], fill: &mut dyn FnMut() -> u8) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..widths.iter().sum()).map(|_| fill()).collect();
    let word = |word: u64| word.to_le_bytes();
    put(&mut bytes, 0, &word(type_));
    let len = bytes.len() as u64;
    assert!(len.is_multiple_of(8), "type {type_}: {len}");
    put(&mut bytes, 8, &word(len));
    let mut acl_at = None;
    let mut attr_at = None;
    match type_ {
        tx::ACL => {
            put(&mut bytes, 56, &[word(2), word(68)].concat());
            acl_at = Some(80);
        }
        tx::CREATE_ACL | tx::MKDIR_ACL => {
            put(&mut bytes, 120, &[word(2), word(68)].concat());
            acl_at = Some(144);
        }
        tx::CREATE_ACL_ATTR | tx::MKDIR_ACL_ATTR => {
            put(&mut bytes, 120, &[word(2), word(68)].concat());
            (attr_at, acl_at) = (Some(144), Some(144 + 72));
        }
        tx::CREATE_ATTR | tx::MKDIR_ATTR => attr_at = Some(104),
        tx::SETATTR => {
            put(&mut bytes, 40, &word(ATTR_XVATTR | 1));
            attr_at = Some(112);
        }
        tx::ACL_V0 => put(&mut bytes, 40, &word(2)),
        _ => {}
    }
    if let Some(at) = attr_at {
        put(
            &mut bytes,
            at,
            &[3u32.to_le_bytes(), XAT_PROJID.to_le_bytes()].concat(),
        );
    }
    if let Some(at) = acl_at {
        let flags_and_type = |flags: u16, type_: u16| [flags.to_le_bytes(), type_.to_le_bytes()];
        put(&mut bytes, at + 8, &flags_and_type(0x1000, 6).concat());
        put(&mut bytes, at + 20, &flags_and_type(0, 6).concat());
        put(&mut bytes, at + 64, &flags_and_type(0x40, 0).concat());
    }
    bytes
}

fn reversed(bytes: &[u8], widths: &[usize]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    swap_fields(&mut bytes, widths);
    bytes
}

proptest! {
    #[test]
    fn prop_records_of_each_type_are_converted_field_by_field(
        random in prop::collection::vec(any::<u8>(), 251),
        has_chain_first: bool,
    ) {
        let mut at = 0;
        let mut fill = || {
            at = (at + 1) % random.len();
            random[at]
        };
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for (type_, widths) in kinds() {
            let record = native(type_, &widths, &mut fill);
            theirs.extend(reversed(&record, &widths));
            ours.extend(record);
        }
        let mut chain = ZilChainPhys::default();
        let before = if has_chain_first { ZilChainPhys::SIZE } else { 0 };
        chain.nused.set((before + ours.len()) as u64);
        chain.next_blk.set_lsize(4096);
        let mut their_chain = chain.as_bytes().to_vec();
        swap_words(&mut their_chain);
        // What is not in use stays.
        let unused = vec![fill(); 512];
        let (block, mut swapped) = match has_chain_first {
            true => ([chain.as_bytes(), &ours, &unused].concat(), [&their_chain[..], &theirs, &unused].concat()),
            false => ([&ours, &unused, chain.as_bytes()].concat(), [&theirs[..], &unused, &their_chain].concat()),
        };
        swap_log_block(has_chain_first, &mut swapped);
        prop_assert_eq!(swapped, block);
    }

    #[test]
    fn prop_no_bytes_make_converting_a_log_block_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..600),
        type_ in 0..tx::MAX_TYPE + 2,
        reclen in 0..600u64,
    ) {
        // A first record that is told apart.
        for (at, word) in [(136, 600), (184, type_), (192, reclen)] {
            if let Some(room) = bytes.get_mut(at..at + 8) {
                room.copy_from_slice(&u64::to_be_bytes(word));
            }
        }
        let len = bytes.len();
        for has_chain_first in [true, false] {
            swap_log_block(has_chain_first, &mut bytes);
            prop_assert_eq!(bytes.len(), len);
        }
    }

    /// Blocks whose fields are as wide wherever they are come back by a second conversion.
    #[test]
    fn prop_converting_twice_changes_nothing(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
        for type_ in [ObjectType::PLAIN_FILE_CONTENTS, ObjectType::UINT64_OTHER, ObjectType::SPACE_MAP] {
            let mut twice = bytes.clone();
            swap_block(type_, 0, &mut twice);
            swap_block(type_, 0, &mut twice);
            prop_assert_eq!(&twice, &bytes);
        }
        let mut indirect = bytes.clone();
        swap_block(ObjectType::DNODE, 1, &mut indirect);
        let words = |bytes: &[u8]| BlkPtrPhys::array(bytes).first().map(BlkPtrPhys::cksum_words);
        prop_assert_eq!(words(&indirect), words(&bytes).map(|words| words.map(u64::swap_bytes)));
    }
}
