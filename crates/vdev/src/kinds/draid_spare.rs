//! I/O of a distributed spare: what has its room at an offset, another child of its dRAID, does it.
//!
//! # Invariants
//! 1. What a distributed spare missed since it was complete, the DTL of the child that has the room says.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_draid.c` (`vdev_draid_spare_get_child`, `vdev_draid_spare_io_start`,
//! `vdev_draid_missing`, `vdev_draid_readable`).

use std::sync::Arc;

use base::{Result, Txg};
use zio::{Io, Priority};

use super::Node;
use crate::{Vdev, VdevKind};

impl Node<'_> {
    /// The child that has the room of a distributed spare at an offset; nothing for a device with room of its
    /// own.
    #[doc(alias = "vdev_draid_spare_get_child")]
    pub(super) fn room(&self, device: &Vdev, offset: u64) -> Option<Node<'_>> {
        let VdevKind::DraidSpare(spare) = device.kind() else {
            return None;
        };
        let child = self.top.ops().child_of_spare(spare.number, offset)?;
        Some(Node {
            vdev: self.top.children().get(child)?,
            ..self.clone()
        })
    }

    /// Whether a device below can be read and written at an offset.
    #[doc(alias = "vdev_draid_readable")]
    pub(super) fn is_usable_at(&self, device: &Vdev, offset: u64) -> bool {
        if device.kind().has_labels() || !device.leaf().is_usable() {
            return device.leaf().is_usable();
        }
        let is_usable = |room: Node<'_>| {
            let mut leaves = room.vdev.leaves().iter();
            leaves.any(|leaf| room.is_usable_at(leaf, offset))
        };
        self.room(device, offset).is_some_and(is_usable)
    }

    /// Whether a device below missed what was written at an offset in a txg.
    #[doc(alias = "vdev_draid_missing")]
    pub(super) fn missed_at(&self, device: &Vdev, offset: u64, birth: Txg) -> bool {
        if device.kind().has_labels() || device.leaf().missed(birth) {
            return device.leaf().missed(birth);
        }
        let missed = |room: Node<'_>| {
            let leaves = room.vdev.leaves().iter();
            let mut usable = leaves.filter(|leaf| room.is_usable_at(leaf, offset));
            usable.all(|leaf| room.missed_at(leaf, offset, birth))
        };
        self.room(device, offset).is_none_or(missed)
    }

    /// Writes to the room of a distributed spare, which this is; what takes none of it missed it.
    pub(super) fn write_room(
        &self,
        priority: Priority,
        offset: u64,
        parts: &[&[u8]],
    ) -> Result<()> {
        let written = self.write(&Io::write(Txg(0), priority), offset, parts);
        if written.is_err() {
            self.vdev
                .leaves()
                .iter()
                .for_each(|leaf| self.note_missed(leaf));
        }
        written
    }

    /// A device missed a write of now; of a distributed spare, what has its room notes it.
    pub(super) fn note_missed(&self, device: &Arc<Vdev>) {
        if device.kind().has_labels() {
            device.leaf().dirty_dtl(self.txgs.clone());
        }
    }
}
