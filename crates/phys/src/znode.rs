//! Files: old znodes, ACLs, flags, directory entries, FUIDs, the master node.
//!
//! # What it is
//! ZPL version 5 keeps attributes in [`crate::sa`]. Before that, the bonus was a [`ZnodePhys`]
//! with an ACL inside; such files are read, and converted to SA when they are changed. ACLs are
//! arrays of entries of different sizes: owner, group and everyone need only [`AceHdrPhys`].
//!
//! # Source
//! OpenZFS include/sys/zfs_znode.h, zfs_sa.h, zfs_acl.h, zfs_fuid.h,
//! include/os/linux/spl/sys/acl.h @be7657e3.

use crate::Phys;
use crate::bits::Field;
use crate::layout::phys_struct;
use base::{Error, Result};
use std::mem::size_of;
use zerocopy::little_endian::{U16, U32, U64};

phys_struct! {
    /// `znode_phys_t`: bonus of a file before ZPL version 5.
    #[doc(alias = "znode_phys_t")]
    pub struct ZnodePhys: 264 {
        /// zp_atime: seconds, nanoseconds
        0 atime: [U64; 2],
        /// zp_mtime
        16 mtime: [U64; 2],
        /// zp_ctime
        32 ctime: [U64; 2],
        /// zp_crtime
        48 crtime: [U64; 2],
        /// zp_gen: txg of creation
        64 gen_: U64,
        /// zp_mode
        72 mode: U64,
        /// zp_size
        80 size: U64,
        /// zp_parent
        88 parent: U64,
        /// zp_links
        96 links: U64,
        /// zp_xattr
        104 xattr: U64,
        /// zp_rdev
        112 rdev: U64,
        /// zp_flags: `ZFS_*`
        120 flags: U64,
        /// zp_uid
        128 uid: U64,
        /// zp_gid
        136 gid: U64,
        /// zp_zap: unused
        144 zap: U64,
        /// zp_pad: zero
        152 pad: [U64; 3],
        /// zp_acl
        176 acl: ZfsAclPhys,
    }

    /// `zfs_acl_phys_t`: the ACL of an old znode.
    #[doc(alias = "zfs_acl_phys_t")]
    pub struct ZfsAclPhys: 88 {
        /// z_acl_extern_obj: object with entries that do not fit, or 0
        0 extern_obj: U64,
        /// z_acl_size: bytes of entries; version 0: number of entries
        8 size: U32,
        /// z_acl_version: `ZFS_ACL_VERSION_*`
        12 version: U16,
        /// z_acl_count: entries; version 0: padding
        14 count: U16,
        /// z_ace_data
        16 ace_data: [u8; 72],
    }

    /// `zfs_oldace_t`: an entry of ACL version 0.
    #[doc(alias = "zfs_oldace_t")]
    pub struct OldAcePhys: 12 {
        /// z_fuid: user or group
        0 fuid: U32,
        /// z_access_mask
        4 access_mask: U32,
        /// z_flags
        8 flags: U16,
        /// z_type
        10 type_: U16,
    }

    /// `zfs_ace_hdr_t`: the start of an entry; all of it for owner, group and everyone.
    #[doc(alias = "zfs_ace_hdr_t")]
    pub struct AceHdrPhys: 8 {
        /// z_type: `ACE_*_TYPE`
        0 type_: U16,
        /// z_flags: inheritance, and owner, group or everyone if it is for one of those
        2 flags: U16,
        /// z_access_mask
        4 access_mask: U32,
    }

    /// `zfs_ace_t`: an entry for a user or group.
    #[doc(alias = "zfs_ace_t")]
    pub struct AcePhys: 16 {
        /// z_hdr
        0 hdr: AceHdrPhys,
        /// z_fuid: user or group
        8 fuid: U64,
    }

    /// `zfs_object_ace_t`: an entry with object types, from CIFS.
    #[doc(alias = "zfs_object_ace_t")]
    pub struct ObjectAcePhys: 48 {
        /// z_ace
        0 ace: AcePhys,
        /// z_object_type
        16 object_type: [u8; 16],
        /// z_inherit_type
        32 inherit_type: [u8; 16],
    }
}

/// `ZPL_VERSION`: the version of new file systems.
pub const ZPL_VERSION: u64 = 5;
/// `ZPL_VERSION_SA`: the first version with attributes in SA.
pub const ZPL_VERSION_SA: u64 = 5;

/// `ZFS_ACL_VERSION`: the version of ACLs since ZPL version 3, with entries of different sizes.
pub(crate) const ZFS_ACL_VERSION: u16 = 1;

