//! Leaves of a fat ZAP: one block of chunks that hold entries, names and values.
//!
//! # What it is
//! A leaf is a small hash table in one block: a header, an array of chain heads, and 24-byte
//! chunks. A chunk is an entry (the hash, and where its name and value start), 21 bytes of a name
//! or value, or free. Free chunks form a list, and are allocated in list order.
//!
//! # On disk
//! ```text
//! OFFSET        SIZE  FIELD
//! 0             48    header (zap_leaf_header): type, prefix, magic, counts, free list head
//! 48            2*n   chain heads, n = block size / 32, 0xffff ends a chain
//! 48 + 2*n      24*m  chunks, to the end of the block
//! ```
//! Integers in array chunks are always big-endian; everything else has the pool's byte order.
//!
//! # Invariants
//! 1. `lh_nfree` is the length of the free list; `lh_nentries` the number of entry chunks.
//! 2. Every hash in the leaf starts with the `lh_prefix_len` bits of `lh_prefix`.
//! 3. A chain is sorted by collision differentiator, which is unique among equal hashes.
//!
//! # Source
//! OpenZFS `module/zfs/zap_leaf.c`, `include/sys/zap_leaf.h`.

use std::mem::offset_of;
use std::ops::{Deref, DerefMut};

use base::{Error, ErrorKind, Result};
use phys::zap::{
    CHAIN_END, ZAP_CHUNK_ARRAY, ZAP_CHUNK_ENTRY, ZAP_CHUNK_FREE, ZAP_LEAF_ARRAY_BYTES,
    ZAP_LEAF_CHUNKSIZE, ZAP_LEAF_LOW_WATER, ZAP_LEAF_MAGIC, ZBT_LEAF, ZLF_ENTRIES_CDSORTED,
    ZapLeafArrayPhys, ZapLeafEntryPhys, ZapLeafFreePhys, ZapLeafLayout, ZapLeafPhys, array_chunks,
};
use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32, U64};

use crate::handle::{HISTOGRAM_SIZE, LeafHistograms};
use crate::value::{StoredKey, Value};

const HEADER_BYTES: usize = size_of::<ZapLeafPhys>();
/// `ZAP_LEAF_LOW_WATER`, in chunks: a leaf with fewer free that cannot split makes the table grow.
pub(crate) const LOW_WATER_CHUNKS: u16 = ZAP_LEAF_LOW_WATER as u16;

const AT_BLOCK_TYPE: usize = offset_of!(ZapLeafPhys, block_type);
const AT_PREFIX: usize = offset_of!(ZapLeafPhys, prefix);
const AT_MAGIC: usize = offset_of!(ZapLeafPhys, magic);
const AT_NFREE: usize = offset_of!(ZapLeafPhys, nfree);
const AT_NENTRIES: usize = offset_of!(ZapLeafPhys, nentries);
const AT_PREFIX_LEN: usize = offset_of!(ZapLeafPhys, prefix_len);
const AT_FREELIST: usize = offset_of!(ZapLeafPhys, freelist);
const AT_FLAGS: usize = offset_of!(ZapLeafPhys, flags);

const AT_INTLEN: usize = offset_of!(ZapLeafEntryPhys, value_intlen);
const AT_NEXT: usize = offset_of!(ZapLeafEntryPhys, next);
const AT_NAME_CHUNK: usize = offset_of!(ZapLeafEntryPhys, name_chunk);
const AT_NAME_NUMINTS: usize = offset_of!(ZapLeafEntryPhys, name_numints);
const AT_VALUE_CHUNK: usize = offset_of!(ZapLeafEntryPhys, value_chunk);
const AT_VALUE_NUMINTS: usize = offset_of!(ZapLeafEntryPhys, value_numints);
const AT_CD: usize = offset_of!(ZapLeafEntryPhys, cd);
const AT_HASH: usize = offset_of!(ZapLeafEntryPhys, hash);

