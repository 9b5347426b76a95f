//! What administrators see of pools: property tables, name rules, how things print, and how
//! commands are read.
//!
//! # What it is
//! Pure functions. The front end gathers plain structs from the engine ([`pool::PoolStatus`],
//! [`phys::PropValue`]); this crate turns them into the text, columns and JSON that people's eyes
//! and scripts know from OpenZFS, and turns arguments into checked values with the complaints that
//! they know. Nothing here opens, reads or prints anything.
//!
//! # Source
//! OpenZFS cmd/zpool, cmd/zfs, lib/libzfs, lib/libzutil, module/zcommon @be7657e3. What is printed
//! follows release 2.3; `tests/golden` holds what its tools printed.

pub mod getopt;
#[cfg(test)]
mod golden;
pub mod listing;
pub mod name;
pub mod number;
pub mod pool;
pub mod prop;
pub mod usage;
pub mod vdev_spec;
