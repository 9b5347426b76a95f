//! Object numbers: finding a free slot quickly, even among millions.
//!
//! # What it is
//! A cursor goes through the blocks of dnodes; a bitmap says which of the 32 slots of the current block
//! are in use, on disk or by objects that are not synced yet. At the end of what one indirect block
//! covers, the search goes on at the next one that is at most a quarter full, found by fill counts.
//! After many objects were freed it starts from the beginning once.
//!
//! # Invariants
//! 1. A slot is handed out only if it is free on disk and no unsynced object has it. Slots of
//!    objects that were freed but not synced are still in use on disk.
//!
//! # Source
//! OpenZFS module/zfs/dmu_object.c @be7657e3.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{BlkId, Context as _, Error, ErrorKind, ObjectId, Result};
use phys::blkptr::BlkPtrPhys;
use phys::dnode::{DN_MAX_OBJECT, DNODES_PER_BLOCK};

use zio::Bookmark;

use crate::image::{Image, slot_core};
use crate::objset::is_special;
use crate::{Dnode, Followed, META_DNODE_OBJECT, NewObject, Objset, Tx};

/// `dmu_rescan_dnode_threshold`: objects freed after which the search starts from the beginning.
const RESCAN_FREED: u64 = 1 << 17;
/// Full blocks in a row after which an empty block is looked for.
const FULL_BLOCKS_MAX: u32 = 16;

/// Where the next object goes.
#[derive(Default)]
pub(crate) struct Cursor {
    /// The next slot to be looked at.
    next: u64,
    /// A block of dnodes and its slots in use.
    block: Option<(u64, u32)>,
    started: bool,
    /// Blocks looked at in a row that had no room.
    full_blocks: u32,
}

impl Cursor {
    /// Takes `slots` slots in a row out of the current block.
    fn take_run(&mut self, slots: u8) -> Option<u64> {
        let (blkid, used) = self.block.as_mut()?;
        let from = self.next % DNODES_PER_BLOCK;
        let run = u32::MAX >> (32 - u32::from(slots));
        let last = DNODES_PER_BLOCK - u64::from(slots);
        let at = (from..=last).find(|at| *used & (run << at) == 0)?;
        *used |= run << at;
        self.next = *blkid * DNODES_PER_BLOCK + at + u64::from(slots);
        self.full_blocks = 0;
        Some(*blkid * DNODES_PER_BLOCK + at)
    }

    /// Forgets the bitmap of a block in which a slot is taken by number.
    fn forget(&mut self, blkid: u64) {
        self.block.take_if(|(known, _)| *known == blkid);
    }
}

impl Objset {
    /// Makes a new object.
    ///
    /// # Errors
    /// Errors from reading blocks of dnodes; `InvalidInput` or `Unsupported` for an invalid `new`.
    #[doc(alias = "dmu_object_alloc")]
    pub fn object_alloc(&self, tx: &Tx, new: &NewObject) -> Result<Arc<Dnode>> {
        new.check(&self.props())?;
        self.context.announce(tx);
        let mut cursor = self.cursor.lock();
        let id = self.next_free(&mut cursor, new.slots())?;
        self.admit(tx, id, new)
    }

