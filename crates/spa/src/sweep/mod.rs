//! Going over the free space of devices: overwriting it (`zpool initialize`), or telling the device that it is not
//! needed (`zpool trim`).
//!
//! # What it is
//! A device whose free space is gone over is *swept*. The metaslabs of its top-level vdev are taken in order; while
//! one is, nothing is allocated there ([`metaslab::Held`]); what it has free is translated to the places of the device
//! ([`vdev::Vdev::translate`]), and these are written to or deleted piece by piece, in ascending order. Each txg does a
//! slice of this, as of a scan ([`slice`](mod@slice)). How far it is, is known by one offset ([`record`]).
//!
//! # On disk
//! Entries in the ZAP of the leaf: state, time of the last change, the next offset with the labels before it, and for a
//! trim its options. Nothing of what is trimmed by itself ([`auto`]).
//!
//! # Invariants
//! 1. What is written to or deleted was neither allocated in the txg that is being synced nor in the two before it, and
//!    is not allocated while that goes on.
//! 2. Below the offset in the ZAP everything that was free when the sweep was there was swept, but for ranges that a
//!    trim takes for too short.
//!
//! # Crash argument
//! What is swept is free in the last three uberblocks, so none of them leads there, whether the sweep was noted or not.
//! What follows in the same place is written after the device has acknowledged the sweep, in the same queue or cache.
//! The offset reaches the disk with the uberblock, before which all devices are flushed.
//!
//! # Concurrency
//! A slice runs in the sync thread, in the first pass, and lets all metaslabs go before it ends; it allocates nothing
//! meanwhile. An allocation that finds nothing elsewhere waits for it, which ends the slice. The lock of the state is a
//! leaf.
//!
//! # Why not simpler
//! OpenZFS has a thread for each device, which waits for a txg before a metaslab is used again, since its commands are
//! not waited for one by one. Here they are.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_initialize.c`, `module/zfs/vdev_trim.c`.

mod auto;
mod control;
mod progress;
mod record;
mod slice;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{ObjectId, Result, VdevId};
use dmu::Objset;
use rt::Mutex;
use vdev::{Vdev, VdevTree};

use crate::spa::Inner;

pub(crate) use auto::AUTOTRIM;
pub use control::{SweepAction, SweepRefusal, TrimOptions};
pub use progress::SweepProgress;
use record::Record;
pub use record::{SweepKind, SweepState};

/// How devices are swept.
#[derive(Clone, Debug)]
pub struct SweepSettings {
    /// `zfs_initialize_chunk_size`: bytes of each write.
    pub fill_max_bytes: u64,
    /// `zfs_trim_extent_bytes_max`: bytes of each delete, at most.
    pub delete_max_bytes: u64,
    /// `zfs_trim_extent_bytes_min`: ranges that are shorter are not deleted, in bytes.
    pub delete_min_bytes: u64,
    /// `zfs_trim_txg_batch`: each txg deletes what was freed in one of so many metaslabs, with `autotrim=on`.
    pub auto_batch: u64,
}

impl Default for SweepSettings {
    fn default() -> Self {
        SweepSettings {
            fill_max_bytes: 1 << 20,
            delete_max_bytes: 128 << 20,
            delete_min_bytes: 32 << 10,
            auto_batch: 32,
        }
    }
}

/// A sweep is known by the ZAP of its leaf: guids change when devices are attached and detached.
type Key = (ObjectId, SweepKind);

/// The sweeps of a pool.
#[derive(Default)]
pub(crate) struct Sweeps {
    /// All that were ever begun and are not forgotten.
    records: Mutex<BTreeMap<Key, Record>>,
    /// Whether any is active.
    is_any_active: AtomicBool,
    /// The txg in which the last one was begun; 0 if that was before the pool was opened.
    since: AtomicU64,
    /// When the last slice ended.
    slice_ended_ns: AtomicU64,
    /// When the last slice of what is deleted by itself ended.
    auto_ended_ns: AtomicU64,
}

impl Sweeps {
    /// Reads the sweeps of all devices. After the vdev tree.
    pub(crate) fn load(&self, mos: &Arc<Objset>, tree: &VdevTree) -> Result<()> {
        for device in tree.devices() {
            let zap = ObjectId(device.config().leaf_zap);
            if zap == ObjectId(0) {
                continue;
            }
            for kind in SweepKind::ALL {
                if let Some(record) = Record::read(mos, zap, kind)? {
                    self.put((zap, kind), Some(record));
                }
            }
        }
        Ok(())
    }

    /// A ZAP is destroyed, with what it says: another device may get its number.
    pub(crate) fn forget(&self, zap: ObjectId) {
        for kind in SweepKind::ALL {
            self.put((zap, kind), None);
        }
    }

    fn get(&self, key: Key) -> Option<Record> {
        self.records.lock().get(&key).cloned()
    }

    fn put(&self, key: Key, record: Option<Record>) {
        let mut records = self.records.lock();
        match record {
            Some(record) => records.insert(key, record),
            None => records.remove(&key),
        };
        let is_active = |record: &Record| record.state == SweepState::Active;
        let is_any = records.values().any(is_active);
        self.is_any_active.store(is_any, Ordering::Relaxed);
    }

    fn active(&self) -> Vec<(Key, Record)> {
        let records = self.records.lock();
        let active = records
            .iter()
            .filter(|(_, record)| record.state == SweepState::Active);
        active.map(|(key, record)| (*key, record.clone())).collect()
    }
}

/// A device, and where it is.
struct Swept {
    id: VdevId,
    top: Arc<Vdev>,
    device: Arc<Vdev>,
}

impl Swept {
    /// Whether a sweep of this device can go on now.
    fn is_ready(&self, kind: SweepKind, record: &Record) -> bool {
        let can = match kind {
            SweepKind::Initialize => true,
            SweepKind::Trim => self.device.leaf().can_delete() && !record.secure,
        };
        let config = self.top.config();
        can && self.device.leaf().is_usable() && !config.expanding && !config.removing
    }
}

impl Inner {
    /// The device with that ZAP, if it is still part of the pool.
    fn swept(&self, zap: ObjectId) -> Option<Swept> {
        let tops = self.tree.tops().into_iter().enumerate();
        tops.into_iter().find_map(|(n, top)| {
            let mut devices = top.devices().into_iter();
            let device = devices.find(|device| device.config().leaf_zap == zap.0)?;
            let id = VdevId(n as u64);
            Some(Swept { id, top, device })
        })
    }
}
