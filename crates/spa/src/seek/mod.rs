//! Looking for the objsets of a pool to which no uberblock leads.
//!
//! # What it is
//! The devices are put together by their labels, and read from beginning to end ([`vdev::survey`]); what looks like the
//! root of an objset ([`dmu::sketch`]) is read through the vdevs like any block. The root of a MOS that was found is as
//! good as an uberblock: [`FoundObjset::uberblock`] makes one, by which the pool opens. Those of file systems can be
//! opened without a MOS, if need be.
//!
//! # Invariants
//! 1. The root of an objset is believed if a block that it points to verifies: its checksum was computed when the root
//!    was written. What is below is read by pointers with checksums, as ever.
//! 2. Nothing is written.
//!
//! # What is not known
//! In one txg the MOS is written several times, and the roots of all but the last may still be there. They come after
//! it where space is given out from front to back; where it is not, one that lacks what the last pass changed (free
//! space, mostly) may come first. When it was written: an uberblock has the time. How far the expansion of a RAID-Z
//! got that was under way.
//!
//! # Source
//! OpenZFS `module/zfs/dmu_objset.c` (`dmu_objset_open_impl`), `module/zfs/spa.c` (`spa_sync_iterate_to_convergence`).

mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{BlkId, BlockBuf, ObjectId, ObjsetId, Result, Txg, VdevId, align_up};
use dmu::{Likeness, Objset, ObjsetProps, Sketch};
use metaslab::{Metaslabs, MetaslabsOptions};
use phys::uberblock::{SPA_VERSION_FEATURES, UBERBLOCK_MAGIC, UberblockPhys};
use phys::{BlkPtrPhys, ObjectType, ObjsetType};
use vdev::VdevTree;
use vdev::import::FoundPool;
use vdev::survey::{Ground, Sighting};
use zio::{BlockStore, Bookmark, FoundBlock, Io, Pipeline, PipelineSettings, VdevOps};

pub use files::{FileIdentity, FoundFile};

/// How far copies of a block are from each other on a vdev, at least.
const APART_BYTES: u64 = 1 << 20;

/// A place where a block may be.
pub type Sighted = Sighting<Sketch>;

/// The objset number of what has none: no data set has this one.
const UNNAMED: ObjsetId = ObjsetId(u64::MAX - 1);

/// The devices of a pool, to look for objsets on.
pub struct Seek {
    tree: Arc<VdevTree>,
    store: Arc<dyn BlockStore>,
}

/// An objset that was found, and is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundObjset {
    /// Which kind it is.
    pub type_: ObjsetType,
    /// When it was written.
    pub txg: Txg,
    /// A pointer to its root, with all copies that were found.
    pub root: BlkPtrPhys,
}

impl FoundObjset {
    /// The uberblock that would lead to it, of a MOS.
    #[must_use]
    pub fn uberblock(&self) -> UberblockPhys {
        let mut uberblock = UberblockPhys::default();
        uberblock.magic.set(UBERBLOCK_MAGIC);
        uberblock.version.set(SPA_VERSION_FEATURES);
        uberblock.software_version.set(SPA_VERSION_FEATURES);
        uberblock.txg.set(self.txg.0);
        uberblock.rootbp = self.root;
        uberblock
    }
}

/// Where the copies of a block are.
type Places = Vec<(VdevId, u64)>;

/// Adds a place in the order of places. A block of one sector can also be read beside where it is, from what is its
/// parity there: that is not another copy.
fn add_place(places: &mut Places, sighting: &Sighted) {
    let (vdev, offset) = (sighting.vdev, sighting.offset);
    let is_beside = |(other, at): &(VdevId, u64)| *other == vdev && offset - at < APART_BYTES;
    if !places.last().is_some_and(is_beside) {
        places.push((vdev, offset));
    }
}

impl Seek {
    /// Puts the devices of a pool together by what their labels say.
    ///
    /// # Errors
    /// Those of [`FoundPool::open`].
    pub fn new(found: &FoundPool) -> Result<Seek> {
        let tree = found.open(&found.config, false)?;
        tree.note_uberblock(&UberblockPhys::default());
        let options = MetaslabsOptions { spacemap_v2: true };
        let space = Arc::new(Metaslabs::new(tree.clone(), options));
        let settings = PipelineSettings {
            heal: false,
            dynamic_gang_headers: true,
            ..PipelineSettings::default()
        };
        let store = Arc::new(Pipeline::new(tree.clone(), space, settings));
        Ok(Seek { tree, store })
    }

