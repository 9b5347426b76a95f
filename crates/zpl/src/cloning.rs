//! Cloning: a range of a file becomes that of another one, whose blocks it shares.
//!
//! # What it is
//! Whole blocks are shared, so both files must have the same block size and the ranges begin at a block; only the end
//! of the source may be in the midst of one. Where that is not so the caller copies. A block that is dirty has no
//! place on disk to share yet: its txg is synced first.
//!
//! Blocks stay as they were written, so file systems that would write them otherwise share none: with another checksum,
//! compression, number of copies or dedup, or with blocks of this size in another class. What a snapshot has is shared
//! all the same.
//!
//! The intent log has a clone as the writing of its bytes: after a crash they are a copy.
//!
//! # Concurrency
//! The content locks of both files, that of the file with the lower number first.
//!
//! # Source
//! OpenZFS module/zfs/zfs_vnops.c (`zfs_clone_range`).

use base::{BlkId, Error, ErrorKind, ObjectId, Result};
use phys::blkptr::BlkPtrPhys;

use crate::attrs::Attr;
use crate::dir::CREATE_BYTES;
use crate::file::{ATTRS_DIRTY_BYTES, SIZE_MAX, WRITE_CHUNK_BYTES};
use crate::fs::Node;
use crate::{Filesystem, log};

/// Most blocks that one transaction clones.
const CLONE_CHUNK_BLOCKS: u64 = 1024;
/// Bytes that the pointer of a cloned block takes while it is dirty.
const DIRTY_POINTER_BYTES: u64 = 1 << 10;
/// How often the pool is synced to get blocks onto disk before the clone is given up.
const SYNCS_MAX: u32 = 8;

/// A place in a file.
#[derive(Clone, Copy)]
pub struct FileOffset<'a> {
    /// Where the file is.
    pub fs: &'a Filesystem,
    /// The file.
    pub id: ObjectId,
    /// Bytes from its start.
    pub offset: u64,
}

/// What came of one transaction.
enum Cloned {
    Bytes(u64),
    /// A block has to be synced first.
    Dirty,
}

impl Filesystem {
    /// Makes the `len` bytes of file `id` at `to` a clone of those at `from`, a place in another file of the same
    /// pool. What is behind the end of that file is left out.
    ///
    /// # Errors
    /// `Unsupported` where blocks cannot be shared: copying does it then. Otherwise as of
    /// [`write`](Filesystem::write). What was cloned before the error stays.
    #[doc(alias = "zfs_clone_range")]
    pub fn clone_range(&self, id: ObjectId, to: u64, from: FileOffset<'_>, len: u64) -> Result<()> {
        let is_same_pool = self.space.pool_number() == from.fs.space.pool_number();
        if !is_same_pool || !self.space.can_clone() {
            return Err(unsupported("the pool does not share blocks"));
        }
        let is_same_file = from.id == id && from.fs.objset.id() == self.objset.id();
        if is_same_file {
            return Err(unsupported("both are the same file"));
        }
        let end = to.checked_add(len.min(SIZE_MAX));
        if end.is_none_or(|end| end > SIZE_MAX) {
            let text = format!("{len} bytes at offset {to}");
            return Err(Error::new(ErrorKind::TooBig, text));
        }
        let (source, target) = (from.fs.regular_file(from.id)?, self.regular_file(id)?);
        let (mut done, mut syncs) = (0, 0);
        while done < len {
            let place = FileOffset {
                offset: from.offset.saturating_add(done),
                ..from
            };
            match self.clone_chunk((&target, to + done), (&source, place), len - done)? {
                Cloned::Bytes(0) => break,
                Cloned::Bytes(bytes) => done += bytes,
                Cloned::Dirty if syncs < SYNCS_MAX => {
                    syncs += 1;
                    if let Some(groups) = &self.groups {
                        groups.sync_all()?;
                    }
                }
                Cloned::Dirty => return Err(unsupported("the source is being written to")),
            }
        }
        self.finish(id)
    }

