//! The allocator as a whole, against a model that tracks every sector.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{ErrorKind, MetaslabId, ObjectId, Result, Txg, VdevId};
use phys::blkptr::DvaPhys;
use phys::space_map::{MapType, SpaceMapPhys};
use proptest::prelude::*;
use zio::{AllocClass, Allocator, Hint, Io, VdevOps};

use crate::{
    Held, Metaslabs, MetaslabsOptions, RangeTree, SpaceMapExtent, SpaceMapObject, SpaceMapStore,
    SpaceStats, VdevGeometry, load_free,
};

const MS_SHIFT: u32 = 16;
const ASHIFT: u32 = 9;
const BLOCK_BYTES: u32 = 512;

struct Object {
    bytes: Vec<u8>,
    phys: SpaceMapPhys,
    has_histogram: bool,
}

/// Space maps in memory; what is written can be read at once, as from the dirty MOS.
#[derive(Default)]
struct RamMaps(rt::Mutex<RamState>);

#[derive(Default)]
struct RamState {
    objects: BTreeMap<ObjectId, Object>,
    arrays: BTreeMap<VdevId, BTreeMap<u64, ObjectId>>,
    truncates: usize,
}

impl RamMaps {
    fn array(&self, vdev: VdevId, count: u64) -> Vec<ObjectId> {
        let state = self.0.lock();
        let array = state.arrays.get(&vdev);
        let number = |id| array.and_then(|a| a.get(&id).copied()).unwrap_or_default();
        (0..count).map(number).collect()
    }

    fn describe(&self, object: ObjectId) -> SpaceMapObject {
        SpaceMapObject {
            object,
            block_bytes: BLOCK_BYTES,
            has_histogram: self.0.lock().objects[&object].has_histogram,
        }
    }
}

impl SpaceMapStore for RamMaps {
    fn create(&self, _: Txg, vdev: VdevId, metaslab: MetaslabId) -> Result<SpaceMapObject> {
        let object = {
            let mut state = self.0.lock();
            let object = ObjectId(100 + state.objects.len() as u64);
            let fresh = Object {
                bytes: Vec::new(),
                phys: SpaceMapPhys::default(),
                has_histogram: true,
            };
            state.objects.insert(object, fresh);
            state
                .arrays
                .entry(vdev)
                .or_default()
                .insert(metaslab.0, object);
            object
        };
        Ok(self.describe(object))
    }

    fn open(&self, object: ObjectId) -> Result<(SpaceMapObject, SpaceMapPhys)> {
        Ok((self.describe(object), self.0.lock().objects[&object].phys))
    }

    fn read(&self, object: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        let state = self.0.lock();
        let from = offset as usize;
        buf.copy_from_slice(&state.objects[&object].bytes[from..from + buf.len()]);
        Ok(())
    }

    fn write(&self, _: Txg, object: ObjectId, offset: u64, entries: &[u8]) -> Result<()> {
        let mut state = self.0.lock();
        let bytes = &mut state.objects.get_mut(&object).unwrap().bytes;
        assert_eq!(
            bytes.len() as u64,
            offset,
            "space maps are only appended to"
        );
        bytes.extend_from_slice(entries);
        Ok(())
    }

    fn set_phys(&self, _: Txg, object: ObjectId, phys: &SpaceMapPhys) -> Result<()> {
        self.0.lock().objects.get_mut(&object).unwrap().phys = *phys;
        Ok(())
    }

    fn truncate(
        &self,
        _: Txg,
        _: VdevId,
        _: MetaslabId,
        object: ObjectId,
    ) -> Result<SpaceMapObject> {
        {
            let mut state = self.0.lock();
            state.truncates += 1;
            state.objects.get_mut(&object).unwrap().bytes.clear();
        }
        Ok(self.describe(object))
    }
}

/// Vdevs that only know sizes; vdev 9 is like a RAID-Z of three disks.
struct Sizes;

impl VdevOps for Sizes {
    fn read(
        &self,
        _: &Io,
        _: VdevId,
        _: u64,
        _: &mut [u8],
        _: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        unreachable!("the allocator does not read blocks")
    }
    fn write(&self, _: &Io, _: VdevId, _: u64, _: &[&[u8]]) -> Result<()> {
        unreachable!("the allocator does not write blocks")
    }
    fn flush(&self, _vdevs: &[VdevId]) -> Result<()> {
        Ok(())
    }
    fn psize_to_asize(&self, vdev: VdevId, psize: u64, _: Txg) -> u64 {
        let sectors = psize.div_ceil(1 << ASHIFT);
        match vdev.0 {
            9 => (sectors + sectors.div_ceil(2)).next_multiple_of(2) << ASHIFT,
            _ => sectors << ASHIFT,
        }
    }
    fn ashift(&self, _: VdevId) -> u32 {
        ASHIFT
    }
}

