//! Pointers to blocks that were found on a device, and not by a pointer.

use base::{Txg, VdevId};
use phys::{BlkPtrPhys, ChecksumType, CompressType, DvaPhys, ObjectType};

use crate::VdevOps;

/// A block that was found.
#[derive(Clone, Copy, Debug)]
pub struct FoundBlock<'a> {
    /// Its bytes as they are stored: a multiple of 512.
    pub stored: &'a [u8],
    /// How many bytes they are without compression.
    pub lsize: u64,
    /// How they are compressed.
    pub compress: CompressType,
    /// What it is a block of.
    pub object_type: ObjectType,
    /// Its level in the tree of an object.
    pub level: u8,
    /// A txg that it is not older than.
    pub birth: Txg,
    /// Whether a little-endian host wrote it.
    pub is_little_endian: bool,
}

impl FoundBlock<'_> {
    /// A pointer to it at these offsets of top-level vdevs, three at most. Its checksum is that of the bytes as they
    /// were found, so it tells a copy from bytes that are not one, but not whether the block is what it seems to be.
    #[must_use]
    pub fn pointer(&self, vdevs: &dyn VdevOps, copies: &[(VdevId, u64)]) -> BlkPtrPhys {
        let psize = self.stored.len() as u64;
        let mut bp = BlkPtrPhys::default();
        for (n, (vdev, offset)) in copies.iter().take(bp.dva.len()).enumerate() {
            let asize = vdevs.psize_to_asize(*vdev, psize, self.birth);
            bp.set_dva(n, DvaPhys::new(*vdev, *offset, asize, false));
        }
        bp.set_lsize(self.lsize);
        bp.set_psize(psize);
        bp.set_compress(self.compress.raw());
        bp.set_checksum(ChecksumType::Fletcher4.raw());
        bp.set_type(self.object_type.raw());
        bp.set_level(self.level);
        bp.set_birth(self.birth, self.birth);
        bp.set_fill(1);
        let sum = if self.is_little_endian {
            bp.set_little_endian();
            checksum::fletcher4(self.stored)
        } else {
            checksum::fletcher4_big_endian(self.stored)
        };
        bp.set_cksum(sum);
        bp
    }
}
