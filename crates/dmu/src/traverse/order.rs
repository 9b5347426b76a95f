//! The order in which the blocks of an objset are visited, and the point where a traversal goes on.
//!
//! # What it is
//! Objects come in order of number; the blocks of an object in order of the first block of level 0 below
//! them, and of those with the same first block the highest level first. A block of dnodes comes right
//! before the object of its first slot. This is the order in which a traversal enters blocks; it leaves
//! each of them after everything below it.
//!
//! # On disk
//! A point is a `zbookmark_phys_t` of level 0: `scn_bookmark` of a scan, `be_zb` of a tree that is being freed.
//! All zeros: the traversal has not begun.
//!
//! # Source
//! OpenZFS module/zfs/zio.c (`zbookmark_compare`, `zbookmark_subtree_completed`, `zbookmark_subtree_tbd`)
//! @be7657e3

use std::cmp::Reverse;

use base::{BlkId, ObjectId, ObjsetId};
use phys::BookmarkPhys;
use zio::Bookmark;

use super::decode::{Link, Shape};
use crate::META_DNODE_OBJECT;
use crate::tree::shl_saturating;

/// `COMPARE_META_LEVEL`, above any level: a block of dnodes comes before the blocks of the object of its first slot.
const META_LEVEL: u64 = 1 << 31;

/// Object, first block of level 0, and the higher level first.
type Key = (u64, u64, Reverse<u64>);

fn key(at: &Bookmark, shape: Shape) -> Key {
    let level = at.level.cast_unsigned();
    let levels = u32::try_from(level).unwrap_or(u32::MAX);
    let first = shl_saturating(at.blkid.0, shape.epbs().saturating_mul(levels));
    if at.object == META_DNODE_OBJECT {
        let object = first.saturating_mul(shape.dnodes_per_block());
        return (object, 0, Reverse(level + META_LEVEL));
    }
    (at.object.0, first, Reverse(level))
}

/// Where a block is, as seen from a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The block and all below it come before the point.
    Before,
    /// The point is below the block.
    Around,
    /// The block is the point.
    At,
    /// The block and all below it come after the point.
    Behind,
}

/// A block of level 0 at which a traversal resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub(super) object: ObjectId,
    pub(super) blkid: BlkId,
}

impl Point {
    /// `None` for a traversal that has not begun.
    #[must_use]
    pub fn from_phys(phys: &BookmarkPhys) -> Option<Point> {
        (*phys != BookmarkPhys::default()).then(|| Point {
            object: ObjectId(phys.object.get()),
            blkid: BlkId(phys.blkid.get()),
        })
    }

    /// The point in an objset, as it is stored.
    #[must_use]
    pub fn to_phys(self, objset: ObjsetId) -> BookmarkPhys {
        BookmarkPhys {
            objset: objset.0.into(),
            object: self.object.0.into(),
            level: 0.into(),
            blkid: self.blkid.0.into(),
        }
    }

    /// A block of level 0; `None` for the block of an objset.
    pub(super) fn of(link: &Link<'_>) -> Option<Point> {
        (link.at.level == 0).then_some(Point {
            object: link.at.object,
            blkid: link.at.blkid,
        })
    }

    /// The point before everything below a block; `None` for the block of an objset.
    pub(super) fn below(link: &Link<'_>) -> Option<Point> {
        if link.is_root() {
            return None;
        }
        let (object, first, _) = key(&link.at, link.shape);
        if link.at.object == META_DNODE_OBJECT {
            return Some(Point::first_of(ObjectId(object.max(1))));
        }
        let blkid = BlkId(first);
        Some(Point {
            object: ObjectId(object),
            blkid,
        })
    }

    /// The first block of an object.
    pub(super) fn first_of(object: ObjectId) -> Point {
        Point {
            object,
            blkid: BlkId(0),
        }
    }

    /// On which side of the point a block is.
    #[doc(alias = "zbookmark_compare")]
    #[doc(alias = "zbookmark_subtree_completed")]
    #[doc(alias = "zbookmark_subtree_tbd")]
    #[must_use]
    pub fn side_of(self, at: &Bookmark, shape: Shape) -> Side {
        if at.level < 0 {
            return Side::Around;
        }
        // A block ends where the next one of its level begins.
        let end = Bookmark {
            blkid: BlkId(at.blkid.0.saturating_add(1)),
            ..*at
        };
        // At level 0 the shape of the tree does not matter.
        let point = Bookmark::new(at.objset, self.object, 0, self.blkid);
        let point = key(&point, Shape::OUTSIDE);
        if key(&end, shape) <= point {
            Side::Before
        } else if at.object == self.object && at.level == 0 && at.blkid == self.blkid {
            Side::At
        } else if key(at, shape) >= point {
            Side::Behind
        } else {
            Side::Around
        }
    }
}
