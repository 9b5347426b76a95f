//! All metaslabs of a pool: the allocator that the pipeline talks to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Error, ErrorKind, ObjectId, Result, Txg, VdevId};
use phys::blkptr::DvaPhys;
use phys::space_map::MapType;
use zio::{AllocClass, Allocator, DvaSet, Hint, VdevOps};

use crate::class::{Class, total};
use crate::group::{Group, SpaceStats, VdevGeometry};
use crate::hold::{Held, Holds};
use crate::metaslab::{TXG_SIZE, slot};
use crate::range_tree::{HISTOGRAM_BUCKETS, RangeTree};
use crate::space_map::SpaceMapStore;

/// What the features of the pool say about space maps.
#[derive(Clone, Copy, Debug)]
pub struct MetaslabsOptions {
    /// `spacemap_v2` is active: long segments take one entry of two words.
    pub spacemap_v2: bool,
}

/// All free space of a pool.
pub struct Metaslabs {
    store: rt::RwLock<Option<Arc<dyn SpaceMapStore>>>,
    vdevs: Arc<dyn VdevOps>,
    options: MetaslabsOptions,
    topology: rt::RwLock<Topology>,
    /// The first error of a call that cannot return one; the next sync returns it.
    fault: rt::Mutex<Option<(ErrorKind, String)>>,
    /// Bytes that were free as of the last txg on disk, beyond what has to stay free.
    spare: AtomicU64,
    /// Bytes allocated in the txgs since.
    allocated: [AtomicU64; TXG_SIZE],
    /// Those of log blocks on normal vdevs, outside of what is set aside for them.
    allocated_log: [AtomicU64; TXG_SIZE],
    /// Whether small blocks of files may go to the special class, as of the last txg on disk.
    special_takes_data: AtomicBool,
    /// Whether nothing may be allocated from some vdevs.
    has_passive: AtomicBool,
    holds: Arc<Holds>,
    /// Whether it is remembered what was freed and not deleted on the devices since.
    remembers_untrimmed: AtomicBool,
}

#[derive(Default)]
struct Topology {
    groups: BTreeMap<VdevId, Arc<Group>>,
    classes: [Class; CLASSES.len()],
    /// Of the classes that set metaslabs aside for log blocks.
    embedded_logs: [Class; EMBEDDED_LOGS.len()],
}

const CLASSES: [AllocClass; 4] = [
    AllocClass::Normal,
    AllocClass::Log,
    AllocClass::Special,
    AllocClass::Dedup,
];

/// Those whose vdevs set metaslabs aside for log blocks.
const EMBEDDED_LOGS: [AllocClass; 2] = [AllocClass::Normal, AllocClass::Special];

/// Those whose space is for data: all but the log.
const DATA_CLASSES: [AllocClass; 3] = [AllocClass::Normal, AllocClass::Special, AllocClass::Dedup];

/// `zfs_special_class_metadata_reserve_pct`: small blocks of files leave this share of the special class free.
const METADATA_RESERVE_PERCENT: u64 = 25;

impl Metaslabs {
    /// No vdevs yet. The store may be set later ([`Metaslabs::set_store`]), since it is built on the
    /// pipeline, which needs its allocator first.
    #[must_use]
    pub fn new(vdevs: Arc<dyn VdevOps>, options: MetaslabsOptions) -> Self {
        Metaslabs {
            store: rt::RwLock::new(None),
            vdevs,
            options,
            topology: rt::RwLock::new(Topology::default()),
            fault: rt::Mutex::new(None),
            spare: AtomicU64::new(0),
            allocated: Default::default(),
            allocated_log: Default::default(),
            special_takes_data: AtomicBool::new(false),
            has_passive: AtomicBool::new(false),
            holds: Arc::default(),
            remembers_untrimmed: AtomicBool::new(false),
        }
    }

    /// What the features of the pool say about space maps.
    #[must_use]
    pub fn options(&self) -> MetaslabsOptions {
        self.options
    }

    /// Sets the store of the space maps; to be called before any vdev that has some is added, and before
    /// the first sync.
    pub fn set_store(&self, store: Arc<dyn SpaceMapStore>) {
        *self.store.write() = Some(store);
    }

