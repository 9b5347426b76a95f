//! Finding files by path.

use base::{Context, Error, ErrorKind, ObjectId, Result};

use crate::Filesystem;
use crate::attrs::FileType;

/// `MAXSYMLINKS`: symbolic links that one path may lead through.
const LINKS_MAX: usize = 40;

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

    fn walk(&self, path: &[u8], follow_last: bool) -> Result<ObjectId> {
        let mut at = self.root();
        let mut links = 0;
        // Names still to go, the next one last.
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
