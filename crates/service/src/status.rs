//! The state of pools and their vdevs: open ones, unavailable ones, and those found on devices.
//!
//! # Source
//! OpenZFS module/zfs/vdev.c (`vdev_get_stats_ex`), module/zfs/spa.c (`spa_get_stats`).

use std::collections::BTreeMap;
use std::sync::Arc;

use admin::dedup::{DedupRow, DedupStatus};
use admin::listing::{Item, Prop};
use admin::pool::{
    CheckpointStatus, ErrorScrubStatus, ExpandStatus, PoolStatus, RebuildStatus, ScanFunction,
    ScanState, ScanStatus, VdevAux, VdevKind, VdevState, VdevStatus,
};
use base::{Error, ErrorKind, Guid, Result, Txg, VdevId};
use geom::disk::OpenMode;
use geom::{Namespace, Provider};
use nvpair::NvList;
use phys::feature;
use phys::pool_names::{L2CACHE, SPARES};
use phys::scan::{DSS_CANCELED, DSS_FINISHED, POOL_SCAN_RESILVER};
use scan::Kind;
use spa::{
    Deduped, ExpansionProgress, FeatureState, Obstacle, RebuildProgress, RebuildState, Spa,
    SpareUser, try_import,
};
use vdev::import::{FoundPool, aux_configs};
use vdev::{Vdev, VdevTree};
use zio::AllocClass;

use crate::error_log::{Mounted, names_of, objects_of};
use crate::failure::{Attempt, Failure, Outcome};
use crate::held::Access;
use crate::kept_errors::{Counts, kept_errors};
use crate::open::OpenPool;
use crate::pools::Pools;
use crate::properties::properties_of;
use crate::removal::removal_status;
use crate::session::Session;
use crate::sweeping::show_sweeps;

impl Session {
    /// The state of an imported pool; if it cannot be opened, what its config and its devices say.
    ///
    /// # Errors
    /// Errors of opening it: it is not imported, or in use; errors of reading it.
    pub fn status(&self, pool: &str) -> Outcome<PoolStatus> {
        Ok(self.look(pool, &|_| Ok(()))?.0)
    }

    /// The properties and the state of an imported pool; if it cannot be opened, only those properties that
    /// its config and its devices tell.
    ///
    /// # Errors
    /// As [`status`](Session::status).
    pub fn listed(&self, pool: &str) -> Outcome<(Item, PoolStatus)> {
        let (status, item) = self.look(pool, &properties_of)?;
        let item = item.unwrap_or_else(|| Item {
            name: pool.to_owned(),
            types: None,
            props: vec![
                Prop::text("health", status.root.state_name()),
                Prop::number("guid", status.guid),
            ],
        });
        Ok((item, status))
    }

    /// The state of an imported pool, and if it can be opened, what `read` returns of it.
    fn look<T>(
        &self,
        pool: &str,
        read: &dyn Fn(&OpenPool) -> Result<T>,
    ) -> Outcome<(PoolStatus, Option<T>)> {
        let failed = Failure::of(Attempt::Look, pool);
        match self.open(pool, Access::Read) {
            Ok(open) => {
                let read = read(&open).map_err(&failed)?;
                Ok((open.status().map_err(failed)?, Some(read)))
            }
            Err(error) => match self.pools.unavailable(pool, &error).map_err(failed)? {
                Some(status) => Ok((status, None)),
                None => Err(Failure::new(Attempt::Open, pool, error)),
            },
        }
    }
}

impl OpenPool {
    /// The state of its cache devices.
    #[must_use]
    pub fn cache_devices(&self) -> Vec<VdevStatus> {
        caches_of(self)
    }

    /// The state of its hot spares.
    #[must_use]
    pub fn spare_devices(&self) -> Vec<VdevStatus> {
        spares_of(self)
    }

    /// Its state.
    ///
    /// # Errors
    /// Errors of reading it.
    pub fn status(&self) -> Result<PoolStatus> {
        let is_mounted = self.pools().world().is_machine();
        let mounted = || match is_mounted {
            true => self.mountpoints().unwrap_or_default(),
            false => Vec::new(),
        };
        status_of(self.pools(), self, &mounted)
    }

    /// The state of the root vdev and of those below it, without their space.
    #[must_use]
    pub fn vdevs(&self) -> VdevStatus {
        vdev_status(&self.parts().tree().root(), 0, AllocClass::Normal)
    }
}

