//! What a write has for each child.

use base::BlockBuf;
use phys::label::ASHIFT_MAX;

use super::row::{Column, Row};

/// A sector of zeros, of the largest size.
static ZEROS: [u8; 1 << ASHIFT_MAX] = [0; 1 << ASHIFT_MAX];

/// What goes to one child: pieces that follow each other, and where the first one goes.
pub(super) struct Strip<'a> {
    pub(super) child: usize,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) pieces: Vec<&'a [u8]>,
}

impl<'a> Strip<'a> {
    fn new(child: usize) -> Self {
        Strip {
            child,
            start: 0,
            end: 0,
            pieces: Vec::new(),
        }
    }

    /// Whether a column can be written with the same command. Up to a sector between the pieces was allocated
    /// together with them and holds nothing: zeros are written there.
    fn is_followed_by(&self, column: Column) -> bool {
        (self.end..=self.end + ZEROS.len() as u64).contains(&column.offset)
    }

    fn add(&mut self, column: Column, bytes: &'a [u8]) {
        if self.pieces.is_empty() {
            (self.start, self.end) = (column.offset, column.offset);
        }
        self.fill(column.offset);
        self.pieces.push(bytes);
        // What is in front of the vdev, in its scratch area, has wrapped around, and ends at 0.
        self.end = self.end.wrapping_add(bytes.len() as u64);
        self.fill(column.offset.wrapping_add(column.stored as u64));
    }

    fn fill(&mut self, end: u64) {
        while self.end < end {
            let len = (end - self.end).min(ZEROS.len() as u64);
            self.pieces.push(&ZEROS[..len as usize]);
            self.end += len;
        }
    }
}

/// What children get; some of them nothing, some more than one strip.
pub(super) struct Strips<'a> {
    strips: Vec<Strip<'a>>,
    /// Each strip ends at multiples of this.
    end: u64,
    /// Whether a sector between two columns is written to.
    fills_gaps: bool,
}

impl<'a> Strips<'a> {
    pub(super) fn new(children: usize, end: u64, fills_gaps: bool) -> Self {
        Strips {
            strips: (0..children).map(Strip::new).collect(),
            end,
            fills_gaps,
        }
    }

    /// Adds a column of the block behind those before.
    pub(super) fn add(&mut self, column: Column, bytes: &'a [u8]) {
        let ends = column.offset.is_multiple_of(self.end);
        let strip = &mut self.strips[column.child];
        let goes_on = if self.fills_gaps {
            strip.is_followed_by(column)
        } else {
            strip.end == column.offset
        };
        if strip.pieces.is_empty() || !ends && goes_on {
            return strip.add(column, bytes);
        }
        let mut next = Strip::new(column.child);
        next.add(column, bytes);
        let ended = std::mem::replace(strip, next);
        self.strips.push(ended);
    }

    /// Those that are not empty.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Strip<'a>> {
        self.strips.iter().filter(|strip| !strip.pieces.is_empty())
    }
}

/// Cuts the bytes of a row into its data columns.
pub(super) fn cut<R: Row>(row: R, nparity: usize, bytes: &[u8]) -> Vec<&[u8]> {
    let mut rest = bytes;
    let lens = row.columns().skip(nparity).map(|column| column.bytes);
    lens.map(|len| {
        let (column, after) = rest.split_at(len);
        rest = after;
        column
    })
    .collect()
}

/// How many bytes of its block a row has.
pub(super) fn data_len<R: Row>(row: R, nparity: usize) -> usize {
    row.columns().skip(nparity).map(|column| column.bytes).sum()
}

/// The parity of the data columns of a row.
pub(super) fn parity_of(data: &[&[u8]], nparity: usize) -> Vec<BlockBuf> {
    let len = data[0].len();
    let mut parity: Vec<_> = (0..nparity).map(|_| BlockBuf::scratch(len)).collect();
    let mut slices: Vec<&mut [u8]> = parity.iter_mut().map(|buf| &mut buf[..]).collect();
    parity::generate(data, &mut slices);
    parity
}
