//! LZ4 blocks with a length in front.
//!
//! # On disk
//! `u32` big-endian: the length of the LZ4 block that follows, since the padding after it would
//! look like more of it.
//!
//! # Why not simpler
//! `lz4_flex` is LZ4 in Rust. On blocks of 128 KiB the C library decompresses a quarter faster,
//! as fast as OpenZFS, and stops when the target is full, where `lz4_flex` needs room for the worst
//! case. This is the default algorithm: most reads go through it.
//!
//! # Source
//! OpenZFS module/zfs/lz4_zfs.c (the length); the LZ4 block format.

use base::{Error, Result};
use lz4::block::{compress_to_buffer, decompress_to_buffer};

const PREFIX_BYTES: usize = 4;

pub(crate) fn compress(source: &[u8], target: &mut [u8]) -> Option<usize> {
    let (prefix, body) = target.split_first_chunk_mut::<PREFIX_BYTES>()?;
    if body.is_empty() {
        return None;
    }
    let len = compress_to_buffer(source, None, false, body).ok()?;
    *prefix = u32::try_from(len).ok()?.to_be_bytes();
    len.checked_add(PREFIX_BYTES)
}

pub(crate) fn decompress(source: &[u8], target: &mut [u8]) -> Result<()> {
    let (prefix, body) = source
        .split_first_chunk::<PREFIX_BYTES>()
        .ok_or_else(|| Error::corrupt("the length is cut off"))?;
    let len = u32::from_be_bytes(*prefix);
    let body = usize::try_from(len)
        .ok()
        .and_then(|len| body.get(..len))
        .ok_or_else(|| Error::corrupt(format!("length {len} is beyond the block")))?;
    let lsize = i32::try_from(target.len()).map_err(|_| Error::corrupt("the block is too big"))?;
    let done = decompress_to_buffer(body, Some(lsize), target)
        .map_err(|_| Error::corrupt("not an LZ4 block, or a longer one"))?;
    if done != target.len() {
        return Err(Error::corrupt(format!("ends after {done} bytes")));
    }
    Ok(())
}
