//! Where the data of a removed vdev is now.
//!
//! # What it is
//! A [`Mapping`] is what an evacuation left behind: ranges of the removed vdev, each with the place on another
//! vdev that it was copied to, and the txgs in which that happened. What was free is in no range. A block that
//! lies in several of them is *split*: its parts are in different places. The other vdev may have been removed,
//! too, since then.
//!
//! # On disk
//! An object with an array of entries, ordered by the offset on the removed vdev; its bonus says how many there
//! are. Another one has the births: up to which offset everything was copied by which txg.
//!
//! # Invariants
//! 1. Ranges are in order, not empty, and do not overlap.
//! 2. Births are in order of both offset and txg, and the last one is at the end of the last range.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_indirect_mapping.c`, `module/zfs/vdev_indirect_births.c`.

use base::{Error, Result, Txg, VdevId};
use phys::scan::{IndirectBirthEntryPhys, IndirectMappingEntryPhys};

/// The mapping of one vdev.
#[derive(Clone, Debug, Default)]
#[doc(alias = "vdev_indirect_mapping_t")]
pub struct Mapping {
    entries: Vec<IndirectMappingEntryPhys>,
    births: Vec<IndirectBirthEntryPhys>,
    bytes_mapped: u64,
}

/// A part of a range of a removed vdev, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The vdev that it is on.
    pub vdev: VdevId,
    /// Where it is there.
    pub offset: u64,
    /// How long it is, in bytes.
    pub size: u64,
    /// Where it is in the range that was asked for.
    pub at: u64,
    /// When it was written there, if it is known.
    pub birth: Option<Txg>,
}

impl Mapping {
    /// The mapping with these entries and births.
    ///
    /// # Errors
    /// `Corrupt` if they are not in order.
    #[doc(alias = "vdev_indirect_mapping_open")]
    pub fn new(
        entries: &[IndirectMappingEntryPhys],
        births: Vec<IndirectBirthEntryPhys>,
    ) -> Result<Mapping> {
        let mut mapping = Mapping {
            births,
            ..Mapping::default()
        };
        mapping.append(entries)?;
        let is_rising = |pair: &[IndirectBirthEntryPhys]| {
            pair[0].offset.get() <= pair[1].offset.get()
                && pair[0].phys_birth_txg.get() <= pair[1].phys_birth_txg.get()
        };
        if !mapping.births.windows(2).all(is_rising) {
            return Err(Error::corrupt("births of a mapping that are not in order"));
        }
        Ok(mapping)
    }

    /// Adds ranges behind all others.
    ///
    /// # Errors
    /// `Corrupt` if they are not in order.
    #[doc(alias = "vdev_indirect_mapping_add_entries")]
    pub fn append(&mut self, entries: &[IndirectMappingEntryPhys]) -> Result<()> {
        let mut end = self.max_offset();
        for entry in entries {
            let (offset, size) = (entry.offset(), entry.size());
            let next = offset
                .checked_add(size)
                .filter(|_| offset >= end && size > 0);
            end = next.ok_or_else(|| {
                let what = format!("mapping entry {offset:#x}+{size:#x} behind {end:#x}");
                Error::corrupt(what)
            })?;
            self.bytes_mapped += size;
        }
        self.entries.extend_from_slice(entries);
        Ok(())
    }

    /// Records that everything up to the end of the mapping was copied by `txg`.
    #[doc(alias = "vdev_indirect_births_add_entry")]
    pub fn note_birth(&mut self, txg: Txg) -> IndirectBirthEntryPhys {
        let mut birth = IndirectBirthEntryPhys::default();
        birth.offset.set(self.max_offset());
        birth.phys_birth_txg.set(txg.0);
        self.births.push(birth);
        birth
    }

    /// The ranges, in order.
    #[must_use]
    pub fn entries(&self) -> &[IndirectMappingEntryPhys] {
        &self.entries
    }

    /// When parts of it were copied, in order.
    #[must_use]
    pub fn births(&self) -> &[IndirectBirthEntryPhys] {
        &self.births
    }

    /// vimp_max_offset: the end of the last range.
    #[must_use]
    pub fn max_offset(&self) -> u64 {
        let last = self.entries.last();
        last.map_or(0, |entry| entry.offset() + entry.size())
    }

    /// vimp_bytes_mapped: the sum of all ranges.
    #[must_use]
    pub fn bytes_mapped(&self) -> u64 {
        self.bytes_mapped
    }

    /// Bytes of memory that the ranges take.
    #[must_use]
    #[doc(alias = "vdev_indirect_mapping_size")]
    pub fn size_bytes(&self) -> u64 {
        size_of_val(&self.entries[..]) as u64
    }

    /// The index of the entry that has `offset`, or of the next one.
    #[must_use]
    #[doc(alias = "vdev_indirect_mapping_entry_for_offset_or_next")]
    pub fn index_of(&self, offset: u64) -> usize {
        let is_before = |entry: &IndirectMappingEntryPhys| entry.offset() + entry.size() <= offset;
        self.entries.partition_point(is_before)
    }

    /// When what was at `offset` was copied.
    #[doc(alias = "vdev_indirect_births_physbirth")]
    fn birth_of(&self, offset: u64) -> Option<Txg> {
        let at = self
            .births
            .partition_point(|birth| birth.offset.get() <= offset);
        self.births
            .get(at)
            .map(|birth| Txg(birth.phys_birth_txg.get()))
    }

    /// Where a range is now, in order.
    ///
    /// # Errors
    /// `Corrupt` if a part of it is in no entry.
    #[doc(alias = "vdev_indirect_remap")]
    pub fn pieces(&self, offset: u64, size: u64) -> Result<Vec<Piece>> {
        let not_mapped = || Error::corrupt(format!("{offset:#x}+{size:#x} is not mapped"));
        let end = offset.checked_add(size).ok_or_else(not_mapped)?;
        let mut pieces = Vec::new();
        let (mut next, mut index) = (offset, self.index_of(offset));
        while next < end {
            let entry = self.entries.get(index);
            let entry = entry.filter(|entry| entry.offset() <= next);
            let entry = entry.ok_or_else(not_mapped)?;
            let inner = next - entry.offset();
            let length = (entry.size() - inner).min(end - next);
            pieces.push(Piece {
                vdev: entry.dst.vdev(),
                offset: entry.dst.offset() + inner,
                size: length,
                at: next - offset,
                birth: self.birth_of(next),
            });
            next += length;
            index += 1;
        }
        Ok(pieces)
    }
}
