//! Making files: an object, its attributes, its place in a project.
//!
//! # Source
//! OpenZFS `module/os/linux/zfs/zfs_znode_os.c` (`zfs_mknode`), `module/os/linux/zfs/zfs_acl.c`
//! (`zfs_acl_ids_create`).

use base::{ObjectId, Result};
use dmu::{NewObject, Tx};
use phys::ObjectType;
use phys::sa::ZplAttr;
use phys::znode::pflags;
use zap::NewZap;

use crate::Filesystem;
use crate::acl;
use crate::attrs::{Attr, Change, Changes, FileType, Time};
use crate::fs::{Node, NodeLocks};

/// `S_ISGID`.
const MODE_SETGID: u32 = 0o2000;

/// Owner and permissions of a new file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Create {
    /// Permissions, with the umask applied.
    pub mode: u32,
    /// Owner.
    pub uid: u64,
    /// Group, unless the directory passes its own on (setgid).
    pub gid: u64,
}

/// An object that a log record names: it must get this number again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) id: ObjectId,
    pub(crate) slots: u8,
    pub(crate) generation: u64,
    pub(crate) crtime: Time,
}

/// What a new file is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewNode<'a> {
    pub(crate) file_type: FileType,
    pub(crate) create: Create,
    pub(crate) rdev: u64,
    /// The target of a symbolic link.
    pub(crate) target: Option<&'a [u8]>,
    pub(crate) is_root: bool,
    /// The directory of extended attributes of its parent.
    pub(crate) is_xattr_dir: bool,
    pub(crate) claim: Option<Claim>,
}

impl<'a> NewNode<'a> {
    pub(crate) fn new(file_type: FileType, create: Create) -> NewNode<'a> {
        NewNode {
            file_type,
            create,
            rdev: 0,
            target: None,
            is_root: false,
            is_xattr_dir: false,
            claim: None,
        }
    }

    pub(crate) fn root(uid: u64, gid: u64) -> NewNode<'a> {
        let create = Create {
            mode: 0o755,
            uid,
            gid,
        };
        NewNode {
            is_root: true,
            ..NewNode::new(FileType::Directory, create)
        }
    }

    /// The owners of the file in directory `parent`.
    pub(crate) fn owner(&self, parent: &Attr) -> dmu::Owner {
        dmu::Owner {
            user: self.create.uid,
            group: self.gid_in(parent),
            project: match self.may_have_project() {
                true => inherited_project(parent),
                false => 0,
            },
        }
    }

    /// Only regular files and directories have projects.
    fn may_have_project(&self) -> bool {
        [FileType::Regular, FileType::Directory].contains(&self.file_type)
    }

    /// Whether the parent passes on its group, and to directories the bit that says so. A log record has what
    /// was passed on, perhaps by a parent that was changed later or before.
    fn inherits_group(&self, parent: &Attr) -> bool {
        parent.mode & MODE_SETGID != 0 && self.claim.is_none()
    }

    fn gid_in(&self, parent: &Attr) -> u64 {
        if self.inherits_group(parent) && !self.is_xattr_dir {
            parent.gid
        } else {
            self.create.gid
        }
    }

    fn mode_in(&self, parent: &Attr) -> u32 {
        let is_directory = self.file_type == FileType::Directory;
        let inherits = is_directory && self.inherits_group(parent) && !self.is_root;
        let setgid = if inherits { MODE_SETGID } else { 0 };
        self.file_type.mode() | self.create.mode & crate::attrs::MODE_PERMISSIONS | setgid
    }
}

fn inherited_project(parent: &Attr) -> u64 {
    if parent.pflags & pflags::PROJINHERIT != 0 {
        parent.projid
    } else {
        0
    }
}

impl Filesystem {
    /// Makes an object for a file in directory `parent`; the caller enters it there.
    pub(crate) fn make_node(&self, tx: &Tx, parent: &Attr, new: &NewNode<'_>) -> Result<Node> {
        let dnode = self.make_object(tx, new)?;
        let node = Node {
            locks: dnode.user(NodeLocks::default),
            dnode,
        };
        self.write_made_attrs(tx, parent, new, &node)?;
        node.locks.attrs.lock().txg = tx.txg();
        Ok(node)
    }

