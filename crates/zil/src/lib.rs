//! The intent log: changes that must be on disk before their txg is.
//!
//! # What it is
//! A change becomes durable with its txg, seconds later. `fsync` does not wait that long: every
//! change also leaves a record ([`Itx`]) in memory, and [`Zilog::commit`] writes those that matter
//! to a chain of log blocks. When the txg is on disk its records are void. The log is read only
//! after a crash: records of txgs that were never synced are replayed.
//!
//! # On disk
//! ```text
//! objset block: zil_header --> log block --> log block --> ... --> allocated, never written
//! log block:    zil_chain (next block, bytes used, checksum) | records
//! ```
//! The checksum of a block is mixed with the verifier in its pointer: two random words of the chain,
//! the objset, and the block's number. So no older block is ever taken for part of the chain.
//!
//! # Invariants
//! 1. A block's successor is allocated before the block is written.
//! 2. The header names the oldest block whose records a synced txg does not cover.
//! 3. A log block is freed in a txg only if it was allocated in that txg or before, is on disk,
//!    and has only records of that txg or before.
//! 4. Only the [`Zilog`] that, since mount, found or allocated a chain's first block adds to it.
//!
//! # Crash argument
//! `commit` returns after all its blocks are written and the devices' caches flushed; if some of
//! them reach stable storage earlier, in any order, the valid prefix of the chain is at most longer.
//! The header is part of the objset, so it and the blocks that it names change with the txg.
//! After a crash everything from the header on is *claimed*: marked as allocated before anything
//! else is. Then each record of a txg that was not synced is *replayed*, in a transaction that
//! also notes its number in the header, so that after a crash during replay no record is repeated.
//!
//! # Concurrency
//! Records are added under open-context transactions. One thread at a time writes; others wait for
//! it, and then usually find that it wrote their records too: this is the group commit. The sync
//! thread takes only the state lock, which is never held during I/O.
//!
//! # Why not simpler
//! OpenZFS keeps several log blocks in flight, and delays a block that is not full in the hope of
//! more records. Here a commit is one batch with one flush; waiting committers are the next batch.
//! OpenZFS can also write large blocks of a file to their final place first and log the pointer
//! (`WR_INDIRECT`); such records are read here, but not written: data is always copied to the log.
//!
//! # Source
//! OpenZFS module/zfs/zil.c, include/sys/zil.h, include/sys/zil_impl.h @be7657e3.

mod blocks;
mod chain;
mod itx;
mod lwb;
mod replay;
mod zilog;

#[cfg(test)]
mod tests;

pub use blocks::each_block;
pub use chain::{Parsed, Visitor, claim, clear, destroy_sync, parse};
pub use itx::{DataRequest, Itx, WriteState};
pub use replay::{ReplaySink, Replayed};
pub use zilog::{GetData, SyncMode, ZilHost, ZilParts, Zilog};
