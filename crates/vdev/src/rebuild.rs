//! Rebuilding devices range by range: making their bytes those that the other devices have, without knowing which
//! blocks that are.
//!
//! # What it is
//! What is allocated of a mirror or a dRAID is read from devices that lack nothing and written to those that are
//! rebuilt. Kinds whose stripes are as long as their blocks cannot do that. Checksums are not looked at.
//!
//! # Invariants
//! 1. While a range is rebuilt no other I/O to the pool is in flight: what is read is what is there when it is written.
//!
//! # Crash argument
//! A device that is rebuilt lacks everything until the rebuild has ended: nothing is read from it if there is another
//! one.
//!
//! # Why not simpler
//! OpenZFS allocates nothing in the metaslab that is rebuilt, so that other I/O goes on elsewhere. Here it waits for as
//! long as some ranges take, and where it is does not matter.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_rebuild.c` (`vdev_rebuild_range`).

use std::ops::Range;

use base::{Result, VdevId};

use crate::{Vdev, VdevKind, VdevTree};

/// What came of rebuilding some ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Bytes that were written to devices.
    pub written_bytes: u64,
    /// Pieces that no device had, or that a device did not take.
    pub errors: u64,
}

impl VdevTree {
    /// From now on ranges may be rebuilt, or no longer: whether other I/O makes way for that.
    pub fn set_rebuilding(&self, is_rebuilding: bool) {
        self.makes_way()
            .store(is_rebuilding, std::sync::atomic::Ordering::Release);
    }

    /// Rebuilds allocated ranges of a top-level vdev. What was in flight when
    /// [`set_rebuilding`](Self::set_rebuilding) was called has to have ended.
    ///
    /// # Errors
    /// [`base::ErrorKind::Corrupt`] for a range that is not there.
    #[doc(alias = "vdev_rebuild_ranges")]
    pub fn rebuild(&self, id: VdevId, ranges: &[Range<u64>]) -> Result<Rebuilt> {
        let _still = self.still().write();
        let (start, end) = match ranges {
            [first, .., last] => (first.start, last.end),
            [only] => (only.start, only.end),
            [] => return Ok(Rebuilt::default()),
        };
        let top = self.top_for_io(id, start, end - start)?;
        let node = self.node(&top);
        Ok(top.ops().rebuild(&node, ranges))
    }
}

impl Vdev {
    /// Whether devices of this top-level vdev can be rebuilt.
    #[must_use]
    #[doc(alias = "vdev_op_rebuild_asize")]
    pub fn can_rebuild(&self) -> bool {
        match self.kind() {
            VdevKind::Mirror | VdevKind::Draid(_) => true,
            kind => kind.has_labels(),
        }
    }
}
