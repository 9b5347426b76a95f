//! Feature flags: all that exist, and how far this program supports each.
//!
//! # What it is
//! A pool names every format extension it may use. A feature is *disabled* (absent), *enabled*
//! (count 0) or *active* (count > 0: something on disk depends on it). Unsupported active features
//! stop an import, unless the feature is read-only compatible and the import is read-only.
//!
//! # On disk
//! Three ZAPs named in the object directory: `features_for_read`, `features_for_write` (guid ->
//! count) and `feature_descriptions` (guid -> text); with `enabled_txg` a fourth,
//! `feature_enabled_txg` (guid -> txg). A feature that is not read-only compatible and not needed
//! to read the MOS is found before any dataset is opened; one that is needed to read the MOS
//! is in the labels, too (`features_for_read`).
//!
//! # Source
//! OpenZFS `module/zcommon/zfeature_common.c`, `module/zfs/zfeature.c`.

/// Destroys spread over txgs (`bptree_obj`).
pub const ASYNC_DESTROY: &str = "com.delphix:async_destroy";
/// One shared empty bpobj for all empty deadlist entries.
pub const EMPTY_BPOBJ: &str = "com.delphix:empty_bpobj";
/// DSL directories and datasets that are also ZAPs.
pub const EXTENSIBLE_DATASET: &str = "com.delphix:extensible_dataset";
/// Bookmarks.
pub const BOOKMARKS: &str = "com.delphix:bookmarks";
/// Larger bookmark records.
pub const BOOKMARK_V2: &str = "com.datto:bookmark_v2";
/// Bookmarks that record how much was freed before the next snapshot.
pub const BOOKMARK_WRITTEN: &str = "com.delphix:bookmark_written";
/// Redaction lists of bookmarks.
pub const REDACTION_BOOKMARKS: &str = "com.delphix:redaction_bookmarks";
/// Redaction lists that are in a spill block.
pub const REDACTION_LIST_SPILL: &str = "com.delphix:redaction_list_spill";
/// Data sets that lack the blocks that were redacted when they were sent.
pub const REDACTED_DATASETS: &str = "com.delphix:redacted_datasets";
/// Limits of the number of file systems and snapshots.
pub const FS_SS_LIMIT: &str = "com.joyent:filesystem_limits";
/// Encrypted data sets.
pub const ENCRYPTION: &str = "com.datto:encryption";
/// Lists of the blocks of a clone that its origin does not have.
pub const LIVELIST: &str = "com.delphix:livelist";
/// Blocks larger than 128 KiB.
pub const LARGE_BLOCKS: &str = "org.open-zfs:large_blocks";
/// Dnodes larger than 512 bytes.
pub const LARGE_DNODE: &str = "org.zfsonlinux:large_dnode";
/// SHA-512/256.
pub const SHA512: &str = "org.illumos:sha512";
/// Skein.
pub const SKEIN: &str = "org.illumos:skein";
/// Edon-R.
pub const EDONR: &str = "org.illumos:edonr";
/// BLAKE3.
pub const BLAKE3: &str = "org.openzfs:blake3";
/// Zstandard.
pub const ZSTD_COMPRESS: &str = "org.freebsd:zstd_compress";
/// Counting of objects per user and group.
pub const USEROBJ_ACCOUNTING: &str = "org.zfsonlinux:userobj_accounting";
/// Errors are logged per head dataset.
pub const HEAD_ERRLOG: &str = "com.delphix:head_errlog";
/// Space and object counts per project.
pub const PROJECT_QUOTA: &str = "org.zfsonlinux:project_quota";
/// Extended attributes in the intent log.
pub const ZILSAXATTR: &str = "org.openzfs:zilsaxattr";
/// Top-level vdevs that are a dRAID.
pub const DRAID: &str = "org.openzfs:draid";
/// Names of files of up to 1023 bytes.
pub const LONGNAME: &str = "org.zfsonlinux:longname";
/// Micro ZAPs of more than 128 KiB.
pub const LARGE_MICROZAP: &str = "com.klarasystems:large_microzap";
/// LZ4.
pub const LZ4_COMPRESS: &str = "org.illumos:lz4_compress";

