//! Objsets whose root is lost: the indirect blocks above their dnodes are found.
//!
//! # What it is
//! The tree of the dnodes of an objset is as high as the most objects need that there may ever be, so its highest
//! block is below the first pointer of the root, and so on down to where there are several. A block above which
//! nothing is left takes the place of the root if it is the first one of its level, since then all objects below it
//! have their numbers.
//!
//! # Invariants
//! 1. A block is believed if the first block of dnodes below it is there, by pointers whose checksums verify, and has
//!    what only the first one of an objset has: object 1 is the master node of a file system, or the data of a volume.
//!    So its place in the tree is read, not guessed.
//! 2. A block that another one leads to is not taken for the highest, nor one that a believed root leads to.
//!
//! # What is not found
//! Where a block that is not the first of its level is the highest one left, its place in the tree is not known. The
//! MOS is opened by its root alone.
//!
//! # Source
//! OpenZFS `module/zfs/dmu_objset.c` (`dmu_objset_create_impl_dnstats`), `include/sys/zfs_znode.h`
//! (`MASTER_NODE_OBJ`).

use std::collections::{BTreeMap, BTreeSet};

use base::{BlkId, ObjectId, Txg, VdevId};
use dmu::{FoundDnodes, FoundPointers, Likeness, Sketch};
use phys::dnode::DNODE_BLOCK_SIZE;
use phys::{BlkPtrPhys, DvaPhys, ObjectType, ObjsetType, Phys};
use zio::{Bookmark, FoundBlock};

use super::{FoundObjset, Places, Seek, Sighted, UNNAMED, add_place, of_likeness};

/// Where a block is, and when it was written.
pub(super) type Key = (VdevId, u64, Txg);

/// An indirect block.
struct Highest {
    level: u8,
    birth: Txg,
    lsize: u64,
    is_little_endian: bool,
    /// Its pointer to the first block below.
    first: BlkPtrPhys,
    sketch: Sketch,
    places: Places,
}

/// The copies that a pointer leads to.
pub(super) fn keys(bp: &BlkPtrPhys) -> Vec<Key> {
    let key = |dva: DvaPhys| (dva.vdev(), dva.offset(), bp.birth());
    bp.dvas().map(key).collect()
}

impl Seek {
    /// The objsets of which a block of pointers is the highest that is left. `below` has where the blocks are that
    /// roots lead to.
    pub(super) fn trees(
        &self,
        sighted: &BTreeSet<Sighted>,
        mut below: BTreeSet<Key>,
        see: &mut dyn FnMut(),
    ) -> Vec<FoundObjset> {
        // By what is stored: copies are the same.
        let mut blocks: BTreeMap<Vec<u8>, Highest> = BTreeMap::new();
        for sighting in of_likeness(sighted, Likeness::Pointers) {
            see();
            let Some((block, stored)) = self.read_pointers(sighting) else {
                continue;
            };
            if block.level() > 1 {
                below.extend(block.blocks().flat_map(keys));
            }
            let Some(first) = block.pointers.first().filter(|bp| !bp.is_hole()) else {
                continue;
            };
            let found = blocks.entry(stored).or_insert(Highest {
                level: block.level(),
                birth: block.birth(),
                lsize: block.lsize,
                is_little_endian: block.is_little_endian,
                first: *first,
                sketch: sighting.what,
                places: Vec::new(),
            });
            add_place(&mut found.places, sighting);
        }
        let is_highest = |block: &Highest| {
            let mut places = block.places.iter();
            !places.any(|(vdev, offset)| below.contains(&(*vdev, *offset, block.birth)))
        };
        blocks.retain(|_, block| is_highest(block));
        let found = blocks.into_iter().filter_map(|(stored, block)| {
            let pointer = FoundBlock {
                stored: &stored,
                lsize: block.lsize,
                compress: block.sketch.compress,
                object_type: ObjectType::DNODE,
                level: block.level,
                birth: block.birth,
                is_little_endian: block.is_little_endian,
            };
            Some(FoundObjset {
                type_: self.type_below(&block.first)?,
                txg: block.birth,
                root: pointer.pointer(&*self.tree, &block.places),
                version: self.version,
                reflow: *self.reflow.lock(),
            })
        });
        found.collect()
    }

    fn read_pointers(&self, sighting: &Sighted) -> Option<(FoundPointers, Vec<u8>)> {
        self.read(sighting, &|sketch, stored| {
            let block = sketch.pointers(stored)?;
            let psize = block.psize;
            Ok((block, psize))
        })
    }

    /// What the objset is whose first block of dnodes is below this pointer; `None` if it is not the first.
    fn type_below(&self, bp: &BlkPtrPhys) -> Option<ObjsetType> {
        let mut bp = *bp;
        loop {
            let level = bp.level();
            let bookmark = Bookmark::new(UNNAMED, ObjectId(0), level, BlkId(0));
            let block = self.store.read_keyless(&bp, &bookmark).ok()?.to_vec();
            if level == 0 {
                return type_of(block);
            }
            let (first, _) = block.split_first_chunk::<{ size_of::<BlkPtrPhys>() }>()?;
            let below = *BlkPtrPhys::view(first).ok()?;
            let is_below = !below.is_hole() && below.level() + 1 == level;
            bp = is_below.then_some(below)?;
        }
    }
}

/// What the objset is that has this block of dnodes as its first.
fn type_of(bytes: Vec<u8>) -> Option<ObjsetType> {
    if bytes.len() != DNODE_BLOCK_SIZE {
        return None;
    }
    let block = FoundDnodes::of_block(bytes);
    let (slot, dnode) = block.dnodes().next()?;
    let type_ = ObjectType::try_from(dnode.core().type_).ok()?;
    match (slot, type_) {
        (1, ObjectType::MASTER_NODE) => Some(ObjsetType::Zfs),
        (1, ObjectType::ZVOL) => Some(ObjsetType::Zvol),
        _ => None,
    }
}
