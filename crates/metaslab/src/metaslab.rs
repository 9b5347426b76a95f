//! One metaslab: what is free in a slice of a vdev, txg by txg.
//!
//! # What it is
//! A segment is in exactly one place at any time:
//! ```text
//!   allocatable --allocate(T)--> allocating[T] --sync(T)--> (allocated: in no tree)
//!        ^                            |                          |
//!        |                       unallocate                   free(T')
//!        |<---------------------------+                          v
//!        +--sync_done(T'+2)-- defer[T' % 2] <--sync_done(T')-- freed <--sync(T')-- freeing
//! ```
//! `sync` appends to the space map on disk: allocations before frees, so that a segment that was
//! allocated and freed in one txg ends up free.
//!
//! # Loading
//! `allocatable` exists only while the metaslab is loaded: it is what the space map says is free, less
//! what is deferred. An unloaded metaslab accepts frees (into `freeing`) but cannot be allocated from.
//! `synced_length` is the length of the log at the end of the last synced txg: loading stops there,
//! since what follows is in the trees as well.
//!
//! # Disabled
//! While its free segments are written to or deleted on the devices, a metaslab is *disabled*: nothing is allocated
//! here. It stays loaded; frees go on. What was freed in the last two txgs is not among these segments, also when
//! space was short and it was not deferred: older uberblocks lead there.
//!
//! # Untrimmed
//! With `autotrim` on, what has become allocatable again is also remembered as *untrimmed*, until it is allocated, or
//! taken to be deleted on the devices. It may be forgotten at any time. What was not deferred is among it when the two
//! txgs are over, if nothing is there then.
//!
//! # Source
//! OpenZFS module/zfs/metaslab.c, include/sys/metaslab_impl.h @be7657e3.

use base::{MetaslabId, Result, Txg};
use phys::space_map::{Encoder, MapType, SPACE_MAP_HISTOGRAM_SIZE as MAP_BUCKETS};

use crate::range_tree::RangeTree;
use crate::space_map::{
    SpaceMap, SpaceMapExtent, SpaceMapStore, estimate_bytes, load_free, push_tree,
};
use crate::weight::{self, MapHistogram, Weight};

/// `TXG_SIZE`: how many txgs may be open, quiescing or syncing, as a power of two.
pub(crate) const TXG_SIZE: usize = 4;
/// `TXG_DEFER_SIZE`: for how many txgs freed space is not reused.
pub(crate) const TXG_DEFER_SIZE: usize = 2;
/// `metaslab_df_alloc_threshold`: if the largest segment is smaller than this, in bytes, best fit.
const FIT_BY_SIZE_BELOW: u64 = 128 << 10;
/// `metaslab_df_free_pct`: if less than this percentage is free, best fit.
const FIT_BY_SIZE_FREE_PERCENT: u64 = 4;
/// `metaslab_df_max_search`: how many bytes first fit searches,
const SEARCH_BYTES: u64 = 16 << 20;
/// `metaslab_min_search_count`: but at least this many segments.
const SEARCH_SEGMENTS_MIN: usize = 100;
/// `zfs_metaslab_condense_pct`: a space map is condensed at this size, in percent of the optimum,
const CONDENSE_PERCENT: u64 = 200;
/// `zfs_metaslab_condense_block_threshold`: if it has more than this many blocks.
const CONDENSE_BLOCKS: u64 = 4;
/// `zfs_metaslab_switch_threshold`: an active metaslab is left when its largest segments are this
/// many powers of two smaller than when it was chosen.
const SWITCH_BUCKETS: u32 = 2;

/// What all metaslabs of a vdev have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapFormat {
    /// The vdev's ashift.
    pub(crate) shift: u32,
    /// Whether `spacemap_v2` is active.
    pub(crate) two_words: bool,
    /// Number of metaslabs of the vdev.
    pub(crate) count: u64,
}

pub(crate) fn slot(txg: Txg) -> usize {
    (txg.0 % TXG_SIZE as u64) as usize
}

