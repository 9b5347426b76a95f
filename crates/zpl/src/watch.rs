//! Telling others what changes.
//!
//! # What it is
//! A mount on the host has names, attributes and pages in the caches of its kernel. It [`watch`](Filesystem::watch)es
//! the file system, so that the kernel learns of what is changed beside it.
//!
//! # Concurrency
//! A change is told once it can be read, by the thread that makes it and under its locks: a watcher notes it and
//! returns.

use std::sync::Arc;

use base::ObjectId;

use crate::Filesystem;

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen<'a> {
    /// Attributes of a file, or extended ones.
    Attributes(ObjectId),
    /// Content and attributes of a file.
    Content(ObjectId),
    /// A name in a directory is there now, is gone, or is another file's.
    Name(ObjectId, &'a [u8]),
}

/// What is told of changes.
pub trait Watcher: Send + Sync {
    /// Notes a change; returns whether it is to be told of more.
    fn see(&self, seen: Seen<'_>) -> bool;

    /// Waits until all that it was told has reached its end. The caller has no lock of the file system.
    fn settle(&self);
}

impl Filesystem {
    /// Tells `watcher` of all changes from now on.
    pub fn watch(&self, watcher: Arc<dyn Watcher>) {
        self.watchers.write().push(watcher);
    }

    /// Waits until all watchers have done with what was changed so far.
    pub fn settle(&self) {
        let watchers = self.watchers.read().clone();
        for watcher in watchers {
            watcher.settle();
        }
    }

    pub(crate) fn see(&self, seen: Seen<'_>) {
        let watchers = self.watchers.read();
        // Each is told, also after one that wants no more.
        let gone = watchers.iter().filter(|watcher| !watcher.see(seen)).count();
        drop(watchers);
        if gone > 0 {
            self.watchers.write().retain(|watcher| watcher.see(seen));
        }
    }
}