fn geometry(id: u64, metaslabs: u64, class: AllocClass) -> VdevGeometry {
    let asize = (metaslabs << MS_SHIFT) + 4096;
    VdevGeometry::new(VdevId(id), asize, ASHIFT, MS_SHIFT, class)
}

fn open(maps: &Arc<RamMaps>, vdevs: &[VdevGeometry], spacemap_v2: bool) -> Metaslabs {
    let metaslabs = Metaslabs::new(Arc::new(Sizes), MetaslabsOptions { spacemap_v2 });
    metaslabs.set_store(maps.clone());
    for vdev in vdevs {
        let array = maps.array(vdev.id, vdev.ms_count());
        metaslabs.add_vdev(*vdev, &array, false).unwrap();
    }
    metaslabs
}

/// What became of a sector.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sector {
    Free,
    Allocated,
    /// for the txg after the syncing one, which no space map knows of yet
    Early,
    Freed(u64),
}

struct Model {
    maps: Arc<RamMaps>,
    vdevs: Vec<VdevGeometry>,
    metaslabs: Metaslabs,
    spacemap_v2: bool,
    sectors: BTreeMap<u64, Vec<Sector>>,
    live: Vec<DvaPhys>,
    early: Vec<DvaPhys>,
    syncing: u64,
    /// whether sync passes allocate and free themselves, as writing the MOS does
    churn: bool,
    /// by vdev and sector, the txg that last freed it since the pool was opened
    freed_at: BTreeMap<(u64, u64), u64>,
    /// whether anything freed was not deferred
    was_full: bool,
}

impl Model {
    fn new(vdevs: &[VdevGeometry], spacemap_v2: bool) -> Self {
        let maps = Arc::new(RamMaps::default());
        let sectors = vdevs
            .iter()
            .map(|v| {
                (
                    v.id.0,
                    vec![Sector::Free; (v.ms_count() << (MS_SHIFT - ASHIFT)) as usize],
                )
            })
            .collect();
        Model {
            metaslabs: open(&maps, vdevs, spacemap_v2),
            maps,
            vdevs: vdevs.to_vec(),
            spacemap_v2,
            sectors,
            live: Vec::new(),
            early: Vec::new(),
            syncing: 4,
            churn: false,
            freed_at: BTreeMap::new(),
            was_full: false,
        }
    }

    /// What is to be deleted is free, and was for two txgs; and it is all that has just become free for so long.
    fn check_untrimmed(&self) {
        let syncing = self.syncing;
        let mut due = BTreeSet::new();
        for ((vdev, sector), freed) in &self.freed_at {
            if freed + 2 == syncing && self.sectors[vdev][*sector as usize] == Sector::Free {
                due.insert((*vdev, *sector));
            }
        }
        for vdev in &self.vdevs {
            for metaslab in 0..vdev.ms_count() {
                let Some(held) = self.metaslabs.hold_untrimmed(vdev.id, metaslab).unwrap() else {
                    continue;
                };
                for (start, size) in held.free().iter() {
                    for sector in start >> ASHIFT..(start + size) >> ASHIFT {
                        let key = (vdev.id.0, sector);
                        let freed = self.freed_at.get(&key).copied();
                        let state = self.sectors[&vdev.id.0][sector as usize];
                        assert!(
                            state == Sector::Free && freed.is_some_and(|txg| txg + 2 <= syncing),
                            "txg {syncing}: {key:?} is {state:?} and was freed in {freed:?}"
                        );
                        due.remove(&key);
                    }
                }
                if !(metaslab + syncing).is_multiple_of(3) {
                    held.put_untrimmed(held.free());
                }
            }
        }
        assert!(due.is_empty() || self.was_full, "forgotten: {due:?}");
    }

    fn span(&mut self, dva: &DvaPhys) -> &mut [Sector] {
        let (from, to) = (
            dva.offset() >> ASHIFT,
            (dva.offset() + dva.asize()) >> ASHIFT,
        );
        &mut self.sectors.get_mut(&dva.vdev().0).unwrap()[from as usize..to as usize]
    }

