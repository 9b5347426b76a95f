//! Every implementation that this processor has, beside byte-wise sums.

use proptest::prelude::*;

use crate::field::{Factor, double, inverse, multiply, power};
use crate::*;

/// The product of two polynomials, then the remainder: without any of what it is compared with.
fn by_definition(a: u8, b: u8) -> u8 {
    let mut product = 0u32;
    for bit in 0..8 {
        if b >> bit & 1 == 1 {
            product ^= u32::from(a) << bit;
        }
    }
    for bit in (8..16).rev() {
        if product >> bit & 1 == 1 {
            product ^= 0x11d << (bit - 8);
        }
    }
    u8::try_from(product).unwrap()
}

/// P, Q or R of data columns: each byte by the sum that defines it.
fn parity_by_definition(which: usize, data: &[Vec<u8>]) -> Vec<u8> {
    let generator = [1, 2, 4][which];
    let mut parity = vec![0; data[0].len()];
    let mut factor = 1;
    for column in data.iter().rev() {
        for (sum, byte) in parity.iter_mut().zip(column) {
            *sum ^= by_definition(factor, *byte);
        }
        factor = by_definition(factor, generator);
    }
    parity
}

/// Parity columns, then data.
fn columns_by_definition(nparity: usize, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let parity = (0..nparity).map(|which| parity_by_definition(which, data));
    parity.chain(data.iter().cloned()).collect()
}

fn generated(by: Implementation, nparity: usize, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut parity = vec![vec![0xaa; data[0].len()]; nparity];
    let mut out: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    by.generate(&slices, &mut out);
    parity.extend(data.iter().cloned());
    parity
}

fn check_reconstruct(by: Implementation, nparity: usize, right: &[Vec<u8>], missing: &[usize]) {
    let mut columns = right.to_vec();
    for n in missing {
        columns[*n].fill(0x55);
    }
    let mut slices: Vec<&mut [u8]> = columns.iter_mut().map(Vec::as_mut_slice).collect();
    by.reconstruct(nparity, &mut slices, missing);
    let (name, data) = (by.name(), right.len() - nparity);
    assert!(
        columns == right,
        "{name}: {missing:?} of {nparity} + {data} columns of {} bytes",
        right[0].len()
    );
}