/// `metaslab_t`
#[derive(Debug)]
pub(crate) struct Metaslab {
    pub(crate) id: MetaslabId,
    pub(crate) extent: SpaceMapExtent,
    /// ms_sm: none until something was allocated here for the first time.
    pub(crate) map: Option<SpaceMap>,
    /// ms_allocatable, while loaded
    allocatable: Option<RangeTree>,
    /// The space map cannot be read or is inconsistent: nothing is allocated here any more.
    broken: bool,
    allocating: [RangeTree; TXG_SIZE],
    freeing: RangeTree,
    freed: RangeTree,
    defer: [RangeTree; TXG_DEFER_SIZE],
    /// What was freed in the txgs of `defer`, but was not deferred. Some of it may have been allocated again.
    undeferred: [RangeTree; TXG_DEFER_SIZE],
    /// ms_trim: free for more than two txgs, and not deleted on the devices since.
    untrimmed: RangeTree,
    /// ms_disabled: how many hold it so that nothing is allocated here
    disabled: u32,
    /// From log space maps, not in the first `synced_length` bytes of `map`
    unflushed: Option<Box<Unflushed>>,
    /// ms_allocated_space: by the space map and `unflushed`
    pub(crate) allocated: u64,
    allocated_this_txg: u64,
    synced_length: u64,
    /// ms_lbas: where first fit continues, by alignment of the size
    cursors: [u64; 64],
    /// As last computed; orders the metaslabs of a group.
    pub(crate) weight: Weight,
    /// ms_activation_weight's index: the size class for which it was chosen
    activation_index: Option<u32>,
    pub(crate) selected: Txg,
}

/// `ms_unflushed_allocs`, `ms_unflushed_frees`
#[derive(Clone, Debug, Default)]
struct Unflushed {
    allocs: RangeTree,
    frees: RangeTree,
    /// Whether the syncing txg has written them to the space map.
    is_written: bool,
}

/// What one sync pass is about to append to the space map.
pub(crate) struct SyncPlan {
    allocs: RangeTree,
    frees: RangeTree,
    /// What is free before this txg, if the map is to be condensed.
    condensed: Option<RangeTree>,
    unflushed: Option<Unflushed>,
    map: Option<SpaceMap>,
}

/// What a txg adds to the vdev's space counters, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpaceDelta {
    pub(crate) alloc: i64,
    pub(crate) deferred: i64,
}

impl Metaslab {
    pub(crate) fn new(
        id: MetaslabId,
        extent: SpaceMapExtent,
        map: Option<SpaceMap>,
        format: &MapFormat,
    ) -> Self {
        let mut metaslab = Metaslab {
            id,
            extent,
            allocatable: None,
            broken: false,
            allocating: Default::default(),
            freeing: RangeTree::new(),
            freed: RangeTree::new(),
            defer: Default::default(),
            undeferred: Default::default(),
            untrimmed: RangeTree::new(),
            disabled: 0,
            unflushed: None,
            allocated: map.as_ref().map_or(0, |m| m.allocated),
            allocated_this_txg: 0,
            synced_length: map.as_ref().map_or(0, |m| m.length),
            map,
            cursors: [0; 64],
            weight: Weight::Full,
            activation_index: None,
            selected: Txg(0),
        };
        metaslab.reweigh(format);
        metaslab
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.allocatable.is_some()
    }

    /// Checks that no byte is in two trees of the picture above that exclude each other.
    ///
    /// # Panics
    /// When one is.
    pub(crate) fn check_invariants(&self) {
        let coming_back = self.defer.iter().chain([&self.freeing, &self.freed]);
        let coming_back: Vec<&RangeTree> = coming_back.collect();
        let busy = coming_back.iter().copied().chain(&self.allocating);
        let busy: Vec<&RangeTree> = busy.collect();
        let end = self.extent.start + self.extent.size;
        for tree in self.allocatable.iter().chain(busy.iter().copied()) {
            tree.check_invariants();
            let is_inside = |(start, size)| self.extent.start <= start && start + size <= end;
            assert!(
                tree.iter().all(is_inside),
                "metaslab {}: a segment is outside",
                self.id
            );
        }
        if let Some(allocatable) = &self.allocatable {
            busy.iter()
                .for_each(|tree| self.check_apart(allocatable, tree));
        }
        for (i, one) in coming_back.iter().enumerate() {
            coming_back[..i]
                .iter()
                .for_each(|other| self.check_apart(other, one));
        }
        let in_use = busy.iter().copied().chain(&self.undeferred);
        in_use.for_each(|tree| self.check_apart(&self.untrimmed, tree));
        if let Some(allocatable) = &self.allocatable {
            let is_free = |(start, size)| allocatable.contains(start, size);
            let is_right = self.untrimmed.iter().all(is_free);
            assert!(is_right, "metaslab {}: untrimmed and not free", self.id);
        }
    }

