//! The state of the scan: its copy in the MOS, and changes made to it from outside.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{ObjectId, Result, Txg};
use dmu::{Objset, Tx};
use dsl::DatasetChange;
use phys::pool_names::{LAST_SCRUBBED_TXG, POOL_DIRECTORY_OBJECT, SCAN};
use phys::scan::{
    DSF_SCRUB_PAUSED, DSF_VISIT_DS_AGAIN, DSS_CANCELED, DSS_FINISHED, DSS_SCANNING,
    POOL_SCAN_RESILVER, POOL_SCAN_SCRUB,
};
use phys::{ObjectType, ScanPhys};
use rt::Mutex;
use zerocopy::IntoBytes;
use zio::Bookmark;

/// `DDT_CLASS_DITTO`, `DDT_CLASS_DUPLICATE`: classes of dedup tables.
const DITTO: u64 = 0;
const DUPLICATE: u64 = 1;

/// The pool directory.
const DIRECTORY: ObjectId = ObjectId(POOL_DIRECTORY_OBJECT);

/// The purpose of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "pool_scan_func_t")]
pub enum Kind {
    /// Reads all copies of all blocks.
    Scrub,
    /// Writes to devices the blocks that they missed.
    Resilver,
}

impl Kind {
    /// `scn_func`
    fn raw(self) -> u64 {
        match self {
            Kind::Scrub => POOL_SCAN_SCRUB,
            Kind::Resilver => POOL_SCAN_RESILVER,
        }
    }
}

/// The blocks that a scan covers: those whose physical birth is after `min` and before `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// `scn_min_txg`
    pub min: Txg,
    /// `scn_max_txg`
    pub max: Txg,
}

/// The scan of a pool: the running one, or the last one.
#[doc(alias = "dsl_scan_t")]
#[derive(Default)]
pub struct Scan(Mutex<State>);

/// `dsl_scan_t`, as it is at the end of a txg.
#[derive(Clone, Default)]
pub(crate) struct State {
    /// `None` if there was never a scan.
    pub(crate) phys: Option<ScanPhys>,
    /// Datasets to be visited, and the txg after which their blocks are visited (0: that of the
    /// previous snapshot).
    pub(crate) queue: BTreeMap<u64, u64>,
    /// It runs since before the pool was opened, and had errors by then.
    has_inherited_errors: bool,
    /// Whether it must be written to the MOS.
    is_changed: bool,
}

impl Scan {
    /// Loads the scan recorded in the MOS.
    ///
    /// # Errors
    /// Any error from reading the MOS.
    #[doc(alias = "dsl_scan_init")]
    pub fn load(&self, mos: &Arc<Objset>) -> Result<()> {
        let mut state = State::default();
        let words = zap::lookup::<u64>(mos, DIRECTORY, SCAN)?;
        if let Some(words) = words {
            let mut phys = ScanPhys::default();
            let bytes = words.as_bytes();
            let length = bytes.len().min(size_of::<ScanPhys>());
            phys.as_mut_bytes()[..length].copy_from_slice(&bytes[..length]);
            let queue = ObjectId(phys.queue_obj.get());
            if phys.state.get() == DSS_SCANNING && queue.0 != 0 {
                match read_queue(mos, queue) {
                    Ok(entries) => state.queue = entries,
                    // What is left to visit is unknown, so the scan is canceled.
                    Err(_) => {
                        phys.state.set(DSS_CANCELED);
                        phys.queue_obj.set(0);
                        state.is_changed = true;
                    }
                }
            }
            state.has_inherited_errors = phys.state.get() == DSS_SCANNING && phys.errors.get() > 0;
            state.phys = Some(phys);
        }
        *self.0.lock() = state;
        Ok(())
    }

    /// The running scan, or the last one.
    #[must_use]
    pub fn phys(&self) -> Option<ScanPhys> {
        self.0.lock().phys
    }

    /// Whether the scan had errors when the pool was opened: what devices lack after it is not known then, since writes
    /// to them may have failed, too.
    #[must_use]
    #[doc(alias = "spa_scrub_started")]
    pub fn has_inherited_errors(&self) -> bool {
        self.0.lock().has_inherited_errors
    }

