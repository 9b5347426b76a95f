//! Removing top-level vdevs: copying what they hold to others, and finding it there.
//!
//! # What it is
//! A vdev that is to be removed gets no new blocks. Then its metaslabs are read in order, and what is allocated is
//! copied to other vdevs ([`evacuate`]); where each range went is appended to a *mapping* (`vdev::Mapping`). At the
//! end the vdev becomes an *indirect* one, which has no devices but this mapping: block pointers are not changed.
//! A log device has nothing but logs, which are dropped ([`log_device`]).
//!
//! All frees pass through [`Removal`], which is the allocator that the pipeline knows: what is freed on an
//! indirect vdev is freed where it is now, and marked as *obsolete* on the way. A mapping most of which is obsolete
//! is written anew without it ([`condense`]).
//!
//! # On disk
//! Entry `com.delphix:removing` of the pool directory ([`RemovingPhys`]): the progress, and the vdev that was removed
//! last, whose config names the one before it, and so on. A config names the objects of mapping and births. With the
//! feature `obsolete_counts` a second array has the obsolete bytes of each entry when it was written, and the vdev's
//! ZAP names a space map of the obsolete ranges since then, in bytes.
//!
//! # Invariants
//! 1. What is allocated on the vdev that is being removed, before the end of its mapping, is mapped, and what it is
//!    mapped to is allocated.
//! 2. Of each mapping entry, the bytes that no block refers to are those that its count and the space map of
//!    obsolete ranges say.
//! 3. What is needed to read a mapping is on no vdev that is removed later than that, or its mapping was read before.
//!
//! # Crash argument
//! Each txg copies some ranges, and flushes them, before its uberblock names the longer mapping. Until the uberblock
//! of the last txg, all blocks are read from the old vdev, which nothing is written to; from then on, through the
//! mapping. The labels of the old devices are emptied after that.
//!
//! # Concurrency
//! A slice of the evacuation runs in the sync thread, in the first pass: nothing is freed meanwhile, so nothing
//! that is being copied can be freed. A free before it is not copied; one after it is freed at both places. The
//! lock of the state is held for a moment only, never during I/O.
//!
//! # Why not simpler
//! OpenZFS copies in open context and so has frees of what is in flight. Here the txg waits for its slice, which is
//! short when others wait, as that of a scan.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_removal.c`, `module/zfs/vdev_indirect.c`, `module/zfs/vdev_indirect_mapping.c`.

mod cancel;
mod condense;
mod estimate;
mod evacuate;
mod finish;
mod frees;
mod load;
mod log_device;
mod object;
mod obsolete;
mod start;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{ObjectId, Result, SPA_MAXBLOCKSIZE, VdevId};
use dmu::{Objset, Tx};
use metaslab::{Metaslabs, RangeTree};
use phys::pool_names;
use phys::scan::{DSS_SCANNING, RemovingPhys};
use rt::Mutex;
use vdev::{Mapping, VdevTree};
use zap::directory;
use zerocopy::IntoBytes;

use crate::checkpoint::Kept;
use crate::spa::Inner;

pub use condense::condensed_obsolete_map;
pub use estimate::RemovalProgress;
pub(crate) use load::{has_removed, load_mappings};
pub use object::{read_mapping, read_obsolete_counts};

/// "None", of the numbers of vdevs in [`RemovingPhys`].
const NO_VDEV: u64 = u64::MAX;

/// How vdevs are removed.
#[derive(Clone, Debug)]
pub struct RemovalSettings {
    /// `zfs_remove_max_segment`: bytes that are copied to one place, at most; a multiple of the sector.
    pub segment_max_bytes: u64,
    /// `zfs_condense_min_mapping_bytes`: a mapping that is no longer than this is not condensed, in bytes.
    pub condense_min_mapping_bytes: u64,
}

impl Default for RemovalSettings {
    fn default() -> Self {
        RemovalSettings {
            segment_max_bytes: SPA_MAXBLOCKSIZE,
            condense_min_mapping_bytes: 128 << 10,
        }
    }
}

