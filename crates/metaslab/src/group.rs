//! Metaslab groups: the metaslabs of one top-level vdev, and which of them to allocate from.
//!
//! # What it is
//! Metaslabs are ordered by weight. The best one is loaded, made *active*, and used until it is
//! worn or cannot serve an allocation; writing thus stays in one region of the disk. The second and
//! third copy of a block that land on the same vdev come from active metaslabs of their own, an
//! eighth of the vdev away when possible, so that a local defect does not take all copies.
//!
//! One metaslab of a large normal or special vdev is set aside for log blocks (*embedded log*): the emptiest when the
//! vdev is opened. Nothing else is allocated there, and it counts apart. What it has from earlier stays.
//!
//! # Concurrency
//! One lock per group. It is held while a space map is read (other threads would have to wait for that
//! metaslab anyway), never while one is written. What is allocated, how fragmented the rest
//! was when a txg was last synced, and whether anything may be allocated, is [read without it](crate::counts).
//!
//! # Source
//! OpenZFS module/zfs/metaslab.c `metaslab_group_alloc`, `find_valid_metaslab`, `metaslab_sync`
//! @be7657e3.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Error, MetaslabId, ObjectId, Result, SPA_DVAS_PER_BP, SPA_MINBLOCKSHIFT, Txg, VdevId};
use phys::space_map::MapType;
use zio::AllocClass;

use crate::counts::Counts;
use crate::metaslab::{MapFormat, Metaslab, SpaceDelta, SyncTarget, TXG_SIZE};
use crate::range_tree::{HISTOGRAM_BUCKETS, RangeTree};
use crate::space_map::{SpaceMap, SpaceMapExtent, SpaceMapStore};
use crate::weight::Weight;

/// `ditto_same_vdev_distance_shift`: copies on one vdev should be `asize >> 3` apart.
const DITTO_DISTANCE_SHIFT: u32 = 3;
/// `metaslab_unload_delay`: a metaslab is unloaded after this many txgs without an allocation.
const UNLOAD_TXGS: u64 = 32;

/// `zfs_embedded_slog_min_ms`: a vdev with no more metaslabs than this sets none aside for log blocks.
const EMBEDDED_LOG_MIN_MS: usize = 64;

/// What the allocator needs to know of a top-level vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VdevGeometry {
    /// vdev_id: its number in DVAs
    pub id: VdevId,
    /// vdev_asize: bytes that can be allocated, labels excluded
    pub asize: u64,
    /// vdev_ashift: log2 of the smallest unit
    pub ashift: u32,
    /// vdev_ms_shift: log2 of the size of a metaslab
    pub ms_shift: u32,
    /// What it may be used for.
    pub class: AllocClass,
    /// Disks that hold data of one block (children less parity), for the stride before the next vdev.
    pub data_disks: u64,
    /// The smallest allocation: `1 << ashift`, more for dRAID (`vdev_op_min_alloc`).
    pub min_alloc: u64,
    /// Metaslabs start at multiples of this; 1 for all but dRAID (`vdev_op_metaslab_init`).
    pub ms_align: u64,
}

impl VdevGeometry {
    /// A plain vdev: one disk, or a mirror of disks.
    #[must_use]
    pub fn new(id: VdevId, asize: u64, ashift: u32, ms_shift: u32, class: AllocClass) -> Self {
        VdevGeometry {
            id,
            asize,
            ashift,
            ms_shift,
            class,
            data_disks: 1,
            min_alloc: 1 << ashift,
            ms_align: 1,
        }
    }

    /// `vdev_ms_count`
    #[must_use]
    pub fn ms_count(&self) -> u64 {
        self.asize >> self.ms_shift
    }

    /// Where a metaslab lies.
    fn extent(&self, metaslab: u64) -> SpaceMapExtent {
        let range = MetaslabId(metaslab).range(self.ms_shift, self.ms_align);
        SpaceMapExtent {
            start: range.start,
            size: range.end - range.start,
            shift: self.ashift,
        }
    }
}

