//! Walking the trees of blocks, from where the last slice stopped to where this one does.
//!
//! # What it is
//! Parents come before their children. A walk stops at a block of level 0 only (or before a whole dataset),
//! and its bookmark says which was not visited any more; the next one passes over all that comes before it in
//! the [`order`](crate::order). Blocks of the accounts of users and groups are never passed over, nor stopped
//! at: their objects come in no order.
//!
//! # Source
//! OpenZFS `module/zfs/dsl_scan.c` (`dsl_scan_visitbp`, `dsl_scan_recurse`, `dsl_scan_visitds`).

use std::sync::Arc;

use base::{BlkId, Error, ObjectId, ObjsetId, Result, Txg};
use dmu::Followed;
use dsl::{DatasetFields, DslDataset};
use phys::dnode::{DNODE_MIN_SIZE, DnodeView};
use phys::objset::{GROUPUSED_OBJECT, PROJECTUSED_OBJECT, USERUSED_OBJECT};
use phys::scan::DSF_VISIT_DS_AGAIN;
use phys::{
    BlkPtrPhys, BookmarkPhys, DnodePhys, DnodeSlotPhys, ObjectType, ObjsetPhys, Phys, ScanPhys,
};
use zerocopy::IntoBytes;
use zio::Bookmark;

use crate::issue::{Issue, Tally};
use crate::order::{is_done, is_to_do};
use crate::slice::Pool;
use crate::state::{DESTROYED, State};

/// One slice's walk.
pub(crate) struct Visit<'a> {
    pool: &'a Pool<'a>,
    state: &'a mut State,
    issue: Issue<'a>,
    followed: Followed,
    is_suspending: bool,
}

/// A bookmark as the scan's state has it; nothing if there is nothing to go on from.
fn resume_of(phys: &ScanPhys) -> Option<Bookmark> {
    let mark = &phys.bookmark;
    (*mark != BookmarkPhys::default()).then(|| Bookmark {
        objset: ObjsetId(mark.objset.get()),
        object: ObjectId(mark.object.get()),
        // There is no other place to go on from.
        level: 0,
        blkid: BlkId(mark.blkid.get()),
    })
}

fn bookmark_phys(objset: u64, object: u64, level: i64, blkid: u64) -> BookmarkPhys {
    BookmarkPhys {
        objset: objset.into(),
        object: object.into(),
        level: level.into(),
        blkid: blkid.into(),
    }
}

/// Objects that hold accounts have numbers at the end of all.
fn is_account(object: ObjectId) -> bool {
    object.0.cast_signed() < 0
}

