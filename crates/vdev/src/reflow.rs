//! Expanding a RAID-Z by one child: moving its sectors to where they belong on one child more.
//!
//! # What it is
//! Sectors keep their numbers; the one with number `s` moves from `s / n` of child `s % n` to `s / (n + 1)` of child
//! `s % (n + 1)`. They are moved from the first to the last one, a slice at a time, and the uberblock says how far
//! that is ([`Reflow::note`]): what is before is found on all children, what is behind where it was before.
//!
//! # On disk
//! A slice is copied to places that had sectors which were moved earlier. At the beginning there are none: the first
//! sectors are copied to the boot area of each child, the *scratch area*. From the moment that the uberblock says so
//! they are found there, until they are copied to where they belong, which another uberblock says.
//!
//! # Invariants
//! 1. No slice overwrites a row that is found at its former place by the uberblock on disk ([`Reflow::limit`]).
//! 2. While a slice runs, no other I/O to RAID-Zs is in flight.
//! 3. A slice is on all children, and flushed, before an uberblock says so; that uberblock is on more children than may
//!    be lost before anything else is written.
//!
//! # Crash argument
//! At any moment a slice that the uberblock does not know is in places that nothing is read from. The uberblock of the
//! last txg is written again, with a later timestamp, into the slot before the one of its txg and into that one in
//! turn: if the newer one is torn, the one that it replaces is there, and by invariant 1 what that says is still true.
//! Nothing is written between the slice and its uberblock, so that both say the same of every block.
//!
//! # Why not simpler
//! OpenZFS moves sectors while other writes go on, and puts the progress into the uberblock of a later txg: until then
//! it writes to both places. Here only rows that the progress goes through have two places (`SectorRow::shadow`).
//!
//! # Source
//! OpenZFS `module/zfs/vdev_raidz.c` (`raidz_reflow_impl`, `raidz_reflow_scratch_sync`,
//! `vdev_raidz_reflow_copy_scratch`, `vdev_raidz_attach_check`), `module/zfs/vdev_label.c` (`vdev_uberblock_sync`).

use std::ops::Range;
use std::sync::Arc;

use base::{BlockBuf, Error, ErrorKind, Guid, Result, Txg, VdevId, align_down};
use phys::label::{BOOT_SIZE, LABEL_START_SIZE, LABELS, allocatable_size};
use phys::uberblock::UberblockPhys;
use rt::RwLockWriteGuard;
use zio::Priority;

use crate::dtl::TXG_CONCURRENT_STATES;
use crate::open::min_asize;
use crate::stats::VdevStats;
use crate::{Vdev, VdevConfig, VdevKind, VdevTree, label};

/// The right to move the sectors of a RAID-Z that is being expanded.
pub struct Reflow<'a> {
    tree: &'a VdevTree,
    top: Arc<Vdev>,
    _still: RwLockWriteGuard<'a, ()>,
}

impl VdevTree {
    /// The RAID-Z that is being expanded.
    #[must_use]
    #[doc(alias = "spa_raidz_expand")]
    pub fn expanding(&self) -> Option<VdevId> {
        let root = self.root();
        let at = root
            .children()
            .iter()
            .position(|top| top.config().expanding);
        at.map(|at| VdevId(at as u64))
    }

    /// Checks that an expansion can go on from where the uberblock says that it is.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`]: it is never there, and would get no further.
    pub fn check_reflow(&self, uberblock: &UberblockPhys) -> Result<()> {
        let Some(top) = self.expanding().and_then(|vdev| self.top(vdev)) else {
            return Ok(());
        };
        let scratch = scratch_bytes(&top);
        let offset = match uberblock.reflow_offset() {
            0 => scratch,
            offset => offset,
        };
        if offset >= scratch && limit(&top, offset) > offset {
            return Ok(());
        }
        let what = format!(
            "vdev {}: an expansion of {} children that is at {offset:#x}",
            top.guid(),
            top.children().len()
        );
        Err(Error::corrupt(what))
    }

