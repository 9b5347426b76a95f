//! Micro ZAPs: one block of 64-byte entries, for short names with one 64-bit value each.
//!
//! # What it is
//! An object starts as a micro ZAP of 512 bytes and grows by 512 bytes whenever it is full, up to
//! [`MICRO_MAX_BYTES`]. The block is an unordered array; [`MicroIndex`] orders it by hash, as look-ups
//! and cursors need it, and is built from the block when the object is first used.
//!
//! # On disk
//! ```text
//! OFFSET  SIZE  FIELD
//! 0       8     mz_block_type, 0x8000000000000003
//! 8       8     mz_salt, never 0
//! 16      8     mz_normflags
//! 24      40    zero
//! 64*k    64    entry k-1: value (8), collision differentiator (4), zero (2), name (50, NUL ends)
//! ```
//! An entry whose name is empty is free.
//!
//! # Invariants
//! 1. (hash, differentiator) is unique, and the differentiator is below 65536.
//! 2. A name has at most 49 bytes.
//!
//! # Source
//! OpenZFS `module/zfs/zap_micro.c`, `include/sys/zap_impl.h`.

use std::collections::BTreeMap;
use std::mem::offset_of;

use base::{Error, Result, SPA_OLD_MAXBLOCKSIZE};
use phys::zap::{
    MZAP_ENT_LEN, MZAP_NAME_LEN, MzapEntPhys, MzapPhys, ZBT_MICRO, ZapLeafLayout, array_chunks,
};
use zerocopy::FromBytes;
use zerocopy::little_endian::{U32, U64};

use crate::value::{Flags, hash_name};

const ENTRY_BYTES: usize = MZAP_ENT_LEN;
/// `zap_micro_max_size`: a micro ZAP that would grow beyond this becomes a fat one.
pub(crate) const MICRO_MAX_BYTES: u64 = SPA_OLD_MAXBLOCKSIZE;
/// The largest micro ZAP that is read, in bytes: the most OpenZFS writes (`MZAP_MAX_SIZE`, feature
/// `large_microzap`).
const READ_MAX_BYTES: usize = 1 << 20;
const AT_SALT: usize = offset_of!(MzapPhys, salt);
const AT_NORMFLAGS: usize = offset_of!(MzapPhys, normflags);
const AT_CD: usize = offset_of!(MzapEntPhys, cd);
const AT_NAME: usize = offset_of!(MzapEntPhys, name);

/// The entries of a micro ZAP in hash order.
#[derive(Debug)]
pub(crate) struct MicroIndex {
    pub(crate) salt: u64,
    /// The flags; a micro ZAP can have only those of [`Flags::normalizing`].
    pub(crate) flags: Flags,
    /// Maps (upper half of the hash, differentiator) to the index of the entry.
    tree: BTreeMap<(u32, u32), u16>,
    /// Where the search for a free entry starts.
    alloc_next: usize,
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MicroEntry<'a> {
    pub(crate) chunk: u16,
    pub(crate) value: u64,
    pub(crate) cd: u32,
    pub(crate) name: &'a [u8],
}

impl MicroEntry<'_> {
    pub(crate) fn hash(&self, salt: u64, flags: Flags) -> u64 {
        hash_name(self.name, salt, flags)
    }
}

/// Turns `block` into an empty micro ZAP.
pub(crate) fn init(block: &mut [u8], salt: u64, flags: Flags) {
    assert!(salt != 0, "a micro zap needs a salt");
    block.fill(0);
    put_u64(block, 0, ZBT_MICRO);
    put_u64(block, AT_SALT, salt);
    put_u64(block, AT_NORMFLAGS, flags.normflags());
}

/// The number of entries that fit into a block of `len` bytes.
pub(crate) fn entries_of_block(len: usize) -> usize {
    (len / ENTRY_BYTES).saturating_sub(1)
}

/// The entries in use, in block order.
pub(crate) fn entries(block: &[u8]) -> impl Iterator<Item = MicroEntry<'_>> {
    (0..entries_of_block(block.len()) as u16)
        .map(|chunk| entry(block, chunk))
        .filter(|entry| !entry.name.is_empty())
}

/// Entry `chunk`.
pub(crate) fn entry(block: &[u8], chunk: u16) -> MicroEntry<'_> {
    let at = at(chunk);
    let name = &block[at + AT_NAME..at + ENTRY_BYTES];
    let len = name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(name.len());
    MicroEntry {
        chunk,
        value: field::<U64>(block, at).get(),
        cd: field::<U32>(block, at + AT_CD).get(),
        name: &name[..len],
    }
}

/// Writes entry `chunk`.
pub(crate) fn put_entry(block: &mut [u8], chunk: u16, name: &[u8], cd: u32, value: u64) {
    assert!(
        name.len() < MZAP_NAME_LEN,
        "{} bytes in a micro zap name",
        name.len()
    );
    let at = at(chunk);
    block[at..at + ENTRY_BYTES].fill(0);
    put_u64(block, at, value);
    block[at + AT_CD..at + AT_CD + 4].copy_from_slice(&U32::new(cd).to_bytes());
    block[at + AT_NAME..at + AT_NAME + name.len()].copy_from_slice(name);
}

/// Changes the value of entry `chunk`.
pub(crate) fn put_value(block: &mut [u8], chunk: u16, value: u64) {
    put_u64(block, at(chunk), value);
}

/// Frees entry `chunk`.
pub(crate) fn clear_entry(block: &mut [u8], chunk: u16) {
    let at = at(chunk);
    block[at..at + ENTRY_BYTES].fill(0);
}