/// Space of a vdev or of a class of vdevs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceStats {
    /// In use by blocks, plus what is deferred.
    pub alloc: u64,
    /// Freed in the last txgs and not reusable yet.
    pub deferred: u64,
    /// All there is.
    pub space: u64,
    /// `alloc` in bytes of file data: without parity and padding, as 128 KiB blocks have it.
    pub dalloc: u64,
    /// `deferred` likewise.
    pub ddeferred: u64,
    /// `space` likewise.
    pub dspace: u64,
    /// Percent; none when too few metaslabs have a histogram, or nothing is free.
    pub fragmentation: Option<u64>,
}

/// `metaslab_group_t`
pub(crate) struct Group {
    pub(crate) geometry: VdevGeometry,
    format: MapFormat,
    /// vdev_deflate_ratio: data bytes per 512 allocated ones
    deflate_ratio: u64,
    /// Of all metaslabs.
    size_bytes: u64,
    /// vdev_log_mg: the metaslab that is set aside for log blocks.
    log_metaslab: Option<usize>,
    /// Its size; 0 where there is none.
    log_bytes: u64,
    counts: Counts,
    /// mg_fragmentation: in percent, as of the last txg that was synced; more than that when it is not known.
    fragmentation: AtomicU64,
    /// False while the vdev is being removed, evacuated or is offline. It changes with the lock.
    is_allocatable: AtomicBool,
    state: rt::Mutex<State>,
}

struct State {
    metaslabs: Vec<Metaslab>,
    /// All but the active ones and that for log blocks, best first.
    order: BTreeSet<(Reverse<Weight>, usize)>,
    /// Indexed by how many copies of the block are on this vdev already.
    active: [Option<usize>; SPA_DVAS_PER_BP],
    /// Metaslabs that each txg has to sync.
    dirty: [BTreeSet<usize>; TXG_SIZE],
    sync_pass: u32,
}

/// How far a metaslab has to be from the copies that exist already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Distance {
    Far,
    OtherMetaslab,
    Any,
}

impl Group {
    /// Opens the space maps of a vdev; `objects` is its metaslab array, 0 for maps not made yet.
    pub(crate) fn open(
        geometry: VdevGeometry,
        deflate_ratio: u64,
        two_words: bool,
        objects: &[ObjectId],
        is_new: bool,
        store: &dyn SpaceMapStore,
    ) -> Result<Self> {
        let count = geometry.ms_count();
        assert!(
            objects.len() as u64 <= count,
            "more space maps than metaslabs"
        );
        let format = MapFormat {
            shift: geometry.ashift,
            two_words,
            count,
        };
        let mut metaslabs = Vec::new();
        for id in 0..count {
            let extent = geometry.extent(id);
            let object = objects.get(id as usize).filter(|object| object.0 != 0);
            let map = object
                .map(|object| SpaceMap::open(store, *object, &extent))
                .transpose()?;
            metaslabs.push(Metaslab::new(MetaslabId(id), extent, map, &format));
        }
        let log_metaslab = log_metaslab(geometry.class, &metaslabs);
        let order = metaslabs
            .iter()
            .enumerate()
            .filter(|(at, _)| Some(*at) != log_metaslab)
            .map(|(at, metaslab)| (Reverse(metaslab.weight), at))
            .collect();
        let allocated = |metaslab: &Metaslab| metaslab.allocated;
        let counts = Counts::new(
            metaslabs.iter().map(allocated).sum(),
            log_metaslab.map_or(0, |at| metaslabs[at].allocated),
            is_new,
        );
        let group = Group {
            geometry,
            format,
            deflate_ratio,
            size_bytes: metaslabs.iter().map(|m| m.extent.size).sum(),
            log_metaslab,
            log_bytes: log_metaslab.map_or(0, |at| metaslabs[at].extent.size),
            counts,
            fragmentation: u64::MAX.into(),
            is_allocatable: true.into(),
            state: rt::Mutex::new(State {
                metaslabs,
                order,
                active: [None; SPA_DVAS_PER_BP],
                dirty: Default::default(),
                sync_pass: 1,
            }),
        };
        group.note_fragmentation(&group.state.lock());
        Ok(group)
    }

