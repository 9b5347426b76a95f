//! An open pool.
//!
//! # What it is
//! [`Spa`] ties the layers of one pool together: the vdev tree with its labels, the allocator, the
//! pipeline and the cache over it, the MOS, the datasets, the txgs. It is opened by
//! [`Spa::create`](crate::create) or [`Spa::import`](crate::load), and ends with [`Spa::close`] or
//! [`Spa::export`].
//!
//! # Concurrency
//! `state` is a leaf lock: no other lock is taken while it is held. The sync thread is the only
//! writer of uberblock and config.
//!
//! # Source
//! OpenZFS `module/zfs/spa.c`, `module/zfs/spa_misc.c`.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use base::{Context, Error, ErrorKind, Guid, ObjectId, Result, Txg, VdevId};
use dmu::{FailMode, Objset, Tx, TxGroups, TxgSettings};
use dsl::DslPool;
use metaslab::{Metaslabs, SpaceStats};
use nvpair::NvList;
use phys::PropValue;
use phys::uberblock::UberblockPhys;
use rt::Mutex;
use vdev::{AutoAshift, PoolState, TxgSet, Vdev, VdevAux, VdevState, VdevTree};
use zio::{Pipeline, PipelineSettings};

use crate::aux_list::AuxList;
use crate::core::Core;
use crate::features::{FeatureState, Features};
use crate::history::Record;
use crate::host::Host;
use crate::mmp::Mmp;
use crate::obstacle::Obstacle;
use crate::props::PoolProps;
use crate::rebuild::Rebuilds;
use crate::reflow::Reflowing;
use crate::removal::{Removal, RemovalSettings};
use crate::scanning::{ScanSettings, Scanning};
use crate::sharing::Deduped;
use crate::space_maps::SpaceMaps;
use crate::spares::SpareWatch;
use crate::sweep::{SweepSettings, Sweeps};

/// The pool property that selects what happens when I/O fails on every copy.
pub(crate) const FAILMODE: &str = "failmode";

/// Resource limits of an open pool, and how it syncs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `zfs_arc_max`: bytes of the block cache
    pub arc_bytes: u64,
    /// For a pool of an emulated machine whose memory is modelled: the most bytes that cached blocks take of this
    /// computer's.
    pub arc_real_bytes: Option<u64>,
    /// When txgs sync.
    pub txg: TxgSettings,
    /// Device writes in flight, at most (the former `zfs_vdev_max_pending`).
    pub io_threads: usize,
    /// `zfs_vdev_aggregation_limit`: the largest write into which adjacent writes are merged, in
    /// bytes.
    pub aggregation_limit_bytes: u64,
    /// Which physical sector sizes are honored in a new vdev's ashift.
    pub auto_ashift: AutoAshift,
    /// How much of a scan, or of a removal, each txg does.
    pub scan: ScanSettings,
    /// How vdevs are removed.
    pub removal: RemovalSettings,
    /// How free space is overwritten or deleted.
    pub sweep: SweepSettings,
    /// Segments of a discarded checkpoint that a txg frees, at most.
    pub discard_entries_max: u64,
    /// `raidz_expand_max_copy_bytes`: bytes of a RAID-Z that is being expanded that are copied while other I/O
    /// waits, at most; a multiple of the sector.
    pub reflow_max_bytes: u64,
    /// Bytes of a vdev that are rebuilt while other I/O waits, at most.
    pub rebuild_max_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            arc_bytes: 256 << 20,
            arc_real_bytes: None,
            // With writes in flight and recycled buffers, memory stays below the cache's limit plus
            // 256 MiB.
            txg: TxgSettings {
                dirty_data_max: 128 << 20,
                ..TxgSettings::default()
            },
            io_threads: PipelineSettings::default().io_threads,
            aggregation_limit_bytes: PipelineSettings::default().aggregation_limit_bytes,
            auto_ashift: AutoAshift::default(),
            scan: ScanSettings::default(),
            removal: RemovalSettings::default(),
            sweep: SweepSettings::default(),
            // `zfs_spa_discard_memory_limit` (16 MiB), as OpenZFS counts it.
            discard_entries_max: 1 << 19,
            reflow_max_bytes: 32 << 20,
            // Long enough for the drives, and short for a thread that waits.
            rebuild_max_bytes: 8 << 20,
        }
    }
}

