//! A ZAP that is open: one lock around a micro or fat ZAP, and the change from one to the other.
//!
//! # Concurrency
//! Each dnode has one [`State`], shared by all its handles and locked by many readers or one writer.
//! The lock is held while blocks are read. Both open-context and syncing transactions may write.
//!
//! # Source
//! OpenZFS `module/zfs/zap.c`, `module/zfs/zap_impl.c` (`zap_lock`), `module/zfs/zap_micro.c`
//! (`mzap_upgrade`).

use std::sync::Arc;

use base::{BlkId, BlockBuf, Buf, Context, Error, ErrorKind, Result, SPA_MINBLOCKSIZE};
use dmu::{Dnode, Objset, Tx};
use phys::ObjectType;
use phys::zap::{FZAP_DEFAULT_BLOCK_SHIFT, MZAP_NAME_LEN, ZBT_HEADER, ZBT_MICRO};
use rt::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use crate::fat::{Fat, Header, IfPresent};
use crate::key::Key;
use crate::micro::{self, MICRO_MAX_BYTES, MicroIndex};
use crate::value::{self, Flags, Integer, MAX_NAME_BYTES, StoredKey, Value};

/// State shared by all handles of one ZAP; lives as long as its dnode is held.
#[derive(Default)]
pub(crate) struct State {
    /// The index of a micro ZAP; `None` until it is needed, and always `None` for a fat ZAP.
    index: RwLock<Option<MicroIndex>>,
}

/// An open ZAP; holds its dnode.
#[derive(Clone)]
#[doc(alias = "zap_t")]
pub struct Zap {
    dnode: Arc<Dnode>,
    state: Arc<State>,
}

/// The result of [`Zap::stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "zap_stats_t")]
pub struct Stats {
    /// Whether it is a micro ZAP; the fields about leaves and the pointer table are then 0.
    pub is_micro: bool,
    /// Bytes per block.
    pub block_bytes: u64,
    /// Blocks, holes included.
    pub blocks: u64,
    /// Leaf blocks.
    pub leafs: u64,
    /// Entries.
    pub entries: u64,
    /// The salt of the hash.
    pub salt: u64,
    /// Flags.
    pub flags: Flags,
    /// First block of the pointer table; 0 while it is in the header block.
    pub table_blk: u64,
    /// Blocks of the pointer table; 0 while it is in the header block.
    pub table_blocks: u64,
    /// log2 of the number of pointers.
    pub table_shift: u64,
    /// First block of the larger table being built, or 0.
    pub table_nextblk: u64,
    /// Blocks of the table already copied to the larger one.
    pub table_blks_copied: u64,
}

/// Buckets in each histogram of [`LeafHistograms`]; the last one also counts everything larger.
pub(crate) const HISTOGRAM_SIZE: usize = 10;

/// How full the leaves of a fat ZAP are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "zap_stats_t")]
pub struct LeafHistograms {
    /// Leaves by log2 of the number of table pointers to them.
    pub leafs_with_2n_pointers: [u64; HISTOGRAM_SIZE],
    /// Leaves by number of entries divided by 5.
    pub blocks_with_n5_entries: [u64; HISTOGRAM_SIZE],
    /// Leaves by tenths of the block in use.
    pub blocks_n_tenths_full: [u64; HISTOGRAM_SIZE],
    /// Entries by number of chunks.
    pub entries_using_n_chunks: [u64; HISTOGRAM_SIZE],
    /// Hash chains by length.
    pub buckets_with_n_entries: [u64; HISTOGRAM_SIZE],
}

/// An entry as a cursor returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "zap_attribute_t")]
pub struct Entry {
    /// The name, without NUL; for keys made of words, their big-endian bytes.
    pub name: Vec<u8>,
    /// Bytes per integer of the value: 1, 2, 4 or 8.
    pub integer_size: u8,
    /// Integers in the value.
    pub num_integers: u64,
    /// The first of them; 0 if there is none.
    pub first_integer: u64,
    pub(crate) hash: u64,
    pub(crate) cd: u32,
}

