//! Columns of any lengths, cut into pieces of one length.
//!
//! # What it is
//! Between two lengths that columns have, each column is there or not: such a segment has columns of one
//! length and empty ones. Of a segment, whole [`UNIT`]s are worked on where they lie; the bytes behind them
//! are copied to units of zeros and back.

/// What the lengths that a kernel works on are multiples of: what the widest one has in registers at a time.
pub(crate) const UNIT: usize = 256;

/// Calls `work` for each segment with the pieces of `from`, which are read, and of `to`, which are written.
/// Columns of `to` must not be longer than the longest one of `from`.
pub(crate) fn for_each(
    from: &[&[u8]],
    to: &mut [&mut [u8]],
    mut work: impl FnMut(&[&[u8]], &mut [&mut [u8]]),
) {
    let mut ends: Vec<usize> = from.iter().map(|column| column.len()).collect();
    ends.extend(to.iter().map(|column| column.len()));
    ends.sort_unstable();
    ends.dedup();
    let (mut pieces, mut start) = (Vec::with_capacity(from.len()), 0);
    for end in ends {
        let middle = start + (end - start) / UNIT * UNIT;
        if middle > start {
            pieces.clear();
            for column in from {
                pieces.push(piece_of(column, start, middle));
            }
            let mut targets: Vec<&mut [u8]> = Vec::with_capacity(to.len());
            for column in to.iter_mut() {
                let is_there = column.len() >= middle;
                let range = if is_there { start..middle } else { 0..0 };
                targets.push(&mut column[range]);
            }
            work(&pieces, &mut targets);
        }
        if end > middle {
            work_on_rest(from, to, middle..end, &mut work);
        }
        start = end;
    }
}

/// A part of a column; of a shorter one nothing.
fn piece_of(column: &[u8], start: usize, end: usize) -> &[u8] {
    column.get(start..end).unwrap_or_default()
}

/// A part that is less than a unit.
fn work_on_rest(
    from: &[&[u8]],
    to: &mut [&mut [u8]],
    range: std::ops::Range<usize>,
    work: &mut impl FnMut(&[&[u8]], &mut [&mut [u8]]),
) {
    let len = range.len();
    let padded = |column: &&[u8]| {
        let piece = piece_of(column, range.start, range.end);
        let mut unit = [0; UNIT];
        unit[..piece.len()].copy_from_slice(piece);
        unit
    };
    let padded: Vec<[u8; UNIT]> = from.iter().map(padded).collect();
    let pieces: Vec<&[u8]> = padded.iter().map(|unit| &unit[..]).collect();
    let mut results = vec![[0; UNIT]; to.len()];
    let mut targets: Vec<&mut [u8]> = results.iter_mut().map(|unit| &mut unit[..]).collect();
    work(&pieces, &mut targets);
    for (column, result) in to.iter_mut().zip(&results) {
        if let Some(piece) = column.get_mut(range.clone()) {
            piece.copy_from_slice(&result[..len]);
        }
    }
}
