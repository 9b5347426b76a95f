//! One generation of changes of a dnode: what it will look like, and the blocks that differ.
//!
//! # Invariants
//! 1. `blocks` holds only block ids up to `fields.maxblkid`, each `fields.blksz` bytes long.
//! 2. A block that is in `blocks` has the content found there, even if a freed range covers it: the
//!    range was freed first.
//! 3. `charged_bytes` is the charge of the dnode, its blocks and its spill block, and of blocks that
//!    were begun and abandoned.
//! 4. When `freeing`, `blocks` is empty and nothing is added any more.

use std::collections::BTreeMap;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::sync::Arc;

use base::Buf;
use compress::Algorithm;
use phys::blkptr::BlkPtrPhys;
use phys::{ChecksumType, CompressType, ObjectType};
use zio::Prepared;

use crate::behind::Behind;
use crate::props::BlockKind;
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
    /// dn_storage_type: where its blocks belong, if not where its type says; not on disk
    pub(crate) storage: Option<ObjectType>,
}

impl Fields {
    /// dn_checksum, unless it says nothing of its own
    pub(crate) fn checksum(&self) -> Option<ChecksumType> {
        ChecksumType::of_blocks(u64::from(self.checksum))
    }

    /// dn_compress, unless "inherit"
    pub(crate) fn compress(&self) -> Option<Algorithm> {
        match CompressType::try_from(self.compress).ok()? {
            CompressType::Inherit => None,
            own => Algorithm::from_property(u64::from(own.raw())).ok(),
        }
    }

    /// A block of level 0, as the write policy sees it.
    pub(crate) fn leaf(&self) -> BlockKind {
        BlockKind {
            type_: self.type_,
            level: 0,
            is_spill: false,
            checksum: self.checksum(),
            compress: self.compress(),
            storage: self.storage,
        }
    }
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
    pub(crate) blocks: BTreeMap<u64, Block>,
    pub(crate) behind: Behind,
    pub(crate) freed: RangeSet,
    /// A block is a clone, or was.
    pub(crate) has_clones: bool,
    pub(crate) spill: SpillChange,
    /// Who wrote the blocks keeps them as well, and has changed none since it said so.
    pub(crate) kept_above: bool,
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
            behind: Behind::default(),
            freed: RangeSet::default(),
            has_clones: false,
            spill: SpillChange::Keep,
            kept_above: false,
            allocated: false,
            freeing: false,
            charged_bytes: 0,
        }
    }

    /// Checks what the module promises of the blocks.
    ///
    /// # Panics
    /// When it does not hold.
    pub(crate) fn check_invariants(&self) {
        let Fields {
            blksz, maxblkid, ..
        } = self.fields;
        assert!(
            !self.freeing || self.blocks.is_empty(),
            "an object that goes has dirty blocks"
        );
        for (&blkid, block) in &self.blocks {
            assert!(blkid <= maxblkid, "block {blkid} of {maxblkid} is dirty");
            let len = match block {
                Block::Data(data) | Block::Rewritten(data) => data.len() as u64,
                Block::Begun(data, _) => data.len() as u64,
                Block::Written(bp) | Block::Cloned(bp) => bp.lsize(),
            };
            assert_eq!(len, blksz, "length of dirty block {blkid}");
        }
    }

    /// Sets a block; returns by how much the charge grows.
    pub(crate) fn put_block(&mut self, blkid: u64, block: Block) -> Charge {
        self.has_clones |= matches!(block, Block::Cloned(_));
        self.kept_above = false;
        let charge = block.charge();
        match self.blocks.insert(blkid, block) {
            None => charge,
            Some(old) => charge + self.drop_block(old),
        }
    }

    /// The bytes of a block, to be changed, and by how much the charge grows; None if the layer does not
    /// have the bytes.
    pub(crate) fn data_mut(&mut self, blkid: u64) -> Option<(&mut Prepared, Charge)> {
        let block = self.blocks.get_mut(&blkid)?;
        self.kept_above = false;
        let mut charge = Charge::default();
        if let Block::Begun(data, _) = block {
            let own = Block::Data(data.clone().into());
            charge += own.charge() - block.charge();
            charge += self.behind.abandon(std::mem::replace(block, own));
        }
        if let Block::Rewritten(data) = block {
            *block = Block::Data(data.clone());
            self.behind.close();
        }
        match block {
            Block::Rewritten(_) => unreachable!("it has just become data"),
            Block::Data(data) => Some((data, charge)),
            Block::Begun(..) | Block::Written(_) | Block::Cloned(_) => None,
        }
    }

    /// Drops the dirty blocks in `[start, end)`; returns by how much the charge grows.
    pub(crate) fn discard_blocks(&mut self, start: u64, end: u64) -> Charge {
        let doomed: Vec<u64> = self.blocks.range(start..end).map(|(&id, _)| id).collect();
        let mut charge = Charge::default();
        for blkid in doomed {
            let block = self.blocks.remove(&blkid);
            charge += self.drop_block(block.expect("it was there"));
        }
        charge
    }

    /// The blocks that are those of other files.
    pub(crate) fn clones(&self) -> impl Iterator<Item = &BlkPtrPhys> {
        let blocks = self.has_clones.then_some(self.blocks.values());
        blocks
            .into_iter()
            .flatten()
            .filter_map(|block| match block {
                Block::Cloned(bp) => Some(&**bp),
                _ => None,
            })
    }

    fn drop_block(&mut self, block: Block) -> Charge {
        let charge = block.charge();
        self.behind.abandon(block) - charge
    }

    /// Adds to what is charged for the layer.
    pub(crate) fn charge(&mut self, charge: Charge) {
        self.charged_bytes = self.charged_bytes.saturating_add_signed(charge.total());
    }
}

