//! The log of one objset: adding records, committing, syncing the header.
//!
//! Source: OpenZFS module/zfs/zil.c (`zil_commit`, `zil_create`, `zil_sync`, `zil_destroy`,
//! `zil_close`) @be7657e3.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use base::{Error, ObjectId, Result, SPA_MAXBLOCKSIZE, Txg};
use dmu::{Objset, Tx, TxGroups};
use phys::zil::{ZIL_MIN_BLKSZ, ZIL_ZC_SEQ};
use phys::{BlkPtrPhys, ChecksumType, DvaPhys, ZilHeaderPhys};
use rt::{Mutex, MutexGuard};
use zio::{Bookmark, LogStore, NewLogBlock};

use crate::chain::destroy_sync;
use crate::itx::{DataRequest, Itx, ItxLists};
use crate::lwb::{Lwb, Pending, Predictor};

/// The `sync` property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// Commits write to the log.
    #[default]
    Standard,
    /// The layers above commit after every change.
    Always,
    /// Commits do nothing: changes are durable when their txg is.
    Disabled,
}

impl SyncMode {
    /// From the stored value of the `sync` property (`ZFS_SYNC_*`).
    #[must_use]
    pub fn from_prop(number: u64) -> SyncMode {
        match number {
            1 => SyncMode::Always,
            2 => SyncMode::Disabled,
            _ => SyncMode::Standard,
        }
    }
}

/// Returns the data of a write; `None` when the file is gone, or shorter by now.
pub type GetData = Box<dyn Fn(&DataRequest) -> Result<Option<Vec<u8>>> + Send + Sync>;

/// What the log needs from its dataset.
pub trait ZilHost: Send + Sync {
    /// Makes the sync of the Tx's txg call [`Zilog::sync`].
    #[doc(alias = "dsl_dataset_dirty")]
    fn dirty(&self, tx: &Tx);

    /// Whether a log block of so many bytes may be where data goes: not if it could take what unsynced changes need.
    fn has_room(&self, bytes: u64) -> bool {
        let _ = bytes;
        true
    }

    /// Called in open context when a new chain begins; the header has it as of the Tx's txg.
    fn chain_begins(&self, tx: &Tx) {
        let _ = tx;
    }

    /// Called in syncing context when, as of the txg being synced, there is no chain any more.
    fn chain_ended(&self, tx: &Tx) {
        let _ = tx;
    }
}

/// The parts of a [`Zilog`].
pub struct ZilParts {
    /// The head's objset, which has the header.
    pub objset: Arc<Objset>,
    /// The store of log blocks.
    pub store: Arc<dyn LogStore>,
    /// The pool's txgs.
    pub groups: Arc<TxGroups>,
    /// The dataset.
    pub host: Arc<dyn ZilHost>,
}

/// `zilog_t`: the intent log of one objset.
#[doc(alias = "zilog_t")]
pub struct Zilog {
    me: Weak<Zilog>,
    parts: ZilParts,
    get_data: Mutex<Option<Arc<GetData>>>,
    itxs: Mutex<ItxLists>,
    /// Held while a commit writes.
    writer: Mutex<Writer>,
    state: Mutex<State>,
}

/// State used only by the committing thread.
#[derive(Default)]
struct Writer {
    lr_seq: u64,
    predictor: Predictor,
    /// Last txg of the records that a failed commit did not get into the log, which may have a gap.
    failed: Option<Txg>,
}

/// State also used by the sync thread.
#[derive(Default)]
struct State {
    mode: SyncMode,
    /// zl_lwb_list: from the block that the header names to the one to be written next.
    lwbs: VecDeque<Lwb>,
    /// zl_destroy_txg, zl_keep_first
    destroy: Option<(Txg, bool)>,
    /// Blocks to free with the destroyed chain.
    doomed: Vec<BlkPtrPhys>,
    /// zl_replay, zl_replaying_seq
    replaying: Option<u64>,
    /// zl_replayed_seq: the last record replayed in each txg
    replayed: BTreeMap<Txg, u64>,
    /// The last txg in which [`Zilog::sync`] did its work.
    synced: Txg,
}

