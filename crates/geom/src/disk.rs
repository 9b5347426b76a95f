//! Files and block devices of the host.
//!
//! # Concurrency
//! Every command is one system call on a shared descriptor at a given offset. Writers of a file
//! take turns: the host admits only one at a time anyway, and lets the others spin. Against other
//! programs, a writer holds an exclusive `flock` and a reader a shared one; a block
//! device is also opened with `O_EXCL`, which fails while it is mounted, or held by the kernel's
//! ZFS, by LVM or by a RAID.
//!
//! # Why not simpler
//! POSIX record locks (`fcntl`) would be lost as soon as any descriptor of the file is closed
//! anywhere in the process; `flock` belongs to the open file.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Context, Error, ErrorKind, Result};
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::{BioCmd, Command, Provider, Shape, check_range};

mod ioctl;

pub(crate) use ioctl::device_topology;

/// What a provider is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Reading while others may be writing: for looking at labels.
    Inspect,
    /// Reading, with writers locked out.
    ReadOnly,
    /// Exclusive reading and writing.
    ReadWrite,
}

/// Added to the name of an image: the file in which an emulated drive keeps the parts of its medium that repeat. Who
/// reads the image alone reads zeros there.
pub const PACKED_SUFFIX: &str = ".packed";

/// The sector size that a file reports, in bytes.
const FILE_SECTOR_BYTES: u32 = 512;
/// The most pieces in one vectored write (`IOV_MAX`).
const PIECES_MAX: usize = 1024;

struct Disk {
    name: String,
    path: PathBuf,
    fd: OwnedFd,
    mode: OpenMode,
    shape: Shape,
    is_block_device: bool,
    /// Held by the writer whose turn it is (files only).
    write_turn: rt::Mutex<()>,
}

/// Opens a file or a block device.
///
/// # Errors
/// [`ErrorKind::Busy`] if it is in use; [`ErrorKind::InvalidInput`] if it is neither a file
/// nor a block device; what the host says otherwise.
pub fn open(path: &Path, mode: OpenMode) -> Result<Arc<dyn Provider>> {
    let name = path.display().to_string();
    open_disk(path, mode, &name)
        .map(|disk| Arc::new(disk) as Arc<dyn Provider>)
        .within(|| &name)
}

/// Whether parts of an image are kept in another file.
fn is_packed(image: &Path) -> bool {
    let mut log = image.as_os_str().to_owned();
    log.push(PACKED_SUFFIX);
    Path::new(&log).exists()
}

fn open_disk(path: &Path, mode: OpenMode, name: &str) -> Result<Disk> {
    let stat = rustix::fs::stat(path).map_err(from_errno)?;
    let file_type = FileType::from_raw_mode(stat.st_mode);
    let is_block_device = file_type == FileType::BlockDevice;
    if !is_block_device && file_type != FileType::RegularFile {
        return Err(Error::invalid("neither a file nor a block device"));
    }
    if !is_block_device && is_packed(path) {
        let text = "this drive of a machine keeps parts of its medium in another file: 'ashift machine mount' shows \
                    the whole, and '-m MACHINE' works with it";
        return Err(Error::invalid(text));
    }
    let writes = mode == OpenMode::ReadWrite;
    let mut flags = OFlags::CLOEXEC | if writes { OFlags::RDWR } else { OFlags::RDONLY };
    if is_block_device && writes {
        flags |= OFlags::EXCL;
    }
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::BUSY => Error::new(
            ErrorKind::Busy,
            "device in use (mounted, or in another pool)",
        ),
        errno => from_errno(errno),
    })?;
    lock(&fd, mode)?;
    let shape = if is_block_device {
        ioctl::device_shape(&fd, stat.st_rdev)?
    } else {
        let stat = rustix::fs::fstat(&fd).map_err(from_errno)?;
        let mediasize = u64::try_from(stat.st_size).unwrap_or(0);
        Shape {
            // The kernel lets one thread at a time write to a regular file.
            writes_at_once: 1,
            // As OpenZFS says of all files; a file system without holes refuses each delete.
            can_delete: true,
            ..Shape::new(mediasize, FILE_SECTOR_BYTES)
        }
    };
    Ok(Disk {
        name: name.to_owned(),
        path: path.to_owned(),
        fd,
        mode,
        shape,
        is_block_device,
        write_turn: rt::Mutex::new(()),
    })
}

