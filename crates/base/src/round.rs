//! Rounding to powers of two.

/// Rounds `value` down to a multiple of `align`, a power of two.
#[must_use]
pub const fn align_down(value: u64, align: u64) -> u64 {
    debug_assert!(align.is_power_of_two());
    value & !(align - 1)
}

/// Rounds `value` up to a multiple of `align`, a power of two. Wraps only above `u64::MAX - align`.
#[must_use]
pub const fn align_up(value: u64, align: u64) -> u64 {
    debug_assert!(align.is_power_of_two());
    value.wrapping_add(align - 1) & !(align - 1)
}

/// Whether `value` is a multiple of `align`, a power of two.
#[must_use]
pub const fn is_aligned(value: u64, align: u64) -> bool {
    value & (align - 1) == 0
}

/// `highbit64`: one more than the index of the highest bit set; 0 for 0.
#[must_use]
pub const fn highbit(value: u64) -> u32 {
    64 - value.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_meets_at_multiples() {
        for shift in 0..20 {
            let align = 1u64 << shift;
            for value in [0, 1, 511, 512, 513, 4095, 4096, 131_073] {
                assert!(align_down(value, align) <= value);
                assert!(align_up(value, align) >= value);
                assert!(is_aligned(align_up(value, align), align));
                assert_eq!(
                    align_up(value, align) - align_down(value, align) == 0,
                    is_aligned(value, align)
                );
            }
        }
    }

    #[test]
    fn highbit_counts_from_one() {
        assert_eq!(highbit(0), 0);
        assert_eq!(highbit(1), 1);
        assert_eq!(highbit(512), 10);
        assert_eq!(highbit(u64::MAX), 64);
    }
}
