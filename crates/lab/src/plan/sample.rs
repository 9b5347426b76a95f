//! A part of the user's data that stands for all of it.
//!
//! # What it is
//! One in N of everything, so that all figures are to be multiplied by one number:
//! - files below [`PIECE_BYTES`], sorted by size (in powers of two), extension and place in the walk, every Nth:
//!   sizes, kinds and places are distributed as they were;
//! - of larger files, in the order of the walk, every Nth piece of [`PIECE_BYTES`], the shorter ones at their ends,
//!   too; pieces of one file become one file;
//! - symbolic links, every Nth;
//! - folders: N that follow one another in the walk become one, below the one that its first one's parent became. So
//!   folders have as many entries as before, and are nested in a similar way.
//!
//! # Accuracy
//! What all files come to is known, so the figures are multiplied by the bytes there are over the bytes taken, not by
//! N. What is left is chance: how well the pieces taken compress is about how well all do. A recordsize above
//! [`PIECE_BYTES`] is not told from that.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use base::{Context, Error, Result};
use rustix::fs::{SeekFrom, XattrFlags, seek};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::survey::{Leaf, Survey};

/// Files from this size on are taken in pieces of it.
const PIECE_BYTES: u64 = 1 << 20;
/// Of more files than this, not all are taken.
const FILES_MAX: u64 = 50_000;

/// A sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// One in this many was taken.
    pub one_in: u64,
    /// Files in it.
    pub files: u64,
    /// Folders in it.
    pub folders: u64,
    /// The sizes of its files together.
    pub bytes: u64,
}

impl Sample {
    /// What its figures are to be multiplied by.
    #[must_use]
    pub fn scale(&self, found_bytes: u64) -> f64 {
        match (self.one_in, self.bytes) {
            (1, _) | (_, 0) => self.one_in as f64,
            (_, bytes) => found_bytes as f64 / bytes as f64,
        }
    }
}

impl Survey {
    /// One in how many is to be taken for about `bytes`; 1 if that is everything.
    #[must_use]
    pub fn one_in(&self, bytes: Option<u64>) -> u64 {
        let Some(bytes) = bytes else { return 1 };
        let by_bytes = self.found.bytes.div_ceil(bytes.max(1));
        let by_files = self.found.files.div_ceil(FILES_MAX);
        by_bytes.max(by_files).max(1)
    }

    /// What one in so many comes to.
    #[must_use]
    pub fn sample(&self, one_in: u64) -> Sample {
        let chosen = self.chosen(one_in);
        let pieces = chosen.iter().flat_map(|(_, pieces)| pieces);
        Sample {
            one_in,
            files: chosen.len() as u64,
            folders: self.found.folders.div_ceil(one_in),
            bytes: pieces.map(|(start, end)| end - start).sum(),
        }
    }

    /// Copies one in so many to a folder that does not exist yet; `progress` gets the bytes so far, and may end it.
    ///
    /// # Errors
    /// Whatever the file systems say, with the path; what `progress` returns.
    pub fn copy_sample(
        &self,
        one_in: u64,
        folder: &Path,
        progress: &dyn Fn(u64) -> Result<()>,
    ) -> Result<()> {
        let mut copying = Copying::start(self, one_in, folder)?;
        let mut bytes = 0;
        for (leaf, pieces) in self.chosen(one_in) {
            bytes += copying.file(leaf, &pieces)?;
            progress(bytes)?;
        }
        let mut links = every(one_in, &self.links);
        links.try_for_each(|leaf| copying.link(leaf))
    }

    /// The files to take, each with the ranges of it, in the order of the walk.
    fn chosen(&self, one_in: u64) -> Vec<(&Leaf, Vec<(u64, u64)>)> {
        let in_pieces = |leaf: &&Leaf| one_in > 1 && leaf.bytes >= PIECE_BYTES;
        let (large, mut small): (Vec<_>, Vec<_>) = self.files.iter().partition(in_pieces);
        // Sorting keeps the order of the walk among files of one kind.
        small.sort_by_key(|leaf| (leaf.bytes.checked_ilog2(), extension(leaf)));
        let whole = every(one_in, &small).map(|leaf| (*leaf, vec![(0, leaf.bytes)]));
        let mut chosen: Vec<(&Leaf, Vec<(u64, u64)>)> = whole.collect();
        let mut to_skip = (one_in - 1) / 2;
        for leaf in large {
            let mut pieces = Vec::new();
            let count = leaf.bytes.div_ceil(PIECE_BYTES);
            let mut at = to_skip;
            while at < count {
                let start = at * PIECE_BYTES;
                pieces.push((start, (start + PIECE_BYTES).min(leaf.bytes)));
                at += one_in;
            }
            to_skip = at - count;
            if !pieces.is_empty() {
                chosen.push((leaf, pieces));
            }
        }
        chosen.sort_by(|(a, _), (b, _)| (a.folder, &a.name).cmp(&(b.folder, &b.name)));
        chosen
    }
}

/// What kind of file it is, as far as its name says.
fn extension(leaf: &Leaf) -> Option<&OsStr> {
    Path::new(&leaf.name).extension()
}

