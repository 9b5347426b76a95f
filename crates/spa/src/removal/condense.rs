//! Writing a mapping anew without the entries that no block refers to.
//!
//! # What it is
//! When a quarter of a mapping is obsolete, and it is not small, or the space map of its obsolete ranges is large, a
//! new mapping is written, some entries in each txg; it takes the place of the old one when it is complete. What
//! becomes obsolete meanwhile is in a new space map. A mapping that OpenZFS had begun is continued.
//!
//! # On disk
//! Entry `com.delphix:condensing_indirect` of the pool directory ([`CondensingPhys`]), while it goes on.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_indirect.c` (`vdev_indirect_should_condense`, `spa_condense_indirect_start_sync`,
//! `spa_condense_indirect_generate_new_mapping`, `spa_condense_indirect_complete_sync`).

use std::sync::Arc;

use base::{Error, ObjectId, Result, VdevId};
use dmu::{Objset, Tx};
use metaslab::{SpaceMapExtent, SpaceMapStore, for_each_entry};
use phys::feature::OBSOLETE_COUNTS;
use phys::pool_names::{CONDENSING_INDIRECT, VDEV_TOP_ZAP_OBSOLETE_SM};
use phys::scan::CondensingPhys;
use vdev::{Mapping, Vdev, VdevKind};
use zap::directory;
use zerocopy::IntoBytes;

use super::object::{self, NewEntry};
use crate::spa::Inner;

/// `zfs_condense_indirect_obsolete_pct`: percent of a mapping that are obsolete before it is condensed.
const OBSOLETE_PERCENT: u64 = 25;
/// `zfs_condense_max_obsolete_bytes`: a longer space map of obsolete ranges is a reason, too.
const OBSOLETE_MAP_MAX_BYTES: u64 = 1 << 30;
/// Entries looked at in one txg.
const ENTRIES_MAX: usize = 1 << 18;

/// A mapping that is being written anew.
#[derive(Clone, Copy)]
#[doc(alias = "spa_condensing_indirect_t")]
pub(super) struct Condensing {
    vdev: VdevId,
    obsolete_map: ObjectId,
    next_mapping: ObjectId,
    /// The index of the entry that is looked at next; 0: by what is written.
    next: usize,
}

impl Condensing {
    #[doc(alias = "spa_condense_init")]
    pub(super) fn load(mos: &Arc<Objset>) -> Result<Option<Condensing>> {
        let words = zap::lookup::<u64>(mos, directory::OBJECT, CONDENSING_INDIRECT)?;
        let Some([vdev, obsolete_map, next_mapping]) = words.as_deref() else {
            return Ok(None);
        };
        Ok(Some(Condensing {
            vdev: VdevId(*vdev),
            obsolete_map: ObjectId(*obsolete_map),
            next_mapping: ObjectId(*next_mapping),
            next: 0,
        }))
    }

    fn words(self) -> [u64; 3] {
        let mut phys = CondensingPhys::default();
        phys.vdev.set(self.vdev.0);
        phys.obsolete_map.set(self.obsolete_map.0);
        phys.next_mapping.set(self.next_mapping.0);
        let (words, _) = phys.as_bytes().as_chunks::<8>();
        std::array::from_fn(|n| u64::from_le_bytes(words[n]))
    }
}

/// The space map of obsolete ranges that a new mapping of this vdev, which is being written, leaves out.
///
/// # Errors
/// Errors of reading the MOS.
pub fn condensed_obsolete_map(mos: &Arc<Objset>, vdev: VdevId) -> Result<Option<ObjectId>> {
    let condensing = Condensing::load(mos)?;
    let ours = condensing.filter(|condensing| condensing.vdev == vdev);
    Ok(ours.map(|condensing| condensing.obsolete_map))
}

impl Inner {
    /// Condenses a little more, or begins to. In the first pass.
    pub(super) fn sync_condense(&self, tx: &Tx) -> Result<()> {
        let condensing = self.removal.state.lock().condensing;
        if let Some(condensing) = condensing {
            return self.condense_more(condensing, tx);
        }
        if self.scanning.is_ending() || self.features().count(OBSOLETE_COUNTS).is_none() {
            return Ok(());
        }
        for (id, top) in (0..).map(VdevId).zip(self.tree.tops()) {
            if top.kind() == VdevKind::Indirect && self.should_condense(id, &top)? {
                return self.begin_condense(id, &top, tx);
            }
        }
        Ok(())
    }

    #[doc(alias = "vdev_indirect_should_condense")]
    fn should_condense(&self, id: VdevId, top: &Vdev) -> Result<bool> {
        let Some(mapping) = top.mapping() else {
            return Ok(false);
        };
        let least_bytes = self.removal_settings.condense_min_mapping_bytes;
        let is_small = mapping.size_bytes() <= least_bytes;
        let Some(object) = self.obsolete_map(id)? else {
            return Ok(false);
        };
        let (_, phys) = self.maps.open(object)?;
        let obsolete = phys.alloc.get().max(0) as u64;
        let percent = obsolete.saturating_mul(100) / mapping.bytes_mapped().max(1);
        let is_worth_it = percent >= OBSOLETE_PERCENT && !is_small;
        Ok(is_worth_it || phys.length.get() >= OBSOLETE_MAP_MAX_BYTES)
    }

