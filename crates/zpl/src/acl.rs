//! ACLs that say no more than a mode does.
//!
//! # What it is
//! OpenZFS stores an NFSv4 ACL with every file. For files that have only a mode, it is a *trivial*
//! one: what owner, group and everyone may do, preceded by entries for modes in which a class has
//! less than the more general class (such as 0604). POSIX ACLs are something else: they are
//! extended attributes.
//!
//! # On disk
//! `ZPL_DACL_COUNT` entries of 8 bytes (`zfs_ace_hdr_t`: type, flags, mask) in `ZPL_DACL_ACES`.
//!
//! # Source
//! OpenZFS `module/os/linux/zfs/zfs_acl.c` (`acl_trivial_access_masks`, `zfs_acl_chmod`,
//! `zfs_mode_compute`).

use phys::znode::AceHdrPhys;
use phys::znode::ace::{
    ALLOWED_TYPE, APPEND_DATA, DELETE_CHILD, DENIED_TYPE, EVERYONE, EXECUTE, GROUP,
    IDENTIFIER_GROUP, OWNER, READ_ACL, READ_ATTRIBUTES, READ_DATA, READ_NAMED_ATTRS, SYNCHRONIZE,
    WRITE_ACL, WRITE_ATTRIBUTES, WRITE_DATA, WRITE_NAMED_ATTRS, WRITE_OWNER,
};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

use crate::sa::Value;

/// `OWNING_GROUP`.
const OWNING_GROUP: u16 = GROUP | IDENTIFIER_GROUP;
/// What the owner may always do.
const OWNER_ALWAYS: u32 =
    WRITE_ATTRIBUTES | WRITE_OWNER | WRITE_ACL | WRITE_NAMED_ATTRS | OTHERS_ALWAYS;
/// What everyone may always do.
const OTHERS_ALWAYS: u32 = READ_ACL | READ_ATTRIBUTES | READ_NAMED_ATTRS | SYNCHRONIZE;

/// A trivial ACL as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TrivialAcl {
    pub(crate) count: u64,
    pub(crate) aces: Value,
}

/// The access mask of the three low bits of `mode`.
fn mask(mode: u32, is_directory: bool) -> u32 {
    let write = WRITE_DATA | APPEND_DATA | if is_directory { DELETE_CHILD } else { 0 };
    [(4, READ_DATA), (2, write), (1, EXECUTE)]
        .into_iter()
        .filter(|(bit, _)| mode & bit != 0)
        .fold(0, |all, (_, mask)| all | mask)
}

/// The ACL of `mode`.
pub(crate) fn trivial(mode: u32, is_directory: bool) -> TrivialAcl {
    let [owner, group, other] = [mode >> 6 & 7, mode >> 3 & 7, mode & 7];
    let mask = |mode| mask(mode, is_directory);
    let entries = [
        // Allows the owner what the denial for the group below would take from an owner who is in the group.
        (mask(owner & !group & other), ALLOWED_TYPE, OWNER, false),
        (mask(!owner & (group | other)), DENIED_TYPE, OWNER, false),
        (mask(!group & other), DENIED_TYPE, OWNING_GROUP, false),
        (mask(owner) | OWNER_ALWAYS, ALLOWED_TYPE, OWNER, true),
        (
            mask(group) | OTHERS_ALWAYS,
            ALLOWED_TYPE,
            OWNING_GROUP,
            true,
        ),
        (mask(other) | OTHERS_ALWAYS, ALLOWED_TYPE, EVERYONE, true),
    ];
    let mut acl = TrivialAcl {
        count: 0,
        aces: Value::new(),
    };
    for (access_mask, type_, flags, is_always_there) in entries {
        if access_mask != 0 || is_always_there {
            acl.count += 1;
            let ace = AceHdrPhys {
                type_: U16::new(type_),
                flags: U16::new(flags),
                access_mask: U32::new(access_mask),
            };
            acl.aces.extend_from_slice(ace.as_bytes());
        }
    }
    acl
}

/// Whether the trivial ACL of `mode` denies execution to no class (`ZFS_NO_EXECS_DENIED`).
pub(crate) fn denies_no_exec(mode: u32) -> bool {
    mode & 0o111 == 0o111
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mode: u32, is_directory: bool, expect: &[(u16, u16, u32)]) {
        let acl = trivial(mode, is_directory);
        let words = acl.aces.chunks_exact(8).map(|ace| {
            let at = |i: usize| u32::from(ace[i]);
            let (type_, flags) = (at(0) | at(1) << 8, at(2) | at(3) << 8);
            let mask = at(4) | at(5) << 8 | at(6) << 16 | at(7) << 24;
            (type_ as u16, flags as u16, mask)
        });
        assert_eq!(words.collect::<Vec<_>>(), expect, "mode {mode:o}");
        assert_eq!(acl.count as usize, expect.len());
    }

    #[test]
    fn usual_modes_have_three_entries() {
        check(
            0o644,
            false,
            &[
                (0, 0x1000, 0x1e_019f),
                (0, 0x2040, 0x12_0089),
                (0, 0x4000, 0x12_0089),
            ],
        );
        check(
            0o755,
            true,
            &[
                (0, 0x1000, 0x1e_01ff),
                (0, 0x2040, 0x12_00a9),
                (0, 0x4000, 0x12_00a9),
            ],
        );
    }

    #[test]
    fn modes_that_deny_have_more() {
        check(
            0o604,
            false,
            &[
                (0, 0x1000, 0x1),
                (1, 0x2040, 0x1),
                (0, 0x1000, 0x1e_019f),
                (0, 0x2040, 0x12_0088),
                (0, 0x4000, 0x12_0089),
            ],
        );
        check(
            0o070,
            false,
            &[
                (1, 0x1000, 0x27),
                (0, 0x1000, 0x1e_0198),
                (0, 0x2040, 0x12_00af),
                (0, 0x4000, 0x12_0088),
            ],
        );
    }
}
