//! A tree of files, on the host or in a dataset: what a copy needs from either.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result};
use zpl::mount::Mount;
use zpl::{FileType, Time};

/// A file in a [`Tree`].
#[derive(Debug, Clone)]
pub(crate) enum Handle {
    /// On the host: a name in an open directory. The directory itself is `.`.
    Host(Arc<OwnedFd>, OsString),
    /// In a dataset.
    Object(ObjectId),
}

/// The names in a directory, and the error for those that could not be listed.
pub(crate) struct Names {
    pub(crate) names: Vec<Vec<u8>>,
    pub(crate) outcome: Result<()>,
}

/// What is known about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) file_type: FileType,
    /// Permissions, without the type.
    pub(crate) mode: u32,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    pub(crate) size: u64,
    /// Device number, for a device.
    pub(crate) rdev: u64,
    pub(crate) links: u64,
    /// Identifies a file: device and inode, or objset and object.
    pub(crate) identity: (u64, u64),
    pub(crate) used_bytes: u64,
    pub(crate) blksz: u64,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    pub(crate) crtime: Option<Time>,
}

impl Meta {
    /// Of a file that is made now, and is nobody's copy.
    pub(crate) fn new(file_type: FileType, mode: u32, (uid, gid): (u64, u64), now: Time) -> Meta {
        Meta {
            file_type,
            mode,
            uid,
            gid,
            size: 0,
            rdev: 0,
            links: 1,
            identity: (0, 0),
            used_bytes: 0,
            blksz: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: None,
        }
    }
}

/// Bytes of one file.
pub(crate) trait Content {
    /// Fills `out` from `offset` on; short only at the end.
    fn read_at(&mut self, offset: u64, out: &mut [u8]) -> Result<usize>;
    /// Writes all of `data` at `offset`.
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<()>;
    /// The next range with data at or after `offset`, up to `end`; `None` if only a hole is left.
    fn next_data(&mut self, offset: u64, end: u64) -> Result<Option<(u64, u64)>>;
    /// Sets the size.
    fn set_size(&mut self, size: u64) -> Result<()>;
}

/// A tree of files.
///
/// # Invariants
/// Names are single names, never paths: whatever a pool contains, nothing outside the directory of a handle
/// is reached through it. Only the paths given to `resolve` may lead anywhere: users type them.
pub(crate) trait Tree {
    /// The file of a path, links followed.
    fn resolve(&self, path: &str) -> Result<Handle>;
    /// The file of a path; the last link is not followed.
    fn resolve_link(&self, path: &str) -> Result<Handle>;
    /// The same directory, held open to access what is in it. A link is refused.
    fn enter(&self, dir: &Handle) -> Result<Handle>;
    /// A name in a directory.
    fn child(&self, dir: &Handle, name: &[u8]) -> Result<Handle>;
    /// The names in a directory, in its own order.
    fn list_unsorted(&self, dir: &Handle) -> Names;
    /// The names in a directory, sorted.
    fn list(&self, dir: &Handle) -> Names {
        let mut listed = self.list_unsorted(dir);
        listed.names.sort();
        listed
    }
    /// The attributes of a file; links are not followed.
    fn meta(&self, file: &Handle) -> Result<Meta>;
    /// Opens a regular file; for writing, also a pipe or a device.
    fn open(&self, file: &Handle, writes: bool) -> Result<Box<dyn Content + '_>>;
    /// The data set that the files are in, if they are in one.
    fn mount(&self) -> Option<&Mount> {
        None
    }
    /// Makes the contents of an empty file those of another one, with the same blocks.
    ///
    /// # Errors
    /// `Unsupported` where they have to be copied; the file is empty then.
    fn clone_contents(
        &self,
        file: &Handle,
        source: (&dyn Tree, &Handle),
        bytes: u64,
    ) -> Result<()> {
        let _ = (file, source, bytes);
        let why = "blocks can be shared within a pool only";
        Err(Error::new(ErrorKind::Unsupported, why))
    }
    /// The target of a symbolic link.
    fn readlink(&self, file: &Handle) -> Result<Vec<u8>>;
    /// Creates a file of the type in `meta`; a regular file is empty.
    fn make(&self, dir: &Handle, name: &[u8], meta: &Meta, target: &[u8]) -> Result<Handle>;
    /// Gives a file one more name.
    fn link(&self, file: &Handle, dir: &Handle, name: &[u8]) -> Result<()>;
    /// Gives a file another name in its directory; what has that name is gone then, unless it is a directory.
    fn rename(&self, dir: &Handle, name: &[u8], new_name: &[u8]) -> Result<()>;
    /// Removes a name; a directory only if it is empty.
    fn remove(&self, dir: &Handle, name: &[u8], is_dir: bool) -> Result<()>;
    /// Gives a file an owner and a group.
    fn set_owner(&self, file: &Handle, uid: u64, gid: u64) -> Result<()>;
    /// Gives a file permissions; not for links.
    fn set_mode(&self, file: &Handle, mode: u32) -> Result<()>;
    /// Sets the access and modification times of a file.
    fn set_times(&self, file: &Handle, atime: Time, mtime: Time) -> Result<()>;
    /// All extended attributes.
    fn xattrs(&self, file: &Handle) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;
    /// Sets an extended attribute.
    fn set_xattr(&self, file: &Handle, name: &[u8], value: &[u8]) -> Result<()>;
    /// Removes an extended attribute, if it is there.
    fn remove_xattr(&self, file: &Handle, name: &[u8]) -> Result<()>;
}
