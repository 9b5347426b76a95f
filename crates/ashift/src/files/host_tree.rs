//! The files of this host as a [`Tree`].

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use base::{Error, Result};
use rustix::fs::{AtFlags, CWD, Gid, Mode, SeekFrom, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use zpl::{FileType, Time};

use super::tree::{Content, Handle, Meta, Preserve, Tree};

/// The host's own files.
pub(crate) struct HostTree;

fn path(handle: &Handle) -> &Path {
    match handle {
        Handle::Path(path) => path,
        Handle::Object(id) => unreachable!("object {id} is not on the host"),
    }
}

fn errno(e: Errno) -> Error {
    std::io::Error::from_raw_os_error(e.raw_os_error()).into()
}

fn join(dir: &Handle, name: &[u8]) -> PathBuf {
    path(dir).join(OsStr::from_bytes(name))
}

fn time(secs: i64, nanos: i64) -> Time {
    Time {
        secs,
        nanos: nanos as u32,
    }
}

fn spec(time: Time) -> Timespec {
    Timespec {
        tv_sec: time.secs,
        tv_nsec: time.nanos.into(),
    }
}

/// An open file of the host.
struct HostFile(File);

impl Content for HostFile {
    fn read_at(&mut self, offset: u64, out: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < out.len() {
            match self.0.read_at(&mut out[done..], offset + done as u64)? {
                0 => break,
                n => done += n,
            }
        }
        Ok(done)
    }

    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        Ok(self.0.write_all_at(data, offset)?)
    }

    fn next_data(&mut self, offset: u64, end: u64) -> Result<Option<(u64, u64)>> {
        let start = match rustix::fs::seek(&self.0, SeekFrom::Data(offset)) {
            Ok(start) if start < end => start,
            Ok(_) | Err(Errno::NXIO) => return Ok(None),
            Err(_) => return Ok((offset < end).then_some((offset, end))),
        };
        let stop = rustix::fs::seek(&self.0, SeekFrom::Hole(start)).unwrap_or(end);
        Ok(Some((start, stop.min(end))))
    }

    fn set_size(&mut self, size: u64) -> Result<()> {
        Ok(self.0.set_len(size)?)
    }
}

fn file_type(of: fs::FileType) -> FileType {
    match () {
        () if of.is_dir() => FileType::Directory,
        () if of.is_symlink() => FileType::Symlink,
        () if of.is_fifo() => FileType::Fifo,
        () if of.is_socket() => FileType::Socket,
        () if of.is_block_device() => FileType::BlockDevice,
        () if of.is_char_device() => FileType::CharDevice,
        () => FileType::Regular,
    }
}

impl Tree for HostTree {
    fn resolve(&self, path: &str) -> Result<Handle> {
        fs::symlink_metadata(path)?;
        Ok(Handle::Path(path.into()))
    }

    fn resolve_link(&self, path: &str) -> Result<Handle> {
        Ok(Handle::Path(fs::canonicalize(path)?))
    }

    fn child(&self, dir: &Handle, name: &[u8]) -> Result<Handle> {
        let child = join(dir, name);
        fs::symlink_metadata(&child)?;
        Ok(Handle::Path(child))
    }

