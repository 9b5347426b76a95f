//! Owners: who space is counted for, what is counted, and where that and the limits are.
//!
//! # On disk
//! What is used is in special objects of the objset, one for each kind of owner: ZAPs from an id in hexadecimal to
//! bytes, and from `obj-` and an id to a number of objects. Limits are in six more ZAPs, which the master node names by
//! the prefixes of their properties (`userquota@`): from an id to bytes or objects. Such a ZAP is made with the first
//! limit and stays; an owner without a limit is not in it.
//!
//! # Source
//! OpenZFS include/sys/zfs_quota.h, module/zcommon/zfs_prop.c (`zfs_userquota_prop_prefixes`), module/zfs/zfs_quota.c
//! (`zfs_userquota_prop_to_obj`).

use crate::objset::{
    GROUPUSED_OBJECT, OBJSET_FLAG_PROJECTQUOTA_COMPLETE, OBJSET_FLAG_USERACCOUNTING_COMPLETE,
    OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE, PROJECTUSED_OBJECT, USERUSED_OBJECT,
};

/// `DMU_OBJACCT_PREFIX`: before an id whose objects are counted.
pub const OBJECTS_PREFIX: &str = "obj-";

/// Who space is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerKind {
    /// The owner of a file.
    User,
    /// Its group.
    Group,
    /// Its project.
    Project,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Space.
    Bytes,
    /// Files, directories and the like.
    Objects,
}

/// One kind of owner and what is counted of it: something that may have a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerCount {
    /// Whose.
    pub kind: OwnerKind,
    /// What.
    pub counted: Counted,
}

impl OwnerKind {
    /// As it is called in names of properties.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            OwnerKind::User => "user",
            OwnerKind::Group => "group",
            OwnerKind::Project => "project",
        }
    }

    /// The object that says what each owner of this kind uses.
    #[must_use]
    pub fn used_object(self) -> u64 {
        match self {
            OwnerKind::User => USERUSED_OBJECT,
            OwnerKind::Group => GROUPUSED_OBJECT,
            OwnerKind::Project => PROJECTUSED_OBJECT,
        }
    }
}

impl OwnerCount {
    /// All there are, those of a kind next to each other.
    pub const ALL: [OwnerCount; 6] = [
        OwnerCount::new(OwnerKind::User, Counted::Bytes),
        OwnerCount::new(OwnerKind::User, Counted::Objects),
        OwnerCount::new(OwnerKind::Group, Counted::Bytes),
        OwnerCount::new(OwnerKind::Group, Counted::Objects),
        OwnerCount::new(OwnerKind::Project, Counted::Bytes),
        OwnerCount::new(OwnerKind::Project, Counted::Objects),
    ];

    /// What is counted of such owners.
    #[must_use]
    pub const fn new(kind: OwnerKind, counted: Counted) -> OwnerCount {
        OwnerCount { kind, counted }
    }

    /// The entry of the master node that names the limits, which is also the prefix of the properties.
    #[must_use]
    #[doc(alias = "zfs_userquota_prop_prefixes")]
    pub fn quota_entry(self) -> &'static str {
        match (self.kind, self.counted) {
            (OwnerKind::User, Counted::Bytes) => "userquota@",
            (OwnerKind::User, Counted::Objects) => "userobjquota@",
            (OwnerKind::Group, Counted::Bytes) => "groupquota@",
            (OwnerKind::Group, Counted::Objects) => "groupobjquota@",
            (OwnerKind::Project, Counted::Bytes) => "projectquota@",
            (OwnerKind::Project, Counted::Objects) => "projectobjquota@",
        }
    }

    /// The prefix of the properties that say what is used.
    #[must_use]
    pub fn used_prefix(self) -> &'static str {
        match (self.kind, self.counted) {
            (OwnerKind::User, Counted::Bytes) => "userused@",
            (OwnerKind::User, Counted::Objects) => "userobjused@",
            (OwnerKind::Group, Counted::Bytes) => "groupused@",
            (OwnerKind::Group, Counted::Objects) => "groupobjused@",
            (OwnerKind::Project, Counted::Bytes) => "projectused@",
            (OwnerKind::Project, Counted::Objects) => "projectobjused@",
        }
    }

    /// The entry of an owner in the object that says what is used.
    #[must_use]
    pub fn used_key(self, id: u64) -> String {
        match self.counted {
            Counted::Bytes => quota_key(id),
            Counted::Objects => format!("{OBJECTS_PREFIX}{id:x}"),
        }
    }

    /// The flags of an objset in which all of this is counted.
    #[must_use]
    #[doc(alias = "dmu_objset_userspace_present")]
    pub fn needs_flags(self) -> u64 {
        let mut flags = OBJSET_FLAG_USERACCOUNTING_COMPLETE;
        if self.counted == Counted::Objects {
            flags |= OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE;
        }
        if self.kind == OwnerKind::Project {
            flags |= OBJSET_FLAG_PROJECTQUOTA_COMPLETE;
        }
        flags
    }
}

/// The entry of an owner among the limits.
#[must_use]
pub fn quota_key(id: u64) -> String {
    format!("{id:x}")
}

/// Whether files can have that project: the numbers have 32 bits, and the last one says that there is none.
#[must_use]
#[doc(alias = "zpl_is_valid_projid")]
pub fn is_project(id: u64) -> bool {
    id < u64::from(u32::MAX)
}
