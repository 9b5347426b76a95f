//! A second-level cache: the stored bytes of blocks, on devices beside those of the pool.
//!
//! # What it is
//! The pipeline asks it before it reads a block from the pool, and offers it what it has read or written. Bytes from
//! there count only if they match the block's checksum; otherwise the pool is read as if there were no such cache. So
//! blocks without a checksum, and those that the pipeline does not store as one piece, never get there.
//!
//! # Source
//! OpenZFS `module/zfs/arc.c` (`l2arc_read_done`, `l2arc_write_eligible`).

use base::{BlockBuf, ObjsetId};
use phys::{BlkPtrPhys, ChecksumType};

use crate::pipeline::Pipeline;

/// A cache for the stored bytes of blocks.
#[doc(alias = "l2arc")]
pub trait SecondLevel: Send + Sync {
    /// At least psize bytes, which the caller verifies; `None` if the block is not there.
    fn read(&self, bp: &BlkPtrPhys) -> Option<BlockBuf>;

    /// Takes the psize bytes of a block of this objset, or not.
    fn offer(&self, bp: &BlkPtrPhys, objset: ObjsetId, is_metadata: bool, bytes: &[u8]);
}

/// Whether the block can be told from any other by its checksum, and is stored in one piece.
fn is_fit(bp: &BlkPtrPhys) -> bool {
    let checksum = ChecksumType::try_from(bp.checksum());
    let is_exact = checksum.is_ok_and(|kind| {
        !matches!(
            kind,
            ChecksumType::Off | ChecksumType::Zilog | ChecksumType::Zilog2
        )
    });
    is_exact && !bp.is_gang() && !bp.is_encrypted() && !bp.is_hole() && !bp.is_embedded()
}

impl Pipeline {
    /// The bytes of a block in the second-level cache.
    pub(crate) fn read_second(&self, bp: &BlkPtrPhys) -> Option<BlockBuf> {
        let second = self.second.get()?;
        if !is_fit(bp) {
            return None;
        }
        let found = second.read(bp)?;
        self.verifies(bp, &found).then_some(found)
    }

    /// Offers the bytes of a block to the second-level cache.
    pub(crate) fn offer_second(
        &self,
        bp: &BlkPtrPhys,
        objset: ObjsetId,
        is_metadata: bool,
        bytes: &[u8],
    ) {
        if let Some(second) = self.second.get()
            && is_fit(bp)
        {
            second.offer(bp, objset, is_metadata, bytes);
        }
    }
}
