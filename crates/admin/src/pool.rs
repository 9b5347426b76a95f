//! The state of a pool: what the pool service gathers from the engine, the diagnosis of its health, and
//! the output of `zpool status`, `zpool list -v` and `zpool import`.
//!
//! # Source
//! OpenZFS lib/libzfs/libzfs_status.c `check_status`, libzfs_pool.c `zpool_vdev_name`,
//! cmd/zpool/zpool_main.c @be7657e3; output follows 2.3.

mod health;
mod import;
mod iostat;
mod json;
mod list;
mod script;
mod status;
#[cfg(test)]
mod tests;

pub use health::{Reason, diagnose};
pub use import::{ImportCandidate, import_listing};
pub use iostat::{IoPrinter, IoStyle, IoTables, PoolIo, VdevIo};
pub use json::{pools_json, status_json, vdevs_json};
pub use list::list_verbose;
pub use script::{DeviceLines, ScriptOutput};
pub use status::{StatusRequest, healthy_line, status};

use zio::AllocClass;

pub use vdev::{VdevAux, VdevState};

use crate::dedup::DedupStatus;

/// The type of a vdev.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VdevKind {
    /// The pool itself.
    Root,
    /// A block device; `is_whole` if the pool was given the whole disk and partitioned it itself.
    Disk {
        /// vdev_wholedisk
        is_whole: bool,
    },
    /// A regular file.
    #[default]
    File,
    /// mirror
    Mirror,
    /// raidz
    Raidz {
        /// 1 to 3
        parity: u64,
    },
    /// draid
    Draid {
        /// 1 to 3
        parity: u64,
        /// Data devices per group
        data: u64,
        /// Distributed spares
        spares: u64,
    },
    /// A device and its replacement.
    Replacing,
    /// A device and the hot spare that has taken over for it.
    Spare,
    /// A distributed spare of a dRAID.
    DraidSpare,
    /// A vdev of the configuration that was not found.
    Missing,
    /// The placeholder for a removed log device.
    Hole,
    /// A removed top-level vdev: a mapping to where its blocks are now.
    Indirect,
}

impl VdevKind {
    /// `ZPOOL_CONFIG_TYPE`
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            VdevKind::Root => "root",
            VdevKind::Disk { .. } => "disk",
            VdevKind::File => "file",
            VdevKind::Mirror => "mirror",
            VdevKind::Raidz { .. } => "raidz",
            VdevKind::Draid { .. } => "draid",
            VdevKind::Replacing => "replacing",
            VdevKind::Spare => "spare",
            VdevKind::DraidSpare => "dspare",
            VdevKind::Missing => "missing",
            VdevKind::Hole => "hole",
            VdevKind::Indirect => "indirect",
        }
    }
}

/// The progress of an initialization or a trim of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Its state.
    pub state: ActivityState,
    /// Bytes done.
    pub done_bytes: u64,
    /// Total bytes to do, estimated.
    pub estimate_bytes: u64,
    /// When the state began, in seconds since 1970.
    pub since_secs: u64,
    /// Commands that failed.
    pub errors: u64,
}

/// See [`Activity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivityState {
    /// In progress.
    Active,
    /// Given up.
    Canceled,
    /// Stopped by request.
    Suspended,
    /// Done.
    Complete,
}