/// Bits of `ZPL_FLAGS`.
pub mod pflags {
    /// `ZFS_XATTR`: an extended attribute, or the directory of them.
    pub const XATTR: u64 = 0x1;
    /// `ZFS_INHERIT_ACE`: the ACL has entries to inherit.
    pub const INHERIT_ACE: u64 = 0x2;
    /// `ZFS_ACL_TRIVIAL`: the ACL says no more than the mode.
    pub const ACL_TRIVIAL: u64 = 0x4;
    /// `ZFS_ACL_OBJ_ACE`: the ACL has object entries.
    pub const ACL_OBJ_ACE: u64 = 0x8;
    /// `ZFS_ACL_PROTECTED`: the ACL does not inherit.
    pub const ACL_PROTECTED: u64 = 0x10;
    /// `ZFS_ACL_DEFAULTED`.
    pub const ACL_DEFAULTED: u64 = 0x20;
    /// `ZFS_ACL_AUTO_INHERIT`.
    pub const ACL_AUTO_INHERIT: u64 = 0x40;
    /// `ZFS_NO_EXECS_DENIED`: everyone may execute.
    pub const NO_EXECS_DENIED: u64 = 0x100;
    /// `ZFS_READONLY`.
    pub const READONLY: u64 = 0x1_0000_0000;
    /// `ZFS_HIDDEN`.
    pub const HIDDEN: u64 = 0x2_0000_0000;
    /// `ZFS_SYSTEM`.
    pub const SYSTEM: u64 = 0x4_0000_0000;
    /// `ZFS_ARCHIVE`.
    pub const ARCHIVE: u64 = 0x8_0000_0000;
    /// `ZFS_IMMUTABLE`.
    pub const IMMUTABLE: u64 = 0x10_0000_0000;
    /// `ZFS_NOUNLINK`.
    pub const NOUNLINK: u64 = 0x20_0000_0000;
    /// `ZFS_APPENDONLY`.
    pub const APPENDONLY: u64 = 0x40_0000_0000;
    /// `ZFS_NODUMP`.
    pub const NODUMP: u64 = 0x80_0000_0000;
    /// `ZFS_OPAQUE`.
    pub const OPAQUE: u64 = 0x100_0000_0000;
    /// `ZFS_AV_MODIFIED`.
    pub const AV_MODIFIED: u64 = 0x400_0000_0000;
    /// `ZFS_BONUS_SCANSTAMP`: the mark of a virus scanner is behind the znode of an old file.
    pub const BONUS_SCANSTAMP: u64 = 0x200_0000_0000;
    /// `ZFS_REPARSE`.
    pub const REPARSE: u64 = 0x800_0000_0000;
    /// `ZFS_OFFLINE`.
    pub const OFFLINE: u64 = 0x1000_0000_0000;
    /// `ZFS_SPARSE`.
    pub const SPARSE: u64 = 0x2000_0000_0000;
    /// `ZFS_PROJINHERIT`: new files take the directory's project.
    pub const PROJINHERIT: u64 = 0x4000_0000_0000;
    /// `ZFS_PROJID`: the file has a project.
    pub const PROJID: u64 = 0x8000_0000_0000;
}

/// Types, flags and permissions of ACL entries.
pub mod ace {
    /// `ACE_ACCESS_ALLOWED_ACE_TYPE`.
    pub const ALLOWED_TYPE: u16 = 0;
    /// `ACE_ACCESS_DENIED_ACE_TYPE`.
    pub const DENIED_TYPE: u16 = 1;
    /// `ACE_ACCESS_ALLOWED_OBJECT_ACE_TYPE`: first of the types with object types ...
    pub const ALLOWED_OBJECT_TYPE: u16 = 5;
    /// `ACE_SYSTEM_ALARM_OBJECT_ACE_TYPE`: ... and the last.
    pub(crate) const ALARM_OBJECT_TYPE: u16 = 8;

    /// `ACE_FILE_INHERIT_ACE`.
    pub const FILE_INHERIT: u16 = 0x1;
    /// `ACE_IDENTIFIER_GROUP`: the FUID is a group.
    pub const IDENTIFIER_GROUP: u16 = 0x40;
    /// `ACE_OWNER`: the owner; with `IDENTIFIER_GROUP` and [`GROUP`]: the owning group.
    pub const OWNER: u16 = 0x1000;
    /// `ACE_GROUP`.
    pub const GROUP: u16 = 0x2000;
    /// `ACE_EVERYONE`.
    pub const EVERYONE: u16 = 0x4000;
    /// `ACE_TYPE_FLAGS`: the flags that together say what kind of user or group an entry is for.
    pub const TYPE_FLAGS: u16 = OWNER | GROUP | EVERYONE | IDENTIFIER_GROUP;

