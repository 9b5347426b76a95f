//! The I/O pipeline, and the traits that break the dependency cycles above it.
//!
//! # What it is
//! Everything above this crate sees a pool as a [`BlockStore`]: it writes logical blocks in batches,
//! which returns their block pointers, and reads and frees blocks by pointer. Below, the [`Pipeline`]
//! turns logical bytes into physical ones (compress, checksum, choose DVAs, gang) and talks to the disks
//! through [`VdevOps`] and to free space through [`Allocator`]. Both are declared here and implemented
//! higher up, since space maps are themselves objects that are stored through this very crate.
//!
//! # Concurrency
//! Every trait is used from many threads. Calls block; a batch is what runs in parallel
//! (docs/decisions/0001-blocking-pipeline.md).
//!
//! # Source
//! OpenZFS `module/zfs/zio.c`, `include/sys/zio.h`, `include/sys/spa.h`, `module/zfs/metaslab.c`.

mod alloc;
mod block;
mod copies;
mod dedup;
mod eck;
mod embedded;
mod encode;
mod error_log;
mod flights;
mod found;
mod gang;
mod io;
mod issue;
mod keys;
mod log;
mod pipeline;
mod prepared;
mod read;
mod runs;
mod scrub;
mod second;
mod suspend;
mod vdev_ops;

pub use alloc::{AllocClass, Allocator, DvaSet, Hint};
pub use block::{
    BlockStore, Bookmark, Dedup, LogStore, NewLogBlock, PREFETCH_DISTANCE_MAX_BYTES, Run,
    WritePolicy, WriteRequest,
};
pub use dedup::{DedupTables, Known};
pub use eck::seal_log;
pub use embedded::read_embedded;
pub use found::FoundBlock;
pub use io::{Io, Priority, Purpose};
pub use issue::{Issuer, UnderWay, Write};
pub use keys::Keys;
pub use log::new_log_bp;
pub use pipeline::{PhysicalReport, Pipeline, PipelineSettings, PipelineStats};
pub use prepared::Prepared;
pub use runs::{BlockCopy, Runs, blocks_of};
pub use second::SecondLevel;
pub use suspend::{FailedIo, Suspend, failed_write, reissue};
pub use vdev_ops::{Placement, RunBlock, ScrubReport, VdevOps};

/// `BPE_PAYLOAD_SIZE`: the largest payload of an embedded block pointer, in bytes.
pub(crate) const BPE_PAYLOAD_SIZE: usize = 112;
/// `SPA_OLD_GANGBLOCKSIZE`: bytes of a gang header without `dynamic_gang_header`.
pub(crate) const SPA_GANGBLOCKSIZE: u64 = 512;

#[cfg(test)]
mod tests;
