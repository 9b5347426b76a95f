//! The way through the trees.
//!
//! # What it is
//! As rsync's: of a directory first its attributes are set and what is to be deleted is, then its files are
//! transferred in the order of their names, then the directories in it are made; then its time is set, and each of
//! these is gone through in turn. A file is written under another name (`.NAME.xxxxxx`), gets its attributes, and is
//! renamed.
//!
//! # Invariants
//! 1. Nothing is written outside of the destination, whatever the source says (see [`Tree`]).
//! 2. The walk ends: in a pool a directory is entered once, and what was made here is not transferred.
//! 3. A name leads to the old file or to the whole new one, but with `--inplace`.

use std::collections::{BTreeMap, BTreeSet};

use base::{BlockBuf, Error, ErrorKind, ObjectId, Result};
use zpl::FileType;

use super::super::copy::{self, Ahead, DEPTH_MAX, Incomplete, PIECE_BYTES, optional};
use super::super::cp::last_name;
use super::super::loss::Losses;
use super::super::mode::umask;
use super::super::show::{join, top};
use super::super::tree::{Handle, Meta, Names, Tree};
use super::super::walk::second_name;
use super::super::{Run, change};
use super::Options;
use super::changes::{Changes, Deed};
use crate::caller;

/// How many files are read ahead.
const AHEAD: usize = 128;
/// Longest name of a file, in bytes.
const NAME_MAX: usize = 255;
/// Names that are tried for a file before it is renamed.
const NAMES_TRIED: u32 = 100_000;

/// A file of the source.
pub(super) struct Item {
    pub(super) file: Handle,
    pub(super) meta: Meta,
    /// Its name in the target.
    name: Vec<u8>,
    /// What messages call it.
    pub(super) shown: String,
    /// Its path below the source, as `-v` prints it.
    path: String,
}

/// A directory that is to be gone through.
struct Dir {
    item: Item,
    /// `None` where it is not there, and nothing is to be made.
    to: Option<Handle>,
    is_new: bool,
}

/// Where a file was transferred to: the names from the root down, and its path as `-v` prints it.
type FirstName = (Vec<Vec<u8>>, String);

/// The transfer of one source.
pub(super) struct Transfer<'a> {
    pub(super) options: Options,
    pub(super) run: &'a mut Run,
    pub(super) source: &'a dyn Tree,
    is_from_pool: bool,
    pub(super) target: &'a dyn Tree,
    is_same_tree: bool,
    /// The directory that files are made in, and whether it is new.
    root: Option<&'a Handle>,
    is_root_new: bool,
    shown: &'a str,
    /// The names from the root down to the current directory.
    place: Vec<Vec<u8>>,
    /// Files with several names.
    linked: BTreeMap<(u64, u64), FirstName>,
    /// Directories of the source that were entered.
    entered: BTreeSet<(u64, u64)>,
    /// Directories that were made.
    made: BTreeSet<(u64, u64)>,
    pub(super) losses: Losses,
    /// Who makes files, and the permissions that the file creation mask lets through.
    pub(super) owner: (u64, u64),
    pub(super) allowed: u32,
    /// Nothing more can be written to the target.
    is_full: bool,
    piece: BlockBuf,
    bytes: u64,
    /// Number of the last name that was made up.
    temporary: u32,
}

impl<'a> Transfer<'a> {
    pub(super) fn new(
        options: Options,
        run: &'a mut Run,
        (source, is_from_pool, is_same_tree): (&'a dyn Tree, bool, bool),
        (target, root, is_root_new): (&'a dyn Tree, Option<&'a Handle>, bool),
        shown: &'a str,
    ) -> Transfer<'a> {
        Transfer {
            options,
            run,
            source,
            is_from_pool,
            target,
            is_same_tree,
            root,
            is_root_new,
            shown,
            place: Vec::new(),
            linked: BTreeMap::new(),
            entered: BTreeSet::new(),
            made: BTreeSet::new(),
            losses: Losses::default(),
            owner: change::owner(),
            allowed: 0o777 & !umask(),
            is_full: false,
            piece: BlockBuf::zeroed(PIECE_BYTES),
            bytes: 0,
            temporary: 0,
        }
    }

