//! Space maps: logs of allocations and frees.
//!
//! # What it is
//! An object full of 64-bit words, which is only appended to until it is condensed (rewritten).
//! Replaying it from the start gives what is allocated. Three kinds of entries: a *debug* word says
//! in which txg and sync pass the next ones were written (and pads blocks); a *one-word* entry has
//! 15 bits of run and 47 of offset; a *two-word* entry (feature `spacemap_v2`) has 36 and 63, and a
//! vdev.
//! Offsets and runs count units of `1 << sm_shift` bytes from the start of the map's region.
//!
//! # On disk
//! ```text
//! debug     63..62 = 10 | action 2 | sync pass 10 | txg 50
//! one word  63     = 0  | offset 47 | type 1 | run - 1, 15
//! two words 63..62 = 11 | zero 2 | run - 1, 36 | vdev 24      then  type 1 | offset 63
//! ```
//! See docs/spec/space_map.md.
//!
//! # Invariants
//! 1. A two-word entry lies in one block; the odd word before it is a debug entry of zeros.
//! 2. The object's length (`smp_length`) is a multiple of 8 and ends after a whole entry.
//!
//! # Source
//! OpenZFS include/sys/space_map.h, module/zfs/space_map.c @be7657e3.

use crate::bits::Field;
use crate::layout::phys_struct;
use base::{Error, Result, Txg, VdevId};
use std::mem::size_of;
use zerocopy::little_endian::{I64, U64};
use zerocopy::{FromBytes, IntoBytes};

/// `SPACE_MAP_HISTOGRAM_SIZE`: buckets of the histogram.
pub const SPACE_MAP_HISTOGRAM_SIZE: usize = 32;
/// `SM_RUN_MAX`: the longest run of a one-word entry.
pub const SM_RUN_MAX: u64 = 1 << 15;
/// `SM_OFFSET_BITS`: offsets of one-word entries are below `1 << 47`.
pub(crate) const SM_OFFSET_BITS: u32 = 47;
/// `SM2_RUN_MAX`: the longest run of a two-word entry.
pub(crate) const SM2_RUN_MAX: u64 = 1 << 36;
/// `SM2_OFFSET_BITS`: offsets of two-word entries are below `1 << 63`.
pub(crate) const SM2_OFFSET_BITS: u32 = 63;

const PREFIX: Field = Field::new(62, 2);
const PREFIX_DEBUG: u64 = 2;
const PREFIX_TWO_WORDS: u64 = 3;
const DEBUG_ACTION: Field = Field::new(60, 2);
const DEBUG_SYNCPASS: Field = Field::new(50, 10);
const DEBUG_TXG: Field = Field::new(0, 50);
const OFFSET: Field = Field::new(16, SM_OFFSET_BITS);
const TYPE: Field = Field::new(15, 1);
const RUN: Field = Field::new(0, 15);
const RUN2: Field = Field::new(24, 36);
const VDEV2: Field = Field::new(0, 24);
const TYPE2: Field = Field::new(63, 1);
const OFFSET2: Field = Field::new(0, SM2_OFFSET_BITS);
/// What a two-word entry without a vdev stores: `SM_NO_VDEVID` does not fit in 24 bits.
const NO_VDEV: u64 = 0;

phys_struct! {
    /// `space_map_phys_t`: bonus of a space map; old ones end after 24 bytes.
    #[doc(alias = "space_map_phys_t")]
    pub struct SpaceMapPhys: 320 {
        /// smp_object: its own number, unused
        0 object: U64,
        /// smp_length: bytes of entries
        8 length: U64,
        /// smp_alloc: bytes allocated from the region
        16 alloc: I64,
        /// smp_pad: zero
        24 pad: [U64; 5],
        /// smp_histogram: free segments by log2 of their bytes, less sm_shift
        64 histogram: [U64; 32],
    }
}

/// `maptype_t`: whether a range was allocated or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapType {
    /// `SM_ALLOC`
    Alloc,
    /// `SM_FREE`
    Free,
}

impl MapType {
    fn from_bit(bit: u64) -> MapType {
        if bit == 0 {
            MapType::Alloc
        } else {
            MapType::Free
        }
    }

    fn bit(self) -> u64 {
        match self {
            MapType::Alloc => 0,
            MapType::Free => 1,
        }
    }
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceMapEntry {
    /// Says when the entries after it were written; all zero: padding.
    Debug {
        /// Whether the entries after it are allocations or frees
        action: MapType,
        /// Sync pass, modulo 1024
        sync_pass: u64,
        /// Lower 50 bits of the txg
        txg: Txg,
    },
    /// A range that was allocated or freed.
    Range(SpaceMapRange),
}

/// `space_map_entry_t`: a range that was allocated or freed, in units of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "space_map_entry_t")]
pub struct SpaceMapRange {
    /// Allocated or freed
    pub map_type: MapType,
    /// Only in two-word entries; only log space maps use it
    pub vdev: Option<VdevId>,
    /// From the start of the region
    pub offset: u64,
    /// At least 1
    pub run: u64,
}

/// Decodes entries; `bytes` is the object up to its length.
///
/// Ends with an error if the last entry is not whole.
pub fn entries(bytes: &[u8]) -> Entries<'_> {
    Entries { rest: bytes }
}

