//! What mounts are like: the properties of data sets, as the host and FUSE take them.

use std::sync::Arc;

use base::Result;
use dsl::{DslDataset, DslPool};
use fuse::{MountOptions, Snapshots};
use zpl::AtimePolicy;
use zpl::mount::Mount;

use super::Given;

/// What allows users other than root to let others use their mounts.
const FUSE_CONF: &str = "/etc/fuse.conf";

/// Whether the host lets users other than root mount for others.
pub(super) fn users_may_allow_others() -> bool {
    let text = std::fs::read_to_string(FUSE_CONF).unwrap_or_default();
    text.lines().any(|line| line.trim() == "user_allow_other")
}

/// The options of a mount: the properties of its data set, and what is given instead.
pub(super) fn options(
    dsl: &DslPool,
    dataset: &Arc<DslDataset>,
    given: &Given,
    allow_other: bool,
) -> Result<MountOptions> {
    let is_on = |name: &'static str, default: bool| -> Result<bool> {
        if let Some(value) = given.get(name) {
            return Ok(*value);
        }
        let prop = dsl.prop(dataset, name)?;
        let value = prop.and_then(|prop| prop.value.as_number());
        Ok(value.map_or(default, |value| value != 0))
    };
    let is_root = rustix::process::geteuid().is_root();
    let atime = match (is_on("atime", true)?, is_on("relatime", true)?) {
        (false, _) => AtimePolicy::Off,
        (true, false) => AtimePolicy::On,
        (true, true) => AtimePolicy::Relative,
    };
    Ok(MountOptions {
        source: dsl.name_of(dataset)?,
        read_only: is_on("readonly", false)?,
        exec: is_on("exec", true)?,
        setuid: is_root && is_on("setuid", true)?,
        devices: is_root && is_on("devices", true)?,
        allow_other,
        atime,
        shows_snapdir: is_on("snapdir", false)?,
    })
}

/// The snapshots of a mounted data set.
pub(super) struct SnapshotsOf {
    pub(super) dsl: Arc<DslPool>,
    pub(super) dataset: Arc<DslDataset>,
}

impl Snapshots for SnapshotsOf {
    fn names(&self) -> Result<Vec<String>> {
        if self.dataset.is_snapshot() {
            return Ok(Vec::new());
        }
        let snapshots = self.dsl.snapshots(&self.dataset)?.into_iter();
        Ok(snapshots.map(|(name, _)| name).collect())
    }

    fn open(&self, name: &str) -> Result<Arc<Mount>> {
        let full = format!("{}@{name}", self.dsl.name_of(&self.dataset)?);
        zpl::mount::mount(&self.dsl, &full, true).map(Arc::new)
    }
}
