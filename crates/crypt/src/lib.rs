//! Encryption of data sets: keys, and the bytes of blocks under them.
//!
//! # What it is
//! Three keys follow each other. A user has a *wrapping key* ([`WrappingKey`]): 32 bytes, given as they are, in
//! hexadecimal, or derived from a passphrase. It encrypts the *master key* of a data set, which lies in the pool
//! wrapped ([`WrappedKey`]). From the master key and a salt that is stored with each block comes the key that the
//! block is encrypted with ([`DataKey`]). Changing the passphrase wraps the master key again and touches no block.
//!
//! # On disk
//! A block of level 0 is encrypted whole (file contents, directories), in part (dnodes: only bonus bytes; log blocks:
//! only what is in the records), or not at all but authenticated (objects that must be readable without a key).
//! [`BlockKey::open`] and [`DataKey::check`] know which. Indirect blocks hold a sum of the MACs below them
//! ([`indirect_mac`]), for which no key is needed; the block of an objset holds two MACs of its own.
//!
//! # Invariants
//! 1. Keys are wiped when they are dropped, and no `Debug` shows one.
//! 2. Bytes from disk cause errors, never panics.
//!
//! # Source
//! OpenZFS module/os/linux/zfs/zio_crypt.c, module/zfs/hkdf.c, module/zfs/dsl_crypt.c, include/sys/zio_crypt.h,
//! lib/libzfs/libzfs_crypto.c.

mod data_key;
mod mac;
mod parts;
mod secret;
mod suite;
mod wrapping;

#[cfg(test)]
mod tests;

pub use data_key::{BlockKey, DataKey, check_indirect, covers_all, set_log_mac};
pub use mac::indirect_mac;
pub use suite::Suite;
pub use wrapping::{
    KeyFields, KeyFormat, PBKDF2_ITERATIONS_DEFAULT, PBKDF2_ITERATIONS_MIN, WrappedKey,
    WrappingKey, check_passphrase,
};