    fn store(&self) -> Arc<dyn SpaceMapStore> {
        let store = self.store.read();
        Arc::clone(
            store
                .as_ref()
                .expect("set_store comes before the use of space maps"),
        )
    }

    /// Adds a vdev whose metaslab array is `objects` (0 or missing: no space map yet). With `is_new`,
    /// nothing is allocated from it before the next [`sync_done`](Self::sync_done), when the pool's
    /// configuration on disk contains it; not needed for the vdevs a pool is created with.
    ///
    /// # Errors
    /// Those of the store.
    #[doc(alias = "vdev_metaslab_init")]
    pub fn add_vdev(
        &self,
        geometry: VdevGeometry,
        objects: &[ObjectId],
        is_new: bool,
    ) -> Result<()> {
        let needs_store = objects.iter().any(|object| object.0 != 0);
        let store = if needs_store {
            self.store()
        } else {
            Arc::new(NoStore)
        };
        let group = Group::open(
            geometry,
            self.vdevs.deflate_ratio(geometry.id),
            self.options.spacemap_v2,
            objects,
            is_new,
            &*store,
        )
        .map_err(|error| error.within(format!("vdev {}", geometry.id)))?;
        let mut topology = self.topology.write();
        let old = topology.groups.insert(geometry.id, Arc::new(group));
        assert!(old.is_none(), "vdev {} is there already", geometry.id);
        topology.regroup();
        self.note_special(&topology);
        Ok(())
    }