    /// Transfers `path` as `name`, or what is in it if `name` is empty.
    pub(super) fn operand(&mut self, path: &str, name: &[u8]) -> Result<()> {
        let file = match name {
            b"" => self.source.resolve(path)?,
            _ => self.source.resolve_link(path)?,
        };
        let meta = self.source.meta(&file)?;
        let is_dir = meta.file_type == FileType::Directory;
        let item = Item {
            file,
            meta,
            name: name.to_vec(),
            shown: top(self.shown),
            path: match is_dir {
                true => String::from_utf8_lossy(name).into_owned(),
                false => last_name(path).to_owned(),
            },
        };
        if !is_dir {
            let root = self.root.cloned();
            return self.file(&item, root.as_ref(), None);
        }
        if !self.options.recursive {
            self.run
                .line(&format!("skipping directory {}", name_or_dot(name)));
            return Ok(());
        }
        let root = self.root.cloned();
        let dir = match name {
            b"" => Dir {
                item,
                to: root,
                is_new: self.is_root_new,
            },
            _ => self.make_dir(item, root.as_ref())?,
        };
        self.directory(&dir)
    }

    /// Sums up what could not be kept, and returns the bytes of all files.
    pub(super) fn end(self) -> u64 {
        self.run.bar.finish_and_clear();
        self.losses.sum_up(self.run);
        self.bytes
    }

    /// Goes through a directory.
    fn directory(&mut self, dir: &Dir) -> Result<()> {
        caller::check();
        let identity = dir.item.meta.identity;
        if self.is_from_pool && !self.entered.insert(identity) {
            return Err(second_name(ObjectId(identity.1)));
        }
        if self.place.len() > DEPTH_MAX {
            let text = format!("more than {DEPTH_MAX} directories in each other");
            return Err(Error::invalid(text));
        }
        if !dir.item.name.is_empty() {
            self.place.push(dir.item.name.clone());
        }
        let outcome = self.directory_itself(dir).and_then(|()| self.below(dir));
        if !dir.item.name.is_empty() {
            self.place.pop();
        }
        outcome
    }

    /// Says what differs of a directory, and sets its attributes.
    fn directory_itself(&mut self, dir: &Dir) -> Result<()> {
        let mut changes = Changes::new();
        let Some(to) = &dir.to else {
            self.tell(&dir.item, changes, Deed::Make, "");
            return Ok(());
        };
        let old = self.target.meta(to)?;
        if !dir.is_new {
            changes = self.changes(&dir.item, &old, to)?;
        }
        let deed = if dir.is_new {
            Deed::Make
        } else {
            Deed::Attributes
        };
        self.tell(&dir.item, changes, deed, "");
        if self.options.dry_run || !changes.is_any() {
            return Ok(());
        }
        let mode = self.mode(&dir.item.meta, Some(&old).filter(|_| !dir.is_new));
        self.attributes(&dir.item, to, mode)
    }

    /// Transfers what is in a directory.
    fn below(&mut self, dir: &Dir) -> Result<()> {
        let from = self.source.enter(&dir.item.file)?;
        let to = dir
            .to
            .as_ref()
            .map(|to| self.target.enter(to))
            .transpose()?;
        let Names { names, outcome } = self.source.list(&from);
        let is_whole = outcome.is_ok();
        self.run.note(&dir.item.shown, outcome);
        if let (true, true, Some(to)) = (self.options.delete, is_whole, &to) {
            self.delete_others(to, &names, &dir.item.path)?;
        }
        let (files, dirs) = self.sorted(&from, names, dir);
        for files in files.chunks(AHEAD) {
            let ahead = match self.options.dry_run {
                true => files.iter().map(|_| None).collect(),
                false => {
                    let wanted = |item: &Item| self.is_wanted(item, to.as_ref());
                    copy::read_ahead(files.iter().map(|i| (&i.file, &i.meta, wanted(i))))
                }
            };
            for (item, ahead) in files.iter().zip(ahead) {
                caller::check();
                self.run.bar.set_message(item.shown.clone());
                let outcome = self.file(item, to.as_ref(), ahead);
                if self.ends(&item.shown, outcome) {
                    return Ok(());
                }
            }
        }
        self.dirs(dirs, to.as_ref(), dir)
    }

