//! The field with 256 elements that RAID-Z computes in.
//!
//! # What it is
//! A byte is a polynomial of degree below 8 over the integers modulo 2; products are taken modulo
//! x^8 + x^4 + x^3 + x^2 + 1. The element 2, which is x, has order 255: its powers are all elements but 0.

/// What x^8 is modulo the polynomial.
pub(crate) const REDUCTION: u8 = 0x1d;

/// Twice `a`.
#[doc(alias = "VDEV_RAIDZ_MUL_2")]
pub(crate) const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 == 0 { 0 } else { REDUCTION }
}

/// The product.
pub(crate) const fn multiply(a: u8, b: u8) -> u8 {
    let (mut product, mut shifted, mut rest) = (0, a, b);
    while rest != 0 {
        if rest & 1 != 0 {
            product ^= shifted;
        }
        shifted = double(shifted);
        rest >>= 1;
    }
    product
}

/// `base` to the power of `exponent`.
pub(crate) const fn power(base: u8, exponent: usize) -> u8 {
    let (mut product, mut square, mut rest) = (1, base, exponent);
    while rest != 0 {
        if rest & 1 != 0 {
            product = multiply(product, square);
        }
        square = multiply(square, square);
        rest >>= 1;
    }
    product
}

/// The element whose product with `a` is 1.
pub(crate) fn inverse(a: u8) -> u8 {
    assert!(a != 0, "0 has no inverse");
    INVERSES[usize::from(a)]
}

static INVERSES: [u8; 256] = {
    let mut inverses = [0; 256];
    let mut a = 1;
    while a < 256 {
        inverses[a] = power(a as u8, 254);
        a += 1;
    }
    inverses
};

/// A constant factor, in the forms in which processors multiply by one.
#[derive(Clone, Copy)]
pub(crate) struct Factor {
    /// The factor.
    pub(crate) value: u8,
    /// Its products with 0 to 15.
    pub(crate) low: [u8; 16],
    /// Its products with 16 times 0 to 15.
    pub(crate) high: [u8; 16],
    /// The product as a linear map of bits: byte `7 - i` has the bits of the other factor whose sum is bit
    /// `i` of the product.
    pub(crate) matrix: u64,
}

/// Every factor: to make one takes as long as to multiply thousands of bytes.
static FACTORS: [Factor; 256] = {
    let mut factors = [Factor::new(0); 256];
    let mut value = 1;
    while value < 256 {
        factors[value] = Factor::new(value as u8);
        value += 1;
    }
    factors
};

impl Factor {
    /// The factor of this value.
    pub(crate) fn of(value: u8) -> &'static Factor {
        &FACTORS[usize::from(value)]
    }

    pub(crate) const fn new(value: u8) -> Factor {
        let (mut low, mut high) = ([0; 16], [0; 16]);
        let mut n = 0u8;
        while n < 16 {
            low[n as usize] = multiply(value, n);
            high[n as usize] = multiply(value, n << 4);
            n += 1;
        }
        let (mut matrix, mut column) = (0, 0);
        while column < 8 {
            let product = multiply(value, 1 << column);
            let mut bit = 0;
            while bit < 8 {
                if product & (1 << bit) != 0 {
                    matrix |= 1 << (8 * (7 - bit) + column);
                }
                bit += 1;
            }
            column += 1;
        }
        Factor {
            value,
            low,
            high,
            matrix,
        }
    }
}
