//! The intent log: what was promised to be on disk before its txg is.
//!
//! # Source
//! OpenZFS module/zfs/zil.c, include/sys/zil.h @be7657e3.

mod chain;

pub use chain::{Parsed, Visitor, claim, destroy_sync, parse};
