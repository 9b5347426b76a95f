//! Data sets mounted on the host, by a process that keeps pools open.
//!
//! # What it is
//! The [`Keeper`](crate::Keeper) has the table of mounts: which data set, where, and with which options of its own. A mount
//! uses its pool as a session does, and its file system is the one that sessions have open, too.
//!
//! # Invariants
//! 1. A data set is mounted once at most.
//! 2. A mount that ended from outside (`umount`) leaves the table when it is next looked at.
//!
//! # Concurrency
//! The table is locked while it is read or changed, and not while the host mounts or unmounts: that may wait for a pool.
//!
//! # Source
//! OpenZFS lib/libzfs/libzfs_mount.c (`zfs_mount_at`, `zfs_add_options`, `unmount_one`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use dsl::{DslDataset, DslPool};
use fuse::{MountOptions, Mounted, Snapshots};
use rt::Mutex;
use zpl::AtimePolicy;
use zpl::mount::Mount;

use crate::held::Access;
use crate::keeper::Keeper;
use crate::open::OpenPool;
use crate::pools::Pools;

/// The device without which a host mounts nothing.
const DEVICE: &str = "/dev/fuse";
/// What allows users other than root to let others use their mounts.
const FUSE_CONF: &str = "/etc/fuse.conf";
/// How often a mount in use is tried again, and how long to wait in between, in ns: a command that has just ended may
/// still have its folder there.
const BUSY_TRIES: u32 = 10;
const BUSY_WAIT_NS: u64 = 10_000_000;
/// The same when all is to be closed: five seconds for those who use the mounts to end.
const CLOSE_TRIES: u32 = 100;
const CLOSE_WAIT_NS: u64 = 50_000_000;

/// Properties whose values a mount has instead of those of its data set: `mount -o`.
pub type Given = BTreeMap<&'static str, bool>;

/// A data set that is mounted.
#[derive(Debug, Clone)]
pub struct MountedDataset {
    /// Its name, as it is now.
    pub name: String,
    /// Where.
    pub directory: PathBuf,
    /// The properties that it was given for this mount.
    pub given: Given,
}

/// The mounts of a process, in the order in which they were made.
#[derive(Default)]
pub(crate) struct MountTable {
    entries: Mutex<Vec<Arc<Entry>>>,
    /// The names of those that are being mounted.
    begun: Mutex<BTreeSet<String>>,
}

struct Entry {
    // Declared in the order in which they are given up.
    mounted: Mounted,
    files: Arc<Mount>,
    pool: OpenPool,
    given: Mutex<Given>,
    allows_others: bool,
    /// Mounted at a directory and with options that are not those of its properties (`ashift mount`): nothing moves it.
    is_apart: bool,
}

impl Entry {
    fn shown(&self) -> Option<MountedDataset> {
        Some(MountedDataset {
            name: self.pool.parts().dsl().name_of(self.files.dataset()).ok()?,
            directory: self.mounted.directory().to_owned(),
            given: self.given.lock().clone(),
        })
    }
}

impl MountTable {
    /// What is mounted now.
    fn entries(&self) -> Vec<Arc<Entry>> {
        let mut entries = self.entries.lock();
        let ended: Vec<Arc<Entry>> = entries
            .extract_if(.., |entry| !entry.mounted.is_mounted())
            .collect();
        let entries = entries.clone();
        // They close file systems, which may take long.
        drop(ended);
        entries
    }

    /// Gives up what was unmounted from outside.
    pub(crate) fn forget_ended(&self) {
        drop(self.entries());
    }

    /// Those that are mounted by `zfs mount` and its kin.
    fn own(&self) -> impl Iterator<Item = Arc<Entry>> {
        let entries = self.entries().into_iter();
        entries.filter(|entry| !entry.is_apart)
    }

    fn find(&self, name: &str) -> Option<Arc<Entry>> {
        self.own()
            .find(|entry| entry.shown().is_some_and(|shown| shown.name == name))
    }

    /// Reserves a data set that is to be mounted.
    fn begin(&self, name: &str) -> Result<Begun<'_>> {
        let mut begun = self.begun.lock();
        if begun.contains(name) || self.find(name).is_some() {
            return Err(Error::new(ErrorKind::Busy, "it is mounted"));
        }
        begun.insert(name.to_owned());
        drop(begun);
        Ok(Begun {
            table: self,
            name: name.to_owned(),
        })
    }

    fn unmount(&self, entry: &Arc<Entry>, tries: u32, wait_ns: u64) -> Result<()> {
        let mut tried = 1;
        while let Err(error) = entry.mounted.unmount(false) {
            if error.kind() != ErrorKind::Busy || tried >= tries {
                return Err(error);
            }
            tried += 1;
            rt::sleep_ns(wait_ns);
        }
        self.entries
            .lock()
            .retain(|other| !Arc::ptr_eq(other, entry));
        Ok(())
    }

    /// Unmounts everything; what stays in use is taken from those who use it.
    pub(crate) fn close(&self) {
        let mut tries = CLOSE_TRIES;
        // What was mounted last may be over or below what was mounted before.
        for entry in self.entries().into_iter().rev() {
            if self.unmount(&entry, tries, CLOSE_WAIT_NS).is_err() {
                // They have had their time.
                tries = 1;
                let _ = entry.mounted.unmount(true);
            }
        }
        self.entries.lock().clear();
    }
}

