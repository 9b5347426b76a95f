//! Gang headers and log blocks: which verifier their embedded checksum takes from the pointer.
//!
//! # Source
//! OpenZFS `module/zfs/zio_checksum.c` (`zio_checksum_gang_verifier`).

use checksum::embedded;
use phys::{BlkPtrPhys, ChecksumType};

/// Bytes of a `zio_eck_t`.
pub(crate) const ECK_BYTES: usize = embedded::ECK_BYTES;

fn verifier(kind: ChecksumType, bp: &BlkPtrPhys) -> checksum::Words {
    if kind == ChecksumType::GangHeader {
        let dva = bp.dva[0];
        embedded::gang_header_verifier(dva.vdev(), dva.offset(), bp.physical_birth())
    } else {
        bp.cksum_words()
    }
}

/// Writes the embedded checksum of `kind` into `block`.
pub(crate) fn seal(kind: ChecksumType, bp: &BlkPtrPhys, block: &mut [u8]) {
    embedded::set(kind, &verifier(kind, bp), block);
}

/// Writes the embedded checksum of a log block, of the kind that its pointer names.
pub fn seal_log(bp: &BlkPtrPhys, block: &mut [u8]) {
    let kind = ChecksumType::try_from(bp.checksum()).expect("a log block's own pointer");
    if bp.uses_crypt() {
        embedded::set_beside_mac(kind, &verifier(kind, bp), block);
    } else {
        seal(kind, bp, block);
    }
}

/// Whether the checksum embedded in `block` matches, with the verifier from `bp`.
pub(crate) fn verify(kind: ChecksumType, bp: &BlkPtrPhys, block: &[u8]) -> bool {
    let verifier = verifier(kind, bp);
    let verified = match bp.uses_crypt() {
        true => embedded::verify_beside_mac(kind, &verifier, block),
        false => embedded::verify(kind, &verifier, block),
    };
    verified.is_ok()
}
