//! What dedup would save: data blocks by checksum, without a table on disk.
//!
//! # What it is
//! `zdb -S` computes for every data block (level 0, not metadata, not embedded, with a checksum)
//! the key that it would have in a dedup table, and counts the references to each key. The
//! histogram is by log2 of that count, rounded down. Takes about 150 bytes of memory per unique
//! block.
//!
//! # Source
//! OpenZFS `cmd/zdb/zdb.c` (`zdb_ddt_add_cb`, `dump_simulated_ddt`), `include/sys/ddt.h` (`ddt_key_t`).

use std::collections::BTreeMap;

use phys::{BlkPtrPhys, ChecksumType};

/// `ddt_key_t`: two blocks with the same key are duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    cksum: [u64; 4],
    lsize: u64,
    psize: u64,
    compress: u8,
    crypt: bool,
}

/// Blocks and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DedupSums {
    /// How many.
    pub blocks: u64,
    /// Bytes before compression.
    pub lsize: u64,
    /// Bytes after compression.
    pub psize: u64,
    /// Bytes as charged to datasets.
    pub dsize: u64,
}

impl DedupSums {
    fn add(&mut self, other: &DedupSums) {
        self.blocks += other.blocks;
        self.lsize += other.lsize;
        self.psize += other.psize;
        self.dsize += other.dsize;
    }

    /// One of `count` equal ones.
    fn share(&self, count: u64) -> DedupSums {
        DedupSums {
            blocks: self.blocks / count,
            lsize: self.lsize / count,
            psize: self.psize / count,
            dsize: self.dsize / count,
        }
    }
}

/// One row of the histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "ddt_stat_t")]
pub struct DedupRow {
    /// What a deduplicated pool would allocate.
    pub allocated: DedupSums,
    /// What is referenced.
    pub referenced: DedupSums,
}

impl DedupRow {
    fn add(&mut self, other: &DedupRow) {
        self.allocated.add(&other.allocated);
        self.referenced.add(&other.referenced);
    }
}

/// Every unique block, with the sums over all references to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DedupTable(BTreeMap<Key, DedupSums>);

impl DedupTable {
    /// Counts a pointer, if its block would be in a dedup table.
    #[doc(alias = "zdb_ddt_add_cb")]
    pub(crate) fn count(&mut self, bp: &BlkPtrPhys, dsize: u64) {
        let has_checksum = bp.checksum() != ChecksumType::Off as u8;
        if bp.is_embedded() || bp.is_metadata() || !has_checksum {
            return;
        }
        let key = Key {
            cksum: bp.cksum_words(),
            lsize: bp.lsize(),
            psize: bp.psize(),
            compress: bp.compress(),
            crypt: bp.uses_crypt(),
        };
        self.0.entry(key).or_default().add(&DedupSums {
            blocks: 1,
            lsize: bp.lsize(),
            psize: bp.psize(),
            dsize,
        });
    }

    pub(crate) fn add(&mut self, other: DedupTable) {
        if self.0.is_empty() {
            *self = other;
            return;
        }
        for (key, sums) in other.0 {
            self.0.entry(key).or_default().add(&sums);
        }
    }

    /// Rows by log2 of the references to a block; empty rows are omitted.
    #[must_use]
    #[doc(alias = "ddt_histogram_t")]
    pub fn histogram(&self) -> BTreeMap<u32, DedupRow> {
        let mut rows: BTreeMap<u32, DedupRow> = BTreeMap::new();
        for sums in self.0.values() {
            rows.entry(sums.blocks.ilog2()).or_default().add(&DedupRow {
                allocated: sums.share(sums.blocks),
                referenced: *sums,
            });
        }
        rows
    }

    /// All rows together.
    #[must_use]
    pub fn total(&self) -> DedupRow {
        let mut total = DedupRow::default();
        self.histogram().values().for_each(|row| total.add(row));
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(word: u64, checksum: ChecksumType) -> BlkPtrPhys {
        let mut bp = BlkPtrPhys::default();
        bp.set_type(phys::ObjectType::PLAIN_FILE_CONTENTS.raw());
        bp.set_lsize(4096);
        bp.set_psize(1024);
        bp.set_checksum(checksum as u8);
        bp.set_cksum([word; 4]);
        bp
    }

    #[test]
    fn blocks_are_counted_by_how_often_they_are_referred_to() {
        let (mut one, mut other) = (DedupTable::default(), DedupTable::default());
        for word in [1, 1, 1, 2] {
            one.count(&block(word, ChecksumType::Sha256), 1024);
        }
        for word in [1, 2, 3] {
            other.count(&block(word, ChecksumType::Sha256), 1024);
        }
        other.count(&block(1, ChecksumType::Off), 1024);
        one.add(other);
        let rows = one.histogram();
        let counts: Vec<_> = rows
            .iter()
            .map(|(shift, row)| (*shift, row.allocated.blocks, row.referenced.blocks))
            .collect();
        assert_eq!(counts, [(0, 1, 1), (1, 1, 2), (2, 1, 4)]);
        assert_eq!(one.total().referenced.lsize, 7 * 4096);
        assert_eq!(one.total().allocated.dsize, 3 * 1024);
    }
}
