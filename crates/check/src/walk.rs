//! Walking the tree of blocks: from the MOS to every dataset, each block once.
//!
//! # What it is
//! A stack of blocks that lead to others (objset blocks, blocks of dnodes, indirect blocks). Some
//! threads pop one each, read it, look at every pointer in it, and push those that lead further;
//! the others are noted for `leaves`. Depth first, so the stack stays small.
//!
//! A dataset refers to blocks of earlier snapshots too. Those were born before its previous
//! snapshot, and are skipped: they are visited with the last snapshot that has them.
//!
//! # Invariants
//! 1. A pointer that contradicts its parent (level, type, objects within data) is not followed:
//!    levels only go down, so the walk ends whatever is on the disk.
//!
//! # Concurrency
//! One lock over stack and count of busy threads. Everything counted is kept by thread and added
//! up when the thread stops.
//!
//! # Source
//! OpenZFS `module/zfs/dmu_traverse.c`, `cmd/zdb/zdb.c` (`zdb_blkptr_cb`, `zdb_count_block`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{BlkId, Buf, Error, ObjectId, ObjsetId, SPA_MINBLOCKSHIFT, Txg};
use phys::blkptr::SPA_BLKPTRSHIFT;
use phys::dnode::DNODE_MIN_SIZE;
use phys::objset::{
    GROUPUSED_OBJECT, OBJSET_PHYS_SIZE_V1, OBJSET_PHYS_SIZE_V2, PROJECTUSED_OBJECT, USERUSED_OBJECT,
};
use phys::{
    BlkPtrPhys, DnodePhys, DnodeSlotPhys, DnodeView, DslDatasetPhys, ObjectType, ObjsetPhys, Phys,
};
use zerocopy::IntoBytes;
use zio::{BlockCopy, Bookmark};

use crate::dedup::DedupTable;
use crate::leaves;
use crate::resume::Resume;
use crate::space::{Claim, Space};
use crate::stats::{BlockKind, BlockStats, Ditto};
use crate::{Checksums, Finding, Options, Pool, TopVdev};

/// Claims are made in batches of this many.
const CLAIM_BATCH: usize = 4096;
/// `ZB_DESTROYED_OBJSET`: where the blocks of a destroyed dataset say they are.
const DESTROYED_OBJSET: ObjsetId = ObjsetId(u64::MAX);
/// Blocks between two looks at the clock, for progress.
const PROGRESS_EVERY: u64 = 256;

/// What a block that is to be read leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lead {
    /// An objset; of a head dataset, its log as well.
    Objset { has_log: bool },
    /// Only the log of the head dataset whose objset this is.
    Log,
    /// Dnodes.
    Dnodes,
    /// Block pointers.
    Indirect,
}

/// A block to be read and looked into.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) bp: BlkPtrPhys,
    pub(crate) bookmark: Bookmark,
    /// Blocks born in this txg or before are not visited.
    pub(crate) min_txg: Txg,
    pub(crate) lead: Lead,
    /// log2 of the pointers in an indirect block of this object.
    pub(crate) epbs: u32,
    /// Set while a destroyed dataset is walked.
    pub(crate) destroyed: Option<Arc<Resume>>,
}

/// A dataset, for its accounting.
#[derive(Clone, Debug)]
pub(crate) struct Dataset {
    pub(crate) id: ObjsetId,
    pub(crate) phys: DslDatasetPhys,
}

/// What one thread, or all of them, came to.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) stats: BlockStats,
    pub(crate) findings: Vec<Finding>,
    pub(crate) datasets: Vec<Dataset>,
    /// dsize of the blocks visited, by objset.
    pub(crate) born: BTreeMap<ObjsetId, u64>,
    pub(crate) dedup: DedupTable,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Tally) {
        self.stats.add(&other.stats);
        self.findings.extend(other.findings);
        self.datasets.extend(other.datasets);
        for (objset, bytes) in other.born {
            *self.born.entry(objset).or_default() += bytes;
        }
        self.dedup.add(other.dedup);
    }
}

#[derive(Default)]
struct Stack {
    tasks: Vec<Task>,
    busy: usize,
}

