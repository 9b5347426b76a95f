//! Extended attributes: with the other attributes, or in a hidden directory.
//!
//! # What it is
//! With `xattr=sa` they are one attribute of the file, `ZPL_DXATTR`, an nvlist of byte arrays; it goes
//! to the spill block when the bonus is full. Values that are too large for that, and all values with
//! `xattr=dir`, are files in a directory that has no name and that `ZPL_XATTR` points to. A name is in
//! one of the two places; a power cut during a move may leave it in both, and then the list takes
//! precedence. POSIX ACLs are extended attributes too.
//!
//! # Concurrency
//! The `names` lock of the file guards its extended attributes; that of the hidden directory is
//! not taken.
//!
//! # Source
//! OpenZFS `module/os/linux/zfs/zpl_xattr.c`, `module/zfs/zfs_sa.c` (`zfs_sa_set_xattr`),
//! `module/os/linux/zfs/zfs_dir.c` (`zfs_make_xattrdir`).

use std::collections::BTreeSet;

use base::{Context, Error, ErrorKind, ObjectId, Result};
use dmu::{OBJECT_END, Tx};
use nvpair::{NvList, NvString, NvValue};
use phys::sa::ZplAttr;
use phys::znode::dirent_object;

use crate::attrs::{Attr, Change, FileType, Time};
use crate::dir::{CREATE_BYTES, FIXED, NAMES_DIRTY_BYTES, show};
use crate::fs::Node;
use crate::make::{Claim, Create, NewNode};
use crate::posix_acl::{self, PosixAcl};
use crate::{Filesystem, NAME_MAX_BYTES, SetAttr, log};

/// `DXATTR_MAX_ENTRY_SIZE`: the largest value, in bytes, that is kept with the attributes.
const SA_VALUE_MAX_BYTES: usize = 32768;
/// `DXATTR_MAX_SA_SIZE`: once the list has more than this many bytes, nothing is added to it.
const SA_LIST_MAX_BYTES: usize = 65536;
/// `SA_ATTR_MAX_LEN`: the largest attribute.
const SA_ATTR_MAX_BYTES: usize = 65535;
/// `XATTR_SIZE_MAX`: the largest value of any extended attribute.
const VALUE_MAX_BYTES: usize = 65536;
/// The name space of names that are stored without one.
const USER_PREFIX: &[u8] = b"user.";
const PREFIXES: [&[u8]; 4] = [USER_PREFIX, b"system.", b"security.", b"trusted."];

/// What setting an extended attribute expects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetXattr {
    /// Nothing.
    #[default]
    Set,
    /// That it is not there (`XATTR_CREATE`).
    Create,
    /// That it is there (`XATTR_REPLACE`).
    Replace,
}

/// Where an extended attribute is.
struct FoundXattr {
    list: NvList,
    in_list: bool,
    in_dir: Option<ObjectId>,
}

impl FoundXattr {
    fn is_somewhere(&self) -> bool {
        self.in_list || self.in_dir.is_some()
    }
}

/// The name as an older version may have stored it, without `user.`.
fn bare(name: &[u8]) -> Option<&[u8]> {
    name.strip_prefix(USER_PREFIX)
}

fn too_big(what: &str, len: usize) -> Error {
    Error::new(ErrorKind::TooBig, format!("{what} of {len} bytes"))
}

impl Filesystem {
    /// The value of an extended attribute; `None` if there is none of that name.
    ///
    /// # Errors
    /// `NotFound` (no such file); I/O.
    pub fn getxattr(&self, id: ObjectId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let node = self.node(id)?;
        let _xattrs = node.locks.names.lock();
        self.getxattr_of(&node, name)
    }

