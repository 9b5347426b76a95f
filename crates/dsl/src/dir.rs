//! Directories: the tree of names, and the space used by each subtree.
//!
//! # What it is
//! A directory is a node of the tree that `zfs list` shows. It has a name, children, properties,
//! quota and reservation, at most one head dataset, and the account of everything at and below it.
//! (The hidden directories `$MOS`, `$FREE` and `$ORIGIN` are children of the root.)
//!
//! # On disk
//! An object of type DSL_DIR whose bonus is a `dsl_dir_phys_t`; children in a ZAP by name,
//! properties in another. The object itself becomes a ZAP when a field is needed that the bonus has
//! no room for.
//!
//! # Invariants
//! 1. used_bytes = sum of used_breakdown.
//! 2. For every child: `used_breakdown[CHILD] + [CHILD_RSRV]` of the parent includes
//!    `max(used, reserved)` of the child.
//!
//! # Concurrency
//! The fields change in syncing context only, and are written to the MOS when the txg's tasks are
//! done. A directory's lock is a leaf lock: no other lock is taken while it is held.
//!
//! # Source
//! OpenZFS module/zfs/dsl_dir.c, include/sys/dsl_dir.h @be7657e3

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base::{ObjectId, Txg};
use rt::{Mutex, MutexGuard};

use crate::fields::DirFields;

/// `dd_used_t`: what part of a directory's space is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[doc(alias = "dd_used_t")]
pub enum Used {
    /// `DD_USED_HEAD`: what the head references and no snapshot does.
    Head = 0,
    /// `DD_USED_SNAP`: what only snapshots reference.
    Snap = 1,
    /// `DD_USED_CHILD`: what the children use.
    Child = 2,
    /// `DD_USED_CHILD_RSRV`: what the children have reserved and do not use yet.
    ChildRsrv = 3,
    /// `DD_USED_REFRSRV`: what the head has reserved (refreservation) and does not use yet.
    RefRsrv = 4,
}

/// Number of kinds of [`Used`] (`DD_USED_NUM`).
pub(crate) const USED_KINDS: usize = 5;

/// An open directory.
#[doc(alias = "dsl_dir_t")]
pub struct DslDir {
    object: ObjectId,
    /// dd_crypto_obj
    key_object: Mutex<Option<ObjectId>>,
    state: Mutex<DirState>,
}

/// What changes in an open directory.
pub(crate) struct DirState {
    /// dd_phys
    pub(crate) fields: DirFields,
    /// dd_myname: the last component
    pub(crate) name: String,
    /// dd_parent
    pub(crate) parent: Option<Arc<DslDir>>,
    /// dd_origin_txg: creation of the snapshot that the head was cloned from
    pub(crate) origin_txg: u64,
    /// dd_space_towrite: bytes that transactions may add, for each txg not synced yet
    pub(crate) in_flight: BTreeMap<Txg, u64>,
}

impl DirState {
    /// Bytes that transactions not synced yet may add.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.values().sum()
    }

    /// `parent_delta`: how much a change of the used bytes changes the charge of the parent, which
    /// has already been charged for the reservation.
    pub(crate) fn parent_delta(&self, used: u64, change: i64) -> i64 {
        let charged = |used: u64| used.max(self.fields.reserved).cast_signed();
        charged(used.saturating_add_signed(change)).wrapping_sub(charged(used))
    }
}

impl DslDir {
    pub(crate) fn new(object: ObjectId, key_object: Option<ObjectId>, state: DirState) -> DslDir {
        DslDir {
            object,
            key_object: Mutex::new(key_object),
            state: Mutex::new(state),
        }
    }

    /// dd_object
    #[must_use]
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// The object with its key, if it is encrypted.
    pub(crate) fn key_object(&self) -> Option<ObjectId> {
        *self.key_object.lock()
    }

    pub(crate) fn set_key_object(&self, object: ObjectId) {
        *self.key_object.lock() = Some(object);
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, DirState> {
        self.state.lock()
    }

    /// A copy of its on-disk fields.
    #[must_use]
    pub fn fields(&self) -> DirFields {
        self.state().fields.clone()
    }

    /// dd_parent; `None` for the root directory.
    #[must_use]
    pub fn parent(&self) -> Option<Arc<DslDir>> {
        self.state().parent.clone()
    }

    /// Itself and its ancestors, root last.
    pub(crate) fn lineage(self: &Arc<DslDir>) -> impl Iterator<Item = Arc<DslDir>> + use<> {
        std::iter::successors(Some(self.clone()), |dd| dd.parent())
    }

    /// The full name, with the pool's name in front.
    #[must_use]
    #[doc(alias = "dsl_dir_name")]
    pub fn name(self: &Arc<DslDir>) -> String {
        let mut names: Vec<String> = self.lineage().map(|dd| dd.state().name.clone()).collect();
        names.reverse();
        names.join("/")
    }
}

impl fmt::Debug for DslDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DslDir({})", self.object)
    }
}