    /// Whether a RAID-Z can be expanded by a device.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Unsupported`] if it is not a RAID-Z, or has too many children for its
    /// scratch area; [`ErrorKind::Exists`] if one is being expanded; [`ErrorKind::TooBig`] if the device is too small;
    /// [`ErrorKind::InvalidInput`] if its sectors are too large; [`ErrorKind::Busy`] if a child is absent or being
    /// replaced.
    #[doc(alias = "vdev_raidz_attach_check")]
    pub fn check_widen(&self, guid: Guid, device: &Vdev) -> Result<VdevId> {
        let tops = self.tops();
        let at = tops.iter().position(|top| top.guid() == guid);
        let at = at.ok_or_else(|| Error::not_found(format!("no top-level vdev {guid}")))?;
        let top = &tops[at];
        if !matches!(top.kind(), VdevKind::RaidZ { .. }) {
            let what = format!("a device for a {}", top.kind().word());
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        if self.expanding().is_some() {
            return Err(Error::new(ErrorKind::Exists, "raidz expansion in progress"));
        }
        let needed = min_asize(top, &top.children()[0]);
        if allocatable_size(device.leaf().psize()) < needed {
            let what = format!(
                "{}: device is too small, {needed} bytes needed",
                device.name()
            );
            return Err(Error::new(ErrorKind::TooBig, what));
        }
        if device.ashift() > top.ashift() {
            return Err(Error::invalid(
                "its sectors are larger than those of the vdev",
            ));
        }
        if (top.children().len() as u64 + 1) << top.ashift() > BOOT_SIZE {
            let what = "the scratch area is too small for so many devices";
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let is_absent = |child: &Arc<Vdev>| !child.kind().has_labels() || !child.leaf().is_usable();
        if top.children().iter().any(is_absent) {
            let what = "raidz vdev has devices that are are offline or being replaced";
            return Err(Error::new(ErrorKind::Busy, what));
        }
        Ok(VdevId(at as u64))
    }

    /// Adds a child to a RAID-Z, as [`check_widen`](Self::check_widen) allows: nothing is on it yet.
    #[doc(alias = "vdev_raidz_attach_sync")]
    pub fn widen(&self, id: VdevId, device: &Arc<Vdev>) {
        let _still = self.still().write();
        let top = self.top(id).expect("it was checked");
        let create_txg = top.config().create_txg;
        device.update(|config| config.create_txg = create_txg);
        let mut children = top.children().to_vec();
        children.push(Arc::clone(device));
        let config = VdevConfig {
            expanding: true,
            ..top.config().clone()
        };
        let wider = Vdev::new(top.kind(), top.guid(), config, children);
        wider.ops().note_uberblock(&UberblockPhys::default());
        self.replace_top(id, wider);
    }

    /// All sectors were moved: blocks that are born from now on, as soon as none is in flight that was begun before,
    /// are as wide as the vdev.
    #[doc(alias = "raidz_reflow_complete_sync")]
    pub fn end_widening(&self, id: VdevId, txg: Txg) -> Arc<Vdev> {
        let _still = self.still().write();
        let top = self.top(id).expect("it is being expanded");
        let mut config = top.config().clone();
        config.expanding = false;
        config.expand_txgs.push(txg.0 + TXG_CONCURRENT_STATES);
        let whole = Vdev::new(top.kind(), top.guid(), config, top.children().to_vec());
        self.replace_top(id, Arc::clone(&whole));
        whole
    }

    /// Whether all children of a RAID-Z that is being expanded are there, and have everything.
    #[must_use]
    #[doc(alias = "vdev_raidz_expand_child_replacing")]
    pub fn can_reflow(&self, id: VdevId) -> bool {
        let is_whole = |child: &Arc<Vdev>| {
            child.kind().has_labels() && child.leaf().is_usable() && !child.leaf().has_dtl()
        };
        self.top(id)
            .is_some_and(|top| top.children().iter().all(is_whole))
    }

    /// Waits until no I/O to RAID-Zs is in flight, and holds it off.
    ///
    /// # Panics
    /// If that vdev is not being expanded.
    #[must_use]
    pub fn begin_reflow(&self, id: VdevId) -> Reflow<'_> {
        let still = self.still().write();
        let top = self.top(id).expect("it is in the tree");
        assert!(top.config().expanding, "{id} is not being expanded");
        Reflow {
            tree: self,
            top,
            _still: still,
        }
    }
}

impl Reflow<'_> {
    /// How far may be copied, in bytes, when the uberblock on disk says that what is before `offset` was moved: up to
    /// where what is copied would overwrite a row that was not.
    #[must_use]
    pub fn limit(&self, offset: u64) -> u64 {
        limit(&self.top, offset)
    }

    /// Copies these bytes, which are whole sectors, to where they belong.
    ///
    /// # Errors
    /// Of any child: what was copied does not count then.
    #[doc(alias = "raidz_reflow_impl")]
    pub fn copy(&self, range: &Range<u64>) -> Result<()> {
        let ashift = self.top.ashift();
        let (from, to) = (range.start >> ashift, range.end >> ashift);
        let new = self.top.children().len() as u64;
        let old = self.read(&spans(from..to, new - 1), 0)?;
        self.write(moved(from..to, ashift, &old, new), &spans(from..to, new), 0)
    }

