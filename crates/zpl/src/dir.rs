//! Directories: looking names up, listing them, making files in them.
//!
//! # On disk
//! A directory is a ZAP from names to (type << 60 | object number). Its size is the number of
//! entries plus two, its link count the number of directories in it plus two; `.` and `..` are not
//! stored, the parent is an attribute.
//!
//! # Source
//! OpenZFS `module/os/linux/zfs/zfs_dir.c` (`zfs_link_create`), `module/os/linux/zfs/zfs_vnops_os.c`
//! (`zfs_lookup`, `zfs_create`, `zfs_mkdir`, `zfs_symlink`, `zfs_link`, `zfs_readdir`).

use std::borrow::Cow;

use base::{Error, ErrorKind, ObjectId, Result};
use dmu::Tx;
use phys::sa::ZplAttr;
use phys::znode::{dirent_new, dirent_object, dirent_type, pflags};
use zap::Zap;

use crate::attrs::{Attr, Change, FileType, Time};
use crate::fs::Node;
use crate::make::{Claim, Create, NewNode};
use crate::{Filesystem, LONG_NAME_MAX_BYTES, NAME_MAX_BYTES, SYMLINK_MAX_BYTES, Seen, log};

/// Bytes that one change of names may make dirty: a few leaves of a ZAP and dnodes.
pub(crate) const NAMES_DIRTY_BYTES: u64 = 128 << 10;

/// Bytes that a new file is assumed to need.
pub(crate) const CREATE_BYTES: u64 = 4096;

/// Flags of a file that keep its names, and of a directory that keep those in it.
pub(crate) const FIXED: u64 = pflags::IMMUTABLE | pflags::APPENDONLY;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name.
    pub name: Vec<u8>,
    /// The file.
    pub id: ObjectId,
    /// What kind of file it is; `None` if the directory does not say.
    pub file_type: Option<FileType>,
    /// Where to go on after this entry.
    pub next_offset: u64,
}

/// The offset at which [`readdir`](Filesystem::readdir) begins after `.` and `..`; greater ones are
/// cursors.
pub const FIRST_ENTRY: u64 = 2;

impl Filesystem {
    /// The file called `name` in directory `parent`.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `NameTooLong`; I/O.
    #[doc(alias = "zfs_lookup")]
    pub fn lookup(&self, parent: ObjectId, name: &[u8]) -> Result<Attr> {
        let found = self.lookup_if_there(parent, name)?;
        found.ok_or_else(|| Error::not_found(show(name)))
    }

    /// The file called `name` in directory `parent`, if there is one: an error costs more than the answer.
    ///
    /// # Errors
    /// `NotFound` for the directory, and for a file that is gone by now; `NotDirectory`, `NameTooLong`; I/O.
    pub fn lookup_if_there(&self, parent: ObjectId, name: &[u8]) -> Result<Option<Attr>> {
        let directory = self.directory(parent)?;
        match name {
            b"." => return self.attr_of(&directory).map(Some),
            b".." => {
                let parent = self.attr_of(&directory)?.parent;
                return self.attr_of(&self.node(parent)?).map(Some);
            }
            _ => self.check_name(name)?,
        }
        match self.entry(&directory, name)? {
            Some(found) => {
                let id = ObjectId(dirent_object(found.entry));
                self.attr_of(&self.node(id)?).map(Some)
            }
            None => Ok(None),
        }
    }

