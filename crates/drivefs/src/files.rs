//! The receiving side: every request becomes a job for the simulation's thread.

use std::ffi::OsStr;
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime};

use base::Error;
use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, KernelConfig,
    LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::OFlags;

use crate::server::Server;

/// A request, with its reply.
pub(crate) type Job = Box<dyn FnOnce(&mut Server) + Send>;

/// How long the kernel may cache a name: not at all, as partitions come and go.
const NAME_TTL: Duration = Duration::ZERO;
/// The largest write request, in bytes.
const WRITE_BYTES_MAX: u32 = 1 << 20;

/// Hands requests over to the simulation's thread.
pub(crate) struct Files {
    jobs: Sender<Job>,
}

impl Files {
    pub(crate) fn new(jobs: Sender<Job>) -> Files {
        Files { jobs }
    }

    /// If the receiver is gone, the reply is dropped with the job, which tells the kernel of an I/O error.
    fn hand_over(&self, job: impl FnOnce(&mut Server) + Send + 'static) {
        let _ = self.jobs.send(Box::new(job));
    }
}

fn errno(error: &Error) -> Errno {
    Errno::from_i32(error.kind().errno())
}

/// The open flags as the kernel passes them on.
fn has(flags: OpenFlags, wanted: OFlags) -> bool {
    OFlags::from_bits_retain(flags.0.cast_unsigned()).contains(wanted)
}

impl Filesystem for Files {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // An older kernel refuses; then its own limit applies.
        let _ = config.set_max_write(WRITE_BYTES_MAX);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_string_lossy().into_owned();
        self.hand_over(move |server| match server.lookup(parent.0, &name) {
            Ok(attr) => reply.entry(&NAME_TTL, &attr, Generation(0)),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        self.hand_over(move |server| match server.attr(ino.0) {
            Ok(attr) => reply.attr(&NAME_TTL, &attr),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // As with a device, truncation and new times change nothing.
        self.getattr(req, ino, fh, reply);
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let writes = flags.acc_mode() != OpenAccMode::O_RDONLY;
        self.hand_over(move |server| match server.open(ino.0, writes) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.hand_over(move |server| match server.read(fh.0, offset, size) {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let flushes = has(flags, OFlags::DSYNC);
        let data = data.to_vec();
        self.hand_over(
            move |server| match server.write(fh.0, offset, &data, flushes) {
                Ok(written) => reply.written(written),
                Err(error) => reply.error(errno(&error)),
            },
        );
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.hand_over(move |server| {
            server.release(fh.0);
            reply.ok();
        });
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.hand_over(move |server| match server.flush(fh.0) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.hand_over(move |server| match server.list(ino.0) {
            Ok(entries) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                for (at, (inode, kind, name)) in entries.into_iter().enumerate().skip(start) {
                    if reply.add(INodeNo(inode), at as u64 + 1, kind, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 0, 0, 4096, 255, 4096);
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.hand_over(
            move |server| match server.allocate(fh.0, (offset, length), mode) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(&error)),
            },
        );
    }
}