    fn list(&self, dir: &Handle) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path(dir))? {
            names.push(entry?.file_name().into_vec());
        }
        names.sort();
        Ok(names)
    }

    fn meta(&self, file: &Handle) -> Result<Meta> {
        let meta = fs::symlink_metadata(path(file))?;
        Ok(Meta {
            file_type: file_type(meta.file_type()),
            mode: meta.mode() & 0o7777,
            uid: meta.uid().into(),
            gid: meta.gid().into(),
            size: meta.size(),
            rdev: meta.rdev(),
            links: meta.nlink(),
            identity: (meta.dev(), meta.ino()),
            used_bytes: meta.blocks() * 512,
            blksz: meta.blksize(),
            atime: time(meta.atime(), meta.atime_nsec()),
            mtime: time(meta.mtime(), meta.mtime_nsec()),
            ctime: time(meta.ctime(), meta.ctime_nsec()),
            crtime: None,
        })
    }

    fn open(&self, file: &Handle, writes: bool) -> Result<Box<dyn Content + '_>> {
        let file = fs::OpenOptions::new()
            .read(!writes)
            .write(writes)
            .open(path(file))?;
        Ok(Box::new(HostFile(file)))
    }

    fn readlink(&self, file: &Handle) -> Result<Vec<u8>> {
        Ok(fs::read_link(path(file))?.into_os_string().into_vec())
    }

    fn make(&self, dir: &Handle, name: &[u8], meta: &Meta, target: &[u8]) -> Result<Handle> {
        use rustix::fs::FileType as Raw;
        let new = join(dir, name);
        let mode = Mode::from_raw_mode(meta.mode);
        let node = |kind| rustix::fs::mknodat(CWD, &new, kind, mode, meta.rdev).map_err(errno);
        match meta.file_type {
            FileType::Regular => {
                fs::OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .open(&new)?;
            }
            FileType::Directory => fs::create_dir(&new)?,
            FileType::Symlink => std::os::unix::fs::symlink(OsStr::from_bytes(target), &new)?,
            FileType::Fifo => node(Raw::Fifo)?,
            FileType::BlockDevice => node(Raw::BlockDevice)?,
            FileType::CharDevice => node(Raw::CharacterDevice)?,
            FileType::Socket => node(Raw::Socket)?,
        }
        Ok(Handle::Path(new))
    }

    fn link(&self, file: &Handle, dir: &Handle, name: &[u8]) -> Result<()> {
        Ok(fs::hard_link(path(file), join(dir, name))?)
    }

    fn remove(&self, dir: &Handle, name: &[u8], is_dir: bool) -> Result<()> {
        let victim = join(dir, name);
        Ok(if is_dir {
            fs::remove_dir(victim)
        } else {
            fs::remove_file(victim)
        }?)
    }

    fn set_meta(&self, file: &Handle, meta: &Meta, preserve: Preserve) -> Result<()> {
        let path = path(file);
        let is_link = meta.file_type == FileType::Symlink;
        if preserve.owner {
            let (uid, gid) = (
                Uid::from_raw(meta.uid as u32),
                Gid::from_raw(meta.gid as u32),
            );
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(CWD, path, Some(uid), Some(gid), flags).map_err(errno)?;
        }
        if preserve.mode && !is_link {
            let mode = Mode::from_raw_mode(meta.mode);
            rustix::fs::chmodat(CWD, path, mode, AtFlags::empty()).map_err(errno)?;
        }
        if preserve.times {
            let times = Timestamps {
                last_access: spec(meta.atime),
                last_modification: spec(meta.mtime),
            };
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::utimensat(CWD, path, &times, flags).map_err(errno)?;
        }
        Ok(())
    }

    fn xattrs(&self, file: &Handle) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let path = path(file);
        // Most files have none or few: their names fit onto the stack.
        let mut few = [0u8; 512];
        let mut many = Vec::new();
        let names = match rustix::fs::llistxattr(path, &mut few) {
            Ok(length) => &few[..length],
            Err(Errno::NOTSUP | Errno::PERM) => return Ok(Vec::new()),
            Err(Errno::RANGE) => {
                many.resize(64 << 10, 0);
                let length = rustix::fs::llistxattr(path, &mut many).map_err(errno)?;
                &many[..length]
            }
            Err(e) => return Err(errno(e)),
        };
        let mut all = Vec::new();
        for name in names.split(|b| *b == 0).filter(|name| !name.is_empty()) {
            let mut value = vec![0u8; 64 << 10];
            match rustix::fs::lgetxattr(path, name, &mut value) {
                Ok(length) => {
                    value.truncate(length);
                    all.push((name.to_vec(), value));
                }
                Err(Errno::NODATA) => {}
                Err(e) => return Err(errno(e)),
            }
        }
        Ok(all)
    }

    fn set_xattr(&self, file: &Handle, name: &[u8], value: &[u8]) -> Result<()> {
        rustix::fs::lsetxattr(path(file), name, value, XattrFlags::empty()).map_err(errno)
    }
}
