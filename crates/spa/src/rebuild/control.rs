//! Beginning and ending rebuilds, and what is shown of them.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_rebuild.c` (`vdev_rebuild_initiate_sync`, `vdev_rebuild_reset_sync`,
//! `vdev_rebuild_complete_sync`, `vdev_rebuild_cancel_sync`, `vdev_rebuild_clear_sync`), `module/zfs/spa.c`
//! (`spa_vdev_attach`).

use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result, VdevId};
use dmu::Tx;
use phys::feature::DEVICE_REBUILD;
use phys::scan::{RebuildPhys, VDEV_REBUILD_CANCELED, VDEV_REBUILD_COMPLETE};
use scan::Kind;
use vdev::Vdev;

use super::{Rebuild, RebuildProgress, RebuildState};
use crate::FeatureState;
use crate::spa::{Inner, Spa};

/// How a device that is attached gets what the others have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resilver {
    /// Block by block, by their checksums.
    Healing,
    /// By what is allocated, and a scrub afterwards.
    Sequential,
}

impl Resilver {
    /// Whether another resilver hinders this one.
    ///
    /// # Errors
    /// `Exists` if so; `Unsupported` for a sequential one without the feature.
    #[doc(alias = "spa_vdev_attach")]
    pub(crate) fn check(self, spa: &Spa) -> Result<()> {
        match self {
            Resilver::Healing => spa.check_no_rebuild(),
            Resilver::Sequential => {
                if spa.feature(DEVICE_REBUILD) == FeatureState::Disabled {
                    let text = "the feature device_rebuild is not enabled";
                    return Err(Error::new(ErrorKind::Unsupported, text));
                }
                if spa.inner.is_resilver_due() {
                    return Err(Error::new(ErrorKind::Exists, "currently resilvering"));
                }
                Ok(())
            }
        }
    }

    /// Whether devices can be attached in this way beside one of a top-level vdev.
    ///
    /// # Errors
    /// `Unsupported`.
    pub(crate) fn check_beside(self, top: &Vdev) -> Result<()> {
        if self == Resilver::Healing || top.can_rebuild() {
            return Ok(());
        }
        let text = format!("a {} has no sequential resilver", top.kind().word());
        Err(Error::new(ErrorKind::Unsupported, text))
    }
}

impl Inner {
    /// A device has joined a vdev: a rebuild begins there, or begins anew.
    #[doc(alias = "vdev_rebuild")]
    pub(crate) fn begin_rebuild(&self, vdev: VdevId, device: &Vdev, tx: &Tx) -> Result<()> {
        device.update(|config| config.rebuild_txg = tx.txg().0);
        self.cancel_scrub(tx)?;
        let top = self.tree.top(vdev).expect("a device was attached there");
        let mut rebuild = self.rebuilds.get(vdev).unwrap_or_default();
        let what = if rebuild.is_active() {
            "reset"
        } else {
            self.features().adjust(DEVICE_REBUILD, 1, tx)?;
            rebuild.phys = RebuildPhys::default();
            rebuild.phys.start_time.set(rt::wall_clock().secs);
            "started"
        };
        let bytes = self.space.vdev_stats(vdev)?.alloc;
        rebuild.restart(span_of(&top), bytes, tx.txg().0);
        self.tree.set_rebuilding(true);
        self.put_rebuild(vdev, &top, rebuild, what, tx)
    }

    /// The rebuild has passed everything.
    #[doc(alias = "vdev_rebuild_complete_sync")]
    pub(super) fn complete_rebuild(
        &self,
        vdev: VdevId,
        mut rebuild: Rebuild,
        tx: &Tx,
    ) -> Result<()> {
        let top = self.tree.top(vdev).expect("it is being rebuilt");
        let max = rebuild.phys.max_txg.get();
        for device in top.devices() {
            let leaf = device.leaf();
            let takes_part = device.config().rebuild_txg != 0 && leaf.is_usable();
            let span = leaf.dtl().span();
            let is_covered = span.is_some_and(|(_, last)| last.0 < max);
            if takes_part && is_covered && rebuild.phys.errors.get() == 0 {
                leaf.clear_dtl(&(0..max));
            }
        }
        self.end_rebuild(vdev, &top, VDEV_REBUILD_COMPLETE, &mut rebuild, tx)?;
        self.put_rebuild(vdev, &top, rebuild, "complete", tx)?;
        if !self.rebuilds.is_any_active() && self.core.scan().running().is_none() {
            self.begin_scan(Kind::Scrub, tx)?;
            self.groups.kick();
        }
        Ok(())
    }

    /// There is nothing to be rebuilt any more.
    #[doc(alias = "vdev_rebuild_cancel_sync")]
    pub(super) fn cancel_rebuild(&self, vdev: VdevId, mut rebuild: Rebuild, tx: &Tx) -> Result<()> {
        let top = self.tree.top(vdev).expect("it was being rebuilt");
        self.end_rebuild(vdev, &top, VDEV_REBUILD_CANCELED, &mut rebuild, tx)?;
        self.put_rebuild(vdev, &top, rebuild, "canceled", tx)
    }

