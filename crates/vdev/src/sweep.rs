//! The free space of a device: where it is there, and writing to it or deleting it.
//!
//! # What it is
//! Free space is known by its offsets on a top-level vdev. Each kind of vdev says which part of a range lies on which
//! of its children, and a device has the parts that all vdevs above it give it. Nothing here knows what is free.
//!
//! # Source
//! OpenZFS `module/zfs/vdev.c` (`vdev_xlate`), `module/zfs/vdev_initialize.c`, `module/zfs/vdev_trim.c`.

use std::ops::Range;
use std::sync::Arc;

use base::{Buf, ErrorKind, Result};
use phys::label::LABEL_START_SIZE;
use zio::Priority;

use crate::leaf::{Begun, begin_delete, begin_write};
use crate::{Vdev, VdevTree};

/// A command that was begun.
#[must_use]
pub struct Pending {
    begun: Begun,
    /// Of a write.
    bytes: Option<u64>,
}

impl VdevTree {
    /// Waits until a command to a device of this top-level vdev is done. A device that fails is given up as after
    /// any other command, but has missed nothing.
    ///
    /// # Errors
    /// What the device says.
    pub fn end_sweep(&self, top: &Arc<Vdev>, device: &Arc<Vdev>, pending: Pending) -> Result<()> {
        let node = self.node(top);
        let result = pending.begun.wait();
        match (pending.bytes, &result) {
            (Some(bytes), _) => return node.note_write(device, result, bytes),
            (None, Err(error)) if error.kind() != ErrorKind::Unsupported => {
                node.fault_if_failing(device, true);
            }
            (None, _) => {}
        }
        result
    }
}

impl Vdev {
    /// Calls `show` with what of a range of this top-level vdev lies on a device below, without labels.
    #[doc(alias = "vdev_xlate_walk")]
    pub fn translate(
        self: &Arc<Self>,
        device: &Arc<Vdev>,
        range: Range<u64>,
        show: &mut dyn FnMut(Range<u64>),
    ) {
        descend(self, self.ashift(), device, range, show);
    }

    /// Begins to fill a range of this device, without labels, with the first bytes of a buffer.
    pub fn begin_fill(self: &Arc<Self>, range: &Range<u64>, pattern: &Buf) -> Pending {
        let at = LABEL_START_SIZE + range.start;
        let bytes = &pattern[..(range.end - range.start) as usize];
        let owned = || match bytes.len() == pattern.len() {
            true => pattern.clone(),
            false => Buf::copy_of(bytes),
        };
        let priority = Priority::Initializing;
        let begun = begin_write(self, priority, at, &[bytes], owned);
        let bytes = Some(range.end - range.start);
        Pending { begun, bytes }
    }

    /// Begins to tell this device that a range, without labels, is not needed any more.
    #[doc(alias = "zio_trim")]
    pub fn begin_delete(self: &Arc<Self>, range: &Range<u64>) -> Pending {
        let at = LABEL_START_SIZE + range.start;
        let len = range.end - range.start;
        let begun = begin_delete(self, Priority::Trim, at, len);
        Pending { begun, bytes: None }
    }
}

fn descend(
    vdev: &Arc<Vdev>,
    ashift: u32,
    device: &Arc<Vdev>,
    range: Range<u64>,
    show: &mut dyn FnMut(Range<u64>),
) {
    if vdev.kind().is_device() {
        return show(range);
    }
    let children = vdev.children();
    let is_above = |child: &Arc<Vdev>| child.leaves().iter().any(|leaf| Arc::ptr_eq(leaf, device));
    if let Some(n) = children.iter().position(is_above) {
        let child = &children[n];
        let mut down = |range| descend(child, ashift, device, range, &mut *show);
        vdev.ops()
            .translate(children.len(), ashift, n, range, &mut down);
    }
}
