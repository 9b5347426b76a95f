//! Where datasets are mounted, or would be: `/tank/file` is a file of the dataset at `/tank`.
//!
//! Source: OpenZFS lib/libzfs/libzfs_mount.c (`zfs_is_mountable`), libzfs_dataset.c
//! (`zfs_prop_get`, the case of `mountpoint`).

use base::Result;
use dsl::{DslPool, PropSource};
use phys::ObjsetType;

use crate::open::OpenPool;

/// `ZFS_CANMOUNT_OFF`
const CANMOUNT_OFF: u64 = 0;
/// `ZFS_CANMOUNT_ON`
const CANMOUNT_ON: u64 = 1;

/// What the property `mountpoint` of a data set means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mountpoint {
    /// It has none.
    None,
    /// It is mounted by mount(8).
    Legacy,
    /// This directory, below the pool's `altroot`.
    At(String),
}

/// What the properties of a file system say of mounting it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountSettings {
    /// `mountpoint`
    pub mountpoint: Mountpoint,
    /// Whether that is set for this data set itself, and not inherited or the default.
    pub is_own: bool,
    /// `canmount=on`: it is mounted along with its pool.
    pub is_automatic: bool,
    /// `canmount=off`
    pub is_never: bool,
    /// `overlay`
    pub overlays: bool,
}

impl MountSettings {
    /// Where it is mounted if it is; `None` if it cannot be.
    #[must_use]
    pub fn directory(&self) -> Option<&str> {
        match &self.mountpoint {
            Mountpoint::At(path) if !self.is_never => Some(path),
            _ => None,
        }
    }

    /// The value of `mountpoint`.
    #[must_use]
    pub fn text(&self) -> &str {
        match &self.mountpoint {
            Mountpoint::None => "none",
            Mountpoint::Legacy => "legacy",
            Mountpoint::At(path) => path,
        }
    }
}

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
            let settings = settings(dsl, &name, self.altroot())?;
            let automatic = settings.filter(|settings| settings.is_automatic);
            if let Some(path) = automatic.as_ref().and_then(MountSettings::directory) {
                found.push((path.to_owned(), name.clone()));
            }
            names.extend(dsl.children(&name)?);
        }
        found.sort();
        Ok(found)
    }

    /// What is said of mounting a data set; `None` for what is not a file system.
    ///
    /// # Errors
    /// `NotFound`; errors of reading it.
    pub fn mount_settings(&self, name: &str) -> Result<Option<MountSettings>> {
        settings(self.parts().dsl(), name, self.altroot())
    }
}

fn settings(dsl: &DslPool, name: &str, altroot: Option<&str>) -> Result<Option<MountSettings>> {
    let dataset = dsl.dataset(name)?;
    if dataset.is_snapshot() || dataset.objset()?.type_() != ObjsetType::Zfs {
        return Ok(None);
    }
    let number = |name: &str| -> Result<u64> {
        let prop = dsl.prop(&dataset, name)?;
        Ok(prop.and_then(|prop| prop.value.as_number()).unwrap_or(1))
    };
    let canmount = number("canmount")?;
    let (mountpoint, is_own) = match dsl.prop(&dataset, "mountpoint")? {
        None => (Mountpoint::At(place(altroot, "/", name)), false),
        Some(prop) => {
            let (below, is_own) = match &prop.source {
                PropSource::Inherited(from) => {
                    (name.strip_prefix(from.as_str()).unwrap_or_default(), false)
                }
                PropSource::Local | PropSource::Received => ("", true),
            };
            let mountpoint = match prop.value.as_text() {
                Some("legacy") => Mountpoint::Legacy,
                Some(path) if path.starts_with('/') => Mountpoint::At(place(altroot, path, below)),
                _ => Mountpoint::None,
            };
            (mountpoint, is_own)
        }
    };
    Ok(Some(MountSettings {
        mountpoint,
        is_own,
        is_automatic: canmount == CANMOUNT_ON,
        is_never: canmount == CANMOUNT_OFF,
        overlays: number("overlay")? != 0,
    }))
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
