//! The parity of RAID-Z: pure functions of bytes.
//!
//! # What it is
//! A block is cut into columns, one for each device, and up to three columns of parity are added: any so
//! many columns, data or parity, can be computed from the others. [`generate`] computes the parity of data
//! columns; [`reconstruct`] computes the missing columns in place.
//!
//! # On disk
//! Bytes are elements of the field with 256 elements, with the polynomial x^8 + x^4 + x^3 + x^2 + 1
//! (0x11d): a sum is an exclusive or. Of data columns `D[0]` to `D[n-1]`, the bytes at the same offset make
//! ```text
//! P = sum of       D[i]
//! Q = sum of 2^(n-1-i) D[i]     = (..(D[0] * 2 + D[1]) * 2 + ..) * 2 + D[n-1]
//! R = sum of 4^(n-1-i) D[i]     = (..(D[0] * 4 + D[1]) * 4 + ..) * 4 + D[n-1]
//! ```
//! A column that is shorter than the first one counts as if it ended in zeros. The powers of 2 repeat after
//! 255 steps, so 255 data columns have different factors, and any three of the columns can be computed.
//!
//! # Invariants
//! 1. Every function here depends only on its arguments: the CPU's features affect how parity is computed,
//!    never its value.
//! 2. Nothing is written but the columns that are asked for, up to their lengths.
//!
//! # How it is fast
//! A few hundred bytes of every column at a time: the sums stay in registers until the last column was
//! added, so each byte of data is loaded once and each byte of parity stored once. Reconstruction is the
//! same loop over the columns that are left, with the stored parity added: what remains are the sums of the
//! missing columns, which a matrix of at most 3 by 3 takes apart before anything leaves the registers.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_raidz.c` (the definition), `vdev_raidz_math_impl.h` (which sums need which
//! matrix).

mod field;
mod implementation;
mod kernel;
mod scalar;
mod segment;
mod solve;

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use implementation::Implementation;

/// The most columns of parity (`VDEV_RAIDZ_MAXPARITY`).
pub const PARITY_MAX: usize = 3;
/// The most columns of data: from the 256th on, factors repeat.
pub const DATA_MAX: usize = 255;

/// Computes the parity of data columns: P, or P and Q, or P, Q and R, by the length of `parity`. Each is as
/// long as the first data column; the others may be shorter.
///
/// # Panics
/// If there are no columns, or too many, or their lengths are not as said.
#[doc(alias = "vdev_raidz_generate_parity")]
pub fn generate(data: &[&[u8]], parity: &mut [&mut [u8]]) {
    Implementation::fastest().generate(data, parity);
}

/// Computes the columns whose numbers are in `missing` from the others. The first `nparity` of `columns` are
/// P, Q, R, the others data, with lengths as for [`generate`]; the contents of missing ones do not matter.
///
/// That the others are as they were written cannot be seen here: the caller compares the block's checksum.
///
/// # Panics
/// If more than `nparity` columns are missing, or `missing` does not ascend; otherwise as [`generate`].
#[doc(alias = "vdev_raidz_reconstruct")]
pub fn reconstruct(nparity: usize, columns: &mut [&mut [u8]], missing: &[usize]) {
    Implementation::fastest().reconstruct(nparity, columns, missing);
}

#[cfg(test)]
mod tests;
