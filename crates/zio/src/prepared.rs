//! A block whose checksum was computed while its bytes were copied in.
//!
//! # What it is
//! Bytes are copied once before they are written, into the block that keeps them until their txg is
//! synced. A fletcher4 costs next to nothing during that copy, and a lot afterwards, when the bytes have
//! left the processor's caches. Where the policy stores blocks uncompressed, the DMU therefore copies
//! them with [`Prepared::summed_copy`], and the pipeline does not go through them again. Corruption of
//! the bytes in memory after that is detected when they are read from disk.
//!
//! # Invariants
//! The sum always matches the bytes: mutable access to them ([`Prepared::make_mut`]) drops it.

use std::ops::Deref;

use base::{BlockBuf, Buf};
use compress::Algorithm;
use phys::ChecksumType;

use crate::WritePolicy;

impl WritePolicy {
    /// Whether blocks are stored uncompressed, with a checksum that can be computed while they are
    /// copied.
    #[must_use]
    pub fn sums_on_arrival(&self) -> bool {
        self.compress == Algorithm::Off && self.checksum == ChecksumType::Fletcher4 && !self.encrypt
    }
}

/// The bytes of a block to be written, and their checksum if it is known.
#[derive(Clone, Debug)]
pub struct Prepared {
    data: Buf,
    fletcher4: Option<Box<[u64; 4]>>,
}

impl Prepared {
    /// A copy of `bytes`, with their checksum.
    #[must_use]
    pub fn summed_copy(bytes: &[u8]) -> Prepared {
        let mut block = BlockBuf::scratch(bytes.len());
        let sum = checksum::copy_fletcher4(bytes, &mut block);
        Prepared {
            data: block.share(),
            fletcher4: Some(Box::new(sum)),
        }
    }

    /// Whether the checksum is known: where the policy [sums on arrival](WritePolicy::sums_on_arrival)
    /// the block only needs to be allocated.
    #[must_use]
    pub fn is_summed(&self) -> bool {
        self.fletcher4.is_some()
    }

    pub(crate) fn fletcher4(&self) -> Option<[u64; 4]> {
        self.fletcher4.as_deref().copied()
    }

    /// Mutable access to the bytes, which drops the checksum; see [`Buf::make_mut`].
    pub fn make_mut(&mut self) -> &mut [u8] {
        self.fletcher4 = None;
        self.data.make_mut()
    }
}

impl From<Buf> for Prepared {
    fn from(data: Buf) -> Prepared {
        Prepared {
            data,
            fletcher4: None,
        }
    }
}

impl From<Prepared> for Buf {
    fn from(prepared: Prepared) -> Buf {
        prepared.data
    }
}

impl Deref for Prepared {
    type Target = Buf;

    fn deref(&self) -> &Buf {
        &self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_forgotten_when_the_bytes_may_change() {
        let mut a = Prepared::summed_copy(&[7; 512]);
        let mut b = a.clone();
        assert_eq!(b.fletcher4(), Some(checksum::fletcher4(&[7; 512])));
        b.make_mut()[0] = 1;
        assert_eq!((a.is_summed(), b.is_summed()), (true, false));
        assert_eq!((a[0], b[0]), (7, 1));
        a.make_mut();
        assert!(!a.is_summed());
    }
}
