//! What a block leads to: the pointers in it, and what their places say of them.
//!
//! # What it is
//! The block of an objset leads to the dnodes in it ([`objset_dnodes`]), a block of dnodes to dnodes too
//! ([`block_dnodes`]); a dnode leads to the blocks at the top of its tree and to its spill block
//! ([`Link::of_dnode`]), an indirect block to those below it ([`Link::of_indirect`]). All of them are iterators
//! over the bytes that were read: nothing is copied but the block of an objset.
//!
//! # Invariants
//! 1. Nothing on disk is trusted: an invalid dnode is an error in its place, and the dnodes after it
//!    follow. Numbers saturate.
//!
//! # Source
//! OpenZFS module/zfs/dmu_traverse.c (`traverse_visitbp`, `traverse_dnode`) @be7657e3

use base::{BlkId, Error, ObjectId, ObjsetId, Result};
use phys::blkptr::SPA_BLKPTRSHIFT;
use phys::dnode::{DNODE_MIN_SIZE, DNODES_PER_BLOCK};
use phys::objset::{GROUPUSED_OBJECT, PROJECTUSED_OBJECT, USERUSED_OBJECT};
use phys::{BlkPtrPhys, DnodePhys, DnodeView, ObjectType, ObjsetPhys, Phys};
use zerocopy::IntoBytes;
use zio::Bookmark;

use crate::META_DNODE_OBJECT;

/// The shape of an object's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The object type that its pointers should have.
    pub type_: u8,
    /// dn_indblkshift
    indblkshift: u8,
    /// dn_datablkszsec
    datablkszsec: u16,
}

impl Shape {
    /// For what is not in a known tree: the block of an objset, a point.
    pub(super) const OUTSIDE: Shape = Shape {
        type_: ObjectType::OBJSET.raw(),
        indblkshift: 0,
        datablkszsec: DNODES_PER_BLOCK as u16,
    };

    fn of(dnode: &DnodePhys) -> Shape {
        Shape {
            type_: dnode.type_,
            indblkshift: dnode.indblkshift,
            datablkszsec: dnode.datablkszsec.get(),
        }
    }

    /// log2 of the pointers in an indirect block.
    pub(super) fn epbs(self) -> u32 {
        u32::from(self.indblkshift).saturating_sub(SPA_BLKPTRSHIFT)
    }

    /// Slots in a data block, if it holds dnodes: one per 512-byte sector.
    pub(super) fn dnodes_per_block(self) -> u64 {
        u64::from(self.datablkszsec)
    }
}

/// What the bytes of a block are, if they lead further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lead {
    /// `objset_phys_t`
    Objset,
    /// Slots of dnodes.
    Dnodes,
    /// Block pointers.
    Indirect,
}

/// A pointer, and its place in the objset.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    /// The pointer.
    pub bp: &'a BlkPtrPhys,
    /// The place.
    pub at: Bookmark,
    /// The tree that it is in.
    pub shape: Shape,
}

impl<'a> Link<'a> {
    /// The pointer to the block of an objset.
    #[must_use]
    pub fn root(bp: &'a BlkPtrPhys, objset: ObjsetId) -> Link<'a> {
        Link {
            bp,
            at: Bookmark::root(objset),
            shape: Shape::OUTSIDE,
        }
    }

    /// The pointers of a dnode, the spill pointer last.
    pub fn of_dnode(
        dnode: &DnodeView<'a>,
        objset: ObjsetId,
        object: ObjectId,
    ) -> impl Iterator<Item = Link<'a>> + use<'a> {
        let core = dnode.core();
        let shape = Shape::of(core);
        let top = core.nlevels - 1;
        let links = dnode
            .blkptrs()
            .iter()
            .zip(0..)
            .map(move |(bp, blkid)| Link {
                bp,
                at: Bookmark::new(objset, object, top, BlkId(blkid)),
                shape,
            });
        let type_ = core.bonustype;
        let spill = dnode.spill().map(|bp| Link {
            bp,
            at: Bookmark::spill(objset, object),
            shape: Shape { type_, ..shape },
        });
        links.chain(spill)
    }

    /// The pointers in the indirect block at a place.
    pub fn of_indirect(
        block: &'a [u8],
        at: &Bookmark,
        shape: Shape,
    ) -> impl Iterator<Item = Link<'a>> + use<'a> {
        let pointers = BlkPtrPhys::array(block);
        let first = at.blkid.0.saturating_mul(pointers.len() as u64);
        let above = *at;
        pointers.iter().zip(0..).map(move |(bp, n)| Link {
            bp,
            at: Bookmark {
                level: above.level - 1,
                blkid: BlkId(first.saturating_add(n)),
                ..above
            },
            shape,
        })
    }

    /// Whether this is the block of an objset.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.at.level == Bookmark::ROOT_LEVEL
    }