    /// Stops or resumes allocating from a vdev: for one that is being evacuated or cannot be written.
    /// What is freed on such a vdev is not deferred.
    #[doc(alias = "metaslab_group_passivate")]
    pub fn set_allocatable(&self, vdev: VdevId, is_allocatable: bool) -> Result<()> {
        self.group(vdev)?.set_allocatable(is_allocatable);
        if !is_allocatable {
            self.has_passive.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether anything may be allocated from a vdev.
    ///
    /// # Errors
    /// `Corrupt` when there is no such vdev.
    pub fn is_allocatable(&self, vdev: VdevId) -> Result<bool> {
        Ok(self.group(vdev)?.is_allocatable())
    }

    /// Whether anything can be allocated from another vdev of this class.
    #[must_use]
    pub fn has_others(&self, class: AllocClass, vdev: VdevId) -> bool {
        let topology = self.topology.read();
        let mut groups = topology.class(class).groups.iter();
        groups.any(|group| group.geometry.id != vdev && group.is_allocatable())
    }

    /// Forgets a vdev that is not part of the pool any more: what was allocated there counts no longer.
    #[doc(alias = "vdev_metaslab_fini")]
    pub fn remove_vdev(&self, vdev: VdevId) {
        let mut topology = self.topology.write();
        topology.groups.remove(&vdev);
        topology.regroup();
        self.note_special(&topology);
    }

    /// The segments of one metaslab that are allocated now, in syncing context, in a vdev that nothing is allocated
    /// from: what its space map has, less what this txg has freed. `None` behind the last metaslab.
    ///
    /// # Errors
    /// Those of the store; `Corrupt` when there is no such vdev, or its space map contradicts itself.
    pub fn allocated_segments(&self, vdev: VdevId, metaslab: u64) -> Result<Option<RangeTree>> {
        self.group(vdev)?
            .allocated_segments(metaslab, &*self.store())
    }

    /// Disables a metaslab until the result is dropped; nothing is allocated there meanwhile. `None` behind the last
    /// one. In syncing context of `txg`.
    ///
    /// # Errors
    /// As [`allocated_segments`](Metaslabs::allocated_segments).
    #[doc(alias = "metaslab_disable")]
    pub fn hold_still(&self, vdev: VdevId, metaslab: u64, txg: Txg) -> Result<Option<Held>> {
        let group = self.group(vdev)?;
        let found = group.disable(metaslab, txg, &*self.store())?;
        Ok(found.map(|(free, was_used)| {
            Held::new(group, metaslab, free, was_used, Arc::clone(&self.holds))
        }))
    }

    /// Sets whether it is remembered from now on what was freed and not deleted on the devices since.
    pub fn remember_untrimmed(&self, remembers: bool) {
        self.remembers_untrimmed.store(remembers, Ordering::Relaxed);
        if !remembers {
            let groups = self.groups();
            groups.iter().for_each(|group| group.forget_untrimmed());
        }
    }

    /// Whether it is remembered.
    #[must_use]
    pub fn remembers_untrimmed(&self) -> bool {
        self.remembers_untrimmed.load(Ordering::Relaxed)
    }

    /// Disables a metaslab as [`hold_still`](Metaslabs::hold_still) does, with what was freed there and not deleted on
    /// the devices since, which is forgotten; `None` if there is nothing, or something else holds it.
    ///
    /// # Errors
    /// `Corrupt` when there is no such vdev.
    pub fn hold_untrimmed(&self, vdev: VdevId, metaslab: u64) -> Result<Option<Held>> {
        let group = self.group(vdev)?;
        let found = group.disable_untrimmed(metaslab);
        let holds = || Arc::clone(&self.holds);
        Ok(found.map(|free| Held::new(group, metaslab, free, true, holds())))
    }

    /// Whether anything was freed that cannot be allocated yet, or that older uberblocks lead to.
    #[must_use]
    pub fn is_maturing(&self) -> bool {
        let groups = self.groups();
        groups.iter().any(|group| group.is_maturing())
    }

    /// Whether so long a segment of a vdev waits to be deleted on the devices, or will when it is not deferred any
    /// more.
    ///
    /// # Errors
    /// `Corrupt` when there is no such vdev.
    pub fn awaits_trim(&self, vdev: VdevId, least_bytes: u64) -> Result<bool> {
        Ok(self.group(vdev)?.awaits_trim(least_bytes))
    }

    /// Whether an allocation waits for metaslabs that are [held](Metaslabs::hold_still).
    #[must_use]
    pub fn has_waiters(&self) -> bool {
        self.holds.has_waiters()
    }

    /// The segments of one metaslab that no block is in, nor was in the last two txgs.
    ///
    /// # Errors
    /// As [`allocated_segments`](Metaslabs::allocated_segments).
    pub fn long_free(&self, vdev: VdevId, metaslab: u64) -> Result<RangeTree> {
        self.group(vdev)?.long_free(metaslab, &*self.store())
    }

    /// Bytes of each metaslab of a vdev that are not allocated.
    ///
    /// # Errors
    /// `Corrupt` when there is no such vdev.
    pub fn free_bytes(&self, vdev: VdevId) -> Result<Vec<u64>> {
        Ok(self.group(vdev)?.free_bytes())
    }

    /// Calls `then` with all ranges of a metaslab that may hold a block, of whatever txg, before anything more is
    /// allocated on the vdev. `None` behind the last metaslab.
    ///
    /// # Errors
    /// `Corrupt` when there is no such vdev.
    pub fn with_occupied<T>(
        &self,
        vdev: VdevId,
        metaslab: u64,
        then: impl FnOnce(RangeTree) -> T,
    ) -> Result<Option<T>> {
        let group = self.group(vdev)?;
        Ok(group.with_occupied(metaslab, &*self.store(), then))
    }

    /// How many free segments of `1 << n` bytes and more, but less than twice that, the space maps of a vdev have.
    ///
    /// # Errors
    /// `Corrupt` when there is no such vdev.
    pub fn free_histogram(&self, vdev: VdevId) -> Result<[u64; HISTOGRAM_BUCKETS]> {
        Ok(self.group(vdev)?.free_histogram())
    }

    /// Space of normal vdevs that nothing is allocated from.
    #[must_use]
    #[doc(alias = "spa_nonallocating_dspace")]
    pub fn nonallocating(&self) -> SpaceStats {
        if !self.has_passive.load(Ordering::Relaxed) {
            return SpaceStats::default();
        }
        let topology = self.topology.read();
        let groups = topology.class(AllocClass::Normal).groups.iter();
        let passive = groups.filter(|group| !group.is_allocatable());
        total(passive.map(|group| group.usage()))
    }

    /// The metaslab that a segment is in.
    ///
    /// # Errors
    /// `Corrupt` when it is in none.
    pub fn metaslab_of(&self, vdev: VdevId, offset: u64, size: u64) -> Result<u64> {
        self.group(vdev)?.locate(offset, size).map(|at| at as u64)
    }

    /// Frees a segment as of `txg`.
    ///
    /// # Errors
    /// `Corrupt` when it is not allocated, or in no vdev.
    pub fn try_free(&self, txg: Txg, vdev: VdevId, offset: u64, size: u64) -> Result<()> {
        self.group(vdev)?.free(txg, offset, size)
    }

    /// Replays one entry of a log space map: oldest first, before anything is loaded.
    ///
    /// # Errors
    /// `Corrupt` when it is in no metaslab.
    #[doc(alias = "spa_ld_log_sm_cb")]
    pub fn replay_log_entry(
        &self,
        vdev: VdevId,
        kind: MapType,
        offset: u64,
        size: u64,
    ) -> Result<()> {
        self.group(vdev)?.log_entry(kind, offset, size)
    }

    /// To be called after the last entry is replayed.
    pub fn end_replay(&self) {
        for group in self.groups() {
            group.end_replay();
        }
    }

    /// Has `txg` write all replayed entries of log space maps to the space maps, after which the log
    /// space maps can be deleted.
    #[doc(alias = "spa_flush_metaslabs")]
    pub fn flush_log_entries(&self, txg: Txg) {
        for group in self.groups() {
            group.flush_log_entries(txg);
        }
    }

    /// One sync pass: writes what was allocated and freed since the last pass to the space maps. Returns
    /// whether there was anything; the txg has converged when there was not.
    ///
    /// # Errors
    /// Those of the store; an impossible free or unallocation since the last call. The txg cannot
    /// be completed then, and the allocator must not be used any more.
    pub fn sync(&self, txg: Txg, pass: u32) -> Result<bool> {
        if let Some((kind, context)) = &*self.fault.lock() {
            return Err(Error::new(*kind, context.clone()));
        }
        let mut wrote = false;
        for group in self.groups() {
            wrote |= group.sync(txg, pass, &*self.store())?;
        }
        Ok(wrote)
    }

    /// The txg is on disk. `slop_bytes`: while less than that is free, freed space is not deferred.
    /// `spare_bytes`: what one txg may waste; [`has_spare`](Allocator::has_spare) needs more than that
    /// free beyond the slop.
    pub fn sync_done(&self, txg: Txg, slop_bytes: u64, spare_bytes: u64) {
        let normal = self.class_stats(AllocClass::Normal);
        let passive = self.nonallocating();
        let unusable = passive.space.saturating_sub(passive.alloc);
        let free = normal.space.saturating_sub(normal.alloc + unusable);
        let defer = free > slop_bytes;
        let spare = free.saturating_sub(slop_bytes.saturating_add(spare_bytes));
        self.spare.store(spare, Ordering::Relaxed);
        self.allocated[slot(txg)].store(0, Ordering::Relaxed);
        self.allocated_log[slot(txg)].store(0, Ordering::Relaxed);
        let remembers = self.remembers_untrimmed();
        let topology = self.topology.read();
        for group in topology.groups.values() {
            group.sync_done(txg, defer, remembers);
        }
        topology.classes().for_each(Class::balance);
        self.note_special(&topology);
    }

    fn note_special(&self, topology: &Topology) {
        let special = topology.class(AllocClass::Special).usage();
        let limit = special.space / 100 * (100 - METADATA_RESERVE_PERCENT);
        let takes_data = special.alloc < limit;
        self.special_takes_data.store(takes_data, Ordering::Relaxed);
    }

    /// Checks this crate's invariants on the state in memory.
    ///
    /// # Panics
    /// When it does not hold.
    pub fn check_invariants(&self) {
        let groups = self.groups();
        groups.iter().for_each(|group| group.check_invariants());
    }

    /// Loads the `count` best metaslabs of each vdev, ahead of their use.
    pub fn preload(&self, txg: Txg, count: usize) {
        let store = self.store();
        for group in self.groups() {
            group.preload(txg, count, &*store);
        }
    }

    /// Space of one vdev.
    ///
    /// # Errors
    /// `Corrupt` when there is no such vdev.
    pub fn vdev_stats(&self, vdev: VdevId) -> Result<SpaceStats> {
        Ok(self.group(vdev)?.stats())
    }

    /// Space of a class, without its fallbacks, and without what it sets aside for log blocks.
    #[must_use]
    pub fn class_stats(&self, class: AllocClass) -> SpaceStats {
        self.topology.read().class(class).stats()
    }

    /// Whether the class has a vdev of its own.
    #[must_use]
    pub fn has_class(&self, class: AllocClass) -> bool {
        !self.topology.read().class(class).groups.is_empty()
    }

    /// Space of all classes but the log, with what they set aside for log blocks; the fragmentation is that of the
    /// normal class.
    #[must_use]
    #[doc(alias = "spa_prop_add_list")]
    pub fn evaluate(&self) -> SpaceStats {
        SpaceStats {
            fragmentation: self.class_stats(AllocClass::Normal).fragmentation,
            ..self.usage()
        }
    }

    /// As [`evaluate`](Metaslabs::evaluate), without the fragmentation, which requires a look at every
    /// metaslab.
    #[must_use]
    pub fn usage(&self) -> SpaceStats {
        let topology = self.topology.read();
        let data = DATA_CLASSES.map(|class| topology.class(class).usage());
        let logs = EMBEDDED_LOGS.map(|class| topology.embedded_log(class).usage());
        total(data.into_iter().chain(logs))
    }

    /// What the vdevs of a class set aside for log blocks.
    #[must_use]
    #[doc(alias = "spa_embedded_log_class")]
    pub fn embedded_log(&self, class: AllocClass) -> SpaceStats {
        self.topology.read().embedded_log(class).usage()
    }

    /// As [`class_stats`](Metaslabs::class_stats), without the fragmentation.
    #[must_use]
    pub fn class_usage(&self, class: AllocClass) -> SpaceStats {
        self.topology.read().class(class).usage()
    }

    /// Bytes of file data that normal vdevs cannot take yet, and can once a few txgs are synced: what is deferred, and
    /// log blocks of unsynced txgs.
    #[must_use]
    pub fn soon_free(&self) -> u64 {
        let load = |n: &AtomicU64| u128::from(n.load(Ordering::Relaxed));
        let log: u128 = self.allocated_log.iter().map(load).sum();
        let usage = self.class_usage(AllocClass::Normal);
        let log = log * u128::from(usage.dspace) / u128::from(usage.space.max(1));
        usage.ddeferred + log as u64
    }

    fn groups(&self) -> Vec<Arc<Group>> {
        self.topology.read().groups.values().cloned().collect()
    }

    fn group(&self, vdev: VdevId) -> Result<Arc<Group>> {
        let topology = self.topology.read();
        let group = topology.groups.get(&vdev).cloned();
        group.ok_or_else(|| Error::corrupt(format!("no vdev {vdev} to allocate from")))
    }

    /// Takes the result of a call that cannot return it: the next sync returns the first error.
    pub fn note_fault(&self, result: Result<()>) {
        if let Err(error) = result {
            let mut fault = self.fault.lock();
            fault.get_or_insert_with(|| (error.kind(), error.to_string()));
        }
    }

    fn allocate_in(&self, class: &Class, request: &Request<'_>) -> Option<DvaSet> {
        if class.groups.is_empty() {
            return None;
        }
        let mut set = DvaSet::new();
        for copy in 0..request.copies {
            let Some(dva) = self.allocate_copy(class, request, &set, copy) else {
                for dva in set.iter() {
                    let at = class.position(dva.vdev()).expect("it was allocated there");
                    let group = &class.groups[at];
                    self.note_fault(group.unallocate(request.txg, dva.offset(), dva.asize()));
                }
                return None;
            };
            set.push(dva);
        }
        Some(set)
    }

    /// Whether something that is disabled might serve the request.
    fn is_held_back(&self, topology: &Topology, class: AllocClass, request: &Request<'_>) -> bool {
        let mut groups = topology
            .in_turn(class, false)
            .flat_map(|class| &class.groups);
        groups.any(|group| {
            let vdev = group.geometry.id;
            let asize = self.vdevs.psize_to_asize(vdev, request.psize, request.txg);
            group.is_held_back(asize)
        })
    }

    /// `metaslab_alloc_dva`: from the vdev after that of the previous copy, or from the rotor's; failing that, from the
    /// others in turn.
    fn allocate_copy(
        &self,
        class: &Class,
        request: &Request<'_>,
        set: &DvaSet,
        copy: usize,
    ) -> Option<DvaPhys> {
        let count = class.groups.len();
        let before = set.as_slice().last();
        let before = before.and_then(|before| class.position(before.vdev()));
        let start = before.map_or_else(|| class.rotor(), |at| (at + 1) % count);
        for at in (0..count).map(|step| (start + step) % count) {
            let group = &class.groups[at];
            let vdev = group.geometry.id;
            let asize = self.vdevs.psize_to_asize(vdev, request.psize, request.txg);
            let taken: Vec<u64> = set
                .iter()
                .filter(|dva| dva.vdev() == vdev)
                .map(|dva| dva.offset())
                .collect();
            let offset = class.allocate(group, request.txg, asize, &taken, request.store);
            if copy == 0 {
                class.rotate(at, request.psize, offset.is_some());
            }
            if let Some(offset) = offset {
                return Some(DvaPhys::new(vdev, offset, asize, false));
            }
        }
        None
    }
}

struct Request<'a> {
    txg: Txg,
    psize: u64,
    copies: usize,
    store: &'a dyn SpaceMapStore,
}

impl Allocator for Metaslabs {
    fn allocate(
        &self,
        txg: Txg,
        class: AllocClass,
        psize: u64,
        copies: usize,
        hint: &Hint,
    ) -> Result<DvaSet> {
        assert!(
            (1..=base::SPA_DVAS_PER_BP).contains(&copies),
            "{copies} copies"
        );
        assert!(psize > 0, "a block has bytes");
        let store = self.store.read().clone();
        let request = Request {
            txg,
            psize,
            copies,
            store: store.as_deref().unwrap_or(&NoStore),
        };
        let (dvas, is_log) = loop {
            let ended = self.holds.ended();
            let topology = self.topology.read();
            let found = topology
                .in_turn(class, hint.keeps_to_logs)
                .find_map(|class| Some((class, self.allocate_in(class, &request)?)));
            if let Some((found, dvas)) = found {
                let normal = topology.class(AllocClass::Normal);
                break (
                    dvas,
                    class == AllocClass::Log && std::ptr::eq(found, normal),
                );
            }
            let is_held_back = !hint.keeps_to_logs && self.is_held_back(&topology, class, &request);
            drop(topology);
            if !is_held_back && self.holds.ended() == ended {
                let text = format!("no free segment of {psize} bytes for {copies} copies");
                return Err(Error::new(ErrorKind::NoSpace, text));
            }
            self.holds.wait_for_next(ended);
        };
        let asize: u64 = dvas.iter().map(|dva| dva.asize()).sum();
        self.allocated[slot(txg)].fetch_add(asize, Ordering::Relaxed);
        if is_log {
            self.allocated_log[slot(txg)].fetch_add(asize, Ordering::Relaxed);
        }
        Ok(dvas)
    }

