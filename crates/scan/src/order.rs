//! The order in which blocks are visited, and what it says of a bookmark to go on from.
//!
//! # Source
//! OpenZFS `module/zfs/zio.c` (`zbookmark_compare`, `zbookmark_subtree_completed`).

use base::{BlkId, ObjectId};
use phys::DnodePhys;
use phys::blkptr::SPA_BLKPTRSHIFT;
use zio::Bookmark;

/// Above any level (`COMPARE_META_LEVEL`): blocks of dnodes come after what the dnodes refer to.
const META_LEVEL: u64 = 1 << 31;
/// `DNODES_PER_LEVEL0_SHIFT` less `SPA_MINBLOCKSHIFT`: the sectors of a block of dnodes.
const DNODE_BLOCK_SECTORS: u64 = 1 << 5;

/// A place in that order: object, first block of level 0, and the higher level first.
type Key = (u64, u64, std::cmp::Reverse<u64>);

/// The place of a block in a tree of which data blocks have so many sectors, and indirect blocks so many
/// pointers (as a power of two).
fn key(at: &Bookmark, sectors: u64, epbs: u32) -> Key {
    let level = at.level.cast_unsigned();
    let shift = epbs.saturating_mul(u32::try_from(level).unwrap_or(u32::MAX));
    let is_beyond = at.blkid.0 != 0 && shift >= at.blkid.0.leading_zeros();
    let first = if is_beyond {
        u64::MAX
    } else {
        at.blkid.0 << shift.min(63)
    };
    if at.object == ObjectId(0) {
        let object = first.saturating_mul(sectors);
        return (object, 0, std::cmp::Reverse(level + META_LEVEL));
    }
    (at.object.0, first, std::cmp::Reverse(level))
}

fn key_in(at: &Bookmark, dnode: &DnodePhys) -> Key {
    let epbs = u32::from(dnode.indblkshift).saturating_sub(SPA_BLKPTRSHIFT);
    key(at, u64::from(dnode.datablkszsec.get()), epbs)
}

/// The place of a bookmark that a scan was suspended at: always of level 0.
fn key_of_resume(resume: &Bookmark) -> Key {
    key(resume, DNODE_BLOCK_SECTORS, 0)
}

/// Whether a block, and all below it, comes before the bookmark that the scan goes on from.
#[doc(alias = "zbookmark_subtree_completed")]
pub(crate) fn is_done(at: &Bookmark, dnode: &DnodePhys, resume: &Bookmark) -> bool {
    let next = Bookmark {
        blkid: BlkId(at.blkid.0.saturating_add(1)),
        ..*at
    };
    key_in(&next, dnode) <= key_of_resume(resume)
}

/// Whether a block is at, or behind, the bookmark that the scan goes on from.
#[doc(alias = "zbookmark_subtree_tbd")]
pub(crate) fn is_to_do(at: &Bookmark, dnode: &DnodePhys, resume: &Bookmark) -> bool {
    key_in(at, dnode) >= key_of_resume(resume)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ObjsetId;

    fn dnode() -> DnodePhys {
        let mut dnode = DnodePhys::default();
        dnode.datablkszsec.set(32);
        dnode.indblkshift = 17;
        dnode
    }

    fn at(object: u64, level: u8, blkid: u64) -> Bookmark {
        Bookmark::new(ObjsetId(5), ObjectId(object), level, BlkId(blkid))
    }

    #[test]
    fn blocks_come_in_the_order_of_the_walk() {
        let resume = at(7, 0, 3000);
        let (done, to_do) = (
            |place| is_done(&place, &dnode(), &resume),
            |place| is_to_do(&place, &dnode(), &resume),
        );
        // Data before it, and the object before it.
        assert!(done(at(7, 0, 2999)) && done(at(6, 2, 0)) && done(at(7, 1, 1)));
        // The block itself, what is behind it, and what it is below of.
        assert!(!done(at(7, 0, 3000)) && to_do(at(7, 0, 3000)));
        assert!(!done(at(7, 1, 2)) && !to_do(at(7, 1, 2)));
        assert!(!done(at(7, 2, 0)) && !to_do(at(7, 2, 0)));
        assert!(to_do(at(7, 1, 3)) && to_do(at(8, 3, 0)));
        // The block of dnodes with object 7 is not done, the one behind it is to do.
        assert!(!done(at(0, 0, 0)) && to_do(at(0, 0, 1)));
    }
}
