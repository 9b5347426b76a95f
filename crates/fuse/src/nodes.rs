//! Numbers of files as the kernel knows them.
//!
//! # What it is
//! A file of the data set has its object number; the root directory has number 1, which in a data set is never a file.
//! Above the 48 bits of an object number is the number of a volume: 0 for the data set, others for the snapshots that
//! are open below `.zfs/snapshot`, [`CONTROL`] for `.zfs` and `snapshot` themselves.
//!
//! # Invariants
//! 1. The number of a volume is not used again.
//! 2. A snapshot is open as long as the kernel knows a file in it, or a request that is being answered has it.
//!
//! # Concurrency
//! The answers to the last requests in a snapshot may still have its volume when the kernel has forgotten it. Its name
//! counts as open until the last of them has let it go ([`OpenName`]): only then can it be destroyed.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result};
use rt::{Condvar, Mutex};
use zpl::mount::Mount;
use zpl::{Attr, Filesystem};

use crate::abi::ROOT;
use crate::options::Snapshots;

/// Bits of an object number.
const OBJECT_BITS: u32 = 48;
/// The volume of `.zfs`.
const CONTROL: u64 = 0xffff;

/// A file system that the kernel sees: the data set, or one of its snapshots.
pub(crate) struct Volume {
    number: u64,
    mount: Arc<Mount>,
    /// How often the kernel was told of each file, less how often it has forgotten it.
    known: Mutex<BTreeMap<ObjectId, u64>>,
    /// The snapshot's; `None` for the data set. Behind the mount, so that it is dropped when that is closed.
    name: Option<OpenName>,
}

/// The names of the snapshots whose volumes are not gone yet.
#[derive(Default)]
struct OpenNames {
    names: Mutex<Vec<String>>,
    closed: Condvar,
}

/// One of them, until it is dropped.
struct OpenName {
    name: String,
    all: Arc<OpenNames>,
}

impl OpenNames {
    fn open(self: &Arc<OpenNames>, name: &str) -> OpenName {
        self.names.lock().push(name.to_owned());
        OpenName {
            name: name.to_owned(),
            all: Arc::clone(self),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.names.lock().iter().any(|open| open == name)
    }

    /// Waits until a name is not open any more, for `ns` at most.
    fn wait_closed(&self, name: &str, ns: u64) {
        let deadline_ns = rt::now_ns().saturating_add(ns);
        let mut names = self.names.lock();
        while names.iter().any(|open| open == name) {
            let left_ns = deadline_ns.saturating_sub(rt::now_ns());
            if left_ns == 0 {
                return;
            }
            self.closed.wait_timeout_ns(&mut names, left_ns);
        }
    }
}

impl Drop for OpenName {
    fn drop(&mut self) {
        let mut names = self.all.names.lock();
        if let Some(at) = names.iter().position(|open| *open == self.name) {
            names.swap_remove(at);
        }
        drop(names);
        self.all.closed.notify_all();
    }
}

/// What the kernel asks about.
pub(crate) enum Node {
    File(Arc<Volume>, ObjectId),
    /// `.zfs`.
    Control,
    /// `.zfs/snapshot`.
    Snapshots,
}

impl Node {
    pub(crate) const CONTROL_ID: u64 = CONTROL << OBJECT_BITS | 1;
    pub(crate) const SNAPSHOTS_ID: u64 = CONTROL << OBJECT_BITS | 2;
}

impl Volume {
    pub(crate) fn files(&self) -> &Arc<Filesystem> {
        &self.mount
    }

    /// Whether it is of the snapshot with this name.
    fn is_of(&self, snapshot: &str) -> bool {
        self.name.as_ref().is_some_and(|open| open.name == snapshot)
    }

    /// Whether it is the data set, and not a snapshot.
    pub(crate) fn is_live(&self) -> bool {
        self.number == 0
    }

    /// The kernel's number of a file.
    pub(crate) fn node_id(&self, id: ObjectId) -> u64 {
        match self.number {
            0 if id == self.files().root() => ROOT,
            number => number << OBJECT_BITS | id.0,
        }
    }

    /// The number that programs see: within one mount no two files have the same.
    pub(crate) fn inode_number(&self, id: ObjectId) -> u64 {
        self.number << OBJECT_BITS | id.0
    }

    /// Notes that the kernel is told of a file that was looked up as `attr`; returns its attributes as of now.
    pub(crate) fn know(&self, attr: &Attr) -> Result<Attr> {
        *self.known.lock().entry(attr.id).or_insert(0) += 1;
        // After it is known: what changes from here on the kernel is told of.
        let held = self.files().hold(attr.id);
        let held = held.inspect_err(|_| {
            self.count_forgotten(attr.id, 1);
        })?;
        if held.generation != attr.generation {
            // It was removed meanwhile, and its number is another file's.
            self.forget(attr.id, 1);
            return Err(Error::not_found(format!("file {}", attr.id)));
        }
        Ok(held)
    }

    /// Whether the kernel knows a file.
    pub(crate) fn is_known(&self, id: ObjectId) -> bool {
        id == self.files().root() || self.known.lock().contains_key(&id)
    }

    /// Notes that the kernel has forgotten a file `count` times; whether it knows any other one.
    fn forget(&self, id: ObjectId, count: u64) -> bool {
        let (count, is_known) = self.count_forgotten(id, count);
        if count > 0 {
            // A file that cannot be removed now is removed when the data set is next opened.
            let _ = self.files().rele(id, count);
        }
        is_known
    }

