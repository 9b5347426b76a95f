//! One generation of changes of a dnode: what it will look like, and the blocks that differ.
//!
//! # Invariants
//! 1. `blocks` holds only block ids up to `fields.maxblkid`, each `fields.blksz` bytes long.
//! 2. A block that is in `blocks` is what `blocks` says, also when a freed range covers it: the
//!    range came first.
//! 3. When `freeing`, `blocks` is empty and nothing is added any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Buf;
use phys::ObjectType;

use crate::range_set::RangeSet;

/// The parts of a dnode that open context may change, apart from its blocks.
#[derive(Clone, Debug)]
pub(crate) struct Fields {
    pub(crate) type_: ObjectType,
    pub(crate) bonus_type: ObjectType,
    pub(crate) bonus: Arc<[u8]>,
    pub(crate) blksz: u64,
    pub(crate) maxblkid: u64,
    pub(crate) has_spill: bool,
    /// dn_checksum, raw; 0: as the objset
    pub(crate) checksum: u8,
    /// dn_compress, raw; 0: as the objset
    pub(crate) compress: u8,
}

#[derive(Clone, Debug)]
pub(crate) enum SpillChange {
    Keep,
    Set(Buf),
    Remove,
}

#[derive(Debug)]
pub(crate) struct Dirty {
    pub(crate) fields: Fields,
    pub(crate) blocks: BTreeMap<u64, Buf>,
    pub(crate) freed: RangeSet,
    pub(crate) spill: SpillChange,
    /// The object did not exist before this generation.
    pub(crate) allocated: bool,
    /// The object does not exist after it.
    pub(crate) freeing: bool,
    /// Bytes counted as dirty in the txg.
    pub(crate) charged_bytes: u64,
}

impl Dirty {
    pub(crate) fn new(fields: Fields) -> Self {
        Dirty {
            fields,
            blocks: BTreeMap::new(),
            freed: RangeSet::default(),
            spill: SpillChange::Keep,
            allocated: false,
            freeing: false,
            charged_bytes: 0,
        }
    }

    /// Drops the dirty blocks in `[start, end)`; answers what they were charged.
    pub(crate) fn discard_blocks(&mut self, start: u64, end: u64) -> u64 {
        let doomed: Vec<u64> = self.blocks.range(start..end).map(|(&id, _)| id).collect();
        let dropped = doomed.iter().filter_map(|id| self.blocks.remove(id));
        dropped.map(|buf| charge_of(buf.len())).sum()
    }
}

/// What is known of a dirty block until its pointer is in its parent.
const BLOCK_CHARGE_BYTES: usize = 1024;

/// What a dirty block of `len` bytes is charged in its txg: what it takes from memory.
pub(crate) fn charge_of(len: usize) -> u64 {
    (base::footprint(len) + BLOCK_CHARGE_BYTES) as u64
}