/// A data set that is being mounted.
struct Begun<'t> {
    table: &'t MountTable,
    name: String,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.table.begun.lock().remove(&self.name);
    }
}

/// A data set that is mounted apart; dropping this unmounts it, unless it is left to those who keep the pools open.
pub struct Apart {
    keeper: Arc<Keeper>,
    entry: Option<Arc<Entry>>,
}

impl Apart {
    /// Whether it is still mounted.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        self.entry
            .as_ref()
            .is_some_and(|entry| entry.mounted.is_mounted())
    }

    /// Leaves it mounted.
    pub fn leave(mut self) {
        self.entry = None;
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            let mut entries = self.keeper.mounts().entries.lock();
            entries.retain(|other| !Arc::ptr_eq(other, &entry));
        }
    }
}

impl Pools {
    /// Whether what changes data sets moves their mounts: the pools are those of a host and stay open, and the host
    /// has FUSE.
    #[must_use]
    pub fn can_mount(&self) -> bool {
        self.stay_open() && !self.world().is_machine() && Path::new(DEVICE).exists()
    }

    /// Whether this process keeps them open between sessions.
    #[must_use]
    pub fn stay_open(&self) -> bool {
        self.keeper().is_some()
    }

    /// The mounted data sets, in the order in which they were mounted.
    #[must_use]
    pub fn mounted(&self) -> Vec<MountedDataset> {
        let entries = self.table().into_iter().flat_map(MountTable::own);
        entries.filter_map(|entry| entry.shown()).collect()
    }

    /// Mounts a file system that is not mounted; `given` is instead of its properties. `allows_others`: users without
    /// root's rights ask for it, so that others may use it.
    ///
    /// # Errors
    /// `Busy` if it is mounted; errors of opening it; what the host says.
    pub fn mount_dataset(
        &self,
        name: &str,
        directory: &Path,
        given: &Given,
        allows_others: bool,
    ) -> Result<()> {
        let Some(keeper) = self.keeper() else {
            return Err(Error::invalid("no process holds the pools"));
        };
        let pool = keeper.open(self, name.split('/').next().unwrap_or(name), Access::Read)?;
        let _begun = keeper.mounts().begin(name)?;
        let files = pool.mount(name, false)?;
        let mut given = given.clone();
        if pool.is_readonly() {
            given.insert("readonly", true);
        }
        let dsl = pool.parts().dsl();
        let allows_others =
            rustix::process::geteuid().is_root() || allows_others && users_may_allow_others();
        let options = options(dsl, files.dataset(), &given, allows_others)?;
        let snapshots = Arc::new(SnapshotsOf {
            dsl: Arc::clone(dsl),
            dataset: Arc::clone(files.dataset()),
        });
        let mounted = fuse::mount(Arc::clone(&files), snapshots, directory, &options)?;
        let entry = Entry {
            mounted,
            files,
            pool,
            given: Mutex::new(given),
            allows_others,
            is_apart: false,
        };
        keeper.mounts().entries.lock().push(Arc::new(entry));
        Ok(())
    }

    /// Mounts a data set or snapshot with these options, wherever else it is mounted. It is mounted until the directory is
    /// unmounted, or nothing keeps the pools open any more; the data set is in use as long.
    ///
    /// # Errors
    /// Errors of opening it; what the host says.
    pub fn mount_apart(
        &self,
        name: &str,
        directory: &Path,
        options: &MountOptions,
    ) -> Result<Apart> {
        let Some(keeper) = self.keeper() else {
            return Err(Error::invalid("no process holds the pools"));
        };
        let access = match options.read_only {
            true => Access::Read,
            false => Access::Write,
        };
        let pool = name.split(['/', '@']).next().unwrap_or(name);
        let pool = keeper.open(self, pool, access)?;
        let files = pool.mount(name, options.read_only)?;
        let mut options = options.clone();
        options.read_only |= !files.is_writable();
        let snapshots = Arc::new(SnapshotsOf {
            dsl: Arc::clone(pool.parts().dsl()),
            dataset: Arc::clone(files.dataset()),
        });
        let entry = Arc::new(Entry {
            mounted: fuse::mount(Arc::clone(&files), snapshots, directory, &options)?,
            files,
            pool,
            given: Mutex::default(),
            allows_others: options.allow_other,
            is_apart: true,
        });
        keeper.mounts().entries.lock().push(Arc::clone(&entry));
        Ok(Apart {
            keeper: Arc::clone(keeper),
            entry: Some(entry),
        })
    }