/// Small blocks embedded in their block pointers.
pub const EMBEDDED_DATA: &str = "com.delphix:embedded_data";
/// Holes that record when they were made.
pub const HOLE_BIRTH: &str = "com.delphix:hole_birth";
/// The txg in which each feature was enabled.
pub const ENABLED_TXG: &str = "com.delphix:enabled_txg";
/// Histograms in space maps.
pub const SPACEMAP_HISTOGRAM: &str = "com.delphix:spacemap_histogram";
/// Space map entries of two words.
pub const SPACEMAP_V2: &str = "com.delphix:spacemap_v2";
/// Logs of changes to space maps.
pub const LOG_SPACEMAP: &str = "com.delphix:log_spacemap";
/// Cloned blocks.
pub const BLOCK_CLONING: &str = "com.fudosecurity:block_cloning";
/// Counts of cloned blocks that are numbers, which a host of another byte order can read.
pub const BLOCK_CLONING_ENDIAN: &str = "com.truenas:block_cloning_endian";
/// Gang headers as large as the smallest allocation of their vdev.
pub const DYNAMIC_GANG_HEADER: &str = "com.klarasystems:dynamic_gang_header";
/// Blocks that were written again and kept the birth of their contents.
pub const PHYSICAL_REWRITE: &str = "com.truenas:physical_rewrite";
/// Its count is that of dedup tables with flat entries and logs.
pub const FAST_DEDUP: &str = "com.klarasystems:fast_dedup";
/// RAID-Z that was expanded: blocks that are narrower than their vdev.
pub const RAIDZ_EXPANSION: &str = "org.openzfs:raidz_expansion";
/// Devices that wait for the next resilver while one runs.
pub const RESILVER_DEFER: &str = "com.datto:resilver_defer";
/// Sequential resilvers that are not done.
pub const DEVICE_REBUILD: &str = "org.openzfs:device_rebuild";
/// Removed top-level vdevs, and mappings to where their blocks are now.
pub const DEVICE_REMOVAL: &str = "com.delphix:device_removal";
/// The parts of a removed vdev that are no longer referenced.
pub const OBSOLETE_COUNTS: &str = "com.delphix:obsolete_counts";
/// A checkpoint of the pool.
pub const ZPOOL_CHECKPOINT: &str = "com.delphix:zpool_checkpoint";
/// Special and dedup vdevs.
pub const ALLOCATION_CLASSES: &str = "org.zfsonlinux:allocation_classes";

/// How far this program supports a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// Reads, writes and maintains it: new pools have it enabled if release 2.3 knows it.
    Kept,
    /// Reads pools in which it is active; they are opened read-only.
    Read,
    /// A pool in which it is active cannot be opened, unless the feature is read-only compatible.
    None,
}

/// One feature flag.
#[derive(Debug, Clone, Copy)]
pub struct Feature {
    /// The name in the ZAPs, `org.illumos:lz4_compress`.
    pub guid: &'static str,
    /// The name in `feature@…` properties.
    pub name: &'static str,
    /// The text in `feature_descriptions`.
    pub description: &'static str,
    /// Whether a reader may ignore it (`ZFEATURE_FLAG_READONLY_COMPAT`).
    pub readonly_compat: bool,
    /// Whether the MOS cannot be read without it (`ZFEATURE_FLAG_MOS`); then the labels name it.
    pub mos: bool,
    /// Whether enabling makes it active immediately (`ZFEATURE_FLAG_ACTIVATE_ON_ENABLE`).
    pub activate_on_enable: bool,
    /// Whether its count is the number of datasets that use it (`ZFEATURE_FLAG_PER_DATASET`).
    pub per_dataset: bool,
    /// Names of the features that it depends on.
    pub depends: &'static [&'static str],
    /// How far this program supports it.
    pub support: Support,
}

