//! What the pipeline asks of the allocator.

use base::{Result, SPA_DVAS_PER_BP, Txg};
use phys::DvaPhys;

use crate::Bookmark;

/// `metaslab_class_t`: which devices a block may go to. When a class other than `Normal` has no
/// device or no space left, the allocator falls back to `Normal`. Also what a top-level vdev is
/// reserved for (`vdev_alloc_bias_t`), where `Normal` is anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "vdev_alloc_bias_t")]
pub enum AllocClass {
    /// Ordinary devices.
    #[default]
    Normal,
    /// Log devices.
    Log,
    /// Devices for metadata and small blocks.
    Special,
    /// Devices for dedup tables.
    Dedup,
}

impl AllocClass {
    /// The word in a config and in the vdev's ZAP; `Normal` has none.
    #[must_use]
    pub fn word(self) -> Option<&'static str> {
        match self {
            AllocClass::Normal => None,
            AllocClass::Log => Some("log"),
            AllocClass::Special => Some("special"),
            AllocClass::Dedup => Some("dedup"),
        }
    }

    /// From the word.
    #[must_use]
    pub fn from_word(word: &str) -> Self {
        [AllocClass::Log, AllocClass::Special, AllocClass::Dedup]
            .into_iter()
            .find(|class| class.word() == Some(word))
            .unwrap_or_default()
    }
}

/// What may help to choose a good place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hint {
    /// The block that is being written: blocks of one object are best placed near each other.
    pub bookmark: Bookmark,
    /// Of a log block: whether only devices and metaslabs that are set aside for logs will do.
    pub keeps_to_logs: bool,
}

/// Up to three DVAs of one block, first copy first. Never empty when it comes from an allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct DvaSet {
    dvas: [DvaPhys; SPA_DVAS_PER_BP],
    len: usize,
}

impl DvaSet {
    /// A set without any DVA.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next copy.
    ///
    /// # Panics
    /// When there are three already.
    pub fn push(&mut self, dva: DvaPhys) {
        assert!(self.len < SPA_DVAS_PER_BP, "a block has at most 3 DVAs");
        self.dvas[self.len] = dva;
        self.len += 1;
    }

    /// How many copies.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no copy.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The copies in order.
    #[must_use]
    pub fn as_slice(&self) -> &[DvaPhys] {
        &self.dvas[..self.len]
    }

    /// The copies in order.
    pub fn iter(&self) -> impl Iterator<Item = DvaPhys> + '_ {
        self.as_slice().iter().copied()
    }
}

impl FromIterator<DvaPhys> for DvaSet {
    fn from_iter<I: IntoIterator<Item = DvaPhys>>(iter: I) -> Self {
        let mut set = DvaSet::new();
        iter.into_iter().for_each(|dva| set.push(dva));
        set
    }
}

/// Free space, by DVA.
///
/// A DVA given out has the allocated size (`asize`) of its vdev for the psize asked for, and no
/// gang bit: gangs are the pipeline's business, which always hands back exactly the DVAs (vdev,
/// offset, asize) that it was given.
pub trait Allocator: Send + Sync {
    /// `copies` places of `psize` bytes each, on different vdevs when there are enough, otherwise
    /// far apart. All or nothing.
    ///
    /// # Errors
    /// `NoSpace` when no free segment is large enough: the pipeline then gangs.
    #[doc(alias = "metaslab_alloc")]
    fn allocate(
        &self,
        txg: Txg,
        class: AllocClass,
        psize: u64,
        copies: usize,
        hint: &Hint,
    ) -> Result<DvaSet>;

    /// Frees a segment as of `txg`: it may be allocated again some txgs later. `birth`: the txg that it was
    /// allocated in.
    #[doc(alias = "metaslab_free_dva")]
    fn free(&self, txg: Txg, birth: Txg, dva: &DvaPhys);

    /// Undoes an [`allocate`](Allocator::allocate) of the same txg at once: nothing will ever refer to
    /// the segment.
    #[doc(alias = "metaslab_unalloc_dva")]
    fn unallocate(&self, txg: Txg, dva: &DvaPhys);

    /// Marks as allocated a segment that is free according to the space maps: a log block after a crash.
    ///
    /// # Errors
    /// `Corrupt` when it is not free, or not within a vdev.
    #[doc(alias = "metaslab_claim_dva")]
    fn claim(&self, txg: Txg, dva: &DvaPhys) -> Result<()>;

    /// Whether the special class has room for small blocks of files, too, beside what is kept for metadata.
    #[doc(alias = "zfs_special_class_metadata_reserve_pct")]
    fn special_takes_data(&self) -> bool {
        false
    }

    /// Whether there is enough free space to allocate speculatively, for blocks that may be overwritten
    /// before they are referenced.
    fn has_spare(&self) -> bool {
        false
    }

    /// `spa_min_alloc`: the smallest allocation of any normal vdev (1 << ashift, or a row of a
    /// RAID-Z); compressed blocks are padded to a multiple of it.
    fn min_alloc(&self) -> u64;

    /// `spa_gcd_alloc`: what every allocation is a multiple of; differs from `min_alloc` when
    /// vdevs differ.
    fn gcd_alloc(&self) -> u64 {
        self.min_alloc()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_openzfs() {
        assert_eq!(AllocClass::from_word("special"), AllocClass::Special);
    }
}
