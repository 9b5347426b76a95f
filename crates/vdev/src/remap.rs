//! Following the mappings of removed vdevs to where data is now.
//!
//! # What it is
//! What was on a removed vdev may be on another vdev that was removed later. [`VdevTree::remap`] follows
//! mappings until it is at vdevs that have devices, and shows each step: what frees a block marks it as obsolete
//! on each removed vdev that it passes.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_indirect.c` (`vdev_indirect_remap`).

use base::{Error, Result, VdevId};

use crate::mapping::Piece;
use crate::{VdevKind, VdevTree};

/// The most mappings that lead to one block: damaged ones may lead in a circle.
const DEPTH_MAX: usize = 64;

impl VdevTree {
    /// Calls `see` for a range of a top-level vdev and, if that was removed, for each piece of it on other ones,
    /// until there are only pieces on vdevs that have devices. A piece comes after the one that it is a part of;
    /// the flag says whether it is on a removed vdev, of which all of the piece is mapped then.
    ///
    /// # Errors
    /// `Corrupt` if a part is not mapped, or mappings lead in a circle; errors of `see`.
    pub fn remap(
        &self,
        vdev: VdevId,
        offset: u64,
        size: u64,
        see: &mut dyn FnMut(&Piece, bool) -> Result<()>,
    ) -> Result<()> {
        let whole = Piece {
            vdev,
            offset,
            size,
            at: 0,
            birth: None,
        };
        let mut todo = vec![(whole, 0)];
        while let Some((piece, depth)) = todo.pop() {
            let top = self.top(piece.vdev);
            let top = top.ok_or_else(|| Error::corrupt(format!("no vdev {}", piece.vdev)))?;
            if top.kind() != VdevKind::Indirect {
                see(&piece, false)?;
                continue;
            }
            if depth == DEPTH_MAX {
                let what = format!("more than {DEPTH_MAX} mappings lead on from vdev {vdev}");
                return Err(Error::corrupt(what));
            }
            let mapping = top.mapping().ok_or_else(|| {
                Error::corrupt(format!("the mapping of vdev {} was not read", piece.vdev))
            })?;
            let pieces = mapping.pieces(piece.offset, piece.size)?;
            see(&piece, true)?;
            todo.extend(pieces.into_iter().rev().map(|inner| {
                let at = piece.at + inner.at;
                (Piece { at, ..inner }, depth + 1)
            }));
        }
        Ok(())
    }

    /// The pieces of a range of a top-level vdev on vdevs that have devices, in order.
    ///
    /// # Errors
    /// As [`remap`](Self::remap).
    pub fn pieces(&self, vdev: VdevId, offset: u64, size: u64) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        self.remap(vdev, offset, size, &mut |piece, is_removed| {
            if !is_removed {
                pieces.push(*piece);
            }
            Ok(())
        })?;
        Ok(pieces)
    }
}
