//! Changing attributes: mode, owner, times, size.
//!
//! # Source
//! OpenZFS `module/os/linux/zfs/zfs_vnops_os.c` (`zfs_getattr`, `zfs_setattr`),
//! `module/os/linux/zfs/zfs_acl.c` (`zfs_acl_chmod_setattr`, `zfs_aclset_common`).

use base::{Error, ErrorKind, ObjectId, Result};
use dmu::Tx;
use phys::ObjectType;
use phys::owner::OwnerKind;
use phys::sa::ZplAttr;
use phys::znode::{dirent_object, pflags};

use crate::attrs::{Attr, Change, Changes, MODE_PERMISSIONS, Time};
use crate::file::ATTRS_DIRTY_BYTES;
use crate::fs::Node;
use crate::{Filesystem, acl, log};

/// Flags of an ACL as a whole that `chmod` keeps (`V4_ACL_WIDE_FLAGS`).
const ACL_KEPT_FLAGS: u64 =
    pflags::ACL_AUTO_INHERIT | pflags::ACL_DEFAULTED | pflags::ACL_PROTECTED;
/// Flags that the new ACL decides (`ZFS_ACL_WIDE_FLAGS` and what the mode says).
const ACL_FLAGS: u64 = ACL_KEPT_FLAGS
    | pflags::INHERIT_ACE
    | pflags::ACL_TRIVIAL
    | pflags::ACL_OBJ_ACE
    | pflags::NO_EXECS_DENIED;

/// What [`Filesystem::setattr`] changes; `None`: unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u64>,
    /// Group.
    pub gid: Option<u64>,
    /// Size, as [`Filesystem::truncate`].
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<Time>,
    /// Modification time.
    pub mtime: Option<Time>,
    /// Change time; now, if not given and anything changes.
    pub ctime: Option<Time>,
    /// Creation time.
    pub crtime: Option<Time>,
    /// `ZFS_*` flags that users may change: [`pflags`], all of them at once.
    pub pflags: Option<u64>,
    /// Project.
    pub projid: Option<u64>,
}

/// Flags that users may change.
const USER_FLAGS: u64 = pflags::READONLY
    | pflags::HIDDEN
    | pflags::SYSTEM
    | pflags::ARCHIVE
    | pflags::IMMUTABLE
    | pflags::NOUNLINK
    | pflags::APPENDONLY
    | pflags::NODUMP
    | pflags::OPAQUE
    | pflags::REPARSE
    | pflags::OFFLINE
    | pflags::SPARSE
    | pflags::PROJINHERIT;

/// The owners, group and project that a file is given to.
fn given(attr: &Attr, set: &SetAttr) -> Vec<(OwnerKind, u64)> {
    let user = set.uid.filter(|uid| *uid != attr.uid);
    let group = set.gid.filter(|gid| *gid != attr.gid);
    let has_project = attr.pflags & pflags::PROJID != 0;
    let project = set
        .projid
        .filter(|projid| *projid != attr.projid || !has_project);
    let all = [
        (OwnerKind::User, user),
        (OwnerKind::Group, group),
        (OwnerKind::Project, project),
    ];
    let given = all.into_iter().filter_map(|(kind, id)| Some((kind, id?)));
    given.collect()
}

impl Filesystem {
    /// The attributes of a file.
    ///
    /// # Errors
    /// `NotFound`; I/O.
    #[doc(alias = "zfs_getattr")]
    pub fn getattr(&self, id: ObjectId) -> Result<Attr> {
        self.attr_of(&self.node(id)?)
    }

    /// Changes attributes; returns the new ones.
    ///
    /// # Errors
    /// `NotFound`, `ReadOnly`, `Quota`; `Permission` for an immutable file; as
    /// [`truncate`](Filesystem::truncate); I/O.
    #[doc(alias = "zfs_setattr")]
    pub fn setattr(&self, id: ObjectId, set: &SetAttr) -> Result<Attr> {
        if let Some(size) = set.size {
            self.free_space(id, size, 0)?;
        }
        let rest = SetAttr { size: None, ..*set };
        let node = match rest == SetAttr::default() {
            true => self.node(id)?,
            false => self.set_attrs_alone(id, &rest)?,
        };
        self.finish(id)?;
        self.attr_of(&node)
    }

