//! Block compression: pure functions of bytes.
//!
//! # What it is
//! Each block is compressed on its own and must decompress to exactly its logical size. The block
//! pointer names the kind of compression; the writer's level is not needed to read it.
//!
//! # On disk
//! Compressed data is padded with zeros to whole sectors, so a stream without an end mark ends
//! when the decompressed block is full:
//! ```text
//! lz4      u32 big-endian length of the rest; an LZ4 block
//! zstd     u32 big-endian length of the rest; level and version (see `zstd`); a zstd frame
//!          without its magic number, without content size and checksum
//! gzip-N   a zlib stream
//! lzjb     groups of a byte of flags and eight items, until the block is full
//! zle      runs, until the block is full
//! off      the bytes
//! ```
//! `empty` never reaches the disk: blocks of zeros become holes.
//!
//! # Invariants
//! 1. Whatever the bytes to decompress are, nothing is read or written out of bounds, nothing
//!    panics, and the memory used does not depend on lengths that they claim.
//! 2. The same bytes and algorithm always compress to the same bytes, on any thread.
//!
//! # Source
//! OpenZFS module/zfs/zio_compress.c, lz4_zfs.c, lzjb.c, zle.c, gzip.c,
//! module/zstd/zfs_zstd.c, include/sys/zstd/zstd.h @be7657e3.

#![forbid(unsafe_code)]
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::arithmetic_side_effects
)]
#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::arithmetic_side_effects,
        reason = "tests"
    )
)]

mod algorithm;
mod beginning;
mod cost;
mod gzip;
mod lz4;
mod lzjb;
mod zle;
mod zstd;

pub use algorithm::{Algorithm, GzipLevel, ZstdLevel};
pub use beginning::{Beginning, beginning};
pub use cost::Cost;

use base::{Error, Result};
use phys::CompressType;

/// `BPE_PAYLOAD_SIZE`: the most bytes that fit into an embedded block pointer.
const EMBEDDED_MAX_BYTES: usize = 112;

/// Compresses `source` into `target` and returns the compressed length.
///
/// `None` if the result does not fit, or if the algorithm stores bytes as they are (`off`, `empty`).
/// The bytes of `target` beyond the returned length are unspecified.
#[must_use]
#[doc(alias = "zio_compress_data")]
pub fn compress(algorithm: Algorithm, source: &[u8], target: &mut [u8]) -> Option<usize> {
    let len = match algorithm {
        Algorithm::Off | Algorithm::Empty => None,
        Algorithm::On | Algorithm::Lz4 => lz4::compress(source, target),
        Algorithm::Lzjb => lzjb::compress(source, target),
        Algorithm::Zle => zle::compress(source, target),
        Algorithm::Gzip(level) => gzip::compress(level, source, target),
        Algorithm::Zstd(level) => zstd::compress(level, source, target),
    }?;
    assert!(len <= target.len(), "{len} bytes in {}", target.len());
    Some(len)
}

/// Decompresses `source` (one block as stored, padding included) to fill `target` exactly.
///
/// # Errors
/// [`base::ErrorKind::Corrupt`] when `source` is not a block of `target.len()` bytes compressed
/// with `kind`; the contents of `target` are then unspecified.
#[doc(alias = "zio_decompress_data")]
pub fn decompress(kind: CompressType, source: &[u8], target: &mut [u8]) -> Result<()> {
    let lsize = target.len();
    match kind {
        CompressType::Off => stored(source, target),
        CompressType::Lz4 => lz4::decompress(source, target),
        CompressType::Lzjb => lzjb::decompress(source, target),
        CompressType::Zle => zle::decompress(source, target),
        CompressType::Gzip1
        | CompressType::Gzip2
        | CompressType::Gzip3
        | CompressType::Gzip4
        | CompressType::Gzip5
        | CompressType::Gzip6
        | CompressType::Gzip7
        | CompressType::Gzip8
        | CompressType::Gzip9 => gzip::decompress(source, target),
        CompressType::Zstd => zstd::decompress(source, target),
        CompressType::Inherit | CompressType::On | CompressType::Empty => {
            Err(Error::corrupt("no block is compressed with it"))
        }
    }
    .map_err(|e| e.within(format!("{kind} block of {} to {lsize} bytes", source.len())))
}

/// The level recorded in a zstd block, which is needed to compress it again to the same bytes.
///
/// # Errors
/// [`base::ErrorKind::Corrupt`] when the header is cut off or its level is not one of OpenZFS.
#[doc(alias = "zfs_zstd_get_level")]
pub fn zstd_level(source: &[u8]) -> Result<ZstdLevel> {
    zstd::level(source)
}

/// The most bytes for which compression is worth it: it must save an eighth of `lsize`.
///
/// Longer compressed data is discarded, and the block is stored uncompressed.
#[must_use]
pub fn max_compressed_len(lsize: usize) -> usize {
    lsize.saturating_sub(lsize >> 3)
}

/// [`max_compressed_len`] for a pool, rounded down to whole allocation units.
///
/// `min_alloc` and `gcd_alloc`: the smallest allocation of any vdev, and the unit that all
/// allocations are multiples of (both `1 << ashift` in a pool without RAID-Z). If not even the
/// smallest allocation saves an eighth, only data that fits into the block pointer is worth it.
/// This does not change what is stored, but lets a hopeless attempt stop early.
///
/// Source: zio.c `zio_get_compression_max_size`.
#[must_use]
#[doc(alias = "zio_get_compression_max_size")]
pub fn max_compressed_len_in_pool(
    algorithm: Algorithm,
    lsize: usize,
    min_alloc: usize,
    gcd_alloc: usize,
) -> usize {
    assert!(gcd_alloc > 0, "allocations are multiples of {gcd_alloc}");
    let len = max_compressed_len(lsize);
    if algorithm == Algorithm::Zle {
        // zle needs room for its runs
        return len;
    }
    let whole = len.saturating_sub(len.checked_rem(gcd_alloc).unwrap_or(0));
    if whole < min_alloc {
        EMBEDDED_MAX_BYTES.min(len)
    } else {
        whole
    }
}

fn stored(source: &[u8], target: &mut [u8]) -> Result<()> {
    if source.len() != target.len() {
        return Err(Error::corrupt("sizes differ"));
    }
    target.copy_from_slice(source);
    Ok(())
}

#[cfg(test)]
mod tests;
