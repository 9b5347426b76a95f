//! LZJB, ZFS's first compression algorithm.
//!
//! # On disk
//! Groups of up to eight items, each group preceded by a byte whose bits, from the lowest, say what
//! the items are:
//! ```text
//! 0   1 byte as it is
//! 1   u16 big-endian: length - 3 in the upper 6 bits, how far back in the lower 10
//! ```
//! There is no end mark: the data ends when the decompressed block is full.
//!
//! # Source
//! OpenZFS module/zfs/lzjb.c @be7657e3, which makes the same bytes from page-aligned memory.

use base::{Error, Result};

pub(crate) const MATCH_MIN: usize = 3;
const MATCH_MAX: usize = 66;
pub(crate) const DISTANCE_BITS: u32 = 10;
pub(crate) const DISTANCE_MASK: usize = (1 << DISTANCE_BITS) - 1;
/// The table of positions by hash has this many entries plus one.
const TABLE_MASK: usize = 1023;
pub(crate) const GROUP_ITEMS: usize = 8;
/// Bytes for the flags and eight matches of a group; it starts only if more room than this is left.
const GROUP_ROOM: usize = 1 + 2 * GROUP_ITEMS;

pub(crate) fn compress(source: &[u8], target: &mut [u8]) -> Option<usize> {
    let mut table = [0; TABLE_MASK + 1];
    let (mut at, mut len) = (0usize, 0usize);
    while at < source.len() {
        if target.len().checked_sub(len)? <= GROUP_ROOM {
            return None;
        }
        let flags_at = len;
        len = len.checked_add(1)?;
        let mut flags = 0u8;
        for bit in 0..GROUP_ITEMS {
            let Some(&byte) = source.get(at) else { break };
            if let Some((distance, length)) = find(source, at, &mut table) {
                flags |= 1u8.wrapping_shl(bit as u32);
                let item = (length.wrapping_sub(MATCH_MIN) << DISTANCE_BITS) | distance;
                let [high, low] = (item as u16).to_be_bytes();
                *target.get_mut(len)? = high;
                *target.get_mut(len.wrapping_add(1))? = low;
                len = len.checked_add(2)?;
                at = at.checked_add(length)?;
            } else {
                *target.get_mut(len)? = byte;
                len = len.checked_add(1)?;
                at = at.checked_add(1)?;
            }
        }
        *target.get_mut(flags_at)? = flags;
    }
    Some(len)
}

/// Finds a match for the bytes at `at`, as (distance back, length), and enters `at` into the table.
///
/// The last bytes of a block, where the longest match would not fit, are not matched.
#[inline(always)]
fn find(source: &[u8], at: usize, table: &mut [u16; TABLE_MASK + 1]) -> Option<(usize, usize)> {
    let here = source.get(at..at.checked_add(MATCH_MAX)?)?;
    let &[a, b, c, ..] = here else { return None };
    let hash = u32::from_be_bytes([0, a, b, c]) as usize;
    let hash = hash.wrapping_add(hash >> 9);
    let hash = hash.wrapping_add(hash >> 5);
    let slot = table.get_mut(hash & TABLE_MASK)?;
    // only the lower bits of a position are kept, so the bytes found may be unrelated
    let distance = at.wrapping_sub(usize::from(*slot)) & DISTANCE_MASK;
    *slot = at as u16;
    let from = at.checked_sub(distance)?;
    let there = source.get(from..from.checked_add(MATCH_MAX)?)?;
    if distance == 0 || !there.starts_with(&[a, b, c]) {
        return None;
    }
    let length = here.iter().zip(there).take_while(|(h, t)| h == t).count();
    Some((distance, length))
}

pub(crate) fn decompress(source: &[u8], target: &mut [u8]) -> Result<()> {
    let mut rest = source.iter().copied();
    let mut next = || {
        rest.next()
            .ok_or_else(|| Error::corrupt("the last group is cut off"))
    };
    let mut len = 0usize;
    while len < target.len() {
        let flags = next()?;
        for bit in 0..GROUP_ITEMS {
            if len >= target.len() {
                break;
            }
            if flags.wrapping_shr(bit as u32) & 1 == 0 {
                set(target, len, next()?);
                len = len.saturating_add(1);
                continue;
            }
            let item = usize::from(u16::from_be_bytes([next()?, next()?]));
            let distance = item & DISTANCE_MASK;
            let length = (item >> DISTANCE_BITS).saturating_add(MATCH_MIN);
            if distance == 0 || distance > len {
                return Err(Error::corrupt(format!(
                    "a match {distance} bytes back at byte {len}"
                )));
            }
            len = repeat(target, len, distance, length);
        }
    }
    Ok(())
}

#[inline(always)]
fn set(target: &mut [u8], at: usize, byte: u8) {
    if let Some(slot) = target.get_mut(at) {
        *slot = byte;
    }
}

/// Copies `length` bytes from `distance` back, or until the block is full; returns the new length.
#[inline(always)]
fn repeat(target: &mut [u8], at: usize, distance: usize, length: usize) -> usize {
    let end = at.saturating_add(length).min(target.len());
    let from = at.saturating_sub(distance);
    if distance >= length {
        target.copy_within(from..from.saturating_add(end.saturating_sub(at)), at);
    } else {
        for (from, to) in (from..).zip(at..end) {
            let byte = target.get(from).copied().unwrap_or(0);
            set(target, to, byte);
        }
    }
    end
}