    fn allocate(&mut self, early: bool, class: AllocClass, psize: u64, copies: usize) -> bool {
        let txg = self.syncing + u64::from(early);
        let got = self
            .metaslabs
            .allocate(Txg(txg), class, psize, copies, &Hint::default());
        let set = match got {
            Ok(set) => set,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace);
                return false;
            }
        };
        assert_eq!(set.len(), copies);
        for dva in set.iter() {
            assert_eq!(dva.asize(), Sizes.psize_to_asize(dva.vdev(), psize, Txg(0)));
            for sector in self.span(&dva) {
                match *sector {
                    Sector::Allocated | Sector::Early => panic!("txg {txg}: {dva:?} is in use"),
                    Sector::Freed(t) => panic!("freed in {t}, reused in {txg}"),
                    Sector::Free => {}
                }
                *sector = if early {
                    Sector::Early
                } else {
                    Sector::Allocated
                };
            }
            if early {
                self.early.push(dva);
            } else {
                self.live.push(dva);
            }
        }
        true
    }

    fn free(&mut self, pick: usize) {
        if !self.live.is_empty() {
            let dva = self.live.swap_remove(pick % self.live.len());
            let txg = self.syncing;
            self.metaslabs.free(Txg(txg), Txg(txg), &dva);
            self.span(&dva).fill(Sector::Freed(txg));
            let sectors = dva.offset() >> ASHIFT..(dva.offset() + dva.asize()) >> ASHIFT;
            let freed = sectors.map(|sector| ((dva.vdev().0, sector), txg));
            self.freed_at.extend(freed);
        }
    }

    fn unallocate(&mut self, class: AllocClass, psize: u64) {
        let txg = Txg(self.syncing);
        if let Ok(set) = self
            .metaslabs
            .allocate(txg, class, psize, 2, &Hint::default())
        {
            set.iter()
                .for_each(|dva| self.metaslabs.unallocate(txg, &dva));
        }
    }

    /// Sync passes, in which the MOS is overwritten less and less, and the end of the txg.
    fn sync(&mut self) {
        for pass in 1..20 {
            if !self.metaslabs.sync(Txg(self.syncing), pass).unwrap() {
                break;
            }
            assert!(pass < 10, "sync does not converge");
            if pass < 4 && self.churn {
                self.allocate(false, AllocClass::Normal, 512, 1);
                self.free(pass as usize * 7);
            }
        }
        let normal = self.metaslabs.class_stats(AllocClass::Normal);
        self.metaslabs.sync_done(Txg(self.syncing), 0, 0);
        let syncing = self.syncing;
        for sector in self.sectors.values_mut().flatten() {
            let full = normal.space == normal.alloc;
            if matches!(sector, Sector::Freed(t) if *t + 2 <= syncing || (full && *t == syncing)) {
                *sector = Sector::Free;
            }
        }
        self.was_full |= normal.space == normal.alloc;
        self.check();
        if self.metaslabs.remembers_untrimmed() {
            self.metaslabs.check_invariants();
            self.check_untrimmed();
        }
        for dva in std::mem::take(&mut self.early) {
            self.span(&dva).fill(Sector::Allocated);
            self.live.push(dva);
        }
        self.syncing += 1;
    }

    fn check(&self) {
        for vdev in &self.vdevs {
            let sectors = &self.sectors[&vdev.id.0];
            let array = self.maps.array(vdev.id, vdev.ms_count());
            let per_ms = 1usize << (MS_SHIFT - ASHIFT);
            for (object, slice) in array.iter().zip(sectors.chunks(per_ms)) {
                if object.0 != 0 {
                    self.check_map(*object, slice);
                }
            }
            let stats = self.metaslabs.vdev_stats(vdev.id).unwrap();
            let count = |f: &dyn Fn(&Sector) -> bool| {
                (sectors.iter().filter(|s| f(s)).count() as u64) << ASHIFT
            };
            let deferred = count(&|s| matches!(s, Sector::Freed(_)));
            assert_eq!(stats.deferred, deferred);
            assert_eq!(stats.alloc, count(&|s| *s == Sector::Allocated) + deferred);
            assert_eq!(stats.space, (sectors.len() as u64) << ASHIFT);
        }
    }

    /// What classes have and what they set aside for log blocks is all that their vdevs have.
    fn check_classes(&self) {
        for class in [AllocClass::Normal, AllocClass::Special] {
            let own = self.vdevs.iter().filter(|vdev| vdev.class == class);
            let all: Vec<_> = own
                .map(|vdev| self.metaslabs.vdev_stats(vdev.id).unwrap())
                .collect();
            let parts = [
                self.metaslabs.class_usage(class),
                self.metaslabs.embedded_log(class),
            ];
            let bytes = |stats: &[SpaceStats]| {
                let sum = |of: fn(&SpaceStats) -> u64| -> u64 { stats.iter().map(of).sum() };
                (sum(|s| s.alloc), sum(|s| s.deferred), sum(|s| s.space))
            };
            assert_eq!(bytes(&parts), bytes(&all), "{class:?}");
        }
        self.metaslabs.check_invariants();
    }

    /// Checks that `object` on disk agrees with the model of its metaslab.
    fn check_map(&self, object: ObjectId, slice: &[Sector]) {
        let (described, phys) = self.maps.open(object).unwrap();
        let extent = SpaceMapExtent {
            start: 0,
            size: 1 << MS_SHIFT,
            shift: ASHIFT,
        };
        let free = load_free(&*self.maps, &described, phys.length.get(), &extent).unwrap();
        let mut want = RangeTree::new();
        for (at, sector) in slice.iter().enumerate() {
            if *sector != Sector::Allocated {
                want.add((at as u64) << ASHIFT, 1 << ASHIFT);
            }
        }
        assert_eq!(free, want);
        assert_eq!(phys.alloc.get() as u64, (1 << MS_SHIFT) - want.space());
        let low: u64 = (0..32)
            .map(|b| phys.histogram[b].get() << (b as u32 + ASHIFT))
            .sum();
        let unclaimed = |s: &&Sector| matches!(s, Sector::Free | Sector::Freed(_));
        let settled = (slice.iter().filter(unclaimed).count() as u64) << ASHIFT;
        assert!(
            low <= want.space(),
            "histogram counts {low} of {}",
            want.space()
        );
        assert!(
            settled == 0 || settled < low * 2,
            "histogram counts {low} of {settled}"
        );
        assert_eq!(phys.object.get(), object.0);
    }

    /// Opens the pool again from what is on disk: deferred space is free then.
    fn reload(&mut self) {
        let remembers = self.metaslabs.remembers_untrimmed();
        self.metaslabs = open(&self.maps, &self.vdevs, self.spacemap_v2);
        self.metaslabs.remember_untrimmed(remembers);
        self.freed_at.clear();
        for sector in self.sectors.values_mut().flatten() {
            if matches!(sector, Sector::Freed(_)) {
                *sector = Sector::Free;
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Allocate(bool, AllocClass, u64, usize),
    Free(usize),
    FreeMany(usize),
    Unallocate(u64),
    Sync,
    Reload,
    Preload,
}

fn op() -> impl Strategy<Value = Op> {
    let class = prop_oneof![
        4 => Just(AllocClass::Normal),
        1 => Just(AllocClass::Log),
        1 => Just(AllocClass::Special),
        1 => Just(AllocClass::Dedup),
    ];
    let psize = prop_oneof![4 => 1u64..4096, 3 => 1u64..20000, 1 => 1u64..70000];
    let copies = prop_oneof![4 => Just(1usize), 2 => Just(2), 1 => Just(3)];
    prop_oneof![
        12 => (any::<bool>(), class, psize.clone(), copies)
            .prop_map(|(early, class, psize, copies)| Op::Allocate(early, class, psize, copies)),
        6 => any::<usize>().prop_map(Op::Free),
        1 => (1usize..20).prop_map(Op::FreeMany),
        1 => psize.prop_map(Op::Unallocate),
        3 => Just(Op::Sync),
        1 => Just(Op::Reload),
        1 => Just(Op::Preload),
    ]
}

fn run(model: &mut Model, ops: Vec<Op>) {
    for op in ops {
        match op {
            Op::Allocate(early, class, psize, copies) => {
                model.allocate(early, class, psize, copies);
            }
            Op::Free(pick) => model.free(pick),
            Op::FreeMany(count) => (0..count).for_each(|at| model.free(at * 13)),
            Op::Unallocate(psize) => model.unallocate(AllocClass::Normal, psize),
            Op::Sync => {
                model.sync();
                model.check_classes();
            }
            Op::Reload => {
                model.sync();
                model.sync();
                model.reload();
            }
            Op::Preload => model.metaslabs.preload(Txg(model.syncing), 2),
        }
    }
    model.sync();
    model.sync();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn prop_no_sector_is_given_out_twice_or_too_soon(
        ops in prop::collection::vec(op(), 1..300),
        spacemap_v2 in any::<bool>(),
        special in any::<bool>(),
        large in any::<bool>(),
    ) {
        // One of so many metaslabs is set aside for log blocks.
        let count = |few| if large { few + 62 } else { few };
        let mut vdevs = vec![
            geometry(0, count(5), AllocClass::Normal),
            geometry(9, 4, AllocClass::Normal),
        ];
        if special {
            vdevs.push(geometry(3, count(3), AllocClass::Special));
            vdevs.push(geometry(4, 2, AllocClass::Log));
        }
        let mut model = Model::new(&vdevs, spacemap_v2);
        model.churn = true;
        run(&mut model, ops);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn prop_what_was_freed_is_to_be_deleted_two_txgs_later(
        ops in prop::collection::vec(op(), 1..300),
    ) {
        let vdevs = [geometry(0, 5, AllocClass::Normal), geometry(9, 4, AllocClass::Normal)];
        let mut model = Model::new(&vdevs, true);
        model.metaslabs.remember_untrimmed(true);
        model.churn = true;
        run(&mut model, ops);
    }
}

fn one_vdev(metaslabs: u64) -> Model {
    Model::new(&[geometry(0, metaslabs, AllocClass::Normal)], true)
}

#[test]
fn everything_can_be_allocated_and_freed_again() {
    let mut model = one_vdev(3);
    let mut count = 0;
    while model.allocate(false, AllocClass::Normal, 1024, 1) {
        count += 1;
    }
    assert_eq!(count, 3 << (MS_SHIFT - 10));
    model.sync();
    while !model.live.is_empty() {
        model.free(0);
    }
    assert!(
        !model.allocate(false, AllocClass::Normal, 512, 1),
        "nothing is free yet"
    );
    for _ in 0..3 {
        model.sync();
    }
    let whole = 1 << MS_SHIFT;
    assert!((0..3).all(|_| model.allocate(false, AllocClass::Normal, whole, 1)));
}

#[test]
fn freed_space_comes_back_two_txgs_later() {
    let mut model = one_vdev(2);
    let nearly_all = [1 << MS_SHIFT, (1 << MS_SHIFT) - 512];
    assert!(
        nearly_all
            .iter()
            .all(|size| model.allocate(false, AllocClass::Normal, *size, 1))
    );
    model.sync();
    model.free(0);
    for _ in 0..3 {
        assert!(!model.allocate(false, AllocClass::Normal, 1024, 1));
        model.sync();
    }
    assert!(model.allocate(false, AllocClass::Normal, 1024, 1));
}

#[test]
fn freed_space_comes_back_at_once_when_space_is_short() {
    let mut model = one_vdev(2);
    while model.allocate(false, AllocClass::Normal, 4096, 1) {}
    model.sync();
    model.free(3);
    model.metaslabs.sync(Txg(model.syncing), 1).unwrap();
    model.metaslabs.sync_done(Txg(model.syncing), 1 << 20, 0);
    let got = model
        .metaslabs
        .allocate(Txg(6), AllocClass::Normal, 4096, 1, &Hint::default());
    assert_eq!(got.unwrap().len(), 1);
}

#[test]
fn sequential_allocations_lie_side_by_side() {
    let mut model = one_vdev(8);
    for _ in 0..30 {
        model.allocate(false, AllocClass::Normal, 2048, 1);
    }
    let offsets: Vec<u64> = model.live.iter().map(DvaPhys::offset).collect();
    assert!(
        offsets.windows(2).all(|w| w[1] == w[0] + 2048),
        "{offsets:?}"
    );
}

#[test]
fn copies_go_to_other_vdevs_or_far_away() {
    let two = [
        geometry(0, 4, AllocClass::Normal),
        geometry(1, 4, AllocClass::Normal),
    ];
    let mut model = Model::new(&two, true);
    model.allocate(false, AllocClass::Normal, 512, 2);
    assert_ne!(model.live[0].vdev(), model.live[1].vdev());
    let mut model = one_vdev(16);
    for _ in 0..20 {
        model.allocate(false, AllocClass::Normal, 512, 3);
    }
    let eighth = (16u64 << MS_SHIFT) >> 3;
    for block in model.live.chunks(3) {
        let far = |a: usize, b: usize| block[a].offset().abs_diff(block[b].offset());
        assert!(far(0, 1) >= eighth - (1 << MS_SHIFT), "{block:?}");
        assert!(far(1, 2) >= eighth - (1 << MS_SHIFT), "{block:?}");
        assert!(far(0, 2) >= eighth - (1 << MS_SHIFT), "{block:?}");
    }
}

#[test]
fn writing_goes_round_the_vdevs() {
    let ids = [0, 1, 2];
    let big = |id| VdevGeometry::new(VdevId(id), 1 << 30, ASHIFT, 26, AllocClass::Normal);
    let metaslabs = open(&Arc::default(), &ids.map(big), true);
    let mut per_vdev = [0u64; 3];
    for _ in 0..300 {
        let set = metaslabs.allocate(Txg(4), AllocClass::Normal, 128 << 10, 1, &Hint::default());
        per_vdev[set.unwrap().as_slice()[0].vdev().0 as usize] += 1;
    }
    assert!(
        per_vdev.iter().all(|n| n.abs_diff(100) <= 16),
        "{per_vdev:?}"
    );
}

#[test]
fn log_blocks_fall_back_to_normal_vdevs() {
    let mut model = one_vdev(2);
    assert!(!model.metaslabs.has_class(AllocClass::Log));
    assert!(model.allocate(false, AllocClass::Log, 4096, 1));
    assert!(model.allocate(false, AllocClass::Dedup, 4096, 1));
}

/// The metaslabs that blocks of a class go to until none is left.
fn filled(model: &mut Model, class: AllocClass) -> BTreeSet<(u64, u64)> {
    let before = model.live.len();
    while model.allocate(false, class, 1 << (MS_SHIFT - 2), 1) {}
    let new = model.live[before..].iter();
    new.map(|dva| (dva.vdev().0, dva.offset() >> MS_SHIFT))
        .collect()
}

#[test]
fn one_metaslab_of_a_large_vdev_is_set_aside_for_log_blocks() {
    let mut small = one_vdev(64);
    assert_eq!(small.metaslabs.embedded_log(AllocClass::Normal).space, 0);
    assert_eq!(filled(&mut small, AllocClass::Normal).len(), 64);

    let mut model = one_vdev(65);
    let space = |stats: SpaceStats| stats.space >> MS_SHIFT;
    assert_eq!(space(model.metaslabs.embedded_log(AllocClass::Normal)), 1);
    assert_eq!(space(model.metaslabs.class_usage(AllocClass::Normal)), 64);
    assert_eq!(space(model.metaslabs.usage()), 65);
    // What is not a log block does not go there, however little is left.
    let normal = filled(&mut model, AllocClass::Normal);
    assert_eq!(normal.len(), 64);
    let log = filled(&mut model, AllocClass::Log);
    assert!(log.len() == 1 && log.is_disjoint(&normal), "{log:?}");
    model.sync();
    let embedded = model.metaslabs.embedded_log(AllocClass::Normal);
    assert_eq!(embedded.alloc, 1 << MS_SHIFT);
    // The emptiest one, when the pool is next opened.
    let chosen = *normal.iter().nth(17).unwrap();
    let at = |dva: &DvaPhys| (dva.vdev().0, dva.offset() >> MS_SHIFT);
    let pick = |model: &Model| model.live.iter().position(|dva| at(dva) == chosen);
    while let Some(at) = pick(&model) {
        model.free(at);
    }
    for _ in 0..4 {
        model.sync();
    }
    model.reload();
    assert!(!model.allocate(false, AllocClass::Normal, 512, 1));
    assert_eq!(
        filled(&mut model, AllocClass::Log),
        BTreeSet::from([chosen])
    );
}

#[test]
fn log_blocks_prefer_what_is_set_aside_for_them_on_special_vdevs_and_then_on_normal_ones() {
    let vdevs = [
        geometry(0, 65, AllocClass::Normal),
        geometry(1, 65, AllocClass::Special),
    ];
    let mut model = Model::new(&vdevs, true);
    let whole = 1 << MS_SHIFT;
    let mut places = Vec::new();
    while model.allocate(false, AllocClass::Log, whole, 1) {
        let dva = model.live.last().unwrap();
        places.push((dva.vdev().0, dva.offset() >> MS_SHIFT));
    }
    let vdev_of: Vec<u64> = places.iter().map(|place| place.0).collect();
    let expected = [vec![1; 65], vec![0; 65]].concat();
    assert_eq!(vdev_of, expected);
    // The first of each is the one that others do not get.
    let mut model = Model::new(&vdevs, true);
    let others = filled(&mut model, AllocClass::Special);
    assert!(!others.contains(&places[0]) && !others.contains(&places[65]));
    assert_eq!(others.len(), 128);
}

#[test]
fn claims_take_what_is_free_and_nothing_else() {
    let model = one_vdev(2);
    let dva = DvaPhys::new(VdevId(0), 1 << MS_SHIFT, 4096, false);
    model.metaslabs.claim(Txg(4), &dva).unwrap();
    let again = model.metaslabs.claim(Txg(4), &dva).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Corrupt);
    for (vdev, offset) in [
        (7, 0),
        (0, 2 << MS_SHIFT),
        (0, 100),
        (0, (1 << MS_SHIFT) - 512),
    ] {
        let outside = DvaPhys::new(VdevId(vdev), offset & !511, 4096, false);
        assert!(model.metaslabs.claim(Txg(4), &outside).is_err() || offset == 100);
    }
    assert!(model.metaslabs.sync(Txg(4), 1).unwrap());
    model.metaslabs.sync_done(Txg(4), 0, 0);
    assert_eq!(model.metaslabs.evaluate().alloc, 4096 * 2);
    let all = model.metaslabs.evaluate();
    let usage = model.metaslabs.usage();
    assert_eq!(
        (usage.alloc, usage.space, usage.dspace),
        (all.alloc, all.space, all.dspace)
    );
}

#[test]
fn spare_space_is_what_no_txg_has_taken_yet() {
    let model = one_vdev(2);
    let metaslabs = &model.metaslabs;
    let allocate = |txg| {
        let set = metaslabs.allocate(Txg(txg), AllocClass::Normal, 4096, 1, &Hint::default());
        set.unwrap().iter().map(|dva| dva.asize()).sum::<u64>()
    };
    assert!(
        !metaslabs.has_spare(),
        "nothing is known before the first sync"
    );
    let asize = allocate(4);
    assert!(metaslabs.sync(Txg(4), 1).unwrap());
    let all = metaslabs.class_stats(AllocClass::Normal);
    let slop = 10 * asize;
    let spare = all.space - all.alloc - slop - 5 * asize / 2;
    metaslabs.sync_done(Txg(4), slop, spare);
    // Two and a half blocks beyond slop and spare: for this txg and the next one together.
    for txg in [5, 6, 6] {
        assert!(metaslabs.has_spare());
        allocate(txg);
    }
    assert!(!metaslabs.has_spare());
    assert!(metaslabs.sync(Txg(5), 1).unwrap());
    metaslabs.sync_done(Txg(5), slop, spare);
    assert!(!metaslabs.has_spare(), "what txg 6 has taken counts on");
    metaslabs.sync_done(Txg(5), slop, spare - 2 * asize);
    assert!(metaslabs.has_spare());
}

#[test]
fn freeing_twice_stops_the_next_sync() {
    let mut model = one_vdev(2);
    model.allocate(false, AllocClass::Normal, 4096, 1);
    model.sync();
    let dva = model.live[0];
    model.metaslabs.free(Txg(5), Txg(5), &dva);
    model.metaslabs.free(Txg(5), Txg(5), &dva);
    let error = model.metaslabs.sync(Txg(5), 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[test]
fn long_space_maps_are_condensed() {
    let mut model = one_vdev(2);
    for round in 0..400 {
        model.allocate(false, AllocClass::Normal, 512 + round, 1);
        if round > 10 {
            model.free(round as usize);
        }
        model.sync();
    }
    assert!(model.maps.0.lock().truncates > 0);
    let longest = model
        .maps
        .0
        .lock()
        .objects
        .values()
        .map(|o| o.bytes.len())
        .max();
    assert!(longest.unwrap() < 5 << 10, "{longest:?}");
}

#[test]
fn a_space_map_that_contradicts_itself_is_left_alone() {
    let mut model = one_vdev(2);
    model.allocate(false, AllocClass::Normal, 4096, 1);
    model.sync();
    {
        let mut state = model.maps.0.lock();
        let object = state.objects.values_mut().next().unwrap();
        let entry = object.bytes[8..16].to_vec();
        object.bytes.extend(entry);
        let length = object.bytes.len() as u64;
        object.phys.length.set(length);
    }
    model.reload();
    let dva = model.live[0];
    let error = model.metaslabs.claim(Txg(9), &dva).unwrap_err();
    assert!(error.to_string().contains("twice"), "{error}");
    let set = model
        .metaslabs
        .allocate(Txg(9), AllocClass::Normal, 512, 1, &Hint::default());
    assert!(set.unwrap().as_slice()[0].offset() >= 1 << MS_SHIFT);
}

#[test]
fn log_space_maps_are_replayed_and_flushed() {
    let mut model = one_vdev(2);
    for _ in 0..4 {
        model.allocate(false, AllocClass::Normal, 4096, 1);
    }
    model.sync();
    model.reload();
    let entry = |kind, offset| {
        model
            .metaslabs
            .replay_log_entry(VdevId(0), kind, offset, 4096)
            .unwrap();
    };
    entry(MapType::Free, 4096);
    entry(MapType::Alloc, 4 * 4096);
    entry(MapType::Free, 2 * 4096);
    entry(MapType::Alloc, 2 * 4096);
    assert_eq!(model.metaslabs.evaluate().alloc, 4 * 4096);
    let before = model.live.clone();
    model.live = vec![0, 2, 3, 4]
        .into_iter()
        .map(|at| DvaPhys::new(VdevId(0), at * 4096, 4096, false))
        .collect();
    before
        .iter()
        .for_each(|dva| model.span(dva).fill(Sector::Free));
    for dva in model.live.clone() {
        model.span(&dva).fill(Sector::Allocated);
    }
    model.metaslabs.end_replay();
    model.metaslabs.flush_log_entries(Txg(model.syncing));
    model.sync();
    assert!(model.allocate(false, AllocClass::Normal, 4096, 1));
    model.sync();
    model.reload();
    model.sync();
}

#[test]
fn new_vdevs_wait_for_their_txg() {
    let mut model = one_vdev(2);
    let vdev = geometry(1, 2, AllocClass::Special);
    model.metaslabs.add_vdev(vdev, &[], true).unwrap();
    model.allocate(false, AllocClass::Special, 512, 1);
    assert_eq!(model.live[0].vdev(), VdevId(0));
    model.sync();
    let set = model
        .metaslabs
        .allocate(Txg(5), AllocClass::Special, 512, 1, &Hint::default());
    assert_eq!(set.unwrap().as_slice()[0].vdev(), VdevId(1));
}

#[test]
fn a_vdev_that_is_leaving_gets_nothing() {
    let two = [
        geometry(0, 2, AllocClass::Normal),
        geometry(1, 2, AllocClass::Normal),
    ];
    let mut model = Model::new(&two, true);
    model.metaslabs.set_allocatable(VdevId(0), false).unwrap();
    while model.allocate(false, AllocClass::Normal, 4096, 1) {}
    assert!(model.live.iter().all(|dva| dva.vdev() == VdevId(1)));
}

/// The lock of a group is held while a metaslab is loaded, which in a suspended pool takes until it is resumed.
#[test]
fn sim_how_much_is_in_use_is_told_while_a_group_is_locked() {
    rt::simulate(1, || {
        let two = [0, 1].map(|n| geometry(n, 2, AllocClass::Normal));
        let metaslabs = open(&Arc::default(), &two, true);
        metaslabs.set_allocatable(VdevId(0), false).unwrap();
        let ask = |_| {
            let all = metaslabs.class_usage(AllocClass::Normal);
            let one = metaslabs.vdev_stats(VdevId(0)).unwrap();
            assert_eq!((one.space, one.fragmentation), (all.space / 2, Some(0)));
            (all.space, metaslabs.nonallocating().space)
        };
        let told = metaslabs.with_occupied(VdevId(0), 0, ask).unwrap();
        let (all, leaving) = told.expect("there is such a metaslab");
        assert_eq!(all, 2 * leaving);
        assert!(leaving > 0);
    });
}

#[test]
fn fifty_thousand_blocks_take_no_time() {
    let vdev = VdevGeometry::new(VdevId(0), 4 << 30, 12, 28, AllocClass::Normal);
    let metaslabs = open(&Arc::default(), &[vdev], true);
    for n in 0..50_000u64 {
        let set = metaslabs.allocate(
            Txg(4),
            AllocClass::Normal,
            512 + n % 9000,
            2,
            &Hint::default(),
        );
        assert_eq!(set.unwrap().len(), 2);
    }
    assert!(metaslabs.sync(Txg(4), 1).unwrap());
    metaslabs.sync_done(Txg(4), 0, 0);
}

/// Metaslab 0 of the only vdev, held in the txg that is being synced.
fn hold(model: &Model, metaslab: u64) -> Held {
    let held = model
        .metaslabs
        .hold_still(VdevId(0), metaslab, Txg(model.syncing));
    held.unwrap().expect("there is such a metaslab")
}

#[test]
fn nothing_is_allocated_from_a_metaslab_that_is_held() {
    let mut model = one_vdev(2);
    assert!(model.allocate(false, AllocClass::Normal, 4096, 1));
    let active = model.live[0].offset() >> MS_SHIFT;
    let held = hold(&model, active);
    assert_eq!(held.free().space(), (1 << MS_SHIFT) - 4096);
    assert!(!held.was_used(), "nothing is on disk yet");
    for _ in 0..4 {
        assert!(model.allocate(false, AllocClass::Normal, 8192, 1));
    }
    let is_there = |dva: &&DvaPhys| dva.offset() >> MS_SHIFT == active;
    assert_eq!(model.live.iter().filter(is_there).count(), 1);
    drop(held);
    model.sync();
    assert!(hold(&model, active).was_used());
    let behind = model.metaslabs.hold_still(VdevId(0), 2, Txg(5));
    assert!(behind.unwrap().is_none());
}

#[test]
fn sim_an_allocation_that_finds_nothing_else_waits_for_what_is_held() {
    rt::simulate(1, || {
        let model = one_vdev(2);
        let metaslabs = Arc::new(model.metaslabs);
        let hold = |n| metaslabs.hold_still(VdevId(0), n, Txg(4)).unwrap().unwrap();
        let held = [hold(0), hold(1)];
        let theirs = Arc::clone(&metaslabs);
        let waiter = rt::spawn("allocates", move || {
            theirs
                .allocate(Txg(5), AllocClass::Normal, 4096, 1, &Hint::default())
                .unwrap()
        });
        rt::sleep_ns(1_000_000);
        assert!(metaslabs.has_waiters());
        drop(held);
        assert_eq!(waiter.join().len(), 1);
        assert!(!metaslabs.has_waiters());
        let held = hold(0);
        let too_large = metaslabs.allocate(
            Txg(5),
            AllocClass::Normal,
            2 << MS_SHIFT,
            1,
            &Hint::default(),
        );
        assert_eq!(too_large.unwrap_err().kind(), ErrorKind::NoSpace);
        drop(held);
    });
}

/// Also when it was not deferred because space was short.
#[test]
fn what_was_just_freed_is_not_long_free() {
    for slop_bytes in [0, 1 << 20] {
        let mut model = one_vdev(1);
        model.metaslabs.remember_untrimmed(true);
        for _ in 0..4 {
            assert!(model.allocate(false, AllocClass::Normal, 4096, 1));
        }
        let end = |model: &mut Model| {
            let txg = Txg(model.syncing);
            for pass in 1..3 {
                model.metaslabs.sync(txg, pass).unwrap();
            }
            model.metaslabs.sync_done(txg, slop_bytes, 0);
            model.syncing += 1;
        };
        end(&mut model);
        let dva = model.live[0];
        model.metaslabs.free(Txg(model.syncing), Txg(1), &dva);
        let untrimmed = |model: &Model| model.metaslabs.hold_untrimmed(VdevId(0), 0).unwrap();
        for _ in 0..3 {
            let held = hold(&model, 0);
            assert!(!held.free().overlaps(dva.offset(), dva.asize()));
            drop(held);
            assert!(untrimmed(&model).is_none());
            end(&mut model);
        }
        let held = untrimmed(&model).unwrap();
        assert!(held.free().contains(dva.offset(), dva.asize()));
        drop(held);
        assert!(hold(&model, 0).free().contains(dva.offset(), dva.asize()));
    }
}
