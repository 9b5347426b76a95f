//! Edon-R 512 with the tweak of 2009, salted by a first block made from the pool's salt.
//!
//! # What it is
//! A wide-pipe hash: the state is two halves of eight words, and each 128-byte message block
//! is applied to it in four rows of quasigroup products. The product of two vectors mixes each with
//! its own invertible linear map and rotations and adds the results. OpenZFS keeps the first four
//! words of the upper half.
//!
//! # Source
//! Gligoroski et al., "Cryptographic hash function Edon-R'" (NIST SHA-3 submission and its
//! tweak); OpenZFS module/icp/algs/edonr/edonr.c for the chosen tweak, module/zfs/edonr_zfs.c for
//! the salt; test vectors from tests/zfs-tests/cmd/checksum/edonr_test.c @be7657e3.

use crate::{Salt, Words};
use std::array::from_fn;

const BLOCK_BYTES: usize = 128;
/// Bytes of the message length (in bits) at the end of the last block.
const LENGTH_BYTES: usize = 8;
/// Added to the first word of the left map; its complement to that of the right map.
const OFFSET: u64 = 0xaaaa_aaaa_aaaa_aaaa;

type Half = [u64; 8];

/// The state after some number of whole blocks.
#[derive(Clone)]
pub(crate) struct EdonR {
    lower: Half,
    upper: Half,
    bytes_done: u64,
}

impl EdonR {
    /// The state after the first block, H(salt) || H(H(salt)).
    pub(crate) fn new(salt: &Salt) -> EdonR {
        let first = to_bytes(&Self::unsalted().finish(salt));
        let second = to_bytes(&Self::unsalted().finish(&first));
        let mut block = [0; BLOCK_BYTES];
        block[..64].copy_from_slice(&first);
        block[64..].copy_from_slice(&second);
        let mut state = Self::unsalted();
        state.absorb(&block);
        state
    }

    pub(crate) fn digest(&self, bytes: &[u8]) -> Words {
        let [a, b, c, d, ..] = self.clone().finish(bytes);
        [a, b, c, d]
    }

    /// The initial state: the bytes 0x80, 0x81, .. 0xff as big-endian words.
    fn unsalted() -> EdonR {
        let word = |at: u8| u64::from_be_bytes(from_fn(|i| 0x80 + at * 8 + i as u8));
        EdonR {
            lower: from_fn(|i| word(i as u8)),
            upper: from_fn(|i| word(i as u8 + 8)),
            bytes_done: 0,
        }
    }

    /// Hashes the rest of the message and returns all eight words of the digest.
    fn finish(mut self, bytes: &[u8]) -> Half {
        let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
        for block in blocks {
            self.absorb(block);
        }
        let bits = (self.bytes_done + rest.len() as u64) * 8;
        let mut last = [0; 2 * BLOCK_BYTES];
        last[..rest.len()].copy_from_slice(rest);
        last[rest.len()] = 0x80;
        let end = if rest.len() + 1 + LENGTH_BYTES <= BLOCK_BYTES {
            BLOCK_BYTES
        } else {
            2 * BLOCK_BYTES
        };
        last[end - LENGTH_BYTES..end].copy_from_slice(&bits.to_le_bytes());
        for block in last[..end].as_chunks::<BLOCK_BYTES>().0 {
            self.absorb(block);
        }
        self.upper
    }

    fn absorb(&mut self, block: &[u8; BLOCK_BYTES]) {
        let (words, _) = block.as_chunks::<8>();
        let front: Half = from_fn(|i| u64::from_le_bytes(words[i]));
        let back: Half = from_fn(|i| u64::from_le_bytes(words[i + 8]));

        let (a, b) = row(&reversed(&back), &front, &back);
        let a = product(&self.upper, &a);
        let b = product(&a, &b);
        let a = product(&a, &self.lower);
        let b = product(&b, &a);
        let (a, b) = row(&reversed(&front), &a, &b);

        self.lower = from_fn(|i| self.lower[i] ^ back[i] ^ a[i]);
        self.upper = from_fn(|i| self.upper[i] ^ front[i] ^ b[i]);
        self.bytes_done += BLOCK_BYTES as u64;
    }
}

/// One row of products: `leader` with the first vector, then the result with the second.
#[inline(always)]
fn row(leader: &Half, first: &Half, second: &Half) -> (Half, Half) {
    let a = product(leader, first);
    let b = product(&a, second);
    (a, b)
}

