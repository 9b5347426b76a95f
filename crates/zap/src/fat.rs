//! Fat ZAPs: an extendible hash table over many blocks.
//!
//! # What it is
//! The first block is the header; a *pointer table*, indexed by the upper bits of a name's hash,
//! names the [leaf](crate::leaf) block. A full leaf is split by one more bit of hash; when the
//! table's index has no further bit to tell the halves apart, the table doubles. A table that no
//! longer fits in the second half of the header block gets blocks of its own, and from then on
//! doubles in small steps: each add or update copies one block of it, until all are copied.
//!
//! # On disk
//! ```text
//! OFFSET  SIZE  FIELD
//! 0       8     zap_block_type, 0x8000000000000001
//! 8       8     zap_magic, 0x2F52AB2AB
//! 16      40    zap_ptrtbl: first block, blocks, shift, first block of the larger copy, blocks copied
//! 56      8     zap_freeblk: the next block to allocate
//! 64      8     zap_num_leafs
//! 72      8     zap_num_entries
//! 80      8     zap_salt
//! 88      8     zap_normflags
//! 96      8     zap_flags
//! half    half  the pointer table while zap_ptrtbl names no block
//! ```
//!
//! # Invariants
//! 1. All pointers whose index starts with a leaf's prefix, and no others, name that leaf.
//! 2. While a larger copy of the table is being built, every store goes to both.
//! 3. Two empty leaves whose prefixes differ only in the last bit are merged.
//!
//! # Concurrency
//! The caller holds the ZAP's lock; one writer at a time.
//!
//! # Source
//! OpenZFS `module/zfs/zap_fat.c`, `include/sys/zap_impl.h`.

use std::mem::offset_of;

use base::{BlkId, BlockBuf, Buf, Error, ErrorKind, Result};
use dmu::{Dnode, Tx};
use phys::zap::{ZAP_MAGIC, ZBT_HEADER, ZapPhys};
use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use crate::handle::LeafHistograms;
use crate::leaf::{Fit, LOW_WATER_CHUNKS, Leaf, LeafEntry};
use crate::value::{Flags, StoredKey, Value};

const AT_TABLE: usize = offset_of!(ZapPhys, ptrtbl);

/// `zap_table_phys`: where the pointer table is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) blk: u64,
    pub(crate) numblks: u64,
    pub(crate) shift: u64,
    pub(crate) nextblk: u64,
    pub(crate) blks_copied: u64,
}

/// The header of a fat ZAP (`zap_phys`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) table: Table,
    pub(crate) freeblk: u64,
    pub(crate) num_leafs: u64,
    pub(crate) num_entries: u64,
    pub(crate) salt: u64,
    pub(crate) flags: Flags,
    pub(crate) block_shift: u32,
}

fn word(block: &[u8], at: usize) -> u64 {
    let field = U64::read_from_bytes(&block[at..at + 8]);
    field.expect("the slice has 8 bytes").get()
}

fn put_word(block: &mut [u8], at: usize, value: u64) {
    block[at..at + 8].copy_from_slice(&U64::new(value).to_bytes());
}

impl Header {
    fn new(block_shift: u32, salt: u64, flags: Flags) -> Header {
        Header {
            table: Table {
                shift: u64::from(block_shift - 4),
                ..Table::default()
            },
            freeblk: 2,
            num_leafs: 1,
            num_entries: 0,
            salt,
            flags,
            block_shift,
        }
    }

