//! The objects of a mapping: entries, counts of obsolete bytes, births.
//!
//! # On disk
//! Entries are an array of [`IndirectMappingEntryPhys`], the bonus of their object is an [`IndirectMappingPhys`],
//! without its last word in pools without `obsolete_counts`. That word names an object with a 32-bit count for each
//! entry. Births are an array of [`IndirectBirthEntryPhys`], with their number in the bonus.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_indirect_mapping.c`, `module/zfs/vdev_indirect_births.c`.

use std::sync::Arc;

use base::{Context, Error, ObjectId, Result, SPA_OLD_MAXBLOCKSIZE};
use dmu::{Dnode, NewObject, Objset, Tx};
use phys::feature::OBSOLETE_COUNTS;
use phys::scan::{
    INDIRECT_MAPPING_V0_BYTES, IndirectBirthEntryPhys, IndirectMappingEntryPhys,
    IndirectMappingPhys,
};
use phys::{ObjectType, Phys};
use vdev::Mapping;
use zerocopy::IntoBytes;

use crate::features::Features;

/// Bytes of an entry.
const ENTRY_BYTES: u64 = size_of::<IndirectMappingEntryPhys>() as u64;
/// Bytes of the birth of a part of a mapping.
const BIRTH_BYTES: u64 = size_of::<IndirectBirthEntryPhys>() as u64;
/// Bytes of a count.
const COUNT_BYTES: u64 = 4;

/// A new entry of a mapping, and how many of its bytes no block has referred to since it was made.
#[derive(Clone, Copy)]
pub(super) struct NewEntry {
    pub(super) entry: IndirectMappingEntryPhys,
    pub(super) obsolete: u32,
}

/// Creates the object of a mapping.
#[doc(alias = "vdev_indirect_mapping_alloc")]
pub(super) fn create(mos: &Arc<Objset>, features: &Features, tx: &Tx) -> Result<ObjectId> {
    let counts = features.count(OBSOLETE_COUNTS).is_some();
    let bonus_bytes = if counts {
        IndirectMappingPhys::SIZE
    } else {
        INDIRECT_MAPPING_V0_BYTES
    };
    let type_ = ObjectType::N_UINT64_METADATA;
    let new = NewObject::new(type_)
        .blksz(SPA_OLD_MAXBLOCKSIZE)
        .bonus(type_, bonus_bytes);
    let object = mos.object_alloc(tx, &new)?;
    let mut phys = IndirectMappingPhys::default();
    if counts {
        let type_ = ObjectType::N_UINT32_METADATA;
        let new = NewObject::new(type_).blksz(SPA_OLD_MAXBLOCKSIZE);
        phys.counts_object.set(mos.object_alloc(tx, &new)?.id().0);
        features.adjust(OBSOLETE_COUNTS, 1, tx)?;
    }
    object.set_bonus(tx, &phys.as_bytes()[..bonus_bytes])?;
    Ok(object.id())
}

/// Creates the object of births.
#[doc(alias = "vdev_indirect_births_alloc")]
pub(super) fn create_births(mos: &Arc<Objset>, tx: &Tx) -> Result<ObjectId> {
    let type_ = ObjectType::N_UINT64_METADATA;
    let new = NewObject::new(type_)
        .blksz(SPA_OLD_MAXBLOCKSIZE)
        .bonus(type_, size_of::<u64>());
    let object = mos.object_alloc(tx, &new)?;
    object.set_bonus(tx, &0u64.to_le_bytes())?;
    Ok(object.id())
}

/// Frees the object of a mapping, with its counts.
#[doc(alias = "vdev_indirect_mapping_free")]
pub(super) fn free(
    mos: &Arc<Objset>,
    features: &Features,
    object: ObjectId,
    tx: &Tx,
) -> Result<()> {
    let (_, phys) = header(mos, object)?;
    if let Some(counts) = counts_object(&phys) {
        mos.object_free(tx, counts)?;
        features.adjust(OBSOLETE_COUNTS, -1, tx)?;
    }
    mos.object_free(tx, object)
}

fn header(mos: &Arc<Objset>, object: ObjectId) -> Result<(Arc<Dnode>, IndirectMappingPhys)> {
    let dnode = mos.hold(object)?;
    let bonus = dnode.bonus();
    let mut phys = IndirectMappingPhys::default();
    let length = bonus.len().min(IndirectMappingPhys::SIZE);
    if length < INDIRECT_MAPPING_V0_BYTES {
        let what = format!("mapping {object}: bonus of {length} bytes");
        return Err(Error::corrupt(what));
    }
    phys.as_mut_bytes()[..length].copy_from_slice(&bonus[..length]);
    Ok((dnode, phys))
}