impl Zilog {
    /// The log of an objset. Call [`replay`](Zilog::replay) before the log is used.
    #[must_use]
    #[doc(alias = "zil_alloc")]
    pub fn new(parts: ZilParts) -> Arc<Zilog> {
        Arc::new_cyclic(|me| Zilog {
            me: me.clone(),
            parts,
            get_data: Mutex::new(None),
            itxs: Mutex::new(ItxLists::default()),
            writer: Mutex::new(Writer::default()),
            state: Mutex::new(State::default()),
        })
    }

    /// Sets the function that returns the data of writes.
    #[doc(alias = "zil_open")]
    pub fn set_get_data(&self, get_data: Option<GetData>) {
        *self.get_data.lock() = get_data.map(Arc::new);
    }

    /// Sets the mode, when the `sync` property changes.
    #[doc(alias = "zil_set_sync")]
    pub fn set_mode(&self, mode: SyncMode) {
        self.state.lock().mode = mode;
    }

    /// The `sync` property.
    #[must_use]
    pub fn mode(&self) -> SyncMode {
        self.state.lock().mode
    }

    pub(crate) fn header(&self) -> ZilHeaderPhys {
        self.parts.objset.zil_header()
    }

    pub(crate) fn objset(&self) -> &Arc<Objset> {
        &self.parts.objset
    }

    pub(crate) fn store(&self) -> &dyn LogStore {
        self.parts.store.as_ref()
    }

    pub(crate) fn wait_synced(&self) -> Result<()> {
        self.parts.groups.sync_all().map(|_| ())
    }

    /// Adds a record of a change made under `tx`.
    #[doc(alias = "zil_itx_assign")]
    pub fn log(&self, tx: &Tx, itx: Itx) {
        let is_first = self.itxs.lock().assign(tx.txg(), itx);
        self.parts.host.dirty(tx);
        if is_first {
            let (me, txg) = (self.me.clone(), tx.txg());
            tx.on_synced(move |_| {
                if let Some(zilog) = me.upgrade() {
                    zilog.itxs.lock().clean(txg);
                }
            });
        }
    }

    /// Forgets the records of a removed file that wait for a commit of that file.
    #[doc(alias = "zil_remove_async")]
    pub fn forget(&self, object: ObjectId) {
        self.itxs.lock().forget(object);
    }

    /// Whether the log is being replayed. If so, notes that the current record is replayed once
    /// the txg of `tx` is synced.
    #[must_use]
    #[doc(alias = "zil_replaying")]
    pub fn is_replaying(&self, tx: &Tx) -> bool {
        let mut state = self.state.lock();
        let Some(seq) = state.replaying else {
            return false;
        };
        state.replayed.insert(tx.txg(), seq);
        drop(state);
        self.parts.host.dirty(tx);
        true
    }

    /// Whether records have been committed to the log since it was opened.
    pub(crate) fn is_in_use(&self) -> bool {
        !self.state.lock().lwbs.is_empty()
    }

    pub(crate) fn begin_replay(&self) {
        self.state.lock().replaying = Some(0);
    }

    pub(crate) fn set_replaying(&self, seq: u64) {
        self.state.lock().replaying = Some(seq);
    }

    pub(crate) fn end_replay(&self) {
        self.state.lock().replaying = None;
    }
}

/// Committing. In open context, holding no transaction and no lock that `get_data` takes.
impl Zilog {
    /// Returns when all records of `object` (`None`: of all objects), and all sync ones, are on
    /// stable storage.
    ///
    /// # Errors
    /// `Suspended`. A failure of the log itself is not an error: the commit then waits for the txg.
    #[doc(alias = "zil_commit")]
    pub fn commit(&self, object: Option<ObjectId>) -> Result<()> {
        if self.mode() == SyncMode::Disabled {
            return Ok(());
        }
        self.itxs.lock().async_to_sync(object);
        let mut writer = self.writer.lock();
        // The previous writer may have written ours too; then they are on disk by now.
        let itxs = self.itxs.lock().take();
        let max_txg = itxs.iter().map(|(txg, _)| *txg).max();
        let Some(max_txg) = max_txg.max(writer.failed) else {
            return Ok(());
        };
        if writer.failed.is_none() && self.write(&mut writer, itxs).is_ok() {
            return Ok(());
        }
        // No space, or a device that fails writes: wait for the txg instead. If that fails because the
        // pool is suspended, the next commit has to wait for it, as these records are gone.
        writer.failed = Some(max_txg);
        self.give_up_chain()?;
        self.parts.groups.wait_synced(max_txg)?;
        writer.failed = None;
        Ok(())
    }