/// A vdev with its numbers: `vdev_stat_t` and what the configuration says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VdevStatus {
    /// Its type.
    pub kind: VdevKind,
    /// Its index among its siblings.
    pub id: u64,
    /// Its guid.
    pub guid: u64,
    /// Of a device: its path; of a distributed spare: its name.
    pub path: Option<String>,
    /// The device was not found when the pool was opened; `path` is its last known path.
    pub is_not_present: bool,
    /// Its allocation class.
    pub class: AllocClass,
    /// vs_state
    pub state: VdevState,
    /// vs_aux
    pub aux: VdevAux,
    /// Of a hot spare: the other pool that uses it.
    pub used_by: Option<String>,
    /// vdev_isspare: a leaf that is a hot spare
    pub is_spare: bool,
    /// vs_alloc, of a top-level vdev
    pub alloc_bytes: u64,
    /// vs_space, of a top-level vdev
    pub space_bytes: u64,
    /// vs_dspace, of a top-level vdev
    pub deflated_bytes: u64,
    /// vs_pspace: size of a device
    pub physical_bytes: u64,
    /// vs_rsize: the minimum size of a replacement
    pub replaceable_bytes: u64,
    /// vs_esize: by how much it can grow
    pub expandable_bytes: u64,
    /// vs_checkpoint_space
    pub checkpoint_bytes: u64,
    /// vs_self_healed
    pub healed_bytes: u64,
    /// vs_fragmentation, in percent
    pub fragmentation: Option<u64>,
    /// vs_read_errors
    pub read_errors: u64,
    /// vs_write_errors
    pub write_errors: u64,
    /// vs_checksum_errors
    pub checksum_errors: u64,
    /// vs_slow_ios
    pub slow_ios: u64,
    /// vs_dio_verify_errors
    pub direct_errors: u64,
    /// vs_scan_processed: bytes that the scan wrote to it
    pub scanned_bytes: u64,
    /// vs_rebuild_processed: bytes that a sequential resilver that goes on wrote to it
    pub rebuilt_bytes: u64,
    /// vs_resilver_deferred
    pub is_resilver_deferred: bool,
    /// vs_scan_removing
    pub is_removing: bool,
    /// vs_noalloc
    pub is_noalloc: bool,
    /// vs_configured_ashift
    pub configured_ashift: u32,
    /// vs_physical_ashift
    pub physical_ashift: u32,
    /// vs_initialize_*
    pub initialize: Option<Activity>,
    /// vs_trim_*
    pub trim: Option<Activity>,
    /// vs_trim_notsup
    pub is_trim_unsupported: bool,
    /// vdev_enc_sysfs_path
    pub enclosure: Option<String>,
    /// Its children.
    pub children: Vec<VdevStatus>,
}

