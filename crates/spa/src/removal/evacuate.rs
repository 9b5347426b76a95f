//! Copying what is allocated on the vdev that is being removed, a slice in each txg.
//!
//! # What it is
//! Metaslabs are taken in order, and in each the allocated segments. Segments that are close to each other are
//! copied together, with what is free between them, so that the mapping stays short; the copy of what is free is
//! given back at once, and counts as obsolete from the beginning.
//!
//! # Invariants
//! 1. The mapping grows at its end only: a segment before the end of the mapping is never copied again.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_removal.c` (`spa_vdev_remove_thread`, `spa_vdev_copy_impl`, `spa_vdev_copy_segment`,
//! `vdev_mapping_sync`).

use std::sync::atomic::Ordering;

use base::{ErrorKind, Result, VdevId, align_up};
use dmu::Tx;
use metaslab::RangeTree;
use phys::DvaPhys;
use phys::feature::OBSOLETE_COUNTS;
use phys::scan::IndirectMappingEntryPhys;
use scan::Kind;
use vdev::Spot;
use zio::{AllocClass, Allocator, Hint};

use super::object::{self, NewEntry};
use super::{Active, Removal};
use crate::scanning::share_since;
use crate::spa::Inner;

/// `vdev_removal_max_span`: bytes between two segments that are copied together, at most.
const SPAN_MAX_BYTES: u64 = 32 << 10;
/// `SCAN_IMPORT_WAIT_TXGS`: txgs after an import, or after the beginning, in which nothing is copied, so that commands
/// are fast.
const IMPORT_WAIT_TXGS: u64 = 5;

/// What came of a slice.
enum Slice {
    Ended,
    AllCopied,
}

impl Inner {
    /// Copies a slice, and ends the removal when there is nothing left. In the first pass.
    pub(super) fn sync_evacuation(&self, tx: &Tx) -> Result<()> {
        if !self.removal.is_active() || self.scanning.is_ending() {
            return Ok(());
        }
        let since = self.removal.active_since().max(self.first_txg.0);
        if tx.txg().0 < since + IMPORT_WAIT_TXGS {
            return Ok(());
        }
        self.groups.kick();
        let mut new = Vec::new();
        let outcome = self.evacuate(&mut new, tx);
        self.append(&new, tx)?;
        let ended_ns = &self.removal.slice_ended_ns;
        ended_ns.store(rt::now_ns(), Ordering::Relaxed);
        match outcome {
            Ok(Slice::Ended) => Ok(()),
            Ok(Slice::AllCopied) => self.finish_removal(tx),
            // It cannot be read, or there is no room for it any more.
            Err(error) if error.kind() != ErrorKind::Suspended => {
                let text = format!("{error}");
                self.core.log_internal("vdev remove failed", &text, tx);
                self.cancel_removal(tx)
            }
            Err(error) => Err(error),
        }
    }

    fn evacuate(&self, new: &mut Vec<NewEntry>, tx: &Tx) -> Result<Slice> {
        let begun_ns = rt::now_ns();
        let share_ns = share_since(&self.removal.slice_ended_ns);
        let mut longest = self.removal_settings.segment_max_bytes;
        loop {
            let found = self.removal.next_segments(longest)?;
            let Some((vdev, mut segments)) = found else {
                return Ok(Slice::AllCopied);
            };
            while !segments.is_empty() {
                match self.copy_some(vdev, &mut segments, longest, tx)? {
                    Some(entry) => new.push(entry),
                    None => longest = self.shorter(vdev, &segments, longest)?,
                }
            }
            let used_ns = rt::now_ns() - begun_ns;
            if self.is_slice_over(Kind::Scrub, share_ns, used_ns, new.len() as u64) {
                return Ok(Slice::Ended);
            }
        }
    }

    /// The next length to try when nothing so long is free: at least a sector, which is always free.
    fn shorter(&self, vdev: VdevId, segments: &RangeTree, longest: u64) -> Result<u64> {
        let ashift = self.tree.top(vdev).map_or(9, |top| top.config().ashift);
        let sector = 1 << ashift;
        let tried = span_of(segments).min(longest);
        if tried <= sector {
            let text = "out of space: nothing is free on the other vdevs";
            return Err(base::Error::new(ErrorKind::NoSpace, text));
        }
        Ok(align_up(tried / 2, sector))
    }

