//! Removing names, and files without names.
//!
//! # What it is
//! A file that loses its last name is freed at once, unless a caller has a reference to it: then it
//! waits in the *delete queue*, a ZAP, until the last reference is given back, or until the file system
//! is next opened.
//!
//! # Crash argument
//! The name is removed, the link count becomes 0, and the file is freed or enters the queue in one txg:
//! after a crash a file has a name, or is in the queue, or is gone.
//!
//! # Source
//! OpenZFS `module/os/linux/zfs/zfs_dir.c` (`zfs_link_destroy`, `zfs_rmnode`, `zfs_purgedir`,
//! `zfs_unlinked_drain`), `module/os/linux/zfs/zfs_vnops_os.c` (`zfs_remove`, `zfs_rmdir`).

use base::{Context, Error, ErrorKind, ObjectId, Result};
use dmu::Tx;
use phys::ObjectType;
use phys::Phys;
use phys::dnode::DN_MAX_OBJECT;
use phys::sa::ZplAttr;
use phys::znode::{ZfsAclPhys, dirent_object, pflags};
use zap::{Key, Zap};

use crate::attrs::{Attr, Change, Time};
use crate::dir::{FIXED, NAMES_DIRTY_BYTES, show};
use crate::fs::{Node, NodeAttrs};
use crate::{Filesystem, Seen, log};

impl Filesystem {
    /// Removes a name of a file that is not a directory.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory` (the parent), `IsDirectory`, `ReadOnly`; I/O.
    #[doc(alias = "zfs_remove")]
    pub fn unlink(&self, parent: ObjectId, name: &[u8]) -> Result<()> {
        self.check_name(name)?;
        let tx = self.begin(NAMES_DIRTY_BYTES)?;
        {
            let _namespace = self.namespace.read();
            let directory = self.directory(parent)?;
            let _names = directory.locks.names.lock();
            let (name, id) = self.find(&directory, name)?;
            let (name, node) = (&*name, self.node(id)?);
            if node.dnode.type_() == ObjectType::DIRECTORY_CONTENTS {
                return Err(Error::new(ErrorKind::IsDirectory, show(name)));
            }
            let _file_names = node.locks.names.lock();
            node.require_alive()?;
            self.check_removal(&tx, &directory, &node)?;
            self.remove_entry(&tx, &directory, name, false)?;
            log::remove(self, &tx, parent, name, Some(node.id()));
            self.drop_link(&tx, &node)?;
        }
        drop(tx);
        self.finish(parent)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `NotEmpty`, `ReadOnly`; I/O.
    #[doc(alias = "zfs_rmdir")]
    pub fn rmdir(&self, parent: ObjectId, name: &[u8]) -> Result<()> {
        self.check_name(name)?;
        let tx = self.begin(NAMES_DIRTY_BYTES)?;
        {
            let _namespace = self.namespace.read();
            let directory = self.directory(parent)?;
            let _names = directory.locks.names.lock();
            let (name, id) = self.find(&directory, name)?;
            let (name, node) = (&*name, self.node(id)?);
            if node.dnode.type_() != ObjectType::DIRECTORY_CONTENTS {
                return Err(Error::new(ErrorKind::NotDirectory, show(name)));
            }
            if node.id() == parent {
                let text = format!("directory {parent} contains itself");
                return Err(Error::corrupt(text));
            }
            // No name can be added to it from here on.
            let _child_names = node.locks.names.lock();
            self.check_removal(&tx, &directory, &node)?;
            self.require_empty(&node, name)?;
            self.remove_entry(&tx, &directory, name, true)?;
            log::remove(self, &tx, parent, name, None);
            self.drop_link(&tx, &node)?;
        }
        drop(tx);
        self.finish(parent)
    }

    /// Refuses to take a name of a file out of a directory where the flags of one of them forbid it.
    fn check_removal(&self, tx: &Tx, directory: &Node, node: &Node) -> Result<()> {
        self.check_flags(tx, &self.attr_of(directory)?, FIXED)?;
        self.check_flags(tx, &self.attr_of(node)?, FIXED | pflags::NOUNLINK)
    }

    pub(crate) fn require_empty(&self, directory: &Node, name: &[u8]) -> Result<()> {
        if Zap::new(directory.dnode.clone())?.count()? != 0 {
            return Err(Error::new(ErrorKind::NotEmpty, show(name)));
        }
        Ok(())
    }

    /// Takes a name out of a directory whose names are locked.
    pub(crate) fn remove_entry(
        &self,
        tx: &Tx,
        directory: &Node,
        name: &[u8],
        is_directory: bool,
    ) -> Result<()> {
        Zap::new(directory.dnode.clone())?.remove(tx, name)?;
        self.see(Seen::Name(directory.id(), name));
        self.count_entries(tx, directory, -1, -i64::from(is_directory), Time::now())
    }

    /// Removes a link to a file, and the file if that was the last one.
    pub(crate) fn drop_link(&self, tx: &Tx, node: &Node) -> Result<()> {
        let mut attrs = node.locks.attrs.lock();
        let attr = self.read_attr(&node.dnode, &mut attrs)?;
        let last = if attr.is_directory() { 2 } else { 1 };
        attrs.txg = tx.txg();
        if attr.links > last && !attr.is_directory() {
            let changes = [
                Change::Word(ZplAttr::Links, attr.links - 1),
                Change::Time(ZplAttr::Ctime, Time::now()),
                Change::Word(ZplAttr::Flags, attr.pflags | pflags::ARCHIVE),
            ];
            return self.write_attrs(tx, &node.dnode, &mut attrs, &changes);
        }
        // Its number may be another file's in the next txg.
        self.log.forget(node.id());
        let extra = self.attached_objects(node, &attrs, &attr)?;
        let holds = self.holds.lock();
        if holds.contains_key(&node.id()) {
            drop(holds);
            self.write_attrs(
                tx,
                &node.dnode,
                &mut attrs,
                &[Change::Word(ZplAttr::Links, 0)],
            )?;
            let unlinked_set = self.unlinked_set()?;
            return unlinked_set.add_u64(tx, Key::Int(attr.id.0), attr.id.0);
        }
        // Under the lock of the references: no new one can be taken any more.
        self.free_objects(tx, node.id(), &extra)
    }

    /// To be called when the last reference to a file was given back.
    pub(crate) fn inactivate(&self, id: ObjectId) -> Result<()> {
        let Ok(node) = self.node(id) else {
            return Ok(());
        };
        if node.dnode.is_freed() {
            return Ok(());
        }
        let attr = self.attr_of(&node)?;
        let has_pending_atime = node.locks.attrs.lock().atime.is_some();
        if attr.links > 0 {
            return if has_pending_atime {
                self.flush_atime(&node)
            } else {
                Ok(())
            };
        }
        let tx = self.begin(NAMES_DIRTY_BYTES)?;
        self.destroy_unlinked(&tx, &node)
    }

    /// Frees a file of the delete queue, unless there are references to it.
    fn destroy_unlinked(&self, tx: &Tx, node: &Node) -> Result<()> {
        let _names = node.locks.names.lock();
        let mut attrs = node.locks.attrs.lock();
        if node.dnode.is_freed() {
            return Ok(());
        }
        let attr = self.read_attr(&node.dnode, &mut attrs)?;
        let extra = self.attached_objects(node, &attrs, &attr)?;
        let holds = self.holds.lock();
        if holds.contains_key(&node.id()) {
            return Ok(());
        }
        self.unlinked_set()?
            .remove_if_present(tx, Key::Int(attr.id.0))?;
        self.free_objects(tx, node.id(), &extra)
    }

    /// Removes the files that lost their last name before a crash.
    #[doc(alias = "zfs_unlinked_drain")]
    pub(crate) fn drain_unlinked(&self) -> Result<()> {
        let Some(unlinked_set) = self.unlinked_set else {
            return Ok(());
        };
        for entry in zap::iter(&self.objset, unlinked_set)? {
            let id = ObjectId(entry?.first_integer);
            let tx = self.begin(NAMES_DIRTY_BYTES)?;
            match self.node(id) {
                Ok(node) => self
                    .destroy_unlinked(&tx, &node)
                    .within(|| "delete queue")?,
                // Only the entry in the queue is left.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.unlinked_set()?
                        .remove_if_present(&tx, Key::Int(id.0))?;
                }
                Err(error) => return Err(error.within("delete queue")),
            }
        }
        Ok(())
    }