impl Pools {
    /// The state of a pool that is imported but cannot be opened because of `error`: the config in the
    /// cachefile, with each device as it is found now. `None` for a pool that is not imported, or that is in
    /// use.
    fn unavailable(&self, name: &str, error: &Error) -> Result<Option<PoolStatus>> {
        let config = self.cachefile().find(name)?;
        let Some(config) = config.filter(|_| error.kind() != ErrorKind::Busy) else {
            return Ok(None);
        };
        let tree = self.found_devices(&config)?;
        let mut root = vdev_status(&tree.root(), 0, AllocClass::Normal);
        let is_unsupported = error.kind() == ErrorKind::Unsupported;
        if is_unsupported {
            (root.state, root.aux) = (VdevState::CantOpen, VdevAux::UnsupFeat);
        } else if tree.state().0.is_usable() {
            // Enough devices are present; their contents cannot be used.
            (root.state, root.aux) = (VdevState::CantOpen, VdevAux::CorruptData);
        }
        let unsupported = is_unsupported.then(|| error.to_string());
        Ok(Some(PoolStatus {
            root,
            is_foreign: error.kind() == ErrorKind::Permission,
            unsupported_features: unsupported.into_iter().collect(),
            spares: listed_aux(&config, SPARES, &|_, path| self.look_at(path?)),
            cache: listed_aux(&config, L2CACHE, &|_, path| self.look_at(path?)),
            ..named(name, config.get_u64("pool_guid").unwrap_or(0), &config)
        }))
    }

    fn look_at(&self, path: &str) -> Option<Arc<dyn Provider>> {
        Namespace::open(&**self.world(), path, OpenMode::Inspect).ok()
    }

    /// The vdevs of a config with all devices that can be opened and have the right label.
    fn found_devices(&self, config: &NvList) -> Result<Arc<VdevTree>> {
        let tree = VdevTree::read_only(Vdev::from_config(config.expect_list("vdev_tree")?)?);
        tree.open_devices(&|device| {
            let path = device.config().path.clone()?;
            Namespace::open(&**self.world(), &path, OpenMode::ReadOnly).ok()
        });
        let guid = Guid(config.expect_u64("pool_guid")?);
        tree.validate_devices(guid, Txg(u64::MAX));
        Ok(tree)
    }

    /// The state of a pool that was opened without its being imported.
    ///
    /// # Errors
    /// Errors of reading it.
    pub fn status_of_inspected(&self, pool: &Spa) -> Result<PoolStatus> {
        status_of(self, pool, &Vec::new)
    }

    /// The state of a pool found on devices.
    ///
    /// # Errors
    /// As [`host`](Pools::host).
    pub fn status_of_found(&self, found: &FoundPool) -> Result<PoolStatus> {
        let is_elsewhere = found.hostid != 0 && found.hostid != self.host()?.id;
        let mut pool = PoolStatus {
            is_readable: true,
            is_foreign: found.state == vdev::PoolState::Active && is_elsewhere,
            ..named(&found.name, found.guid.0, &found.config)
        };
        match try_import(found) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                show_unreadable(&mut pool, &error);
            }
            tried => match found.open(tried.as_ref().unwrap_or(&found.config), false) {
                Ok(tree) => {
                    pool.root = vdev_status(&tree.root(), 0, AllocClass::Normal);
                    if tried.is_err() && pool.root.state.is_usable() {
                        (pool.root.state, pool.root.aux) =
                            (VdevState::CantOpen, VdevAux::CorruptData);
                    }
                    show_paths(&mut pool.root);
                    let config = tried.as_ref().unwrap_or(&found.config);
                    let find = |guid, path: Option<&str>| {
                        let in_use = || Some(&found.device(guid, path)?.provider);
                        found.aux_device(guid, path).or_else(in_use).cloned()
                    };
                    pool.spares = listed_aux(config, SPARES, &find);
                    pool.cache = listed_aux(config, L2CACHE, &find);
                }
                Err(error) => show_unreadable(&mut pool, &error),
            },
        }
        if found.uberblock.is_none() {
            pool.root.state = VdevState::CantOpen;
            pool.root.aux = VdevAux::CorruptData;
        }
        Ok(pool)
    }
}