    /// `ACE_READ_DATA`, `ACE_LIST_DIRECTORY`.
    pub const READ_DATA: u32 = 0x1;
    /// `ACE_WRITE_DATA`, `ACE_ADD_FILE`.
    pub const WRITE_DATA: u32 = 0x2;
    /// `ACE_APPEND_DATA`, `ACE_ADD_SUBDIRECTORY`.
    pub const APPEND_DATA: u32 = 0x4;
    /// `ACE_READ_NAMED_ATTRS`.
    pub const READ_NAMED_ATTRS: u32 = 0x8;
    /// `ACE_WRITE_NAMED_ATTRS`.
    pub const WRITE_NAMED_ATTRS: u32 = 0x10;
    /// `ACE_EXECUTE`.
    pub const EXECUTE: u32 = 0x20;
    /// `ACE_DELETE_CHILD`.
    pub const DELETE_CHILD: u32 = 0x40;
    /// `ACE_READ_ATTRIBUTES`.
    pub const READ_ATTRIBUTES: u32 = 0x80;
    /// `ACE_WRITE_ATTRIBUTES`.
    pub const WRITE_ATTRIBUTES: u32 = 0x100;
    /// `ACE_READ_ACL`.
    pub const READ_ACL: u32 = 0x2_0000;
    /// `ACE_WRITE_ACL`.
    pub const WRITE_ACL: u32 = 0x4_0000;
    /// `ACE_WRITE_OWNER`.
    pub const WRITE_OWNER: u32 = 0x8_0000;
    /// `ACE_SYNCHRONIZE`.
    pub const SYNCHRONIZE: u32 = 0x10_0000;
}

impl AceHdrPhys {
    /// Bytes of the entry that begins with this header (`zfs_ace_fuid_size`).
    #[must_use]
    #[doc(alias = "zfs_ace_fuid_size")]
    pub fn ace_size(&self) -> usize {
        let who = self.flags.get() & ace::TYPE_FLAGS;
        let owning_group = ace::GROUP | ace::IDENTIFIER_GROUP;
        let is_special = [ace::OWNER, ace::EVERYONE, owning_group].contains(&who);
        match self.type_.get() {
            ace::ALLOWED_OBJECT_TYPE..=ace::ALARM_OBJECT_TYPE => ObjectAcePhys::SIZE,
            ace::ALLOWED_TYPE | ace::DENIED_TYPE if is_special => AceHdrPhys::SIZE,
            _ => AcePhys::SIZE,
        }
    }
}

/// The entries of an ACL of version 1: each item is the header and all bytes of the entry.
///
/// Ends with an error at an entry that does not fit.
pub fn aces(bytes: &[u8]) -> impl Iterator<Item = Result<(AceHdrPhys, &[u8])>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let item = split_ace(rest);
        rest = item.as_ref().map_or(&[][..], |(_, ace)| {
            rest.get(ace.len()..).unwrap_or_default()
        });
        Some(item)
    })
}

fn split_ace(rest: &[u8]) -> Result<(AceHdrPhys, &[u8])> {
    let header = AceHdrPhys::read(rest)?;
    let size = header.ace_size();
    let ace = rest.get(..size);
    let short = || Error::corrupt(format!("ACE of {size} bytes in {}", rest.len()));
    Ok((header, ace.ok_or_else(short)?))
}

/// Names in the master node, object [`MASTER_NODE_OBJ`] of a file system.
pub mod master_node {
    /// `ZFS_UNLINKED_SET`: ZAP of files without a name that are still open or not yet freed.
    pub const UNLINKED_SET: &str = "DELETE_QUEUE";
    /// `ZFS_ROOT_OBJ`: the root directory.
    pub const ROOT: &str = "ROOT";
    /// `ZPL_VERSION_STR`.
    pub const VERSION: &str = "VERSION";
    /// `ZFS_SA_ATTRS`: the SA master node.
    pub const SA_ATTRS: &str = "SA_ATTRS";
    /// Unicode normalization of names, a property fixed at creation.
    pub const NORMALIZATION: &str = "normalization";
    /// Whether names must be UTF-8.
    pub const UTF8ONLY: &str = "utf8only";
    /// How names compare.
    pub const CASESENSITIVITY: &str = "casesensitivity";
}