impl VdevStatus {
    /// Whether it is a device, with nothing below it.
    #[must_use]
    pub fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }

    /// The first vdev that `is_it` accepts: itself, or one below it.
    #[must_use]
    pub fn find(&self, is_it: &dyn Fn(&VdevStatus) -> bool) -> Option<&VdevStatus> {
        if is_it(self) {
            return Some(self);
        }
        self.children.iter().find_map(|child| child.find(is_it))
    }

    fn is_unhealthy(&self, counts_slow: bool) -> bool {
        let errors = self.read_errors + self.write_errors + self.checksum_errors;
        let own =
            self.state != VdevState::Healthy || errors > 0 || counts_slow && self.slow_ios > 0;
        own || self
            .children
            .iter()
            .any(|child| child.is_unhealthy(counts_slow))
    }

    /// The STATE column.
    #[must_use]
    #[doc(alias = "zpool_state_to_name")]
    pub fn state_name(&self) -> &'static str {
        match (self.state, self.aux) {
            (VdevState::Closed, _) => VdevState::Offline.word(),
            (VdevState::CantOpen, VdevAux::CorruptData | VdevAux::BadLog) => {
                VdevState::Faulted.word()
            }
            (VdevState::CantOpen, VdevAux::SplitPool) => "SPLIT",
            (state, _) => state.word(),
        }
    }

    /// The STATE column of a hot spare.
    fn spare_state_name(&self) -> &'static str {
        match (self.aux, self.state) {
            (VdevAux::Spared, _) => "INUSE",
            (_, VdevState::Healthy) => "AVAIL",
            _ => self.state_name(),
        }
    }

    /// The remark about `aux` after the counters.
    fn aux_text(&self) -> &'static str {
        match self.aux {
            VdevAux::None => "",
            VdevAux::OpenFailed => "cannot open",
            VdevAux::BadGuidSum => "missing device",
            VdevAux::NoReplicas => "insufficient replicas",
            VdevAux::VersionNewer => "newer version",
            VdevAux::UnsupFeat => "unsupported feature(s)",
            VdevAux::AshiftTooBig => "unsupported minimum blocksize",
            VdevAux::Spared | VdevAux::Active => "currently in use",
            VdevAux::ErrExceeded if self.has_only_slow_ios() => "too many slow I/Os",
            VdevAux::ErrExceeded => "too many errors",
            VdevAux::IoFailure => "experienced I/O failures",
            VdevAux::BadLog => "bad intent log",
            VdevAux::External => "external device fault",
            VdevAux::SplitPool => "split into new pool",
            VdevAux::ChildrenOffline => "all children offline",
            VdevAux::BadLabel => "invalid label",
            VdevAux::CorruptData
            | VdevAux::TooSmall
            | VdevAux::VersionOlder
            | VdevAux::BadAshift
            | VdevAux::ExternalPersist => "corrupted data",
        }
    }

    fn has_only_slow_ios(&self) -> bool {
        let errors = self.read_errors + self.write_errors + self.checksum_errors;
        errors == 0 && self.is_leaf() && self.slow_ios > 0
    }

    /// The name to show for it. For the root vdev callers use the pool's name instead.
    #[must_use]
    #[doc(alias = "zpool_vdev_name")]
    pub fn name(&self, style: NameStyle) -> String {
        if self.is_not_present || style.is_guid {
            return self.guid.to_string();
        }
        if let Some(path) = &self.path {
            return match &self.kind {
                VdevKind::Disk { .. } if style.is_below_dev && !style.is_full_path => {
                    path.strip_prefix("/dev/").unwrap_or(path).to_owned()
                }
                VdevKind::Disk { is_whole } if !style.is_full_path => {
                    let base = path.rsplit('/').next().unwrap_or(path);
                    if *is_whole {
                        strip_partition(base)
                    } else {
                        base.to_owned()
                    }
                }
                _ => path.clone(),
            };
        }
        let name = match &self.kind {
            VdevKind::Raidz { parity } => format!("raidz{parity}"),
            VdevKind::Draid {
                parity,
                data,
                spares,
            } => {
                format!("draid{parity}:{data}d:{}c:{spares}s", self.children.len())
            }
            kind => kind.type_name().to_owned(),
        };
        if style.has_id {
            format!("{name}-{}", self.id)
        } else {
            name
        }
    }
}

/// How vdev names are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameStyle {
    /// `-g`: by guid
    pub is_guid: bool,
    /// `-P`: by the whole path
    pub is_full_path: bool,
    /// Disks by their path below `/dev`, as on FreeBSD; otherwise by the last part of it.
    pub is_below_dev: bool,
    /// Whether names of interior vdevs get their index as suffix: `mirror-0`.
    pub has_id: bool,
}

impl Default for NameStyle {
    fn default() -> Self {
        NameStyle {
            is_guid: false,
            is_full_path: false,
            is_below_dev: false,
            has_id: true,
        }
    }
}

/// `zfs_strip_partition`: the disk that a partition is on: `sda1` is on `sda`, `nvme0n1p1` on
/// `nvme0n1`, `ata-X-part1` on `ata-X`.
fn strip_partition(name: &str) -> String {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let stem = &name[..name.len() - digits];
    if digits == 0 {
        return name.to_owned();
    }
    if let Some(disk) = stem.strip_suffix("-part") {
        return disk.to_owned();
    }
    if let Some(disk) = stem.strip_suffix('p')
        && disk.ends_with(|c: char| c.is_ascii_digit())
    {
        return disk.to_owned();
    }
    let kinds = ["hd", "sd", "vd", "xvd"];
    let is_lettered = |kind: &str| {
        let letters = stem.strip_prefix(kind).unwrap_or("");
        !letters.is_empty() && letters.chars().all(|c| c.is_ascii_alphabetic())
    };
    if kinds.iter().any(|kind| is_lettered(kind)) {
        stem.to_owned()
    } else {
        name.to_owned()
    }
}

