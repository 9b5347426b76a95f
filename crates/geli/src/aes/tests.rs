use super::*;
use proptest::prelude::*;
use xts_mode::{Xts128, get_tweak_default};

fn hex(text: &str) -> Vec<u8> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    assert!(rest.is_empty());
    let digit = |c: u8| char::from(c).to_digit(16).unwrap() as u8;
    pairs
        .iter()
        .map(|p| digit(p[0]) << 4 | digit(p[1]))
        .collect()
}

/// The vectors of IEEE 1619: key, number of the unit, plaintext, beginning and end of the ciphertext.
const XTS_VECTORS: &[(&str, u64, &str, &str, &str)] = &[
    (
        "0000000000000000000000000000000000000000000000000000000000000000",
        0,
        "0000000000000000000000000000000000000000000000000000000000000000",
        "917cf69ebd68b2ec9b9fe9a3eadda692",
        "cd43d2f59598ed858c02c2652fbf922e",
    ),
    (
        "1111111111111111111111111111111122222222222222222222222222222222",
        0x33_3333_3333,
        "4444444444444444444444444444444444444444444444444444444444444444",
        "c454185e6a16936e39334038acef838b",
        "fb186fff7480adc4289382ecd6d394f0",
    ),
    (
        "fffefdfcfbfaf9f8f7f6f5f4f3f2f1f022222222222222222222222222222222",
        0x33_3333_3333,
        "4444444444444444444444444444444444444444444444444444444444444444",
        "af85336b597afc1a900b2eb21ec949d2",
        "92df4c047e0b21532186a5971a227a89",
    ),
    (
        "2718281828459045235360287471352631415926535897932384626433832795",
        0,
        "", // 00 to ff, twice
        "27a7479befa1d476489f308cd4cfa6e2a96e4bbe3208ff25287dd3819616e89c",
        "eb4a427d1923ce3ff262735779a418f20a282df920147beabe421ee5319d0568",
    ),
    (
        "2718281828459045235360287471352662497757247093699959574966967627\
         3141592653589793238462643383279502884197169399375105820974944592",
        0xff,
        "",
        "1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b",
        "c4f36ffda9fcea70b9c6e693e148c151",
    ),
];

#[test]
fn xts_makes_what_the_standard_says() {
    for (key, number, plain, begin, end) in XTS_VECTORS {
        let plain = if plain.is_empty() {
            (0..512).map(|n| (n % 256) as u8).collect()
        } else {
            hex(plain)
        };
        let xts = Xts::new(&hex(key));
        let mut data = plain.clone();
        let len = data.len();
        xts.crypt(Direction::Encrypt, &mut data, len, (*number, 1));
        assert!(data.starts_with(&hex(begin)), "{key}");
        assert!(data.ends_with(&hex(end)), "{key}");
        xts.crypt(Direction::Decrypt, &mut data, len, (*number, 1));
        assert_eq!(data, plain);
    }
}

/// SP 800-38A, F.2.
#[test]
fn cbc_makes_what_the_standard_says() {
    let iv: [u8; 16] = std::array::from_fn(|n| n as u8);
    let plain = hex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51");
    for (key, encrypted) in [
        (
            "2b7e151628aed2a6abf7158809cf4f3c",
            "7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b2",
        ),
        (
            "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
            "4f021db243bc633d7178183a9fa071e8b4d9ada9ad7dedf4e5e738763f69145a",
        ),
        (
            "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
            "f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d",
        ),
    ] {
        let aes = AesKey::new(&hex(key));
        let mut data = plain.clone();
        aes.cbc_encrypt(iv, &mut data);
        assert_eq!(data, hex(encrypted));
        aes.cbc_decrypt(iv, &mut data);
        assert_eq!(data, plain);
    }
}

proptest! {
    #[test]
    fn prop_xts_agrees_with_the_crate_that_does_a_block_at_a_time(
        key in any::<[u8; 64]>(),
        is_long in any::<bool>(),
        blocks in 1usize..70,
        units in 1usize..70,
        first in 0u64..1 << 60,
        step in prop::sample::select(vec![1u64, 512, 4096]),
    ) {
        let mut data: Vec<u8> = (0..blocks * units * 16).map(|n| (n * 7 + 3) as u8).collect();
        let mut theirs = data.clone();
        let key = if is_long { &key[..] } else { &key[..32] };
        let number = |n: usize| get_tweak_default(u128::from(first + n as u64 * step));
        let (data_key, mask_key) = key.split_at(key.len() / 2);
        for (n, unit) in theirs.chunks_exact_mut(blocks * 16).enumerate() {
            if is_long {
                let [data, mask] = [data_key, mask_key].map(|k| Aes256::new_from_slice(k).unwrap());
                Xts128::new(data, mask).encrypt_sector(unit, number(n));
            } else {
                let [data, mask] = [data_key, mask_key].map(|k| Aes128::new_from_slice(k).unwrap());
                Xts128::new(data, mask).encrypt_sector(unit, number(n));
            }
        }
        let plain = data.clone();
        let xts = Xts::new(key);
        xts.crypt(Direction::Encrypt, &mut data, blocks * 16, (first, step));
        prop_assert!(data == theirs);
        xts.crypt(Direction::Decrypt, &mut data, blocks * 16, (first, step));
        prop_assert!(data == plain);
    }

    #[test]
    fn prop_cbc_goes_there_and_back(key in any::<[u8; 32]>(), iv in any::<[u8; 16]>(), blocks in 1usize..100) {
        let aes = AesKey::new(&key[..16]);
        let plain: Vec<u8> = (0..blocks * 16).map(|n| (n / 5) as u8).collect();
        let mut data = plain.clone();
        aes.cbc_encrypt(iv, &mut data);
        prop_assert!(data != plain);
        // Chains encrypted side by side give the same result as each alone.
        let mut units = plain.repeat(40);
        aes.cbc_encrypt_units(&mut units, plain.len(), || iv);
        prop_assert!(units.chunks(plain.len()).all(|unit| unit == data));
        aes.cbc_decrypt(iv, &mut data);
        prop_assert!(data == plain);
    }
}