/// `zfs_case_t`, the values of [`master_node::CASESENSITIVITY`].
pub mod case {
    /// `ZFS_CASE_SENSITIVE`.
    pub const SENSITIVE: u64 = 0;
    /// `ZFS_CASE_INSENSITIVE`.
    pub const INSENSITIVE: u64 = 1;
    /// `ZFS_CASE_MIXED`: case is ignored for those who ask for it.
    pub const MIXED: u64 = 2;
}

/// `MASTER_NODE_OBJ`.
pub const MASTER_NODE_OBJ: u64 = 1;
/// `ZVOL_OBJ`: the data of a volume.
pub const ZVOL_OBJ: u64 = 1;
/// `ZVOL_ZAP_OBJ`: the properties of a volume.
pub const ZVOL_ZAP_OBJ: u64 = 2;

const DIRENT_TYPE: Field = Field::new(60, 4);
const DIRENT_OBJ: Field = Field::new(0, 48);

/// `ZFS_DIRENT_TYPE`: the file type of a directory entry, mode bits 12 to 15.
#[must_use]
pub fn dirent_type(value: u64) -> u8 {
    DIRENT_TYPE.get(value) as u8
}

/// `ZFS_DIRENT_OBJ`: the object of a directory entry.
#[must_use]
pub fn dirent_object(value: u64) -> u64 {
    DIRENT_OBJ.get(value)
}

/// The value of a directory entry; `mode` gives the file type.
#[must_use]
#[doc(alias = "ZFS_DIRENT_MAKE")]
pub fn dirent_new(object: u64, mode: u64) -> u64 {
    let type_ = (mode & 0o170_000).wrapping_shr(12);
    DIRENT_TYPE.set(DIRENT_OBJ.set(0, object), type_)
}

/// `FUID_INDEX`: the domain of a FUID; 0: a plain id.
#[must_use]
pub fn fuid_index(fuid: u64) -> u32 {
    fuid.wrapping_shr(32) as u32
}

/// `FUID_RID`: the id within the domain.
#[must_use]
pub fn fuid_rid(fuid: u64) -> u32 {
    fuid as u32
}

/// `FUID_ENCODE`.
#[must_use]
pub fn fuid_new(index: u32, rid: u32) -> u64 {
    u64::from(index).wrapping_shl(32) | u64::from(rid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    fn header(type_: u16, flags: u16) -> AceHdrPhys {
        AceHdrPhys {
            type_: type_.into(),
            flags: flags.into(),
            access_mask: 7.into(),
        }
    }

    #[test]
    fn ace_sizes_follow_type_and_who() {
        let group = ace::GROUP | ace::IDENTIFIER_GROUP;
        assert_eq!(header(ace::ALLOWED_TYPE, ace::OWNER).ace_size(), 8);
        assert_eq!(
            header(ace::DENIED_TYPE, group | ace::FILE_INHERIT).ace_size(),
            8
        );
        assert_eq!(
            header(ace::ALLOWED_TYPE, ace::IDENTIFIER_GROUP).ace_size(),
            16
        );
        assert_eq!(header(ace::ALLOWED_TYPE, 0).ace_size(), 16);
        assert_eq!(header(ace::ALLOWED_OBJECT_TYPE, 0).ace_size(), 48);
    }

    #[test]
    fn aces_follow_each_other() {
        let mut bytes = header(ace::ALLOWED_TYPE, ace::EVERYONE).as_bytes().to_vec();
        bytes.extend(
            AcePhys {
                hdr: header(0, 0),
                fuid: 1000.into(),
            }
            .as_bytes(),
        );
        let sizes: Vec<_> = aces(&bytes).map(|a| a.unwrap().1.len()).collect();
        assert_eq!(sizes, [8, 16]);
        let error = aces(&bytes[..20]).last().unwrap().unwrap_err();
        assert_eq!(error.context(), "ACE of 16 bytes in 12");
    }

    #[test]
    fn directory_entries_have_object_and_type() {
        let entry = dirent_new(0x1234, 0o100_644);
        assert_eq!(entry, 0x8000_0000_0000_1234);
        assert_eq!((dirent_object(entry), dirent_type(entry)), (0x1234, 8));
        assert_eq!(
            fuid_new(fuid_index(5 << 32 | 6), fuid_rid(5 << 32 | 6)),
            5 << 32 | 6
        );
    }

    proptest! {
        #[test]
        fn prop_any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(aces(&bytes).count() <= 26);
        }
    }
}
