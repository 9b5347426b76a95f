//! What the layers above the pipeline need from the pool while it syncs: frees, features, space.
//!
//! # What it is
//! [`Core`] is the part of a pool that datasets call back into ([`dsl::PoolEnv`]). It decides what
//! happens to a freed block: in the first pass of a sync it is freed at once; later passes write
//! space maps, and freeing at once would dirty them again, so the block goes to the *deferred* list
//! (`sync_bplist`), which the next txg's first pass drains.
//!
//! # Source
//! OpenZFS `module/zfs/spa.c` (`spa_sync_frees`, `spa_sync_deferred_frees`), `module/zfs/zio.c`
//! (`zio_free`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use base::{Result, SPA_MINBLOCKSHIFT, Txg, VdevId};
use ddt::DdtSync;
use dmu::Tx;
use dsl::{Bpobj, HistoryEvent, PoolEnv};
use metaslab::Metaslabs;
use nvpair::NvList;
use phys::blkptr::{BlkPtrPhys, DvaPhys};
use phys::uberblock::SPA_VERSION_FEATURES;
use rt::{Mutex, RwLock};
use vdev::VdevTree;
use zio::{AllocClass, BlockStore, VdevOps};

use crate::checkpoint::Kept;
use crate::events::Events;
use crate::features::Features;
use crate::history::{self, History};
use crate::sharing::Sharing;
use crate::space_maps::SpaceMaps;

/// `zfs_sync_pass_deferred_free`: from this pass on, frees are deferred to the next txg.
const DEFERRED_FREE_PASS: u32 = 2;

/// Callbacks of the pool for the layers above the pipeline.
pub(crate) struct Core {
    pub(crate) store: Arc<dyn BlockStore>,
    pub(crate) space: Arc<Metaslabs>,
    tree: Arc<VdevTree>,
    parts: RwLock<Parts>,
    pass: AtomicU32,
    frees: Mutex<Vec<BlkPtrPhys>>,
    /// Set while the first txg is built, when nothing is logged.
    is_initializing: std::sync::atomic::AtomicBool,
    host_name: String,
    deferred_bytes: AtomicU64,
    sharing: Arc<Sharing>,
    scan: scan::Scan,
    error_scrub: scan::ErrorScrub,
    kept: Arc<Kept>,
    events: Events,
}

/// The parts that live in the MOS. The MOS refers to the core, so they are dropped when the pool
/// closes, to break the cycle.
#[derive(Default)]
struct Parts {
    features: Option<Arc<Features>>,
    history: Option<Arc<History>>,
    deferred: Option<Arc<Bpobj>>,
}

impl Core {
    pub(crate) fn new(
        store: Arc<dyn BlockStore>,
        space: Arc<Metaslabs>,
        tree: Arc<VdevTree>,
        host_name: String,
        kept: Arc<Kept>,
    ) -> Arc<Core> {
        Arc::new(Core {
            store,
            space,
            tree,
            parts: RwLock::default(),
            pass: AtomicU32::new(0),
            frees: Mutex::new(Vec::new()),
            is_initializing: std::sync::atomic::AtomicBool::new(false),
            host_name,
            deferred_bytes: AtomicU64::new(0),
            sharing: Arc::default(),
            scan: scan::Scan::default(),
            error_scrub: scan::ErrorScrub::default(),
            kept,
            events: Events::default(),
        })
    }

    pub(crate) fn set_features(&self, features: Arc<Features>) {
        self.parts.write().features = Some(features);
    }

    pub(crate) fn set_history(&self, history: History) {
        self.parts.write().history = Some(Arc::new(history));
    }

    pub(crate) fn set_deferred(&self, deferred: Bpobj) -> Result<()> {
        self.note_deferred(&deferred)?;
        self.parts.write().deferred = Some(Arc::new(deferred));
        Ok(())
    }

    pub(crate) fn set_initializing(&self, is_initializing: bool) {
        self.is_initializing
            .store(is_initializing, Ordering::Relaxed);
    }

    pub(crate) fn features(&self) -> Arc<Features> {
        let features = self.parts.read().features.clone();
        features.expect("features are read before anything asks for them")
    }

    pub(crate) fn history(&self) -> Option<Arc<History>> {
        self.parts.read().history.clone()
    }

    fn deferred_list(&self) -> Option<Arc<Bpobj>> {
        self.parts.read().deferred.clone()
    }

    /// The scrub or resilver.
    pub(crate) fn scan(&self) -> &scan::Scan {
        &self.scan
    }

    /// The scrub of the error log.
    pub(crate) fn error_scrub(&self) -> &scan::ErrorScrub {
        &self.error_scrub
    }

    /// What happened.
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// What is kept for the checkpoint.
    pub(crate) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// The tables of shared blocks.
    pub(crate) fn sharing(&self) -> &Arc<Sharing> {
        &self.sharing
    }

    /// Whether a dedup table that is made is one of `fast_dedup`.
    pub(crate) fn makes_fast_tables(&self) -> bool {
        self.features().count(phys::feature::FAST_DEDUP).is_some()
    }

