//! Visiting the block trees, from where the last slice stopped to where this one does.
//!
//! # What it is
//! A slice traverses the MOS and then one dataset after the other. It stops before a block of level
//! 0 (or before a whole dataset), and the bookmark names the first one not visited. An indirect
//! block is read for the walk when it is entered, and queued for reading from all devices when it
//! is left. Blocks of the user and group accounting objects are visited in each slice that visits
//! their objset, and a slice does not stop at them.
//!
//! # Invariants
//! 1. A slice visits at least one block of level 0: however slow the devices are, the scan ends.
//!
//! # Source
//! OpenZFS `module/zfs/dsl_scan.c` (`dsl_scan_visit`, `dsl_scan_visitds`, `dsl_scan_visitbp`,
//! `dsl_scan_check_suspend`).

use std::sync::Arc;

use base::{Buf, Error, ObjectId, ObjsetId, Result, Txg};
use dmu::traverse::{Link, Order, Point, Scope, Step, Stop, Visitor, traverse};
use dsl::{DatasetFields, DslDataset};
use phys::objset::ObjsetPhys;
use phys::scan::DSF_VISIT_DS_AGAIN;
use phys::{BlkPtrPhys, BookmarkPhys, Phys, ScanPhys, ZilHeaderPhys};
use zio::{Bookmark, LogStore, Pipeline};

use crate::issue::{Issue, SHARED, Tally};
use crate::slice::Pool;
use crate::state::State;

/// One slice.
pub(crate) struct Visit<'a> {
    pool: &'a Pool<'a>,
    state: &'a mut State,
    issue: Issue<'a>,
    /// Whether a block of level 0 was visited.
    has_begun: bool,
    is_suspending: bool,
}