    /// Makes the directories in one, sets its time, and goes through them.
    fn dirs(&mut self, dirs: Vec<Item>, to: Option<&Handle>, dir: &Dir) -> Result<()> {
        let mut found = Vec::new();
        for item in dirs {
            let shown = item.shown.clone();
            let made = self.make_dir(item, to);
            self.is_full |= made.as_ref().is_err_and(copy::ends_all);
            found.extend(self.run.note(&shown, made));
        }
        if let (false, Some(to)) = (self.options.dry_run, &dir.to) {
            self.set_time(&dir.item, to)?;
        }
        for below in found {
            if self.is_full {
                return Ok(());
            }
            let shown = below.item.shown.clone();
            let outcome = self.directory(&below);
            self.ends(&shown, outcome);
        }
        Ok(())
    }

    /// Reports an error; returns whether nothing more can be written.
    fn ends(&mut self, shown: &str, outcome: Result<()>) -> bool {
        self.is_full |= outcome.as_ref().is_err_and(copy::ends_all);
        self.run.note(shown, outcome);
        self.is_full
    }

    /// The files and the directories in a directory.
    fn sorted(&mut self, from: &Handle, names: Vec<Vec<u8>>, dir: &Dir) -> (Vec<Item>, Vec<Item>) {
        let mut items = Vec::new();
        for name in names {
            let shown = join(&dir.item.shown, &name);
            let found = self.source.child(from, &name).and_then(|file| {
                let meta = self.source.meta(&file)?;
                Ok((file, meta))
            });
            let Some((file, meta)) = self.run.note(&shown, found) else {
                continue;
            };
            let path = below(&dir.item.path, &name);
            items.push(Item {
                file,
                meta,
                name,
                shown,
                path,
            });
        }
        items
            .into_iter()
            .partition(|item| item.meta.file_type != FileType::Directory)
    }

    /// The directory of an item in `to`, which is made unless it is there.
    fn make_dir(&mut self, item: Item, to: Option<&Handle>) -> Result<Dir> {
        if self.made.contains(&item.meta.identity) {
            return Err(Error::invalid("cannot copy a directory into itself"));
        }
        let Some(to) = to else {
            return Ok(Dir {
                item,
                to: None,
                is_new: true,
            });
        };
        if let Some(old) = optional(self.target.child(to, &item.name))? {
            if self.target.meta(&old)?.file_type == FileType::Directory {
                return Ok(Dir {
                    item,
                    to: Some(old),
                    is_new: false,
                });
            }
            if !self.options.dry_run {
                self.target.remove(to, &item.name, false)?;
            }
        }
        if self.options.dry_run {
            return Ok(Dir {
                item,
                to: None,
                is_new: true,
            });
        }
        let new = self
            .target
            .make(to, &item.name, &self.first(&item.meta), b"")?;
        if self.is_same_tree {
            self.made.insert(self.target.meta(&new)?.identity);
        }
        Ok(Dir {
            item,
            to: Some(new),
            is_new: true,
        })
    }

    /// Whether a file's contents will be needed, as far as that is known before.
    fn is_wanted(&self, item: &Item, to: Option<&Handle>) -> bool {
        let old = to.and_then(|to| self.target.child(to, &item.name).ok());
        let old = old.and_then(|old| self.target.meta(&old).ok());
        old.is_none_or(|old| !is_same(&item.meta, &old))
    }

    /// Transfers what is not a directory.
    fn file(&mut self, item: &Item, to: Option<&Handle>, ahead: Ahead) -> Result<()> {
        self.bytes += item.meta.size;
        let old = match to {
            Some(to) => optional(self.target.child(to, &item.name))?,
            None => None,
        };
        let old = match old {
            Some(file) => {
                let meta = self.target.meta(&file)?;
                if self.is_same_tree && meta.identity == item.meta.identity {
                    return Ok(());
                }
                Some((file, meta))
            }
            None => None,
        };
        if self.options.hard_links && item.meta.links > 1 && self.is_link(item, to, old.as_ref())? {
            return Ok(());
        }
        let old = old.as_ref();
        match item.meta.file_type {
            FileType::Regular => self.regular(item, to, old, ahead),
            FileType::Symlink if self.options.links => self.other(item, to, old),
            FileType::Symlink => self.skip(item),
            _ if self.options.devices => self.other(item, to, old),
            _ => self.skip(item),
        }
    }

