//! The command-line interface to pools: property tables, name rules, output formats, and parsing
//! of commands.
//!
//! # What it is
//! Pure functions. The pool service gathers plain structs from the engine ([`pool::PoolStatus`],
//! [`phys::PropValue`]); this crate turns them into the text, columns and JSON that administrators
//! and scripts know from OpenZFS, and turns arguments into checked values, with OpenZFS's error
//! messages. Nothing here opens, reads or prints anything.
//!
//! # Source
//! OpenZFS cmd/zpool, cmd/zfs, lib/libzfs, lib/libzutil, module/zcommon @be7657e3. Output follows
//! release 2.3; `tests/golden` has output of its tools.

pub mod dedup;
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
