//! Feature flags: which there are, which this program keeps up, and the counts kept in the pool.
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
//! stands in the labels, too (`features_for_read`).
//!
//! # Source
//! OpenZFS `module/zcommon/zfeature_common.c`, `module/zfs/zfeature.c`.

/// How far this program goes with a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// Reads, writes and maintains it: new pools have it enabled.
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
    /// What `feature_descriptions` says.
    pub description: &'static str,
    /// Whether a reader may ignore it (`ZFEATURE_FLAG_READONLY_COMPAT`).
    pub readonly_compat: bool,
    /// Whether the MOS cannot be read without it (`ZFEATURE_FLAG_MOS`): it is named in the labels.
    pub mos: bool,
    /// Whether enabling makes it active at once (`ZFEATURE_FLAG_ACTIVATE_ON_ENABLE`).
    pub activate_on_enable: bool,
    /// Whether each dataset that uses it counts once (`ZFEATURE_FLAG_PER_DATASET`).
    pub per_dataset: bool,
    /// Names of the features that it needs.
    pub depends: &'static [&'static str],
    /// How far this program goes with it.
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

/// Every feature flag known to OpenZFS, in the order of `spa_feature_t`; what came after release 2.3
/// is at the end.
#[rustfmt::skip]
pub const FEATURES: &[Feature] = &[
    feature("com.delphix:async_destroy", "async_destroy", RO, &[], Support::Kept,
        "Destroy filesystems asynchronously."),
    feature("com.delphix:empty_bpobj", "empty_bpobj", RO, &[], Support::Kept,
        "Snapshots use less space."),
    feature("org.illumos:lz4_compress", "lz4_compress", ON, &[], Support::Kept,
        "LZ4 compression algorithm support."),
    feature("com.joyent:multi_vdev_crash_dump", "multi_vdev_crash_dump", 0, &[], Support::Read,
        "Crash dumps to multiple vdev pools."),
    feature("com.delphix:spacemap_histogram", "spacemap_histogram", RO, &[], Support::Kept,
        "Spacemaps maintain space histograms."),
    feature("com.delphix:enabled_txg", "enabled_txg", RO, &[], Support::Kept,
        "Record txg at which a feature is enabled"),
    feature("com.delphix:hole_birth", "hole_birth", MOS | ON, &["enabled_txg"], Support::Kept,
        "Retain hole birth txg for more precise zfs send"),
    feature("com.delphix:extensible_dataset", "extensible_dataset", 0, &[], Support::Kept,
        "Enhanced dataset functionality, used by other features."),
    feature("com.delphix:embedded_data", "embedded_data", MOS | ON, &[], Support::Kept,
        "Blocks which compress very well use even less space."),
    feature("com.delphix:bookmarks", "bookmarks", RO, EXTENSIBLE, Support::Kept,
        "\"zfs bookmark\" command"),
    feature("com.joyent:filesystem_limits", "filesystem_limits", RO, EXTENSIBLE, Support::None,
        "Filesystem and snapshot limits."),
    feature("org.open-zfs:large_blocks", "large_blocks", DS, EXTENSIBLE, Support::Kept,
        "Support for blocks larger than 128KB."),
    feature("org.zfsonlinux:large_dnode", "large_dnode", DS, EXTENSIBLE, Support::Kept,
        "Variable on-disk size of dnodes."),
    feature("org.illumos:sha512", "sha512", DS, EXTENSIBLE, Support::Kept,
        "SHA-512/256 hash algorithm."),
    feature("org.illumos:skein", "skein", DS, EXTENSIBLE, Support::Kept,
        "Skein hash algorithm."),
    feature("org.illumos:edonr", "edonr", DS, EXTENSIBLE, Support::Kept,
        "Edon-R hash algorithm."),
    feature("org.zfsonlinux:userobj_accounting", "userobj_accounting", RO | DS, EXTENSIBLE,
        Support::Kept, "User/Group object accounting."),
    feature("com.datto:encryption", "encryption", DS, &["extensible_dataset", "bookmark_v2"],
        Support::None, "Support for dataset level encryption"),
    feature("org.zfsonlinux:project_quota", "project_quota", RO | DS, EXTENSIBLE, Support::Kept,
        "space/object accounting based on project ID."),
    feature("com.delphix:device_removal", "device_removal", MOS, &[], Support::None,
        "Top-level vdevs can be removed, reducing logical pool size."),
    feature("com.delphix:obsolete_counts", "obsolete_counts", RO,
        &["extensible_dataset", "device_removal"], Support::None,
        "Reduce memory used by removed devices when their blocks are freed or remapped."),
    feature("com.delphix:zpool_checkpoint", "zpool_checkpoint", RO, &[], Support::None,
        "Pool state can be checkpointed, allowing rewind later."),
    feature("com.delphix:spacemap_v2", "spacemap_v2", RO | ON, &[], Support::Kept,
        "Space maps representing large segments are more efficient."),
    feature("org.zfsonlinux:allocation_classes", "allocation_classes", RO, &[], Support::None,
        "Support for separate allocation classes."),
    feature("com.datto:resilver_defer", "resilver_defer", RO, &[], Support::None,
        "Support for deferring new resilvers when one is already running."),
    feature("com.datto:bookmark_v2", "bookmark_v2", 0, &["extensible_dataset", "bookmarks"],
        Support::Read, "Support for larger bookmarks"),
    feature("com.delphix:redaction_bookmarks", "redaction_bookmarks", 0,
        &["bookmark_v2", "extensible_dataset", "bookmarks"], Support::Read,
        "Support for bookmarks which store redaction lists for zfs redacted send/recv."),
    feature("com.delphix:redacted_datasets", "redacted_datasets", DS, EXTENSIBLE, Support::None,
        "Support for redacted datasets, produced by receiving a redacted zfs send stream."),
    feature("com.delphix:bookmark_written", "bookmark_written", 0,
        &["bookmark_v2", "extensible_dataset", "bookmarks"], Support::Read,
        "Additional accounting, enabling the written#<bookmark> property (space written since a \
         bookmark), and estimates of send stream sizes for incrementals from bookmarks."),
    feature("com.delphix:log_spacemap", "log_spacemap", RO, &["spacemap_v2"], Support::Kept,
        "Log metaslab changes on a single spacemap and flush them periodically."),
    feature("com.delphix:livelist", "livelist", RO, EXTENSIBLE, Support::Kept,
        "Improved clone deletion performance."),
    feature("org.openzfs:device_rebuild", "device_rebuild", RO, &[], Support::None,
        "Support for sequential mirror/dRAID device rebuilds"),
    feature("org.freebsd:zstd_compress", "zstd_compress", DS, EXTENSIBLE, Support::Kept,
        "zstd compression algorithm support."),
    feature("org.openzfs:draid", "draid", MOS, &[], Support::None,
        "Support for distributed spare RAID"),
    feature("org.openzfs:zilsaxattr", "zilsaxattr", RO | DS, EXTENSIBLE, Support::Kept,
        "Support for xattr=sa extended attribute logging in ZIL."),
    feature("com.delphix:head_errlog", "head_errlog", ON, &[], Support::Kept,
        "Support for per-dataset on-disk error logs."),
    feature("org.openzfs:blake3", "blake3", DS, EXTENSIBLE, Support::Kept,
        "BLAKE3 hash algorithm."),
    feature("com.fudosecurity:block_cloning", "block_cloning", RO, &[], Support::None,
        "Support for block cloning via Block Reference Table."),
    feature("com.klarasystems:vdev_zaps_v2", "vdev_zaps_v2", MOS, &[], Support::Kept,
        "Support for root vdev ZAP."),
    feature("com.delphix:redaction_list_spill", "redaction_list_spill", 0,
        &["redaction_bookmarks"], Support::Read,
        "Support for increased number of redaction_snapshot arguments in zfs redact."),
    feature("org.openzfs:raidz_expansion", "raidz_expansion", MOS, &[], Support::None,
        "Support for raidz expansion"),
    feature("com.klarasystems:fast_dedup", "fast_dedup", RO, &[], Support::None,
        "Support for advanced deduplication"),
    feature("org.zfsonlinux:longname", "longname", DS, EXTENSIBLE, Support::Read,
        "support filename up to 1024 bytes"),
    feature("com.klarasystems:large_microzap", "large_microzap", RO | DS,
        &["extensible_dataset", "large_blocks"], Support::None,
        "Support for microzaps larger than 128KB."),
    feature("com.seagate:draid_failure_domains", "draid_failure_domains", MOS, &["draid"],
        Support::None, "Support for failure domains in dRAID"),
    feature("com.truenas:block_cloning_endian", "block_cloning_endian", RO, &[], Support::None,
        "Fixes BRT ZAP endianness on new pools."),
    feature("com.klarasystems:dynamic_gang_header", "dynamic_gang_header", MOS, &[],
        Support::None, "Support for dynamically sized gang headers"),
    feature("com.truenas:physical_rewrite", "physical_rewrite", RO | DS, EXTENSIBLE,
        Support::None, "Support for preserving logical birth time during rewrite."),
];

