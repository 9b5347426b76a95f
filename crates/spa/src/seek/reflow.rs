//! How far the expansion of a RAID-Z got, where no uberblock says it.
//!
//! # What it is
//! Sectors before that point are where they belong on all children, those behind it where they were before. Blocks are
//! read both ways, by the pointers that were found: one that verifies on all children alone was moved, so the
//! expansion got at least to its end. Of those that were freed the former place may still verify, so nothing follows
//! from that. The end of the last block that was moved is as good as the point itself: what is between them verifies
//! both ways.
//!
//! # Invariants
//! All metadata that is found is read. Of data, blocks are read in their order from the last moved block of metadata
//! on, until [`STILL_MAX`] of them in a row were not moved.
//!
//! # What is not found
//! The first sectors while they are in the scratch area alone.
//!
//! # Source
//! OpenZFS `include/sys/uberblock_impl.h` (`RRSS_GET_OFFSET`), `module/zfs/vdev_raidz.c` (`raidz_reflow_impl`).

use std::collections::{BTreeMap, BTreeSet};

use base::{BlkId, ObjectId, VdevId};
use dmu::Likeness;
use phys::uberblock::{RRSS_SCRATCH_INVALID_SYNCED_REFLOW, UberblockPhys};
use phys::{BlkPtrPhys, DvaPhys, Phys};
use zio::Bookmark;

use super::{Seek, Sighted, UNNAMED};

/// Blocks of data in a row that were not moved, after which none is expected.
const STILL_MAX: u32 = 1000;

/// What was found out so far.
struct Progress {
    vdev: VdevId,
    /// The whole vdev.
    all: u64,
    /// The end of the last block that was moved.
    moved: u64,
    seen: BTreeSet<(u64, [u64; 4])>,
    /// Pointers to data, by offset.
    data: BTreeMap<u64, Vec<(BlkPtrPhys, DvaPhys)>>,
}

impl Seek {
    /// The uberblock that says how far an expansion got, of which nothing else is known.
    pub(super) fn reflowed(offset: u64) -> UberblockPhys {
        let mut uberblock = UberblockPhys::default();
        uberblock.set_reflow(RRSS_SCRATCH_INVALID_SYNCED_REFLOW, offset);
        uberblock
    }

    /// Finds out how far the expansion of a RAID-Z got, if there is one and it is not known, and reads accordingly
    /// from now on.
    pub(super) fn find_reflow(&self, sighted: &BTreeSet<Sighted>) {
        let is_expanding = |top: &&std::sync::Arc<vdev::Vdev>| top.config().expanding;
        let tops = self.tree.tops();
        let found = (0..).zip(tops.iter()).find(|(_, top)| is_expanding(top));
        let Some((id, top)) = found.filter(|_| !*self.knows_reflow.lock()) else {
            return;
        };
        let mut progress = Progress {
            vdev: VdevId(id),
            all: top.config().asize,
            moved: 0,
            seen: BTreeSet::new(),
            data: BTreeMap::new(),
        };
        for offset in [0, progress.all] {
            self.tree.note_uberblock(&Seek::reflowed(offset));
            let pointers: Vec<_> = sighted.iter().flat_map(|it| self.pointers_at(it)).collect();
            self.look_below(pointers, &mut progress);
        }
        self.look_at_data(&mut progress);
        let uberblock = Seek::reflowed(progress.moved);
        self.tree.note_uberblock(&uberblock);
        *self.reflow.lock() = uberblock.raidz_reflow_info.get();
        *self.knows_reflow.lock() = true;
    }

    /// The pointers in what is at a place.
    fn pointers_at(&self, place: &Sighted) -> Vec<BlkPtrPhys> {
        let pointers = match place.what.likeness {
            Likeness::Objset => self.read(place, &|sketch, stored| {
                let root = sketch.objset(stored)?;
                Ok((root.pointers(), root.psize))
            }),
            Likeness::Dnodes => self.read(place, &|sketch, stored| {
                let block = sketch.dnodes(stored)?;
                let pointers = block.dnodes().flat_map(|(_, it)| it.blkptrs().to_vec());
                Ok((pointers.collect(), block.psize))
            }),
            Likeness::Pointers => self.read(place, &|sketch, stored| {
                let block = sketch.pointers(stored)?;
                Ok((block.pointers, block.psize))
            }),
        };
        pointers.map_or_else(Vec::new, |(pointers, _)| pointers)
    }

    /// Reads the metadata that these pointers lead to in both ways, and notes those to data.
    fn look_below(&self, mut pointers: Vec<BlkPtrPhys>, progress: &mut Progress) {
        while let Some(bp) = pointers.pop() {
            if bp.is_hole() || bp.is_embedded() || bp.is_gang() {
                continue;
            }
            let vdev = progress.vdev;
            for dva in bp.dvas().filter(|dva| dva.vdev() == vdev) {
                if !progress.seen.insert((dva.offset(), bp.cksum_words())) {
                    continue;
                }
                if !bp.is_metadata() {
                    let others = progress.data.entry(dva.offset()).or_default();
                    others.push((bp, dva));
                    continue;
                }
                if let Some(block) = self.read_both(&bp, dva, progress).1
                    && bp.level() > 0
                {
                    let below = block.chunks_exact(size_of::<BlkPtrPhys>());
                    pointers.extend(below.filter_map(|it| BlkPtrPhys::view(it).ok().copied()));
                }
            }
        }
    }

    fn look_at_data(&self, progress: &mut Progress) {
        let mut still = 0;
        let mut behind = std::mem::take(&mut progress.data).split_off(&progress.moved);
        while let Some((_, pointers)) = behind.pop_first().filter(|_| still < STILL_MAX) {
            for (bp, dva) in pointers {
                match self.read_both(&bp, dva, progress) {
                    (true, _) => still = 0,
                    (false, Some(_)) => still += 1,
                    // It was overwritten, or is damaged.
                    (false, None) => {}
                }
            }
        }
    }

    /// Whether a block was moved, and what is in it.
    fn read_both(
        &self,
        bp: &BlkPtrPhys,
        dva: DvaPhys,
        progress: &mut Progress,
    ) -> (bool, Option<Vec<u8>>) {
        let mut one = *bp;
        one.set_dva(0, dva);
        (1..bp.dva.len()).for_each(|n| one.set_dva(n, DvaPhys::default()));
        let bookmark = Bookmark::new(UNNAMED, ObjectId(0), bp.level(), BlkId(0));
        let read = |offset| {
            self.tree.note_uberblock(&Seek::reflowed(offset));
            self.store.read_keyless(&one, &bookmark).ok()
        };
        let (old, new) = (read(0), read(progress.all));
        let is_moved = old.is_none() && new.is_some();
        if is_moved {
            progress.moved = progress.moved.max(dva.offset() + dva.asize());
        }
        (is_moved, old.or(new).map(|block| block.to_vec()))
    }
}