/// Offset of the link in an array or free chunk.
const AT_LINK: usize = offset_of!(ZapLeafArrayPhys, next);
const _: () = assert!(AT_LINK == offset_of!(ZapLeafFreePhys, next));

/// The fields of an entry chunk (`zap_leaf_entry`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafEntry {
    pub(crate) chunk: u16,
    pub(crate) integer_size: u8,
    next: u16,
    name_chunk: u16,
    pub(crate) name_numints: u16,
    value_chunk: u16,
    pub(crate) value_numints: u16,
    pub(crate) cd: u32,
    pub(crate) hash: u64,
}

/// Whether an entry fitted into a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    Done,
    /// Too few free chunks: split the leaf and try again.
    Full,
}

/// A view of a leaf block.
pub(crate) struct Leaf<B> {
    block: B,
    shift: u32,
}

impl<B: Deref<Target = [u8]>> Leaf<B> {
    /// Views `block` as a leaf, checking only its size.
    fn view(block: B) -> Result<Self> {
        let len = block.len();
        if !len.is_power_of_two() || !(1 << 9..=1 << 24).contains(&len) {
            return Err(Error::corrupt(format!("zap leaf block of {len} bytes")));
        }
        Ok(Leaf {
            shift: len.trailing_zeros(),
            block,
        })
    }

    /// Views `block` as a leaf and checks its header.
    pub(crate) fn open(block: B) -> Result<Self> {
        let leaf = Self::view(block)?;
        let block_type = leaf.u64_at(AT_BLOCK_TYPE);
        if block_type != ZBT_LEAF {
            return Err(Error::corrupt(format!("lh_block_type is {block_type:#x}")));
        }
        let magic = leaf.u32_at(AT_MAGIC);
        if magic != ZAP_LEAF_MAGIC {
            return Err(Error::corrupt(format!("lh_magic is {magic:#x}")));
        }
        if u32::from(leaf.prefix_len()) + leaf.hash_shift() > 64 {
            return Err(Error::corrupt(format!(
                "lh_prefix_len is {}",
                leaf.prefix_len()
            )));
        }
        if usize::from(leaf.nfree()) > leaf.chunks() {
            return Err(Error::corrupt(format!("lh_nfree is {}", leaf.nfree())));
        }
        let nentries = leaf.nentries();
        if usize::from(nentries) > leaf.chunks() || nentries == u16::MAX {
            return Err(Error::corrupt(format!("lh_nentries is {nentries}")));
        }
        Ok(leaf)
    }

    /// `lh_prefix_len`.
    pub(crate) fn prefix_len(&self) -> u16 {
        self.u16_at(AT_PREFIX_LEN)
    }

    /// `lh_prefix`.
    pub(crate) fn prefix(&self) -> u64 {
        self.u64_at(AT_PREFIX)
    }

    /// `lh_nfree`.
    pub(crate) fn nfree(&self) -> u16 {
        self.u16_at(AT_NFREE)
    }

    /// `lh_nentries`.
    pub(crate) fn nentries(&self) -> u16 {
        self.u16_at(AT_NENTRIES)
    }

    /// Chunks in this leaf.
    pub(crate) fn chunks(&self) -> usize {
        ZapLeafLayout::new(self.shift).chunks()
    }

