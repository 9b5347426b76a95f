//! Bit fields of 64-bit words: the only place where words are shifted and masked.
//!
//! # Source
//! OpenZFS include/sys/bitops.h (`BF64_GET`, `BF64_SET_SB`).

/// A field of `len` bits, `1..=63`, whose lowest bit is bit `lo`.
#[derive(Clone, Copy)]
pub(crate) struct Field {
    lo: u32,
    mask: u64,
}

impl Field {
    pub(crate) const fn new(lo: u32, len: u32) -> Field {
        assert!(len >= 1 && len <= 63);
        assert!(lo <= 63 && len <= 64u32.saturating_sub(lo));
        let mask = 1u64.wrapping_shl(len).wrapping_sub(1);
        Field { lo, mask }
    }

    /// The largest value that the field can hold.
    pub(crate) const fn max(self) -> u64 {
        self.mask
    }

    pub(crate) const fn get(self, word: u64) -> u64 {
        word.wrapping_shr(self.lo) & self.mask
    }

    /// `word` with the field replaced.
    #[track_caller]
    pub(crate) const fn set(self, word: u64, value: u64) -> u64 {
        assert!(value <= self.mask, "value does not fit its bit field");
        (word & !self.mask.wrapping_shl(self.lo)) | value.wrapping_shl(self.lo)
    }

    /// The value in bytes of a field that stores `bytes / 512 - bias`.
    pub(crate) const fn get_sectors(self, word: u64, bias: u64) -> u64 {
        self.get(word)
            .wrapping_add(bias)
            .wrapping_shl(base::SPA_MINBLOCKSHIFT)
    }

    /// Stores `bytes` as `bytes / 512 - bias`.
    #[track_caller]
    pub(crate) const fn set_sectors(self, word: u64, bytes: u64, bias: u64) -> u64 {
        assert!(bytes & 511 == 0, "size or offset is not a multiple of 512");
        let sectors = bytes.wrapping_shr(base::SPA_MINBLOCKSHIFT);
        assert!(sectors >= bias, "size is zero");
        self.set(word, sectors.wrapping_sub(bias))
    }
}

#[cfg(test)]
mod tests {
    use super::Field;

    #[test]
    fn set_then_get_leaves_the_other_bits_alone() {
        let field = Field::new(16, 16);
        let word = field.set(u64::MAX, 0x1234);
        assert_eq!(word, 0xffff_ffff_1234_ffff);
        assert_eq!(field.get(word), 0x1234);
        assert_eq!(Field::new(1, 63).max(), u64::MAX >> 1);
    }

    #[test]
    fn sectors_are_biased() {
        let field = Field::new(0, 16);
        assert_eq!(field.set_sectors(0, 512, 1), 0);
        assert_eq!(field.get_sectors(0xffff, 1), 32 << 20);
    }
}