/// All ascending lists of at most `most` numbers below `n`.
fn sets(n: usize, most: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    let mut last = all.clone();
    for _ in 0..most {
        let longer = |set: &Vec<usize>| {
            let set = set.clone();
            let first = set.last().map_or(0, |last| last + 1);
            (first..n).map(move |next| [&set[..], &[next]].concat())
        };
        last = last.iter().flat_map(longer).collect();
        all.extend(last.iter().cloned());
    }
    all
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (x >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn the_field_is_that_of_polynomials_modulo_0x11d() {
    for a in 0..=255 {
        assert_eq!(double(a), by_definition(a, 2));
        for b in 0..=255 {
            assert_eq!(multiply(a, b), by_definition(a, b), "{a} * {b}");
        }
        assert_eq!(power(a, 0), 1);
        assert_eq!(power(a, 5), (0..5).fold(1, |p, _| by_definition(p, a)));
        if a != 0 {
            assert_eq!(by_definition(a, inverse(a)), 1, "1 / {a}");
        }
    }
    let mut powers: Vec<u8> = (0..255).map(|n| power(2, n)).collect();
    powers.sort_unstable();
    assert!(powers.into_iter().eq(1..=255), "2 generates all but 0");
}

#[test]
fn every_form_of_a_factor_gives_the_product() {
    for value in 0..=255 {
        let factor = Factor::new(value);
        for a in 0..=255u8 {
            let product = by_definition(value, a);
            let halves = factor.low[usize::from(a & 15)] ^ factor.high[usize::from(a >> 4)];
            assert_eq!(halves, product, "{value} * {a}");
            let rows = factor.matrix.to_be_bytes();
            let sum = |bit: usize| ((rows[bit] & a).count_ones() as u8 & 1) << bit;
            let bits = (0..8).map(sum).fold(0, |byte, bit| byte | bit);
            assert_eq!(bits, product, "{value} * {a}");
        }
    }
}

#[test]
fn parity_of_known_columns_is_known() {
    // By hand, byte by byte. First: 4 * 1 + 2 * 2 + 3 = 3 and 16 * 1 + 4 * 2 + 3 = 0x1b. Second: 0x80
    // doubled is 0x1d, then 0x3a, 0x74, 0xe8. Third: 0xff doubled is 0xe3, then 0xdb, 0xab, 0x4b, and
    // 0xdb + 0xe3 = 0x38, 0x4b + 0xdb = 0x90.
    let data = [
        vec![0x01, 0x80, 0xff],
        vec![0x02, 0x00, 0xff],
        vec![0x03, 0x00],
    ];
    let expected = [
        vec![0x00, 0x80, 0x00],
        vec![0x03, 0x3a, 0x38],
        vec![0x1b, 0xe8, 0x90],
    ];
    for by in Implementation::available() {
        let columns = generated(by, 3, &data);
        assert_eq!(columns[..3], expected, "{}", by.name());
    }
}

#[test]
fn every_set_of_missing_columns_of_small_blocks_comes_back() {
    for by in Implementation::available() {
        for nparity in 1..=3 {
            for count in 1..=5 {
                let lens = [67, 67, 33, 32, 0];
                let data: Vec<_> = (0..count).map(|n| noise(n as u64, lens[n])).collect();
                let right = columns_by_definition(nparity, &data);
                assert_eq!(generated(by, nparity, &data), right, "{}", by.name());
                for missing in sets(right.len(), nparity) {
                    check_reconstruct(by, nparity, &right, &missing);
                }
            }
        }
    }
}

#[test]
fn every_pair_and_samples_of_three_of_the_most_columns_come_back() {
    let data: Vec<_> = (0..DATA_MAX).map(|n| noise(n as u64, 3)).collect();
    let right = columns_by_definition(3, &data);
    let by = Implementation::fastest();
    let mut x = 1u64;
    for missing in sets(right.len(), 2) {
        check_reconstruct(by, 3, &right, &missing);
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mut three = missing.clone();
        three.push((x >> 33) as usize % right.len());
        three.sort_unstable();
        three.dedup();
        check_reconstruct(by, 3, &right, &three);
    }
}

#[test]
fn every_length_around_a_vector_is_right() {
    for by in Implementation::available() {
        for len in (0usize..300).chain([511, 512, 513, 1023, 1025]) {
            let lens = [len, len.saturating_sub(1), len / 2];
            let data: Vec<_> = lens.iter().map(|len| noise(9, *len)).collect();
            let right = columns_by_definition(3, &data);
            assert_eq!(generated(by, 3, &data), right, "{}, {len} bytes", by.name());
            check_reconstruct(by, 3, &right, &[1, 3, 5]);
        }
    }
}

#[test]
#[should_panic(expected = "2 columns are missing, 1 can be computed")]
fn more_columns_than_parities_cannot_be_asked_for() {
    let mut columns = [[0u8; 4]; 3];
    let mut slices: Vec<&mut [u8]> = columns.iter_mut().map(|c| &mut c[..]).collect();
    reconstruct(1, &mut slices, &[0, 1]);
}

/// Data columns: the first is the longest.
fn columns() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let lens = (1..=DATA_MAX, 0usize..700).prop_flat_map(|(count, first)| {
        let other = prop_oneof![Just(first), Just(first.saturating_sub(512)), 0..=first];
        (Just(first), prop::collection::vec(other, count - 1))
    });
    (lens, any::<u64>()).prop_map(|((first, others), seed)| {
        let lens = std::iter::once(first).chain(others);
        let column = |(n, len)| noise(seed.wrapping_add(n as u64), len);
        lens.enumerate().map(column).collect()
    })
}

proptest! {
    #[test]
    fn prop_every_implementation_is_the_definition(
        data in columns(),
        nparity in 1..=PARITY_MAX,
        picks in prop::collection::vec(any::<prop::sample::Index>(), PARITY_MAX),
        is_few in any::<bool>(),
    ) {
        let data = if is_few { &data[..data.len().min(9)] } else { &data[..] };
        let right = columns_by_definition(nparity, data);
        let mut missing: Vec<_> = picks[..nparity].iter().map(|i| i.index(right.len())).collect();
        missing.sort_unstable();
        missing.dedup();
        for by in Implementation::available() {
            prop_assert_eq!(&generated(by, nparity, data), &right, "{}", by.name());
            check_reconstruct(by, nparity, &right, &missing);
        }
    }
}