/// The hot spares of an open pool.
#[doc(alias = "spa_add_spares")]
fn spares_of(pool: &Spa) -> Vec<VdevStatus> {
    let status = |(spare, user): (Arc<Vdev>, SpareUser)| {
        let status = vdev_status(&spare, 0, AllocClass::Normal);
        match user {
            SpareUser::None => status,
            user => VdevStatus {
                state: VdevState::CantOpen,
                aux: VdevAux::Spared,
                used_by: match user {
                    SpareUser::Other(pool) => Some(pool),
                    _ => None,
                },
                ..status
            },
        }
    };
    pool.spares().into_iter().map(status).collect()
}

/// The cache devices of an open pool.
#[doc(alias = "spa_add_l2cache")]
fn caches_of(pool: &Spa) -> Vec<VdevStatus> {
    let status = |(cache, used): (Arc<Vdev>, u64)| {
        let status = vdev_status(&cache, 0, AllocClass::Normal);
        VdevStatus {
            alloc_bytes: used,
            space_bytes: phys::label::allocatable_size(status.physical_bytes),
            fragmentation: Some(0),
            ..status
        }
    };
    pool.caches().into_iter().map(status).collect()
}

/// Finds a device by guid and path.
type Find<'f> = dyn Fn(Guid, Option<&str>) -> Option<Arc<dyn Provider>> + 'f;

/// The hot spares or cache devices that a config lists; `find` returns those that are there, by guid and path.
pub(crate) fn listed_aux(config: &NvList, list: &str, find: &Find<'_>) -> Vec<VdevStatus> {
    let status = |config: &NvList| {
        let spare = Vdev::from_aux_config(config).ok()?;
        let path = spare.config().path.clone();
        if !spare.kind().has_labels() {
            return Some(VdevStatus {
                state: VdevState::Healthy,
                aux: VdevAux::None,
                ..vdev_status(&spare, 0, AllocClass::Normal)
            });
        }
        let is_offline = spare.config().offline;
        let opened = find(spare.guid(), path.as_deref()).filter(|_| !is_offline);
        let opened = opened.map(|found| spare.leaf().open(found));
        if is_offline {
            spare.leaf().close(VdevState::Offline, VdevAux::None);
        } else if !matches!(opened, Some(Ok(()))) {
            let leaf = spare.leaf();
            leaf.close(VdevState::CantOpen, VdevAux::OpenFailed);
        }
        Some(vdev_status(&spare, 0, AllocClass::Normal))
    };
    aux_configs(config, list).filter_map(status).collect()
}

/// A pool of which only the config is known.
pub(crate) fn named(name: &str, guid: u64, config: &NvList) -> PoolStatus {
    PoolStatus {
        name: name.to_owned(),
        guid,
        txg: config.get_u64("txg").unwrap_or(0),
        version: config.get_u64("version").unwrap_or(0),
        ..PoolStatus::default()
    }
}

/// Shows why a pool found on devices cannot be read.
fn show_unreadable(pool: &mut PoolStatus, error: &Error) {
    let is_unsupported = error.kind() == ErrorKind::Unsupported;
    pool.root = VdevStatus {
        kind: VdevKind::Root,
        state: VdevState::CantOpen,
        aux: if is_unsupported {
            VdevAux::UnsupFeat
        } else {
            VdevAux::CorruptData
        },
        ..VdevStatus::default()
    };
    pool.unsupported_features.push(error.to_string());
    pool.is_readable = false;
}

/// Whether a compatibility property leaves features out on purpose.
fn is_restricted(pool: &Spa) -> bool {
    pool.compatibility().is_some_and(|sets| sets != "off")
}

