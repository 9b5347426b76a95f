//! The tree of a pool's vdevs, and I/O to its top-level vdevs.
//!
//! # What it is
//! [`VdevTree`] is what the pipeline sees as [`zio::VdevOps`]. It holds the root vdev, whose
//! children are the top-level vdevs that DVAs name by number.
//!
//! # Concurrency
//! The root is replaced as a whole when the shape changes; I/O in flight goes on with the nodes that it
//! started with, so a leaf must not be reused before that has ended. Flushes and label writes of several
//! leaves run at the same time, on a task queue.
//!
//! # Source
//! OpenZFS `module/zfs/vdev.c`, `module/zfs/vdev_root.c`, `module/zfs/zio.c` (the vdev stages).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use base::{Context, Error, ErrorKind, Guid, Result, Txg, VdevId};
use phys::uberblock::UberblockPhys;
use rt::{Mutex, OneShot, RwLock, RwLockReadGuard, TaskQueue};
use zio::{Io, Placement, RunBlock, ScrubReport, VdevOps};

use crate::dtl::TXG_CONCURRENT_STATES;
use crate::kinds::Node;
use crate::{Vdev, VdevAux, VdevKind, VdevState};

/// The most leaves that are flushed at the same time.
const WORKERS_MAX: usize = 16;

/// A pool's vdevs. Reads take no lock here: they begin with the root as it is.
pub struct VdevTree {
    root: ArcSwap<Vdev>,
    writable: bool,
    syncing_txg: AtomicU64,
    workers: Mutex<Option<Arc<TaskQueue>>>,
    /// Held during I/O to RAID-Zs, or to all vdevs while one is rebuilt; exclusively while sectors of a RAID-Z are
    /// moved, or ranges rebuilt.
    still: RwLock<()>,
    makes_way: AtomicBool,
}

impl VdevTree {
    /// A tree around a root vdev.
    #[must_use]
    pub fn new(root: Arc<Vdev>) -> Arc<Self> {
        Self::with_mode(root, true)
    }

    /// A tree for reading only: nothing is ever written, not even repairs.
    #[must_use]
    pub fn read_only(root: Arc<Vdev>) -> Arc<Self> {
        Self::with_mode(root, false)
    }

    fn with_mode(root: Arc<Vdev>, writable: bool) -> Arc<Self> {
        assert!(
            root.kind() == VdevKind::Root,
            "the root of a tree is a {}",
            root.kind().word()
        );
        Arc::new(VdevTree {
            root: ArcSwap::new(root),
            writable,
            syncing_txg: AtomicU64::new(0),
            workers: Mutex::new(None),
            still: RwLock::new(()),
            makes_way: AtomicBool::new(false),
        })
    }

    /// The root vdev as it is now.
    #[must_use]
    pub fn root(&self) -> Arc<Vdev> {
        self.root.load_full()
    }

    /// Whether the pool may be written to.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// All top-level vdevs; the index is the [`VdevId`].
    #[must_use]
    pub fn tops(&self) -> Vec<Arc<Vdev>> {
        self.root().children().to_vec()
    }

    /// A top-level vdev.
    #[must_use]
    #[doc(alias = "vdev_lookup_top")]
    pub fn top(&self, id: VdevId) -> Option<Arc<Vdev>> {
        self.root
            .load()
            .children()
            .get(usize::try_from(id.0).ok()?)
            .cloned()
    }

    /// The vdev with this guid, anywhere in the tree.
    #[must_use]
    pub fn find(&self, guid: Guid) -> Option<Arc<Vdev>> {
        self.root().find(guid)
    }

    /// The state of the pool.
    #[must_use]
    pub fn state(&self) -> (VdevState, VdevAux) {
        self.root().state()
    }

    /// ub_guid_sum: of all vdevs and the pool.
    #[must_use]
    pub fn guid_sum(&self) -> u64 {
        self.root().guid_sum()
    }

    /// Gives the pool another guid.
    pub fn set_guid(&self, guid: Guid) {
        self.root().set_guid(guid);
    }

    /// All leaves that may have a device.
    #[must_use]
    pub fn devices(&self) -> Vec<Arc<Vdev>> {
        self.root().devices()
    }

    /// Sets the txg that is being synced from now on: the DTL records what a device misses from this txg
    /// on.
    pub fn set_syncing_txg(&self, txg: Txg) {
        self.syncing_txg.store(txg.0, Ordering::Release);
    }

    /// Notes by which uberblock the pool is read from now on: it says how far the expansion of a RAID-Z is.
    pub fn note_uberblock(&self, uberblock: &UberblockPhys) {
        for top in self.tops() {
            top.ops().note_uberblock(uberblock);
        }
    }

    /// Replaces the root: the shape of the tree changes.
    pub(crate) fn replace_root(&self, root: Arc<Vdev>) {
        self.root.store(root);
    }

