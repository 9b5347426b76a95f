//! How a writer compresses: the values of the `compression` property.
//!
//! # On disk
//! The property is a number: the kind of compression in bits 0..7, the zstd level above. Level 0
//! is the default; 1..=19 are zstd's own; its fast (negative) levels are numbered from 103 in the
//! order of [`FAST`]. The same numbers, except 0, are in the header of every zstd block.
//!
//! # Source
//! OpenZFS module/zcommon/zfs_prop.c (`compress_table`), include/sys/zio_compress.h
//! (`enum zio_zstd_levels`), include/sys/zio.h (`ZIO_COMPRESS_RAW`) @be7657e3.

use base::{Error, Result};
use phys::CompressType;
use std::fmt;
use std::str::FromStr;

/// `SPA_COMPRESSBITS`: the level is above these bits in the property.
const KIND_BITS: u32 = 7;
/// The number of the first fast level (`ZIO_ZSTD_LEVEL_FAST_1`).
const FIRST_FAST: u8 = 103;
/// The fast levels in the order of their numbers.
const FAST: [u16; 21] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 500, 1000,
];

/// How to compress blocks: a value of the `compression` property other than `inherit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Stores blocks as they are.
    Off,
    /// The default: lz4.
    #[default]
    On,
    /// Blocks of zeros become holes, others are stored as they are.
    Empty,
    /// LZJB.
    Lzjb,
    /// zlib.
    Gzip(GzipLevel),
    /// Runs of zeros only.
    Zle,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd(ZstdLevel),
}

/// A level of zlib, `1..=9`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GzipLevel(u8);

impl GzipLevel {
    /// The meaning of `compression=gzip`.
    pub const DEFAULT: GzipLevel = GzipLevel(6);

    /// The level `1..=9`.
    #[must_use]
    pub fn new(level: u8) -> Option<GzipLevel> {
        (1..=9).contains(&level).then_some(GzipLevel(level))
    }

    /// `1..=9`.
    #[must_use]
    pub fn get(self) -> u8 {
        self.0
    }
}

/// A level of zstd, as OpenZFS numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "zio_zstd_levels")]
pub struct ZstdLevel(u8);

impl ZstdLevel {
    /// The meaning of `compression=zstd`: level 3, but stored in the property as 0, "the default".
    pub const DEFAULT: ZstdLevel = ZstdLevel(0);

    /// The level that zstd calls `level`: `1..=19`, or one of the fast levels `-1..=-10`,
    /// `-20, -30..=-100`, `-500`, `-1000`.
    #[must_use]
    pub fn new(level: i32) -> Option<ZstdLevel> {
        if let 1..=19 = level {
            return u8::try_from(level).ok().map(ZstdLevel);
        }
        let fast = u16::try_from(level.checked_neg()?).ok()?;
        let at = FAST.iter().position(|known| *known == fast)?;
        FIRST_FAST
            .checked_add(u8::try_from(at).ok()?)
            .map(ZstdLevel)
    }

    /// The level with this number in the property; 0 is [`ZstdLevel::DEFAULT`].
    #[must_use]
    pub fn from_number(number: u8) -> Option<ZstdLevel> {
        let level = ZstdLevel(number);
        (number <= 19 || level.fast().is_some()).then_some(level)
    }

    /// The number in the property.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// The number in the header of a block; the default is stored as the level that it means.
    #[must_use]
    pub(crate) fn number_in_block(self) -> u8 {
        if self.0 == 0 { 3 } else { self.0 }
    }

    /// The level as zstd numbers it.
    #[must_use]
    pub fn get(self) -> i32 {
        match self.fast() {
            Some(fast) => i32::from(fast).wrapping_neg(),
            None => i32::from(self.number_in_block()),
        }
    }

    /// How many levels of its kind, fast or not, are before it.
    pub(crate) fn index(self) -> usize {
        let first = if self.fast().is_some() { FIRST_FAST } else { 1 };
        usize::from(self.number_in_block().saturating_sub(first))
    }

    fn fast(self) -> Option<u16> {
        let at = self.0.checked_sub(FIRST_FAST)?;
        FAST.get(usize::from(at)).copied()
    }
}

impl Algorithm {
    /// Every value that the property can have, in order of its number.
    pub fn all() -> impl Iterator<Item = Algorithm> {
        let gzip = (1..=9).filter_map(GzipLevel::new).map(Algorithm::Gzip);
        let zstd = (0..=u8::MAX)
            .filter_map(ZstdLevel::from_number)
            .map(Algorithm::Zstd);
        [
            Algorithm::On,
            Algorithm::Off,
            Algorithm::Lzjb,
            Algorithm::Empty,
        ]
        .into_iter()
        .chain(gzip)
        .chain([Algorithm::Zle, Algorithm::Lz4])
        .chain(zstd)
    }

    /// The compression type in the pointer of a block compressed this way; `on` is lz4.
    #[must_use]
    pub fn kind(self) -> CompressType {
        match self {
            Algorithm::Off => CompressType::Off,
            Algorithm::On => CompressType::ON_VALUE,
            Algorithm::Empty => CompressType::Empty,
            Algorithm::Lzjb => CompressType::Lzjb,
            Algorithm::Gzip(GzipLevel(1)) => CompressType::Gzip1,
            Algorithm::Gzip(GzipLevel(2)) => CompressType::Gzip2,
            Algorithm::Gzip(GzipLevel(3)) => CompressType::Gzip3,
            Algorithm::Gzip(GzipLevel(4)) => CompressType::Gzip4,
            Algorithm::Gzip(GzipLevel(5)) => CompressType::Gzip5,
            Algorithm::Gzip(GzipLevel(6)) => CompressType::Gzip6,
            Algorithm::Gzip(GzipLevel(7)) => CompressType::Gzip7,
            Algorithm::Gzip(GzipLevel(8)) => CompressType::Gzip8,
            Algorithm::Gzip(_) => CompressType::Gzip9,
            Algorithm::Zle => CompressType::Zle,
            Algorithm::Lz4 => CompressType::Lz4,
            Algorithm::Zstd(_) => CompressType::Zstd,
        }
    }

