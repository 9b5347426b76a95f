//! What the layers above ask for: blocks, where they belong, and how they are to be encoded.

use std::fmt;

use base::{BlkId, Buf, ObjectId, ObjsetId, Result, Txg};
use compress::Algorithm;
use phys::{BlkPtrPhys, ChecksumType, ObjectType};

use crate::{Prepared, UnderWay};

/// `zbookmark_phys_t`: where in a pool a block belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "zbookmark_phys_t")]
pub struct Bookmark {
    /// zb_objset; 0 is the MOS
    pub objset: ObjsetId,
    /// zb_object; 0 is the meta-dnode
    pub object: ObjectId,
    /// zb_level; negative for what is not in an object's tree
    pub level: i64,
    /// zb_blkid
    pub blkid: BlkId,
}

impl Bookmark {
    /// `ZB_ROOT_LEVEL`: the root block of an objset.
    pub const ROOT_LEVEL: i64 = -1;
    /// `ZB_ZIL_LEVEL`: a block of an intent log.
    pub const ZIL_LEVEL: i64 = -2;
    /// `ZB_DESTROYED_OBJSET`: the objset of blocks whose dataset was destroyed.
    pub const DESTROYED_OBJSET: ObjsetId = ObjsetId(u64::MAX);
    /// `DMU_SPILL_BLKID`: the block id of a dnode's spill block.
    pub const SPILL_BLKID: BlkId = BlkId(u64::MAX - 1);

    /// A block of an object.
    #[must_use]
    pub fn new(objset: ObjsetId, object: ObjectId, level: u8, blkid: BlkId) -> Self {
        Bookmark {
            objset,
            object,
            level: i64::from(level),
            blkid,
        }
    }

    /// The block that holds the `objset_phys_t` of an objset.
    #[must_use]
    pub fn root(objset: ObjsetId) -> Self {
        Bookmark {
            objset,
            object: ObjectId(0),
            level: Self::ROOT_LEVEL,
            blkid: BlkId(0),
        }
    }

    /// Block number `seq` of an objset's intent log.
    #[must_use]
    pub fn zil(objset: ObjsetId, seq: u64) -> Self {
        Bookmark {
            objset,
            object: ObjectId(0),
            level: Self::ZIL_LEVEL,
            blkid: BlkId(seq),
        }
    }

    /// The spill block of an object.
    #[must_use]
    pub fn spill(objset: ObjsetId, object: ObjectId) -> Self {
        Bookmark::new(objset, object, 0, Self::SPILL_BLKID)
    }
}

impl fmt::Display for Bookmark {
    /// As zdb and `zpool status -v` count: objset, object, level, block.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bookmark {
            objset,
            object,
            level,
            blkid,
        } = self;
        write!(f, "<{objset}, {object}, {level}, {blkid}>")
    }
}

/// Whether a block is looked for among those that are stored already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dedup {
    /// No.
    #[default]
    Off,
    /// zp_dedup: yes, by its checksum.
    On,
    /// zp_dedup_verify: and its bytes are compared.
    Verify,
}

/// `zio_prop_t`: how a block is to be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "zio_prop_t")]
pub struct WritePolicy {
    /// zp_checksum; a concrete one, never "on" or "inherit"
    pub checksum: ChecksumType,
    /// zp_compress and zp_complevel. `Off` also turns off the search for all-zero blocks.
    pub compress: Algorithm,
    /// zp_copies: how many DVAs, 1 to 3
    pub copies: u8,
    /// Whether the pool has `embedded_data`, so that very small blocks may go into the pointer.
    pub embed: bool,
    /// zp_zpl_smallblk: data of files and volumes that takes up to so many bytes on disk goes to the special class.
    pub special_small_blocks: u64,
    /// Whether the block is deduplicated. Then all-zero blocks become holes even without compression.
    pub dedup: Dedup,
    /// zp_encrypt: whether the block is of an encrypted data set. Never embedded; the key must be loaded.
    pub encrypt: bool,
    /// zp_storage_type: the block belongs where blocks of this type do, if not where its own type says.
    pub storage: Option<ObjectType>,
}

impl Default for WritePolicy {
    /// Fletcher-4, LZ4, one copy, embedding: what a dataset of a new pool has.
    fn default() -> Self {
        WritePolicy {
            checksum: ChecksumType::Fletcher4,
            compress: Algorithm::Lz4,
            copies: 1,
            embed: true,
            special_small_blocks: 0,
            dedup: Dedup::Off,
            encrypt: false,
            storage: None,
        }
    }
}