/// A dirty block of level 0.
#[derive(Debug)]
pub(crate) enum Block {
    /// To be written when the txg is synced.
    Data(Prepared),
    /// The same, though its content did not change: it keeps its birth.
    Rewritten(Prepared),
    /// Being written, to there.
    Begun(Buf, Box<BlkPtrPhys>),
    /// Written there.
    Written(Box<BlkPtrPhys>),
    /// That of another file, which has it as well.
    Cloned(Box<BlkPtrPhys>),
}

impl Block {
    pub(crate) fn charge(&self) -> Charge {
        match self {
            Block::Data(data) | Block::Rewritten(data) => Charge::waiting(charge_of(data.len())),
            Block::Begun(data, _) => Charge {
                waiting: 0,
                begun: charge_of(data.len()) as i64,
            },
            Block::Written(_) | Block::Cloned(_) => Charge::waiting(BLOCK_CHARGE_BYTES as u64),
        }
    }
}

/// What is charged in a txg, or a change of it, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charge {
    /// Stays dirty until the txg is synced.
    pub(crate) waiting: i64,
    /// Is being written already.
    pub(crate) begun: i64,
}

impl Charge {
    pub(crate) fn waiting(bytes: u64) -> Charge {
        Charge {
            waiting: bytes as i64,
            begun: 0,
        }
    }

    pub(crate) fn total(self) -> i64 {
        self.waiting + self.begun
    }
}

impl Add for Charge {
    type Output = Charge;

    fn add(self, other: Charge) -> Charge {
        Charge {
            waiting: self.waiting + other.waiting,
            begun: self.begun + other.begun,
        }
    }
}

impl Sub for Charge {
    type Output = Charge;

    fn sub(self, other: Charge) -> Charge {
        Charge {
            waiting: self.waiting - other.waiting,
            begun: self.begun - other.begun,
        }
    }
}

impl AddAssign for Charge {
    fn add_assign(&mut self, other: Charge) {
        *self = *self + other;
    }
}

impl SubAssign for Charge {
    fn sub_assign(&mut self, other: Charge) {
        *self = *self - other;
    }
}

/// Bytes of bookkeeping for a dirty block until its pointer is in its parent.
const BLOCK_CHARGE_BYTES: usize = 1024;

/// Bytes that a dirty block of `len` bytes is charged in its txg: what it takes from memory.
pub(crate) fn charge_of(len: usize) -> u64 {
    (base::footprint(len) + BLOCK_CHARGE_BYTES) as u64
}
