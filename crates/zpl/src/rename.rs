//! Renaming.
//!
//! # Concurrency
//! `rename` has the namespace to itself, so the path from a directory up to the root does not change
//! while it is checked that no directory moves into itself.
//!
//! # Source
//! OpenZFS `module/os/linux/zfs/zfs_vnops_os.c` (`zfs_rename`, `zfs_rename_lock`).

use std::borrow::Cow;
use std::collections::BTreeSet;

use base::{Error, ErrorKind, ObjectId, Result};
use dmu::Tx;
use phys::sa::ZplAttr;
use phys::znode::{dirent_new, dirent_object, pflags};

use crate::attrs::{Attr, Change, FileType, Time};
use crate::dir::{FIXED, NAMES_DIRTY_BYTES, show};
use crate::fs::Node;
use crate::make::{Claim, Create, NewNode};
use crate::{Filesystem, log};

/// What a rename does beyond the usual (`renameat2`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameKind {
    /// Replaces the target.
    #[default]
    Replace,
    /// Fails if there is a target (`RENAME_NOREPLACE`).
    NoReplace,
    /// Exchanges source and target, which must both be there (`RENAME_EXCHANGE`).
    Exchange,
    /// Leaves a whiteout, a character device 0/0, at the source (`RENAME_WHITEOUT`).
    Whiteout,
}

/// One end of a rename.
struct End<'a> {
    directory: Node,
    directory_attr: Attr,
    /// The name that was asked for.
    name: &'a [u8],
    /// The name that the file has there.
    found: Cow<'a, [u8]>,
    file: Option<(Node, Attr)>,
}

impl Filesystem {
    /// Renames `name` in `parent` to `new_name` in `new_parent`.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `IsDirectory`, `NotEmpty`, `Exists`, `InvalidInput` (a directory
    /// into itself), `CrossDevice` (between projects), `NameTooLong`, `ReadOnly`; I/O.
    #[doc(alias = "zfs_rename")]
    pub fn rename(
        &self,
        parent: ObjectId,
        name: &[u8],
        new_parent: ObjectId,
        new_name: &[u8],
        kind: RenameKind,
    ) -> Result<()> {
        self.rename_claiming((parent, name), (new_parent, new_name), kind, None)
    }

    /// The same; `claim` is for the whiteout of a log record.
    pub(crate) fn rename_claiming(
        &self,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
        kind: RenameKind,
        claim: Option<Claim>,
    ) -> Result<()> {
        self.check_name(from.1)?;
        self.check_new_name(to.1)?;
        let tx = self.begin(2 * NAMES_DIRTY_BYTES)?;
        {
            let _namespace = self.namespace.write();
            let source = self.rename_end(from, None)?;
            let beside = (from.0 == to.0).then_some(&*source.found);
            let target = self.rename_end(to, beside)?;
            let from = (from.0, &*source.found);
            let Some(moved) = &source.file else {
                return Err(Error::not_found(show(from.1)));
            };
            if from == to || self.is_noop(moved, &target, kind)? {
                return Ok(());
            }
            self.check_rename(&source, moved, &target, kind)?;
            self.check_rename_flags(&tx, &source, moved, &target)?;
            if kind == RenameKind::Whiteout {
                let owner = whiteout(&moved.1).owner(&source.directory_attr);
                self.check_new_owner(&tx, &owner)?;
            }
            match (kind, &target.file) {
                (RenameKind::Exchange, Some(other)) => {
                    self.exchange(&tx, &source, moved, &target, other)?;
                    log::rename_exchange(self, &tx, from, to, moved.1.id);
                }
                _ => {
                    self.move_name(&tx, &source, moved, &target)?;
                    if kind == RenameKind::Whiteout {
                        self.leave_whiteout(&tx, &source, moved, &target, claim)?;
                    } else {
                        log::rename(self, &tx, from, to, moved.1.id);
                    }
                }
            }
        }
        drop(tx);
        self.finish(to.0)
    }

