//! Which sums lack which columns, and the matrix that takes them apart.
//!
//! # What it is
//! The sum of parity `r` over the data columns that are left, plus the parity itself, is the sum over the
//! missing ones: `s[r] = sum of g[r]^(n-1-m) D[m]`, with the generators `g` = 1, 2, 4. With as many sums as
//! missing columns that is a square matrix. It has an inverse: its rows are the powers 0, 1 or 2 of as many
//! different elements 2^(n-1-m), and every choice of rows is, up to factors, a Vandermonde matrix of these
//! elements or of their squares, which differ as well.

use crate::PARITY_MAX;
use crate::field::{inverse, multiply, power};

/// The generators of P, Q and R.
pub(crate) const GENERATORS: [u8; PARITY_MAX] = [1, 2, 4];

/// Column `m` of the missing ones is the sum of `matrix[m][s]` times sum `s`.
pub(crate) type Matrix = [[u8; PARITY_MAX]; PARITY_MAX];

/// The matrix for these parities, of `n` data columns of which those in `missing` are missing.
pub(crate) fn matrix(n: usize, parities: &[usize], missing: &[usize]) -> Matrix {
    let size = missing.len();
    assert!(
        parities.len() == size && size <= PARITY_MAX,
        "{} parities for {size} columns",
        parities.len()
    );
    let mut rows = [[0; PARITY_MAX]; PARITY_MAX];
    for (row, parity) in rows.iter_mut().zip(parities) {
        for (cell, column) in row.iter_mut().zip(missing) {
            *cell = power(GENERATORS[*parity], n - 1 - column);
        }
    }
    inverted(rows, size)
}

/// The inverse of the first `size` rows and columns.
fn inverted(mut rows: Matrix, size: usize) -> Matrix {
    let mut result = [[0; PARITY_MAX]; PARITY_MAX];
    for (n, row) in result.iter_mut().enumerate() {
        row[n] = 1;
    }
    for at in 0..size {
        let is_pivot = |row: &usize| rows[*row][at] != 0;
        let pivot = (at..size)
            .find(is_pivot)
            .expect("the matrix has an inverse");
        rows.swap(at, pivot);
        result.swap(at, pivot);
        let factor = inverse(rows[at][at]);
        let (pivot_row, pivot_result) = (scaled(rows[at], factor), scaled(result[at], factor));
        for row in 0..size {
            let factor = rows[row][at];
            if row == at {
                (rows[row], result[row]) = (pivot_row, pivot_result);
            } else {
                subtract(&mut rows[row], scaled(pivot_row, factor));
                subtract(&mut result[row], scaled(pivot_result, factor));
            }
        }
    }
    result
}

fn scaled(row: [u8; PARITY_MAX], factor: u8) -> [u8; PARITY_MAX] {
    row.map(|cell| multiply(cell, factor))
}

fn subtract(from: &mut [u8; PARITY_MAX], row: [u8; PARITY_MAX]) {
    for (cell, other) in from.iter_mut().zip(row) {
        *cell ^= other;
    }
}
