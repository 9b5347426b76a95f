//! Zero-length encoding: runs of zeros, and everything else as it is.
//!
//! # On disk
//! ```text
//! head n < 64     n + 1 bytes follow as they are
//! head n >= 64    n - 63 zeros
//! ```
//! There is no end mark: the data ends when the decompressed block is full.
//!
//! # Source
//! OpenZFS module/zfs/zle.c @be7657e3, which makes the same bytes.

use base::{Error, Result};

/// Heads below this count literal bytes, the others zeros; also the longest run of literal bytes.
const ZEROS: usize = 64;
/// The longest run of zeros.
const ZEROS_MAX: usize = 256 - ZEROS;

pub(crate) fn compress(source: &[u8], target: &mut [u8]) -> Option<usize> {
    let room = target.len();
    let (mut rest, mut out) = (source, target);
    while !rest.is_empty() {
        let zeros = rest.iter().take(ZEROS_MAX).take_while(|b| **b == 0).count();
        let (run, head) = if zeros > 0 {
            ([].as_slice(), head_byte(zeros, ZEROS)?)
        } else {
            let run = rest.get(..literals(rest))?;
            (run, head_byte(run.len(), 0)?)
        };
        // Like OpenZFS, stop when one byte is left, or, for literals, less than the longest run.
        let (first, body) = out.split_first_mut()?;
        if body.is_empty() || (zeros == 0 && body.len() < ZEROS) {
            return None;
        }
        *first = head;
        let (copy, behind) = body.split_at_mut_checked(run.len())?;
        copy.copy_from_slice(run);
        out = behind;
        rest = rest.get(zeros.max(run.len())..)?;
    }
    room.checked_sub(out.len())
}

/// The number of literal bytes: up to two zeros in a row, or a zero at the end.
fn literals(bytes: &[u8]) -> usize {
    let bytes = bytes.get(..ZEROS).unwrap_or(bytes);
    let pair = bytes.windows(2).position(|pair| pair == [0, 0]);
    let last_is_zero = bytes.last() == Some(&0);
    pair.unwrap_or_else(|| bytes.len().saturating_sub(usize::from(last_is_zero)))
}

/// The head for a run of `len >= 1` of the kind whose heads start at `base`.
fn head_byte(len: usize, base: usize) -> Option<u8> {
    let head = len.checked_sub(1)?.checked_add(base)?;
    u8::try_from(head).ok()
}

pub(crate) fn decompress(source: &[u8], target: &mut [u8]) -> Result<()> {
    let (mut rest, mut out) = (source, target);
    while !out.is_empty() {
        let cut_off = || Error::corrupt("the last run is cut off");
        let (&head, behind) = rest.split_first().ok_or_else(cut_off)?;
        rest = behind;
        let len = usize::from(head).saturating_add(1);
        let is_zeros = len > ZEROS;
        let len = if is_zeros {
            len.wrapping_sub(ZEROS)
        } else {
            len
        };
        let (run, behind) = out
            .split_at_mut_checked(len)
            .ok_or_else(|| Error::corrupt(format!("a run of {len} bytes is beyond the end")))?;
        out = behind;
        if is_zeros {
            run.fill(0);
        } else {
            let (bytes, behind) = rest.split_at_checked(len).ok_or_else(cut_off)?;
            run.copy_from_slice(bytes);
            rest = behind;
        }
    }
    Ok(())
}
