//! Copying a tree of files into another.
//!
//! # What it is
//! A walk over the source with an open directory on each side. Small files of one directory are
//! read ahead in parallel while the ones before them are written; large ones go through in pieces.
//! Holes stay holes. A file with several names is written once and linked.
//!
//! # Invariants
//! 1. Nothing is written outside of the destination, whatever the source says (see [`Tree`]).
//! 2. The walk ends: in a pool a directory is entered once, and what this copy made is not copied.
//! 3. An attribute that the target cannot keep ends neither the copy nor the copying of the file's other
//!    attributes.

use std::collections::{BTreeMap, BTreeSet};

use base::{BlockBuf, Error, ErrorKind, Result};
use rustix::process::{Resource, getrlimit, setrlimit};
use zpl::{FileType, Time};

use super::attributes::{self, ACLS, Attributes};
use super::change::owner;
use super::host_tree::{Stream, read_small};
use super::loss::Losses;
use super::mode::umask;
use super::salvage::{self, Left, Salvage};
use super::show::{join, top};
use super::tree::{Content, Handle, Meta, Names, Tree};
use super::walk::second_name;
use super::{ReadError, Run, is_of_owner};
use crate::caller::{self, caller};

/// Bytes read and written at a time.
pub(super) const PIECE_BYTES: usize = 4 << 20;
/// Files up to this size are read ahead.
const SMALL_BYTES: u64 = 256 << 10;
/// Number of files read ahead.
const AHEAD: usize = 128;
/// Directory nesting, at most: about half of what a path of 4,096 bytes with one-byte names can reach.
pub(super) const DEPTH_MAX: usize = 1000;
/// Which attributes of the source the copy gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Preserve {
    pub(super) mode: bool,
    pub(super) owner: bool,
    pub(super) times: bool,
    pub(super) xattrs: bool,
    pub(super) links: bool,
}

/// How to copy.
pub(super) struct Options {
    pub(super) recursive: bool,
    pub(super) links_as_links: bool,
    pub(super) force: bool,
    pub(super) no_clobber: bool,
    pub(super) verbose: bool,
    pub(super) devices: bool,
    pub(super) reflink: Reflink,
    pub(super) preserve: Preserve,
}

/// `--reflink`: whether copies share blocks with their source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reflink {
    Never,
    /// Where they can.
    Auto,
    /// Or it is an error.
    Always,
}

/// The copy of one operand.
pub(super) struct Copy<'a> {
    options: &'a Options,
    run: &'a mut Run,
    source: &'a dyn Tree,
    is_from_pool: bool,
    target: &'a dyn Tree,
    is_same_tree: bool,
    /// The directory that is copied into, and its name in messages.
    root: (&'a Handle, &'a str),
    /// Whether the user gave a name for the copy.
    is_named: bool,
    /// The names from `root` down to the current file.
    place: Vec<Vec<u8>>,
    /// Places in the target of files with several names.
    linked: BTreeMap<(u64, u64), Vec<Vec<u8>>>,
    /// Source directories entered so far.
    entered: BTreeSet<(u64, u64)>,
    /// Directories that this copy made.
    made: BTreeSet<(u64, u64)>,
    losses: Losses,
    /// Nothing more can be written to the target.
    is_full: bool,
    piece: BlockBuf,
    whose: Whose,
    /// What is kept of a damaged pool's files, if it is one.
    pub(super) salvage: Option<&'a mut Salvage>,
}

/// What new files get from the process.
struct Whose {
    owner: (u64, u64),
    /// The permissions that its file creation mask lets through.
    allowed: u32,
}

/// A name in the source, and its name in the target.
#[derive(Clone, Copy)]
struct Item<'i> {
    file: &'i Handle,
    meta: &'i Meta,
    dir: &'i Handle,
    name: &'i [u8],
    shown: &'i str,
}

/// A small file, read ahead.
pub(super) type Ahead = Option<Result<Vec<u8>>>;

/// Why the contents of a file were not copied.
pub(super) enum Incomplete {
    /// The source cannot be read.
    Read(ReadError, u64),
    /// The target cannot be written to.
    Write(Error),
}

