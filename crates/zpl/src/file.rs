//! The content of files: reading, writing, holes, block size.
//!
//! # What it is
//! A file has one block size. While it fits into one block, the block grows with it in steps of
//! 512 bytes; when it first becomes larger than the record size, its blocks have that size for
//! good. Ranges that were never written are holes and read as zeros.
//!
//! # Concurrency
//! The file's `content` lock: readers together, or one writer. A large write is several
//! transactions.
//!
//! # Source
//! OpenZFS `module/zfs/zfs_vnops.c` (`zfs_read`, `zfs_write`, `zfs_holey`),
//! `module/os/linux/zfs/zfs_znode_os.c` (`zfs_rangelock_cb`, `zfs_grow_blocksize`, `zfs_freesp`,
//! `zfs_extend`, `zfs_trunc`).

use base::{Error, ErrorKind, ObjectId, Result, SPA_MINBLOCKSIZE, align_up};
use dmu::{Content, Dnode, OBJECT_END, Tx};
use phys::sa::ZplAttr;
use phys::znode::pflags;

use crate::attrs::{Attr, Change, Changes, FileType, Time};
use crate::fs::{AtimePolicy, Node};
use crate::{Filesystem, Seen, log};

/// `MAXOFFSET_T`: the largest offset of a file.
pub const SIZE_MAX: u64 = i64::MAX as u64;
/// Most bytes that one transaction writes.
pub(crate) const WRITE_CHUNK_BYTES: u64 = 4 << 20;
/// Bytes that changing attributes makes dirty.
pub(crate) const ATTRS_DIRTY_BYTES: u64 = 32 << 10;
/// Age in seconds from which `relatime` updates an access time in any case.
const RELATIME_SECS: i64 = 24 * 60 * 60;

/// The block size that a file should have before `[offset, end)` is written, if it is to change.
fn grown_blksz(attr: &Attr, end: u64, recordsize: u64) -> Option<u64> {
    let end = end.max(attr.size);
    let may_grow = !attr.blksz.is_power_of_two() || attr.blksz < recordsize;
    if attr.size > attr.blksz || end <= attr.blksz || !may_grow {
        return None;
    }
    let largest = if attr.blksz > recordsize {
        // Made when the record size was larger: only up to the next power of two.
        attr.blksz.next_power_of_two()
    } else {
        recordsize
    };
    Some(largest.min(align_up(end, SPA_MINBLOCKSIZE))).filter(|blksz| *blksz > attr.blksz)
}

impl Filesystem {
    /// Notes that who wrote a file has its contents in a cache of its own, and has closed it: they need not stay in
    /// memory here as well.
    ///
    /// # Errors
    /// `NotFound`; I/O.
    pub fn note_kept_above(&self, id: ObjectId) -> Result<()> {
        self.node(id)?.dnode.note_kept_above();
        Ok(())
    }

    /// Reads at `offset`; returns the number of bytes read, less than asked for only at the end of the file.
    ///
    /// # Errors
    /// `NotFound`, `IsDirectory`, `InvalidInput` (not a regular file); I/O.
    #[doc(alias = "zfs_read")]
    pub fn read(&self, id: ObjectId, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.read_with(id, offset, out.len() as u64, |dnode, len| {
            let len = len as usize;
            dnode.read(offset, &mut out[..len])?;
            Ok(len)
        })
    }

    /// What [`read`](Filesystem::read) of `len` bytes would copy, in place in memory; empty at the end
    /// of the file.
    ///
    /// # Errors
    /// As `read`.
    pub fn contents(&self, id: ObjectId, offset: u64, len: u64) -> Result<Vec<Content>> {
        self.read_with(id, offset, len, |dnode, len| {
            let mut contents = Vec::new();
            dnode.visit(offset, len, &mut |content| contents.push(content))?;
            Ok(contents)
        })
    }