/// A pool, open for reading or for reading and writing.
pub struct Spa {
    pub(crate) inner: Arc<Inner>,
}

/// The part of a pool that the sync thread shares with other threads.
pub(crate) struct Inner {
    pub(crate) host: Host,
    pub(crate) readonly: bool,
    /// Why the pool is read-only although that was not requested.
    pub(crate) obstacles: Vec<Obstacle>,
    pub(crate) tree: Arc<VdevTree>,
    pub(crate) space: Arc<Metaslabs>,
    pub(crate) maps: Arc<SpaceMaps>,
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) cache: Arc<arc::Cache>,
    pub(crate) mos: Arc<Objset>,
    pub(crate) core: Arc<Core>,
    pub(crate) groups: Arc<TxGroups>,
    pub(crate) dsl: OnceLock<Arc<DslPool>>,
    pub(crate) props: PoolProps,
    pub(crate) state: Mutex<State>,
    pub(crate) mmp: Mmp,
    pub(crate) removal: Arc<Removal>,
    pub(crate) removal_settings: RemovalSettings,
    pub(crate) sweeps: Sweeps,
    pub(crate) sweep_settings: SweepSettings,
    pub(crate) discard_entries_max: u64,
    pub(crate) scanning: Scanning,
    pub(crate) reflowing: Reflowing,
    pub(crate) reflow_max_bytes: u64,
    pub(crate) rebuilds: Rebuilds,
    pub(crate) rebuild_max_bytes: u64,
    pub(crate) scan_settings: ScanSettings,
    pub(crate) spare_watch: SpareWatch,
    /// The cache devices.
    pub(crate) l2: Arc<arc::l2::L2Arc>,
    /// The last synced txg when the pool was opened.
    pub(crate) first_txg: Txg,
}

/// What changes while the pool is open.
pub(crate) struct State {
    pub(crate) name: String,
    /// What labels and MOS say: another one if that is temporary.
    pub(crate) name_on_disk: String,
    pub(crate) pool_state: PoolState,
    /// The uberblock being built; its rootbp is that of the last MOS written.
    pub(crate) uberblock: UberblockPhys,
    /// `spa_ubsync`: the one on disk
    pub(crate) synced: UberblockPhys,
    /// The config in the MOS must be written again.
    pub(crate) config_dirty: bool,
    /// All labels must be written with the next uberblock.
    pub(crate) labels_dirty: bool,
    /// `spa_config_object`
    pub(crate) config_object: ObjectId,
    /// `spa_all_vdev_zaps`
    pub(crate) vdev_zaps: Option<ObjectId>,
    /// The DTLs as the MOS has them, by their objects.
    pub(crate) dtls: BTreeMap<u64, TxgSet>,
    /// Devices that were detached in the txg that is being synced.
    pub(crate) detached: Vec<Arc<Vdev>>,
    /// spa_spares
    pub(crate) spares: AuxList,
    /// spa_l2cache
    pub(crate) caches: AuxList,
    pub(crate) comment: Option<String>,
    pub(crate) compatibility: Option<String>,
    /// The devices that are being split off, by the numbers of their top-level vdevs.
    pub(crate) split_list: Vec<u64>,
    /// The pool that this one has just been split off from.
    pub(crate) split_from: Option<Guid>,
    /// The config as last written: what a cachefile stores.
    pub(crate) config: NvList,
}

impl Settings {
    pub(crate) fn pipeline_settings(&self) -> PipelineSettings {
        PipelineSettings {
            io_threads: self.io_threads,
            aggregation_limit_bytes: self.aggregation_limit_bytes,
            ..PipelineSettings::default()
        }
    }

    pub(crate) fn arc_settings(&self) -> arc::ArcSettings {
        arc::ArcSettings {
            limit_bytes: self.arc_bytes,
            real_bytes: self.arc_real_bytes,
            ..arc::ArcSettings::default()
        }
    }
}