impl MicroIndex {
    /// Builds the index from the block.
    pub(crate) fn build(block: &[u8]) -> Result<MicroIndex> {
        if block.len() > READ_MAX_BYTES || block.len() < 2 * ENTRY_BYTES {
            return Err(Error::corrupt(format!(
                "micro zap block of {} bytes",
                block.len()
            )));
        }
        let salt = field::<U64>(block, AT_SALT).get();
        let flags = Flags::from_stored(0, field::<U64>(block, AT_NORMFLAGS).get())?;
        let mut tree = BTreeMap::new();
        for entry in entries(block) {
            let half_hash = (entry.hash(salt, flags) >> 32) as u32;
            if tree.insert((half_hash, entry.cd), entry.chunk).is_some() {
                return Err(Error::corrupt(format!("mze_cd {} is used twice", entry.cd)));
            }
        }
        Ok(MicroIndex {
            salt,
            flags,
            tree,
            alloc_next: 0,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.tree.len()
    }

    /// The entry called `name`.
    pub(crate) fn find<'a>(&self, block: &'a [u8], name: &[u8]) -> Option<MicroEntry<'a>> {
        let half_hash = self.half_hash(name);
        self.tree
            .range((half_hash, 0)..=(half_hash, u32::MAX))
            .map(|(_, chunk)| entry(block, *chunk))
            .find(|entry| entry.name == name)
    }

    /// The first entry at or after (`hash`, `cd`) and its hash.
    pub(crate) fn find_closest(&self, hash: u64, cd: u32) -> Option<(u64, u16)> {
        let from = ((hash >> 32) as u32, cd);
        let ((half_hash, _), chunk) = self.tree.range(from..).next()?;
        Some((u64::from(*half_hash) << 32, *chunk))
    }

    /// Whether one leaf of a fat ZAP could hold `name` and all entries with the same hash.
    pub(crate) fn fits_leaf(&self, name: &[u8], leaf_shift: u32) -> bool {
        let half_hash = self.half_hash(name);
        let equal = self
            .tree
            .range((half_hash, 0)..=(half_hash, u32::MAX))
            .count();
        let per_entry = 1 + array_chunks(MZAP_NAME_LEN) + array_chunks(8);
        ZapLeafLayout::new(leaf_shift).chunks() > (equal + 1) * per_entry
    }

    /// Chooses a free entry and a differentiator for `name`.
    pub(crate) fn allocate(&mut self, block: &[u8], name: &[u8]) -> (u16, u32) {
        let half_hash = self.half_hash(name);
        let cd = (0..)
            .find(|cd| !self.tree.contains_key(&(half_hash, *cd)))
            .expect("fewer entries than differentiators");
        let total = entries_of_block(block.len());
        let chunk = (self.alloc_next..total)
            .chain(0..self.alloc_next.min(total))
            .find(|chunk| entry(block, *chunk as u16).name.is_empty())
            .expect("the block was grown when its last entry was taken");
        self.alloc_next = (chunk + 1) % total;
        self.tree.insert((half_hash, cd), chunk as u16);
        (chunk as u16, cd)
    }

    /// Forgets an entry.
    pub(crate) fn remove(&mut self, name: &[u8], cd: u32) {
        let half_hash = self.half_hash(name);
        self.tree.remove(&(half_hash, cd));
    }

    fn half_hash(&self, name: &[u8]) -> u32 {
        (hash_name(name, self.salt, self.flags) >> 32) as u32
    }
}

fn at(chunk: u16) -> usize {
    ENTRY_BYTES * (usize::from(chunk) + 1)
}

fn field<T: FromBytes>(block: &[u8], at: usize) -> T {
    T::read_from_bytes(&block[at..at + size_of::<T>()]).expect("the slice has the size of T")
}

fn put_u64(block: &mut [u8], at: usize, value: u64) {
    block[at..at + 8].copy_from_slice(&U64::new(value).to_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: u64 = 0x1234_5678_9abc_def1;

    /// Two names with the same hash: it has 28 bits.
    fn names_that_collide() -> [String; 2] {
        let mut seen = BTreeMap::new();
        // Names that differ in few bits only never have the same: it is a CRC.
        for i in 0..1_000_000u64 {
            let name = format!("{:x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let hash = hash_name(name.as_bytes(), SALT, Flags::default());
            if let Some(other) = seen.insert(hash, name.clone()) {
                return [other, name];
            }
        }
        panic!("among a million names no two have the same hash");
    }

    #[test]
    fn names_with_the_same_hash_get_numbers_of_their_own() {
        let names = names_that_collide();
        let mut block = vec![0; 8 * ENTRY_BYTES];
        init(&mut block, SALT, Flags::default());
        let mut index = MicroIndex::build(&block).unwrap();
        let add = |index: &mut MicroIndex, block: &mut [u8], name: &str, value| {
            let (chunk, cd) = index.allocate(block, name.as_bytes());
            put_entry(block, chunk, name.as_bytes(), cd, value);
            cd
        };
        let cds = [0, 1].map(|i| add(&mut index, &mut block, &names[i], i as u64));
        assert_eq!(cds, [0, 1]);
        let mut rebuilt = MicroIndex::build(&block).unwrap();
        for (value, name) in names.iter().enumerate() {
            let entry = rebuilt.find(&block, name.as_bytes()).unwrap();
            assert_eq!(entry.value, value as u64);
        }
        // The number of one that went is taken again, not that of the one that stays.
        let first = rebuilt.find(&block, names[0].as_bytes()).unwrap().chunk;
        clear_entry(&mut block, first);
        rebuilt.remove(names[0].as_bytes(), 0);
        assert_eq!(add(&mut rebuilt, &mut block, &names[0], 2), 0);
        assert_eq!(rebuilt.find(&block, names[1].as_bytes()).unwrap().value, 1);
    }
}