const RO: u8 = 1;
const MOS: u8 = 2;
const ON: u8 = 4;
const DS: u8 = 8;

const fn feature(
    guid: &'static str,
    name: &'static str,
    flags: u8,
    depends: &'static [&'static str],
    support: Support,
    description: &'static str,
) -> Feature {
    Feature {
        guid,
        name,
        description,
        readonly_compat: flags & RO != 0,
        mos: flags & MOS != 0,
        activate_on_enable: flags & ON != 0,
        per_dataset: flags & DS != 0,
        depends,
        support,
    }
}

const EXTENSIBLE: &[&str] = &["extensible_dataset"];

/// Every feature flag known to OpenZFS, in the order of `spa_feature_t`; those added after release
/// 2.3 are at the end.
#[rustfmt::skip]
pub const FEATURES: &[Feature] = &[
    feature(ASYNC_DESTROY, "async_destroy", RO, &[], Support::Kept,
        "Destroy filesystems asynchronously."),
    feature(EMPTY_BPOBJ, "empty_bpobj", RO, &[], Support::Kept,
        "Snapshots use less space."),
    feature(LZ4_COMPRESS, "lz4_compress", ON, &[], Support::Kept,
        "LZ4 compression algorithm support."),
    feature("com.joyent:multi_vdev_crash_dump", "multi_vdev_crash_dump", 0, &[], Support::Read,
        "Crash dumps to multiple vdev pools."),
    feature(SPACEMAP_HISTOGRAM, "spacemap_histogram", RO, &[], Support::Kept,
        "Spacemaps maintain space histograms."),
    feature(ENABLED_TXG, "enabled_txg", RO, &[], Support::Kept,
        "Record txg at which a feature is enabled"),
    feature(HOLE_BIRTH, "hole_birth", MOS | ON, &["enabled_txg"], Support::Kept,
        "Retain hole birth txg for more precise zfs send"),
    feature(EXTENSIBLE_DATASET, "extensible_dataset", 0, &[], Support::Kept,
        "Enhanced dataset functionality, used by other features."),
    feature(EMBEDDED_DATA, "embedded_data", MOS | ON, &[], Support::Kept,
        "Blocks which compress very well use even less space."),
    feature(BOOKMARKS, "bookmarks", RO, EXTENSIBLE, Support::Kept,
        "\"zfs bookmark\" command"),
    feature(FS_SS_LIMIT, "filesystem_limits", RO, EXTENSIBLE, Support::Kept,
        "Filesystem and snapshot limits."),
    feature(LARGE_BLOCKS, "large_blocks", DS, EXTENSIBLE, Support::Kept,
        "Support for blocks larger than 128KB."),
    feature(LARGE_DNODE, "large_dnode", DS, EXTENSIBLE, Support::Kept,
        "Variable on-disk size of dnodes."),
    feature(SHA512, "sha512", DS, EXTENSIBLE, Support::Kept,
        "SHA-512/256 hash algorithm."),
    feature(SKEIN, "skein", DS, EXTENSIBLE, Support::Kept,
        "Skein hash algorithm."),
    feature(EDONR, "edonr", DS, EXTENSIBLE, Support::Kept,
        "Edon-R hash algorithm."),
    feature(USEROBJ_ACCOUNTING, "userobj_accounting", RO | DS, EXTENSIBLE,
        Support::Kept, "User/Group object accounting."),
    feature(ENCRYPTION, "encryption", DS, &["extensible_dataset", "bookmark_v2"],
        Support::Kept, "Support for dataset level encryption"),
    feature(PROJECT_QUOTA, "project_quota", RO | DS, EXTENSIBLE, Support::Kept,
        "space/object accounting based on project ID."),
    feature(DEVICE_REMOVAL, "device_removal", MOS, &[], Support::Kept,
        "Top-level vdevs can be removed, reducing logical pool size."),
    feature(OBSOLETE_COUNTS, "obsolete_counts", RO,
        &["extensible_dataset", "device_removal"], Support::Kept,
        "Reduce memory used by removed devices when their blocks are freed or remapped."),
    feature(ZPOOL_CHECKPOINT, "zpool_checkpoint", RO, &[], Support::Kept,
        "Pool state can be checkpointed, allowing rewind later."),
    feature(SPACEMAP_V2, "spacemap_v2", RO | ON, &[], Support::Kept,
        "Space maps representing large segments are more efficient."),
    feature(ALLOCATION_CLASSES, "allocation_classes", RO, &[], Support::Kept,
        "Support for separate allocation classes."),
    feature(RESILVER_DEFER, "resilver_defer", RO, &[], Support::Kept,
        "Support for deferring new resilvers when one is already running."),
    feature(BOOKMARK_V2, "bookmark_v2", 0, &["extensible_dataset", "bookmarks"],
        Support::Kept, "Support for larger bookmarks"),
    feature(REDACTION_BOOKMARKS, "redaction_bookmarks", 0,
        &["bookmark_v2", "extensible_dataset", "bookmarks"], Support::Kept,
        "Support for bookmarks which store redaction lists for zfs redacted send/recv."),
    feature(REDACTED_DATASETS, "redacted_datasets", DS, EXTENSIBLE, Support::Kept,
        "Support for redacted datasets, produced by receiving a redacted zfs send stream."),
    feature(BOOKMARK_WRITTEN, "bookmark_written", 0,
        &["bookmark_v2", "extensible_dataset", "bookmarks"], Support::Kept,
        "Additional accounting, enabling the written#<bookmark> property (space written since a \
         bookmark), and estimates of send stream sizes for incrementals from bookmarks."),
    feature(LOG_SPACEMAP, "log_spacemap", RO, &["spacemap_v2"], Support::Kept,
        "Log metaslab changes on a single spacemap and flush them periodically."),
    feature(LIVELIST, "livelist", RO, EXTENSIBLE, Support::Kept,
        "Improved clone deletion performance."),
    feature(DEVICE_REBUILD, "device_rebuild", RO, &[], Support::Kept,
        "Support for sequential mirror/dRAID device rebuilds"),
    feature(ZSTD_COMPRESS, "zstd_compress", DS, EXTENSIBLE, Support::Kept,
        "zstd compression algorithm support."),
    feature(DRAID, "draid", MOS, &[], Support::Kept,
        "Support for distributed spare RAID"),
    feature(ZILSAXATTR, "zilsaxattr", RO | DS, EXTENSIBLE, Support::Kept,
        "Support for xattr=sa extended attribute logging in ZIL."),
    feature(HEAD_ERRLOG, "head_errlog", ON, &[], Support::Kept,
        "Support for per-dataset on-disk error logs."),
    feature(BLAKE3, "blake3", DS, EXTENSIBLE, Support::Kept,
        "BLAKE3 hash algorithm."),
    feature(BLOCK_CLONING, "block_cloning", RO, &[], Support::Kept,
        "Support for block cloning via Block Reference Table."),
    feature("com.klarasystems:vdev_zaps_v2", "vdev_zaps_v2", MOS, &[], Support::Kept,
        "Support for root vdev ZAP."),
    feature(REDACTION_LIST_SPILL, "redaction_list_spill", 0,
        &["redaction_bookmarks"], Support::Kept,
        "Support for increased number of redaction_snapshot arguments in zfs redact."),
    feature(RAIDZ_EXPANSION, "raidz_expansion", MOS, &[], Support::Kept,
        "Support for raidz expansion"),
    feature(FAST_DEDUP, "fast_dedup", RO, &[], Support::Kept,
        "Support for advanced deduplication"),
    feature(LONGNAME, "longname", DS, EXTENSIBLE, Support::Kept,
        "support filename up to 1024 bytes"),
    feature(LARGE_MICROZAP, "large_microzap", RO | DS,
        &["extensible_dataset", "large_blocks"], Support::Kept,
        "Support for microzaps larger than 128KB."),
    feature("com.seagate:draid_failure_domains", "draid_failure_domains", MOS, &["draid"],
        Support::None, "Support for failure domains in dRAID"),
    feature(BLOCK_CLONING_ENDIAN, "block_cloning_endian", RO, &[], Support::Kept,
        "Fixes BRT ZAP endianness on new pools."),
    feature(DYNAMIC_GANG_HEADER, "dynamic_gang_header", MOS, &[],
        Support::Kept, "Support for dynamically sized gang headers"),
    feature(PHYSICAL_REWRITE, "physical_rewrite", RO | DS, EXTENSIBLE,
        Support::Kept, "Support for preserving logical birth time during rewrite."),
];