    /// The entry of `key`.
    pub(crate) fn find(&self, key: &StoredKey) -> Result<Option<LeafEntry>> {
        for entry in self.chain(self.slot(key.hash)) {
            let entry = entry?;
            if entry.hash == key.hash
                && entry.name_numints == key.numints()
                && self.array_equals(entry.name_chunk, &key.bytes)?
            {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// The first entry at or after (`hash`, `cd`).
    pub(crate) fn find_closest(&self, hash: u64, cd: u32) -> Result<Option<LeafEntry>> {
        for slot in self.slot(hash)..self.hash_entries() {
            let mut best: Option<LeafEntry> = None;
            for entry in self.chain(slot) {
                let entry = entry?;
                let at = (entry.hash, entry.cd);
                if at >= (hash, cd) && best.is_none_or(|best| at < (best.hash, best.cd)) {
                    best = Some(entry);
                }
            }
            // Slots are hash ranges in ascending order: entries of later slots have larger hashes.
            if best.is_some() {
                return Ok(best);
            }
        }
        Ok(None)
    }

    /// The big-endian bytes of an entry's value.
    pub(crate) fn value(&self, entry: &LeafEntry) -> Result<Vec<u8>> {
        let len = usize::from(entry.value_numints) * usize::from(entry.integer_size);
        self.array(entry.value_chunk, len)
            .map_err(|e| e.within("zap value"))
    }

    /// The first integer of an entry's value; 0 if it has none.
    pub(crate) fn first_integer(&self, entry: &LeafEntry) -> Result<u64> {
        if entry.value_numints == 0 {
            return Ok(0);
        }
        let size = usize::from(entry.integer_size);
        let chunk = self.array_chunk(entry.value_chunk)?;
        Ok(crate::value::from_big_endian(&chunk[1..=size]))
    }

    /// The big-endian bytes of an entry's key of integers of `integer_size`.
    pub(crate) fn key(&self, entry: &LeafEntry, integer_size: u8) -> Result<Vec<u8>> {
        let len = usize::from(entry.name_numints) * usize::from(integer_size);
        self.array(entry.name_chunk, len)
            .map_err(|e| e.within("zap key"))
    }

    /// All entries in chunk order.
    pub(crate) fn entries(&self) -> Result<Vec<LeafEntry>> {
        (0..self.chunks() as u16)
            .filter(|chunk| self.block[self.chunk_at(*chunk)] == ZAP_CHUNK_ENTRY)
            .map(|chunk| self.entry(chunk))
            .collect()
    }

    /// Checks the whole leaf, so that a split cannot fail half way through.
    pub(crate) fn verify(&self) -> Result<()> {
        let mut uses = vec![0u8; self.chunks()];
        let mut take = |chunk: u16| {
            let uses = &mut uses[usize::from(chunk)];
            *uses += 1;
            if *uses > 1 {
                return Err(Error::corrupt(format!(
                    "zap leaf chunk {chunk} is used twice"
                )));
            }
            Ok(())
        };
        let entries = self.entries()?;
        for entry in &entries {
            take(entry.chunk)?;
            let links = [
                self.array_links(entry.name_chunk)?,
                self.array_links(entry.value_chunk)?,
            ];
            links.iter().flatten().try_for_each(|chunk| take(*chunk))?;
            if entry.hash.unbounded_shr(64 - u32::from(self.prefix_len())) != self.prefix() {
                return Err(Error::corrupt(format!("le_hash is {:#x}", entry.hash)));
            }
        }
        if entries.len() != usize::from(self.nentries()) {
            return Err(Error::corrupt(format!(
                "lh_nentries is {}",
                self.nentries()
            )));
        }
        let mut chunk = self.u16_at(AT_FREELIST);
        for _ in 0..self.nfree() {
            let at = self.typed_chunk_at(chunk, ZAP_CHUNK_FREE)?;
            take(chunk)?;
            chunk = self.u16_at(at + AT_LINK);
        }
        Ok(())
    }

    /// Adds this leaf to the histograms of a ZAP whose table has `1 << table_shift` pointers.
    #[doc(alias = "zap_leaf_stats")]
    pub(crate) fn count(&self, table_shift: u64, all: &mut LeafHistograms) -> Result<()> {
        fn add(histogram: &mut [u64; HISTOGRAM_SIZE], at: usize) {
            histogram[at.min(HISTOGRAM_SIZE - 1)] += 1;
        }
        let pointers = table_shift.saturating_sub(self.prefix_len().into());
        add(&mut all.leafs_with_2n_pointers, pointers as usize);
        add(
            &mut all.blocks_with_n5_entries,
            usize::from(self.nentries()) / 5,
        );
        let bytes = self.block.len();
        // As in OpenZFS, a free chunk counts as 22 bytes rather than its actual 24.
        let free = usize::from(self.nfree()) * (ZAP_LEAF_ARRAY_BYTES + 1);
        add(
            &mut all.blocks_n_tenths_full,
            bytes.saturating_sub(free) * 10 / bytes,
        );
        for slot in 0..self.hash_entries() {
            let mut entries = 0;
            for entry in self.chain(slot) {
                let entry = entry?;
                let value = usize::from(entry.value_numints) * usize::from(entry.integer_size);
                let chunks = 1 + array_chunks(entry.name_numints.into()) + array_chunks(value);
                add(&mut all.entries_using_n_chunks, chunks);
                entries += 1;
            }
            add(&mut all.buckets_with_n_entries, entries);
        }
        Ok(())
    }

    fn hash_shift(&self) -> u32 {
        self.shift - 5
    }

    fn hash_entries(&self) -> usize {
        1 << self.hash_shift()
    }

    /// The chain that `hash` belongs to, given by the bits after the prefix (`LEAF_HASH`).
    fn slot(&self, hash: u64) -> usize {
        let down = 64 - self.hash_shift() - u32::from(self.prefix_len());
        (hash >> down) as usize & (self.hash_entries() - 1)
    }

    fn slot_at(&self, slot: usize) -> usize {
        HEADER_BYTES + 2 * slot
    }

    fn chunk_at(&self, chunk: u16) -> usize {
        HEADER_BYTES + 2 * self.hash_entries() + ZAP_LEAF_CHUNKSIZE * usize::from(chunk)
    }

    /// The offset of `chunk`, checked to exist and to have type `chunk_type`.
    fn typed_chunk_at(&self, chunk: u16, chunk_type: u8) -> Result<usize> {
        if usize::from(chunk) >= self.chunks() {
            return Err(Error::corrupt(format!(
                "zap leaf chunk {chunk} of {}",
                self.chunks()
            )));
        }
        let at = self.chunk_at(chunk);
        if self.block[at] != chunk_type {
            let have = self.block[at];
            return Err(Error::corrupt(format!(
                "zap leaf chunk {chunk} has type {have}, expected {chunk_type}"
            )));
        }
        Ok(at)
    }

    fn entry(&self, chunk: u16) -> Result<LeafEntry> {
        let at = self.typed_chunk_at(chunk, ZAP_CHUNK_ENTRY)?;
        let integer_size = self.block[at + AT_INTLEN];
        if !matches!(integer_size, 1 | 2 | 4 | 8) {
            return Err(Error::corrupt(format!("le_value_intlen is {integer_size}")));
        }
        Ok(LeafEntry {
            chunk,
            integer_size,
            next: self.u16_at(at + AT_NEXT),
            name_chunk: self.u16_at(at + AT_NAME_CHUNK),
            name_numints: self.u16_at(at + AT_NAME_NUMINTS),
            value_chunk: self.u16_at(at + AT_VALUE_CHUNK),
            value_numints: self.u16_at(at + AT_VALUE_NUMINTS),
            cd: self.u32_at(at + AT_CD),
            hash: self.u64_at(at + AT_HASH),
        })
    }

    /// The entries of one chain; a cycle ends in an error.
    fn chain(&self, slot: usize) -> impl Iterator<Item = Result<LeafEntry>> + '_ {
        let mut next = self.u16_at(self.slot_at(slot));
        let mut left = self.chunks();
        std::iter::from_fn(move || {
            if next == CHAIN_END {
                return None;
            }
            if left == 0 {
                next = CHAIN_END;
                return Some(Err(Error::corrupt(format!(
                    "zap leaf chain {slot} is a cycle"
                ))));
            }
            left -= 1;
            let entry = self.entry(next).and_then(|entry| {
                if self.slot(entry.hash) == slot {
                    return Ok(entry);
                }
                let what = format!("le_hash {:#x} in zap leaf chain {slot}", entry.hash);
                Err(Error::corrupt(what))
            });
            next = entry.as_ref().map_or(CHAIN_END, |e| e.next);
            Some(entry)
        })
    }

    /// The offset of the link that points to `entry`.
    fn link_to(&self, entry: &LeafEntry) -> Result<usize> {
        let slot = self.slot(entry.hash);
        let mut link_at = self.slot_at(slot);
        for other in self.chain(slot) {
            let other = other?;
            if other.chunk == entry.chunk {
                return Ok(link_at);
            }
            link_at = self.chunk_at(other.chunk) + AT_NEXT;
        }
        Err(Error::corrupt(format!(
            "zap leaf entry {} is in no chain",
            entry.chunk
        )))
    }

    fn array_chunk(&self, chunk: u16) -> Result<&[u8]> {
        let at = self.typed_chunk_at(chunk, ZAP_CHUNK_ARRAY)?;
        Ok(&self.block[at..at + ZAP_LEAF_CHUNKSIZE])
    }

    fn array(&self, mut chunk: u16, len: usize) -> Result<Vec<u8>> {
        if len > self.chunks() * ZAP_LEAF_ARRAY_BYTES {
            return Err(Error::corrupt(format!("zap leaf array of {len} bytes")));
        }
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = self.typed_chunk_at(chunk, ZAP_CHUNK_ARRAY)?;
            let take = ZAP_LEAF_ARRAY_BYTES.min(len - bytes.len());
            bytes.extend_from_slice(&self.block[at + 1..at + 1 + take]);
            chunk = self.u16_at(at + AT_LINK);
        }
        Ok(bytes)
    }

    fn array_equals(&self, mut chunk: u16, bytes: &[u8]) -> Result<bool> {
        for part in bytes.chunks(ZAP_LEAF_ARRAY_BYTES) {
            let at = self.typed_chunk_at(chunk, ZAP_CHUNK_ARRAY)?;
            if self.block[at + 1..at + 1 + part.len()] != *part {
                return Ok(false);
            }
            chunk = self.u16_at(at + AT_LINK);
        }
        Ok(true)
    }

    /// The chunks of the array that starts at `chunk`.
    fn array_links(&self, mut chunk: u16) -> Result<Vec<u16>> {
        let mut links = Vec::new();
        while chunk != CHAIN_END {
            if links.len() == self.chunks() {
                return Err(Error::corrupt("zap leaf array is a cycle"));
            }
            let at = self.typed_chunk_at(chunk, ZAP_CHUNK_ARRAY)?;
            links.push(chunk);
            chunk = self.u16_at(at + AT_LINK);
        }
        Ok(links)
    }

    fn u16_at(&self, at: usize) -> u16 {
        field::<U16>(&self.block, at).get()
    }

    fn u32_at(&self, at: usize) -> u32 {
        field::<U32>(&self.block, at).get()
    }

    fn u64_at(&self, at: usize) -> u64 {
        field::<U64>(&self.block, at).get()
    }
}

fn field<T: FromBytes>(block: &[u8], at: usize) -> T {
    T::read_from_bytes(&block[at..at + size_of::<T>()]).expect("the slice has the size of T")
}

impl<B: DerefMut<Target = [u8]>> Leaf<B> {
    /// Turns `block` into an empty leaf for hashes that start with `prefix` (`zap_leaf_init`).
    pub(crate) fn init(block: B, prefix: u64, prefix_len: u16) -> Result<Self> {
        let mut leaf = Self::view(block)?;
        leaf.block.fill(0);
        let chunks = leaf.chunks();
        for slot in 0..leaf.hash_entries() {
            leaf.put_u16(leaf.slot_at(slot), CHAIN_END);
        }
        for chunk in 0..chunks as u16 {
            let at = leaf.chunk_at(chunk);
            leaf.block[at] = ZAP_CHUNK_FREE;
            let last = usize::from(chunk) == chunks - 1;
            leaf.put_u16(at + AT_LINK, if last { CHAIN_END } else { chunk + 1 });
        }
        leaf.put_u64(AT_BLOCK_TYPE, ZBT_LEAF);
        leaf.put_u64(AT_PREFIX, prefix);
        leaf.block[AT_MAGIC..AT_MAGIC + 4].copy_from_slice(&U32::new(ZAP_LEAF_MAGIC).to_bytes());
        leaf.put_u16(AT_NFREE, chunks as u16);
        leaf.put_u16(AT_PREFIX_LEN, prefix_len);
        Ok(leaf)
    }