impl Inner {
    pub(crate) fn dsl(&self) -> &Arc<DslPool> {
        self.dsl
            .get()
            .expect("data sets are open before the first txg syncs")
    }

    pub(crate) fn features(&self) -> Arc<Features> {
        self.core.features()
    }

    /// From now on the pipeline looks for blocks in the dedup tables.
    pub(crate) fn begin_deduplicating(&self) {
        self.pipeline
            .set_dedup(Arc::clone(self.core.sharing()) as _);
    }

    /// From now on I/O that fails on every copy suspends the pool, and what is freed is trimmed if it is to be.
    pub(crate) fn begin_suspending(&self) {
        self.take_failmode();
        self.take_autotrim();
        let groups = Arc::clone(&self.groups);
        self.pipeline.set_suspend(groups);
    }

    /// Applies the property `failmode`.
    pub(crate) fn take_failmode(&self) {
        let failmode = match self.props.get(FAILMODE) {
            Some(PropValue::Number(number)) => FailMode::from_raw(number),
            _ => None,
        };
        self.groups.set_failmode(failmode.unwrap_or_default());
    }
}

impl Drop for Spa {
    /// Closes the devices, and breaks the reference cycles between MOS, pipeline and allocator.
    fn drop(&mut self) {
        self.inner.scanning.end();
        self.inner.groups.abandon();
        self.inner.mmp.stop();
        let _ = self.inner.groups.stop();
        let others = {
            let state = self.inner.state.lock();
            [state.spares.devices(), state.caches.devices()].concat()
        };
        for device in self.inner.tree.devices().iter().chain(&others) {
            device.leaf().close(VdevState::Closed, VdevAux::None);
        }
        self.inner.core.close();
        self.inner.maps.close();
    }
}

impl Spa {
    /// The pool's name.
    #[must_use]
    pub fn name(&self) -> String {
        self.inner.state.lock().name.clone()
    }

    /// The pool's guid.
    #[must_use]
    pub fn guid(&self) -> Guid {
        self.inner.tree.root().guid()
    }

    /// Whether the pool is read-only.
    #[must_use]
    pub fn is_readonly(&self) -> bool {
        self.inner.readonly
    }

    /// The active features that are not maintained here, which make the pool read-only.
    #[must_use]
    pub fn obstacles(&self) -> &[Obstacle] {
        &self.inner.obstacles
    }

    pub(crate) fn dsl(&self) -> &Arc<DslPool> {
        self.inner.dsl()
    }

    /// Blocks that the cache evicted because they take more than [`Settings::arc_real_bytes`].
    #[must_use]
    pub fn evicted_for_room(&self) -> u64 {
        self.inner.cache.stats().evictions_for_room
    }

    /// Why the pool is suspended; `None` if it is not.
    #[must_use]
    pub fn suspended(&self) -> Option<String> {
        self.inner.groups.suspended()
    }

    /// What the pool says of a feature, by its guid.
    #[must_use]
    pub fn feature(&self, guid: &str) -> FeatureState {
        self.inner.features().count(guid).into()
    }

    /// The guids of the features that are not disabled, with their states.
    #[must_use]
    pub fn features(&self) -> Vec<(String, FeatureState)> {
        let counts = self.inner.features().counts().into_iter();
        counts
            .map(|(guid, count)| (guid, Some(count).into()))
            .collect()
    }

    /// The pool's own properties that are set.
    #[must_use]
    pub fn props(&self) -> BTreeMap<String, PropValue> {
        self.inner.props.all()
    }

    /// The last uberblock on disk.
    #[must_use]
    #[expect(clippy::misnamed_getters, reason = "the other one is being built")]
    pub fn uberblock(&self) -> UberblockPhys {
        self.inner.state.lock().synced
    }

    /// The config as the MOS and a cachefile have it.
    #[must_use]
    pub fn config(&self) -> NvList {
        self.inner.state.lock().config.clone()
    }

    /// Space of all vdevs but those for the log: `zpool list`'s SIZE, ALLOC and FREE.
    #[must_use]
    pub fn space(&self) -> SpaceStats {
        self.inner.space.evaluate()
    }