/// The first release of OpenZFS that knows a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// 2.1, or one before.
    V2_1,
    /// 2.2
    V2_2,
    /// 2.3
    V2_3,
    /// 2.4
    V2_4,
    /// None yet.
    Unreleased,
}

impl Release {
    /// `2.3`; `None` if there is no such release yet.
    #[must_use]
    pub fn number(self) -> Option<&'static str> {
        match self {
            Release::V2_1 => Some("2.1"),
            Release::V2_2 => Some("2.2"),
            Release::V2_3 => Some("2.3"),
            Release::V2_4 => Some("2.4"),
            Release::Unreleased => None,
        }
    }
}

impl Feature {
    /// The first release that knows it: `cmd/zpool/compatibility.d` has a list for each.
    #[must_use]
    pub fn release(&self) -> Release {
        match self.name {
            "blake3" | "block_cloning" | "head_errlog" | "vdev_zaps_v2" | "zilsaxattr" => {
                Release::V2_2
            }
            "fast_dedup"
            | "large_microzap"
            | "longname"
            | "raidz_expansion"
            | "redaction_list_spill" => Release::V2_3,
            "block_cloning_endian" | "dynamic_gang_header" | "physical_rewrite" => Release::V2_4,
            "draid_failure_domains" => Release::Unreleased,
            _ => Release::V2_1,
        }
    }