    /// Adds an entry for `key`, which must not exist yet; `cd` is chosen if not given.
    pub(crate) fn create(
        &mut self,
        key: &StoredKey,
        cd: Option<u32>,
        value: &Value,
    ) -> Result<Fit> {
        let need = 1 + array_chunks(key.bytes.len()) + array_chunks(value.bytes.len());
        self.check_fits_alone(need)?;
        let cd = match cd {
            Some(cd) => cd,
            None => self.unused_cd(key.hash)?,
        };
        if usize::from(self.nfree()) < need {
            return Ok(Fit::Full);
        }
        self.check_free_list(need)?;
        let chunk = self.chunk_alloc()?;
        let at = self.chunk_at(chunk);
        self.block[at] = ZAP_CHUNK_ENTRY;
        self.block[at + AT_INTLEN] = value.integer_size;
        let name_chunk = self.array_create(&key.bytes)?;
        let value_chunk = self.array_create(&value.bytes)?;
        self.put_u16(at + AT_NAME_CHUNK, name_chunk);
        self.put_u16(at + AT_NAME_NUMINTS, key.numints());
        self.put_u16(at + AT_VALUE_CHUNK, value_chunk);
        self.put_u16(at + AT_VALUE_NUMINTS, value.numints());
        self.block[at + AT_CD..at + AT_CD + 4].copy_from_slice(&U32::new(cd).to_bytes());
        self.put_u64(at + AT_HASH, key.hash);
        self.link(chunk)?;
        self.put_u16(AT_NENTRIES, self.nentries() + 1);
        Ok(Fit::Done)
    }