/// Every Nth, from the middle of the first N on.
fn every<T>(one_in: u64, all: &[T]) -> impl Iterator<Item = &T> {
    let step = usize::try_from(one_in).unwrap_or(usize::MAX);
    all.iter().skip((step - 1) / 2).step_by(step)
}

struct Copying<'a> {
    survey: &'a Survey,
    one_in: u64,
    /// The paths of the folders that were made: that of N of the survey each.
    folders: Vec<PathBuf>,
    taken: HashSet<PathBuf>,
}

impl Copying<'_> {
    fn start<'a>(survey: &'a Survey, one_in: u64, folder: &Path) -> Result<Copying<'a>> {
        let mut copying = Copying {
            survey,
            one_in,
            folders: Vec::new(),
            taken: HashSet::new(),
        };
        for first in every_first(one_in, survey.folders.len()) {
            let path = match copying.folders.is_empty() {
                true => folder.to_owned(),
                false => {
                    let of = &survey.folders[first];
                    let parent = copying.place(of.parent).to_owned();
                    copying.free(&parent, &of.name)
                }
            };
            fs::create_dir(&path)
                .map_err(Error::from)
                .within(|| path.display().to_string())?;
            copying.folders.push(path);
        }
        Ok(copying)
    }

    /// What a folder of the survey became.
    fn place(&self, folder: usize) -> &Path {
        let group = folder / usize::try_from(self.one_in).unwrap_or(usize::MAX);
        &self.folders[group]
    }

    /// A path in a folder that is not used yet.
    fn free(&mut self, folder: &Path, name: &OsString) -> PathBuf {
        let mut path = folder.join(name);
        let mut again = 1;
        while !self.taken.insert(path.clone()) {
            again += 1;
            let mut other = name.clone();
            other.push(format!("~{again}"));
            path = folder.join(other);
        }
        path
    }

    /// Copies a file, and returns its size.
    fn file(&mut self, leaf: &Leaf, pieces: &[(u64, u64)]) -> Result<u64> {
        let from = self.survey.leaf_path(leaf);
        let folder = self.place(leaf.folder).to_owned();
        let to = self.free(&folder, &leaf.name);
        copy(&from, &to, pieces).within(|| from.display().to_string())
    }

    fn link(&mut self, leaf: &Leaf) -> Result<()> {
        let from = self.survey.leaf_path(leaf);
        let folder = self.place(leaf.folder).to_owned();
        let to = self.free(&folder, &leaf.name);
        let made = fs::read_link(&from).and_then(|target| symlink(target, to));
        made.map_err(Error::from)
            .within(|| from.display().to_string())
    }
}

/// The first of each N.
fn every_first(one_in: u64, count: usize) -> impl Iterator<Item = usize> {
    (0..count).step_by(usize::try_from(one_in).unwrap_or(usize::MAX))
}

/// Copies ranges of a file, one after another, with its holes, its mode, times and extended attributes; returns the
/// size of what it made.
fn copy(from: &Path, to: &Path, pieces: &[(u64, u64)]) -> Result<u64> {
    let source = File::open(from)?;
    let target = File::create_new(to)?;
    let mut at = 0;
    for &(start, end) in pieces {
        copy_range(&source, &target, start, end, at)?;
        at += end - start;
    }
    target.set_len(at)?;
    copy_attributes(&source, &target)?;
    let metadata = source.metadata()?;
    target.set_permissions(metadata.permissions())?;
    target.set_modified(metadata.modified()?)?;
    Ok(at)
}

/// Copies what is data in `start..end` to `at`.
fn copy_range(source: &File, target: &File, start: u64, end: u64, at: u64) -> Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let mut here = start;
    while here < end {
        let data = match seek(source, SeekFrom::Data(here)) {
            Ok(data) => data.min(end),
            Err(Errno::NXIO) => end,
            // A file system without holes.
            Err(_) => here,
        };
        let hole = seek(source, SeekFrom::Hole(data))
            .unwrap_or(end)
            .clamp(data, end);
        here = data;
        while here < hole {
            let wanted = buffer
                .len()
                .min(usize::try_from(hole - here).unwrap_or(usize::MAX));
            let read = source.read_at(&mut buffer[..wanted], here)?;
            if read == 0 {
                // It has become shorter.
                return Ok(());
            }
            target.write_all_at(&buffer[..read], at + (here - start))?;
            here += read as u64;
        }
    }
    Ok(())
}

/// Copies the extended attributes, as far as the sample's file system takes them.
fn copy_attributes(source: &File, target: &File) -> Result<()> {
    let mut names = vec![0; 64 << 10];
    let Ok(length) = rustix::fs::flistxattr(source, &mut names) else {
        return Ok(());
    };
    for name in names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0; 64 << 10];
        if let Ok(length) = rustix::fs::fgetxattr(source, name, &mut value) {
            let _ = rustix::fs::fsetxattr(target, name, &value[..length], XattrFlags::empty());
        }
    }
    Ok(())
}