/// The iterator of [`entries`].
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    rest: &'a [u8],
}

impl Entries<'_> {
    fn word(&mut self) -> Result<u64> {
        let split = U64::read_from_prefix(self.rest);
        let have = self.rest.len();
        let (word, rest) =
            split.map_err(|_| Error::corrupt(format!("space map ends in {have} odd bytes")))?;
        self.rest = rest;
        Ok(word.get())
    }

    fn entry(&mut self) -> Result<SpaceMapEntry> {
        let word = self.word()?;
        Ok(match PREFIX.get(word) {
            PREFIX_DEBUG => SpaceMapEntry::Debug {
                action: MapType::from_bit(DEBUG_ACTION.get(word)),
                sync_pass: DEBUG_SYNCPASS.get(word),
                txg: Txg(DEBUG_TXG.get(word)),
            },
            PREFIX_TWO_WORDS => {
                let second = self.word().map_err(|e| e.within("two-word entry"))?;
                SpaceMapEntry::Range(SpaceMapRange {
                    map_type: MapType::from_bit(TYPE2.get(second)),
                    vdev: Some(VdevId(VDEV2.get(word))),
                    offset: OFFSET2.get(second),
                    run: RUN2.get(word).saturating_add(1),
                })
            }
            _ => SpaceMapEntry::Range(SpaceMapRange {
                map_type: MapType::from_bit(TYPE.get(word)),
                vdev: None,
                offset: OFFSET.get(word),
                run: RUN.get(word).saturating_add(1),
            }),
        })
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<SpaceMapEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let entry = self.entry();
        if entry.is_err() {
            self.rest = &[];
        }
        Some(entry)
    }
}

/// Appends entries to a space map: shortest form, no two-word entry across a block.
#[derive(Clone, Debug)]
pub struct Encoder {
    out: Vec<u8>,
    /// Offset of `out` in the object.
    start: u64,
    block_size: u64,
    two_words_allowed: bool,
}

impl Encoder {
    /// An encoder for entries to be written at offset `length` of an object with this block size.
    ///
    /// `two_words_allowed`: feature `spacemap_v2` is active.
    #[must_use]
    pub fn new(length: u64, block_size: u64, two_words_allowed: bool) -> Encoder {
        assert!(length.is_multiple_of(8), "space map of {length} bytes");
        assert!(
            block_size >= 16 && block_size.is_multiple_of(8),
            "block of {block_size} bytes"
        );
        Encoder {
            out: Vec::new(),
            start: length,
            block_size,
            two_words_allowed,
        }
    }

    fn push(&mut self, word: u64) {
        self.out.extend_from_slice(U64::new(word).as_bytes());
    }

    fn is_at_last_word_of_block(&self) -> bool {
        let position = self.start.saturating_add(self.out.len() as u64);
        let used = position.checked_rem(self.block_size).unwrap_or(0);
        used == self.block_size.saturating_sub(8)
    }

    /// Appends a debug entry: the txg and pass in which the entries after it are written.
    #[doc(alias = "space_map_write_intro_debug")]
    pub fn debug(&mut self, action: MapType, sync_pass: u64, txg: Txg) {
        let mut word = PREFIX.set(0, PREFIX_DEBUG);
        word = DEBUG_ACTION.set(word, action.bit());
        word = DEBUG_SYNCPASS.set(word, sync_pass & DEBUG_SYNCPASS.max());
        word = DEBUG_TXG.set(word, txg.0 & DEBUG_TXG.max());
        self.push(word);
    }

    /// Appends a range, in pieces if it is too long for one entry.
    #[doc(alias = "space_map_write_seg")]
    pub fn range(&mut self, range: &SpaceMapRange) {
        let SpaceMapRange {
            map_type,
            vdev,
            mut offset,
            mut run,
        } = *range;
        assert!(run > 0, "empty range");
        let fits_one = offset < 1 << SM_OFFSET_BITS && run <= SM_RUN_MAX && vdev.is_none();
        let two_words = self.two_words_allowed && !fits_one;
        assert!(two_words || vdev.is_none(), "a one-word entry has no vdev");
        let run_max = if two_words { SM2_RUN_MAX } else { SM_RUN_MAX };
        while run > 0 {
            let piece = run.min(run_max);
            if two_words {
                self.two_word_entry(map_type, vdev, offset, piece);
            } else {
                self.one_word_entry(map_type, offset, piece);
            }
            offset = offset.saturating_add(piece);
            run = run.saturating_sub(piece);
        }
    }

