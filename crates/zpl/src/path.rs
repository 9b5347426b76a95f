//! Finding files by path.

use base::{Context, Error, ErrorKind, ObjectId, Result};
use zap::Zap;

use crate::Filesystem;
use crate::attrs::FileType;

/// `MAXSYMLINKS`: symbolic links that one path may lead through.
const LINKS_MAX: usize = 40;
/// `ZFS_DIRENT_OBJ`: the bits of a directory entry that are the file's number.
const OBJECT_MASK: u64 = (1 << 48) - 1;
/// Most components of a path: more than any path that can be typed has.
const DEPTH_MAX: usize = 4096;

impl Filesystem {
    /// The file at `path`, from the root, following symbolic links.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `TooManyLinks`; I/O.
    pub fn resolve(&self, path: impl AsRef<[u8]>) -> Result<ObjectId> {
        let path = path.as_ref();
        self.walk(path, true)
            .within(|| String::from_utf8_lossy(path).into_owned())
    }

    /// The same, but a symbolic link at the end is not followed.
    ///
    /// # Errors
    /// As [`resolve`](Filesystem::resolve).
    pub fn resolve_link(&self, path: impl AsRef<[u8]>) -> Result<ObjectId> {
        let path = path.as_ref();
        self.walk(path, false)
            .within(|| String::from_utf8_lossy(path).into_owned())
    }

    /// The directory of the last name in `path`, and that name.
    ///
    /// # Errors
    /// As [`resolve`](Filesystem::resolve); `InvalidInput` for the root.
    pub fn resolve_parent<'p>(&self, path: &'p [u8]) -> Result<(ObjectId, &'p [u8])> {
        let end = path
            .iter()
            .rposition(|byte| *byte != b'/')
            .map_or(0, |at| at + 1);
        let path = &path[..end];
        let start = path
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(0, |at| at + 1);
        let (directory, name) = path.split_at(start);
        if name.is_empty() {
            return Err(Error::invalid("the root has no name"));
        }
        Ok((self.resolve(directory)?, name))
    }

    /// The path of a file from the root, beginning with `/`, found through the recorded parents. A
    /// directory of extended attributes is called `<xattrdir>`.
    ///
    /// # Errors
    /// `NotFound` when no directory has the file, or it is not a file; I/O.
    #[doc(alias = "zfs_obj_to_path")]
    pub fn path_of(&self, id: ObjectId) -> Result<Vec<u8>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut at = id;
        while at != self.root() {
            let attr = self.getattr(at)?;
            let name = if attr.is_directory() && attr.is_xattr() {
                Some(b"<xattrdir>".to_vec())
            } else {
                Zap::open(self.objset(), attr.parent)?.value_search(at.0, OBJECT_MASK)?
            };
            let name = name.filter(|_| attr.links > 0 && names.len() < DEPTH_MAX);
            names
                .push(name.ok_or_else(|| Error::not_found(format!("no path leads to file {at}")))?);
            at = attr.parent;
        }
        names.push(Vec::new());
        names.reverse();
        Ok(match names.len() {
            1 => b"/".to_vec(),
            _ => names.join(&b'/'),
        })
    }

    fn walk(&self, path: &[u8], follow_last: bool) -> Result<ObjectId> {
        let mut at = self.root();
        let mut links = 0;
        // Names still to be looked up, the next one last.
        let mut names: Vec<Vec<u8>> = split(path).rev().map(<[u8]>::to_vec).collect();
        while let Some(name) = names.pop() {
            let attr = self.lookup(at, &name)?;
            let is_link = attr.file_type() == Some(FileType::Symlink);
            if !is_link || (names.is_empty() && !follow_last) {
                at = attr.id;
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Error::new(
                    ErrorKind::TooManyLinks,
                    "too many symbolic links",
                ));
            }
            let target = self.readlink(attr.id)?;
            if target.starts_with(b"/") {
                at = self.root();
            }
            names.extend(split(&target).rev().map(<[u8]>::to_vec));
        }
        Ok(at)
    }
}

fn split(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
}