    fn write(&self, writer: &mut Writer, itxs: Vec<(Txg, Itx)>) -> Result<()> {
        let mut pending = Pending::new(itxs, writer.lr_seq);
        if self.state.lock().lwbs.is_empty() && self.begin_chain(pending.max_txg())? {
            return Ok(());
        }
        let burst = pending.bytes();
        let mut written = Vec::new();
        let get_data = self.get_data.lock().clone();
        let get = |request: &DataRequest| match &get_data {
            Some(get_data) => get_data(request),
            // There is no source for the data: the commit has to wait for the txg.
            None => Err(Error::invalid("a write record without its data")),
        };
        while !pending.is_empty() {
            let bp = self.last_lwb();
            let block = pending.fill(bp.psize(), &get)?;
            writer.lr_seq = pending.lr_seq;
            if block.is_empty() && pending.is_empty() {
                break;
            }
            let max_txg = block.max_txg;
            let size = writer.predictor.block_bytes(pending.bytes());
            let next = self.extend(&bp, size, max_txg)?;
            let seq = bp.cksum_words()[ZIL_ZC_SEQ];
            let bookmark = Bookmark::zil(self.parts.objset.id(), seq);
            self.store().write_log(&bp, block.seal(next), &bookmark)?;
            written.push(bp);
        }
        writer.predictor.note(burst);
        self.store().flush_log(&written)?;
        self.mark_done();
        Ok(())
    }

    fn last_lwb(&self) -> BlkPtrPhys {
        let state = self.state.lock();
        state.lwbs.back().expect("there is a chain").bp
    }

    /// Marks all blocks but the last as on stable storage. (The sync thread takes blocks from the
    /// front of the list, but only those that are done, so never the last.)
    fn mark_done(&self) {
        let mut state = self.state.lock();
        let last = state.lwbs.len() - 1;
        state
            .lwbs
            .iter_mut()
            .take(last)
            .for_each(|lwb| lwb.is_done = true);
    }

    /// Allocates the block after `bp`; `max_txg` is the last txg of the records in `bp`.
    #[doc(alias = "zil_lwb_write_close")]
    fn extend(&self, bp: &BlkPtrPhys, size: u64, max_txg: Txg) -> Result<BlkPtrPhys> {
        let tx = self.parts.groups.hold_open_unthrottled()?;
        let mut verifier = bp.cksum_words();
        verifier[ZIL_ZC_SEQ] = verifier[ZIL_ZC_SEQ].wrapping_add(1);
        let next = self.allocate(tx.txg(), size, verifier)?;
        let mut state = self.state.lock();
        state.lwbs.back_mut().expect("there is a chain").max_txg = max_txg;
        state.lwbs.push_back(new_lwb(next, tx.txg()));
        drop(state);
        self.mark_dirty(&tx);
        Ok(next)
    }

    fn allocate(&self, txg: Txg, size: u64, verifier: [u64; 4]) -> Result<BlkPtrPhys> {
        self.store().alloc_log(&NewLogBlock {
            txg,
            size,
            checksum: ChecksumType::Zilog2,
            verifier,
            keeps_to_logs: !self.parts.host.has_room(size),
        })
    }

    fn mark_dirty(&self, tx: &Tx) {
        self.parts.host.dirty(tx);
        self.parts.groups.note_dirty(0);
    }

