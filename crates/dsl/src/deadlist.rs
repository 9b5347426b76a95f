//! Deadlists: the blocks that a dataset no longer references but its predecessor does.
//!
//! # What it is
//! When a head overwrites or frees a block that its most recent snapshot still references, the
//! block cannot be freed; it goes on the head's deadlist. Taking a snapshot hands the list to the
//! snapshot and gives the head an empty one. So the deadlist of a dataset D with predecessor P
//! holds exactly the blocks that P references and D does not (born at or before P, dead in D), and
//! destroying P does not read any file system tree: on the successor's deadlist, the blocks born
//! after P's predecessor are referenced by nothing else and are freed; the rest stays on a list.
//!
//! The list is split by birth txg at each earlier snapshot, so for every snapshot X the blocks
//! "born after X" are a whole number of sublists, which can be moved without reading the block
//! pointers.
//!
//! # On disk
//! A ZAP of type DEADLIST: hexadecimal mintxg -> object number of a bpobj with the blocks born
//! after mintxg and not after the next larger key. Bonus DEADLIST_HDR: used, comp, uncomp.
//!
//! Before version 26 a deadlist is one bpobj with all blocks. Such a list is read as it is. When it, or one that is
//! made after it, is to be changed, it is first split ([`split_off`](Deadlist::split_off)): its blocks go to a list of
//! today's format, whose keys are those that it would have had. So there is one format to change, a pool has old lists
//! only of data sets that nothing has happened to since it was upgraded, here or by OpenZFS, and an upgrade reads none
//! of them. OpenZFS keeps old lists and goes through all blocks of one at each destruction of a snapshot.
//!
//! # Invariants
//! 1. The smallest key is 0 (no block is born earlier); the others are the creation txgs of the
//!    dataset's predecessors when its list was created, without those destroyed since.
//! 2. The bonus has the sums over all entries.
//!
//! # Crash argument
//! Everything here changes the MOS in syncing context: it is all on disk with the txg's uberblock,
//! or not at all.
//!
//! # Concurrency
//! Every method with `&mut` is called with the owner's lock (that of the dataset) held.
//!
//! # Source
//! OpenZFS module/zfs/dsl_deadlist.c @be7657e3

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result};
use dmu::{Dnode, Tx};
use phys::dsl::DeadlistPhys;
use phys::{BlkPtrPhys, ObjectType, Phys};
use zerocopy::IntoBytes;

use crate::bpobj::Bpobj;
use crate::fields::check_bytes;
use crate::mos::Mos;
use crate::size::{Space, apply};

/// Blocks that are moved at a time when an old list is split.
const SPLIT_BLOCKS: usize = 1024;

/// An open deadlist.
pub struct Deadlist {
    mos: Arc<Mos>,
    dnode: Arc<Dnode>,
    /// The entries, loaded on first use.
    tree: Option<BTreeMap<u64, ObjectId>>,
    /// dl_oldfmt: one list of all blocks, as pools before version 26 have it; it is only read
    is_old: bool,
}

impl Deadlist {
    /// Allocates a deadlist without any key.
    ///
    /// # Errors
    /// Any error from the MOS.
    #[doc(alias = "dsl_deadlist_alloc")]
    pub fn alloc(mos: &Mos, tx: &Tx) -> Result<ObjectId> {
        let bonus = ObjectType::DEADLIST_HDR;
        mos.zap_create_bonus(ObjectType::DEADLIST, bonus, DeadlistPhys::SIZE, tx)
    }

    /// Opens a deadlist.
    ///
    /// # Errors
    /// `Corrupt` for another object.
    #[doc(alias = "dsl_deadlist_open")]
    pub fn open(mos: &Arc<Mos>, object: ObjectId) -> Result<Deadlist> {
        let dnode = mos.hold(object)?;
        let type_ = dnode.type_();
        let is_old = type_ == ObjectType::BPOBJ;
        if !is_old && type_ != ObjectType::DEADLIST {
            return Err(Error::corrupt(format!(
                "object {object} is {type_:?}, not a deadlist"
            )));
        }
        Ok(Deadlist {
            mos: mos.clone(),
            dnode,
            tree: None,
            is_old,
        })
    }

