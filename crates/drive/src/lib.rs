//! Emulated drives: mechanics, caches, read-modify-write, faults.

pub mod profile;
pub mod timing;

pub use profile::{Profile, profiles};
