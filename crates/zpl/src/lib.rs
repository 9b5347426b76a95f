//! The ZPL: POSIX files in an objset.
//!
//! # What it is
//! [`Filesystem`] is what a FUSE server, a copy command or a shell needs: look-ups, changes of
//! names, reads and writes, by object number (which is the inode number) or by path. What
//! is on disk is a version 5 file system as OpenZFS makes it; older ones are read.
//!
//! ```text
//! dir  remove  rename     names                file  setattr  xattr   one file
//! make  tmpfile           new files            sa     attributes as bytes
//! log  replay             the intent log       account  quota   space by owner, and its limits
//! fs  watch               what all share: objset, locks, transactions, telling of changes
//! ```
//!
//! # On disk
//! Object 1 is the master node, a ZAP: `ROOT` names the root directory, `DELETE_QUEUE` the files
//! that are open but have no name, `SA_ATTRS` the tables of attributes, `VERSION` is 5.
//!
//! # Invariants
//! 1. A file has as many names as its link count says; if that is 0, it is in the delete queue.
//! 2. A directory's size is its entries plus 2, its link count the directories in it plus 2.
//! 3. Everything that one operation changes is in one txg; large writes are several operations.
//!
//! # Source
//! OpenZFS `module/os/linux/zfs/zfs_{vnops_os,dir,znode_os,acl}.c`, `module/zfs/{zfs_vnops,sa,
//! zfs_sa,zfs_log,zfs_replay,zfs_quota}.c` @be7657e3.

mod account;
mod acl;
mod attrs;
mod cloning;
mod dir;
mod file;
mod fs;
mod log;
mod make;
pub mod mount;
mod names;
mod old_znode;
mod path;
mod posix_acl;
mod quota;
mod remove;
mod rename;
mod replay;
mod rewrite;
mod sa;
mod setattr;
mod tmpfile;
mod watch;
mod xattr;

#[cfg(test)]
mod tests;

pub use account::{FileOwners, Used, space_by_owner};
pub use attrs::{Attr, FileType, Time, device_major_minor, device_number};
pub use cloning::FileOffset;
pub use dir::{DirEntry, FIRST_ENTRY};
pub use file::SIZE_MAX;
pub use fs::{
    AtimePolicy, Filesystem, NewFilesystem, NoLimits, OpenOptions, Settings, Space, SpaceCheck,
    StatFs,
};
pub use log::{IntentLog, NoLog};
pub use make::Create;
pub use names::NameRules;
pub use old_znode::version_of;
pub use phys::owner::is_project;
pub use phys::znode::pflags;
pub use quota::{OwnerLimit, owner_limit, owner_limits, owner_used};
pub use rename::RenameKind;
pub use setattr::SetAttr;
pub use watch::{Seen, Watcher};
pub use xattr::SetXattr;

/// The longest name of a file in bytes.
pub(crate) const NAME_MAX_BYTES: usize = 255;
/// The longest name of a file in bytes, with `longname=on`.
pub(crate) const LONG_NAME_MAX_BYTES: usize = 1023;
/// `MAXPATHLEN`: the longest target of a symbolic link in bytes.
pub(crate) const SYMLINK_MAX_BYTES: usize = 4096;