    fn clone_chunk(
        &self,
        (target, to): (&Node, u64),
        (source, from): (&Node, FileOffset<'_>),
        len: u64,
    ) -> Result<Cloned> {
        let dirty_bytes = ATTRS_DIRTY_BYTES + CLONE_CHUNK_BLOCKS * DIRTY_POINTER_BYTES;
        let tx = self.begin_adding(dirty_bytes, CREATE_BYTES)?;
        let number = |fs: &Filesystem, node: &Node| (fs.objset.id(), node.dnode.id());
        let target_first = number(self, target) < number(from.fs, source);
        let first = target_first.then(|| target.locks.content.write());
        let _source = source.locks.content.read();
        let _target = first.or_else(|| Some(target.locks.content.write()));

        let (theirs, ours) = (from.fs.attr_of(source)?, self.attr_of(target)?);
        let blksz = theirs.blksz;
        let rest = theirs.size.saturating_sub(from.offset);
        let bytes = rest.min(len).min(CLONE_CHUNK_BLOCKS * blksz);
        if bytes == 0 {
            return Ok(Cloned::Bytes(0));
        }
        self.check_written_alike(from.fs, blksz)?;
        check_places((&theirs, from.offset), (&ours, to), bytes)?;
        self.check_change(&ours, to)?;
        let blocks = from.offset / blksz..(from.offset + bytes).div_ceil(blksz);
        let Some(bps) = source.dnode.stored_blocks(blocks)? else {
            return Ok(Cloned::Dirty);
        };
        if !bps.iter().all(|bp| may_share(bp, blksz)) {
            return Err(unsupported("a block cannot be shared"));
        }
        self.check_owner_bytes(&tx, &ours)?;
        if ours.blksz != blksz {
            target.dnode.set_blksz(&tx, blksz)?;
        }
        target.dnode.clone_blocks(&tx, BlkId(to / blksz), &bps)?;
        let size = Some(to + bytes).filter(|end| *end > ours.size);
        self.touch_content(&tx, target, size)?;
        for at in (to..to + bytes).step_by(WRITE_CHUNK_BYTES as usize) {
            let part = WRITE_CHUNK_BYTES.min(to + bytes - at);
            log::write(self, &tx, &ours, at, part, None);
        }
        Ok(Cloned::Bytes(bytes))
    }
}

impl Filesystem {
    /// Whether blocks of that size would be written in the same way by another file system.
    #[doc(alias = "zfs_bclone_strict_properties")]
    fn check_written_alike(&self, from: &Filesystem, blksz: u64) -> Result<()> {
        if from.objset.id() == self.objset.id() || from.space.is_snapshot() {
            return Ok(());
        }
        let (theirs, ours) = (from.objset.props(), self.objset.props());
        if theirs.writes_like(&ours, blksz, self.space.has_special()) {
            return Ok(());
        }
        Err(unsupported("file systems with other properties"))
    }
}

/// Whether a range consists of whole blocks of the same size in both files.
fn check_places((theirs, from): (&Attr, u64), (ours, to): (&Attr, u64), bytes: u64) -> Result<()> {
    let blksz = theirs.blksz;
    let is_whole =
        bytes.is_multiple_of(blksz) || from + bytes == theirs.size && to + bytes >= ours.size;
    if !from.is_multiple_of(blksz) || !to.is_multiple_of(blksz) || !is_whole {
        return Err(unsupported("not at the borders of blocks"));
    }
    let is_one_block = to == 0 && bytes <= blksz;
    let may_have = blksz.is_power_of_two() || is_one_block;
    if ours.blksz != blksz && ours.size > 0 || !may_have {
        return Err(unsupported("blocks of different sizes"));
    }
    Ok(())
}

/// Whether a pointer to the block may be put into another file.
fn may_share(bp: &BlkPtrPhys, blksz: u64) -> bool {
    bp.is_hole() || !bp.is_dedup() && !bp.is_encrypted() && !bp.is_redacted() && bp.lsize() == blksz
}

fn unsupported(why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, why.to_owned())
}
