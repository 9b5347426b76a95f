//! Block pointer objects: long lists of blocks to be freed, or dead.
//!
//! # What it is
//! A bpobj is a bag of block pointers with their total size in its bonus. Adding a block pointer
//! appends it to the object's data. Adding another bpobj only records its object number in a second
//! object, the list of subobjs (a small one is copied instead), so the cost of merging deadlists
//! does not depend on their length.
//!
//! # On disk
//! ```text
//! object of type BPOBJ        data: 128-byte block pointers without checksum, fill bit 0 = freed
//!   bonus BPOBJ_HDR           num_blkptrs bytes [comp uncomp [subobjs num_subobjs [num_freed]]]
//! object of type BPOBJ_SUBOBJ data: 64-bit object numbers
//! ```
//! The bonus holds as many of these fields as the pool's version had when the object was created.
//!
//! # Invariants
//! 1. bytes, comp and uncomp are the sums over the pointers here and in all subobjs.
//! 2. A subobj belongs to one list only. `empty_bpobj` is shared (the feature's reference count
//!    counts its users), always empty, and never a subobj.
//!
//! # Concurrency
//! In syncing context only. Headers are not cached: every operation reads the bonus and writes it
//! back, so one object may have any number of handles.
//!
//! # Source
//! OpenZFS module/zfs/bpobj.c, include/sys/bpobj.h @be7657e3

use phys::pool_names;
use std::collections::BTreeSet;
use std::sync::Arc;
use zap::directory;

use base::{BlkId, Error, ObjectId, Result};
use dmu::traverse::Step;
use dmu::{Dnode, Tx};
use phys::dsl::{BPOBJ_BLOCKSIZE, BPOBJ_SIZE_V0, BPOBJ_SIZE_V1, BPOBJ_SIZE_V2, BpobjPhys};
use phys::{BlkPtrPhys, ObjectType, Phys};
use zerocopy::{FromBytes, IntoBytes};

use crate::fields::check_bytes;

use crate::mos::{Mos, u64_at};
use crate::size::{Space, apply};
use phys::feature;

/// At most this many subobjs in one bpobj; small ones are copied instead, so years of snapshots
/// stay far below it.
const SUBOBJS_MAX: u64 = 1 << 24;
/// Bytes of a block pointer on disk.
const BP_BYTES: u64 = size_of::<BlkPtrPhys>() as u64;

/// `bpobj_phys_t` in host integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// bpo_num_blkptrs
    pub num_blkptrs: u64,
    /// bpo_bytes
    pub bytes: u64,
    /// bpo_comp
    pub comp: u64,
    /// bpo_uncomp
    pub uncomp: u64,
    /// bpo_subobjs: the object with the subobjs' numbers, or 0
    pub subobjs: u64,
    /// bpo_num_subobjs
    pub num_subobjs: u64,
    /// bpo_num_freed: how many of the entries are marked as freed
    pub num_freed: u64,
}

impl Header {
    fn from_phys(phys: &BpobjPhys) -> Header {
        Header {
            num_blkptrs: phys.num_blkptrs.get(),
            bytes: phys.bytes.get(),
            comp: phys.comp.get(),
            uncomp: phys.uncomp.get(),
            subobjs: phys.subobjs.get(),
            num_subobjs: phys.num_subobjs.get(),
            num_freed: phys.num_freed.get(),
        }
    }

    fn to_phys(self) -> BpobjPhys {
        BpobjPhys {
            num_blkptrs: self.num_blkptrs.into(),
            bytes: self.bytes.into(),
            comp: self.comp.into(),
            uncomp: self.uncomp.into(),
            subobjs: self.subobjs.into(),
            num_subobjs: self.num_subobjs.into(),
            num_freed: self.num_freed.into(),
        }
    }

    fn is_empty(&self) -> bool {
        self.num_blkptrs == 0 && self.num_subobjs == 0
    }

    fn add(&mut self, change: Space) {
        apply(&mut self.bytes, change.used, "bpo_bytes");
        apply(&mut self.comp, change.comp, "bpo_comp");
        apply(&mut self.uncomp, change.uncomp, "bpo_uncomp");
    }
}