    /// What the block is, by its place. `None`: it leads no further.
    #[must_use]
    pub fn lead(&self) -> Option<Lead> {
        match self.at.level {
            Bookmark::ROOT_LEVEL => Some(Lead::Objset),
            0 if self.at.object == META_DNODE_OBJECT => Some(Lead::Dnodes),
            0 => None,
            _ => Some(Lead::Indirect),
        }
    }

    /// Checks that a pointer has the level of its place: levels fall with each step, so that a block
    /// that leads to itself is detected.
    pub(super) fn check_level(&self) -> Result<()> {
        let (at, level) = (&self.at, self.bp.level());
        if i64::from(level) == at.level.max(0) {
            return Ok(());
        }
        Err(Error::corrupt(format!("block {at} has level {level}")))
    }

    /// Checks that a block has as many pointers or dnodes as all blocks of its tree: otherwise its
    /// children would be in other places than the bookmarks say.
    pub(super) fn check_size(&self, lead: Lead, bytes: usize) -> Result<()> {
        let expected = match lead {
            Lead::Objset => return Ok(()),
            Lead::Dnodes => self.shape.dnodes_per_block() * DNODE_MIN_SIZE as u64,
            Lead::Indirect => 1 << self.shape.indblkshift,
        };
        if bytes as u64 == expected {
            return Ok(());
        }
        let what = format!("block {}: {bytes} bytes, not {expected}", self.at);
        Err(Error::corrupt(what))
    }
}

/// The dnodes in the block of an objset: the meta-dnode, then the accounting objects by number.
pub fn objset_dnodes(
    objset: &ObjsetPhys,
) -> impl Iterator<Item = (ObjectId, Result<DnodeView<'_>>)> {
    let slots = [
        (META_DNODE_OBJECT.0, &objset.meta_dnode),
        (PROJECTUSED_OBJECT, &objset.projectused_dnode),
        (GROUPUSED_OBJECT, &objset.groupused_dnode),
        (USERUSED_OBJECT, &objset.userused_dnode),
    ];
    let used = slots
        .into_iter()
        .filter(|(_, slot)| slot.core.is_allocated());
    used.map(|(object, slot)| (ObjectId(object), DnodeView::new(slot.as_bytes())))
}

/// The dnodes in the block of dnodes at a place.
///
/// # Panics
/// If the block is not made of whole slots.
pub fn block_dnodes<'a>(
    block: &'a [u8],
    at: &Bookmark,
) -> impl Iterator<Item = (ObjectId, Result<DnodeView<'a>>)> + use<'a> {
    let count = block.len() / DNODE_MIN_SIZE;
    let first = at.blkid.0.saturating_mul(count as u64);
    let mut next = 0;
    std::iter::from_fn(move || {
        while next < count {
            let slot = next;
            let bytes = &block[slot * DNODE_MIN_SIZE..];
            let core = DnodePhys::view(bytes).expect("whole slots");
            if !core.is_allocated() {
                next += 1;
                continue;
            }
            let dnode = DnodeView::new(bytes);
            next += dnode.as_ref().map_or(1, |dnode| dnode.core().slots());
            return Some((ObjectId(first.saturating_add(slot as u64)), dnode));
        }
        None
    })
}