    /// Iterates over `few` and looks each segment up in `many`.
    fn check_apart(&self, many: &RangeTree, few: &RangeTree) {
        for (start, size) in few.iter() {
            let is_apart = !many.overlaps(start, size);
            assert!(
                is_apart,
                "metaslab {}: {start:#x}+{size:#x} is in two trees",
                self.id
            );
        }
    }

    /// Whether nothing is to be allocated here.
    pub(crate) fn is_disabled(&self) -> bool {
        self.disabled > 0
    }

    /// Nothing is allocated here until [`enable`](Metaslab::enable) was called as often as this.
    #[doc(alias = "metaslab_disable")]
    pub(crate) fn disable(&mut self) {
        self.disabled += 1;
    }

    #[doc(alias = "metaslab_enable")]
    pub(crate) fn enable(&mut self) {
        let left = self.disabled.checked_sub(1);
        self.disabled = left.expect("a metaslab is enabled as often as it was disabled");
    }

    /// Takes what was not deleted on the devices since it was freed.
    pub(crate) fn take_untrimmed(&mut self) -> RangeTree {
        self.untrimmed.vacate()
    }

    /// Puts back what was taken while the metaslab is disabled.
    pub(crate) fn put_untrimmed(&mut self, rest: &RangeTree) {
        self.untrimmed.add_all(rest);
    }

    pub(crate) fn has_untrimmed(&self) -> bool {
        !self.untrimmed.is_empty()
    }

    /// Whether so long a segment waits to be deleted on the devices, or will.
    pub(crate) fn awaits_trim(&self, least_bytes: u64) -> bool {
        let trees = self.defer.iter().chain(&self.undeferred);
        let mut trees = trees.chain([&self.untrimmed]);
        trees.any(|tree| tree.iter().any(|(_, size)| size >= least_bytes))
    }

    /// What no block is in, nor was in the last two txgs; of a metaslab that is loaded.
    pub(crate) fn long_free(&self) -> RangeTree {
        let mut free: RangeTree = self.allocatable.iter().flat_map(RangeTree::iter).collect();
        for fresh in &self.undeferred {
            fresh
                .iter()
                .for_each(|(start, size)| free.clear_range(start, size));
        }
        free
    }

    /// Whether what was freed has to be looked at again when the next txg is on disk.
    pub(crate) fn has_fresh_frees(&self) -> bool {
        self.deferred() > 0 || self.undeferred.iter().any(|tree| !tree.is_empty())
    }

    /// ms_deferspace
    pub(crate) fn deferred(&self) -> u64 {
        self.defer.iter().map(RangeTree::space).sum()
    }

    /// Reads the space map.
    #[doc(alias = "metaslab_load")]
    pub(crate) fn load(&mut self, store: &dyn SpaceMapStore, format: &MapFormat) -> Result<()> {
        if self.is_loaded() {
            return Ok(());
        }
        let loaded = self.read_free(store);
        match loaded {
            Ok(mut free) => {
                free.index_sizes();
                self.allocatable = Some(free);
                self.reweigh(format);
                Ok(())
            }
            Err(error) => {
                self.broken = true;
                self.reweigh(format);
                Err(error.within(format!("metaslab {}", self.id)))
            }
        }
    }

    fn read_free(&self, store: &dyn SpaceMapStore) -> Result<RangeTree> {
        let mut free = match &self.map {
            Some(map) => load_free(store, &map.object, self.synced_length, &self.extent)?,
            None => RangeTree::from_iter([(self.extent.start, self.extent.size)]),
        };
        let mut fits = true;
        if let Some(unflushed) = &self.unflushed {
            let Unflushed { allocs, frees, .. } = &**unflushed;
            fits &= allocs
                .iter()
                .all(|(start, size)| free.try_remove(start, size));
            fits &= frees.iter().all(|(start, size)| free.try_add(start, size));
        }
        for defer in &self.defer {
            fits &= defer
                .iter()
                .all(|(start, size)| free.try_remove(start, size));
        }
        for just_freed in [&self.freeing, &self.freed] {
            fits &= !just_freed
                .iter()
                .any(|(start, size)| free.overlaps(start, size));
        }
        if fits {
            return Ok(free);
        }
        Err(base::Error::corrupt(
            "the space map contradicts what was logged or freed since",
        ))
    }