    /// What is deduplicated.
    ///
    /// # Errors
    /// What reading the MOS gives.
    #[doc(alias = "ddt_get_pool_dedup_ratio")]
    #[doc(alias = "ddt_get_ddt_dsize")]
    pub fn deduped(&self) -> Result<Deduped> {
        self.inner.core.sharing().deduped()
    }

    /// Bytes that cloned blocks occupy, and the additional bytes that copies would occupy.
    #[must_use]
    #[doc(alias = "brt_get_used")]
    #[doc(alias = "brt_get_saved")]
    pub fn cloned(&self) -> (u64, u64) {
        self.inner.core.sharing().cloned()
    }

    /// Space of one top-level vdev.
    ///
    /// # Errors
    /// Any, when there is no such vdev.
    pub fn vdev_space(&self, vdev: VdevId) -> Result<SpaceStats> {
        self.inner.space.vdev_stats(vdev)
    }

    /// Calls `show` on the records of the pool's history, oldest first.
    ///
    /// # Errors
    /// Any error from reading it or from `show`.
    pub fn for_each_record(&self, show: &mut dyn FnMut(Record) -> Result<()>) -> Result<()> {
        match self.inner.core.history() {
            Some(history) => history.for_each(show),
            None => Ok(()),
        }
    }

    /// Adds a command line to the history, as `zpool` and `zfs` do for every command that changed
    /// something. Reaches the disk with the open txg.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`.
    pub fn log_command(&self, command: &str) -> Result<()> {
        self.check_writable()?;
        let record = crate::history::command_record(command);
        let core = self.inner.core.clone();
        let tx = self.inner.groups.hold_open(0)?;
        self.dsl()
            .queue_task(&tx, move |_, tx| core.log(record, true, tx));
        Ok(())
    }

    /// Its version: 5000 with feature flags, 1 to 28 without.
    #[must_use]
    #[doc(alias = "spa_version")]
    pub fn version(&self) -> u64 {
        self.uberblock().version.get()
    }

    /// Fails when the pool is read-only.
    ///
    /// # Errors
    /// `ReadOnly`.
    pub fn check_writable(&self) -> Result<()> {
        if self.inner.readonly {
            let why = self.inner.obstacles.first();
            let why = why.map_or_else(String::new, |obstacle| format!(": {obstacle}"));
            return Err(Error::new(
                ErrorKind::ReadOnly,
                format!("pool is read-only{why}"),
            ));
        }
        Ok(())
    }

    /// Waits until everything done so far is on disk.
    ///
    /// # Errors
    /// `Suspended` when it could not be written.
    pub fn sync(&self) -> Result<Txg> {
        if self.inner.readonly {
            return Ok(self.inner.groups.synced_txg());
        }
        self.inner.groups.sync_all()
    }

    /// Clears the errors of all devices and, if the pool is suspended, reissues the failed I/O. If
    /// the devices still fail, the pool is suspended again.
    ///
    /// # Errors
    /// `Suspended` when the pool has failed for good: it has to be opened again.
    #[doc(alias = "zfs_ioc_clear")]
    pub fn resume(&self) -> Result<()> {
        let groups = &self.inner.groups;
        if groups.has_failed() {
            let cause = groups.suspended().unwrap_or_default();
            return Err(Error::new(ErrorKind::Suspended, cause));
        }
        self.inner.tree.clear(None)?;
        groups.resume();
        Ok(())
    }

    /// Syncs and stops the pool. It stays imported: its labels say "active".
    ///
    /// # Errors
    /// `Suspended` when the last txg could not be written: the pool is in use as before.
    pub fn close(&self) -> Result<()> {
        if self.inner.readonly {
            return Ok(());
        }
        self.ending_scans(|| {
            self.finish_destroys()?;
            self.finish_discard(&mut |_| {})?;
            self.finish_replacements()?;
            self.finish_autotrim()?;
            if !self.inner.pipeline.errors().is_empty() {
                self.sync_now()?;
            }
            self.inner.groups.stop()
        })?;
        self.inner.feed_caches(true);
        self.inner.mmp.stop();
        Ok(())
    }

