//! Disks and a block store in memory, for tests.
//!
//! # What it is
//! - [`Memory`]: a provider whose bytes are in memory, as those of a disk of `md(4)`.
//! - [`RamStore`]: a `zio::BlockStore` without a pool below it, for the tests of what stands on such stores.
//!
//! Providers that fail on request are in the crate `faulty`.

mod memory;
mod sparse;
mod store;

pub use memory::Memory;
pub use store::{RamStats, RamStore};