    /// The kind of the running scan, if there is one.
    #[must_use]
    #[doc(alias = "dsl_scan_is_running")]
    pub fn running(&self) -> Option<Kind> {
        let state = self.0.lock();
        let phys = state.phys.filter(|phys| phys.state.get() == DSS_SCANNING)?;
        Some(match phys.func.get() {
            POOL_SCAN_RESILVER => Kind::Resilver,
            _ => Kind::Scrub,
        })
    }

    /// Whether a scrub is paused.
    #[must_use]
    #[doc(alias = "dsl_scan_is_paused_scrub")]
    pub fn is_paused(&self) -> bool {
        let flags = self.0.lock().phys.map_or(0, |phys| phys.flags.get());
        self.running() == Some(Kind::Scrub) && flags & DSF_SCRUB_PAUSED != 0
    }

    /// Begins a scan in this txg, replacing a running one. `bytes`: allocated bytes in the pool.
    ///
    /// # Errors
    /// Any error from writing the MOS.
    #[doc(alias = "dsl_scan_setup_sync")]
    pub fn begin(
        &self,
        kind: Kind,
        range: Range,
        bytes: u64,
        mos: &Arc<Objset>,
        tx: &Tx,
    ) -> Result<()> {
        let mut state = self.0.lock().clone();
        state.free_queue(mos, tx)?;
        let mut phys = ScanPhys::default();
        phys.func.set(kind.raw());
        phys.state.set(DSS_SCANNING);
        phys.min_txg.set(range.min.0);
        phys.max_txg.set(range.max.0);
        phys.start_time.set(rt::wall_clock().secs);
        phys.to_examine.set(bytes);
        let queue = zap::create(mos, tx, ObjectType::SCAN_QUEUE)?;
        phys.queue_obj.set(queue.0);
        // Blocks with several references are read with the dedup tables, unless there are few to be read.
        let is_full = range.min <= Txg::INITIAL;
        phys.ddt_class_max
            .set(if is_full { DUPLICATE } else { DITTO });
        state.phys = Some(phys);
        state.has_inherited_errors = false;
        state.is_changed = true;
        self.put(state, mos, tx)
    }

    /// Ends the running scan.
    ///
    /// # Errors
    /// Any error from writing the MOS.
    #[doc(alias = "dsl_scan_done")]
    pub fn end(&self, is_complete: bool, mos: &Arc<Objset>, tx: &Tx) -> Result<()> {
        let mut state = self.0.lock().clone();
        state.free_queue(mos, tx)?;
        let Some(phys) = &mut state.phys else {
            return Ok(());
        };
        phys.state.set(if is_complete {
            DSS_FINISHED
        } else {
            DSS_CANCELED
        });
        phys.flags.set(phys.flags.get() & !DSF_SCRUB_PAUSED);
        phys.end_time.set(rt::wall_clock().secs);
        if is_complete && phys.func.get() == POOL_SCAN_SCRUB {
            let txg = phys.max_txg.get();
            zap::update(mos, tx, DIRECTORY, LAST_SCRUBBED_TXG, &[txg])?;
        }
        state.is_changed = true;
        self.put(state, mos, tx)
    }

    /// Pauses a scrub, or resumes it.
    ///
    /// # Errors
    /// Any error from writing the MOS.
    #[doc(alias = "dsl_scrub_pause_resume_sync")]
    pub fn pause(&self, wait: bool, mos: &Arc<Objset>, tx: &Tx) -> Result<()> {
        // It may have ended meanwhile.
        if self.running() != Some(Kind::Scrub) {
            return Ok(());
        }
        let mut state = self.0.lock().clone();
        let phys = state.phys.as_mut().expect("a scan runs");
        let flags = phys.flags.get() & !DSF_SCRUB_PAUSED;
        phys.flags
            .set(flags | if wait { DSF_SCRUB_PAUSED } else { 0 });
        state.is_changed = true;
        self.put(state, mos, tx)
    }

    /// Reports a change to a dataset that the scan may be visiting. In syncing context.
    #[doc(alias = "dsl_scan_ds_destroyed")]
    #[doc(alias = "dsl_scan_ds_snapshotted")]
    #[doc(alias = "dsl_scan_ds_clone_swapped")]
    pub fn note(&self, change: DatasetChange) {
        if self.running().is_some() {
            self.0.lock().note(change);
        }
    }

    pub(crate) fn state(&self) -> State {
        self.0.lock().clone()
    }

