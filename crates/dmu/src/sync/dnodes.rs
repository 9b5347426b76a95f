//! The last steps of a pass: dnodes go into blocks of dnodes, and those into the meta-dnode.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{BlkId, Buf, Result};
use phys::dnode::{
    DNODE_FLAG_USEROBJUSED_ACCOUNTED, DNODE_FLAG_USERUSED_ACCOUNTED, DNODE_MIN_SIZE, DnodeSlotPhys,
};
use phys::{ObjectType, Phys};
use zerocopy::{FromZeros, IntoBytes};
use zio::Bookmark;

use super::Pass;
use super::batch::{Batch, BlockOwner};
use super::work::Work;
use crate::alloc::allocated_slots;
use crate::dirty::{Block, Dirty};
use crate::image::Image;
use crate::objset::is_special;
use crate::{Objset, OwnerAccounting, SpillChange};

impl Pass<'_> {
    /// Completes a dnode whose tree is written.
    pub(super) fn finish_dnode(&mut self, work: &mut Work) -> Result<()> {
        for (index, patch) in work.take_root() {
            let old = work.walk.tree.blkptrs[index];
            work.walk.tree.blkptrs[index] = self.settle(work, &old, &patch);
        }
        work.new.blkptrs = work.walk.tree.blkptrs.clone();
        self.finish_spill(work);
        let used = work.old.used_bytes().checked_add_signed(work.used_bytes);
        let owner_changes = self
            .objset
            .owners()
            .filter(|_| !is_special(work.dnode.id()));
        if let Some(owners) = &owner_changes {
            self.leave_owner(work, &**owners)?;
        }
        if !work.new.exists {
            self.objset.cursor_freed();
            return Ok(());
        }
        // A wrong used-bytes count from another implementation must not end the txg.
        work.new.set_used_bytes(used.unwrap_or(0));
        if let Some(owners) = &owner_changes {
            self.join_owner(work, &**owners)?;
        }
        if work.dnode.slots() > 1 {
            self.objset.context.accounting.large_dnode_written(self.tx);
        }
        Ok(())
    }

    fn finish_spill(&mut self, work: &mut Work) {
        let layer = Arc::clone(&work.layer);
        let new = match layer.spill {
            SpillChange::Keep => return,
            SpillChange::Remove => None,
            SpillChange::Set(_) => work.new_spill,
        };
        let old = work.old.spill.unwrap_or_default();
        let patch = super::work::Patch {
            bp: new.unwrap_or_default(),
            keep_birth: false,
        };
        let settled = self.settle(work, &old, &patch);
        work.new.spill = new.map(|_| settled);
    }

    /// Takes the object off the account of its previous owner.
    fn leave_owner(&mut self, work: &Work, owners: &dyn OwnerAccounting) -> Result<()> {
        let old = &work.old;
        let flags = old.core.flags;
        if !old.exists || flags & DNODE_FLAG_USERUSED_ACCOUNTED == 0 {
            return Ok(());
        }
        let mut spill = None;
        if let Some(bp) = old.spill.filter(|bp| needs_spill(old) && !bp.is_hole()) {
            let at = Bookmark::spill(self.objset.id(), work.dnode.id());
            spill = Some(self.objset.store().read(&bp, &at)?);
        }
        if let Some(owner) = owners.owner(old.bonus_type(), &old.bonus, spill.as_deref()) {
            let bytes = (DNODE_MIN_SIZE as i64).wrapping_add(old.used_bytes() as i64);
            let counted = flags & DNODE_FLAG_USEROBJUSED_ACCOUNTED != 0;
            self.deltas
                .add(owner, bytes.wrapping_neg(), -i64::from(counted));
        }
        Ok(())
    }

    /// Charges the object to the owner it has now.
    fn join_owner(&mut self, work: &mut Work, owners: &dyn OwnerAccounting) -> Result<()> {
        work.new.core.flags |= DNODE_FLAG_USERUSED_ACCOUNTED;
        if owners.counts_objects() {
            work.new.core.flags |= DNODE_FLAG_USEROBJUSED_ACCOUNTED;
        }
        let new = &work.new;
        let spill = match &work.layer.spill {
            _ if !needs_spill(new) => None,
            SpillChange::Set(buf) => Some(buf.clone()),
            SpillChange::Remove => None,
            SpillChange::Keep => {
                let at = Bookmark::spill(self.objset.id(), work.dnode.id());
                let bp = new.spill.filter(|bp| !bp.is_hole());
                bp.map(|bp| self.objset.store().read(&bp, &at))
                    .transpose()?
            }
        };
        if let Some(owner) = owners.owner(new.bonus_type(), &new.bonus, spill.as_deref()) {
            let bytes = (DNODE_MIN_SIZE as i64).wrapping_add(new.used_bytes() as i64);
            let counted = new.core.flags & DNODE_FLAG_USEROBJUSED_ACCOUNTED != 0;
            self.deltas.add(owner, bytes, i64::from(counted));
        }
        Ok(())
    }

    /// Writes the blocks of dnodes that changed and the levels above them.
    pub(super) fn write_dnodes(&mut self, works: &[Work]) -> Result<Work> {
        let mut by_block: BTreeMap<u64, Vec<(usize, &Work)>> = BTreeMap::new();
        for work in works.iter().filter(|work| !is_special(work.dnode.id())) {
            if work.new.exists || work.old.exists {
                let (BlkId(blkid), slot) = Objset::place_of(work.dnode.id());
                by_block.entry(blkid).or_default().push((slot, work));
            }
        }
        let maxblkid = by_block.keys().next_back().copied().unwrap_or(0);
        let mut metas = [Work::begin_meta(Arc::clone(&self.objset.meta), maxblkid)];
        self.grow(&mut metas[0]);
        let mut batch = Batch::default();
        if self.overwrites() {
            self.show_dnodes(&mut metas[0], &by_block)?;
        }
        for (&blkid, dnodes) in &by_block {
            let (buf, fill) = self.block_of_dnodes(&mut metas[0], blkid, dnodes)?;
            if fill == 0 {
                let hole = self.hole(&metas[0], 0, false);
                metas[0].patch(0, blkid, hole);
                continue;
            }
            let old = self.rewritable(&mut metas[0], 0, blkid)?;
            let request = self.request(&metas[0], 0, blkid, buf.into(), fill, old);
            batch.push(
                BlockOwner {
                    work: 0,
                    level: 0,
                    blkid,
                },
                request,
            );
            if batch.is_full() {
                self.flush_uncharged(&mut batch, &mut metas)?;
            }
        }
        self.flush_uncharged(&mut batch, &mut metas)?;
        self.write_indirects(&mut metas)?;
        let [mut meta] = metas;
        for (index, patch) in meta.take_root() {
            let old = meta.walk.tree.blkptrs[index];
            meta.walk.tree.blkptrs[index] = self.settle(&mut meta, &old, &patch);
        }
        meta.new.blkptrs = meta.walk.tree.blkptrs.clone();
        let used = meta.old.used_bytes().checked_add_signed(meta.used_bytes);
        meta.new.set_used_bytes(used.unwrap_or(0));
        Ok(meta)
    }

    /// Writes a batch of blocks of dnodes: their charge is per dnode, not per block.
    fn flush_uncharged(&mut self, batch: &mut Batch, metas: &mut [Work]) -> Result<()> {
        let (places, requests) = batch.take();
        if requests.is_empty() {
            return Ok(());
        }
        let (_, bps) = self.write(requests)?;
        for (place, bp) in places.into_iter().zip(bps) {
            metas[0].patch(
                0,
                place.blkid,
                super::Patch {
                    bp,
                    keep_birth: false,
                },
            );
        }
        Ok(())
    }

    /// Gives readers of dnodes copies in memory of the blocks that are about to be overwritten on disk.
    fn show_dnodes(
        &mut self,
        meta: &mut Work,
        by_block: &BTreeMap<u64, Vec<(usize, &Work)>>,
    ) -> Result<()> {
        let mut layer = Dirty::new(meta.layer.fields.clone());
        for (&blkid, dnodes) in by_block {
            let (buf, _) = self.block_of_dnodes(meta, blkid, dnodes)?;
            layer.blocks.insert(blkid, Block::Data(buf.into()));
        }
        meta.dnode.state().writing = Some(Arc::new(layer));
        let blkids: Vec<u64> = by_block.keys().copied().collect();
        meta.show_pending_of(&blkids)
    }

    /// A block of dnodes as it will be, and how many dnodes are in it.
    fn block_of_dnodes(
        &self,
        meta: &mut Work,
        blkid: u64,
        dnodes: &[(usize, &Work)],
    ) -> Result<(Buf, u64)> {
        let bp = meta.walk.bp(0, blkid)?;
        let tree = &meta.walk.tree;
        let mut buf = if bp.is_hole() {
            Buf::zeroed(tree.blksz as usize)
        } else {
            let at = tree.bookmark(0, blkid);
            let buf = self.objset.store().read(&bp, &at)?;
            crate::tree::check_len(&buf, tree.blksz, &at)?;
            buf
        };
        let block = buf.make_mut();
        for (slot, work) in dnodes {
            let from = slot * DNODE_MIN_SIZE;
            let place = &mut block[from..from + usize::from(work.dnode.slots()) * DNODE_MIN_SIZE];
            if work.new.exists {
                place.copy_from_slice(&work.new.encode());
            } else {
                place.fill(0);
            }
        }
        let fill = allocated_slots(&buf).count() as u64;
        Ok((buf, fill))
    }
}

/// Stores a dnode of one slot in the objset block; zeros if there is none.
pub(super) fn store_slot(slot: &mut DnodeSlotPhys, image: Option<&Image>) {
    match image {
        None => slot.zero(),
        Some(image) => {
            let bytes = image.encode();
            assert_eq!(
                bytes.len(),
                DnodeSlotPhys::SIZE,
                "a special dnode takes one slot"
            );
            slot.as_mut_bytes().copy_from_slice(&bytes);
        }
    }
}

/// Whether the owner of an object is in its spill block.
fn needs_spill(image: &Image) -> bool {
    image.bonus.is_empty() && image.bonus_type() == ObjectType::SA
}
