//! Where data sets are mounted: in a machine, `/tank/file` is a file of the data set at `/tank`.
//!
//! Source: OpenZFS lib/libzfs/libzfs_mount.c (`zfs_is_mountable`), libzfs_dataset.c
//! (`zfs_prop_get`, the case of `mountpoint`).

use base::Result;
use dsl::{DslPool, PropSource};

/// `ZFS_CANMOUNT_ON`
const CANMOUNT_ON: u64 = 1;

/// Path and name of every mounted file system of a pool. `altroot` goes before each path.
pub(super) fn mounted(dsl: &DslPool, altroot: Option<&str>) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut names = vec![dsl.name()];
    while let Some(name) = names.pop() {
        if let Some(path) = mountpoint(dsl, &name)? {
            let altroot = altroot.unwrap_or_default().trim_end_matches('/');
            found.push((format!("{altroot}{path}"), name.clone()));
        }
        names.extend(dsl.children(&name)?);
    }
    found.sort();
    Ok(found)
}

/// Where a data set belongs; nothing if it is not mounted.
fn mountpoint(dsl: &DslPool, name: &str) -> Result<Option<String>> {
    let dataset = dsl.dataset(name)?;
    let canmount = dsl.prop(&dataset, "canmount")?;
    let canmount = canmount.and_then(|prop| prop.value.number());
    if canmount.unwrap_or(CANMOUNT_ON) != CANMOUNT_ON {
        return Ok(None);
    }
    let Some(prop) = dsl.prop(&dataset, "mountpoint")? else {
        return Ok(Some(format!("/{name}")));
    };
    let path = prop.value.text().unwrap_or("none");
    if !path.starts_with('/') {
        return Ok(None); // none, legacy
    }
    let below = match &prop.source {
        PropSource::Inherited(from) => name.strip_prefix(from.as_str()).unwrap_or_default(),
        PropSource::Local | PropSource::Received => "",
    };
    let path = format!("{}{below}", path.trim_end_matches('/'));
    Ok(Some(if path.is_empty() {
        "/".to_owned()
    } else {
        path
    }))
}

/// The part of `path` below `mountpoint`, without a slash in front; nothing if it is elsewhere.
pub(super) fn below<'p>(path: &'p str, mountpoint: &str) -> Option<&'p str> {
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
    fn a_mountpoint_is_a_whole_part_of_a_path() {
        assert_eq!(below("/tank/a/b", "/tank"), Some("a/b"));
        assert_eq!(below("/tank/", "/tank"), Some(""));
        assert_eq!(below("/tank", "/tank"), Some(""));
        assert_eq!(below("/tanker/a", "/tank"), None);
        assert_eq!(below("/a", "/"), Some("a"));
    }
}