    /// Drops the references released in this pass from the tables of shared blocks, and frees
    /// blocks that lost their last one. Before [`sync_frees`](Core::sync_frees).
    pub(crate) fn sync_sharing(&self, tx: &Tx) -> Result<Vec<BlkPtrPhys>> {
        let how = DdtSync {
            dsize: &|dva| self.dsize_of(dva),
            flushes: self.pass.load(Ordering::Relaxed) == 1,
            now: rt::wall_clock().secs,
        };
        let released = self.sharing.sync(tx, &how)?;
        for bp in &released.free {
            self.free_unshared(tx.txg(), bp);
        }
        for _ in 0..released.clone_tables_gone {
            self.feature_decr(phys::feature::BLOCK_CLONING, tx)?;
            if self.features().count(phys::feature::BLOCK_CLONING_ENDIAN) > Some(0) {
                self.feature_decr(phys::feature::BLOCK_CLONING_ENDIAN, tx)?;
            }
        }
        let (made, removed) = released.fast_tables;
        for _ in 0..made {
            self.feature_incr(phys::feature::FAST_DEDUP, tx)?;
        }
        for _ in 0..removed {
            self.feature_decr(phys::feature::FAST_DEDUP, tx)?;
        }
        assert!(self.sharing.is_settled(), "nothing is released meanwhile");
        self.sharing.set_fast(self.makes_fast_tables());
        Ok(released.risen)
    }

    /// Adds the references that the txg begins with to the tables of cloned blocks. Before anything is freed.
    #[doc(alias = "brt_pending_apply")]
    pub(crate) fn sync_clones(&self, tx: &Tx) -> Result<()> {
        let tops = self.tree.tops();
        // What is cut into metaslabs (`vdev_get_min_asize`).
        let bytes = |vdev: VdevId| {
            let config = tops.get(vdev.0 as usize).map(|top| top.config());
            config.map_or(0, |config| {
                config.asize >> config.ms_shift << config.ms_shift
            })
        };
        let dsize = |dva: &DvaPhys| self.dsize_of(dva);
        let as_numbers = self.counts_clones_by_numbers();
        let made = self.sharing.add_clones(tx, &dsize, &bytes, as_numbers)?;
        for _ in 0..made {
            self.feature_incr(phys::feature::BLOCK_CLONING, tx)?;
            if as_numbers {
                self.feature_incr(phys::feature::BLOCK_CLONING_ENDIAN, tx)?;
            }
        }
        Ok(())
    }

    /// Whether counts of cloned blocks are numbers: so since the first table, or the next one is the first.
    #[doc(alias = "brt_has_endian_fixed")]
    fn counts_clones_by_numbers(&self) -> bool {
        let count = |guid| self.features().count(guid);
        match count(phys::feature::BLOCK_CLONING_ENDIAN) {
            None => false,
            Some(0) => count(phys::feature::BLOCK_CLONING) == Some(0),
            Some(_) => true,
        }
    }

    /// Frees a block that is not in any table: now, or through the deferred list in late passes.
    fn free_unshared(&self, txg: Txg, bp: &BlkPtrPhys) {
        if self.pass.load(Ordering::Relaxed) < DEFERRED_FREE_PASS {
            self.store.free(txg, bp);
        } else if !bp.is_hole() && bp.ndvas() > 0 {
            self.frees.lock().push(*bp);
        }
    }

    /// The bytes that one copy is charged for.
    pub(crate) fn dsize_of(&self, dva: &DvaPhys) -> u64 {
        (dva.asize() >> SPA_MINBLOCKSHIFT) * self.tree.deflate_ratio(dva.vdev())
    }

    /// Drops all references to the MOS.
    pub(crate) fn close(&self) {
        self.sharing.close();
        *self.parts.write() = Parts::default();
    }

    /// Begins a pass of the sync; 0 when no sync is running.
    pub(crate) fn set_pass(&self, pass: u32) {
        self.pass.store(pass, Ordering::Relaxed);
    }

    /// Puts the blocks freed since the last call on the deferred list. At the end of a pass.
    pub(crate) fn sync_frees(&self, tx: &Tx) -> Result<()> {
        let frees = std::mem::take(&mut *self.frees.lock());
        if frees.is_empty() {
            return Ok(());
        }
        let deferred = self
            .deferred_list()
            .expect("a pool that syncs has its deferred list");
        deferred.enqueue(&frees, false, tx)?;
        self.note_deferred(&deferred)
    }

    /// Frees the blocks that the last txg deferred. In the first pass, after everything else.
    pub(crate) fn sync_deferred(&self, tx: &Tx) -> Result<()> {
        let Some(deferred) = self.deferred_list() else {
            return Ok(());
        };
        if deferred.is_empty() {
            return Ok(());
        }
        deferred.drain(tx, &mut |bp, _| {
            self.free_sync(tx.txg(), bp);
            Ok(dmu::traverse::Step::Continue)
        })?;
        self.note_deferred(&deferred)
    }

