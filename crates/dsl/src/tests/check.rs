//! Recomputes the DSL's accounts from scratch.

use phys::pool_names;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use zap::directory;

use base::{ObjectId, ObjsetId, Txg};
use dmu::traverse::{Link, Order, Scope, Step, Visitor, traverse};
use phys::BlkPtrPhys;

use super::harness::TestPool;
use crate::bpobj::Bpobj;
use crate::dataset::DslDataset;
use crate::dir::{DslDir, Used};
use crate::limits::Counts;
use crate::pool::DslPool;
use crate::size::Space;
use phys::feature;

/// Blocks by location.
type Blocks = BTreeMap<u64, BlkPtrPhys>;

struct Collect<'a> {
    pool: &'a DslPool,
    blocks: Blocks,
}

impl Visitor for Collect<'_> {
    fn read(&mut self, link: &Link<'_>) -> base::Result<base::Buf> {
        self.pool.store().read(link.bp, &link.at)
    }

    fn enter(&mut self, link: &Link<'_>) -> Step {
        let bp = link.bp;
        if !bp.is_embedded() {
            let before = self.blocks.insert(bp.dva[0].offset(), *bp);
            assert!(before.is_none(), "a block in two places of one tree");
        }
        Step::Continue
    }
}

fn blocks_of(pool: &DslPool, root: &BlkPtrPhys) -> Blocks {
    let blocks = Blocks::new();
    let mut collect = Collect { pool, blocks };
    let scope = Scope {
        objset: ObjsetId(0),
        min_txg: Txg(0),
        order: Order::Pre,
        resume: None,
        always_accounts: false,
    };
    let end = traverse(root, &scope, &mut collect);
    assert!(end.is_ok(), "tree of {root:?}: {end:?}");
    collect.blocks
}

fn space_of<'a>(pool: &DslPool, blocks: impl IntoIterator<Item = &'a BlkPtrPhys>) -> Space {
    blocks
        .into_iter()
        .map(|bp| Space::of_block(pool.mos().env(), bp))
        .sum()
}

/// Adds the blocks of a head's log.
pub(super) fn add_log_blocks(pool: &Arc<DslPool>, dd: &Arc<DslDir>, blocks: &mut BTreeSet<u64>) {
    let Some(head) = pool.head_of(dd).unwrap() else {
        return;
    };
    if !head.root_bp().is_hole() {
        let header = head.objset().unwrap().zil_header();
        let store = pool.log_store().as_ref();
        zil::parse(store, head.objset_id(), &header, &mut LogBlocks(blocks)).unwrap();
    }
}

struct LogBlocks<'a>(&'a mut BTreeSet<u64>);

impl zil::Visitor for LogBlocks<'_> {
    fn block(&mut self, bp: &BlkPtrPhys) -> base::Result<()> {
        self.0.insert(bp.dva[0].offset());
        Ok(())
    }
}

/// Everything known about one dataset.
struct Seen {
    ds: Arc<DslDataset>,
    blocks: Blocks,
}

/// Objects of the MOS that are referenced, and the number of empty bpobjs in use.
#[derive(Default)]
struct Objects {
    used: BTreeSet<ObjectId>,
    empties: u64,
}

/// Checks all invariants of a pool that has nothing left to free.
pub(crate) fn check(test: &TestPool) {
    let pool = &test.pool;
    let mut seen = BTreeMap::<u64, Seen>::new();
    let mut objects = Objects::default();
    objects.use_it(1);
    let dirs = pool.subtree(pool.root_dir()).unwrap();
    for dd in &dirs {
        check_dir(pool, dd, &mut objects, &mut seen);
    }
    for one in seen.values() {
        check_dataset(pool, one, &seen);
        check_bookmarks(test, one, &seen);
    }
    check_counts(test, &dirs);
    dirs.iter().for_each(|dd| check_below(pool, dd));
    for dd in &dirs {
        check_space(pool, dd, &seen);
    }
    check_store(test, &seen);
    check_objects(test, objects);
}

impl Objects {
    fn use_it(&mut self, object: u64) {
        if object != 0 {
            assert!(
                self.used.insert(ObjectId(object)),
                "object {object} is used twice"
            );
        }
    }

