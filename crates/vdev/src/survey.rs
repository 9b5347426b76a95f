//! Reading the devices of a pool from beginning to end, for what looks like a block.
//!
//! # What it is
//! Where no pointer leads to a block that is looked for, all sectors of all devices are shown to the caller, who says
//! whether such a block may begin there. A sector of a device is told apart by the offset that a pointer to the block
//! would have: of a mirror it is the same on all sides; of a RAID-Z or dRAID there are several, of which the parity of
//! the whole block says which one is right.
//!
//! # Invariants
//! 1. Nothing is believed here: what is sighted has to be read like any other block, and to be what it looks like.
//! 2. A block is sighted as long as the device with its first sector of bytes is there; one of a single sector, as
//!    long as it can be read at all.

use std::ops::ControlFlow;
use std::sync::Arc;

use base::{BlockBuf, VdevId, align_down};
use phys::label::{LABEL_END_SIZE, LABEL_START_SIZE};

use crate::stray;
use crate::{Vdev, VdevTree};

/// Bytes of a device that are read at once.
const CHUNK: usize = 8 << 20;

/// Where a block may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sighting<S> {
    /// The top-level vdev.
    pub vdev: VdevId,
    /// The offset, as a pointer has it.
    pub offset: u64,
    /// What it looks like.
    pub what: S,
}

/// A device that can be surveyed.
#[derive(Clone)]
pub struct Ground {
    vdev: VdevId,
    top: Arc<Vdev>,
    device: Arc<Vdev>,
}

impl Ground {
    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<Vdev> {
        &self.device
    }

    /// How many bytes there are to read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let psize = self.device.leaf().psize();
        let bytes = psize.saturating_sub(LABEL_START_SIZE + LABEL_END_SIZE);
        align_down(bytes, 1 << self.top.ashift())
    }

    /// Reads the device, but for its first `from` bytes, and calls `see` after each piece with how many bytes were
    /// read so far, and what was sighted in the piece; it ends the survey by a `Break`. `look` gets the bytes from a
    /// sector on, one sector at least, and says what may begin there. What cannot be read is passed over.
    pub fn survey<S: Copy>(
        &self,
        from: u64,
        look: &dyn Fn(&[u8]) -> Option<S>,
        see: &mut dyn FnMut(u64, Vec<Sighting<S>>) -> ControlFlow<()>,
    ) {
        let Some(provider) = self.device.leaf().provider() else {
            return;
        };
        let (end, sector) = (self.bytes(), 1 << self.top.ashift());
        let mut buf = BlockBuf::zeroed(CHUNK);
        let mut at = align_down(from, CHUNK as u64);
        while at < end {
            let len = usize::try_from(end - at).map_or(CHUNK, |left| left.min(CHUNK));
            stray::read(&*provider, LABEL_START_SIZE + at, &mut buf[..len]);
            let mut sighted = Vec::new();
            for start in (0..len).step_by(sector) {
                let Some(what) = look(&buf[start..len]) else {
                    continue;
                };
                let mut show = |offset| {
                    if offset < self.top.asize() {
                        sighted.push(Sighting {
                            vdev: self.vdev,
                            offset,
                            what,
                        });
                    }
                };
                ascend(
                    &self.top,
                    self.top.ashift(),
                    &self.device,
                    at + start as u64,
                    &mut show,
                );
            }
            at += len as u64;
            if see(at, sighted).is_break() {
                return;
            }
        }
    }
}

/// Calls `show` with the offsets of a vdev that a block may have which begins at this offset of a device below.
fn ascend(
    vdev: &Arc<Vdev>,
    ashift: u32,
    device: &Arc<Vdev>,
    offset: u64,
    show: &mut dyn FnMut(u64),
) {
    if vdev.kind().is_device() {
        return show(offset);
    }
    let children = vdev.children();
    let is_above = |child: &Arc<Vdev>| child.leaves().iter().any(|leaf| Arc::ptr_eq(leaf, device));
    if let Some(n) = children.iter().position(is_above) {
        let mut up = |offset| {
            vdev.ops()
                .origins(children.len(), ashift, n, offset, &mut *show);
        };
        ascend(&children[n], ashift, device, offset, &mut up);
    }
}

impl VdevTree {
    /// The devices that are there and may have metadata.
    #[must_use]
    pub fn grounds(&self) -> Vec<Ground> {
        let mut grounds = Vec::new();
        for (id, top) in (0..).zip(self.tops()) {
            if !top.kind().is_concrete() || top.config().is_log {
                continue;
            }
            let is_there =
                |device: &Arc<Vdev>| device.kind().has_labels() && device.leaf().is_usable();
            let devices = top.devices().into_iter().filter(is_there);
            grounds.extend(devices.map(|device| Ground {
                vdev: VdevId(id),
                top: Arc::clone(&top),
                device,
            }));
        }
        grounds
    }
}
