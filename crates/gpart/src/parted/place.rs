//! Where parted puts a partition.
//!
//! # What it is
//! A location denotes a range of sectors (half a unit to either side, just the sector itself for sectors, bytes and
//! binary units). First, the sectors nearest to the request are sought that are in the ranges, in free space, and on
//! the grain of the alignment; then without the grain, with a warning; if there are none, parted names the closest
//! possible location and gives up.

use super::unit::{Location, Unit};
use crate::{Scheme, Shape, Table};

/// Sectors that are `offset` past a multiple of `grain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// In sectors.
    pub offset: u64,
    /// In sectors; at least 1.
    pub grain: u64,
}

impl Alignment {
    const ANY: Alignment = Alignment {
        offset: 0,
        grain: 1,
    };

    /// Whether a sector is aligned.
    #[must_use]
    pub fn holds(&self, sector: u64) -> bool {
        sector % self.grain == self.offset % self.grain
    }

    /// What parted prints for a start that is not aligned.
    #[must_use]
    pub fn arithmetic(&self, sector: u64) -> String {
        format!("{sector}s % {}s != {}s", self.grain, self.offset)
    }

    /// The aligned sector nearest to `wish` in `[low, high]`.
    fn nearest(&self, wish: u64, low: u64, high: u64) -> Option<u64> {
        if low > high {
            return None;
        }
        let wish = wish.clamp(low, high);
        let past = (wish + self.grain - self.offset % self.grain) % self.grain;
        let below = wish.checked_sub(past).filter(|s| *s >= low);
        let above = wish
            .checked_add((self.grain - past) % self.grain)
            .filter(|s| *s <= high);
        match (below, above) {
            (Some(below), Some(above)) if above - wish < wish - below => Some(above),
            (Some(below), _) => Some(below),
            (None, above) => above,
        }
    }
}

/// The alignments that a disk prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Whole physical sectors.
    pub minimal: Alignment,
    /// 1 MiB if that is a multiple of the physical sector, else the physical sector.
    pub optimal: Alignment,
}

impl Topology {
    /// The alignments of a disk. An image file has no preference of its own.
    #[must_use]
    pub fn of(shape: &Shape) -> Topology {
        const MIB: u64 = 1 << 20;
        let sector = u64::from(shape.sectorsize);
        let offset = u64::from(shape.stripeoffset) / sector;
        let minimal = u64::from(shape.stripesize.max(shape.sectorsize)) / sector;
        let optimal = if MIB.is_multiple_of(minimal * sector) {
            MIB / sector
        } else {
            minimal
        };
        let alignment = |grain| Alignment { offset, grain };
        Topology {
            minimal: alignment(minimal),
            optimal: alignment(optimal),
        }
    }
}

/// Where a partition goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its first sector.
    pub start: u64,
    /// Its last sector.
    pub end: u64,
    /// If it is not aligned: the arithmetic.
    pub misaligned: Option<String>,
    /// If it is not where it was asked for: parted's words.
    pub moved: Option<String>,
}

/// Why it cannot be placed, in parted's words.
pub type Refusal = String;

/// First and last sector, inclusive.
type Range = (u64, u64);

fn intersect(one: Range, other: Range) -> Range {
    (one.0.max(other.0), one.1.min(other.1))
}

/// The sectors that the scheme allows for partitions.
fn usable(table: &Table) -> Range {
    match table.scheme() {
        Scheme::Gpt => (table.first, table.last),
        Scheme::Mbr => (1, table.last),
    }
}

/// The stretch of the disk that contains a sector: metadata, a partition, or free space.
fn piece(table: &Table, sector: u64, track: u64) -> Range {
    let disk_last = table.shape.sectors().saturating_sub(1);
    let head = match table.scheme() {
        Scheme::Gpt => table.first,
        Scheme::Mbr => track,
    };
    let mut piece = (0, disk_last);
    let mut cut = |range: Range| {
        if (range.0..=range.1).contains(&sector) {
            piece = range;
        } else if range.1 < sector {
            piece.0 = piece.0.max(range.1.saturating_add(1));
        } else {
            piece.1 = piece.1.min(range.0.saturating_sub(1));
        }
    };
    if head > 0 {
        let first = table.partitions.iter().map(|p| p.start_sector).min();
        cut((0, head.min(first.unwrap_or(head)).max(1) - 1));
    }
    if table.scheme() == Scheme::Gpt && table.last < disk_last {
        cut((table.last + 1, disk_last));
    }
    for one in table.partitions.iter().filter(|p| p.sectors > 0) {
        cut((one.start_sector, one.last_sector()));
    }
    piece
}

/// The nearer of two boundaries that are in the range, or the sector itself if neither is.
fn snap(sector: u64, range: Range, low: Option<u64>, high: u64) -> u64 {
    let is_in = |s: &u64| (range.0..=range.1).contains(s);
    let low = low.filter(is_in);
    let high = Some(high).filter(is_in);
    match (low, high) {
        (Some(low), Some(high)) if high - sector < sector - low => high,
        (Some(low), _) => low,
        (None, Some(high)) => high,
        (None, None) => sector,
    }
}