impl<'a> Visit<'a> {
    pub(crate) fn new(pool: &'a Pool<'a>, state: &'a mut State) -> Visit<'a> {
        Visit {
            pool,
            state,
            issue: Issue::new(pool),
            has_begun: false,
            is_suspending: false,
        }
    }

    /// Visits what is left, or one slice of it. Returns whether everything has been visited, and
    /// the result of the reads.
    #[doc(alias = "dsl_scan_visit")]
    pub(crate) fn run(mut self) -> (bool, Tally) {
        self.all();
        let is_complete = !self.is_suspending;
        if is_complete {
            self.phys()
                .bookmark
                .objset
                .set(Bookmark::DESTROYED_OBJSET.0);
        }
        self.state.changed();
        let mut tally = self.issue.finish();
        tally.add_to(self.state.phys.as_mut().expect("a scan runs"));
        (is_complete, tally)
    }

    fn phys(&mut self) -> &mut ScanPhys {
        self.state.phys.as_mut().expect("a scan runs")
    }

    fn all(&mut self) {
        self.shared();
        if self.is_suspending {
            return;
        }
        let at = ObjsetId(self.phys().bookmark.objset.get());
        if at == ObjsetId(0) {
            let (min, max) = (self.phys().min_txg, self.phys().max_txg);
            self.phys().cur_min_txg = min;
            self.phys().cur_max_txg = max;
            self.objset(&self.pool.mos_root, ObjsetId(0));
            if !self.is_suspending
                && let Some(origin) = self.pool.dsl.origin_object()
            {
                self.dataset(origin);
            }
        } else if at != Bookmark::DESTROYED_OBJSET {
            self.dataset(ObjectId(at.0));
        }
        while !self.is_suspending {
            self.phys().bookmark = BookmarkPhys::default();
            let Some((object, txg)) = self.state.queue.pop_first() else {
                break;
            };
            let object = ObjectId(object);
            let Some(ds) = self.find(object) else {
                continue;
            };
            let fields = ds.fields();
            let from = if txg == 0 { fields.prev_snap_txg } else { txg };
            let min = self.phys().min_txg.get().max(from);
            let max = self.last_txg(&fields);
            self.phys().cur_min_txg.set(min);
            self.phys().cur_max_txg.set(max);
            self.dataset(object);
        }
    }

    /// Visits what is left of the dedup tables, up to the last class whose blocks are left out elsewhere.
    #[doc(alias = "dsl_scan_ddt")]
    fn shared(&mut self) {
        let next = self.pool.next_shared;
        loop {
            let phys = self.phys();
            if phys.ddt_bookmark.class.get() > phys.ddt_class_max.get() {
                return;
            }
            let (min, max) = (Txg(phys.min_txg.get()), Txg(phys.max_txg.get()));
            let found = next(&mut phys.ddt_bookmark);
            let is_past = phys.ddt_bookmark.class.get() > phys.ddt_class_max.get();
            match found {
                Ok(Some(blocks)) if !is_past => {
                    blocks
                        .iter()
                        .filter(|bp| bp.physical_birth() < max)
                        .for_each(|bp| self.issue.take(bp, &SHARED, min, max));
                }
                // What is lost of them is to be known where they are referred to.
                Ok(_) => {
                    self.is_suspending = self.has_begun;
                    return;
                }
                Err(error) => {
                    // They are read where they are referred to.
                    phys.ddt_class_max.set(0);
                    phys.ddt_bookmark.class.set(1);
                    self.issue.lost(&BlkPtrPhys::default(), &SHARED, error);
                    return;
                }
            }
            self.has_begun = true;
            if self.issue.is_slice_over() {
                self.is_suspending = true;
                return;
            }
        }
    }

    /// The last birth txg visited in a dataset: younger blocks reached through a snapshot belong to
    /// a destroyed one.
    #[doc(alias = "dsl_scan_ds_maxtxg")]
    fn last_txg(&mut self, fields: &DatasetFields) -> u64 {
        let max = self.phys().max_txg.get();
        if fields.num_children > 0 {
            max.min(fields.creation_txg)
        } else {
            max
        }
    }

    /// A dataset named by the state; one that cannot be opened counts as damaged.
    fn find(&mut self, object: ObjectId) -> Option<Arc<DslDataset>> {
        let found = self.pool.dsl.dataset_of(object);
        self.good(object, found)
    }

    /// The value read from the MOS about a dataset; if it is damaged, that counts as one error of
    /// the scan.
    fn good<T>(&mut self, object: ObjectId, found: Result<T>) -> Option<T> {
        let lost = |error| {
            let at = Bookmark::root(ObjsetId(object.0));
            self.issue.lost(&BlkPtrPhys::default(), &at, error);
        };
        found.map_err(lost).ok()
    }

    #[doc(alias = "dsl_scan_visitds")]
    fn dataset(&mut self, object: ObjectId) {
        let Some(ds) = self.find(object) else {
            return;
        };
        // Everything left in this dataset is beyond the scan's range, and so is everything in its
        // successors.
        if self.phys().cur_min_txg.get() >= self.phys().max_txg.get() {
            return;
        }
        if !ds.is_snapshot() && self.phys().bookmark.objset.get() == 0 {
            self.log(&ds.root_bp(), ObjsetId(object.0));
        }
        self.objset(&ds.root_bp(), ObjsetId(object.0));
        if self.is_suspending {
            return;
        }
        let flags = self.phys().flags.get();
        if flags & DSF_VISIT_DS_AGAIN != 0 {
            let from = self.phys().cur_max_txg.get();
            self.phys().flags.set(flags & !DSF_VISIT_DS_AGAIN);
            self.state.queue.insert(object.0, from);
            return;
        }
        self.queue_descendants(&ds);
    }

    /// Queues the younger datasets that share blocks with this one.
    fn queue_descendants(&mut self, ds: &Arc<DslDataset>) {
        let fields = ds.fields();
        if fields.next_snap_obj == 0 {
            return;
        }
        let clones = self.pool.dsl.clones_of(ds);
        let clones = self.good(ds.object(), clones).unwrap_or_default();
        let next = ObjectId(fields.next_snap_obj);
        for object in std::iter::once(next).chain(clones) {
            let Some(later) = self.find(object) else {
                continue;
            };
            // Only one that itself says it comes after this one: a circle would never end.
            let later = later.fields();
            let before = (later.prev_snap_obj, later.prev_snap_txg);
            if before == (ds.object().0, fields.creation_txg) {
                self.enqueue(object.0, fields.creation_txg);
            }
        }
    }

    /// Queues a dataset; one that is queued already is visited from the older of the two txgs on.
    #[doc(alias = "scan_ds_queue_insert")]
    fn enqueue(&mut self, object: u64, txg: u64) {
        let from = self.state.queue.entry(object).or_insert(txg);
        *from = txg.min(*from);
    }

    /// Visits the blocks of a head's intent log that were claimed and wait for their replay. That of a
    /// snapshot is a copy of a former head's, and means nothing.
    #[doc(alias = "dsl_scan_zil")]
    fn log(&mut self, root: &BlkPtrPhys, objset: ObjsetId) {
        if root.is_hole() {
            return;
        }
        let pipeline = &**self.pool.pipeline;
        let at = Bookmark::root(objset);
        let Ok(header) = read_zil_header(pipeline, root, &at) else {
            // Traversing the objset meets the same error.
            return;
        };
        let phys = self.phys();
        let (min, max) = (Txg(phys.min_txg.get()), Txg(phys.max_txg.get()));
        let from = phys.cur_min_txg.get();
        let issue = &mut self.issue;
        let mut see = |bp: &BlkPtrPhys, at: &Bookmark, is_chain: bool| {
            // The last block of a chain was allocated, and perhaps never written.
            let is_written = !is_chain || pipeline.read_log(bp, at).is_ok();
            if is_written && bp.physical_birth().0 > from {
                issue.take(bp, at, min, max);
            }
        };
        // Blocks of logs that are not claimed come and go with what is written now.
        let unclaimed = Txg(0);
        if let Err(error) = zil::each_block(pipeline, objset, &header, unclaimed, &mut see) {
            self.issue.lost(root, &at, error);
        }
    }

    /// Visits what is left of an objset, and records where to resume if the slice ends before that.
    #[doc(alias = "dsl_scan_visit_rootbp")]
    fn objset(&mut self, root: &BlkPtrPhys, objset: ObjsetId) {
        let phys = self.phys();
        let scope = Scope {
            objset,
            min_txg: Txg(phys.cur_min_txg.get()),
            order: Order::Pre,
            resume: Point::from_phys(&phys.bookmark),
            always_accounts: true,
        };
        self.phys().bookmark = BookmarkPhys::default();
        if let Err(Stop { at, .. }) = traverse(root, &scope, self) {
            let bookmark = &mut self.phys().bookmark;
            bookmark.objset.set(objset.0);
            if let Some(point) = at {
                *bookmark = point.to_phys(objset);
            }
            self.is_suspending = true;
        }
    }
}

fn read_zil_header(pipeline: &Pipeline, root: &BlkPtrPhys, at: &Bookmark) -> Result<ZilHeaderPhys> {
    let block = pipeline.read_keyless(root, at)?;
    Ok(ObjsetPhys::view(&block)?.zil_header)
}

impl Visitor for Visit<'_> {
    fn read(&mut self, link: &Link<'_>) -> Result<Buf> {
        self.pool.pipeline.read_keyless(link.bp, &link.at)
    }

