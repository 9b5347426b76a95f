//! Removed vdevs: where their blocks are now, and whether what no block refers to is recorded.
//!
//! # What it is
//! A block on a removed vdev claims its space where the mapping says. Of each entry of the mapping, the bytes that
//! no block has claimed must be those that the pool records as obsolete. While a vdev is being removed, what was
//! copied is allocated twice: the copies are claimed first.
//!
//! # Source
//! OpenZFS `cmd/zdb/zdb.c` (`zdb_leak_init_prepare_indirect_vdevs`, `zdb_check_for_obsolete_leaks`,
//! `zdb_claim_removing`).

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{ObjectId, Result, VdevId};
use dmu::Objset;
use metaslab::RangeTree;
use phys::pool_names::{VDEV_TOP_ZAP_COUNTS_ARE_PRECISE, VDEV_TOP_ZAP_OBSOLETE_SM};
use vdev::Mapping;

use crate::space::{LENGTH_MAX, for_each_entry, top_zap_object};
use crate::{Finding, TopVdev};

/// The objects of the mapping of a vdev that was removed, or is being removed.
#[derive(Clone, Copy, Debug)]
pub struct MappingObjects {
    /// vic_mapping_object
    pub mapping: ObjectId,
    /// vic_births_object
    pub births: ObjectId,
}

/// A vdev with a mapping.
pub(crate) struct Mapped {
    pub(crate) mapping: Mapping,
    /// What no block has claimed yet.
    left: rt::Mutex<RangeTree>,
    /// The recorded obsolete bytes of each entry, of a removed vdev; `None` if they need not be right.
    obsolete: Option<Vec<u64>>,
}

impl Mapped {
    /// Takes note that a block has a range.
    pub(crate) fn claim(&self, offset: u64, size: u64) {
        self.left.lock().clear_range(offset, size);
    }

    /// Entries whose obsolete bytes are not those that are recorded.
    fn wrong_counts(&self, vdev: VdevId, findings: &mut Vec<Finding>) {
        let Some(obsolete) = &self.obsolete else {
            return;
        };
        let left = self.left.lock();
        for (entry, recorded) in self.mapping.entries().iter().zip(obsolete) {
            let (start, end) = (entry.offset(), entry.offset() + entry.size());
            let ranges = left.iter_from(start).take_while(|(at, _)| *at < end);
            let parts = ranges.map(|(at, size)| (at + size).min(end) - at.max(start));
            let counted: u64 = parts.sum();
            if counted != *recorded {
                findings.push(Finding::ObsoleteCount {
                    vdev,
                    offset: start,
                    recorded: *recorded,
                    counted,
                });
            }
        }
    }
}

/// The vdevs with a mapping.
pub(crate) struct Removed(BTreeMap<VdevId, Mapped>);

impl Removed {
    pub(crate) fn load(
        mos: &Arc<Objset>,
        tops: &[TopVdev],
        findings: &mut Vec<Finding>,
    ) -> Removed {
        let mut removed = BTreeMap::new();
        for top in tops {
            let Some(objects) = top.mapping else { continue };
            match load_one(mos, top, objects) {
                Ok(mapped) => {
                    removed.insert(top.id, mapped);
                }
                Err(error) => findings.push(Finding::NotChecked {
                    what: format!("mapping of vdev {}: {error}", top.id),
                }),
            }
        }
        Removed(removed)
    }

    pub(crate) fn get(&self, vdev: VdevId) -> Option<&Mapped> {
        self.0.get(&vdev)
    }

    pub(crate) fn wrong_counts(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (vdev, mapped) in &self.0 {
            mapped.wrong_counts(*vdev, &mut findings);
        }
        findings
    }
}

fn load_one(mos: &Arc<Objset>, top: &TopVdev, objects: MappingObjects) -> Result<Mapped> {
    let mapping = spa::read_mapping(mos, objects.mapping, objects.births)?;
    let entries = mapping.entries().iter();
    let left = entries
        .map(|entry| (entry.offset(), entry.size()))
        .collect();
    let name = VDEV_TOP_ZAP_COUNTS_ARE_PRECISE;
    let precise = top_zap_object(mos, top, name)?.is_some_and(|flag| flag.0 != 0);
    let obsolete = if precise && !top.is_concrete {
        Some(obsolete_bytes(mos, top, objects.mapping, &mapping)?)
    } else {
        None
    };
    Ok(Mapped {
        left: rt::Mutex::new(left),
        obsolete,
        mapping,
    })
}

/// What is recorded: the count of each entry, and the space map of what became obsolete since.
fn obsolete_bytes(
    mos: &Arc<Objset>,
    top: &TopVdev,
    object: ObjectId,
    mapping: &Mapping,
) -> Result<Vec<u64>> {
    let counts = spa::read_obsolete_counts(mos, object)?;
    let mut counts: Vec<u64> = counts.into_iter().map(u64::from).collect();
    counts.resize(mapping.entries().len(), 0);
    let mut maps = vec![top_zap_object(mos, top, VDEV_TOP_ZAP_OBSOLETE_SM)?];
    maps.push(spa::condensed_obsolete_map(mos, top.id)?);
    for map in maps.into_iter().flatten().filter(|map| map.0 != 0) {
        for_each_entry(mos, map, LENGTH_MAX, &mut |range| {
            for piece in mapping.pieces(range.offset, range.run)? {
                counts[mapping.index_of(range.offset + piece.at)] += piece.size;
            }
            Ok(())
        })?;
    }
    Ok(counts)
}