    /// Copies the first of these segments to one place, and takes them out; `None` if no place is so long.
    #[doc(alias = "spa_vdev_copy_segment")]
    fn copy_some(
        &self,
        vdev: VdevId,
        segments: &mut RangeTree,
        longest: u64,
        tx: &Tx,
    ) -> Result<Option<NewEntry>> {
        let (start, size) = first_run(segments, longest);
        let Some(dst) = self.allocate_for(vdev, size, tx)? else {
            return Ok(None);
        };
        let from = Spot {
            vdev,
            offset: start,
        };
        let to = Spot {
            vdev: dst.vdev(),
            offset: dst.offset(),
        };
        if let Err(error) = self.tree.copy(from, to, size, tx.txg()) {
            self.space.unallocate(tx.txg(), &dst);
            return Err(error);
        }
        let mut gaps = RangeTree::from_iter([(start, size)]);
        let copied: Vec<_> = segments
            .iter()
            .take_while(|(at, _)| *at < start + size)
            .collect();
        for (at, length) in copied {
            gaps.clear_range(at, length);
        }
        segments.clear_range(start, size);
        for (at, length) in gaps.iter() {
            let unused = DvaPhys::new(dst.vdev(), dst.offset() + (at - start), length, false);
            self.space.unallocate(tx.txg(), &unused);
        }
        let counts = self.features().count(OBSOLETE_COUNTS).is_some();
        let obsolete = if counts { gaps.space() as u32 } else { 0 };
        Ok(Some(NewEntry {
            entry: IndirectMappingEntryPhys::new(start, dst),
            obsolete,
        }))
    }

    /// A place for what was on this vdev: on one of the same class, or a normal one.
    fn allocate_for(&self, vdev: VdevId, size: u64, tx: &Tx) -> Result<Option<DvaPhys>> {
        let top = self.tree.top(vdev);
        let own = top.map_or(AllocClass::Normal, |top| top.config().class());
        let has_own = self.space.has_others(own, vdev);
        let class = if has_own { own } else { AllocClass::Normal };
        match self
            .space
            .allocate(tx.txg(), class, size, 1, &Hint::default())
        {
            Ok(dvas) => {
                let dva = dvas.as_slice()[0];
                assert_eq!(
                    dva.asize(),
                    size,
                    "all vdevs have the same sectors and no parity"
                );
                Ok(Some(dva))
            }
            Err(error) if error.kind() == ErrorKind::NoSpace => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Appends what was copied in this txg to the mapping.
    #[doc(alias = "vdev_mapping_sync")]
    fn append(&self, new: &[NewEntry], tx: &Tx) -> Result<()> {
        if new.is_empty() {
            return Ok(());
        }
        let mut state = self.removal.state.lock();
        let active = state.active.as_mut().expect("a vdev is being removed");
        let entries: Vec<_> = new.iter().map(|new| new.entry).collect();
        active.mapping.append(&entries)?;
        let birth = active.mapping.note_birth(tx.txg());
        let births = active.mapping.births().len() as u64;
        let sizes = new
            .iter()
            .map(|new| new.entry.size() - u64::from(new.obsolete));
        active.done += sizes.sum::<u64>();
        let (mapping_object, births_object) = (active.mapping_object, active.births_object);
        drop(state);
        object::append(&self.mos, mapping_object, new, tx)?;
        object::append_birth(&self.mos, births_object, births, &birth, tx)
    }
}

/// From the first segment to the end of the last one that ends within `longest` bytes of it; a part of the first if
/// that one is longer.
fn first_run(segments: &RangeTree, longest: u64) -> (u64, u64) {
    let (start, _) = segments.iter().next().expect("there is a segment");
    let ends = segments.iter().map(|(at, size)| at + size);
    let last = ends.take_while(|end| end - start <= longest).last();
    (start, last.map_or(longest, |end| end - start))
}

/// From the start of the first segment to the end of the last one.
fn span_of(segments: &RangeTree) -> u64 {
    let first = segments.iter().next().map_or(0, |(at, _)| at);
    segments
        .iter()
        .last()
        .map_or(0, |(at, size)| at + size - first)
}

impl Removal {
    /// The txg in which the removal was begun, if that was since the pool was opened.
    fn active_since(&self) -> u64 {
        let state = self.state.lock();
        state.active.as_ref().map_or(0, |active| active.since)
    }

    /// Takes the next segments to be copied together; `None` if there are none left.
    #[doc(alias = "spa_vdev_copy_impl")]
    fn next_segments(&self, longest: u64) -> Result<Option<(VdevId, RangeTree)>> {
        loop {
            let (vdev, metaslab) = {
                let mut state = self.state.lock();
                let active = state.active.as_mut().expect("a vdev is being removed");
                if !active.pending.is_empty() {
                    return Ok(Some((active.vdev, active.take_segments(longest))));
                }
                (active.vdev, active.metaslab)
            };
            let Some(mut allocated) = self.space.allocated_segments(vdev, metaslab)? else {
                return Ok(None);
            };
            let mut state = self.state.lock();
            let active = state.active.as_mut().expect("a vdev is being removed");
            allocated.clear_range(0, active.mapping.max_offset());
            active.pending = allocated;
            active.metaslab = metaslab + 1;
        }
    }
}

impl Active {
    fn take_segments(&mut self, longest: u64) -> RangeTree {
        let mut segments = RangeTree::new();
        let mut first = None;
        let mut end = 0;
        loop {
            let next = self.pending.iter().next();
            let Some((at, size)) = next else { break };
            let size = match first {
                None => size.min(longest),
                Some(first) if at - end > SPAN_MAX_BYTES || at + size - first > longest => break,
                Some(_) => size,
            };
            first.get_or_insert(at);
            end = at + size;
            segments.add(at, size);
            self.pending.remove(at, size);
        }
        segments
    }
}
