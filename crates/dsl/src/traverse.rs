//! Walking a tree of blocks from its root pointer, children before parents.
//!
//! # What it is
//! Finds all blocks of an objset that were born after a txg, without opening it: blocks below a
//! pointer are never younger than the pointer, so older branches are not entered. Parents come
//! after their children, so that when each block is freed as it is shown, what remains is still a
//! tree; a walk that was paused goes on from a [`Point`].
//!
//! # Source
//! OpenZFS module/zfs/dmu_traverse.c, module/zfs/zio.c (`zbookmark_compare`) @be7657e3

use std::cmp::Ordering;

use base::{BlkId, Error, ObjectId, ObjsetId, Result, Txg};
use dmu::Followed;
use phys::dnode::{DNODE_MIN_SIZE, DNODES_PER_BLOCK, DnodeView};
use phys::objset::{GROUPUSED_OBJECT, PROJECTUSED_OBJECT, USERUSED_OBJECT};
use phys::{BlkPtrPhys, BookmarkPhys, DnodePhys, DnodeSlotPhys, ObjsetPhys, Phys};
use zerocopy::IntoBytes;
use zio::{BlockStore, Bookmark};

use crate::bpobj::Progress;
use crate::bptree::{DESTROYED_OBJSET, first_data_block};

/// log2 of a block pointer's size.
const BP_SHIFT: u32 = phys::blkptr::SPA_BLKPTRSHIFT;
/// Above any level (`COMPARE_META_LEVEL`): blocks of dnodes come after what the dnodes refer to.
const META_LEVEL: u64 = 1 << 31;

/// Where a walk goes on: a block of level 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    object: ObjectId,
    blkid: u64,
}

impl Point {
    /// Before everything: no object comes before object 1.
    const START: Point = Point {
        object: ObjectId(1),
        blkid: 0,
    };

    /// `None` for a walk that has not begun.
    pub(crate) fn from_phys(phys: &BookmarkPhys) -> Option<Point> {
        if *phys == BookmarkPhys::default() {
            return None;
        }
        Some(Point {
            object: ObjectId(phys.object.get()),
            blkid: phys.blkid.get(),
        })
    }

    pub(crate) fn to_phys(self) -> BookmarkPhys {
        BookmarkPhys {
            objset: DESTROYED_OBJSET.into(),
            object: self.object.0.into(),
            level: 0.into(),
            blkid: self.blkid.into(),
        }
    }
}

/// How a walk ended.
pub(crate) enum End {
    /// Every block was shown.
    Complete,
    /// The visitor asked for a pause.
    Paused(Point),
    /// A block could not be read; the walk can go on from there later.
    Failed(Point, Error),
}

/// Why a walk stops.
enum Stop {
    Paused,
    Failed(Error),
}

/// A block and what of its object says where it is.
#[derive(Clone, Copy)]
struct Location<'a> {
    /// `None` for the root block.
    dnode: Option<&'a DnodePhys>,
    bookmark: Bookmark,
}

impl Location<'_> {
    fn epbs(&self) -> u32 {
        self.dnode.map_or(0, |dnode| {
            u32::from(dnode.indblkshift).saturating_sub(BP_SHIFT)
        })
    }

    fn is_root(&self) -> bool {
        self.dnode.is_none()
    }

    /// Whether a pointer is of the level that its place has: the level falls with each step, so that a
    /// block that leads to itself is found out.
    fn check(&self, bp: &BlkPtrPhys) -> Result<()> {
        let level = self.bookmark.level.max(0);
        if i64::from(bp.level()) == level {
            return Ok(());
        }
        let (bookmark, own) = (&self.bookmark, bp.level());
        Err(Error::corrupt(format!("block {bookmark} has level {own}")))
    }

    /// Where a walk that stopped here goes on. A block of dnodes that the visitor paused at has
    /// nothing left below it; one that could not be read has everything.
    fn point(&self, was_paused: bool) -> Point {
        let Bookmark {
            object,
            level,
            blkid,
            ..
        } = self.bookmark;
        if self.is_root() {
            return Point::START;
        }
        let first = first_data_block(blkid, u32::try_from(level).unwrap_or(0), self.epbs());
        if object == ObjectId(0) && !was_paused {
            let object = ObjectId(first.saturating_mul(DNODES_PER_BLOCK).max(1));
            return Point { object, blkid: 0 };
        }
        Point {
            object,
            blkid: first,
        }
    }

    /// The place as it sorts among all blocks: object, first block of level 0, and the larger
    /// level first.
    fn key(&self, blkid: u64) -> (u64, u64, u64) {
        let level = self.bookmark.level.cast_unsigned();
        let first = first_data_block(BlkId(blkid), level as u32, self.epbs());
        if self.bookmark.object == ObjectId(0) {
            let per_block = self
                .dnode
                .map_or(0, |dnode| u64::from(dnode.datablkszsec.get()));
            return (first.saturating_mul(per_block), 0, level + META_LEVEL);
        }
        (self.bookmark.object.0, first, level)
    }
}

