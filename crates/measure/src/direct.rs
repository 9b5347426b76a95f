//! Files and devices of this host, bypassing its cache, with several commands in flight.
//!
//! # What it is
//! The provider that benchmarks use on a host: the file is opened with `O_DIRECT`, and
//! [`Provider::submit`] hands commands to as many threads as the queue is deep. If the host
//! refuses direct I/O (some file systems do, and sectors may be larger than the block), commands
//! go through the cache from then on, and [`Direct::is_direct`] returns false.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{BlockBuf, Context, Error, ErrorKind, Result};
use geom::disk::OpenMode;
use geom::{Bio, BioData, BioOp, Command, Provider, Shape, check_range, write_each};
use rt::{Mutex, TaskQueue};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::dd::host::HostKind;

/// A file or device of this host, bypassing its cache.
pub struct Direct {
    file: Arc<File>,
    shape: Shape,
    queue: Mutex<Option<TaskQueue>>,
    depth: usize,
}

struct File {
    name: String,
    fd: OwnedFd,
    is_direct: AtomicBool,
}

impl Drop for File {
    /// As in [`geom::disk`]: a child process has a copy of the descriptor between `fork` and `exec`,
    /// so closing alone would not unlock.
    fn drop(&mut self) {
        // If this fails, closing the file unlocks it.
        let _ = rustix::fs::flock(&self.fd, FlockOperation::Unlock);
    }
}

/// Opens a file or device; with `writes` it is locked exclusively. At most `depth` submitted commands
/// are in flight.
///
/// # Errors
/// [`ErrorKind::Busy`] if it is in use; what the host says otherwise.
pub fn open(path: &Path, writes: bool, depth: usize) -> Result<Arc<Direct>> {
    assert!(depth > 0, "a queue for nothing");
    let name = path.display().to_string();
    let shape = geom::disk::open(path, OpenMode::Inspect)?.shape();
    let is_block_device = HostKind::of(path) == Some(HostKind::BlockDevice);
    let mut flags = OFlags::CLOEXEC | if writes { OFlags::RDWR } else { OFlags::RDONLY };
    flags.set(OFlags::EXCL, is_block_device && writes);
    let open = |flags| rustix::fs::open(path, flags, Mode::empty());
    let (fd, is_direct) = match open(flags | OFlags::DIRECT) {
        Err(Errno::INVAL) => (open(flags), false),
        result => (result, true),
    };
    let fd = fd.map_err(|e| of_host(e, &name))?;
    if writes {
        let exclusively = FlockOperation::NonBlockingLockExclusive;
        rustix::fs::flock(&fd, exclusively).map_err(|_| {
            Error::new(
                ErrorKind::Busy,
                format!("{name}: in use by another program"),
            )
        })?;
    }
    let file = File {
        name,
        fd,
        is_direct: AtomicBool::new(is_direct),
    };
    Ok(Arc::new(Direct {
        file: Arc::new(file),
        shape,
        queue: Mutex::new(None),
        depth,
    }))
}

fn of_host(errno: Errno, within: &str) -> Error {
    let error: Result<()> = Err(std::io::Error::from(errno).into());
    error.within(|| within.to_owned()).expect_err("just made")
}

impl Direct {
    /// Whether all commands so far bypassed the host's cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.file.is_direct.load(Ordering::Relaxed)
    }
}

impl File {
    /// Repeats `some` until all bytes are transferred; the first `EINVAL` turns `O_DIRECT` off.
    fn all(
        &self,
        (offset, len): (u64, usize),
        mut some: impl FnMut(usize, u64) -> rustix::io::Result<usize>,
    ) -> Result<()> {
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            match some(done, at) {
                Ok(0) => return Err(of_host(Errno::IO, &format!("{} at {at}", self.name))),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(Errno::INVAL) if self.is_direct.swap(false, Ordering::Relaxed) => {
                    let flags = rustix::fs::fcntl_getfl(&self.fd);
                    let plain = flags.map(|flags| flags - OFlags::DIRECT);
                    plain
                        .and_then(|flags| rustix::fs::fcntl_setfl(&self.fd, flags))
                        .map_err(|e| of_host(e, &self.name))?;
                }
                Err(e) => return Err(of_host(e, &format!("{} at {at}", self.name))),
            }
        }
        Ok(())
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.all((offset, buf.len()), |done, at| {
            rustix::io::pread(&self.fd, &mut buf[done..], at)
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.all((offset, data.len()), |done, at| {
            rustix::io::pwrite(&self.fd, &data[done..], at)
        })
    }

    fn flush(&self) -> Result<()> {
        rustix::fs::fdatasync(&self.fd).map_err(|e| of_host(e, &self.name))
    }

    fn run(&self, op: &BioOp, offset: u64) -> Result<BioData> {
        match op {
            BioOp::Read { len } => {
                let mut bytes = BlockBuf::paged(*len);
                self.read(offset, &mut bytes)?;
                Ok(BioData::Read(bytes))
            }
            BioOp::Write(bytes) => self.write(offset, bytes).map(|()| BioData::None),
            BioOp::Flush => self.flush().map(|()| BioData::None),
            BioOp::Delete { .. } => Err(no_delete()),
        }
    }
}

fn no_delete() -> Error {
    Error::new(ErrorKind::Unsupported, "no delete here")
}

impl Provider for Direct {
    fn name(&self) -> &str {
        &self.file.name
    }
    fn shape(&self) -> Shape {
        Shape {
            is_queued: true,
            writes_at_once: usize::MAX,
            ..self.shape
        }
    }

    fn submit(&self, bio: Bio) {
        if let Err(error) = check_range(self, bio.offset, bio.op.cmd().1) {
            return (bio.done)(Err(error));
        }
        let file = Arc::clone(&self.file);
        let mut queue = self.queue.lock();
        let queue = queue.get_or_insert_with(|| TaskQueue::new("direct", self.depth));
        queue.dispatch(move || (bio.done)(file.run(&bio.op, bio.offset)));
    }

    fn execute(&self, offset: u64, command: Command<'_>) -> Result<()> {
        check_range(self, offset, command.cmd().1)?;
        match command {
            Command::Read(buf) => self.file.read(offset, buf),
            Command::Write(pieces) => {
                write_each(offset, pieces, |at, piece| self.file.write(at, piece))
            }
            Command::Flush => self.file.flush(),
            Command::Delete { .. } => Err(no_delete()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_run_at_the_same_time_and_reach_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        let disk = open(&path, true, 4).unwrap();
        assert!(open(&path, true, 1).is_err(), "two writers");
        let (sender, receiver) = std::sync::mpsc::channel();
        for n in 0..16u8 {
            let sender = sender.clone();
            let mut block = BlockBuf::paged(4096);
            block.fill(n);
            disk.submit(Bio {
                op: BioOp::Write(block.share()),
                offset: u64::from(n) * 4096,
                done: Box::new(move |result| sender.send(result).unwrap()),
            });
        }
        for _ in 0..16 {
            receiver.recv().unwrap().unwrap();
        }
        disk.flush().unwrap();
        let mut back = BlockBuf::paged(4096);
        for n in 0..16u8 {
            disk.read(u64::from(n) * 4096, &mut back).unwrap();
            assert!(back.iter().all(|byte| *byte == n));
        }
        // Not aligned for direct I/O, so it goes through the cache.
        let mut odd = vec![0; 513];
        disk.read(512, &mut odd[1..]).unwrap();
        assert_eq!(odd[1], 0);
        let error = disk.read(1 << 20, &mut back).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}
