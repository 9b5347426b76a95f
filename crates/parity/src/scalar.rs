//! Eight bytes in a word: for any processor.

use crate::field::{Factor, REDUCTION};
use crate::kernel::kernel;
use crate::solve::Matrix;

type Vector = u64;
type Table = u8;
const WIDTH: usize = 8;
const LANES: usize = 4;
/// 1 in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

fn zero() -> Vector {
    0
}

fn load(bytes: &[u8; WIDTH]) -> Vector {
    u64::from_ne_bytes(*bytes)
}

fn store(vector: Vector, bytes: &mut [u8; WIDTH]) {
    *bytes = vector.to_ne_bytes();
}

fn add(a: Vector, b: Vector) -> Vector {
    a ^ b
}

/// Factors below go to bytes that are 0 or 1, so that nothing is carried from byte to byte.
fn double(a: Vector) -> Vector {
    ((a & (0x7f * ONES)) << 1) ^ (((a >> 7) & ONES) * u64::from(REDUCTION))
}

fn quadruple(a: Vector) -> Vector {
    double(double(a))
}

fn table(factor: &Factor) -> Table {
    factor.value
}

fn multiply(a: Vector, factor: Table) -> Vector {
    let (mut product, mut shifted) = (0, factor);
    for bit in 0..8 {
        product ^= ((a >> bit) & ONES) * u64::from(shifted);
        shifted = crate::field::double(shifted);
    }
    product
}

kernel!();