    /// Calls `read` with as much of `len` as the file has from `offset` on, and notes the access time.
    fn read_with<T>(
        &self,
        id: ObjectId,
        offset: u64,
        len: u64,
        read: impl FnOnce(&Dnode, u64) -> Result<T>,
    ) -> Result<T> {
        let node = self.regular_file(id)?;
        let result = {
            let _content = node.locks.content.read();
            let attr = self.attr_of(&node)?;
            let len = attr.size.saturating_sub(offset).min(len);
            let result = read(&node.dnode, len)?;
            if self.needs_atime(&attr) {
                node.locks.attrs.lock().atime = Some(Time::now());
            }
            result
        };
        // A suspended pool takes no changes; the time stays in memory until the next read.
        let groups = self.groups.as_ref();
        let is_suspended = groups.is_some_and(|groups| groups.suspended().is_some());
        if !self.is_held(id) && !is_suspended && node.locks.attrs.lock().atime.is_some() {
            self.flush_atime(&node)?;
        }
        Ok(result)
    }

    /// Writes `data` at `offset`; the file grows as needed.
    ///
    /// # Errors
    /// As [`read`](Filesystem::read); `TooBig`, `Quota`, `NoSpace`, `ReadOnly`, `Permission` (an
    /// immutable file). What was written before the error stays.
    #[doc(alias = "zfs_write")]
    pub fn write(&self, id: ObjectId, offset: u64, data: &[u8]) -> Result<()> {
        self.write_at(id, Some(offset), data, false).map(|_| ())
    }

    /// Writes `data` at the end of the file; returns where that was.
    ///
    /// # Errors
    /// As [`write`](Filesystem::write).
    pub fn append(&self, id: ObjectId, data: &[u8]) -> Result<u64> {
        self.write_at(id, None, data, false)
    }

    /// The same as [`write`](Filesystem::write) for files that were opened with `O_SYNC`: logged
    /// as such, and on stable storage on return.
    ///
    /// # Errors
    /// As [`write`](Filesystem::write).
    pub fn write_sync(&self, id: ObjectId, offset: u64, data: &[u8]) -> Result<()> {
        self.write_at(id, Some(offset), data, true)?;
        self.fsync(id)
    }

    fn write_at(
        &self,
        id: ObjectId,
        offset: Option<u64>,
        data: &[u8],
        is_sync: bool,
    ) -> Result<u64> {
        let node = self.regular_file(id)?;
        let mut start = offset;
        let mut done = 0;
        while done < data.len() {
            let bytes = WRITE_CHUNK_BYTES.min((data.len() - done) as u64);
            let tx = self.begin_adding(bytes, bytes)?;
            {
                let _content = node.locks.content.write();
                let attr = self.attr_of(&node)?;
                let at = *start.get_or_insert(attr.size);
                let from = at.saturating_add(done as u64);
                let chunk = self.write_chunk_len(&attr, from, data.len() - done)?;
                self.check_write(&tx, &attr, from)?;
                let part = &data[done..done + chunk];
                self.write_chunk(&tx, &node, &attr, from, part)?;
                let urgent = is_sync.then_some(part);
                log::write(self, &tx, &attr, from, chunk as u64, urgent);
                done += chunk;
            }
            drop(tx);
        }
        self.finish(id)?;
        Ok(start.unwrap_or_default())
    }

    /// How much of `len` bytes goes into one transaction: if not all of it, then up to the end of a block.
    fn write_chunk_len(&self, attr: &Attr, from: u64, len: usize) -> Result<usize> {
        let end = from.checked_add(len as u64).filter(|end| *end <= SIZE_MAX);
        if end.is_none() {
            return Err(Error::new(
                ErrorKind::TooBig,
                format!("{len} bytes at offset {from}"),
            ));
        }
        if len as u64 <= WRITE_CHUNK_BYTES {
            return Ok(len);
        }
        let blksz = attr.blksz.max(self.objset.props().recordsize);
        let end = (from + WRITE_CHUNK_BYTES) / blksz * blksz;
        Ok(if end > from {
            (end - from) as usize
        } else {
            WRITE_CHUNK_BYTES as usize
        })
    }

    fn check_write(&self, tx: &Tx, attr: &Attr, from: u64) -> Result<()> {
        if self.log.is_replaying(tx) {
            return Ok(());
        }
        self.check_change(attr, from)?;
        self.check_owner_bytes(tx, attr)
    }

    /// Whether the flags of a file let its content from `from` on be changed.
    pub(crate) fn check_change(&self, attr: &Attr, from: u64) -> Result<()> {
        let is_append = from >= attr.size;
        if attr.pflags & pflags::IMMUTABLE == 0
            && (attr.pflags & pflags::APPENDONLY == 0 || is_append)
        {
            return Ok(());
        }
        let text = format!("file {} is immutable", attr.id);
        Err(Error::new(ErrorKind::Permission, text))
    }

