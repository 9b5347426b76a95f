//! The files of a dataset as a [`Tree`].

use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result};
use zpl::mount::Mount;
use zpl::{Attr, Create, FIRST_ENTRY, FileOffset, FileType, RenameKind, SetAttr, SetXattr, Time};

use super::tree::{Content, Handle, Meta, Names, Tree};
use super::walk::read_directory;

/// A mounted dataset.
pub(crate) struct PoolTree(pub(crate) Arc<Mount>);

fn object(handle: &Handle) -> ObjectId {
    match handle {
        Handle::Object(id) => *id,
        Handle::Host(_, name) => unreachable!("{} is not in a data set", name.display()),
    }
}

/// A device number in this host's encoding, from a stored one.
fn host_device(stored: u64) -> u64 {
    let (major, minor) = zpl::device_major_minor(stored);
    rustix::fs::makedev(major, minor)
}

/// The inverse of [`host_device`].
fn stored_device(host: u64) -> u64 {
    zpl::device_number(rustix::fs::major(host), rustix::fs::minor(host))
}

impl PoolTree {
    fn meta_of(&self, attr: &Attr) -> Result<Meta> {
        let file_type = attr
            .file_type()
            .ok_or_else(|| Error::corrupt(format!("object {}: mode {:o}", attr.id, attr.mode)))?;
        Ok(Meta {
            file_type,
            mode: attr.mode & 0o7777,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            rdev: host_device(attr.rdev),
            links: attr.links,
            identity: (self.0.objset().id().0, attr.id.0),
            used_bytes: attr.used_bytes,
            blksz: attr.blksz,
            atime: attr.atime,
            mtime: attr.mtime,
            ctime: attr.ctime,
            crtime: Some(attr.crtime),
        })
    }
}

impl PoolTree {
    fn set(&self, file: &Handle, set: &SetAttr) -> Result<()> {
        self.0.setattr(object(file), set).map(|_| ())
    }
}

/// One regular file of a dataset.
struct PoolFile<'a> {
    mount: &'a Mount,
    id: ObjectId,
}

impl Content for PoolFile<'_> {
    fn read_at(&mut self, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.mount.read(self.id, offset, out)
    }

    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.mount.write(self.id, offset, data)
    }

    fn next_data(&mut self, offset: u64, end: u64) -> Result<Option<(u64, u64)>> {
        let Some(start) = self
            .mount
            .seek_data(self.id, offset)?
            .filter(|start| *start < end)
        else {
            return Ok(None);
        };
        let stop = self
            .mount
            .seek_hole(self.id, start)?
            .unwrap_or(end)
            .min(end);
        Ok(Some((start, stop)))
    }

    fn set_size(&mut self, size: u64) -> Result<()> {
        self.mount.truncate(self.id, size)
    }
}

impl Tree for PoolTree {
    fn resolve(&self, path: &str) -> Result<Handle> {
        self.0.resolve(path).map(Handle::Object)
    }

    fn resolve_link(&self, path: &str) -> Result<Handle> {
        // With a slash at the end, a link means what it leads to.
        let id = if path.ends_with('/') {
            self.0.resolve(path)
        } else {
            self.0.resolve_link(path)
        };
        id.map(Handle::Object)
    }

    fn enter(&self, dir: &Handle) -> Result<Handle> {
        Ok(dir.clone())
    }

    fn child(&self, dir: &Handle, name: &[u8]) -> Result<Handle> {
        Ok(Handle::Object(self.0.lookup(object(dir), name)?.id))
    }

    fn list_unsorted(&self, dir: &Handle) -> Names {
        let (entries, outcome) = read_directory(&self.0, object(dir), FIRST_ENTRY, usize::MAX);
        let names = entries.into_iter().map(|entry| entry.name).collect();
        Names { names, outcome }
    }

    fn meta(&self, file: &Handle) -> Result<Meta> {
        self.meta_of(&self.0.getattr(object(file))?)
    }