    /// Frees the object and all its lists, but not the blocks listed.
    ///
    /// # Errors
    /// Any error from the MOS.
    #[doc(alias = "dsl_deadlist_free")]
    pub fn free(mos: &Arc<Mos>, object: ObjectId, tx: &Tx) -> Result<()> {
        if Deadlist::open(mos, object)?.is_old {
            return Bpobj::free(mos, object, tx);
        }
        for (_, list) in mos.zap_int_entries(object)? {
            let list = ObjectId(list);
            if Some(list) == mos.empty_bpobj() {
                Bpobj::release_empty(mos, tx)?;
            } else {
                Bpobj::free(mos, list, tx)?;
            }
        }
        mos.free_object(object, tx)
    }

    /// The object's number.
    #[must_use]
    pub fn object(&self) -> ObjectId {
        self.dnode.id()
    }

    /// Whether it is one list of all blocks, which is split before it is changed.
    pub(crate) fn is_old(&self) -> bool {
        self.is_old
    }

    /// A new list of the same blocks with these keys; the old one is freed.
    ///
    /// # Errors
    /// `Corrupt` for a block born at or before the smallest key.
    pub(crate) fn split_off(&self, keys: &[u64], tx: &Tx) -> Result<Deadlist> {
        let mut split = Deadlist::open(&self.mos, Deadlist::alloc(&self.mos, tx)?)?;
        for key in keys {
            split.add_key(*key, tx)?;
        }
        let mut some = Vec::new();
        Bpobj::open(&self.mos, self.object())?.iterate(&mut |bp, _| {
            some.push(*bp);
            if some.len() == SPLIT_BLOCKS {
                split.insert(&std::mem::take(&mut some), tx)?;
            }
            Ok(())
        })?;
        split.insert(&some, tx)?;
        Bpobj::free(&self.mos, self.object(), tx)?;
        Ok(split)
    }

    fn check_new(&self) -> Result<()> {
        if !self.is_old {
            return Ok(());
        }
        let text = format!("deadlist {} is changed before it is split", self.object());
        Err(Error::new(ErrorKind::Unsupported, text))
    }

    fn header(&self) -> Result<DeadlistPhys> {
        let header = DeadlistPhys::read(&self.dnode.bonus())?;
        check_bytes("dl_used", header.used.get())?;
        check_bytes("dl_comp", header.comp.get())?;
        check_bytes("dl_uncomp", header.uncomp.get())?;
        Ok(header)
    }

    /// The total size of the listed blocks.
    ///
    /// # Errors
    /// `Corrupt` when the bonus is too short.
    #[doc(alias = "dsl_deadlist_space")]
    pub fn space(&self) -> Result<Space> {
        if self.is_old {
            return Bpobj::open(&self.mos, self.object())?.space();
        }
        let header = self.header()?;
        Ok(Space::stored(
            header.used.get(),
            header.comp.get(),
            header.uncomp.get(),
        ))
    }

    fn add_space(&self, change: Space, tx: &Tx) -> Result<()> {
        self.check_new()?;
        let mut header = self.header()?;
        let words = [&mut header.used, &mut header.comp, &mut header.uncomp];
        for (word, by) in words
            .into_iter()
            .zip([change.used, change.comp, change.uncomp])
        {
            let mut value = word.get();
            apply(&mut value, by, "deadlist space");
            word.set(value);
        }
        self.dnode.set_bonus(tx, header.as_bytes())
    }

    #[cfg(test)]
    pub(crate) fn add_space_for_test(&self, change: Space, tx: &Tx) -> Result<()> {
        self.add_space(change, tx)
    }

    fn load(&mut self) -> Result<&mut BTreeMap<u64, ObjectId>> {
        if self.is_old && self.tree.is_none() {
            self.tree = Some(BTreeMap::from([(0, self.object())]));
        }
        if self.tree.is_none() {
            let entries = self.mos.zap_int_entries(self.object())?;
            self.tree = Some(
                entries
                    .into_iter()
                    .map(|(key, list)| (key, ObjectId(list)))
                    .collect(),
            );
        }
        Ok(self.tree.as_mut().expect("just loaded"))
    }

    /// Drops the cached entries to save memory.
    #[doc(alias = "dsl_deadlist_discard_tree")]
    pub fn discard(&mut self) {
        self.tree = None;
    }

