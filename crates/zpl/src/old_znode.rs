//! Files from before version 5, whose attributes are not system attributes yet.
//!
//! # What it is
//! An upgrade of a file system sets its version and makes the master node of system attributes. Its files stay as they
//! are, and are read; when the attributes of one are next written, they are first written anew as system attributes.
//!
//! # On disk
//! The bonus is a `znode_phys_t` with at most 72 bytes of ACL; more are in an object of their own. Behind it are the
//! target of a symbolic link that fits there, or the mark of a virus scanner. ACLs of version 0, before version 3 of
//! file systems, have entries of 12 bytes, all with a user or group.
//!
//! # Crash argument
//! A conversion is in one transaction with the change that it is for.
//!
//! # Source
//! OpenZFS `module/zfs/zfs_sa.c` (`zfs_sa_upgrade`), `module/os/linux/zfs/zfs_vfsops.c` (`zfs_set_version`),
//! `module/os/linux/zfs/zfs_acl.c` (`zfs_acl_xform`, `zfs_acl_node_read`).

use std::sync::Arc;

use base::{Error, ObjectId, Result};
use dmu::{Dnode, OBJECT_END, Objset, Tx};
use phys::sa::ZplAttr;
use phys::znode::ace::{EVERYONE, GROUP, IDENTIFIER_GROUP, OWNER, TYPE_FLAGS};
use phys::znode::{
    AceHdrPhys, AcePhys, MASTER_NODE_OBJ, OldAcePhys, ZPL_VERSION, ZfsAclPhys, ZnodePhys,
    master_node, pflags,
};
use phys::{ObjectType, Phys};
use zap::Zap;
use zerocopy::IntoBytes;

use crate::Filesystem;
use crate::attrs::{Change, FileType};
use crate::fs::NodeAttrs;

/// The most bytes of an ACL: 1024 entries of the largest kind.
const ACL_BYTES_MAX: usize = 1024 * 48;
/// `AV_SCANSTAMP_SZ`
const SCANSTAMP_BYTES: usize = 32;

/// The version of a file system that need not be open.
///
/// # Errors
/// I/O and corruption.
pub fn version_of(objset: &Arc<Objset>) -> Result<u64> {
    let master = Zap::open(objset, ObjectId(MASTER_NODE_OBJ))?;
    let version = master.lookup_u64(master_node::VERSION)?;
    version.ok_or_else(|| Error::corrupt("master node has no VERSION"))
}

/// Makes a file system that is not open one of the current version.
///
/// # Errors
/// I/O and corruption.
#[doc(alias = "zfs_set_version")]
pub(crate) fn upgrade(objset: &Arc<Objset>, tx: &Tx) -> Result<()> {
    let master = Zap::open(objset, ObjectId(MASTER_NODE_OBJ))?;
    if master.lookup_u64(master_node::SA_ATTRS)?.is_none() {
        let object = zap::create(objset, tx, ObjectType::SA_MASTER_NODE)?;
        master.add_u64(tx, master_node::SA_ATTRS, object.0)?;
    }
    master.update_u64(tx, master_node::VERSION, ZPL_VERSION)
}

impl Filesystem {
    /// Writes the attributes of a file of an old version as system attributes.
    #[doc(alias = "zfs_sa_upgrade")]
    pub(crate) fn convert_znode(
        &self,
        tx: &Tx,
        dnode: &Dnode,
        attrs: &mut NodeAttrs,
    ) -> Result<()> {
        let attr = self.read_attr(dnode, attrs)?;
        attrs.parsed = None;
        let bonus = dnode.bonus();
        let znode = *ZnodePhys::view(&bonus)?;
        let acl = self.read_old_acl(&znode.acl)?;
        let type_ = attr.file_type();
        let target = match type_ {
            Some(FileType::Symlink) => Some(self.read_old_symlink(dnode, attr.size)?),
            _ => None,
        };
        let scanstamp = (attr.pflags & pflags::BONUS_SCANSTAMP != 0)
            .then(|| bonus.get(ZnodePhys::SIZE..)?.get(..SCANSTAMP_BYTES))
            .flatten();
        let has_projects = self.objset.props().project_quota;
        let project_flag = if has_projects { pflags::PROJID } else { 0 };
        let flags = attr.pflags & !pflags::BONUS_SCANSTAMP | project_flag;
        let mut changes = vec![
            Change::Word(ZplAttr::Mode, attr.mode.into()),
            Change::Word(ZplAttr::Size, attr.size),
            Change::Word(ZplAttr::Gen, attr.generation),
            Change::Word(ZplAttr::Uid, attr.uid),
            Change::Word(ZplAttr::Gid, attr.gid),
            Change::Word(ZplAttr::Parent, attr.parent.0),
            Change::Word(ZplAttr::Flags, flags),
            Change::Time(ZplAttr::Atime, attr.atime),
            Change::Time(ZplAttr::Mtime, attr.mtime),
            Change::Time(ZplAttr::Ctime, attr.ctime),
            Change::Time(ZplAttr::Crtime, attr.crtime),
            Change::Word(ZplAttr::Links, attr.links),
        ];
        if has_projects {
            changes.push(Change::Word(ZplAttr::Projid, 0));
        }
        if type_.is_some_and(FileType::is_device) {
            changes.push(Change::Word(ZplAttr::Rdev, attr.rdev));
        }
        changes.push(Change::Word(ZplAttr::DaclCount, acl.count));
        changes.push(Change::Bytes(ZplAttr::DaclAces, &acl.aces));
        if let Some(directory) = attr.xattr_dir {
            changes.push(Change::Word(ZplAttr::Xattr, directory.0));
        }
        if let Some(target) = &target {
            changes.push(Change::Bytes(ZplAttr::Symlink, target));
        }
        if let Some(stamp) = scanstamp {
            changes.push(Change::Bytes(ZplAttr::Scanstamp, stamp));
        }
        dnode.set_bonus_type(tx, ObjectType::SA)?;
        self.write_new_attrs(tx, dnode, &changes)?;
        if target.is_some() {
            dnode.free_range(tx, 0, OBJECT_END)?;
        }
        match ObjectId(znode.acl.extern_obj.get()) {
            ObjectId(0) => Ok(()),
            object => self.objset.object_free(tx, object),
        }
    }

