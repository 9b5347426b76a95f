//! Frees of what is, or was, on a removed vdev, and of what a checkpoint keeps.
//!
//! # What it is
//! The allocator as the pipeline sees it. Everything but a free goes to the metaslabs.
//!
//! # Source
//! OpenZFS `module/zfs/metaslab.c` (`metaslab_free_impl`, `metaslab_claim_impl`), `module/zfs/vdev_removal.c`
//! (`free_from_removing_vdev`).

use std::sync::atomic::Ordering;

use base::{Error, Result, Txg};
use phys::DvaPhys;
use vdev::{Piece, VdevKind};
use zio::{AllocClass, Allocator, DvaSet, Hint};

use super::{Removal, State};

impl Removal {
    /// Frees a range in the txg that is being synced, wherever it is now. `is_kept`: the checkpoint refers to it.
    #[doc(alias = "metaslab_free_impl")]
    pub(super) fn free_range(&self, txg: Txg, dva: &DvaPhys, is_kept: bool) -> Result<()> {
        let (vdev, offset, size) = (dva.vdev(), dva.offset(), dva.asize());
        self.tree
            .remap(vdev, offset, size, &mut |piece, is_removed| {
                if is_removed {
                    let mut state = self.state.lock();
                    return state.mark_obsolete(piece);
                }
                if is_kept {
                    return self.keep_piece(piece);
                }
                self.free_piece(txg, piece)
            })
    }

    /// Keeps a piece for the checkpoint: as long as there is one, no vdev is removed, so it has no copy.
    fn keep_piece(&self, piece: &Piece) -> Result<()> {
        let Piece {
            vdev, offset, size, ..
        } = *piece;
        let metaslab = self.space.metaslab_of(vdev, offset, size)?;
        self.kept.add(vdev, metaslab, offset, size)
    }

    /// Frees a piece on a vdev that has devices, and, if it was copied from there, the copy, too.
    #[doc(alias = "free_from_removing_vdev")]
    fn free_piece(&self, txg: Txg, piece: &Piece) -> Result<()> {
        let Piece {
            vdev, offset, size, ..
        } = *piece;
        self.space.try_free(txg, vdev, offset, size)?;
        for copy in self.state.lock().free_of_removing(piece)? {
            self.space
                .try_free(txg, copy.vdev, copy.offset, copy.size)?;
        }
        Ok(())
    }
}

impl State {
    /// Takes note that a range of a vdev with a mapping is not referred to any more.
    #[doc(alias = "vdev_indirect_mark_obsolete")]
    fn mark_obsolete(&mut self, piece: &Piece) -> Result<()> {
        let ranges = self.obsolete.entry(piece.vdev).or_default();
        if ranges.try_add(piece.offset, piece.size) {
            return Ok(());
        }
        let Piece {
            vdev, offset, size, ..
        } = *piece;
        let what = format!("{offset:#x}+{size:#x} of removed vdev {vdev} is freed twice");
        Err(Error::corrupt(what))
    }

    /// A range was freed. If it is on the vdev that is being removed: what was not copied yet will not be; the
    /// copies of the rest are returned.
    fn free_of_removing(&mut self, freed: &Piece) -> Result<Vec<Piece>> {
        let Some(active) = self.active.as_mut() else {
            return Ok(Vec::new());
        };
        if active.vdev != freed.vdev {
            return Ok(Vec::new());
        }
        let copied_end = active.mapping.max_offset();
        let copied = copied_end.saturating_sub(freed.offset).min(freed.size);
        let rest = freed.size - copied;
        if rest > 0 {
            active.pending.clear_range(freed.offset + copied, rest);
            active.done += rest;
        }
        if copied == 0 {
            return Ok(Vec::new());
        }
        let copies = active.mapping.pieces(freed.offset, copied)?;
        let piece = Piece {
            size: copied,
            ..*freed
        };
        self.mark_obsolete(&piece)?;
        Ok(copies)
    }
}

impl Allocator for Removal {
    fn allocate(
        &self,
        txg: Txg,
        class: AllocClass,
        psize: u64,
        copies: usize,
        hint: &Hint,
    ) -> Result<DvaSet> {
        self.space.allocate(txg, class, psize, copies, hint)
    }

    fn free(&self, txg: Txg, birth: Txg, dva: &DvaPhys) {
        let is_kept = self.kept.keeps(txg, birth);
        if is_kept || self.is_used.load(Ordering::Relaxed) {
            self.space.note_fault(self.free_range(txg, dva, is_kept));
        } else {
            self.space.free(txg, birth, dva);
        }
    }

    fn unallocate(&self, txg: Txg, dva: &DvaPhys) {
        self.space.unallocate(txg, dva);
    }

    fn claim(&self, txg: Txg, dva: &DvaPhys) -> Result<()> {
        let top = self.tree.top(dva.vdev());
        if top.is_some_and(|top| top.kind() == VdevKind::Indirect) {
            let what = format!("a block of an intent log on removed vdev {}", dva.vdev());
            return Err(Error::corrupt(what));
        }
        self.space.claim(txg, dva)
    }

    fn special_takes_data(&self) -> bool {
        self.space.special_takes_data()
    }

    fn has_spare(&self) -> bool {
        self.space.has_spare()
    }

    fn min_alloc(&self) -> u64 {
        self.space.min_alloc()
    }

    fn gcd_alloc(&self) -> u64 {
        self.space.gcd_alloc()
    }
}