    fn note_deferred(&self, deferred: &Bpobj) -> Result<()> {
        self.deferred_bytes
            .store(deferred.space()?.used.max(0) as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Appends a record to the history. In syncing context.
    pub(crate) fn log(&self, mut record: NvList, is_command: bool, tx: &Tx) -> Result<()> {
        let Some(history) = self.history() else {
            return Ok(());
        };
        record.add(history::key::HOST, &*self.host_name);
        if !is_command {
            self.notify_history(&record);
        }
        history.append(&record, is_command, tx)
    }
}

impl Core {
    /// Records an internal event in the history. If the record cannot be written it is lost; the
    /// change it describes is not.
    #[doc(alias = "spa_history_log_internal")]
    pub(crate) fn log_internal(&self, operation: &str, text: &str, tx: &Tx) {
        if !self.is_initializing.load(Ordering::Relaxed) {
            let _ = self.log(history::internal_record(operation, text, tx), false, tx);
        }
    }

    /// Records an internal event with the software version: at creation and import.
    #[doc(alias = "spa_history_log_version")]
    pub(crate) fn log_version(&self, operation: &str, tx: &Tx) {
        let text = format!(
            "pool version {SPA_VERSION_FEATURES}; software version ashift-{}; uts {}",
            env!("CARGO_PKG_VERSION"),
            self.host_name
        );
        self.log_internal(operation, &text, tx);
    }
}

/// A pool that is being opened or created. If that fails, this breaks the reference cycles that
/// [`Spa`](crate::Spa) breaks when it is dropped: otherwise the memory and the threads of the
/// pipeline would be leaked.
pub(crate) struct HalfOpen {
    core: Arc<Core>,
    pub(crate) maps: Option<Arc<SpaceMaps>>,
    is_open: bool,
}

impl HalfOpen {
    pub(crate) fn new(core: &Arc<Core>) -> HalfOpen {
        HalfOpen {
            core: core.clone(),
            maps: None,
            is_open: false,
        }
    }

    /// The pool is open, and cleans up by itself from now on.
    pub(crate) fn opened(mut self) {
        self.is_open = true;
    }
}

impl Drop for HalfOpen {
    fn drop(&mut self) {
        if self.is_open {
            return;
        }
        self.core.close();
        if let Some(maps) = &self.maps {
            maps.close();
        }
    }
}

impl PoolEnv for Core {
    fn dsize(&self, bp: &BlkPtrPhys) -> u64 {
        bp.dvas().map(|dva| self.dsize_of(&dva)).sum()
    }

    fn free(&self, txg: Txg, bp: &BlkPtrPhys) {
        if self.sharing.is_shared(bp) {
            self.sharing.release(bp);
        } else {
            self.free_unshared(txg, bp);
        }
    }

    fn free_sync(&self, txg: Txg, bp: &BlkPtrPhys) {
        if self.sharing.is_shared(bp) {
            self.sharing.release(bp);
        } else {
            self.store.free(txg, bp);
        }
    }

    fn share(&self, bp: &BlkPtrPhys) {
        self.sharing.share(bp);
    }

    fn feature_is_enabled(&self, guid: &str) -> bool {
        self.features().count(guid).is_some()
    }

    fn feature_is_active(&self, guid: &str) -> bool {
        self.features().count(guid).is_some_and(|count| count > 0)
    }

    fn feature_incr(&self, guid: &str, tx: &Tx) -> Result<()> {
        self.features().adjust(guid, 1, tx)
    }

    fn feature_decr(&self, guid: &str, tx: &Tx) -> Result<()> {
        self.features().adjust(guid, -1, tx)
    }

    fn asize_max(&self, lsize: u64) -> u64 {
        let root = self.tree.root();
        let tops = root.children().iter();
        let sectors = tops.map(|top| lsize.next_multiple_of(top.min_alloc()));
        sectors.max().unwrap_or(lsize)
    }

    fn dspace(&self) -> u64 {
        let dspace = self.space.class_usage(AllocClass::Normal).dspace;
        let dspace = dspace.saturating_sub(self.space.nonallocating().dspace);
        dspace.saturating_add(self.sharing.dspace())
    }

    fn has_special(&self) -> bool {
        self.space.has_class(AllocClass::Special)
    }

    fn embedded_log(&self) -> u64 {
        let of = |class| self.space.embedded_log(class).dspace;
        of(AllocClass::Normal) + of(AllocClass::Special)
    }

    fn held_back(&self) -> u64 {
        let deferred = self.deferred_bytes.load(Ordering::Relaxed);
        deferred.saturating_add(self.kept.bytes())
    }

    fn deferred(&self) -> u64 {
        self.space.soon_free()
    }

    fn dataset_changed(&self, change: dsl::DatasetChange) {
        self.scan.note(change);
    }

    fn log_history(&self, event: &HistoryEvent<'_>, tx: &Tx) {
        if self.is_initializing.load(Ordering::Relaxed) {
            return;
        }
        let mut record = history::internal_record(event.operation, event.message, tx);
        record.add(history::key::DATASET, event.dataset);
        record.add(history::key::DATASET_ID, event.object);
        // A record that cannot be written is lost; the change it describes is not.
        let _ = self.log(record, false, tx);
    }
}