    fn use_bpobj(&mut self, pool: &DslPool, object: ObjectId) {
        if Some(object) == pool.mos().empty_bpobj() {
            self.empties += 1;
            return;
        }
        self.use_it(object.0);
        let bpobj = Bpobj::open(pool.mos(), object).unwrap();
        let header = bpobj.header();
        self.use_it(header.subobjs);
        let mut total = Space::ZERO;
        bpobj
            .iterate(&mut |bp, _| {
                total += Space::of_block(pool.mos().env(), bp);
                Ok(())
            })
            .unwrap();
        assert_eq!(bpobj.space().unwrap(), total, "space of bpobj {object}");
        for sub in bpobj.subobjs(&header).unwrap() {
            self.use_bpobj(pool, sub);
        }
    }
}

fn check_dir(
    pool: &Arc<DslPool>,
    dd: &Arc<DslDir>,
    objects: &mut Objects,
    seen: &mut BTreeMap<u64, Seen>,
) {
    let fields = dd.fields();
    objects.use_it(dd.object().0);
    objects.use_it(fields.child_dir_zapobj);
    objects.use_it(fields.props_zapobj);
    objects.use_it(fields.clones);
    if fields.clones != 0 {
        for member in pool.mos().zap_set_members(ObjectId(fields.clones)).unwrap() {
            let clone = pool.dataset_by_object(ObjectId(member)).unwrap();
            assert!(!clone.is_snapshot());
            let origin = ObjectId(clone.dir().fields().origin_obj);
            let origin = pool.dataset_by_object(origin).unwrap();
            assert!(
                Arc::ptr_eq(&origin.dir(), dd),
                "a clone of another directory"
            );
        }
    }
    let Some(head) = pool.head_of(dd).unwrap() else {
        return;
    };
    if pool.mos().is_zapified(head.object()).unwrap() {
        let bookmarks = pool
            .mos()
            .zap_get(head.object(), "com.delphix:bookmarks")
            .unwrap();
        objects.use_it(bookmarks.unwrap_or(0));
    }
    let mut snaps = pool.snap_entries(&head).unwrap();
    snaps.sort_by_key(|(_, object)| *object);
    let mut all = vec![head.clone()];
    all.extend(
        snaps
            .iter()
            .map(|(_, object)| pool.dataset_by_object(*object).unwrap()),
    );
    for ds in all {
        let fields = ds.fields();
        assert!(Arc::ptr_eq(&ds.dir(), dd));
        objects.use_it(ds.object().0);
        objects.use_it(fields.snapnames_zapobj);
        objects.use_it(fields.next_clones_obj);
        objects.use_it(fields.props_obj);
        objects.use_it(fields.userrefs_obj);
        objects.use_it(fields.deadlist_obj);
        let lists = ds.with_deadlist(crate::Deadlist::entries).unwrap();
        lists
            .values()
            .for_each(|list| objects.use_bpobj(pool, *list));
        let blocks = blocks_of(pool, &ds.root_bp());
        seen.insert(ds.object().0, Seen { ds, blocks });
    }
}

fn check_dataset(pool: &Arc<DslPool>, one: &Seen, seen: &BTreeMap<u64, Seen>) {
    let fields = one.ds.fields();
    let what = format!("{:?} {}", one.ds, pool.dataset_name(&one.ds).unwrap());
    // Embedded blocks are charged before compression only; they are not among the blocks here.
    let referenced = space_of(pool, one.blocks.values());
    assert_eq!(
        fields.referenced_bytes,
        referenced.used.cast_unsigned(),
        "{what}: referenced"
    );
    assert_eq!(
        fields.compressed_bytes,
        referenced.comp.cast_unsigned(),
        "{what}: compressed"
    );

    let prev = seen.get(&fields.prev_snap_obj);
    let none = Blocks::new();
    let before = prev.map_or(&none, |prev| &prev.blocks);
    for (place, bp) in &one.blocks {
        let is_new = bp.allocation_birth().0 > fields.prev_snap_txg;
        assert_eq!(
            is_new,
            !before.contains_key(place),
            "{what}: birth of {place:#x}"
        );
    }
    let dead: BTreeSet<u64> = before
        .keys()
        .filter(|place| !one.blocks.contains_key(place))
        .copied()
        .collect();
    let mut listed = BTreeSet::new();
    let (lists, space) = one
        .ds
        .with_deadlist(|deadlist| Ok((deadlist.entries()?, deadlist.space()?)))
        .unwrap();
    let mut keys: Vec<u64> = lists.keys().copied().collect();
    keys.push(u64::MAX);
    for (at, list) in lists.values().enumerate() {
        let bpobj = Bpobj::open(pool.mos(), *list).unwrap();
        bpobj
            .iterate(&mut |bp, freed| {
                assert!(!freed);
                let birth = bp.allocation_birth().0;
                assert!(
                    keys[at] < birth && birth <= keys[at + 1],
                    "{what}: birth {birth}"
                );
                if !bp.is_embedded() {
                    assert!(listed.insert(bp.dva[0].offset()), "{what}: listed twice");
                }
                Ok(())
            })
            .unwrap();
    }
    assert_eq!(listed, dead, "{what}: deadlist");
    let dead_space = space_of(pool, dead.iter().map(|place| &before[place]));
    assert_eq!(space.used, dead_space.used, "{what}: deadlist space");
    check_keys(pool, one, &keys, &what);
    check_unique(pool, one, seen, &what);
}

