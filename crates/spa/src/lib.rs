//! The pool: create, import, export, txg sync, features, properties, history.
//!
//! # What it is
//! [`Spa`] is an open pool, which ties together everything below it (vdevs, pipeline, allocator,
//! MOS, datasets). [`create`](Spa::create) builds the first txg by hand, [`import`](Spa::import)
//! finds the last good one, `sync.rs` writes each txg in between, and `config.rs` produces the
//! config in labels and MOS.
//!
//! # Source
//! OpenZFS `module/zfs/spa.c`, `spa_config.c`, `spa_history.c`, `zfeature.c`.

mod aux_list;
mod cachefile;
mod change;
mod checkpoint;
mod config;
mod core;
mod create;
mod dedup;
mod dtl;
mod error_scrub;
mod errors;
mod events;
mod expand;
mod expansion;
mod features;
mod foundation;
pub mod history;
mod host;
mod l2arc;
mod load;
mod log_space_maps;
mod mmp;
mod obstacle;
mod old_version;
mod parts;
mod prefetch;
mod props;
mod rebuild;
mod reflow;
mod reguid;
mod removal;
mod scanning;
mod seek;
mod sharing;
mod spa;
mod space_maps;
mod spares;
mod split;
mod sweep;
mod sync;
mod vdev_props;
mod vdevs;

pub use ::ddt::Prune;
pub use cachefile::CacheFile;
pub use checkpoint::Checkpoint;
pub use config::read_packed;
pub use create::{CreateOptions, NewPool};
pub use expansion::ExpansionProgress;
pub use features::{FeatureState, Features};
pub use history::{History, Record};
pub use host::Host;
pub use load::{ImportOptions, NewName, device_paths, try_import};
pub use mmp::activity_check_ns;
pub use obstacle::Obstacle;
pub use parts::Parts;
pub use prefetch::SharedTables;
pub use rebuild::{RebuildProgress, RebuildState, Resilver};
pub use removal::{
    RemovalProgress, RemovalSettings, condensed_obsolete_map, read_mapping, read_obsolete_counts,
};
pub use scanning::ScanSettings;
pub use seek::{FileIdentity, FoundFile, FoundObjset, Seek, Sighted};
pub use sharing::Deduped;
pub use spa::{Settings, Spa};
pub use space_maps::SpaceMaps;
pub use spares::{OpenSpare, SpareUser};
pub use sweep::{
    SweepAction, SweepKind, SweepProgress, SweepRefusal, SweepSettings, SweepState, TrimOptions,
};
