//! Ends a descent through blocks that lead to the same blocks again and again.
//!
//! # What it is
//! On a hostile disk many pointers may lead to one block: ten small blocks can represent exabytes. In an
//! honest tree each block that holds pointers, dnodes or other metadata has one place: dedup and cloning
//! share blocks of files only, and snapshots share blocks with other trees. So a visitor of a whole tree
//! remembers which blocks were [`Followed`], and ends with an error when one is met again. Then the work
//! and the memory are bounded by the pointers that are really stored, however large the tree claims to be.
//!
//! Lists of the pool itself (of blocks, of segments, its history) are read from one end to the other,
//! after [`Dnode::check_dense`] has checked them: holes, too, could represent endless entries.
//!
//! # Why not simpler
//! The number of blocks that the pool has room for is a bound as well, but a sparse image of a large
//! disk has room for years of work.

use std::collections::BTreeSet;
use std::ops::Range;

use base::{BlkId, Error, Result};
use phys::blkptr::BlkPtrPhys;
use zerocopy::IntoBytes;
use zio::Bookmark;

use crate::Dnode;
use crate::dnode::View;
use crate::dnode_read::Found;

/// Blocks of an object that are looked up per acquisition of its lock.
const TOGETHER_BLOCKS: u64 = 1024;

/// The blocks of one tree that a descent has met, identified by their first copy and their birth txg, as
/// the space may have been reused by then.
#[derive(Default)]
pub struct Followed(BTreeSet<[u64; 3]>);

impl Followed {
    /// Records that `bp`, a block of pointers or dnodes, is followed.
    ///
    /// # Errors
    /// `Corrupt` when it was recorded before, and when it is embedded, as such blocks never are.
    pub fn follow(&mut self, bp: &BlkPtrPhys, at: &Bookmark) -> Result<()> {
        if bp.is_embedded() {
            let what = format!("block {at} leads to others, and is embedded");
            return Err(Error::corrupt(what));
        }
        self.meet(bp, at)
    }

    /// Records that `bp`, a block of metadata of any kind, is looked at.
    ///
    /// # Errors
    /// `Corrupt` when it was recorded before.
    pub(crate) fn meet(&mut self, bp: &BlkPtrPhys, at: &Bookmark) -> Result<()> {
        if self.0.insert(identity(bp)) {
            return Ok(());
        }
        let what = format!("block {at} has been met elsewhere in its tree");
        Err(Error::corrupt(what))
    }
}

fn identity(bp: &BlkPtrPhys) -> [u64; 3] {
    if bp.is_embedded() {
        let (words, _) = bp.as_bytes().as_chunks::<8>();
        let fold = |sum: u64, word: &[u8; 8]| {
            (sum.rotate_left(7) ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        return [0, 1, 2].map(|seed| words.iter().fold(seed, fold));
    }
    let [first, second] = bp.dvas().next().map_or([0, 0], |dva| dva.words());
    [first, second, bp.physical_birth().0]
}

impl Dnode {
    pub(crate) fn bookmark(&self, blkid: u64) -> Bookmark {
        Bookmark::new(self.objset_id(), self.id(), 0, BlkId(blkid))
    }

    /// Checks that `len` bytes from `offset` on are stored, each block of them in a place of its own, as
    /// in metadata without holes. The last block may be a hole: if it holds nothing but zeros (a single
    /// zero entry of a space map), it is not stored.
    ///
    /// # Errors
    /// `Corrupt` when not; errors from reading indirect blocks.
    pub fn check_dense(&self, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let blksz = self.blksz();
        let mut met = Followed::default();
        let end = offset.saturating_add(len).div_ceil(blksz);
        let mut at = offset / blksz;
        while at < end {
            let next = end.min(at + TOGETHER_BLOCKS);
            self.check_dense_blocks(at..next, end - 1, &mut met)?;
            at = next;
        }
        Ok(())
    }

    fn check_dense_blocks(&self, blocks: Range<u64>, last: u64, met: &mut Followed) -> Result<()> {
        let mut state = self.state();
        let locate = |blkid| (blkid, state.locate(View::Open, blkid));
        let found: Vec<(u64, Found)> = blocks.map(locate).collect();
        let (_ticket, mut walk) = self.walk(&mut state);
        drop(state);
        for (blkid, found) in found {
            let bp = match found {
                Found::Memory(_) => continue,
                Found::Zeros => BlkPtrPhys::default(),
                Found::Stored(bp) => bp,
                Found::Disk => walk.bp(0, blkid)?,
            };
            let at = self.bookmark(blkid);
            if bp.is_hole() && blkid == last {
                continue;
            }
            if bp.is_hole() {
                let what = format!("block {at} is a hole in what has none");
                return Err(Error::corrupt(what));
            }
            met.meet(&bp, &at)?;
        }
        Ok(())
    }
}