    /// What is allocated here in the txg that is being synced, before its changes are written. Nothing may have been
    /// allocated in it or in later ones.
    pub(crate) fn allocated_segments(&self, store: &dyn SpaceMapStore) -> Result<RangeTree> {
        let is_still = self.allocating.iter().all(RangeTree::is_empty);
        assert!(is_still, "metaslab {}: is allocated from", self.id);
        let mut allocated = RangeTree::from_iter([(self.extent.start, self.extent.size)]);
        let mut fits = true;
        if let Some(map) = &self.map {
            let free = load_free(store, &map.object, map.length, &self.extent)?;
            allocated.remove_all(&free);
        } else {
            allocated = RangeTree::new();
        }
        if let Some(unflushed) = self.unflushed.as_ref().filter(|u| !u.is_written) {
            let Unflushed { allocs, frees, .. } = &**unflushed;
            fits &= allocs.iter().all(|(at, size)| allocated.try_add(at, size));
            fits &= frees
                .iter()
                .all(|(at, size)| allocated.try_remove(at, size));
        }
        let freeing = self.freeing.iter();
        fits &= freeing
            .into_iter()
            .all(|(at, size)| allocated.try_remove(at, size));
        if fits {
            return Ok(allocated);
        }
        let what = "the space map contradicts what was logged or freed since";
        Err(base::Error::corrupt(what))
    }

    /// What may hold a block, now or in a txg that is not synced yet: all but what can be allocated. If that is not
    /// known, everything.
    pub(crate) fn occupied(&self, store: &dyn SpaceMapStore) -> RangeTree {
        let mut occupied = RangeTree::from_iter([(self.extent.start, self.extent.size)]);
        match &self.allocatable {
            _ if self.broken => {}
            Some(free) => occupied.remove_all(free),
            None => {
                if let Ok(free) = self.read_free(store) {
                    occupied.remove_all(&free);
                }
            }
        }
        occupied
    }

    /// Drops the tree of free segments, unless a txg still has allocations to sync.
    #[doc(alias = "metaslab_unload")]
    pub(crate) fn unload(&mut self, format: &MapFormat) {
        if self.allocating.iter().all(RangeTree::is_empty) && !self.is_disabled() {
            self.allocatable = None;
            self.reweigh(format);
        }
    }

    /// Whether a segment of `asize` bytes may be free; exact when loaded.
    #[doc(alias = "metaslab_should_allocate")]
    pub(crate) fn may_fit(&self, asize: u64) -> bool {
        match &self.allocatable {
            _ if self.broken => false,
            Some(tree) => tree.largest() >= asize,
            None => self.weight.may_fit(asize),
        }
    }

    /// Takes a segment, if there is one large enough.
    #[doc(alias = "metaslab_block_alloc")]
    pub(crate) fn allocate(&mut self, txg: Txg, asize: u64) -> Option<u64> {
        let offset = self.find(asize)?;
        let tree = self.allocatable.as_mut()?;
        tree.remove(offset, asize);
        self.untrimmed.clear_range(offset, asize);
        self.allocating[slot(txg)].add(offset, asize);
        self.selected = self.selected.max(txg);
        Some(offset)
    }

    /// `metaslab_df_alloc`: first fit from the cursor of this alignment, so that what is written
    /// together lies together; best fit when space is short or nothing is found.
    fn find(&mut self, asize: u64) -> Option<u64> {
        let tree = self.allocatable.as_ref()?;
        let largest = tree.largest();
        if largest < asize {
            return None;
        }
        let cursor = &mut self.cursors[asize.trailing_zeros() as usize];
        let by_size = largest < FIT_BY_SIZE_BELOW
            || tree.space() < self.extent.size / 100 * FIT_BY_SIZE_FREE_PERCENT;
        let mut found = None;
        if !by_size {
            found = first_fit(tree, *cursor, asize);
            if found.is_none() {
                *cursor = 0;
            }
        }
        let offset = found.or_else(|| tree.best_fit(asize).map(|(start, _)| start))?;
        *cursor = offset + asize;
        Some(offset)
    }

    /// Allocates a given segment; false if it is not free.
    #[doc(alias = "metaslab_claim_concrete")]
    pub(crate) fn claim(&mut self, txg: Txg, offset: u64, asize: u64) -> bool {
        let Some(tree) = &mut self.allocatable else {
            return false;
        };
        let taken = tree.try_remove(offset, asize);
        if taken {
            self.untrimmed.clear_range(offset, asize);
            self.allocating[slot(txg)].add(offset, asize);
            self.selected = self.selected.max(txg);
        }
        taken
    }

