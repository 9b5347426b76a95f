//! Cloning blocks: an object gets pointers to blocks of another one.
//!
//! # What it is
//! Only what is on disk has a pointer that can be shared, so [`Dnode::stored_blocks`] gives none while a block is
//! dirty; after a sync there is one. The copy is a dirty block without bytes: its pointer is put into the tree when
//! the txg is synced. It is born in that txg, as its bytes were long before: the two births of the pointer differ.
//!
//! # Invariants
//! 1. The layer of an open txg has the pointers; [`BlockAccounting::cloned`](crate::BlockAccounting::cloned) hears of
//!    those that are left when it is frozen.
//! 2. A pointer that was read within a transaction leads to a block that is allocated when its txg is synced: what is
//!    freed in that txg or later is freed after the references of its clones were added.
//! 3. A cloned block is never overwritten in place, for its bytes are older than the txg.
//!
//! # Source
//! OpenZFS module/zfs/dmu.c (`dmu_read_l0_bps`, `dmu_brt_clone`).

use std::ops::Range;

use base::{BlkId, Result};
use phys::blkptr::BlkPtrPhys;

use crate::dirty::Block;
use crate::dnode::{Change, View};
use crate::dnode_read::Found;
use crate::{Dnode, Tx};

impl Dnode {
    /// The pointers of these blocks, holes where there are none; `None` when one of them is dirty.
    ///
    /// # Errors
    /// Errors from reading the indirect blocks above them.
    #[doc(alias = "dmu_read_l0_bps")]
    pub fn stored_blocks(&self, blkids: Range<u64>) -> Result<Option<Vec<BlkPtrPhys>>> {
        let mut state = self.state();
        let found: Vec<Found> = blkids
            .clone()
            .map(|blkid| state.locate(View::Open, blkid))
            .collect();
        let is_dirty = |found: &Found| matches!(found, Found::Memory(_) | Found::Stored(_));
        if found.iter().any(is_dirty) {
            return Ok(None);
        }
        let (_ticket, mut walk) = self.walk(&mut state);
        drop(state);
        let pointer = |(found, blkid): (Found, u64)| match found {
            Found::Disk => walk.bp(0, blkid),
            _ => Ok(BlkPtrPhys::default()),
        };
        found
            .into_iter()
            .zip(blkids)
            .map(pointer)
            .collect::<Result<_>>()
            .map(Some)
    }

    /// Makes the blocks from `first` on those that `bps` lead to, of this object's block size. The pointers were read
    /// within the same transaction.
    ///
    /// # Errors
    /// As [`write`](Dnode::write).
    #[doc(alias = "dmu_brt_clone")]
    pub fn clone_blocks(&self, tx: &Tx, first: BlkId, bps: &[BlkPtrPhys]) -> Result<()> {
        self.change(tx, |state, Change { layer, charge }| {
            for (bp, blkid) in bps.iter().zip(first.0..) {
                if bp.is_hole() {
                    *charge += layer.discard_blocks(blkid, blkid + 1);
                    layer.freed.insert(blkid, blkid + 1);
                    continue;
                }
                let (layer, charge) = (&mut *layer, &mut *charge);
                let block = Block::Cloned(Box::new(bp.cloned_in(tx.txg())));
                self.put(Change { layer, charge }, blkid, block)?;
            }
            state.changes += 1;
            Ok(())
        })?
    }
}