/// An open bpobj.
pub struct Bpobj {
    mos: Arc<Mos>,
    dnode: Arc<Dnode>,
}

impl Bpobj {
    /// Allocates an empty bpobj.
    ///
    /// # Errors
    /// Any error from the MOS.
    #[doc(alias = "bpobj_alloc")]
    pub fn alloc(mos: &Mos, tx: &Tx) -> Result<ObjectId> {
        // Only livelists have freed entries to count.
        let full = mos.env().feature_is_active(feature::LIVELIST);
        let bonus = if full { BpobjPhys::SIZE } else { BPOBJ_SIZE_V2 };
        mos.alloc(
            ObjectType::BPOBJ,
            BPOBJ_BLOCKSIZE,
            ObjectType::BPOBJ_HDR,
            bonus,
            tx,
        )
    }

    /// Returns an empty bpobj for one deadlist entry: the shared one if the pool has the feature.
    ///
    /// # Errors
    /// Any error from the MOS.
    #[doc(alias = "bpobj_alloc_empty")]
    pub(crate) fn alloc_empty(mos: &Mos, tx: &Tx) -> Result<ObjectId> {
        if !mos.env().feature_is_enabled(feature::EMPTY_BPOBJ) {
            return Bpobj::alloc(mos, tx);
        }
        let shared = match mos.empty_bpobj() {
            Some(object) => object,
            None => {
                let object = Bpobj::alloc(mos, tx)?;
                directory::add(mos.objset(), pool_names::EMPTY_BPOBJ, object, tx)?;
                mos.set_empty_bpobj(Some(object));
                object
            }
        };
        mos.env().feature_incr(feature::EMPTY_BPOBJ, tx)?;
        Ok(shared)
    }

    /// Drops one reference to the shared empty bpobj, and frees it with the last.
    ///
    /// # Errors
    /// Any error from the MOS.
    #[doc(alias = "bpobj_decr_empty")]
    pub fn release_empty(mos: &Mos, tx: &Tx) -> Result<()> {
        mos.env().feature_decr(feature::EMPTY_BPOBJ, tx)?;
        if !mos.env().feature_is_active(feature::EMPTY_BPOBJ) {
            let object = mos.empty_bpobj().expect("the feature was active");
            directory::remove(mos.objset(), pool_names::EMPTY_BPOBJ, tx)?;
            mos.free_object(object, tx)?;
            mos.set_empty_bpobj(None);
        }
        Ok(())
    }

    /// Frees the object and all its subobjs, without freeing the blocks they list.
    ///
    /// # Errors
    /// Any error from the MOS.
    #[doc(alias = "bpobj_free")]
    pub fn free(mos: &Arc<Mos>, object: ObjectId, tx: &Tx) -> Result<()> {
        let mut todo = vec![object];
        let mut seen = BTreeSet::new();
        while let Some(object) = todo.pop() {
            note_seen(&mut seen, object)?;
            check_not_shared(mos, object)?;
            let bpobj = Bpobj::open(mos, object)?;
            let header = bpobj.header();
            todo.extend(bpobj.subobjs(&header)?);
            if header.subobjs != 0 {
                free_list(mos, header.subobjs, tx)?;
            }
            mos.free_object(object, tx)?;
        }
        Ok(())
    }

    /// Opens a bpobj.
    ///
    /// # Errors
    /// `Corrupt` when the object is not a bpobj.
    #[doc(alias = "bpobj_open")]
    pub fn open(mos: &Arc<Mos>, object: ObjectId) -> Result<Bpobj> {
        let dnode = mos.hold(object)?;
        if dnode.type_() != ObjectType::BPOBJ || dnode.bonus_type() != ObjectType::BPOBJ_HDR {
            let type_ = dnode.type_();
            return Err(Error::corrupt(format!(
                "object {object} is {type_:?}, not a bpobj"
            )));
        }
        let bpobj = Bpobj {
            mos: mos.clone(),
            dnode,
        };
        let bonus = bpobj.dnode.bonus().len();
        if bonus < BPOBJ_SIZE_V0 {
            return Err(Error::corrupt(format!(
                "bpobj {object} has a bonus of {bonus} bytes"
            )));
        }
        let header = bpobj.header();
        check_bytes("bpo_bytes", header.bytes)?;
        check_bytes("bpo_comp", header.comp)?;
        check_bytes("bpo_uncomp", header.uncomp)?;
        if header.num_subobjs > SUBOBJS_MAX {
            let count = header.num_subobjs;
            let what = format!("bpobj {object}: bpo_num_subobjs is {count}");
            return Err(Error::corrupt(what));
        }
        let (count, fits) = (header.num_blkptrs, bpobj.capacity());
        if count > fits {
            return Err(Error::corrupt(format!(
                "bpobj {object}: bpo_num_blkptrs is {count}, {fits} fit"
            )));
        }
        Ok(bpobj)
    }

