//! The files of a folder of this host.

use std::io::SeekFrom;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use base::{Error, Result};
use rustix::fs::{CWD, Mode, OFlags, RawDir};
use rustix::io::Errno;

use crate::files::{File, Files, How};

/// How much of a directory is read at a time: what glibc's readdir(3) asks for, in bytes.
const LIST_BYTES: usize = 32 << 10;

/// The current directory of the thread and what is below it. The directory that was current before is so again when
/// this is dropped.
pub struct HostFiles {
    before: OwnedFd,
}

fn error(errno: Errno) -> Error {
    std::io::Error::from(errno).into()
}

impl HostFiles {
    /// Makes `folder` the current directory.
    ///
    /// # Errors
    /// As chdir(2).
    pub fn new(folder: &str) -> Result<HostFiles> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let before = rustix::fs::open(".", flags, Mode::empty()).map_err(error)?;
        rustix::process::chdir(folder).map_err(error)?;
        Ok(HostFiles { before })
    }
}

impl Drop for HostFiles {
    fn drop(&mut self) {
        // What comes after it names its files from the root on, or was there before.
        let _ = rustix::process::fchdir(&self.before);
    }
}

impl Files for HostFiles {
    fn open(&self, path: &str, how: How) -> Result<Box<dyn File>> {
        let created = OFlags::CREATE | OFlags::EXCL;
        let flags = match how {
            How::Read => OFlags::RDONLY,
            How::ReadWrite => OFlags::RDWR,
            How::CreateToWrite => OFlags::WRONLY | created,
            How::Create { direct: false } => OFlags::RDWR | created,
            How::Create { direct: true } => OFlags::RDWR | created | OFlags::DIRECT,
        };
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = rustix::fs::open(path, flags | OFlags::CLOEXEC, mode).map_err(error)?;
        Ok(Box::new(HostFile(fd)))
    }

    fn stat(&self, path: &str) -> Result<u64> {
        let stat = rustix::fs::stat(path).map_err(error)?;
        Ok(stat.st_size.cast_unsigned())
    }

    fn unlink(&self, path: &str) -> Result<()> {
        rustix::fs::unlink(path).map_err(error)
    }

    fn link(&self, original: &str, path: &str) -> Result<()> {
        rustix::fs::link(original, path).map_err(error)
    }

    fn symlink(&self, target: &str, path: &str) -> Result<()> {
        rustix::fs::symlink(target, path).map_err(error)
    }

    fn mkdir(&self, path: &str) -> Result<()> {
        rustix::fs::mkdir(path, Mode::RWXU).map_err(error)
    }

    fn rmdir(&self, path: &str) -> Result<()> {
        rustix::fs::rmdir(path).map_err(error)
    }

    fn chdir(&self, path: &str) -> Result<()> {
        rustix::process::chdir(path).map_err(error)
    }

    fn list(&self, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, ".", flags, Mode::empty()).map_err(error)?;
        let mut buf = vec![MaybeUninit::uninit(); LIST_BYTES];
        let mut entries = RawDir::new(fd, &mut buf);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(error)?;
            each(&entry.file_name().to_string_lossy())?;
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        rustix::fs::sync();
        Ok(())
    }
}

struct HostFile(OwnedFd);

impl File for HostFile {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        rustix::io::read(&self.0, out).map_err(error)
    }

    fn write(&mut self, data: &[u8]) -> Result<usize> {
        rustix::io::write(&self.0, data).map_err(error)
    }

    fn seek(&mut self, to: SeekFrom) -> Result<()> {
        use rustix::fs::SeekFrom as Raw;
        let to = match to {
            SeekFrom::Start(at) => Raw::Start(at),
            SeekFrom::Current(by) => Raw::Current(by),
            SeekFrom::End(by) => Raw::End(by),
        };
        rustix::fs::seek(&self.0, to).map_err(error).map(|_| ())
    }

    fn fsync(&mut self) -> Result<()> {
        rustix::fs::fsync(&self.0).map_err(error)
    }
}
