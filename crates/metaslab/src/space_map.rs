//! Space maps: the on-disk log of a metaslab's allocations and frees.
//!
//! # What it is
//! A space map is an object of the MOS whose content is a log of entries "this segment was
//! allocated" and "this segment was freed"; replaying it from an empty (= all free) metaslab gives
//! what is free. Its bonus buffer says how long the log is, how many bytes it leaves allocated, and
//! keeps the histogram of the free segments.
//!
//! The objects themselves belong to the dmu, which is above this crate: [`SpaceMapStore`] is what
//! is needed of it.
//!
//! # Source
//! OpenZFS module/zfs/space_map.c, include/sys/space_map.h @be7657e3.

use base::{Error, MetaslabId, ObjectId, Result, Txg, VdevId};
use phys::space_map::{
    Encoder, MapType, SPACE_MAP_HISTOGRAM_SIZE, SpaceMapEntry, SpaceMapPhys, SpaceMapRange, entries,
};

use crate::range_tree::RangeTree;
use crate::weight::MapHistogram;

/// `space_map_ibs`: log2 of the size of the indirect blocks of a space map object.
pub const SPACE_MAP_IBS: u32 = 14;
/// `zfs_metaslab_sm_blksz_no_log`: the block size of a new space map object. Small, since every
/// txg appends to several of them.
pub const SPACE_MAP_BLOCK_BYTES: u32 = 1 << 14;
/// Bytes of space map per sector of its metaslab, far more than any writer produces: a map is condensed
/// at twice its optimal size, and a sector takes at most two entries of two words, with a debug word.
const SECTOR_BYTES_MAX: u64 = 256;
/// Bytes of a space map read at once.
const READ_BYTES: u64 = 1 << 20;

/// A space map object as it was found or made.
#[derive(Clone, Copy, Debug)]
pub struct SpaceMapObject {
    /// Its number in the MOS.
    pub object: ObjectId,
    /// Its block size: entries of two words do not cross from one block into the next.
    pub block_bytes: u32,
    /// Whether its bonus has room for a histogram (those from before `spacemap_histogram` have not).
    pub has_histogram: bool,
}

/// Space map objects, as the dmu keeps them in the MOS.
///
/// All writing is in syncing context of the txg that is named. Reading may happen at any time, also from
/// within [`Allocator::allocate`](zio::Allocator::allocate), that is, while the MOS is being written:
/// while it writes MOS blocks, an implementation must not hold a lock that reading a space map object
/// takes.
pub trait SpaceMapStore: Send + Sync {
    /// Makes an empty space map object with a bonus for [`SpaceMapPhys`] and records its number at
    /// index `metaslab` of the vdev's metaslab array.
    ///
    /// # Errors
    /// Those of the dmu.
    #[doc(alias = "space_map_alloc")]
    fn create(&self, txg: Txg, vdev: VdevId, metaslab: MetaslabId) -> Result<SpaceMapObject>;

    /// What kind of object it is, and its bonus; the histogram is zero if it has none.
    ///
    /// # Errors
    /// Those of the dmu; `Corrupt` when it is not a space map.
    #[doc(alias = "space_map_open")]
    fn open(&self, object: ObjectId) -> Result<(SpaceMapObject, SpaceMapPhys)>;

    /// Fills `buf` with the entries from byte `offset` on.
    ///
    /// # Errors
    /// Those of the dmu.
    fn read(&self, object: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Checks that the first `length` bytes have no holes, and that no block of them is stored twice.
    ///
    /// # Errors
    /// `Corrupt` when not: from a damaged object, entries could be read without end.
    fn check_dense(&self, object: ObjectId, length: u64) -> Result<()> {
        let _ = (object, length);
        Ok(())
    }

    /// Writes entries at byte `offset`.
    ///
    /// # Errors
    /// Those of the dmu.
    fn write(&self, txg: Txg, object: ObjectId, offset: u64, entries: &[u8]) -> Result<()>;

    /// Writes the bonus; without its histogram if the object has no room for it.
    ///
    /// # Errors
    /// Those of the dmu.
    fn set_phys(&self, txg: Txg, object: ObjectId, phys: &SpaceMapPhys) -> Result<()>;

    /// Discards all entries. If the object has the wrong block size or no histogram, it is replaced by a
    /// new one, whose number is recorded as [`create`](SpaceMapStore::create) does.
    ///
    /// # Errors
    /// Those of the dmu.
    #[doc(alias = "space_map_truncate")]
    fn truncate(
        &self,
        txg: Txg,
        vdev: VdevId,
        metaslab: MetaslabId,
        object: ObjectId,
    ) -> Result<SpaceMapObject>;
}

/// Where the segments of a space map lie: entries count `1 << shift` bytes from `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceMapExtent {
    /// sm_start: the first byte
    pub start: u64,
    /// sm_size: how many bytes
    pub size: u64,
    /// sm_shift: the vdev's ashift
    pub shift: u32,
}