    pub(crate) fn txgs_of_now(&self) -> std::ops::Range<u64> {
        let syncing = self.syncing_txg.load(Ordering::Acquire);
        syncing..syncing + TXG_CONCURRENT_STATES
    }

    pub(crate) fn top_for_io(&self, id: VdevId, offset: u64, len: u64) -> Result<Arc<Vdev>> {
        let no_such = || Error::corrupt(format!("no vdev {id}"));
        let top = self
            .top(id)
            .filter(|top| top.kind() != VdevKind::Hole)
            .ok_or_else(no_such)?;
        let asize = top.asize();
        if offset.checked_add(len).is_none_or(|end| end > asize) {
            let context = format!("vdev {id}: {len} bytes at {offset} are outside of its {asize}");
            return Err(Error::corrupt(context));
        }
        Ok(top)
    }

    pub(crate) fn node<'a>(&'a self, top: &'a Arc<Vdev>) -> Node<'a> {
        Node {
            vdev: top,
            top,
            tree: self,
            is_writable: self.writable,
            txgs: self.txgs_of_now(),
        }
    }

    /// A top-level vdev for an I/O; what a RAID-Z has is not moved meanwhile, and nothing is rebuilt.
    fn hold_top(&self, id: VdevId, offset: u64, len: u64) -> Result<(Held<'_>, Arc<Vdev>)> {
        let top = self.top_for_io(id, offset, len)?;
        let is_moved = matches!(top.kind(), VdevKind::RaidZ { .. });
        if !is_moved && !self.makes_way.load(Ordering::Acquire) {
            return Ok((None, top));
        }
        let still = self.still.read();
        Ok((Some(still), self.top_for_io(id, offset, len)?))
    }

    /// Waits until no I/O that makes way is in flight, and holds it off.
    pub(crate) fn still(&self) -> &RwLock<()> {
        &self.still
    }

    /// Whether all I/O makes way, not only that to RAID-Zs.
    pub(crate) fn makes_way(&self) -> &AtomicBool {
        &self.makes_way
    }

    fn with_top<T>(
        &self,
        id: VdevId,
        offset: u64,
        len: u64,
        act: impl FnOnce(&Node<'_>) -> Result<T>,
    ) -> Result<T> {
        let (_still, top) = self.hold_top(id, offset, len)?;
        act(&self.node(&top))
            .within(|| format!("vdev {id} ({}): {len} bytes at {offset}", top.name()))
    }

    /// Whether a vdev was removed.
    fn is_removed(&self, id: VdevId) -> bool {
        self.top(id)
            .is_some_and(|top| top.kind() == VdevKind::Indirect)
    }

    fn check_writable(&self) -> Result<()> {
        if self.writable {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::ReadOnly,
            "the pool was opened for reading",
        ))
    }

    /// Makes everything written to these top-level vdevs durable. A mirror side that fails to flush is
    /// marked in its DTL; if all sides of a top-level vdev fail, that is an error.
    pub(crate) fn flush_tops(&self, tops: &[Arc<Vdev>]) -> Result<()> {
        let devices: Vec<_> = tops.iter().flat_map(Vdev::devices).collect();
        let mut results = self
            .on_leaves(devices, |vdev| {
                let leaf = vdev.leaf();
                (leaf.is_usable() || leaf.has_unflushed()).then(|| leaf.flush())
            })
            .into_iter();
        let mut failed = Ok(());
        for top in tops {
            let of_top = results.by_ref().take(top.leaves().len()).collect();
            if let Err(error) = self.node(top).conclude_flush(of_top) {
                failed = Err(error.within(format_args!("flush of {}", top.name())));
            }
        }
        failed
    }

    /// Whether a device lost writes in a flush that failed, so that no later flush counts.
    #[must_use]
    pub fn has_lost_writes(&self) -> bool {
        let devices = self.devices();
        devices.iter().any(|device| device.leaf().has_lost_writes())
    }

    /// Calls `act` for several leaves in parallel; the results are in their order.
    pub(crate) fn on_leaves<T: Send + 'static>(
        &self,
        leaves: Vec<Arc<Vdev>>,
        act: impl Fn(&Arc<Vdev>) -> T + Send + Sync + 'static,
    ) -> Vec<T> {
        if leaves.len() < 2 {
            return leaves.iter().map(act).collect();
        }
        let workers = self.workers(leaves.len());
        let act = Arc::new(act);
        let last = leaves.len() - 1;
        let begin = |(n, leaf): (usize, Arc<Vdev>)| {
            let answer = Arc::new(OneShot::<Caught<T>>::default());
            let (act, theirs) = (Arc::clone(&act), Arc::clone(&answer));
            let task = move || theirs.give(catch_unwind(AssertUnwindSafe(|| act(&leaf))));
            if n < last {
                workers.dispatch(task);
            } else {
                task();
            }
            answer
        };
        let answers: Vec<_> = leaves.into_iter().enumerate().map(begin).collect();
        let value =
            |answer: Arc<OneShot<Caught<T>>>| answer.take().unwrap_or_else(|p| resume_unwind(p));
        answers.into_iter().map(value).collect()
    }

    fn workers(&self, leaves: usize) -> Arc<TaskQueue> {
        let mut workers = self.workers.lock();
        let started = workers
            .get_or_insert_with(|| Arc::new(TaskQueue::new("vdev_flush", leaves.min(WORKERS_MAX))));
        Arc::clone(started)
    }
}

