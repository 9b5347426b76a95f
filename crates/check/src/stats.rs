//! Counting blocks, as `zdb -b` does.

use std::collections::BTreeMap;

use base::{SPA_MINBLOCKSHIFT, SPA_OLD_MAXBLOCKSIZE, highbit};
use phys::{BlkPtrPhys, ObjectType};

/// What a block belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockKind {
    /// A classic object type (`DMU_OT_*`), raw.
    Type(u8),
    /// Freed, but not yet returned to the allocator.
    DeferredFree,
    /// A "new" object type (`DMU_OTN_*`).
    Other,
}

impl BlockKind {
    /// The kind of a block that is in use.
    #[must_use]
    pub fn of(bp: &BlkPtrPhys) -> Self {
        let raw = bp.object_type();
        if raw & ObjectType::NEWTYPE != 0 {
            BlockKind::Other
        } else {
            BlockKind::Type(raw)
        }
    }
}

/// `PSIZE_HISTO_SIZE`: bins by psize in sectors of 512 bytes; the last one counts all blocks larger
/// than 128 KiB.
const SECTOR_BINS: usize = (SPA_OLD_MAXBLOCKSIZE >> SPA_MINBLOCKSHIFT) as usize + 2;
/// Bins by payload bytes: 0 to 112, the most that an embedded block can have.
const PAYLOAD_BINS: usize = 113;

/// Counts indexed by a number; the last of the `N` bins counts all larger numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Counts<const N: usize>(pub [u64; N]);

impl<const N: usize> Default for Counts<N> {
    fn default() -> Self {
        Counts([0; N])
    }
}

impl<const N: usize> std::fmt::Debug for Counts<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let there = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        f.debug_map().entries(there).finish()
    }
}

impl<const N: usize> Counts<N> {
    fn count(&mut self, number: u64) {
        self.0[(number as usize).min(N - 1)] += 1;
    }

    fn add(&mut self, other: &Counts<N>) {
        for (to, from) in self.0.iter_mut().zip(other.0) {
            *to += from;
        }
    }
}

/// Sums over some blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeStats {
    /// Block pointers, embedded ones included.
    pub count: u64,
    /// Bytes before compression.
    pub lsize: u64,
    /// Bytes after compression.
    pub psize: u64,
    /// Bytes allocated.
    pub asize: u64,
    /// Gang DVAs.
    pub gangs: u64,
    /// Blocks with two copies on one vdev.
    pub ditto_same_vdev: u64,
    /// Blocks with two copies in one metaslab.
    pub ditto_same_metaslab: u64,
    /// By psize in sectors of 512 bytes, embedded ones included.
    pub psize_sectors: Box<Counts<SECTOR_BINS>>,
}

impl TypeStats {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &TypeStats) {
        self.count += other.count;
        self.lsize += other.lsize;
        self.psize += other.psize;
        self.asize += other.asize;
        self.gangs += other.gangs;
        self.ditto_same_vdev += other.ditto_same_vdev;
        self.ditto_same_metaslab += other.ditto_same_metaslab;
        self.psize_sectors.add(&other.psize_sectors);
    }
}

/// Blocks of a size or larger, but smaller than twice that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Bins by log2 of their lower limit, up to 32 MiB (a block of 16 MiB with parity).
pub type SizeHistogram = [Bin; 28];

/// Everything counted about the blocks of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockStats {
    /// By kind and level.
    pub by_kind: BTreeMap<(BlockKind, u8), TypeStats>,
    /// Embedded blocks by `BP_EMBEDDED_TYPE_*`.
    pub embedded: [u64; 3],
    /// For each of these types, by payload bytes.
    pub embedded_payloads: [Counts<PAYLOAD_BINS>; 3],
    /// By psize; embedded blocks are not in any histogram.
    pub psize_histogram: SizeHistogram,
    /// By lsize.
    pub lsize_histogram: SizeHistogram,
    /// By asize.
    pub asize_histogram: SizeHistogram,
    /// Segments (DVAs) found again because of dedup or cloning, not counting the first time.
    pub shared_count: u64,
    /// Their bytes, counted in `by_kind` but allocated only once.
    pub shared_asize: u64,
}

/// Where the copies of a block are relative to each other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ditto {
    pub(crate) same_vdev: bool,
    pub(crate) same_metaslab: bool,
}

impl BlockStats {
    /// All blocks.
    #[must_use]
    pub fn total(&self) -> TypeStats {
        let mut total = TypeStats::default();
        self.by_kind.values().for_each(|stats| total.add(stats));
        total
    }

    /// All levels of one kind.
    #[must_use]
    pub fn of_kind(&self, kind: BlockKind) -> TypeStats {
        let mut total = TypeStats::default();
        let levels = self.by_kind.range((kind, 0)..=(kind, u8::MAX));
        levels.for_each(|(_, stats)| total.add(stats));
        total
    }

    pub(crate) fn count(&mut self, kind: BlockKind, bp: &BlkPtrPhys, ditto: Ditto) {
        let (lsize, psize, asize) = (bp.lsize(), bp.psize(), bp.asize());
        let stats = self.by_kind.entry((kind, bp.level())).or_default();
        stats.count += 1;
        stats.lsize += lsize;
        stats.psize += psize;
        stats.asize += asize;
        stats.gangs += bp.dvas().filter(phys::DvaPhys::is_gang).count() as u64;
        stats.ditto_same_vdev += u64::from(ditto.same_vdev);
        stats.ditto_same_metaslab += u64::from(ditto.same_metaslab);
        stats.psize_sectors.count(psize >> SPA_MINBLOCKSHIFT);
        if bp.is_embedded() {
            let type_ = usize::from(bp.embedded_type());
            if let Some(count) = self.embedded.get_mut(type_) {
                *count += 1;
                self.embedded_payloads[type_].count(bp.embedded_psize());
            }
            return;
        }
        bin(&mut self.psize_histogram, psize);
        bin(&mut self.lsize_histogram, lsize);
        bin(&mut self.asize_histogram, asize);
    }

    pub(crate) fn add(&mut self, other: &BlockStats) {
        for (key, stats) in &other.by_kind {
            self.by_kind.entry(*key).or_default().add(stats);
        }
        for (to, from) in self.embedded.iter_mut().zip(other.embedded) {
            *to += from;
        }
        for (to, from) in self
            .embedded_payloads
            .iter_mut()
            .zip(&other.embedded_payloads)
        {
            to.add(from);
        }
        add_histogram(&mut self.psize_histogram, &other.psize_histogram);
        add_histogram(&mut self.lsize_histogram, &other.lsize_histogram);
        add_histogram(&mut self.asize_histogram, &other.asize_histogram);
        self.shared_count += other.shared_count;
        self.shared_asize += other.shared_asize;
    }
}

fn bin(histogram: &mut SizeHistogram, size: u64) {
    let at = highbit(size).saturating_sub(1) as usize;
    let bin = &mut histogram[at.min(histogram.len() - 1)];
    bin.count += 1;
    bin.bytes += size;
}

fn add_histogram(to: &mut SizeHistogram, from: &SizeHistogram) {
    for (to, from) in to.iter_mut().zip(from) {
        to.count += from.count;
        to.bytes += from.bytes;
    }
}
