//! Extracting members of an archive.
//!
//! # Invariants
//! 1. Nothing outside the directory that is extracted into is made or changed: names lose what leads elsewhere, and
//!    each component is looked up by itself, links not followed (see [`Tree`]).
//! 2. Directories get their attributes when all members are there: making a file changes the time of its directory,
//!    and one without permission to write gets its files first.

use base::{BlockBuf, Error, ErrorKind, Result};
use tarball::{Input, Kind, Member, Reader};
use zpl::{FileType, Time};

use super::super::Run;
use super::super::attributes::{self, Attributes};
use super::super::change::owner;
use super::super::copy::optional;
use super::super::glob::matches;
use super::super::loss::Losses;
use super::super::mode::umask;
use super::super::tree::{Content, Handle, Meta, Tree};
use super::names::{Removed, components, shown};
use super::options::Options;
use super::owners::Owners;
use super::{acl, list, warn};
use crate::caller;

/// Bytes written at a time; a multiple of the largest record.
const PIECE_BYTES: usize = 1 << 20;
/// Directories in each other, at most: each is held open.
const DEPTH_MAX: usize = 1000;

/// What is extracted into.
pub(super) struct Target {
    pub(super) tree: Box<dyn Tree>,
    pub(super) root: Handle,
    /// The directories from the root down to that of the last member.
    path: Vec<(Vec<u8>, Handle)>,
    delayed: Vec<Delayed>,
}

/// A directory that gets its attributes at the end.
struct Delayed {
    place: Vec<Vec<u8>>,
    attributes: Attributes,
    shown: String,
}

impl Target {
    pub(super) fn new(tree: Box<dyn Tree>, root: Handle) -> Target {
        Target {
            tree,
            root,
            path: Vec::new(),
            delayed: Vec::new(),
        }
    }

    /// The directory at a place, held open.
    ///
    /// # Errors
    /// `NotFound` if it is not there and not to be made; `NotDirectory` if a link or file is in its place.
    fn enter(&mut self, place: &[&[u8]], to_make: Option<&Meta>) -> Result<Handle> {
        let known = self.path.iter().zip(place);
        let known = known
            .take_while(|((name, _), wanted)| name == *wanted)
            .count();
        self.path.truncate(known);
        if place.len() > DEPTH_MAX {
            let text = format!("more than {DEPTH_MAX} directories in each other");
            return Err(Error::invalid(text));
        }
        for name in &place[known..] {
            let dir = self.path.last().map_or(&self.root, |(_, dir)| dir);
            let child = match (optional(self.tree.child(dir, name))?, to_make) {
                (Some(child), _) => child,
                (None, Some(meta)) => self.tree.make(dir, name, meta, b"")?,
                (None, None) => return Err(Error::not_found("a directory")),
            };
            if self.tree.meta(&child)?.file_type != FileType::Directory {
                let text = "a file is where the directory belongs";
                return Err(Error::invalid(text));
            }
            let child = self.tree.enter(&child)?;
            self.path.push((name.to_vec(), child));
        }
        let last = self.path.last().map_or(&self.root, |(_, dir)| dir);
        Ok(last.clone())
    }
}

/// Why a member was not extracted.
pub(super) enum Failed {
    /// It alone
    Member(Error),
    /// What follows in the archive cannot be read.
    Archive(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Member(error)
    }
}

/// An extraction.
pub(super) struct Extraction<'a> {
    run: &'a mut Run,
    options: &'a Options,
    owners: Owners,
    losses: Losses,
    removed: Removed,
    piece: BlockBuf,
    /// What this process may give files, and the permissions that its mask lets through.
    mine: (u64, u64),
    allowed: u32,
    now: Time,
    /// Columns of the listing
    width: usize,
}

