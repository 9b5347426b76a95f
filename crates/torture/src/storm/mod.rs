//! A whole-pool simulator: files, administration, faults, bit rot, full pools and power cuts combined.
//!
//! # What it is
//! A [`Script`] describes some pools and lists [`Step`]s. [`run`] carries it out in simulated time, together
//! with a model ([`crate::filesystems::Filesystems`]) of what each pool must hold. [`plan`] draws a script from
//! a seed; when a run fails, [`reduce`] looks for a short script that fails in the same way.
//!
//! # Invariants
//! 1. The same script gives the same run: the same bytes, the same simulated times, the same digest.
//! 2. A step names its target by a number that is taken modulo the number of candidates, and carries its own
//!    seed: a script stays meaningful when steps are left out of it. A step without a target does nothing.
//! 3. At most one device of a pool is *ailing* (lost, offline, damaged, rotten) at a time, and only where the
//!    pool has redundancy. It stays so until it is cured: everything repaired, resilvered, and scrubbed without an
//!    error. So nothing but a power cut may ever lose a byte.
//!
//! # Crash argument
//! [`past`] keeps the model after every operation, and which of those states were known to be on disk at which
//! time. After a power cut the pool must be in a single state, no older than the last one known to be on disk:
//! each file system without an intent log exactly, the others anywhere between that state and their last fsync.
//! Every fsync'd file must hold what it held then, or what was written to it later (`cuts.rs`).

mod act;
mod bench;
mod between;
mod checkpoints;
mod cloning;
mod cuts;
mod datasets;
mod devices;
mod disks;
mod expansion;
mod faults;
mod files;
mod full;
mod growth;
mod identity;
mod past;
mod plain;
mod plan;
mod reduce;
mod removal;
mod rewriting;
mod run;
mod scans;
mod script;
mod spares;
mod step;
mod suspension;
mod sweeps;
mod verdict;

pub use plan::plan;
pub use reduce::{Reduction, reduce};
pub use run::{Count, Failure, Report, run};
pub use script::{Mistake, PoolSpec, Script};
pub use step::{Act, Step};
pub use verdict::run_and_verify;