    /// Whether OpenZFS 2.3 knows it. Newer ones are shown only for pools that have them enabled.
    #[must_use]
    pub fn is_in_2_3(&self) -> bool {
        self.release() <= Release::V2_3
    }
}

/// The feature with that `feature@` name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Feature> {
    FEATURES.iter().find(|f| f.name == name)
}

/// The feature with that guid.
#[must_use]
pub fn by_guid(guid: &str) -> Option<&'static Feature> {
    FEATURES.iter().find(|f| f.guid == guid)
}

/// The guids of features that count the datasets that use them; such a dataset's ZAP has an entry of
/// that name.
pub fn per_dataset() -> impl Iterator<Item = &'static str> {
    let counted = FEATURES.iter().filter(|f| f.per_dataset);
    counted.map(|f| f.guid)
}

/// The features that a new pool gets by default: those that are kept up here and that release 2.3 knows.
pub fn kept() -> impl Iterator<Item = &'static Feature> {
    kept_of(Release::V2_3)
}

/// The features of that release and earlier ones that are kept up here.
pub fn kept_of(release: Release) -> impl Iterator<Item = &'static Feature> {
    let is_known = move |f: &&Feature| f.support == Support::Kept && f.release() <= release;
    FEATURES.iter().filter(is_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_dependencies_exist() {
        for (i, f) in FEATURES.iter().enumerate() {
            assert_eq!(
                FEATURES.iter().position(|g| g.guid == f.guid),
                Some(i),
                "{}",
                f.guid
            );
            assert_eq!(
                FEATURES.iter().position(|g| g.name == f.name),
                Some(i),
                "{}",
                f.name
            );
            for d in f.depends {
                let d = by_name(d).unwrap_or_else(|| panic!("{} needs unknown {d}", f.name));
                assert!(
                    f.support != Support::Kept || d.support == Support::Kept,
                    "{}",
                    f.name
                );
            }
        }
    }
}