    #[doc(alias = "zfs_acl_node_read")]
    fn read_old_acl(&self, acl: &ZfsAclPhys) -> Result<OldAcl> {
        let size = u64::from(acl.size.get());
        let (version, object) = (acl.version.get(), ObjectId(acl.extern_obj.get()));
        let bytes = match version {
            0 => size * OldAcePhys::SIZE as u64,
            1 => size,
            _ => return Err(Error::corrupt(format!("ACL of version {version}"))),
        };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let bytes = match object {
            _ if bytes > ACL_BYTES_MAX => None,
            ObjectId(0) => acl.ace_data.get(..bytes).map(<[u8]>::to_vec),
            object => Some(self.read_acl_object(object, bytes)?),
        };
        let bytes = bytes.ok_or_else(|| Error::corrupt(format!("ACL of size {size}")))?;
        match version {
            0 => converted(&bytes),
            _ => Ok(OldAcl {
                count: acl.count.get().into(),
                aces: bytes,
            }),
        }
    }

    fn read_acl_object(&self, object: ObjectId, bytes: usize) -> Result<Vec<u8>> {
        let dnode = self.objset.hold(object)?;
        if ![ObjectType::ACL, ObjectType::OLDACL].contains(&dnode.type_()) {
            return Err(Error::corrupt(format!("object {object} is not an ACL")));
        }
        let mut read = vec![0; bytes];
        dnode.read(0, &mut read)?;
        Ok(read)
    }
}

/// An ACL as system attributes have it.
struct OldAcl {
    count: u64,
    aces: Vec<u8>,
}

/// An ACL of version 0 with entries of today's format.
#[doc(alias = "zfs_copy_ace_2_fuid")]
fn converted(bytes: &[u8]) -> Result<OldAcl> {
    let mut acl = OldAcl {
        count: 0,
        aces: Vec::new(),
    };
    for entry in bytes.chunks_exact(OldAcePhys::SIZE) {
        let old = OldAcePhys::view(entry)?;
        let hdr = AceHdrPhys {
            type_: old.type_,
            flags: old.flags,
            access_mask: old.access_mask,
        };
        let who = old.flags.get() & TYPE_FLAGS;
        acl.count += 1;
        if [OWNER, GROUP | IDENTIFIER_GROUP, EVERYONE].contains(&who) {
            acl.aces.extend_from_slice(hdr.as_bytes());
        } else {
            let fuid = u64::from(old.fuid.get()).into();
            let ace = AcePhys { hdr, fuid };
            acl.aces.extend_from_slice(ace.as_bytes());
        }
    }
    Ok(acl)
}

#[cfg(test)]
mod tests {
    use super::*;
    use phys::znode::ace::{ALLOWED_TYPE, DENIED_TYPE, READ_DATA};

    #[test]
    fn entries_of_version_0_keep_who_they_are_for() {
        let entry = |fuid: u32, flags: u16, type_: u16| OldAcePhys {
            fuid: fuid.into(),
            access_mask: READ_DATA.into(),
            flags: flags.into(),
            type_: type_.into(),
        };
        let old = [
            entry(9, OWNER, ALLOWED_TYPE),
            entry(7, 0, DENIED_TYPE),
            entry(8, IDENTIFIER_GROUP, ALLOWED_TYPE),
            entry(9, GROUP | IDENTIFIER_GROUP, ALLOWED_TYPE),
            entry(9, EVERYONE, ALLOWED_TYPE),
        ];
        let acl = converted(old.map(|old| old.as_bytes().to_vec()).concat().as_slice()).unwrap();
        assert_eq!((acl.count, acl.aces.len()), (5, 8 + 16 + 16 + 8 + 8));
        let user = AcePhys::view(&acl.aces[8..]).unwrap();
        let read = (user.hdr.type_.get(), user.hdr.access_mask.get());
        assert_eq!((read, user.fuid.get()), ((DENIED_TYPE, READ_DATA), 7));
        let group = AcePhys::view(&acl.aces[24..]).unwrap();
        assert_eq!(
            (group.hdr.flags.get(), group.fuid.get()),
            (IDENTIFIER_GROUP, 8)
        );
    }
}
