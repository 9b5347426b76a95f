//! LZ4 blocks behind a length.
//!
//! # On disk
//! `u32` big-endian: the length of the LZ4 block that follows, since the padding behind it would
//! look like more of it.
//!
//! # Source
//! OpenZFS module/zfs/lz4_zfs.c (the length); the LZ4 block format.

use base::{Error, Result};
use lz4_flex::block;
use std::cell::RefCell;

const PREFIX_BYTES: usize = 4;

thread_local! {
    /// Where the compressor works: it wants room for the worst case, which callers do not have.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn compress(source: &[u8], target: &mut [u8]) -> Option<usize> {
    let (prefix, body) = target.split_first_chunk_mut::<PREFIX_BYTES>()?;
    SCRATCH.with_borrow_mut(|scratch| {
        let needed = block::get_maximum_output_size(source.len());
        if scratch.len() < needed {
            scratch.resize(needed, 0);
        }
        let len = block::compress_into(source, scratch).ok()?;
        body.get_mut(..len)?.copy_from_slice(scratch.get(..len)?);
        *prefix = u32::try_from(len).ok()?.to_be_bytes();
        len.checked_add(PREFIX_BYTES)
    })
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
    let done = block::decompress_into(body, target).map_err(|e| Error::corrupt(e.to_string()))?;
    if done != target.len() {
        return Err(Error::corrupt(format!("ends after {done} bytes")));
    }
    Ok(())
}
