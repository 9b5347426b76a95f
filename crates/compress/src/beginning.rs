//! The beginning of a block of which not all stored bytes are at hand, or of which it is not known how many there are.
//!
//! # On disk
//! As [`lz4`](crate::lz4) and [`lzjb`](crate::lzjb) say.
//!
//! # Source
//! OpenZFS module/zfs/lzjb.c; the LZ4 block format.

use phys::CompressType;

use crate::lzjb::{DISTANCE_BITS, DISTANCE_MASK, GROUP_ITEMS, MATCH_MIN};

/// Bytes of the length before an LZ4 block.
const PREFIX_BYTES: usize = 4;
/// The shortest match of LZ4.
const LZ4_MATCH_MIN: usize = 4;
/// A length that goes on in the bytes that follow.
const LZ4_LONG: usize = 15;

/// What a block begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// How many stored bytes it is made of.
    pub taken: usize,
    /// How many bytes of the target are filled.
    pub made: usize,
}

/// Decompresses as much as these stored bytes say, or fits into the target. `None` if no block of this kind begins with
/// them, or the kind is neither LZ4 nor LZJB.
#[must_use]
pub fn beginning(kind: CompressType, source: &[u8], target: &mut [u8]) -> Option<Beginning> {
    let mut stream = Stream {
        source,
        taken: 0,
        target,
        made: 0,
    };
    match kind {
        CompressType::Lz4 => stream.lz4()?,
        CompressType::Lzjb => stream.lzjb()?,
        _ => return None,
    }
    Some(Beginning {
        taken: stream.taken,
        made: stream.made,
    })
}

struct Stream<'a> {
    source: &'a [u8],
    taken: usize,
    target: &'a mut [u8],
    made: usize,
}

impl Stream<'_> {
    fn next(&mut self) -> Option<u8> {
        let byte = self.source.get(self.taken).copied()?;
        self.taken = self.taken.saturating_add(1);
        Some(byte)
    }

    fn is_full(&self) -> bool {
        self.made >= self.target.len()
    }

    fn push(&mut self, byte: u8) {
        if let Some(slot) = self.target.get_mut(self.made) {
            *slot = byte;
            self.made = self.made.saturating_add(1);
        }
    }

    /// Copies from before, as far as there is room; `None` if there is nothing at this distance.
    fn repeat(&mut self, distance: usize, length: usize) -> Option<()> {
        if distance == 0 || distance > self.made {
            return None;
        }
        for _ in 0..length {
            if self.is_full() {
                break;
            }
            let from = self.made.saturating_sub(distance);
            let byte = self.target.get(from).copied()?;
            self.push(byte);
        }
        Some(())
    }

    /// `None` if the stream makes no sense; it may end anywhere.
    fn lzjb(&mut self) -> Option<()> {
        while !self.is_full() {
            let Some(flags) = self.next() else {
                return Some(());
            };
            for bit in 0..GROUP_ITEMS {
                if self.is_full() {
                    break;
                }
                let Some(byte) = self.next() else {
                    return Some(());
                };
                if flags.wrapping_shr(bit as u32) & 1 == 0 {
                    self.push(byte);
                    continue;
                }
                let Some(low) = self.next() else {
                    return Some(());
                };
                let item = usize::from(u16::from_be_bytes([byte, low]));
                let length = (item >> DISTANCE_BITS).saturating_add(MATCH_MIN);
                self.repeat(item & DISTANCE_MASK, length)?;
            }
        }
        Some(())
    }

    /// `None` if the stream makes no sense; it may end anywhere.
    fn lz4(&mut self) -> Option<()> {
        let prefix = self.source.first_chunk::<PREFIX_BYTES>()?;
        let len = usize::try_from(u32::from_be_bytes(*prefix)).ok()?;
        let end = len.saturating_add(PREFIX_BYTES).min(self.source.len());
        self.source = self.source.get(..end)?;
        self.taken = PREFIX_BYTES;
        while !self.is_full() {
            let Some(token) = self.next() else {
                return Some(());
            };
            let Some(literals) = self.lz4_length(usize::from(token >> 4)) else {
                return Some(());
            };
            for _ in 0..literals {
                let Some(byte) = self.next() else {
                    return Some(());
                };
                self.push(byte);
                if self.is_full() {
                    return Some(());
                }
            }
            // The last sequence has no match.
            let (Some(low), Some(high)) = (self.next(), self.next()) else {
                return Some(());
            };
            let distance = u16::from_le_bytes([low, high]).into();
            let Some(length) = self.lz4_length(usize::from(token & 0xf)) else {
                // Not all of the length is at hand: at least so many.
                return self.repeat(distance, LZ4_LONG);
            };
            self.repeat(distance, length.saturating_add(LZ4_MATCH_MIN))?;
        }
        Some(())
    }

    fn lz4_length(&mut self, nibble: usize) -> Option<usize> {
        let mut length = nibble;
        if nibble == LZ4_LONG {
            loop {
                let byte = self.next()?;
                length = length.saturating_add(byte.into());
                if byte != u8::MAX {
                    break;
                }
            }
        }
        Some(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, compress};

    /// Words that repeat, and others between them.
    fn sample(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed | 1;
        let mut bytes = Vec::new();
        while bytes.len() < len {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            match state % 3 {
                0 => bytes.extend([0; 100]),
                1 => bytes.extend_from_slice(b"a block of dnodes"),
                _ => bytes.extend(state.to_le_bytes()),
            }
        }
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn any_part_of_a_stream_gives_the_beginning_of_its_block() {
        for algorithm in [Algorithm::Lz4, Algorithm::Lzjb] {
            for seed in 1..40 {
                let block = sample(seed, 4096);
                let mut stored = vec![0; 4096];
                let len = compress(algorithm, &block, &mut stored).unwrap();
                for part in [1, 5, 17, 100, 512, len, stored.len()] {
                    let part = part.min(stored.len());
                    let mut target = vec![9; block.len()];
                    let begin = beginning(algorithm.kind(), &stored[..part], &mut target);
                    let Some(begin) = begin else {
                        assert!(part < PREFIX_BYTES && algorithm == Algorithm::Lz4);
                        continue;
                    };
                    assert!(begin.taken <= part);
                    assert_eq!(target[..begin.made], block[..begin.made]);
                    if part >= len {
                        let all = Beginning {
                            taken: len,
                            made: block.len(),
                        };
                        assert_eq!(begin, all, "{algorithm:?} {seed} {part}");
                    }
                }
            }
        }
    }

    #[test]
    fn bytes_that_are_not_a_stream_do_no_harm() {
        for seed in 1..2000 {
            let bytes = sample(seed, 600);
            for kind in [CompressType::Lz4, CompressType::Lzjb, CompressType::Gzip1] {
                let mut target = [0; 700];
                let begin = beginning(kind, &bytes, &mut target);
                let is_within = |it: Beginning| it.taken <= bytes.len() && it.made <= target.len();
                assert!(begin.is_none_or(is_within));
            }
        }
        // A match before the block.
        let mut target = [0; 99];
        assert_eq!(
            beginning(CompressType::Lzjb, &[2, 7, 0, 2], &mut target),
            None
        );
        assert_eq!(
            beginning(CompressType::Lz4, &[0, 0, 0, 9, 0x10, 7, 2, 0], &mut target),
            None
        );
    }
}