    /// Checks that an entry of so many chunks fits into an empty leaf: if not, splitting does not help.
    fn check_fits_alone(&self, need: usize) -> Result<()> {
        let chunks = self.chunks();
        if need <= chunks {
            return Ok(());
        }
        let text = format!("a zap entry of {need} chunks in a leaf of {chunks}");
        Err(Error::new(ErrorKind::TooBig, text))
    }

    /// Replaces the value of `entry`.
    pub(crate) fn update(&mut self, entry: &LeafEntry, value: &Value) -> Result<Fit> {
        let old_links = self.array_links(entry.value_chunk)?;
        let need = array_chunks(value.bytes.len());
        let name_links = self.array_links(entry.name_chunk)?;
        self.check_fits_alone(1 + name_links.len() + need)?;
        if usize::from(self.nfree()) + old_links.len() < need {
            return Ok(Fit::Full);
        }
        self.check_free_list(need.saturating_sub(old_links.len()))?;
        self.array_free(&old_links);
        let value_chunk = self.array_create(&value.bytes)?;
        let at = self.chunk_at(entry.chunk);
        self.put_u16(at + AT_VALUE_CHUNK, value_chunk);
        self.put_u16(at + AT_VALUE_NUMINTS, value.numints());
        self.block[at + AT_INTLEN] = value.integer_size;
        Ok(Fit::Done)
    }

