//! How the devices of a measured pool are combined.

use std::path::{Path, PathBuf};

use admin::vdev_spec::parse_vdev_spec;
use base::{Error, Result};
use vdev::{Grouping, TopSpec};

/// Bytes by which all devices together are larger than their content, in addition to a fifth of the content.
const ROOM_BYTES: u64 = 256 << 20;

/// The word for devices without redundancy.
const SINGLE: &str = "single";

/// The vdev that `zpool create POOL LAYOUT FILE…` would make, or single devices.
pub(super) fn specs(layout: &str, files: &[String]) -> Result<Vec<TopSpec<String>>> {
    let group = (layout != SINGLE).then_some(layout);
    let words: Vec<&str> = group
        .into_iter()
        .chain(files.iter().map(|file| &**file))
        .collect();
    parse_vdev_spec(&words)
        .map(|spec| spec.tops)
        .map_err(Error::invalid)
}

/// Files of a pool: they go on drop.
pub(super) struct Files(Vec<PathBuf>);

impl Files {
    /// `count` names in a folder.
    pub(super) fn new(folder: &Path, count: u64) -> Files {
        let name = |n| format!("ashift-bench.{}.{n}", std::process::id());
        Files((0..count).map(|n| folder.join(name(n))).collect())
    }

    pub(super) fn names(&self) -> Vec<String> {
        let names = self.0.iter().map(|file| file.display().to_string());
        names.collect()
    }

    /// Makes them anew, with room for so many bytes of content.
    pub(super) fn make(&self, layout: &str, content: u64) -> Result<()> {
        let bytes = device_bytes(layout, &self.names(), content)?;
        self.0.iter().try_for_each(|file| {
            std::fs::File::create(file)?.set_len(bytes)?;
            Ok(())
        })
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for file in &self.0 {
            // It may be gone already.
            let _ = std::fs::remove_file(file);
        }
    }
}

/// How large each device is that holds its part of the content.
fn device_bytes(layout: &str, files: &[String], content: u64) -> Result<u64> {
    let tops = specs(layout, files)?;
    let data: u64 = tops.iter().map(data_devices).sum();
    let bytes = (content + content / 5 + ROOM_BYTES) / data.max(1);
    Ok(base::align_up(bytes, 1 << 20))
}

/// How many devices' worth of content a vdev holds, rounded down.
fn data_devices(top: &TopSpec<String>) -> u64 {
    match top.grouping {
        Grouping::Single | Grouping::Mirror => 1,
        Grouping::Raidz { parity } => top.devices.len() as u64 - parity,
        Grouping::Draid {
            parity,
            data,
            children,
            spares,
        } => (children - spares) * data / (data + parity),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(layout: &str, devices: u64, content: u64) -> u64 {
        let files = Files::new(Path::new("/nowhere"), devices);
        device_bytes(layout, &files.names(), content).unwrap()
    }

    #[test]
    fn devices_share_the_content() {
        let mib = 1 << 20;
        assert_eq!(bytes("single", 1, 0), 256 * mib);
        assert_eq!(bytes("single", 2, 1280 * mib), 896 * mib);
        assert_eq!(bytes("mirror", 2, 1280 * mib), 1792 * mib);
        assert_eq!(bytes("raidz2", 6, 1280 * mib), 448 * mib);
        assert_eq!(bytes("draid2:4d:13c:1s", 13, 1280 * mib), 224 * mib);
        assert!(specs("raidz3", &["/a".into(), "/b".into()]).is_err());
    }
}