/// One logical block to be written.
#[derive(Clone, Debug)]
pub struct WriteRequest {
    /// The logical bytes: a multiple of 512, at most 16 MiB; lsize is their number.
    pub data: Prepared,
    /// How to encode them.
    pub policy: WritePolicy,
    /// zp_type: the raw `dmu_object_type_t`
    pub object_type: u8,
    /// zp_level: 0 for data, more for indirect blocks
    pub level: u8,
    /// blk_fill: non-hole L0 blocks at and below this one; for dnodes and objsets, dnodes in use.
    /// 0 stands for a block that is all zeros when written as a hole.
    pub fill: u64,
    /// For messages and for the choice of the metaslab.
    pub bookmark: Bookmark,
    /// What the block pointer held before, if that block was born in the txg being synced: it is
    /// overwritten in place when its psize and DVA count still match.
    ///
    /// When the returned pointer does not start with the same DVA, the old block is no longer
    /// referenced, and the caller must free it.
    pub rewrite: Option<BlkPtrPhys>,
    /// The birth of contents that are only written again (feature `physical_rewrite`): the pointer keeps it, unless
    /// the block becomes a hole, is embedded or deduplicated.
    pub keeps_birth: Option<Txg>,
    /// How much of its object was written in sequence, up to and including this block; a hint for
    /// caches.
    pub run: Run,
    /// Whether who wrote the block has it in a cache of its own, and is done with it; a hint for caches.
    pub kept_above: bool,
}

impl WriteRequest {
    /// An ordinary level-0 block with a fill of 1.
    #[must_use]
    pub fn new(
        data: impl Into<Prepared>,
        policy: WritePolicy,
        object_type: u8,
        bookmark: Bookmark,
    ) -> Self {
        WriteRequest {
            data: data.into(),
            policy,
            object_type,
            level: 0,
            fill: 1,
            bookmark,
            rewrite: None,
            keeps_birth: None,
            run: Run::default(),
            kept_above: false,
        }
    }
}

/// What is known of a sequential reader, or writer, of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Bytes read, or written, so far.
    pub bytes: u64,
    /// The size of the object, which `bytes` may reach; unknown, `u64::MAX`, for a writer.
    pub object_bytes: u64,
}

/// The default limit of a sequential reader's prefetch, in bytes: keeps devices busy that are slower
/// than the reader.
pub const PREFETCH_DISTANCE_MAX_BYTES: u64 = 8 << 20;

