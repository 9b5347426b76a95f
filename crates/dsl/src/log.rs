//! The intent logs of heads: opening, claiming at import, syncing.
//!
//! Source: OpenZFS module/zfs/zil.c (`zil_claim`, `zil_create`), module/zfs/dmu_objset.c
//! (`dmu_objset_zil`), module/zfs/spa.c (`spa_ld_claim_log_blocks`) @be7657e3

use std::sync::{Arc, Weak};

use base::{Error, ErrorKind, Result, Txg, VdevId};
use dmu::Tx;
use phys::BlkPtrPhys;
use phys::zil::{ZIL_CLAIM_LR_SEQ_VALID, ZIL_REPLAY_NEEDED};
use zil::{SyncMode, ZilHost, ZilParts, Zilog};

use crate::dataset::DslDataset;
use crate::pool::DslPool;
use phys::feature;

/// A head as its intent log sees it.
struct HeadLog {
    pool: Weak<DslPool>,
    ds: Weak<DslDataset>,
}

impl ZilHost for HeadLog {
    fn dirty(&self, tx: &Tx) {
        if let (Some(pool), Some(ds)) = (self.pool.upgrade(), self.ds.upgrade()) {
            pool.objset_dirtied(&ds, tx.txg());
        }
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.pool
            .upgrade()
            .is_none_or(|pool| pool.has_log_room(bytes))
    }

    fn chain_begins(&self, _tx: &Tx) {
        // Activated before the log can contain any record of that kind.
        if let (Some(pool), Some(ds)) = (self.pool.upgrade(), self.ds.upgrade())
            && pool.mos().env().feature_is_enabled(feature::ZILSAXATTR)
        {
            ds.activate_feature(feature::ZILSAXATTR);
        }
    }

    fn chain_ended(&self, _tx: &Tx) {
        if let Some(ds) = self.ds.upgrade() {
            ds.deactivate_feature(feature::ZILSAXATTR);
        }
    }
}

impl DslPool {
    /// The intent log of a head, the same one for as long as the head is open.
    ///
    /// # Errors
    /// `ReadOnly` for a snapshot; any error from opening the objset.
    #[doc(alias = "dmu_objset_zil")]
    pub fn zil(&self, ds: &Arc<DslDataset>) -> Result<Arc<Zilog>> {
        if ds.is_snapshot() {
            let text = format!("snapshot {} has no intent log", ds.object());
            return Err(Error::new(ErrorKind::ReadOnly, text));
        }
        self.check_key(ds)?;
        let objset = ds.objset()?;
        let _config = self.config().read();
        let mode = self.sync_mode(ds)?;
        let zil = ds.zil_or_insert(|| {
            Zilog::new(ZilParts {
                objset,
                store: self.log_store().clone(),
                groups: self.groups().clone(),
                host: Arc::new(HeadLog {
                    pool: self.weak(),
                    ds: Arc::downgrade(ds),
                }),
            })
        });
        zil.set_mode(mode);
        Ok(zil)
    }

    /// The mode selected by the `sync` property.
    pub(crate) fn sync_mode(&self, ds: &Arc<DslDataset>) -> Result<SyncMode> {
        self.number(ds, "sync", 0).map(SyncMode::from_prop)
    }

    /// Claims the blocks referenced by the intent logs of all heads, before anything is allocated.
    /// Returns how many logs have something to replay.
    ///
    /// `first_txg`: the txg after the last synced one; the next to be synced.
    ///
    /// # Errors
    /// Any read error; `Corrupt` for a log whose blocks are already allocated.
    #[doc(alias = "spa_ld_claim_log_blocks")]
    pub fn claim_logs(&self, first_txg: Txg) -> Result<u64> {
        let tx = Tx::syncing(first_txg);
        let mut to_replay = 0;
        for head in self.heads_with_log()? {
            to_replay += u64::from(self.claim_log(&head, &tx)?);
        }
        Ok(to_replay)
    }

    /// Gives up the intent logs of all heads, instead of claiming them. `unsynced`: the txg after that of the uberblock
    /// by which the pool was opened: blocks born then or later are not allocated.
    ///
    /// # Errors
    /// Any read error.
    #[doc(alias = "SPA_LOG_CLEAR")]
    pub fn clear_logs(&self, unsynced: Txg, first_txg: Txg) -> Result<()> {
        for head in self.heads_with_log()? {
            self.clear_log(&head, unsynced, first_txg)?;
        }
        Ok(())
    }

