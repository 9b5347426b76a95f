//! The state of a scrub, an error scrub, a resilver or a sequential resilver, bookmarks of blocks, history, and device
//! removal.
//!
//! # Source
//! OpenZFS include/sys/dsl_scan.h, zio.h (`zbookmark_phys_t`), ddt.h (`ddt_bookmark_t`),
//! spa_impl.h, vdev_rebuild.h, vdev_indirect_mapping.h, vdev_indirect_births.h @be7657e3.

use base::SPA_MINBLOCKSHIFT;

use crate::DvaPhys;
use crate::layout::phys_struct;
use std::mem::size_of;
use zerocopy::little_endian::{I64, U64};

phys_struct! {
    /// `zbookmark_phys_t`: names any block of the pool.
    #[doc(alias = "zbookmark_phys_t")]
    pub struct BookmarkPhys: 32 {
        /// zb_objset: 0: the MOS
        0 objset: U64,
        /// zb_object: 0: the meta-dnode
        8 object: U64,
        /// zb_level: -1 root block, -2 intent log, -3 dnode
        16 level: I64,
        /// zb_blkid
        24 blkid: U64,
    }

    /// `zbookmark_err_phys_t`: key of an error log with `head_errlog`.
    #[doc(alias = "zbookmark_err_phys_t")]
    pub struct BookmarkErrPhys: 32 {
        /// zb_object
        0 object: U64,
        /// zb_level
        8 level: I64,
        /// zb_blkid
        16 blkid: U64,
        /// zb_birth
        24 birth: U64,
    }

    /// `ddt_bookmark_t`: where a scan is in the dedup tables.
    #[doc(alias = "ddt_bookmark_t")]
    pub struct DdtBookmarkPhys: 32 {
        /// ddb_class
        0 class: U64,
        /// ddb_type
        8 type_: U64,
        /// ddb_checksum
        16 checksum: U64,
        /// ddb_cursor
        24 cursor: U64,
    }

    /// `dsl_scan_phys_t`: entry "scan" of the pool directory, an array of 64-bit integers.
    #[doc(alias = "dsl_scan_phys_t")]
    pub struct ScanPhys: 192 {
        /// scn_func: `POOL_SCAN_*`
        0 func: U64,
        /// scn_state: `DSS_*`
        8 state: U64,
        /// scn_queue_obj: datasets to be visited
        16 queue_obj: U64,
        /// scn_min_txg: blocks born later ...
        24 min_txg: U64,
        /// scn_max_txg: ... and not after this
        32 max_txg: U64,
        /// scn_cur_min_txg
        40 cur_min_txg: U64,
        /// scn_cur_max_txg
        48 cur_max_txg: U64,
        /// scn_start_time: seconds
        56 start_time: U64,
        /// scn_end_time: seconds
        64 end_time: U64,
        /// scn_to_examine: bytes
        72 to_examine: U64,
        /// scn_examined: bytes
        80 examined: U64,
        /// scn_skipped: bytes
        88 skipped: U64,
        /// scn_processed: bytes
        96 processed: U64,
        /// scn_errors
        104 errors: U64,
        /// scn_ddt_class_max
        112 ddt_class_max: U64,
        /// scn_ddt_bookmark
        120 ddt_bookmark: DdtBookmarkPhys,
        /// scn_bookmark
        152 bookmark: BookmarkPhys,
        /// scn_flags: `DSF_*`
        184 flags: U64,
    }

    /// `dsl_errorscrub_phys_t`: entry "error_scrub" of the pool directory, an array of 64-bit integers.
    #[doc(alias = "dsl_errorscrub_phys_t")]
    pub struct ErrorScrubPhys: 72 {
        /// dep_func: `POOL_SCAN_ERRORSCRUB`; 0 if there is none
        0 func: U64,
        /// dep_state: `DSS_*`
        8 state: U64,
        /// dep_cursor: serialized position in the last error log
        16 cursor: U64,
        /// dep_start_time: seconds
        24 start_time: U64,
        /// dep_end_time: seconds
        32 end_time: U64,
        /// dep_to_examine: blocks that are left
        40 to_examine: U64,
        /// dep_examined: blocks
        48 examined: U64,
        /// dep_errors
        56 errors: U64,
        /// dep_paused_flags: not 0 while it is paused
        64 paused_flags: U64,
    }

    /// `vdev_rebuild_phys_t`: entry "org.openzfs:vdev_rebuild" of the ZAP of a top-level vdev, an array of 64-bit
    /// integers.
    #[doc(alias = "vdev_rebuild_phys_t")]
    pub struct RebuildPhys: 96 {
        /// vrp_rebuild_state: `VDEV_REBUILD_*`
        0 state: U64,
        /// vrp_last_offset: everything before it was rebuilt
        8 last_offset: U64,
        /// vrp_min_txg: blocks born later ...
        16 min_txg: U64,
        /// vrp_max_txg: ... and before this are missing
        24 max_txg: U64,
        /// vrp_start_time: seconds
        32 start_time: U64,
        /// vrp_end_time: seconds
        40 end_time: U64,
        /// vrp_scan_time_ms: how long it has run
        48 scan_time_ms: U64,
        /// vrp_bytes_scanned: allocated bytes that were passed
        56 bytes_scanned: U64,
        /// vrp_bytes_issued: bytes that were read
        64 bytes_issued: U64,
        /// vrp_bytes_rebuilt: bytes that were written
        72 bytes_rebuilt: U64,
        /// vrp_bytes_est: allocated bytes to be passed
        80 bytes_est: U64,
        /// vrp_errors
        88 errors: U64,
    }

    /// `spa_history_phys_t`: bonus of the history object.
    #[doc(alias = "spa_history_phys_t")]
    pub struct HistoryPhys: 40 {
        /// sh_pool_create_len: end of the record of `zpool create`, which is never overwritten
        0 pool_create_len: U64,
        /// sh_phys_max_off: size of the ring
        8 phys_max_off: U64,
        /// sh_bof: logical start
        16 bof: U64,
        /// sh_eof: logical end
        24 eof: U64,
        /// sh_records_lost
        32 records_lost: U64,
    }

    /// `vdev_indirect_mapping_phys_t`: bonus of the mapping of a removed vdev.
    #[doc(alias = "vdev_indirect_mapping_phys_t")]
    pub struct IndirectMappingPhys: 32 {
        /// vimp_max_offset
        0 max_offset: U64,
        /// vimp_bytes_mapped
        8 bytes_mapped: U64,
        /// vimp_num_entries
        16 num_entries: U64,
        /// vimp_counts_object: obsolete bytes per entry
        24 counts_object: U64,
    }

    /// `vdev_indirect_mapping_entry_phys_t`: where a range of a removed vdev went.
    #[doc(alias = "vdev_indirect_mapping_entry_phys_t")]
    pub struct IndirectMappingEntryPhys: 24 {
        /// vimep_src: 63 bits of offset in sectors, one mark bit
        0 src: U64,
        /// vimep_dst
        8 dst: DvaPhys,
    }

    /// `vdev_indirect_birth_entry_phys_t`: the txg in which data up to an offset was copied.
    #[doc(alias = "vdev_indirect_birth_entry_phys_t")]
    pub struct IndirectBirthEntryPhys: 16 {
        /// vibe_offset
        0 offset: U64,
        /// vibe_phys_birth_txg
        8 phys_birth_txg: U64,
    }

    /// `spa_removing_phys_t`: entry "com.delphix:removing" of the pool directory, an array of 64-bit integers.
    #[doc(alias = "spa_removing_phys_t")]
    pub struct RemovingPhys: 56 {
        /// sr_state: `DSS_*`
        0 state: U64,
        /// sr_removing_vdev: the one whose removal was begun last; all ones if there is none
        8 removing_vdev: U64,
        /// sr_prev_indirect_vdev: the one that was removed last; all ones if there is none
        16 prev_indirect_vdev: U64,
        /// sr_start_time: seconds
        24 start_time: U64,
        /// sr_end_time: seconds
        32 end_time: U64,
        /// sr_to_copy: bytes that were allocated when it began
        40 to_copy: U64,
        /// sr_copied: bytes that were copied, or freed before they were
        48 copied: U64,
    }

    /// `spa_condensing_indirect_phys_t`: entry "com.delphix:condensing_indirect" of the pool directory, an array of
    /// 64-bit integers.
    #[doc(alias = "spa_condensing_indirect_phys_t")]
    pub struct CondensingPhys: 24 {
        /// scip_vdev
        0 vdev: U64,
        /// scip_prev_obsolete_sm_object: what the new mapping leaves out
        8 obsolete_map: U64,
        /// scip_next_mapping_object: the mapping that is being written
        16 next_mapping: U64,
    }
}

