//! Random trees, compared with a model that knows what is in them.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use base::{BlkId, Buf, Error, ErrorKind, ObjectId, ObjsetId, Result, Txg, VdevId};
use phys::DvaPhys;
use phys::dnode::{DNODE_BLOCK_SIZE, DNODE_MIN_SIZE, DnodeImage};
use phys::objset::{GROUPUSED_OBJECT, PROJECTUSED_OBJECT, USERUSED_OBJECT};
use phys::{BlkPtrPhys, BookmarkPhys, DnodePhys, DnodeView, ObjectType, ObjsetPhys};
use proptest::prelude::*;
use zerocopy::IntoBytes;
use zio::Bookmark;

use super::*;

const OBJSET: ObjsetId = ObjsetId(5);
/// 32 pointers in an indirect block.
const INDBLKSHIFT: u8 = 12;
const TXG_MAX: u64 = 8;
const ACCOUNTS: [u64; 3] = [PROJECTUSED_OBJECT, GROUPUSED_OBJECT, USERUSED_OBJECT];

/// SplitMix64.
struct Random(Cell<u64>);

impl Random {
    fn below(&self, end: u64) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let z = self.0.get();
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    /// Some numbers below `end`, in order.
    fn some_below(&self, end: u64, count_max: u64) -> BTreeSet<u64> {
        let count = self.below(count_max + 1);
        (0..count).map(|_| self.below(end)).collect()
    }
}

/// A block as the model knows it.
struct Node {
    at: Bookmark,
    birth: u64,
    below: Vec<Node>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Enter(Bookmark),
    Leave(Bookmark),
}

impl Event {
    fn at(&self) -> &Bookmark {
        let (Event::Enter(at) | Event::Leave(at)) = self;
        at
    }

    fn is_account(&self) -> bool {
        ACCOUNTS.contains(&self.at().object.0)
    }
}

impl Node {
    /// What a traversal shows if it cannot read the blocks in `bad`.
    fn events(&self, min_txg: u64, bad: &BTreeSet<u64>, to: &mut Vec<Event>, ids: &Ids) {
        if self.birth <= min_txg {
            return;
        }
        to.push(Event::Enter(self.at));
        if ids
            .get(&key_of(&self.at))
            .is_some_and(|id| bad.contains(id))
        {
            return;
        }
        for node in &self.below {
            node.events(min_txg, bad, to, ids);
        }
        to.push(Event::Leave(self.at));
    }
}

/// Which place has which block.
type Ids = BTreeMap<(u64, i64, u64), u64>;

fn key_of(at: &Bookmark) -> (u64, i64, u64) {
    (at.object.0, at.level, at.blkid.0)
}

/// A tree of blocks in memory.
struct Tree {
    random: Random,
    blocks: BTreeMap<u64, Buf>,
    ids: Ids,
}

impl Tree {
    fn random(seed: u64) -> (Tree, BlkPtrPhys, Node) {
        let mut tree = Tree {
            random: Random(Cell::new(seed)),
            blocks: BTreeMap::new(),
            ids: Ids::new(),
        };
        let mut objset = ObjsetPhys::default();
        objset.type_.set(2);
        let (meta, mut nodes) = tree.dnode(ObjectId(0), 1);
        objset.meta_dnode.as_mut_bytes().copy_from_slice(&meta);
        for object in ACCOUNTS {
            if tree.random.below(3) == 0 {
                continue;
            }
            let (bytes, below) = tree.dnode(ObjectId(object), 1);
            let slot = match object {
                USERUSED_OBJECT => &mut objset.userused_dnode,
                GROUPUSED_OBJECT => &mut objset.groupused_dnode,
                _ => &mut objset.projectused_dnode,
            };
            slot.as_mut_bytes().copy_from_slice(&bytes);
            nodes.extend(below);
        }
        let type_ = ObjectType::OBJSET.raw();
        let (bp, node) = tree.block(Bookmark::root(OBJSET), type_, objset.as_bytes(), nodes);
        (tree, bp, node)
    }

