//! Encryption and decryption of runs of sectors, each with the key for its place.

use std::sync::Arc;

use base::Result;
use hmac::{Hmac, KeyInit, Mac};
use rt::Mutex;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha384, Sha512};

use crate::aes::{AesKey, BLOCK_BYTES, Direction, Xts};
use crate::keys::{SectorKeys, hmac, is_same};
use crate::layout::{Geometry, Spread};
use crate::{Attached, AuthAlgorithm, Cipher, MasterKey};

/// log2 of the number of sectors that one key covers.
const KEY_SHIFT: u32 = 20;
/// Expanded keys that are cached, one per entry of a direct-mapped table.
pub const KEPT_KEYS: u64 = 64;

/// The ciphers of all sectors.
pub(crate) struct Sectors {
    cipher: Cipher,
    key_bytes: usize,
    /// Size of the sectors that keys and IVs count in: those of the encrypted provider, or with
    /// authentication those of the provider below.
    unit_bytes: u64,
    keys_total: u64,
    keys: SectorKeys,
    /// All sectors use the first key: authenticated providers of version 5.
    is_first_key_only: bool,
    /// SHA-256 state after the IV key.
    iv_hash: Sha256,
    /// SHA-256 state after the key of the codes.
    code_hash: Sha256,
    /// Expanded keys, each at its number modulo [`KEPT_KEYS`].
    kept: Mutex<Vec<Option<NumberedCipher>>>,
}

type NumberedCipher = (u64, Arc<UnitCipher>);

/// An expanded key.
enum UnitCipher {
    Null,
    Cbc(Box<AesKey>),
    Xts(Box<Xts>),
}

impl Sectors {
    pub(crate) fn new(attached: &Attached, geometry: &Geometry) -> Sectors {
        let Attached { version, mkey, .. } = attached;
        let (unit_bytes, span) = match &geometry.spread {
            None => (u64::from(geometry.sectorsize), geometry.mediasize),
            Some(spread) => (spread.below as u64, attached.provsize),
        };
        let is_authenticated = geometry.spread.is_some();
        Sectors {
            cipher: attached.ealgo,
            key_bytes: usize::from(attached.keylen / 8),
            unit_bytes,
            keys_total: if *version < 5 {
                1
            } else {
                (span.saturating_sub(1) >> KEY_SHIFT) / unit_bytes + 1
            },
            keys: SectorKeys::new(mkey, *version, is_authenticated),
            is_first_key_only: *version < 6 && is_authenticated,
            iv_hash: Sha256::new_with_prefix(mkey.iv_key()),
            code_hash: Sha256::new_with_prefix(code_key(mkey)),
            kept: Mutex::new(vec![None; KEPT_KEYS as usize]),
        }
    }

    pub(crate) fn keys_total(&self) -> u64 {
        self.keys_total
    }

    /// The number of the key for `offset`, and where the next key begins.
    fn key_span(&self, offset: u64) -> (u64, u64) {
        if self.is_first_key_only || self.keys_total == 1 {
            return (0, u64::MAX);
        }
        let number = (offset >> KEY_SHIFT) / self.unit_bytes;
        let next = (number + 1).checked_mul(self.unit_bytes << KEY_SHIFT);
        (number, next.unwrap_or(u64::MAX))
    }

    #[doc(alias = "g_eli_key_hold")]
    fn unit_cipher(&self, number: u64) -> Arc<UnitCipher> {
        let place = usize::try_from(number % KEPT_KEYS).expect("below the count");
        if let Some((kept, cipher)) = &self.kept.lock()[place]
            && *kept == number
        {
            return Arc::clone(cipher);
        }
        let key = self.keys.key(number);
        let cipher = Arc::new(match self.cipher {
            Cipher::Null => UnitCipher::Null,
            Cipher::AesCbc => UnitCipher::Cbc(Box::new(AesKey::new(&key[..self.key_bytes]))),
            Cipher::AesXts => UnitCipher::Xts(Box::new(Xts::new(&key[..2 * self.key_bytes]))),
        });
        self.kept.lock()[place] = Some((number, Arc::clone(&cipher)));
        cipher
    }

    /// Encrypts or decrypts whole sectors in place; the first lies at `offset` below.
    pub(crate) fn crypt(&self, direction: Direction, mut data: &mut [u8], mut offset: u64) {
        while !data.is_empty() {
            let (number, next) = self.key_span(offset);
            let len = usize::try_from(next - offset).unwrap_or(usize::MAX);
            let (run, rest) = data.split_at_mut(len.min(data.len()));
            let unit_bytes = usize::try_from(self.unit_bytes).expect("a sector fits memory");
            self.crypt_run(
                &self.unit_cipher(number),
                direction,
                (run, unit_bytes),
                offset,
            );
            offset += run.len() as u64;
            data = rest;
        }
    }

