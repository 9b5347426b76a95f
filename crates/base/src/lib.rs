//! What every crate shares: identities, sizes, rounding, block buffers and the one error type.
//!
//! Source: the names follow OpenZFS `include/sys/zfs_context.h`, `include/sys/spa.h`,
//! `include/sys/fs/zfs.h`.

mod buf;
mod error;
mod heap;
mod id;
mod recycle;
mod round;
mod slots;

pub use buf::{BlockBuf, Buf, BufSlice, footprint, give_back};
pub use error::{Context, Error, ErrorKind, Result};
pub use id::{BlkId, Guid, MetaslabId, ObjectId, ObjsetId, Txg, VdevId};
pub use round::{align_down, align_up, highbit, is_aligned};

/// `SPA_MINBLOCKSHIFT`: log2 of 512 bytes, the unit of every size and offset in a DVA.
pub const SPA_MINBLOCKSHIFT: u32 = 9;
/// `SPA_MINBLOCKSIZE`: the smallest block, 512 bytes.
pub const SPA_MINBLOCKSIZE: u64 = 1 << SPA_MINBLOCKSHIFT;
/// `SPA_OLD_MAXBLOCKSIZE`: the largest block without the `large_blocks` feature, 128 KiB.
pub const SPA_OLD_MAXBLOCKSIZE: u64 = 1 << 17;
/// `SPA_MAXBLOCKSIZE`: the largest block, 16 MiB.
pub const SPA_MAXBLOCKSIZE: u64 = 1 << 24;
/// `SPA_DVAS_PER_BP`: the most copies that one block pointer can name.
pub const SPA_DVAS_PER_BP: usize = 3;
