//! Checksums as a big-endian host computes and stores them.
//!
//! # What it is
//! fletcher sums words in the order of the host, so a big-endian host has other sums for the same bytes. The hashes
//! are the same bytes everywhere; where a little-endian host reads them as little-endian words, a big-endian one reads
//! big-endian ones. The words here are those that the block pointer has after it was converted to this host's order.
//!
//! # Source
//! OpenZFS module/zfs/zio_checksum.c (`zio_checksum_table`, the second function of each row),
//! module/zcommon/zfs_fletcher.c (`fletcher_4_byteswap`) @be7657e3.

use crate::{Words, fletcher2_append, fletcher4_append};
use phys::ChecksumType;

/// Bytes that are converted at a time, on the stack.
const PIECE_BYTES: usize = 4096;

/// `native` is what a little-endian host computes of `bytes`; the result is what a big-endian host does.
pub(crate) fn digest(
    kind: ChecksumType,
    bytes: &[u8],
    native: impl FnOnce(&[u8]) -> Words,
) -> Words {
    match kind {
        ChecksumType::Fletcher2 | ChecksumType::Zilog => append(kind, [0; 4], bytes),
        ChecksumType::Fletcher4 | ChecksumType::Zilog2 => append(kind, [0; 4], bytes),
        ChecksumType::Sha512 | ChecksumType::Skein | ChecksumType::EdonR | ChecksumType::Blake3 => {
            native(bytes).map(u64::swap_bytes)
        }
        _ => native(bytes),
    }
}

/// The words of fletcher4 that a big-endian host computes.
#[must_use]
pub fn fletcher4_big_endian(bytes: &[u8]) -> Words {
    append(ChecksumType::Fletcher4, [0; 4], bytes)
}

/// Continues the sums of a fletcher function; `bytes` are whole words.
pub(crate) fn append(kind: ChecksumType, mut sums: Words, bytes: &[u8]) -> Words {
    let is_fletcher2 = matches!(kind, ChecksumType::Fletcher2 | ChecksumType::Zilog);
    let mut piece = [0; PIECE_BYTES];
    for chunk in bytes.chunks(PIECE_BYTES) {
        let swapped = &mut piece[..chunk.len()];
        swapped.copy_from_slice(chunk);
        sums = match is_fletcher2 {
            true => fletcher2_append(sums, reversed::<8>(swapped)),
            false => fletcher4_append(sums, reversed::<4>(swapped)),
        };
    }
    sums
}

/// Reverses the bytes of each word of `N` bytes.
fn reversed<const N: usize>(bytes: &mut [u8]) -> &[u8] {
    let (words, _) = bytes.as_chunks_mut::<N>();
    words.iter_mut().for_each(|word| word.reverse());
    bytes
}
