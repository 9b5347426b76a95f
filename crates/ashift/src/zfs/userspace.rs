//! `userused@USER` and similar properties: usage and limits of one owner in a file system.
//!
//! # What it is
//! Every txg updates the accounting by owner (`zpl::space_by_owner`). Limits are not enforced here; those
//! that another system set are shown. An owner is a number, or a name known to this host.
//!
//! # Source
//! OpenZFS lib/libzfs/libzfs_dataset.c (`userquota_propname_decode`, `zfs_prop_get_userquota_common`),
//! module/zfs/zfs_quota.c (`zfs_userspace_one`).

use base::{ObjectId, Result};
use phys::objset::{GROUPUSED_OBJECT, PROJECTUSED_OBJECT, USERUSED_OBJECT};
use phys::znode::MASTER_NODE_OBJ;

use super::target::Target;

/// The value of `name`, bytes or objects; `None` if it is not such a property, the owner is not known, or
/// the limit is 0 (none).
pub(super) fn figure(target: &Target, name: &str) -> Result<Option<u64>> {
    let Some((prefix, owner)) = name.split_once('@') else {
        return Ok(None);
    };
    let (kind, is_limit, counts) = match prefix {
        "userused" => ("user", false, false),
        "userobjused" => ("user", false, true),
        "userquota" | "userobjquota" => ("user", true, false),
        "groupused" => ("group", false, false),
        "groupobjused" => ("group", false, true),
        "groupquota" | "groupobjquota" => ("group", true, false),
        "projectused" => ("project", false, false),
        "projectobjused" => ("project", false, true),
        "projectquota" | "projectobjquota" => ("project", true, false),
        _ => return Ok(None),
    };
    let (Some(id), Some(ds)) = (number_of(kind, owner), target.dataset()) else {
        return Ok(None);
    };
    let objset = ds.objset()?;
    if objset.type_() != phys::ObjsetType::Zfs {
        return Ok(None);
    }
    if is_limit {
        let key = format!("{prefix}@");
        let table = zap::lookup_u64(&objset, ObjectId(MASTER_NODE_OBJ), &key)?;
        let limit = match table {
            Some(table) => zap::lookup_u64(&objset, ObjectId(table), &format!("{id:x}"))?,
            None => None,
        };
        return Ok(Some(limit.unwrap_or(0)));
    }
    let object = match kind {
        "user" => USERUSED_OBJECT,
        "group" => GROUPUSED_OBJECT,
        _ => PROJECTUSED_OBJECT,
    };
    let all = zpl::space_by_owner(&objset, ObjectId(object))?;
    if kind == "project" && all.is_empty() {
        return Ok(None); // they are not counted
    }
    let used = all.into_iter().find(|used| used.id == id);
    let used = used.unwrap_or_default();
    Ok(Some(if counts { used.objects } else { used.bytes }))
}

/// A number (empty: 0), or the name of a user or group of this host.
fn number_of(kind: &str, owner: &str) -> Option<u64> {
    if owner.is_empty() {
        return Some(0);
    }
    if let Ok(number) = owner.parse() {
        return Some(number);
    }
    let table = match kind {
        "user" => "/etc/passwd",
        "group" => "/etc/group",
        _ => return None,
    };
    number_in(&std::fs::read_to_string(table).ok()?, owner)
}

/// `name:password:number:…` lines.
fn number_in(table: &str, name: &str) -> Option<u64> {
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(name);
        fields.nth(1).filter(|_| is_it)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::number_in;

    #[test]
    fn names_are_found_in_tables() {
        let table = "root:x:0:0:root:/root:/bin/sh\n\n# nobody\nme:x:1000:7::/:\nbad:x:no";
        assert_eq!(number_in(table, "root"), Some(0));
        assert_eq!(number_in(table, "me"), Some(1000));
        assert_eq!(number_in(table, "bad"), None);
        assert_eq!(number_in(table, "x"), None);
    }
}
