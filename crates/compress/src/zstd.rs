//! Zstandard frames without their magic number, after a header.
//!
//! # On disk
//! ```text
//! 0  4  c_len    big-endian; bytes of the frame
//! 4  1  level    the writer's level, as [`ZstdLevel::number_in_block`]
//! 5  3  version  of the writer's zstd, big-endian (1.5.7 = 10507)
//! 8     the frame
//! ```
//! Early writers on big-endian hosts put the version before the level. The version's first byte is
//! zero in all versions so far, and its position tells the order.
//!
//! # Why not simpler
//! At level 3 and up, OpenZFS tries LZ4 first, to give up early on incompressible data. At levels
//! below 10 zstd itself gives up just as fast, and the LZ4 pass would take more than half the time
//! of zstd-3. From 10 on, level 1 is tried first, which takes at most a few percent of the time.
//!
//! # Source
//! OpenZFS module/zstd/zfs_zstd.c, include/sys/zstd/zstd.h @be7657e3.

use crate::ZstdLevel;
use base::{Error, Result};
use std::cell::RefCell;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat, get_error_name};

const HEADER_BYTES: usize = 8;
/// From this level on, a failed attempt costs enough to try a cheap one first.
const DEAR_LEVEL: i32 = 10;
/// Below this size, in bytes, no attempt costs enough for that.
const DEAR_BYTES: usize = 128 << 10;

thread_local! {
    static COMPRESSOR: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

pub(crate) fn compress(level: ZstdLevel, source: &[u8], target: &mut [u8]) -> Option<usize> {
    let [0, version @ ..] = zstd_safe::version_number().to_be_bytes() else {
        return None;
    };
    let (header, frame) = target.split_first_chunk_mut::<HEADER_BYTES>()?;
    if level.get() >= DEAR_LEVEL && source.len() >= DEAR_BYTES {
        compress_frame(1, source, frame)?;
    }
    let len = compress_frame(level.get(), source, frame)?;
    let [a, b, c, d] = u32::try_from(len).ok()?.to_be_bytes();
    let [x, y, z] = version;
    *header = [a, b, c, d, level.number_in_block(), x, y, z];
    len.checked_add(HEADER_BYTES)
}

fn compress_frame(level: i32, source: &[u8], frame: &mut [u8]) -> Option<usize> {
    COMPRESSOR.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = Some(new_compressor()?);
        }
        let context = slot.as_mut()?;
        context
            .set_parameter(CParameter::CompressionLevel(level))
            .ok()?;
        context.compress2(frame, source).ok()
    })
}

fn new_compressor() -> Option<CCtx<'static>> {
    let mut context = CCtx::try_create()?;
    for parameter in [
        CParameter::Format(FrameFormat::Magicless),
        CParameter::ContentSizeFlag(false),
        CParameter::ChecksumFlag(false),
    ] {
        context.set_parameter(parameter).ok()?;
    }
    Some(context)
}

pub(crate) fn decompress(source: &[u8], target: &mut [u8]) -> Result<()> {
    level(source)?;
    let (length, _, rest) = split(source)?;
    let frame = usize::try_from(length)
        .ok()
        .and_then(|length| rest.get(..length))
        .ok_or_else(|| Error::corrupt(format!("c_len {length} is beyond the block")))?;
    DECOMPRESSOR.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = Some(new_decompressor()?);
        }
        let Some(context) = slot.as_mut() else {
            return Err(out_of_memory());
        };
        let done = context
            .decompress(target, frame)
            .map_err(|code| Error::corrupt(get_error_name(code)))?;
        if done != target.len() {
            return Err(Error::corrupt(format!("ends after {done} bytes")));
        }
        Ok(())
    })
}

fn new_decompressor() -> Result<DCtx<'static>> {
    let mut context = DCtx::try_create().ok_or_else(out_of_memory)?;
    context
        .set_parameter(DParameter::Format(FrameFormat::Magicless))
        .map_err(|code| Error::invalid(get_error_name(code)))?;
    Ok(context)
}

fn out_of_memory() -> Error {
    Error::new(base::ErrorKind::Io, "no memory for a zstd context")
}

/// The level in the header, in whichever order and byte order it was written.
pub(crate) fn level(source: &[u8]) -> Result<ZstdLevel> {
    let (_, bytes, _) = split(source)?;
    let number = match bytes {
        [first, _, _, 0] => first,
        [_, _, 0, last] => last,
        [first, 0, _, _] => first,
        [0, _, _, last] => last,
        _ => 0,
    };
    ZstdLevel::from_number(number)
        .filter(|level| *level != ZstdLevel::DEFAULT)
        .ok_or_else(|| Error::corrupt(format!("level {number} of {bytes:02x?} is not known")))
}

/// Length of the frame, level and version, and the bytes after the header.
fn split(source: &[u8]) -> Result<(u32, [u8; 4], &[u8])> {
    match source.split_first_chunk::<HEADER_BYTES>() {
        Some((&[a, b, c, d, level @ ..], rest)) => {
            Ok((u32::from_be_bytes([a, b, c, d]), level, rest))
        }
        None => Err(Error::corrupt("the header is cut off")),
    }
}
