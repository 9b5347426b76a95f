//! The intent log: what was promised to be on disk before its txg is.
//!
//! # What it is
//! A change becomes durable with its txg, seconds later. A program that calls `fsync` does not wait
//! that long: every change also leaves a record ([`Itx`]) in memory, and [`Zilog::commit`] writes
//! those that matter to a chain of log blocks. When the txg is on disk its records are void. Only
//! after a crash is the log read: records of txgs that never made it are carried out again.
//!
//! # On disk
//! ```text
//! objset block: zil_header --> log block --> log block --> ... --> allocated, never written
//! log block:    zil_chain (next block, bytes used, checksum) | records
//! ```
//! The checksum of a block is mixed with what its pointer says: two random words of the chain, the
//! objset, and the block's number. So no older block is ever taken for part of the chain.
//!
//! # Invariants
//! 1. A block's successor is allocated before the block is written.
//! 2. The header names the oldest block whose records a synced txg does not cover.
//! 3. A log block is freed in a txg only if it was allocated in that txg or before, is on disk,
//!    and has only records of that txg or before.
//! 4. A chain is only added to by the [`Zilog`] that found or made its first block since mount.
//!
//! # Crash argument
//! `commit` returns after all its blocks are written and the devices' caches flushed; whatever
//! of them arrives earlier, in any order, only makes a longer valid prefix of the chain. The
//! header is part of the objset, so it and the blocks that it names change with the txg.
//! After a crash everything from the header on is *claimed*: marked as allocated before anything
//! else is. Then each record of a txg that was not synced is *replayed*, in a transaction that
//! also notes its number in the header: a crash during replay repeats nothing.
//!
//! # Concurrency
//! Records are added under open-context transactions. One thread at a time writes; others wait for
//! it, and usually find then that their records went along: that is what groups commits. The sync
//! thread takes the state lock only, which is never held during I/O.
//!
//! # Why not simpler
//! OpenZFS lets several log blocks be in flight, and delays a block that is not full in the hope of
//! more records. Here a commit is one batch with one flush; waiting committers are the next batch.
//! It also can write large blocks of a file to their place first and log the pointer
//! (`WR_INDIRECT`); such records are read here, but not made: data is always copied to the log.
//!
//! # Source
//! OpenZFS module/zfs/zil.c, include/sys/zil.h, include/sys/zil_impl.h @be7657e3.

mod chain;
mod itx;
mod lwb;
mod replay;
mod zilog;

#[cfg(test)]
mod tests;

pub use chain::{Parsed, Visitor, claim, destroy_sync, parse};
pub use itx::{DataRequest, Itx, WriteState};
pub use replay::{ReplaySink, Replayed};
pub use zilog::{GetData, SyncMode, ZilHost, ZilParts, Zilog};
