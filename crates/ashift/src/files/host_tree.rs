//! The files of this host as a [`Tree`].
//!
//! # What it is
//! A file is a name in an open directory. Names are single and checked, links are never followed
//! (`O_NOFOLLOW`, `AT_SYMLINK_NOFOLLOW`): what comes from a pool is made in the destination given and
//! nowhere else, even if a maliciously damaged pool has both a link `a` to `/etc` and a directory `a`.
//!
//! # Why not simpler
//! `openat2` with `RESOLVE_BENEATH` would do the same for whole paths, but only on Linux 5.6 and later.
//! With an open directory for each level there are no paths, and so none that is too long.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use phys::label::SPA_MINDEVSIZE;
use rustix::fs::{
    AtFlags, CWD, Dir, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use zpl::{FileType, Time};

use super::tree::{Content, Handle, Meta, Names, Tree};
use crate::caller;

/// The host's own files.
pub(crate) struct HostTree;

fn parts(handle: &Handle) -> (&Arc<OwnedFd>, &OsStr) {
    match handle {
        Handle::Host(dir, name) => (dir, name),
        Handle::Object(id) => unreachable!("object {id} is not on the host"),
    }
}

fn errno(e: Errno) -> Error {
    std::io::Error::from_raw_os_error(e.raw_os_error()).into()
}

/// A name that may be passed to the kernel: not a path.
fn single(name: &[u8]) -> Result<&OsStr> {
    let is_name =
        !matches!(name, b"" | b"." | b"..") && !name.iter().any(|b| matches!(b, 0 | b'/'));
    if is_name {
        Ok(OsStr::from_bytes(name))
    } else {
        let text = format!("{:?} cannot be a name", String::from_utf8_lossy(name));
        Err(Error::new(ErrorKind::Corrupt, text))
    }
}

fn open_directory(dir: &OwnedFd, name: &OsStr, flags: OFlags) -> Result<Arc<OwnedFd>> {
    let flags = flags | OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, name, flags, Mode::empty()).map_err(errno)?;
    Ok(Arc::new(fd))
}

/// Opens the directory that a handle refers to.
fn directory(handle: &Handle) -> Result<Arc<OwnedFd>> {
    let (dir, name) = parts(handle);
    if name == "." {
        return Ok(dir.clone());
    }
    open_directory(dir, name, OFlags::NOFOLLOW)
}

/// Splits a path that a user typed into its directory and the last name in it.
fn split(path: &Path) -> Result<Handle> {
    let open = |path: &Path| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(errno);
        fd.map(Arc::new)
    };
    let ends_in_slash = path.as_os_str().as_bytes().ends_with(b"/");
    match path.file_name() {
        Some(name) if !ends_in_slash => {
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
            let dir = open(parent.unwrap_or(Path::new(".")))?;
            Ok(Handle::Host(dir, name.to_owned()))
        }
        _ => Ok(Handle::Host(open(path)?, ".".into())),
    }
}

fn stat(handle: &Handle) -> Result<Stat> {
    let (dir, name) = parts(handle);
    rustix::fs::statat(&**dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(errno)
}

/// A path to the file itself, for calls that take no open directory.
fn by_proc(handle: &Handle) -> PathBuf {
    let (dir, name) = parts(handle);
    let mut path = OsString::from(format!("/proc/self/fd/{}/", dir.as_raw_fd()));
    path.push(name);
    path.into()
}

/// The bytes of a small file, for read-ahead.
pub(super) fn read_small(handle: &Handle) -> Result<Vec<u8>> {
    let (dir, name) = parts(handle);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&**dir, name, flags, Mode::empty()).map_err(errno)?;
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut File::from(file), &mut bytes)?;
    Ok(bytes)
}

fn spec(time: Time) -> Timespec {
    Timespec {
        tv_sec: time.secs,
        tv_nsec: time.nanos.into(),
    }
}

/// An open file of the host.
pub(super) struct HostFile(pub(super) File);

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

/// A sequential file: a pipe, a terminal, stdin or stdout.
pub(super) struct Stream {
    file: File,
    at: u64,
}

impl Stream {
    /// stdin or stdout.
    pub(super) fn standard(file: std::os::fd::OwnedFd) -> Stream {
        Stream {
            file: file.into(),
            at: 0,
        }
    }
}

impl Content for Stream {
    fn read_at(&mut self, offset: u64, out: &mut [u8]) -> Result<usize> {
        assert_eq!(offset, self.at, "a stream is read in order");
        let mut done = 0;
        while done < out.len() {
            caller::wait_for(&self.file);
            match std::io::Read::read(&mut self.file, &mut out[done..]) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.at += done as u64;
        Ok(done)
    }

    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.set_size(offset)?;
        self.file.write_all(data)?;
        self.at += data.len() as u64;
        Ok(())
    }

