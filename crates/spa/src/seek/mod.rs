//! Looking for the objsets of a pool to which no uberblock leads.
//!
//! # What it is
//! The devices are put together by their labels, and read from beginning to end ([`vdev::survey`]); what looks like
//! the root of an objset ([`dmu::sketch`]) is read through the vdevs like any block. The root of a MOS that was found
//! is as good as an uberblock: [`FoundObjset::uberblock`] makes one, by which the pool opens. Those of file systems
//! can be opened without a MOS, if need be. Where a root is lost, the indirect blocks below it take its place
//! ([`trees`]).
//!
//! # Invariants
//! 1. The root of an objset is believed if a block that it points to verifies: its checksum was computed when the root
//!    was written. What is below is read by pointers with checksums, as ever.
//! 2. Nothing is written.
//!
//! # What is not known
//! In one txg the MOS is written several times, and the roots of all but the last may still be there. They come after
//! it where space is given out from front to back; where it is not, one that lacks what the last pass changed (free
//! space, mostly) may come first. When it was written: an uberblock has the time.
//!
//! # Source
//! OpenZFS `module/zfs/dmu_objset.c` (`dmu_objset_open_impl`), `module/zfs/spa.c` (`spa_sync_iterate_to_convergence`).

mod files;
mod reflow;
mod trees;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{BlkId, BlockBuf, ObjectId, ObjsetId, Result, Txg, VdevId, align_down, align_up};
use dmu::{Likeness, Objset, ObjsetProps, Sketch};
use metaslab::{Metaslabs, MetaslabsOptions};
use phys::uberblock::{UBERBLOCK_MAGIC, UberblockPhys};
use phys::{BlkPtrPhys, ObjectType, ObjsetType};
use rt::Mutex;
use vdev::VdevTree;
use vdev::import::FoundPool;
use vdev::survey::{Ground, Sighting};
use zio::{BlockStore, Bookmark, FoundBlock, Io, Pipeline, PipelineSettings, VdevOps};

pub use files::{FileIdentity, FoundFile};

/// How far copies of a block are from each other on a vdev, at least.
const APART_BYTES: u64 = 1 << 20;

/// A place where a block may be.
pub type Sighted = Sighting<Sketch>;

/// Makes something of the bytes at a place, and says how many of them are its own.
type Parse<'a, T> = &'a dyn Fn(&Sketch, &[u8]) -> Result<(T, usize)>;

/// The objset number of what has none: no data set has this one.
const UNNAMED: ObjsetId = ObjsetId(u64::MAX - 1);

/// The devices of a pool, to look for objsets on.
pub struct Seek {
    tree: Arc<VdevTree>,
    store: Arc<dyn BlockStore>,
    /// The version of the pool.
    version: u64,
    /// How far the expansion of a RAID-Z is, as an uberblock has it, and whether that is known.
    reflow: Mutex<u64>,
    knows_reflow: Mutex<bool>,
}

/// An objset that was found, and is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundObjset {
    /// Which kind it is.
    pub type_: ObjsetType,
    /// When it was written.
    pub txg: Txg,
    /// A pointer to its root, or to the highest block of its dnodes that is left, with all copies that were found.
    pub root: BlkPtrPhys,
    version: u64,
    reflow: u64,
}

impl FoundObjset {
    /// Whether its root block was found.
    #[must_use]
    pub fn has_root(&self) -> bool {
        self.root.object_type() == ObjectType::OBJSET.raw()
    }