    fn getxattr_of(&self, node: &Node, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let attr = self.attr_of(node)?;
        if !attr.may_have_xattrs() {
            return Ok(None);
        }
        let list = self.xattr_list(node)?;
        for name in [Some(name), bare(name)].into_iter().flatten() {
            if let Some(NvValue::ByteArray(value)) = list.get(name) {
                return Ok(Some(value.clone()));
            }
            if let Some(file) = self.find_xattr_file(&attr, name)? {
                return self.read_whole(file).map(Some);
            }
        }
        Ok(None)
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// `NotFound` (no such file); I/O.
    pub fn listxattr(&self, id: ObjectId) -> Result<Vec<Vec<u8>>> {
        let node = self.node(id)?;
        let _xattrs = node.locks.names.lock();
        let list = self.xattr_list(&node)?;
        let mut names: Vec<Vec<u8>> = list
            .iter()
            .map(|(name, _)| full_name(name.as_bytes()))
            .collect();
        if let Some(directory) = self.attr_of(&node)?.xattr_dir {
            for entry in zap::iter(&self.objset, directory)? {
                names.push(full_name(&entry?.name));
            }
        }
        // A log that ended between the two records of a move leaves the name in both places.
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        Ok(names)
    }

    /// The extended attributes that are kept with the other attributes of the file, as they are on
    /// disk: an nvlist of byte arrays. `None` if there is no such list.
    ///
    /// # Errors
    /// `NotFound` (no such file); I/O.
    pub fn packed_xattrs(&self, id: ObjectId) -> Result<Option<Vec<u8>>> {
        let node = self.node(id)?;
        let attrs = node.locks.attrs.lock();
        self.read_attr_bytes(&node.dnode, &attrs, ZplAttr::Dxattr)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `Exists`, `NotFound` (as `expect` says), `NameTooLong`, `TooBig`, `ReadOnly`, `Quota`,
    /// `NoSpace`; I/O.
    pub fn setxattr(
        &self,
        id: ObjectId,
        name: &[u8],
        value: &[u8],
        expect: SetXattr,
    ) -> Result<()> {
        check_xattr_name(name)?;
        if value.len() > VALUE_MAX_BYTES {
            return Err(too_big("an extended attribute", value.len()));
        }
        self.change_xattr(id, name, Some(value), expect)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `NotFound`, `ReadOnly`; I/O.
    pub fn removexattr(&self, id: ObjectId, name: &[u8]) -> Result<()> {
        check_xattr_name(name)?;
        self.change_xattr(id, name, None, SetXattr::Replace)
    }

    fn change_xattr(
        &self,
        id: ObjectId,
        name: &[u8],
        value: Option<&[u8]>,
        expect: SetXattr,
    ) -> Result<()> {
        let tx = match value {
            Some(value) => {
                let bytes = value.len() as u64;
                self.begin_adding(2 * (NAMES_DIRTY_BYTES + bytes), CREATE_BYTES + bytes)?
            }
            None => self.begin(2 * NAMES_DIRTY_BYTES)?,
        };
        {
            let _namespace = self.namespace.read();
            let node = self.node(id)?;
            let _xattrs = node.locks.names.lock();
            node.require_alive()?;
            self.check_flags(&tx, &self.attr_of(&node)?, FIXED)?;
            if [posix_acl::ACCESS, posix_acl::DEFAULT].contains(&name) {
                self.change_posix_acl(&tx, &node, name, value, expect)?;
            } else {
                self.change_xattr_of(&tx, &node, name, value, expect)?;
            }
        }
        drop(tx);
        self.finish(id)
    }

    /// Changes an extended attribute of a file whose names are locked, or that is new.
    fn change_xattr_of(
        &self,
        tx: &Tx,
        node: &Node,
        name: &[u8],
        value: Option<&[u8]>,
        expect: SetXattr,
    ) -> Result<()> {
        let attr = self.attr_of(node)?;
        let mut place = self.find_xattr(node, &attr, name)?;
        let mut stored = name;
        if let Some(bare) = bare(name)
            && !place.is_somewhere()
        {
            let other = self.find_xattr(node, &attr, bare)?;
            if other.is_somewhere() {
                (place, stored) = (other, bare);
            }
        }
        match expect {
            SetXattr::Create if place.is_somewhere() => {
                Err(Error::new(ErrorKind::Exists, show(name)))
            }
            SetXattr::Replace if !place.is_somewhere() => Err(Error::not_found(show(name))),
            _ => self.store_xattr(tx, node, &attr, place, stored, value),
        }
    }

    /// Changes a POSIX ACL of a file whose names are locked; the mode follows.
    fn change_posix_acl(
        &self,
        tx: &Tx,
        node: &Node,
        name: &[u8],
        value: Option<&[u8]>,
        expect: SetXattr,
    ) -> Result<()> {
        if !self.settings().posix_acl {
            return Err(Error::new(ErrorKind::Unsupported, "posix acls are off"));
        }
        let attr = self.attr_of(node)?;
        let acl = value.map(PosixAcl::parse).transpose()?;
        if name == posix_acl::DEFAULT && acl.is_some() && !attr.is_directory() {
            return Err(Error::new(
                ErrorKind::Permission,
                "a default acl is for directories",
            ));
        }
        match acl {
            Some(acl) if name == posix_acl::ACCESS => {
                self.store_access_acl(tx, node, &acl)?;
                let mode = Some(attr.mode & !0o777 | acl.mode());
                self.set_attrs(
                    tx,
                    node,
                    &SetAttr {
                        mode,
                        ..SetAttr::default()
                    },
                )
            }
            _ => self.change_xattr_of(tx, node, name, value, expect),
        }
    }

    /// Stores a file's own ACL, if it says more than the mode.
    fn store_access_acl(&self, tx: &Tx, node: &Node, acl: &PosixAcl) -> Result<()> {
        let bytes = acl.to_bytes();
        let value = Some(&bytes[..]).filter(|_| !acl.is_mode());
        if value.is_none() && self.getxattr_of(node, posix_acl::ACCESS)?.is_none() {
            return Ok(());
        }
        self.change_xattr_of(tx, node, posix_acl::ACCESS, value, SetXattr::Set)
    }

    /// After `chmod`: the ACL of a file whose names are locked follows the mode.
    pub(crate) fn chmod_posix_acl(&self, tx: &Tx, node: &Node, mode: u32) -> Result<()> {
        let Some(value) = self.getxattr_of(node, posix_acl::ACCESS)? else {
            return Ok(());
        };
        self.store_access_acl(tx, node, &PosixAcl::parse(&value)?.with_mode(mode))
    }

    /// Gives a new file the ACL that follows from its directory's default ACL; whether there is one.
    pub(crate) fn inherit_posix_acl(&self, tx: &Tx, directory: &Node, node: &Node) -> Result<bool> {
        if !self.settings().posix_acl || self.log.is_replaying(tx) {
            return Ok(false);
        }
        let attr = self.attr_of(node)?;
        if attr.file_type() == Some(FileType::Symlink) {
            return Ok(false);
        }
        let Some(value) = self.getxattr_of(directory, posix_acl::DEFAULT)? else {
            return Ok(false);
        };
        if attr.is_directory() {
            let name = posix_acl::DEFAULT;
            self.change_xattr_of(tx, node, name, Some(&value), SetXattr::Set)?;
        }
        let acl = PosixAcl::parse(&value)?.for_new(attr.mode);
        self.store_access_acl(tx, node, &acl)?;
        let mode = Some(attr.mode & !0o777 | acl.mode());
        let set = SetAttr {
            mode,
            ..SetAttr::default()
        };
        self.set_attrs(tx, node, &set)?;
        Ok(true)
    }

    fn store_xattr(
        &self,
        tx: &Tx,
        node: &Node,
        attr: &Attr,
        mut place: FoundXattr,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        let wants_list = match value {
            Some(value) => self.wants_list(&place.list, value),
            None => place.in_list,
        };
        if wants_list {
            let mut list = place.list.clone();
            list.remove(name);
            if let Some(value) = value {
                list.add(
                    NvString::from_bytes(name)?,
                    NvValue::ByteArray(value.to_vec()),
                );
            }
            if nvpair::xdr::encoded_size(&list) <= SA_ATTR_MAX_BYTES
                && self.write_xattr_list(tx, node, &list)?
            {
                log::set_sa_xattr(self, tx, attr, name, value);
                if place.in_dir.is_some() {
                    self.remove_xattr_file(tx, attr, name)?;
                }
                return Ok(());
            }
        }
        match value {
            Some(value) => self.write_xattr_file(tx, node, attr, name, value)?,
            None => self.remove_xattr_file(tx, attr, name)?,
        }
        if place.in_list {
            place.list.remove(name);
            self.write_xattr_list(tx, node, &place.list)?;
            log::set_sa_xattr(self, tx, attr, name, None);
        }
        Ok(())
    }

    /// Whether `value` is to be added to the list.
    fn wants_list(&self, list: &NvList, value: &[u8]) -> bool {
        let settings = self.settings();
        settings.xattr_sa
            && value.len() <= SA_VALUE_MAX_BYTES
            && nvpair::xdr::encoded_size(list) <= SA_LIST_MAX_BYTES
            // A log record without a value says that the attribute was removed.
            && !(value.is_empty() && settings.log_sa_xattr)
    }

    fn find_xattr(&self, node: &Node, attr: &Attr, name: &[u8]) -> Result<FoundXattr> {
        let list = self.xattr_list(node)?;
        let in_list = list.get(name).is_some();
        Ok(FoundXattr {
            in_list,
            list,
            in_dir: self.find_xattr_file(attr, name)?,
        })
    }

    fn xattr_list(&self, node: &Node) -> Result<NvList> {
        let attrs = node.locks.attrs.lock();
        match self.read_attr_bytes(&node.dnode, &attrs, ZplAttr::Dxattr)? {
            Some(bytes) => {
                nvpair::decode_xdr(&bytes).within(|| format!("ZPL_DXATTR of file {}", node.id()))
            }
            None => Ok(NvList::new()),
        }
    }

    /// Writes the list; returns false if the attributes have no room for it.
    fn write_xattr_list(&self, tx: &Tx, node: &Node, list: &NvList) -> Result<bool> {
        let bytes = nvpair::encode_xdr(list);
        let mut attrs = node.locks.attrs.lock();
        let changes = [
            Change::Bytes(ZplAttr::Dxattr, &bytes),
            Change::Time(ZplAttr::Ctime, Time::now()),
        ];
        attrs.txg = tx.txg();
        match self.write_attrs(tx, &node.dnode, &mut attrs, &changes) {
            Err(error) if error.kind() == ErrorKind::TooBig => Ok(false),
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(false),
            result => result.map(|()| true),
        }
    }

    fn find_xattr_file(&self, attr: &Attr, name: &[u8]) -> Result<Option<ObjectId>> {
        let Some(directory) = attr.xattr_dir else {
            return Ok(None);
        };
        let found = self.entry(&self.directory(directory)?, name)?;
        Ok(found.map(|found| ObjectId(dirent_object(found.entry))))
    }

    fn read_whole(&self, id: ObjectId) -> Result<Vec<u8>> {
        let node = self.node(id)?;
        let size = self.attr_of(&node)?.size;
        if size > 64 << 20 {
            return Err(Error::corrupt(format!(
                "an extended attribute of {size} bytes"
            )));
        }
        let mut value = vec![0; size as usize];
        node.dnode.read(0, &mut value)?;
        Ok(value)
    }

    fn write_xattr_file(
        &self,
        tx: &Tx,
        node: &Node,
        attr: &Attr,
        name: &[u8],
        value: &[u8],
    ) -> Result<()> {
        // A file without a name is gone when the log is replayed, and so are its attributes.
        let is_logged = attr.links > 0;
        let directory = match attr.xattr_dir {
            Some(id) => self.directory(id)?,
            None => self.make_xattr_dir(tx, node, attr, None)?,
        };
        let directory_attr = self.attr_of(&directory)?;
        let file = match self.entry(&directory, name)? {
            Some(found) => self.node(ObjectId(dirent_object(found.entry)))?,
            None => {
                let create = Create {
                    mode: 0o644,
                    uid: attr.uid,
                    gid: attr.gid,
                };
                let new = NewNode::new(FileType::Regular, create);
                let (file, made) =
                    self.make_unlogged(tx, &directory, &directory_attr, name, &new)?;
                if is_logged {
                    self.log_made(tx, &directory, &file, &made, (name, None));
                }
                file
            }
        };
        let _content = file.locks.content.write();
        let old = self.attr_of(&file)?;
        self.check_owner_bytes(tx, &old)?;
        if old.size > value.len() as u64 {
            file.dnode.free_range(tx, 0, OBJECT_END)?;
            let mut attrs = file.locks.attrs.lock();
            self.write_attrs(
                tx,
                &file.dnode,
                &mut attrs,
                &[Change::Word(ZplAttr::Size, 0)],
            )?;
            if is_logged {
                log::truncate(self, tx, &old, 0, 0);
            }
        }
        let now = self.attr_of(&file)?;
        self.write_chunk(tx, &file, &now, 0, value)?;
        if is_logged {
            log::write(self, tx, &now, 0, value.len() as u64, None);
        }
        self.touch_ctime(tx, node)
    }

    fn remove_xattr_file(&self, tx: &Tx, attr: &Attr, name: &[u8]) -> Result<()> {
        let directory = attr.xattr_dir.ok_or_else(|| Error::not_found(show(name)))?;
        let directory = self.directory(directory)?;
        let (name, id) = self.find(&directory, name)?;
        let file = self.node(id)?;
        self.remove_entry(tx, &directory, &name, false)?;
        if attr.links > 0 {
            log::remove(self, tx, directory.id(), &name, Some(file.id()));
        }
        self.drop_link(tx, &file)?;
        self.touch_ctime(tx, &self.node(attr.id)?)
    }

    fn touch_ctime(&self, tx: &Tx, node: &Node) -> Result<()> {
        let mut attrs = node.locks.attrs.lock();
        attrs.txg = tx.txg();
        self.write_attrs(
            tx,
            &node.dnode,
            &mut attrs,
            &[Change::Time(ZplAttr::Ctime, Time::now())],
        )
    }

    /// Changes only the list: what happened to the hidden directory is in records of its own.
    pub(crate) fn replay_sa_xattr(
        &self,
        id: ObjectId,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        check_xattr_name(name)?;
        let tx = self.begin(NAMES_DIRTY_BYTES)?;
        let node = self.node(id)?;
        let _xattrs = node.locks.names.lock();
        let mut list = self.xattr_list(&node)?;
        list.remove(name);
        if let Some(value) = value {
            list.add(
                NvString::from_bytes(name)?,
                NvValue::ByteArray(value.to_vec()),
            );
        }
        self.log.is_replaying(&tx);
        if self.write_xattr_list(&tx, &node, &list)? {
            return Ok(());
        }
        Err(too_big(
            "a list of extended attributes",
            nvpair::xdr::encoded_size(&list),
        ))
    }

    /// Makes the hidden directory of a file.
    fn make_xattr_dir(
        &self,
        tx: &Tx,
        node: &Node,
        attr: &Attr,
        claim: Option<(Create, Claim)>,
    ) -> Result<Node> {
        let mine = Create {
            mode: 0o1777,
            uid: attr.uid,
            gid: attr.gid,
        };
        let create = claim.map_or(mine, |(create, _)| create);
        let new = NewNode {
            is_xattr_dir: true,
            claim: claim.map(|(_, claim)| claim),
            ..NewNode::new(FileType::Directory, create)
        };
        self.check_new_owner(tx, &Self::owner_of(attr))?;
        let directory = self.make_node(tx, attr, &new)?;
        let mut attrs = node.locks.attrs.lock();
        let id = directory.id().0;
        self.write_attrs(
            tx,
            &node.dnode,
            &mut attrs,
            &[Change::Word(ZplAttr::Xattr, id)],
        )?;
        attrs.txg = tx.txg();
        drop(attrs);
        let made = self.attr_of(&directory)?;
        if attr.links > 0 {
            log::make_xattr_dir(self, tx, attr.id, &made, directory.dnode.slots());
        }
        Ok(directory)
    }

    /// The same for a log record.
    pub(crate) fn make_xattr_dir_claimed(
        &self,
        owner: ObjectId,
        create: &Create,
        claim: Claim,
    ) -> Result<()> {
        let tx = self.begin(NAMES_DIRTY_BYTES)?;
        let _namespace = self.namespace.read();
        let node = self.node(owner)?;
        let _xattrs = node.locks.names.lock();
        let attr = self.attr_of(&node)?;
        self.make_xattr_dir(&tx, &node, &attr, Some((*create, claim)))?;
        self.log.is_replaying(&tx);
        Ok(())
    }
}

fn full_name(stored: &[u8]) -> Vec<u8> {
    if PREFIXES.iter().any(|prefix| stored.starts_with(prefix)) {
        return stored.to_vec();
    }
    [USER_PREFIX, stored].concat()
}

fn check_xattr_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX_BYTES {
        return Err(Error::new(
            ErrorKind::NameTooLong,
            format!("a name of {} bytes", name.len()),
        ));
    }
    if name.is_empty() || name.contains(&0) {
        return Err(Error::invalid(format!("extended attribute {}", show(name))));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Pool, create};

    #[test]
    fn a_name_in_both_places_is_listed_once_and_removed_from_both() {
        let pool = Pool::new();
        let fs = pool.mount();
        let file = fs.create_file(fs.root(), b"file", &create(0o644));
        let id = file.unwrap().id;
        let (name, value) = (&b"user.x"[..], &b"in the list"[..]);
        fs.setxattr(id, name, value, SetXattr::Set).unwrap();
        let tx = fs.begin(4 * NAMES_DIRTY_BYTES).unwrap();
        let node = fs.node(id).unwrap();
        let attr = fs.attr_of(&node).unwrap();
        let moved = fs.write_xattr_file(&tx, &node, &attr, name, b"in the directory");
        moved.unwrap();
        drop(tx);
        assert_eq!(fs.listxattr(id).unwrap(), [name.to_vec()]);
        assert_eq!(fs.getxattr(id, name).unwrap().as_deref(), Some(value));
        fs.removexattr(id, name).unwrap();
        assert_eq!(fs.getxattr(id, name).unwrap(), None);
        assert!(fs.listxattr(id).unwrap().is_empty());
    }
}
