//! Walking over a tree of files in a dataset.
//!
//! # What it is
//! Parents first, names in order, with a stack of its own: a tree may be as deep as it likes. What
//! cannot be read is complained about, and the walk goes on with the rest.
//!
//! # Invariants
//! 1. A directory is entered once. On a damaged pool a directory may have two names, or be in
//!    itself: the second time is corruption, complained about, and not entered. So every walk ends.
//! 2. Names that cannot be (`..`, with a slash, …) are left out by [`zpl`], and complained about.

use std::collections::BTreeSet;

use base::{Error, ErrorKind, ObjectId, Result};
use zpl::mount::Mount;
use zpl::{Attr, DirEntry, FIRST_ENTRY};

use super::Run;
use super::show::join;

/// How many names of a directory are in memory at a time, when their order is of no interest.
const NAMES_AT_ONCE: usize = 1000;

/// A file that the walk is at.
pub(super) struct Visit<'a> {
    pub(super) path: &'a str,
    pub(super) attr: &'a Attr,
    /// How far below the top.
    pub(super) depth: usize,
    /// The directory that it is in and its name there; nothing of the top.
    pub(super) place: Option<(ObjectId, &'a [u8])>,
}

/// What a walk calls for each file.
pub(super) trait Visitor {
    /// Names in order; otherwise as they come, in a bounded amount of memory.
    const SORTED: bool = true;

    /// A file; a directory before what is in it. Whether to go into it.
    fn enter(&mut self, visit: &Visit<'_>, run: &mut Run) -> Result<bool>;

    /// A directory that was entered, after what is in it.
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
    /// Where to read on; nothing if all is read.
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

    /// The next file; leaves the directories that end before it.
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

/// Up to `most` entries of a directory from `offset` on, and what was wrong with others.
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

/// A directory that was met before.
pub(super) fn second_name(id: ObjectId) -> Error {
    let text = format!("directory {id} has two names or is in itself; not entered again");
    Error::new(ErrorKind::Corrupt, text)
}
