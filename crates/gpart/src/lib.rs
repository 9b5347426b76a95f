//! Partition tables: GPT and MBR.
//!
//! # What it is
//! [`Table`] reads and writes the partition table of a [`geom::Provider`]. A table in memory is changed by
//! gpart(8)'s operations ([`Table::add`] and so on), and written as a whole. [`parted`] places
//! partitions in, and prints, the same tables in the manner of GNU parted.
//!
//! # On disk
//! docs/spec/partition-tables.md.
//!
//! # Source
//! The UEFI specification, chapter 5, for the GPT. FreeBSD `sys/geom/part/g_part*.c` and
//! `lib/geom/part/geom_part.c` for what gpart(8) does and prints; parted 3.5, by running it.

pub mod align;
mod backup;
mod change;
pub mod crc;
pub mod fuzzing;
mod gpt;
mod kind;
pub mod listing;
mod mbr;
pub mod parted;
mod phys;
mod table;
#[cfg(test)]
mod tests;
mod uuid;

pub use align::Wish;
pub use backup::{Backup, backup};
pub use change::NewPartition;
pub use kind::Kind;
pub use table::{Era, Extent, Partition, Scheme, Shape, Table};
pub use uuid::Uuid;