/// The kind of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanFunction {
    /// Reads everything.
    Scrub,
    /// Brings devices up to date.
    Resilver,
}

/// The state of a scan or a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanState {
    /// `DSS_SCANNING`
    Scanning,
    /// `DSS_FINISHED`
    Finished,
    /// `DSS_CANCELED`
    Canceled,
}

/// `pool_scan_stat_t`. Times are seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanStatus {
    /// pss_func
    pub function: ScanFunction,
    /// pss_state
    pub state: ScanState,
    /// pss_start_time
    pub start_secs: u64,
    /// pss_end_time
    pub end_secs: u64,
    /// pss_pass_scrub_pause, when paused
    pub paused_secs: Option<u64>,
    /// pss_to_examine
    pub total_bytes: u64,
    /// pss_examined
    pub examined_bytes: u64,
    /// pss_skipped
    pub skipped_bytes: u64,
    /// pss_issued
    pub issued_bytes: u64,
    /// pss_processed: repaired, or resilvered
    pub processed_bytes: u64,
    /// pss_errors
    pub errors: u64,
    /// pss_pass_start: when this pass began (the last import, or resumption)
    pub pass_start_secs: u64,
    /// pss_pass_scrub_spent_paused
    pub pass_paused_secs: u64,
    /// pss_pass_exam
    pub pass_examined_bytes: u64,
    /// pss_pass_issued
    pub pass_issued_bytes: u64,
}

/// The part of `pool_scan_stat_t` that is about the error scrub. Times are seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorScrubStatus {
    /// pss_error_scrub_state
    pub state: ScanState,
    /// pss_error_scrub_start
    pub start_secs: u64,
    /// pss_error_scrub_end
    pub end_secs: u64,
    /// pss_pass_error_scrub_pause, when paused
    pub paused_secs: Option<u64>,
    /// pss_error_scrub_examined: blocks
    pub examined: u64,
    /// pss_error_scrub_to_be_examined: blocks that are left
    pub left: u64,
}

/// `pool_removal_stat_t`. Times are seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovalStatus {
    /// prs_state
    pub state: ScanState,
    /// prs_removing_vdev
    pub vdev: u64,
    /// prs_start_time
    pub start_secs: u64,
    /// prs_end_time
    pub end_secs: u64,
    /// prs_to_copy
    pub total_bytes: u64,
    /// prs_copied
    pub copied_bytes: u64,
    /// prs_mapping_memory
    pub mapping_bytes: u64,
}

/// The sequential resilver of a top-level vdev. Times are in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "vdev_rebuild_stat_t")]
pub struct RebuildStatus {
    /// The top-level vdev.
    pub vdev: u64,
    /// vrs_state: going on, cancelled or complete
    pub state: ScanState,
    /// vrs_start_time
    pub start_secs: u64,
    /// vrs_end_time
    pub end_secs: u64,
    /// vrs_scan_time_ms
    pub took_ms: u64,
    /// vrs_bytes_scanned
    pub scanned_bytes: u64,
    /// vrs_bytes_issued
    pub issued_bytes: u64,
    /// vrs_bytes_rebuilt
    pub rebuilt_bytes: u64,
    /// vrs_bytes_est
    pub total_bytes: u64,
    /// vrs_errors
    pub errors: u64,
    /// vrs_pass_time_ms
    pub pass_ms: u64,
    /// vrs_pass_bytes_scanned
    pub pass_scanned_bytes: u64,
    /// vrs_pass_bytes_issued
    pub pass_issued_bytes: u64,
    /// vrs_pass_bytes_skipped
    pub pass_skipped_bytes: u64,
}

