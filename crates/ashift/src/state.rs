//! The state folder, in which commands keep data for later ones, and the wait limit from the environment.

use std::path::{Path, PathBuf};

use base::{Error, Result};
use nvpair::NvList;
use spa::CacheFile;

/// `$ASHIFT_STATE`, `$XDG_STATE_HOME/ashift` or `~/.local/state/ashift`.
pub(crate) fn state_folder() -> PathBuf {
    let var = |name| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    var("ASHIFT_STATE")
        .or_else(|| var("XDG_STATE_HOME").map(|d| d.join("ashift")))
        .or_else(|| var("HOME").map(|d| d.join(".local/state/ashift")))
        .unwrap_or_else(|| PathBuf::from("/var/lib/ashift"))
}

/// The cachefile in a state folder.
pub(crate) fn cachefile(state: &Path) -> CacheFile {
    CacheFile::new(state.join("zpool.cache"))
}

/// Names of the imported pools with the paths of all their devices, spares and caches included.
pub(crate) fn pool_devices(state: &Path) -> Result<Vec<(String, Vec<String>)>> {
    let with_devices = |(pool, config): (String, NvList)| {
        let mut paths = Vec::new();
        if let Some(tree) = config.get_list("vdev_tree") {
            collect_paths(tree, &mut paths);
        }
        (pool, paths)
    };
    let pools = cachefile(state).pools()?;
    Ok(pools.into_iter().map(with_devices).collect())
}

fn collect_paths(tree: &NvList, paths: &mut Vec<String>) {
    paths.extend(tree.get_str("path").map(str::to_owned));
    for key in ["children", "l2cache", "spares"] {
        for child in tree.get_lists(key).unwrap_or_default() {
            collect_paths(child, paths);
        }
    }
}

/// How long to wait for another command, in ns: `ASHIFT_WAIT` (in seconds), or else the default.
pub(crate) fn wait_ns(default_ns: u64) -> Result<u64> {
    let Some(text) = std::env::var_os("ASHIFT_WAIT").filter(|text| !text.is_empty()) else {
        return Ok(default_ns);
    };
    let secs: Option<f64> = text.to_str().and_then(|text| text.parse().ok());
    let secs = secs.filter(|secs| *secs >= 0.0);
    let secs = secs.ok_or_else(|| Error::invalid("ASHIFT_WAIT is not a number of seconds"))?;
    Ok((secs * 1e9) as u64)
}
