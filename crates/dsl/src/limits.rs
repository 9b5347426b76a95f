//! How many file systems and snapshots a directory and everything below it has.
//!
//! # What it is
//! `filesystem_limit` and `snapshot_limit` are checked against counts that are kept from the first limit on, in each
//! directory where one was set and below it. The limits bind those who may not change them. A user of this program
//! has the disks, and may: limits are stored, and counts kept up for other systems, but nothing is refused here.
//!
//! # On disk
//! Two words in the directory's ZAP. A directory without them has no limit at or above it.
//!
//! # Source
//! OpenZFS module/zfs/dsl_dir.c (`dsl_dir_init_fs_ss_count`, `dsl_fs_ss_count_adjust`), zfs_ioctl.c
//! (`zfs_prop_set_special`)

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result};
use dmu::Tx;
use phys::pool_names::{DD_FIELD_FILESYSTEM_COUNT, DD_FIELD_SNAPSHOT_COUNT};
use phys::{PropValue, feature};

use crate::dir::DslDir;
use crate::pool::DslPool;

/// What is below a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// File systems and volumes, without itself.
    pub filesystems: u64,
    /// Snapshots, its own among them.
    pub snapshots: u64,
}

/// Whether a property with this value is a limit: the largest number is none.
fn is_limit(name: &str, value: &PropValue) -> bool {
    let is_named = matches!(name, "filesystem_limit" | "snapshot_limit");
    is_named && !matches!(value, PropValue::Number(u64::MAX))
}

impl DslPool {
    pub(crate) fn counts_for_limits(&self) -> bool {
        self.mos().env().feature_is_active(feature::FS_SS_LIMIT)
    }

    /// Refuses limits on a pool without the feature.
    pub(crate) fn check_limits<'a>(
        &self,
        mut props: impl Iterator<Item = (&'a str, &'a PropValue)>,
    ) -> Result<()> {
        let is_enabled = self.mos().env().feature_is_enabled(feature::FS_SS_LIMIT);
        match props.find(|(name, value)| is_limit(name, value)) {
            Some((name, _)) if !is_enabled => {
                let text = format!("the pool has no {name}");
                Err(Error::new(ErrorKind::Unsupported, text))
            }
            _ => Ok(()),
        }
    }

    /// Counts what is at and below a directory for which a limit is set.
    #[doc(alias = "dsl_dir_actv_fs_ss_limit_sync")]
    pub(crate) fn count_for_limit(
        &self,
        dd: &Arc<DslDir>,
        name: &str,
        value: &PropValue,
        tx: &Tx,
    ) -> Result<()> {
        if !is_limit(name, value) {
            return Ok(());
        }
        if !self.counts_for_limits() {
            self.mos().env().feature_incr(feature::FS_SS_LIMIT, tx)?;
        }
        self.init_counts(dd, tx)
    }

    /// Sets the counts at and below a directory, where there are none yet.
    #[doc(alias = "dsl_dir_init_fs_ss_count")]
    pub(crate) fn init_counts(&self, dd: &Arc<DslDir>, tx: &Tx) -> Result<()> {
        let is_hidden = |dd: &Arc<DslDir>| dd.state().name.starts_with('$');
        let mut below = BTreeMap::<ObjectId, Counts>::new();
        // Parents come first: from the end, all that is below a directory is known.
        let dirs = self.subtree(dd)?;
        for dd in dirs.iter().rev().filter(|dd| !is_hidden(dd)) {
            let mut counts = below.remove(&dd.object()).unwrap_or_default();
            match self.counts(dd)? {
                Some(kept) => counts = kept,
                None => {
                    counts.snapshots += self.own_snapshots(dd)?;
                    self.set_counts(dd, counts, tx)?;
                }
            }
            if let Some(parent) = dd.parent() {
                let above = below.entry(parent.object()).or_default();
                above.filesystems = above
                    .filesystems
                    .saturating_add(counts.filesystems)
                    .saturating_add(1);
                above.snapshots = above.snapshots.saturating_add(counts.snapshots);
            }
        }
        Ok(())
    }

    /// Snapshots of a directory's head; temporary ones do not count.
    fn own_snapshots(&self, dd: &Arc<DslDir>) -> Result<u64> {
        let Some(head) = self.head_of(dd)? else {
            return Ok(0);
        };
        let names = self.snap_entries(&head)?;
        Ok(names
            .iter()
            .filter(|(name, _)| !name.starts_with('%'))
            .count() as u64)
    }

    /// The counts of a directory, if they are kept.
    pub(crate) fn counts(&self, dd: &Arc<DslDir>) -> Result<Option<Counts>> {
        let (mos, object) = (self.mos(), dd.object());
        if !mos.is_zapified(object)? {
            return Ok(None);
        }
        let filesystems = mos.zap_get(object, DD_FIELD_FILESYSTEM_COUNT)?;
        let snapshots = mos.zap_get(object, DD_FIELD_SNAPSHOT_COUNT)?;
        Ok(filesystems
            .zip(snapshots)
            .map(|(filesystems, snapshots)| Counts {
                filesystems,
                snapshots,
            }))
    }

    pub(crate) fn set_counts(&self, dd: &Arc<DslDir>, counts: Counts, tx: &Tx) -> Result<()> {
        let (mos, object) = (self.mos(), dd.object());
        mos.zapify(object, tx)?;
        mos.zap_set(object, DD_FIELD_FILESYSTEM_COUNT, counts.filesystems, tx)?;
        mos.zap_set(object, DD_FIELD_SNAPSHOT_COUNT, counts.snapshots, tx)
    }

    /// Adjusts a count in a directory and its ancestors, up to the first that does not keep it.
    #[doc(alias = "dsl_fs_ss_count_adjust")]
    pub(crate) fn adjust_count(
        &self,
        dd: &Arc<DslDir>,
        field: &str,
        by: i64,
        tx: &Tx,
    ) -> Result<()> {
        if by == 0 || !self.counts_for_limits() {
            return Ok(());
        }
        for dd in dd.lineage() {
            let object = dd.object();
            if !self.mos().is_zapified(object)? {
                break;
            }
            let Some(count) = self.mos().zap_get(object, field)? else {
                break;
            };
            let negative = || Error::corrupt(format!("{field} of {} is {count}", dd.name()));
            let count = count.checked_add_signed(by).ok_or_else(negative)?;
            self.mos().zap_set(object, field, count, tx)?;
        }
        Ok(())
    }
}
