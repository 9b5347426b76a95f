//! A folder of this host, shown elsewhere through FUSE and nothing else: what FUSE itself costs.
//!
//! # What it is
//! The other side of `bench mount`. Each request is the system call of the same name on the folder below. An inode
//! is known by its parent and its name, so that the kernel may keep as many as it likes without a descriptor for each.
//!
//! # Concurrency
//! Requests come from several threads. Names are under one lock, which no system call is made under.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::{Context, Error};
use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

use super::super::{Words, usage_error};
use crate::failure::Outcome;

/// How long the kernel may keep names and attributes: nothing else changes the folder.
const KEPT: Duration = Duration::from_secs(3600);
const THREADS: usize = 4;

/// `ashift bench passthrough FOLDER DIR`: shows FOLDER at DIR until that is unmounted.
pub(in super::super) fn run(words: &mut Words) -> Outcome {
    words.check_all_taken()?;
    let [folder, dir] = &words.operands[..] else {
        return Err(usage_error());
    };
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("passthrough".to_owned()),
        MountOption::DefaultPermissions,
    ];
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    let served = fuser::mount(Passthrough::new(folder), Path::new(dir), &config);
    Ok(served.map_err(Error::from).within(|| dir.clone())?)
}

struct Passthrough {
    root: PathBuf,
    names: RwLock<HashMap<u64, Name>>,
    files: RwLock<HashMap<u64, Arc<File>>>,
    folders: RwLock<HashMap<u64, Arc<Vec<Entry>>>>,
    next_handle: AtomicU64,
}

/// Where an inode was seen last.
struct Name {
    parent: u64,
    name: OsString,
    /// How often the kernel was told of it.
    told: u64,
}

struct Entry {
    inode: u64,
    kind: FileType,
    name: OsString,
}

impl Passthrough {
    fn new(folder: &str) -> Passthrough {
        Passthrough {
            root: folder.into(),
            names: RwLock::default(),
            files: RwLock::default(),
            folders: RwLock::default(),
            next_handle: AtomicU64::new(1),
        }
    }

    fn path(&self, inode: INodeNo) -> io::Result<PathBuf> {
        let names = self.names.read().expect("no panic");
        let mut parts = Vec::new();
        let mut at = inode.0;
        while at != INodeNo::ROOT.0 {
            let name = names.get(&at).ok_or(io::ErrorKind::NotFound)?;
            parts.push(&name.name);
            at = name.parent;
        }
        let mut path = self.root.clone();
        path.extend(parts.iter().rev());
        Ok(path)
    }

    fn child(&self, parent: INodeNo, name: &OsStr) -> io::Result<PathBuf> {
        Ok(self.path(parent)?.join(name))
    }

    /// Notes where an inode is, and that the kernel is told of it so many times more.
    fn note(&self, inode: u64, parent: INodeNo, name: &OsStr, more: u64) {
        let mut names = self.names.write().expect("no panic");
        let told = names.get(&inode).map_or(0, |name| name.told);
        let name = Name {
            parent: parent.0,
            name: name.to_owned(),
            told: told + more,
        };
        names.insert(inode, name);
    }

    fn entry(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let meta = fs::symlink_metadata(self.child(parent, name)?)?;
        self.note(meta.ino(), parent, name, 1);
        Ok(attributes(&meta))
    }

    /// Notes that an inode has another name.
    fn moved(&self, parent: INodeNo, name: &OsStr) -> io::Result<()> {
        let meta = fs::symlink_metadata(self.child(parent, name)?)?;
        self.note(meta.ino(), parent, name, 0);
        Ok(())
    }

    fn attr(&self, inode: INodeNo) -> io::Result<FileAttr> {
        let mut attr = attributes(&fs::symlink_metadata(self.path(inode)?)?);
        attr.ino = inode;
        Ok(attr)
    }

    fn keep(&self, file: File) -> FileHandle {
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        let mut files = self.files.write().expect("no panic");
        files.insert(handle, Arc::new(file));
        FileHandle(handle)
    }

