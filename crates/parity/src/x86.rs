//! Vectors of x86-64: shuffles multiply by looking up both halves of each byte, GFNI multiplies by a matrix
//! of bits.

/// What the modules of one register width have in common.
macro_rules! vectors {
    ($features:literal, $vector:ty, $width:literal, $lanes:literal, $load:ident, $store:ident, $xor:ident, $zero:ident) => {
        use crate::field::Factor;
        use crate::kernel::kernel;
        use crate::solve::Matrix;
        use std::arch::x86_64::*;

        type Vector = $vector;
        const WIDTH: usize = $width;
        const LANES: usize = $lanes;

        #[inline]
        #[target_feature(enable = $features)]
        fn zero() -> Vector {
            $zero()
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn load(bytes: &[u8; WIDTH]) -> Vector {
            // SAFETY: the array has as many bytes as the vector; it need not be aligned.
            unsafe { $load(bytes.as_ptr().cast()) }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn store(vector: Vector, bytes: &mut [u8; WIDTH]) {
            // SAFETY: the array has as many bytes as the vector; it need not be aligned.
            unsafe { $store(bytes.as_mut_ptr().cast(), vector) }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn add(a: Vector, b: Vector) -> Vector {
            $xor(a, b)
        }

        kernel!(#[target_feature(enable = $features)]);
    };
}

/// Products by a shuffle: the same for each 16 bytes of a vector, whatever its width.
macro_rules! by_shuffle {
    ($features:literal, $broadcast:ident, $set:ident, $and:ident, $shift:ident, $shuffle:ident) => {
        /// The products with each half of a byte.
        #[derive(Clone, Copy)]
        struct Table {
            low: Vector,
            high: Vector,
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn table(factor: &Factor) -> Table {
            Table {
                low: $broadcast(load_16(&factor.low)),
                high: $broadcast(load_16(&factor.high)),
            }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn load_16(bytes: &[u8; 16]) -> __m128i {
            // SAFETY: the array has as many bytes as the vector; it need not be aligned.
            unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn multiply(a: Vector, table: Table) -> Vector {
            let mask = $set(0x0f);
            let low = $shuffle(table.low, $and(a, mask));
            let high = $shuffle(table.high, $and($shift::<4>(a), mask));
            add(low, high)
        }
    };
}

/// Products by a matrix of bits.
macro_rules! by_affine {
    ($features:literal, $set:ident, $affine:ident) => {
        type Table = Vector;

        #[inline]
        #[target_feature(enable = $features)]
        fn table(factor: &Factor) -> Table {
            $set(factor.matrix.cast_signed())
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn multiply(a: Vector, table: Table) -> Vector {
            $affine::<0>(a, table)
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn double(a: Vector) -> Vector {
            const TWO: Factor = Factor::new(2);
            multiply(a, table(&TWO))
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn quadruple(a: Vector) -> Vector {
            const FOUR: Factor = Factor::new(4);
            multiply(a, table(&FOUR))
        }
    };
}

/// Doubling by a comparison: a byte that is negative as a signed number carries.
macro_rules! by_comparison {
    ($features:literal, $set:ident, $plus:ident, $greater:ident, $and:ident) => {
        #[inline]
        #[target_feature(enable = $features)]
        fn double(a: Vector) -> Vector {
            let carries = $greater(zero(), a);
            let reduction = $set(crate::field::REDUCTION.cast_signed());
            add($plus(a, a), $and(carries, reduction))
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn quadruple(a: Vector) -> Vector {
            double(double(a))
        }
    };
}

/// 16 bytes at a time.
pub(crate) mod ssse3 {
    vectors!(
        "ssse3",
        __m128i,
        16,
        2,
        _mm_loadu_si128,
        _mm_storeu_si128,
        _mm_xor_si128,
        _mm_setzero_si128
    );
    by_shuffle!(
        "ssse3",
        same,
        _mm_set1_epi8,
        _mm_and_si128,
        _mm_srli_epi16,
        _mm_shuffle_epi8
    );
    by_comparison!(
        "ssse3",
        _mm_set1_epi8,
        _mm_add_epi8,
        _mm_cmpgt_epi8,
        _mm_and_si128
    );

    fn same(a: __m128i) -> __m128i {
        a
    }
}

/// 32 bytes at a time.
pub(crate) mod avx2 {
    vectors!(
        "avx2",
        __m256i,
        32,
        2,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_xor_si256,
        _mm256_setzero_si256
    );
    by_shuffle!(
        "avx2",
        _mm256_broadcastsi128_si256,
        _mm256_set1_epi8,
        _mm256_and_si256,
        _mm256_srli_epi16,
        _mm256_shuffle_epi8
    );
    by_comparison!(
        "avx2",
        _mm256_set1_epi8,
        _mm256_add_epi8,
        _mm256_cmpgt_epi8,
        _mm256_and_si256
    );
}

/// 64 bytes at a time.
pub(crate) mod avx512bw {
    vectors!(
        "avx512f,avx512bw",
        __m512i,
        64,
        4,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_xor_si512,
        _mm512_setzero_si512
    );
    by_shuffle!(
        "avx512f,avx512bw",
        _mm512_broadcast_i32x4,
        _mm512_set1_epi8,
        _mm512_and_si512,
        _mm512_srli_epi16,
        _mm512_shuffle_epi8
    );

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn double(a: Vector) -> Vector {
        let reduction = _mm512_set1_epi8(crate::field::REDUCTION.cast_signed());
        let carried = _mm512_maskz_mov_epi8(_mm512_movepi8_mask(a), reduction);
        add(_mm512_add_epi8(a, a), carried)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn quadruple(a: Vector) -> Vector {
        double(double(a))
    }
}

/// 32 bytes at a time, for processors whose widest vectors those are.
pub(crate) mod gfni_avx2 {
    vectors!(
        "gfni,avx2",
        __m256i,
        32,
        2,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_xor_si256,
        _mm256_setzero_si256
    );
    by_affine!(
        "gfni,avx2",
        _mm256_set1_epi64x,
        _mm256_gf2p8affine_epi64_epi8
    );
}

/// 64 bytes at a time.
pub(crate) mod gfni_avx512 {
    vectors!(
        "gfni,avx512f,avx512bw",
        __m512i,
        64,
        4,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_xor_si512,
        _mm512_setzero_si512
    );
    by_affine!(
        "gfni,avx512f,avx512bw",
        _mm512_set1_epi64,
        _mm512_gf2p8affine_epi64_epi8
    );
}
