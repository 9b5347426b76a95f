//! 16 bytes at a time on ARM: table look-ups multiply both halves of each byte.

use std::arch::aarch64::*;

use crate::field::{Factor, REDUCTION};
use crate::kernel::kernel;
use crate::solve::Matrix;

type Vector = uint8x16_t;
const WIDTH: usize = 16;
const LANES: usize = 4;

/// The products with each half of a byte.
#[derive(Clone, Copy)]
struct Table {
    low: Vector,
    high: Vector,
}

#[inline]
#[target_feature(enable = "neon")]
fn zero() -> Vector {
    vdupq_n_u8(0)
}

#[inline]
#[target_feature(enable = "neon")]
fn load(bytes: &[u8; WIDTH]) -> Vector {
    // SAFETY: the array has as many bytes as the vector; it need not be aligned.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn store(vector: Vector, bytes: &mut [u8; WIDTH]) {
    // SAFETY: the array has as many bytes as the vector; it need not be aligned.
    unsafe { vst1q_u8(bytes.as_mut_ptr(), vector) }
}

#[inline]
#[target_feature(enable = "neon")]
fn add(a: Vector, b: Vector) -> Vector {
    veorq_u8(a, b)
}

#[inline]
#[target_feature(enable = "neon")]
fn double(a: Vector) -> Vector {
    let carries = vreinterpretq_u8_s8(vshrq_n_s8::<7>(vreinterpretq_s8_u8(a)));
    veorq_u8(vshlq_n_u8::<1>(a), vandq_u8(carries, vdupq_n_u8(REDUCTION)))
}

#[inline]
#[target_feature(enable = "neon")]
fn quadruple(a: Vector) -> Vector {
    double(double(a))
}

#[inline]
#[target_feature(enable = "neon")]
fn table(factor: &Factor) -> Table {
    Table {
        low: load(&factor.low),
        high: load(&factor.high),
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn multiply(a: Vector, table: Table) -> Vector {
    let low = vqtbl1q_u8(table.low, vandq_u8(a, vdupq_n_u8(0x0f)));
    veorq_u8(low, vqtbl1q_u8(table.high, vshrq_n_u8::<4>(a)))
}

kernel!(#[target_feature(enable = "neon")]);
