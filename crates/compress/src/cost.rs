//! What compressing takes of a processor, in cycles: for simulations, which charge it.
//!
//! # What it is
//! Figures of these compressors, on one core, on records of 128 KiB of what is below `/usr/lib`, and on noise:
//! `ashift bench compress` measures them again, on any data, and shows these beside. Other data, other sizes of
//! records and other processors take other times; that a processor at half the clock takes twice as long is assumed.
//!
//! # Source
//! `ashift bench compress` on an Intel Xeon with AVX-512 beside other work, zstd 1.5.7, zlib-rs 0.6.8, LZ4 1.10.0.

use phys::CompressType;

use crate::{Algorithm, GzipLevel, ZstdLevel};

/// Cycles for 100 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Compressing what shrinks.
    pub compress: u32,
    /// Trying to compress what does not.
    pub refuse: u32,
    /// Decompressing, for bytes of output.
    pub decompress: u32,
}

const fn cost((compress, refuse, decompress): (u32, u32, u32)) -> Cost {
    Cost {
        compress,
        refuse,
        decompress,
    }
}

const LZ4: (u32, u32, u32) = (512, 28, 100);
const LZJB: (u32, u32, u32) = (2402, 3098, 793);
const ZLE: (u32, u32, u32) = (507, 405, 263);
/// Levels 1 to 9.
const GZIP: [(u32, u32, u32); 9] = [
    (1730, 3438, 777),
    (2742, 4837, 687),
    (3170, 4052, 608),
    (3338, 4353, 686),
    (3694, 5519, 819),
    (3747, 3969, 498),
    (5212, 3740, 557),
    (11327, 4816, 822),
    (10133, 5086, 644),
];
/// Levels 1 to 19.
const ZSTD: [(u32, u32, u32); 19] = [
    (706, 29, 240),
    (671, 32, 226),
    (882, 37, 200),
    (1033, 47, 255),
    (1989, 74, 234),
    (1579, 36, 112),
    (3149, 61, 199),
    (3736, 77, 237),
    (4332, 83, 246),
    (6423, 24, 192),
    (8269, 16, 176),
    (11815, 25, 180),
    (15893, 20, 189),
    (16719, 22, 215),
    (37271, 26, 264),
    (49850, 29, 300),
    (61152, 28, 279),
    (62488, 25, 245),
    (112950, 29, 300),
];
/// The fast levels, in the order of their numbers.
const ZSTD_FAST: [(u32, u32, u32); 21] = [
    (553, 12, 121),
    (540, 19, 163),
    (602, 20, 191),
    (682, 22, 216),
    (827, 23, 277),
    (631, 22, 266),
    (557, 22, 190),
    (534, 20, 166),
    (664, 27, 164),
    (475, 21, 158),
    (357, 25, 236),
    (227, 16, 104),
    (243, 20, 124),
    (213, 16, 77),
    (137, 15, 63),
    (165, 19, 71),
    (97, 10, 34),
    (128, 21, 79),
    (127, 22, 72),
    (27, 17, 18),
    (11, 9, 1),
];

impl Cost {
    /// The cost of an algorithm at its level.
    #[must_use]
    pub fn of(algorithm: Algorithm) -> Cost {
        let found = match algorithm {
            Algorithm::Off | Algorithm::Empty => None,
            Algorithm::On | Algorithm::Lz4 => Some(LZ4),
            Algorithm::Lzjb => Some(LZJB),
            Algorithm::Zle => Some(ZLE),
            Algorithm::Gzip(level) => GZIP
                .get(usize::from(level.get()).saturating_sub(1))
                .copied(),
            Algorithm::Zstd(level) => {
                let is_fast = level.get() < 0;
                let table: &[_] = if is_fast { &ZSTD_FAST } else { &ZSTD };
                table.get(level.index()).copied()
            }
        };
        found.map_or(Cost::default(), cost)
    }

    /// The cost of what a block says of its compression, which is not the level of zstd: that counts as 3.
    #[must_use]
    pub fn of_kind(kind: CompressType) -> Cost {
        let gzip = |level| GzipLevel::new(level).map_or(Algorithm::Off, Algorithm::Gzip);
        Cost::of(match kind {
            CompressType::On | CompressType::Lz4 => Algorithm::Lz4,
            CompressType::Lzjb => Algorithm::Lzjb,
            CompressType::Zle => Algorithm::Zle,
            CompressType::Zstd => Algorithm::Zstd(ZstdLevel::DEFAULT),
            CompressType::Gzip1 => gzip(1),
            CompressType::Gzip2 => gzip(2),
            CompressType::Gzip3 => gzip(3),
            CompressType::Gzip4 => gzip(4),
            CompressType::Gzip5 => gzip(5),
            CompressType::Gzip6 => gzip(6),
            CompressType::Gzip7 => gzip(7),
            CompressType::Gzip8 => gzip(8),
            CompressType::Gzip9 => gzip(9),
            CompressType::Inherit | CompressType::Off | CompressType::Empty => Algorithm::Off,
        })
    }

    /// Cycles for compressing so many bytes, whether they shrank or not.
    #[must_use]
    pub fn compress_cycles(self, bytes: usize, shrank: bool) -> u64 {
        cycles(bytes, if shrank { self.compress } else { self.refuse })
    }

    /// Cycles for decompressing to so many bytes.
    #[must_use]
    pub fn decompress_cycles(self, bytes: usize) -> u64 {
        cycles(bytes, self.decompress)
    }
}

fn cycles(bytes: usize, per_100: u32) -> u64 {
    (bytes as u64).saturating_mul(u64::from(per_100)) / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_that_works_has_a_price() {
        for algorithm in Algorithm::all() {
            let is_work = !matches!(algorithm, Algorithm::Off | Algorithm::Empty);
            let cost = Cost::of(algorithm);
            assert_eq!(cost.compress > 0, is_work, "{algorithm}");
            assert_eq!(cost.refuse > 0, is_work, "{algorithm}");
            assert_eq!(cost.decompress > 0, is_work, "{algorithm}");
            assert_eq!(Cost::of_kind(algorithm.kind()).decompress > 0, is_work);
        }
    }

    #[test]
    fn more_effort_takes_longer() {
        let of = |word: &str| Cost::of(word.parse().unwrap()).compress;
        let rising = [
            "zstd-fast-10",
            "zstd-fast",
            "zstd-3",
            "zstd-7",
            "zstd-15",
            "zstd-19",
        ];
        let costs = rising.map(of);
        assert!(costs.is_sorted(), "{costs:?}");
        assert!(of("lz4") < of("gzip-1") && of("gzip-1") < of("gzip-9"));
        assert!(of("zstd-fast-1000") < of("zstd-fast-10"));
    }

    #[test]
    fn cycles_are_for_hundreds_of_bytes() {
        let cost = cost((250, 50, 125));
        assert_eq!(cost.compress_cycles(131_072, true), 327_680);
        assert_eq!(cost.compress_cycles(131_072, false), 65_536);
        assert_eq!(cost.decompress_cycles(1000), 1250);
    }
}