/// Bytes of entries that the space map of `size` bytes in units of `1 << shift` has at most; a longer one lies.
pub fn length_max_bytes(size: u64, shift: u32) -> u64 {
    (size >> shift)
        .saturating_mul(SECTOR_BYTES_MAX)
        .saturating_add(READ_BYTES)
}

/// `space_map_t`: an open space map.
#[derive(Clone, Debug)]
pub(crate) struct SpaceMap {
    pub(crate) object: SpaceMapObject,
    /// smp_length: bytes of entries
    pub(crate) length: u64,
    /// smp_alloc: bytes that the entries leave allocated
    pub(crate) allocated: u64,
    /// smp_histogram: of the free segments
    pub(crate) histogram: MapHistogram,
}

impl SpaceMap {
    pub(crate) fn new(object: SpaceMapObject) -> Self {
        SpaceMap {
            object,
            length: 0,
            allocated: 0,
            histogram: [0; SPACE_MAP_HISTOGRAM_SIZE],
        }
    }

    pub(crate) fn open(
        store: &dyn SpaceMapStore,
        object: ObjectId,
        extent: &SpaceMapExtent,
    ) -> Result<Self> {
        let (object, phys) = store.open(object)?;
        let allocated = u64::try_from(phys.alloc.get())
            .ok()
            .filter(|bytes| *bytes <= extent.size)
            .ok_or_else(|| {
                Error::corrupt(format!(
                    "smp_alloc of object {} is {} in a metaslab of {} bytes",
                    object.object, phys.alloc, extent.size
                ))
            })?;
        let length = check_length(object.object, phys.length.get())?;
        if length > length_max_bytes(extent.size, extent.shift) {
            let (object, size) = (object.object, extent.size);
            return Err(Error::corrupt(format!(
                "smp_length of object {object} is {length} in a metaslab of {size} bytes"
            )));
        }
        Ok(SpaceMap {
            object,
            length,
            allocated,
            histogram: phys.histogram.map(u64::from),
        })
    }

    pub(crate) fn phys(&self) -> SpaceMapPhys {
        let mut phys = SpaceMapPhys::default();
        phys.object.set(self.object.object.0);
        phys.length.set(self.length);
        phys.alloc.set(self.allocated as i64);
        if self.object.has_histogram {
            phys.histogram = self.histogram.map(Into::into);
        }
        phys
    }
}

fn check_length(object: ObjectId, length: u64) -> Result<u64> {
    if length.is_multiple_of(8) && length <= 1 << 48 {
        return Ok(length);
    }
    Err(Error::corrupt(format!(
        "smp_length of object {object} is {length}"
    )))
}

/// Reads the first `length` bytes of entries and calls `each` for every segment, in order.
///
/// # Errors
/// Those of the store and of `each`; `Corrupt` for an entry that is cut off or lies outside of
/// `extent`.
#[doc(alias = "space_map_iterate")]
pub fn for_each_entry(
    store: &dyn SpaceMapStore,
    object: &SpaceMapObject,
    length: u64,
    extent: &SpaceMapExtent,
    each: &mut dyn FnMut(MapType, u64, u64) -> Result<()>,
) -> Result<()> {
    for_each_range(store, object, length, &mut |range| {
        let (start, size) = locate(object.object, range, extent)?;
        each(range.map_type, start, size)
    })
}

