//! POSIX ACLs and the mode: two views of the same permissions.
//!
//! # What it is
//! With `acltype=posix` a file's ACL is the extended attribute `system.posix_acl_access`, and a
//! directory may have one for what is made in it, `system.posix_acl_default`. The mode follows the
//! ACL when that is set, and the ACL follows the mode on `chmod`; an ACL that says no more than
//! the mode is not kept.
//!
//! # On disk
//! ```text
//! 0  4  version, 2
//! 4  8  entries: tag (2), permissions (2), user or group (4), in order of tag
//! ```
//!
//! # Source
//! OpenZFS `module/os/linux/zfs/zpl_xattr.c` (`zpl_set_acl_impl`, `zpl_init_acl`,
//! `zpl_chmod_acl`); Linux `include/uapi/linux/posix_acl_xattr.h`, acl(5).

use base::{Error, Result};
use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

/// The extended attribute of a file's own ACL.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The extended attribute of a directory's ACL for what is made in it.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// `POSIX_ACL_XATTR_VERSION`.
const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The id in entries that do not need one.
const NO_ID: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// A POSIX ACL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PosixAcl(Vec<Entry>);

impl PosixAcl {
    /// Reads the value of an extended attribute.
    pub(crate) fn parse(bytes: &[u8]) -> Result<PosixAcl> {
        let bad = |what: &str| Error::invalid(format!("posix acl: {what}"));
        let (version, rest) = U32::read_from_prefix(bytes).map_err(|_| bad("too short"))?;
        if version.get() != VERSION || !rest.len().is_multiple_of(8) {
            return Err(bad("version or length"));
        }
        let entries = rest.chunks_exact(8).map(|entry| {
            let half = |at: usize| {
                U16::read_from_bytes(&entry[at..at + 2])
                    .expect("the slice has 2 bytes")
                    .get()
            };
            let id = U32::read_from_bytes(&entry[4..])
                .expect("the slice has 4 bytes")
                .get();
            Entry {
                tag: half(0),
                permissions: half(2) & 7,
                id,
            }
        });
        let acl = PosixAcl(entries.collect());
        let count = |tag: u16| acl.0.iter().filter(|entry| entry.tag == tag).count();
        let known = [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER];
        if acl.0.iter().any(|entry| !known.contains(&entry.tag)) {
            return Err(bad("an unknown tag"));
        }
        let is_named = count(USER) + count(GROUP) > 0;
        if [USER_OBJ, GROUP_OBJ, OTHER]
            .iter()
            .any(|tag| count(*tag) != 1)
            || count(MASK) > 1
            || (is_named && count(MASK) == 0)
        {
            return Err(bad("entries are missing or there twice"));
        }
        Ok(acl)
    }

    /// The value of the extended attribute.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = U32::new(VERSION).to_bytes().to_vec();
        for entry in &self.0 {
            bytes.extend_from_slice(&U16::new(entry.tag).to_bytes());
            bytes.extend_from_slice(&U16::new(entry.permissions).to_bytes());
            let id = if matches!(entry.tag, USER | GROUP) {
                entry.id
            } else {
                NO_ID
            };
            bytes.extend_from_slice(&U32::new(id).to_bytes());
        }
        bytes
    }

    fn of(&self, tag: u16) -> Option<u32> {
        self.0
            .iter()
            .find(|entry| entry.tag == tag)
            .map(|entry| entry.permissions.into())
    }

    /// The permission bits of the mode that corresponds to this ACL.
    pub(crate) fn mode(&self) -> u32 {
        let group = self.of(MASK).or(self.of(GROUP_OBJ));
        let [owner, other] = [USER_OBJ, OTHER].map(|tag| self.of(tag).unwrap_or(0));
        owner << 6 | group.unwrap_or(0) << 3 | other
    }

    /// Whether the mode expresses all of it (`posix_acl_equiv_mode`).
    pub(crate) fn is_mode(&self) -> bool {
        self.0
            .iter()
            .all(|entry| matches!(entry.tag, USER_OBJ | GROUP_OBJ | OTHER))
    }

    /// The ACL after `chmod` to `mode` (`posix_acl_chmod`).
    pub(crate) fn with_mode(&self, mode: u32) -> PosixAcl {
        let has_mask = self.of(MASK).is_some();
        self.map(|entry| match entry.tag {
            USER_OBJ => Some(mode >> 6),
            MASK => Some(mode >> 3),
            GROUP_OBJ if !has_mask => Some(mode >> 3),
            OTHER => Some(mode),
            _ => None,
        })
    }

    /// The ACL of a file that is made with `mode` below a directory with this default
    /// (`posix_acl_create`): it allows only what both allow.
    pub(crate) fn for_new(&self, mode: u32) -> PosixAcl {
        let own = self.mode();
        self.with_mode(own & mode)
    }

    fn map(&self, permissions: impl Fn(&Entry) -> Option<u32>) -> PosixAcl {
        let entries = self.0.iter().map(|entry| match permissions(entry) {
            Some(bits) => Entry {
                permissions: (bits & 7) as u16,
                ..*entry
            },
            None => *entry,
        });
        PosixAcl(entries.collect())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// rwx for the owner, r-x for user 5, rwx for the group, mask r-x, nothing for others.
    pub(crate) fn sample() -> Vec<u8> {
        let entries = [
            (1, 7, NO_ID),
            (2, 5, 5),
            (4, 7, NO_ID),
            (16, 5, NO_ID),
            (32, 0, NO_ID),
        ];
        let entries = entries.map(|(tag, permissions, id)| Entry {
            tag,
            permissions,
            id,
        });
        PosixAcl(entries.to_vec()).to_bytes()
    }

    #[test]
    fn mode_and_acl_follow_each_other() {
        let acl = PosixAcl::parse(&sample()).unwrap();
        assert_eq!(acl.to_bytes(), sample());
        assert_eq!((acl.mode(), acl.is_mode()), (0o750, false));
        let after = acl.with_mode(0o644);
        assert_eq!((after.mode(), after.of(GROUP_OBJ)), (0o644, Some(7)));
        assert_eq!(acl.for_new(0o644).mode(), 0o640);
    }

    #[test]
    fn incomplete_acls_are_refused() {
        assert!(PosixAcl::parse(&sample()[..20]).is_err());
        assert!(PosixAcl::parse(&sample()[..12]).is_err());
        assert!(PosixAcl::parse(b"\x03\0\0\0").is_err());
        assert!(PosixAcl::parse(b"").is_err());
    }
}