    /// Undoes an allocation of `txg`, before that txg has synced it.
    pub(crate) fn unallocate(&mut self, txg: Txg, offset: u64, asize: u64) -> bool {
        let taken = self.allocating[slot(txg)].try_remove(offset, asize);
        if taken {
            let tree = self.allocatable.as_mut();
            let tree = tree.expect("a metaslab stays loaded while a txg allocates from it");
            tree.add(offset, asize);
        }
        taken
    }

    /// Records a free; false when the segment is free already.
    #[doc(alias = "metaslab_free_concrete")]
    pub(crate) fn free(&mut self, txg: Txg, offset: u64, asize: u64) -> bool {
        // What a later txg has allocated was free before: this txg had no block there.
        let allocating = self.allocating.iter().enumerate();
        let later = allocating.filter(|(at, _)| *at != slot(txg));
        let known_free = [&self.freed, &self.defer[0], &self.defer[1]]
            .into_iter()
            .chain(&self.allocatable)
            .chain(later.map(|(_, tree)| tree))
            .any(|tree| tree.overlaps(offset, asize));
        !known_free && self.freeing.try_add(offset, asize)
    }

    /// Records what a log space map says about a segment of this metaslab.
    pub(crate) fn log_entry(&mut self, kind: MapType, offset: u64, size: u64) {
        assert!(
            !self.is_loaded(),
            "log space maps are replayed before anything is loaded"
        );
        let unflushed = self.unflushed.get_or_insert_default();
        let Unflushed { allocs, frees, .. } = &mut **unflushed;
        let (add_to, remove_from) = match kind {
            MapType::Alloc => (allocs, frees),
            MapType::Free => (frees, allocs),
        };
        let mut rest = RangeTree::from_iter([(offset, size)]);
        let end = offset.saturating_add(size);
        let overlapping = remove_from.iter_from(offset);
        for (start, size) in overlapping.take_while(|(start, _)| *start < end) {
            rest.clear_range(start, size);
        }
        remove_from.clear_range(offset, size);
        for (start, size) in rest.iter() {
            add_to.clear_range(start, size);
            add_to.add(start, size);
        }
        let mapped = self.map.as_ref().map_or(0, |map| map.allocated);
        self.allocated =
            (mapped + unflushed.allocs.space()).saturating_sub(unflushed.frees.space());
    }

