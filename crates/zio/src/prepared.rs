//! A block that was written whole, and whose checksum may have been computed while its bytes were copied in.
//!
//! # What it is
//! Bytes are copied once before they are written, into the block that keeps them until their txg is
//! synced. A fletcher4 costs next to nothing during that copy, and a lot afterwards, when the bytes have
//! left the processor's caches. Where the policy stores blocks as they are, the DMU therefore copies
//! them with [`Prepared::summed_copy`], and the pipeline does not go through them again. Corruption of
//! the bytes in memory after that is detected when they are read from disk. Of blocks that are encrypted
//! the checksum is that of other bytes: they are a [`Prepared::whole_copy`].
//!
//! # Invariants
//! The sum always matches the bytes: mutable access to them ([`Prepared::make_mut`]) drops it, and the
//! block does not count as written whole any more.

use std::ops::Deref;

use base::{BlockBuf, Buf};
use compress::Algorithm;
use phys::ChecksumType;

use crate::WritePolicy;

impl WritePolicy {
    /// Whether storing a block takes little of the processor: it is not compressed, looked for in a
    /// dedup table, or under a checksum that takes long.
    #[must_use]
    pub fn writes_behind(&self) -> bool {
        self.compress == Algorithm::Off && self.checksum == ChecksumType::Fletcher4
    }

    /// Whether blocks are stored as they are, with a checksum that can be computed while they are copied.
    #[must_use]
    pub fn sums_on_arrival(&self) -> bool {
        self.writes_behind() && !self.encrypt
    }
}

/// The bytes of a block to be written, and their checksum if it is known.
#[derive(Clone, Debug)]
pub struct Prepared {
    data: Buf,
    fletcher4: Option<Box<[u64; 4]>>,
    is_whole: bool,
}

impl Prepared {
    /// A copy of `bytes`, a whole block.
    #[must_use]
    pub fn whole_copy(bytes: &[u8]) -> Prepared {
        Prepared {
            is_whole: true,
            ..Buf::copy_of(bytes).into()
        }
    }

    /// A copy of `bytes`, with their checksum.
    #[must_use]
    pub fn summed_copy(bytes: &[u8]) -> Prepared {
        let mut block = BlockBuf::scratch(bytes.len());
        let sum = checksum::copy_fletcher4(bytes, &mut block);
        Prepared {
            data: block.share(),
            fletcher4: Some(Box::new(sum)),
            is_whole: true,
        }
    }

    /// Whether it was copied as a whole, and not changed since.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Whether the checksum is known: where the policy [sums on arrival](WritePolicy::sums_on_arrival)
    /// the block only needs to be allocated.
    pub(crate) fn is_summed(&self) -> bool {
        self.fletcher4.is_some()
    }

    pub(crate) fn fletcher4(&self) -> Option<[u64; 4]> {
        self.fletcher4.as_deref().copied()
    }

    /// Mutable access to the bytes, which drops what is known of them; see [`Buf::make_mut`].
    pub fn make_mut(&mut self) -> &mut [u8] {
        self.fletcher4 = None;
        self.is_whole = false;
        self.data.make_mut()
    }
}

impl From<Buf> for Prepared {
    fn from(data: Buf) -> Prepared {
        Prepared {
            data,
            fletcher4: None,
            is_whole: false,
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
    fn what_is_known_is_forgotten_when_the_bytes_may_change() {
        let mut a = Prepared::summed_copy(&[7; 512]);
        let mut b = a.clone();
        assert_eq!(b.fletcher4(), Some(checksum::fletcher4(&[7; 512])));
        b.make_mut()[0] = 1;
        assert_eq!((a.is_summed(), b.is_summed()), (true, false));
        assert_eq!((a[0], b[0]), (7, 1));
        assert_eq!((a.is_whole(), b.is_whole()), (true, false));
        a.make_mut();
        assert!(!a.is_summed());
        let mut copied = Prepared::whole_copy(&[7; 512]);
        assert!(copied.is_whole() && !copied.is_summed());
        copied.make_mut();
        assert!(!copied.is_whole());
    }
}
