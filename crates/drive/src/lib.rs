//! Emulated drives: mechanics, caches, read-modify-write, faults.
//!
//! # What it is
//! [`Emulated`] is a drive as a `geom::Provider`: real bytes in a sparse file, packed where they repeat, and
//! for each command the time that a drive of its [`Profile`] would take. [`timing`] is the model behind that, without
//! any bytes; [`identify`] is what a drive reports about itself.

pub mod emulated;
pub mod fault;
pub mod identify;
mod media;
pub mod profile;
pub mod timing;

pub use emulated::{Activity, Emulated, Identity, TraceEntry};
pub use fault::Fault;
pub use identify::IdentifyData;
pub use profile::{Profile, profiles};
