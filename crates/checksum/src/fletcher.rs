//! Fletcher checksums: running sums of running sums.
//!
//! # What it is
//! fletcher4 reads the block as 32-bit words; `a` sums the words, `b` sums the successive values of
//! `a`, `c` those of `b`, `d` those of `c`, all modulo 2^64. fletcher2 computes the first two of
//! these for the even and the odd 64-bit words separately. A remainder that is not a whole word
//! (fletcher4) or pair (fletcher2) is left out of the sum; blocks are multiples of 512 bytes.
//!
//! # How it is fast
//! A sum that depends on the one before it is slow. So word `i` goes to lane `i % 8`, each lane keeps
//! sums of its own, and at the end they are folded into one: with `n` the number of words from
//! word `i` to the end, `a b c d` weight it by `1, n, n(n+1)/2, n(n+1)(n+2)/6`, and a lane has
//! weighted it by the same polynomials of `m`, counted in its own words, where `n = 8m - lane`.
//! Newton's backward differences at `m = 0` express the former as integer multiples of the latter.
//!
//! # Invariants
//! 1. Every path gives the same sums: the lanes, whatever vectors the CPU has, and the plain loop.
//!
//! # Source
//! OpenZFS module/zcommon/zfs_fletcher.c @be7657e3 (what is summed).

use crate::Words;

const LANES: usize = 8;
const STEP_BYTES: usize = LANES * 4;

/// `a b c d` of each lane.
type Lanes = [[u64; LANES]; 4];

/// fletcher2 of `bytes`; bytes beyond a multiple of 16 are ignored.
#[must_use]
#[doc(alias = "fletcher_2_native")]
pub fn fletcher2(bytes: &[u8]) -> Words {
    fletcher2_append([0; 4], bytes)
}

/// Continues the sums `words` with `bytes`, as if these followed the bytes already summed.
#[must_use]
#[doc(alias = "fletcher_2_incremental_native")]
pub fn fletcher2_append(words: Words, bytes: &[u8]) -> Words {
    let [mut a0, mut a1, mut b0, mut b1] = words;
    for pair in bytes.as_chunks::<16>().0 {
        let (halves, _) = pair.as_chunks::<8>();
        a0 = a0.wrapping_add(u64::from_le_bytes(halves[0]));
        a1 = a1.wrapping_add(u64::from_le_bytes(halves[1]));
        b0 = b0.wrapping_add(a0);
        b1 = b1.wrapping_add(a1);
    }
    [a0, a1, b0, b1]
}

/// fletcher4 of `bytes`; bytes beyond a multiple of 4 are ignored.
#[must_use]
#[doc(alias = "fletcher_4_native")]
pub fn fletcher4(bytes: &[u8]) -> Words {
    let (steps, rest) = bytes.as_chunks::<STEP_BYTES>();
    let mut lanes = [[0; LANES]; 4];
    sum_steps(&mut lanes, steps);
    plain(fold(&lanes), rest)
}

/// Continues the sums `words` with `bytes`, as if these followed the bytes already summed.
///
/// The bytes already summed must have been a multiple of 4.
#[must_use]
#[doc(alias = "fletcher_4_incremental_native")]
pub fn fletcher4_append(words: Words, bytes: &[u8]) -> Words {
    let count = (bytes.len() / 4) as u128;
    let weigh = |weight: u128, word: u64| (weight as u64).wrapping_mul(word);
    let pairs = count * (count + 1) / 2;
    let triples = count * (count + 1) * (count + 2) / 6;
    let add = |terms: &[u64]| terms.iter().fold(0u64, |total, t| total.wrapping_add(*t));
    let [a, b, c, d] = words;
    let [e, f, g, h] = fletcher4(bytes);
    [
        add(&[e, a]),
        add(&[f, b, weigh(count, a)]),
        add(&[g, c, weigh(count, b), weigh(pairs, a)]),
        add(&[h, d, weigh(count, c), weigh(pairs, b), weigh(triples, a)]),
    ]
}

/// Copies `source` to `target` and returns its fletcher4, in one pass over memory.
///
/// # Panics
/// When the lengths differ.
#[must_use]
pub fn copy_fletcher4(source: &[u8], target: &mut [u8]) -> Words {
    assert_eq!(
        source.len(),
        target.len(),
        "a copy is as long as its source"
    );
    let (steps, rest) = source.as_chunks::<STEP_BYTES>();
    let (copies, rest_copy) = target.as_chunks_mut::<STEP_BYTES>();
    let mut lanes = [[0; LANES]; 4];
    copy_steps(&mut lanes, steps, copies);
    rest_copy.copy_from_slice(rest);
    plain(fold(&lanes), rest)
}