    /// Begins a chain. Returns whether that waited until the sync of `max_txg`.
    #[doc(alias = "zil_create")]
    fn begin_chain(&self, max_txg: Txg) -> Result<bool> {
        let header = self.header();
        if header.claim_txg.get() != 0 {
            let text = format!(
                "zh_claim_txg is {} after the log was replayed",
                header.claim_txg
            );
            return Err(Error::corrupt(text));
        }
        if !header.log.is_hole() {
            check_log_block(&header.log)?;
            self.state
                .lock()
                .lwbs
                .push_back(new_lwb(header.log, Txg(0)));
            return Ok(false);
        }
        let tx = self.parts.groups.hold_open(0)?;
        let txg = tx.txg();
        let verifier = new_verifier(&self.parts.objset);
        let bp = self.allocate(txg, ZIL_MIN_BLKSZ, verifier)?;
        self.state.lock().lwbs.push_back(new_lwb(bp, txg));
        self.parts.host.chain_begins(&tx);
        self.mark_dirty(&tx);
        drop(tx);
        self.parts.groups.wait_synced(txg)?;
        Ok(max_txg <= txg)
    }

    /// Lets the next sync free the whole chain, and the next commit begin a new one.
    #[doc(alias = "zil_commit_writer_stall")]
    fn give_up_chain(&self) -> Result<()> {
        let tx = self.parts.groups.hold_open_unthrottled()?;
        let mut state = self.state.lock();
        for lwb in &mut state.lwbs {
            lwb.is_done = true;
            lwb.max_txg = lwb.max_txg.max(lwb.alloc_txg);
        }
        let is_empty = state.lwbs.is_empty();
        drop(state);
        let txg = tx.txg();
        if !is_empty {
            self.mark_dirty(&tx);
        }
        drop(tx);
        if is_empty {
            return Ok(());
        }
        self.parts.groups.wait_synced(txg)
    }
}

fn new_lwb(bp: BlkPtrPhys, alloc_txg: Txg) -> Lwb {
    Lwb {
        bp,
        alloc_txg,
        max_txg: Txg(0),
        is_done: false,
    }
}

/// The verifier of a chain's first block: two random words, the objset, and block number 1.
#[doc(alias = "zil_init_log_chain")]
fn new_verifier(objset: &Objset) -> [u64; 4] {
    [rt::random_u64(), rt::random_u64(), objset.id().0, 1]
}

/// The header.
impl Zilog {
    /// Updates the header to the state of the chain as of the txg being synced. Called once per txg,
    /// before the objset is written; further calls do nothing.
    ///
    /// # Errors
    /// Any error of reading a chain that is to be destroyed.
    #[doc(alias = "zil_sync")]
    pub fn sync(&self, tx: &Tx) -> Result<()> {
        assert!(tx.is_syncing(), "headers change in syncing context");
        let txg = tx.txg();
        let before = self.header();
        let mut state = self.state.lock();
        if state.synced >= txg {
            return Ok(());
        }
        state.synced = txg;
        let mut header = before;
        if let Some(seq) = take_until(&mut state.replayed, txg) {
            header.replay_seq.set(seq.max(header.replay_seq.get()));
        }
        let destroy = state.destroy.take_if(|(when, _)| *when == txg);
        let mut free = std::mem::take(&mut state.doomed);
        if destroy.is_none() {
            state.doomed = std::mem::take(&mut free);
        }
        advance(&mut state, &mut header, txg, &mut free);
        drop(state);
        if let Some((_, keep_first)) = destroy {
            self.destroy_in_sync(&before, &mut header, keep_first, free.is_empty(), tx)?;
        }
        free.iter().for_each(|bp| self.store().free(txg, bp));
        if header != before {
            self.parts.objset.set_zil_header(tx, header);
        }
        Ok(())
    }

    /// Sets the header to what remains when the chain of `before` is destroyed.
    fn destroy_in_sync(
        &self,
        before: &ZilHeaderPhys,
        header: &mut ZilHeaderPhys,
        keep_first: bool,
        is_on_disk_only: bool,
        tx: &Tx,
    ) -> Result<()> {
        *header = ZilHeaderPhys::default();
        if keep_first {
            // New random words, so that what is in that block is not taken for part of the new chain.
            let mut first = before.log;
            if first.dvas().next().is_some() {
                first.set_cksum(new_verifier(&self.parts.objset));
                header.log = first;
            }
            return Ok(());
        }
        if is_on_disk_only {
            destroy_sync(self.store(), self.parts.objset.id(), before, tx)?;
        }
        self.parts.host.chain_ended(tx);
        Ok(())
    }