/// `VDEV_INDIRECT_MAPPING_SIZE_V0`: bytes of [`IndirectMappingPhys`] without the object of counts.
pub const INDIRECT_MAPPING_V0_BYTES: usize = 24;
/// The bit of [`IndirectMappingEntryPhys::src`] that a checker may set.
const MAPPING_MARK: u64 = 1 << 63;

impl IndirectMappingEntryPhys {
    /// The entry for what was at `offset` and is at `dst` now.
    #[must_use]
    pub fn new(offset: u64, dst: DvaPhys) -> Self {
        IndirectMappingEntryPhys {
            src: U64::new(offset >> SPA_MINBLOCKSHIFT),
            dst,
        }
    }

    /// Where the range was on the removed vdev, in bytes.
    #[must_use]
    #[doc(alias = "DVA_MAPPING_GET_SRC_OFFSET")]
    pub fn offset(&self) -> u64 {
        (self.src.get() & !MAPPING_MARK) << SPA_MINBLOCKSHIFT
    }

    /// How long it is, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.dst.asize()
    }
}

/// `POOL_SCAN_SCRUB`.
pub const POOL_SCAN_SCRUB: u64 = 1;
/// `POOL_SCAN_RESILVER`.
pub const POOL_SCAN_RESILVER: u64 = 2;
/// `POOL_SCAN_ERRORSCRUB`.
pub const POOL_SCAN_ERRORSCRUB: u64 = 3;
/// `DSS_SCANNING`.
pub const DSS_SCANNING: u64 = 1;
/// `DSS_FINISHED`.
pub const DSS_FINISHED: u64 = 2;
/// `DSS_CANCELED`.
pub const DSS_CANCELED: u64 = 3;
/// `DSS_ERRORSCRUBBING`.
pub const DSS_ERRORSCRUBBING: u64 = 4;
/// `VDEV_REBUILD_ACTIVE`.
pub const VDEV_REBUILD_ACTIVE: u64 = 1;
/// `VDEV_REBUILD_CANCELED`.
pub const VDEV_REBUILD_CANCELED: u64 = 2;
/// `VDEV_REBUILD_COMPLETE`.
pub const VDEV_REBUILD_COMPLETE: u64 = 3;
/// `DSF_VISIT_DS_AGAIN`.
pub const DSF_VISIT_DS_AGAIN: u64 = 1 << 0;
/// `DSF_SCRUB_PAUSED`.
pub const DSF_SCRUB_PAUSED: u64 = 1 << 1;