/// The sums by their definition; also the reference in tests.
fn plain(words: Words, bytes: &[u8]) -> Words {
    let [mut a, mut b, mut c, mut d] = words;
    for word in bytes.as_chunks::<4>().0 {
        a = a.wrapping_add(u64::from(u32::from_le_bytes(*word)));
        b = b.wrapping_add(a);
        c = c.wrapping_add(b);
        d = d.wrapping_add(c);
    }
    [a, b, c, d]
}

#[inline(always)]
fn step(lanes: &mut Lanes, bytes: &[u8; STEP_BYTES]) {
    let (words, _) = bytes.as_chunks::<4>();
    let [a, b, c, d] = lanes;
    for lane in 0..LANES {
        a[lane] = a[lane].wrapping_add(u64::from(u32::from_le_bytes(words[lane])));
        b[lane] = b[lane].wrapping_add(a[lane]);
        c[lane] = c[lane].wrapping_add(b[lane]);
        d[lane] = d[lane].wrapping_add(c[lane]);
    }
}

#[inline(always)]
fn sum_steps_inline(lanes: &mut Lanes, steps: &[[u8; STEP_BYTES]]) {
    let mut local = *lanes;
    for bytes in steps {
        step(&mut local, bytes);
    }
    *lanes = local;
}

#[inline(always)]
fn copy_steps_inline(
    lanes: &mut Lanes,
    steps: &[[u8; STEP_BYTES]],
    copies: &mut [[u8; STEP_BYTES]],
) {
    let mut local = *lanes;
    for (bytes, copy) in steps.iter().zip(copies) {
        let bytes = *bytes;
        *copy = bytes;
        step(&mut local, &bytes);
    }
    *lanes = local;
}

/// The same loops, compiled for CPU features beyond baseline x86-64.
#[cfg(target_arch = "x86_64")]
mod vectors {
    use super::{Lanes, STEP_BYTES, copy_steps_inline, sum_steps_inline};

    macro_rules! compiled_for {
        ($name:ident, $features:literal) => {
            pub(super) mod $name {
                use super::{Lanes, STEP_BYTES, copy_steps_inline, sum_steps_inline};

                #[target_feature(enable = $features)]
                pub(in super::super) fn sum(lanes: &mut Lanes, steps: &[[u8; STEP_BYTES]]) {
                    sum_steps_inline(lanes, steps);
                }

                #[target_feature(enable = $features)]
                pub(in super::super) fn copy(
                    lanes: &mut Lanes,
                    steps: &[[u8; STEP_BYTES]],
                    copies: &mut [[u8; STEP_BYTES]],
                ) {
                    copy_steps_inline(lanes, steps, copies);
                }
            }
        };
    }

    compiled_for!(avx2, "avx2");
    compiled_for!(avx512, "avx512f,avx512bw,avx512vl");
}

