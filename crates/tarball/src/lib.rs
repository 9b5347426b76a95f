//! The members of tar archives, read and written.
//!
//! # What it is
//! [`Reader`] understands v7, ustar, GNU's and POSIX's (pax) archives, with GNU's sparse files of all versions; what is
//! written ([`lead`]) is POSIX's, with records only where the ustar header cannot say a thing. Headers are
//! those of the crate `tar`.
//!
//! # Why not simpler
//! The reader of the crate `tar` splits pax records at line feeds, which the values of extended attributes have; it
//! does not know GNU's sparse files in pax archives, and hides where the holes of others are.
//!
//! # Source
//! POSIX.1-2017, pax; GNU tar 1.34, doc/tar.texi, "Tar Internals", src/list.c, src/sparse.c, src/xheader.c.

mod member;
mod pax;
mod read;
mod sparse;
mod write;

pub use member::{Kind, Member};
pub use read::{EARLY_END, Input, NOT_TAR, Reader};
pub use write::{end, lead, padding};

/// Bytes of a block: headers are one, and what follows them is padded to blocks.
const BLOCK_BYTES: u64 = 512;

#[cfg(test)]
mod tests;
