//! Names of ZAP entries: the pool directory, DSL objects, vdev ZAPs.
//!
//! # Source
//! OpenZFS include/sys/dmu.h (`DMU_POOL_*`), dsl_dir.h (`DD_FIELD_*`), dsl_dataset.h
//! (`DS_FIELD_*`), fs/zfs.h (`VDEV_TOP_ZAP_*`, `VDEV_LEAF_ZAP_*`) @be7657e3.

/// `DMU_POOL_DIRECTORY_OBJECT`: the object of the MOS that leads to everything else
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
/// `DMU_POOL_SPARES`
pub const SPARES: &str = "spares";
/// `DMU_POOL_DEFLATE`
pub const DEFLATE: &str = "deflate";
/// `DMU_POOL_HISTORY`
pub const HISTORY: &str = "history";
/// `DMU_POOL_PROPS`
pub const PROPS: &str = "pool_props";
/// `DMU_POOL_L2CACHE`
pub const L2CACHE: &str = "l2cache";
/// `DMU_POOL_TMP_USERREFS`
pub const TMP_USERREFS: &str = "tmp_userrefs";
/// `DMU_POOL_DDT`
pub const DDT: &str = "DDT-%s-%s-%s";
/// `DMU_POOL_DDT_LOG`
pub const DDT_LOG: &str = "DDT-log-%s-%u";
/// `DMU_POOL_DDT_STATS`
pub const DDT_STATS: &str = "DDT-statistics";
/// `DMU_POOL_DDT_DIR`
pub const DDT_DIR: &str = "DDT-%s";
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
/// `DMU_POOL_ZPOOL_CHECKPOINT`
pub const ZPOOL_CHECKPOINT: &str = "com.delphix:zpool_checkpoint";
/// `DMU_POOL_LOG_SPACEMAP_ZAP`
pub const LOG_SPACEMAP_ZAP: &str = "com.delphix:log_spacemap_zap";
/// `DMU_POOL_DELETED_CLONES`
pub const DELETED_CLONES: &str = "com.delphix:deleted_clones";
/// `DMU_POOL_TXG_LOG_TIME_MINUTES`
pub const TXG_LOG_TIME_MINUTES: &str = "com.klarasystems:txg_log_time:minutes";
/// `DMU_POOL_TXG_LOG_TIME_DAYS`
pub const TXG_LOG_TIME_DAYS: &str = "com.klarasystems:txg_log_time:days";
/// `DMU_POOL_TXG_LOG_TIME_MONTHS`
pub const TXG_LOG_TIME_MONTHS: &str = "com.klarasystems:txg_log_time:months";
/// `DD_FIELD_FILESYSTEM_COUNT`
pub const DD_FIELD_FILESYSTEM_COUNT: &str = "com.joyent:filesystem_count";
/// `DD_FIELD_SNAPSHOT_COUNT`
pub const DD_FIELD_SNAPSHOT_COUNT: &str = "com.joyent:snapshot_count";
/// `DD_FIELD_CRYPTO_KEY_OBJ`
pub const DD_FIELD_CRYPTO_KEY_OBJ: &str = "com.datto:crypto_key_obj";
/// `DD_FIELD_LIVELIST`
pub const DD_FIELD_LIVELIST: &str = "com.delphix:livelist";
/// `DD_FIELD_SNAPSHOTS_CHANGED`
pub const DD_FIELD_SNAPSHOTS_CHANGED: &str = "com.ixsystems:snapshots_changed";
/// `DS_FIELD_BOOKMARK_NAMES`
pub const DS_FIELD_BOOKMARK_NAMES: &str = "com.delphix:bookmarks";
/// `DS_FIELD_LARGE_DNODE`
pub const DS_FIELD_LARGE_DNODE: &str = "org.zfsonlinux:large_dnode";
/// `DS_FIELD_RESUME_FROMGUID`
pub const DS_FIELD_RESUME_FROMGUID: &str = "com.delphix:resume_fromguid";
/// `DS_FIELD_RESUME_TONAME`
pub const DS_FIELD_RESUME_TONAME: &str = "com.delphix:resume_toname";
/// `DS_FIELD_RESUME_TOGUID`
pub const DS_FIELD_RESUME_TOGUID: &str = "com.delphix:resume_toguid";
/// `DS_FIELD_RESUME_OBJECT`
pub const DS_FIELD_RESUME_OBJECT: &str = "com.delphix:resume_object";
/// `DS_FIELD_RESUME_OFFSET`
pub const DS_FIELD_RESUME_OFFSET: &str = "com.delphix:resume_offset";
/// `DS_FIELD_RESUME_BYTES`
pub const DS_FIELD_RESUME_BYTES: &str = "com.delphix:resume_bytes";
/// `DS_FIELD_RESUME_LARGEBLOCK`
pub const DS_FIELD_RESUME_LARGEBLOCK: &str = "com.delphix:resume_largeblockok";
/// `DS_FIELD_RESUME_EMBEDOK`
pub const DS_FIELD_RESUME_EMBEDOK: &str = "com.delphix:resume_embedok";
/// `DS_FIELD_RESUME_COMPRESSOK`
pub const DS_FIELD_RESUME_COMPRESSOK: &str = "com.delphix:resume_compressok";
/// `DS_FIELD_RESUME_RAWOK`
pub const DS_FIELD_RESUME_RAWOK: &str = "com.datto:resume_rawok";
/// `DS_FIELD_REMAP_DEADLIST`
pub const DS_FIELD_REMAP_DEADLIST: &str = "com.delphix:remap_deadlist";
/// `DS_FIELD_RESUME_REDACT_BOOKMARK_SNAPS`
pub const DS_FIELD_RESUME_REDACT_BOOKMARK_SNAPS: &str = "com.delphix:resume_redact_book_snaps";
/// `DS_FIELD_IVSET_GUID`
pub const DS_FIELD_IVSET_GUID: &str = "com.datto:ivset_guid";
/// `DS_FIELD_RAW_RECEIVED`
pub const DS_FIELD_RAW_RECEIVED: &str = "org.openzfs:raw_received";
/// `VDEV_TOP_ZAP_INDIRECT_OBSOLETE_SM`
pub const VDEV_TOP_ZAP_INDIRECT_OBSOLETE_SM: &str = "com.delphix:indirect_obsolete_sm";
/// `VDEV_TOP_ZAP_OBSOLETE_COUNTS_ARE_PRECISE`
pub const VDEV_TOP_ZAP_OBSOLETE_COUNTS_ARE_PRECISE: &str =
    "com.delphix:obsolete_counts_are_precise";
