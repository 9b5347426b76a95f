//! Names of ZAP entries: the pool directory, DSL objects, vdev ZAPs.
//!
//! # Source
//! OpenZFS include/sys/dmu.h (`DMU_POOL_*`), dsl_dir.h (`DD_FIELD_*`), dsl_dataset.h
//! (`DS_FIELD_*`), fs/zfs.h (`VDEV_TOP_ZAP_*`, `VDEV_LEAF_ZAP_*`) @be7657e3.

/// `DMU_POOL_DIRECTORY_OBJECT`: the MOS object through which everything else is found
pub const POOL_DIRECTORY_OBJECT: u64 = 1;
/// `DMU_POOL_CONFIG`
pub const CONFIG: &str = "config";
/// `DMU_POOL_FEATURES_FOR_WRITE`
pub const FEATURES_FOR_WRITE: &str = "features_for_write";
/// `DMU_POOL_FEATURES_FOR_READ`
pub const FEATURES_FOR_READ: &str = "features_for_read";
/// `DMU_POOL_FEATURE_DESCRIPTIONS`
pub const FEATURE_DESCRIPTIONS: &str = "feature_descriptions";
/// `DMU_POOL_FEATURE_ENABLED_TXG`
pub const FEATURE_ENABLED_TXG: &str = "feature_enabled_txg";
/// `DMU_POOL_ROOT_DATASET`
pub const ROOT_DATASET: &str = "root_dataset";
/// `DMU_POOL_SYNC_BPOBJ`
pub const SYNC_BPOBJ: &str = "sync_bplist";
/// `DMU_POOL_ERRLOG_SCRUB`
pub const ERRLOG_SCRUB: &str = "errlog_scrub";
/// `DMU_POOL_ERRLOG_LAST`
pub const ERRLOG_LAST: &str = "errlog_last";
/// `DMU_POOL_DEFLATE`
pub const DEFLATE: &str = "deflate";
/// `DMU_POOL_HISTORY`
pub const HISTORY: &str = "history";
/// `DMU_POOL_SPARES`; the list in that object has the same name
pub const SPARES: &str = "spares";
/// `DMU_POOL_L2CACHE`; the list in that object has the same name
pub const L2CACHE: &str = "l2cache";
/// `DMU_POOL_PROPS`
pub const PROPS: &str = "pool_props";
/// `DMU_POOL_DDT_STATS`
pub const DDT_STATS: &str = "DDT-statistics";
/// `DMU_POOL_CREATION_VERSION`
pub const CREATION_VERSION: &str = "creation_version";
/// `DMU_POOL_SCAN`
pub const SCAN: &str = "scan";
/// `DMU_POOL_ERRORSCRUB`
pub const ERRORSCRUB: &str = "error_scrub";
/// `DMU_POOL_LAST_SCRUBBED_TXG`
pub const LAST_SCRUBBED_TXG: &str = "last_scrubbed_txg";
/// `DMU_POOL_FREE_BPOBJ`
pub const FREE_BPOBJ: &str = "free_bpobj";
/// `DMU_POOL_BPTREE_OBJ`
pub const BPTREE_OBJ: &str = "bptree_obj";
/// `DMU_POOL_EMPTY_BPOBJ`
pub const EMPTY_BPOBJ: &str = "empty_bpobj";
/// `DMU_POOL_CHECKSUM_SALT`
pub const CHECKSUM_SALT: &str = "org.illumos:checksum_salt";
/// `DMU_POOL_VDEV_ZAP_MAP`
pub const VDEV_ZAP_MAP: &str = "com.delphix:vdev_zap_map";
/// `DMU_POOL_REMOVING`
pub const REMOVING: &str = "com.delphix:removing";
/// `DMU_POOL_OBSOLETE_BPOBJ`
pub const OBSOLETE_BPOBJ: &str = "com.delphix:obsolete_bpobj";
/// `DMU_POOL_CONDENSING_INDIRECT`
pub const CONDENSING_INDIRECT: &str = "com.delphix:condensing_indirect";
/// `VDEV_TOP_ZAP_INDIRECT_OBSOLETE_SM`
pub const VDEV_TOP_ZAP_OBSOLETE_SM: &str = "com.delphix:indirect_obsolete_sm";
/// `VDEV_TOP_ZAP_OBSOLETE_COUNTS_ARE_PRECISE`
pub const VDEV_TOP_ZAP_COUNTS_ARE_PRECISE: &str = "com.delphix:obsolete_counts_are_precise";
/// `DMU_POOL_ZPOOL_CHECKPOINT`
pub const ZPOOL_CHECKPOINT: &str = "com.delphix:zpool_checkpoint";
/// `DMU_POOL_LOG_SPACEMAP_ZAP`
pub const LOG_SPACEMAP_ZAP: &str = "com.delphix:log_spacemap_zap";
/// `DMU_POOL_DELETED_CLONES`
pub const DELETED_CLONES: &str = "com.delphix:deleted_clones";
/// `DD_FIELD_LIVELIST`
pub const DD_FIELD_LIVELIST: &str = "com.delphix:livelist";
/// `DS_FIELD_BOOKMARK_NAMES`
pub const DS_FIELD_BOOKMARK_NAMES: &str = "com.delphix:bookmarks";
/// `VDEV_TOP_ZAP_POOL_CHECKPOINT_SM`
pub const VDEV_TOP_ZAP_POOL_CHECKPOINT_SM: &str = "com.delphix:pool_checkpoint_sm";
/// `VDEV_TOP_ZAP_MS_UNFLUSHED_PHYS_TXGS`
pub const VDEV_TOP_ZAP_MS_UNFLUSHED_PHYS_TXGS: &str = "com.delphix:ms_unflushed_phys_txgs";
/// `VDEV_TOP_ZAP_ALLOCATION_BIAS`
pub const VDEV_TOP_ZAP_ALLOCATION_BIAS: &str = "org.zfsonlinux:allocation_bias";
/// `VDEV_TOP_ZAP_RAIDZ_EXPAND_STATE`: `dsl_scan_state_t`
pub const VDEV_TOP_ZAP_RAIDZ_EXPAND_STATE: &str = "org.openzfs:raidz_expand_state";
/// `VDEV_TOP_ZAP_RAIDZ_EXPAND_START_TIME`: seconds since 1970
pub const VDEV_TOP_ZAP_RAIDZ_EXPAND_START_TIME: &str = "org.openzfs:raidz_expand_start_time";
/// `VDEV_TOP_ZAP_RAIDZ_EXPAND_END_TIME`: seconds since 1970
pub const VDEV_TOP_ZAP_RAIDZ_EXPAND_END_TIME: &str = "org.openzfs:raidz_expand_end_time";
/// `VDEV_TOP_ZAP_RAIDZ_EXPAND_BYTES_COPIED`
pub const VDEV_TOP_ZAP_RAIDZ_EXPAND_BYTES_COPIED: &str = "org.openzfs:raidz_expand_bytes_copied";
/// `VDEV_TOP_ZAP_VDEV_REBUILD_PHYS`: [`RebuildPhys`](crate::scan::RebuildPhys)
pub const VDEV_TOP_ZAP_VDEV_REBUILD_PHYS: &str = "org.openzfs:vdev_rebuild";

