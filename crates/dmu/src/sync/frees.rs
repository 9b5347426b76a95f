//! Freed ranges: applied from the top down, through existing blocks only.
//!
//! # What it is
//! A subtree that is freed as a whole is killed with all its indirect blocks, and its pointer becomes a
//! hole. Where a range ends within a subtree, or a block below it is written again in the same txg, only
//! level-0 pointers become holes, so that each keeps its birth txg.
//!
//! # Source
//! OpenZFS module/zfs/dnode_sync.c (`free_children`, `free_blocks`) @be7657e3.

use base::Result;
use phys::blkptr::BlkPtrPhys;

use super::Pass;
use super::work::Work;

impl Pass<'_> {
    /// Applies the freed ranges of the layer to the tree on disk.
    #[doc(alias = "dnode_sync_free_ranges")]
    pub(super) fn apply_frees(&mut self, work: &mut Work) -> Result<()> {
        if work.layer.freed.is_empty() || !work.old.exists {
            return Ok(());
        }
        // New readers see holes there; once the earlier ones are done, blocks can be killed as they are found.
        work.dnode.drain_readers();
        let behind = work.old.core.maxblkid.get().saturating_add(1);
        let ranges: Vec<_> = work.layer.freed.iter().collect();
        for (start, end) in ranges {
            // Nothing exists past the last block: its subtree is freed as a whole.
            let end = if end >= behind { u64::MAX } else { end };
            self.free_range(work, start, end)?;
        }
        Ok(())
    }

    fn free_range(&mut self, work: &mut Work, start: u64, end: u64) -> Result<()> {
        let top = work.walk.tree.top();
        for index in 0..work.walk.tree.blkptrs.len() {
            let bp = work.walk.tree.blkptrs[index];
            self.free_below(work, (top, index as u64), &bp, (start, end))?;
        }
        Ok(())
    }

    /// Frees what is within `range` at or below the block `at` (level and block id).
    fn free_below(
        &mut self,
        work: &mut Work,
        at: (u8, u64),
        bp: &BlkPtrPhys,
        range: (u64, u64),
    ) -> Result<()> {
        let (level, blkid) = at;
        let (first, behind) = work.walk.tree.span(level, blkid);
        if bp.is_hole() || behind <= range.0 || range.1 <= first {
            return Ok(());
        }
        let whole = range.0 <= first && (behind <= range.1 || range.1 == u64::MAX);
        let written_again = work.layer.blocks.range(first..behind).next().is_some();
        if whole && (level == 0 || !written_again) {
            if level > 0 {
                self.kill_children(work, level, blkid)?;
            }
            let hole = self.hole(work, level, true);
            work.patch(level, blkid, hole);
            return Ok(());
        }
        assert!(level > 0, "block {blkid} is freed or not");
        let node = work.walk.node(level, blkid)?;
        let epbs = work.walk.tree.epbs();
        for index in 0..1u64 << epbs {
            let child = node.entry(index as usize);
            self.free_below(work, (level - 1, (blkid << epbs) + index), &child, range)?;
        }
        Ok(())
    }

    /// Kills everything below an indirect block, which is not a hole.
    fn kill_children(&mut self, work: &mut Work, level: u8, blkid: u64) -> Result<()> {
        let bp = work.walk.bp(level, blkid)?;
        let bookmark = work.walk.tree.bookmark(level, blkid);
        work.freed.follow(&bp, &bookmark)?;
        let node = work.walk.node(level, blkid)?;
        let epbs = work.walk.tree.epbs();
        let first = blkid << epbs;
        let children = 0..1u64 << epbs;
        if level > 1 {
            let present = children
                .clone()
                .filter(|i| !node.entry(*i as usize).is_hole());
            let present: Vec<u64> = present.map(|i| first + i).collect();
            for (index, child) in present.iter().enumerate() {
                if index % super::PREFETCH_BLOCKS == 0 && !self.overwrites() {
                    let next = present[index..].iter().take(super::PREFETCH_BLOCKS);
                    work.prefetch(level - 1, next);
                }
                self.kill_children(work, level - 1, *child)?;
                let bp = node.entry((child - first) as usize);
                self.bury(work, &bp);
            }
            return Ok(());
        }
        for index in children {
            let bp = node.entry(index as usize);
            if !bp.is_hole() {
                // No reader can find a data block any more: no need to remember it until the end of the pass.
                let accounting = &self.objset.context.accounting;
                work.used_bytes -= accounting.dsize(&bp) as i64;
                accounting.kill(&bp, self.tx);
            }
        }
        Ok(())
    }

    /// Adds levels on top of a tree that has become too small.
    pub(super) fn grow(&mut self, work: &mut Work) {
        if !work.grows() {
            return;
        }
        for (index, patch) in work.take_root() {
            let old = work.walk.tree.blkptrs[index];
            work.walk.tree.blkptrs[index] = self.settle(work, &old, &patch);
        }
        work.grow();
    }
}