    /// Removes `entry`.
    pub(crate) fn remove(&mut self, entry: &LeafEntry) -> Result<()> {
        let value_links = self.array_links(entry.value_chunk)?;
        let name_links = self.array_links(entry.name_chunk)?;
        let nentries = self.nentries().checked_sub(1);
        let Some(nentries) = nentries else {
            return Err(Error::corrupt("lh_nentries is 0 in a leaf with an entry"));
        };
        self.unlink(entry)?;
        // Freed in this order, the chunks are allocated again in their former order.
        self.array_free(&value_links);
        self.array_free(&name_links);
        self.chunk_free(entry.chunk);
        self.put_u16(AT_NENTRIES, nentries);
        Ok(())
    }

    /// Moves the entries whose next bit of hash is 1 into `sibling`, an empty block.
    pub(crate) fn split(&mut self, sibling: &mut [u8]) -> Result<()> {
        let entries = self.entries()?;
        let prefix_len = self.prefix_len() + 1;
        let prefix = self.prefix() << 1;
        if u32::from(prefix_len) + self.hash_shift() > 64 {
            return Err(Error::corrupt(format!(
                "lh_prefix_len would be {prefix_len}"
            )));
        }
        let mut other = Leaf::init(sibling, prefix | 1, prefix_len)?;
        other.block[AT_FLAGS] = self.block[AT_FLAGS] & ZLF_ENTRIES_CDSORTED;
        self.put_u64(AT_PREFIX, prefix);
        self.put_u16(AT_PREFIX_LEN, prefix_len);
        for slot in 0..self.hash_entries() {
            self.put_u16(self.slot_at(slot), CHAIN_END);
        }
        for entry in entries {
            if entry.hash >> (64 - u32::from(prefix_len)) & 1 == 1 {
                self.transfer(&entry, &mut other)?;
            } else {
                self.link(entry.chunk)?;
            }
        }
        Ok(())
    }

