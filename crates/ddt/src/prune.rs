//! Pruning: entries with one reference that are old are forgotten; their pointers own their blocks from then on.
//!
//! # What it is
//! Such an entry only costs: it is read whenever a block is looked for, and nobody has had the same block for a long
//! time. Candidates are collected while the pool is used ([`UniqueZaps::walk`]), and pruned in syncing context
//! ([`Ddts::prune`]) if nothing has happened to them since. A pointer whose entry is gone is freed like one that was
//! never deduplicated.
//!
//! # Source
//! OpenZFS `module/zfs/ddt.c` (`ddt_prune_walk`, `prune_candidates_sync`, `ddt_prune_unique_entries`).

use std::sync::Arc;

use base::{ObjectId, Result};
use dmu::Objset;
use phys::ChecksumType;
use zap::Key;

use crate::entry::{DdtEntry, DdtKey};
use crate::table::{DdtClass, Ddts};

/// `HIST_BINS`: bin N counts entries of at least 2^(N-1) hours, bin 0 those of less than one.
const BINS: usize = 16;
const HOUR: u64 = 3600;

/// What is to be pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "zpool_ddt_prune_unit_t")]
pub enum Prune {
    /// Entries that have not changed for so many seconds.
    Age(u64),
    /// The oldest ones, so many percent of all with one reference.
    Percent(u64),
}

/// An entry that may be pruned.
pub type Candidate = (ChecksumType, DdtEntry);

/// The ZAPs of entries with one reference, as they were at some time.
pub struct UniqueZaps {
    mos: Arc<Objset>,
    zaps: Vec<(ChecksumType, ObjectId)>,
}

impl UniqueZaps {
    /// Every flat entry.
    ///
    /// # Errors
    /// What reading the MOS gives, and `each`.
    #[doc(alias = "ddt_walk_impl")]
    pub fn walk(&self, each: &mut dyn FnMut(ChecksumType, DdtEntry) -> Result<()>) -> Result<()> {
        for (checksum, object) in &self.zaps {
            for found in zap::iter(&self.mos, *object)? {
                let found = found?;
                let words = found.words();
                let key = DdtKey::from_words(&words)?;
                let value = zap::lookup::<u8>(&self.mos, *object, Key::Words(&words))?;
                // It may have gone meanwhile.
                if let Some(value) = value {
                    each(*checksum, DdtEntry::parse(key, &value, true)?)?;
                }
            }
        }
        Ok(())
    }

    /// The time before which entries must have changed last to be pruned; `now`: seconds since 1970.
    ///
    /// # Errors
    /// What reading the MOS gives.
    pub fn cutoff(&self, prune: Prune, now: u64) -> Result<u64> {
        let percent = match prune {
            Prune::Age(secs) => return Ok(now.saturating_sub(secs)),
            Prune::Percent(percent) => percent,
        };
        let mut bins = [0u64; BINS];
        self.walk(&mut |_, entry| {
            let start = entry.class_start.unwrap_or(now);
            let hours = now.saturating_sub(start) / HOUR;
            let bin = hours.checked_ilog2().map_or(0, |bit| bit as usize + 1);
            bins[bin.min(BINS - 1)] += 1;
            Ok(())
        })?;
        Ok(now - youngest(&bins, percent))
    }
}

/// The age, in seconds, from which on so many percent of all are, rounded to a bin.
fn youngest(bins: &[u64; BINS], percent: u64) -> u64 {
    let all: u64 = bins.iter().sum();
    let mut left = u128::from(all) * u128::from(percent) / 100;
    for (bin, count) in bins.iter().enumerate().rev() {
        if *count == 0 || left == 0 {
            continue;
        }
        if left <= u128::from(*count) {
            return bin.checked_sub(1).map_or(0, |bit| (1 << bit) * HOUR);
        }
        left -= u128::from(*count);
    }
    0
}

impl Ddts {
    /// The ZAPs whose entries may be pruned.
    #[must_use]
    pub fn unique_zaps(&self) -> UniqueZaps {
        let fast = self.tables().filter(|table| table.flags() != 0);
        let zaps = fast.flat_map(|table| {
            let unique = table
                .parts()
                .filter(|(class, ..)| *class == DdtClass::Unique);
            unique.map(move |(_, _, object, _)| (table.checksum, object))
        });
        UniqueZaps {
            zaps: zaps.collect(),
            mos: Arc::clone(self.mos()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_bins_are_pruned() {
        let mut bins = [0; BINS];
        (bins[0], bins[3], bins[5]) = (50, 40, 10);
        assert_eq!(youngest(&bins, 5), 16 * HOUR);
        assert_eq!(youngest(&bins, 10), 16 * HOUR);
        assert_eq!(youngest(&bins, 11), 4 * HOUR);
        assert_eq!(youngest(&bins, 50), 4 * HOUR);
        assert_eq!(youngest(&bins, 51), 0);
        assert_eq!(youngest(&[0; BINS], 100), 0);
    }
}