/// The walk of one pool.
pub(crate) struct Walk {
    pub(crate) pool: Pool,
    pub(crate) options: Options,
    pub(crate) space: Option<Space>,
    /// Whether blocks without the dedup bit may be found more than once (feature block_cloning).
    pub(crate) has_clones: bool,
    pub(crate) progress: crate::progress::Meter,
    stack: rt::Mutex<Stack>,
    wake: rt::Condvar,
    pub(crate) leaves: rt::Mutex<Vec<BlockCopy>>,
    bound: Bound,
}

/// Findings after which it is pointless to go on.
const FINDINGS_MAX: u64 = 100_000;

/// What ends a walk of a pool that leads to the same blocks again and again.
struct Bound {
    /// Blocks that lead further and were not looked into yet: at most as many as there is room for.
    parents_left: AtomicU64,
    findings: AtomicU64,
    has_given_up: AtomicBool,
}

impl Bound {
    fn new(tops: &[TopVdev]) -> Bound {
        let sectors = |top: &TopVdev| (top.ms_count << top.ms_shift) >> SPA_MINBLOCKSHIFT;
        Bound {
            parents_left: AtomicU64::new(tops.iter().map(sectors).sum()),
            findings: AtomicU64::new(0),
            has_given_up: AtomicBool::new(false),
        }
    }

    /// Counts a block that is to be looked into; false when there can be no more.
    fn takes_parent(&self) -> bool {
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let taken = self
            .parents_left
            .fetch_update(set, fetch, |left| left.checked_sub(1));
        taken.is_ok()
    }

    /// Counts findings; false when there are enough.
    fn takes_findings(&self, count: usize) -> bool {
        self.findings.fetch_add(count as u64, Ordering::Relaxed) + count as u64 <= FINDINGS_MAX
    }

    /// Ends the walk; true the first time.
    fn give_up(&self) -> bool {
        !self.has_given_up.swap(true, Ordering::Relaxed)
    }
}

/// What a pointer was found in.
#[derive(Clone, Copy)]
struct Parent {
    birth: Txg,
    level: u8,
    type_: u8,
    min_txg: Txg,
    epbs: u32,
}

impl Parent {
    /// Of the block of an objset.
    fn of_root(birth: Txg, min_txg: Txg) -> Self {
        Parent {
            birth,
            level: 0,
            type_: ObjectType::OBJSET.raw(),
            min_txg,
            epbs: 0,
        }
    }
}

/// One thread's share of the walk.
struct Walker<'a> {
    walk: &'a Walk,
    tally: Tally,
    claims: Vec<Claim>,
    leaves: Vec<BlockCopy>,
    children: Vec<Task>,
    destroyed: Option<Arc<Resume>>,
    unreported: u64,
}

impl Walk {
    pub(crate) fn new(
        pool: Pool,
        options: Options,
        space: Option<Space>,
        has_clones: bool,
    ) -> Arc<Walk> {
        let total = space.as_ref().map_or(0, Space::allocated);
        Arc::new(Walk {
            progress: crate::progress::Meter::new(total, &options),
            bound: Bound::new(&pool.tops),
            pool,
            options,
            space,
            has_clones,
            stack: rt::Mutex::new(Stack::default()),
            wake: rt::Condvar::new(),
            leaves: rt::Mutex::new(Vec::new()),
        })
    }

    /// Starts with the MOS.
    pub(crate) fn push_root(&self, root: &BlkPtrPhys, tally: &mut Tally) {
        let mut walker = self.walker();
        let parent = Parent::of_root(self.pool.txg, Txg(0));
        let lead = Lead::Objset { has_log: false };
        walker.root(root, ObjsetId(0), parent, lead);
        walker.finish(tally);
    }

    /// Adds a dataset that is being destroyed.
    pub(crate) fn push_destroyed(
        &self,
        root: &BlkPtrPhys,
        min_txg: Txg,
        resume: Resume,
        tally: &mut Tally,
    ) {
        let mut walker = self.walker();
        walker.destroyed = Some(Arc::new(resume));
        let parent = Parent::of_root(self.pool.txg, min_txg);
        let lead = Lead::Objset { has_log: false };
        walker.root(root, DESTROYED_OBJSET, parent, lead);
        walker.finish(tally);
    }

