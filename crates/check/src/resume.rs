//! How far the destruction of a dataset got.
//!
//! # What it is
//! A destroyed dataset is freed in the background, some blocks per txg. Its queue entry says which
//! block of which object is the next one; everything before it, in order of the walk, is free
//! already. Order of the walk: objects ascending, blocks ascending, a block after all below it;
//! blocks of dnodes after the objects in them.
//!
//! # Source
//! OpenZFS `module/zfs/zio.c` (`zbookmark_subtree_completed`), `module/zfs/bptree.c`.

use phys::BookmarkPhys;
use phys::dnode::DNODES_PER_BLOCK;
use zio::Bookmark;

/// The next block to be freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resume {
    object: u64,
    blkid: u64,
}

impl Resume {
    pub(crate) fn new(bookmark: &BookmarkPhys) -> Self {
        Resume {
            object: bookmark.object.get(),
            blkid: bookmark.blkid.get(),
        }
    }

    /// Whether the block was freed before. `epbs`: log2 of the pointers per indirect block.
    pub(crate) fn is_freed(&self, bookmark: &Bookmark, epbs: u32) -> bool {
        let Ok(level) = u32::try_from(bookmark.level) else {
            return false;
        };
        // The first level-0 block after those below this one.
        let next = bookmark.blkid.0.saturating_add(1);
        let end = next.checked_mul(1u64.checked_shl(level * epbs).unwrap_or(u64::MAX));
        let end = end.unwrap_or(u64::MAX);
        if bookmark.object.0 == 0 {
            return end.saturating_mul(DNODES_PER_BLOCK) <= self.object;
        }
        (bookmark.object.0, end) <= (self.object, self.blkid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{BlkId, ObjectId, ObjsetId};

    fn at(object: u64, level: u8, blkid: u64) -> Bookmark {
        Bookmark::new(ObjsetId(7), ObjectId(object), level, BlkId(blkid))
    }

    #[test]
    fn what_comes_before_the_next_block_is_freed() {
        let resume = Resume {
            object: 70,
            blkid: 1030,
        };
        let freed = |bookmark| resume.is_freed(&bookmark, 10);
        assert!(freed(at(69, 0, 9999)) && freed(at(70, 0, 1029)));
        assert!(!freed(at(70, 0, 1030)) && !freed(at(71, 0, 0)));
        // The first indirect block covers 0..1024, the second one reaches beyond.
        assert!(freed(at(70, 1, 0)) && !freed(at(70, 1, 1)));
        assert!(!freed(at(70, 2, 0)));
        // Objects 32..64 are gone, 64..96 are not.
        assert!(freed(at(0, 0, 1)) && !freed(at(0, 0, 2)));
        assert!(!freed(at(0, 1, 0)) && !freed(Bookmark::root(ObjsetId(7))));
    }

    #[test]
    fn nothing_is_freed_at_the_start() {
        let resume = Resume {
            object: 0,
            blkid: 0,
        };
        assert!(!resume.is_freed(&at(0, 0, 0), 10));
        assert!(!resume.is_freed(&at(1, 3, 0), 10));
    }
}
