//! The loops over columns, written once and compiled for each implementation.
//!
//! # What it is
//! `kernel!` defines `generate` and `reconstruct` for the vectors of the module that it is used in. Columns
//! are empty, which counts as zeros, or all of one length, which is a multiple of
//! [`UNIT`](crate::segment::UNIT): [`segment`](crate::segment) cuts others into such ones. The module provides
//! the type `Vector` of `WIDTH` bytes, `LANES`, how many of them each sum has in registers at a time, a
//! `Table` to multiply by a constant, and:
//! ```text
//! zero() -> Vector                          load(&[u8; WIDTH]) -> Vector
//! add(Vector, Vector) -> Vector             store(Vector, &mut [u8; WIDTH])
//! double(Vector) -> Vector                  table(&Factor) -> Table
//! quadruple(Vector) -> Vector               multiply(Vector, Table) -> Vector
//! ```
//!
//! # Why not simpler
//! A generic function over a trait cannot enable the features of its vectors; a macro can, and so the
//! intrinsics are called from functions that are compiled for them, which is safe. Loops are written without
//! closures because those of the standard library's functions are compiled without the features.

macro_rules! kernel {
    ($(#[$features:meta])*) => {
        /// Bytes of each column that are worked on at a time.
        const BLOCK: usize = LANES * WIDTH;
        const _: () = assert!(crate::segment::UNIT.is_multiple_of(BLOCK));
        /// That part of a column, or of a sum of columns.
        type Block = [Vector; LANES];

        #[inline]
        $(#[$features])*
        fn load_block(column: &[u8], at: usize) -> Block {
            let mut block = [zero(); LANES];
            let bytes = &column[at..at + BLOCK];
            for (vector, bytes) in block.iter_mut().zip(bytes.as_chunks().0) {
                *vector = load(bytes);
            }
            block
        }

        #[inline]
        $(#[$features])*
        fn store_block(block: Block, column: &mut [u8], at: usize) {
            let bytes = &mut column[at..at + BLOCK];
            for (vector, bytes) in block.into_iter().zip(bytes.as_chunks_mut().0) {
                store(vector, bytes);
            }
        }

        #[inline]
        $(#[$features])*
        fn store_missing(block: Block, column: &mut [u8], at: usize) {
            if !column.is_empty() {
                store_block(block, column, at);
            }
        }

        #[inline]
        $(#[$features])*
        fn add_blocks(a: Block, b: Block) -> Block {
            let mut sum = a;
            for (sum, b) in sum.iter_mut().zip(b) {
                *sum = add(*sum, b);
            }
            sum
        }

        /// The sums of those parities that are asked for; the others are 0.
        #[inline]
        $(#[$features])*
        fn sums<const P: bool, const Q: bool, const R: bool>(
            data: &[&[u8]],
            at: usize,
        ) -> [Block; 3] {
            let mut p = [zero(); LANES];
            let (mut q, mut r) = (p, p);
            for column in data {
                for lane in 0..LANES {
                    if Q {
                        q[lane] = double(q[lane]);
                    }
                    if R {
                        r[lane] = quadruple(r[lane]);
                    }
                }
                if column.is_empty() {
                    continue;
                }
                let block = load_block(column, at);
                for lane in 0..LANES {
                    if P {
                        p[lane] = add(p[lane], block[lane]);
                    }
                    if Q {
                        q[lane] = add(q[lane], block[lane]);
                    }
                    if R {
                        r[lane] = add(r[lane], block[lane]);
                    }
                }
            }
            [p, q, r]
        }

        $(#[$features])*
        fn generate_these<const P: bool, const Q: bool, const R: bool>(
            data: &[&[u8]],
            parity: &mut [&mut [u8]],
        ) {
            // Parities that are not asked for have no column.
            let (q_at, r_at) = (usize::from(P), usize::from(P) + usize::from(Q));
            let mut at = 0;
            while at < parity[0].len() {
                let [p, q, r] = sums::<P, Q, R>(data, at);
                if P {
                    store_block(p, parity[0], at);
                }
                if Q {
                    store_block(q, parity[q_at], at);
                }
                if R {
                    store_block(r, parity[r_at], at);
                }
                at += BLOCK;
            }
        }

        $(#[$features])*
        fn reconstruct_these<const P: bool, const Q: bool, const R: bool>(
            data: &[&[u8]],
            parity: &[&[u8]],
            missing: &mut [&mut [u8]],
            matrix: &Matrix,
        ) {
            let (q_at, r_at) = (usize::from(P), usize::from(P) + usize::from(Q));
            let count = r_at + usize::from(R);
            let mut tables = [[table(Factor::of(0)); 3]; 3];
            for (tables, factors) in tables.iter_mut().zip(matrix) {
                for (to, factor) in tables.iter_mut().zip(factors) {
                    *to = table(Factor::of(*factor));
                }
            }
            let mut at = 0;
            while at < parity[0].len() {
                let [p, q, r] = sums::<P, Q, R>(data, at);
                let mut lacking = [[zero(); LANES]; 3];
                if P {
                    lacking[0] = add_blocks(p, load_block(parity[0], at));
                }
                if Q {
                    lacking[q_at] = add_blocks(q, load_block(parity[q_at], at));
                }
                if R {
                    lacking[r_at] = add_blocks(r, load_block(parity[r_at], at));
                }
                if P && count == 1 {
                    store_missing(lacking[0], missing[0], at);
                } else {
                    for m in 0..count {
                        let mut block = [zero(); LANES];
                        for s in 0..count {
                            for lane in 0..LANES {
                                let part = multiply(lacking[s][lane], tables[m][s]);
                                block[lane] = add(block[lane], part);
                            }
                        }
                        store_missing(block, missing[m], at);
                    }
                }
                at += BLOCK;
            }
        }

        /// Computes the parities that `which` names.
        $(#[$features])*
        pub(crate) fn generate(which: [bool; 3], data: &[&[u8]], parity: &mut [&mut [u8]]) {
            match which {
                [false, false, false] => {}
                [true, false, false] => generate_these::<true, false, false>(data, parity),
                [false, true, false] => generate_these::<false, true, false>(data, parity),
                [false, false, true] => generate_these::<false, false, true>(data, parity),
                [true, true, false] => generate_these::<true, true, false>(data, parity),
                [true, false, true] => generate_these::<true, false, true>(data, parity),
                [false, true, true] => generate_these::<false, true, true>(data, parity),
                [true, true, true] => generate_these::<true, true, true>(data, parity),
            }
        }

        /// Computes missing data columns, which are empty in `data`, by the parities that `which` names. Those
        /// that are empty in `missing` as well are left alone.
        $(#[$features])*
        pub(crate) fn reconstruct(
            which: [bool; 3],
            data: &[&[u8]],
            parity: &[&[u8]],
            missing: &mut [&mut [u8]],
            matrix: &Matrix,
        ) {
            match which {
                [false, false, false] => {}
                [true, false, false] => {
                    reconstruct_these::<true, false, false>(data, parity, missing, matrix);
                }
                [false, true, false] => {
                    reconstruct_these::<false, true, false>(data, parity, missing, matrix);
                }
                [false, false, true] => {
                    reconstruct_these::<false, false, true>(data, parity, missing, matrix);
                }
                [true, true, false] => {
                    reconstruct_these::<true, true, false>(data, parity, missing, matrix);
                }
                [true, false, true] => {
                    reconstruct_these::<true, false, true>(data, parity, missing, matrix);
                }
                [false, true, true] => {
                    reconstruct_these::<false, true, true>(data, parity, missing, matrix);
                }
                [true, true, true] => {
                    reconstruct_these::<true, true, true>(data, parity, missing, matrix);
                }
            }
        }
    };
}

pub(crate) use kernel;
