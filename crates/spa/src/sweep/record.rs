//! What the ZAP of a leaf says of a sweep.
//!
//! # On disk
//! The next offset includes the 4 MiB before the first byte that can be allocated, as OpenZFS writes it. Where it
//! compares its own offset, read or noted since, it takes it without them, and so leaves out up to 4 MiB where it goes
//! on and at the beginning of each further metaslab. Here they are subtracted.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_initialize.c` (`vdev_initialize_zap_update_sync`, `vdev_initialize_zap_remove_sync`,
//! `vdev_initialize_restart`), `module/zfs/vdev_trim.c` (`vdev_trim_zap_update_sync`, `vdev_trim_load`).

use std::sync::Arc;

use base::{Error, ObjectId, Result};
use dmu::{Objset, Tx};
use phys::label::LABEL_START_SIZE;
use phys::pool_names as name;
use zap::Zap;

/// `zfs_initialize_value`: what free space is overwritten with.
const PATTERN: u64 = 0xdead_beef_dead_beee;

/// What is done with free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SweepKind {
    /// It is overwritten.
    Initialize,
    /// The device is told that it is not needed.
    Trim,
}

impl SweepKind {
    pub(super) const ALL: [SweepKind; 2] = [SweepKind::Initialize, SweepKind::Trim];

    fn names(self) -> [&'static str; 3] {
        match self {
            SweepKind::Initialize => [
                name::INITIALIZE_STATE,
                name::INITIALIZE_ACTION_TIME,
                name::INITIALIZE_LAST_OFFSET,
            ],
            SweepKind::Trim => [
                name::TRIM_STATE,
                name::TRIM_ACTION_TIME,
                name::TRIM_LAST_OFFSET,
            ],
        }
    }

    /// As the history names it.
    pub(super) fn word(self) -> &'static str {
        match self {
            SweepKind::Initialize => "initialize",
            SweepKind::Trim => "trim",
        }
    }
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "vdev_initializing_state_t")]
#[doc(alias = "vdev_trim_state_t")]
pub enum SweepState {
    /// It goes on whenever the pool is open for writing.
    Active = 1,
    /// It was given up.
    Canceled = 2,
    /// It waits until it is begun again.
    Suspended = 3,
    /// It has ended.
    Complete = 4,
}

impl SweepState {
    fn from_raw(raw: u64) -> Option<SweepState> {
        use SweepState::{Active, Canceled, Complete, Suspended};
        let all = [Active, Canceled, Suspended, Complete];
        all.into_iter().find(|state| *state as u64 == raw)
    }

    /// As the history names it.
    pub(super) fn word(self) -> &'static str {
        match self {
            SweepState::Active => "activated",
            SweepState::Canceled => "canceled",
            SweepState::Suspended => "suspended",
            SweepState::Complete => "complete",
        }
    }
}

/// A sweep of one device.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) state: SweepState,
    /// When it came to be so, in seconds since 1970; a sweep that goes on again keeps when it was begun.
    pub(super) since_secs: u64,
    /// Everything before this is done, in bytes of the device without labels.
    pub(super) offset: u64,
    /// What is written.
    pub(super) pattern: u64,
    /// Bytes of deletes per second; 0 for as many as there can be.
    pub(super) rate: u64,
    /// Metaslabs that never had a block are left out.
    pub(super) partial: bool,
    /// What is deleted must not be readable any more.
    pub(super) secure: bool,
    /// The metaslab that is looked at next; not on disk.
    pub(super) metaslab: u64,
    /// Commands that failed, since the pool was opened.
    pub(super) errors: u64,
    /// When it was begun, or first went on here.
    pub(super) paced_since_ns: Option<u64>,
    /// Bytes since then.
    pub(super) paced_bytes: u64,
}

impl Record {
    /// One that has not done anything.
    pub(super) fn new() -> Record {
        Record {
            state: SweepState::Active,
            since_secs: 0,
            offset: 0,
            pattern: PATTERN,
            rate: 0,
            partial: false,
            secure: false,
            metaslab: 0,
            errors: 0,
            paced_since_ns: None,
            paced_bytes: 0,
        }
    }

    /// Changes the state.
    #[doc(alias = "vdev_initialize_change_state")]
    pub(super) fn change(&mut self, state: SweepState) {
        if self.state != SweepState::Suspended || self.since_secs == 0 {
            self.since_secs = rt::wall_clock().secs;
        }
        self.state = state;
    }

    /// `None` if there is none.
    pub(super) fn read(
        mos: &Arc<Objset>,
        leaf_zap: ObjectId,
        kind: SweepKind,
    ) -> Result<Option<Record>> {
        let zap = Zap::open(mos, leaf_zap)?;
        let [state, since, offset] = kind.names();
        let number = |name: &str| Ok::<_, Error>(zap.lookup_u64(name)?.unwrap_or(0));
        let raw = number(state)?;
        if raw == 0 {
            return Ok(None);
        }
        let unknown = || Error::corrupt(format!("leaf ZAP {leaf_zap}: {state} is {raw}"));
        let mut record = Record {
            state: SweepState::from_raw(raw).ok_or_else(unknown)?,
            since_secs: number(since)?,
            offset: number(offset)?.saturating_sub(LABEL_START_SIZE),
            ..Record::new()
        };
        match kind {
            SweepKind::Initialize => {
                let pattern = zap.lookup_u64(name::INITIALIZE_VALUE)?;
                record.pattern = pattern.unwrap_or(PATTERN);
            }
            SweepKind::Trim => {
                record.rate = number(name::TRIM_RATE)?;
                record.partial = number(name::TRIM_PARTIAL)? != 0;
                record.secure = number(name::TRIM_SECURE)? != 0;
            }
        }
        Ok(Some(record))
    }

    pub(super) fn write(
        &self,
        mos: &Arc<Objset>,
        leaf_zap: ObjectId,
        kind: SweepKind,
        tx: &Tx,
    ) -> Result<()> {
        let zap = Zap::open(mos, leaf_zap)?;
        let [state, since, offset] = kind.names();
        let next = match self.offset {
            0 => 0,
            offset => offset + LABEL_START_SIZE,
        };
        zap.update_u64(tx, offset, next)?;
        zap.update_u64(tx, since, self.since_secs)?;
        if kind == SweepKind::Trim {
            zap.update_u64(tx, name::TRIM_RATE, self.rate)?;
            zap.update_u64(tx, name::TRIM_PARTIAL, self.partial.into())?;
            zap.update_u64(tx, name::TRIM_SECURE, self.secure.into())?;
        }
        zap.update_u64(tx, state, self.state as u64)
    }

    /// Removes what the ZAP says of an initialization.
    pub(super) fn forget(
        mos: &Arc<Objset>,
        leaf_zap: ObjectId,
        kind: SweepKind,
        tx: &Tx,
    ) -> Result<()> {
        let zap = Zap::open(mos, leaf_zap)?;
        for name in kind.names().into_iter().chain([name::INITIALIZE_VALUE]) {
            zap.remove_if_present(tx, name)?;
        }
        Ok(())
    }
}
