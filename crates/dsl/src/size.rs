//! The three sizes in every DSL space account.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};

use phys::blkptr::BlkPtrPhys;

use crate::env::PoolEnv;
use crate::fields::ACCOUNT_MAX_BYTES;

/// Space by three measures; signed, so that it can also be a change of space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Deflated allocated bytes (`*_used_bytes`, `*_referenced_bytes`).
    pub used: i64,
    /// Bytes after compression.
    pub comp: i64,
    /// Bytes before compression; for metadata, bytes after it.
    pub uncomp: i64,
}

impl Space {
    /// Nothing.
    pub const ZERO: Space = Space {
        used: 0,
        comp: 0,
        uncomp: 0,
    };

    /// From the on-disk fields.
    #[must_use]
    pub fn stored(used: u64, comp: u64, uncomp: u64) -> Space {
        Space {
            used: used.cast_signed(),
            comp: comp.cast_signed(),
            uncomp: uncomp.cast_signed(),
        }
    }

    /// The space charged for one block.
    #[must_use]
    pub fn of_block(env: &dyn PoolEnv, bp: &BlkPtrPhys) -> Space {
        if bp.is_hole() || bp.is_redacted() {
            return Space::ZERO;
        }
        let uncomp = if bp.is_metadata() {
            bp.psize()
        } else {
            bp.lsize()
        };
        Space::stored(env.dsize(bp), bp.psize(), uncomp)
    }

    /// Whether all three are 0.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Space::ZERO
    }
}

impl Add for Space {
    type Output = Space;
    fn add(self, other: Space) -> Space {
        Space {
            used: self.used.wrapping_add(other.used),
            comp: self.comp.wrapping_add(other.comp),
            uncomp: self.uncomp.wrapping_add(other.uncomp),
        }
    }
}

impl Neg for Space {
    type Output = Space;
    fn neg(self) -> Space {
        Space {
            used: self.used.wrapping_neg(),
            comp: self.comp.wrapping_neg(),
            uncomp: self.uncomp.wrapping_neg(),
        }
    }
}

impl Sub for Space {
    type Output = Space;
    fn sub(self, other: Space) -> Space {
        self + -other
    }
}

impl AddAssign for Space {
    fn add_assign(&mut self, other: Space) {
        *self = *self + other;
    }
}

impl SubAssign for Space {
    fn sub_assign(&mut self, other: Space) {
        *self = *self - other;
    }
}

impl Sum for Space {
    fn sum<I: Iterator<Item = Space>>(iter: I) -> Space {
        iter.fold(Space::ZERO, Add::add)
    }
}

/// Adds a change to an account on disk.
///
/// A subtraction must match an earlier addition; this crate's tests assert that. But other software
/// has written wrong accounts to disk before, so one that would go negative, or beyond what any pool can
/// hold, becomes 0.
pub(crate) fn apply(account: &mut u64, change: i64, what: &str) {
    let changed = account.checked_add_signed(change);
    assert!(
        changed.is_some() || !cfg!(test),
        "{what} is {account} and cannot change by {change}"
    );
    *account = changed
        .filter(|bytes| *bytes <= ACCOUNT_MAX_BYTES)
        .unwrap_or(0);
}