    /// Reads and checks a header block.
    pub(crate) fn parse(block: &[u8]) -> Result<Header> {
        let len = block.len();
        if !len.is_power_of_two() || !(1 << 9..=1 << 24).contains(&len) {
            return Err(Error::corrupt(format!(
                "fat zap header block of {len} bytes"
            )));
        }
        let [block_type, magic] = [word(block, 0), word(block, 8)];
        if block_type != ZBT_HEADER || magic != ZAP_MAGIC {
            return Err(Error::corrupt(format!(
                "zap_block_type is {block_type:#x} with zap_magic {magic:#x}"
            )));
        }
        let field = |index: usize| word(block, AT_TABLE + 8 * index);
        let header = Header {
            table: Table {
                blk: field(0),
                numblks: field(1),
                shift: field(2),
                nextblk: field(3),
                blks_copied: field(4),
            },
            freeblk: field(5),
            num_leafs: field(6),
            num_entries: field(7),
            salt: field(8),
            flags: Flags::from_stored(field(10), field(9))?,
            block_shift: len.trailing_zeros(),
        };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<()> {
        let table = &self.table;
        if table.shift > u64::from(self.flags.hash_bits()) {
            return Err(Error::corrupt(format!("zt_shift is {}", table.shift)));
        }
        let pointers = match table.numblks {
            0 => Some(1 << self.embedded_shift()),
            blocks => blocks.checked_mul(1 << (self.block_shift - 3)),
        };
        if pointers != Some(1 << table.shift) || (table.numblks == 0) != (table.blk == 0) {
            return Err(Error::corrupt(format!(
                "zt_shift is {} with {} blocks at {}",
                table.shift, table.numblks, table.blk
            )));
        }
        for (name, blk) in [
            ("zt_blk", table.blk),
            ("zt_nextblk", table.nextblk),
            ("zap_freeblk", self.freeblk),
            ("zap_num_leafs", self.num_leafs),
            ("zap_num_entries", self.num_entries),
        ] {
            if blk >= 1 << 40 {
                return Err(Error::corrupt(format!("{name} is {blk}")));
            }
        }
        let is_growing = table.nextblk != 0 && table.blks_copied < table.numblks;
        if table.blks_copied != 0 && !is_growing {
            return Err(Error::corrupt(format!(
                "zt_blks_copied is {}",
                table.blks_copied
            )));
        }
        Ok(())
    }

    fn store(&self, block: &mut [u8]) {
        put_word(block, 0, ZBT_HEADER);
        put_word(block, 8, ZAP_MAGIC);
        let table = &self.table;
        let fields = [
            table.blk,
            table.numblks,
            table.shift,
            table.nextblk,
            table.blks_copied,
            self.freeblk,
            self.num_leafs,
            self.num_entries,
            self.salt,
            self.flags.normflags(),
            self.flags.stored(),
        ];
        for (index, field) in fields.into_iter().enumerate() {
            put_word(block, AT_TABLE + 8 * index, field);
        }
    }

    /// `ZAP_EMBEDDED_PTRTBL_SHIFT`.
    fn embedded_shift(&self) -> u32 {
        self.block_shift - 4
    }

    fn block_bytes(&self) -> usize {
        1 << self.block_shift
    }
}

const _: () = assert!(offset_of!(ZapPhys, flags) == AT_TABLE + 8 * 10);

/// Most bits by which the table's index may exceed the prefix of a full leaf; more means corruption,
/// since hashes are uniform and leaves therefore fill at about the same time.
const SPARE_BITS_MAX: u64 = 24;
/// log2 of the pointers above which a table grows step by step only, with other operations, and not within
/// one: 32 MiB of them. Honest leaves have grown it long before they are full.
const GROWN_AT_ONCE_SHIFT_MAX: u64 = 22;
/// log2 of the pointers above which the table is not scanned to give back unused blocks at the
/// end; such a ZAP has some hundred million entries.
const TRIMMED_SHIFT_MAX: u64 = 24;

/// The first hash after all those that share the first `prefix_len` bits of `hash`.
fn behind(hash: u64, prefix_len: u32) -> Option<u64> {
    let rest = u64::MAX.checked_shr(prefix_len).unwrap_or(0);
    (hash | rest).checked_add(1)
}

/// The first `bits` bits of `hash`, as an index (`ZAP_HASH_IDX`).
fn hash_index(hash: u64, bits: u64) -> u64 {
    if bits == 0 { 0 } else { hash >> (64 - bits) }
}

/// What adding does when the key is already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfPresent {
    Fail,
    Replace,
}

