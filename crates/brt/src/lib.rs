//! Tables of cloned blocks: which blocks more than one file refers to, without being deduplicated.
//!
//! # What it is
//! A clone of a file (`cp --reflink`) refers to the same blocks. Each block that is shared in this way
//! has an entry: how many references there are beyond the first. Freeing a block drops one; without an
//! entry it was the last reference, and the space is free.
//!
//! # On disk
//! An object of the MOS for each vdev with such blocks, `com.fudosecurity:brt:vdev:N` in the pool directory. Its
//! bonus is a `brt_vdev_phys_t`, its contents an array of 16-bit counts: the entries in each 16 MiB of the vdev.
//! The entries are in a ZAP: the offset of the first copy => the count, as 8 bytes, or as a number if
//! `block_cloning_endian` is active, which it is from the first table on or not at all. Its count is that of tables.
//!
//! # Invariants
//! 1. An entry has a count above 0; the counts of ranges and the total are those of the entries.
//!
//! # Concurrency
//! None: the owner of [`Brts`] locks.
//!
//! # Source
//! OpenZFS `module/zfs/brt.c`, `include/sys/brt_impl.h`.

mod table;

pub use table::Brts;
