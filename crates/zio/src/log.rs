//! Block pointers of intent-log blocks, and the checksum such a block carries inside itself.
//!
//! # Source
//! OpenZFS `module/zfs/zio.c` (`zio_alloc_zil`), `module/zfs/zio_checksum.c`.

use base::Txg;
use phys::{BlkPtrPhys, ChecksumType, CompressType, ObjectType};

/// The pointer to a log block of `size` bytes that is not allocated yet, with the `verifier` in blk_cksum.
#[must_use]
pub fn new_log_bp(txg: Txg, size: u64, checksum: ChecksumType, verifier: [u64; 4]) -> BlkPtrPhys {
    assert!(
        matches!(checksum, ChecksumType::Zilog | ChecksumType::Zilog2),
        "{checksum:?} is not for logs"
    );
    let mut bp = BlkPtrPhys::default();
    bp.set_lsize(size);
    bp.set_psize(size);
    bp.set_type(ObjectType::INTENT_LOG.raw());
    bp.set_level(0);
    bp.set_compress(CompressType::Off.raw());
    bp.set_checksum(checksum.raw());
    bp.set_birth(txg, txg);
    bp.set_little_endian();
    bp.set_cksum(verifier);
    bp
}