impl<'a> Visit<'a> {
    pub(crate) fn new(pool: &'a Pool<'a>, state: &'a mut State) -> Visit<'a> {
        Visit {
            pool,
            state,
            issue: Issue::new(pool),
            followed: Followed::default(),
            is_suspending: false,
        }
    }

    /// Visits what is left, or a slice of it. Answers whether all is visited, and what reading came to.
    #[doc(alias = "dsl_scan_visit")]
    pub(crate) fn run(mut self) -> (bool, Tally) {
        self.all();
        let is_complete = !self.is_suspending;
        if is_complete {
            self.phys().bookmark = bookmark_phys(DESTROYED, 0, 0, 0);
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
        let at = self.phys().bookmark.objset.get();
        if at == 0 {
            let (min, max) = (self.phys().min_txg, self.phys().max_txg);
            self.phys().cur_min_txg = min;
            self.phys().cur_max_txg = max;
            self.root(&self.pool.mos_root.clone(), ObjsetId(0));
            if !self.is_suspending {
                self.dataset(self.pool.dsl.origin_object());
            }
        } else if at != DESTROYED {
            self.dataset(ObjectId(at));
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

    /// Up to when blocks of a dataset are visited: what is younger in a snapshot belongs to one that was
    /// destroyed.
    #[doc(alias = "dsl_scan_ds_maxtxg")]
    fn last_txg(&mut self, fields: &DatasetFields) -> u64 {
        let max = self.phys().max_txg.get();
        if fields.num_children > 0 {
            max.min(fields.creation_txg)
        } else {
            max
        }
    }

    /// A dataset that the state names; one that cannot be had counts as damaged.
    fn find(&mut self, object: ObjectId) -> Option<Arc<DslDataset>> {
        let found = self.pool.dsl.dataset_of(object);
        self.good(object, found)
    }

    /// What the MOS says of a dataset; if it is damaged, that is one error of the scan.
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
        // All its blocks are older, and so are those of what comes after it.
        if self.phys().cur_min_txg.get() >= self.phys().max_txg.get() {
            return;
        }
        self.followed = Followed::default();
        self.root(&ds.root_bp(), ObjsetId(object.0));
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

    /// What shares blocks with this dataset and is younger.
    fn queue_descendants(&mut self, ds: &Arc<DslDataset>) {
        let fields = ds.fields();
        if fields.next_snap_obj != 0 {
            let next = (fields.next_snap_obj, fields.creation_txg);
            self.state.queue.extend([next]);
        }
        let clones = self.pool.dsl.clones_of(ds);
        for clone in self.good(ds.object(), clones).unwrap_or_default() {
            self.state.queue.insert(clone.0, fields.creation_txg);
        }
    }

    #[doc(alias = "dsl_scan_visit_rootbp")]
    fn root(&mut self, bp: &BlkPtrPhys, objset: ObjsetId) {
        self.block(bp, Bookmark::root(objset), None);
    }

    /// Whether the walk stops before this block.
    #[doc(alias = "dsl_scan_check_suspend")]
    fn stops_at(&mut self, at: &Bookmark) -> bool {
        if is_account(at.object) {
            return false;
        }
        let is_place = at.level == 0 || at.level == Bookmark::ROOT_LEVEL;
        let goes_on = resume_of(self.phys()).is_some() || !is_place;
        if self.is_suspending || goes_on {
            return self.is_suspending;
        }
        if !self.issue.is_slice_over() {
            return false;
        }
        let objset = at.objset.0;
        self.phys().bookmark = match at.level {
            0 => bookmark_phys(objset, at.object.0, 0, at.blkid.0),
            _ => bookmark_phys(objset, 0, 0, 0),
        };
        self.is_suspending = true;
        true
    }

    /// Whether an earlier slice visited this block and all below it.
    #[doc(alias = "dsl_scan_check_resume")]
    fn was_visited(&mut self, at: &Bookmark, dnode: Option<&DnodePhys>) -> bool {
        let (Some(dnode), Some(resume)) = (dnode, resume_of(self.phys())) else {
            return false;
        };
        if is_account(at.object) {
            return false;
        }
        if is_done(at, dnode, &resume) {
            return true;
        }
        if is_to_do(at, dnode, &resume) {
            self.phys().bookmark = BookmarkPhys::default();
        }
        false
    }

    #[doc(alias = "dsl_scan_visitbp")]
    fn block(&mut self, bp: &BlkPtrPhys, at: Bookmark, dnode: Option<&DnodePhys>) {
        if self.stops_at(&at) || self.was_visited(&at, dnode) {
            return;
        }
        let min = Txg(self.phys().cur_min_txg.get());
        if bp.is_hole() || bp.is_redacted() || bp.birth() <= min {
            return;
        }
        if let Err(error) = self.below(bp, &at, dnode) {
            self.issue.lost(bp, &at, error);
            return;
        }
        // What is younger is visited with the next pass over this dataset.
        if bp.physical_birth().0 <= self.phys().cur_max_txg.get() {
            let (min, max) = (self.phys().min_txg.get(), self.phys().max_txg.get());
            self.issue.take(bp, &at, Txg(min), Txg(max));
        }
    }

    #[doc(alias = "dsl_scan_recurse")]
    fn below(&mut self, bp: &BlkPtrPhys, at: &Bookmark, dnode: Option<&DnodePhys>) -> Result<()> {
        if i64::from(bp.level()) != at.level.max(0) {
            let what = format!("block {at} has level {}", bp.level());
            return Err(Error::corrupt(what));
        }
        let is_dnodes = bp.object_type() == ObjectType::DNODE.raw();
        let is_objset = at.level == Bookmark::ROOT_LEVEL;
        if bp.level() == 0 && !is_dnodes && !is_objset {
            return Ok(());
        }
        self.followed.follow(bp, at)?;
        let data = self.pool.pipeline.read_keyless(bp, at)?;
        if is_objset {
            return self.objset(&data, at.objset);
        }
        if bp.level() == 0 {
            return self.dnodes(&data, at);
        }
        let pointers = BlkPtrPhys::array(&data);
        let first = at.blkid.0.saturating_mul(pointers.len() as u64);
        for (n, child) in pointers.iter().enumerate() {
            let at = Bookmark {
                level: at.level - 1,
                blkid: BlkId(first.saturating_add(n as u64)),
                ..*at
            };
            self.block(child, at, dnode);
        }
        Ok(())
    }

    fn objset(&mut self, data: &[u8], objset: ObjsetId) -> Result<()> {
        let phys = ObjsetPhys::parse(data)?;
        let dnodes: [(u64, &DnodeSlotPhys); 4] = [
            (0, &phys.meta_dnode),
            (PROJECTUSED_OBJECT, &phys.projectused_dnode),
            (GROUPUSED_OBJECT, &phys.groupused_dnode),
            (USERUSED_OBJECT, &phys.userused_dnode),
        ];
        for (object, slot) in dnodes {
            if slot.core.is_allocated() {
                self.dnode(slot.as_bytes(), objset, ObjectId(object))?;
            }
        }
        Ok(())
    }

    fn dnodes(&mut self, data: &[u8], at: &Bookmark) -> Result<()> {
        let per_block = (data.len() / DNODE_MIN_SIZE) as u64;
        let first = at.blkid.0.saturating_mul(per_block);
        let mut slot = 0;
        while slot * DNODE_MIN_SIZE < data.len() {
            let bytes = &data[slot * DNODE_MIN_SIZE..];
            let core = DnodePhys::view(bytes)?;
            if !core.is_allocated() {
                slot += 1;
                continue;
            }
            let object = ObjectId(first.saturating_add(slot as u64));
            self.dnode(bytes, at.objset, object)?;
            slot += core.slots();
        }
        Ok(())
    }

    #[doc(alias = "dsl_scan_visitdnode")]
    fn dnode(&mut self, bytes: &[u8], objset: ObjsetId, object: ObjectId) -> Result<()> {
        let view = DnodeView::new(bytes)?;
        let core = view.core();
        for (n, bp) in view.blkptrs().iter().enumerate() {
            let at = Bookmark::new(objset, object, core.nlevels - 1, BlkId(n as u64));
            self.block(bp, at, Some(core));
        }
        if let Some(spill) = view.spill() {
            self.block(spill, Bookmark::spill(objset, object), Some(core));
        }
        Ok(())
    }
}