    /// Makes all that was copied durable.
    ///
    /// # Errors
    /// Of any child.
    pub fn flush(&self) -> Result<()> {
        let results = self.on_children(|_, child| child.leaf().flush());
        results.into_iter().collect()
    }

    /// How many bytes of the vdev the scratch area has.
    #[must_use]
    pub fn scratch_bytes(&self) -> u64 {
        scratch_bytes(&self.top)
    }

    /// Copies the first sectors to the scratch area.
    ///
    /// # Errors
    /// Of any child.
    #[doc(alias = "raidz_reflow_scratch_sync")]
    pub fn fill_scratch(&self) -> Result<()> {
        let ashift = self.top.ashift();
        let (count, new) = (
            self.scratch_bytes() >> ashift,
            self.top.children().len() as u64,
        );
        let old = self.read(&spans(0..count, new - 1), 0)?;
        self.write(
            moved(0..count, ashift, &old, new),
            &spans(0..count, new),
            BOOT_SIZE,
        )?;
        self.flush()
    }

    /// Copies what is in the scratch area to where it belongs.
    ///
    /// # Errors
    /// Of any child.
    #[doc(alias = "vdev_raidz_reflow_copy_scratch")]
    pub fn empty_scratch(&self) -> Result<()> {
        let count = self.scratch_bytes() >> self.top.ashift();
        let spans = spans(0..count, self.top.children().len() as u64);
        let bytes = self.read(&spans, BOOT_SIZE)?;
        self.write(bytes, &spans, 0)?;
        self.flush()
    }

    /// Writes an uberblock that is an update of the one on disk; `is_odd` is another one each time. With multihost, no
    /// slot is taken that is for heartbeats.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if it is on so few children that all of them may be lost.
    #[doc(alias = "vdev_uberblock_sync_list")]
    pub fn write_uberblock(
        &self,
        uberblock: &UberblockPhys,
        (is_odd, multihost): (bool, bool),
    ) -> Result<()> {
        let mut leaves = Vec::new();
        for top in self.tree.tops() {
            let ashift = top.config().ashift;
            leaves.extend(top.devices().into_iter().map(|leaf| (leaf, ashift)));
        }
        leaves.retain(|(leaf, _)| leaf.kind().has_labels() && leaf.leaf().is_usable());
        let ashifts = leaves.clone();
        let uberblock = *uberblock;
        let vdevs: Vec<_> = leaves.into_iter().map(|(leaf, _)| leaf).collect();
        let results = self.tree.on_leaves(vdevs.clone(), move |vdev| {
            let found = ashifts.iter().find(|(leaf, _)| Arc::ptr_eq(leaf, vdev));
            let ashift = found.expect("one for each leaf").1;
            let write = |index| {
                let slot = (is_odd, multihost);
                label::write_uberblock(vdev.leaf(), index, ashift, &uberblock, slot)
            };
            let written: Vec<_> = (0..LABELS).map(write).collect();
            vdev.leaf().flush()?;
            if written.iter().any(Result::is_ok) {
                return Ok(());
            }
            written.into_iter().next().expect("there are labels")
        });
        let (mut good, mut failed) = (0, None);
        for (vdev, result) in vdevs.iter().zip(results) {
            match result {
                Ok(()) => {
                    let is_own = self.top.children().iter().any(|own| Arc::ptr_eq(own, vdev));
                    good += usize::from(is_own);
                }
                Err(error) => {
                    VdevStats::add(&vdev.stats().write_errors, 1);
                    failed = Some(error);
                }
            }
        }
        if good > self.top.ops().tolerated(self.top.children().len()) {
            return Ok(());
        }
        let none = || Error::new(ErrorKind::Io, "no device left for uberblocks");
        Err(failed.unwrap_or_else(none))
    }

    /// From now on sectors are where this uberblock says.
    pub fn note(&self, uberblock: &UberblockPhys) {
        self.top.ops().note_uberblock(uberblock);
    }

    /// It is not known where sectors are: nothing is read or written from now on.
    pub fn give_up(&self) {
        self.top.ops().forget_uberblock();
    }