    /// The number of the `compression` property on disk.
    #[must_use]
    #[doc(alias = "ZIO_COMPRESS_RAW")]
    pub fn property(self) -> u64 {
        match self {
            Algorithm::On => u64::from(CompressType::On.raw()),
            Algorithm::Zstd(level) => {
                u64::from(self.kind().raw()) | (u64::from(level.number()) << KIND_BITS)
            }
            _ => u64::from(self.kind().raw()),
        }
    }

    /// The algorithm with this number in the `compression` property.
    ///
    /// # Errors
    /// [`base::ErrorKind::Corrupt`] for a number that OpenZFS does not know, and for `inherit`.
    pub fn from_property(number: u64) -> Result<Algorithm> {
        Self::all()
            .find(|algorithm| algorithm.property() == number)
            .ok_or_else(|| Error::corrupt(format!("compression property {number} is not known")))
    }
}

impl fmt::Display for Algorithm {
    /// The word that `zfs get compression` shows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Algorithm::Off => f.pad("off"),
            Algorithm::On => f.pad("on"),
            Algorithm::Gzip(GzipLevel::DEFAULT) => f.pad("gzip"),
            Algorithm::Zstd(ZstdLevel::DEFAULT) => f.pad("zstd"),
            Algorithm::Zstd(level) => match level.fast() {
                Some(1) => f.pad("zstd-fast"),
                Some(fast) => f.pad(&format!("zstd-fast-{fast}")),
                None => f.pad(&format!("zstd-{}", level.get())),
            },
            _ => f.pad(self.kind().name()),
        }
    }
}

impl FromStr for Algorithm {
    type Err = Error;

    /// Accepts every word that `zfs set compression=` accepts.
    fn from_str(word: &str) -> Result<Algorithm> {
        match word {
            "gzip-6" => return Ok(Algorithm::Gzip(GzipLevel::DEFAULT)),
            "zstd-fast-1" => return Ok(Algorithm::Zstd(ZstdLevel(FIRST_FAST))),
            _ => {}
        }
        Self::all()
            .filter(|algorithm| *algorithm != Algorithm::Empty)
            .find(|algorithm| algorithm.to_string() == word)
            .ok_or_else(|| Error::invalid(format!("compression '{word}' is not known")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_are_those_of_openzfs() {
        let check = |word: &str, property: u64, shown: &str| {
            let algorithm: Algorithm = word.parse().unwrap();
            assert_eq!(algorithm.property(), property, "{word}");
            assert_eq!(Algorithm::from_property(property).unwrap(), algorithm);
            assert_eq!(algorithm.to_string(), shown);
        };
        check("on", 1, "on");
        check("off", 2, "off");
        check("lzjb", 3, "lzjb");
        check("gzip-1", 5, "gzip-1");
        check("gzip", 10, "gzip");
        check("gzip-6", 10, "gzip");
        check("zle", 14, "zle");
        check("lz4", 15, "lz4");
        check("zstd", 16, "zstd");
        check("zstd-1", 16 | 1 << 7, "zstd-1");
        check("zstd-3", 16 | 3 << 7, "zstd-3");
        check("zstd-19", 16 | 19 << 7, "zstd-19");
        check("zstd-fast", 16 | 103 << 7, "zstd-fast");
        check("zstd-fast-1", 16 | 103 << 7, "zstd-fast");
        check("zstd-fast-10", 16 | 112 << 7, "zstd-fast-10");
        check("zstd-fast-1000", 16 | 123 << 7, "zstd-fast-1000");
    }

    #[test]
    fn there_are_as_many_values_as_in_openzfs() {
        // 57 words besides inherit, of which gzip-6 and zstd-fast-1 are second names; plus empty
        assert_eq!(Algorithm::all().count(), 57 - 2 + 1);
        for algorithm in Algorithm::all() {
            let number = algorithm.property();
            assert_eq!(Algorithm::from_property(number).unwrap(), algorithm);
            if algorithm != Algorithm::Empty {
                let word = algorithm.to_string();
                assert_eq!(word.parse::<Algorithm>().unwrap(), algorithm);
            }
        }
    }

    #[test]
    fn levels_between_the_known_ones_are_refused() {
        for word in [
            "zstd-0",
            "zstd-20",
            "zstd-fast-11",
            "gzip-10",
            "empty",
            "inherit",
            "",
        ] {
            assert!(word.parse::<Algorithm>().is_err(), "{word}");
        }
        for number in [
            0,
            17,
            16 | 20 << 7,
            16 | 102 << 7,
            16 | 124 << 7,
            15 | 1 << 7,
            u64::MAX,
        ] {
            assert!(Algorithm::from_property(number).is_err(), "{number}");
        }
        assert_eq!(ZstdLevel::new(0), None);
        assert_eq!(ZstdLevel::new(-11), None);
        assert_eq!(ZstdLevel::new(i32::MIN), None);
        assert_eq!(ZstdLevel::new(-1000).unwrap().get(), -1000);
        assert_eq!(ZstdLevel::DEFAULT.get(), 3);
    }
}
