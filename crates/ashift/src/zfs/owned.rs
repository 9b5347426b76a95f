//! `userused@NAME`, `userquota@NAME` and similar properties of a file system or snapshot.
//!
//! Source: OpenZFS lib/libzfs/libzfs_dataset.c (`zfs_prop_get_userquota_common`), module/zfs/zfs_quota.c
//! (`zfs_userspace_one`).

use admin::prop::owner_property;
use phys::owner::{OwnerKind, is_project};

use super::target::Target;
use crate::quota;

/// The value of `name`, bytes or objects, where 0 as a limit is none; `None` if it is not such a property, the owner is
/// not known, or the data set does not say: it is a volume, encrypted without its key, or counts no such thing.
pub(super) fn figure(target: &Target, name: &str) -> Option<u64> {
    let property = owner_property(name)?;
    let id = quota::id_of(&property)?;
    if property.of.kind == OwnerKind::Project && !is_project(id) {
        return None;
    }
    let objset = target.dataset()?.objset().ok()?;
    if objset.type_() != phys::ObjsetType::Zfs {
        return None;
    }
    let figure = match property.is_limit {
        true => zpl::owner_limit(&objset, property.of, id),
        false => zpl::owner_used(&objset, property.of, id),
    };
    figure.ok().flatten()
}