    /// The entries: mintxg and list.
    ///
    /// # Errors
    /// Any error from the MOS.
    pub fn entries(&mut self) -> Result<BTreeMap<u64, ObjectId>> {
        self.load().cloned()
    }

    /// The total size of the listed blocks with `mintxg < birth <= maxtxg`. Both bounds must be
    /// keys, or 0 and `u64::MAX`.
    ///
    /// # Errors
    /// Any error from the MOS.
    #[doc(alias = "dsl_deadlist_space_range")]
    pub(crate) fn space_range(&mut self, mintxg: u64, maxtxg: u64) -> Result<Space> {
        if mintxg >= maxtxg {
            return Ok(Space::ZERO);
        }
        if self.is_old {
            return Bpobj::open(&self.mos, self.object())?.space_range(mintxg, maxtxg);
        }
        let lists: Vec<ObjectId> = self
            .load()?
            .range(mintxg..maxtxg)
            .map(|(_, l)| *l)
            .collect();
        let mut total = Space::ZERO;
        for list in lists {
            if Some(list) != self.mos.empty_bpobj() {
                total += Bpobj::open(&self.mos, list)?.space()?;
            }
        }
        Ok(total)
    }

    /// Adds dead blocks.
    ///
    /// # Errors
    /// `Corrupt` for a block born at or before the smallest key.
    #[doc(alias = "dsl_deadlist_insert")]
    pub fn insert(&mut self, bps: &[BlkPtrPhys], tx: &Tx) -> Result<()> {
        if bps.is_empty() {
            return Ok(());
        }
        self.check_new()?;
        let mut by_key = BTreeMap::<u64, Vec<BlkPtrPhys>>::new();
        let mut change = Space::ZERO;
        let object = self.object();
        for bp in bps {
            let birth = bp.allocation_birth().0;
            let Some((key, _)) = self.load()?.range(..birth).next_back() else {
                let text =
                    format!("deadlist {object} has no key below a block's birth txg {birth}");
                return Err(Error::corrupt(text));
            };
            by_key.entry(*key).or_default().push(*bp);
            change += Space::of_block(self.mos.env(), bp);
        }
        for (key, bps) in by_key {
            let mut list = self.load()?[&key];
            if Some(list) == self.mos.empty_bpobj() {
                list = Bpobj::alloc(&self.mos, tx)?;
                Bpobj::release_empty(&self.mos, tx)?;
                self.replace(key, list, tx)?;
            }
            Bpobj::open(&self.mos, list)?.enqueue(&bps, false, tx)?;
        }
        self.add_space(change, tx)
    }

    fn replace(&mut self, key: u64, list: ObjectId, tx: &Tx) -> Result<()> {
        self.mos.zap_int_update(self.object(), key, list.0, tx)?;
        self.load()?.insert(key, list);
        Ok(())
    }

    /// Adds a whole bpobj to the entry `key`.
    fn enqueue_list(&mut self, key: u64, list: ObjectId, tx: &Tx) -> Result<()> {
        let target = self.load()?[&key];
        if Some(target) == self.mos.empty_bpobj() {
            Bpobj::release_empty(&self.mos, tx)?;
            self.replace(key, list, tx)
        } else {
            Bpobj::open(&self.mos, target)?.enqueue_subobj(list, tx)
        }
    }

    /// Adds an empty entry for blocks born after `mintxg`, which is larger than all existing keys.
    ///
    /// # Errors
    /// Any error from the MOS.
    #[doc(alias = "dsl_deadlist_add_key")]
    pub fn add_key(&mut self, mintxg: u64, tx: &Tx) -> Result<()> {
        if self.load()?.contains_key(&mintxg) {
            let text = format!("deadlist {} has key {mintxg:#x} already", self.object());
            return Err(Error::corrupt(text));
        }
        let list = Bpobj::alloc_empty(&self.mos, tx)?;
        self.mos.zap_int_add(self.object(), mintxg, list.0, tx)?;
        self.load()?.insert(mintxg, list);
        Ok(())
    }

