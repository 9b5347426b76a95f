//! Keys of the nvlists that describe pools and vdevs, in labels and in the MOS, and their values.
//!
//! # Source
//! OpenZFS include/sys/fs/zfs.h (`ZPOOL_CONFIG_*`, `VDEV_TYPE_*`, `pool_state_t`) @be7657e3.

/// `ZPOOL_CONFIG_VERSION`
pub const VERSION: &str = "version";
/// `ZPOOL_CONFIG_POOL_NAME`
pub const POOL_NAME: &str = "name";
/// `ZPOOL_CONFIG_POOL_STATE`
pub const POOL_STATE: &str = "state";
/// `ZPOOL_CONFIG_POOL_TXG`
pub const POOL_TXG: &str = "txg";
/// `ZPOOL_CONFIG_POOL_GUID`
pub const POOL_GUID: &str = "pool_guid";
/// `ZPOOL_CONFIG_CREATE_TXG`
pub const CREATE_TXG: &str = "create_txg";
/// `ZPOOL_CONFIG_TOP_GUID`
pub const TOP_GUID: &str = "top_guid";
/// `ZPOOL_CONFIG_VDEV_TREE`
pub const VDEV_TREE: &str = "vdev_tree";
/// `ZPOOL_CONFIG_TYPE`
pub const TYPE: &str = "type";
/// `ZPOOL_CONFIG_CHILDREN`
pub const CHILDREN: &str = "children";
/// `ZPOOL_CONFIG_ID`
pub const ID: &str = "id";
/// `ZPOOL_CONFIG_GUID`
pub const GUID: &str = "guid";
/// `ZPOOL_CONFIG_INDIRECT_OBJECT`
pub const INDIRECT_OBJECT: &str = "com.delphix:indirect_object";
/// `ZPOOL_CONFIG_INDIRECT_BIRTHS`
pub const INDIRECT_BIRTHS: &str = "com.delphix:indirect_births";
/// `ZPOOL_CONFIG_PREV_INDIRECT_VDEV`
pub const PREV_INDIRECT_VDEV: &str = "com.delphix:prev_indirect_vdev";
/// `ZPOOL_CONFIG_PATH`
pub const PATH: &str = "path";
/// `ZPOOL_CONFIG_DEVID`
pub const DEVID: &str = "devid";
/// `ZPOOL_CONFIG_SPARE_ID`
pub const SPARE_ID: &str = "spareid";
/// `ZPOOL_CONFIG_METASLAB_ARRAY`
pub const METASLAB_ARRAY: &str = "metaslab_array";
/// `ZPOOL_CONFIG_METASLAB_SHIFT`
pub const METASLAB_SHIFT: &str = "metaslab_shift";
/// `ZPOOL_CONFIG_ASHIFT`
pub const ASHIFT: &str = "ashift";
/// `ZPOOL_CONFIG_ASIZE`
pub const ASIZE: &str = "asize";
/// `ZPOOL_CONFIG_MIN_ALLOC`
pub const MIN_ALLOC: &str = "min_alloc";
/// `ZPOOL_CONFIG_MAX_ALLOC`
pub const MAX_ALLOC: &str = "max_alloc";
/// `ZPOOL_CONFIG_DTL`
pub const DTL: &str = "DTL";
/// `ZPOOL_CONFIG_SCAN_STATS`
pub const SCAN_STATS: &str = "scan_stats";
/// `ZPOOL_CONFIG_REMOVAL_STATS`
pub const REMOVAL_STATS: &str = "removal_stats";
/// `ZPOOL_CONFIG_CHECKPOINT_STATS`
pub const CHECKPOINT_STATS: &str = "checkpoint_stats";
/// `ZPOOL_CONFIG_RAIDZ_EXPAND_STATS`
pub const RAIDZ_EXPAND_STATS: &str = "raidz_expand_stats";
/// `ZPOOL_CONFIG_VDEV_STATS`
pub const VDEV_STATS: &str = "vdev_stats";
/// `ZPOOL_CONFIG_CONDENSE_STATS`
pub const CONDENSE_STATS: &str = "com.klarasystems:condense_stats";
/// `ZPOOL_CONFIG_INDIRECT_SIZE`
pub const INDIRECT_SIZE: &str = "indirect_size";
/// `ZPOOL_CONFIG_VDEV_STATS_EX`
pub const VDEV_STATS_EX: &str = "vdev_stats_ex";
/// `ZPOOL_CONFIG_VDEV_SLOW_IOS`
pub const VDEV_SLOW_IOS: &str = "vdev_slow_ios";
/// `ZPOOL_CONFIG_VDEV_DIO_VERIFY_ERRORS`
pub const VDEV_DIO_VERIFY_ERRORS: &str = "vdev_dio_verify_errors";
/// `ZPOOL_CONFIG_VDEV_ENC_SYSFS_PATH`
pub const VDEV_ENC_SYSFS_PATH: &str = "vdev_enc_sysfs_path";
/// `ZPOOL_CONFIG_WHOLE_DISK`
pub const WHOLE_DISK: &str = "whole_disk";
/// `ZPOOL_CONFIG_VDEV_ROTATIONAL`
pub const VDEV_ROTATIONAL: &str = "rotational";
/// `ZPOOL_CONFIG_ERRCOUNT`
pub const ERRCOUNT: &str = "error_count";
/// `ZPOOL_CONFIG_NOT_PRESENT`
pub const NOT_PRESENT: &str = "not_present";
/// `ZPOOL_CONFIG_SPARES`
pub const SPARES: &str = "spares";
/// `ZPOOL_CONFIG_IS_SPARE`
pub const IS_SPARE: &str = "is_spare";
/// `ZPOOL_CONFIG_NPARITY`
pub const NPARITY: &str = "nparity";
/// `ZPOOL_CONFIG_RAIDZ_EXPANDING`
pub const RAIDZ_EXPANDING: &str = "raidz_expanding";
/// `ZPOOL_CONFIG_RAIDZ_EXPAND_TXGS`
pub const RAIDZ_EXPAND_TXGS: &str = "raidz_expand_txgs";
/// `ZPOOL_CONFIG_HOSTID`
pub const HOSTID: &str = "hostid";
/// `ZPOOL_CONFIG_HOSTNAME`
pub const HOSTNAME: &str = "hostname";
/// `ZPOOL_CONFIG_LOADED_TIME`
pub const LOADED_TIME: &str = "initial_load_time";
/// `ZPOOL_CONFIG_UNSPARE`
pub const UNSPARE: &str = "unspare";
/// `ZPOOL_CONFIG_PHYS_PATH`
pub const PHYS_PATH: &str = "phys_path";
/// `ZPOOL_CONFIG_IS_LOG`
pub const IS_LOG: &str = "is_log";
/// `ZPOOL_CONFIG_L2CACHE`
pub const L2CACHE: &str = "l2cache";
/// `ZPOOL_CONFIG_HOLE_ARRAY`
pub const HOLE_ARRAY: &str = "hole_array";
/// `ZPOOL_CONFIG_VDEV_CHILDREN`
pub const VDEV_CHILDREN: &str = "vdev_children";
/// `ZPOOL_CONFIG_IS_HOLE`
pub const IS_HOLE: &str = "is_hole";
/// `ZPOOL_CONFIG_DDT_OBJ_STATS`
pub const DDT_OBJ_STATS: &str = "ddt_object_stats";
/// `ZPOOL_CONFIG_DDT_STATS`
pub const DDT_STATS: &str = "ddt_stats";
/// `ZPOOL_CONFIG_SPLIT`
pub const SPLIT: &str = "splitcfg";
/// `ZPOOL_CONFIG_ORIG_GUID`
pub const ORIG_GUID: &str = "orig_guid";
/// `ZPOOL_CONFIG_SPLIT_GUID`
pub const SPLIT_GUID: &str = "split_guid";
/// `ZPOOL_CONFIG_SPLIT_LIST`
pub const SPLIT_LIST: &str = "guid_list";
/// `ZPOOL_CONFIG_NONALLOCATING`
pub const NONALLOCATING: &str = "non_allocating";
/// `ZPOOL_CONFIG_REMOVING`
pub const REMOVING: &str = "removing";
/// `ZPOOL_CONFIG_RESILVER_TXG`
pub const RESILVER_TXG: &str = "resilver_txg";
/// `ZPOOL_CONFIG_REBUILD_TXG`
pub const REBUILD_TXG: &str = "rebuild_txg";
/// `ZPOOL_CONFIG_COMMENT`
pub const COMMENT: &str = "comment";
/// `ZPOOL_CONFIG_SUSPENDED`
pub const SUSPENDED: &str = "suspended";
/// `ZPOOL_CONFIG_SUSPENDED_REASON`
pub const SUSPENDED_REASON: &str = "suspended_reason";
/// `ZPOOL_CONFIG_TIMESTAMP`
pub const TIMESTAMP: &str = "timestamp";
/// `ZPOOL_CONFIG_BOOTFS`
pub const BOOTFS: &str = "bootfs";
/// `ZPOOL_CONFIG_MISSING_DEVICES`
pub const MISSING_DEVICES: &str = "missing_vdevs";
/// `ZPOOL_CONFIG_LOAD_INFO`
pub const LOAD_INFO: &str = "load_info";
/// `ZPOOL_CONFIG_CREATE_INFO`
pub const CREATE_INFO: &str = "create_info";
/// `ZPOOL_CONFIG_REWIND_INFO`
pub const REWIND_INFO: &str = "rewind_info";
/// `ZPOOL_CONFIG_UNSUP_FEAT`
pub const UNSUP_FEAT: &str = "unsup_feat";
/// `ZPOOL_CONFIG_ENABLED_FEAT`
pub const ENABLED_FEAT: &str = "enabled_feat";
/// `ZPOOL_CONFIG_CAN_RDONLY`
pub const CAN_RDONLY: &str = "can_rdonly";
/// `ZPOOL_CONFIG_FEATURES_FOR_READ`
pub const FEATURES_FOR_READ: &str = "features_for_read";
/// `ZPOOL_CONFIG_FEATURE_STATS`
pub const FEATURE_STATS: &str = "feature_stats";
/// `ZPOOL_CONFIG_ERRATA`
pub const ERRATA: &str = "errata";
/// `ZPOOL_CONFIG_VDEV_ROOT_ZAP`
pub const VDEV_ROOT_ZAP: &str = "com.klarasystems:vdev_zap_root";
/// `ZPOOL_CONFIG_VDEV_TOP_ZAP`
pub const VDEV_TOP_ZAP: &str = "com.delphix:vdev_zap_top";
/// `ZPOOL_CONFIG_VDEV_LEAF_ZAP`
pub const VDEV_LEAF_ZAP: &str = "com.delphix:vdev_zap_leaf";
/// `ZPOOL_CONFIG_HAS_PER_VDEV_ZAPS`
pub const HAS_PER_VDEV_ZAPS: &str = "com.delphix:has_per_vdev_zaps";
/// `ZPOOL_CONFIG_RESILVER_DEFER`
pub const RESILVER_DEFER: &str = "com.datto:resilver_defer";
/// `ZPOOL_CONFIG_CACHEFILE`
pub const CACHEFILE: &str = "cachefile";
/// `ZPOOL_CONFIG_MMP_STATE`
pub const MMP_STATE: &str = "mmp_state";
/// `ZPOOL_CONFIG_MMP_TXG`
pub const MMP_TXG: &str = "mmp_txg";
/// `ZPOOL_CONFIG_MMP_SEQ`
pub const MMP_SEQ: &str = "mmp_seq";
/// `ZPOOL_CONFIG_MMP_HOSTNAME`
pub const MMP_HOSTNAME: &str = "mmp_hostname";
/// `ZPOOL_CONFIG_MMP_HOSTID`
pub const MMP_HOSTID: &str = "mmp_hostid";
/// `ZPOOL_CONFIG_MMP_RESULT`
pub const MMP_RESULT: &str = "mmp_result";
/// `ZPOOL_CONFIG_MMP_TRYIMPORT_NS`
pub const MMP_TRYIMPORT_NS: &str = "mmp_tryimport_ns";
/// `ZPOOL_CONFIG_MMP_IMPORT_NS`
pub const MMP_IMPORT_NS: &str = "mmp_import_ns";
/// `ZPOOL_CONFIG_MMP_CLAIM_NS`
pub const MMP_CLAIM_NS: &str = "mmp_claim_ns";
/// `ZPOOL_CONFIG_ALLOCATION_BIAS`
pub const ALLOCATION_BIAS: &str = "alloc_bias";
/// `ZPOOL_CONFIG_EXPANSION_TIME`
pub const EXPANSION_TIME: &str = "expansion_time";
/// `ZPOOL_CONFIG_REBUILD_STATS`
pub const REBUILD_STATS: &str = "org.openzfs:rebuild_stats";
/// `ZPOOL_CONFIG_COMPATIBILITY`
pub const COMPATIBILITY: &str = "compatibility";
/// `ZPOOL_CONFIG_OFFLINE`
pub const OFFLINE: &str = "offline";
/// `ZPOOL_CONFIG_FAULTED`
pub const FAULTED: &str = "faulted";
/// `ZPOOL_CONFIG_DEGRADED`
pub const DEGRADED: &str = "degraded";
/// `ZPOOL_CONFIG_REMOVED`
pub const REMOVED: &str = "removed";
/// `ZPOOL_CONFIG_FRU`
pub const FRU: &str = "fru";
/// `ZPOOL_CONFIG_AUX_STATE`
pub const AUX_STATE: &str = "aux_state";
/// `ZPOOL_LOAD_POLICY`
pub const LOAD_POLICY: &str = "load-policy";
/// `ZPOOL_LOAD_REWIND_POLICY`
pub const LOAD_REWIND_POLICY: &str = "load-rewind-policy";
/// `ZPOOL_LOAD_REQUEST_TXG`
pub const LOAD_REQUEST_TXG: &str = "load-request-txg";
/// `ZPOOL_LOAD_META_THRESH`
pub const LOAD_META_THRESH: &str = "load-meta-thresh";
/// `ZPOOL_LOAD_DATA_THRESH`
pub const LOAD_DATA_THRESH: &str = "load-data-thresh";
/// `ZPOOL_CONFIG_LOAD_TIME`
pub const LOAD_TIME: &str = "rewind_txg_ts";
/// `ZPOOL_CONFIG_LOAD_META_ERRORS`
pub const LOAD_META_ERRORS: &str = "verify_meta_errors";
/// `ZPOOL_CONFIG_LOAD_DATA_ERRORS`
pub const LOAD_DATA_ERRORS: &str = "verify_data_errors";
/// `ZPOOL_CONFIG_REWIND_TIME`
pub const REWIND_TIME: &str = "seconds_of_rewind";
/// `ZPOOL_CONFIG_DRAID_NDATA`
pub const DRAID_NDATA: &str = "draid_ndata";
/// `ZPOOL_CONFIG_DRAID_NSPARES`
pub const DRAID_NSPARES: &str = "draid_nspares";
/// `ZPOOL_CONFIG_DRAID_NGROUPS`
pub const DRAID_NGROUPS: &str = "draid_ngroups";
/// `ZPOOL_CONFIG_DRAID_NCHILDREN`
pub const DRAID_NCHILDREN: &str = "draid_nchildren";
/// `VDEV_TYPE_ROOT`
pub const VDEV_TYPE_ROOT: &str = "root";
/// `VDEV_TYPE_MIRROR`
pub const VDEV_TYPE_MIRROR: &str = "mirror";
/// `VDEV_TYPE_REPLACING`
pub const VDEV_TYPE_REPLACING: &str = "replacing";
/// `VDEV_TYPE_RAIDZ`
pub const VDEV_TYPE_RAIDZ: &str = "raidz";
/// `VDEV_TYPE_DRAID`
pub const VDEV_TYPE_DRAID: &str = "draid";
/// `VDEV_TYPE_DRAID_SPARE`
pub const VDEV_TYPE_DRAID_SPARE: &str = "dspare";
/// `VDEV_TYPE_DISK`
pub const VDEV_TYPE_DISK: &str = "disk";
/// `VDEV_TYPE_FILE`
pub const VDEV_TYPE_FILE: &str = "file";
/// `VDEV_TYPE_MISSING`
pub const VDEV_TYPE_MISSING: &str = "missing";
/// `VDEV_TYPE_HOLE`
pub const VDEV_TYPE_HOLE: &str = "hole";
/// `VDEV_TYPE_SPARE`
pub const VDEV_TYPE_SPARE: &str = "spare";
/// `VDEV_TYPE_LOG`
pub const VDEV_TYPE_LOG: &str = "log";
/// `VDEV_TYPE_L2CACHE`
pub const VDEV_TYPE_L2CACHE: &str = "l2cache";
/// `VDEV_TYPE_INDIRECT`
pub const VDEV_TYPE_INDIRECT: &str = "indirect";
/// `POOL_STATE_ACTIVE`: in use
pub const POOL_STATE_ACTIVE: u64 = 0;
/// `POOL_STATE_EXPORTED`: exported
pub const POOL_STATE_EXPORTED: u64 = 1;
/// `POOL_STATE_DESTROYED`: destroyed
pub const POOL_STATE_DESTROYED: u64 = 2;
/// `POOL_STATE_SPARE`: a hot spare
pub const POOL_STATE_SPARE: u64 = 3;
/// `POOL_STATE_L2CACHE`: a cache device
pub const POOL_STATE_L2CACHE: u64 = 4;
/// `POOL_STATE_UNINITIALIZED`: never on disk
pub const POOL_STATE_UNINITIALIZED: u64 = 5;
/// `POOL_STATE_UNAVAIL`: never on disk
pub const POOL_STATE_UNAVAIL: u64 = 6;
/// `POOL_STATE_POTENTIALLY_ACTIVE`: never on disk
pub const POOL_STATE_POTENTIALLY_ACTIVE: u64 = 7;

/// `SPA_CONFIG_BLOCKSIZE`: block size of the config object
pub const SPA_CONFIG_BLOCKSIZE: u64 = 1 << 14;
