//! The structures of the FUSE protocol, as the kernel declares them; numbers are in the order of this machine.
//!
//! # Source
//! Linux `include/uapi/linux/fuse.h` (version 7.42 and what came before).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Declares structures that are copied from or to the kernel.
macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub(crate) struct $name { $(pub(crate) $field: $type,)* }
        )*
    };
}

/// `FUSE_KERNEL_VERSION`.
pub(crate) const MAJOR: u32 = 7;
/// The newest minor version whose structures are these.
pub(crate) const MINOR: u32 = 42;
/// `FUSE_ROOT_ID`.
pub(crate) const ROOT: u64 = 1;

/// Numbers of requests.
pub(crate) mod op {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
}

/// What is agreed upon when a session begins.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const IOCTL_DIR: u64 = 1 << 11;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// Fields of [`SetattrIn`] that are given.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// `FUSE_WRITE_CACHE`: pages of a mapping, long after they were changed.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// `FUSE_WRITE_KILL_SUIDGID`.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `FUSE_SETXATTR_ACL_KILL_SGID`.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// `FOPEN_KEEP_CACHE`: the pages that the kernel has of a file stay when it is opened.
pub(crate) const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// `FOPEN_PARALLEL_DIRECT_WRITES`.
pub(crate) const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
/// `FUSE_NOTIFY_INVAL_INODE`.
pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;
/// `FUSE_NOTIFY_INVAL_ENTRY`.
pub(crate) const NOTIFY_INVAL_ENTRY: i32 = 3;

wire! {
    /// `fuse_in_header`.
    InHeader {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16,
    }
    /// `fuse_out_header`.
    OutHeader { len: u32, error: i32, unique: u64, }
    /// `fuse_init_in`, as far as every version has it.
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32, }
    /// The rest of `fuse_init_in`.
    InitInMore { flags2: u32, unused: [u32; 11], }
    /// `fuse_init_out`.
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16,
        flags2: u32, max_stack_depth: u32, request_timeout: u16, unused: [u16; 11],
    }
    /// `fuse_attr`.
    AttrOfFile {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32,
        mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32,
        flags: u32,
    }
    /// `fuse_entry_out`.
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: AttrOfFile,
    }
    /// `fuse_attr_out`.
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: AttrOfFile, }
    /// `fuse_open_out`.
    OpenOut { fh: u64, open_flags: u32, backing_id: i32, }
    /// `fuse_forget_in`, and the head of `fuse_batch_forget_in`.
    ForgetIn { nlookup: u64, }
    /// `fuse_batch_forget_in`.
    BatchForgetIn { count: u32, dummy: u32, }
    /// `fuse_forget_one`.
    ForgetOne { nodeid: u64, nlookup: u64, }
    /// `fuse_setattr_in`.
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32,
        unused5: u32,
    }
    /// `fuse_mknod_in`.
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32, }
    /// `fuse_mkdir_in`.
    MkdirIn { mode: u32, umask: u32, }
    /// `fuse_create_in`.
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    /// `fuse_rename_in`.
    RenameIn { newdir: u64, }
    /// `fuse_rename2_in`.
    Rename2In { newdir: u64, flags: u32, padding: u32, }
    /// `fuse_link_in`.
    LinkIn { oldnodeid: u64, }
    /// `fuse_open_in`.
    OpenIn { flags: u32, open_flags: u32, }
    /// `fuse_release_in`.
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64, }
    /// `fuse_read_in`.
    ReadIn { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32, }
    /// `fuse_write_in`.
    WriteIn { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32, }
    /// `fuse_write_out`.
    WriteOut { size: u32, padding: u32, }
    /// `fuse_statfs_out`.
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        padding: u32, spare: [u32; 6],
    }
    /// `fuse_setxattr_in` with `FUSE_SETXATTR_EXT`.
    SetxattrIn { size: u32, flags: u32, setxattr_flags: u32, padding: u32, }
    /// `fuse_getxattr_in`, also of listxattr; as an answer it has only a size.
    GetxattrIn { size: u32, padding: u32, }
    /// `fuse_fallocate_in`.
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, }
    /// `fuse_lseek_in`.
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32, }
    /// `fuse_lseek_out`.
    LseekOut { offset: u64, }
    /// `fuse_copy_file_range_in`.
    CopyFileRangeIn {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    /// `fuse_ioctl_in`.
    IoctlIn { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32, }
    /// `fuse_ioctl_out`.
    IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, }
    /// `fuse_dirent`, which the name follows.
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32, }
    /// `fuse_notify_inval_inode_out`.
    InvalInode { ino: u64, off: i64, len: i64, }
    /// `fuse_notify_inval_entry_out`, which the name follows.
    InvalEntry { parent: u64, namelen: u32, flags: u32, }
    /// `fuse_sx_time`.
    StatxTime { secs: i64, nanos: u32, reserved: i32, }
    /// `fuse_statx`.
    Statx {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16,
        ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: StatxTime, btime: StatxTime,
        ctime: StatxTime, mtime: StatxTime, rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32,
        spare2: [u64; 14],
    }
    /// `fuse_statx_out`.
    StatxOut { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx, }
    /// `fuse_uring_cmd_req`.
    RingCommand { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6], }
    /// `iovec`.
    Iovec { base: u64, len: u64, }
    /// `fsxattr` of Linux `include/uapi/linux/fs.h`.
    Fsxattr { xflags: u32, extsize: u32, nextents: u32, projid: u32, cowextsize: u32, pad: [u8; 8], }
}

/// `FUSE_IO_URING_CMD_REGISTER`.
pub(crate) const RING_REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
pub(crate) const RING_COMMIT_AND_FETCH: u32 = 2;

/// `fuse_uring_req_header`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RingHeader {
    /// An [`InHeader`], and then the [`OutHeader`].
    pub(crate) in_out: [u8; 128],
    /// The structure that a request begins with.
    pub(crate) op_in: [u8; 128],
    pub(crate) flags: u64,
    pub(crate) commit_id: u64,
    pub(crate) payload_size: u32,
    pub(crate) padding: u32,
    pub(crate) reserved: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_that_the_kernel_expects() {
        assert_eq!(size_of::<InHeader>(), 40);
        assert_eq!(size_of::<OutHeader>(), 16);
        assert_eq!(size_of::<InitOut>(), 64);
        assert_eq!(size_of::<AttrOfFile>(), 88);
        assert_eq!(size_of::<EntryOut>(), 128);
        assert_eq!(size_of::<AttrOut>(), 104);
        assert_eq!(size_of::<SetattrIn>(), 88);
        assert_eq!(size_of::<WriteIn>(), 40);
        assert_eq!(size_of::<StatfsOut>(), 80);
        assert_eq!(size_of::<CopyFileRangeIn>(), 56);
        assert_eq!(size_of::<Statx>(), 256);
        assert_eq!(size_of::<StatxOut>(), 288);
        assert_eq!(size_of::<Fsxattr>(), 28);
        assert_eq!(size_of::<RingCommand>(), 24);
        assert_eq!(size_of::<RingHeader>(), 288);
    }
}