    /// Which metaslab `[offset, offset + asize)` is in.
    pub(crate) fn locate(&self, offset: u64, asize: u64) -> Result<usize> {
        let at = offset >> self.geometry.ms_shift;
        let sector = (1 << self.geometry.ashift) - 1;
        let count = self.geometry.ms_count();
        // What is behind the last metaslab might end beyond 2^64.
        let extent = self.geometry.extent(at.min(count.saturating_sub(1)));
        if at >= count
            || asize == 0
            || (offset | asize) & sector != 0
            || offset < extent.start
            || asize > extent.size
            || offset - extent.start > extent.size - asize
        {
            return Err(Error::corrupt(format!(
                "segment {offset:#x}+{asize:#x} is in no metaslab of vdev {}",
                self.geometry.id
            )));
        }
        Ok(at as usize)
    }

    /// Allocates a segment of `asize` bytes; `taken` are the offsets of the block's copies on this vdev.
    #[doc(alias = "metaslab_group_alloc")]
    pub(crate) fn allocate(
        &self,
        txg: Txg,
        asize: u64,
        taken: &[u64],
        store: &dyn SpaceMapStore,
    ) -> Option<u64> {
        let mut state = self.state.lock();
        if !self.is_allocatable() || self.counts.is_new() {
            return None;
        }
        let rank = taken.len();
        loop {
            let at = match state.active[rank] {
                Some(at) => at,
                None => self.choose(&mut state, asize, rank, taken, store)?,
            };
            let metaslab = &mut state.metaslabs[at];
            if let Some(offset) = metaslab.allocate(txg, asize) {
                let worn = metaslab.is_worn(&self.format);
                state.dirty[(txg.0 % TXG_SIZE as u64) as usize].insert(at);
                // Later passes keep their metaslab, so as not to dirty ever more space maps.
                if worn && state.sync_pass == 1 && state.active[rank] == Some(at) {
                    state.passivate(rank, &self.format);
                }
                return Some(offset);
            }
            assert_eq!(
                state.active[rank],
                Some(at),
                "only active metaslabs may fail"
            );
            state.passivate(rank, &self.format);
        }
    }

    /// Allocates a segment for a log block in the metaslab that is set aside for these.
    pub(crate) fn allocate_log(
        &self,
        txg: Txg,
        asize: u64,
        store: &dyn SpaceMapStore,
    ) -> Option<u64> {
        let at = self.log_metaslab?;
        let mut state = self.state.lock();
        if !self.is_allocatable() || self.counts.is_new() {
            return None;
        }
        let metaslab = &mut state.metaslabs[at];
        if metaslab.is_disabled() || metaslab.load(store, &self.format).is_err() {
            return None;
        }
        let offset = metaslab.allocate(txg, asize)?;
        state.dirty[(txg.0 % TXG_SIZE as u64) as usize].insert(at);
        Some(offset)
    }

    /// Whether a metaslab is set aside for log blocks.
    pub(crate) fn has_log_metaslab(&self) -> bool {
        self.log_metaslab.is_some()
    }