    /// Ends a running scan slice and prevents new ones while `leave` runs, and after it unless it
    /// fails.
    fn ending_scans(&self, leave: impl FnOnce() -> Result<()>) -> Result<()> {
        self.inner.scanning.end();
        leave().inspect_err(|_| self.inner.scanning.go_on())
    }

    /// Frees what destroyed datasets still occupy: nothing would do it once the pool is closed.
    ///
    /// # Errors
    /// `Suspended`.
    pub fn finish_destroys(&self) -> Result<()> {
        while self.dsl().is_freeing() {
            let before = self.dsl().free_bytes();
            self.sync_now()?;
            if self.dsl().is_freeing() && self.dsl().free_bytes() == before {
                break; // blocks that cannot be read stay on the list
            }
        }
        Ok(())
    }

    /// Syncs, marks the pool as exported, and stops it.
    ///
    /// # Errors
    /// As [`close`](Spa::close).
    #[doc(alias = "spa_export")]
    pub fn export(&self) -> Result<()> {
        self.leave(PoolState::Exported)
    }

    /// Marks the pool as destroyed and stops it. Nothing is overwritten: `zpool import -D` could
    /// bring it back.
    ///
    /// # Errors
    /// As [`close`](Spa::close).
    #[doc(alias = "spa_destroy")]
    pub fn destroy(&self) -> Result<()> {
        self.leave(PoolState::Destroyed)
    }

    fn leave(&self, pool_state: PoolState) -> Result<()> {
        self.check_writable()?;
        let is_destroyed = pool_state == PoolState::Destroyed;
        self.notify(
            ["pool_export", "pool_destroy"][usize::from(is_destroyed)],
            None,
        );
        self.ending_scans(|| {
            // Sync the last changes first, so that the txg that says "exported" has nothing else to
            // write.
            self.inner.groups.sync_all().within(|| self.name())?;
            self.finish_destroys()?;
            self.finish_discard(&mut |_| {})?;
            self.finish_replacements()?;
            if pool_state == PoolState::Exported {
                self.finish_autotrim()?;
            }
            self.set_pool_state(pool_state);
            let left = self.sync_now().and_then(|()| self.inner.groups.stop());
            // If the pool is resumed it is in use as before.
            left.inspect_err(|_| self.set_pool_state(PoolState::Active))
        })?;
        self.inner.feed_caches(true);
        self.inner.mmp.stop();
        Ok(())
    }

    /// Sets the pool state written to config and labels from the next txg on.
    fn set_pool_state(&self, pool_state: PoolState) {
        let mut state = self.inner.state.lock();
        state.pool_state = pool_state;
        state.config_dirty = true;
        state.labels_dirty = true;
    }

    /// Writes labels and an uberblock, though nothing may have changed: `zpool sync -f`.
    ///
    /// # Errors
    /// `ReadOnly`; `Suspended` when it could not be written.
    pub fn force_sync(&self) -> Result<()> {
        self.check_writable()?;
        self.inner.state.lock().labels_dirty = true;
        self.sync_now()
    }

    /// Syncs a txg even if nothing but the config has changed.
    pub(crate) fn sync_now(&self) -> Result<()> {
        let tx = self.inner.groups.hold_open(0)?;
        self.dsl().queue_task(&tx, |_, _| Ok(()));
        let txg = tx.txg();
        drop(tx);
        self.inner.groups.wait_synced(txg)
    }

    /// For who has waited for the end of something: that may have been observed in the middle of the txg that writes
    /// it.
    pub(crate) fn wait_end_written(&self) -> Result<()> {
        let synced = self.inner.groups.synced_txg();
        if !self.is_readonly() && self.inner.groups.open_txg() > synced.next() {
            self.inner.groups.wait_unhurried(synced.next())?;
        }
        Ok(())
    }

    /// Runs `change` in syncing context of the open txg and waits for it.
    pub(crate) fn in_sync<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Inner, &Tx) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.check_writable()?;
        let inner = self.inner.clone();
        self.dsl().sync_task(
            4,
            dsl::SpaceCheck::ExtraReserved,
            |_, _| Ok(dsl::Verdict::Go),
            move |_, tx| change(&inner, tx),
        )
    }
}