    fn skip(&mut self, item: &Item) -> Result<()> {
        self.run
            .line(&format!("skipping non-regular file \"{}\"", item.path));
        Ok(())
    }

    /// Makes a further name of a file that has been transferred; returns whether it was.
    fn is_link(
        &mut self,
        item: &Item,
        to: Option<&Handle>,
        old: Option<&(Handle, Meta)>,
    ) -> Result<bool> {
        let Some((place, path)) = self.linked.get(&item.meta.identity).cloned() else {
            let mut place = self.place.clone();
            place.push(item.name.clone());
            (self.linked).insert(item.meta.identity, (place, item.path.clone()));
            return Ok(false);
        };
        let changes = match old {
            Some((file, meta)) => self.changes(item, meta, file)?,
            None => Changes::new(),
        };
        let first = self.root.map(|root| self.at_place(root, &place));
        let identity = |file: &Handle| self.target.meta(file).map(|meta| meta.identity);
        let is_same = match (old, &first) {
            (Some((_, meta)), Some(Ok(first))) => identity(first)? == meta.identity,
            _ => false,
        };
        if is_same {
            if changes.is_any() {
                self.tell(item, changes, Deed::Link, "");
            }
            return Ok(true);
        }
        self.tell(item, changes, Deed::Link, &format!(" => {path}"));
        let (false, Some(to), Some(first)) = (self.options.dry_run, to, first) else {
            return Ok(true);
        };
        let first = first?;
        self.clear_way(item, to, old)?;
        let target = self.target;
        let (name, ()) = self.under_another_name(item, |name| target.link(&first, to, name))?;
        target.rename(to, &name, &item.name)?;
        Ok(true)
    }

    /// The file at a place below the root.
    fn at_place(&self, root: &Handle, place: &[Vec<u8>]) -> Result<Handle> {
        let mut at = root.clone();
        for (i, name) in place.iter().enumerate() {
            if i > 0 {
                at = self.target.enter(&at)?;
            }
            at = self.target.child(&at, name)?;
        }
        Ok(at)
    }

    fn regular(
        &mut self,
        item: &Item,
        to: Option<&Handle>,
        old: Option<&(Handle, Meta)>,
        ahead: Ahead,
    ) -> Result<()> {
        let is_newer = |(_, meta): &(Handle, Meta)| meta.mtime > item.meta.mtime;
        if self.options.update && old.is_some_and(is_newer) {
            self.run.bar.inc(item.meta.size);
            return Ok(());
        }
        let is_there = old.is_some_and(|(_, meta)| is_same(&item.meta, meta));
        let mut changes = Changes::new();
        if let Some((file, meta)) = old.filter(|(_, meta)| meta.file_type == FileType::Regular) {
            changes = self.changes(item, meta, file)?;
            changes.now = !self.options.times && !is_there;
        }
        let Some((file, meta)) = old.filter(|_| is_there) else {
            self.tell(item, changes, Deed::Transfer, "");
            return match to.filter(|_| !self.options.dry_run) {
                Some(to) => self.contents(item, to, old, ahead),
                None => Ok(()),
            };
        };
        self.run.bar.inc(item.meta.size);
        self.tell(item, changes, Deed::Attributes, "");
        if self.options.dry_run || !changes.is_any() {
            return Ok(());
        }
        let mode = self.mode(&item.meta, Some(meta));
        self.attributes(item, file, mode)
    }

