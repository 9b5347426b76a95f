//! Metaslab classes: which vdevs serve a kind of data, and which one is next.
//!
//! # What it is
//! Writing goes round the vdevs of a class. Each gets a stride (*aliquot*) of a few mebibytes
//! before it is the next one's turn, so that a sequential write is also sequential on each disk,
//! and yet all disks work. Larger and emptier vdevs get longer strides, so that all of a class
//! fill up at the same time.
//!
//! # Source
//! OpenZFS module/zfs/metaslab.c `metaslab_class_balance`, `metaslab_class_rotate` @be7657e3.

use std::sync::Arc;

use base::Txg;

use crate::group::{Group, SpaceStats};
use crate::space_map::SpaceMapStore;

/// `metaslab_aliquot`: bytes per data disk before the next vdev's turn.
const ALIQUOT: u64 = 2 << 20;

/// `metaslab_class_t`
#[derive(Default)]
pub(crate) struct Class {
    /// By vdev number.
    pub(crate) groups: Vec<Arc<Group>>,
    /// mc_is_log, of an embedded one: of each vdev only the metaslab that is set aside for log blocks.
    pub(crate) is_embedded_log: bool,
    rotor: rt::Mutex<Rotor>,
}

#[derive(Default)]
struct Rotor {
    /// index into the groups
    at: usize,
    /// mca_aliquot: bytes that the group whose turn it is has had
    used: u64,
    /// mg_aliquot of each group
    strides: Vec<u64>,
}

impl Class {
    /// Index of the group whose turn it is.
    pub(crate) fn rotor(&self) -> usize {
        self.rotor.lock().at
    }

    /// Index of the vdev's group.
    pub(crate) fn position(&self, vdev: base::VdevId) -> Option<usize> {
        self.groups.iter().position(|g| g.geometry.id == vdev)
    }

    /// Notes that group `at` was asked for `psize` bytes, and whether it had them.
    #[doc(alias = "metaslab_class_rotate")]
    pub(crate) fn rotate(&self, at: usize, psize: u64, success: bool) {
        let mut rotor = self.rotor.lock();
        if self.groups.len() < 2 || rotor.at != at {
            return;
        }
        rotor.used += psize;
        let stride = rotor.strides.get(at).copied().unwrap_or(ALIQUOT);
        if !success || rotor.used + psize / 2 >= stride {
            rotor.at = (at + 1) % self.groups.len();
            rotor.used = 0;
        }
    }

    /// Recomputes the strides.
    #[doc(alias = "metaslab_class_balance")]
    pub(crate) fn balance(&self) {
        let stats: Vec<SpaceStats> = self.groups.iter().map(|g| self.usage_of(g)).collect();
        let whole = total(stats.iter().copied());
        let disks: u64 = self.groups.iter().map(|g| g.geometry.data_disks).sum();
        let average = ALIQUOT * disks.max(1) / (self.groups.len() as u64).max(1);
        let mut rotor = self.rotor.lock();
        rotor.strides = stats
            .iter()
            .map(|one| stride(average, one, &whole, self.groups.len() as u64))
            .collect();
        rotor.at %= self.groups.len().max(1);
    }

    /// Without the fragmentation.
    pub(crate) fn usage(&self) -> SpaceStats {
        total(self.groups.iter().map(|group| self.usage_of(group)))
    }

    pub(crate) fn stats(&self) -> SpaceStats {
        let of = |group: &Arc<Group>| SpaceStats {
            fragmentation: group.stats().fragmentation,
            ..self.usage_of(group)
        };
        total(self.groups.iter().map(of))
    }

    fn usage_of(&self, group: &Group) -> SpaceStats {
        match self.is_embedded_log {
            true => group.log_usage(),
            false => group.usage(),
        }
    }

    /// Allocates a segment for a block with copies at `taken` on the same vdev.
    pub(crate) fn allocate(
        &self,
        group: &Group,
        txg: Txg,
        asize: u64,
        taken: &[u64],
        store: &dyn SpaceMapStore,
    ) -> Option<u64> {
        match self.is_embedded_log {
            true => group.allocate_log(txg, asize, store),
            false => group.allocate(txg, asize, taken, store),
        }
    }
}

/// `average`, scaled by how large and how empty `one` of `count` vdevs is, relative to them all:
/// which comes down to its share of the free space.
fn stride(average: u64, one: &SpaceStats, whole: &SpaceStats, count: u64) -> u64 {
    let free = |s: &SpaceStats| u128::from(s.space.saturating_sub(s.alloc));
    if free(whole) == 0 {
        return average;
    }
    let scaled = u128::from(average) * free(one) * u128::from(count) / free(whole);
    scaled as u64
}

/// `metaslab_class_fragmentation` weighs vdevs by their space.
pub(crate) fn total(all: impl Iterator<Item = SpaceStats>) -> SpaceStats {
    let mut sum = SpaceStats::default();
    let (mut weighted, mut known) = (0u128, true);
    for one in all {
        sum.alloc += one.alloc;
        sum.deferred += one.deferred;
        sum.space += one.space;
        sum.dalloc += one.dalloc;
        sum.ddeferred += one.ddeferred;
        sum.dspace += one.dspace;
        known &= one.fragmentation.is_some();
        weighted += u128::from(one.fragmentation.unwrap_or(0)) * u128::from(one.space);
    }
    if known && sum.space > 0 {
        sum.fragmentation = Some((weighted / u128::from(sum.space)) as u64);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(space: u64, alloc: u64) -> SpaceStats {
        SpaceStats {
            space,
            alloc,
            ..SpaceStats::default()
        }
    }

    #[test]
    fn equal_vdevs_get_equal_strides() {
        let whole = total([stats(1 << 30, 1 << 20); 2].into_iter());
        assert_eq!(
            stride(ALIQUOT, &stats(1 << 30, 1 << 20), &whole, 2),
            ALIQUOT
        );
    }

    #[test]
    fn the_emptier_vdev_gets_the_longer_stride() {
        let (full, empty) = (stats(1 << 30, 3 << 28), stats(1 << 30, 1 << 28));
        let whole = total([full, empty].into_iter());
        assert_eq!(stride(ALIQUOT, &full, &whole, 2), ALIQUOT / 2);
        assert_eq!(stride(ALIQUOT, &empty, &whole, 2), ALIQUOT * 3 / 2);
    }
}
