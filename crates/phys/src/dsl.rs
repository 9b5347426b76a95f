//! Datasets and their directories, deadlists, lists of freed blocks, bookmarks.
//!
//! # What it is
//! Bonus buffers of objects in the MOS. A DSL directory is a name in the dataset tree with its
//! space accounts; a DSL dataset is one head or snapshot with its block pointer. Blocks that a
//! dataset no longer refers to but a snapshot may are in deadlists, made of bpobjs.
//!
//! # Source
//! OpenZFS include/sys/dsl_dir.h, dsl_dataset.h, dsl_deadlist.h, bpobj.h, bptree.h,
//! dsl_bookmark.h @be7657e3.

use crate::BlkPtrPhys;
use crate::layout::phys_struct;
use crate::scan::BookmarkPhys;
use std::mem::size_of;
use zerocopy::little_endian::U64;

/// `DD_FLAG_USED_BREAKDOWN`: `used_breakdown` is maintained.
pub const DD_FLAG_USED_BREAKDOWN: u64 = 1 << 0;

/// `DS_FLAG_INCONSISTENT`: being received or destroyed; not to be used.
pub const DS_FLAG_INCONSISTENT: u64 = 1 << 0;
/// `DS_FLAG_NOPROMOTE`: must not be promoted.
pub const DS_FLAG_NOPROMOTE: u64 = 1 << 1;
/// `DS_FLAG_UNIQUE_ACCURATE`: `unique_bytes` can be trusted.
pub const DS_FLAG_UNIQUE_ACCURATE: u64 = 1 << 2;
/// `DS_FLAG_DEFER_DESTROY`: is destroyed when its last clone or hold is gone.
pub const DS_FLAG_DEFER_DESTROY: u64 = 1 << 3;
/// `DS_FLAG_CI_DATASET`: names are looked up without regard to case.
pub const DS_FLAG_CI_DATASET: u64 = 1 << 16;

/// `ZBM_FLAG_HAS_FBN`: the sizes of a bookmark are filled in and kept up.
pub const ZBM_FLAG_HAS_FBN: u64 = 1 << 0;
/// `ZBM_FLAG_SNAPSHOT_EXISTS`: the snapshot of a bookmark with sizes is still there.
pub const ZBM_FLAG_SNAPSHOT_EXISTS: u64 = 1 << 1;

