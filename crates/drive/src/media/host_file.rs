//! A file of the host, read and written at offsets.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use base::{Context, Error, ErrorKind, Result};
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::extents::Extents;

#[derive(Debug)]
pub(super) struct HostFile {
    path: PathBuf,
    fd: OwnedFd,
    /// When the program dies, in tests.
    #[cfg(test)]
    pub(super) life: Option<super::tests::Life>,
}

pub(super) fn from_errno(errno: Errno) -> Error {
    Error::from(std::io::Error::from(errno))
}

impl HostFile {
    /// Opens a file, or creates it.
    pub(super) fn open(path: &Path) -> Result<HostFile> {
        Self::open_with(path, OFlags::CREATE)
    }

    /// Creates a file, or empties the one that is there.
    pub(super) fn create(path: &Path) -> Result<HostFile> {
        Self::open_with(path, OFlags::CREATE | OFlags::TRUNC)
    }

    fn open_with(path: &Path, flags: OFlags) -> Result<HostFile> {
        let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))
            .map_err(from_errno)
            .within(|| path.display())?;
        Ok(HostFile {
            path: path.to_owned(),
            fd,
            #[cfg(test)]
            life: None,
        })
    }

    pub(super) fn len(&self) -> Result<u64> {
        let stat = rustix::fs::fstat(&self.fd);
        let stat = stat.map_err(from_errno).within(|| self.path.display())?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    pub(super) fn set_len(&self, len: u64) -> Result<()> {
        #[cfg(test)]
        self.live_on(len)?;
        rustix::fs::ftruncate(&self.fd, len)
            .map_err(|errno| match errno {
                Errno::FBIG => {
                    let text = format!("the file system has no files of {len} bytes");
                    Error::new(ErrorKind::TooBig, text)
                }
                errno => from_errno(errno),
            })
            .within(|| self.path.display())
    }

    pub(super) fn sync(&self) -> Result<()> {
        let synced = rustix::fs::fdatasync(&self.fd);
        synced.map_err(from_errno).within(|| self.path.display())
    }

    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match rustix::io::pread(&self.fd, &mut buf[done..], at) {
                Ok(0) => return Err(self.error(Errno::IO, "read past the end", at)),
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.error(errno, "read", at)),
            }
        }
        Ok(())
    }

    pub(super) fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        #[cfg(test)]
        if let Some(life) = &self.life {
            let lived = life.spend(data.len());
            self.write_all(offset, &data[..lived])?;
            return match lived == data.len() {
                true => Ok(()),
                false => Err(self.error(Errno::IO, "killed", offset)),
            };
        }
        self.write_all(offset, data)
    }

    fn write_all(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            match rustix::io::pwrite(&self.fd, &data[done..], at) {
                Ok(0) => return Err(self.error(Errno::IO, "write past the end", at)),
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.error(errno, "write", at)),
            }
        }
        Ok(())
    }

    /// Turns a range into a hole. Returns whether the file system can do that.
    pub(super) fn punch(&self, range: &Range<u64>) -> Result<bool> {
        #[cfg(test)]
        self.live_on(range.start)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.fd, flags, range.start, range.end - range.start) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            Err(errno) => Err(self.error(errno, "hole", range.start)),
        }
    }

    /// Where its first `len` bytes have data; all of them if the file system cannot tell.
    pub(super) fn data(&self, len: u64) -> Result<Extents> {
        let mut extents = Extents::default();
        let mut at = 0;
        while at < len {
            let start = match rustix::fs::seek(&self.fd, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break,
                Err(Errno::INVAL) => {
                    extents.insert(at..len);
                    break;
                }
                Err(errno) => return Err(self.error(errno, "search", at)),
            };
            let end = rustix::fs::seek(&self.fd, SeekFrom::Hole(start)).unwrap_or(len);
            extents.insert(start..end.min(len));
            at = end.max(start + 1);
        }
        Ok(extents)
    }

    /// Fails once the program has died.
    #[cfg(test)]
    fn live_on(&self, offset: u64) -> Result<()> {
        let lives = self.life.as_ref().is_none_or(super::tests::Life::lives);
        match lives {
            true => Ok(()),
            false => Err(self.error(Errno::IO, "killed", offset)),
        }
    }

    /// Simulates a full host disk; earlier contents can no longer be read.
    #[cfg(test)]
    pub(super) fn fill_host(&mut self) {
        self.fd = rustix::fs::open("/dev/full", OFlags::RDWR, Mode::empty()).unwrap();
    }

    fn error(&self, errno: Errno, what: &str, offset: u64) -> Error {
        let path = self.path.display();
        if errno == Errno::NOSPC || errno == Errno::DQUOT {
            let text = format!("{path}: the file system that holds it is full");
            return Error::new(ErrorKind::NoSpace, text);
        }
        from_errno(errno).within(format_args!("{path}: {what} at {offset}"))
    }
}