/// Everything `zpool status` shows of an open pool.
fn status_of(pools: &Pools, pool: &Spa, mounted: &Mounted<'_>) -> Result<PoolStatus> {
    let tree = pool.parts().tree();
    let mut root = vdev_status(&tree.root(), 0, AllocClass::Normal);
    for (i, top) in root.children.iter_mut().enumerate() {
        fill_space(pool, VdevId(i as u64), top);
    }
    let space = pool.space();
    root.alloc_bytes = space.alloc;
    root.space_bytes = space.space;
    root.deflated_bytes = space.dspace;
    let kept = kept_errors(pools, pool.guid());
    let damaged = pool.damaged().ok();
    let objects = damaged.as_ref().map(objects_of).unwrap_or_default();
    add_errors(&mut root, &kept.devices);
    show_resilvering(pool, &mut root);
    show_rebuilding(pool, &mut root);
    show_sweeps(pool, &mut root);
    let features = pool.obstacles().iter();
    let features = features.filter(|obstacle| matches!(obstacle, Obstacle::Feature { .. }));
    let unsupported = features.map(Obstacle::name).collect();
    let has_disabled_features =
        feature::kept().any(|f| pool.feature(f.guid) == FeatureState::Disabled);
    Ok(PoolStatus {
        name: pool.name(),
        guid: pool.guid().0,
        txg: pool.config().get_u64("txg").unwrap_or(0),
        version: pool.version(),
        root,
        spares: spares_of(pool),
        cache: caches_of(pool),
        unsupported_features: unsupported,
        is_readable: true,
        has_disabled_features: has_disabled_features && !is_restricted(pool),
        scan: scan_status(pool)?,
        error_scrub: error_scrub_status(pool),
        rebuilds: pool.rebuilds().iter().map(rebuild_status).collect(),
        removal: removal_status(pool),
        expand: expand_status(pool)?,
        checkpoint: checkpoint_status(pool)?,
        dedup: Some(dedup_status(&pool.deduped()?)),
        error_count: damaged.map(|damaged| damaged.len() as u64),
        errors: names_of(pool, &objects, mounted),
        ..PoolStatus::default()
    })
}

/// What `zpool status -D` shows of the dedup tables.
fn dedup_status(deduped: &Deduped) -> DedupStatus {
    let row = |stored, referenced| DedupRow { stored, referenced };
    let rows = (0..).zip(&deduped.histogram.rows);
    let rows = rows.filter(|(_, stat)| stat.stored[0] > 0);
    let total = deduped.histogram.total();
    DedupStatus {
        entries: deduped.sizes.entries,
        disk_bytes: deduped.sizes.disk_bytes,
        core_bytes: deduped.sizes.core_bytes,
        rows: rows
            .map(|(bit, stat)| (1u64 << bit, row(stat.stored, stat.referenced)))
            .collect(),
        total: row(total.stored, total.referenced),
    }
}

/// What `zpool status` shows of the last expansion of a RAID-Z.
fn expand_status(pool: &Spa) -> Result<Option<ExpandStatus>> {
    let status = |progress: ExpansionProgress| ExpandStatus {
        state: if progress.is_going_on {
            ScanState::Scanning
        } else {
            ScanState::Finished
        },
        vdev: progress.vdev.0,
        start_secs: progress.start_secs,
        end_secs: progress.end_secs,
        total_bytes: progress.total_bytes,
        copied_bytes: progress.copied_bytes,
        waits_for_resilver: progress.is_paused,
    };
    Ok(pool.expansion()?.map(status))
}

/// What `zpool status` shows of a checkpoint.
fn checkpoint_status(pool: &Spa) -> Result<Option<CheckpointStatus>> {
    Ok(pool.checkpoint()?.map(|checkpoint| CheckpointStatus {
        is_discarding: checkpoint.start_secs.is_none(),
        start_secs: checkpoint.start_secs.unwrap_or(0),
        bytes: checkpoint.bytes,
    }))
}

/// A device that is missing before the import is shown by its path.
fn show_paths(vdev: &mut VdevStatus) {
    vdev.is_not_present = false;
    vdev.children.iter_mut().for_each(show_paths);
}

pub(crate) fn vdev_status(vdev: &Vdev, id: u64, class: AllocClass) -> VdevStatus {
    let config = vdev.config();
    let (state, aux) = vdev.state();
    let stats = vdev.stats().snapshot();
    let is_device = vdev.kind().is_device();
    let class = match config.class() {
        AllocClass::Normal => class,
        own => own,
    };
    let children = vdev.children().iter().enumerate();
    let physical = if is_device { vdev.leaf().psize() } else { 0 };
    VdevStatus {
        kind: kind_of(vdev.kind(), config.whole_disk == Some(true)),
        id,
        guid: vdev.guid().0,
        path: config.path.clone().filter(|_| is_device),
        is_not_present: is_device && config.not_present && !state.is_usable(),
        enclosure: config.enc_sysfs_path.clone(),
        class,
        state,
        aux,
        is_spare: is_device && config.is_spare,
        physical_bytes: physical,
        replaceable_bytes: if is_device {
            phys::label::allocatable_size(physical)
        } else {
            0
        },
        healed_bytes: stats.self_healed_bytes,
        read_errors: stats.read_errors,
        write_errors: stats.write_errors,
        checksum_errors: stats.checksum_errors,
        slow_ios: stats.slow_ios,
        is_resilver_deferred: is_device && state.is_usable() && vdev.leaf().has_dtl(),
        is_removing: config.removing,
        is_noalloc: config.non_allocating,
        configured_ashift: config.ashift,
        children: children
            .map(|(i, child)| vdev_status(child, i as u64, class))
            .collect(),
        ..VdevStatus::default()
    }
}