    /// Changes attributes, but not the size, in a transaction of its own.
    fn set_attrs_alone(&self, id: ObjectId, set: &SetAttr) -> Result<Node> {
        let tx = self.begin(ATTRS_DIRTY_BYTES)?;
        let _namespace = self.namespace.read();
        let node = self.node(id)?;
        match set.mode.filter(|_| self.settings().posix_acl) {
            Some(mode) => {
                let _xattrs = node.locks.names.lock();
                node.require_alive()?;
                self.set_attrs(&tx, &node, set)?;
                self.chmod_posix_acl(&tx, &node, mode)?;
            }
            None => self.set_attrs(&tx, &node, set)?,
        }
        Ok(node)
    }

    /// The same within a transaction; with a new mode, the file gets the trivial ACL of that mode.
    pub(crate) fn set_attrs(&self, tx: &Tx, node: &Node, set: &SetAttr) -> Result<()> {
        let mut attrs = node.locks.attrs.lock();
        let attr = self.read_attr(&node.dnode, &mut attrs)?;
        let changes_flags = set.pflags.is_some();
        if attr.pflags & pflags::IMMUTABLE != 0 && !changes_flags {
            let id = attr.id;
            return Err(Error::new(
                ErrorKind::Permission,
                format!("file {id} is immutable"),
            ));
        }
        self.check_given(tx, &given(&attr, set))?;
        let mut flags = attr.pflags | pflags::ARCHIVE;
        if let Some(user_flags) = set.pflags {
            flags = flags & !USER_FLAGS | user_flags & USER_FLAGS;
        }
        let mode = set
            .mode
            .map(|mode| attr.mode & !MODE_PERMISSIONS | mode & MODE_PERMISSIONS);
        let acl = mode.map(|mode| acl::trivial(mode, attr.is_directory()));
        let mut changes = Changes::new();
        if let (Some(mode), Some(acl)) = (mode, &acl) {
            flags = flags & !ACL_FLAGS | flags & ACL_KEPT_FLAGS | pflags::ACL_TRIVIAL;
            if acl::denies_no_exec(mode) {
                flags |= pflags::NO_EXECS_DENIED;
            }
            changes.push(Change::Word(ZplAttr::Mode, mode.into()));
            if node.dnode.bonus_type() == ObjectType::SA {
                changes.push(Change::Bytes(ZplAttr::DaclAces, &acl.aces));
                changes.push(Change::Word(ZplAttr::DaclCount, acl.count));
            }
        }
        if set.mtime.is_some() {
            flags |= pflags::AV_MODIFIED;
        }
        if set.projid.is_some() {
            // A file from before the feature has no project so far.
            flags |= pflags::PROJID;
        }
        changes.extend(set.uid.map(|uid| Change::Word(ZplAttr::Uid, uid)));
        changes.extend(set.gid.map(|gid| Change::Word(ZplAttr::Gid, gid)));
        changes.extend(
            set.projid
                .map(|projid| Change::Word(ZplAttr::Projid, projid)),
        );
        changes.extend(set.mtime.map(|mtime| Change::Time(ZplAttr::Mtime, mtime)));
        changes.extend(
            set.crtime
                .map(|crtime| Change::Time(ZplAttr::Crtime, crtime)),
        );
        let atime = set.atime.or(attrs.atime);
        changes.extend(atime.map(|atime| Change::Time(ZplAttr::Atime, atime)));
        changes.push(Change::Time(
            ZplAttr::Ctime,
            set.ctime.unwrap_or_else(Time::now),
        ));
        changes.push(Change::Word(ZplAttr::Flags, flags));
        self.write_attrs(tx, &node.dnode, &mut attrs, &changes)?;
        attrs.atime = None;
        attrs.txg = tx.txg();
        drop(attrs);
        if set.uid.is_some() || set.gid.is_some() {
            self.pass_owner_on(tx, &attr, set)?;
        }
        log::setattr(self, tx, &attr, set);
        Ok(())
    }

    /// Passes a new owner on to the extended attributes that are stored as files.
    fn pass_owner_on(&self, tx: &Tx, attr: &Attr, set: &SetAttr) -> Result<()> {
        let Some(xattr_dir) = attr.xattr_dir else {
            return Ok(());
        };
        let mut objects = vec![xattr_dir];
        for entry in zap::iter(&self.objset, xattr_dir)? {
            objects.push(ObjectId(dirent_object(entry?.first_integer)));
        }
        let mut changes = Vec::new();
        changes.extend(set.uid.map(|uid| Change::Word(ZplAttr::Uid, uid)));
        changes.extend(set.gid.map(|gid| Change::Word(ZplAttr::Gid, gid)));
        for object in objects {
            let node = self.node(object)?;
            let mut attrs = node.locks.attrs.lock();
            self.write_attrs(tx, &node.dnode, &mut attrs, &changes)?;
        }
        Ok(())
    }
}
