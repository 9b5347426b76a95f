//! nvlists: ordered lists of named, typed values, and their two encodings.
//!
//! # What it is
//! Pool configurations, bootloader variables, history records, send stream headers and extended
//! attributes are nvlists. [`NvList`] keeps pairs in order; order reaches the disk, so the same
//! list always gives the same bytes. [`xdr`] is what labels and the MOS hold, big-endian words.
//! [`native`] is a memory image with the pointers zeroed, used for history records and the cache file.
//!
//! # On disk
//! Both begin with 4 bytes: encoding (0 native, 1 XDR), byte order of the writer (1 little), two
//! reserved. [`decode`] chooses by the first of them. See docs/spec/nvlist.md.
//!
//! # Invariants
//! 1. Names and strings contain no NUL; they need not be UTF-8 ([`NvString`]).
//! 2. Decoders take memory in proportion to their input, and nest at most [`DEPTH_MAX`] deep.
//! 3. `decode(encode(list)) == list`, in both encodings.
//!
//! # Source
//! OpenZFS module/nvpair/nvpair.c, include/sys/nvpair.h, lib/libnvpair @be7657e3.
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
        reason = "tests may panic"
    )
)]

mod dump;
#[doc(hidden)]
pub mod fuzzing;
mod json;
mod list;
pub mod native;
mod reader;
#[cfg(test)]
mod tests;
mod value;
pub mod xdr;

pub use list::NvList;
pub use native::{decode_native, encode_native};
pub use value::{NvString, NvType, NvValue};
pub use xdr::{decode_xdr, encode_xdr};

use base::{Error, ErrorKind, Result};

/// The deepest nesting of lists (`nvpair_max_recursion` of user space).
pub const DEPTH_MAX: usize = 100;

/// The most bytes of a name, without NUL: `nvp_name_sz`, which counts the NUL, has 15 bits.
pub const NAME_MAX: usize = (1 << 15) - 2;

/// `NV_ENCODE_NATIVE`.
pub(crate) const ENCODE_NATIVE: u8 = 0;
/// `NV_ENCODE_XDR`.
pub(crate) const ENCODE_XDR: u8 = 1;
/// `nvh_endian` of a big-endian writer.
pub(crate) const BIG_ENDIAN: u8 = 0;
/// `nvh_endian` of a little-endian writer.
pub(crate) const LITTLE_ENDIAN: u8 = 1;
/// Bytes of the header in front of both encodings.
pub(crate) const HEADER_SIZE: usize = 4;

/// `nvlist_unpack`: decodes either encoding; bytes after the list are ignored.
///
/// # Errors
/// `Corrupt` if the bytes are not an nvlist, `Unsupported` for other byte orders,
/// unknown encodings and versions.
#[doc(alias = "nvlist_unpack")]
pub fn decode(bytes: &[u8]) -> Result<NvList> {
    match bytes.first() {
        Some(&ENCODE_NATIVE) => decode_native(bytes),
        _ => decode_xdr(bytes),
    }
}

/// Checks the 4-byte header; returns the byte order and the bytes after it.
fn strip_header(bytes: &[u8], encoding: u8) -> Result<(u8, &[u8])> {
    let Some((&[found, endian, _, _], rest)) = bytes.split_first_chunk::<HEADER_SIZE>() else {
        return Err(Error::corrupt(format!("nvlist of {} bytes", bytes.len())));
    };
    if found != encoding {
        let text = format!("nvlist encoding {found}, expected {encoding}");
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    Ok((endian, rest))
}

/// `NV_ALIGN`: rounds up to a multiple of 8.
pub(crate) fn align8(size: usize) -> usize {
    size.saturating_add(7) & !7
}

/// `nvp_size`: bytes that a pair takes in memory and in the native encoding.
pub(crate) fn pair_size(name: &NvString, value: &NvValue) -> usize {
    value_offset(name).saturating_add(align8(value.native_size()))
}

/// `NVP_VALOFF`: offset of the value in a native pair.
pub(crate) fn value_offset(name: &NvString) -> usize {
    align8(name.as_bytes().len().saturating_add(16 + 1))
}

/// A size that the format stores in 31 bits.
#[track_caller]
pub(crate) fn size_i32(size: usize) -> i32 {
    i32::try_from(size).unwrap_or_else(|_| panic!("nvlist of {size} bytes"))
}
