//! Dedup tables: for each block that is shared by its contents, how many block pointers refer to it.
//!
//! # What it is
//! A block pointer with the dedup bit does not own its space: an entry of a table does, found by the
//! block's checksum and sizes. Freeing such a pointer drops one reference; the space is free when none
//! is left. There is one table for each checksum algorithm. Version 0 is that of every pool without
//! `fast_dedup`; no feature flag says that a pool has such tables. A table of `fast_dedup` has flat
//! entries and logs, see `log.rs`. Which one is made is decided when the first entry is.
//!
//! # On disk
//! The pool directory names up to three ZAPs for each algorithm, `DDT-sha256-zap-unique` and so on, by
//! class: *unique* (one reference), *duplicate* (more) and *ditto* (no longer written). Keys are five
//! words ([`DdtKey`]), values four places with their references ([`DdtPhys`]), compressed.
//! With `fast_dedup` the pool directory names a directory, `DDT-sha256`, with *version* 1, *flags* 3
//! (flat, log), the ZAPs, and two logs; a value is one place and the time of its last change.
//! `DDT-statistics` has a histogram of each ZAP by number of references ([`DdtHistogram`]), from which
//! the apparent size of the pool is computed.
//!
//! # Invariants
//! 1. An entry is in the ZAP of the class that its references determine, and in no other, unless a log
//!    has a newer state of it.
//! 2. A histogram counts exactly the entries of its ZAP, without those that a log has.
//! 3. The call that drops the last reference returns the DVAs, once.
//! 4. Between two syncs, an entry that was looked at is current in memory only; its histogram is that of the ZAP.
//!
//! # Concurrency
//! Tables are changed in syncing context only, by one thread.
//!
//! # Source
//! OpenZFS `module/zfs/ddt.c`, `ddt_log.c`, `ddt_zap.c`, `ddt_stats.c`, `include/sys/ddt.h`.

mod entry;
mod histogram;
mod log;
mod prune;
mod store;
mod table;
mod walk;

pub use entry::{DdtEntry, DdtKey, DdtPhys, Found};
pub use histogram::{DdtHistogram, DdtStat};
pub use prune::{Candidate, Prune, UniqueZaps};
pub use table::{DdtClass, DdtLog, DdtSizes, DdtSync, DdtSynced, DdtTable, Ddts};
