//! Walking the tree of blocks: from the MOS to every dataset, each block once.
//!
//! # What it is
//! A stack of blocks that lead to others (objset blocks, blocks of dnodes, indirect blocks). Each
//! thread pops one, reads it, visits every pointer in it, and pushes those that lead further; the
//! others are collected for `leaves`. Depth first, so the stack stays small.
//!
//! A dataset also references blocks of earlier snapshots. Those were born at or before its previous
//! snapshot, and are skipped: they are visited with the dataset in which they were born.
//!
//! # Invariants
//! 1. A pointer that contradicts its parent (level, type, objects within data) is not followed:
//!    levels only go down, so the walk terminates whatever is on disk.
//!
//! # Concurrency
//! One lock protects the stack and the count of busy threads. Everything else is counted per thread
//! and added up when the thread stops.
//!
//! # Source
//! OpenZFS `cmd/zdb/zdb.c` (`zdb_blkptr_cb`, `dump_block_stats`).

mod count;
mod walker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{ObjsetId, SPA_MINBLOCKSHIFT, Txg};
use dmu::traverse::{Lead, Point, Shape};
use phys::{BlkPtrPhys, DslDatasetPhys};
use zio::{BlockCopy, Bookmark};

use crate::dedup::DedupTable;
use crate::space::Space;
use crate::stats::{BlockKind, BlockStats};
use crate::{Finding, Options, Pool, TopVdev};
use walker::Walker;

/// How the intent log of an objset is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Log {
    /// It has none: a snapshot, or the MOS.
    None,
    /// It is walked with the objset of a head dataset.
    Also,
    /// The objset is unchanged since the snapshot: only its log is walked.
    Only,
}

/// Which blocks of an objset are visited.
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    /// Blocks born in this txg or earlier are skipped.
    min_txg: Txg,
    /// The dataset is being destroyed, and its blocks before `resume` are already free.
    is_destroyed: bool,
    resume: Option<Point>,
}

/// A block to be read and searched for pointers.
#[derive(Clone, Debug)]
struct Task {
    bp: BlkPtrPhys,
    bookmark: Bookmark,
    shape: Shape,
    lead: Lead,
    log: Log,
    extent: Extent,
}

/// A dataset, for its accounting.
#[derive(Clone, Debug)]
pub(crate) struct Dataset {
    pub(crate) id: ObjsetId,
    pub(crate) phys: DslDatasetPhys,
}

/// The results of one thread, or of all of them.
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

/// Number of findings after which the walk gives up.
const FINDINGS_MAX: u64 = 100_000;

/// Limits that end the walk of a corrupt pool whose pointers lead to the same blocks over and over.
struct Bound {
    /// How many more blocks that lead further may be visited; initially the number of sectors in
    /// the pool.
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

    /// Counts a block that leads further; false when the pool has no room for so many.
    fn takes_parent(&self) -> bool {
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let taken = self
            .parents_left
            .fetch_update(set, fetch, |left| left.checked_sub(1));
        taken.is_ok()
    }

    /// Counts findings; false when there are too many.
    fn takes_findings(&self, count: usize) -> bool {
        self.findings.fetch_add(count as u64, Ordering::Relaxed) + count as u64 <= FINDINGS_MAX
    }

    /// Ends the walk; returns true the first time.
    fn give_up(&self) -> bool {
        !self.has_given_up.swap(true, Ordering::Relaxed)
    }
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
        let mut walker = Walker::new(self);
        walker.root(
            root,
            ObjsetId(0),
            self.pool.txg,
            Extent::default(),
            Log::None,
        );
        walker.finish(tally);
    }

    /// Adds a dataset that is being destroyed.
    pub(crate) fn push_destroyed(
        &self,
        root: &BlkPtrPhys,
        min_txg: Txg,
        resume: Option<Point>,
        tally: &mut Tally,
    ) {
        let mut walker = Walker::new(self);
        let extent = Extent {
            min_txg,
            is_destroyed: true,
            resume,
        };
        let objset = Bookmark::DESTROYED_OBJSET;
        walker.root(root, objset, self.pool.txg, extent, Log::None);
        walker.finish(tally);
    }

    /// Counts and claims blocks that were freed but not yet returned to the allocator.
    pub(crate) fn count_deferred(&self, bps: &[BlkPtrPhys], tally: &mut Tally) {
        let mut walker = Walker::new(self);
        for bp in bps.iter().filter(|bp| !bp.is_hole()) {
            walker.count(bp, &Bookmark::default(), BlockKind::DeferredFree);
        }
        walker.finish(tally);
    }

    /// One thread of the walk. Returns when nothing is left, or when enough leaves have been
    /// collected to be verified first.
    pub(crate) fn run(&self) -> Tally {
        let mut tally = Tally::default();
        let mut walker = Walker::new(self);
        while let Some(task) = self.next() {
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