    /// Calls `act` for all children, in parallel.
    fn on_children<T: Send + 'static>(
        &self,
        act: impl Fn(usize, &Arc<Vdev>) -> T + Send + Sync + 'static,
    ) -> Vec<T> {
        let children = self.top.children().to_vec();
        let leaves = children.clone();
        self.tree.on_leaves(leaves, move |leaf| {
            let at = children.iter().position(|child| Arc::ptr_eq(child, leaf));
            act(at.expect("a child"), leaf)
        })
    }

    /// Reads a span of each child, so many bytes before its place; children without one give nothing.
    fn read(&self, spans: &[Span], before: u64) -> Result<Vec<BlockBuf>> {
        let (spans, ashift) = (spans.to_vec(), self.top.ashift());
        let results = self.on_children(move |at, child| {
            let span = spans.get(at).copied().unwrap_or_default();
            let mut bytes = BlockBuf::scratch((span.count << ashift) as usize);
            if span.count == 0 {
                return Ok(bytes);
            }
            let offset = LABEL_START_SIZE - before + (span.first << ashift);
            let read = child.leaf().read(Priority::Scrub, offset, &mut bytes);
            let stats = child.stats();
            if read.is_err() {
                VdevStats::add(&stats.read_errors, 1);
            }
            read.map(|()| bytes)
        });
        results.into_iter().collect()
    }

    /// Writes a span of each child, so many bytes before its place.
    fn write(&self, bytes: Vec<BlockBuf>, spans: &[Span], before: u64) -> Result<()> {
        let (spans, ashift) = (spans.to_vec(), self.top.ashift());
        let results = self.on_children(move |at, child| {
            let offset = LABEL_START_SIZE - before + (spans[at].first << ashift);
            if bytes[at].is_empty() {
                return Ok(());
            }
            let written = child
                .leaf()
                .write(Priority::AsyncWrite, offset, &[&bytes[at]]);
            let stats = child.stats();
            if written.is_err() {
                VdevStats::add(&stats.write_errors, 1);
            }
            written
        });
        results.into_iter().collect()
    }
}

/// [`Reflow::limit`] of a RAID-Z that is being expanded.
fn limit(top: &Vdev, offset: u64) -> u64 {
    let (ashift, old) = (top.ashift(), top.children().len() as u64 - 1);
    let first = offset >> ashift;
    (first + first / old).saturating_sub(old) << ashift
}

/// [`Reflow::scratch_bytes`] of a RAID-Z that is being expanded.
fn scratch_bytes(top: &Vdev) -> u64 {
    align_down(BOOT_SIZE, 1 << top.ashift()) * top.children().len() as u64
}

/// Sectors of one child that follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    /// The first one's number on the child.
    first: u64,
    count: u64,
}

/// Where sectors of a RAID-Z with so many children are on each child.
fn spans(sectors: Range<u64>, children: u64) -> Vec<Span> {
    let span = |child: u64| {
        let first = sectors.start + (child + children - sectors.start % children) % children;
        Span {
            first: first / children,
            count: sectors.end.saturating_sub(first).div_ceil(children),
        }
    };
    (0..children).map(span).collect()
}

/// What each of `new` children gets of sectors that were on one less, as [`spans`] says.
fn moved(sectors: Range<u64>, ashift: u32, old: &[BlockBuf], new: u64) -> Vec<BlockBuf> {
    let (from, to) = (spans(sectors.clone(), new - 1), spans(sectors.clone(), new));
    let empty = |span: &Span| BlockBuf::scratch((span.count << ashift) as usize);
    let mut children: Vec<BlockBuf> = to.iter().map(empty).collect();
    let size = 1usize << ashift;
    for sector in sectors {
        let (source, target) = ((sector % (new - 1)) as usize, (sector % new) as usize);
        let at = ((sector / (new - 1) - from[source].first) << ashift) as usize;
        let there = ((sector / new - to[target].first) << ashift) as usize;
        children[target][there..there + size].copy_from_slice(&old[source][at..at + size]);
    }
    children
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_each_sector_once() {
        for children in 1..7 {
            for start in 0..15 {
                for end in start..start + 20 {
                    let mut found = Vec::new();
                    for (child, span) in (0..).zip(spans(start..end, children)) {
                        found.extend(
                            (span.first..span.first + span.count).map(|row| row * children + child),
                        );
                    }
                    found.sort_unstable();
                    assert_eq!(found, (start..end).collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn sectors_keep_their_numbers_when_they_move() {
        for new in 2..6 {
            for sectors in [0..1, 3..50, 7..9, 10..41] {
                let old = spans(sectors.clone(), new - 1);
                let fill = |(child, span): (u64, &Span)| {
                    let mut bytes = BlockBuf::zeroed((span.count << 9) as usize);
                    for (row, sector) in (span.first..).zip(bytes.chunks_exact_mut(512)) {
                        sector.fill((row * (new - 1) + child) as u8);
                    }
                    bytes
                };
                let old: Vec<_> = (0..).zip(&old).map(fill).collect();
                let found = moved(sectors.clone(), 9, &old, new);
                for (child, (bytes, span)) in (0..).zip(found.iter().zip(spans(sectors, new))) {
                    for (row, sector) in (span.first..).zip(bytes.chunks_exact(512)) {
                        assert!(sector.iter().all(|byte| *byte == (row * new + child) as u8));
                    }
                }
            }
        }
    }
}