fn counts_object(phys: &IndirectMappingPhys) -> Option<ObjectId> {
    Some(ObjectId(phys.counts_object.get())).filter(|object| object.0 != 0)
}

/// Reads an array of `count` elements of `size` bytes, of an object that has as many.
fn read_array(dnode: &Dnode, count: u64, size: u64) -> Result<Vec<u8>> {
    let bytes = count.checked_mul(size);
    let stored = (dnode.maxblkid().0 + 1).saturating_mul(dnode.blksz());
    let bytes = bytes
        .filter(|bytes| *bytes <= stored)
        .ok_or_else(|| Error::corrupt(format!("object {} has no {count} entries", dnode.id())))?;
    if bytes > 0 {
        dnode.check_dense(0, bytes)?;
    }
    let mut all = vec![0; bytes as usize];
    dnode.read(0, &mut all)?;
    Ok(all)
}

fn parse<T: Phys>(bytes: &[u8]) -> Result<Vec<T>> {
    bytes.chunks_exact(T::SIZE).map(T::read).collect()
}

/// Reads a mapping with its births.
///
/// # Errors
/// Errors of reading the MOS; `Corrupt`.
pub fn read_mapping(mos: &Arc<Objset>, object: ObjectId, births: ObjectId) -> Result<Mapping> {
    let entries = entries(mos, object)?;
    let dnode = mos.hold(births)?;
    let count = dnode.bonus().first_chunk::<8>().copied();
    let count = count.ok_or_else(|| Error::corrupt(format!("births {births}: bonus")))?;
    let bytes = read_array(&dnode, u64::from_le_bytes(count), BIRTH_BYTES)?;
    Mapping::new(&entries, parse(&bytes)?).within(|| format!("mapping {object}"))
}

/// Reads the entries of a mapping.
pub(super) fn entries(
    mos: &Arc<Objset>,
    object: ObjectId,
) -> Result<Vec<IndirectMappingEntryPhys>> {
    let (dnode, phys) = header(mos, object)?;
    parse(&read_array(&dnode, phys.num_entries.get(), ENTRY_BYTES)?)
}

/// The obsolete bytes of each entry as of when it was written; zeros in a mapping without counts.
///
/// # Errors
/// Errors of reading the MOS; `Corrupt`.
#[doc(alias = "vdev_indirect_mapping_load_obsolete_counts")]
pub fn read_obsolete_counts(mos: &Arc<Objset>, object: ObjectId) -> Result<Vec<u32>> {
    let (_, phys) = header(mos, object)?;
    let count = phys.num_entries.get();
    let Some(object) = counts_object(&phys) else {
        return Ok(vec![0; count as usize]);
    };
    let bytes = read_array(&*mos.hold(object)?, count, COUNT_BYTES)?;
    let (words, _) = bytes.as_chunks::<4>();
    Ok(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
}

/// Appends entries to the object.
#[doc(alias = "vdev_indirect_mapping_add_entries")]
pub(super) fn append(mos: &Arc<Objset>, object: ObjectId, new: &[NewEntry], tx: &Tx) -> Result<()> {
    let Some(last) = new.last() else {
        return Ok(());
    };
    let (dnode, mut phys) = header(mos, object)?;
    let first = phys.num_entries.get();
    let entries: Vec<u8> = new
        .iter()
        .flat_map(|new| new.entry.as_bytes().to_vec())
        .collect();
    dnode.write(tx, first * ENTRY_BYTES, &entries)?;
    if let Some(counts) = counts_object(&phys) {
        let counted = new.iter().flat_map(|new| new.obsolete.to_le_bytes());
        let counted: Vec<u8> = counted.collect();
        mos.hold(counts)?.write(tx, first * COUNT_BYTES, &counted)?;
    }
    let bytes: u64 = new.iter().map(|new| new.entry.size()).sum();
    phys.num_entries.set(first + new.len() as u64);
    phys.bytes_mapped.set(phys.bytes_mapped.get() + bytes);
    phys.max_offset.set(last.entry.offset() + last.entry.size());
    let length = dnode.bonus().len().min(IndirectMappingPhys::SIZE);
    dnode.set_bonus(tx, &phys.as_bytes()[..length])
}

/// Appends a birth.
#[doc(alias = "vdev_indirect_births_add_entry")]
pub(super) fn append_birth(
    mos: &Arc<Objset>,
    object: ObjectId,
    count: u64,
    birth: &IndirectBirthEntryPhys,
    tx: &Tx,
) -> Result<()> {
    let dnode = mos.hold(object)?;
    dnode.write(tx, (count - 1) * BIRTH_BYTES, birth.as_bytes())?;
    dnode.set_bonus(tx, &count.to_le_bytes())
}
