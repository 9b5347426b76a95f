//! Where data and holes begin, changes in memory included.
//!
//! # Concurrency
//! Layers and tree must be from the same moment: if a sync installs a new tree in between, the search starts again.
//!
//! # Source
//! OpenZFS module/zfs/dmu.c (`dmu_offset_next`), module/zfs/dnode.c (`dnode_next_offset`)
//! @be7657e3.

use std::sync::Arc;

use base::Result;
use rt::MutexGuard;

use crate::Dnode;
use crate::dirty::Dirty;
use crate::dnode::{State, Ticket, View};
use crate::dnode_read::Found;
use crate::image::Image;
use crate::tree::Walk;

/// A search in progress.
struct Seek<'a> {
    dnode: &'a Dnode,
    _ticket: Ticket<'a>,
    walk: Walk,
    image: Arc<Image>,
    blksz: u64,
    maxblkid: u64,
}

impl Dnode {
    fn seek(&self) -> Seek<'_> {
        let mut state = self.state();
        let fields = state.fields(View::Open);
        let (blksz, maxblkid) = (fields.blksz, fields.maxblkid);
        let (ticket, walk) = self.walk(&mut state);
        Seek {
            dnode: self,
            _ticket: ticket,
            walk,
            image: Arc::clone(state.image()),
            blksz,
            maxblkid,
        }
    }

    /// The offset of the first byte at or after `offset` that is in a block; None if only holes follow.
    ///
    /// # Errors
    /// Errors from reading indirect blocks.
    #[doc(alias = "dmu_offset_next")]
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        loop {
            let mut seek = self.seek();
            let blksz = seek.blksz;
            if let Some(found) = seek.data(offset / blksz)? {
                return Ok(found.map(|blkid| (blkid * blksz).max(offset)));
            }
        }
    }

    /// The offset of the first byte at or after `offset` that is in a hole; there is always one past the
    /// last block.
    ///
    /// # Errors
    /// Errors from reading indirect blocks.
    #[doc(alias = "dmu_offset_next")]
    pub fn next_hole(&self, offset: u64) -> Result<u64> {
        loop {
            let mut seek = self.seek();
            let blksz = seek.blksz;
            if let Some(blkid) = seek.hole(offset / blksz)? {
                return Ok(blkid.saturating_mul(blksz).max(offset));
            }
        }
    }
}

impl<'a> Seek<'a> {
    /// The layers above the tree; None when a new tree was installed.
    fn layers(&self) -> Option<MutexGuard<'a, State>> {
        let state = self.dnode.state();
        Arc::ptr_eq(state.image(), &self.image).then_some(state)
    }

    /// The first block with data, if any; None to start again.
    fn data(&mut self, from: u64) -> Result<Option<Option<u64>>> {
        let mut at = from;
        loop {
            let on_disk = self.walk.search(0, at, &|level, bp| {
                if level == 0 {
                    !bp.is_hole()
                } else {
                    bp.fill() > 0
                }
            })?;
            // Blocks that a corrupt tree has past the last block do not exist, as for a reader.
            let on_disk = on_disk.filter(|id| *id <= self.maxblkid);
            let Some(state) = self.layers() else {
                return Ok(None);
            };
            let layers: Vec<&Dirty> = state.layers(View::Open).collect();
            let freed = on_disk.and_then(|id| layers.iter().find_map(|l| l.freed.end_of(id)));
            if let Some(end) = freed {
                at = end;
                continue;
            }
            let visible = (0..layers.len()).filter_map(|top| next_visible(&layers[..=top], from));
            return Ok(Some(visible.chain(on_disk).min()));
        }
    }

    /// The first block that is a hole; None to start again.
    fn hole(&mut self, from: u64) -> Result<Option<u64>> {
        let mut at = from;
        while at <= self.maxblkid {
            let Some(state) = self.layers() else {
                return Ok(None);
            };
            match state.locate(View::Open, at) {
                Found::Stored(bp) if bp.is_hole() => break,
                Found::Memory(_) | Found::Stored(_) => at += 1,
                Found::Zeros => break,
                Found::Disk => {
                    let freed = state
                        .layers(View::Open)
                        .filter_map(|l| l.freed.next(at))
                        .min();
                    drop(state);
                    let hole = self.disk_hole(at)?;
                    if hole == at {
                        break;
                    }
                    at = freed
                        .map_or(hole, |freed| freed.min(hole))
                        .min(self.maxblkid + 1);
                }
            }
        }
        Ok(Some(at))
    }

    fn disk_hole(&mut self, from: u64) -> Result<u64> {
        let epbs = self.walk.tree.epbs();
        let hole = self.walk.search(0, from, &|level, bp| {
            if level == 0 {
                return bp.is_hole();
            }
            let full = 1u64.checked_shl(epbs * u32::from(level));
            full.is_none_or(|full| bp.fill() < full)
        })?;
        Ok(hole.unwrap_or(u64::MAX))
    }
}

/// The first block of the last layer that the layers above it do not hide.
fn next_visible(layers: &[&Dirty], from: u64) -> Option<u64> {
    let (last, above) = layers.split_last()?;
    let mut from = from;
    loop {
        let (&blkid, _) = last.blocks.range(from..).next()?;
        match above.iter().find_map(|layer| layer.freed.end_of(blkid)) {
            None => return Some(blkid),
            Some(end) => from = end,
        }
    }
}
