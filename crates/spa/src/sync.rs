//! Syncing a txg: from frozen objsets to the uberblock.
//!
//! # What it is
//! The data of all datasets is written first; then come tasks, accounts, and everything else in the
//! MOS; then the MOS itself. Writing the MOS allocates blocks, which changes space maps, which are
//! in the MOS: so it is written again, in *passes*, until a pass changes no space map. This
//! converges because from pass 2 on, blocks born in this txg are overwritten in place and frees are
//! deferred to the next txg.
//!
//! # Crash argument
//! No block reachable from the last uberblock is overwritten: space freed in this txg returns to
//! the allocator two txgs later. Labels and uberblock are written in an order in which at any
//! moment two labels are intact and refer to an intact uberblock (see `vdev::labels`). Before the
//! first uberblock write, everything that it references is flushed.
//!
//! If no device accepted labels and uberblock, all of them are written again when the pool is
//! resumed, which is harmless. But if a failed flush lost writes, repeating it would make durable
//! an uberblock that references missing blocks: then the txg fails.
//!
//! # Invariants
//! 1. Only the sync thread runs this code.
//! 2. A txg in which nothing changed writes nothing at all.
//!
//! # Source
//! OpenZFS `module/zfs/spa.c` (`spa_sync`, `spa_sync_iterate_to_convergence`), `uberblock.c`.

use base::{Error, ErrorKind, Result, Txg};
use dmu::{Tx, TxgSync};
use dsl::PoolEnv;
use phys::feature::DYNAMIC_GANG_HEADER;
use phys::uberblock::{SPA_VERSION_FEATURES, UBERBLOCK_MAGIC, UberblockPhys};
use zio::AllocClass;

use crate::spa::Inner;

/// Maximum number of passes in a txg; OpenZFS needs fewer than ten.
const PASSES_MAX: u32 = 64;

impl TxgSync for Inner {
    fn freeze(&self, txg: Txg) {
        self.dsl().freeze(txg);
    }

    fn sync(&self, txg: Txg) -> Result<()> {
        let tx = Tx::syncing(txg);
        self.tree.set_syncing_txg(txg);
        let outcome = self.converge(&tx).and_then(|()| self.commit(txg));
        self.core.set_pass(0);
        outcome?;
        self.let_detached_go();
        self.feed_caches(false);
        self.mos.sync_done(txg);
        let spare_bytes = self.groups.dirty_data_max();
        self.space.sync_done(txg, self.slop_bytes(), spare_bytes);
        self.take_dedup_quota()?;
        self.reflow(txg)?;
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
        Ok(())
    }
}

impl Inner {
    /// Checks the in-memory invariants of each part of the pool, between two txgs.
    ///
    /// # Panics
    /// When an invariant does not hold.
    fn check_invariants(&self) {
        self.space.check_invariants();
        self.cache.check_invariants();
        self.mos.check_invariants();
        self.dsl().check_invariants();
        for device in self.tree.devices() {
            device.leaf().check_invariants();
        }
    }

    /// Runs passes until the MOS does not change any more.
    fn converge(&self, tx: &Tx) -> Result<()> {
        self.dsl().run_early_tasks(tx)?;
        self.core.sync_clones(tx)?;
        self.sync_gang_headers(tx)?;
        for pass in 1..=PASSES_MAX {
            self.core.set_pass(pass);
            self.sync_config(tx)?;
            self.sync_aux(tx)?;
            self.dsl().sync_datasets(tx, pass)?;
            if pass == 1 {
                self.dsl().run_tasks(tx)?;
                self.sync_replacements(tx)?;
                self.sync_spares(tx)?;
                self.sync_removal(tx)?;
                self.sync_sweeps(tx)?;
                self.sync_autotrim(tx.txg())?;
                self.sync_reflow(tx)?;
                self.sync_discard(tx)?;
                if !self.pauses_destroys() {
                    self.free_destroyed(tx)?;
                }
                // Tasks may have changed the config, and created datasets that are dirty.
                self.sync_config(tx)?;
                self.sync_aux(tx)?;
                self.dsl().sync_datasets(tx, pass)?;
                self.sync_rebuilds(tx)?;
                self.sync_scan(tx)?;
                self.sync_error_scrub(tx)?;
                // With those of devices that were attached, or that the scan has brought up to date.
                self.sync_dtls(tx)?;
                self.sync_errors(tx)?;
            }
            self.dsl().flush(tx)?;
            let mos_changed = self.mos.needs_sync();
            if pass == 1 && !mos_changed && self.core.sharing().is_settled() {
                return Ok(());
            }
            if mos_changed {
                let root = self.mos.sync(tx, pass)?;
                self.state.lock().uberblock.rootbp = root;
            }
            if pass == 1 {
                self.core.sync_deferred(tx)?;
            }
            let risen = self.core.sync_sharing(tx)?;
            self.scan_risen(&risen, tx)?;
            self.core.sync_frees(tx)?;
            self.sync_remapped_frees(tx)?;
            self.sync_kept(tx)?;
            self.space.sync(tx.txg(), pass)?;
            if !self.mos.needs_sync() {
                return Ok(());
            }
        }
        let text = format!("txg {}: the MOS does not converge", tx.txg());
        Err(Error::new(ErrorKind::Io, text))
    }

