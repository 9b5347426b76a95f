//! What a cache device holds: a header, and a chain of logs that say which blocks are where.
//!
//! # On disk
//! ```text
//! 4 MiB            header: 512 bytes with an eck, padded to a sector
//! behind it        blocks as they are stored in the pool, each rounded up to sectors, and after each few of them
//!                  a log block of 64 KiB, compressed if that saves a sector, which lists them
//! ```
//! Blocks are written one after another up to the end of the device, then from the start again. The header names
//! the two newest log blocks; each log block names the one before the one before it. See docs/spec/l2arc.md.
//!
//! # Source
//! OpenZFS include/sys/arc_impl.h (`l2arc_dev_hdr_phys_t`, `l2arc_log_blk_phys_t`), module/zfs/arc.c.

use crate::bits::Field;
use crate::label::EckPhys;
use crate::layout::phys_struct;
use zerocopy::little_endian::U64;

/// `L2ARC_DEV_HDR_MAGIC`: "ZFSCACHE".
pub const L2ARC_HEADER_MAGIC: u64 = 0x5a46_5343_4143_4845;
/// `L2ARC_LOG_BLK_MAGIC`: "LOGBLKHD".
pub const L2ARC_LOG_MAGIC: u64 = 0x4c4f_4742_4c4b_4844;
/// `L2ARC_PERSISTENT_VERSION`.
pub const L2ARC_VERSION: u64 = 1;
/// `L2ARC_LOG_BLK_MAX_ENTRIES`: blocks that one log block lists, at most.
pub const L2ARC_LOG_ENTRIES: usize = 1022;
/// `sizeof (l2arc_log_blk_phys_t)`.
pub const L2ARC_LOG_BYTES: usize = 64 << 10;
/// `L2ARC_DEV_HDR_EVICT_FIRST`: the device has not been full yet.
pub const L2ARC_FLAG_FIRST: u64 = 1;

const LSIZE: Field = Field::new(0, 16);
const PSIZE: Field = Field::new(16, 16);
const COMPRESS: Field = Field::new(32, 7);
const CHECKSUM: Field = Field::new(40, 8);
const TYPE: Field = Field::new(48, 8);
const PROTECTED: Field = Field::new(56, 1);
const STATE: Field = Field::new(57, 4);

phys_struct! {
    /// `l2arc_log_blkptr_t`: where a log block is.
    #[doc(alias = "l2arc_log_blkptr")]
    pub struct L2LogPtrPhys: 64 {
        /// lbp_daddr: offset on the device, in bytes
        0 daddr: U64,
        /// lbp_payload_asize: bytes of the blocks that it lists, in whole sectors
        8 payload_asize: U64,
        /// lbp_payload_start: offset of the first of them, in bytes
        16 payload_start: U64,
        /// lbp_prop: see [`L2Prop`]; psize is in whole sectors
        24 prop: U64,
        /// lbp_cksum: fletcher4 of psize bytes
        32 cksum: [U64; 4],
    }

    /// `l2arc_dev_hdr_phys_t`: the header of a cache device.
    #[doc(alias = "l2arc_dev_hdr_phys")]
    pub struct L2HeaderPhys: 512 {
        /// dh_magic: [`L2ARC_HEADER_MAGIC`]
        0 magic: U64,
        /// dh_version: [`L2ARC_VERSION`]
        8 version: U64,
        /// dh_spa_guid: of the pool
        16 spa_guid: U64,
        /// dh_vdev_guid: of the device
        24 vdev_guid: U64,
        /// dh_log_entries: blocks that each log block lists; 0: there are no log blocks
        32 log_entries: U64,
        /// dh_evict: up to here the device may have been written since the header was
        40 evict: U64,
        /// dh_flags: [`L2ARC_FLAG_FIRST`]
        48 flags: U64,
        /// dh_start: the first byte that is used
        56 start: U64,
        /// dh_end: the first that is not
        64 end: U64,
        /// dh_start_lbps: the newest log block, and the one before
        72 start_lbps: [L2LogPtrPhys; 2],
        /// dh_lb_asize: bytes of all log blocks
        200 lb_asize: U64,
        /// dh_lb_count: log blocks
        208 lb_count: U64,
        /// dh_trim_action_time
        216 trim_action_time: U64,
        /// dh_trim_state
        224 trim_state: U64,
        /// dh_pad
        232 pad: [U64; 30],
        /// dh_tail
        472 tail: EckPhys,
    }

    /// `l2arc_log_ent_phys_t`: a block on the device.
    #[doc(alias = "l2arc_log_ent_phys")]
    pub struct L2EntryPhys: 64 {
        /// le_dva: its first DVA
        0 dva: [U64; 2],
        /// le_birth: its physical birth
        16 birth: U64,
        /// le_prop: see [`L2Prop`]
        24 prop: U64,
        /// le_daddr: offset on the device, in bytes
        32 daddr: U64,
        /// le_complevel: of zstd
        40 complevel: U64,
        /// le_pad
        48 pad: [U64; 2],
    }

    /// The start of a `l2arc_log_blk_phys_t`; [`L2EntryPhys`] follow.
    #[doc(alias = "l2arc_log_blk_phys")]
    pub struct L2LogHeadPhys: 128 {
        /// lb_magic: [`L2ARC_LOG_MAGIC`]
        0 magic: U64,
        /// lb_prev_lbp: the log block before the one before
        8 prev_lbp: L2LogPtrPhys,
        /// lb_pad
        72 pad: [U64; 7],
    }
}

/// What the `prop` of a log block pointer or of an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct L2Prop {
    /// Logical bytes
    pub lsize: u64,
    /// Stored bytes
    pub psize: u64,
    /// `zio_compress`
    pub compress: u8,
    /// `zio_checksum`; of log blocks only
    pub checksum: u8,
    /// `arc_buf_contents_t`: 0 data, 1 metadata; of entries only
    pub contents: u8,
    /// Whether it is encrypted
    pub is_protected: bool,
    /// `arc_state_type_t`: 1 MRU, 3 MFU; of entries only
    pub state: u8,
}

impl L2Prop {
    /// From the word on disk.
    #[must_use]
    #[doc(alias = "L2BLK_GET_PSIZE")]
    pub fn from_raw(raw: u64) -> L2Prop {
        let byte = |field: Field| u8::try_from(field.get(raw)).unwrap_or(u8::MAX);
        L2Prop {
            lsize: LSIZE.get_sectors(raw, 1),
            psize: PSIZE.get_sectors(raw, 1),
            compress: byte(COMPRESS),
            checksum: byte(CHECKSUM),
            contents: byte(TYPE).wrapping_sub(1),
            is_protected: PROTECTED.get(raw) != 0,
            state: byte(STATE),
        }
    }

    /// The word on disk.
    #[must_use]
    #[doc(alias = "L2BLK_SET_PSIZE")]
    pub fn raw(self) -> u64 {
        let word = LSIZE.set_sectors(0, self.lsize, 1);
        let word = PSIZE.set_sectors(word, self.psize, 1);
        let word = COMPRESS.set(word, self.compress.into());
        let word = CHECKSUM.set(word, self.checksum.into());
        let word = TYPE.set(word, self.contents.wrapping_add(1).into());
        let word = PROTECTED.set(word, self.is_protected.into());
        STATE.set(word, self.state.into())
    }
}
