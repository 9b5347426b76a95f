//! Beginning, suspending and cancelling sweeps, and waiting for them.
//!
//! # Source
//! OpenZFS `module/zfs/spa.c` (`spa_vdev_initialize_impl`, `spa_vdev_trim_impl`), `module/zfs/vdev_trim.c`
//! (`vdev_trim_change_state`).

use std::sync::atomic::Ordering;

use base::{Guid, ObjectId, Result};
use dmu::Tx;

use super::Swept;
use super::record::{Record, SweepKind, SweepState};
use crate::spa::{Inner, Spa};

/// What is to be done with a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "pool_initialize_func_t")]
#[doc(alias = "pool_trim_func_t")]
pub enum SweepAction {
    /// Begin it, or go on with it.
    Start(TrimOptions),
    /// Give it up.
    Cancel,
    /// Wait until it is started again.
    Suspend,
    /// Forget it, so that it begins anew.
    Forget,
}

/// The options of a trim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrimOptions {
    /// Bytes per second; 0 for as many as there can be.
    pub rate: u64,
    /// What is deleted must not be readable any more.
    pub secure: bool,
}

/// Why it was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepRefusal {
    /// `ENODEV`: there is no such device.
    NoDevice,
    /// `EINVAL`, `EROFS`: it is not a device that can be written to.
    BadDevice,
    /// `EBUSY`: it goes on already, or the vdev is being changed.
    Busy,
    /// `ESRCH`: it does not go on.
    NotActive,
    /// `EOPNOTSUPP`: the device cannot do it.
    Unsupported,
}

impl Spa {
    /// Does something with the sweeps of devices; returns for which it was refused.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`.
    #[doc(alias = "spa_vdev_initialize")]
    #[doc(alias = "spa_vdev_trim")]
    pub fn sweep(
        &self,
        kind: SweepKind,
        devices: &[Guid],
        action: SweepAction,
    ) -> Result<Vec<(Guid, SweepRefusal)>> {
        let devices = devices.to_vec();
        self.in_sync(move |inner, tx| {
            let mut refused = Vec::new();
            for guid in devices {
                if let Err(refusal) = inner.change_sweep(kind, guid, action, tx)? {
                    refused.push((guid, refusal));
                }
            }
            Ok(refused)
        })
    }

    /// Whether a sweep of that kind goes on here, of any of these devices.
    #[must_use]
    pub fn is_sweeping(&self, kind: SweepKind, devices: Option<&[Guid]>) -> bool {
        !self.is_readonly() && self.inner.going_on(kind, devices).next().is_some()
    }

    /// Waits until no sweep of that kind goes on, of these devices or of any. `see` is called after each slice; when it
    /// returns false, waiting ends.
    ///
    /// # Errors
    /// `Suspended`.
    #[doc(alias = "spa_wait")]
    pub fn wait_sweep(
        &self,
        kind: SweepKind,
        devices: Option<&[Guid]>,
        see: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        loop {
            let waits = self.inner.going_on(kind, devices).map(|r| r.wait_ns());
            let Some(wait_ns) = waits.min().filter(|_| !self.is_readonly()) else {
                break;
            };
            if !see() {
                return Ok(());
            }
            if wait_ns > 0 {
                rt::sleep_ns(wait_ns.min(1_000_000_000));
            }
            let txg = self.inner.groups.synced_txg();
            self.inner.groups.kick();
            self.inner.groups.wait_unhurried(txg.next())?;
        }
        self.wait_end_written()
    }
}