/// `VDEV_TOP_ZAP_POOL_CHECKPOINT_SM`
pub const VDEV_TOP_ZAP_POOL_CHECKPOINT_SM: &str = "com.delphix:pool_checkpoint_sm";
/// `VDEV_TOP_ZAP_MS_UNFLUSHED_PHYS_TXGS`
pub const VDEV_TOP_ZAP_MS_UNFLUSHED_PHYS_TXGS: &str = "com.delphix:ms_unflushed_phys_txgs";
/// `VDEV_TOP_ZAP_VDEV_REBUILD_PHYS`
pub const VDEV_TOP_ZAP_VDEV_REBUILD_PHYS: &str = "org.openzfs:vdev_rebuild";
/// `VDEV_TOP_ZAP_ALLOCATION_BIAS`
pub const VDEV_TOP_ZAP_ALLOCATION_BIAS: &str = "org.zfsonlinux:allocation_bias";
/// `VDEV_TOP_ZAP_RAIDZ_EXPAND_STATE`
pub const VDEV_TOP_ZAP_RAIDZ_EXPAND_STATE: &str = "org.openzfs:raidz_expand_state";
/// `VDEV_TOP_ZAP_RAIDZ_EXPAND_START_TIME`
pub const VDEV_TOP_ZAP_RAIDZ_EXPAND_START_TIME: &str = "org.openzfs:raidz_expand_start_time";
/// `VDEV_TOP_ZAP_RAIDZ_EXPAND_END_TIME`
pub const VDEV_TOP_ZAP_RAIDZ_EXPAND_END_TIME: &str = "org.openzfs:raidz_expand_end_time";
/// `VDEV_TOP_ZAP_RAIDZ_EXPAND_BYTES_COPIED`
pub const VDEV_TOP_ZAP_RAIDZ_EXPAND_BYTES_COPIED: &str = "org.openzfs:raidz_expand_bytes_copied";
/// `VDEV_LEAF_ZAP_INITIALIZE_LAST_OFFSET`
pub const VDEV_LEAF_ZAP_INITIALIZE_LAST_OFFSET: &str = "com.delphix:next_offset_to_initialize";
/// `VDEV_LEAF_ZAP_INITIALIZE_STATE`
pub const VDEV_LEAF_ZAP_INITIALIZE_STATE: &str = "com.delphix:vdev_initialize_state";
/// `VDEV_LEAF_ZAP_INITIALIZE_ACTION_TIME`
pub const VDEV_LEAF_ZAP_INITIALIZE_ACTION_TIME: &str = "com.delphix:vdev_initialize_action_time";
/// `VDEV_LEAF_ZAP_INITIALIZE_VALUE`
pub const VDEV_LEAF_ZAP_INITIALIZE_VALUE: &str = "org.openzfs:vdev_initialize_value";
/// `VDEV_LEAF_ZAP_TRIM_LAST_OFFSET`
pub const VDEV_LEAF_ZAP_TRIM_LAST_OFFSET: &str = "org.zfsonlinux:next_offset_to_trim";
/// `VDEV_LEAF_ZAP_TRIM_STATE`
pub const VDEV_LEAF_ZAP_TRIM_STATE: &str = "org.zfsonlinux:vdev_trim_state";
/// `VDEV_LEAF_ZAP_TRIM_ACTION_TIME`
pub const VDEV_LEAF_ZAP_TRIM_ACTION_TIME: &str = "org.zfsonlinux:vdev_trim_action_time";
/// `VDEV_LEAF_ZAP_TRIM_RATE`
pub const VDEV_LEAF_ZAP_TRIM_RATE: &str = "org.zfsonlinux:vdev_trim_rate";
/// `VDEV_LEAF_ZAP_TRIM_PARTIAL`
pub const VDEV_LEAF_ZAP_TRIM_PARTIAL: &str = "org.zfsonlinux:vdev_trim_partial";
/// `VDEV_LEAF_ZAP_TRIM_SECURE`
pub const VDEV_LEAF_ZAP_TRIM_SECURE: &str = "org.zfsonlinux:vdev_trim_secure";
/// `VDEV_ALLOC_BIAS_LOG`
pub const VDEV_ALLOC_BIAS_LOG: &str = "log";
/// `VDEV_ALLOC_BIAS_SPECIAL`
pub const VDEV_ALLOC_BIAS_SPECIAL: &str = "special";
/// `VDEV_ALLOC_BIAS_DEDUP`
pub const VDEV_ALLOC_BIAS_DEDUP: &str = "dedup";

/// `MOS_DIR_NAME`: the hidden directory of the pool's own datasets
pub const MOS_DIR_NAME: &str = "$MOS";
/// `ORIGIN_DIR_NAME`: the hidden empty dataset from which all are cloned
pub const ORIGIN_DIR_NAME: &str = "$ORIGIN";
/// `FREE_DIR_NAME`: the hidden account of blocks being freed
pub const FREE_DIR_NAME: &str = "$FREE";
/// `LEAK_DIR_NAME`: the hidden account of blocks that could not be freed
pub const LEAK_DIR_NAME: &str = "$LEAK";