    /// Stores a block that is at least as young as what is below.
    fn block(
        &mut self,
        at: Bookmark,
        type_: u8,
        data: &[u8],
        below: Vec<Node>,
    ) -> (BlkPtrPhys, Node) {
        let youngest = below.iter().map(|node| node.birth).max().unwrap_or(1);
        let birth = youngest + self.random.below(TXG_MAX + 1 - youngest);
        let offset = (self.blocks.len() as u64 + 1) << 20;
        let mut bp = BlkPtrPhys::default();
        bp.set_lsize(data.len() as u64);
        bp.set_psize(data.len() as u64);
        bp.set_type(type_);
        bp.set_level(at.level.max(0) as u8);
        bp.set_birth(Txg(birth), Txg(birth));
        bp.set_dva(0, DvaPhys::new(VdevId(0), offset, 1 << 20, false));
        self.blocks.insert(offset, Buf::copy_of(data));
        self.ids.insert(key_of(&at), offset);
        (bp, Node { at, birth, below })
    }

    /// A dnode and what is below it, in order.
    fn dnode(&mut self, object: ObjectId, slots: usize) -> (Vec<u8>, Vec<Node>) {
        let is_meta = object == META_DNODE_OBJECT;
        let type_ = if is_meta {
            ObjectType::DNODE
        } else {
            ObjectType::PLAIN_FILE_CONTENTS
        };
        let mut core = DnodePhys {
            type_: type_.raw(),
            bonustype: ObjectType::SA.raw(),
            indblkshift: INDBLKSHIFT,
            ..Default::default()
        };
        core.nlevels = 1 + self.random.below(if is_meta { 2 } else { 4 }) as u8;
        core.nblkptr = 1 + self.random.below(3) as u8;
        core.extra_slots = slots as u8 - 1;
        core.set_datablksz(if is_meta {
            DNODE_BLOCK_SIZE as u64
        } else {
            512
        });
        let has_spill = !is_meta && self.random.below(4) == 0;
        core.nblkptr = if has_spill { 1 } else { core.nblkptr };
        let mut image = DnodeImage::new(core);
        let mut nodes = Vec::new();
        for n in 0..core.nblkptr {
            if is_meta || self.random.below(3) > 0 {
                let at = Bookmark::new(OBJSET, object, core.nlevels - 1, BlkId(u64::from(n)));
                let (bp, node) = self.subtree(at, type_.raw());
                image.blkptrs_mut()[usize::from(n)] = bp;
                nodes.push(node);
            }
        }
        if has_spill {
            let at = Bookmark::spill(OBJSET, object);
            let (bp, node) = self.block(at, ObjectType::SA.raw(), &[3; 512], Vec::new());
            image.set_spill(Some(&bp));
            nodes.push(node);
        }
        (image.bytes().to_vec(), nodes)
    }

    fn subtree(&mut self, at: Bookmark, type_: u8) -> (BlkPtrPhys, Node) {
        if at.level > 0 {
            let mut pointers = [BlkPtrPhys::default(); 32];
            let mut nodes = Vec::new();
            for n in self.random.some_below(32, 4) {
                let at = Bookmark {
                    level: at.level - 1,
                    blkid: BlkId(at.blkid.0 * 32 + n),
                    ..at
                };
                let (bp, node) = self.subtree(at, type_);
                pointers[n as usize] = bp;
                nodes.push(node);
            }
            return self.block(at, type_, pointers.as_bytes(), nodes);
        }
        if at.object != META_DNODE_OBJECT {
            return self.block(at, type_, &[7; 512], Vec::new());
        }
        let mut slots = vec![0; DNODE_BLOCK_SIZE];
        let (mut nodes, mut free) = (Vec::new(), u64::from(at.blkid.0 == 0));
        for slot in self.random.some_below(32, 4) {
            let count = 1 + self.random.below(2);
            if slot < free || slot + count > 32 {
                continue;
            }
            let object = ObjectId(at.blkid.0 * 32 + slot);
            let (bytes, below) = self.dnode(object, count as usize);
            slots[slot as usize * DNODE_MIN_SIZE..][..bytes.len()].copy_from_slice(&bytes);
            nodes.extend(below);
            free = slot + count;
        }
        self.block(at, type_, &slots, nodes)
    }
}

/// Records what it is shown.
struct Recorder<'a> {
    tree: &'a Tree,
    order: Order,
    events: Vec<Event>,
    /// Pauses after this many blocks at which it may pause.
    pause_after: Option<u64>,
    /// Fails all reads after this many blocks.
    fail_after: Option<u64>,
    bad: BTreeSet<u64>,
    failed: u64,
}

