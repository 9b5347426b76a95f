//! Handling of requests, on the simulation's thread.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::{Error, ErrorKind, Result};
use fuser::{FileAttr, FileType, INodeNo};
use geom::disk::OpenMode;
use geom::{BioCmd, Provider};
use machine::World;

use crate::sectors;
use crate::tree::{FileShape, Node, Tree};
use crate::{Recorded, Recorder};

/// `FALLOC_FL_KEEP_SIZE` of fallocate(2): do not change the file size.
const KEEP_SIZE: i32 = 1;
/// `FALLOC_FL_PUNCH_HOLE` of fallocate(2)
const PUNCH_HOLE: i32 = 2;

/// The machine, and its open providers by file handle.
pub(crate) struct Server {
    world: Arc<World>,
    tree: Tree,
    open: BTreeMap<u64, Arc<dyn Provider>>,
    next_handle: u64,
    /// Something was written, possibly a partition table: the tree has to be updated.
    is_stale: bool,
    started: SystemTime,
    recorder: Option<Recorder>,
}

impl Server {
    pub(crate) fn new(world: Arc<World>, recorder: Option<Recorder>) -> Result<Server> {
        let now = rt::wall_clock();
        let mut server = Server {
            world,
            tree: Tree::new(),
            open: BTreeMap::new(),
            next_handle: 1,
            is_stale: true,
            started: UNIX_EPOCH + Duration::new(now.secs, now.nanos),
            recorder,
        };
        server.refresh()?;
        Ok(server)
    }

    fn refresh(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_stale) {
            let infos = self.world.providers()?;
            self.tree.update(infos.into_iter().map(|info| FileShape {
                name: info.name,
                size_bytes: info.mediasize,
                block_bytes: info.stripesize.max(info.sectorsize),
            }));
        }
        Ok(())
    }

    pub(crate) fn lookup(&mut self, folder: u64, name: &str) -> Result<FileAttr> {
        if self.tree.lookup(folder, name).is_none() {
            self.refresh()?;
        }
        let inode = self.tree.lookup(folder, name);
        self.attr(inode.ok_or_else(|| Error::not_found(name))?)
    }

    pub(crate) fn attr(&self, inode: u64) -> Result<FileAttr> {
        let node = self
            .tree
            .node(inode)
            .ok_or_else(|| Error::not_found("gone"))?;
        let (kind, perm, size, blksize) = match node {
            Node::File(file) => (
                FileType::RegularFile,
                0o600,
                file.size_bytes,
                file.block_bytes,
            ),
            Node::Folder(_) | Node::Gone => (FileType::Directory, 0o700, 0, 4096),
        };
        Ok(FileAttr {
            ino: INodeNo(inode),
            size,
            blocks: size.div_ceil(512),
            atime: self.started,
            mtime: self.started,
            ctime: self.started,
            crtime: self.started,
            kind,
            perm,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize,
            flags: 0,
        })
    }

    /// The entries of a folder, `.` and `..` first.
    pub(crate) fn list(&mut self, folder: u64) -> Result<Vec<(u64, FileType, String)>> {
        self.refresh()?;
        let dots = [".", ".."].map(|dot| (folder, FileType::Directory, dot.to_owned()));
        let mut entries = Vec::from(dots);
        for (name, inode) in self.tree.list(folder) {
            entries.push((inode, self.attr(inode)?.kind, name));
        }
        Ok(entries)
    }

    pub(crate) fn open(&mut self, inode: u64, writes: bool) -> Result<u64> {
        let Some(Node::File(file)) = self.tree.node(inode) else {
            return Err(Error::not_found("gone"));
        };
        let mode = if writes {
            OpenMode::ReadWrite
        } else {
            OpenMode::ReadOnly
        };
        let provider = self.world.open(&file.name, mode)?;
        let handle = self.next_handle;
        self.next_handle += 1;
        self.open.insert(handle, provider);
        Ok(handle)
    }

    pub(crate) fn release(&mut self, handle: u64) {
        self.open.remove(&handle);
    }

    fn provider(&self, handle: u64) -> Result<&dyn Provider> {
        let provider = self.open.get(&handle).map(|provider| &**provider);
        provider.ok_or_else(|| Error::invalid("not open"))
    }

    /// Tells the recorder of a command, in whole sectors.
    fn record(&mut self, handle: u64, cmd: BioCmd, (offset, len): (u64, u64)) -> Result<()> {
        let Some(recorder) = &mut self.recorder else {
            return Ok(());
        };
        let provider = self.open.get(&handle);
        let provider = provider.ok_or_else(|| Error::invalid("not open"))?;
        let sector = u64::from(provider.sectorsize());
        let (size, first) = (provider.mediasize(), offset / sector * sector);
        let end = offset
            .saturating_add(len)
            .min(size)
            .next_multiple_of(sector)
            .min(size);
        if cmd == BioCmd::Flush || end > first {
            recorder(&Recorded {
                name: provider.name(),
                cmd,
                offset: first,
                len: end.saturating_sub(first),
            });
        }
        Ok(())
    }

    pub(crate) fn read(&mut self, handle: u64, offset: u64, len: u32) -> Result<Vec<u8>> {
        self.record(handle, BioCmd::Read, (offset, len.into()))?;
        sectors::read(self.provider(handle)?, offset, len.into())
    }

    pub(crate) fn write(
        &mut self,
        handle: u64,
        offset: u64,
        data: &[u8],
        flushes: bool,
    ) -> Result<u32> {
        self.is_stale = true;
        self.record(handle, BioCmd::Write, (offset, data.len() as u64))?;
        if flushes {
            self.record(handle, BioCmd::Flush, (0, 0))?;
        }
        let provider = self.provider(handle)?;
        let written = sectors::write(provider, offset, data)?;
        if written == 0 && !data.is_empty() {
            return Err(Error::new(ErrorKind::NoSpace, "the end of the drive"));
        }
        if flushes {
            provider.flush()?;
        }
        Ok(u32::try_from(written).expect("a request is far below 4 GiB"))
    }

    pub(crate) fn flush(&mut self, handle: u64) -> Result<()> {
        self.record(handle, BioCmd::Flush, (0, 0))?;
        self.provider(handle)?.flush()
    }

    pub(crate) fn allocate(
        &mut self,
        handle: u64,
        (offset, len): (u64, u64),
        mode: i32,
    ) -> Result<()> {
        let provider = self.provider(handle)?;
        let fits = offset
            .checked_add(len)
            .is_some_and(|end| end <= provider.mediasize());
        match mode {
            0 | KEEP_SIZE if fits => Ok(()),
            0 | KEEP_SIZE => Err(Error::new(ErrorKind::NoSpace, "the end of the drive")),
            _ if mode == KEEP_SIZE | PUNCH_HOLE => {
                sectors::delete(provider, offset, len)?;
                self.is_stale = true;
                self.record(handle, BioCmd::Delete, (offset, len))?;
                Ok(())
            }
            _ => Err(Error::new(
                ErrorKind::Unsupported,
                "no such change of space",
            )),
        }
    }
}
