//! Data sets mounted on the host, by a process that keeps pools open.
//!
//! # What it is
//! The [`Keeper`](crate::Keeper) has the table of mounts: which data set, where, and with which options of its own. A
//! mount uses its pool as a session does, and its file system is the one that sessions have open, too.
//!
//! # Invariants
//! 1. A data set is mounted once at most, besides those mounted apart.
//! 2. A mount that ended from outside (`umount`) leaves the table when it is next looked at.
//!
//! # Concurrency
//! The table is locked while it is read or changed, and not while the host mounts or unmounts: that may wait for a
//! pool.
//!
//! # Source
//! OpenZFS lib/libzfs/libzfs_mount.c (`zfs_mount_at`, `zfs_add_options`, `unmount_one`).

mod options;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use dsl::DslDataset;
use fuse::MountOptions;
use rt::Mutex;
use zpl::mount::Mount;

use crate::held::Access;
use crate::keeper::Keeper;
use crate::open::OpenPool;
use crate::pools::Pools;

use options::{SnapshotsOf, options, users_may_allow_others};
use table::{Entry, identity};

pub(crate) use table::MountTable;

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
            self.keeper.mounts().give_up(&entry);
        }
    }
}

impl Pools {
    /// Whether what changes data sets moves their mounts: the pools are those of a host and stay open, and this
    /// process can mount.
    #[must_use]
    pub fn can_mount(&self) -> bool {
        self.stay_open() && !self.world().is_machine() && fuse::is_available()
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
        let files = pool.mount(name, false)?;
        let _begun = keeper.mounts().begin(identity(&pool, files.dataset()))?;
        let mut given = given.clone();
        if pool.is_readonly() {
            given.insert("readonly", true);
        }
        let dsl = pool.parts().dsl();
        let allows_others =
            rustix::process::geteuid().is_root() || allows_others && users_may_allow_others();
        let options = options(dsl, files.dataset(), &given, allows_others)?;
        show(keeper, (pool, files), directory, &options, Some(given)).map(drop)
    }

    /// Mounts a data set or snapshot with these options, wherever else it is mounted. It is mounted until the directory
    /// is unmounted, or nothing keeps the pools open any more; the data set is in use as long.
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
        let entry = show(keeper, (pool, files), directory, &options, None)?;
        Ok(Apart {
            keeper: Arc::clone(keeper),
            entry: Some(entry),
        })
    }

    /// Ends a mount; nothing is done if it has ended.
    ///
    /// # Errors
    /// `Busy` while programs use it, `InvalidInput` if another one hides it; what the host says.
    pub fn unmount_dataset(&self, mounted: &MountedDataset) -> Result<()> {
        let Some(table) = self.table() else {
            return Ok(());
        };
        match table.shown_as(mounted) {
            Some(entry) => table.unmount(&entry),
            None => Ok(()),
        }
    }

    /// Gives a mounted data set the options that its properties say by now, and those given.
    ///
    /// # Errors
    /// What the host says. Without root's rights it changes nothing of a mount; then only what the file system itself
    /// obeys is changed.
    pub fn remount_dataset(&self, mounted: &MountedDataset, given: &Given) -> Result<()> {
        let Some(entry) = self.table().and_then(|table| table.shown_as(mounted)) else {
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

/// Mounts a file system, and notes that in the table. `given`: instead of its properties; `None` for one that is
/// mounted apart.
fn show(
    keeper: &Keeper,
    (pool, files): (OpenPool, Arc<Mount>),
    directory: &Path,
    options: &MountOptions,
    given: Option<Given>,
) -> Result<Arc<Entry>> {
    let snapshots = Arc::new(SnapshotsOf {
        dsl: Arc::clone(pool.parts().dsl()),
        dataset: Arc::clone(files.dataset()),
    });
    let entry = Entry {
        mounted: fuse::mount(Arc::clone(&files), snapshots, directory, options)?,
        files,
        pool,
        is_apart: given.is_none(),
        given: Mutex::new(given.unwrap_or_default()),
        allows_others: options.allow_other,
    };
    Ok(keeper.mounts().add(entry))
}

impl OpenPool {
    /// How a data set is mounted, if it is.
    #[must_use]
    pub fn mount_of(&self, dataset: &DslDataset) -> Option<MountedDataset> {
        let table = self.pools().table()?;
        table.find(identity(self, dataset))?.shown()
    }

    /// Closes snapshots that programs have looked at below a mount's `.zfs/snapshot`, but for those that they are in.
    #[doc(alias = "zfsctl_snapshot_unmount")]
    pub(crate) fn let_snapshots_go(&self, names: &[&str]) {
        let entries = self.pools().table().map(MountTable::entries);
        let is_of_pool = |entry: &Arc<Entry>| entry.pool.guid() == self.guid();
        for entry in entries.into_iter().flatten().filter(is_of_pool) {
            let Some(shown) = entry.shown() else { continue };
            let snapshots = names.iter().filter_map(|name| name.split_once('@'));
            for (_, snapshot) in snapshots.filter(|(of, _)| *of == shown.name) {
                entry.mounted.let_go(snapshot);
            }
        }
    }
}
