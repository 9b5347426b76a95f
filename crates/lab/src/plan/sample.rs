//! A part of the user's data that stands for all of it.
//!
//! # What it is
//! One in N of everything, so that all figures are to be multiplied by one number:
//! - files below [`PIECE_BYTES`], sorted by size (in powers of two), extension and place in the walk, every Nth:
//!   sizes, kinds and places are distributed as they were;
//! - of larger files, sorted likewise, every Nth piece of [`PIECE_BYTES`], the shorter ones at their ends, too; the
//!   pieces of N files that follow one another become one file, where one of them lies. So there are as many files as
//!   there should be, each about as long as those are;
//! - symbolic links, every Nth;
//! - folders: N with about as many entries become one, below the one that the parent of the first of them became. So
//!   small and large folders are as many as there should be, and are nested in a similar way.
//!
//! # Accuracy
//! What all files come to is known, so the figures are multiplied by the bytes there are over the bytes taken, not by
//! N. What is left is chance: how well the pieces taken compress is about how well all do. A recordsize above
//! [`PIECE_BYTES`] is not told from that.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::ops::Range;
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
        let pieces = chosen.iter().flat_map(|taken| &taken.pieces);
        Sample {
            one_in,
            files: chosen.len() as u64,
            folders: self.found.folders.div_ceil(one_in),
            bytes: pieces.map(|piece| piece.end - piece.start).sum(),
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
        for taken in self.chosen(one_in) {
            bytes += copying.file(&taken)?;
            progress(bytes)?;
        }
        let mut links = every(one_in, &self.links);
        links.try_for_each(|leaf| copying.link(leaf))
    }

    /// The files to make, in the order of the walk.
    fn chosen(&self, one_in: u64) -> Vec<Taken<'_>> {
        let in_pieces = |leaf: &&Leaf| one_in > 1 && leaf.bytes >= PIECE_BYTES;
        let (mut large, mut small): (Vec<_>, Vec<_>) = self.files.iter().partition(in_pieces);
        // Sorting keeps the order of the walk among files of one kind.
        for files in [&mut large, &mut small] {
            files.sort_by_key(|leaf| (leaf.bytes.checked_ilog2(), extension(leaf)));
        }
        let whole = every(one_in, &small).map(|leaf| Taken::whole(leaf));
        let mut chosen: Vec<Taken<'_>> = whole.collect();
        chosen.extend(joined(one_in, &large));
        chosen.sort_by_key(|taken| (taken.leaf.folder, &taken.leaf.name));
        chosen
    }
}

/// A file of the sample.
struct Taken<'a> {
    /// The file whose place, name and attributes it has.
    leaf: &'a Leaf,
    /// What it holds, one piece after another.
    pieces: Vec<Piece<'a>>,
}

/// The range `start..end` of a file.
struct Piece<'a> {
    of: &'a Leaf,
    start: u64,
    end: u64,
}

impl Taken<'_> {
    fn whole(leaf: &Leaf) -> Taken<'_> {
        let piece = Piece {
            of: leaf,
            start: 0,
            end: leaf.bytes,
        };
        Taken {
            leaf,
            pieces: vec![piece],
        }
    }
}

/// Makes one file of N large ones each, of every Nth piece of them all.
fn joined<'a>(one_in: u64, large: &[&'a Leaf]) -> Vec<Taken<'a>> {
    let mut joined = Vec::new();
    let mut to_skip = (one_in - 1) / 2;
    for group in large.chunks(usize::try_from(one_in).unwrap_or(usize::MAX)) {
        let mut pieces = Vec::new();
        for of in group {
            let count = of.bytes.div_ceil(PIECE_BYTES);
            let mut at = to_skip;
            while at < count {
                let start = at * PIECE_BYTES;
                let end = (start + PIECE_BYTES).min(of.bytes);
                pieces.push(Piece { of, start, end });
                at += one_in;
            }
            to_skip = at - count;
        }
        if !pieces.is_empty() {
            let leaf = group[group.len() / 2];
            joined.push(Taken { leaf, pieces });
        }
    }
    joined
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
    /// What each folder of the survey became.
    folders: Vec<PathBuf>,
    taken: HashSet<PathBuf>,
}