    /// Calls `take` with the entries of `directory` from `offset` on, until it returns false. Offset 0
    /// is the beginning; others are [`DirEntry::next_offset`]. Entries that remain while the directory
    /// changes are passed once.
    ///
    /// After the first two entries, a name is never `.`, `..` or empty, and has no slash and no NUL: on
    /// a damaged pool such names are left out, so that they are not taken for paths.
    ///
    /// # Errors
    /// `Corrupt`, after all others were given, if entries were left out; `NotFound`, `NotDirectory`;
    /// I/O.
    #[doc(alias = "zfs_readdir")]
    pub fn readdir(
        &self,
        directory: ObjectId,
        mut offset: u64,
        mut take: impl FnMut(&DirEntry) -> bool,
    ) -> Result<()> {
        let node = self.directory(directory)?;
        let attr = self.attr_of(&node)?;
        if attr.links == 0 {
            return Ok(());
        }
        while offset < FIRST_ENTRY {
            let (name, id) = [(&b"."[..], attr.id), (&b".."[..], attr.parent)][offset as usize];
            offset += 1;
            let file_type = Some(FileType::Directory);
            let entry = DirEntry {
                name: name.to_vec(),
                id,
                file_type,
                next_offset: offset,
            };
            if !take(&entry) {
                return Ok(());
            }
        }
        let start = if offset == FIRST_ENTRY { 0 } else { offset };
        let mut cursor = Zap::new(node.dnode)?.cursor(start);
        let mut impossible = None;
        while let Some(entry) = cursor.retrieve()? {
            cursor.advance();
            if !is_possible(&entry.name) {
                let (count, _) = impossible.get_or_insert_with(|| (0u64, show(&entry.name)));
                *count += 1;
                continue;
            }
            let entry = DirEntry {
                id: ObjectId(dirent_object(entry.first_integer)),
                file_type: FileType::of_dirent(dirent_type(entry.first_integer)),
                name: entry.name,
                next_offset: cursor.serialize(),
            };
            if !take(&entry) {
                break;
            }
        }
        match impossible {
            None => Ok(()),
            Some((count, first)) => {
                let names = if count == 1 { "name" } else { "names" };
                let text =
                    format!("directory {directory} has {count} {names} that cannot be: {first}");
                Err(Error::corrupt(text))
            }
        }
    }

