//! Placement of partitions without an explicit place: gpart's rules.
//!
//! # What it is
//! All figures are sectors. `offset` is how far LBA 0 is into a physical sector, so
//! `sector + offset` has to be a multiple of the alignment. The alignment is what the caller
//! gave, or else the physical sector. If start and size are both given without an alignment, they
//! are taken as they are: that is how misaligned partitions come about.

use base::{Error, ErrorKind, Result};

use crate::{Partition, Shape, Table};

/// What a caller asks for, in sectors.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish {
    /// `-a`
    pub alignment: Option<u64>,
    /// `-b`
    pub start: Option<u64>,
    /// `-s`
    pub size: Option<u64>,
}

/// Parses a number of sectors as gpart does: `8` and `8s` are sectors, `4k` and `4096b` bytes.
#[must_use]
pub fn parse_sectors(text: &str, sectorsize: u32) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let suffix = suffix.to_ascii_lowercase();
    let mut letters = suffix.chars().peekable();
    let power = letters.peek().and_then(|c| "kmgtpe".find(*c));
    if power.is_some() {
        letters.next();
    }
    let scale = 1u64 << (10 * power.map_or(0, |p| p + 1));
    let number = number.checked_mul(scale)?;
    let is_sectors = match letters.next() {
        None => power.is_none(),
        Some('s') => true,
        Some('b') => false,
        Some(_) => return None,
    };
    if letters.next().is_some() {
        return None;
    }
    if is_sectors {
        return Some(number);
    }
    let sector = u64::from(sectorsize);
    number.is_multiple_of(sector).then(|| number / sector)
}

fn down(value: u64, alignment: u64) -> u64 {
    value - value % alignment
}

fn up(value: u64, alignment: u64) -> u64 {
    value
        .checked_next_multiple_of(alignment)
        .unwrap_or(u64::MAX)
}

fn no_space() -> Error {
    Error::new(
        ErrorKind::NoSpace,
        "autofill: No space left on device".to_owned(),
    )
}

/// The alignment, and by how much LBA 0 is off it.
fn alignment(shape: &Shape, wished: Option<u64>) -> (u64, u64) {
    let physical = u64::from(shape.stripesize / shape.sectorsize).max(1);
    let alignment = wished.unwrap_or(physical).max(1);
    (alignment, shape.offset_sectors() % alignment)
}

/// The free ranges in the usable sectors, in order: first and last, inclusive.
#[must_use]
pub fn free_ranges(table: &Table) -> Vec<(u64, u64)> {
    let mut free = Vec::new();
    let mut from = table.first;
    for one in table.in_place() {
        if one.start_sector > from {
            free.push((from, (one.start_sector - 1).min(table.last)));
        }
        from = from.max(one.last_sector().saturating_add(1));
    }
    if from <= table.last {
        free.push((from, table.last));
    }
    free.retain(|(first, last)| first <= last);
    free
}

/// Start and size of a new partition.
///
/// Without a size it is the largest free range, or the rest of the range that contains `start`; with a
/// size, the range with the least left over, at or after `start`.
pub(crate) fn place(table: &Table, wish: &Wish) -> Result<(u64, u64)> {
    if let (Some(start), Some(size), None) = (wish.start, wish.size, wish.alignment) {
        return Ok((start, size));
    }
    let (alignment, offset) = alignment(&table.shape, wish.alignment);
    let shifted_start = wish
        .start
        .map(|start| up(start.saturating_add(offset), alignment));
    let size = wish.size.map(|size| {
        if size > alignment {
            down(size, alignment)
        } else {
            size
        }
    });
    // aligned free ranges, half-open, in sectors shifted by `offset`
    let ranges = free_ranges(table).into_iter().filter_map(|(first, last)| {
        let from = up(first.saturating_add(offset), alignment);
        let until = down(last.saturating_add(offset).saturating_add(1), alignment);
        let from = from.max(if wish.size.is_some() {
            shifted_start.unwrap_or(0)
        } else {
            0
        });
        (from < until).then_some((from, until))
    });
    let found = match (shifted_start, size) {
        (_, Some(size)) => ranges
            .filter(|(from, until)| until - from >= size)
            .min_by_key(|(from, until)| until - from - size)
            .map(|(from, _)| (from, size)),
        (Some(start), None) => ranges
            .into_iter()
            .find(|(from, until)| (*from..*until).contains(&start))
            .map(|(_, until)| (start, until - start)),
        (None, None) => ranges
            .reduce(|best, one| {
                if one.1 - one.0 > best.1 - best.0 {
                    one
                } else {
                    best
                }
            })
            .map(|(from, until)| (from, until - from)),
    };
    let (start, size) = found.ok_or_else(no_space)?;
    Ok((start - offset, size))
}

/// The new size of a partition.
pub(crate) fn resized(table: &Table, one: &Partition, wish: &Wish) -> Result<u64> {
    if let (Some(size), None) = (wish.size, wish.alignment) {
        return Ok(size);
    }
    let (alignment, offset) = alignment(&table.shape, wish.alignment);
    let start = one.start_sector;
    let next = table
        .partitions
        .iter()
        .map(|p| p.start_sector)
        .filter(|s| *s > start)
        .min();
    // the end is aligned, whatever the start
    let size_until = |end: u64| {
        let end = down(end.saturating_add(offset), alignment);
        end.saturating_sub(start.saturating_add(offset))
    };
    if let Some(size) = wish.size
        && (size <= one.sectors || next.is_none())
    {
        return Ok(size_until(start.saturating_add(size)));
    }
    let limit = next.unwrap_or(table.last.saturating_add(1));
    let room = size_until(limit);
    match wish.size {
        Some(size) => Ok(size_until(start.saturating_add(size)).min(room)),
        None if next.is_some() && room <= one.sectors => Err(no_space()),
        None if room < one.sectors => Err(no_space()),
        None => Ok(room),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_as_gpart_does() {
        let check = |text: &str, sectorsize, expect| {
            assert_eq!(parse_sectors(text, sectorsize), expect, "{text}");
        };
        check("8", 512, Some(8));
        check("8s", 512, Some(8));
        check("4k", 512, Some(8));
        check("4K", 4096, Some(1));
        check("1M", 512, Some(2048));
        check("4096b", 512, Some(8));
        check("2gb", 512, Some(4 << 20));
        check("1ks", 512, Some(1024));
        check("512b", 4096, None);
        check("", 512, None);
        check("k", 512, None);
        check("-1", 512, None);
        check("1x", 512, None);
        check("1kk", 512, None);
        check("99999999999g", 512, None);
    }
}