    fn end_rebuild(
        &self,
        vdev: VdevId,
        top: &Arc<Vdev>,
        state: u64,
        rebuild: &mut Rebuild,
        tx: &Tx,
    ) -> Result<()> {
        for device in top.devices() {
            device.update(|config| config.rebuild_txg = 0);
        }
        rebuild.note_time();
        rebuild.phys.state.set(state);
        rebuild.phys.end_time.set(rt::wall_clock().secs);
        let is_other = |other: &Rebuild| other.is_active();
        let others = self.rebuilds.vdevs(&is_other);
        if others.iter().all(|other| *other == vdev) {
            self.tree.set_rebuilding(false);
        }
        self.release_feature(tx)
    }

    fn release_feature(&self, tx: &Tx) -> Result<()> {
        let features = self.features();
        if features
            .count(DEVICE_REBUILD)
            .is_some_and(|count| count > 0)
        {
            features.adjust(DEVICE_REBUILD, -1, tx)?;
        }
        Ok(())
    }

    fn put_rebuild(
        &self,
        vdev: VdevId,
        top: &Vdev,
        rebuild: Rebuild,
        what: &str,
        tx: &Tx,
    ) -> Result<()> {
        rebuild.write(&self.mos, ObjectId(top.config().top_zap), tx)?;
        self.rebuilds.put(vdev, rebuild);
        self.tree_changed();
        let text = format!("vdev_id={vdev} vdev_guid={} {what}", top.guid().0);
        self.core.log_internal("rebuild", &text, tx);
        Ok(())
    }

    /// A resilver begins: what is shown is no longer how the last rebuilds ended.
    #[doc(alias = "vdev_rebuild_clear_sync")]
    pub(crate) fn clear_rebuilds(&self, tx: &Tx) -> Result<()> {
        for vdev in self.rebuilds.vdevs(&|rebuild| rebuild.state().is_some()) {
            let top = self.tree.top(vdev).filter(|top| top.kind().is_concrete());
            let rebuild = self.rebuilds.get(vdev).unwrap_or_default();
            let Some(top) = top.filter(|_| !rebuild.is_active()) else {
                continue;
            };
            let none = Rebuild::default();
            none.write(&self.mos, ObjectId(top.config().top_zap), tx)?;
            self.rebuilds.put(vdev, none);
        }
        Ok(())
    }

    /// A top-level vdev is gone.
    pub(crate) fn forget_rebuild(&self, vdev: VdevId, tx: &Tx) -> Result<()> {
        let Some(rebuild) = self.rebuilds.get(vdev) else {
            return Ok(());
        };
        self.rebuilds.put(vdev, Rebuild::default());
        self.rebuilds.forget(vdev);
        match rebuild.is_active() {
            true => self.release_feature(tx),
            false => Ok(()),
        }
    }
}

/// `vrp_min_txg` and `vrp_max_txg`: what devices of a vdev that are there lack.
#[doc(alias = "vdev_resilver_needed")]
fn span_of(top: &Arc<Vdev>) -> (u64, u64) {
    let devices = top.devices();
    let usable = devices.iter().filter(|device| device.leaf().is_usable());
    let spans = usable.filter_map(|device| device.leaf().dtl().span());
    let (mut min, mut max) = (u64::MAX, 0);
    for (first, last) in spans {
        (min, max) = (min.min(first.0.saturating_sub(1)), max.max(last.0 + 1));
    }
    (min.min(max), max)
}

/// The records may lie.
fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

impl Spa {
    /// The rebuilds that go on, and the last ones.
    #[must_use]
    #[doc(alias = "vdev_rebuild_get_stats")]
    pub fn rebuilds(&self) -> Vec<RebuildProgress> {
        let all = self.inner.rebuilds.all.lock();
        let is_there = |vdev: VdevId| {
            let top = self.inner.tree.top(vdev);
            top.is_some_and(|top| top.kind().is_concrete())
        };
        let shown = all.iter().filter(|(vdev, _)| is_there(**vdev));
        shown
            .filter_map(|(vdev, rebuild)| rebuild.progress(*vdev))
            .collect()
    }

    /// Whether any vdev is being rebuilt.
    #[must_use]
    #[doc(alias = "vdev_rebuild_active")]
    pub fn is_rebuilding(&self) -> bool {
        self.inner.rebuilds.is_any_active()
    }

    /// Waits until nothing is rebuilt. `see` is called with the bytes that were passed, and all, after each txg; when
    /// it returns false, waiting ends.
    ///
    /// # Errors
    /// `Suspended`.
    #[doc(alias = "spa_wait")]
    pub fn wait_rebuild(&self, see: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        while self.is_rebuilding() && !self.is_readonly() {
            let all = self.rebuilds();
            let active = || all.iter().filter(|each| each.state == RebuildState::Active);
            let done = sum(active().map(|each| each.phys.bytes_scanned.get()));
            if !see(done, sum(active().map(|each| each.phys.bytes_est.get()))) {
                return Ok(());
            }
            let txg = self.inner.groups.synced_txg();
            self.inner.groups.wait_unhurried(txg.next())?;
        }
        self.wait_end_written()?;
        self.finish_replacements()
    }

    /// Fails while any vdev is being rebuilt.
    pub(crate) fn check_no_rebuild(&self) -> Result<()> {
        if self.is_rebuilding() {
            let text = "currently sequentially resilvering";
            return Err(Error::new(ErrorKind::Exists, text));
        }
        Ok(())
    }
}