/// The free range around a start, as parted determines it.
fn region(table: &Table, start: u64) -> Option<Range> {
    let mut low = 0;
    let mut high = table.shape.sectors().saturating_sub(1);
    for one in table.in_place() {
        if one.start_sector < start || low >= one.start_sector {
            low = low.max(one.last_sector().saturating_add(1));
        } else {
            high = one.start_sector - 1;
            break;
        }
    }
    (low < high).then_some((low, high))
}

/// The start and end nearest to the wish; the start, and the sector after the end, are aligned.
fn solve(wish: Range, starts: Range, ends: Range, alignment: Alignment) -> Option<Range> {
    let start = alignment.nearest(wish.0, starts.0, starts.1)?;
    let end = alignment.nearest(
        wish.1.saturating_add(1),
        ends.0.max(start).saturating_add(1),
        ends.1.saturating_add(1),
    )?;
    Some((start, end - 1))
}

/// Checks that both are sectors of the disk and in order.
fn in_order(start: i64, end: i64) -> Result<Range, Refusal> {
    match (u64::try_from(start), u64::try_from(end)) {
        (Ok(first), Ok(last)) if first <= last => Ok((first, last)),
        _ => Err(format!(
            "Error: Can't have the end before the start! (start sector={start} length={})",
            i128::from(end) - i128::from(start) + 1
        )),
    }
}

/// Places a new partition. `track`: sectors per track, kept free by an MBR.
///
/// # Errors
/// What parted says.
pub fn place(
    table: &Table,
    start: &Location,
    end: &Location,
    alignment: Option<Alignment>,
    (unit, track): (Unit, u64),
) -> Result<Placed, Refusal> {
    let (start_sector, end_sector) = in_order(start.sector, end.sector)?;
    let from = piece(table, start_sector, track);
    let until = piece(table, end_sector, track);
    let starts = (start.range.0, start.range.1.min(end_sector));
    let wish_start = snap(start_sector, starts, Some(from.0), from.1.saturating_add(1));
    let ends = (end.range.0.max(wish_start), end.range.1);
    let wish_end = snap(end_sector, ends, until.0.checked_sub(1), until.1);
    let wish = if wish_start <= wish_end {
        (wish_start, wish_end)
    } else {
        (start_sector, end_sector)
    };
    let Some(free) = region(table, wish.0) else {
        return Err("Error: Can't have overlapping partitions.".to_owned());
    };
    let free = intersect(free, usable(table));
    let aligned = alignment.unwrap_or(Alignment::ANY);
    let (starts, ends) = (intersect(free, start.range), intersect(free, end.range));
    let found =
        solve(wish, starts, ends, aligned).or_else(|| solve(wish, starts, ends, Alignment::ANY));
    let placed = |(start, end), moved| {
        let is_off = alignment.filter(|a| !a.holds(start));
        Placed {
            start,
            end,
            misaligned: is_off.map(|a| a.arithmetic(start)),
            moved,
        }
    };
    if let Some(found) = found {
        return Ok(placed(found, None));
    }
    let Some((low, high)) = solve(wish, free, free, Alignment::ANY) else {
        return Err("Error: Unable to satisfy all constraints on the partition.".to_owned());
    };
    let shape = &table.shape;
    let text = |sector| unit.format_sector(shape, sector);
    let moved = format!(
        "You requested a partition from {} to {} (sectors {}..{}).\n\
         The closest location we can manage is {} to {} (sectors {low}..{high}).",
        text(start_sector),
        text(end_sector),
        start_sector,
        end_sector,
        text(low),
        text(high)
    );
    Ok(placed((low, high), Some(moved)))
}

/// The new end of partition `index`.
///
/// # Errors
/// What parted says.
pub fn resize_end(table: &Table, index: u32, end: &Location) -> Result<u64, Refusal> {
    let Some(one) = table.partition(index) else {
        return Err("Error: Partition doesn't exist.".to_owned());
    };
    let mut others = table.clone();
    others.partitions.retain(|p| p.index != index);
    let first = i64::try_from(one.start_sector).unwrap_or(i64::MAX);
    let (_, end_sector) = in_order(first, end.sector)?;
    let next = others.partitions.iter().map(|p| p.start_sector);
    let next = next.filter(|s| *s > one.start_sector).min();
    let limit = next.map_or(table.last, |next| next - 1).min(table.last);
    let until = piece(&others, end_sector, 1);
    let wish = snap(end_sector, end.range, until.0.checked_sub(1), until.1);
    let low = end.range.0.max(one.start_sector);
    let high = end.range.1.min(limit);
    if low > high {
        return Err("Error: Can't have overlapping partitions.".to_owned());
    }
    Ok(wish.clamp(low, high))
}