    /// Whether something from a log space map still has to be written to the space map.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.unflushed.as_ref().is_some_and(|u| !u.is_written)
    }

    /// Whether `sync` has something to do for `txg`.
    pub(crate) fn is_dirty(&self, txg: Txg) -> bool {
        !self.allocating[slot(txg)].is_empty() || !self.freeing.is_empty() || self.has_unflushed()
    }

    /// Moves aside what this sync pass is to write.
    pub(crate) fn sync_begin(
        &mut self,
        txg: Txg,
        pass: u32,
        format: &MapFormat,
    ) -> Option<SyncPlan> {
        if !self.is_dirty(txg) {
            return None;
        }
        let condensed = (pass == 1 && self.should_condense(format)).then(|| self.all_free());
        let unwritten = self.unflushed.as_mut().filter(|u| !u.is_written);
        let unflushed = unwritten.map(|u| {
            u.is_written = true;
            Unflushed::clone(u)
        });
        Some(SyncPlan {
            allocs: self.allocating[slot(txg)].vacate(),
            frees: self.freeing.vacate(),
            // A condensed map includes the log space maps' entries, so they need not be written as well.
            unflushed: unflushed.filter(|_| condensed.is_none()),
            condensed,
            map: self.map.clone(),
        })
    }

    /// `metaslab_should_condense`
    fn should_condense(&self, format: &MapFormat) -> bool {
        let (Some(tree), Some(map)) = (&self.allocatable, &self.map) else {
            return false;
        };
        let block = map.object.block_bytes;
        let record = u64::from(block).max(1 << format.shift);
        let optimal = estimate_bytes(tree, format.shift, block, format.two_words);
        map.length >= optimal * CONDENSE_PERCENT / 100 && map.length > CONDENSE_BLOCKS * record
    }

    /// Free according to the space map before this txg's changes: what can be allocated, what is
    /// deferred, and what this txg and later ones allocated, which is in no space map yet.
    fn all_free(&self) -> RangeTree {
        let mut free: RangeTree = self.allocatable.iter().flat_map(RangeTree::iter).collect();
        for tree in self.defer.iter().chain(&self.allocating) {
            free.add_all(tree);
        }
        free
    }

    /// Takes the map back after the plan was written, and updates the space counters.
    ///
    /// # Errors
    /// `Corrupt` when more was freed than the map has allocated, or more is allocated than the metaslab
    /// has.
    pub(crate) fn sync_end(&mut self, plan: SyncPlan, format: &MapFormat) -> Result<()> {
        let mut map = plan.map.expect("a map was made if there was none");
        let (allocated, freed) = (plan.allocs.space(), plan.frees.space());
        let left = (self.allocated + allocated).checked_sub(freed);
        let left = left.filter(|bytes| *bytes <= self.extent.size);
        self.allocated = left.ok_or_else(|| {
            let (object, before, size) = (map.object.object, self.allocated, self.extent.size);
            base::Error::corrupt(format!(
                "space map {object} has {before} of {size} bytes allocated, \
                 {allocated} are added and {freed} freed"
            ))
        })?;
        map.allocated = self.allocated;
        self.freed.add_all(&plan.frees);
        self.allocated_this_txg += allocated;
        if let Some(tree) = &self.allocatable {
            map.histogram = [0; MAP_BUCKETS];
            let deferred = self.defer.iter().chain([&self.freed]);
            for tree in std::iter::once(tree).chain(deferred) {
                weight::add_histogram(&mut map.histogram, format.shift, tree);
            }
        } else {
            weight::add_histogram(&mut map.histogram, format.shift, &plan.frees);
        }
        self.map = Some(map);
        Ok(())
    }

    /// `metaslab_sync_done`: the txg is on disk. What it freed is deferred (or not, when `defer` is
    /// false because space is short), and what was deferred two txgs ago can be allocated.
    pub(crate) fn sync_done(
        &mut self,
        txg: Txg,
        (defer, remembers): (bool, bool),
        format: &MapFormat,
    ) -> SpaceDelta {
        assert!(
            self.freeing.is_empty(),
            "frees after the last sync pass of txg {txg}"
        );
        let at = (txg.0 % TXG_DEFER_SIZE as u64) as usize;
        let before = self.deferred() as i64;
        let freed = self.freed.vacate();
        let mut alloc = self.allocated_this_txg as i64 - freed.space() as i64;
        let matured = self.defer[at].vacate();
        let lapsed = self.undeferred[at].vacate();
        if remembers {
            self.untrimmed.add_all(&matured);
        }
        let mut back = vec![matured];
        if defer {
            self.defer[at] = freed;
        } else {
            self.undeferred[at] = freed.clone();
            back.push(freed);
        }
        if let Some(tree) = &mut self.allocatable {
            back.iter().for_each(|free| tree.add_all(free));
        }
        if remembers {
            self.remember_lapsed(&lapsed);
        }
        self.allocated_this_txg = 0;
        self.synced_length = self.map.as_ref().map_or(0, |map| map.length);
        if self.unflushed.as_ref().is_some_and(|u| u.is_written) {
            self.unflushed = None;
        }
        let deferred = self.deferred() as i64 - before;
        alloc += deferred;
        self.reweigh(format);
        SpaceDelta { alloc, deferred }
    }

    /// Of what was not deferred two txgs ago, that which is free and was not used meanwhile.
    fn remember_lapsed(&mut self, lapsed: &RangeTree) {
        let Some(allocatable) = &self.allocatable else {
            return;
        };
        for (start, size) in lapsed.iter() {
            let is_fresh = self.undeferred.iter().any(|t| t.overlaps(start, size));
            if allocatable.contains(start, size) && !is_fresh {
                self.untrimmed.clear_range(start, size);
                self.untrimmed.add(start, size);
            }
        }
    }

    /// Brings the weight up to date.
    #[doc(alias = "metaslab_weight")]
    pub(crate) fn reweigh(&mut self, format: &MapFormat) {
        self.weight = self.current_weight(format);
    }

    fn current_weight(&self, format: &MapFormat) -> Weight {
        if self.broken {
            return Weight::Full;
        }
        match (&self.allocatable, &self.map) {
            (Some(tree), _) => Weight::of_tree(tree, format.shift),
            (None, None) => Weight::of_empty(self.extent.size, format.shift),
            (None, Some(_)) if self.allocated == 0 && self.deferred() == 0 => {
                Weight::of_empty(self.extent.size, format.shift)
            }
            (None, Some(map)) if map.object.has_histogram => {
                Weight::of_map(&self.available_histogram(map, format), format.shift)
            }
            (None, Some(_)) => Weight::of_space(
                self.extent
                    .size
                    .saturating_sub(self.allocated + self.deferred()),
                None,
                self.id.0,
                format.count,
            ),
        }
    }

    /// The map's histogram less what is free but not allocatable yet.
    fn available_histogram(&self, map: &SpaceMap, format: &MapFormat) -> MapHistogram {
        let mut pending = [0; MAP_BUCKETS];
        for tree in self.defer.iter().chain([&self.freed]) {
            weight::add_histogram(&mut pending, format.shift, tree);
        }
        let mut histogram = map.histogram;
        for (have, pending) in histogram.iter_mut().zip(pending) {
            *have = have.saturating_sub(pending);
        }
        histogram
    }

    /// Percent; none when the space map has no histogram.
    pub(crate) fn fragmentation(&self, format: &MapFormat) -> Option<u64> {
        match &self.map {
            None => Some(0),
            Some(map) if map.object.has_histogram => {
                Some(weight::fragmentation(&map.histogram, format.shift))
            }
            Some(_) => None,
        }
    }

    /// Records the size class for which the metaslab was chosen.
    pub(crate) fn activate(&mut self) {
        self.activation_index = self.weight.index();
    }

    /// Whether it is time to look for a better metaslab: the large segments that it was chosen for
    /// are used up, and what is left is in pieces.
    #[doc(alias = "metaslab_segment_may_passivate")]
    pub(crate) fn is_worn(&self, format: &MapFormat) -> bool {
        let (Some(tree), Some(chosen)) = (&self.allocatable, self.activation_index) else {
            return false;
        };
        if tree.largest() > tree.space() / 16 * 15 {
            return false;
        }
        let now = Weight::of_tree(tree, format.shift).index();
        now.is_none_or(|index| index + SWITCH_BUCKETS <= chosen)
    }
}