    pub(crate) fn unlinked_set(&self) -> Result<Zap> {
        let id = self
            .unlinked_set
            .ok_or_else(|| Error::corrupt("no DELETE_QUEUE"))?;
        Zap::open(&self.objset, id)
    }

    /// The objects that go with a file: its extended attributes, its external ACL.
    fn attached_objects(
        &self,
        node: &Node,
        attrs: &NodeAttrs,
        attr: &Attr,
    ) -> Result<Vec<ObjectId>> {
        let mut objects = Vec::new();
        if let Some(xattr_dir) = attr.xattr_dir {
            for entry in zap::iter(&self.objset, xattr_dir)? {
                objects.push(ObjectId(dirent_object(entry?.first_integer)));
            }
            objects.push(xattr_dir);
        }
        if attr.is_xattr() && attr.is_directory() {
            for entry in &Zap::new(node.dnode.clone())? {
                objects.push(ObjectId(dirent_object(entry?.first_integer)));
            }
        }
        if let Some(acl) = self.read_attr_bytes(&node.dnode, attrs, ZplAttr::ZnodeAcl)? {
            let external = ZfsAclPhys::read(&acl)?.extern_obj.get();
            if external != 0 {
                objects.push(ObjectId(external));
            }
        }
        Ok(objects)
    }

    fn free_objects(&self, tx: &Tx, id: ObjectId, extra: &[ObjectId]) -> Result<()> {
        for object in extra.iter().filter(|object| object.0 < DN_MAX_OBJECT) {
            match self.objset.object_free(tx, *object) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                result => result?,
            }
        }
        self.objset.object_free(tx, id)
    }
}