    /// Writes a file.
    fn contents(
        &mut self,
        item: &Item,
        to: &Handle,
        old: Option<&(Handle, Meta)>,
        ahead: Ahead,
    ) -> Result<()> {
        let mode = self.mode(&item.meta, old.map(|(_, meta)| meta));
        let is_regular = |(_, meta): &&(Handle, Meta)| meta.file_type == FileType::Regular;
        if let (true, Some((file, _))) = (self.options.inplace, old.filter(is_regular)) {
            self.write(item, file, ahead)?;
            return self.attributes(item, file, mode);
        }
        self.clear_way(item, to, old)?;
        let (target, first) = (self.target, self.first(&item.meta));
        if self.options.inplace {
            let new = target.make(to, &item.name, &first, b"")?;
            self.write(item, &new, ahead)?;
            return self.attributes(item, &new, mode);
        }
        let make = |name: &[u8]| target.make(to, name, &first, b"");
        let (name, new) = self.under_another_name(item, make)?;
        let done = (self.write(item, &new, ahead))
            .and_then(|()| self.attributes(item, &new, mode))
            .and_then(|()| target.rename(to, &name, &item.name));
        if done.is_err() {
            // The first error is the one to tell.
            let _ = target.remove(to, &name, false);
        }
        done
    }

    fn write(&mut self, item: &Item, new: &Handle, ahead: Ahead) -> Result<()> {
        let mut to = self.target.open(new, true)?;
        if let Some(bytes) = ahead {
            let bytes = bytes?;
            if !bytes.is_empty() {
                to.write_at(0, &bytes)?;
            }
            to.set_size(bytes.len() as u64)?;
            self.run.bar.inc(bytes.len() as u64);
            return Ok(());
        }
        if self.options.inplace {
            // Where the source has holes, nothing is written.
            to.set_size(0)?;
        }
        let mut from = self.source.open(&item.file, false)?;
        let bar = &self.run.bar;
        let copied = copy::content(
            (&mut *from, &mut *to),
            &item.meta,
            &mut self.piece,
            |bytes| bar.inc(bytes),
        );
        copied.map_err(|incomplete| match incomplete {
            Incomplete::Write(error) => error,
            Incomplete::Read(error, _) => error.error,
        })
    }

    /// Makes a symbolic link, a device, a pipe or a socket.
    fn other(
        &mut self,
        item: &Item,
        to: Option<&Handle>,
        old: Option<&(Handle, Meta)>,
    ) -> Result<()> {
        let is_link = item.meta.file_type == FileType::Symlink;
        let value = match is_link {
            true => self.source.readlink(&item.file)?,
            false => Vec::new(),
        };
        let arrow = match is_link {
            true => format!(" -> {}", String::from_utf8_lossy(&value)),
            false => String::new(),
        };
        let mut changes = Changes::new();
        if let Some((file, meta)) = old.filter(|(_, meta)| meta.file_type == item.meta.file_type) {
            changes = self.changes(item, meta, file)?;
            changes.value = match is_link {
                true => self.target.readlink(file)? != value,
                false => meta.rdev != item.meta.rdev,
            };
            if !changes.value {
                self.tell(item, changes, Deed::Attributes, &arrow);
                if self.options.dry_run || !changes.is_any() {
                    return Ok(());
                }
                let mode = self.mode(&item.meta, Some(meta));
                return self.attributes(item, file, mode);
            }
        }
        self.tell(item, changes, Deed::Make, &arrow);
        let Some(to) = to.filter(|_| !self.options.dry_run) else {
            return Ok(());
        };
        self.clear_way(item, to, old)?;
        let (target, first) = (self.target, self.first(&item.meta));
        let make = |name: &[u8]| target.make(to, name, &first, &value);
        let (name, new) = self.under_another_name(item, make)?;
        let mode = self.mode(&item.meta, None);
        let done =
            (self.attributes(item, &new, mode)).and_then(|()| target.rename(to, &name, &item.name));
        if done.is_err() {
            // The first error is the one to tell.
            let _ = target.remove(to, &name, false);
        }
        done
    }

    /// Removes what a file could not be renamed over: a directory, with what is in it only where that may be deleted.
    fn clear_way(&mut self, item: &Item, to: &Handle, old: Option<&(Handle, Meta)>) -> Result<()> {
        let Some((old, _)) = old.filter(|(_, meta)| meta.file_type == FileType::Directory) else {
            return Ok(());
        };
        if self.options.delete {
            let inner = self.target.enter(old)?;
            self.delete_others(&inner, &[], &item.path)?;
        }
        self.target.remove(to, &item.name, true)
    }

