//! GEOM ELI: encrypted providers.
//!
//! # What it is
//! A provider whose sectors are stored encrypted on another one. The last sector of the provider
//! below holds the [`Metadata`]: algorithms, sizes, and up to two copies of a random master key,
//! each encrypted with a key derived from a passphrase, key files or both. [`Attached`] is what is
//! needed to open an attached provider again in the next command; [`Eli`] is that provider.
//!
//! # On disk
//! docs/spec/geli.md.
//!
//! # Invariants
//! 1. Without its keys, what is on disk reveals sizes and algorithms, and nothing else.
//! 2. Randomness comes from `rt`: in a simulation it is seeded, so that a machine reproduces the
//!    same bytes. Such keys are for experiments, not for secrets.
//!
//! # Source
//! FreeBSD `sys/geom/eli/`, `lib/geom/eli/geom_eli.c`, geli(8).

mod aes;
mod algorithm;
mod attached;
mod keys;
mod layout;
mod metadata;
mod provider;
mod sectors;
mod setup;

pub use algorithm::{AuthAlgorithm, Cipher};
pub use attached::{Attached, MasterKey};
pub use keys::{
    Components, ITERATIONS_SIMULATED, PASSPHRASE_BYTES_MAX, UserKey, calibrate_iterations,
};
pub use metadata::{
    Flags, METADATA_BYTES, Metadata, SLOTS, VERSION_MAX, clear, last_sector, name_on, trash,
};
pub use provider::Eli;
pub use sectors::KEPT_KEYS;
pub use setup::{
    InitOptions, SetKey, attach, destroy_keys, init, metadata_sector, onetime, resize, set_key,
    unlock_named,
};

/// What is appended to the name of the provider below.
pub const SUFFIX: &str = ".eli";