impl Incomplete {
    /// Reports what happened to the contents of `source`, and how much of them is in `target`.
    pub(super) fn complain(&self, run: &mut Run, source: &str, target: &str) {
        match self {
            Incomplete::Read(error, size) => {
                run.say(&format!("{source}: {}", error.words(run.verbose)));
                let bytes = error.offset;
                run.say(&format!("{target}: incomplete, {bytes} of {size} bytes"));
            }
            Incomplete::Write(error) => run.complain(target, error),
        }
    }
}

/// `None` if it does not exist.
pub(super) fn optional<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Raises this process's limit of open files as far as possible.
pub(super) fn allow_deep_trees() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If it fails, only very deep directories are refused, one by one.
    let _ = setrlimit(Resource::Nofile, limit);
}

impl<'a> Copy<'a> {
    pub(super) fn new(
        options: &'a Options,
        run: &'a mut Run,
        (source, is_from_pool): (&'a dyn Tree, bool),
        (target, is_same_tree): (&'a dyn Tree, bool),
        (dir, shown, is_named): (&'a Handle, &'a str, bool),
    ) -> Copy<'a> {
        Copy {
            options,
            run,
            source,
            is_from_pool,
            target,
            is_same_tree,
            root: (dir, shown),
            is_named,
            place: Vec::new(),
            linked: BTreeMap::new(),
            entered: BTreeSet::new(),
            made: BTreeSet::new(),
            losses: Losses::default(),
            is_full: false,
            piece: BlockBuf::zeroed(PIECE_BYTES),
            whose: Whose {
                owner: owner(),
                allowed: 0o777 & !umask(),
            },
            salvage: None,
        }
    }

    /// Copies `path` as `name`, or the contents of `path` if `name` is empty.
    pub(super) fn operand(&mut self, path: &str, shown: &str, name: &[u8]) {
        let outcome = self.try_operand(path, shown, name);
        self.run.bar.finish_and_clear();
        self.note(shown, outcome, Left::Gone);
        self.losses.sum_up(self.run);
    }

    /// Copies a file, wherever it is in the source, as `name` into a directory of the target.
    pub(super) fn single(&mut self, file: &Handle, dir: &Handle, shown: &str, name: &[u8]) {
        let label = join(shown, name);
        let meta = self.source.meta(file);
        let Some(meta) = self.note(&label, meta, Left::Gone) else {
            return;
        };
        let item = Item {
            file,
            meta: &meta,
            dir,
            name,
            shown: &label,
        };
        let outcome = self.node(item, None);
        self.note(&label, outcome, Left::Gone);
    }

    /// Notes that nothing can be saved of a file.
    pub(super) fn lost(&mut self, shown: &str, error: Error) {
        self.note(shown, Err::<(), _>(error), Left::Gone);
    }

    fn try_operand(&mut self, path: &str, shown: &str, name: &[u8]) -> Result<()> {
        let file = if self.options.links_as_links {
            self.source.resolve_link(path)?
        } else {
            self.source.resolve(path)?
        };
        let meta = self.source.meta(&file)?;
        let dir = self.root.0;
        if meta.file_type == FileType::Directory {
            if !self.options.recursive {
                let text = "-r not specified; omitting directory";
                return Err(Error::invalid(text));
            }
            if name.is_empty() {
                // The root of a dataset, or `dir/.`: what is in it goes straight into `dir`.
                self.entered.insert(meta.identity);
                return self.entries(&file, dir, &top(shown));
            }
        }
        let item = Item {
            file: &file,
            meta: &meta,
            dir,
            name,
            shown: &top(shown),
        };
        self.node(item, None)
    }

    /// The current place, with the target's name as the user knows it.
    fn target_shown(&self) -> String {
        let below = if self.is_named { 1 } else { 0 };
        let names = self.place.iter().skip(below);
        names.fold(top(self.root.1), |path, name| join(&path, name))
    }

    /// Copies one name with everything below it.
    fn node(&mut self, item: Item<'_>, ahead: Ahead) -> Result<()> {
        caller::check();
        if self.options.verbose {
            self.run.line(item.shown);
        }
        self.run.bar.set_message(item.shown.to_owned());
        self.place.push(item.name.to_vec());
        let outcome = match item.meta.file_type {
            FileType::Directory => self.directory(item),
            _ => self.file(item, ahead),
        };
        self.place.pop();
        outcome
    }

    fn file(&mut self, item: Item<'_>, ahead: Ahead) -> Result<()> {
        if self.options.no_clobber && optional(self.target.child(item.dir, item.name))?.is_some() {
            return Ok(());
        }
        let is_linked = self.options.preserve.links && item.meta.links > 1;
        if self.is_saved(item) {
            if is_linked {
                self.linked.insert(item.meta.identity, self.place.clone());
            }
            return Ok(());
        }
        if is_linked && let Some(place) = self.linked.get(&item.meta.identity).cloned() {
            self.make_room(item)?;
            let first = self.at_place(&place)?;
            self.target.link(&first, item.dir, item.name)?;
            return self.saved(item);
        }
        let (new, is_new) = match item.meta.file_type {
            FileType::Regular => match self.regular(item, ahead)? {
                Some(new) => new,
                None => return Ok(()),
            },
            FileType::Socket => {
                eprintln!("ashift cp: {}: skipping a socket", item.shown);
                return Ok(());
            }
            FileType::BlockDevice | FileType::CharDevice if !self.options.devices => {
                return Err(Error::invalid("skipping a device, which only -a makes"));
            }
            FileType::Symlink => {
                self.make_room(item)?;
                let target = self.source.readlink(item.file)?;
                (self.make(item, &target)?, true)
            }
            _ => {
                self.make_room(item)?;
                (self.make(item, b"")?, true)
            }
        };
        self.attributes(item, &new, is_new);
        if is_linked {
            self.linked.insert(item.meta.identity, self.place.clone());
        }
        self.saved(item)
    }

    /// Whether nothing more can be saved of a file.
    fn is_saved(&mut self, item: Item<'_>) -> bool {
        let Some(salvage) = &mut self.salvage else {
            return false;
        };
        salvage.reached.insert(item.meta.identity.1);
        salvage.lost.clear();
        salvage.bare = None;
        salvage.is_done(item.shown)
    }

    /// Notes that a file is there, but for what is lost of it.
    fn saved(&mut self, item: Item<'_>) -> Result<()> {
        let Some(salvage) = &mut self.salvage else {
            return Ok(());
        };
        let left = salvage.left(item.meta.size);
        self.left(item.shown, &left)
    }

    fn left(&mut self, shown: &str, left: &Left) -> Result<()> {
        let Some(salvage) = &mut self.salvage else {
            return Ok(());
        };
        salvage.note(shown, left)?;
        for line in salvage.take_said() {
            self.run.line(&line);
        }
        Ok(())
    }

    /// Reports an error with a file, or notes that it is lost.
    fn note<T>(&mut self, shown: &str, outcome: Result<T>, left: fn(String) -> Left) -> Option<T> {
        match outcome {
            Err(error) if self.salvage.is_some() && salvage::is_damage(&error) => {
                let noted = self.left(shown, &left(error.to_string()));
                self.run.note(shown, noted);
                None
            }
            outcome => self.run.note(shown, outcome),
        }
    }

    /// The file at a place below the destination. It is looked up again, since the directories of all
    /// linked files cannot be kept open.
    fn at_place(&self, place: &[Vec<u8>]) -> Result<Handle> {
        let mut at = self.root.0.clone();
        for (i, name) in place.iter().enumerate() {
            if i > 0 {
                at = self.target.enter(&at)?;
            }
            at = self.target.child(&at, name)?;
        }
        Ok(at)
    }

    /// The mode of a new file before its contents are there: no permission that only its final owner should have.
    fn first_mode(&self, meta: &Meta) -> u32 {
        let is_mine = !self.options.preserve.owner;
        let mask = if is_mine { 0o777 } else { 0o700 };
        let mine = match meta.file_type {
            FileType::Directory => 0o700,
            FileType::Regular => 0o600,
            _ => 0,
        };
        meta.mode & mask & self.whose.allowed | mine
    }

    /// Creates the file of an item.
    fn make(&self, item: Item<'_>, target: &[u8]) -> Result<Handle> {
        let meta = item.meta;
        let (uid, gid) = match self.options.preserve.owner {
            true => (meta.uid, meta.gid),
            false => self.whose.owner,
        };
        let new = Meta {
            mode: self.first_mode(meta),
            uid,
            gid,
            ..meta.clone()
        };
        self.target.make(item.dir, item.name, &new, target)
    }

    /// Removes what is in the way of a new file.
    fn make_room(&self, item: Item<'_>) -> Result<()> {
        let Some(old) = optional(self.target.child(item.dir, item.name))? else {
            return Ok(());
        };
        let meta = self.target.meta(&old)?;
        self.check_other(item, &meta)?;
        if meta.file_type == FileType::Directory {
            return Err(Error::new(
                ErrorKind::IsDirectory,
                "a directory is in the way",
            ));
        }
        self.target.remove(item.dir, item.name, false)
    }

    fn check_other(&self, item: Item<'_>, old: &Meta) -> Result<()> {
        if self.is_same_tree && item.meta.identity == old.identity {
            return Err(Error::invalid("source and destination are the same file"));
        }
        Ok(())
    }

    fn directory(&mut self, item: Item<'_>) -> Result<()> {
        let identity = item.meta.identity;
        if let Some(salvage) = &mut self.salvage {
            salvage.reached.insert(identity.1);
        }
        if self.is_from_pool && !self.entered.insert(identity) {
            return Err(second_name(base::ObjectId(identity.1)));
        }
        if self.made.contains(&identity) {
            return Err(Error::invalid("cannot copy a directory into itself"));
        }
        if self.place.len() > DEPTH_MAX {
            let text = format!("more than {DEPTH_MAX} directories in each other");
            return Err(Error::invalid(text));
        }
        let (new, is_new) = match optional(self.target.child(item.dir, item.name))? {
            Some(old) if self.target.meta(&old)?.file_type == FileType::Directory => (old, false),
            Some(_) => {
                let text = "a file is where the directory belongs";
                return Err(Error::invalid(text));
            }
            None => (self.make(item, b"")?, true),
        };
        if is_new && self.is_same_tree {
            self.made.insert(self.target.meta(&new)?.identity);
        }
        let outcome = self.entries(item.file, &new, item.shown);
        self.attributes(item, &new, is_new);
        outcome
    }

    /// Copies what is in a directory.
    fn entries(&mut self, from: &Handle, to: &Handle, shown: &str) -> Result<()> {
        let (from, to) = (self.source.enter(from)?, self.target.enter(to)?);
        let Names { names, outcome } = self.source.list(&from);
        self.note(shown, outcome, Left::Names);
        for names in names.chunks(AHEAD) {
            let mut files = Vec::with_capacity(names.len());
            for name in names {
                let label = join(shown, name);
                let found = self.source.child(&from, name).and_then(|file| {
                    let meta = self.source.meta(&file)?;
                    Ok((file, meta))
                });
                if let Some((file, meta)) = self.note(&label, found, Left::Gone) {
                    files.push((name, label, file, meta));
                }
            }
            let ahead = read_ahead(files.iter().map(|(_, _, file, meta)| (file, meta, true)));
            for ((name, label, file, meta), ahead) in files.into_iter().zip(ahead) {
                let item = Item {
                    file: &file,
                    meta: &meta,
                    dir: &to,
                    name,
                    shown: &label,
                };
                let outcome = self.node(item, ahead);
                self.is_full |= outcome.as_ref().is_err_and(ends_all);
                self.note(&label, outcome, Left::Gone);
                if self.is_full {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Copies a regular file, like `open_new`; returns `None` if its contents are incomplete.
    fn regular(&mut self, item: Item<'_>, ahead: Ahead) -> Result<Option<(Handle, bool)>> {
        let (new, is_new) = self.open_new(item)?;
        if self.clone_contents(item, &new)? {
            return Ok(Some((new, is_new)));
        }
        if let (true, None | Some(Err(_))) = (self.salvage.is_some(), &ahead) {
            self.salvage_contents(item, &new)?;
            return Ok(Some((new, is_new)));
        }
        let outcome = match ahead {
            Some(bytes) => {
                let bytes = bytes?;
                if !bytes.is_empty() {
                    self.target.open(&new, true)?.write_at(0, &bytes)?;
                }
                self.run.bar.inc(bytes.len() as u64);
                Ok(())
            }
            None => {
                let mut from = self.source.open(item.file, false)?;
                let mut to = self.target.open(&new, true)?;
                let (piece, bar) = (&mut self.piece, &self.run.bar);
                content((&mut *from, &mut *to), item.meta, piece, |n| bar.inc(n))
            }
        };
        match outcome {
            Ok(()) => Ok(Some((new, is_new))),
            Err(Incomplete::Write(error)) => Err(error),
            Err(error) => {
                let target = self.target_shown();
                error.complain(self.run, item.shown, &target);
                Ok(None)
            }
        }
    }

    fn salvage_contents(&mut self, item: Item<'_>, new: &Handle) -> Result<()> {
        let mut from = self.source.open(item.file, false)?;
        let mut to = self.target.open(new, true)?;
        let (piece, bar) = (&mut self.piece, &self.run.bar);
        let shape = (item.meta.size, item.meta.blksz);
        let lost = salvage::contents((&mut *from, &mut *to), shape, piece, |n| bar.inc(n))?;
        if let Some(salvage) = &mut self.salvage {
            salvage.lost = lost;
        }
        Ok(())
    }

    /// Whether the contents are those of the source now, with the same blocks.
    fn clone_contents(&self, item: Item<'_>, new: &Handle) -> Result<bool> {
        if self.options.reflink == Reflink::Never {
            return Ok(false);
        }
        let source = (self.source, item.file);
        match self.target.clone_contents(new, source, item.meta.size) {
            Ok(()) => {
                self.run.bar.inc(item.meta.size);
                Ok(true)
            }
            Err(e)
                if e.kind() == ErrorKind::Unsupported && self.options.reflink == Reflink::Auto =>
            {
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }

    /// The empty file that the contents go to, and whether it is new.
    fn open_new(&self, item: Item<'_>) -> Result<(Handle, bool)> {
        let Some(old) = optional(self.target.child(item.dir, item.name))? else {
            return Ok((self.make(item, b"")?, true));
        };
        let meta = self.target.meta(&old)?;
        self.check_other(item, &meta)?;
        match meta.file_type {
            FileType::Regular if !self.options.force => {
                self.target.open(&old, true)?.set_size(0)?;
                Ok((old, false))
            }
            // The user named /dev/null or similar.
            FileType::Fifo | FileType::CharDevice | FileType::BlockDevice
                if self.is_named && self.place.len() == 1 =>
            {
                Ok((old, false))
            }
            _ => {
                self.make_room(item)?;
                Ok((self.make(item, b"")?, true))
            }
        }
    }

    /// Sets the attributes to be preserved on the copy; reports those that the target cannot keep.
    fn attributes(&mut self, item: Item<'_>, new: &Handle, is_new: bool) {
        let Item { meta, shown, .. } = item;
        let preserve = self.options.preserve;
        let as_allowed = meta.mode & self.whose.allowed;
        let mode = match (preserve.mode, is_new) {
            (true, _) => Some(meta.mode),
            (false, true) if as_allowed != self.first_mode(meta) => Some(as_allowed),
            (false, _) => None,
        };
        let is_link = meta.file_type == FileType::Symlink;
        let wanted = Attributes {
            owner: preserve.owner.then_some((meta.uid, meta.gid)),
            xattrs: match preserve.xattrs || preserve.mode {
                true => self.xattrs(item),
                false => None,
            },
            mode: mode.filter(|_| !is_link),
            times: preserve.times.then_some((meta.atime, meta.mtime)),
            sole_acls: !is_link,
        };
        let to = (self.target, new);
        attributes::set(to, &wanted, shown, &mut self.losses, self.run);
    }

    /// The extended attributes that the copy is to have; `None` where they cannot be read.
    fn xattrs(&mut self, item: Item<'_>) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        let xattrs = self.source.xattrs(item.file);
        if let (Some(salvage), Err(error)) = (&mut self.salvage, &xattrs)
            && salvage::is_damage(error)
        {
            salvage.bare = Some(error.to_string());
            return None;
        }
        let mut xattrs = self.run.note(item.shown, xattrs)?;
        if !self.options.preserve.xattrs {
            xattrs.retain(|(name, _)| ACLS.iter().any(|(acl, _)| acl == name));
        }
        Some(xattrs)
    }
}

/// Whether all further writes would fail, too.
pub(super) fn ends_all(error: &Error) -> bool {
    use ErrorKind::{NoSpace, Quota, ReadOnly, Suspended};
    matches!(error.kind(), NoSpace | Quota | ReadOnly | Suspended) && !is_of_owner(error)
}

/// Copies the data of a file piece by piece, skipping its holes. `done` is called with the number of
/// bytes of each piece.
pub(super) fn content(
    (from, to): (&mut dyn Content, &mut dyn Content),
    meta: &Meta,
    piece: &mut [u8],
    done: impl Fn(u64),
) -> Result<(), Incomplete> {
    let size = meta.size;
    let unreadable = |offset, error| Incomplete::Read(ReadError { offset, error }, size);
    let shorter = || Error::new(ErrorKind::Io, "the file became shorter while it was copied");
    // Pieces end at multiples of their size, so that whole records are written.
    let mut most = piece.len() as u64;
    let mut at = 0;
    while let Some((start, end)) = from.next_data(at, size).map_err(|e| unreadable(at, e))? {
        at = start;
        while at < end {
            caller::check();
            let length = (most - at % most).min(end - at) as usize;
            let read = match from.read_at(at, &mut piece[..length]) {
                Ok(0) => return Err(unreadable(at, shorter())),
                Ok(read) => read,
                // Retry block by block: those before the damaged one are good.
                Err(_) if most > meta.blksz.max(1) => {
                    most = meta.blksz.max(1);
                    continue;
                }
                Err(error) => return Err(unreadable(at, error)),
            };
            to.write_at(at, &piece[..read]).map_err(Incomplete::Write)?;
            done(read as u64);
            at += read as u64;
        }
        at = at.max(end);
    }
    // A hole at the end, or the end.
    if at < size {
        let last = from.read_at(size - 1, &mut piece[..1]);
        if last.map_err(|e| unreadable(at, e))? == 0 {
            return Err(unreadable(at, shorter()));
        }
    }
    to.set_size(size).map_err(Incomplete::Write)
}

/// Copies a file to stdout.
pub(super) fn to_stdout(tree: &dyn Tree, file: &Handle) -> Result<Result<(), Incomplete>> {
    let meta = tree.meta(file)?;
    if meta.file_type == FileType::Directory {
        return Err(Error::new(ErrorKind::IsDirectory, "a directory"));
    }
    let mut from = tree.open(file, false)?;
    let mut to = Stream::standard(caller().output_file(caller::Stream::Out)?);
    let mut piece = BlockBuf::zeroed(PIECE_BYTES);
    Ok(content((&mut *from, &mut to), &meta, &mut piece, |_| ()))
}

/// The empty file of that name: a new one, or what is there.
pub(super) fn emptied(tree: &dyn Tree, dir: &Handle, name: &[u8]) -> Result<Handle> {
    let Some(old) = optional(tree.child(dir, name))? else {
        let meta = Meta::new(FileType::Regular, 0o666 & !umask(), owner(), Time::now());
        return tree.make(dir, name, &meta, b"");
    };
    if tree.meta(&old)?.file_type == FileType::Regular {
        tree.open(&old, true)?.set_size(0)?;
    }
    Ok(old)
}

/// Copies stdin to a file.
pub(super) fn from_stdin(
    tree: &dyn Tree,
    dir: &Handle,
    name: &[u8],
    options: &Options,
) -> Result<()> {
    if options.no_clobber && optional(tree.child(dir, name))?.is_some() {
        return Ok(());
    }
    let new = emptied(tree, dir, name)?;
    let mut from = Stream::standard(caller().input_file()?);
    let mut to = tree.open(&new, true)?;
    let mut piece = BlockBuf::zeroed(PIECE_BYTES);
    let mut at = 0;
    loop {
        let read = from.read_at(at, &mut piece)?;
        if read == 0 {
            return Ok(());
        }
        to.write_at(at, &piece[..read])?;
        at += read as u64;
    }
}

/// Reads those small files of the host in parallel that are wanted.
pub(super) fn read_ahead<'f>(
    files: impl Iterator<Item = (&'f Handle, &'f Meta, bool)>,
) -> Vec<Ahead> {
    let wanted: Vec<_> = files
        .map(|(file, meta, is_wanted)| {
            let is_wanted = is_wanted
                && matches!(file, Handle::Host(..))
                && meta.file_type == FileType::Regular
                && meta.size <= SMALL_BYTES
                && meta.used_bytes >= meta.size / 2;
            is_wanted.then(|| file.clone())
        })
        .collect();
    rt::parallel_map(wanted, |file| file.map(|file| read_small(&file)))
}

#[cfg(test)]
mod tests;
