//! Providers: the devices under a pool.
//!
//! # What it is
//! A [`Provider`] stores bytes at offsets: it has a size, a sector size, a physical sector
//! ("stripe") and its alignment, and commands to read, write, delete and flush. Classes stack: most
//! providers wrap another one. The classes here are
//! - [`disk`]: files and block devices of the host,
//! - [`part`]: a range of another provider,
//! - [`nop`]: another size and sector size, random failures and delays.
//!
//! [`Namespace`] resolves their names.
//!
//! # Invariants
//! 1. An acknowledged write is seen by every later read, but is sure to survive a loss of power only
//!    once a flush that began after it has ended. Until then any part of it may be lost, sector by
//!    sector, and in any order.
//! 2. Offsets and lengths are multiples of the sector size; a provider refuses others.
//! 3. A deleted range reads as anything: zeros, the old bytes, or a mix.
//!
//! # Source
//! FreeBSD `sys/geom/geom.h` for the words; OpenZFS `module/os/linux/zfs/vdev_disk.c` and
//! `module/zfs/vdev_file.c` for what a pool asks of a provider.

pub mod disk;
pub mod namespace;
pub mod nop;
pub mod part;
mod provider;
pub mod topology;

pub use namespace::{HostNames, Namespace, Renamed};
pub use provider::{
    Bio, BioCmd, BioData, BioOp, Command, DoneFn, Provider, Shape, check_range, write_each,
};
