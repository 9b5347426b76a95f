//! What was changed beside the mount is told to the kernel, which keeps names, attributes and pages until then.
//!
//! # What it is
//! [`zpl`] tells of every change. Those that a request of this mount makes the kernel knows already. Of the others a
//! thread tells it, in order; [`zpl::Watcher::settle`] waits for that.
//!
//! # Concurrency
//! Telling the kernel waits for its locks, which it may hold while a request is worked on: so it is done without any
//! lock of the file system, by a thread of its own.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::{Arc, Weak};

use rt::{Condvar, JoinHandle, Mutex};
use zerocopy::IntoBytes;
use zpl::Seen;

use crate::abi::{InvalEntry, InvalInode, NOTIFY_INVAL_ENTRY, NOTIFY_INVAL_INODE, OutHeader};
use crate::device::Device;
use crate::nodes::Volume;

thread_local! {
    /// The mount whose request this thread works on: the address of its queue.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

#[derive(Debug, PartialEq, Eq)]
enum Notice {
    /// Attributes; with `pages`, the content, too.
    File { node: u64, pages: bool },
    /// A name that was added, removed or given to another file.
    Name { parent: u64, name: Vec<u8> },
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Notice>,
    is_telling: bool,
    has_ended: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// The notices of one mount.
pub(crate) struct Notices {
    shared: Arc<Shared>,
    teller: Mutex<Option<JoinHandle<()>>>,
}

/// Sees the changes of the data set.
pub(crate) struct Watcher {
    shared: Arc<Shared>,
    live: Weak<Volume>,
}

impl Notices {
    pub(crate) fn begin(device: Arc<Device>) -> Notices {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            changed: Condvar::default(),
        });
        let telling = Arc::clone(&shared);
        let teller = rt::spawn("fuse notices", move || telling.tell(&device));
        Notices {
            shared,
            teller: Mutex::new(Some(teller)),
        }
    }

    /// Works on a request of this mount.
    pub(crate) fn own<T>(&self, work: impl FnOnce() -> T) -> T {
        OWN.set(Arc::as_ptr(&self.shared) as usize);
        let done = work();
        OWN.set(0);
        done
    }

    pub(crate) fn watcher(&self, live: &Arc<Volume>) -> Watcher {
        Watcher {
            shared: Arc::clone(&self.shared),
            live: Arc::downgrade(live),
        }
    }

    /// Drops the pages of a file of which the kernel may know more than is so.
    pub(crate) fn drop_pages(&self, node: u64) {
        self.shared.push(Notice::File { node, pages: true });
    }

    /// Makes the kernel ask for the attributes of a file again, which a request has changed more than it expects.
    pub(crate) fn attributes_changed(&self, node: u64) {
        self.shared.push(Notice::File { node, pages: false });
    }

    /// Makes the kernel forget a name and all below it that is not in use.
    pub(crate) fn drop_name(&self, parent: u64, name: &str) {
        let name = name.as_bytes().to_vec();
        self.shared.push(Notice::Name { parent, name });
        self.shared.settle();
    }

    /// It is unmounted.
    pub(crate) fn end(&self) {
        self.shared.queue.lock().has_ended = true;
        self.shared.changed.notify_all();
        if let Some(teller) = self.teller.lock().take() {
            // A thread that panicked has said so.
            let _ = teller.try_join();
        }
    }
}

impl zpl::Watcher for Watcher {
    /// Notes a change, unless a request of this mount made it.
    fn see(&self, seen: Seen<'_>) -> bool {
        if OWN.get() == Arc::as_ptr(&self.shared) as usize {
            return true;
        }
        let Some(live) = self.live.upgrade() else {
            return false;
        };
        let (Seen::Attributes(id) | Seen::Content(id) | Seen::Name(id, _)) = seen;
        if !live.is_known(id) {
            return true;
        }
        let node = live.node_id(id);
        self.shared.push(match seen {
            Seen::Attributes(_) => Notice::File { node, pages: false },
            Seen::Content(_) => Notice::File { node, pages: true },
            Seen::Name(_, name) => Notice::Name {
                parent: node,
                name: name.to_vec(),
            },
        })
    }

    fn settle(&self) {
        self.shared.settle();
    }
}

impl Shared {
    /// Waits until all notices are given.
    fn settle(&self) {
        let mut queue = self.queue.lock();
        self.changed.wait_while(&mut queue, |queue| {
            !queue.has_ended && (queue.is_telling || !queue.waiting.is_empty())
        });
    }

    /// Whether the mount is still there.
    fn push(&self, notice: Notice) -> bool {
        let mut queue = self.queue.lock();
        if queue.has_ended {
            return false;
        }
        let is_repeated = queue.waiting.back() == Some(&notice);
        if !is_repeated {
            // Not bounded: who makes the change holds locks that the kernel may wait for.
            queue.waiting.push_back(notice);
            self.changed.notify_all();
        }
        true
    }

    fn tell(&self, device: &Device) {
        loop {
            let mut queue = self.queue.lock();
            queue.is_telling = false;
            self.changed.notify_all();
            self.changed.wait_while(&mut queue, |queue| {
                queue.waiting.is_empty() && !queue.has_ended
            });
            if queue.has_ended {
                return;
            }
            let notice = queue.waiting.pop_front();
            queue.is_telling = true;
            drop(queue);
            if let Some(notice) = notice {
                // What the kernel does not know it need not forget.
                let _ = give(device, &notice);
            }
        }
    }
}

fn give(device: &Device, notice: &Notice) -> Result<(), rustix::io::Errno> {
    let (code, body, name) = match notice {
        Notice::File { node, pages } => {
            let body = InvalInode {
                ino: *node,
                // A negative offset leaves the pages.
                off: if *pages { 0 } else { -1 },
                len: 0,
            };
            (NOTIFY_INVAL_INODE, body.as_bytes().to_vec(), Vec::new())
        }
        Notice::Name { parent, name } => {
            let body = InvalEntry {
                parent: *parent,
                namelen: name.len() as u32,
                flags: 0,
            };
            let name = [name, &b"\0"[..]].concat();
            (NOTIFY_INVAL_ENTRY, body.as_bytes().to_vec(), name)
        }
    };
    let header = OutHeader {
        len: (size_of::<OutHeader>() + body.len() + name.len()) as u32,
        error: code,
        unique: 0,
    };
    let parts = [header.as_bytes(), &body, &name].map(IoSlice::new);
    device.send(&parts)
}