    /// Merges the entry `mintxg` into the previous one, because its snapshot, or the last bookmark of it, is destroyed.
    /// A clone may lack the key of a bookmark that was copied to it and destroyed; an old list has no keys.
    ///
    /// # Errors
    /// `Corrupt` when there is no key before it.
    #[doc(alias = "dsl_deadlist_remove_key")]
    pub(crate) fn remove_key(&mut self, mintxg: u64, tx: &Tx) -> Result<()> {
        if self.is_old {
            return Ok(());
        }
        let object = self.object();
        let missing = || Error::corrupt(format!("deadlist {object} has no key before {mintxg:#x}"));
        let tree = self.load()?;
        let Some(list) = tree.get(&mintxg).copied() else {
            return Ok(());
        };
        let (&key, _) = tree.range(..mintxg).next_back().ok_or_else(missing)?;
        self.enqueue_list(key, list, tx)?;
        self.mos.zap_int_remove(object, mintxg, tx)?;
        self.load()?.remove(&mintxg);
        Ok(())
    }

    /// Removes the entry `mintxg` with its list; the caller has already freed the listed blocks.
    ///
    /// # Errors
    /// Any error from the MOS; `Corrupt` when there is no such key.
    #[doc(alias = "dsl_deadlist_remove_entry")]
    pub(crate) fn remove_entry(&mut self, mintxg: u64, tx: &Tx) -> Result<()> {
        let object = self.object();
        let list = self.load()?.remove(&mintxg);
        let missing = || Error::corrupt(format!("deadlist {object} lacks key {mintxg:#x}"));
        let list = list.ok_or_else(missing)?;
        self.mos.zap_int_remove(object, mintxg, tx)?;
        if Some(list) == self.mos.empty_bpobj() {
            return Bpobj::release_empty(&self.mos, tx);
        }
        let space = Bpobj::open(&self.mos, list)?.space()?;
        Bpobj::free(&self.mos, list, tx)?;
        self.add_space(-space, tx)
    }

    /// A new deadlist with the same keys below `maxtxg`, all empty.
    ///
    /// # Errors
    /// Any error from the MOS.
    #[doc(alias = "dsl_deadlist_clone")]
    pub(crate) fn clone_keys(&mut self, maxtxg: u64, tx: &Tx) -> Result<ObjectId> {
        self.check_new()?;
        let copy = Deadlist::alloc(&self.mos, tx)?;
        let keys: Vec<u64> = self.load()?.range(..maxtxg).map(|(key, _)| *key).collect();
        for key in keys {
            let list = Bpobj::alloc_empty(&self.mos, tx)?;
            self.mos.zap_int_add(copy, key, list.0, tx)?;
        }
        Ok(copy)
    }

    /// Moves everything on the deadlist `object` to this one; `object` is left without entries.
    ///
    /// # Errors
    /// Any error from the MOS; `Corrupt` when an entry is below the smallest key here.
    #[doc(alias = "dsl_deadlist_merge")]
    pub fn merge(&mut self, object: ObjectId, tx: &Tx) -> Result<()> {
        let mut other = Deadlist::open(&self.mos, object)?;
        self.check_new().and_then(|()| other.check_new())?;
        let moved = other.space()?;
        for (mintxg, list) in other.entries()? {
            let Some((&key, _)) = self.load()?.range(..=mintxg).next_back() else {
                let text = format!("deadlist {} has no key below {mintxg:#x}", self.object());
                return Err(Error::corrupt(text));
            };
            self.enqueue_list(key, list, tx)?;
            self.mos.zap_int_remove(object, mintxg, tx)?;
        }
        other.discard();
        other.add_space(-moved, tx)?;
        self.add_space(moved, tx)
    }

    /// Moves the blocks born after `mintxg` to `target`.
    ///
    /// # Errors
    /// Any error from the MOS.
    #[doc(alias = "dsl_deadlist_move_bpobj")]
    pub fn move_to(&mut self, target: &Bpobj, mintxg: u64, tx: &Tx) -> Result<()> {
        self.check_new()?;
        let moving: Vec<(u64, ObjectId)> = self
            .load()?
            .range(mintxg..)
            .map(|(key, list)| (*key, *list))
            .collect();
        let mut moved = Space::ZERO;
        for (key, list) in moving {
            if Some(list) != self.mos.empty_bpobj() {
                moved += Bpobj::open(&self.mos, list)?.space()?;
            }
            target.enqueue_subobj(list, tx)?;
            self.mos.zap_int_remove(self.object(), key, tx)?;
            self.load()?.remove(&key);
        }
        self.add_space(-moved, tx)
    }
}
