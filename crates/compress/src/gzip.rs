//! zlib streams, which is what ZFS calls gzip.
//!
//! # Source
//! OpenZFS module/zfs/gzip.c; RFC 1950 and 1951.

use crate::GzipLevel;
use base::{Error, Result};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use std::cell::RefCell;

thread_local! {
    /// The last compressor of this thread: it takes a quarter of a megabyte to make one.
    static COMPRESSOR: RefCell<Option<(GzipLevel, Compress)>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Decompress> = RefCell::new(Decompress::new(true));
}

pub(crate) fn compress(level: GzipLevel, source: &[u8], target: &mut [u8]) -> Option<usize> {
    COMPRESSOR.with_borrow_mut(|slot| {
        if slot.as_ref().is_none_or(|(have, _)| *have != level) {
            let compression = Compression::new(u32::from(level.get()));
            *slot = Some((level, Compress::new(compression, true)));
        }
        let (_, stream) = slot.as_mut()?;
        stream.reset();
        match stream.compress(source, target, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => usize::try_from(stream.total_out()).ok(),
            _ => None,
        }
    })
}

pub(crate) fn decompress(source: &[u8], target: &mut [u8]) -> Result<()> {
    DECOMPRESSOR.with_borrow_mut(|stream| {
        stream.reset(true);
        let status = stream
            .decompress(source, target, FlushDecompress::Finish)
            .map_err(|e| Error::corrupt(e.to_string()))?;
        let done = stream.total_out();
        if status != Status::StreamEnd {
            return Err(Error::corrupt(format!("no end after {done} bytes")));
        }
        if done != target.len() as u64 {
            return Err(Error::corrupt(format!("ends after {done} bytes")));
        }
        Ok(())
    })
}