    /// Loads and activates the best metaslab for `asize`. When only metaslabs that are active for other
    /// copies fit, returns one of those without activating it.
    fn choose(
        &self,
        state: &mut State,
        asize: u64,
        rank: usize,
        taken: &[u64],
        store: &dyn SpaceMapStore,
    ) -> Option<usize> {
        let ways: &[Distance] = match rank {
            0 => &[Distance::Any],
            _ => &[Distance::Far, Distance::OtherMetaslab, Distance::Any],
        };
        for way in ways {
            while let Some(at) = self.candidate(state, asize, taken, *way) {
                let before = (Reverse(state.metaslabs[at].weight), at);
                // A metaslab whose space map cannot be read gets the lowest weight; the others are
                // tried.
                let loaded = state.metaslabs[at].load(store, &self.format).is_ok();
                state.order.remove(&before);
                if loaded && state.metaslabs[at].may_fit(asize) {
                    state.metaslabs[at].activate();
                    state.active[rank] = Some(at);
                    return Some(at);
                }
                let after = (Reverse(state.metaslabs[at].weight), at);
                state.order.insert(after);
            }
        }
        let others = state.active.iter().flatten().copied();
        others
            .into_iter()
            .find(|at| state.metaslabs[*at].may_fit(asize))
    }

    /// Whether an allocation might succeed once nothing is disabled any more.
    pub(crate) fn is_held_back(&self, asize: u64) -> bool {
        let state = self.state.lock();
        let mut held = state.metaslabs.iter().filter(|m| m.is_disabled());
        self.is_allocatable()
            && !self.counts.is_new()
            && held.any(|metaslab| metaslab.may_fit(asize))
    }

    /// Disables a metaslab, and returns what is free there and whether it ever had anything; `None` behind the last
    /// one.
    #[doc(alias = "metaslab_disable")]
    pub(crate) fn disable(
        &self,
        metaslab: u64,
        txg: Txg,
        store: &dyn SpaceMapStore,
    ) -> Result<Option<(RangeTree, bool)>> {
        let mut state = self.state.lock();
        let at = metaslab as usize;
        if at >= state.metaslabs.len() {
            return Ok(None);
        }
        let before = (Reverse(state.metaslabs[at].weight), at);
        let loaded = state.metaslabs[at].load(store, &self.format);
        state.reorder(before);
        loaded?;
        self.passivate_all(&mut state, at);
        let found = &mut state.metaslabs[at];
        found.selected = found.selected.max(txg);
        found.disable();
        Ok(Some((found.long_free(), found.map.is_some())))
    }

    /// Disables a metaslab that is not, and has segments that were not deleted on the devices since they were freed:
    /// these are taken.
    pub(crate) fn disable_untrimmed(&self, metaslab: u64) -> Option<RangeTree> {
        let mut state = self.state.lock();
        let at = metaslab as usize;
        let found = state.metaslabs.get(at)?;
        if !found.has_untrimmed() || found.is_disabled() {
            return None;
        }
        self.passivate_all(&mut state, at);
        let found = &mut state.metaslabs[at];
        found.disable();
        Some(found.take_untrimmed())
    }

    /// Puts back what [`disable_untrimmed`](Group::disable_untrimmed) took, before the metaslab is enabled.
    pub(crate) fn put_untrimmed(&self, metaslab: u64, rest: &RangeTree) {
        self.state.lock().metaslabs[metaslab as usize].put_untrimmed(rest);
    }

    /// Forgets what was not deleted on the devices.
    pub(crate) fn forget_untrimmed(&self) {
        let mut state = self.state.lock();
        let forget = |metaslab: &mut Metaslab| drop(metaslab.take_untrimmed());
        state.metaslabs.iter_mut().for_each(forget);
    }

    /// Whether anything was freed that cannot be allocated yet, or that older uberblocks lead to.
    pub(crate) fn is_maturing(&self) -> bool {
        let state = self.state.lock();
        state.metaslabs.iter().any(Metaslab::has_fresh_frees)
    }

    /// Whether so long a segment waits to be deleted on the devices, or will.
    pub(crate) fn awaits_trim(&self, least_bytes: u64) -> bool {
        let state = self.state.lock();
        let mut metaslabs = state.metaslabs.iter();
        metaslabs.any(|metaslab| metaslab.awaits_trim(least_bytes))
    }

    fn passivate_all(&self, state: &mut State, metaslab: usize) {
        for rank in 0..state.active.len() {
            if state.active[rank] == Some(metaslab) {
                state.passivate(rank, &self.format);
            }
        }
    }