    /// All entries of a directory except `.` and `..`; none if one of them has an impossible name.
    ///
    /// # Errors
    /// As [`readdir`](Filesystem::readdir).
    pub fn list(&self, directory: ObjectId) -> Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        self.readdir(directory, FIRST_ENTRY, |entry| {
            entries.push(entry.clone());
            true
        })?;
        Ok(entries)
    }

    /// Makes a regular file.
    ///
    /// # Errors
    /// `Exists`, `NotFound` (no such directory), `NotDirectory`, `NameTooLong`, `InvalidInput` (an
    /// impossible name), `Quota`, `NoSpace`, `ReadOnly`; I/O.
    #[doc(alias = "zfs_create")]
    pub fn create_file(&self, parent: ObjectId, name: &[u8], create: &Create) -> Result<Attr> {
        self.make(parent, name, &NewNode::new(FileType::Regular, *create))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As [`create_file`](Filesystem::create_file).
    #[doc(alias = "zfs_mkdir")]
    pub fn mkdir(&self, parent: ObjectId, name: &[u8], create: &Create) -> Result<Attr> {
        self.make(parent, name, &NewNode::new(FileType::Directory, *create))
    }

    /// Makes a pipe, a socket or a device; `rdev` is a [`device_number`](crate::device_number).
    ///
    /// # Errors
    /// As [`create_file`](Filesystem::create_file).
    pub fn mknod(
        &self,
        parent: ObjectId,
        name: &[u8],
        file_type: FileType,
        rdev: u64,
        create: &Create,
    ) -> Result<Attr> {
        if matches!(file_type, FileType::Directory | FileType::Symlink) {
            return Err(Error::invalid(
                "directories and links are not made by mknod",
            ));
        }
        let rdev = if file_type.is_device() { rdev } else { 0 };
        self.make(
            parent,
            name,
            &NewNode {
                rdev,
                ..NewNode::new(file_type, *create)
            },
        )
    }

    /// Makes a symbolic link to `target`.
    ///
    /// # Errors
    /// As [`create_file`](Filesystem::create_file); `NameTooLong` for the target.
    #[doc(alias = "zfs_symlink")]
    pub fn symlink(
        &self,
        parent: ObjectId,
        name: &[u8],
        target: &[u8],
        create: &Create,
    ) -> Result<Attr> {
        check_target(target)?;
        let create = Create {
            mode: 0o777,
            ..*create
        };
        let new = NewNode {
            target: Some(target),
            ..NewNode::new(FileType::Symlink, create)
        };
        self.make(parent, name, &new)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `InvalidInput` if it is not one; I/O.
    #[doc(alias = "zfs_readlink")]
    pub fn readlink(&self, id: ObjectId) -> Result<Vec<u8>> {
        let node = self.node(id)?;
        let attr = self.attr_of(&node)?;
        if attr.file_type() != Some(FileType::Symlink) {
            return Err(Error::invalid(format!("file {id} is not a symbolic link")));
        }
        let stored = {
            let attrs = node.locks.attrs.lock();
            self.read_attr_bytes(&node.dnode, &attrs, ZplAttr::Symlink)?
        };
        match stored {
            Some(target) => Ok(target),
            None => self.read_old_symlink(&node.dnode, attr.size),
        }
    }

    /// Gives file `id` one more name.
    ///
    /// # Errors
    /// As [`create_file`](Filesystem::create_file); `Permission` for a directory; `NotFound` for a
    /// file without names.
    #[doc(alias = "zfs_link")]
    pub fn link(&self, id: ObjectId, parent: ObjectId, name: &[u8]) -> Result<Attr> {
        self.check_new_name(name)?;
        let tx = self.begin(NAMES_DIRTY_BYTES)?;
        let was_nameless;
        let attr = {
            let _namespace = self.namespace.read();
            let directory = self.directory(parent)?;
            let node = self.node(id)?;
            let _names = directory.locks.names.lock();
            let parent_attr = self.live_directory(&directory)?;
            let old = self.attr_of(&node)?;
            self.check_link(&parent_attr, &old)?;
            self.check_flags(&tx, &parent_attr, pflags::IMMUTABLE)?;
            self.check_flags(&tx, &old, FIXED)?;
            self.add_link(&tx, &directory, name, &node)?;
            if old.links > 0 {
                log::link(self, &tx, parent, id, name);
            }
            was_nameless = old.links == 0;
            self.attr_of(&node)?
        };
        drop(tx);
        if let Some(groups) = self.groups.as_ref().filter(|_| was_nameless) {
            groups.sync_all()?;
        }
        self.finish(id)?;
        Ok(attr)
    }

    fn check_link(&self, parent: &Attr, attr: &Attr) -> Result<()> {
        if attr.is_directory() {
            return Err(Error::new(
                ErrorKind::Permission,
                "directories have one name only",
            ));
        }
        if attr.is_xattr() != parent.is_xattr() {
            return Err(Error::invalid("link between files and extended attributes"));
        }
        if parent.pflags & pflags::PROJINHERIT != 0 && parent.projid != attr.projid {
            return Err(Error::new(ErrorKind::CrossDevice, "link between projects"));
        }
        Ok(())
    }

    fn add_link(&self, tx: &Tx, directory: &Node, name: &[u8], node: &Node) -> Result<()> {
        let now = Time::now();
        // Looked at again under the lock that removing the last name takes: the file may be gone by now.
        let mut attrs = node.locks.attrs.lock();
        node.require_alive()?;
        let attr = self.read_attr(&node.dnode, &mut attrs)?;
        if attr.links == 0 && !attrs.may_be_linked {
            return Err(Error::not_found(show(name)));
        }
        let links = attr.links.checked_add(1);
        let links =
            links.ok_or_else(|| Error::corrupt(format!("file {} has 2^64 - 1 links", attr.id)))?;
        let entry = dirent_new(node.id().0, attr.mode.into());
        // Before the file leaves the delete queue.
        self.require_absent(directory, name)?;
        if attr.links == 0 {
            self.leave_unlinked_set(tx, node)?;
            attrs.may_be_linked = false;
        }
        self.add_name(tx, directory, name, entry)?;
        let changes = [
            Change::Word(ZplAttr::Links, links),
            Change::Word(ZplAttr::Parent, directory.id().0),
            Change::Word(ZplAttr::Flags, attr.pflags | pflags::ARCHIVE),
            Change::Time(ZplAttr::Ctime, now),
        ];
        self.write_attrs(tx, &node.dnode, &mut attrs, &changes)?;
        attrs.txg = tx.txg();
        drop(attrs);
        self.count_entries(tx, directory, 1, 0, now)
    }

    /// Makes a file and its name.
    pub(crate) fn make(&self, parent: ObjectId, name: &[u8], new: &NewNode<'_>) -> Result<Attr> {
        self.check_new_name(name)?;
        let tx = self.begin_adding(NAMES_DIRTY_BYTES, CREATE_BYTES)?;
        let attr = {
            let _namespace = self.namespace.read();
            let directory = self.directory(parent)?;
            let _names = directory.locks.names.lock();
            let parent_attr = self.live_directory(&directory)?;
            self.check_flags(&tx, &parent_attr, pflags::IMMUTABLE)?;
            self.make_in(&tx, &directory, &parent_attr, name, new)?
        };
        drop(tx);
        self.finish(attr.id)?;
        Ok(attr)
    }

    /// The same in a directory whose names are locked.
    pub(crate) fn make_in(
        &self,
        tx: &Tx,
        directory: &Node,
        parent_attr: &Attr,
        name: &[u8],
        new: &NewNode<'_>,
    ) -> Result<Attr> {
        let (node, attr) = self.make_unlogged(tx, directory, parent_attr, name, new)?;
        self.log_made(tx, directory, &node, &attr, (name, new.target));
        if self.inherit_posix_acl(tx, directory, &node)? {
            return self.attr_of(&node);
        }
        Ok(attr)
    }

    /// The same without a record in the log.
    pub(crate) fn make_unlogged(
        &self,
        tx: &Tx,
        directory: &Node,
        parent_attr: &Attr,
        name: &[u8],
        new: &NewNode<'_>,
    ) -> Result<(Node, Attr)> {
        self.require_absent(directory, name)?;
        if !self.log.is_replaying(tx) {
            self.check_new_owner(tx, &new.owner(parent_attr))?;
        }
        let node = self.make_node(tx, parent_attr, new)?;
        let mode = new.file_type.mode();
        self.add_name(tx, directory, name, dirent_new(node.id().0, mode.into()))?;
        let is_directory = new.file_type == FileType::Directory;
        self.count_entries(tx, directory, 1, i64::from(is_directory), Time::now())?;
        let attr = self.attr_of(&node)?;
        Ok((node, attr))
    }

    pub(crate) fn log_made(
        &self,
        tx: &Tx,
        directory: &Node,
        node: &Node,
        attr: &Attr,
        (name, target): (&[u8], Option<&[u8]>),
    ) {
        let slots = node.dnode.slots();
        log::create(self, tx, directory.id(), attr, slots, name, target);
    }

    /// Makes the file that a log record describes, with the object number in that record.
    pub(crate) fn make_claimed(
        &self,
        parent: ObjectId,
        name: &[u8],
        new: NewNode<'_>,
        claim: Claim,
    ) -> Result<Attr> {
        self.make(
            parent,
            name,
            &NewNode {
                claim: Some(claim),
                ..new
            },
        )
    }

    /// The object that a name leads to, and the name that it has there.
    pub(crate) fn find<'n>(
        &self,
        directory: &Node,
        name: &'n [u8],
    ) -> Result<(Cow<'n, [u8]>, ObjectId)> {
        let found = self.entry(directory, name)?;
        let found = found.ok_or_else(|| Error::not_found(show(name)))?;
        Ok((found.name, ObjectId(dirent_object(found.entry))))
    }

    fn require_absent(&self, directory: &Node, name: &[u8]) -> Result<()> {
        match self.entry(directory, name)? {
            None => Ok(()),
            Some(_) => Err(Error::new(ErrorKind::Exists, show(name))),
        }
    }

    /// Adjusts the number of entries, and of directories among them, of a directory whose names are locked.
    pub(crate) fn count_entries(
        &self,
        tx: &Tx,
        directory: &Node,
        entries: i64,
        directories: i64,
        now: Time,
    ) -> Result<()> {
        let mut attrs = directory.locks.attrs.lock();
        let attr = self.read_attr(&directory.dnode, &mut attrs)?;
        let changes = [
            Change::Word(ZplAttr::Size, attr.size.saturating_add_signed(entries)),
            Change::Word(
                ZplAttr::Links,
                attr.links.saturating_add_signed(directories),
            ),
            Change::Time(ZplAttr::Mtime, now),
            Change::Time(ZplAttr::Ctime, now),
            Change::Word(
                ZplAttr::Flags,
                attr.pflags | pflags::ARCHIVE | pflags::AV_MODIFIED,
            ),
        ];
        attrs.txg = tx.txg();
        self.write_attrs(tx, &directory.dnode, &mut attrs, &changes)
    }

    /// The attributes of a directory that has not been removed.
    pub(crate) fn live_directory(&self, directory: &Node) -> Result<Attr> {
        let attr = self.attr_of(directory)?;
        if attr.links == 0 {
            return Err(Error::not_found(format!(
                "directory {} was removed",
                attr.id
            )));
        }
        Ok(attr)
    }

    /// Adds a name to a directory.
    pub(crate) fn add_name(
        &self,
        tx: &Tx,
        directory: &Node,
        name: &[u8],
        entry: u64,
    ) -> Result<()> {
        Zap::new(directory.dnode.clone())?.add_u64(tx, name, entry)?;
        if name.len() > NAME_MAX_BYTES {
            self.space.long_name_made();
        }
        self.see(Seen::Name(directory.id(), name));
        Ok(())
    }

    /// The most bytes of a new name.
    pub(crate) fn name_max_bytes(&self) -> usize {
        match self.settings().long_names {
            true => LONG_NAME_MAX_BYTES,
            false => NAME_MAX_BYTES,
        }
    }

    /// Checks that a file may get this name.
    pub(crate) fn check_new_name(&self, name: &[u8]) -> Result<()> {
        if name.len() > self.name_max_bytes() {
            return Err(too_long(name));
        }
        self.check_name(name)
    }

    /// Checks that a file may have this name. With `longname=off`, long names that are there stay.
    pub(crate) fn check_name(&self, name: &[u8]) -> Result<()> {
        let is_long = name.len() > self.name_max_bytes();
        if is_long && (name.len() > LONG_NAME_MAX_BYTES || !self.space.has_long_names()) {
            return Err(too_long(name));
        }
        if !is_possible(name) {
            return Err(Error::invalid(format!("name {}", show(name))));
        }
        if self.names.utf8only && std::str::from_utf8(name).is_err() {
            return Err(Error::invalid(format!("name {} is not utf-8", show(name))));
        }
        Ok(())
    }
}

fn too_long(name: &[u8]) -> Error {
    let text = format!("a name of {} bytes", name.len());
    Error::new(ErrorKind::NameTooLong, text)
}

/// Whether a file may have this name: a single path component, which is neither the directory itself nor
/// its parent.
fn is_possible(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

fn check_target(target: &[u8]) -> Result<()> {
    if target.len() > SYMLINK_MAX_BYTES {
        let len = target.len();
        return Err(Error::new(
            ErrorKind::NameTooLong,
            format!("a link of {len} bytes"),
        ));
    }
    if target.is_empty() || target.contains(&0) {
        return Err(Error::invalid("the target of a link is empty or has a NUL"));
    }
    Ok(())
}

/// A name for messages.
pub(crate) fn show(name: &[u8]) -> String {
    format!("\"{}\"", String::from_utf8_lossy(name))
}
