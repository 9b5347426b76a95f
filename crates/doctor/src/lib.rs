//! What is wrong with disks, partition tables, pools and the files in them, and what mends it.
//!
//! # What it is
//! Facts go in ([`Disk`], [`Pool`], [`Dataset`]), [`Finding`]s come out. A caller gathers the facts, from a host or a
//! machine of emulated drives, and shows what is found.
//!
//! # Invariants
//! 1. Nothing is opened, read or printed here.
//! 2. What is well made has no finding that is more than a note.
//! 3. The name of a finding does not change its meaning: scripts look for it.
//!
//! # Source
//! What a layout costs: two WD30EZRX in a mirror (experiment `zfs-on-512e-mirror` of the lab), phybs on a WD20EARS
//! (`phybs-512e`). OpenZFS `module/zfs/vdev_removal.c` (`spa_vdev_remove_top_check`), `vdev_raidz.c`
//! (`vdev_raidz_psize_to_asize`), `spa_misc.c` (`zfs_special_class_metadata_reserve_pct`), `metaslab.c`
//! (`metaslab_df_free_pct`).

mod dataset;
mod disk;
mod pool;
mod redundancy;
mod space;
mod table;
#[cfg(test)]
mod tests;

pub use dataset::{Dataset, Files, examine_dataset};
pub use disk::{Disk, Known, Partitions, Sector, examine_disk};
pub use pool::{Device, Pool, examine_pool};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// It costs speed or space, or closes a way back.
    Warning,
    /// Data is lost, or one more failure loses it that need not.
    Critical,
}

impl Severity {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// Something that is wrong, or that a user should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its name, for scripts.
    pub id: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// Which disk, partition, vdev or dataset it is about.
    pub subject: String,
    /// What is so.
    pub what: String,
    /// What that costs.
    pub cost: String,
    /// What to do: commands to type, or `#` and a remark.
    pub mend: Vec<String>,
}

impl Finding {
    fn new(
        (severity, id): (Severity, &'static str),
        subject: impl Into<String>,
        what: impl Into<String>,
        cost: impl Into<String>,
    ) -> Finding {
        Finding {
            id,
            severity,
            subject: subject.into(),
            what: what.into(),
            cost: cost.into(),
            mend: Vec::new(),
        }
    }

    /// Adds a command, or a remark.
    fn mend(mut self, line: impl Into<String>) -> Finding {
        self.mend.push(line.into());
        self
    }
}