fn reversed(half: &Half) -> Half {
    from_fn(|i| half[7 - i])
}

fn to_bytes(half: &Half) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (out, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(half) {
        *out = word.to_le_bytes();
    }
    bytes
}

#[inline(always)]
fn sum(words: &[u64]) -> u64 {
    words
        .iter()
        .fold(0, |total, word| total.wrapping_add(*word))
}

/// The quasigroup product: maps each operand, then adds the xor of three words of each per word.
#[inline(always)]
fn product(x: &Half, y: &Half) -> Half {
    let s = left_map(x);
    let t = right_map(y);
    let add = |s: u64, t: u64| s.wrapping_add(t);
    [
        add(s[0] ^ s[1] ^ s[4], t[0] ^ t[1] ^ t[5]),
        add(s[0] ^ s[4] ^ s[7], t[2] ^ t[6] ^ t[7]),
        add(s[1] ^ s[6] ^ s[7], t[0] ^ t[1] ^ t[3]),
        add(s[2] ^ s[3] ^ s[4], t[0] ^ t[3] ^ t[4]),
        add(s[0] ^ s[1] ^ s[7], t[1] ^ t[2] ^ t[5]),
        add(s[3] ^ s[5] ^ s[6], t[3] ^ t[4] ^ t[6]),
        add(s[2] ^ s[5] ^ s[6], t[2] ^ t[5] ^ t[7]),
        add(s[2] ^ s[3] ^ s[5], t[4] ^ t[6] ^ t[7]),
    ]
}

/// Sums five of the eight words per word, by the first of the two orthogonal Latin squares.
#[inline(always)]
fn left_map(x: &Half) -> Half {
    let outer = sum(&[x[0], x[1], x[4], x[7]]);
    let inner = sum(&[x[2], x[3], x[5], x[6]]);
    [
        sum(&[OFFSET, outer, x[2]]),
        sum(&[outer, x[3]]).rotate_left(5),
        sum(&[outer, x[6]]).rotate_left(15),
        sum(&[inner, x[7]]).rotate_left(22),
        sum(&[inner, x[1]]).rotate_left(31),
        sum(&[x[0], x[2], x[3], x[4], x[5]]).rotate_left(40),
        sum(&[x[0], x[1], x[5], x[6], x[7]]).rotate_left(50),
        sum(&[inner, x[4]]).rotate_left(59),
    ]
}

/// The same by the second square.
#[inline(always)]
fn right_map(y: &Half) -> Half {
    let front = sum(&[y[0], y[1]]);
    let middle = sum(&[y[3], y[4]]);
    let back = sum(&[y[6], y[7]]);
    let inner = sum(&[y[2], y[5]]);
    [
        sum(&[!OFFSET, front, inner, y[7]]),
        sum(&[front, middle, y[6]]).rotate_left(10),
        sum(&[front, inner, y[3]]).rotate_left(19),
        sum(&[middle, back, y[2]]).rotate_left(29),
        sum(&[front, middle, y[5]]).rotate_left(36),
        sum(&[inner, back, y[4]]).rotate_left(44),
        sum(&[inner, back, y[1]]).rotate_left(48),
        sum(&[middle, back, y[0]]).rotate_left(55),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(words: &Half) -> String {
        to_bytes(words).iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn matches_the_vectors_of_openzfs() {
        assert_eq!(
            hex(&EdonR::unsalted().finish(b"abc")),
            "1b14db155f1d406594b8cef70a4362ec6b5de6a5daf50ec999e987c19d3049e2\
             de5977bb05b1bb220050a1ea5b46a9f1740acafbf6b45032adc90c628372c22b"
        );
        assert_eq!(
            hex(&EdonR::unsalted().finish(
                b"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno\
                  ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"
            )),
            "5351070dc51c3b2baca5a60d0252ccb4e4921a96fe5a69e76dad48fd21a0845a\
             d57f880b3e4a907bc503151842bb949e1cba7439a6409a34b8436cb46921583c"
        );
    }

    #[test]
    fn padding_takes_a_second_block_when_the_length_does_not_fit() {
        let digests: Vec<Half> = (100..260)
            .map(|len| EdonR::unsalted().finish(&vec![0; len]))
            .collect();
        for (i, digest) in digests.iter().enumerate() {
            assert!(!digests[..i].contains(digest));
        }
    }
}