/// The right to do I/O to a RAID-Z.
type Held<'a> = Option<RwLockReadGuard<'a, ()>>;
/// A result, or what a panic left behind.
type Caught<T> = Result<T, Box<dyn Any + Send>>;

impl VdevOps for VdevTree {
    fn read(
        &self,
        io: &Io,
        vdev: VdevId,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let len = buf.len() as u64;
        let mut was_removed = true;
        let outcome = self.with_top(vdev, offset, len, |top| {
            was_removed = top.vdev.kind() == VdevKind::Indirect;
            top.read(io, offset, buf, verify)
        });
        if outcome.is_err() && !was_removed && self.is_removed(vdev) {
            // It was removed meanwhile: its devices are closed, what they had is elsewhere.
            return self.with_top(vdev, offset, len, |top| top.read(io, offset, buf, verify));
        }
        outcome
    }

    fn write(&self, io: &Io, vdev: VdevId, offset: u64, parts: &[&[u8]]) -> Result<()> {
        self.check_writable()?;
        let size = |part: &&[u8]| self.psize_to_asize(vdev, part.len() as u64, io.birth);
        let len = parts.iter().map(size).sum();
        self.with_top(vdev, offset, len, |top| top.write(io, offset, parts))
    }

    fn flush(&self, vdevs: &[VdevId]) -> Result<()> {
        let no_such = |id: &VdevId| Error::corrupt(format!("no vdev {id}"));
        let top = |id: &VdevId| self.top(*id).ok_or_else(|| no_such(id));
        self.flush_tops(&vdevs.iter().map(top).collect::<Result<Vec<_>>>()?)
    }

    fn scrub(
        &self,
        vdev: VdevId,
        buf: &mut [u8],
        blocks: &[RunBlock],
        verify: &dyn Fn(usize, &[u8]) -> bool,
    ) -> Result<Vec<Result<ScrubReport>>> {
        let offset = blocks.first().map_or(0, |block| block.offset);
        let end = |block: &RunBlock| block.offset.saturating_add(block.range.len() as u64);
        let len = blocks.last().map_or(0, end).saturating_sub(offset);
        self.with_top(vdev, offset, len, |top| {
            let reports = top.scrub(buf, blocks, verify);
            let name = || format!("vdev {vdev} ({}): near {offset}", top.vdev.name());
            Ok(reports.into_iter().map(|r| r.within(name)).collect())
        })
    }

    fn answers(&self, vdev: VdevId, birth: Option<Txg>) -> bool {
        let answers = |vdev: &Vdev| {
            let leaf = vdev.leaf();
            let has_it = !birth.is_some_and(|birth| leaf.missed(birth));
            has_it && leaf.is_usable() && leaf.is_alive(false)
        };
        let Some(top) = self.top(vdev) else {
            return true;
        };
        if top.kind() == VdevKind::Indirect {
            // What was on it may be on any other one.
            return self.tops().iter().all(|top| top.is_complete(&answers));
        }
        top.devices().is_empty() || top.is_complete(&answers)
    }

    fn placement(&self, vdev: VdevId) -> Placement {
        let top = self.top(vdev);
        top.map_or(Placement::Elsewhere, |top| top.ops().placement())
    }

    fn writes_at_once(&self, vdev: VdevId) -> usize {
        let Some(top) = self.top(vdev) else { return 1 };
        let ways = |leaf: &Arc<Vdev>| leaf.leaf().writes_at_once();
        top.leaves().iter().map(ways).sum::<usize>().max(1)
    }

    fn psize_to_asize(&self, vdev: VdevId, psize: u64, birth: Txg) -> u64 {
        self.top(vdev)
            .map_or(psize, |top| top.psize_to_asize(psize, birth))
    }

    fn ashift(&self, vdev: VdevId) -> u32 {
        self.top(vdev)
            .map_or(base::SPA_MINBLOCKSHIFT, |top| top.ashift())
    }

    fn min_alloc(&self, vdev: VdevId) -> u64 {
        let least = self.top(vdev).map(|top| top.min_alloc());
        least.unwrap_or(base::SPA_MINBLOCKSIZE)
    }
}
