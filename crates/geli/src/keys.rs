//! From passphrases and key files to the master key, and from there to the keys of sectors.
//!
//! # What it is
//! ```text
//! key files, passphrase, salt ──► user key ──► code key, slot key ──► a slot of the metadata
//!                                                                          │
//! master key = IV key │ data key  ◄─────────────────────────────────────────┘
//!                │         ├──► key of the codes (authenticated providers)
//!                │         └──► one key per 2^20 sectors
//!                └──► IVs of CBC; in versions 5 and 6 also the keys of the sectors
//! ```
//! Keys are derived by HMAC-SHA512; a passphrase goes through PBKDF2 first. An IV, and the key of a
//! sector's code, is SHA-256 over its key and the offset.
//!
//! # Source
//! FreeBSD `sys/geom/eli/g_eli_key.c`, `pkcs5v2.c`, `g_eli_key_cache.c`, `eli_genkey()` in
//! `lib/geom/eli/geom_eli.c`.

use base::{Error, ErrorKind, Result};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha512;

use crate::aes::AesKey;
use crate::attached::MasterKey;
use crate::metadata::{MASTER_KEY_BYTES, SLOT_BYTES, SLOTS};
use crate::{Cipher, Metadata};

/// PBKDF2 iterations in a simulation, where time cannot be measured: fixed, so that a machine
/// produces the same bytes on every host.
pub const ITERATIONS_SIMULATED: i32 = 200_000;
/// The target duration of deriving a key from a passphrase: 2 s.
const CALIBRATE_NS: u64 = 2_000_000_000;
/// The shortest probe whose duration is trusted: 100 ms.
const PROBE_NS: u64 = 100_000_000;
/// The longest passphrase, in bytes.
pub const PASSPHRASE_BYTES_MAX: usize = 1023;

