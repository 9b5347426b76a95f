//! Files, devices and pipes of this host as input or output of `dd`.

use std::os::fd::OwnedFd;
use std::path::Path;

use base::{Error, ErrorKind, Result};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::{Flags, Input, Operands, Output, SyncAtEnd};

/// The kinds of files of this host that `dd` distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// A regular file, which has a size that can be set.
    Regular,
    /// A block device: writing to it needs explicit permission.
    BlockDevice,
    /// Pipes, terminals and the rest.
    Other,
}

impl HostKind {
    /// The kind of the file at a path; `None` if it does not exist.
    #[must_use]
    pub fn of(path: &Path) -> Option<HostKind> {
        let stat = rustix::fs::stat(path).ok()?;
        Some(HostKind::of_mode(stat.st_mode))
    }

    fn of_mode(mode: u32) -> HostKind {
        match FileType::from_raw_mode(mode) {
            FileType::RegularFile => HostKind::Regular,
            FileType::BlockDevice => HostKind::BlockDevice,
            _ => HostKind::Other,
        }
    }
}

/// A file of this host.
pub struct HostFile {
    fd: OwnedFd,
    kind: HostKind,
    /// The file ends in a hole, so [`Output::finish`] has to set its size.
    ends_in_hole: bool,
    truncates_at_seek: bool,
    is_direct: bool,
}

fn error(errno: Errno) -> Error {
    std::io::Error::from(errno).into()
}

fn common_flags(flags: Flags) -> OFlags {
    let mut all = OFlags::CLOEXEC | OFlags::NOCTTY;
    all.set(OFlags::DIRECT, flags.direct);
    all.set(OFlags::DSYNC, flags.dsync);
    all.set(OFlags::SYNC, flags.sync);
    all.set(OFlags::NOFOLLOW, flags.nofollow);
    all.set(OFlags::NOATIME, flags.noatime);
    all.set(OFlags::NONBLOCK, flags.nonblock);
    all
}

impl HostFile {
    fn new(fd: OwnedFd, flags: Flags) -> Result<HostFile> {
        let stat = rustix::fs::fstat(&fd).map_err(error)?;
        Ok(HostFile {
            kind: HostKind::of_mode(stat.st_mode),
            fd,
            ends_in_hole: false,
            truncates_at_seek: false,
            is_direct: flags.direct,
        })
    }

    /// Opens the input.
    ///
    /// # Errors
    /// What the host says.
    pub fn input(path: &Path, flags: Flags) -> Result<HostFile> {
        let open = OFlags::RDONLY | common_flags(flags);
        let fd = rustix::fs::open(path, open, Mode::empty()).map_err(error)?;
        HostFile::new(fd, flags)
    }

    /// Opens the output; creates or truncates it as `operands` say. A block device is opened with
    /// `O_EXCL`, so it cannot be mounted or held; it and regular files are locked, too.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if another program uses it; what the host says.
    pub fn output(path: &Path, operands: &Operands) -> Result<HostFile> {
        let flags = operands.output_flags;
        let conversions = operands.conversions;
        let mut open = OFlags::WRONLY | common_flags(flags);
        open.set(OFlags::CREATE, !conversions.nocreat);
        open.set(OFlags::EXCL, conversions.excl);
        open.set(OFlags::APPEND, flags.append);
        let at_start = operands.seek_bytes() == 0;
        if HostKind::of(path) == Some(HostKind::BlockDevice) {
            open = (open | OFlags::EXCL) - OFlags::CREATE;
        }
        let mode = Mode::from_raw_mode(0o666);
        let fd = rustix::fs::open(path, open, mode).map_err(error)?;
        let mut file = HostFile::new(fd, flags)?;
        if file.kind != HostKind::Other {
            // The lock comes first: a file that is in use is not truncated either.
            let alone = FlockOperation::NonBlockingLockExclusive;
            rustix::fs::flock(&file.fd, alone)
                .map_err(|_| Error::new(ErrorKind::Busy, "in use by another program"))?;
        }
        if file.kind == HostKind::Regular && operands.truncates() && at_start {
            rustix::fs::ftruncate(&file.fd, 0).map_err(error)?;
        }
        file.truncates_at_seek = operands.truncates();
        Ok(file)
    }

