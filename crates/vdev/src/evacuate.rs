//! Copying what is on one top-level vdev to another one, without knowing what it is.
//!
//! # What it is
//! A range that is copied holds blocks and parts of blocks, whose checksums are elsewhere. So each side of a mirror
//! is copied to a side of the new one, as it is: if one side has a good copy of a block, one side still has it.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_removal.c` (`spa_vdev_copy_segment`, `spa_vdev_copy_one_child`).

use std::sync::Arc;

use base::{Result, Txg, VdevId};
use zio::{Io, Priority};

use crate::kinds::Node;
use crate::{Vdev, VdevTree};

/// A place on a top-level vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The vdev.
    pub vdev: VdevId,
    /// Where it is there.
    pub offset: u64,
}

impl VdevTree {
    /// Copies so many bytes, in `txg`.
    ///
    /// # Errors
    /// As of reading and writing: when no side of the source can be read, or none of the target be written.
    pub fn copy(&self, from: Spot, to: Spot, bytes: u64, txg: Txg) -> Result<()> {
        let source = self.top_for_io(from.vdev, from.offset, bytes)?;
        let target = self.top_for_io(to.vdev, to.offset, bytes)?;
        let source = self.node(&source);
        let target = self.node(&target);
        let count = sides_of(&target);
        let mut first = vec![0; bytes as usize];
        read_side(&source, 0, from.offset, &mut first, txg)?;
        let io = Io::write(txg, Priority::AsyncWrite);
        target.write(&io, to.offset, &[&first])?;
        let mut other = Vec::new();
        for side in 1..count {
            if sides_of(&source) == 1 {
                break;
            }
            other.resize(first.len(), 0);
            read_side(&source, side, from.offset, &mut other, txg)?;
            if other != first {
                let there = target.child(side);
                there.write(&io, to.offset, &[&other])?;
            }
        }
        Ok(())
    }
}

fn sides_of(node: &Node<'_>) -> usize {
    if node.vdev.kind().is_mirror_like() {
        node.vdev.children().len()
    } else {
        1
    }
}

/// Reads one side, or the next one that can be read; one that missed some txgs comes last.
fn read_side(source: &Node<'_>, side: usize, offset: u64, buf: &mut [u8], txg: Txg) -> Result<()> {
    let io = Io {
        priority: Priority::AsyncRead,
        ..Io::read(txg)
    };
    let count = sides_of(source);
    if count == 1 {
        return source.read(&io, offset, buf, &|_| true);
    }
    let lacks_some = |side: &usize| {
        let child: &Arc<Vdev> = &source.vdev.children()[*side];
        let has_all = |leaf: &Arc<Vdev>| leaf.leaf().is_usable() && !leaf.leaf().has_dtl();
        !child.devices().iter().all(has_all)
    };
    let mut sides: Vec<usize> = (0..count).map(|n| (side + n) % count).collect();
    sides.sort_by_key(lacks_some);
    let mut outcome = Ok(());
    for side in sides {
        outcome = source.child(side).read(&io, offset, buf, &|_| true);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}