    /// Makes a new object with a given number, which may be that of a special object.
    ///
    /// # Errors
    /// `Exists` when one of its slots is in use, be it by a freed object whose free is not synced yet;
    /// otherwise as [`object_alloc`](Objset::object_alloc).
    #[doc(alias = "dmu_object_claim")]
    pub fn object_claim(&self, tx: &Tx, id: ObjectId, new: &NewObject) -> Result<Arc<Dnode>> {
        new.check(&self.props())?;
        self.context.announce(tx);
        let mut cursor = self.cursor.lock();
        if is_special(id) {
            let has_place = Self::special_slot(&mut self.header.lock(), id).is_some();
            if !has_place || new.slots() > 1 {
                return Err(Error::invalid(format!(
                    "object {id} of {} slots",
                    new.slots()
                )));
            }
            let present = self.hold(id).map(|_| ());
            match present {
                Ok(()) => return Err(Error::new(ErrorKind::Exists, format!("object {id}"))),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            return self.admit(tx, id, new);
        }
        let (BlkId(blkid), slot) = Self::place_of(id);
        let fits = slot as u64 + u64::from(new.slots()) <= DNODES_PER_BLOCK;
        if id == META_DNODE_OBJECT || id.0 >= DN_MAX_OBJECT || !fits {
            return Err(Error::invalid(format!(
                "object {id} of {} slots",
                new.slots()
            )));
        }
        let wanted = (u32::MAX >> (32 - u32::from(new.slots()))) << slot;
        if self.used_slots(blkid)? & wanted != 0 || self.cache.lock().get(id).is_some() {
            return Err(Error::new(ErrorKind::Exists, format!("object {id}")));
        }
        cursor.forget(blkid);
        self.admit(tx, id, new)
    }

    fn admit(&self, tx: &Tx, id: ObjectId, new: &NewObject) -> Result<Arc<Dnode>> {
        let dnode = Dnode::new(Arc::clone(&self.context), id, Image::new_object(new));
        {
            let mut cache = self.cache.lock();
            cache.unsynced.insert(id, new.slots());
            cache.insert(Arc::clone(&dnode));
        }
        // From here on a sync may write it, and take it off the list of unsynced objects.
        dnode.begin(tx)?;
        Ok(dnode)
    }

    /// Frees an object with all its blocks. Its number stays in use until the free is synced.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` for the meta-dnode: the number is from disk.
    #[doc(alias = "dmu_object_free")]
    pub fn object_free(&self, tx: &Tx, id: ObjectId) -> Result<()> {
        if id == META_DNODE_OBJECT {
            return Err(Error::corrupt("object 0 is to be freed"));
        }
        self.hold(id)?.free(tx)
    }

    /// Notes that an object was freed on disk.
    pub(crate) fn cursor_freed(&self) {
        self.freed_objects.fetch_add(1, Ordering::Relaxed);
    }

    fn next_free(&self, cursor: &mut Cursor, slots: u8) -> Result<ObjectId> {
        if !cursor.started {
            cursor.started = true;
            cursor.next = self.sparse_from(0)?;
        }
        loop {
            let blkid = cursor.next / DNODES_PER_BLOCK;
            if cursor.next >= DN_MAX_OBJECT {
                return Err(Error::new(ErrorKind::NoSpace, "object numbers"));
            }
            let blkid = match cursor.block {
                Some((known, _)) if known == blkid => blkid,
                Some(_) => self.next_block(cursor, blkid)?,
                None => blkid,
            };
            if cursor.block.is_none_or(|(known, _)| known != blkid) {
                if cursor.next / DNODES_PER_BLOCK != blkid {
                    cursor.next = blkid * DNODES_PER_BLOCK;
                }
                cursor.block = Some((blkid, self.used_slots(blkid)?));
            }
            if let Some(id) = cursor.take_run(slots) {
                return Ok(ObjectId(id));
            }
            cursor.full_blocks += 1;
            cursor.next = (blkid + 1) * DNODES_PER_BLOCK;
        }
    }

    /// The block to look at after those before `next`.
    fn next_block(&self, cursor: &mut Cursor, next: u64) -> Result<u64> {
        let covered = 1 << (self.meta.ibs() - 7);
        if next.is_multiple_of(covered) {
            let rescan = self.freed_objects.load(Ordering::Relaxed) >= RESCAN_FREED;
            if rescan {
                self.freed_objects.store(0, Ordering::Relaxed);
            }
            let from = if rescan { 0 } else { next };
            return Ok(self.sparse_from(from)? / DNODES_PER_BLOCK);
        }
        if cursor.full_blocks < FULL_BLOCKS_MAX {
            return Ok(next);
        }
        cursor.full_blocks = 0;
        self.empty_block(next)
    }

    /// The first object number of the first region, at or after block `from`, of which at most a quarter
    /// is in use.
    fn sparse_from(&self, from: u64) -> Result<u64> {
        let mut state = self.meta.state();
        let (_ticket, mut walk) = self.meta.walk(&mut state);
        drop(state);
        let epbs = walk.tree.epbs();
        let region = from >> epbs;
        if walk.tree.top() == 0 {
            return Ok(from * DNODES_PER_BLOCK);
        }
        let found = walk.search(1, region, &|level, bp| {
            let slots = u128::from(DNODES_PER_BLOCK) << (epbs * u32::from(level));
            let limit = if level == 1 { slots / 4 } else { slots - 1 };
            u128::from(bp.fill()) <= limit || bp.is_hole()
        })?;
        // Past the end of the tree everything is free.
        let behind = (walk.tree.blkptrs.len() as u64) << (epbs * u32::from(walk.tree.top() - 1));
        let region = found.unwrap_or_else(|| behind.max(region));
        Ok(crate::tree::shl_saturating(region, epbs).saturating_mul(DNODES_PER_BLOCK))
    }

    /// The first block of dnodes at or after `from` that is empty on disk.
    fn empty_block(&self, from: u64) -> Result<u64> {
        let mut state = self.meta.state();
        let (_ticket, mut walk) = self.meta.walk(&mut state);
        drop(state);
        let epbs = walk.tree.epbs();
        let found = walk.search(0, from, &|level, bp| {
            if level == 0 {
                return bp.is_hole();
            }
            let slots = u128::from(DNODES_PER_BLOCK) << (epbs * u32::from(level));
            u128::from(bp.fill()) < slots
        })?;
        Ok(found.unwrap_or(from))
    }

    /// Which slots of a block of dnodes are in use, on disk or by unsynced objects.
    fn used_slots(&self, blkid: u64) -> Result<u32> {
        let first = blkid * DNODES_PER_BLOCK;
        let mut used = u32::from(blkid == 0);
        // Memory first, then disk: a sync moves objects in that direction, so none is missed.
        for (id, slots) in self
            .cache
            .lock()
            .unsynced_in(first, first + DNODES_PER_BLOCK)
        {
            used |= (u32::MAX >> (32 - u32::from(slots))) << (id - first);
        }
        if self.meta.block_pointer(0, BlkId(blkid))?.fill() == DNODES_PER_BLOCK {
            return Ok(u32::MAX);
        }
        let block = self.meta.read_block(BlkId(blkid))?;
        for (slot, slots) in allocated_slots(&block) {
            used |= (u32::MAX >> (32 - slots as u32)) << slot;
        }
        Ok(used)
    }
}

/// The dnodes in a block: slot and number of slots.
pub(crate) fn allocated_slots(block: &[u8]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut next = 0;
    std::iter::from_fn(move || {
        while next < DNODES_PER_BLOCK as usize {
            let at = next;
            let core = slot_core(block, at);
            if core.is_allocated() {
                next += core.slots();
                return Some((at, core.slots().min(DNODES_PER_BLOCK as usize - at)));
            }
            // The other fields of a free slot mean nothing.
            next += 1;
        }
        None
    })
}

/// Finding objects.
impl Objset {
    /// The object with number `id`, from memory or from disk.
    ///
    /// # Errors
    /// `NotFound`; errors from reading its block of dnodes.
    #[doc(alias = "dnode_hold")]
    pub fn hold(&self, id: ObjectId) -> Result<Arc<Dnode>> {
        if id == META_DNODE_OBJECT {
            return Ok(Arc::clone(&self.meta));
        }
        loop {
            let generation = {
                let cache = self.cache.lock();
                if let Some(dnode) = cache.get(id) {
                    if dnode.is_freed() {
                        return Err(self.not_found(id));
                    }
                    return Ok(Arc::clone(dnode));
                }
                cache.generation
            };
            let image = if is_special(id) {
                self.special_image(id)?
            } else {
                self.disk_image(id)?
            };
            let mut cache = self.cache.lock();
            if cache.generation != generation || cache.get(id).is_some() {
                continue;
            }
            let Some(image) = image else {
                return Err(self.not_found(id));
            };
            let dnode = Dnode::new(Arc::clone(&self.context), id, image);
            cache.insert(Arc::clone(&dnode));
            return Ok(dnode);
        }
    }