impl<'a> Recorder<'a> {
    fn new(tree: &'a Tree, order: Order) -> Recorder<'a> {
        Recorder {
            tree,
            order,
            events: Vec::new(),
            pause_after: None,
            fail_after: None,
            bad: BTreeSet::new(),
            failed: 0,
        }
    }

    fn show(&mut self, event: Event, may_pause: bool) -> Step {
        if may_pause && let Some(left) = &mut self.pause_after {
            if *left == 0 {
                return Step::Pause;
            }
            *left -= 1;
        }
        self.events.push(event);
        Step::Continue
    }
}

impl Visitor for Recorder<'_> {
    fn read(&mut self, link: &Link<'_>) -> Result<Buf> {
        let unreadable = || Err(Error::new(ErrorKind::Io, "unreadable"));
        if let Some(left) = &mut self.fail_after {
            if *left == 0 {
                return unreadable();
            }
            *left -= 1;
        }
        let offset = link.bp.dva[0].offset();
        if self.bad.contains(&offset) {
            return unreadable();
        }
        Ok(self.tree.blocks[&offset].clone())
    }

    fn enter(&mut self, link: &Link<'_>) -> Step {
        let may_pause = self.order == Order::Pre && link.at.level <= 0;
        let is_account = ACCOUNTS.contains(&link.at.object.0);
        self.show(Event::Enter(link.at), may_pause && !is_account)
    }

    fn leave(&mut self, link: &Link<'_>) -> Step {
        let may_pause = self.order == Order::Post && link.at.level == 0;
        self.show(Event::Leave(link.at), may_pause)
    }

    fn failed(&mut self, _: &Link<'_>, error: Error) -> Result<()> {
        self.failed += 1;
        if self.fail_after.is_some() {
            return Err(error);
        }
        Ok(())
    }
}

fn scope(min_txg: u64, order: Order) -> Scope {
    Scope {
        objset: OBJSET,
        min_txg: Txg(min_txg),
        order,
        resume: None,
        always_accounts: false,
    }
}

/// Goes on from a point as it is stored.
fn go_on(scope: &mut Scope, point: Option<Point>) {
    let stored = point.map(|point| point.to_phys(OBJSET));
    scope.resume = stored.and_then(|stored| Point::from_phys(&stored));
    assert_eq!(scope.resume, point);
}

fn orders() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Pre), Just(Order::Post)]
}

fn model(tree: &Tree, root: &Node, min_txg: u64, bad: &BTreeSet<u64>) -> Vec<Event> {
    let mut events = Vec::new();
    root.events(min_txg, bad, &mut events, &tree.ids);
    events
}

