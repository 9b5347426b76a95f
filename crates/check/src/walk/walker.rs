//! One thread's share of the walk: from the bytes of a block to the blocks they point to.
//!
//! # What it is
//! [`dmu::traverse`] finds the pointers in a block. This module decides which to trust: each
//! pointer is checked against its position and against the block that contains it, and fill counts
//! are recomputed.
//!
//! # Source
//! OpenZFS `cmd/zdb/zdb.c` (`zdb_blkptr_cb`).

use base::{Buf, ObjectId, ObjsetId, Result, Txg};
use dmu::traverse::{Lead, Link, Side, block_dnodes, objset_dnodes};
use phys::objset::OBJSET_PHYS_SIZE_V1;
use phys::{BlkPtrPhys, DnodeView, DslDatasetPhys, ObjectType, ObjsetPhys, Phys};
use zio::{BlockCopy, Bookmark};

use super::{Dataset, Extent, FINDINGS_MAX, Log, Tally, Task, Walk};
use crate::space::Claim;
use crate::stats::BlockKind;
use crate::{Checksums, Finding, leaves};

/// One thread's share of the walk.
pub(super) struct Walker<'a> {
    pub(super) walk: &'a Walk,
    pub(super) tally: Tally,
    pub(super) claims: Vec<Claim>,
    pub(super) leaves: Vec<BlockCopy>,
    pub(super) children: Vec<Task>,
    pub(super) unreported: u64,
}

impl<'a> Walker<'a> {
    pub(super) fn new(walk: &'a Walk) -> Walker<'a> {
        Walker {
            walk,
            tally: Tally::default(),
            claims: Vec::new(),
            leaves: Vec::new(),
            children: Vec::new(),
            unreported: 0,
        }
    }
}

impl Walker<'_> {
    pub(super) fn finish(mut self, tally: &mut Tally) {
        self.claim_all();
        self.walk.progress.advance(self.unreported);
        self.walk.leaves.lock().append(&mut self.leaves);
        self.walk.stack.lock().tasks.append(&mut self.children);
        tally.add(self.tally);
    }

    pub(super) fn find(&mut self, finding: Finding) {
        let bookmark = finding.bookmark().unwrap_or_default();
        self.tally.findings.push(finding);
        if !self.walk.bound.takes_findings(1) {
            self.give_up(bookmark, format!("gave up after {FINDINGS_MAX} findings"));
        }
    }

    pub(super) fn give_up(&mut self, bookmark: Bookmark, what: String) {
        if self.walk.bound.give_up() {
            self.tally
                .findings
                .push(Finding::BadPointer { bookmark, what });
        }
    }

    fn bad_object(&mut self, bookmark: &Bookmark, object: ObjectId, what: String) {
        let objset = bookmark.objset;
        self.find(Finding::BadObject {
            objset,
            object,
            what,
        });
    }

    /// Reads a block and visits everything that it points at.
    pub(super) fn look_into(&mut self, task: &Task) {
        let data = match self
            .walk
            .pool
            .pipeline
            .read_keyless(&task.bp, &task.bookmark)
        {
            Ok(data) => data,
            Err(error) => {
                if task.log != Log::Only {
                    self.find(leaves::unreadable(&task.bp, &task.bookmark, &error));
                }
                return;
            }
        };
        match task.lead {
            Lead::Objset => self.objset(task, &data),
            Lead::Dnodes => self.dnodes(task, &data),
            Lead::Indirect => self.indirect(task, &data),
        }
        self.walk.leaves.lock().append(&mut self.leaves);
    }

