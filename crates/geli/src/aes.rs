//! AES in the modes that sectors and master keys use: XTS and CBC.
//!
//! # What it is
//! XTS (IEEE 1619) encrypts a data unit block by block; every block is XORed before and after with
//! a mask. The first mask of a unit is its number encrypted with a second key; each further one is
//! the previous one times x in GF(2^128). The units here are multiples of 16 bytes, so ciphertext
//! stealing (for a short last block) never occurs.
//!
//! # Why not simpler
//! The crate xts-mode encrypts one block after the other. The processor's AES pipeline can hold
//! several blocks at once, but only if they are submitted together: here the masks of a batch are
//! computed first, then the batch is encrypted in one call. The tests compare with that crate.

use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes192, Aes256, Block};

/// Blocks per call of the cipher.
const BATCH: usize = 32;
/// The length of a block in bytes.
pub(crate) const BLOCK_BYTES: usize = 16;

/// An expanded key.
pub(crate) enum AesKey {
    Bits128(Aes128),
    Bits192(Aes192),
    Bits256(Aes256),
}

impl AesKey {
    /// `key`: 16, 24 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> AesKey {
        let length = "a key of its own length";
        match key.len() {
            16 => AesKey::Bits128(Aes128::new_from_slice(key).expect(length)),
            24 => AesKey::Bits192(Aes192::new_from_slice(key).expect(length)),
            32 => AesKey::Bits256(Aes256::new_from_slice(key).expect(length)),
            other => panic!("an AES key of {other} bytes"),
        }
    }

    fn encrypt_blocks(&self, blocks: &mut [Block]) {
        match self {
            AesKey::Bits128(aes) => aes.encrypt_blocks(blocks),
            AesKey::Bits192(aes) => aes.encrypt_blocks(blocks),
            AesKey::Bits256(aes) => aes.encrypt_blocks(blocks),
        }
    }

    fn decrypt_blocks(&self, blocks: &mut [Block]) {
        match self {
            AesKey::Bits128(aes) => aes.decrypt_blocks(blocks),
            AesKey::Bits192(aes) => aes.decrypt_blocks(blocks),
            AesKey::Bits256(aes) => aes.decrypt_blocks(blocks),
        }
    }

    /// Encrypts `data` in place, chained; whole blocks.
    pub(crate) fn cbc_encrypt(&self, iv: [u8; BLOCK_BYTES], data: &mut [u8]) {
        let mut before = iv;
        for block in blocks_of(data) {
            xor(block, &before);
            self.encrypt_blocks(std::slice::from_mut(block));
            before = (*block).into();
        }
    }

    /// Encrypts units of `unit_bytes` in place, each chained from its own IV. Within a chain, blocks are
    /// necessarily sequential, so the chains of a batch of units run side by side.
    pub(crate) fn cbc_encrypt_units(
        &self,
        units: &mut [u8],
        unit_bytes: usize,
        mut ivs: impl FnMut() -> [u8; BLOCK_BYTES],
    ) {
        let mut chains = [Block::default(); BATCH];
        for batch in units.chunks_mut(unit_bytes * BATCH) {
            let chains = &mut chains[..batch.len() / unit_bytes];
            chains.fill_with(|| ivs().into());
            for at in (0..unit_bytes).step_by(BLOCK_BYTES) {
                let place =
                    |unit: usize| unit * unit_bytes + at..unit * unit_bytes + at + BLOCK_BYTES;
                for (unit, chain) in chains.iter_mut().enumerate() {
                    xor(chain, batch[place(unit)].as_array().expect("a block"));
                }
                self.encrypt_blocks(chains);
                for (unit, chain) in chains.iter().enumerate() {
                    batch[place(unit)].copy_from_slice(chain);
                }
            }
        }
    }

    /// Decrypts `data` in place; whole blocks.
    pub(crate) fn cbc_decrypt(&self, iv: [u8; BLOCK_BYTES], data: &mut [u8]) {
        let mut before = iv;
        let mut encrypted = [Block::default(); BATCH];
        for batch in blocks_of(data).chunks_mut(BATCH) {
            let encrypted = &mut encrypted[..batch.len()];
            encrypted.copy_from_slice(batch);
            self.decrypt_blocks(batch);
            for (block, this) in batch.iter_mut().zip(encrypted) {
                xor(block, &before);
                before = (*this).into();
            }
        }
    }
}

/// The two keys of XTS.
pub(crate) struct Xts {
    data: AesKey,
    mask: AesKey,
}

/// Which way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Encrypt,
    Decrypt,
}

impl Xts {
    /// `key`: the key of the data and the key of the masks, 16 or 32 bytes each.
    pub(crate) fn new(key: &[u8]) -> Xts {
        let (data, mask) = key.split_at(key.len() / 2);
        Xts {
            data: AesKey::new(data),
            mask: AesKey::new(mask),
        }
    }

    /// Encrypts or decrypts data units in place. The first one is number `number`; numbers go up by
    /// `step`.
    pub(crate) fn crypt(
        &self,
        direction: Direction,
        units: &mut [u8],
        unit_bytes: usize,
        (mut number, step): (u64, u64),
    ) {
        assert!(
            unit_bytes.is_multiple_of(BLOCK_BYTES) && unit_bytes > 0,
            "units of {unit_bytes} bytes"
        );
        assert!(
            units.len().is_multiple_of(unit_bytes),
            "{} bytes in units of {unit_bytes}",
            units.len()
        );
        let mut first_masks = [Block::default(); BATCH];
        for batch in units.chunks_mut(unit_bytes * BATCH) {
            let count = batch.len() / unit_bytes;
            for mask in &mut first_masks[..count] {
                *mask = u128::from(number).to_le_bytes().into();
                number = number.wrapping_add(step);
            }
            self.mask.encrypt_blocks(&mut first_masks[..count]);
            for (unit, mask) in batch.chunks_exact_mut(unit_bytes).zip(&first_masks) {
                self.crypt_unit(direction, unit, u128::from_le_bytes((*mask).into()));
            }
        }
    }

    fn crypt_unit(&self, direction: Direction, unit: &mut [u8], mut mask: u128) {
        let mut masks = [0_u128; BATCH];
        for batch in blocks_of(unit).chunks_mut(BATCH) {
            for (block, kept) in batch.iter_mut().zip(&mut masks) {
                *kept = mask;
                xor(block, &mask.to_le_bytes());
                mask = times_x(mask);
            }
            match direction {
                Direction::Encrypt => self.data.encrypt_blocks(batch),
                Direction::Decrypt => self.data.decrypt_blocks(batch),
            }
            for (block, kept) in batch.iter_mut().zip(&masks) {
                xor(block, &kept.to_le_bytes());
            }
        }
    }
}

/// Multiplies by x modulo x^128 + x^7 + x^2 + x + 1.
fn times_x(value: u128) -> u128 {
    let carry = (value >> 127) * 0x87;
    value << 1 ^ carry
}

fn blocks_of(data: &mut [u8]) -> &mut [Block] {
    let (blocks, rest) = Array::slice_as_chunks_mut(data);
    assert!(rest.is_empty(), "{} bytes behind the blocks", rest.len());
    blocks
}

fn xor(block: &mut Block, with: &[u8; BLOCK_BYTES]) {
    let mixed = u128::from_le_bytes((*block).into()) ^ u128::from_le_bytes(*with);
    *block = mixed.to_le_bytes().into();
}

#[cfg(test)]
mod tests;
