//! What commands ask of the datasets of an open pool, and change in them.
//!
//! # What it is
//! [`Datasets`] reads, [`DatasetsWriter`] changes. They pass on to [`DslPool`], without what is for the pool
//! itself: its syncing, the claiming of logs, its tasks.
//!
//! # Errors
//! Reads give `NotFound`, `Corrupt` and I/O errors; changes also `Exists`, `InvalidInput`, `NoSpace` and
//! `Suspended`, as the methods of the same names in `dsl` document.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Result;
use dsl::{
    DatasetStats, DslBookmark, DslDataset, DslPool, Encrypted, Encryption, KeyChange, NewDataset,
    Prop, PropChange, Space,
};
use phys::PropValue;
use zpl::mount::Mount;

use crate::open::OpenPool;

/// The datasets of a pool, read.
#[derive(Clone, Copy)]
pub struct Datasets<'p>(&'p DslPool);

/// The datasets of a pool, changed. See [`OpenPool::change_datasets`].
#[derive(Clone, Copy)]
pub struct DatasetsWriter<'p>(&'p OpenPool);

impl OpenPool {
    /// Its datasets.
    #[must_use]
    pub fn datasets(&self) -> Datasets<'_> {
        Datasets(self.parts().dsl())
    }

    /// Changes its datasets. After that its history gets the command of the session that has it open, when
    /// that is closed.
    ///
    /// # Errors
    /// `ReadOnly`; those of `change`.
    pub fn change_datasets<T>(
        &self,
        change: impl FnOnce(DatasetsWriter<'_>) -> Result<T>,
    ) -> Result<T> {
        self.check_writable()?;
        let outcome = change(DatasetsWriter(self))?;
        self.note_change();
        Ok(outcome)
    }
}

#[expect(clippy::missing_errors_doc, reason = "the module has them")]
impl Datasets<'_> {
    /// A dataset or snapshot by its name.
    pub fn find(self, name: &str) -> Result<Arc<DslDataset>> {
        self.0.dataset(name)
    }

    /// The names of the datasets directly below one.
    pub fn children(self, name: &str) -> Result<Vec<String>> {
        self.0.children(name)
    }

    /// The snapshots of a head, oldest first.
    pub fn snapshots(self, head: &Arc<DslDataset>) -> Result<Vec<(String, Arc<DslDataset>)>> {
        self.0.snapshots(head)
    }

    /// The bookmarks of a head, oldest first.
    pub fn bookmarks(self, head: &DslDataset) -> Result<Vec<DslBookmark>> {
        self.0.bookmarks(head)
    }

    /// What a dataset counts.
    pub fn stats(self, dataset: &Arc<DslDataset>) -> Result<DatasetStats> {
        self.0.stats(dataset)
    }

    /// The properties that are set or inherited.
    pub fn props(self, dataset: &Arc<DslDataset>) -> Result<BTreeMap<String, Prop>> {
        self.0.props(dataset)
    }

    /// How a dataset is encrypted; `None` if it is not.
    pub fn encryption(self, dataset: &Arc<DslDataset>) -> Result<Option<Encryption>> {
        self.0.encryption(&dataset.dir())
    }

    /// The name of its encryption root.
    pub fn encryption_root(self, encryption: &Encryption) -> Result<String> {
        self.0.encryption_root(encryption)
    }

    /// The properties that a stream brought.
    pub fn received_props(self, dataset: &Arc<DslDataset>) -> Result<BTreeMap<String, PropValue>> {
        self.0.received_props(dataset)
    }

    /// The holds of a snapshot, with the time of each, in s.
    pub fn holds(self, snapshot: &Arc<DslDataset>) -> Result<Vec<(String, u64)>> {
        self.0.holds(snapshot)
    }

    /// The space written between a snapshot and a later dataset.
    pub fn space_written(self, old: &Arc<DslDataset>, new: &Arc<DslDataset>) -> Result<Space> {
        self.0.space_written(old, new)
    }

    /// The space written between a bookmark, by its full name, and a later dataset.
    pub fn space_written_since_bookmark(
        self,
        bookmark: &str,
        new: &Arc<DslDataset>,
    ) -> Result<Space> {
        self.0.space_written_since_bookmark(bookmark, new)
    }

    /// The space that destroying a range of snapshots would free.
    pub fn space_would_free(
        self,
        first: &Arc<DslDataset>,
        last: &Arc<DslDataset>,
    ) -> Result<Space> {
        self.0.space_would_free(first, last)
    }
}