    /// Shortens the prefix by one bit.
    pub(crate) fn widen(&mut self) -> Result<()> {
        let Some(prefix_len) = self.prefix_len().checked_sub(1) else {
            return Err(Error::corrupt(
                "lh_prefix_len is 0 in a leaf with a sibling",
            ));
        };
        self.put_u64(AT_PREFIX, self.prefix() >> 1);
        self.put_u16(AT_PREFIX_LEN, prefix_len);
        Ok(())
    }

    fn transfer(&mut self, entry: &LeafEntry, other: &mut Leaf<&mut [u8]>) -> Result<()> {
        let name_links = self.array_links(entry.name_chunk)?;
        let value_links = self.array_links(entry.value_chunk)?;
        let chunk = other.chunk_alloc()?;
        let from = self.chunk_at(entry.chunk);
        let to = other.chunk_at(chunk);
        other.block[to..to + ZAP_LEAF_CHUNKSIZE]
            .copy_from_slice(&self.block[from..from + ZAP_LEAF_CHUNKSIZE]);
        let name_chunk = other.array_copy(self, &name_links)?;
        let value_chunk = other.array_copy(self, &value_links)?;
        other.put_u16(to + AT_NAME_CHUNK, name_chunk);
        other.put_u16(to + AT_VALUE_CHUNK, value_chunk);
        other.link(chunk)?;
        other.put_u16(AT_NENTRIES, other.nentries() + 1);
        self.array_free(&value_links);
        self.array_free(&name_links);
        self.chunk_free(entry.chunk);
        self.put_u16(AT_NENTRIES, self.nentries().saturating_sub(1));
        Ok(())
    }

    /// The lowest differentiator that no entry with `hash` has.
    fn unused_cd(&self, hash: u64) -> Result<u32> {
        let mut used = Vec::new();
        for entry in self.chain(self.slot(hash)) {
            let entry = entry?;
            if entry.hash == hash {
                used.push(entry.cd);
            }
        }
        used.sort_unstable();
        used.dedup();
        let gap = used.iter().zip(0u32..).position(|(cd, at)| *cd != at);
        Ok(gap.unwrap_or(used.len()) as u32)
    }