    /// Block pointers that fit in the object's blocks.
    fn capacity(&self) -> u64 {
        let blocks = self.dnode.maxblkid().0.saturating_add(1);
        (self.dnode.blksz() / BP_BYTES).saturating_mul(blocks)
    }

    /// The object's number.
    #[must_use]
    pub fn object(&self) -> ObjectId {
        self.dnode.id()
    }

    /// The counters.
    #[must_use]
    pub fn header(&self) -> Header {
        let bonus = self.dnode.bonus();
        let mut phys = BpobjPhys::default();
        let known = bonus.len().min(BpobjPhys::SIZE);
        phys.as_mut_bytes()[..known].copy_from_slice(&bonus[..known]);
        Header::from_phys(&phys)
    }

    fn store(&self, header: Header, tx: &Tx) -> Result<()> {
        let mut bonus = self.dnode.bonus().to_vec();
        let known = bonus.len().min(BpobjPhys::SIZE);
        bonus[..known].copy_from_slice(&header.to_phys().as_bytes()[..known]);
        self.dnode.set_bonus(tx, &bonus)
    }

    fn has_comp(&self) -> bool {
        self.dnode.bonus().len() > BPOBJ_SIZE_V0
    }

    fn has_subobjs(&self) -> bool {
        self.dnode.bonus().len() > BPOBJ_SIZE_V1
    }

    /// Whether it lists no block.
    #[must_use]
    #[doc(alias = "bpobj_is_empty")]
    pub fn is_empty(&self) -> bool {
        self.header().is_empty()
    }

    /// The total size of the listed blocks.
    ///
    /// # Errors
    /// Any error from the MOS.
    #[doc(alias = "bpobj_space")]
    pub fn space(&self) -> Result<Space> {
        if !self.has_comp() {
            return self.space_range(0, u64::MAX);
        }
        let header = self.header();
        Ok(Space::stored(header.bytes, header.comp, header.uncomp))
    }

    /// The total size of the listed blocks with `mintxg < birth <= maxtxg`. Reads the whole list.
    ///
    /// # Errors
    /// Any error from the MOS.
    #[doc(alias = "bpobj_space_range")]
    pub(crate) fn space_range(&self, mintxg: u64, maxtxg: u64) -> Result<Space> {
        let mut total = Space::ZERO;
        self.iterate(&mut |bp, _| {
            let birth = bp.allocation_birth().0;
            if mintxg < birth && birth <= maxtxg {
                total += Space::of_block(self.mos.env(), bp);
            }
            Ok(())
        })?;
        Ok(total)
    }

    /// Adds blocks; `freed` marks them as FREE entries of a livelist (the other half of an
    /// ALLOC/FREE pair).
    ///
    /// # Errors
    /// Any error from the MOS.
    #[doc(alias = "bpobj_enqueue")]
    pub fn enqueue(&self, bps: &[BlkPtrPhys], freed: bool, tx: &Tx) -> Result<()> {
        if bps.is_empty() {
            return Ok(());
        }
        check_not_shared(&self.mos, self.object())?;
        let mut header = self.header();
        let mut bytes = Vec::with_capacity(size_of_val(bps));
        let mut change = Space::ZERO;
        for bp in bps {
            assert!(!bp.is_hole(), "a hole is not put on a list");
            bytes.extend_from_slice(without_payload(bp, freed).as_bytes());
            change += Space::of_block(self.mos.env(), bp);
        }
        self.dnode
            .write(tx, header.num_blkptrs * BP_BYTES, &bytes)?;
        header.num_blkptrs += bps.len() as u64;
        if freed {
            header.num_freed += bps.len() as u64;
        }
        header.add(if freed { -change } else { change });
        self.store(header, tx)
    }

