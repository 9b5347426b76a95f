//! What a block pointer holds of encryption: salt, IV and MAC, and what of it other MACs cover.
//!
//! # On disk
//! The third DVA of an encrypted block is not a place: its first word is the salt, its second the first eight bytes
//! of the IV, whose last four are the upper half of the fill count. The MAC is the second half of the checksum.
//!
//! # Source
//! OpenZFS module/os/linux/zfs/zio_crypt.c (`zio_crypt_encode_params_bp`, `zio_crypt_encode_mac_bp`,
//! `zio_crypt_bp_auth_init`) @be7657e3.

use super::{BYTE_ORDER, BlkPtrPhys, CHECKSUM, COMPRESS, DEDUP, IV2, PSIZE};
use zerocopy::IntoBytes;

/// `ZIO_DATA_SALT_LEN`: bytes of a salt.
pub const SALT_LEN: usize = 8;
/// `ZIO_DATA_IV_LEN`: bytes of an IV.
pub const IV_LEN: usize = 12;
/// `ZIO_DATA_MAC_LEN`: bytes of a MAC.
pub const MAC_LEN: usize = 16;

/// The salt and IV that one block is encrypted with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CryptParams {
    /// From which the block's key is derived.
    pub salt: [u8; SALT_LEN],
    /// The initialisation vector.
    pub iv: [u8; IV_LEN],
}

impl BlkPtrPhys {
    /// `zio_crypt_decode_params_bp`: the salt and IV of an encrypted block.
    #[must_use]
    pub fn crypt_params(&self) -> CryptParams {
        let mut params = CryptParams::default();
        let [_, _, third] = &self.dva;
        let (salt, iv1) = third.as_bytes().split_at(SALT_LEN);
        params.salt.copy_from_slice(salt);
        let (head, tail) = params.iv.split_at_mut(8);
        head.copy_from_slice(iv1);
        let (_, iv2) = self.fill.as_bytes().split_at(4);
        tail.copy_from_slice(iv2);
        params
    }

    /// `zio_crypt_encode_params_bp`, `zio_crypt_encode_mac_bp`: enters what an encrypted block is opened with. The
    /// fill count is kept.
    pub fn set_sealed(&mut self, params: &CryptParams, mac: &[u8; MAC_LEN]) {
        assert!(self.is_encrypted(), "only encrypted blocks have a salt");
        let (iv1, iv2) = params.iv.split_at(8);
        let [_, _, third] = &mut self.dva;
        let (salt, second) = third.as_mut_bytes().split_at_mut(SALT_LEN);
        salt.copy_from_slice(&params.salt);
        second.copy_from_slice(iv1);
        let (_, upper) = self.fill.as_mut_bytes().split_at_mut(4);
        upper.copy_from_slice(iv2);
        self.set_mac(mac);
    }

    /// `zio_crypt_encode_mac_bp`: enters the MAC.
    pub fn set_mac(&mut self, mac: &[u8; MAC_LEN]) {
        let (_, second) = self.cksum.as_mut_bytes().split_at_mut(MAC_LEN);
        second.copy_from_slice(mac);
    }

    /// `zio_crypt_decode_mac_bp`: the MAC; zeros for a hole.
    #[must_use]
    pub fn mac(&self) -> [u8; MAC_LEN] {
        let mut mac = [0; MAC_LEN];
        let (_, second) = self.cksum.as_bytes().split_at(MAC_LEN);
        mac.copy_from_slice(second);
        mac
    }

    /// The properties that MACs above this pointer cover: those that a raw send carries over.
    #[must_use]
    #[doc(alias = "zio_crypt_bp_zero_nonportable_blkprop")]
    pub fn portable_prop(&self) -> u64 {
        if self.is_hole() {
            return 0;
        }
        let mut prop = self.prop.get();
        if self.level() != 0 {
            for field in [BYTE_ORDER, COMPRESS, PSIZE] {
                prop = field.set(prop, 0);
            }
        }
        for field in [DEDUP, CHECKSUM] {
            prop = field.set(prop, 0);
        }
        prop
    }

    /// The IV's second part, as zdb shows it.
    #[must_use]
    pub(crate) fn iv2(&self) -> u64 {
        IV2.get(self.fill.get())
    }
}