    /// Encrypts or decrypts adjacent units of `unit_bytes`, all with the same key.
    fn crypt_run(
        &self,
        cipher: &UnitCipher,
        direction: Direction,
        (run, unit_bytes): (&mut [u8], usize),
        offset: u64,
    ) {
        match cipher {
            UnitCipher::Null => {}
            UnitCipher::Xts(xts) => {
                xts.crypt(direction, run, unit_bytes, (offset, self.unit_bytes));
            }
            UnitCipher::Cbc(aes) => {
                let mut places = (offset..).step_by(unit_bytes);
                let mut ivs = || self.iv(places.next().expect("offsets go on"));
                if direction == Direction::Encrypt {
                    return aes.cbc_encrypt_units(run, unit_bytes, ivs);
                }
                for unit in run.chunks_exact_mut(unit_bytes) {
                    aes.cbc_decrypt(ivs(), unit);
                }
            }
        }
    }

    /// The IV of a sector under CBC. Versions before 4 hashed the offset in host byte order;
    /// little-endian hosts wrote the same.
    #[doc(alias = "g_eli_crypto_ivgen")]
    fn iv(&self, offset: u64) -> [u8; BLOCK_BYTES] {
        let hash = self.iv_hash.clone().chain_update(offset.to_le_bytes());
        *hash
            .finalize()
            .first_chunk()
            .expect("a hash is longer than a block")
    }

    /// Encrypts the parts of sectors and stores a code before each.
    #[doc(alias = "g_eli_auth_run")]
    pub(crate) fn seal(&self, spread: &Spread, below: &mut [u8], offset: u64) {
        let code_bytes = spread.auth.code_bytes();
        let sectors = below.chunks_exact_mut(spread.below);
        for ((sector, len), at) in sectors
            .zip(spread.part_lengths())
            .zip((offset..).step_by(spread.below))
        {
            let (code, part) = sector.split_at_mut(code_bytes);
            let part = &mut part[..len];
            let cipher = self.unit_cipher(self.key_span(at).0);
            self.crypt_run(&cipher, Direction::Encrypt, (part, len), at);
            self.code(spread.auth, at, part, code);
        }
    }

    /// Checks the codes and decrypts the parts.
    ///
    /// # Errors
    /// The number of sectors below with a wrong code.
    pub(crate) fn unseal(
        &self,
        spread: &Spread,
        below: &mut [u8],
        offset: u64,
    ) -> Result<(), usize> {
        let code_bytes = spread.auth.code_bytes();
        let mut bad = 0;
        let mut right = [0; 64];
        let right = &mut right[..code_bytes];
        let sectors = below.chunks_exact_mut(spread.below);
        for ((sector, len), at) in sectors
            .zip(spread.part_lengths())
            .zip((offset..).step_by(spread.below))
        {
            let (code, part) = sector.split_at_mut(code_bytes);
            let part = &mut part[..len];
            self.code(spread.auth, at, part, right);
            if !is_same(code, right) {
                bad += 1;
            }
            let cipher = self.unit_cipher(self.key_span(at).0);
            self.crypt_run(&cipher, Direction::Decrypt, (part, len), at);
        }
        if bad == 0 { Ok(()) } else { Err(bad) }
    }

    /// The code over an encrypted part, keyed by its place.
    fn code(&self, auth: AuthAlgorithm, offset: u64, part: &[u8], code: &mut [u8]) {
        let hash = self.code_hash.clone().chain_update(offset.to_le_bytes());
        let key = hash.finalize();
        match auth {
            AuthAlgorithm::HmacSha1 => code_of::<Hmac<Sha1>>(&key, part, code),
            AuthAlgorithm::HmacSha256 => code_of::<Hmac<Sha256>>(&key, part, code),
            AuthAlgorithm::HmacSha384 => code_of::<Hmac<Sha384>>(&key, part, code),
            AuthAlgorithm::HmacSha512 => code_of::<Hmac<Sha512>>(&key, part, code),
        }
    }
}

fn code_of<M: Mac + KeyInit>(key: &[u8], part: &[u8], code: &mut [u8]) {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("a key of any length");
    mac.update(part);
    code.copy_from_slice(&mac.finalize().into_bytes());
}

/// The key from which the per-sector code keys of an authenticated provider are derived.
fn code_key(master: &MasterKey) -> [u8; 64] {
    hmac(master.data_key(), &[b"\x11"])
}
