//! The table of mounts.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Error, ErrorKind, Guid, ObjectId, Result};
use dsl::DslDataset;
use fuse::Mounted;
use rt::Mutex;
use zpl::mount::Mount;

use super::{Given, MountedDataset};
use crate::open::OpenPool;

/// How often a mount in use is tried again, and how long to wait in between, in ns: a command that has just ended may
/// still have its folder there.
const BUSY_TRIES: u32 = 10;
const BUSY_WAIT_NS: u64 = 10_000_000;
/// The same when all is to be closed: five seconds for those who use the mounts to end.
const CLOSE_TRIES: u32 = 100;
const CLOSE_WAIT_NS: u64 = 50_000_000;

/// Which data set it is: its pool, and its object there.
pub(super) type Identity = (Guid, ObjectId);

/// The mounts of a process, in the order in which they were made.
#[derive(Default)]
pub(crate) struct MountTable {
    entries: Mutex<Vec<Arc<Entry>>>,
    /// Those that are being mounted.
    begun: Mutex<BTreeSet<Identity>>,
}

pub(super) struct Entry {
    // Declared in the order in which they are given up.
    pub(super) mounted: Mounted,
    pub(super) files: Arc<Mount>,
    pub(super) pool: OpenPool,
    pub(super) given: Mutex<Given>,
    pub(super) allows_others: bool,
    /// Mounted at a directory and with options that are not those of its properties (`ashift mount`): nothing moves
    /// it.
    pub(super) is_apart: bool,
}

impl Entry {
    fn identity(&self) -> Identity {
        identity(&self.pool, self.files.dataset())
    }

    pub(super) fn shown(&self) -> Option<MountedDataset> {
        Some(MountedDataset {
            name: self.pool.parts().dsl().name_of(self.files.dataset()).ok()?,
            directory: self.mounted.directory().to_owned(),
            given: self.given.lock().clone(),
        })
    }
}

pub(super) fn identity(pool: &OpenPool, dataset: &DslDataset) -> Identity {
    (pool.guid(), dataset.object())
}

impl MountTable {
    /// What is mounted now.
    pub(super) fn entries(&self) -> Vec<Arc<Entry>> {
        let mut entries = self.entries.lock();
        let ended: Vec<Arc<Entry>> = entries
            .extract_if(.., |entry| !entry.mounted.is_mounted())
            .collect();
        let left = entries.clone();
        drop(entries);
        // They close file systems, which may take long.
        drop(ended);
        left
    }

    /// Gives up what was unmounted from outside.
    pub(crate) fn forget_ended(&self) {
        drop(self.entries());
    }

    /// Those that are mounted by `zfs mount` and its kin.
    pub(super) fn own(&self) -> impl Iterator<Item = Arc<Entry>> {
        let entries = self.entries().into_iter();
        entries.filter(|entry| !entry.is_apart)
    }

    /// One that is mounted by `zfs mount` and its kin.
    pub(super) fn find(&self, identity: Identity) -> Option<Arc<Entry>> {
        self.own().find(|entry| entry.identity() == identity)
    }

    /// The mount that was shown so.
    pub(super) fn shown_as(&self, mounted: &MountedDataset) -> Option<Arc<Entry>> {
        let is_there = |entry: &Arc<Entry>| entry.mounted.directory() == mounted.directory;
        let mut there = self.own().filter(is_there);
        there.find(|entry| {
            entry
                .shown()
                .is_some_and(|shown| shown.name == mounted.name)
        })
    }

    /// Reserves a data set that is to be mounted.
    pub(super) fn begin(&self, identity: Identity) -> Result<Begun<'_>> {
        // What has ended is closed before anything is locked.
        self.forget_ended();
        let mut begun = self.begun.lock();
        if begun.contains(&identity) || self.find(identity).is_some() {
            return Err(Error::new(ErrorKind::Busy, "it is mounted"));
        }
        begun.insert(identity);
        drop(begun);
        Ok(Begun {
            table: self,
            identity,
        })
    }

    pub(super) fn add(&self, entry: Entry) -> Arc<Entry> {
        let entry = Arc::new(entry);
        self.entries.lock().push(Arc::clone(&entry));
        entry
    }

    /// Gives up one, which unmounts it when nothing else uses it.
    pub(super) fn give_up(&self, entry: &Arc<Entry>) {
        self.entries
            .lock()
            .retain(|other| !Arc::ptr_eq(other, entry));
    }

    /// Unmounts one; what is in use for a moment is tried again.
    pub(super) fn unmount(&self, entry: &Arc<Entry>) -> Result<()> {
        self.unmount_within(entry, BUSY_TRIES, BUSY_WAIT_NS)
    }

    fn unmount_within(&self, entry: &Arc<Entry>, tries: u32, wait_ns: u64) -> Result<()> {
        let mut tried = 1;
        while let Err(error) = entry.mounted.unmount(false) {
            if error.kind() != ErrorKind::Busy || tried >= tries {
                return Err(error);
            }
            tried += 1;
            rt::sleep_ns(wait_ns);
        }
        self.give_up(entry);
        Ok(())
    }

    /// Unmounts everything; what stays in use is taken from those who use it.
    pub(crate) fn close(&self) {
        let mut tries = CLOSE_TRIES;
        // What was mounted last may be over or below what was mounted before.
        for entry in self.entries().into_iter().rev() {
            if self.unmount_within(&entry, tries, CLOSE_WAIT_NS).is_err() {
                // They have had their time.
                tries = 1;
                let _ = entry.mounted.unmount(true);
            }
        }
        self.entries.lock().clear();
    }
}

/// A data set that is being mounted.
pub(super) struct Begun<'t> {
    table: &'t MountTable,
    identity: Identity,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.table.begun.lock().remove(&self.identity);
    }
}