    /// Adds all of another bpobj, whose ownership passes to this one.
    ///
    /// # Errors
    /// Any error from the MOS.
    #[doc(alias = "bpobj_enqueue_subobj")]
    pub(crate) fn enqueue_subobj(&self, object: ObjectId, tx: &Tx) -> Result<()> {
        if !self.has_subobjs() {
            let text = format!("bpobj {} is too old for subobjs", self.object());
            return Err(Error::corrupt(text));
        }
        check_not_shared(&self.mos, self.object())?;
        if Some(object) == self.mos.empty_bpobj() {
            return Bpobj::release_empty(&self.mos, tx);
        }
        let sub = Bpobj::open(&self.mos, object)?;
        let sub_header = sub.header();
        if sub_header.is_empty() {
            return Bpobj::free(&self.mos, object, tx);
        }
        let mut header = self.header();
        header.add(Space::stored(
            sub_header.bytes,
            sub_header.comp,
            sub_header.uncomp,
        ));

        // Small lists are copied, to keep the nesting shallow: first the sub-subobj list, then,
        // only if that was small enough to copy, the pointers.
        let mut copied_all = true;
        if sub_header.subobjs != 0 {
            let list = hold_list(&self.mos, sub_header.subobjs)?;
            copied_all = list.maxblkid() == BlkId(0);
            if copied_all {
                let numbers = sub.subobjs(&sub_header)?;
                self.append_subobjs(&mut header, &numbers, tx)?;
                sub.store(
                    Header {
                        subobjs: 0,
                        num_subobjs: 0,
                        ..sub_header
                    },
                    tx,
                )?;
                free_list(&self.mos, sub_header.subobjs, tx)?;
            }
        }
        if copied_all && sub.dnode.maxblkid() == BlkId(0) {
            let mut bytes = vec![0; (sub_header.num_blkptrs * BP_BYTES) as usize];
            sub.dnode.read(0, &mut bytes)?;
            self.dnode
                .write(tx, header.num_blkptrs * BP_BYTES, &bytes)?;
            header.num_blkptrs += sub_header.num_blkptrs;
            header.num_freed = header.num_freed.saturating_add(sub_header.num_freed);
            drop(sub);
            self.mos.free_object(object, tx)?;
        } else {
            self.append_subobjs(&mut header, &[object], tx)?;
        }
        self.store(header, tx)
    }

    fn append_subobjs(&self, header: &mut Header, numbers: &[ObjectId], tx: &Tx) -> Result<()> {
        if header.subobjs == 0 {
            let kind = ObjectType::BPOBJ_SUBOBJ;
            let list = self
                .mos
                .alloc(kind, BPOBJ_BLOCKSIZE, ObjectType::NONE, 0, tx)?;
            header.subobjs = list.0;
        }
        let list = hold_list(&self.mos, header.subobjs)?;
        let words: Vec<u64> = numbers.iter().map(|object| object.0.to_le()).collect();
        list.write(tx, header.num_subobjs * 8, words.as_bytes())?;
        header.num_subobjs += numbers.len() as u64;
        Ok(())
    }

    pub(crate) fn subobjs(&self, header: &Header) -> Result<Vec<ObjectId>> {
        if header.subobjs == 0 || header.num_subobjs == 0 {
            return Ok(Vec::new());
        }
        let list = hold_list(&self.mos, header.subobjs)?;
        let blocks = list.maxblkid().0.saturating_add(1);
        let fits = list.blksz().saturating_mul(blocks) / 8;
        if header.num_subobjs > fits {
            return Err(Error::corrupt(format!(
                "bpobj {}: bpo_num_subobjs is {}, the list holds {fits}",
                self.object(),
                header.num_subobjs
            )));
        }
        list.check_dense(0, header.num_subobjs * 8)?;
        let mut bytes = vec![0; (header.num_subobjs * 8) as usize];
        list.read(0, &mut bytes)?;
        Ok((0..header.num_subobjs as usize)
            .filter_map(|at| u64_at(&bytes, at))
            .map(ObjectId)
            .collect())
    }