fn lock(fd: &OwnedFd, mode: OpenMode) -> Result<()> {
    let operation = match mode {
        OpenMode::Inspect => return Ok(()),
        OpenMode::ReadOnly => FlockOperation::NonBlockingLockShared,
        OpenMode::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    };
    rustix::fs::flock(fd, operation).map_err(|errno| match errno {
        Errno::WOULDBLOCK => Error::new(ErrorKind::Busy, "device in use by another program"),
        errno => from_errno(errno),
    })
}

impl Drop for Disk {
    /// Unlocks explicitly. Closing alone is not enough: a child between fork and exec has a copy of the
    /// descriptor, and with it the lock.
    fn drop(&mut self) {
        if self.mode != OpenMode::Inspect {
            // On failure, closing unlocks.
            let _ = rustix::fs::flock(&self.fd, FlockOperation::Unlock);
        }
    }
}

fn from_errno(errno: Errno) -> Error {
    Error::from(std::io::Error::from(errno))
}

impl Disk {
    fn error(&self, errno: Errno, what: &str, offset: u64) -> Error {
        if errno == Errno::NOSPC {
            let context = format!(
                "{}: the file system that holds it is full",
                self.path.display()
            );
            return Error::new(ErrorKind::NoSpace, context);
        }
        from_errno(errno).within(format_args!("{}: {what} at {offset}", self.name))
    }

    fn check_writable(&self) -> Result<()> {
        if self.mode == OpenMode::ReadWrite {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::ReadOnly,
            format!("{}: opened for reading", self.name),
        ))
    }

    /// Writes some of the pieces; returns how many bytes.
    fn write_some(&self, offset: u64, pieces: &[IoSlice<'_>]) -> Result<usize> {
        let pieces = &pieces[..pieces.len().min(PIECES_MAX)];
        loop {
            match rustix::io::pwritev(&self.fd, pieces, offset) {
                Ok(0) => return Err(self.error(Errno::IO, "write past the end", offset)),
                Ok(written) => return Ok(written),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.error(errno, "write", offset)),
            }
        }
    }

    fn read_all(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
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

    fn write_all(&self, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut rest = slices.as_mut_slice();
        let _turn = (!self.is_block_device).then(|| self.write_turn.lock());
        let mut done = 0;
        while done < len {
            let written = self.write_some(offset + done as u64, rest)?;
            IoSlice::advance_slices(&mut rest, written);
            done += written;
        }
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let result = if self.is_block_device {
            ioctl::discard(&self.fd, offset, len)
        } else {
            self.punch_hole(offset, len)
        };
        match result {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOTTY) => Err(Error::new(
                ErrorKind::Unsupported,
                format!("{}: has no delete", self.name),
            )),
            Err(errno) => Err(self.error(errno, "delete", offset)),
        }
    }

    fn punch_hole(&self, offset: u64, len: u64) -> rustix::io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.fd, flags, offset, len)
    }
}

impl Provider for Disk {
    fn name(&self) -> &str {
        &self.name
    }
    fn shape(&self) -> Shape {
        self.shape
    }
    fn execute(&self, offset: u64, command: Command<'_>) -> Result<()> {
        let (cmd, len) = command.cmd();
        check_range(self, offset, len)?;
        if matches!(cmd, BioCmd::Write | BioCmd::Delete) {
            self.check_writable()?;
        }
        match command {
            Command::Read(buf) => self.read_all(offset, buf),
            Command::Write(pieces) => self.write_all(offset, pieces),
            Command::Flush if self.mode != OpenMode::ReadWrite => Ok(()),
            Command::Flush => {
                let flushed = rustix::fs::fdatasync(&self.fd);
                flushed.map_err(|errno| self.error(errno, "flush", 0))
            }
            Command::Delete { len } => self.discard(offset, len),
        }
    }
}

#[cfg(test)]
mod tests;