impl Copying<'_> {
    fn start<'a>(survey: &'a Survey, one_in: u64, folder: &Path) -> Result<Copying<'a>> {
        let mut copying = Copying {
            survey,
            folders: vec![PathBuf::new(); survey.folders.len()],
            taken: HashSet::new(),
        };
        for group in alike(survey, one_in) {
            let path = match group[0] {
                0 => folder.to_owned(),
                // What is above the first of a group comes before it in the walk, so its group has been made.
                first => {
                    let of = &survey.folders[first];
                    let parent = copying.folders[of.parent].clone();
                    copying.free(&parent, &of.name)
                }
            };
            fs::create_dir(&path)
                .map_err(Error::from)
                .within(|| path.display().to_string())?;
            for member in group {
                copying.folders[member].clone_from(&path);
            }
        }
        Ok(copying)
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

    /// Makes a file, and returns its size.
    fn file(&mut self, taken: &Taken<'_>) -> Result<u64> {
        let folder = self.folders[taken.leaf.folder].clone();
        let to = self.free(&folder, &taken.leaf.name);
        let target = File::create_new(&to)
            .map_err(Error::from)
            .within(|| to.display().to_string())?;
        let mut at = 0;
        for piece in &taken.pieces {
            let from = self.survey.leaf_path(piece.of);
            copy_range(&from, &target, piece.start..piece.end, at)
                .within(|| from.display().to_string())?;
            at += piece.end - piece.start;
        }
        let like = self.survey.leaf_path(taken.leaf);
        finish(&target, at, &like).within(|| like.display().to_string())?;
        Ok(at)
    }

    fn link(&mut self, leaf: &Leaf) -> Result<()> {
        let from = self.survey.leaf_path(leaf);
        let folder = self.folders[leaf.folder].clone();
        let to = self.free(&folder, &leaf.name);
        let made = fs::read_link(&from).and_then(|target| symlink(target, to));
        made.map_err(Error::from)
            .within(|| from.display().to_string())
    }
}

/// Puts folders with about as many entries together, N each: the places of a group in the order of the walk, and groups
/// in that of their first ones.
fn alike(survey: &Survey, one_in: u64) -> Vec<Vec<usize>> {
    let mut entries = vec![0_usize; survey.folders.len()];
    let folders = survey.folders.iter().map(|folder| folder.parent);
    let leaves = survey.files.iter().chain(&survey.links);
    for parent in folders.chain(leaves.map(|leaf| leaf.folder)) {
        entries[parent] += 1;
    }
    let mut places: Vec<usize> = (0..entries.len()).collect();
    places.sort_by_key(|place| entries[*place]);
    let step = usize::try_from(one_in).unwrap_or(usize::MAX);
    let mut groups: Vec<Vec<usize>> = places.chunks(step).map(<[usize]>::to_vec).collect();
    for group in &mut groups {
        group.sort_unstable();
    }
    groups.sort_unstable();
    groups
}

/// Gives a file its size, and the mode, times and extended attributes of another.
fn finish(target: &File, bytes: u64, like: &Path) -> Result<()> {
    let like = File::open(like)?;
    target.set_len(bytes)?;
    copy_attributes(&like, target)?;
    let metadata = like.metadata()?;
    target.set_permissions(metadata.permissions())?;
    target.set_modified(metadata.modified()?)?;
    Ok(())
}

/// Copies what is data in a range of a file to `at`.
fn copy_range(source: &Path, target: &File, range: Range<u64>, at: u64) -> Result<()> {
    let source = File::open(source)?;
    let Range { start, end } = range;
    let mut buffer = vec![0; 1 << 20];
    let mut here = start;
    while here < end {
        let data = match seek(&source, SeekFrom::Data(here)) {
            Ok(data) => data.min(end),
            Err(Errno::NXIO) => end,
            // A file system without holes.
            Err(_) => here,
        };
        let hole = seek(&source, SeekFrom::Hole(data))
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