    /// Discards the log, and waits until that is on disk. `keep_first`: its first block, if there
    /// is one, becomes the first of the next chain.
    ///
    /// # Errors
    /// `Suspended`.
    #[doc(alias = "zil_destroy")]
    pub fn destroy(&self, keep_first: bool) -> Result<()> {
        let _writer = self.writer.lock();
        let header = self.header();
        if header.log.is_hole() && header.flags.get() == 0 {
            return Ok(());
        }
        let tx = self.parts.groups.hold_open(0)?;
        let txg = tx.txg();
        {
            let mut state = self.state.lock();
            assert!(!keep_first || state.lwbs.is_empty(), "the chain is in use");
            state.destroy = Some((txg, keep_first));
            state.doomed = state.lwbs.drain(..).map(|lwb| lwb.bp).collect();
        }
        self.mark_dirty(&tx);
        drop(tx);
        self.parts.groups.wait_synced(txg)
    }

    /// Ends the use of the log: afterwards everything is on disk, and the header names an empty block.
    ///
    /// # Errors
    /// `Suspended`.
    #[doc(alias = "zil_close")]
    pub fn close(&self) -> Result<()> {
        let _writer = self.writer.lock();
        let last = self.last_txg();
        if last > Txg(0) {
            self.parts.groups.wait_synced(last)?;
        }
        // A block leaves the list at the latest in the sync after the one that covers its records.
        while self.state.lock().lwbs.len() > 1 {
            let tx = self.parts.groups.hold_open(0)?;
            let txg = tx.txg();
            self.mark_dirty(&tx);
            drop(tx);
            self.parts.groups.wait_synced(txg)?;
        }
        self.state.lock().lwbs.clear();
        self.set_get_data(None);
        Ok(())
    }

    /// The last txg of any record or log block in memory; 0 if there is none.
    fn last_txg(&self) -> Txg {
        let pending = !self.itxs.lock().is_empty();
        let state: MutexGuard<'_, State> = self.state.lock();
        let blocks = state
            .lwbs
            .iter()
            .map(|lwb| lwb.max_txg.max(lwb.alloc_txg))
            .max();
        let open = self.parts.groups.open_txg();
        if pending {
            open
        } else {
            blocks.unwrap_or(Txg(0)).min(open)
        }
    }
}

/// Checks that a block is one that `alloc_log` can have allocated: commits write to it.
fn check_log_block(bp: &BlkPtrPhys) -> Result<()> {
    let (checksum, psize) = (bp.checksum(), bp.psize());
    let is_log = [ChecksumType::Zilog.raw(), ChecksumType::Zilog2.raw()].contains(&checksum);
    let is_ours = bp.is_little_endian();
    let is_whole = psize.is_multiple_of(ZIL_MIN_BLKSZ) && psize <= SPA_MAXBLOCKSIZE;
    let fits =
        |dva: DvaPhys| !dva.is_gang() && dva.asize() >= psize && dva.offset() <= u64::MAX / 2;
    if is_log && is_ours && is_whole && bp.ndvas() == 1 && bp.dvas().all(fits) {
        return Ok(());
    }
    let text =
        format!("zh_log is not a log block of this host: checksum {checksum}, psize {psize}");
    Err(Error::corrupt(text))
}

/// Moves the blocks that `txg` covers from the list to `free`; the header then names the first
/// block that it does not cover.
fn advance(state: &mut State, header: &mut ZilHeaderPhys, txg: Txg, free: &mut Vec<BlkPtrPhys>) {
    while let Some(lwb) = state.lwbs.front() {
        header.log = lwb.bp;
        if !lwb.is_done || lwb.alloc_txg > txg || lwb.max_txg > txg {
            return;
        }
        free.push(lwb.bp);
        state.lwbs.pop_front();
        if state.lwbs.is_empty() {
            header.log = BlkPtrPhys::default();
        }
    }
}

/// Removes the entries up to `txg` and returns the largest value among them.
fn take_until(entries: &mut BTreeMap<Txg, u64>, txg: Txg) -> Option<u64> {
    let later = entries.split_off(&txg.next());
    std::mem::replace(entries, later).into_values().max()
}
