//! Where datasets are mounted, or would be: `/tank/file` is a file of the dataset at `/tank`.
//!
//! Source: OpenZFS lib/libzfs/libzfs_mount.c (`zfs_is_mountable`), libzfs_dataset.c
//! (`zfs_prop_get`, the case of `mountpoint`).

use base::Result;
use dsl::{DslPool, PropSource};
use phys::ObjsetType;

use crate::open::OpenPool;

/// `ZFS_CANMOUNT_ON`
const CANMOUNT_ON: u64 = 1;

impl OpenPool {
    /// Path and name of every file system that is mounted along with its pool.
    ///
    /// # Errors
    /// Errors of reading the datasets.
    pub fn mountpoints(&self) -> Result<Vec<(String, String)>> {
        let dsl = self.parts().dsl();
        let mut found = Vec::new();
        let mut names = vec![dsl.name()];
        while let Some(name) = names.pop() {
            if let Some(path) = mountpoint(dsl, &name, self.altroot())? {
                found.push((path, name.clone()));
            }
            names.extend(dsl.children(&name)?);
        }
        found.sort();
        Ok(found)
    }
}

/// The mountpoint of a dataset; `None` if it is not mounted.
fn mountpoint(dsl: &DslPool, name: &str, altroot: Option<&str>) -> Result<Option<String>> {
    let dataset = dsl.dataset(name)?;
    let canmount = dsl.prop(&dataset, "canmount")?;
    let canmount = canmount.and_then(|prop| prop.value.as_number());
    if canmount.unwrap_or(CANMOUNT_ON) != CANMOUNT_ON
        || dataset.objset()?.type_() != ObjsetType::Zfs
    {
        return Ok(None);
    }
    let Some(prop) = dsl.prop(&dataset, "mountpoint")? else {
        return Ok(Some(place(altroot, "/", name)));
    };
    let path = prop.value.as_text().unwrap_or("none");
    if !path.starts_with('/') {
        return Ok(None); // none, legacy
    }
    let below = match &prop.source {
        PropSource::Inherited(from) => name.strip_prefix(from.as_str()).unwrap_or_default(),
        PropSource::Local | PropSource::Received => "",
    };
    Ok(Some(place(altroot, path, below)))
}

/// The mountpoint of a dataset that is at `below` (empty: itself) relative to one whose `mountpoint` is an
/// absolute path, with the pool's `altroot` as a prefix.
#[must_use]
pub fn place(altroot: Option<&str>, mountpoint: &str, below: &str) -> String {
    let parts = [altroot.unwrap_or_default(), mountpoint, below].map(|part| part.trim_matches('/'));
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("/{}", parts.join("/"))
}

/// The part of `path` below `mountpoint`, without a leading slash; `None` if it is elsewhere.
#[must_use]
pub fn below<'p>(path: &'p str, mountpoint: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(mountpoint.trim_end_matches('/'))?;
    match rest.strip_prefix('/') {
        Some(rest) => Some(rest.trim_matches('/')),
        None if rest.is_empty() => Some(""),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_below_the_mountpoint_that_is_inherited_and_both_below_the_altroot() {
        let cases = [
            ((None, "/", "tank/a"), "/tank/a"),
            ((None, "/srv/", "/a"), "/srv/a"),
            ((None, "/srv", ""), "/srv"),
            ((None, "/", ""), "/"),
            ((Some("/"), "/", "tank"), "/tank"),
            ((Some("/mnt"), "/", "tank/a"), "/mnt/tank/a"),
            ((Some("/mnt/"), "/srv", "/a/b"), "/mnt/srv/a/b"),
            ((Some("/mnt"), "/", ""), "/mnt"),
        ];
        for ((altroot, mountpoint, below), expected) in cases {
            assert_eq!(place(altroot, mountpoint, below), expected);
        }
    }

    #[test]
    fn a_mountpoint_is_a_whole_part_of_a_path() {
        assert_eq!(below("/tank/a/b", "/tank"), Some("a/b"));
        assert_eq!(below("/tank/", "/tank"), Some(""));
        assert_eq!(below("/tank", "/tank"), Some(""));
        assert_eq!(below("/tanker/a", "/tank"), None);
        assert_eq!(below("/a", "/"), Some("a"));
    }
}