/// A fat ZAP during one operation.
pub(crate) struct Fat<'a> {
    dnode: &'a Dnode,
    pub(crate) header: Header,
    stored: Header,
}

impl<'a> Fat<'a> {
    /// Turns `dnode`, which already has the ZAP's block size, into an empty fat ZAP.
    pub(crate) fn create(
        dnode: &'a Dnode,
        tx: &Tx,
        block_shift: u32,
        salt: u64,
        flags: Flags,
    ) -> Result<Fat<'a>> {
        assert_eq!(
            dnode.blksz(),
            1 << block_shift,
            "block size of {}",
            dnode.id()
        );
        let header = Header::new(block_shift, salt, flags);
        let mut block = BlockBuf::zeroed(header.block_bytes());
        header.store(&mut block);
        let half = block.len() / 2;
        for pointer in block[half..].chunks_exact_mut(8) {
            put_word(pointer, 0, 1);
        }
        dnode.write_block(tx, BlkId(0), block.share())?;
        let mut leaf = BlockBuf::zeroed(header.block_bytes());
        Leaf::init(&mut leaf[..], 0, 0)?;
        dnode.write_block(tx, BlkId(1), leaf.share())?;
        Ok(Fat {
            dnode,
            header,
            stored: header,
        })
    }

    /// Opens `dnode` as a fat ZAP whose header block is `block`.
    pub(crate) fn open(dnode: &'a Dnode, block: &[u8]) -> Result<Fat<'a>> {
        let header = Header::parse(block)?;
        let table = &header.table;
        if table.numblks != 0 && table.blk + table.numblks > dnode.maxblkid().0 + 1 {
            return Err(Error::corrupt(format!(
                "zt_blk is {} with {} blocks in an object of {}",
                table.blk,
                table.numblks,
                dnode.maxblkid().0 + 1
            )));
        }
        Ok(Fat {
            dnode,
            header,
            stored: header,
        })
    }

    /// Calls `look` with the leaf and the entry of `key`, if there is one.
    pub(crate) fn lookup<R>(
        &self,
        key: &StoredKey,
        look: impl FnOnce(&Leaf<&[u8]>, &LeafEntry) -> Result<R>,
    ) -> Result<Option<R>> {
        let blk = self.pointer(hash_index(key.hash, self.header.table.shift))?;
        if blk == 0 {
            return Ok(None);
        }
        let block = self.leaf_block(blk, key.hash)?;
        let leaf = Leaf::open(&block[..])?;
        match leaf.find(key)? {
            Some(entry) => look(&leaf, &entry).map(Some),
            None => Ok(None),
        }
    }

    /// Calls `look` with the first entry at or after (`hash`, `cd`) in hash order.
    pub(crate) fn lookup_closest<R>(
        &self,
        mut hash: u64,
        mut cd: u32,
        look: impl FnOnce(&Leaf<&[u8]>, &LeafEntry) -> Result<R>,
    ) -> Result<Option<R>> {
        loop {
            let blk = self.pointer(hash_index(hash, self.header.table.shift))?;
            if blk == 0 {
                return Ok(None);
            }
            let block = self.leaf_block(blk, hash)?;
            let leaf = Leaf::open(&block[..])?;
            if let Some(entry) = leaf.find_closest(hash, cd)? {
                return look(&leaf, &entry).map(Some);
            }
            match behind(hash, leaf.prefix_len().into()) {
                Some(next) => (hash, cd) = (next, 0),
                None => return Ok(None),
            }
        }
    }

    /// Adds `key`, or replaces its value.
    pub(crate) fn put(
        &mut self,
        tx: &Tx,
        key: &StoredKey,
        cd: Option<u32>,
        value: &Value,
        if_present: IfPresent,
    ) -> Result<()> {
        let result = self.put_unstored(tx, key, cd, value, if_present);
        self.store_header(tx)?;
        result
    }

    /// Removes `key`; returns false if there is no such key.
    pub(crate) fn remove(&mut self, tx: &Tx, key: &StoredKey) -> Result<bool> {
        let blk = self.leaf_of(key.hash)?;
        let found = Leaf::open(&self.leaf_block(blk, key.hash)?[..])?.find(key)?;
        let Some(entry) = found else {
            return Ok(false);
        };
        let left = self.modify(tx, blk, |bytes| {
            let mut leaf = Leaf::open(bytes)?;
            leaf.remove(&entry)?;
            Ok(leaf.nentries())
        })?;
        self.header.num_entries = self.header.num_entries.saturating_sub(1);
        let result = if left == 0 {
            self.shrink(tx, key.hash)
        } else {
            Ok(())
        };
        self.store_header(tx)?;
        result.map(|()| true)
    }

    fn put_unstored(
        &mut self,
        tx: &Tx,
        key: &StoredKey,
        cd: Option<u32>,
        value: &Value,
        if_present: IfPresent,
    ) -> Result<()> {
        loop {
            let blk = self.leaf_of(key.hash)?;
            let found = Leaf::open(&self.leaf_block(blk, key.hash)?[..])?.find(key)?;
            if found.is_some() && if_present == IfPresent::Fail {
                return Err(Error::new(ErrorKind::Exists, "zap entry"));
            }
            let fit = self.modify(tx, blk, |bytes| {
                let mut leaf = Leaf::open(bytes)?;
                match &found {
                    Some(entry) => leaf.update(entry, value),
                    None => leaf.create(key, cd, value),
                }
            })?;
            if fit == Fit::Done {
                self.header.num_entries += u64::from(found.is_none());
                return self.grow_table_if_due(tx, blk);
            }
            self.expand_leaf(tx, key.hash, blk)?;
        }
    }

    fn store_header(&mut self, tx: &Tx) -> Result<()> {
        if self.header != self.stored {
            let header = self.header;
            self.modify(tx, 0, |block| {
                header.store(block);
                Ok(())
            })?;
            self.stored = header;
        }
        Ok(())
    }

    fn read(&self, blk: u64) -> Result<Buf> {
        let block = self.dnode.read_block(BlkId(blk))?;
        if block.len() != self.header.block_bytes() {
            return Err(Error::corrupt(format!(
                "zap block {blk} has {} bytes",
                block.len()
            )));
        }
        Ok(block)
    }

    fn modify<R>(
        &self,
        tx: &Tx,
        blk: u64,
        change: impl FnOnce(&mut [u8]) -> Result<R>,
    ) -> Result<R> {
        self.dnode.modify_block(tx, BlkId(blk), change)?
    }

    /// The block number of the leaf for `hash`.
    fn leaf_of(&self, hash: u64) -> Result<u64> {
        let blk = self.pointer(hash_index(hash, self.header.table.shift))?;
        if blk == 0 {
            return Err(Error::corrupt(format!("no zap leaf for hash {hash:#x}")));
        }
        Ok(blk)
    }

    /// Reads leaf block `blk` and checks that its prefix matches `hash`.
    fn leaf_block(&self, blk: u64, hash: u64) -> Result<Buf> {
        let block = self.read(blk)?;
        let leaf = Leaf::open(&block[..]).map_err(|e| e.within(format!("zap leaf {blk}")))?;
        if u64::from(leaf.prefix_len()) > self.header.table.shift
            || hash_index(hash, leaf.prefix_len().into()) != leaf.prefix()
        {
            return Err(Error::corrupt(format!(
                "zap leaf {blk} has prefix {:#x}/{}, hash {hash:#x}",
                leaf.prefix(),
                leaf.prefix_len()
            )));
        }
        Ok(block)
    }

    /// Pointer `index` of the table (`zap_idx_to_blk`).
    fn pointer(&self, index: u64) -> Result<u64> {
        let header = &self.header;
        let index_in = |mask: u64| 8 * (index & mask) as usize;
        if header.table.numblks == 0 {
            let at = header.block_bytes() / 2 + index_in((1 << header.embedded_shift()) - 1);
            return Ok(word(&self.read(0)?, at));
        }
        let per_block = header.block_shift - 3;
        let block = self.read(header.table.blk + (index >> per_block))?;
        Ok(word(&block, index_in((1 << per_block) - 1)))
    }

    /// Calls `look` with pointers `[index, index + count)`, reading each table block once.
    fn for_each_pointer(
        &self,
        index: u64,
        count: u64,
        mut look: impl FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let header = &self.header;
        if header.table.numblks == 0 {
            let block = self.read(0)?;
            let half = header.block_bytes() / 2;
            return (index..index + count)
                .try_for_each(|index| look(word(&block, half + 8 * index as usize)));
        }
        let per_block = 1u64 << (header.block_shift - 3);
        let mut at = index;
        while at < index + count {
            let block = self.read(header.table.blk + at / per_block)?;
            let end = (index + count).min((at / per_block + 1) * per_block);
            (at..end).try_for_each(|at| look(word(&block, 8 * (at % per_block) as usize)))?;
            at = end;
        }
        Ok(())
    }

    /// Counts what is in each leaf.
    #[doc(alias = "fzap_get_stats")]
    pub(crate) fn histograms(&self) -> Result<LeafHistograms> {
        let mut all = LeafHistograms::default();
        let mut hash = Some(0);
        // From leaf to leaf, not pointer by pointer: a table may claim to be far longer than what
        // is stored.
        while let Some(at) = hash {
            let blk = self.leaf_of(at)?;
            let block = self.leaf_block(blk, at)?;
            let leaf = Leaf::open(&block[..])?;
            leaf.count(self.header.table.shift, &mut all)?;
            hash = behind(at, leaf.prefix_len().into());
        }
        Ok(all)
    }

    /// Points `[index, index + count)` at `leaf`, in the larger copy too if one is being built.
    fn set_pointers(&self, tx: &Tx, index: u64, count: u64, leaf: u64) -> Result<()> {
        let table = &self.header.table;
        if table.numblks == 0 {
            let half = self.header.block_bytes() / 2;
            return self.modify(tx, 0, |block| {
                for at in index..index + count {
                    put_word(block, half + 8 * at as usize, leaf);
                }
                Ok(())
            });
        }
        self.fill_table(tx, table.blk, index, count, leaf)?;
        if table.nextblk != 0 {
            self.fill_table(tx, table.nextblk, 2 * index, 2 * count, leaf)?;
        }
        Ok(())
    }

    fn fill_table(&self, tx: &Tx, blk: u64, index: u64, count: u64, leaf: u64) -> Result<()> {
        let per_block = 1u64 << (self.header.block_shift - 3);
        let mut at = index;
        while at < index + count {
            let end = (index + count).min((at / per_block + 1) * per_block);
            self.modify(tx, blk + at / per_block, |block| {
                for at in at..end {
                    put_word(block, 8 * (at % per_block) as usize, leaf);
                }
                Ok(())
            })?;
            at = end;
        }
        Ok(())
    }

    fn allocate_blocks(&mut self, count: u64) -> u64 {
        let first = self.header.freeblk;
        self.header.freeblk += count;
        first
    }

    /// Splits the full leaf `blk` for `hash`, after growing the table as far as that needs.
    fn expand_leaf(&mut self, tx: &Tx, hash: u64, blk: u64) -> Result<()> {
        let block = self.leaf_block(blk, hash)?;
        let leaf = Leaf::open(&block[..])?;
        leaf.verify()
            .map_err(|e| e.within(format!("zap leaf {blk}")))?;
        let prefix_len = u64::from(leaf.prefix_len());
        drop(block);
        while self.header.table.shift == prefix_len {
            if prefix_len > GROWN_AT_ONCE_SHIFT_MAX {
                let what =
                    format!("zap pointer table of 2^{prefix_len} entries is to grow at once");
                return Err(Error::new(ErrorKind::NoSpace, what));
            }
            self.grow_table(tx)?;
        }
        let spare_bits = self.header.table.shift - (prefix_len + 1);
        if spare_bits > SPARE_BITS_MAX {
            let shift = self.header.table.shift;
            return Err(Error::corrupt(format!(
                "zap leaf {blk} with {prefix_len} bits of prefix is full, zt_shift is {shift}"
            )));
        }
        let first = (hash_index(hash, prefix_len + 1) | 1) << spare_bits;
        self.for_each_pointer(first, 1 << spare_bits, |pointer| {
            if pointer == blk {
                return Ok(());
            }
            Err(Error::corrupt(format!(
                "zap pointer to leaf {pointer} where {blk} belongs"
            )))
        })?;
        let sibling_blk = self.allocate_blocks(1);
        let mut sibling = BlockBuf::zeroed(self.header.block_bytes());
        self.modify(tx, blk, |bytes| Leaf::open(bytes)?.split(&mut sibling))?;
        self.dnode
            .write_block(tx, BlkId(sibling_blk), sibling.share())?;
        self.header.num_leafs += 1;
        self.set_pointers(tx, first, 1 << spare_bits, sibling_blk)
    }

    /// Takes one step of growing the table if that is under way, or if leaf `blk` will soon need it.
    fn grow_table_if_due(&mut self, tx: &Tx, blk: u64) -> Result<()> {
        let block = self.read(blk)?;
        let leaf = Leaf::open(&block[..])?;
        let is_leaf_full = u64::from(leaf.prefix_len()) == self.header.table.shift
            && leaf.nfree() < LOW_WATER_CHUNKS;
        drop(block);
        if is_leaf_full || self.header.table.nextblk != 0 {
            match self.grow_table(tx) {
                // The entry is stored; the call that really needs a larger table reports the error.
                Err(error) if error.kind() == ErrorKind::NoSpace => {}
                result => return result,
            }
        }
        Ok(())
    }

    /// Takes one step towards a table of twice the size (`zap_grow_ptrtbl`).
    fn grow_table(&mut self, tx: &Tx) -> Result<()> {
        if self.header.table.shift + 2 >= u64::from(self.header.flags.hash_bits()) {
            return Err(Error::new(
                ErrorKind::NoSpace,
                "zap pointer table is at its largest",
            ));
        }
        if self.header.table.numblks != 0 {
            return self.copy_table_step(tx);
        }
        let block = self.read(0)?;
        let mut grown = BlockBuf::zeroed(block.len());
        double(&block[block.len() / 2..], &mut grown);
        drop(block);
        let blk = self.allocate_blocks(1);
        self.dnode.write_block(tx, BlkId(blk), grown.share())?;
        let shift = self.header.table.shift + 1;
        self.header.table = Table {
            blk,
            numblks: 1,
            shift,
            ..Table::default()
        };
        Ok(())
    }

    fn copy_table_step(&mut self, tx: &Tx) -> Result<()> {
        let table = self.header.table;
        if table.nextblk == 0 {
            self.header.table.nextblk = self.allocate_blocks(table.numblks * 2);
        }
        let nextblk = self.header.table.nextblk;
        let old = self.read(table.blk + table.blks_copied)?;
        for (half, pointers) in old.chunks_exact(old.len() / 2).enumerate() {
            let mut grown = BlockBuf::zeroed(old.len());
            double(pointers, &mut grown);
            let blk = nextblk + 2 * table.blks_copied + half as u64;
            self.dnode.write_block(tx, BlkId(blk), grown.share())?;
        }
        self.header.table.blks_copied += 1;
        if self.header.table.blks_copied == table.numblks {
            self.free_blocks(tx, table.blk, table.numblks)?;
            self.header.table = Table {
                blk: nextblk,
                numblks: 2 * table.numblks,
                shift: table.shift + 1,
                ..Table::default()
            };
        }
        Ok(())
    }

    fn free_blocks(&self, tx: &Tx, blk: u64, count: u64) -> Result<()> {
        let shift = self.header.block_shift;
        self.dnode.free_range(tx, blk << shift, count << shift)
    }

    /// Merges the empty leaf of `hash` with its sibling for as long as that is empty too.
    fn shrink(&mut self, tx: &Tx, hash: u64) -> Result<()> {
        let shift = self.header.table.shift;
        let mut is_last_freed = false;
        loop {
            let blk = self.leaf_of(hash)?;
            let block = self.leaf_block(blk, hash)?;
            let leaf = Leaf::open(&block[..])?;
            let (prefix, prefix_len) = (leaf.prefix(), u64::from(leaf.prefix_len()));
            drop(block);
            let Some(sibling) = self.empty_sibling(prefix, prefix_len)? else {
                break;
            };
            let (kept, freed) = if prefix & 1 == 0 {
                (blk, sibling)
            } else {
                (sibling, blk)
            };
            let spare_bits = shift - prefix_len;
            self.set_pointers(tx, (prefix | 1) << spare_bits, 1 << spare_bits, kept)?;
            is_last_freed |= freed + 1 == self.header.freeblk;
            self.free_blocks(tx, freed, 1)?;
            self.header.num_leafs = self.header.num_leafs.saturating_sub(1);
            self.modify(tx, kept, |bytes| Leaf::open(bytes)?.widen())?;
        }
        if is_last_freed {
            self.lower_freeblk()
        } else {
            Ok(())
        }
    }

    /// The block of the leaf whose prefix differs only in the last bit, if it is one empty leaf.
    fn empty_sibling(&self, prefix: u64, prefix_len: u64) -> Result<Option<u64>> {
        if prefix_len == 0 {
            return Ok(None);
        }
        let spare_bits = self.header.table.shift - prefix_len;
        if spare_bits > SPARE_BITS_MAX {
            return Ok(None);
        }
        let first_index = (prefix ^ 1) << spare_bits;
        let first = self.pointer(first_index)?;
        let last = self.pointer(first_index + (1 << spare_bits) - 1)?;
        if first != last || first == 0 {
            return Ok(None);
        }
        let block = self.leaf_block(first, (prefix ^ 1) << (64 - prefix_len))?;
        let leaf = Leaf::open(&block[..])?;
        let is_match = u64::from(leaf.prefix_len()) == prefix_len && leaf.nentries() == 0;
        Ok(is_match.then_some(first))
    }

    /// Lowers `zap_freeblk` to give back the unused blocks at the end (`zap_trunc`).
    fn lower_freeblk(&mut self) -> Result<()> {
        let table = self.header.table;
        if table.shift > TRIMMED_SHIFT_MAX {
            return Ok(());
        }
        let mut last = (table.blk + table.numblks).saturating_sub(1);
        if table.nextblk != 0 {
            last = last.max(table.nextblk + 2 * table.numblks - 1);
        }
        self.for_each_pointer(0, 1 << table.shift, |pointer| {
            last = last.max(pointer);
            Ok(())
        })?;
        if last < self.header.freeblk {
            self.header.freeblk = last + 1;
        }
        Ok(())
    }
}

/// Writes each pointer of `from` (half a block) twice into `to` (a whole block).
fn double(from: &[u8], to: &mut [u8]) {
    for (pointer, pair) in from.chunks_exact(8).zip(to.chunks_exact_mut(16)) {
        pair[..8].copy_from_slice(pointer);
        pair[8..].copy_from_slice(pointer);
    }
}