    /// Ends the mount at a directory; nothing is done if there is none.
    ///
    /// # Errors
    /// `Busy` while programs use it, `InvalidInput` if another one hides it; what the host says.
    pub fn unmount_at(&self, directory: &Path) -> Result<()> {
        let Some(table) = self.table() else {
            return Ok(());
        };
        match table
            .own()
            .find(|entry| entry.mounted.directory() == directory)
        {
            Some(entry) => table.unmount(&entry, BUSY_TRIES, BUSY_WAIT_NS),
            None => Ok(()),
        }
    }

    /// Gives a mounted data set the options that its properties say by now, and those given.
    ///
    /// # Errors
    /// What the host says. Without root's rights it changes nothing of a mount; then only what the file system itself
    /// obeys is changed.
    pub fn remount_dataset(&self, name: &str, given: &Given) -> Result<()> {
        let Some(entry) = self.table().and_then(|table| table.find(name)) else {
            return Ok(());
        };
        let mut given = given.clone();
        if entry.pool.is_readonly() {
            given.insert("readonly", true);
        }
        let dsl = entry.pool.parts().dsl();
        let options = options(dsl, entry.files.dataset(), &given, entry.allows_others)?;
        match entry.mounted.remount(&options) {
            Err(error) if error.kind() == ErrorKind::Permission => {}
            outcome => outcome?,
        }
        *entry.given.lock() = given;
        Ok(())
    }

    fn table(&self) -> Option<&MountTable> {
        self.keeper().map(|keeper: &Arc<Keeper>| keeper.mounts())
    }
}

impl OpenPool {
    /// How a data set is mounted, if it is.
    #[must_use]
    pub fn mount_of(&self, dataset: &DslDataset) -> Option<MountedDataset> {
        let table = self.pools().table()?;
        let is_it = |entry: &Arc<Entry>| {
            entry.pool.guid() == self.guid() && entry.files.dataset().object() == dataset.object()
        };
        table.own().find(is_it)?.shown()
    }
}

/// Whether the host lets users other than root mount for others.
fn users_may_allow_others() -> bool {
    let text = std::fs::read_to_string(FUSE_CONF).unwrap_or_default();
    text.lines().any(|line| line.trim() == "user_allow_other")
}

/// The options of a mount: the properties of its data set, and what is given instead.
fn options(
    dsl: &DslPool,
    dataset: &Arc<DslDataset>,
    given: &Given,
    allow_other: bool,
) -> Result<MountOptions> {
    let is_on = |name: &'static str, default: bool| -> Result<bool> {
        if let Some(value) = given.get(name) {
            return Ok(*value);
        }
        let prop = dsl.prop(dataset, name)?;
        let value = prop.and_then(|prop| prop.value.as_number());
        Ok(value.map_or(default, |value| value != 0))
    };
    let is_root = rustix::process::geteuid().is_root();
    let atime = match (is_on("atime", true)?, is_on("relatime", true)?) {
        (false, _) => AtimePolicy::Off,
        (true, false) => AtimePolicy::On,
        (true, true) => AtimePolicy::Relative,
    };
    Ok(MountOptions {
        source: dsl.name_of(dataset)?,
        read_only: is_on("readonly", false)?,
        exec: is_on("exec", true)?,
        setuid: is_root && is_on("setuid", true)?,
        devices: is_root && is_on("devices", true)?,
        allow_other,
        atime,
        shows_snapdir: is_on("snapdir", false)?,
    })
}

/// The snapshots of a mounted data set.
struct SnapshotsOf {
    dsl: Arc<DslPool>,
    dataset: Arc<DslDataset>,
}

impl Snapshots for SnapshotsOf {
    fn names(&self) -> Result<Vec<String>> {
        if self.dataset.is_snapshot() {
            return Ok(Vec::new());
        }
        let snapshots = self.dsl.snapshots(&self.dataset)?.into_iter();
        Ok(snapshots.map(|(name, _)| name).collect())
    }

    fn open(&self, name: &str) -> Result<Arc<Mount>> {
        let full = format!("{}@{name}", self.dsl.name_of(&self.dataset)?);
        zpl::mount::mount(&self.dsl, &full, true).map(Arc::new)
    }
}
