//! What a table holds, by number of references.

use phys::blkptr::DvaPhys;

use crate::entry::DdtEntry;

/// Words of a `ddt_stat_t`.
const STAT_WORDS: usize = 8;
/// Rows of a `ddt_histogram_t`: by the highest bit of the number of references.
const ROWS: usize = 64;

/// `ddt_stat_t`: blocks and bytes as they are stored, and as they are referred to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DdtStat {
    /// dds_blocks, lsize, psize, dsize
    pub stored: [u64; 4],
    /// dds_ref_blocks, lsize, psize, dsize
    pub referenced: [u64; 4],
}

impl DdtStat {
    /// What one entry counts for; `dsize` returns the bytes that one copy counts for.
    #[doc(alias = "ddt_stat_generate")]
    fn of(entry: &DdtEntry, dsize: &dyn Fn(&DvaPhys) -> u64) -> DdtStat {
        let mut stat = DdtStat::default();
        for phys in entry.phys.iter().filter(|phys| phys.birth.0 != 0) {
            let dsize = phys.dvas().map(dsize).sum();
            let one = [1, entry.key.lsize(), entry.key.psize(), dsize];
            for (n, value) in one.into_iter().enumerate() {
                stat.stored[n] += value;
                stat.referenced[n] =
                    stat.referenced[n].wrapping_add(value.wrapping_mul(phys.refcnt));
            }
        }
        stat
    }

    /// Adds another one.
    #[doc(alias = "ddt_stat_add")]
    pub fn add(&mut self, other: &DdtStat) {
        for n in 0..4 {
            self.stored[n] = self.stored[n].wrapping_add(other.stored[n]);
            self.referenced[n] = self.referenced[n].wrapping_add(other.referenced[n]);
        }
    }

    fn subtract(&mut self, other: &DdtStat) {
        for n in 0..4 {
            self.stored[n] = self.stored[n].saturating_sub(other.stored[n]);
            self.referenced[n] = self.referenced[n].saturating_sub(other.referenced[n]);
        }
    }
}

/// `ddt_histogram_t`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DdtHistogram {
    /// Row n: entries with at least 2^n and fewer than 2^(n+1) references.
    pub rows: [DdtStat; ROWS],
}

impl Default for DdtHistogram {
    fn default() -> DdtHistogram {
        DdtHistogram {
            rows: [DdtStat::default(); ROWS],
        }
    }
}

impl DdtHistogram {
    /// All rows together.
    #[must_use]
    #[doc(alias = "ddt_histogram_total")]
    pub fn total(&self) -> DdtStat {
        let mut total = DdtStat::default();
        self.rows.iter().for_each(|row| total.add(row));
        total
    }

    #[doc(alias = "ddt_histogram_add")]
    pub(crate) fn merge(&mut self, other: &DdtHistogram) {
        let rows = self.rows.iter_mut().zip(&other.rows);
        rows.for_each(|(row, other)| row.add(other));
    }

    #[doc(alias = "ddt_histogram_add_entry")]
    pub(crate) fn add(&mut self, entry: &DdtEntry, dsize: &dyn Fn(&DvaPhys) -> u64) {
        let stat = DdtStat::of(entry, dsize);
        if let Some(row) = self.row_of(&stat) {
            row.add(&stat);
        }
    }

    #[doc(alias = "ddt_histogram_sub_entry")]
    pub(crate) fn subtract(&mut self, entry: &DdtEntry, dsize: &dyn Fn(&DvaPhys) -> u64) {
        let stat = DdtStat::of(entry, dsize);
        if let Some(row) = self.row_of(&stat) {
            row.subtract(&stat);
        }
    }

    fn row_of(&mut self, stat: &DdtStat) -> Option<&mut DdtStat> {
        let bit = stat.referenced[0].checked_ilog2()?;
        self.rows.get_mut(bit as usize)
    }

    pub(crate) fn words(&self) -> Vec<u64> {
        let row = |row: &DdtStat| row.stored.into_iter().chain(row.referenced);
        self.rows.iter().flat_map(row).collect()
    }

    /// Missing rows are empty.
    pub(crate) fn from_words(words: &[u64]) -> DdtHistogram {
        let mut histogram = DdtHistogram::default();
        for (row, words) in histogram
            .rows
            .iter_mut()
            .zip(words.chunks_exact(STAT_WORDS))
        {
            row.stored.copy_from_slice(&words[..4]);
            row.referenced.copy_from_slice(&words[4..]);
        }
        histogram
    }
}
