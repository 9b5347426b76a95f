//! The vdev tree, its kinds, and its labels.
//!
//! # What it is
//! A pool is built on a tree of *vdevs*: the root, top-level vdevs that blocks are spread over, and
//! below them mirrors and devices. [`VdevTree`] is the tree as the pipeline sees it ([`zio::VdevOps`]);
//! a [`Vdev`] is one node; [`label`] reads and writes the labels at both ends of every device;
//! [`import`] finds pools in a set of devices; `config` turns trees into nvlists and back.
//!
//! # Invariants
//! 1. Offset 0 of a top-level vdev is 4 MiB into each of its devices, behind two labels and the
//!    boot area.
//! 2. A device that missed a write has a DTL that covers the write's txg.
//! 3. Nothing is written to the devices of a tree that was opened for reading.
//!
//! # Source
//! OpenZFS `module/zfs/vdev.c`, `vdev_label.c`, `vdev_mirror.c`, `vdev_root.c`, `vdev_file.c`;
//! `lib/libzutil/zutil_import.c`.

mod config;
mod draid_shape;
mod draid_spare;
mod dtl;
mod evacuate;
mod geometry;
pub mod import;
mod io_counts;
mod kind;
mod kinds;
pub mod label;
mod leaf;
mod mapping;
mod open;
mod queue;
mod rebuild;
mod reflow;
mod remap;
mod report;
mod shape;
mod spare;
mod spec;
mod split;
mod state;
mod stats;
pub mod stray;
pub mod survey;
mod sweep;
mod sync;
mod tree;
mod vdev;

pub use config::{PoolConfig, Target, is_split_off, split_list};
pub use draid_shape::{DraidShape, DraidSpare};
pub use dtl::TxgSet;
pub use evacuate::Spot;
pub use geometry::{AutoAshift, choose_ashift, logical_ashift, metaslab_shift, physical_ashift};
pub use io_counts::{IoCounts, LATENCY_BUCKETS, SIZE_BUCKETS};
pub use kind::VdevKind;
pub use leaf::{ErrorLimits, Leaf};
pub use mapping::{Mapping, Piece};
pub use rebuild::Rebuilt;
pub use reflow::Reflow;
pub use report::Report;
pub use shape::{Attach, Detached};
pub use spec::{AuxSpec, Grouping, NewDevice, TopSpec};
pub use state::{PoolState, VdevAux, VdevState};
pub use stats::{StatsSnapshot, VdevStats};
pub use sweep::Pending;
pub use sync::LabelSync;
pub use tree::VdevTree;
pub use vdev::{Vdev, VdevConfig};

#[cfg(test)]
mod tests;
