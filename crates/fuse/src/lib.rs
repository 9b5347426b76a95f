//! A data set as a file system of the Linux host, through FUSE.
//!
//! # What it is
//! [`mount`] shows an open file system below a directory of the host, to every program; [`Mounted`] ends that. The
//! kernel checks permissions, keeps names, attributes and pages, and asks for the rest through `/dev/fuse`:
//!
//! ```text
//! mounted   what callers hold: whether it is mounted, unmounting
//! device    /dev/fuse: mounting with or without root, reading requests, writing answers
//! session   threads that take requests and answer them
//! ring      the same through io_uring, where the kernel has that enabled
//! home      where threads run that answer
//! nodes     numbers of files as the kernel knows them: of the data set, of its snapshots, of `.zfs`
//! requests  what each request does
//! stale     mounts whose process is gone
//! notices   what was changed beside the mount is told to the kernel
//! abi       the structures of the protocol
//! ```
//!
//! # Invariants
//! 1. A file that the kernel knows is held in [`zpl::Filesystem`]: it stays until the kernel forgets it, with or
//!    without a name.
//! 2. A panic in a request is an I/O error of that request, unless the program ends at panics.
//!
//! # Concurrency
//! Each request has a thread of its own while it is worked on; there are as many threads as requests at a time,
//! up to a limit. Only the locks of `zpl` are between them. They run on the processor of the program that asks, where
//! that pays: `docs/decisions/0008-beside-who-asks.md`.
//!
//! # Why not simpler
//! The crate `fuser`, with which drives are shown, knows no `O_TMPFILE`, no `statx`, no clearing of setuid bits by the
//! file system, and copies what it reads. The protocol is small.
//!
//! # Source
//! Linux `include/uapi/linux/fuse.h`, `fs/fuse`.

mod abi;
mod device;
mod home;
mod mounted;
mod nodes;
mod notices;
mod options;
mod requests;
mod ring;
mod session;
mod stale;

pub use device::{is_available, unmount};
pub use mounted::{Mounted, mount};
pub use options::{MountOptions, Snapshots};
pub use stale::{clear_stale, is_stale};