    /// Undoes [`disable`](Group::disable).
    #[doc(alias = "metaslab_enable")]
    pub(crate) fn enable(&self, metaslab: u64) {
        self.state.lock().metaslabs[metaslab as usize].enable();
    }

    /// What one metaslab has free, as [`disable`](Group::disable) returns it.
    pub(crate) fn long_free(&self, metaslab: u64, store: &dyn SpaceMapStore) -> Result<RangeTree> {
        let mut state = self.state.lock();
        let at = metaslab as usize;
        let before = (Reverse(state.metaslabs[at].weight), at);
        let loaded = state.metaslabs[at].load(store, &self.format);
        state.reorder(before);
        loaded?;
        Ok(state.metaslabs[at].long_free())
    }

    /// Bytes of each metaslab that are not allocated.
    pub(crate) fn free_bytes(&self) -> Vec<u64> {
        let state = self.state.lock();
        let metaslabs = state.metaslabs.iter();
        let free = metaslabs.map(|m| m.extent.size.saturating_sub(m.allocated));
        free.collect()
    }

    fn candidate(
        &self,
        state: &State,
        asize: u64,
        taken: &[u64],
        distance: Distance,
    ) -> Option<usize> {
        let far = self.geometry.asize >> DITTO_DISTANCE_SHIFT;
        state.order.iter().map(|(_, at)| *at).find(|at| {
            let metaslab = &state.metaslabs[*at];
            let start = metaslab.extent.start;
            let apart = |other: &u64| match distance {
                Distance::Far => start.abs_diff(*other) >= far,
                Distance::OtherMetaslab => other >> self.geometry.ms_shift != *at as u64,
                Distance::Any => true,
            };
            !metaslab.is_disabled() && metaslab.may_fit(asize) && taken.iter().all(apart)
        })
    }

    pub(crate) fn claim(
        &self,
        txg: Txg,
        offset: u64,
        asize: u64,
        store: &dyn SpaceMapStore,
    ) -> Result<()> {
        let at = self.locate(offset, asize)?;
        let mut state = self.state.lock();
        let before = (Reverse(state.metaslabs[at].weight), at);
        let loaded = state.metaslabs[at].load(store, &self.format);
        if state.order.remove(&before) {
            let after = (Reverse(state.metaslabs[at].weight), at);
            state.order.insert(after);
        }
        loaded?;
        if !state.metaslabs[at].claim(txg, offset, asize) {
            return Err(Error::corrupt(format!(
                "segment {offset:#x}+{asize:#x} of vdev {} is not free to be claimed",
                self.geometry.id
            )));
        }
        state.dirty[(txg.0 % TXG_SIZE as u64) as usize].insert(at);
        Ok(())
    }

    pub(crate) fn unallocate(&self, txg: Txg, offset: u64, asize: u64) -> Result<()> {
        let at = self.locate(offset, asize)?;
        if self.state.lock().metaslabs[at].unallocate(txg, offset, asize) {
            return Ok(());
        }
        Err(Error::corrupt(format!(
            "segment {offset:#x}+{asize:#x} of vdev {} was not allocated in txg {txg}",
            self.geometry.id
        )))
    }

    pub(crate) fn free(&self, txg: Txg, offset: u64, asize: u64) -> Result<()> {
        let at = self.locate(offset, asize)?;
        let mut state = self.state.lock();
        if !state.metaslabs[at].free(txg, offset, asize) {
            return Err(Error::corrupt(format!(
                "segment {offset:#x}+{asize:#x} of vdev {} is freed twice",
                self.geometry.id
            )));
        }
        state.dirty[(txg.0 % TXG_SIZE as u64) as usize].insert(at);
        Ok(())
    }

