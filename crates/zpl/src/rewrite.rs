//! Rewriting: the blocks of a file are written once more, as its contents are, by what the properties say now.
//!
//! # What it is
//! A changed property (compression, checksum, copies, special_small_blocks) is for blocks that are written from then
//! on, and a device that was added is only used by new blocks. Rewriting brings files there without a change that
//! a program could see: no time of the file changes. Holes stay, and so does the size of blocks.
//!
//! A block that is written anew counts as changed for whatever looks for changes since a snapshot. With feature
//! `physical_rewrite` it can keep the birth of its contents: what is incremental then leaves it out, while
//! snapshots, which keep the old block, are charged for it as for any other.
//!
//! # Concurrency
//! The content lock of the file, for a chunk at a time.
//!
//! # Source
//! OpenZFS 2.4 module/zfs/zfs_vnops.c (`zfs_rewrite`).

use base::{BlkId, Error, ErrorKind, ObjectId, Result};

use crate::Filesystem;
use crate::file::{ATTRS_DIRTY_BYTES, WRITE_CHUNK_BYTES};

impl Filesystem {
    /// Writes `len` bytes of a file from `offset` on, all of them for 0, once more. With `keeps_birth` its contents
    /// stay as old as they are.
    ///
    /// # Errors
    /// `Unsupported` for `keeps_birth` where the pool has not enabled `physical_rewrite`. Otherwise as of
    /// [`write`](Filesystem::write); what was rewritten before the error stays so.
    #[doc(alias = "zfs_rewrite")]
    pub fn rewrite(&self, id: ObjectId, offset: u64, len: u64, keeps_birth: bool) -> Result<()> {
        if keeps_birth && !self.space.can_keep_births() {
            let text = "feature 'physical_rewrite' is not enabled on this pool";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let node = self.regular_file(id)?;
        let mut at = offset;
        loop {
            let blksz = node.dnode.blksz();
            let tx = self.begin(ATTRS_DIRTY_BYTES + WRITE_CHUNK_BYTES.max(blksz))?;
            let _content = node.locks.content.write();
            let size = self.attr_of(&node)?.size;
            let end = match len {
                0 => size,
                _ => offset.saturating_add(len).min(size),
            };
            let Some(data) = node.dnode.next_data(at)?.filter(|data| *data < end) else {
                return Ok(());
            };
            let blksz = node.dnode.blksz();
            let first = data / blksz;
            let most = (WRITE_CHUNK_BYTES / blksz).max(1);
            let hole = node.dnode.next_hole(data)?.min(end).div_ceil(blksz);
            let last = hole.min(first + most);
            for blkid in first..last {
                node.dnode.rewrite_block(&tx, BlkId(blkid), keeps_birth)?;
            }
            at = last.saturating_mul(blksz);
        }
    }
}