proptest! {
    #[test]
    fn prop_shown_is_what_is_young_in_order_with_pauses_and_without(
        seed: u64, min_txg in 0..TXG_MAX, order in orders(), pause_every in 1..60u64,
    ) {
        let (tree, bp, root) = Tree::random(seed);
        let expected = model(&tree, &root, min_txg, &BTreeSet::new());
        let mut scope = scope(min_txg, order);
        let mut recorder = Recorder::new(&tree, order);
        prop_assert!(traverse(&bp, &scope, &mut recorder).is_ok());
        prop_assert_eq!(&recorder.events, &expected);
        recorder.events.clear();
        loop {
            recorder.pause_after = Some(1 + tree.random.below(pause_every));
            match traverse(&bp, &scope, &mut recorder) {
                Ok(()) => break,
                Err(Stop { at, error: None }) => go_on(&mut scope, at),
                Err(stop) => panic!("{stop:?}"),
            }
        }
        prop_assert_eq!(&recorder.events, &expected);
    }

    #[test]
    fn prop_what_is_below_an_unreadable_block_is_passed_over(
        seed: u64, min_txg in 0..TXG_MAX, order in orders(),
    ) {
        let (tree, bp, root) = Tree::random(seed);
        let leads = |(object, level, _): &(u64, i64, u64)| *level != 0 || *object == 0;
        let places = tree.ids.iter().filter(|(place, _)| leads(place));
        let bad: BTreeSet<u64> =
            places.filter(|_| tree.random.below(8) == 0).map(|(_, id)| *id).collect();
        let expected = model(&tree, &root, min_txg, &bad);
        let mut recorder = Recorder::new(&tree, order);
        recorder.bad = bad;
        prop_assert!(traverse(&bp, &scope(min_txg, order), &mut recorder).is_ok());
        prop_assert_eq!(&recorder.events, &expected);
        let count = |wanted: fn(&Event) -> bool| expected.iter().filter(|e| wanted(e)).count() as u64;
        let (entered, left) =
            (count(|e| matches!(e, Event::Enter(_))), count(|e| matches!(e, Event::Leave(_))));
        prop_assert_eq!(recorder.failed, entered - left);
    }

    /// As when a tree is freed: nothing twice, nothing missed, whichever blocks cannot be read at times.
    #[test]
    fn prop_each_block_is_left_once_though_reads_fail_now_and_then(
        seed: u64, min_txg in 0..TXG_MAX, stop_every in 1..60u64,
    ) {
        let (tree, bp, root) = Tree::random(seed);
        let leaves = |events: &[Event]| -> Vec<Event> {
            events.iter().filter(|event| matches!(event, Event::Leave(_))).copied().collect()
        };
        let expected = leaves(&model(&tree, &root, min_txg, &BTreeSet::new()));
        let mut scope = scope(min_txg, Order::Post);
        let mut recorder = Recorder::new(&tree, Order::Post);
        for round in 0.. {
            // The limits grow, so that it reaches even the deepest block in the end.
            recorder.pause_after = Some(1 + tree.random.below(stop_every));
            recorder.fail_after = Some(tree.random.below(6) + round / 64);
            match traverse(&bp, &scope, &mut recorder) {
                Ok(()) => break,
                Err(stop) => go_on(&mut scope, stop.at),
            }
        }
        prop_assert_eq!(leaves(&recorder.events), expected);
    }

    #[test]
    fn prop_accounts_are_visited_in_each_run_if_always(seed: u64, pause_every in 1..60u64) {
        let (tree, bp, root) = Tree::random(seed);
        let expected = model(&tree, &root, 0, &BTreeSet::new());
        let (accounts, others): (Vec<Event>, Vec<Event>) =
            expected.into_iter().partition(Event::is_account);
        let mut scope = scope(0, Order::Pre);
        scope.always_accounts = true;
        let mut seen = Vec::new();
        loop {
            let mut recorder = Recorder::new(&tree, Order::Pre);
            recorder.pause_after = Some(1 + tree.random.below(pause_every));
            let end = traverse(&bp, &scope, &mut recorder);
            let (of_accounts, of_others): (Vec<Event>, Vec<Event>) =
                recorder.events.into_iter().partition(Event::is_account);
            prop_assert_eq!(&of_accounts, &accounts);
            seen.extend(of_others);
            match end {
                Ok(()) => break,
                Err(Stop { at, error: None }) => go_on(&mut scope, at),
                Err(stop) => panic!("{stop:?}"),
            }
        }
        prop_assert_eq!(seen, others);
    }
}

fn shape(indblkshift: u8) -> Shape {
    let mut core = DnodePhys {
        type_: ObjectType::PLAIN_FILE_CONTENTS.raw(),
        indblkshift,
        ..Default::default()
    };
    core.nlevels = 1;
    core.nblkptr = 1;
    core.set_datablksz(DNODE_BLOCK_SIZE as u64);
    let image = DnodeImage::new(core);
    let view = DnodeView::new(image.bytes()).unwrap();
    let mut links = Link::of_dnode(&view, OBJSET, ObjectId(7));
    links.next().unwrap().shape
}

fn point(object: u64, blkid: u64) -> Point {
    let mut stored = BookmarkPhys::default();
    stored.objset.set(OBJSET.0);
    stored.object.set(object);
    stored.blkid.set(blkid);
    Point::from_phys(&stored).unwrap()
}