    pub(crate) fn log_entry(&self, kind: MapType, offset: u64, size: u64) -> Result<()> {
        let at = self.locate(offset, size)?;
        let mut state = self.state.lock();
        let before = state.metaslabs[at].allocated;
        state.metaslabs[at].log_entry(kind, offset, size);
        let after = state.metaslabs[at].allocated;
        let delta = SpaceDelta {
            alloc: after.cast_signed() - before.cast_signed(),
            deferred: 0,
        };
        self.counts.add(&delta, self.log_metaslab == Some(at));
        Ok(())
    }

    /// All entries of log space maps are replayed.
    pub(crate) fn end_replay(&self) {
        self.note_fragmentation(&self.state.lock());
    }

    /// Has `txg` write the replayed entries of log space maps to the space maps.
    pub(crate) fn flush_log_entries(&self, txg: Txg) {
        let mut state = self.state.lock();
        let all: Vec<usize> = (0..state.metaslabs.len())
            .filter(|at| state.metaslabs[*at].has_unflushed())
            .collect();
        state.dirty[(txg.0 % TXG_SIZE as u64) as usize].extend(all);
    }

    /// One sync pass; returns whether anything was written.
    pub(crate) fn sync(&self, txg: Txg, pass: u32, store: &dyn SpaceMapStore) -> Result<bool> {
        let dirty = {
            let mut state = self.state.lock();
            state.sync_pass = pass;
            state.dirty[(txg.0 % TXG_SIZE as u64) as usize].clone()
        };
        let mut wrote = false;
        for at in dirty {
            wrote |= self.sync_one(at, txg, pass, store)?;
        }
        Ok(wrote)
    }

    #[doc(alias = "metaslab_sync")]
    fn sync_one(&self, at: usize, txg: Txg, pass: u32, store: &dyn SpaceMapStore) -> Result<bool> {
        let (plan, extent) = {
            let metaslab = &mut self.state.lock().metaslabs[at];
            (
                metaslab.sync_begin(txg, pass, &self.format),
                metaslab.extent,
            )
        };
        let Some(mut plan) = plan else {
            return Ok(false);
        };
        let target = SyncTarget {
            txg,
            pass,
            vdev: self.geometry.id,
            metaslab: MetaslabId(at as u64),
            extent,
            format: &self.format,
        };
        plan.write(store, &target)?;
        let (object, phys) = {
            let metaslab = &mut self.state.lock().metaslabs[at];
            metaslab.sync_end(plan, &self.format)?;
            let map = metaslab.map.as_ref().expect("sync_end put it there");
            (map.object.object, map.phys())
        };
        store.set_phys(txg, object, &phys)?;
        Ok(true)
    }

    /// Checks the metaslabs and the sums over them.
    ///
    /// # Panics
    /// When they do not hold.
    pub(crate) fn check_invariants(&self) {
        let state = self.state.lock();
        state.metaslabs.iter().for_each(Metaslab::check_invariants);
        let deferred: u64 = state.metaslabs.iter().map(Metaslab::deferred).sum();
        let (_, counted) = self.counts.all();
        assert_eq!(counted, deferred, "deferred space of all metaslabs");
        let of_log = self.log_metaslab.map(|at| &state.metaslabs[at]);
        let deferred = of_log.map_or(0, Metaslab::deferred);
        let (_, counted) = self.counts.of_log();
        assert_eq!(counted, deferred, "deferred space for log blocks");
        let fragmentation = self.fragmentation_of(&state);
        assert_eq!(self.stats().fragmentation, fragmentation, "fragmentation");
        let is_ordered = |at: usize| {
            let key = (Reverse(state.metaslabs[at].weight), at);
            let is_apart = state.active.contains(&Some(at)) || self.log_metaslab == Some(at);
            state.order.contains(&key) != is_apart
        };
        assert!(
            (0..state.metaslabs.len()).all(is_ordered),
            "a metaslab is not in its order"
        );
    }