    /// Replaces the state, and writes it to the MOS if it changed.
    pub(crate) fn put(&self, mut state: State, mos: &Arc<Objset>, tx: &Tx) -> Result<()> {
        state.save(mos, tx)?;
        *self.0.lock() = state;
        Ok(())
    }
}

impl State {
    /// Marks the state as to be written.
    pub(crate) fn changed(&mut self) {
        self.is_changed = true;
    }

    fn note(&mut self, change: DatasetChange) {
        let Some(phys) = &mut self.phys else { return };
        let at = phys.bookmark.objset.get();
        self.is_changed = true;
        match change {
            DatasetChange::HeadDestroyed(head) => {
                if at == head.0 && head.0 != 0 {
                    phys.bookmark = phys::BookmarkPhys::default();
                    phys.bookmark.objset.set(Bookmark::DESTROYED_OBJSET.0);
                }
                self.queue.remove(&head.0);
            }
            DatasetChange::SnapshotDestroyed { snapshot, next } => {
                if at == snapshot.0 {
                    phys.bookmark.objset.set(next.0);
                    phys.flags.set(phys.flags.get() | DSF_VISIT_DS_AGAIN);
                }
                if let Some(txg) = self.queue.remove(&snapshot.0) {
                    let from = self.queue.entry(next.0).or_insert(txg);
                    *from = txg.min(*from);
                }
            }
            DatasetChange::Snapshotted { head, snapshot } => {
                if at == head.0 {
                    phys.bookmark.objset.set(snapshot.0);
                }
                if let Some(txg) = self.queue.remove(&head.0) {
                    self.queue.insert(snapshot.0, txg);
                }
            }
            DatasetChange::Swapped(a, b) => {
                if at == a.0 {
                    phys.bookmark.objset.set(b.0);
                } else if at == b.0 {
                    phys.bookmark.objset.set(a.0);
                }
                let (of_a, of_b) = (self.queue.remove(&a.0), self.queue.remove(&b.0));
                self.queue.extend(of_a.map(|txg| (b.0, txg)));
                self.queue.extend(of_b.map(|txg| (a.0, txg)));
            }
        }
    }

    #[doc(alias = "dsl_scan_sync_state")]
    fn save(&mut self, mos: &Arc<Objset>, tx: &Tx) -> Result<()> {
        let Some(phys) = &mut self.phys else {
            return Ok(());
        };
        if !std::mem::take(&mut self.is_changed) {
            return Ok(());
        }
        if phys.queue_obj.get() != 0 {
            write_queue(mos, ObjectId(phys.queue_obj.get()), &self.queue, tx)?;
        }
        let (words, _) = phys.as_bytes().as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        zap::update(mos, tx, DIRECTORY, SCAN, &words[..])
    }

    fn free_queue(&mut self, mos: &Arc<Objset>, tx: &Tx) -> Result<()> {
        self.queue.clear();
        let Some(phys) = &mut self.phys else {
            return Ok(());
        };
        let queue = ObjectId(phys.queue_obj.get());
        phys.queue_obj.set(0);
        let is_queue = |dnode: Arc<dmu::Dnode>| dnode.type_() == ObjectType::SCAN_QUEUE;
        if queue.0 != 0 && mos.hold(queue).is_ok_and(is_queue) {
            zap::destroy(mos, tx, queue)?;
        }
        Ok(())
    }
}

/// Keys are objects in hexadecimal.
fn read_queue(mos: &Arc<Objset>, queue: ObjectId) -> Result<BTreeMap<u64, u64>> {
    let mut entries = BTreeMap::new();
    for entry in zap::iter(mos, queue)? {
        let entry = entry?;
        entries.insert(entry.int_key()?, entry.first_integer);
    }
    Ok(entries)
}

#[doc(alias = "scan_ds_queue_sync")]
fn write_queue(
    mos: &Arc<Objset>,
    queue: ObjectId,
    entries: &BTreeMap<u64, u64>,
    tx: &Tx,
) -> Result<()> {
    let known = read_queue(mos, queue)?;
    for object in known.keys().filter(|object| !entries.contains_key(object)) {
        zap::remove(mos, tx, queue, &*format!("{object:x}"))?;
    }
    for (object, txg) in entries {
        if known.get(object) != Some(txg) {
            zap::update(mos, tx, queue, &*format!("{object:x}"), &[*txg])?;
        }
    }
    Ok(())
}