    /// Gives up the intent logs that are not claimed: those of a pool that was rewound to its checkpoint, whose blocks
    /// may have been overwritten since. `unsynced`: the txg after that of the checkpoint. Returns whether there were
    /// any.
    ///
    /// # Errors
    /// Any read error.
    #[doc(alias = "spa_min_claim_txg")]
    pub fn clear_unclaimed_logs(&self, unsynced: Txg, first_txg: Txg) -> Result<bool> {
        let mut is_any = false;
        for head in self.heads_with_log()? {
            if head.objset()?.zil_header().claim_txg.get() == 0 {
                self.clear_log(&head, unsynced, first_txg)?;
                is_any = true;
            }
        }
        Ok(is_any)
    }

    fn clear_log(&self, head: &Arc<DslDataset>, unsynced: Txg, first_txg: Txg) -> Result<()> {
        let objset = head.objset()?;
        let mut header = objset.zil_header();
        let store = self.log_store().as_ref();
        zil::clear(store, head.objset_id(), &header, unsynced, first_txg)?;
        header.log = BlkPtrPhys::default();
        header.claim_txg.set(0);
        header.flags.set(0);
        objset.set_zil_header(&Tx::syncing(first_txg), header);
        Ok(())
    }

    /// The names of the datasets whose intent logs are to be replayed.
    ///
    /// # Errors
    /// Any read error.
    pub fn logs_to_replay(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for head in self.heads_with_log()? {
            if head.objset()?.zil_header().flags.get() & ZIL_REPLAY_NEEDED != 0 {
                names.push(self.dataset_name(&head)?);
            }
        }
        Ok(names)
    }

    /// Drops the blocks of all intent logs: what is in them is on disk with the next txg. A log that is in use goes on
    /// with new blocks.
    ///
    /// # Errors
    /// `Busy` for a log that is to be replayed first; `NoKey`, as in OpenZFS; any read error; `Suspended`.
    #[doc(alias = "spa_reset_logs")]
    pub fn drop_logs(&self) -> Result<()> {
        for head in self.heads_with_log()? {
            let header = head.objset()?.zil_header();
            if header.flags.get() & ZIL_REPLAY_NEEDED != 0 {
                let name = self.dataset_name(&head)?;
                let text = format!("the intent log of '{name}' is to be replayed first");
                return Err(Error::new(ErrorKind::Busy, text));
            }
            self.zil(&head)?.destroy(false)?;
        }
        Ok(())
    }

    /// Whether the log of any head begins on such a vdev.
    ///
    /// # Errors
    /// Any read error.
    #[doc(alias = "spa_check_logs")]
    pub fn has_log_on(&self, is_such: &dyn Fn(VdevId) -> bool) -> Result<bool> {
        for head in self.heads_with_log()? {
            if head
                .objset()?
                .zil_header()
                .log
                .dvas()
                .any(|dva| is_such(dva.vdev()))
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn heads_with_log(&self) -> Result<Vec<Arc<DslDataset>>> {
        let mut heads = Vec::new();
        for dd in self.subtree(self.root_dir())? {
            let Some(head) = self.head_of(&dd)? else {
                continue;
            };
            let has_objset = !head.root_bp().is_hole() && !head.is_inconsistent();
            if has_objset && self.has_log(&head)? {
                heads.push(head);
            }
        }
        Ok(heads)
    }

    /// Whether a head has an intent log. One that is not open stays so: a pool has many, and few of them have logs.
    fn has_log(&self, head: &Arc<DslDataset>) -> Result<bool> {
        let header = match head.open_objset() {
            Some(objset) => objset.zil_header(),
            None => dmu::read_zil_header(self.store().as_ref(), head.objset_id(), &head.root_bp())?,
        };
        Ok(!header.log.is_hole())
    }

    #[doc(alias = "zil_claim")]
    fn claim_log(&self, head: &Arc<DslDataset>, tx: &Tx) -> Result<bool> {
        let objset = head.objset()?;
        let mut header = objset.zil_header();
        if header.claim_txg.get() == 0 {
            let store = self.log_store().as_ref();
            let parsed = zil::claim(store, head.objset_id(), &header, tx.txg())?;
            header.claim_txg.set(tx.txg().0);
            header.claim_blk_seq.set(parsed.blk_seq);
            header.claim_lr_seq.set(parsed.lr_seq);
            let mut flags = header.flags.get() | ZIL_CLAIM_LR_SEQ_VALID;
            if parsed.records > 0 || parsed.blocks > 1 {
                flags |= ZIL_REPLAY_NEEDED;
            }
            header.flags.set(flags);
            objset.set_zil_header(tx, header);
        }
        Ok(header.flags.get() & ZIL_REPLAY_NEEDED != 0)
    }
}