#[expect(clippy::missing_errors_doc, reason = "the module has them")]
impl DatasetsWriter<'_> {
    fn dsl(&self) -> &DslPool {
        self.0.parts().dsl()
    }

    /// Creates a file system.
    pub fn create(self, new: NewDataset) -> Result<()> {
        self.dsl().create_dataset(new)
    }

    /// Makes a file system one of the current version.
    pub fn upgrade(self, name: &str) -> Result<()> {
        zpl::mount::upgrade(self.dsl(), name)
    }

    /// The files of a file system, whose owners are to be limited. It is mounted for that, so that a log that waits for
    /// its replay gets the numbers of objects that it names.
    pub fn files(self, name: &str) -> Result<Arc<Mount>> {
        self.0.mount(name, false)
    }

    /// Creates a file system that is encrypted otherwise than the one above it.
    pub fn create_encrypted(self, new: NewDataset, how: Encrypted) -> Result<()> {
        self.dsl().create_encrypted(new, how)
    }

    /// Changes the wrapping key of an encrypted dataset and of all that inherit it.
    pub fn change_key(self, name: &str, change: KeyChange) -> Result<()> {
        self.dsl().change_key(name, change)
    }

    /// Creates a clone of a snapshot.
    pub fn clone_snapshot(
        self,
        name: &str,
        origin: &str,
        props: Vec<(String, PropValue)>,
    ) -> Result<()> {
        self.dsl().clone_dataset(name, origin, props)
    }

    /// Sets or removes properties of a dataset or snapshot.
    pub fn set_props(self, name: &str, changes: Vec<(String, PropChange)>) -> Result<()> {
        self.dsl().set_props(name, changes)
    }

    /// Renames a head, with all below it.
    pub fn rename(self, old: &str, new: &str) -> Result<()> {
        self.dsl().rename(old, new)
    }

    /// Renames a snapshot of a file system, and with `recursive` those of its descendants.
    pub fn rename_snapshot(self, fs: &str, old: &str, new: &str, recursive: bool) -> Result<()> {
        self.dsl().rename_snapshot(fs, old, new, recursive)
    }

    /// Makes a clone the owner of what it shares with its origin.
    pub fn promote(self, name: &str) -> Result<()> {
        self.dsl().promote(name)
    }

    /// Takes snapshots, all or none.
    pub fn snapshot(self, names: &[&str], props: Vec<(String, PropValue)>) -> Result<()> {
        self.dsl().snapshot(names, props)
    }

    /// Returns a head to its newest snapshot, `to`.
    pub fn rollback(self, name: &str, to: &str) -> Result<()> {
        self.dsl().rollback(name, Some(to), 0)
    }

    /// Destroys a head.
    pub fn destroy(self, name: &str) -> Result<()> {
        self.dsl().destroy_head(name)
    }

    /// Destroys snapshots, all or none; with `defer`, those in use go with their last use.
    pub fn destroy_snapshots(self, names: &[&str], defer: bool) -> Result<()> {
        self.0.let_snapshots_go(names);
        self.dsl().destroy_snapshots(names, defer)
    }

    /// Holds snapshots, all or none.
    pub fn hold(self, snapshots: &[&str], tag: &str) -> Result<()> {
        self.dsl().hold(snapshots, tag)
    }

    /// Releases holds, all or none.
    pub fn release(self, snapshots: &[&str], tag: &str) -> Result<()> {
        self.dsl().release(snapshots, tag)
    }

    /// Creates a bookmark of a snapshot or bookmark.
    pub fn create_bookmark(self, bookmark: &str, source: &str) -> Result<()> {
        self.dsl().create_bookmark(bookmark, source)
    }

    /// Destroys a bookmark.
    pub fn destroy_bookmark(self, bookmark: &str) -> Result<()> {
        self.dsl().destroy_bookmark(bookmark)
    }
}