/// Blocks by block pointer: what dmu, zil and check need from a pool.
pub trait BlockStore: Send + Sync {
    /// The logical bytes that `bp` points to; zeros for a hole.
    ///
    /// # Errors
    /// `Checksum` when no copy matches, `Io` when no copy could be read, `Corrupt` when the pointer or
    /// the compressed bytes are invalid, `NoKey` for an encrypted block without its key.
    fn read(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf>;

    /// Like [`read`](BlockStore::read), for a block that leads to others: what is encrypted in it stays so, and no key
    /// is needed.
    ///
    /// # Errors
    /// As of `read`, without `NoKey`.
    #[doc(alias = "ZIO_FLAG_RAW_ENCRYPT")]
    fn read_keyless(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        self.read(bp, bookmark)
    }

    /// Like [`read`](BlockStore::read), for a block that no reader has asked for yet: demand reads go
    /// first, and an error is not noted, since the block's reader will meet it again.
    ///
    /// # Errors
    /// As of `read`.
    #[doc(alias = "ARC_FLAG_PREFETCH")]
    fn read_ahead(&self, objset: ObjsetId, bp: &BlkPtrPhys) -> Result<Buf> {
        let bookmark = Bookmark {
            objset,
            ..Bookmark::default()
        };
        self.read(bp, &bookmark)
    }

    /// Reads several blocks for a sequential reader, and returns them in the order of `blocks`.
    ///
    /// # Errors
    /// Per block, those of [`read`](BlockStore::read).
    fn read_run(&self, blocks: &[(BlkPtrPhys, Bookmark)], run: Run) -> Vec<Result<Buf>> {
        let _ = run;
        blocks.iter().map(|(bp, at)| self.read(bp, at)).collect()
    }

    /// Writes all blocks and returns their pointers in the same order, born in `txg`. Data that is all
    /// zeros becomes a hole when compression is on. Durable after the next `flush` of the vdevs, which
    /// precedes the writing of the uberblock.
    ///
    /// # Errors
    /// `NoSpace`, or `Io` when a block could not be written to any device: the txg cannot be finished,
    /// and what was allocated for the batch is given back.
    fn write_batch(&self, txg: Txg, requests: Vec<WriteRequest>) -> Result<Vec<BlkPtrPhys>>;

    /// As [`write_batch`](BlockStore::write_batch), but returns as soon as every block is allocated. The
    /// blocks may be read only after `under_way` was waited for, and none is overwritten in place.
    ///
    /// # Errors
    /// `NoSpace`; then nothing of this batch stays allocated.
    #[doc(alias = "zio_nowait")]
    fn begin_batch(
        &self,
        txg: Txg,
        requests: Vec<WriteRequest>,
        under_way: &mut UnderWay,
    ) -> Result<Vec<BlkPtrPhys>> {
        let _ = under_way;
        self.write_batch(txg, requests)
    }

    /// Whether there is space to spare for blocks of the open txg ([`UnderWay::behind`]) that may be
    /// overwritten before it is synced.
    fn has_spare(&self) -> bool {
        false
    }

    /// Gives the block's space back; it may be reused once `txg` is on disk (and a little later, so that
    /// the pool can be rewound). In syncing context. Holes and embedded blocks occupy no space.
    fn free(&self, txg: Txg, bp: &BlkPtrPhys);

    /// Hints that these blocks of an objset will be read soon. Never blocks for long, and may do nothing.
    fn prefetch(&self, objset: ObjsetId, bps: &[BlkPtrPhys]) {
        let _ = (objset, bps);
    }

    /// As [`prefetch`](BlockStore::prefetch), for a sequential reader: not all of a long run is worth
    /// caching.
    fn prefetch_run(&self, objset: ObjsetId, bps: &[BlkPtrPhys], run: Run) {
        let _ = run;
        self.prefetch(objset, bps);
    }

    /// How many bytes ahead of a sequential reader blocks should be requested, at most.
    #[doc(alias = "zfetch_max_distance")]
    fn prefetch_distance(&self) -> u64 {
        PREFETCH_DISTANCE_MAX_BYTES
    }

    /// Forgets what it has in memory of blocks, since more or fewer of them can be read from now on.
    #[doc(alias = "arc_flush")]
    fn forget(&self) {}

    /// Writes one block; see [`write_batch`](BlockStore::write_batch).
    ///
    /// # Errors
    /// As `write_batch`.
    fn write(&self, txg: Txg, request: WriteRequest) -> Result<BlkPtrPhys> {
        let mut bps = self.write_batch(txg, vec![request])?;
        assert_eq!(bps.len(), 1, "one pointer per request");
        Ok(bps.remove(0))
    }
}

/// A log block to be allocated.
#[derive(Clone, Copy, Debug)]
pub struct NewLogBlock {
    /// The txg in which it is allocated.
    pub txg: Txg,
    /// Bytes: a multiple of 4 KiB, at most 128 KiB.
    pub size: u64,
    /// How it will be summed.
    pub checksum: ChecksumType,
    /// For blk_cksum (`ZIL_ZC_*`: log guid, log guid, objset, sequence).
    pub verifier: [u64; 4],
    /// Whether only what is set aside for logs will do, because data may need the rest.
    pub keeps_to_logs: bool,
}

/// What the intent log needs beyond [`BlockStore`]: blocks that are allocated before they are
/// written, and blocks that were written but that no synced txg knows of.
pub trait LogStore: BlockStore {
    /// Allocates a log block, to be written by [`write_log`](LogStore::write_log): one copy, uncompressed.
    ///
    /// # Errors
    /// `NoSpace`.
    #[doc(alias = "zio_alloc_zil")]
    fn alloc_log(&self, new: &NewLogBlock) -> Result<BlkPtrPhys>;

    /// Writes an allocated log block: completes the `zil_chain_t`'s embedded checksum in `data`
    /// (whose length is the block's size) and writes it. Not durable before
    /// [`flush_log`](LogStore::flush_log).
    ///
    /// # Errors
    /// `Io`.
    #[doc(alias = "zil_lwb_write_issue")]
    fn write_log(&self, bp: &BlkPtrPhys, data: Buf, bookmark: &Bookmark) -> Result<()>;

    /// As [`read_log`](LogStore::read_log), without a key: what is secret in records stays encrypted.
    ///
    /// # Errors
    /// As [`read_log`](LogStore::read_log), without `NoKey`.
    fn read_log_keyless(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        self.read_log(bp, bookmark)
    }

    /// Reads a block that may never have been written: the log ends where `Checksum` is returned, and no
    /// device error is counted for it.
    ///
    /// # Errors
    /// As [`read`](BlockStore::read).
    fn read_log(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        self.read(bp, bookmark)
    }

    /// Marks as allocated a block that the intent log refers to after a crash.
    ///
    /// # Errors
    /// `Corrupt` when the space is no longer free or lies outside the pool; `Io` or `Checksum` when a
    /// gang header cannot be read.
    #[doc(alias = "zio_claim")]
    fn claim(&self, txg: Txg, bp: &BlkPtrPhys) -> Result<()>;

    /// Makes written log blocks durable: flushes the caches of the vdevs that they are on, and of no
    /// others.
    ///
    /// # Errors
    /// `Io`.
    #[doc(alias = "zil_lwb_flush_vdevs_done")]
    fn flush_log(&self, blocks: &[BlkPtrPhys]) -> Result<()>;
}