    fn indirect(&mut self, task: &Task, data: &Buf) {
        self.check_fill(task, fill_of(BlkPtrPhys::array(data)));
        for link in Link::of_indirect(data, &task.bookmark, task.shape) {
            self.visit(&link, task.bp.allocation_birth(), task.extent);
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
        let mut count = 0;
        for (object, dnode) in block_dnodes(data, &task.bookmark) {
            count += 1;
            self.dnode(task, object, dnode);
        }
        self.check_fill(task, count);
    }

    fn dnode(&mut self, task: &Task, object: ObjectId, dnode: Result<DnodeView<'_>>) {
        let dnode = match dnode {
            Ok(dnode) => dnode,
            Err(error) => return self.bad_object(&task.bookmark, object, error.to_string()),
        };
        let objset = task.bookmark.objset;
        for link in Link::of_dnode(&dnode, objset, object) {
            self.visit(&link, task.bp.allocation_birth(), task.extent);
        }
        let is_dataset = dnode.core().bonustype == ObjectType::DSL_DATASET.raw();
        if objset.0 == 0 && is_dataset {
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
        let extent = Extent {
            min_txg: Txg(phys.prev_snap_txg.get()),
            ..Extent::default()
        };
        let is_head = phys.num_children.get() == 0;
        let log = if is_head { Log::Also } else { Log::None };
        self.root(&phys.bp, id, task.bp.allocation_birth(), extent, log);
    }

    pub(super) fn root(
        &mut self,
        bp: &BlkPtrPhys,
        id: ObjsetId,
        born_by: Txg,
        extent: Extent,
        log: Log,
    ) {
        if bp.is_hole() {
            return;
        }
        let link = Link::root(bp, id);
        let before = self.children.len();
        self.visit(&link, born_by, extent);
        match self.children.get_mut(before) {
            Some(task) => task.log = log,
            // The objset is unchanged since the snapshot, but the log belongs to the head.
            None if log == Log::Also => self.push(&link, Lead::Objset, Log::Only, extent),
            None => {}
        }
    }

    fn push(&mut self, link: &Link<'_>, lead: Lead, log: Log, extent: Extent) {
        self.children.push(Task {
            bp: *link.bp,
            bookmark: link.at,
            shape: link.shape,
            lead,
            log,
            extent,
        });
    }

    fn objset(&mut self, task: &Task, data: &Buf) {
        let phys = match ObjsetPhys::parse(data) {
            Ok(phys) => phys,
            Err(error) => {
                return self.bad_object(&task.bookmark, ObjectId(0), error.to_string());
            }
        };
        if task.log != Log::None {
            self.log(task.bookmark.objset, &phys);
        }
        if task.log == Log::Only {
            return;
        }
        for (object, dnode) in objset_dnodes(&phys) {
            if let Ok(meta) = &dnode
                && object == ObjectId(0)
            {
                let counted = fill_of(meta.blkptrs());
                // Before there were accounts of owners, the meta-dnode counted as one of the objects.
                let counts_itself =
                    data.len() == OBJSET_PHYS_SIZE_V1 && task.bp.fill() == counted.wrapping_add(1);
                if !counts_itself {
                    self.check_fill(task, counted);
                }
            }
            self.dnode(task, object, dnode);
        }
    }

    fn log(&mut self, objset: ObjsetId, phys: &ObjsetPhys) {
        let walk = self.walk;
        let pipeline = &*walk.pool.pipeline;
        let mut see = |bp: &BlkPtrPhys, bookmark: &Bookmark, is_chain: bool| {
            self.count(bp, bookmark, BlockKind::of(bp));
            if !is_chain && walk.options.checksums == Checksums::All {
                self.leaf(bp, bookmark);
            }
        };
        let unclaimed = walk.pool.unclaimed;
        let header = &phys.zil_header;
        // A log that cannot be parsed further ends there.
        let _ = zil::each_block(pipeline, objset, header, unclaimed, &mut see);
    }

    /// Visits one pointer in a block born in txg `born_by`: counts it, claims its space, and queues
    /// what it points to for reading.
    fn visit(&mut self, link: &Link<'_>, born_by: Txg, extent: Extent) {
        let (bp, bookmark) = (link.bp, link.at);
        if bp.is_hole() || bp.is_redacted() || bp.allocation_birth() <= extent.min_txg {
            return;
        }
        let side = extent
            .resume
            .map(|point| point.side_of(&bookmark, link.shape));
        if side == Some(Side::Before) {
            return;
        }
        let latest = born_by.min(self.walk.pool.txg);
        let birth = bp.birth().max(bp.allocation_birth());
        if birth > latest {
            self.find(Finding::Birth {
                bookmark,
                birth,
                latest,
            });
        }
        if extent.is_destroyed {
            self.count(bp, &bookmark, BlockKind::DeferredFree);
        } else {
            self.count_born(bp, &bookmark);
        }
        if let Some(what) = contradiction(link) {
            return self.find(Finding::BadPointer { bookmark, what });
        }
        // Everything below the point itself is already free.
        let lead = link.lead().filter(|_| side != Some(Side::At));
        if lead.is_some() && !self.walk.bound.takes_parent() {
            let what = "more blocks of metadata than the pool has room for: some lead in circles";
            return self.give_up(bookmark, what.to_owned());
        }
        if let Some(lead) = lead {
            self.push(link, lead, Log::None, extent);
        }
        // A block that leads further is read anyway, but only one copy of it.
        if self.is_wanted(bp) && (lead.is_none() || self.walk.options.every_copy) {
            self.leaf(bp, &bookmark);
        }
    }
}

/// The sum of the fill counts of pointers.
fn fill_of(bps: &[BlkPtrPhys]) -> u64 {
    let used = bps.iter().filter(|bp| !bp.is_hole());
    used.map(BlkPtrPhys::fill).fold(0, u64::wrapping_add)
}

/// How a pointer contradicts what its parent implies, if it does.
fn contradiction(link: &Link<'_>) -> Option<String> {
    let (bp, want) = (link.bp, link.at.level.max(0));
    if i64::from(bp.level()) != want {
        return Some(format!("level {} at level {want}", bp.level()));
    }
    if bp.object_type() != link.shape.type_ {
        let (have, want) = (bp.object_type(), link.shape.type_);
        return Some(format!("object type {have} in an object of type {want}"));
    }
    let has_fill = ObjectType::try_from(bp.object_type()).is_ok_and(ObjectType::has_fill);
    if bp.is_embedded() && (bp.level() > 0 || has_fill) {
        return Some("embedded metadata".to_owned());
    }
    None
}