    fn free(&self, txg: Txg, _birth: Txg, dva: &DvaPhys) {
        self.note_fault(self.try_free(txg, dva.vdev(), dva.offset(), dva.asize()));
    }

    fn unallocate(&self, txg: Txg, dva: &DvaPhys) {
        let done = self
            .group(dva.vdev())
            .and_then(|group| group.unallocate(txg, dva.offset(), dva.asize()));
        self.note_fault(done);
    }

    fn claim(&self, txg: Txg, dva: &DvaPhys) -> Result<()> {
        let group = self.group(dva.vdev())?;
        group.claim(txg, dva.offset(), dva.asize(), &*self.store())
    }

    fn special_takes_data(&self) -> bool {
        self.special_takes_data.load(Ordering::Relaxed)
    }

    fn has_spare(&self) -> bool {
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        load(&self.spare) > self.allocated.iter().map(load).sum()
    }

    fn min_alloc(&self) -> u64 {
        let topology = self.topology.read();
        let groups = &topology.class(AllocClass::Normal).groups;
        let smallest = groups.iter().map(|group| group.geometry.min_alloc).min();
        smallest.unwrap_or(base::SPA_MINBLOCKSIZE)
    }

    #[doc(alias = "vdev_spa_set_alloc")]
    fn gcd_alloc(&self) -> u64 {
        let topology = self.topology.read();
        let groups = &topology.class(AllocClass::Normal).groups;
        let all = groups.iter().map(|group| group.geometry.min_alloc);
        all.reduce(gcd).unwrap_or(base::SPA_MINBLOCKSIZE)
    }
}

/// The greatest common divisor.
fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Topology {
    fn class(&self, class: AllocClass) -> &Class {
        &self.classes[class as usize]
    }

    fn embedded_log(&self, class: AllocClass) -> &Class {
        let at = EMBEDDED_LOGS.iter().position(|one| *one == class);
        &self.embedded_logs[at.expect("a class that sets metaslabs aside")]
    }

    fn classes(&self) -> impl Iterator<Item = &Class> {
        self.classes.iter().chain(&self.embedded_logs)
    }

    /// Where a block of a class may go: where there is no device for dedup tables, they are metadata; log blocks
    /// prefer special devices to normal ones, and on each what is set aside for them; what does not fit into its class
    /// goes to the normal one, or, if `keeps_to_logs`, nowhere.
    #[doc(alias = "zio_alloc_zil")]
    fn in_turn(&self, class: AllocClass, keeps_to_logs: bool) -> impl Iterator<Item = &Class> {
        let own = self.class(class);
        let normal = self.class(AllocClass::Normal);
        let special = self.class(AllocClass::Special);
        let before: [Option<&Class>; 4] = match class {
            AllocClass::Normal => [None; 4],
            AllocClass::Log => [
                Some(own),
                Some(self.embedded_log(AllocClass::Special)),
                Some(special).filter(|_| !keeps_to_logs),
                Some(self.embedded_log(AllocClass::Normal)),
            ],
            AllocClass::Dedup if !own.groups.is_empty() => [Some(own), None, None, None],
            AllocClass::Dedup | AllocClass::Special => [Some(special), None, None, None],
        };
        let last = Some(normal).filter(|_| !keeps_to_logs);
        before.into_iter().flatten().chain(last)
    }

    /// Sorts the groups into their classes again.
    fn regroup(&mut self) {
        for (class, members) in CLASSES.iter().zip(&mut self.classes) {
            members.groups = self
                .groups
                .values()
                .filter(|group| group.geometry.class == *class)
                .cloned()
                .collect();
            members.balance();
        }
        for (class, members) in EMBEDDED_LOGS.iter().zip(&mut self.embedded_logs) {
            let own = &self.classes[*class as usize].groups;
            let large = own.iter().filter(|group| group.has_log_metaslab());
            members.groups = large.cloned().collect();
            members.is_embedded_log = true;
            members.balance();
        }
    }
}

/// Before the pool has a MOS: no metaslab has a space map.
struct NoStore;

impl SpaceMapStore for NoStore {
    fn create(&self, _: Txg, _: VdevId, _: base::MetaslabId) -> Result<crate::SpaceMapObject> {
        Err(no_store())
    }
    fn open(&self, _: ObjectId) -> Result<(crate::SpaceMapObject, phys::space_map::SpaceMapPhys)> {
        Err(no_store())
    }
    fn read(&self, _: ObjectId, _: u64, _: &mut [u8]) -> Result<()> {
        Err(no_store())
    }
    fn write(&self, _: Txg, _: ObjectId, _: u64, _: &[u8]) -> Result<()> {
        Err(no_store())
    }
    fn set_phys(&self, _: Txg, _: ObjectId, _: &phys::space_map::SpaceMapPhys) -> Result<()> {
        Err(no_store())
    }
    fn truncate(
        &self,
        _: Txg,
        _: VdevId,
        _: base::MetaslabId,
        _: ObjectId,
    ) -> Result<crate::SpaceMapObject> {
        Err(no_store())
    }
}

fn no_store() -> Error {
    Error::new(ErrorKind::NotFound, "the pool has no objects yet")
}