impl Entry {
    /// The name as text; bytes that are not UTF-8 become U+FFFD.
    #[must_use]
    pub fn name_str(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.name)
    }

    /// The words of a key made of words.
    #[must_use]
    pub fn words(&self) -> Vec<u64> {
        self.name
            .chunks_exact(8)
            .map(value::from_big_endian)
            .collect()
    }

    /// The name parsed as a hexadecimal number (`zfs_strtonum`, base 16).
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the name is not one.
    pub fn int_key(&self) -> Result<u64> {
        let text = std::str::from_utf8(&self.name).ok();
        let number = text.and_then(|text| u64::from_str_radix(text, 16).ok());
        number.ok_or_else(|| Error::corrupt(format!("zap name \"{}\"", self.name_str())))
    }
}

/// The kind of ZAP, as its first block says.
enum Kind {
    Micro,
    Fat,
}

fn kind_of(block: &[u8]) -> Result<Kind> {
    let prefix = U64::read_from_prefix(block).map(|(word, _)| word.get());
    match prefix.unwrap_or(0) {
        ZBT_MICRO => Ok(Kind::Micro),
        ZBT_HEADER => Ok(Kind::Fat),
        other => Err(Error::corrupt(format!("zap_block_type is {other:#x}"))),
    }
}

impl Zap {
    /// Opens the ZAP in `dnode`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the object is not of a type that is a ZAP.
    pub fn new(dnode: Arc<Dnode>) -> Result<Zap> {
        if !dnode.type_().is_zap() {
            let (id, type_) = (dnode.id(), dnode.type_().name());
            return Err(Error::invalid(format!(
                "object {id} is not a zap but \"{type_}\""
            )));
        }
        let state = dnode.user(State::default);
        Ok(Zap { dnode, state })
    }

    /// Opens the ZAP that is object `id`.
    ///
    /// # Errors
    /// As [`Zap::new`], and any error of reading the dnode.
    pub fn open(objset: &Objset, id: base::ObjectId) -> Result<Zap> {
        Zap::new(objset.hold(id)?)
    }

    /// The object that the ZAP is in.
    #[must_use]
    pub fn dnode(&self) -> &Arc<Dnode> {
        &self.dnode
    }

    /// Turns a new dnode into an empty ZAP.
    pub(crate) fn init(dnode: &Dnode, tx: &Tx, flags: Flags) -> Result<()> {
        let salt = rt::random_u64() | 1;
        if flags.allow_micro() {
            let mut block = BlockBuf::zeroed(dnode.blksz() as usize);
            micro::init(&mut block, salt, flags);
            return dnode.write_block(tx, BlkId(0), block.share());
        }
        let shift = dnode.blksz().trailing_zeros();
        Fat::create(dnode, tx, shift, salt, flags).map(|_| ())
    }