/// `pool_raidz_expand_stat_t`. Times are seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpandStatus {
    /// pres_state
    pub state: ScanState,
    /// pres_expanding_vdev
    pub vdev: u64,
    /// pres_start_time
    pub start_secs: u64,
    /// pres_end_time
    pub end_secs: u64,
    /// pres_to_reflow
    pub total_bytes: u64,
    /// pres_reflowed
    pub copied_bytes: u64,
    /// pres_waiting_for_resilver
    pub waits_for_resilver: bool,
}

/// `pool_checkpoint_stat_t`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointStatus {
    /// Whether it is being discarded.
    pub is_discarding: bool,
    /// When it was made, in seconds since 1970.
    pub start_secs: u64,
    /// The space that it holds, in bytes.
    pub bytes: u64,
}

/// Everything that is shown of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// The last txg.
    pub txg: u64,
    /// `spa_version`: 5000 with features
    pub version: u64,
    /// The root vdev, with the top-level vdevs below it.
    pub root: VdevStatus,
    /// Hot spares.
    pub spares: Vec<VdevStatus>,
    /// Cache devices.
    pub cache: Vec<VdevStatus>,
    /// It takes no more writes after an I/O failure.
    pub is_suspended: bool,
    /// Features of the pool that this program does not support.
    pub unsupported_features: Vec<String>,
    /// The pool can still be read in spite of those.
    pub is_readable: bool,
    /// Some supported features are not enabled.
    pub has_disabled_features: bool,
    /// It was last used by another host, or is in use there.
    pub is_foreign: bool,
    /// The last scan.
    pub scan: Option<ScanStatus>,
    /// The last error scrub, if no scan began since.
    pub error_scrub: Option<ErrorScrubStatus>,
    /// Sequential resilvers that go on, or the last ones.
    pub rebuilds: Vec<RebuildStatus>,
    /// The last removal.
    pub removal: Option<RemovalStatus>,
    /// The expansion of a RAID-Z that goes on, or was the last one.
    pub expand: Option<ExpandStatus>,
    /// The checkpoint.
    pub checkpoint: Option<CheckpointStatus>,
    /// The dedup tables; `None` if unknown.
    pub dedup: Option<DedupStatus>,
    /// The number of blocks known to be damaged; `None` if unknown.
    pub error_count: Option<u64>,
    /// The objects they belong to: paths of files, or `<0x36>:<0x2>` (objset, object).
    pub errors: Vec<String>,
}

impl PoolStatus {
    /// The pool's state: `zpool_get_state_str`.
    #[must_use]
    pub fn state_name(&self) -> &'static str {
        if self.is_suspended {
            "SUSPENDED"
        } else {
            self.root.state_name()
        }
    }

    /// Top-level vdevs of a class, holes left out.
    fn tops(&self, class: AllocClass) -> impl Iterator<Item = &VdevStatus> {
        let of_class = move |top: &&VdevStatus| top.class == class && top.kind != VdevKind::Hole;
        self.root.children.iter().filter(of_class)
    }

    /// `max_width`: the width of the widest vdev's name with its indentation.
    fn name_width(&self, style: NameStyle) -> usize {
        fn widest(vdev: &VdevStatus, depth: usize, style: NameStyle) -> usize {
            let own = vdev.name(style).chars().count() + depth;
            let below = vdev
                .children
                .iter()
                .map(|child| widest(child, depth + 2, style));
            below.fold(own, usize::max)
        }
        let lone = self
            .spares
            .iter()
            .chain(&self.cache)
            .chain(&self.root.children);
        let widths = lone.map(|vdev| widest(vdev, 2, style));
        widths.fold(self.name.chars().count(), usize::max)
    }
}

/// The classes listed after the normal vdevs, in the order of `zpool status` and `zpool list -v`.
const CLASSES: [AllocClass; 3] = [AllocClass::Dedup, AllocClass::Special, AllocClass::Log];

/// The heading for the vdevs of a class.
pub(crate) fn heading(class: AllocClass) -> &'static str {
    match class {
        AllocClass::Log => "logs",
        other => other.word().unwrap_or("normal"),
    }
}
