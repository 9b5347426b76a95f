//! The providers that commands find by name: of this host, or of a machine of emulated drives.
//!
//! # What it is
//! A [`World`] resolves names of providers. There are two kinds:
//! - **this host**: a name is the path of a file or block device; with a suffix it is a layer that
//!   was put onto it (`disk.img.nop`) or a partition on it (`disk.imgp1`, `disk.img:gpt/LABEL`);
//! - a **machine**: a folder that describes a computer of emulated drives, whose names are those of
//!   FreeBSD: `ada0`, `ada0p1`, `gpt/d1`, `gpt/d1.nop`, each with or without `/dev/`.
//!
//! Layers are kept from one command to the next.

mod access;
mod description;
mod host_profile;
mod kept;
mod layer;
mod ledger;
mod lock;
mod machine;
mod memory;
mod running;
mod semaphores;
mod taste;
mod world;

pub use access::{Hold, Holder, Pools};
pub use description::{Description, DriveEntry, FILE_NAME, NewDrive, parse_size};
pub use host_profile::{HostProfile, System, host_profiles};
pub use layer::{Layer, LayerKind};
pub use lock::{FileLock, LockMode, Patience};
pub use machine::{Machine, MachineLock, NewMachine};
pub use memory::{Memory, Zfs};
pub use running::Running;
pub use semaphores::Semaphores;
pub use taste::ProviderInfo;
pub use world::{NamesFor, World};