    fn make_object(&self, tx: &Tx, new: &NewNode<'_>) -> Result<std::sync::Arc<dmu::Dnode>> {
        let slots = match new.claim {
            Some(claim) => claim.slots,
            None => (self.objset.props().dnodesize / 512).clamp(1, 32) as u8,
        };
        let bonus_len = usize::from(slots) * 512 - 64 - 128;
        if new.file_type == FileType::Directory {
            let zap = NewZap {
                bonus_type: ObjectType::SA,
                bonus_len,
                dnode_slots: slots,
                flags: self.names.flags,
                ..NewZap::new(ObjectType::DIRECTORY_CONTENTS)
            };
            return match new.claim {
                Some(claim) => zap::create_claim(&self.objset, tx, claim.id, &zap),
                None => zap::create_with(&self.objset, tx, &zap),
            };
        }
        let object = NewObject::new(ObjectType::PLAIN_FILE_CONTENTS)
            .bonus(ObjectType::SA, bonus_len)
            .dnode_slots(slots);
        match new.claim {
            Some(claim) => self.objset.object_claim(tx, claim.id, &object),
            None => self.objset.object_alloc(tx, &object),
        }
    }

    fn write_made_attrs(
        &self,
        tx: &Tx,
        parent: &Attr,
        new: &NewNode<'_>,
        node: &Node,
    ) -> Result<()> {
        let is_directory = new.file_type == FileType::Directory;
        let mode = new.mode_in(parent);
        let acl = acl::trivial(mode, is_directory);
        let now = new.claim.map_or_else(Time::now, |claim| claim.crtime);
        let generation = new.claim.map_or(tx.txg().0, |claim| claim.generation);
        let parent_id = if new.is_root { node.id() } else { parent.id };
        let size = match new.target {
            Some(target) => target.len() as u64,
            None if is_directory => 2,
            None => 0,
        };
        let has_project = self.objset.props().project_quota && new.may_have_project();
        let owner = new.owner(parent);
        let mut changes = Changes::from_iter([
            Change::Word(ZplAttr::Mode, mode.into()),
            Change::Word(ZplAttr::Size, size),
            Change::Word(ZplAttr::Gen, generation),
            Change::Word(ZplAttr::Uid, owner.user),
            Change::Word(ZplAttr::Gid, owner.group),
            Change::Word(ZplAttr::Parent, parent_id.0),
            Change::Word(ZplAttr::Flags, made_flags(parent, new, mode, has_project)),
            Change::Time(ZplAttr::Atime, now),
            Change::Time(ZplAttr::Mtime, now),
            Change::Time(ZplAttr::Ctime, now),
            Change::Time(ZplAttr::Crtime, now),
            Change::Word(ZplAttr::Links, if is_directory { 2 } else { 1 }),
        ]);
        if has_project {
            changes.push(Change::Word(ZplAttr::Projid, owner.project));
        }
        if new.file_type.is_device() {
            changes.push(Change::Word(ZplAttr::Rdev, new.rdev));
        }
        changes.push(Change::Word(ZplAttr::DaclCount, acl.count));
        changes.push(Change::Bytes(ZplAttr::DaclAces, &acl.aces));
        if let Some(target) = new.target {
            changes.push(Change::Bytes(ZplAttr::Symlink, target));
        }
        self.write_new_attrs(tx, &node.dnode, &changes)
    }
}

/// `ZFS_*` flags of a new file.
fn made_flags(parent: &Attr, new: &NewNode<'_>, mode: u32, has_project: bool) -> u64 {
    let is_directory = new.file_type == FileType::Directory;
    let inherits = new.may_have_project();
    let flags = [
        (
            true,
            pflags::ARCHIVE | pflags::AV_MODIFIED | pflags::ACL_TRIVIAL,
        ),
        (is_directory, pflags::ACL_AUTO_INHERIT),
        (has_project, pflags::PROJID),
        (new.is_xattr_dir || parent.is_xattr(), pflags::XATTR),
        (inherits, parent.pflags & pflags::PROJINHERIT),
        (acl::denies_no_exec(mode), pflags::NO_EXECS_DENIED),
    ];
    flags
        .into_iter()
        .filter(|(applies, _)| *applies)
        .fold(0, |all, (_, flag)| all | flag)
}