/// Features that OpenZFS 2.3 does not know: pools without them do not mention them.
const AFTER_2_3: [&str; 4] = [
    "draid_failure_domains",
    "block_cloning_endian",
    "dynamic_gang_header",
    "physical_rewrite",
];

impl Feature {
    /// Whether OpenZFS 2.3 knows it.
    #[must_use]
    pub fn is_in_2_3(&self) -> bool {
        !AFTER_2_3.contains(&self.name)
    }
}

/// The feature with that `feature@` name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Feature> {
    FEATURES.iter().find(|f| f.name == name)
}

/// These features with all that they depend on; some may be there twice.
pub(crate) fn with_depends(wanted: &[&'static Feature]) -> Vec<&'static Feature> {
    let mut all = wanted.to_vec();
    let mut seen = 0;
    while let Some(feature) = all.get(seen) {
        let needed = feature.depends.iter().filter_map(|name| by_name(name));
        all.extend(needed);
        seen += 1;
    }
    all
}

/// The feature with that guid.
#[must_use]
pub fn by_guid(guid: &str) -> Option<&'static Feature> {
    FEATURES.iter().find(|f| f.guid == guid)
}

/// The features that a new pool gets when nothing else is asked for.
pub fn kept() -> impl Iterator<Item = &'static Feature> {
    FEATURES.iter().filter(|f| f.support == Support::Kept)
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