    /// The value of `key` as integers of type `T`, which must be at least as wide as the stored
    /// ones; `None` if there is no such key.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if `T` is too narrow; I/O and corruption.
    #[doc(alias = "zap_lookup")]
    pub fn lookup<'k, T: Integer>(&self, key: impl Into<Key<'k>>) -> Result<Option<Vec<T>>> {
        self.lookup_with(&key.into(), |found| match found {
            Found::Single(value) => value::integers(&value::big_endian(value), 8),
            Found::Leaf(leaf, entry) => value::integers(&leaf.value(entry)?, entry.integer_size),
        })
    }

    /// The value of `key`, which must be one integer; `None` if there is no such key.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the value is an array; I/O and corruption.
    #[doc(alias = "zap_lookup")]
    pub fn lookup_u64<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<u64>> {
        self.lookup_with(&key.into(), |found| match found {
            Found::Single(value) => Ok(value),
            Found::Leaf(leaf, entry) if entry.value_numints == 1 => leaf.first_integer(entry),
            Found::Leaf(_, entry) => {
                let count = entry.value_numints;
                Err(Error::invalid(format!(
                    "zap value has {count} integers, asked for one"
                )))
            }
        })
    }

    /// The value of `key` as text, up to its NUL.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is not UTF-8; [`ErrorKind::InvalidInput`] if its integers are
    /// not bytes.
    pub fn lookup_str<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<String>> {
        let Some(mut bytes) = self.lookup::<u8>(key)? else {
            return Ok(None);
        };
        bytes.truncate(
            bytes
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(bytes.len()),
        );
        let text = String::from_utf8(bytes);
        text.map(Some)
            .map_err(|_| Error::corrupt("zap value is not utf-8"))
    }

    /// The size in bytes of the value's integers and their number.
    ///
    /// # Errors
    /// I/O and corruption.
    #[doc(alias = "zap_length")]
    pub fn length<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<(u8, u64)>> {
        self.lookup_with(&key.into(), |found| match found {
            Found::Single(_) => Ok((8, 1)),
            Found::Leaf(_, entry) => Ok((entry.integer_size, entry.value_numints.into())),
        })
    }

    /// Whether there is such a key.
    ///
    /// # Errors
    /// I/O and corruption.
    #[doc(alias = "zap_contains")]
    pub fn contains<'k>(&self, key: impl Into<Key<'k>>) -> Result<bool> {
        Ok(self.length(key)?.is_some())
    }

    /// Adds `key`, which must not exist yet.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`], [`ErrorKind::NameTooLong`], [`ErrorKind::TooBig`],
    /// [`ErrorKind::NoSpace`] (too many equal hashes); I/O and corruption.
    #[doc(alias = "zap_add")]
    pub fn add<'k, T: Integer>(&self, tx: &Tx, key: impl Into<Key<'k>>, value: &[T]) -> Result<()> {
        self.put(tx, &key.into(), &Value::of(value)?, IfPresent::Fail)
    }

    /// Sets the value of `key`, whether or not it exists.
    ///
    /// # Errors
    /// As [`Zap::add`], except `Exists`.
    #[doc(alias = "zap_update")]
    pub fn update<'k, T: Integer>(
        &self,
        tx: &Tx,
        key: impl Into<Key<'k>>,
        value: &[T],
    ) -> Result<()> {
        self.put(tx, &key.into(), &Value::of(value)?, IfPresent::Replace)
    }

    /// [`add`](Zap::add) of one 64-bit integer.
    ///
    /// # Errors
    /// As [`Zap::add`].
    pub fn add_u64<'k>(&self, tx: &Tx, key: impl Into<Key<'k>>, value: u64) -> Result<()> {
        self.add(tx, key, &[value])
    }

    /// [`update`](Zap::update) to one 64-bit integer.
    ///
    /// # Errors
    /// As [`Zap::update`].
    pub fn update_u64<'k>(&self, tx: &Tx, key: impl Into<Key<'k>>, value: u64) -> Result<()> {
        self.update(tx, key, &[value])
    }

    /// [`update`](Zap::update) to the bytes of `text` and a NUL.
    ///
    /// # Errors
    /// As [`Zap::update`].
    pub fn update_str<'k>(&self, tx: &Tx, key: impl Into<Key<'k>>, text: &str) -> Result<()> {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.update(tx, key, &bytes)
    }

    /// Adds `delta` to a counter; a counter that becomes 0 is removed.
    ///
    /// # Errors
    /// As [`Zap::update`].
    #[doc(alias = "zap_increment")]
    pub fn increment<'k>(&self, tx: &Tx, key: impl Into<Key<'k>>, delta: i64) -> Result<()> {
        if delta == 0 {
            return Ok(());
        }
        let key = key.into();
        let old = self.lookup_u64(key.clone())?;
        match old.unwrap_or(0).wrapping_add_signed(delta) {
            0 if old.is_none() => Ok(()),
            0 => self.remove(tx, key),
            new => self.update_u64(tx, key, new),
        }
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; I/O and corruption.
    #[doc(alias = "zap_remove")]
    pub fn remove<'k>(&self, tx: &Tx, key: impl Into<Key<'k>>) -> Result<()> {
        let key = key.into();
        if self.remove_if_present(tx, key.clone())? {
            return Ok(());
        }
        Err(Error::not_found(format!("zap entry {key}")))
    }

    /// Removes `key`; returns false if there is no such key.
    ///
    /// # Errors
    /// I/O and corruption.
    pub fn remove_if_present<'k>(&self, tx: &Tx, key: impl Into<Key<'k>>) -> Result<bool> {
        let key = key.into();
        let (mut index, block) = self.write()?;
        if let Some(index) = index.as_mut() {
            let Key::Name(name) = &key.by_name() else {
                return Err(Error::invalid(
                    "words were given to a zap whose keys are names",
                ));
            };
            let Some(entry) = index.find(&block, name) else {
                return Ok(false);
            };
            let (chunk, cd) = (entry.chunk, entry.cd);
            drop(block);
            self.modify_first(tx, |block| micro::clear_entry(block, chunk))?;
            index.remove(name, cd);
            return Ok(true);
        }
        let mut fat = Fat::open(&self.dnode, &block)?;
        drop(block);
        let stored = StoredKey::new(&key, fat.header.salt, fat.header.flags)?;
        fat.remove(tx, &stored).within(|| self.name())
    }

    /// The number of entries.
    ///
    /// # Errors
    /// I/O and corruption.
    #[doc(alias = "zap_count")]
    pub fn count(&self) -> Result<u64> {
        let (index, block) = self.read()?;
        match index.as_ref() {
            Some(index) => Ok(index.len() as u64),
            None => Ok(Header::parse(&block)?.num_entries),
        }
    }

    /// The name of the first entry whose value agrees with `value` in the bits of `mask`.
    ///
    /// # Errors
    /// I/O and corruption.
    #[doc(alias = "zap_value_search")]
    pub fn value_search(&self, value: u64, mask: u64) -> Result<Option<Vec<u8>>> {
        for entry in self {
            let entry = entry?;
            if entry.first_integer & mask == value & mask {
                return Ok(Some(entry.name));
            }
        }
        Ok(None)
    }

    /// Size and shape of the ZAP, for debugging.
    ///
    /// # Errors
    /// I/O and corruption.
    #[doc(alias = "zap_get_stats")]
    pub fn stats(&self) -> Result<Stats> {
        let (index, block) = self.read()?;
        let block_bytes = block.len() as u64;
        if let Some(index) = index.as_ref() {
            return Ok(Stats {
                is_micro: true,
                block_bytes,
                blocks: 1,
                entries: index.len() as u64,
                salt: index.salt,
                flags: index.flags,
                ..Stats::default()
            });
        }
        let header = Header::parse(&block)?;
        Ok(Stats {
            is_micro: false,
            block_bytes,
            blocks: header.freeblk,
            leafs: header.num_leafs,
            entries: header.num_entries,
            salt: header.salt,
            flags: header.flags,
            table_blk: header.table.blk,
            table_blocks: header.table.numblks,
            table_shift: header.table.shift,
            table_nextblk: header.table.nextblk,
            table_blks_copied: header.table.blks_copied,
        })
    }

    /// How full the leaves of a fat ZAP are; all zero for a micro ZAP.
    ///
    /// # Errors
    /// I/O and corruption.
    #[doc(alias = "zap_leaf_stats")]
    pub fn leaf_histograms(&self) -> Result<LeafHistograms> {
        let (index, block) = self.read()?;
        if index.is_some() {
            return Ok(LeafHistograms::default());
        }
        Fat::open(&self.dnode, &block)?.histograms()
    }

    /// The flags of the ZAP.
    pub(crate) fn flags(&self) -> Result<Flags> {
        Ok(self.stats()?.flags)
    }

    /// The first entry at or after (`hash`, `cd`) in hash order.
    pub(crate) fn closest(&self, hash: u64, cd: u32) -> Result<Option<Entry>> {
        let (index, block) = self.read()?;
        if let Some(index) = index.as_ref() {
            return Ok(index.find_closest(hash, cd).map(|(hash, chunk)| {
                let entry = micro::entry(&block, chunk);
                Entry {
                    name: entry.name.to_vec(),
                    integer_size: 8,
                    num_integers: 1,
                    first_integer: entry.value,
                    hash,
                    cd: entry.cd,
                }
            }));
        }
        let fat = Fat::open(&self.dnode, &block)?;
        let has_words = fat.header.flags.contains(Flags::UINT64_KEY);
        let found = fat.lookup_closest(hash, cd, |leaf, entry| {
            let mut name = leaf.key(entry, if has_words { 8 } else { 1 })?;
            if !has_words {
                name.truncate(
                    name.iter()
                        .position(|byte| *byte == 0)
                        .unwrap_or(name.len()),
                );
            }
            Ok(Entry {
                name,
                integer_size: entry.integer_size,
                num_integers: entry.value_numints.into(),
                first_integer: leaf.first_integer(entry)?,
                hash: entry.hash,
                cd: entry.cd,
            })
        });
        found.within(|| self.name())
    }

    fn name(&self) -> String {
        format!("zap {}", self.dnode.id())
    }

    /// Takes the lock for reading; the index is `Some` if it is a micro ZAP.
    fn read(&self) -> Result<(RwLockReadGuard<'_, Option<MicroIndex>>, Buf)> {
        loop {
            let index = self.state.index.read();
            let block = self.dnode.read_block(BlkId(0))?;
            match kind_of(&block).within(|| self.name())? {
                Kind::Micro if index.is_none() => {}
                _ => return Ok((index, block)),
            }
            drop(index);
            drop(self.write()?);
        }
    }

    /// Takes the lock for writing; the index is `Some` if it is a micro ZAP.
    fn write(&self) -> Result<(RwLockWriteGuard<'_, Option<MicroIndex>>, Buf)> {
        let mut index = self.state.index.write();
        let block = self.dnode.read_block(BlkId(0))?;
        match kind_of(&block).within(|| self.name())? {
            Kind::Micro if index.is_none() => {
                *index = Some(MicroIndex::build(&block).within(|| self.name())?);
            }
            Kind::Micro => {}
            Kind::Fat => *index = None,
        }
        Ok((index, block))
    }

    fn modify_first(&self, tx: &Tx, change: impl FnOnce(&mut [u8])) -> Result<()> {
        self.dnode.modify_block(tx, BlkId(0), change)
    }

    fn lookup_with<R>(
        &self,
        key: &Key<'_>,
        look: impl FnOnce(Found<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        let (index, block) = self.read()?;
        if let Some(index) = index.as_ref() {
            let Key::Name(name) = &key.by_name() else {
                return Err(Error::invalid(
                    "words were given to a zap whose keys are names",
                ));
            };
            let found = index.find(&block, name);
            return found
                .map(|entry| look(Found::Single(entry.value)))
                .transpose();
        }
        let fat = Fat::open(&self.dnode, &block)?;
        drop(block);
        let stored = StoredKey::new(key, fat.header.salt, fat.header.flags)?;
        let found = fat.lookup(&stored, |leaf, entry| look(Found::Leaf(leaf, entry)));
        found.within(|| self.name())
    }

    fn put(&self, tx: &Tx, key: &Key<'_>, value: &Value, if_present: IfPresent) -> Result<()> {
        let key = key.by_name();
        self.check_key_length(&key)?;
        let (mut index, block) = self.write()?;
        if index.is_some() {
            if let Some(block) = self.micro_with_room(tx, &mut index, block)?
                && self.put_micro(tx, &mut index, block, &key, value, if_present)?
            {
                return Ok(());
            }
        } else {
            drop(block);
        }
        let block = self.dnode.read_block(BlkId(0))?;
        let mut fat = Fat::open(&self.dnode, &block)?;
        drop(block);
        let stored = StoredKey::new(&key, fat.header.salt, fat.header.flags)?;
        let result = fat.put(tx, &stored, None, value, if_present);
        result.within(|| format!("{}, {key}", self.name()))
    }

    /// Refuses names of more than 255 bytes, except in directories.
    fn check_key_length(&self, key: &Key<'_>) -> Result<()> {
        let Key::Name(name) = key else {
            return Ok(());
        };
        let is_directory = self.dnode.type_() == ObjectType::DIRECTORY_CONTENTS;
        if name.len() >= MAX_NAME_BYTES && !is_directory {
            return Err(Error::new(
                ErrorKind::NameTooLong,
                format!("a name of {} bytes in {}", name.len(), self.name()),
            ));
        }
        Ok(())
    }

    /// Ensures that a micro ZAP has a free entry; `None` if it had to become fat for that.
    fn micro_with_room(
        &self,
        tx: &Tx,
        index: &mut Option<MicroIndex>,
        block: Buf,
    ) -> Result<Option<Buf>> {
        let used = index.as_ref().map_or(0, MicroIndex::len);
        if used < micro::entries_of_block(block.len()) {
            return Ok(Some(block));
        }
        let grown = block.len() as u64 + SPA_MINBLOCKSIZE;
        if grown > MICRO_MAX_BYTES {
            self.upgrade(tx, index, &block)?;
            return Ok(None);
        }
        drop(block);
        self.dnode.set_blksz(tx, grown)?;
        self.dnode.read_block(BlkId(0)).map(Some)
    }

    /// Puts an entry into a micro ZAP; false if it had to become fat for that.
    fn put_micro(
        &self,
        tx: &Tx,
        index: &mut Option<MicroIndex>,
        block: Buf,
        key: &Key<'_>,
        value: &Value,
        if_present: IfPresent,
    ) -> Result<bool> {
        let Key::Name(name) = key else {
            return Err(Error::invalid(
                "words were given to a zap whose keys are names",
            ));
        };
        let micro_index = index.as_mut().expect("called for micro zaps");
        StoredKey::new(key, micro_index.salt, micro_index.flags)?;
        let (Some(single), true) = (value.single(), name.len() < MZAP_NAME_LEN) else {
            return self.upgrade(tx, index, &block).map(|()| false);
        };
        match micro_index.find(&block, name).map(|entry| entry.chunk) {
            Some(_) if if_present == IfPresent::Fail => Err(Error::new(
                ErrorKind::Exists,
                format!("{}, {key}", self.name()),
            )),
            Some(chunk) => {
                drop(block);
                self.modify_first(tx, |block| micro::put_value(block, chunk, single))?;
                Ok(true)
            }
            None if !micro_index.fits_leaf(name, FZAP_DEFAULT_BLOCK_SHIFT) => {
                self.upgrade(tx, index, &block).map(|()| false)
            }
            None => {
                let (chunk, cd) = micro_index.allocate(&block, name);
                drop(block);
                let put = |block: &mut [u8]| micro::put_entry(block, chunk, name, cd, single);
                self.modify_first(tx, put)
                    .inspect_err(|_| micro_index.remove(name, cd))?;
                Ok(true)
            }
        }
    }

    /// Turns a micro ZAP into a fat one with the same salt, so that hashes and cursors stay valid.
    fn upgrade(&self, tx: &Tx, index: &mut Option<MicroIndex>, block: &Buf) -> Result<()> {
        let micro = index.as_ref().expect("only a micro zap is upgraded");
        let (salt, flags) = (micro.salt, micro.flags);
        self.dnode.set_blksz(tx, 1 << FZAP_DEFAULT_BLOCK_SHIFT)?;
        *index = None;
        let shift = FZAP_DEFAULT_BLOCK_SHIFT;
        let mut fat = Fat::create(&self.dnode, tx, shift, salt, flags)?;
        for entry in micro::entries(block) {
            let key = StoredKey::new(&Key::Name(entry.name.into()), salt, flags)?;
            let value = Value::of(&[entry.value])?;
            fat.put(tx, &key, Some(entry.cd), &value, IfPresent::Fail)?;
        }
        Ok(())
    }
}

/// What a look-up found.
enum Found<'a> {
    Single(u64),
    Leaf(&'a crate::leaf::Leaf<&'a [u8]>, &'a crate::leaf::LeafEntry),
}