    fn open(&self, file: &Handle, _writes: bool) -> Result<Box<dyn Content + '_>> {
        Ok(Box::new(PoolFile {
            mount: &self.0,
            id: object(file),
        }))
    }

    fn mount(&self) -> Option<&Mount> {
        Some(&self.0)
    }

    fn clone_contents(
        &self,
        file: &Handle,
        (source, from): (&dyn Tree, &Handle),
        bytes: u64,
    ) -> Result<()> {
        let Some(mount) = source.mount() else {
            let why = "the source is not in a pool";
            return Err(Error::new(ErrorKind::Unsupported, why));
        };
        let from = FileOffset {
            fs: mount,
            id: object(from),
            offset: 0,
        };
        let cloned = self.0.clone_range(object(file), 0, from, bytes);
        if cloned
            .as_ref()
            .is_err_and(|e| e.kind() == ErrorKind::Unsupported)
        {
            self.0.truncate(object(file), 0)?;
        }
        cloned
    }

    fn readlink(&self, file: &Handle) -> Result<Vec<u8>> {
        self.0.readlink(object(file))
    }

    fn make(&self, dir: &Handle, name: &[u8], meta: &Meta, target: &[u8]) -> Result<Handle> {
        let dir = object(dir);
        let create = Create {
            mode: meta.mode,
            uid: meta.uid,
            gid: meta.gid,
        };
        let attr = match meta.file_type {
            FileType::Regular => self.0.create_file(dir, name, &create)?,
            FileType::Directory => self.0.mkdir(dir, name, &create)?,
            FileType::Symlink => self.0.symlink(dir, name, target, &create)?,
            other => self
                .0
                .mknod(dir, name, other, stored_device(meta.rdev), &create)?,
        };
        Ok(Handle::Object(attr.id))
    }

    fn link(&self, file: &Handle, dir: &Handle, name: &[u8]) -> Result<()> {
        self.0.link(object(file), object(dir), name).map(|_| ())
    }

    fn rename(&self, dir: &Handle, name: &[u8], new_name: &[u8]) -> Result<()> {
        let dir = object(dir);
        (self.0).rename(dir, name, dir, new_name, RenameKind::Replace)
    }

    fn remove(&self, dir: &Handle, name: &[u8], is_dir: bool) -> Result<()> {
        let dir = object(dir);
        if is_dir {
            self.0.rmdir(dir, name)
        } else {
            self.0.unlink(dir, name)
        }
    }

    fn set_owner(&self, file: &Handle, uid: u64, gid: u64) -> Result<()> {
        // Most files were made with their owner, and looking costs no transaction.
        let attr = self.0.getattr(object(file))?;
        if (attr.uid, attr.gid) == (uid, gid) {
            return Ok(());
        }
        self.set(
            file,
            &SetAttr {
                uid: Some(uid),
                gid: Some(gid),
                ..SetAttr::default()
            },
        )
    }

    fn set_mode(&self, file: &Handle, mode: u32) -> Result<()> {
        self.set(
            file,
            &SetAttr {
                mode: Some(mode),
                ..SetAttr::default()
            },
        )
    }

    fn set_times(&self, file: &Handle, atime: Time, mtime: Time) -> Result<()> {
        self.set(
            file,
            &SetAttr {
                atime: Some(atime),
                mtime: Some(mtime),
                ..SetAttr::default()
            },
        )
    }

    fn xattrs(&self, file: &Handle) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let id = object(file);
        let mut all = Vec::new();
        for name in self.0.listxattr(id)? {
            if let Some(value) = self.0.getxattr(id, &name)? {
                all.push((name, value));
            }
        }
        Ok(all)
    }

    fn set_xattr(&self, file: &Handle, name: &[u8], value: &[u8]) -> Result<()> {
        self.0
            .setxattr(object(file), name, value, SetXattr::default())
    }

    fn remove_xattr(&self, file: &Handle, name: &[u8]) -> Result<()> {
        // Most files do not have the attribute, and looking costs no transaction.
        match self.0.getxattr(object(file), name)? {
            Some(_) => self.0.removexattr(object(file), name),
            None => Ok(()),
        }
    }
}
