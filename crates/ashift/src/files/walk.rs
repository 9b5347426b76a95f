//! Walking over a tree of files in a dataset.
//!
//! # What it is
//! Parents first, names in order, with an explicit stack: a tree may be of any depth. What cannot be read
//! is reported, and the walk goes on with the rest.
//!
//! # Invariants
//! 1. A directory is entered once. In a damaged pool a directory may have two names, or contain itself:
//!    the second time is corruption, reported, and not entered. So every walk ends.
//! 2. Invalid names (`..`, with a slash, …) are left out by [`zpl`], and reported.

use std::collections::BTreeSet;

use base::{Error, ErrorKind, ObjectId, Result};
use zpl::mount::Mount;
use zpl::{Attr, DirEntry, FIRST_ENTRY};

use super::Run;
use super::show::join;
use crate::caller;

/// Names of a directory in memory at a time, if their order does not matter.
const NAMES_AT_ONCE: usize = 1000;

/// The file that the walk has reached.
pub(super) struct Visit<'a> {
    pub(super) path: &'a str,
    pub(super) attr: &'a Attr,
    /// Levels below the top.
    pub(super) depth: usize,
    /// Its parent directory and its name there; `None` for the top.
    pub(super) place: Option<(ObjectId, &'a [u8])>,
}

/// The callbacks of a walk.
pub(super) trait Visitor {
    /// Whether names come in order; otherwise they come unsorted, in bounded memory.
    const SORTED: bool = true;

    /// Called for each file, and for a directory before its contents. Returns whether to enter it.
    fn enter(&mut self, visit: &Visit<'_>, run: &mut Run) -> Result<bool>;

    /// Called for each directory entered, after its contents.
    fn leave(&mut self, _visit: &Visit<'_>, _run: &mut Run) -> Result<()> {
        Ok(())
    }
}

/// A directory that the walk is in.
struct Level {
    path: String,
    attr: Attr,
    place: Option<(ObjectId, Vec<u8>)>,
    entries: std::vec::IntoIter<DirEntry>,
    /// Where to continue reading; `None` when all is read.
    next_offset: Option<u64>,
}

struct Walk<'a> {
    fs: &'a Mount,
    run: &'a mut Run,
    entered: BTreeSet<ObjectId>,
    levels: Vec<Level>,
}

/// Visits a file and everything below it.
pub(super) fn walk<V: Visitor>(
    fs: &Mount,
    top: ObjectId,
    path: String,
    run: &mut Run,
    visitor: &mut V,
) {
    let mut walk = Walk {
        fs,
        run,
        entered: BTreeSet::new(),
        levels: Vec::new(),
    };
    walk.visit(top, path, None, visitor);
    while let Some((id, path, place)) = walk.next(visitor) {
        caller::check();
        walk.visit(id, path, Some(place), visitor);
    }
}

impl Walk<'_> {
    fn visit<V: Visitor>(
        &mut self,
        id: ObjectId,
        path: String,
        place: Option<(ObjectId, Vec<u8>)>,
        visitor: &mut V,
    ) {
        let Some(attr) = self.run.note(&path, self.fs.getattr(id)) else {
            return;
        };
        if attr.is_directory() && !self.entered.insert(id) {
            self.run.complain(&path, &second_name(id));
            return;
        }
        let visit = Visit {
            path: &path,
            attr: &attr,
            depth: self.levels.len(),
            place: place.as_ref().map(|(dir, name)| (*dir, &name[..])),
        };
        if !self.run.bar.is_hidden() {
            self.run.bar.set_message(path.clone());
        }
        let outcome = visitor.enter(&visit, self.run);
        if self.run.note(&path, outcome) == Some(true) && attr.is_directory() {
            self.levels.push(Level {
                path,
                attr,
                place,
                entries: Vec::new().into_iter(),
                next_offset: Some(FIRST_ENTRY),
            });
        }
    }

    /// The next file; leaves the directories that are finished.
    fn next<V: Visitor>(
        &mut self,
        visitor: &mut V,
    ) -> Option<(ObjectId, String, (ObjectId, Vec<u8>))> {
        loop {
            let level = self.levels.last_mut()?;
            if let Some(entry) = level.entries.next() {
                let path = join(&level.path, &entry.name);
                return Some((entry.id, path, (level.attr.id, entry.name)));
            }
            if let Some(offset) = level.next_offset {
                let most = if V::SORTED { usize::MAX } else { NAMES_AT_ONCE };
                let (mut entries, outcome) = read_directory(self.fs, level.attr.id, offset, most);
                if V::SORTED {
                    entries.sort_by(|a, b| a.name.cmp(&b.name));
                }
                let is_cut = entries.len() == most && outcome.is_ok();
                level.next_offset = entries.last().filter(|_| is_cut).map(|e| e.next_offset);
                level.entries = entries.into_iter();
                self.run.note(&level.path, outcome);
                continue;
            }
            let level = self.levels.pop()?;
            let visit = Visit {
                path: &level.path,
                attr: &level.attr,
                depth: self.levels.len(),
                place: level.place.as_ref().map(|(dir, name)| (*dir, &name[..])),
            };
            let outcome = visitor.leave(&visit, self.run);
            self.run.note(&level.path, outcome);
        }
    }
}

/// Up to `most` entries of a directory from `offset` on, and the error for others.
pub(super) fn read_directory(
    fs: &Mount,
    dir: ObjectId,
    offset: u64,
    most: usize,
) -> (Vec<DirEntry>, Result<()>) {
    let mut entries = Vec::new();
    let outcome = fs.readdir(dir, offset, |entry| {
        entries.push(entry.clone());
        entries.len() < most
    });
    (entries, outcome)
}

/// The error for a directory that was entered before.
pub(super) fn second_name(id: ObjectId) -> Error {
    let text = format!("directory {id} has two names or is in itself; not entered again");
    Error::new(ErrorKind::Corrupt, text)
}