    fn file(&self, handle: FileHandle) -> io::Result<Arc<File>> {
        let files = self.files.read().expect("no panic");
        let file = files.get(&handle.0).cloned();
        file.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    fn open(&self, path: &Path, flags: i32, mode: Option<u32>) -> io::Result<FileHandle> {
        use rustix::fs::{Mode, OFlags};
        // The kernel truncates and appends by itself.
        let mut flags = OFlags::from_bits_retain(flags.cast_unsigned());
        flags.remove(OFlags::APPEND | OFlags::CREATE | OFlags::EXCL);
        if mode.is_some() {
            flags.insert(OFlags::CREATE | OFlags::EXCL);
        }
        let mode = Mode::from_raw_mode(mode.unwrap_or(0) & 0o7777);
        let descriptor = rustix::fs::open(path, flags | OFlags::CLOEXEC, mode)?;
        Ok(self.keep(descriptor.into()))
    }

    fn entries(&self, folder: INodeNo) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(self.path(folder)?)? {
            let entry = entry?;
            entries.push(Entry {
                inode: std::os::unix::fs::DirEntryExt::ino(&entry),
                kind: kind(entry.file_type()?),
                name: entry.file_name(),
            });
        }
        Ok(entries)
    }

    fn listed(&self, handle: FileHandle) -> Arc<Vec<Entry>> {
        let folders = self.folders.read().expect("no panic");
        folders.get(&handle.0).cloned().unwrap_or_default()
    }
}