impl Inner {
    /// Active sweeps that nothing hinders.
    fn going_on<'a>(
        &'a self,
        kind: SweepKind,
        devices: Option<&'a [Guid]>,
    ) -> impl Iterator<Item = Record> + 'a {
        let active = self.sweeps.active().into_iter();
        active.filter_map(move |((zap, each), record)| {
            let swept = self.swept(zap).filter(|_| each == kind)?;
            let is_meant = devices.is_none_or(|guids| guids.contains(&swept.device.guid()));
            (is_meant && swept.is_ready(kind, &record)).then_some(record)
        })
    }

    fn find_swept(&self, guid: Guid) -> std::result::Result<(ObjectId, Swept), SweepRefusal> {
        let found = self.tree.find(guid).ok_or(SweepRefusal::NoDevice)?;
        let zap = match found.kind().is_device() {
            true => ObjectId(found.config().leaf_zap),
            false => return Err(SweepRefusal::BadDevice),
        };
        let is_own = found.kind().has_labels() && zap != ObjectId(0);
        let swept = self.swept(zap).filter(|_| is_own);
        let swept = swept.ok_or(SweepRefusal::BadDevice)?;
        if !found.leaf().is_usable() {
            return Err(SweepRefusal::BadDevice);
        }
        Ok((zap, swept))
    }

    fn change_sweep(
        &self,
        kind: SweepKind,
        guid: Guid,
        action: SweepAction,
        tx: &Tx,
    ) -> Result<std::result::Result<(), SweepRefusal>> {
        let (zap, swept) = match self.find_swept(guid) {
            Ok(found) => found,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let before = self.sweeps.get((zap, kind));
        let after = match self.next_record(kind, &swept, before.clone(), action) {
            Ok(after) => after,
            Err(refusal) => return Ok(Err(refusal)),
        };
        match &after {
            Some(record) => {
                record.write(&self.mos, zap, kind, tx)?;
                self.log_sweep(&swept.device, kind, record.state, tx);
                let was_suspended = before
                    .as_ref()
                    .is_some_and(|record| record.state == SweepState::Suspended);
                let name = match record.state {
                    SweepState::Active if was_suspended => "trim_resume",
                    SweepState::Active => "trim_start",
                    SweepState::Suspended => "trim_suspend",
                    SweepState::Canceled => "trim_cancel",
                    SweepState::Complete => "trim_finish",
                };
                self.notify_trim(&swept.device, kind, name);
            }
            None if before.is_some() => {
                Record::forget(&self.mos, zap, kind, tx)?;
                let text = format!("vdev={}", swept.device.name());
                self.core.log_internal("uninitialize", &text, tx);
            }
            None => {}
        }
        self.sweeps.put((zap, kind), after);
        if matches!(action, SweepAction::Start(_)) {
            self.sweeps.since.store(tx.txg().0, Ordering::Relaxed);
        }
        Ok(Ok(()))
    }

    fn next_record(
        &self,
        kind: SweepKind,
        swept: &Swept,
        before: Option<Record>,
        action: SweepAction,
    ) -> std::result::Result<Option<Record>, SweepRefusal> {
        let is_secure = matches!(action, SweepAction::Start(options) if options.secure);
        // No provider here knows how to delete securely.
        if kind == SweepKind::Trim && (is_secure || !swept.device.leaf().can_delete()) {
            return Err(SweepRefusal::Unsupported);
        }
        let is_changing = swept.top.config().removing || swept.top.config().expanding;
        let state = before.as_ref().map(|record| record.state);
        let is_active = state == Some(SweepState::Active);
        let next = |state| {
            let mut record = before.clone().expect("it is there, in a state");
            record.change(state);
            Ok(Some(record))
        };
        match action {
            SweepAction::Start(_) if is_active || is_changing => Err(SweepRefusal::Busy),
            SweepAction::Start(options) => Ok(Some(started(kind, before, options))),
            SweepAction::Cancel if is_active || state == Some(SweepState::Suspended) => {
                next(SweepState::Canceled)
            }
            SweepAction::Suspend if is_active => next(SweepState::Suspended),
            SweepAction::Cancel | SweepAction::Suspend => Err(SweepRefusal::NotActive),
            SweepAction::Forget if is_active => Err(SweepRefusal::Busy),
            SweepAction::Forget => Ok(None),
        }
    }
}

/// A sweep that begins or goes on. An initialization that was cancelled or is complete goes on where it was, a trim
/// begins anew.
fn started(kind: SweepKind, before: Option<Record>, options: TrimOptions) -> Record {
    let begins_anew = |record: &Record| {
        let has_ended = matches!(record.state, SweepState::Complete | SweepState::Canceled);
        kind == SweepKind::Trim && has_ended
    };
    let kept = before.filter(|record| !begins_anew(record));
    let mut record = kept.unwrap_or_else(Record::new);
    record.change(SweepState::Active);
    (record.metaslab, record.paced_since_ns, record.paced_bytes) = (0, None, 0);
    if options.rate != 0 {
        record.rate = options.rate;
    }
    record
}