impl<'a> Extraction<'a> {
    pub(super) fn new(run: &'a mut Run, options: &'a Options) -> Extraction<'a> {
        Extraction {
            run,
            options,
            owners: Owners::default(),
            losses: Losses::default(),
            removed: Removed::default(),
            piece: BlockBuf::zeroed(PIECE_BYTES),
            mine: owner(),
            allowed: 0o777 & !umask(),
            now: Time::now(),
            width: 0,
        }
    }

    /// Says the name of a member, if that was asked for.
    pub(super) fn say(&mut self, member: &Member) {
        let text = match self.options.verbose {
            0 => return,
            1 => shown(&member.name),
            _ => list::long(member, self.options.numeric, &mut self.width),
        };
        self.run.line(&text);
    }

    /// Extracts a member into a target.
    ///
    /// # Errors
    /// Those after which the archive cannot be read any more; others are reported.
    pub(super) fn member<R: Input>(
        &mut self,
        target: &mut Target,
        member: &Member,
        reader: &mut Reader<R>,
    ) -> Result<()> {
        match self.try_member(target, member, reader) {
            Ok(()) => Ok(()),
            Err(Failed::Archive(error)) => Err(error),
            Err(Failed::Member(error)) => {
                self.run.complain(&shown(&member.name), &error);
                Ok(())
            }
        }
    }

    fn try_member<R: Input>(
        &mut self,
        target: &mut Target,
        member: &Member,
        reader: &mut Reader<R>,
    ) -> std::result::Result<(), Failed> {
        let place = self.place(&member.name, "member names");
        let place: Vec<&[u8]> = place.iter().map(Vec::as_slice).collect();
        if member.kind == Kind::Directory {
            return Ok(self.directory(target, &place, member)?);
        }
        // All of the name was stripped.
        let Some((name, dirs)) = place.split_last() else {
            return Ok(());
        };
        if let Kind::Other(letter) = member.kind {
            let text = format!("Unknown file type '{}'; skipped", char::from(letter));
            return Err(Error::new(ErrorKind::Unsupported, text).into());
        }
        let implied = self.meta(FileType::Directory, 0o777 & self.allowed, self.mine);
        let dir = target.enter(dirs, Some(&implied))?;
        if member.kind == Kind::Link {
            return Ok(self.link(target, &dir, name, member)?);
        }
        let (file_type, first_mode) = match member.kind {
            Kind::Symlink => (FileType::Symlink, 0o777),
            Kind::CharDevice => (FileType::CharDevice, member.mode & 0o700),
            Kind::BlockDevice => (FileType::BlockDevice, member.mode & 0o700),
            Kind::Fifo => (FileType::Fifo, member.mode & 0o700),
            _ => (FileType::Regular, member.mode & 0o700 | 0o600),
        };
        let wanted = self.attributes(&*target.tree, member);
        let mut meta = self.meta(file_type, first_mode, wanted.owner.unwrap_or(self.mine));
        let (major, minor) = member.device;
        meta.rdev = rustix::fs::makedev(major, minor);
        let tree = &*target.tree;
        let new = self.in_room(tree, &dir, name, |tree| {
            tree.make(&dir, name, &meta, &member.link)
        })?;
        if member.kind == Kind::File && member.size > 0 {
            let mut to = tree.open(&new, true)?;
            self.contents(reader, &mut *to, member)?;
        }
        let label = shown(&member.name);
        attributes::set((tree, &new), &wanted, &label, &mut self.losses, self.run);
        Ok(())
    }

    /// The components of a name that are left of it.
    fn place(&mut self, name: &[u8], what: &'static str) -> Vec<Vec<u8>> {
        let (name, said) = self.removed.safe(name, what);
        if let Some(said) = said {
            warn(self.run, &said);
        }
        let parts = components(name).skip(self.options.strip);
        parts.map(<[u8]>::to_vec).collect()
    }

    fn meta(&self, file_type: FileType, mode: u32, owner: (u64, u64)) -> Meta {
        Meta::new(file_type, mode, owner, self.now)
    }

    /// Makes a name; removes what is in the way, unless that is to be kept.
    fn in_room<T>(
        &self,
        tree: &dyn Tree,
        dir: &Handle,
        name: &[u8],
        make: impl Fn(&dyn Tree) -> Result<T>,
    ) -> Result<T> {
        let made = make(tree);
        let is_taken = made.as_ref().is_err_and(|e| e.kind() == ErrorKind::Exists);
        if !is_taken || self.options.keep_old {
            return made;
        }
        let old = tree.child(dir, name)?;
        if tree.meta(&old)?.file_type == FileType::Directory {
            return Err(Error::new(
                ErrorKind::IsDirectory,
                "a directory is in the way",
            ));
        }
        tree.remove(dir, name, false)?;
        make(tree)
    }

    fn directory(&mut self, target: &mut Target, place: &[&[u8]], member: &Member) -> Result<()> {
        let attributes = self.attributes(&*target.tree, member);
        let mut first = self.meta(FileType::Directory, 0o700, self.mine);
        if let Some((name, dirs)) = place.split_last() {
            let implied = self.meta(FileType::Directory, 0o777 & self.allowed, self.mine);
            let dir = target.enter(dirs, Some(&implied))?;
            (first.uid, first.gid) = attributes.owner.unwrap_or(self.mine);
            if optional(target.tree.child(&dir, name))?.is_none() {
                target.tree.make(&dir, name, &first, b"")?;
            }
            target.enter(place, None)?;
        }
        // What was stripped is the directory of nothing in the archive.
        if place.is_empty() && self.options.strip > 0 {
            return Ok(());
        }
        target.delayed.push(Delayed {
            place: place.iter().map(|name| name.to_vec()).collect(),
            attributes,
            shown: shown(&member.name),
        });
        Ok(())
    }

    fn link(
        &mut self,
        target: &mut Target,
        dir: &Handle,
        name: &[u8],
        member: &Member,
    ) -> Result<()> {
        let first = self.place(&member.link, "hard link targets");
        let first: Vec<&[u8]> = first.iter().map(Vec::as_slice).collect();
        let (old, dirs) = (first.split_last())
            .ok_or_else(|| Error::invalid("a link to a name that was stripped"))?;
        let from = target.enter(dirs, None)?;
        let tree = &*target.tree;
        let file = tree.child(&from, old)?;
        if let Some(there) = optional(tree.child(dir, name))?
            && tree.meta(&there)?.identity == tree.meta(&file)?.identity
        {
            return Ok(());
        }
        self.in_room(tree, dir, name, |tree| tree.link(&file, dir, name))
    }

    /// The attributes that a member is to get.
    fn attributes(&mut self, tree: &dyn Tree, member: &Member) -> Attributes {
        // In a pool this user may do everything.
        let is_free = self.mine.0 == 0 || tree.mount().is_some();
        let numbers = match self.options.numeric {
            true => (member.uid, member.gid),
            false => self.owners.numbers(member),
        };
        let mode = match self.options.modes.unwrap_or(is_free) {
            true => member.mode,
            false => member.mode & self.allowed,
        };
        let is_link = member.kind == Kind::Symlink;
        let (secs, nanos) = member.mtime;
        let times = (self.now, Time { secs, nanos });
        Attributes {
            owner: self.options.owners.unwrap_or(is_free).then_some(numbers),
            xattrs: self.xattrs(member),
            mode: Some(mode).filter(|_| !is_link),
            times: Some(times).filter(|_| !self.options.touch),
            sole_acls: self.options.acls && !is_link,
        }
    }

    fn xattrs(&mut self, member: &Member) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        if self.options.xattrs.is_none() && !self.options.acls {
            return None;
        }
        let mut xattrs = member.xattrs.clone();
        let patterns = self.options.xattrs.as_deref().unwrap_or_default();
        xattrs.retain(|(name, _)| {
            let mut patterns = patterns.iter();
            let is_acl = acl::NAMES.contains(&&name[..]);
            !is_acl && patterns.any(|pattern| matches(pattern.as_bytes(), name))
        });
        let acls = acl::NAMES.iter().zip(&member.acls);
        for (name, text) in acls.filter(|_| self.options.acls) {
            let Some(text) = text else { continue };
            match acl::value(text, self.options.numeric) {
                Some(value) => xattrs.push((name.to_vec(), value)),
                None => {
                    let text = String::from_utf8_lossy(text);
                    let label = shown(&member.name);
                    self.run.say(&format!("{label}: not an ACL: '{text}'"));
                }
            }
        }
        Some(xattrs)
    }

    /// Writes the data of a member; holes stay holes.
    fn contents<R: Input>(
        &mut self,
        reader: &mut Reader<R>,
        to: &mut dyn Content,
        member: &Member,
    ) -> std::result::Result<(), Failed> {
        let mut end = 0;
        for (offset, length) in &member.map {
            let mut at = *offset;
            end = offset + length;
            while at < end {
                caller::check();
                // Pieces end at multiples of their size, so that whole records are written.
                let most = PIECE_BYTES as u64 - at % PIECE_BYTES as u64;
                let wanted = most.min(end - at) as usize;
                let piece = &mut self.piece[..wanted];
                let read = reader.data(piece).map_err(Failed::Archive)?;
                to.write_at(at, &piece[..read])?;
                at += read as u64;
            }
        }
        if end < member.size {
            to.set_size(member.size)?;
        }
        Ok(())
    }

    /// Gives directories their attributes.
    pub(super) fn end(&mut self, target: &mut Target) {
        while let Some(Delayed {
            place,
            attributes,
            shown,
        }) = target.delayed.pop()
        {
            let place: Vec<&[u8]> = place.iter().map(Vec::as_slice).collect();
            let dir = target.enter(&place, None);
            let Some(dir) = self.run.note(&shown, dir) else {
                continue;
            };
            let to = (&*target.tree, &dir);
            attributes::set(to, &attributes, &shown, &mut self.losses, self.run);
        }
    }

    /// Says how much was not kept.
    pub(super) fn sum_up(&self) {
        self.losses.sum_up(self.run);
    }
}