    fn not_found(&self, id: ObjectId) -> Error {
        Error::not_found(format!("object {id} of objset {}", self.id()))
    }

    fn special_image(&self, id: ObjectId) -> Result<Option<Image>> {
        let mut header = self.header.lock();
        let Some(slot) = Self::special_slot(&mut header, id) else {
            return Ok(None);
        };
        if !slot.core.is_allocated() {
            return Ok(None);
        }
        Image::decode(zerocopy::IntoBytes::as_bytes(slot)).map(Some)
    }

    fn disk_image(&self, id: ObjectId) -> Result<Option<Image>> {
        if id.0 >= DN_MAX_OBJECT {
            return Ok(None);
        }
        let (blkid, slot) = Self::place_of(id);
        let block = self.meta.read_block(blkid)?;
        if !allocated_slots(&block).any(|(at, _)| at == slot) {
            return Ok(None);
        }
        let image = Image::decode(&block[slot * 512..]);
        image
            .map(Some)
            .within(|| format!("object {id} of objset {}", self.id()))
    }

    /// The next object in use after `after`, changes in memory included; 0 to start.
    ///
    /// # Errors
    /// Errors from reading blocks of dnodes.
    #[doc(alias = "dmu_object_next")]
    pub fn next_object(&self, after: ObjectId) -> Result<Option<ObjectId>> {
        self.next_object_of(after, &mut ObjectWalk::default())
    }