/// Like [`for_each_entry`], for a map of anything: each segment as it is stored.
///
/// # Errors
/// Those of the store and of `each`; `Corrupt` for an entry that is cut off.
pub fn for_each_range(
    store: &dyn SpaceMapStore,
    object: &SpaceMapObject,
    length: u64,
    each: &mut dyn FnMut(&SpaceMapRange) -> Result<()>,
) -> Result<()> {
    check_length(object.object, length)?;
    store.check_dense(object.object, length)?;
    let block = u64::from(object.block_bytes).max(8);
    let chunk = (READ_BYTES / block).max(1) * block;
    let mut offset = 0;
    while offset < length {
        let mut bytes = vec![0; chunk.min(length - offset) as usize];
        store.read(object.object, offset, &mut bytes)?;
        for entry in entries(&bytes) {
            if let SpaceMapEntry::Range(range) = entry? {
                each(&range)?;
            }
        }
        offset += bytes.len() as u64;
    }
    Ok(())
}

fn locate(object: ObjectId, range: &SpaceMapRange, extent: &SpaceMapExtent) -> Result<(u64, u64)> {
    let units = extent.size >> extent.shift;
    if range.run > units || range.offset > units - range.run {
        return Err(Error::corrupt(format!(
            "space map entry of object {object} is {}+{} in a metaslab of {units} units",
            range.offset, range.run
        )));
    }
    Ok((
        extent.start + (range.offset << extent.shift),
        range.run << extent.shift,
    ))
}

/// Replays a space map: what is free after its first `length` bytes.
///
/// # Errors
/// As [`for_each_entry`]; `Corrupt` when a free segment is freed or one that is not free is allocated.
#[doc(alias = "space_map_load_length")]
pub fn load_free(
    store: &dyn SpaceMapStore,
    object: &SpaceMapObject,
    length: u64,
    extent: &SpaceMapExtent,
) -> Result<RangeTree> {
    let mut free = RangeTree::new();
    free.add(extent.start, extent.size);
    for_each_entry(store, object, length, extent, &mut |kind, start, size| {
        let done = match kind {
            MapType::Alloc => free.try_remove(start, size),
            MapType::Free => free.try_add(start, size),
        };
        if done {
            return Ok(());
        }
        Err(Error::corrupt(format!(
            "space map object {} has {kind:?} of {start:#x}+{size:#x} twice",
            object.object
        )))
    })?;
    Ok(free)
}

/// Appends a debug entry with the txg and the pass, then all segments of `tree`. Nothing for an empty
/// tree.
#[doc(alias = "space_map_write")]
pub(crate) fn push_tree(
    encoder: &mut Encoder,
    extent: &SpaceMapExtent,
    (txg, pass): (Txg, u32),
    map_type: MapType,
    tree: &RangeTree,
) {
    if tree.is_empty() {
        return;
    }
    encoder.debug(map_type, u64::from(pass), txg);
    for (start, size) in tree.iter() {
        let SpaceMapExtent {
            start: base,
            size: whole,
            shift,
        } = *extent;
        assert!(
            start >= base && size <= whole && start - base <= whole - size,
            "segment {start:#x}+{size:#x} outside of the space map {base:#x}+{whole:#x}"
        );
        encoder.range(&SpaceMapRange {
            map_type,
            vdev: None,
            offset: (start - base) >> shift,
            run: size >> shift,
        });
    }
}

/// The entries for all segments of `tree`, behind `length` bytes of others.
#[must_use]
pub fn append_tree(
    object: &SpaceMapObject,
    length: u64,
    extent: &SpaceMapExtent,
    txg: Txg,
    map_type: MapType,
    tree: &RangeTree,
    two_words: bool,
) -> Vec<u8> {
    let mut encoder = Encoder::new(length, u64::from(object.block_bytes), two_words);
    push_tree(&mut encoder, extent, (txg, 1), map_type, tree);
    encoder.finish()
}

/// How many bytes `tree` would take as a space map, at most.
#[doc(alias = "space_map_estimate_optimal_size")]
pub(crate) fn estimate_bytes(
    tree: &RangeTree,
    shift: u32,
    block_bytes: u32,
    two_words: bool,
) -> u64 {
    let one_word_max = 15 + shift;
    let mut words = 0u64;
    for (bucket, count) in (0u32..).zip(tree.histogram()) {
        let each = if bucket < one_word_max {
            1
        } else if two_words {
            2 << bucket.saturating_sub(36 + shift - 1)
        } else {
            1 << (bucket + 1 - one_word_max)
        };
        words += count * each;
    }
    let bytes = words * 8;
    if two_words {
        bytes + (bytes / u64::from(block_bytes) + 1) * 8
    } else {
        bytes
    }
}