#[test]
fn blocks_are_on_their_side_of_a_point() {
    let shape = shape(17);
    let at = |object, level, blkid| Bookmark::new(OBJSET, ObjectId(object), level, BlkId(blkid));
    let check = |point: Point, side, places: &[(u64, u8, u64)]| {
        for (object, level, blkid) in places {
            let at = at(*object, *level, *blkid);
            assert_eq!(point.side_of(&at, shape), side, "{point:?} {at}");
        }
    };
    let in_file = point(7, 3000);
    // The data and the object before it.
    check(
        in_file,
        Side::Before,
        &[(7, 0, 2999), (6, 2, 0), (6, 0, 9999), (7, 1, 1)],
    );
    check(in_file, Side::At, &[(7, 0, 3000)]);
    // The blocks that it is below: indirect blocks, and the block of dnodes with its object.
    check(
        in_file,
        Side::Around,
        &[(7, 1, 2), (7, 2, 0), (0, 0, 0), (0, 1, 0)],
    );
    check(
        in_file,
        Side::Behind,
        &[(7, 0, 3001), (7, 1, 3), (8, 3, 0), (0, 0, 1)],
    );
    let root = Bookmark::root(OBJSET);
    assert_eq!(in_file.side_of(&root, shape), Side::Around);

    // The dnodes of objects 32..64 come before it; it is below the block of those of 64..96.
    let later = point(70, 1030);
    check(later, Side::Before, &[(70, 1, 0), (70, 0, 1029), (0, 0, 1)]);
    check(later, Side::Around, &[(70, 1, 1), (0, 0, 2)]);

    let dnodes = point(0, 2);
    check(dnodes, Side::Before, &[(63, 0, 9999), (0, 0, 1)]);
    check(dnodes, Side::At, &[(0, 0, 2)]);
    check(dnodes, Side::Around, &[(0, 1, 0)]);
    check(dnodes, Side::Behind, &[(64, 0, 0), (64, 2, 0), (0, 0, 3)]);

    // A spill block comes after all others of its object.
    let spill = Bookmark::SPILL_BLKID.0;
    check(later, Side::Behind, &[(70, 0, spill)]);
    check(point(70, spill), Side::At, &[(70, 0, spill)]);

    // Block numbers larger than any real one come after all points.
    check(
        later,
        Side::Behind,
        &[(70, 11, u64::MAX), (0, 11, u64::MAX)],
    );
}

#[test]
fn what_is_misplaced_is_not_followed() {
    let ends_with = |tree: &Tree, bp: &BlkPtrPhys, text: &str| {
        let mut recorder = Recorder::new(tree, Order::Post);
        recorder.fail_after = Some(u64::MAX);
        let end = traverse(bp, &scope(0, Order::Post), &mut recorder);
        let error = end.unwrap_err().error.expect("an error");
        assert!(error.context().contains(text), "{error}, not {text}");
    };
    // An indirect block at level 3 whose first pointer is `child`.
    let tree_with = |child: &dyn Fn(&BlkPtrPhys) -> BlkPtrPhys, bytes: usize| {
        let mut tree = Tree {
            random: Random(Cell::new(1)),
            blocks: BTreeMap::new(),
            ids: Ids::new(),
        };
        let type_ = ObjectType::DNODE.raw();
        let at = Bookmark::new(OBJSET, ObjectId(0), 2, BlkId(0));
        let below = Bookmark::new(OBJSET, ObjectId(0), 1, BlkId(0));
        let mut block = vec![0; bytes];
        let (lower, _) = tree.block(below, type_, &[0; 1 << INDBLKSHIFT], Vec::new());
        let child = child(&lower);
        block[..128].copy_from_slice(child.as_bytes());
        block[128..256].copy_from_slice(child.as_bytes());
        let (bp, _) = tree.block(at, type_, &block, Vec::new());
        let mut core = DnodePhys {
            type_,
            indblkshift: INDBLKSHIFT,
            ..Default::default()
        };
        core.nlevels = 3;
        core.nblkptr = 1;
        core.set_datablksz(DNODE_BLOCK_SIZE as u64);
        let mut image = DnodeImage::new(core);
        image.blkptrs_mut()[0] = bp;
        let mut objset = ObjsetPhys::default();
        objset.type_.set(2);
        objset
            .meta_dnode
            .as_mut_bytes()
            .copy_from_slice(image.bytes());
        let type_ = ObjectType::OBJSET.raw();
        let (root, _) = tree.block(Bookmark::root(OBJSET), type_, objset.as_bytes(), Vec::new());
        (tree, root)
    };
    let size = 1 << INDBLKSHIFT;
    let (tree, root) = tree_with(&|lower| *lower, size);
    ends_with(&tree, &root, "has been met elsewhere");
    let (tree, root) = tree_with(
        &|lower| {
            let mut higher = *lower;
            higher.set_level(2);
            higher
        },
        size,
    );
    ends_with(&tree, &root, "has level 2");
    let (tree, root) = tree_with(&|lower| *lower, 2 * size);
    ends_with(&tree, &root, "8192 bytes, not 4096");
    let mut outside = root;
    outside.set_level(1);
    ends_with(&tree, &outside, "has level 1");
}
