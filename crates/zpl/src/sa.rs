//! System attributes of an objset: what is registered, which layouts exist, and how a set of
//! attributes is packed into bonus and spill.
//!
//! # What it is
//! A file's attributes are values in a row; which ones, in which order, is its *layout*, a small
//! number that stands for a list of attribute numbers. [`table`] keeps the registry and the
//! layouts of a file system, [`pack`] decides what goes into the bonus and what into the spill
//! block, [`buffer`] reads and changes one file's attributes.
//!
//! # Invariants
//! 1. A layout that some file uses is never changed or removed.
//! 2. Attributes that this program does not know are carried through every rewrite, in place.
//! 3. The bonus ends 128 bytes early whenever there is a spill block: its pointer is there.
//!
//! # Source
//! OpenZFS `module/zfs/sa.c`, `module/zfs/zfs_sa.c`, `include/sys/sa_impl.h` @be7657e3.

mod buffer;
mod pack;
mod table;

pub(crate) use buffer::{AttrSet, Found, Value, in_host_order, parse};
pub(crate) use pack::pack;
pub(crate) use table::SaTable;
