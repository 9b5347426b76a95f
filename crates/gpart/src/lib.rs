//! Partition tables: GPT and MBR.
//!
//! # What it is
//! [`Table`] reads and writes the table of a [`geom::Provider`]; a table in memory is changed by
//!
//! # On disk
//! docs/spec/partition-tables.md.
//!
//! # Source
//! The UEFI specification, chapter 5, for the GPT. FreeBSD `sys/geom/part/g_part*.c` and
//! `lib/geom/part/geom_part.c` for what gpart(8) does and says.

pub mod crc;
mod gpt;
mod kind;
mod mbr;
mod phys;
mod table;
mod uuid;

pub use kind::Kind;
pub use table::{Era, Partition, Place, Scheme, Shape, Table};
pub use uuid::Uuid;