    /// The same, but its references stay; returns how many of them are to be given back, too.
    fn count_forgotten(&self, id: ObjectId, count: u64) -> (u64, bool) {
        let mut known = self.known.lock();
        let Some(times) = known.get_mut(&id) else {
            return (0, !known.is_empty());
        };
        let count = count.min(*times);
        *times -= count;
        if *times == 0 {
            known.remove(&id);
        }
        (count, !known.is_empty())
    }

    /// The kernel has forgotten everything.
    fn forget_all(&self) {
        let known = std::mem::take(&mut *self.known.lock());
        for (id, count) in known {
            let _ = self.files().rele(id, count);
        }
    }
}

/// All that the kernel may ask about.
pub(crate) struct Nodes {
    live: Arc<Volume>,
    snapshots: Arc<dyn Snapshots>,
    open: Mutex<Open>,
    names: Arc<OpenNames>,
}

/// The snapshots that are open.
struct Open {
    volumes: BTreeMap<u64, Arc<Volume>>,
    next: u64,
}

impl Nodes {
    pub(crate) fn new(mount: Arc<Mount>, snapshots: Arc<dyn Snapshots>) -> Nodes {
        Nodes {
            live: Arc::new(Volume {
                number: 0,
                mount,
                known: Mutex::default(),
                name: None,
            }),
            snapshots,
            open: Mutex::new(Open {
                volumes: BTreeMap::new(),
                next: 1,
            }),
            names: Arc::default(),
        }
    }

    pub(crate) fn live(&self) -> &Arc<Volume> {
        &self.live
    }

    /// What a number of the kernel means.
    pub(crate) fn find(&self, number: u64) -> Result<Node> {
        let id = ObjectId(number & ((1 << OBJECT_BITS) - 1));
        Ok(match number >> OBJECT_BITS {
            0 if number == ROOT => Node::File(Arc::clone(&self.live), self.live.files().root()),
            0 => Node::File(Arc::clone(&self.live), id),
            CONTROL if number == Node::CONTROL_ID => Node::Control,
            CONTROL => Node::Snapshots,
            volume => {
                let open = self.open.lock();
                let volume = open.volumes.get(&volume);
                let volume = volume.ok_or_else(|| Error::not_found("the snapshot is closed"))?;
                Node::File(Arc::clone(volume), id)
            }
        })
    }

    /// The kernel has forgotten a file.
    pub(crate) fn forget(&self, number: u64, count: u64) {
        let Ok(Node::File(volume, id)) = self.find(number) else {
            return;
        };
        if number == ROOT || volume.forget(id, count) || volume.is_live() {
            return;
        }
        let mut open = self.open.lock();
        // Another request may have found a file in it meanwhile.
        let closed = match volume.known.lock().is_empty() {
            true => open.volumes.remove(&volume.number),
            false => None,
        };
        // A volume is closed without the lock, which requests in other snapshots take.
        drop(open);
        drop(closed);
    }

    /// The kernel has forgotten everything.
    pub(crate) fn forget_all(&self) {
        let open = std::mem::take(&mut self.open.lock().volumes);
        for volume in open.values().chain([&self.live]) {
            volume.forget_all();
        }
    }

    /// Waits until a snapshot is closed, for `ns` at most.
    pub(crate) fn wait_closed(&self, name: &str, ns: u64) {
        self.names.wait_closed(name, ns);
    }

    pub(crate) fn snapshot_names(&self) -> Result<Vec<String>> {
        self.snapshots.names()
    }

    /// Whether a snapshot is open.
    pub(crate) fn is_open(&self, name: &str) -> bool {
        self.names.has(name)
    }

    /// The root directory of a snapshot, which the kernel is told of.
    pub(crate) fn enter(&self, name: &[u8]) -> Result<(Arc<Volume>, Attr)> {
        let name = std::str::from_utf8(name).map_err(|_| Error::not_found("not UTF-8"))?;
        if name.contains(['@', '/']) {
            return Err(Error::not_found(name));
        }
        // Opened without the lock, which requests in other snapshots take; if two do, one of them is dropped again.
        let open = self.open.lock();
        let is_known = open.volumes.values().any(|volume| volume.is_of(name));
        drop(open);
        let mount = match is_known {
            true => None,
            false => Some(self.snapshots.open(name)?),
        };
        let mut open = self.open.lock();
        let found = open.volumes.values().find(|volume| volume.is_of(name));
        let volume = match (found, mount) {
            (Some(volume), _) => Arc::clone(volume),
            (None, Some(mount)) => {
                let number = open.next;
                if number >= CONTROL {
                    return Err(Error::new(ErrorKind::TooManyLinks, "too many snapshots"));
                }
                open.next += 1;
                let volume = Arc::new(Volume {
                    number,
                    mount,
                    known: Mutex::default(),
                    name: Some(self.names.open(name)),
                });
                open.volumes.insert(number, Arc::clone(&volume));
                volume
            }
            (None, None) => {
                drop(open);
                return self.enter(name.as_bytes());
            }
        };
        let root = volume.files().getattr(volume.files().root())?;
        let attr = volume.know(&root)?;
        Ok((volume, attr))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_open_until_the_last_volume_of_it_is_gone() {
        const LONG_NS: u64 = 10_000_000_000;
        let names = Arc::new(OpenNames::default());
        let (first, second) = (names.open("a"), names.open("a"));
        let other = names.open("b");
        assert!(names.has("a") && !names.has("c"));
        drop(first);
        assert!(names.has("a"), "the second one is not gone");
        names.wait_closed("a", 1_000_000);
        assert!(names.has("a"));
        let last = rt::spawn("last", move || drop(second));
        names.wait_closed("a", LONG_NS);
        assert!(!names.has("a") && names.has("b"));
        last.join();
        drop(other);
        assert!(!names.has("b"));
    }
}