fn first_fit(tree: &RangeTree, cursor: u64, asize: u64) -> Option<u64> {
    let mut first = None;
    for (at, (start, size)) in tree.iter_from(cursor).enumerate() {
        let first = *first.get_or_insert(start);
        if start - first > SEARCH_BYTES && at >= SEARCH_SEGMENTS_MIN {
            return None;
        }
        if size >= asize {
            return Some(start);
        }
    }
    None
}

impl SyncPlan {
    /// Writes the entries of this plan through `store`.
    pub(crate) fn write(
        &mut self,
        store: &dyn SpaceMapStore,
        target: &SyncTarget<'_>,
    ) -> Result<()> {
        let mut map = match self.map.take() {
            Some(map) => map,
            None => SpaceMap::new(store.create(target.txg, target.vdev, target.metaslab)?),
        };
        if self.condensed.is_some() {
            let old = map.object.object;
            map.object = store.truncate(target.txg, target.vdev, target.metaslab, old)?;
            map.length = 0;
        }
        let block = u64::from(map.object.block_bytes);
        let mut encoder = Encoder::new(map.length, block, target.format.two_words);
        let mut push = |kind, tree: &RangeTree| {
            push_tree(
                &mut encoder,
                &target.extent,
                (target.txg, target.pass),
                kind,
                tree,
            );
        };
        if let Some(free) = &self.condensed {
            let whole = RangeTree::from_iter([(target.extent.start, target.extent.size)]);
            push(MapType::Alloc, &whole);
            push(MapType::Free, free);
        }
        if let Some(unflushed) = &self.unflushed {
            push(MapType::Alloc, &unflushed.allocs);
            push(MapType::Free, &unflushed.frees);
        }
        push(MapType::Alloc, &self.allocs);
        push(MapType::Free, &self.frees);
        let bytes = encoder.finish();
        if !bytes.is_empty() {
            store.write(target.txg, map.object.object, map.length, &bytes)?;
        }
        map.length += bytes.len() as u64;
        self.map = Some(map);
        Ok(())
    }
}

/// Where and when a plan is written.
pub(crate) struct SyncTarget<'a> {
    pub(crate) txg: Txg,
    pub(crate) pass: u32,
    pub(crate) vdev: base::VdevId,
    pub(crate) metaslab: MetaslabId,
    pub(crate) extent: SpaceMapExtent,
    pub(crate) format: &'a MapFormat,
}
