//! Making an archive of files.
//!
//! # Invariants
//! 1. A member has as many bytes as its header says, whatever happens to the file meanwhile: what cannot be read is
//!    zeros, and reported.
//! 2. The walk ends: a directory that this walk is in, or in a pool one that it was in, is not entered again.

use std::collections::{BTreeMap, BTreeSet};

use base::{BlockBuf, Error, Result};
use tarball::{Kind, Member};
use zpl::FileType;

use super::super::Run;
use super::super::glob::matches;
use super::super::show::join;
use super::super::tree::{Content, Handle, Meta, Tree};
use super::super::walk::second_name;
use super::archive::Writer;
use super::options::Options;
use super::owners::Owners;
use super::{acl, list, names};
use crate::caller;

/// Bytes read at a time; a multiple of the largest record.
const PIECE_BYTES: usize = 1 << 20;
/// Directories in each other, at most: each takes some of the stack.
const DEPTH_MAX: usize = 1000;

/// An archive that is being made.
pub(super) struct Creation<'a> {
    pub(super) run: &'a mut Run,
    options: &'a Options,
    to: Writer<'a>,
    /// The file that the archive is.
    archive: Option<(u64, u64)>,
    /// The names of files with several names.
    linked: BTreeMap<(u64, u64), Vec<u8>>,
    /// Directories of pools that were entered, and those of the host that the walk is in.
    entered: BTreeSet<(u64, u64)>,
    owners: Owners,
    piece: BlockBuf,
    /// Columns of the listing
    width: usize,
}

/// A file, and what it is called in the archive.
pub(super) struct Source<'s> {
    pub(super) tree: &'s dyn Tree,
    pub(super) file: Handle,
    /// A path to it that the tree resolves; for `-h`.
    pub(super) path: String,
    pub(super) name: Vec<u8>,
    pub(super) shown: String,
}