    /// Writes within one transaction; the caller holds the content lock.
    pub(crate) fn write_chunk(
        &self,
        tx: &Tx,
        node: &Node,
        attr: &Attr,
        from: u64,
        data: &[u8],
    ) -> Result<()> {
        let end = from + data.len() as u64;
        let recordsize = self.objset.props().recordsize;
        if let Some(blksz) = grown_blksz(attr, end, recordsize) {
            self.set_blksz(tx, node, blksz)?;
        }
        node.dnode.write(tx, from, data)?;
        let size = attr.size.max(end);
        self.touch_content(tx, node, Some(size).filter(|size| *size != attr.size))
    }

    /// A file that turns out to have more than one block keeps its block size.
    fn set_blksz(&self, tx: &Tx, node: &Node, blksz: u64) -> Result<()> {
        match node.dnode.set_blksz(tx, blksz) {
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
            result => result,
        }
    }

    /// Notes that the content has changed.
    pub(crate) fn touch_content(&self, tx: &Tx, node: &Node, size: Option<u64>) -> Result<()> {
        let now = Time::now();
        let mut attrs = node.locks.attrs.lock();
        let attr = self.read_attr(&node.dnode, &mut attrs)?;
        let mut flags = attr.pflags | pflags::ARCHIVE | pflags::AV_MODIFIED;
        if size == Some(0) {
            flags &= !pflags::SPARSE;
        }
        let mut changes = Changes::from_iter([
            Change::Time(ZplAttr::Mtime, now),
            Change::Time(ZplAttr::Ctime, now),
            Change::Word(ZplAttr::Flags, flags),
        ]);
        changes.extend(size.map(|size| Change::Word(ZplAttr::Size, size)));
        attrs.txg = tx.txg();
        self.write_attrs(tx, &node.dnode, &mut attrs, &changes)?;
        self.see(Seen::Content(node.id()));
        Ok(())
    }

