//! Providers: what a pool stands on.
//!
//! # What it is
//! A [`Provider`] is something with bytes at offsets: a size, a sector size, a physical sector
//! ("stripe") and its alignment, and commands to read, write, delete and flush. Classes stack: most
//! providers wrap another one. Here are
//! - [`disk`]: files and block devices of the host,
//! - [`mem`]: RAM disks,
//! - [`part`]: a range of another provider,
//! - [`nop`]: another size and sector size, failures and delays by chance.
//!
//! [`Namespace`] says what their names mean.
//!
//! # Invariants
//! 1. A write that was acknowledged is seen by every later read, but survives a loss of power only
//!    if a flush that began after it has ended. Until then any part of it may be lost, sector by
//!    sector, and in any order.
//! 2. Offsets and lengths are multiples of the sector size; a provider refuses others.
//! 3. A deleted range reads as anything: zeros, the old bytes, or a mix.
//!
//! # Source
//! FreeBSD `sys/geom/geom.h` for the words; OpenZFS `module/os/linux/zfs/vdev_disk.c` and
//! `module/zfs/vdev_file.c` for what a pool asks of a provider.

pub mod disk;
pub mod mem;
pub mod namespace;
pub mod nop;
pub mod part;
mod provider;
mod sparse;
pub mod topology;

pub use namespace::{HostNames, Namespace, Renamed};
pub use provider::{
    Bio, BioCmd, BioData, BioOp, Command, DoneFn, Provider, Shape, check_range, write_each,
};