impl<'a> Creation<'a> {
    pub(super) fn new(
        run: &'a mut Run,
        options: &'a Options,
        to: Writer<'a>,
        archive: Option<(u64, u64)>,
    ) -> Creation<'a> {
        Creation {
            run,
            options,
            to,
            archive,
            linked: BTreeMap::new(),
            entered: BTreeSet::new(),
            owners: Owners::default(),
            piece: BlockBuf::zeroed(PIECE_BYTES),
            width: 0,
        }
    }

    /// Ends the archive.
    ///
    /// # Errors
    /// Those of writing it.
    pub(super) fn end(self) -> Result<()> {
        self.to.end()
    }

    /// Archives a file, and what is below it.
    ///
    /// # Errors
    /// Those of writing the archive, after which nothing more can be; others are reported.
    pub(super) fn add(&mut self, source: &Source<'_>, depth: usize) -> Result<()> {
        caller::check();
        if self.options.excluded.has(&source.name) {
            return Ok(());
        }
        self.run.bar.set_message(source.shown.clone());
        let found = self.look(source);
        let Some((file, meta)) = self.run.note(&source.shown, found) else {
            return Ok(());
        };
        if self.archive == Some(meta.identity) {
            self.warn(source, "file is the archive; not dumped");
            return Ok(());
        }
        match meta.file_type {
            FileType::Directory => self.directory(source, &file, &meta, depth),
            FileType::Socket => {
                self.warn(source, "socket ignored");
                Ok(())
            }
            _ => self.file(source, &file, &meta),
        }
    }

    fn warn(&self, source: &Source<'_>, text: &str) {
        super::warn(self.run, &format!("{}: {text}", source.shown));
    }

    fn look(&self, source: &Source<'_>) -> Result<(Handle, Meta)> {
        let file = match self.options.follow {
            true => source.tree.resolve(&source.path)?,
            false => source.file.clone(),
        };
        let meta = source.tree.meta(&file)?;
        Ok((file, meta))
    }

    fn directory(
        &mut self,
        source: &Source<'_>,
        file: &Handle,
        meta: &Meta,
        depth: usize,
    ) -> Result<()> {
        let is_in_pool = source.tree.mount().is_some();
        if !self.entered.insert(meta.identity) {
            let error = match is_in_pool && !self.options.follow {
                true => second_name(base::ObjectId(meta.identity.1)),
                false => Error::invalid("a directory that it is in; not dumped"),
            };
            self.run.complain(&source.shown, &error);
            return Ok(());
        }
        let outcome = self.below(source, file, meta, depth);
        if !is_in_pool || self.options.follow {
            self.entered.remove(&meta.identity);
        }
        outcome
    }

    fn below(
        &mut self,
        source: &Source<'_>,
        file: &Handle,
        meta: &Meta,
        depth: usize,
    ) -> Result<()> {
        let mut name = source.name.clone();
        if !name.ends_with(b"/") {
            name.push(b'/');
        }
        let mut member = Member::new(&name, Kind::Directory);
        if self.describe(source, file, meta, &mut member) {
            self.lead(&member)?;
        }
        if !self.options.recursive {
            return Ok(());
        }
        if depth >= DEPTH_MAX {
            let text = format!("more than {DEPTH_MAX} directories in each other");
            self.run.complain(&source.shown, &Error::invalid(text));
            return Ok(());
        }
        let Some(dir) = self.run.note(&source.shown, source.tree.enter(file)) else {
            return Ok(());
        };
        let listed = source.tree.list_unsorted(&dir);
        self.run.note(&source.shown, listed.outcome);
        for child in listed.names {
            let shown = join(&source.shown, &child);
            let found = source.tree.child(&dir, &child);
            let Some(file) = self.run.note(&shown, found) else {
                continue;
            };
            let below = Source {
                tree: source.tree,
                file,
                path: join(&source.path, &child),
                name: [&name[..], &child].concat(),
                shown,
            };
            self.add(&below, depth + 1)?;
        }
        Ok(())
    }

    fn file(&mut self, source: &Source<'_>, file: &Handle, meta: &Meta) -> Result<()> {
        let is_linked = meta.links > 1;
        if is_linked && let Some(first) = self.linked.get(&meta.identity) {
            let mut member = Member::new(&source.name, Kind::Link);
            member.link = first.clone();
            if self.describe(source, file, meta, &mut member) {
                self.lead(&member)?;
            }
            return Ok(());
        }
        let kind = match meta.file_type {
            FileType::Symlink => Kind::Symlink,
            FileType::CharDevice => Kind::CharDevice,
            FileType::BlockDevice => Kind::BlockDevice,
            FileType::Fifo => Kind::Fifo,
            FileType::Regular | FileType::Directory | FileType::Socket => Kind::File,
        };
        let mut member = Member::new(&source.name, kind);
        if !self.describe(source, file, meta, &mut member) {
            return Ok(());
        }
        if kind == Kind::File {
            let opened = source.tree.open(file, false);
            let opened = opened.and_then(|mut from| {
                self.measure(&mut *from, meta.size, &mut member)?;
                Ok(from)
            });
            let Some(mut from) = self.run.note(&source.shown, opened) else {
                return Ok(());
            };
            self.lead(&member)?;
            self.contents(source, &mut *from, &member)?;
        } else {
            self.lead(&member)?;
        }
        if is_linked {
            self.linked.insert(meta.identity, source.name.clone());
        }
        Ok(())
    }

    /// Sets the attributes of a member. Returns whether they could be read, and reports what could not.
    fn describe(
        &mut self,
        source: &Source<'_>,
        file: &Handle,
        meta: &Meta,
        member: &mut Member,
    ) -> bool {
        member.mode = meta.mode;
        (member.uid, member.gid) = (meta.uid, meta.gid);
        member.mtime = (meta.mtime.secs, meta.mtime.nanos);
        if !self.options.numeric {
            self.owners.name(member);
        }
        if matches!(meta.file_type, FileType::BlockDevice | FileType::CharDevice) {
            member.device = (rustix::fs::major(meta.rdev), rustix::fs::minor(meta.rdev));
        }
        if member.kind == Kind::Symlink {
            let target = source.tree.readlink(file);
            let Some(target) = self.run.note(&source.shown, target) else {
                return false;
            };
            member.link = target;
        }
        if (self.options.xattrs.is_some() || self.options.acls) && member.kind != Kind::Link {
            let xattrs = source.tree.xattrs(file);
            let xattrs = self.run.note(&source.shown, xattrs);
            self.xattrs(xattrs.unwrap_or_default(), member);
        }
        true
    }

    fn xattrs(&self, xattrs: Vec<(Vec<u8>, Vec<u8>)>, member: &mut Member) {
        for (name, value) in xattrs {
            if let Some(which) = acl::NAMES.iter().position(|acl| *acl == name) {
                let text = acl::text(&value, self.options.numeric);
                let text = text.filter(|_| self.options.acls);
                member.acls[which] = text.map(String::into_bytes);
                continue;
            }
            let patterns = self.options.xattrs.iter().flatten();
            if patterns
                .into_iter()
                .any(|pattern| matches(pattern.as_bytes(), &name))
            {
                member.xattrs.push((name, value));
            }
        }
    }

    /// Sets size and map of a file.
    fn measure(&self, from: &mut dyn Content, size: u64, member: &mut Member) -> Result<()> {
        member.size = size;
        if size == 0 {
            return Ok(());
        }
        if !self.options.sparse {
            member.map = vec![(0, size)];
            return Ok(());
        }
        let mut at = 0;
        while at < size
            && let Some((start, end)) = from.next_data(at, size)?
        {
            member.map.push((start, end - start));
            at = end;
        }
        Ok(())
    }

    /// Writes what is before the data of a member, and says its name.
    fn lead(&mut self, member: &Member) -> Result<()> {
        if self.options.verbose > 0 {
            let text = match self.options.verbose {
                1 => names::shown(&member.name),
                _ => list::long(member, self.options.numeric, &mut self.width),
            };
            match self.options.archive.as_str() {
                super::archive::STANDARD => self.run.bar.suspend(|| eprintln!("{text}")),
                _ => self.run.line(&text),
            }
        }
        self.to.put(&tarball::lead(member)?)
    }

    /// Writes the data of a file.
    fn contents(
        &mut self,
        source: &Source<'_>,
        from: &mut dyn Content,
        member: &Member,
    ) -> Result<()> {
        let mut failed = None;
        for (offset, length) in &member.map {
            let (mut at, end) = (*offset, offset + length);
            while at < end {
                caller::check();
                // Pieces end at multiples of their size, so that whole records are read.
                let most = PIECE_BYTES as u64 - at % PIECE_BYTES as u64;
                let wanted = most.min(end - at) as usize;
                let read = match &failed {
                    None => from.read_at(at, &mut self.piece[..wanted]),
                    Some(_) => Ok(0),
                };
                let read = read.unwrap_or_else(|error| {
                    failed = Some((at, Some(error)));
                    0
                });
                if read < wanted && failed.is_none() {
                    failed = Some((at + read as u64, None));
                }
                self.to.put(&self.piece[..read])?;
                self.to.put_zeros((wanted - read) as u64)?;
                self.run.bar.inc(wanted as u64);
                at += wanted as u64;
            }
        }
        match failed {
            None => {}
            Some((at, Some(error))) => {
                let reason = super::super::words(&error, false);
                let text = format!("Read error at byte {at}: {reason}; padding with zeros");
                self.run.say(&format!("{}: {text}", source.shown));
            }
            Some((at, None)) => {
                let gone = member.size - at;
                let text = format!("File shrank by {gone} bytes; padding with zeros");
                self.run.say(&format!("{}: {text}", source.shown));
            }
        }
        self.to.put_zeros(tarball::padding(member) as u64)
    }
}