phys_struct! {
    /// `dsl_dir_phys_t`: bonus of a `DSL_DIR` object.
    #[doc(alias = "dsl_dir_phys_t")]
    pub struct DslDirPhys: 256 {
        /// dd_creation_time: seconds
        0 creation_time: U64,
        /// dd_head_dataset_obj
        8 head_dataset_obj: U64,
        /// dd_parent_obj: 0 for the root
        16 parent_obj: U64,
        /// dd_origin_obj: snapshot this was cloned from
        24 origin_obj: U64,
        /// dd_child_dir_zapobj: name to DSL_DIR
        32 child_dir_zapobj: U64,
        /// dd_used_bytes: used by the directory and everything below it
        40 used_bytes: U64,
        /// dd_compressed_bytes
        48 compressed_bytes: U64,
        /// dd_uncompressed_bytes
        56 uncompressed_bytes: U64,
        /// dd_quota: 0: none
        64 quota: U64,
        /// dd_reserved: 0: none
        72 reserved: U64,
        /// dd_props_zapobj: local properties
        80 props_zapobj: U64,
        /// dd_deleg_zapobj: delegated permissions
        88 deleg_zapobj: U64,
        /// dd_flags: `DD_FLAG_*`
        96 flags: U64,
        /// dd_used_breakdown: by `DD_USED_*`
        104 used_breakdown: [U64; 5],
        /// dd_clones: ZAP of clones
        144 clones: U64,
        /// dd_pad: zero
        152 pad: [U64; 13],
    }

    /// `dsl_dataset_phys_t`: bonus of a `DSL_DATASET` object.
    #[doc(alias = "dsl_dataset_phys_t")]
    pub struct DslDatasetPhys: 320 {
        /// ds_dir_obj: DSL_DIR
        0 dir_obj: U64,
        /// ds_prev_snap_obj: 0: none
        8 prev_snap_obj: U64,
        /// ds_prev_snap_txg
        16 prev_snap_txg: U64,
        /// ds_next_snap_obj: 0 for a head
        24 next_snap_obj: U64,
        /// ds_snapnames_zapobj: 0 for a snapshot
        32 snapnames_zapobj: U64,
        /// ds_num_children: clones and the next snapshot; 0 for a head
        40 num_children: U64,
        /// ds_creation_time: seconds
        48 creation_time: U64,
        /// ds_creation_txg
        56 creation_txg: U64,
        /// ds_deadlist_obj: blocks that the previous snapshot has and this dataset does not
        64 deadlist_obj: U64,
        /// ds_referenced_bytes
        72 referenced_bytes: U64,
        /// ds_compressed_bytes
        80 compressed_bytes: U64,
        /// ds_uncompressed_bytes
        88 uncompressed_bytes: U64,
        /// ds_unique_bytes: bytes that only this dataset refers to
        96 unique_bytes: U64,
        /// ds_fsid_guid: 56 bits, may change
        104 fsid_guid: U64,
        /// ds_guid: never changes
        112 guid: U64,
        /// ds_flags: `DS_FLAG_*`
        120 flags: U64,
        /// ds_bp: the objset
        128 bp: BlkPtrPhys,
        /// ds_next_clones_obj
        256 next_clones_obj: U64,
        /// ds_props_obj: properties of a snapshot
        264 props_obj: U64,
        /// ds_userrefs_obj: holds
        272 userrefs_obj: U64,
        /// ds_pad: zero
        280 pad: [U64; 5],
    }

    /// `dsl_deadlist_phys_t`: bonus of a deadlist, a ZAP from birth txg to bpobj.
    #[doc(alias = "dsl_deadlist_phys_t")]
    pub struct DeadlistPhys: 320 {
        /// dl_used
        0 used: U64,
        /// dl_comp
        8 comp: U64,
        /// dl_uncomp
        16 uncomp: U64,
        /// dl_pad: zero
        24 pad: [U64; 37],
    }

    /// `bpobj_phys_t`: bonus of a list of block pointers. Older ones end after 16, 32 or 48
    /// bytes; see [`BPOBJ_SIZE_V0`].
    #[doc(alias = "bpobj_phys_t")]
    pub struct BpobjPhys: 56 {
        /// bpo_num_blkptrs
        0 num_blkptrs: U64,
        /// bpo_bytes: allocated
        8 bytes: U64,
        /// bpo_comp
        16 comp: U64,
        /// bpo_uncomp
        24 uncomp: U64,
        /// bpo_subobjs: object with an array of further bpobjs, or 0
        32 subobjs: U64,
        /// bpo_num_subobjs
        40 num_subobjs: U64,
        /// bpo_num_freed: entries of a livelist that are frees
        48 num_freed: U64,
    }

    /// `bptree_phys_t`: bonus of the queue of dataset trees to be freed.
    #[doc(alias = "bptree_phys_t")]
    pub struct BptreePhys: 40 {
        /// bt_begin: index of the first entry
        0 begin: U64,
        /// bt_end: index after the last entry
        8 end: U64,
        /// bt_bytes
        16 bytes: U64,
        /// bt_comp
        24 comp: U64,
        /// bt_uncomp
        32 uncomp: U64,
    }

    /// `bptree_entry_phys_t`: one tree to be freed.
    #[doc(alias = "bptree_entry_phys_t")]
    pub struct BptreeEntryPhys: 168 {
        /// be_bp: an objset
        0 bp: BlkPtrPhys,
        /// be_birth_txg: only blocks born after this are freed
        128 birth_txg: U64,
        /// be_zb: where to resume
        136 bookmark: BookmarkPhys,
    }

    /// `zfs_bookmark_phys_t`: a bookmark of a dataset. Older ones end after 24 bytes.
    #[doc(alias = "zfs_bookmark_phys_t")]
    pub struct DslBookmarkPhys: 96 {
        /// zbm_guid: of the snapshot
        0 guid: U64,
        /// zbm_creation_txg
        8 creation_txg: U64,
        /// zbm_creation_time
        16 creation_time: U64,
        /// zbm_redaction_obj
        24 redaction_obj: U64,
        /// zbm_flags
        32 flags: U64,
        /// zbm_referenced_bytes_refd
        40 referenced_bytes_refd: U64,
        /// zbm_compressed_bytes_refd
        48 compressed_bytes_refd: U64,
        /// zbm_uncompressed_bytes_refd
        56 uncompressed_bytes_refd: U64,
        /// zbm_referenced_freed_before_next_snap
        64 referenced_freed_before_next_snap: U64,
        /// zbm_compressed_freed_before_next_snap
        72 compressed_freed_before_next_snap: U64,
        /// zbm_uncompressed_freed_before_next_snap
        80 uncompressed_freed_before_next_snap: U64,
        /// zbm_ivset_guid
        88 ivset_guid: U64,
    }
}

/// `BPOBJ_SIZE_V0`: counts and bytes only.
pub const BPOBJ_SIZE_V0: usize = 16;
/// `BPOBJ_SIZE_V1`: with compressed and uncompressed sizes.
pub const BPOBJ_SIZE_V1: usize = 32;
/// `BPOBJ_SIZE_V2`: with sub-objects.
pub const BPOBJ_SIZE_V2: usize = 48;
/// `SPA_OLD_MAXBLOCKSIZE`: the block size of bpobjs.
pub const BPOBJ_BLOCKSIZE: u64 = 128 << 10;
