//! zlib streams, which is what ZFS calls gzip.
//!
//! # Invariants
//! A context is reused only after a stream that ended properly. After one that did not, `reset` of
//! zlib-rs 0.6.8 is not enough: if the target became full, it keeps `block_open`, so that level 1
//! (`deflate_quick`) omits the header of the next stream's first block; and it keeps the position
//! of the pending output, so that at every level the next stream has less room for that and may
//! panic. A new context costs some microseconds, the failed attempt thousands.
//!
//! # Source
//! OpenZFS module/zfs/gzip.c; RFC 1950 and 1951.

use crate::GzipLevel;
use base::{Error, Result};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use std::cell::Cell;

thread_local! {
    /// The last compressor of this thread, kept because a new one allocates a quarter of a megabyte.
    static COMPRESSOR: Cell<Option<(GzipLevel, Compress)>> = const { Cell::new(None) };
    static DECOMPRESSOR: Cell<Option<Decompress>> = const { Cell::new(None) };
}

pub(crate) fn compress(level: GzipLevel, source: &[u8], target: &mut [u8]) -> Option<usize> {
    let kept = COMPRESSOR.take().filter(|(have, _)| *have == level);
    let mut stream = match kept {
        Some((_, mut stream)) => {
            stream.reset();
            stream
        }
        None => Compress::new(Compression::new(u32::from(level.get())), true),
    };
    match stream.compress(source, target, FlushCompress::Finish) {
        Ok(Status::StreamEnd) => {
            let len = usize::try_from(stream.total_out()).ok();
            COMPRESSOR.set(Some((level, stream)));
            len
        }
        _ => None,
    }
}

pub(crate) fn decompress(source: &[u8], target: &mut [u8]) -> Result<()> {
    let mut stream = match DECOMPRESSOR.take() {
        Some(mut stream) => {
            stream.reset(true);
            stream
        }
        None => Decompress::new(true),
    };
    let status = stream
        .decompress(source, target, FlushDecompress::Finish)
        .map_err(|e| Error::corrupt(e.to_string()))?;
    let done = stream.total_out();
    if status != Status::StreamEnd {
        return Err(Error::corrupt(format!("no end after {done} bytes")));
    }
    DECOMPRESSOR.set(Some(stream));
    if done != target.len() as u64 {
        return Err(Error::corrupt(format!("ends after {done} bytes")));
    }
    Ok(())
}