fn kind(kind: fs::FileType) -> FileType {
    match kind {
        _ if kind.is_dir() => FileType::Directory,
        _ if kind.is_symlink() => FileType::Symlink,
        _ if kind.is_fifo() => FileType::NamedPipe,
        _ if kind.is_socket() => FileType::Socket,
        _ if kind.is_char_device() => FileType::CharDevice,
        _ if kind.is_block_device() => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn attributes(meta: &Metadata) -> FileAttr {
    let time = |seconds: i64, nanos: i64| {
        let whole = Duration::new(seconds.unsigned_abs(), u32::try_from(nanos).unwrap_or(0));
        match seconds >= 0 {
            true => UNIX_EPOCH + whole,
            false => UNIX_EPOCH - whole,
        }
    };
    FileAttr {
        ino: INodeNo(meta.ino()),
        size: meta.len(),
        blocks: meta.blocks(),
        atime: time(meta.atime(), meta.atime_nsec()),
        mtime: time(meta.mtime(), meta.mtime_nsec()),
        ctime: time(meta.ctime(), meta.ctime_nsec()),
        crtime: UNIX_EPOCH,
        kind: kind(meta.file_type()),
        perm: u16::try_from(meta.permissions().mode() & 0o7777).expect("twelve bits"),
        nlink: u32::try_from(meta.nlink()).unwrap_or(u32::MAX),
        uid: meta.uid(),
        gid: meta.gid(),
        rdev: u32::try_from(meta.rdev()).unwrap_or(0),
        blksize: u32::try_from(meta.blksize()).unwrap_or(4096),
        flags: 0,
    }
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match time {
        None => special(UTIME_OMIT),
        Some(TimeOrNow::Now) => special(UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            Timespec {
                tv_sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: since.subsec_nanos().into(),
            }
        }
    }
}

/// Answers with what was found, or with the error.
macro_rules! answer {
    ($reply:ident, $found:expr, $value:ident => $call:expr) => {
        match $found {
            Ok($value) => $call,
            Err(error) => $reply.error(Errno::from(error)),
        }
    };
}

impl Filesystem for Passthrough {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for wish in [
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_BIG_WRITES,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
        ] {
            // What this kernel does not know is done without.
            let _ = config.add_capabilities(wish);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer!(reply, self.entry(parent, name), attr => reply.entry(&KEPT, &attr, Generation(0)));
    }

    fn forget(&self, _: &Request, inode: INodeNo, count: u64) {
        let mut names = self.names.write().expect("no panic");
        if let Some(name) = names.get_mut(&inode.0) {
            name.told = name.told.saturating_sub(count);
            if name.told == 0 {
                names.remove(&inode.0);
            }
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.attr(inode), attr => reply.attr(&KEPT, &attr));
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = || {
            let path = self.path(inode)?;
            if let Some(mode) = mode {
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
            }
            if uid.is_some() || gid.is_some() {
                std::os::unix::fs::lchown(&path, uid, gid)?;
            }
            match (size, handle) {
                (Some(size), Some(handle)) => self.file(handle)?.set_len(size)?,
                (Some(size), None) => File::options().write(true).open(&path)?.set_len(size)?,
                (None, _) => {}
            }
            if atime.is_some() || mtime.is_some() {
                let times = Timestamps {
                    last_access: timespec(atime),
                    last_modification: timespec(mtime),
                };
                rustix::fs::utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            self.attr(inode)
        };
        answer!(reply, set(), attr => reply.attr(&KEPT, &attr));
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        let target = self.path(inode).and_then(fs::read_link);
        answer!(reply, target, path => reply.data(path.as_os_str().as_encoded_bytes()));
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let make = || {
            let path = self.child(parent, name)?;
            fs::create_dir(&path)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode & !umask))?;
            self.entry(parent, name)
        };
        answer!(reply, make(), attr => reply.entry(&KEPT, &attr, Generation(0)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.child(parent, name).and_then(fs::remove_file);
        answer!(reply, done, _done => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.child(parent, name).and_then(fs::remove_dir);
        answer!(reply, done, _done => reply.ok());
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let make = || {
            std::os::unix::fs::symlink(target, self.child(parent, name)?)?;
            self.entry(parent, name)
        };
        answer!(reply, make(), attr => reply.entry(&KEPT, &attr, Generation(0)));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let rename = || {
            let (from, to) = (self.child(parent, name)?, self.child(new_parent, new_name)?);
            let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
            rustix::fs::renameat_with(CWD, &from, CWD, &to, flags)?;
            if flags.contains(rustix::fs::RenameFlags::EXCHANGE) {
                self.moved(parent, name)?;
            }
            self.moved(new_parent, new_name)
        };
        answer!(reply, rename(), _done => reply.ok());
    }

    fn link(&self, _: &Request, inode: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let link = || {
            fs::hard_link(self.path(inode)?, self.child(parent, name)?)?;
            self.entry(parent, name)
        };
        answer!(reply, link(), attr => reply.entry(&KEPT, &attr, Generation(0)));
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let open = || self.open(&self.path(inode)?, flags.0, None);
        answer!(reply, open(), handle => reply.opened(handle, FopenFlags::FOPEN_KEEP_CACHE));
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let create = || {
            let handle = self.open(&self.child(parent, name)?, flags, Some(mode & !umask))?;
            Ok::<_, io::Error>((handle, self.entry(parent, name)?))
        };
        answer!(reply, create(), made => {
            reply.created(&KEPT, &made.1, Generation(0), made.0, FopenFlags::FOPEN_KEEP_CACHE);
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = || {
            let mut data = vec![0; size as usize];
            let mut filled = 0;
            let file = self.file(handle)?;
            while filled < data.len() {
                match file.read_at(&mut data[filled..], offset + filled as u64)? {
                    0 => break,
                    count => filled += count,
                }
            }
            data.truncate(filled);
            Ok::<_, io::Error>(data)
        };
        answer!(reply, read(), data => reply.data(&data));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self
            .file(handle)
            .and_then(|file| file.write_all_at(data, offset));
        let len = u32::try_from(data.len()).expect("a request is far below 4 GiB");
        answer!(reply, written, _done => reply.written(len));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.files.write().expect("no panic").remove(&handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, data: bool, reply: ReplyEmpty) {
        let done = self.file(handle).and_then(|file| match data {
            true => file.sync_data(),
            false => file.sync_all(),
        });
        answer!(reply, done, _done => reply.ok());
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        answer!(reply, self.entries(inode), entries => {
            let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
            let mut folders = self.folders.write().expect("no panic");
            folders.insert(handle, Arc::new(entries));
            reply.opened(FileHandle(handle), FopenFlags::empty());
        });
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let entries = self.listed(handle);
        let numbered = (1..).zip(entries.iter());
        for (next, entry) in numbered.skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            if reply.add(INodeNo(entry.inode), next, entry.kind, &entry.name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let entries = self.listed(handle);
        let numbered = (1..).zip(entries.iter());
        for (next, entry) in numbered.skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            // One that has gone meanwhile is left out.
            let Ok(attr) = self
                .child(inode, &entry.name)
                .and_then(fs::symlink_metadata)
            else {
                continue;
            };
            let attr = attributes(&attr);
            if reply.add(attr.ino, next, &entry.name, &KEPT, &attr, Generation(0)) {
                break;
            }
            self.note(attr.ino.0, inode, &entry.name, 1);
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.folders.write().expect("no panic").remove(&handle.0);
        reply.ok();
    }
}