fn sum_steps(lanes: &mut Lanes, steps: &[[u8; STEP_BYTES]]) {
    #[cfg(target_arch = "x86_64")]
    {
        if has_avx512() {
            // SAFETY: the CPU has what the function was compiled for.
            return unsafe { vectors::avx512::sum(lanes, steps) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has what the function was compiled for.
            return unsafe { vectors::avx2::sum(lanes, steps) };
        }
    }
    sum_steps_inline(lanes, steps);
}

fn copy_steps(lanes: &mut Lanes, steps: &[[u8; STEP_BYTES]], copies: &mut [[u8; STEP_BYTES]]) {
    #[cfg(target_arch = "x86_64")]
    {
        if has_avx512() {
            // SAFETY: the CPU has what the function was compiled for.
            return unsafe { vectors::avx512::copy(lanes, steps, copies) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has what the function was compiled for.
            return unsafe { vectors::avx2::copy(lanes, steps, copies) };
        }
    }
    copy_steps_inline(lanes, steps, copies);
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
}

/// `WEIGHTS[sum][order][lane]`: the factor by which the lane's sum of that order enters `sum`.
const WEIGHTS: [[[u64; LANES]; 4]; 4] = weights();

const fn weights() -> [[[u64; LANES]; 4]; 4] {
    let mut weights = [[[0; LANES]; 4]; 4];
    let mut lane = 0;
    while lane < LANES {
        let mut sum = 0;
        while sum < 4 {
            // the polynomial of `sum` at m = 0, -1, -2, -3; then its differences
            let mut values = [0i64; 4];
            let mut m = 0;
            while m < 4 {
                values[m] = rising(-(LANES as i64) * m as i64 - lane as i64, sum);
                m += 1;
            }
            let mut order = 0;
            while order < 4 {
                weights[sum][order][lane] = values[0] as u64;
                let mut i = 0;
                while i < 3 {
                    values[i] -= values[i + 1];
                    i += 1;
                }
                order += 1;
            }
            sum += 1;
        }
        lane += 1;
    }
    weights
}

/// `n (n+1) .. (n+order-1) / order!`
const fn rising(n: i64, order: usize) -> i64 {
    match order {
        0 => 1,
        1 => n,
        2 => n * (n + 1) / 2,
        _ => n * (n + 1) * (n + 2) / 6,
    }
}

fn fold(lanes: &Lanes) -> Words {
    let mut words = [0u64; 4];
    for (word, weights) in words.iter_mut().zip(&WEIGHTS) {
        for (weights, sums) in weights.iter().zip(lanes) {
            for (weight, sum) in weights.iter().zip(sums) {
                *word = word.wrapping_add(weight.wrapping_mul(*sum));
            }
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn portable(bytes: &[u8]) -> Words {
        let (steps, rest) = bytes.as_chunks::<STEP_BYTES>();
        let mut lanes = [[0; LANES]; 4];
        sum_steps_inline(&mut lanes, steps);
        plain(fold(&lanes), rest)
    }

    fn noise(len: usize) -> Vec<u8> {
        let mut x = len as u64;
        let mut next = || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (x >> 56) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn every_length_sums_as_the_definition_says() {
        let bytes = noise(2051);
        for len in 0..bytes.len() {
            let expected = plain([0; 4], &bytes[..len]);
            assert_eq!(fletcher4(&bytes[..len]), expected, "length {len}");
            assert_eq!(portable(&bytes[..len]), expected, "length {len}");
        }
    }

    #[test]
    fn every_vector_width_gives_the_same_sums() {
        let bytes = noise(131_072);
        let (steps, _) = bytes.as_chunks::<STEP_BYTES>();
        let expected = plain([0; 4], &bytes);
        let mut lanes = [[0; LANES]; 4];
        sum_steps_inline(&mut lanes, steps);
        assert_eq!(fold(&lanes), expected);
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                lanes = [[0; LANES]; 4];
                // SAFETY: the CPU has what the function was compiled for.
                unsafe { vectors::avx2::sum(&mut lanes, steps) };
                assert_eq!(fold(&lanes), expected);
            }
            if has_avx512() {
                lanes = [[0; LANES]; 4];
                // SAFETY: the CPU has what the function was compiled for.
                unsafe { vectors::avx512::sum(&mut lanes, steps) };
                assert_eq!(fold(&lanes), expected);
            }
        }
    }

    #[test]
    fn sums_wrap_in_the_largest_block() {
        let bytes = vec![0xff; 16 << 20];
        let expected = plain([0; 4], &bytes);
        assert_eq!(fletcher4(&bytes), expected);
        let (front, back) = bytes.split_at(4096);
        assert_eq!(fletcher4_append(fletcher4(front), back), expected);
        assert_eq!(fletcher4_append(fletcher4(back), front), expected);
    }

    proptest! {
        #[test]
        fn prop_fletcher4_is_the_plain_loop(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
            prop_assert_eq!(fletcher4(&bytes), plain([0; 4], &bytes));
        }

        #[test]
        fn prop_copy_copies_and_sums(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
            let mut target = vec![0; bytes.len()];
            prop_assert_eq!(copy_fletcher4(&bytes, &mut target), fletcher4(&bytes));
            prop_assert_eq!(target, bytes);
        }

        #[test]
        fn prop_appending_is_summing_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 0..3000), cut in 0usize..3000,
        ) {
            let (front, back) = bytes.split_at(cut.min(bytes.len()) / 16 * 16);
            prop_assert_eq!(fletcher4_append(fletcher4(front), back), fletcher4(&bytes));
            prop_assert_eq!(fletcher2_append(fletcher2(front), back), fletcher2(&bytes));
        }
    }
}