/// Notes the blocks of a snapshot that was bookmarked.
pub(super) fn remember(test: &TestPool, snap: &str) {
    let ds = test.pool.dataset(snap).unwrap();
    let blocks = blocks_of(&test.pool, &ds.root_bp()).into_values().collect();
    let guid = ds.fields().guid;
    test.env.bookmarked.lock().insert(guid, blocks);
}

/// A bookmark's freed bytes are those of the blocks that it referenced and the snapshot after it does not.
fn check_bookmarks(test: &TestPool, one: &Seen, seen: &BTreeMap<u64, Seen>) {
    let pool = &test.pool;
    if one.ds.is_snapshot() {
        return;
    }
    for bookmark in pool.bookmarks(&one.ds).unwrap() {
        let what = format!("{} #{}", one.ds.dir().name(), bookmark.name);
        let snapshots: Vec<&Seen> = seen
            .values()
            .filter(|it| it.ds.is_snapshot() && Arc::ptr_eq(&it.ds.dir(), &one.ds.dir()))
            .collect();
        let later = snapshots.iter().copied();
        let later = later.filter(|it| it.ds.creation_txg() > bookmark.createtxg);
        let next = later.min_by_key(|it| it.ds.creation_txg()).unwrap_or(one);
        let bookmarked = test.env.bookmarked.lock();
        let blocks = &bookmarked[&bookmark.guid.0];
        let is_there = |bp: &BlkPtrPhys| {
            let found = next.blocks.get(&bp.dva[0].offset());
            found.is_some_and(|found| found.birth() == bp.birth())
        };
        let freed = space_of(pool, blocks.iter().filter(|bp| !is_there(bp)));
        assert_eq!(bookmark.freed().used, freed.used, "{what}: freed");
        assert_eq!(bookmark.freed().comp, freed.comp, "{what}: freed");
        let referenced = space_of(pool, blocks);
        assert_eq!(
            bookmark.referenced().unwrap().used,
            referenced.used,
            "{what}"
        );
        let exists = snapshots
            .iter()
            .any(|it| it.ds.creation_txg() == bookmark.createtxg);
        assert_eq!(bookmark.has_snapshot(), exists, "{what}: its snapshot");

        let name = format!("{}#{}", one.ds.dir().name(), bookmark.name);
        let written = pool.space_written_since_bookmark(&name, &one.ds).unwrap();
        let before: BTreeSet<_> = blocks
            .iter()
            .map(|bp| (bp.dva[0].offset(), bp.birth()))
            .collect();
        let new = one.blocks.iter();
        let new = new.filter(|(place, bp)| !before.contains(&(**place, bp.birth())));
        let expected = space_of(pool, new.map(|(_, bp)| bp));
        assert_eq!(written.used, expected.used, "{what}: written since");
    }
}

/// What features count is there.
fn check_counts(test: &TestPool, dirs: &[Arc<DslDir>]) {
    let (mut lists, mut all) = (0, 0);
    for dd in dirs {
        if let Some(head) = test.pool.head_of(dd).unwrap() {
            let found = test.pool.bookmarks(&head).unwrap().len() as u64;
            lists += u64::from(found > 0);
            all += found;
        }
    }
    let features = test.env.features.lock();
    let count = |guid: &str| features.get(guid).copied().unwrap_or(0);
    assert_eq!(count(feature::BOOKMARKS), lists);
    assert_eq!(count(feature::BOOKMARK_V2), all);
    assert_eq!(count(feature::BOOKMARK_WRITTEN), all);
}