    /// Counts and claims a block that was freed but not given back.
    pub(crate) fn count_deferred(&self, bps: &[BlkPtrPhys], tally: &mut Tally) {
        let mut walker = self.walker();
        for bp in bps.iter().filter(|bp| !bp.is_hole()) {
            walker.count(bp, &Bookmark::default(), BlockKind::DeferredFree);
        }
        walker.finish(tally);
    }

    fn walker(&self) -> Walker<'_> {
        Walker {
            walk: self,
            tally: Tally::default(),
            claims: Vec::new(),
            leaves: Vec::new(),
            children: Vec::new(),
            destroyed: None,
            unreported: 0,
        }
    }

    /// One thread of the walk. Returns when nothing is left, or when so many leaves wait that
    /// they should be verified first.
    pub(crate) fn run(&self) -> Tally {
        let mut tally = Tally::default();
        let mut walker = self.walker();
        while let Some(task) = self.next() {
            walker.destroyed.clone_from(&task.destroyed);
            walker.look_into(&task);
            let mut stack = self.stack.lock();
            stack.busy -= 1;
            // The first child is to be popped first.
            stack.tasks.extend(walker.children.drain(..).rev());
            drop(stack);
            self.wake.notify_all();
        }
        walker.finish(&mut tally);
        tally
    }

    fn next(&self) -> Option<Task> {
        let mut stack = self.stack.lock();
        loop {
            if self.bound.has_given_up.load(Ordering::Relaxed) {
                stack.tasks.clear();
                return None;
            }
            if self.progress.is_cancelled() || self.has_enough_leaves() {
                return None;
            }
            if let Some(task) = stack.tasks.pop() {
                stack.busy += 1;
                return Some(task);
            }
            if stack.busy == 0 {
                return None;
            }
            self.wake.wait(&mut stack);
        }
    }

    fn has_enough_leaves(&self) -> bool {
        self.leaves.lock().len() >= self.options.leaves_max
    }

    /// Whether there is nothing left to walk.
    pub(crate) fn is_done(&self) -> bool {
        self.stack.lock().tasks.is_empty()
    }
}