    fn one_word_entry(&mut self, map_type: MapType, offset: u64, run: u64) {
        let word = OFFSET.set(0, offset);
        let word = TYPE.set(word, map_type.bit());
        self.push(RUN.set(word, run.saturating_sub(1)));
    }

    fn two_word_entry(&mut self, map_type: MapType, vdev: Option<VdevId>, offset: u64, run: u64) {
        if self.is_at_last_word_of_block() {
            self.push(PREFIX.set(0, PREFIX_DEBUG));
        }
        let first = PREFIX.set(0, PREFIX_TWO_WORDS);
        let first = RUN2.set(first, run.saturating_sub(1));
        self.push(VDEV2.set(first, vdev.map_or(NO_VDEV, |vdev| vdev.0)));
        self.push(TYPE2.set(OFFSET2.set(0, offset), map_type.bit()));
    }

    /// The encoded bytes.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(map_type: MapType, vdev: Option<u64>, offset: u64, run: u64) -> SpaceMapRange {
        SpaceMapRange {
            map_type,
            vdev: vdev.map(VdevId),
            offset,
            run,
        }
    }

    fn words(bytes: &[u8]) -> Vec<u64> {
        bytes
            .chunks(8)
            .map(|c| U64::read_from_bytes(c).unwrap().get())
            .collect()
    }

    #[test]
    fn words_are_as_in_the_header() {
        let mut encoder = Encoder::new(0, 4096, true);
        encoder.debug(MapType::Free, 2, Txg(77));
        encoder.range(&range(MapType::Free, None, 3, 5));
        encoder.range(&range(MapType::Alloc, Some(1), 3, 5));
        let expect = [
            2 << 62 | 1 << 60 | 2 << 50 | 77,
            3 << 16 | 1 << 15 | 4,
            3 << 62 | 4 << 24 | 1,
            3,
        ];
        assert_eq!(words(&encoder.finish()), expect);
    }

    #[test]
    fn two_words_never_cross_a_block() {
        let mut encoder = Encoder::new(4096 - 8, 4096, true);
        encoder.range(&range(MapType::Alloc, Some(1), 3, 5));
        let words = words(&encoder.finish());
        assert_eq!((words.len(), words[0]), (3, 2 << 62));
    }

    #[test]
    fn long_runs_are_split_without_the_feature() {
        let mut encoder = Encoder::new(0, 4096, false);
        encoder.range(&range(MapType::Alloc, None, 10, 2 * SM_RUN_MAX + 1));
        let runs: Vec<_> = entries(&encoder.finish()).map(Result::unwrap).collect();
        let piece = |offset, run| SpaceMapEntry::Range(range(MapType::Alloc, None, offset, run));
        let expect = [
            piece(10, SM_RUN_MAX),
            piece(10 + SM_RUN_MAX, SM_RUN_MAX),
            piece(10 + 2 * SM_RUN_MAX, 1),
        ];
        assert_eq!(runs, expect);
    }

    #[test]
    fn half_an_entry_is_an_error() {
        let mut encoder = Encoder::new(0, 4096, true);
        encoder.range(&range(MapType::Alloc, Some(1), 3, 5));
        let bytes = encoder.finish();
        let error = entries(&bytes[..8]).next().unwrap().unwrap_err();
        assert_eq!(
            error.context(),
            "two-word entry: space map ends in 0 odd bytes"
        );
        assert_eq!(entries(&bytes[..9]).count(), 1);
    }

    fn any_range() -> impl Strategy<Value = SpaceMapRange> {
        let offset = prop_oneof![0u64..1 << 20, 0u64..1 << 62];
        let run = prop_oneof![1u64..100, 1u64..1 << 36];
        (any::<bool>(), prop::option::of(0u64..1 << 24), offset, run).prop_map(
            |(free, vdev, offset, run)| {
                range(
                    if free { MapType::Free } else { MapType::Alloc },
                    vdev,
                    offset,
                    run,
                )
            },
        )
    }

    proptest! {
        #[test]
        fn prop_ranges_round_trip(ranges in prop::collection::vec(any_range(), 0..40), start in 0u64..512) {
            let mut encoder = Encoder::new(start * 8, 512, true);
            for range in &ranges {
                encoder.range(range);
            }
            let decoded: Vec<_> = entries(&encoder.finish())
                .filter_map(|entry| match entry.unwrap() {
                    SpaceMapEntry::Range(range) => Some(range),
                    SpaceMapEntry::Debug { .. } => None,
                })
                .collect();
            prop_assert_eq!(decoded.len(), ranges.len());
            for (got, want) in decoded.iter().zip(&ranges) {
                // A long range without a vdev is decoded from its two words with vdev 0.
                let vdev = got.vdev.filter(|_| want.vdev.is_some());
                prop_assert_eq!(&SpaceMapRange { vdev, ..*got }, want);
            }
        }

        #[test]
        fn prop_any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(entries(&bytes).count() <= 38);
        }
    }
}