    #[doc(alias = "metaslab_sync_done")]
    pub(crate) fn sync_done(&self, txg: Txg, defer: bool, remembers: bool) {
        let mut state = self.state.lock();
        let state = &mut *state;
        self.counts.note_synced();
        state.sync_pass = 1;
        let dirty = std::mem::take(&mut state.dirty[(txg.0 % TXG_SIZE as u64) as usize]);
        let defer = defer && self.is_allocatable();
        let has_changed = !dirty.is_empty();
        for at in dirty {
            let before = (Reverse(state.metaslabs[at].weight), at);
            let delta = state.metaslabs[at].sync_done(txg, (defer, remembers), &self.format);
            state.reorder(before);
            self.counts.add(&delta, self.log_metaslab == Some(at));
            if state.metaslabs[at].has_fresh_frees() {
                state.dirty[(txg.next().0 % TXG_SIZE as u64) as usize].insert(at);
            }
        }
        if has_changed {
            self.note_fragmentation(state);
        }
        for at in 0..state.metaslabs.len() {
            let metaslab = &state.metaslabs[at];
            let idle = metaslab.is_loaded() && metaslab.selected.0 + UNLOAD_TXGS < txg.0;
            if idle && !state.active.contains(&Some(at)) {
                let before = (Reverse(metaslab.weight), at);
                state.metaslabs[at].unload(&self.format);
                state.reorder(before);
            }
        }
    }

    /// Loads the `count` best metaslabs.
    #[doc(alias = "metaslab_group_preload")]
    pub(crate) fn preload(&self, txg: Txg, count: usize, store: &dyn SpaceMapStore) {
        let mut state = self.state.lock();
        let best: Vec<usize> = state.order.iter().take(count).map(|(_, at)| *at).collect();
        for at in best {
            let before = (Reverse(state.metaslabs[at].weight), at);
            // One that cannot be read has the lowest weight from now on; that is all that matters here.
            let _ = state.metaslabs[at].load(store, &self.format);
            state.metaslabs[at].selected = txg;
            state.reorder(before);
        }
    }

    /// Sets whether anything may be allocated here.
    pub(crate) fn set_allocatable(&self, is_allocatable: bool) {
        let _state = self.state.lock();
        self.is_allocatable.store(is_allocatable, Ordering::Relaxed);
    }

    pub(crate) fn is_allocatable(&self) -> bool {
        self.is_allocatable.load(Ordering::Relaxed)
    }

    /// What is allocated in one metaslab; `None` behind the last one.
    pub(crate) fn allocated_segments(
        &self,
        metaslab: u64,
        store: &dyn SpaceMapStore,
    ) -> Result<Option<RangeTree>> {
        let state = self.state.lock();
        let found = state.metaslabs.get(metaslab as usize);
        found
            .map(|found| found.allocated_segments(store))
            .transpose()
    }

    /// Calls `then` with what may hold a block in one metaslab; nothing is allocated or freed meanwhile.
    pub(crate) fn with_occupied<T>(
        &self,
        metaslab: u64,
        store: &dyn SpaceMapStore,
        then: impl FnOnce(RangeTree) -> T,
    ) -> Option<T> {
        let state = self.state.lock();
        let found = state.metaslabs.get(metaslab as usize)?;
        Some(then(found.occupied(store)))
    }

    /// The sum of the histograms of the space maps.
    #[doc(alias = "mg_histogram")]
    pub(crate) fn free_histogram(&self) -> [u64; HISTOGRAM_BUCKETS] {
        let mut sum = [0; HISTOGRAM_BUCKETS];
        let state = self.state.lock();
        let maps = state.metaslabs.iter().filter_map(|m| m.map.as_ref());
        for map in maps {
            let at = self.geometry.ashift as usize;
            for (bucket, count) in sum[at..].iter_mut().zip(map.histogram) {
                *bucket += count;
            }
        }
        sum
    }