    /// The uberblock that would lead to it, of a MOS whose root was found.
    #[must_use]
    pub fn uberblock(&self) -> UberblockPhys {
        let mut uberblock = UberblockPhys::default();
        uberblock.magic.set(UBERBLOCK_MAGIC);
        uberblock.version.set(self.version);
        uberblock.software_version.set(self.version);
        uberblock.txg.set(self.txg.0);
        uberblock.rootbp = self.root;
        uberblock.raidz_reflow_info.set(self.reflow);
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

fn of_likeness(sighted: &BTreeSet<Sighted>, likeness: Likeness) -> impl Iterator<Item = &Sighted> {
    sighted
        .iter()
        .filter(move |it| it.what.likeness == likeness)
}

impl Seek {
    /// Puts the devices of a pool together by what their labels say.
    ///
    /// # Errors
    /// Those of [`FoundPool::open`].
    pub fn new(found: &FoundPool) -> Result<Seek> {
        let tree = found.open(&found.config, false)?;
        let uberblocks = found.devices.iter().flat_map(|it| it.labels.uberblocks());
        let newest = uberblocks.max_by_key(UberblockPhys::txg);
        let knows_reflow = newest.is_some();
        let newest = newest.unwrap_or_default();
        tree.note_uberblock(&newest);
        let options = MetaslabsOptions { spacemap_v2: true };
        let space = Arc::new(Metaslabs::new(tree.clone(), options));
        let settings = PipelineSettings {
            heal: false,
            dynamic_gang_headers: true,
            ..PipelineSettings::default()
        };
        let store = Arc::new(Pipeline::new(tree.clone(), space, settings));
        let version = found.config.get_u64("version");
        let version = version.unwrap_or(phys::uberblock::SPA_VERSION_FEATURES);
        Ok(Seek {
            tree,
            store,
            version,
            reflow: Mutex::new(newest.raidz_reflow_info.get()),
            knows_reflow: Mutex::new(knows_reflow),
        })
    }

    /// The devices that there are to read.
    #[must_use]
    pub fn grounds(&self) -> Vec<Ground> {
        self.tree.grounds()
    }

    /// Looks at all places where roots of objsets may be, or blocks of pointers to their dnodes, and returns the
    /// objsets, the newest first. `see` is called for each place.
    #[must_use]
    pub fn objsets(&self, sighted: &BTreeSet<Sighted>, see: &mut dyn FnMut()) -> Vec<FoundObjset> {
        self.find_reflow(sighted);
        let reflow = *self.reflow.lock();
        // By what is stored: copies are the same.
        let mut roots: BTreeMap<Vec<u8>, (dmu::FoundObjset, Sketch, Places)> = BTreeMap::new();
        for sighting in of_likeness(sighted, Likeness::Objset) {
            see();
            let Some((root, stored)) = self.read(sighting, &|sketch, stored| {
                let root = sketch.objset(stored)?;
                let psize = root.psize;
                Ok((root, psize))
            }) else {
                continue;
            };
            let found = roots
                .entry(stored)
                .or_insert((root, sighting.what, Vec::new()));
            add_place(&mut found.2, sighting);
        }
        roots.retain(|_, (root, _, _)| self.is_believed(root));
        let pointers = roots.values().flat_map(|(root, _, _)| root.pointers());
        let below = pointers.flat_map(|bp| trees::keys(&bp)).collect();
        let mut found: Vec<FoundObjset> = roots
            .into_iter()
            .map(|(stored, (root, sketch, copies))| {
                let block = FoundBlock {
                    stored: &stored,
                    lsize: root.lsize,
                    compress: sketch.compress,
                    object_type: ObjectType::OBJSET,
                    level: 0,
                    birth: root.birth(),
                    is_little_endian: root.is_little_endian,
                };
                FoundObjset {
                    type_: root.objset_type(),
                    txg: root.birth(),
                    root: block.pointer(&*self.tree, &copies),
                    version: self.version,
                    reflow,
                }
            })
            .collect();
        found.extend(self.trees(sighted, below, see));
        // Of one txg, a root comes before what is below it, and what was allocated last was written last.
        let last = |objset: &FoundObjset| objset.root.dvas().map(|dva| dva.offset()).max();
        found
            .sort_by_key(|objset| std::cmp::Reverse((objset.txg, objset.has_root(), last(objset))));
        found
    }

    /// What `parse` makes of the bytes at a place, and those of them that are its own.
    fn read<T>(&self, sighting: &Sighted, parse: Parse<'_, T>) -> Option<(T, Vec<u8>)> {
        let (vdev, offset) = (sighting.vdev, sighting.offset);
        let sector = 1 << self.tree.ashift(vdev);
        let tops = self.tree.tops();
        let top = tops.get(usize::try_from(vdev.0).ok()?)?;
        let asize_max = top.config().asize.checked_sub(offset)?;
        let psize = align_up(sighting.what.psize.into(), sector);
        let try_size = |size: u64| {
            let mut buf = BlockBuf::zeroed(usize::try_from(size).ok()?);
            // The newest blocks are laid out as wide as the vdev is now.
            let io = Io::speculative(Txg(u64::MAX - 1));
            let own = |bytes: &[u8]| {
                let len = bytes.len().min(sighting.what.psize as usize);
                parse(&sighting.what, &bytes[..len])
            };
            let is_it = |bytes: &[u8]| own(bytes).is_ok();
            self.tree.read(&io, vdev, offset, &mut buf, &is_it).ok()?;
            let (found, len) = own(&buf).ok()?;
            Some((found, buf[..len].to_vec()))
        };
        if !sighting.what.may_be_shorter() {
            return try_size(psize);
        }
        if !top.kind().has_parity() {
            return try_size(psize.min(align_down(asize_max, sector)));
        }
        // How the sectors of a block are spread depends on how many there are.
        let sizes = (sector..=psize).step_by(1 << self.tree.ashift(vdev));
        sizes.into_iter().find_map(try_size)
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
        if !found.has_root() {
            let block = (found.type_, &found.root, 0);
            return Ok(Objset::adrift(
                self.store.clone(),
                UNNAMED,
                block,
                accounting,
            ));
        }
        let props = ObjsetProps::default();
        Objset::open(self.store.clone(), UNNAMED, &found.root, props, accounting)
    }
}