pub(crate) fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 64] {
    let mut mac = Hmac::<Sha512>::new_from_slice(key).expect("a key of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// What a user has to open a provider: key files, a passphrase, or both.
#[derive(Clone, Default)]
pub struct Components {
    /// The contents of the key files, in order.
    pub keyfiles: Vec<Vec<u8>>,
    /// The passphrase.
    pub passphrase: Option<Vec<u8>>,
}

impl Components {
    /// Checks that there is something to derive a key from, and that the passphrase is not too long.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] in geli's words.
    pub fn check(&self) -> Result<()> {
        if self.keyfiles.is_empty() && self.passphrase.is_none() {
            return Err(Error::invalid("No key components given."));
        }
        match &self.passphrase {
            Some(passphrase) if passphrase.len() > PASSPHRASE_BYTES_MAX => {
                Err(Error::invalid("Passphrase too long."))
            }
            _ => Ok(()),
        }
    }

    /// The user key for metadata with this salt and number of iterations.
    ///
    /// # Errors
    /// As [`Components::check`], and if there is a passphrase but the metadata says there is none.
    #[doc(alias = "eli_genkey")]
    pub fn user_key(&self, salt: &[u8; 64], iterations: i32) -> Result<UserKey> {
        self.check()?;
        let mut derived = [0; 64];
        let mut parts: Vec<&[u8]> = self.keyfiles.iter().map(Vec::as_slice).collect();
        if let Some(passphrase) = &self.passphrase {
            match u32::try_from(iterations) {
                Err(_) => return Err(Error::invalid("Missing -p flag.")),
                Ok(0) => parts.extend([salt.as_slice(), passphrase]),
                Ok(rounds) => {
                    pbkdf2::pbkdf2_hmac::<Sha512>(passphrase, salt, rounds, &mut derived);
                    parts.push(&derived);
                }
            }
        }
        Ok(UserKey(hmac(&[], &parts)))
    }
}

/// A key derived from a user's components; it may or may not fit a slot.
#[derive(Clone)]
pub struct UserKey([u8; 64]);

/// How many iterations of PBKDF2 take about two seconds here; [`ITERATIONS_SIMULATED`] in a
/// simulation.
#[must_use]
#[doc(alias = "pkcs5v2_calculate")]
pub fn calibrate_iterations() -> i32 {
    if rt::is_simulated() {
        return ITERATIONS_SIMULATED;
    }
    let mut rounds = 1024_u32;
    loop {
        let start = rt::now_ns();
        let mut derived = [0; 64];
        pbkdf2::pbkdf2_hmac::<Sha512>(b"passphrase", &[0; 64], rounds, &mut derived);
        let took = (rt::now_ns() - start).max(1);
        if took >= PROBE_NS {
            let rounds = u128::from(rounds) * u128::from(CALIBRATE_NS) / u128::from(took);
            return i32::try_from(rounds).unwrap_or(i32::MAX).max(1);
        }
        rounds = rounds.saturating_mul(2);
    }
}

impl Metadata {
    /// Stores the master key in a slot, encrypted with a user key.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for an unknown cipher; [`ErrorKind::InvalidInput`] if there is no such slot.
    #[doc(alias = "g_eli_mkey_encrypt")]
    pub fn lock(&mut self, slot: u8, master: &MasterKey, user: &UserKey) -> Result<()> {
        let cipher = self.slot_cipher(user)?;
        let (slot, bit) = slot_index(slot)?;
        let code_key = hmac(&user.0, &[b"\x00"]);
        let mut record = [0; SLOT_BYTES];
        record[..MASTER_KEY_BYTES].copy_from_slice(&master.0);
        record[MASTER_KEY_BYTES..].copy_from_slice(&hmac(&code_key, &[&master.0]));
        if let Some(aes) = cipher {
            aes.cbc_encrypt([0; 16], &mut record);
        }
        self.mkeys[slot] = record;
        self.keys |= bit;
        Ok(())
    }

    /// Decrypts a slot, or the first one that the user key fits.
    ///
    /// # Errors
    /// [`ErrorKind::Permission`] if it fits none; [`ErrorKind::Unsupported`] for an unknown cipher.
    #[doc(alias = "g_eli_mkey_decrypt")]
    #[doc(alias = "g_eli_mkey_decrypt_any")]
    pub fn unlock(&self, user: &UserKey, slot: Option<u8>) -> Result<(MasterKey, u8)> {
        let cipher = self.slot_cipher(user)?;
        let code_key = hmac(&user.0, &[b"\x00"]);
        let candidates = match slot {
            Some(slot) => slot..slot.saturating_add(1),
            None => 0..SLOTS as u8,
        };
        for slot in candidates {
            let (index, bit) = slot_index(slot)?;
            if self.keys & bit == 0 {
                continue;
            }
            let mut record = self.mkeys[index];
            if let Some(aes) = &cipher {
                aes.cbc_decrypt([0; 16], &mut record);
            }
            let (master, code) = record
                .split_first_chunk::<MASTER_KEY_BYTES>()
                .expect("a slot is longer");
            if is_same(&hmac(&code_key, &[master]), code) {
                return Ok((MasterKey(*master), slot));
            }
        }
        Err(Error::new(ErrorKind::Permission, "wrong key"))
    }

    /// Overwrites a slot with random bytes and marks it unused.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] in geli's words.
    pub fn delete_slot(&mut self, slot: u8, is_forced: bool) -> Result<()> {
        let (index, bit) = slot_index(slot)?;
        if self.keys & bit == 0 && !is_forced {
            return Err(Error::invalid(format!("Master Key {slot} is not set.")));
        }
        if self.keys & !bit == 0 && !is_forced {
            return Err(Error::invalid(
                "This is the last Master Key. Use '-f' option if you really want to remove it.",
            ));
        }
        self.keys &= !bit;
        rt::fill_random(&mut self.mkeys[index]);
        Ok(())
    }

    /// Overwrites all slots with random bytes; `keys` stays as it is.
    pub(crate) fn delete_all_slots(&mut self) {
        rt::fill_random(self.mkeys.as_flattened_mut());
    }

    /// What encrypts the slots: CBC for every AES, nothing for the null cipher.
    fn slot_cipher(&self, user: &UserKey) -> Result<Option<AesKey>> {
        let cipher = Cipher::from_number(self.ealgo)?;
        if cipher == Cipher::Null {
            return Ok(None);
        }
        let bits = cipher.stored_key_bits(self.keylen)?;
        let key = hmac(&user.0, &[b"\x01"]);
        Ok(Some(AesKey::new(&key[..usize::from(bits / 8)])))
    }
}

fn slot_index(slot: u8) -> Result<(usize, u8)> {
    if usize::from(slot) >= SLOTS {
        return Err(Error::invalid("Invalid 'keyno' argument."));
    }
    Ok((usize::from(slot), 1 << slot))
}

/// Compares in constant time.
pub(crate) fn is_same(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    a.len() == b.len() && std::hint::black_box(differences) == 0
}

/// The source of the sector keys.
pub(crate) struct SectorKeys {
    /// HMAC key of the derivation, or the key itself before version 5.
    source: [u8; 64],
    is_single: bool,
}

impl SectorKeys {
    #[doc(alias = "g_eli_key_init")]
    pub(crate) fn new(master: &MasterKey, version: u32, is_authenticated: bool) -> SectorKeys {
        let data_key = if is_authenticated {
            hmac(master.data_key(), &[b"\x10"])
        } else {
            *master.data_key()
        };
        let is_single = version < 5;
        SectorKeys {
            source: if is_single || version >= 7 {
                data_key
            } else {
                *master.iv_key()
            },
            is_single,
        }
    }

    /// The key with that number.
    #[doc(alias = "g_eli_key_fill")]
    pub(crate) fn key(&self, number: u64) -> [u8; 64] {
        if self.is_single {
            return self.source;
        }
        hmac(&self.source, &[b"ekey", &number.to_le_bytes()])
    }
}

#[cfg(test)]
mod tests;