    /// All metaslabs, but without the fragmentation of that for log blocks.
    pub(crate) fn stats(&self) -> SpaceStats {
        let (alloc, deferred) = self.counts.all();
        let space = if self.counts.is_new() {
            0
        } else {
            self.size_bytes
        };
        let fragmentation = self.fragmentation.load(Ordering::Relaxed);
        SpaceStats {
            fragmentation: Some(fragmentation).filter(|percent| *percent <= 100),
            ..self.space(alloc, deferred, space)
        }
    }

    /// What is not set aside for log blocks, without the fragmentation: called for every change of a file.
    pub(crate) fn usage(&self) -> SpaceStats {
        let (alloc, deferred) = self.counts.of_data();
        let space = match self.counts.is_new() {
            true => 0,
            false => self.size_bytes - self.log_bytes,
        };
        self.space(alloc, deferred, space)
    }

    /// What is set aside for log blocks.
    pub(crate) fn log_usage(&self) -> SpaceStats {
        let (alloc, deferred) = self.counts.of_log();
        let space = match self.counts.is_new() {
            true => 0,
            false => self.log_bytes,
        };
        self.space(alloc, deferred, space)
    }

    fn space(&self, alloc: u64, deferred: u64, space: u64) -> SpaceStats {
        SpaceStats {
            alloc,
            deferred,
            space,
            dalloc: self.deflate(alloc),
            ddeferred: self.deflate(deferred),
            dspace: self.deflate(space),
            fragmentation: None,
        }
    }

    #[doc(alias = "vdev_deflated_space")]
    fn deflate(&self, bytes: u64) -> u64 {
        (bytes >> SPA_MINBLOCKSHIFT) * self.deflate_ratio
    }

    fn note_fragmentation(&self, state: &State) {
        let percent = self.fragmentation_of(state).unwrap_or(u64::MAX);
        self.fragmentation.store(percent, Ordering::Relaxed);
    }

    #[doc(alias = "metaslab_group_fragmentation")]
    fn fragmentation_of(&self, state: &State) -> Option<u64> {
        let (mut known, mut free, mut weighted) = (0, 0u128, 0u128);
        let all = state.metaslabs.iter().enumerate();
        for (_, metaslab) in all.filter(|(at, _)| Some(*at) != self.log_metaslab) {
            if let Some(percent) = metaslab.fragmentation(&self.format) {
                let bytes = u128::from(metaslab.extent.size.saturating_sub(metaslab.allocated));
                known += 1;
                free += bytes;
                weighted += bytes * u128::from(percent);
            }
        }
        let enough = known >= state.metaslabs.len().div_ceil(2);
        (enough && free > 0).then(|| (weighted / free) as u64)
    }
}

impl State {
    /// Puts the active metaslab for copy `rank` back among the others.
    #[doc(alias = "metaslab_passivate")]
    fn passivate(&mut self, rank: usize, format: &MapFormat) {
        let at = self.active[rank].take().expect("an active metaslab");
        self.metaslabs[at].reweigh(format);
        self.order.insert((Reverse(self.metaslabs[at].weight), at));
    }

    /// Moves a metaslab whose weight was `before.0` to where it belongs, unless it is active.
    fn reorder(&mut self, before: (Reverse<Weight>, usize)) {
        if self.order.remove(&before) {
            let at = before.1;
            self.order.insert((Reverse(self.metaslabs[at].weight), at));
        }
    }
}

/// The metaslab of a vdev that is set aside for log blocks: the first of those in which the least is allocated.
#[doc(alias = "vdev_metaslab_init")]
fn log_metaslab(class: AllocClass, metaslabs: &[Metaslab]) -> Option<usize> {
    let sets_aside = matches!(class, AllocClass::Normal | AllocClass::Special);
    let is_large = metaslabs.len() > EMBEDDED_LOG_MIN_MS;
    let emptiest = metaslabs
        .iter()
        .enumerate()
        .min_by_key(|(_, metaslab)| metaslab.allocated);
    emptiest
        .filter(|_| sets_aside && is_large)
        .map(|(at, _)| at)
}
