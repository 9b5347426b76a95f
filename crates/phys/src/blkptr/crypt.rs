//! What a block pointer holds of encryption: salt, IV and MAC, and what of it other MACs cover.
//!
//! # On disk
//! The third DVA of an encrypted block is not a place: its first word is the salt, its second the first eight bytes
//! of the IV, whose last four are the upper half of the fill count. The MAC is the second half of the checksum.
//!
//! These are strings of bytes in words: the host that writes the block puts them there as they are. What converts the
//! words of a pointer of a big-endian host also turns the strings around, so here they are turned back.
//!
//! # Source
//! OpenZFS module/os/linux/zfs/zio_crypt.c (`zio_crypt_encode_params_bp`, `zio_crypt_encode_mac_bp`,
//! `zio_crypt_bp_auth_init`) @be7657e3.

use super::{BYTE_ORDER, BlkPtrPhys, CHECKSUM, COMPRESS, DEDUP, IV2, PSIZE};
use zerocopy::little_endian::U64;

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
        params.salt = self.string(third.word[0]);
        let (head, tail) = params.iv.split_at_mut(8);
        head.copy_from_slice(&self.string(third.word[1]));
        let iv2 = IV2.get(self.fill.get()) as u32;
        tail.copy_from_slice(&match self.is_little_endian() {
            true => iv2.to_le_bytes(),
            false => iv2.to_be_bytes(),
        });
        params
    }

    /// `zio_crypt_encode_params_bp`, `zio_crypt_encode_mac_bp`: enters what an encrypted block is opened with. The
    /// fill count is kept. The byte order must have been set.
    pub fn set_sealed(&mut self, params: &CryptParams, mac: &[u8; MAC_LEN]) {
        assert!(self.is_encrypted(), "only encrypted blocks have a salt");
        let [iv1 @ .., a, b, c, d] = params.iv;
        let words = [self.word(params.salt), self.word(iv1)];
        let [_, _, third] = &mut self.dva;
        third.word = words;
        let iv2 = match self.is_little_endian() {
            true => u32::from_le_bytes([a, b, c, d]),
            false => u32::from_be_bytes([a, b, c, d]),
        };
        self.fill.set(IV2.set(self.fill.get(), u64::from(iv2)));
        self.set_mac(mac);
    }

    /// `zio_crypt_encode_mac_bp`: enters the MAC. The byte order must have been set.
    pub fn set_mac(&mut self, mac: &[u8; MAC_LEN]) {
        let mut words = [U64::new(0); 2];
        for (word, half) in words.iter_mut().zip(mac.as_chunks::<8>().0) {
            *word = self.word(*half);
        }
        let [_, _, second @ ..] = &mut self.cksum;
        *second = words;
    }

    /// `zio_crypt_decode_mac_bp`: the MAC; zeros for a hole.
    #[must_use]
    pub fn mac(&self) -> [u8; MAC_LEN] {
        let mut mac = [0; MAC_LEN];
        let [_, _, second @ ..] = self.cksum;
        for (half, word) in mac.as_chunks_mut::<8>().0.iter_mut().zip(second) {
            *half = self.string(word);
        }
        mac
    }

    /// The string of bytes that the writer of the block put into a word.
    fn string(&self, word: U64) -> [u8; 8] {
        match self.is_little_endian() {
            true => word.get().to_le_bytes(),
            false => word.get().to_be_bytes(),
        }
    }

    /// The word that has this string of bytes.
    fn word(&self, string: [u8; 8]) -> U64 {
        U64::new(match self.is_little_endian() {
            true => u64::from_le_bytes(string),
            false => u64::from_be_bytes(string),
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byteswap::swap_words;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    proptest! {
        /// What a big-endian host wrote into its own words is found again after these were converted.
        #[test]
        fn prop_strings_in_a_converted_pointer_are_those_of_its_writer(
            salt: [u8; SALT_LEN],
            iv: [u8; IV_LEN],
            mac: [u8; MAC_LEN],
            fill: u32,
        ) {
            let params = CryptParams { salt, iv };
            let mut bp = BlkPtrPhys::default();
            bp.set_type(crate::ObjectType::PLAIN_FILE_CONTENTS.raw());
            bp.set_fill(u64::from(fill));
            bp.set_crypt(true);
            prop_assert!(!bp.is_little_endian());
            // As the other host has it in memory and on disk: each word in its own order, the strings as they are.
            let mut theirs = bp;
            swap_words(theirs.as_mut_bytes());
            let bytes = theirs.as_mut_bytes();
            bytes[32..40].copy_from_slice(&salt);
            bytes[40..48].copy_from_slice(&iv[..8]);
            // The upper half of a big-endian word comes first.
            bytes[88..92].copy_from_slice(&iv[8..]);
            bytes[112..128].copy_from_slice(&mac);
            swap_words(theirs.as_mut_bytes());
            prop_assert_eq!((theirs.crypt_params(), theirs.mac()), (params, mac));
            prop_assert_eq!(theirs.fill(), u64::from(fill));
            bp.set_sealed(&params, &mac);
            prop_assert_eq!(bp.as_bytes(), theirs.as_bytes());

            bp.set_little_endian();
            bp.set_sealed(&params, &mac);
            prop_assert_eq!((bp.crypt_params(), bp.mac()), (params, mac));
            prop_assert_eq!(&bp.as_bytes()[112..], &mac[..]);
        }
    }
}