    /// Standard input or output.
    ///
    /// # Errors
    /// What the host says.
    pub fn standard(fd: OwnedFd) -> Result<HostFile> {
        HostFile::new(fd, Flags::default())
    }

    /// Skips in a pipe by reading.
    fn read_away(&mut self, bytes: u64) -> Result<u64> {
        let mut away = vec![0; 64 << 10];
        let mut done = 0;
        while done < bytes {
            let len = usize::try_from(bytes - done)
                .unwrap_or(usize::MAX)
                .min(away.len());
            match self.read(&mut away[..len])? {
                0 => break,
                read => done += read as u64,
            }
        }
        Ok(done)
    }

    fn size(&self) -> Result<u64> {
        let stat = rustix::fs::fstat(&self.fd).map_err(error)?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    /// Turns `O_DIRECT` off, for a block that is not a multiple of 512 bytes.
    fn leave_direct(&mut self) -> Result<()> {
        let flags = rustix::fs::fcntl_getfl(&self.fd).map_err(error)?;
        rustix::fs::fcntl_setfl(&self.fd, flags - OFlags::DIRECT).map_err(error)?;
        self.is_direct = false;
        Ok(())
    }
}

impl Input for HostFile {
    fn read(&mut self, block: &mut [u8]) -> Result<usize> {
        loop {
            match rustix::io::read(&self.fd, &mut *block) {
                Err(Errno::INTR) => {}
                result => return result.map_err(error),
            }
        }
    }

    fn skip(&mut self, bytes: u64) -> Result<u64> {
        let Ok(here) = rustix::fs::seek(&self.fd, SeekFrom::Current(0)) else {
            return self.read_away(bytes);
        };
        let skipped = match self.kind {
            HostKind::Regular => bytes.min(self.size()?.saturating_sub(here)),
            _ => bytes,
        };
        rustix::fs::seek(&self.fd, SeekFrom::Start(here + skipped)).map_err(error)?;
        Ok(skipped)
    }
}

impl Output for HostFile {
    fn write(&mut self, block: &[u8]) -> Result<usize> {
        if self.is_direct && !block.len().is_multiple_of(512) {
            self.leave_direct()?;
        }
        loop {
            match rustix::io::write(&self.fd, block) {
                Err(Errno::INTR) => {}
                result => {
                    self.ends_in_hole = false;
                    return result.map_err(error);
                }
            }
        }
    }

    fn seek(&mut self, bytes: u64) -> Result<()> {
        if self.truncates_at_seek && self.kind == HostKind::Regular {
            rustix::fs::ftruncate(&self.fd, bytes).map_err(error)?;
        }
        let by = i64::try_from(bytes).map_err(|_| Error::invalid("offset too large"))?;
        rustix::fs::seek(&self.fd, SeekFrom::Current(by)).map_err(error)?;
        Ok(())
    }

    fn leave_hole(&mut self, bytes: u64) -> Result<()> {
        let by = i64::try_from(bytes).map_err(|_| Error::invalid("offset too large"))?;
        rustix::fs::seek(&self.fd, SeekFrom::Current(by)).map_err(error)?;
        self.ends_in_hole = true;
        Ok(())
    }

    fn finish(&mut self, sync: SyncAtEnd) -> Result<()> {
        if self.ends_in_hole && self.kind == HostKind::Regular {
            let end = rustix::fs::seek(&self.fd, SeekFrom::Current(0)).map_err(error)?;
            if self.size()? < end {
                rustix::fs::ftruncate(&self.fd, end).map_err(error)?;
            }
        }
        match sync {
            SyncAtEnd::No => Ok(()),
            SyncAtEnd::Data => rustix::fs::fdatasync(&self.fd).map_err(error),
            SyncAtEnd::All => rustix::fs::fsync(&self.fd).map_err(error),
        }
    }

    fn is_character_device(&self) -> bool {
        self.kind == HostKind::Other
    }
}
