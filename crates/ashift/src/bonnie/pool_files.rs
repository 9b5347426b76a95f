//! The files of a data set, as the benchmark calls them.

use std::io::SeekFrom;
use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result};
use bonnie::{File, Files, How};
use rt::Mutex;
use zpl::mount::Mount;
use zpl::{Attr, Create, FIRST_ENTRY, FileType};

/// How much of a directory is read at a time: what a system call returns at most, in bytes.
const LIST_BYTES: usize = 32 << 10;
/// An entry's share of it besides its name, in bytes.
const ENTRY_BYTES: usize = 24;
/// So many links lead from one to another at most.
const LINKS_MAX: usize = 40;

/// The files below a directory of a data set.
pub(super) struct PoolFiles {
    mount: Arc<Mount>,
    /// The current directory, after those above it.
    current: Mutex<Vec<ObjectId>>,
    uid: u64,
    gid: u64,
}

impl PoolFiles {
    /// Begins in `folder`; new files belong to this owner and this group.
    pub(super) fn new(mount: Arc<Mount>, folder: &str, (uid, gid): (u64, u64)) -> Result<Self> {
        let id = mount.resolve(folder)?;
        if !mount.getattr(id)?.is_directory() {
            return Err(Error::new(ErrorKind::NotDirectory, folder));
        }
        Ok(PoolFiles {
            mount,
            current: Mutex::new(vec![id]),
            uid,
            gid,
        })
    }

    fn current(&self) -> ObjectId {
        *self.current.lock().last().expect("the first one stays")
    }

    /// The directory that a path leads to, and the name in it.
    fn parent<'p>(&self, path: &'p str) -> Result<(ObjectId, &'p [u8])> {
        rt::charge(rt::Work::SystemCall, 1);
        let path = path.strip_prefix("./").unwrap_or(path);
        let (mut parent, mut name) = (self.current(), path);
        while let Some((directory, rest)) = name.split_once('/') {
            parent = self.mount.lookup(parent, directory.as_bytes())?.id;
            name = rest;
        }
        Ok((parent, name.as_bytes()))
    }

    /// The file at a path; links are followed.
    fn find(&self, path: &str) -> Result<Attr> {
        let (parent, name) = self.parent(path)?;
        let mut attr = self.mount.lookup(parent, name)?;
        for _ in 0..LINKS_MAX {
            if attr.file_type() != Some(FileType::Symlink) {
                return Ok(attr);
            }
            let target = self.mount.readlink(attr.id)?;
            attr = self.mount.lookup(parent, &target)?;
        }
        Err(Error::new(ErrorKind::TooManyLinks, path))
    }

    fn create(&self, mode: u32) -> Create {
        Create {
            mode,
            uid: self.uid,
            gid: self.gid,
        }
    }
}

impl Files for PoolFiles {
    fn open(&self, path: &str, how: How) -> Result<Box<dyn File>> {
        let id = match how {
            How::Read | How::ReadWrite => self.find(path)?.id,
            How::CreateToWrite | How::Create { .. } => {
                let (parent, name) = self.parent(path)?;
                let create = self.create(0o600);
                self.mount.create_file(parent, name, &create)?.id
            }
        };
        self.mount.hold(id)?;
        Ok(Box::new(PoolFile {
            mount: Arc::clone(&self.mount),
            id,
            offset: 0,
        }))
    }

    fn stat(&self, path: &str) -> Result<u64> {
        Ok(self.find(path)?.size)
    }

    fn unlink(&self, path: &str) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        self.mount.unlink(parent, name)
    }

    fn link(&self, original: &str, path: &str) -> Result<()> {
        let (from, original) = self.parent(original)?;
        let id = self.mount.lookup(from, original)?.id;
        let (parent, name) = self.parent(path)?;
        self.mount.link(id, parent, name).map(|_| ())
    }

    fn symlink(&self, target: &str, path: &str) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        let create = self.create(0o777);
        let made = self.mount.symlink(parent, name, target.as_bytes(), &create);
        made.map(|_| ())
    }

    fn mkdir(&self, path: &str) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        let made = self.mount.mkdir(parent, name, &self.create(0o700));
        made.map(|_| ())
    }

    fn rmdir(&self, path: &str) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        self.mount.rmdir(parent, name)
    }

    fn chdir(&self, path: &str) -> Result<()> {
        if path == ".." {
            let mut current = self.current.lock();
            assert!(current.len() > 1, "the benchmark stays in its folder");
            current.pop();
            return Ok(());
        }
        let attr = self.find(path)?;
        if !attr.is_directory() {
            return Err(Error::new(ErrorKind::NotDirectory, path));
        }
        self.current.lock().push(attr.id);
        Ok(())
    }

    fn list(&self, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        let directory = self.current();
        let mut next = FIRST_ENTRY;
        loop {
            rt::charge(rt::Work::SystemCall, 1);
            let (mut names, mut bytes) = (Vec::new(), 0);
            self.mount.readdir(directory, next, |entry| {
                names.push(String::from_utf8_lossy(&entry.name).into_owned());
                bytes += entry.name.len() + ENTRY_BYTES;
                next = entry.next_offset;
                bytes < LIST_BYTES
            })?;
            if names.is_empty() {
                return Ok(());
            }
            for name in names {
                each(&name)?;
            }
        }
    }

    fn sync(&self) -> Result<()> {
        rt::charge(rt::Work::SystemCall, 1);
        self.mount.sync()
    }
}

/// An open file; it is there until it is closed, also without a name.
struct PoolFile {
    mount: Arc<Mount>,
    id: ObjectId,
    offset: u64,
}

impl Drop for PoolFile {
    fn drop(&mut self) {
        rt::charge(rt::Work::SystemCall, 1);
        // A file that cannot be removed now is when the data set is opened again.
        let _ = self.mount.rele(self.id, 1);
    }
}

impl File for PoolFile {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        rt::charge(rt::Work::SystemCall, 1);
        let read = self.mount.read(self.id, self.offset, out)?;
        self.offset += read as u64;
        Ok(read)
    }

    fn write(&mut self, data: &[u8]) -> Result<usize> {
        rt::charge(rt::Work::SystemCall, 1);
        self.mount.write(self.id, self.offset, data)?;
        self.offset += data.len() as u64;
        Ok(data.len())
    }

    fn seek(&mut self, to: SeekFrom) -> Result<()> {
        rt::charge(rt::Work::SystemCall, 1);
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.offset.checked_add_signed(by),
            SeekFrom::End(by) => {
                let size = self.mount.getattr(self.id)?.size;
                size.checked_add_signed(by)
            }
        };
        self.offset = at.ok_or_else(|| Error::invalid("before the file's start"))?;
        Ok(())
    }

    fn fsync(&mut self) -> Result<()> {
        rt::charge(rt::Work::SystemCall, 1);
        self.mount.fsync(self.id)
    }
}