    /// Makes the file `size` bytes long.
    ///
    /// # Errors
    /// As [`write`](Filesystem::write).
    #[doc(alias = "zfs_freesp")]
    pub fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        self.free_space(id, size, 0)?;
        self.finish(id)
    }

    /// Makes `[offset, offset + len)` a hole; the size stays.
    ///
    /// # Errors
    /// As [`write`](Filesystem::write).
    pub fn punch_hole(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Err(Error::invalid("a hole of no bytes"));
        }
        let size = self.attr_of(&self.node(id)?)?.size;
        if offset < size {
            self.free_space(id, offset, len.min(size - offset))?;
        }
        self.finish(id)
    }

    /// `F_FREESP`: `len` 0 truncates, or extends, to `offset`.
    pub(crate) fn free_space(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        let node = self.regular_file(id)?;
        let end = offset.checked_add(len).filter(|end| *end <= SIZE_MAX);
        let Some(end) = end else {
            return Err(Error::new(
                ErrorKind::TooBig,
                format!("a file of {offset}+{len} bytes"),
            ));
        };
        let tx = self.begin(ATTRS_DIRTY_BYTES)?;
        let _content = node.locks.content.write();
        let attr = self.attr_of(&node)?;
        if attr.pflags & (pflags::IMMUTABLE | pflags::APPENDONLY) != 0 {
            return Err(Error::new(
                ErrorKind::Permission,
                format!("file {id} is immutable"),
            ));
        }
        let mut size = None;
        if end > attr.size {
            self.extend(&tx, &node, &attr, end)?;
            size = Some(end);
        }
        if len > 0 && offset < attr.size {
            node.dnode
                .free_range(&tx, offset, len.min(attr.size - offset))?;
        } else if len == 0 && offset < attr.size {
            node.dnode.free_range(&tx, offset, OBJECT_END)?;
            size = Some(offset);
        }
        self.touch_content(&tx, &node, size)?;
        log::truncate(self, &tx, &attr, offset, len);
        Ok(())
    }

    /// Gives a file that is about to have `end` bytes its block size.
    fn extend(&self, tx: &Tx, node: &Node, attr: &Attr, end: u64) -> Result<()> {
        let recordsize = self.objset.props().recordsize;
        match grown_blksz(attr, end, recordsize) {
            Some(blksz) => self.set_blksz(tx, node, blksz),
            None => Ok(()),
        }
    }

    /// The first byte at or after `offset` that is not in a hole; `None` if there is none.
    ///
    /// # Errors
    /// As [`read`](Filesystem::read).
    #[doc(alias = "zfs_holey")]
    pub fn seek_data(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        let node = self.regular_file(id)?;
        let _content = node.locks.content.read();
        let size = self.attr_of(&node)?.size;
        if offset >= size {
            return Ok(None);
        }
        Ok(node.dnode.next_data(offset)?.filter(|at| *at < size))
    }

    /// The first byte at or after `offset` that is in a hole or at the end of the file; `None` if
    /// `offset` is at or past the end.
    ///
    /// # Errors
    /// As [`read`](Filesystem::read).
    #[doc(alias = "zfs_holey")]
    pub fn seek_hole(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        let node = self.regular_file(id)?;
        let _content = node.locks.content.read();
        let size = self.attr_of(&node)?.size;
        if offset >= size {
            return Ok(None);
        }
        Ok(Some(node.dnode.next_hole(offset)?.min(size)))
    }

    /// Ensures that all changes of a file, and of its names, are on stable storage.
    ///
    /// # Errors
    /// I/O; `Suspended`.
    #[doc(alias = "zfs_fsync")]
    pub fn fsync(&self, id: ObjectId) -> Result<()> {
        let Some(groups) = &self.groups else {
            return Ok(());
        };
        if self.settings().sync == zil::SyncMode::Disabled {
            return Ok(());
        }
        if self.log.commit(id)? {
            return Ok(());
        }
        // Without a log the txg itself is synced.
        groups.sync_all().map(|_| ())
    }

    fn needs_atime(&self, attr: &Attr) -> bool {
        if !self.is_writable() {
            return false;
        }
        match self.settings().atime {
            AtimePolicy::Off => false,
            AtimePolicy::On => true,
            AtimePolicy::Relative => {
                attr.mtime >= attr.atime
                    || attr.ctime >= attr.atime
                    || Time::now().secs.saturating_sub(attr.atime.secs) >= RELATIME_SECS
            }
        }
    }

    /// Writes the pending access time.
    pub(crate) fn flush_atime(&self, node: &Node) -> Result<()> {
        let tx = self.begin(ATTRS_DIRTY_BYTES)?;
        let mut attrs = node.locks.attrs.lock();
        if let Some(atime) = attrs.atime.take() {
            let change = [Change::Time(ZplAttr::Atime, atime)];
            return match self.write_attrs(&tx, &node.dnode, &mut attrs, &change) {
                // The file was removed in the meantime.
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                result => result,
            };
        }
        Ok(())
    }

    pub(crate) fn regular_file(&self, id: ObjectId) -> Result<Node> {
        let node = self.node(id)?;
        match self.attr_of(&node)?.file_type() {
            Some(FileType::Regular) => Ok(node),
            Some(FileType::Directory) => Err(Error::new(
                ErrorKind::IsDirectory,
                format!("file {id} is a directory"),
            )),
            _ => Err(Error::invalid(format!("file {id} is not a regular file"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(blksz: u64, size: u64, end: u64, recordsize: u64, expect: Option<u64>) {
        let attr = Attr {
            blksz,
            size,
            ..Attr::default()
        };
        assert_eq!(
            grown_blksz(&attr, end, recordsize),
            expect,
            "{blksz} {size} {end}"
        );
    }

    #[test]
    fn a_single_block_grows_by_sectors_up_to_the_record_size() {
        check(512, 0, 1, 131_072, None);
        check(512, 0, 513, 131_072, Some(1024));
        check(1024, 600, 100_000, 131_072, Some(100_352));
        check(100_352, 100_000, 1 << 30, 131_072, Some(131_072));
        check(131_072, 131_072, 131_073, 131_072, None);
        check(100_352, 100_352, 100_353, 131_072, Some(100_864));
    }

    #[test]
    fn a_file_of_several_blocks_keeps_its_block_size() {
        check(4096, 8192, 1 << 20, 131_072, None);
        check(4096, 4096, 1 << 20, 4096, None);
    }

    #[test]
    fn a_block_above_the_record_size_grows_to_a_power_of_two() {
        check(100_352, 100_000, 1 << 20, 16_384, Some(131_072));
        check(131_072, 100, 1 << 20, 16_384, None);
    }
}