/// The counts that limits are checked against; where they are kept, they are kept below.
fn check_below(pool: &Arc<DslPool>, dd: &Arc<DslDir>) {
    let Some(counts) = pool.counts(dd).unwrap() else {
        return;
    };
    let below = pool.subtree(dd).unwrap();
    let own = |dd: &Arc<DslDir>| {
        assert!(pool.counts(dd).unwrap().is_some(), "{}: counts", dd.name());
        let head = pool.head_of(dd).unwrap().unwrap();
        pool.snap_entries(&head).unwrap().len() as u64
    };
    let expected = Counts {
        filesystems: below.len() as u64 - 1,
        snapshots: below.iter().map(own).sum(),
    };
    assert_eq!(counts, expected, "{}", dd.name());
}

/// The txgs of bookmarks that a head's deadlist has keys for: its own, and those of the heads that it branched off
/// from.
fn bookmark_keys(pool: &Arc<DslPool>, head: &Arc<DslDataset>) -> BTreeSet<u64> {
    let mut keys = BTreeSet::new();
    let (mut dir, mut end) = (head.dir(), head.fields().prev_snap_txg);
    loop {
        let at = pool.head_of(&dir).unwrap().unwrap();
        let found = pool.bookmarks(&at).unwrap().into_iter();
        keys.extend(found.map(|it| it.createtxg.0).filter(|txg| *txg < end));
        let origin = dir.fields().origin_obj;
        if origin == 0 {
            return keys;
        }
        let origin = pool.dataset_by_object(ObjectId(origin)).unwrap();
        (dir, end) = (origin.dir(), origin.fields().creation_txg);
    }
}

/// The keys are 0, the creation txgs of all predecessors but the last, and those of bookmarks before that.
fn check_keys(pool: &Arc<DslPool>, one: &Seen, keys: &[u64], what: &str) {
    let mut expected = vec![u64::MAX];
    let mut at = one.ds.fields();
    while at.prev_snap_obj != 0 {
        at = pool
            .dataset_by_object(ObjectId(at.prev_snap_obj))
            .unwrap()
            .fields();
        expected.push(at.prev_snap_txg);
    }
    expected.reverse();
    // A snapshot keeps the keys of predecessors destroyed since; those entries are empty.
    if one.ds.is_snapshot() {
        assert!(
            expected.iter().all(|key| keys.contains(key)),
            "{what}: {keys:x?} {expected:x?}"
        );
    } else {
        let mut all = bookmark_keys(pool, &one.ds);
        all.extend(expected);
        assert!(keys.iter().eq(&all), "{what}: keys {keys:x?}, not {all:x?}");
    }
}

fn check_unique(pool: &Arc<DslPool>, one: &Seen, seen: &BTreeMap<u64, Seen>, what: &str) {
    let fields = one.ds.fields();
    let prev = seen.get(&fields.prev_snap_obj);
    let next = seen.get(&fields.next_snap_obj);
    let own = one.blocks.iter().filter(|(place, _)| {
        let in_prev = prev.is_some_and(|prev| prev.blocks.contains_key(place));
        let in_next = next.is_some_and(|next| next.blocks.contains_key(place));
        !in_prev && !in_next
    });
    let unique = space_of(pool, own.map(|(_, bp)| bp));
    assert_eq!(
        fields.unique_bytes,
        unique.used.cast_unsigned(),
        "{what}: unique"
    );
    let clones = fields.num_children.saturating_sub(1);
    if fields.next_clones_obj != 0 {
        let members = pool
            .mos()
            .zap_set_members(ObjectId(fields.next_clones_obj))
            .unwrap();
        assert_eq!(members.len() as u64, clones, "{what}: next_clones");
        for member in members {
            let clone = pool.dataset_by_object(ObjectId(member)).unwrap();
            assert_eq!(clone.fields().prev_snap_obj, one.ds.object().0);
        }
    } else {
        assert_eq!(clones, 0, "{what}: num_children");
    }
}

