//! ZAP objects: names to values, the directories and dictionaries of a pool.
//!
//! # What it is
//! A ZAP maps names (or arrays of words) to arrays of integers. It begins as a [micro](micro) ZAP
//! of one block and becomes a [fat](fat) ZAP, an extendible hash table, when a name is too long, a
//! value is not one 64-bit integer, or the block is full. [`Zap`] hides the difference; the
//! functions of this module do one operation on an object given by its number.
//!
//! ```text
//! Zap (handle)  lock, micro or fat          Cursor  position in hash order
//!   micro       one block of 64-byte entries
//!   fat         header, pointer table  ->  leaf  chunks in a block
//! ```
//!
//! # Invariants
//! 1. The hash of a name depends only on the ZAP's salt and flags, and stays when it becomes fat.
//! 2. Names are hashed in the form that `zap_normflags` say (see `textprep`).
//!
//! # Source
//! OpenZFS `module/zfs/zap.c`, `zap_impl.c`, `zap_micro.c`, `zap_fat.c`, `zap_leaf.c` @be7657e3.

mod alike;
mod create;
mod cursor;
pub mod directory;
mod fat;
mod handle;
mod hash;
mod key;
mod leaf;
mod micro;
mod object;
mod textprep;
mod value;

#[cfg(test)]
mod tests;

pub use alike::{Case, are_alike};
pub use create::{NewZap, create, create_claim, create_link, create_with, destroy, zapify};
pub use cursor::Cursor;
pub use handle::{Entry, LeafHistograms, Stats, Zap};
pub use hash::crc64;
pub use key::Key;
pub use object::{
    add, add_u64, contains, count, iter, lookup, lookup_str, lookup_u64, remove, remove_if_present,
    update, update_str, update_u64,
};
pub use value::{Flags, Integer, MAX_NAME_BYTES, MAX_VALUE_BYTES};