    /// Makes something under a name that nothing has yet.
    fn under_another_name<T>(
        &mut self,
        item: &Item,
        mut make: impl FnMut(&[u8]) -> Result<T>,
    ) -> Result<(Vec<u8>, T)> {
        for _ in 0..NAMES_TRIED {
            self.temporary += 1;
            let end = format!(".{:06x}", self.temporary);
            let stem = &item.name[..item.name.len().min(NAME_MAX - 1 - end.len())];
            let name = [b".", stem, end.as_bytes()].concat();
            match make(&name) {
                Err(error) if error.kind() == ErrorKind::Exists => {}
                made => return made.map(|made| (name, made)),
            }
        }
        Err(Error::new(
            ErrorKind::Exists,
            "no name is free to write it under",
        ))
    }

    fn changes(&self, item: &Item, old: &Meta, file: &Handle) -> Result<Changes> {
        let changes = Changes::between(self.options, &item.meta, old);
        if !self.options.acls && !self.options.xattrs {
            return Ok(changes);
        }
        let pairs = self.xattr_changes(item, file)?;
        Ok(Changes {
            acl: pairs.acl,
            xattrs: pairs.xattrs,
            ..changes
        })
    }

    /// Says what is done to a file, if that was asked for.
    fn tell(&mut self, item: &Item, changes: Changes, deed: Deed, arrow: &str) {
        let is_dir = item.meta.file_type == FileType::Directory;
        let is_said = match deed {
            Deed::Attributes => changes.is_any() && (is_dir || self.options.itemize),
            _ => true,
        };
        if !is_said || !(self.options.verbose || self.options.itemize) {
            return;
        }
        let path = match (is_dir, item.path.as_str()) {
            (true, "") => "./".to_owned(),
            (true, path) => format!("{path}/"),
            (false, path) => path.to_owned(),
        };
        let text = match self.options.itemize {
            true => {
                let letters = changes.letters(deed, item.meta.file_type);
                format!("{letters} {path}{arrow}")
            }
            false => format!("{path}{arrow}"),
        };
        self.run.line(&text);
    }

    /// Removes what a directory of the target has and the source has not.
    fn delete_others(&mut self, dir: &Handle, names: &[Vec<u8>], path: &str) -> Result<()> {
        let there = self.target.list(dir);
        self.run.note(path, there.outcome);
        for name in there.names.iter().rev() {
            if names.binary_search(name).is_err() {
                let path = below(path, name);
                let outcome = self.delete(dir, name, &path);
                self.run.note(&path, outcome);
            }
        }
        Ok(())
    }

    /// Removes a file, or a directory with all that is in it.
    fn delete(&mut self, dir: &Handle, name: &[u8], path: &str) -> Result<()> {
        caller::check();
        let file = self.target.child(dir, name)?;
        let is_dir = self.target.meta(&file)?.file_type == FileType::Directory;
        if is_dir {
            let inner = self.target.enter(&file)?;
            self.delete_others(&inner, &[], path)?;
        }
        if self.options.verbose || self.options.itemize {
            let lead = if self.options.itemize {
                "*deleting   "
            } else {
                "deleting "
            };
            let slash = if is_dir { "/" } else { "" };
            self.run.line(&format!("{lead}{path}{slash}"));
        }
        match self.options.dry_run {
            true => Ok(()),
            false => self.target.remove(dir, name, is_dir),
        }
    }
}

/// Whether a file is left as it is: size and time are its source's.
fn is_same(meta: &Meta, old: &Meta) -> bool {
    old.file_type == FileType::Regular && meta.size == old.size && meta.mtime == old.mtime
}

fn name_or_dot(name: &[u8]) -> String {
    match name {
        b"" => ".".to_owned(),
        name => String::from_utf8_lossy(name).into_owned(),
    }
}

/// The path of a name below another one, which may be nothing.
fn below(path: &str, name: &[u8]) -> String {
    match path {
        "" => String::from_utf8_lossy(name).into_owned(),
        path => join(path, name),
    }
}