/// The removed vdevs of a pool, and the one that is being removed.
pub(crate) struct Removal {
    tree: Arc<VdevTree>,
    space: Arc<Metaslabs>,
    kept: Arc<Kept>,
    /// Whether any vdev was removed or is being removed: otherwise frees go straight to the allocator.
    is_used: AtomicBool,
    state: Mutex<State>,
    /// When the last slice ended.
    slice_ended_ns: AtomicU64,
}

#[derive(Default)]
struct State {
    /// As the pool directory has it; `None` if nothing was ever removed.
    phys: Option<RemovingPhys>,
    active: Option<Active>,
    /// Ranges of vdevs with a mapping that were freed in this pass.
    obsolete: BTreeMap<VdevId, RangeTree>,
    condensing: Option<condense::Condensing>,
}

/// The vdev that is being removed.
#[doc(alias = "spa_vdev_removal_t")]
struct Active {
    vdev: VdevId,
    mapping: Mapping,
    mapping_object: ObjectId,
    births_object: ObjectId,
    /// The txg in which it was begun; 0 if that was before the pool was opened.
    since: u64,
    /// The metaslab that is read next.
    metaslab: u64,
    /// What is left to copy of those that were read.
    pending: RangeTree,
    /// Bytes copied or freed since the progress was written.
    done: u64,
}

impl Removal {
    pub(crate) fn new(tree: Arc<VdevTree>, space: Arc<Metaslabs>, kept: Arc<Kept>) -> Arc<Removal> {
        Arc::new(Removal {
            tree,
            space,
            kept,
            is_used: AtomicBool::new(false),
            state: Mutex::default(),
            slice_ended_ns: AtomicU64::new(0),
        })
    }

    /// Whether a vdev is being removed.
    pub(crate) fn is_active(&self) -> bool {
        self.is_used.load(Ordering::Relaxed) && self.state.lock().active.is_some()
    }

    /// Whether there is anything that a mapping leads to, or will.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// The state of the last removal.
    pub(crate) fn phys(&self) -> Option<RemovingPhys> {
        self.state.lock().phys
    }

    fn change_phys(
        &self,
        mos: &Arc<Objset>,
        tx: &Tx,
        change: impl FnOnce(&mut RemovingPhys),
    ) -> Result<()> {
        let phys = {
            let mut state = self.state.lock();
            let phys = state.phys.get_or_insert_with(none_removed);
            change(phys);
            *phys
        };
        let (words, _) = phys.as_bytes().as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        zap::update(mos, tx, directory::OBJECT, pool_names::REMOVING, &words[..])
    }

    /// Writes what this pass has freed: progress, and obsolete ranges. In each pass, after the frees.
    #[doc(alias = "svr_sync")]
    fn sync_progress(&self, mos: &Arc<Objset>, tx: &Tx) -> Result<()> {
        let done = {
            let mut state = self.state.lock();
            let active = state.active.as_mut();
            active.map_or(0, |active| std::mem::take(&mut active.done))
        };
        if done == 0 {
            return Ok(());
        }
        self.change_phys(mos, tx, |phys| {
            phys.copied.set(phys.copied.get().saturating_add(done));
        })
    }
}

/// The state of a pool from which nothing was ever removed.
fn none_removed() -> RemovingPhys {
    let mut phys = RemovingPhys::default();
    phys.removing_vdev.set(NO_VDEV);
    phys.prev_indirect_vdev.set(NO_VDEV);
    phys
}

fn is_scanning(phys: &RemovingPhys) -> bool {
    phys.state.get() == DSS_SCANNING
}

impl Inner {
    /// Removes a little more of the vdev that is being removed, or condenses a little more of a mapping. In the first
    /// pass.
    pub(crate) fn sync_removal(&self, tx: &Tx) -> Result<()> {
        if !self.removal.is_used() {
            return Ok(());
        }
        self.sync_evacuation(tx)?;
        self.sync_condense(tx)
    }

    /// Writes what the frees of this pass have changed. In each pass.
    pub(crate) fn sync_remapped_frees(&self, tx: &Tx) -> Result<()> {
        if !self.removal.is_used() {
            return Ok(());
        }
        self.removal.sync_progress(&self.mos, tx)?;
        self.sync_obsolete(tx)
    }
}