    /// Calls `visit` on every listed block, last first; a bpobj's own blocks come before those of
    /// its subobjs.
    ///
    /// # Errors
    /// Any error from `visit` or the MOS.
    #[doc(alias = "bpobj_iterate_nofree")]
    pub fn iterate(&self, visit: &mut dyn FnMut(&BlkPtrPhys, bool) -> Result<()>) -> Result<()> {
        let mut todo = vec![self.object()];
        let mut seen = BTreeSet::new();
        while let Some(object) = todo.pop() {
            note_seen(&mut seen, object)?;
            let bpobj = Bpobj::open(&self.mos, object)?;
            let header = bpobj.header();
            bpobj.visit_own(header.num_blkptrs, &mut |bp, freed| {
                visit(bp, freed).map(|()| Step::Continue)
            })?;
            todo.extend(bpobj.subobjs(&header)?);
        }
        Ok(())
    }

    /// Calls `visit` on this object's own pointers from last to first, until it pauses; returns how
    /// many are left unvisited, the refused one included.
    fn visit_own(
        &self,
        count: u64,
        visit: &mut dyn FnMut(&BlkPtrPhys, bool) -> Result<Step>,
    ) -> Result<u64> {
        self.dnode.check_dense(0, count * BP_BYTES)?;
        let per_block = self.dnode.blksz() / BP_BYTES;
        let mut left = count;
        while left > 0 {
            let blkid = (left - 1) / per_block;
            let block = self.dnode.read_block(BlkId(blkid))?;
            while left > blkid * per_block {
                let at = ((left - 1 - blkid * per_block) * BP_BYTES) as usize;
                let bp = BlkPtrPhys::read(&block[at..])?;
                if bp.is_hole() {
                    let object = self.object();
                    return Err(Error::corrupt(format!(
                        "bpobj {object}: entry {left} is a hole"
                    )));
                }
                // blk_fill is not a count here: its lowest bit says "freed".
                let freed = bp.as_bytes()[FILL_OFFSET] & 1 != 0;
                if visit(&bp, freed)? == Step::Pause {
                    return Ok(left);
                }
                left -= 1;
            }
        }
        Ok(0)
    }

    /// Calls `visit` on every listed block, last first, and removes each for which it returns
    /// `Continue`. Returns whether the list is now empty.
    ///
    /// # Errors
    /// Any error from `visit` or the MOS; the entry that failed stays, those visited before it are
    /// removed.
    #[doc(alias = "bpobj_iterate")]
    pub fn drain(
        &self,
        tx: &Tx,
        visit: &mut dyn FnMut(&BlkPtrPhys, bool) -> Result<Step>,
    ) -> Result<bool> {
        let (_, outcome) = self.drain_one(tx, 0, visit)?;
        outcome
    }

    /// Drains this bpobj and its subobjs. Returns how much was removed, from which the parents
    /// update their counters, and the outcome.
    fn drain_one(
        &self,
        tx: &Tx,
        depth: u32,
        visit: &mut dyn FnMut(&BlkPtrPhys, bool) -> Result<Step>,
    ) -> Result<(Space, Result<bool>)> {
        let mut header = self.header();
        if depth > MAX_DEPTH {
            return Err(Error::corrupt(format!(
                "bpobj {} is nested too deep",
                self.object()
            )));
        }
        let mut removed = Space::ZERO;
        let mut num_removed = 0;
        let mut num_freed = 0;
        let left = self.visit_own(header.num_blkptrs, &mut |bp, freed| {
            let progress = visit(bp, freed)?;
            if progress == Step::Continue {
                let space = Space::of_block(self.mos.env(), bp);
                removed += if freed { -space } else { space };
                num_removed += 1;
                num_freed += u64::from(freed);
            }
            Ok(progress)
        });
        if num_removed > 0 {
            header.num_blkptrs -= num_removed;
            header.num_freed -= num_freed.min(header.num_freed);
            let end = header.num_blkptrs * BP_BYTES;
            self.dnode.free_range(tx, end, num_removed * BP_BYTES)?;
        }
        let mut outcome = left.map(|left| left == 0);
        if matches!(outcome, Ok(true)) {
            let (below, end) = self.drain_subobjs(&mut header, tx, depth, visit)?;
            removed += below;
            outcome = end;
        }
        header.add(-removed);
        self.store(header, tx)?;
        Ok((removed, outcome))
    }