impl Walker<'_> {
    fn finish(mut self, tally: &mut Tally) {
        self.claim_all();
        self.walk.progress.advance(self.unreported);
        self.walk.leaves.lock().append(&mut self.leaves);
        self.walk.stack.lock().tasks.append(&mut self.children);
        tally.add(self.tally);
    }

    fn find(&mut self, finding: Finding) {
        let bookmark = finding.bookmark().unwrap_or_default();
        self.tally.findings.push(finding);
        if !self.walk.bound.takes_findings(1) {
            self.give_up(bookmark, format!("gave up after {FINDINGS_MAX} findings"));
        }
    }

    fn give_up(&mut self, bookmark: Bookmark, what: String) {
        if self.walk.bound.give_up() {
            self.tally
                .findings
                .push(Finding::BadPointer { bookmark, what });
        }
    }

    fn bad_pointer(&mut self, bookmark: &Bookmark, what: String) {
        let bookmark = *bookmark;
        self.find(Finding::BadPointer { bookmark, what });
    }

    fn bad_object(&mut self, bookmark: &Bookmark, object: ObjectId, what: String) {
        let objset = bookmark.objset;
        self.find(Finding::BadObject {
            objset,
            object,
            what,
        });
    }

    fn unreadable(&mut self, bp: &BlkPtrPhys, bookmark: &Bookmark, error: &Error) {
        self.find(leaves::unreadable(bp, bookmark, error));
    }

    /// Reads a block and visits everything that it points at.
    fn look_into(&mut self, task: &Task) {
        let data = match self
            .walk
            .pool
            .pipeline
            .read_keyless(&task.bp, &task.bookmark)
        {
            Ok(data) => data,
            Err(error) => {
                if task.lead != Lead::Log {
                    self.unreadable(&task.bp, &task.bookmark, &error);
                }
                return;
            }
        };
        match task.lead {
            Lead::Objset { .. } | Lead::Log => self.objset(task, &data),
            Lead::Dnodes => self.dnodes(task, &data),
            Lead::Indirect => self.indirect(task, &data),
        }
        self.walk.leaves.lock().append(&mut self.leaves);
    }

    fn indirect(&mut self, task: &Task, data: &Buf) {
        let bps = BlkPtrPhys::array(data);
        let parent = Parent {
            birth: task.bp.birth(),
            level: task.bp.level() - 1,
            type_: task.bp.object_type(),
            min_txg: task.min_txg,
            epbs: task.epbs,
        };
        let fill = bps
            .iter()
            .filter(|bp| !bp.is_hole())
            .map(BlkPtrPhys::fill)
            .sum();
        self.check_fill(task, fill);
        for (i, bp) in bps.iter().enumerate() {
            let blkid = task.bookmark.blkid.0.saturating_mul(bps.len() as u64);
            let bookmark = Bookmark {
                level: task.bookmark.level - 1,
                blkid: BlkId(blkid.saturating_add(i as u64)),
                ..task.bookmark
            };
            self.visit(bp, bookmark, parent);
        }
    }

    fn check_fill(&mut self, task: &Task, counted: u64) {
        let recorded = task.bp.fill();
        if recorded != counted {
            self.find(Finding::Fill {
                bookmark: task.bookmark,
                recorded,
                counted,
            });
        }
    }

    fn dnodes(&mut self, task: &Task, data: &Buf) {
        let per_block = (data.len() / DNODE_MIN_SIZE) as u64;
        let first = task.bookmark.blkid.0.saturating_mul(per_block);
        let (mut at, mut count) = (0, 0);
        while at < data.len() {
            let object = ObjectId(first.saturating_add((at / DNODE_MIN_SIZE) as u64));
            let slot = &data[at..];
            let core = DnodePhys::view(slot).expect("whole slots");
            if !core.is_allocated() {
                at += DNODE_MIN_SIZE;
                continue;
            }
            count += 1;
            match DnodeView::new(slot) {
                Ok(dnode) => {
                    at += dnode.bytes().len();
                    self.dnode(task, object, &dnode);
                }
                Err(error) => {
                    at += DNODE_MIN_SIZE;
                    self.bad_object(&task.bookmark, object, error.to_string());
                }
            }
        }
        self.check_fill(task, count);
    }

    fn dnode(&mut self, task: &Task, object: ObjectId, dnode: &DnodeView<'_>) {
        let core = dnode.core();
        let objset = task.bookmark.objset;
        let level = core.nlevels - 1;
        let parent = Parent {
            birth: task.bp.birth(),
            level,
            type_: core.type_,
            min_txg: task.min_txg,
            epbs: u32::from(core.indblkshift) - SPA_BLKPTRSHIFT,
        };
        for (i, bp) in dnode.blkptrs().iter().enumerate() {
            let bookmark = Bookmark::new(objset, object, level, BlkId(i as u64));
            self.visit(bp, bookmark, parent);
        }
        if let Some(spill) = dnode.spill() {
            let parent = Parent {
                level: 0,
                type_: core.bonustype,
                ..parent
            };
            self.visit(spill, Bookmark::spill(objset, object), parent);
        }
        let is_dataset = core.bonustype == ObjectType::DSL_DATASET.raw();
        if objset.0 == 0 && self.destroyed.is_none() && is_dataset {
            self.dataset(task, object, dnode.bonus());
        }
    }

    fn dataset(&mut self, task: &Task, object: ObjectId, bonus: &[u8]) {
        let phys = match DslDatasetPhys::read(bonus) {
            Ok(phys) => phys,
            Err(error) => return self.bad_object(&task.bookmark, object, error.to_string()),
        };
        let id = ObjsetId(object.0);
        self.tally.datasets.push(Dataset { id, phys });
        let parent = Parent::of_root(task.bp.birth(), Txg(phys.prev_snap_txg.get()));
        let has_log = phys.num_children.get() == 0;
        self.root(&phys.bp, id, parent, Lead::Objset { has_log });
    }

    fn root(&mut self, bp: &BlkPtrPhys, id: ObjsetId, parent: Parent, lead: Lead) {
        if bp.is_hole() {
            return;
        }
        let bookmark = Bookmark::root(id);
        let before = self.children.len();
        self.visit(bp, bookmark, parent);
        match self.children.get_mut(before) {
            Some(task) => task.lead = lead,
            // Unchanged since the snapshot, but its log is its own.
            None if lead == (Lead::Objset { has_log: true }) => self.children.push(Task {
                bp: *bp,
                bookmark,
                min_txg: parent.min_txg,
                lead: Lead::Log,
                epbs: 0,
                destroyed: None,
            }),
            None => {}
        }
    }

    fn objset(&mut self, task: &Task, data: &Buf) {
        let objset = task.bookmark.objset;
        let phys = match ObjsetPhys::parse(data) {
            Ok(phys) => phys,
            Err(error) => {
                return self.bad_object(&task.bookmark, ObjectId(0), error.to_string());
            }
        };
        if matches!(task.lead, Lead::Log | Lead::Objset { has_log: true }) {
            self.log(objset, &phys);
        }
        if task.lead == Lead::Log {
            return;
        }
        self.special(task, ObjectId(0), &phys.meta_dnode);
        if let Ok(meta) = DnodeView::new(phys.meta_dnode.as_bytes()) {
            let bps = meta.blkptrs().iter().filter(|bp| !bp.is_hole());
            self.check_fill(task, bps.map(BlkPtrPhys::fill).sum());
        }
        if data.len() > OBJSET_PHYS_SIZE_V1 {
            self.special(task, ObjectId(USERUSED_OBJECT), &phys.userused_dnode);
            self.special(task, ObjectId(GROUPUSED_OBJECT), &phys.groupused_dnode);
        }
        if data.len() > OBJSET_PHYS_SIZE_V2 {
            self.special(task, ObjectId(PROJECTUSED_OBJECT), &phys.projectused_dnode);
        }
    }

    fn special(&mut self, task: &Task, object: ObjectId, slot: &DnodeSlotPhys) {
        let bytes = slot.as_bytes();
        let core = DnodePhys::view(bytes).expect("a slot has a core");
        if !core.is_allocated() {
            return;
        }
        match DnodeView::new(bytes) {
            Ok(dnode) => self.dnode(task, object, &dnode),
            Err(error) => self.bad_object(&task.bookmark, object, error.to_string()),
        }
    }

    fn log(&mut self, objset: ObjsetId, phys: &ObjsetPhys) {
        let walk = self.walk;
        let pipeline = &*walk.pool.pipeline;
        let first_unclaimed = walk.pool.txg.next();
        let mut visit = |bp: &BlkPtrPhys, bookmark: Bookmark, is_chain: bool| {
            self.count(bp, &bookmark, BlockKind::of(bp));
            if !is_chain && walk.options.checksums == Checksums::All {
                self.leaf(bp, &bookmark);
            }
        };
        crate::log::walk(
            pipeline,
            objset,
            &phys.zil_header,
            first_unclaimed,
            &mut visit,
        );
    }

    /// Looks at one pointer: counts it, claims its space, and sees to it that what is behind it
    /// is read.
    fn visit(&mut self, bp: &BlkPtrPhys, bookmark: Bookmark, parent: Parent) {
        if bp.is_hole() || bp.is_redacted() || bp.allocation_birth() <= parent.min_txg {
            return;
        }
        let resume = self.destroyed.clone();
        if resume.is_some_and(|resume| resume.is_freed(&bookmark, parent.epbs)) {
            return;
        }
        let latest = parent.birth.min(self.walk.pool.txg);
        if bp.birth() > latest {
            self.find(Finding::Birth {
                bookmark,
                birth: bp.birth(),
                latest,
            });
        }
        let kind = match &self.destroyed {
            Some(_) => BlockKind::DeferredFree,
            None => BlockKind::of(bp),
        };
        self.count(bp, &bookmark, kind);
        if self.destroyed.is_none() {
            let dsize = self.walk.pool.dsize(bp);
            *self.tally.born.entry(bookmark.objset).or_default() += dsize;
            if self.walk.options.dedup {
                self.tally.dedup.count(bp, dsize);
            }
        }
        if let Some(what) = contradiction(bp, &parent) {
            self.bad_pointer(&bookmark, what);
            return;
        }
        let lead = if bp.level() > 0 {
            Some(Lead::Indirect)
        } else if bookmark.level == Bookmark::ROOT_LEVEL {
            Some(Lead::Objset { has_log: false })
        } else if bookmark.object.0 == 0 {
            Some(Lead::Dnodes)
        } else {
            None
        };
        if lead.is_some() && !self.walk.bound.takes_parent() {
            let what = "more blocks of metadata than the pool has room for: some lead in circles";
            return self.give_up(bookmark, what.to_owned());
        }
        if let Some(lead) = lead {
            self.children.push(Task {
                bp: *bp,
                bookmark,
                min_txg: parent.min_txg,
                lead,
                epbs: parent.epbs,
                destroyed: self.destroyed.clone(),
            });
        }
        let is_wanted = match self.walk.options.checksums {
            Checksums::None => false,
            Checksums::Metadata => bp.is_metadata(),
            Checksums::All => true,
        };
        // What leads further is read anyway, but only one copy of it.
        if is_wanted && (lead.is_none() || self.walk.options.every_copy) {
            self.leaf(bp, &bookmark);
        }
    }

    fn leaf(&mut self, bp: &BlkPtrPhys, bookmark: &Bookmark) {
        let options = &self.walk.options;
        let object = (bookmark.objset, bookmark.object);
        let only = options.only.as_ref();
        if only.is_some_and(|only| !only.contains(&object)) {
            return;
        }
        if !bp.is_embedded() {
            leaves::push(&self.walk.pool, options, bp, bookmark, &mut self.leaves);
        } else if options.decompress
            && let Err(error) = self.walk.pool.pipeline.read_keyless(bp, bookmark)
        {
            self.unreadable(bp, bookmark, &error);
        }
    }

    #[doc(alias = "zdb_count_block")]
    fn count(&mut self, bp: &BlkPtrPhys, bookmark: &Bookmark, kind: BlockKind) {
        let walk = self.walk;
        self.tally.stats.count(kind, bp, ditto(walk, bp));
        self.unreported += 1;
        if self.unreported == PROGRESS_EVERY {
            walk.progress.advance(std::mem::take(&mut self.unreported));
        }
        if bp.is_embedded() || walk.space.is_none() {
            return;
        }
        let may_be_shared = bp.is_dedup() || walk.has_clones;
        let claim = |dva| Claim {
            dva,
            bookmark: *bookmark,
            may_be_shared,
        };
        if bp.is_gang() {
            match walk.pool.pipeline.segments(bp, bookmark) {
                Ok(segments) => self.claims.extend(segments.into_iter().map(claim)),
                Err(error) => self.unreadable(bp, bookmark, &error),
            }
        } else {
            self.claims.extend(bp.dvas().map(claim));
        }
        if self.claims.len() >= CLAIM_BATCH {
            self.claim_all();
        }
    }

    fn claim_all(&mut self) {
        let Some(space) = &self.walk.space else {
            return;
        };
        let claimed = space.claim(&mut self.claims);
        let count = claimed.findings.len();
        self.tally.findings.extend(claimed.findings);
        if count > 0 && !self.walk.bound.takes_findings(count) {
            let what = format!("gave up after {FINDINGS_MAX} findings");
            self.give_up(Bookmark::default(), what);
        }
        self.tally.stats.shared_count += claimed.shared;
        self.tally.stats.shared_asize += claimed.shared_bytes;
    }
}

/// Why a pointer cannot be what its parent leads to.
fn contradiction(bp: &BlkPtrPhys, parent: &Parent) -> Option<String> {
    if bp.level() != parent.level {
        return Some(format!("level {} at level {}", bp.level(), parent.level));
    }
    if bp.object_type() != parent.type_ {
        let (have, want) = (bp.object_type(), parent.type_);
        return Some(format!("object type {have} in an object of type {want}"));
    }
    let has_fill = ObjectType::try_from(bp.object_type()).is_ok_and(ObjectType::has_fill);
    if bp.is_embedded() && (bp.level() > 0 || has_fill) {
        return Some("embedded metadata".to_owned());
    }
    None
}

fn ditto(walk: &Walk, bp: &BlkPtrPhys) -> Ditto {
    let dvas: Vec<_> = bp.dvas().collect();
    let mut ditto = Ditto::default();
    for (i, a) in dvas.iter().enumerate() {
        for b in &dvas[i + 1..] {
            ditto.same_vdev |= a.vdev() == b.vdev();
            ditto.same_metaslab |= Space::same_metaslab(&walk.pool.tops, a, b);
        }
    }
    ditto
}