fn check_space(pool: &Arc<DslPool>, dd: &Arc<DslDir>, seen: &BTreeMap<u64, Seen>) {
    let fields = dd.fields();
    let name = dd.name();
    let kinds = [
        Used::Head,
        Used::Snap,
        Used::Child,
        Used::ChildRsrv,
        Used::RefRsrv,
    ];
    let total: u64 = kinds.iter().map(|kind| fields.used_by(*kind)).sum();
    assert_eq!(total, fields.used_bytes, "{name}: sum of the breakdown");

    let (mut used_child, mut charged) = (0, 0);
    for child in pool.child_dirs(dd).unwrap() {
        let child = child.fields();
        used_child += child.used_bytes;
        charged += child.used_bytes.max(child.reserved);
    }
    assert_eq!(fields.used_by(Used::Child), used_child, "{name}: children");
    assert_eq!(
        fields.used_by(Used::ChildRsrv),
        charged - used_child,
        "{name}: reserved"
    );
    let Some(head) = pool.head_of(dd).unwrap() else {
        return;
    };
    let origin_txg = dd.state().origin_txg;
    let mut own = Blocks::new();
    for one in seen.values().filter(|one| Arc::ptr_eq(&one.ds.dir(), dd)) {
        let young = one
            .blocks
            .iter()
            .filter(|(_, bp)| bp.allocation_birth().0 > origin_txg);
        own.extend(young.map(|(place, bp)| (*place, *bp)));
    }
    let in_head = &seen[&head.object().0].blocks;
    let of_head = space_of(
        pool,
        own.iter()
            .filter(|(p, _)| in_head.contains_key(p))
            .map(|e| e.1),
    );
    let all = space_of(pool, own.values());
    assert_eq!(
        fields.used_by(Used::Head),
        of_head.used.cast_unsigned(),
        "{name}: head"
    );
    let of_snaps = (all - of_head).used.cast_unsigned();
    assert_eq!(fields.used_by(Used::Snap), of_snaps, "{name}: snapshots");
    let limits = head.limits();
    let unused = limits.reserved.saturating_sub(limits.unique);
    assert_eq!(
        fields.used_by(Used::RefRsrv),
        unused,
        "{name}: refreservation"
    );
}

fn check_store(test: &TestPool, seen: &BTreeMap<u64, Seen>) {
    let pool = &test.pool;
    let mos = blocks_of(pool, &test.root.lock());
    let mut reachable: BTreeSet<u64> = mos.keys().copied().collect();
    for one in seen.values() {
        reachable.extend(one.blocks.keys());
    }
    for dd in pool.subtree(pool.root_dir()).unwrap() {
        add_log_blocks(pool, &dd, &mut reachable);
    }
    let live: BTreeSet<u64> = test
        .env
        .store
        .live()
        .iter()
        .map(|bp| bp.dva[0].offset())
        .collect();
    let leaked: Vec<_> = live.difference(&reachable).collect();
    let lost: Vec<_> = reachable.difference(&live).collect();
    assert!(leaked.is_empty(), "leaked: {leaked:x?}");
    assert!(lost.is_empty(), "freed but referred to: {lost:x?}");

    let charged = Space {
        uncomp: 0,
        ..pool.mos_dir().fields().space()
    };
    let pending = Space {
        uncomp: 0,
        ..pool.mos_pending()
    };
    let actual = Space {
        uncomp: 0,
        ..space_of(pool, mos.values())
    };
    assert_eq!(charged + pending, actual, "$MOS");
    assert!(pool.free_dir().unwrap().fields().space().is_zero(), "$FREE");
}

fn check_objects(test: &TestPool, mut objects: Objects) {
    let pool = &test.pool;
    let mos = pool.mos();
    objects.use_bpobj(
        pool,
        directory::get(mos.objset(), pool_names::FREE_BPOBJ).unwrap(),
    );
    let empties = test
        .env
        .features
        .lock()
        .get(feature::EMPTY_BPOBJ)
        .copied()
        .unwrap_or(0);
    assert_eq!(empties, objects.empties, "uses of the empty bpobj");
    objects.use_it(mos.empty_bpobj().map_or(0, |object| object.0));

    let mut zapified = 0;
    let mut at = ObjectId(0);
    while let Some(object) = mos.objset().next_object(at).unwrap() {
        assert!(objects.used.remove(&object), "object {object} is leaked");
        let dnode = mos.hold(object).unwrap();
        let bonus = dnode.bonus_type();
        let owner = [phys::ObjectType::DSL_DIR, phys::ObjectType::DSL_DATASET];
        zapified += u64::from(owner.contains(&bonus) && dnode.type_().is_zap());
        at = object;
    }
    assert!(
        objects.used.is_empty(),
        "objects that do not exist: {:?}",
        objects.used
    );
    let extensible = test
        .env
        .features
        .lock()
        .get(feature::EXTENSIBLE_DATASET)
        .copied()
        .unwrap_or(0);
    assert_eq!(zapified, extensible, "extensible data sets");
}
