//! The pools of a host or machine: which are imported, opening and locking them, and what is kept of them.
//!
//! # What it is
//! [`Pools`] are the pools of one world ([`machine::World`]), remembered in a state folder: a cachefile,
//! locks, and the errors that cannot be recorded in the pools. A [`Session`] is one command or request: it
//! opens pools, each locked by name, and closes them with what the history is to say. Requests and results
//! are types (what is shown of pools: those of `admin`); what a user is to be told meanwhile goes to an
//! [`Observer`]. Nothing is printed here.
//!
//! # On disk
//! Below the state folder: `zpool.cache` ([`spa::CacheFile`], with [`Facts`] beside each config),
//! `locks/POOL.lock`, `errors/GUID.json` (`kept_errors.rs`), `rewind/GUID` (`past.rs`), `events`
//! (`events.rs`), and `iostat/POOL/*.json` (`io_stats.rs`).
//!
//! # Invariants
//! 1. [`Session::open`] is the only way to open an imported pool. An open pool's name is locked: shared by
//!    readers, exclusively by a writer.
//! 2. A pool is in the cachefile from when it is created or imported until it is exported or destroyed. Its
//!    entry changes only while its name is locked; only the entry of a pool that cannot be opened, or that
//!    was imported again at another place, is removed without that.
//! 3. A session that holds a pool waits without limit only for pools whose names sort later (for others,
//!    one second at most), so sessions never deadlock.
//! 4. Errors met in a pool are kept when it is closed, unless it is no longer imported.
//!
//! # Crash argument
//! The cachefile and the kept errors are replaced by renaming. The labels change before the cachefile: a
//! crash in between leaves, after an export, the entry of a pool that opens as before; after a destroy, that
//! of a pool that cannot be opened, which a forced export removes; after a creation, no entry, and the pool
//! can be imported.
//!
//! # Concurrency
//! Every type is `Send + Sync`. Locks are `flock`s on files of their own, so sessions of one process
//! exclude each other as processes do.
//!
//! # Why not simpler
//! A global table of open pools would save each command the import, but a pool would stay open until the
//! process ends, and no other process could use it.
//!
//! # Source
//! OpenZFS module/zfs/spa_config.c, lib/libzfs/libzfs_pool.c, lib/libzfs/libzfs_mount.c.

mod activity;
mod autoreplace;
mod compatibility;
mod create;
mod datasets;
mod devices;
mod environment;
mod error_log;
mod events;
mod facts;
mod failure;
mod held;
mod import;
mod inspect;
mod io_stats;
mod keeper;
mod kept_errors;
mod keys;
mod leave;
mod mounting;
mod mountpoint;
mod open;
mod past;
mod pool_change;
mod pools;
mod properties;
mod removal;
mod rewind;
mod scanning;
mod seeking;
mod session;
mod split;
mod status;
mod sweeping;
mod vdev_properties;
mod vdevs;
mod version;

pub use activity::Activity;
pub use compatibility::Compatibility;
pub use create::{PoolDevice, RootFilesystem};
pub use datasets::{Datasets, DatasetsWriter};
pub use devices::Absence;
pub use environment::{Environment, Observer, Progress};
pub use facts::Facts;
pub use failure::{Attempt, Failure, Outcome, Reason};
pub use held::Access;
pub use import::Import;
pub use keeper::Keeper;
pub use keys::{KeySource, NewKey, WantedKey};
pub use mounting::{Apart, Given, MountedDataset};
pub use mountpoint::{MountSettings, Mountpoint, below, place};
pub use open::OpenPool;
pub use past::{Condition, Depth, Past, PastState, Remains, SAMPLED};
pub use pool_change::PoolChange;
pub use pools::Pools;
pub use rewind::{Rewind, Rewound};
pub use scanning::Scrubbed;
pub use seeking::{Adrift, Lineage, Searched};
pub use session::Session;
pub use split::Split;
pub use vdev_properties::{ROOT_NAME, all_vdevs};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_and_sessions_can_be_shared_by_threads() {
        fn is_shared<T: Send + Sync>() {}
        is_shared::<Pools>();
        is_shared::<Session>();
        is_shared::<OpenPool>();
        is_shared::<Failure>();
    }
}
