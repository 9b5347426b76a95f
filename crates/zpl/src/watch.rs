//! Telling others what changes.
//!
//! # What it is
//! A mount on the host has names, attributes and pages in the caches of its kernel. It [`watch`](Filesystem::watch)es
//! the file system, so that the kernel learns of what is changed beside it.
//!
//! # Concurrency
//! A change is told once it can be read, by the thread that makes it and under its locks: a watcher notes it and
//! returns.

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

/// What is told of changes; it returns whether it is to be told of more.
pub type Watcher = Box<dyn Fn(Seen<'_>) -> bool + Send + Sync>;

impl Filesystem {
    /// Tells `watcher` of all changes from now on.
    pub fn watch(&self, watcher: Watcher) {
        self.watchers.write().push(watcher);
    }

    pub(crate) fn see(&self, seen: Seen<'_>) {
        let watchers = self.watchers.read();
        let are_all_there = watchers
            .iter()
            .fold(true, |all, watcher| watcher(seen) && all);
        drop(watchers);
        if !are_all_there {
            self.watchers.write().retain(|watcher| watcher(seen));
        }
    }
}