fn fill_space(pool: &Spa, id: VdevId, top: &mut VdevStatus) {
    if top.kind == VdevKind::Indirect {
        // Its space is that of others.
        top.physical_bytes = 0;
        return;
    }
    if let Ok(space) = pool.vdev_space(id) {
        top.alloc_bytes = space.alloc;
        top.space_bytes = space.space;
        top.deflated_bytes = space.dspace;
        top.fragmentation = space.fragmentation;
        top.replaceable_bytes = space.space;
    }
    top.checkpoint_bytes = pool.checkpoint_bytes(id).unwrap_or(0);
    top.expandable_bytes = pool
        .parts()
        .tree()
        .top(id)
        .map_or(0, |top| expandable(&top));
}

/// What a top-level vdev could grow by, in bytes, rounded down to whole metaslabs.
#[doc(alias = "vs_esize")]
pub(crate) fn expandable(top: &Arc<Vdev>) -> u64 {
    let config = top.config().clone();
    let (asize, ms_shift) = (config.asize, config.ms_shift);
    let most = VdevTree::max_asize(top).unwrap_or(asize);
    base::align_down(most.saturating_sub(asize), 1 << ms_shift)
}

fn add_errors(vdev: &mut VdevStatus, kept: &BTreeMap<u64, Counts>) {
    if let Some([read, write, checksum, slow]) = kept.get(&vdev.guid) {
        vdev.read_errors += read;
        vdev.write_errors += write;
        vdev.checksum_errors += checksum;
        vdev.slow_ios += slow;
    }
    vdev.children
        .iter_mut()
        .for_each(|child| add_errors(child, kept));
}

/// Devices that take part in the running resilver, once that has brought anything back, are shown with what
/// it has brought back to all of them, and no longer wait for one.
fn show_resilvering(pool: &Spa, vdev: &mut VdevStatus) {
    let Some(scan) = pool
        .scan()
        .filter(|_| pool.scan_running() == Some(Kind::Resilver))
    else {
        return;
    };
    let (max, processed) = (scan.max_txg.get(), scan.processed.get());
    for child in &mut vdev.children {
        let device = pool.parts().tree().find(Guid(child.guid));
        let takes_part = device.is_some_and(|device| device.config().resilver_txg == max);
        if child.is_resilver_deferred && takes_part && processed > 0 {
            (child.scanned_bytes, child.is_resilver_deferred) = (processed, false);
        }
        show_resilvering(pool, child);
    }
}

/// Devices that take part in a sequential resilver are shown with what that has brought back to all of them.
fn show_rebuilding(pool: &Spa, root: &mut VdevStatus) {
    for rebuild in pool.rebuilds() {
        let mut tops = root.children.iter_mut();
        let top = tops.find(|top| top.id == rebuild.vdev.0);
        let bytes = rebuild.phys.bytes_rebuilt.get();
        if let Some(top) = top.filter(|_| rebuild.state == RebuildState::Active && bytes > 0) {
            show_rebuilt(pool, top, bytes);
        }
    }
}

fn show_rebuilt(pool: &Spa, vdev: &mut VdevStatus, bytes: u64) {
    let device = pool.parts().tree().find(Guid(vdev.guid));
    let takes_part = device.is_some_and(|device| device.config().rebuild_txg != 0);
    if vdev.is_leaf() && takes_part {
        (vdev.rebuilt_bytes, vdev.is_resilver_deferred) = (bytes, false);
    }
    let children = vdev.children.iter_mut();
    children.for_each(|child| show_rebuilt(pool, child, bytes));
}