    /// One end; a target in the same directory is `beside` the file that is renamed.
    fn rename_end<'a>(
        &self,
        (parent, name): (ObjectId, &'a [u8]),
        beside: Option<&[u8]>,
    ) -> Result<End<'a>> {
        let directory = self.directory(parent)?;
        let directory_attr = self.live_directory(&directory)?;
        let entry = match beside {
            Some(old) => self.entry_beside(&directory, name, old)?,
            None => self.entry(&directory, name)?,
        };
        let (found, file) = match entry {
            None => (Cow::Borrowed(name), None),
            Some(found) => {
                let node = self.node(ObjectId(dirent_object(found.entry)))?;
                let attr = self.attr_of(&node)?;
                (found.name, Some((node, attr)))
            }
        };
        Ok(End {
            directory,
            directory_attr,
            name,
            found,
            file,
        })
    }

    /// Whether both names are the same file already: then POSIX requires that nothing happens.
    fn is_noop(&self, moved: &(Node, Attr), target: &End<'_>, kind: RenameKind) -> Result<bool> {
        match &target.file {
            Some(_) if kind == RenameKind::NoReplace => {
                Err(Error::new(ErrorKind::Exists, show(target.name)))
            }
            Some((_, other)) => Ok(other.id == moved.1.id),
            None if kind == RenameKind::Exchange => Err(Error::not_found(show(target.name))),
            None => Ok(false),
        }
    }

    fn check_rename(
        &self,
        source: &End<'_>,
        moved: &(Node, Attr),
        target: &End<'_>,
        kind: RenameKind,
    ) -> Result<()> {
        let [from, to] = [&source.directory_attr, &target.directory_attr];
        if from.is_xattr() != to.is_xattr() {
            return Err(Error::invalid(
                "rename between files and extended attributes",
            ));
        }
        let is_elsewhere = from.id != to.id;
        if is_elsewhere && to.pflags & pflags::PROJINHERIT != 0 && to.projid != moved.1.projid {
            return Err(Error::new(
                ErrorKind::CrossDevice,
                "rename between projects",
            ));
        }
        if moved.1.is_directory() {
            self.check_no_cycle(moved.1.id, to.id)?;
        }
        let Some((node, attr)) = &target.file else {
            return Ok(());
        };
        if kind == RenameKind::Exchange {
            return if attr.is_directory() {
                self.check_no_cycle(attr.id, from.id)
            } else {
                Ok(())
            };
        }
        match (moved.1.is_directory(), attr.is_directory()) {
            (true, false) => Err(Error::new(ErrorKind::NotDirectory, show(target.name))),
            (false, true) => Err(Error::new(ErrorKind::IsDirectory, show(target.name))),
            (true, true) => self.require_empty(node, target.name),
            (false, false) => Ok(()),
        }
    }

    /// Refuses what the flags of the files and directories forbid.
    fn check_rename_flags(
        &self,
        tx: &Tx,
        source: &End<'_>,
        moved: &(Node, Attr),
        target: &End<'_>,
    ) -> Result<()> {
        self.check_flags(tx, &source.directory_attr, FIXED)?;
        self.check_flags(tx, &moved.1, FIXED)?;
        match &target.file {
            Some((_, attr)) => {
                self.check_flags(tx, &target.directory_attr, FIXED)?;
                self.check_flags(tx, attr, FIXED)
            }
            None => self.check_flags(tx, &target.directory_attr, pflags::IMMUTABLE),
        }
    }

    /// Checks that `directory` can be moved into `into`, which must not be inside it.
    fn check_no_cycle(&self, directory: ObjectId, into: ObjectId) -> Result<()> {
        let mut at = into;
        let mut passed = BTreeSet::new();
        while passed.insert(at) {
            if at == directory {
                return Err(Error::invalid(format!("directory {directory} into itself")));
            }
            if at == self.root {
                return Ok(());
            }
            at = self.attr_of(&self.node(at)?)?.parent;
        }
        Err(Error::corrupt(format!(
            "directory {into} does not lead to the root"
        )))
    }

    fn move_name(
        &self,
        tx: &Tx,
        source: &End<'_>,
        moved: &(Node, Attr),
        target: &End<'_>,
    ) -> Result<()> {
        let is_directory = moved.1.is_directory();
        self.remove_entry(tx, &source.directory, &source.found, is_directory)?;
        if let Some((node, attr)) = &target.file {
            self.remove_entry(tx, &target.directory, &target.found, attr.is_directory())?;
            self.drop_link(tx, node)?;
        }
        self.enter(tx, moved, target)
    }

    fn exchange(
        &self,
        tx: &Tx,
        source: &End<'_>,
        moved: &(Node, Attr),
        target: &End<'_>,
        other: &(Node, Attr),
    ) -> Result<()> {
        self.remove_entry(tx, &source.directory, &source.found, moved.1.is_directory())?;
        self.remove_entry(tx, &target.directory, &target.found, other.1.is_directory())?;
        self.enter(tx, moved, target)?;
        self.enter(tx, other, source)
    }

    /// Gives a file that has lost its name the one at `end`.
    fn enter(&self, tx: &Tx, file: &(Node, Attr), end: &End<'_>) -> Result<()> {
        let (node, attr) = file;
        let now = Time::now();
        let entry = dirent_new(node.id().0, attr.mode.into());
        self.add_name(tx, &end.directory, end.name, entry)?;
        {
            let mut attrs = node.locks.attrs.lock();
            let attr = self.read_attr(&node.dnode, &mut attrs)?;
            let inherited = end.directory_attr.pflags & pflags::PROJINHERIT;
            let flags = attr.pflags | pflags::ARCHIVE | pflags::AV_MODIFIED | inherited;
            let changes = [
                Change::Word(ZplAttr::Parent, end.directory.id().0),
                Change::Word(ZplAttr::Flags, flags),
                Change::Time(ZplAttr::Ctime, now),
            ];
            attrs.txg = tx.txg();
            self.write_attrs(tx, &node.dnode, &mut attrs, &changes)?;
        }
        let directories = i64::from(attr.is_directory());
        self.count_entries(tx, &end.directory, 1, directories, now)
    }

    fn leave_whiteout(
        &self,
        tx: &Tx,
        source: &End<'_>,
        moved: &(Node, Attr),
        target: &End<'_>,
        claim: Option<Claim>,
    ) -> Result<()> {
        let new = NewNode {
            claim,
            ..whiteout(&moved.1)
        };
        let node = self.make_node(tx, &source.directory_attr, &new)?;
        let entry = dirent_new(node.id().0, new.file_type.mode().into());
        self.add_name(tx, &source.directory, source.name, entry)?;
        self.count_entries(tx, &source.directory, 1, 0, Time::now())?;
        let whiteout = self.attr_of(&node)?;
        let from = (source.directory.id(), source.name);
        let to = (target.directory.id(), target.name);
        log::rename_whiteout(
            self,
            tx,
            from,
            to,
            moved.1.id,
            &whiteout,
            node.dnode.slots(),
        );
        Ok(())
    }
}

/// What is left where the file was.
fn whiteout<'a>(moved: &Attr) -> NewNode<'a> {
    let create = Create {
        mode: 0,
        uid: moved.uid,
        gid: moved.gid,
    };
    NewNode::new(FileType::CharDevice, create)
}
