//! The calls that the benchmark makes, as a trait: it does not know where its files are.

use std::io::SeekFrom;

use base::Result;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// One that is there, to be read.
    Read,
    /// One that is there, to be read and written.
    ReadWrite,
    /// A new one, to be written.
    CreateToWrite,
    /// A new one, to be read and written; past the cache if `direct`.
    Create {
        /// `O_DIRECT`
        direct: bool,
    },
}

/// A tree of files with a current directory, which all threads share. Paths are relative to it.
pub trait Files: Send + Sync {
    /// Opens a file, or (to be read) a directory.
    ///
    /// # Errors
    /// As open(2).
    fn open(&self, path: &str, how: How) -> Result<Box<dyn File>>;

    /// The size of a file, in bytes; links are followed.
    ///
    /// # Errors
    /// As stat(2).
    fn stat(&self, path: &str) -> Result<u64>;

    /// Removes a name.
    ///
    /// # Errors
    /// As unlink(2).
    fn unlink(&self, path: &str) -> Result<()>;

    /// Gives a file another name.
    ///
    /// # Errors
    /// As link(2).
    fn link(&self, original: &str, path: &str) -> Result<()>;

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As symlink(2).
    fn symlink(&self, target: &str, path: &str) -> Result<()>;

    /// Makes a directory that only its owner may enter.
    ///
    /// # Errors
    /// As mkdir(2).
    fn mkdir(&self, path: &str) -> Result<()>;

    /// Removes a directory.
    ///
    /// # Errors
    /// As rmdir(2).
    fn rmdir(&self, path: &str) -> Result<()>;

    /// Makes a directory the current one; `..` is the one above.
    ///
    /// # Errors
    /// As chdir(2).
    fn chdir(&self, path: &str) -> Result<()>;

    /// Calls `each` with the names in the current directory, in the order in which they are found there; it may
    /// remove them.
    ///
    /// # Errors
    /// As readdir(3).
    fn list(&self, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()>;

    /// Writes everything to stable storage.
    ///
    /// # Errors
    /// Those of the devices, where they are known.
    fn sync(&self) -> Result<()>;
}

/// An open file; closed when it is dropped.
pub trait File: Send {
    /// Reads from its position on.
    ///
    /// # Errors
    /// As read(2).
    fn read(&mut self, out: &mut [u8]) -> Result<usize>;

    /// Writes at its position.
    ///
    /// # Errors
    /// As write(2).
    fn write(&mut self, data: &[u8]) -> Result<usize>;

    /// Moves its position.
    ///
    /// # Errors
    /// As lseek(2).
    fn seek(&mut self, to: SeekFrom) -> Result<()>;

    /// Writes it to stable storage.
    ///
    /// # Errors
    /// As fsync(2).
    fn fsync(&mut self) -> Result<()>;
}