/// `DD_FIELD_FILESYSTEM_COUNT`: directories below this one
pub const DD_FIELD_FILESYSTEM_COUNT: &str = "com.joyent:filesystem_count";
/// `DD_FIELD_SNAPSHOT_COUNT`: snapshots at and below this one
pub const DD_FIELD_SNAPSHOT_COUNT: &str = "com.joyent:snapshot_count";

/// `MOS_DIR_NAME`: the directory that is charged for the MOS
pub const MOS_DIR_NAME: &str = "$MOS";
/// `FREE_DIR_NAME`: the directory that is charged for the blocks being freed
pub const FREE_DIR_NAME: &str = "$FREE";
/// `ORIGIN_DIR_NAME`: the directory, and the snapshot in it, that all datasets are clones of
pub const ORIGIN_DIR_NAME: &str = "$ORIGIN";

/// `VDEV_LEAF_ZAP_INITIALIZE_LAST_OFFSET`
pub const INITIALIZE_LAST_OFFSET: &str = "com.delphix:next_offset_to_initialize";
/// `VDEV_LEAF_ZAP_INITIALIZE_STATE`
pub const INITIALIZE_STATE: &str = "com.delphix:vdev_initialize_state";
/// `VDEV_LEAF_ZAP_INITIALIZE_ACTION_TIME`
pub const INITIALIZE_ACTION_TIME: &str = "com.delphix:vdev_initialize_action_time";
/// `VDEV_LEAF_ZAP_INITIALIZE_VALUE`, of OpenZFS after 2.3
pub const INITIALIZE_VALUE: &str = "org.openzfs:vdev_initialize_value";
/// `VDEV_LEAF_ZAP_TRIM_LAST_OFFSET`
pub const TRIM_LAST_OFFSET: &str = "org.zfsonlinux:next_offset_to_trim";
/// `VDEV_LEAF_ZAP_TRIM_STATE`
pub const TRIM_STATE: &str = "org.zfsonlinux:vdev_trim_state";
/// `VDEV_LEAF_ZAP_TRIM_ACTION_TIME`
pub const TRIM_ACTION_TIME: &str = "org.zfsonlinux:vdev_trim_action_time";
/// `VDEV_LEAF_ZAP_TRIM_RATE`
pub const TRIM_RATE: &str = "org.zfsonlinux:vdev_trim_rate";
/// `VDEV_LEAF_ZAP_TRIM_PARTIAL`
pub const TRIM_PARTIAL: &str = "org.zfsonlinux:vdev_trim_partial";
/// `VDEV_LEAF_ZAP_TRIM_SECURE`
pub const TRIM_SECURE: &str = "org.zfsonlinux:vdev_trim_secure";