    /// The same for going through all objects, with one `walk` for all calls.
    ///
    /// # Errors
    /// As [`next_object`](Objset::next_object); `Corrupt` when a block of dnodes is met twice.
    pub fn next_object_of(
        &self,
        after: ObjectId,
        walk: &mut ObjectWalk,
    ) -> Result<Option<ObjectId>> {
        let mut from = after.0.saturating_add(1);
        loop {
            let mut in_memory = None;
            let generation;
            {
                let cache = self.cache.lock();
                generation = cache.generation;
                for (id, _) in cache.unsynced_in(from, DN_MAX_OBJECT) {
                    if cache
                        .get(ObjectId(id))
                        .is_some_and(|dnode| !dnode.is_freed())
                    {
                        in_memory = Some(id);
                        break;
                    }
                }
            }
            let on_disk = self.next_on_disk(from, walk)?;
            let cache = self.cache.lock();
            if cache.generation != generation {
                // Memory and disk were not looked at in the same generation.
                continue;
            }
            let Some(next) = in_memory.into_iter().chain(on_disk).min() else {
                return Ok(None);
            };
            if !cache
                .get(ObjectId(next))
                .is_some_and(|dnode| dnode.is_freed())
            {
                return Ok(Some(ObjectId(next)));
            }
            from = next + 1;
        }
    }

    fn next_on_disk(&self, from: u64, met: &mut ObjectWalk) -> Result<Option<u64>> {
        let mut blkid = from / DNODES_PER_BLOCK;
        loop {
            let Some((found, _)) = self.used_dnode_block(blkid, met)? else {
                return Ok(None);
            };
            let block = self.meta.read_block(BlkId(found))?;
            let first = found * DNODES_PER_BLOCK;
            let ids = allocated_slots(&block).map(|(slot, _)| first + slot as u64);
            if let Some(id) = ids.into_iter().find(|id| *id >= from) {
                return Ok(Some(id));
            }
            blkid = found + 1;
        }
    }

    /// The first block of dnodes at or after block `from` with a dnode in use on disk, going by its fill count, and the
    /// pointer to it. With one `met` for all calls.
    ///
    /// # Errors
    /// Errors from reading indirect blocks; `Corrupt` when a block of dnodes is met twice.
    pub fn used_dnode_block(
        &self,
        from: u64,
        met: &mut ObjectWalk,
    ) -> Result<Option<(u64, BlkPtrPhys)>> {
        let mut state = self.meta.state();
        let (_ticket, mut walk) = self.meta.walk(&mut state);
        drop(state);
        let found = walk.search(0, from, &|_, bp| bp.fill() > 0)?;
        let Some(found) = found.filter(|found| *found < DN_MAX_OBJECT / DNODES_PER_BLOCK) else {
            return Ok(None);
        };
        let bp = walk.bp(0, found)?;
        met.enter(self.meta.bookmark(found), found, &bp)?;
        Ok(Some((found, bp)))
    }

    /// The pointer to a block of dnodes, as of the last sync. Where it is that of another state of the objset, so are
    /// the dnodes.
    ///
    /// # Errors
    /// Errors from reading indirect blocks.
    pub fn dnode_block(&self, blkid: u64) -> Result<BlkPtrPhys> {
        self.meta.block_pointer(0, BlkId(blkid))
    }
}

/// What a walk through all objects of an objset has met.
#[derive(Default)]
pub struct ObjectWalk {
    /// The blocks of dnodes, each recorded once; `last` is the latest.
    followed: Followed,
    last: Option<u64>,
}

impl ObjectWalk {
    fn enter(&mut self, at: Bookmark, blkid: u64, bp: &BlkPtrPhys) -> Result<()> {
        if self.last.is_none_or(|last| last < blkid) {
            self.followed.follow(bp, &at)?;
            self.last = Some(blkid);
        }
        Ok(())
    }
}