    fn next_data(&mut self, offset: u64, end: u64) -> Result<Option<(u64, u64)>> {
        Ok((offset < end).then_some((offset, end)))
    }

    /// Fills a hole with zeros.
    fn set_size(&mut self, size: u64) -> Result<()> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        assert!(size >= self.at, "a stream is written in order");
        while self.at < size {
            let length = ZEROS.len().min((size - self.at) as usize);
            self.file.write_all(&ZEROS[..length])?;
            self.at += length as u64;
        }
        Ok(())
    }
}

/// Refuses the image or disk of an imported pool, even though no process has it open now.
fn check_is_free(file: &File) -> Result<()> {
    let world = crate::world::current()?;
    let facts = file.metadata()?;
    let may_be_device = facts.len() >= SPA_MINDEVSIZE || facts.file_type().is_block_device();
    if world.is_machine() || !may_be_device {
        return Ok(());
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    match world.holders(&path)?.first() {
        None => Ok(()),
        Some(holder) => Err(Error::new(ErrorKind::Busy, format!("{holder} is on it"))),
    }
}

fn file_type(mode: u32) -> FileType {
    FileType::of_mode(mode).unwrap_or(FileType::Regular)
}

impl Tree for HostTree {
    fn resolve(&self, path: &str) -> Result<Handle> {
        let handle = split(&fs::canonicalize(path)?)?;
        stat(&handle)?;
        Ok(handle)
    }

    fn resolve_link(&self, path: &str) -> Result<Handle> {
        let handle = split(Path::new(path))?;
        stat(&handle)?;
        Ok(handle)
    }

    fn enter(&self, dir: &Handle) -> Result<Handle> {
        Ok(Handle::Host(directory(dir)?, ".".into()))
    }

    fn child(&self, dir: &Handle, name: &[u8]) -> Result<Handle> {
        let child = Handle::Host(directory(dir)?, single(name)?.to_owned());
        stat(&child)?;
        Ok(child)
    }

    fn list_unsorted(&self, dir: &Handle) -> Names {
        let mut names = Vec::new();
        let outcome = directory(dir).and_then(|dir| {
            for entry in Dir::read_from(&*dir).map_err(errno)? {
                let entry = entry.map_err(errno)?;
                let name = entry.file_name().to_bytes();
                if name != b"." && name != b".." {
                    names.push(name.to_vec());
                }
            }
            Ok(())
        });
        Names { names, outcome }
    }

    fn meta(&self, file: &Handle) -> Result<Meta> {
        let stat = stat(file)?;
        let time = |secs, nanos: u64| Time {
            secs,
            nanos: nanos as u32,
        };
        Ok(Meta {
            file_type: file_type(stat.st_mode),
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid.into(),
            gid: stat.st_gid.into(),
            size: stat.st_size as u64,
            rdev: stat.st_rdev,
            links: stat.st_nlink as u64,
            identity: (stat.st_dev, stat.st_ino),
            used_bytes: stat.st_blocks as u64 * 512,
            blksz: stat.st_blksize as u64,
            atime: time(stat.st_atime, stat.st_atime_nsec as u64),
            mtime: time(stat.st_mtime, stat.st_mtime_nsec as u64),
            ctime: time(stat.st_ctime, stat.st_ctime_nsec as u64),
            crtime: None,
        })
    }

    fn open(&self, file: &Handle, writes: bool) -> Result<Box<dyn Content + '_>> {
        let (dir, name) = parts(file);
        let access = if writes {
            OFlags::WRONLY
        } else {
            OFlags::RDONLY
        };
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&**dir, name, flags, Mode::empty()).map_err(errno)?;
        let file = File::from(fd);
        if writes {
            check_is_free(&file)?;
        }
        Ok(if file.metadata()?.is_file() {
            Box::new(HostFile(file))
        } else {
            Box::new(Stream { file, at: 0 })
        })
    }

    fn readlink(&self, file: &Handle) -> Result<Vec<u8>> {
        let (dir, name) = parts(file);
        let target = rustix::fs::readlinkat(&**dir, name, Vec::new()).map_err(errno)?;
        Ok(target.into_bytes())
    }

    fn make(&self, dir: &Handle, name: &[u8], meta: &Meta, target: &[u8]) -> Result<Handle> {
        use rustix::fs::FileType as Raw;
        let (fd, name) = (directory(dir)?, single(name)?);
        let mode = Mode::from_raw_mode(meta.mode);
        let node = |kind| rustix::fs::mknodat(&*fd, name, kind, mode, meta.rdev);
        match meta.file_type {
            FileType::Regular => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                rustix::fs::openat(&*fd, name, flags, mode).map(|_| ())
            }
            FileType::Directory => rustix::fs::mkdirat(&*fd, name, mode),
            FileType::Symlink => rustix::fs::symlinkat(OsStr::from_bytes(target), &*fd, name),
            FileType::Fifo => node(Raw::Fifo),
            FileType::BlockDevice => node(Raw::BlockDevice),
            FileType::CharDevice => node(Raw::CharacterDevice),
            FileType::Socket => node(Raw::Socket),
        }
        .map_err(errno)?;
        Ok(Handle::Host(fd, name.to_owned()))
    }

    fn link(&self, file: &Handle, dir: &Handle, name: &[u8]) -> Result<()> {
        let (from, old) = parts(file);
        let (to, new) = (directory(dir)?, single(name)?);
        rustix::fs::linkat(&**from, old, &*to, new, AtFlags::empty()).map_err(errno)
    }

    fn rename(&self, dir: &Handle, name: &[u8], new_name: &[u8]) -> Result<()> {
        let fd = directory(dir)?;
        let (name, new_name) = (single(name)?, single(new_name)?);
        rustix::fs::renameat(&*fd, name, &*fd, new_name).map_err(errno)
    }

    fn remove(&self, dir: &Handle, name: &[u8], is_dir: bool) -> Result<()> {
        let flags = if is_dir {
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        let (dir, name) = (directory(dir)?, single(name)?);
        let look = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&*dir, name, look, Mode::empty()).map_err(errno)?;
        check_is_free(&File::from(file))?;
        rustix::fs::unlinkat(&*dir, name, flags).map_err(errno)
    }

    fn set_owner(&self, file: &Handle, uid: u64, gid: u64) -> Result<()> {
        // u32::MAX would mean "leave unchanged".
        let number = |id: u64| u32::try_from(id).ok().filter(|id| *id != u32::MAX);
        let (Some(uid), Some(gid)) = (number(uid), number(gid)) else {
            return Err(Error::invalid(format!(
                "{uid}:{gid} cannot own a file here"
            )));
        };
        let (dir, name) = parts(file);
        let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(&**dir, name, owner.0, owner.1, flags).map_err(errno)
    }

    fn set_mode(&self, file: &Handle, mode: u32) -> Result<()> {
        let (dir, name) = parts(file);
        // Linux before 6.6 has no chmod that does not follow links: open the file itself first.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = rustix::fs::openat(&**dir, name, flags, Mode::empty()).map_err(errno)?;
        let itself = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
        let mode = Mode::from_raw_mode(mode);
        rustix::fs::chmodat(CWD, itself, mode, AtFlags::empty()).map_err(errno)
    }

    fn set_times(&self, file: &Handle, atime: Time, mtime: Time) -> Result<()> {
        let (dir, name) = parts(file);
        let times = Timestamps {
            last_access: spec(atime),
            last_modification: spec(mtime),
        };
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(&**dir, name, &times, flags).map_err(errno)?;
        // The host silently replaces a time that its file system cannot store.
        let is_ordinary = |time: Time| i32::try_from(time.secs).is_ok();
        if is_ordinary(atime) && is_ordinary(mtime) {
            return Ok(());
        }
        let meta = self.meta(file)?;
        for (asked, is) in [(mtime, meta.mtime), (atime, meta.atime)] {
            if !is_ordinary(asked) && is.secs != asked.secs {
                let text = format!("the file system has no time {}", asked.secs);
                return Err(Error::invalid(text));
            }
        }
        Ok(())
    }

    fn xattrs(&self, file: &Handle) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let path = &by_proc(file);
        // Most files have no or few attributes: their names fit into a buffer on the stack.
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
        rustix::fs::lsetxattr(by_proc(file), name, value, XattrFlags::empty()).map_err(errno)
    }

    fn remove_xattr(&self, file: &Handle, name: &[u8]) -> Result<()> {
        match rustix::fs::lremovexattr(by_proc(file), name) {
            Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
            Err(e) => Err(errno(e)),
        }
    }
}

/// The path to write to for a path that a user typed: links at its end are followed.
pub(super) fn canonical(path: &str) -> Result<String> {
    let path = fs::canonicalize(path)?.into_os_string();
    String::from_utf8(OsString::into_vec(path))
        .map_err(|_| Error::invalid("a link leads to a path that is not UTF-8"))
}