    #[doc(alias = "dsl_scan_check_suspend")]
    fn enter(&mut self, link: &Link<'_>) -> Step {
        // Accounting objects have the highest numbers (negative as signed).
        let is_account = link.at.object.0.cast_signed() < 0;
        if link.at.level > 0 || is_account {
            return Step::Continue;
        }
        let is_first = link.at.level == 0 && !self.has_begun;
        self.has_begun |= is_first;
        if !is_first && self.issue.is_slice_over() {
            return Step::Pause;
        }
        Step::Continue
    }

    fn leave(&mut self, link: &Link<'_>) -> Step {
        let phys = self.phys();
        let (min, max) = (Txg(phys.min_txg.get()), Txg(phys.max_txg.get()));
        let class_max = phys.ddt_class_max.get();
        if link.bp.is_dedup() && (self.pool.was_walked)(class_max, link.bp) {
            return Step::Continue;
        }
        let phys = self.phys();
        // Younger blocks are visited in the next pass over this dataset.
        if link.bp.physical_birth().0 <= phys.cur_max_txg.get() {
            self.issue.take(link.bp, &link.at, min, max);
        }
        Step::Continue
    }

    fn failed(&mut self, link: &Link<'_>, error: Error) -> Result<()> {
        self.issue.lost(link.bp, &link.at, error);
        Ok(())
    }
}