    fn drain_subobjs(
        &self,
        header: &mut Header,
        tx: &Tx,
        depth: u32,
        visit: &mut dyn FnMut(&BlkPtrPhys, bool) -> Result<Step>,
    ) -> Result<(Space, Result<bool>)> {
        let mut removed = Space::ZERO;
        let numbers = self.subobjs(header)?;
        for object in numbers.into_iter().rev() {
            let sub = Bpobj::open(&self.mos, object)?;
            let (below, outcome) = sub.drain_one(tx, depth + 1, visit)?;
            removed += below;
            if !matches!(outcome, Ok(true)) {
                return Ok((removed, outcome));
            }
            let sub_header = sub.header();
            if sub_header.subobjs != 0 {
                free_list(&self.mos, sub_header.subobjs, tx)?;
            }
            drop(sub);
            self.mos.free_object(object, tx)?;
            header.num_subobjs -= 1;
            let list = hold_list(&self.mos, header.subobjs)?;
            list.free_range(tx, header.num_subobjs * 8, 8)?;
        }
        Ok((removed, Ok(true)))
    }
}

/// Fails if `object` is the shared empty bpobj, which must stay empty and must not be freed as an
/// ordinary list.
fn check_not_shared(mos: &Mos, object: ObjectId) -> Result<()> {
    if Some(object) != mos.empty_bpobj() {
        return Ok(());
    }
    let text = format!("bpobj {object} is the shared empty one, and used as a list");
    Err(Error::corrupt(text))
}

/// Fails if the bpobj was seen before: a subobj belongs to one list only, and a cycle would never
/// end.
fn note_seen(seen: &mut BTreeSet<ObjectId>, object: ObjectId) -> Result<()> {
    if seen.insert(object) {
        return Ok(());
    }
    Err(Error::corrupt(format!("bpobj {object} is a subobj twice")))
}

/// Maximum nesting of subobjs; copying small lists keeps real pools at a few levels.
const MAX_DEPTH: u32 = 256;
/// Byte offset of blk_fill in a block pointer.
const FILL_OFFSET: usize = 88;

/// The list of the numbers of subobjs.
fn hold_list(mos: &Mos, object: u64) -> Result<Arc<Dnode>> {
    let list = mos.hold(ObjectId(object))?;
    let type_ = list.type_();
    if type_ == ObjectType::BPOBJ_SUBOBJ {
        return Ok(list);
    }
    let what = format!("object {object} is {type_:?}, not a list of bpobjs");
    Err(Error::corrupt(what))
}

fn free_list(mos: &Mos, object: u64, tx: &Tx) -> Result<()> {
    hold_list(mos, object)?;
    mos.free_object(ObjectId(object), tx)
}

/// The pointer as stored in a list, without checksum and payload: freeing a block does not need
/// them (except the checksum of a deduplicated block), and the list compresses better.
fn without_payload(bp: &BlkPtrPhys, freed: bool) -> BlkPtrPhys {
    const PROP: std::ops::Range<usize> = 48..56;
    const LOGICAL_BIRTH: std::ops::Range<usize> = 80..88;
    let mut kept = *bp;
    if bp.is_embedded() {
        let mut bytes = [0; size_of::<BlkPtrPhys>()];
        for range in [PROP, LOGICAL_BIRTH] {
            bytes[range.clone()].copy_from_slice(&bp.as_bytes()[range]);
        }
        kept = BlkPtrPhys::read_from_bytes(&bytes).expect("same size");
    } else if !bp.is_dedup() {
        kept.set_cksum([0; 4]);
    }
    let bytes = kept.as_mut_bytes();
    bytes[FILL_OFFSET..FILL_OFFSET + 8].fill(0);
    bytes[FILL_OFFSET] = u8::from(freed);
    kept
}