    /// Puts an entry into its chain, after those with the same or smaller differentiators.
    fn link(&mut self, chunk: u16) -> Result<()> {
        let entry = self.entry(chunk)?;
        let mut link_at = self.slot_at(self.slot(entry.hash));
        for other in self.chain(self.slot(entry.hash)) {
            let other = other?;
            if other.cd > entry.cd {
                break;
            }
            link_at = self.chunk_at(other.chunk) + AT_NEXT;
        }
        let next = self.u16_at(link_at);
        self.put_u16(self.chunk_at(chunk) + AT_NEXT, next);
        self.put_u16(link_at, chunk);
        Ok(())
    }

    fn unlink(&mut self, entry: &LeafEntry) -> Result<()> {
        let link_at = self.link_to(entry)?;
        self.put_u16(link_at, entry.next);
        Ok(())
    }

    /// Checks that the free list really has the `need` chunks that `lh_nfree` promises.
    fn check_free_list(&self, need: usize) -> Result<()> {
        let mut chunk = self.u16_at(AT_FREELIST);
        for _ in 0..need {
            let at = self.typed_chunk_at(chunk, ZAP_CHUNK_FREE)?;
            chunk = self.u16_at(at + AT_LINK);
        }
        Ok(())
    }

    fn chunk_alloc(&mut self) -> Result<u16> {
        let chunk = self.u16_at(AT_FREELIST);
        let at = self.typed_chunk_at(chunk, ZAP_CHUNK_FREE)?;
        let Some(nfree) = self.nfree().checked_sub(1) else {
            return Err(Error::corrupt("lh_nfree is 0 in a leaf with a free list"));
        };
        self.put_u16(AT_FREELIST, self.u16_at(at + AT_LINK));
        self.put_u16(AT_NFREE, nfree);
        Ok(chunk)
    }

    /// Frees a chunk and clears its bytes, so that the block compresses well.
    fn chunk_free(&mut self, chunk: u16) {
        let at = self.chunk_at(chunk);
        self.block[at] = ZAP_CHUNK_FREE;
        self.block[at + 1..at + AT_LINK].fill(0);
        self.put_u16(at + AT_LINK, self.u16_at(AT_FREELIST));
        self.put_u16(AT_FREELIST, chunk);
        self.put_u16(AT_NFREE, self.nfree().saturating_add(1));
    }

    /// Frees an array in reverse, so that its chunks are allocated again in the same order.
    fn array_free(&mut self, links: &[u16]) {
        for chunk in links.iter().rev() {
            self.chunk_free(*chunk);
        }
    }

    /// Stores `bytes`; returns the first chunk.
    fn array_create(&mut self, bytes: &[u8]) -> Result<u16> {
        let mut first = CHAIN_END;
        let mut link_at = None;
        for part in bytes.chunks(ZAP_LEAF_ARRAY_BYTES) {
            let chunk = self.chunk_alloc()?;
            let at = self.chunk_at(chunk);
            self.block[at] = ZAP_CHUNK_ARRAY;
            self.block[at + 1..at + 1 + part.len()].copy_from_slice(part);
            self.put_u16(at + AT_LINK, CHAIN_END);
            match link_at {
                None => first = chunk,
                Some(link_at) => self.put_u16(link_at, chunk),
            }
            link_at = Some(at + AT_LINK);
        }
        Ok(first)
    }

    fn array_copy<C: Deref<Target = [u8]>>(
        &mut self,
        from: &Leaf<C>,
        links: &[u16],
    ) -> Result<u16> {
        let mut bytes = Vec::with_capacity(links.len() * ZAP_LEAF_ARRAY_BYTES);
        for chunk in links {
            let at = from.chunk_at(*chunk);
            bytes.extend_from_slice(&from.block[at + 1..at + 1 + ZAP_LEAF_ARRAY_BYTES]);
        }
        self.array_create(&bytes)
    }

    fn put_u16(&mut self, at: usize, value: u16) {
        self.block[at..at + 2].copy_from_slice(&U16::new(value).to_bytes());
    }

    fn put_u64(&mut self, at: usize, value: u64) {
        self.block[at..at + 8].copy_from_slice(&U64::new(value).to_bytes());
    }
}