    #[doc(alias = "spa_condense_indirect_start_sync")]
    fn begin_condense(&self, id: VdevId, top: &Vdev, tx: &Tx) -> Result<()> {
        let map = self.obsolete_map(id)?.expect("it is why it begins");
        let zap = ObjectId(top.config().top_zap);
        zap::remove(&self.mos, tx, zap, VDEV_TOP_ZAP_OBSOLETE_SM)?;
        let condensing = Condensing {
            vdev: id,
            obsolete_map: map,
            next_mapping: object::create(&self.mos, &self.features(), tx)?,
            next: 0,
        };
        let words = condensing.words();
        zap::update(
            &self.mos,
            tx,
            directory::OBJECT,
            CONDENSING_INDIRECT,
            &words[..],
        )?;
        self.removal.state.lock().condensing = Some(condensing);
        self.groups.kick();
        Ok(())
    }

    #[doc(alias = "spa_condense_indirect_generate_new_mapping")]
    fn condense_more(&self, condensing: Condensing, tx: &Tx) -> Result<()> {
        let top = self.tree.top(condensing.vdev);
        let top = top.filter(|top| top.kind() == VdevKind::Indirect);
        let old = top.as_ref().and_then(|top| top.mapping());
        let (Some(top), Some(old)) = (top, old) else {
            let what = format!("the mapping of vdev {} is condensed", condensing.vdev);
            return Err(Error::corrupt(what));
        };
        let counts = self.obsolete_counts(condensing, &top, &old)?;
        let written = object::entries(&self.mos, condensing.next_mapping)?;
        let end = written
            .last()
            .map_or(0, |entry| entry.offset() + entry.size());
        let first = old.index_of(end).max(condensing.next);
        let last = (first + ENTRIES_MAX).min(old.entries().len());
        let range = first..last;
        let entries = old.entries()[range.clone()].iter().zip(&counts[range]);
        let is_used = |(entry, obsolete): &(&phys::scan::IndirectMappingEntryPhys, &u64)| {
            **obsolete < entry.size()
        };
        let new = entries.filter(is_used).map(|(entry, obsolete)| NewEntry {
            entry: *entry,
            obsolete: *obsolete as u32,
        });
        object::append(
            &self.mos,
            condensing.next_mapping,
            &new.collect::<Vec<_>>(),
            tx,
        )?;
        self.groups.kick();
        if last < old.entries().len() {
            let mut state = self.removal.state.lock();
            state.condensing = Some(Condensing {
                next: last,
                ..condensing
            });
            return Ok(());
        }
        self.end_condense(condensing, &top, &old, tx)
    }

    /// The obsolete bytes of each entry, by its count and the space map.
    #[doc(alias = "vdev_indirect_mapping_load_obsolete_spacemap")]
    fn obsolete_counts(
        &self,
        condensing: Condensing,
        top: &Vdev,
        mapping: &Mapping,
    ) -> Result<Vec<u64>> {
        let object = ObjectId(top.config().indirect_object);
        let counts = object::read_obsolete_counts(&self.mos, object)?;
        let mut counts: Vec<u64> = counts.into_iter().map(u64::from).collect();
        if counts.len() != mapping.entries().len() {
            let (has, needs) = (counts.len(), mapping.entries().len());
            let what = format!("{has} counts of {needs} entries of a mapping");
            return Err(Error::corrupt(what));
        }
        let extent = SpaceMapExtent {
            start: 0,
            size: top.config().asize,
            shift: 0,
        };
        let (found, phys) = self.maps.open(condensing.obsolete_map)?;
        let length = phys.length.get();
        for_each_entry(
            &*self.maps,
            &found,
            length,
            &extent,
            &mut |_, offset, size| {
                for piece in mapping.pieces(offset, size)? {
                    let at = mapping.index_of(offset + piece.at);
                    counts[at] += piece.size;
                }
                Ok(())
            },
        )?;
        Ok(counts)
    }

    #[doc(alias = "spa_condense_indirect_complete_sync")]
    fn end_condense(
        &self,
        condensing: Condensing,
        top: &Vdev,
        old: &Mapping,
        tx: &Tx,
    ) -> Result<()> {
        let entries = object::entries(&self.mos, condensing.next_mapping)?;
        let mapping = Mapping::new(&entries, old.births().to_vec())?;
        let old_object = ObjectId(top.config().indirect_object);
        let features = self.features();
        object::free(&self.mos, &features, old_object, tx)?;
        self.maps.free(condensing.obsolete_map, tx)?;
        features.adjust(OBSOLETE_COUNTS, -1, tx)?;
        zap::remove(&self.mos, tx, directory::OBJECT, CONDENSING_INDIRECT)?;
        top.update(|config| config.indirect_object = condensing.next_mapping.0);
        top.set_mapping(Arc::new(mapping));
        self.removal.state.lock().condensing = None;
        self.tree_changed();
        Ok(())
    }
}