    /// The devices that there are to read.
    #[must_use]
    pub fn grounds(&self) -> Vec<Ground> {
        self.tree.grounds()
    }

    /// Looks at all places where roots of objsets may be, and returns those that are, the newest first. `see` is called
    /// for each place.
    #[must_use]
    pub fn objsets(&self, sighted: &BTreeSet<Sighted>, see: &mut dyn FnMut()) -> Vec<FoundObjset> {
        // By what is stored: copies are the same.
        let mut roots: BTreeMap<Vec<u8>, (dmu::FoundObjset, Sketch, Places)> = BTreeMap::new();
        let is_root = |sighting: &&Sighted| sighting.what.likeness == Likeness::Objset;
        for sighting in sighted.iter().filter(is_root) {
            see();
            let Some((root, stored)) = self.read_root(sighting) else {
                continue;
            };
            let found = roots
                .entry(stored)
                .or_insert((root, sighting.what, Vec::new()));
            add_place(&mut found.2, sighting);
        }
        let mut found: Vec<FoundObjset> = roots
            .into_iter()
            .filter(|(_, (root, _, _))| self.is_believed(root))
            .map(|(stored, (root, sketch, copies))| {
                let block = FoundBlock {
                    stored: &stored,
                    lsize: root.lsize,
                    compress: sketch.compress(),
                    object_type: ObjectType::OBJSET,
                    birth: root.birth(),
                };
                FoundObjset {
                    type_: root.objset_type(),
                    txg: root.birth(),
                    root: block.pointer(&*self.tree, &copies),
                }
            })
            .collect();
        // Of one txg, what was allocated last was written last.
        let last = |objset: &FoundObjset| objset.root.dvas().map(|dva| dva.offset()).max();
        found.sort_by_key(|objset| std::cmp::Reverse((objset.txg, last(objset))));
        found
    }

    fn read_root(&self, sighting: &Sighted) -> Option<(dmu::FoundObjset, Vec<u8>)> {
        let mut stored = self.read(sighting, &|stored| sighting.what.objset(stored).is_ok())?;
        let root = sighting.what.objset(&stored).ok()?;
        if !sighting.what.is_compressed {
            stored.truncate(root.lsize as usize);
        }
        Some((root, stored))
    }

    /// The bytes at a place, if `is_it` says so of what any devices together have there.
    fn read(&self, sighting: &Sighted, is_it: &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let psize = sighting.what.psize as usize;
        let sector = 1 << self.tree.ashift(sighting.vdev);
        let mut buf = BlockBuf::zeroed(align_up(psize as u64, sector) as usize);
        // The newest blocks are laid out as wide as the vdev is now.
        let io = Io::speculative(Txg(u64::MAX - 1));
        let is_it = |bytes: &[u8]| is_it(&bytes[..psize]);
        let (vdev, offset) = (sighting.vdev, sighting.offset);
        self.tree.read(&io, vdev, offset, &mut buf, &is_it).ok()?;
        Some(buf[..psize].to_vec())
    }

    /// Whether a block that a root points to verifies.
    fn is_believed(&self, root: &dmu::FoundObjset) -> bool {
        let mut pointers = (0..).zip(root.pointers());
        pointers.any(|(blkid, bp)| {
            let bookmark = Bookmark::new(UNNAMED, ObjectId(0), bp.level(), BlkId(blkid));
            // A pointer can hold a block itself: it proves nothing.
            !bp.is_embedded() && self.store.read_keyless(&bp, &bookmark).is_ok()
        })
    }

    /// Opens an objset that was found, to be read without its pool.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn open(&self, found: &FoundObjset) -> Result<Arc<Objset>> {
        let accounting = Arc::new(dmu::FreeAtOnce(self.store.clone()));
        let props = ObjsetProps::default();
        Objset::open(self.store.clone(), UNNAMED, &found.root, props, accounting)
    }
}
