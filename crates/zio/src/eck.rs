//! Gang headers and log blocks: which verifier their embedded checksum takes from the pointer.
//!
//! # Source
//! OpenZFS `module/zfs/zio_checksum.c` (`zio_checksum_gang_verifier`, `zio_checksum_handle_crypt`).

use checksum::embedded;
use phys::{BlkPtrPhys, ChecksumType};

use crate::keys::has_mac;

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
#[doc(alias = "zio_checksum_compute")]
pub(crate) fn seal(kind: ChecksumType, bp: &BlkPtrPhys, block: &mut [u8]) {
    match has_mac(bp) {
        true => embedded::set_beside_mac(kind, &verifier(kind, bp), block),
        false => embedded::set(kind, &verifier(kind, bp), block),
    }
}

/// Writes the embedded checksum of a log block, of the kind that its pointer names.
pub fn seal_log(bp: &BlkPtrPhys, block: &mut [u8]) {
    let kind = ChecksumType::try_from(bp.checksum()).expect("a log block's own pointer");
    seal(kind, bp, block);
}

/// Whether the checksum embedded in `block` matches, with the verifier from `bp`.
pub(crate) fn verify(kind: ChecksumType, bp: &BlkPtrPhys, block: &[u8]) -> bool {
    let verifier = verifier(kind, bp);
    let verified = match has_mac(bp) {
        true => embedded::verify_beside_mac(kind, &verifier, block),
        false => embedded::verify(kind, &verifier, block),
    };
    verified.is_ok()
}

#[cfg(test)]
mod tests {
    use base::{Txg, VdevId};
    use phys::{DvaPhys, ObjectType};

    use super::*;

    #[test]
    fn a_gang_header_is_verified_as_it_was_sealed() {
        for is_encrypted in [false, true] {
            for type_ in [ObjectType::PLAIN_FILE_CONTENTS, ObjectType::OBJSET] {
                let mut bp = BlkPtrPhys::default();
                bp.set_dva(0, DvaPhys::new(VdevId(1), 0x4000, 512, true));
                bp.set_birth(Txg(7), Txg(7));
                bp.set_type(type_.raw());
                bp.set_crypt(is_encrypted);
                let mut header = [0; 512];
                header[3] = 9;
                seal(ChecksumType::GangHeader, &bp, &mut header);
                // The words of a MAC, if the pointer has one, are zeros.
                let has_mac = is_encrypted && type_ != ObjectType::OBJSET;
                assert_eq!(header[512 - 16..] == [0; 16], has_mac);
                assert!(verify(ChecksumType::GangHeader, &bp, &header));
                header[3] = 8;
                assert!(!verify(ChecksumType::GangHeader, &bp, &header));
            }
        }
    }
}
