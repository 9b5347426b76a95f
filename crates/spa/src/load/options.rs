//! What is to be opened, and how; where the devices of a pool are that was imported before.

use std::sync::Arc;

use base::{Error, ErrorKind, Guid, Result, Txg};
use geom::disk::OpenMode;
use geom::{HostNames, Namespace, Provider};
use nvpair::NvList;
use phys::pool_names;
use vdev::VdevKind;
use vdev::import::{FoundPool, discover};

use super::look::try_import;
use crate::host::Host;
use crate::spa::Settings;

/// The name that a pool is opened under, if not its own.
#[derive(Clone, Debug)]
pub struct NewName {
    /// The name.
    pub name: String,
    /// `zpool import -t`: on disk it keeps its own.
    pub is_temporary: bool,
}

/// What to open, and how.
pub struct ImportOptions {
    /// The pool's devices, as discovered.
    pub found: FoundPool,
    /// The name to import it under, if not its own.
    pub new_name: Option<NewName>,
    /// Change nothing, not even labels.
    pub readonly: bool,
    /// `-T`: newer txgs are ignored; for good, unless it is only read.
    pub max_txg: Option<Txg>,
    /// Import although another host seems to use it, or it was destroyed.
    pub force: bool,
    /// `-m`: when a log device is missing, give up the intent logs.
    pub gives_up_logs: bool,
    /// Open what is only read although whole top-level vdevs are missing, with all that is on them.
    #[doc(alias = "zfs_max_missing_tvds")]
    pub tolerates_missing: bool,
    /// `--rewind-to-checkpoint`: open it as it was when its checkpoint was taken; for good, unless it is only read.
    pub rewinds: bool,
    /// The host that opens it.
    pub host: Host,
    /// How it is run.
    pub settings: Settings,
}

impl ImportOptions {
    /// A pool that was imported before, from its cached config: each device is at its old path, or
    /// missing.
    ///
    /// # Errors
    /// `NotFound` when none of its devices is found; `Busy` when one is in use.
    pub fn from_config(
        config: &NvList,
        readonly: bool,
        host: Host,
        settings: Settings,
    ) -> Result<ImportOptions> {
        ImportOptions::from_config_in(&HostNames, config, readonly, host, settings)
    }

    /// Like [`from_config`](ImportOptions::from_config), in another namespace. If a device is not
    /// at its old path, all names are searched.
    ///
    /// # Errors
    /// As [`from_config`](ImportOptions::from_config).
    pub fn from_config_in(
        names: &dyn Namespace,
        config: &NvList,
        readonly: bool,
        host: Host,
        settings: Settings,
    ) -> Result<ImportOptions> {
        let mode = if readonly {
            OpenMode::ReadOnly
        } else {
            OpenMode::ReadWrite
        };
        let mut providers: Vec<Arc<dyn Provider>> = Vec::new();
        let mut is_whole = true;
        for path in device_paths(config.expect_list("vdev_tree")?) {
            match names.open(&path, mode) {
                Ok(provider) => providers.push(provider),
                Err(e) if is_gone(e.kind()) => is_whole = false,
                Err(e) => return Err(e),
            }
        }
        if !is_whole {
            let elsewhere = names.names()?;
            let open = |name: &String| names.open(name, mode).ok();
            providers.extend(elsewhere.iter().filter_map(open));
        }
        let guid = Guid(config.expect_u64("pool_guid")?);
        let mut pools = discover(&providers).pools;
        let at = pools.iter().position(|pool| pool.guid == guid);
        let at = at.or_else(|| pools.iter().position(|pool| has_another_guid(pool, config)));
        let found = at.map(|at| pools.swap_remove(at));
        let inspect = |path: &str| names.open(path, OpenMode::Inspect).ok();
        let found = found.map(|mut found| {
            let open = |path: &str| names.open(path, mode).ok();
            found.follow_aux_paths(config, pool_names::SPARES, &inspect);
            found.follow_aux_paths(config, pool_names::L2CACHE, &open);
            with_later(found, &open)
        });
        let found = found.ok_or_else(|| {
            let text = "none of its devices is there: attach them, or find them with 'zpool import \
                            -d DIR'; 'zpool export -f' forgets the pool";
            Error::not_found(text)
        })?;
        // Another host may have imported it since: that is checked as in an import.
        let force = false;
        Ok(ImportOptions {
            found,
            new_name: None,
            readonly,
            max_txg: None,
            force,
            gives_up_logs: false,
            tolerates_missing: false,
            rewinds: false,
            host,
            settings,
        })
    }
}

/// Whether this is the pool of `config`, with a guid that it got after the cachefile was written, if the power
/// failed in between: its name and all devices are the same, at the same paths.
fn has_another_guid(pool: &FoundPool, config: &NvList) -> bool {
    let tree = config.get_list("vdev_tree").map(vdev::Vdev::from_config);
    let Some(Ok(root)) = tree else {
        return false;
    };
    let is_there = |leaf: &Arc<vdev::Vdev>| {
        let path = leaf.config().path.clone();
        let found = pool.device(leaf.guid(), path.as_deref());
        found.is_some_and(|device| Some(device.provider.name()) == path.as_deref())
    };
    config.get_str("name") == Some(&pool.name) && root.devices().iter().all(is_there)
}

/// The pool with devices that it got after the cachefile was written, if the power failed in between: where
/// they are, the labels of the others say, or the MOS.
fn with_later(found: FoundPool, open: &dyn Fn(&str) -> Option<Arc<dyn Provider>>) -> FoundPool {
    let labels = found.config.clone();
    let found = found.follow_paths(&labels, open);
    let tops = found
        .config
        .get_list("vdev_tree")
        .and_then(|tree| tree.get_lists("children"));
    let is_missing = |top: &NvList| top.get_str("type") == Some(VdevKind::Missing.word());
    if !tops.is_some_and(|tops| tops.iter().any(is_missing)) {
        return found;
    }
    match try_import(&found) {
        Ok(config) => found.follow_paths(&config, open),
        Err(_) => found,
    }
}

/// Whether a device that cannot be opened for this reason counts as missing: one that is in use elsewhere, say, does
/// not.
fn is_gone(kind: ErrorKind) -> bool {
    // A device that is being replaced at the path of a file is named as if it were below it.
    matches!(
        kind,
        ErrorKind::NotFound | ErrorKind::NotDirectory | ErrorKind::Io
    )
}

/// The paths of all devices in a vdev tree.
#[must_use]
pub fn device_paths(tree: &NvList) -> Vec<String> {
    let mut paths: Vec<String> = tree
        .get_str("path")
        .map(str::to_owned)
        .into_iter()
        .collect();
    for child in tree.get_lists("children").unwrap_or_default() {
        paths.extend(device_paths(child));
    }
    paths
}