/// What `zpool status` shows of a sequential resilver.
fn rebuild_status(progress: &RebuildProgress) -> RebuildStatus {
    let phys = &progress.phys;
    RebuildStatus {
        vdev: progress.vdev.0,
        state: match progress.state {
            RebuildState::Active => ScanState::Scanning,
            RebuildState::Canceled => ScanState::Canceled,
            RebuildState::Complete => ScanState::Finished,
        },
        start_secs: phys.start_time.get(),
        end_secs: phys.end_time.get(),
        took_ms: phys.scan_time_ms.get(),
        scanned_bytes: phys.bytes_scanned.get(),
        issued_bytes: phys.bytes_issued.get(),
        rebuilt_bytes: phys.bytes_rebuilt.get(),
        total_bytes: phys.bytes_est.get(),
        errors: phys.errors.get(),
        pass_ms: progress.pass_ms,
        pass_scanned_bytes: progress.pass_scanned_bytes,
        pass_issued_bytes: progress.pass_issued_bytes,
        pass_skipped_bytes: progress.pass_skipped_bytes,
    }
}

fn kind_of(kind: vdev::VdevKind, is_whole: bool) -> VdevKind {
    match kind {
        vdev::VdevKind::Root => VdevKind::Root,
        vdev::VdevKind::Mirror => VdevKind::Mirror,
        vdev::VdevKind::Replacing => VdevKind::Replacing,
        vdev::VdevKind::Spare => VdevKind::Spare,
        vdev::VdevKind::RaidZ { nparity } => VdevKind::Raidz {
            parity: nparity.into(),
        },
        vdev::VdevKind::Draid(shape) => VdevKind::Draid {
            parity: shape.nparity.into(),
            data: shape.ndata.into(),
            spares: shape.nspares.into(),
        },
        vdev::VdevKind::Disk => VdevKind::Disk { is_whole },
        vdev::VdevKind::File => VdevKind::File,
        vdev::VdevKind::DraidSpare(_) => VdevKind::DraidSpare,
        vdev::VdevKind::Missing => VdevKind::Missing,
        vdev::VdevKind::Hole => VdevKind::Hole,
        vdev::VdevKind::Indirect => VdevKind::Indirect,
    }
}

/// The scan after the pool was opened, which began a pass of it, or a pause; all of one that has ended.
#[doc(alias = "spa_scan_stat_init")]
fn scan_status(pool: &Spa) -> Result<Option<ScanStatus>> {
    let Some(scan) = pool.scan() else {
        return Ok(None);
    };
    let state = match scan.state.get() {
        0 => return Ok(None),
        DSS_FINISHED => ScanState::Finished,
        DSS_CANCELED => ScanState::Canceled,
        _ => ScanState::Scanning,
    };
    let is_resilver = scan.func.get() == POOL_SCAN_RESILVER;
    let (pass_start_secs, pass_bytes) = match state {
        ScanState::Scanning => (rt::wall_clock().secs, 0),
        _ => (scan.start_time.get(), scan.examined.get()),
    };
    Ok(Some(ScanStatus {
        function: if is_resilver {
            ScanFunction::Resilver
        } else {
            ScanFunction::Scrub
        },
        state,
        start_secs: scan.start_time.get(),
        end_secs: scan.end_time.get(),
        paused_secs: pool.is_scan_paused().then_some(pass_start_secs),
        total_bytes: scan.to_examine.get(),
        examined_bytes: scan.examined.get(),
        skipped_bytes: scan.skipped.get(),
        issued_bytes: scan.examined.get(),
        processed_bytes: scan.processed.get(),
        errors: scan.errors.get(),
        pass_start_secs,
        pass_paused_secs: 0,
        pass_examined_bytes: pass_bytes,
        pass_issued_bytes: pass_bytes,
    }))
}

/// One that is paused has been so since the pool was opened, as far as is known.
#[doc(alias = "spa_scan_get_stats")]
fn error_scrub_status(pool: &Spa) -> Option<ErrorScrubStatus> {
    let scrub = pool.error_scrub()?;
    let is_paused = pool.is_error_scrub_paused();
    Some(ErrorScrubStatus {
        state: match scrub.state.get() {
            0 => return None,
            DSS_FINISHED => ScanState::Finished,
            DSS_CANCELED => ScanState::Canceled,
            _ => ScanState::Scanning,
        },
        start_secs: scrub.start_time.get(),
        end_secs: scrub.end_time.get(),
        paused_secs: is_paused.then(|| rt::wall_clock().secs),
        examined: scrub.examined.get(),
        left: scrub.to_examine.get(),
    })
}