    /// Activates `dynamic_gang_header` when small headers were not enough. Larger ones are made as soon as that is on
    /// disk: a record of the intent log may lead to one before its own txg is.
    #[doc(alias = "zio_update_feature")]
    fn sync_gang_headers(&self, tx: &Tx) -> Result<()> {
        let features = self.core.features();
        match features.count(DYNAMIC_GANG_HEADER) {
            Some(0) if self.pipeline.wants_dynamic_gang_headers() => {
                features.adjust(DYNAMIC_GANG_HEADER, 1, tx)?;
                // Labels name it: the MOS may have such headers.
                let mut state = self.state.lock();
                (state.config_dirty, state.labels_dirty) = (true, true);
            }
            Some(1..) => self.pipeline.use_dynamic_gang_headers(),
            _ => {}
        }
        Ok(())
    }

    /// Frees some of what destroyed datasets occupy. As long as that makes progress, the next txg follows by itself:
    /// it goes on, and the allocator gets what this one has freed.
    fn free_destroyed(&self, tx: &Tx) -> Result<()> {
        if !self.dsl().is_freeing() {
            return self.dsl().process_async_destroys(tx);
        }
        let before = self.dsl().free_bytes();
        self.dsl().process_async_destroys(tx)?;
        if !self.dsl().is_freeing() || self.dsl().free_bytes() != before {
            self.groups.kick();
        }
        Ok(())
    }

    /// Whether asynchronous destroys wait: what a checkpoint keeps is not free afterwards, and the notes of it need
    /// space.
    #[doc(alias = "spa_suspend_async_destroy")]
    fn pauses_destroys(&self) -> bool {
        self.core.kept().txg().is_some() && self.dsl().is_full()
    }

    /// Free space, in bytes, below which freed space is not deferred any more.
    fn slop_bytes(&self) -> u64 {
        let passive = self.space.nonallocating().dspace;
        let normal = self.space.class_usage(AllocClass::Normal).dspace;
        dsl::slop_space(normal.saturating_sub(passive), self.core.embedded_log())
    }

    /// Writes labels and uberblock, if anything changed.
    fn commit(&self, txg: Txg) -> Result<()> {
        let (uberblock, labels_too) = {
            let mut state = self.state.lock();
            if state.uberblock.rootbp.birth() < txg && !state.labels_dirty {
                return Ok(());
            }
            let next = self.next_uberblock(&state.uberblock, txg);
            state.uberblock = next;
            // Label changes from now on belong to the next txg.
            (next, std::mem::take(&mut state.labels_dirty))
        };
        let kind =
            |error: &Error| zio::failed_write(error).filter(|_| !self.tree.has_lost_writes());
        let written = zio::reissue(self.pipeline.suspend(), kind, || {
            self.write_labels(&uberblock, labels_too)
        });
        if written.is_err() {
            self.state.lock().labels_dirty |= labels_too;
        }
        written?;
        self.mmp
            .note_write(true, self.tree.heartbeat_leaves() as u64);
        self.state.lock().synced = uberblock;
        Ok(())
    }

    /// The uberblock of `txg`: the root just written, all other fields set anew.
    #[doc(alias = "uberblock_update")]
    fn next_uberblock(&self, last: &UberblockPhys, txg: Txg) -> UberblockPhys {
        let mut ub = *last;
        ub.magic.set(UBERBLOCK_MAGIC);
        ub.version.set(SPA_VERSION_FEATURES);
        ub.txg.set(txg.0);
        ub.guid_sum.set(self.tree.guid_sum());
        ub.timestamp.set(rt::wall_clock().secs);
        ub.software_version.set(SPA_VERSION_FEATURES);
        self.mmp.mark(&mut ub);
        ub.checkpoint_txg.set(0);
        ub
    }
}