/// A walk; see the module.
pub(crate) struct Walk<'a> {
    store: &'a dyn BlockStore,
    min_txg: Txg,
    resume: Option<Point>,
    /// Blocks that were looked into.
    followed: Followed,
    stopped_at: Option<Point>,
}

type Visitor<'v> = dyn FnMut(&BlkPtrPhys, bool) -> Progress + 'v;

impl<'a> Walk<'a> {
    /// Over what was born after `min_txg`.
    pub(crate) fn new(store: &'a dyn BlockStore, min_txg: Txg, resume: Option<Point>) -> Walk<'a> {
        Walk {
            store,
            min_txg,
            resume,
            followed: Followed::default(),
            stopped_at: None,
        }
    }

    /// Shows every block below and including `root`, and whether it is of level 0 and below the
    /// root: there, and only there, the visitor may pause, and is shown the same block again.
    pub(crate) fn run(&mut self, root: &BlkPtrPhys, visit: &mut Visitor<'_>) -> End {
        let bookmark = Bookmark::root(ObjsetId(DESTROYED_OBJSET));
        let place = Location {
            dnode: None,
            bookmark,
        };
        let stop = self.block(root, place, visit);
        let point = self.stopped_at.unwrap_or(Point::START);
        match stop {
            Ok(()) => End::Complete,
            Err(Stop::Paused) => End::Paused(point),
            Err(Stop::Failed(error)) => End::Failed(point, error),
        }
    }

    fn block(
        &mut self,
        bp: &BlkPtrPhys,
        place: Location<'_>,
        visit: &mut Visitor<'_>,
    ) -> Result<(), Stop> {
        if bp.is_hole() || bp.is_redacted() || bp.allocation_birth() <= self.min_txg {
            return Ok(());
        }
        place.check(bp).map_err(Stop::Failed)?;
        let mut below = Ok(());
        match self.resume.map(|resume| compare_to_resume(&place, resume)) {
            Some(Skip::All) => return Ok(()),
            Some(Skip::Children) => {}
            Some(Skip::Nothing) | None => below = self.children(bp, place, visit),
        }
        let is_data = bp.level() == 0 && !place.is_root();
        let done = below.and_then(|()| match visit(bp, is_data) {
            Progress::Continue => Ok(()),
            Progress::Pause => Err(Stop::Paused),
        });
        if let Err(stop) = &done {
            let was_paused = matches!(stop, Stop::Paused);
            self.stopped_at
                .get_or_insert_with(|| place.point(was_paused));
        }
        done
    }

    fn children(
        &mut self,
        bp: &BlkPtrPhys,
        place: Location<'_>,
        visit: &mut Visitor<'_>,
    ) -> Result<(), Stop> {
        let is_dnodes = place.bookmark.object == ObjectId(0);
        if !place.is_root() && bp.level() == 0 && !is_dnodes {
            return Ok(());
        }
        let followed = self.followed.follow(bp, &place.bookmark);
        followed.map_err(Stop::Failed)?;
        let data = self.store.read(bp, &place.bookmark).map_err(Stop::Failed)?;
        if place.is_root() {
            return self.objset(&data, visit);
        }
        if bp.level() == 0 {
            let per_block = (data.len() / DNODE_MIN_SIZE) as u64;
            return self.dnodes(&data, place.bookmark.blkid.0 * per_block, visit);
        }
        let pointers = BlkPtrPhys::array(&data);
        let first = place.bookmark.blkid.0 << place.epbs();
        for (at, child) in pointers.iter().enumerate() {
            let bookmark = Bookmark {
                level: place.bookmark.level - 1,
                blkid: BlkId(first + at as u64),
                ..place.bookmark
            };
            self.block(child, Location { bookmark, ..place }, visit)?;
        }
        Ok(())
    }

    fn objset(&mut self, data: &[u8], visit: &mut Visitor<'_>) -> Result<(), Stop> {
        let objset = ObjsetPhys::parse(data).map_err(Stop::Failed)?;
        let dnodes: [(u64, &DnodeSlotPhys); 4] = [
            (0, &objset.meta_dnode),
            (PROJECTUSED_OBJECT, &objset.projectused_dnode),
            (GROUPUSED_OBJECT, &objset.groupused_dnode),
            (USERUSED_OBJECT, &objset.userused_dnode),
        ];
        for (object, slot) in dnodes {
            if slot.core.is_allocated() {
                self.dnode(slot.as_bytes(), ObjectId(object), visit)?;
            }
        }
        Ok(())
    }

    fn dnodes(&mut self, data: &[u8], first: u64, visit: &mut Visitor<'_>) -> Result<(), Stop> {
        let mut slot = 0;
        while slot * DNODE_MIN_SIZE < data.len() {
            let bytes = &data[slot * DNODE_MIN_SIZE..];
            let core = DnodePhys::view(bytes).map_err(Stop::Failed)?;
            if !core.is_allocated() {
                slot += 1;
                continue;
            }
            self.dnode(bytes, ObjectId(first + slot as u64), visit)?;
            slot += core.slots();
        }
        Ok(())
    }

    fn dnode(
        &mut self,
        bytes: &[u8],
        object: ObjectId,
        visit: &mut Visitor<'_>,
    ) -> Result<(), Stop> {
        // Data of objects before the point is gone, and so are their trees.
        if object != ObjectId(0) && self.resume.is_some_and(|resume| object < resume.object) {
            return Ok(());
        }
        let view = DnodeView::new(bytes).map_err(Stop::Failed)?;
        let dnode = Some(view.core());
        let objset = ObjsetId(DESTROYED_OBJSET);
        let top = view.core().nlevels - 1;
        for (at, bp) in view.blkptrs().iter().enumerate() {
            let bookmark = Bookmark::new(objset, object, top, BlkId(at as u64));
            self.block(bp, Location { dnode, bookmark }, visit)?;
        }
        if let Some(spill) = view.spill() {
            let bookmark = Bookmark::spill(objset, object);
            self.block(spill, Location { dnode, bookmark }, visit)?;
        }
        Ok(())
    }
}

enum Skip {
    /// The block and all below are done with.
    All,
    /// This is the block: what is below it is done with.
    Children,
    Nothing,
}

#[doc(alias = "resume_skip_check")]
fn compare_to_resume(place: &Location<'_>, resume: Point) -> Skip {
    if place.is_root() {
        return Skip::Nothing;
    }
    let Bookmark {
        object,
        level,
        blkid,
        ..
    } = place.bookmark;
    let resume_key = if resume.object == ObjectId(0) {
        (resume.blkid.saturating_mul(DNODES_PER_BLOCK), 0, META_LEVEL)
    } else {
        (resume.object.0, resume.blkid, 0)
    };
    let is_point = object == resume.object && level == 0 && blkid.0 == resume.blkid;
    // The block ends where the next one of its level begins.
    let (end_object, end_block, end_level) = place.key(blkid.0.saturating_add(1));
    let end = (end_object, end_block).cmp(&(resume_key.0, resume_key.1));
    let end = end.then(resume_key.2.cmp(&end_level));
    if end != Ordering::Greater {
        Skip::All
    } else if is_point {
        Skip::Children
    } else {
        Skip::Nothing
    }
}
