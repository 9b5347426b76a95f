//! Directories, datasets, snapshots, properties: the Dataset and Snapshot Layer.
//!
//! # What it is
//! The MOS holds a tree of named directories; each has a head dataset and its snapshots. This crate
//! finds, creates, clones, renames and destroys them, and tracks which dataset a block belongs to
//! and how much space each dataset uses.
//!
//! # Why snapshots cost nothing
//! A block is never changed in place, and every pointer records the txg in which its block was
//! born. A snapshot taken in txg T has exactly the blocks of its head that were born at or before
//! T. So nothing has to be marked when it is taken; and when the head gives up a block, comparing
//! its birth txg with that of the last snapshot tells whether to free it. If not, it goes on a
//! [`deadlist`], where a later snapshot destroy finds it without reading any tree.
//!
//! # Crash argument
//! All of this changes only in syncing context, by the thread that syncs a txg, in objects of the
//! MOS: the changes become visible with that txg's uberblock, completely or not at all. The same
//! holds for frees: space freed in a txg is not reused before the txg is on disk. Work that takes
//! longer than a txg (freeing the blocks of a destroyed head) is a queue in the MOS ([`bptree`],
//! [`bpobj`]), from which each txg removes what it frees.
//!
//! # Who calls what, in a txg
//! ```text
//! freeze(txg)                      the txg has no holds left: dirty objsets are moved aside
//! pass 1:  sync_datasets(tx, 1)    data of all dirty heads, then their accounts and deadlists
//!          run_tasks(tx)           snapshots, destroys, renames, properties ...
//!          process_async_destroys  some blocks of destroyed datasets
//!          flush(tx), MOS sync     changed fields into the MOS
//! pass n:  sync_datasets(tx, n)    heads created by tasks; $MOS is charged for the last pass
//!          flush(tx), MOS sync
//! ```
//!
//! # Source
//! OpenZFS module/zfs/dsl_*.c, bpobj.c, bptree.c @be7657e3; each module names its own.

mod accounting;
pub mod bookmark;
mod bookmark_written;
pub mod bpobj;
pub mod bptree;
pub mod create;
mod crypt;
mod dataset;
pub mod deadlist;
pub mod destroy;
mod dir;
mod engine;
mod env;
mod errlog;
mod fields;
pub mod hold;
pub mod limits;
mod livelist;
mod log;
mod mos;
mod names;
mod old_version;
mod pool;
pub mod promote;
mod prop;
pub mod rename;
mod rewrap;
pub mod rollback;
mod size;
pub mod snapshot;
mod space;
mod stats;
mod synctask;

pub use accounting::MosAccounting;
pub use bookmark::DslBookmark;
pub use bpobj::Bpobj;
pub use create::{NewDataset, ObjsetInit};
pub use crypt::{Encrypted, Encryption, NewRoot};
pub use dataset::{DslDataset, LongHold, PropReader, PropsWatcher};
pub use deadlist::Deadlist;
pub use dir::{DslDir, Used};
pub use engine::mos_props;
pub use env::{DatasetChange, HistoryEvent, PoolEnv};
pub use errlog::{ErrorCursor, LoggedBlock, LoggedError, ScanPhase};
pub use fields::{DatasetFields, DirFields};
pub use mos::Mos;
pub use pool::{DslPool, PoolParts};
pub use prop::{Prop, PropChange, PropSource, is_inheritable};
pub use rewrap::KeyChange;
pub use size::Space;
pub use space::{SpaceCheck, slop_space};
pub use stats::DatasetStats;
pub use synctask::Verdict;

#[cfg(test)]
mod tests;
